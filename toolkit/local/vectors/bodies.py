"""Request bodies, checked: JSON values in, plain values out, or an `ApiError` that says what is wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, cast, get_args

import numpy as np
from numpy.typing import NDArray

from toolkit.errors import InputError
from toolkit.filters.metadata import MetadataFilter, parse
from toolkit.local.api import ApiError
from toolkit.local.vectors.checks import (
    invalid,
    json_object,
    metadata_text,
    read_data,
    read_metadata,
    read_name,
    read_namespace,
    read_sparse,
    read_text,
    read_vector,
    shown,
    whole,
)
from toolkit.local.vectors.filtering import FilterBudget
from toolkit.local.vectors.index_database import IndexRow
from toolkit.local.vectors.sparse import SparseArray
from toolkit.local.vectors.specs import IndexSpec

# none of these is publicly documented
MAX_TOP_K: Final = 10_000
"""Most results of a query."""
MAX_PAGE: Final = 10_000
"""Most vectors in a range page, ids in a fetch, and rows in an upsert."""
MAX_BATCH: Final = 1000
"""Most queries in a batch."""
MAX_IDLE: Final = 86_400
"""Longest time, in seconds, for which a resumable query may idle."""
DEFAULT_IDLE: Final = 3600
"""Seconds for which a resumable query may idle unless it says so: what the public client sends."""

_CURSOR: Final = re.compile(r"[0-9]{0,18}", re.ASCII)

Fusion = Literal["RRF", "DBSF"]
Mode = Literal["HYBRID", "DENSE", "SPARSE"]
UpdateMode = Literal["OVERWRITE", "PATCH"]


class IncludedFields(NamedTuple):
    """What a response holds beside ids and scores."""

    metadata: bool
    vectors: bool
    data: bool


@dataclass(frozen=True)
class IndexQuery:
    """One query."""

    question: NDArray[np.float64] | str | None
    """A dense vector; text for the index's models; or None where there is only a sparse vector."""
    top_k: int
    include: IncludedFields
    filter: MetadataFilter | None = None
    sparse: SparseArray | None = None
    idf: bool = False
    """Whether sparse dimensions are weighted by how rare they are."""
    fusion: Fusion = "RRF"
    """How dense and sparse results become one list."""
    mode: Mode = "HYBRID"
    """Which vectors of a text a hybrid index searches with."""


@dataclass(frozen=True)
class RangeRequest:
    """One page of a range, from the sequence number `start` on."""

    start: int
    limit: int
    prefix: str
    include: IncludedFields


@dataclass(frozen=True)
class Fetch:
    """What to fetch: ids, or everything under a prefix."""

    ids: tuple[str, ...] | None
    prefix: str
    include: IncludedFields


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
    sparse: SparseArray | None = None


class _Fields:
    """Reads the fields of a JSON object, checked. Errors name the field, with `where` before it."""

    def __init__(self, body: Any, what: str, where: str = "") -> None:
        self._values = json_object(body, f"{where}{what}")
        self.where = where

    def get(self, name: str) -> Any:
        return self._values.get(name)

    def given(self, *names: str) -> list[str]:
        return [name for name in names if self.get(name) is not None]

    def name(self, name: str) -> str:
        return read_name(self.get(name), f"{self.where}{name}")

    def prefix(self) -> str:
        """The prefix, which may be left out or empty."""
        value = self.get("prefix")
        return "" if value is None or value == "" else self.name("prefix")

    def data(self) -> str:
        return read_data(self.get("data"), f"{self.where}data")

    def metadata(self) -> dict[str, Any] | None:
        return read_metadata(self.get("metadata"), f"{self.where}metadata")

    def metadata_text(self) -> str | None:
        return metadata_text(self.metadata(), f"{self.where}metadata")

    def number(self, name: str, most: int, default: int | None = None) -> int:
        """A whole number from 1; 2.0 is one, too."""
        if self.get(name) is None and default is not None:
            return default
        number = whole(self.get(name))
        if type(number) is not int or not 1 <= number <= most:
            got = "none" if number is None else shown(self.get(name))
            raise invalid(f"{self.where}{name}", got, f"a whole number from 1 to {most}")
        return number

    def flag(self, name: str) -> bool:
        """A boolean; false where it is left out."""
        value = self.get(name)
        if value is not None and not isinstance(value, bool):
            raise invalid(f"{self.where}{name}", shown(value), "true or false")
        return bool(value)

    def choice(self, name: str, *allowed: str) -> str | None:
        """One of several words, or None."""
        value = self.get(name)
        if value is not None and value not in allowed:
            raise invalid(f"{self.where}{name}", shown(value), f"one of {', '.join(allowed)}")
        return None if value is None else str(value)

    def filter(self) -> MetadataFilter | None:
        """A metadata filter; None where it is left out or blank."""
        value = self.get("filter")
        text = "" if value is None else read_text(value, f"{self.where}filter")
        if not text.strip():
            return None
        try:
            return parse(text)
        except InputError as error:
            raise ApiError(400, f"{self.where}filter; {error}") from None

    def include(self) -> IncludedFields:
        return IncludedFields(*map(self.flag, ("includeMetadata", "includeVectors", "includeData")))

    def dense(self, spec: IndexSpec) -> NDArray[np.float32]:
        return read_vector(self.get("vector"), spec.dimension, f"{self.where}vector")

    def sparse(self) -> SparseArray:
        return read_sparse(self.get("sparseVector"), f"{self.where}sparseVector")

    def vectors(self, spec: IndexSpec) -> tuple[NDArray[np.float32] | None, SparseArray | None]:
        """The vectors that are given, all of which the index's kind must have."""
        dense, sparse = self.get("vector"), self.get("sparseVector")
        if dense is not None and not spec.has_dense:
            raise self._unfit("vector", spec, "sparseVector")
        if sparse is not None and not spec.has_sparse:
            raise self._unfit("sparseVector", spec, "vector")
        return None if dense is None else self.dense(spec), None if sparse is None else self.sparse()

    def _unfit(self, name: str, spec: IndexSpec, other: str) -> ApiError:
        return invalid(f"{self.where}{name}", f"one for a {spec.kind} index", f"{other} only", status=422)


def read_queries(
    body: Any, spec: IndexSpec, *, text: bool, budget: FilterBudget
) -> tuple[list[IndexQuery], bool]:
    """The queries of a body, and whether there are several. Parsing filters is in the budget."""
    bodies = body if isinstance(body, list) else [body]
    if not 1 <= len(bodies) <= MAX_BATCH:
        raise invalid("query batch", f"{len(bodies)} queries", f"1 to {MAX_BATCH}")
    with budget.spending():
        queries = [
            _read_query(one, spec, f"query {number}: " * (len(bodies) > 1), text=text)
            for number, one in enumerate(budget.each(bodies))
        ]
    return queries, len(bodies) > 1


def read_resumable(body: Any, spec: IndexSpec, *, text: bool) -> tuple[IndexQuery, int]:
    """A resumable query, and for how many seconds it may idle."""
    query = _read_query(body, spec, "", text=text)
    return query, _Fields(body, "query").number("maxIdle", MAX_IDLE, default=DEFAULT_IDLE)


def _read_query(body: Any, spec: IndexSpec, where: str, *, text: bool) -> IndexQuery:
    fields = _Fields(body, "query", where)
    question, sparse = (fields.data(), None) if text else _query_vectors(fields, spec)
    fusion = fields.choice("fusionAlgorithm", *get_args(Fusion))
    mode = fields.choice("queryMode", *get_args(Mode))
    return IndexQuery(
        question=question,
        top_k=fields.number("topK", MAX_TOP_K, default=10),
        include=fields.include(),
        filter=fields.filter(),
        sparse=sparse,
        idf=fields.choice("weightingStrategy", "IDF") is not None,
        fusion=cast("Fusion", fusion or "RRF"),
        mode=cast("Mode", mode or "HYBRID"),
    )


def _query_vectors(fields: _Fields, spec: IndexSpec) -> tuple[NDArray[np.float64] | None, SparseArray | None]:
    dense, sparse = fields.vectors(spec)
    if dense is None and sparse is None:
        if spec.kind == "hybrid":
            got = "no vector and no sparseVector"
            raise invalid(f"{fields.where}query", got, "one of them, or both")
        if spec.has_dense:
            dense = fields.dense(spec)
        else:
            sparse = fields.sparse()
    return None if dense is None else dense.astype(np.float64), sparse


def read_next(body: Any) -> tuple[str, int]:
    """The id of a resumable query, and how many more results are wanted."""
    fields = _Fields(body, "resumable-query-next")
    if not fields.given("additionalK"):
        raise invalid("additionalK", "none", f"a whole number from 1 to {MAX_TOP_K}")
    return fields.name("uuid"), fields.number("additionalK", MAX_TOP_K)


def read_end(body: Any) -> str:
    """The id of a resumable query."""
    return _Fields(body, "resumable query").name("uuid")


def read_range(body: Any, last_sequence: int) -> RangeRequest:
    """One page of a range. A cursor that this index has never returned is an error."""
    fields = _Fields(body, "range")
    cursor = fields.get("cursor")
    if not isinstance(cursor, str) or not _CURSOR.fullmatch(cursor):
        raise invalid("cursor", shown(cursor), "'0', '' or a nextCursor of this index")
    start = int(cursor or 0)
    if start > last_sequence:
        raise invalid(
            "cursor", f"{shown(cursor)}, which this index never returned", "'0', '' or a nextCursor"
        )
    return RangeRequest(start, fields.number("limit", MAX_PAGE), fields.prefix(), fields.include())


def read_fetch(body: Any) -> Fetch:
    """What to fetch."""
    fields = _Fields(body, "fetch")
    by_ids, prefix = bool(fields.given("ids")), fields.prefix()
    if by_ids == bool(prefix):
        got = "both ids and prefix" if prefix else "neither ids nor prefix"
        raise invalid("fetch", got, "exactly one of them")
    return Fetch(_read_ids(fields.get("ids")) if by_ids else None, prefix, fields.include())


def read_selection(body: Any) -> Selection:
    """What to delete. A bare id, or an array of ids, is accepted too."""
    if isinstance(body, str | list):
        body = {"ids": body}
    fields = _Fields(body, "delete")
    given = fields.given("ids", "prefix", "filter")
    if len(given) != 1:
        got = " and ".join(given) or "none of them"
        raise invalid("delete", got, "exactly one of ids, prefix and filter")
    if given == ["ids"]:
        ids = fields.get("ids")
        return Selection(ids=_read_ids([ids] if isinstance(ids, str) else ids))
    if given == ["prefix"]:
        return Selection(prefix=fields.name("prefix"))
    chosen = fields.filter()
    if chosen is None:
        raise invalid("filter", "an empty one", "at least one condition")
    return Selection(filter=chosen)


def read_update(body: Any, spec: IndexSpec) -> Update:
    """What to change in one row."""
    fields = _Fields(body, "update")
    vector, sparse = fields.vectors(spec)
    names = ("vector", "sparseVector", "metadata", "data")
    if not fields.given(*names):
        raise invalid("update", "nothing to change", f"at least one of {', '.join(names)}")
    mode = fields.choice("metadataUpdateMode", *get_args(UpdateMode))
    return Update(
        id=fields.name("id"),
        vector=vector,
        sparse=sparse,
        metadata=fields.metadata(),
        data=fields.data() if fields.given("data") else None,
        mode=cast("UpdateMode", mode or "OVERWRITE"),
    )


def read_rows(body: Any, spec: IndexSpec) -> list[IndexRow]:
    """Rows with the vectors that the index's kind has."""
    rows = []
    for fields in _row_fields(body):
        vector, sparse = fields.vectors(spec)
        if vector is None and spec.has_dense:
            raise _missing(f"{fields.where}vector", spec)
        if sparse is None and spec.has_sparse:
            raise _missing(f"{fields.where}sparseVector", spec)
        rows.append(
            IndexRow(
                id=fields.name("id"),
                vector=np.empty(0, np.float32) if vector is None else vector,
                metadata=fields.metadata_text(),
                data=fields.data() if fields.given("data") else None,
                sparse=sparse,
            )
        )
    return rows


def read_texts(body: Any) -> list[tuple[str, str, str | None]]:
    """Rows with text to embed: id, text, and metadata as JSON text."""
    return [(row.name("id"), row.data(), row.metadata_text()) for row in _row_fields(body)]


def read_renaming(body: Any) -> tuple[str, str, bool]:
    """The namespace's name, its new name, and whether a namespace that has the new name is deleted."""
    fields = _Fields(body, "rename-namespace")
    name, new_name = (read_namespace(fields.get(name), name) for name in ("namespace", "newNamespace"))
    return name, new_name, fields.flag("deleteExisting")


def _read_ids(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > MAX_PAGE:
        got = f"{len(value)} of them" if isinstance(value, list) else shown(value)
        raise invalid("ids", got, f"an array of at most {MAX_PAGE} ids")
    return tuple(read_name(one, f"ids[{index}]") for index, one in enumerate(value))


def _row_fields(body: Any) -> Iterator[_Fields]:
    rows = body if isinstance(body, list) else [body]
    if not 1 <= len(rows) <= MAX_PAGE:
        raise invalid("upsert", f"{len(rows)} rows", f"1 to {MAX_PAGE}")
    for number, row in enumerate(rows):
        yield _Fields(row, "row", f"row {number}: " if isinstance(body, list) else "")


def _missing(what: str, spec: IndexSpec) -> ApiError:
    if spec.kind == "hybrid":
        return invalid(what, "none", "both vectors: the index is hybrid", status=422)
    return invalid(what, "none", "one")
