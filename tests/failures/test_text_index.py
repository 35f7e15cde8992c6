"""Texts of a history that a text looks like: by the error, by the whole text, and within bounds."""

from __future__ import annotations

import dataclasses

import pytest

from toolkit.analysis import similar_texts
from toolkit.failures import text_index
from toolkit.failures.text_index import TextIndex


def _trace(number: int, *, way: int = 0) -> str:
    near = [f"com.acme.shop.Fault{number}.step{depth}" for depth in range(3)]
    far = [f"com.acme.entry{way}.Handler{depth}.run" for depth in range(8)]
    frames = [
        f"\tat {name}({name.split('.')[-2]}.java:{len(name)})" for name in near + far
    ]
    return "\n".join(
        [f"java.lang.IllegalStateException: state {number} is closed", *frames]
    )


def test_a_fault_that_was_reached_by_another_way_is_the_first() -> None:
    """The frames near the error decide, although most lines of the trace are those of other faults."""
    history = [_trace(number, way=number % 2) for number in range(40)]
    found = similar_texts([_trace(7, way=0)], history, k=1)
    assert found["row"].tolist() == [7]
    assert found["seen"].tolist() == [True]


def test_the_group_is_a_feature() -> None:
    """Of two texts with the same words, the text of the same group is more similar."""
    index = TextIndex(["payment of order was refused"] * 2, ["s6-aaaa", "s6-bbbb"])
    nearest = index.nearest("payment of order was refused", "s6-bbbb", k=2)
    assert [match.row for match in nearest] == [1, 0]
    assert nearest[0].similarity == 1.0


def test_a_large_history_is_read_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """If common features are left out, the best text is the same, with the same similarity."""
    history = [_trace(number) for number in range(200)]
    exact = TextIndex(history, [None] * 200).nearest(_trace(33), None, k=1)
    bounds = dataclasses.replace(text_index._TUNING, most_read=50, most_candidates=20)
    monkeypatch.setattr(text_index, "_TUNING", bounds)
    assert TextIndex(history, [None] * 200).nearest(_trace(33), None, k=1) == exact
    assert exact[0][0] == 33


@pytest.mark.parametrize("history", [[], [""], ["", "disk full"]])
def test_nothing_is_similar_to_nothing(history: list[str]) -> None:
    """Empty texts and empty histories have no matches."""
    assert TextIndex(history, [None] * len(history)).nearest("", None, k=3) == []
