"""Run unattended for 60 days with faults: no new error passes unseen, and no quiet day alarms.

    .venv/bin/python tests/soak/unattended.py [--days 60] [--seed N] [--every 2]

A queue that keeps failures for three days is synced every two hours, and a report judges the snapshot every
midnight (``--fail-on new --fail-on worse``). Time is simulated; snapshot, files, signatures and reports
are real. On some days a new error appears. Faults come in turn, eight days apart:

- a stop: no sync for two days; a long stop: none for five, so that entries expire unread;
- a token that is refused for a day; a disk that is full for a day;
- a clock that is 30 days ahead, or two days behind, for half a day, for syncs and reports alike.

A night is right if the report names the error (4), or ends with 6 as it cannot know. It is wrong if it passes
while an error waits that nobody has named, and if it alarms on a quiet day: one without a new error or a
fault. What expired during the long stop can never be named: of it, the nights with 6 are all that there is.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from toolkit.cli.data_age import unjudged
from toolkit.cli.exit_status import ExitStatus
from toolkit.errors import ToolkitError, TransportError
from toolkit.loading.load import Load, LoadState, Plan
from toolkit.loading.options import ProgressBar
from toolkit.redaction import Redactor
from toolkit.reports import failure_report
from toolkit.snapshots import read_snapshot
from toolkit.snapshots.store import SnapshotStore
from toolkit.snapshots.syncing import sync_load
from toolkit.tables.schemas import FAILURES

START: Final = datetime(2026, 3, 1, tzinfo=UTC)
DAY: Final = timedelta(days=1)
HOUR: Final = timedelta(hours=1)
RETENTION: Final = 3 * DAY
FULL: Final = 4096  # bytes that a file may have on a full disk
_USUAL: Final = (
    "card declined by the bank",
    "upstream closed the connection",
    "order is locked by another session",
    "request timed out",
)
_PER_HOUR: Final = 3.0
_SECONDS: Final = 3600.0
_NEW: Final = (
    "no space left on device", "certificate has expired", "schema version mismatch", "quota exhausted",
    "unknown currency in invoice", "webhook signature invalid", "tenant is suspended", "region unavailable",
    "payload exceeds the limit", "deadlock detected", "template not found", "mailbox full", "stale replica",
    "permission revoked", "duplicate key in ledger", "malformed address", "licence expired", "loop detected",
    "checksum differs", "feature disabled", "address unreachable", "worker crashed", "session evicted",
    "attachment rejected", "price is negative", "stock is exhausted", "calendar conflict",
    "label unprintable",
)  # fmt: skip
"""Texts of new errors, each of which is planted once."""


class Fault(Enum):
    """What goes wrong, and for how long."""

    STOP = "no sync", 2 * DAY
    LONG_STOP = "no sync, longer than the queue keeps", 5 * DAY
    TOKEN = "token refused", DAY
    DISK = "disk full", DAY
    AHEAD = "clock 30 days ahead", DAY / 2
    BEHIND = "clock 2 days behind", DAY / 2

    @property
    def title(self) -> str:
        """A few words."""
        return str(self.value[0])

    @property
    def length(self) -> timedelta:
        """How long it lasts."""
        length: timedelta = self.value[1]
        return length


_SHIFTS: Final = {Fault.AHEAD: 30 * DAY, Fault.BEHIND: -2 * DAY}
_STOPPED: Final = frozenset((Fault.STOP, Fault.LONG_STOP))


@dataclass(frozen=True)
class Failure:
    """An entry of the queue."""

    number: int
    time: datetime
    text: str

    def row(self) -> dict[str, Any]:
        """The entry as a row."""
        return {
            "dlq_id": f"entry-{self.number}",
            "workflow_url": "https://shop.example/pay",
            "workflow_run_id": f"wfr_{self.number}",
            "failed_at": self.time,
            "created_at": self.time,
            "response_status": 500,
            "response_body": self.text,
        }


@dataclass(frozen=True, kw_only=True)
class Night:
    """What the report of a midnight found."""

    day: int
    status: ExitStatus
    named: frozenset[str]
    waiting: frozenset[str]  # new errors that failed and that no report has named
    fault: Fault | None  # in the day before
    has_new: bool

    @property
    def problem(self) -> str:
        """What is wrong with it; "" if nothing is."""
        unseen = self.waiting - self.named
        if unseen and self.status in {ExitStatus.DONE, ExitStatus.WORSE}:
            return f"passed with {', '.join(sorted(unseen))}"
        is_quiet = self.fault is None and not self.waiting and not self.has_new
        if is_quiet and self.status is not ExitStatus.DONE:
            return f"alarmed on a quiet day: {self.status.name}"
        return ""


@dataclass
class World:
    """A queue, the faults of each time, and a snapshot that is synced."""

    folder: Path
    days: int
    seed: int
    faults: dict[int, Fault]
    planted: dict[int, str]
    failures: list[Failure] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Make all failures, with more by day than by night."""
        rng = np.random.default_rng(self.seed)
        times: list[tuple[datetime, str]] = []
        for hour in range((self.days + 5) * 24):
            start = START + (hour - 5 * 24) * HOUR
            rate = _PER_HOUR * (1 + 0.5 * np.sin(hour / 24 * 2 * np.pi))
            texts = rng.choice(_USUAL, rng.poisson(rate)).tolist()
            times += [(start + rng.random() * HOUR, text) for text in texts]
        for day, text in self.planted.items():
            start = START + day * DAY + rng.random() * 20 * HOUR
            times += [(start + number * HOUR / 10, text) for number in range(int(rng.integers(2, 8)))]
        self.failures = [Failure(number, *one) for number, one in enumerate(sorted(times))]

    def fault_at(self, time: datetime) -> Fault | None:
        """The fault of a time."""
        for day, fault in self.faults.items():
            start = START + day * DAY
            if start <= time < start + fault.length:
                return fault
        return None

    def local(self, time: datetime) -> datetime:
        """What the clock of this machine shows."""
        fault = self.fault_at(time)
        return time if fault is None else time + _SHIFTS.get(fault, timedelta())

    def sync(self, time: datetime) -> None:
        """Sync, unless nothing runs; what fails leaves the snapshot as it was."""
        fault = self.fault_at(time)
        if fault in _STOPPED:
            return
        local = self.local(time)
        load = self._load(time, local, is_refused=fault is Fault.TOKEN)
        with suppress(ToolkitError), _small_files(is_full=fault is Fault.DISK):
            sync_load(load, SnapshotStore(self.folder), clock=lambda: local)

    def _load(self, time: datetime, local: datetime, *, is_refused: bool) -> Load:
        """A load of what the queue keeps at a time."""
        rows = [one.row() for one in self.failures if time - RETENTION < one.time <= time]

        def tables(_: LoadState) -> Iterator[pa.Table]:
            if is_refused:
                raise TransportError("loading failures", got="401", expected="a token that is accepted")
            yield pa.Table.from_pylist(rows, schema=FAILURES)

        plan = Plan(
            what="failures", source="https://queue.example", scope={}, schema=FAILURES, key=("dlq_id",)
        )
        bar = ProgressBar(False, title="", unit="")
        return Load(plan, tables, lambda: bar, clock=lambda: local.isoformat(timespec="milliseconds"))

    def lost(self, time: datetime) -> set[str]:
        """New errors of which everything expired during a long stop, once that is over."""
        lost: set[str] = set()
        for day, fault in self.faults.items():
            start = START + day * DAY
            stop = start + fault.length
            if fault is not Fault.LONG_STOP or time <= stop:
                continue
            expired = {one.text for one in self.failures if start < one.time <= stop - RETENTION}
            lost |= expired - {one.text for one in self.failures if one.time > stop - RETENTION}
        return lost

    def report(self, time: datetime) -> dict[str, Any]:
        """The report of a time, by the clock of this machine."""
        local = self.local(time)
        found = failure_report(
            read_snapshot(self.folder), retention=RETENTION, now=lambda: local, redactor=Redactor(key=b"x")
        )
        return found.to_dict()


@contextmanager
def _small_files(*, is_full: bool) -> Iterator[None]:
    """Let the operating system refuse files that are larger than a full disk allows."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        if is_full:
            resource.setrlimit(resource.RLIMIT_FSIZE, (FULL, before[1]))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def judged(values: dict[str, Any]) -> tuple[ExitStatus, frozenset[str]]:
    """The exit status of a report, and the titles of the groups that it names as new."""
    change = values["change"]
    if (status := unjudged(values, ("new", "worse"))) is not None:
        return status, frozenset()
    if change["new_groups"]:
        return ExitStatus.NEW, frozenset(change["titles"][group] for group in change["new_groups"])
    return (ExitStatus.WORSE if change["worse"] else ExitStatus.DONE), frozenset()


def nights(world: World, *, every: int) -> Iterator[Night]:
    """Run all days: a sync at every hour that `every` divides, and a report at midnight."""
    named: set[str] = set()
    for hour in range(world.days * 24 + 1):
        time = START + hour * HOUR
        if hour % every == 0:
            world.sync(time - timedelta(minutes=2))
        if hour % 24 or not hour:
            continue
        status, titles = judged(world.report(time))
        failed = {one.text for one in world.failures if one.text in _NEW and one.time <= time}
        failed -= world.lost(time)
        times = [time - number * HOUR for number in range(30)]
        faults = [fault for one in times if (fault := world.fault_at(one)) is not None]
        day = hour // 24
        yield Night(
            day=day,
            status=status,
            named=titles,
            waiting=frozenset(failed - named),
            fault=faults[0] if faults else None,
            has_new=day - 1 in world.planted or day - 2 in world.planted,
        )
        named |= titles


def world_of(folder: Path, *, days: int, seed: int, faults: tuple[Fault, ...] = tuple(Fault)) -> World:
    """A world with a fault every eighth day, and new errors within and after faults and on ordinary days."""
    rng = np.random.default_rng(seed)
    starts = range(5, days - 6, 8)
    chosen = {day: faults[number % len(faults)] for number, day in enumerate(starts)}
    candidates = [day for start in starts for day in (start, start + 1, start + 6)]
    some = [day for day in candidates if rng.random() < 0.7][: len(_NEW)]
    return World(folder, days, seed, chosen, dict(zip(some, _NEW, strict=False)))


def main() -> None:
    """Print what each night found, and the problems."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("--days", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--every", type=int, default=2, help="hours between syncs")
    given = parser.parse_args()
    problems = 0
    with tempfile.TemporaryDirectory() as folder:
        world = world_of(Path(folder) / "kept", days=given.days, seed=given.seed)
        for night in nights(world, every=given.every):
            problems += bool(night.problem)
            fault = "" if night.fault is None else night.fault.title
            words = [f"day {night.day:>2}", f"{night.status.name:<8}", f"{fault:<37}"]
            words.append(f"waiting: {', '.join(sorted(night.waiting)) or '-'}")
            words.append(f"WRONG: {night.problem}" if night.problem else "")
            print("  ".join(words).rstrip(), flush=True)  # noqa: T201 - the result
    summary = f"{given.days} nights, {len(world.planted)} new errors, {problems} nights wrong"
    print(summary, flush=True)  # noqa: T201 - the result
    raise SystemExit(bool(problems))


if __name__ == "__main__":
    main()
