"""Panels of a load that is not complete say so, as long as they show it."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd
import pytest

import toolkit as tk
from tests.conftest import Reply
from toolkit.errors import IncompleteLoadError
from toolkit.widgets.failure_browser import FailurePanel
from toolkit.widgets.failure_filter import FailureFilterPanel
from toolkit.widgets.metadata_filter import MetadataFilterPanel

PAGES = 3
_JSON = {"Content-Type": "application/json"}


class Queue:
    """A queue of three pages of two failures, which can break after the first page."""

    def __init__(self, server: Any) -> None:
        self.server, self.is_broken = server, False
        server.respond = self.page

    def page(self, request: Any) -> Reply:
        """Return a page of the listing, or an error that is not retried."""
        number = int(dict(request.query).get("cursor", 0))
        rows = [
            {
                "dlqId": f"d{number}-{row}",
                "createdAt": 1_760_000_000_000 + number,
                "workflowUrl": f"https://shop.example/{number}",
                "responseBody": "disk full",
                "responseStatus": 500,
            }
            for row in range(2)
        ]
        if self.is_broken and number:
            return Reply(403, _JSON, b'{"error": "not allowed"}')
        more = {"cursor": str(number + 1)} if number + 1 < PAGES else {}
        return Reply(200, _JSON, json.dumps({"messages": rows, **more}).encode())


@pytest.fixture
def queue(server: Any) -> Queue:
    """Return the queue of a test."""
    return Queue(server)


def connected(queue: Queue) -> tk.Service:
    """Return a connection to the queue."""
    service: tk.Service = queue.server.service()
    return service


def partial_load(queue: Queue) -> pd.DataFrame:
    """Return the rows of a load that ended after the first page."""
    queue.is_broken = True
    with pytest.raises(IncompleteLoadError) as caught:
        tk.load_failures(connected(queue), progress=False)
    assert isinstance(caught.value.partial, pd.DataFrame)
    return caught.value.partial


def test_a_board_of_a_partial_load_says_that_failures_are_missing(queue: Queue) -> None:
    """The remark stays if the user searches; a board of the whole queue has none."""
    panel = FailurePanel(partial_load(queue))
    missing = "Not all failures are here: the load did not end"
    assert missing in panel.view["remarks"]
    panel.value = tk.FailureView(search="disk")
    assert missing in panel.view["remarks"]

    saved = panel._repr_mimebundle_()
    for form in ("text/html", "text/plain"):
        assert "Not all were loaded: the load did not end" in saved[form]

    queue.is_broken = False
    whole = FailurePanel(tk.load_failures(connected(queue), progress=False))
    assert "Not all" not in whole.view["remarks"]


def test_a_load_with_a_limit_is_named_in_every_count(
    sample_service: tk.Service,
) -> None:
    """The filters of failures and of metadata count loaded rows, and say that these are not all."""
    failures = tk.load_failures(sample_service, limit=50, progress=False)
    vectors = tk.load_vectors(sample_service, limit=50, progress=False)
    why = "Not all were loaded: only the first 50 were requested"
    assert why in FailureFilterPanel(failures).matching()
    assert why in MetadataFilterPanel(vectors).matching()


def test_counts_are_of_the_last_load_of_the_whole_queue(queue: Queue) -> None:
    """After an error the rows read so far are counted, then all rows; a filter narrows no choice."""
    panel = FailureFilterPanel(connected(queue))
    queue.is_broken = True
    with pytest.raises(IncompleteLoadError):
        panel.run()
    assert len(panel.frame()) == 2
    assert panel.matching().startswith("2 of 2 loaded failures match. Not all were")
    assert "panel.frame() has the rows read so far" in panel.message
    assert "exception" not in panel.message

    queue.is_broken = False
    panel.run()
    assert panel.matching() == "6 of 6 loaded failures match"

    panel.value = tk.FailureFilter(workflow_url="https://shop.example/1")
    panel.run()
    assert panel.matching() == "2 of 6 loaded failures match"
