"""Merge and split the groups of a panel by its buttons, with a sentence about each edit."""

from __future__ import annotations

from collections.abc import Sequence

from toolkit.drawing.wording import counted
from toolkit.widgets.failure_grouping import FailureGrouping

_FEWEST = 2  # groups that can be merged


class CannotEdit(Exception):  # noqa: N818 - a sentence for the panel, caught there
    """An edit that the present choice does not allow. The message names the choice that is needed."""


class GroupEdits:
    """The edits of the groups of a panel. `split_by` is the column that the page has chosen."""

    def __init__(self, grouping: FailureGrouping) -> None:
        self._grouping = grouping
        self.split_by = next(iter(grouping.columns), "")

    def merge(self, groups: Sequence[str]) -> str:
        """Merge groups. Return a sentence about it."""
        if len(groups) < _FEWEST:
            raise CannotEdit("Choose the groups to merge, two or more.")

        self._grouping.merge(groups)
        return f"{counted(len(groups), 'group')} merged."

    def split(self, row: int | None) -> tuple[str, str]:
        """Split off the failures with the value of a row. Return the new group, and a sentence about it."""
        column = self.split_by
        if row is None:
            raise CannotEdit("No failure is shown.")

        # A split by a value that all failures share would only rename the group.
        number = self._grouping.shared_by_all(row, column)
        if number:
            every = f"All {number:,} failures of this group have"
            if number == 1:
                every = "The only failure of this group has"
            raise CannotEdit(f"{every} this {column}; choose another column.")

        group = self._grouping.split(row, column)
        return group, f"Split by the {column} of the failure shown."

    def undo(self) -> str:
        """Undo the last edit. Return a sentence about it."""
        if not self._grouping.undo():
            raise CannotEdit("Nothing to undo.")
        return "Undone."
