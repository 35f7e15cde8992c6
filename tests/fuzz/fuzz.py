"""Calls every public function with generated services, snapshots, frames and arguments.

    .venv/bin/python tests/fuzz/fuzz.py [--cases 100000] [--seed 1] [--only frames] [--first 0] [--jobs 2]

Each case is one call. It must come to what the function documents, or to an error of the toolkit, within 40 s
of processor time, without showing a token and without changing what it was given. A case is drawn from the
seed, its class and its number alone: the line that is printed of one that fails makes it again. The exit
status is 0 when nothing was wrong.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from random import Random
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "faults")]

SHARES = {"services": 0.1, "frames": 0.45, "snapshots": 0.4, "arguments": 0.05}
"""How many of the cases are of a class."""

CHUNK = 1_000
"""Cases of one process, which starts anew for the next ones."""

SLOW = 5.0
"""Seconds of processor time from which on a case is counted as slow."""

KILLED_AFTER = 3600
"""Seconds after which 50 cases, one of which nothing can interrupt, end their process."""


def made(name: str, scratch: Path) -> Any:
    """The class of cases with this name, ready to draw some."""
    # in notebooks nothing of the user's is found, and the masking key is a new one
    os.environ["XDG_CONFIG_HOME"] = str(scratch / "config")
    os.environ["MPLBACKEND"] = "agg"
    if name == "frames":
        from odd_frames import Frames as Kind  # noqa: PLC0415 - only what is needed
    elif name == "snapshots":
        from odd_snapshots import Snapshots as Kind  # type: ignore[assignment]  # noqa: PLC0415
    elif name == "services":
        from odd_services import Services as Kind  # type: ignore[assignment]  # noqa: PLC0415
    else:
        from odd_arguments import Arguments as Kind  # type: ignore[assignment]  # noqa: PLC0415
    return Kind(scratch)


def cases(
    name: str, seed: int, first: int, count: int, *, say: Any = None
) -> tuple[Counter[str], list[str]]:
    """Cases of one class, one after another; what they came to, and what was wrong."""
    counts, wrong = Counter[str](), list[str]()
    with tempfile.TemporaryDirectory(prefix="toolkit-fuzz-") as scratch:
        kind = made(name, Path(scratch))
        for number in range(first, first + count):
            if number % 50 == 0 or number == first:
                faulthandler.dump_traceback_later(KILLED_AFTER, exit=True)
            begun = time.process_time()
            if say is not None:
                say(number)
            function, word, problem = kind.case(Random(f"{seed} {name} {number}"))
            counts[f"{function}: {word}"] += 1
            if (took := time.process_time() - begun) > SLOW:
                counts[f"slow: {function}"] += 1
                sys.stderr.write(
                    f"slow: {took:.1f} s in case {number} of {name}, {function}\n"
                )
            if problem is not None:
                wrong.append(
                    f"--seed {seed} --only {name} --first {number} --cases 1: {function}: {problem}"
                )
        faulthandler.cancel_dump_traceback_later()
        os.chdir(HERE)
    return counts, wrong


def _part(
    name: str, seed: int, first: int, count: int
) -> tuple[Counter[str], list[str]]:
    """The same in a process of its own: one that crashes is a finding, too."""
    counts, wrong = Counter[str](), list[str]()
    while count > 0:
        command = [
            sys.executable,
            __file__,
            "--only",
            name,
            "--seed",
            str(seed),
            "--first",
            str(first),
        ]
        ended = subprocess.run(
            [*command, "--cases", str(count), "--worker"],
            capture_output=True,
            text=True,
            check=False,
        )
        lines = ended.stdout.splitlines()
        if ended.returncode == 0 and lines:
            found = json.loads(lines[-1])
            return counts + Counter(found["counts"]), wrong + found["wrong"]
        reached = max((int(line) for line in lines if line.isdecimal()), default=first)
        wrong.append(
            f"--seed {seed} --only {name} --first {reached} --cases 1: the process ended with "
            f"{ended.returncode}: {ended.stderr[-3000:]}"
        )
        if not lines:  # before the first case: nothing to continue with
            return counts, wrong
        counts["crash"] += 1
        if reached > first:  # those before it are done again, for what they came to
            done = _part(name, seed, first, reached - first)
            counts, wrong = counts + done[0], wrong + done[1]
        count -= reached + 1 - first
        first = reached + 1
    return counts, wrong


def _parts(options: argparse.Namespace) -> list[tuple[str, int, int]]:
    """Parts of all classes by turns, so that a run that its time ends has tried each."""
    parts = []
    for name, share in SHARES.items():
        if options.only in {None, name}:
            count = options.cases if options.only else round(options.cases * share)
            starts = range(0, count, CHUNK)
            parts += [
                (
                    (index + 0.5) / len(starts),
                    name,
                    options.first + start,
                    min(CHUNK, count - start),
                )
                for index, start in enumerate(starts)
            ]
    return [part[1:] for part in sorted(parts)]


def main() -> int:
    """Draw the cases, and say what came of them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=SHARES)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument(
        "--minutes",
        type=float,
        default=120.0,
        help="after which no further cases are begun (120)",
    )
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        keep = os.fdopen(os.dup(1), "w", buffering=1)
        counts, wrong = cases(
            options.only,
            options.seed,
            options.first,
            options.cases,
            say=lambda number: keep.write(f"{number}\n"),
        )
        keep.write(json.dumps({"counts": counts, "wrong": wrong}) + "\n")
        keep.flush()
        os._exit(0)  # threads that still wait for a service do not keep it
    begun = time.monotonic()
    tried, broken, words = Counter[str](), Counter[str](), Counter[str]()

    def part(
        name: str, first: int, count: int
    ) -> tuple[str, int, Counter[str], list[str]]:
        if time.monotonic() - begun > options.minutes * 60:
            return name, 0, Counter(), []
        return name, count, *_part(name, options.seed, first, count)

    with ThreadPoolExecutor(options.jobs) as pool:
        waiting = [pool.submit(part, *one) for one in _parts(options)]
        for done in as_completed(waiting):
            name, count, counts, wrong = done.result()
            tried[name] += count
            broken[name] += len(wrong)
            words.update({f"{name}: {word}": number for word, number in counts.items()})
            for problem in wrong:
                sys.stdout.write(f"WRONG: {problem}\n")
            sys.stdout.write(
                f"so far {tried.total():,} cases, {broken.total()} broken\n"
            )
            sys.stdout.flush()
    lines = [f"{number:8,}  {word}" for word, number in sorted(words.items())]
    lines += [f"{name}: {tried[name]:,} cases, {broken[name]} broken" for name in tried]
    took = time.monotonic() - begun
    lines.append(
        f"seed {options.seed}: {tried.total():,} cases, {broken.total()} broken, {took:,.0f} s"
    )
    sys.stdout.write("\n".join(lines) + "\n")
    return int(bool(broken.total()))


if __name__ == "__main__":
    sys.exit(main())
