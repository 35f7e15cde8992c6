"""Controls: what is typed and ticked becomes a value, what is wrong is said beside it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolkit.widgets.controls import Actions, Choices, TextField, TimeField, note

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)


@pytest.fixture
def calls():
    """What was called."""
    return []


def enter(control):
    """Press Enter in a text control, as the page tells it."""
    control._handle_custom_msg({"event": "submit"}, [])


def test_a_time_is_an_age_or_iso_text_and_the_mistake_is_beside_it(calls):
    """An age is counted back when typed; what is no time keeps the old value and says what is expected."""
    field = TimeField("From", lambda: calls.append(field.value), clock=lambda: NOW)
    field.text.value = "2d"
    assert field.value == datetime(2026, 3, 8, 12, tzinfo=UTC)
    field.text.value = "yesterday"
    assert field.value == datetime(2026, 3, 8, 12, tzinfo=UTC)
    assert "'yesterday'" in field.problem
    assert "expected a date or time" in field.view.children[1].value
    field.text.value = ""
    assert (field.value, field.problem) == (None, None)
    assert calls == [datetime(2026, 3, 8, 12, tzinfo=UTC), None]


def test_a_value_set_from_python_calls_nobody(calls):
    """Setting a value shows it and is no change by a person."""
    field = TextField("Run", lambda: calls.append("changed"), entered=lambda: calls.append("entered") or True)
    field.value = "wfr_1"
    assert (field.text.value, field.value, calls) == ("wfr_1", "wfr_1", [])
    enter(field.text)
    assert calls == ["entered"]


def test_a_tick_chooses_and_keeps_its_place(calls):
    """Ticking adds in the order of ticking; nothing moves under the pointer; unticking takes out."""
    choices = Choices("Label", lambda: calls.append(choices.value), javascript=True)
    choices.offer([(f"label-{number}", 100 - number) for number in range(9)])
    shown = [row.description for row in choices._rows]
    assert shown[0] == "label-0 (100)"
    choices._rows[2].value = True
    choices._rows[0].value = True
    assert choices.value == ("label-2", "label-0")
    assert [row.description for row in choices._rows] == shown
    choices._rows[2].value = False
    assert choices.value == ("label-0",)
    assert calls == [("label-2",), ("label-2", "label-0"), ("label-0",)]


def test_searching_finds_what_is_not_in_sight_and_enter_adds_what_is_typed():
    """The search looks at all values without regard to case; free entry needs no match."""
    choices = Choices("Label", lambda: None, javascript=True)
    choices.offer([(f"label-{number}", 1) for number in range(30)] + [("Special", 1)])
    choices.search.value = "spec"
    assert [row.description for row in choices._rows if row.layout.display != "none"] == ["Special (1)"]
    choices._rows[0].value = True
    choices.search.value = "something new"
    assert "Enter adds" in choices.view.children[-1].value
    choices.search._handle_custom_msg({"kind": "enter", "text": "something new "}, [])
    choices.search._handle_custom_msg({"kind": "enter", "text": ["no text"]}, [])
    choices.search.value = ""
    assert choices.value == ("Special", "something new")
    assert [row.description for row in choices._rows if row.value] == ["Special (1)", "something new"]


def test_addresses_are_told_apart_by_their_ends():
    """What all addresses share is left out of the boxes, and stays in the tooltip and the value."""
    choices = Choices("Workflow", lambda: None, javascript=True)
    choices.offer([("https://shop.example/a/pay", 2), ("https://shop.example/a/mail", 1)])
    assert [row.description for row in choices._rows[:2]] == ["pay (2)", "mail (1)"]
    assert choices._rows[0].tooltip == "https://shop.example/a/pay"
    choices._rows[0].value = True
    assert choices.value == ("https://shop.example/a/pay",)


@settings(deadline=None)
@given(
    st.lists(
        st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8), max_size=4, unique=True
    )
)
def test_without_javascript_any_value_is_a_line_and_back(values):
    """Values put into the text area and read from its lines are the same, whatever is in them."""
    choices = Choices("Label", lambda: None, javascript=False)
    choices.value = tuple(values)
    written = choices.lines.value
    choices.value = ()
    choices.lines.value = written
    assert choices.value == tuple(values)


def test_a_line_that_is_half_json_is_explained():
    """A line that begins with a quotation mark and is no JSON text keeps the old value and says why."""
    choices = Choices("Label", lambda: None, javascript=False)
    choices.value = ("a",)
    choices.lines.value = 'a\n"b'
    assert choices.value == ("a",)
    assert "quotation mark" in choices.problem


def test_actions_are_buttons_or_words(calls):
    """With JavaScript each action is a button; without, its name is typed and Enter pressed."""
    named = {"Load": lambda: calls.append("load"), "Cancel": lambda: calls.append("cancel")}
    buttons = Actions(named, javascript=True)
    buttons.buttons["Cancel"].click()
    words = Actions(named, javascript=False)
    words._line.text.value = "load"
    enter(words._line.text)
    words._line.text.value = "lode"
    enter(words._line.text)
    words.press("Load")
    assert calls == ["cancel", "load", "load"]
    assert "Load, Cancel" in words._line.problem


def test_the_text_of_an_enter_may_come_after_it(calls):
    """Ipywidgets tells Enter at once and the text later: the action waits for the text, and runs once."""
    words = Actions({"Load": lambda: calls.append("load")}, javascript=False)
    enter(words._line.text)
    words._line.text.value = "load"
    assert calls == ["load"]
    words._line.text.value = "load"  # left without Enter: nothing
    assert calls == ["load"]


def test_a_note_is_text():
    """Whatever is said is escaped, and a problem has a sign beside its colour."""
    assert note("<b>", "problem") == '<div class="tk-problem" role="alert">⚠ &lt;b&gt;</div>'
    assert note("") == ""
