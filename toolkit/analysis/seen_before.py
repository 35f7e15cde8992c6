"""Whether failures were seen before: earlier groups that look alike, and what became of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pandas as pd
import pyarrow as pa

from toolkit.analysis.comparing import comparable
from toolkit.analysis.group_rules import GroupRules
from toolkit.analysis.grouping import grouped, read_rules
from toolkit.analysis.outcomes import OUTCOMES, retry_outcomes
from toolkit.analysis.results import frame_table
from toolkit.analysis.similar import similar_texts
from toolkit.analysis.sources import AnyFrame
from toolkit.analysis.wording import counted
from toolkit.arguments import whole
from toolkit.redaction import Redactor, visible

_MOST: Final = 2_000  # groups of either side that are compared by their texts, the largest
_TEXT: Final = 20_000  # characters of a body that are compared
_SHOWN: Final = 50  # rows that a notebook shows
_TYPES: Final = {
    "group": "str",
    "title": "str",
    "rank": "Int64",
    "similar": "str",
    "similar_title": "str",
    "similarity": "float64",
    "seen": "bool",
    "count": "Int64",
    "last_at": "datetime64[ms, UTC]",
    "outcome": "str",
}


@dataclass(frozen=True, eq=False, repr=False)
class SimilarFailures:
    """Earlier groups that groups of failures look like; made by `similar_failures`.

    Attributes
    ----------
    frame : pandas.DataFrame
        Up to `k` rows a group, the largest group first: `group`, `title` (str), `rank` (Int64, from 1;
        missing in the one row of a group that looks like nothing), `similar`, `similar_title` (str: the
        earlier group), `similarity` (float64, above 0 to 1; 1 for the same group), `seen` (bool: whether the
        group's most similar one is similar enough to have been seen before), `count` (Int64), `last_at`
        (datetime64[ms, UTC]) and `outcome` (str), of the earlier failures: how many, the last, and what
        became of them.

    Examples
    --------
    >>> from toolkit import load_failures, similar_failures
    >>> failures = load_failures(service, progress=False)
    >>> bool(similar_failures(failures[:50], failures[50:]).frame["seen"].any())
    True
    """

    frame: pd.DataFrame

    def __repr__(self) -> str:
        first = self.frame.drop_duplicates("group")
        new = int((~first["seen"]).sum())
        said = f"{counted(len(first), 'group')}: {len(first) - new:,} seen before, {new:,} never"
        if not new:
            return said
        return f"{said}; never seen: {visible(first['title'][~first['seen']].iloc[0])}"

    def _repr_html_(self) -> str:
        return frame_table(repr(self), self.frame.head(_SHOWN))


def similar_failures(
    failures: AnyFrame,
    history: AnyFrame,
    *,
    k: int = 5,
    runs: AnyFrame | None = None,
    retried: Mapping[str, str] | None = None,
    retention: str | timedelta | None = None,
    rules: str | Path | GroupRules | None = None,
) -> SimilarFailures:
    """Find, for each group of failures, earlier groups that look alike and what became of them.

    A group of the history with the same id is the most similar one; others are compared by words, exception
    types and frames. Of each side, the 2,000 largest groups are compared so, the others only by id. Not for
    telling whether two groups have one cause.

    Parameters
    ----------
    failures, history : frame
        With the columns of `load_failures`. Entries that both have count as failures only. A snapshot as
        history also says which entries left the queue.
    k : int
        How many groups to name for each, at least 1.
    runs, retried, retention
        What is known of entries that left, as in `retry_outcomes`.
    rules : str, Path or GroupRules, optional
        As in `group_failures`.

    Returns
    -------
    SimilarFailures
        `.frame` has up to `k` rows a group.

    Raises
    ------
    InputError
        When a column is missing, or an option cannot be read.

    Examples
    --------
    >>> def failures(*bodies):
    ...     times = pd.to_datetime(["2026-01-01"] * len(bodies), utc=True)
    ...     return pd.DataFrame({"dlq_id": list(bodies), "workflow_url": "u", "workflow_run_id": "w",
    ...         "failed_at": times, "created_at": times, "response_status": 500, "response_body": bodies,
    ...         "response_body_base64": [None] * len(bodies)})
    >>> history = failures("connection to the database refused", "no space left on device")
    >>> found = similar_failures(failures("connection to the cache refused", "teapot"), history, k=1)
    >>> found
    2 groups: 1 seen before, 1 never; never seen: teapot
    """
    k, given = whole("k", k), read_rules(rules)
    new, old = comparable(failures, "failures", given), comparable(history, "history", given)
    outcomes = retry_outcomes(history, runs=runs, retried=retried, retention=retention).frame["outcome"]
    groups, ids = grouped(pa.concat_tables([new, old]), given)
    titles = groups.frame.set_index("group")["title"]
    one = _rows(new, ids[: new.num_rows])
    two = _rows(old, ids[new.num_rows :]).assign(outcome=outcomes.to_numpy())
    two = two[~two["id"].isin(one["id"])]
    queries, known = _largest(one), _largest(two)
    facts = two.groupby("group").agg(count=("id", "size"), last_at=("at", "max"))
    became = two.groupby("group")["outcome"].agg(_said)
    clean = Redactor().text
    found = similar_texts(_texts(new, queries[:_MOST], clean), _texts(old, known[:_MOST], clean), k)
    near = dict(iter(found.groupby("query")))
    everything: list[dict[str, Any]] = []
    for number, group in enumerate(row.group for row in queries):
        pairs = [(group, 1.0)] if group in facts.index else []
        seen = bool(pairs)
        if number in near:
            seen = seen or bool(near[number]["seen"].iloc[0])
            pairs += [
                (known[row].group, similarity)
                for row, similarity in zip(near[number]["row"], near[number]["similarity"], strict=True)
                if known[row].group != group
            ]
        for rank, (other, similarity) in enumerate(pairs[:k] or [(None, float("nan"))], 1):
            everything.append(
                {
                    "group": group,
                    "title": titles[group],
                    "rank": None if other is None else rank,
                    "similar": other,
                    "similar_title": None if other is None else titles[other],
                    "similarity": similarity,
                    "seen": seen,
                    "count": None if other is None else facts["count"][other],
                    "last_at": None if other is None else facts["last_at"][other],
                    "outcome": None if other is None else became[other],
                }
            )
    return SimilarFailures(pd.DataFrame(everything, columns=list(_TYPES)).astype(_TYPES))


def _rows(table: pa.Table, groups: list[str]) -> pd.DataFrame:
    frame = pd.DataFrame({"group": groups, "id": table["dlq_id"].to_pylist()}, dtype=object)
    at = pd.Series(table["failed_at"].to_pandas()).fillna(pd.Series(table["created_at"].to_pandas()))
    return frame.assign(at=pd.to_datetime(at, utc=True).astype("datetime64[ms, UTC]"), row=range(len(frame)))


def _largest(frame: pd.DataFrame) -> list[Any]:
    """Of each group its id and its first row, the largest group first."""
    found = frame.groupby("group", as_index=False).agg(count=("id", "size"), row=("row", "first"))
    found = found.sort_values(["count", "group"], ascending=[False, True])
    return list(found.itertuples(index=False))


def _texts(table: pa.Table, groups: list[Any], clean: Any) -> list[str]:
    rows = pa.array([group.row for group in groups], pa.int64())
    bodies = table["response_body"].take(rows).to_pylist()
    return [clean((body or "")[:_TEXT]) for body in bodies]


def _said(outcomes: pd.Series) -> str:
    """What became of entries, in words, the most frequent first."""
    sizes = outcomes.value_counts()
    ordered = sorted(sizes.index, key=lambda name: (-sizes[name], OUTCOMES.index(name)))
    return ", ".join(f"{sizes[name]:,} {name}" for name in ordered)
