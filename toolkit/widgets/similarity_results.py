"""Show the hits of a query as a table and a figure, perhaps next to a pinned result with rank changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from itertools import repeat
from typing import Any, Final

import numpy as np
import pandas as pd

from toolkit.drawing.wording import counted, shorten
from toolkit.secrets.names import is_secret_name
from toolkit.secrets.redaction import Redactor, visible
from toolkit.tables.json_rows import json_value
from toolkit.vectors.scores import score_moves
from toolkit.widgets.page_parts import is_count, note
from toolkit.widgets.panel import masked_text

_SHOWN: Final = 200  # hits of a result that are in the table; the frame has all
_FUSED: Final = 0.1  # scores of fused ranks are lower; on a scale up to 1, their bars would be empty
_LONGEST: Final = 160  # characters of an id, of data or metadata
_LONGEST_OPTION: Final = 60
_NAMES: Final = (
    "title", "name", "text", "content", "summary", "question", "description", "heading", "subject",
)  # fmt: skip


@dataclass(frozen=True)
class HitRow:
    """A masked row of the table. `share` is the length of the bar, and `more` describes the hit."""

    rank: str
    id: str
    score: str
    share: float
    moved: str = ""
    more: str = ""


def hit_rows(
    frame: pd.DataFrame,
    redactor: Redactor,
    moved: Mapping[str, str] | None = None,
    other: pd.DataFrame | None = None,
) -> tuple[list[HitRow], str]:
    """Return the first hits of a result as rows, with the rank changes `moved`, and a caption.

    If an `other` result is shown next to it, both describe the same vector by the same field.
    """
    some = frame.head(_SHOWN)
    scores = some["score"].to_numpy(dtype=np.float64, na_value=np.nan)
    low, high = _ends_of_bars(frame)
    shares = np.nan_to_num((scores - low) / (high - low), posinf=0.0, neginf=0.0)
    others = pd.DataFrame()
    if other is not None:
        others = other.head(_SHOWN)
    texts = _descriptions(some, redactor, others)
    changes = moved or {}
    rows = [
        HitRow(
            rank=f"{rank:,}",
            id=_one_line(identity, redactor),
            score=_score_text(score),
            share=share,
            moved=changes.get(identity, ""),
            more=_one_line(text, redactor),
        )
        for rank, identity, score, share, text in zip(
            some["rank"],
            some["id"].astype(str),
            scores.tolist(),
            shares.clip(0.0, 1.0).tolist(),
            texts,
            strict=True,
        )
    ]
    if not rows:
        return rows, "No hits"

    total = counted(len(frame), "hit")
    if len(frame) > _SHOWN:
        total += f", the first {_SHOWN} shown"
    return rows, f"{total}; bars from {low:.3g} to {high:.3g}"


def _ends_of_bars(frame: pd.DataFrame) -> tuple[float, float]:
    """Return the scores at which the bars of hits begin and end.

    Bars begin at 0, or at the lowest score if scores are negative. They end at 1 for scores of dense vectors,
    which are between 0 and 1, so that bars of two queries can be compared.
    """
    scores = frame["score"].to_numpy(dtype=np.float64, na_value=np.nan)
    usable = scores[np.isfinite(scores)]
    low = float(min(usable.min(initial=0.0), 0.0))
    high = float(usable.max(initial=0.0))
    is_dense = high == 0.0 or _FUSED < high <= 1.0
    if low == 0.0 and is_dense:
        high = 1.0
    return low, high


def _score_text(score: float) -> str:
    if abs(score) < 1_000:  # noqa: PLR2004 - digits
        return f"{score:.4f}"
    return f"{score:.6g}"


def _descriptions(
    hits: pd.DataFrame, redactor: Redactor, others: pd.DataFrame
) -> list[str]:
    """Return a description of each hit: the data, or else the most descriptive metadata field."""
    metadata = _values_of(hits, "metadata")
    fields = [_texts(value) for value in metadata]
    other_fields = [_texts(value) for value in _values_of(others, "metadata")]
    order = _descriptive_first([*fields, *other_fields])

    return [
        _description(redactor, order, *hit)
        for hit in zip(_values_of(hits, "data"), fields, metadata, strict=True)
    ]


def _descriptive_first(fields: list[dict[str, str]]) -> list[str]:
    """Return the names of fields: telling names first, then fields with many and long values."""
    values: dict[str, list[str]] = {}
    for texts in fields:
        for name, text in texts.items():
            values.setdefault(name, []).append(text)

    telling = {name: place for place, name in enumerate(_NAMES)}

    def rank(name: str) -> tuple[int, int, int, str]:
        texts = values[name]
        place = telling.get(name.lower(), len(_NAMES))
        return place, -len(set(texts)), -sum(map(len, texts)), name

    return sorted(values, key=rank)


def _description(
    redactor: Redactor,
    order: list[str],
    data: Any,
    texts: dict[str, str],
    metadata: Any,
) -> str:
    """Return the data of a hit, the most descriptive field, or the metadata as they are."""
    if isinstance(data, str) and data:
        return data

    for name in order:
        if name in texts:
            shown = redactor.value(texts[name], secret=is_secret_name(name))
            return f"{name}: {shown}"

    if isinstance(metadata, str):
        return metadata

    return ""


def _values_of(hits: pd.DataFrame, name: str) -> list[Any]:
    """Return the values of a column, or one None per hit if the column is missing."""
    if name in hits:
        values: list[Any] = hits[name].tolist()
        return values
    return list(repeat(None, len(hits)))


def _texts(metadata: Any) -> dict[str, str]:
    """Return the fields of a metadata object that are text."""
    try:
        value = json_value(metadata) if isinstance(metadata, str) else None
    except ValueError:  # shown unchanged
        return {}

    members = value.items() if isinstance(value, dict) else ()
    return {
        name: text for name, text in members if isinstance(text, str) and text.strip()
    }


def _one_line(text: str, redactor: Redactor) -> str:
    # masked before it is truncated: part of a secret would not be recognised
    return visible(shorten(masked_text(text, redactor), _LONGEST)).replace("\n", " ")


def rank_changes(moves: pd.DataFrame) -> tuple[dict[str, str], str]:
    """Return the rank change of each hit of `score_moves` in signs and words, and a summary of one query.

    >>> frame = pd.DataFrame({"query": 0, "rank": [1, 2], "id": ["a", "b"], "score": [0.9, 0.8]})
    >>> rank_changes(score_moves(frame, frame.assign(id=["b", "c"])))
    ({'a': '✗ gone', 'b': '▲ 1 up', 'c': '+ new'}, '1 hit in both (1 up, 0 down, 0 the same), 1 new, 1 gone')
    """
    ranks = [*zip(moves["id"], moves["rank_before"], moves["rank_after"], strict=True)]
    # Sort hits of the new result last, so that they win in the dict: a hit that is gone can have the same id
    # in another namespace.
    ranks.sort(key=lambda row: bool(pd.notna(row[2])))
    words = [
        (str(identity), _moved(before, after)) for identity, before, after in ranks
    ]
    counts = Counter(word.rpartition(" ")[2] for _, word in words)
    up, down, same, new, gone = (
        counts[word] for word in ("up", "down", "same", "new", "gone")
    )
    both = counted(up + down + same, "hit")
    inside = f"{up:,} up, {down:,} down, {same:,} the same"

    return dict(words), f"{both} in both ({inside}), {new:,} new, {gone:,} gone"


def _moved(before: Any, after: Any) -> str:
    if pd.isna(before):
        return "+ new"
    if pd.isna(after):
        return "✗ gone"

    up = int(before) - int(after)
    if up > 0:
        return f"▲ {up:,} up"
    if up < 0:
        return f"▼ {-up:,} down"

    return "= same"


def difference(
    before: dict[str, Any], after: dict[str, Any], masked: Callable[[str], str] = str
) -> str:
    """Return the differences between the scopes of two queries. Text is masked before it is truncated.

    >>> difference({"data": "a", "top_k": 5}, {"data": "a"})
    'top_k: 5 → 10'
    """
    names = [
        name for name in {**before, **after} if before.get(name) != after.get(name)
    ]
    pairs = [
        (name, *(_option(scope, name, masked) for scope in (before, after)))
        for name in names
    ]
    return "; ".join(f"{name}: {old} → {new}" for name, old, new in pairs) or "nothing"


def _option(scope: dict[str, Any], name: str, masked: Callable[[str], str]) -> str:
    default = {"top_k": 10}.get(name)
    value = scope.get(name, default)
    if value is None:
        return "none"
    if isinstance(value, dict):
        numbers = value.get("dimension", value.get("terms"))
        return f"{numbers} numbers ({str(value.get('sha256', ''))[:8]})"

    return shorten(masked(str(value)), _LONGEST_OPTION)


def scope(frame: pd.DataFrame) -> dict[str, Any]:
    """Return the scope of the query of a result (`VectorQuery.scope`), or an empty dict without a query."""
    queries: list[dict[str, Any]] = frame.attrs.get("queries") or [{}]
    return queries[0]


class HitTable:
    """The hits of a result, as the page draws them."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self.frame = pd.DataFrame()
        self.hits: list[HitRow] = []
        self.caption = ""

    def show(
        self,
        frame: pd.DataFrame,
        title: str = "",
        moved: Mapping[str, str] | None = None,
        other: pd.DataFrame | None = None,
    ) -> None:
        """Show the hits of a result, with rank changes if an `other` result is shown next to it."""
        self.frame = frame
        self.hits, caption = hit_rows(frame, self._redactor, moved, other)
        self.caption = f"{title}{caption}"

    def state(self) -> dict[str, Any]:
        """Return the state that the page draws."""
        return {
            "rows": [asdict(hit) for hit in self.hits],
            "caption": self.caption,
            "moves": any(hit.moved for hit in self.hits),
        }


class HitResults:
    """One result, or two side by side. `send` gets the state that the page draws."""

    def __init__(
        self,
        *,
        redactor: Redactor,
        prefix: str,
        send: Callable[[dict[str, Any]], object] = lambda _: None,
    ) -> None:
        self._redactor, self._prefix, self._send = redactor, prefix, send
        self.frame: pd.DataFrame | None = None
        self.pinned: pd.DataFrame | None = None
        self.table, self.pinned_table = HitTable(redactor), HitTable(redactor)
        self.summary = self.chart = self.comparison = ""

    def show(self, frame: pd.DataFrame) -> None:
        """Show a result, next to the pinned one if a result is pinned."""
        self.frame = frame
        pinned = self.pinned
        if pinned is None or pinned is frame:
            self._show_one(frame)
            tables = {"now": self.table.state()}
        else:
            self._show_both(pinned, frame)
            tables = {
                "pinned": self.pinned_table.state(),
                "now": self.table.state(),
            }

        self._send(
            {
                "tables": tables,
                "summary": self.summary,
                "charts": [chart for chart in (self.comparison, self.chart) if chart],
            }
        )

    def pin(self, frame: pd.DataFrame | None) -> None:
        """Keep a result to compare the next results with. None clears it."""
        self.pinned = frame
        if self.frame is not None:
            self.show(self.frame)

    def hit(self, table: object, position: object) -> tuple[pd.DataFrame, int] | None:
        """Return the result and the index of a hit in the page, or None if the page does not show it."""
        shown = {"now": self.table, "pinned": self.pinned_table}.get(str(table))
        if shown is None or not is_count(position):
            return None

        index = int(str(position))
        if index >= len(shown.hits):
            return None

        return shown.frame, index

    def _show_one(self, frame: pd.DataFrame) -> None:
        from toolkit.widgets.hit_charts import score_chart  # noqa: PLC0415 - matplotlib is slow to import

        self.table.show(frame, "" if self.pinned is None else "Pinned: ")
        self.summary = self.comparison = ""
        self.chart = score_chart(frame, self._prefix)

    def _show_both(self, pinned: pd.DataFrame, frame: pd.DataFrame) -> None:
        from toolkit.widgets.hit_charts import (  # noqa: PLC0415 - matplotlib is slow to import
            comparison_chart,
            score_charts,
        )

        words, summary = rank_changes(score_moves(pinned, frame))
        gone = {name: word for name, word in words.items() if "gone" in word}
        self.pinned_table.show(pinned, "Pinned: ", gone, frame)
        self.table.show(frame, "Now: ", words, pinned)
        changed = difference(scope(pinned), scope(frame), self._redactor.text)
        self.summary = note(summary, "count") + note(f"Changed: {changed}")
        self.chart = score_charts(pinned, frame, self._prefix)
        self.comparison = comparison_chart(pinned, frame, self._prefix, summary)
