"""Schedules: when runs begin, what ends them, and what they write, with a clock that a test moves."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from toolkit.cli.command_line import sigterm_as_interrupt
from toolkit.cli.exit_status import ExitStatus
from toolkit.cli.heartbeat import Heartbeat, heartbeat_file, read_heartbeat
from toolkit.cli.outcome import Outcome
from toolkit.cli.output import log_format
from toolkit.cli.schedule import MOST_FOR_A_PERSON, Schedule, SchedulePlan
from toolkit.errors import (
    AuthenticationError,
    SettingsError,
    SnapshotBindingError,
    SnapshotDamagedError,
    ToolkitError,
    TransportError,
)
from toolkit.tables.receipt import Receipt

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


class _Time:
    """A clock that sleeping moves, and that interrupts the schedule after some time."""

    def __init__(self, end: float) -> None:
        self.seconds = 0.0
        self.end = end

    def sleep(self, seconds: float) -> None:
        """Move on."""
        assert seconds > 0
        self.seconds += seconds
        if self.seconds >= self.end:
            raise KeyboardInterrupt

    def plan(self, **options: Any) -> SchedulePlan:
        """A schedule's plan with this clock."""
        return SchedulePlan(
            clock=lambda: BEGIN + timedelta(seconds=self.seconds),
            monotonic=lambda: self.seconds + 1000,
            sleep=self.sleep,
            **options,
        )


def outcome(*, complete: bool = True) -> Outcome:
    """What a run of three rows did."""
    times = {
        "started_at": "2026-01-01T00:00:00+00:00",
        "ended_at": "2026-01-01T00:00:01+00:00",
    }
    receipt = Receipt(
        what="failures", source="s", scope={}, rows=3, complete=complete, **times
    )
    status = ExitStatus.DONE if complete else ExitStatus.NOT_COMPLETE
    return Outcome("3 added", receipt, 3, status)


def refused() -> AuthenticationError:
    """An error of a token."""
    return AuthenticationError("listing", status=401, message="no")


def runs_of(steps: list[Outcome | Exception]) -> Callable[[], Outcome]:
    """A run that does these steps, and then the last one for ever."""
    left: Iterator[Outcome | Exception] = iter(steps)
    last = steps[-1]

    def run() -> Outcome:
        step = next(left, last)
        if isinstance(step, Exception):
            raise step
        return step

    return run


def scheduled(
    steps: list[Outcome | Exception], *, end: float = 600, **options: Any
) -> tuple[ExitStatus | Exception, list[Heartbeat]]:
    """How a schedule of one run per minute ends, and its heartbeats."""
    beats: list[Heartbeat] = []

    def beat(heartbeat: Heartbeat) -> bool:
        beats.append(heartbeat)
        return True

    schedule = Schedule("kept", _Time(end).plan(every=60, **options), beat)
    try:
        return schedule.run_until_stopped(runs_of(steps)), beats
    except ToolkitError as error:
        return error, beats


@pytest.mark.parametrize(
    ("takes", "starts"),
    [
        ([1, 1, 1], [0, 60, 120, 180]),
        ([1, 70, 1], [0, 60, 180, 240]),
        ([60, 200, 0], [0, 120, 360, 420]),
    ],
)
def test_runs_begin_at_multiples_of_the_interval(
    takes: list[float], starts: list[float]
) -> None:
    """The time a run takes delays no later one; times that pass meanwhile are left out."""
    clock, begun = _Time(starts[-1] + 60), []
    left = iter(takes)

    def run() -> Outcome:
        begun.append(clock.seconds)
        clock.seconds += next(left, 0)
        return outcome()

    assert (
        Schedule("kept", clock.plan(every=60), lambda _: True).run_until_stopped(run)
        == 0
    )
    assert begun == starts


@pytest.mark.parametrize(
    ("steps", "status"),
    [
        ([outcome()], ExitStatus.DONE),
        ([TransportError("a"), outcome()], ExitStatus.DONE),
        ([outcome(), TransportError("a")], ExitStatus.FAILED),
        ([outcome(complete=False)], ExitStatus.NOT_COMPLETE),
    ],
)
def test_a_stopped_schedule_ends_with_the_status_of_its_last_run(
    steps, status: ExitStatus
) -> None:
    """A stop after nothing but failures is no success."""
    assert scheduled(steps)[0] == status


@pytest.mark.parametrize(
    ("steps", "options", "failures"),
    [
        ([refused()], {}, MOST_FOR_A_PERSON),
        ([SnapshotDamagedError("a")], {}, MOST_FOR_A_PERSON),
        ([outcome(), SettingsError("a")], {}, MOST_FOR_A_PERSON),
        ([TransportError("a")], {"max_failures": 5}, 5),
        ([refused()], {"max_failures": 2}, 2),
        ([refused()], {"max_failures": 50}, MOST_FOR_A_PERSON),
    ],
)
def test_a_schedule_gives_up(steps, options: dict[str, int], failures: int) -> None:
    """Errors that a person has to repair end it soon, all others after --max-failures."""
    error, beats = scheduled(steps, **options)
    assert error is steps[-1]
    assert (beats[-1].failures_in_a_row, beats[-1].state) == (
        failures,
        "ended with an error",
    )
    assert beats[-1].next_run_at is None
    assert f"{failures} failed runs" in error.__notes__[-1]
    error.__notes__.clear()


@pytest.mark.parametrize("error", [SettingsError("a"), SnapshotBindingError("a")])
def test_an_error_of_the_options_ends_a_schedule_at_once(error: ToolkitError) -> None:
    """Nothing is retried that cannot become right."""
    ended, beats = scheduled([error])
    assert ended is error
    assert beats[-1].state == "ended with an error"


def test_failures_count_in_a_row_only() -> None:
    """A run between them that does not fail, such as with a new token, starts the count again."""
    status, beats = scheduled(
        [refused(), refused(), outcome()] * 3 + [outcome()], max_failures=3
    )
    assert status == ExitStatus.DONE
    assert max(beat.failures_in_a_row for beat in beats) == 2


def test_the_heartbeat_tells_what_was_last_done() -> None:
    """Time and rows of the last complete run, the last error, and when the next run is."""
    _, beats = scheduled(
        [outcome(), TransportError("listing"), outcome(complete=False)], end=170
    )
    waiting = [beat for beat in beats if beat.state == "waiting"]
    assert [beat.last_complete_at for beat in waiting] == [
        "2026-01-01T00:00:00+00:00"
    ] * 3
    assert [beat.next_run_at[-14:-6] for beat in waiting] == [
        "00:01:00",
        "00:02:00",
        "00:03:00",
    ]
    assert [beat.last_error for beat in waiting] == [None, "listing", None]
    assert [beat.failures_in_a_row for beat in waiting] == [0, 1, 0]
    assert {beat.rows for beat in waiting} == {3}
    assert beats[-1].state == "stopped"


def test_a_schedule_survives_a_folder_that_is_away_for_a_while(tmp_path: Path) -> None:
    """A disk that is not mounted for a minute ends no schedule, and the heartbeat is written again later."""
    disk, away = tmp_path / "disk", tmp_path / "away"
    disk.mkdir()
    path = str(disk / "kept")

    def unmounted() -> Outcome:
        disk.rename(away)
        disk.touch()  # no folder can be made below a file
        return outcome()

    def mounted() -> Outcome:
        disk.unlink()
        away.rename(disk)
        return outcome()

    steps = iter([outcome, unmounted, outcome, mounted])

    def run() -> Outcome:
        step = next(steps)
        return step()

    plan = _Time(240).plan(every=60)
    schedule = Schedule(path, plan, heartbeat_file(path, None))
    assert schedule.run_until_stopped(run) is ExitStatus.DONE

    heartbeat = read_heartbeat(path, None)
    assert heartbeat is not None
    assert heartbeat.state == "stopped"
    assert heartbeat.last_run_at == "2026-01-01T00:03:00+00:00"


def test_a_schedule_logs_one_json_object_per_event(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With time, event, rows, seconds and error; results on standard output, the rest on standard error."""
    with log_format("json"):
        scheduled([outcome(), TransportError("listing"), outcome()], end=170)
    out, err = (
        list(map(json.loads, text.splitlines())) for text in capsys.readouterr()
    )
    assert [event["event"] for event in out] == ["synced", "synced"]
    assert [event["event"] for event in err] == ["failed", "stopped"]
    for event in (*out, err[0]):
        assert {"time", "event", "rows", "seconds", "error", "path"} <= set(event)
    assert (out[0]["rows"], out[0]["error"]) == (3, None)
    assert (err[0]["error"], err[0]["retry_in"]) == ("listing", 60.0)


def test_sigterm_is_an_interrupt_inside_only() -> None:
    """Within the block SIGTERM raises, afterwards it is as it was; in other threads nothing changes."""
    before = signal.getsignal(signal.SIGTERM)

    @sigterm_as_interrupt()
    def terminated() -> None:
        signal.raise_signal(signal.SIGTERM)

    with pytest.raises(KeyboardInterrupt):
        terminated()
    assert signal.getsignal(signal.SIGTERM) is before
    found = []

    @sigterm_as_interrupt()
    def elsewhere() -> None:
        found.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert found == [before]
