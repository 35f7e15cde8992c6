"""How the scores of query results are spread."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from narwhals.typing import IntoFrame
from numpy.typing import NDArray

from toolkit.analysis.columns import check_scalar, collect, named, select
from toolkit.arguments import whole

_MOST_BINS = 1_000


@dataclass(frozen=True, eq=False, kw_only=True)
class ScoreBins:
    """Counts per score bin.

    Attributes
    ----------
    edges : numpy.ndarray
        float64, shape (bins + 1,), ascending. A bin holds its lower edge; the last one also its upper.
    groups : tuple of str
        Names of the groups, in their own order; where groups were merged, the last is ``other (n)``.
    counts : numpy.ndarray
        int64, shape (groups, bins).
    merged : int
        How many groups the last one holds; 0 when none were merged.
    left_out : int
        Hits whose score is missing or not finite. They are in no bin.
    scores : tuple of numpy.ndarray
        float64, the scores of each group, ascending.
    """

    edges: NDArray[np.float64]
    groups: tuple[str, ...]
    counts: NDArray[np.int64]
    merged: int
    left_out: int
    scores: tuple[NDArray[np.float64], ...]

    @property
    def total(self) -> int:
        """Hits in all bins."""
        return int(self.counts.sum())


def score_summary(hits: IntoFrame) -> pd.DataFrame:
    """The scores of each query in a few numbers.

    Parameters
    ----------
    hits : frame
        With the columns `query` and `score`.

    Returns
    -------
    pandas.DataFrame
        One row a query, in order: `query` (Int64), `hits` (Int64), `best`, `median`, `worst`, `gap` (float64;
        `gap` is between the best and the second score, missing with a single hit). Scores that are missing or
        not finite are left out of all but `hits`.

    Examples
    --------
    >>> import pandas as pd
    >>> score_summary(pd.DataFrame({"query": [0, 0, 0], "score": [0.9, 0.7, 0.6]})).round(2)
       query  hits  best  median  worst  gap
    0      0     3   0.9     0.7    0.6  0.2
    """
    table = collect(select(hits, ["query", "score"], doing="summing up scores", name="hits"))
    frame = pd.DataFrame(
        {
            "query": pd.Series(table["query"].to_pylist(), dtype="Int64"),
            "score": pd.Series(table["score"].to_pylist(), dtype="float64").replace(
                [np.inf, -np.inf], np.nan
            ),
        }
    )
    scores = frame.groupby("query")["score"]
    best = scores.max()
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


def score_bins(hits: IntoFrame, *, by: str | None = "query", bins: int = 20, top: int = 8) -> ScoreBins:
    """Count hits per score bin, for each group on the same edges.

    Parameters
    ----------
    hits : frame
        With the columns `score` and `by`.
    by : str or None
        Column of single values to tell apart; None takes all hits together.
    bins : int
        How many bins of equal width between the lowest and the highest score, 1 to 1,000.
    top : int
        How many groups to tell apart, in their own order; the rest is merged into one. At least 1.

    Returns
    -------
    ScoreBins
        Where all scores are equal there is one bin, half a unit to either side; where they differ by less
        than bins can tell apart, one bin as well.

    Raises
    ------
    InputError
        When a column is missing or a number is out of bounds.

    Examples
    --------
    >>> import pandas as pd
    >>> found = score_bins(pd.DataFrame({"query": [0, 0, 1], "score": [0.0, 1.0, 0.4]}), bins=2)
    >>> found.groups, found.counts.tolist()
    (('0', '1'), [[1, 1], [1, 0]])
    """
    doing = "counting hits by score"
    bins, top = whole("bins", bins, most=_MOST_BINS), whole("top", top)
    keys = [] if by is None else [by]
    lazy = select(hits, ["score"], doing=doing, name="hits", chosen={} if by is None else {"by": by})
    check_scalar(lazy, keys, doing=doing)
    table = collect(lazy)
    scores = np.array(
        [np.nan if score is None else score for score in table["score"].to_pylist()], dtype=np.float64
    )
    values = table[by].to_pylist() if by else ["all hits"] * len(scores)
    usable = np.isfinite(scores)
    order = sorted({value for value, keep in zip(values, usable, strict=True) if keep}, key=_order)
    merged = max(len(order) - top, 0)
    kept = {value: number for number, value in enumerate(order[:top])}
    texts = query_texts(hits) if by == "query" else {}
    groups = [texts.get(value) or named(value) for value in order[:top]] + (
        [f"other ({merged})"] if merged else []
    )
    edges = _edges(scores[usable], bins) if usable.any() else np.zeros(0)
    places = np.array([kept.get(value, top) for value in values], dtype=np.int64)
    found = tuple(np.sort(scores[usable & (places == number)]) for number in range(len(groups)))
    counts = np.zeros((len(groups), max(len(edges) - 1, 0)), dtype=np.int64)
    for number, some in enumerate(found):
        counts[number] = np.histogram(some, bins=edges)[0]
    return ScoreBins(
        edges=edges,
        groups=tuple(groups),
        counts=counts,
        merged=merged,
        left_out=int((~usable).sum()),
        scores=found,
    )


def query_texts(hits: IntoFrame) -> dict[Any, str]:
    """What was asked, by the number of the query, as far as the frame of hits still knows; no text twice.

    >>> hits = pd.DataFrame({"query": [0, 1]})
    >>> hits.attrs["queries"] = [{"data": "connection refused", "top_k": 3}, {"vector": {"dimension": 3}}]
    >>> query_texts(hits)
    {0: 'connection refused'}
    """
    asked = getattr(hits, "attrs", {}).get("queries", ())
    texts = {}
    for number, one in enumerate(asked if isinstance(asked, list | tuple) else ()):
        text = (one.get("data") or one.get("id")) if isinstance(one, dict) else None
        if isinstance(text, str) and text.strip():
            texts[number] = text
    often = Counter(texts.values())
    return {number: text if often[text] == 1 else f"{text} ({number})" for number, text in texts.items()}


def _edges(scores: NDArray[np.float64], bins: int) -> NDArray[np.float64]:
    lowest, highest = scores.min(), scores.max()
    # halves, because the distance of two large numbers may be none
    half = highest / 2 - lowest / 2
    if half <= bins * np.spacing(max(abs(lowest), abs(highest))):
        return np.histogram_bin_edges(scores, bins=1)
    return np.linspace(lowest / 2, highest / 2, bins + 1) * 2


def _order(value: object) -> tuple[bool, bool, float, str]:
    """Numbers by size, then texts, then what is missing."""
    number = isinstance(value, int | float)
    return value is None, not number, float(value) if isinstance(value, int | float) else 0.0, str(value)
