"""Judge the recall of an audit: by groups of namespace and filter, and over distinct queries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import pandas as pd

from toolkit.vectors.retrieval import Recall, mean_recall
from toolkit.vectors.vector_rows import typed_tuples

GOOD: Final = 0.95
ERROR: Final = 0.05
"""Chance of a wrong claim that some group misses neighbours."""
_FEW: Final = 20  # with fewer queries, the mean of a group varies too much to blame it


def recall_by_group(
    frame: pd.DataFrame,
    selectivity: Mapping[tuple[str, str], float],
    *,
    k: int,
    seed: int,
) -> pd.DataFrame:
    """Return one row per namespace and filter: the mean recall, the 95 % interval, and a judgement."""
    groups = list(frame.groupby(["namespace", "filter"], sort=True))
    rows = []
    for names, part in groups:
        place, chosen = map(str, names)
        shares = part["share"].tolist()
        found = mean_recall(shares, k=k, seed=seed)
        # The worst of many groups looks bad by chance, so the chance of a wrong claim is divided by their
        # number (Bonferroni).
        error = ERROR / len(groups)
        claimed = mean_recall(shares, k=k, seed=seed, error=error)
        gap = np.nan
        if "score_gap" in part:
            gap = part["score_gap"].mean()
        rows.append(
            (
                place,
                chosen,
                selectivity.get((place, chosen), np.nan),
                len(part),
                found.mean,
                found.low,
                found.high,
                gap,
                _group_judgement(found, claimed, error),
            )
        )

    return typed_tuples(
        rows, namespace="str", filter="str", selectivity="float64", queries="Int64", share="float64",
        low="float64", high="float64", score_gap="float64", judged="str",
    )  # fmt: skip


def _group_judgement(found: Recall, claimed: Recall, error: float) -> str:
    if np.isnan(found.mean):
        return "unknown"
    if is_surely_low(claimed, error):
        return "misses"
    if found.mean < GOOD and known_queries(found) >= _FEW:
        return "may miss"
    if found.low < GOOD:
        return "few queries"

    return "good"


def is_surely_low(found: Recall, error: float) -> bool:
    """Return whether the true recall is too low, with the given chance of a wrong claim."""
    queries = known_queries(found)
    if queries >= _FEW:
        return found.high < GOOD

    # A bootstrap of few queries is too narrow: four queries with a recall of 0.9 have an upper end of 0.93.
    # Hoeffding's inequality (1963) is true for any distribution between 0 and 1: with four queries, it
    # claims a low recall below 0.27.
    margin = np.sqrt(np.log(2 / error) / (2 * max(queries, 1)))
    return bool(found.mean + margin < GOOD)


def known_queries(found: Recall) -> int:
    """Return the number of queries with a known recall."""
    return int(np.isfinite(found.per_query).sum())


def recall_over_queries(frame: pd.DataFrame, *, k: int, seed: int) -> Recall:
    """Return the recall over distinct queries: a query with several filters has its mean recall.

    Results of one query with several filters are right or wrong together, so they are no evidence of their
    own, and the interval would be too narrow if each counted.
    """
    per_query = frame.groupby(["namespace", "query"], sort=True)["share"].mean()
    return mean_recall(per_query.tolist(), k=k, seed=seed)
