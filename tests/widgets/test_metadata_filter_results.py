"""The vectors that the metadata filter has read, and the filter of a result."""

from __future__ import annotations

import asyncio
import json
import threading

import pandas as pd
import pytest

from toolkit import MetadataFilterPanel, QueryPanel
from toolkit.errors import (
    BadRequestError,
    FilterSyntaxError,
    IncompleteLoadError,
    InputError,
    UnexpectedResultWarning,
)
from toolkit.filters.query import VectorQuery
from toolkit.tables.metadata_fields import match_metadata, metadata_fields
from toolkit.widgets.fields import Dropdown, TextField
from toolkit.widgets.page_parts import is_count

EARLIER = "The vectors loaded last are from an earlier filter."


@pytest.fixture
def vectors():
    """Four vectors in three cities."""
    rows = [json.dumps({"city": city}) for city in ("Izmir", "Oslo", "Oslo", "Bergen")]
    return pd.DataFrame({"id": list("abcd"), "metadata": pd.Series(rows, dtype="str")})


@pytest.fixture
def reading(monkeypatch, vectors):
    """Make every read of the service return these vectors, or raise."""

    def give(gives=vectors):
        def read(*_):
            if isinstance(gives, Exception):
                raise gives
            return gives

        monkeypatch.setattr(MetadataFilterPanel, "_vectors", read)

    return give


def cities(panel):
    """The values that are offered for the city."""
    return {value for field in panel.editor.fields for value, _ in field.frequent}


def test_looking_at_a_frame_keeps_all_of_it(vectors):
    """Fields are learned from the whole frame, and rows that do not match now can match later."""
    panel = MetadataFilterPanel(vectors, value="city = 'Izmir'")
    panel.look()
    assert cities(panel) == {"Izmir", "Oslo", "Bergen"}
    panel.value = ""
    assert panel.frame()["id"].tolist() == list("abcd")


def test_finding_fields_keeps_a_frame_that_was_passed(vectors, server, reading):
    """Fields are learned from some vectors of the service; the count stays that of the given frame."""
    panel = MetadataFilterPanel(server.service(), frame=vectors)
    reading(vectors.head(1))
    panel.look()
    assert panel.matching() == "4 of 4 loaded vectors match"
    assert cities(panel) == {"Izmir"}


def test_a_load_is_known_unfiltered(vectors, server, reading):
    """After a load its vectors are counted by any filter, and their fields are offered."""
    reading()
    panel = MetadataFilterPanel(server.service(), value="city = 'Izmir'")
    assert panel.run()["id"].tolist() == ["a"]
    assert panel.matching() == "1 of 4 loaded vectors match"
    assert cities(panel) == {"Izmir", "Oslo", "Bergen"}
    panel.value = "city = 'Oslo'"
    assert "2 of 4 loaded vectors match" in panel.matches
    assert panel.frame()["id"].tolist() == ["a"]
    assert panel.message == EARLIER


def test_only_some_of_many_are_counted(vectors, monkeypatch):
    """Every filter reads the vectors again: of many, only the first are counted, and the text says so."""
    monkeypatch.setattr("toolkit.widgets.metadata_filter.COUNTED", 3)
    panel = MetadataFilterPanel(vectors, value="city = 'Oslo'")
    assert panel.matching() == "2 of the first 3 loaded vectors match"
    panel.value = "city = 'Bergen'"
    assert panel.frame()["id"].tolist() == ["d"]


def test_a_load_that_ends_early_is_known_and_its_matches_are_the_result(
    vectors, server, reading
):
    """Vectors read before a load ended are kept unfiltered, the matching ones are the result."""
    reading(IncompleteLoadError("loading vectors", partial=vectors, got="a stop"))
    panel = MetadataFilterPanel(server.service(), value="city = 'Oslo'")
    with pytest.raises(IncompleteLoadError) as caught:
        panel.run()
    assert (
        caught.value.partial["id"].tolist()
        == panel.frame()["id"].tolist()
        == ["b", "c"]
    )
    assert panel.matching() == "2 of 4 loaded vectors match"
    assert "a stop" in panel.message


def test_what_is_read_for_its_fields_is_no_result(vectors, server, reading):
    """Fields are found in a read that ends early, with a message; the result is unchanged."""
    reading(IncompleteLoadError("loading vectors", partial=vectors, got="a stop"))
    panel = MetadataFilterPanel(server.service())
    with pytest.raises(IncompleteLoadError):
        panel.look()
    assert len(panel.frame()) == 0
    assert cities(panel) == {"Izmir", "Oslo", "Bergen"}
    assert "a stop" in panel.message


def test_a_look_that_fails_is_shown(server):
    """The error of reading fields is in the panel, too."""
    panel = MetadataFilterPanel(server.service())
    server.always(b'{"error": "index is asleep", "status": 400}', 400)
    with pytest.raises(BadRequestError) as caught:
        panel.look()
    assert panel.message == str(caught.value)


def test_a_result_belongs_to_the_filter_it_was_loaded_with(
    vectors, server, monkeypatch
):
    """A button's load belongs to the filter it started with, even when a run was refused meanwhile."""
    begun, go = threading.Event(), threading.Event()

    def read(*_):
        begun.set()
        assert go.wait(30)
        return vectors

    monkeypatch.setattr(MetadataFilterPanel, "_vectors", read)
    panel = MetadataFilterPanel(server.service(), value="city = 'Izmir'")

    async def main():
        panel._start_run()
        await asyncio.to_thread(begun.wait, 30)
        panel.value = "city = 'Oslo'"
        with pytest.raises(InputError, match="got a running call"):
            panel.run()
        go.set()
        async with asyncio.timeout(30):
            while panel._job is not None:  # noqa: ASYNC110 - awaits the panel's state
                await asyncio.sleep(0.005)

    asyncio.run(main())
    assert panel.frame()["id"].tolist() == ["a"]
    assert panel._kept.origin.requested == "city = 'Izmir'"
    assert "earlier filter" in panel.message
    panel.value = "city = 'Izmir'"
    assert not panel._is_old()


def test_a_kept_result_keeps_its_remark_and_its_vectors(
    vectors, server, reading, request
):
    """After the cell is run again, the result is still marked as of another filter, and counts work."""
    reading()
    key = request.node.name
    panel = MetadataFilterPanel(server.service(), value="city = 'Izmir'", key=key)
    panel.run()
    panel.value = "city = 'Oslo'"
    again = MetadataFilterPanel(server.service(), value="city = 'Izmir'", key=key)
    assert (again.value, again.message) == ("city = 'Oslo'", EARLIER)
    assert again.frame()["id"].tolist() == ["a"]
    assert again.matching() == "2 of 4 loaded vectors match"


def test_a_wrong_value_leaves_what_is_kept(vectors, server, request):
    """A value that is refused does not replace the kept one."""
    key = request.node.name
    query = VectorQuery(data="x")
    QueryPanel(server.service(), key=key).value = query
    with pytest.raises(InputError):
        QueryPanel(server.service(), key=key, value="bad")
    assert QueryPanel(server.service(), key=key).value == query
    MetadataFilterPanel(vectors, key=key).value = "city = 'Oslo'"
    with pytest.raises(FilterSyntaxError):
        MetadataFilterPanel(vectors, key=key, value="city =")
    assert MetadataFilterPanel(vectors, key=key).value == "city = 'Oslo'"


@pytest.mark.parametrize(
    "row",
    [
        {"password": "hunter2-xyz"},
        {"login": {"api_key": 8675309}},
        {"tokens": ["hunter2-xyz"]},
    ],
)
def test_values_under_secret_names_are_not_offered(row):
    """Such a value is in no state and no form of the panel."""
    frame = pd.DataFrame(
        {"id": ["a"], "metadata": [json.dumps(row | {"city": "Oslo"})]}
    )
    panel = MetadataFilterPanel(frame)
    state = json.dumps([panel._repr_mimebundle_(), panel.get_state()], default=str)
    assert "hunter2-xyz" not in state
    assert "8675309" not in state
    assert cities(panel) == {"Oslo"}


def test_a_filter_that_does_not_parse_has_no_rows(vectors):
    """After an invalid text is set from code, no conditions of the previous filter are shown."""
    panel = MetadataFilterPanel(vectors)
    editor = panel.editor
    editor.value = "city = 'Oslo'"
    editor.value = "city = "
    assert "when the text is a filter" in panel.conditions["hidden"]
    assert editor.rows.read() is None
    editor.value = "city = 'Bergen'"
    assert panel.conditions["hidden"] == ""
    assert editor.rows.read().text() == "city = 'Bergen'"


@pytest.mark.parametrize("text", ["{", "nope", "[" * 100_000])
def test_metadata_that_is_no_json_is_named(text, vectors):
    """The error names its row; frames of another kind are refused before anything is kept."""
    frame = pd.DataFrame({"id": ["a", "b"], "metadata": ["{}", text]})
    for look in (
        metadata_fields,
        MetadataFilterPanel,
        lambda found: match_metadata(found, "a = 1"),
    ):
        with pytest.raises(InputError, match=r"row 1 \(from 0\)"):
            look(frame)
    with pytest.warns(UnexpectedResultWarning, match="no metadata has a field 'a'"):
        assert len(match_metadata(vectors, "a = 1")) == 4


def test_a_frame_of_another_kind_is_refused(server):
    """The frame beside a service must be one."""
    with pytest.raises(InputError, match="a frame"):
        MetadataFilterPanel(server.service(), frame=[1])


@pytest.mark.parametrize("content", [[], None, "x", 7])
def test_messages_that_are_no_mapping_change_nothing(content, vectors, caplog):
    """The panel ignores messages that the page never sends, without an error in the log."""
    panel = MetadataFilterPanel(vectors)
    before = panel.form
    for message in (content, {"kind": "field", "name": content}, {"kind": content}):
        panel._handle_custom_msg(message, [])
    panel._handle_custom_msg({"kind": "field", "name": "gone", "number": 1}, [])
    panel._handle_custom_msg({"kind": "press", "name": "Delete"}, [])
    assert panel.form == before
    assert caplog.records == []


@pytest.mark.parametrize("number", [True, -1, 10**30, 2.0, "1", None])
def test_numbers_that_the_page_cannot_count_are_passed_over(number):
    """Only a number that Python and JavaScript both hold exactly numbers a message."""
    assert not is_count(number)
    entry, chosen = (
        TextField("Name", lambda: None, complete=lambda *_: (), follows=True),
        Dropdown("Name", lambda: None, ["a", "b"]),
    )
    entry.receive({"event": "typed", "number": number, "text": "x", "head": "x"})
    chosen.receive({"number": number, "value": "b"})
    assert (entry.text, entry.state["seen"]) == ("", 0)
    assert (chosen.value, chosen.state["seen"]) == ("a", 0)


def test_a_choice_of_the_page_counts_by_its_name(vectors):
    """The operator is sent by its name, for any list."""
    panel = MetadataFilterPanel(vectors, value="city = 'a'")
    operator = panel.editor.rows.parts[0].operator
    operator.receive({"number": 1, "value": "CONTAINS"})
    assert panel.value == "city CONTAINS 'a'"
    assert operator.state["seen"] == 1
    assert operator.options[0] == "CONTAINS"


def test_a_result_says_when_its_filter_has_changed(vectors, server, monkeypatch):
    """A filter that changes during a load is not that of the result."""
    panel = MetadataFilterPanel(server.service(), value="city = 'Izmir'")

    def read(*_):
        panel.value = "city = 'Oslo'"
        return vectors

    monkeypatch.setattr(panel, "_vectors", read)
    assert panel.run()["id"].tolist() == ["a"]
    assert panel.message.startswith("1 vector chosen.")
    assert panel.message.endswith("They are from an earlier filter.")
