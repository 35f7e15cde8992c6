"""Results with rows: they name their frame, draw themselves, and show tables in notebooks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import pandas as pd

from toolkit.drawing.wording import percent
from toolkit.secrets.redaction import escape_html, escape_wrapping, visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from toolkit.drawing.style import Theme

# names such as com.example.reports.PageBuffer.grow, which are wider than a column
_LONG_NAME: Final = re.compile(r"(?<![\w$])[A-Za-z_$][\w$]*\.[\w.$]{16,}")
_NUMBER: Final = re.compile(r"[<>]?[-+]?[0-9][0-9.,]*( %)?|\N{INFINITY}|")
_LARGE: Final = 1e15  # digits of larger numbers are noise
_SENTENCE: Final = 24  # longer sentences get a minimal width next to long addresses
_SENTENCES: Final = 32  # minimal width of all columns of sentences together, in em
_NARROWEST: Final = 8  # of one of them
_WIDEST: Final = 14


class HasFrame:
    """A result that is not a table. The rows are in the attribute `frame`, which errors name."""

    def __getattr__(self, name: str) -> Any:
        # Only called for attributes that do not exist, for example `groups.head()`.
        hint = (
            f" Its rows are in .frame: try .frame.{name}."
            if hasattr(pd.DataFrame, name)
            else ""
        )
        raise AttributeError(
            f"{type(self).__name__!r} object has no attribute {name!r}.{hint}"
        )

    def __getitem__(self, key: object) -> Any:
        """Raise a TypeError that names `frame`: a result is not a table."""
        selection = f".iloc[{key!r}]" if isinstance(key, int | slice) else f"[{key!r}]"
        raise TypeError(
            f"{type(self).__name__} is not a table. Its rows are in .frame: try .frame{selection}."
        )


class Plotted(HasFrame):
    """A result that can be drawn, and that has the rows in the attribute `frame`."""

    def plot(
        self,
        *,
        ax: Axes | None = None,
        theme: Literal["auto", "light", "dark"] = "auto",
    ) -> Axes:
        """Draw the result, as described by the class.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Axes to draw on. If omitted, pyplot makes a new figure.
        theme : {"auto", "light", "dark"}
            Colours of the plot.

        Returns
        -------
        matplotlib.axes.Axes
            The Axes. If the result is empty, they show a sentence.

        Raises
        ------
        InputError
            If `ax` or `theme` has another type or value.
        """
        from toolkit.drawing.style import drawing  # noqa: PLC0415 - matplotlib is slow to import

        with drawing(ax, theme) as (axes, colours):
            return self._draw(axes, colours)

    def _draw(self, ax: Axes, theme: Theme) -> Axes:
        """Draw the result on Axes that have the style of the theme."""
        raise NotImplementedError


def share_text(share: float) -> str:
    """Return a share of a change, which can be above 1; an empty string if it is unknown."""
    if bool(pd.isna(share)):
        return ""
    if 0 <= share <= 1:
        return percent(share)

    return f"{share:.0%}".replace("%", " %")


def frame_table(caption: str, frame: pd.DataFrame) -> str:
    """Return a frame of a result as a sentence and an HTML table, as `result_table` does."""
    return result_table(
        caption, list(map(str, frame.columns)), frame.astype(object).to_numpy().tolist()
    )


def result_table(
    caption: str, head: Sequence[str], rows: Iterable[Sequence[Any]]
) -> str:
    """Return a sentence and an HTML table: text is escaped and at the left, numbers are at the right."""
    rows = list(rows)
    # a table without rows has empty columns
    columns = list(zip(*rows, strict=True)) or list(repeat((), len(head)))
    cells = "".join(
        _head_cell(heading(name, column), column)
        for name, column in zip(head, columns, strict=True)
    )
    # several columns of sentences share a width, so that the last one is not beyond the page
    sentences = sum(map(_has_sentence, columns))
    width = min(_WIDEST, max(_NARROWEST, _SENTENCES // max(sentences, 1)))
    body = "".join(_row(row, width) for row in rows)
    title = escape_html(visible(caption))

    return f"<p>{title}</p><table><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table>"


def heading(name: str, column: Iterable[Any]) -> str:
    """Return the name of a column, with the zone if the column has times.

    >>> heading("first_at", [pd.Timestamp("2026-03-01 12:00", tz="UTC"), pd.NaT]), heading("n", [1])
    ('first_at (UTC)', 'n')
    """
    zones = {value.tzname() for value in column if isinstance(value, pd.Timestamp)} - {
        None
    }
    if not zones:
        return name
    return f"{name} ({', '.join(sorted(map(str, zones)))})"


def _head_cell(name: str, column: Sequence[Any]) -> str:
    """Return the head of a column, at the side of the values."""
    side = "left"
    if column and all(map(_is_number, column)):
        side = "right"
    return f'<th scope="col" style="text-align:{side}">{escape_html(name)}</th>'


def _is_number(value: Any) -> bool:
    """Return whether a value is a number, or text with only a number, for example "<1 %"."""
    if isinstance(value, str):
        return _NUMBER.fullmatch(value) is not None
    return not (isinstance(value, pd.Timestamp) or _is_truth(value))


def _is_truth(value: Any) -> bool:
    """Return whether a value is True or False, which Python also counts as the numbers 1 and 0."""
    return isinstance(value, bool | np.bool_)


def _is_sentence(value: Any) -> bool:
    """Return whether a value is a sentence of several words, which needs a separate width."""
    return isinstance(value, str) and len(value) > _SENTENCE and " " in value


def _wrapping(text: str) -> str:
    """Escape text, and allow line breaks after the dots of long names and the slashes of addresses.

    >>> _wrapping("at com.example.reports.PageBuffer.grow")
    'at com.<wbr>example.<wbr>reports.<wbr>PageBuffer.<wbr>grow'
    """
    escaped = escape_wrapping(text)
    return _LONG_NAME.sub(lambda name: name[0].replace(".", ".<wbr>"), escaped)


def _has_sentence(column: Sequence[Any]) -> bool:
    return any(map(_is_sentence, column))


def _row(values: Sequence[Any], width: int) -> str:
    cells = "".join(_cell(value, width) for value in values)
    return f"<tr>{cells}</tr>"


def _cell(value: Any, width: int) -> str:
    """Return a cell of an HTML table. `width` is the least width of a sentence, in em."""
    if isinstance(value, str):
        return _text_cell(value, width)
    if value is None or pd.isna(value):
        return "<td></td>"
    if _is_truth(value):
        return f'<td style="text-align:left">{bool(value)}</td>'
    if isinstance(value, pd.Timestamp):
        day = f'<span style="white-space:nowrap">{value:%Y-%m-%d}</span>'
        return f'<td style="text-align:left">{day} {value:%H:%M}</td>'

    return f"<td>{_number_text(value)}</td>"


def _number_text(number: float) -> str:
    """Return a number with four digits, or with all digits before the point.

    >>> _number_text(1234), _number_text(0.12344), _number_text(12345.6)
    ('1,234', '0.1234', '12,346')
    """
    if isinstance(number, int):
        return f"{number:,}"
    if 10_000 <= abs(number) < _LARGE:  # noqa: PLR2004 - digits of %g
        return f"{number:,.0f}"

    return f"{number:,.4g}"


def _text_cell(text: str, width: int) -> str:
    """Return a cell of text; sentences get a minimal width, and numbers stay at the right."""
    if _NUMBER.fullmatch(text):
        return f"<td>{escape_html(text)}</td>"

    style = "text-align:left"
    if _is_sentence(text):
        style += f";min-width:{width}em;overflow-wrap:anywhere"
    return f'<td style="{style}">{_wrapping(text)}</td>'
