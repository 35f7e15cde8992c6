"""The first screen of a failure report: what is wrong now, since when, where, and what to do."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from tests.reports.conftest import failures
from toolkit.failures.classes import CLASSES
from toolkit.redrive.choices import recommended
from toolkit.reports.failure_report import FailureReport, report_failures
from toolkit.reports.problems import Scale
from toolkit.reports.sections import ReportCode, ReportTable
from toolkit.secrets.redaction import Redactor, Secret

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)
FLOWS = [f"https://shop.example/flows/{name}" for name in ("pay", "mail", "stock")]
USUAL = ("request timed out", "upstream closed the connection", "row is locked")


def told(
    *stories: tuple[float, float, int, str, str], seed: int = 1
) -> list[dict[str, Any]]:
    """Ten calm days, and failures of (hours ago: from, until; number, workflow, error)."""
    random = np.random.default_rng(seed)
    told = [(240.0, 0.0, 60, flow, text) for flow in FLOWS for text in USUAL]
    rows = []
    for start, stop, number, flow, text in [*told, *stories]:
        for hours in random.uniform(stop, start, number):
            when = NOW - timedelta(hours=float(hours))
            rows.append({
                "workflow_url": flow, "workflow_run_id": f"wfr_{len(rows)}", "failed_at": when,
                "created_at": when, "response_status": 500, "response_body": text,
            })  # fmt: skip
    return rows


def reported(rows: list[dict[str, Any]], **options: Any) -> FailureReport:
    """A report on a complete load of these rows."""
    options = {"now": NOW, "retention": "30d", "redactor": Redactor(key=b"k")} | options
    return report_failures(failures(rows), **options)


@pytest.fixture(scope="module")
def scales() -> list[Scale]:
    """Scales of trends that `report` has computed."""
    return []


@pytest.fixture(scope="module")
def report(scales: list[Scale]) -> FailureReport:
    """Of a problem of the last three hours, and one that ended five days ago and was larger."""
    compute_scale = Scale.until

    def noted(end: datetime, first: datetime) -> Scale:
        scales.append(compute_scale(end, first))
        return scales[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Scale, "until", noted)
        return reported(
            told(
                (3, 0, 90, FLOWS[0], "KeyError: 'currency' at prices.total_of"),
                (125, 121, 300, FLOWS[2], "disk is full"),
            )
        )


def test_all_trends_of_a_report_share_one_scale(
    report: FailureReport, scales: list[Scale]
) -> None:
    """The bars are computed once per report, and each trend has that many."""
    (scale,) = scales
    trends = [
        value
        for section in report.sections
        for part in section.parts
        if isinstance(part, ReportTable)
        for column, *values in zip(part.columns, *part.rows, strict=True)
        if column.kind == "trend"
        for value in values
    ]
    assert {len(trend) for trend in trends} == {scale.count}


def test_the_headline_is_about_now(report: FailureReport) -> None:
    """One problem is ongoing, since 09:00, in one workflow; the larger one of last week is not named."""
    assert re.fullmatch(
        r"1 problem is ongoing\. It began at 09:\d\d in pay\.", report.headline
    )
    assert len(report.headline) <= 90


def test_the_trend_of_a_sample_has_the_failures_of_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The bars are estimates, as the number next to them: not the counts of a third of the rows."""
    monkeypatch.setattr("toolkit.reports.evidence.MOST", 500)
    rows = told((3, 0, 900, FLOWS[0], "KeyError: 'currency' at prices.total_of"))
    first = reported(rows).to_dict()["problems"][0]
    assert first["failures"] == pytest.approx(900, rel=0.1)
    assert sum(first["bars"]) == pytest.approx(900, rel=0.15)


def test_a_row_tells_state_place_rate_and_action(report: FailureReport) -> None:
    """The new problem is first; its code is in the section of actions."""
    first, second = report.to_dict()["problems"]
    assert (first["state"], first["title"], first["where"]) == (
        "new",
        "KeyError: 'currency'",
        "pay",
    )
    assert first["detail"].startswith("at prices.total_of")
    assert first["failures"] == pytest.approx(90, abs=3)
    assert (second["state"], second["where"]) == ("ended", "stock")
    assert sum(first["bars"]) == pytest.approx(90, abs=3)
    assert sum(first["bars"][:-2]) == 0
    (board,) = (part for part in report.sections[0].parts if part.caption == "Now")
    (row,) = board.problems
    assert re.fullmatch(r"\d\d per hour, usually [01](\.\d)?", row.rate_text)
    assert f'id="{row.link}-' in report.to_html()


def test_a_link_of_the_first_screen_has_a_target(report: FailureReport) -> None:
    """Every link of the page and of a notebook leads to an element of the same report."""
    for markup in (report.to_html(), report._repr_html_()):
        links = set(re.findall(r'href="#([\w-]+)"', markup))
        assert links
        assert links <= set(re.findall(r'id="([\w-]+)"', markup))


def test_forms_have_the_same_first_lines(report: FailureReport) -> None:
    """Markdown, e-mail and the short form begin with the headline; the subject of a mail is the headline."""
    message = report.to_email()
    text = message.get_body(("plain",)).get_content()
    for form in (report.to_markdown()[:400], text[:400], report.to_short()[:200]):
        assert report.headline in form
    assert message["Subject"] == f"{report.title}: {report.headline}"
    assert report.to_dict()["headline"] == report.headline


def test_markdown_has_the_reason_of_each_action(report: FailureReport) -> None:
    """Forms without links give the reason next to the action, with the number that its code selects."""
    markdown = report.to_markdown()
    for problem in report.to_dict()["problems"]:
        assert problem["reason"] in markdown


def test_a_problem_that_returns_is_back_again() -> None:
    """An error with an earlier episode that fails again today is neither new nor steady."""
    text = "disk is full"
    rows = told((150, 147, 120, FLOWS[2], text), (3, 0, 120, FLOWS[2], text))
    (problem,) = reported(rows).to_dict()["problems"]
    assert problem["state"] == "back again"
    since = datetime.fromisoformat(problem["since"])
    assert NOW - since < timedelta(hours=4)


@pytest.mark.parametrize(
    ("before", "start"), [(0, 9), (30, 24)], ids=["began today", "began before"]
)
def test_an_error_that_ended_hours_ago_is_not_listed_as_new_or_growing(
    before: int, start: float
) -> None:
    """A fix works: the counts of the day are still high, but the problem is listed once, as ended."""
    fixed = told(
        (31, 24, before, FLOWS[0], "KeyError: 'currency' at prices.total_of"),
        (start, 5, 300, FLOWS[0], "KeyError: 'currency' at prices.total_of"),
        (4, 1, 2, FLOWS[0], "KeyError: 'currency' at prices.total_of"),
    )
    report = reported(fixed)
    (problem,) = report.to_dict()["problems"]
    assert problem["state"] == "ended"
    assert re.fullmatch(
        r"No problem is ongoing\. The last ended at 0[67]:\d\d in pay\.",
        report.headline,
    )
    assert "| 2 more since then |" in report.to_markdown()
    short = report.to_short()
    assert "KeyError" not in short.partition("Growing:")[2].partition("\n")[0]
    has_grown = before > 0  # an error of the last day is new
    assert ("Ended: KeyError: 'currency'" in short) == has_grown


def test_reasons_are_sentences_next_to_any_action() -> None:
    """The action of a group without an explanation is to look, so no reason refers to a step before it."""
    for name in CLASSES:
        assert "until then" not in recommended(name).reason


def test_a_problem_that_paused_minutes_ago_has_not_ended() -> None:
    """Retries come in waves: ten quiet minutes after 100 failures an hour do not end an incident."""
    rows = told((3, 0.17, 300, FLOWS[0], "KeyError: 'currency' at prices.total_of"))
    report = reported(rows)
    (problem,) = report.to_dict()["problems"]
    assert problem["state"] == "new"
    assert report.headline.startswith("1 problem is ongoing. It began at 09:0")
    assert re.search(r"3 h ago, the last 1\d min ago", report.to_html())


def test_an_explanation_of_several_classes_names_them() -> None:
    """A bug and invalid input of one workflow need two steps, and the advice does not deny their causes."""
    rows = told(
        (3, 0, 150, FLOWS[0], "TypeError: order.total is not a function"),
        (2, 0, 100, FLOWS[0], "ValidationError: amount must be positive"),
    )
    report = reported(rows)
    (problem,) = report.to_dict()["problems"]
    assert problem["failure_class"] == "bug, poison input"
    assert problem["action"].startswith("Look at one of each error, then resume ")
    assert "errors, most often TypeError: order.total is not" in problem["detail"]
    assert "names no class of failure" not in report.to_markdown()


def test_the_code_of_several_classes_resumes_those_that_are_left_before_a_fix() -> None:
    """Whoever runs it has taken the step of each class; a plan leaves contract drift by default."""
    rows = told(
        (3, 0, 150, FLOWS[0], "TypeError: order.total is not a function"),
        (2, 0, 100, FLOWS[0], "column zone does not exist"),
    )
    report = reported(rows)
    (problem,) = report.to_dict()["problems"]
    assert problem["failure_class"] == "bug, contract drift"
    actions = next(one for one in report.sections if one.name == "actions")
    codes = [part.code for part in actions.parts if isinstance(part, ReportCode)]
    assert 'include=["contract drift"]' in codes[0].replace("'", '"')


def test_an_error_that_continues_after_its_rise_is_listed() -> None:
    """After the worst is over, a rate of more than a fifth is still a problem."""
    fewer = told(
        (9, 7, 200, FLOWS[0], "KeyError: 'currency' at prices.total_of"),
        (6.9, 0, 220, FLOWS[0], "KeyError: 'currency' at prices.total_of"),
    )
    report = reported(fewer)
    states = [problem["state"] for problem in report.to_dict()["problems"]]
    assert "new" in states


def test_old_data_have_no_ongoing_problem() -> None:
    """If the data end days ago, the headline tells their age, and no problem is called ongoing."""
    rows = told((3, 0, 90, FLOWS[0], "KeyError: 'currency'"))
    report = reported(rows, now=NOW + timedelta(days=9))
    assert report.headline.startswith("Out of date: the data end at 2026-03-10")
    assert {row["state"] for row in report.to_dict()["problems"]} <= {"ended"}


def test_a_new_error_without_a_rise_is_named() -> None:
    """A few failures of a new error are no incident; the headline names them if nothing else is wrong."""
    rows = told((2, 1, 3, FLOWS[1], "certificate of mail.example has expired"))
    report = reported(rows)
    assert report.headline.startswith("1 error is new. It began at 1")
    assert report.headline.endswith("in mail.")


def test_the_first_failure_of_a_queue_is_new() -> None:
    """Nothing failed before: the headline names the error, as the short form and `--fail-on new` do."""
    report = reported(told((2, 1, 1, FLOWS[1], "certificate has expired"))[-1:])
    assert re.fullmatch(
        r"1 error is new\. It began at 1\d:\d\d in flows/mail\.", report.headline
    )
    assert "New: certificate has expired" in report.to_short()


def test_the_short_form_keeps_the_kind_of_service() -> None:
    """An address loses the scheme, so that no chat makes it a link; a placeholder cannot become one."""
    refused = "Error: connect ECONNREFUSED 10.0.3.4:5432"
    page = "Error: no answer of https://a.example"
    rows = [
        *told((2, 1, 3, FLOWS[1], refused))[-3:],
        *told((2, 1, 3, FLOWS[1], page))[-3:],
    ]
    short = reported(rows).to_short()
    assert "ECONNREFUSED postgres://<ip>" in short
    assert "https://" not in short


def test_an_error_that_fails_all_the_time_is_a_problem() -> None:
    """An incident that is as old as the data did not rise, but the report does not call it quiet."""
    rows = told((240, 0, 3000, FLOWS[0], "KeyError: 'currency' at prices.total_of"))
    report = reported(rows)
    (problem,) = report.to_dict()["problems"]
    assert (problem["state"], problem["title"]) == ("steady", "KeyError: 'currency'")
    assert problem["failures"] == 3000
    assert (
        report.headline
        == "1 error continues at its usual rate. It began on 28 Feb in pay or earlier."
    )
    assert re.search(r"\d{3} in 24 hours, as before", report.to_markdown())


def test_a_load_of_one_day_is_not_called_quiet() -> None:
    """Without earlier failures, no rise can be found, and the headline tells that."""
    rows = told((2, 0, 150, FLOWS[0], "KeyError: 'currency'"))[-150:]
    frame = failures(rows, scope={"since": "2026-03-09T12:00:00.000Z"})
    headline = report_failures(frame, now=NOW, retention="30d").headline
    assert headline == (
        "150 failures, 150 of them in the last day. "
        "Earlier failures are not known, so nothing could be compared."
    )


def test_a_quiet_queue_needs_one_line() -> None:
    """Without problems, and without failures."""
    assert reported(told()).headline.startswith("No problem ")
    assert reported([]).headline == "No failures."


def test_times_are_those_of_the_zone() -> None:
    """A report in a zone names the same problem at its local time."""
    rows = told((3, 0, 90, FLOWS[0], "KeyError: 'currency'"))
    report = reported(rows, tz="Asia/Tokyo")
    assert re.search(r"began at 18:\d\d in pay", report.headline)


def test_secrets_are_masked_before_names_are_shortened() -> None:
    """A token in the address of a workflow is not shown, although a part of the address is cut off."""
    own = Redactor(key=b"k", own=[Secret("canary-0123456789abcdef")])
    flow = "https://shop.example/flows/canary-0123456789abcdef"
    report = reported(
        told((3, 0, 90, flow, "no canary-0123456789abcdef")), redactor=own
    )
    for form in (report.headline, report.to_html(), report.to_json()):
        assert "canary-01" not in form
