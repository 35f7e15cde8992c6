"""Sync a snapshot at fixed times until you stop it: ``toolkit snapshot --every``.

A failed run is reported with the time of the next run. The schedule ends by itself

- at once, after an error that no later run can recover from, for example a snapshot of another service;
- after three runs in a row that failed with an error that a person has to repair, for example a refused token
  or a damaged snapshot;
- after ``--max-failures`` failed runs in a row, whatever the error.

If the log cannot be written, because the reader has ended or the disk is full, the schedule continues.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

import msgspec

from toolkit.base.errors import (
    AuthenticationError,
    InputError,
    SettingsError,
    SnapshotBindingError,
    SnapshotDamagedError,
    ToolkitError,
    UnexpectedResultWarning,
)
from toolkit.cli.exit_status import ExitStatus
from toolkit.cli.heartbeat import Heartbeat, State, timestamp
from toolkit.cli.outcome import Outcome
from toolkit.cli.output import has_events, message_line, shortened, write_line

_RETRY_LOG: Final = "toolkit.service.transport"
_PERMANENT: Final = (InputError, SnapshotBindingError, UnexpectedResultWarning)
_FOR_A_PERSON: Final = (AuthenticationError, SnapshotDamagedError, SettingsError)
MOST_FOR_A_PERSON: Final = 3
"""Runs in a row with an error that only a person can repair. A token that is just being rotated is one."""


@dataclass(frozen=True, kw_only=True)
class SchedulePlan:
    """When runs begin and when the schedule gives up. Tests replace the clocks."""

    every: float
    max_failures: int | None = None
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


class Schedule:
    """The runs of one snapshot at multiples of an interval, never overlapping."""

    def __init__(
        self, path: str, plan: SchedulePlan, beat: Callable[[Heartbeat], bool]
    ) -> None:
        self._path = path
        self._plan = plan
        self._beat = beat
        self._status = ExitStatus.DONE
        self._began = plan.monotonic()
        self._runs = 0
        self._heartbeat = Heartbeat(
            path=path,
            pid=os.getpid(),
            state="running",
            every=plan.every,
            started_at=timestamp(plan.clock()),
        )

    def run_until_stopped(self, run: Callable[[], Outcome]) -> ExitStatus:
        """Run now and at fixed times after that.

        Returns
        -------
        ExitStatus
            The status of the last run, if Ctrl-C or SIGTERM ends the schedule.

        Raises
        ------
        ToolkitError
            The error of the last run, if the schedule ends by itself.
        """
        try:
            with _retries_logged(self._log):
                while True:
                    self._update("running")
                    self._run(run)
                    # computed after the run: times that passed during a long run are skipped
                    delay = self._delay()
                    next_run = self._plan.clock() + timedelta(seconds=delay)
                    self._update("waiting", next_run_at=timestamp(next_run))
                    self._plan.sleep(delay)
        except KeyboardInterrupt:
            self._update("stopped", next_run_at=None)
            text = "stopped; the next run resumes an unfinished load"
            write_line(sys.stderr, message_line(text, event="stopped", path=self._path))
            return self._status
        except BaseException as error:
            # any exception, so that no heartbeat reports a running schedule for a process that has ended
            self._update("ended with an error", next_run_at=None, **self._error(error))
            raise

    def _run(self, run: Callable[[], Outcome]) -> None:
        """Run once, and report the outcome. Raise the error if another run cannot help."""
        self._runs += 1
        began = self._plan.monotonic()
        started = timestamp(self._plan.clock())

        try:
            outcome = run()
        except _PERMANENT:
            raise
        except (ToolkitError, OSError, MemoryError) as error:
            self._failed(error, seconds=self._plan.monotonic() - began)
            return

        seconds = round(self._plan.monotonic() - began, 1)
        self._status = outcome.status
        complete = outcome.receipt.complete
        changes: dict[str, Any] = {
            "last_run_at": started,
            "failures_in_a_row": 0,
            "last_error": None,
        }
        if complete:
            changes |= {"last_complete_at": started, "rows": outcome.rows}
        self._heartbeat = msgspec.structs.replace(self._heartbeat, **changes)
        event = "synced" if complete else "not complete"
        facts = {
            "rows": outcome.rows,
            "loaded": outcome.receipt.rows,
            "seconds": seconds,
            "error": None,
        }
        self._log(
            event,
            f"{outcome.verdict}; {outcome.receipt.verdict}",
            is_result=True,
            **facts,
        )
        if outcome.shown is not None:
            outcome.shown()

    def _failed(self, error: Exception, *, seconds: float) -> None:
        """Report a failed run. Raise the error if the schedule gives up."""
        self._status = ExitStatus.FAILED
        in_a_row = self._heartbeat.failures_in_a_row + 1
        changes = {
            "last_run_at": timestamp(self._plan.clock()),
            "failures_in_a_row": in_a_row,
        }
        self._heartbeat = msgspec.structs.replace(
            self._heartbeat, **changes, **self._error(error)
        )
        if isinstance(error, SettingsError) and self._runs == 1:
            raise error  # nothing was configured; later, a file of a token may be missing for a moment

        most = self._plan.max_failures
        if isinstance(error, _FOR_A_PERSON):
            most = min(most or MOST_FOR_A_PERSON, MOST_FOR_A_PERSON)
        if most is not None and in_a_row >= most:
            error.add_note(f"Gave up after {in_a_row:,} failed runs in a row.")
            raise error

        delay = self._delay()
        text = (
            f"{error} Next run in {delay:,.0f} s, after {in_a_row:,} failed in a row."
        )
        facts = {
            "rows": None,
            "seconds": round(seconds, 1),
            "error": shortened(str(error)),
            "retry_in": delay,
        }
        self._log("failed", text, is_result=False, **facts)

    def _error(self, error: BaseException) -> dict[str, str]:
        now = timestamp(self._plan.clock())
        return {
            "last_error": shortened(str(error) or type(error).__name__),
            "last_error_at": now,
        }

    def _delay(self) -> float:
        """Return the seconds until the next multiple of the interval."""
        # For example, every 60 s and 130 s after the start, 60 - 130 % 60 = 50 s are left. The monotonic
        # clock does not jump when the time of the machine is set.
        return (
            self._plan.every - (self._plan.monotonic() - self._began) % self._plan.every
        )

    def _update(self, state: State, **changes: str | None) -> None:
        """Change these values of the heartbeat, and write it."""
        self._heartbeat = msgspec.structs.replace(
            self._heartbeat, state=state, **changes
        )
        self._beat(self._heartbeat)

    def _log(self, event: str, text: str, *, is_result: bool, **facts: object) -> None:
        """Write a line: results to standard output, everything else to standard error."""
        line = f"{timestamp(self._plan.clock())} {self._path}: {shortened(text)}"
        if not is_result:
            line = f"toolkit: {line}"
        if has_events():
            line = message_line(text, event=event, path=self._path, **facts)
        write_line(sys.stdout if is_result else sys.stderr, line)


class _RetryHandler(logging.Handler):
    """Pass the log records of the client about retries to a schedule."""

    def __init__(self, log: Callable[..., None]) -> None:
        super().__init__(logging.INFO)
        self._log = log
        # has the format of the log, which threads of requests do not know
        self._context = copy_context()

    def emit(self, record: logging.LogRecord) -> None:
        delay = getattr(record, "delay", None)
        log = partial(
            self._log, "retry", record.getMessage(), is_result=False, retry_in=delay
        )
        self._context.copy().run(log)


@contextmanager
def _retries_logged(log: Callable[..., None]) -> Iterator[None]:
    """Log requests that are sent again, with their delay, for a while."""
    logger, handler = logging.getLogger(_RETRY_LOG), _RetryHandler(log)
    # the default level, WARNING, would drop the records about retries
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)

    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
