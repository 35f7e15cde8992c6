"""Write the Python that selects or finds the same rows as a panel of failures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pandas as pd

from toolkit.base.python_code import Code, PublicCall, fill, listed
from toolkit.widgets.failure_grouping import FailureGrouping
from toolkit.widgets.failure_rows import FailureView
from toolkit.widgets.shown_code import named_code

_SELECTION: Final = 'ids = {ids}\nselected = {frame}[{frame}["dlq_id"].isin(ids)]'
_FOUND: Final = PublicCall("FailurePanel", ("value", "rules"))


def code_of_selection(frame: pd.DataFrame, ids: Sequence[str]) -> Code:
    """Return code that selects rows of a frame by exact ids."""
    return named_code(
        lambda name: fill(_SELECTION, ids=listed(ids), frame=name), frame, "failures"
    )


def code_of_found(
    frame: pd.DataFrame, view: FailureView, grouping: FailureGrouping
) -> Code:
    """Return code that finds the rows of a view: by the search, the groups and the times."""
    found = view.replace(selected=())
    # ids of groups depend on the rules
    rules: dict[str, object] = {}
    if found.groups and grouping.path:
        rules = {"rules": grouping.path}
    elif found.groups and grouping.rules.text:
        text = grouping.rules.text
        rules = {"rules": fill("tk.GroupRules({text})", text=text)}

    def write(name: Code) -> Code:
        call = _FOUND.write(name, value=found.to_code(), **rules)
        return fill("found = {call}.found()", call=call)

    return named_code(write, frame, "failures")
