"""Scores by rank, and what moved between two sets of query results."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from narwhals.typing import IntoFrame
from numpy.typing import NDArray

from toolkit.analysis.columns import NONE, check_scalar, collect, named, select
from toolkit.analysis.scores import query_texts
from toolkit.arguments import whole


@dataclass(frozen=True, eq=False, kw_only=True)
class ScoreCurve:
    """The scores of one group of hits, best first.

    Attributes
    ----------
    name : str
    ranks : numpy.ndarray
        int64, ascending.
    scores : numpy.ndarray
        float64, finite.
    """

    name: str
    ranks: NDArray[np.int64]
    scores: NDArray[np.float64]


def score_curves(hits: IntoFrame, *, by: str = "query", top: int = 8) -> tuple[list[ScoreCurve], int]:
    """The scores of each group by rank.

    Parameters
    ----------
    hits : frame
        With the columns `rank`, `score` and `by`.
    by : str
        Column of single values to tell apart.
    top : int
        How many groups, in the order in which they come. At least 1.

    Returns
    -------
    list of ScoreCurve
    int
        How many groups were left out.

    Raises
    ------
    InputError
        When a column is missing, or `top` is below 1.

    Examples
    --------
    >>> frame = pd.DataFrame({"query": [0, 0], "rank": [1, 2], "score": [0.9, 0.4]})
    >>> score_curves(frame)[0][0].scores.tolist()
    [0.9, 0.4]
    """
    doing = "ordering scores by rank"
    top = whole("top", top)
    lazy = select(hits, ["rank", "score"], doing=doing, name="hits", chosen={"by": by})
    columns = list(dict.fromkeys([by, "rank", "score"]))
    check_scalar(lazy, columns, doing=doing)
    frame = collect(lazy).to_pandas()
    frame["score"] = pd.to_numeric(frame["score"]).astype("float64")
    frame = frame[np.isfinite(frame["score"]) & frame["rank"].notna()]
    texts = query_texts(hits) if by == "query" else {}
    groups = list(frame.groupby(by, sort=False, dropna=False))
    curves = []
    for value, group in groups[:top]:
        ordered = group.sort_values("rank", kind="stable")
        curves.append(
            ScoreCurve(
                name=NONE if pd.isna(value) else texts.get(value) or named(value),
                ranks=ordered["rank"].to_numpy(dtype=np.int64),
                scores=ordered["score"].to_numpy(dtype=np.float64),
            )
        )
    return curves, max(len(groups) - top, 0)


def score_moves(before: IntoFrame, after: IntoFrame) -> pd.DataFrame:
    """What moved between two sets of results of the same queries.

    Parameters
    ----------
    before, after : frame
        With the columns `query`, `rank`, `id`, `score`.

    Returns
    -------
    pandas.DataFrame
        One row a query and id of either: `query` (Int64), `id` (str), `rank_before`, `rank_after` (Int64,
        missing where it is not among the hits), `score_before`, `score_after` (float64), `moved` (Int64:
        places up; missing where it came or went), ordered by query, then the better of the two ranks.

    Raises
    ------
    InputError
        When a column is missing.

    Examples
    --------
    >>> before = pd.DataFrame({"query": 0, "rank": [1, 2], "id": ["a", "b"], "score": [0.9, 0.8]})
    >>> after = pd.DataFrame({"query": 0, "rank": [1, 2], "id": ["b", "c"], "score": [0.7, 0.6]})
    >>> score_moves(before, after)[["id", "moved"]].to_dict("list")
    {'id': ['a', 'b', 'c'], 'moved': [None, 1, None]}
    """
    doing = "comparing query results"
    columns = ["query", "rank", "id", "score"]
    first, second = (
        pd.DataFrame(
            {
                "query": pd.Series(table["query"].to_pylist(), dtype="Int64"),
                "id": pd.Series(table["id"].to_pylist(), dtype="str"),
                "rank": pd.Series(table["rank"].to_pylist(), dtype="Int64"),
                "score": pd.Series(table["score"].to_pylist(), dtype="float64"),
            }
        )
        for table in (
            collect(select(frame, columns, doing=doing, name=name))
            for name, frame in (("before", before), ("after", after))
        )
    )
    both = first.merge(second, on=["query", "id"], how="outer", suffixes=("_before", "_after"))
    both["moved"] = both["rank_before"] - both["rank_after"]
    best = both[["rank_before", "rank_after"]].min(axis=1)
    order = pd.DataFrame({"query": both["query"], "best": best, "later": both["rank_before"].isna()})
    both = both.loc[order.sort_values(["query", "best", "later"], kind="stable").index]
    return both.reset_index(drop=True)[
        ["query", "id", "rank_before", "rank_after", "score_before", "score_after", "moved"]
    ]
