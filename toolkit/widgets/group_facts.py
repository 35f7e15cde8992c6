"""Describe groups of failures for a board: state, place and times of each, and what all failures share."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Final
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from toolkit.base.missing_values import is_missing
from toolkit.drawing.wording import shorten
from toolkit.failures.group_states import GroupState, group_states, in_order
from toolkit.reports.spoken_times import day_and_time
from toolkit.secrets.redaction import Redactor, visible
from toolkit.signatures.placeholders import PLACEHOLDER
from toolkit.tables.header_maps import header_map
from toolkit.widgets.failure_rows import FailureRows, labels_of_rows

_SHARED: Final = {
    "response_status": "status {}",
    "workflow_url": "{}",
    "flow_control_key": "key {}",
    "caller_ip": "from {}",
    "failure_function_state": "failure function {}",
}
_HEADERS: Final = {"headers": "header", "response_headers": "response header"}
_COMMON: Final = frozenset({"date", "content-length"})  # headers that tell nothing
_SAMPLE: Final = 200  # rows whose headers are compared
_MOST: Final = 8  # shared values that are shown
_LONGEST: Final = 80
# "timeout at reports.PageBuffer.grow": the last words name a place in the code
_AT: Final = re.compile(r"(.+) at ([\w.$/<>:#-]+[.:/]\S+)")
# packages before the name of an exception
_PACKAGES: Final = re.compile(r"^(?:[a-z_]\w*\.)+(?=[A-Z])")


class GroupFacts:
    """The facts of all groups of a frame. They are computed once per grouping, which rules can change."""

    def __init__(
        self,
        rows: FailureRows,
        redactor: Redactor,
        end: datetime,
        zone: ZoneInfo,
    ) -> None:
        self._rows, self._redactor, self._end, self._zone = rows, redactor, end, zone
        grouping = rows.grouping
        self._codes: NDArray[np.int64] = np.asarray(grouping.codes, dtype=np.int64)
        self._frame = grouping.groups.frame
        self._titles = self._frame["title"].tolist()
        self._numbers = {
            group: number for number, group in enumerate(self._frame["group"])
        }
        self._states = group_states(rows.times(), self._codes, len(self._frame), end)
        self._places = self._workflows()
        trend = grouping.trend
        # groups without any time are not in the trend
        none = np.zeros(len(trend.starts), dtype=np.int64)
        self._counts = dict.fromkeys(self._numbers, none)
        self._counts |= dict(zip(trend.groups, trend.counts, strict=True))
        self._trends = {
            group: _bars(counts, trend.in_gap) for group, counts in self._counts.items()
        }

    def board(self) -> list[dict[str, Any]]:
        """Return the rows of the board: new groups first, then by state and size."""
        counts = self._frame["count"].tolist()
        return [self._row(number) for number in in_order(self._states, counts)]

    def series(self, chosen: Sequence[str]) -> list[dict[str, Any]]:
        """Return the trend by state, of these groups or else of all. Quiet states share a part."""
        sums: dict[str, NDArray[np.int64]] = {}
        for group, number in self._numbers.items():
            if chosen and group not in chosen:
                continue
            state = self._states[number].state
            kind = state if state in ("new", "growing") else "other"
            sums[kind] = sums.get(kind, 0) + self._counts[group]

        order = ("other", "growing", "new")
        return [
            {"kind": kind, "counts": sums[kind].tolist()}
            for kind in order
            if kind in sums
        ]

    def hits(self, rows: NDArray[np.int64]) -> dict[str, int]:
        """Return the number of these rows in each group that has one."""
        counts = np.bincount(self._codes[rows], minlength=len(self._frame)).tolist()
        return {group: counts[n] for group, n in self._numbers.items() if counts[n]}

    def group_of(self, row: int) -> str:
        """Return the group of a row."""
        return str(self._frame["group"].iloc[int(self._codes[row])])

    def about(self, group: str) -> dict[str, Any]:
        """Return the facts of a group, with the values that all failures share."""
        number = self._numbers[group]
        row = self._row(number)
        found = self._states[number]
        own = np.flatnonzero(self._codes == number)
        _, place = title_and_place(self._redactor.text(self._titles[number]))
        shares = [*filter(None, [visible(place)]), *self._shared(own)]

        has_earlier = not self._rows.begin_within_a_day(self._end)

        return {**row, "rate": _rate(found, has_earlier=has_earlier), "shares": shares}

    def _row(self, number: int) -> dict[str, Any]:
        facts = self._frame.iloc[number]
        group = str(facts["group"])
        title, _ = title_and_place(self._redactor.text(str(facts["title"])))

        return {
            "id": group,
            "state": self._states[number].state,
            "title": visible(title),
            "hint": visible(f"{facts['template']}\n{facts['rule']}"),
            "where": self._places[number],
            "count": int(facts["count"]),
            "first": self._time(facts["first_at"]),
            "last": self._time(facts["last_at"]),
            "bars": self._trends[group],
        }

    def _time(self, when: Any) -> str:
        if pd.isna(when):
            return "no time"

        zoned = when.to_pydatetime(warn=False).astimezone(self._zone)
        return day_and_time(zoned, self._end.astimezone(self._zone))

    def _workflows(self) -> list[str]:
        """Return the workflows of each group in words: one or two names, or the number."""
        names = [""]
        codes = np.zeros(len(self._codes), dtype=np.int64)
        column = self._rows.frame.get(self._rows.address)
        if column is not None:
            found, values = pd.factorize(column.astype("str"), use_na_sentinel=False)
            codes, names = found.astype(np.int64), [str(value) for value in values]

        pairs = np.unique(self._codes * len(names) + codes)
        of_group: list[list[str]] = [[] for _ in range(len(self._frame))]
        for pair in pairs.tolist():
            group, name = divmod(pair, len(names))
            of_group[group].append(names[name])

        return [self._place(several) for several in of_group]

    def _place(self, names: Sequence[str]) -> str:
        if len(names) > 2:  # noqa: PLR2004 - two names fit into a line
            return f"{len(names):,} workflows"

        shown = (self._rows.short_address(name) for name in names)
        return ", ".join(name for name in shown if name not in ("", "nan", "None"))

    def _shared(self, own: NDArray[np.int64]) -> Iterator[str]:
        """Yield the values that all these rows share, masked; headers only if other rows differ."""
        frame, shown = self._rows.frame, 0
        for text in (
            *self._shared_columns(own),
            *self._shared_labels(own),
            *self._shared_headers(own),
        ):
            if shown == _MOST:
                return
            shown += 1
            yield visible(shorten(text, _LONGEST))

        if not shown and len(frame):
            yield "no value that the toolkit compares"

    def _shared_columns(self, own: NDArray[np.int64]) -> Iterator[str]:
        for name, words in _SHARED.items():
            if name not in self._rows.frame.columns:
                continue
            values = self._rows.frame[name].iloc[own]
            first = values.iloc[0]
            if is_missing(first) or not values.map(first.__eq__).eq(other=True).all():
                continue
            text = self._redactor.text(str(first))
            if name == "workflow_url":
                text = self._rows.short_address(text)
            yield words.format(text)

    def _shared_labels(self, own: NDArray[np.int64]) -> Iterator[str]:
        """Yield the labels that all these rows have, for example of a release."""
        frame = self._rows.frame
        columns = [name for name in ("labels", "label") if name in frame.columns]
        # few combinations of labels are distinct
        distinct = frame[columns].iloc[own].astype("str").drop_duplicates()
        common: list[str] | None = None
        for labels in labels_of_rows(distinct):
            if common is None:
                common = labels
            common = [label for label in common if label in labels]
            if not common:
                return

        for label in common or ():
            yield f"label {self._redactor.text(label)}"

    def _shared_headers(self, own: NDArray[np.int64]) -> Iterator[str]:
        """Yield headers that these rows share and that other rows do not all have, without masked ones."""
        frame = self._rows.frame
        others = np.setdiff1d(np.arange(len(frame)), own)
        for column, word in _HEADERS.items():
            if column not in frame.columns:
                continue
            texts = frame[column].iloc[own]
            shared = _common_headers(frame[column].iloc[_some(own)])

            usual = _common_headers(frame[column].iloc[_some(others)])
            for name, value in sorted(shared - usual):
                shown = self._redactor.displayed_header(name, value)
                if shown != value or name.lower() in _COMMON:
                    continue
                if _all_have(texts, name, value):
                    yield f"{word} {name} = {value}"


def title_and_place(title: str) -> tuple[str, str]:
    """Split the title of a group from the place in the code that it names, and leave out packages.

    >>> title_and_place("java.lang.OutOfMemoryError: Java heap space at reports.PageBuffer.grow")
    ('OutOfMemoryError: Java heap space', 'reports.PageBuffer.grow')
    >>> title_and_place("order <num> is late")
    ('order … is late', '')
    >>> title_and_place("unexpected <div> in line <num>")  # a tag is no value
    ('unexpected <div> in line …', '')
    """
    shown = PLACEHOLDER.sub("…", _PACKAGES.sub("", title))
    split = _AT.fullmatch(shown)
    if split is None:
        return shown, ""

    return split[1], split[2]


def _bars(counts: NDArray[np.int64], in_gap: NDArray[np.bool_]) -> list[int | None]:
    """Return the bars of a group; None if failures may be missing there.

    >>> _bars(np.array([3, 0, 0]), np.array([True, True, False]))
    [3, None, 0]
    """
    bars = counts.astype(object)
    bars[in_gap & (counts == 0)] = None
    found: list[int | None] = bars.tolist()

    return found


def _rate(found: GroupState, *, has_earlier: bool) -> str:
    """Return the failures of the last 24 hours, and the usual number if the frame has earlier failures."""
    if found.state == "ended":
        return "none in the last 24 hours"
    if not has_earlier:
        return f"{found.recent:,} in 24 hours, nothing earlier is loaded"

    usual = f"{found.usual:,.0f}"
    if 0 < found.usual < 10:  # noqa: PLR2004 - one decimal is enough below
        usual = f"{found.usual:.1f}"
    return f"{found.recent:,} in 24 hours, usually {usual}"


def _some(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return at most 200 rows, evenly spread."""
    if len(rows) <= _SAMPLE:
        return rows
    return rows[np.linspace(0, len(rows) - 1, _SAMPLE).astype(np.int64)]


def _common_headers(texts: pd.Series) -> set[tuple[str, str]]:
    """Return the names and values of headers that all rows have."""
    common: set[tuple[str, str]] | None = None
    for text in texts:
        found = _headers(text)
        common = found if common is None else common & found
        if not common:
            return set()

    return common or set()


def _all_have(texts: pd.Series, name: str, value: str) -> bool:
    """Return whether all rows have a header with this value.

    Most rows contain the text of the header as loaders write it. Only the others are parsed.

    >>> _all_have(pd.Series(['{"Age":["1"]}', '{"Age": ["1"]}']), "Age", "1")
    True
    >>> _all_have(pd.Series(['{"Age":["1"]}', None]), "Age", "1")
    False
    """
    as_written = f"{json.dumps(name, ensure_ascii=False)}:[{json.dumps(value, ensure_ascii=False)}"
    contain = texts.astype("str").str.contains(as_written, regex=False, na=False)
    others = texts[~contain.to_numpy(bool)]

    return all((name, value) in _headers(text) for text in others)


def _headers(text: object) -> set[tuple[str, str]]:
    try:
        headers = header_map(json.loads(text)) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return set()

    return {(name, values[0]) for name, values in (headers or {}).items() if values}
