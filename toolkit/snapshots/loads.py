"""What a snapshot takes from a loader: rows, and at their end the receipt."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Protocol

import pyarrow as pa

from toolkit.receipt import Receipt
from toolkit.redaction import Redactor


class Load(Protocol):
    """Rows of a collection, each id once, in tables of any size."""

    def __iter__(self) -> Iterator[pa.Table]:
        """The tables, in the order they come."""

    @property
    def receipt(self) -> Receipt:
        """What was done; known once the tables are exhausted."""


def larger_tables(load: Load, *, nbytes: int) -> Iterator[pa.Table]:
    """The rows of a load in tables of at least so many bytes, but for the last: small ones cost time each.

    Examples
    --------
    >>> pages = [pa.table({"a": [1]}), pa.table({"a": [2]}), pa.table({"a": [3]})]
    >>> [table.num_rows for table in larger_tables(pages, nbytes=16)]
    [2, 1]
    """
    waiting: list[pa.Table] = []
    size = 0
    for table in load:
        waiting.append(table)
        size += table.nbytes
        if size >= nbytes:
            yield pa.concat_tables(waiting).combine_chunks()
            waiting, size = [], 0
    if waiting:
        yield pa.concat_tables(waiting).combine_chunks()


def masked(receipt: Receipt, redactor: Redactor) -> Receipt:
    """The receipt as it may be written down: secrets in its texts masked, those masked already left alone."""

    def mask(value: Any) -> Any:
        if isinstance(value, str):
            return redactor.own(value) if "[masked len=" in value else redactor.text(value)
        if isinstance(value, list | tuple):
            return [mask(item) for item in value]
        if isinstance(value, dict):
            return {mask(name): mask(item) for name, item in value.items()}
        return value

    return replace(
        receipt,
        source=mask(receipt.source),
        scope=mask(receipt.scope),
        assumptions=tuple(mask(receipt.assumptions)),
        reasons=tuple(mask(receipt.reasons)),
    )
