"""A frame in a few lines."""

from __future__ import annotations

from datetime import UTC, datetime

import duckdb
import pandas as pd
import pyarrow as pa
import pytest

import toolkit as tk
from toolkit.errors import InputError
from toolkit.tables import schemas
from toolkit.tables.frames import frame_from_rows
from toolkit.tables.receipt import Receipt

MOMENTS = [datetime(2026, 3, day, 9, tzinfo=UTC) for day in (1, 2)]


def failures():
    rows = [
        {"dlq_id": str(number), "workflow_url": "<b>u</b>", "failed_at": when}
        for number, when in enumerate(MOMENTS)
    ]
    return frame_from_rows(rows, schemas.FAILURES)


def with_receipt(frame, **values):
    plain = {
        "what": "failures",
        "source": "s",
        "scope": {},
        "rows": len(frame),
        "complete": True,
    }
    times = {"started_at": MOMENTS[0].isoformat(), "ended_at": MOMENTS[1].isoformat()}
    frame.attrs["receipt"] = Receipt(**(plain | times | values)).to_dict()
    return frame


def test_failures_and_their_completeness():
    """Rows, workflows, the time they span, and the receipt's word."""
    found = tk.summarize(with_receipt(failures()))
    assert dict(found.lines) == {
        "rows": "2 failures in 1 workflow",
        "time": "2026-03-01 09:00 to 2026-03-02 09:00 UTC",
        "complete": "yes",
    }
    assert found.complete is True
    moved = tk.summarize(
        with_receipt(failures(), complete=False, reasons=("entries moved",), rows=7)
    )
    assert dict(moved.lines)["complete"] == (
        "2 of the 7 rows of the load, which was not complete: entries moved"
    )


def test_plain_messages_are_in_no_workflow():
    """Only a number of workflows that there are is named."""
    assert (
        dict(tk.summarize(failures().assign(workflow_url=None)).lines)["rows"]
        == "2 failures"
    )


def test_vectors_hits_and_other_frames():
    """Each table has its own lines; others are counted."""
    rows = [
        {"namespace": "", "id": "a", "vector": [1, 2]},
        {"namespace": "", "id": "b", "vector_problem": "x"},
    ]
    vectors = dict(tk.summarize(frame_from_rows(rows, schemas.vectors(2))).lines)
    assert vectors["rows"] == "2 vectors in 1 namespace"
    assert vectors["dimension"] == "2"
    assert vectors["not usable"].startswith("1;")
    assert "vector_problem" in vectors["not usable"]
    hits = pd.DataFrame({"query": [0, 1], "rank": [1, 1], "score": [0.25, 0.5]})
    assert dict(tk.summarize(hits).lines)["scores"] == "0.25 to 0.5"
    assert "scores" not in dict(tk.summarize(hits.assign(score=None)).lines)
    assert dict(tk.summarize(pd.DataFrame({"a": [1]})).lines)["rows"] == "1 of 1 column"
    with pytest.raises(InputError, match="a frame"):
        tk.summarize(3)


def test_rows_of_overlapping_loads_are_named():
    """Rows that repeat an id, of every engine; rows without one repeat none."""
    once = failures()
    twice = pd.concat(
        [once, once, once.head(1), once.assign(dlq_id=None)], ignore_index=True
    )
    for rows in (
        twice,
        pa.Table.from_pandas(twice),
        duckdb.from_arrow(pa.Table.from_pandas(twice)),
    ):
        found = dict(tk.summarize(rows).lines)
        assert (
            found["repeated"]
            == '3 rows repeat a dlq_id: drop_duplicates("dlq_id") counts each entry once'
        )
    assert dict(tk.summarize(pd.concat([once, once.head(1)])).lines)[
        "repeated"
    ].startswith("1 row repeats")
    assert "repeated" not in dict(tk.summarize(once).lines)


@pytest.mark.parametrize(
    "frame", [pd.DataFrame(), pd.DataFrame(index=range(5)), pa.table({})]
)
def test_a_frame_without_columns_is_refused(frame):
    """Its rows cannot be counted by a column; what would read none of its columns says the same."""
    for call in (
        tk.summarize,
        lambda frame: tk.select_failures(frame, {}),
        tk.group_failures,
    ):
        with pytest.raises(
            InputError, match=r"without columns; expected a frame with columns"
        ):
            call(frame)


def test_text_from_data_is_text():
    """Reasons from elsewhere neither become markup nor turn the reading direction."""
    found = tk.summarize(
        with_receipt(failures(), complete=False, reasons=("<img src=x>\u202e",))
    )
    assert "<img" not in found._repr_html_()
    assert "\u202e" not in repr(found)


@pytest.mark.parametrize(
    "schema", [schemas.FAILURES, schemas.vectors(3), schemas.hits(), schemas.RUNS]
)
def test_empty_frames(schema):
    """A frame without rows has a summary."""
    assert tk.summarize(frame_from_rows([], schema)).rows == 0
