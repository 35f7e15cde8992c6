"""Describe the failures that a panel shows: their numbers, and remarks about the search."""

from __future__ import annotations

from datetime import datetime

from toolkit.widgets.failure_rows import FailureRows, FailureView, Indices


def counts_in_words(rows: FailureRows, view: FailureView, found: Indices) -> str:
    """Return the numbers of failures that are found and selected."""
    selected = f"{len(view.selected):,} selected"
    counts = f"{len(found):,} of {len(rows):,} failures · {selected}"
    # without a search, all selected failures are found
    if not view.search:
        return counts

    found_ids = rows.ids(found.tolist())
    not_found = set(view.selected).difference(found_ids)
    if not_found:
        counts += f", {len(not_found):,} of them not among those found"
    return counts


def remarks_in_words(
    rows: FailureRows, view: FailureView, found: Indices, end: datetime
) -> str:
    """Return how the search was understood, the mark of entries without a failure time, and what is new.

    `end` is the end of the data.
    """
    remarks = []
    words = view.search.split()

    statuses = ", ".join(filter(rows.is_status, words))
    if statuses:
        remarks.append(
            f"{statuses} as status; in quotation marks a number is found as text."
        )

    if not len(found):
        remarks.extend(rows.unknown_words(view.search))
    if rows.without_time:
        remarks.append(
            "≥ marks entries without a failure time; their creation time is shown."
        )
    # for example a load of the last day, in which every error begins
    if rows.begin_within_a_day(end):
        remarks.append(
            "No failure here is older than 24 hours, so each group counts as new."
        )

    return " ".join(remarks)
