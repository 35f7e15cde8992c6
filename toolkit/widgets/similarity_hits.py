"""Hits as a table: rank, id, score as a number and as a length, and what moved."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

import ipywidgets as widgets
import numpy as np
import pandas as pd
import traitlets

from toolkit.analysis.wording import counted, shorten
from toolkit.redaction import Redactor, escape_html, visible
from toolkit.widgets.colouring import masked_text
from toolkit.widgets.controls import TextField
from toolkit.widgets.javascript import javascript_control
from toolkit.widgets.texts import whole_number

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


class HitTable:
    """The table, and a way to query from a hit.

    Parameters
    ----------
    asked : callable
        Called with the place of a hit, from 0.
    javascript : bool
        False makes it plain markup and a line to type a rank into.
    label : str
        Of that line.
    """

    def __init__(self, asked: Callable[[int], None], *, javascript: bool, label: str) -> None:
        self._asked = asked
        self.rows: list[Hit] = []
        self.table: Any = None
        self.field: TextField | None = None
        if javascript:
            self.table = javascript_control(
                "hits",
                rows=traitlets.List(traitlets.Dict()),
                caption=traitlets.Unicode("No hits yet"),
                moves=traitlets.Bool(),
                version=traitlets.Int(),
            )()
            self.table.on_msg(lambda _, content, __: self._message(content))
            self.view = self.table
        else:
            self._markup = widgets.HTML()
            # only Enter asks: leaving the field, which ends an edit as well, does not
            self.field = TextField(
                label, lambda: None, hint="number of its row, from 1; Enter asks", entered=self._entered
            )
            self.view = widgets.VBox([self._markup, self.field.view])

    def show(self, rows: list[Hit], caption: str) -> None:
        """Show these hits."""
        self.rows = rows
        moves = any(row.moved for row in rows)
        if self.table is None:
            self._markup.value = table_markup(rows, caption)
            return
        with self.table.hold_sync():
            self.table.rows, self.table.caption = [asdict(row) for row in rows], caption
            self.table.moves = moves
            self.table.version += 1

    def _message(self, content: Any) -> None:
        """A message of the page: it is checked before it is used."""
        if not isinstance(content, dict):
            return
        place = content.get("place")
        if content.get("kind") == "ask" and type(place) is int and 0 <= place < len(self.rows):
            self._asked(place)

    def _entered(self) -> bool:
        typed = "" if self.field is None else self.field.text.value.strip()
        if self.field is None or not typed:
            return False
        place = (whole_number(typed) or 0) - 1
        if not 0 <= place < len(self.rows):
            self.field.problem = (
                f"Type a number, 1 to {len(self.rows)}." if self.rows else "There are no hits."
            )
            return False
        self.field.value = ""
        self._asked(place)
        return True


def table_markup(rows: list[Hit], caption: str) -> str:
    """The table as plain markup, every text escaped.

    >>> "<td>&lt;b&gt;</td>" in table_markup([Hit("1", "<b>", "0.5", 0.5)], "1 hit")
    True
    """
    moves = any(row.moved for row in rows)
    names = ["Rank", "Id", "Score", *(["Moved"] if moves else [])]
    head = "".join(f'<th scope="col">{name}</th>' for name in names)
    lines = "".join(
        f"<tr><td>{escape_html(row.rank)}</td><td>{escape_html(row.id)}{_more(row.more)}</td>"
        f'<td class="tk-score"><span>{escape_html(row.score)}</span>'
        f'<span class="tk-length" aria-hidden="true"><i style="width:{row.share * 100:.1f}%"></i></span></td>'
        f"{f'<td>{escape_html(row.moved)}</td>' if moves else ''}</tr>"
        for row in rows
    )
    return (
        f'<table class="tk-hits"><caption>{escape_html(caption)}</caption><thead><tr>{head}</tr></thead>'
        f"<tbody>{lines}</tbody></table>"
    )


def _more(text: str) -> str:
    return f'<div class="tk-more">{escape_html(text)}</div>' if text else ""
