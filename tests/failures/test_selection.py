"""Columns as the analyses read them: by kind, for any storage type."""

from __future__ import annotations

from datetime import UTC, date, datetime

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import toolkit as tk
from toolkit.analysis import norm_bins, sample_failures
from toolkit.errors import InputError, UnexpectedResultWarning
from toolkit.tables.frame_filters import match_failures

WHEN = datetime(2026, 1, 2, tzinfo=UTC)
FRAME = pd.DataFrame(
    {
        "dlq_id": ["a", "b"],
        "workflow_url": ["https://a.example/", "https://b.example/"],
        "failed_at": pd.to_datetime(["2026-01-01T10:00Z", None]),
        "created_at": pd.to_datetime(["2026-01-01T09:00Z", "2026-01-01T11:00Z"]),
        "response_status": [500, 503],
        "response_body": ["timeout", None],
        "response_body_base64": [None, None],
        "failure_function_state": ["CALLBACK_FAIL", None],
        "labels": ['["eu"]', None],
    }
)


@pytest.mark.parametrize(
    "convert",
    [
        lambda column: column.dt.tz_localize(None),
        lambda column: column.dt.tz_convert("Asia/Tokyo"),
        lambda column: column.astype("datetime64[ns, UTC]"),
        lambda column: column.astype(
            pd.ArrowDtype(pa.timestamp("ns", "Europe/Berlin"))
        ),
        lambda column: column.dt.tz_localize(None).astype(
            pd.ArrowDtype(pa.timestamp("ms"))
        ),
    ],
)
def test_times_are_the_same_in_any_zone_and_without_one(convert):
    """A time without a zone is in UTC; one with a zone is converted."""
    other = FRAME.assign(created_at=convert(FRAME["created_at"]))
    wanted = tk.analysis.count_workflows(FRAME, now=WHEN)
    pd.testing.assert_frame_equal(tk.analysis.count_workflows(other, now=WHEN), wanted)
    assert tk.find_expiring(other, "1d", WHEN)["hours_left"].tolist() == [10.0, 11.0]


def test_texts_may_be_categories_and_missing_values_may_have_any_type():
    """A category is its text; a column in which everything is missing is one of its kind."""
    other = FRAME.assign(
        workflow_url=FRAME["workflow_url"].astype("category"),
        failed_at=np.full(2, np.nan),
        response_body=pd.Series([None, None], dtype=object),
    )
    assert (
        tk.analysis.count_workflows(other, now=WHEN)["workflow_url"].tolist()
        == FRAME["workflow_url"].tolist()
    )
    assert tk.analysis.count_errors(other)["count"].tolist() == [2]


@pytest.mark.parametrize(
    ("column", "values", "kind"),
    [
        ("created_at", [[1], [2]], "times"),
        ("created_at", [1, 2], "times"),
        ("created_at", [date(2026, 1, 1), WHEN], "times"),
        ("failed_at", ["2026-01-01", "soon"], "times"),
        ("workflow_url", [1, 2], "texts"),
        ("response_body", ["a", {"b": 1}], "texts"),
        ("response_body", [b"a", b"b"], "texts"),
    ],
)
def test_values_of_another_kind_are_an_error_that_names_the_column(
    column, values, kind
):
    """Values that are not a time, text or number are not guessed."""
    other = FRAME.assign(
        **{column: pd.Series(values, dtype=object if column != "failed_at" else None)}
    )
    with pytest.raises(InputError, match=rf"column {column} .*{kind}"):
        tk.analysis.count_errors(other)


def test_times_read_from_a_csv_file_are_converted_as_the_error_says(tmp_path):
    """The error names the call that makes texts times; of a sample, other times may stay texts."""
    original = FRAME.assign(
        workflow_created_at=FRAME["created_at"], failed_at=FRAME["created_at"]
    )
    original.to_csv(tmp_path / "failures.csv", index=False)
    failures = pd.read_csv(tmp_path / "failures.csv")
    for column in ("failed_at", "created_at"):
        with pytest.raises(InputError, match=f"column {column} ") as error:
            sample_failures(failures)
        way = f'failures["{column}"] = pd.to_datetime(failures["{column}"], utc=True)'
        assert str(error.value).endswith(way)
        exec(way)  # noqa: S102 - what the error says
    found = sample_failures(failures)
    assert found["created_at"].tolist() == FRAME["created_at"].tolist()
    assert (
        found["workflow_created_at"].tolist()
        == FRAME["created_at"].astype(str).tolist()
    )


def test_vectors_that_are_not_finite_are_left_out_of_the_norms():
    """A length is only that of numbers; omitted rows are counted."""
    found = norm_bins(
        pd.DataFrame({"vector": [[3.0, 4.0], [np.nan, 1.0], [np.inf, 1.0], None]})
    )
    assert (found.counts.sum(), found.left_out) == (1, 3)


def test_two_columns_of_one_name_are_an_error():
    """Which of them was meant is not guessed."""
    twice = pd.concat([FRAME, FRAME["labels"]], axis=1)
    for call in (
        tk.analysis.count_states,
        tk.explode_labels,
        tk.FailurePanel,
        tk.FailureFilterPanel,
    ):
        with pytest.raises(InputError, match=r"name|several columns"):
            call(twice)


def test_other_columns_may_have_any_name():
    """A name that is not Unicode, of a column that is not read, is no obstacle."""
    frame = pd.DataFrame({"label": ["a", "a", "b"], "\ud800": 1, 5: 2})
    assert tk.analysis.count_by(frame, "label")["count"].tolist() == [2, 1]


@pytest.mark.parametrize(
    "cells", [[pd.Interval(0, 1), None], [["a"], ["b"]], [b"\xff", None]]
)
def test_error_lines_that_are_no_texts_are_an_error(cells):
    """A filter by error reads texts, and numbers as texts."""
    frame = pd.DataFrame(
        {"dlq_id": ["a", "b"], "error": pd.Series(cells, dtype=object)}
    )
    with pytest.raises(InputError, match="strings or numbers"):
        match_failures(frame, tk.FailureFilter(error="amount"))
    numbers = frame.assign(error=[5, None])
    assert match_failures(numbers, tk.FailureFilter(error="5")).tolist() == [
        True,
        False,
    ]


def test_columns_as_pandas_makes_them_are_counted():
    """Intervals of `cut`, periods and sparse columns; whole fractions are named without one."""
    frame = pd.DataFrame(
        {
            "dlq_id": list("abc"),
            "retries": [1, 2, 2],
            "response_status": [500.0, 500.0, None],
        }
    )
    frame["band"] = pd.cut(frame["retries"], [0, 1, 2])
    frame["month"] = pd.period_range("2026-01", periods=3, freq="M")
    frame["sparse"] = pd.arrays.SparseArray([0, 0, 1])
    assert tk.analysis.count_by(frame, "band")["band"].tolist() == ["(1, 2]", "(0, 1]"]
    assert tk.analysis.count_by(frame, "month")["month"].tolist() == [
        "2026-01",
        "2026-02",
        "2026-03",
    ]
    assert tk.analysis.count_by(frame, "sparse")["count"].tolist() == [2, 1]
    assert (
        "500"
        in tk.analysis.count_matrix(frame, "response_status", "retries")
        .to_frame()
        .index.tolist()
    )


def test_a_column_that_is_the_index_is_found_there(tmp_path):
    """The error says where the ids are; a file without them is a warning."""
    indexed = pd.DataFrame({"dlq_id": ["a"], "labels": ['["x"]']}).set_index("dlq_id")
    for call in (tk.explode_labels, tk.group_failures):
        with pytest.raises(
            InputError, match=r"'dlq_id' is in the index: pass frame\.reset_index\(\)"
        ):
            call(indexed)
    for number, write in enumerate((tk.export_csv, tk.export_excel, tk.write_snapshot)):
        with pytest.warns(UnexpectedResultWarning, match="dlq_id"):
            write(indexed, tmp_path / f"{number}.xlsx")


def test_statuses_that_are_no_numbers_are_an_error():
    """A column of lists, which pandas does not compare with a number, is refused, and not compared."""
    pairs = pd.arrays.ArrowExtensionArray(
        pa.FixedSizeListArray.from_arrays([1.0, 2.0, 3.0, 4.0], 2)
    )
    with pytest.raises(InputError, match="strings or numbers"):
        tk.FailureFilterPanel(
            pd.DataFrame({"dlq_id": ["a", "b"], "response_status": pairs})
        )


@pytest.mark.parametrize(
    "labels", ["[" * 2000 + "]" * 2000, '{"a": 1}', "[1]", "eu", '["eu"']
)
def test_labels_that_are_no_lists_of_texts_are_an_error(labels):
    """Deeply nested ones, too: the parser's recursion ends there."""
    frame = pd.DataFrame({"dlq_id": ["a"], "labels": [labels]})
    for call in (tk.explode_labels, tk.analysis.count_labels):
        with pytest.raises(InputError, match="a JSON list of strings"):
            call(frame)


@pytest.mark.parametrize(
    "form", ["{number:08}", "{number:06}-us-east-1", "{number}-{workflow}"]
)
def test_a_sample_is_about_as_large_as_asked_whatever_the_ids_look_like(form):
    """Ids that begin or end alike are as good as others: no workflow is left out of the sample."""
    frame = pd.DataFrame(
        {"workflow_url": [f"workflow-{number % 20:08}" for number in range(20_000)]}
    )
    ids = (
        form.format(number=row, workflow=url)
        for row, url in enumerate(frame["workflow_url"])
    )
    found = sample_failures(
        frame.assign(dlq_id=list(ids), failed_at=WHEN, created_at=WHEN), most=2_000
    )
    assert len(found) == pytest.approx(2_000, rel=0.1)
    assert found["workflow_url"].value_counts().between(60, 140).sum() == 20
