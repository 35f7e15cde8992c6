"""Draw the queries of an audit of recall, and send them to the service."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from toolkit.base.arguments import wrong
from toolkit.base.errors import InputError
from toolkit.filters.metadata import MetadataFilter, parse
from toolkit.loading.queries import query
from toolkit.service.settings import Service
from toolkit.vectors.given_queries import queries_as_vectors
from toolkit.vectors.vector_batches import Matrix
from toolkit.vectors.vector_rows import VectorTables

DOING: Final = "auditing recall"
_AT_ONCE: Final = 100  # queries per request
_EXPECTED: Final = "a filter, or a list of filters"
_FINITE: Final = "finite numbers"


def filter_texts(value: Any) -> list[str]:
    """Return the texts of one or several filters, each once; "" is no filter."""
    values = value
    if value is None or isinstance(value, str | MetadataFilter):
        values = [value]
    if not isinstance(values, list | tuple):
        raise wrong("filter", value, _EXPECTED)

    texts: dict[str, None] = {}
    for item in values:
        if item is not None and not isinstance(item, str | MetadataFilter):
            raise wrong("filter", value, _EXPECTED)
        text = str(item or "")
        if text:
            parse(text)  # raises for invalid filters before a request is sent
        texts[text] = None

    return list(texts) or [""]


def query_vectors(queries: Any) -> VectorTables:
    """Return the vectors of the caller's queries."""
    return queries_as_vectors(
        queries,
        doing=DOING,
        expected="vectors: a matrix, or a frame with the column vector",
        next_step="The service does not return vectors of text: embed the text yourself, or omit queries.",
    )


def draw_queries(
    tables: VectorTables,
    usable_rows: npt.NDArray[np.bool_],
    dimension: int,
    sample: int,
    seed: int,
    queries: Any,
) -> dict[str, tuple[list[str], Matrix]]:
    """Draw vectors from usable rows, by namespace: stored vectors with their ids, queries with their numbers.

    Stored vectors that cannot be compared are left out. Queries of the caller that cannot be are an error.
    """
    is_stored = queries is None
    rng = np.random.default_rng([seed, 3])
    is_drawn = np.zeros(tables.rows, dtype=bool)
    rows = np.flatnonzero(usable_rows)

    is_drawn[rng.choice(rows, min(sample, len(rows)), replace=False)] = True
    drawn: dict[str, tuple[list[str], list[Matrix]]] = {}
    sizes: set[int] = set()
    start = 0
    for batch in tables:
        for positions, matrix in batch.dense:
            is_finite = np.isfinite(matrix).all(axis=1)
            sizes.add(matrix.shape[1])
            if not is_stored and not is_finite.all():
                unusable = start + positions[np.flatnonzero(~is_finite)[0]]
                raise wrong(f"queries at position {unusable:,}", queries, _FINITE)
            if matrix.shape[1] != dimension:
                continue
            for row in np.flatnonzero(is_finite & is_drawn[start + positions]):
                position = positions[row]
                label = str(start + position)
                if is_stored:
                    label = batch.ids[position]
                namespace = batch.namespaces[position]
                labels, vectors = drawn.setdefault(namespace, ([], []))
                labels.append(label)
                # a view would keep the whole batch in memory
                vectors.append(matrix[row].copy())

        start += len(batch.ids)

    _check_sizes(sizes, dimension, is_stored=is_stored)
    return {
        name: (labels, np.stack(vectors)) for name, (labels, vectors) in drawn.items()
    }


def _check_sizes(sizes: set[int], dimension: int, *, is_stored: bool) -> None:
    """Raise InputError if a query has another dimension than the index, or if all stored vectors have."""
    others = sizes - {dimension}
    if not others or (is_stored and dimension in sizes):
        return

    name = "queries"
    if is_stored:
        name = "vectors"
    raise InputError(
        f"reading {name}",
        got=f"vectors of {min(others)} numbers",
        expected=f"{dimension} numbers, as in the index",
    )


def ask(
    service: Service,
    matrix: Matrix,
    namespace: str,
    text: str,
    k: int,
    own: list[str] | None,
) -> list[dict[str, float]]:
    """Return ids and scores per query as the service returns them, best first."""
    scored: list[dict[str, float]] = [{} for _ in matrix]
    for start in range(0, len(matrix), _AT_ONCE):
        hits = query(
            service,
            vector=matrix[start : start + _AT_ONCE],
            # A stored vector is its own nearest neighbour, so one more is
            # requested and the vector itself is removed.
            top_k=k if own is None else k + 1,
            namespace=namespace,
            filter=text or None,
        )
        for number, key, score in zip(
            hits["query"], hits["id"], hits["score"], strict=True
        ):
            scored[start + number][key] = score

    if own is not None:
        for hits_of, key in zip(scored, own, strict=True):
            hits_of.pop(key, None)

    return [dict(list(hits_of.items())[:k]) for hits_of in scored]
