"""Search the failures that a team has stored in a vector index, over months.

The index finds candidates by vectors. Whether a group was seen before is then decided by the comparison of
texts that also decides for frames (`text_index.py`). The measured error rate is the same (docs/accuracy.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final

import pandas as pd

from toolkit.failures.text_index import Match
from toolkit.loading.fetching import fetch_vectors
from toolkit.loading.queries import run_queries
from toolkit.loading.text_embedding import Embed, text_queries
from toolkit.secrets.redaction import Redactor, visible
from toolkit.service.settings import Service
from toolkit.tables.metadata_fields import metadata_values

NAMESPACE: Final = "failures"
LONGEST: Final = 4_000
"""Characters of an example that are stored and compared."""

_CANDIDATES: Final = 20  # per group: the comparison of texts then orders them
_BATCH: Final = 50  # queries per request


@dataclass(frozen=True)
class Remembered:
    """A stored group of failures."""

    group: str
    title: str
    text: str
    first_at: pd.Timestamp
    last_at: pd.Timestamp
    count: int
    outcome: str


def stored_text(text: object, redactor: Redactor) -> str:
    """Return the masked example of a group, as it is stored and queried; never empty."""
    if not isinstance(text, str):
        text = ""  # a missing body
    masked = redactor.text(text[:LONGEST])
    return masked.strip() or "empty response"


def remembered(
    groups: Sequence[str],
    texts: Sequence[str],
    service: Service,
    namespace: str,
    embed: Embed | None,
) -> tuple[list[Remembered], list[str]]:
    """Return the stored groups that may be similar to one of these, and warnings about the namespace."""
    ids: dict[str, None] = {}
    queries = text_queries(texts, embed, top_k=_CANDIDATES, namespace=namespace)

    mistakes: list[str] = []
    for start in range(0, len(queries), _BATCH):
        hits, found = run_queries(service, queries[start : start + _BATCH])
        mistakes = mistakes or found
        ids |= dict.fromkeys(hits["id"])

    if not ids:
        return [], mistakes

    # the same group, even if twenty others are nearer
    ids |= dict.fromkeys(groups)
    stored = fetch_vectors(service, [*ids], namespace=namespace, include_vectors=False)
    columns = zip(
        stored["id"], metadata_values(stored["metadata"]), stored["data"], strict=True
    )
    rows = [
        _row(name, values, data, service.redactor) for name, values, data in columns
    ]

    return [row for row in rows if row is not None], mistakes


def _row(name: str, values: Any, data: Any, redactor: Redactor) -> Remembered | None:
    """Return a stored group; None if it is no row of `index_failures`."""
    if not isinstance(values, Mapping) or not isinstance(data, str):
        return None

    first, last = time_of(values, "first_at"), time_of(values, "last_at")
    count = values.get("count")
    if first is None or last is None or not isinstance(count, int):
        return None

    return Remembered(
        group=name,
        title=visible(redactor.text(str(values.get("title", "")))),
        text=data[:LONGEST],
        first_at=first,
        last_at=last,
        count=count,
        outcome=visible(redactor.text(str(values.get("outcome", "")))),
    )


def time_of(values: Mapping[Any, Any], name: str) -> pd.Timestamp | None:
    """Return a time of the metadata; None if it is absent or unreadable."""
    time = values.get(name)
    if not isinstance(time, str):
        return None

    parsed = pd.to_datetime(time, utc=True, errors="coerce", format="ISO8601")
    return None if pd.isna(parsed) else parsed.as_unit("ms")


def earlier_rows(
    matches: Sequence[Match],
    stored: Sequence[Remembered],
    first_at: pd.Timestamp,
    group: str,
    least_similarity: float,
) -> list[dict[str, Any]]:
    """Return a row per similar group that failed before a time, the group itself first.

    A group that was stored from the same failures is not earlier than itself.
    """
    rows = []
    for match in matches:
        known = stored[match.row]
        if known.first_at >= first_at:
            continue
        is_same = known.group == group
        row = {
            "similar": known.group,
            "similar_title": known.title,
            "similarity": 1.0 if is_same else match.similarity,
            "seen": is_same or match.error_similarity >= least_similarity,
            "count": known.count,
            "last_at": known.last_at,
            "outcome": known.outcome,
        }
        rows.append((not is_same, row))

    rows.sort(key=itemgetter(0))
    return [row | {"rank": rank} for rank, (_, row) in enumerate(rows, 1)]
