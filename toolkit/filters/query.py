"""A query of a vector index: a frozen value that queries accept, widgets make and receipts record."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from inspect import signature
from numbers import Real
from typing import Any, Final, Literal, NamedTuple, get_args

import numpy as np

from toolkit.arguments import choice, flag, nearest, shown, text, unmasked, whole, wrong
from toolkit.errors import InputError
from toolkit.filters.metadata import MetadataFilter
from toolkit.python_code import PublicCall

WeightingStrategy = Literal["IDF"]
FusionAlgorithm = Literal["RRF", "DBSF"]
QueryMode = Literal["HYBRID", "DENSE", "SPARSE"]


class SparsePair(NamedTuple):
    """The non-zero elements of a sparse vector; the service adds up the values of repeated indices."""

    indices: tuple[int, ...]
    values: tuple[float, ...]


@dataclass(frozen=True, init=False, repr=False)
class VectorQuery:
    """A query of a vector index: by vector, text, sparse vector, dense and sparse together, or stored id.

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
    id : str, optional
        Id of a vector in the index: what is similar to it. The vector is fetched first.
    exclude_self : bool, default False
        Whether the vector with this `id` is left out of its own results.
    top_k : int, default 10
        At most this many results, at least 1.
    include_metadata, include_vectors, include_data : bool, default False
        What is returned of each result in addition to id and score.
    filter : str or MetadataFilter, default ""
        Metadata filter, kept as its text. Text is not parsed here: the service decides what it understands.
    namespace : str, default ""
        The default namespace is "".
    weighting_strategy : {"IDF"}, optional
        Weights for sparse vectors.
    fusion_algorithm : {"RRF", "DBSF"}, optional
        How a hybrid index combines dense and sparse scores.
    query_mode : {"HYBRID", "DENSE", "SPARSE"}, optional
        Which vectors of a hybrid index a text query uses; only with `data`.

    Raises
    ------
    InputError
        When it is not exactly one of these kinds of query, or a value cannot be used.

    Examples
    --------
    >>> VectorQuery(vector=[0.25, 0.5], top_k=3)
    VectorQuery(vector=<2 numbers>, top_k=3)
    >>> print(VectorQuery(data="connection refused", filter="city = 'Izmir'").to_code())
    tk.VectorQuery(data='connection refused', filter="city = 'Izmir'")
    """

    vector: tuple[float, ...] | None
    data: str | None
    sparse: SparsePair | None
    id: str | None
    exclude_self: bool
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
        id: str | None = None,  # noqa: A002 - the service's own name
        exclude_self: bool = False,
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
            "vector": None if vector is None else tuple(numbers("vector", vector)),
            "data": None if data is None else text("data", data, empty=False),
            "sparse": None if sparse is None else sparse_vector("sparse", sparse),
            "id": None if id is None else unmasked("id", text("id", id, empty=False)),
            "exclude_self": flag("exclude_self", exclude_self),
            "top_k": whole("top_k", top_k),
            "include_metadata": flag("include_metadata", include_metadata),
            "include_vectors": flag("include_vectors", include_vectors),
            "include_data": flag("include_data", include_data),
            "filter": filter.text() if isinstance(filter, MetadataFilter) else text("filter", filter),
            "namespace": unmasked("namespace", text("namespace", namespace)),
            "weighting_strategy": choice(
                "weighting_strategy", weighting_strategy, get_args(WeightingStrategy), optional=True
            ),
            "fusion_algorithm": choice(
                "fusion_algorithm", fusion_algorithm, get_args(FusionAlgorithm), optional=True
            ),
            "query_mode": choice("query_mode", query_mode, get_args(QueryMode), optional=True),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)
        given = [name for name in ("vector", "data", "sparse", "id") if values[name] is not None]
        if given not in (["vector"], ["data"], ["sparse"], ["vector", "sparse"], ["id"]):
            raise _wrong_query(
                " and ".join(given) or "no question", "one of vector, data, sparse, id, or vector and sparse"
            )
        if self.query_mode is not None and self.data is None:
            raise _wrong_query(
                f"query_mode={self.query_mode!r} without data", "query_mode only for text queries"
            )
        if self.exclude_self and self.id is None:
            raise _wrong_query("exclude_self=True without id", "exclude_self only for queries by id")

    def scope(self) -> dict[str, Any]:
        """The query as JSON-able values, for receipts. A vector is identified by its size and SHA-256."""
        chosen: dict[str, Any] = dict(self._chosen())
        if self.vector is not None:
            digest = hashlib.sha256(repr(self.vector).encode()).hexdigest()
            chosen["vector"] = {"dimension": len(self.vector), "sha256": digest}
        if self.sparse is not None:
            digest = hashlib.sha256(repr(tuple(self.sparse)).encode()).hexdigest()
            chosen["sparse"] = {"terms": len(self.sparse.indices), "sha256": digest}
        return chosen

    def to_code(self) -> str:
        """Python that makes the same query, with complete vectors and the toolkit imported as ``tk``."""
        chosen = self._chosen()
        if self.vector is not None:
            chosen["vector"] = list(self.vector)
        if self.sparse is not None:
            chosen["sparse"] = {"indices": list(self.sparse.indices), "values": list(self.sparse.values)}
        return _CALL.write(**chosen)

    def __repr__(self) -> str:
        chosen = {name: repr(value) for name, value in self._chosen().items()}
        if self.vector is not None:
            chosen["vector"] = f"<{len(self.vector)} numbers>"
        if self.sparse is not None:
            chosen["sparse"] = f"<{len(self.sparse.indices)} terms>"
        return f"VectorQuery({', '.join(f'{name}={value}' for name, value in chosen.items())})"

    def _chosen(self) -> dict[str, object]:
        values = ((item.name, getattr(self, item.name)) for item in fields(self))
        return {name: value for name, value in values if value != _DEFAULTS[name].default}


_DEFAULTS: Final = signature(VectorQuery).parameters
_CALL: Final = PublicCall("VectorQuery", tuple(_DEFAULTS))


def numbers(name: str, values: object) -> list[float]:
    """Finite numbers of one axis, at least one."""
    expected = "a sequence of finite numbers"
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise wrong(name, values, expected)
    if np.ma.is_masked(values):
        raise wrong(name, values, f"{expected}, none of them masked")
    given = values if isinstance(values, np.ndarray) else list(values)
    try:
        array = np.asarray(given)
    except (ValueError, TypeError, OverflowError):
        array = np.empty(len(given), dtype=object)
        array[:] = given
    if array.ndim != 1 or not array.size:
        shape = f"shape {array.shape}" if array.size else "nothing"
        raise InputError(f"reading {name}", got=shape, expected=f"{expected} with one axis, at least one")
    if array.dtype.kind not in "fiu" or (given is not values and bool in set(map(type, given))):
        # booleans, texts, fractions: one by one, as only some of them are numbers
        array = np.array([_number(name, index, value) for index, value in enumerate(given)])
    finite = np.isfinite(array)
    if not finite.all():
        index = int(finite.argmin())
        raise _not_finite(name, f"{array[index]}", index)
    return [float(value) for value in array.tolist()]


def _number(name: str, index: int, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise _not_finite(name, shown(value), index)
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _not_finite(name: str, got: str, index: int) -> InputError:
    return InputError(f"reading {name}", got=f"{got} at position {index}", expected="finite numbers")


def sparse_vector(name: str, given: object) -> SparsePair:
    """A sparse vector from ``{"indices": …, "values": …}`` or ``(indices, values)``."""
    expected = "{'indices': …, 'values': …}, or a pair of them"
    if isinstance(given, Mapping):
        if set(given) != {"indices", "values"}:
            unknown = next((key for key in given if key not in ("indices", "values")), None)
            raise InputError(
                f"reading {name}",
                got=f"the names {', '.join(map(repr, given)) or 'none'}"[:120],
                expected=expected,
                next_step=nearest(unknown, ("indices", "values")) if unknown is not None else None,
            )
        given = (given["indices"], given["values"])
    if not isinstance(given, tuple | list) or len(given) != 2:  # noqa: PLR2004 - a pair
        raise wrong(name, given, expected)
    indices, values = numbers(f"{name} indices", given[0]), numbers(f"{name} values", given[1])
    integers = tuple(map(int, indices))
    if list(integers) != indices or min(integers) < 0:
        raise InputError(
            f"reading {name}", got="indices that are negative or fractional", expected="whole numbers from 0"
        )
    if len(indices) != len(values):
        raise InputError(
            f"reading {name}",
            got=f"{len(indices)} indices and {len(values)} values",
            expected="as many of each",
        )
    return SparsePair(integers, tuple(values))


def _wrong_query(got: str, expected: str) -> InputError:
    return InputError("making a vector query", got=got, expected=expected)
