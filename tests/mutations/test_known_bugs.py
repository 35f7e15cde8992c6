"""The list of known bugs keeps up with the source. `make soak` puts them in, one at a time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_HERE = Path(__file__).parent


def test_every_known_bug_can_be_put_in() -> None:
    """Each replaces text that is in the source exactly once, and names tests that are there."""
    program = (
        "import sys; from pathlib import Path; from known_bugs import BUGS; root = Path(sys.argv[1]);"
        "there = lambda test: (root / test.partition('::')[0]).exists();"
        "print([bug.misfit(root) for bug in BUGS if bug.misfit(root)]"
        " + [test for bug in BUGS for test in bug.tests if not there(test)], len(BUGS))"
    )
    command = [sys.executable, "-c", program, str(_HERE.parents[1])]
    said = subprocess.run(command, cwd=_HERE, capture_output=True, text=True, check=True).stdout
    wrong, _, count = said.strip().rpartition(" ")
    assert wrong == "[]"
    assert int(count) >= 20
