"""``toolkit status``: how old snapshots are, and what the schedules that sync them do."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from toolkit.cli.exit_status import ExitStatus
from toolkit.cli.heartbeat import Heartbeat, read_heartbeat
from toolkit.cli.output import complain, say
from toolkit.cli.shared_options import add_command, seconds_of
from toolkit.cli.terminal import say_wrapped
from toolkit.drawing.wording import counted
from toolkit.errors import SnapshotError, ToolkitError
from toolkit.freshness import PUNCTUAL, default_max_age
from toolkit.redaction import visible
from toolkit.snapshots.manifest import Manifest, read_manifest
from toolkit.snapshots.object_store import open_store
from toolkit.snapshots.sync_times import syncs_of

_ENDED: Final = "ended with an error"


@dataclass(frozen=True, kw_only=True)
class SnapshotStatus:
    """What is known of a snapshot and its schedule. Times are ISO 8601 in UTC."""

    path: str
    last_complete_at: str | None
    age_seconds: float | None
    max_age_seconds: float
    rows: int
    state: str | None
    failures_in_a_row: int
    last_error: str | None
    last_error_at: str | None
    next_run_at: str | None
    next_run_seconds: float | None

    @property
    def exit_status(self) -> ExitStatus:
        """Whether somebody has to look: a schedule that gave up, or data that are too old."""
        if self.state == _ENDED:
            return ExitStatus.FAILED
        if self.age_seconds is None or self.is_ahead or self.age_seconds > self.max_age_seconds:
            return ExitStatus.TOO_OLD
        return ExitStatus.DONE

    @property
    def is_ahead(self) -> bool:
        """Whether the last complete sync is in the future, so that nobody knows how old the data are."""
        return self.age_seconds is not None and self.age_seconds < -PUNCTUAL.total_seconds()

    def __str__(self) -> str:
        parts = [f"{self._age()}, {counted(self.rows, 'row')}"]
        if self.exit_status is ExitStatus.TOO_OLD and not self.is_ahead:
            parts.append(f"TOO OLD: at most {_span(self.max_age_seconds)} expected")
        if self.state is not None:
            parts.append(f"schedule {self.state}")
        if self.next_run_seconds is not None:
            overdue = self.next_run_seconds < 0
            span = _span(abs(self.next_run_seconds))
            parts.append(f"next run overdue by {span}" if overdue else f"next run in {span}")
        if self.last_error is not None:
            failed = f", {self.failures_in_a_row:,} failed in a row" if self.failures_in_a_row else ""
            parts.append(f"last error at {self.last_error_at}{failed}: {self.last_error}")
        return f"{self.path}: {'; '.join(parts)}"

    def _age(self) -> str:
        if self.age_seconds is None:
            return "no complete sync yet"
        if self.is_ahead:
            return f"last complete sync at {self.last_complete_at}, which is in the future: a clock is wrong"
        return f"last complete sync {_span(self.age_seconds)} ago ({self.last_complete_at})"


def add(commands: Any, summary: str) -> None:
    """Add the command."""
    add_option = add_command(commands, "status", _status, summary, "snapshots/failures --max-age 3h")
    add_option("path", "folder of a snapshot, or s3://bucket/prefix", nargs="+")
    what = "end with 6 if the last complete sync is longer ago (three times the interval, an hour at least)"
    add_option("--max-age", what, type=seconds_of, metavar="DURATION")
    what = "file that toolkit snapshot --heartbeat writes, for one path"
    add_option("--heartbeat", what, type=Path, metavar="FILE")
    add_option("--json", "one JSON object per path", action="store_true")


def _status(given: argparse.Namespace) -> ExitStatus:
    """Print the status of every snapshot. Return the worst: an error, else data that are too old."""
    statuses = []
    for path in given.path:
        try:
            found = snapshot_status(path, max_age=given.max_age, heartbeat=given.heartbeat)
        except (ToolkitError, OSError) as error:
            complain(f"{path}: {error}", event="failed", path=path, error=str(error))
            statuses.append(ExitStatus.FAILED)
            continue
        statuses.append(found.exit_status)
        if given.json:
            say(json.dumps(asdict(found) | {"status": int(found.exit_status)}))
        else:
            say_wrapped(visible(str(found)))
    if ExitStatus.FAILED in statuses:
        return ExitStatus.FAILED
    return max(statuses)


def snapshot_status(
    path: str, *, max_age: float | None = None, heartbeat: Path | None = None, now: datetime | None = None
) -> SnapshotStatus:
    """Return the status of a snapshot, from its manifest and the heartbeat of its schedule.

    Parameters
    ----------
    path : str
        A folder, or an address such as ``s3://bucket/prefix``.
    max_age : float, optional
        Seconds. Default: `default_max_age` of the interval of the schedule, or else of the usual time between
        the last syncs.
    heartbeat : Path, optional
        The file of the heartbeat. Default: the one in the folder.
    now : datetime, optional
        Default: the clock.

    Raises
    ------
    SnapshotError
        If there is neither a snapshot nor a heartbeat, or one of them is damaged.
    """
    now = now or datetime.now(UTC)
    store = open_store(path, None)
    beat = read_heartbeat(path, heartbeat)
    with store.os_errors_named("reading the status of"):
        try:
            manifest = read_manifest(store)
        except NotADirectoryError:
            manifest = None
    if manifest is not None and not manifest.generation:
        manifest = None
    if manifest is None and beat is None:
        raise SnapshotError(
            f"reading the status of the snapshot {store}",
            got="no manifest",
            expected="a snapshot",
            next_step="Name the folder that toolkit snapshot wrote.",
        )
    complete_at = None if manifest is None else _complete_at(manifest)
    if max_age is None:
        max_age = default_max_age(_interval(manifest, beat)).total_seconds()
    next_run_at = beat.next_run_at if beat else None
    return SnapshotStatus(
        path=path,
        last_complete_at=complete_at,
        age_seconds=_seconds_between(complete_at, now),
        max_age_seconds=max_age,
        rows=manifest.rows if manifest else 0,
        state=beat.state if beat else None,
        failures_in_a_row=beat.failures_in_a_row if beat else 0,
        last_error=beat.last_error if beat else None,
        last_error_at=beat.last_error_at if beat and beat.last_error else None,
        next_run_at=next_run_at,
        next_run_seconds=None if next_run_at is None else -(_seconds_between(next_run_at, now) or 0.0),
    )


def _complete_at(manifest: Manifest) -> str | None:
    """Return when the last complete sync began; of vectors and frames, when it was written."""
    if manifest.kind == "failures":
        return manifest.complete_at
    complete = not manifest.receipts or manifest.receipts[-1].get("complete")
    return manifest.written_at if complete else None


def _interval(manifest: Manifest | None, beat: Heartbeat | None) -> float | None:
    """Return the seconds between syncs: those of the schedule, or else what was usual."""
    if beat is not None and beat.every is not None:
        return beat.every
    if manifest is None:
        return None
    return syncs_of(manifest).every_seconds


def _seconds_between(time: str | None, now: datetime) -> float | None:
    if time is None:
        return None
    return round((now - datetime.fromisoformat(time)).total_seconds(), 1)


def _span(seconds: float) -> str:
    """Return a duration as people read it, rounded to its two largest units."""
    return str(timedelta(seconds=round(seconds)))
