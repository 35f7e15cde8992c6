"""Vectors: a page of a range, fetch, queries, what an index is, and upserts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from urllib.parse import quote

import msgspec

from toolkit.client.pages import Page, range_page, result_arrays, result_bytes
from toolkit.client.request import Answer, Request, not_as_specified
from toolkit.client.transport import Transport
from toolkit.errors import InputError
from toolkit.filters.query import VectorQuery
from toolkit.settings.service import Service

UPSERT_BATCH: Final = 1000
PREFIX_LIMIT: Final = 1000
"""Vectors a fetch by prefix returns at most (the specification's limit)."""

_MOST_DIMENSIONS: Final = 1 << 20  # far beyond any index; memory is planned by this number
_MOST_VECTORS: Final = (1 << 63) - 1


@dataclass(frozen=True, kw_only=True)
class IndexInfo:
    """What a vector index is and holds.

    Attributes
    ----------
    kind : str
        ``"DENSE"``, ``"SPARSE"`` or ``"HYBRID"``, as far as the service says.
    dimension : int
        Dimension of the dense vectors; 0 when there are none.
    similarity : str
        ``"COSINE"``, ``"EUCLIDEAN"`` or ``"DOT_PRODUCT"``; empty when there are no dense vectors.
    model : str
        Embedding model; empty when text queries are not possible.
    vector_count, pending_count : int
        Vectors that can be found, and those that are still being indexed.
    namespaces : dict
        From each namespace ("" is the default one) to its vector count.
    """

    kind: str
    dimension: int
    similarity: str
    model: str
    vector_count: int
    pending_count: int
    namespaces: dict[str, int]


def index_info(service: Service) -> IndexInfo:
    """What the vector index is: kind, dimension, similarity, counts.

    Parameters
    ----------
    service : Service

    Returns
    -------
    IndexInfo
        Its counts may lag behind the last writes.

    Raises
    ------
    ServiceError
        When asking fails.

    Examples
    --------
    >>> index_info(service).dimension
    256
    """
    with Transport.to(service, "vector") as transport:
        return read_info(transport)


def read_info(transport: Transport) -> IndexInfo:
    """`index_info` through an open transport."""
    request = Request(doing="asking what the vector index is", method="GET", path="/info")
    return transport.fetch(request, _info)


def _info(request: Request, answer: Answer) -> IndexInfo:
    value = _object(request, "result", _decoded(request, answer))
    dense, sparse = (_object(request, name, value.get(name)) for name in ("denseIndex", "sparseIndex"))
    spaces = _object(request, "namespaces", value.get("namespaces"))
    kind = "HYBRID" if dense and sparse else "DENSE" if dense or value.get("dimension") else "SPARSE"

    def text(name: str, *places: dict[str, Any]) -> str:
        found = next((place[name] for place in places if place.get(name) not in (None, "")), "")
        if not isinstance(found, str):
            not_as_specified(request, got=f"{name!r} of {found!r}"[:80], expected="text")
        return found

    return IndexInfo(
        kind=(text("indexType", value) or kind).upper(),
        dimension=_count(request, "dimension", value, dense, most=_MOST_DIMENSIONS),
        similarity=text("similarityFunction", value, dense),
        model=text("embeddingModel", value, dense, sparse),
        vector_count=_count(request, "vectorCount", value),
        pending_count=_count(request, "pendingVectorCount", value),
        namespaces={
            name: _count(request, "vectorCount", _object(request, f"namespace {name}", counts))
            for name, counts in spaces.items()
        },
    )


def _object(request: Request, name: str, value: Any) -> dict[str, Any]:
    """The object, or an empty one for null."""
    if value is None and name != "result":
        return {}
    if not isinstance(value, dict):
        not_as_specified(request, got=f"{name!r} of {value!r}"[:80], expected="an object")
    return value


def _count(request: Request, name: str, *places: dict[str, Any], most: int = _MOST_VECTORS) -> int:
    """The first of these numbers that is not absent, null or 0; a whole number may be written 256.0."""
    found = next((place[name] for place in places if place.get(name) not in (None, 0)), 0)
    if isinstance(found, float) and found.is_integer():
        found = int(found)
    if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found <= most:
        not_as_specified(
            request, got=f"{name!r} of {found!r}"[:80], expected=f"a whole number from 0 to {most:,}"
        )
    return found


def list_namespaces(service: Service) -> list[str]:
    """The namespaces of the index.

    Parameters
    ----------
    service : Service

    Returns
    -------
    list of str
        ``""`` is the default one.

    Raises
    ------
    ServiceError
        When asking fails.

    Examples
    --------
    >>> sorted(list_namespaces(service))
    ['', 'incidents', 'runbooks']
    """
    request = Request(doing="listing namespaces", method="GET", path="/list-namespaces")
    with Transport.to(service, "vector") as transport:
        return transport.fetch(request, _names)


def _names(request: Request, answer: Answer) -> list[str]:
    value = _decoded(request, answer)
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        not_as_specified(request, got=repr(value)[:60], expected="an array of names under 'result'")
    return value


def list_page(
    transport: Transport,
    *,
    namespace: str,
    cursor: str,
    limit: int,
    prefix: str | None = None,
    include_vectors: bool = True,
    include_metadata: bool = True,
    include_data: bool = True,
    watch: Callable[[bytearray], bool | None] | None = None,
) -> Page:
    """One page of the range over a namespace; `cursor` is ``"0"`` for the first.

    `watch` is called with the body as it arrives, until it returns True.
    """
    body = {
        "cursor": cursor,
        "limit": limit,
        "includeVectors": include_vectors,
        "includeMetadata": include_metadata,
        "includeData": include_data,
    } | ({"prefix": prefix} if prefix else {})
    request = _post(f"reading vectors of {_title(namespace)}", "range", namespace, body)
    return transport.fetch(request, range_page, watch=watch)


def fetch_bytes(
    transport: Transport,
    *,
    namespace: str,
    ids: Sequence[str] | None = None,
    prefix: str | None = None,
    include_vectors: bool = True,
    include_metadata: bool = True,
    include_data: bool = True,
) -> bytes:
    """Vectors by ids (null for what is not there) or by prefix, as a raw JSON array."""
    wanted: dict[str, Any] = {"ids": list(ids)} if ids is not None else {"prefix": prefix}
    body = wanted | {
        "includeVectors": include_vectors,
        "includeMetadata": include_metadata,
        "includeData": include_data,
    }
    request = _post(f"fetching vectors of {_title(namespace)}", "fetch", namespace, body)
    return transport.fetch(request, result_arrays)[0]


def query_bytes(transport: Transport, queries: Sequence[VectorQuery]) -> list[bytes]:
    """The hits of each query, as raw JSON arrays, in the order of the queries.

    Queries of one namespace and one kind (by vector, by text) go in one batch. One query alone comes back
    as a flat list, several as a list of lists: that rule is undone here.
    """
    answers: list[bytes] = [b""] * len(queries)
    groups: dict[tuple[str, str], list[int]] = {}
    for place, query in enumerate(queries):
        groups.setdefault(("query" if query.data is None else "query-data", query.namespace), []).append(
            place
        )
    for (operation, namespace), places in groups.items():
        bodies = [wire_query(queries[place]) for place in places]
        body = bodies[0] if len(bodies) == 1 else bodies
        request = _post(f"querying {_title(namespace)}", operation, namespace, body)
        count = None if len(places) == 1 else len(places)
        lists = transport.fetch(request, partial(result_arrays, count=count))
        for place, hits in zip(places, lists, strict=True):
            answers[place] = hits
    return answers


def wire_query(query: VectorQuery) -> dict[str, Any]:
    """The query as the service's JSON object."""
    body: dict[str, Any] = {
        "topK": query.top_k,
        "includeMetadata": query.include_metadata,
        "includeVectors": query.include_vectors,
        "includeData": query.include_data,
    }
    if query.data is not None:
        body["data"] = query.data
    if query.vector is not None:
        body["vector"] = list(query.vector)
    if query.sparse is not None:
        indices, values = query.sparse
        body["sparseVector"] = {"indices": list(indices), "values": list(values)}
    if query.filter:
        body["filter"] = query.filter
    options = {
        "weightingStrategy": query.weighting_strategy,
        "fusionAlgorithm": query.fusion_algorithm,
        "queryMode": query.query_mode,
    }
    return body | {name: value for name, value in options.items() if value is not None}


def upsert_vectors(service: Service, rows: Iterable[Mapping[str, Any]], *, namespace: str = "") -> int:
    """Insert or replace vectors, or texts for the index's own model to embed.

    Parameters
    ----------
    service : Service
    rows : iterable of mapping
        Each with ``id`` and one of: ``vector`` (d numbers), ``sparse`` (indices and values), both (hybrid
        indexes), or ``data`` alone (text that the index embeds). Optional ``metadata`` (a mapping) and,
        with a vector, ``data``.
    namespace : str
        Made when it does not exist.

    Returns
    -------
    int
        How many rows were sent, in batches of 1,000. Sending the same rows again changes nothing.

    Raises
    ------
    InputError
        A row without an id, or without anything to store; rows before it may have been sent.
    ServiceError
        When asking fails; a note on the error says how many rows had been stored by then.
    """
    sent = 0
    with Transport.to(service, "vector") as transport:
        for batch in _batches(rows):
            operation = "upsert" if {"vector", "sparseVector"} & batch[0].keys() else "upsert-data"
            request = _post(f"storing vectors in {_title(namespace)}", operation, namespace, batch)
            try:
                transport.fetch(request, result_bytes)
            except Exception as error:
                error.add_note(f"Rows stored before this batch: {sent:,}.")
                raise
            sent += len(batch)
    return sent


def _batches(rows: Iterable[Mapping[str, Any]]) -> Iterable[list[dict[str, Any]]]:
    """Batches of at most 1,000 rows, of vectors only or of texts only, in the order given."""
    batch: list[dict[str, Any]] = []
    for row in rows:
        wire = _wire_row(row)
        mixed = batch and ({"vector", "sparseVector"} & batch[0].keys() == set()) != (
            {"vector", "sparseVector"} & wire.keys() == set()
        )
        if len(batch) == UPSERT_BATCH or mixed:
            yield batch
            batch = []
        batch.append(wire)
    if batch:
        yield batch


def _wire_row(row: Mapping[str, Any]) -> dict[str, Any]:
    identity = row.get("id")
    if not isinstance(identity, str) or not identity:
        raise InputError("storing a vector", got=f"id={identity!r}", expected="text that is not empty")
    wire: dict[str, Any] = {"id": identity}
    if row.get("vector") is not None:
        wire["vector"] = [float(value) for value in row["vector"]]
    if row.get("sparse") is not None:
        indices, values = row["sparse"]
        wire["sparseVector"] = {"indices": [int(i) for i in indices], "values": [float(v) for v in values]}
    for name in ("metadata", "data"):
        if row.get(name) is not None:
            wire[name] = row[name]
    if not {"vector", "sparseVector", "data"} & wire.keys():
        raise InputError(
            f"storing {identity!r}", got="no vector, no sparse vector, no data", expected="one of them"
        )
    return wire


def _post(doing: str, operation: str, namespace: str, body: Any) -> Request:
    path = f"/{operation}/{quote(namespace, safe='')}" if namespace else f"/{operation}"
    return Request(
        doing=doing,
        method="POST",
        path=path,
        headers=(("Content-Type", "application/json"),),
        body=msgspec.json.encode(body),
    )


def _decoded(request: Request, answer: Answer) -> Any:
    raw = result_bytes(request, answer)
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        not_as_specified(request, got=f"{raw[:60]!r} under 'result'", expected="JSON")


def _title(namespace: str) -> str:
    return f"namespace {namespace!r}" if namespace else "the default namespace"
