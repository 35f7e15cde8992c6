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
from toolkit.widgets.colouring import masked_text
from toolkit.widgets.controls import Hear
from toolkit.widgets.javascript import module, synced

SHOWN: Final = 200
"""Hits of a result that are in the table; the frame has all."""

_LONGEST: Final = 160  # characters of an id, of data or metadata


@dataclass(frozen=True)
class Hit:
    """A row of the table, masked, nothing invisible in it.

    Attributes
    ----------
    rank, id, score, moved, more : str
        What is read; `more` is the beginning of its data, or of its metadata.
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
    rows = []
    for place, identity in enumerate(some["id"].astype(str)):
        score = float(scores[place])
        share = (score - low) / (high - low) if np.isfinite(score) else 0.0
        texts = (_text(some[name].iloc[place]) for name in ("data", "metadata") if name in some)
        rows.append(
            Hit(
                rank=f"{some['rank'].iloc[place]:,}", id=_shown(identity, redactor),
                score=f"{score:.4f}" if abs(score) < 1_000 else f"{score:.6g}",  # noqa: PLR2004 - digits
                share=min(max(share, 0.0), 1.0), moved=(moved or {}).get(identity, ""),
                more=_shown(next(filter(None, texts), ""), redactor),
            )
        )  # fmt: skip
    total = counted(len(frame), "hit") + (f", the first {SHOWN} shown" if len(frame) > SHOWN else "")
    return rows, f"{total}; bars from {low:.3g} to {high:.3g}" if rows else "No hits"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _shown(text: str, redactor: Redactor) -> str:
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
            self._hear(content.get("fields"))
            self._asked(place)
