"""Show how old snapshots are, and the state of the schedules that sync them: ``toolkit status``.

For example, ``toolkit status snapshots/failures --max-age 3h`` ends with status 6 if the last complete sync
began more than three hours ago.
"""

from __future__ import annotations

import argparse
import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from toolkit.base.errors import SnapshotError, ToolkitError
from toolkit.cli.exit_status import ExitStatus
from toolkit.cli.heartbeat import Heartbeat, read_heartbeat
from toolkit.cli.output import print_message, print_result
from toolkit.cli.shared_options import add_command, seconds_of
from toolkit.cli.terminal import say_wrapped
from toolkit.drawing.wording import counted
from toolkit.secrets.redaction import visible
from toolkit.snapshots.manifest import Manifest, read_manifest
from toolkit.snapshots.object_store import open_store
from toolkit.snapshots.sync_times import syncs_of
from toolkit.tables.freshness import PUNCTUAL, default_max_age

_ENDED: Final = "ended with an error"


@dataclass(frozen=True, kw_only=True)
class SnapshotStatus:
    """The state of a snapshot and of the schedule that syncs it. Times are ISO 8601 in UTC."""

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
        """Return FAILED if the schedule gave up, TOO_OLD if the data are too old, and DONE otherwise."""
        if self.state == _ENDED:
            return ExitStatus.FAILED

        age = self.age_seconds
        if age is None or self.is_ahead or age > self.max_age_seconds:
            return ExitStatus.TOO_OLD

        return ExitStatus.DONE

    @property
    def is_ahead(self) -> bool:
        """Return whether the last complete sync is in the future: a clock is wrong, and the age unknown."""
        return (
            self.age_seconds is not None
            and self.age_seconds < -PUNCTUAL.total_seconds()
        )

    def __str__(self) -> str:
        parts = [f"{self._age()}, {counted(self.rows, 'row')}"]
        if self.exit_status is ExitStatus.TOO_OLD and not self.is_ahead:
            parts.append(f"TOO OLD: at most {_span(self.max_age_seconds)} expected")
        if self.state is not None:
            parts.append(f"schedule {self.state}")
        if self.next_run_seconds is not None:
            parts.append(_next_run(self.next_run_seconds))
        if self.last_error is not None:
            error = f"last error at {self.last_error_at}"
            if self.failures_in_a_row:
                error += f", {self.failures_in_a_row:,} failed in a row"
            parts.append(f"{error}: {self.last_error}")

        return f"{self.path}: {'; '.join(parts)}"

    def _age(self) -> str:
        if self.age_seconds is None:
            return "no complete sync yet"
        if self.is_ahead:
            return f"last complete sync at {self.last_complete_at}, which is in the future: a clock is wrong"

        return f"last complete sync {_span(self.age_seconds)} ago ({self.last_complete_at})"


def add(commands: Any, summary: str) -> None:
    """Add the command."""
    add_option = add_command(
        commands, "status", _status, summary, "snapshots/failures --max-age 3h"
    )
    add_option("path", "folder of a snapshot, or s3://bucket/prefix", nargs="+")
    what = "end with 6 if the last complete sync is longer ago (three times the interval, an hour at least)"
    add_option("--max-age", what, type=seconds_of, metavar="DURATION")
    what = "file that toolkit snapshot --heartbeat writes, for one path"
    add_option("--heartbeat", what, type=Path, metavar="FILE")
    add_option("--json", "one JSON object per path", action="store_true")


def _status(given: argparse.Namespace) -> ExitStatus:
    """Print the status of every snapshot. Return the worst: an error, or data that are too old."""
    statuses = [_show(path, given) for path in given.path]
    if ExitStatus.FAILED in statuses:
        return ExitStatus.FAILED

    # the others are DONE (0) and TOO_OLD (6)
    return max(statuses)


def _show(path: str, given: argparse.Namespace) -> ExitStatus:
    """Print the status of a snapshot, or the error why it is not known."""
    try:
        status = snapshot_status(path, max_age=given.max_age, heartbeat=given.heartbeat)
    except (ToolkitError, OSError) as error:
        print_message(f"{path}: {error}", event="failed", path=path, error=str(error))
        return ExitStatus.FAILED

    if given.json:
        print_result(json.dumps(asdict(status) | {"status": int(status.exit_status)}))
    else:
        say_wrapped(visible(str(status)))

    return status.exit_status


def snapshot_status(
    path: str,
    *,
    max_age: float | None = None,
    heartbeat: Path | None = None,
    now: datetime | None = None,
) -> SnapshotStatus:
    """Return the status of a snapshot, from the manifest and the heartbeat of the schedule.

    Parameters
    ----------
    path : str
        A folder, or an address such as ``s3://bucket/prefix``.
    max_age : float, optional
        Seconds. If omitted, `default_max_age` of the interval of the schedule, or of the usual time between
        the last syncs.
    heartbeat : Path, optional
        The file of the heartbeat. If omitted, the file in the folder of the snapshot.
    now : datetime, optional
        If omitted, the current time.

    Raises
    ------
    SnapshotError
        If neither a snapshot nor a heartbeat exists, or one of them is damaged.
    """
    now = now or datetime.now(UTC)
    manifest = _manifest(path)

    beat = read_heartbeat(path, heartbeat)
    if manifest is None and beat is None:
        raise SnapshotError(
            f"reading the status of the snapshot {open_store(path, None)}",
            got="no manifest",
            expected="a snapshot",
            next_step="Name the folder that toolkit snapshot wrote.",
        )

    if max_age is None:
        max_age = default_max_age(_interval(manifest, beat)).total_seconds()
    complete_at = _complete_at(manifest)

    return SnapshotStatus(
        path=path,
        last_complete_at=complete_at,
        age_seconds=_seconds_since(complete_at, now),
        max_age_seconds=max_age,
        rows=0 if manifest is None else manifest.rows,
        **_schedule(beat, now),
    )


def _manifest(path: str) -> Manifest | None:
    """Return the manifest of a snapshot; None if nothing was written yet."""
    store = open_store(path, None)
    with store.os_errors_named("reading the status of"), suppress(NotADirectoryError):
        manifest = read_manifest(store)
        # generation 0 is an unfinished first write
        if manifest is not None and manifest.generation:
            return manifest

    return None


def _schedule(beat: Heartbeat | None, now: datetime) -> dict[str, Any]:
    """Return the part of a status that comes from the heartbeat."""
    if beat is None:
        return {
            "state": None, "failures_in_a_row": 0, "last_error": None, "last_error_at": None,
            "next_run_at": None, "next_run_seconds": None,
        }  # fmt: skip

    overdue_seconds = _seconds_since(beat.next_run_at, now)
    return {
        "state": beat.state,
        "failures_in_a_row": beat.failures_in_a_row,
        "last_error": beat.last_error,
        # a successful run clears the error of the heartbeat, but not the time of it
        "last_error_at": beat.last_error_at if beat.last_error else None,
        "next_run_at": beat.next_run_at,
        "next_run_seconds": None if overdue_seconds is None else -overdue_seconds,
    }


def _complete_at(manifest: Manifest | None) -> str | None:
    """Return when the last complete sync began, or when vectors or a frame were written."""
    if manifest is None:
        return None
    if manifest.kind == "failures":
        return manifest.complete_at
    if manifest.receipts and not manifest.receipts[-1].get("complete"):
        return None

    return manifest.written_at


def _interval(manifest: Manifest | None, beat: Heartbeat | None) -> float | None:
    """Return the seconds between syncs: the interval of the schedule, or the usual one."""
    if beat is not None and beat.every is not None:
        return beat.every
    if manifest is None:
        return None

    return syncs_of(manifest).every_seconds


def _seconds_since(time: str | None, now: datetime) -> float | None:
    if time is None:
        return None
    return round((now - datetime.fromisoformat(time)).total_seconds(), 1)


def _next_run(seconds: float) -> str:
    if seconds < 0:
        return f"next run overdue by {_span(-seconds)}"
    return f"next run in {_span(seconds)}"


def _span(seconds: float) -> str:
    """Return a duration in days, hours, minutes and seconds, for example "1 day, 2:03:04"."""
    return str(timedelta(seconds=round(seconds)))
