"""Run unattended for 60 days with faults: no new error passes unseen, and no quiet day alarms.

    .venv/bin/python tests/soak/unattended.py [--days 60] [--seeds 1 2 3] [--every 4] [--faults stop token …]

A queue that keeps failures for three days is synced every few hours (``toolkit snapshot failures``), and each
midnight ``toolkit report --fail-on new --fail-on worse`` judges the snapshot. On some days a new error
appears. Faults come in turn, a week apart; see `Fault`.

The queue is a real server, the snapshot real files, and the clock of every process is shifted to the
simulated time. Most commands run in this process, which saves the start of Python. Around each fault they are
processes of their own: the first sync in it and the first one after it, the sync before its first midnight
and before the midnight after it, and the report, `toolkit status` and `toolkit verify` of these midnights.

A night is right if the report names the error (4), or ends with 6 as it cannot know. It is wrong if

- it passes while an error waits that nobody has named. An error of which everything expired during a stop can
  never be named: of it, the nights with 6 are all that there is;
- it alarms on a quiet day, which is one without a new error and without a fault in the 30 hours before it;
- `status` and `verify` do not tell the same as the report about the age of the data, or find damage.

A sync is wrong if its status is not the one that its fault leads to: 0 without a fault, 1 with a refused
token, another account or a full disk.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time as real_time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import Enum
from io import StringIO
from pathlib import Path
from typing import Any, Final

import numpy as np
from clock.shifted_clock import shift_clock_to
from simulated_queue import OTHER_ACCOUNT, RETENTION, Failure, SimulatedQueue, listening

from toolkit.cli import main as toolkit_main
from toolkit.cli.exit_status import ExitStatus
from toolkit.snapshots.manifest import HEARTBEAT

START: Final = datetime(2026, 3, 1, tzinfo=UTC)
DAY: Final = timedelta(days=1)
HOUR: Final = timedelta(hours=1)
FULL: Final = 4096  # bytes that a file may have on a full disk
_TOOLKIT: Final = Path(sys.executable).parent / "toolkit"
_CLOCK: Final = Path(__file__).parent / "clock"
_BEFORE_MIDNIGHT: Final = timedelta(minutes=2)
_A_WEEK: Final = 7
_USUAL: Final = (
    "card declined by the bank",
    "upstream closed the connection",
    "order is locked by another session",
    "request timed out",
)
_PER_HOUR: Final = 3.0
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

    STOP = "no sync for two days", 2 * DAY
    LONG_STOP = "no sync for five days: entries expire unread", 5 * DAY
    TOKEN = "token refused for a day, then rotated; a schedule gives up", DAY
    ACCOUNT = "token of another account for a day", DAY
    REBIND = (
        "no sync for four days, token rotated meanwhile: refused until --rebind",
        5 * DAY,
    )
    DISK = "disk full for a day", DAY
    AHEAD = "clock 30 days ahead for half a day", DAY / 2
    BEHIND = "clock two days behind for half a day", DAY / 2

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
_WITHOUT_SYNCS: Final = {
    Fault.STOP: 2 * DAY,
    Fault.LONG_STOP: 5 * DAY,
    Fault.REBIND: 4 * DAY,
}
"""How long no sync runs, from the beginning of a fault."""
_REFUSED: Final = frozenset((Fault.TOKEN, Fault.ACCOUNT, Fault.REBIND, Fault.DISK))
"""Faults whose syncs end with 1."""


@dataclass(frozen=True, kw_only=True)
class Night:
    """What the report of a midnight found, and the other commands, if they ran."""

    day: int
    status: ExitStatus
    named: frozenset[str]
    waiting: frozenset[str]  # new errors that failed and that no report has named
    fault: Fault | None  # in the 30 hours before
    has_new: bool
    data_state: str = "current"
    others: tuple[int, ...] = ()  # the statuses of `status` and `verify`

    @property
    def problem(self) -> str:
        """What is wrong with it; "" if nothing is."""
        unseen = self.waiting - self.named
        if unseen and self.status in {ExitStatus.DONE, ExitStatus.WORSE}:
            return f"passed with {', '.join(sorted(unseen))}"
        is_quiet = self.fault is None and not self.waiting and not self.has_new
        if is_quiet and self.status is not ExitStatus.DONE:
            return f"alarmed on a quiet day: {self.status.name}"
        if self.status not in {
            ExitStatus.DONE,
            ExitStatus.NEW,
            ExitStatus.WORSE,
            ExitStatus.TOO_OLD,
        }:
            return f"the report ended with {self.status.name}"
        is_old = self.data_state != "current"
        expected = (
            {ExitStatus.TOO_OLD, ExitStatus.FAILED}
            if is_old
            else {ExitStatus.DONE, ExitStatus.FAILED}
        )
        # only `status` knows of a schedule that gave up
        if self.others and (
            self.others[0] not in expected or self.others[1] not in expected - {1}
        ):
            return f"status and verify ended with {self.others}, the data are {self.data_state}"
        return ""


@dataclass
class World:
    """A queue, the faults of each time, and a snapshot that commands of the toolkit sync and judge."""

    folder: Path
    days: int
    seed: int
    faults: dict[int, Fault]
    planted: dict[int, str]
    every: int
    queue: SimulatedQueue = field(init=False)
    syncs: Counter[tuple[str, int]] = field(default_factory=Counter)
    wrong_syncs: list[str] = field(default_factory=list)
    processes: int = 0
    _last_fault: Fault | None = None

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
            times += [
                (start + number * HOUR / 10, text)
                for number in range(int(rng.integers(2, 8)))
            ]
        self.queue = SimulatedQueue(
            [Failure(number, *one) for number, one in enumerate(sorted(times))]
        )

    @property
    def token_file(self) -> Path:
        """The file with the token that the jobs use."""
        return self.folder / "token"

    @property
    def variables(self) -> dict[str, str]:
        """The variables of the jobs."""
        return {
            "TOOLKIT_QUEUE_URL": self.queue.url,
            "TOOLKIT_MASKING_KEY": "12" * 32,
            "XDG_CONFIG_HOME": str(self.folder / "config"),
        }

    def fault_at(self, time: datetime) -> Fault | None:
        """The fault of a time."""
        for day, fault in self.faults.items():
            start = START + day * DAY
            if start <= time < start + fault.length:
                return fault
        return None

    def clock(self, time: datetime) -> datetime:
        """What the clock of this machine shows."""
        fault = self.fault_at(time)
        return time if fault is None else time + _SHIFTS.get(fault, timedelta())

    def is_stopped(self, time: datetime) -> bool:
        """Whether no sync runs."""
        return any(
            START + day * DAY
            <= time
            < START + day * DAY + _WITHOUT_SYNCS.get(fault, timedelta())
            for day, fault in self.faults.items()
        )

    def has_process_night(self, day: int) -> bool:
        """Whether commands of a midnight are processes: in the first night of a fault, and after it."""
        for start, fault in self.faults.items():
            if day in {start + 1, start + -(-fault.length // DAY) + 1}:
                return True
        return False

    def _set_tokens(self, time: datetime) -> None:
        """Rotate the token of the account, and write the one that the jobs use."""
        rotations = [
            START + day * DAY
            for day, fault in self.faults.items()
            if fault in {Fault.TOKEN, Fault.REBIND}
        ]
        number = sum(rotation <= time for rotation in rotations)
        self.queue.token = f"token-number-{number}-of-our-account"
        used = self.queue.token
        match self.fault_at(time):
            case Fault.TOKEN:
                used = f"token-number-{number - 1}-of-our-account"
            case Fault.ACCOUNT:
                used = OTHER_ACCOUNT
        self.token_file.write_text(f"{used}\n")

    def _environment(self, now: datetime) -> dict[str, str]:
        """The variables of a process whose clock shows a time."""
        paths = [str(_CLOCK), *filter(None, [os.environ.get("PYTHONPATH")])]
        clock = {
            "PYTHONPATH": os.pathsep.join(paths),
            "SIMULATED_TIME": now.isoformat(),
        }
        return os.environ | self.variables | clock

    def run(
        self, time: datetime, *words: str, is_process: bool, is_full: bool = False
    ) -> subprocess.CompletedProcess[str]:
        """Run a command at a time, as a process or in this one."""
        local = self.clock(time)
        if is_process:
            self.processes += 1
            with _small_files(is_full=is_full):
                return subprocess.run(
                    [_TOOLKIT, *words],
                    env=self._environment(local),
                    capture_output=True, text=True, check=False, cwd=self.folder, timeout=600,
                )  # fmt: skip
        out, err = StringIO(), StringIO()
        shift_clock_to(local)
        with redirect_stdout(out), redirect_stderr(err), _small_files(is_full=is_full):
            status = toolkit_main(words)
        return subprocess.CompletedProcess(
            words, status, out.getvalue(), err.getvalue()
        )

    def sync(self, time: datetime) -> None:
        """Sync, unless nothing runs. Whatever fails leaves the snapshot as it was."""
        fault, previous = self.fault_at(time), self._last_fault
        self._last_fault = fault
        if self.is_stopped(time):
            return
        self.queue.time = time
        self._set_tokens(time)
        was_stopped = self.is_stopped(time - self.every * HOUR)
        is_first = fault is not previous or was_stopped
        midnight = time + _BEFORE_MIDNIGHT
        is_last = not (midnight - START) % DAY and self.has_process_night(
            (midnight - START) // DAY
        )
        if Fault.TOKEN in {fault, previous} and fault is not previous:
            self._schedule(time, is_refused=fault is Fault.TOKEN)
        words = [
            "snapshot",
            "failures",
            "kept",
            "--retention",
            "3d",
            "--token-file",
            str(self.token_file),
        ]
        if previous is Fault.REBIND and fault is None:
            words.append("--rebind")  # by the person who read why it was refused
        ran = self.run(
            time, *words, is_process=is_first or is_last, is_full=fault is Fault.DISK
        )
        self._note(fault, "sync", ran, expected=1 if fault in _REFUSED else 0)

    def _note(
        self,
        fault: Fault | None,
        what: str,
        ran: subprocess.CompletedProcess[str],
        *,
        expected: int,
    ) -> None:
        """Count the status of a sync, and remember it if it is wrong."""
        self.syncs["-" if fault is None else fault.name, ran.returncode] += 1
        if ran.returncode != expected or "Traceback" in ran.stderr:
            title = "no fault" if fault is None else fault.title
            self.wrong_syncs.append(
                f"{what} ended with {ran.returncode}, not {expected} ({title}): {ran.stderr.strip()[-300:]}"
            )

    def _schedule(self, time: datetime, *, is_refused: bool) -> None:
        """Run ``--every``: it gives up with a refused token, and recovers with a new one in the file."""
        self.processes += 1
        words = [
            "snapshot",
            "failures",
            "kept",
            "--retention",
            "3d",
            "--token-file",
            str(self.token_file),
        ]
        words += ["--every", "4h", "--max-failures", "1"]
        child = subprocess.Popen(
            [_TOOLKIT, *words],
            env=self._environment(self.clock(time)), cwd=self.folder, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        if not is_refused:
            self._stop_when_synced(child, (self.clock(time) - HOUR).isoformat())
        out, err = child.communicate(timeout=600)
        ran = subprocess.CompletedProcess(words, child.returncode, out, err)
        fault = Fault.TOKEN if is_refused else None
        self._note(fault, "schedule", ran, expected=1 if is_refused else 0)
        status = self.run(time, "status", "kept", is_process=True)
        self._note(
            fault, "status of the schedule", status, expected=1 if is_refused else 0
        )

    def _stop_when_synced(self, child: subprocess.Popen[str], since: str) -> None:
        """Send SIGTERM after the first complete run, which the heartbeat tells."""
        for _ in range(600):
            with suppress(FileNotFoundError):
                heartbeat = json.loads((self.folder / "kept" / HEARTBEAT).read_bytes())
                if (heartbeat["last_complete_at"] or "") > since and heartbeat[
                    "state"
                ] == "waiting":
                    break
            real_time.sleep(0.1)
        child.send_signal(signal.SIGTERM)

    def report(
        self, time: datetime, day: int
    ) -> tuple[ExitStatus, frozenset[str], str, tuple[int, ...]]:
        """Judge the snapshot: the status, the new errors that are named, the age, and the other commands."""
        is_process = self.has_process_night(day)
        saved = self.folder / "report.json"
        saved.unlink(missing_ok=True)
        ran = self.run(
            time, "report", "--snapshot", "kept", "--retention", "3d", "--fail-on", "new",
            "--fail-on", "worse", "--output", str(saved), is_process=is_process,
        )  # fmt: skip
        values: dict[str, Any] = json.loads(saved.read_bytes())
        (status,) = (status for status in ExitStatus if status == ran.returncode)
        change = values["change"]
        named: frozenset[str] = frozenset()
        if status is ExitStatus.NEW:
            named = frozenset(change["titles"][group] for group in change["new_groups"])
        others: tuple[int, ...] = ()
        if is_process:
            others = tuple(
                self.run(time, command, "kept", is_process=True).returncode
                for command in ("status", "verify")
            )
        return status, named, values["data"]["state"], others

    def lost(self, time: datetime) -> set[str]:
        """New errors of which everything expired during a stop, once that is over."""
        lost: set[str] = set()
        for day, fault in self.faults.items():
            start = START + day * DAY
            stop = start + fault.length
            if fault not in {Fault.LONG_STOP, Fault.REBIND} or time <= stop:
                continue
            expired = {
                one.text
                for one in self.queue.failures
                if start < one.time <= stop - RETENTION
            }
            lost |= expired - {
                one.text for one in self.queue.failures if one.time > stop - RETENTION
            }
        return lost


@contextmanager
def _small_files(*, is_full: bool) -> Iterator[None]:
    """Let the operating system refuse files that are larger than a full disk allows, also in processes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        if is_full:
            resource.setrlimit(resource.RLIMIT_FSIZE, (FULL, before[1]))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def nights(world: World) -> Iterator[Night]:
    """Run all days: a sync at every hour that `world.every` divides, and a report at midnight."""
    named: set[str] = set()
    for hour in range(world.days * 24 + 1):
        time = START + hour * HOUR
        if hour % world.every == 0:
            world.sync(time - _BEFORE_MIDNIGHT)
        if hour % 24 or not hour:
            continue
        day = hour // 24
        status, titles, data_state, others = world.report(time, day)
        failed = {
            one.text
            for one in world.queue.failures
            if one.text in _NEW and one.time <= time
        }
        failed -= world.lost(time)
        times = [time - number * HOUR for number in range(30)]
        faults = [fault for one in times if (fault := world.fault_at(one)) is not None]
        yield Night(
            day=day,
            status=status,
            named=titles,
            waiting=frozenset(failed - named),
            fault=faults[0] if faults else None,
            has_new=day - 1 in world.planted or day - 2 in world.planted,
            data_state=data_state,
            others=others,
        )
        named |= titles


def world_of(
    folder: Path, *, days: int, seed: int, every: int, faults: Sequence[Fault]
) -> World:
    """A world with a fault each week, and new errors within and after faults and on ordinary days."""
    rng = np.random.default_rng(seed)
    starts = range(4, days - 5, _A_WEEK)
    # in another order for each seed
    order = rng.permutation(len(faults))
    chosen = {
        day: faults[order[number % len(faults)]] for number, day in enumerate(starts)
    }
    candidates = [day for start in starts for day in (start, start + 1, start + 6)]
    some = [day for day in candidates if rng.random() < 0.7][: len(_NEW)]
    return World(folder, days, seed, chosen, dict(zip(some, _NEW, strict=False)), every)


def run_seed(
    folder: Path, *, days: int, seed: int, every: int, faults: Sequence[Fault]
) -> Outcomes:
    """Run all nights of a seed, and print each."""
    world = world_of(folder, days=days, seed=seed, every=every, faults=faults)
    outcomes = Outcomes(world)
    previous = os.environ.copy()
    with listening(world.queue):
        os.environ.update(world.variables)
        os.chdir(folder)
        for night in nights(world):
            outcomes.nights.append(night)
            fault = "" if night.fault is None else night.fault.name
            words = [
                f"seed {seed} day {night.day:>2}",
                f"{night.status.name:<8}",
                f"{fault:<9}",
            ]
            words.append(
                f"{'processes ' + str(night.others) if night.others else '':<17}"
            )
            words.append(f"waiting: {', '.join(sorted(night.waiting)) or '-'}")
            words.append(f"WRONG: {night.problem}" if night.problem else "")
            _print("  ".join(words).rstrip())
    os.environ.clear()
    os.environ.update(previous)
    for wrong in world.wrong_syncs:
        _print(f"seed {seed} WRONG: {wrong}")
    return outcomes


@dataclass
class Outcomes:
    """What a seed came to."""

    world: World
    nights: list[Night] = field(default_factory=list)

    @property
    def problems(self) -> int:
        """How many nights and syncs were wrong."""
        return sum(bool(night.problem) for night in self.nights) + len(
            self.world.wrong_syncs
        )


def table(outcomes: Sequence[Outcomes]) -> Iterator[str]:
    """Yield the lines of a table: per fault how syncs and nights ended, in all seeds together."""
    yield "| fault | syncs by status | nights by status | wrong |"
    yield "|---|---|---|---|"
    for fault in (*Fault, None):
        key = "-" if fault is None else fault.name
        syncs: Counter[int] = Counter()
        ended: Counter[int] = Counter()
        wrong = 0
        for one in outcomes:
            syncs.update(
                {
                    status: n
                    for (name, status), n in one.world.syncs.items()
                    if name == key
                }
            )
            own = [night for night in one.nights if night.fault is fault]
            ended.update(int(night.status) for night in own)
            wrong += sum(bool(night.problem) for night in own)
        if ended or syncs:
            title = "none" if fault is None else fault.title
            yield f"| {title} | {_counts(syncs)} | {_counts(ended)} | {wrong} |"


def _counts(counts: Counter[int]) -> str:
    return ", ".join(f"{status}: {counts[status]}" for status in sorted(counts)) or "-"


def _print(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - the result


def main() -> None:
    """Print what each night found, the table of outcomes, and the problems."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("--days", type=int, default=60)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--every", type=int, default=4, help="hours between syncs")
    names = [fault.name.lower() for fault in Fault]
    parser.add_argument(
        "--faults", nargs="+", choices=names, default=names, metavar="FAULT"
    )
    given = parser.parse_args()
    faults = [Fault[name.upper()] for name in given.faults]
    outcomes = []
    for seed in given.seeds:
        with tempfile.TemporaryDirectory() as folder:
            outcomes.append(
                run_seed(
                    Path(folder),
                    days=given.days,
                    seed=seed,
                    every=given.every,
                    faults=faults,
                )
            )
    for line in table(outcomes):
        _print(line)
    problems = sum(one.problems for one in outcomes)
    planted = sum(len(one.world.planted) for one in outcomes)
    processes = sum(one.world.processes for one in outcomes)
    count = sum(len(one.nights) for one in outcomes)
    _print(
        f"{count} nights, {planted} new errors, {processes} processes, {problems} wrong"
    )
    raise SystemExit(bool(problems))


if __name__ == "__main__":
    main()
