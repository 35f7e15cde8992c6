"""The section of a failure report on a redrive."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pandas as pd
import pytest

import toolkit as tk
from tests.reports.conftest import NOW, failures
from toolkit.errors import InputError
from toolkit.redrive.ledger import Ledger

ERRORS = {
    "pay": "TypeError: total is not a function",
    "mail": "<b>disk</b> full",
    "ship": "no stock",
}
SECRET = "token=ghp_0123456789abcdefghijABCDEFGHIJ012345"
OUTCOMES = {
    "pay": ["succeeded"] * 4,
    "mail": ["failed again", "stopped", "stopped", "stopped"],
    "ship": ["succeeded", "failed otherwise", "skipped", "running"],
}


@pytest.fixture
def frame() -> pd.DataFrame:
    """Four failures of each of three workflows."""
    return failures([
        {
            "dlq_id": f"{name}-{number}", "workflow_url": f"https://shop.example/{name}",
            "workflow_run_id": f"wfr_{name}_{number}", "created_at": NOW - timedelta(hours=2),
            "failed_at": NOW - timedelta(hours=1), "response_status": 500,
            "response_body": json.dumps({"error": text}),
        }
        for name, text in ERRORS.items()
        for number in range(4)
    ])  # fmt: skip


@pytest.fixture
def ledger(frame: pd.DataFrame, tmp_path: Path) -> Path:
    """A ledger in which the plan of these failures has run."""
    plan, path = tk.plan_redrive(frame), tmp_path / "redrive.sqlite"
    opened = Ledger(path, make=True)
    opened.add(plan)
    for entry in plan.acted.to_dict("records"):
        name, number = str(entry["dlq_id"]).split("-")
        state = OUTCOMES[name][int(number)]
        if state == "stopped":
            opened.stop(plan.hash, entry["group"], "1 of 1 run failed again (100 %)")
        elif state == "skipped":
            opened.skip(plan.hash, entry, "it is no longer in the DLQ")
        else:
            opened.intend(plan.hash, entry, f"wfr_redrive_{entry['dlq_id']}")
            back = state.startswith("failed")
            group = (
                entry["group"]
                if state == "failed again"
                else "s3-other"
                if back
                else None
            )
            opened.set(
                plan.hash, entry["dlq_id"], state, new_dlq_id=f"back-{entry['dlq_id']}" if back else None,
                new_group=group, reason=SECRET if state == "running" else None,
            )  # fmt: skip
    opened.close()
    return path


def tables(report: tk.results.FailureReport) -> dict[str, list[dict[str, object]]]:
    """The tables of the section by caption, as records."""
    (section,) = [
        section
        for section in report.to_dict()["sections"]
        if section["name"] == "redrive"
    ]
    return {
        part["table"]: [
            dict(zip(part["columns"], row, strict=True)) for row in part["rows"]
        ]
        for part in section["parts"]
        if "table" in part
    }


def test_what_succeeded_came_back_and_was_left(frame, ledger, options):
    """Each with how many, by group; what came back with its signature and an id, what was left with why."""
    report = tk.report_failures(frame, redrive=ledger, **options)
    done, back, left = tables(report).values()
    assert [(row["outcome"], row["entries"]) for row in done] == [
        ("succeeded", 4),
        ("succeeded", 1),
    ]
    assert {(row["workflow"].rsplit("/", 1)[-1], row["signature"], row["one of them"]) for row in back} == {
        ("mail", "the same", "back-mail-0"), ("ship", "s3-other", "back-ship-1"),
    }  # fmt: skip
    assert {(row["state"], row["entries"]) for row in left} == {
        ("running", 1), ("skipped", 1), ("stopped", 3),
    }  # fmt: skip
    assert "1 of 1 run failed again (100 %)" in {row["why"] for row in left}
    assert sum(row["entries"] for rows in (done, back, left) for row in rows) == len(
        frame
    )


@pytest.mark.slow
def test_every_form_shows_it_and_no_secret(frame, ledger, options):
    """HTML with a figure, Markdown and JSON; texts of data are escaped, and masked."""
    report = tk.report_failures(
        frame, redrive=tk.read_redrive_status(ledger), **options
    )
    html, markdown, text = report.to_html(), report.to_markdown(), report.to_json()
    for form in (html, markdown, text):
        assert "What came back, and with which signature" in form
        assert "back-mail-0" in form
        assert SECRET not in form
    assert "Outcomes of the redrive" in html
    assert "<b>disk</b>" not in html
    assert tk.report_failures(frame, redrive=ledger, **options).to_html() == html


def test_without_failures_it_is_shown_too(frame, ledger, options):
    """When all have succeeded the queue is empty, and the report still says what was done."""
    report = tk.report_failures(frame.iloc[:0], redrive=ledger, **options)
    assert len(tables(report)) == 3
    assert "redrive" not in [
        part["name"]
        for part in tk.report_failures(frame, **options).to_dict()["sections"]
    ]


def test_a_plan_of_nothing_has_a_sentence(frame, tmp_path, options):
    """No figure and no tables, but what was done."""
    plan = tk.plan_redrive(frame.iloc[:0])
    opened = Ledger(tmp_path / "empty.sqlite", make=True)
    opened.add(plan)
    opened.close()
    report = tk.report_failures(frame, redrive=tmp_path / "empty.sqlite", **options)
    (section,) = [section for section in report.sections if section.name == "redrive"]
    assert section.sentence == "Nothing to do: the plan has no entries."
    assert tables(report) == {}
    assert report.to_html()


def test_another_value_is_refused(frame, options):
    """With an error that names the argument."""
    with pytest.raises(InputError, match="redrive"):
        tk.report_failures(frame, redrive=7, **options)  # type: ignore[arg-type]
