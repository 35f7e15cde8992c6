"""Fields: typed and ticked input becomes a value, mistakes are explained beside it."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

import toolkit as tk
from tests.widgets.page import enter, send, write
from toolkit.widgets.fields import CheckList, Dropdown, TextField, TimeField
from toolkit.widgets.page_parts import note
from toolkit.widgets.short_names import short_names

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)


@pytest.fixture
def calls():
    """A record of calls."""
    return []


def tell(choices, event, text, **more):
    """Do something in a list of choices, as the page sends it."""
    send(
        choices, event=event, **{"value" if event == "ticked" else "text": text}, **more
    )


def lines(choices):
    """The lines that the list shows."""
    return [f"{row['text']}{row['count']}" for row in choices.rows]


def test_a_time_is_an_age_or_iso_text_and_the_mistake_is_beside_it(calls):
    """An age is counted back when typed; an invalid time keeps the old value and explains the format."""
    field = TimeField(
        "From",
        lambda: calls.append(field.value),
        clock=lambda: NOW,
        zone=ZoneInfo("UTC"),
    )
    write(field, "2d")
    assert field.value == datetime(2026, 3, 8, 12, tzinfo=UTC)
    write(field, "tomorrow")
    assert field.value == datetime(2026, 3, 8, 12, tzinfo=UTC)
    assert "'tomorrow'" in field.problem
    assert "expected a date or time" in field.problem
    write(field, "")
    assert (field.value, field.problem) == (None, None)
    assert calls == [datetime(2026, 3, 8, 12, tzinfo=UTC), None]


def test_dates_and_times_without_a_zone_are_of_the_zone_that_is_shown(calls):
    """A date begins, and ends, at midnight of the zone; the text has the offset, the value is in UTC."""
    berlin = {"clock": lambda: NOW, "zone": ZoneInfo("Europe/Berlin")}
    since, until = (
        TimeField("At", lambda: None, compare=compare, **berlin)
        for compare in (">=", "<=")
    )
    write(since, "2026-03-29 01:30")
    assert since.value == datetime(2026, 3, 29, 0, 30, tzinfo=UTC)
    for field in (since, until):
        write(field, "2026-03-29")  # clocks are changed: a day of 23 hours
    assert since.value == datetime(2026, 3, 28, 23, tzinfo=UTC)
    assert until.value == datetime(2026, 3, 29, 21, 59, 59, 999_000, tzinfo=UTC)
    since.value = since.value
    assert since.text == "2026-03-29T00:00:00.000+01:00"
    write(since, "2026-03-29T00:00Z")
    assert since.value == datetime(2026, 3, 29, tzinfo=UTC)


def test_a_value_set_from_python_calls_no_handler(calls):
    """Setting a value shows it and calls no handler; Enter is reported with its text."""
    field = TextField("Run", lambda: calls.append("changed"))
    field.entered = lambda: calls.append("entered")
    field.value = "wfr_1"
    assert (field.text, field.value, calls) == ("wfr_1", "wfr_1", [])
    enter(field, "wfr_2")
    assert (field.value, calls) == ("wfr_2", ["changed", "entered"])


def test_a_ticked_value_keeps_its_position(calls):
    """Ticking adds in the order of ticking; no box moves under the pointer; unticking removes."""
    choices = CheckList("Label", lambda: calls.append(choices.value))
    choices.offer([(f"label-{number}", 100 - number) for number in range(9)])
    shown = lines(choices)
    assert shown[0] == "label-0 (100)"
    tell(choices, "ticked", "label-2", on=True)
    tell(choices, "ticked", "label-0", on=True)
    assert choices.value == ("label-2", "label-0")
    assert lines(choices) == shown
    assert [row["value"] for row in choices.rows if row["on"]] == ["label-0", "label-2"]
    tell(choices, "ticked", "label-2", on=False)
    assert choices.value == ("label-0",)
    assert calls == [("label-2",), ("label-2", "label-0"), ("label-0",)]


def test_enter_adds_the_first_match_and_the_button_the_typed_text(calls):
    """A part of a name and Enter choose the name; the part itself is added with the button that offers it."""
    choices = CheckList(
        "Workflow", lambda: calls.append(choices.value), literal=lambda _: True
    )
    choices.offer([("records", 9), ("orders/fulfil", 5), ("orders/confirm", 3)])
    tell(choices, "typed", "ord")
    assert lines(choices) == ["orders/fulfil (5)", "orders/confirm (3)", "records (9)"]
    assert choices.literal == "Add “ord” as typed"
    assert "Enter adds the first" in choices.remark
    tell(choices, "enter", "ord")
    assert choices.value == ("orders/fulfil",)
    assert choices.literal == ""
    tell(choices, "literal", " ord ")
    tell(choices, "enter", "ORDERS/FULFIL")  # chosen already: it stays chosen
    assert calls == [("orders/fulfil",), ("orders/fulfil", "ord")]


def test_a_typed_text_is_added_only_where_it_can_be_a_value(calls):
    """Without a match, Enter adds the typed text where it can be a value, and nothing elsewhere."""
    choices = CheckList(
        "Status", lambda: calls.append(choices.value), literal=str.isdigit
    )
    tell(choices, "typed", "404")
    assert "nothing found · Enter adds it as typed" in choices.remark
    tell(choices, "enter", "404")
    for event in ("typed", "enter", "literal"):
        tell(choices, event, "abc")
        assert choices.literal == ""
        assert choices.remark.count("nothing found") == 1
    assert calls == [("404",)]


def test_searching_finds_values_that_are_not_shown():
    """The search covers all values and ignores case; chosen values stay visible."""
    choices = CheckList("Label", lambda: None, literal=lambda _: True)
    choices.offer([(f"label-{number}", 1) for number in range(30)] + [("Special", 1)])
    tell(choices, "typed", "spec")
    assert lines(choices) == ["Special (1)"]
    tell(choices, "ticked", "Special", on=True)
    assert lines(choices) == ["Special (1)"]
    tell(choices, "enter", "something new")
    assert choices.value == ("Special", "something new")
    assert [row["text"] for row in choices.rows if row["on"]] == [
        "Special",
        "something new",
    ]


@pytest.mark.parametrize(
    "content",
    [{"number": 1}, {"number": 1, "event": "enter", "text": ["a"]}, {"event": "enter", "text": "a"},
     {"number": 1, "event": "other", "text": "a"}, {"number": 1, "event": "ticked", "value": 7, "on": True}],
)  # fmt: skip
def test_malformed_messages_choose_nothing(content):
    """Messages that the page would never send are ignored."""
    choices = CheckList("Label", lambda: None, literal=lambda _: True)
    choices.offer([("a", 1)])
    choices.receive(content)
    assert (choices.value, choices.state["seen"]) == ((), 0)


def test_addresses_are_distinguished_by_their_ends():
    """The shared start is left out, long ones are shortened in the middle; the tooltip has all."""
    choices = CheckList("Workflow", lambda: None)
    start = "https://shop.example/flows/orders-of-a-very-long-name-that-no-list-has-room-for"
    names = [f"{start}/pay", f"{start}/mail", "https://other.example/x"]
    choices.offer([(name, 1) for name in names])
    shown = [row["text"] for row in choices.rows]
    assert shown[2] == "other.example/x"
    assert shown[0].startswith("shop.example/flows/")
    assert shown[0].endswith("/pay")
    assert all(len(text) <= 60 for text in shown)
    assert len(set(shown)) == 3
    assert [row["title"] for row in choices.rows] == names
    choices.offer([(name, 1) for name in names[:2]])
    assert [row["text"] for row in choices.rows] == ["pay", "mail"]


@given(st.lists(st.text(max_size=90), max_size=8, unique=True))
def test_short_names_are_distinct(names):
    """No two names are shown as the same text."""
    assert len(set(short_names(names))) == len(names)


def test_a_press_is_processed_after_the_values_it_was_made_on(failures):
    """Messages of a panel are processed in their order; presses of unknown buttons call nothing."""
    panel = tk.FailureFilterPanel(failures)
    panel.receive(
        {"kind": "field", "name": "since", "event": "changed", "text": "4h", "head": ""}
        | {"number": 1}
    )
    panel.receive({"kind": "press", "name": "Apply"})
    assert panel.message
    since = panel.value.since
    assert since is not None
    for name in ("Delete", ["Apply"], None):
        panel.receive({"kind": "press", "name": name})
    assert panel.value.since == since
    assert panel.form["since"]["seen"] == 1


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"number": 2, "value": "c"},
        {"number": "2", "value": "b"},
        {"number": 2, "value": ["b"]},
    ],
)
def test_malformed_messages_choose_no_name(content):
    """Messages that the page would never send are ignored."""
    chosen = Dropdown("Name", lambda: None, ["a", "b"])
    chosen.receive(content)
    assert (chosen.value, chosen.state["seen"]) == ("a", 0)


def test_a_note_is_text():
    """Every text is escaped, and a problem has a sign beside its colour."""
    assert (
        note("<b>", "problem")
        == '<div class="tk-problem" role="alert">⚠ &lt;b&gt;</div>'
    )
    assert note("") == ""
