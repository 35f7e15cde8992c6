"""Replace the ids of queries with the stored vectors, because the service queries by vectors only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

from toolkit.base.errors import InputError
from toolkit.filters.query import SparsePair, VectorQuery
from toolkit.loading.fetching import FETCH_BATCH, batched
from toolkit.service.transport import Transport
from toolkit.service.vectors import VectorParts, fetch_bytes, namespace_title
from toolkit.tables.vectors import decode_vectors


def with_vectors(transport: Transport, queries: list[VectorQuery]) -> list[VectorQuery]:
    """Return the queries, with vectors instead of ids."""
    ids: dict[str, dict[str, None]] = {}
    for query in queries:
        if query.id is not None:
            ids.setdefault(query.namespace, {})[query.id] = None

    stored = {}
    for namespace, ids_there in ids.items():
        for row in _stored_rows(transport, namespace, list(ids_there)):
            stored[namespace, row["id"]] = row

    return [_with_vector(query, stored) for query in queries]


def first_found(
    transport: Transport, wanted: VectorQuery, namespaces: list[str]
) -> VectorQuery:
    """Return the query. A query by id gets the vector of the first of these namespaces that has the id."""
    # errors of the last namespace are raised: no namespace has the id
    *others, last = namespaces
    for name in others:
        with suppress(InputError):
            return with_vectors(transport, [replace(wanted, namespace=name)])[0]

    return with_vectors(transport, [replace(wanted, namespace=last)])[0]


def _stored_rows(
    transport: Transport, namespace: str, ids: list[str]
) -> Iterator[dict[str, Any]]:
    """Yield the rows of the ids that a namespace has."""
    parts = VectorParts(metadata=False, data=False)
    for batch in batched(ids, FETCH_BATCH):
        raw = fetch_bytes(transport, namespace=namespace, ids=batch, parts=parts)
        table = decode_vectors(raw, namespace=namespace, dimension=None)
        yield from table.to_pylist()


def _with_vector(
    wanted: VectorQuery, stored: dict[tuple[str, str], dict[str, Any]]
) -> VectorQuery:
    """Return a query by vector in place of a query by id. Other queries stay as they are."""
    if wanted.id is None:
        return wanted

    row = stored.get((wanted.namespace, wanted.id))
    doing = f"querying by id in {namespace_title(wanted.namespace)}"
    if row is None:
        raise InputError(
            doing,
            got=f"the id {wanted.id!r}, which is not there",
            expected="the id of a vector in the index",
            next_step="load_vectors lists the ids; list_namespaces the other namespaces.",
        )

    if row["vector_problem"] is not None:
        raise InputError(
            doing,
            got=f"{wanted.id!r}: {row['vector_problem']}",
            expected="a usable vector",
        )

    sparse = None
    if row["sparse_indices"]:
        sparse = SparsePair(tuple(row["sparse_indices"]), tuple(row["sparse_values"]))
    return replace(
        wanted,
        id=None,
        exclude_self=False,
        vector=row["vector"],
        sparse=sparse,
        # one more, as the vector itself is removed
        top_k=wanted.top_k + wanted.exclude_self,
    )
