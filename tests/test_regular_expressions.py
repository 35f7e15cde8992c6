"""Regular expressions give the same results on every Python."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from toolkit.signatures.word_values import READ_WORDS

ROOT = Path(__file__).parents[1]
FILES = sorted(
    path for name in ("toolkit", "toolkit_service") for path in (ROOT / name).rglob("*.py")
)  # fmt: skip
REPEATED_GROUP = re.compile(r"[^(\\]\)(?:[*+?]|\{\d*,?\d*\})\+")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_group_is_repeated_possessively(path):
    r"""Before Python 3.11.5, `(?:a|b)*+` may keep a part that does not match. `(?>(?:a|b)*)` is right.

    For example, 3.11.2 finds a name without a digit in "9Error". `a*+` and `[ab]*+` are right everywhere.
    """
    lines = path.read_text("utf-8").splitlines()
    found = [line for line in lines if REPEATED_GROUP.search(line)]
    assert not found


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("9Error#", "<id>"),
        ("9comabc", "<id>"),
        ("(Id@%1s)+Z", "(Id@%<duration>)+Z"),
        ("abc%٣orderId", "abc%<id>"),
    ],
)
def test_words_are_read_alike_by_every_python(word, expected):
    """Words that 3.11.2 read differently when groups were repeated possessively."""
    assert READ_WORDS[word] == expected
