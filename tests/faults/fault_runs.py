"""Loads from a server with faults, thousands of them: nothing lost, nothing altered, nothing silently short.

    .venv/bin/python tests/faults/fault_runs.py [--runs 10000] [--first 0] [--seed N] [--processes 2]
                                               [--only NUMBER]

Every run draws a service (its order, its dates, its page size), one to five faults, and how much comes and
goes meanwhile; loads; resumes from the checkpoint after an error, until the load ends; and is judged by the
service's own ledger. Time is a clock that only sleeps and dawdling servers move. A run is its seed and
number: `--only` repeats one, `--first` resumes an interrupted run. The exit status is 0 when nothing
was wrong.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import shutil
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import repeat
from multiprocessing import get_context
from pathlib import Path
from random import Random, SystemRandom
from typing import Any

from clock import Clock
from dlq import DAY, NOW, Dlq, Habits
from faults import draw
from index import SPACES, Index
from model_service import ModelService
from verdict import missing, problems, rows_of
from wire import Server

import toolkit as tk
from toolkit.errors import IncompleteLoadError, IncompleteLoadWarning, ToolkitError
from toolkit.loading.failures import open_failures
from toolkit.loading.load import Checkpoint, Load
from toolkit.loading.options import LoadOptions
from toolkit.loading.vectors import open_vectors
from toolkit.service.responses import RetryPolicy
from toolkit.service.transport import Transport
from toolkit.snapshots import read_snapshot, verify_snapshot
from toolkit.snapshots.store import SnapshotStore
from toolkit.snapshots.syncing import sync_load
from toolkit.tables.receipt import Receipt

MOST_BYTES = 8_000_000
MOST_ATTEMPTS = 6
TRIES = 5  # failed ones that a single request survives
LONGEST_WAIT = 100  # seconds that a single request survives
LONGEST_RUN = 100  # real seconds, after which a run hangs
SHARE = 50  # runs that a process makes in one go
# times the rows of a page: what comes stays well below what a reader can take
MOST_MOVEMENT = 0.08


class Run:
    """One run.

    Parameters
    ----------
    server : Server
    seed, number : int
    scratch : Path
        Where snapshots are written.
    """

    def __init__(self, server: Server, seed: int, number: int, scratch: Path) -> None:
        self.random = Random(f"{seed} {number}")
        random = self.random
        self.scratch = scratch
        self.server = server
        self.clock = Clock()
        self.kind = random.choice(["failures", "failures", "vectors"])
        last = "sync" if self.kind == "failures" else "pieces"
        self.how = random.choice(["frame", "frame", "frame", "pieces", "pieces", last])
        size = random.choice([0, 1, 12, 40, 80, 160, 240])
        self.model: Dlq | Index
        if self.kind == "failures":
            self.model = Dlq(random, habits := Habits.drawn(random, size), size)
            page = habits.page
        else:
            page = random.choice([3, 20, 100])
            self.model = Index(random, size, page)
        self.faults = [
            draw(random, size // page + 2) for _ in range(random.randint(1, 5))
        ]
        # with more, a reader of single rows would chase what comes for thousands of pages
        self.movement = min(random.choice([0.0, 0.0, 0.1, 0.6]), MOST_MOVEMENT * page)
        self.connections = random.choice([1, 2, 4, 16])
        self.labels = random.choice([(), (), (), ("billing",), ("a,b", "eu")])
        self.bounds = random.choice(
            [(None, None)] * 3 + [(NOW - 5 * DAY, NOW - DAY // 2)]
        )
        self.stop_after = random.randint(1, 4) if random.random() < 0.2 else None
        self.passes = random.choice([1, 1, 1, 1, 2])
        self.rate = random.choice([None, None, None, 30.0])
        self.namespaces = random.choice(["", "docs", list(SPACES), "all"])
        self.service = ModelService(
            server, self.clock, self.model, random, self.faults, self.movement
        )
        self.counts = Counter[str]()
        self.wrong: list[str] = []
        server.listen()
        server.respond = self.service.respond

    def chosen(self, version: Any) -> bool:
        """Whether the load asks for an item."""
        if isinstance(self.model, Dlq):
            return self._in_bounds(version) and (
                not self.labels or bool(set(self.labels) & set(version.facts["labels"]))
            )
        return self.namespaces == "all" or version.facts["namespace"] in (
            [self.namespaces] if isinstance(self.namespaces, str) else self.namespaces
        )

    def _in_bounds(self, version: Any) -> bool:
        since, until = self.bounds
        dates = self.model.habits.dates
        return (
            since is None
            or dates == "ignored"
            or since <= version.facts["times"][dates] <= until
        )

    def go(self) -> None:
        """Load, and judge."""
        self.counts[f"{self.kind}, {self.how}"] += 1
        if self.how == "sync":
            self._sync()
        else:
            self._load()
        self.counts["requests"] += self.service.responses
        for fault in self.faults:
            self.counts[f"fault: {fault.name}"] += fault.happened
        if "TRAPPED" in self.service.log:
            self.wrong.append("followed: a redirect")
        self.wrong += [
            f"harness: {line}" for line in self.service.log if line.startswith("BROKEN")
        ]

    def _open(self) -> Load:
        token = self.service.wanted_token or "first"
        service = tk.connect(
            queue_url=f"http://127.0.0.1:{self.server.port}",
            queue_token=f"{token}-queue-token",
            vector_url=f"http://127.0.0.1:{self.server.port}",
            vector_token=f"{token}-vector-token",
        )
        half: Any = "queue" if self.kind == "failures" else "vector"

        def transport() -> Transport:
            return Transport.to(
                service,
                half,
                policy=RetryPolicy(most_bytes=MOST_BYTES),
                sleep=self.clock.sleep,
                monotonic=self.clock.monotonic,
            )

        if self.kind == "failures":
            since, until = (
                None if at is None else datetime.fromtimestamp(at / 1000, UTC)
                for at in self.bounds
            )
            return open_failures(
                service,
                tk.FailureFilter(label=self.labels, since=since, until=until),
                LoadOptions(
                    progress=self._interrupt
                    if self.how == "frame" and self.stop_after
                    else False,
                    connections=self.connections,
                    requests_per_second=self.rate,
                    passes=self.passes,
                ),
                transport=transport,
            )
        return open_vectors(
            service,
            LoadOptions(
                progress=False,
                connections=self.connections,
                requests_per_second=self.rate,
                passes=self.passes,
            ),
            namespace=self.namespaces,
            transport=transport,
        )

    def _interrupt(self, done: int, _: object) -> None:
        """Count the tables of a load, and interrupt it as Ctrl-C does."""
        if done and self.stop_after is not None:
            self.stop_after -= 1
            if self.stop_after < 1:
                self.stop_after = None
                self.counts["interrupted"] += 1
                raise KeyboardInterrupt

    def _load(self) -> None:
        self.model.open_ledger()
        rows: list[dict[str, Any]] = []
        checkpoint = None
        for attempt in range(MOST_ATTEMPTS + 1):
            if attempt == MOST_ATTEMPTS:
                self.service.calm()
                self.stop_after = None
            load, warned = None, False
            try:
                load = self._open()
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always", IncompleteLoadWarning)
                    ended = self._read(load, rows, checkpoint)
                warned = any(
                    issubclass(item.category, IncompleteLoadWarning) for item in caught
                )
            except KeyboardInterrupt:
                ended = False
            except ToolkitError as error:
                ended = False
                self._erred(error, attempt)
            if ended and load is not None:
                self._ended(load, rows, attempt, warned=warned)
                return
            if load is not None:
                checkpoint = _through_json(load.checkpoint())
                self._judge(rows, whole=False, when="before going on")
                if len(checkpoint.identities) != 16 * len(rows):
                    self.wrong.append(
                        f"checkpoint: {len(checkpoint.identities) // 16} identities, {len(rows)} rows"
                    )
        self.wrong.append("endless: an error without a fault")

    def _read(
        self, load: Load, rows: list[dict[str, Any]], checkpoint: Checkpoint | None
    ) -> bool:
        if self.how == "frame":
            try:
                rows += rows_of(load.frame(resume=checkpoint), self.model)
            except IncompleteLoadError as error:
                if error.partial is not None:
                    rows += rows_of(error.partial, self.model)
                raise
            return True
        batches = (
            batch for batch in load.batches(resume=checkpoint) if batch.table.num_rows
        )
        for number, batch in enumerate(batches, 1):
            rows += rows_of(batch.table, self.model)
            if number == self.stop_after:
                self.stop_after = None
                self.counts["stopped by the reader"] += 1
                return False
        return True

    def _erred(self, error: ToolkitError, attempt: int) -> None:
        cause = (
            error.__cause__
            if isinstance(error, IncompleteLoadError) and error.__cause__
            else error
        )
        if isinstance(cause, KeyboardInterrupt):
            return
        self.counts[f"error: {type(cause).__name__}"] += 1
        struck = [fault for fault in self.faults if fault.happened]
        survivable = (
            all(fault.survived for fault in struck)
            and sum(fault.tries for fault in struck) <= TRIES
            and sum(fault.wait for fault in struck) <= LONGEST_WAIT
        )
        if survivable and attempt == 0:
            self.wrong.append(
                f"given up: {error} after {[fault.name for fault in struck]}"
            )

    def _ended(
        self, load: Load, rows: list[dict[str, Any]], attempt: int, *, warned: bool
    ) -> None:
        receipt = load.receipt
        self._note(receipt)
        self._judge(rows, whole=receipt.complete, when="at the end")
        if receipt.complete:
            self.counts["complete" if attempt == 0 else "complete after going on"] += 1
            if receipt.reasons or warned:
                self.wrong.append(f"confused: complete, with reasons {receipt.reasons}")
        else:
            self.counts["not complete, and said so"] += 1
            if missing(self.model, rows, self.chosen):
                self.counts["of these, short"] += 1
            if not receipt.reasons or (self.how == "frame" and not warned):
                self.wrong.append("silent: not complete, without a reason or a warning")
            struck = [fault for fault in self.faults if fault.happened]
            if not self.movement and all(
                fault.survived and not fault.doubt for fault in struck
            ):
                self.wrong.append(
                    f"doubted: {receipt.reasons} after {[fault.name for fault in struck]}"
                )
        struck = [fault for fault in self.faults if fault.happened]
        if (
            attempt == 0
            and len(struck) == 1
            and struck[0].exact
            and struck[0].wait not in self.clock.slept
        ):
            self.wrong.append(f"waited: {self.clock.slept} after {struck[0].name}")
        if receipt.rows != len(rows):
            self.wrong.append(
                f"counted: {receipt.rows} rows, and there are {len(rows)}"
            )

    def _note(self, receipt: Receipt) -> None:
        self.counts["read in several windows"] += receipt.windows > 1
        ignored = isinstance(self.model, Dlq) and self.model.habits.dates == "ignored"
        if ignored and receipt.windows > 1 and not receipt.resumed:
            self.wrong.append(
                f"believed: {receipt.windows} windows of a service that ignores dates"
            )
        self.counts["read again where something moved"] += receipt.reread > 0
        self.counts["read with a single cursor after all"] += bool(receipt.notes)

    def _judge(self, rows: list[dict[str, Any]], *, whole: bool, when: str) -> None:
        self.wrong += [
            f"{problem} ({when})"
            for problem in problems(self.model, rows, whole=whole, chosen=self.chosen)
        ]

    def _sync(self) -> None:
        folder = SnapshotStore(self.scratch / "snapshot")
        faults, self.service.faults = self.service.faults, []
        movement, self.service.movement = self.service.movement, 0.0
        sync_load(self._open(), folder)
        for _ in range(self.random.randrange(5)):
            self.service._move()
        before = self._at_rest(folder)
        self.model.open_ledger()
        self.service.begin(faults, movement)
        for attempt in range(MOST_ATTEMPTS + 1):
            if attempt == MOST_ATTEMPTS:
                self.service.calm()
            try:
                changes = sync_load(self._open(), folder)
            except ToolkitError as error:
                self._erred(error, attempt)
                if self._at_rest(folder) != before:
                    self.wrong.append("changed: the snapshot, by a sync that failed")
                continue
            self._synced(before, self._at_rest(folder), changes.receipt, attempt)
            return
        self.wrong.append("endless: an error without a fault")

    def _synced(self, before: Any, after: Any, receipt: Receipt, attempt: int) -> None:
        self._note(receipt)
        there = [row for row, gone in after.values() if not gone]
        marked = {name for name, (_, gone) in after.items() if gone} - {
            name for name, (_, gone) in before.items() if gone
        }
        if receipt.complete:
            self.counts["complete" if attempt == 0 else "complete, later"] += 1
            self._judge(there, whole=True, when="in the snapshot")
            if wrongly := marked & self.model.throughout:
                self.wrong.append(
                    f"marked: {len(wrongly)} gone that were there throughout"
                )
            if kept := {row["dlq_id"] for row in there} - self.model.ever:
                self.wrong.append(f"unmarked: {len(kept)} are gone")
        else:
            self.counts["not complete, and said so"] += 1
            if marked:
                self.wrong.append(
                    f"marked: {len(marked)} gone by a load that is not complete"
                )
            seen = [row for row in there if row["dlq_id"] in self.model.ever]
            self._judge(
                [row for row in seen if (row, False) != before.get(row["dlq_id"])],
                whole=False,
                when="new",
            )
        if lost := before.keys() - after.keys():
            self.wrong.append(f"dropped: {len(lost)} rows of the snapshot")

    def _at_rest(self, folder: SnapshotStore) -> dict[str, Any]:
        """The rows of the snapshot by id, and whether they are marked gone."""
        verify_snapshot(folder.path)
        frame = read_snapshot(folder.path)
        gone = frame["gone_before"].notna().tolist()
        return {
            row["dlq_id"]: (row, mark)
            for row, mark in zip(rows_of(frame, self.model), gone, strict=True)
        }


def _through_json(checkpoint: Checkpoint) -> Checkpoint:
    """The checkpoint as a file would return it."""
    position, receipt = json.loads(
        json.dumps([checkpoint.position, checkpoint.receipt])
    )
    return Checkpoint(
        position=position, identities=bytes(checkpoint.identities), receipt=receipt
    )


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder in memory where there is one."""
    fast = Path("/dev/shm")  # noqa: S108 - a private folder is made inside
    with tempfile.TemporaryDirectory(dir=fast if fast.is_dir() else None) as folder:
        yield Path(folder)


def several(
    seed: int, numbers: list[int], folder: Path, *, log: bool = False
) -> tuple[Counter[str], list[str]]:
    """Make these runs, writing into a folder; what they counted, and what was wrong."""
    counts, wrong = Counter[str](), []
    server = Server()
    for number in numbers:
        faulthandler.dump_traceback_later(LONGEST_RUN + 1, exit=True)
        # first the name of the run, then where its threads stand
        named = threading.Timer(
            LONGEST_RUN, _say, [f"HANGS: --seed {seed} --only {number}"]
        )
        named.daemon = True
        named.start()
        folder_of_run = folder / str(number)
        run = Run(server, seed, number, folder_of_run)
        try:
            run.go()
        except Exception as error:
            if log:
                raise
            run.wrong.append(f"raised: {type(error).__name__}: {error}")
        named.cancel()
        shutil.rmtree(folder_of_run, ignore_errors=True)
        counts += run.counts
        counts["runs"] += 1
        wrong += [f"--seed {seed} --only {number}: {problem}" for problem in run.wrong]
        if log:
            _say("\n".join([describe(run), *run.service.log]))
    faulthandler.cancel_dump_traceback_later()
    server.refuse()
    return counts, wrong


def describe(run: Run) -> str:
    """What a run drew."""
    habits = getattr(run.model, "habits", None)
    drawn = [f"{fault.name} at {fault.first}" for fault in run.faults]
    return (
        f"{run.kind} as {run.how}, {len(run.model.current)} items, {habits}, "
        f"{drawn}, movement {run.movement}, {run.connections} connections, labels {run.labels}, "
        f"namespaces {run.namespaces!r}"
    )


def main() -> int:
    """Make the runs, and say what was found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument(
        "--first", type=int, default=0, help="the number of the first run (0)"
    )
    parser.add_argument("--seed", type=int, default=SystemRandom().randrange(10**6))
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument(
        "--only",
        type=int,
        help="make the run of this number again, and show its requests",
    )
    options = parser.parse_args()
    begun = time.monotonic()
    counts, wrong, broken = Counter[str](), list[str](), False
    if options.only is not None:
        with scratch() as folder:
            counts, wrong = several(options.seed, [options.only], folder, log=True)
        _show(wrong)
    else:
        end = options.first + options.runs
        shares = [
            list(range(at, min(at + SHARE, end)))
            for at in range(options.first, end, SHARE)
        ]
        # at once: a load handles an interrupt itself
        to_die = (
            signal.SIGINT,
            signal.SIG_DFL,
        )
        pool = ProcessPoolExecutor(
            options.processes,
            get_context("spawn"),
            initializer=signal.signal,
            initargs=to_die,
        )
        with scratch() as folder, pool:
            try:
                for found, bad in pool.map(
                    several, repeat(options.seed), shares, repeat(folder)
                ):
                    counts += found
                    wrong += bad
                    _show(bad)
                    if counts["runs"] % (10 * SHARE) == 0:
                        number = options.first + counts["runs"]
                        on = f"to go on: --seed {options.seed} --first {number}"
                        _say(f"{counts['runs']:,} runs, {len(wrong)} wrong; {on}")
            except KeyboardInterrupt:
                broken = True
            except BrokenProcessPool:
                broken = True
                _say(
                    "WRONG: a process ended before its runs did; which run it was may stand above"
                )
    seconds = time.monotonic() - begun
    for name, count in sorted(counts.items()):
        _say(f"{count:8,}  {name}")
    kinds = Counter(problem.split(": ")[1] for problem in wrong)
    on = f"; cut off, to go on: --first {options.first + counts['runs']}"
    _say(
        f"seed {options.seed}: {counts['runs']:,} runs, {seconds:.0f} s, "
        f"{counts['runs'] / seconds:.0f} a second; lost {kinds['lost']}, altered {kinds['altered']}, "
        f"silently short {kinds['lost'] + kinds['silent']}, anything wrong {len(wrong)}"
        f"{on if broken else ''}"
    )
    return 1 if wrong or broken else 0


def _show(wrong: list[str]) -> None:
    for problem in wrong[:20]:
        _say(f"WRONG: {problem[:400]}")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
