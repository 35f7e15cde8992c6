"""Group failures in a panel. They are read once, and then merged and split by rules in a file."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from threading import RLock
from typing import Any, Final, TypeAlias
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from toolkit.base.arguments import shown, wrong
from toolkit.base.errors import InputError
from toolkit.base.private_files import changing
from toolkit.base.python_code import Code, PublicCall, fill, joined, listed, variable
from toolkit.base.time_zones import zones_of_times
from toolkit.drawing.bar_heights import readable_top
from toolkit.drawing.wording import value_text
from toolkit.failures.gaps import gaps_of
from toolkit.failures.group_rules import (
    SPLIT_COLUMNS,
    GroupRules,
    split_values,
    write_rules,
)
from toolkit.failures.grouping import FailureGroups, grouped_rows, times_and_groups
from toolkit.failures.over_time import FailureTrend, failure_trend
from toolkit.failures.signed_failures import (
    SignedFailures,
    grouped_columns,
    present_ids,
    read_rows,
    with_learned,
)
from toolkit.widgets.shown_code import named_code

# similarity of the messages from which another group counts as similar
_ALIKE: Final = 0.5
_GROUP: Final = PublicCall("group_failures", ("rules",))
_LIKE: Final = 4  # groups that "more like this" chooses at most
_ATTEMPTS: Final = 4  # to write the learned templates before others have learned more

Edit: TypeAlias = Callable[[list[str]], list[str]]
"""Returns the new lines of the rules, given the present lines."""


def trend_state(
    trend: FailureTrend, zone: ZoneInfo, series: Sequence[dict[str, Any]] = ()
) -> dict[str, Any]:
    """Return a trend as the page draws it. If `series` is given, only these groups are counted."""
    counts = trend.counts.sum(axis=0)
    if series:
        counts = np.sum([part["counts"] for part in series], axis=0)
    zones: list[list[Any]] = []
    if len(trend.starts):
        table = zones_of_times(zone, trend.starts[0], trend.starts[-1])
        zones = [list(change) for change in table]

    return {
        "starts": [round(start.timestamp() * 1000) for start in trend.starts],
        "width": round(trend.step.total_seconds() * 1000),
        "gaps": trend.in_gap.tolist(),
        "zones": zones,
        "limit": readable_top(counts),
        "series": list(series),
        "counts": counts.tolist(),
    }


def _of_file(path: str) -> GroupRules | None:
    """Return the rules of a file, or None if it does not exist yet."""
    try:
        exists = bool(path) and Path(path).exists()
    except (
        OSError,
        ValueError,
    ):
        # no file can have this name: reading raises a better error
        exists = True

    return GroupRules.read(path) if exists else None


class FailureGrouping:
    """The groups of the failures of a frame by rules. Merging and splitting add lines to the rules."""

    def __init__(
        self, frame: pd.DataFrame, rules: str | Path | GroupRules | None, zone: ZoneInfo
    ) -> None:
        self._zone = zone
        if not isinstance(rules, str | Path | GroupRules | None):
            raise wrong("rules", rules, "the path of a rules file, or GroupRules")

        self._frame, self._lock = frame, RLock()
        self.path = "" if rules is None or isinstance(rules, GroupRules) else str(rules)
        self.rules = (
            rules
            if isinstance(rules, GroupRules)
            else _of_file(self.path) or GroupRules()
        )
        self.columns = [name for name in SPLIT_COLUMNS if name in frame.columns]
        self.possible = {*grouped_columns(GroupRules()), "failed_at", "created_at"} <= {
            *frame.columns
        }
        self._made: list[str] = []
        self._unwritten: list[
            str
        ] = []  # made here, but their file could not be written
        # the learned templates that the rows were read with
        self._basis: Mapping[str, Any] | None = None
        self._rows: SignedFailures | None = None

    @property
    def ready(self) -> bool:
        """Return whether the failures were read."""
        return self._rows is not None

    @property
    def groups(self) -> FailureGroups:
        """Return the groups; reads the failures when called for the first time, which can take a minute."""
        with self._lock:
            if self._rows is None:
                self._use(self.rules)
            return self._groups

    def of_rows(self, groups: Iterable[str]) -> NDArray[np.bool_]:
        """Return which rows of the frame are in one of these groups, which may have earlier ids."""
        renamed = present_ids(self._frame)
        present = [renamed.get(group, group) for group in groups]
        chosen = self.groups.frame["group"].isin(present).to_numpy(dtype=bool)
        mask: NDArray[np.bool_] = chosen[self._codes]
        return mask

    def of_row(self, row: int) -> str:
        """Return the group of a row."""
        return str(self.groups.frame["group"].iloc[int(self._codes[row])])

    @property
    def codes(self) -> NDArray[np.int64]:
        """Return the number of the group of each row."""
        _ = self.groups
        return self._codes

    def like(self, row: int) -> tuple[str, ...]:
        """Return the group of a row, and groups with similar messages."""
        from toolkit.failures.seen_before import similar_texts  # noqa: PLC0415 - slow to import

        own, rows = self.of_row(row), self._rows
        assert rows is not None  # noqa: S101 - read by the line above
        # The first failure of each group stands for the group, so that groups are compared instead of rows.
        codes, firsts = np.unique(self._codes, return_index=True)
        texts = [rows.signed.texts[rows.signed.bodies[first]] for first in firsts]
        alike = similar_texts(
            [rows.signed.texts[rows.signed.bodies[row]]], texts, k=_LIKE
        )
        near = alike.loc[alike["similarity"] >= _ALIKE, "row"]
        ids = self._groups.frame["group"].iloc[
            [int(codes[position]) for position in near]
        ]

        return tuple(dict.fromkeys([own, *ids]))

    def merge(self, groups: Sequence[str]) -> None:
        """Merge groups into the first of them in the list, the largest."""
        ordered = [group for group in self.groups.frame["group"] if group in groups]
        self._add([f"merge {group} into {ordered[0]}" for group in ordered[1:]])

    def shared_by_all(self, row: int, column: str) -> int:
        """Return the size of the group of a row if all failures share the value in a column, else 0."""
        group, rows = self.of_row(row), self._rows
        assert rows is not None  # noqa: S101 - read by the line above
        table = rows.table.filter(pa.array(self.of_rows([group])))
        text = value_text(self._frame[column].iloc[row])

        return (
            len(table)
            if all(text in values for values in split_values(table, column))
            else 0
        )

    def split(self, row: int, column: str) -> str:
        """Split off the group of a row the failures with the same value in a column. Return the new group.

        For example, with the column ``response_status`` and a row with status 503, all 503s of the group
        become a new group.
        """
        value = self._frame[column].iloc[row]
        text = value_text(value)
        line = f"split {self.of_row(row)} where {column} = {shlex.quote(text)}"
        # The line is parsed as a reader of the file would parse it. If the value does not come
        # back unchanged, a rule cannot contain it.
        read = (
            ()
            if pd.isna(value) or len(line.splitlines()) > 1
            else GroupRules(line).rules
        )

        if not read or read[0].value != text:
            raise InputError(
                f"splitting by {column}",
                got="no value"
                if pd.isna(value)
                else "a value that a rule cannot contain, or a secret",
                expected="a value on one line",
                next_step="Choose another column, or another failure.",
            )

        self._add([line])
        return self.of_row(row)

    def undo(self) -> bool:
        """Undo the last merge or split made here, and return True if one was undone. Other lines stay."""
        if not self._made:
            return False

        last = self._made.pop()

        def without_last(lines: list[str]) -> list[str]:
            if last in lines:
                # The last occurrence is the line made here; the file may have had the same line before.
                del lines[len(lines) - 1 - lines[::-1].index(last)]
            return lines

        self._change(without_last)

        return True

    def choose(self, path: str) -> None:
        """Read the rules of a file, if it exists, and add the rules that were made here to the file."""
        known = _of_file(path) or GroupRules()
        mine = self.rules.text.splitlines()
        self.path, self._unwritten = path, []

        if mine:
            self._change(
                lambda lines: [*lines, *(line for line in mine if line not in lines)]
            )
        else:
            with self._lock:
                self._use(GroupRules(known.text, known.learned or self.groups.learned))

    def code(self) -> str:
        """Return Python that makes the same groups of the same frame again."""
        if self.path:
            return self._grouped(rules=self.path)
        if not self.rules.text:
            return self._grouped()

        lines = listed(self.rules.text.splitlines())
        made = fill('rules = tk.GroupRules("\\n".join({lines}))', lines=lines)
        return self._grouped(made, rules=variable("rules"))

    def _grouped(self, *before: Code, **options: object) -> Code:
        """Return the call of `group_failures`, after the lines `before`."""

        def write(name: Code) -> Code:
            groups = fill("groups = {call}", call=_GROUP.write(name, **options))
            return joined([*before, groups])

        return named_code(write, self._frame, "failures")

    def _add(self, added: list[str]) -> None:
        self._change(lambda lines: [*lines, *added])
        self._made += added

    def _change(self, edit: Edit) -> None:
        """Change the rules, in the file if there is a path, and group by them."""
        with self._lock:
            # the first reading can take a minute; meanwhile, nobody should have to wait for the file
            _ = self.groups
            if not self.path:
                self._use(self._edited(edit, self.rules))
                return
            known = _of_file(self.path)

            try:
                self._use(self._written(edit))
            except (OSError, ValueError) as error:
                self._use(self._edited(edit, known or self.rules))
                in_file = known.text.splitlines() if known else []
                self._unwritten = [
                    line for line in self.rules.text.splitlines() if line not in in_file
                ]
                raise InputError(
                    "writing rules",
                    got=f"{type(error).__name__} for {shown(self.path)}",
                    expected="the path of a file that can be written",
                    next_step="Enter another path: merged and split groups are kept here.",
                ) from None

    def _written(self, edit: Edit) -> GroupRules:
        """Read, change and write the file under a lock, so that lines of other writers stay."""
        # Reading the rows again can take a minute, so it is done without the lock, up to `_ATTEMPTS` times.
        # If the file has new learned templates each time, the last attempt reads the rows with the lock.
        path = Path(self.path)
        for attempt in range(_ATTEMPTS):
            self._learn(_of_file(self.path))
            with changing(path):
                known = _of_file(self.path)
                if attempt == _ATTEMPTS - 1:
                    # others learn all the time: they have to wait now
                    self._learn(known)

                if known is None or self._knows(known):
                    rules = self._edited(edit, known or self.rules)
                    write_rules(rules, path)
                    break

        self._unwritten = []
        return rules

    def _edited(self, edit: Edit, known: GroupRules) -> GroupRules:
        """Return rules with changed lines, and with the templates learned here."""
        lines = known.text.splitlines()
        lines += [line for line in self._unwritten if line not in lines]
        return GroupRules("\n".join(edit(lines)), self.rules.learned)

    def _knows(self, known: GroupRules) -> bool:
        """Return True if the rows were read with all templates that a file has learned."""
        return known.learned is None or known.learned in (
            self._basis,
            self.rules.learned,
        )

    def _learn(self, known: GroupRules | None) -> None:
        """Read the rows again if other writers added learned templates. Ids are made as in the file."""
        if known is not None and not self._knows(known):
            self._use(GroupRules(self.rules.text, known.learned))

    def _use(self, rules: GroupRules) -> None:
        if self._rows is None or rules.learned != self.rules.learned:
            self._rows, self._basis = (
                read_rows(self._frame, rules, self.columns),
                rules.learned,
            )

        rules = with_learned(rules, self._frame)
        self._groups, self._codes = grouped_rows(self._rows, rules)
        self.rules = self._groups.rules
        table = times_and_groups(self._rows, self._groups, self._codes)
        self.trend = failure_trend(
            table,
            by="group",
            top=max(len(self._groups.frame), 1),
            gaps=gaps_of(self._frame),
            tz=self._zone,
        )
