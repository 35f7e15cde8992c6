"""The messages that failures have cost."""

from __future__ import annotations

import pandas as pd
import pyarrow as pa
import pytest

import toolkit as tk
from toolkit.analysis import count_deliveries
from toolkit.errors import InputError

DAY = pd.Timestamp("2026-03-01", tz="UTC")


def failures(**columns: list[object]) -> pd.DataFrame:
    """Return failures of one workflow, an hour apart; missing columns have usual values."""
    rows = len(next(iter(columns.values())))
    times = pd.date_range(DAY, periods=rows, freq="h")
    usual = {
        "workflow_url": ["https://shop.example/checkout"] * rows,
        "max_retries": [3] * rows,
        "response_status": [500] * rows,
        "failure_function_state": [None] * rows,
        "response_headers": [None] * rows,
        "failed_at": times,
        "created_at": times,
    }
    return pd.DataFrame(usual | columns)


def test_used_retries_are_deliveries_and_refused_ones_are_a_lower_bound():
    """Three retries are four deliveries; after status 489 or the header, only the first one is certain."""
    counts = count_deliveries(failures(max_retries=[3, 0]))
    assert counts[["deliveries", "retries", "messages"]].iloc[0].tolist() == [5, 3, 5]
    assert not counts["lower_bound"][0]
    refused = failures(
        response_status=[489, 500, 500],
        response_headers=[None, '{"Upstash-NonRetryable-Error": ["true"]}', None],
        max_retries=[3, 3, None],
    )
    counts = count_deliveries(refused)
    assert counts[["deliveries", "retries"]].iloc[0].tolist() == [3, 0]
    assert counts["lower_bound"][0]


@pytest.mark.parametrize(
    ("state", "calls", "lower_bound"),
    [
        (None, 0, False),
        ("CALLBACK_SUCCESS", 1, False),
        ("CALLBACK_FAIL", 1, True),
        ("CALLBACK_INPROGRESS", 1, True),
    ],
)
def test_failure_functions_are_called_at_least_once(state, calls, lower_bound):
    """A call that failed may have been repeated, so the count is a lower bound."""
    counts = count_deliveries(failures(failure_function_state=[state]))
    assert counts["failure_callbacks"][0] == calls
    assert counts["messages"][0] == 4 + calls
    assert counts["lower_bound"][0] == lower_bound


def test_rows_are_per_day_and_workflow_with_runs_callbacks_and_costs():
    """Runs and callbacks are added per day and workflow; the price is multiplied by the messages."""
    times = pd.to_datetime(["2026-03-01 23:59", "2026-03-02 00:00", None], utc=True)
    frame = failures(max_retries=[1, 1, 1], failed_at=times, created_at=times)
    runs = pd.DataFrame(
        {
            "workflow_url": "https://shop.example/checkout",
            "state": ["RUN_SUCCESS", "RUN_FAILED", "RUN_STARTED"],
            "created_at": [DAY] * 3,
        }
    )
    callbacks = pd.DataFrame(
        {
            "url": "https://shop.example/checkout",
            "kind": ["callback", "failure"],
            "retried": [2, 5],
            "received_at": [DAY] * 2,
        }
    )
    counts = count_deliveries(frame, runs, callbacks=callbacks, price=0.01)
    assert counts["day"].tolist() == [DAY + pd.Timedelta(days=1), DAY, pd.NaT]
    assert counts["failures"].tolist() == [1, 1, 1]
    assert counts["runs"].tolist() == [pd.NA, 2, pd.NA]
    assert counts["callbacks"].tolist() == [pd.NA, 3, pd.NA]
    assert counts["messages"].tolist() == [2, 7, 2]
    assert counts["cost"].tolist() == pytest.approx([0.02, 0.07, 0.02])
    assert counts["lower_bound"].tolist() == [False, True, False]


def test_an_empty_frame_has_the_same_columns_and_types():
    """No failures are no rows; types do not change."""
    full = count_deliveries(failures(max_retries=[3]), price=1)
    empty = count_deliveries(failures(max_retries=[3])[:0], price=1)
    assert empty.empty
    assert empty.dtypes.to_dict() == full.dtypes.to_dict()


def test_loaded_failures_are_counted_and_secrets_masked():
    """A token in an address is masked, and Arrow tables have the same result."""
    token = "ghp_" + "a1B2c3D4e5F6a7B8c9D0e1F2a3B4c5D6e7F8"
    frame = failures(workflow_url=[f"https://shop.example/checkout?token={token}"])
    counts = count_deliveries(frame)
    assert token not in counts.to_csv()
    of_arrow = count_deliveries(pa.Table.from_pandas(frame))
    pd.testing.assert_frame_equal(counts, of_arrow)


@pytest.mark.parametrize("price", [0, -1, float("nan"), "cheap"])
def test_wrong_prices_are_input_errors(price):
    """A price is a number above 0."""
    with pytest.raises(InputError, match="price"):
        tk.analysis.count_deliveries(failures(max_retries=[3]), price=price)
