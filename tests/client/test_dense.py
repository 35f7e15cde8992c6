"""Dense vectors are cut out of a range's answer and put back; the cursor is read from the head alone."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkit.client.dense import CUT, cut_vectors, head_cursor, uncut
from toolkit.client.members import elements, members
from toolkit.client.pages import range_page
from toolkit.client.transport import Answer, Request
from toolkit.tables.vector_rows import read_rows

ASKED = Request(doing="reading vectors", method="POST", path="/range")

numbers = st.lists(st.floats(allow_nan=False, allow_infinity=False) | st.integers(), max_size=4)
texts = st.text(max_size=12) | st.sampled_from(['"vector":[', '],"vector":[1', "[", CUT.decode(), "]}"])
odd = st.recursive(texts | st.none() | st.integers(), lambda inner: st.lists(inner, max_size=3), max_leaves=4)
metadata = st.dictionaries(texts | st.just("vector"), odd | numbers, max_size=3)
rows = st.lists(
    st.fixed_dictionaries(
        {"id": st.text(min_size=1, max_size=5)},
        optional={"vector": numbers | odd, "metadata": metadata, "data": texts, "other": odd},
    ),
    max_size=4,
)
spaced = st.sampled_from([(",", ":"), (", ", ": ")])


def written(value: Any, separators: tuple[str, str]) -> bytes:
    """The value as JSON text, with these separators."""
    return json.dumps(value, separators=separators).encode()


@given(rows, spaced)
def test_what_was_cut_out_is_put_back(some, separators):
    """Cutting and putting together gives the same bytes, whatever stands in the rows."""
    body = written(some, separators)
    rest, cut = cut_vectors(body)
    assert uncut(rest, cut) == body


@given(rows, spaced, st.text(max_size=5))
def test_a_range_reads_the_same_with_its_vectors_cut_out(some, separators, cursor):
    """Rows of a page whose vectors were cut out are those of the bytes that came."""
    body = written({"result": {"nextCursor": cursor, "vectors": some}}, separators)
    page = range_page(ASKED, Answer(status=200, headers={}, body=body, tries=1))
    assert page.cursor == (cursor or None)
    found = read_rows(page.rows, page.cut, what="vectors")
    plain = read_rows(written(some, separators), what="vectors")
    assert found.ids == [row["id"] for row in some] == plain.ids
    assert found.metadata == plain.metadata
    assert found.data == plain.data
    for row, vector in zip(some, found.vectors, strict=True):
        value = json.loads(bytes(vector)) if isinstance(vector, bytes | memoryview) else vector
        assert value == row.get("vector")


def test_the_numbers_of_a_usual_page_are_all_cut_out():
    """What is left of a page is what is not a dense vector."""
    body = b'{"result":{"nextCursor":"2","vectors":[{"id":"a","vector":[1,2]},{"id":"b","vector":[3,4]}]}}'
    page = range_page(ASKED, Answer(status=200, headers={}, body=body, tries=1))
    assert page.cut == (b"[1,2]", b"[3,4]")
    assert b"[1,2]" not in page.rows


@pytest.mark.parametrize(
    ("body", "cursor"),
    [
        (b'{"result":{"nextCursor":"12","vec', "12"),
        (b' {"result" : {\n"nextCursor": "a\\"b\\u00e9", "vectors": [', 'a"bé'),
        (b'{"result":{"nextCursor":"', None),
        (b'{"result":{"nextCursor":"12', None),
        (b'{"result":{"nextCursor":"","vectors":[]}}', None),
        (b'{"result":{"nextCursor":null,"vectors":[]}}', None),
        (b'{"result":{"vectors":[{"metadata":{"result":{"nextCursor":"9"}}}],"nextCursor":"3"}}', None),
        (b'{"result":{"nextCursor":"\\ud800","vectors":[]}}', None),
        (b'{"error":"no"}', None),
        (b"", None),
    ],
)
def test_the_cursor_at_the_head(body, cursor):
    """Known once it is whole and stands at the head; never guessed from elsewhere."""
    assert head_cursor(body) == cursor
    assert head_cursor(bytearray(body)) == cursor


@pytest.mark.parametrize("odd_bytes", [b'"\\ud800"', b'"\xff"', b"NaN", b"1e400"])
def test_odd_bytes_change_nothing_else_of_a_range(odd_bytes):
    """Bytes that a strict reader refuses stay as they are, and so does the spelling beside them."""
    rows = b'[{"id": "a", "vector": [1.10, 2], "metadata": {"f": 1.10, "odd": %b}}]' % odd_bytes
    body = b'{"result": {"nextCursor": "b", "vectors": %b}}' % rows
    page = range_page(ASKED, Answer(status=200, headers={}, body=body, tries=1))
    assert page.cursor == "b"
    assert uncut(page.rows, page.cut) == rows


@given(st.lists(st.dictionaries(texts, odd | numbers | st.floats(), max_size=3), max_size=4), spaced)
def test_members_and_elements_are_the_texts_that_came(some, separators):
    """Every element, and every member of each, in its own spelling."""
    for text in (written(some, separators).decode(), json.dumps(some, indent=1)):
        parts = elements(text)
        assert [json.dumps(json.loads(part)) for part in parts] == [json.dumps(row) for row in some]
        for part, row in zip(parts, some, strict=True):
            assert part in text
            found, end = members(part)
            assert end == len(part)
            assert list(found) == list(row)
            assert all(
                json.dumps(json.loads(value)) == json.dumps(row[name]) for name, value in found.items()
            )


@pytest.mark.parametrize("text", ["", "[", "1", '"a"', "[1", '{"a": ', '{"a" 1', "[" * 100_000])
def test_what_is_no_array_or_object_is_a_value_error(text):
    """Neither more nor less: whoever reads it says what was expected."""
    with pytest.raises(ValueError, match=r".+"):
        elements(text)
    with pytest.raises(ValueError, match=r".+"):
        members(text)


def test_nothing_stands_behind_an_array():
    """An array and something more is no array."""
    with pytest.raises(ValueError, match="more"):
        elements("[1] 2")
