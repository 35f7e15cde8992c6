"""Audit the recall of an index: the share of exact nearest neighbours that the service returns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from toolkit.base.arguments import whole, wrong
from toolkit.base.errors import InputError
from toolkit.base.visible_text import visible
from toolkit.drawing.wording import counted, frame_table, shorten
from toolkit.filters.metadata import MetadataFilter, parse
from toolkit.loading.queries import query
from toolkit.loading.vector_names import Namespaces
from toolkit.loading.vectors import load_index, of_vectors
from toolkit.service.settings import Service
from toolkit.service.vectors import describe_index
from toolkit.tables.arrow_input import FrameLike, arrow_table
from toolkit.vectors.exact_comparison import SIMILARITIES, ExactSearch
from toolkit.vectors.retrieval import Recall, mean_recall, recalled
from toolkit.vectors.vector_batches import Matrix
from toolkit.vectors.vector_rows import (
    VectorSource,
    VectorTables,
    check_namespaces,
    is_matrix,
    only_namespace,
    typed_tuples,
    with_default_named,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from toolkit.drawing.style import ThemeName

_DOING: Final = "auditing recall"
_GOOD: Final = 0.95
_ERROR: Final = 0.05  # chance of a wrong claim that some group misses neighbours
# If fewer queries have a good mean, the interval is wide. For example, 40 with full recall have [0.94, 1].
_ENOUGH: Final = 100
_FEW: Final = 20  # with fewer queries, the mean of a group varies too much to blame it
_TOO_FEW: Final = "cannot be judged by so few queries"
_SHOWN: Final = 60  # characters of a filter in the verdict
_AT_ONCE: Final = 100  # queries per request
_MISSED: Final = 10
# Scores are float32: in batches of other sizes, the same vectors have scores that differ by about 1e-7.
_TIE: Final = 1e-6

Filters: TypeAlias = str | MetadataFilter | Sequence[str | MetadataFilter] | None


@dataclass(frozen=True, repr=False, eq=False)
class RecallAudit:
    """The results of the service compared with exact search; made by `audit_recall`.

    Attributes
    ----------
    frame : pandas.DataFrame
        One row per query, the worst first: `namespace`, `filter`, `query` (the id of the stored vector, or
        the number of your query), `share` (float64, the recall, 0 to 1; missing if nothing matches),
        `score_gap` (float64, how much better the exact neighbours score on average), `missed` (tuple of at
        most 10 ids).
    by : pandas.DataFrame
        One row per namespace and filter: `namespace`, `filter`, `selectivity` (float64, the share of rows
        that the filter matches), `queries` (Int64), `share`, `low`, `high` (float64, the mean recall and the
        95 % interval over queries), `score_gap`, `judged` (``misses``, ``may miss``, ``good``, ``few
        queries`` or ``unknown``).
    overall : Recall
        The recall over distinct queries. A query that is sent with several filters counts once, with its
        mean recall.
    stored : bool
        Whether the queries were stored vectors. Each is left out of the results of its query. They are easier
        than real queries: on a poor index their recall is higher.
    changed : int
        Number of vectors that were added or removed since they were read; recall is then a lower bound.
    unknown : int
        Number of vectors that the service returned and that are not among the passed vectors, for example
        because you passed a part of the index. They are left out, and fewer neighbours are compared.
    k : int
        Number of compared neighbours: as requested, or fewer if every query has fewer.

    Examples
    --------
    >>> found = audit_recall(service, tk.load_vectors(service, namespace="runbooks"), sample=20)
    >>> found.verdict.partition(" of the")[0]
    'Search cannot be judged by so few queries: it returns 100.0 % [88.4, 100.0]'
    """

    frame: pd.DataFrame
    by: pd.DataFrame
    overall: Recall
    stored: bool
    changed: int
    unknown: int
    k: int

    @property
    def worst_group(self) -> pd.Series[Any] | None:
        """Return the row of `by` that decides the verdict; None if no recall is known."""
        for judged in ("misses", "may miss", "good", "few queries"):
            groups = self.by[self.by["judged"] == judged]
            if len(groups):
                return groups.iloc[int(groups["share"].to_numpy().argmin())]
        return None

    @property
    def trusted(self) -> bool | None:
        """Return whether the overall recall is high and no group is known to be worse.

        None means that it is not known, for example because the sample is too small.
        """
        if self.worst_group is None or self._judged == _TOO_FEW:
            return None
        return self._judged == "can be trusted"

    @property
    def verdict(self) -> str:
        """Return one sentence with the recall of the worst group, and the doubts about it."""
        worst = self.worst_group
        if worst is None:
            reason = f"none of {len(self.overall.per_query):,} {self._queries} has a neighbour"
            if self.unknown:
                reason = (
                    "none of the returned vectors is among the passed vectors:"
                    " check their namespaces and ids"
                )
            return f"Recall is not known: {reason}."
        overall = self.overall
        total = _percents(overall.mean, overall.low, overall.high)
        of_worst = _percents(worst["share"], worst["low"], worst["high"])
        groups = int((self.by["judged"] != "unknown").sum())
        place = f"{_place(worst)}, the worst of {groups:,} groups"
        neighbours = f"the {self.k} nearest neighbours of"
        count = _known(overall)
        if groups == 1:
            told = f"{total} of {neighbours} {count:,} {self._queries}"
        elif worst["judged"] in {"misses", "may miss"}:
            told = f"{of_worst} of {neighbours} {worst['queries']:,} {self._queries} {place}; {total} of all"
        else:
            told = (
                f"{total} of {neighbours} {count:,} {self._queries}; {of_worst} {place}"
            )
        return f"Search {self._judged}: it returns {told}{self._doubts(groups)}."

    @property
    def _judged(self) -> str:
        """Return the judgement on the search: by the worst group, and by all queries together."""
        judged = set(self.by["judged"])
        if "misses" in judged or _is_surely_low(self.overall, _ERROR):
            return "misses neighbours"
        if "may miss" in judged:
            return "may miss neighbours"
        if self.overall.low >= _GOOD:
            return "can be trusted"
        if self.overall.mean >= _GOOD and _known(self.overall) < _ENOUGH:
            # the interval is wide because of the sample, not because of the search
            return _TOO_FEW
        return "may miss neighbours"

    def _doubts(self, groups: int) -> str:
        doubts = ""
        few = int((self.by["judged"] == "few queries").sum())
        if few and groups > 1:
            doubts += f"; too few queries to judge {few:,} of the groups"
        if self.changed:
            doubts += f"; {counted(self.changed, 'vector')} changed meanwhile"
        if self.unknown:
            doubts += f"; {self.unknown:,} returned vectors that are not among the passed ones are left out"
        return doubts

    def worst(self, n: int = 5) -> pd.DataFrame:
        """Return the `n` queries with the lowest recall."""
        return self.frame.head(whole("n", n))

    def __repr__(self) -> str:
        shown = with_default_named(self.by)
        if shown.empty:
            return visible(self.verdict)
        return visible(f"{self.verdict}\n{shown.to_string(index=False)}")

    def _repr_html_(self) -> str:
        html = frame_table(self.verdict, with_default_named(self.by))
        worst = self.frame[self.frame["share"] < 1].head(5)
        if worst.empty:
            return html
        listed = worst.assign(missed=[", ".join(ids) for ids in worst["missed"]])
        return html + frame_table("The worst queries:", listed)

    @property
    def _queries(self) -> str:
        if self.stored:
            return "stored vectors"
        return "queries"

    def plot(self, *, ax: Axes | None = None, theme: ThemeName = "auto") -> Axes:
        """Draw the mean recall with its interval, by namespace and filter."""
        from toolkit.drawing.result_bars import draw_recall  # noqa: PLC0415 - matplotlib is slow to import

        by = with_default_named(self.by)
        name = by["namespace"].where(
            by["filter"] == "", by["namespace"] + ", " + by["filter"]
        )
        return draw_recall(
            by.assign(name=name),
            f"Recall@{self.k} of {self._queries}",
            ax=ax,
            theme=theme,
        )


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
    misses. The interval is over queries, because hits of one query are right or wrong together.

    Examples
    --------
    >>> found = audit_recall(service, tk.load_vectors(service, namespace="runbooks"), sample=20)
    >>> found.by[["namespace", "queries", "share"]]
      namespace  queries  share
    0  runbooks       20    1.0
    """
    k, sample, seed = (
        whole("k", k, most=1000),
        whole("sample", sample),
        whole("seed", seed, least=0),
    )
    filters = _filters(filter)
    before = describe_index(service)
    if before.similarity not in SIMILARITIES:
        raise InputError(
            _DOING,
            got=f"an index of the kind {before.kind}, without a similarity",
            expected="an index with dense vectors",
        )
    is_loaded_now = vectors is None
    if vectors is None:
        vectors = load_index(service, namespace, include_data=False)
    elif namespace is not None:
        raise of_vectors(namespace)
    tables = VectorTables(vectors, doing=_DOING, with_ids=True)
    keys = tables.keys()
    # An index has each id once per namespace. If the passed rows have one twice, the first counts.
    is_first = ~keys.duplicated().to_numpy()
    asked, usable = tables, is_first
    if queries is not None:
        asked = query_vectors(queries)
        usable = np.ones(asked.rows, dtype=bool)
    queried = _drawn(asked, usable, before.dimension, sample, seed, queries)
    known = sorted(keys["namespace"].unique())
    if "namespace" not in asked.columns and queried:
        queried = {only_namespace("queries", known): queried[""]}
    elif known:
        check_namespaces("queries", queried, known)
    searches: list[tuple[ExactSearch, list[str], list[dict[str, float]]]] = []
    for name, (labels, matrix) in sorted(queried.items()):
        own = None
        if queries is None:
            own = labels
        for text in filters:
            hits = _ask(service, matrix, name, text, k, own)
            search = ExactSearch(
                matrix,
                namespace=name,
                similarity=before.similarity,
                k=k,
                filter=text,
                own=own,
                returned=hits,
            )
            searches.append((search, labels, hits))
    start = 0
    for batch in tables:
        for search, _, _ in searches:
            search.add(batch, is_first[start : start + len(batch.ids)])
        start += len(batch.ids)
    unknown = len(
        {(search.namespace, key) for search, _, _ in searches for key in search.unknown}
    )
    after = describe_index(service)
    # A vector that was written or deleted during the audit can look like a wrong result of the search. The
    # counts before and after, and returned ids that were not loaded, show about how many there are.
    moved = abs(
        after.vector_count
        + after.pending_count
        - before.vector_count
        - before.pending_count
    )
    rows = {search.namespace: search.rows for search, _, _ in searches}
    gone = sum(
        max(0, count - after.namespaces.get(name, 0)) for name, count in rows.items()
    )
    changed = max(moved, gone - after.pending_count, unknown if is_loaded_now else 0)
    frame = typed_tuples(
        [row for search in searches for row in compare_hits(*search, k)],
        namespace="str", filter="str", query="str", share="float64", score_gap="float64", missed="object",
    )  # fmt: skip
    k = min(k, max((search.most for search, _, _ in searches), default=0) or k)
    selectivity = {
        (one.namespace, one.filter): one.matched / max(one.rows, 1)
        for one, _, _ in searches
    }
    return RecallAudit(
        frame=frame.sort_values(["share", "namespace", "filter", "query"], ignore_index=True),
        by=recall_by_group(frame, selectivity, k=k, seed=seed),
        overall=recall_over_queries(frame, k=k, seed=seed),
        stored=queries is None,
        changed=changed,
        unknown=0 if is_loaded_now else unknown,
        k=k,
    )  # fmt: skip


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
        error = _ERROR / len(groups)
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
    if _is_surely_low(claimed, error):
        return "misses"
    if found.mean < _GOOD and _known(found) >= _FEW:
        return "may miss"
    if found.low < _GOOD:
        return "few queries"
    return "good"


def _is_surely_low(found: Recall, error: float) -> bool:
    """Return whether the true recall is too low, with the given chance of a wrong claim."""
    queries = _known(found)
    if queries >= _FEW:
        return found.high < _GOOD
    # A bootstrap of few queries is too narrow: four queries with a recall of 0.9 have an upper end of 0.93.
    # Hoeffding's inequality (1963) is true for any distribution between 0 and 1: with four queries, it
    # claims a low recall below 0.27.
    margin = np.sqrt(np.log(2 / error) / (2 * max(queries, 1)))
    return bool(found.mean + margin < _GOOD)


def _known(found: Recall) -> int:
    return int(np.isfinite(found.per_query).sum())


def recall_over_queries(frame: pd.DataFrame, *, k: int, seed: int) -> Recall:
    """Return the recall over distinct queries: a query with several filters has its mean recall.

    Results of one query with several filters are right or wrong together, so they are no evidence of their
    own, and the interval would be too narrow if each counted.
    """
    per_query = frame.groupby(["namespace", "query"], sort=True)["share"].mean()
    return mean_recall(per_query.tolist(), k=k, seed=seed)


def _percents(mean: float, low: float, high: float) -> str:
    return f"{_tenths(mean)} % [{_tenths(low)}, {_tenths(high)}]"


def _tenths(share: float) -> str:
    """Return a share in percent, but "100.0" only for all."""
    if share < 1:
        return f"{min(share * 100, 99.9):.1f}"
    return f"{share * 100:.1f}"


def _place(group: pd.Series[Any]) -> str:
    """Return the name of a group, for example "in runbooks with the filter n < 30"."""
    namespace = group["namespace"] or "the default namespace"
    if not group["filter"]:
        return f"without a filter in {namespace}"
    return f"with the filter {shorten(group['filter'], _SHOWN)} in {namespace}"


def _filters(value: Any) -> list[str]:
    values = (
        [value] if value is None or isinstance(value, str | MetadataFilter) else value
    )
    if not isinstance(values, list | tuple) or not all(
        item is None or isinstance(item, str | MetadataFilter) for item in values
    ):
        raise wrong("filter", value, "a filter, or a list of filters")
    texts = dict.fromkeys("" if item is None else str(item) for item in values)
    for text in texts:
        if text:
            parse(text)  # raises for invalid filters before a request is sent
    return list(texts) or [""]


def query_vectors(queries: Any) -> VectorTables:
    """Return the vectors of the caller's queries."""
    is_frame = isinstance(queries, pd.DataFrame) and not is_matrix(queries)
    if not is_frame and arrow_table(queries) is None:
        try:
            queries = np.asarray(queries, dtype=np.float32)
        except (TypeError, ValueError, OverflowError):
            raise wrong(
                "queries",
                queries,
                "vectors: a matrix, or a frame with the column vector",
                "The service does not return the vectors of text: embed the text yourself, or omit queries.",
            ) from None
    return VectorTables(queries, doing=_DOING, name="queries")


def _drawn(
    tables: VectorTables,
    usable_rows: npt.NDArray[np.bool_],
    dimension: int,
    sample: int,
    seed: int,
    queries: Any,
) -> dict[str, tuple[list[str], Matrix]]:
    """Draw vectors from usable rows, by namespace: stored vectors with their ids, queries with their numbers.

    Stored vectors that cannot be compared are left out. Queries of the caller that cannot be are an error.
    """
    stored = queries is None
    rng = np.random.default_rng([seed, 3])
    drawn = np.zeros(tables.rows, dtype=bool)
    rows = np.flatnonzero(usable_rows)
    drawn[rng.choice(rows, min(sample, len(rows)), replace=False)] = True
    found: dict[str, tuple[list[str], list[Matrix]]] = {}
    sizes: set[int] = set()
    start = 0
    for batch in tables:
        for positions, matrix in batch.dense:
            usable = np.isfinite(matrix).all(axis=1)
            sizes.add(matrix.shape[1])
            if not stored and not usable.all():
                raise wrong("queries", queries, "finite numbers")
            if matrix.shape[1] == dimension:
                usable &= drawn[start + positions]
                for position, vector in zip(
                    positions[usable], matrix[usable], strict=True
                ):
                    labels, vectors = found.setdefault(
                        batch.namespaces[position], ([], [])
                    )
                    labels.append(
                        batch.ids[position] if stored else str(start + position)
                    )
                    vectors.append(vector)
        start += len(batch.ids)
    others = sizes - {dimension}
    if others and (not stored or dimension not in sizes):
        name = "queries"
        if stored:
            name = "vectors"
        raise wrong(
            name,
            f"vectors of {min(others)} numbers",
            f"{dimension} numbers, as in the index",
        )
    return {
        name: (labels, np.stack(vectors)) for name, (labels, vectors) in found.items()
    }


def _ask(
    service: Service,
    matrix: Matrix,
    namespace: str,
    text: str,
    k: int,
    own: list[str] | None,
) -> list[dict[str, float]]:
    """Return ids and scores per query as the service returns them, best first."""
    scored: list[dict[str, float]] = [{} for _ in matrix]
    for start in range(0, len(matrix), _AT_ONCE):
        hits = query(
            service,
            vector=matrix[start : start + _AT_ONCE],
            # A stored vector is its own nearest neighbour, so one more is
            # requested and the vector itself is removed.
            top_k=k if own is None else k + 1,
            namespace=namespace,
            filter=text or None,
        )
        for number, key, score in zip(
            hits["query"], hits["id"], hits["score"], strict=True
        ):
            scored[start + number][key] = score
    if own is not None:
        for hits_of, key in zip(scored, own, strict=True):
            hits_of.pop(key, None)
    return [dict(list(hits_of.items())[:k]) for hits_of in scored]


def compare_hits(
    search: ExactSearch, labels: list[str], scored: list[dict[str, float]], k: int
) -> Iterator[tuple[Any, ...]]:
    """Yield one row per query: namespace, filter, label, recall, gap of scores, and missed ids."""
    for label, returned_hits, exact in zip(
        labels, scored, search.nearest(), strict=True
    ):
        hits = {
            key: score
            for key, score in returned_hits.items()
            if key not in search.unknown
        }
        # A hit that is not among the passed vectors cannot be judged. It took one of the `k`
        # places, so only the other places count.
        most = k - len(returned_hits) + len(hits)
        share = np.nan
        if most:
            share = recalled(list(hits), exact, most, tie=_TIE)
        missed = (
            [key for key, _ in exact[:most] if key not in hits] if share < 1 else []
        )
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
