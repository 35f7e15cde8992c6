"""Request bodies, checked: JSON values in, plain values out, or a refusal: what, got and expected."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from toolkit.filters.metadata import MetadataFilter
from toolkit.local.api import ApiError
from toolkit.local.vectors.checks import (
    MAX_PAGE,
    choice,
    json_object,
    metadata_text,
    optional_name,
    read_data,
    read_metadata,
    read_name,
    read_namespace,
    read_sparse,
    read_vector,
    refusal,
    shown,
    unfit,
    whole_number,
)
from toolkit.local.vectors.index_database import IndexRow
from toolkit.local.vectors.queries import Include, read_filter, read_flag, read_include
from toolkit.local.vectors.sparse import SparseVector
from toolkit.local.vectors.specs import IndexSpec

_CURSOR: Final = re.compile(r"[0-9]{0,18}", re.ASCII)

UpdateMode = Literal["OVERWRITE", "PATCH"]


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
    sparse: SparseVector | None = None


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
    return Range(start, limit, optional_name(values.get("prefix"), "prefix"), read_include(values))


def read_fetch(body: Any) -> Fetch:
    """What to fetch."""
    values = json_object(body, "fetch")
    ids, prefix = values.get("ids"), optional_name(values.get("prefix"), "prefix")
    if (ids is None) == (prefix == ""):
        raise refusal(
            "fetch", "both ids and prefix" if prefix else "neither ids nor prefix", "exactly one of them"
        )
    return Fetch(None if ids is None else _ids(ids), prefix, read_include(values))


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
    chosen = read_filter(values["filter"], "filter")
    if chosen is None:
        raise refusal("filter", "an empty one", "at least one condition")
    return Selection(filter=chosen)


def read_update(body: Any, spec: IndexSpec) -> Update:
    """What to change in one row."""
    values = json_object(body, "update")
    vector, sparse = _given_vectors(values, spec, "")
    names = ("vector", "sparseVector", "metadata", "data")
    if all(values.get(name) is None for name in names):
        raise refusal("update", "nothing to change", f"at least one of {', '.join(names)}")
    mode = choice(values, "metadataUpdateMode", get_args(UpdateMode), "") or "OVERWRITE"
    return Update(
        id=read_name(values.get("id"), "id"),
        vector=vector,
        sparse=sparse,
        metadata=read_metadata(values.get("metadata"), "metadata"),
        data=None if values.get("data") is None else read_data(values["data"], "data"),
        mode="PATCH" if mode == "PATCH" else "OVERWRITE",
    )


def read_rows(body: Any, spec: IndexSpec) -> list[IndexRow]:
    """Rows with the vectors that the index's kind has."""
    rows = []
    for where, values in _row_objects(body):
        vector, sparse = _given_vectors(values, spec, where)
        if vector is None and spec.has_dense:
            raise _missing(f"{where}vector", spec)
        if sparse is None and spec.has_sparse:
            raise _missing(f"{where}sparseVector", spec)
        data = values.get("data")
        rows.append(
            IndexRow(
                read_name(values.get("id"), f"{where}id"),
                np.empty(0, np.float32) if vector is None else vector,
                metadata_text(read_metadata(values.get("metadata"), f"{where}metadata"), f"{where}metadata"),
                None if data is None else read_data(data, f"{where}data"),
                sparse,
            )
        )
    return rows


def _given_vectors(
    values: Mapping[str, Any], spec: IndexSpec, where: str
) -> tuple[NDArray[np.float32] | None, SparseVector | None]:
    dense, sparse = values.get("vector"), values.get("sparseVector")
    if dense is not None and not spec.has_dense:
        raise unfit(f"{where}vector", spec.kind, "sparseVector")
    if sparse is not None and not spec.has_sparse:
        raise unfit(f"{where}sparseVector", spec.kind, "vector")
    return (
        None if dense is None else read_vector(dense, spec.dimension, f"{where}vector"),
        None if sparse is None else read_sparse(sparse, f"{where}sparseVector"),
    )


def _missing(what: str, spec: IndexSpec) -> ApiError:
    if spec.kind == "hybrid":
        return refusal(what, "none", "both vectors: the index is hybrid", status=422)
    return refusal(what, "none", "one")


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


def read_renaming(body: Any) -> tuple[str, str, bool]:
    """The namespace's name, its new name, and whether a namespace that has the new name is deleted."""
    values = json_object(body, "rename-namespace")
    return (
        read_namespace(values.get("namespace"), "namespace"),
        read_namespace(values.get("newNamespace"), "newNamespace"),
        read_flag(values.get("deleteExisting"), "deleteExisting"),
    )


def _row_objects(body: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    rows = body if isinstance(body, list) else [body]
    if not 1 <= len(rows) <= MAX_PAGE:
        raise refusal("upsert", f"{len(rows)} rows", f"1 to {MAX_PAGE}")
    for place, row in enumerate(rows):
        where = f"row {place}: " if isinstance(body, list) else ""
        yield where, json_object(row, f"{where}row")


def _ids(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > MAX_PAGE:
        got = f"{len(value)} of them" if isinstance(value, list) else shown(value)
        raise refusal("ids", got, f"an array of at most {MAX_PAGE} ids")
    return tuple(read_name(one, f"ids[{place}]") for place, one in enumerate(value))
