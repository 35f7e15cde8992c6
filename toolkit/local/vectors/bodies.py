"""Request bodies, checked: JSON values in, plain values out, or a refusal that says what, got and expected."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from toolkit.errors import InputError
from toolkit.filters.metadata import MetadataFilter, parse
from toolkit.local.answers import Refusal
from toolkit.local.vectors.database import NewRow

MAX_ID: Final = 1024
"""Longest id, prefix and namespace, in characters. Not known of the hosted service: an assumption."""
MAX_METADATA: Final = 48 * 1024
"""Most bytes of a vector's metadata."""
MAX_DATA: Final = 1024 * 1024
"""Most bytes of a vector's text."""
MAX_TOP_K: Final = 10_000
"""Most results of a query. Not known of the hosted service: an assumption."""
MAX_PAGE: Final = 10_000
"""Most vectors in a range page, ids in a fetch, and rows in an upsert. Not known of the hosted service: an assumption."""
MAX_BATCH: Final = 1000
"""Most queries in a batch. Not known of the hosted service: an assumption."""

_LARGEST: Final = float(np.finfo(np.float32).max)
_SHOWN: Final = 80

UpdateMode = Literal["OVERWRITE", "PATCH"]


@dataclass(frozen=True)
class Include:
    """What an answer holds beside ids and scores."""

    metadata: bool
    vectors: bool
    data: bool


@dataclass(frozen=True)
class Query:
    """One query; `question` is a vector, or text for the index's model."""

    question: NDArray[np.float64] | str
    top_k: int
    include: Include
    filter: MetadataFilter | None


@dataclass(frozen=True)
class Range:
    """One page of a range, from the sequence number `start` on."""

    start: int
    limit: int
    prefix: str
    include: Include


@dataclass(frozen=True)
class Fetch:
    """What to fetch: ids, or everything under a prefix."""

    ids: tuple[str, ...] | None
    prefix: str
    include: Include


@dataclass(frozen=True)
class Selection:
    """What to delete: ids, everything under a prefix, or what passes a filter; exactly one is given."""

    ids: tuple[str, ...] | None = None
    prefix: str | None = None
    filter: MetadataFilter | None = None


@dataclass(frozen=True)
class Update:
    """What to change in one row; None leaves it as it is."""

    id: str
    vector: NDArray[np.float32] | None
    metadata: dict[str, Any] | None
    data: str | None
    mode: UpdateMode


def refusal(what: str, got: str, expected: str, *, status: int = 400) -> Refusal:
    """A refusal in the one form that all of this service's have."""
    return Refusal(status, f"{what}; got {got}; expected {expected}")


def read_queries(body: Any, dimension: int, *, text: bool) -> tuple[list[Query], bool]:
    """The queries of a body, and whether the answer is a list of lists."""
    bodies = body if isinstance(body, list) else [body]
    if not 1 <= len(bodies) <= MAX_BATCH:
        raise refusal("query batch", f"{len(bodies)} queries", f"1 to {MAX_BATCH}")
    queries = [_query(one, dimension, text, f"query {place}: " * (len(bodies) > 1)) for place, one in enumerate(bodies)]
    return queries, len(bodies) > 1


def _query(body: Any, dimension: int, text: bool, where: str) -> Query:  # noqa: FBT001 - private, called once
    values = _object(body, f"{where}query")
    if not text and values.get("sparseVector") is not None:
        raise refusal(f"{where}sparseVector", "one for a dense index", "a vector only", status=422)
    _choice(values, "weightingStrategy", ("IDF",), where)
    _choice(values, "fusionAlgorithm", ("RRF", "DBSF"), where)
    _choice(values, "queryMode", ("HYBRID", "DENSE", "SPARSE"), where)
    question = (
        read_data(values.get("data"), f"{where}data")
        if text
        else read_vector(values.get("vector"), dimension, f"{where}vector")
    )
    return Query(
        question=question,
        top_k=_whole(values.get("topK"), f"{where}topK", MAX_TOP_K, default=10),
        include=_include(values, where),
        filter=_filter(values.get("filter"), f"{where}filter"),
    )


def read_range(body: Any, last_sequence: int) -> Range:
    """One page of a range. Cursors this index has never given are refused."""
    values = _object(body, "range")
    cursor = values.get("cursor")
    if not isinstance(cursor, str) or not (cursor == "" or (cursor.isascii() and cursor.isdigit() and len(cursor) <= 18)):
        raise refusal("cursor", _shown(cursor), "'0', '' or a nextCursor of this index")
    start = int(cursor or 0)
    if start > last_sequence:
        raise refusal("cursor", f"{_shown(cursor)}, which this index never gave", "'0', '' or a nextCursor")
    if values.get("limit") is None:
        raise refusal("limit", "none", f"a whole number from 1 to {MAX_PAGE}")
    limit = _whole(values["limit"], "limit", MAX_PAGE)
    return Range(start, limit, _optional_name(values.get("prefix"), "prefix"), _include(values))


def read_fetch(body: Any) -> Fetch:
    """What to fetch."""
    values = _object(body, "fetch")
    ids, prefix = values.get("ids"), _optional_name(values.get("prefix"), "prefix")
    if (ids is None) == (prefix == ""):
        raise refusal("fetch", "both ids and prefix" if prefix else "neither ids nor prefix", "exactly one of them")
    return Fetch(None if ids is None else _ids(ids), prefix, _include(values))


def read_selection(body: Any) -> Selection:
    """What to delete. A bare id, or an array of ids, is taken too."""
    if isinstance(body, str | list):
        body = {"ids": body}
    values = _object(body, "delete")
    given = [name for name in ("ids", "prefix", "filter") if values.get(name) is not None]
    if len(given) != 1:
        raise refusal("delete", " and ".join(given) or "none of them", "exactly one of ids, prefix and filter")
    if given == ["ids"]:
        ids = values["ids"]
        return Selection(ids=_ids([ids] if isinstance(ids, str) else ids))
    if given == ["prefix"]:
        return Selection(prefix=read_name(values["prefix"], "prefix"))
    chosen = _filter(values["filter"], "filter")
    if chosen is None:
        raise refusal("filter", "an empty one", "at least one condition")
    return Selection(filter=chosen)


def read_update(body: Any, dimension: int) -> Update:
    """What to change in one row."""
    values = _object(body, "update")
    if values.get("sparseVector") is not None:
        raise refusal("sparseVector", "one for a dense index", "a vector only", status=422)
    names = ("vector", "metadata", "data")
    if all(values.get(name) is None for name in names):
        raise refusal("update", "nothing to change", f"at least one of {', '.join(names)}")
    vector = values.get("vector")
    mode = _choice(values, "metadataUpdateMode", get_args(UpdateMode), "") or "OVERWRITE"
    return Update(
        id=read_name(values.get("id"), "id"),
        vector=None if vector is None else read_vector(vector, dimension, "vector").astype(np.float32),
        metadata=_metadata(values.get("metadata"), "metadata"),
        data=None if values.get("data") is None else read_data(values["data"], "data"),
        mode="PATCH" if mode == "PATCH" else "OVERWRITE",
    )


def read_rows(body: Any, dimension: int) -> list[NewRow]:
    """Rows with their vectors."""
    rows = []
    for where, values in _row_objects(body):
        if values.get("sparseVector") is not None:
            raise refusal(f"{where}sparseVector", "one for a dense index", "a vector only", status=422)
        vector = read_vector(values.get("vector"), dimension, f"{where}vector").astype(np.float32)
        data = values.get("data")
        rows.append(
            NewRow(
                read_name(values.get("id"), f"{where}id"),
                vector,
                metadata_text(_metadata(values.get("metadata"), f"{where}metadata"), f"{where}metadata"),
                None if data is None else read_data(data, f"{where}data"),
            )
        )
    return rows


def read_texts(body: Any) -> list[tuple[str, str, str | None]]:
    """Rows with text to embed: id, text, and metadata as JSON text."""
    return [
        (
            read_name(values.get("id"), f"{where}id"),
            read_data(values.get("data"), f"{where}data"),
            metadata_text(_metadata(values.get("metadata"), f"{where}metadata"), f"{where}metadata"),
        )
        for where, values in _row_objects(body)
    ]


def read_renaming(body: Any) -> tuple[str, str]:
    """The namespace's name and its new name."""
    values = _object(body, "rename-namespace")
    return read_name(values.get("namespace"), "namespace"), read_name(values.get("newNamespace"), "newNamespace")


def read_name(value: Any, what: str) -> str:
    """An id, a prefix or a namespace that must not be empty."""
    name = _text(value, what)
    if not 1 <= len(name) <= MAX_ID:
        raise refusal(what, f"{len(name)} characters", f"1 to {MAX_ID}")
    if "\0" in name:
        raise refusal(what, f"a NUL in {_shown(name)}", "text without NUL")
    return name


def read_data(value: Any, what: str) -> str:
    """Text that is not empty."""
    text = _text(value, what)
    size = len(text.encode())
    if not 1 <= size <= MAX_DATA:
        raise refusal(what, f"{size} bytes", f"1 to {MAX_DATA}")
    return text


def read_vector(value: Any, dimension: int, what: str) -> NDArray[np.float64]:
    """A vector of finite numbers that fit single precision."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if not isinstance(value, list | tuple):
        raise refusal(what, _shown(value), "an array of numbers")
    if not {int, float}.issuperset(map(type, value)):
        place = next(place for place, number in enumerate(value) if type(number) not in (int, float))
        raise refusal(f"{what}[{place}]", _shown(value[place]), "a number")
    if len(value) != dimension:
        raise Refusal(422, f"Invalid vector dimension: {len(value)}, expected: {dimension}")
    try:
        vector = np.array(value, dtype=np.float64)
        fits = bool((np.abs(vector) <= _LARGEST).all())
    except OverflowError:
        fits = False
    if not fits:
        place = next(place for place, number in enumerate(value) if not abs(number) <= _LARGEST)
        raise refusal(f"{what}[{place}]", _shown(value[place]), "a finite number that fits single precision")
    return vector


def metadata_text(metadata: dict[str, Any] | None, what: str) -> str | None:
    """Metadata as compact JSON text, within its limit."""
    if metadata is None:
        return None
    try:
        text = json.dumps(metadata, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        size = len(text.encode())
    except (RecursionError, TypeError, ValueError) as error:
        raise refusal(what, f"{type(error).__name__}", "JSON values, nested less deeply") from None
    if size > MAX_METADATA:
        raise refusal(what, f"{size} bytes", f"at most {MAX_METADATA}")
    return text


def _row_objects(body: Any) -> Iterable[tuple[str, Mapping[str, Any]]]:
    rows = body if isinstance(body, list) else [body]
    if not 1 <= len(rows) <= MAX_PAGE:
        raise refusal("upsert", f"{len(rows)} rows", f"1 to {MAX_PAGE}")
    for place, row in enumerate(rows):
        where = f"row {place}: " if isinstance(body, list) else ""
        yield where, _object(row, f"{where}row")


def _object(body: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(body, Mapping):
        raise refusal(what, _shown(body), "a JSON object")
    return body


def _include(values: Mapping[str, Any], where: str = "") -> Include:
    names = ("includeMetadata", "includeVectors", "includeData")
    flags = []
    for name in names:
        value = values.get(name)
        if value is not None and not isinstance(value, bool):
            raise refusal(f"{where}{name}", _shown(value), "true or false")
        flags.append(bool(value))
    return Include(*flags)


def _filter(value: Any, what: str) -> MetadataFilter | None:
    text = "" if value is None else _text(value, what)
    if not text.strip():
        return None
    try:
        return parse(text)
    except InputError as error:
        raise Refusal(400, f"{what}; {error}") from None


def _metadata(value: Any, what: str) -> dict[str, Any] | None:
    if value is not None and not isinstance(value, dict):
        raise refusal(what, _shown(value), "a JSON object")
    return value


def _ids(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > MAX_PAGE:
        got = f"{len(value)} of them" if isinstance(value, list) else _shown(value)
        raise refusal("ids", got, f"an array of at most {MAX_PAGE} ids")
    return tuple(read_name(one, f"ids[{place}]") for place, one in enumerate(value))


def _optional_name(value: Any, what: str) -> str:
    return "" if value is None or value == "" else read_name(value, what)


def _choice(values: Mapping[str, Any], name: str, allowed: tuple[str, ...], where: str) -> str | None:
    value = values.get(name)
    if value is not None and value not in allowed:
        raise refusal(f"{where}{name}", _shown(value), f"one of {', '.join(allowed)}")
    return value


def _whole(value: Any, what: str, most: int, *, default: int | None = None) -> int:
    if value is None and default is not None:
        return default
    if type(value) is not int or not 1 <= value <= most:
        raise refusal(what, _shown(value), f"a whole number from 1 to {most}")
    return value


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise refusal(what, _shown(value), "text")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise refusal(what, f"a lone surrogate in {_shown(value)}", "text that can be written as UTF-8") from None
    return value


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return f"an array of {len(value)}"
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
