"""Similarity queries as frames of hits."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.base.arguments import instance, texts, whole, wrong
from toolkit.base.errors import (
    InputError,
    ProtocolError,
    ServiceError,
    ToolkitError,
    UnexpectedResultWarning,
)
from toolkit.base.own_tokens import masked_value
from toolkit.filters.metadata import MetadataFilter, parse
from toolkit.filters.query import (
    FusionAlgorithm,
    QueryMode,
    SparsePair,
    VectorQuery,
    WeightingStrategy,
)
from toolkit.loading.vectors import (
    FETCH_BATCH,
    batched,
    ids_in_namespaces,
    unknown_namespace,
)
from toolkit.service.pages import result_arrays, result_bytes
from toolkit.service.responses import (
    Request,
    Response,
    RetryPolicy,
    envelope,
    raise_malformed,
)
from toolkit.service.settings import Service, endpoint_of
from toolkit.service.transport import Transport
from toolkit.service.vectors import (
    IndexInfo,
    VectorParts,
    fetch_bytes,
    index_request,
    list_page,
    namespace_title,
    query_bytes,
    read_info,
    wire_query,
)
from toolkit.tables.frame_filters import metadata_values
from toolkit.tables.frames import to_frame
from toolkit.tables.masking import ColumnMasker
from toolkit.tables.unmatched_conditions import explain_no_match
from toolkit.tables.vectors import decode_hits, decode_vectors

_PAGE = 1_000
_EXPLAINED = 10_000
"""Vectors whose metadata are read at most to explain why a filter finds nothing."""
_NAMED = 5  # namespaces


def query(
    service: Service,
    queries: VectorQuery | Iterable[VectorQuery] | None = None,
    *,
    vector: npt.ArrayLike | None = None,
    sparse: Mapping[str, Iterable[float]]
    | tuple[Iterable[int], Iterable[float]]
    | None = None,
    id: str | Iterable[str] | None = None,  # noqa: A002 - the service's own name
    data: str | Sequence[str] | None = None,
    exclude_self: bool | None = None,
    top_k: int | None = None,
    filter: str | MetadataFilter | None = None,  # noqa: A002 - the service's own name
    namespace: str | Sequence[str] | None = None,
    include_metadata: bool | None = None,
    include_vectors: bool | None = None,
    include_data: bool | None = None,
    weighting_strategy: WeightingStrategy | None = None,
    fusion_algorithm: FusionAlgorithm | None = None,
    query_mode: QueryMode | None = None,
) -> pd.DataFrame:
    """Find the vectors most similar to one vector, or to each of several.

    Parameters
    ----------
    service : Service
        From `connect`.
    queries : VectorQuery or iterable of VectorQuery, optional
        Queries by vector, text or id, in any mixture. If you also pass one of the options below, it overrides
        the option of each query. Pass exactly one of `queries`, `vector` (with or without `sparse`),
        `sparse`, `id`, `data`.
    vector : array_like, optional
        Finite numbers of shape (d,) for one query or (m, d) for m queries, for example a column of vectors.
    sparse : mapping or pair, optional
        Sparse vector: ``{"indices": …, "values": …}``. With `vector` on a hybrid index.
    id : str or iterable of str, optional
        Ids of vectors in the index, one query per id for similar vectors. The vectors are fetched first. For
        a frame with a ``namespace`` column, each row is queried in its namespace, unless you pass
        `namespace`.
    data : str or sequence of str, optional
        Texts that the index embeds, as in `query_text`.
    exclude_self : bool, default False
        If True, a vector queried by `id` is left out of the results. Otherwise it is the first result; only
        on a sparse index can another vector be more similar.
    top_k : int, default 10
        Maximum number of results per query. A selective filter can return fewer.
    filter : str or MetadataFilter, default ""
        Metadata filter in the filter language, for example ``"city = 'Izmir' AND year >= 2024"``.
    namespace : str or sequence of str, default ""
        The default namespace if you name none; ``"all"`` is every namespace. With several namespaces, the
        best results of all are returned. A query by `id` uses the vector of the first namespace that has the
        id.
    include_metadata, include_vectors, include_data : bool, default False
        Parts of each result that are returned in addition to id and score.
    weighting_strategy : {"IDF"}, optional
    fusion_algorithm : {"RRF", "DBSF"}, optional
    query_mode : {"HYBRID", "DENSE", "SPARSE"}, optional
        Parts of a hybrid index that a query by `data` uses. It is an error for indexes of another kind.

    Returns
    -------
    pandas.DataFrame
        One row per result: ``query`` (Int64, number of the query, from 0), ``rank`` (Int64, from 1),
        ``namespace`` (str, if you pass several), ``id`` (str), ``score`` (float64), and the included parts:
        ``vector``, ``sparse_indices``, ``sparse_values``, ``metadata`` (JSON text), ``data`` (str).
        ``attrs["queries"]`` contains the queries.

    Raises
    ------
    InputError
        If the query is ambiguous, an option cannot be used, or the index has no such id.
    UnprocessableError
        If the index does not support the query, for example because of another dimension or kind.
    ServiceError
        If a request fails.

    Warns
    -----
    UnexpectedResultWarning
        If no results are found and the index has no such namespace, or if the filter matches none of the
        first 10,000 vectors. The warning names the nearest namespace, or the conditions that match no vector,
        the types and values of the field, and a condition that would match.

    Notes
    -----
    Scores of dense indexes are normalised to 0..1 for every distance. Scores of sparse and hybrid
    indexes can be any number and can be compared only within one query.

    Examples
    --------
    >>> vectors = tk.load_vectors(service, limit=3)
    >>> hits = query(service, vector=tk.as_matrix(vectors), top_k=5)
    >>> hits.groupby("query")["rank"].max().tolist()
    [5, 5, 5]
    >>> similar = query(service, id=vectors["id"][0], exclude_self=True, top_k=5)
    >>> len(similar), vectors["id"][0] in set(similar["id"])
    (5, False)
    """
    endpoint_of(service, "vector")
    several = _several_namespaces(service, namespace)
    if several is not None:
        namespace = None
    options = _given(
        exclude_self=exclude_self,
        top_k=top_k,
        filter=filter,
        namespace=namespace,
        include_metadata=include_metadata,
        include_vectors=include_vectors,
        include_data=include_data,
        weighting_strategy=weighting_strategy,
        fusion_algorithm=fusion_algorithm,
        query_mode=query_mode,
    )
    kinds = list(
        _given(queries=queries, vector=vector, sparse=sparse, id=id, data=data)
    )
    if len(kinds) != 1 and kinds != ["vector", "sparse"]:
        raise InputError(
            "reading what to query",
            got=" and ".join(kinds) or "none of queries, vector, sparse, id and data",
            expected="one of queries, vector, sparse, id, data, or vector and sparse",
            next_step="To search by text, use query_text.",
        )
    if queries is not None:
        wanted = [replace(item, **options) for item in _ready(queries)]
    elif data is not None:
        wanted = [VectorQuery(data=item, **options) for item in _some("data", data)]
    elif id is not None:
        if not (named := ids_in_namespaces("id", id, "" if several else namespace)):
            raise wrong("id", id, "at least one text")
        wanted = [
            VectorQuery(id=item, **options | {"namespace": name})
            for name, item in named
        ]
    else:
        wanted = [
            VectorQuery(vector=item, sparse=sparse, **options)
            for item in _several(vector)
        ]
    return _hits(service, wanted, several)


def query_text(
    service: Service,
    text: str | Sequence[str],
    *,
    top_k: int = 10,
    filter: str | MetadataFilter = "",  # noqa: A002 - the service's own name
    namespace: str | Sequence[str] = "",
    include_metadata: bool = False,
    include_vectors: bool = False,
    include_data: bool = False,
    weighting_strategy: WeightingStrategy | None = None,
    fusion_algorithm: FusionAlgorithm | None = None,
    query_mode: QueryMode | None = None,
) -> pd.DataFrame:
    """Find the vectors most similar to one or several strings, embedded by the model of the index.

    Parameters
    ----------
    service : Service
        From `connect`.
    text : str or sequence of str
        One string, or several.
    query_mode : {"HYBRID", "DENSE", "SPARSE"}, optional
        Parts of a hybrid index that are queried. Indexes of another kind ignore it, so it is an error there.
    namespace : str or sequence of str, default ""
        One namespace, several, or ``"all"``; the best results of all are returned.

    The other parameters are documented in `query`.

    Returns
    -------
    pandas.DataFrame
        As `query` returns.

    Raises
    ------
    InputError, UnprocessableError, ServiceError
        As in `query`, for example if a string is empty or the index has no embedding model.

    Examples
    --------
    >>> hits = query_text(service, "connection refused", filter="topic = 'connections'", top_k=3)
    >>> list(hits.columns), len(hits)
    (['query', 'rank', 'id', 'score'], 3)
    """
    endpoint_of(service, "vector")
    several = _several_namespaces(service, namespace)
    options: dict[str, Any] = {
        "top_k": top_k,
        "filter": filter,
        "namespace": namespace if several is None else "",
        "include_metadata": include_metadata,
        "include_vectors": include_vectors,
        "include_data": include_data,
        "weighting_strategy": weighting_strategy,
        "fusion_algorithm": fusion_algorithm,
        "query_mode": query_mode,
    }
    queries = [VectorQuery(data=item, **options) for item in _some("text", text)]
    return _hits(service, queries, several)


def _several_namespaces(
    service: Service, namespace: str | Sequence[str] | None
) -> list[str] | None:
    """Return the names of several namespaces, of which "all" is every one; None for a single name."""
    if isinstance(namespace, str) and namespace == "all":
        with Transport.to(service, "vector") as transport:
            return sorted(read_info(transport).namespaces) or [""]
    if namespace is None or isinstance(namespace, str):
        return None
    return list(dict.fromkeys(_some("namespace", namespace, empty=True)))


def _check_modes(service: Service, queries: list[VectorQuery]) -> None:
    """Raise InputError if a query mode needs another kind of index: the service ignores the mode."""
    modes = sorted({item.query_mode for item in queries if item.query_mode})
    if not modes:
        return
    try:
        # a single try, because the query itself has succeeded
        with Transport.to(service, "vector", policy=RetryPolicy(tries=1)) as transport:
            kind = read_info(transport).kind
    except ToolkitError:
        return
    unfit = [mode for mode in modes if kind not in ("", "HYBRID", mode)]
    if unfit:
        raise InputError(
            f"querying with query_mode {unfit[0]!r}",
            got=f"an index of the kind {kind}, which ignores the mode",
            expected="a hybrid index",
            next_step="Leave query_mode out.",
        )


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def iter_query(
    service: Service, wanted: VectorQuery, *, max_idle: int = 3600
) -> Iterator[pd.DataFrame]:
    """Read the results of one query page by page, until you stop.

    Parameters
    ----------
    service : Service
        From `connect`.
    wanted : VectorQuery
        A query by vector, text or id. `top_k` is the number of results per page.
    max_idle : int
        Seconds after which the service forgets the query if no page is read, up to 86,400.

    Returns
    -------
    iterator of pandas.DataFrame
        Pages with the columns of `query`; ranks continue from page to page. The first page can be empty. If
        you close the iterator, the service ends the query.

    Raises
    ------
    InputError, UnprocessableError, ServiceError
        As in `query`; for invalid arguments at the call itself. If a page was lost, it is not requested
        again, because the service would return the page after it. Start a new query instead.

    Examples
    --------
    >>> pages = iter_query(service, tk.VectorQuery(data="connection refused", top_k=4))
    >>> next(pages)["rank"].tolist(), next(pages)["rank"].tolist()
    ([1, 2, 3, 4], [5, 6, 7, 8])
    >>> pages.close()
    """
    endpoint_of(service, "vector")
    instance("wanted", wanted, VectorQuery, "a VectorQuery")
    idle = whole("max_idle", max_idle, most=86_400)
    # not a generator itself, so that a wrong argument raises at the call
    return _pages(service, wanted, idle)


def _hits(
    service: Service, queries: list[VectorQuery], namespaces: list[str] | None = None
) -> pd.DataFrame:
    frame, mistakes = run_queries(service, queries, namespaces)
    for message in mistakes:
        warnings.warn(message, UnexpectedResultWarning, stacklevel=3)
    return frame


def run_queries(
    service: Service, queries: list[VectorQuery], namespaces: list[str] | None = None
) -> tuple[pd.DataFrame, list[str]]:
    """Return the results of queries, and warnings about unknown namespaces or fields if there are no results.

    With several namespaces, the best results of all are returned, equal scores in the order of the
    namespaces.
    """
    with Transport.to(service, "vector") as transport:
        if namespaces is None:
            sent = with_vectors(transport, queries)
            batches = [sent]
        else:
            sent = [_first_found(transport, item, namespaces) for item in queries]
            batches = [
                [replace(item, namespace=name) for item in sent] for name in namespaces
            ]
        tables = [_decoded(query_bytes(transport, batch), queries) for batch in batches]
    _check_modes(service, queries)
    excludes_some = any(item.exclude_self for item in queries)
    masker = ColumnMasker(service.redactor)
    frames: list[pd.DataFrame] = []
    for batch, table in zip(batches, tables, strict=True):
        kept = table
        if excludes_some:
            kept = _without_selves(table, queries, sent, batch)
        frame = to_frame(masker.table(kept))
        if namespaces is not None:
            name = service.redactor.own(batch[0].namespace)
            frame.insert(2, "namespace", pd.Series([name] * len(frame), dtype="str"))
        frames.append(frame)
    frame = frames[0] if namespaces is None else _merged(frames)
    if namespaces is not None or excludes_some:
        frame = _ranked(frame, queries)
    several = {} if namespaces is None else {"namespace": namespaces}
    frame.attrs["queries"] = masked_value([item.scope() | several for item in queries])
    mistakes: list[str] = []
    empty = [
        batch
        for batch, table in zip(batches, tables, strict=True)
        if not table.num_rows
    ]
    if empty and not len(frame):
        # A single try: nobody wants to wait for advice about a query that succeeded.
        with Transport.to(service, "vector", policy=RetryPolicy(tries=1)) as transport:
            mistakes = list(
                chain.from_iterable(
                    _mistakes(transport, batch, masker) for batch in empty
                )
            )
    return frame, mistakes


def _without_selves(
    table: pa.Table,
    queries: list[VectorQuery],
    sent: list[VectorQuery],
    batch: list[VectorQuery],
) -> pa.Table:
    """Drop the results that are the vector of the query, for queries with `exclude_self`."""
    is_self = []
    for number, key in zip(
        table["query"].to_pylist(), table["id"].to_pylist(), strict=True
    ):
        query = queries[number]
        # the same id in another namespace is another vector
        in_namespace = batch[number].namespace == sent[number].namespace
        is_self.append(query.exclude_self and in_namespace and key == query.id)
    return table.filter(pc.invert(pa.array(is_self, pa.bool_())))


def _merged(frames: list[pd.DataFrame]) -> pd.DataFrame:
    """Return the results of several namespaces as one frame, the best of each query first."""
    filled = [frame for frame in frames if len(frame)] or frames[:1]
    merged: pd.DataFrame = pd.concat(filled, ignore_index=True).sort_values(
        ["query", "score"], ascending=[True, False], kind="stable", ignore_index=True
    )
    return merged


def _ranked(frame: pd.DataFrame, queries: list[VectorQuery]) -> pd.DataFrame:
    """Set the rank of each result of a query again, and keep the first `top_k`."""
    frame["rank"] = (frame.groupby("query").cumcount() + 1).astype(frame["rank"].dtype)
    limits = np.array([item.top_k for item in queries])
    is_kept = frame["rank"].to_numpy() <= limits[frame["query"].to_numpy(dtype=np.intp)]
    kept: pd.DataFrame = frame[is_kept].reset_index(drop=True)
    return kept


def _decoded(responses: Sequence[bytes], queries: Sequence[VectorQuery]) -> pa.Table:
    return decode_hits(
        responses,
        vectors=any(item.include_vectors for item in queries),
        metadata=any(item.include_metadata for item in queries),
        data=any(item.include_data for item in queries),
    )


def _other_namespaces(info: IndexInfo) -> list[str]:
    """Return a message with the namespaces that have vectors, if there are any."""
    others = sorted(name for name, count in info.namespaces.items() if name and count)
    if not others:
        return []
    listed = [repr(name[:80]) for name in others[:_NAMED]]
    if len(others) > _NAMED:
        listed.append("…")
    return [
        f"The default namespace has no vectors. Name one that has: {', '.join(listed)}."
    ]


def _mistakes(
    transport: Transport, queries: list[VectorQuery], masker: ColumnMasker
) -> list[str]:
    """Return messages about unknown namespaces, else about the conditions of the filter.

    Sends up to eleven requests if no rows match.
    """
    namespaces = dict.fromkeys(item.namespace for item in queries)
    try:
        info = read_info(transport)
        messages = list(
            chain.from_iterable(unknown_namespace(name, info) for name in namespaces)
        )
        if "" in namespaces and not info.namespaces.get(""):
            messages += _other_namespaces(info)
        filtered = next((item for item in queries if item.filter), None)
        if messages or filtered is None:
            return messages
        metadata, is_complete = _some_metadata(transport, filtered.namespace, masker)
        reasons = explain_no_match(metadata, parse(filtered.filter))
    except ToolkitError:
        return []  # the queries themselves have ended well
    read = f"all {len(metadata):,}"
    if not is_complete:
        read = f"the first {len(metadata):,}"
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


def _first_found(
    transport: Transport, wanted: VectorQuery, namespaces: list[str]
) -> VectorQuery:
    """Return the query. A query by id gets the vector of the first of these namespaces that has the id."""
    # errors of the last namespace are raised: no namespace has the id
    *others, last = namespaces
    for name in others:
        with suppress(InputError):
            return with_vectors(transport, [replace(wanted, namespace=name)])[0]
    return with_vectors(transport, [replace(wanted, namespace=last)])[0]


def with_vectors(transport: Transport, queries: list[VectorQuery]) -> list[VectorQuery]:
    """Return the queries, with vectors instead of ids."""
    wanted: dict[str, dict[str, None]] = {}
    for item in queries:
        if item.id is not None:
            wanted.setdefault(item.namespace, {})[item.id] = None
    stored: dict[tuple[str, str], dict[str, Any]] = {}
    parts = VectorParts(metadata=False, data=False)
    for namespace, ids in wanted.items():
        for some in batched(list(ids), FETCH_BATCH):
            raw = fetch_bytes(transport, namespace=namespace, ids=some, parts=parts)
            for row in decode_vectors(
                raw, namespace=namespace, dimension=None
            ).to_pylist():
                stored[namespace, row["id"]] = row
    return [
        item
        if item.id is None
        else _by_vector(item, stored.get((item.namespace, item.id)))
        for item in queries
    ]


def _by_vector(wanted: VectorQuery, row: dict[str, Any] | None) -> VectorQuery:
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


def _pages(service: Service, wanted: VectorQuery, idle: int) -> Iterator[pd.DataFrame]:
    doing = f"querying {namespace_title(wanted.namespace)}"
    masker = ColumnMasker(service.redactor)
    own = None
    if wanted.exclude_self:
        own = wanted.id
    with Transport.to(service, "vector") as transport:
        (sent,) = with_vectors(transport, [wanted])
        operation = "resumable-query-data"
        if sent.data is None:
            operation = "resumable-query"
        body = wire_query(sent) | {"maxIdle": idle}
        key, rows = transport.fetch(
            index_request(doing, operation, sent.namespace, body), _first_page
        )
        seen: set[str] = set()
        try:
            while True:
                table = _decoded([rows], [wanted])
                ids = table["id"].to_pylist()
                # a service that repeats itself would make the query endless
                if seen and ids and seen.issuperset(ids):
                    got = f"{len(ids):,} hits, all of which came before"
                    raise ProtocolError(
                        doing, got=got, expected="further hits, or none"
                    )
                if seen and not ids:
                    return
                is_new = [item not in seen and item != own for item in ids]
                frame = to_frame(
                    masker.table(table.filter(pa.array(is_new, pa.bool_())))
                )
                ranks = np.arange(1, len(frame) + 1) + len(seen - {own})
                frame["rank"] = pd.array(ranks, dtype="Int64")
                seen.update(ids)
                frame.attrs["queries"] = masked_value([wanted.scope()])
                yield frame
                if not ids:
                    return
                more = {"uuid": key, "additionalK": wanted.top_k}
                request = index_request(
                    doing, "resumable-query-next", "", more, repeatable=False
                )
                rows = transport.fetch(request, result_arrays)[0]
        finally:
            # While Python ends, no request can be sent. The query expires then, as after an error.
            if not sys.is_finalizing():
                end = index_request(
                    doing, "resumable-query-end", "", {"uuid": key}, repeatable=False
                )
                with suppress(ServiceError):
                    transport.send(end)


def _first_page(request: Request, response: Response) -> tuple[str, bytes]:
    whole_page = envelope(request, result_bytes(request, response))
    scores = whole_page.get("scores", b"")
    if not scores.lstrip().startswith(b"["):
        raise_malformed(
            request, got=f"{scores[:40]!r} under 'scores'", expected="an array"
        )
    try:
        key = msgspec.json.decode(whole_page.get("uuid", b""), type=str)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise_malformed(
            request, got="no text under 'uuid'", expected="the id of the query"
        )
    return key, scores


def _some(name: str, value: object, *, empty: bool = False) -> list[str]:
    if result := texts(name, value, empty=empty):
        return result
    raise wrong(name, value, "at least one text")


def _ready(queries: VectorQuery | Iterable[VectorQuery]) -> list[VectorQuery]:
    expected = "a VectorQuery, or several"
    hint = "For vectors use vector=, for stored ids id=, for text query_text."
    if isinstance(queries, VectorQuery):
        return [queries]
    if isinstance(queries, str | bytes | Mapping | pd.DataFrame) or not isinstance(
        queries, Iterable
    ):
        raise wrong("queries", queries, expected, hint)
    result = list(queries)
    if not result:
        raise wrong("queries", result, expected)
    for index, item in enumerate(result):
        if not isinstance(item, VectorQuery):
            raise wrong(f"queries at position {index}", item, expected, hint)
    return result


def _several(vector: npt.ArrayLike | None) -> list[Any]:
    """Return one vector, the rows of a matrix, or None (a sparse query)."""
    if vector is None:
        return [None]
    expected = "finite numbers of shape (d,) or (m, d)"
    try:
        matrix = np.asarray(vector)
        if matrix.ndim == 1 and matrix.dtype == object and all(map(np.ndim, matrix)):
            matrix = np.asarray(list(matrix))  # a column of vectors
    except (ValueError, TypeError):
        raise InputError(
            "reading vector", got="rows of different lengths", expected=expected
        ) from None
    if matrix.ndim not in (1, 2) or matrix.size == 0:
        raise InputError(
            "reading vector", got=f"shape {matrix.shape}", expected=expected
        )
    if matrix.ndim == 1:
        return [matrix]
    return list(matrix)
