"""Indexes and the registry of all indexes in a folder.

An index keeps ids and vectors in memory for searching. Changes are written to the database first, and then to
memory: if the service is killed in between, the next start reads the database.
"""

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
from numpy.typing import NDArray

from toolkit.base.errors import LocalServiceError
from toolkit.filters.conditions import MetadataFilter
from toolkit_service.api import ApiError, invalid
from toolkit_service.damaged_values import DamagedValue
from toolkit_service.vectors import bodies
from toolkit_service.vectors.bodies import Included, IndexQuery
from toolkit_service.vectors.index_database import IndexDatabase, IndexRow, opening
from toolkit_service.vectors.rows import FilterBudget, NamespaceRows
from toolkit_service.vectors.search import (
    DEPTH,
    EXPANSION,
    ApproximateSearch,
    Ranking,
    Search,
    fuse,
    nearest,
    with_vectors,
)
from toolkit_service.vectors.sparse import InvertedRows
from toolkit_service.vectors.specs import Models, load_models

MAX_PREFIX_FETCH: Final = 1000  # most vectors that a fetch by prefix returns
# resumable queries of an index at a time; the public limit is not documented
MAX_OPEN: Final = 100


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
    """The sparse vectors, read when they are first searched."""


@dataclass
class _ResumableQuery:
    namespace: int
    remaining: Iterator[tuple[str, float]]
    include: Included
    max_idle: int
    used: float


class VectorIndex:
    """One open index. The methods may be called from several threads; a lock lets one work at a time.

    `close` also closes the database. `clock` returns monotonic seconds, which tell when resumable queries
    expire. Namespaces of more than `approximate_above` rows are searched approximately. Errors in requests
    are `ApiError`, as over HTTP, for example 422 for text without a model.
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
        self.spec = database.spec
        self._database = database
        self._approximate_above = approximate_above
        self._expansion = expansion
        # reentrant: for example, `update` calls `_put` with the lock
        self._lock = threading.RLock()
        self._random = random.Random(seed)  # noqa: S311 - which vector is shown first is no secret
        self._models = load_models(self.spec)
        self._clock = clock
        self._resumable: dict[str, _ResumableQuery] = {}
        self._namespaces: dict[str, _Namespace] = {}
        with opening(database.path):
            for name, key in database.namespaces().items():
                self._namespaces[name] = self._loaded_namespace(key)

    def _new_search(self) -> Search:
        if self._approximate_above is None:
            return nearest
        return ApproximateSearch(self._approximate_above, self._expansion).nearest

    def _loaded_namespace(self, key: int) -> _Namespace:
        """Read ids and vectors of a namespace into memory."""
        loaded = self._empty_namespace(key)
        loaded.rows.reserve(self._database.count(key))
        for ids, sequences, vectors in self._database.vectors(key):
            loaded.rows.put(ids, sequences, vectors)
        return loaded

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._database.close()

    def damaged_value(self) -> DamagedValue | None:
        """Return the first value in the file that the index cannot have stored there, or None."""
        with self._lock:
            return self._database.damaged_value()

    def upsert(self, rows: Iterable[Mapping[str, Any]], *, namespace: str = "") -> None:
        """Write rows with vectors: all of them, or none if one is malformed."""
        read = partial(bodies.read_row, spec=self.spec)
        new = bodies.read_items(list(rows), bodies.UpsertVector, "row", read)
        self._put(namespace, new)

    def upsert_data(
        self, rows: Iterable[Mapping[str, Any]], *, namespace: str = ""
    ) -> None:
        """Write rows with text, which the models of the index embed."""
        models = self.need_models()
        new = bodies.read_items(
            list(rows), bodies.UpsertText, "row", bodies.read_text_row
        )
        texts = [row.data or "" for row in new]
        dense_vectors = models.embed_dense(texts, self.spec.dimension)
        sparse_vectors = models.embed_sparse(texts, question=False)
        embedded = []
        for row, dense, sparse in zip(new, dense_vectors, sparse_vectors, strict=True):
            vector = row.vector if dense is None else dense
            embedded.append(row._replace(vector=vector, sparse=sparse))

        self._put(namespace, embedded)

    def query(
        self,
        queries: Sequence[IndexQuery],
        *,
        namespace: str = "",
        budget: FilterBudget | None = None,
    ) -> list[list[ScoredRow]]:
        """Return the results of each query, best first. A namespace that does not exist has no results."""
        requested = self._with_vectors(queries)
        with self._lock:
            stored = self._namespace(namespace)
            results = []
            for query in requested:
                ranking = self._ranked(stored, query, budget)[: query.top_k]
                results.append(
                    [
                        ScoredRow(self._row(stored, row_id), score)
                        for row_id, score in ranking
                    ]
                )

            return results

    def begin_query(
        self,
        query: IndexQuery,
        *,
        max_idle: int,
        namespace: str = "",
        budget: FilterBudget | None = None,
    ) -> tuple[str, list[ScoredRow]]:
        """Begin a resumable query, and return the id and the first results.

        The query ranks the rows that exist now. A row that is deleted before it is returned is omitted; a row
        that changes is returned with the new content and the old score. If two rankings are fused, the query
        ends with the results that a plain query fuses: see `DEPTH`.
        """
        # outside the lock: a model may be slow
        (requested,) = self._with_vectors([query])
        with self._lock:
            stored = self._namespace(namespace)
            if not requested.has_both:
                # a single ranking continues to the last row; fused rankings are complete as they are
                requested = replace(requested, top_k=len(stored.rows))

            ranking = self._ranked(stored, requested, budget)
            if len(self._open_queries()) >= MAX_OPEN:
                raise invalid(
                    "resumable query",
                    f"{MAX_OPEN} open ones",
                    "fewer: end one, or let one expire",
                )

            query_id = str(uuid.uuid4())
            self._resumable[query_id] = _ResumableQuery(
                stored.key, iter(ranking), query.include, max_idle, self._clock()
            )
            first_results, _ = self.next_results(query_id, query.top_k)
            return query_id, first_results

    def next_results(
        self, query_id: str, count: int
    ) -> tuple[list[ScoredRow], Included]:
        """Return at most `count` further results of a resumable query, and the parts of rows to show."""
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
        """Forget a resumable query. Raise an `ApiError` with 404 if it has ended or expired."""
        with self._lock:
            self._open_query(query_id)
            del self._resumable[query_id]

    def range(
        self, page: bodies.RangePage, *, namespace: str = ""
    ) -> tuple[str, list[IndexRow]]:
        """Return the next cursor (empty on the last page) and one page, in the order of insertion."""
        start, prefix = int(page.cursor or 0), page.prefix or ""
        with self._lock:
            if start > self._database.last_sequence():
                got = f"{page.cursor!r}, which this index never returned"
                raise invalid("cursor", got, "'0', '' or a nextCursor")
            # one row more than requested: it is the first row of the next page, whose number is the cursor
            rows = self._database.page(
                self._namespace(namespace).key, start, page.limit + 1, prefix
            )

        if len(rows) <= page.limit:
            return "", rows

        first_of_next = rows[page.limit]
        return str(first_of_next.sequence), rows[: page.limit]

    def fetch(
        self, body: bodies.FetchVectors, *, namespace: str = ""
    ) -> list[IndexRow | None]:
        """Return rows by ids (None for unknown ids), or by a prefix (at most 1000)."""
        if body.prefix and body.ids is not None:
            raise ApiError(
                400, "Only one of ids or prefix must be provided.", verbatim=True
            )

        with self._lock:
            key = self._namespace(namespace).key
            if body.prefix:
                return [*self._database.page(key, 0, MAX_PREFIX_FETCH, body.prefix)]
            if body.ids is None:
                raise invalid("fetch", "neither ids nor prefix", "one of them")
            return [self._database.find(key, row_id) for row_id in body.ids]

    def update(self, body: bodies.UpdateVector, *, namespace: str = "") -> int:
        """Change one row, and return the number of changed rows, 0 or 1."""
        changes = self._vector_changes(body)
        # an invalid value is an error even if the row does not exist
        bodies.metadata_text(body.metadata)
        if body.data is not None:
            changes["data"] = body.data
        if not changes and body.metadata is None:
            expected = "at least one of vector, sparseVector, metadata and data"
            raise invalid("update", "nothing to change", expected)

        with self._lock:
            row = self._database.find(self._namespace(namespace).key, body.id)
            if row is None:
                return 0
            if body.metadata is not None:
                changes["metadata"] = _changed_metadata(row, body)
            self._put(namespace, [row._replace(**changes)])
            return 1

    def _vector_changes(self, body: bodies.UpdateVector) -> dict[str, Any]:
        """Return the new vectors of a row: as given, or from new text."""
        vector, sparse = bodies.vectors_of(body, self.spec)
        if body.data is not None:
            texts = [bodies.read_text(body.data)]
            if vector is None:
                vector = self._models.embed_dense(texts, self.spec.dimension)[0]
            if sparse is None:
                sparse = self._models.embed_sparse(texts, question=False)[0]

        changes = {"vector": vector, "sparse": sparse}
        return {
            field: changed for field, changed in changes.items() if changed is not None
        }

    def delete(
        self,
        body: bodies.DeleteVectors,
        *,
        namespace: str = "",
        budget: FilterBudget | None = None,
    ) -> int:
        """Delete rows, and return how many existed. If a filter exceeds the budget, nothing is deleted."""
        selections = (body.ids, body.prefix, body.filter)
        if selections.count(None) != len(selections) - 1:
            message = (
                "Only and only one of the ids, prefix, or filter must be provided."
            )
            raise ApiError(400, message, verbatim=True)

        metadata_filter = bodies.read_filter(body.filter)
        if body.filter is not None and metadata_filter is None:
            raise invalid("filter", "an empty one", "at least one condition")

        with self._lock:
            stored = self._namespace(namespace)
            ids = _selected_ids(stored.rows, body, metadata_filter, budget)
            self._delete_rows(stored, ids)
            return len(ids)

    def _delete_rows(self, stored: _Namespace, ids: list[str]) -> None:
        with self._database.transaction():
            self._database.remove(stored.key, ids)
        # memory changes after the transaction: if that fails, both still have the rows
        for row_id in ids:
            stored.rows.remove(row_id)
            if stored.inverted is not None:
                stored.inverted.remove(row_id)

    def reset(self, *, namespace: str | None = "") -> None:
        """Delete all rows of a namespace, or of every namespace if it is None. The namespaces stay."""
        with self._lock:
            names = list(self._namespaces) if namespace is None else [namespace]
            keys = {
                name: self._namespaces[name].key
                for name in names
                if name in self._namespaces
            }
            with self._database.transaction():
                for key in keys.values():
                    self._database.clear(key)

            self._namespaces |= {
                name: self._empty_namespace(key) for name, key in keys.items()
            }

    def namespaces(self) -> dict[str, int]:
        """Return the number of rows per namespace. The default namespace, "", always exists."""
        with self._lock:
            return {name: len(stored.rows) for name, stored in self._namespaces.items()}

    def delete_namespace(self, name: str) -> None:
        """Delete a namespace with all rows. Raise an `ApiError` with 404 for the default namespace."""
        with self._lock:
            stored = self._existing(name)
            with self._database.transaction():
                self._database.drop_namespace(stored.key)
            del self._namespaces[name]

    def rename_namespace(
        self, name: str, new_name: str, *, delete_existing: bool = False
    ) -> None:
        """Give a namespace another name. With `delete_existing`, a namespace of that name is deleted."""
        with self._lock:
            stored = self._existing(name)
            replaced = self._namespaces.get(new_name)

            may_replace = delete_existing and replaced is not stored
            if replaced is not None and not may_replace:
                raise ApiError(
                    400,
                    f"Namespace {new_name} for the index {self.spec.name} already exists",
                )

            with self._database.transaction():
                if replaced is not None:
                    self._database.drop_namespace(replaced.key)
                self._database.rename_namespace(stored.key, new_name)

            self._namespaces[new_name] = self._namespaces.pop(name)

    def random(self, *, namespace: str = "") -> IndexRow | None:
        """Return any row of a namespace, or None if it is empty."""
        with self._lock:
            stored = self._namespace(namespace)
            if not len(stored.rows):
                return None
            return self._row(stored, self._random.choice(stored.rows.ids))

    def size(self) -> int:
        """Return the bytes of the file."""
        with self._lock:
            return self._database.size()

    def need_models(self) -> Models:
        """Return the models for text. Raise an `ApiError` with 422 if the index has none."""
        if self.spec.model is None:
            problem = f"text for the index {self.spec.name}"
            raise invalid(
                problem, "no embedding model", "an index with one", status=422
            )

        return self._models

    def _with_vectors(self, queries: Sequence[IndexQuery]) -> list[IndexQuery]:
        """Return the queries with vectors in place of text."""
        if any(isinstance(query.question, str) for query in queries):
            return with_vectors(queries, self.spec, self.need_models())
        return [*queries]

    def _ranked(
        self, stored: _Namespace, query: IndexQuery, budget: FilterBudget | None
    ) -> Ranking:
        """Return the `top_k` best rows. If two rankings are fused, return all rows of either."""
        rows = stored.rows
        if not len(rows):
            return []

        passing = None
        if query.filter is not None:
            passing = rows.passing(query.filter, budget)
        if not query.has_both:
            return self._rankings(stored, query, query.top_k, passing)[0]

        # both sides contribute as many rows for every small top_k, so that the first hits stay the same
        rankings = self._rankings(stored, query, max(query.top_k, DEPTH), passing)
        return fuse(
            rankings,
            query.fusion,
            rank_start=self.spec.rank_start,
            inserted=rows.inserted,
        )

    def _rankings(
        self,
        stored: _Namespace,
        query: IndexQuery,
        top_k: int,
        passing: NDArray[np.intp] | None,
    ) -> list[Ranking]:
        """Return a ranking per vector of the query, dense first."""
        rows, similarity = stored.rows, self.spec.similarity
        rankings: list[Ranking] = []
        if isinstance(query.question, np.ndarray) and similarity is not None:
            best = stored.search(
                rows, query.question.astype(np.float64), top_k, similarity, passing
            )
            rankings.append([(rows.ids[position], score) for position, score in best])

        if query.sparse is not None:
            # the inverted index knows rows by sequence number
            sequences = None if passing is None else rows.sequence[passing]
            inverted = self._inverted(stored)
            rankings.append(
                inverted.nearest(query.sparse, top_k, idf=query.idf, passing=sequences)
            )

        return rankings

    def _inverted(self, stored: _Namespace) -> InvertedRows:
        if stored.inverted is None:
            stored.inverted = InvertedRows(self._database.sparse_rows(stored.key))
        return stored.inverted

    def _namespace(self, name: str) -> _Namespace:
        """Return the namespace of this name. If it does not exist, return an empty one with an unused key."""
        return self._namespaces.get(name) or self._empty_namespace(0)

    def _existing(self, name: str) -> _Namespace:
        if name == "" or name not in self._namespaces:
            raise ApiError(
                404, f"Namespace {name} for the index {self.spec.name} does not exist"
            )

        return self._namespaces[name]

    def _empty_namespace(self, key: int) -> _Namespace:
        rows = NamespaceRows(self.spec.dimension, partial(self._database.metadata, key))
        return _Namespace(key, rows, self._new_search())

    def _put(self, namespace: str, rows: Sequence[IndexRow]) -> None:
        """Write rows to the database, and then to memory."""
        with self._lock:
            stored = self._namespaces.get(namespace)
            with self._database.transaction():
                key = stored.key if stored else self._database.add_namespace(namespace)
                sequences = self._database.put(key, rows)

            if stored is None:
                # only after the transaction: if it fails, the namespace does not exist
                stored = self._namespaces[namespace] = self._empty_namespace(key)

            vectors = np.stack([row.vector for row in rows])
            stored.rows.put([row.id for row in rows], sequences, vectors)
            if stored.inverted is not None:
                _put_sparse(stored.inverted, rows, sequences)

    def _row(self, stored: _Namespace, row_id: str) -> IndexRow:
        row = self._database.find(stored.key, row_id)
        if row is None:
            raise LocalServiceError(
                f"reading {row_id[:80]!r} from the index {self.spec.name}",
                got="no such row in its file",
                expected="the row with this id, which is in memory",
                next_step="Restart the service: something else changed the file.",
            )

        return row

    def _open_query(self, query_id: str) -> _ResumableQuery:
        if query_id not in self._open_queries():
            expected = "a resumable query that has not ended or expired"
            raise invalid("uuid", "no open query", expected, status=404)
        return self._resumable[query_id]

    def _open_queries(self) -> dict[str, _ResumableQuery]:
        """Return the resumable queries that have not expired."""
        now = self._clock()
        expired = [
            query_id
            for query_id, query in self._resumable.items()
            if now - query.used > query.max_idle
        ]
        for query_id in expired:
            del self._resumable[query_id]
        return self._resumable


def _changed_metadata(row: IndexRow, body: bodies.UpdateVector) -> str | None:
    metadata: Any = body.metadata
    if body.metadata_update_mode == "PATCH":
        metadata = bodies.merge(json.loads(row.metadata or "null"), metadata)
    return bodies.metadata_text(metadata)


def _selected_ids(
    rows: NamespaceRows,
    body: bodies.DeleteVectors,
    metadata_filter: MetadataFilter | None,
    budget: FilterBudget | None,
) -> list[str]:
    """Return the ids of the rows to delete, each once."""
    if metadata_filter is not None:
        return [
            rows.ids[position] for position in rows.passing(metadata_filter, budget)
        ]

    if body.prefix is not None:
        return [row_id for row_id in rows.ids if row_id.startswith(body.prefix)]

    requested = body.ids or []
    if isinstance(requested, str):
        requested = [requested]
    return [row_id for row_id in dict.fromkeys(requested) if row_id in rows]


def _put_sparse(
    inverted: InvertedRows, rows: Sequence[IndexRow], sequences: list[int]
) -> None:
    """Add sparse vectors to the inverted index, which exists since the first sparse search."""
    for row, sequence in zip(rows, sequences, strict=True):
        if row.sparse is not None:
            inverted.put(sequence, row.id, row.sparse)
