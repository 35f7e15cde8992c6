"""Record the work of a load, and whether the result is complete."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Sized
from dataclasses import MISSING, asdict, dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, Protocol

import msgspec

from toolkit.base.errors import InputError
from toolkit.base.own_tokens import masked, masked_value
from toolkit.base.visible_text import visible
from toolkit.secrets.redaction import escape_html

_LISTS: Final = ("assumptions", "notes", "reasons")
_SPANS: Final = ("gaps", "clocks", "pauses")
_LONGEST: Final = 300
"""Characters that an error shows of another error."""
# a value can be a lone surrogate, or an object of Python that only looks like a number or a list
_ODD_VALUES: Final = (
    msgspec.ValidationError,
    RecursionError,
    ValueError,
    TypeError,
    AttributeError,
)
_LONGEST_RETENTION: Final = 36_500 * 86_400  # seconds, as long as durations may be
_MOST_NAMED: Final = 3  # destinations in a sentence
_MIN_UNITS: Final = 2  # of a duration in words
_DEEPEST: Final = 50
"""Levels of a scope. Loaders write three."""

OVERDUE: Final = "last complete sync "
"""The beginning of the note about a gap that this sync found."""

UNREAD: Final = "not read: "
"""The beginning of the note about parts of the source that were not requested."""


@dataclass(frozen=True, kw_only=True)
class Gap:
    """A span of time with missing entries: they expired before a sync of the snapshot read them.

    Attributes
    ----------
    start, end : str
        ISO 8601, UTC: the last complete sync before the gap, and the time after which entries were read
        again.
    is_certain : bool
        True if the retention of the queue is known: all entries of the gap had expired. Otherwise, entries
        may be missing.
    """

    start: str
    end: str
    is_certain: bool = False

    @property
    def bounds(self) -> tuple[datetime, datetime]:
        """Start and end as times."""
        return datetime.fromisoformat(self.start), datetime.fromisoformat(self.end)


@dataclass(frozen=True)
class ClockError:
    """A destination whose clock is off: its Date headers are impossible, so times were estimated.

    Attributes
    ----------
    destination : str
        Host and port.
    seconds_ahead : int
        Median difference between the headers and the estimated times, rounded to three digits. Negative if
        the clock is slow.
    rows : int
        Failures with an impossible time.
    """

    destination: str
    seconds_ahead: int
    rows: int

    def __post_init__(self) -> None:
        """Mask our own tokens."""
        object.__setattr__(self, "destination", masked(self.destination))

    def __str__(self) -> str:
        direction = "behind"
        if self.seconds_ahead > 0:
            direction = "ahead"
        return f"the clock of {self.destination} is {_about(abs(self.seconds_ahead))} {direction}"


def _about(seconds: int) -> str:
    """Return a duration in the largest unit that fits at least twice.

    >>> _about(18_000), _about(173_000), _about(290_000_000)
    ('5 hours', '2 days', '9.2 years')
    """
    units = (("years", 31_557_600), ("days", 86_400), ("hours", 3_600), ("minutes", 60))
    name, size = next(
        (unit for unit in units if seconds >= _MIN_UNITS * unit[1]), ("seconds", 1)
    )
    return f"{seconds / size:.2g} {name}"


def clock_sentence(clocks: Sequence[ClockError]) -> str:
    """Return how many times were estimated, and which clocks are off; "" if all clocks are right.

    >>> clock_sentence([ClockError("app.example.com", 18_000, 60)])
    '60 failure times are estimated: the clock of app.example.com is 5 hours ahead (60)'
    """
    if not clocks:
        return ""

    total = sum(error.rows for error in clocks)
    times = f"{total:,} failure times are"
    if total == 1:
        times = "1 failure time is"
    listed = [f"{error} ({error.rows:,})" for error in clocks[:_MOST_NAMED]]
    others = len(clocks) - _MOST_NAMED
    if others > 0:
        listed.append(f"and {others:,} more destinations")
    return f"{times} estimated: {'; '.join(listed)}"


@dataclass(frozen=True, kw_only=True)
class Pause:
    """The time between two complete syncs, if the second found no entry from before the first.

    If the retention of the queue is shorter than the pause, entries from the start of the pause expired
    unread.

    Attributes
    ----------
    start, end : str
        ISO 8601, UTC: when the two syncs began.
    """

    start: str
    end: str

    def gap(self, retention: timedelta) -> Gap | None:
        """Return the part of the pause that is a gap if the queue has this retention, or None.

        >>> pause = Pause(start="2026-03-01T00:00:00+00:00", end="2026-03-09T00:00:00+00:00")
        >>> pause.gap(timedelta(days=3)).end, pause.gap(timedelta(days=9))
        ('2026-03-06T00:00:00.000+00:00', None)
        """
        start, end = (
            datetime.fromisoformat(self.start),
            datetime.fromisoformat(self.end),
        )
        read_from = end - retention
        if read_from <= start:
            return None

        return Gap(
            start=self.start,
            end=read_from.isoformat(timespec="milliseconds"),
            is_certain=True,
        )


@dataclass(frozen=True, kw_only=True)
class Syncs:
    """When a snapshot was brought up to date.

    Attributes
    ----------
    complete_at : str or None
        When the latest complete sync began, ISO 8601, UTC; None if there was none.
    every_seconds : float or None
        Usual time between two complete syncs: the median of the syncs in the manifest. None if there were
        fewer than two.
    longest_seconds : float
        How long the longest of these syncs took, resumed ones included.
    """

    complete_at: str | None = None
    every_seconds: float | None = None
    longest_seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Receipt:
    """The work of a load, and whether the result is complete.

    Attributes
    ----------
    what : str
        The kind of entries: ``"failures"``, ``"vectors"``, …
    source : str
        Address of the service, without secrets.
    scope : dict
        The filter, namespaces or prefix requested, as JSON-able values. Two loads of the same source and
        scope can be compared.
    started_at, ended_at : str
        ISO 8601, UTC.
    windows, pages, requests, retries : int
        Numbers of windows, pages, requests and retries. A retry repeats the request for a page.
    rows : int
        Rows in the result.
    duplicates : int
        Duplicate rows that were dropped. A load in batches also counts rows with new content here, because it
        no longer has the earlier rows.
    changed : int
        Rows that were read again with new content; the later version was kept.
    filtered_here : int
        Rows read and left out by the client, because the service cannot compare a part of the filter.
    bytes : int
        Bytes of all response bodies, after decompression.
    reread : int
        Windows that were read again, because entries changed meanwhile or you requested a second pass.
    resumed : int
        How often the load was resumed after an interruption.
    limit : int or None
        The argument `limit` of the load.
    assumptions : tuple of str
        Conditions under which `complete` is true.
    notes : tuple of str
        More facts about the load, for example an interruption.
    complete : bool
        True if every entry that was present during the whole load is in the result, under the assumptions.
    reasons : tuple of str
        Why the result is not complete. Empty if it is complete.
    frame_rows : int or None
        Rows of the frame, if the frame has other rows than the load returned.
    gaps : tuple of Gap
        Spans of time with missing entries of a snapshot, because they expired between two syncs. The earliest
        first.
    syncs : Syncs or None
        When the snapshot was brought up to date; None if no snapshot was read.
    retention_seconds : float or None
        How long the queue keeps entries, if you passed it to a sync of the snapshot.
    clocks : tuple of ClockError
        Destinations whose Date header was impossible, the most failures first. The times of these failures
        are estimated.
    pauses : tuple of Pause
        Pauses of a day or longer between complete syncs of a snapshot, the earliest first. They show the gaps
        if the retention of the queue differs from the one that the syncs assumed.

    Examples
    --------
    >>> from toolkit import load_failures, get_receipt
    >>> found = get_receipt(load_failures(service, progress=False))
    >>> found.verdict, found.scope
    ('complete: 5,000 failures', {'kind': 'workflows', 'revealed': False})
    """

    what: str
    source: str
    scope: dict[str, Any]
    started_at: str
    ended_at: str
    windows: int = 1
    pages: int = 0
    requests: int = 0
    retries: int = 0
    rows: int = 0
    duplicates: int = 0
    changed: int = 0
    filtered_here: int = 0
    reread: int = 0
    resumed: int = 0
    bytes: int = 0
    limit: int | None = None
    assumptions: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    complete: bool = False
    reasons: tuple[str, ...] = ()
    frame_rows: int | None = None
    gaps: tuple[Gap, ...] = ()
    syncs: Syncs | None = None
    retention_seconds: float | None = None
    clocks: tuple[ClockError, ...] = ()
    pauses: tuple[Pause, ...] = ()

    def __post_init__(self) -> None:
        """Mask our own tokens: receipts go wherever frames go."""
        for name in ("what", "source", "scope", *_LISTS):
            object.__setattr__(self, name, masked_value(getattr(self, name)))

    @property
    def retention(self) -> timedelta | None:
        """How long the queue keeps entries, if you passed it to a sync; else None."""
        if self.retention_seconds is None:
            return None
        return timedelta(seconds=self.retention_seconds)

    def for_retention(self, retention: timedelta) -> Receipt:
        """Return the receipt with the gaps that follow from a retention of the queue.

        Gaps from before the first known pause stay as the syncs found them.
        """
        if not self.pauses:
            return self

        first = datetime.fromisoformat(self.pauses[0].start)
        earlier = [gap for gap in self.gaps if gap.bounds[0] < first]
        found = [
            gap for pause in self.pauses if (gap := pause.gap(retention)) is not None
        ]
        is_gap_at_last = self.pauses[-1].gap(retention) is not None
        notes = tuple(
            note for note in self.notes if is_gap_at_last or note not in self.overdue
        )

        return replace(self, gaps=(*earlier, *found), notes=notes)

    @property
    def estimated_times(self) -> int:
        """Failures whose time was estimated, because the Date header of the destination is impossible."""
        return sum(error.rows for error in self.clocks)

    @property
    def seconds(self) -> float:
        """How long the load took."""
        started, ended = map(datetime.fromisoformat, (self.started_at, self.ended_at))
        return (ended - started).total_seconds()

    def to_dict(self) -> dict[str, Any]:
        """Return the receipt as JSON values, as in ``frame.attrs["receipt"]`` and in Parquet metadata."""
        lists = {name: list(getattr(self, name)) for name in _LISTS}
        spans = {
            name: [asdict(span) for span in getattr(self, name)] for name in _SPANS
        }
        return asdict(self) | lists | spans

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Receipt:
        """Return the receipt of values from `to_dict`. Unknown names, of a later version, are left out.

        Anybody can write a file with a receipt, so each value is checked.

        Raises
        ------
        InputError
            If a name is missing that every receipt has, or a value has another type or is out of range.
        """
        if not isinstance(values, Mapping):
            raise _unfit(f"a value of the type {type(values).__name__}")

        defaults = {item.name: item.default for item in fields(cls)}
        plain = {name: value for name, value in values.items() if name in defaults}
        with_values = defaults | plain
        missing = [name for name, value in with_values.items() if value is MISSING]
        if missing:
            got = f"none of {', '.join(missing)}"
            raise InputError("reading a receipt", got=got, expected="a whole receipt")

        plain |= {name: [] for name in _LISTS if plain.get(name) is None}
        try:
            result = msgspec.convert(plain, cls)
        except _ODD_VALUES as error:
            raise _unfit(str(error)[:_LONGEST]) from None

        _check_times(result)
        _check_ranges(result)
        return result

    @property
    def verdict(self) -> str:
        """One sentence: whether the load is complete, why not, and which rows of it the frame has.

        For example, "complete: 3 failures; this frame has 1 of the 3 rows loaded".
        """
        kind = self.what
        if self.rows == 1:
            kind = kind.removesuffix("s")
        clauses = [f"complete: {self.rows:,} {kind}"]
        if not self.complete:
            clauses = [f"not complete: {self.rows:,} {kind}", shortfall(self)]

        if self.clocks:
            clauses.append(clock_sentence(self.clocks))
        clauses += self.overdue
        if not self.rows:
            clauses += self.unread
        if self.frame_rows is not None:
            clauses.append(f"this frame has {self.part} loaded")
        return "; ".join(clauses)

    @property
    def overdue(self) -> tuple[str, ...]:
        """Notes about a gap that this load found: how long ago the last complete sync was."""
        return tuple(note for note in self.notes if note.startswith(OVERDUE))

    @property
    def unread(self) -> tuple[str, ...]:
        """Notes about parts of the source that were not requested, for example other namespaces."""
        return tuple(note for note in self.notes if note.startswith(UNREAD))

    @property
    def part(self) -> str:
        """The rows of a frame that was derived from the loaded one, for example "10 of the 5,166 rows"."""
        rows = self.frame_rows
        if rows is None:
            rows = self.rows
        if rows <= self.rows:
            return f"{rows:,} of the {self.rows:,} rows"

        return f"{rows:,} rows, not the {self.rows:,}"

    def __str__(self) -> str:
        work = f"{self.pages:,} pages, {self.requests:,} requests, {self.retries:,} retries"
        return visible(
            f"{self.verdict} ({work}, {self.bytes / 1e6:,.1f} MB, {self.seconds:.1f} s)"
        )

    def _repr_html_(self) -> str:
        values = self.to_dict()
        del values["pauses"]  # the gaps among them are shown
        facts = [
            (name, value)
            for name, value in values.items()
            if value not in (None, [], {}, "")
        ]

        return facts_html(
            self.verdict, ((name, _shown(value)) for name, value in facts)
        )


def facts_html(caption: str, facts: Iterable[tuple[str, str]]) -> str:
    """Return an HTML table of names and values for notebooks."""
    rows = "".join(
        f'<tr><th scope="row" style="text-align:left">{escape_html(name)}</th>'
        f'<td style="text-align:left">{escape_html(text)}</td></tr>'
        for name, text in facts
    )
    return f"<table><caption>{escape_html(caption)}</caption>{rows}</table>"


def utc_now() -> str:
    """Return the current time in the format of receipts."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def checked_instant(name: str, text: str) -> str:
    """Return a time of a receipt or manifest. Raise InputError if it is not ISO 8601 with a time zone."""
    try:
        if datetime.fromisoformat(text).tzinfo is not None:
            return text
    except ValueError:
        pass

    raise _unfit(f"{text[:40]!r} for {name}")


def _check_times(receipt: Receipt) -> None:
    """Raise InputError if a time is not ISO 8601 with a time zone."""
    checked_instant("started_at", receipt.started_at)
    checked_instant("ended_at", receipt.ended_at)
    for gap in receipt.gaps:
        checked_instant("a gap", gap.start)
        checked_instant("a gap", gap.end)

    for pause in receipt.pauses:
        checked_instant("a pause", pause.start)
        checked_instant("a pause", pause.end)

    if receipt.syncs is not None and receipt.syncs.complete_at is not None:
        checked_instant("complete_at", receipt.syncs.complete_at)


def _check_ranges(receipt: Receipt) -> None:
    """Raise InputError if a number is out of range, or the scope is nested too deeply."""
    stated = receipt.retention_seconds
    if stated is not None and not 0 < stated <= _LONGEST_RETENTION:
        raise _unfit("a retention that is no duration of at most 36,500 days")
    if _depth(receipt.scope) > _DEEPEST:
        raise _unfit(f"a scope nested more than {_DEEPEST} deep")

    # numbers that do not fit into 64 bits cannot be stored with a frame
    for name, value in vars(receipt).items():
        if isinstance(value, int) and not 0 <= value < 1 << 63:
            raise _unfit(f"{name} outside of 0 to 2⁶³ - 1")


def requested_time(
    receipt: Receipt, name: Literal["since", "until"]
) -> datetime | None:
    """Return the time since or until which a load was requested; None if it had no such limit.

    Raises
    ------
    InputError
        If the receipt has a value that is no ISO 8601 time. A snapshot may have been edited.
    """
    value = receipt.scope.get(name)
    if value is None:
        return None

    return datetime.fromisoformat(checked_instant(name, str(value)))


def _depth(value: Any, most: int = _DEEPEST) -> int:
    """Return how deep lists and objects are nested. Deeper levels than `most` count as one.

    >>> _depth(1), _depth([1]), _depth({"a": [{}]}), _depth([[[[1]]]], most=2)
    (1, 2, 3, 4)
    """
    inner: Iterable[Any] = ()
    if isinstance(value, dict):
        inner = value.values()
    elif isinstance(value, list):
        inner = value

    if most < 0:
        return 1

    return 1 + max((_depth(item, most - 1) for item in inner), default=0)


def _unfit(got: str) -> InputError:
    return InputError(
        "reading a receipt",
        got=got,
        expected="a receipt as a load wrote it",
        next_step="Load again, or read the snapshot that the toolkit wrote.",
    )


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}: {_shown(item)}" for name, item in value.items())
    if isinstance(value, list):
        return "; ".join(map(_shown, value))
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"

    return str(value)


def shortfall(receipt: Receipt | None) -> str:
    """Return why a load is not complete; empty if it is, or if nothing is known about it.

    >>> cut = Receipt(what="failures", source="http://127.0.0.1", scope={}, rows=3,
    ...     started_at="2026-03-01T12:00:00+00:00", ended_at="2026-03-01T12:00:02+00:00")
    >>> shortfall(cut), shortfall(None)
    ('the load did not end', '')
    """
    if receipt is None or receipt.complete:
        return ""
    return "; ".join(receipt.reasons) or "the load did not end"


class HasAttrs(Protocol):
    """A frame: anything with the ``attrs`` of pandas, which contain the receipt."""

    @property
    def attrs(self) -> Mapping[Any, Any]:
        """Values that copies of the frame keep."""


def get_receipt(frame: HasAttrs) -> Receipt:
    """Return the receipt of a loaded frame: the work of the load, and whether it was complete.

    The receipt describes the load, also if you filtered or changed the frame since.

    Parameters
    ----------
    frame : pandas.DataFrame
        A frame from a loader, or one that pandas derived from it.

    Returns
    -------
    Receipt
        The receipt of the load. If the frame has other rows than the load returned, for example because you
        filtered it, ``frame_rows`` and the verdict show this.

    Notes
    -----
    The receipt is in ``frame.attrs``, so pandas decides whether a derived frame has it. Copies, filters,
    sorted frames and frames with other columns keep it. `concat` and `merge` keep it if all frames have the
    same one, for example batches of one load, and drop it otherwise. `groupby` drops it.

    Raises
    ------
    InputError
        If the frame has no receipt.

    Examples
    --------
    >>> done = Receipt(what="failures", source="http://127.0.0.1", scope={}, rows=3, complete=True,
    ...                started_at="2026-01-01T00:00:00+00:00", ended_at="2026-01-01T00:00:02+00:00")
    >>> frame = pd.DataFrame({"dlq_id": ["a", "b", "c"]})
    >>> frame.attrs["receipt"] = done.to_dict()
    >>> get_receipt(frame).verdict
    'complete: 3 failures'
    >>> get_receipt(frame.head(1)).verdict
    'complete: 3 failures; this frame has 1 of the 3 rows loaded'
    """
    attributes = getattr(frame, "attrs", None)
    values = None
    if isinstance(attributes, Mapping):
        values = attributes.get("receipt")
    if not isinstance(values, Mapping):
        raise InputError(
            "reading the receipt of a frame",
            got="a frame without a receipt",
            expected="a frame made by a loader",
            next_step="If the frame is made of several loads, pass one of the loaded frames.",
        )

    loaded = Receipt.from_dict(values)
    if isinstance(frame, Sized) and len(frame) != loaded.rows:
        return replace(loaded, frame_rows=len(frame))

    return replace(loaded, frame_rows=None)
