"""Choices go by their names, and a result is told apart from the filter that came too late for it."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from toolkit.widgets import MetadataFilterWidget
from toolkit.widgets.controls import Choosing


@pytest.fixture
def vectors():
    """Two vectors with metadata."""
    rows = [json.dumps({"city": city}) for city in ("Izmir", "Oslo")]
    return pd.DataFrame({"id": ["a", "b"], "metadata": pd.Series(rows, dtype="str")})


def test_a_choice_of_the_page_counts_by_its_name(vectors):
    """The operator is told by its name, whatever is in the list now."""
    panel = MetadataFilterWidget(vectors, value="city = 'a'")
    operator = panel.editor.rows.parts[0].operator
    operator._handle_custom_msg({"seq": 1, "value": "CONTAINS"}, [])
    assert (panel.value, operator.seq, operator.options[0]) == ("city CONTAINS 'a'", 1, "CONTAINS")


@pytest.mark.parametrize(
    "content", [{}, {"seq": 2, "value": "c"}, {"seq": "2", "value": "b"}, {"seq": 2, "value": ["b"]}]
)
def test_odd_messages_change_nothing(content):
    """What the page would never send is passed over."""
    chosen = Choosing("Name", lambda: None, ["a", "b"])
    chosen._handle_custom_msg(content, [])
    assert (chosen.value, chosen.seq) == ("a", 0)


def test_a_result_says_when_its_filter_is_no_more(vectors, server, monkeypatch):
    """A filter that changes while a load is on its way is not taken for that of the result."""
    panel = MetadataFilterWidget(server.service(), value="city = 'Izmir'")

    def read(*_):
        panel.value = "city = 'Oslo'"
        return vectors

    monkeypatch.setattr(panel, "_vectors", read)
    assert panel.run()["id"].tolist() == ["a"]
    assert panel.message == "1 vector chosen. They are those of an earlier filter."
