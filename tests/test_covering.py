"""Products of two lists of which tests run a part."""

from __future__ import annotations

import pytest

from tests import covering


def test_each_value_has_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of seven values in three turns, each is in one turn, and a fourth turn is the first one again."""
    monkeypatch.setattr(covering, "ALL_CASES", False)
    turns = [covering.in_turn(range(7), number, of=3) for number in range(4)]
    assert sorted(turns[0] + turns[1] + turns[2]) == list(range(7))
    assert turns[3] == turns[0]


def test_all_cases_can_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the option, every turn has every value."""
    monkeypatch.setattr(covering, "ALL_CASES", True)
    assert covering.in_turn("abc", 1, of=3) == ["a", "b", "c"]
