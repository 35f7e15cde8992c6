"""A disk without free space, for real: see `tests/soak/no_space.py`, which tries every 4 KB."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_PROGRAM = Path(__file__).parents[1] / "soak" / "no_space.py"
_LEFT_OUT = 77


def test_a_full_disk_keeps_the_previous_snapshot() -> None:
    """At any step of a write a full disk is a typed error and changes nothing; with space it succeeds."""
    command = [sys.executable, str(_PROGRAM), "--every", "150"]
    ended = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=200
    )
    if ended.returncode == _LEFT_OUT:
        pytest.skip("this system does not let a program mount a disk of its own")
    assert ended.returncode == 0, ended.stdout + ended.stderr
