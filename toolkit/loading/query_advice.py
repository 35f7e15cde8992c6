"""Give advice about queries without results: a mistyped namespace, or a condition that no vector matches."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from itertools import chain
from typing import Any, Final

from toolkit.base.errors import ToolkitError
from toolkit.filters.metadata import parse
from toolkit.filters.query import VectorQuery
from toolkit.loading.vector_names import unknown_namespace
from toolkit.service.responses import RetryPolicy
from toolkit.service.settings import Service
from toolkit.service.transport import Transport
from toolkit.service.vectors import IndexInfo, VectorParts, list_page, read_info
from toolkit.tables.frames import to_frame
from toolkit.tables.masking import ColumnMasker
from toolkit.tables.metadata_fields import metadata_values
from toolkit.tables.unmatched_conditions import explain_no_match
from toolkit.tables.vectors import decode_vectors

_PAGE: Final = 1_000

_EXPLAINED: Final = 10_000
"""Vectors whose metadata are read at most to explain why a filter finds nothing."""

_NAMED: Final = 5
"""Namespaces in a message."""


def advise_on_queries(
    service: Service, batches: Iterable[list[VectorQuery]], masker: ColumnMasker
) -> list[str]:
    """Return messages about likely mistakes in batches of queries that returned no results.

    Up to eleven requests are sent per batch.
    """
    # A single try: nobody wants to wait for advice about a query that succeeded.
    once = RetryPolicy(tries=1)
    with Transport.to(service, "vector", policy=once) as transport:
        messages = (_mistakes(transport, batch, masker) for batch in batches)
        return list(chain.from_iterable(messages))


def _mistakes(
    transport: Transport, queries: list[VectorQuery], masker: ColumnMasker
) -> list[str]:
    """Return messages about unknown namespaces, or, if all are known, about conditions of the filter."""
    with suppress(ToolkitError):  # the queries themselves have ended well
        messages = _unknown_namespaces(queries, read_info(transport))
        return messages or _unmatched_conditions(transport, queries, masker)
    return []


def _unknown_namespaces(queries: list[VectorQuery], info: IndexInfo) -> list[str]:
    namespaces = dict.fromkeys(query.namespace for query in queries)
    unknown = (unknown_namespace(name, info) for name in namespaces)
    messages = list(chain.from_iterable(unknown))
    if "" in namespaces and not info.namespaces.get(""):
        messages += _other_namespaces(info)
    return messages


def _other_namespaces(info: IndexInfo) -> list[str]:
    """Return a message with the namespaces that have vectors, if there are any."""
    with_vectors = [name for name, count in info.namespaces.items() if count]
    others = sorted(filter(None, with_vectors))
    if not others:
        return []

    listed = [repr(name[:80]) for name in others[:_NAMED]]
    if len(others) > _NAMED:
        listed.append("…")
    names = ", ".join(listed)

    return [f"The default namespace has no vectors. Name one that has: {names}."]


def _unmatched_conditions(
    transport: Transport, queries: list[VectorQuery], masker: ColumnMasker
) -> list[str]:
    """Return messages about conditions of the first filter that no vector of the namespace matches."""
    filtered = next((query for query in queries if query.filter), None)
    if filtered is None:
        return []

    metadata, is_complete = _some_metadata(transport, filtered.namespace, masker)
    reasons = explain_no_match(metadata, parse(filtered.filter))
    read = f"the first {len(metadata):,}"
    if is_complete:
        read = f"all {len(metadata):,}"
    return [f"No vector matches: of {read}, {reason}" for reason in reasons]


def _some_metadata(
    transport: Transport, namespace: str, masker: ColumnMasker
) -> tuple[list[Any], bool]:
    """Return the metadata of the first vectors of a namespace, and whether they are all."""
    parts = VectorParts(vectors=False, data=False)
    metadata: list[Any] = []
    cursor: str | None = "0"
    while cursor and len(metadata) < _EXPLAINED:
        page = list_page(
            transport, namespace=namespace, cursor=cursor, limit=_PAGE, parts=parts
        )
        rows = decode_vectors(page.rows, namespace=namespace, dimension=None)
        metadata += metadata_values(to_frame(masker.table(rows))["metadata"])
        if page.cursor == cursor:
            break
        cursor = page.cursor

    return metadata, not cursor
