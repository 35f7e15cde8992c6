"""Read the metadata fields that have few different values, to find what changed vectors have in common.

An id or a title has another value in each row, and cannot explain a change. A field with too many values is
dropped, so that a row takes two bytes per field, and not a dictionary. For example, of a million rows with
`lang` and `title`, `lang` is kept with 3 values, and `title` is dropped.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from toolkit.tables.column_values import clean
from toolkit.vectors.row_summaries import BATCH
from toolkit.vectors.vector_batches import BatchReader
from toolkit.vectors.vector_rows import VectorTables

MOST_VALUES: Final = 50
"""Different values of a field, at most."""

_MOST_FIELDS: Final = 256
_LONGEST: Final = 100  # characters of a value that are compared

Codes = npt.NDArray[np.int16]


@dataclass
class FewValued:
    """Fields of rows that follow each other: the number of the value per row, and -1 without a value."""

    rows: int = 0
    value_codes: dict[str, dict[str, int]] = field(default_factory=dict)
    codes: dict[str, list[Codes]] = field(default_factory=dict)
    dropped: set[str] = field(default_factory=set)

    def add(self, name: str, column: list[str | None]) -> None:
        """Add the values of a field in further rows."""
        if name not in self.dropped:
            numbers, values = pd.factorize(np.array(column, dtype=object))
            self._add_column(name, numbers, values.tolist())

    def merge(self, later: FewValued) -> None:
        """Add the rows of a later part."""
        for name in later.dropped:
            self._drop(name)
        for name, codes in later.codes.items():
            if name not in self.dropped:
                values = list(later.value_codes[name])
                self._add_column(name, np.concatenate(codes), values)

        self.end_rows(later.rows)

    def end_rows(self, rows: int) -> None:
        """Count the rows that were added. Fields without values in them are missing there."""
        self.rows += rows
        for codes in self.codes.values():
            missing = self.rows - sum(map(len, codes))
            if missing:
                codes.append(np.full(missing, -1, dtype=np.int16))

    def frame(self) -> pd.DataFrame:
        """Return a column per field, and ``namespace`` is the first of them."""
        columns = {}
        for name, values in self.value_codes.items():
            codes = np.concatenate(self.codes[name])
            names = pd.Index([*values], dtype="str")
            columns[name] = pd.Categorical.from_codes(codes, categories=names)

        return pd.DataFrame(columns, index=range(self.rows)).astype("str")

    @property
    def several_valued(self) -> list[str]:
        """Return the fields with more than one value."""
        several = []
        for name, codes in self.codes.items():
            used = np.unique(np.concatenate(codes))
            if (used >= 0).sum() > 1:
                several.append(name)

        return several

    def take(self, rows: npt.NDArray[np.intp]) -> FewValued:
        """Return some of the rows."""
        codes = {
            name: [np.concatenate(parts)[rows]] for name, parts in self.codes.items()
        }
        return FewValued(len(rows), dict(self.value_codes), codes, set(self.dropped))

    def _add_column(
        self, name: str, numbers: npt.NDArray[np.integer], values: list[str]
    ) -> None:
        """Add the values of a field, which are numbered in the part."""
        if name not in self.value_codes and len(self.value_codes) >= _MOST_FIELDS:
            return

        known = self.value_codes.setdefault(name, {})
        code_of = [known.setdefault(value, len(known)) for value in values]
        if len(known) > MOST_VALUES:
            self._drop(name)
            return

        if name not in self.codes:
            self.codes[name] = [np.full(self.rows, -1, dtype=np.int16)]
        # the last code stands for a missing value, which has the number -1
        codes = np.array([*code_of, -1], dtype=np.int16)
        self.codes[name].append(codes[numbers])

    def _drop(self, name: str) -> None:
        self.dropped.add(name)
        self.value_codes.pop(name, None)
        self.codes.pop(name, None)


@dataclass(frozen=True)
class _Reading:
    """The function that reads the fields of a part."""

    reader: BatchReader

    def __call__(self, table: pa.Table, start: int) -> FewValued:
        found = FewValued()
        for record_batch in table.to_batches(max_chunksize=BATCH):
            batch = self.reader.read(record_batch, start)
            rows = [
                {"namespace": namespace or "(default)"} | _fields(text)
                for namespace, text in zip(
                    batch.namespaces, batch.metadata, strict=True
                )
            ]
            names: dict[str, None] = {}
            for row in rows:
                names.update(dict.fromkeys(row))
            for name in names:
                found.add(name, [row.get(name) for row in rows])
            found.end_rows(len(rows))
            start += record_batch.num_rows

        return found


def few_valued_fields(tables: VectorTables) -> FewValued:
    """Return the fields of all rows; workers of Dask read their partitions."""
    merged = FewValued()
    for part in tables.map(_Reading(tables.reader)):
        merged.merge(part)
    return merged


def _fields(text: str | None) -> dict[str, str]:
    """Return the fields of a row that are no lists or objects, as text."""
    try:
        value = json.loads(text or "null")
    except (ValueError, RecursionError):
        return {}

    if not isinstance(value, dict):
        return {}

    return {
        clean(name): clean(str(item)[:_LONGEST])
        for name, item in value.items()
        if not isinstance(item, dict | list)
    }
