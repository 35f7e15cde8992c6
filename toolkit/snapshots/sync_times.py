"""Find out when a snapshot was brought up to date, from the receipts in the manifest."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from statistics import median
from typing import Any

from toolkit.snapshots.manifest import Manifest
from toolkit.tables.receipt import Syncs

Span = tuple[datetime, datetime]


def syncs_of(manifest: Manifest) -> Syncs:
    """Return the times of the syncs of a snapshot.

    For failures, the manifest has `complete_at`. For vectors, it is taken from the latest complete receipt.
    """
    complete = [
        _span(receipt) for receipt in manifest.receipts if receipt.get("complete")
    ]
    interval = _usual_interval([start for start, _ in complete])
    complete_at = manifest.complete_at
    if complete_at is None and complete:
        complete_at = complete[-1][0].isoformat(timespec="milliseconds")
    return Syncs(
        complete_at=complete_at,
        every_seconds=None if interval is None else interval.total_seconds(),
        longest_seconds=max((_seconds(span) for span in complete), default=0.0),
    )


def last_complete(manifest: Manifest, began: datetime) -> datetime | None:
    """Return when the last complete sync before a sync began; None if no sync was complete.

    If the clock was wrong at that time, it is after the sync, or before the first one. An earlier sync counts
    then, if the manifest has the receipt of one.
    """
    if manifest.complete_at is None:
        return None

    noted = datetime.fromisoformat(manifest.complete_at)
    first = noted
    if manifest.coverage is not None:
        first = manifest.coverage.begin
    if first <= noted <= began:
        return noted

    starts = [
        _span(receipt)[0] for receipt in manifest.receipts if receipt.get("complete")
    ]
    return max((start for start in starts if first <= start <= began), default=noted)


def _span(receipt: dict[str, Any]) -> Span:
    return datetime.fromisoformat(receipt["started_at"]), datetime.fromisoformat(
        receipt["ended_at"]
    )


def _seconds(span: Span) -> float:
    start, end = span
    return max((end - start).total_seconds(), 0.0)


def _usual_interval(starts: Sequence[datetime]) -> timedelta | None:
    """Return the median time between two syncs, on which a stop or a changed clock has little influence."""
    seconds = [
        (later - earlier).total_seconds()
        for earlier, later in pairwise(starts)
        if later > earlier
    ]
    if not seconds:
        return None

    return timedelta(seconds=median(seconds))
