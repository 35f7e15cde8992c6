"""What a similarity query is asked by, as a value: a text, vectors, or an id to fetch."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import pandas as pd

from toolkit.analysis.wording import counted, shorten
from toolkit.errors import InputError
from toolkit.filters.query import SparseVector, VectorQuery

_LONGEST: Final = 80  # characters of a text or an id that are said again
_FORM: Final = 'an array such as [0.1, 0.2], numbers with commas, or {"indices": [3], "values": [0.5]}'


@dataclass(frozen=True)
class Question:
    """What is asked by, without the options.

    Attributes
    ----------
    data : str or None
        A text.
    vector : tuple of float or None
    sparse : SparseVector or None
    stored : str or None
        The id that the vectors belong to. With neither vector here, they are fetched when it is asked.
    place : str
        Where the vectors of a stored id come from, in words.
    """

    data: str | None = None
    vector: tuple[float, ...] | None = None
    sparse: SparseVector | None = None
    stored: str | None = None
    place: str = ""

    @property
    def pending(self) -> bool:
        """Whether its vectors have to be fetched."""
        return self.data is None and self.vector is None and self.sparse is None

    def query(self, options: Mapping[str, Any]) -> VectorQuery:
        """The whole query. The mode is left out where no text is asked by: no vector query has one.

        Raises
        ------
        InputError
        """
        chosen = dict(options)
        if self.data is None:
            chosen.pop("query_mode", None)
        return VectorQuery(data=self.data, vector=self.vector, sparse=self.sparse, **chosen)

    def words(self, masked: Callable[[str], str] = str) -> str:
        """What is asked by, as a sentence; texts are masked before they are cut.

        >>> Question(vector=(0.5, 1.0), stored="rb-7", place="the frame").words()
        'Asked by the vector of rb-7, from the frame: 2 numbers.'
        """
        if self.data is not None:
            return f"Asked by the text “{shorten(masked(self.data), _LONGEST)}”."
        named = None if self.stored is None else shorten(masked(self.stored), _LONGEST)
        name = "a vector" if named is None else f"the vector of {named}"
        if self.pending:
            return f"Asked by {name}, which Ask fetches first. Until then the value is None."
        parts = [counted(len(self.vector), "number")] if self.vector is not None else []
        parts += [counted(len(self.sparse.indices), "sparse term")] if self.sparse is not None else []
        origin = f", from {self.place}" if self.place else ""
        return f"Asked by {name}{origin}: {' and '.join(parts)}."


def asked_by(query: VectorQuery) -> Question:
    """The question of a query."""
    return Question(query.data, query.vector, query.sparse)


def vectors_typed(text: str, masked: Callable[[str], str] = str) -> Question:
    """The vectors that a pasted text holds.

    Parameters
    ----------
    text : str
        A JSON array or numbers between commas or spaces: a dense vector. A JSON object with ``indices`` and
        ``values``: a sparse one. With ``vector`` and ``sparse``: both.
    masked : callable, optional
        Masks what an error repeats of it, before it is cut.

    Raises
    ------
    InputError
        When it is none of these, or a number is not finite.

    Examples
    --------
    >>> vectors_typed("0.5, 1").vector
    (0.5, 1.0)
    >>> vectors_typed('{"indices": [7], "values": [0.5]}').sparse
    SparseVector(indices=(7,), values=(0.5,))
    """
    doing = "reading a vector"
    if text[:1] not in ("[", "{"):
        items = re.split(r"\s*,\s*|\s+", text.strip().removesuffix(",").rstrip())
        try:
            numbers = [float(item) for item in items]
        except ValueError:
            wrong = next(item for item in items if not _is_number(item))
            raise InputError(doing, got=repr(shorten(masked(wrong), _LONGEST)), expected=_FORM) from None
        return asked_by(VectorQuery(vector=numbers))
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(doing, got=f"no JSON ({shorten(str(error), _LONGEST)})", expected=_FORM) from None
    if isinstance(found, list):
        return asked_by(VectorQuery(vector=found))
    if set(found) == {"indices", "values"}:
        return asked_by(VectorQuery(sparse=found))
    if set(found) == {"vector", "sparse"}:
        return asked_by(VectorQuery(vector=found["vector"], sparse=found["sparse"]))
    names = shorten(masked(", ".join(found)), _LONGEST)
    raise InputError(doing, got=f"names {names or 'none'}", expected=_FORM)


def written(question: Question) -> str:
    """The vectors as `vectors_typed` reads them; empty without one."""
    vector = None if question.vector is None else list(question.vector)
    sparse = None if question.sparse is None else question.sparse._asdict()
    if vector is not None and sparse is not None:
        return json.dumps({"vector": vector, "sparse": sparse})
    found = vector if vector is not None else sparse
    return "" if found is None else json.dumps(found)


def vectors_of(row: Mapping[str, Any], place: str, masked: Callable[[str], str] = str) -> Question:
    """The vectors of a row of a frame. An error says its id, masked before it is cut.

    Raises
    ------
    InputError
        When it has none that can be used.
    """
    names = ("vector", "sparse_indices", "sparse_values")
    dense, indices, values = (_listed(row.get(name)) for name in names)
    identity = str(row["id"])
    if dense is None and (indices is None or values is None):
        problem = row.get("vector_problem")
        raise InputError(
            f"asking by the vector of {shorten(masked(identity), _LONGEST)!r}",
            got=problem if isinstance(problem, str) else f"no vector in {place}",
            expected="a usable vector",
            next_step="Load vectors with include_vectors=True, or choose another one.",
        )
    sparse = None if indices is None or values is None else (indices, values)
    return replace(asked_by(VectorQuery(vector=dense, sparse=sparse)), stored=identity, place=place)


def _listed(value: Any) -> list[Any] | None:
    return None if value is None or (pd.api.types.is_scalar(value) and pd.isna(value)) else list(value)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
