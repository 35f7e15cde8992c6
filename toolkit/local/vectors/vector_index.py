"""One index: its namespaces in memory for searching, over its database, which is written first."""

from __future__ import annotations

import json
import random
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np

from toolkit.errors import LocalServiceError
from toolkit.local.api import ApiError, invalid
from toolkit.local.vectors.bodies import (
    MAX_PAGE,
    DeleteVectors,
    FetchVectors,
    IncludedFields,
    IndexQuery,
    RangePage,
    UpdateVector,
    UpsertText,
    UpsertVector,
    metadata_text,
    read_filter,
    read_items,
    read_row,
    read_text,
    vectors_of,
)
from toolkit.local.vectors.index_database import IndexDatabase, IndexRow
from toolkit.local.vectors.models import Models, load_models
from toolkit.local.vectors.rows import FilterBudget, NamespaceRows
from toolkit.local.vectors.search import (
    EXPANSION,
    ApproximateSearch,
    Ranking,
    Search,
    has_both,
    nearest,
    ranked,
    with_vectors,
)
from toolkit.local.vectors.sparse import InvertedRows
from toolkit.local.vectors.specs import IndexSpec

MAX_PREFIX_FETCH: Final = 1000
"""Most vectors that a fetch by prefix returns."""
MAX_OPEN: Final = 100
"""Most resumable queries of an index at a time: an assumption."""

_NO_VECTOR: Final = np.empty(0, dtype=np.float32)


class ScoredRow(NamedTuple):
    """One result of a query."""

    row: IndexRow
    score: float


@dataclass
class _Namespace:
    key: int
    rows: NamespaceRows
    search: Search
    inverted: InvertedRows | None = None
    """Its sparse vectors, read when they are first searched."""


@dataclass
class _ResumableQuery:
    namespace: int
    remaining: Iterator[tuple[str, float]]
    include: IncludedFields
    max_idle: int
    used: float


class VectorIndex:
    """One index, open. Its methods may be called from several threads; each holds the index's lock.

    The index closes its database. `clock` returns seconds that only grow, for resumable queries to expire by;
    namespaces of more than `approximate_above` rows are searched approximately. Errors in requests are
    `ApiError`, as over HTTP: 422 for text without a model and for filters that take longer than their budget.
    """

    def __init__(
        self,
        database: IndexDatabase,
        *,
        seed: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        approximate_above: int | None = None,
        expansion: int = EXPANSION,
    ) -> None:
        self._database = database
        self._approximate_above, self._expansion = approximate_above, expansion
        self._lock = threading.RLock()
        self._random = random.Random(seed)  # noqa: S311 - which vector is shown first is no secret
        self._models = load_models(self.spec)
        self._clock = clock
        self._resumable: dict[str, _ResumableQuery] = {}
        self._namespaces: dict[str, _Namespace] = {}
        for name, key in database.namespaces().items():
            opened = self._namespaces[name] = self._empty_namespace(key)
            opened.rows.reserve(database.count(key))
            for ids, sequences, vectors in database.vectors(key):
                opened.rows.put(ids, sequences, vectors)

    @property
    def spec(self) -> IndexSpec:
        """What the index is."""
        return self._database.spec

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._database.close()

    def upsert(self, rows: Iterable[Mapping[str, Any]], *, namespace: str = "") -> None:
        """Write rows with their vectors; all of them, or none when one is wrong."""
        new = read_items(list(rows), UpsertVector, "row", MAX_PAGE, lambda row: read_row(row, self.spec))
        self._put(namespace, new)

    def upsert_data(self, rows: Iterable[Mapping[str, Any]], *, namespace: str = "") -> None:
        """Write rows with text, which the index's models embed."""
        models = self.need_models()
        new = read_items(list(rows), UpsertText, "row", MAX_PAGE, _row_of_text)
        texts = [row.data or "" for row in new]
        dense = models.embed_dense(texts, self.spec.dimension)
        sparse = models.embed_sparse(texts, question=False)
        embedded = [
            row._replace(vector=row.vector if vector is None else vector, sparse=other)
            for row, vector, other in zip(new, dense, sparse, strict=True)
        ]
        self._put(namespace, embedded)

    def query(
        self, queries: Sequence[IndexQuery], *, namespace: str = "", budget: FilterBudget | None = None
    ) -> list[list[ScoredRow]]:
        """The results of each query, best first. A namespace that is not there has none."""
        requested = self._with_vectors(queries)
        with self._lock:
            stored = self._namespace(namespace)
            return [
                [
                    ScoredRow(self._row(stored, row_id), score)
                    for row_id, score in self._ranked(stored, query, budget)[: query.top_k]
                ]
                for query in requested
            ]

    def begin_query(
        self, query: IndexQuery, *, max_idle: int, namespace: str = "", budget: FilterBudget | None = None
    ) -> tuple[str, list[ScoredRow]]:
        """Begin a resumable query: its id, and the first results.

        It ranks the rows that are there now. Rows that are deleted before they are returned are left out;
        changed rows are returned with new values and their old score. Where two rankings are fused, it
        ends with what a query fuses: see `DEPTH`.
        """
        (requested,) = self._with_vectors([query])
        with self._lock:
            stored = self._namespace(namespace)
            # two fused lists are whole as they are; one continues to its last row
            whole = requested if has_both(requested) else replace(requested, top_k=len(stored.rows))
            ranking = self._ranked(stored, whole, budget)
            self._expire_queries()
            if len(self._resumable) >= MAX_OPEN:
                got = f"{MAX_OPEN} open ones"
                raise ApiError(400, f"resumable query; got {got}; expected fewer: end one, or let one expire")
            query_id = str(uuid.uuid4())
            self._resumable[query_id] = _ResumableQuery(
                stored.key, iter(ranking), query.include, max_idle, self._clock()
            )
            return query_id, self.next_results(query_id, query.top_k)[0]

    def next_results(self, query_id: str, count: int) -> tuple[list[ScoredRow], IncludedFields]:
        """At most so many further results of a resumable query, and what they are to come with."""
        with self._lock:
            query = self._open_query(query_id)
            query.used = self._clock()
            results: list[ScoredRow] = []
            for row_id, score in query.remaining:
                row = self._database.find(query.namespace, row_id)
                if row is not None:
                    results.append(ScoredRow(row, score))
                    if len(results) == count:
                        break
            return results, query.include

    def end_query(self, query_id: str) -> None:
        """Forget a resumable query; 404 when there is no such query, or it has expired."""
        with self._lock:
            self._open_query(query_id)
            del self._resumable[query_id]

    def range(self, page: RangePage, *, namespace: str = "") -> tuple[str, list[IndexRow]]:
        """The next cursor ("" at the end) and one page, in the order of first insertion."""
        start, prefix = int(page.cursor or 0), page.prefix or ""
        with self._lock:
            if start > self._database.last_sequence():
                got = f"{page.cursor!r}, which this index never returned"
                raise invalid("cursor", got, "'0', '' or a nextCursor")
            # one more than requested: the first of the next page, whose number is the cursor
            rows = self._database.page(self._namespace(namespace).key, start, page.limit + 1, prefix)
        rest = rows[page.limit :]
        return (str(rest[0].sequence) if rest else ""), rows[: page.limit]

    def fetch(self, body: FetchVectors, *, namespace: str = "") -> list[IndexRow | None]:
        """The rows requested: by ids with None where there is none, or by prefix, at most 1000."""
        if (body.ids is None) == (not body.prefix):
            got = "both ids and prefix" if body.prefix else "neither ids nor prefix"
            raise invalid("fetch", got, "exactly one of them")
        with self._lock:
            key = self._namespace(namespace).key
            if body.prefix:
                return [*self._database.page(key, 0, MAX_PREFIX_FETCH, body.prefix)]
            return [self._database.find(key, row_id) for row_id in body.ids or ()]

    def update(self, body: UpdateVector, *, namespace: str = "") -> int:
        """Change one row; returns how many were changed, 0 or 1."""
        vector, sparse = vectors_of(body, self.spec)
        if vector is None and sparse is None and body.metadata is None and body.data is None:
            expected = "at least one of vector, sparseVector, metadata and data"
            raise invalid("update", "nothing to change", expected)
        if body.data is not None:
            texts = [read_text(body.data)]
            if vector is None:
                vector = self._models.embed_dense(texts, self.spec.dimension)[0]
            if sparse is None:
                sparse = self._models.embed_sparse(texts, question=False)[0]
        metadata_text(body.metadata)
        with self._lock:
            row = self._database.find(self._namespace(namespace).key, body.id)
            if row is None:
                return 0
            metadata = row.metadata
            if body.metadata is not None:
                before = None if metadata is None else json.loads(metadata)
                patch = body.metadata_update_mode == "PATCH"
                metadata = metadata_text(merge(before, body.metadata) if patch else body.metadata)
            changed = row._replace(
                vector=row.vector if vector is None else vector,
                metadata=metadata,
                data=row.data if body.data is None else body.data,
                sparse=row.sparse if sparse is None else sparse,
            )
            self._put(namespace, [changed])
            return 1

    def delete(self, body: DeleteVectors, *, namespace: str = "", budget: FilterBudget | None = None) -> int:
        """Delete rows; returns how many there were. When a filter exceeds its budget, nothing is deleted."""
        given = [name for name in ("ids", "prefix", "filter") if getattr(body, name) is not None]
        if len(given) != 1:
            got = " and ".join(given) or "none of them"
            raise invalid("delete", got, "exactly one of ids, prefix and filter")
        chosen = read_filter(body.filter)
        if chosen is None and given == ["filter"]:
            raise invalid("filter", "an empty one", "at least one condition")
        with self._lock:
            stored = self._namespace(namespace)
            rows = stored.rows
            if chosen is not None:
                ids = [rows.ids[position] for position in rows.passing(chosen, budget)]
            elif body.prefix is not None:
                ids = [row_id for row_id in rows.ids if row_id.startswith(body.prefix)]
            else:
                wanted = [body.ids] if isinstance(body.ids, str) else body.ids or []
                ids = [row_id for row_id in dict.fromkeys(wanted) if row_id in rows]
            with self._database.transaction():
                self._database.remove(stored.key, ids)
            for row_id in ids:
                rows.remove(row_id)
                if stored.inverted is not None:
                    stored.inverted.remove(row_id)
            return len(ids)

    def reset(self, *, namespace: str | None = "") -> None:
        """Delete all rows of a namespace; None: of every namespace. The namespaces stay."""
        with self._lock:
            names = list(self._namespaces) if namespace is None else [namespace]
            keys = {name: self._namespaces[name].key for name in names if name in self._namespaces}
            with self._database.transaction():
                for key in keys.values():
                    self._database.clear(key)
            self._namespaces |= {name: self._empty_namespace(key) for name, key in keys.items()}

    def namespaces(self) -> dict[str, int]:
        """The namespaces and how many rows each has. The default one, "", is always there."""
        with self._lock:
            return {name: len(stored.rows) for name, stored in self._namespaces.items()}

    def delete_namespace(self, name: str) -> None:
        """Delete a namespace with its rows; 404 for the default one."""
        with self._lock:
            stored = self._existing(name)
            with self._database.transaction():
                self._database.drop_namespace(stored.key)
            del self._namespaces[name]

    def rename_namespace(self, name: str, new_name: str, *, delete_existing: bool = False) -> None:
        """Give a namespace another name; with `delete_existing`, whatever has that name is deleted."""
        with self._lock:
            stored, taken = self._existing(name), self._namespaces.get(new_name)
            if taken is not None and (taken is stored or not delete_existing):
                raise ApiError(400, f"Namespace {new_name} for the index {self.spec.name} already exists")
            with self._database.transaction():
                if taken is not None:
                    self._database.drop_namespace(taken.key)
                self._database.rename_namespace(stored.key, new_name)
            self._namespaces[new_name] = self._namespaces.pop(name)

    def random(self, *, namespace: str = "") -> IndexRow | None:
        """Any row of a namespace, None when it is empty."""
        with self._lock:
            stored = self._namespace(namespace)
            return self._row(stored, self._random.choice(stored.rows.ids)) if len(stored.rows) else None

    def size(self) -> int:
        """Bytes of the index's file."""
        with self._lock:
            return self._database.size()

    def need_models(self) -> Models:
        """The models for text; 422 when the index has none."""
        if self.spec.model is None:
            raise ApiError(
                422,
                f"text for the index {self.spec.name}; got no embedding model; expected an index with one",
            )
        return self._models

    def _with_vectors(self, queries: Sequence[IndexQuery]) -> list[IndexQuery]:
        if any(isinstance(query.question, str) for query in queries):
            self.need_models()
        return with_vectors(queries, self.spec, self._models)

    def _namespace(self, name: str) -> _Namespace:
        """The namespace of this name; where there is none, one without rows, whose key no namespace has."""
        return self._namespaces.get(name) or self._empty_namespace(0)

    def _existing(self, name: str) -> _Namespace:
        if name == "" or name not in self._namespaces:
            raise ApiError(404, f"Namespace {name} for the index {self.spec.name} does not exist")
        return self._namespaces[name]

    def _empty_namespace(self, key: int) -> _Namespace:
        rows = NamespaceRows(self.spec.dimension, partial(self._database.metadata, key))
        above = self._approximate_above
        return _Namespace(
            key, rows, nearest if above is None else ApproximateSearch(above, self._expansion).nearest
        )

    def _put(self, namespace: str, rows: Sequence[IndexRow]) -> None:
        with self._lock:
            stored = self._namespaces.get(namespace)
            with self._database.transaction():
                key = stored.key if stored else self._database.add_namespace(namespace)
                sequences = self._database.put(key, rows)
            if stored is None:
                stored = self._namespaces[namespace] = self._empty_namespace(key)
            vectors = np.stack([row.vector for row in rows])
            stored.rows.put([row.id for row in rows], sequences, vectors, [row.metadata for row in rows])
            for row, sequence in zip(rows, sequences, strict=True):
                if stored.inverted is not None and row.sparse is not None:
                    stored.inverted.put(sequence, row.id, row.sparse)

    def _ranked(self, stored: _Namespace, query: IndexQuery, budget: FilterBudget | None) -> Ranking:
        inverted = partial(self._inverted, stored)
        return ranked(query, self.spec, stored.rows, inverted, search=stored.search, budget=budget)

    def _inverted(self, stored: _Namespace) -> InvertedRows:
        if stored.inverted is None:
            stored.inverted = InvertedRows(self._database.sparse_rows(stored.key))
        return stored.inverted

    def _row(self, stored: _Namespace, row_id: str) -> IndexRow:
        row = self._database.find(stored.key, row_id)
        if row is None:
            raise LocalServiceError(
                f"reading {row_id[:80]!r} from the index {self.spec.name}",
                got="no such row in its file",
                expected="the row that is held in memory",
                next_step="Restart the service: something else changed the file.",
            )
        return row

    def _open_query(self, query_id: str) -> _ResumableQuery:
        self._expire_queries()
        if query_id not in self._resumable:
            raise ApiError(
                404, "uuid; got none that is open; expected a resumable query not ended or expired"
            )
        return self._resumable[query_id]

    def _expire_queries(self) -> None:
        now = self._clock()
        self._resumable = {
            query_id: query
            for query_id, query in self._resumable.items()
            if now - query.used <= query.max_idle
        }


def merge(target: Any, patch: Any) -> Any:
    """A JSON merge patch (RFC 7396): null removes a field, objects merge, everything else replaces.

    >>> merge({"a": 1, "b": {"c": 2, "d": 3}}, {"a": None, "b": {"c": 4}})
    {'b': {'c': 4, 'd': 3}}
    """
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge(merged.get(name), value)
    return merged


def _row_of_text(row: UpsertText) -> IndexRow:
    return IndexRow(row.id, _NO_VECTOR, metadata_text(row.metadata), read_text(row.data))
