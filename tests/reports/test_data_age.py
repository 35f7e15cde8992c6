"""Nothing is told about a period that the data do not cover."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd
import pytest

import toolkit as tk
from tests.reports.conftest import NOW, failures
from toolkit.analysis import error_signatures, recent_failures
from toolkit.cli.command_line import main
from toolkit.cli.exit_status import ExitStatus
from toolkit.failures.over_time import failure_trend
from toolkit.reports.failure_report import report_failures
from toolkit.snapshots.manifest import read_manifest, write_manifest
from toolkit.snapshots.object_store import open_store
from toolkit.tables.receipt import Syncs

HOUR = timedelta(hours=1)
JUDGED = ["--fail-on", "new", "--fail-on", "worse"]


def stream(
    end: datetime, *, text: str = "card declined", hours: int = 240
) -> list[dict[str, Any]]:
    """A failure an hour until a time, all of one kind."""
    times = [end - number * HOUR for number in range(hours)]
    return [_row(time, text) for time in times]


def _row(time: datetime, text: str) -> dict[str, Any]:
    return {"failed_at": time, "created_at": time, "workflow_url": "https://shop.example/pay",
            "workflow_run_id": f"wfr_{time:%d%H%M}", "response_status": 500,
            "response_body": text}  # fmt: skip


def loaded(
    rows: list[dict[str, Any]], end: datetime, syncs: Syncs | None = None
) -> pd.DataFrame:
    """A frame of a complete load that began at a time."""
    frame = failures(
        rows, started_at=end.isoformat(), ended_at=end.isoformat(), scope={}
    )
    if syncs is not None:
        frame.attrs["receipt"]["syncs"] = {
            "complete_at": syncs.complete_at,
            "every_seconds": syncs.every_seconds,
            "longest_seconds": syncs.longest_seconds,
        }
    return frame


def every(seconds: float, complete_at: datetime) -> Syncs:
    """The syncs of a snapshot."""
    return Syncs(complete_at=complete_at.isoformat(), every_seconds=seconds)


@pytest.mark.slow
def test_a_stopped_snapshot_tells_nothing_about_the_last_day(
    options: dict[str, Any],
) -> None:
    """Recent counts and changes are null, and the headline and the JSON have the age."""
    end = NOW - timedelta(days=14)
    frame = loaded(stream(end), end, every(3600, end))
    found = report_failures(frame, **options | {"now": lambda: NOW})
    values = found.to_dict()
    assert found.verdict.startswith(
        "Out of date: the data end at 2026-02-24 12:00 UTC, 14 days before"
    )
    assert values["data"] == {
        "state": "old", "until": "2026-02-24T12:00:00.000+00:00", "age_hours": 336.0, "max_age_hours": 3.0,
    }  # fmt: skip
    recent, change = values["recent"], values["change"]
    counts = ("failures", "failures_before", "workflows", "workflows_before")
    assert [recent[name] for name in counts] == [None] * 4
    assert [
        change[name]
        for name in ("since", "failures", "expected", "worse", "new_groups")
    ] == [None] * 5
    assert change["grown_groups"] == []
    numbers = {
        number["name"]: (number["value"], number["change"])
        for number in values["numbers"]
    }
    assert numbers["in the last 24 hours"] == (None, None)
    assert any("Out of date" in notice.text for notice in found.notices)
    assert "ongoing" not in found.verdict
    for text in (found.to_markdown(), found.to_html()):
        assert "14 days before this report" in text


def test_counts_end_when_the_data_end(options: dict[str, Any]) -> None:
    """Two hours after the latest sync, the last day is the one before the sync, and is named so."""
    end = NOW - 2 * HOUR
    values = report_failures(
        loaded(stream(end), end, every(3600, end)), **options
    ).to_dict()
    assert values["data"]["state"] == "current"
    assert values["recent"]["until"] == end.isoformat(timespec="milliseconds")
    assert values["recent"]["failures"] == values["recent"]["failures_before"] == 24
    assert values["change"]["failures"] == 24
    assert values["change"]["worse"] is False
    assert "in the 24 hours until 2026-03-10 10:00 UTC" in {
        number["name"] for number in values["numbers"]
    }


@pytest.mark.parametrize(
    ("age", "syncs", "max_age", "state"),
    [
        (2 * HOUR, 3600.0, None, "current"),
        (4 * HOUR, 3600.0, None, "old"),
        (4 * HOUR, 3600.0, "5h", "current"),
        (2 * HOUR, 3600.0, timedelta(minutes=90), "old"),
        (40 * timedelta(minutes=1), 30.0, None, "current"),  # an hour at least
        (20 * HOUR, None, None, "current"),
        (25 * HOUR, None, None, "old"),
        (-2 * HOUR, 3600.0, None, "ahead"),
    ],
)
def test_how_old_data_may_be(
    age: timedelta,
    syncs: float | None,
    max_age: Any,
    state: str,
    options: dict[str, Any],
) -> None:
    """Three times the usual time between syncs, a day without them, or what is given."""
    end = NOW - age
    frame = loaded(
        stream(end, hours=60), end, None if syncs is None else every(syncs, end)
    )
    found = report_failures(frame, max_age=max_age, **options | {"now": lambda: NOW})
    assert found.to_dict()["data"]["state"] == state
    assert (recent_failures(frame, lambda: NOW, max_age=max_age).failures is None) == (
        state != "current"
    )
    counts = tk.analysis.count_workflows(frame, now=lambda: NOW, max_age=max_age)
    assert counts["recent"].isna().all() == (state != "current")


def test_a_look_back_is_not_a_wrong_clock(options: dict[str, Any]) -> None:
    """A report as of an earlier time is on data that are later."""
    frame = loaded(stream(NOW), NOW)
    assert (
        report_failures(frame, **options | {"now": NOW - 5 * HOUR}).to_dict()["data"][
            "state"
        ]
        == "current"
    )


def test_a_trend_ends_with_the_data() -> None:
    """No empty bars stand for hours of which nothing is known."""
    end = NOW - timedelta(days=3)
    trend = failure_trend(loaded(stream(end), end), freq="1h", now=NOW)
    assert trend.starts[-1] == pd.Timestamp(end)


def test_what_was_first_seen_after_a_gap_is_new(options: dict[str, Any]) -> None:
    """An error that failed while no sync ran, two days ago, is new once it is seen."""
    rows = [*stream(NOW - HOUR), _row(NOW - 50 * HOUR, "no space left on device")]
    frame = loaded(rows, NOW).assign(
        first_seen_at=pd.Timestamp(NOW - 240 * HOUR).as_unit("ms")
    )
    frame.loc[len(rows) - 1, "first_seen_at"] = pd.Timestamp(NOW - 3 * HOUR).as_unit(
        "ms"
    )
    ids = error_signatures(["card declined", "no space left on device"])
    frame["signature"] = pd.Series([*ids[:1] * (len(rows) - 1), ids[1]], dtype="str")
    change = report_failures(frame, **options).to_dict()["change"]
    assert [change["titles"][group] for group in change["new_groups"]] == [
        "no space left on device"
    ]


def test_the_first_failures_of_a_quiet_queue_are_new(options: dict[str, Any]) -> None:
    """That nothing failed in the days before is something to compare with, if the load covers them."""
    frame = loaded(
        [_row(NOW - HOUR * number / 10, "no space left") for number in range(1, 21)],
        NOW,
    )
    change = report_failures(frame, **options).to_dict()["change"]
    assert len(change["new_groups"]) == 1
    assert change["worse"] is True
    nothing = report_failures(loaded([], NOW), **options).to_dict()["change"]
    assert (nothing["new_groups"], nothing["worse"], nothing["failures"]) == (
        [],
        False,
        0,
    )


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A snapshot that was loaded a minute ago, in the current folder."""
    monkeypatch.chdir(tmp_path)
    now = datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=1)
    tk.write_snapshot(loaded(stream(now), now), "kept")
    return tmp_path


def _backdate(path: str, age: timedelta, syncs: int) -> None:
    """Write the manifest again as it would be if hourly syncs had stopped some time ago."""
    store = open_store(path, None)
    manifest = read_manifest(store)
    assert manifest is not None
    (receipt,) = manifest.receipts
    ends = [
        datetime.now(UTC) - age - number * HOUR for number in reversed(range(syncs))
    ]
    receipts = tuple(
        receipt | {"started_at": end.isoformat(), "ended_at": end.isoformat()}
        for end in ends
    )
    write_manifest(store, msgspec.structs.replace(manifest, receipts=receipts))


@pytest.mark.slow
def test_fail_on_has_a_status_for_data_that_are_too_old(
    kept: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """6, with the age on standard error and in the report; a larger --max-age judges again."""
    report = [
        "report",
        "--snapshot",
        "kept",
        "--retention",
        "30d",
        "--output",
        "r.json",
    ]
    assert main([*report, *JUDGED]) == ExitStatus.DONE
    _backdate("kept", timedelta(days=14), 1)
    capsys.readouterr()
    assert main([*report, *JUDGED]) == ExitStatus.TOO_OLD == 6
    printed = capsys.readouterr()
    assert "14 days ago" in printed.err
    assert "Out of date" in printed.out
    assert json.loads((kept / "r.json").read_text())["data"]["state"] == "old"
    assert main(report) == ExitStatus.DONE  # nothing is judged
    assert "14 days ago" in capsys.readouterr().err
    assert main([*report, *JUDGED, "--max-age", "30d"]) == ExitStatus.DONE


def test_verify_has_a_status_for_a_sync_that_stopped(
    kept: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By what is usual for this snapshot, or by --max-age; a snapshot that is not synced has no usual age."""
    _backdate("kept", timedelta(days=14), 1)
    assert main(["verify", "kept"]) == ExitStatus.DONE
    assert main(["verify", "kept", "--max-age", "2h"]) == ExitStatus.TOO_OLD
    assert "14 days old" in capsys.readouterr().out
    store = open_store("kept", None)
    manifest = read_manifest(store)
    assert manifest is not None
    write_manifest(store, msgspec.structs.replace(manifest, kind="vectors"))
    _backdate_many(5)
    found = tk.verify_snapshot("kept")
    assert found.out_of_date.startswith("the data are 14 days old")
    assert (
        tk.verify_snapshot(
            "kept", now=datetime.now(UTC) - timedelta(days=14)
        ).out_of_date
        == ""
    )


def _backdate_many(number: int) -> None:
    _backdate("kept", timedelta(days=14), number)


def test_a_day_alone_is_not_judged(
    kept: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """--since 1d leaves nothing to compare with: it is refused before anything is loaded."""
    assert main(["report", "--since", "1d", "--fail-on", "new"]) == ExitStatus.FAILED
    assert "without an earlier time" in capsys.readouterr().err


def test_a_browser_warns_of_old_data() -> None:
    """A line above the table names the age, and there is none for data of today."""
    end = NOW - timedelta(days=3)
    frame = loaded(stream(end, hours=5), end)
    old = tk.FailurePanel(frame, now=NOW)
    new = tk.FailurePanel(frame, now=NOW, max_age="4d")
    assert "3 days old" in str(old.view)
    assert "Out of date" not in str(new.view)
