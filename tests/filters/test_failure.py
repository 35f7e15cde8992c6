"""Failure filters: times, values, matching, and the code that makes them again."""

from __future__ import annotations

import dataclasses
import inspect
import json
import types
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given

from tests.filters.strategies import failure_filters
from toolkit.errors import InputError
from toolkit.filters.failure import FailureFilter
from toolkit.filters.failure_fields import FIELDS
from toolkit.secrets.redaction import Redactor
from toolkit.tables.schemas import FAILURES

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
tk = types.SimpleNamespace(FailureFilter=FailureFilter)


@given(failure_filters())
def test_code_makes_an_equal_filter(chosen: FailureFilter) -> None:
    """The code of any filter, run, makes an equal one; so does pickling by its scope's JSON."""
    assert eval(chosen.to_code(), {"tk": tk}) == chosen  # noqa: S307 - the code is ours
    assert FailureFilter(**json.loads(json.dumps(chosen.scope()))) == chosen
    assert chosen.is_empty == (chosen == FailureFilter())


def test_both_ages_count_from_the_same_time() -> None:
    """Without a clock given, since and until of the same age are the same time, close to now."""
    chosen = FailureFilter(since="1h", until="1h")
    assert chosen.since == chosen.until
    assert chosen.since is not None
    assert abs(datetime.now(UTC) - timedelta(hours=1) - chosen.since) < timedelta(
        minutes=1
    )


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"since": "1h", "until": "2h"}, "after until"),
        ({"label": ""}, "'' for label"),
        ({"label": ["a", ""]}, "'' for label"),
        ({"label": 5}, "5 for label"),
        ({"label": ["a", 5]}, "5 for label"),
        ({"label": b"a"}, "bytes"),
        ({"label": {"a": 1}}, "dict"),
        ({"label": "\ud800"}, "surrogate"),
        ({"label": []}, "no value for label.*at least one"),
        ({"response_status": np.array([], dtype=int)}, "no value for response_status"),
        ({"label": pd.DataFrame({"label": ["a"]})}, "DataFrame for label"),
        ({"workflow_run_id": ""}, "'' for workflow_run_id"),
        ({"response_status": 5000}, "5000 for response_status"),
        ({"response_status": "500"}, "'500' for response_status"),
        ({"response_status": [500, "429"]}, "'429' for response_status"),
        ({"response_status": True}, "True for response_status"),
        ({"response_status": 500.0}, "500.0 for response_status"),
        ({"error": ""}, "'' for error"),
        ({"workflow_run_id": ["a"]}, "list"),
        ({"workflow_created_at": "7d"}, "workflow_created_at.*one exact time"),
        ({"workflow_created_at": "2026-01-01"}, "workflow_created_at.*one exact time"),
        ({"since": "tomorrow"}, "reading since"),
        ({"until": 1_767_225_600}, "reading until.*milliseconds"),
    ],
)
def test_invalid_filters_are_refused(arguments: dict[str, Any], says: str) -> None:
    """Contradictory times and values that are empty or no text are InputErrors that name them."""
    with pytest.raises(InputError, match=says):
        FailureFilter(**arguments, now=NOW)


def test_values_are_normalised() -> None:
    """One text is one value, duplicates go, order stays, sets are sorted, None is nothing, text is plain."""
    chosen = FailureFilter(
        label=["b", "a", "b"],
        workflow_url="http://x",
        caller_ip=None,
        flow_control_key={"z", "y"},
    )
    assert chosen.label == ("b", "a")
    assert chosen.workflow_url == ("http://x",)
    assert chosen.caller_ip == ()
    assert chosen.flow_control_key == ("y", "z")
    assert FailureFilter(label=pd.Series(["a", "b"])).label == ("a", "b")
    assert hash(chosen) == hash(dataclasses.replace(chosen))
    with pytest.raises(dataclasses.FrozenInstanceError):
        chosen.label = ()  # type: ignore[misc]


ENTRY = {
    "workflowUrl": "http://app/a,b",
    "labels": ["x", "y"],
    "label": "old",
    "failureFunctionState": "CALLBACK_FAIL",
    "callerIP": "10.0.0.1",
    "flowControlKey": "k",
    "workflowRunId": "wfr_1",
    "workflowCreatedAt": 1767225600001,
    "createdAt": 5,
    "responseStatus": 500,
    "responseBody": '{"error": "TimeoutError: no response of \\u00c4rzte"}',
}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, True),
        ({"workflow_url": "http://app/a,b"}, True),
        ({"workflow_url": "http://app/a"}, False),
        ({"label": ["q", "y"]}, True),
        ({"label": "old"}, True),
        ({"label": "x,y"}, False),
        ({"failure_function_state": ["CALLBACK_SUCCESS", "CALLBACK_FAIL"]}, True),
        ({"failure_function_state": "CALLBACK_SUCCESS"}, False),
        ({"caller_ip": "10.0.0.1", "flow_control_key": "k"}, True),
        ({"caller_ip": "10.0.0.1", "flow_control_key": "other"}, False),
        ({"workflow_run_id": "wfr_1"}, True),
        ({"workflow_run_id": "wfr_2"}, False),
        ({"workflow_created_at": "2026-01-01T00:00:00.001Z"}, True),
        ({"workflow_created_at": "2026-01-01T00:00:00.002Z"}, False),
        ({"since": "2026-01-01T00:00:00Z"}, True),
        ({"response_status": [429, 500]}, True),
        ({"response_status": 429}, False),
        ({"error": "timeout"}, True),
        ({"error": ["refused", "response of ärzte"]}, True),
        ({"error": "refused"}, False),
        ({"error": '{"error"'}, False),
    ],
)
def test_matching_an_entry(arguments: dict[str, Any], expected: object) -> None:
    """Values of one part are OR, parts are AND, the deprecated label counts, dates are left out."""
    assert FailureFilter(**arguments).matches(ENTRY) is expected
    if arguments and "since" not in arguments:
        assert not FailureFilter(**arguments).matches({})
        assert not FailureFilter(**arguments).matches(
            {"labels": None, "label": {"x": 1}}
        )


def test_an_error_is_read_from_a_body_in_base64() -> None:
    """A body in base64 is compared as the column `error` shows it; what is not base64 has no error."""
    assert FailureFilter(error="boom").matches({"responseBodyBase64": "Ym9vbQ=="})
    assert FailureFilter(error="binary, 5 bytes").matches(
        {"responseBodyBase64": "Ym9vbf8="}
    )
    assert FailureFilter(error="empty body").matches({"responseBodyBase64": "Ym9vb"})
    assert not FailureFilter(error="boom").matches({"responseBodyBase64": "Ym9vb"})


def test_the_service_is_not_sent_status_and_error() -> None:
    """Statuses may be numbers of numpy and pandas; neither part can be sent."""
    chosen = FailureFilter(
        response_status=pd.Series([500, 429], dtype="Int64"), error="timeout"
    )
    assert chosen.response_status == (500, 429)
    assert chosen.unsendable == ("response_status", "error")
    assert eval(chosen.to_code(), {"tk": tk}) == chosen  # noqa: S307 - the code is ours


def test_parts_with_a_comma_cannot_be_sent() -> None:
    """Only parts with several values are ambiguous with a comma in a value."""
    chosen = FailureFilter(
        label=["a", "b,c"], workflow_url="http://x/?a=1,2", workflow_run_id="a,b"
    )
    assert chosen.unsendable == ("workflow_url", "label")
    assert FailureFilter(label="a").unsendable == ()


def test_repr_is_short() -> None:
    """The repr shows at most three values a part; the code shows them all."""
    chosen = FailureFilter(label=[f"l{number}" for number in range(100)])
    assert repr(chosen) == "FailureFilter(label=('l0', 'l1', 'l2', … 97 more))"
    assert "'l99'" in chosen.to_code()
    assert repr(FailureFilter()) == "FailureFilter()"


def test_a_row_of_a_frame_matches_as_its_entry_does():
    """A Series, a named tuple or a dict of columns; a column that is missing is an error, a value is not."""
    row = {
        "dlq_id": "a", "workflow_url": "https://a.example/w", "labels": '["eu","beta"]', "label": None,
        "failure_function_state": float("nan"), "response_status": 500, "error": "TimeoutError: no response",
        "workflow_created_at": pd.Timestamp("2026-01-01T00:00:00Z"),
    }  # fmt: skip
    series, (named,) = pd.Series(row), pd.DataFrame([row]).itertuples(index=False)
    for kind in (row, series, named):
        assert FailureFilter(label="beta", workflow_url="https://a.example/w").matches(
            kind
        )
        assert FailureFilter(response_status=500, error="timeout").matches(kind)
        assert FailureFilter(workflow_created_at="2026-01-01T00:00:00Z").matches(kind)
        assert not FailureFilter(label="us").matches(kind)
        assert not FailureFilter(failure_function_state="CALLBACK_FAIL").matches(kind)
        with pytest.raises(InputError, match="without caller_ip"):
            FailureFilter(caller_ip="192.0.2.1").matches(kind)
    assert not FailureFilter(response_status=500).matches(
        pd.Series(row | {"response_status": pd.NA})
    )
    with pytest.raises(InputError, match="got int"):
        FailureFilter(label="us").matches(7)


def test_the_field_table_and_the_filter_agree():
    """Every attribute of a filter is in the table, is a column of frames, and the other way round."""
    assert set(FIELDS) == {item.name for item in dataclasses.fields(FailureFilter)}
    assert set(FIELDS) == set(inspect.signature(FailureFilter).parameters) - {
        "now",
        "unknown",
    }
    assert all(set(field.columns) & set(FAILURES.names) for field in FIELDS.values())


def test_an_unknown_argument_names_the_one_that_was_meant():
    """A bare TypeError would not tell that the column's name is response_status."""
    with pytest.raises(InputError, match="'response_status'"):
        FailureFilter(status=500)


def test_a_filter_has_all_that_a_load_needs():
    """The range in milliseconds, the masked scope, and the fields that are compared here with the reason."""
    chosen = FailureFilter(since=datetime(2026, 1, 1, tzinfo=UTC), response_status=500)
    part = chosen.for_load(Redactor())
    assert chosen.span == (1_767_225_600_000, None)
    assert part.scope == {"since": "2026-01-01T00:00:00.000Z", "response_status": [500]}
    assert part.compared_here.keys() == {"response_status"}
    assert part.keep is not None
    assert [part.keep({"responseStatus": status}) for status in (500, 404)] == [
        True,
        False,
    ]
    assert FailureFilter(label="a").for_load(Redactor()).keep is None
    # a filter is checked once, when it is made
    assert FailureFilter.of(chosen) is chosen


def test_labels_that_are_not_json_are_named() -> None:
    """A row whose labels are plain text raises an error that names the column and an example."""
    with pytest.raises(InputError, match=r"labels.*JSON list"):
        FailureFilter(label="eu").matches({"dlq_id": "a", "labels": "eu, beta"})
