"""Vectors: a page of a range, fetch, queries, and index information; bytes and small values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final
from urllib.parse import quote

import msgspec

from toolkit import arguments
from toolkit.client.members import kind_of
from toolkit.client.pages import Page, range_page, result_arrays
from toolkit.client.responses import (
    Request,
    Response,
    count_field,
    object_field,
    raise_malformed,
    read_body,
    text_field,
)
from toolkit.client.transport import Transport, Watch
from toolkit.errors import ProtocolError
from toolkit.filters.query import VectorQuery
from toolkit.settings.service import Service

PREFIX_LIMIT: Final = 1000
"""Vectors a fetch by prefix returns at most (the specification's limit)."""

_MOST_DIMENSIONS: Final = 1 << 20  # far beyond any index; memory is planned by this number


@dataclass(frozen=True, kw_only=True)
class VectorParts:
    """What comes with each id."""

    vectors: bool = True
    metadata: bool = True
    data: bool = True

    def __post_init__(self) -> None:
        """Check the flags, which loaders call ``include_…``."""
        for name, value in vars(self).items():
            object.__setattr__(self, name, arguments.flag(f"include_{name}", value))

    @property
    def names(self) -> list[str]:
        """The parts that come, by name."""
        return [name for name, comes in vars(self).items() if comes]

    @property
    def wire(self) -> dict[str, bool]:
        """Members of a request."""
        return {f"include{name.title()}": comes for name, comes in vars(self).items()}


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


ALL_PARTS: Final = VectorParts()


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
    value = object_field(request, "result", read_body(request, response).get("result"), required=True)
    dense, sparse = (object_field(request, name, value.get(name)) for name in ("denseIndex", "sparseIndex"))
    spaces = object_field(request, "namespaces", value.get("namespaces"))
    kind = "HYBRID" if dense and sparse else "DENSE" if dense or value.get("dimension") else "SPARSE"
    return IndexInfo(
        kind=(text_field(request, "indexType", value) or kind).upper(),
        dimension=count_field(request, "dimension", value, dense, most=_MOST_DIMENSIONS),
        similarity=text_field(request, "similarityFunction", value, dense),
        model=text_field(request, "embeddingModel", value, dense, sparse),
        vector_count=count_field(request, "vectorCount", value),
        pending_count=count_field(request, "pendingVectorCount", value),
        namespaces={
            name: count_field(request, "vectorCount", object_field(request, f"namespace {name[:40]}", counts))
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
    value = read_body(request, response).get("result")
    expected = "an array of names under 'result'"
    if not isinstance(value, list):
        raise_malformed(request, got=f"{kind_of(value)} under 'result'", expected=expected)
    for item in value:
        if not isinstance(item, str):
            got = f"{kind_of(item)} among the names under 'result'"
            raise_malformed(request, got=got, expected=expected)
    return value


def list_page(
    transport: Transport,
    *,
    namespace: str,
    cursor: str,
    limit: int,
    prefix: str | None = None,
    parts: VectorParts = ALL_PARTS,
    watch: Watch | None = None,
) -> Page:
    """One page of the range over a namespace; `cursor` is ``"0"`` for the first, `watch` as in `fetch`."""
    body = {"cursor": cursor, "limit": limit, **parts.wire} | ({"prefix": prefix} if prefix else {})
    request = index_request(f"reading vectors of {namespace_title(namespace)}", "range", namespace, body)
    return transport.fetch(request, range_page, watch=watch)


def fetch_bytes(
    transport: Transport,
    *,
    namespace: str,
    ids: Sequence[str] | None = None,
    prefix: str | None = None,
    parts: VectorParts = ALL_PARTS,
) -> bytes:
    """Vectors by ids (null for what is not there) or by prefix, as a raw JSON array."""
    body = ({"prefix": prefix} if ids is None else {"ids": list(ids)}) | parts.wire
    request = index_request(f"fetching vectors of {namespace_title(namespace)}", "fetch", namespace, body)
    return transport.fetch(request, result_arrays)[0]


def query_bytes(transport: Transport, queries: Sequence[VectorQuery]) -> list[bytes]:
    """The hits of each query, as raw JSON arrays, in the order of the queries."""
    responses: list[bytes] = [b""] * len(queries)
    groups = defaultdict[tuple[str, str], list[int]](list)
    for index, query in enumerate(queries):
        groups["query" if query.data is None else "query-data", query.namespace].append(index)
    for (operation, namespace), indices in groups.items():
        bodies = [wire_query(queries[index]) for index in indices]
        body, count = (bodies, len(bodies)) if len(bodies) > 1 else (bodies[0], None)
        request = index_request(f"querying {namespace_title(namespace)}", operation, namespace, body)
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
    optional = {
        "data": query.data,
        "vector": query.vector,
        "sparseVector": query.sparse and query.sparse._asdict(),
        "filter": query.filter or None,
        "weightingStrategy": query.weighting_strategy,
        "fusionAlgorithm": query.fusion_algorithm,
        "queryMode": query.query_mode,
    }
    return body | {name: value for name, value in optional.items() if value is not None}


def index_request(
    doing: str, operation: str, namespace: str, body: Any = None, *, method: str = "POST", **options: Any
) -> Request:
    """A request of an operation with a JSON body, None for no body; `options` as `Request`."""
    return Request(
        doing=doing,
        method=method,
        path=f"/{operation}{namespace_path(doing, namespace)}",
        headers=() if body is None else (("Content-Type", "application/json"),),
        body=None if body is None else msgspec.json.encode(body),
        **options,
    )


def namespace_path(doing: str, namespace: str) -> str:
    """What follows an operation in a URL; a `ProtocolError` for a name that no URL can hold."""
    try:  # slashes unquoted, as the public packages send them
        return f"/{quote(namespace)}" if namespace else ""
    except UnicodeEncodeError:
        raise ProtocolError(
            doing,
            got="a name with a lone surrogate, or of bytes that are not UTF-8",
            expected="a namespace that an address can name",
            next_step="Name the other namespaces, which can be read.",
        ) from None


def namespace_title(namespace: str) -> str:
    """A namespace in a sentence."""
    return f"namespace {namespace[:80]!r}" if namespace else "the default namespace"
