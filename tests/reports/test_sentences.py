"""What the sentences of a report say is true of histories whose rises are known."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import dask.dataframe
import duckdb
import numpy as np
import pandas as pd
import pytest

import toolkit as tk
from tests.reports.conftest import failures
from toolkit.analysis import find_incidents
from toolkit.reports.failure_report import report_failures
from toolkit.reports.sections import ReportCode
from toolkit.tables.frames import to_table
from toolkit.tables.schemas import FAILURES

START = datetime(2026, 9, 1, tzinfo=UTC)
NOW = START + timedelta(days=14)
FLOWS = [f"https://shop.example/flows/{number}" for number in range(40)]
USUAL = ["TypeError: a", "disk full", "deadlock detected", "timeout"]
CALM = (0, 336, 2000, FLOWS, USUAL)


def told(*parts, seed=1):
    """A frame of parts: from and until in hours, how many, of which workflows, and what they say."""
    random = np.random.default_rng(seed)
    rows = [
        {"failed_at": when, "created_at": when, "workflow_url": str(random.choice(flows)),
         "workflow_run_id": f"wfr_{position}_{number}", "response_status": 500,
         "response_body": str(random.choice(texts)), "labels": random.choice(['["free"]', '["pro"]'])}
        for position, (first, last, count, flows, texts) in enumerate(parts)
        for number, hour in enumerate(np.sort(random.uniform(first, last, count)))
        for when in [START + timedelta(seconds=round(hour * 3600))]
    ]  # fmt: skip
    rows.sort(key=lambda row: row["failed_at"])
    frame = failures(rows)
    frame.attrs.clear()
    return frame


def reported(frame, **options):
    """A report on it, at the end of the history."""
    return report_failures(frame, now=NOW, retention="30d", **options)


@pytest.fixture(scope="module")
def many():
    """A rise in all workflows."""
    return told(CALM, (226, 228, 300, FLOWS, ["Too Many Requests"]))


@pytest.mark.slow
def test_a_rise_in_many_workflows_counts_them(many):
    """All, and the one with the most by name; up to five are named."""
    rose = many[many["response_body"] == "Too Many Requests"][
        "workflow_url"
    ].value_counts()
    (incident,) = find_incidents(many).itertuples()
    assert incident.workflow_count == len(rose) > 30
    assert len(incident.workflows) == 5
    report = reported(many)
    first = re.search(
        rf"Requests, in {len(rose)} workflows, the most in (\S+): 300 failures",
        report.verdict,
    )
    assert rose[first[1]] == rose.max()
    four = reported(told(CALM, (226, 228, 300, FLOWS[:4], ["Too Many Requests"])))
    assert set(re.findall(r"\S+/flows/\d+", four.verdict)) == {*FLOWS[:4]}


def test_workflows_of_a_sample_are_at_least_so_many(many, monkeypatch):
    """A sample may lack some."""
    monkeypatch.setattr("toolkit.reports.evidence.MOST", 1_500)
    assert re.search(
        r"in at least \d\d workflows, the most in ", reported(many).verdict
    )


@pytest.mark.slow
def test_what_an_explanation_shares_is_said_once():
    """Neither a label that names it nor its workflow is repeated behind it."""
    frame = told(CALM, (226, 228, 300, FLOWS, USUAL))
    within = frame["failed_at"].between(
        START + timedelta(hours=226), START + timedelta(hours=228)
    )
    labelled = reported(frame.assign(labels=frame["labels"].mask(within, '["team"]')))
    assert "explanation is label = team, in 40 workflows" in labelled.verdict
    assert labelled.verdict.count("team") == 1
    one = reported(told(CALM, (226, 228, 300, FLOWS[:1], USUAL)))
    assert f"explanation is several errors, in {FLOWS[0]}: " in one.verdict


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("TypeError: x is not a function", "resume"),
        ("ValidationError: no amount", "leave"),
    ],
)
def test_a_report_recommends_what_the_plan_does(text, action):
    """For a bug and for poison input: one function decides, and the plan of an action follows it."""
    frame = told(CALM, (226, 228, 300, FLOWS, [text]))
    section = next(
        one for one in reported(frame).to_dict()["sections"] if one["name"] == "actions"
    )
    stated, code = section["parts"][0]["text"], section["parts"][1]["code"]
    chosen, plan = re.search(r"chosen = (.*)\nplan = (.*)\n", code).groups()
    space = {"tk": tk, "failures": frame}
    space["chosen"] = eval(chosen, space)  # noqa: S307 - users are meant to run it
    groups = eval(plan, space).groups  # noqa: S307 - users are meant to run it
    assert {*groups["action"]} == {action}
    assert all(advice in stated for advice in groups["advice"])


def test_the_share_of_an_incident_is_of_all_failures(many):
    """Also of those without a time, as the percentage of the report is."""
    undated = many.head(700).assign(dlq_id=[f"u{number}" for number in range(700)])
    undated[["failed_at", "created_at"]] = pd.NaT
    frame = pd.concat([many, undated], ignore_index=True)
    assert find_incidents(frame)["share"].tolist() == [300 / 3_000]
    assert "300 failures (10 %) from" in reported(frame).verdict


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["pandas", "arrow", "duckdb", "dask"])
def test_an_id_is_counted_once(engine):
    """Loads that share entries, concatenated, have the report of all entries, the later row of each."""
    calm = told(CALM)
    shared = calm[calm["failed_at"] > NOW - timedelta(days=2)]
    older = shared.assign(workflow_url="https://shop.example/earlier")
    frame = pd.concat([calm[~calm.index.isin(shared.index)], older, shared])
    other = {
        "pandas": lambda: frame,
        "arrow": lambda: to_table(frame.reset_index(drop=True), FAILURES),
        "duckdb": lambda: duckdb.from_arrow(
            to_table(frame.reset_index(drop=True), FAILURES)
        ),
        "dask": lambda: dask.dataframe.from_pandas(
            frame.reset_index(drop=True), npartitions=3, sort=False
        ),
    }[engine]()
    with dask.config.set(scheduler="synchronous"):
        report, once = reported(other), reported(calm)
    assert report.verdict == once.verdict
    assert report.numbers == once.numbers
    notices = [notice.text for notice in report.notices]
    assert f"Left out: {len(shared)} rows with the id of a later one." in notices
    assert not any("Left out" in notice.text for notice in once.notices)
    (scope,) = [one for one in report.sections if one.name == "scope"]
    code = next(part for part in scope.parts if isinstance(part, ReportCode))
    space = {"failures": frame}
    exec(code.code, space)  # noqa: S102 - users are meant to run it
    assert set(space["failures"].index) == set(calm.index)
    assert "https://shop.example/earlier" not in set(space["failures"]["workflow_url"])


def test_rows_without_an_id_are_all_counted():
    """A missing id repeats nothing, and neither frame is changed."""
    frame = told(CALM)
    frame["dlq_id"] = frame["dlq_id"].mask(frame.index < 500)
    copy = frame.copy()
    report = reported(frame, previous=pd.concat([frame, frame]))
    assert report.verdict.startswith("2,000 failures")
    assert not any("Left out" in notice.text for notice in report.notices)
    # rows without an id are not known to be the same
    assert report.numbers[0]["change"] == -500
    pd.testing.assert_frame_equal(frame, copy)


def test_a_rise_in_several_episodes_is_no_long_one():
    """The verdict, the explanation and the postmortem say how many there were, and between which times."""
    report = reported(
        told(
            CALM,
            *[(hour, hour + 1, 60, FLOWS[:1], ["row rejected"]) for hour in (50, 218)],
        )
    )
    times = "in 2 episodes between 2026-09-03 02:0. UTC and 2026-09-10 02:5. UTC"
    assert re.search(
        rf"row rejected, in {FLOWS[0]}: 120 failures \(6 %\) {times}; ", report.verdict
    )
    page = report.to_markdown()
    assert "| 1\\. row rejected (2 episodes) |" in page
    assert re.search(rf"\| When \| {times} \|", page)


@pytest.mark.slow
def test_each_form_says_only_what_it_has(many):
    """Markdown names the figures that it has not, and times left are those that the verdict sums."""
    report = reported(many)
    page = report.to_markdown()
    assert (
        "Failures over time: 2,300 failures in bars of 6 h (drawn in the HTML form)."
        in page
    )
    assert "(drawn in" not in report.to_html()
    assert re.search(r"The code selects (all )?300 failures", page)
    due = report_failures(many, now=NOW, retention="14d")
    rows = r"^\| (?:within 6 hours|in 6 to 24 hours) \| (\d+) \|"
    counts = [int(count) for count in re.findall(rows, due.to_markdown(), re.MULTILINE)]
    assert len(counts) == 2
    assert f"; {sum(counts)} expire within 24 hours." in due.verdict


def test_a_failure_without_a_workflow_is_in_none():
    """No name is made up for it."""
    lost = told(CALM, (226, 228, 300, FLOWS[:1], ["Too Many Requests"]))
    lost["workflow_url"] = lost["workflow_url"].mask(
        lost["response_body"] == "Too Many Requests"
    )
    assert (
        "Too Many Requests, in no known workflow: 300 failures"
        in reported(lost).verdict
    )
    assert find_incidents(lost)["workflow_count"].tolist() == [0]
    assert pd.isna(find_incidents(lost.assign(workflow_url="x"))["workflow_count"][0])
