"""Search, sort and show the rows of a frame of failures, as a `FailureView` describes it."""

from __future__ import annotations

import re
import threading
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from functools import cached_property
from itertools import repeat
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from toolkit.base.arguments import choice, flag, nearest, text, texts, wrong
from toolkit.base.errors import InputError
from toolkit.base.missing_values import is_missing
from toolkit.base.python_code import PublicCall
from toolkit.base.time_zones import time_zone
from toolkit.base.times import parse_time
from toolkit.drawing.shared_prefix import without_prefix
from toolkit.drawing.wording import shorten
from toolkit.failures.counts import SHORT_STATES
from toolkit.failures.group_rules import GroupRules
from toolkit.secrets.redaction import Redactor, visible
from toolkit.tables.frame_filters import count_values, error_lines
from toolkit.tables.frames import label_lists
from toolkit.tables.schemas import FAILURE_COLUMNS, STATED_FAILED_AT, UNFIT, Kind
from toolkit.widgets.failure_grouping import FailureGrouping

COLUMNS: Final = {
    "failed_at": "Failed at",
    "workflow_url": "Workflow",
    "response_status": "Status",
    "error": "Error",
    "failure_function_state": "Function",
    "label": "Labels",
    "max_retries": "Retries",
}
"""Columns of the table, and their headings. Plain messages have `url` instead of `workflow_url`."""

SORTABLE: Final = (*(name for name in COLUMNS if name != "error"), "url", "created_at")
"""Columns that failures can be sorted by."""

_DAY: Final = timedelta(days=1)
_TEXTS: Final = (
    Kind.ID,
    Kind.REFERENCE,
    Kind.TEXT,
    Kind.URL,
    Kind.BODY,
    Kind.JSON,
    Kind.NUMBER,
)
_SEARCHED: Final = tuple(
    column.name for column in FAILURE_COLUMNS if column.kind in _TEXTS
)
_WORDS: Final = re.compile(r'"([^"]*)"|(\S+)')
# before the name of an exception
_MODULES: Final = re.compile(r"^(?:[a-z_]\w*\.)+(?=[A-Z])")
_CREATED: Final = "≥ "  # before a creation time, if the time of failure is not known
# before an estimated time, if the clock of the destination is wrong
_ESTIMATED: Final = "≈ "
_LONGEST: Final = 160
_DELAY: Final = 1.0  # seconds until the text for searching is put together

Indices = NDArray[np.int64]


@dataclass(frozen=True, init=False)
class FailureView:
    """The search, order and selection of a `FailurePanel`.

    Parameters
    ----------
    search : str
        Words to find in ids, addresses, labels and bodies, ignoring case. If empty, all failures are shown.
    sort_by : str
        Column to sort by: ``"failed_at"``, ``"created_at"``, ``"workflow_url"``, ``"url"``,
        ``"response_status"``, ``"failure_function_state"``, ``"label"`` or ``"max_retries"``.
    ascending : bool
        Missing values come last in both directions.
    selected : iterable of str
        `dlq_id` of the selected failures, in the order of selection.
    groups : iterable of str
        Ids of the groups to show. If empty, all groups are shown.
    since, until : datetime or str, optional
        Show failures at or after `since` and before `until`, by the time of failure. If it is missing, the
        creation time counts.

    Raises
    ------
    InputError
        If you cannot sort by the column, or if a value has another type.

    Examples
    --------
    >>> view = FailureView(search="timeout", selected=["dlq_1"])
    >>> print(view.to_code())
    tk.FailureView(search='timeout', selected=('dlq_1',))
    """

    search: str
    sort_by: str
    ascending: bool
    selected: tuple[str, ...]
    groups: tuple[str, ...]
    since: datetime | None
    until: datetime | None

    def __init__(
        self,
        *,
        search: str = "",
        sort_by: str = "failed_at",
        ascending: bool = False,
        selected: Iterable[str] = (),
        groups: Iterable[str] = (),
        since: datetime | str | None = None,
        until: datetime | str | None = None,
    ) -> None:
        for name, several in (("selected", selected), ("groups", groups)):
            if isinstance(several, str):
                raise wrong(name, several, "several ids")

        parts = {
            "search": text("search", search),
            "sort_by": choice("sort_by", sort_by, SORTABLE),
            "ascending": flag("ascending", ascending),
            "selected": tuple(
                dict.fromkeys(texts("selected", selected, column="dlq_id", empty=True))
            ),
            "groups": tuple(
                dict.fromkeys(texts("groups", groups, column="group", empty=True))
            ),
            "since": None
            if since is None
            else parse_time(since, exact=True, name="since"),
            "until": None
            if until is None
            else parse_time(until, exact=True, name="until"),
        }
        for name, value in parts.items():
            object.__setattr__(self, name, value)

    def replace(self, **parts: Any) -> FailureView:
        """Return the same view with some parts changed.

        >>> FailureView(search="a").replace(ascending=True).search
        'a'
        """
        return FailureView(**{**vars(self), **parts})

    def to_code(self) -> str:
        """Return Python that makes the same view again, with the toolkit imported as ``tk``."""
        default = FailureView()
        plain = {
            name: value.isoformat() if isinstance(value, datetime) else value
            for name, value in vars(self).items()
        }
        chosen = {
            name: value
            for name, value in plain.items()
            if value != getattr(default, name)
        }

        return _CALL.write(**chosen)


_CALL: Final = PublicCall(
    "FailureView", tuple(item.name for item in fields(FailureView))
)


class FailureRows:
    """A frame of failures, searched and sorted; columns other than ``dlq_id`` may be missing.

    The searched text is built a second later on a separate thread, or by the first search.
    """

    def __init__(
        self,
        frame: pd.DataFrame,
        redactor: Redactor,
        rules: str | Path | GroupRules | None = None,
        zone: ZoneInfo | None = None,
    ) -> None:
        if "dlq_id" not in frame.columns:
            raise InputError(
                "browsing failures",
                got="a frame without dlq_id",
                expected="a frame of failures",
                next_step="Use a frame made by load_failures.",
            )

        self.frame = frame
        self.zone = time_zone() if zone is None else zone
        self.grouping = FailureGrouping(frame, rules, self.zone)
        self._redactor = redactor
        self._ranks: dict[str, Indices] = {}
        self._searched: tuple[bytes, list[int]] | None = None
        self._lock = threading.Lock()

        self._indices: dict[str, int] | None = None
        self._address = "workflow_url"
        if not (addresses := _addresses(frame, "workflow_url")) and (
            urls := _addresses(frame, "url")
        ):
            # plain messages belong to no workflow
            self._address, addresses = (
                "url",
                urls,
            )

        self.columns = {
            self._address if name == "workflow_url" else name: label
            for name, label in COLUMNS.items()
        }
        self.columns["failed_at"] += f" ({self.zone.key})"
        if self._address == "url":
            self.columns["url"] = "Address"
        _, self._shared = without_prefix(addresses)
        if len(addresses) == 1 and "://" in addresses[0]:
            # a person knows an address by the end
            self._shared = addresses[0].rsplit("/", 2)[0] + "/"

        self.without_time = "failed_at" in frame.columns and bool(
            frame["failed_at"].isna().any()
        )
        preparing = threading.Timer(_DELAY, self._prepare_early)
        preparing.daemon = True
        preparing.start()

    def __len__(self) -> int:
        return len(self.frame)

    def arranged(self, view: FailureView) -> Indices:
        """Return the indices of the rows that match, in order. Equal rows keep the order of the frame."""
        ranks = self._ranked(view.sort_by)
        rows = self._found(view.search)
        if view.groups:
            rows = rows[self.grouping.of_rows(view.groups)[rows]]
        if view.since is not None or view.until is not None:
            when = _times(self.frame)
            late = when.notna() if view.until is None else when < view.until
            early = when.notna() if view.since is None else when >= view.since
            rows = rows[(early & late).to_numpy(dtype=bool)[rows]]

        kept = ranks[rows]
        # Ranks are negated rather than the order reversed: that would also reverse rows with
        # equal values, and put missing values first.
        keys = np.where(kept < 0, len(ranks), kept if view.ascending else -kept)
        return rows[np.argsort(keys, kind="stable")]

    def cells(self, indices: Sequence[int]) -> list[list[str]]:
        """Return the cells of these rows, masked."""
        needed = {*self.columns, "created_at", "labels", "response_body"}
        rows = self.frame[[name for name in self.frame.columns if name in needed]].iloc[
            list(indices)
        ]
        shown = [self._column(rows, name) for name in self.columns]

        return [list(row) for row in zip(*shown, strict=True)]

    @property
    def address(self) -> str:
        """Return the column of addresses: workflows, or destinations of plain messages."""
        return self._address

    def short_address(self, text: str) -> str:
        """Return an address without the beginning that all addresses of the frame share, masked."""
        short = self._redactor.text(text).removeprefix(self._shared)
        return visible(shorten(short, _LONGEST))

    def times(self) -> pd.Series:
        """Return the time of each failure, or the creation time of the message if it is not known."""
        return _times(self.frame)

    @cached_property
    def _oldest(self) -> pd.Timestamp:
        oldest: pd.Timestamp = self.times().min()
        return oldest

    def begin_within_a_day(self, end: datetime) -> bool:
        """Return whether no failure is older than 24 hours at the end of the data, so each group is new."""
        return bool(self._oldest >= end - _DAY)  # False if no time is known

    def ids(self, indices: Sequence[int]) -> list[str]:
        """Return the ids of these rows."""
        return [str(dlq_id) for dlq_id in self.frame["dlq_id"].iloc[list(indices)]]

    def indices_of(self, ids: Sequence[str]) -> list[int]:
        """Return the rows of these ids, in the order of the ids. Unknown ids are left out."""
        if self._indices is None:
            self._indices = {
                str(dlq_id): index
                for index, dlq_id in enumerate(self.frame["dlq_id"].tolist())
            }

        known = self._indices
        return [known[dlq_id] for dlq_id in ids if dlq_id in known]

    def _column(self, rows: pd.DataFrame, name: str) -> list[str]:
        values = _values_of(rows, name)
        if name == "error" and {"error", "response_body"} & set(rows.columns):
            values = error_lines(rows).tolist()
        elif name == "label":
            values = [", ".join(labels) for labels in labels_of_rows(rows)]
        elif name == "failed_at":
            # a stated time that cannot be is kept in a separate column, and the time of failure is estimated
            missing = [is_missing(value) for value in values]
            estimated = [
                not is_missing(stated) for stated in _values_of(rows, STATED_FAILED_AT)
            ]
            times = (self._shown(name, time) for time in _times(rows).tolist())
            return [
                _marked(*row) for row in zip(times, missing, estimated, strict=True)
            ]

        return [self._shown(name, value) for value in values]

    def _shown(self, name: str, value: Any) -> str:
        if is_missing(value):
            return ""
        if isinstance(value, pd.Timestamp):
            return f"{value.tz_convert(self.zone):%Y-%m-%d %H:%M:%S}"

        text = self._redactor.text(str(value))
        if name == "failure_function_state":
            text = SHORT_STATES.get(text, text)
        if name == self._address:
            text = text.removeprefix(self._shared)
        if name == "error":
            # without the package, so that the name of the exception is not truncated
            text = _MODULES.sub("", text)

        return visible(shorten(text, _LONGEST))

    def _ranked(self, name: str) -> Indices:
        """Return the rank of the value of each row in a column, or -1 if the value is missing."""
        if name not in self._ranks:
            column = self.frame.get(
                name, pd.Series(None, index=self.frame.index, dtype=object)
            )
            if name == "failed_at":
                column = _times(self.frame)
            if name == "label":
                column = pd.Series(
                    [
                        labels[0] if labels else None
                        for labels in labels_of_rows(self.frame)
                    ]
                )

            try:
                codes, _ = pd.factorize(column, sort=True)
            except TypeError:  # values of several types can only be sorted as strings
                codes, _ = pd.factorize(_texts(column).to_pandas(), sort=True)

            self._ranks[name] = codes.astype(np.int64)

        return self._ranks[name]

    def _found(self, search: str) -> Indices:
        """Return the rows that contain every word of the search."""
        matched = np.ones(len(self.frame), dtype=bool)
        for quoted, bare in _WORDS.findall(search):
            if self.is_status(bare):
                matched &= self._with_status(bare)
            elif quoted or bare:
                matched &= self._with_text(quoted or bare)

        return np.flatnonzero(matched)

    def unknown_words(self, search: str) -> list[str]:
        """Return the words of a search that no failure has, each with the nearest known word."""
        unknown = []
        for quoted, bare in _WORDS.findall(search):
            word = quoted or bare
            if not word or self._with_text(word).any():
                continue
            # The nearest word of these columns alone is offered: ids and bodies
            # have too many words to be a useful guess.
            names = ("response_status",) if word.isdigit() else (self._address, "label")
            values: list[str] = []
            for name in names:
                values += (value for value, _ in count_values(self.frame, name))
            known = [
                self._redactor.url(value).removeprefix(self._shared) for value in values
            ]
            shown = self._redactor.text(word)[:80]
            unknown.append(f"No failure has {shown!r}. {nearest(word.lower(), known)}")

        return unknown

    def is_status(self, word: str) -> bool:
        """Return whether a word of a search is a status of a failure, and is only compared with statuses."""
        return word.isascii() and word.isdigit() and bool(self._with_status(word).any())

    def _with_status(self, word: str) -> NDArray[np.bool_]:
        if "response_status" not in self.frame.columns or len(word) != 3:  # noqa: PLR2004 - digits of a status
            return np.zeros(len(self.frame), dtype=bool)

        equal = self.frame["response_status"].eq(int(word))
        matched: NDArray[np.bool_] = equal.fillna(value=False).to_numpy(bool)
        return matched

    def _with_text(self, word: str) -> NDArray[np.bool_]:
        # One search through all bytes is three times as fast as a search in each row. `ends` tells the row of
        # a match: for example, with the rows "ab\n" and "cd\n", ends are 3 and 6, and a match at 4 is in the
        # second row. A match that crosses the end of a row does not count.
        (text, ends), sought = (
            self._prepared(),
            word.lower().encode("utf-8", "surrogatepass"),
        )
        matched = np.zeros(len(self.frame), dtype=bool)

        start = text.find(sought)
        while start >= 0:
            row = bisect_right(ends, start)
            inside = start + len(sought) <= ends[row]
            matched[row] |= inside
            start = text.find(sought, ends[row] if inside else start + 1)

        return matched

    def _prepare_early(self) -> None:
        with suppress(InputError):  # a search raises it again
            self._prepared()

    def _prepared(self) -> tuple[bytes, list[int]]:
        """Return the searched bytes of all rows, joined, and the end of each row in them."""
        with self._lock:
            if self._searched is None:
                self._searched = _joined(self.frame, self.zone)
            return self._searched


def _addresses(frame: pd.DataFrame, name: str) -> list[str]:
    addresses: list[str] = (
        _texts(frame.get(name, pd.Series(dtype="str"))).drop_null().unique().to_pylist()
    )
    return addresses


def _joined(frame: pd.DataFrame, zone: ZoneInfo) -> tuple[bytes, list[int]]:
    parts = [_lower(frame[name]) for name in _SEARCHED if name in frame.columns]
    if {"error", "response_body"} & set(frame.columns):
        parts.append(_lower(error_lines(frame)))
    if "failure_function_state" in frame.columns:
        parts.append(
            _lower(
                _texts(frame["failure_function_state"]).to_pandas().map(SHORT_STATES)
            )
        )

    if {"failed_at", "created_at"} & set(frame.columns):
        # as they are shown, in the zone and without it
        shown = _times(frame).dt.tz_convert(zone).dt.tz_localize(None)
        times = pa.array(shown, pa.timestamp("s"), safe=False)
        parts.append(times.cast(pa.large_string()))

    if "labels" in frame.columns:
        lists = label_lists(frame["labels"])
        parts.append(pc.utf8_lower(pc.binary_join(lists, "\n")).cast(pa.large_string()))

    # with a line end between the parts, no match can cross from one part to the next
    joined = pc.binary_join_element_wise(
        *parts, pa.scalar("\n", pa.large_string()), null_handling="replace"
    )
    lengths = pc.binary_length(joined).to_numpy(zero_copy_only=False)
    ends: list[int] = np.cumsum(lengths, dtype=np.int64).tolist()
    # An Arrow string array has three buffers: validity, offsets and the
    # bytes of all strings one after another.
    data = joined.buffers()[2]

    return (b"" if data is None else data.to_pybytes()[: sum(ends[-1:])]), ends


def _marked(time: str, is_missing_time: bool, is_estimated: bool) -> str:  # noqa: FBT001 - two columns
    """Return a time of failure with the mark of a bound or an estimate."""
    if not time:
        return time
    if is_missing_time:
        return f"{_CREATED}{time}"

    return f"{_ESTIMATED}{time}" if is_estimated else time


def _times(frame: pd.DataFrame) -> pd.Series:
    """Return the time of each failure, or the creation time of the message if it is not known."""
    failed, created = (
        _time_column(frame, name) for name in ("failed_at", "created_at")
    )
    return failed.fillna(created)


def _time_column(frame: pd.DataFrame, name: str) -> pd.Series:
    """Return a column of times in UTC. If it contains no times, all values are missing."""
    if name in frame.columns and pd.api.types.is_datetime64_any_dtype(
        frame[name].dtype
    ):
        return pd.to_datetime(frame[name], utc=True).astype("datetime64[ms, UTC]")

    return pd.Series(pd.NaT, index=frame.index, dtype="datetime64[ms, UTC]")


def labels_of_rows(frame: pd.DataFrame) -> list[list[str]]:
    """Return the labels of each row: the list, or the single label of old entries."""
    lists: Iterable[Any] = repeat(None, len(frame))
    single: Iterable[Any] = repeat(None, len(frame))
    if "labels" in frame.columns:
        lists = label_lists(frame["labels"]).to_pylist()
    if "label" in frame.columns:
        single = _texts(frame["label"]).to_pylist()
    return [
        labels or list(filter(None, [label]))
        for labels, label in zip(lists, single, strict=True)
    ]


def _values_of(rows: pd.DataFrame, name: str) -> list[Any]:
    """Return the values of a column, or one None per row if the column is missing."""
    if name in rows.columns:
        values: list[Any] = rows[name].tolist()
        return values
    return list(repeat(None, len(rows)))


def _lower(column: pd.Series) -> pa.Array:
    return pc.utf8_lower(_texts(column))


def _texts(column: pd.Series) -> pa.Array:
    """Return the values as strings, also if they have several types."""
    try:
        texts = pa.array(column, from_pandas=True).cast(pa.large_string())
    except UNFIT:
        # as objects, because a sparse column would stay sparse when it is mapped
        values = pd.Series(np.asarray(column, dtype=object), dtype=object)
        values = values.map(lambda value: visible(str(value)), na_action="ignore")
        texts = pa.array(values, pa.large_string(), from_pandas=True)

    return texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
