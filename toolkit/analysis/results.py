"""What results of analyses share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Literal

import pandas as pd

from toolkit.analysis.wording import percent
from toolkit.redaction import escape_html, visible
from toolkit.tables.text import JsonDict, JsonTuple

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_NUMBER: Final = re.compile(r"[<>]?[-+]?[0-9][0-9.,]*( %)?|\N{INFINITY}|")
_LARGE: Final = 1e15  # above which digits are noise
_SENTENCE: Final = 24  # characters from which on a text gets room beside long addresses


def hashable_json(value: Any) -> Any:
    """The value with lists and dicts as those that pandas can hash, at any depth."""
    if isinstance(value, dict):
        return JsonDict({name: hashable_json(item) for name, item in value.items()})
    return JsonTuple(map(hashable_json, value)) if isinstance(value, list | tuple) else value


class Plotted:
    """A result that can be drawn."""

    def plot(self, *, ax: Axes | None = None, theme: Literal["light", "dark"] = "light") -> Axes:
        """Draw it; its class says what is drawn.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw. Default: a new figure of pyplot's.
        theme : {"light", "dark"}

        Returns
        -------
        matplotlib.axes.Axes
            With a sentence where there is nothing to draw.

        Raises
        ------
        InputError
            When `ax` or `theme` is neither of these.
        """
        # imported by name, when it is first used: plots import analyses, and matplotlib is slow to import
        drawn: Axes = import_module("toolkit.plots.result_bars").plot_result(self, ax=ax, theme=theme)
        return drawn


def frame_table(caption: str, frame: pd.DataFrame) -> str:
    """A frame of a result as a sentence and an HTML table, as `result_table` makes it."""
    return result_table(caption, list(map(str, frame.columns)), frame.astype(object).to_numpy().tolist())


def result_table(caption: str, head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A sentence and an HTML table: texts escaped, never maths, at the left; numbers at the right."""
    rows = list(rows)
    numbers = [all(_is_number(row[index]) for row in rows) for index in range(len(head) if rows else 0)]
    sides = ["right" if number else "left" for number in numbers] or ["left"] * len(head)
    cells = "".join(
        f'<th scope="col" style="text-align:{side}">{escape_html(name)}</th>'
        for name, side in zip(head, sides, strict=True)
    )
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    title = escape_html(visible(caption))
    return f"<p>{title}</p><table><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table>"


def share_text(share: float) -> str:
    """A share of a change, which can be above 1; nothing where it is not known."""
    return "" if pd.isna(share) else percent(share) if 0 <= share <= 1 else f"{share:.0%}".replace("%", " %")


def _is_number(value: Any) -> bool:
    """Whether a value is a number, or what stands for one in a sentence."""
    if isinstance(value, str):
        return _NUMBER.fullmatch(value) is not None
    return value is None or not isinstance(value, pd.Timestamp)


def _cell(value: Any) -> str:
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        return f"<td>{escape_html(value)}</td>"
    if isinstance(value, str):
        wide = ";min-width:14em;overflow-wrap:anywhere" if len(value) > _SENTENCE and " " in value else ""
        return f'<td style="text-align:left{wide}">{escape_html(visible(value))}</td>'
    if value is None or pd.isna(value):
        return "<td></td>"
    if isinstance(value, pd.Timestamp):
        day = f'<span style="white-space:nowrap">{value:%Y-%m-%d}</span>'
        return f'<td style="text-align:left">{day} {value:%H:%M}</td>'
    if isinstance(value, int):
        return f"<td>{value:,}</td>"
    return f"<td>{value:,.0f}</td>" if 10_000 <= abs(value) < _LARGE else f"<td>{value:,.4g}</td>"  # noqa: PLR2004 - digits of %g
