"""The numbers of a report on so many failures that a sample is analysed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.reports.conftest import failures
from tests.reports.test_first_screen import FLOWS, NOW, told
from toolkit.reports.failure_report import FailureReport, report_failures
from toolkit.secrets.redaction import Redactor

BROKEN, RARE, GROWING = "KeyError: 'currency'", "disk full", "row is locked"
MOST = 400


@pytest.fixture(scope="module")
def report() -> Iterator[FailureReport]:
    """Of 300 failures of a new error, 3 of another new one, and an error that grew."""
    rows = told(
        (3.0, 0.0, 300, FLOWS[0], BROKEN),
        (2.0, 0.0, 3, FLOWS[1], RARE),
        (20.0, 0.0, 200, FLOWS[2], GROWING),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("toolkit.reports.evidence.MOST", MOST)
        patch.setattr("toolkit.reports.explained_sections.MOST", MOST)
        yield report_failures(
            failures(rows), now=NOW, retention="30d", redactor=Redactor(key=b"k")
        )


def rows_of(report: FailureReport, name: str) -> list[dict[str, object]]:
    """Return the rows of the first table of a section."""
    (section,) = [one for one in report.to_dict()["sections"] if one["name"] == name]
    (table,) = [part for part in section["parts"] if "table" in part][:1]
    return [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]


def test_a_new_error_has_the_number_of_all_its_failures(report: FailureReport) -> None:
    """The board, "What changed" and the short form have the numbers of the groups, not of the sample."""
    groups = {row["group"]: row["failures"] for row in rows_of(report, "groups")}
    assert (groups[BROKEN], groups[RARE]) == (300, 3)

    problems = {row["problem"]: row for row in rows_of(report, "now")}
    assert problems[BROKEN]["failures"] == 300
    assert problems[BROKEN]["do next"].endswith(" 300")
    assert problems[RARE]["failures"] == 3

    changes = {row["group"]: row for row in rows_of(report, "changed")}
    assert (changes[BROKEN]["now"], changes[RARE]["now"]) == (300, 3)

    short = report.to_short()
    assert f"{BROKEN} (300)" in short
    assert f"{RARE} (3)" in short


def test_other_numbers_are_estimates_of_all_failures(report: FailureReport) -> None:
    """A group that also failed before has about the right number, and "about" in front of it."""
    (row,) = [row for row in rows_of(report, "changed") if row["change"] == "growing"]
    assert row["group"] == GROWING
    assert 120 < row["now"] < 280
    assert f"{GROWING} (about {row['now']}, usually " in report.to_short()


def test_the_begin_of_a_new_error_is_of_all_its_failures(
    report: FailureReport,
) -> None:
    """The action selects every failure of the group, also those before the first one of the sample."""
    problems = {one["title"]: one for one in report.to_dict()["problems"]}
    (group,) = [row for row in rows_of(report, "groups") if row["group"] == BROKEN]
    assert problems[BROKEN]["since"] == group["first"]


def test_the_cost_is_of_all_failures(report: FailureReport) -> None:
    """Each of the 1,043 failures was delivered at least once: allowed retries are not known."""
    sections = report.to_dict()["sections"]
    (parts,) = [one["parts"] for one in sections if one["name"] == "impact"]
    (table,) = [part for part in parts if part.get("table", "").startswith("Charged")]
    assert table["table"] == "Charged messages: at least 1,043 in total"
