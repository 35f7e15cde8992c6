"""How the outcome of a redrive reads: in its result, status, report, panel and the command line."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pandas as pd
import pytest

import toolkit as tk
from tests.redrive.conftest import Shop
from tests.redrive.test_panel import until
from tests.widgets.page import write
from toolkit.redrive.queue_reader import QueueReader
from toolkit.secrets.redaction import Redactor

STOPPED = "Stopped: 0 succeeded, 1 still running, 2 not sent."
ERROR = "late has no stock"


@pytest.fixture
def late(shop: Shop) -> pd.DataFrame:
    """Failures whose deliveries fail at once and are retried after the deadline of the tests' plans."""
    return shop.fail("late", 3, Retries="1", **{"Retry-Delay": "30000"})


@pytest.mark.slow
def test_a_redrive_that_did_nothing_is_stopped_and_names_the_error(
    shop: Shop, ledger: Path, late: pd.DataFrame
) -> None:
    """Counts, the last error and no "done": the same from the run, the status, the report and the shell."""
    plan = tk.plan_redrive(late, deadline="1s")
    result = tk.run_redrive(
        shop.service,
        plan,
        ledger=ledger,
        confirm=plan.confirmation,
        progress=lambda *_: None,
    )
    assert result.verdict.startswith(STOPPED)
    assert ERROR in result.last_error
    assert ERROR in result.frame.set_index("state").loc["stopped", "reason"].iloc[0]
    status = tk.read_redrive_status(ledger)
    assert status.verdict == result.verdict
    (section,) = [
        one
        for one in tk.report_failures(late, redrive=ledger).sections
        if one.name == "redrive"
    ]
    assert section.sentence == result.verdict
    command = [
        sys.executable,
        "-m",
        "toolkit",
        "redrive",
        "status",
        "--ledger",
        str(ledger),
    ]
    shown = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=60
    )
    assert shown.stdout.startswith(STOPPED)
    assert ERROR in shown.stdout


def test_the_panel_counts_down_and_shows_the_error(
    shop: Shop, ledger: Path, late: pd.DataFrame
) -> None:
    """While a canary is retried: elapsed time, time until the deadline, and the last error; then it stops."""
    plan = tk.plan_redrive(late, deadline=timedelta(seconds=3))
    panel = tk.RedrivePanel(shop.service, late, value=plan, ledger=ledger)
    messages = []
    panel.observe(lambda _: messages.append(panel.message), "status")
    write(panel.confirm, plan.confirmation)
    panel.receive({"kind": "press", "name": "Run"})
    until(lambda: panel.message.startswith(STOPPED))
    shown = " ".join(messages)
    assert re.search(
        r"running for \d+ s · 1 started, 2 waiting · \d s until the deadline", shown
    )
    assert ERROR in shown
    assert STOPPED in panel.outcome


def test_a_run_that_is_waited_for_has_a_countdown(shop: Shop, ledger: Path) -> None:
    """Another process sees until when, and how long that is; at the end the reason of a success is empty."""
    failed = shop.fail("waited", 2)
    shop.mended.add("waited")
    shop.held["waited"] = threading.Event()
    plan = tk.plan_redrive(failed, deadline="5m")
    options = {
        "ledger": ledger,
        "confirm": plan.confirmation,
        "progress": lambda *_: None,
    }
    running = threading.Thread(
        target=lambda: tk.run_redrive(shop.service, plan, **options)
    )
    running.start()
    until(
        lambda: (
            ledger.exists()
            and "started" in set(tk.read_redrive_history(ledger)["state"])
        )
    )
    status = tk.read_redrive_status(ledger)
    assert status.verdict.startswith(
        "Not finished: 0 succeeded, 1 started, 1 not sent."
    )
    assert status.deadline is not None
    assert status.deadline - status.read_at <= pd.Timedelta(minutes=5)
    assert re.search(r"4 min \d+ s left|5 min left", status.verdict)
    shop.held["waited"].set()
    running.join(60)
    done = tk.read_redrive_status(ledger)
    assert done.verdict == "Done: 2 succeeded."
    assert done.frame["reason"].isna().all()


def test_a_plan_without_entries_has_nothing_to_do(shop: Shop, ledger: Path) -> None:
    """Neither an empty plan nor one that leaves everything is reported as done."""
    failed = shop.fail("left", 2)
    for failures, actions, words in (
        (failed.iloc[:0], None, "no entries"),
        (failed, "leave", "2 entries"),
    ):
        plan = tk.plan_redrive(failures, actions=actions)
        result = tk.run_redrive(
            shop.service, plan, ledger=ledger, confirm=plan.confirmation
        )
        assert result.verdict.startswith("Nothing to do: ")
        assert words in result.verdict


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (
            "<!doctype html><html><head><title>502 Bad Gateway</title></head><body><h1>502 Bad Gateway</h1>",
            "502 Bad Gateway",
        ),
        ('{"error": {"message": "no stock"}}', "no stock"),
        ("late has\nno stock", "late has no stock"),
    ],
)
def test_the_last_error_is_read_in_the_body_that_the_log_has(
    monkeypatch: pytest.MonkeyPatch, body: str, error: str
) -> None:
    """People see the error of a page or of JSON, not its markup."""
    event = {"workflowRunId": "wfr_1", "time": 1, "error": body}
    page = SimpleNamespace(rows=json.dumps([event]).encode())
    monkeypatch.setattr(
        "toolkit.redrive.queue_reader.list_log_page", lambda *_, **__: page
    )
    reader = QueueReader(Mock(), Redactor(), tk.GroupRules(""))
    assert reader.last_error("wfr_1") == error
