"""Loading the DLQ from a real server: complete, or a typed error; and a receipt that tells."""

from __future__ import annotations

import json
import warnings
from datetime import UTC, date, datetime, timedelta

import pandas as pd
import pytest

import toolkit as tk
from toolkit.errors import (
    AuthenticationError,
    BadRequestError,
    CursorLoopError,
    IncompleteLoadError,
    IncompleteLoadWarning,
    InputError,
    ProtocolError,
)
from toolkit.tables.frame_filters import match_failures
from toolkit.tables.schemas import FAILURES


def pages(*sizes: int, start: int = 0) -> dict[str, bytes]:
    """Pages of entries by cursor; the first has the cursor ""."""
    found, number = {}, start
    for index, size in enumerate(sizes):
        entries = [
            {
                "dlqId": f"id-{number + i}",
                "responseStatus": 500,
                "workflowUrl": "https://a.example/w",
            }
            for i in range(size)
        ]
        after = f"c{index + 1}" if index + 1 < len(sizes) else ""
        found[f"c{index}" if index else ""] = json.dumps(
            {"cursor": after, "messages": entries}
        ).encode()
        number += size
    return found


def serve(server, found: dict[str, bytes]) -> tk.Service:
    """A server of these pages."""
    server.responding(lambda request: found[dict(request.query).get("cursor", "")])
    return server.service()


@pytest.mark.parametrize(
    ("messages", "options", "is_named"),
    [
        ([{"dlqId": "m-1"}], {}, True),
        ([], {}, False),
        (None, {}, False),  # that request fails
        ([{"dlqId": "m-1"}], {"limit": 5}, False),
        ([{"dlqId": "m-1"}], {"since": "1d"}, False),
        ([{"dlqId": "m-1"}], {"kind": "messages"}, False),
    ],
)
def test_failed_plain_messages_are_named_if_there_are_some(
    server, messages, options, is_named
):
    """A load of all failed runs notes how failed plain messages are loaded, only if there are some."""
    runs = pages(3)[""]

    def give(request):
        if request.path.endswith("/v2/workflows/dlq"):
            return runs
        return (
            b"no JSON"
            if messages is None
            else json.dumps({"messages": messages}).encode()
        )

    server.responding(give)
    receipt = tk.get_receipt(
        tk.load_failures(server.service(), progress=False, **options)
    )
    assert any('kind="messages"' in note for note in receipt.notes) is is_named
    assert (
        "messages" in receipt._repr_html_().split("notes")[-1]
    ) is is_named or options


def test_all_pages_are_in_one_frame(server):
    """Every entry of every page, an empty page with a cursor included, in the listing's order."""
    service = serve(server, pages(100, 0, 100, 37))
    frame = tk.load_failures(service, progress=False)
    assert frame["dlq_id"].tolist() == [f"id-{number}" for number in range(237)]
    assert [name for name in frame.columns if name != "error"] == FAILURES.names
    receipt = tk.get_receipt(frame)
    assert (
        receipt.complete,
        receipt.rows,
        receipt.pages,
        receipt.requests,
        receipt.retries,
    ) == (
        True,
        237,
        4,
        4,
        0,
    )
    assert receipt.bytes > 0
    assert receipt.assumptions
    *listed, last = [requested.path for requested in server.requests]
    assert {*listed} == {"/v2/workflows/dlq"}
    assert last == "/v2/dlq"  # whether there are plain messages, too
    json.dumps(frame.attrs)


def test_an_empty_dlq_is_a_frame_with_all_columns(server):
    """Nothing failed: no rows, every column, and complete."""
    frame = tk.load_failures(serve(server, pages(0)), progress=False)
    assert frame.empty
    assert [name for name in frame.columns if name != "error"] == FAILURES.names
    assert tk.get_receipt(frame).verdict == "complete: 0 failures"


def test_every_filter_goes_over_the_wire(server):
    """Each part of a filter becomes its parameter, several values as repetitions, times in milliseconds."""
    service = serve(server, pages(0))
    wanted = tk.FailureFilter(
        since="2026-01-01T00:00:00Z",
        until="2026-01-02T00:00:00.001Z",
        workflow_url=["https://a.example/x", "https://a.example/y"],
        workflow_run_id="wfr_1",
        workflow_created_at="2026-01-01T00:00:00Z",
        label=["eu", "us"],
        failure_function_state=["CALLBACK_FAIL", "CALLBACK_SUCCESS"],
        caller_ip="10.0.0.1",
        flow_control_key=["k1", "k2"],
    )
    frame = tk.load_failures(service, wanted, progress=False)
    assert sorted(server.requests[0].query) == sorted(
        [
            ("count", "100"),
            ("fromDate", "1767225600000"),
            ("toDate", "1767312000001"),
            ("workflowCreatedAt", "1767225600000"),
            ("workflowUrl", "https://a.example/x"),
            ("workflowUrl", "https://a.example/y"),
            ("workflowRunId", "wfr_1"),
            ("label", "eu"),
            ("label", "us"),
            ("failureFunctionState", "CALLBACK_FAIL"),
            ("failureFunctionState", "CALLBACK_SUCCESS"),
            ("callerIp", "10.0.0.1"),
            ("flowControlKey", "k1"),
            ("flowControlKey", "k2"),
        ]
    )
    assert tk.get_receipt(frame).scope["label"] == ["eu", "us"]


def test_a_value_with_a_comma_is_compared_on_our_side(server):
    """What cannot be sent unambiguously is not sent; the receipt counts what was left out and says why."""
    entries = [{"dlqId": "a", "labels": ["x,y"]}, {"dlqId": "b", "labels": ["x", "y"]}]
    server.responding(lambda _: json.dumps({"messages": entries}).encode())
    frame = tk.load_failures(
        server.service(), tk.FailureFilter(label="x,y", caller_ip=None), progress=False
    )
    assert frame["dlq_id"].tolist() == ["a"]
    assert "label" not in dict(server.requests[0].query)
    receipt = tk.get_receipt(frame)
    assert (receipt.complete, receipt.filtered_here) == (True, 1)
    assert any(
        "label" in assumption and "comma" in assumption
        for assumption in receipt.assumptions
    )


def test_repeated_entries_are_kept_once_and_counted(server):
    """Pages that overlap: unique rows, the later content, and a receipt and a warning that say so."""
    first = [
        {"dlqId": "a", "responseStatus": 500},
        {"dlqId": "b", "responseStatus": 500},
    ]
    second = [
        {"dlqId": "b", "responseStatus": 503},
        {"dlqId": "c", "responseStatus": 500},
    ]
    result = {
        "": json.dumps({"cursor": "n", "messages": first}).encode(),
        "n": json.dumps({"messages": second}).encode(),
    }
    with pytest.warns(IncompleteLoadWarning, match="were read twice"):
        frame = tk.load_failures(serve(server, result), progress=False)
    assert list(zip(frame["dlq_id"], frame["response_status"], strict=True)) == [
        ("a", 500),
        ("b", 503),
        ("c", 500),
    ]
    receipt = tk.get_receipt(frame)
    assert (receipt.complete, receipt.duplicates, receipt.changed, receipt.rows) == (
        False,
        0,
        1,
        3,
    )


def test_repeated_unchanged_entries_are_duplicates(server):
    """The same entry with the same content again is dropped, and counted separately from changed ones."""
    entry = {"dlqId": "a", "responseStatus": 500}
    result = {
        "": json.dumps({"cursor": "n", "messages": [entry]}).encode(),
        "n": json.dumps({"messages": [entry, {"dlqId": "b"}]}).encode(),
    }
    with pytest.warns(IncompleteLoadWarning, match="were read twice"):
        receipt = tk.get_receipt(
            tk.load_failures(serve(server, result), progress=False)
        )
    assert (receipt.duplicates, receipt.changed, receipt.rows) == (1, 0, 2)


def test_a_limit_is_a_first_look(server):
    """At most that many rows, no more requests than needed, and a receipt that does not claim the whole."""
    service = serve(server, pages(100, 100, 100))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        frame = tk.load_failures(service, limit=130, progress=False)
    assert len(frame) == 130
    assert len(server.requests) == 2
    assert not tk.get_receipt(frame).complete
    assert tk.get_receipt(frame).limit == 130
    with pytest.raises(InputError, match="reading limit: got 0"):
        tk.load_failures(service, limit=0)


def test_an_incomplete_load_raises_with_the_rows_read(server):
    """A 401 on the third page: an error, its cause, and the two pages read until then."""
    result = pages(100, 100, 100)
    server.responding(lambda request: result[dict(request.query).get("cursor", "")])
    whole = server.respond

    def expiring(request):
        if dict(request.query).get("cursor") == "c2":
            server.always(b'{"error": "token expired"}', 401)
            return server.respond(request)
        return whole(request)

    server.respond = expiring
    with pytest.raises(IncompleteLoadError, match="token expired") as raised:
        tk.load_failures(server.service(), progress=False)
    assert isinstance(raised.value.__cause__, AuthenticationError)
    partial = raised.value.partial
    assert isinstance(partial, pd.DataFrame)
    assert len(partial) == 200
    assert not tk.get_receipt(partial).complete


def test_an_interrupt_keeps_what_was_read(server):
    """Ctrl-C during a load raises with the pages read, and says that they are not the whole."""
    service = serve(server, pages(100, 100, 100))

    def interrupt(done: int, _: int | None) -> None:
        if done == 200:
            raise KeyboardInterrupt

    with pytest.raises(IncompleteLoadError, match="interrupt") as raised:
        tk.load_failures(service, progress=interrupt)
    assert len(raised.value.partial) == 100


@pytest.mark.usefixtures("no_backoff")
def test_errors_before_anything_was_read_are_themselves(server):
    """A first page that fails raises the service's own error."""
    server.always(b'{"error": "no such filter"}', 400)
    with pytest.raises(BadRequestError, match="no such filter"):
        tk.load_failures(server.service())
    server.always(b"{}")
    with pytest.raises(ProtocolError):
        tk.load_failures(server.service())


def test_a_looping_cursor_never_returns_a_frame(server):
    """A repeated cursor ends in an error, with the rows read as partial."""
    page = json.dumps({"cursor": "c", "messages": [{"dlqId": "a"}]}).encode()
    server.responding(lambda _: page)
    with pytest.raises(IncompleteLoadError) as raised:
        tk.load_failures(server.service(), progress=False)
    assert isinstance(raised.value.__cause__, CursorLoopError)


def test_batches_are_unique_across_pages(server):
    """iter_failures yields a frame for each page, and never an id twice."""
    result = pages(3, 3)
    result["c1"] = json.dumps(
        {"messages": [{"dlqId": "id-2"}, {"dlqId": "id-9"}]}
    ).encode()
    pieces = list(tk.iter_failures(serve(server, result), progress=False))
    assert [piece["dlq_id"].tolist() for piece in pieces] == [
        ["id-0", "id-1", "id-2"],
        ["id-9"],
    ]


def test_one_failure_by_id(server):
    """One entry is a frame of one row; ids are quoted into the path."""
    server.json(b'{"dlqId": "a/b", "responseStatus": 500}')
    frame = tk.load_failure(server.service(), "a/b")
    assert frame["dlq_id"].tolist() == ["a/b"]
    with pytest.raises(InputError):
        tk.load_failure(server.service(), "..")


def test_plain_messages_have_their_own_dlq(server):
    """kind="messages" reads /v2/dlq; another kind is an error."""
    service = serve(server, pages(2))
    assert len(tk.load_failures(service, kind="messages", progress=False)) == 2
    assert server.requests[0].path == "/v2/dlq"
    with pytest.raises(InputError, match="kind"):
        tk.load_failures(service, kind="other")


def test_times_together_with_a_filter_are_refused(server):
    """since= and a filter together are ambiguous."""
    with pytest.raises(InputError, match="one of them"):
        tk.load_failures(server.service(), tk.FailureFilter(label="a"), since="7d")


def test_status_and_error_are_compared_here(server):
    """All other filters are sent to the service; the receipt says what was compared here."""
    rows = [
        {"dlqId": "a", "responseStatus": 500, "responseBody": "TimeoutError: 30 s"},
        {
            "dlqId": "b",
            "responseStatus": 429,
            "responseBody": "Too many requests, timeout later",
        },
        {"dlqId": "c", "responseStatus": 500, "responseBody": "refused"},
        {"dlqId": "d"},
    ]
    rows = [row | {"labels": ["eu"]} for row in rows]
    service = serve(server, {"": json.dumps({"messages": rows}).encode()})
    chosen = tk.FailureFilter(response_status=(500, 503), error="timeout", label="eu")
    frame = tk.load_failures(service, chosen, progress=False)
    assert frame["dlq_id"].tolist() == ["a"]
    assert {name for name, _ in server.requests[0].query} == {"count", "label"}
    made = tk.get_receipt(frame)
    assert (made.complete, made.filtered_here) == (True, 3)
    for part in ("response_status", "error"):
        assert (
            f"{part}: the service cannot filter by it, so it was compared here"
            in made.assumptions
        )
    assert (made.scope["response_status"], made.scope["error"]) == (
        [500, 503],
        ["timeout"],
    )


@pytest.mark.slow
def test_status_and_error_choose_the_same_rows_of_a_service_and_of_a_frame(
    sample_service,
):
    """The embedded service's failures, filtered while they are loaded and afterwards, are the same."""
    everything = tk.load_failures(sample_service, progress=False)
    for chosen in (
        tk.FailureFilter(response_status=429),
        tk.FailureFilter(error="timeout"),
    ):
        loaded = tk.load_failures(sample_service, chosen, progress=False)
        expected = everything[match_failures(everything, chosen)]
        assert 0 < len(loaded) < len(everything)
        assert set(loaded["dlq_id"]) == set(expected["dlq_id"])


def test_the_receipt_holds_no_secret_of_a_filter(server):
    """A workflow URL with a token in its query is sent as it is, and masked in the receipt."""
    service = serve(server, pages(0))
    url = "https://a.example/w?key=canary-99"
    frame = tk.load_failures(
        service, tk.FailureFilter(workflow_url=url), progress=False
    )
    assert ("workflowUrl", url) in server.requests[0].query
    assert "canary" not in json.dumps(frame.attrs)


def test_exact_actions_need_ids_and_confirmation(server):
    """Delete, resume and restart accept exact ids and confirm=True, and nothing is sent without."""
    service = server.service()
    for act in (tk.delete_failures, tk.resume_failures, tk.restart_failures):
        with pytest.raises(InputError, match="confirm=True"):
            act(service, ["a"])
        with pytest.raises(InputError, match="no ids"):
            act(service, [], confirm=True)
    with pytest.raises(InputError, match="confirm=True"):
        tk.rerun_failure_functions(service, "a")
    assert server.requests == []
    server.json(b'{"deleted": 1, "cursor": ""}')
    assert tk.delete_failures(service, pd.Series(["a", "b", "a"]), confirm=True) == 1
    assert [value for name, value in server.requests[0].query if name == "dlqIds"] == [
        "a",
        "b",
    ]
    server.json(b'{"workflowRunId": "wfr_new"}')
    assert tk.resume_failures(service, "a", confirm=True) == {"a": "wfr_new"}
    assert server.requests[1].path == "/v2/workflows/dlq/resume/a"


def test_a_resume_that_fails_halfway_says_what_was_done(server):
    """The error of the second id carries a note with the new run of the first."""
    server.json(b'{"workflowRunId": "wfr_new"}')
    server.json(b'{"error": "gone"}', 404)
    with pytest.raises(tk.errors.NotFoundError) as raised:
        tk.restart_failures(server.service(), ["a", "b"], confirm=True)
    assert "wfr_new" in raised.value.__notes__[0]


@pytest.mark.parametrize(
    "first", ["7d", "24 hours", "2026-11-20", date(2026, 11, 20), timedelta(days=2)]
)
def test_a_time_as_the_filter_means_since(server, first):
    """`load_failures(service, "7d")` sends the start of that time, and so does iterating."""
    server.always(b'{"messages": []}')
    tk.load_failures(server.service(), first, until="2099-01-01")
    list(tk.iter_failures(server.service(), first, until="2099-01-01"))
    list(tk.iter_failures(server.service(), since=first))
    sent = [dict(requested.query) for requested in server.requests]
    end = str(round(datetime(2099, 1, 2, tzinfo=UTC).timestamp() * 1000) - 1)
    assert all("fromDate" in query for query in sent)
    assert {query.get("toDate") for query in sent} == {end, None}


def test_a_time_as_filter_and_since_contradict(sample_service):
    """Two starts are one too many, and text that is not a time says which argument it was."""
    with pytest.raises(InputError, match="since="):
        tk.load_failures(sample_service, "7d", since="1d")
    with pytest.raises(InputError, match="filter"):
        tk.load_failures(sample_service, "orders")


def test_a_masked_value_copied_from_a_frame_finds_its_rows(server):
    """A workflow_url whose query was masked is compared here, masked alike; the receipt says so."""
    entries = [
        {"dlqId": name, "workflowUrl": f"https://a.example/w?code={name}-secret"}
        for name in "ab"
    ]
    server.always(json.dumps({"messages": entries}).encode())
    service = server.service()
    everything = tk.load_failures(service, progress=False)
    copied = everything["workflow_url"][1]
    assert "masked" in copied
    wanted = tk.FailureFilter(workflow_url=copied)
    result = tk.load_failures(service, wanted, progress=False)
    assert result["dlq_id"].tolist() == ["b"]
    assert "workflow_url: a masked value cannot be sent" in " ".join(
        tk.get_receipt(result).assumptions
    )
    assert all(
        "workflowUrl" not in dict(requested.query) for requested in server.requests
    )
    rows = [
        everything.iloc[1],
        everything.to_dict("records")[1],
        next(everything[1:].itertuples()),
    ]
    assert [wanted.matches(row) for row in rows] == [True] * 3
    assert not wanted.matches(everything.iloc[0])


def test_missing_values_are_one_kind_of_missing(server):
    """An empty state, label or list is missing as an absent one is; header names keep their case."""
    header = {"content-type": ["a"], "X-MiXed": ["b"]}
    entries = [
        {
            "dlqId": "a",
            "failureFunctionState": "",
            "label": "",
            "labels": [],
            "header": header,
        },
        {"dlqId": "b"},
        {
            "dlqId": "c",
            "failureFunctionState": "",
            "label": "",
            "labels": [],
            "maxRetries": "odd",
        },
    ]
    server.always(json.dumps({"messages": entries}).encode())
    frame = tk.load_failures(server.service(), progress=False)
    names = ["failure_function_state", "label", "labels", "workflow_url", "caller_ip"]
    assert frame[names].isna().all(axis=None)
    assert list(json.loads(frame["headers"][0])) == ["content-type", "X-MiXed"]
    assert tk.explode_headers(frame)["name"].tolist() == ["content-type", "X-MiXed"]
