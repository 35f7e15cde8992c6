"""A line of text that is completed while it is typed, and whose Enter never overtakes a letter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final

import traitlets

from toolkit.redaction import visible
from toolkit.widgets.controls import TextField
from toolkit.widgets.javascript import is_count, javascript_control

_MOST: Final = 40  # offers at once

Offer = tuple[str, str, str]
"""What is shown, and what then stands before and after the caret."""

Complete = Callable[[str, str], Sequence[Offer]]


@cache
def _kind() -> type[Any]:
    return javascript_control(
        "completing",
        label=traitlets.Unicode(),
        hint=traitlets.Unicode(),
        value=traitlets.Unicode(),
        seq=traitlets.Int(),
        offers=traitlets.List(),
        lines=traitlets.Bool(),
        wanted=traitlets.Bool(),
    )


def completing_text(label: str, complete: Complete, *, hint: str = "", follows: bool) -> Any:
    """A control for text, drawn by ``js/completing.js``.

    Parameters
    ----------
    label, hint : str
    complete : callable
        Given the whole text and the part of it before the caret; gives offers.
    follows : bool
        True: its value follows every letter, and long text has several lines. False: its value is the text
        that was entered, chosen or left.

    Returns
    -------
    anywidget.AnyWidget
        With ``value`` and ``label``. Enter is told as ipywidgets tell it, after the text.
    """
    entry = _kind()(label=label, hint=hint, lines=follows)

    def told(_: Any, content: Any, __: Any) -> None:
        if not isinstance(content, dict):
            return
        event, seq, text, head = (content.get(name) for name in ("event", "seq", "text", "head"))
        if not (isinstance(text, str) and isinstance(head, str) and is_count(seq)):
            return
        # the number goes with what answers it: the page passes over answers to what is no more
        with entry.hold_sync():
            entry.seq = seq
            if follows or event in ("changed", "submit"):
                entry.value = text
            offers = complete(text, head) if event == "typed" else ()
            entry.offers = [list(offer) for offer in offers[:_MOST]]

    entry.on_msg(told)
    return entry


class CompletingField(TextField):
    """A `TextField` whose suggestions are a list below it: those that contain what is typed.

    Its value is the text that was entered, chosen or left.

    Attributes
    ----------
    several : bool
        Whether the text is several with commas between: then the last before the caret is completed.
    """

    def _made(self, label: str, hint: str, suggestions: Sequence[str] | None) -> Any:
        self._suggestions = tuple(suggestions or ())
        self.several = False
        return completing_text(label, self._completed, hint=hint, follows=False)

    def suggest(self, suggestions: Sequence[str]) -> None:
        """Offer these for completion."""
        self._suggestions = tuple(suggestions)

    def _completed(self, text: str, head: str) -> list[Offer]:
        """All of them in a field that was not touched: whoever opens the list there wants another."""
        kept, tail = "", ""
        if self.several:
            kept = head[: len(head.rpartition(",")[0])] + ", " if "," in head else ""
            head, tail = head.rpartition(",")[2], text[len(head) :]
        untouched = text == self.text.value and not kept
        sought = "" if untouched else head.strip().casefold()
        found = [name for name in self._suggestions if sought in name.casefold()]
        # a name that cannot be shown as it is would be another one when it was chosen
        found = [name for name in found if visible(name) == name and "\n" not in name]
        found.sort(key=lambda name: not name.casefold().startswith(sought))
        return [(name, f"{kept}{name}", tail) for name in found]
