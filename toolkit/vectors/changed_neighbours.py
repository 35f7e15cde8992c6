"""Read missed neighbours again, because a vector that changed meanwhile is no miss of the search."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Final, TypeAlias

from toolkit.base.errors import UnexpectedResultWarning
from toolkit.loading.fetching import FETCH_BATCH, fetch_vectors
from toolkit.service.settings import Service
from toolkit.tables.metadata_fields import match_metadata
from toolkit.tables.vector_matrix import as_matrix
from toolkit.vectors.exact_comparison import ExactSearch

Missed: TypeAlias = dict[str, list[tuple[int, float]]]
"""Per missed id: the numbers of the queries, and the scores of the vector that was read."""

# Relative difference of scores of one vector, if numbers have the precision of float32 or float16.
_SAME: Final = 1e-3


def find_changed(service: Service, search: ExactSearch, missed: Missed) -> set[str]:
    """Return the missed ids whose vectors are gone, have another score, or match the filter no more."""
    changed: set[str] = set()
    ids = list(missed)
    for start in range(0, len(ids), FETCH_BATCH):
        part = ids[start : start + FETCH_BATCH]
        changed |= set(part) - set(_unchanged(service, search, part, missed))

    return changed


def _unchanged(
    service: Service,
    search: ExactSearch,
    ids: list[str],
    missed: Missed,
) -> Iterator[str]:
    """Yield the ids whose vectors have the scores that they had when they were read."""
    with warnings.catch_warnings():
        # ids that are gone, and a filter that matches none of the rest, are answers here
        warnings.simplefilter("ignore", UnexpectedResultWarning)
        found = fetch_vectors(
            service,
            ids,
            namespace=search.namespace,
            include_metadata=bool(search.filter),
            include_data=False,
        )
        found = found[found["vector"].notna()]
        if search.filter and len(found):
            found = found[match_metadata(found, search.filter)]

    for key, vector in zip(found["id"], as_matrix(found), strict=True):
        differences = [
            abs(search.score_of(number, vector) - score) / max(1.0, abs(score))
            for number, score in missed[key]
        ]
        if max(differences) <= _SAME:
            yield key
