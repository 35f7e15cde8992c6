"""What a load did and whether it is complete."""

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
_LONGEST: Final = 300  # characters that an error shows of another
# a value can be a lone surrogate, or an object of Python that only looks like a number or a list
_ODD_VALUES: Final = (msgspec.ValidationError, RecursionError, ValueError, TypeError, AttributeError)
_LONGEST_RETENTION: Final = 36_500 * 86_400  # seconds, as long as durations may be
_MOST_NAMED: Final = 3  # destinations in a sentence
_MIN_UNITS: Final = 2  # of a duration in words
_DEEPEST: Final = 50  # levels of a scope: those that loaders write have three

OVERDUE: Final = "last complete sync "
"""How the note of a receipt begins that tells of a gap which this sync found."""


@dataclass(frozen=True, kw_only=True)
class Gap:
    """A span of time of which a snapshot does not have all entries: they expired before a sync read them.

    Attributes
    ----------
    start, end : str
        ISO 8601, UTC: the last complete sync before the gap, and the time from which entries were read again.
    is_certain : bool
        Whether the queue's retention is known, so that what entered in between had expired. Otherwise
        entries may be missing: nothing that the queue still had shows the contrary.
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
        direction = "ahead" if self.seconds_ahead > 0 else "behind"
        return f"the clock of {self.destination} is {_about(abs(self.seconds_ahead))} {direction}"


def _about(seconds: int) -> str:
    """Return a duration in the largest unit of which there are at least two.

    >>> _about(18_000), _about(173_000), _about(290_000_000)
    ('5 hours', '2 days', '9.2 years')
    """
    units = (("years", 31_557_600), ("days", 86_400), ("hours", 3_600), ("minutes", 60))
    name, size = next((unit for unit in units if seconds >= _MIN_UNITS * unit[1]), ("seconds", 1))
    return f"{seconds / size:.2g} {name}"


def clock_sentence(clocks: Sequence[ClockError]) -> str:
    """Return how many times were estimated, and which clocks are off; "" if none is.

    >>> clock_sentence([ClockError("app.example.com", 18_000, 60)])
    '60 failure times are estimated: the clock of app.example.com is 5 hours ahead (60)'
    """
    if not clocks:
        return ""
    total = sum(error.rows for error in clocks)
    times = "1 failure time is" if total == 1 else f"{total:,} failure times are"
    named = "; ".join(f"{error} ({error.rows:,})" for error in clocks[:_MOST_NAMED])
    others = len(clocks) - _MOST_NAMED
    more = f"; and {others:,} more destinations" if others > 0 else ""
    return f"{times} estimated: {named}{more}"


@dataclass(frozen=True, kw_only=True)
class Pause:
    """The time between two complete syncs of a snapshot after which no earlier entry was in the queue.

    If the queue keeps entries for a shorter time than the pause, those of its beginning expired unread.

    Attributes
    ----------
    start, end : str
        ISO 8601, UTC: when the two syncs began.
    """

    start: str
    end: str

    def gap(self, retention: timedelta) -> Gap | None:
        """Return the gap that the pause is for a queue that keeps entries so long.

        >>> pause = Pause(start="2026-03-01T00:00:00+00:00", end="2026-03-09T00:00:00+00:00")
        >>> pause.gap(timedelta(days=3)).end, pause.gap(timedelta(days=9))
        ('2026-03-06T00:00:00.000+00:00', None)
        """
        start, end = datetime.fromisoformat(self.start), datetime.fromisoformat(self.end)
        read_from = end - retention
        if read_from <= start:
            return None
        return Gap(start=self.start, end=read_from.isoformat(timespec="milliseconds"), is_certain=True)


@dataclass(frozen=True, kw_only=True)
class Syncs:
    """When a snapshot was brought up to date.

    Attributes
    ----------
    complete_at : str or None
        When the latest complete sync began, ISO 8601, UTC; None if there was none.
    every_seconds : float or None
        Usual time between two complete syncs: the median of those that the manifest still lists. None if
        there were fewer than two.
    longest_seconds : float
        How long the longest of these syncs took, resumed ones included.
    """

    complete_at: str | None = None
    every_seconds: float | None = None
    longest_seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Receipt:
    """What a load did and whether it is complete.

    Attributes
    ----------
    what : str
        What was loaded: ``"failures"``, ``"vectors"``, …
    source : str
        Address of the service, without secrets.
    scope : dict
        The filter, namespaces or prefix requested, as JSON-able values. Two loads of the same source and
        scope can be compared.
    started_at, ended_at : str
        ISO 8601, UTC.
    windows, pages, requests, retries : int
        Work done. Retries are requests beyond the first for a page.
    rows : int
        Rows in the result.
    duplicates : int
        Duplicate rows that were dropped. A load in batches, which no longer has the rows, counts those
        with new content here, too.
    changed : int
        Rows that were read again with new content; the later version was kept.
    filtered_here : int
        Rows read and left out by the client, because the service cannot compare a part of the filter.
    bytes : int
        Bytes of the responses' bodies, after decompression.
    reread : int
        Windows read again, because entries changed while being read or a second pass was requested.
    resumed : int
        How often the load was resumed where it had stopped.
    limit : int or None
        The `limit=` passed.
    assumptions : tuple of str
        What `complete` depends on.
    notes : tuple of str
        What else is worth knowing about how it was read.
    complete : bool
        Whether every entry present during the whole load is in the result, under the assumptions.
    reasons : tuple of str
        Why it is not complete. Empty when it is.
    frame_rows : int or None
        Rows of the frame whose receipt this is, where they are not those that were loaded.
    gaps : tuple of Gap
        Of a snapshot: spans of time of which entries may be missing, as they expired between two syncs. The
        earliest first.
    syncs : Syncs or None
        Of a snapshot: when it was brought up to date.
    retention_seconds : float or None
        How long the queue keeps entries, as a sync of the snapshot was told last.
    clocks : tuple of ClockError
        Destinations whose Date header was impossible, the most failures first. The times of these failures
        are estimated.
    pauses : tuple of Pause
        Of a snapshot: pauses of a day or longer between complete syncs, the earliest first. They show which
        gaps there are if the queue keeps entries for another time than the syncs assumed.

    Examples
    --------
    >>> from toolkit import load_failures, receipt
    >>> found = receipt(load_failures(service, progress=False))
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
        """How long the queue keeps entries, if a sync was told."""
        return None if self.retention_seconds is None else timedelta(seconds=self.retention_seconds)

    def for_retention(self, retention: timedelta) -> Receipt:
        """Return the receipt with the gaps that a queue has which keeps entries so long.

        Gaps from before the first pause that is known stay as the syncs found them.
        """
        if not self.pauses:
            return self
        first = datetime.fromisoformat(self.pauses[0].start)
        earlier = [gap for gap in self.gaps if gap.bounds[0] < first]
        found = [gap for pause in self.pauses if (gap := pause.gap(retention)) is not None]
        is_gap_at_last = self.pauses[-1].gap(retention) is not None
        notes = tuple(note for note in self.notes if is_gap_at_last or note not in self.overdue)
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
        """The receipt as JSON-able values, as in ``frame.attrs["receipt"]`` and in Parquet metadata."""
        lists = {name: list(getattr(self, name)) for name in _LISTS}
        spans = {name: [asdict(span) for span in getattr(self, name)] for name in _SPANS}
        return asdict(self) | lists | spans

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Receipt:
        """The receipt back from `to_dict`. Unknown names, of a later version, are left out.

        Receipts come from files that anybody may have written, so each value is checked by its type.

        Raises
        ------
        InputError
            When a name is missing that every receipt has, or a value is of another type.
        """
        if not isinstance(values, Mapping):
            raise _unfit(f"a value of the type {type(values).__name__}")
        known = {item.name: item for item in fields(cls)}
        plain = {name: value for name, value in values.items() if name in known}
        missing = [name for name, item in known.items() if item.default is MISSING and name not in plain]
        if missing:
            got = f"none of {', '.join(missing)}"
            raise InputError("reading a receipt", got=got, expected="a whole receipt")
        plain |= {name: [] for name in _LISTS if plain.get(name) is None}
        try:
            result = msgspec.convert(plain, cls)
        except _ODD_VALUES as error:
            raise _unfit(str(error)[:_LONGEST]) from None
        times = [("started_at", result.started_at), ("ended_at", result.ended_at)]
        times += [("a gap", text) for gap in result.gaps for text in (gap.start, gap.end)]
        times += [("a pause", text) for pause in result.pauses for text in (pause.start, pause.end)]
        if result.syncs is not None and result.syncs.complete_at is not None:
            times.append(("complete_at", result.syncs.complete_at))
        for name, text in times:
            checked_instant(name, text)
        stated = result.retention_seconds
        if stated is not None and not 0 < stated <= _LONGEST_RETENTION:
            raise _unfit("a retention that is no duration of at most 36,500 days")
        if _depth(result.scope) > _DEEPEST:
            raise _unfit(f"a scope nested more than {_DEEPEST} deep")
        for name, value in vars(result).items():
            if isinstance(value, int) and not 0 <= value < 1 << 63:
                raise _unfit(f"{name} outside of 0 to 2⁶³ - 1")
        return result

    @property
    def verdict(self) -> str:
        """One sentence: complete, or not and why; what expired; what part of it the frame has, if not all."""
        part = "" if self.frame_rows is None else f"; this frame has {self.part} loaded"
        part = "".join(f"; {note}" for note in self.overdue) + part
        if self.clocks:
            part = f"; {clock_sentence(self.clocks)}{part}"
        read = f"{self.rows:,} {self.what.removesuffix('s') if self.rows == 1 else self.what}"
        if self.complete:
            return f"complete: {read}{part}"
        reasons = "; ".join(self.reasons) or "the load did not end"
        return f"not complete: {read}; {reasons}{part}"

    @property
    def overdue(self) -> tuple[str, ...]:
        """Notes of a gap that this load found: how long ago the last complete sync was."""
        return tuple(note for note in self.notes if note.startswith(OVERDUE))

    @property
    def part(self) -> str:
        """Such as "10 of the 5,166 rows": what a frame that was derived has of what was loaded."""
        result = self.rows if self.frame_rows is None else self.frame_rows
        if result <= self.rows:
            return f"{result:,} of the {self.rows:,} rows"
        return f"{result:,} rows, not the {self.rows:,}"

    def __str__(self) -> str:
        work = f"{self.pages:,} pages, {self.requests:,} requests, {self.retries:,} retries"
        return visible(f"{self.verdict} ({work}, {self.bytes / 1e6:,.1f} MB, {self.seconds:.1f} s)")

    def _repr_html_(self) -> str:
        values = self.to_dict()
        del values["pauses"]  # the gaps among them are shown
        facts = [(name, value) for name, value in values.items() if value not in (None, [], {}, "")]
        return facts_html(self.verdict, ((name, _shown(value)) for name, value in facts))


def facts_html(caption: str, facts: Iterable[tuple[str, str]]) -> str:
    """A table of names and texts for notebooks."""
    rows = "".join(
        f'<tr><th scope="row" style="text-align:left">{escape_html(name)}</th>'
        f'<td style="text-align:left">{escape_html(text)}</td></tr>'
        for name, text in facts
    )
    return f"<table><caption>{escape_html(caption)}</caption>{rows}</table>"


def utc_now() -> str:
    """The current time, as receipts hold it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def checked_instant(name: str, text: str) -> str:
    """A timestamp as receipts and manifests hold it, which has to be ISO 8601 with a time zone."""
    try:
        if datetime.fromisoformat(text).tzinfo is not None:
            return text
    except ValueError:
        pass
    raise _unfit(f"{text[:40]!r} for {name}")


def requested_time(receipt: Receipt, name: Literal["since", "until"]) -> datetime | None:
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
    """How deep lists and objects are nested; one more than `most` where it is deeper."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max((_depth(item, most - 1) for item in inner), default=0) if most >= 0 else 1


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
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


class HasAttrs(Protocol):
    """A frame: anything with pandas' ``attrs``, in which the receipt travels."""

    @property
    def attrs(self) -> Mapping[Any, Any]:
        """What travels with it."""


def receipt(frame: HasAttrs) -> Receipt:
    """The receipt of a loaded frame: what the load did, whatever became of the frame since.

    Parameters
    ----------
    frame : pandas.DataFrame
        A frame made by a loader, or one that pandas derived from it.

    Returns
    -------
    Receipt
        Of the load. Where the frame has other rows than were loaded, because it was filtered, say,
        ``frame_rows`` and the verdict tell so.

    Notes
    -----
    The receipt travels in ``frame.attrs``, and pandas decides: copies, filters, sorted frames and frames with
    other columns keep it. `concat` and `merge` keep it where all frames have the same one, as batches of one
    load have, and drop it where they have not: two loads are not one. `groupby` drops it.

    Raises
    ------
    InputError
        When the frame has none.

    Examples
    --------
    >>> done = Receipt(what="failures", source="http://127.0.0.1", scope={}, rows=3, complete=True,
    ...                started_at="2026-01-01T00:00:00+00:00", ended_at="2026-01-01T00:00:02+00:00")
    >>> frame = pd.DataFrame({"dlq_id": ["a", "b", "c"]})
    >>> frame.attrs["receipt"] = done.to_dict()
    >>> receipt(frame).verdict
    'complete: 3 failures'
    >>> receipt(frame.head(1)).verdict
    'complete: 3 failures; this frame has 1 of the 3 rows loaded'
    """
    attributes = getattr(frame, "attrs", None)
    values = attributes.get("receipt") if isinstance(attributes, Mapping) else None
    if not isinstance(values, Mapping):
        raise InputError(
            "reading the receipt of a frame",
            got="a frame without one",
            expected="a frame made by a loader",
            next_step="Frames made of several loads have none; ask the loaded frames themselves.",
        )
    loaded = Receipt.from_dict(values)
    rows = len(frame) if isinstance(frame, Sized) else loaded.rows
    return replace(loaded, frame_rows=None if rows == loaded.rows else rows)
