"""Sections of a report on fixes that were checked, on runbooks, and on charged messages."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd
import pytest

import toolkit as tk
from toolkit.errors import InputError
from toolkit.failures.deliveries import charged_messages
from toolkit.fixes.runbooks import RunbookSuggestions
from toolkit.reports.failure_report import FailureReport

RUNBOOKS = {
    "https://wiki.example.com/runbooks/a_b": True,
    "javascript:alert(1)": False,
    'https://wiki.example.com/"onclick="x': False,
    None: False,
}
"""Addresses of runbooks, and whether a page can link to them."""


@pytest.fixture(scope="module")
def failures(sample_service: tk.Service) -> pd.DataFrame:
    """The failures of the sample."""
    return tk.load_failures(sample_service, progress=False)


def section(report: FailureReport, name: str) -> dict[str, Any]:
    """Return the JSON of a section."""
    sections = json.loads(report.to_json())["sections"]
    return next(one for one in sections if one["name"] == name)


def table(report: FailureReport, name: str, caption: str) -> pd.DataFrame:
    """Return a table of a section."""
    parts = section(report, name)["parts"]
    found = next(
        part for part in parts if str(part.get("table", "")).startswith(caption)
    )
    return pd.DataFrame(found["rows"], columns=found["columns"])


def suggestions(groups: pd.DataFrame) -> RunbookSuggestions:
    """Return suggestions of runbooks for the first groups, one per address, and a group without any."""
    rows = [
        {
            "group": group, "title": title, "rank": 1, "runbook": f"r{number}",
            "runbook_title": "Restart | <b>", "link": link, "score": 0.5, "matches": True,
        }
        for number, (link, group, title) in enumerate(
            zip(RUNBOOKS, groups["group"], groups["title"], strict=False)
        )
    ]  # fmt: skip
    rows.append(rows[0] | {"group": "none", "matches": False})
    return RunbookSuggestions(pd.DataFrame(rows), 0.2)


def test_a_report_tells_since_when_a_fix_holds(failures: pd.DataFrame) -> None:
    """The table has the state and the time of `check_fix`, one row per fix."""
    groups = tk.group_failures(failures).frame["group"][:3]
    fixes = [tk.check_fix(failures, group, "5h") for group in groups]
    shown = table(tk.report_failures(failures, fixes=fixes), "fixes", "Groups")
    assert shown["state"].tolist() == [fix.state for fix in fixes]
    holds = [fix.holds_since for fix in fixes]
    since = shown["fix holds since"].dropna()
    assert [*map(pd.Timestamp, since)] == [time for time in holds if time is not None]
    assert len(since)


def test_a_report_links_to_runbooks(failures: pd.DataFrame) -> None:
    """Only web addresses become links, in HTML and in Markdown; a group without a runbook is left out."""
    found = suggestions(tk.group_failures(failures).frame)
    report = tk.report_failures(failures, runbooks=found)
    shown = table(report, "runbooks", "Groups")
    assert shown["address"].dropna().tolist() == [link for link in RUNBOOKS if link]
    page, markdown = report.to_html(), report.to_markdown()
    for link, is_link in RUNBOOKS.items():
        assert (f'href="{link}"' in page) is is_link
        assert (f"<{link}>" in markdown) is is_link
    assert "<b>" not in page[page.index("runbooks-") :].partition("</section>")[0]


def test_a_report_tells_what_failures_cost(failures: pd.DataFrame) -> None:
    """The table has the messages per workflow, and marks lower bounds."""
    counts = charged_messages(failures)
    shown = table(tk.report_failures(failures), "impact", "Charged")
    assert shown["messages"].tolist() == counts["messages"][:5].tolist()
    assert shown["at least"].tolist() == counts["lower_bound"][:5].tolist()
    by_day = tk.analysis.count_deliveries(failures)
    assert by_day["messages"].sum() == counts["messages"].sum()


def test_failures_without_retries_have_no_costs(failures: pd.DataFrame) -> None:
    """A frame without the column of retries has a report without the table."""
    report = tk.report_failures(failures.drop(columns="max_retries"))
    captions = [part.get("table", "") for part in section(report, "impact")["parts"]]
    assert not any(caption.startswith("Charged") for caption in captions)


@pytest.mark.parametrize(
    "option", [{"fixes": "stopped"}, {"fixes": [1]}, {"runbooks": {}}]
)
def test_other_values_are_refused(
    option: dict[str, Any], failures: pd.DataFrame
) -> None:
    """Options of other types are an error that names the option."""
    with pytest.raises(InputError, match=next(iter(option))):
        tk.report_failures(failures, **option)
