"""Header maps cut out of raw JSON: the same column as from objects, or none at all."""

from __future__ import annotations

import json
import re

import msgspec
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from toolkit.tables.header_maps import header_maps

texts = st.text(
    st.characters(exclude_categories=("Cs",)), max_size=6
) | st.sampled_from(
    [
        "",
        "\\",
        '"',
        '\\"',
        '\\\\"',
        '":["',
        '"],"',
        "]}\x1e{",
        "null",
        "\x1e",
        "\n",
        "é",
        "\U0001f600",
        "a\x00b",
    ]
)
names = st.sampled_from(["Date", "date", "X-A", "B"]) | texts
maps = st.none() | st.dictionaries(names, st.lists(texts, max_size=3), max_size=4)
writers = st.sampled_from(
    [
        json.dumps,
        lambda value: json.dumps(value, ensure_ascii=False, separators=(",", ":")),
        lambda value: json.dumps(value, indent=1),
        lambda value: json.dumps(value).replace("/", "\\/"),
        lambda value: json.dumps(value, separators=(" , ", "\t:\r\n")),
    ]
)


def raw(text: str) -> msgspec.Raw:
    """JSON text as a decoder hands it on."""
    (found,) = msgspec.json.decode(f"[{text}]".encode(), type=list[msgspec.Raw])
    return found


def column_of(values):
    """The column these maps make: compact JSON, names and values in their order."""
    written = [
        None if value is None else msgspec.json.encode(value).decode()
        for value in values
    ]
    return pa.array(written, pa.string())


@pytest.mark.slow
@settings(deadline=None, max_examples=300)
@given(st.lists(st.tuples(maps, writers), max_size=6))
@example([({}, json.dumps)])
@example(
    [(None, json.dumps), ({}, json.dumps), ({"a": []}, json.dumps), (None, json.dumps)]
)
@example([({"a": ["\\"]}, json.dumps), ({"\\": ['"', "\\\\"]}, json.dumps)])
def test_the_column_is_the_one_that_objects_give(rows):
    """Whatever the texts hold and however the JSON is spaced and escaped: the same maps, names and nulls."""
    found = header_maps([raw(write(value)) for value, write in rows])
    assert found.texts().equals(column_of([value for value, _ in rows]))
    found.texts().validate(full=True)
    values = [value or {} for value, _ in rows]
    assert found.names.to_pylist() == [name for value in values for name in value]
    assert found.rows.tolist() == [
        row for row, value in enumerate(values) for _ in value
    ]
    assert found.values.to_pylist() == [
        text for value in values for items in value.values() for text in items
    ]


@settings(deadline=None)
@given(st.lists(st.tuples(maps, writers), max_size=6), st.data())
def test_other_values_are_written_in_place_of_their_own(rows, data):
    """Whichever values are replaced, and by whatever text, the maps are those with the new values."""
    found = header_maps([raw(write(value)) for value, write in rows])
    other = [
        data.draw(texts) if data.draw(st.booleans()) else text
        for text in found.values.to_pylist()
    ]
    left = iter(other)
    expected = [
        None
        if value is None
        else {name: [next(left) for _ in items] for name, items in value.items()}
        for value, _ in rows
    ]
    assert found.texts(pa.array(other, pa.string())).equals(column_of(expected))


@pytest.mark.parametrize(
    "odd",
    [
        "1", "true", '"text"', "[]", '["a"]', '[{"a": ["b"]}]', '{"a": "b"}', '{"a": 1}', '{"a": null}',
        '{"a": ["b", 1]}', '{"a": [1]}', '{"a": ["b", null]}', '{"a": [["b"]]}', '{"a": {"b": ["c"]}}',
        '{"a": [{"b": []}]}', '{"a": ["b"], "c": 1}', '{"c": 1, "a": ["b"]}', '{"a": [], "b": {}}',
        '{"a": ["1"], "a": ["2"]}', '{"a": ["1"], "b": [], "\\u0061": []}',
    ],
)  # fmt: skip
def test_anything_else_is_left_to_the_lenient_decoder(odd):
    """A value of another kind, or a name that is repeated, among others that are as they should be."""
    good = raw('{"A": ["x"], "B": []}')
    for rows in (
        [raw(odd)],
        [good, raw(odd)],
        [raw(odd), good],
        [good, raw(odd), raw("null"), good],
    ):
        with pytest.raises(ValueError, match=r"not a map|same name twice"):
            header_maps(rows)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | texts,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3)
    ),
    max_leaves=6,
)


def fits(value):
    """Whether this is a header map as specified, or null."""
    if not isinstance(value, dict):
        return value is None
    return all(
        isinstance(items, list) and {str}.issuperset(map(type, items))
        for items in value.values()
    )


@settings(deadline=None, max_examples=300)
@given(st.lists(json_values, min_size=1, max_size=4), writers)
def test_a_column_is_made_of_maps_alone(values, write):
    """Of any JSON values, there is a column exactly when all of them are maps of lists of text, or null."""
    rows = [raw(write(value)) for value in values]
    if all(map(fits, values)):
        assert header_maps(rows).texts().equals(column_of(values))
    else:
        with pytest.raises(ValueError, match="not a map"):
            header_maps(rows)


def test_bytes_that_are_no_text_are_refused():
    """Invalid UTF-8 in a name or a value is an error, which sends the page to the lenient decoder."""
    for text in (b'{"a": ["\xff"]}', b'{"\xff": ["a"]}', b'{"a": ["\\n\xc3"]}'):
        with pytest.raises(
            (pa.ArrowInvalid, UnicodeDecodeError),
            match=re.compile("utf-?8", re.IGNORECASE),
        ):
            header_maps([msgspec.Raw(text)])


def test_many_names_are_compared_as_few_are():
    """A name that is repeated is noticed among thousands of names, too."""
    rows = [{f"n{number}": ["v"]} for number in range(3000)]
    assert (
        header_maps([raw(json.dumps(row)) for row in rows])
        .texts()
        .equals(column_of(rows))
    )
    twice = raw('{"n7": ["v"], "n8": [], "n7": []}')
    with pytest.raises(ValueError, match="same name twice"):
        header_maps([*(raw(json.dumps(row)) for row in rows), twice])
