"""Figures of a report are those that a count of its frames gives, and sentences are of what they count."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import pandas as pd
import pytest

import toolkit as tk
from tests.reports.conftest import failures
from tests.reports.test_explained import records, section
from toolkit.cli import main
from toolkit.reports.failure_report import report_failures

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)


def at(times: Any, text: str = "disk full", **more: Any) -> list[dict[str, Any]]:
    """Rows of one error at these times."""
    return [
        {"dlq_id": f"{text} {when.isoformat()}", "failed_at": when, "created_at": when, "workflow_url": "u",
         "workflow_run_id": f"of {text} {when}", "response_status": 500, "response_body": text, **more}
        for when in times
    ]  # fmt: skip


def every(minutes: int, start: datetime, stop: datetime) -> list[datetime]:
    """Times in equal steps, without the last."""
    return [
        start + number * minutes * MINUTE
        for number in range(round((stop - start) / MINUTE) // minutes)
    ]


def in_queue(frame: pd.DataFrame, gone: Any) -> pd.DataFrame:
    """The frame as of a snapshot: entries that left the queue, by their ids."""
    left = frame["dlq_id"].isin(list(gone))
    time = frame["failed_at"] + HOUR
    seen = {"first_seen_at": frame["failed_at"], "gone_after": time.where(left)}
    return frame.assign(**seen, gone_before=(time + MINUTE).where(left))


def with_earlier(
    rows: list[dict[str, Any]], until: datetime
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """A frame and the one that was loaded at an earlier time, each with its receipt."""
    frames = []
    for end in (NOW, until):
        some = [row for row in rows if row["failed_at"] <= end]
        frames.append(
            failures(
                some, ended_at=end.isoformat(), started_at=(end - MINUTE).isoformat()
            )
        )
    return frames[0], frames[1]


def test_a_stock_that_grows_at_a_constant_rate_is_no_change(
    options: dict[str, Any],
) -> None:
    """Snapshots never drop rows: what counts is how many failures came, not how many there are."""
    later, earlier = with_earlier(at(every(24, NOW - 240 * HOUR, NOW)), NOW - 24 * HOUR)
    report = report_failures(later, earlier, **options)
    change = report.to_dict()["change"]
    assert (change["worse"], change["grown_groups"], change["new_groups"]) == (
        False,
        [],
        [],
    )
    assert report.verdict.endswith("No clear change from before.")
    sentence = section(report, "changed")["sentence"]
    assert re.search(
        r"usually 60 in such a time: no clear change from before\. Of 1 group: 1 steady\.$",
        sentence,
    )


def test_a_rise_of_one_group_is_worse(options: dict[str, Any]) -> None:
    """Beside a steady stream, a group that comes five times as often grew, and a new one is new."""
    rows = at(every(24, NOW - 240 * HOUR, NOW)) + at(
        every(120, NOW - 240 * HOUR, NOW), "no route"
    )
    rows += at(every(30, NOW - 23.9 * HOUR, NOW), "no route") + at(
        [NOW - HOUR], "bad token"
    )
    later, earlier = with_earlier(rows, NOW - 24 * HOUR)
    report = report_failures(later, earlier, **options)
    change = report.to_dict()["change"]
    assert change["worse"] is True
    assert [change["titles"][group] for group in change["grown_groups"]] == ["no route"]
    assert [change["titles"][group] for group in change["new_groups"]] == ["bad token"]
    assert {row["group"]: row["change"] for row in records(report, "changed")} == {
        "bad token": "new", "no route": "growing",
    }  # fmt: skip
    assert "as 1 group grew" in report.verdict


@pytest.mark.parametrize(("times", "status"), [(1, 0), (4, 5)])
def test_the_command_fails_on_a_rise_of_the_rate_alone(
    times: int,
    status: int,
    tmp_path: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A snapshot that only grows ends with 0, one that grows faster than before with 5."""
    monkeypatch.chdir(tmp_path)
    now = datetime.now(UTC).replace(microsecond=0) - MINUTE
    rows = at(every(24, now - 240 * HOUR, now - 24 * HOUR))
    rows += at(every(24 // times, now - 24 * HOUR, now))
    for name, end in (("new", now), ("old", now - 24 * HOUR)):
        ended = {"ended_at": end.isoformat(), "started_at": end.isoformat()}
        some = [row for row in rows if row["failed_at"] <= end]
        tk.write_snapshot(failures(some, **ended), name)
    command = (
        "report --snapshot new --previous old --retention 30d"
        " --fail-on new --fail-on worse --output r.json"
    )
    assert main(command.split()) == status
    assert ("worse since" in capsys.readouterr().err) == bool(status)


def test_every_reason_is_printed(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The status is of the first reason; standard error has both."""
    monkeypatch.chdir(tmp_path)
    now = datetime.now(UTC).replace(microsecond=0) - MINUTE
    rows = at(every(120, now - 240 * HOUR, now)) + at(
        every(5, now - 20 * HOUR, now), "bad token"
    )
    loaded = {"ended_at": now.isoformat(), "started_at": now.isoformat()}
    tk.write_snapshot(failures(rows, **loaded), "kept")
    command = "report --snapshot kept --retention 30d --fail-on worse --fail-on new --output r.json"
    assert main(command.split()) == 4
    said = capsys.readouterr().err
    assert "new since" in said
    assert re.search(r"worse since \S+: \d+ failures, usually 12 in such a time", said)


def test_the_change_is_counted_to_the_second(options: dict[str, Any]) -> None:
    """Both counts of the last day are the same, whatever the seconds of the time of the report."""
    now = NOW + timedelta(seconds=37)
    edge = [
        now - 24 * HOUR + timedelta(seconds=second) for second in (-30, -7, 0, 7, 30)
    ]
    report = report_failures(
        failures(at([*every(10, NOW - 90 * HOUR, NOW - 25 * HOUR), *edge, NOW])),
        **options | {"now": now},
    )
    found = report.to_dict()
    assert found["change"]["failures"] == found["recent"]["failures"] == 3


def test_loads_seconds_apart_are_compared(options: dict[str, Any]) -> None:
    """What came in the seconds since the earlier load is counted, not the whole minutes."""
    start = NOW - timedelta(seconds=30)
    first = at([start + timedelta(seconds=0.1 * number) for number in range(100)])
    rows = first + at(
        [start + timedelta(seconds=12 + number) for number in range(9)], "no route"
    )
    later, earlier = with_earlier(rows, start + timedelta(seconds=10))
    report = report_failures(later, earlier, **options)
    assert report.to_dict()["change"]["failures"] == 9
    assert records(report, "changed")[0]["now"] == 9
    assert not report.to_dict()["change"]["worse"]


def test_entries_that_left_the_queue_are_gone_and_cannot_be_retried(
    options: dict[str, Any],
) -> None:
    """Of a snapshot, those with `gone_before` count as gone since, and expire no more."""
    rows = at(every(60, NOW - 48 * HOUR, NOW - 24 * HOUR)) + at(
        every(60, NOW - 20 * HOUR, NOW), "no route"
    )
    later, earlier = with_earlier(rows, NOW - 24 * HOUR)
    gone = [row["dlq_id"] for row in (*rows[:21], rows[-1])]
    kept = in_queue(later, gone)
    report = report_failures(kept, in_queue(earlier, []), **options)
    comparison = report.to_dict()["comparison"]
    assert (comparison["new"], comparison["gone"]) == (20, 21)
    signed = tk.group_failures(kept).assign(kept)
    counted = tk.analysis.count_expiring(signed, "7d", NOW, by="signature").drop(
        columns="next_at"
    )
    rows = records(report, "deadline")
    waiting = kept[kept["gone_before"].isna()].groupby("response_body")["failed_at"]
    assert {row["group"]: row["failures"] for row in rows} == {
        "disk full": 3,
        "no route": 19,
    }
    assert (
        sum(row["failures"] for row in rows)
        == counted.drop(columns="signature").to_numpy().sum()
    )
    for row in rows:
        times = (waiting.min()[row["group"]], waiting.max()[row["group"]])
        assert [
            datetime.fromisoformat(row[name])
            for name in ("first expires", "last expires")
        ] == [when + timedelta(days=7) for when in times]


def test_the_named_error_the_count_and_the_ids_are_of_the_same_failures(
    options: dict[str, Any],
) -> None:
    """Where a few failures of a condition have another error, most of them have the named one."""
    quiet = every(60, NOW - 140 * HOUR, NOW)
    burst = [NOW - 5 * HOUR + number * timedelta(seconds=9) for number in range(1_000)]
    shared = {"headers": json.dumps({"User-Agent": ["2.14"]})}
    rows = at(quiet, "late", headers=json.dumps({"User-Agent": ["2.13"]}))
    for number, when in enumerate(burst):
        rows += at(
            [when], "TypeError: no currency" if number % 25 else "late", **shared
        )
    report = report_failures(failures(rows), **options)
    (row,) = records(report, "why")
    assert row["explanation"].startswith("1. mostly TypeError: no currency")
    assert row["failures"] == 1_000
    assert (
        "The largest explanation is mostly TypeError: no currency, in u: 1,000 failures"
        in report.verdict
    )
    text, code = section(report, "actions")["parts"]
    chosen = re.search(
        r"^chosen = (tk\.select_failures.*)$", code["code"], re.MULTILINE
    )[1]
    found = eval(chosen, {"tk": tk, "failures": failures(rows)})  # noqa: S307 - users are meant to run it
    assert len(found) == 960
    assert all(name.startswith("TypeError") for name in found["dlq_id"])
    assert (
        "selects 960 failures of this kind in the queue; the explanation has 1,000"
        in text["text"]
    )
    last = max(
        row["failed_at"] for row in rows if row["response_body"] != "late"
    ) + timedelta(days=7)
    assert f"The last expires at {last:%Y-%m-%d %H:%M} UTC" in text["text"]


@pytest.mark.slow
def test_a_receipt_of_a_snapshot_says_what_its_load_read(
    server: Any, tmp_path: Any
) -> None:
    """Entries that have left the queue are in the frame, and were not read by the last load."""
    for names in ("abc", "c"):
        rows = [
            {"dlqId": name, "createdAt": 1_767_225_600_000, "url": "https://u.example/"}
            for name in names
        ]
        server.json(json.dumps({"messages": rows}).encode())
        tk.sync_failures(server.service(), tmp_path / "kept", progress=False)
    frame = tk.read_snapshot(tmp_path / "kept")
    receipt = tk.get_receipt(frame)
    assert (len(frame), receipt.rows, receipt.frame_rows, receipt.complete) == (
        3,
        1,
        3,
        True,
    )
    assert (
        receipt.verdict
        == "complete: 1 failure; this frame has 3 rows, not the 1 loaded"
    )
    assert tk.summarize(frame).complete is True
    for source in (frame, tmp_path / "kept"):
        assert report_failures(source, now=NOW).to_dict()["completeness"][
            "sentence"
        ] == (
            "Complete: every entry present during the load was read (1 row). The report includes 2 from "
            "earlier loads that are no longer in the queue."
        )


_FORMS = """
import sys
import toolkit as tk
report = tk.report_failures(tk.read_snapshot(sys.argv[1]))
report.to_short(), report.to_markdown(), report.to_json()
print("matplotlib" in sys.modules)
report.to_html()
print("matplotlib" in sys.modules)
"""


def test_forms_without_figures_load_no_plots(tmp_path):
    """A short report, Markdown and JSON do without matplotlib, which takes half a second to import."""
    tk.write_snapshot(failures(at([NOW - HOUR, NOW])), tmp_path / "kept")
    ended = subprocess.run(
        [sys.executable, "-c", _FORMS, tmp_path / "kept"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stdout.split() == ["False", "True"]
