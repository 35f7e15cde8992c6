"""Completions of a metadata filter at the caret, word by word."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkit.tables.metadata_fields import MetadataField
from toolkit.widgets.metadata_condition import completions

FIELDS = [
    MetadataField("city", ("text",), 3, (("Izmir", 2), ("Oslo", 1))),
    MetadataField("Code", ("number",), 3, ((3, 2),)),
]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ["city ", "Code ", "HAS FIELD ", "HAS NOT FIELD "]),
        ("c", ["city ", "Code "]),
        ("HAS FIELD co", ["HAS FIELD Code"]),
        ("(city = 'x' or C", ["(city = 'x' or city ", "(city = 'x' or Code "]),
        ("city = ", ["city = 'Izmir'", "city = 'Oslo'"]),
        ("city = 'iz", ["city = 'Izmir'"]),
        ("city = os", ["city = 'Oslo'"]),
        ("city IN ('Oslo', 'I", ["city IN ('Oslo', 'Izmir'"]),
        ("Code n", ["Code NOT IN "]),
        ("Code = 3 ", ["Code = 3 AND ", "Code = 3 OR "]),
        ("city = 'and c", []),
    ],
)
def test_what_is_typed_is_completed(text, expected):
    """Field names, operators, values and the words between are offered as whole texts."""
    assert [
        before + after for _, before, after in completions(text, text, FIELDS)
    ] == expected


texts_before = st.text(
    st.sampled_from("cityCode='Izm <>()3,ANDORINHAFELD[]0"), max_size=12
)


@given(before=texts_before, after=texts_before)
def test_completions_continue_from_the_caret(before, after):
    """Every completion keeps the text except the word at the caret."""
    for shown, head, tail in completions(before + after, before, FIELDS):
        assert head.rstrip().endswith(shown)
        assert after.endswith(tail)
        begun = head.rstrip().removesuffix(shown)
        assert before.startswith(begun)
        assert before[len(begun) :].casefold().strip("'\"") in shown.casefold()


def test_the_word_at_the_caret_is_replaced():
    """The text after the caret stays, except the end of the word."""
    assert completions("Cod >= 3", "Co", FIELDS) == [("Code", "Code", " >= 3")]
    assert completions("city = 'Iz' OR x = 1", "city = 'I", FIELDS) == [
        ("'Izmir'", "city = 'Izmir'", " OR x = 1")
    ]
