"""Bodies of requests to an index: msgspec reads and checks each, and describes it in the OpenAPI document."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, TypeAlias, TypeVar

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from toolkit.errors import InputError
from toolkit.filters.metadata import MetadataFilter, parse
from toolkit.local.api import (
    CURSOR_PATTERN,
    NAME_PATTERN,
    NAMESPACE_PATTERN,
    ApiError,
    invalid,
    naming,
    read_as,
    shown,
)
from toolkit.local.vectors.index_database import IndexRow
from toolkit.local.vectors.rows import FilterBudget
from toolkit.local.vectors.sparse import MAX_INDEX, SparseArray
from toolkit.local.vectors.specs import IndexSpec

T = TypeVar("T")
R = TypeVar("R")

# limits, not publicly documented but for those of metadata and text
MAX_ID: Final = 1024  # characters of an id, a prefix or a namespace
MAX_METADATA: Final = 48 * 1024  # bytes of a vector's metadata
MAX_NESTING: Final = 100  # levels of a vector's metadata
MAX_DATA: Final = 1024 * 1024  # bytes of a vector's text
MAX_PAGE: Final = 10_000  # results of a query, vectors in a range page, ids in a fetch, rows in an upsert
MAX_BATCH: Final = 1000  # queries in a batch
MAX_IDLE: Final = 86_400  # seconds for which a resumable query may idle
DEFAULT_IDLE: Final = 3600  # the same unless it says so: what the public client sends

_LARGEST: Final = 3.4028235e38
"""The largest float32 in its shortest digits, as responses have it: a little above the number itself."""

_TEXTS: Final = frozenset({"id", "ids", "cursor"})
"""Fields of bodies that are text, but which clients may send as whole numbers."""

Fusion: TypeAlias = Literal["RRF", "DBSF"]
Mode: TypeAlias = Literal["HYBRID", "DENSE", "SPARSE"]
_DIGITS: Final = "Text; a whole number becomes its digits."
Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=MAX_ID, pattern=NAME_PATTERN)]
RowId: TypeAlias = Annotated[
    str,
    Meta(min_length=1, max_length=MAX_ID, pattern=NAME_PATTERN, description=_DIGITS),
]
Namespace: TypeAlias = Annotated[str, Meta(min_length=1, max_length=MAX_ID, pattern=NAMESPACE_PATTERN)]
Prefix: TypeAlias = Annotated[str, Meta(max_length=MAX_ID, pattern=NAME_PATTERN)]
Text: TypeAlias = Annotated[str, Meta(min_length=1)]
Count: TypeAlias = Annotated[int, Meta(ge=1, le=MAX_PAGE)]
Idle: TypeAlias = Annotated[int, Meta(ge=1, le=MAX_IDLE)]
# arrays of numbers are converted by numpy, which is faster than a list, and exact about the position
Numbers: TypeAlias = Annotated[Any, Meta(extra_json_schema={"type": "array", "items": {"type": "number"}})]
Dimensions: TypeAlias = Annotated[
    Any, Meta(extra_json_schema={"type": "array", "items": {"type": "integer", "minimum": 0}})
]
Metadata: TypeAlias = dict[str, Any]


class _Body(msgspec.Struct, rename="camel"):
    """The body of a request, or an item of one."""


class SparseVector(_Body, kw_only=True):
    """A sparse vector."""

    indices: Dimensions
    values: Numbers

    def array(self) -> SparseArray:
        """As many dimensions as values, at least one."""
        given = [*map(integral_as_int, self.indices)] if isinstance(self.indices, list) else self.indices
        indices = _items(given, "sparseVector.indices", {int}, "a whole number")
        values = read_numbers(self.values, "sparseVector.values")
        if not 0 < len(indices) == len(values):
            got = f"{len(indices)} indices and {len(values)} values"
            raise invalid("sparseVector", got, "as many of both, and at least one", status=422)
        for number, index in enumerate(indices):
            if not 0 <= index <= MAX_INDEX:
                what = f"sparseVector.indices[{number}]"
                raise invalid(what, shown(index), f"0 to {MAX_INDEX}", status=422)
        return SparseArray(np.array(indices, dtype=np.int64), values.astype(np.float64))


class UpsertText(_Body, kw_only=True):
    """Text to be embedded."""

    id: RowId
    data: Text
    metadata: Metadata | None = None


class UpsertVector(_Body, kw_only=True):
    """A vector to be stored."""

    id: RowId
    vector: Numbers | None = None
    sparse_vector: SparseVector | None = None
    metadata: Metadata | None = None
    data: Text | None = None


class UpdateVector(UpsertVector, kw_only=True):
    """What to change in a vector; what is left out stays as it is."""

    metadata_update_mode: Literal["OVERWRITE", "PATCH"] | None = None


class Included(_Body, kw_only=True):
    """What vectors are returned with."""

    include_metadata: bool | None = False
    include_vectors: bool | None = False
    include_data: bool | None = False


class SearchOptions(Included, kw_only=True):
    """How vectors are searched."""

    top_k: Count | None = None
    filter: str | None = None
    weighting_strategy: Literal["IDF"] | None = None
    fusion_algorithm: Fusion | None = None
    query_mode: Mode | None = None


class QueryByVector(SearchOptions, kw_only=True):
    """A query by a vector."""

    vector: Numbers | None = None
    sparse_vector: SparseVector | None = None


class QueryByText(SearchOptions, kw_only=True):
    """A query by text."""

    data: Text


class ResumableByVector(QueryByVector, kw_only=True):
    """A query by a vector that can be resumed."""

    max_idle: Idle | None = None


class ResumableByText(QueryByText, kw_only=True):
    """A query by text that can be resumed."""

    max_idle: Idle | None = None


class QueryEnd(_Body, kw_only=True):
    """The resumable query to end."""

    uuid: Name


class NextResults(QueryEnd, kw_only=True):
    """How many more results of a resumable query."""

    additional_k: Count


class RangePage(Included, kw_only=True):
    """A page of a range."""

    cursor: Annotated[str, Meta(pattern=CURSOR_PATTERN, description=_DIGITS)]
    limit: Count
    prefix: Prefix | None = None


class FetchVectors(Included, kw_only=True):
    """Vectors by ids or by a prefix."""

    ids: Annotated[list[RowId], Meta(max_length=MAX_PAGE)] | None = None
    prefix: Prefix | None = None


class DeleteVectors(_Body, kw_only=True):
    """The vectors to delete; exactly one field."""

    ids: RowId | Annotated[list[RowId], Meta(max_length=MAX_PAGE)] | None = None
    prefix: Name | None = None
    filter: str | None = None


class RenameNamespace(_Body, kw_only=True):
    """A namespace and its new name."""

    namespace: Namespace
    new_namespace: Namespace
    delete_existing: bool | None = False


def _inspect(body: type[msgspec.Struct]) -> None:
    msgspec.json.Decoder(body)
    for kind in body.__subclasses__():
        _inspect(kind)


_inspect(_Body)  # here, as msgspec's first inspection of a struct is not thread-safe


@dataclass(frozen=True)
class IndexQuery:
    """One query."""

    question: NDArray[np.floating] | str | None
    """A dense vector; text for the index's models; or None where there is only a sparse vector."""
    top_k: int
    include: Included
    filter: MetadataFilter | None = None
    sparse: SparseArray | None = None
    idf: bool = False
    """Whether sparse dimensions are weighted by how rare they are."""
    fusion: Fusion = "RRF"
    """How dense and sparse results become one list."""
    mode: Mode = "HYBRID"
    """Which vectors of a text a hybrid index searches with."""

    @property
    def has_both(self) -> bool:
        """Whether it has both vectors, so that two rankings are fused."""
        return self.question is not None and self.sparse is not None


def read_item(value: Any, kind: type[T], what: str = "body") -> T:
    """A body, or an item of one, as its type; 2.0 is a whole number, too, and ids and cursors become text."""
    if isinstance(value, dict):
        value = {name: integral_as_int(item) for name, item in value.items()}
        for name in _TEXTS.intersection(value):
            value[name] = _whole_as_text(value[name])
    return read_as(value, kind, what)


def _whole_as_text(value: Any) -> Any:
    """The digits of a whole number, or of each one in an array; anything else as it is.

    >>> _whole_as_text([1, "b", 2.0, True])
    ['1', 'b', '2', True]
    """
    if isinstance(value, list):
        return [_whole_as_text(item) for item in value]
    whole = integral_as_int(value)
    return str(whole) if type(whole) is int else value


def read_items(body: Any, kind: type[T], noun: Literal["row", "query"], check: Callable[[T], R]) -> list[R]:
    """The items of a body that is one or an array of them, each read and checked."""
    items = body if isinstance(body, list) else [body]
    most, plural = (MAX_BATCH, "queries") if noun == "query" else (MAX_PAGE, "rows")
    if not 1 <= len(items) <= most:
        raise invalid(f"{noun} batch", f"{len(items)} {plural}", f"1 to {most}")
    result = []
    for number, item in enumerate(items):
        with naming(f"{noun} {number}: " if isinstance(body, list) else ""):
            result.append(check(read_item(item, kind, noun)))
    return result


def index_query(query: QueryByVector | QueryByText, spec: IndexSpec, budget: FilterBudget) -> IndexQuery:
    """The query of a body, with the vectors that the index's kind needs. The budget includes its parsing."""
    question: NDArray[np.floating] | str | None
    if isinstance(query, QueryByText):
        question, sparse = read_text(query.data), None
    else:
        question, sparse = vectors_of(query, spec)
        if question is None and sparse is None:
            if spec.kind == "hybrid":
                raise invalid("query", "no vector and no sparseVector", "one of them, or both")
            raise invalid("vector" if spec.has_dense else "sparseVector", "none", "one")
    with budget.spending():
        chosen = read_filter(query.filter)
    return IndexQuery(
        question=question,
        top_k=query.top_k or 10,
        include=query,
        filter=chosen,
        sparse=sparse,
        idf=query.weighting_strategy is not None,
        fusion=query.fusion_algorithm or "RRF",
        mode=query.query_mode or "HYBRID",
    )


def vectors_of(
    body: UpsertVector | QueryByVector, spec: IndexSpec
) -> tuple[NDArray[np.float32] | None, SparseArray | None]:
    """The vectors of a body, all of which the index's kind must have."""
    if body.vector is not None and not spec.has_dense:
        raise invalid("vector", f"one for a {spec.kind} index", "sparseVector only", status=422)
    if body.sparse_vector is not None and not spec.has_sparse:
        raise invalid("sparseVector", f"one for a {spec.kind} index", "vector only", status=422)
    dense = None if body.vector is None else read_numbers(body.vector, "vector")
    if dense is not None and len(dense) != spec.dimension:
        message = f"Invalid vector dimension: {len(dense)}, expected: {spec.dimension}"
        raise ApiError(422, message, verbatim=True)
    return dense, None if body.sparse_vector is None else body.sparse_vector.array()


def read_filter(text: str | None) -> MetadataFilter | None:
    """A metadata filter; None where it is left out or blank."""
    if text is None or not text.strip():
        return None
    try:
        return parse(text)
    except InputError as error:
        raise ApiError(400, f"filter; {error}") from None


def read_row(row: UpsertVector, spec: IndexSpec) -> IndexRow:
    """A row with the vectors that the index's kind needs."""
    vector, sparse = vectors_of(row, spec)
    for name, given, needed in (
        ("vector", vector, spec.has_dense),
        ("sparseVector", sparse, spec.has_sparse),
    ):
        if given is None and needed:
            if spec.kind == "hybrid":
                raise invalid(name, "none", "both vectors: the index is hybrid", status=422)
            raise invalid(name, "none", "one")
    data = None if row.data is None else read_text(row.data)
    vector = np.empty(0, np.float32) if vector is None else vector
    return IndexRow(row.id, vector, metadata_text(row.metadata), data, sparse)


def read_text_row(row: UpsertText) -> IndexRow:
    """A row with text, without its vectors."""
    return IndexRow(row.id, np.empty(0, np.float32), metadata_text(row.metadata), read_text(row.data))


def read_text(text: str) -> str:
    """Text of a permitted size."""
    size = len(text.encode())
    if size > MAX_DATA:
        raise invalid("data", f"{size} bytes", f"1 to {MAX_DATA}")
    return text


def metadata_text(metadata: Metadata | None) -> str | None:
    """Metadata as compact JSON text, within its limits."""
    if metadata is None:
        return None
    level: list[Any] = [metadata]
    depth = 0
    while level:
        depth += 1
        if depth > MAX_NESTING:
            raise invalid("metadata", "deeper nesting", f"at most {MAX_NESTING} levels")
        inner = (item.values() if isinstance(item, dict) else item for item in level)
        level = [child for items in inner for child in items if isinstance(child, dict | list)]
    try:
        text = json.dumps(metadata, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        size = len(text.encode())
    except (TypeError, ValueError) as error:  # in process, values that are not JSON
        raise invalid("metadata", str(error)[:80], "JSON values that can be written as UTF-8") from None
    if size > MAX_METADATA:
        raise invalid("metadata", f"{size} bytes", f"at most {MAX_METADATA}")
    return text


def merge(target: Any, patch: Any) -> Any:
    """A JSON merge patch (RFC 7396): null removes a field, objects merge, everything else replaces.

    >>> merge({"a": 1, "b": {"c": 2, "d": 3}}, {"a": None, "b": {"c": 4}})
    {'b': {'c': 4, 'd': 3}}
    """
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge(merged.get(name), value)
    return merged


def integral_as_int(value: Any) -> Any:
    """An integer for a number without a fraction, such as 2.0; anything else as it is."""
    return int(value) if type(value) is float and value.is_integer() else value


def read_numbers(value: Any, what: str) -> NDArray[np.float32]:
    """Finite numbers that fit single precision."""
    items = _items(value, what, {int, float}, "a number")
    try:
        numbers = np.array(items, dtype=np.float64)
        fits = bool((np.abs(numbers) <= _LARGEST).all())
    except OverflowError:
        fits = False
    if not fits:
        index = next(index for index, item in enumerate(items) if not abs(item) <= _LARGEST)
        expected = "a finite number that fits single precision"
        raise invalid(f"{what}[{index}]", shown(items[index]), expected)
    with np.errstate(under="ignore"):
        return numbers.astype(np.float32)


def _items(value: Any, what: str, kinds: set[type], expected: str) -> Sequence[Any]:
    """The items of an array, each of one of these types."""
    items = value.tolist() if isinstance(value, np.ndarray) else value
    if not isinstance(items, list | tuple):
        raise invalid(what, shown(items), "an array of numbers")
    if not kinds.issuperset(map(type, items)):
        index = next(index for index, item in enumerate(items) if type(item) not in kinds)
        raise invalid(f"{what}[{index}]", shown(items[index]), expected)
    return items
