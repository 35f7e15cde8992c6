"""Counts by column, label and callback state; headline numbers; new ids."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pandas as pd
import pytest

from toolkit.analysis import (
    count_by,
    count_labels,
    count_states,
    failure_delays,
    failure_overview,
    new_and_gone,
    recent_failures,
)
from toolkit.errors import InputError
from toolkit.tables.frames import frame_from_rows, to_table
from toolkit.tables.schemas import FAILURES, vectors

START = datetime(2026, 3, 2, tzinfo=UTC)


def frame(*rows):
    return frame_from_rows(
        [{"dlq_id": f"d{number}", **row} for number, row in enumerate(rows)], FAILURES
    )


def test_counts_of_combinations():
    """Combinations of columns are counted, missing values among them, the largest first."""
    rows = frame(
        {"workflow_url": "a", "response_status": 500}, {"workflow_url": "a", "response_status": 500},
        {"workflow_url": "a", "response_status": None}, {"workflow_url": None, "response_status": 404},
    )  # fmt: skip
    for source in (rows, to_table(rows, FAILURES)):
        counted = count_by(source, ["workflow_url", "response_status"])
        assert counted["count"].tolist() == [2, 1, 1]
        assert counted["share"].tolist() == [0.5, 0.25, 0.25]
        assert counted["workflow_url"].isna().tolist() == [False, False, True]
        assert counted["response_status"].isna().tolist() == [False, True, False]
        assert str(counted["response_status"].dtype) == "Int64"


def test_counting_nothing():
    """An empty frame returns no rows, with columns."""
    assert list(count_by(frame(), "workflow_url")) == ["workflow_url", "count", "share"]
    assert list(count_labels(frame())) == ["label", "count", "share"]
    assert list(count_states(frame())) == ["state", "count", "share", "meaning"]


def test_labels_count_under_each():
    """A failure counts once under each of its labels, one without any under none."""
    counted = count_labels(
        frame(
            {"labels": '["a","b","a"]'},
            {"labels": '["a"]'},
            {"labels": "[]"},
            {"labels": None},
        )
    )
    assert counted["label"].fillna("-").tolist() == ["a", "-", "b"]
    assert counted["count"].tolist() == [2, 2, 1]
    assert counted["share"].tolist() == [0.5, 0.5, 0.25]


def test_callback_states_need_first():
    """States that need a person come first, unknown ones keep their order, none is last."""
    states = [
        "CALLBACK_SUCCESS",
        "CALLBACK_SUCCESS",
        None,
        "CALLBACK_FAIL",
        "CALLBACK_ASLEEP",
    ]
    counted = count_states(
        frame(*({"failure_function_state": state} for state in states))
    )
    assert counted["state"].fillna("-").tolist() == [
        "CALLBACK_FAIL",
        "CALLBACK_SUCCESS",
        "CALLBACK_ASLEEP",
        "-",
    ]
    assert counted["count"].tolist() == [1, 2, 1, 1]
    assert "unknown to this toolkit" in counted["meaning"][2]


def test_overview_by_hand():
    """Headline numbers are those counted by hand; a missing workflow is not a workflow."""
    rows = frame(
        {"workflow_url": "b", "workflow_run_id": "1", "failed_at": START},
        {
            "workflow_url": "a",
            "workflow_run_id": "1",
            "created_at": START - timedelta(hours=1),
        },
        {
            "workflow_url": "a",
            "workflow_run_id": "2",
            "failed_at": START + timedelta(hours=1),
        },
        {"workflow_url": None, "workflow_run_id": None},
    )
    for source in (rows, to_table(rows, FAILURES)):
        found = failure_overview(source)
        assert (found.count, found.workflows, found.runs, found.fell_back) == (
            4,
            2,
            2,
            1,
        )
        assert (found.worst_workflow, found.worst_count) == ("a", 2)
        assert (found.first_at, found.last_at) == (
            START - timedelta(hours=1),
            START + timedelta(hours=1),
        )


def test_overview_of_nothing():
    """No rows is a normal overview."""
    found = failure_overview(frame())
    assert (found.count, found.workflows, found.first_at, found.worst_workflow) == (
        0,
        0,
        None,
        None,
    )


@pytest.mark.parametrize(
    ("now", "span"),
    [
        (START, timedelta(days=1)), (START.replace(tzinfo=None), "1d"), (pd.Timestamp(START), "24h"),
        (pd.Timestamp("2026-03-02"), pd.Timedelta(days=1)), ("2026-03-02T00:00", "1 day"),
    ],
)  # fmt: skip
def test_recent_failures_of_any_time_and_span(now, span, monkeypatch):
    """A time without a zone is UTC wherever the computer is; spans are read as everywhere."""
    monkeypatch.setenv("TZ", "Pacific/Kiritimati")
    time.tzset()
    hours = (-1, -23, -25, 1)
    found = recent_failures(
        frame(*({"failed_at": START + timedelta(hours=h)} for h in hours)),
        now,
        span=span,
    )
    monkeypatch.undo()
    time.tzset()
    assert (found.failures, found.failures_before, found.span) == (
        2,
        1,
        timedelta(days=1),
    )


def test_recent_failures_of_no_time_or_span_are_an_error():
    """An age or a day is no exact time; a span is neither negative nor nothing."""
    for now in ("2d", "2026-03-02"):
        with pytest.raises(InputError, match="reading now"):
            recent_failures(frame({}), now)
    for span in (timedelta(days=-1), "0s", "soon", 5):
        with pytest.raises(InputError, match="reading span"):
            recent_failures(frame({}), START, span=span)


def test_new_and_missing_ids():
    """New ids are ordered by latest failure, missing ones sorted, and new workflows are named."""
    earlier = frame({"workflow_url": "a"}, {"workflow_url": "a"})
    later = frame_from_rows(
        [
            {"dlq_id": "d1", "workflow_url": "a"},
            {"dlq_id": "x", "workflow_url": "b", "failed_at": START},
            {
                "dlq_id": "y",
                "workflow_url": None,
                "created_at": START + timedelta(days=1),
            },
            {"dlq_id": "z", "workflow_url": "a"},
        ],
        FAILURES,
    )
    found = new_and_gone(earlier, later)
    assert (found.new, found.gone, found.new_workflows) == (
        ("y", "x", "z"),
        ("d0",),
        ("b",),
    )
    unknown = later.assign(
        dlq_id=pd.Series(["x", None, "z", *later["dlq_id"][3:]], dtype="str")
    )
    assert None not in new_and_gone(earlier, unknown).new
    assert None not in new_and_gone(unknown, earlier).gone


def test_many_ids_are_shown_as_their_number_and_a_few():
    """A notebook shows a line, whatever the number of ids; the ids are in the value."""
    rows = frame(*({"workflow_url": "a"} for _ in range(5_000)))
    found = new_and_gone(rows[:2], rows)
    assert repr(found) == "new: 4,998 (d10, d100, d1000, …); gone: 0; new workflows: 0"
    assert len(found.new) == 4_998
    assert (
        repr(new_and_gone(rows[:2], rows[:0]))
        == "new: 0; gone: 2 (d0, d1); new workflows: 0"
    )


def test_entries_that_left_the_queue_of_a_snapshot_are_gone():
    """Those with `gone_before` in the later frame left since, unless the earlier one has it, too."""
    rows = frame(*({"workflow_url": "a"} for _ in range(4)))

    def stored(*left):
        return rows.assign(
            gone_before=pd.Series(START, index=rows.index).where(
                rows["dlq_id"].isin(left)
            )
        )

    found = new_and_gone(stored("d0")[:3], stored("d0", "d1", "d3"))
    assert (found.new, found.gone) == (("d3",), ("d1",))


def test_a_failure_in_the_second_of_its_creation_has_lifetime_zero():
    """`failed_at` has whole seconds and `created_at` milliseconds: a difference below zero is zero."""
    created = START + timedelta(milliseconds=678)
    rows = [
        {"failed_at": START + timedelta(seconds=later), "created_at": created}
        for later in (0, 0, 1, 90)
    ]
    found = failure_delays(frame(*rows, {"failed_at": START}))
    assert (found.total, found.left_out) == (4, 1)
    assert found.edges[0] == 0
    assert found.counts[0] == 3


def test_columns_that_cannot_be_counted():
    """Vectors, and columns that are not there, are refused by name."""
    with pytest.raises(InputError, match="nothing"):
        count_by(frame({}), "nothing")
    with pytest.raises(InputError, match="vector"):
        count_by(
            frame_from_rows(
                [{"namespace": "", "id": "a", "vector": [1, 2]}], vectors(2)
            ),
            "vector",
        )


def test_labels_and_headers_are_counted_as_they_are():
    """Columns of JSON text are counted by their whole text."""
    found = count_by(
        frame({"labels": '["a","b"]'}, {"labels": '["a","b"]'}, {}), "labels"
    )
    assert found["labels"].tolist()[0] == '["a","b"]'
    assert found["count"].tolist() == [2, 1]


@pytest.mark.parametrize("columns", ["team", ["team", "method"]])
def test_a_column_of_categories_is_counted_like_its_values(columns):
    """Alone and beside others: what astype("category") changes is the storage, not the counts."""
    frame = pd.DataFrame(
        {"team": ["u", "v", "u", None], "method": ["GET", "PUT", "GET", "GET"]}
    )
    expected = count_by(frame, columns)
    categories = count_by(frame.astype({"team": "category"}), columns)
    pd.testing.assert_frame_equal(categories, expected)
