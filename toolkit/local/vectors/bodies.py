"""Request bodies, checked: JSON values in, plain values out, or a refusal: what, got and expected."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from toolkit.errors import InputError
from toolkit.filters.metadata import MetadataFilter, parse
from toolkit.local.answers import Refusal
from toolkit.local.vectors.checks import (
    MAX_BATCH,
    MAX_PAGE,
    MAX_TOP_K,
    choice,
    json_object,
    metadata_text,
    optional_name,
    read_data,
    read_metadata,
    read_name,
    read_vector,
    refusal,
    shown,
    text_value,
    whole_number,
)
from toolkit.local.vectors.database import NewRow

_CURSOR: Final = re.compile(r"[0-9]{0,18}", re.ASCII)

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


def read_queries(body: Any, dimension: int, *, text: bool) -> tuple[list[Query], bool]:
    """The queries of a body, and whether the answer is a list of lists."""
    bodies = body if isinstance(body, list) else [body]
    if not 1 <= len(bodies) <= MAX_BATCH:
        raise refusal("query batch", f"{len(bodies)} queries", f"1 to {MAX_BATCH}")
    queries = [
        _query(one, dimension, f"query {place}: " * (len(bodies) > 1), text=text)
        for place, one in enumerate(bodies)
    ]
    return queries, len(bodies) > 1


def _query(body: Any, dimension: int, where: str, *, text: bool) -> Query:
    values = json_object(body, f"{where}query")
    if not text and values.get("sparseVector") is not None:
        raise refusal(f"{where}sparseVector", "one for a dense index", "a vector only", status=422)
    choice(values, "weightingStrategy", ("IDF",), where)
    choice(values, "fusionAlgorithm", ("RRF", "DBSF"), where)
    choice(values, "queryMode", ("HYBRID", "DENSE", "SPARSE"), where)
    question = (
        read_data(values.get("data"), f"{where}data")
        if text
        else read_vector(values.get("vector"), dimension, f"{where}vector")
    )
    return Query(
        question=question,
        top_k=whole_number(values.get("topK"), f"{where}topK", MAX_TOP_K, default=10),
        include=_include(values, where),
        filter=_filter(values.get("filter"), f"{where}filter"),
    )


def read_range(body: Any, last_sequence: int) -> Range:
    """One page of a range. Cursors this index has never given are refused."""
    values = json_object(body, "range")
    cursor = values.get("cursor")
    if not isinstance(cursor, str) or not _CURSOR.fullmatch(cursor):
        raise refusal("cursor", shown(cursor), "'0', '' or a nextCursor of this index")
    start = int(cursor or 0)
    if start > last_sequence:
        raise refusal("cursor", f"{shown(cursor)}, which this index never gave", "'0', '' or a nextCursor")
    if values.get("limit") is None:
        raise refusal("limit", "none", f"a whole number from 1 to {MAX_PAGE}")
    limit = whole_number(values["limit"], "limit", MAX_PAGE)
    return Range(start, limit, optional_name(values.get("prefix"), "prefix"), _include(values))


def read_fetch(body: Any) -> Fetch:
    """What to fetch."""
    values = json_object(body, "fetch")
    ids, prefix = values.get("ids"), optional_name(values.get("prefix"), "prefix")
    if (ids is None) == (prefix == ""):
        raise refusal(
            "fetch", "both ids and prefix" if prefix else "neither ids nor prefix", "exactly one of them"
        )
    return Fetch(None if ids is None else _ids(ids), prefix, _include(values))


def read_selection(body: Any) -> Selection:
    """What to delete. A bare id, or an array of ids, is taken too."""
    if isinstance(body, str | list):
        body = {"ids": body}
    values = json_object(body, "delete")
    given = [name for name in ("ids", "prefix", "filter") if values.get(name) is not None]
    if len(given) != 1:
        raise refusal(
            "delete", " and ".join(given) or "none of them", "exactly one of ids, prefix and filter"
        )
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
    values = json_object(body, "update")
    if values.get("sparseVector") is not None:
        raise refusal("sparseVector", "one for a dense index", "a vector only", status=422)
    names = ("vector", "metadata", "data")
    if all(values.get(name) is None for name in names):
        raise refusal("update", "nothing to change", f"at least one of {', '.join(names)}")
    vector = values.get("vector")
    mode = choice(values, "metadataUpdateMode", get_args(UpdateMode), "") or "OVERWRITE"
    return Update(
        id=read_name(values.get("id"), "id"),
        vector=None if vector is None else read_vector(vector, dimension, "vector").astype(np.float32),
        metadata=read_metadata(values.get("metadata"), "metadata"),
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
                metadata_text(read_metadata(values.get("metadata"), f"{where}metadata"), f"{where}metadata"),
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
            metadata_text(read_metadata(values.get("metadata"), f"{where}metadata"), f"{where}metadata"),
        )
        for where, values in _row_objects(body)
    ]


def read_renaming(body: Any) -> tuple[str, str]:
    """The namespace's name and its new name."""
    values = json_object(body, "rename-namespace")
    return read_name(values.get("namespace"), "namespace"), read_name(
        values.get("newNamespace"), "newNamespace"
    )


def _row_objects(body: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    rows = body if isinstance(body, list) else [body]
    if not 1 <= len(rows) <= MAX_PAGE:
        raise refusal("upsert", f"{len(rows)} rows", f"1 to {MAX_PAGE}")
    for place, row in enumerate(rows):
        where = f"row {place}: " if isinstance(body, list) else ""
        yield where, json_object(row, f"{where}row")


def _include(values: Mapping[str, Any], where: str = "") -> Include:
    names = ("includeMetadata", "includeVectors", "includeData")
    flags = []
    for name in names:
        value = values.get(name)
        if value is not None and not isinstance(value, bool):
            raise refusal(f"{where}{name}", shown(value), "true or false")
        flags.append(bool(value))
    return Include(*flags)


def _filter(value: Any, what: str) -> MetadataFilter | None:
    text = "" if value is None else text_value(value, what)
    if not text.strip():
        return None
    try:
        return parse(text)
    except InputError as error:
        raise Refusal(400, f"{what}; {error}") from None


def _ids(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > MAX_PAGE:
        got = f"{len(value)} of them" if isinstance(value, list) else shown(value)
        raise refusal("ids", got, f"an array of at most {MAX_PAGE} ids")
    return tuple(read_name(one, f"ids[{place}]") for place, one in enumerate(value))
