"""Structured values in frames: pandas hashes, sorts and writes them, and as text they are JSON."""

from __future__ import annotations

import json
import sqlite3
from typing import Any


class JsonTuple(tuple[Any, ...]):
    """A tuple in a frame: as text, in CSV and SQLite, it is JSON."""

    __slots__ = ()

    def __str__(self) -> str:
        return json.dumps(self, default=str, ensure_ascii=False)


class JsonDict(dict[str, Any]):
    """A dict in a frame, which pandas can hash and sort: as text, in CSV and SQLite, it is JSON."""

    def __str__(self) -> str:
        return json.dumps(self, default=str, ensure_ascii=False)

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __lt__(self, other: dict[str, Any]) -> bool:
        return sorted(self.items()) < sorted(other.items())


sqlite3.register_adapter(JsonTuple, str)
sqlite3.register_adapter(JsonDict, str)
