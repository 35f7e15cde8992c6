"""A plan is a value of exact entries: what is done with each, why, and what is left."""

from __future__ import annotations

import json
import re
import warnings
from contextlib import closing
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import toolkit as tk
from toolkit.errors import InputError, UnexpectedResultWarning
from toolkit.redrive.ledger import Ledger
from toolkit.redrive.results import result_of

URL = "https://shop.example.com/flows"


def failures(*rows: dict[str, object]) -> pd.DataFrame:
    """Failures with the columns that a plan reads; what is not given is like a bug of ``/pay``."""
    usual = {
        "workflow_url": f"{URL}/pay",
        "failed_at": pd.Timestamp("2026-11-20", tz="UTC"),
        "response_status": 500,
        "response_body": '{"error": "TypeError: total is not a function"}',
        "response_body_base64": None,
        "failure_function_state": None,
        "failure_callback": None,
        "body": '[{"n": 1}]',
    }
    made = [
        {**usual, "dlq_id": f"d{n}", "workflow_run_id": f"wfr_{n}", **row}
        for n, row in enumerate(rows)
    ]
    frame = pd.DataFrame(made)
    frame["created_at"] = frame["failed_at"] - pd.Timedelta("1min")
    texts = [
        "response_body",
        "response_body_base64",
        "failure_function_state",
        "failure_callback",
        "body",
    ]
    return frame.astype(dict.fromkeys(texts, "str") | {"response_status": "Int64"})


def decisions(plan: tk.RedrivePlan) -> dict[str, tuple[str, str]]:
    """Action and reason of each entry."""
    rows = plan.frame[["dlq_id", "action", "reason"]].itertuples(index=False)
    return {dlq_id: (action, reason) for dlq_id, action, reason in rows}


def test_everything_is_resumed_but_what_would_fail_again() -> None:
    """Poison input, contract drift, masked and truncated bodies are left, and each says why."""
    frame = failures(
        {},
        {
            "response_status": 422,
            "response_body": '{"error": "ValidationError: amount must be a number"}',
        },
        {"body": '[{"token": "REDACTED:0f"}]'},
        {"body": '[{"n": 1}, {"bo'},
        {"body": "plain text ["},
    )
    plan = tk.plan_redrive(frame)
    actions = {dlq_id: action for dlq_id, (action, _) in decisions(plan).items()}
    assert actions == {
        "d0": "resume",
        "d1": "leave",
        "d2": "leave",
        "d3": "leave",
        "d4": "resume",
    }
    reasons = {dlq_id: reason for dlq_id, (_, reason) in decisions(plan).items()}
    assert reasons["d1"].startswith("poison input")
    assert reasons["d2"].startswith("masked body")
    assert reasons["d3"].startswith("truncated body")
    wide = tk.plan_redrive(
        frame, include=["poison input", "masked body", "truncated body"]
    )
    assert set(wide.frame["action"]) == {"resume"}


def test_restarting_takes_a_statement() -> None:
    """Where an earlier step has changed a run is restarted, but only if that may be repeated."""
    frame = failures(
        {}, {"workflow_url": f"{URL}/ship"}, {"workflow_url": f"{URL}/mail"}
    )
    plan = tk.plan_redrive(
        frame, changed=[f"{URL}/ship", f"{URL}/mail"], idempotent=[f"{URL}/mail"]
    )
    assert decisions(plan) == {
        "d0": ("resume", "finished steps do not run again"),
        "d1": ("leave", "restarting repeats side effects: not stated to be idempotent"),
        "d2": ("restart", "an earlier step has changed, stated to be idempotent"),
    }
    resumed = tk.plan_redrive(frame, actions="resume", changed=[f"{URL}/ship"])
    assert decisions(resumed)["d1"] == (
        "leave",
        "an earlier step has changed: resuming is unsafe",
    )


def test_actions_are_chosen_by_group() -> None:
    """Groups that are not named are left; unknown groups and actions are errors that list the known ones."""
    frame = failures(
        {},
        {"response_body": '{"error": "disk full"}'},
        {"failure_callback": "https://a.example"},
    )
    group = tk.group_failures(frame).assign(frame)["signature"].iloc[0]
    plan = tk.plan_redrive(frame, actions={group: "failure function"})
    assert decisions(plan) == {
        "d0": ("leave", "it has no failure function"),
        "d1": ("leave", "as requested"),
        "d2": ("failure function", "as requested"),
    }
    with pytest.raises(InputError, match="actions"):
        tk.plan_redrive(frame, actions={"s3-nothing": "resume"})
    with pytest.raises(
        InputError, match="resume, restart, failure function, delete, or leave"
    ):
        tk.plan_redrive(frame, actions="retry")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="resume"):
        tk.plan_redrive(frame, actions={"s3-nothing": np.array(["resume", "delete"])})  # type: ignore[dict-item]


def test_messages_and_what_has_left_the_queue_are_left() -> None:
    """Plain messages have no run; rows of a snapshot may have left the queue."""
    frame = failures(
        {"workflow_run_id": None},
        {"gone_before": pd.Timestamp("2026-11-21", tz="UTC")},
        {},
    )
    assert decisions(tk.plan_redrive(frame, actions="delete")) == {
        "d0": ("leave", "it is a plain message, not a run"),
        "d1": ("leave", "it has left the queue"),
        "d2": ("delete", "as requested"),
    }


def test_what_expires_first_goes_first() -> None:
    """Groups by their first expiry, and entries within a group."""
    frame = failures(
        {"failed_at": pd.Timestamp("2026-11-21", tz="UTC")},
        {
            "response_body": "disk full",
            "failed_at": pd.Timestamp("2026-11-20", tz="UTC"),
        },
        {
            "response_body": "disk full",
            "failed_at": pd.Timestamp("2026-11-19", tz="UTC"),
        },
    )
    assert tk.plan_redrive(frame).frame["dlq_id"].tolist() == ["d2", "d1", "d0"]


def test_a_plan_is_the_same_whatever_the_order_of_rows() -> None:
    """Its hash, its confirmation and the hash of its source; another entry or limit makes another plan."""
    frame = failures(
        {}, {"response_body": "disk full"}, {"workflow_url": f"{URL}/ship"}
    )
    plan = tk.plan_redrive(frame)
    shuffled = tk.plan_redrive(frame.iloc[::-1])
    assert (shuffled.hash, shuffled.source) == (plan.hash, plan.source)
    times = dict.fromkeys(["failed_at", "created_at"], "datetime64[ns, UTC]")
    assert tk.plan_redrive(frame.astype(times)).source == plan.source
    assert plan.confirmation == f"3-{plan.hash[:16]}"
    assert tk.plan_redrive(frame.iloc[:2]).hash != plan.hash
    assert tk.plan_redrive(frame, wave=7).hash != plan.hash


@pytest.mark.slow
def test_an_entry_is_decided_alone_as_among_others() -> None:
    """Entries that are alike are decided once: each as if it were the only one, whatever stands beside it."""
    choices = {
        "workflow_run_id": ["wfr_a", None],
        "gone_before": [pd.NaT, pd.Timestamp("2026-11-21", tz="UTC")],
        "workflow_url": [f"{URL}/pay", f"{URL}/ship", f"{URL}/mail"],
        "failure_callback": ["https://a.example", None],
        "body": ['[{"n": 1}]', '[{"token": "REDACTED:0f"}]', '[{"n": 1}, {"bo', None],
    }
    every = [
        dict(zip(choices, values, strict=True)) for values in product(*choices.values())
    ]
    frame = failures(*every, *every[::-1])
    for actions in (None, "resume", "restart", "failure function", "delete"):
        options = {
            "actions": actions,
            "changed": [f"{URL}/ship"],
            "idempotent": [f"{URL}/mail"],
        }
        plan = decisions(tk.plan_redrive(frame, **options))  # type: ignore[arg-type]
        for number in range(0, len(frame), 7):
            with warnings.catch_warnings(
                action="ignore", category=UnexpectedResultWarning
            ):
                alone = tk.plan_redrive(frame.iloc[[number]], **options)  # type: ignore[arg-type]
            assert decisions(alone) == {f"d{number}": plan[f"d{number}"]}
        assert all(
            plan[f"d{n}"] == plan[f"d{len(frame) - 1 - n}"] for n in range(len(every))
        )


def test_a_plan_is_saved_read_compared_and_printed(tmp_path: Path) -> None:
    """What is read is what was saved; an edited file is refused; its code makes it again."""
    frame = failures(
        {}, {"response_body": "disk full", "failure_function_state": "CALLBACK_FAIL"}
    )
    plan = tk.plan_redrive(frame, stop_above=0.5, deadline="90s", rate=5)
    path = plan.save(tmp_path / "plan.json")
    read = tk.RedrivePlan.read(path)
    pd.testing.assert_frame_equal(read.frame, plan.frame)
    assert (read.hash, read.limits, read.options) == (
        plan.hash,
        plan.limits,
        plan.options,
    )
    content = json.loads(path.read_bytes())
    content["entries"][0]["action"] = "delete"
    path.write_text(json.dumps(content))
    with pytest.raises(InputError, match="edited"):
        tk.RedrivePlan.read(path)
    path.write_text('{"format": 7}')
    with pytest.raises(InputError, match=r"plan\.save"):
        tk.RedrivePlan.read(path)
    other = tk.plan_redrive(frame, actions="delete")
    assert plan.diff(other)["after"].tolist() == ["delete", "delete"]
    assert plan.diff(read).empty
    code = plan.to_code().partition("\ntk.run_redrive(")[0]
    made: dict[str, object] = {"tk": tk, "failures": frame}
    exec(code, made)  # noqa: S102 - code of this package
    assert made["plan"].hash == plan.hash  # type: ignore[attr-defined]


def test_the_code_of_many_entries_needs_no_file() -> None:
    """It makes the plan again of the same failures; of others it makes one that is refused."""
    frame = failures(
        *({"response_body": f"disk {number} full"} for number in range(60))
    )
    plan = tk.plan_redrive(frame, wave=7)
    assert len(plan.to_code()) < 1_000
    for given, same in ((frame, True), (frame.iloc[1:], False)):
        made: dict[str, object] = {"tk": tk, "failures": given}
        exec(plan.to_code().partition("\ntk.run_redrive(")[0], made)  # noqa: S102 - code of this package
        assert (made["plan"].confirmation == plan.confirmation) is same  # type: ignore[attr-defined]
    assert f"confirm={plan.confirmation!r}" in plan.to_code()


def test_a_preview_of_many_groups_fits_on_a_screen() -> None:
    """Of 60 workflows 20 rows are shown, with how many there are; columns of sentences share a width."""
    plan = tk.plan_redrive(
        failures(*({"workflow_url": f"{URL}/{number}"} for number in range(60)))
    )
    html = plan._repr_html_()
    assert html.count("<tr>") == 21
    assert "20 of 60 rows of .groups" in html
    wide = r"text-align:left;min-width:(\d+)em;overflow-wrap:anywhere"
    width = re.search(f'<td style="{wide}">finished steps do not run again</td>', html)[
        1
    ]  # type: ignore[index]
    assert 8 <= int(width) <= 14
    assert len(repr(plan).splitlines()) == 23


def test_a_result_of_many_groups_fits_on_a_screen(tmp_path: Path) -> None:
    """Of 60 workflows that wait for their run, a notebook shows 20 rows and how many there are."""
    plan = tk.plan_redrive(
        failures(*({"workflow_url": f"{URL}/{number}"} for number in range(60)))
    )
    with closing(Ledger(tmp_path / "redrive.sqlite", make=True)) as ledger:
        result = result_of(plan, ledger)
    assert len(result.groups) == 60
    assert result._repr_html_().count("<tr>") == 21
    assert "20 of 60 rows of .groups" in result._repr_html_()
    assert len(repr(result).splitlines()) == 22


def test_a_preview_names_groups_and_reasons() -> None:
    """In a repr and in HTML: how many, what is done, why, and what to confirm; nothing of data is HTML."""
    frame = failures({}, {"response_body": "<script>alert(1)</script>"})
    plan = tk.plan_redrive(frame)
    assert repr(plan).startswith(f"2 failures: resume 2; confirm='{plan.confirmation}'")
    html = plan._repr_html_()
    assert plan.confirmation in html
    assert "<script>" not in html
    assert list(plan.groups.columns) == [
        "group", "title", "class", "workflow_url", "action", "reason", "count", "first_expiry",
        "advice",
    ]  # fmt: skip


def test_a_snapshot_makes_the_same_plan_as_its_frame(tmp_path: Path) -> None:
    """By its path, by what `open_snapshot` returns, and as an Arrow table."""
    frame = failures(
        {}, {"response_body": "disk full"}, {"body": '[{"token": "REDACTED:0f"}]'}
    )
    plan = tk.plan_redrive(frame)
    tk.write_snapshot(frame, tmp_path / "kept")
    for same in (
        tmp_path / "kept",
        tk.open_snapshot(tmp_path / "kept").to_arrow(),
        pa.Table.from_pandas(frame),
    ):
        made = tk.plan_redrive(same)
        assert (made.hash, made.source) == (plan.hash, plan.source)
        pd.testing.assert_frame_equal(made.frame, plan.frame)
    with pytest.raises(InputError, match="planning a redrive"):
        tk.plan_redrive(tmp_path / "nothing")


def test_frames_without_columns_and_without_rows() -> None:
    """A missing column is named; no failures make an empty plan."""
    frame = failures({})
    with pytest.raises(InputError, match="workflow_run_id"):
        tk.plan_redrive(frame.drop(columns="workflow_run_id"))
    empty = tk.plan_redrive(frame.iloc[:0])
    assert (len(empty.frame), empty.confirmation[:2]) == (0, "0-")
    assert repr(empty) == empty.verdict
    assert repr(empty).startswith("0 failures: nothing to do")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("canaries", 0), ("wave", 1.5), ("stop_above", 2), ("stop_above", -1), ("deadline", "soon"),
        ("rate", 0), ("parallelism", "many"), ("include", ["bug"]), ("history", "no-such.sqlite"),
        ("retention", "x"), ("actions", 7),
    ],
)  # fmt: skip
def test_bad_arguments_are_named(name: str, value: object) -> None:
    """Each is an `InputError` that names the argument, or the file."""
    with pytest.raises(InputError, match=f"{name}|ledger"):
        tk.plan_redrive(failures({}), **{name: value})  # type: ignore[arg-type]


def test_a_plan_is_no_table_and_names_its_frame() -> None:
    """A plan is no table: its error names code that runs."""
    plan = tk.plan_redrive(failures({}))
    with pytest.raises(TypeError, match=r"try \.frame\.iloc\[0\]"):
        plan[0]
    with pytest.raises(AttributeError, match=r"try \.frame\.head"):
        plan.head()
