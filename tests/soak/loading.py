"""Test at length that loading and storing lose nothing: faults, crashes, full disks, races, mutants.

    .venv/bin/python tests/soak/loading.py [--seed N] [--only PART ...] [--skip PART ...] [--out FILE]
                                           [--runs 10000] [--points 1500] [--every 1] [--races 200]

Each part is a program of its own, and has a time limit. What it prints is shown and, with `--out`, added to a
file as it comes; its last line ends up in the table at the end. A part that fails does not keep the others
from running. An interrupted part can be resumed: its own command line and the last number it reached are in
the output. The exit status is 0 when all parts that were run passed.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from random import SystemRandom

TESTS = Path(__file__).parents[1]
VERDICTS = {0: "held", 77: "left out"}
GRACE = 10  # seconds that a program has to tidy up when it is stopped
INTERRUPTED = 130


@dataclass(frozen=True)
class Part:
    """A program, and how long it may take.

    Attributes
    ----------
    name : str
    minutes : float
        Two to four times what it takes on two cores that have nothing else to do.
    command : sequence of str
    """

    name: str
    minutes: float
    command: Sequence[str]


def parts_of(options: argparse.Namespace) -> list[Part]:
    """All parts, with these numbers."""

    def part(name: str, minutes: float, program: str, *arguments: object) -> Part:
        command = (sys.executable, str(TESTS / program), *map(str, arguments))
        return Part(name, minutes * options.patience, command)

    seed, every = ("--seed", options.seed), ("--every", options.every)
    return [
        part(
            "faults",
            20,
            "faults/fault_runs.py",
            "--runs",
            options.runs,
            "--processes",
            2,
            *seed,
        ),
        part("hostile", 10, "faults/hostile_loads.py", "--at-once", 8, *seed),
        part(
            "crashes", 10, "faults/crash_points.py", "--points", options.points, *seed
        ),
        part("disk", 8, "soak/full_disk.py", *every, *seed),
        part("space", 8, "soak/no_space.py", *every, *seed),
        part("writers", 2, "soak/two_writers.py", "--races", options.races),
        part("mutants", 40, "mutations/check.py", "--processes", 2),
    ]


def soak(
    parts: Sequence[Part], say: Callable[[str], None], stopped: Callable[[], bool]
) -> int:
    """Run the parts one after another until stopped, and print their results as a table at the end."""
    rows, status = {part.name: f"{part.name:<9}not made" for part in parts}, 0
    for part in parts:
        if stopped():
            break
        say(f"\n{part.name}: {shlex.join(part.command)}")
        begun = time.monotonic()
        verdict, last = _made(part, say, stopped)
        status |= verdict not in VERDICTS.values()
        rows[part.name] = (
            f"{part.name:<9}{verdict:<12}{time.monotonic() - begun:6.0f} s  {last}"
        )
        say(rows[part.name])
    say("\n" + "\n".join(rows.values()))
    return INTERRUPTED if stopped() else status


def _made(
    part: Part, say: Callable[[str], None], stopped: Callable[[], bool]
) -> tuple[str, str]:
    """Run a part; its verdict, and the last line it printed."""
    last = ""

    def show(output: Iterable[str]) -> None:
        nonlocal last
        for line in output:
            last = line.strip() or last
            say(line.rstrip())

    end = time.monotonic() + 60 * part.minutes
    with subprocess.Popen(
        part.command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
        start_new_session=True,  # so that it can be ended with all it started
    ) as process:
        shown = threading.Thread(target=show, args=(process.stdout,))
        shown.start()
        verdict = ""
        while not verdict:
            try:
                verdict = VERDICTS.get(process.wait(0.2), "failed")
            except subprocess.TimeoutExpired:
                verdict = (
                    "interrupted"
                    if stopped()
                    else "out of time"
                    if time.monotonic() > end
                    else ""
                )
        _end(process)
        shown.join()
    return verdict, last


def _end(process: subprocess.Popen[str]) -> None:
    """Interrupt a program and all it started, and kill what does not heed that."""
    with suppress(ProcessLookupError):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(GRACE)
        os.killpg(process.pid, signal.SIGKILL)


def main() -> int:
    """Run the parts, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--runs", type=int, default=10_000, help="loads with faults (10000)"
    )
    parser.add_argument(
        "--points", type=int, default=1500, help="crash points at most (1500)"
    )
    parser.add_argument(
        "--every", type=int, default=1, help="of the steps of 4 KB, every so many (1)"
    )
    parser.add_argument("--races", type=int, default=200, help="of two writers (200)")
    parser.add_argument("--seed", type=int, default=SystemRandom().randrange(10**6))
    parser.add_argument(
        "--only",
        nargs="*",
        help="these parts, of: faults hostile crashes disk space writers mutants",
    )
    parser.add_argument("--skip", nargs="*", default=[], help="all parts but these")
    parser.add_argument(
        "--patience", type=float, default=1, help="times the time limits (1)"
    )
    parser.add_argument(
        "--out", type=Path, help="a file that the output is added to as it comes"
    )
    options = parser.parse_args()
    parts = parts_of(options)
    names = [part.name for part in parts]
    if unknown := {*(options.only or ()), *options.skip}.difference(names):
        parser.error(f"no part is called {', '.join(sorted(unknown))}")
    stops = list[int]()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: stops.append(number))
    with ExitStack() as closing:
        kept = None
        if options.out:
            options.out.parent.mkdir(parents=True, exist_ok=True)
            kept = closing.enter_context(options.out.open("a", encoding="utf-8"))

        def say(line: str) -> None:
            for file in (sys.stdout, kept):
                if file is not None:
                    file.write(f"{line}\n")
                    file.flush()

        say(f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, seed {options.seed}")
        wanted = [
            part
            for part in parts
            if part.name in (options.only or names) and part.name not in options.skip
        ]
        return soak(wanted, say, lambda: bool(stops))


if __name__ == "__main__":
    sys.exit(main())
