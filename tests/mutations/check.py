"""Mutation tests: put one bug at a time into a copy of the toolkit, and check that the tests detect it.

    .venv/bin/python tests/mutations/check.py [--only WORD ...] [--first 0] [--processes 2]

`mutants.py` holds the bugs as exact replacements, each with the tests that must fail. First, the tests must
pass on the unchanged copy. A mutant whose text is no longer in the source is an error of the list, not a
success. `--first` resumes an interrupted check. The exit status is 0 when every mutant was detected.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from mutants import MUTANTS, Mutant

ROOT = Path(__file__).parents[2]
LEFT_OUT = shutil.ignore_patterns(
    ".*", "__pycache__", "out", "data", "*.egg-info", "node_modules"
)
# seconds of one mutant's tests; one that makes them hang is detected, too
LONGEST = 300
LONGEST_OF_ALL = 900  # seconds of all tests, without a mutant


def main() -> int:
    """Check, and print which mutants were not detected."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only",
        nargs="+",
        default=[""],
        help="mutants whose name contains one of these",
    )
    parser.add_argument(
        "--first", type=int, default=0, help="skip this many of them (0)"
    )
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    # a shell's background jobs ignore it, and the tests of interrupts would inherit that
    signal.signal(signal.SIGINT, signal.default_int_handler)
    begun = time.monotonic()
    mutants = [
        one for one in MUTANTS if any(word in one.name for word in options.only)
    ][options.first :]
    numbers = {
        mutant: number for number, mutant in enumerate(mutants, options.first + 1)
    }
    if stale := [
        f"{one.name}: {found}" for one in mutants if (found := one.problem(ROOT))
    ]:
        _say("\n".join(f"STALE: {line}" for line in stale))
        return 2
    with tempfile.TemporaryDirectory() as folder:
        copies: SimpleQueue[Path] = SimpleQueue()
        for number in range(options.processes):
            copies.put(_copy(Path(folder) / str(number)))
        tests = sorted({test for mutant in mutants for test in mutant.tests})
        failed = _run(copy := copies.get(), tests, LONGEST_OF_ALL)
        copies.put(copy)
        if failed:
            _say(f"The tests fail without any mutant, so they show nothing:\n{failed}")
            return 2

        def detected(mutant: Mutant) -> bool:
            copy = copies.get()
            try:
                with mutant.applied_to(copy):
                    found = _run(copy, mutant.tests)
            except RuntimeError as error:
                _say(f"MISSED    {mutant.name}: {error}")
                return False
            finally:
                copies.put(copy)
            by = next(
                (
                    line
                    for line in found.splitlines()
                    if line.startswith(("FAILED", "ERROR", "hung"))
                ),
                "",
            )
            verdict = f"{'detected' if found else 'MISSED  '}  {numbers[mutant]:>2}"
            _say(f"{verdict}  {mutant.name}{f'  ({by[:110]})' if found else ''}")
            return bool(found)

        with ThreadPoolExecutor(options.processes) as pool:
            results = list(pool.map(detected, mutants))
    _say(
        f"{sum(results)} of {len(mutants)} mutants detected; {time.monotonic() - begun:.0f} s"
    )
    return 0 if all(results) else 1


def _copy(target: Path) -> Path:
    shutil.copytree(ROOT, target, ignore=LEFT_OUT)
    return target


def _run(
    copy: Path, tests: list[str] | tuple[str, ...], longest: float = LONGEST
) -> str:
    """What the tests print when they fail; nothing when they pass."""
    python = str(ROOT / ".venv" / "bin" / "python")
    environment = os.environ | {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    imported = subprocess.run(
        [python, "-c", "import toolkit; print(toolkit.__file__)"],
        cwd=copy, env=environment, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    if not Path(imported.strip()).is_relative_to(copy):
        raise RuntimeError(f"the tests would not run on the copy, but on {imported}")
    command = [
        python,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-n0",
        "-p",
        "no:cacheprovider",
        *tests,
    ]
    try:
        done = subprocess.run(
            command,
            cwd=copy,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=longest,
        )
    except subprocess.TimeoutExpired:
        return "hung"
    if done.returncode < 0:
        return f"hung or crashed, with signal {-done.returncode}"
    if done.returncode > 2:
        # neither that tests failed nor that they could not be imported
        raise RuntimeError(f"pytest could not run {tests}: {done.stdout}{done.stderr}")
    return done.stdout[-4000:] if done.returncode else ""


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
