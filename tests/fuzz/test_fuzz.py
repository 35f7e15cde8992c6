"""A seeded share of `make fuzz`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

CASES = {"frames": 120, "snapshots": 120, "services": 100, "arguments": 60}


def test_a_case_is_the_same_each_time():
    """The line that is printed of a case makes it again: the same call, with the same outcome."""
    said = []
    for _ in range(2):
        words = [
            "--only",
            "snapshots",
            "--first",
            "7",
            "--cases",
            "1",
            "--seed",
            "22",
            "--jobs",
            "1",
        ]
        program = Path(__file__).with_name("fuzz.py")
        done = subprocess.run(
            [sys.executable, program, *words],
            capture_output=True,
            text=True,
            check=True,
        )
        said.append([line for line in done.stdout.splitlines() if "seed" not in line])
    assert said[0] == said[1]


@pytest.mark.parametrize("name", CASES)
def test_any_response_is_a_result_or_a_typed_error(name):
    """Generated input of each class: no untyped error, no hang, no token shown, no input changed."""
    words = ["--only", name, "--cases", str(CASES[name]), "--seed", "22", "--jobs", "1"]
    program = Path(__file__).with_name("fuzz.py")
    done = subprocess.run(
        [sys.executable, program, *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert f"{CASES[name]} cases, 0 broken" in done.stdout
