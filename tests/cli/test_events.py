"""What commands and schedules write while they run, and where the heartbeat is."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

import toolkit as tk
from tests.cli.test_schedule import _Time, outcome
from tests.cli.test_statuses import configured, entry, run
from toolkit.cli import main, output, schedule
from toolkit.cli.exit_status import ExitStatus
from toolkit.cli.heartbeat import Heartbeat, heartbeat_file, read_heartbeat
from toolkit.cli.outcome import Outcome
from toolkit.cli.output import log_format, progress_lines
from toolkit.cli.schedule import Schedule

PAGE = json.dumps({"messages": [entry("a")]}).encode()


@pytest.mark.slow
def test_a_schedule_goes_on_after_its_pipes_are_closed(server, tmp_path: Path) -> None:
    """Nobody reads what it writes any more; runs go on, and so does the heartbeat in a chosen file."""
    server.always(PAGE)
    words = (
        "snapshot",
        "failures",
        "kept",
        "--every",
        "1s",
        "--heartbeat",
        "beat.json",
    )
    child = subprocess.Popen(
        [sys.executable, "-m", "toolkit", *words],
        cwd=tmp_path, env=configured(server.url), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    child.stdout.close()
    child.stderr.close()
    complete = set()
    for _ in range(600):
        if (tmp_path / "beat.json").exists():
            complete.add(
                json.loads((tmp_path / "beat.json").read_bytes())["last_complete_at"]
            )
        if len(complete - {None}) > 1:
            break
        time.sleep(0.1)
    assert child.poll() is None
    assert len(complete - {None}) > 1
    child.send_signal(signal.SIGTERM)
    assert child.wait(60) == ExitStatus.DONE
    assert not (tmp_path / "kept" / "_heartbeat.json").exists()


def test_the_heartbeat_of_an_object_store_is_the_chosen_file(tmp_path: Path) -> None:
    """A plain path is enough; without one nothing is written, and nothing is asked of the store."""
    beat = Heartbeat(
        path="s3://bucket/kept",
        pid=1,
        state="waiting",
        started_at="2026-01-01T00:00:00+00:00",
    )
    chosen = tmp_path / "beat.json"
    assert heartbeat_file(beat.path, chosen)(beat)
    assert read_heartbeat(beat.path, chosen) == beat


@pytest.mark.parametrize("every", ["1e300", "-1", "0"])
def test_a_heartbeat_with_an_impossible_interval_is_an_error(
    tmp_path: Path, every: str, capsys
) -> None:
    """A file that was edited or damaged is named by `toolkit status`, whatever number is in it."""
    chosen = tmp_path / "beat.json"
    times = '"started_at": "2026-01-01T00:00:00+00:00"'
    chosen.write_text(
        f'{{"path": "kept", "pid": 1, "state": "waiting", "every": {every}, {times}}}'
    )
    words = ["status", str(tmp_path / "kept"), "--heartbeat", str(chosen)]
    assert main(words) == ExitStatus.FAILED
    assert str(chosen) in capsys.readouterr().err


@pytest.mark.parametrize("chosen", ["json", "plain"])
def test_a_schedule_logs_requests_that_are_sent_again(
    server, chosen: str, capsys
) -> None:
    """With the delay until the next try, also as a number."""
    server.json(b'{"error": "not now"}', status=503)
    server.always(PAGE)

    def load() -> Outcome:
        with server.service() as service:
            assert len(tk.load_failures(service, progress=False)) == 1
        return outcome()

    with log_format(chosen):
        Schedule("kept", _Time(30).plan(every=60), lambda _: True).run_until_stopped(
            load
        )
    (line,) = [
        line
        for line in capsys.readouterr().err.splitlines()
        if "retry" in line or "503" in line
    ]
    if chosen == "json":
        event = json.loads(line)
        assert (event["event"], event["path"]) == ("retry", "kept")
        assert event["retry_in"] >= 0
    else:
        assert re.search(r"\d s\b|\ds\b", line)


def test_a_load_without_a_terminal_writes_lines_of_progress(
    server, tmp_path, monkeypatch, capsys
) -> None:
    """One object per line with rows and seconds; a terminal has a bar instead."""
    monkeypatch.setattr(output, "_PROGRESS", 0.0)
    for name, value in configured(server.url).items():
        monkeypatch.setenv(name, value)
    server.always(PAGE)
    assert (
        main(["snapshot", "failures", str(tmp_path / "kept"), "--log-format", "json"])
        == ExitStatus.DONE
    )
    captured = capsys.readouterr()
    events = [json.loads(line) for line in captured.err.splitlines()]
    progress = [event for event in events if event["event"] == "progress"]
    assert progress
    assert all(
        {"time", "rows", "total", "seconds"} <= event.keys() for event in progress
    )
    assert "event" not in captured.out
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert progress_lines("rows") is None


def test_the_progress_of_a_scheduled_run_counts_from_its_own_begin(
    server, tmp_path, monkeypatch, capsys
) -> None:
    """The second of two short runs writes no line that tells of an hour."""
    clock = _Time(7200)
    monkeypatch.setattr(schedule, "SchedulePlan", clock.plan)
    ticks = SimpleNamespace(monotonic=lambda: clock.seconds)
    monkeypatch.setattr(output, "time", ticks)
    for name, value in configured(server.url).items():
        monkeypatch.setenv(name, value)
    server.always(PAGE)
    words = ["snapshot", "failures", str(tmp_path / "kept"), "--every", "1h"]
    assert main(words) == ExitStatus.DONE
    captured = capsys.readouterr()
    assert captured.out.count("complete: 1 failure") == 2
    assert " after " not in captured.err


def test_messages_begin_with_the_time_if_asked(
    server, tmp_path: Path, monkeypatch, capsys
) -> None:
    """Those of errors and of loads; results on standard output stay as they are."""
    for name, value in configured(server.url).items():
        monkeypatch.setenv(name, value)
    server.always(PAGE)
    kept = str(tmp_path / "kept")
    assert (
        main(["snapshot", "failures", kept, "--log-format", "time"]) == ExitStatus.DONE
    )
    assert (
        main(["verify", kept, f"{kept}-2", "--log-format", "time"]) == ExitStatus.FAILED
    )
    out, err = capsys.readouterr()
    begins = r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00 toolkit: "
    assert len(err.splitlines()) == 2
    assert all(re.match(begins, line) for line in err.splitlines())
    assert not any(re.match(begins, line) for line in out.splitlines())


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ("completion bash", ExitStatus.DONE),
        ("redrive status", ExitStatus.FAILED),
        ("status nothing", ExitStatus.FAILED),
        ("query text", ExitStatus.FAILED),
        ("snapshot failures", ExitStatus.USAGE),
    ],
)
def test_processes_end_with_the_status_of_the_table(
    words: str, status: ExitStatus, tmp_path: Path
) -> None:
    """Without a service: a result, one line about an error, or the usage."""
    ended = run(
        *words.split(), folder=tmp_path, environment={"PATH": os.environ["PATH"]}
    )
    assert ended.returncode == status
    assert (ended.stdout != "") == (status is ExitStatus.DONE)
    if status is ExitStatus.FAILED:
        assert ended.stderr.startswith("toolkit: ")
        assert ended.stderr.count("\n") == 1
