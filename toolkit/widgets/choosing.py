"""One of several, whose choice never comes after the button that is pressed next."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import traitlets

from toolkit.widgets.javascript import is_count, javascript_control


@cache
def _kind() -> type[Any]:
    return javascript_control(
        "choosing",
        label=traitlets.Unicode(),
        options=traitlets.List(traitlets.Unicode()),
        value=traitlets.Unicode(),
        seq=traitlets.Int(),
    )


def choosing_list(options: Sequence[str], *, label: str = "") -> Any:
    """A control for one of several names, drawn by ``js/choosing.js``.

    A Dropdown of ipywidgets tells what is chosen by its place in a list that may have changed, and when the
    kernel is free: a button pressed after it can be first.

    Parameters
    ----------
    options : sequence of str
        All there can be; the first is chosen at first. May be set to some of them later: what is chosen
        stays, also when it is not among these.
    label : str

    Returns
    -------
    anywidget.AnyWidget
        With ``value``, ``options`` and ``label``.
    """
    chosen = _kind()(options=list(options), value=options[0], label=label)
    known = set(options)

    def told(_: Any, content: Any, __: Any) -> None:
        if not isinstance(content, dict):
            return
        value, seq = content.get("value"), content.get("seq")
        if isinstance(value, str) and value in known and is_count(seq):
            with chosen.hold_sync():
                chosen.seq = seq
                chosen.value = value

    chosen.on_msg(told)
    return chosen
