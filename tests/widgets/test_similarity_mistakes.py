"""Mistakes in a similarity panel are explained, send no request, and show no secret."""

from __future__ import annotations

import asyncio
import json
import threading
from dataclasses import asdict

import pandas as pd
import pytest

from tests.widgets import page
from tests.widgets.page import write
from tests.widgets.responses import hits, last_request
from toolkit import QueryPanel
from toolkit.errors import AuthenticationError, InputError, UnprocessableError
from toolkit.filters.query import VectorQuery

TOKEN = "vector-token-of-the-test"


@pytest.fixture
def panel(server, vectors):
    """A panel on a service without responses."""
    return QueryPanel(server.service(), frame=vectors)


def state_of(panel):
    """All state of a panel that the page receives, and its static form, as one text."""
    state, left = json.dumps(panel._repr_mimebundle_(), ensure_ascii=False), [panel]
    while left:
        found = left.pop()
        state += json.dumps(found.get_state(), default=str, ensure_ascii=False)
        left += list(getattr(found, "children", ()))
    return state


def until_free(panel, act):
    """Act as a person does, and wait for the call that this starts."""

    async def main():
        act()
        while panel._job is not None:  # noqa: ASYNC110 - awaits the panel's state
            await asyncio.sleep(0.005)

    asyncio.run(main())


@pytest.mark.parametrize("mistake", ["topK", "vector"])
def test_a_hit_is_not_queried_by_while_there_is_a_mistake(server, vectors, mistake):
    """Nor is the older query sent, and the panel says so."""
    panel = QueryPanel(
        server.service(), value=VectorQuery(data="old", namespace="docs"), frame=vectors
    )
    server.json(hits("a", "c"))
    panel.run()
    if mistake == "topK":
        write(panel.options.top_k, "ten")
    until_free(panel, lambda: panel.ask_from(1))
    assert len(server.requests) == 1
    assert panel.message == "No query was sent: first correct the fields marked above."
    assert panel.source.stored.text == "c"
    if mistake == "topK":
        return
    assert "got no vector" in panel.source.stored.problem
    write(panel.options.namespace, "elsewhere")  # where the frame does not know it
    assert panel.source.stored.problem is None
    assert "Ask fetches first" in panel.source.note.value


def test_asking_beside_a_mistake_says_so(server):
    """The value is sent, and the panel says that the marked fields were not part of it."""
    panel = QueryPanel(
        server.service(), value=VectorQuery(data="old", filter="city = ")
    )
    server.always(hits("a"))
    remark = "Fields marked above as mistakes were not part of the query."
    panel.run()
    assert remark not in panel.message  # this filter is part of it
    typed = {
        panel.options.top_k: ("ten", "10"),
        panel.source.vector: ("[1,", ""),
        panel.options.filter.text: ("city = = ", "city = 'x'"),
    }
    for field, (wrong, right) in typed.items():
        write(field, wrong)
        panel.run()
        assert remark in panel.message
        write(field, right)
        panel.run()
        assert remark not in panel.message


def test_a_mistake_stays_marked_until_it_is_mended(panel):
    """A valid change elsewhere does not hide it."""
    write(panel.source.vector, "[1, 2]")
    write(panel.source.vector, "[1,")
    write(panel.options.top_k, "5")
    assert panel.source.vector.problem
    assert panel.value == VectorQuery(vector=[1, 2], top_k=5, namespace="docs")


def test_quick_choices_arrive_before_ask(server):
    """A choice arrives by its name in a message, in the order of choosing."""
    panel = QueryPanel(server.service(), value=VectorQuery(data="x"))
    chosen = panel.options.scoring["query_mode"]
    message = {"kind": "field", "name": "query_mode"}
    for number, word in enumerate(("HYBRID", "SPARSE"), 1):
        panel.receive({**message, "number": number, "value": word})
    assert panel.value.query_mode == "SPARSE"
    panel.receive({**message, "number": 3, "value": chosen.options[0]})
    assert panel.value.query_mode is None


def test_enter_asks_by_what_was_typed(server):
    """Enter in a field is Ask, after the other fields' values were sent; not with a mistake in it."""
    panel = QueryPanel(server.service())
    server.always(hits("a"))
    write(panel.options.top_k, "7")
    until_free(panel, lambda: page.enter(panel.source.text, "a cat"))
    assert (last_request(server)["data"], last_request(server)["topK"]) == ("a cat", 7)
    assert panel.value == VectorQuery(data="a cat", top_k=7)
    page.enter(panel.source.vector, "[1,")
    assert panel.message == "No query was sent: first correct the fields marked above."
    assert len(server.requests) == 1
    panel = QueryPanel(server.service(), value=VectorQuery(data="a cat"))
    until_free(panel, lambda: page.enter(panel.options.top_k, "3"))
    assert last_request(server)["topK"] == 3
    until_free(panel, lambda: page.enter(panel.options.namespace, "pets"))
    assert server.requests[-1].path.endswith("/pets")
    sent = len(server.requests)
    page.enter(panel.options.top_k, "ten")
    assert panel.message == "No query was sent: first correct the fields marked above."
    assert len(server.requests) == sent


def test_errors_are_raised_and_shown_in_the_panel(server):
    """An index that refuses, and an index of a hit that does not exist."""
    panel = QueryPanel(server.service(), value=VectorQuery(data="x"))
    server.json(b'{"error": "no such token"}', 401)
    with pytest.raises(AuthenticationError) as caught:
        panel.look()
    assert panel.message == str(caught.value)
    with pytest.raises(InputError, match="an index among 0 hits"):
        panel.ask_from(0)
    server.json(hits("a", "b"))
    panel.run()
    for place in (-1, 2):
        with pytest.raises(InputError, match="an index among 2 hits"):
            panel.ask_from(place)
    assert len(server.requests) == 2


def test_none_sends_nothing_even_with_an_unfetched_id(panel, server):
    """The value is None before and after; the id is forgotten."""
    write(panel.source.stored, "far")
    panel.value = None
    assert panel.source.stored.text == ""
    assert "Nothing to search for yet" in panel.source.note.value
    with pytest.raises(InputError, match="no text, vector or id"):
        panel.run()
    assert server.requests == []


def test_waiting_for_hits_is_refused_while_a_call_is_under_way(server):
    """Its result would replace this one later."""
    panel = QueryPanel(server.service(), value=VectorQuery(data="x"))
    server.always(hits("a"))

    def both_ways():
        panel.press("Ask")
        with pytest.raises(InputError, match="got a running call"):
            panel.run()

    until_free(panel, both_ways)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("typed", "place"),
    [("1,2", None), ("12", 12), ("1,000", 1_000), ("1,00", None), ("٣", None)],
)
def test_commas_stand_between_thousands(server, typed, place):
    """With commas elsewhere a text is not a number, of a row or of topK."""
    frame = pd.DataFrame(
        {
            "id": map(str, range(1_001)),
            "vector": [[1.0, float(n)] for n in range(1_001)],
        }
    )
    panel = QueryPanel(server.service(), frame=frame)
    write(panel.source.row, typed)
    write(panel.options.top_k, typed)
    assert (panel.value is None) == (place is None)
    assert (
        bool(panel.source.row.problem)
        == bool(panel.options.top_k.problem)
        == (place is None)
    )
    if place is not None:
        assert panel.value == VectorQuery(vector=[1, place], top_k=place)


@pytest.mark.parametrize(
    "content", [[], None, "x", {"kind": "ask", "position": 0},
                {"kind": "ask", "table": "other", "position": 0},
                *[{"kind": "ask", "table": "now", "position": place} for place in (2, -1, True, "0", None)],
                {"position": 0}, {}],
)  # fmt: skip
def test_malformed_messages_send_nothing(server, content):
    """Messages that the table would never send are ignored."""
    panel = QueryPanel(server.service(), value=VectorQuery(data="x"))
    server.json(hits("a", "b"))
    panel.run()
    panel.receive(content)
    assert len(server.requests) == 1
    assert panel.value == VectorQuery(data="x")


def test_errors_of_a_query_are_shown_in_the_panel(panel, server):
    """Both are raised, and shown in the panel with the next step."""
    with pytest.raises(InputError, match="no text, vector or id"):
        panel.run()
    assert "Fill one of the fields" in panel.message
    panel.pin()
    assert "no result to pin" in panel.message
    server.always(b'{"error": "no model <b>", "status": 422}', 422)
    write(panel.source.text, "x")
    with pytest.raises(UnprocessableError) as caught:
        panel.run()
    assert panel.message == str(caught.value)
    assert "&lt;b&gt;" in panel._status.value


def test_cancel_drops_a_slow_response(server):
    """The panel is free immediately; a late response changes nothing."""
    arrived, go_on = threading.Event(), threading.Event()

    def slowly(_):
        arrived.set()
        go_on.wait(30)
        return hits("late")

    server.responding(slowly)
    panel = QueryPanel(server.service(), value=VectorQuery(data="x"))

    async def main():
        panel.press("Ask")
        await asyncio.to_thread(arrived.wait, 30)
        panel.cancel()
        while panel._job is not None:  # noqa: ASYNC110 - awaits the panel's state
            await asyncio.sleep(0.005)
        assert panel.message == "Stopped before anything was read."
        go_on.set()

    try:
        asyncio.run(main())
    finally:
        go_on.set()
    assert len(panel.frame()) == 0


def test_secrets_in_hits_are_masked(server):
    """Secrets are masked in the table, in the static form and in the state of the page."""
    panel = QueryPanel(server.service(), value=VectorQuery(data="x", include_data=True))
    server.json(hits("a", data="x " * 60 + "Bearer abcdef0123456789abcdef"))
    panel.run()
    state = state_of(panel)
    assert "abcdef01" not in state
    assert "token-of-the-test" not in state


def test_secrets_under_names_that_say_so_are_masked(server):
    """Metadata and data that are JSON are masked in table and static form; other JSON is unchanged."""
    query = VectorQuery(data="x", include_data=True, include_metadata=True)
    panel = QueryPanel(server.service(), value=query)
    secret = {"user": {"password": "hunter2-xyz"}, "city": "Izmir"}
    rows = [
        {"id": "a", "score": 0.9, "metadata": secret},
        {"id": "b", "score": 0.8, "data": '{"api_key": "hunter3-xyz"}', "metadata": {}},
        {"id": "c", "score": 0.7, "data": '{"n":1.50}', "metadata": {}},
    ]
    server.json(json.dumps({"result": rows}).encode())
    assert "hunter2-xyz" in panel.run()["metadata"].iloc[0]
    table, state = panel.results.table.hits, panel._repr_mimebundle_()["text/html"]
    assert "hunter" not in state + json.dumps([asdict(row) for row in table])
    assert "Izmir" in table[0].more
    assert "Izmir" in state
    assert table[2].more == '{"n":1.50}'


@pytest.mark.parametrize("cut", [35, 45, 55, 65])
def test_an_own_token_is_masked_before_it_is_cut(server, cut):
    """Wherever a text is truncated: the question, mistakes, and what differs from the pinned result."""
    long = "x" * cut + " " + TOKEN
    panel = QueryPanel(server.service(), frame=pd.DataFrame({"id": ["a"]}))
    told = []
    for field, typed in (
        (panel.source.vector, f"{'x' * cut}{TOKEN}"),
        (panel.source.row, long),
    ):
        write(field, typed)
        told.append(field.problem)
    write(panel.source.vector, json.dumps({long: 1}))
    told.append(panel.source.vector.problem)
    write(panel.source.stored, long)
    told.append(panel.source.note.value)
    server.always(hits("a"))
    panel.value = VectorQuery(data=long)
    told.append(panel.source.note.value)
    panel.run()
    panel.pin()
    panel.value = VectorQuery(data="y")
    panel.run()
    told.append(panel.results.summary)
    assert not [text for text in told if TOKEN[:7] in text]


def test_an_own_token_that_the_service_sends_does_not_reach_the_page(server):
    """Neither as the id of a hit to query by, nor as a namespace of the frame or of the index."""
    frame = pd.DataFrame({"namespace": f"of {TOKEN}", "id": ["a"]})
    panel = QueryPanel(server.service(), frame=frame)
    assert panel.options.namespace.value == ""
    names = {
        "": {"vectorCount": 1},
        f"the {TOKEN}": {"vectorCount": 1},
        "docs": {"vectorCount": 1},
    }
    info = {"indexType": "DENSE", "dimension": 2, "namespaces": names}
    server.json(json.dumps({"result": info}).encode())
    panel.look()
    assert panel.options.namespace.suggestions == ("docs",)
    panel.value = VectorQuery(data="x", include_vectors=True)
    server.always(hits(f"id {TOKEN}", vector=[1, 2]))
    panel.run()
    until_free(panel, lambda: panel.ask_from(0))
    assert last_request(server)["vector"] == [1, 2]
    assert TOKEN not in panel.source._question.stored
    assert "id [masked" in panel.source.stored.text
    assert TOKEN not in state_of(panel)
