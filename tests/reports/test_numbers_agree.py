"""Numbers of a report that mean the same are the same, in the JSON and in every other form."""

from __future__ import annotations

import html
import json
import re
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import toolkit as tk
from tests.accuracy.histories import history
from toolkit.reports.email_form import MOST_BYTES
from toolkit.reports.failure_report import FailureReport, report_failures
from toolkit.secrets.redaction import Redactor
from toolkit.tables.failures import FailureDecoder
from toolkit.tables.frames import frame_from_rows, to_frame
from toolkit.tables.receipt import Receipt
from toolkit.tables.schemas import FAILURES
from toolkit_service.demo.history import wire_entries

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)
DAY = timedelta(days=1)
OPTIONS: dict[str, Any] = {"now": NOW, "redactor": Redactor(key=b"k")}


class Facts:
    """Each fact of a report, with the places that state it and the number stated there."""

    def __init__(self) -> None:
        self.stated: dict[str, dict[str, float]] = defaultdict(dict)

    def add(self, fact: str, place: str, number: float | str | None) -> None:
        """Note what a place states; None if it does not."""
        if isinstance(number, str):
            number = float(number.replace(",", ""))
        if number is not None:
            self.stated[fact][place] = number

    def disagreements(self) -> dict[str, dict[str, float]]:
        """The facts that several places state differently."""
        return {
            fact: places
            for fact, places in self.stated.items()
            if len(set(places.values())) > 1
        }


def first(pattern: str, text: str) -> str | None:
    """The first number that a pattern finds."""
    found = re.search(pattern, text)
    return found[1] if found else None


def tables(section: dict[str, Any] | None) -> list[tuple[list[dict[str, Any]], int]]:
    """The tables of a section: rows by names of columns, and how many rows are left out."""
    parts = section["parts"] if section else []
    return [
        (
            [dict(zip(part["columns"], row, strict=True)) for row in part["rows"]],
            part.get("left_out", 0),
        )
        for part in parts
        if "table" in part
    ]


def facts_of(values: dict[str, Any]) -> Facts:
    """All facts of a report's JSON that more than one place states."""
    found = Facts()
    sections = {section["name"]: section for section in values["sections"]}
    sentences = {
        name: section.get("sentence") or "" for name, section in sections.items()
    }
    verdict, numbers, overview, change = (
        values[name] for name in ("verdict", "numbers", "overview", "change")
    )
    _of_all(found, verdict, overview, sections, sentences)
    found.add("failures", "tile", numbers[0]["value"])
    _of_changes(
        found, values, tables(sections.get("changed")), sentences.get("changed", "")
    )
    if values["comparison"] is None:
        found.add("recent failures", "recent", values["recent"]["failures"])
    else:
        comparison = values["comparison"]
        found.add("new entries", "comparison", comparison["new"])
        found.add(
            "new entries",
            "tile",
            first(r"([\d,]+) (?:new|are not in)", numbers[0]["note"]),
        )
        found.add("new entries", "verdict", first(r"; ([\d,]+) new compared", verdict))
        found.add(
            "new entries", "ids", len(comparison["ids"]) + comparison["ids_left_out"]
        )
        if not comparison["is_part"]:
            found.add("growth", "comparison", comparison["new"] - comparison["gone"])
            found.add("growth", "tile", numbers[0]["change"])
    if change["expected"] is not None:
        found.add("recent failures", "tile", numbers[1]["value"])
        found.add(
            "usual failures", "tile", first(r"usually ([\d,]+)", numbers[1]["note"])
        )
        if numbers[1]["change"] is not None:
            found.add(
                "usual failures",
                "change of the tile",
                numbers[1]["value"] - numbers[1]["change"],
            )
    _of_explanations(found, verdict, sections, sentences)
    _of_problems(found, values, sections)
    _of_expiry(found, values, sections)
    return found


def _of_all(
    found: Facts, verdict: str, overview: dict[str, Any], sections: Any, sentences: Any
) -> None:
    found.add("failures", "overview", overview["count"])
    found.add("failures", "verdict", first(r"([\d,]+) failures?\b", verdict))
    found.add(
        "failures", "groups", first(r"([\d,]+) failures? in", sentences["groups"])
    )
    for name in ("classes", "where", "callbacks"):
        for rows, left_out in (
            tables(sections[name])[:1]
            if name != "where"
            else tables(sections[name])[-1:]
        ):
            if not left_out:
                found.add("failures", name, sum(row["failures"] for row in rows))
    (groups, groups_left_out), *_ = tables(sections["groups"])
    found.add("groups", "sentence", first(r" in ([\d,]+) groups?", sentences["groups"]))
    found.add("groups", "table", len(groups) + groups_left_out)
    if not groups_left_out:
        found.add("failures", "table of groups", sum(row["failures"] for row in groups))
    (worst, _), *_ = tables(sections["worst"])
    found.add("of the worst workflow", "overview", overview["worst_count"])
    found.add("of the worst workflow", "table", worst[0]["failures"])
    found.add(
        "of the worst workflow", "verdict", first(r"([\d,]+) of them \(", verdict)
    )


def _of_changes(
    found: Facts, values: dict[str, Any], changed: list[Any], sentence: str
) -> None:
    verdict, change = values["verdict"], values["change"]
    found.add("recent failures", "change", change["failures"])
    found.add(
        "recent failures", "changed", first(r"^([\d,]+) failures? since", sentence)
    )
    found.add("usual failures", "changed", first(r"usually ([\d,]+) in", sentence))
    if change["expected"] is not None:
        found.add("usual failures", "change", round(change["expected"]))
    grown = re.findall(r"([\d,]+) groups? grew", verdict + sentence)
    for place, number in enumerate(grown):
        found.add("growing groups", f"sentence {place}", number)
    found.add("growing groups", "ids", len(change["grown_groups"]))
    counts = change["groups"]
    if counts is None:
        return
    found.add("growing groups", "counts", counts["growing"])
    found.add("new groups", "counts", counts["new"])
    found.add("new groups", "ids", len(change["new_groups"]))
    others = first(r"; new is .* and ([\d,]+) more\.", verdict)
    if "; new is " in verdict:
        found.add("new groups", "verdict", 1 + int(others or 0))
    found.add("groups compared", "counts", sum(counts.values()))
    found.add("groups compared", "sentence", first(r"Of ([\d,]+) groups?: ", sentence))
    listed = re.search(r"Of [\d,]+ groups?: ([^.]*)\.", sentence)
    if listed:
        found.add(
            "groups compared",
            "sum",
            sum(map(int, re.findall(r"(\d+) [a-z]", listed[1]))),
        )
    for rows, left_out in changed:
        if left_out:
            continue
        for kind in ("new", "growing"):
            found.add(
                f"{kind} groups", "table", sum(row["change"] == kind for row in rows)
            )


def _of_explanations(found: Facts, verdict: str, sections: Any, sentences: Any) -> None:
    if "why" not in sections:
        return
    (rows, _), *_ = tables(sections["why"])
    found.add("explanations", "table", len(rows))
    found.add(
        "explanations", "sentence", first(r"^([\d,]+) explanations?", sentences["why"])
    )
    texts = [part["text"] for part in sections["actions"]["parts"] if "text" in part]
    found.add("explanations", "actions", len(texts))
    for number, (row, text) in enumerate(zip(rows, texts, strict=True), 1):
        fact = f"failures of explanation {number}"
        found.add(fact, "table", row["failures"])
        found.add(
            fact,
            "action",
            first(r"the explanation has ([\d,]+)", text)
            or first(r"selects all ([\d,]+)", text),
        )
    found.add(
        "failures of explanation 1",
        "verdict",
        first(r"largest explanation .*?: ([\d,]+) failures?", verdict),
    )
    notes = {
        row["question"]: row["notes"] for row in tables(sections["postmortem"])[0][0]
    }
    found.add(
        "failures of explanation 1",
        "postmortem",
        first(r"([\d,]+) failures?", notes["Impact"]),
    )


def _of_problems(found: Facts, values: dict[str, Any], sections: Any) -> None:
    problems, headline = values["problems"], values["headline"]
    explained = [row for row in problems if row["explanation"] is not None]
    ongoing = [row for row in explained if row["state"] != "ended"]
    found.add("ongoing", "problems", len(ongoing) or None)
    found.add(
        "ongoing", "headline", first(r"([\d,]+) problems? (?:is|are) on", headline)
    )
    for row in explained:
        fact = f"failures of explanation {row['explanation']}"
        found.add(fact, "problem", row["failures"])
        # the number of an action is the one of the row, or the row tells both
        selected = first(r"([\d,]+)$", row["action"])
        told = first(r"([\d,]+) of this kind", row["reason"])
        if told is None and selected is not None:
            told = row["failures"]
        fact = f"failures that the action of explanation {row['explanation']} selects"
        found.add(fact, "action", selected)
        found.add(fact, "row", told)
    if "why" in sections:
        (rows, _), *_ = tables(sections["why"])
        found.add("ongoing", "why", sum(row["ongoing"] for row in rows) or None)
    found.add("recent failures", "lead", first(r"^([\d,]+) failures?", values["lead"]))
    found.add(
        "expire within a day",
        "lead",
        first(r"([\d,]+) expires? within", values["lead"]),
    )


def _of_expiry(found: Facts, values: dict[str, Any], sections: Any) -> None:
    expiry, verdict = values["expiry"], values["verdict"]
    found.add("expire within a day", "expiry", expiry["within_24_hours"])
    found.add("expire within a day", "tile", values["numbers"][3]["value"])
    found.add(
        "expire within a day",
        "verdict",
        first(r"; ([\d,]+) expires? within 24", verdict),
    )
    for rows, _ in tables(sections["expiry"]):
        if rows and "when" in rows[0]:
            soon = {"within 6 hours", "in 6 to 24 hours"}
            if expiry["is_known"]:
                found.add(
                    "expire within a day",
                    "table",
                    sum(row["failures"] for row in rows if row["when"] in soon),
                )
            there = values["overview"]["count"] - values["overview"]["gone"]
            found.add("failures in the queue", "overview", there)
            found.add(
                "failures in the queue",
                "table of expiry",
                sum(row["failures"] for row in rows),
            )
        elif rows and "left" in rows[0]:
            found.add("hours of the next", "table", rows[0]["left"])
            found.add("hours of the next", "expiry", expiry["next_hours_left"])


def plain(text: str) -> str:
    """A form without tags, escapes and white space."""
    # unescaped first: a value such as <num> is no tag, and is left out of both sides
    return re.sub(
        r"[\s\u200b\u2060\\\\`*]+",
        "",
        re.sub(r"</?[A-Za-z!][^<>\n]{0,2000}>", "", html.unescape(text)),
    )


def check(report: FailureReport) -> Facts:
    """Compare the facts of the JSON with one another, and find them in all other forms."""
    values = report.to_dict()
    found = facts_of(values)
    assert found.disagreements() == {}
    change = values["change"]
    period = values["numbers"][1]
    for judgement, is_stated in (
        ("worse than before", (period["change"] or 0) > 0),
        ("better than before", (period["change"] or 0) < 0),
        ("no clear change", period["change"] is None),
    ):
        if judgement in report.verdict.lower():
            assert is_stated, (judgement, period)
            assert ("no clear change" in period["note"]) is (
                judgement == "no clear change"
            )
    email = report.to_email()
    assert len(bytes(email)) < MOST_BYTES
    body = email.get_body(("plain",)).get_content()
    forms = {"html": report.to_html(), "markdown": report.to_markdown(), "email": body}
    sentences = [
        section["sentence"] for section in values["sections"] if section.get("sentence")
    ]
    for name, form in forms.items():
        words = plain(form)
        # an e-mail has the first sections only
        stated = [report.verdict] if name == "email" else [report.verdict, *sentences]
        for sentence in stated:
            assert plain(sentence) in words, (name, sentence)
        for number in values["numbers"]:
            shown = "?" if number["value"] is None else f"{number['value']:,}"
            assert shown in words, (name, number)
            assert plain(number["note"]) in words, (name, number)
    short = report.to_short()
    if values["expiry"]["within_24_hours"]:
        assert (
            f"Expiring: {values['expiry']['within_24_hours']:,} within 24 hours"
            in short
        )
    for label, groups in (
        ("New", change["new_groups"]),
        ("Growing", change["grown_groups"]),
    ):
        if groups:
            assert change["titles"][groups[0]][:20] in short.partition(f"{label}: ")[2]
    return found


@pytest.fixture(scope="module")
def sample() -> pd.DataFrame:
    """The sample history, as it ends at NOW, with the receipt of a load."""
    entries = wire_entries(int(NOW.timestamp() * 1000))
    frame = to_frame(FailureDecoder(None).decode(json.dumps(entries).encode()))
    return loaded(frame, NOW)


def loaded(frame: pd.DataFrame, when: datetime) -> pd.DataFrame:
    """A frame with the receipt of a complete load that ended then."""
    frame = frame.copy()
    frame.attrs["receipt"] = Receipt(
        what="failures", source="https://queue.example", scope={"kind": "workflows"}, rows=len(frame),
        started_at=(when - timedelta(minutes=1)).isoformat(), ended_at=when.isoformat(), complete=True,
    ).to_dict()  # fmt: skip
    return frame


@pytest.mark.slow
def test_numbers_of_the_sample_agree(sample: pd.DataFrame) -> None:
    """At least ten facts are stated by several places, and none is stated differently."""
    report = report_failures(sample, retention="15d", **OPTIONS)
    found = check(report)
    # as many pictures as fit, and the others by name
    email = report.to_email()
    pictures = [part.get_filename() for part in email.walk() if part.get_filename()]
    assert pictures[0] == "figure-1.png"
    markup = email.get_body(("html",)).get_content()
    assert len(pictures) + markup.count("the picture ") == 4
    assert FailureReport.command in markup
    assert len([fact for fact, places in found.stated.items() if len(places) > 1]) >= 10
    assert len(found.stated["groups compared"]) == 3


@pytest.mark.slow
def test_numbers_of_a_snapshot_with_an_earlier_one_agree(
    sample: pd.DataFrame, tmp_path: Path
) -> None:
    """Of two loads, from one of which entries have left."""
    when = sample["failed_at"].fillna(sample["created_at"])
    parts = {
        "old": loaded(sample[when < NOW - DAY], NOW - DAY),
        "new": loaded(sample.iloc[:-40], NOW),
    }
    for name, frame in parts.items():
        tk.write_snapshot(frame, tmp_path / name)
    old, new = (tk.read_snapshot(tmp_path / name) for name in parts)
    report = report_failures(new, old, retention="15d", **OPTIONS)
    found = check(report)
    assert found.stated["growth"]["tile"] == len(new) - len(old)
    assert len(found.stated["new entries"]) == 4


def generated(seed: int) -> pd.DataFrame:
    """A generated history with all columns of the failures table."""
    rows = history(seed).failures.astype(object)
    return frame_from_rows(rows.where(rows.notna(), None).to_dict("records"), FAILURES)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [3, 11])
def test_numbers_of_generated_histories_agree(seed: int) -> None:
    """With other groups, workflows and rates, compared with nothing and with their earlier half."""
    frame = loaded(generated(seed), NOW)
    check(report_failures(frame, retention="30d", **OPTIONS))
    older = frame[frame["failed_at"] < NOW - DAY]
    report = report_failures(frame, older, retention="30d", **OPTIONS)
    check(report)
    # the earlier failures are a part of these
    assert report.numbers[0]["change"] is None


def test_a_period_is_worse_only_if_all_failures_are_more() -> None:
    """A group that grew while others shrank is named, and the period is not called worse."""
    hours = pd.date_range(NOW - 10 * DAY, NOW, freq="30min", inclusive="right")
    lately = hours > NOW - DAY
    bodies = [
        "late" if is_late and number % 8 else "busy"
        for number, is_late in enumerate(lately)
    ]
    bodies[::60] = ["late"] * len(bodies[::60])
    rows = pd.DataFrame({
        "dlq_id": [f"d{number}" for number in range(len(hours))], "failed_at": hours, "created_at": hours,
        "workflow_url": "https://shop.example/pay", "workflow_run_id": None, "response_status": 500,
        "response_body": bodies, "response_body_base64": None,
    })  # fmt: skip
    frame = frame_from_rows(rows.to_dict("records"), FAILURES)
    report = report_failures(loaded(frame, NOW), retention="30d", **OPTIONS)
    change = report.to_dict()["change"]
    assert (change["worse"], len(change["grown_groups"])) == (True, 1)
    assert "no clear change in all, but 1 group grew" in report.verdict
    assert report.numbers[1]["change"] is None


@pytest.mark.parametrize(
    ("factor", "expected"), [(1.3, "no clear change"), (6, "worse than before")]
)
def test_a_tile_states_a_change_only_if_the_headline_does(
    factor: float, expected: str
) -> None:
    """Failures that come in bursts vary: 30 % more on one day is no change, six times as many is one."""
    hours = pd.date_range(NOW - 10 * DAY, NOW, freq="1h", inclusive="right")
    sizes = [
        int((40 if number % 6 == 0 else 2) * (factor if hour > NOW - DAY else 1))
        for number, hour in enumerate(hours)
    ]
    times = hours.repeat(sizes)
    rows = pd.DataFrame({
        "dlq_id": [f"d{number}" for number in range(len(times))], "failed_at": times, "created_at": times,
        "workflow_url": "https://shop.example/pay", "workflow_run_id": None, "response_status": 500,
        "response_body": "busy", "response_body_base64": None,
    })  # fmt: skip
    frame = frame_from_rows(rows.to_dict("records"), FAILURES)
    report = report_failures(loaded(frame, NOW), retention="30d", **OPTIONS)
    check(report)
    period = report.numbers[1]
    assert (expected in report.verdict) is (expected == "worse than before")
    assert period["note"].endswith(": no clear change") is (
        expected == "no clear change"
    )
    assert (period["change"] is None) is (expected == "no clear change")
