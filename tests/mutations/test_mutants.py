"""The list of mutants matches the source. `make soak` applies them, one at a time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_HERE = Path(__file__).parent


def test_every_mutant_can_be_applied() -> None:
    """Each replaces text that occurs exactly once in the source, and names existing tests."""
    program = (
        "import sys; from pathlib import Path; from mutants import MUTANTS; root = Path(sys.argv[1]);"
        "there = lambda test: (root / test.partition('::')[0]).exists();"
        "print([one.problem(root) for one in MUTANTS if one.problem(root)]"
        " + [test for one in MUTANTS for test in one.tests if not there(test)], len(MUTANTS))"
    )
    command = [sys.executable, "-c", program, str(_HERE.parents[1])]
    output = subprocess.run(
        command, cwd=_HERE, capture_output=True, text=True, check=True
    ).stdout
    wrong, _, count = output.strip().rpartition(" ")
    assert wrong == "[]"
    assert int(count) >= 20
