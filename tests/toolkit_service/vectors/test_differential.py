"""Search against plain implementations written here: scores, inner products, IDF, fusion, filters."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toolkit.filters.metadata import parse
from toolkit_service.vectors import sparse as sparse_module
from toolkit_service.vectors.bodies import Included, IndexQuery
from toolkit_service.vectors.index_registry import IndexRegistry
from toolkit_service.vectors.search import DEPTH, fuse
from toolkit_service.vectors.sparse import InvertedRows, SparseArray
from toolkit_service.vectors.specs import IndexSpec
from toolkit_service.vectors.vector_index import VectorIndex

NOTHING = Included()
SIMILARITIES = ("COSINE", "EUCLIDEAN", "DOT_PRODUCT")
Sparse = dict[int, float]
FLOAT32 = 2.0**-24
"""Relative error of a score that was rounded to float32."""

# eighths are exact in single precision, and their sums and products in double: equal scores are equal
eighths = st.integers(-40, 40).map(lambda number: number / 8)
sparse_vectors = st.dictionaries(
    st.integers(0, 7) | st.just(2**31 - 1), eighths, min_size=1, max_size=5
)


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IndexRegistry]:
    """A registry with an index of each kind and similarity."""
    made = IndexRegistry(tmp_path_factory.mktemp("differential"))
    for similarity in SIMILARITIES:
        made.create(IndexSpec(f"d{similarity}", 3, similarity))  # type: ignore[arg-type]
    made.create(IndexSpec.parse("sparse:sparse"))
    for start in (0, 1):
        made.create(
            IndexSpec(f"hybrid{start}", 3, "COSINE", kind="hybrid", rank_start=start)
        )
    yield made
    made.close()


def vector_of(sparse: Sparse) -> SparseArray:
    return SparseArray(
        np.array(list(sparse), dtype=np.int64),
        np.array(list(sparse.values()), dtype=float),
    )


def wire_of(sparse: Sparse) -> dict[str, Any]:
    return {"indices": list(sparse), "values": list(sparse.values())}


def emptied(index: VectorIndex) -> VectorIndex:
    index.reset()
    return index


def naive_dense(
    vector: Sequence[float], query: Sequence[float], similarity: str
) -> float:
    dot = sum(a * b for a, b in zip(vector, query, strict=True))
    if similarity == "DOT_PRODUCT":
        return (1 + dot) / 2
    if similarity == "EUCLIDEAN":
        return 1 / (1 + sum((a - b) ** 2 for a, b in zip(vector, query, strict=True)))
    lengths = math.sqrt(sum(a * a for a in vector)) * math.sqrt(
        sum(b * b for b in query)
    )
    return (1 + (dot / lengths if lengths else 0)) / 2


def naive_sparse(
    rows: dict[str, Sparse], query: Sparse, *, idf: bool
) -> dict[str, float]:
    scores = {}
    for name, row in rows.items():
        shared = row.keys() & query.keys()
        if shared:
            total = 0.0
            for index in shared:
                holding = sum(index in other for other in rows.values())
                weight = (
                    math.log((len(rows) - holding + 0.5) / (holding + 0.5) + 1)
                    if idf
                    else 1.0
                )
                total += weight * row[index] * query[index]
            scores[name] = total
    return scores


def naive_rrf(
    rankings: Sequence[Sequence[tuple[str, float]]], start: int
) -> dict[str, float]:
    fused: dict[str, Fraction] = {}
    for ranking in rankings:
        for rank, (name, _) in enumerate(ranking):
            fused[name] = fused.get(name, Fraction(0)) + Fraction(1, 60 + start + rank)
    return {name: float(score) for name, score in fused.items()}


def naive_dbsf(rankings: Sequence[Sequence[tuple[str, float]]]) -> dict[str, float]:
    fused: dict[str, float] = {}
    for ranking in rankings:
        if not ranking:
            continue
        mean = statistics.fmean(score for _, score in ranking)
        deviation = statistics.pstdev(score for _, score in ranking)
        low, high = mean - 3 * deviation, mean + 3 * deviation
        for name, score in ranking:
            part = (score - low) / (high - low) if deviation > 1e-13 else 0.5
            fused[name] = fused.get(name, 0.0) + part
    return fused


def agree(
    actual: Sequence[tuple[str, float]], naive: dict[str, float], top_k: int
) -> None:
    """The right number of results, each with its score, the best of all, best first."""
    assert len(actual) == min(top_k, len(naive))
    assert len(dict(actual)) == len(actual)
    for name, score in actual:
        assert score == np.float32(score)
        assert score == pytest.approx(naive[name], rel=FLOAT32, abs=1e-9)
    best = sorted(naive.values(), reverse=True)[:top_k]
    assert [score for _, score in actual] == pytest.approx(best, rel=FLOAT32, abs=1e-9)
    assert [score for _, score in actual] == sorted(
        (score for _, score in actual), reverse=True
    )


def ordinals(names: list[str]) -> list[int]:
    """The order in which rows of one letter were inserted."""
    return [ord(name) for name in names]


def results_of(index: VectorIndex, query: IndexQuery) -> list[tuple[str, float]]:
    (hits,) = index.query([query])
    return [(hit.row.id, hit.score) for hit in hits]


steps = st.lists(
    st.tuples(st.integers(0, 6), st.none() | sparse_vectors)
    | st.tuples(st.just(-1), sparse_vectors),
    max_size=30,
)


@pytest.mark.slow
@settings(max_examples=600, deadline=None)
@given(
    steps,
    st.integers(1, 8),
    st.booleans(),
    st.sampled_from([1, 4, 20_000]),
    st.sets(st.integers(0, 6)),
)
def test_inner_products_while_rows_come_and_go(
    taken: list[tuple[int, Sparse | None]],
    top_k: int,
    idf: object,
    small: int,
    chosen: set[int],
) -> None:
    """After any puts, replacements, removals and merges of postings, scores are plain sums.

    IDF counts only what is there, and only what may pass does.
    """
    rows, naive = InvertedRows(), {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sparse_module, "_SMALL", small)
        for number, sparse in [*taken, (-1, {0: 1.0, 3: -2.5, 2**31 - 1: 0.5})]:
            name = f"r{number}"
            if number == -1 and sparse is not None:  # a query in between
                agree(
                    rows.nearest(vector_of(sparse), top_k, idf=bool(idf)),
                    naive_sparse(naive, sparse, idf=bool(idf)),
                    top_k,
                )
                allowed = rows.nearest(
                    vector_of(sparse),
                    99,
                    idf=bool(idf),
                    passing=np.array(sorted(chosen), int),
                )
                expected = naive_sparse(naive, sparse, idf=bool(idf))
                agree(
                    allowed,
                    {
                        f"r{element}": expected[f"r{element}"]
                        for element in chosen
                        if f"r{element}" in expected
                    },
                    99,
                )
            elif sparse is not None:
                rows.put(number, name, vector_of(sparse))
                naive[name] = sparse
            elif name in naive:
                rows.remove(name)
                del naive[name]
            assert len(rows) == len(naive)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(sparse_vectors, st.booleans()), min_size=1, max_size=12),
    sparse_vectors,
)
def test_equal_scores_keep_the_order_of_sequence(
    vectors: list[tuple[Sparse, bool]], query: Sparse
) -> None:
    """Among equal scores the row put first comes first, even when it was replaced, whatever top_k is."""
    rows = InvertedRows()
    for number, (sparse, _) in enumerate(vectors):
        rows.put(number, str(number), vector_of(sparse))
    for number, (sparse, again) in enumerate(vectors):
        if again:
            rows.put(number, str(number), vector_of(sparse))
    whole = rows.nearest(vector_of(query), 99)
    assert whole == sorted(whole, key=lambda item: (-item[1], int(item[0])))
    assert all(
        rows.nearest(vector_of(query), top_k) == whole[:top_k] for top_k in range(1, 5)
    )


rankings = st.lists(
    st.dictionaries(st.sampled_from("abcdefgh"), eighths, max_size=8).map(
        lambda scores: sorted(scores.items(), key=lambda item: -item[1])
    ),
    min_size=2,
    max_size=2,
)


@pytest.mark.slow
@settings(max_examples=600, deadline=None)
@given(rankings, st.sampled_from([0, 1]))
def test_rrf(given_rankings: list[list[tuple[str, float]]], start: int) -> None:
    """Reciprocal rank fusion is the sum of 1 / (rank + 60) in exact fractions, ranks from 0 or from 1."""
    agree(
        fuse(given_rankings, "RRF", rank_start=start, inserted=ordinals),
        naive_rrf(given_rankings, start),
        99,
    )


@pytest.mark.slow
@settings(max_examples=600, deadline=None)
@given(rankings)
def test_dbsf(given_rankings: list[list[tuple[str, float]]]) -> None:
    """Distribution-based fusion is that of the standard library's mean and deviation; all equal is 0.5."""
    agree(
        fuse(given_rankings, "DBSF", rank_start=1, inserted=ordinals),
        naive_dbsf(given_rankings),
        99,
    )


slow = settings(
    max_examples=120,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
dense_vectors = st.lists(eighths, min_size=3, max_size=3)


@slow
@given(
    st.lists(dense_vectors, min_size=1, max_size=12),
    dense_vectors,
    st.integers(1, 14),
    st.sampled_from(SIMILARITIES),
)
def test_dense_scores_of_an_index(
    registry: IndexRegistry,
    vectors: list[list[float]],
    query: list[float],
    top_k: int,
    similarity: str,
) -> None:
    """The scores of an index are the documented formula of each similarity."""
    index = emptied(registry.get(f"d{similarity}"))
    index.upsert(
        [{"id": str(number), "vector": vector} for number, vector in enumerate(vectors)]
    )
    naive = {
        str(number): naive_dense(vector, query, similarity)
        for number, vector in enumerate(vectors)
    }
    agree(results_of(index, IndexQuery(np.array(query), top_k, NOTHING)), naive, top_k)


@slow
@given(
    st.lists(
        st.tuples(dense_vectors, sparse_vectors, st.booleans()), min_size=1, max_size=10
    ),
    dense_vectors,
    sparse_vectors,
    st.fixed_dictionaries(
        {
            "top_k": st.integers(1, 12),
            "idf": st.booleans(),
            "fusion": st.sampled_from(["RRF", "DBSF"]),
            "filter": st.sampled_from([None, parse("kept = true")]),
        }
    ),
    st.sampled_from([0, 1]),
)
def test_hybrid_queries_of_an_index(
    registry: IndexRegistry,
    given_rows: list[tuple[list[float], Sparse, bool]],
    dense: list[float],
    sparse: Sparse,
    options: dict[str, Any],
    start: int,
) -> None:
    """A hybrid index fuses its two exact rankings; with one vector it returns that side's scores."""
    index = emptied(registry.get(f"hybrid{start}"))
    names = [str(number) for number in range(len(given_rows))]
    index.upsert(
        {
            "id": name,
            "vector": vector,
            "sparseVector": wire_of(other),
            "metadata": {"kept": kept},
        }
        for name, (vector, other, kept) in zip(names, given_rows, strict=True)
    )
    passing = {
        name
        for name, (_, _, kept) in zip(names, given_rows, strict=True)
        if kept or options["filter"] is None
    }
    of_dense = {
        name: naive_dense(vector, dense, "COSINE")
        for name, (vector, _, _) in zip(names, given_rows, strict=True)
        if name in passing
    }
    held = {name: other for name, (_, other, _) in zip(names, given_rows, strict=True)}
    of_sparse = {
        name: score
        for name, score in naive_sparse(held, sparse, idf=options["idf"]).items()
        if name in passing
    }
    request = {"include": NOTHING, **options}
    whole = request | {"top_k": DEPTH}
    one_side = results_of(index, IndexQuery(np.array(dense), **whole))
    agree(one_side, of_dense, DEPTH)
    other_side = results_of(index, IndexQuery(None, sparse=vector_of(sparse), **whole))
    agree(other_side, of_sparse, DEPTH)
    # ranked by the index, as rounding decides among equals; both were just verified
    sides = [one_side, other_side]
    fused = naive_rrf(sides, start) if options["fusion"] == "RRF" else naive_dbsf(sides)
    both = results_of(
        index, IndexQuery(np.array(dense), sparse=vector_of(sparse), **request)
    )
    agree(both, fused, options["top_k"])


MISSING = object()
Condition = tuple[str, Callable[[Any], bool]]
scalars = st.integers(-2, 3) | st.sampled_from(
    [0.5, 1.0, True, False, "", "a", "ab", "ba", "A"]
)
documents = st.fixed_dictionaries(
    {},
    optional={
        "a": scalars | st.none(),
        "b": st.fixed_dictionaries({}, optional={"c": scalars}) | scalars,
        "tags": st.lists(scalars, max_size=4) | scalars,
    },
)
FIELDS: dict[str, Callable[[Any], Any]] = {
    "a": lambda row: row.get("a", MISSING),
    "b.c": lambda row: (
        row["b"].get("c", MISSING) if isinstance(row.get("b"), dict) else MISSING
    ),
    "tags": lambda row: row.get("tags", MISSING),
    "tags[1]": lambda row: row["tags"][1] if is_list(row.get("tags"), 2) else MISSING,
    "tags[#-1]": lambda row: (
        row["tags"][-1] if is_list(row.get("tags"), 1) else MISSING
    ),
}


def is_list(value: Any, least: int) -> bool:
    return isinstance(value, list) and len(value) >= least


def same(element: Any, other: Any) -> bool:
    """Equal text, or equal numbers, of which true is 1."""
    if isinstance(element, dict | list) or element is None:
        return False
    return isinstance(element, str) == isinstance(other, str) and element == other


def written(value: Any) -> str:
    return f"'{value}'" if isinstance(value, str) else str(value)


def globbing(pattern: str, text: Any) -> bool:
    rule = "".join(
        ".*" if element == "*" else "." if element == "?" else re.escape(element)
        for element in pattern
    )
    return isinstance(text, str) and re.fullmatch(rule, text, re.DOTALL) is not None


@st.composite
def conditions(draw: st.DrawFn) -> Condition:
    """A condition as text, and what it says of metadata."""
    field, get = draw(st.sampled_from(sorted(FIELDS.items())))
    rule = draw(st.sampled_from(["compare", "glob", "in", "contains", "has"]))
    negated, value = draw(st.booleans()), draw(scalars)
    if rule == "has":
        return (
            f"HAS {'NOT ' * negated}FIELD {field}",
            lambda row: (get(row) is MISSING) is negated,
        )

    def there(says: Callable[[Any], bool]) -> Callable[[Any], bool]:
        return lambda row: (
            get(row) is not MISSING and get(row) is not None and says(get(row))
        )

    if rule == "compare":
        sign = draw(st.sampled_from(["=", "!=", "<", "<=", ">", ">="]))
        return f"{field} {sign} {written(value)}", there(
            lambda actual: compared(actual, sign, value)
        )
    if rule == "glob":
        pattern = draw(st.text("ab*?A", max_size=4))
        text = f"{field} {'NOT ' * negated}GLOB '{pattern}'"
        return text, there(lambda actual: globbing(pattern, actual) is not negated)
    if rule == "in":
        values = draw(st.lists(scalars, min_size=1, max_size=3))
        text = f"{field} {'not ' * negated}in ({', '.join(map(written, values))})"
        return text, there(
            lambda actual: (
                any(same(actual, element) for element in values) is not negated
            )
        )
    text = f"{field} {'NOT ' * negated}CONTAINS {written(value)}"
    return text, there(
        lambda actual: (
            (
                isinstance(actual, list)
                and any(same(element, value) for element in actual)
            )
            is not negated
        )
    )


def compared(actual: Any, sign: str, value: Any) -> bool:
    if sign in {"=", "!="}:
        return same(actual, value) is (sign == "=")
    if isinstance(actual, dict | list) or isinstance(actual, str) != isinstance(
        value, str
    ):
        return False
    return {
        "<": actual < value,
        "<=": actual <= value,
        ">": actual > value,
        ">=": actual >= value,
    }[sign]


def joined(parts: list[Condition], word: str) -> Condition:
    says = all if word == "AND" else any
    return f" {word} ".join(f"({text})" for text, _ in parts), lambda row: says(
        check(row) for _, check in parts
    )


filters = st.recursive(
    conditions(),
    lambda inner: st.builds(
        joined, st.lists(inner, min_size=2, max_size=3), st.sampled_from(["AND", "OR"])
    ),
    max_leaves=5,
)


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(filters, st.lists(documents, min_size=1, max_size=5))
def test_filters(chosen: Condition, rows: list[dict[str, Any]]) -> None:
    """Filters as text decide on metadata as the plain rules do."""
    text, check = chosen
    tree = parse(text)
    assert [tree.matches(row) for row in rows] == [check(row) for row in rows], text


@slow
@given(filters, st.lists(documents, min_size=1, max_size=8))
def test_filters_of_an_index(
    registry: IndexRegistry, chosen: Condition, rows: list[dict[str, Any]]
) -> None:
    """A filtered query of a dense and of a sparse index returns exactly the matching rows."""
    text, check = chosen
    passing = {str(number) for number, row in enumerate(rows) if check(row)}
    named = [{"id": str(number), "metadata": row} for number, row in enumerate(rows)]
    dense, sparse = emptied(registry.get("dCOSINE")), emptied(registry.get("sparse"))
    dense.upsert({**row, "vector": [1, 2, 3]} for row in named)
    sparse.upsert({**row, "sparseVector": wire_of({5: 1.0})} for row in named)
    of_dense = results_of(dense, IndexQuery(np.ones(3), 99, NOTHING, parse(text)))
    of_sparse = results_of(
        sparse, IndexQuery(None, 99, NOTHING, parse(text), sparse=vector_of({5: 2.0}))
    )
    assert dict(of_dense).keys() == dict(of_sparse).keys() == passing
