"""Frames as plain markup, for where no widget can be drawn."""

from __future__ import annotations

from typing import Any, Final

import pandas as pd

from toolkit.analysis.wording import shorten
from toolkit.redaction import Redactor, escape_html
from toolkit.widgets.colouring import masked_text

_ROWS: Final = 10
_COLUMNS: Final = 8
_LONGEST: Final = 80
_PLAIN: Final = ("dlq_id", "failed_at", "workflow_url", "response_status", "failure_function_state", "labels")


def static_table(frame: pd.DataFrame, redactor: Redactor) -> str:
    """The first rows of a frame as an HTML table, every value masked and escaped.

    Examples
    --------
    >>> static_table(pd.DataFrame({"n": ["<b>"]}), Redactor(key=b"k"))
    '<table><thead><tr><th>n</th></tr></thead><tbody><tr><td>&lt;b&gt;</td></tr></tbody></table>'
    """
    if not len(frame):
        return ""
    names = [name for name in _PLAIN if name in frame.columns] or list(frame.columns[:_COLUMNS])
    head = "".join(f"<th>{escape_html(name)}</th>" for name in names)
    rows = frame[names].head(_ROWS).itertuples(index=False, name=None)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape_html(shown(value, redactor))}</td>' for value in row)}</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def shown(value: Any, redactor: Redactor) -> str:
    """A value of a frame as one short masked text; nothing for a missing one."""
    if value is None or (pd.api.types.is_scalar(value) and pd.isna(value)):
        return ""
    if isinstance(value, pd.Timestamp):
        return f"{value:%Y-%m-%d %H:%M:%S}"
    text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return shorten(masked_text(text, redactor), _LONGEST)
