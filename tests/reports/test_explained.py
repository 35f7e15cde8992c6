"""The report that explains: what rose, where, with what in common, and when, without being told."""

from __future__ import annotations

import ast
import json
import re
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

import toolkit as tk
from tests.accuracy.histories import END, history
from tests.reports.conftest import failures
from toolkit.analysis import failure_functions, sample_failures
from toolkit.drawing.style import THEMES, drawing
from toolkit.redrive.choices import recommended
from toolkit.reports.failure_report import report_failures
from toolkit.reports.sections import ReportCode, ReportFigure, ReportText
from toolkit.secrets.redaction import Redactor, Secret
from toolkit.tables.failures import FailureDecoder
from toolkit.tables.frames import frame_from_rows, to_frame, to_table
from toolkit.tables.schemas import FAILURES
from toolkit_service.demo.history import APPLICATION, wire_entries

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)
STORIES = [  # workflow, what they share, hours before NOW: from, until
    ("orders/fulfil", "reading 'currency'", 124, 120.5),
    ("stock/reserve", "requests a minute", 329, 41),
    ("reports/render", "OutOfMemoryError", 240, 0),
    ("payments/capture", "nil pointer", 3, 0),
    ("legacy/sync", "Something went wrong", 336, 0),
]


@pytest.fixture(scope="module")
def sample():
    """The sample history, as it ends at NOW."""
    entries = wire_entries(int(NOW.timestamp() * 1000))
    return to_frame(FailureDecoder(None).decode(json.dumps(entries).encode()))


@pytest.fixture(scope="module")
def report(sample):
    """A report on it."""
    return report_failures(
        sample, now=NOW, retention="15d", redactor=Redactor(key=b"k")
    )


@pytest.fixture(scope="module")
def pages(report):
    """Its HTML and Markdown."""
    return report.to_html(), report.to_markdown()


def section(report, name) -> dict[str, Any] | None:
    """A section of the JSON."""
    return next(
        (one for one in report.to_dict()["sections"] if one["name"] == name), None
    )


def records(report, name) -> list[dict[str, Any]]:
    """The rows of the first table of a section."""
    shown = next(part for part in section(report, name)["parts"] if "table" in part)
    return [dict(zip(shown["columns"], row, strict=True)) for row in shown["rows"]]


def codes(report) -> list[tuple[str, str]]:
    """Every piece of code of a report, with the section it is in, but the last, which needs a service."""
    return [
        (one.name, part.code)
        for one in report.sections
        for part in one.parts
        if isinstance(part, ReportCode) and one.name not in ("actions", "code")
    ]


@pytest.mark.parametrize(("workflow", "text", "start", "stop"), STORIES)
@pytest.mark.slow
def test_the_five_stories_of_the_sample_are_named(
    report, pages, workflow, text, start, stop
):
    """Each with its workflow, what its failures share, from when to when, and what to do about it."""
    (row,) = [row for row in records(report, "why") if text in row["explanation"]]
    assert f"{APPLICATION}/{workflow}" in row["in"]
    near = max(timedelta(hours=start - stop) / 5, timedelta(hours=1))
    assert (
        abs(datetime.fromisoformat(row["from"]) - (NOW - timedelta(hours=start)))
        <= near
    )
    assert (
        abs(datetime.fromisoformat(row["until"]) - (NOW - timedelta(hours=stop)))
        <= near
    )
    assert row["ongoing"] == (stop == 0)
    begins = f"{datetime.fromisoformat(row['from']):%Y-%m-%d %H:%M} UTC"
    assert all(begins in page for page in pages)
    actions = [
        part["text"] for part in section(report, "actions")["parts"] if "text" in part
    ]
    assert len([one for one in actions if text in one and workflow in one]) == 1


def test_the_verdict_explains_in_two_sentences(report):
    """It names what is ongoing, the largest explanation, what is worse than before, and what is new."""
    assert report.verdict.startswith("5,000 failures in 11 workflows between ")
    first, second = re.split(r"(?<=hours)\. ", report.verdict)
    assert "1 expires within 24 hours" in first
    assert "reading 'currency'" in second
    assert f"{APPLICATION}/orders/fulfil" in second
    assert "from 2026-03-05 08:00 UTC until 2026-03-05 11:29 UTC" in second
    assert "the last 24 hours show no clear change in all, but 1 group grew" in second
    assert "new is runtime error: invalid memory address" in second


def test_the_verdict_begins_with_what_is_ongoing(report):
    """The newest ongoing problem is that of the headline, and is named before the largest explanation."""
    problems = report.to_dict()["problems"]
    ongoing = [
        row for row in problems if row["state"] != "ended" and row["explanation"]
    ]
    newest = max(ongoing, key=lambda row: row["since"])
    since = f"{datetime.fromisoformat(newest['since']):%Y-%m-%d %H:%M} UTC"
    began = re.search(
        rf"ongoing, .*?: {newest['failures']:,} failures.*?{since}", report.verdict
    )
    assert began is not None
    assert began.end() < report.verdict.index("the largest explanation")
    assert report.headline.startswith(f"{len(ongoing)} problems are ongoing")
    assert f"{len(ongoing)} problems are ongoing" in report.verdict


def acted_on(report, frame) -> list[pd.DataFrame]:
    """The failures that the code of each action selects in a frame."""
    parts = section(report, "actions")["parts"]
    found = []
    for code in [part["code"] for part in parts if "code" in part]:
        select = re.search(r"^chosen = (.*)$", code, re.MULTILINE)
        found.append(eval(select[1], {"tk": tk, "failures": frame}))  # noqa: S307 - users are meant to run it
    return found


@pytest.mark.slow
def test_an_action_selects_the_failures_that_it_counts(sample, report):
    """Of the error in its title, within its times; each explanation has an action."""
    actions = section(report, "actions")["parts"]
    rows = records(report, "why")
    texts, chosen = (
        [part["text"] for part in actions if "text" in part],
        acted_on(report, sample),
    )
    assert len(texts) == len(chosen) == len(rows)
    acted = []
    for row, text, selected in zip(rows, texts, chosen, strict=True):
        stated = re.search(r"The code selects (?:all )?([\d,]+) failure", text)
        acted.append(int(stated[1].replace(",", "")))
        assert acted[-1] == len(selected)
        mostly = re.match(r"\d+\. mostly ", row["explanation"])
        assert acted[-1] < row["failures"] if mostly else acted[-1] >= row["failures"]
        assert (
            f"explanation has {row['failures']:,}" in text
            or acted[-1] == row["failures"]
        )
        when = selected["failed_at"].fillna(selected["created_at"])
        assert when.between(row["from"], row["until"]).all()
    when = sample["failed_at"].fillna(sample["created_at"])
    first = records(report, "why")[0]
    inside = sample[when.between(first["from"], first["until"])]
    broken = inside["workflow_url"].str.endswith("orders/fulfil") & (
        inside["response_status"] == 500
    )
    assert (
        acted[0]
        == (broken & inside["error"].str.startswith("TypeError: Cannot read")).sum()
    )
    assert acted[0] < first["failures"] == broken.sum()


def test_the_change_is_stated_once(report):
    """The section says of the last day what the verdict says."""
    sentence = section(report, "changed")["sentence"]
    assert (
        "442 failures since 2026-03-09 12:00 UTC, usually 334 in such a time"
        in sentence
    )
    for statement in (sentence, report.verdict):
        assert "1 group grew" in statement
        assert "worse" not in statement  # a group grew, all failures did not


def test_what_is_new_and_worse_can_be_read_by_programs(sample, report):
    """Of the sample, the story of the last hours is new; of a day before it, nothing is."""
    change = report.to_dict()["change"]
    titles = tk.group_failures(sample).frame.set_index("group")["title"]
    assert [titles[group].split(":")[0] for group in change["new_groups"]] == [
        "runtime error"
    ]
    assert change["worse"] is True
    assert [titles[group].split(":")[0] for group in change["grown_groups"]] == [
        "java.lang.OutOfMemoryError"
    ]
    (row,) = [row for row in records(report, "changed") if row["change"] == "new"]
    assert row["signature"] == change["new_groups"][0]
    assert (row["before"], row["now"]) == (0, 150)
    assert records(report, "seen")[0]["most similar"] is None


@pytest.mark.parametrize("seed", [2, 5, 7, 11])
def test_a_quiet_history_makes_a_short_calm_report(seed):
    """Where no rise is found: no explanation, action or postmortem, and a verdict of one sentence.

    How often one is found in a quiet history is measured by tests/accuracy.
    """
    failures = history(seed, quiet=True).failures.reindex(columns=FAILURES.names)
    quiet = report_failures(failures, now=END.to_pydatetime())
    names = {one["name"] for one in quiet.to_dict()["sections"]}
    assert not names & {"why", "actions", "postmortem"}
    assert "explanation" not in quiet.verdict
    assert "worse" not in quiet.verdict


@pytest.mark.slow
def test_every_piece_of_code_in_a_report_runs(sample, report):
    """What stands beside a section makes what it shows, from the frame alone."""
    results: dict[str, Any] = {}
    for name, code in codes(report):
        *lines, last = ast.parse(code).body
        space = {"tk": tk, "failures": sample}
        exec(compile(ast.Module(lines, []), name, "exec"), space)  # noqa: S102 - users are meant to run it
        results[name] = eval(compile(ast.Expression(last.value), name, "eval"), space)  # noqa: S307 - the same
    assert {
        "why",
        "impact",
        "deadline",
        "changed",
        "groups",
        "classes",
        "functions",
        "seen",
        "when",
    } <= {*results}
    why = results["why"]
    assert why["observed"].tolist() == [
        row["failures"] for row in records(report, "why")
    ]
    changed = results["changed"].frame.set_index("group")
    for row in records(report, "changed"):
        assert changed.loc[row["signature"], ["change", "before", "after"]].tolist() == [
            row["change"], row["before"], row["now"],
        ]  # fmt: skip
    assert results["groups"].frame["count"].tolist()[:10] == [
        row["failures"] for row in records(report, "groups")
    ]
    kinds = results["classes"].set_index("group")["class"]
    groups = results["groups"].frame.assign(
        kind=lambda frame: frame["group"].map(kinds)
    )
    by_class = groups.groupby("kind")["count"].sum()
    assert {
        row["class"]: row["failures"] for row in records(report, "classes")
    } == by_class.to_dict()
    functions = results["functions"].set_index("workflow_url")
    for row in records(report, "functions"):
        assert functions.loc[row["workflow"], "hanging"] == row["hanging"]
    offenders = set(
        zip(results["impact"]["value"], results["impact"]["count"], strict=True)
    )
    assert {
        (row["what"], row["failures"]) for row in records(report, "impact")
    } <= offenders


@pytest.mark.slow
def test_code_with_earlier_failures_runs_too(sample):
    """A report that compares prints code that compares."""
    when = sample["failed_at"].fillna(sample["created_at"])
    previous = sample[when < NOW - timedelta(hours=6)]
    report = report_failures(
        sample[when > NOW - timedelta(days=9)], previous, now=NOW, retention="15d"
    )
    assert report.to_dict()["change"]["new_groups"] == list(
        tk.group_failures(sample).frame.query("title.str.contains('nil pointer')")[
            "group"
        ]
    )
    assert section(report, "outcomes") is None or records(report, "outcomes")
    for name, code in codes(report):
        space = {
            "tk": tk,
            "failures": sample[when > NOW - timedelta(days=9)],
            "previous": previous,
        }
        exec(compile(code, name, "exec"), space)  # noqa: S102 - users are meant to run it
    assert (
        "compare_failures(before, recent, exposure=" in dict(codes(report))["changed"]
    )


@pytest.mark.slow
def test_suggested_actions_run_as_they_are_printed_and_do_what_they_recommend(
    sample_service: tk.Service,
):
    """Each loads, selects and plans without anything else, and the plan does what the report recommends.

    All pieces of code load with the same call. The first one loads, and the others get the same frame.
    """
    service = sample_service
    before = tk.load_failures(service, progress=False)
    load_once = cache(tk.load_failures)
    report = report_failures(before, redactor=service.redactor, retention="30d")
    actions = next(one for one in report.sections if one.name == "actions")
    texts = [part.text for part in actions.parts if isinstance(part, ReportText)]
    codes = [part.code for part in actions.parts if isinstance(part, ReportCode)]
    assert len(codes) >= 5
    for text, code in zip(texts, codes, strict=True):
        space: dict[str, Any] = {}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tk, "connect", lambda: service)
            patch.setattr(tk, "load_failures", load_once)
            exec(code, space)  # noqa: S102 - users are meant to run it
        plan = space["plan"]
        number = re.search(r"The code selects (?:all )?([\d,]+) failure", text)[1]
        assert len(plan.frame) == int(number.replace(",", ""))
        advice = {recommended(name).advice for name in plan.frame["class"]}
        assert any(one in text for one in advice) or "all workflows need" in text
        assert {*plan.groups["advice"]} == advice
        runs = plan.frame[plan.frame["marks"].isna()]
        assert {*runs["action"]} <= {recommended(name).then for name in runs["class"]}
    after = tk.load_failures(service, progress=False)
    assert set(after["dlq_id"]) == set(before["dlq_id"])


def test_one_burst_does_not_flatten_the_figure():
    """Where one burst is fifty times all else, the axis ends near the rest, and the burst has its count."""
    usual = pd.date_range("2026-03-01", "2026-03-10", freq="12min", tz="UTC")[:-1]
    burst = pd.date_range(
        "2026-03-06 12:00", periods=usual.size * 8, freq="1s", tz="UTC"
    )
    told = [*((one, "late") for one in usual), *((one, "burst") for one in burst)]
    rows = [
        {"dlq_id": str(number), "failed_at": when.to_pydatetime(), "response_body": text,
         "workflow_url": "https://shop.example/pay"}
        for number, (when, text) in enumerate(told)
    ]  # fmt: skip
    report = report_failures(frame_from_rows(rows, FAILURES), now=NOW)
    (figure,) = [
        part
        for one in report.sections
        if one.name == "when"
        for part in one.parts
        if isinstance(part, ReportFigure)
    ]
    canvas = Figure(figsize=(9.6, 4), layout="constrained")
    with drawing(canvas.add_subplot(), "light") as (ax, _):
        figure.draw(ax, THEMES["light"])
    heights = np.concatenate(
        [patch.heights for patch in ax.patches if hasattr(patch, "heights")]
    )
    assert heights.max() > 50 * np.median(heights)
    assert ax.get_ylim()[1] < 5 * np.median(heights)
    assert any("▲" in text.get_text() for text in ax.texts)
    assert records(report, "why")[0]["explanation"].startswith("1. burst")


@pytest.mark.slow
def test_every_engine_has_the_same_explanations(sample, report, tmp_path):
    """A snapshot and DuckDB with the rows in another order; test_engines has the other engines."""
    shuffled = sample.sample(frac=1, random_state=3)
    tk.write_snapshot(shuffled, tmp_path / "kept")
    table = to_table(shuffled.reset_index(drop=True), FAILURES)
    others = [
        tmp_path / "kept",
        duckdb.connect().from_arrow(table),
    ]
    for other in others:
        found = report_failures(
            other, now=NOW, retention="15d", redactor=Redactor(key=b"k")
        )
        for name in (
            "why",
            "changed",
            "groups",
            "classes",
            "seen",
            "actions",
            "impact",
        ):
            assert section(found, name) == section(report, name), name
        assert found.to_dict()["change"] == report.to_dict()["change"]


@pytest.mark.slow
def test_of_many_failures_a_sample_is_looked_at_and_named(sample, monkeypatch):
    """Counts stay those of all; explanations say that they are of a sample, and their code draws it."""
    monkeypatch.setattr("toolkit.reports.evidence.MOST", 2_000)
    monkeypatch.setattr("toolkit.reports.explained_sections.MOST", 2_000)
    report = report_failures(sample, now=NOW, retention="15d")
    number = f"{len(sample_failures(sample, most=2_000)):,} failures"
    said = {one["name"]: one["sentence"] for one in report.to_dict()["sections"]}
    assert f"Estimated from a sample of {number}." in said["why"]
    assert f"All but the cost is counted in a sample of {number}." in said["impact"]
    assert f"Estimated from a sample of {number}." in said["changed"]
    assert f"by its latest response in a sample of {number};" in said["classes"]
    assert not any(
        "sample" in said[name] for name in ("deadline", "functions", "groups")
    )
    functions = failure_functions(sample, now=NOW).set_index("workflow_url")
    for row in records(report, "functions"):
        assert functions.loc[row["workflow"], "count"] == row["failures"]
    assert sum(row["failures"] for row in records(report, "groups")) > 4_000
    (row,) = [row for row in records(report, "why") if "currency" in row["explanation"]]
    assert 900 < row["failures"] < 1_400
    assert row["failures"] % 10 == 0  # an estimate of three digits
    assert re.search(r"currency.*: about 1,\d\d0 failures \(", report.verdict)
    space = {"tk": tk, "failures": sample}
    exec(dict(codes(report))["why"], space)  # noqa: S102 - users are meant to run it
    assert 1_800 < len(space["failures"]) < 2_200


def test_no_secret_is_in_an_explanation():
    """Our own token, in what failures of a burst share and in their ids, is in no form of the report."""
    canary = "canary-0123456789abcdef"
    times = [NOW - timedelta(hours=4 * number) for number in range(60)]
    times += [NOW - timedelta(minutes=number) for number in range(100)]
    rows = [
        {"dlq_id": f"{number} {canary}" if number >= 60 else str(number), "failed_at": when,
         "flow_control_key": f"tenant {canary}" if number >= 60 else None, "workflow_url": f"https://shop.example/{canary}",
         "response_body": f"no order of {canary}" if number >= 60 else "late", "caller_ip": "192.0.2.1",
         "labels": json.dumps([canary]), "label": canary, "url": f"https://shop.example/{canary}"}
        for number, when in enumerate(times)
    ]  # fmt: skip
    report = report_failures(
        frame_from_rows(rows, FAILURES),
        now=NOW,
        redactor=Redactor(key=b"k", own=[Secret(canary)]),
    )
    assert records(report, "why")
    assert section(report, "actions")
    for form in (
        report.to_html(),
        report.to_markdown(),
        report.to_json(),
        repr(report),
        str(vars(report)),
    ):
        assert canary not in form


@pytest.mark.parametrize("later", [timedelta(0), timedelta(minutes=1)])
def test_rows_chosen_of_a_load_are_compared_by_their_times(later):
    """An earlier frame that is a part of a load, the same or another, ends at its last failure."""
    end = int(NOW.timestamp() * 1000)
    rows = [
        {
            "failed_at": end - hour * 3_600_000,
            "created_at": end - hour * 3_600_000,
            "workflow_url": "pay",
        }
        for hour in range(1, 200)
    ]
    whole = failures(rows, ended_at=NOW.isoformat())
    earlier = whole[whole["failed_at"] < pd.Timestamp(NOW) - pd.Timedelta(hours=24)]
    again = failures(rows, ended_at=(NOW + later).isoformat())
    sentence = section(report_failures(again, previous=earlier, now=NOW), "changed")[
        "sentence"
    ]
    assert sentence.startswith(
        "24 failures since 2026-03-09 11:00 UTC, usually 25 in such a time"
    )


def test_times_to_the_nanosecond_give_a_report_without_warnings():
    """A frame of other tools has times that Python's datetime cannot store exactly."""
    rng = np.random.default_rng(2)
    until = pd.Timestamp("2026-03-10T12:00Z")
    usual = rng.uniform((until - pd.Timedelta("9D")).value, until.value, 80)
    rise = rng.uniform((until - pd.Timedelta("1h")).value, until.value, 200)
    times = np.sort(np.concatenate([usual, rise])).astype(np.int64) | 1
    frame = pd.DataFrame({
        "dlq_id": [f"d{number}" for number in range(280)],
        "failed_at": pd.to_datetime(times, utc=True),
        "created_at": pd.to_datetime(times, utc=True),
        "workflow_url": "https://app.example/pay",
        "workflow_run_id": [f"wfr_{number}" for number in range(280)],
        "response_status": 500,
        "response_body": "no space left on device",
        "response_body_base64": None,
    })  # fmt: skip
    page = tk.report_failures(frame, now=until.to_pydatetime()).to_markdown()
    assert "280 failures in 1 workflow" in page
