"""The findings: numbers against hand counts, and the JSON twin's shape."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import jsonschema
import pandas as pd
import pytest

import toolkit as tk
from toolkit.errors import InputError
from toolkit.reports.failure_report import report_failures
from toolkit.tables.frames import frame_from_rows, to_table
from toolkit.tables.schemas import FAILURES


def parts(found, section):
    """What a section of a report's JSON consists of."""
    return next(
        (one["parts"] for one in found["sections"] if one["name"] == section), []
    )


def records(found, section, number=0):
    """The rows of a table of a section, by name of column."""
    chosen = [part for part in parts(found, section) if "table" in part][number]
    return [dict(zip(chosen["columns"], row, strict=True)) for row in chosen["rows"]]


def codes(found):
    """The code of every section."""
    return [
        part["code"]
        for one in found["sections"]
        for part in one["parts"]
        if "code" in part
    ]


def test_numbers_by_hand(make, rows, options):
    """Counts, shares, texts and expiries are those counted by hand."""
    found = report_failures(make(rows), **options).to_dict()
    assert found["overview"] == {
        "count": 12,
        "workflows": 2,
        "runs": 12,
        "first_at": "2026-03-04T23:00:00.000+00:00",
        "last_at": "2026-03-10T11:00:00.000+00:00",
        "worst_workflow": "https://shop.example/pay",
        "worst_count": 8,
        "worst_share": 0.666667,
        "fell_back": 0,
        "gone": 0,
        "repeated": 0,
    }
    assert records(found, "where")[0] == {
        "workflow": "https://shop.example/pay", "status": 429, "failures": 4, "share": 0.333333,
    }  # fmt: skip
    assert [list(row.values())[:2] for row in records(found, "labels")] == [
        ["eu", 6],
        ["prod", 6],
        [None, 6],
    ]
    assert [(row["state"], row["failures"]) for row in records(found, "callbacks")] == [
        ("CALLBACK_FAIL", 3),
        ("CALLBACK_SUCCESS", 9),
    ]
    # failed up to 133 hours ago and kept 168: 35 hours are left of the oldest
    assert {row["when"]: row["failures"] for row in records(found, "expiry", 1)}[
        "in 1 to 3 days"
    ] == 4
    assert records(found, "expiry", 2)[0]["failure"] == "d11"
    assert (
        records(found, "expiry", 2)[0]["left"]
        == found["expiry"]["next_hours_left"]
        == 35.0
    )
    bars = [list(row.values()) for row in records(found, "when")]
    assert sum(sum(counts) for _, *counts in bars) == 12
    by_hour = [list(row.values()) for row in records(found, "hours")]
    assert sum(sum(counts) for _, *counts in by_hour) == 12


def test_verdict(make, rows, options):
    """The verdict is one sentence with counts, window, the worst workflow, and expiry."""
    report = report_failures(make(rows), retention="6d", **options)
    assert report.verdict == (
        "12 failures since 2026-03-03 00:00 UTC in 2 workflows between 2026-03-04 23:00 and 2026-03-10 11:00 "
        "UTC, 8 of them (67 %) in https://shop.example/pay; 2 expire within 24 hours."
    )
    assert repr(report) == f"FailureReport({report.verdict!r})"


@pytest.mark.slow
def test_the_verdict_names_the_filter(make, rows, options):
    """A report on a filtered load names it in the verdict, in every form, and where nothing matches."""
    chosen = tk.FailureFilter(
        label=["prod", "eu"], response_status=500, until="2026-03-10T12:00Z"
    )
    scope = {"kind": "messages", "revealed": False} | chosen.scope()
    named = "of plain messages with label prod or eu and status 500 until 2026-03-10 12:00 UTC"
    report = report_failures(make(rows, scope=scope), **options)
    assert report.verdict.startswith(f"12 failures {named} in 2 workflows between ")
    for form in (
        report.to_html(),
        report.to_markdown(),
        report.to_dict()["verdict"],
        repr(report),
    ):
        assert named in form
    assert (
        report_failures(make([], scope=scope), **options).verdict
        == f"No failures {named}."
    )
    everything = report_failures(
        make(rows, scope={"kind": "workflows", "revealed": False}), **options
    )
    assert everything.verdict.startswith("12 failures in 2 workflows between ")


@pytest.mark.slow
def test_what_is_new(make, rows, options):
    """New ids are listed latest first, new texts are marked, and the previous count is shown."""
    previous = make([row for number, row in enumerate(rows) if number % 3])
    previous["dlq_id"] = pd.Series(
        [*[f"d{n}" for n in range(12) if n % 3 and n != 1], "old"], dtype="str"
    )
    report = report_failures(make(rows), previous, **options)
    found = report.to_dict()["comparison"]
    assert found == {
        "previous_count": 8, "new": 5, "gone": 1, "is_part": False, "new_workflows": ["https://shop.example/mail"],
        "ids": ["d0", "d1", "d3", "d6", "d9"], "ids_left_out": 0, "caution": None,
    }  # fmt: skip
    assert "; 5 new compared with the earlier failures" in report.verdict
    assert (
        "; none new compared with the earlier failures"
        in report_failures(make(rows), make(rows), **options).verdict
    )


def test_many_new_ids_are_capped_with_a_count(make, options):
    """At most 200 ids are listed, and the others are counted."""
    report = report_failures(make([{}] * 450), make([]), **options)
    found = report.to_dict()["comparison"]
    assert (found["new"], len(found["ids"]), found["ids_left_out"]) == (450, 200, 250)
    assert "and 250 more" in report.to_markdown()
    assert "and 250 more" in report.to_html()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("receipt", "state", "said"),
    [
        ({}, "complete", "every entry present during the load"),
        (
            {"complete": False, "reasons": ("a cursor expired",)},
            "incomplete",
            "a cursor expired",
        ),
        ({"rows": 30}, "complete", "This report is on 12 of them"),
        (None, "unknown", "no receipt"),
    ],
)
def test_completeness_is_reported(make, rows, options, receipt, state, said):
    """The report says whether it is complete, incomplete (and why) or unknown."""
    frame = make(rows, **(receipt or {}))
    if receipt is None:
        frame.attrs.clear()
    report = report_failures(frame, **options)
    found = report.to_dict()["completeness"]
    assert found["state"] == state
    assert said in found["sentence"]
    assert report.verdict.startswith("Incomplete: at least 12") == (
        state == "incomplete"
    )
    assert said in report.to_html()
    assert said in report.to_markdown()
    assert report.to_dict()["notices"] == [
        {"text": found["sentence"], "good": state == "complete"}
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("receipt", "caution"),
    [
        ({"source": "https://other.example"}, "another source"),
        ({"complete": False}, "not complete"),
        ({"scope": {"label": ["x"]}}, "different entries"),
        ({"scope": {"since": "2026-03-05T00:00:00.000Z"}}, "different entries"),
        ({"scope": {"since": "2026-03-01T00:00:00.000Z"}}, None),
        (None, "no receipt"),
    ],
)
def test_comparisons_that_may_mislead_say_so(make, rows, options, receipt, caution):
    """Where the later load reaches further, the report warns that new may not mean new."""
    previous = make(rows[:5], **(receipt or {}))
    if receipt is None:
        previous.attrs.clear()
    report = report_failures(make(rows), previous, **options)
    if caution is None:
        assert report.to_dict()["comparison"]["caution"] is None
        return
    assert caution in report.to_dict()["comparison"]["caution"]
    assert caution in report.to_html()
    assert caution in report.to_markdown()


def test_code_asks_for_the_same(make, rows, options):
    """The code loads with the receipt's scope and makes the report with the same retention."""
    scope = {
        "kind": "messages",
        "revealed": False,
        "since": "2026-03-03T00:00:00.000Z",
        "label": ["eu", "us"],
    }
    report = report_failures(
        make(rows, scope=scope, limit=50), retention=timedelta(days=3), **options
    )
    code = report.to_dict()["code"]
    assert (
        "chosen = tk.FailureFilter(since='2026-03-03T00:00:00.000Z', label=('eu', 'us'))"
        in code
    )
    assert (
        "failures = tk.load_failures(service, chosen, kind='messages', limit=50)"
        in code
    )
    assert "tk.report_failures(failures, retention='3d').save(" in code
    compile(code, "report", "exec")


def test_every_code_uses_public_names(make, rows, options):
    """Code in a report runs unchanged, with `tk` and the frame alone."""
    found = report_failures(make(rows), **options).to_dict()
    *counting, making = codes(found)
    assert making == found["code"]
    for code in counting:
        exec(code, {"tk": tk, "failures": make(rows)})  # noqa: S102 - users are meant to run it
    named = re.findall(r"tk\.(\w+)", " ".join(codes(found)))
    assert set(named) <= set(tk.__all__)
    assert len(set(named)) >= 10


def test_no_failures(make, options):
    """No failures is a normal report, in every form."""
    report = report_failures(make([]), make([{}]), **options)
    assert (
        report.verdict
        == "No failures since 2026-03-03 00:00 UTC; none new compared with the earlier failures."
    )
    assert report.to_dict()["comparison"]["gone"] == 1
    assert "<svg" not in report.to_html()
    assert "Where it fails" not in report.to_markdown()


def test_rows_without_anything(make, options):
    """Rows with nothing but an id are reported too, in every form."""
    report = report_failures(make([{}, {}, {}]), **options)
    assert report.verdict == "3 failures since 2026-03-03 00:00 UTC."
    assert "3 failures without a usable time, in no chart." in report.to_html()
    assert "(none)" in report.to_markdown()


def test_values_are_json_and_a_copy(make, rows, options):
    """The findings are plain JSON values, and changing them does not change the report."""
    report = report_failures(make(rows), make(rows[:3]), **options)
    found = report.to_dict()
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    found["overview"]["count"] = 0
    assert report.to_dict()["overview"]["count"] == 12


def test_frames_are_not_changed(make, rows, options):
    """The caller's frames are not changed; an Arrow table has the same numbers."""
    frame, previous = make(rows), make(rows[:3])
    before = frame.copy(deep=True)
    report = report_failures(frame, previous, **options)
    pd.testing.assert_frame_equal(frame, before)
    from_arrow = report_failures(
        to_table(frame, FAILURES), previous, **options
    ).to_dict()
    assert parts(from_arrow, "where") == parts(report.to_dict(), "where") != []


@pytest.mark.parametrize("bad", [{"retention": "soon"}, {"now": "soon"}, {"now": "7d"}])
def test_bad_options_are_refused(make, options, bad):
    """A retention or a time that cannot be read is an error."""
    with pytest.raises(InputError, match="expected"):
        report_failures(make([]), **(options | bad))


def test_a_time_without_a_zone_is_utc(make, rows, options):
    """As everywhere in the toolkit, a time without a zone counts as UTC."""
    naive = options | {"now": options["now"].replace(tzinfo=None)}
    assert (
        report_failures(make(rows), **naive).to_dict()
        == report_failures(make(rows), **options).to_dict()
    )


def test_a_frame_of_something_else_is_refused(options):
    """A frame without the columns of failures is an error that names them."""
    with pytest.raises(InputError, match="failed_at"):
        report_failures(pd.DataFrame({"id": [1]}), **options)


def test_now_defaults_to_the_clock():
    """Without `now`, the clock is read."""
    made = datetime.fromisoformat(
        report_failures(frame_from_rows([], FAILURES)).to_dict()["generated_at"]
    )
    assert abs(datetime.now(UTC) - made) < timedelta(minutes=1)


def test_entries_of_a_snapshot_that_left_the_queue_do_not_expire(make, rows, options):
    """They count among the failures, are listed separately, and do not expire soon."""
    frame = make(rows)
    frame["gone_before"] = pd.to_datetime(
        ["2026-03-01"] + [None] * (len(frame) - 1), utc=True
    )
    gone = frame["dlq_id"][0]
    found = report_failures(frame, **options).to_dict()
    whole = report_failures(make(rows), **options).to_dict()
    assert (found["overview"]["count"], found["overview"]["gone"]) == (len(frame), 1)
    assert "1 from earlier loads" in found["completeness"]["sentence"]
    assert sum(row["failures"] for row in records(found, "expiry", 1)) == len(frame) - 1
    assert gone not in [row["failure"] for row in records(found, "expiry", 2)]
    assert sum(row["failures"] for row in records(whole, "expiry", 1)) == len(frame)


def test_the_four_numbers_and_their_changes(make, rows, options):
    """Totals, the last day against the one before, and expiry; changes are null where unknown."""
    wide = {"scope": {"since": "2026-03-01T00:00:00.000Z"}}
    found = report_failures(make(rows, **wide), **options).to_dict()
    numbers = [
        (number["name"], number["value"], number["change"])
        for number in found["numbers"]
    ]
    assert numbers == [
        ("failures", 12, None),
        ("in the last 24 hours", 2, None),
        ("workflows, last 24 hours", 2, 0),
        ("expire within 24 hours", 0, None),
    ]
    assert (
        found["numbers"][1]["note"] == "2 on average in as long a time: no clear change"
    )
    assert records(found, "worst")[0] == {
        "workflow": "https://shop.example/pay", "failures": 8, "last 24 h": 1, "before": 1, "share": 0.666667,
    }  # fmt: skip
    earlier = make(rows[:3], started_at="2026-03-10T11:58:00+00:00")
    compared = report_failures(make(rows), earlier, **options).to_dict()
    assert compared["numbers"][0]["change"] == 9
    assert (
        compared["numbers"][0]["note"]
        == "9 new and 0 gone compared with the earlier failures"
    )
    part = report_failures(
        make(rows), make(rows[:3]), **options
    ).to_dict()  # of the same load
    assert (part["comparison"]["is_part"], part["numbers"][0]["change"]) == (True, None)


@pytest.mark.parametrize(
    ("receipt", "retention", "count", "is_judged"),
    [
        ({"scope": {"since": "2026-03-09T00:00:00.000Z"}}, "7d", 12, True),
        ({"complete": False}, "7d", 12, True),
        (
            {"scope": {}},
            "1d",
            2,
            False,
        ),  # older failures would contradict this retention
    ],
)
def test_a_change_is_unknown_where_the_day_before_is_not_covered(
    make, rows, options, receipt, retention, count, is_judged
):
    """If a load begins later or did not end, or the queue keeps a day only, no change is claimed.

    The tile names a usual number only if the headline compares with it.
    """
    rows = rows[:count]
    found = report_failures(
        make(rows, **receipt), retention=retention, **options
    ).to_dict()
    assert found["recent"]["failures_before"] is None
    assert found["numbers"][1]["change"] is None
    note = found["numbers"][1]["note"]
    assert (note == "the earlier value is not known") is not is_judged
    assert note.endswith(": no clear change") is is_judged
    assert records(found, "worst")[0]["before"] is None
    report = report_failures(make(rows, **receipt), retention=retention, **options)
    assert not re.search(r"\bup\b", report.to_markdown()[:600])


@pytest.mark.slow
def test_the_json_twin_follows_its_schema(make, rows, options):
    """The saved report follows `docs/failure-report.schema.json`, with and without rows and comparison."""
    schema = json.loads(
        (Path(__file__).parents[2] / "docs" / "failure-report.schema.json").read_text()
    )
    validator = jsonschema.Draft202012Validator(schema)
    for made in (
        report_failures(make(rows), make(rows[:3]), **options),
        report_failures(make(rows), **options),
        report_failures(make([]), **options),
        report_failures(frame_from_rows([{"dlq_id": "a"}], FAILURES), **options),
    ):
        assert [error.message for error in validator.iter_errors(made.to_dict())] == []
    broken = report_failures(make(rows), **options).to_dict() | {
        "verdict": 3,
        "surprise": 1,
    }
    assert len(list(validator.iter_errors(broken))) == 2


@pytest.mark.slow
def test_states_beyond_the_cap_are_counted(make, rows, options):
    """Of 400 undocumented states the first 15 are listed, and entries without a state always."""
    many = rows + [
        {**rows[0], "failure_function_state": f"STATE_{number}"}
        for number in range(400)
    ]
    report = report_failures(
        make([*many, {**rows[0], "failure_function_state": None}]), **options
    )
    found = report.to_dict()
    assert len(records(found, "callbacks")) == 16
    assert records(found, "callbacks")[-1]["state"] is None
    assert parts(found, "callbacks")[0]["left_out"] == 402 - 15
    assert "387 more states" in report.to_html()
    assert "and 387 more states" in report.to_markdown()
    assert report.to_html().count("STATE_") < 40
