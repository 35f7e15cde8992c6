"""How notebooks show frames: pandas' own table, in which nothing is typeset as maths, its rows one line high.

JupyterLab typesets TeX in the cells of frames, and an error text may hold a link or be hidden that way. That
is turned off for all frames, because one that was grouped or merged no longer shows where it came from.

JupyterLab lets the text of cells wrap, too. With twenty columns, each as narrow as its longest word, an
address or an error takes five lines and a row 90 pixels; pandas has no option for that.
"""

from __future__ import annotations

import sys
from typing import Any, Final

import pandas as pd

_STYLE: Final = (
    "<style>.tk-frame table.dataframe td, .tk-frame table.dataframe th "
    "{white-space: nowrap; max-width: 27em; overflow: hidden; text-overflow: ellipsis}</style>"
)


def frame_html(frame: pd.DataFrame) -> str | None:
    """The frame as pandas writes it for notebooks, without maths; the toolkit's frames in rows of one line.

    >>> "mathjax_ignore" in frame_html(pd.DataFrame({"n": [1]}))
    True
    >>> "nowrap" in frame_html(pd.DataFrame({"dlq_id": ["a"]}))
    True
    """
    with pd.option_context("display.html.use_mathjax", False):
        found: str | None = frame._repr_html_()  # type: ignore[operator]
    ours = "dlq_id" in frame.columns or "receipt" in frame.attrs
    return f'<div class="tk-frame">{_STYLE}{found}</div>' if found and ours else found


def show_in_notebooks() -> None:
    """Have IPython show frames this way, where it runs and nobody else has said how to show them."""
    shell: Any = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    formatter = getattr(shell, "display_formatter", None)
    if formatter is None:
        return
    html = formatter.formatters["text/html"]
    try:
        html.lookup_by_type(pd.DataFrame)
    except KeyError:
        html.for_type(pd.DataFrame, frame_html)
