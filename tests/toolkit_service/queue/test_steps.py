"""Positions of posted steps, read from any posted body; and conditions in SQL."""

from __future__ import annotations

import json
import sqlite3

from hypothesis import given
from hypothesis import strategies as st

from toolkit_service.api import ApiError, read_as
from toolkit_service.queue.listing import starts_with, where
from toolkit_service.queue.messages import Message, Settings, WorkflowHeaders
from toolkit_service.queue.runs import WaitRequest
from toolkit_service.queue.steps import position_of, split_invocation

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=9), inner, max_size=3)
    ),
    max_leaves=6,
)
FIELDS = [
    "stepId",
    "targetStep",
    "concurrent",
    "url",
    "step",
    "timeout",
    "headers",
    "body",
    "workflowUrl",
]
BODIES = st.binary(max_size=40) | st.dictionaries(st.sampled_from(FIELDS), JSON).map(
    lambda actual: json.dumps(actual).encode()
)


@given(body=BODIES)
def test_any_posted_step_has_a_position_or_none(body: bytes) -> None:
    """Nothing is raised, and a step that does not name its position has no name."""
    position = position_of(body)
    assert (position.name is None) == (position.step_id is None)


@given(number=st.integers(1, 10**6), target=st.integers(1, 10**6))
def test_plans_and_results_have_different_names(number: int, target: int) -> None:
    """A plan is named by its target step, a result by itself; they are never the same step."""
    plan = position_of(
        json.dumps({"stepId": 0, "targetStep": target, "concurrent": 2}).encode()
    )
    result = position_of(
        json.dumps({"stepId": number, "stepName": "s", "out": "1"}).encode()
    )
    assert plan.name == f"plan {target}"
    assert result.name == f"result {number}"


@given(body=BODIES)
def test_any_wait_and_any_invocation_is_read_or_an_error(body: bytes) -> None:
    """Nothing but an API error with 400 is raised."""
    settings = Settings(
        url="http://127.0.0.1:9/",
        workflow=WorkflowHeaders(run_id="w", init=True, invoke=True),
    )
    message = Message(
        id="m",
        kind="step",
        prefix="Service-",
        settings=settings,
        created_at=0,
        not_before=0,
        body=body,
    )
    try:
        value = json.loads(body)
    except ValueError:
        value = None
    for read in (
        lambda: split_invocation(message),
        lambda: read_as(value, WaitRequest).timeout_ms,
    ):
        try:
            read()
        except ApiError as error:
            assert error.status == 400  # noqa: PT017 - either outcome is right


@given(
    rows=st.lists(st.tuples(st.integers(0, 9), st.sampled_from("abc%_'")), max_size=12),
    least=st.none() | st.integers(0, 9),
    most=st.none() | st.integers(0, 9),
    names=st.lists(st.sampled_from("abc%_'"), max_size=3),
    starts=st.lists(st.sampled_from(["", "a", "%", "_", "'"]), max_size=2),
)
def test_conditions_find_what_they_say(
    rows: list[tuple[int, str]],
    least: int | None,
    most: int | None,
    names: list[str],
    starts: list[str],
) -> None:
    """Against a plain filter in Python; values with the wildcards and quotes of SQL are just text."""
    wanted, values = where(
        ("n >= {}", least),
        ("n <= {}", most),
        ("t IN ({})", names),
        starts_with("t", starts),
    )
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE r (n INTEGER, t TEXT)")
    connection.executemany("INSERT INTO r VALUES (?, ?)", rows)
    actual = connection.execute(
        f"SELECT n, t FROM r WHERE {wanted} ORDER BY rowid",  # noqa: S608 - what is tested
        values,
    )
    expected = [
        (n, t)
        for n, t in rows
        if (least is None or n >= least)
        and (most is None or n <= most)
        and (not names or t in names)
        and (not starts or t.startswith(tuple(starts)))
    ]
    assert actual.fetchall() == expected
    connection.close()
