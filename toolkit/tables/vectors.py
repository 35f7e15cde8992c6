"""Decode vectors and query results from pages of JSON to tables.

A page is decoded strictly if possible, and otherwise leniently, member by member. Both decoders keep metadata
and dense vectors as JSON text: metadata stays text in the frame, the numbers are read by ``floats.py``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import repeat
from operator import is_
from typing import Any, Final

import msgspec
import pyarrow as pa

from toolkit.base.cut_vectors import CUT, uncut
from toolkit.base.errors import ProtocolError
from toolkit.base.members import RawJson, elements, members, read_json, shown
from toolkit.tables import schemas
from toolkit.tables.column_values import clean, whole_number
from toolkit.tables.floats import BEYOND_FLOAT32, Singles, as_value, dense_column
from toolkit.tables.json_rows import lenient, required_id

_VECTORS: Final = "vectors"
_HITS: Final = "query results"
_ABSENT: Final = msgspec.Raw(b"")  # no JSON value is empty
_NULLS: Final = (b"", b"null")
_DECODE_ERRORS: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class VectorRow(msgspec.Struct, gc=False):
    """A vector or a query result. After lenient decoding, members can have any type."""

    id: str
    vector: Any = None
    sparse: Any = None
    metadata: Any = None
    data: str | None = None
    score: Any = None


class _StrictRow(VectorRow, gc=False, rename={"sparse": "sparseVector"}):
    """A row as specified."""

    vector: msgspec.Raw = _ABSENT
    sparse: dict[str, list[float]] | None = None
    metadata: msgspec.Raw = _ABSENT
    score: float | None = None


# Made at import, because the first access to a struct is not thread-safe.
_ROWS: Final = msgspec.json.Decoder(list[_StrictRow | None])


def decode_vectors(
    rows: bytes,
    cut: tuple[memoryview, ...] = (),
    *,
    namespace: str,
    dimension: int | None,
    want_vectors: bool = True,
    numbers: Singles | None = None,
) -> pa.Table:
    """Return the rows of a range or fetch as a table of ``schemas.vectors(dimension)``, without null rows.

    `cut` are the dense vectors if they were cut out of the rows (see `Page.cut`). `numbers` are the numbers
    of these vectors if they have been read already.

    A vector that cannot be used (null, of another dimension, not finite as float32) is null, and
    ``vector_problem`` gives the reason. With `want_vectors`, a row without any vector also gets a reason.
    Raise ProtocolError if the bytes are not an array of objects with ids.
    """
    decoded = read_rows(rows, cut, what=_VECTORS)
    vectors = [row.vector for row in decoded]
    # if the cut was wrong, `read_rows` has read other vectors, and `numbers` are not the numbers of these
    # rows
    is_cut_right = len(decoded) == len(cut) and all(map(is_, vectors, cut))

    try:
        if not is_cut_right:
            numbers = None
        dense, problems = dense_column(vectors, dimension, numbers)
    except ValueError:
        if not cut:
            raise _unreadable(_VECTORS) from None
        # The parts that were cut out are not JSON by themselves, so the cut was wrong: read the page uncut.
        return decode_vectors(
            uncut(rows, cut),
            namespace=namespace,
            dimension=dimension,
            want_vectors=want_vectors,
        )

    if want_vectors:
        for index, row in enumerate(decoded):
            if row.vector is None and not row.sparse:
                problems[index] = "no vector"

    namespaces = pa.repeat(pa.scalar(namespace, pa.string()), len(decoded))
    columns = {"namespace": namespaces, **_columns(decoded, dense, problems)}
    return pa.table(columns, schema=schemas.vectors(dimension))


def decode_hits(
    responses: Sequence[bytes],
    *,
    vectors: bool = True,
    metadata: bool = True,
    data: bool = True,
) -> pa.Table:
    """Return the results of a batch of queries, one JSON array per query, as a table of ``schemas.hits``."""
    hits: list[VectorRow] = []
    queries: list[int] = []
    ranks: list[int] = []
    for query, response in enumerate(responses):
        results = read_rows(response, what=_HITS)
        hits += results
        queries += repeat(query, len(results))
        ranks += range(1, len(results) + 1)

    try:
        dimension = _first_dimension(hits)
        dense, problems = dense_column([row.vector for row in hits], dimension)
    except ValueError:
        raise _unreadable(_HITS) from None

    scores = [_score(row.score, index) for index, row in enumerate(hits)]
    columns = {
        "query": pa.array(queries, pa.int64()),
        "rank": pa.array(ranks, pa.int64()),
        "score": pa.array(scores, pa.float64()),
        **_columns(hits, dense, problems),
    }
    schema = schemas.hits(dimension, vectors=vectors, metadata=metadata, data=data)

    return pa.table({name: columns[name] for name in schema.names}, schema=schema)


def read_rows(
    raw: bytes, cut: tuple[memoryview, ...] = (), *, what: str
) -> list[VectorRow]:
    """Return the rows of a JSON array of vectors, with the vectors that were cut out, without null rows."""
    try:
        rows = _strict_rows(raw, what=what)
    except _DECODE_ERRORS:
        return list(_lenient_rows(uncut(raw, cut), what=what))

    if not cut:
        return rows

    rows_with_placeholder = [row for row in rows if row.vector == CUT]
    if len(rows_with_placeholder) != len(cut):
        # For example, a member of the metadata was cut out.
        return read_rows(uncut(raw, cut), what=what)

    for row, vector in zip(rows_with_placeholder, cut, strict=True):
        row.vector = vector
    return rows


def _strict_rows(raw: bytes, *, what: str) -> list[VectorRow]:
    rows: list[VectorRow] = [row for row in _ROWS.decode(raw) if row is not None]
    for index, row in enumerate(rows):
        row.id = row.id or required_id({}, "id", what=what, index=index)
        vector, metadata = bytes(row.vector), bytes(row.metadata)
        row.vector = row.metadata = None
        if vector not in _NULLS:
            row.vector = vector
        if metadata not in _NULLS:
            row.metadata = metadata.decode()

    return rows


def _lenient_rows(raw: bytes, *, what: str) -> Iterator[VectorRow]:
    """Yield the rows, each member as raw text. Python's JSON reader decides if the text is JSON."""
    try:
        texts = elements(raw.decode("utf-8", "surrogateescape"))
        rows = [members(text)[0] for text in texts if text != "null"]
    except ValueError:
        lenient(raw, what=what)  # raises an error with the position if it is not JSON
        raise ProtocolError(
            f"decoding {what}",
            got="another JSON value",
            expected="a JSON array of objects",
        ) from None

    for index, row in enumerate(rows):
        present = {name: text for name, text in row.items() if text != "null"}
        identity = {"id": _member_value(present, "id")}
        vector = present.get("vector", "").encode("utf-8", "surrogateescape")
        metadata = clean(present.get("metadata", ""))
        yield VectorRow(
            id=required_id(identity, "id", what=what, index=index),
            # JSON is never empty text
            vector=vector or None,
            sparse=_member_value(present, "sparseVector"),
            metadata=metadata or None,
            data=_lenient_data(present),
            score=_member_value(present, "score"),
        )


def _member_value(members_present: dict[str, str], name: str) -> Any:
    text = members_present.get(name)
    if text is None:
        return None

    return read_json(text)


def _lenient_data(members_present: dict[str, str]) -> str | None:
    """Return the data of a row. A value that is not a string stays JSON text."""
    data = _member_value(members_present, "data")
    if data is None:
        return None

    if not isinstance(data, str):
        data = members_present["data"]
    return clean(data)


def _score(score: Any, index: int) -> float:
    """Return a score as a float. An integer with more digits than a float can have becomes infinite."""
    if isinstance(score, RawJson) and score.text[0] not in "[{":
        return float(score.text)
    # the type of True is bool, which is no number here
    if type(score) not in (int, float):
        got = f"score={shown(score)} in hit {index}"
        raise ProtocolError(f"decoding {_HITS}", got=got, expected="a number")

    try:
        return float(score)
    except OverflowError:
        if score > 0:
            return math.inf
        return -math.inf


def _unreadable(what: str) -> ProtocolError:
    return ProtocolError(
        f"decoding {what}",
        got="a vector that is not JSON",
        expected="an array of numbers",
    )


def _first_dimension(rows: Sequence[VectorRow]) -> int | None:
    """Return the length of the first dense vector that is a list, or None."""
    for row in rows:
        vector = None
        if row.vector is not None:
            vector = as_value(row.vector)
        if isinstance(vector, list):
            return len(vector) or None

    return None


def _columns(
    rows: Sequence[VectorRow], dense: pa.Array, problems: list[str | None]
) -> dict[str, pa.Array]:
    """Return the columns that vectors and hits share. Add the problems of sparse vectors to `problems`."""
    indices: list[list[int | None] | None] = []
    values: list[list[float] | None] = []
    for row_number, row in enumerate(rows):
        row_indices, row_values = _sparse(row.sparse)
        if row.sparse is not None and row_indices is None:
            reasons = (problems[row_number], "sparse vector not usable")
            problems[row_number] = "; ".join(filter(None, reasons))

        indices.append(row_indices)
        values.append(row_values)

    return {
        "id": pa.array([row.id for row in rows], pa.string()),
        "vector": dense,
        "sparse_indices": pa.array(indices, pa.list_(pa.int64())),
        "sparse_values": pa.array(values, pa.list_(pa.float32())),
        "metadata": pa.array([row.metadata for row in rows], pa.string()),
        "data": pa.array([row.data for row in rows], pa.string()),
        "vector_problem": pa.array(problems, pa.string()),
    }


def _sparse(value: Any) -> tuple[list[int | None] | None, list[float] | None]:
    """Return the indices and values of a sparse vector, or None and None if it cannot be used."""
    if not isinstance(value, dict):
        return None, None

    indices, values = value.get("indices"), value.get("values")
    if not isinstance(indices, list) or not isinstance(values, list):
        return None, None

    whole_indices = list(map(whole_number, indices))
    are_usable = None not in whole_indices and all(map(_fits_float32, values))
    if len(indices) != len(values) or not are_usable:
        return None, None

    return whole_indices, list(map(float, values))


def _fits_float32(number: Any) -> bool:
    # a bool is not a number of a vector
    return type(number) in (int, float) and -BEYOND_FLOAT32 < number < BEYOND_FLOAT32
