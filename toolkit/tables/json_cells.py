"""Write JSON into the cells of frames: labels, unknown fields, and values of any engine."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from toolkit.base.members import (
    MOST_DEPTH,
    RawJson,
)
from toolkit.base.own_tokens import map_json
from toolkit.secrets.names import secret_items, secret_members
from toolkit.secrets.redaction import Redactor
from toolkit.signatures.remembering import Memo


def labels_json(labels: Sequence[str] | None, redactor: Redactor | None) -> str | None:
    """Return labels as compact JSON, masked, or None without labels.

    >>> labels_json(["eu", "beta"], None)
    '["eu","beta"]'
    """
    if not labels:
        return None

    mask: Callable[[str], str] = str
    if redactor:
        mask = redactor.text
    return msgspec.json.encode(list(map(mask, labels))).decode()


def masked_json(fields: Mapping[str, Any], redactor: Redactor | None) -> str | None:
    """Return fields that fit no column as JSON text, or None without fields.

    Numbers keep all digits. NaN and Infinity stay as the standard library accepts them. `RawJson` is written
    as a string, so that every JSON reader can read the result. Secrets are masked in every string, and values
    under secret names are masked completely. Raise `TooDeepError` beyond `MOST_DEPTH` levels of nesting.
    """
    return FieldsMasker(redactor).json(fields)


class FieldsMasker:
    """Write the fields of several rows as JSON, as `masked_json` does.

    Rows have the same names, and many equal values, for example the names and states of steps. Each string of
    up to 300 characters is masked once, so use a masker for a page of rows, and not longer: meanwhile, the
    process can get tokens that it has to mask.

    >>> FieldsMasker(Redactor(key=b"example")).json({"state": "done", "pin": 1})
    '{"pin":"[masked len=1 tag=e426ee1c]","state":"done"}'
    """

    def __init__(self, redactor: Redactor | None) -> None:
        self._redactor = redactor
        self._text: Callable[[str], str] = str
        if redactor:
            self._text = Memo(redactor.text).__getitem__

    def json(self, fields: Mapping[str, Any]) -> str | None:
        """Return fields as JSON text, or None without fields."""
        if not fields:
            return None

        kept = map_json(
            fields,
            self._leaf,
            self._text,
            hidden=secret_members,
            hidden_items=secret_items,
            levels=MOST_DEPTH + 1,
        )
        return json.dumps(
            kept, ensure_ascii=True, separators=(",", ":"), sort_keys=True
        )

    def _leaf(self, value: Any, secret: bool) -> Any:  # noqa: FBT001 - as `map_json` calls it
        """Mask a value that is neither an object nor an array."""
        if isinstance(value, RawJson):
            value = value.text
        if self._redactor is None:
            return value
        if isinstance(value, str) and not secret:
            return self._text(value)

        return self._redactor.leaf(value, secret)


def _json(value: object) -> str:
    return json.dumps(value, default=str, ensure_ascii=False)


class JsonTuple(tuple[Any, ...]):
    """A tuple in a frame. As text, in CSV and SQLite, it is JSON."""

    __slots__ = ()
    __str__ = _json


class JsonDict(dict[str, Any]):
    """A dict in a frame that pandas can hash and sort. As text, in CSV and SQLite, it is JSON."""

    __str__ = _json

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __lt__(self, other: dict[str, Any]) -> bool:
        return sorted(self.items()) < sorted(other.items())


sqlite3.register_adapter(JsonTuple, str)
sqlite3.register_adapter(JsonDict, str)
