"""One index: its namespaces in memory for searching, beside its file, which is written first."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np

from toolkit.errors import LocalServiceError
from toolkit.local.api import ApiError
from toolkit.local.vectors.approximate import ApproximateSearch
from toolkit.local.vectors.bodies import (
    Fetch,
    Range,
    Selection,
    Update,
    read_rows,
    read_texts,
)
from toolkit.local.vectors.checks import metadata_text
from toolkit.local.vectors.filtering import FilterBudget
from toolkit.local.vectors.fusion import Ranking
from toolkit.local.vectors.index_database import IndexDatabase, IndexRow
from toolkit.local.vectors.inverted import InvertedRows
from toolkit.local.vectors.models import Models, load_models
from toolkit.local.vectors.patching import merge
from toolkit.local.vectors.queries import Include, Query
from toolkit.local.vectors.ranking import asks_both, ranked, with_vectors
from toolkit.local.vectors.resumable import ResumableQueries
from toolkit.local.vectors.rows import NamespaceRows
from toolkit.local.vectors.search import Search, nearest
from toolkit.local.vectors.specs import IndexSpec

MAX_PREFIX_FETCH: Final = 1000
"""Most vectors that a fetch by prefix gives."""

_NO_VECTOR: Final = np.empty(0, dtype=np.float32)


class ScoredRow(NamedTuple):
    """One result of a query."""

    row: IndexRow
    score: float


class _Namespace(NamedTuple):
    key: int
    rows: NamespaceRows
    search: Search


class VectorIndex:
    """One index, open. Its methods may be called from several threads; each holds the index's lock.

    Parameters
    ----------
    database : IndexDatabase
        Its file. The index closes it.
    seed : int, optional
        Seed of `random`.
    clock : callable
        Gives seconds that only grow, for resumable queries to expire by.
    approximate_above : int, optional
        Namespaces with more rows than this are searched approximately, see
        `toolkit.local.vectors.approximate`. Default: every search is exact.

    Notes
    -----
    Refusals are `ApiError`, as over HTTP.
    """

    def __init__(
        self,
        database: IndexDatabase,
        *,
        seed: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        approximate_above: int | None = None,
    ) -> None:
        self._database = database
        self._approximate_above = approximate_above
        self._lock = threading.RLock()
        self._random = random.Random(seed)  # noqa: S311 - which vector is shown first is no secret
        self._models = load_models(self.spec)
        self._inverted: dict[int, InvertedRows] = {}  # by the namespaces' keys, as they are first asked
        self._resumable = ResumableQueries(clock=clock)
        self._namespaces: dict[str, _Namespace] = {}
        for name, key in database.namespaces().items():
            opened = self._namespaces[name] = self._opened(key)
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
        """Write rows with their vectors; all of them, or none when one is refused.

        Parameters
        ----------
        rows : iterable of mapping
            Each with ``id``, the vectors that the index's kind has, and, where wanted, ``metadata`` (a dict)
            and ``data`` (text), as in the service's requests: ``vector`` (a sequence or numpy array of
            numbers), ``sparseVector`` (a dict of ``indices`` and ``values``). A row with a known id replaces
            that row and keeps its place in `range`.
        namespace : str
            Made when it is not there.

        Raises
        ------
        ApiError
            With the place of what is wrong.
        """
        self._put(namespace, read_rows(list(rows), self.spec))

    def upsert_data(self, rows: Iterable[Mapping[str, Any]], *, namespace: str = "") -> None:
        """Write rows with text, which the index's model embeds.

        Parameters
        ----------
        rows : iterable of mapping
            Each with ``id``, ``data`` (text) and, where wanted, ``metadata``.
        namespace : str
            Made when it is not there.

        Raises
        ------
        ApiError
            422 when the index has no model.
        """
        models = self.need_models()
        rows_of_text = read_texts(list(rows))
        texts = [text for _, text, _ in rows_of_text]
        dense = models.embed_dense(texts, self.spec.dimension)
        sparse = models.embed_sparse(texts, question=False)
        new = [
            IndexRow(row_id, _NO_VECTOR if vector is None else vector, metadata, text, other)
            for (row_id, text, metadata), vector, other in zip(rows_of_text, dense, sparse, strict=True)
        ]
        self._put(namespace, new)

    def query(
        self, queries: Sequence[Query], *, namespace: str = "", budget: FilterBudget | None = None
    ) -> list[list[ScoredRow]]:
        """The results of each query, best first. A namespace that is not there has none.

        Raises
        ------
        ApiError
            422 when the filters take longer than the budget.
        """
        asked = self._asked(queries)
        with self._lock:
            found = self._namespaces.get(namespace)
            if found is None:
                return [[] for _ in asked]
            return [
                [
                    ScoredRow(self._row(found, row_id), score)
                    for row_id, score in self._ranked(found, query, budget)[: query.top_k]
                ]
                for query in asked
            ]

    def begin_query(
        self, query: Query, *, max_idle: int, namespace: str = "", budget: FilterBudget | None = None
    ) -> tuple[str, list[ScoredRow]]:
        """Begin a resumable query: the id to go on with, and the first results.

        What it ranks is what is there now. Rows that go before they are handed out are left out; rows that
        change come with their new values and the score they had. Where two rankings are fused, it ends with
        what a query fuses: see `DEPTH`.

        Raises
        ------
        ApiError
            400 when too many are open; 422 when the filter takes longer than the budget.
        """
        (asked,) = self._asked([query])
        with self._lock:
            found = self._namespaces.get(namespace)
            ranking: Ranking = []
            if found is not None and len(found.rows):
                # two fused lists are whole as they are; one goes on to its last row
                whole = asked if asks_both(asked) else replace(asked, top_k=len(found.rows))
                ranking = self._ranked(found, whole, budget)
            key = found.key if found else 0
            opened = self._resumable.begin(key, ranking, query.include, max_idle=max_idle)
            return opened, self.next_hits(opened, query.top_k)[0]

    def next_hits(self, opened: str, count: int) -> tuple[list[ScoredRow], Include]:
        """At most so many further results of a resumable query, and what they are to come with.

        Raises
        ------
        ApiError
            404 when there is no such query, or not any more.
        """
        with self._lock:
            query = self._resumable.get(opened)
            hits: list[ScoredRow] = []
            for row_id, score in query.rest:
                row = self._database.find(query.namespace, row_id)
                if row is not None:
                    hits.append(ScoredRow(row, score))
                    if len(hits) == count:
                        break
            return hits, query.include

    def end_query(self, opened: str) -> None:
        """Forget a resumable query.

        Raises
        ------
        ApiError
            404 when there is no such query, or not any more.
        """
        with self._lock:
            self._resumable.end(opened)

    def range(self, wanted: Range, *, namespace: str = "") -> tuple[str, list[IndexRow]]:
        """The next cursor ("" at the end) and one page, in the order in which the ids were first written."""
        with self._lock:
            found = self._namespaces.get(namespace)
            if found is None:
                return "", []
            # one more than asked for: the first of the next page, whose number is the cursor
            page = self._database.page(found.key, wanted.start, wanted.limit + 1, wanted.prefix)
        rest = page[wanted.limit :]
        return (str(rest[0].sequence) if rest else ""), page[: wanted.limit]

    def fetch(self, wanted: Fetch, *, namespace: str = "") -> list[IndexRow | None]:
        """The rows asked for: by ids with None where there is none, or by prefix, at most 1000."""
        with self._lock:
            found = self._namespaces.get(namespace)
            if found is None:
                return [None for _ in wanted.ids or ()]
            if wanted.ids is None:
                return [*self._database.page(found.key, 0, MAX_PREFIX_FETCH, wanted.prefix)]
            return [self._database.find(found.key, row_id) for row_id in wanted.ids]

    def update(self, wanted: Update, *, namespace: str = "") -> int:
        """Change one row; gives how many were changed, 0 or 1.

        New text on an index with models is embedded, but for the vectors that come with it.
        """
        vector, sparse = wanted.vector, wanted.sparse
        if wanted.data is not None:
            if vector is None:
                vector = self._models.embed_dense([wanted.data], self.spec.dimension)[0]
            if sparse is None:
                sparse = self._models.embed_sparse([wanted.data], question=False)[0]
        with self._lock:
            found = self._namespaces.get(namespace)
            row = self._database.find(found.key, wanted.id) if found else None
            if row is None:
                return 0
            metadata = row.metadata
            if wanted.metadata is not None:
                patched = wanted.mode == "PATCH"
                merged = merge(_parsed(metadata), wanted.metadata) if patched else wanted.metadata
                metadata = metadata_text(merged, "metadata")
            data = row.data if wanted.data is None else wanted.data
            changed = IndexRow(
                row.id,
                row.vector if vector is None else vector,
                metadata,
                data,
                row.sparse if sparse is None else sparse,
            )
            self._put(namespace, [changed])
            return 1

    def delete(self, wanted: Selection, *, namespace: str = "", budget: FilterBudget | None = None) -> int:
        """Take rows out; gives how many there were.

        Raises
        ------
        ApiError
            422 when a filter takes longer than the budget; then nothing is deleted.
        """
        with self._lock:
            found = self._namespaces.get(namespace)
            if found is None:
                return 0
            ids = _selected(found.rows, wanted, budget)
            with self._database.transaction():
                self._database.remove(found.key, ids)
            inverted = self._inverted.get(found.key)
            for row_id in ids:
                found.rows.remove(row_id)
                if inverted is not None:
                    inverted.remove(row_id)
            return len(ids)

    def reset(self, *, namespace: str | None = "") -> None:
        """Take all rows out of a namespace; None: out of every namespace. The namespaces stay."""
        with self._lock:
            names = list(self._namespaces) if namespace is None else [namespace]
            chosen = {name: self._namespaces[name].key for name in names if name in self._namespaces}
            with self._database.transaction():
                for key in chosen.values():
                    self._database.clear(key)
            for name, key in chosen.items():
                self._namespaces[name] = self._opened(key)
                self._inverted.pop(key, None)

    def namespaces(self) -> dict[str, int]:
        """The namespaces and how many rows each holds. The default one, "", is always there."""
        with self._lock:
            return {name: len(found.rows) for name, found in self._namespaces.items()}

    def delete_namespace(self, name: str) -> None:
        """Take a namespace out, with its rows; the default one cannot go."""
        with self._lock:
            found = self._existing(name)
            with self._database.transaction():
                self._database.drop_namespace(found.key)
            del self._namespaces[name]
            self._inverted.pop(found.key, None)

    def rename_namespace(self, name: str, new_name: str, *, delete_existing: bool = False) -> None:
        """Give a namespace another name; with `delete_existing`, whatever has that name is removed."""
        with self._lock:
            found, taken = self._existing(name), self._namespaces.get(new_name)
            if taken is not None and (taken is found or not delete_existing):
                raise ApiError(400, f"Namespace {new_name} for the index {self.spec.name} already exists")
            with self._database.transaction():
                if taken is not None:
                    self._database.drop_namespace(taken.key)
                self._database.rename_namespace(found.key, new_name)
            if taken is not None:
                self._inverted.pop(taken.key, None)
            self._namespaces[new_name] = self._namespaces.pop(name)

    def random(self, *, namespace: str = "") -> IndexRow | None:
        """Any row of a namespace, None when it is empty."""
        with self._lock:
            found = self._namespaces.get(namespace)
            if found is None or not len(found.rows):
                return None
            return self._row(found, self._random.choice(found.rows.ids))

    def last_sequence(self) -> int:
        """The largest sequence number that a row of this index ever had."""
        with self._lock:
            return self._database.last_sequence()

    def size(self) -> int:
        """Bytes of the index's file."""
        with self._lock:
            return self._database.size()

    def need_models(self) -> Models:
        """The models for text; a refusal with 422 when the index has none."""
        if self.spec.model is None:
            raise ApiError(
                422,
                f"text for the index {self.spec.name}; got no embedding model; expected an index with one",
            )
        return self._models

    def _asked(self, queries: Sequence[Query]) -> list[Query]:
        if any(isinstance(query.question, str) for query in queries):
            self.need_models()
        return with_vectors(queries, self.spec, self._models)

    def _existing(self, name: str) -> _Namespace:
        if name == "" or name not in self._namespaces:
            raise ApiError(404, f"Namespace {name} for the index {self.spec.name} does not exist")
        return self._namespaces[name]

    def _put(self, namespace: str, rows: Sequence[IndexRow]) -> None:
        with self._lock:
            found = self._namespaces.get(namespace)
            with self._database.transaction():
                key = found.key if found else self._database.add_namespace(namespace)
                sequences = self._database.put(key, rows)
            if found is None:
                found = self._namespaces[namespace] = self._opened(key)
            vectors = np.stack([row.vector for row in rows])
            found.rows.put([row.id for row in rows], sequences, vectors, [row.metadata for row in rows])
            inverted = self._inverted.get(found.key)
            if inverted is not None:
                for row, sequence in zip(rows, sequences, strict=True):
                    if row.sparse is not None:
                        inverted.put(sequence, row.id, row.sparse)

    def _opened(self, key: int) -> _Namespace:
        rows = NamespaceRows(self.spec.dimension, partial(self._database.metadata, key))
        above = self._approximate_above
        return _Namespace(key, rows, nearest if above is None else ApproximateSearch(above).nearest)

    def _ranked(self, found: _Namespace, query: Query, budget: FilterBudget | None) -> Ranking:
        inverted = partial(self._inverted_rows, found.key)
        return ranked(query, self.spec, found.rows, inverted, search=found.search, budget=budget)

    def _inverted_rows(self, key: int) -> InvertedRows:
        if key not in self._inverted:
            self._inverted[key] = InvertedRows(self._database.sparse_rows(key))
        return self._inverted[key]

    def _row(self, found: _Namespace, row_id: str) -> IndexRow:
        row = self._database.find(found.key, row_id)
        if row is None:
            raise LocalServiceError(
                f"reading {row_id[:80]!r} from the index {self.spec.name}",
                got="no such row in its file",
                expected="the row that is held in memory",
                next_step="Restart the service: something else changed the file.",
            )
        return row


def _selected(rows: NamespaceRows, wanted: Selection, budget: FilterBudget | None) -> list[str]:
    if wanted.ids is not None:
        return [row_id for row_id in dict.fromkeys(wanted.ids) if row_id in rows]
    if wanted.prefix is not None:
        return [row_id for row_id in rows.ids if row_id.startswith(wanted.prefix)]
    chosen = wanted.filter
    return [rows.ids[position] for position in rows.passing(chosen, budget)] if chosen else []


def _parsed(metadata: str | None) -> Any:
    return None if metadata is None else json.loads(metadata)
