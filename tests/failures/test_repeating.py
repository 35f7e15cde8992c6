"""What fails again and again, and what became of failure functions."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from toolkit.analysis import failure_functions, repeat_offenders
from toolkit.errors import InputError
from toolkit.tables.frames import frame_from_rows, to_table
from toolkit.tables.schemas import FAILURES

START = datetime(2026, 3, 2, tzinfo=UTC)
HOUR = timedelta(hours=1)


def failures(*rows: dict[str, Any]) -> Any:
    """Failures of these fields, two hours apart unless they say when."""
    return frame_from_rows(
        [
            {"dlq_id": f"d{number}", "failed_at": START + 2 * number * HOUR, **row}
            for number, row in enumerate(rows)
        ],
        FAILURES,
    )


def test_offenders_of_each_kind() -> None:
    """A caller, run, destination and customer that fail on several occasions, with counts by hand."""
    body = json.dumps(
        {"customer_id": 7, "amount": 7, "order": {"orderId": "o1"}, "note": "x"}
    )
    rows = [
        {"caller_ip": "10.0.0.7", "url": "https://a.example/x", "body": body}
        for _ in range(3)
    ]
    rows += [
        {"caller_ip": f"10.0.1.{n}", "url": f"https://b.example/{n}", "body": "{}"}
        for n in range(4)
    ]
    rows += [
        {"workflow_run_id": "wfr_1", "label": "billing", "failed_at": START}
        for _ in range(5)
    ]
    frame = failures(*rows)
    for source in (frame, to_table(frame, FAILURES)):
        found = repeat_offenders(source)
        assert found[["kind", "value", "count", "occasions"]].values.tolist() == [
            ["destination", "https://a.example/x", 3, 3],
            ["caller", "10.0.0.7", 3, 3],
            ["entity", "customer_id=7", 3, 3],
            ["entity", "orderId=o1", 3, 3],
        ]
        caller = found.iloc[1]
        assert (caller["share"], caller["lift"]) == (3 / 12, 3 / (7 / 5))
        assert (caller["first_at"], caller["last_at"]) == (START, START + 4 * HOUR)
    burst = failures(
        *[{"label": "b", "failed_at": START + hour * HOUR} for hour in (0, 0.9, 1.8, 5)]
    )
    assert repeat_offenders(burst)["occasions"].tolist() == [2]
    assert len(repeat_offenders(frame, top=1)) == 3
    assert len(repeat_offenders(frame, least=4)) == 0


def test_addresses_without_queries_and_each_label() -> None:
    """A token in a query makes no other destination; of several labels each counts, else the single one."""
    rows = [
        {"url": f"https://a.example/x?token={n}#{n}", "labels": '["shop","eu"]'}
        for n in range(4)
    ]
    rows += [
        {"url": "https://a.example/x", "label": "shop", "labels": '["shop"]'},
        {"url": "https://b.example/"},
    ]
    found = repeat_offenders(failures(*rows))[
        ["kind", "value", "count", "lift"]
    ].values.tolist()
    assert found == [
        ["destination", "https://a.example/x", 5, 5 / 3],
        ["label", "shop", 5, 5 / 4.5],
        ["label", "eu", 4, 4 / 4.5],
    ]
    single = failures(*[{"label": "shop"}] * 3).drop(columns="labels")
    assert repeat_offenders(single)["value"].tolist() == ["shop"]


def test_hostile_bodies_and_secrets() -> None:
    """Deep, long, broken and secret bodies: no error, and no secret shown."""
    secret = "Bearer abcdefghijklmnopqrstuvwxyz0123456789"
    bodies = [
        "{" * 100_000,
        '{"a":' * 5_000,
        '{"id": "\\ud800"}',
        '{"id": ' + "1" * 5_000 + "}",
        "[1]",
        "",
        None,
    ]
    bodies += [json.dumps({"user_id": secret, "email": "x" * 1_000_000})] + [
        json.dumps({"user_id": secret})
    ] * 3
    found = repeat_offenders(failures(*[{"body": body} for body in bodies]))
    assert found["count"].tolist() == [3]
    assert "abcdefghijklmnop" not in found.to_csv()
    nothing = repeat_offenders(failures())
    assert (len(nothing), str(nothing["count"].dtype)) == (0, "Int64")
    for wrong in ({"least": 0}, {"top": 0}, {"least": "x"}):
        with pytest.raises(InputError):
            repeat_offenders(failures(), **wrong)
    with pytest.raises(InputError):
        repeat_offenders(None)


def test_failure_functions_by_workflow() -> None:
    """Failed, hanging, running, not yet run and never set ones, the workflow with most of them first."""
    states = [
        "CALLBACK_FAIL",
        "CALLBACK_INPROGRESS",
        "CALLBACK_INPROGRESS",
        "CALLBACK_SUCCESS",
        "",
        "NEW",
    ]
    rows = [
        {
            "workflow_url": "b",
            "failure_function_state": state,
            "failure_callback": "f",
            "failed_at": when,
        }
        for state, when in zip(
            states, [START] * 2 + [START + 23.5 * HOUR] + [START] * 3, strict=True
        )
    ]
    rows += [
        {"workflow_url": "a", "failure_function_state": "CALLBACK_CANCELED"},
        {"workflow_url": "a"},
    ]
    found = failure_functions(failures(*rows), now=START + 24 * HOUR)
    assert found.to_dict("records") == [
        {"workflow_url": "b", "count": 6, "failed": 1, "hanging": 1, "running": 1, "canceled": 0,
         "succeeded": 1, "no state": 1, "never set": 0, "other": 1},
        {"workflow_url": "a", "count": 2, "failed": 0, "hanging": 0, "running": 0, "canceled": 1,
         "succeeded": 0, "no state": 0, "never set": 1, "other": 0},
    ]  # fmt: skip
    assert (
        failure_functions(failures(*rows), now=START + 24 * HOUR, hanging="2d")[
            "hanging"
        ].sum()
        == 0
    )
    assert found.columns.name is None
    nothing = failure_functions(failures())
    assert (len(nothing), str(nothing["never set"].dtype)) == (0, "Int64")
    with pytest.raises(InputError, match="hanging"):
        failure_functions(failures(), hanging="soon")
