"""The similarity query as controls: value, code, controls and hits agree; Ask sends the requests."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import types

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import toolkit as tk
from tests.widgets.page import choose, tick, write
from tests.widgets.payloads import PAYLOADS
from tests.widgets.responses import hits, last_request
from toolkit import QueryPanel
from toolkit.analysis import score_moves
from toolkit.errors import InputError
from toolkit.filters.query import VectorQuery
from toolkit.secrets.redaction import Redactor, visible
from toolkit.service.vectors import IndexInfo
from toolkit.widgets.similarity_controls import query_source, vectors_typed, written
from toolkit.widgets.similarity_results import HitResults, hit_rows

REDACT = Redactor(key=b"test")
words = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
numbers = st.floats(allow_nan=False, allow_infinity=False)
dense = st.lists(numbers, min_size=1, max_size=4)
sparse = st.dictionaries(
    st.integers(0, 2**31 - 1), numbers, min_size=1, max_size=4
).map(lambda terms: (list(terms), list(terms.values())))


@st.composite
def queries(draw: st.DrawFn) -> VectorQuery:
    """Any query."""
    asked = draw(
        st.one_of(
            st.builds(lambda text: {"data": text}, words.filter(bool)),
            st.builds(lambda vector: {"vector": vector}, dense),
            st.builds(lambda pair: {"sparse": pair}, sparse),
            st.builds(
                lambda vector, pair: {"vector": vector, "sparse": pair}, dense, sparse
            ),
        )
    )
    mode = (
        draw(st.sampled_from([None, "HYBRID", "DENSE", "SPARSE"]))
        if "data" in asked
        else None
    )
    return VectorQuery(
        **asked,
        query_mode=mode,
        top_k=draw(st.integers(1, 10_000)),
        namespace=draw(words),
        filter=draw(
            st.sampled_from(["", "a = 1", " city = 'x' AND b > 2", "a = "]) | words
        ),
        fusion_algorithm=draw(st.sampled_from([None, "RRF", "DBSF"])),
        weighting_strategy=draw(st.sampled_from([None, "IDF"])),
        include_data=draw(st.booleans()),
        include_metadata=draw(st.booleans()),
        include_vectors=draw(st.booleans()),
    )


@pytest.fixture
def panel(server, vectors):
    """A panel on a service without responses."""
    return QueryPanel(server.service(), frame=vectors)


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(query=queries())
def test_any_query_survives_the_controls_and_the_code(panel, query):
    """A value put into the controls and read from them again is the same; so is the one its code makes."""
    panel.value = query
    panel._read()
    assert panel.value == query
    assert (
        eval(panel.to_code(), {"tk": types.SimpleNamespace(VectorQuery=VectorQuery)})  # noqa: S307
        == query
    )


@given(query=queries())
def test_pasted_vectors_are_read_as_they_are_written(query):
    """Numbers to text to numbers, dense, sparse and both."""
    question = query_source(query)
    if question.data is None:
        assert vectors_typed(written(question)) == question


@given(vector=dense)
def test_numbers_with_commas_are_a_vector(vector):
    """Numbers as people copy them from a log are a vector."""
    assert vectors_typed(", ".join(map(repr, vector))).vector == tuple(vector)
    assert vectors_typed(" ".join(map(repr, vector)) + ",").vector == tuple(vector)


@pytest.mark.parametrize(
    "text",
    [
        "[1, 2",
        "[]",
        "[1, null]",
        "[NaN]",
        "1, two",
        "{}",
        '{"indices": [1]}',
        "[" * 9_999,
        "nan",
    ],
)
def test_an_invalid_vector_is_explained_beside_it(panel, text):
    """The value stays, and the field explains the format."""
    write(panel.source.vector, text)
    assert panel.source.vector.problem
    assert panel.value is None


def test_the_field_edited_last_is_used(panel, server):
    """Text, vector, stored id and row exclude each other, and the panel names the active one."""
    source = panel.source
    assert panel.options.namespace.value == "docs"
    write(source.text, "a cat")
    assert panel.value == VectorQuery(data="a cat", namespace="docs")
    write(source.vector, "[0.5, 1]")
    assert panel.value == VectorQuery(vector=[0.5, 1], namespace="docs")
    assert source.text.text == ""
    write(source.stored, "b")
    assert panel.value == VectorQuery(vector=[0, 1], namespace="docs")
    assert "the vector of b, from the frame" in source.note.value
    write(source.row, "0")
    assert panel.value == VectorQuery(vector=[1, 0], namespace="docs")
    assert source.stored.text == ""
    write(source.row, "")
    assert panel.value is None
    assert (panel.to_code(), panel._code.value) == ("None", "")
    for text in ("2", "3", "-1", "x"):
        write(source.row, text)
        assert source.row.problem
    write(source.stored, "c")
    assert "got no vector; expected a usable vector" in source.stored.problem
    assert server.requests == []


def test_an_id_that_is_not_in_the_frame_is_fetched_by_the_query(panel, server):
    """Until then the value is None; afterwards it is the query by the vector that was fetched."""
    write(panel.source.stored, "far")
    assert panel.value is None
    assert "Ask fetches first" in panel.source.note.value
    assert server.requests == []
    server.json(b'{"result": {"dimension": 2, "similarityFunction": "COSINE"}}')
    server.json(b'{"result": [{"id": "far", "vector": [0.25, 0.5]}]}')
    server.json(hits("far", "a"))
    assert panel.run()["id"].tolist() == ["far", "a"]
    assert panel.value == VectorQuery(vector=[0.25, 0.5], namespace="docs")
    assert [request.path for request in server.requests] == [
        "/info",
        "/fetch/docs",
        "/query/docs",
    ]
    write(panel.options.top_k, "3")
    server.json(hits("far"))
    panel.run()
    assert len(server.requests) == 4  # not fetched again
    write(panel.source.stored, "gone")
    server.json(b'{"result": {"dimension": 2}}')
    server.json(b'{"result": [null]}')
    with pytest.raises(InputError, match="no such id in namespace 'docs'"):
        panel.run()
    assert panel.message.endswith("Look at index names the namespaces.")
    assert len(panel.frame()) == 1


def test_options_are_the_value(server):
    """Lists, ticks, numbers and the filter are the value; the mode is dropped with the text."""
    panel = QueryPanel(server.service())
    write(panel.source.text, "a cat")
    write(panel.options.top_k, "1,000")
    choose(panel.options.scoring["query_mode"], "SPARSE")
    choose(panel.options.scoring["fusion_algorithm"], "DBSF")
    choose(panel.options.scoring["weighting_strategy"], "IDF")
    tick(panel.options.included, "data")
    write(panel.options.filter.text, "city = 'Izmir'")
    expected = {
        "top_k": 1_000, "fusion_algorithm": "DBSF", "weighting_strategy": "IDF", "include_data": True,
        "filter": "city = 'Izmir'",
    }  # fmt: skip
    assert panel.value == VectorQuery(data="a cat", query_mode="SPARSE", **expected)
    write(panel.options.top_k, "ten")
    assert panel.options.top_k.problem == "Type a whole number from 1."
    assert panel.value.top_k == 1_000
    write(panel.options.top_k, "1000")
    write(panel.source.vector, "[1]")
    assert panel.value == VectorQuery(vector=[1], **expected)
    assert "Only with a text" in panel.options.scoring["query_mode"].remark
    panel.clear()
    assert panel.value is None
    assert panel.options.filter.value == ""
    assert server.requests == []


def test_emptying_the_query_field_sends_nothing(panel):
    """Another field with a mistake does not count, and emptying it changes nothing."""
    write(panel.source.text, "a cat")
    write(panel.source.vector, "[1,")
    assert panel.value.data == "a cat"
    write(panel.source.vector, "")
    assert panel.value.data == "a cat"
    write(panel.source.vector, "[1,")
    write(panel.source.text, "")
    assert panel.value is None


@pytest.mark.parametrize(
    ("kind", "text", "explained"),
    [
        ("DENSE", "[1, 2, 3]", "3 numbers; this index has 2 dimensions"),
        ("DENSE", '{"indices": [1], "values": [1]}', "accepts no sparse vector"),
        ("SPARSE", "[1, 2]", "accepts sparse vectors"),
        ("HYBRID", "[1, 2]", ""),
    ],
)
def test_a_question_that_does_not_fit_the_index_is_explained(
    panel, server, kind, text, explained
):
    """The panel says so once it has read the index, before a query is sent."""
    write(panel.source.vector, text)
    server.json(json.dumps({"result": {"indexType": kind, "dimension": 2}}).encode())
    panel.look()
    assert explained in panel.source.note.value
    assert ("tk-problem" in panel.source.note.value) == bool(explained)
    write(panel.source.text, "a cat")
    assert "has no model" in panel.source.note.value


@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        ("DENSE", set()),
        ("SPARSE", {"weighting_strategy"}),
        ("HYBRID", {"query_mode", "fusion_algorithm", "weighting_strategy"}),
    ],
)
def test_only_what_fits_the_index_is_offered(server, kind, shown):
    """After reading the index; chosen options stay visible, with a remark."""
    panel = QueryPanel(server.service())
    info = {
        "indexType": kind,
        "dimension": 2,
        "namespaces": {"": {"vectorCount": 1}, "docs": {}},
    }
    server.json(json.dumps({"result": info}).encode())
    assert isinstance(panel.look(), IndexInfo)
    seen = {name for name, choice in panel.options.scoring.items() if not choice.hidden}
    assert seen == shown
    assert panel.options.namespace.suggestions == ("docs",)
    assert "no model" in panel.source.text.hint
    assert panel.message.startswith(kind)
    panel.value = VectorQuery(data="a", fusion_algorithm="RRF")
    assert not panel.options.scoring["fusion_algorithm"].hidden


def test_the_hits_of_the_sample_are_those_of_a_query(sample_service):
    """run() returns what query() returns; each hit is in the table with its score."""
    asked_for = VectorQuery(
        data="certificate", namespace="runbooks", top_k=5, include_data=True
    )
    panel = QueryPanel(sample_service, value=asked_for)
    assert len(panel.frame()) == 0
    assert panel.frame().columns.tolist() == ["query", "rank", "id", "score"]
    frame = panel.run()
    assert frame is panel.frame()
    pd.testing.assert_frame_equal(frame, tk.query(sample_service, asked_for))
    assert [row.id for row in panel.results.table.hits] == frame["id"].tolist()
    assert [row.share for row in panel.results.table.hits] == pytest.approx(
        frame["score"].tolist()
    )
    assert panel.results.chart.startswith("<svg")
    write(panel.options.top_k, "4")
    assert panel.message == "The hits shown are from an earlier query."
    assert panel.hits_remark == "; from an earlier query"
    panel.run()
    assert panel.hits_remark == ""


def test_a_query_by_a_hit_is_compared_with_the_pinned_result(server, seen):
    """A message from the table asks by the hit's own vector; words describe rank changes."""
    panel = QueryPanel(
        server.service(), value=VectorQuery(data="x", query_mode="DENSE")
    )
    panel.value = VectorQuery(data="x", query_mode="DENSE", include_vectors=True)
    server.json(hits("a", "b", "c", vector=[1, 2]))
    panel.run()
    panel.pin()
    server.json(hits("b", "d", "a", vector=[1, 2]))

    async def click():
        panel.receive({"kind": "ask", "table": "now", "position": 1})
        while panel._job is not None:  # noqa: ASYNC110 - awaits the panel's state
            await asyncio.sleep(0.005)

    asyncio.run(click())
    assert panel.value == VectorQuery(vector=[1, 2], include_vectors=True)
    assert last_request(server)["vector"] == [1, 2]
    assert [row.moved for row in panel.results.table.hits] == [
        "▲ 1 up",
        "+ new",
        "▼ 2 down",
    ]
    assert [row.moved for row in panel.results.pinned_table.hits] == ["", "", "✗ gone"]
    pd.testing.assert_frame_equal(
        panel.moves(), score_moves(panel.pinned(), panel.frame())
    )
    assert (
        "2 hits in both (1 up, 1 down, 0 the same), 1 new, 1 gone"
        in seen(panel.results.summary).shown
    )
    assert "pinned" in seen(panel.results.chart).shown
    assert "query_mode: DENSE → none" in seen(panel.results.summary).shown
    panel.unpin()
    assert panel.pinned() is None
    assert [row.moved for row in panel.results.table.hits] == ["", "", ""]
    with pytest.raises(InputError):
        panel.moves()


def test_a_key_keeps_query_and_hits(server, request):
    """The second panel of a key shows what the first had; another value passed by the cell wins."""
    key = request.node.name
    first = QueryPanel(server.service(), key=key)
    first.value = VectorQuery(data="x")
    server.json(hits("a"))
    first.run()
    second = QueryPanel(server.service(), key=key)
    assert second.value == VectorQuery(data="x")
    assert [row.id for row in second.results.table.hits] == ["a"]
    third = QueryPanel(server.service(), key=key, value=VectorQuery(data="y"))
    assert third.value == VectorQuery(data="y")
    assert len(server.requests) == 1


def test_only_services_queries_and_frames_of_vectors_fit(server, vectors):
    """Everything else is refused by name."""
    service = server.service()
    for wrong in (
        {"value": "a cat"},
        {"frame": [1]},
        {"frame": vectors.drop(columns="id")},
    ):
        with pytest.raises(InputError):
            QueryPanel(service, **wrong)
    with pytest.raises(InputError):
        QueryPanel(vectors)
    with pytest.raises(InputError):
        QueryPanel(service).value = {"data": "x"}


def test_hostile_texts_are_seen_as_text(server, seen):
    """A hundred payloads in id, data and metadata add no element and no attribute to anything."""
    assert len(set(PAYLOADS)) >= 100
    rows = [
        {"id": f"{place}{text}", "score": 0.5, "data": text, "metadata": {text: text}}
        for place, text in enumerate(PAYLOADS)
    ]
    everything = VectorQuery(
        data=PAYLOADS[0],
        include_data=True,
        include_metadata=True,
        namespace=PAYLOADS[1],
        filter=PAYLOADS[2],
    )
    panel = QueryPanel(server.service(), value=everything)
    server.always(json.dumps({"result": rows}).encode())
    panel.run()
    panel.pin()
    panel.value = VectorQuery(data=PAYLOADS[11], include_data=True)
    panel.run()
    for row, payload in zip(panel.results.table.hits, PAYLOADS, strict=True):
        assert visible(payload) in row.id
        assert row.more == visible(payload)
    parts = (panel.status, panel.code, panel.source_note, panel.hits["summary"])
    conditions = (panel.conditions["note"], panel.conditions["fields"])
    markup = panel._repr_mimebundle_()["text/html"]
    page = seen("".join([markup, *parts, *conditions, *panel.hits["charts"]]))
    plain = {
        "div",
        "code",
        "pre",
        "mark",
        "p",
        "strong",
        "span",
        "i",
        "details",
        "summary",
    }
    tabular = {"table", "thead", "tbody", "tr", "th", "td", "caption"}
    drawn = {
        "svg",
        "g",
        "path",
        "defs",
        "use",
        "text",
        "title",
        "desc",
        "clippath",
        "rect",
        "tspan",
        "pattern",
    }
    assert page.tags <= plain | tabular | drawn
    assert not {
        name
        for name in page.attributes
        if name.startswith("on") or name in {"src", "srcdoc"}
    }
    assert all(visible(payload) in page.shown for payload in PAYLOADS[:10])


def test_metadata_is_shown_where_a_hit_has_no_data():
    """The first column that has a text is shown, not the first that exists."""
    frame = pd.DataFrame(
        {"rank": [1, 2, 3], "id": ["a", "b", "c"], "score": 0.5, "data": ["text", None, ""],
         "metadata": ['{"n": 1}', '{"n": 2}', None]}
    )  # fmt: skip
    assert [row.more for row in hit_rows(frame, REDACT)[0]] == ["text", '{"n": 2}', ""]


def test_a_vector_is_described_alike_in_two_results_side_by_side():
    """Each result alone would be described by another field: the one that differs most among its hits."""

    def result(*rows):
        metadata = [json.dumps({"topic": topic, "note": note}) for topic, note in rows]
        ids = [topic + note for topic, note in rows]
        ranks = range(1, len(rows) + 1)
        return pd.DataFrame(
            {"id": ids, "rank": ranks, "score": 0.5, "metadata": metadata, "query": 0}
        )

    pinned, now = (
        result(("a", "x"), ("b", "x")),
        result(("a", "x"), ("a", "y"), ("a", "z")),
    )
    assert hit_rows(pinned, REDACT)[0][0].more == "topic: a"
    assert hit_rows(now, REDACT)[0][0].more == "note: x"
    results = HitResults(redactor=REDACT, prefix="p")
    results.pin(pinned)
    results.show(now)
    assert [table.hits[0].more for table in (results.pinned_table, results.table)] == [
        "note: x"
    ] * 2


@pytest.mark.parametrize(
    ("metadata", "shown"),
    [
        ([{"n": "x", "title": "A"}, {"title": "B"}], ["title: A", "title: B"]),
        (
            [{"kind": "doc", "where": "Oslo"}, {"kind": "doc", "where": "Bergen"}],
            ["where: Oslo", "where: Bergen"],
        ),
        ([{"title": " ", "kind": "doc"}, {"n": 3}], ["kind: doc", '{"n": 3}']),
        ([{"password": "hunter2"}, {"n": 3}], ["password: [masked len=7", '{"n": 3}']),
    ],
)
def test_the_field_of_metadata_that_says_most_is_shown(metadata, shown):
    """The field with a telling name, else the one that differs most; masked under secret names."""
    frame = pd.DataFrame(
        {
            "rank": [1, 2],
            "id": ["a", "b"],
            "score": 0.5,
            "metadata": [json.dumps(row) for row in metadata],
        }
    )
    rows = hit_rows(frame, REDACT)[0]
    assert all(row.more.startswith(text) for row, text in zip(rows, shown, strict=True))


def test_hits_show_their_text_without_a_tick(sample_service):
    """Data and metadata are requested for the table; value, code and frame hold the requested columns."""
    panel = QueryPanel(
        sample_service, value=VectorQuery(data="certificate", namespace="runbooks")
    )
    frame = panel.run()
    assert frame.columns.tolist() == ["query", "rank", "id", "score"]
    assert frame.attrs["queries"] == [panel.value.scope()]
    texts = tk.query(
        sample_service,
        dataclasses.replace(panel.value, include_data=True, include_metadata=True),
    )
    assert [row.more[:30] for row in panel.results.table.hits] == [
        text[:30] for text in texts["data"]
    ]
    assert "include" not in panel.to_code()
    panel.pin()
    assert panel.pinned() is frame
    panel.unpin()
    assert panel.pinned() is None


def test_fusion_and_weighting_wait_for_an_index_that_has_them(server):
    """Before the index is read they are hidden; chosen from Python, they are visible."""
    panel = QueryPanel(server.service())
    seen = {name for name, choice in panel.options.scoring.items() if not choice.hidden}
    assert seen == {"query_mode"}
    assert "Look at index shows" in panel.options.scoring["query_mode"].remark
    panel.value = VectorQuery(data="a", weighting_strategy="IDF")
    assert not panel.options.scoring["weighting_strategy"].hidden


@pytest.mark.parametrize(
    ("scores", "caption", "shares"),
    [
        ([0.9, 0.45], "2 hits; bars from 0 to 1", [0.9, 0.45]),
        ([8.0, 2.0], "2 hits; bars from 0 to 8", [1.0, 0.25]),
        ([0.032, 0.016], "2 hits; bars from 0 to 0.032", [1.0, 0.5]),
        ([1.0, -1.0], "2 hits; bars from -1 to 1", [1.0, 0.0]),
        ([0.0], "1 hit; bars from 0 to 1", [0.0]),
        ([], "No hits", []),
    ],
)
def test_bars_have_the_length_of_their_score(scores, caption, shares):
    """Bars begin at 0, or at a lower lowest score, and the caption says which."""
    frame = pd.DataFrame(
        {
            "rank": range(1, len(scores) + 1),
            "id": "a",
            "score": pd.Series(scores, dtype=float),
        }
    )
    rows, explained = hit_rows(frame, REDACT)
    assert explained == caption
    assert [row.share for row in rows] == shares


def test_a_long_result_is_shown_in_part(server):
    """Two hundred rows are in the page; the frame has all."""
    panel = QueryPanel(server.service(), value=VectorQuery(data="x", top_k=300))
    server.json(hits(*map(str, range(300))))
    assert len(panel.run()) == 300
    assert len(panel.results.table.hits) == 200
    assert panel.results.table.caption.startswith("300 hits, the first 200 shown")
