"""Name the outcomes of entries of the queue, for analyses in pandas and in SQL."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

STILL_THERE: Final = "still there"
SUCCEEDED: Final = "retried and succeeded"
FAILED_AGAIN: Final = "retried and failed again"
RETRIED: Final = "retried, not ended"
CANCELED: Final = "retried and canceled"
DELETED: Final = "deleted"
EXPIRED: Final = "expired"
UNKNOWN: Final = "unknown"
OUTCOMES: Final = (
    STILL_THERE,
    SUCCEEDED,
    FAILED_AGAIN,
    RETRIED,
    CANCELED,
    DELETED,
    EXPIRED,
    UNKNOWN,
)
"""All outcomes of an entry."""

LEFT: Final = {
    "succeeded": (SUCCEEDED,),
    "retried": (FAILED_AGAIN, RETRIED, CANCELED),
    "deleted": (DELETED,),
    "expired": (EXPIRED,),
    "unknown": (UNKNOWN, STILL_THERE),
}
"""Columns of a comparison for entries that left, and the outcomes that each column counts."""

OUTCOME_OF_STATE: Final = {
    "RUN_SUCCESS": SUCCEEDED,
    "RUN_FAILED": FAILED_AGAIN,
    "RUN_CANCELED": CANCELED,
}
"""Outcomes of retries, by the state of the run. In all other states, the run has not ended."""

SEEN_LATE: Final = timedelta(days=1)
"""If an entry was seen within this time before it expired, it counts as expired rather than unknown."""
