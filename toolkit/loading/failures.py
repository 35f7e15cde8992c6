"""The dead letter queue as frames: complete, decoded, masked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pandas as pd

from toolkit.client.failures import PAGE_LIMIT, Kind, get_entry, list_page
from toolkit.client.pages import Page
from toolkit.client.transport import Transport
from toolkit.errors import InputError, NotFoundError
from toolkit.filters.failure import FailureFilter, milliseconds
from toolkit.loading.load import Checkpoint, Load, Piece, Plan, Work
from toolkit.loading.pacing import Pacing
from toolkit.loading.progress import Progress, ProgressOption
from toolkit.loading.windowed import Listing, Reader
from toolkit.loading.windows import Span, Window
from toolkit.settings.service import Service
from toolkit.tables.failures import FailureDecoder
from toolkit.tables.frames import to_frame
from toolkit.tables.schemas import FAILURES
from toolkit.tables.wire_entries import WireReader
from toolkit.times import Time, parse_time

CONNECTIONS: Final = 16
"""Requests under way at once, at most, when nothing else is said."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_ASSUMPTIONS: Final[tuple[str, ...]] = (
    "a cursor keeps its place in the listing while entries come and go",
    "the time that an entry's dates are compared with stays the same",
)


def load_failures(
    service: Service,
    filter: FailureFilter | Time | None = None,  # noqa: A002 - the name users expect
    *,
    since: Time | None = None,
    until: Time | None = None,
    kind: Kind = "workflows",
    limit: int | None = None,
    reveal: bool = False,
    progress: ProgressOption = None,
    connections: int = CONNECTIONS,
    requests_per_second: float | None = None,
    passes: int = 1,
) -> pd.DataFrame:
    """Load the dead letter queue: every entry that matches, as one frame.

    Parameters
    ----------
    service : Service
        From `connect`.
    filter : FailureFilter, optional
        Which entries. Default: all that are retained. A time or an age in its place, as in
        ``load_failures(service, "7d")``, means `since`.
    since, until : datetime, date, timedelta, str or int, optional
        Shorthand for a filter of these times alone, as `FailureFilter` takes them: ``"7d"``, ``"24 hours"``,
        ``"2026-01-31"``, a Timestamp. Both ends are included. Not together with `filter`.
    kind : {"workflows", "messages"}
        Failed workflow runs, or failed plain messages, which have a DLQ of their own.
    limit : int, optional
        At most this many, for a first look. The receipt then says that it is not complete.
    reveal : bool
        Leave header values and URLs as they came instead of masking secrets. Keep such frames to yourself.
    progress : bool or callable, optional
        None shows a bar in a notebook or terminal, False never, True always; a callable gets (done, total).
    connections : int
        At most this many requests are under way at once. A load starts with fewer.
    requests_per_second : float, optional
        At most this many requests start in a second. Default: as many as the service allows.
    passes : {1, 2}
        2 reads everything a second time and compares, where entries may come and go while they are read.

    Returns
    -------
    pandas.DataFrame
        One row an entry, unique by ``dlq_id``, with the columns of the failures table: ``dlq_id``,
        ``workflow_url``, ``workflow_run_id``, ``url``, ``method`` (str), ``workflow_created_at``,
        ``created_at``, ``failed_at`` (datetime64[ms, UTC]), ``headers``, ``response_headers`` (map of str
        to list of str), ``body``, ``response_body`` (str, null when not UTF-8), ``body_bytes``,
        ``response_body_bytes`` (binary, only then), ``max_retries``, ``response_status`` (Int64),
        ``failure_callback``, ``caller_ip``, ``label``, ``flow_control_key``, ``failure_function_state``
        (str), ``labels`` (list of str), ``extra`` (JSON text of everything else). The receipt is in
        ``attrs``; see `receipt`.

    Raises
    ------
    IncompleteLoadError
        When the load ends short; ``.partial`` holds what was read.
    ServiceError
        When asking fails before anything was read.
    InputError
        For `since` or `until` beside a filter, or a limit below 1.

    Warns
    -----
    IncompleteLoadWarning
        When entries moved while they were read.

    Notes
    -----
    ``created_at`` is when the message was made, which with five retries is 31 hours before it failed:
    ask questions about when things failed of ``failed_at``, which comes from the response's Date header.

    Not the thing for a DLQ larger than memory: `iter_failures` and `sync_failures` stream.

    Examples
    --------
    >>> failures = load_failures(service, since="2d", limit=250)
    >>> len(failures), failures["dlq_id"].is_unique
    (250, True)
    """
    return open_failures(
        service,
        _wanted(filter, since, until),
        kind=kind,
        limit=limit,
        reveal=reveal,
        progress=progress,
        connections=connections,
        requests_per_second=requests_per_second,
        passes=passes,
    ).frame()


def iter_failures(
    service: Service,
    filter: FailureFilter | Time | None = None,  # noqa: A002 - the name users expect
    *,
    since: Time | None = None,
    until: Time | None = None,
    kind: Kind = "workflows",
    limit: int | None = None,
    reveal: bool = False,
    progress: ProgressOption = None,
    connections: int = CONNECTIONS,
    requests_per_second: float | None = None,
    passes: int = 1,
) -> Iterator[pd.DataFrame]:
    """Read the dead letter queue in pieces: memory does not depend on how much there is.

    Parameters are those of `load_failures`.

    Yields
    ------
    pandas.DataFrame
        A page of entries, with the columns of `load_failures`; ids are unique across all pieces. Of an entry
        that changed while it was read, the first version comes. Pieces carry no receipt.

    Raises
    ------
    ServiceError
        When asking fails; the pieces given until then are whole.

    Examples
    --------
    >>> sum(len(piece) for piece in iter_failures(service, limit=250))
    250
    """
    for table in open_failures(
        service,
        _wanted(filter, since, until),
        kind=kind,
        limit=limit,
        reveal=reveal,
        progress=progress,
        connections=connections,
        requests_per_second=requests_per_second,
        passes=passes,
    ):
        yield to_frame(table)


def load_failure(
    service: Service, dlq_id: str, *, kind: Kind = "workflows", reveal: bool = False
) -> pd.DataFrame:
    """Load one DLQ entry by its id, such as the one a failure callback names.

    Parameters
    ----------
    service : Service
    dlq_id : str
    kind : {"workflows", "messages"}
    reveal : bool
        As in `load_failures`.

    Returns
    -------
    pandas.DataFrame
        One row, with the columns of `load_failures`.

    Raises
    ------
    NotFoundError
        When the entry is gone: expired, deleted, or never there.

    Examples
    --------
    >>> some = load_failures(service, limit=1)
    >>> load_failure(service, some["dlq_id"][0])["dlq_id"].equals(some["dlq_id"])
    True
    """
    with Transport.to(service, "queue") as transport:
        raw = get_entry(transport, dlq_id, kind=kind)
    decoder = FailureDecoder(None if reveal else service.redactor)
    return to_frame(decoder.decode(b"[" + raw + b"]"))


def _wanted(
    filter: FailureFilter | Time | None,  # noqa: A002 - as above
    since: Time | None,
    until: Time | None,
) -> FailureFilter:
    """The filter that the first arguments of a loader mean."""
    if isinstance(filter, FailureFilter):
        if since is not None or until is not None:
            raise InputError(
                "loading failures",
                got="a filter, and since= or until= beside it",
                expected="one of them",
                next_step="Put the times into the filter: FailureFilter(since=…, until=…).",
            )
        return filter
    if filter is not None:
        if since is not None:
            raise InputError(
                "loading failures",
                got="a time as filter, and since= beside it",
                expected="one of them",
                next_step="Use since= and until= for the two ends.",
            )
        parse_time(filter, name="filter")
    return FailureFilter(since=since if filter is None else filter, until=until)


def open_failures(
    service: Service,
    wanted: FailureFilter | None = None,
    *,
    kind: Kind = "workflows",
    limit: int | None = None,
    reveal: bool = False,
    progress: ProgressOption = None,
    connections: int = CONNECTIONS,
    requests_per_second: float | None = None,
    passes: int = 1,
    checkpoint: Checkpoint | None = None,
    transport: Callable[[], Transport] | None = None,
) -> Load:
    """A load of the DLQ as tables of the schema ``FAILURES``: what the functions above are made of.

    Parameters
    ----------
    service, wanted, kind, limit, reveal, progress, connections, requests_per_second, passes
        As in `load_failures`.
    checkpoint : Checkpoint, optional
        Of an earlier load of the same service and scope; this one goes on from there.
    transport : callable, optional
        Makes the transport, with a policy and clocks of its own. It keeps its own pace, too: as many requests
        at once as there are connections.

    Returns
    -------
    Load
    """
    checked_limit(limit)
    checked_pace(connections, requests_per_second, passes)
    wanted = wanted if wanted is not None else FailureFilter()
    half = service.need("queue")
    redactor = None if reveal else service.redactor
    keep = wanted.matches if wanted.unsendable else None
    count = PAGE_LIMIT if limit is None else min(limit, PAGE_LIMIT)

    since, until = (None if at is None else milliseconds(at) for at in (wanted.since, wanted.until))

    dated: dict[Span, FailureFilter] = {}

    def page(sender: Transport, window: Window) -> Page:
        if window.span not in dated:
            dated[window.span] = wanted if window.whole else _within(wanted, window)
        return list_page(sender, dated[window.span], cursor=window.cursor, kind=kind, count=count)

    def exists(sender: Transport, dlq_id: str) -> bool:
        try:
            get_entry(sender, dlq_id, kind=kind)
        except NotFoundError:
            return False
        return True

    def tables(work: Work) -> Iterator[Piece]:
        decoder = FailureDecoder(redactor, keep=_counting(keep, work))
        pacing = Pacing(connections=connections, requests_per_second=requests_per_second)
        sender = transport() if transport else _paced(service, pacing, connections)
        return Reader(
            Listing(
                asked=(since, until),
                page=page,
                tables=decoder.tables,
                exists=exists,
                key="dlq_id",
                # where entries are left out on this side, a page has more of them than its table has rows
                read=WireReader(redactor).read if redactor and keep is None else None,
            ),
            work,
            sender,
            pacing=None if transport else pacing,
            connections=connections,
            passes=passes,
            limit=limit,
        ).pieces()

    assumptions = _ASSUMPTIONS
    if not reveal:
        assumptions += ("header values, URLs and our own tokens are masked (reveal=True shows them)",)
    if keep is not None:
        reasons = dict.fromkeys(("response_status", "error"), "the service cannot filter by it")
        assumptions += tuple(
            f"{part}: {reasons.get(part, 'a value with a comma cannot be sent')}, so it was compared here"
            for part in wanted.unsendable
        )
    plan = Plan(
        what="failures",
        source=service.redactor.url(half.url),
        scope={"kind": kind, "revealed": reveal, **_masked_scope(wanted, service)},
        schema=FAILURES,
        key=("dlq_id",),
        limit=limit,
        assumptions=assumptions,
    )
    return Load(
        plan,
        tables,
        lambda: Progress(progress, title="failures", unit="entries"),
        resumed_from=checkpoint,
    )


def _paced(service: Service, pacing: Pacing, connections: int) -> Transport:
    return Transport.to(service, "queue", pace=pacing, connections=connections, sleep=pacing.sleep)


def _within(wanted: FailureFilter, window: Window) -> FailureFilter:
    """The filter with a window's dates."""
    since, until = (
        None if at is None else _EPOCH + timedelta(milliseconds=at) for at in (window.first, window.last)
    )
    return replace(wanted, since=since, until=until)


def _masked_scope(wanted: FailureFilter, service: Service) -> dict[str, Any]:
    """The filter's scope, its texts masked: a receipt goes where frames and Parquet files go."""
    mask = service.redactor.text
    return {
        name: [item if isinstance(item, int) else mask(item) for item in value]
        if isinstance(value, list)
        else mask(value)
        for name, value in wanted.scope().items()
    }


def checked_limit(limit: int | None) -> None:
    """Refuse a limit that is no whole number from 1."""
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 1):
        raise InputError("loading", got=f"limit={limit!r}", expected="a whole number from 1, or None for all")


def checked_pace(connections: int, requests_per_second: float | None, passes: int) -> None:
    """Refuse caps and passes that mean nothing."""
    if not isinstance(connections, int) or isinstance(connections, bool) or connections < 1:
        raise InputError("loading", got=f"connections={connections!r}", expected="a whole number from 1")
    if requests_per_second is not None and not requests_per_second > 0:
        raise InputError(
            "loading",
            got=f"requests_per_second={requests_per_second!r}",
            expected="a number above 0, or None for as many as the service allows",
        )
    if passes not in (1, 2):
        raise InputError("loading", got=f"passes={passes!r}", expected="1 or 2")


def _counting(
    keep: Callable[[dict[str, Any]], bool] | None, work: Work
) -> Callable[[dict[str, Any]], bool] | None:
    """The predicate, counting what it leaves out."""
    if keep is None:
        return None

    def counted(entry: dict[str, Any]) -> bool:
        kept = keep(entry)
        work.filtered_here += not kept
        return kept

    return counted
