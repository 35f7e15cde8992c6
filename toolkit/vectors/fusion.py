"""Compare dense and sparse search and their fusions: whether they agree, and whether fusing helps."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pandas as pd

from toolkit.base.arguments import shown, text, unmasked, whole, wrong
from toolkit.base.errors import InputError, UnexpectedResultWarning
from toolkit.base.progress import ProgressSteps, StepOption
from toolkit.base.visible_text import visible
from toolkit.drawing.result_tables import frame_table
from toolkit.drawing.wording import counted, percent
from toolkit.filters.query import VectorQuery
from toolkit.loading.queries import run_queries
from toolkit.service.settings import Service
from toolkit.service.vectors import describe_index
from toolkit.tables.arrow_input import FrameLike
from toolkit.tables.column_values import clean
from toolkit.tables.frames import checked_frame
from toolkit.vectors.given_queries import listed_queries
from toolkit.vectors.rank_fusion import fuse
from toolkit.vectors.retrieval import paired_difference
from toolkit.vectors.vector_rows import typed_tuples

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from toolkit.drawing.style import ThemeName

_DOING: Final = "comparing fusions"
_AT_ONCE: Final = 20  # queries per request: each returns up to `depth` hits
_SYSTEMS: Final = ("dense", "sparse", "RRF", "DBSF")
_MEASURES: Final = ("ndcg", "mrr", "recall")
# relative difference of scores: scores of the legs are rounded to float32
_ROUNDING: Final = 1e-4
_RECONCILED: Final = 0.99

FusionQueries: TypeAlias = str | VectorQuery | Iterable[str | VectorQuery]
_Ranking: TypeAlias = list[tuple[str, float]]


@dataclass(frozen=True, repr=False, eq=False)
class FusionComparison:
    """Dense, sparse and fused results of the same queries; made by `compare_fusion`.

    Attributes
    ----------
    frame : pandas.DataFrame
        One row per query and id that is among the first ``k`` of any ranking: ``query`` (Int64), ``id``,
        ``dense_rank``, ``sparse_rank``, ``rrf_rank``, ``dbsf_rank`` (Int64, missing beyond the requested
        hits), ``relevance`` (float64, as judged, otherwise missing).
    by : pandas.DataFrame
        One row per query: ``query``, ``agreement`` (float64, the share of the first ``k`` that dense and
        sparse have in common) and, for judged queries, ``ndcg_dense``, ``mrr_dense``, ``recall_dense``, … of
        each ranking (float64).
    differences : pandas.DataFrame
        One row per fusion, leg and measure: ``fusion``, ``leg``, ``measure``, ``queries`` (Int64),
        ``difference``, ``low``, ``high`` (float64, the mean over queries of fusion minus leg, and the 95 %
        interval).
    scores : pandas.DataFrame
        One row per fusion: ``fusion``, ``hits`` (Int64), ``same`` (float64, the share of fused scores of the
        service that equal the scores computed from the legs), ``largest`` (float64, the largest relative
        difference), ``rank_base`` (Int64, for RRF: the first rank of the service, 0 or 1; missing if
        unknown).
    k : int
        Number of compared hits of each ranking.

    Examples
    --------
    >>> found = compare_fusion(hybrid, ["connection refused", "disk full"])
    >>> found.verdict.partition(";")[2]
    " without judgements, it is unknown which is better. The service's RRF and DBSF scores are ..."
    """

    frame: pd.DataFrame
    by: pd.DataFrame
    differences: pd.DataFrame
    scores: pd.DataFrame
    k: int

    @property
    def verdict(self) -> str:
        """Return the effect of fusing on nDCG compared with the better leg, and whether scores are equal."""
        shared = "nothing is found"
        agreement = self.by["agreement"].mean()
        if not np.isnan(agreement):
            shared = f"dense and sparse share {percent(agreement)} of their first {self.k} hits"
        if self.differences.empty:
            sentence = f"{shared}; without judgements, it is unknown which is better"
        else:
            sentence = (
                f"{'; '.join(self._judged(name) for name in ('RRF', 'DBSF'))}; {shared}"
            )
            relevant = self.frame[self.frame["relevance"] > 0]
            if relevant[["dense_rank", "sparse_rank"]].isna().all(axis=None):
                check = "check that judgements name ids of this index"
                sentence += f"; no relevant id is found by either leg: {check}"

        return f"{sentence[0].upper()}{sentence[1:]}. {self._reconciled()}"

    def _judged(self, fusion: str) -> str:
        means = {leg: self.by[f"ndcg_{leg}"].mean() for leg in ("dense", "sparse")}
        best = max(means, key=lambda leg: means[leg])
        chosen = self.differences[
            (self.differences["fusion"] == fusion)
            & (self.differences["leg"] == best)
            & (self.differences["measure"] == "ndcg")
        ].iloc[0]

        effect = "no difference shown"
        if chosen["low"] > 0:
            effect = "helps"
        elif chosen["high"] < 0:
            effect = "harms"

        return (
            f"{fusion} against {best} alone, the better leg: {effect} (nDCG@{self.k} "
            f"{chosen['difference']:+.3f} [{chosen['low']:+.3f}, {chosen['high']:+.3f}] over "
            f"{counted(int(chosen['queries']), 'query').replace('querys', 'queries')})"
        )

    def _reconciled(self) -> str:
        known = self.scores[self.scores["hits"] > 0]
        if known.empty:
            return "There are no fused scores to recompute."

        equal = known[known["same"] >= _RECONCILED]
        different = known[known["same"] < _RECONCILED]

        statements = []
        if len(equal):
            statements.append(
                f"{' and '.join(equal['fusion'])} scores are equal to scores from the legs"
            )

        base = equal.loc[equal["fusion"] == "RRF", "rank_base"].dropna()
        if len(base):
            statements[0] += f", ranks counted from {base.iloc[0]}"
        for _, row in different.iterrows():
            statements.append(
                f"{row['fusion']} scores are not ({percent(row['same'])} are)"
            )

        return f"The service's {'; '.join(statements)}."

    def __repr__(self) -> str:
        tables = [
            part.to_string(index=False)
            for part in (self.differences, self.scores)
            if len(part)
        ]
        return visible("\n".join([self.verdict, *tables]))

    def _repr_html_(self) -> str:
        if not len(self.differences):
            return frame_table(self.verdict, self.scores)

        differences = frame_table(self.verdict, self.differences)
        return differences + frame_table(
            "Fused scores, recomputed from the legs:", self.scores
        )

    def plot(self, *, ax: Axes | None = None, theme: ThemeName = "auto") -> Axes:
        """Draw the difference of nDCG between fusions and legs, with intervals."""
        from toolkit.drawing.result_bars import draw_differences  # noqa: PLC0415 - matplotlib is slow to import

        chosen = self.differences[self.differences["measure"] == "ndcg"]
        named = chosen.assign(name=chosen["fusion"] + " against " + chosen["leg"])
        title, label = (
            "What fusing adds",
            f"difference of nDCG@{self.k}, with the 95 % interval over queries",
        )
        empty = "Nothing is judged: give judgements to see what fusing adds"

        return draw_differences(named, title, label, empty=empty, ax=ax, theme=theme)


def compare_fusion(
    service: Service,
    queries: FusionQueries,
    judgements: FrameLike | None = None,
    *,
    k: int = 10,
    depth: int = 1000,
    namespace: str = "",
    seed: int = 0,
    progress: StepOption = None,
) -> FusionComparison:
    """Compare dense and sparse search with both fusions of them, on a hybrid index.

    Parameters
    ----------
    service : Service
        From `connect`; the index must be hybrid.
    queries : str, VectorQuery, or iterable of them
        Text, if the index has models, or queries with `data`, or with both `vector` and `sparse`.
    judgements : pandas.DataFrame, optional
        Relevant ids: `query` (the number of the query, from 0, or the text), `id`, and optionally `relevance`
        (a number from 0; 1 without the column). Ids that are not judged count as not relevant; queries
        without a relevant id are left out of the measures.
    k : int
        Number of hits of each ranking to compare.
    depth : int
        Number of hits of each leg to recompute fusions from, at least `k`: as many as the service fuses.
    namespace : str
        Namespace for queries that are text; a VectorQuery has a namespace.
    seed : int
        Seed for the intervals.
    progress : bool or callable, optional
        A callable is called with (steps done, number of steps, name of the step that begins). By default, a
        notebook or terminal shows a bar if it takes long.

    Returns
    -------
    FusionComparison

    Raises
    ------
    InputError
        If the index is not hybrid, if a query does not have both legs, or if judgements cannot be read.
    ServiceError
        When a request fails.

    Warns
    -----
    UnexpectedResultWarning
        If the index does not have the namespace.

    Notes
    -----
    nDCG has gains of ``2 ** relevance - 1`` (Burges et al., 2005). Intervals are a Bayesian bootstrap over
    queries of the difference of each query. The prior is half a query of +1 and half a query of -1, because
    one query proves nothing. The better leg is chosen on the same queries, which favours it.

    Examples
    --------
    >>> compare_fusion(service, ["connection refused"])
    Traceback (most recent call last):
    ...
    toolkit.errors.InputError: comparing fusions: got an index of the kind DENSE; expected a hybrid index. ...
    """
    k, seed = whole("k", k, most=1000), whole("seed", seed, least=0)
    depth = whole("depth", depth, least=k, most=10_000)
    wanted = _queries(queries, unmasked("namespace", text("namespace", namespace)))
    relevance = read_judgements(judgements, wanted)

    info = describe_index(service)
    if info.kind != "HYBRID":
        raise InputError(
            _DOING,
            got=f"an index of the kind {info.kind}",
            expected="a hybrid index",
            next_step="An index of another kind has nothing to fuse.",
        )

    mistakes: dict[str, None] = {}
    rankings: dict[str, list[_Ranking]] = {}
    with ProgressSteps(progress, title="fusions", total=len(_SYSTEMS)) as step:
        for system in _SYSTEMS:
            step(f"searching: {system}")
            asked = [_of_system(item, system, k, depth) for item in wanted]
            rankings[system] = _rankings(service, asked, mistakes)

    for message in mistakes:
        warnings.warn(message, UnexpectedResultWarning, stacklevel=2)
    by = _by(rankings, relevance, k)

    return FusionComparison(
        frame=_frame(rankings, relevance, k),
        by=by,
        differences=_differences(by, seed),
        scores=typed_tuples(
            [_scores(rankings, method, k) for method in _SYSTEMS[2:]],
            fusion="str", hits="Int64", same="float64", largest="float64", rank_base="Int64",
        ),
        k=k,
    )  # fmt: skip


def _queries(queries: Any, namespace: str) -> list[VectorQuery]:
    listed = listed_queries(queries, namespace=namespace)
    for number, item in enumerate(listed):
        if not _has_both_parts(item):
            got = shown(item)
            if isinstance(item, VectorQuery):
                got = repr(item)
            raise InputError(
                f"reading queries at position {number}",
                got=got,
                expected="a string, or a VectorQuery with data, or with both vector and sparse",
            )

    return listed


def _has_both_parts(item: Any) -> bool:
    """Return whether a query has a dense and a sparse vector, or data from which the index makes both."""
    if not isinstance(item, VectorQuery):
        return False
    if item.data is not None:
        return True
    return item.vector is not None and item.sparse is not None


def _of_system(item: VectorQuery, system: str, k: int, depth: int) -> VectorQuery:
    """Return a query as one leg, or as one fusion of both."""
    changes: dict[str, Any] = dict.fromkeys(
        ("include_metadata", "include_vectors", "include_data"), False
    )
    if system in ("RRF", "DBSF"):
        changes |= {"top_k": k, "fusion_algorithm": system, "query_mode": None}
    else:
        changes |= {"top_k": depth, "fusion_algorithm": None}
        if item.data is not None:
            changes["query_mode"] = system.upper()

    if item.data is None and system in ("dense", "sparse"):
        changes["sparse" if system == "dense" else "vector"] = None
    return replace(item, **changes)


def _rankings(
    service: Service, queries: list[VectorQuery], mistakes: dict[str, None]
) -> list[_Ranking]:
    """Return ids and scores of each query. Warnings about probable mistakes are added to `mistakes`."""
    rankings: list[_Ranking] = [[] for _ in queries]
    for start in range(0, len(queries), _AT_ONCE):
        hits, warnings_ = run_queries(service, queries[start : start + _AT_ONCE])
        mistakes |= dict.fromkeys(warnings_)
        for number, key, score in zip(
            hits["query"], hits["id"], hits["score"], strict=True
        ):
            rankings[start + number].append((key, score))

    return rankings


def read_judgements(
    judgements: Any, queries: list[VectorQuery]
) -> list[dict[str, float]]:
    """Return the relevance of each judged id, per query."""
    result: list[dict[str, float]] = [{} for _ in queries]
    if judgements is None:
        return result

    judgements = checked_frame("judgements", judgements, "query", "id")
    if not judgements.columns.is_unique:
        raise wrong("judgements", judgements, "a frame with unique columns")

    # Reversed, so that the first of several equal queries wins.
    number_of = {
        item.data: number
        for number, item in reversed([*enumerate(queries)])
        if item.data
    }
    # without a column of relevance, each judged row is as relevant as the others
    given: Iterable[Any] = np.ones(len(judgements))
    if "relevance" in judgements:
        given = judgements["relevance"]

    rows = zip(judgements["query"], judgements["id"], given, strict=True)
    for row, (query, key, value) in enumerate(rows):
        number = query
        if isinstance(query, str):
            number = number_of.get(query)
        if not _is_number_of_query(number, queries):
            raise wrong(
                f"judgements, row {row}: query",
                query,
                "the number or text of one of the queries",
            )

        expected = "an id, and a relevance from 0 to 100"
        if not isinstance(key, str):
            raise wrong(f"judgements, row {row}", key, expected)
        relevance = _relevance(value)
        if relevance is None:
            raise wrong(f"judgements, row {row}", value, expected)

        result[int(number)][clean(key)] = relevance

    return result


def _is_number_of_query(number: Any, queries: list[VectorQuery]) -> bool:
    if isinstance(number, bool) or not isinstance(number, int | np.integer):
        return False
    return 0 <= int(number) < len(queries)


def _relevance(value: Any) -> float | None:
    """Return a relevance as a number, or None if it is no number from 0 to 100. Gains are 2 to its power."""
    if isinstance(value, bool | str):
        return None
    try:
        relevance = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    if not 0 <= relevance <= 100:  # noqa: PLR2004 - per cent
        return None

    return relevance


def _frame(
    rankings: dict[str, list[_Ranking]], relevance: list[dict[str, float]], k: int
) -> pd.DataFrame:
    rows: list[tuple[Any, ...]] = []
    for number, judged in enumerate(relevance):
        found = {
            system: [key for key, _ in rankings[system][number]] for system in _SYSTEMS
        }
        ranks = [
            {key: rank for rank, key in enumerate(keys, 1)} for keys in found.values()
        ]
        first = (key for keys in found.values() for key in keys[:k])
        rows += [
            (
                number,
                key,
                *(ranked.get(key) for ranked in ranks),
                judged.get(key, np.nan),
            )
            for key in dict.fromkeys(
                [*first, *(key for key, value in judged.items() if value > 0)]
            )
        ]

    columns = {f"{system.lower()}_rank": "Int64" for system in _SYSTEMS}
    return typed_tuples(rows, query="Int64", id="str", **columns, relevance="float64")


def _by(
    rankings: dict[str, list[_Ranking]], relevance: list[dict[str, float]], k: int
) -> pd.DataFrame:
    measured = [f"{measure}_{system}" for system in _SYSTEMS for measure in _MEASURES]
    rows: list[tuple[Any, ...]] = []
    for number, judged in enumerate(relevance):
        tops = {
            system: [key for key, _ in rankings[system][number][:k]]
            for system in _SYSTEMS
        }
        most = max(len(tops["dense"]), len(tops["sparse"]))
        shared = len(set(tops["dense"]) & set(tops["sparse"]))
        values = [np.nan] * len(measured)

        if any(judged.values()):
            values = []
            for top in tops.values():
                values += measures_of(top, judged, k)

        agreement = np.nan
        if most:
            agreement = shared / most
        rows.append((number, agreement, *values))

    frame = typed_tuples(
        rows, query="Int64", agreement="float64", **dict.fromkeys(measured, "float64")
    )
    if any(any(judged.values()) for judged in relevance):
        return frame

    return frame[["query", "agreement"]]


def measures_of(
    top: list[str], judged: dict[str, float], k: int
) -> tuple[float, float, float]:
    """Return nDCG, the reciprocal rank of the first relevant hit, and recall, of the first `k` hits."""
    # nDCG: gains of 2^relevance - 1, divided by log2(rank + 1), relative to the best possible order. For
    # example, relevances 0, 1 in this order: (0/1 + 1/1.585) / (1/1) = 0.63.
    gains = [2 ** judged.get(key, 0.0) - 1 for key in top]
    best = sorted((2**value - 1 for value in judged.values()), reverse=True)[:k]
    weights = 1 / np.log2(np.arange(2, k + 2))
    first = next((rank for rank, gain in enumerate(gains, 1) if gain > 0), 0)
    relevant = sum(value > 0 for value in judged.values())

    return (
        float(
            np.dot(gains, weights[: len(gains)]) / np.dot(best, weights[: len(best)])
        ),
        1 / first if first else 0.0,
        sum(gain > 0 for gain in gains) / relevant,
    )


def _differences(by: pd.DataFrame, seed: int) -> pd.DataFrame:
    rows: list[tuple[Any, ...]] = []
    if "ndcg_dense" in by:
        judged = by.dropna(subset="ndcg_dense")
        for fusion, leg, measure in product(
            ("RRF", "DBSF"), ("dense", "sparse"), _MEASURES
        ):
            pair = [
                judged[f"{measure}_{system}"].to_numpy() for system in (fusion, leg)
            ]
            rows.append(
                (
                    fusion,
                    leg,
                    measure,
                    len(judged),
                    *paired_difference(*pair, seed=seed),
                )
            )

    return typed_tuples(
        rows, fusion="str", leg="str", measure="str", queries="Int64", difference="float64", low="float64",
        high="float64",
    )  # fmt: skip


def _scores(
    rankings: dict[str, list[_Ranking]], method: Any, k: int
) -> tuple[Any, ...]:
    """Compare the fused scores of the service with scores from the legs; RRF with ranks from 1 and from 0."""
    # RRF adds 1 / (60 + rank) per leg. Ranks can be counted from 1 or from 0, and the scores show which.
    # `fuse` counts from 1, and 1 / (60 + rank) with ranks from 0 is 1 / (59 + rank) with ranks from 1.
    constants = {1: 60, 0: 59} if method == "RRF" else {None: 60}
    errors: dict[int | None, list[float]] = {base: [] for base in constants}
    for dense, sparse, fused in zip(
        rankings["dense"], rankings["sparse"], rankings[method], strict=True
    ):
        for base, constant in constants.items():
            table = fuse([dense, sparse], method=method, k=constant)
            expected = dict(zip(table["id"], table["score"], strict=True))
            for key, score in fused[:k]:
                difference = abs(expected.get(key, np.inf) - score)
                errors[base].append(difference / max(abs(score), 1e-9))

    # The base with the smaller median error is the one that the service uses; in a tie, ranks from 1.
    base = min(
        errors, key=lambda name: (float(np.median(errors[name] or [0.0])), -(name or 0))
    )
    same = np.array(errors[base]) <= _ROUNDING
    share = float(same.mean()) if same.size else np.nan
    largest = max(errors[base], default=np.nan)
    if share < _RECONCILED:
        base = None
    return method, same.size, share, largest, base
