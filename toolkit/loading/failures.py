"""The dead letter queue as frames: complete, decoded, masked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, Final

import pandas as pd
import pyarrow as pa

from toolkit.client.failures import PAGE_LIMIT, Kind, get_entry, list_page
from toolkit.client.pages import Page
from toolkit.client.transport import Transport
from toolkit.errors import InputError
from toolkit.filters.failure import FailureFilter
from toolkit.loading.load import Load, Plan, Work
from toolkit.loading.paging import walk
from toolkit.loading.progress import Progress, ProgressOption
from toolkit.settings.service import Service
from toolkit.tables.failures import FailureDecoder
from toolkit.tables.frames import to_frame
from toolkit.tables.schemas import FAILURES

_ASSUMPTIONS: Final[tuple[str, ...]] = ("a cursor keeps its place in the listing while entries come and go",)


def load_failures(
    service: Service,
    filter: FailureFilter | None = None,  # noqa: A002 - the name users expect
    *,
    since: datetime | str | None = None,
    until: datetime | str | None = None,
    kind: Kind = "workflows",
    limit: int | None = None,
    reveal: bool = False,
    progress: ProgressOption = None,
) -> pd.DataFrame:
    """Load the dead letter queue: every entry that matches, as one frame.

    Parameters
    ----------
    service : Service
        From `connect`.
    filter : FailureFilter, optional
        Which entries. Default: all that are retained.
    since, until : datetime or str, optional
        Shorthand for a filter of these times alone: a datetime, ISO 8601 text, or an age such as
        ``"7d"``. Both ends are included. Not together with `filter`.
    kind : {"workflows", "messages"}
        Failed workflow runs, or failed plain messages, which have a DLQ of their own.
    limit : int, optional
        At most this many, for a first look. The receipt then says that it is not complete.
    reveal : bool
        Leave header values and URLs as they came instead of masking secrets. Keep such frames to yourself.
    progress : bool or callable, optional
        None shows a bar in a notebook or terminal, False never, True always; a callable gets (done, total).

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
    if filter is None:
        filter = FailureFilter(since=since, until=until)  # noqa: A001 - as above
    elif since is not None or until is not None:
        raise InputError(
            "loading failures",
            got="a filter, and since= or until= beside it",
            expected="one of them",
            next_step="Put the times into the filter: FailureFilter(since=…, until=…).",
        )
    load = open_failures(service, filter, kind=kind, limit=limit, reveal=reveal, progress=progress)
    return load.frame()


def iter_failures(
    service: Service,
    filter: FailureFilter | None = None,  # noqa: A002 - the name users expect
    *,
    kind: Kind = "workflows",
    limit: int | None = None,
    reveal: bool = False,
    progress: ProgressOption = None,
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
    for table in open_failures(service, filter, kind=kind, limit=limit, reveal=reveal, progress=progress):
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


def open_failures(
    service: Service,
    wanted: FailureFilter | None = None,
    *,
    kind: Kind = "workflows",
    limit: int | None = None,
    reveal: bool = False,
    progress: ProgressOption = None,
) -> Load:
    """A load of the DLQ as tables of the schema ``FAILURES``: what the functions above are made of."""
    checked_limit(limit)
    wanted = wanted if wanted is not None else FailureFilter()
    half = service.need("queue")
    redactor = None if reveal else service.redactor
    keep = wanted.matches if wanted.unsendable else None
    count = PAGE_LIMIT if limit is None else min(limit, PAGE_LIMIT)

    def tables(work: Work) -> Iterator[pa.Table]:
        decoder = FailureDecoder(redactor, keep=_counting(keep, work))
        with Transport.to(service, "queue") as transport:

            def fetch(cursor: str | None) -> Page:
                return list_page(transport, wanted, cursor=cursor, kind=kind, count=count)

            for page in walk(fetch, what=f"failed {kind}"):
                work.count(page)
                yield decoder.decode(page.rows)

    assumptions = _ASSUMPTIONS
    if not reveal:
        assumptions += ("header values, URLs and our own tokens are masked (reveal=True shows them)",)
    if keep is not None:
        parts = ", ".join(wanted.unsendable)
        assumptions += (f"{parts}: a value with a comma cannot be sent, so it was compared on our side",)
    plan = Plan(
        what="failures",
        source=service.redactor.url(half.url),
        scope={"kind": kind, "revealed": reveal, **_masked_scope(wanted, service)},
        schema=FAILURES,
        key=("dlq_id",),
        limit=limit,
        assumptions=assumptions,
    )
    return Load(plan, tables, lambda: Progress(progress, title="failures", unit="entries"))


def _masked_scope(wanted: FailureFilter, service: Service) -> dict[str, Any]:
    """The filter's scope, its texts masked: a receipt goes where frames and Parquet files go."""
    mask = service.redactor.text
    return {
        name: [mask(item) for item in value] if isinstance(value, list) else mask(value)
        for name, value in wanted.scope().items()
    }


def checked_limit(limit: int | None) -> None:
    """Refuse a limit that is no whole number from 1."""
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 1):
        raise InputError("loading", got=f"limit={limit!r}", expected="a whole number from 1, or None for all")


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
