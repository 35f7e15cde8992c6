"""Failed runs of a real service beside its successful ones: what differs except for how they ended."""

from __future__ import annotations

import base64
import json
import math
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import httpx
import pandas as pd
import pyarrow as pa
import pytest

import toolkit as tk
from tests.conftest import Asked, Reply, ScriptedServer, listening
from toolkit.errors import InputError
from toolkit_service.demo.local_service import LocalService

RUNS = 24
REASONS: dict[str, Callable[[dict[str, Any]], bool]] = {
    "/by-label": lambda order: order["number"] % 3 == 0,
    "/by-payload": lambda order: order["plan"] == "team",
    "/by-step": lambda order: order["gift"],
    "/by-chance": lambda order: order["number"] * 7 % 24 < 8,
}
"""Which orders fail, by the path of the workflow."""


@pytest.fixture(scope="module")
def local() -> Iterator[LocalService]:
    """An embedded service with a quick clock."""
    with LocalService(time_factor=1_000, indexes=[]) as running:
        yield running


@pytest.fixture(scope="module")
def runs(local: LocalService) -> pd.DataFrame:
    """The run log of four workflows, a third of whose runs fail for one reason each."""
    with listening() as server:
        serve(server, local)
        for path in REASONS:
            for number in range(RUNS):
                start(local, f"{server.url}{path}", number)
        service = tk.connect(queue_url=local.url, queue_token=local.token)
        deadline = time.monotonic() + 120
        while True:
            log = tk.load_runs(service, progress=False)
            if len(log) == RUNS * len(REASONS) and log["completed_at"].notna().all():
                return log
            assert time.monotonic() < deadline, log["state"].value_counts()
            time.sleep(0.2)


def serve(server: ScriptedServer, local: LocalService) -> None:
    """Serve an application: charge, wrap if the order is a gift, and then ship or fail."""
    bearer = {"Authorization": f"Bearer {local.token}"}

    def respond(asked: Asked) -> Reply:
        history = json.loads(asked.body)
        order = json.loads(base64.b64decode(history[0]["body"]))
        run = next(
            value
            for name, value in asked.headers.items()
            if name.lower() == "service-workflow-runid"
        )
        steps = ["charge", *(["wrap"] if order["gift"] else []), "ship"]
        done = len(history) - 1
        if done == len(steps) - 1 and REASONS[asked.path](order):
            return Reply(500, {}, b'{"error": "no carrier"}')
        if done == len(steps):
            address = f"{local.url}/v2/workflows/runs/{run}"
            httpx.delete(
                address, params={"cancel": "false"}, headers=bearer
            ).raise_for_status()
            return Reply(200, {}, b"{}")
        step = {
            "stepId": done + 1,
            "stepName": steps[done],
            "stepType": "Run",
            "concurrent": 1,
        }
        step["out"] = json.dumps({"plan": order["plan"], "number": order["number"]})
        headers = {"Service-Workflow-RunId": run, "Service-Workflow-Init": "false"}
        headers["Service-Workflow-Url"] = f"{server.url}{asked.path}"
        item = {
            "destination": f"{server.url}{asked.path}",
            "headers": headers,
            "body": json.dumps(step),
        }
        httpx.post(
            f"{local.url}/v2/batch", json=[item], headers=bearer
        ).raise_for_status()
        return Reply(200, {}, b"{}")

    server.respond = respond


def start(local: LocalService, url: str, number: int) -> None:
    """Start a run without retries, with a label, a payload and perhaps a gift."""
    label = "batch" if number % 3 == 0 else "web"
    order = {
        "number": number,
        "plan": "team" if number % 4 == 1 else "free",
        "gift": number % 5 in (0, 1),
    }
    headers = {
        "Authorization": f"Bearer {local.token}",
        "Service-Retries": "0",
        "Service-Label": label,
    }
    httpx.post(
        f"{local.url}/v2/trigger/{url}", json=order, headers=headers
    ).raise_for_status()


def sides(runs: pd.DataFrame, path: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Divide the runs of a workflow by how they ended."""
    own = runs[runs["workflow_url"].str.endswith(path)]
    failed = own["state"] == "RUN_FAILED"
    return own[~failed], own[failed]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "condition"),
    [
        ("/by-label", {"label": "batch"}),
        ("/by-payload", {"output of charge plan": "team"}),
        ("/by-step", {"step": "wrap"}),
    ],
)
def test_the_planted_reason_is_named(
    runs: pd.DataFrame, path: str, condition: dict[str, str]
) -> None:
    """A label, a field of the payload or a step, and not the state that divides the two sides."""
    succeeded, failed = sides(runs, path)
    found = tk.analysis.explain_change(succeeded, failed)
    first = found.frame.iloc[0]
    assert found.stands_out, found.frame
    assert condition in [first["condition"], *first["alternatives"]]
    assert first["observed"] == len(failed)
    selected = [len(found.select(failed, rank=rank)) for rank in found.frame["rank"]]
    assert selected == found.frame["observed"].tolist()
    assert {"state", "workflow_run_id"} & set(found.left_out)
    named = {name for each in found.frame["condition"] for name in each}
    assert not named & {
        "state",
        "completed_at",
        "dlq_id",
        "workflow_run_id",
        "created_at",
    }


@pytest.mark.slow
def test_runs_that_differ_in_nothing_else_are_reported_as_that(
    runs: pd.DataFrame,
) -> None:
    """The sentence names the columns that divide the sides, and nothing stands out."""
    found = tk.analysis.explain_change(*sides(runs, "/by-chance"))
    assert not found.stands_out
    assert "nothing differs" in repr(found)
    assert "state" in repr(found)


@pytest.mark.slow
def test_the_caller_names_what_divides_the_sides(runs: pd.DataFrame) -> None:
    """Without the label that was used to divide them, nothing differs."""
    own = runs[runs["workflow_url"].str.endswith("/by-chance")].drop(columns="state")
    is_batch = own["labels"].str.contains("batch")
    divided = own[~is_batch], own[is_batch]
    assert tk.analysis.explain_change(*divided, exposure=2).frame["condition"][0] == {
        "label": "batch"
    }
    found = tk.analysis.explain_change(*divided, apart_by=["label", "extra label"])
    assert found.left_out[:2] == ["label", "extra label"]
    assert not {"label", "extra label"} & {
        name for each in found.frame["condition"] for name in each
    }
    assert not found.stands_out


@pytest.mark.parametrize("apart_by", ["no such", ["state", "no such"], 5])
def test_an_unknown_column_is_named(apart_by: Any) -> None:
    """An `apart_by` that no frame has is an InputError that names it."""
    runs = pd.DataFrame({"state": ["a", "b"], "step": ["x", "y"]})
    with pytest.raises(InputError, match="apart_by"):
        tk.analysis.explain_change(runs[1:], runs[:1], apart_by=apart_by)


def run_log(plans: list[str], state: str) -> pd.DataFrame:
    """Return the run log of runs with a payload and two finished steps, one run per plan."""
    rows = []
    for number, plan in enumerate(plans):
        output = json.dumps({"plan": plan, "api_key": f"sk-{plan}-0123456789abcdef"})
        started = {"stepName": "init", "stepType": "Initial", "out": output}
        charged = {"stepName": "charge all", "stepType": "Run", "out": output}
        wrapped = {"stepName": f"wrap {plan}", "stepType": "Run"}
        steps = [{"steps": [step]} for step in (started, charged, wrapped)]
        extra = json.dumps({"steps": steps, "invocationCount": 3})
        # a run that was retried is in the log twice, with one id
        run = f"wfr_{number // 2}"
        rows.append(
            {"workflow_run_id": run, "dlq_id": f"{state}-{number}", "extra": extra}
        )
    return pd.DataFrame(rows).assign(state=state)


def test_each_condition_of_steps_selects_the_observed_runs() -> None:
    """Names of steps, fields of payloads and of outputs, also from Arrow and with a masked value."""
    failed = run_log(["team"] * 22 + ["free"] * 2, "RUN_FAILED")
    others = run_log(["team"] * 10 + ["free"] * 38, "RUN_SUCCESS")
    found = tk.analysis.explain_change(others, failed)
    named = {
        name
        for row in found.frame.itertuples()
        for condition in (row.condition, *row.alternatives)
        for name in condition
    }
    assert {"step", "payload plan", "output of charge all plan"} <= named
    for row in found.frame.itertuples():
        for condition in (row.condition, *row.alternatives):
            assert len(tk.select_failures(failed, condition)) == row.observed
        rows = found.select(pa.Table.from_pandas(failed), rank=row.rank)
        assert len(rows) == row.observed


KINDS: dict[str, Callable[[int], Any]] = {
    "number": lambda level: [429, None, 503][level],
    "fraction": lambda level: [0.5, 2.0, math.nan][level],
    "flag": lambda level: [True, False, None][level],
    "time": lambda level: datetime(2026, 3, 1 + level, tzinfo=UTC),
    "decimal": lambda level: Decimal(level) / 4,
    "list": lambda level: ["a", "b"][:level],
    "long text": lambda level: "x" * 500 + str(level),
    "secret": lambda level: f"Bearer abcdefghijklmnop{level}",
    "labels": lambda level: ['["eu", "us"]', '["us"]', "[]"][level],
    "headers": lambda level: json.dumps({"X-Region": ["eu"], "X-Level": level}),
    "body": lambda level: ['{"order": {"plan": "team"}}', "no JSON", None][level],
}


@pytest.mark.parametrize("name", KINDS)
def test_each_condition_selects_the_observed_rows(name: str) -> None:
    """Whatever kind of value a column contains, `select` finds as many rows as were observed."""
    before = [0, 1, 2] * 20
    after = [0] * 70 + [1] * 25 + [2] * 20
    sides = [
        pd.DataFrame({name: pd.Series([KINDS[name](level) for level in levels])})
        for levels in (after, before)
    ]
    # times are no attributes unless they are named
    attributes = ["time"] if name == "time" else None
    found = tk.analysis.explain_change(sides[1], sides[0], attributes=attributes)
    assert len(found.frame)
    selected = [len(found.select(sides[0], rank=rank)) for rank in found.frame["rank"]]
    assert selected == found.frame["observed"].tolist()


def test_sides_are_compared_by_shares() -> None:
    """Of 20 failed runs all have the label, of 400 others a tenth: fewer in number, and more in share."""
    failed = pd.DataFrame({"state": "RUN_FAILED", "label": ["beta"] * 20})
    others = pd.DataFrame(
        {"state": "RUN_SUCCESS", "label": ["beta"] * 40 + ["stable"] * 360}
    )
    found = tk.analysis.explain_change(others, failed)
    first = found.frame.iloc[0]
    assert found.stands_out
    assert (first["condition"], first["observed"]) == ({"label": "beta"}, 20)
    assert first["expected"] == pytest.approx(2)
    assert len(found.select(others)) == 40


def test_named_attributes_are_compared_whatever_divides_the_sides() -> None:
    """The state explains itself if it is asked for."""
    failed = pd.DataFrame({"state": ["RUN_FAILED"] * 20})
    others = pd.DataFrame({"state": ["RUN_SUCCESS"] * 80 + ["RUN_FAILED"]})
    found = tk.analysis.explain_change(others, failed, attributes=["state"], exposure=4)
    assert found.frame["condition"][0] == {"state": "RUN_FAILED"}
    assert found.left_out == []
