"""Which values of which attributes a rise of failures is concentrated in."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import combinations
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from toolkit.analysis.results import Plotted, result_table, share_text
from toolkit.analysis.selection import NONE, opened, typed_frame
from toolkit.analysis.sources import AnyFrame
from toolkit.arguments import nearest, wrong
from toolkit.redaction import Redactor, escape_html, visible
from toolkit.signatures.signed_rows import SIGNATURE

_Floats = npt.NDArray[np.float64]
_Codes = npt.NDArray[np.int64]
_Scored = tuple[float, tuple[str, ...], tuple[int, ...]]
_Table = tuple[pd.DataFrame, _Floats]

_DEPTH: Final = 3  # attributes of a condition
_VALUES: Final = 400  # values of an attribute that are looked at, the largest in excess first
_ATTRIBUTES: Final = 14
_KEPT: Final = 300  # conditions that are compared with each other
_RANKED: Final = 10
_NAMED: Final = 2  # conditions that describe the same, in the table of a notebook
_NUMBERS: Final = ("observed", "expected", "excess", "share", "lift", "confidence")
_DENSE: Final = 8  # combinations of values for each leaf: up to as many, all are counted
_SAME: Final = 0.95  # overlap of the rows of two conditions from which on they describe the same
_COUNTED: Final = 20  # events of a cell from which on its ratio is taken for the dispersion
_CELLS: Final = 8
_LOWER: Final = 0.85  # of the cells, those that rose least
_MEDIAN, _LOWER_MEAN = (
    0.4549,
    0.52,
)  # of the chi-squared distribution with one degree of freedom, and of that part
_EVIDENCE: Final = 3.0  # natural units of log-likelihood beyond the cost of stating a condition
_LEAST: Final = 3.0  # events in excess


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
        over expected), `confidence` (float64, 0 to 1), `alternatives` (list of dict: conditions that describe
        the same rows).
    observed, expected : float
        All events.
    stands_out : bool
        False when no condition rose more than the others beyond chance; `frame` then holds chance's best.
    window : pair of datetime, optional
        When it was (`explain_spike`).

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

    def __repr__(self) -> str:
        change = f"{self.observed:,.0f} observed, {self.expected:,.0f} expected"
        if not self.stands_out:
            return f"{change}: nothing stands out"
        first = self.frame.iloc[0]
        others = ", as others fell" if first["share"] > 1 else ""
        held = f"holds {share_text(first['share'])} of the change{others}"
        return f"{change}: {describe(first['condition'])} {held}"

    def _repr_html_(self) -> str:
        clean = Redactor().text
        said = clean(repr(self))
        if not self.stands_out:
            return f"<p>{escape_html(visible(said))}</p>"
        head = [
            "condition",
            "observed",
            "expected",
            "lift",
            "share of change",
            "confidence",
            "the same failures",
        ]
        rows = [
            (
                clean(describe(row["condition"])), row["observed"], row["expected"],
                "∞" if np.isinf(row["lift"]) else row["lift"],
                share_text(row["share"]), f"{row['confidence']:.2f}", clean(_some(row["alternatives"])),
            )
            for row in self.frame.to_dict("records")
        ]  # fmt: skip
        return result_table(said, head, rows)


def describe(condition: dict[str, Any]) -> str:
    """A condition as text.

    By its own name, the id of a group would be masked as the signature of a message is.

    >>> describe({"region": "eu", "signature": "s3-703ae1747355"})
    'region = eu and group = s3-703ae1747355'
    """
    names = {SIGNATURE: "group"}
    return " and ".join(f"{names.get(name, name)} = {value}" for name, value in condition.items())


def _some(conditions: Sequence[dict[str, Any]]) -> str:
    """The first of the conditions as text, and how many more there are."""
    more = [f"{len(conditions) - _NAMED:,} more"] if len(conditions) > _NAMED else []
    return "; ".join([*map(describe, conditions[:_NAMED]), *more])


def explain_change(
    after: AnyFrame,
    before: AnyFrame,
    *,
    attributes: Sequence[str] | None = None,
    weight: str | None = None,
    exposure: float = 1.0,
) -> Explanation:
    """Find the conditions on attributes in which a rise is concentrated.

    All conditions on up to three attributes are compared: how well a rise inside of it, beside another rate
    outside, explains the counts, less what it costs to state the condition. Not proof of a cause: whatever
    changed together with the failures is found, too.

    Parameters
    ----------
    after, before : frame
        One row an event, or rows with counts; of any engine.
    attributes : sequence of str, optional
        Columns to look at. Default: all columns that both frames have, but `weight`, whose values repeat.
    weight : str, optional
        A column with the count of each row. Default: each row counts one.
    exposure : float
        How many times longer `before` is than `after`.

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
    if not isinstance(exposure, int | float) or isinstance(exposure, bool) or not 0 < exposure < float("inf"):
        raise wrong("exposure", exposure, "a positive number")
    tables = [
        _read(frame, attributes, weight, name) for frame, name in ((after, "after"), (before, "before"))
    ]
    (late, seen), (early, usual) = tables
    chosen = _attributes(tables, attributes)
    rows = pd.concat([late[chosen].astype(object), early[chosen].astype(object)], ignore_index=True)
    return explain_rows(rows, np.append(seen, 0 * usual), np.append(0 * seen, usual), float(exposure))


def explain_rows(rows: pd.DataFrame, observed: _Floats, usual: _Floats, exposure: float) -> Explanation:
    """Explain a rise by all columns of rows, each of which has events after and events before."""
    leaves, observed, usual = _leaves(rows, observed, usual)
    expected = usual / exposure
    total_observed, total_expected = float(observed.sum()), float(expected.sum())
    chosen = list(rows.columns)
    found = _scan(leaves, observed, usual, chosen, exposure) if chosen and total_observed else []
    frame, stands_out = _rank(found, observed, expected)
    return Explanation(frame, total_observed, total_expected, stands_out)


def _read(frame: AnyFrame, attributes: Sequence[str] | None, weight: str | None, name: str) -> _Table:
    """The columns of a frame as texts, and the count of each row."""
    doing = "explaining a change"
    rows = opened(frame, doing=doing, name=name)
    known = list(rows.names)
    listed = isinstance(attributes, list | tuple) and all(isinstance(one, str) for one in attributes)
    if attributes is not None and not listed:
        raise wrong("attributes", attributes, "a list of names of columns")
    for one in attributes or ():
        if one not in known:
            raise wrong("attributes", one, f"columns of {name}", nearest(one, known, what="It has"))
    if weight is not None and (not isinstance(weight, str) or weight not in known):
        raise wrong("weight", weight, f"a column of {name}", nearest(weight, known, what="It has"))
    names = list(dict.fromkeys(known if attributes is None else attributes))
    table = rows.choose([column for column in known if column in names or column == weight]).table()
    # whole numbers stay whole where some are missing: 500 before and 500.0 after would be two values
    read = {
        column: _texts(table[column].to_pandas(integer_object_nulls=True))
        for column in table.column_names
        if column != weight
    }
    numbers = np.ones(table.num_rows)
    if weight is not None:
        try:
            numbers = table[weight].to_pandas().to_numpy(dtype=np.float64, na_value=np.nan)
        except (TypeError, ValueError):
            raise wrong("weight", weight, "a column of numbers") from None
        if not np.isfinite(numbers).all() or (numbers < 0).any():
            raise wrong("weight", weight, "a column of counts, none of them negative or missing")
    return pd.DataFrame(read, index=range(table.num_rows)), numbers


def _texts(column: pd.Series) -> pd.Categorical:
    values = column.astype(object).where(column.notna(), NONE)
    return pd.Categorical(values.map(lambda value: value if isinstance(value, str) else str(value)))


def _attributes(tables: list[_Table], attributes: Sequence[str] | None) -> list[str]:
    """Columns that both have, and of which some value repeats."""
    (after, _), (before, _) = tables
    common = [column for column in after.columns if column in before.columns]
    if attributes is not None:
        return [column for column in dict.fromkeys(attributes) if column in common]
    rows = len(after) + len(before)
    repeating = [
        column
        for column in common
        if 1
        < len(set(after[column].cat.categories) | set(before[column].cat.categories))
        <= max(20, rows // 4)
    ]
    return repeating[:_ATTRIBUTES]


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


@dataclass(frozen=True)
class _Condition:
    """A condition and the leaves it holds."""

    names: tuple[str, ...]
    values: tuple[str, ...]
    rows: npt.NDArray[np.bool_]
    observed: float
    expected: float
    score: float  # by which conditions are compared
    evidence: float  # that it rose at all, where counts may be bursts

    @property
    def named(self) -> dict[str, Any]:
        return dict(zip(self.names, self.values, strict=True))


def _scan(
    leaves: pd.DataFrame, observed: _Floats, usual: _Floats, chosen: list[str], exposure: float
) -> list[_Condition]:
    """The best conditions by their score, the best first."""
    codes: dict[str, _Codes] = {}
    values: dict[str, npt.NDArray[Any]] = {}
    for name in chosen:
        codes[name], values[name] = _largest(leaves[name], observed, usual / exposure)
    spread = _dispersion(codes, observed, usual)
    found = _best(codes, values, (observed, usual), spread, exposure)
    if not found:
        return []
    rest = ~_holds(codes, *found[0][1:])
    if spread > 1:  # what rose makes counts look as if they came in bursts: measured again without it
        calm = {name: code[rest] for name, code in codes.items()}
        spread = min(spread, _dispersion(calm, observed[rest], usual[rest]))
        found = _best(codes, values, (observed, usual), spread, exposure)
    bursts = max(spread, _bursts(observed[rest], usual[rest]))
    conditions = []
    for score, names, key in found:
        rows = _holds(codes, names, key)
        inside = float(observed[rows].sum()), float(usual[rows].sum()) / exposure
        said = tuple(str(values[name][code]) for name, code in zip(names, key, strict=True))
        cost = _cost(names, values, len(codes))
        evidence = (score + cost) * spread / bursts - cost
        conditions.append(_Condition(names, said, rows, *inside, score, evidence))
    return conditions


def _best(
    codes: dict[str, _Codes],
    values: dict[str, npt.NDArray[Any]],
    events: tuple[_Floats, _Floats],
    spread: float,
    exposure: float,
) -> list[_Scored]:
    """Conditions of one to three attributes with their scores, the best first."""
    sums = (float(events[0].sum()), float(events[1].sum()))
    found: list[_Scored] = []
    for depth in range(1, min(_DEPTH, len(codes)) + 1):
        for names in combinations(codes, depth):
            least = found[-1][0] if len(found) == _KEPT else -np.inf
            found += _of_attributes(names, codes, values, events, sums, spread, exposure, least)
            found = sorted(found, key=lambda item: -item[0])[:_KEPT]
    return found


def _holds(codes: dict[str, _Codes], names: tuple[str, ...], key: tuple[int, ...]) -> npt.NDArray[np.bool_]:
    """The leaves that a condition holds."""
    held: npt.NDArray[np.bool_] = np.logical_and.reduce(
        [codes[name] == code for name, code in zip(names, key, strict=True)]
    )
    return held


def _largest(column: pd.Series, observed: _Floats, expected: _Floats) -> tuple[_Codes, npt.NDArray[Any]]:
    """Codes of an attribute's values; -1 for those beyond the largest in excess."""
    codes, values = pd.factorize(column)
    excess = np.bincount(codes, observed, len(values)) - np.bincount(codes, expected, len(values))
    order = np.argsort(-excess)[:_VALUES]
    renumbered = np.full(len(values), -1, dtype=np.int64)
    renumbered[order] = np.arange(len(order))
    return renumbered[codes], np.asarray(values, dtype=object)[order]


def _of_attributes(
    names: tuple[str, ...],
    codes: dict[str, _Codes],
    values: dict[str, npt.NDArray[Any]],
    events: tuple[_Floats, _Floats],
    sums: tuple[float, float],
    spread: float,
    exposure: float,
    least: float,
) -> Iterator[_Scored]:
    """Scores of all conditions on these attributes that rose, and score more than the least."""
    known = np.logical_and.reduce([codes[name] >= 0 for name in names])
    sizes = [len(values[name]) for name in names]
    groups, observed, usual = _counted(
        [codes[name][known] for name in names], sizes, events[0][known], events[1][known]
    )
    rose = observed - usual / exposure >= _LEAST
    groups, observed, usual = groups[rose], observed[rose], usual[rose]
    cost = _cost(names, values, len(codes))
    scores = _gain(observed, usual, *sums) / spread - cost
    order = np.argsort(-scores)[:_KEPT]
    for position in order[scores[order] > max(least, -cost)]:  # at minus the cost, no more than the rest
        key = np.unravel_index(int(groups[position]), sizes)
        yield float(scores[position]), names, tuple(map(int, key))


def _counted(
    codes: list[_Codes], sizes: list[int], observed: _Floats, usual: _Floats
) -> tuple[_Codes, _Floats, _Floats]:
    """The combinations of codes that occur, as numbers, with the events of each."""
    number = np.ravel_multi_index(codes, sizes)
    total = math.prod(sizes)
    if total > _DENSE * number.size:
        groups, number = np.unique(number, return_inverse=True)
        total = groups.size
    else:
        groups = np.arange(total)
    one, two = (np.bincount(number, events, total) for events in (observed, usual))
    there = (one > 0) | (two > 0)
    return groups[there], one[there].astype(np.float64), two[there].astype(np.float64)


def _cost(names: tuple[str, ...], values: dict[str, npt.NDArray[Any]], attributes: int) -> float:
    """What it takes to state a condition, in natural units: which attributes, and which of their values."""
    return float(len(names) * np.log(attributes) + sum(np.log(max(2, len(values[name]))) for name in names))


def _gain(observed: _Floats, usual: _Floats, all_observed: float, all_usual: float) -> _Floats:
    """Log-likelihood of two rates, inside and outside, over that of one; zero where the inside rose less.

    Of counts after and before, so that few events before are known to be few.
    """
    other_observed, other_usual = all_observed - observed, all_usual - usual
    gain = _split(observed, usual) + _split(other_observed, other_usual)
    gain -= _split(np.array([all_observed]), np.array([all_usual]))
    return np.where(observed * other_usual > other_observed * usual, gain, 0.0)


def _split(one: _Floats, two: _Floats) -> _Floats:
    """Log-likelihood of how events are split in two, at its maximum."""
    both = np.maximum(one + two, 1e-300)
    return sum(  # type: ignore[return-value]
        np.where(part > 0, part * np.log(np.maximum(part, 1e-300) / both), 0.0) for part in (one, two)
    )


def _dispersion(codes: dict[str, _Codes], observed: _Floats, usual: _Floats) -> float:
    """Variance over mean of counts, 1 for single events and more where they come in bursts.

    The median over the values of single attributes and of pairs of them, so that what rose hardly counts.
    """
    ratios: list[_Floats] = []
    for depth in (1, 2):
        for names in combinations(codes, depth):
            several = [codes[name] + 1 for name in names]
            sizes = [int(code.max(initial=0)) + 1 for code in several]
            _, one, two = _counted(several, sizes, observed, usual)
            known = one + two >= _COUNTED
            share = float(np.median(one[known] / (one + two)[known])) if known.any() else 0.0
            if 0 < share < 1:
                both = (one + two)[known]
                ratios.append((one[known] - share * both) ** 2 / (both * share * (1 - share)))
    if sum(map(len, ratios)) < _CELLS:
        return _bursts(observed, usual)
    ordered = np.sort(np.concatenate(ratios))
    lower = ordered[: max(1, int(ordered.size * _LOWER))]
    return float(max(1.0, np.median(ordered) / _MEDIAN, lower.mean() / _LOWER_MEAN))


def _bursts(observed: _Floats, usual: _Floats) -> float:
    """The size of bursts, from leaves that occur on one side only: most of those hold a single burst."""
    sides = ((observed, usual), (usual, observed))
    sizes = [events[(events > 0) & (other == 0)] for events, other in sides]
    return min((float((size**2).sum() / size.sum()) for size in sizes if size.size >= _CELLS), default=1.0)


def _rank(found: list[_Condition], observed: _Floats, expected: _Floats) -> tuple[pd.DataFrame, bool]:
    """One row for conditions that describe the same rows, the plainest of them in front."""
    ranked: list[tuple[_Condition, list[_Condition]]] = []
    held = np.array([one.rows[observed > 0] for one in found], dtype=np.float64)
    weights = observed[observed > 0]
    left = np.arange(len(found))
    while left.size and len(ranked) < _RANKED:
        both = held[left] @ (held[left[0]] * weights)
        either = held[left] @ weights + both[0] - both
        same = both >= _SAME * either
        same[0] = True
        first, *others = (found[position] for position in left[same])
        ranked.append((first, others))
        left = left[~same]
    change = float(observed.sum() - expected.sum())
    stands_out = bool(ranked) and ranked[0][0].evidence >= _EVIDENCE
    weights = np.exp([one.score - ranked[0][0].score for one, _ in ranked]) if ranked else np.array([])
    rows = [
        {
            "rank": number + 1,
            "condition": one.named,
            "observed": one.observed,
            "expected": one.expected,
            "excess": one.observed - one.expected,
            "share": (one.observed - one.expected) / change if change > 0 else np.nan,
            "lift": one.observed / one.expected if one.expected else np.inf,
            "confidence": round(float(weights[number] / weights.sum()), 12),
            "alternatives": [other.named for other in others],
        }
        for number, (one, others) in enumerate(ranked)
    ]
    types = {
        "rank": "Int64",
        "condition": "object",
        **dict.fromkeys(_NUMBERS, "float64"),
        "alternatives": "object",
    }
    frame = typed_frame(**{name: (dtype, [row[name] for row in rows]) for name, dtype in types.items()})
    return frame, stands_out
