"""Vectors: a page of a range, fetch, queries, index information, and upserts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final
from urllib.parse import quote

import msgspec

from toolkit.arguments import nearest, text, unmasked, wrong
from toolkit.client.pages import Page, range_page, result_arrays, result_bytes
from toolkit.client.responses import (
    Request,
    Response,
    a_count,
    a_text,
    an_object,
    kind_of,
    not_as_specified,
    small,
)
from toolkit.client.transport import Transport
from toolkit.errors import InputError
from toolkit.filters.query import VectorQuery, numbers, sparse_vector
from toolkit.settings.service import Service, endpoint_of

UPSERT_BATCH: Final = 1000
PREFIX_LIMIT: Final = 1000
"""Vectors a fetch by prefix returns at most (the specification's limit)."""

_MOST_DIMENSIONS: Final = 1 << 20  # far beyond any index; memory is planned by this number


@dataclass(frozen=True, kw_only=True)
class IndexInfo:
    """Kind, dimension and counts of a vector index.

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

    Examples
    --------
    >>> from toolkit import index_info
    >>> found = index_info(service)
    >>> found.kind, found.similarity, "runbooks" in found.namespaces
    ('DENSE', 'COSINE', True)
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
        When the request fails.

    Examples
    --------
    >>> index_info(service).dimension
    256
    """
    with Transport.to(service, "vector") as transport:
        info = read_info(transport)
    mask = service.redactor.own
    return replace(
        info,
        kind=mask(info.kind),
        similarity=mask(info.similarity),
        model=mask(info.model),
        namespaces={mask(name): count for name, count in info.namespaces.items()},
    )


def read_info(transport: Transport) -> IndexInfo:
    """`index_info` through an open transport, names unmasked."""
    request = Request(doing="reading the index information", method="GET", path="/info")
    return transport.fetch(request, _info)


def _info(request: Request, response: Response) -> IndexInfo:
    value = an_object(request, "result", small(request, response).get("result"), required=True)
    dense, sparse = (an_object(request, name, value.get(name)) for name in ("denseIndex", "sparseIndex"))
    spaces = an_object(request, "namespaces", value.get("namespaces"))
    kind = "HYBRID" if dense and sparse else "DENSE" if dense or value.get("dimension") else "SPARSE"
    return IndexInfo(
        kind=(a_text(request, "indexType", value) or kind).upper(),
        dimension=a_count(request, "dimension", value, dense, most=_MOST_DIMENSIONS),
        similarity=a_text(request, "similarityFunction", value, dense),
        model=a_text(request, "embeddingModel", value, dense, sparse),
        vector_count=a_count(request, "vectorCount", value),
        pending_count=a_count(request, "pendingVectorCount", value),
        namespaces={
            name: a_count(request, "vectorCount", an_object(request, f"namespace {name[:40]}", counts))
            for name, counts in spaces.items()
        },
    )


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
        When the request fails.

    Examples
    --------
    >>> sorted(list_namespaces(service))
    ['', 'incidents', 'runbooks']
    """
    request = Request(doing="listing namespaces", method="GET", path="/list-namespaces")
    with Transport.to(service, "vector") as transport:
        return [service.redactor.own(name) for name in transport.fetch(request, _names)]


def _names(request: Request, response: Response) -> list[str]:
    value = small(request, response).get("result")
    invalid = (
        [value] if not isinstance(value, list) else [item for item in value if not isinstance(item, str)]
    )
    if invalid:
        got = f"{kind_of(invalid[0])} {'under' if invalid[0] is value else 'among the names under'} 'result'"
        not_as_specified(request, got=got, expected="an array of names under 'result'")
    return value  # type: ignore[return-value]


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
    """One page of the range over a namespace; `cursor` is ``"0"`` for the first, `watch` as in `fetch`."""
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

    Queries of one namespace and one kind (by vector, by text) are one batch, whose response is a list of
    lists; that of a single query is a flat list.
    """
    responses: list[bytes] = [b""] * len(queries)
    groups: dict[tuple[str, str], list[int]] = {}
    for index, query in enumerate(queries):
        operation = "query" if query.data is None else "query-data"
        groups.setdefault((operation, query.namespace), []).append(index)
    for (operation, namespace), indices in groups.items():
        bodies = [wire_query(queries[index]) for index in indices]
        body = bodies[0] if len(bodies) == 1 else bodies
        request = _post(f"querying {_title(namespace)}", operation, namespace, body)
        count = None if len(indices) == 1 else len(indices)
        lists = transport.fetch(request, partial(result_arrays, count=count))
        for index, hits in zip(indices, lists, strict=True):
            responses[index] = hits
    return responses


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


def upsert_vectors(
    service: Service,
    rows: Mapping[str, Any] | Iterable[Mapping[str, Any]],
    *,
    namespace: str | None = None,
) -> int:
    """Insert or replace vectors, or texts for the index's own model to embed.

    Parameters
    ----------
    service : Service
    rows : mapping, iterable of mapping, or DataFrame
        Each with ``id`` and one of: ``vector`` (d finite numbers), ``sparse``
        (``{"indices": …, "values": …}`` or a pair of them), both (hybrid indexes), or ``data`` alone (text
        that the index embeds). Optional: ``metadata`` (a mapping, or its JSON text), with a vector ``data``,
        and ``namespace``. A frame of `load_vectors` is fine as it is: ``sparse_indices`` and
        ``sparse_values`` are read too. Missing values (None, NaN, NA) count as not given.
    namespace : str, optional
        Where all rows go. Made when it does not exist. Default: the row's own ``namespace``, else ``""``.

    Returns
    -------
    int
        How many rows were sent, in batches of 1,000. Sending the same rows again changes nothing.

    Raises
    ------
    InputError
        A row without an id or without anything to store, with a name that is not known, or with numbers that
        are not finite; it says which row. A note says how many rows before it have been stored.
    ServiceError
        When a request fails; a note on the error says how many rows had been stored by then.

    Examples
    --------
    >>> upsert_vectors(service, [{"id": "a", "vectr": [0.1, 0.2]}])
    Traceback (most recent call last):
    ...
    toolkit.errors.InputError: reading row 0 of rows: got the name 'vectr'; ... Did you mean 'vector'? ...
    """
    endpoint_of(service, "vector")
    if namespace is not None:
        unmasked("namespace", text("namespace", namespace))
    sent = 0
    with Transport.to(service, "vector") as transport:
        try:
            for space, operation, batch in _batches(_rows(rows), namespace):
                request = _post(f"storing vectors in {_title(space)}", operation, space, batch)
                transport.fetch(request, result_bytes)
                sent += len(batch)
        except BaseException as error:
            error.add_note(f"Rows stored before this: {sent:,}.")
            raise
    return sent


_NAMES: Final = (
    "id", "vector", "sparse", "metadata", "data", "namespace", "sparse_indices", "sparse_values",
    "vector_problem",
)  # fmt: skip
"""Names in a row; the last four are columns of `load_vectors`."""


def _rows(rows: Any) -> Iterator[Mapping[str, Any]]:
    """Rows as mappings; of a frame a batch at a time, as they take much memory."""
    if isinstance(rows, Mapping):
        yield rows
    elif hasattr(rows, "columns") and hasattr(rows, "iloc"):
        for start in range(0, len(rows), UPSERT_BATCH):
            yield from rows.iloc[start : start + UPSERT_BATCH].to_dict("records")
    elif isinstance(rows, str | bytes) or not isinstance(rows, Iterable):
        raise wrong("rows", rows, "a mapping, several, or a DataFrame")
    else:
        yield from rows


def _batches(
    rows: Iterator[Mapping[str, Any]], namespace: str | None
) -> Iterator[tuple[str, str, list[dict[str, Any]]]]:
    """Batches of at most 1,000 rows of one namespace and one operation, in the order given."""
    batch: list[dict[str, Any]] = []
    last = ("", "")
    for index, row in enumerate(rows):
        space, wire = _wire_row(f"row {index:,} of rows", row)
        operation = "upsert" if {"vector", "sparseVector"} & wire.keys() else "upsert-data"
        there = (space if namespace is None else namespace, operation)
        if batch and (len(batch) == UPSERT_BATCH or there != last):
            yield (*last, batch)
            batch = []
        last = there
        batch.append(wire)
    if batch:
        yield (*last, batch)


def _wire_row(name: str, row: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The namespace of a row, and the row as the service's JSON object."""
    if not isinstance(row, Mapping):
        raise wrong(name, row, "a mapping with an id and a vector, sparse vector or data")
    for key in row:
        if key not in _NAMES:
            raise InputError(
                f"reading {name}",
                got=f"the name {str(key)[:80]!r}",
                expected="names that a row may have",
                next_step=nearest(key, _NAMES),
            )
    given = {key: value for key, value in row.items() if not _missing(value)}
    identity = unmasked(f"the id of {name}", text(f"the id of {name}", row.get("id"), empty=False))
    if "vector_problem" in given:
        raise InputError(
            f"reading {name}",
            got=f"{identity!r}, whose vector_problem is {str(given['vector_problem'])[:80]!r}",
            expected="a vector that can be stored",
            next_step="Leave such rows out: rows[rows['vector_problem'].isna()].",
        )
    wire: dict[str, Any] = {"id": identity}
    if "vector" in given:
        wire["vector"] = numbers(f"the vector of {name}", given["vector"])
    sparse = given.get("sparse")
    if sparse is None and {"sparse_indices", "sparse_values"} & given.keys():
        sparse = (given.get("sparse_indices", ()), given.get("sparse_values", ()))
    if sparse is not None:
        result = sparse_vector(f"the sparse vector of {name}", sparse)
        wire["sparseVector"] = {"indices": result.indices, "values": result.values}
    if "metadata" in given:
        wire["metadata"] = _metadata(f"the metadata of {name}", given["metadata"])
    if "data" in given:
        wire["data"] = text(f"the data of {name}", given["data"])
    if not {"vector", "sparseVector", "data"} & wire.keys():
        raise InputError(
            f"reading {name}",
            got=f"{identity!r} with no vector, no sparse vector, no data",
            expected="one of them",
        )
    if "vector" in row and not {"vector", "sparseVector"} & wire.keys():
        raise InputError(
            f"reading {name}",
            got=f"{identity!r} with data and an empty vector",
            expected="a vector, or data alone, which the index then embeds itself",
            next_step="Leave the name 'vector' out to let the index embed the data.",
        )
    space = text(f"the namespace of {name}", given.get("namespace", ""))
    return unmasked(f"the namespace of {name}", space), wire


def _missing(value: Any) -> bool:
    """Whether a value is missing: None, NaN or NA."""
    if value is None:
        return True
    if hasattr(value, "__len__"):
        return False
    try:
        return bool(value != value)  # noqa: PLR0124 - NaN
    except (TypeError, ValueError):
        return True


def _metadata(name: str, given: Any) -> Any:
    """Metadata as JSON, from a mapping or from its text; NaN and infinity are errors."""
    expected = "a mapping of JSON values, or its JSON text"
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except (ValueError, RecursionError):
            raise InputError(f"reading {name}", got="text that is not JSON", expected=expected) from None
    if not isinstance(given, Mapping):
        raise wrong(name, given, expected)
    try:
        # not msgspec, which writes NaN as null
        return msgspec.Raw(json.dumps(dict(given), allow_nan=False).encode())
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"reading {name}", got=str(error)[:80], expected=expected) from None


def _post(doing: str, operation: str, namespace: str, body: Any) -> Request:
    # slashes unquoted, as the public packages send them
    path = f"/{operation}/{quote(namespace)}" if namespace else f"/{operation}"
    return Request(
        doing=doing,
        method="POST",
        path=path,
        headers=(("Content-Type", "application/json"),),
        body=msgspec.json.encode(body),
    )


def _title(namespace: str) -> str:
    return f"namespace {namespace!r}" if namespace else "the default namespace"
