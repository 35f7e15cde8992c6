"""Similarity queries as frames of hits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from toolkit.client.transport import Transport
from toolkit.client.vectors import query_bytes
from toolkit.errors import InputError
from toolkit.filters.metadata import MetadataFilter
from toolkit.filters.query import FusionAlgorithm, QueryMode, VectorQuery, WeightingStrategy
from toolkit.settings.service import Service
from toolkit.tables.frames import to_frame
from toolkit.tables.vectors import decode_hits


def query(
    service: Service,
    queries: VectorQuery | Iterable[VectorQuery] | None = None,
    *,
    vector: npt.ArrayLike | None = None,
    sparse: Mapping[str, Iterable[float]] | tuple[Iterable[int], Iterable[float]] | None = None,
    top_k: int = 10,
    filter: str | MetadataFilter = "",  # noqa: A002 - the service's own name
    namespace: str = "",
    include_metadata: bool = False,
    include_vectors: bool = False,
    include_data: bool = False,
    weighting_strategy: WeightingStrategy | None = None,
    fusion_algorithm: FusionAlgorithm | None = None,
) -> pd.DataFrame:
    """Find the vectors most similar to one vector, or to each of several.

    Parameters
    ----------
    service : Service
        From `connect`.
    queries : VectorQuery or iterable of VectorQuery, optional
        Ready-made queries, by vector or by text, mixed as you like. Everything else is then in them.
    vector : array_like, optional
        Shape (d,) for one query or (m, d) for a batch of m; finite numbers.
    sparse : mapping or pair, optional
        Sparse vector: ``{"indices": …, "values": …}``. With `vector` on a hybrid index.
    top_k : int
        At most this many hits a query. A selective filter can give fewer.
    filter : str or MetadataFilter
        Metadata filter in the service's language, such as ``"city = 'Izmir' AND year >= 2024"``.
    namespace : str
    include_metadata, include_vectors, include_data : bool
        What comes with each hit.
    weighting_strategy : {"IDF"}, optional
    fusion_algorithm : {"RRF", "DBSF"}, optional

    Returns
    -------
    pandas.DataFrame
        One row a hit: ``query`` (Int64, the number of the query in the batch, from 0), ``rank`` (Int64, from
        1), ``id`` (str), ``score`` (float64), and what was included: ``vector``, ``sparse_indices``,
        ``sparse_values``, ``metadata`` (JSON text), ``data`` (str). ``attrs["queries"]`` holds what was
        asked.

    Raises
    ------
    InputError
        When it is not clear what is asked.
    UnprocessableError
        When the index cannot answer it: another dimension, another kind.
    ServiceError
        When asking fails.

    Notes
    -----
    Scores of dense indexes are normalised to 0..1, whatever the distance; scores of sparse and hybrid
    indexes may be any number and compare only within one query.

    Examples
    --------
    >>> vectors = tk.load_vectors(service, limit=3)
    >>> hits = query(service, vector=tk.as_matrix(vectors), top_k=5)
    >>> hits.groupby("query")["rank"].max().tolist()
    [5, 5, 5]
    """
    if queries is not None:
        if vector is not None or sparse is not None:
            raise InputError(
                "querying", got="queries, and vector= or sparse= beside them", expected="one of them"
            )
        asked = [queries] if isinstance(queries, VectorQuery) else list(queries)
    else:
        options: dict[str, Any] = {
            "sparse": sparse,
            "top_k": top_k,
            "filter": filter,
            "namespace": namespace,
            "include_metadata": include_metadata,
            "include_vectors": include_vectors,
            "include_data": include_data,
            "weighting_strategy": weighting_strategy,
            "fusion_algorithm": fusion_algorithm,
        }
        asked = [VectorQuery(vector=one, **options) for one in _several(vector)]
    return _hits(service, asked)


def query_text(
    service: Service,
    text: str | Sequence[str],
    *,
    top_k: int = 10,
    filter: str | MetadataFilter = "",  # noqa: A002 - the service's own name
    namespace: str = "",
    include_metadata: bool = False,
    include_vectors: bool = False,
    include_data: bool = False,
    weighting_strategy: WeightingStrategy | None = None,
    fusion_algorithm: FusionAlgorithm | None = None,
    query_mode: QueryMode | None = None,
) -> pd.DataFrame:
    """Find the vectors most similar to a text, or to each of several, embedded by the index's own model.

    Parameters
    ----------
    service : Service
        From `connect`.
    text : str or sequence of str
        One text, or a batch.
    query_mode : {"HYBRID", "DENSE", "SPARSE"}, optional
        Which halves of a hybrid index are asked.

    The other parameters are those of `query`.

    Returns
    -------
    pandas.DataFrame
        As `query` gives.

    Raises
    ------
    UnprocessableError
        When the index has no embedding model.
    ServiceError
        When asking fails.

    Examples
    --------
    >>> hits = query_text(service, "connection refused", filter="topic = 'connections'", top_k=3)
    >>> list(hits.columns), len(hits)
    (['query', 'rank', 'id', 'score'], 3)
    """
    texts = [text] if isinstance(text, str) else list(text)
    asked = [
        VectorQuery(
            data=one,
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
        for one in texts
    ]
    return _hits(service, asked)


def _hits(service: Service, asked: list[VectorQuery]) -> pd.DataFrame:
    if not asked:
        raise InputError("querying", got="no query", expected="at least one")
    with Transport.to(service, "vector") as transport:
        answers = query_bytes(transport, asked)
    table = decode_hits(
        answers,
        vectors=any(one.include_vectors for one in asked),
        metadata=any(one.include_metadata for one in asked),
        data=any(one.include_data for one in asked),
    )
    frame = to_frame(table)
    frame.attrs["queries"] = [one.scope() for one in asked]
    return frame


def _several(vector: npt.ArrayLike | None) -> list[Any]:
    """One vector or the rows of a matrix; None (a sparse query) as it is."""
    if vector is None:
        return [None]
    matrix = np.asarray(vector)
    if matrix.ndim not in (1, 2) or matrix.size == 0:
        raise InputError("querying", got=f"vectors of shape {matrix.shape}", expected="shape (d,) or (m, d)")
    return [matrix] if matrix.ndim == 1 else list(matrix)
