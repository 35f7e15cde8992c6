"""Hits as a table: rank, id, score as a number and as a length, and what moved."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

import anywidget
import numpy as np
import pandas as pd
import traitlets

from toolkit.analysis.wording import counted, shorten
from toolkit.redaction import Redactor, visible
from toolkit.secret_patterns import is_secret_name
from toolkit.tables.text import json_value
from toolkit.widgets.colouring import masked_text
from toolkit.widgets.controls import Hear
from toolkit.widgets.javascript import hearing, module, synced

SHOWN: Final = 200
"""Hits of a result that are in the table; the frame has all."""

_LONGEST: Final = 160  # characters of an id, of data or metadata
_NAMES: Final = (
    "title",
    "name",
    "text",
    "content",
    "summary",
    "question",
    "description",
    "heading",
    "subject",
)


@dataclass(frozen=True)
class Hit:
    """A row of the table, masked, nothing invisible in it.

    Attributes
    ----------
    rank, id, score, moved, more : str
        What is read; `more` is the beginning of its data, or of the field of its metadata that says most.
    share : float
        Length of the score's bar, 0 to 1.
    """

    rank: str
    id: str
    score: str
    share: float
    moved: str = ""
    more: str = ""


def hit_rows(
    frame: pd.DataFrame, redactor: Redactor, moved: Mapping[str, str] | None = None
) -> tuple[list[Hit], str]:
    """The first hits of a result as rows, and a caption that says how many there are and how long bars are.

    Parameters
    ----------
    frame : pandas.DataFrame
        With ``rank``, ``id`` and ``score``.
    redactor : Redactor
    moved : mapping, optional
        From an id to how it moved, in words.

    Examples
    --------
    >>> frame = pd.DataFrame({"rank": [1, 2], "id": ["a", "b"], "score": [0.9, 0.8]})
    >>> rows, caption = hit_rows(frame, Redactor(key=b"k"))
    >>> rows[0].score, rows[0].share, caption
    ('0.9000', 0.9, '2 hits; bars from 0 to 1')
    """
    some = frame.head(SHOWN)
    scores = frame["score"].to_numpy(dtype=np.float64, na_value=np.nan)
    usable = scores[np.isfinite(scores)]
    low = float(min(usable.min(initial=0.0), 0.0))
    high = float(usable.max(initial=0.0))
    high = 1.0 if low == 0.0 and high <= 1.0 else high
    texts = _telling(some, redactor)
    rows = []
    for place, identity in enumerate(some["id"].astype(str)):
        score = float(scores[place])
        share = (score - low) / (high - low) if np.isfinite(score) else 0.0
        rows.append(
            Hit(
                rank=f"{some['rank'].iloc[place]:,}", id=_one_line(identity, redactor),
                score=f"{score:.4f}" if abs(score) < 1_000 else f"{score:.6g}",  # noqa: PLR2004 - digits
                share=min(max(share, 0.0), 1.0), moved=(moved or {}).get(identity, ""),
                more=_one_line(texts[place], redactor),
            )
        )  # fmt: skip
    total = counted(len(frame), "hit") + (f", the first {SHOWN} shown" if len(frame) > SHOWN else "")
    return rows, f"{total}; bars from {low:.3g} to {high:.3g}" if rows else "No hits"


def _telling(hits: pd.DataFrame, redactor: Redactor) -> list[str]:
    """What tells each hit from the others: its data, else the field of its metadata that says most."""
    data = hits["data"].tolist() if "data" in hits else [None] * len(hits)
    whole = hits["metadata"].tolist() if "metadata" in hits else [None] * len(hits)
    fields = [_texts(value) for value in whole]
    held: dict[str, list[str]] = {}
    for found in fields:
        for name, text in found.items():
            held.setdefault(name, []).append(text)
    # a field by a name that says so, else the one with the most different and longest texts
    order = sorted(
        held, key=lambda name: (_rank(name), -len(set(held[name])), -sum(map(len, held[name])), name)
    )
    told = []
    for text, found, metadata in zip(data, fields, whole, strict=True):
        best = next((name for name in order if name in found), None)
        if isinstance(text, str) and text:
            told.append(text)
        elif best is not None:
            told.append(f"{best}: {redactor.value(found[best], secret=is_secret_name(best))}")
        else:
            told.append(metadata if isinstance(metadata, str) else "")
    return told


def _rank(name: str) -> int:
    return _NAMES.index(name.lower()) if name.lower() in _NAMES else len(_NAMES)


def _texts(metadata: Any) -> dict[str, str]:
    """The fields of a metadata object that are text."""
    try:
        value = json_value(metadata) if isinstance(metadata, str) else None
    except ValueError:  # shown as it is
        return {}
    found = value.items() if isinstance(value, dict) else ()
    return {name: text for name, text in found if isinstance(text, str) and text.strip()}


def _one_line(text: str, redactor: Redactor) -> str:
    # masked before it is cut: what is left of a secret would not be known for one
    return visible(shorten(masked_text(text, redactor), _LONGEST)).replace("\n", " ")


class Hits(anywidget.AnyWidget):
    """The table in the page, drawn by ``js/hits.js``."""

    _esm = module("hits")
    rows = synced(traitlets.List(traitlets.Dict()))
    caption = synced(traitlets.Unicode("No hits yet"))
    moves = synced(traitlets.Bool())
    version = synced(traitlets.Int())


class HitTable:
    """The table, and a way to query from a hit.

    Parameters
    ----------
    asked : callable
        Called with the place of a hit, from 0.
    hear : callable
        Takes the values of the panel's fields that come with a click.
    """

    def __init__(self, asked: Callable[[int], None], hear: Hear) -> None:
        self._asked, self._hear = asked, hear
        self.rows: list[Hit] = []
        self.view = Hits()
        self.view.on_msg(lambda _, content, __: self._message(content))

    def show(self, rows: list[Hit], caption: str) -> None:
        """Show these hits."""
        self.rows = rows
        with self.view.hold_sync():
            self.view.rows, self.view.caption = [asdict(row) for row in rows], caption
            self.view.moves = any(row.moved for row in rows)
            self.view.version += 1

    def _message(self, content: Any) -> None:
        """A message of the page: it is checked before it is used."""
        if not isinstance(content, dict):
            return
        place = content.get("place")
        if content.get("kind") == "ask" and type(place) is int and 0 <= place < len(self.rows):
            with hearing:
                self._hear(content.get("fields"))
                self._asked(place)
