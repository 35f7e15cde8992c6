"""Count the messages that failures have cost: deliveries, retries, and calls of failure functions.

The service charges each attempt to deliver, and each call of a callback. An entry of the queue tells how many
retries were allowed, not how many were made, and nothing about the attempts of callbacks. So many counts are
bounds from below, and the column `lower_bound` tells which.

For example, an entry has three allowed retries, and its failure function was called:

- If the response asks not to retry, there was at least one delivery.
- Otherwise the retries were used up: four deliveries, three of them retries.
- In both cases, there was at least one call of the failure function.
"""

from __future__ import annotations

from typing import Final

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.base.arguments import positive
from toolkit.base.visible_text import visible
from toolkit.failures.refusals import refused_by_headers
from toolkit.failures.selection import NONE, opened, select, select_timed
from toolkit.failures.sources import AnyFrame
from toolkit.secrets.redaction import Redactor
from toolkit.tables.frames import plain_frame

_DOING: Final = "counting deliveries"
_REFUSED: Final = 489
"""Status of the workflow SDKs for an error that no retry can help."""

_CERTAIN: Final = "CALLBACK_SUCCESS"
_COUNTS: Final = ("failures", "deliveries", "retries", "failure_callbacks")
_SUMS: Final = (*_COUNTS, "lower_bound")
_TYPES: Final = {
    "day": "datetime64[ms, UTC]", "workflow_url": "str", "failures": "Int64", "deliveries": "Int64",
    "retries": "Int64", "failure_callbacks": "Int64", "callbacks": "Int64", "runs": "Int64",
    "messages": "Int64", "lower_bound": "bool",
}  # fmt: skip


def count_deliveries(
    failures: AnyFrame,
    runs: AnyFrame | None = None,
    *,
    callbacks: AnyFrame | None = None,
    price: float | None = None,
) -> pd.DataFrame:
    """Count the charged messages of failures, per workflow and day.

    Do not use it as an invoice: successful steps are not in the queue, so they are not counted.

    Parameters
    ----------
    failures : frame
        With the columns `workflow_url`, `max_retries`, `response_status`, `failure_function_state`,
        `failed_at`, `created_at`, and `response_headers` if there are headers.
    runs : frame, optional
        Of `load_runs`: adds one delivery per run that has not failed, which is the least a run costs.
    callbacks : frame, optional
        Of `load_callbacks`: adds the attempts of callbacks, whose number is known.
    price : float, optional
        Price of a message, in any currency. If given, the result has the column `cost`.

    Returns
    -------
    pandas.DataFrame
        One row per day (UTC) and workflow, the latest day first: `day` (datetime64[ms, UTC]; missing if no
        time is known), `workflow_url` (str), `failures`, `deliveries`, `retries`, `failure_callbacks`,
        `callbacks`, `runs` (Int64; the last two are missing if the frame was not given), `messages` (Int64:
        deliveries, callbacks and runs), `lower_bound` (bool: whether more messages may have been sent), and
        `cost` (float64).

    Raises
    ------
    InputError
        If a column is missing, or `price` is not a number above 0.

    Examples
    --------
    >>> times = pd.to_datetime(["2026-01-01 06:00", "2026-01-01 07:00"], utc=True)
    >>> frame = pd.DataFrame({"workflow_url": "u", "max_retries": [3, 3], "response_status": [500, 489],
    ...     "failure_function_state": [None, "CALLBACK_SUCCESS"], "failed_at": times, "created_at": times})
    >>> count_deliveries(frame, price=0.5)[["deliveries", "retries", "failure_callbacks", "cost"]]
       deliveries  retries  failure_callbacks  cost
    0           5        3                  1   3.0
    """
    price = positive("price", price, optional="no costs")
    parts = [_of_failures(failures)]
    if runs is not None:
        parts.append(_of_runs(runs))
    if callbacks is not None:
        parts.append(_of_callbacks(callbacks))
    keys = ["day", "workflow_url"]
    rows = pd.concat(parts, ignore_index=True).groupby(keys, dropna=False)
    sums = rows.sum(min_count=1).reset_index()
    counts = sums.reindex(columns=[*_TYPES]).astype({"failures": "Int64"})
    for name in _COUNTS:
        counts[name] = counts[name].fillna(0)
    sent = counts[["deliveries", "failure_callbacks", "callbacks", "runs"]]
    counts["messages"] = sent.fillna(0).sum(axis=1)
    counts["lower_bound"] = counts["lower_bound"].fillna(0) > 0
    shown = counts["workflow_url"].map(_shown)
    counts = counts.assign(workflow_url=shown).astype(_TYPES)
    counts = counts.sort_values(
        ["day", "messages", "workflow_url"],
        ascending=[False, False, True],
        ignore_index=True,
    )
    if price is not None:
        counts["cost"] = counts["messages"].astype("float64") * float(price)
    return counts


def charged_messages(failures: AnyFrame) -> pd.DataFrame:
    """Count the charged messages of failures by workflow, the most first.

    Returns
    -------
    pandas.DataFrame
        `workflow_url` (not masked), `failures`, `deliveries`, `retries`, `failure_callbacks`, `messages`
        (int64) and `lower_bound` (bool), as in `count_deliveries`.
    """
    rows = _of_failures(failures).drop(columns="day")
    counts = rows.groupby("workflow_url", dropna=False).sum().reset_index()
    counts["messages"] = counts["deliveries"] + counts["failure_callbacks"]
    counts["lower_bound"] = counts["lower_bound"] > 0

    return counts.sort_values(
        ["messages", "workflow_url"], ascending=[False, True], ignore_index=True
    )


def _shown(workflow: object) -> str:
    if not isinstance(workflow, str):
        return NONE
    return visible(Redactor().url(workflow))


def _of_failures(failures: AnyFrame) -> pd.DataFrame:
    """Return the counts by day and workflow."""
    columns = [
        "workflow_url",
        "max_retries",
        "response_status",
        "failure_function_state",
    ]
    if "response_headers" in opened(failures, doing=_DOING).names:
        columns.append("response_headers")
    rows = select_timed(failures, columns, doing=_DOING).then(_counted)
    sums = {name: (name, "sum") for name in _SUMS}
    counted = rows.count("day", "workflow_url", **sums)

    return plain_frame(counted.drop_columns(["count_"]))


def _counted(table: pa.Table) -> pa.Table:
    """Return the day, the workflow and the messages of each failure of a batch."""
    is_refused = pc.fill_null(pc.equal(table["response_status"], _REFUSED), False)
    if "response_headers" in table.column_names:
        by_header = pa.array(refused_by_headers(table["response_headers"]), pa.bool_())
        is_refused = pc.or_(is_refused, by_header)

    allowed = table["max_retries"].cast(pa.float64()).cast(pa.int64(), safe=False)
    is_known = pc.and_(pc.is_valid(allowed), pc.invert(is_refused))
    is_known = pc.fill_null(is_known, False)
    retries = pc.if_else(is_known, pc.fill_null(allowed, 0), 0)
    state = table["failure_function_state"]
    called = pc.is_valid(state)
    # a call that failed, or that is not done, may have had retries of its own
    is_certain = pc.fill_null(pc.equal(state, _CERTAIN), True)
    ones = pa.array([1] * table.num_rows, pa.int64())

    return pa.table(
        {
            "day": pc.floor_temporal(table["when_"], unit="day"),
            "workflow_url": table["workflow_url"],
            "failures": ones,
            "deliveries": pc.add(retries, 1),
            "retries": retries,
            "failure_callbacks": called.cast(pa.int64()),
            "lower_bound": pc.invert(pc.and_(is_known, is_certain)).cast(pa.int64()),
        }
    )


def _of_runs(runs: AnyFrame) -> pd.DataFrame:
    """Return one message per run that has not failed. A run has at least one delivery, usually more."""
    columns = ["workflow_url", "state", "created_at"]
    table = select(runs, columns, doing=_DOING, name="runs").whole_table(_DOING)
    others = pc.not_equal(pc.fill_null(table["state"], ""), "RUN_FAILED")

    return _one_each(table.filter(others), "workflow_url", "created_at", "runs").assign(
        lower_bound=1
    )


def _of_callbacks(callbacks: AnyFrame) -> pd.DataFrame:
    """Return the attempts of each callback."""
    columns = ["url", "kind", "retried", "received_at"]
    chosen = select(callbacks, columns, doing=_DOING, name="callbacks")
    table = chosen.whole_table(_DOING)
    # calls of failure functions are counted by the state of the entries
    table = table.filter(pc.equal(table["kind"], "callback"))
    frame = _one_each(table, "url", "received_at", "callbacks")
    retried = plain_frame(table.select(["retried"]))["retried"].fillna(0)

    return frame.assign(callbacks=frame["callbacks"] + retried.to_numpy())


def _one_each(table: pa.Table, workflow: str, time: str, count: str) -> pd.DataFrame:
    ones = pa.array([1] * table.num_rows, pa.int64())
    day = pc.floor_temporal(table[time], unit="day")

    return plain_frame(
        pa.table({"day": day, "workflow_url": table[workflow], count: ones})
    )
