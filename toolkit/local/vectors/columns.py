"""Metadata filters over many rows at once: a condition is asked once for each value that occurs in its field.

What a condition says depends on nothing but the value in its field. So each field that filters look at is
kept as a column: the values that occur, each with a number, and for every row the number of its value. A
condition is evaluated on the values, by `Condition.accepts` itself or, where that is the same, by one numpy
comparison; rows then only look their value's answer up. The answers are kept, and extended when new values
come.
"""

from __future__ import annotations

import json
import operator
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from toolkit.filters.metadata import And, Comparison, Membership, MetadataFilter, Or
from toolkit.filters.metadata.paths import MISSING, parse_path, resolve
from toolkit.filters.metadata.tree import Condition
from toolkit.local.vectors.budget import Budget

MAX_COLUMNS: Final = 32
"""Fields kept as columns. Filters on more than this many fields are evaluated row by row."""

_MAX_ANSWERS: Final = 8  # conditions whose answers a column keeps
_STALE_FROM: Final = 1024
_WHOLE: Final = 2**53  # up to here double precision holds every whole number

Mask: TypeAlias = NDArray[np.bool_]
_ORDERS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class FieldColumns:
    """The columns of a namespace, made when a filter first looks at their field."""

    def __init__(self) -> None:
        self._columns: OrderedDict[str, FieldColumn] = OrderedDict()

    def passes(self, chosen: MetadataFilter, metadata: Sequence[Any], budget: Budget | None = None) -> Mask:
        """Which rows pass: what `MetadataFilter.matches` gives for each.

        Parameters
        ----------
        chosen : MetadataFilter
        metadata : sequence
            JSON values by slot, None where there is none. Between calls it changes only as `put` tells.
        budget : Budget, optional
            Default: a new one. What was evaluated when it is used up is kept for the next time.

        Raises
        ------
        ApiError
            When the budget is used up.

        Examples
        --------
        >>> from toolkit.filters.metadata import parse
        >>> rows = [{"n": 1}, None, {"n": "1"}, {"n": 2.5}]
        >>> FieldColumns().passes(parse("n > 1 OR HAS NOT FIELD n"), rows).tolist()
        [False, True, False, True]
        """
        budget = Budget() if budget is None else budget
        with budget.spending():
            if len(chosen.fields()) > MAX_COLUMNS:
                return _row_by_row(chosen, metadata, budget)
            return self._passes(chosen, metadata, budget)

    def put(self, slot: int, metadata: Any) -> None:
        """Tell that the metadata of a slot is now this, or that the next slot has come with it."""
        for field, column in list(self._columns.items()):
            column.put(slot, metadata)
            if column.stale:
                del self._columns[field]

    def _passes(self, chosen: MetadataFilter, metadata: Sequence[Any], budget: Budget) -> Mask:
        if isinstance(chosen, And | Or):
            combine = np.logical_and if isinstance(chosen, And) else np.logical_or
            passes = self._passes(chosen.parts[0], metadata, budget)
            for part in chosen.parts[1:]:
                combine(passes, self._passes(part, metadata, budget), out=passes)
            return passes
        if isinstance(chosen, Condition):
            budget.check()
            return self._column(chosen.field, metadata, budget).passes(chosen, budget)
        return _row_by_row(chosen, metadata, budget)

    def _column(self, field: str, metadata: Sequence[Any], budget: Budget) -> FieldColumn:
        column = self._columns.pop(field, None)
        if column is None:
            column = FieldColumn(field, metadata, budget)
        column.reach(len(metadata))
        self._columns[field] = column
        while len(self._columns) > MAX_COLUMNS:
            self._columns.popitem(last=False)
        return column


class FieldColumn:
    """One field of all rows: for each the number of its value, and what the numbers stand for.

    Parameters
    ----------
    field : str
        Such as ``address.city``.
    metadata : sequence
        JSON values by slot.
    budget : Budget
        For looking at all of them.
    """

    def __init__(self, field: str, metadata: Sequence[Any], budget: Budget) -> None:
        self._path = parse_path(field)
        self._rows = len(metadata)
        # what a slot holds that was never put: the first value
        self._values: list[Any] = [MISSING]
        self._numbers = np.full(1, np.nan)  # the values that are numbers, exactly; else NaN
        # by value, containers by their JSON: the same for values between which no condition can tell
        self._code_of: dict[Hashable, int] = {MISSING: 0}
        self._answers: OrderedDict[Condition, Mask] = OrderedDict()
        self._codes = np.fromiter(map(self._code, budget.each(metadata)), dtype=np.int32, count=self._rows)

    @property
    def stale(self) -> bool:
        """Whether most of its values occur no more."""
        return len(self._values) > 2 * self._rows + _STALE_FROM

    def put(self, slot: int, metadata: Any) -> None:
        """The metadata of a slot is now this."""
        self.reach(slot + 1)
        self._codes[slot] = self._code(metadata)

    def reach(self, rows: int) -> None:
        """There are at least this many slots."""
        if rows > len(self._codes):
            larger = np.zeros(max(rows, 2 * len(self._codes)), dtype=np.int32)
            larger[: len(self._codes)] = self._codes
            self._codes = larger
        self._rows = max(rows, self._rows)

    def passes(self, condition: Condition, budget: Budget) -> Mask:
        """Which rows pass."""
        answers = self._answers.pop(condition, None)
        known = 0 if answers is None else len(answers)
        if answers is None or known < len(self._values):
            more = self._evaluated(condition, known, budget)
            answers = more if answers is None else np.concatenate([answers, more])
        self._answers[condition] = answers
        while len(self._answers) > _MAX_ANSWERS:
            self._answers.popitem(last=False)
        found: Mask = answers[self._codes[: self._rows]]
        return found

    def _code(self, metadata: Any) -> int:
        """The number of the value in some metadata."""
        value = resolve(metadata, self._path)
        key = ("json", json.dumps(value)) if isinstance(value, dict | list | tuple) else value
        code = self._code_of.setdefault(key, len(self._values))
        if code == len(self._values):
            self._values.append(value)
        return code

    def _evaluated(self, condition: Condition, start: int, budget: Budget) -> Mask:
        """What a condition says to the values from a number on."""
        if isinstance(condition, Membership):
            return self._among(condition.values, start, negated=condition.negated)
        if isinstance(condition, Comparison):
            if condition.op in {"=", "!="}:
                return self._among((condition.value,), start, negated=condition.op == "!=")
            if _exact(condition.value):
                return self._ordered(condition, start)
        values = self._values[start:]
        return np.fromiter(map(condition.accepts, budget.each(values)), dtype=np.bool_, count=len(values))

    def _among(self, values: tuple[Any, ...], start: int, *, negated: bool) -> Mask:
        """Whether values are among some: they have the same key exactly when they are equal."""
        among = np.zeros(len(self._values), dtype=np.bool_)
        for value in values:
            code = self._code_of.get(value)
            if code is not None:
                among[code] = True
        if negated:
            among = ~among
            among[[code for code in map(self._code_of.get, (MISSING, None)) if code is not None]] = False
        return among[start:]

    def _ordered(self, condition: Comparison, start: int) -> Mask:
        """A comparison with a number: in one go for numbers, one by one for what is left."""
        if len(self._numbers) < len(self._values):
            new = self._values[len(self._numbers) :]
            more = [float(value) if _exact(value) else np.nan for value in new]
            self._numbers = np.concatenate([self._numbers, more])
        numbers = self._numbers[start:]
        passes: Mask = _ORDERS[condition.op](numbers, float(condition.value))
        for place in np.flatnonzero(np.isnan(numbers)):
            passes[place] = condition.accepts(self._values[start + place])
        return passes


def _row_by_row(chosen: MetadataFilter, metadata: Sequence[Any], budget: Budget) -> Mask:
    return np.fromiter(map(chosen.matches, budget.each(metadata)), dtype=np.bool_, count=len(metadata))


def _exact(value: Any) -> bool:
    """Whether a value is a number that double precision holds exactly."""
    return isinstance(value, float) or (isinstance(value, int) and -_WHOLE <= value <= _WHOLE)
