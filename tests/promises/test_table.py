"""The table of promises names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]


def test_every_promise_names_tests_that_exist() -> None:
    """Each row has a promise and one or more tests: files, or functions in them."""
    table = Path(__file__).with_name("README.md").read_text(encoding="utf-8")
    rows = [
        line
        for line in table.splitlines()
        if line.startswith("| ") and line != "| promise | test |"
    ]
    assert len(rows) > 30
    for row in rows:
        named = re.findall(r"`([\w/]+\.py)(?:::(\w+))?`", row)
        assert named, row
        for file, function in named:
            code = (TESTS / file).read_text(encoding="utf-8")
            assert f"def {function}" in code, (file, function)
