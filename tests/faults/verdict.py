"""Compares what a load returned with the ledger of the service."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pandas as pd
import pyarrow as pa
from collection import Collection, Version
from dlq import Dlq

Row = dict[str, Any]


def rows_of(found: pa.Table | pd.DataFrame, model: Collection) -> list[Row]:
    """The columns that the model knows, as plain values."""
    if isinstance(found, pd.DataFrame):
        found = pa.Table.from_pandas(found[list(model.columns)], preserve_index=False)
    table = found.select(list(model.columns))
    if "created_at" in table.column_names:
        position = table.column_names.index("created_at")
        table = table.set_column(
            position, "created_at", table.column(position).cast(pa.int64())
        )
    return table.to_pylist()


def problems(
    model: Collection, rows: list[Row], *, whole: bool, chosen: Any
) -> Iterable[str]:
    """What is wrong with the rows; `whole` says that they are claimed to be complete."""
    names = ["\0".join(row[part] for part in model.key) for row in rows]
    found = set(names)
    if len(found) != len(names):
        yield f"twice: {len(names) - len(found)} rows"
    throughout = {name for name in model.throughout if chosen(model.versions[name][0])}
    ever = {name for name in model.ever if chosen(model.versions[name][0])}
    if whole and (lost := throughout - found):
        yield f"lost: {len(lost)} of {len(throughout)}, such as {min(lost)!r}, and the load says complete"
    if strange := found - ever:
        yield f"strange: {len(strange)}, such as {min(strange)!r}"
    for name, row in zip(names, rows, strict=True):
        if name in ever and not any(
            _same(row, version, model) for version in model.versions[name]
        ):
            yield f"altered: {row} is not a version of {[item.wire for item in model.versions[name]]}"


def missing(model: Collection, rows: list[Row], chosen: Any) -> int:
    """How many entries that were there throughout have no row."""
    found = {"\0".join(row[part] for part in model.key) for row in rows}
    return sum(
        name not in found and chosen(model.versions[name][0])
        for name in model.throughout
    )


def _same(row: Row, version: Version, model: Collection) -> bool:
    expected = version.expected
    if isinstance(model, Dlq):
        extra = None if row["extra"] is None else json.loads(row["extra"])
        return extra == expected["extra"] and all(
            row[name] == expected[name]
            for name in (
                "body",
                "body_base64",
                "created_at",
                "response_status",
                "labels",
            )
        )
    return (
        row["vector"] == expected["vector"]
        and row["sparse_indices"] == expected["sparse_indices"]
        and (row["vector_problem"] is not None) == expected["problem"]
        and row["data"] == expected["data"]
        and json.loads(row["metadata"]) == expected["metadata"]
    )
