"""Group hits by document, and measure rankings with judgements: nDCG, recall, and the rank of an id."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np
import pandas as pd

from toolkit.base.arguments import nearest, text, whole, wrong
from toolkit.base.errors import InputError
from toolkit.tables.arrow_input import FrameLike
from toolkit.tables.explode import explode_metadata
from toolkit.tables.frames import checked_frame
from toolkit.vectors.documents import documents_by
from toolkit.vectors.fusion import measures_of
from toolkit.vectors.retrieval import paired_difference
from toolkit.vectors.vector_rows import typed_tuples

By: TypeAlias = str | Callable[[str], str]

_MEASURES: Final = ("ndcg", "reciprocal_rank", "recall")


def group_hits(hits: FrameLike, by: By = "document") -> pd.DataFrame:
    """Return the best hit per query and document, because the chunks of one document take several ranks.

    Parameters
    ----------
    hits : pandas.DataFrame
        Hits of `query` or `query_text`: `id`, `rank`, `score`, optionally `query`, and `metadata` if `by` is
        a field.
    by : str or callable
        The document of a hit: a column of `hits`, a field of the metadata, or a function of the id, for
        example one that returns the part before ``#``.

    Returns
    -------
    pandas.DataFrame
        The rows of the best hits with their columns. `rank` counts documents. New columns: the name of `by`
        (``document`` for a function), `hits` (Int64, hits of the document), `ids` (tuple, best first). A hit
        without a document is a row of its own.

    Raises
    ------
    InputError
        If a column is missing, or no hit has the field.

    Examples
    --------
    >>> hits = pd.DataFrame({"rank": [1, 2, 3], "id": ["a#1", "a#2", "b#1"], "score": [0.9, 0.8, 0.7]})
    >>> group_hits(hits, lambda key: key.split("#")[0])[["rank", "document", "hits"]]
       rank document  hits
    0     1        a     2
    1     2        b     1
    """
    frame = checked_frame("hits", hits, "id", "rank", distinct=True)
    name = "document"
    if isinstance(by, str):
        name = text("by", by, empty=False)
    elif not callable(by):
        raise wrong("by", by, "a column, a field of the metadata, or a function")

    frame = frame.reset_index(drop=True)
    frame = frame.assign(**{name: _documents(frame, by)})
    frame = frame.sort_values("rank", kind="stable", ignore_index=True)
    # a hit without a document is the only one of its document
    alone = pd.Series([f"\0{row}" for row in range(len(frame))])
    keys = [frame[name].astype("object").where(frame[name].notna(), alone)]
    if "query" in frame:
        keys.insert(0, frame["query"])
    rows_of: dict[int, list[int]] = {}
    for row, group in enumerate(frame.groupby(keys, sort=False).ngroup()):
        rows_of.setdefault(group, []).append(row)
    ids = frame["id"].tolist()
    ids_of: Any = [tuple(ids[row] for row in rows) for rows in rows_of.values()]
    best = frame.iloc[[rows[0] for rows in rows_of.values()]].assign(
        hits=pd.array([len(rows) for rows in rows_of.values()], "Int64"),
        ids=ids_of,
    )
    if "query" not in best:
        best = best.sort_values("rank", kind="stable", ignore_index=True)
        return best.assign(rank=pd.array(np.arange(1, len(best) + 1), "Int64"))

    best = best.sort_values(["query", "rank"], kind="stable", ignore_index=True)
    rank = best.groupby("query", sort=False).cumcount() + 1
    return best.assign(rank=rank.astype("Int64"))


def score_hits(
    hits: FrameLike, judgements: FrameLike, *, by: By | None = None, k: int = 10
) -> pd.DataFrame:
    """Measure the hits of each judged query: nDCG, recall, and the rank of the first relevant hit.

    Parameters
    ----------
    hits : pandas.DataFrame
        Hits of `query` or `query_text`: `id`, `rank`, and `query` if there are several.
    judgements : pandas.DataFrame
        `query` (the number, 0 if `hits` are of one query), `id` or, with `by`, `document` (or the name that
        you pass as `by`), and optionally `relevance` (a number from 0; 1 without the column).
    by : str or callable, optional
        Judge documents instead of hits: as for `group_hits`.
    k : int
        Number of hits, or documents, that are measured.

    Returns
    -------
    pandas.DataFrame
        One row per query with a relevant id: `query` (Int64), `rank` (Int64, of the first relevant hit among
        all hits, missing if there is none), `ndcg`, `reciprocal_rank`, `recall` (float64, of the first `k`).

    Raises
    ------
    InputError
        If a column is missing, or a relevance is not a number from 0.

    Examples
    --------
    >>> hits = pd.DataFrame({"rank": [1, 2], "id": ["a", "b"], "score": [0.9, 0.8]})
    >>> score_hits(hits, pd.DataFrame({"query": [0], "id": ["b"]}))[["query", "rank", "ndcg"]].round(2)
       query  rank  ndcg
    0      0     2  0.63
    """
    k = whole("k", k, most=1000)
    frame, name = checked_frame("hits", hits, "id", "rank", distinct=True), "id"
    if by is not None:
        frame = group_hits(frame, by)
        name = by if isinstance(by, str) else "document"

    judged = _judgements(judgements, name)
    if "query" not in frame:
        frame = frame.assign(query=0)
    groups: Any = frame.groupby("query")
    ranked = {
        int(number): part.sort_values("rank")[name].astype("str").tolist()
        for number, part in groups
    }

    rows = []
    for number, relevance in sorted(judged.items()):
        top = ranked.get(number, [])
        is_relevant = [relevance.get(key, 0) > 0 for key in top]
        rank = None
        if any(is_relevant):
            rank = is_relevant.index(True) + 1
        rows.append((number, rank, *measures_of(top[:k], relevance, k)))

    return typed_tuples(
        rows, query="Int64", rank="Int64", **dict.fromkeys(_MEASURES, "float64")
    )


def compare_hits(
    before: FrameLike,
    after: FrameLike,
    judgements: FrameLike,
    *,
    by: By | None = None,
    k: int = 10,
    seed: int = 0,
) -> pd.DataFrame:
    """Compare the hits of two models, namespaces or indexes for the same queries, with judgements.

    Parameters
    ----------
    before, after : pandas.DataFrame
        Hits of the same queries, for example of two namespaces with vectors of two models.
    judgements, by, k
        As for `score_hits`. Pass `by` if the ids of both differ, and judge documents.
    seed : int
        Seed for the intervals.

    Returns
    -------
    pandas.DataFrame
        One row per measure (``ndcg``, ``reciprocal_rank``, ``recall``): `measure`, `queries` (Int64),
        `before`, `after` (float64, means), `difference`, `low`, `high` (float64, after minus before, with the
        95 % interval over queries).

    Raises
    ------
    InputError
        As for `score_hits`.

    Examples
    --------
    >>> before = pd.DataFrame({"rank": [1, 2], "id": ["a", "b"]})
    >>> after = pd.DataFrame({"rank": [1, 2], "id": ["b", "a"]})
    >>> judged = pd.DataFrame({"query": [0], "id": ["b"]})
    >>> compare_hits(before, after, judged)[["measure", "before", "after"]].round(2)
               measure  before  after
    0             ndcg    0.63    1.0
    1  reciprocal_rank    0.50    1.0
    2           recall    1.00    1.0
    """
    seed = whole("seed", seed, least=0)
    sides = [
        checked_frame(name, hits, "id", "rank", distinct=True)
        for name, hits in (("before", before), ("after", after))
    ]
    old, new = (score_hits(side, judgements, by=by, k=k) for side in sides)

    rows = []
    for measure in _MEASURES:
        first, second = old[measure].to_numpy(), new[measure].to_numpy()
        difference = paired_difference(second, first, seed=seed)
        means = [side.mean() if side.size else np.nan for side in (first, second)]
        rows.append((measure, len(first), *means, *difference))

    numbers = dict.fromkeys(("before", "after", "difference", "low", "high"), "float64")
    return typed_tuples(rows, measure="str", queries="Int64", **numbers)


def _documents(frame: pd.DataFrame, by: By) -> pd.Series[Any]:
    """Return the document of each hit."""
    if not isinstance(by, str):
        documents = list(map(_name, documents_by("by", by, frame["id"])))
        return pd.Series(documents, index=frame.index, dtype="object")
    if by in frame:
        return frame[by]

    next_step = "Query with include_metadata=True to have their metadata."
    if "metadata" in frame:
        fields = explode_metadata(frame[["id", "metadata"]])
        if by in fields:
            return pd.Series(fields[by].array, index=frame.index)
        names = dict.fromkeys([*map(str, fields.columns), *map(str, frame.columns)])
        next_step = nearest(by, names)

    raise wrong(
        "by",
        by,
        "a column of the hits, a field of their metadata, or a function of the id",
        next_step,
    )


def _name(document: object) -> str | None:
    if document is None:
        return None
    return str(document)


def _judgements(judgements: FrameLike, name: str) -> dict[int, dict[str, float]]:
    """Return the relevance of each judged id or document, for the queries with a relevant one."""
    frame = checked_frame("judgements", judgements, "query", name, distinct=True)
    relevance = [1.0] * len(frame)
    if "relevance" in frame:
        relevance = frame["relevance"].tolist()

    judged: dict[int, dict[str, float]] = {}
    rows = zip(frame["query"], frame[name], relevance, strict=True)
    for row, (number, key, value) in enumerate(rows):
        try:
            known, degree = int(number), float(value)
        except (TypeError, ValueError):
            known, degree = 0, -1.0

        if not degree >= 0:
            raise InputError(
                f"reading judgements, row {row}",
                got=f"query {number!r} and relevance {value!r}"[:200],
                expected="the number of a query, and a relevance from 0",
            )

        judged.setdefault(known, {})[str(key)] = degree

    return {number: of for number, of in judged.items() if any(of.values())}
