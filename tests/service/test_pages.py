"""Envelopes: raw rows and a cursor, strict where possible, lenient where an application's bytes demand it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkit.base.cut_vectors import CUT, cut_vectors, uncut
from toolkit.base.members import elements, members
from toolkit.errors import MalformedResponseError, ProtocolError
from toolkit.service.pages import (
    failures_page,
    head_cursor,
    range_page,
    result_bytes,
    runs_page,
)
from toolkit.service.transport import Request, Response
from toolkit.tables.vectors import read_rows

ASKED = Request(doing="listing", method="GET", path="/v2/workflows/dlq")

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4)
    ),
    max_leaves=12,
)


def response(body: bytes) -> Response:
    """A success with this body."""
    return Response(status=200, headers={}, body=body, tries=1)


@given(
    st.lists(st.dictionaries(st.text(), values, max_size=4), max_size=4),
    st.text(),
    values,
)
def test_rows_are_returned_as_they_were_sent(rows, cursor, other):
    """Whatever rows and other fields hold, the rows' JSON and the cursor survive the envelope."""
    body = json.dumps({"other": other, "messages": rows, "cursor": cursor}).encode()
    page = failures_page(ASKED, response(body))
    assert json.loads(page.rows) == rows
    assert page.cursor == (cursor or None)
    assert page.size == len(body)


cursors = st.none() | st.text(st.characters(codec="ascii"), max_size=8)


@given(
    st.lists(st.dictionaries(st.text(), values, max_size=4), max_size=3),
    st.dictionaries(
        st.text() | st.sampled_from(["messages", "cursor"]), values, max_size=3
    ),
    cursors,
    st.sampled_from([(", ", ": "), (",", ":"), (" ,\n", " :\t")]),
)
def test_a_page_is_known_by_its_ends(rows, others, cursor, marks):
    """Whatever other members there are, cursor and rows are those of a complete parse."""
    body = json.dumps(
        {"messages": rows} | others | {"messages": rows, "cursor": cursor},
        separators=marks,
    )
    page = failures_page(ASKED, response(body.encode()))
    assert page.cursor == (cursor or None)
    read = json.loads(page.rows)
    assert (read["messages"] if isinstance(read, dict) else read) == rows
    assert page.is_empty is (not rows)


def test_an_end_inside_of_the_rows_is_no_end():
    """What looks like the end of a response, in a text or an object within, is not treated as the end."""
    within = [
        '{"a": "], \\"cursor\\": \\"x\\"}"}',
        '{"b": [], "cursor": "x"}',
        '{"a": {"b": [], "cursor": "x"}}',
    ]
    for text in within:
        for body, cursor in (
            (f'{{"messages": [{text}], "n": 1}}', None),
            (f'{{"messages": [], "n": [{text}]}}', None),
            (f'{{"messages": [], "n": {text}}}', None),
            (f'{{"messages": [], "cursor": "y", "n": {text}}}', "y"),
        ):
            assert failures_page(ASKED, response(body.encode())).cursor == cursor


def test_no_truncated_page_counts_as_complete():
    """Cut anywhere, a page is refused, also behind a member that is called cursor or inside a text."""
    within = '{"e": {"n": 1, "cursor": "x"}, "b": "]}, \\"cursor\\": \\"x\\"}", "cursor": ""}, {"dlqId": "b"}'
    body = f'{{"messages": [{within}], "cursor": "y"}}'.encode()
    assert failures_page(ASKED, response(body)).cursor == "y"
    for size in range(len(body)):
        with pytest.raises(MalformedResponseError):
            failures_page(ASKED, response(body[:size]))


@pytest.mark.parametrize("end", ["", ', "cursor": null', ', "cursor": ""'])
@pytest.mark.parametrize("rows", ['[{"dlqId": "a"}]', '[{"dlqId": "\\ud800"}]', "[]"])
def test_the_three_end_markers(end, rows):
    """An absent, null or empty cursor is the end, for strictly valid pages and others."""
    page = failures_page(ASKED, response(f'{{"messages": {rows}{end}}}'.encode()))
    assert page.cursor is None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[]",
        b"<html>welcome</html>",
        b'{"cursor": "a"}',
        b'{"messages": {}}',
        b'{"messages": null}',
        b'{"messages": [], "cursor": 5}',
        b'{"messages": [NaN], "cursor": 5}',
        b'{"messages": [{"a": 1}',
        b"[" * 100_000,
    ],
)
def test_an_invalid_page_is_a_protocol_error(body):
    """HTML, nothing, an empty object and cut JSON are errors, and never treated as the end."""
    with pytest.raises(ProtocolError, match="listing"):
        failures_page(ASKED, response(body))


def test_invalid_bytes_do_not_lose_the_page():
    """Invalid UTF-8, lone surrogates and NaN in a row leave the other rows and the cursor readable."""
    body = b'{"cursor": "next", "messages": [{"a": "\xff"}, {"a": "\\ud800"}, {"a": NaN}, {"a": 1}]}'
    page = failures_page(ASKED, response(body))
    assert page.cursor == "next"
    assert len(json.loads(page.rows.decode("utf-8", "surrogateescape"))) == 4


def test_a_range_has_its_rows_under_result():
    """The page of a range: vectors and nextCursor under result, in strictly valid pages and others."""
    for vector in ("[1, 2]", "[NaN, 2]"):
        body = f'{{"result": {{"nextCursor": "7", "vectors": [{{"id": "a", "vector": {vector}}}]}}}}'
        page = range_page(ASKED, response(body.encode()))
        assert page.cursor == "7"
        assert json.loads(page.rows)[0]["id"] == "a"
    with pytest.raises(ProtocolError):
        range_page(ASKED, response(b'{"result": [1]}'))


def test_runs_and_results():
    """The run log's page and the value under result are found; their absence is an error."""
    assert runs_page(ASKED, response(b'{"runs": [1], "cursor": "c"}')).cursor == "c"
    assert json.loads(result_bytes(ASKED, response(b'{"result": {"a": [1]}}'))) == {
        "a": [1]
    }
    for body in (b"{}", b'{"results": 1}', b'"x"'):
        with pytest.raises(ProtocolError):
            result_bytes(ASKED, response(body))
        with pytest.raises(ProtocolError):
            runs_page(ASKED, response(body))


numbers = st.lists(
    st.floats(allow_nan=False, allow_infinity=False) | st.integers(), max_size=4
)
texts = st.text(max_size=12) | st.sampled_from(
    ['"vector":[', '],"vector":[1', "[", CUT.decode(), "]}"]
)
odd = st.recursive(
    texts | st.none() | st.integers(),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=4,
)
metadata = st.dictionaries(texts | st.just("vector"), odd | numbers, max_size=3)
rows = st.lists(
    st.fixed_dictionaries(
        {"id": st.text(min_size=1, max_size=5)},
        optional={
            "vector": numbers | odd,
            "metadata": metadata,
            "data": texts,
            "other": odd,
        },
    ),
    max_size=4,
)
spaced = st.sampled_from([(",", ":"), (", ", ": ")])


def written(value: Any, separators: tuple[str, str]) -> bytes:
    """The value as JSON text, with these separators."""
    return json.dumps(value, separators=separators).encode()


@given(rows, spaced)
def test_cut_parts_are_put_back(some, separators):
    """Cutting and putting together makes the same bytes, whatever is in the rows."""
    body = written(some, separators)
    rest, cut = cut_vectors(body)
    assert uncut(rest, cut) == body


@given(rows, spaced, st.text(max_size=5))
def test_a_range_reads_the_same_with_its_vectors_cut_out(some, separators, cursor):
    """Rows of a page whose vectors were cut out are those of the bytes that came."""
    body = written({"result": {"nextCursor": cursor, "vectors": some}}, separators)
    page = range_page(ASKED, Response(status=200, headers={}, body=body, tries=1))
    assert page.cursor == (cursor or None)
    result = read_rows(page.rows, page.cut, what="vectors")
    plain = read_rows(written(some, separators), what="vectors")
    assert [item.id for item in result] == [row["id"] for row in some]
    assert [(item.id, item.metadata, item.data) for item in result] == [
        (item.id, item.metadata, item.data) for item in plain
    ]
    for row, vector in zip(some, [item.vector for item in result], strict=True):
        value = (
            json.loads(bytes(vector))
            if isinstance(vector, bytes | memoryview)
            else vector
        )
        assert value == row.get("vector")


def test_the_numbers_of_a_usual_page_are_all_cut_out():
    """What is left of a page is what is not a dense vector."""
    body = b'{"result":{"nextCursor":"2","vectors":[{"id":"a","vector":[1,2]},{"id":"b","vector":[3,4]}]}}'
    page = range_page(ASKED, Response(status=200, headers={}, body=body, tries=1))
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
        (
            b'{"result":{"vectors":[{"metadata":{"result":{"nextCursor":"9"}}}],"nextCursor":"3"}}',
            None,
        ),
        (b'{"result":{"nextCursor":"\\ud800","vectors":[]}}', None),
        (b'{"error":"no"}', None),
        (b"", None),
    ],
)
def test_the_cursor_at_the_head(body, cursor):
    """Known once it is complete and at the head; never guessed from elsewhere."""
    assert head_cursor(body) == cursor
    assert head_cursor(bytearray(body)) == cursor


@pytest.mark.parametrize("odd_bytes", [b'"\\ud800"', b'"\xff"', b"NaN", b"1e400"])
def test_invalid_bytes_change_nothing_else_of_a_range(odd_bytes):
    """Bytes that a strict reader refuses stay as they are, and so does the spelling beside them."""
    rows = (
        b'[{"id": "a", "vector": [1.10, 2], "metadata": {"f": 1.10, "odd": %b}}]'
        % odd_bytes
    )
    body = b'{"result": {"nextCursor": "b", "vectors": %b}}' % rows
    page = range_page(ASKED, Response(status=200, headers={}, body=body, tries=1))
    assert page.cursor == "b"
    assert uncut(page.rows, page.cut) == rows


@given(
    st.lists(
        st.dictionaries(texts, odd | numbers | st.floats(), max_size=3), max_size=4
    ),
    spaced,
)
def test_members_and_elements_are_raw_texts(some, separators):
    """Every element, and every member of each, in its own spelling."""
    for text in (written(some, separators).decode(), json.dumps(some, indent=1)):
        parts = elements(text)
        assert [json.dumps(json.loads(part)) for part in parts] == [
            json.dumps(row) for row in some
        ]
        for part, row in zip(parts, some, strict=True):
            assert part in text
            found, end = members(part)
            assert end == len(part)
            assert list(found) == list(row)
            assert all(
                json.dumps(json.loads(value)) == json.dumps(row[name])
                for name, value in found.items()
            )


@pytest.mark.parametrize(
    "text", ["", "[", "1", '"a"', "[1", '{"a": ', '{"a" 1', "[" * 100_000]
)
def test_anything_but_an_array_or_object_is_a_value_error(text):
    """Neither more nor less; the caller adds what was expected."""
    with pytest.raises(ValueError, match=r".+"):
        elements(text)
    with pytest.raises(ValueError, match=r".+"):
        members(text)


def test_nothing_may_follow_an_array():
    """An array and something more is not an array."""
    with pytest.raises(ValueError, match="more"):
        elements("[1] 2")
