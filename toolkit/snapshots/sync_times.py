"""When a snapshot was brought up to date, by the receipts that the manifest keeps."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from statistics import median
from typing import Any

from toolkit.receipt import Syncs
from toolkit.snapshots.manifest import Manifest

Span = tuple[datetime, datetime]


def syncs_of(manifest: Manifest) -> Syncs:
    """Return when the syncs of a snapshot were.

    `complete_at` of the manifest is that of failures; of vectors, the latest complete receipt tells it.
    """
    complete = [_span(receipt) for receipt in manifest.receipts if receipt.get("complete")]
    every = _usual_interval([start for start, _ in complete])
    complete_at = manifest.complete_at
    if complete_at is None and complete:
        complete_at = complete[-1][0].isoformat(timespec="milliseconds")
    return Syncs(
        complete_at=complete_at,
        every_seconds=None if every is None else every.total_seconds(),
        longest_seconds=max((_seconds(span) for span in complete), default=0.0),
    )


def _span(receipt: dict[str, Any]) -> Span:
    return datetime.fromisoformat(receipt["started_at"]), datetime.fromisoformat(receipt["ended_at"])


def _seconds(span: Span) -> float:
    start, end = span
    return max((end - start).total_seconds(), 0.0)


def _usual_interval(starts: Sequence[datetime]) -> timedelta | None:
    """Return the median time between two syncs: neither a stop nor a clock that was changed moves it much."""
    seconds = [(later - earlier).total_seconds() for earlier, later in pairwise(starts) if later > earlier]
    return timedelta(seconds=median(seconds)) if seconds else None
