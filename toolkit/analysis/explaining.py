"""Which values of which attributes a rise of failures is concentrated in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import compress
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.analysis.conditions import ConditionSearch, RankedCondition, likelihood, plainest
from toolkit.analysis.failure_attributes import LABEL, column_texts, labels_of, rising_labels, rows_meeting
from toolkit.analysis.selection import NONE, opened, select_timed, timestamps, typed_rows
from toolkit.analysis.sources import AnyFrame
from toolkit.arguments import nearest, positive, texts, wrong
from toolkit.drawing.wording import Plotted, describe_condition, percent, result_table, share_text
from toolkit.redaction import Redactor, escape_html, visible
from toolkit.tables.schemas import FIRST_SEEN_AT, GONE_AFTER, GONE_BEFORE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from toolkit.drawing.style import Theme

_Floats = npt.NDArray[np.float64]
_Table = tuple[pa.Table, _Floats]
_Meets = Callable[[dict[str, Any]], npt.NDArray[np.bool_]]

_ATTRIBUTES: Final = 14
_FEW: Final = 20  # values of which none has to repeat
_OF_SYNCS: Final = {FIRST_SEEN_AT, GONE_AFTER, GONE_BEFORE}  # of the snapshot, not of what failed
_RANKED: Final = 10
_SHOWN: Final = 5  # of them, in a notebook
_NAMED: Final = 2  # conditions that describe the same, in the table of a notebook
RANKED: Final = {
    "rank": "Int64", "condition": "object", "observed": "float64", "expected": "float64", "excess": "float64",
    "share": "float64", "lift": "float64", "confidence": "float64", "alternatives": "object",
}  # fmt: skip
_WHOLE: Final = 1.1  # of the change: more, as others rose less, is not worded as a share
_FELL: Final = 3.0  # standard deviations of the difference of two counts
_EVIDENCE: Final = 3.5  # natural units of log-likelihood beyond the cost of stating a condition


@dataclass(frozen=True, repr=False)
class Explanation(Plotted):
    """Conditions in which a change is concentrated. Association: what goes together, not what caused it.

    `plot` draws the likeliest conditions, observed against expected.

    Attributes
    ----------
    frame : pandas.DataFrame
        One row a condition, the likeliest first: `rank` (Int64), ``condition`` (dict of attribute to value),
        `observed` and `expected` (float64, events after, and before in as long a time),
        `excess` (float64, their difference), `share` (float64, of the change), `lift` (float64, observed
        over expected), `confidence` (float64, 0 to 1: how likely it is this condition rather than another of
        the frame; the sum is 1), `alternatives` (list of dict: conditions that describe the same rows and
        explain them as well, in front those that need all their attributes).
    observed, expected : float
        All events.
    stands_out : bool
        False when no condition rose more than the others beyond chance; `frame` then holds chance's best.
    window : pair of datetime, optional
        When it was (`explain_spike`): as given, until when not included, or the first and last failure of a
        rise that was found.
    episodes : list of pairs of datetime
        The first and last failure of each part of a rise that was found. All counts are of these times, not
        of those between them. Empty for a window that was given, and for `explain_change`.

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

    def select(self, failures: AnyFrame, *, rank: int = 1) -> pd.DataFrame:
        """Select the rows of a frame that meet a condition, within the episodes or the window if there are.

        Parameters
        ----------
        failures : frame
            What was explained, or any frame with the same columns.
        rank : int
            Which condition of `frame`.

        Returns
        -------
        pandas.DataFrame
            These rows with all columns, for `classify_failures`, `FailureBrowser` or `plan_redrive`: of what
            was explained, as many as were `observed`.

        Raises
        ------
        InputError
            When there is no such condition, or the frame has no such attribute.

        Examples
        --------
        >>> before = pd.DataFrame({"step": ["pay", "ship"] * 40})
        >>> after = pd.DataFrame({"step": ["pay", "ship"] * 40 + ["pay"] * 200})
        >>> len(explain_change(after, before).select(after))
        240
        """
        ranks = self.frame["rank"].tolist()
        if rank not in ranks:
            raise wrong("rank", rank, f"one of the {len(ranks)} conditions")
        since, until = self.window or (None, None)
        if until and not self.episodes:  # a window that was given ends before its end
            until -= timedelta(milliseconds=1)
        rows = rows_meeting(failures, self.frame["condition"][ranks.index(rank)], since, until)
        if len(self.episodes) <= 1:
            return rows
        table = select_timed(rows, [], doing="selecting failures").table()
        when = timestamps(table, "when_").dt.floor("ms").array
        return rows[np.logical_or.reduce([(when >= first) & (when <= last) for first, last in self.episodes])]

    def __repr__(self) -> str:
        change = f"{self.observed:,.0f} observed, {self.expected:,.0f} expected"
        if self.window is not None:
            since, until = (f"{time:%Y-%m-%d %H:%M}" for time in self.window)
            times = f"{since} to {until} UTC"
            if len(self.episodes) > 1:
                times = f"in {len(self.episodes)} episodes between {since} and {until} UTC"
            change = f"{times}: {change}"
        if self.observed and not self.expected:
            return f"{change}: nothing before to compare with"
        if not self.stands_out:
            return f"{change}: nothing stands out"
        first = self.frame.iloc[0]
        if not first["condition"]:
            return f"{change}: all failures rose, none much more than the others"
        said = f"{change}: {describe_condition(first['condition'])}"
        if first["share"] <= _WHOLE:
            return f"{said} holds {percent(min(first['share'], 1.0))} of the change"
        # a share says little, and there is none where there are no more than before
        others = self.observed - first["observed"], self.expected - first["expected"]
        fell = others[1] - others[0] > _FELL * max(sum(others), 0.0) ** 0.5
        rose = f"rose from {first['expected']:,.0f} to {first['observed']:,.0f}"
        return f"{said} {rose}{', as others fell' * bool(fell)}"

    def _repr_html_(self) -> str:
        clean = Redactor().text
        said = clean(repr(self))
        if not self.stands_out:
            return f"<p>{escape_html(visible(said))}</p>"
        head = ["condition", "observed", "expected", "lift", "share of change"]
        head += ["confidence among these", "the same failures"]
        rows = [
            (
                clean(describe_condition(row["condition"])), row["observed"], row["expected"],
                "∞" if np.isinf(row["lift"]) else row["lift"],
                share_text(row["share"]), f"{row['confidence']:.2f}", clean(_some(row["alternatives"])),
            )
            for row in self.frame.head(_SHOWN).to_dict("records")
        ]  # fmt: skip
        more = f" The first {_SHOWN} of {len(self.frame)} conditions:" if len(self.frame) > _SHOWN else ""
        return result_table(f"{said}.{more}", head, rows)

    def _draw(self, ax: Axes, theme: Theme) -> Axes:
        from toolkit.drawing.result_bars import draw_explanation  # noqa: PLC0415 - matplotlib is slow to import

        return draw_explanation(
            self.frame, ax, theme,
            observed=self.observed, expected=self.expected, stands_out=self.stands_out,
        )  # fmt: skip


def _some(conditions: Sequence[dict[str, Any]]) -> str:
    """The first of the conditions as text, and how many more there are."""
    more = [f"{len(conditions) - _NAMED:,} more"] if len(conditions) > _NAMED else []
    return "; ".join([*map(describe_condition, conditions[:_NAMED]), *more])


def explain_change(
    after: AnyFrame,
    before: AnyFrame,
    *,
    attributes: Sequence[str] | None = None,
    weight: str | None = None,
    exposure: float = 1.0,
) -> Explanation:
    """Find the conditions on attributes in which a rise is concentrated.

    All conditions on up to three attributes are compared: how well a rise inside, beside another rate
    outside, explains the counts, less what it costs to state the condition. Not proof of a cause: whatever
    changed together with the failures is found, too.

    Parameters
    ----------
    after, before : frame
        One row an event, or rows with counts; of any engine.
    attributes : sequence of str, optional
        Columns to look at. Default: all columns that both frames have, but `weight`, whose values repeat,
        and those in which a snapshot keeps when it was synced. Of failures, ``label`` means any of their
        ``labels``. Whether events come in bursts is measured by all these columns, as few say little of it.
    weight : str, optional
        A column with the count of each row. Default: each row counts one.
    exposure : float
        How many times longer `before` is than `after`: 14, where a day is compared with two weeks.

    Returns
    -------
    Explanation
        `.frame` with the ranked conditions, `.stands_out`.

    Raises
    ------
    InputError
        When a column is missing, `weight` holds negative or missing numbers, or `exposure` is not positive.

    Examples
    --------
    >>> import pandas as pd
    >>> before = pd.DataFrame({"step": ["pay", "ship"] * 40, "region": ["eu", "eu", "us", "us"] * 20})
    >>> after = pd.concat([before, pd.DataFrame({"step": ["pay"] * 90, "region": ["eu", "us"] * 45})])
    >>> explain_change(after, before)
    170 observed, 80 expected: step = pay holds 100 % of the change
    """
    exposure = positive("exposure", exposure)
    attributes = None if attributes is None else texts("attributes", attributes)
    (late, seen), (early, usual) = (
        _read(frame, attributes, weight, name) for frame, name in ((after, "after"), (before, "before"))
    )
    most = max(_FEW, (seen.size + usual.size) // 4)
    late, early = (_texts(table, attributes or (), weight, most) for table in (late, early))
    repeating = _repeating(late, early, most)
    named = repeating if attributes is None else [name for name in dict.fromkeys(attributes) if name in late]
    chosen = list(dict.fromkeys([*named, *repeating]))
    rows = pd.concat([late[chosen].astype(object), early[chosen].astype(object)], ignore_index=True)
    observed, expected = np.append(seen, 0 * usual), np.append(0 * seen, usual)
    both = (after, before)
    listed = [each for frame in both if LABEL in chosen for each in _labels(frame)]
    if len(listed) < len(both):
        return explain_rows(rows, observed, expected, float(exposure), named=named)
    labels = pd.concat(listed).to_numpy(dtype=object)
    rows[LABEL] = rising_labels(labels, observed, expected / exposure)
    found = explain_rows(rows, observed, expected, float(exposure), named=named)
    return recounted(found, observed, expected, float(exposure), partial(_meeting, rows, labels))


def explain_rows(
    rows: pd.DataFrame,
    observed: _Floats,
    usual: _Floats,
    exposure: float,
    *,
    named: Sequence[str] | None = None,
    searched: Sequence[str] | None = None,
    spread: float | None = None,
) -> Explanation:
    """Explain a rise by columns of rows, each of which has events after and events before.

    Conditions are `searched` on some columns; those that describe the same rows are of all that may be
    `named`. `spread` is the variance over the mean of counts, where it is known; else all columns say it.
    """
    leaves, observed, usual = _leaves(rows, observed, usual)
    total, expected = float(observed.sum()), float(usual.sum()) / exposure
    named = list(rows.columns) if named is None else list(named)
    change = ConditionSearch(leaves, observed, usual, exposure, named)
    names = named if searched is None else list(searched)
    classes = change.classes(names, spread) if names and total else []
    frame, stands_out = _ranked(classes, total - expected)
    return Explanation(frame, total, expected, stands_out)


def recounted(
    found: Explanation, observed: _Floats, usual: _Floats, exposure: float, meets: _Meets
) -> Explanation:
    """An explanation with the counts of all rows that meet a condition, as `select` finds them.

    It was found by one label of each row, and by rows around its window.
    """
    frame = found.frame.copy()
    met = [meets(condition) for condition in frame["condition"]]
    seen, before = (np.array([float(each[rows].sum()) for rows in met]) for each in (observed, usual))
    total, expected = float(observed.sum()), float(usual.sum()) / exposure
    frame["observed"], frame["expected"] = seen, before / exposure
    frame["excess"] = frame["observed"] - frame["expected"]
    frame["share"] = frame["excess"] / (total - expected) if total > expected else np.nan
    frame["lift"] = np.where(before > 0, frame["observed"] / frame["expected"], np.inf)
    return replace(found, frame=frame, observed=total, expected=expected)


def _read(frame: AnyFrame, attributes: Sequence[str] | None, weight: str | None, name: str) -> _Table:
    """The columns of a frame as texts, and the count of each row."""
    rows = opened(frame, doing="explaining a change", name=name)
    known = list(rows.names)
    for one in attributes or ():
        if one not in known:
            raise wrong("attributes", one, f"columns of {name}", nearest(one, known, what="It has"))
    if weight is not None and (not isinstance(weight, str) or weight not in known):
        raise wrong("weight", weight, f"a column of {name}", nearest(weight, known, what="It has"))
    table = rows.choose(known).table()
    numbers = np.ones(table.num_rows)
    if weight is not None:
        try:
            numbers = table[weight].to_pandas().to_numpy(dtype=np.float64, na_value=np.nan)
        except (TypeError, ValueError, OverflowError):
            raise wrong("weight", weight, "a column of numbers") from None
        if not np.isfinite(numbers).all() or (numbers < 0).any():
            raise wrong("weight", weight, "a column of counts, none of them negative or missing")
    return table, numbers


def _texts(table: pa.Table, asked: Sequence[str], weight: str | None, most: int) -> pd.DataFrame:
    """The columns asked for, and those of so few values that some repeat, as texts."""
    # whole numbers stay whole where some are missing: 500 before and 500.0 after would be two values
    read = {
        column: column_texts(table[column].to_pandas(integer_object_nulls=True))
        for column in table.column_names
        if column != weight and (column in asked or _distinct(table[column]) <= most)
    }
    return pd.DataFrame(read, index=range(table.num_rows))


def _distinct(column: pa.ChunkedArray) -> int:
    """How many values a column has; of lists and maps, which Arrow does not count, none."""
    try:
        return cast("int", pc.count_distinct(column).as_py())
    except pa.ArrowNotImplementedError:
        return 0


def _labels(frame: AnyFrame) -> Iterator[pd.Series[Any]]:
    """The labels of each row of a frame of failures; nothing of another frame."""
    rows = opened(frame, doing="explaining a change")
    if {"labels", LABEL}.issubset(rows.names):
        table = rows.choose(["labels", LABEL]).table()
        if all(pa.types.is_string(kind) or pa.types.is_large_string(kind) for kind in table.schema.types):
            yield labels_of(table, Redactor())


def _meeting(
    rows: pd.DataFrame, labels: npt.NDArray[np.object_], condition: dict[str, Any]
) -> npt.NDArray[np.bool_]:
    """Which rows meet a condition, by any of their labels."""
    met = np.ones(len(rows), dtype=bool)
    for name, value in condition.items():
        if name == LABEL:
            met &= np.array([value in own or (value == NONE and not own) for own in labels], dtype=bool)
        else:
            met &= (rows[name] == value).to_numpy(dtype=bool)
    return met


def _repeating(after: pd.DataFrame, before: pd.DataFrame, most: int) -> list[str]:
    """Columns that both have, and of which some value repeats."""
    common = [column for column in after.columns if column in before.columns and column not in _OF_SYNCS]
    values = [len({*after[column].cat.categories, *before[column].cat.categories}) for column in common]
    return list(compress(common, (1 < number <= most for number in values)))[:_ATTRIBUTES]


def _leaves(rows: pd.DataFrame, observed: _Floats, usual: _Floats) -> tuple[pd.DataFrame, _Floats, _Floats]:
    """Each combination of values once, with the events observed and expected."""
    if not len(rows.columns):
        return pd.DataFrame(index=[0]), observed.sum(keepdims=True), usual.sum(keepdims=True)
    codes = pd.DataFrame({name: pd.factorize(rows[name])[0] for name in rows.columns})
    leaf = codes.groupby(list(codes.columns), sort=False).ngroup().to_numpy()
    _, first = np.unique(leaf, return_index=True)
    leaves = rows.iloc[first].reset_index(drop=True)
    seen, before = (np.bincount(leaf, one, len(first)).astype(np.float64) for one in (observed, usual))
    return leaves, seen, before


def _alternatives(first: RankedCondition, others: list[RankedCondition]) -> list[dict[str, Any]]:
    """Other conditions of the same rows, those in front that need all their attributes."""
    named = [other.named for other in others]
    plain = plainest([first.named, *named])
    return sorted(named, key=lambda condition: condition not in plain)


def _ranked(classes: list[list[RankedCondition]], change: float) -> tuple[pd.DataFrame, bool]:
    """One row for conditions that describe the same rows, the plainest of them in front."""
    stands_out = bool(classes) and classes[0][0].evidence >= _EVIDENCE
    ranked = classes[:_RANKED]
    weights = np.exp([likelihood(one) - likelihood(ranked[0]) for one in ranked])
    rows = [
        {
            "rank": number + 1,
            "condition": first.named,
            "observed": first.observed,
            "expected": first.expected,
            "excess": first.observed - first.expected,
            "share": (first.observed - first.expected) / change if change > 0 else np.nan,
            "lift": first.observed / first.expected if first.expected else np.inf,
            "confidence": round(float(weights[number] / weights.sum()), 12),
            "alternatives": _alternatives(first, others),
        }
        for number, (first, *others) in enumerate(ranked)
    ]
    return typed_rows(rows, RANKED), stands_out
