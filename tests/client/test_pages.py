"""Envelopes: raw rows and a cursor, strict where possible, lenient where an application's bytes demand it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkit.client.pages import failures_page, range_page, result_bytes, runs_page
from toolkit.client.transport import Answer, Request
from toolkit.errors import MalformedResponseError, ProtocolError

ASKED = Request(doing="listing", method="GET", path="/v2/workflows/dlq")

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def answer(body: bytes) -> Answer:
    """A success with this body."""
    return Answer(status=200, headers={}, body=body, tries=1)


@given(st.lists(st.dictionaries(st.text(), values, max_size=4), max_size=4), st.text(), values)
def test_rows_come_back_as_they_were_sent(rows, cursor, other):
    """Whatever rows and other fields hold, the rows' JSON and the cursor survive the envelope."""
    body = json.dumps({"other": other, "messages": rows, "cursor": cursor}).encode()
    page = failures_page(ASKED, answer(body))
    assert json.loads(page.rows) == rows
    assert page.cursor == (cursor or None)
    assert page.size == len(body)


cursors = st.none() | st.text(st.characters(codec="ascii"), max_size=8)


@given(
    st.lists(st.dictionaries(st.text(), values, max_size=4), max_size=3),
    st.dictionaries(st.text() | st.sampled_from(["messages", "cursor"]), values, max_size=3),
    cursors,
    st.sampled_from([(", ", ": "), (",", ":"), (" ,\n", " :\t")]),
)
def test_a_page_is_known_by_its_ends(rows, others, cursor, marks):
    """Whatever other members there are, cursor and rows are those that a whole reading gives."""
    body = json.dumps({"messages": rows} | others | {"messages": rows, "cursor": cursor}, separators=marks)
    page = failures_page(ASKED, answer(body.encode()))
    assert page.cursor == (cursor or None)
    read = json.loads(page.rows)
    assert (read["messages"] if isinstance(read, dict) else read) == rows
    assert page.is_empty is (not rows)


def test_an_end_inside_of_the_rows_is_no_end():
    """What looks like the end of an answer, in a text or an object within, is not taken for it."""
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
            assert failures_page(ASKED, answer(body.encode())).cursor == cursor


def test_no_truncated_page_is_taken_for_a_whole_one():
    """Cut anywhere, a page is refused, also behind a member that is called cursor or inside a text."""
    within = '{"e": {"n": 1, "cursor": "x"}, "b": "]}, \\"cursor\\": \\"x\\"}", "cursor": ""}, {"dlqId": "b"}'
    body = f'{{"messages": [{within}], "cursor": "y"}}'.encode()
    assert failures_page(ASKED, answer(body)).cursor == "y"
    for size in range(len(body)):
        with pytest.raises(MalformedResponseError):
            failures_page(ASKED, answer(body[:size]))


@pytest.mark.parametrize("end", ["", ', "cursor": null', ', "cursor": ""'])
@pytest.mark.parametrize("rows", ['[{"dlqId": "a"}]', '[{"dlqId": "\\ud800"}]', "[]"])
def test_the_three_end_markers(end, rows):
    """An absent, null or empty cursor is the end, for strict and for odd pages."""
    page = failures_page(ASKED, answer(f'{{"messages": {rows}{end}}}'.encode()))
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
def test_what_is_no_page_is_a_protocol_error(body):
    """HTML, nothing, an empty object and cut JSON are errors, and never taken for the end."""
    with pytest.raises(ProtocolError, match="listing"):
        failures_page(ASKED, answer(body))


def test_odd_bytes_do_not_lose_the_page():
    """Invalid UTF-8, lone surrogates and NaN in a row leave the other rows and the cursor readable."""
    body = b'{"cursor": "next", "messages": [{"a": "\xff"}, {"a": "\\ud800"}, {"a": NaN}, {"a": 1}]}'
    page = failures_page(ASKED, answer(body))
    assert page.cursor == "next"
    assert len(json.loads(page.rows.decode("utf-8", "surrogateescape"))) == 4


def test_a_range_has_its_rows_under_result():
    """The page of a range: vectors and nextCursor under result, strict and odd."""
    for vector in ("[1, 2]", "[NaN, 2]"):
        body = f'{{"result": {{"nextCursor": "7", "vectors": [{{"id": "a", "vector": {vector}}}]}}}}'
        page = range_page(ASKED, answer(body.encode()))
        assert page.cursor == "7"
        assert json.loads(page.rows)[0]["id"] == "a"
    with pytest.raises(ProtocolError):
        range_page(ASKED, answer(b'{"result": [1]}'))


def test_runs_and_results():
    """The run log's page and the value under result are found; their absence is an error."""
    assert runs_page(ASKED, answer(b'{"runs": [1], "cursor": "c"}')).cursor == "c"
    assert json.loads(result_bytes(ASKED, answer(b'{"result": {"a": [1]}}'))) == {"a": [1]}
    for body in (b"{}", b'{"results": 1}', b'"x"'):
        with pytest.raises(ProtocolError):
            result_bytes(ASKED, answer(body))
        with pytest.raises(ProtocolError):
            runs_page(ASKED, answer(body))
