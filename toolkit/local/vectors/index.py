"""One index: its namespaces in memory for searching, beside its file, which is written first."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from toolkit.errors import LocalServiceError
from toolkit.filters.metadata import MetadataFilter
from toolkit.local.answers import Refusal
from toolkit.local.vectors.bodies import (
    Fetch,
    Query,
    Range,
    Selection,
    Update,
    read_rows,
    read_texts,
)
from toolkit.local.vectors.checks import metadata_text
from toolkit.local.vectors.database import IndexDatabase, NewRow, StoredRow
from toolkit.local.vectors.models import Model, load_model
from toolkit.local.vectors.rows import NamespaceRows
from toolkit.local.vectors.search import nearest
from toolkit.local.vectors.specs import IndexSpec

MAX_PREFIX_FETCH: Final = 1000
"""Most vectors that a fetch by prefix gives."""


class Hit(NamedTuple):
    """One result of a query."""

    row: StoredRow
    score: float


class _Namespace(NamedTuple):
    key: int
    rows: NamespaceRows


class Index:
    """One index, open. Its methods may be called from several threads; each holds the index's lock.

    Parameters
    ----------
    database : IndexDatabase
        Its file. The index closes it.
    seed : int, optional
        Seed of `random`.

    Notes
    -----
    Refusals are `Refusal`, as over HTTP.
    """

    def __init__(self, database: IndexDatabase, *, seed: int | None = None) -> None:
        self._database = database
        self._lock = threading.RLock()
        self._random = random.Random(seed)  # noqa: S311 - which vector is shown first is no secret
        self._model: Model | None = None if self.spec.model is None else load_model(self.spec.model)
        self._namespaces: dict[str, _Namespace] = {}
        for name, key in database.namespaces().items():
            rows = NamespaceRows(self.spec.dimension)
            for row in database.rows(key):
                rows.put(row.id, row.sequence, row.vector, _parsed(row.metadata))
            self._namespaces[name] = _Namespace(key, rows)

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
            Each with ``id``, ``vector`` (a sequence or numpy array of numbers) and, where wanted,
            ``metadata`` (a dict) and ``data`` (text), as in the service's requests. A row with a known id
            replaces that row and keeps its place in `range`.
        namespace : str
            Made when it is not there.

        Raises
        ------
        Refusal
            With the place of what is wrong.
        """
        self._put(namespace, read_rows(list(rows), self.spec.dimension))

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
        Refusal
            422 when the index has no model.
        """
        self.need_model()
        texts = read_texts(list(rows))
        vectors = self._embed([text for _, text, _ in texts])
        new = [
            NewRow(row_id, vector, metadata, text)
            for (row_id, text, metadata), vector in zip(texts, vectors, strict=True)
        ]
        self._put(namespace, new)

    def query(self, queries: Sequence[Query], *, namespace: str = "") -> list[list[Hit]]:
        """The results of each query, best first. A namespace that is not there has none."""
        texts = [query.question for query in queries if isinstance(query.question, str)]
        embedded = iter(self._embed(texts) if texts else ())
        with self._lock:
            found = self._namespaces.get(namespace)
            if found is None:
                return [[] for _ in queries]
            return [
                self._answer(
                    found, query, next(embedded) if isinstance(query.question, str) else query.question
                )
                for query in queries
            ]

    def range(self, wanted: Range, *, namespace: str = "") -> tuple[str, list[StoredRow]]:
        """The next cursor ("" at the end) and one page, in the order in which the ids were first written."""
        with self._lock:
            found = self._namespaces.get(namespace)
            if found is None:
                return "", []
            # one more than asked for: the first of the next page, whose number is the cursor
            page = self._database.page(found.key, wanted.start, wanted.limit + 1, wanted.prefix)
        rest = page[wanted.limit :]
        return (str(rest[0].sequence) if rest else ""), page[: wanted.limit]

    def fetch(self, wanted: Fetch, *, namespace: str = "") -> list[StoredRow | None]:
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

        New text on an index with a model is embedded, unless a vector comes with it.
        """
        vector = wanted.vector
        if vector is None and wanted.data is not None and self._model is not None:
            vector = self._embed([wanted.data])[0]
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
            self._put(namespace, [NewRow(row.id, row.vector if vector is None else vector, metadata, data)])
            return 1

    def delete(self, wanted: Selection, *, namespace: str = "") -> int:
        """Take rows out; gives how many there were."""
        with self._lock:
            found = self._namespaces.get(namespace)
            if found is None:
                return 0
            ids = _selected(found.rows, wanted)
            with self._database.changing():
                self._database.remove(found.key, ids)
            for row_id in ids:
                found.rows.remove(row_id)
            return len(ids)

    def reset(self, *, namespace: str | None = "") -> None:
        """Take all rows out of a namespace; None: out of every namespace. The namespaces stay."""
        with self._lock:
            names = list(self._namespaces) if namespace is None else [namespace]
            chosen = {name: self._namespaces[name].key for name in names if name in self._namespaces}
            with self._database.changing():
                for key in chosen.values():
                    self._database.clear(key)
            for name, key in chosen.items():
                self._namespaces[name] = _Namespace(key, NamespaceRows(self.spec.dimension))

    def namespaces(self) -> dict[str, int]:
        """The namespaces and how many rows each holds. The default one, "", is always there."""
        with self._lock:
            return {name: len(found.rows) for name, found in self._namespaces.items()}

    def delete_namespace(self, name: str) -> None:
        """Take a namespace out, with its rows; the default one cannot go."""
        with self._lock:
            found = self._existing(name)
            with self._database.changing():
                self._database.drop_namespace(found.key)
            del self._namespaces[name]

    def rename_namespace(self, name: str, new_name: str) -> None:
        """Give a namespace a name that no other has."""
        with self._lock:
            found = self._existing(name)
            if new_name in self._namespaces:
                raise Refusal(400, f"Namespace {new_name} for the index {self.spec.name} already exists")
            with self._database.changing():
                self._database.rename_namespace(found.key, new_name)
            self._namespaces[new_name] = self._namespaces.pop(name)

    def random(self, *, namespace: str = "") -> StoredRow | None:
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

    def need_model(self) -> Model:
        """The embedding model; a refusal with 422 when the index has none."""
        if self._model is None:
            raise Refusal(
                422,
                f"text for the index {self.spec.name}; got no embedding model; expected an index with one",
            )
        return self._model

    def _existing(self, name: str) -> _Namespace:
        if name == "" or name not in self._namespaces:
            raise Refusal(404, f"Namespace {name} for the index {self.spec.name} does not exist")
        return self._namespaces[name]

    def _embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        vectors = self.need_model().embed(texts, self.spec.dimension)
        if vectors.shape != (len(texts), self.spec.dimension) or not np.isfinite(vectors).all():
            raise LocalServiceError(
                f"embedding {len(texts)} texts with the model {self.spec.model!r}",
                got=f"an array of shape {vectors.shape}",
                expected=f"finite numbers of shape {(len(texts), self.spec.dimension)}",
                next_step="This is a fault of the model; use another.",
            )
        return vectors

    def _put(self, namespace: str, rows: Sequence[NewRow]) -> None:
        with self._lock:
            found = self._namespaces.get(namespace)
            with self._database.changing():
                key = found.key if found else self._database.add_namespace(namespace)
                sequences = self._database.put(key, rows)
            if found is None:
                found = self._namespaces[namespace] = _Namespace(key, NamespaceRows(self.spec.dimension))
            for row, sequence in zip(rows, sequences, strict=True):
                found.rows.put(row.id, sequence, row.vector, _parsed(row.metadata))

    def _answer(self, found: _Namespace, query: Query, vector: NDArray[Any]) -> list[Hit]:
        if not len(found.rows):
            return []
        passing = None if query.filter is None else _passing(found.rows, query.filter)
        best = nearest(found.rows, vector.astype(np.float64), query.top_k, self.spec.similarity, passing)
        return [Hit(self._row(found, found.rows.ids[slot]), score) for slot, score in best]

    def _row(self, found: _Namespace, row_id: str) -> StoredRow:
        row = self._database.find(found.key, row_id)
        if row is None:
            raise LocalServiceError(
                f"reading {row_id[:80]!r} from the index {self.spec.name}",
                got="no such row in its file",
                expected="the row that is held in memory",
                next_step="Restart the service: something else changed the file.",
            )
        return row


def merge(target: Any, patch: Any) -> Any:
    """A JSON merge patch (RFC 7396): null takes a field out, objects merge, everything else replaces.

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


def _passing(rows: NamespaceRows, chosen: MetadataFilter) -> NDArray[np.intp]:
    passes = np.fromiter(map(chosen.matches, rows.metadata), dtype=np.bool_, count=len(rows))
    return np.flatnonzero(passes)


def _selected(rows: NamespaceRows, wanted: Selection) -> list[str]:
    if wanted.ids is not None:
        return [row_id for row_id in dict.fromkeys(wanted.ids) if row_id in rows]
    if wanted.prefix is not None:
        return [row_id for row_id in rows.ids if row_id.startswith(wanted.prefix)]
    chosen = wanted.filter
    return [rows.ids[slot] for slot in _passing(rows, chosen)] if chosen else []


def _parsed(metadata: str | None) -> Any:
    return None if metadata is None else json.loads(metadata)
