"""Read the attributes that two frames share as codes, so that a change between them can be explained.

Most attributes have one value per row: columns, and fields of JSON such as `header X-Region`. Labels of
failures and steps of runs have several. The scan needs one, so each row gets the one of its values that rose
most.

If the two frames are failed and successful runs, some columns differ by definition: the state, how the run
ended, when it ended. They would explain everything and tell nothing: see `SharedAttributes.outcomes`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from toolkit.failures.attribute_values import (
    JSON_FIELDS,
    LABEL,
    column_texts,
    json_fields,
    labels_of,
)
from toolkit.failures.condition_tables import AttributeCodes
from toolkit.failures.failure_attributes import rising_values
from toolkit.failures.run_attributes import STEP, has_steps, steps_and_outputs
from toolkit.failures.selection import NONE
from toolkit.secrets.redaction import Redactor
from toolkit.tables.schemas import FIRST_SEEN_AT, GONE_AFTER, GONE_BEFORE

_Floats = NDArray[np.float64]
_Encoded = tuple[NDArray[np.int64], pd.Series]
"""The code of each row (-1 if the value is missing), and the distinct values."""


@dataclass(frozen=True)
class ColumnTuning:
    """Constants that tell attributes from ids."""

    few: int = 20
    """Values of a column, none of which needs to repeat: so many are compared in any frame."""
    repeated: int = 4
    """Rows per value, on average, from which on a column is an attribute and no id."""


_TUNING: Final = ColumnTuning()
_OF_SYNCS: Final = frozenset((FIRST_SEEN_AT, GONE_AFTER, GONE_BEFORE))
"""Columns of a snapshot about its syncs, not about what failed."""

_READ_AS_FIELDS: Final = frozenset(
    ("labels", "headers", "response_headers", "body", "extra")
)
"""Columns of JSON that are compared by their values."""

_STATES: Final = ("state", "status")

_OUTCOMES: Final = frozenset((
    "state", "status", "error", "completed_at", "failed_at", "dlq_id", "workflow_run_id", "message_id",
    "response_status", "response_body", "response_headers", "response_body_base64",
    "failure_function_state", "retried", "next_delivery_time",
))  # fmt: skip
"""Columns that follow from how a run or a message ended."""

_OUTCOME_FIELDS: Final = ("response header ", "response body ")
_EXTRA: Final = "extra "


@dataclass(frozen=True)
class SharedAttributes:
    """Attributes of the rows of two frames, one after the other."""

    columns: dict[str, AttributeCodes]
    listed: dict[str, NDArray[np.object_]]
    """Attributes with several values per row, as tuples of texts."""
    rows_after: int
    """Rows of the first frame."""

    @property
    def names(self) -> list[str]:
        """Names of all attributes."""
        return [*self.columns, *self.listed]

    @property
    def are_outcomes(self) -> bool:
        """Whether the two frames have no state in common, as failed and successful runs."""
        return any(self._are_apart(name) for name in _STATES if name in self.columns)

    def chosen(self, names: Collection[str]) -> SharedAttributes:
        """Return some of the attributes."""
        columns = {
            name: column for name, column in self.columns.items() if name in names
        }
        listed = {name: values for name, values in self.listed.items() if name in names}
        return SharedAttributes(columns, listed, self.rows_after)

    def outcomes(self) -> list[str]:
        """Return the attributes that follow from how a run ended: in themselves, or missing on one side."""
        by_name = [
            name
            for name in self.names
            if name in _OUTCOMES or name.startswith(_OUTCOME_FIELDS)
        ]
        extra = [name for name in self.columns if name.startswith(_EXTRA)]
        return by_name + [name for name in extra if self._is_missing_on_one_side(name)]

    def single_valued(
        self, observed: _Floats, expected: _Floats
    ) -> dict[str, AttributeCodes]:
        """Return all attributes, those with several values by the one that rose most in each row."""
        columns: dict[str, AttributeCodes] = {}
        for name, values in self.listed.items():
            codes, texts = pd.factorize(rising_values(values, observed, expected))
            unstated = None
            if name == STEP:
                # a failed run always lacks the steps that follow the failure
                unstated = NONE

            columns[name] = AttributeCodes(
                codes.astype(np.int64), [str(text) for text in texts], unstated
            )

        # of conditions with the same rows, the first is named
        return columns | self.columns

    def meeting(self, condition: Mapping[str, str]) -> NDArray[np.bool_]:
        """Return which rows meet a condition, by any of their values."""
        masks = [self._having(name, value) for name, value in condition.items()]
        met: NDArray[np.bool_] = np.logical_and.reduce(masks)
        return met

    def _having(self, name: str, value: str) -> NDArray[np.bool_]:
        if name not in self.listed:
            column = self.columns[name]
            return np.asarray(column.codes == list(column.texts).index(value))
        if value == NONE:
            return np.array([not own for own in self.listed[name]], dtype=bool)

        return np.array([value in own for own in self.listed[name]], dtype=bool)

    def _sides(self, name: str) -> tuple[set[str], set[str]]:
        """Return the values of each of the two frames."""
        column = self.columns[name]
        after, before = np.split(column.codes, [self.rows_after])
        texts = np.asarray(column.texts, dtype=object)

        return set(texts[np.unique(after)]), set(texts[np.unique(before)])

    def _are_apart(self, name: str) -> bool:
        after, before = self._sides(name)
        return bool(after) and bool(before) and after.isdisjoint(before)

    def _is_missing_on_one_side(self, name: str) -> bool:
        after, before = self._sides(name)
        return (after == {NONE}) != (before == {NONE})


def shared_attributes(
    after: pa.Table,
    before: pa.Table,
    attributes: Sequence[str] | None,
    weight: str | None,
) -> SharedAttributes:
    """Return the named attributes of two tables; by default all whose values repeat.

    Times are no attributes by default: two spans of time have none in common.
    """
    tables = after, before
    in_both = [
        name
        for name in after.column_names
        if name in before.column_names and name != weight
    ]
    listed, fields = _within_columns([table.select(in_both) for table in tables])
    most = max(_TUNING.few, (after.num_rows + before.num_rows) // _TUNING.repeated)

    if attributes is not None:
        wanted = [name for name in attributes if name in in_both and name not in listed]
        columns = {name: _joined(*_encoded_in(tables, name)) for name in wanted}
        named = SharedAttributes(columns | fields, listed, after.num_rows)
        return named.chosen(attributes)

    left_out = {*_OF_SYNCS, *listed}
    if listed or fields:
        # the contents of these columns are attributes of their own
        left_out |= {*_READ_AS_FIELDS}
    kept = [name for name in in_both if name not in left_out]

    columns = _few_valued(tables, kept, most) | fields
    repeating = [
        name for name, column in columns.items() if 1 < len(column.texts) <= most
    ]
    # an attribute with the same value in all rows explains nothing
    varying = [name for name, values in listed.items() if len(set(values)) > 1]
    found = SharedAttributes(columns, listed, after.num_rows)

    return found.chosen([*repeating, *varying])


def _few_valued(
    tables: tuple[pa.Table, pa.Table], names: Iterable[str], most: int
) -> dict[str, AttributeCodes]:
    """Return the columns with at most `most` values in each table; times are left out.

    A column with mostly different values, for example an id, cannot explain a rise.
    """
    schema = tables[0].schema
    columns = {}
    for name in names:
        if not pa.types.is_temporal(schema.field(name).type):
            one, two = _encoded_in(tables, name)
            if max(len(one[1]), len(two[1])) <= most:
                columns[name] = _joined(one, two)

    return columns


def _encoded_in(tables: tuple[pa.Table, pa.Table], name: str) -> list[_Encoded]:
    """Return a column of both tables."""
    return [_encoded(table[name]) for table in tables]


def _within_columns(
    tables: Sequence[pa.Table],
) -> tuple[dict[str, NDArray[np.object_]], dict[str, AttributeCodes]]:
    """Read what columns of JSON contain: labels, steps, and fields of few values."""
    names = tables[0].column_names
    texts = [name for name in ("labels", LABEL, *JSON_FIELDS) if name in names]
    for table in tables:
        # columns with these names that do not contain strings were not written by a loader
        if not all(_is_text(table.schema.field(name).type) for name in texts):
            return {}, {}

    redactor = Redactor()
    listed: dict[str, NDArray[np.object_]] = {}
    columns: dict[str, AttributeCodes] = {}
    if "labels" in names:
        labels = [labels_of(table, redactor) for table in tables]
        listed[LABEL] = pd.concat(labels).to_numpy(dtype=object)

    for name, prefix in JSON_FIELDS.items():
        if name in names:
            fields = json_fields(_texts_in(tables, name), prefix, redactor)
            for field, values in dict(fields).items():
                columns[field] = category_column(values)

    if has_steps(names):
        listed[STEP], outputs = steps_and_outputs(tables)
        for output, values in outputs.items():
            columns[output] = category_column(values, unstated=NONE)

    return listed, columns


def _texts_in(tables: Sequence[pa.Table], name: str) -> pa.ChunkedArray:
    """Return a column of all tables, one after the other."""
    columns = [table[name].cast(pa.string()) for table in tables]
    chunks = [chunk for column in columns for chunk in column.chunks]
    return pa.chunked_array(chunks, pa.string())


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_null(kind)
    )


def category_column(
    values: pd.Categorical, unstated: str | None = None
) -> AttributeCodes:
    """Return categories as a column."""
    return AttributeCodes(
        values.codes.astype(np.int64),
        [str(text) for text in values.categories],
        unstated,
    )


def _encoded(column: pa.ChunkedArray) -> _Encoded:
    """Encode a column in Arrow: a million rows are then read as fast as they are counted."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    try:
        encoded = column.dictionary_encode().unify_dictionaries()
    except pa.ArrowNotImplementedError:  # lists and maps
        texts = column_texts(column.to_pandas())
        return texts.codes.astype(np.int64), pd.Series(texts.categories, dtype=object)

    if not encoded.num_chunks:
        return np.empty(0, np.int64), pd.Series(dtype=object)

    codes = [
        chunk.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        for chunk in encoded.chunks
    ]
    # whole numbers stay whole if some are missing: 500 and 500.0 would be two values
    distinct = encoded.chunk(0).dictionary.to_pandas(integer_object_nulls=True)
    return np.concatenate(codes).astype(np.int64), distinct.astype(object)


def _joined(one: _Encoded, two: _Encoded) -> AttributeCodes:
    """Join the rows of two frames. Values with one text are one value, also if their types differ."""
    missing = pd.Series([None], dtype=object)
    texts = column_texts(pd.concat([one[1], two[1], missing], ignore_index=True))
    # the last is that of a missing value, which has the code -1
    numbers = texts.codes.astype(np.int64)
    later = np.where(two[0] < 0, -1, two[0] + len(one[1]))
    used, distinct = pd.factorize(numbers[np.concatenate([one[0], later])])

    return AttributeCodes(
        used.astype(np.int64), [str(texts.categories[number]) for number in distinct]
    )
