"""Print paragraphs and tables that fit the width of the terminal.

The width is the value of the variable ``COLUMNS``, or the width of the terminal. If the variable is not set,
output to a file or a pipe is not wrapped, because programs read it line by line.
"""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

from toolkit.cli.exit_status import NARROWEST
from toolkit.cli.output import print_result
from toolkit.drawing.wording import ROWS_SHOWN, counted, shorten
from toolkit.secrets.redaction import visible

if TYPE_CHECKING:
    import pandas as pd

_GAP: Final = "  "
_NARROWEST_COLUMN: Final = 20
"""Characters of the narrowest column: a table of narrower ones reads worse than blocks."""
# Parts between which a line may end: words, and sections of an address. For example, "see https://shop/x now"
# has the parts "see ", "https://", "shop/", "x " and "now".
_PARTS: Final = re.compile(r"[^\s/]*/+|[^\s/]+\s*|\s+")


def terminal_width() -> int | None:
    """Return the columns that a line may have, or None if nothing limits them."""
    columns = shutil.get_terminal_size(fallback=(0, 0)).columns
    if not columns:
        return None

    return max(columns, NARROWEST)


def say_wrapped(text: str) -> None:
    """Print a paragraph for people, in lines that fit. Words stay whole, so that paths can be copied."""
    width = terminal_width()
    if width is not None:
        wrapper = textwrap.TextWrapper(
            width,
            subsequent_indent="  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        text = "\n".join(wrapper.fill(line) for line in text.splitlines())

    print_result(text)


def say_shortened(text: str) -> None:
    """Print one line of a list, cut at the end if it does not fit."""
    width = terminal_width()
    if width is not None:
        text = shorten(text, width)
    print_result(text)


def say_table(frame: pd.DataFrame, *, is_whole: bool) -> None:
    """Print the first rows of a table, and how to see all.

    Parameters
    ----------
    frame : pandas.DataFrame
        The table.
    is_whole : bool
        Print all rows, as the option ``--all`` requests.
    """
    if frame.empty:
        return

    most = len(frame) if is_whole else ROWS_SHOWN
    shown = frame.head(most)
    print_result(visible(table_text(shown, terminal_width())))

    if len(shown) < len(frame):
        print_result(
            f"{len(shown):,} of {counted(len(frame), 'row')}; --all prints all"
        )


def table_text(frame: pd.DataFrame, width: int | None) -> str:
    """Return a table as text; if it is too wide, with long cells in several lines, or each row as a block.

    >>> import pandas as pd
    >>> frame = pd.DataFrame({"title": ["connection refused by the database"], "count": [12]})
    >>> print(table_text(frame, 30))
    title                    count
    connection refused by       12
    the database
    >>> print(table_text(frame, 20))
    title  connection
           refused by
           the database
    count  12
    """
    cells = frame.astype("object").where(frame.notna(), "")
    text: str = cells.to_string(index=False)
    longest_line = max(len(line) for line in text.splitlines())
    if width is None or longest_line <= width:
        return text

    widths = _widths(cells, width)
    return _blocks(cells, width) if widths is None else _wrapped(cells, widths)


def _widths(cells: pd.DataFrame, width: int) -> list[int] | None:
    """Return the widths of columns that fit together, made by narrowing the widest; None if none fit."""
    texts = cells.astype(str)
    natural = [
        max(len(str(name)), int(texts[name].str.len().max())) for name in texts.columns
    ]
    widths = list(natural)

    most = width - len(_GAP) * (len(widths) - 1)
    # One character at a time from the widest column, so that short columns stay as they are. For example,
    # columns of 60, 30 and 5 characters become 30, 30 and 5 in a terminal of 69 (two gaps take 4).
    while sum(widths) > most:
        widest = max(range(len(widths)), key=widths.__getitem__)
        if widths[widest] <= _NARROWEST_COLUMN:
            return None
        widths[widest] -= 1

    return widths


def _wrapped(cells: pd.DataFrame, widths: Sequence[int]) -> str:
    """Return a table in which cells have several lines; numbers are on the right of their column."""
    is_number = [
        all(isinstance(value, int | float) for value in cells[name])
        for name in cells.columns
    ]
    lines = []
    for row in (
        tuple(map(str, cells.columns)),
        *cells.itertuples(index=False, name=None),
    ):
        columns = [
            _lines(str(value), width) for value, width in zip(row, widths, strict=True)
        ]
        for parts in zip_longest(*columns, fillvalue=""):
            placed = [
                part.rjust(width) if right else part.ljust(width)
                for part, width, right in zip(parts, widths, is_number, strict=True)
            ]
            lines.append(_GAP.join(placed).rstrip())

    return "\n".join(lines)


def _lines(text: str, width: int) -> list[str]:
    """Return a cell in lines that end after a word or a slash, as addresses have no spaces.

    >>> _lines("https://shop.example/flows/orders", 21)
    ['https://shop.example/', 'flows/orders']
    """
    lines = [""]
    for part in _PARTS.findall(text):
        if lines[-1] and len((lines[-1] + part).rstrip()) > width:
            lines.append("")
        lines[-1] += part
        while len(lines[-1].rstrip()) > width:
            # one word that is longer than the column
            lines[-1:] = [lines[-1][:width], lines[-1][width:]]

    return [line.strip() for line in lines]


def _blocks(cells: pd.DataFrame, width: int) -> str:
    """Return each row as a block with a line per column."""
    indent = " " * (max(len(name) for name in cells.columns) + 2)
    blocks = []
    for row in cells.itertuples(index=False, name=None):
        lines = []
        for name, value in zip(cells.columns, row, strict=True):
            cell = f"\n{indent}".join(_lines(str(value), width - len(indent)))
            lines.append(f"{name:<{len(indent)}}{cell}".rstrip())

        blocks.append("\n".join(lines))

    return "\n\n".join(blocks)
