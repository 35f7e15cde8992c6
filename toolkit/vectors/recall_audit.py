"""Audit the recall of an index: the share of exact nearest neighbours that the service returns."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from toolkit.base.arguments import whole
from toolkit.base.errors import InputError
from toolkit.filters.metadata import MetadataFilter
from toolkit.loading.vector_names import Namespaces
from toolkit.loading.vectors import load_index, of_vectors
from toolkit.service.settings import Service
from toolkit.service.vectors import IndexInfo, describe_index
from toolkit.tables.arrow_input import FrameLike
from toolkit.vectors.changed_neighbours import Missed, find_changed
from toolkit.vectors.exact_comparison import SIMILARITIES, ExactSearch
from toolkit.vectors.recall_judgement import recall_by_group, recall_over_queries
from toolkit.vectors.recall_queries import (
    DOING,
    ask,
    draw_queries,
    filter_texts,
    query_vectors,
)
from toolkit.vectors.recall_result import RecallAudit, are_other_vectors
from toolkit.vectors.retrieval import recalled
from toolkit.vectors.vector_batches import Matrix
from toolkit.vectors.vector_rows import (
    VectorSource,
    VectorTables,
    check_namespaces,
    only_namespace,
    typed_tuples,
)

_MISSED: Final = 10
# Scores are float32: in batches of other sizes, the same vectors have scores that differ by about 1e-7.
_TIE: Final = 1e-6
# Scores of float16 or 8-bit copies of a vector differ by less; another model or text moves them further.
_RESCORED: Final = 0.01

Filters: TypeAlias = str | MetadataFilter | Sequence[str | MetadataFilter] | None


def audit_recall(
    service: Service,
    vectors: VectorSource | None = None,
    *,
    queries: npt.ArrayLike | FrameLike | None = None,
    k: int = 10,
    filter: Filters = None,  # noqa: A002 - the service's own name
    namespace: Namespaces | None = None,
    sample: int = 300,
    seed: int = 0,
) -> RecallAudit:
    """Compare the results of the service with exact search over all vectors.

    Parameters
    ----------
    service : Service
        From `connect`; the index must have dense vectors.
    vectors : pandas.DataFrame, pyarrow.Table, pyarrow.dataset.Dataset or path, optional
        The index, as `load_vectors` returned it, or a snapshot of it, which is read in batches. Pass all
        vectors of a namespace: results of the service that are not among them are left out, and counted in
        the verdict. Rows with the same namespace and id count once. If omitted, the index is loaded now.
    queries : array_like or pandas.DataFrame, optional
        Vectors of your own queries: a matrix with one row per query, or a frame with the column `vector` and,
        if the vectors are of several namespaces, `namespace`. If omitted, stored vectors are drawn at random,
        and each is left out of the results of its query. Text cannot be audited, because the service does not
        return the vectors that it makes of text.
    k : int
        Number of neighbours to compare, at most 1,000.
    filter : str, MetadataFilter or a sequence of them, optional
        All queries are sent with each filter. ``""`` is no filter.
    namespace : str or sequence of str, optional
        Without `vectors`: the namespaces to load, as in `load_vectors`. If omitted, all.
    sample : int
        Number of stored vectors, or rows of `queries`, to send at most, over all namespaces.
    seed : int
        Seed for the sample and the intervals.

    Returns
    -------
    RecallAudit

    Raises
    ------
    InputError
        If an argument cannot be used, if queries have no namespace or an unknown one, or if the index has no
        dense vectors.
    ServiceError
        When a request fails.

    Notes
    -----
    A result with at least the score of the `k`-th exact neighbour counts as found, so that ties are not
    misses. Missed neighbours are read again from the index. A vector that is gone by now, has another score,
    or is no longer matched by the filter is no miss: it is left out, and fewer neighbours are compared. The
    interval is over queries, because hits of one query are right or wrong together.

    Examples
    --------
    >>> found = audit_recall(service, tk.load_vectors(service, namespace="runbooks"), sample=20)
    >>> found.by[["namespace", "queries", "share"]]
      namespace  queries  share
    0  runbooks       20    1.0
    """
    k = whole("k", k, most=1000)
    sample = whole("sample", sample)
    seed = whole("seed", seed, least=0)
    filters = filter_texts(filter)

    before = describe_index(service)
    if before.similarity not in SIMILARITIES:
        raise InputError(
            DOING,
            got=f"an index of the kind {before.kind}, without a similarity",
            expected="an index with dense vectors",
        )

    is_loaded_now = vectors is None
    if vectors is None:
        vectors = load_index(service, namespace, include_data=False)
    elif namespace is not None:
        raise of_vectors(namespace)

    tables = VectorTables(vectors, doing=DOING, with_ids=True)
    keys = tables.keys()
    # An index has each id once per namespace. If the passed rows have one twice, the first counts.
    is_first = ~keys.duplicated().to_numpy()
    namespaces = sorted(keys["namespace"].unique())
    queried = _queried(
        tables, is_first, namespaces, queries, before.dimension, sample, seed
    )

    searches = []
    for name, (labels, matrix) in sorted(queried.items()):
        own = None
        if queries is None:
            own = labels
        for text in filters:
            searches.append(  # noqa: PERF401 - a comprehension would be nested
                _asked(service, before, name, text, k, labels, matrix, own)
            )

    _search_exactly(tables, is_first, searches)
    unknown_ids: set[tuple[str, str]] = set()
    differences: list[float] = []
    rows: list[tuple[Any, ...]] = []
    for asked in searches:
        unknown_ids |= {(asked.exact.namespace, key) for key in asked.exact.unknown}
        differences += score_differences(asked.exact, asked.hits)

    scored_otherwise = sum(difference > _RESCORED for difference in differences)
    are_others = are_other_vectors(scored_otherwise, len(differences))
    changed_ids: set[tuple[str, str]] = set()
    for asked in searches:
        changed_since: set[str] = set()
        if not are_others:
            changed_since = _rescored(asked)
            changed_since |= find_changed(
                service, asked.exact, _missed(asked, k, changed_since)
            )
        changed_ids |= {(asked.exact.namespace, key) for key in changed_since}
        rows += compare_hits(*asked.parts, k, changed_since)

    unknown = len(unknown_ids)
    changed = _changed(searches, before, describe_index(service))
    changed = max(changed, len(changed_ids))
    if is_loaded_now:
        changed, unknown = max(changed, unknown), 0
    frame = typed_tuples(
        rows,
        namespace="str", filter="str", query="str", share="float64", score_gap="float64", missed="object",
    )  # fmt: skip
    most = max((asked.exact.most for asked in searches), default=0)
    k = min(k, most or k)
    selectivity = {
        (asked.exact.namespace, asked.exact.filter): asked.exact.matched
        / max(asked.exact.rows, 1)
        for asked in searches
    }
    by = recall_by_group(frame, selectivity, k=k, seed=seed)
    if are_others:
        # the search cannot be blamed for vectors that it does not have
        by["judged"] = "unknown"

    return RecallAudit(
        frame=frame.sort_values(["share", "namespace", "filter", "query"], ignore_index=True),
        by=by,
        overall=recall_over_queries(frame, k=k, seed=seed),
        stored=queries is None,
        changed=changed,
        unknown=unknown,
        k=k,
        hits=len(differences),
        scored_otherwise=scored_otherwise,
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class _Asked:
    """The queries of one namespace with one filter: their labels, the returned hits, and the exact search."""

    exact: ExactSearch
    labels: list[str]
    hits: list[dict[str, float]]

    @property
    def parts(self) -> tuple[ExactSearch, list[str], list[dict[str, float]]]:
        return self.exact, self.labels, self.hits


def _queried(
    tables: VectorTables,
    is_first: npt.NDArray[np.bool_],
    namespaces: list[str],
    queries: Any,
    dimension: int,
    sample: int,
    seed: int,
) -> dict[str, tuple[list[str], Matrix]]:
    """Return the labels and vectors of the queries by namespace: stored vectors, or the caller's."""
    if queries is None:
        return draw_queries(tables, is_first, dimension, sample, seed, None)

    asked = query_vectors(queries)
    usable = np.ones(asked.rows, dtype=bool)
    queried = draw_queries(asked, usable, dimension, sample, seed, queries)
    if "namespace" not in asked.columns and queried:
        return {only_namespace("queries", namespaces): queried[""]}

    if namespaces:
        check_namespaces("queries", queried, namespaces)
    return queried


def _asked(
    service: Service,
    index: IndexInfo,
    namespace: str,
    condition: str,
    k: int,
    labels: list[str],
    matrix: Matrix,
    own: list[str] | None,
) -> _Asked:
    """Send the queries of a namespace with a filter, and prepare the exact search.

    `own` has the ids of stored vectors: each is left out of the results of its query.
    """
    hits = ask(service, matrix, namespace, condition, k, own)
    exact = ExactSearch(
        matrix,
        namespace=namespace,
        similarity=index.similarity,
        k=k,
        filter=condition,
        own=own,
        returned=hits,
    )
    return _Asked(exact, labels, hits)


def _search_exactly(
    tables: VectorTables, is_first: npt.NDArray[np.bool_], searches: list[_Asked]
) -> None:
    """Compare the queries with all vectors, batch by batch."""
    start = 0
    for batch in tables:
        end = start + len(batch.ids)
        for asked in searches:
            asked.exact.add(batch, is_first[start:end])
        start = end


def _changed(searches: list[_Asked], before: IndexInfo, after: IndexInfo) -> int:
    """Return about how many vectors were written or deleted during the audit.

    The counts of the index before and after show
    it, and the counts of the namespaces that were read.
    """
    count_before = before.vector_count + before.pending_count
    count_after = after.vector_count + after.pending_count
    rows = {asked.exact.namespace: asked.exact.rows for asked in searches}
    gone = 0
    for name, count in rows.items():
        gone += max(0, count - after.namespaces.get(name, 0))
    return max(abs(count_after - count_before), gone - after.pending_count)


def _rescored(asked: _Asked) -> set[str]:
    """Return the returned ids whose scores show that the index has another vector than the passed one."""
    rescored = set()
    for hits, exact in zip(asked.hits, asked.exact.returned_scores(), strict=True):
        for key, score in exact.items():
            difference = abs(hits[key] - score) / max(1.0, abs(score))
            if np.isfinite(score) and difference > _RESCORED:
                rescored.add(key)

    return rescored


def _missed(asked: _Asked, k: int, changed: Collection[str]) -> Missed:
    """Return the neighbours that were not returned, except those that are known to have changed."""
    missed: Missed = {}
    for number, (hits, exact) in enumerate(
        zip(asked.hits, asked.exact.nearest(), strict=True)
    ):
        for key, score in exact[:k]:
            if key not in hits and key not in changed:
                missed.setdefault(key, []).append((number, score))

    return missed


def compare_hits(
    search: ExactSearch,
    labels: list[str],
    scored: list[dict[str, float]],
    k: int,
    changed: Collection[str] = (),
) -> Iterator[tuple[Any, ...]]:
    """Yield one row per query: namespace, filter, label, recall, gap of scores, and missed ids.

    `changed` are the ids of vectors that changed since they were read.
    """
    for label, returned_hits, exact in zip(
        labels, scored, search.nearest(), strict=True
    ):
        hits = {
            key: score
            for key, score in returned_hits.items()
            if key not in search.unknown and key not in changed
        }
        # A hit that is not among the passed vectors, or is another vector now, cannot be judged. It took
        # one of the `k` places, so only the other places count. The same is true for a neighbour that
        # changed: for example, without 2 of the 10 nearest vectors, the nearest 8 of the others are known.
        unjudged = len(returned_hits) - len(hits)
        gone = sum(key in changed for key, _ in exact[:k])
        exact = [pair for pair in exact if pair[0] not in changed]  # noqa: PLW2901 - the known ones
        most = k - max(unjudged, gone)
        share = np.nan
        if most:
            share = recalled(list(hits), exact, most, tie=_TIE)
        missed = []
        if share < 1:
            missed = [key for key, _ in exact[:most] if key not in hits]
        best = [score for _, score in exact[:most]]
        gap = _score_gap(best, hits, share)
        yield (
            search.namespace,
            search.filter,
            label,
            share,
            gap,
            tuple(missed[:_MISSED]),
        )


def score_differences(
    search: ExactSearch, scored: list[dict[str, float]]
) -> Iterator[float]:
    """Yield how far each score of the service is from that of the passed vector, relative to large scores.

    Far scores mean that the index has other vectors than the passed ones, for example after a model change.
    """
    for returned_hits, exact in zip(scored, search.returned_scores(), strict=True):
        for key, exact_score in exact.items():
            if np.isfinite(exact_score):
                difference = abs(returned_hits[key] - exact_score)
                yield difference / max(1.0, abs(exact_score))


def _score_gap(best: list[float], hits: dict[str, float], share: float) -> float:
    """Return how much better the exact neighbours score on average; 0 if none was missed."""
    if not best:
        return np.nan

    returned = sorted(hits.values(), reverse=True)[: len(best)]
    gap = (sum(best) - sum(returned)) / len(best)
    if np.isnan(gap):
        return gap
    if share < 1:
        return max(0.0, gap)

    return 0.0
