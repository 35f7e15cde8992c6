"""The hits of the last query, alone or beside a pinned result, with the figure that belongs to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ipywidgets as widgets
import pandas as pd

from toolkit.analysis.rankings import score_moves
from toolkit.analysis.wording import counted
from toolkit.redaction import Redactor
from toolkit.widgets.controls import Hear, note
from toolkit.widgets.similarity_comparison import (
    comparison_svg,
    distribution_svg,
    moved_words,
    said_difference,
    said_moves,
)
from toolkit.widgets.similarity_hits import HitTable, hit_rows


class Results:
    """One result, or two side by side.

    Parameters
    ----------
    asked : callable
        Called with a result and the place of the hit in it that is to be asked by.
    hear : callable
        Takes the values of the panel's fields that come with a click.
    redactor : Redactor
    prefix : str
        Begins the ids of the figure, so that several stand on one page.
    """

    def __init__(
        self,
        asked: Callable[[pd.DataFrame, int], None],
        hear: Hear,
        *,
        redactor: Redactor,
        prefix: str,
    ) -> None:
        self._redactor, self._prefix = redactor, prefix
        self.frame: pd.DataFrame | None = None
        self.pinned: pd.DataFrame | None = None
        self.table = HitTable(lambda place: None if self.frame is None else asked(self.frame, place), hear)
        self.pinned_table = HitTable(
            lambda place: None if self.pinned is None else asked(self.pinned, place), hear
        )
        self.said, self.chart, self.comparison = widgets.HTML(), widgets.HTML(), widgets.HTML()
        self._side_by_side = widgets.Box().add_class("tk-results")
        self.view = widgets.VBox([self.said, self._side_by_side]).add_class("tk-control")

    def show(self, frame: pd.DataFrame) -> None:
        """Show a result, beside the pinned one where there is one."""
        self.frame = frame
        if self.pinned is None or self.pinned is frame:
            self._show_one(frame)
        else:
            self._show_both(self.pinned, frame)

    def pin(self, frame: pd.DataFrame | None) -> None:
        """Keep a result to compare the next ones with; None keeps none."""
        self.pinned = frame
        if self.frame is not None:
            self.show(self.frame)

    def _show_one(self, frame: pd.DataFrame) -> None:
        rows, caption = hit_rows(frame, self._redactor)
        self.table.show(rows, caption if self.pinned is None else f"Pinned: {caption}")
        self.said.value = ""
        self.chart.value = distribution_svg(frame, self._prefix)
        self._side_by_side.children = (self.table.view, self.chart)

    def _show_both(self, pinned: pd.DataFrame, frame: pd.DataFrame) -> None:
        moves = score_moves(pinned, frame)
        words = moved_words(moves)
        gone = {name: word for name, word in words.items() if "gone" in word}
        rows, caption = hit_rows(pinned, self._redactor, gone)
        self.pinned_table.show(rows, f"Pinned: {caption}")
        rows, caption = hit_rows(frame, self._redactor, words)
        self.table.show(rows, f"Now: {caption}")
        changed = said_difference(scope(pinned), scope(frame), self._redactor.text)
        self.said.value = note(said_moves(moves), "count") + note(f"Changed: {changed}")
        self.chart.value = distribution_svg(frame, self._prefix, pinned)
        self.comparison.value = comparison_svg(pinned, frame, f"{self._prefix}-both")
        tables = (self.pinned_table.view, self.table.view)
        self._side_by_side.children = (*tables, self.comparison, self.chart)


def scope(frame: pd.DataFrame) -> dict[str, Any]:
    """What a result was asked with, as `VectorQuery.scope` says it; empty where the frame does not know."""
    asked = frame.attrs.get("queries") or [{}]
    found: dict[str, Any] = asked[0]
    return found


def counted_hits(frame: pd.DataFrame) -> str:
    """How many hits there are, with the reason where there may be fewer than could be."""
    fewer = len(frame) < scope(frame).get("top_k", 10) and bool(scope(frame).get("filter"))
    reason = "; a filter that few vectors pass can give fewer than there are" if fewer else ""
    return f"{counted(len(frame), 'hit')}{reason}"
