"""How `make soak` goes through its parts: each is judged, none keeps the others from running."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_SOAK = Path(__file__).parents[1] / "soak"
_PROGRAM = """
import signal, sys
from loading import Part, soak
kept = open(sys.argv[1], "a")
def say(line):
    kept.write(line + chr(10))
    kept.flush()
stops = []
signal.signal(signal.SIGTERM, lambda number, _: stops.append(number))
def part(name, minutes, program):
    return Part(name, minutes, (sys.executable, "-c", "import os, sys, time; " + program))
sys.exit(soak([{parts}], say, lambda: bool(stops)))
"""


def _soak(out: Path, *parts: str) -> tuple[int, list[str]]:
    """The exit status of a soak of these parts, and the lines of its table."""
    command = [sys.executable, "-c", _PROGRAM.format(parts=", ".join(parts)), str(out)]
    done = subprocess.run(
        command, cwd=_SOAK, capture_output=True, text=True, check=False, timeout=100
    )
    assert done.stdout + done.stderr == ""
    return done.returncode, out.read_text().rpartition("\n\n")[2].splitlines()


def test_a_part_that_fails_does_not_keep_the_others_from_running(
    tmp_path: Path,
) -> None:
    """Every part has a row with its verdict and last line, and the whole fails if one does."""
    out = tmp_path / "soak.txt"
    status, rows = _soak(
        out,
        "part('bad', 5, 'print(1); print(2); sys.exit(1)')",
        "part('killed', 5, 'os.kill(os.getpid(), 9)')",
        "part('long', 0.002, 'time.sleep(300)')",
        "part('absent', 5, 'print(3); sys.exit(77)')",
        "part('good', 5, 'print(4)')",
    )
    verdicts = [(row[:9].strip(), row[9:21].strip()) for row in rows]
    assert verdicts == [
        ("bad", "failed"),
        ("killed", "failed"),
        ("long", "out of time"),
        ("absent", "left out"),
        ("good", "held"),
    ]
    assert rows[0].endswith(" s  2")
    assert status == 1


def test_parts_that_hold_or_are_left_out_are_a_success(tmp_path: Path) -> None:
    """A system that does not allow a part is no failure."""
    status, rows = _soak(
        tmp_path / "soak.txt",
        "part('absent', 5, 'sys.exit(77)')",
        "part('good', 5, 'print(4)')",
    )
    assert (status, len(rows)) == (0, 2)


def test_an_interrupted_soak_keeps_its_results(tmp_path: Path) -> None:
    """Its output is in the file, the running part is ended, the rest is not run.

    What the part had started is ended, too: it would hold the output open for longer than this test waits.
    """
    out = tmp_path / "soak.txt"
    program = (
        "import subprocess; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(300)']); "
        "print('found'); os.kill(os.getppid(), 15); time.sleep(300)"
    )
    status, rows = _soak(
        out, f"part('cut', 5, {program!r})", "part('later', 5, 'print(4)')"
    )
    assert status == 130
    assert [row[9:21].strip() for row in rows] == ["interrupted", "not made"]
    assert "\nfound\n" in out.read_text()
