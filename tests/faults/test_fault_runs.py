"""The quick part of what `make soak` does at length: loads with faults, and writers that are killed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

_HERE = Path(__file__).parent


_SOAK = _HERE.parent / "soak"


def _run(program: Path, *arguments: str) -> str:
    command = [sys.executable, "-W", "error", str(program), *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=280
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_loads_with_faults() -> None:
    """Nothing lost, altered or silently short in 150 loads; the ledger of the service is the judge."""
    said = _run(_HERE / "fault_runs.py", "--runs", "150", "--seed", "7")
    assert "150 runs" in said
    assert "lost 0, altered 0, silently short 0, anything wrong 0" in said
    kinds = re.findall(r"^ +[\d,]+  (fault|error): (.*)$", said, re.MULTILINE)
    assert sum(kind == "fault" for kind, _ in kinds) > 30
    assert {"ServerError", "RateLimitError", "ProtocolError"} <= {
        name for kind, name in kinds if kind == "error"
    }


@pytest.mark.slow
def test_hostile_loads() -> None:
    """Up to a third of all responses is spoilt in one of 17 ways: every load is whole."""
    said = _run(
        _HERE / "hostile_loads.py",
        "--loads",
        "24",
        "--entries",
        "1500",
        "--model-clock",
    )
    assert "24 whole, 0 not, anything wrong 0" in said
    assert len(re.findall(r"^ +[\d,]+  fault: ", said, re.MULTILINE)) == 17


@pytest.mark.slow
def test_killed_writers() -> None:
    """The old snapshot or the new one is left; the same call again ends as if nothing had happened."""
    said = _run(_HERE / "crash_points.py", "--points", "40", "--seed", "7")
    tried = re.search(r"40 of ([\d,]+) crash points", said)
    assert tried is not None
    assert int(tried[1].replace(",", "")) >= 300
    for kind in ("operations", "lines", "left the old one", "left the new one"):
        assert kind in said


def test_a_full_disk_leaves_the_snapshot_as_it_was() -> None:
    """Fails at some of the thousand steps of a write of 4 MB, and succeeds once there is space."""
    said = _run(_SOAK / "full_disk.py", "--every", "200")
    assert (
        "7 sizes of the disk: 6 refused and nothing changed, 1 had room, 0 wrong"
        in said
    )


@pytest.mark.slow
def test_two_writers_at_once_leave_one_complete_history() -> None:
    """Each commits or is refused, and the snapshot holds what those wrote that committed."""
    assert "20 races: " in (said := _run(_SOAK / "two_writers.py", "--races", "20"))
    assert " 0 wrong" in said
