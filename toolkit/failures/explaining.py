"""Explain a rise of failures by the attribute values that it is concentrated in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from toolkit.base.arguments import nearest, positive, texts, wrong
from toolkit.base.errors import InputError
from toolkit.drawing.result_tables import Plotted, result_table, share_text
from toolkit.drawing.wording import describe_condition, percent
from toolkit.failures.change_columns import SharedAttributes, shared_attributes
from toolkit.failures.condition_tables import TUNING, AttributeCodes
from toolkit.failures.conditions import Rise, plainest, scan_rises
from toolkit.failures.matching_rows import rows_meeting
from toolkit.failures.selection import opened, select_timed, timestamps, typed_rows
from toolkit.failures.sources import AnyFrame
from toolkit.secrets.redaction import Redactor, escape_html, visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from toolkit.drawing.style import Theme

_Floats = NDArray[np.float64]
_Meets = Callable[[dict[str, Any]], NDArray[np.bool_]]


@dataclass(frozen=True)
class ExplanationTuning:
    """Constants of the words about an explanation, with their reasons."""

    shown: int = 5
    """Conditions in a notebook. `.frame` has all of them."""
    named: int = 2
    """Alternatives per row in a notebook. All of them describe the same rows, so more tell nothing new."""
    largest_share: float = 1.1
    """A larger share of the change is not shown: it is only so large because other rows fell."""
    deviations: float = 3.0
    """Other rows fell if their counts differ by this many standard deviations, which chance rarely does."""


_TUNING: Final = ExplanationTuning()

RANKED: Final = {
    "rank": "Int64", "condition": "object", "observed": "float64", "expected": "float64", "excess": "float64",
    "share": "float64", "lift": "float64", "confidence": "float64", "alternatives": "object",
}  # fmt: skip


@dataclass(frozen=True, repr=False)
class Explanation(Plotted):
    """The conditions that a change is concentrated in. They are associated with it, but no proof of a cause.

    `plot` draws the likeliest conditions, observed against expected.

    Attributes
    ----------
    frame : pandas.DataFrame
        One row per condition, the likeliest first: `rank` (Int64), ``condition`` (dict: attribute to value),
        `observed` and `expected` (float64, events after, and events before in the same length of time),
        `excess` (float64, the difference), `share` (float64, of the change), `lift` (float64, observed
        divided by expected), `confidence` (float64, 0 to 1: probability of this condition among all rows, so
        that the sum is 1), `alternatives` (list of dict: conditions that describe the same rows equally well,
        beginning with conditions without redundant attributes).
    observed, expected : float
        All events.
    stands_out : bool
        False if no condition rose more than the others beyond chance. `frame` then shows chance results.
    window : pair of datetime, optional
        Time of the rise (`explain_spike`): your own window, without the end, or the first and last failure of
        the largest rise.
    episodes : list of pairs of datetime
        First and last failure of each episode of the largest rise. Counts exclude the time between episodes.
        Empty for your own window, and for `explain_change`.
    compared : pair of str or None
        Names of a part of rows and of all rows, if their shares were compared instead of events at two
        times, for example ``("changed vectors", "all vectors")``.
    left_out : list of str
        Attributes that separate what `explain_change` compared by definition, for example ``state``.

    Examples
    --------
    >>> before = pd.DataFrame({"step": ["pay", "ship"] * 40})
    >>> explain_change(before, before).stands_out
    False
    """

    frame: pd.DataFrame
    observed: float
    expected: float
    stands_out: bool
    window: tuple[datetime, datetime] | None = None
    episodes: list[tuple[datetime, datetime]] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    compared: tuple[str, str] | None = None

    def select(self, failures: AnyFrame, *, rank: int = 1) -> pd.DataFrame:
        """Select the rows of a frame that meet a condition, within the episodes or the window, if any.

        Parameters
        ----------
        failures : frame
            The explained frame, or any frame with the same columns.
        rank : int
            Rank of a condition in `frame`.

        Returns
        -------
        pandas.DataFrame
            The rows with all columns, for example to pass to `classify_failures` or `plan_redrive`. If you
            select from the explained frame, their number equals `observed`, or the sum of their `weight`.

        Raises
        ------
        InputError
            If `frame` has no such rank, or the failures lack an attribute of the condition.

        Examples
        --------
        >>> before = pd.DataFrame({"step": ["pay", "ship"] * 40})
        >>> after = pd.DataFrame({"step": ["pay", "ship"] * 40 + ["pay"] * 200})
        >>> len(explain_change(before, after).select(after))
        240
        """
        ranks = self.frame["rank"].tolist()
        if rank not in ranks:
            raise wrong("rank", rank, f"one of the {len(ranks)} conditions")

        since, until = self.window or (None, None)
        # the end of a given window is not included, but `rows_meeting` includes it
        if until and not self.episodes:
            until -= timedelta(milliseconds=1)
        rows = rows_meeting(
            failures, self.frame["condition"][ranks.index(rank)], since, until
        )
        if len(self.episodes) <= 1:
            return rows

        table = select_timed(rows, [], doing="selecting failures").table()
        when = timestamps(table, "when_").dt.floor("ms").array

        return rows[
            np.logical_or.reduce(
                [(when >= first) & (when <= last) for first, last in self.episodes]
            )
        ]

    @property
    def verdict(self) -> str:
        """Return one sentence with the change and the likeliest condition."""
        if self.compared is not None:
            return self._shares_sentence(*self.compared)

        change = self._change_in_words()
        if self.observed and not self.expected:
            return f"{change}: nothing before to compare with"
        if not self.stands_out and self.left_out:
            return f"{change}: nothing differs but {', '.join(self.left_out)}"
        if not self.stands_out:
            return f"{change}: nothing stands out"

        first = self.frame.iloc[0]
        if not first["condition"]:
            return f"{change}: all failures rose, none much more than the others"

        return f"{change}: {self._rise_in_words(first)}"

    def _change_in_words(self) -> str:
        """Return the counts of all events, and the times if they are known."""
        change = f"{self.observed:,.0f} observed, {self.expected:,.0f} expected"
        if self.window is None:
            return change

        since, until = (f"{time:%Y-%m-%d %H:%M}" for time in self.window)
        if len(self.episodes) > 1:
            count = len(self.episodes)
            return f"in {count} episodes between {since} and {until} UTC: {change}"

        return f"{since} to {until} UTC: {change}"

    def _rise_in_words(self, first: pd.Series[Any]) -> str:
        """Return the first condition with the share of the change, or with the counts before and after."""
        condition = describe_condition(first["condition"])
        if first["share"] <= _TUNING.largest_share:
            share = percent(min(first["share"], 1.0))
            return f"{condition} holds {share} of the change"

        # a share above 1 is hard to read, and if the total did not grow, a share is not defined
        before, after = first["expected"], first["observed"]
        sentence = f"{condition} rose from {before:,.0f} to {after:,.0f}"
        others_before, others_after = self.expected - before, self.observed - after
        scatter = max(others_before + others_after, 0.0) ** 0.5
        if others_before - others_after > _TUNING.deviations * scatter:
            return f"{sentence}, as others fell"

        return sentence

    def __repr__(self) -> str:
        return self.verdict

    def _shares_sentence(self, part: str, whole: str) -> str:
        """Return the first condition with its count in a part of rows, and the count by its share of all."""
        if not self.stands_out:
            return f"{self.observed:,.0f} {part}: nothing stands out"

        first = self.frame.iloc[0]
        return (
            f"{self.observed:,.0f} {part}: {first['observed']:,.0f} if "
            f"{describe_condition(first['condition'])}, {first['expected']:,.0f} expected by its share of "
            f"{whole}"
        )

    def _repr_html_(self) -> str:
        clean = Redactor().text
        sentence = clean(repr(self))
        if not self.stands_out:
            return f"<p>{escape_html(visible(sentence))}</p>"

        head = ["condition", "observed", "expected", "lift", "share of change"]
        head += ["confidence among these", "the same failures"]
        rows = [
            (
                clean(describe_condition(row["condition"])), row["observed"], row["expected"],
                "∞" if np.isinf(row["lift"]) else row["lift"],
                share_text(row["share"]), f"{row['confidence']:.2f}", clean(_some(row["alternatives"])),
            )
            for row in self.frame.head(_TUNING.shown).to_dict("records")
        ]  # fmt: skip
        sentence += "."
        if len(self.frame) > _TUNING.shown:
            sentence += f" The first {_TUNING.shown} of {len(self.frame)} conditions:"
        return result_table(sentence, head, rows)

    def _draw(self, ax: Axes, theme: Theme) -> Axes:
        from toolkit.drawing.result_bars import draw_explanation  # noqa: PLC0415 - matplotlib is slow to import

        return draw_explanation(
            self.frame, ax, theme,
            observed=self.observed, expected=self.expected, stands_out=self.stands_out,
            part=self.compared[0] if self.compared else None,
        )  # fmt: skip


def _some(conditions: Sequence[dict[str, Any]]) -> str:
    """Return the first conditions in words, and the number of further conditions."""
    named = [describe_condition(condition) for condition in conditions[: _TUNING.named]]
    if len(conditions) > _TUNING.named:
        named.append(f"{len(conditions) - _TUNING.named:,} more")
    return "; ".join(named)


def explain_change(
    before: AnyFrame,
    after: AnyFrame,
    *,
    attributes: Sequence[str] | None = None,
    weight: str | None = None,
    exposure: float | None = None,
    apart_by: str | Sequence[str] | None = None,
) -> Explanation:
    """Find the conditions that a rise is concentrated in, or the values that failed runs have in common.

    Conditions on up to three attributes are compared by how well a rise of the matching rows explains the
    counts. The result is no proof of a cause: other things that changed at the same time are found as well.
    :doc:`/groups-and-explanations` describes the method and its limits.

    Parameters
    ----------
    before, after : frame
        One row per event, or rows with counts; of any engine. Or successful and failed runs: two frames that
        have no value of `state` in common.
    attributes : sequence of str, optional
        Columns to look at, or ``label`` (any of the ``labels``), ``step`` (any of the steps that a run has
        finished), or a field of JSON: ``header X-Region``, ``body plan``, ``output of charge plan`` (what a
        step of a run returned). Default: all that both frames have and whose values repeat, without
        `weight`, times, and the columns of a snapshot about its syncs. Other columns have no influence.
    weight : str, optional
        A column with the count of each row. Default: each row counts one.
    exposure : float, optional
        How many times longer `before` is than `after`: 14 if one day is compared with two weeks. Default: 1,
        or the ratio of the numbers of events if outcomes are compared.
    apart_by : str or sequence of str, optional
        Columns that you used to divide the rows into the two frames. They explain nothing and are left out.
        `state` and columns that depend on it are known: see `Explanation.left_out`.

    Returns
    -------
    Explanation
        `.frame` with the ranked conditions, `.stands_out`.

    Raises
    ------
    InputError
        If a column is missing, `weight` contains negative or missing numbers, or `exposure` is not positive.

    Examples
    --------
    >>> import pandas as pd
    >>> before = pd.DataFrame({"step": ["pay", "ship"] * 40, "region": ["eu", "eu", "us", "us"] * 20})
    >>> after = pd.concat([before, pd.DataFrame({"step": ["pay"] * 90, "region": ["eu", "us"] * 45})])
    >>> explain_change(before, after)
    170 observed, 80 expected: step = pay holds 100 % of the change

    Compare failed runs with successful ones, and find differences other than the state:

    >>> runs = pd.DataFrame({"state": ["RUN_FAILED"] * 20 + ["RUN_SUCCESS"] * 80,
    ...     "plan": ["team"] * 25 + ["free"] * 75})
    >>> failed = runs["state"] == "RUN_FAILED"
    >>> found = explain_change(runs[~failed], runs[failed])
    >>> found.frame["condition"][0], found.left_out
    ({'plan': 'team'}, ['state'])
    """
    if exposure is not None:
        exposure = float(positive("exposure", exposure))
    if attributes is not None:
        attributes = texts("attributes", attributes)
    apart: list[str] = []
    if isinstance(apart_by, str):
        apart_by = [apart_by]
    if apart_by is not None:
        apart = texts("apart_by", apart_by)
    table_after, seen = _read(after, weight, "after")
    table_before, usual = _read(before, weight, "before")
    shared = shared_attributes(table_after, table_before, attributes, weight)
    tables = {"after": table_after, "before": table_before}
    _check_names("attributes", attributes or [], shared, tables)
    _check_names("apart_by", apart, shared, tables)
    are_outcomes = bool(apart) or shared.are_outcomes
    left_out = [name for name in shared.names if name in apart]
    if are_outcomes and attributes is None:
        left_out = list(dict.fromkeys([*apart, *shared.outcomes()]))
    compared = shared.chosen([name for name in shared.names if name not in left_out])

    if exposure is None:
        exposure = 1.0
        if are_outcomes and seen.any() and usual.any():
            # the numbers of failed and successful runs differ, so shares are compared instead of counts
            exposure = float(usual.sum() / seen.sum())

    # one column over the rows of both frames: rows of `after` have no usual events, and the other way round
    observed, expected = np.append(seen, 0 * usual), np.append(0 * seen, usual)
    columns = compared.single_valued(observed, expected / exposure)
    found = explain_columns(
        columns, observed, expected, exposure, by_shares=are_outcomes
    )
    # the scan used one label per row; now each row counts for all of its labels
    if compared.listed:
        found = recounted(found, observed, expected, exposure, compared.meeting)
    return replace(found, left_out=left_out)


def explain_columns(
    columns: Mapping[str, AttributeCodes],
    observed: _Floats,
    usual: _Floats,
    exposure: float,
    *,
    by_shares: bool = False,
) -> Explanation:
    """Explain a rise by columns of rows, each with a number of events after and before."""
    found = scan_rises(columns, observed, usual, exposure, by_shares=by_shares)
    total, expected = float(observed.sum()), float(usual.sum()) / exposure
    frame = _ranked(found.rises, total - expected)

    return Explanation(frame, total, expected, found.stands_out)


def recounted(
    found: Explanation,
    observed: _Floats,
    usual: _Floats,
    exposure: float,
    meets: _Meets,
) -> Explanation:
    """Return an explanation with the counts of all rows that meet a condition, as `select` finds them.

    The scan only used one label per row, and rows around the window.
    """
    frame = found.frame.copy()
    met = [meets(condition) for condition in frame["condition"]]
    seen, before = (
        np.array([float(each[rows].sum()) for rows in met])
        for each in (observed, usual)
    )
    total, expected = float(observed.sum()), float(usual.sum()) / exposure
    frame["observed"], frame["expected"] = seen, before / exposure
    frame["excess"] = frame["observed"] - frame["expected"]
    frame["share"] = (
        frame["excess"] / (total - expected) if total > expected else np.nan
    )
    frame["lift"] = np.where(before > 0, frame["observed"] / frame["expected"], np.inf)

    return replace(found, frame=frame, observed=total, expected=expected)


def _read(frame: AnyFrame, weight: str | None, name: str) -> tuple[pa.Table, _Floats]:
    """Return all columns of a frame, and the count of each row."""
    rows = opened(frame, doing="explaining a change", name=name)
    known = list(rows.names)
    if weight is not None and (not isinstance(weight, str) or weight not in known):
        raise wrong(
            "weight",
            weight,
            f"a column of {name}",
            nearest(weight, known, what="It has"),
        )

    try:
        table = rows.choose(known).whole_table("explaining a change")
    except InputError as error:
        raise InputError(
            f"reading {name}", got=error.got, expected=error.expected
        ) from None

    numbers = np.ones(table.num_rows)
    if weight is not None:
        try:
            numbers = (
                table[weight].to_pandas().to_numpy(dtype=np.float64, na_value=np.nan)
            )
        except (TypeError, ValueError, OverflowError):
            raise wrong("weight", weight, "a column of numbers") from None

        if not np.isfinite(numbers).all() or (numbers < 0).any():
            raise wrong(
                "weight", weight, "a column of counts, none of them negative or missing"
            )

    return table, numbers


def _check_names(
    argument: str,
    names: Sequence[str],
    shared: SharedAttributes,
    tables: Mapping[str, pa.Table],
) -> None:
    """Raise InputError if a name is no attribute of both frames."""
    for name in names:
        for side, table in tables.items():
            known = [*dict.fromkeys([*table.column_names, *shared.names])]
            if name not in known:
                advice = nearest(name, known, what="It has")
                raise wrong(argument, name, f"columns of {side}", advice)


def _ranked(rises: Sequence[Rise], change: float) -> pd.DataFrame:
    """Return one row per condition, the likeliest first."""
    worths = np.array([rise.worth for rise in rises])
    # A difference of one price is a factor of e. As measured, 96 % of the conditions with a confidence of .9
    # or more are right.
    weights = np.exp((worths - worths.max(initial=-np.inf)) / TUNING.price)
    rows = [
        {
            "rank": rank,
            "condition": rise.condition,
            "observed": rise.observed,
            "expected": rise.expected,
            "excess": rise.observed - rise.expected,
            "share": (rise.observed - rise.expected) / change if change > 0 else np.nan,
            "lift": rise.observed / rise.expected if rise.expected else np.inf,
            "confidence": round(float(weights[rank - 1] / weights.sum()), 12),
            "alternatives": _alternatives(rise),
        }
        for rank, rise in enumerate(rises, 1)
    ]

    return typed_rows(rows, RANKED)


def _alternatives(rise: Rise) -> list[dict[str, str]]:
    """Return other conditions of the same rows, first those that need all their attributes."""
    plain = plainest([rise.condition, *rise.alternatives])
    return sorted(rise.alternatives, key=lambda condition: condition not in plain)
