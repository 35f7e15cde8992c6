"""Kill a writer of snapshots at every operation on the disk and at every line it runs; look at what is left.

    .venv/bin/python tests/faults/crash_points.py [--points N] [--first 0] [--seed N]

Each point is a process of its own that is killed with SIGKILL: before an operation on the disk, or when a
line of the writer is reached for the first or the last time. Afterwards another process looks: the snapshot
must be the previous one or the new one, whole; and the same call, made again, must end in the rows of an
uninterrupted run. Without `--points`, all points are tried; with it, so many, chosen by the seed; `--first`
continues where a run was cut off. The exit status is 0 when all held.

The attempts are forks made before Arrow starts a thread, so that the imports are paid once.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import pickle
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random, SystemRandom
from types import FrameType
from typing import Any

from clock import Clock
from dlq import Dlq, Habits
from index import Index
from model_service import ModelService
from verdict import problems, rows_of
from wire import Exchange, Request, Server

import toolkit as tk
from toolkit.errors import SnapshotError, ToolkitError
from toolkit.loading.failures import open_failures
from toolkit.loading.options import LoadOptions
from toolkit.loading.vectors import open_vectors
from toolkit.snapshots.exporting import export_load
from toolkit.snapshots.store import SnapshotStore, no_step
from toolkit.snapshots.syncing import sync_load
from toolkit.snapshots.transaction import WriteOptions

TRACED = ("toolkit/snapshots/", "toolkit/loading/load.py")
CUT_AFTER = 3  # pages that a load gets before its token runs out
ENTRIES, VECTORS = 60, 40
LONGEST = 60  # seconds of a process, after which it hangs
STOPPED = 3  # exit status of a writer that raised, as it should


@dataclass(frozen=True)
class Scenario:
    """What is at rest when the writer starts, and what it does.

    Attributes
    ----------
    name : str
    table : {"failures", "vectors"}
    before : tuple of str
        The calls made before, by the token they use.
    token : str
        Of the call that is killed.
    every : float
        Seconds between its checkpoints.
    """

    name: str
    table: str
    before: tuple[str, ...]
    token: str = "second"
    every: float = WriteOptions.every


SCENARIOS = (
    Scenario("full", "failures", ()),
    Scenario("sync", "failures", ("first",)),
    Scenario("sync with checkpoints", "failures", ("first",), every=0),
    Scenario("stop", "failures", ("first",), "cut"),
    Scenario("resume", "failures", ("first", "cut")),
    Scenario("resumed first write", "failures", ("cut",)),
    Scenario("export", "vectors", ("first",)),
    Scenario("export with checkpoints", "vectors", ("first",), every=0),
    Scenario("stopped export", "vectors", ("first",), "cut"),
    Scenario("resumed export", "vectors", ("first", "cut")),
)


def models(table: str) -> tuple[Any, Any]:
    """What the service holds at first, and then: some added, changed and gone. The same in every process."""
    made = []
    for moved in (False, True):
        random = Random(f"crash {table}")
        model: Any = (
            Dlq(random, Habits("newest", "created", "days", 10), ENTRIES)
            if table == "failures"
            else Index(random, VECTORS, 5)
        )
        for name in list(model.current)[:12] if moved else ():
            version = model.current[name]
            kind = random.choice(["add", "remove", "change"])
            if kind == "remove":
                model.remove(name)
            else:
                model.put(model.new() if kind == "add" else model.changed(version))
        model.open_ledger()
        made.append(model)
    return made[0], made[1]


@contextmanager
def serving() -> Iterator[int]:
    """A process that serves both states of both tables; its port. The token says which state."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        _serve(write)
    with os.fdopen(read) as pipe:
        os.close(write)
        port = int(pipe.readline())
    try:
        yield port
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _serve(write: int) -> None:
    server = Server()
    services = {
        (table, token): ModelService(server, Clock(), model, Random(0), [], 0.0)
        for table in ("failures", "vectors")
        for token, model in zip(("first", "second"), models(table), strict=True)
    }
    pages = Counter[str]()

    def respond(request: Request) -> Exchange:
        table = "failures" if "dlq" in request.path else "vectors"
        token, _, attempt = (
            request.headers["authorization"].removeprefix("Bearer ").partition("-")
        )
        if token == "cut" and not request.path.endswith("/info"):
            pages[attempt] += 1
            if pages[attempt] > CUT_AFTER:
                return Exchange(status=401, body=b'{"error": "expired"}')
        return services[table, "first" if token == "first" else "second"].respond(
            request
        )

    server.respond = respond
    os.write(write, f"{server.port}\n".encode())
    os.close(write)
    threading.Event().wait()


class Crashes:
    """Attempts at the points of the scenarios.

    Parameters
    ----------
    port : int
        Of the service.
    scratch : Path
    """

    def __init__(self, port: int, scratch: Path) -> None:
        self._port = port
        self._scratch = scratch
        self._made = 0
        self.counts = Counter[str]()
        self.wrong: list[str] = []

    def prepare(self, scenario: Scenario) -> list[tuple[str, str, int]]:
        """Make what is at rest before, and what an uninterrupted run ends with; the points there are."""
        base = self._base(scenario)
        for token in scenario.before:
            status = self._fork(
                lambda token=token: self._call(scenario.table, token, base)
            )
            if status != (STOPPED if token == "cut" else 0):
                raise RuntimeError(
                    f"{scenario.name}: the call with the token {token!r} ended with {status}"
                )
        whole = self._scratch / "whole"
        self._copy(base, whole)
        seen = self._scratch / "points.pickle"

        def watched() -> int:
            operations, lines = Counter[str](), Counter[str]()
            with (
                _stepping(lambda name: operations.update([name])),
                _tracing(lambda line: lines.update([line])),
            ):
                status = self._call(
                    scenario.table, scenario.token, whole, scenario.every
                )
            seen.write_bytes(pickle.dumps((operations, lines)))
            return status

        self._fork(watched)
        operations, lines = pickle.loads(seen.read_bytes())  # noqa: S301 - our own child wrote it
        self._fork(lambda: self._call(scenario.table, "second", whole))
        self._fork(lambda: self._keep(scenario, "old", base))
        self._fork(lambda: self._keep(scenario, "new", whole))
        shutil.rmtree(whole)
        points = [
            ("operation", name, number)
            for name, times in operations.items()
            for number in _chosen(name, times)
        ]
        points += [("line", name, 1) for name in lines]
        points += [("line", name, times) for name, times in lines.items() if times > 1]
        return points

    def attempt(self, scenario: Scenario, kind: str, name: str, number: int) -> None:
        """Kill a writer at a point, and look at what it leaves."""
        copy = self._scratch / "attempt"
        self._copy(self._base(scenario), copy)
        count = Counter[str]()

        def at(reached: str) -> None:
            count[reached] += 1
            if reached == name and count[reached] == number:
                os.kill(os.getpid(), signal.SIGKILL)

        def doomed() -> int:
            if kind == "operation":
                with _stepping(at):
                    return self._call(
                        scenario.table, scenario.token, copy, scenario.every
                    )
            with _tracing(at):
                return self._call(scenario.table, scenario.token, copy, scenario.every)

        ended = self._fork(doomed)
        if ended == -signal.SIGALRM:
            self.wrong.append(
                f"{_named(scenario, kind, name, number)}: hangs before that"
            )
        killed = ended == -signal.SIGKILL
        self.counts[
            f"{scenario.name}: {kind}s" if killed else "points not reached"
        ] += 1
        report = self._scratch / "report"
        report.write_text("nothing was said")
        status = self._fork(lambda: self._look(scenario, copy, report))
        if status != 0:
            self.wrong.append(
                f"{_named(scenario, kind, name, number)}: status {status}, {report.read_text()}"
            )
        else:
            self.counts[f"{scenario.name}: {report.read_text()}"] += killed
        shutil.rmtree(copy, ignore_errors=True)

    def _base(self, scenario: Scenario) -> Path:
        return self._scratch / f"base of {scenario.name}"

    @staticmethod
    def _copy(source: Path, target: Path) -> None:
        if source.exists():
            shutil.copytree(source, target)

    def _call(
        self, table: str, token: str, path: Path, every: float = WriteOptions.every
    ) -> int:
        """The call whose writer is killed."""
        self._made += 1
        url = f"http://127.0.0.1:{self._port}"
        given = f"{token}-{os.getpid()}-{self._made}-of-the-crashes"
        service = tk.connect(
            queue_url=url, queue_token=given, vector_url=url, vector_token=given
        )
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                if table == "failures":
                    sync_load(
                        open_failures(service, options=LoadOptions(progress=False)),
                        SnapshotStore(path),
                        every=every,
                    )
                else:
                    load = open_vectors(
                        service, LoadOptions(progress=False), namespace="all"
                    )
                    export_load(
                        load, SnapshotStore(path), all_namespaces=True, every=every
                    )
            except ToolkitError as error:
                if "401" in str(error) and token == "cut":
                    return STOPPED
                raise
        return 0

    def _keep(self, scenario: Scenario, name: str, path: Path) -> int:
        state = _state(scenario.table, path)
        (self._scratch / f"{scenario.name} {name}").write_bytes(pickle.dumps(state))
        if name == "new":
            _, model = models(scenario.table)
            there = [row for row, gone in state or () if not gone]
            wrong = list(problems(model, there, whole=True, chosen=lambda _: True))
            if wrong:
                raise RuntimeError(
                    f"{scenario.name}: an uninterrupted run is wrong: {wrong}"
                )
        return 0

    def _look(self, scenario: Scenario, path: Path, report: Path) -> int:
        """Old or new, and whole; and the same call again ends as if it had not been interrupted."""
        old, new = (
            pickle.loads((self._scratch / f"{scenario.name} {name}").read_bytes())  # noqa: S301 - as above
            for name in ("old", "new")
        )
        found = _state(scenario.table, path)
        if found not in (old, new):
            report.write_text(
                f"neither the old snapshot nor the new one: {found}"[:2000]
            )
            return 1
        report.write_text(
            "left the new one" if found == new and new != old else "left the old one"
        )
        if (
            self._call(scenario.table, "second", path)
            or _state(scenario.table, path) != new
        ):
            report.write_text("the same call again ended in other rows")
            return 1
        if unlisted := tk.verify_snapshot(path).unlisted:
            report.write_text(f"the same call again left {unlisted}")
            return 1
        return 0

    def _fork(self, run: Callable[[], int]) -> int:
        """Run in a process of its own: the exit status, negative for a signal."""
        child = os.fork()
        if child == 0:
            status = 70
            signal.alarm(LONGEST)  # the system ends it then, whatever it waits for
            try:
                status = run()
            except BaseException:  # noqa: BLE001 - reported by the process that asked
                (self._scratch / "report").write_text(traceback.format_exc())
                if not run.__name__.startswith("<"):
                    traceback.print_exc()
            finally:
                os._exit(status)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _state(table: str, path: Path) -> Any:
    """The rows of a snapshot in the order of their ids, and whether each is marked gone; None for none."""
    try:
        tk.verify_snapshot(path)
    except SnapshotError as error:
        if type(error) is not SnapshotError:
            raise
        return None
    frame = tk.read_snapshot(path)
    model = Dlq if table == "failures" else Index
    rows = rows_of(frame, model)  # type: ignore[arg-type]
    gone = (
        frame["gone_before"].notna().tolist()
        if table == "failures"
        else [False] * len(rows)
    )
    return sorted(
        zip(rows, gone, strict=True),
        key=lambda item: json.dumps([item[0][part] for part in model.key]),
    )


def _chosen(name: str, times: int) -> list[int]:
    """Which of an operation's times: of the many writes, some."""
    if name != "write" or times < 20:
        return list(range(1, times + 1))
    return sorted({1, 2, 3, times - 1, times, *range(1, times, times // 12)})


@contextmanager
def _stepping(step: Callable[[str], None]) -> Iterator[None]:
    """Call before each operation on the disk, whoever opens the folder."""
    defaults = SnapshotStore.__init__.__kwdefaults__
    defaults["step"] = step
    try:
        yield
    finally:
        defaults["step"] = no_step


@contextmanager
def _tracing(reached: Callable[[str], None]) -> Iterator[None]:
    """Call with each line of the writer that is about to run."""

    def local(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            reached(
                f"{frame.f_code.co_filename.rpartition('toolkit/')[2]}:{frame.f_lineno}"
            )
        return local

    def enter(frame: FrameType, _: str, __: Any) -> Any:
        return (
            local if any(part in frame.f_code.co_filename for part in TRACED) else None
        )

    sys.settrace(enter)
    try:
        yield
    finally:
        sys.settrace(None)


def main() -> int:
    """Crash, and say what was found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--points", type=int, help="so many, chosen by the seed (all)")
    parser.add_argument(
        "--first", type=int, default=0, help="leave out so many of the chosen ones (0)"
    )
    parser.add_argument(
        "--only", help="points whose name, as a failure prints it, has this in it"
    )
    parser.add_argument("--seed", type=int, default=SystemRandom().randrange(10**6))
    options = parser.parse_args()
    faulthandler.enable()
    begun = time.monotonic()
    fast = Path("/dev/shm")  # noqa: S108 - a private folder is made inside
    with (
        serving() as port,
        tempfile.TemporaryDirectory(dir=fast if fast.is_dir() else None) as folder,
    ):
        crashes = Crashes(port, Path(folder))
        points = [
            (scenario, *point)
            for scenario in SCENARIOS
            for point in sorted(crashes.prepare(scenario))
        ]
        if options.only:
            points = [point for point in points if options.only in _named(*point)]
        chosen = _some(points, options.points or len(points), Random(options.seed))[
            options.first :
        ]
        for number, point in enumerate(chosen, options.first + 1):
            before = len(crashes.wrong)
            crashes.attempt(*point)
            for problem in crashes.wrong[before:]:
                _say(f"WRONG: {problem}")
            if number % 100 == 0:
                on = f"to go on: --seed {options.seed} --first {number}"
                _say(f"{number:,} points, {len(crashes.wrong)} wrong; {on}")
    for name, count in sorted(crashes.counts.items()):
        _say(f"{count:8,}  {name}")
    _say(
        f"seed {options.seed}: {len(chosen):,} of {len(points):,} crash points, "
        f"{time.monotonic() - begun:.0f} s; {len(crashes.wrong)} left something that must not be"
    )
    return 1 if crashes.wrong else 0


def _named(scenario: Scenario, kind: str, name: str, position: int) -> str:
    return f"{scenario.name}, killed at {kind} {name} number {position}"


def _some(points: list[Any], wanted: int, random: Random) -> list[Any]:
    """So many of the points: all operations if they are no more than half of it, and lines."""
    operations = [point for point in points if point[1] == "operation"]
    lines = [point for point in points if point[1] == "line"]
    operations = random.sample(
        operations, min(len(operations), max(wanted // 2, wanted - len(lines)))
    )
    return operations + random.sample(lines, min(len(lines), wanted - len(operations)))


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
