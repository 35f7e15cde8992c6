"""Metadata from columns, and values of pandas as JSON."""

from __future__ import annotations

import json
import uuid
from pathlib import PurePosixPath

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import toolkit as tk
from toolkit.errors import InputError
from toolkit.tables.json_values import json_form

SCALARS = st.none() | st.booleans() | st.integers(-9, 9) | st.text('ab1"[{', max_size=3)
ROWS = st.lists(
    st.dictionaries(st.sampled_from("abc"), SCALARS | st.lists(SCALARS, max_size=2), max_size=3),
    max_size=4,
)  # fmt: skip


def test_a_number_and_a_text_of_its_digits_differ():
    """In a column of several types, a text has quotes."""
    rows = ['{"n": 1, "t": "a"}', '{"n": "1", "t": "[1]"}']
    exploded = tk.explode_metadata(pd.DataFrame({"metadata": rows}))
    assert exploded["n"].tolist() == ["1", '"1"']
    assert exploded["t"].tolist() == ["a", "[1]"]


@given(ROWS)
def test_collecting_is_the_inverse_of_exploding(rows):
    """Metadata come back with all types; null and empty objects are left out."""
    frame = pd.DataFrame(
        {
            "id": list(map(str, range(len(rows)))),
            "metadata": list(map(json.dumps, rows)),
        }
    )
    collected = tk.collect_metadata(tk.explode_metadata(frame))
    expected = [
        {name: value for name, value in row.items() if value is not None}
        for row in rows
    ]
    assert [{} if pd.isna(text) else json.loads(text) for text in collected] == expected


def test_nested_fields_and_fields_named_like_columns_come_back():
    """Dotted names become objects, and `metadata.id` the field `id`; clashes are errors."""
    text = '{"id": 7, "owner": {"name": "web", "tags": ["a"]}}'
    exploded = tk.explode_metadata(pd.DataFrame({"id": ["x"], "metadata": [text]}))
    assert json.loads(tk.collect_metadata(exploded)[0]) == json.loads(text)
    with pytest.raises(InputError, match=r"'a\.b'"):
        tk.collect_metadata(pd.DataFrame({"a": [1], "a.b": [2]}))


def test_values_of_pandas_become_json_on_upsert(local_indexes):
    """Missing values are left out, times are ISO 8601, arrays are lists, paths and UUIDs text."""
    service = local_indexes["dense"]
    identity = uuid.UUID(int=3)
    metadata = {
        "none": np.nan, "nat": pd.NaT, "na": pd.NA, "at": pd.Timestamp("2026-01-02", tz="UTC"),
        "day": pd.Timestamp("2026-01-02").date(), "list": np.arange(3), "path": PurePosixPath("a/b"),
        "uuid": identity, "n": np.float32(0.5), "time64": np.datetime64("2026-01-02"),
        "nested": [{"x": np.nan}],
    }  # fmt: skip
    row = {"id": "a", "vector": [1, 2], "metadata": metadata}
    tk.upsert_vectors(service, row, namespace="pandas values")
    stored = tk.fetch_vectors(service, "a", namespace="pandas values")["metadata"][0]
    assert json.loads(stored) == {
        "at": "2026-01-02T00:00:00+00:00", "day": "2026-01-02", "list": [0, 1, 2], "path": "a/b",
        "uuid": str(identity), "n": 0.5, "time64": "2026-01-02T00:00:00", "nested": [{}],
    }  # fmt: skip


@pytest.mark.parametrize(
    "value", [object(), float("inf"), {"x": {(1, 2): 3}}, b"bytes"]
)
def test_a_value_without_a_json_form_names_the_field(value):
    """The error has the field inside the metadata."""
    with pytest.raises(InputError, match="field 'deep'"):
        json_form("the metadata", {"deep": value})


def test_arithmetic_with_a_cell_is_an_error_and_a_column_becomes_a_matrix():
    """Joining or repeating a vector as a tuple raises; `as_matrix` accepts a column."""
    column = pd.Series([[1, 2], [3, 4]], dtype="vector[float32, 2]")
    cell = column[0]
    for compute in (
        lambda: cell + cell,
        lambda: cell * 2,
        lambda: 2 * cell,
        lambda: cell - cell,
    ):
        with pytest.raises(TypeError, match="as_matrix"):
            compute()
    assert tk.as_matrix(column).dtype == np.float32
    assert tk.as_matrix(column).tolist() == [[1, 2], [3, 4]]
    assert repr(column.dtype) == "VectorDtype('vector[float32, 2]')"


@pytest.mark.parametrize(
    "compute",
    [
        lambda column: column + column,
        lambda column: 2 * column,
        lambda column: column / 2,
        lambda column: column.mean(),
        lambda column: column.sum(),
        lambda column: column.max(),
    ],
)
def test_arithmetic_with_a_column_names_the_function_to_use(compute):
    """A column of vectors is no matrix, and the error tells how to get one."""
    column = pd.Series([[0.5, 1.0], None, [2.0, 4.0]], dtype="vector[float32, 2]")
    with pytest.raises(TypeError, match="as_matrix"):
        compute(column)


@pytest.mark.parametrize("text", ["", "x", "two"])
def test_text_does_not_fill_missing_vectors(text):
    """As for numbers of pandas, the error names the value and the type; a dict fills other columns."""
    column = pd.Series([[0.5, 1.0], None], dtype="vector[float32, 2]")
    frame = pd.DataFrame({"vector": column, "data": ["a", None]})
    with pytest.raises(TypeError, match=rf"Invalid value '{text}' for dtype 'vector"):
        frame.fillna(text)
    filled = frame.fillna({"data": text})
    assert filled["data"].tolist() == ["a", text]
    assert filled["vector"].isna().tolist() == [False, True]
