"""Format results for people: numbers, shares, spans and times as text, tables, and plots."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import timedelta
from itertools import pairwise, repeat
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from toolkit.secrets.redaction import escape_html, escape_wrapping, visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from toolkit.drawing.style import Theme

ROWS_SHOWN: Final = 20
"""Rows of a table that a notebook or a terminal shows unless all are requested."""

_SIZES: Final = ((1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k"))
_SPANS: Final = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
_TENS: Final = 10
# names such as com.example.reports.PageBuffer.grow, which are wider than a column
_LONG_NAME: Final = re.compile(r"(?<![\w$])[A-Za-z_$][\w$]*\.[\w.$]{16,}")
_NUMBER: Final = re.compile(r"[<>]?[-+]?[0-9][0-9.,]*( %)?|\N{INFINITY}|")
_LARGE: Final = 1e15  # digits of larger numbers are noise
_SENTENCE: Final = 24  # longer sentences get a minimal width next to long addresses
_SENTENCES: Final = 32  # minimal width of all columns of sentences together, in em
_NARROWEST: Final = 8  # of one of them
_WIDEST: Final = 14


def short_number(value: float) -> str:
    """Return a count in about four characters.

    >>> short_number(999), short_number(1234), short_number(2_000_000)
    ('999', '1.2k', '2M')
    """
    for size, sign in _SIZES:
        # 1M, not 1000k
        if abs(value) >= size * 0.9995:
            scaled = value / size
            if abs(scaled) >= _TENS:
                return f"{scaled:.0f}{sign}"
            return f"{scaled:.1f}".removesuffix(".0") + sign

    return f"{value:g}"


def fitting_numbers(counts: Iterable[int], limit: int) -> list[str]:
    """Return counts in full if each takes at most `limit` characters; otherwise all of them shortened.

    >>> fitting_numbers([5166, 30], 5), fitting_numbers([5166, 30], 4)
    (['5,166', '30'], ['5.2k', '30'])
    """
    numbers = list(counts)
    full = list(map("{:,}".format, numbers))
    if max(map(len, full), default=0) <= limit:
        return full

    return list(map(short_number, numbers))


def readable_top(heights: NDArray[Any]) -> float:
    """Return the height at the end of an axis of bars, which is truncated if few bars would flatten the rest.

    Few bars are a twentieth of them (at least one), if they are over five times as tall as the others.

    >>> readable_top(np.array([3, 5, 4, 2, 400])), readable_top(np.array([3, 5, 4, 2, 9]))
    (6.25, 9.0)
    """
    tall = np.sort(heights[heights > 0])
    few = max(1, len(tall) // 20)
    if len(tall) > 3 * few and tall[-1] > 5 * tall[-few - 1]:
        return float(tall[-few - 1] * 1.25)
    if not len(tall):
        return 1.0

    return float(tall[-1])


def percent(share: float) -> str:
    """Return a share of 1 in whole percent, but "0 %" only for nothing and "100 %" only for all.

    >>> percent(0.347), percent(0.0004), percent(0.9996), percent(1.0)
    ('35 %', '<1 %', '>99 %', '100 %')
    """
    whole = round(share * 100)
    if whole == 0 and share > 0:
        return "<1 %"
    if whole == 100 and share < 1:  # noqa: PLR2004 - percent
        return ">99 %"

    return f"{whole} %"


def share_text(share: float) -> str:
    """Return a share of a change, which can be above 1; an empty string if it is unknown."""
    if bool(pd.isna(share)):
        return ""
    if 0 <= share <= 1:
        return percent(share)

    return f"{share:.0%}".replace("%", " %")


def describe_condition(condition: dict[str, Any]) -> str:
    """Return a condition as text.

    A signature is called a group: under the name "signature", the id would be masked as a signed token is.

    >>> describe_condition({"region": "eu", "signature": "s5-703ae1747355"})
    'region = eu and group = s5-703ae1747355'
    """
    names = {"signature": "group"}
    stated = " and ".join(
        f"{names.get(name, name)} = {value}" for name, value in condition.items()
    )
    return stated or "all failures"


def span(length: timedelta) -> str:
    """Return a span of time in one or two units, the largest that fit.

    >>> span(timedelta(hours=3)), span(timedelta(days=1, hours=6)), span(timedelta(seconds=90))
    ('3 h', '1 d 6 h', '1 min 30 s')
    """
    seconds = round(abs(length.total_seconds()))
    for (sign, size), (smaller_sign, smaller_size) in pairwise(_SPANS):
        if seconds >= size:
            count, rest = divmod(seconds, size)
            smaller_count = rest // smaller_size
            # the second unit of "12 d 5 h" tells little
            if smaller_count and count < _TENS:
                return f"{count} {sign} {smaller_count} {smaller_sign}"
            return f"{count} {sign}"

    return f"{seconds} s"


def elapsed(seconds: float) -> str:
    """Return a duration, with parts of a second if it is below ten seconds.

    >>> elapsed(0.02), elapsed(90)
    ('0.02 s', '1 min 30 s')
    """
    if seconds < _TENS:
        return f"{seconds:.3g} s"
    return span(timedelta(seconds=seconds))


def value_text(value: object) -> str:
    """Return a value of a column as text. An integer that pandas converted to a float has no ``.0``.

    >>> value_text(500.0), value_text("a b"), value_text(True)
    ('500', 'a b', 'True')
    """
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)


def counted(number: int, thing: str) -> str:
    """Return a number with a noun.

    >>> counted(1, "failure"), counted(1200, "failure")
    ('1 failure', '1,200 failures')
    """
    if number == 1:
        return f"{number:,} {thing}"
    return f"{number:,} {thing}s"


def shorten(text: str, longest: int) -> str:
    """Cut the end of a string that is longer than `longest` characters.

    >>> shorten("connection refused", 11)
    'connection…'
    """
    if len(text) <= longest:
        return text
    return f"{text[: longest - 1]}…"


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


def headline(verdict: str, rows: int) -> str:
    """Return the sentence above a table of the first rows of `.groups`, with the number of all rows.

    >>> headline("Done", 20), headline("Done", 1_200)
    ('Done', 'Done; 20 of 1,200 rows of .groups:')
    """
    if rows <= ROWS_SHOWN:
        return verdict
    return f"{verdict}; {ROWS_SHOWN} of {rows:,} rows of .groups:"


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
    cells = "".join(map(_head_cell, head, columns))
    # several columns of sentences share a width, so that the last one is not beyond the page
    sentences = sum(map(_has_sentence, columns))
    width = min(_WIDEST, max(_NARROWEST, _SENTENCES // max(sentences, 1)))
    body = "".join(_row(row, width) for row in rows)
    title = escape_html(visible(caption))

    return f"<p>{title}</p><table><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table>"


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
    return not isinstance(value, pd.Timestamp)


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
