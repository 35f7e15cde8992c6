"""Fields that fit no column are JSON text, masked row by row."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from toolkit.secrets.redaction import Redactor, Secret
from toolkit.tables.json_cells import FieldsMasker, masked_json

_REDACTOR = Redactor(key=b"example")
_TEXTS = st.sampled_from(
    [
        "",
        "done",
        "pin",
        "name",
        "value",
        "X-Api-Key",
        "Bearer abcdefghijklmnop",
        "https://shop.example/?token=abcdefgh",
        "x" * 400,
    ]
)
_JSON: st.SearchStrategy[Any] = st.recursive(
    _TEXTS | st.integers() | st.none() | st.booleans(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(_TEXTS, inner, max_size=3)
    ),
    max_leaves=8,
)


@given(rows=st.lists(st.dictionaries(_TEXTS, _JSON, max_size=3), max_size=6))
def test_rows_of_a_page_are_masked_like_rows_alone(rows: list[dict[str, Any]]) -> None:
    """A string that was secret under one name is text under another, whichever came first."""
    masker = FieldsMasker(_REDACTOR)

    assert [masker.json(row) for row in rows] == [
        masked_json(row, _REDACTOR) for row in rows
    ]


def test_the_next_page_masks_tokens_that_are_new() -> None:
    """A masker remembers strings of one page: later pages know a token that the process got meanwhile."""
    row = {"note": "between live-token-of-later and the end"}
    assert "live-token-of-later" in (masked_json(row, _REDACTOR) or "")

    secret = Secret("live-token-of-later")

    assert "live-token-of-later" not in (masked_json(row, _REDACTOR) or "")
    del secret
