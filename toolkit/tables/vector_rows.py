"""Rows of vectors, field by field: strictly where that is possible, leniently where it is not.

Numbers of dense vectors and metadata are not read here: they stay the JSON text that came.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import chain
from typing import Any, Final

import msgspec

from toolkit.client.members import elements, members, read
from toolkit.client.pages import CUT, uncut
from toolkit.errors import ProtocolError
from toolkit.tables.text import clean, lenient, required_id

_NOTHING: Final = msgspec.Raw(b"")
_NULLS: Final = (b"", b"null")
_NAMES: Final = {"id", "vector", "sparseVector", "metadata", "data", "score"}
_REFUSED: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class _Wire(msgspec.Struct, gc=False):
    """A row of a strict page."""

    id: str
    vector: msgspec.Raw = _NOTHING
    sparseVector: dict[str, list[float]] | None = None  # noqa: N815 - the wire's name
    metadata: msgspec.Raw = _NOTHING
    data: str | None = None
    score: float | None = None


# made here, because the first look at a struct is not safe when several threads take it at once
_ROWS: Final = msgspec.json.Decoder(list[_Wire | None])


@dataclass(frozen=True)
class VectorRows:
    """The rows of a page, as one list a field.

    Attributes
    ----------
    ids : list of str
    vectors : list
        JSON text of the dense vector (bytes, or a view of them), None without one, or what the lenient
        reader made of it.
    sparse : list
        What stands for the sparse vector, or None.
    metadata, data : list of str or None
    scores : list
        What stands for the score, or None.
    """

    ids: list[str]
    vectors: list[Any]
    sparse: list[Any]
    metadata: list[str | None]
    data: list[str | None]
    scores: list[Any]

    @classmethod
    def joined(cls, pages: Sequence[VectorRows]) -> VectorRows:
        """The rows of several pages, one after another."""
        return cls(*(list(chain.from_iterable(getattr(page, f.name) for page in pages)) for f in fields(cls)))


def read_rows(raw: bytes, cut: tuple[memoryview, ...] = (), *, what: str) -> VectorRows:
    """The rows of a JSON array of vectors; nulls are left out.

    Parameters
    ----------
    raw : bytes
    cut : tuple of memoryview
        Dense vectors that `toolkit.client.pages.cut_vectors` took out of the array.
    what : str
        What is read, for errors.

    Returns
    -------
    VectorRows

    Raises
    ------
    ProtocolError
        When the bytes are no array of objects, or a row has no id.
    """
    try:
        found = [row for row in _ROWS.decode(raw) if row is not None]
        metadata = [None if (text := bytes(row.metadata)) in _NULLS else text.decode() for row in found]
    except _REFUSED:
        return _lenient(uncut(raw, cut), what=what)
    vectors: list[Any] = [None if (text := bytes(row.vector)) in _NULLS else text for row in found]
    if cut:
        places = [place for place, text in enumerate(vectors) if text == CUT]
        if len(places) != len(cut):
            return read_rows(uncut(raw, cut), what=what)
        for place, view in zip(places, cut, strict=True):
            vectors[place] = view
    return VectorRows(
        ids=[row.id or required_id({}, "id", what=what, place=place) for place, row in enumerate(found)],
        vectors=vectors,
        sparse=[row.sparseVector for row in found],
        metadata=metadata,
        data=[row.data for row in found],
        scores=[row.score for row in found],
    )


def _lenient(raw: bytes, *, what: str) -> VectorRows:
    found = [
        {name: _value(name, text) for name, text in row.items() if name in _NAMES}
        for row in _members(raw, what=what)
    ]
    return VectorRows(
        ids=[required_id(row, "id", what=what, place=place) for place, row in enumerate(found)],
        vectors=[row.get("vector") for row in found],
        sparse=[row.get("sparseVector") for row in found],
        metadata=[row.get("metadata") for row in found],
        data=[row.get("data") for row in found],
        scores=[row.get("score") for row in found],
    )


def _members(raw: bytes, *, what: str) -> list[dict[str, str]]:
    """The JSON text of each member of each row, as it is spelt; JSON as Python's own reader takes it."""
    try:
        rows = elements(raw.decode("utf-8", "surrogateescape"))
        return [members(row)[0] for row in rows if row != "null"]
    except ValueError:
        lenient(raw, what=what)  # says what is wrong, where it is no JSON at all
    raise ProtocolError(f"decoding {what}", got="something else", expected="a JSON array of objects")


def _value(name: str, text: str) -> Any:
    if text == "null":
        return None
    if name == "vector":
        return text.encode("utf-8", "surrogateescape")
    value = text if name == "metadata" else read(text)
    return clean(value if isinstance(value, str) else text) if name in ("metadata", "data") else value
