"""The metadata filter as text and as controls: they agree; no request is sent before a button is pressed."""

from __future__ import annotations

import ast
import json
import re

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.filters.strategies import metadata_conditions, metadata_filters
from tests.widgets.page import choose, offered, write
from tests.widgets.payloads import PAYLOADS
from toolkit import MetadataFilterPanel
from toolkit.errors import (
    BadRequestError,
    FilterSyntaxError,
    IncompleteLoadError,
    InputError,
)
from toolkit.filters.metadata import (
    Comparison,
    Or,
    parse,
)
from toolkit.secrets.redaction import visible
from toolkit.tables.metadata_fields import match_metadata
from toolkit.widgets.metadata_condition import OPERATORS, condition, typed_condition

fields = st.sampled_from(
    ["city", "year", "in", "a.b", "tags[0]", "tags[#-1]", "a[1].b"]
)
scalars = st.one_of(
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(
        [
            "",
            " x",
            "it's",
            'say "x"',
            "'",
            "1",
            "007",
            "true",
            "1e999",
            "a, b",
            "1 AND y = 2",
        ]
    ),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
)
patterns = st.sampled_from(["a*", "", " b?", "[ab]*,", "'*'", "7", "\u202e*"])
conditions = metadata_conditions(fields, scalars, patterns)
trees = metadata_filters(conditions)

ROWS = [
    {
        "city": "Izmir",
        "year": 2024,
        "tags": ["new", "eu"],
        "at": {"door": "7", "open": True},
    },
    {
        "city": "Izmir",
        "year": 2023.5,
        "tags": ["old"],
        "at": {"door": "8", "open": False},
    },
    {"city": "Oslo", "year": 2020, "tags": []},
    {"city": None, "two words": 1, "events": [{"code": 3}, {"code": 4}]},
]


@pytest.fixture
def vectors():
    """Four vectors with metadata, and one without."""
    texts = [json.dumps(row) for row in ROWS]
    return pd.DataFrame(
        {"id": list("abcde"), "metadata": pd.Series([*texts, None], dtype="str")}
    )


@pytest.fixture
def panel(vectors):
    """A widget on a frame."""
    return MetadataFilterPanel(vectors)


def row(panel, number=0):
    """A condition of the outermost group."""
    return panel.editor.rows.parts[number]


def fill(part, field, operator, value=""):
    """Type and choose the three parts of a condition."""
    write(part.field, field)
    choose(part.operator, operator)
    write(part.value, value)


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(tree=trees)
def test_any_filter_survives_text_controls_and_code(panel, tree):
    """A tree that is set has the same text when read from the text, the rows and the code."""
    panel.value = tree
    assert panel.value == tree.text()
    assert panel.editor.value == tree.text()
    assert panel.editor.rows.read().text() == tree.text()
    assert ast.literal_eval(panel.to_code()) == panel.value


@settings(max_examples=120, deadline=None)
@given(made=conditions)
def test_what_a_row_shows_makes_its_condition(made):
    """The three texts of a condition, typed again, are the same condition."""
    assert condition(*typed_condition(made)).text() == made.text()


@pytest.mark.slow
@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    tree=trees, case=st.sampled_from([str.lower, str.upper, str]), wide=st.booleans()
)
def test_any_text_survives_the_tree_and_the_rows(panel, tree, case, wide):
    """A text typed in any case and spacing is the value as it is typed; tree and rows of it mean the same."""
    # spelling is free outside quotations
    pieces = re.split(r"('(?:[^']|'')*')", tree.text())
    words = re.compile(r"\b(AND|OR|NOT|IN|CONTAINS|GLOB|HAS|FIELD)\b")
    free = [words.sub(lambda found: case(found[0]), piece) for piece in pieces[::2]]
    free = [
        piece.replace(" ", "  ").replace("(", "( ") if wide else piece for piece in free
    ]
    pieces[::2] = free
    text = "".join(pieces)
    assert parse(text).text() == tree.text()
    assert parse(parse(text).text()) == parse(text)
    line = panel.editor.text
    write(line, "")
    offered(line, text)
    assert panel.value == text.strip()
    assert panel.editor.rows.read().text() == tree.text()


def test_spacing_and_case_of_a_text_stay(panel):
    """A text is kept unchanged, and an equal tree from the rows does not rewrite it."""
    panel.value = "city='Izmir'  and year>=2024"
    assert panel.value == "city='Izmir'  and year>=2024"
    assert panel.frame()["id"].tolist() == ["a"]
    panel.value = ""
    assert len(panel.frame()) == 5


def test_rows_make_the_text_and_the_frame(vectors):
    """Conditions and a group made with the controls are the text, and the rows that match."""
    panel = MetadataFilterPanel(vectors)
    seen = []
    panel.observe(lambda change: seen.append(change["new"]), "value")
    fill(row(panel), "city", "=", "Izmir")
    assert panel.value == "city = 'Izmir'"
    panel.editor.rows.nest.click()
    group = row(panel, 1)
    assert group.joined is Or
    fill(group.parts[0], "year", ">", "2023.7")
    assert panel.value == "city = 'Izmir' AND year > 2023.7"
    group.add.click()
    fill(group.parts[1], "tags", "CONTAINS", "old")
    assert panel.value == "city = 'Izmir' AND (year > 2023.7 OR tags CONTAINS 'old')"
    assert panel.editor.text.text == panel.value
    assert panel.frame()["id"].tolist() == ["a", "b"]
    assert panel.matching() == "2 of 5 loaded vectors match"
    choose(group.kind, "all of these (AND)")
    assert panel.value == "city = 'Izmir' AND year > 2023.7 AND tags CONTAINS 'old'"
    group.remove.click()
    assert panel.value == "city = 'Izmir'"
    row(panel).remove.click()
    assert panel.value == ""
    assert seen[-1] == ""
    assert panel.editor.rows.parts == []


def test_typed_text_makes_the_rows(vectors):
    """Text that parses is shown as rows; unchanged rows are reused."""
    panel = MetadataFilterPanel(vectors)
    line = panel.editor.text
    write(line, "city = 'Izmir' OR tags[#-1] IN ('eu', 'it''s')")
    assert panel.editor.rows.joined is Or
    kept = panel.editor.rows.parts
    assert [
        (part.field.value, part.operator.value, part.value.value) for part in kept
    ] == [
        ("city", "=", "Izmir"),
        ("tags[#-1]", "IN", "eu, it's"),
    ]
    write(line, "city = 'Oslo' OR tags[#-1] IN ('eu', 'it''s')")
    assert panel.editor.rows.parts == kept
    assert kept[0].value.text == "Oslo"
    assert panel.frame()["id"].tolist() == ["a", "c"]


def test_a_mistake_is_marked_at_its_position(panel):
    """Text that does not parse is marked at its character, and the old filter stays."""
    panel.value = "city = 'Izmir'"
    line = panel.editor.text
    write(line, "city == <b>")
    assert panel.value == "city = 'Izmir'"
    assert (
        'city =<mark>=</mark> &lt;b&gt;</pre><div class="tk-problem" role="alert">'
        in panel.conditions["note"]
    )
    assert "Equality is a single" in panel.conditions["note"]
    write(line, "city = 'Oslo'")
    assert panel.conditions["note"] == ""
    assert panel.value == "city = 'Oslo'"


def test_an_unfinished_text_is_no_mistake_until_enter(panel):
    """While the end is typed, the note lists completions; Enter reports the missing part."""
    line = panel.editor.text
    write(line, "city =")
    assert panel.conditions["note"].startswith(
        '<div class="tk-note" role="status">Next: text in quotes, a number'
    )
    line.receive({"event": "submit", "number": 9, "text": "city =", "head": "city ="})
    assert "<mark> </mark>" in panel.conditions["note"]
    assert "got the end" in panel.conditions["note"]


def test_a_row_explains_its_mistake(vectors):
    """An invalid field or value is explained at its control; an unfinished row is left out."""
    panel = MetadataFilterPanel(vectors)
    fill(row(panel), "two words", "=", "1")
    assert "names joined by dots" in row(panel).field.problem
    assert panel.value == ""
    write(row(panel).field, "city")
    assert panel.value == "city = 1"
    write(row(panel).value, "'Izmir")
    assert "ends with '" in row(panel).value.problem
    assert panel.value == "city = 1"
    write(row(panel).value, "'Izmir'")
    assert row(panel).value.problem is None
    assert panel.value == "city = 'Izmir'"
    write(row(panel).value, "")
    assert "until it has a value" in row(panel).note
    assert panel.value == ""
    choose(row(panel).operator, "HAS NOT FIELD")
    assert row(panel).value.hidden
    assert panel.frame()["id"].tolist() == ["e"]


def test_operators_and_values_fit_the_field(vectors):
    """A field offers its frequent values and the operators of its kind; so do items of arrays."""
    panel = MetadataFilterPanel(vectors)
    part = row(panel)
    assert {"at.door", "events[0].code", "events[#-1].code", "tags[0]"} <= set(
        offered(part.field, "")
    )
    assert "two words" not in offered(part.field, "")
    write(part.field, "tags")
    assert part.operator.value == "CONTAINS"
    write(part.field, "at.open")
    assert part.operator.options == ["=", "!=", "HAS FIELD", "HAS NOT FIELD"]
    assert offered(part.value, "") == ["false", "true"]
    write(part.field, "at.door")
    assert offered(part.value, "") == ["'7'", "'8'"]
    write(part.field, "tags[4]")
    assert set(offered(part.value, "")) == {"new", "old"}
    write(part.field, "unknown")
    assert part.operator.options == [*OPERATORS]
    panel.value = "at.open > 3"
    assert row(panel).operator.value == ">"


def test_an_item_among_several_is_completed(vectors):
    """After IN, the item at the caret is completed and the others stay."""
    panel = MetadataFilterPanel(vectors)
    fill(row(panel), "city", "IN", "Oslo")
    value = row(panel).value
    assert offered(value, "Oslo, iz") == ["Izmir"]
    assert value.offers == [["Izmir", "Oslo, Izmir", ""]]
    assert offered(value, "iz", ", Oslo") == ["Izmir"]
    assert value.offers == [["Izmir", "Izmir", ", Oslo"]]


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"event": "typed"},
        {"event": "changed", "number": 3, "text": 7, "head": ""},
        {"event": "submit", "number": 3, "text": "city", "head": None},
    ],
)
def test_malformed_messages_change_nothing(vectors, content):
    """Messages that the page would never send are ignored."""
    field = row(MetadataFilterPanel(vectors)).field
    field.receive(content)
    assert (field.value, field.state["seen"], field.offers) == ("", 0, [])


def test_a_message_of_enter_carries_its_text(vectors):
    """Enter carries the text that it ends; a field has its value when it is entered or left."""
    panel = MetadataFilterPanel(vectors)
    line = panel.editor.text
    line.receive({"event": "submit", "number": 1, "text": "city =", "head": "city ="})
    assert "got the end" in panel.conditions["note"]
    line.receive({"event": "submit", "number": 2, "text": "city = 'Oslo'", "head": ""})
    assert panel.value == "city = 'Oslo'"
    field = row(panel).field
    offered(field, "topi")
    assert field.value == "city"
    field.receive({"event": "changed", "number": 9, "text": "topic", "head": "topic"})
    assert panel.value == "topic = 'Oslo'"
    assert line.text == panel.value


def test_rows_and_groups_are_numbered_in_order(vectors):
    """Labels number the rows in the order of the page, also after some were removed."""
    panel = MetadataFilterPanel(
        vectors, value="city = 'a' AND (year = 1 OR year = 2) AND tags CONTAINS 'x'"
    )
    first, group, last = panel.editor.rows.parts
    labels = [part.field.label for part in (first, *group.parts, last)]
    assert labels == ["Field 1", "Field 2", "Field 3", "Field 4"]
    assert (group.kind.label, group.add.label) == (
        "Group 2",
        "Add condition to group 2",
    )
    group.nest.click()
    assert group.parts[-1].remove.label == "Remove group 3"
    assert group.parts[-1].parts[0].field.state["focused"]
    group.remove.click()
    assert (last.value.label, last.operator.label, last.remove.label) == (
        "Value 2",
        "Operator 2",
        "Remove 2",
    )


def markup(panel):
    """All markup that a panel sends to the page."""
    rows = [part.note for part in panel.editor.rows.parts]
    shown = [panel.conditions["note"], panel.conditions["fields"], panel.status]
    return "".join([*shown, *rows, panel.code, panel.first_rows])


INSIDE = {
    "div",
    "details",
    "summary",
    "table",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
    "code",
    "pre",
    "mark",
    "span",
}


def test_hostile_texts_are_seen_as_text(seen):
    """A hundred payloads as keys, values, ids, namespaces, filters and mistakes: no element but our own."""
    for start in range(0, len(PAYLOADS), 25):
        some = PAYLOADS[start : start + 25]
        rows = [
            {"it": payload, payload: payload, "all": [payload], "in": {payload: 1}}
            for payload in some
        ]
        frame = pd.DataFrame(
            {"id": some, "namespace": some, "metadata": [*map(json.dumps, rows)]}
        )
        panel = MetadataFilterPanel(frame, namespace=some[0])
        shown = ""
        for payload in some:
            panel.value = Comparison("it", "=", payload)
            assert panel.frame()["id"].tolist() == [payload]
            line = panel.editor.text
            write(line, f"it = = {payload}")
            assert panel.editor.mistake is not None
            shown += markup(panel)
            static = seen(panel._repr_mimebundle_()["text/html"])
            assert static.tags <= {
                "div",
                "strong",
                "pre",
                "p",
                "table",
                "thead",
                "tbody",
                "tr",
                "th",
                "td",
                "span",
            }
            assert static.attributes == set()
            fill(row(panel), payload, "=", payload)
            shown += markup(panel)
        page = seen(shown)
        assert page.tags <= INSIDE
        assert page.attributes <= {"class", "role", "scope", "aria-hidden", "tabindex"}
        assert all(
            visible(payload) in page.shown for payload in some if "\x00" not in payload
        )


def test_a_filter_of_many_conditions_is_text_alone(vectors):
    """A filter with too many conditions for controls is shown as text alone, and is not changed."""
    panel = MetadataFilterPanel(vectors)
    panel.value = " OR ".join(f"year = {number}" for number in range(60))
    assert "60 conditions" in panel.conditions["hidden"]
    panel.value = "year = 1"
    assert panel.conditions["hidden"] == ""


def test_no_request_is_sent_before_a_button_is_pressed(sample_service):
    """A widget on a service sends no request until its button is pressed; then Load finds every match."""
    panel = MetadataFilterPanel(sample_service, namespace="")
    panel.value = "topic = 'encodings' AND tags CONTAINS 'eu'"
    assert len(panel.frame()) == 0
    assert "metadata" in panel.frame().columns
    assert panel.matching().startswith("No vectors are loaded yet")
    assert "the default namespace" in panel.matching()
    panel.look()
    assert "topic" in offered(row(panel).field, "")
    frame = panel.run()
    assert frame is panel.frame()
    assert 0 < len(frame) < 400
    assert match_metadata(frame, panel.value).all()
    assert panel.message.startswith(f"{len(frame)} of 400 vectors match.")
    assert "panel.frame()" in panel.message
    panel.value = ""
    assert "earlier filter" in panel.message


def test_making_a_widget_asks_nothing(server):
    """Making, showing and changing a widget on a service, and reading its frame, sends no request."""
    panel = MetadataFilterPanel(server.service(), value="a = 1")
    panel.value = "a = 2"
    panel.frame()
    panel._repr_mimebundle_()
    assert server.requests == []
    server.always(b'{"error": "index is asleep <b>", "status": 400}', 400)
    with pytest.raises(BadRequestError) as caught:
        panel.run()
    assert panel.message == str(caught.value)
    assert "&lt;b&gt;" in panel._status.value


def test_a_stopped_load_keeps_the_matches_it_read(vectors, server, monkeypatch):
    """The rows that were read before a load was stopped are matched too."""
    panel = MetadataFilterPanel(server.service(), value="city = 'Izmir'")

    def stopped(*_):
        raise IncompleteLoadError("loading vectors", partial=vectors, got="a stop")

    monkeypatch.setattr(panel, "_vectors", stopped)
    with pytest.raises(IncompleteLoadError):
        panel.run()
    assert panel.frame()["id"].tolist() == ["a", "b"]


def test_secrets_in_metadata_are_not_offered(vectors):
    """A value that would be masked is neither offered nor shown."""
    secret = "Bearer abcdefghijklmnop.qrstuvwx"
    frame = vectors.assign(metadata=json.dumps({"auth": secret, "city": "<img src=x>"}))
    panel = MetadataFilterPanel(frame)
    state = json.dumps(panel.get_state(), default=str)
    assert "abcdefghijklmnop" not in state + json.dumps(panel._repr_mimebundle_())
    assert "<img" not in panel.conditions["fields"]
    assert "&lt;img src=x&gt; (5)" in panel.conditions["fields"]


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        (
            ['{"city": "Oslo", "a b": 1}'],
            "1 field that a filter can name, in the metadata of 1 vector",
        ),
        (
            ['{"city": "Oslo", "n": 1}'] * 2,
            "2 fields that a filter can name, in the metadata of 2 vectors",
        ),
    ],
)
def test_the_fields_are_counted_that_a_filter_can_name(metadata, said):
    """A name with a space is none of the filter language."""
    frame = pd.DataFrame({"id": list("ab")[: len(metadata)], "metadata": metadata})
    assert said in MetadataFilterPanel(frame).conditions["fields"]


def test_a_key_keeps_the_filter_when_the_cell_runs_again(vectors, request):
    """The second widget of a key continues where the first was, unless the cell passes another value."""
    key = request.node.name
    MetadataFilterPanel(vectors, key=key).value = "year = 1"
    assert MetadataFilterPanel(vectors, key=key).value == "year = 1"
    assert MetadataFilterPanel(vectors).value == ""
    assert (
        MetadataFilterPanel(vectors, key=key, value=parse("year=2")).value == "year = 2"
    )


def test_invalid_sources_and_filters_are_refused(vectors):
    """Other sources, other values, and text that does not parse raise errors; the value stays."""
    with pytest.raises(InputError, match="expected a Service"):
        MetadataFilterPanel(7)
    with pytest.raises(InputError, match="include_metadata=True"):
        MetadataFilterPanel(vectors[["id"]])
    panel = MetadataFilterPanel(vectors, value="year = 1")
    with pytest.raises(InputError, match="expected text or a MetadataFilter"):
        panel.value = 7
    with pytest.raises(FilterSyntaxError):
        panel.value = "year ="
    assert panel.value == "year = 1"


def test_removed_rows_are_closed(vectors):
    """Fields of removed rows leave the form, so that neither page nor kernel keeps them."""
    panel = MetadataFilterPanel(vectors, value="year = 1 AND city = 'a'")
    gone = f"{row(panel, 1).name}.field"
    assert gone in panel.form
    panel.value = "year = 1"
    assert gone not in panel.form
    assert len(panel.form) == len(panel._parts) == 8
