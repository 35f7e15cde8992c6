"""Read the queries that a caller passes: strings and `VectorQuery` values, or vectors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from toolkit.base.arguments import text, wrong
from toolkit.filters.query import VectorQuery
from toolkit.tables.arrow_input import arrow_table
from toolkit.vectors.vector_rows import VectorTables, is_matrix


def listed_queries(queries: Any, **options: Any) -> list[Any]:
    """Return one query, or several, as a list. A string becomes a `VectorQuery` with the options.

    Items of other types are returned as they are.
    """
    if isinstance(queries, str | VectorQuery):
        queries = [queries]
    is_other = isinstance(queries, bytes | dict | pd.DataFrame)
    if is_other or not isinstance(queries, Iterable):
        raise wrong("queries", queries, "strings or VectorQuery values")

    listed: list[Any] = []
    for number, item in enumerate(queries):
        query = item
        if isinstance(item, str):
            known = text(f"queries at position {number}", item, empty=False)
            query = VectorQuery(data=known, **options)
        listed.append(query)
    if not listed:
        raise wrong("queries", queries, "at least one query")

    return listed


def queries_as_vectors(
    queries: Any, *, doing: str, expected: str, next_step: str | None = None
) -> VectorTables:
    """Return queries that are a matrix, a frame with the column vector, or a single vector."""
    is_frame = isinstance(queries, pd.DataFrame) and not is_matrix(queries)
    if not is_frame and arrow_table(queries) is None:
        try:
            # a single vector is a single query, as for `query`
            queries = np.atleast_2d(np.asarray(queries, dtype=np.float32))
        except (TypeError, ValueError, OverflowError):
            raise wrong("queries", queries, expected, next_step) from None

    return VectorTables(queries, doing=doing, name="queries")
