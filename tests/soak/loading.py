"""Show at length that loading and keeping lose nothing: faults, crashes, full disks, races, known bugs.

    .venv/bin/python tests/soak/loading.py [--runs 10000] [--points 1500] [--seed N] [--skip PART ...]

Each part is a program of its own; its output is shown, and its last line ends up in the table. The exit
status is 0 when all parts held.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path
from random import SystemRandom

TESTS = Path(__file__).parents[1]
VERDICTS = {0: "held", 77: "left out"}


def main() -> int:
    """Run the parts, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=10_000, help="loads with faults (10000)")
    parser.add_argument("--points", type=int, default=1500, help="crash points at most (1500)")
    parser.add_argument("--seed", type=int, default=SystemRandom().randrange(10**6))
    parser.add_argument("--skip", nargs="*", default=[])
    options = parser.parse_args()
    seed = ("--seed", str(options.seed))
    parts: dict[str, tuple[str, ...]] = {
        "faults": ("faults/fault_runs.py", "--runs", str(options.runs), "--processes", "2", *seed),
        "crashes": ("faults/crash_points.py", "--points", str(options.points), *seed),
        "disk": ("soak/full_disk.py", *seed),
        "space": ("soak/no_space.py", *seed),
        "writers": ("soak/two_writers.py", *seed),
        "bugs": ("mutations/check.py",),
    }
    table, status = [], 0
    for name, (program, *arguments) in parts.items():
        if name in options.skip:
            continue
        _say(f"\n{name}: {program} {' '.join(arguments)}")
        begun, last = time.monotonic(), ""
        command = [sys.executable, str(TESTS / program), *arguments]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            for line in process.stdout or ():
                last = line.strip() or last
                _say(line.rstrip())
        status |= process.returncode not in VERDICTS
        verdict = VERDICTS.get(process.returncode, "failed")
        table.append(f"{name:<9}{verdict:<9}{time.monotonic() - begun:6.0f} s  {last}")
    _say("\n" + "\n".join(table))
    return status


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
