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

from toolkit.base.errors import InputError
from toolkit.filters.metadata import MetadataFilter, parse
from toolkit_service.api import (
    CURSOR_PATTERN,
    NAME_PATTERN,
    NAMESPACE_PATTERN,
    ApiError,
    invalid,
    naming,
    read_as,
    shown,
)
from toolkit_service.vectors.index_database import IndexRow
from toolkit_service.vectors.rows import FilterBudget
from toolkit_service.vectors.sparse import MAX_INDEX, SparseArray
from toolkit_service.vectors.specs import IndexSpec

T = TypeVar("T")
R = TypeVar("R")

# limits; only the limits of metadata and text are publicly documented
MAX_ID: Final = 1024  # characters of an id, a prefix or a namespace
MAX_METADATA: Final = 48 * 1024  # bytes of a vector's metadata
MAX_NESTING: Final = 100  # levels of a vector's metadata
MAX_DATA: Final = 1024 * 1024  # bytes of a vector's text
MAX_PAGE: Final = 10_000  # results of a query, vectors in a range page, ids in a fetch, rows in an upsert
MAX_BATCH: Final = 1000  # queries in a batch
# longest pause in seconds between two calls of a resumable query
MAX_IDLE: Final = 86_400
# seconds if the request names none; the default of the public client
DEFAULT_IDLE: Final = 3600

_LARGEST: Final = 3.4028235e38
"""The largest float32 in its shortest digits, as in responses: a little above the exact number."""

_TEXTS: Final = frozenset({"id", "ids", "cursor"})
"""Text fields of bodies that clients may send as whole numbers."""

Fusion: TypeAlias = Literal["RRF", "DBSF"]
Mode: TypeAlias = Literal["HYBRID", "DENSE", "SPARSE"]
_DIGITS: Final = "Text; a whole number becomes its digits."
Name: TypeAlias = Annotated[
    str, Meta(min_length=1, max_length=MAX_ID, pattern=NAME_PATTERN)
]
RowId: TypeAlias = Annotated[
    str,
    Meta(min_length=1, max_length=MAX_ID, pattern=NAME_PATTERN, description=_DIGITS),
]
Namespace: TypeAlias = Annotated[
    str, Meta(min_length=1, max_length=MAX_ID, pattern=NAMESPACE_PATTERN)
]
Prefix: TypeAlias = Annotated[str, Meta(max_length=MAX_ID, pattern=NAME_PATTERN)]
Text: TypeAlias = Annotated[str, Meta(min_length=1)]
Count: TypeAlias = Annotated[int, Meta(ge=1, le=MAX_PAGE)]
Idle: TypeAlias = Annotated[int, Meta(ge=1, le=MAX_IDLE)]
# arrays of numbers are converted by numpy, which is faster than a list, and exact about the position
Numbers: TypeAlias = Annotated[
    Any, Meta(extra_json_schema={"type": "array", "items": {"type": "number"}})
]
Dimensions: TypeAlias = Annotated[
    Any,
    Meta(
        extra_json_schema={"type": "array", "items": {"type": "integer", "minimum": 0}}
    ),
]
Metadata: TypeAlias = dict[str, Any]


class _Body(msgspec.Struct, rename="camel"):
    """The body of a request, or an item of one."""


class SparseVector(_Body, kw_only=True):
    """A sparse vector."""

    indices: Dimensions
    values: Numbers

    def array(self) -> SparseArray:
        """Return the vector after checking that it has as many dimensions as values, at least one."""
        listed = self.indices
        if isinstance(listed, list):
            listed = [integral_as_int(index) for index in listed]
        indices = _items(listed, "sparseVector.indices", {int}, "a whole number")

        values = read_numbers(self.values, "sparseVector.values")
        if not 0 < len(indices) == len(values):
            got = f"{len(indices)} indices and {len(values)} values"
            raise invalid(
                "sparseVector", got, "as many of both, and at least one", status=422
            )

        for position, index in enumerate(indices):
            if not 0 <= index <= MAX_INDEX:
                field = f"sparseVector.indices[{position}]"
                raise invalid(field, shown(index), f"0 to {MAX_INDEX}", status=422)

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
    """Changes of a vector; omitted fields stay as they are."""

    metadata_update_mode: Literal["OVERWRITE", "PATCH"] | None = None


class Included(_Body, kw_only=True):
    """The parts of vectors to return."""

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
    """The number of further results of a resumable query."""

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


# at import: the first inspection of a struct by msgspec is not thread-safe
_inspect(_Body)


@dataclass(frozen=True)
class IndexQuery:
    """One query."""

    question: NDArray[np.floating] | str | None
    """A dense vector, or text for the models of the index. None if the query has only a sparse vector."""
    top_k: int
    include: Included
    filter: MetadataFilter | None = None
    sparse: SparseArray | None = None
    idf: bool = False
    """Whether rare sparse dimensions weigh more."""
    fusion: Fusion = "RRF"
    """How dense and sparse results become one list."""
    mode: Mode = "HYBRID"
    """The vectors of a text with which a hybrid index searches."""

    @property
    def has_both(self) -> bool:
        """Return True if the query has both vectors, so that two rankings are fused."""
        return self.question is not None and self.sparse is not None


def read_item(item: Any, kind: type[T], source: str = "body") -> T:
    """Return a body, or an item of one, as a struct.

    Whole numbers may be written as floats (2.0), and ids and cursors as numbers.
    """
    if isinstance(item, dict):
        item = {name: integral_as_int(content) for name, content in item.items()}
        for name in _TEXTS.intersection(item):
            item[name] = _whole_as_text(item[name])

    return read_as(item, kind, source)


def _whole_as_text(item: Any) -> Any:
    """Return the digits of a whole number, or of each one in an array. Other values are returned as they are.

    >>> _whole_as_text([1, "b", 2.0, True])
    ['1', 'b', '2', True]
    """
    if isinstance(item, list):
        return [_whole_as_text(element) for element in item]

    number = integral_as_int(item)
    # not isinstance: True is an int
    if type(number) is int:
        return str(number)

    return item


def read_items(
    body: Any, kind: type[T], noun: Literal["row", "query"], check: Callable[[T], R]
) -> list[R]:
    """Read and check the items of a body, which is one item or an array of them."""
    is_array = isinstance(body, list)
    items = body if is_array else [body]
    most, plural = _BATCH_LIMITS[noun]
    if not 1 <= len(items) <= most:
        raise invalid(f"{noun} batch", f"{len(items)} {plural}", f"1 to {most}")
    if not is_array:
        return [check(read_item(body, kind, noun))]

    checked = []
    for position, item in enumerate(items):
        with naming(f"{noun} {position}: "):
            checked.append(check(read_item(item, kind, noun)))

    return checked


_BATCH_LIMITS: Final = {"query": (MAX_BATCH, "queries"), "row": (MAX_PAGE, "rows")}


def index_query(
    query: QueryByVector | QueryByText, spec: IndexSpec, budget: FilterBudget
) -> IndexQuery:
    """Return the query of a body, with the vectors that the kind of index needs.

    Parsing the filter counts against the budget.
    """
    question: NDArray[np.floating] | str | None
    sparse: SparseArray | None = None
    if isinstance(query, QueryByText):
        question = read_text(query.data)
    else:
        question, sparse = vectors_of(query, spec)
        _check_has_vector(question, sparse, spec)

    # parsing a long filter takes time as well
    with budget.spending():
        metadata_filter = read_filter(query.filter)
    return IndexQuery(
        question=question,
        top_k=query.top_k or DEFAULT_TOP_K,
        include=query,
        filter=metadata_filter,
        sparse=sparse,
        idf=query.weighting_strategy is not None,
        fusion=query.fusion_algorithm or "RRF",
        mode=query.query_mode or "HYBRID",
    )


DEFAULT_TOP_K: Final = 10


def _check_has_vector(
    dense: NDArray[np.floating] | None, sparse: SparseArray | None, spec: IndexSpec
) -> None:
    if dense is not None or sparse is not None:
        return
    if spec.kind == "hybrid":
        raise invalid("query", "no vector and no sparseVector", "one of them, or both")

    field = "vector" if spec.has_dense else "sparseVector"
    raise invalid(field, "no value", "one")


def vectors_of(
    body: UpsertVector | QueryByVector, spec: IndexSpec
) -> tuple[NDArray[np.float32] | None, SparseArray | None]:
    """Return the vectors of a body. Raise an `ApiError` if the kind of index has no such vectors."""
    dense, sparse = None, None
    if body.vector is not None:
        if not spec.has_dense:
            raise invalid(
                "vector",
                f"one for a {spec.kind} index",
                "sparseVector only",
                status=422,
            )

        dense = read_numbers(body.vector, "vector")
        if len(dense) != spec.dimension:
            message = (
                f"Invalid vector dimension: {len(dense)}, expected: {spec.dimension}"
            )
            raise ApiError(422, message, verbatim=True)

    if body.sparse_vector is not None:
        if not spec.has_sparse:
            raise invalid(
                "sparseVector",
                f"one for a {spec.kind} index",
                "vector only",
                status=422,
            )

        sparse = body.sparse_vector.array()

    return dense, sparse


def read_filter(text: str | None) -> MetadataFilter | None:
    """Parse a metadata filter. Return None if it is omitted or blank."""
    if text is None or not text.strip():
        return None

    try:
        return parse(text)
    except InputError as error:
        raise ApiError(400, f"filter; {error}") from None


def read_row(row: UpsertVector, spec: IndexSpec) -> IndexRow:
    """Return a row with the vectors that the kind of index needs."""
    vector, sparse = vectors_of(row, spec)
    if vector is None:
        if spec.has_dense:
            raise _missing_vector("vector", spec)
        vector = np.empty(0, np.float32)

    if sparse is None and spec.has_sparse:
        raise _missing_vector("sparseVector", spec)

    data = None if row.data is None else read_text(row.data)
    return IndexRow(row.id, vector, metadata_text(row.metadata), data, sparse)


def _missing_vector(field: str, spec: IndexSpec) -> ApiError:
    if spec.kind == "hybrid":
        return invalid(
            field, "no value", "both vectors: the index is hybrid", status=422
        )

    return invalid(field, "no value", "one")


def read_text_row(row: UpsertText) -> IndexRow:
    """Return a row with text, without vectors."""
    return IndexRow(
        row.id,
        np.empty(0, np.float32),
        metadata_text(row.metadata),
        read_text(row.data),
    )


def read_text(text: str) -> str:
    """Return the text of a row or a query after checking the size."""
    size = len(text.encode())
    if size > MAX_DATA:
        raise invalid("data", f"{size} bytes", f"1 to {MAX_DATA}")

    return text


def metadata_text(metadata: Metadata | None) -> str | None:
    """Return metadata as compact JSON, after checking depth and size."""
    if metadata is None:
        return None

    _check_nesting(metadata)
    try:
        text = json.dumps(
            metadata, ensure_ascii=False, allow_nan=False, separators=(",", ":")
        )
        size = len(text.encode())
    except (TypeError, ValueError) as error:
        # only from callers in this process: values that are not JSON
        raise invalid(
            "metadata", str(error)[:80], "JSON values that can be written as UTF-8"
        ) from None

    if size > MAX_METADATA:
        raise invalid("metadata", f"{size} bytes", f"at most {MAX_METADATA}")

    return text


def _check_nesting(metadata: Metadata) -> None:
    """Raise an `ApiError` if objects and arrays nest too deep.

    The values are visited level by level (breadth first): recursion could exceed the stack.
    """
    level: list[Any] = [metadata]
    depth = 0
    while level:
        depth += 1
        if depth > MAX_NESTING:
            raise invalid("metadata", "deeper nesting", f"at most {MAX_NESTING} levels")

        next_level: list[Any] = []
        for container in level:
            children = container.values() if isinstance(container, dict) else container
            next_level += [
                child for child in children if isinstance(child, dict | list)
            ]

        level = next_level


def merge(target: Any, patch: Any) -> Any:
    """Apply a JSON merge patch (RFC 7396): null removes a field, objects merge, other values replace.

    >>> merge({"a": 1, "b": {"c": 2, "d": 3}}, {"a": None, "b": {"c": 4}})
    {'b': {'c': 4, 'd': 3}}
    """
    if not isinstance(patch, dict):
        return patch

    merged = dict(target) if isinstance(target, dict) else {}
    for name, change in patch.items():
        if change is None:
            merged.pop(name, None)
        else:
            merged[name] = merge(merged.get(name), change)

    return merged


def integral_as_int(content: Any) -> Any:
    """Return an integer for a float without a fraction, for example 2.0; other values as they are."""
    if type(content) is float and content.is_integer():
        return int(content)
    return content


def read_numbers(listed: Any, source: str) -> NDArray[np.float32]:
    """Return finite numbers that fit single precision. An error names the first one that does not."""
    items = _items(listed, source, {int, float}, "a number")
    try:
        numbers = np.array(items, dtype=np.float64)
        fits = bool((np.abs(numbers) <= _LARGEST).all())
    except OverflowError:
        # an integer beyond float64
        fits = False

    if not fits:
        position = next(
            position for position, item in enumerate(items) if not abs(item) <= _LARGEST
        )
        expected = "a finite number that fits single precision"
        raise invalid(f"{source}[{position}]", shown(items[position]), expected)

    with np.errstate(under="ignore"):
        return numbers.astype(np.float32)


def _items(listed: Any, source: str, kinds: set[type], expected: str) -> Sequence[Any]:
    """Return the items of an array after checking that each has one of the types."""
    items = listed.tolist() if isinstance(listed, np.ndarray) else listed
    if not isinstance(items, list | tuple):
        raise invalid(source, shown(items), "an array of numbers")

    # the types of all items at once: a loop in Python is slow for long vectors
    if not kinds.issuperset(map(type, items)):
        position = next(
            position for position, item in enumerate(items) if type(item) not in kinds
        )
        raise invalid(f"{source}[{position}]", shown(items[position]), expected)

    return items
