"""Mask bodies in the tables of marimo.

marimo draws the frame at the end of a cell from values, not from the text that pandas shows. Bodies are exact
as values, so they would be shown unmasked, also in exported pages. Here, marimo gets a masked copy of such a
frame. The documented ways to change the display need a class of our own, and frames belong to pandas, so
this module changes the registry of marimo.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

import pandas as pd

from toolkit.base.errors import UnexpectedResultWarning
from toolkit.secrets.redaction import Redactor
from toolkit.tables.frames import ExactText, texts_of
from toolkit.tables.masking import each_distinct


def mask_in_marimo() -> None:
    """Make marimo, which is imported, draw masked copies of frames and columns with bodies.

    A notebook that runs as a script draws nothing.
    """
    running_in_notebook = getattr(sys.modules["marimo"], "running_in_notebook", None)
    if running_in_notebook is not None and not running_in_notebook():
        return

    formatting = sys.modules.get("marimo._output.formatting")
    add_formatter = getattr(formatting, "opinionated_formatter", None)
    registry = getattr(formatting, "OPINIONATED_FORMATTERS", None)
    drawing = getattr(registry, "formatters", {})

    if add_formatter is None or pd.DataFrame not in drawing or pd.Series not in drawing:
        warnings.warn(
            "this version of marimo is not known: tables of marimo show bodies unmasked. "
            "Show `mo.Html(frame.to_html())` or a panel instead",
            UnexpectedResultWarning,
            stacklevel=2,
        )
        return

    add_formatter(pd.DataFrame)(_masking_first(drawing[pd.DataFrame], masked_frame))
    add_formatter(pd.Series)(_masking_first(drawing[pd.Series], masked_column))


def _masking_first(
    draw: Callable[[Any], Any], mask: Callable[[Any], Any]
) -> Callable[[Any], Any]:
    def draw_masked(value: Any) -> Any:
        return draw(mask(value))

    return draw_masked


def masked_frame(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a frame whose columns with bodies are masked as values.

    >>> from toolkit.tables.frames import mask_where_shown
    >>> frame = mask_where_shown(pd.DataFrame({"body": ["password=hunter2"]}, dtype="str"))
    >>> "hunter2" in masked_frame(frame).to_csv()
    False
    """
    exact = [name for name in frame.columns if isinstance(frame[name].array, ExactText)]
    return frame.assign(**{name: masked_column(frame[name]) for name in exact})


def masked_column(column: pd.Series[Any]) -> pd.Series[Any]:
    """Return a column of bodies with masked values, and any other column itself."""
    if not isinstance(column.array, ExactText):
        return column

    masked = each_distinct(texts_of(column), Redactor().text).to_pylist()
    return pd.Series(masked, index=column.index, name=column.name, dtype="str")
