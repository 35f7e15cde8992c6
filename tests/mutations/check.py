"""Put known bugs into a copy of the toolkit, one at a time: the tests have to notice every one of them.

    .venv/bin/python tests/mutations/check.py [--only WORD ...] [--first 0] [--processes 2]

`known_bugs.py` holds the bugs as exact replacements, each with the tests that are to fail. First the tests
must pass on the copy as it is. A bug whose text is no longer in the source is an error of the list, not a
success. `--first` goes on where a check was cut off. The exit status is 0 when every bug was noticed.
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

from known_bugs import BUGS, Bug

ROOT = Path(__file__).parents[2]
LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__", "out", "data", "*.egg-info", "node_modules")
LONGEST = 300  # seconds of one bug's tests; a bug that makes them hang is noticed, too
LONGEST_OF_ALL = 900  # seconds of all tests, without a bug


def main() -> int:
    """Check, and say which bugs went unnoticed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", default=[""], help="bugs whose name has one of these in it")
    parser.add_argument("--first", type=int, default=0, help="leave out so many of them (0)")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    # ignored in what a shell starts in the background, and handed down to tests of interrupts
    signal.signal(signal.SIGINT, signal.default_int_handler)
    begun = time.monotonic()
    bugs = [bug for bug in BUGS if any(word in bug.name for word in options.only)][options.first :]
    numbers = {bug: number for number, bug in enumerate(bugs, options.first + 1)}
    if stale := [f"{bug.name}: {found}" for bug in bugs if (found := bug.misfit(ROOT))]:
        _say("\n".join(f"STALE: {line}" for line in stale))
        return 2
    with tempfile.TemporaryDirectory() as folder:
        copies: SimpleQueue[Path] = SimpleQueue()
        for number in range(options.processes):
            copies.put(_copy(Path(folder) / str(number)))
        tests = sorted({test for bug in bugs for test in bug.tests})
        failed = _run(copy := copies.get(), tests, LONGEST_OF_ALL)
        copies.put(copy)
        if failed:
            _say(f"The tests fail without any bug, so that they show nothing:\n{failed}")
            return 2

        def noticed(bug: Bug) -> bool:
            copy = copies.get()
            try:
                with bug.put_into(copy):
                    found = _run(copy, bug.tests)
            except RuntimeError as error:
                _say(f"MISSED  {bug.name}: {error}")
                return False
            finally:
                copies.put(copy)
            by = next(
                (line for line in found.splitlines() if line.startswith(("FAILED", "ERROR", "hung"))), ""
            )
            verdict = f"{'noticed' if found else 'MISSED '}  {numbers[bug]:>2}"
            _say(f"{verdict}  {bug.name}{f'  ({by[:110]})' if found else ''}")
            return bool(found)

        with ThreadPoolExecutor(options.processes) as pool:
            results = list(pool.map(noticed, bugs))
    _say(f"{sum(results)} of {len(bugs)} known bugs noticed; {time.monotonic() - begun:.0f} s")
    return 0 if all(results) else 1


def _copy(target: Path) -> Path:
    shutil.copytree(ROOT, target, ignore=LEFT_OUT)
    return target


def _run(copy: Path, tests: list[str] | tuple[str, ...], longest: float = LONGEST) -> str:
    """What the tests print when they fail; nothing when they pass."""
    python = str(ROOT / ".venv" / "bin" / "python")
    environment = os.environ | {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    told = subprocess.run(
        [python, "-c", "import toolkit; print(toolkit.__file__)"],
        cwd=copy, env=environment, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    if not Path(told.strip()).is_relative_to(copy):
        raise RuntimeError(f"the tests would not run on the copy, but on {told}")
    command = [python, "-m", "pytest", "-q", "-x", "-n0", "-p", "no:cacheprovider", *tests]
    try:
        done = subprocess.run(
            command, cwd=copy, env=environment, capture_output=True, text=True, check=False, timeout=longest
        )
    except subprocess.TimeoutExpired:
        return "hung"
    if done.returncode < 0:
        return f"hung or crashed, with signal {-done.returncode}"
    if done.returncode > 2:  # neither that tests failed nor that they could not be imported
        raise RuntimeError(f"pytest could not run {tests}: {done.stdout}{done.stderr}")
    return done.stdout[-4000:] if done.returncode else ""


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
