"""Similarity queries as frames of hits."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import compress
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.base.arguments import instance, texts, whole, wrong
from toolkit.base.errors import InputError, ToolkitError, UnexpectedResultWarning
from toolkit.base.former_arguments import groups_former
from toolkit.base.own_tokens import masked_value
from toolkit.filters.metadata import MetadataFilter
from toolkit.filters.query import HYBRID_OPTIONS, HybridOptions, VectorQuery
from toolkit.loading.query_advice import advise_on_queries
from toolkit.loading.query_by_id import first_found, with_vectors
from toolkit.loading.query_pages import query_pages
from toolkit.loading.vector_names import ids_in_namespaces
from toolkit.service.responses import RetryPolicy
from toolkit.service.settings import Service, endpoint_of
from toolkit.service.transport import Transport
from toolkit.service.vectors import query_bytes, read_info
from toolkit.tables.frames import to_frame
from toolkit.tables.masking import ColumnMasker
from toolkit.tables.vectors import decode_hits

# these can be iterated over, but not as queries
_NO_QUERIES: Final = (str, bytes, Mapping, pd.DataFrame, np.ndarray)
_EXPECTED: Final = "a VectorQuery, or several"
_HINT: Final = "For vectors use vector=, for stored ids id=, for text query_text."


@groups_former("hybrid", HybridOptions, HYBRID_OPTIONS)
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
    hybrid: HybridOptions | None = None,
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
    hybrid : HybridOptions, optional
        Weights, fusion and mode of an index with sparse vectors. For example,
        ``HybridOptions(query_mode="SPARSE")`` queries only the sparse vectors of a hybrid index.

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
        **_hybrid_options(hybrid),
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
        # with several namespaces, each query is sent to all of them
        default_namespace = "" if several else namespace
        wanted = _by_ids(id, default_namespace, options)
    else:
        vectors = _several(vector)
        wanted = [VectorQuery(vector=row, sparse=sparse, **options) for row in vectors]

    return _hits(service, wanted, several)


def _by_ids(ids: Any, namespace: object, options: dict[str, Any]) -> list[VectorQuery]:
    """Return one query per id of a string, a list or a frame."""
    named = ids_in_namespaces("id", ids, namespace)
    if not named:
        raise wrong("id", ids, "at least one text")

    return [VectorQuery(id=key, **options | {"namespace": name}) for name, key in named]


@groups_former("hybrid", HybridOptions, HYBRID_OPTIONS)
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
    hybrid: HybridOptions | None = None,
) -> pd.DataFrame:
    """Find the vectors most similar to one or several strings, embedded by the model of the index.

    Parameters
    ----------
    service : Service
        From `connect`.
    text : str or sequence of str
        One string, or several.
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
        **_hybrid_options(hybrid),
    }
    queries = [VectorQuery(data=item, **options) for item in _some("text", text)]

    return _hits(service, queries, several)


def _several_namespaces(
    service: Service, namespace: str | Sequence[str] | None
) -> list[str] | None:
    """Return the names of several namespaces, of which "all" is every one; None for a single name."""
    if isinstance(namespace, str) and namespace == "all":
        with Transport.to(service, "vector") as transport:
            info = read_info(transport)
        return sorted(info.namespaces) or [""]

    if namespace is None or isinstance(namespace, str):
        return None

    names = _some("namespace", namespace, empty=True)
    return list(dict.fromkeys(names))


def _check_modes(service: Service, queries: list[VectorQuery]) -> None:
    """Raise InputError if a query mode needs another kind of index: the service ignores the mode."""
    modes = sorted(filter(None, {query.query_mode for query in queries}))
    if not modes:
        return

    kind = ""
    # a single try, because the query itself has succeeded
    once = RetryPolicy(tries=1)
    with suppress(ToolkitError), Transport.to(service, "vector", policy=once) as sender:
        kind = read_info(sender).kind
    if kind in ("", "HYBRID"):
        return

    for mode in modes:
        if mode != kind:
            raise InputError(
                f"querying with query_mode {mode!r}",
                got=f"an index of the kind {kind}, which ignores the mode",
                expected="a hybrid index",
                next_step="Leave query_mode out.",
            )


def _hybrid_options(hybrid: HybridOptions | None) -> dict[str, str]:
    """Return the options of a hybrid index that are set."""
    if hybrid is None:
        return {}

    instance("hybrid", hybrid, HybridOptions, "a HybridOptions")
    return hybrid.options()


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
    return query_pages(service, wanted, idle)


def _hits(
    service: Service, queries: list[VectorQuery], namespaces: list[str] | None = None
) -> pd.DataFrame:
    frame, mistakes = run_queries(service, queries, namespaces)
    for message in mistakes:
        # the caller of `query`, which accepts former arguments by a wrapper
        warnings.warn(message, UnexpectedResultWarning, stacklevel=4)

    return frame


def run_queries(
    service: Service, queries: list[VectorQuery], namespaces: list[str] | None = None
) -> tuple[pd.DataFrame, list[str]]:
    """Return the results of queries, and warnings about unknown namespaces or fields if there are no results.

    With several namespaces, the best results of all are returned, equal scores in the order of the
    namespaces.
    """
    with Transport.to(service, "vector") as transport:
        sent = _sent_queries(transport, queries, namespaces)
        batches = [sent]
        if namespaces is not None:
            batches = [_in_namespace(sent, name) for name in namespaces]
        tables = [_decoded(query_bytes(transport, batch), queries) for batch in batches]

    _check_modes(service, queries)
    masker = ColumnMasker(service.redactor)
    kept = [
        _without_selves(table, queries, sent, batch)
        for table, batch in zip(tables, batches, strict=True)
    ]
    frames = list(map(to_frame, map(masker.table, kept)))
    frame = frames[0]
    scopes = [query.scope() for query in queries]
    if namespaces is not None:
        frame = _merged(frames, map(service.redactor.own, namespaces))
        scopes = [scope | {"namespace": namespaces} for scope in scopes]

    if namespaces is not None or any(query.exclude_self for query in queries):
        frame = _ranked(frame, queries)
    frame.attrs["queries"] = masked_value(scopes)

    messages: list[str] = []
    if frame.empty:
        is_empty = [table.num_rows == 0 for table in tables]
        without_results = compress(batches, is_empty)
        messages = advise_on_queries(service, without_results, masker)

    return frame, messages


def _sent_queries(
    transport: Transport, queries: list[VectorQuery], namespaces: list[str] | None
) -> list[VectorQuery]:
    """Return queries as they are sent, by vectors instead of ids."""
    if namespaces is None:
        return with_vectors(transport, queries)
    return [first_found(transport, query, namespaces) for query in queries]


def _in_namespace(queries: list[VectorQuery], namespace: str) -> list[VectorQuery]:
    return [replace(query, namespace=namespace) for query in queries]


def _without_selves(
    table: pa.Table,
    queries: list[VectorQuery],
    sent: list[VectorQuery],
    batch: list[VectorQuery],
) -> pa.Table:
    """Drop the results that are the vector of the query, for queries with `exclude_self`."""
    own_ids = list(map(_own_id, queries, sent, batch))
    if not any(own_ids):
        return table

    own_id_of_hit = pa.array(own_ids, pa.string()).take(table["query"])
    is_other = pc.not_equal(table["id"], own_id_of_hit)
    # a query without an own id has no result to drop
    return table.filter(pc.fill_null(is_other, True))


def _own_id(query: VectorQuery, sent: VectorQuery, in_batch: VectorQuery) -> str | None:
    """Return the id of the vector of a query that must not be a result, or None."""
    # the same id in another namespace is another vector
    if query.exclude_self and in_batch.namespace == sent.namespace:
        return query.id
    return None


def _merged(frames: list[pd.DataFrame], namespaces: Iterable[str]) -> pd.DataFrame:
    """Return the results of several namespaces as one frame, the best of each query first."""
    for frame, name in zip(frames, namespaces, strict=True):
        column = pd.Series(name, index=frame.index, dtype="str")
        frame.insert(2, "namespace", column)

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


def _some(name: str, value: object, *, empty: bool = False) -> list[str]:
    if result := texts(name, value, empty=empty):
        return result
    raise wrong(name, value, "at least one text")


def _ready(queries: VectorQuery | Iterable[VectorQuery]) -> list[VectorQuery]:
    """Return one or several queries as a list."""
    if isinstance(queries, VectorQuery):
        return [queries]

    is_iterable = isinstance(queries, Iterable)
    if isinstance(queries, _NO_QUERIES) or not is_iterable:
        raise wrong("queries", queries, _EXPECTED, _HINT)

    result = list(queries)
    if not result:
        raise wrong("queries", result, _EXPECTED)

    for index, query in enumerate(result):
        instance(f"queries at position {index}", query, VectorQuery, _EXPECTED, _HINT)
    return result


def _several(vector: npt.ArrayLike | None) -> list[Any]:
    """Return one vector, the rows of a matrix, or None (a sparse query)."""
    if vector is None:
        return [None]

    matrix = _matrix(vector)
    if matrix.ndim == 1:
        return [matrix]

    return list(matrix)


def _matrix(vector: npt.ArrayLike) -> npt.NDArray[Any]:
    """Return one or several vectors as an array of one or two dimensions."""
    try:
        matrix = np.asarray(vector)
        is_column = matrix.ndim == 1 and matrix.dtype == object
        if is_column and all(map(np.ndim, matrix)):
            # a column of vectors
            matrix = np.asarray(list(matrix))
    except (ValueError, TypeError):
        raise _unfit_vector("rows of different lengths") from None

    if matrix.ndim not in (1, 2) or matrix.size == 0:
        raise _unfit_vector(f"shape {matrix.shape}")

    return matrix


def _unfit_vector(got: str) -> InputError:
    return InputError(
        "reading vector",
        got=got,
        expected="finite numbers of shape (d,) or (m, d)",
    )
