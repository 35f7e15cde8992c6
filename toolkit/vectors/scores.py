"""Summarise the scores of query results: bins, curves by rank, rank changes; and the lengths of vectors."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import compress, product
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from toolkit.base.arguments import plain, positive, whole
from toolkit.base.errors import InputError
from toolkit.failures.selection import NONE, Counted, named, opened, select, typed_frame
from toolkit.failures.sources import AnyFrame
from toolkit.tables.vector_matrix import is_numbers

_MOST_BINS: Final = 1_000
LARGEST: Final = float(np.finfo(np.float32).max)
"""The largest score of an index. An axis overflows if numbers are near the largest float of Python."""


@dataclass(frozen=True, eq=False, kw_only=True)
class ScoreBins(Counted):
    """Counts per score bin and group. If groups were merged, the last is ``other (n)``."""

    # shape (bins + 1,); a bin includes the lower edge, the last bin both edges
    edges: NDArray[np.float64]
    groups: tuple[str, ...]  # sorted by value
    counts: NDArray[np.int64]  # shape (groups, bins)
    merged: int  # number of groups that were merged into the last one, or 0
    left_out: int  # hits in no bin: the score is missing, not finite or too large
    scores: tuple[NDArray[np.float64], ...]  # the scores of each group, ascending


def score_summary(hits: AnyFrame) -> pd.DataFrame:
    """Summarise the scores of each query in a few numbers.

    Parameters
    ----------
    hits : frame
        A result of `query`, with the columns `query` and `score`.

    Returns
    -------
    pandas.DataFrame
        One row per query, in order: `query` (Int64), `hits` (Int64), `best`, `median`, `worst`, `gap`
        (float64; between the best and the second score, missing if the query has one hit). If a score is
        missing or not finite, it counts only for `hits`.

    Raises
    ------
    InputError
        If a column is missing.

    Examples
    --------
    >>> score_summary(pd.DataFrame({"query": [0, 0, 0], "score": [0.9, 0.7, 0.6]})).round(2)
       query  hits  best  median  worst  gap
    0      0     3   0.9     0.7    0.6  0.2
    """
    doing = "summing up scores"
    selected = select(hits, ["query", "score"], doing=doing, name="hits")
    table = selected.whole_table(doing)
    frame = typed_frame(
        query=("Int64", table["query"].to_pylist()),
        score=("float64", table["score"].to_pylist()),
    )
    frame["score"] = frame["score"].replace([np.inf, -np.inf], np.nan)
    scores = frame.groupby("query")["score"]
    best = scores.max()
    # Scores are sorted here, as the hits of a frame may be in any order.
    ordered = frame.sort_values("score", ascending=False).dropna(subset=["score"])
    second = ordered.groupby("query")["score"].nth(1)
    second.index = pd.Index(ordered.loc[second.index, "query"])

    return pd.DataFrame(
        {
            "hits": frame.groupby("query").size().astype("Int64"),
            "best": best,
            "median": scores.median(),
            "worst": scores.min(),
            "gap": best - second.reindex(best.index),
        }
    ).reset_index()


def score_bins(
    hits: AnyFrame,
    *,
    by: str | None = "query",
    bins: int = 20,
    top: int = 8,
    largest: float = np.inf,
) -> ScoreBins:
    """Count hits per score bin, of all hits together or for each group on the same edges.

    If all scores are equal, or differ by less than bins can separate, the result has one bin.

    Parameters
    ----------
    hits : frame
        A result of `query`, with the column `score`.
    by : str or None
        A column of single values, whose groups are counted separately; None counts all hits together.
    bins : int
        Number of bins, from 1 to 1,000, of equal width between the lowest and the highest score.
    top : int
        Number of groups to keep, sorted by value; the others are merged.
    largest : float
        Scores with a larger absolute value are excluded, like infinite ones.

    Returns
    -------
    ScoreBins

    Raises
    ------
    InputError
        If a column is missing or has lists or maps, or a number is out of range.

    Examples
    --------
    >>> hits = pd.DataFrame({"query": [0, 0, 1], "score": [0.9, 0.5, 0.7]})
    >>> score_bins(hits, bins=2).counts.tolist()
    [[1, 1], [0, 1]]
    """
    doing = "counting hits by score"
    bins, top = whole("bins", bins, most=_MOST_BINS), whole("top", top)
    largest = positive("largest", largest, finite=False)
    chosen = {} if by is None else {"by": by}
    selected = select(hits, ["score"], doing=doing, name="hits", chosen=chosen)
    table = selected.whole_table(doing)
    scores = np.array(table["score"].to_pylist(), dtype=np.float64)  # None is NaN
    values = table[by].to_pylist() if by else ["all hits"] * len(scores)
    is_usable = np.isfinite(scores) & (np.abs(scores) <= largest)
    ordered = sorted(set(compress(values, is_usable)), key=_order)
    names = _query_names(hits, by)
    groups = [names.get(value) or named(value) for value in ordered[:top]]
    merged = max(len(ordered) - top, 0)
    if merged:
        groups.append(f"other ({merged})")
    numbers = {value: number for number, value in enumerate(ordered[:top])}
    group_of_row = np.array(
        [numbers.get(value, top) for value in values], dtype=np.int64
    )
    by_group = tuple(
        np.sort(scores[is_usable & (group_of_row == number)])
        for number in range(len(groups))
    )
    edges = _edges(scores[is_usable], bins)
    counts = np.zeros((len(groups), max(len(edges) - 1, 0)), dtype=np.int64)
    for number, group_scores in enumerate(by_group):
        counts[number] = np.histogram(group_scores, bins=edges)[0]
    return ScoreBins(
        edges=edges,
        groups=tuple(groups),
        counts=counts,
        merged=merged,
        left_out=int((~is_usable).sum()),
        scores=by_group,
    )


def _query_names(hits: AnyFrame, by: str | None) -> dict[Any, str]:
    """Return the names of groups: the words of the queries, if the groups are queries."""
    return query_texts(hits) if by == "query" else {}


def query_texts(hits: AnyFrame) -> dict[Any, str]:
    """Return a different name for each query, the words of the query, if the frame of hits has them.

    >>> hits = pd.DataFrame({"query": [0, 1]})
    >>> hits.attrs["queries"] = [{"data": "connection refused", "top_k": 3}, {"vector": {"dimension": 3}}]
    >>> query_texts(hits)
    {0: 'connection refused'}
    """
    queries = getattr(hits, "attrs", {}).get("queries")
    if not isinstance(queries, list | tuple):
        return {}

    texts = {}
    for number, query in enumerate(queries):
        if not isinstance(query, dict):
            continue
        text = query.get("data") or query.get("id")
        if isinstance(text, str) and text.strip():
            texts[number] = text

    counts = Counter(texts.values())
    repeated = {
        number: f"{text} ({number})"
        for number, text in texts.items()
        if counts[text] > 1
    }
    return texts | repeated


def _edges(scores: NDArray[np.float64], bins: int) -> NDArray[np.float64]:
    """Return the edges of bins between the lowest and the highest score; none without scores."""
    if not scores.size:
        return np.zeros(0)

    lowest, highest = scores.min(), scores.max()
    # halved first: the difference of two large numbers can overflow
    half_width = highest / 2 - lowest / 2
    if half_width <= bins * np.spacing(max(abs(lowest), abs(highest))):
        return np.histogram_bin_edges(scores, bins=1)

    return np.linspace(lowest / 2, highest / 2, bins + 1) * 2


def _order(value: object) -> tuple[bool, bool, float, str]:
    """Return a key that sorts numbers by size, then strings, then missing values."""
    number = plain(value)
    if isinstance(number, int | float):
        return False, False, float(number), str(value)

    return value is None, True, 0.0, str(value)


@dataclass(frozen=True, eq=False, kw_only=True)
class ScoreCurve:
    """The scores of one group of hits, best first."""

    name: str
    ranks: NDArray[np.int64]  # ascending
    scores: NDArray[np.float64]  # finite


def score_curves(
    hits: AnyFrame, *, by: str = "query", top: int = 8, largest: float = np.inf
) -> tuple[list[ScoreCurve], int]:
    """Return the scores by rank of the first `top` groups, and the number of other groups.

    Parameters
    ----------
    hits : frame
        A result of `query`, with the columns `rank` and `score`.
    by : str
        A column of single values: one curve for each.
    top : int
        Number of curves to return.
    largest
        As in `score_bins`.

    Returns
    -------
    list of ScoreCurve
        Ranks and scores of each group, in the order of ranks.
    int
        Number of groups without a curve.

    Raises
    ------
    InputError
        If a column is missing or has lists or maps, or `top` is not a whole number.

    Examples
    --------
    >>> hits = pd.DataFrame({"query": [0, 0], "rank": [1, 2], "score": [0.9, 0.5]})
    >>> score_curves(hits)[0][0].scores.tolist()
    [0.9, 0.5]
    """
    doing = "ordering scores by rank"
    top, largest = whole("top", top), positive("largest", largest, finite=False)
    rows = select(hits, ["rank", "score"], doing=doing, name="hits", chosen={"by": by})
    table = rows.whole_table(doing)
    frame = table.to_pandas()
    frame["score"] = pd.to_numeric(frame["score"]).astype("float64")
    is_usable = np.isfinite(frame["score"]) & (frame["score"].abs() <= largest)
    frame = frame[is_usable & frame["rank"].notna()]
    names = _query_names(hits, by)
    # pandas cannot group by numbers of 16 bits
    keys = pd.Series(table[by].to_pylist(), dtype="object")
    groups = list(frame.groupby(keys, sort=False, dropna=False))

    curves = []
    for value, group in groups[:top]:
        name = NONE
        if not pd.isna(value):
            name = names.get(value) or named(value)
        ordered = group.sort_values("rank", kind="stable")
        ranks = ordered["rank"].to_numpy(dtype=np.int64)
        scores = ordered["score"].to_numpy(dtype=np.float64)
        curves.append(ScoreCurve(name=name, ranks=ranks, scores=scores))

    return curves, max(len(groups) - top, 0)


def score_moves(before: AnyFrame, after: AnyFrame) -> pd.DataFrame:
    """Compare the ranks in two sets of results of the same queries.

    Parameters
    ----------
    before, after : frame
        Results of `query` for the same queries, with the columns `query`, `id`, `rank` and `score`, and
        `namespace` if you searched several: the same id in two namespaces is two vectors.

    Returns
    -------
    pandas.DataFrame
        One row per query and id of either result, sorted by query, then by the better of the two ranks:
        `query` (Int64), `namespace` (str, if both results have it), `id` (str), `rank_before`, `rank_after`
        (Int64, missing if the id is not among the hits), `score_before`, `score_after` (float64), `moved`
        (Int64: ranks up; missing if only one result has the id).

    Raises
    ------
    InputError
        If a column is missing, or ranks or queries are not whole numbers.

    Examples
    --------
    >>> before = pd.DataFrame({"query": 0, "rank": [1, 2], "id": ["a", "b"], "score": [0.9, 0.8]})
    >>> after = pd.DataFrame({"query": 0, "rank": [1, 2], "id": ["b", "c"], "score": [0.7, 0.6]})
    >>> score_moves(before, after)[["id", "moved"]].to_dict("list")
    {'id': ['a', 'b', 'c'], 'moved': [None, 1, None]}
    """
    doing = "comparing query results"
    hits = {"before": before, "after": after}
    key = {"query": "Int64", "id": "str"}
    if all(
        "namespace" in opened(frame, doing=doing, name=name).names
        for name, frame in hits.items()
    ):
        key = {"query": "Int64", "namespace": "str", "id": "str"}

    types = key | {"rank": "Int64", "score": "float64"}
    tables = {
        name: select(frame, types, doing=doing, name=name).whole_table(doing)
        for name, frame in hits.items()
    }
    try:
        for table, name in product(tables.values(), ("query", "rank")):
            table[name].cast(pa.int64())
    except pa.ArrowInvalid:
        raise InputError(
            doing,
            got="ranks or queries that are not whole numbers",
            expected="ranks and queries of query results",
            next_step="Use frames made by query or query_text.",
        ) from None

    first, second = (
        typed_frame(
            **{
                column: (dtype, table[column].to_pylist())
                for column, dtype in types.items()
            }
        )
        for table in tables.values()
    )
    both = first.merge(
        second, on=list(key), how="outer", suffixes=("_before", "_after")
    )
    both["moved"] = both["rank_before"] - both["rank_after"]
    # Each hit is placed at the better of its two ranks; hits that are only in the later
    # result come after others of that rank.
    best = both[["rank_before", "rank_after"]].min(axis=1)
    order = pd.DataFrame(
        {"query": both["query"], "best": best, "later": both["rank_before"].isna()}
    )
    both = both.loc[order.sort_values(["query", "best", "later"], kind="stable").index]

    return both.reset_index(drop=True)[
        [*key, "rank_before", "rank_after", "score_before", "score_after", "moved"]
    ]


_BATCH = 8_192  # rows that are squared at once: squaring a large index would double the memory


@dataclass(frozen=True, eq=False, kw_only=True)
class NormBins(Counted):
    """Counts of vectors by their Euclidean length."""

    edges: NDArray[np.float64]  # shape (bins + 1,)
    counts: NDArray[np.int64]  # shape (bins,)
    zero: int  # vectors of length 0, which have no direction and no cosine; `counts` includes them
    left_out: int  # rows without a usable dense vector


def norm_bins(vectors: AnyFrame, *, bins: int = 40) -> NormBins:
    """Count vectors by their Euclidean length, in bins between the shortest and the longest.

    If all lengths differ by less than a millionth, the result has one bin: only rounding differs.

    Parameters
    ----------
    vectors : frame
        With the column `vector`, of lists of numbers.
    bins : int
        Number of bins, from 1 to 1,000.

    Returns
    -------
    NormBins

    Raises
    ------
    InputError
        If the column is missing or has other values than lists of numbers, or `bins` is out of range.

    Examples
    --------
    >>> bins = norm_bins(pd.DataFrame({"vector": [[3.0, 4.0], [0.0, 1.0]]}), bins=2)
    >>> bins.edges.tolist(), bins.counts.tolist()
    ([1.0, 3.0, 5.0], [1, 1])
    """
    doing = "measuring the lengths of vectors"
    bins = whole("bins", bins, most=_MOST_BINS)
    measured = select(vectors, ["vector"], doing=doing, name="vectors").then(_measured)
    lengths = measured.table()["length_"].to_numpy()
    total = len(lengths)
    lengths = lengths[np.isfinite(lengths)]
    edges, counts = np.zeros(0), np.zeros(0, dtype=np.int64)

    if len(lengths):
        low, high = float(lengths.min()), float(lengths.max())
        if high - low <= 1e-6 * max(high, 1e-30):
            low, high, bins = low - 0.5, high + 0.5, 1
        counts, edges = np.histogram(lengths, bins=bins, range=(low, high))

    return NormBins(
        edges=edges,
        counts=counts.astype(np.int64),
        zero=int((lengths == 0).sum()),
        left_out=total - len(lengths),
    )


def _measured(table: pa.Table) -> pa.Table:
    """Return the length of each vector of a batch, as `length_`; it is NaN if there is no vector."""
    column = table["vector"].combine_chunks()
    if not (pa.types.is_null(column.type) or is_numbers(column.type)):
        raise InputError(
            "measuring the lengths of vectors",
            got=f"a column vector of the type {str(column.type)[:80]}",
            expected="lists of numbers",
            next_step="Use a frame made by load_vectors or query.",
        )

    lengths = np.full(len(column), np.nan)
    present = column.drop_null()
    if len(present):
        parts = [
            _squares(present.slice(start, _BATCH))
            for start in range(0, len(present), _BATCH)
        ]
        is_present = column.is_valid().to_numpy(zero_copy_only=False)
        lengths[is_present] = np.sqrt(np.concatenate(parts))

    return pa.table({"length_": lengths})


def _squares(vectors: pa.Array) -> NDArray[np.float64]:
    """Return the sum of squares of each vector."""
    values = vectors.flatten().cast(pa.float64()).to_numpy(zero_copy_only=False)
    rows = pc.list_parent_indices(vectors).to_numpy()
    with np.errstate(over="ignore"):
        # a length that overflows is not finite, and is not counted
        return np.bincount(
            rows, weights=values * values, minlength=len(vectors)
        ).astype(np.float64)
