"""Summarize some rows of an index, and merge the summaries: workers of Dask summarize their partitions.

Audits need little of each row: hashes of the vector, text and metadata, and the length. For example, a row of
384 numbers and a paragraph of text takes 2 kB, and the summary about 70 bytes. Comparisons also keep a sketch
of the direction, which takes 64 bytes. Vectors and text are kept only of rows that are drawn at random.

    part ── summary ─┐
    part ── summary ─┼── merged, in the order of the rows
    part ── summary ─┘
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from toolkit.tables.json_rows import json_value
from toolkit.vectors.rounding import SKETCH, sketches
from toolkit.vectors.row_draws import row_draws
from toolkit.vectors.similar_texts import TextSample
from toolkit.vectors.vector_batches import (
    BatchReader,
    Hashes,
    Matrix,
    Positions,
    VectorBatch,
)

BATCH: Final = 8_192
"""Rows that are read at once."""

IDS: Final = 10_000  # ids in a finding at most
_KINDS: Final = {
    bool: "boolean",
    int: "number",
    float: "number",
    str: "text",
    list: "list",
    dict: "object",
}
_MOST_FIELDS: Final = 2_000


Extremes: TypeAlias = dict[tuple[str, int], tuple[Matrix, Matrix]]
"""The smallest and largest number of each dimension, by namespace and number of dimensions."""


@dataclass
class FieldCounts:
    """Counts of a field of metadata by the type of the values, with the first ids of each type."""

    counts: Counter[str] = field(default_factory=Counter)
    ids: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def add(self, kind: str, vector_id: str) -> None:
        """Count a value of a row."""
        self.counts[kind] += 1
        if len(self.ids[kind]) < IDS:
            self.ids[kind].append(vector_id)

    def merge(self, later: FieldCounts) -> None:
        """Add the counts of later rows."""
        self.counts.update(later.counts)
        for kind, ids in later.ids.items():
            known = self.ids[kind]
            known += ids[: IDS - len(known)]


class Fields:
    """Counts of the fields of metadata, by namespace and name."""

    def __init__(self) -> None:
        self.counts: dict[str, dict[str, FieldCounts]] = {}

    def of(self, namespace: str, name: str) -> FieldCounts | None:
        """Return the counts of a field to add to; None if the namespace has too many fields."""
        known = self.counts.setdefault(namespace, {})
        if name not in known and len(known) >= _MOST_FIELDS:
            return None

        return known.setdefault(name, FieldCounts())

    def add(self, batch: VectorBatch, values: list[Any]) -> None:
        """Count the fields of a batch."""
        for namespace, key, value in zip(
            batch.namespaces, batch.ids, values, strict=True
        ):
            if not isinstance(value, dict):
                continue
            self.counts.setdefault(namespace, {})
            for name, item in value.items():
                if item is None:
                    continue
                counts = self.of(namespace, name)
                if counts is not None:
                    counts.add(_KINDS[type(item)], key)

    def merge(self, later: Fields) -> None:
        """Add the fields of later rows."""
        for namespace, fields in later.counts.items():
            self.counts.setdefault(namespace, {})
            for name, further in fields.items():
                counts = self.of(namespace, name)
                if counts is not None:
                    counts.merge(further)


@dataclass(eq=False)
class RowSummary:
    """The summary of rows that follow each other.

    Attributes
    ----------
    rows : list of DataFrame
        As in `IndexRows`, for each batch.
    sketches : list of arrays
    sampled : list
        The numbers of the drawn rows among all rows, and their vectors.
    """

    rows: list[pd.DataFrame] = field(default_factory=list)
    sketches: list[Matrix] = field(default_factory=list)
    sampled: list[tuple[Positions, Matrix]] = field(default_factory=list)
    texts: TextSample = field(default_factory=TextSample)
    fields: Fields = field(default_factory=Fields)
    extremes: Extremes = field(default_factory=dict)


@dataclass(frozen=True)
class Summarizing:
    """The function that summarizes a part. The limit and the seed decide which rows are drawn."""

    reader: BatchReader
    draw_limit: np.uint64
    seed: int
    with_sketches: bool = True

    def __call__(self, table: pa.Table, start: int) -> RowSummary:
        """Return the summary of rows that begin with the row `start`."""
        summary = RowSummary(texts=TextSample(self.seed))
        for record_batch in table.to_batches(max_chunksize=BATCH):
            batch = self.reader.read(record_batch, start)
            self._add(batch, start, summary)
            start += record_batch.num_rows

        return summary

    def _add(self, batch: VectorBatch, start: int, summary: RowSummary) -> None:
        decoded = _decoded(batch.metadata)
        part = _per_row(batch, decoded)
        usable = part["usable"].to_numpy()
        if self.with_sketches:
            summary.sketches.append(_sketches_of(batch))

        for positions, matrix in batch.dense:
            draws = row_draws(start + positions, self.seed)
            chosen = (draws < self.draw_limit) & usable[positions]
            summary.sampled.append((start + positions[chosen], matrix[chosen]))
            summary.texts.add(batch.namespaces, batch.data, positions[chosen], start)

        summary.fields.add(batch, decoded.values)
        summary.rows.append(part)
        merge_extremes(summary.extremes, _extremes(batch))


@dataclass(frozen=True)
class Sketching:
    """The function that returns the hash and the sketch of each vector whose hash is one of `chosen`."""

    reader: BatchReader
    chosen: Hashes

    def __call__(self, table: pa.Table, start: int) -> tuple[Hashes, Matrix]:
        """Return hashes and sketches of chosen vectors of a part, which begins with the row `start`."""
        hashes = [np.zeros(0, dtype=np.uint64)]
        found = [np.zeros((0, SKETCH), dtype=np.float32)]
        for record_batch in table.to_batches(max_chunksize=BATCH):
            for _, matrix in self.reader.read(record_batch, start).dense:
                of_rows = _hashes(matrix)
                chosen = np.isin(of_rows, self.chosen)
                hashes.append(of_rows[chosen])
                found.append(sketches(matrix[chosen]))
            start += record_batch.num_rows

        return np.concatenate(hashes), np.concatenate(found)


def _sketches_of(batch: VectorBatch) -> Matrix:
    """Return the sketch of each row, NaN without a dense vector."""
    sketch = np.full((len(batch.ids), SKETCH), np.nan, dtype=np.float32)
    for positions, matrix in batch.dense:
        sketch[positions] = sketches(matrix)

    return sketch


def merge_extremes(extremes: Extremes, further: Extremes) -> None:
    """Add the smallest and largest numbers of further rows."""
    for key, (low, high) in further.items():
        known_low, known_high = extremes.get(key, (low, high))
        extremes[key] = np.minimum(low, known_low), np.maximum(high, known_high)


def _extremes(batch: VectorBatch) -> Extremes:
    """Return the smallest and largest numbers of finite vectors."""
    names = np.array(batch.namespaces, dtype=object)
    extremes: Extremes = {}
    for positions, matrix in batch.dense:
        is_finite = np.isfinite(matrix).all(axis=1)
        for name in pd.unique(names[positions]):
            inside = matrix[is_finite & (names[positions] == name)]
            if len(inside):
                key = str(name), matrix.shape[1]
                extremes[key] = inside.min(axis=0), inside.max(axis=0)

    return extremes


def _per_row(batch: VectorBatch, metadata: _Decoded) -> pd.DataFrame:
    """Return the summary of each row; see `IndexRows`."""
    size = len(batch.ids)
    dimension, norm = np.zeros(size, dtype=np.int32), np.zeros(size)
    finite, vector = np.zeros(size, dtype=bool), np.zeros(size, dtype=np.uint64)
    padding = np.zeros(size, dtype=np.int32)

    for positions, matrix in batch.dense:
        dimension[positions] = matrix.shape[1]
        ok = np.isfinite(matrix).all(axis=1)
        finite[positions] = ok
        squares = np.einsum("ij,ij->i", matrix, matrix, dtype=np.float64)
        norm[positions] = np.sqrt(np.where(ok, squares, 0))
        vector[positions] = _hashes(matrix)
        padding[positions] = _zeros_at_end(matrix)

    return pd.DataFrame({
        "namespace": batch.namespaces,
        "id": batch.ids,
        "dimension": dimension,
        "norm": norm,
        "finite": finite,
        "vector": vector,
        "padding": padding,
        "sparse": batch.sparse,
        "text": _text_hashes(batch.data),
        "metadata": _text_hashes(metadata.spellings),
        "unreadable": metadata.unreadable,
        "usable": finite & (norm > 0),
    })  # fmt: skip


def _zeros_at_end(matrix: Matrix) -> Positions:
    """Return how many zeros end each row; 0 for a row of zeros only."""
    is_number = matrix[:, ::-1] != 0
    # the first number other than 0 from the end; `argmax` gives 0 if there is none
    zeros: Positions = is_number.argmax(axis=1)
    return zeros


def _text_hashes(texts: list[str]) -> Hashes:
    hashes: Hashes = pd.util.hash_array(np.array(texts, dtype=object), categorize=False)
    hashes[[not text for text in texts]] = 0
    return hashes


def _hashes(matrix: Matrix) -> Hashes:
    """Return a hash of 64 bits per row, which is equal for equal rows."""
    # -0.0 becomes 0.0
    bits = (
        np.ascontiguousarray(matrix + np.float32(0)).view(np.uint32).astype(np.uint64)
    )
    factors = np.random.default_rng(0).integers(
        0, 2**64, matrix.shape[1], dtype=np.uint64
    ) | np.uint64(1)
    sums: Hashes = (bits * factors).sum(axis=1, dtype=np.uint64)

    return sums | np.uint64(1)  # 0 means no vector


class _Decoded(NamedTuple):
    """The metadata of the rows of a batch."""

    values: list[Any]
    """Decoded values; None if there is no metadata, or if it is not JSON."""
    spellings: list[str]
    """A normal form of each, with sorted names; 1 and 1.0 stay different. If it is not JSON, the original."""
    unreadable: npt.NDArray[np.bool_]
    """Whether the metadata of each row is not JSON."""


def _decoded(metadata: list[str | None]) -> _Decoded:
    """Decode the metadata of rows."""
    values: list[Any] = [None] * len(metadata)
    spellings = [text or "" for text in metadata]
    unreadable = np.zeros(len(metadata), dtype=bool)
    for row, text in enumerate(metadata):
        if not text:
            continue
        try:
            value = msgspec.json.decode(text)
            spellings[row] = msgspec.json.encode(value, order="deterministic").decode()
            values[row] = value
        except (msgspec.DecodeError, ValueError, OverflowError, RecursionError):
            unreadable[row] = not _is_json(text)

    return _Decoded(values, spellings, unreadable)


def _is_json(text: str) -> bool:
    """Return whether `explode_metadata` and filters can read metadata that the fast decoder refuses."""
    try:
        json_value(text)
    except (ValueError, RecursionError):
        return False
    return True


def metadata_fields(text: str | None) -> set[str] | None:
    """Return the names of the fields that have a value; None without metadata, or if it is no object."""
    if not text:
        return None

    (value,), _, _ = _decoded([text])
    if not isinstance(value, dict):
        return set()

    return {name for name, item in value.items() if item is not None}
