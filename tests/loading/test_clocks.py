"""Failures of destinations whose clock is off: their times are bounded, marked and counted."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import toolkit as tk
from tests.conftest import ScriptedServer
from toolkit.analysis import clock_errors
from toolkit.tables.failures import FailureDecoder
from toolkit.tables.frames import to_frame
from toolkit.tables.receipt import Receipt, clock_sentence
from toolkit_service.demo.local_service import LocalService

_HOURS = 5
_LATE = 60  # failures of the last four hours, of the destination whose clock is ahead
_EARLIER = 200


def _now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


@contextmanager
def _failing(date: str | timedelta | None) -> Iterator[str]:
    """Run an application that answers 500 with this Date header, or with its clock off by so much."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response_only(500)
            stated = (
                format_datetime(_now() + date, usegmt=True)
                if isinstance(date, timedelta)
                else date
            )
            if stated is not None:
                self.send_header("Date", stated)
            self.send_header("Content-Length", "4")
            self.end_headers()
            self.wfile.write(b"boom")

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/flow"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("date", "ahead"),
    [
        (timedelta(hours=_HOURS), _HOURS * 3_600),
        (timedelta(days=-2), -2 * 86_400),
        ("Tue, 01 Jan 2036 00:00:00 GMT", None),
        (timedelta(0), 0),
        ("yesterday at noon", 0),
        (None, 0),
    ],
    ids=["ahead", "behind", "2036", "right", "malformed", "missing"],
)
def test_a_real_application_with_a_wrong_clock(
    date: str | timedelta | None, ahead: int | None
) -> None:
    """No row is lost, each is placed between its creation and the load, and impossible headers are named."""
    with (
        LocalService(time_factor=100_000, indexes=[]) as local,
        _failing(date) as address,
    ):
        service = tk.connect(queue_url=local.url, queue_token=local.token, environ={})
        for number in range(3):
            tk.publish(service, address, {"order": number}, retries=1)
        failures = pd.DataFrame()
        deadline = time.monotonic() + 60
        while len(failures) < 3 and time.monotonic() < deadline:
            failures = tk.load_failures(service, kind="messages", progress=False)
            time.sleep(0.1)
    assert len(failures) == 3
    placed = failures["failed_at"].fillna(failures["created_at"])
    assert (placed >= failures["created_at"].dt.floor("s")).all()
    assert (placed <= _now() + timedelta(seconds=1)).all()
    errors = tk.get_receipt(failures).clocks
    assert errors == clock_errors(failures)
    is_wrong = ahead != 0
    assert tk.get_receipt(failures).estimated_times == len(failures) * is_wrong
    assert failures["stated_failed_at"].notna().tolist() == [is_wrong] * len(failures)
    if ahead:
        assert errors[0].destination == address.split("/")[2]
        assert errors[0].seconds_ahead == pytest.approx(ahead, rel=0.05)


def _entries(now: datetime) -> list[dict[str, Any]]:
    """Return failures of the last four hours by a clock that is ahead, one of 2036, and earlier ones."""

    def entry(
        number: int, failed: datetime, stated: datetime, host: str
    ) -> dict[str, Any]:
        created_at = int(failed.timestamp() * 1000) - 15_000
        return {
            "dlqId": f"{number:04}",
            "workflowRunId": f"wfr_{number}",
            "workflowUrl": f"https://{host}/orders",
            "url": f"https://{host}/orders",
            "createdAt": created_at,
            "maxRetries": 1,
            "responseStatus": 500,
            "responseHeader": {"Date": [format_datetime(stated, usegmt=True)]},
            "responseBody": "TypeError: amount is not a number",
        }

    ahead = timedelta(hours=_HOURS)
    late = [now - timedelta(minutes=4 * minute + 1) for minute in range(_LATE)]
    entries = [
        entry(number, failed, failed + ahead, "ahead.example.com")
        for number, failed in enumerate(late)
    ]
    far = datetime(2036, 1, 1, tzinfo=UTC)
    entries.append(entry(900, now - timedelta(minutes=30), far, "far.example.com"))
    for number in range(_EARLIER - 1):
        failed = now - timedelta(hours=25, minutes=20 * number)
        entries.append(entry(1_000 + number, failed, failed, "right.example.com"))
    return entries


@pytest.fixture
def loaded(server: ScriptedServer) -> tuple[tk.Service, pd.DataFrame]:
    """A load from a queue with these entries, and its service."""
    server.always(json.dumps({"messages": _entries(_now()), "cursor": ""}).encode())
    service = tk.connect(queue_url=server.url, queue_token="t", environ={})
    return service, tk.load_failures(service, limit=1_000, progress=False)


def test_failures_of_a_clock_that_is_ahead_are_in_rates_incidents_and_the_headline(
    loaded: tuple[tk.Service, pd.DataFrame],
) -> None:
    """The failures of the last four hours count as those, and the report names the destinations."""
    _, failures = loaded
    now = _now()
    assert len(failures) == _LATE + _EARLIER
    recent = tk.analysis.recent_failures(failures, now)
    assert (recent.failures, recent.failures_before) == (_LATE + 1, 69)
    trend = tk.analysis.failure_trend(failures)
    assert trend.starts[-1] <= now
    assert trend.starts[-1] - trend.starts[0] < timedelta(days=10)
    report = tk.report_failures(failures, now=now)
    found = json.loads(report.to_json())
    assert found["overview"]["last_at"] <= now.isoformat()
    named = {
        error["destination"]: error["rows"] for error in found["completeness"]["clocks"]
    }
    assert named == {"ahead.example.com": _LATE, "far.example.com": 1}
    assert "ahead.example.com is 5 hours ahead" in found["completeness"]["sentence"]
    assert "ahead.example.com is 5 hours ahead" in str(tk.summarize(failures))
    incidents = tk.analysis.find_incidents(failures)
    assert incidents["observed"].max() >= _LATE


def test_the_receipt_counts_estimated_times_and_keeps_them(
    loaded: tuple[tk.Service, pd.DataFrame],
) -> None:
    """The count and the destinations survive JSON, and the verdict states them."""
    receipt = tk.get_receipt(loaded[1])
    assert receipt.estimated_times == _LATE + 1
    assert receipt.clocks[0].seconds_ahead == _HOURS * 3_600
    again = Receipt.from_dict(json.loads(json.dumps(receipt.to_dict())))
    assert again.clocks == receipt.clocks
    assert clock_sentence(receipt.clocks) in receipt.verdict


def test_a_snapshot_keeps_what_the_first_load_estimated(
    server: ScriptedServer, tmp_path: Path
) -> None:
    """An entry that is read again when its header has become possible is not a change."""
    now = _now()
    entries = _entries(now)
    server.always(json.dumps({"messages": entries, "cursor": ""}).encode())
    service = tk.connect(queue_url=server.url, queue_token="t", environ={})
    path = tmp_path / "snapshot"
    assert (
        tk.sync_failures(service, path, progress=False).receipt.estimated_times
        == _LATE + 1
    )
    later = format_datetime(now + timedelta(hours=_HOURS + 1), usegmt=True)
    # other bytes of the same values, so that every entry is decoded and compared
    server.always(
        json.dumps({"messages": entries, "cursor": ""}, indent=1).encode(), Date=later
    )
    changes = tk.sync_failures(service, path, progress=False)
    assert changes.counts == {"added": 0, "changed": 0, "gone": 0}
    assert sum(error.rows for error in clock_errors(path)) == _LATE + 1


def test_what_is_known_of_retries_places_the_failure() -> None:
    """The estimate counts the retries that the request states, else those that were allowed."""
    now = _now()
    created_at = now - timedelta(hours=2)
    entry = {
        "dlqId": "allowed",
        "createdAt": int(created_at.timestamp() * 1000),
        "maxRetries": 2,
        "responseHeader": {
            "Date": [format_datetime(now + timedelta(days=400), usegmt=True)]
        },
    }
    made = entry | {"dlqId": "made", "header": {"Upstash-Retried": ["1"]}}
    many = entry | {"dlqId": "many", "maxRetries": 100}
    unknown = entry | {"dlqId": "unknown", "createdAt": None}
    page = json.dumps([entry, made, many, unknown]).encode()
    frame = to_frame(
        FailureDecoder(None, clock=lambda: int(now.timestamp() * 1000)).decode(page)
    )
    delays = (frame["failed_at"] - frame["created_at"]).dt.total_seconds()
    assert delays[:3].round().tolist() == [161, 12, 7_200]
    assert frame["failed_at"].isna().tolist() == [False] * 3 + [True]
    assert frame["stated_failed_at"].notna().all()
