"""The result of an audit of recall: a verdict by the worst group, tables and a plot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pandas as pd

from toolkit.base.arguments import whole
from toolkit.base.visible_text import visible
from toolkit.drawing.result_tables import frame_table
from toolkit.drawing.wording import counted, shorten
from toolkit.vectors.recall_judgement import ERROR, GOOD, is_surely_low, known_queries
from toolkit.vectors.retrieval import Recall
from toolkit.vectors.vector_rows import with_default_named

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from toolkit.drawing.style import ThemeName

# If fewer queries have a good mean, the interval is wide. For example, 40 with full recall have [0.94, 1].
_ENOUGH: Final = 100
_TOO_FEW: Final = "cannot be judged by so few queries"
_SHOWN: Final = 60  # characters of a filter in the verdict


def are_other_vectors(scored_otherwise: int, hits: int) -> bool:
    """Return whether most hits have another score than the passed vectors, so that the index has others.

    >>> are_other_vectors(3, 300), are_other_vectors(298, 300), are_other_vectors(0, 0)
    (False, True, False)
    """
    return scored_otherwise > hits / 2


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
        Number of vectors that were seen to be added, removed or changed since they were read. They are left
        out, and fewer neighbours are compared.
    unknown : int
        Number of vectors that the service returned and that are not among the passed vectors, for example
        because you passed a part of the index. They are left out, and fewer neighbours are compared.
    k : int
        Number of compared neighbours: as requested, or fewer if every query has fewer.
    hits : int
        Number of returned hits that are among the passed vectors.
    scored_otherwise : int
        Number of these hits whose score differs by more than 0.01 from that of the passed vector. If it is
        more than half, the vectors are not those of the index, and the recall is not known.

    Examples
    --------
    >>> found = tk.audit_recall(service, tk.load_vectors(service, namespace="runbooks"), sample=20)
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
    hits: int = 0
    scored_otherwise: int = 0

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
        if self._are_others or self.worst_group is None or self._judged == _TOO_FEW:
            return None
        return self._judged == "can be trusted"

    @property
    def verdict(self) -> str:
        """Return one sentence with the recall of the worst group, and the doubts about it."""
        if self._are_others:
            return (
                f"Recall is not known: {self.scored_otherwise:,} of {self.hits:,} returned hits have another "
                "score than the passed vectors, so these are not the vectors of the index, for example "
                "because it was embedded again. Load them again: load_vectors(service)."
            )

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
        count = known_queries(overall)

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
    def _are_others(self) -> bool:
        """Return whether the index has other vectors than the passed ones."""
        return are_other_vectors(self.scored_otherwise, self.hits)

    @property
    def _judged(self) -> str:
        """Return the judgement on the search: by the worst group, and by all queries together."""
        judged = set(self.by["judged"])
        if "misses" in judged or is_surely_low(self.overall, ERROR):
            return "misses neighbours"
        if "may miss" in judged:
            return "may miss neighbours"
        if self.overall.low >= GOOD:
            return "can be trusted"
        if self.overall.mean >= GOOD and known_queries(self.overall) < _ENOUGH:
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
        if self.scored_otherwise:
            doubts += (
                f"; {self.scored_otherwise:,} of {self.hits:,} returned hits have another score than the"
                " passed vectors"
            )

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
        if worst.empty or self._are_others:
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
