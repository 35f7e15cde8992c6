"""Titles of groups end at a sentence or a clause."""

from __future__ import annotations

import pytest

from toolkit.signatures.headlines import title_of

CAUSE = "upstream connect error before headers, the latest reset reason was a failure of the connection"
EXPIRED = (
    "The token has expired due to a very long time of complete inactivity of the user."
)
NO_FILE = "No such file or directory (os error 2)"


@pytest.mark.parametrize(
    ("line", "title"),
    [
        ("no such user: <num>", "no such user: <num>"),
        (
            f"{EXPIRED} Trace ID: <uuid> {'Correlation ID: <uuid> ' * 4}",
            EXPIRED,
        ),
        (f"{CAUSE}, {'transport failure ' * 8}", f"{CAUSE}…"),
        (f"{CAUSE}: {NO_FILE}", f"{CAUSE}: {NO_FILE}"),
    ],
)  # fmt: skip
def test_a_title_ends_at_a_sentence_or_clause(line: str, title: str):
    """A long title is cut at the last sentence, else at the last clause, and a few words more are kept."""
    assert title_of(line) == title


@pytest.mark.parametrize("line", ["x" * 500, f"{'word ' * 100}", f"a {'x' * 400}"])
def test_a_title_without_clauses_is_cut_at_a_word(line: str):
    """A title has at most 160 characters, and shows that text is left out."""
    title = title_of(line)
    assert len(title) <= 160
    assert title.endswith("…")
