"""The hits of the last query, alone or beside a pinned result, with the figure that belongs to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import ipywidgets as widgets
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from toolkit.analysis import score_moves
from toolkit.analysis.wording import counted, shorten
from toolkit.plots.score_comparison import plot_score_comparison
from toolkit.plots.score_distribution import plot_score_distribution
from toolkit.plots.style import THEMES
from toolkit.plots.svg import inline_svg
from toolkit.redaction import Redactor
from toolkit.widgets.controls import Hear, note
from toolkit.widgets.similarity_hits import HitTable, hit_rows

_LONGEST: Final = 60


def moved_words(moves: pd.DataFrame) -> dict[str, str]:
    """How each hit moved: signs and words, no colours.

    Parameters
    ----------
    moves : pandas.DataFrame
        Of `score_moves`, of one query.

    Examples
    --------
    >>> frame = pd.DataFrame({"query": 0, "rank": [1, 2], "id": ["a", "b"], "score": [0.9, 0.8]})
    >>> moved_words(score_moves(frame, frame.assign(id=["b", "c"])))
    {'a': '✗ gone', 'b': '▲ 1 up', 'c': '+ new'}
    """
    return {
        str(identity): _moved(before, after)
        for identity, before, after in zip(
            moves["id"], moves["rank_before"], moves["rank_after"], strict=True
        )
    }


def _moved(before: Any, after: Any) -> str:
    if pd.isna(before):
        return "+ new"
    if pd.isna(after):
        return "✗ gone"
    places = int(before) - int(after)
    return "= same" if not places else f"▲ {places:,} up" if places > 0 else f"▼ {-places:,} down"


def said_moves(moves: pd.DataFrame) -> str:
    """What moved, as a sentence.

    >>> frame = pd.DataFrame({"query": 0, "rank": [1, 2], "id": ["a", "b"], "score": [0.9, 0.8]})
    >>> said_moves(score_moves(frame, frame.assign(id=["b", "c"])))
    '1 hit in both (1 up, 0 down, 0 the same), 1 new, 1 gone'
    """
    words = list(moved_words(moves).values())
    counts = [sum(sign in word for word in words) for sign in ("up", "down", "same", "new", "gone")]
    up, down, same, new, gone = counts
    both = up + down + same
    return (
        f"{both:,} {'hit' if both == 1 else 'hits'} in both ({up:,} up, {down:,} down, {same:,} the same), "
        f"{new:,} new, {gone:,} gone"
    )


def said_difference(before: dict[str, Any], after: dict[str, Any], masked: Callable[[str], str] = str) -> str:
    """What differs between two queries, of their scopes; texts are masked before they are cut.

    >>> said_difference({"data": "a", "top_k": 5}, {"data": "a"})
    'top_k: 5 → 10'
    """
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    pairs = [(name, *(_short(scope, name, masked) for scope in (before, after))) for name in names]
    return "; ".join(f"{name}: {old} → {new}" for name, old, new in pairs) or "nothing"


def _short(scope: dict[str, Any], name: str, masked: Callable[[str], str]) -> str:
    value = scope.get(name, 10 if name == "top_k" else None)
    if isinstance(value, dict):
        numbers = value.get("dimension", value.get("terms"))
        return f"{numbers} numbers ({str(value.get('sha256', ''))[:8]})"
    return "none" if value is None else shorten(masked(str(value)), _LONGEST)


def distribution_svg(hits: pd.DataFrame, prefix: str, pinned: pd.DataFrame | None = None) -> str:
    """The scores of a result as a histogram; of two, on the same edges."""
    if pinned is not None:
        two = {"pinned": pinned, "now": hits}
        scores = pd.concat([one[["score"]].assign(result=name) for name, one in two.items()])
        return _drawn(
            lambda ax: plot_score_distribution(scores, by="result", ax=ax), prefix,
            "Scores of the hits, pinned and now",
            f"Two histograms, of {len(pinned):,} and {len(hits):,} scores", 3.4,
        )  # fmt: skip
    return _drawn(
        lambda ax: plot_score_distribution(hits, by=None, ax=ax), prefix,
        "Scores of the hits", f"Histogram of {len(hits):,} scores", 2.4,
    )  # fmt: skip


def comparison_svg(before: pd.DataFrame, after: pd.DataFrame, prefix: str) -> str:
    """The scores of two results against each other."""
    return _drawn(
        lambda ax: plot_score_comparison(before, after, names=("pinned", "now"), ax=ax), prefix,
        "Scores, pinned and now", said_moves(score_moves(before, after)), 3.4,
    )  # fmt: skip


def _drawn(draw: Callable[[Axes], Axes], prefix: str, title: str, described: str, height: float) -> str:
    figure = Figure(figsize=(4.8, height), layout="constrained")
    draw(figure.add_subplot())
    return inline_svg(figure, title=title, description=described, prefix=prefix, theme=THEMES["light"])


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
