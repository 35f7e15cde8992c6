"""Columns of any type, and values that nobody expects in them."""

from __future__ import annotations

import decimal
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

ODD_CELLS: list[Any] = [
    None,
    pd.NA,
    pd.NaT,
    float("nan"),
    float("inf"),
    -1,
    0,
    1.5,
    True,
    2**63,
    10**40,
    "",
    " ",
    "x",
    "\ud800",
    "a\0b",
    "é☃\U0001f600",
    "\u202egnp",
    "<b>x</b>",
    "$x$",
    "_hidden",
    "=1+1",
    "x" * 5000,
    b"bytes",
    b"\xff",
    [],
    [1, "a"],
    {},
    {"a": 1},
    (1, 2),
    {1, 2},
    np.array([1.0, 2.0]),
    np.array([[1], [2]]),
    np.int64(3),
    np.float32("nan"),
    np.str_("s"),
    datetime(2026, 1, 1),  # noqa: DTZ001 - the point
    datetime(2026, 1, 1, tzinfo=UTC),
    date(2026, 1, 1),
    time(1, 2),
    timedelta(days=1),
    pd.Timestamp("2026-01-01", tz="Asia/Tokyo"),
    pd.Timestamp.max,
    pd.Timestamp.min,
    pd.Period("2026-01"),
    pd.Interval(0, 1),
    decimal.Decimal("1.5"),
    decimal.Decimal("NaN"),
    1j,
    int,
    '["a","b"]',
    '["a',
    '{"A":["b"]}',
    '{"A":"b"}',
    '{"n":NaN}',
    '{"a":1,"a":2}',
    "[" * 2000,
    "7" * 4400,
    '{"x":' + "9" * 4301 + "}",
    "[1.0, 2.0]",
    "null",
    "2026-01-01T00:00:00Z",
    "Sun, 01 Mar 2026 12:00:05 GMT",
    "CALLBACK_FAIL",
    "500",
]
ODD_NAMES: list[Any] = [
    None,
    5,
    1.5,
    "",
    "x",
    ("a", "b"),
    float("nan"),
    pd.NaT,
    b"n",
    True,
    "index",
    "count",
    "label",
    "\ud800",
    "a\0b",
    "_x",
    "$y$",
]


def odd_column(random: Random, rows: int) -> Any:
    """A column of any type."""
    numbers = [random.randrange(-5, 700) for _ in range(rows)]
    stamps = pd.Series(pd.date_range("2026-01-01", periods=rows, freq="7h"))
    makers: list[Callable[[], Any]] = [
        lambda: pd.Series(
            [random.choice(ODD_CELLS) for _ in range(rows)], dtype=object
        ),
        lambda: pd.Series([random.choice(ODD_CELLS)] * rows, dtype=object),
        lambda: numbers,
        lambda: np.array(
            numbers,
            dtype=random.choice(
                [
                    "int16",
                    "float32",
                    "float16",
                    "float64",
                    "bool",
                    "complex128",
                    "U8",
                    "S8",
                ]
            ),
        ),
        lambda: pd.array(
            [None if n % 3 == 0 else n for n in numbers],
            dtype=random.choice(["Int64", "Float64"]),
        ),
        lambda: pd.Series(
            [f"t{n % 4}" for n in numbers],
            dtype=random.choice(["string", "category", "str"]),
        ),
        lambda: pd.Categorical(numbers, ordered=True),
        lambda: stamps,
        lambda: stamps.dt.tz_localize(
            random.choice(["UTC", "Asia/Tokyo", "Europe/Berlin"]), ambiguous="NaT"
        ),
        lambda: stamps.astype(random.choice(["datetime64[s]", "datetime64[us]"])),
        lambda: pd.to_timedelta(pd.Series(numbers), unit="h"),
        lambda: pd.period_range("2020-01", periods=rows, freq="M"),
        lambda: pd.arrays.SparseArray(numbers),
        lambda: pd.Series(
            [None] * rows,
            dtype=random.choice(["float64", "object", "string", "datetime64[ms, UTC]"]),
        ),
        lambda: pd.Series([np.nan, np.inf, -np.inf, 1e308] * rows)[:rows],
        lambda: arrow(pa.array([[n] for n in numbers], pa.list_(pa.int64()))),
        lambda: arrow(
            pa.array([[float(n), 1.0] for n in numbers], pa.list_(pa.float32(), 2))
        ),
        lambda: arrow(
            pa.array([{"a": n} for n in numbers], pa.struct([("a", pa.int64())]))
        ),
        lambda: arrow(
            pa.array([[("k", n)] for n in numbers], pa.map_(pa.string(), pa.int64()))
        ),
        lambda: arrow(
            pa.array([decimal.Decimal(n) for n in numbers], pa.decimal128(10, 2))
        ),
        lambda: arrow(pa.array([str(n % 3) for n in numbers]).dictionary_encode()),
        lambda: arrow(pa.array([bytes([n % 256]) for n in numbers], pa.large_binary())),
        lambda: arrow(pa.array([n % 2 == 0 for n in numbers])),
        lambda: arrow(pa.nulls(rows)),
        lambda: arrow(pa.array([time(n % 24) for n in numbers])),
        lambda: arrow(pa.array(stamps).cast(pa.timestamp("ns", "Europe/Berlin"))),
        lambda: [[float(n), None] for n in numbers],
        lambda: [np.arange(n % 4, dtype="float32") for n in numbers],
    ]
    return random.choice(makers)()


def arrow(array: pa.Array) -> Any:
    """A column of an Arrow type."""
    return pd.Series(array, dtype=pd.ArrowDtype(array.type))
