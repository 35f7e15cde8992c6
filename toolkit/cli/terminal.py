"""Results for people: paragraphs and tables that fit the width of the terminal.

The width is that of the variable ``COLUMNS``, or else that of the terminal. Output that goes to a file or a
pipe is not wrapped without that variable: programs read it line by line.
"""

from __future__ import annotations

import shutil
import textwrap

import pandas as pd

from toolkit.analysis.wording import ROWS_SHOWN, counted, shorten
from toolkit.cli.exit_status import NARROWEST
from toolkit.cli.output import say
from toolkit.redaction import visible


def terminal_width() -> int | None:
    """Return the columns that a line may have, or None if nothing limits them."""
    columns = shutil.get_terminal_size(fallback=(0, 0)).columns
    return max(columns, NARROWEST) if columns else None


def say_wrapped(text: str) -> None:
    """Print a paragraph for people, in lines that fit. Words stay whole, so that paths can be copied."""
    width = terminal_width()
    if width is not None:
        wrapper = textwrap.TextWrapper(
            width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
        )
        text = "\n".join(wrapper.fill(line) for line in text.splitlines())
    say(text)


def say_shortened(text: str) -> None:
    """Print one line of a list, without its end if it does not fit."""
    width = terminal_width()
    say(text if width is None else shorten(text, width))


def say_table(frame: pd.DataFrame, *, is_whole: bool) -> None:
    """Print a table: its first rows, and how to see all.

    Parameters
    ----------
    frame : pandas.DataFrame
        What the table has, in the order of its columns.
    is_whole : bool
        Whether all rows are printed, as the option ``--all`` asks for.
    """
    shown = frame if is_whole else frame.head(ROWS_SHOWN)
    if shown.empty:
        return
    say(visible(table_text(shown, terminal_width())))
    if len(shown) < len(frame):
        say(f"{len(shown):,} of {counted(len(frame), 'row')}; --all prints all")


def table_text(frame: pd.DataFrame, width: int | None) -> str:
    """Return a table as text: side by side if that fits, else each row as a block of lines.

    >>> frame = pd.DataFrame({"title": ["connection refused by the database"], "count": [12]})
    >>> print(table_text(frame, 30))
    title  connection refused by
           the database
    count  12
    """
    cells = frame.astype("object").where(frame.notna(), "")
    text: str = cells.to_string(index=False)
    longest_line = max(len(line) for line in text.splitlines())
    if width is None or longest_line <= width:
        return text
    indent = " " * (max(len(name) for name in cells.columns) + 2)
    wrapper = textwrap.TextWrapper(width - len(indent), break_on_hyphens=False)
    blocks = []
    for row in cells.itertuples(index=False, name=None):
        lines = []
        for name, value in zip(cells.columns, row, strict=True):
            cell = wrapper.fill(str(value)).replace("\n", f"\n{indent}")
            lines.append(f"{name:<{len(indent)}}{cell}".rstrip())
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)
