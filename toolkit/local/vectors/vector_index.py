"""Indexes: namespaces in memory for searching, over a database that is written first; and all of a folder."""

from __future__ import annotations

import asyncio
import json
import random
import sqlite3
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, ParamSpec, TypeVar

import numpy as np

from toolkit.errors import InputError, LocalServiceError
from toolkit.local.api import ApiError, invalid
from toolkit.local.damaged_values import DamagedValue
from toolkit.local.storage_errors import (
    INTERNAL_ERROR,
    damage_problem,
    may_be_a_damaged_value,
    storage_problem,
)
from toolkit.local.vectors import bodies
from toolkit.local.vectors.bodies import Included, IndexQuery
from toolkit.local.vectors.index_database import IndexDatabase, IndexRow, opening
from toolkit.local.vectors.rows import FilterBudget, NamespaceRows
from toolkit.local.vectors.search import (
    DEPTH,
    EXPANSION,
    ApproximateSearch,
    Ranking,
    Search,
    check_approximate,
    fuse,
    nearest,
    with_vectors,
)
from toolkit.local.vectors.sparse import InvertedRows
from toolkit.local.vectors.specs import IndexSpec, Models, load_models
from toolkit.private_files import make_folder

MAX_PREFIX_FETCH: Final = 1000  # vectors that a fetch by prefix returns
MAX_OPEN: Final = 100  # resumable queries of an index at a time: an assumption


MAX_THREADS: Final = 8
"""Threads of the indexes of a service.

Each contains a request's body, its values and its response. An index serves one request at a time: with
more threads the same work takes more memory (200 callers that read pages: 40 take 290 MB, 8 take 177 MB).
"""
P = ParamSpec("P")
T = TypeVar("T")


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
    include: Included
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
        self.spec = database.spec
        self._database = database
        self._new_search: Callable[[], Search] = lambda: (
            nearest if approximate_above is None else ApproximateSearch(approximate_above, expansion).nearest
        )
        self._lock = threading.RLock()
        self._random = random.Random(seed)  # noqa: S311 - which vector is shown first is no secret
        self._models = load_models(self.spec)
        self._clock = clock
        self._resumable: dict[str, _ResumableQuery] = {}
        self._namespaces: dict[str, _Namespace] = {}
        with opening(database.path):
            for name, key in database.namespaces().items():
                opened = self._namespaces[name] = self._empty_namespace(key)
                opened.rows.reserve(database.count(key))
                for ids, sequences, vectors in database.vectors(key):
                    opened.rows.put(ids, sequences, vectors)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._database.close()

    def damaged_value(self) -> DamagedValue | None:
        """The first value in the file that the index cannot have stored there, if there is one."""
        with self._lock:
            return self._database.damaged_value()

    def upsert(self, rows: Iterable[Mapping[str, Any]], *, namespace: str = "") -> None:
        """Write rows with their vectors; all of them, or none when one is wrong."""
        read = partial(bodies.read_row, spec=self.spec)
        new = bodies.read_items(list(rows), bodies.UpsertVector, "row", read)
        self._put(namespace, new)

    def upsert_data(self, rows: Iterable[Mapping[str, Any]], *, namespace: str = "") -> None:
        """Write rows with text, which the index's models embed."""
        models = self.need_models()
        new = bodies.read_items(list(rows), bodies.UpsertText, "row", bodies.read_text_row)
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
            whole = requested if requested.has_both else replace(requested, top_k=len(stored.rows))
            ranking = self._ranked(stored, whole, budget)
            if len(self._open_queries()) >= MAX_OPEN:
                raise invalid("resumable query", f"{MAX_OPEN} open ones", "fewer: end one, or let one expire")
            query_id = str(uuid.uuid4())
            self._resumable[query_id] = _ResumableQuery(
                stored.key, iter(ranking), query.include, max_idle, self._clock()
            )
            return query_id, self.next_results(query_id, query.top_k)[0]

    def next_results(self, query_id: str, count: int) -> tuple[list[ScoredRow], Included]:
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

    def range(self, page: bodies.RangePage, *, namespace: str = "") -> tuple[str, list[IndexRow]]:
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

    def fetch(self, body: bodies.FetchVectors, *, namespace: str = "") -> list[IndexRow | None]:
        """The rows requested: by ids with None where there is none, or by prefix, at most 1000."""
        if body.ids is not None and body.prefix:
            raise ApiError(400, "Only one of ids or prefix must be provided.", verbatim=True)
        if body.ids is None and not body.prefix:
            raise invalid("fetch", "neither ids nor prefix", "one of them")
        with self._lock:
            key = self._namespace(namespace).key
            if body.prefix:
                return [*self._database.page(key, 0, MAX_PREFIX_FETCH, body.prefix)]
            return [self._database.find(key, row_id) for row_id in body.ids or ()]

    def update(self, body: bodies.UpdateVector, *, namespace: str = "") -> int:
        """Change one row; returns how many were changed, 0 or 1."""
        vector, sparse = bodies.vectors_of(body, self.spec)
        if vector is None and sparse is None and body.metadata is None and body.data is None:
            expected = "at least one of vector, sparseVector, metadata and data"
            raise invalid("update", "nothing to change", expected)
        if body.data is not None:
            texts = [bodies.read_text(body.data)]
            if vector is None:
                vector = self._models.embed_dense(texts, self.spec.dimension)[0]
            if sparse is None:
                sparse = self._models.embed_sparse(texts, question=False)[0]
        bodies.metadata_text(body.metadata)
        with self._lock:
            row = self._database.find(self._namespace(namespace).key, body.id)
            if row is None:
                return 0
            metadata = row.metadata
            if body.metadata is not None:
                given: Any = body.metadata
                if body.metadata_update_mode == "PATCH":
                    given = bodies.merge(json.loads(metadata or "null"), given)
                metadata = bodies.metadata_text(given)
            changed = row._replace(
                vector=row.vector if vector is None else vector,
                metadata=metadata,
                data=row.data if body.data is None else body.data,
                sparse=row.sparse if sparse is None else sparse,
            )
            self._put(namespace, [changed])
            return 1

    def delete(
        self, body: bodies.DeleteVectors, *, namespace: str = "", budget: FilterBudget | None = None
    ) -> int:
        """Delete rows; returns how many there were. When a filter exceeds its budget, nothing is deleted."""
        given = [name for name in ("ids", "prefix", "filter") if getattr(body, name) is not None]
        if len(given) != 1:
            message = "Only and only one of the ids, prefix, or filter must be provided."
            raise ApiError(400, message, verbatim=True)
        chosen = bodies.read_filter(body.filter)
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
            what = f"text for the index {self.spec.name}"
            raise invalid(what, "no embedding model", "an index with one", status=422)
        return self._models

    def _with_vectors(self, queries: Sequence[IndexQuery]) -> list[IndexQuery]:
        """The queries with vectors in place of text: on a hybrid index those of the query's mode."""
        if any(isinstance(query.question, str) for query in queries):
            return with_vectors(queries, self.spec, self.need_models())
        return [*queries]

    def _ranked(self, stored: _Namespace, query: IndexQuery, budget: FilterBudget | None) -> Ranking:
        """The ``query.top_k`` best rows or, where two rankings are fused, all that they name."""
        rows, similarity = stored.rows, self.spec.similarity
        if not len(rows):
            return []
        passing = None if query.filter is None else rows.passing(query.filter, budget)
        top_k = max(query.top_k, DEPTH) if query.has_both else query.top_k
        rankings: list[Ranking] = []
        if isinstance(query.question, np.ndarray) and similarity is not None:
            best = stored.search(rows, query.question.astype(np.float64), top_k, similarity, passing)
            rankings.append([(rows.ids[position], score) for position, score in best])
        if query.sparse is not None:
            if stored.inverted is None:
                stored.inverted = InvertedRows(self._database.sparse_rows(stored.key))
            chosen = None if passing is None else rows.sequence[passing]
            rankings.append(stored.inverted.nearest(query.sparse, top_k, idf=query.idf, passing=chosen))
        if len(rankings) == 1:
            return rankings[0]
        return fuse(rankings, query.fusion, rank_start=self.spec.rank_start, inserted=rows.inserted)

    def _namespace(self, name: str) -> _Namespace:
        """The namespace of this name; where there is none, one without rows, whose key no namespace has."""
        return self._namespaces.get(name) or self._empty_namespace(0)

    def _existing(self, name: str) -> _Namespace:
        if name == "" or name not in self._namespaces:
            raise ApiError(404, f"Namespace {name} for the index {self.spec.name} does not exist")
        return self._namespaces[name]

    def _empty_namespace(self, key: int) -> _Namespace:
        rows = NamespaceRows(self.spec.dimension, partial(self._database.metadata, key))
        return _Namespace(key, rows, self._new_search())

    def _put(self, namespace: str, rows: Sequence[IndexRow]) -> None:
        with self._lock:
            stored = self._namespaces.get(namespace)
            with self._database.transaction():
                key = stored.key if stored else self._database.add_namespace(namespace)
                sequences = self._database.put(key, rows)
            if stored is None:
                stored = self._namespaces[namespace] = self._empty_namespace(key)
            vectors = np.stack([row.vector for row in rows])
            stored.rows.put([row.id for row in rows], sequences, vectors)
            for row, sequence in zip(rows, sequences, strict=True):
                if stored.inverted is not None and row.sparse is not None:
                    stored.inverted.put(sequence, row.id, row.sparse)

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
        if query_id not in self._open_queries():
            raise invalid("uuid", "none that is open", "a resumable query not ended or expired", status=404)
        return self._resumable[query_id]

    def _open_queries(self) -> dict[str, _ResumableQuery]:
        """The resumable queries that have not expired."""
        now = self._clock()
        for query_id in [key for key, query in self._resumable.items() if now - query.used > query.max_idle]:
            del self._resumable[query_id]
        return self._resumable


class IndexRegistry:
    """The indexes of a folder, all open, for one process at a time; the folder is made where it is missing.

    `seed` is for the random choices of the indexes; the other options are those of `VectorIndex`.
    LocalServiceError when a file cannot be used, or another process has it open; InputError when a model, or
    usearch for approximate search, is not installed.
    """

    def __init__(
        self,
        folder: Path,
        *,
        seed: int | None = None,
        approximate_above: int | None = None,
        expansion: int = EXPANSION,
    ) -> None:
        if approximate_above is not None:
            check_approximate(approximate_above)
        self._folder = folder
        self._index = partial(
            VectorIndex, seed=seed, approximate_above=approximate_above, expansion=expansion
        )
        self._lock = threading.Lock()
        self._indexes: dict[str, VectorIndex] = {}
        make_folder(folder)
        self._threads = ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="vectors")
        with ExitStack() as opened:
            opened.callback(self.close)
            for path in sorted(folder.glob("*.sqlite")):
                self._open(path)
            opened.pop_all()

    def create(self, spec: IndexSpec) -> VectorIndex:
        """The index of this spec, made when it is not there."""
        with self._lock:
            index = self._indexes.get(spec.name)
            if index is None:
                load_models(spec)
                path = self._folder / f"{spec.name}.sqlite"
                IndexDatabase.make(path, spec)
                return self._open(path)
            if index.spec != spec:
                raise InputError(
                    f"making the index {spec.name!r}",
                    got=f"{spec} while there is {index.spec}",
                    expected="the same, or an unused name",
                    next_step="Use another name, or another data folder.",
                )
            return index

    def get(self, name: str) -> VectorIndex:
        """The index of this name; ApiError 404 when there is none."""
        with self._lock:
            index = self._indexes.get(name)
            names = ", ".join(sorted(self._indexes)) or "none yet: PUT one"
        if index is None:
            raise invalid("index", repr(name[:64]), f"one of {names}", status=404)
        return index

    def specs(self) -> list[IndexSpec]:
        """What the indexes are, by name."""
        with self._lock:
            return [self._indexes[name].spec for name in sorted(self._indexes)]

    def problem(self, name: str, error: Exception) -> str:
        """Return what failed: the disk, the file of an index or a value in it; else it is unexplained."""
        with self._lock:
            index = self._indexes.get(name)
        if index is None:
            return INTERNAL_ERROR
        file = f"vectors/{name}.sqlite"
        if may_be_a_damaged_value(error):
            damage = index.damaged_value()
            if damage is not None:
                return damage_problem(damage, file)
        if isinstance(error, sqlite3.Error):
            return storage_problem(error, file, self._folder / f"{name}.sqlite")
        return INTERNAL_ERROR

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function off the event loop, in one of the threads of these indexes."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, partial(work, *args, **kwargs))

    def close(self) -> None:
        """Close all indexes, once what runs has ended."""
        self._threads.shutdown(cancel_futures=True)
        with self._lock:
            for index in self._indexes.values():
                index.close()
            self._indexes.clear()

    def _open(self, path: Path) -> VectorIndex:
        with ExitStack() as opened:
            index = self._index(opened.enter_context(closing(IndexDatabase(path))))
            opened.pop_all()
        self._indexes[index.spec.name] = index
        return index
