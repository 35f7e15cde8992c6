"""What can be asked of an index, read from request bodies and checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from toolkit.errors import InputError
from toolkit.filters.metadata import MetadataFilter, parse
from toolkit.local.api import ApiError
from toolkit.local.vectors.checks import (
    MAX_BATCH,
    MAX_TOP_K,
    choice,
    json_object,
    read_data,
    read_name,
    read_sparse,
    read_vector,
    refusal,
    shown,
    text_value,
    unfit,
    whole_number,
)
from toolkit.local.vectors.filtering import FilterBudget
from toolkit.local.vectors.fusion import Fusion
from toolkit.local.vectors.sparse import SparseVector
from toolkit.local.vectors.specs import IndexSpec

MAX_IDLE: Final = 86_400
"""Longest time, in seconds, for which a resumable query may idle: an assumption."""
DEFAULT_IDLE: Final = 3600
"""Seconds for which a resumable query may idle unless it says so: what the public client sends."""

Mode = Literal["HYBRID", "DENSE", "SPARSE"]


@dataclass(frozen=True)
class Include:
    """What an answer holds beside ids and scores."""

    metadata: bool
    vectors: bool
    data: bool


@dataclass(frozen=True)
class Query:
    """One query.

    Attributes
    ----------
    question : numpy.ndarray, str or None
        A dense vector; text for the index's models; or None where there is only a sparse vector.
    top_k : int
    include : Include
    filter : MetadataFilter, optional
    sparse : SparseVector, optional
    idf : bool
        Whether sparse dimensions are weighted by how rare they are.
    fusion : {"RRF", "DBSF"}
        How dense and sparse results become one list.
    mode : {"HYBRID", "DENSE", "SPARSE"}
        Which vectors of a text a hybrid index searches with.
    """

    question: NDArray[np.float64] | str | None
    top_k: int
    include: Include
    filter: MetadataFilter | None = None
    sparse: SparseVector | None = None
    idf: bool = False
    fusion: Fusion = "RRF"
    mode: Mode = "HYBRID"


def read_queries(body: Any, spec: IndexSpec, *, text: bool, budget: FilterBudget) -> tuple[list[Query], bool]:
    """The queries of a body, and whether the answer is a list of lists. Reading filters is in the budget."""
    bodies = body if isinstance(body, list) else [body]
    if not 1 <= len(bodies) <= MAX_BATCH:
        raise refusal("query batch", f"{len(bodies)} queries", f"1 to {MAX_BATCH}")
    with budget.spending():
        queries = [
            read_query(one, spec, f"query {place}: " * (len(bodies) > 1), text=text)
            for place, one in enumerate(budget.each(bodies))
        ]
    return queries, len(bodies) > 1


def read_query(body: Any, spec: IndexSpec, where: str = "", *, text: bool) -> Query:
    """One query: of text, or of the vectors that the index's kind has."""
    values = json_object(body, f"{where}query")
    question: NDArray[np.float64] | str | None
    if text:
        question, sparse = read_data(values.get("data"), f"{where}data"), None
    else:
        question, sparse = _vectors(values, spec, where)
    fusion = choice(values, "fusionAlgorithm", ("RRF", "DBSF"), where)
    mode = choice(values, "queryMode", ("HYBRID", "DENSE", "SPARSE"), where)
    return Query(
        question=question,
        top_k=whole_number(values.get("topK"), f"{where}topK", MAX_TOP_K, default=10),
        include=read_include(values, where),
        filter=read_filter(values.get("filter"), f"{where}filter"),
        sparse=sparse,
        idf=choice(values, "weightingStrategy", ("IDF",), where) is not None,
        fusion="DBSF" if fusion == "DBSF" else "RRF",
        mode="DENSE" if mode == "DENSE" else "SPARSE" if mode == "SPARSE" else "HYBRID",
    )


def read_max_idle(body: Any) -> int:
    """For how many seconds a resumable query may idle."""
    return whole_number(json_object(body, "query").get("maxIdle"), "maxIdle", MAX_IDLE, default=DEFAULT_IDLE)


def read_next(body: Any) -> tuple[str, int]:
    """The id of a resumable query, and how many more results are wanted."""
    values = json_object(body, "resumable-query-next")
    if values.get("additionalK") is None:
        raise refusal("additionalK", "none", f"a whole number from 1 to {MAX_TOP_K}")
    return read_end(values), whole_number(values["additionalK"], "additionalK", MAX_TOP_K)


def read_end(body: Any) -> str:
    """The id of a resumable query."""
    return read_name(json_object(body, "resumable query").get("uuid"), "uuid")


def read_include(values: Mapping[str, Any], where: str = "") -> Include:
    """What an answer is to hold."""
    names = ("includeMetadata", "includeVectors", "includeData")
    return Include(*(read_flag(values.get(name), f"{where}{name}") for name in names))


def read_flag(value: Any, what: str) -> bool:
    """A boolean; false where it is left out."""
    if value is not None and not isinstance(value, bool):
        raise refusal(what, shown(value), "true or false")
    return bool(value)


def read_filter(value: Any, what: str) -> MetadataFilter | None:
    """A metadata filter; None where it is left out or blank."""
    text = "" if value is None else text_value(value, what)
    if not text.strip():
        return None
    try:
        return parse(text)
    except InputError as error:
        raise ApiError(400, f"{what}; {error}") from None


def _vectors(
    values: Mapping[str, Any], spec: IndexSpec, where: str
) -> tuple[NDArray[np.float64] | None, SparseVector | None]:
    dense, sparse = values.get("vector"), values.get("sparseVector")
    if dense is not None and not spec.has_dense:
        raise unfit(f"{where}vector", spec.kind, "sparseVector")
    if sparse is not None and not spec.has_sparse:
        raise unfit(f"{where}sparseVector", spec.kind, "vector")
    if dense is None and sparse is None and spec.kind == "hybrid":
        raise refusal(f"{where}query", "no vector and no sparseVector", "one of them, or both")
    asks_dense = spec.has_dense and not (spec.has_sparse and dense is None)
    asks_sparse = spec.has_sparse and not (spec.has_dense and sparse is None)
    return (
        read_vector(dense, spec.dimension, f"{where}vector").astype(np.float64) if asks_dense else None,
        read_sparse(sparse, f"{where}sparseVector") if asks_sparse else None,
    )
