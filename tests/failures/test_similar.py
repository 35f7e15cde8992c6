"""Texts that look alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.accuracy.duplicates import duplicates
from toolkit.analysis import similar_texts
from toolkit.errors import InputError


def test_traces_of_a_known_fault_match_and_new_ones_are_reported() -> None:
    """The first is right in 95 %, and similarities separate known texts from new ones."""
    texts, history, rows = duplicates(150, seed=5)
    found = similar_texts(texts, history, k=1).set_index("query")
    assert (
        np.mean(
            [
                found.loc[query, "row"] == row
                for query, row in enumerate(rows)
                if row is not None
            ]
        )
        >= 0.95
    )
    known = np.array(
        [
            found.loc[query, "similarity"]
            for query, row in enumerate(rows)
            if row is not None
        ]
    )
    fresh = np.array(
        [
            found.loc[query, "similarity"]
            for query, row in enumerate(rows)
            if row is None
        ]
    )
    assert (known[:, None] > fresh).mean() >= 0.93
    assert found.loc[: len(known) - 1, "seen"].mean() > 0.9
    assert found.loc[len(known) :, "seen"].mean() < 0.2


def test_an_equal_text_is_most_similar() -> None:
    """With a similarity of one, for any numbers in it; equally similar ones keep their order."""
    history = [
        "disk sda1 is full",
        "connection to 10.0.0.1 refused",
        "connection to 10.0.0.2 refused",
    ]
    found = similar_texts(["connection to 10.9.9.9 refused"], history)
    assert found["row"].tolist() == [1, 2]
    assert found["similarity"].round(9).tolist() == [1.0, 1.0]
    assert found["seen"].tolist() == [True, True]


@pytest.mark.parametrize("history", [[], [None], ["", None]])
@pytest.mark.parametrize("texts", [[], [None, ""], ["some text"], [float("nan")]])
def test_nothing_is_similar_to_nothing(texts: list[Any], history: list[Any]) -> None:
    """The frame is empty, with its columns and types."""
    found = similar_texts(texts, history)
    assert found.empty
    assert found.dtypes.astype(str).to_dict() == {
        "query": "Int64", "rank": "Int64", "row": "Int64", "similarity": "float64", "seen": "bool",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"texts": "one"}, "texts"),
        ({"texts": [1]}, "texts"),
        ({"history": 7}, "history"),
        ({"k": 0}, "k"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    arguments: dict[str, Any], named: str
) -> None:
    """With an error that names the argument."""
    with pytest.raises(InputError, match=named):
        similar_texts(**{"texts": ["a"], "history": ["b"]} | arguments)
