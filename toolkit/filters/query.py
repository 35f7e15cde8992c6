"""Query a vector index with a frozen value that queries accept, widgets make and receipts record."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from inspect import signature
from numbers import Real
from typing import Any, Final, Literal, NamedTuple, TypeVar, get_args

import numpy as np

from toolkit.base.arguments import (
    choice,
    flag,
    nearest,
    shown,
    text,
    unmasked,
    whole,
    wrong,
)
from toolkit.base.errors import InputError
from toolkit.base.python_code import PublicCall
from toolkit.filters.metadata import MetadataFilter

WeightingStrategy = Literal["IDF"]
FusionAlgorithm = Literal["RRF", "DBSF"]
QueryMode = Literal["HYBRID", "DENSE", "SPARSE"]

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class HybridOptions:
    """How a query combines the dense and the sparse vectors of an index.

    Parameters
    ----------
    weighting_strategy : {"IDF"}, optional
        Weights for sparse vectors.
    fusion_algorithm : {"RRF", "DBSF"}, optional
        Method that combines the dense and the sparse scores of a hybrid index.
    query_mode : {"HYBRID", "DENSE", "SPARSE"}, optional
        Vectors of a hybrid index that a query by text uses. Indexes of another kind ignore it, so it is an
        error there.

    Raises
    ------
    InputError
        If a value is none of these.

    Examples
    --------
    >>> HybridOptions(fusion_algorithm="DBSF").options()
    {'fusion_algorithm': 'DBSF'}
    """

    weighting_strategy: WeightingStrategy | None = None
    fusion_algorithm: FusionAlgorithm | None = None
    query_mode: QueryMode | None = None

    def __post_init__(self) -> None:
        for name, names in _HYBRID_NAMES.items():
            choice(name, getattr(self, name), names, optional=True)

    def options(self) -> dict[str, str]:
        """Return the options that are set, by the names of `VectorQuery`."""
        values = {name: getattr(self, name) for name in _HYBRID_NAMES}
        return {name: value for name, value in values.items() if value is not None}


_HYBRID_NAMES: Final = {
    "weighting_strategy": get_args(WeightingStrategy),
    "fusion_algorithm": get_args(FusionAlgorithm),
    "query_mode": get_args(QueryMode),
}
HYBRID_OPTIONS: Final = tuple(_HYBRID_NAMES)
"""Names of the fields of `HybridOptions`, which are also fields of `VectorQuery`."""


class SparsePair(NamedTuple):
    """The non-zero elements of a sparse vector. The service adds the values of repeated indices."""

    indices: tuple[int, ...]
    values: tuple[float, ...]


@dataclass(frozen=True, init=False, repr=False)
class VectorQuery:
    """A query of a vector index by vector, sparse vector, both, data (a string), or stored id.

    Parameters
    ----------
    vector : sequence of float, optional
        Dense vector with one finite number per dimension of the index. A numpy array with one axis is fine.
    data : str, optional
        Text, embedded by the model of the index.
    sparse : mapping or pair, optional
        Sparse vector: ``{"indices": …, "values": …}`` or ``(indices, values)``. Together with `vector` on
        hybrid indexes.
    id : str, optional
        Id of a vector in the index. Vectors similar to it are returned. The vector is fetched first.
    exclude_self : bool, default False
        If True, the vector with this `id` is left out of the results.
    top_k : int, default 10
        Maximum number of results, at least 1.
    include_metadata, include_vectors, include_data : bool, default False
        Parts of each result that are returned in addition to id and score.
    filter : str or MetadataFilter, default ""
        Metadata filter, kept as text. Text is not parsed here: the service decides if it is valid.
    namespace : str, default ""
        The default namespace is "".
    weighting_strategy : {"IDF"}, optional
        Weights for sparse vectors.
    fusion_algorithm : {"RRF", "DBSF"}, optional
        Method that combines the dense and sparse scores of a hybrid index.
    query_mode : {"HYBRID", "DENSE", "SPARSE"}, optional
        Vectors of a hybrid index that a query by `data` uses. Only with `data`.

    Raises
    ------
    InputError
        If it is not exactly one of these kinds of query, or if a value cannot be used.

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
        sparse: Mapping[str, Iterable[float]]
        | tuple[Iterable[int], Iterable[float]]
        | None = None,
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
            "vector": _if_given(_dense_vector, "vector", vector),
            "data": _if_given(_some_text, "data", data),
            "sparse": _if_given(sparse_vector, "sparse", sparse),
            "id": _if_given(_identity, "id", id),
            "exclude_self": flag("exclude_self", exclude_self),
            "top_k": whole("top_k", top_k),
            "include_metadata": flag("include_metadata", include_metadata),
            "include_vectors": flag("include_vectors", include_vectors),
            "include_data": flag("include_data", include_data),
            "filter": _filter_text(filter),
            "namespace": unmasked("namespace", text("namespace", namespace)),
            **vars(
                HybridOptions(
                    weighting_strategy=weighting_strategy,
                    fusion_algorithm=fusion_algorithm,
                    query_mode=query_mode,
                )
            ),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)
        self._check_combination()

    def _check_combination(self) -> None:
        """Raise InputError if the arguments do not make exactly one query."""
        questions = [name for name in _QUESTIONS if getattr(self, name) is not None]
        # a hybrid index can be queried with a dense and a sparse vector together
        if len(questions) != 1 and questions != ["vector", "sparse"]:
            raise _query_error(
                " and ".join(questions) or "no question",
                "one of vector, data, sparse, id, or vector and sparse",
            )

        question = questions[0]
        if self.query_mode is not None and question != "data":
            raise _query_error(
                f"query_mode={self.query_mode!r} without data",
                "query_mode only for text queries",
            )

        if self.exclude_self and question != "id":
            raise _query_error(
                "exclude_self=True without id", "exclude_self only for queries by id"
            )

    def scope(self) -> dict[str, Any]:
        """Return the query as JSON values, for receipts. A vector is identified by size and SHA-256."""
        scope: dict[str, Any] = self._changed_values()
        if self.vector is not None:
            scope["vector"] = {
                "dimension": len(self.vector),
                "sha256": _digest(self.vector),
            }

        if self.sparse is not None:
            scope["sparse"] = {
                "terms": len(self.sparse.indices),
                "sha256": _digest(tuple(self.sparse)),
            }

        return scope

    def to_code(self) -> str:
        """Return Python code that makes the same query, with complete vectors and the toolkit as ``tk``."""
        arguments = self._changed_values()
        if self.vector is not None:
            arguments["vector"] = list(self.vector)
        if self.sparse is not None:
            arguments["sparse"] = {
                "indices": list(self.sparse.indices),
                "values": list(self.sparse.values),
            }

        return _CALL.write(**arguments)

    def __repr__(self) -> str:
        shown_values = {
            name: repr(value) for name, value in self._changed_values().items()
        }
        # vectors have hundreds of numbers
        if self.vector is not None:
            shown_values["vector"] = f"<{len(self.vector)} numbers>"
        if self.sparse is not None:
            shown_values["sparse"] = f"<{len(self.sparse.indices)} terms>"
        arguments = ", ".join(f"{name}={value}" for name, value in shown_values.items())
        return f"VectorQuery({arguments})"

    def _changed_values(self) -> dict[str, object]:
        """Return the values that differ from the defaults."""
        changed = {}
        for item in fields(self):
            value = getattr(self, item.name)
            if value != _DEFAULTS[item.name].default:
                changed[item.name] = value

        return changed


_QUESTIONS: Final = ("vector", "data", "sparse", "id")
_DEFAULTS: Final = signature(VectorQuery).parameters
_CALL: Final = PublicCall("VectorQuery", tuple(_DEFAULTS))


def _if_given(read: Callable[[str, Any], T], name: str, argument: Any) -> T | None:
    """Return the checked value of an argument, or None if it was not passed."""
    if argument is None:
        return None
    return read(name, argument)


def _dense_vector(name: str, values: object) -> tuple[float, ...]:
    return tuple(numbers(name, values))


def _some_text(name: str, argument: object) -> str:
    return text(name, argument, empty=False)


def _identity(name: str, argument: object) -> str:
    return unmasked(name, _some_text(name, argument))


def _filter_text(argument: str | MetadataFilter) -> str:
    if isinstance(argument, MetadataFilter):
        return argument.text()
    return text("filter", argument)


def numbers(name: str, values: object) -> list[float]:
    """Return finite numbers along one axis, at least one. Raise InputError for anything else."""
    expected = "a sequence of finite numbers"
    if not isinstance(values, Iterable):
        raise wrong(name, values, expected)
    if isinstance(values, str | bytes | Mapping):
        raise wrong(name, values, expected)
    if np.ma.is_masked(values):
        raise wrong(name, values, f"{expected}, none of them masked")

    array = _numeric_array(name, values)
    finite = np.isfinite(array)
    if not finite.all():
        index = int(finite.argmin())
        raise _not_finite(name, f"{array[index]}", index)

    as_floats: list[float] = array.astype(float).tolist()
    return as_floats


def _numeric_array(name: str, values: Iterable[object]) -> np.ndarray[Any, Any]:
    """Return an array of integers or floats with one axis. The numbers can be infinite."""
    items: Any = values
    if not isinstance(values, np.ndarray):
        items = list(values)
    array = _as_array(items)
    _check_axis(name, array)
    if array.dtype.kind in "fiu" and not _contains_booleans(items):
        return array

    # fractions are numbers, booleans and strings are not: check one by one
    return np.array([_number(name, index, item) for index, item in enumerate(items)])


def _check_axis(name: str, array: np.ndarray[Any, Any]) -> None:
    """Raise InputError if an array is empty, or has more than one axis."""
    got = f"shape {array.shape}"
    if not array.size:
        got = "no numbers"
    elif array.ndim == 1:
        return

    raise InputError(
        f"reading {name}",
        got=got,
        expected="a sequence of finite numbers with one axis, at least one",
    )


def _contains_booleans(items: Any) -> bool:
    """Return whether a list has booleans: numpy converts [True, 2], but True is no number of a vector."""
    if isinstance(items, np.ndarray):
        return False
    return bool in set(map(type, items))


def _as_array(items: Any) -> np.ndarray[Any, Any]:
    """Return items as an array, of dtype object if numpy cannot convert them, for example if nested."""
    try:
        return np.asarray(items)
    except (ValueError, TypeError, OverflowError):
        array = np.empty(len(items), dtype=object)
        array[:] = items
        return array


def _number(name: str, index: int, item: object) -> float:
    if isinstance(item, bool) or not isinstance(item, Real):
        raise _not_finite(name, shown(item), index)

    try:
        return float(item)
    except OverflowError:  # an integer above 1.8e308
        return math.inf


def _not_finite(name: str, got: str, index: int) -> InputError:
    return InputError(
        f"reading {name}", got=f"{got} at position {index}", expected="finite numbers"
    )


_SPARSE_NAMES: Final = ("indices", "values")


def sparse_vector(name: str, argument: object) -> SparsePair:
    """Return a sparse vector from ``{"indices": …, "values": …}`` or ``(indices, values)``."""
    indices, values = _sparse_parts(name, argument)
    integers = tuple(map(int, indices))
    if min(integers) < 0 or list(integers) != indices:
        raise InputError(
            f"reading {name}",
            got="indices that are negative or fractional",
            expected="whole numbers of at least 0",
        )

    if len(indices) != len(values):
        raise InputError(
            f"reading {name}",
            got=f"{len(indices)} indices and {len(values)} values",
            expected="one value per index",
        )

    return SparsePair(integers, tuple(values))


def _sparse_parts(name: str, argument: object) -> tuple[list[float], list[float]]:
    """Return the indices and the values of a sparse vector, both as finite numbers."""
    expected = "{'indices': …, 'values': …}, or a pair of indices and values"
    pair = argument
    if isinstance(argument, Mapping):
        _check_sparse_names(name, argument, expected)
        pair = (argument["indices"], argument["values"])

    if not isinstance(pair, tuple | list) or len(pair) != 2:  # noqa: PLR2004 - a pair
        raise wrong(name, pair, expected)

    indices = numbers(f"{name} indices", pair[0])
    values = numbers(f"{name} values", pair[1])
    return indices, values


def _check_sparse_names(
    name: str, argument: Mapping[Any, object], expected: str
) -> None:
    unknown = [key for key in argument if key not in _SPARSE_NAMES]
    if not unknown and len(argument) == len(_SPARSE_NAMES):
        return

    next_step = None
    if unknown:
        next_step = nearest(unknown[0], _SPARSE_NAMES)
    names = ", ".join(map(repr, argument)) or "none"
    raise InputError(
        f"reading {name}",
        got=f"the names {names}"[:120],
        expected=expected,
        next_step=next_step,
    )


def _digest(values: object) -> str:
    return hashlib.sha256(repr(values).encode()).hexdigest()


def _query_error(got: str, expected: str) -> InputError:
    return InputError("making a vector query", got=got, expected=expected)
