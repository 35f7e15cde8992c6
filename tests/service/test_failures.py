"""Acting on exact DLQ entries: accepted ids, and reports when nothing or not everything was done."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest

import toolkit as tk
from toolkit.errors import (
    InputError,
    ServerError,
    TransportError,
    UnexpectedResultWarning,
)

ACTIONS = (
    tk.delete_failures,
    tk.resume_failures,
    tk.restart_failures,
    tk.rerun_failure_functions,
)
FRAME = pd.DataFrame({"workflow_url": ["u", "u", "u"], "dlq_id": ["a", "b", "a"]})


def ids_asked(server) -> list[str]:
    """The ids that arrived, of deletions in the query and of the others in the path."""
    return [
        value
        for requested in server.requests
        for value in (
            [value for name, value in requested.query if name == "dlqIds"]
            or [requested.path.rsplit("/", 1)[-1]]
        )
    ]


@pytest.mark.parametrize(
    "given",
    [
        FRAME,
        FRAME["dlq_id"],
        pd.Index(["a", "b"]),
        FRAME.set_index("dlq_id").index,
        ["a", "b", "a"],
        ("a", "b"),
        "a generator",
        {"b", "a"},
    ],
    ids=lambda given: type(given).__name__,
)
@pytest.mark.parametrize("act", ACTIONS)
def test_ids_are_taken_from_whatever_holds_them(server, act, given):
    """A frame's dlq_id column, a Series, an Index, lists, tuples, generators and sets: each id once."""
    server.always(b'{"deleted": 2, "workflowRunId": "wfr_new"}')
    given = (item for item in "ab") if isinstance(given, str) else given
    result = act(server.service(), given, confirm=True)
    assert ids_asked(server) == ["a", "b"]
    assert result in (2, {"a": "wfr_new", "b": "wfr_new"}, None)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (
            pd.DataFrame({"dlqid": ["a"]}),
            "without the column 'dlq_id'.*Did you mean 'dlqid'",
        ),
        (pd.DataFrame({"dlq_id": ["a", None]}), "position 1"),
        (pd.DataFrame({"dlq_id": pd.Series([], dtype="str")}), "no ids"),
        ([], "no ids"),
        (None, "None"),
        (5, "got 5"),
        (["a", 5], "position 1"),
        (b"a", "bytes"),
        ({"a": 1}, "dict of 1"),
        ("", "''"),
        (["a\n"], "an id"),
        (tk.FailureFilter(label="x"), "FailureFilter"),
    ],
)
@pytest.mark.parametrize("act", ACTIONS)
def test_arguments_without_ids_are_refused_before_any_request(server, act, given, says):
    """Frames without the column, missing ids, nothing, filters: an error that names the argument."""
    with pytest.raises(InputError, match=f"reading dlq_ids?.*{says}"):
        act(server.service(), given, confirm=True)
    assert server.requests == []


@pytest.mark.parametrize("act", ACTIONS)
@pytest.mark.parametrize("confirm", [False, None, 1, "yes"])
def test_nothing_is_done_without_true_itself(server, act, confirm):
    """Only confirm=True confirms."""
    with pytest.raises(InputError, match="confirm=True"):
        act(server.service(), FRAME, confirm=confirm)
    assert server.requests == []


@pytest.mark.parametrize("act", ACTIONS)
def test_an_invalid_service_is_refused(act):
    """Forgetting the service is an error that says where one comes from."""
    with pytest.raises(
        InputError, match=r"reading service: got DataFrame.*connect\(\)"
    ):
        act(FRAME, "a", confirm=True)


def test_deleting_nothing_is_a_warning(server):
    """0 comes with a warning that says what may be the reason, and which DLQ was searched."""
    server.always(b'{"deleted": 0}')
    with pytest.warns(
        UnexpectedResultWarning, match="deleting 2 DLQ entries.*kind='messages'"
    ):
        assert tk.delete_failures(server.service(), FRAME, confirm=True) == 0
    with pytest.warns(
        UnexpectedResultWarning, match="failed messages.*kind='workflows'"
    ):
        tk.delete_failures(server.service(), FRAME, confirm=True, kind="messages")


def test_deleting_some_is_a_count(server):
    """Entries that were gone already are in the count alone."""
    server.always(b'{"deleted": 1}')
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert tk.delete_failures(server.service(), FRAME, confirm=True) == 1


def test_a_deletion_whose_first_response_was_lost_says_what_is_unknown(server):
    """The second try finds nothing to delete: the first one may have done it, and that is said."""
    server.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
    server.json(b'{"deleted": 0}')
    with pytest.warns(
        UnexpectedResultWarning, match="2 more may have been deleted by a try"
    ):
        assert tk.delete_failures(server.service(), FRAME, confirm=True) == 0


def test_a_deletion_whose_response_cannot_be_read_is_retried(server):
    """A success without a count: deleting twice is deleting once, and what is unknown is said."""
    server.json(b"{}")
    server.json(b'{"deleted": 0}')
    with pytest.warns(
        UnexpectedResultWarning, match="2 more may have been deleted by a try"
    ):
        assert tk.delete_failures(server.service(), FRAME, confirm=True) == 0


def test_a_later_batch_that_fails_says_what_was_done_before(server):
    """150 ids go in two requests; the error of the second carries the count of the first."""
    server.json(b'{"deleted": 97}')
    server.always(b'{"error": "no"}', 400)
    with pytest.raises(tk.errors.BadRequestError) as raised:
        tk.delete_failures(
            server.service(), [f"id-{number}" for number in range(150)], confirm=True
        )
    assert "97 of 150 entries were deleted" in raised.value.__notes__[0]
    assert "the 50 of this request" in raised.value.__notes__[0]


@pytest.mark.parametrize(
    "act", [tk.resume_failures, tk.restart_failures, tk.rerun_failure_functions]
)
def test_a_run_that_fails_halfway_says_what_was_done_and_what_is_unknown(server, act):
    """The note names what was done, whether the one that failed may have been, and how many are left."""
    server.json(b'{"workflowRunId": "wfr_new"}')
    server.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
    with pytest.raises(TransportError) as raised:
        act(server.service(), ["a", "b", "c"], confirm=True)
    (note,) = raised.value.__notes__
    assert note.startswith("Done before this (1 of 3): a")
    assert "b" in note
    assert "Not requested: 1." in note
    server.json(b'{"error": "no"}', 500)
    with pytest.raises(ServerError) as refused:
        act(server.service(), ["a"], confirm=True)
    assert "unknown" not in refused.value.__notes__[0]


@pytest.mark.parametrize("act", [tk.resume_failures, tk.restart_failures])
def test_plain_messages_are_not_resumed_and_nothing_is_sent(server, act):
    """Where the frame shows that an entry has no run: it says what to call instead."""
    mixed = pd.DataFrame(
        {"dlq_id": ["a", "b", "c"], "workflow_run_id": ["wfr_a", None, np.nan]}
    )
    with pytest.raises(
        InputError, match=r"ing 3 DLQ entries: got 2 .*plain messages.*publish"
    ) as raised:
        act(server.service(), mixed)
    assert 'kind="messages"' in str(raised.value)
    assert server.requests == []
    server.json(b'{"workflowRunId": "wfr_new"}')
    runs = mixed[mixed["workflow_run_id"].notna()]
    assert act(server.service(), runs, confirm=True) == {"a": "wfr_new"}


def test_an_id_that_contains_a_comma_is_deleted_by_a_request_of_its_own(server):
    """The service splits ids of a query at commas: "x,y" would delete two other entries."""
    server.always(b'{"deleted": 2}')
    assert tk.delete_failures(server.service(), ["x,y", "a", "b"], confirm=True) == 3
    together, alone = server.requests
    assert together.query == [("dlqIds", "a"), ("dlqIds", "b")]
    assert alone.query == []
    assert alone.path.endswith("/x%2Cy")


def test_an_id_that_contains_a_comma_may_be_gone(server):
    """A 404 of the single request counts as nothing deleted, and is reported as such."""
    server.always(b'{"error": "not found"}', status=404)
    with pytest.warns(UnexpectedResultWarning, match="gone already"):
        assert tk.delete_failures(server.service(), ["x,y"], confirm=True) == 0
