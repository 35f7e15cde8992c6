"""The steps of runs, from the payloads of failed runs and from the run log."""

from __future__ import annotations

import base64
import json
import warnings

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import toolkit as tk
from toolkit.errors import InputError, UnexpectedResultWarning
from toolkit.secrets.redaction import Secret
from toolkit.tables.frames import frame_from_rows
from toolkit.tables.schemas import FAILURES, RUNS, STEPS


def b64(value: object) -> str:
    """Text, or a value as JSON, in base64."""
    raw = (
        value
        if isinstance(value, bytes)
        else (value if isinstance(value, str) else json.dumps(value)).encode()
    )
    return base64.b64encode(raw).decode()


def payload(initial: object, *steps: object) -> str:
    """The body of a delivery, as the service sends it."""
    items = [
        {"messageId": f"m{n}", "body": b64(item), "callType": "step"}
        for n, item in enumerate((initial, *steps))
    ]
    return json.dumps(items)


def failures(*bodies: str | None, **more: object) -> pd.DataFrame:
    """Failures with these bodies."""
    rows = [
        {"dlq_id": f"d{n}", "workflow_run_id": f"w{n}", "body": body, **more}
        for n, body in enumerate(bodies)
    ]
    return frame_from_rows(rows, FAILURES)


CHARGE = {
    "stepId": 1,
    "stepName": "charge",
    "stepType": "Run",
    "out": '{"paid": true}',
    "concurrent": 1,
}
CALL = {
    "stepId": 2, "stepName": "ask", "stepType": "Call", "concurrent": 1, "callUrl": "https://a.example/?k=canary",
    "callMethod": "POST", "out": '{"status": 201, "body": "fine"}',
}  # fmt: skip


def test_every_field_of_a_step_has_its_column():
    """The initial payload first, then each step; what has no column is in extra; URLs are masked."""
    plan = {
        "stepId": 0,
        "stepName": "b",
        "stepType": "Run",
        "targetStep": 3,
        "concurrent": 2,
    }
    wait = {
        "stepId": 4,
        "stepName": "w",
        "stepType": "Wait",
        "waitEventId": "e",
        "out": {"n": 1},
        "concurrent": 1,
    }
    steps = tk.explode_steps(
        failures(payload('{"order": 7}', CHARGE, CALL, plan, wait))
    )
    assert steps["dlq_id"].unique().tolist() == ["d0"]
    assert steps["position"].tolist() == [0, 1, 2, 3, 4]
    assert steps["step_id"].tolist() == [0, 1, 2, 0, 4]
    assert steps["step_name"].tolist() == ["init", "charge", "ask", "b", "w"]
    assert steps["step_type"].tolist() == ["Initial", "Run", "Call", "Run", "Wait"]
    assert steps["output"].tolist()[:3] == ['{"order": 7}', CHARGE["out"], CALL["out"]]
    assert steps["output"].isna().tolist() == [False, False, False, True, False]
    assert steps["output"][4] == '{"n": 1}'
    assert steps["message_id"].tolist() == [f"m{n}" for n in range(5)]
    assert steps["call_status"].dropna().tolist() == [201]
    assert steps["call_method"][2] == "POST"
    assert "canary" not in steps["call_url"][2]
    assert steps["target_step"].dropna().tolist() == [3]
    assert steps["concurrent"].tolist()[1:] == [1, 1, 2, 1]
    assert not steps["truncated"].any()
    assert json.loads(steps["extra"][4]) == {"waitEventId": "e"}
    assert steps.drop(columns="extra").iloc[:4]["call_type"].tolist() == ["step"] * 4


def test_bodies_that_are_no_steps_have_no_rows_and_a_notice():
    """Said once, with how many and what they are; the others are opened all the same."""
    frame = failures(
        payload("{}"), None, "plain", '{"a": 1}', "[1, 2]", "[]", "[hello", '[{"a": 1}]'
    )
    with pytest.warns(UnexpectedResultWarning) as warned:
        steps = tk.explode_steps(frame)
    assert steps["dlq_id"].tolist() == ["d0"]
    assert str(warned[0].message) == (
        "7 of 8 bodies contain no steps and have no rows: 2 arrays of something else, 2 empty, "
        "1 that are not JSON, 2 that are not a JSON array."
    )
    assert tk.explode_steps(frame.iloc[:0]).dtypes.to_dict() == steps.dtypes.to_dict()
    with pytest.raises(InputError, match="body"):
        tk.explode_steps(frame[["dlq_id"]])


def test_a_body_that_is_not_utf8_and_an_output_that_is_not_are_kept():
    """The first row of such a run has base64; a whole body in base64 is opened, too."""
    whole = payload(b"\xff\xfe", CHARGE)
    frame = failures(whole, None)
    frame.loc[1, "body_base64"] = b64(whole.replace("m1", "m1\u00ff").encode("latin-1"))
    steps = tk.explode_steps(frame)
    assert steps["output_base64"].tolist() == [
        b64(b"\xff\xfe"),
        *[steps["output_base64"][1]],
        b64(b"\xff\xfe"),
        *[steps["output_base64"][3]],
    ]
    assert steps["output"].tolist()[1::2] == [CHARGE["out"]] * 2
    assert steps["message_id"][3] == "m1\\udcff"


def test_outputs_are_exact_and_masked_where_they_are_shown():
    """As bodies are; our own tokens are masked in the values, too, and so are masks within base64."""
    own = Secret("own-token-0f3e9a71b2")
    shown = "password=hunter2secret"
    frame = failures(payload(shown, CHARGE | {"out": f"Bearer {own.reveal()}"}))
    steps = tk.explode_steps(frame)
    assert steps["output"][0] == shown
    assert "hunter2secret" not in repr(steps) + steps._repr_html_()
    assert own.reveal() not in steps.to_csv()
    masked = json.loads(frame["body"][0])
    masked[1]["body"] = masked[1]["body"][:60] + "[masked len=60 tag=00112233]"
    steps = tk.explode_steps(failures(json.dumps(masked)))
    assert steps["step_name"].tolist() == ["init", "charge"]
    assert steps["truncated"].tolist() == [False, True]


WHOLE = payload(
    '{"order": "ünïcode"}',
    CHARGE,
    CALL,
    {"stepId": 3, "stepName": "n", "stepType": "Run", "out": "12345"},
)


@pytest.mark.slow
@given(st.integers(0, len(WHOLE)))
def test_a_truncated_body_is_read_as_far_as_it_goes(end: int):
    """Wherever it ends: no exception; what is there is the beginning of the whole; the last row says so."""
    whole = tk.explode_steps(failures(WHOLE))
    if end < len('[{"m'):
        with pytest.warns(UnexpectedResultWarning):
            assert tk.explode_steps(failures(WHOLE[:end])).empty
        return
    try:
        steps = tk.explode_steps(failures(WHOLE[:end]))
    except UnexpectedResultWarning:  # not even the id of the first message is there
        assert end < len('[{"messageId": "')
        return
    assert len(steps) <= len(whole)
    assert steps["truncated"].tolist() == [False] * (len(steps) - 1) + [
        end < len(WHOLE)
    ]
    pd.testing.assert_frame_equal(steps[:-1], whole[: max(0, len(steps) - 1)])
    last, expected = steps.iloc[-1], whole.iloc[len(steps) - 1]
    for name in (
        "step_name",
        "step_type",
        "output",
        "message_id",
        "call_url",
        "call_method",
    ):
        assert (
            pd.isna(last[name])
            or name == "call_url"
            or expected[name].startswith(last[name])
        )
    for name in ("step_id", "concurrent", "call_status"):
        assert pd.isna(last[name]) or last[name] == expected[name]


NAMES = st.sampled_from(["messageId", "body", "stepId", "out", "stepName", "a"])
ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4)
    ),
    max_leaves=8,
)


@pytest.mark.slow
@given(
    st.lists(
        ODD
        | st.fixed_dictionaries(
            {"messageId": ODD, "body": ODD.map(lambda value: b64(json.dumps(value)))}
        )
    )
)
def test_bodies_of_any_json_are_rows_or_a_notice(items: list[object]):
    """Whatever an application or a stranger sends: no exception, and the documented columns."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        steps = tk.explode_steps(failures(json.dumps(items)))
    assert list(steps) == STEPS.names
    assert len(steps) == (0 if said else len(items))


@pytest.mark.parametrize(
    "body",
    [
        "[" * 300_000,
        '[{"a":' * 100_000,
        "[" + "1," * 300_000,
        '["' + "\\" * 300_001,
        "[" + "{}" * 200_000,
    ],
    ids=["arrays", "objects", "numbers", "backslashes", "no commas"],
)
def test_a_large_body_that_is_malformed_takes_no_time(body: str):
    """Its length is read once, not once for each bracket in it."""
    with pytest.warns(UnexpectedResultWarning):
        assert tk.explode_steps(failures(body)).empty


def test_the_steps_of_the_run_log():
    """Groups of one and of parallel ones, with states, times and retries; runs without any have no row."""
    first = {
        "stepName": "init",
        "stepType": "Initial",
        "messageId": "m0",
        "state": "STEP_SUCCESS",
    }
    second = CHARGE | {
        "state": "STEP_SUCCESS",
        "createdAt": 1_767_225_600_000,
        "retries": 2,
    }
    groups = [
        {"steps": [first], "type": "sequential"},
        {"steps": [second, CALL | {"callResponseStatus": 500}], "type": "parallel"},
    ]
    rows = [
        {
            "workflow_run_id": "w1",
            "dlq_id": "d1",
            "extra": json.dumps({"steps": groups}),
        },
        {"workflow_run_id": "w2", "extra": None},
        {"workflow_run_id": "w3", "extra": '{"steps": [1, {"steps": 5}]}'},
    ]
    steps = tk.explode_steps(frame_from_rows(rows, RUNS))
    assert steps["workflow_run_id"].tolist() == ["w1"] * 3
    assert steps["status"].tolist()[:2] == ["STEP_SUCCESS"] * 2
    assert steps["call_status"].tolist()[2] == 500
    assert (steps["retries"][1], steps["created_at"][1]) == (
        2,
        pd.Timestamp("2026-01-01", tz="UTC"),
    )


def test_steps_are_kept_as_a_snapshot(tmp_path):
    """Read back the same, also from the failures' own snapshot."""
    frame = failures(
        payload("{}", CHARGE),
        workflow_url="https://a.example/",
        created_at=pd.Timestamp("2026-01-01", tz="UTC"),
    )
    steps = tk.explode_steps(frame)
    tk.write_snapshot(steps, tmp_path / "steps")
    tk.write_snapshot(frame, tmp_path / "failures")
    pd.testing.assert_frame_equal(tk.read_snapshot(tmp_path / "steps"), steps)
    pd.testing.assert_frame_equal(
        tk.explode_steps(tk.read_snapshot(tmp_path / "failures")), steps
    )
