"""What to ask a vector index: a frozen value that queries take, widgets make and receipts record."""

from __future__ import annotations

import hashlib
import math
import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from numbers import Real
from typing import Any, Final, Literal, NamedTuple, get_args

from toolkit.errors import InputError
from toolkit.filters.metadata import MetadataFilter

WeightingStrategy = Literal["IDF"]
FusionAlgorithm = Literal["RRF", "DBSF"]
QueryMode = Literal["HYBRID", "DENSE", "SPARSE"]

_DEFAULTS: Final[dict[str, object]] = {
    "vector": None,
    "data": None,
    "sparse": None,
    "top_k": 10,
    "include_metadata": False,
    "include_vectors": False,
    "include_data": False,
    "filter": "",
    "namespace": "",
    "weighting_strategy": None,
    "fusion_algorithm": None,
    "query_mode": None,
}


class SparseVector(NamedTuple):
    """The non-zero places of a sparse vector.

    Attributes
    ----------
    indices : tuple of int
        Distinct, at least 0.
    values : tuple of float
        One for each index.
    """

    indices: tuple[int, ...]
    values: tuple[float, ...]


@dataclass(frozen=True, init=False, repr=False)
class VectorQuery:
    """What to ask a vector index: by vector, by text, by sparse vector, or by dense and sparse together.

    Parameters
    ----------
    vector : sequence of float, optional
        Dense vector with finite numbers, as many as the index has dimensions; a numpy array with one axis
        is fine.
    data : str, optional
        Text, embedded by the index's own model.
    sparse : mapping or pair, optional
        Sparse vector: ``{"indices": …, "values": …}`` or ``(indices, values)``. Together with `vector` on
        hybrid indexes.
    top_k : int, default 10
        At most this many results, at least 1.
    include_metadata, include_vectors, include_data : bool, default False
        What comes with each result beside id and score.
    filter : str or MetadataFilter, default ""
        Metadata filter, kept as its text. Text is not parsed here: the service decides what it understands.
    namespace : str, default ""
        The default namespace is "".
    weighting_strategy : {"IDF"}, optional
        Weights for sparse vectors.
    fusion_algorithm : {"RRF", "DBSF"}, optional
        How a hybrid index combines dense and sparse scores.
    query_mode : {"HYBRID", "DENSE", "SPARSE"}, optional
        Which halves of a hybrid index a text query uses; only with `data`.

    Raises
    ------
    InputError
        When it is not exactly one of these kinds of question, or a value cannot be used.

    Examples
    --------
    >>> VectorQuery(vector=[0.25, 0.5], top_k=3)
    VectorQuery(vector=<2 numbers>, top_k=3)
    >>> print(VectorQuery(data="connection refused", filter="city = 'Izmir'").to_code())
    tk.VectorQuery(data='connection refused', filter="city = 'Izmir'")
    """

    vector: tuple[float, ...] | None
    data: str | None
    sparse: SparseVector | None
    top_k: int
    include_metadata: bool
    include_vectors: bool
    include_data: bool
    filter: str
    namespace: str
    weighting_strategy: WeightingStrategy | None
    fusion_algorithm: FusionAlgorithm | None
    query_mode: QueryMode | None

    def __init__(
        self,
        *,
        vector: Iterable[float] | None = None,
        data: str | None = None,
        sparse: Mapping[str, Iterable[float]] | tuple[Iterable[int], Iterable[float]] | None = None,
        top_k: int = 10,
        include_metadata: bool = False,
        include_vectors: bool = False,
        include_data: bool = False,
        filter: str | MetadataFilter = "",  # noqa: A002 - the service's own name
        namespace: str = "",
        weighting_strategy: WeightingStrategy | None = None,
        fusion_algorithm: FusionAlgorithm | None = None,
        query_mode: QueryMode | None = None,
    ) -> None:
        values: dict[str, object] = {
            "vector": None if vector is None else _numbers("vector", vector),
            "data": None if data is None else _text("data", data),
            "sparse": None if sparse is None else _sparse(sparse),
            "top_k": _count(top_k),
            "include_metadata": _flag("include_metadata", include_metadata),
            "include_vectors": _flag("include_vectors", include_vectors),
            "include_data": _flag("include_data", include_data),
            "filter": filter.text() if isinstance(filter, MetadataFilter) else _text("filter", filter),
            "namespace": _text("namespace", namespace),
            "weighting_strategy": _choice(
                "weighting_strategy", weighting_strategy, get_args(WeightingStrategy)
            ),
            "fusion_algorithm": _choice("fusion_algorithm", fusion_algorithm, get_args(FusionAlgorithm)),
            "query_mode": _choice("query_mode", query_mode, get_args(QueryMode)),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)
        given = [name for name in ("vector", "data", "sparse") if values[name] is not None]
        if given not in (["vector"], ["data"], ["sparse"], ["vector", "sparse"]):
            raise _refusal(
                " and ".join(given) or "no question", "one of vector, data, sparse, or vector and sparse"
            )
        if self.data == "":
            raise _refusal("an empty text for data", "at least one character")
        if self.query_mode is not None and self.data is None:
            raise _refusal(f"query_mode={self.query_mode!r} without data", "query_mode only for text queries")

    def scope(self) -> dict[str, Any]:
        """What is asked, as JSON-able values: for receipts. A vector is named by its size and SHA-256."""
        chosen: dict[str, Any] = dict(self._chosen())
        if self.vector is not None:
            digest = hashlib.sha256(repr(self.vector).encode()).hexdigest()
            chosen["vector"] = {"dimension": len(self.vector), "sha256": digest}
        if self.sparse is not None:
            digest = hashlib.sha256(repr(tuple(self.sparse)).encode()).hexdigest()
            chosen["sparse"] = {"terms": len(self.sparse.indices), "sha256": digest}
        return chosen

    def to_code(self) -> str:
        """Python that makes the same query again, with whole vectors and the toolkit imported as ``tk``."""
        chosen = self._chosen()
        if self.vector is not None:
            chosen["vector"] = list(self.vector)
        if self.sparse is not None:
            chosen["sparse"] = {"indices": list(self.sparse.indices), "values": list(self.sparse.values)}
        return f"tk.VectorQuery({', '.join(f'{name}={value!r}' for name, value in chosen.items())})"

    def __repr__(self) -> str:
        chosen = {name: repr(value) for name, value in self._chosen().items()}
        if self.vector is not None:
            chosen["vector"] = f"<{len(self.vector)} numbers>"
        if self.sparse is not None:
            chosen["sparse"] = f"<{len(self.sparse.indices)} terms>"
        return f"VectorQuery({', '.join(f'{name}={value}' for name, value in chosen.items())})"

    def _chosen(self) -> dict[str, object]:
        found = ((item.name, getattr(self, item.name)) for item in fields(self))
        return {name: value for name, value in found if value != _DEFAULTS[name]}


def _numbers(name: str, values: Iterable[float]) -> tuple[float, ...]:
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise _refusal(f"{type(values).__name__} for {name}", "a sequence of finite numbers")
    numbers = tuple(_number(name, place, value) for place, value in enumerate(values))
    if not numbers:
        raise _refusal(f"no numbers for {name}", "at least one")
    return numbers


def _number(name: str, place: int, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise _refusal(f"{type(value).__name__} at position {place} of {name}", "a finite number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise _refusal(f"{number} at position {place} of {name}", "a finite number")
    return number


def _sparse(given: Mapping[str, Iterable[float]] | tuple[Iterable[float], Iterable[float]]) -> SparseVector:
    if isinstance(given, Mapping):
        if set(given) != {"indices", "values"}:
            raise _refusal(f"names {', '.join(map(str, given))} in sparse", "indices and values")
        given = (given["indices"], given["values"])
    if not isinstance(given, tuple | list) or len(given) != 2:  # noqa: PLR2004 - a pair
        raise _refusal(f"{type(given).__name__} for sparse", "indices and values")
    indices, values = _numbers("sparse indices", given[0]), _numbers("sparse values", given[1])
    whole = tuple(int(index) for index in indices)
    if whole != indices or min(whole) < 0 or len(set(whole)) != len(whole):
        raise _refusal(
            "sparse indices that are negative, fractional or repeated", "distinct whole numbers from 0"
        )
    if len(whole) != len(values):
        raise _refusal(f"{len(whole)} sparse indices and {len(values)} values", "as many of each")
    return SparseVector(whole, values)


def _count(value: object) -> int:
    try:
        count = 0 if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        count = 0
    if count < 1:
        raise _refusal(f"top_k={value!r}", "a whole number from 1")
    return count


def _flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise _refusal(f"{name}={value!r}", "True or False")
    return value


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise _refusal(f"{type(value).__name__} for {name}", "text")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _refusal(f"a lone surrogate in {name}", "text that can be sent as UTF-8") from None
    return str(value)


def _choice(name: str, value: object, allowed: tuple[str, ...]) -> object:
    if value is not None and value not in allowed:
        raise _refusal(f"{name}={value!r}", f"None or one of {', '.join(allowed)}")
    return value


def _refusal(got: str, expected: str) -> InputError:
    return InputError("making a vector query", got=got, expected=expected)
