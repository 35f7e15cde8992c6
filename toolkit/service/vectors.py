"""Vectors: a page of a range, fetch, queries, and index information; bytes and small values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final
from urllib.parse import quote

import msgspec

from toolkit.base import arguments
from toolkit.base.errors import ProtocolError
from toolkit.base.members import kind_of
from toolkit.filters.query import VectorQuery
from toolkit.secrets.redaction import visible
from toolkit.service.pages import Page, range_page, result_arrays
from toolkit.service.responses import (
    Request,
    Response,
    count_field,
    object_field,
    raise_malformed,
    read_body,
    text_field,
)
from toolkit.service.settings import Service
from toolkit.service.transport import Transport, Watch

PREFIX_LIMIT: Final = 1000
"""Vectors a fetch by prefix returns at most (the specification's limit)."""

# far beyond any index; memory is planned by this number
_MOST_DIMENSIONS: Final = 1 << 20


@dataclass(frozen=True, kw_only=True)
class VectorParts:
    """Parts of a vector that are requested in addition to the id."""

    vectors: bool = True
    metadata: bool = True
    data: bool = True

    def __post_init__(self) -> None:
        """Check the flags, which loaders call ``include_…``."""
        for name, value in vars(self).items():
            object.__setattr__(self, name, arguments.flag(f"include_{name}", value))

    @property
    def names(self) -> list[str]:
        """Return the names of the requested parts."""
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
        ``"DENSE"``, ``"SPARSE"`` or ``"HYBRID"``, if the service reports it.
    dimension : int
        Dimension of the dense vectors, 0 without dense vectors.
    similarity : str
        ``"COSINE"``, ``"EUCLIDEAN"`` or ``"DOT_PRODUCT"``; empty without dense vectors.
    model : str
        Embedding model; empty if text queries are not possible.
    vector_count, pending_count : int
        Vectors that can be found, and vectors that are still being indexed.
    namespaces : dict
        Number of vectors by namespace ("" is the default namespace).

    Examples
    --------
    >>> from toolkit import describe_index
    >>> found = describe_index(service)
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

    def __repr__(self) -> str:
        facts = [self.kind, self.similarity, self.model]
        if self.dimension:
            facts.insert(1, f"{self.dimension:,} dimensions")
        listed = [
            f"{name[:80]!r} ({count:,})"
            for name, count in list(self.namespaces.items())[:_LISTED]
        ]
        if len(self.namespaces) > _LISTED:
            listed.append(f"… {len(self.namespaces) - _LISTED:,} more")
        return visible(
            f"IndexInfo: {', '.join(filter(None, facts))}; {self.vector_count:,} vectors, "
            f"{self.pending_count:,} pending; namespaces {', '.join(listed) or 'none'}"
        )


_LISTED: Final = 10
"""Namespaces that a repr names at most."""
ALL_PARTS: Final = VectorParts()


def describe_index(service: Service) -> IndexInfo:
    """Return the kind, dimension, similarity and counts of the vector index.

    Parameters
    ----------
    service : Service

    Returns
    -------
    IndexInfo
        The counts may not include the last writes yet.

    Raises
    ------
    ServiceError
        If the request fails.

    Examples
    --------
    >>> describe_index(service).dimension
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
    """`describe_index` through an open transport, names unmasked."""
    request = Request(doing="reading the index information", method="GET", path="/info")
    return transport.fetch(request, _info)


def _info(request: Request, response: Response) -> IndexInfo:
    value = object_field(
        request, "result", read_body(request, response).get("result"), required=True
    )
    dense, sparse = (
        object_field(request, name, value.get(name))
        for name in ("denseIndex", "sparseIndex")
    )
    spaces = object_field(request, "namespaces", value.get("namespaces"))

    kind = "SPARSE"
    if dense and sparse:
        kind = "HYBRID"
    elif dense or value.get("dimension"):
        kind = "DENSE"

    return IndexInfo(
        kind=(text_field(request, "indexType", value) or kind).upper(),
        dimension=count_field(
            request, "dimension", value, dense, most=_MOST_DIMENSIONS
        ),
        similarity=text_field(request, "similarityFunction", value, dense),
        model=text_field(request, "embeddingModel", value, dense, sparse),
        vector_count=count_field(request, "vectorCount", value),
        pending_count=count_field(request, "pendingVectorCount", value),
        namespaces={
            name: count_field(
                request,
                "vectorCount",
                object_field(request, f"namespace {name[:40]}", counts),
            )
            for name, counts in spaces.items()
        },
    )


def list_namespaces(service: Service) -> list[str]:
    """Return the namespaces of the index.

    Parameters
    ----------
    service : Service

    Returns
    -------
    list of str
        ``""`` is the default namespace.

    Raises
    ------
    ServiceError
        If the request fails.

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
        raise_malformed(
            request, got=f"{kind_of(value)} under 'result'", expected=expected
        )

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
    """Return one page of a range.

    `cursor` is ``"0"`` for the first page, `watch` is documented in `Transport.fetch`.
    """
    body = {"cursor": cursor, "limit": limit, **parts.wire} | (
        {"prefix": prefix} if prefix else {}
    )
    request = index_request(
        f"reading vectors of {namespace_title(namespace)}", "range", namespace, body
    )
    return transport.fetch(request, range_page, watch=watch)


def fetch_bytes(
    transport: Transport,
    *,
    namespace: str,
    ids: Sequence[str] | None = None,
    prefix: str | None = None,
    parts: VectorParts = ALL_PARTS,
) -> bytes:
    """Return vectors by id (null for missing ids) or by prefix, as a raw JSON array."""
    body = ({"prefix": prefix} if ids is None else {"ids": list(ids)}) | parts.wire
    request = index_request(
        f"fetching vectors of {namespace_title(namespace)}", "fetch", namespace, body
    )
    return transport.fetch(request, result_arrays)[0]


def query_bytes(transport: Transport, queries: Sequence[VectorQuery]) -> list[bytes]:
    """Return the results of each query as raw JSON arrays, in the order of the queries."""
    responses = [b"" for _ in queries]
    groups = defaultdict[tuple[str, str], list[int]](list)
    for index, query in enumerate(queries):
        operation = "query-data"
        if query.data is None:
            operation = "query"
        groups[operation, query.namespace].append(index)

    # For example, four queries with operations and namespaces a, b, a, a are two requests: a list of the
    # first, third and fourth, and the second by itself. The index makes the order of the results again.
    for (operation, namespace), indices in groups.items():
        bodies = [wire_query(queries[index]) for index in indices]
        body: list[dict[str, Any]] | dict[str, Any] = bodies
        count: int | None = len(bodies)
        if count == 1:
            # one query is sent by itself, and one list of results comes back
            body, count = bodies[0], None

        title = f"querying {namespace_title(namespace)}"
        request = index_request(title, operation, namespace, body)
        lists = transport.fetch(request, partial(result_arrays, count=count))
        for index, hits in zip(indices, lists, strict=True):
            responses[index] = hits

    return responses


def wire_query(query: VectorQuery) -> dict[str, Any]:
    """Return the query as the JSON object that the service expects."""
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
    doing: str,
    operation: str,
    namespace: str,
    body: Any = None,
    *,
    method: str = "POST",
    **options: Any,
) -> Request:
    """Return the request of an operation.

    `body` becomes JSON, None is no body. `options` are passed to `Request`.
    """
    return Request(
        doing=doing,
        method=method,
        path=f"/{operation}{namespace_path(doing, namespace)}",
        headers=() if body is None else (("Content-Type", "application/json"),),
        body=None if body is None else msgspec.json.encode(body),
        **options,
    )


def namespace_path(doing: str, namespace: str) -> str:
    """Return the part of a URL after the operation.

    Raise `ProtocolError` for a name that no URL can contain.
    """
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
    """Return a namespace as it is named in a sentence."""
    if namespace:
        return f"namespace {namespace[:80]!r}"
    return "the default namespace"
