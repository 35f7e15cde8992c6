"""Find the vectors of a namespace that a metadata filter matches, and explain why it matches none."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import compress
from typing import Final

from toolkit.base.arguments import nearest
from toolkit.base.errors import ToolkitError
from toolkit.filters.metadata import MetadataFilter, parse
from toolkit.loading.vectors import iter_vectors
from toolkit.service.settings import Service
from toolkit.service.vectors import describe_index, namespace_title
from toolkit.tables.metadata_fields import metadata_values
from toolkit.tables.unmatched_conditions import explain_no_match

_EXPLAINED: Final = 10_000
"""Metadata that an explanation uses at least, if there are as many."""


@dataclass(frozen=True)
class Matches:
    """The ids that match a filter. If no id matches, `reason` tells you why.

    For example, "No vector matches: no metadata matches n = '3': n is a number from 0 to 9."
    """

    ids: list[str]
    reason: str


def find_matches(
    service: Service, namespace: str, condition: str | MetadataFilter
) -> Matches:
    """Read the ids and metadata of a namespace, and return the ids of the vectors that match."""
    if isinstance(condition, str):
        condition = parse(condition)
    ids: list[str] = []
    unmatched: list[object] = []
    pages = iter_vectors(
        service,
        namespace=[namespace],
        include_vectors=False,
        include_data=False,
        progress=False,
    )

    for page in pages:
        metadata = list(metadata_values(page["metadata"]))
        is_match = [condition.matches(value) for value in metadata]
        ids += compress(page["id"], is_match)
        if not ids and len(unmatched) < _EXPLAINED:
            unmatched += metadata

    if ids:
        return Matches(ids, "")
    if not unmatched:
        return Matches([], reason_of_no_vectors(service, [namespace]))

    reasons = explain_no_match(unmatched, condition, only_mistakes=False)
    return Matches([], f"No vector matches: {' '.join(reasons)}".removesuffix(": "))


def reason_of_no_vectors(service: Service, namespaces: list[str]) -> str:
    """Return which of the namespaces have no vectors, with the nearest name; "" if all have some."""
    try:
        counts = describe_index(service).namespaces
    except ToolkitError:
        return ""  # a reason is only advice about a call that has succeeded

    with_vectors = sorted(name for name, count in counts.items() if count)
    sentences = []
    for name in namespaces:
        if name not in with_vectors:
            title = namespace_title(name)
            sentences.append(f"The index has no vectors in {title}.")
            if with_vectors:
                sentences.append(nearest(name, with_vectors))

    return " ".join(sentences)
