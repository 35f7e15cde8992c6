"""Load the dead letter queue as frames: complete, decoded and masked."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from typing import Final, get_args

import pandas as pd
import pyarrow as pa

from toolkit.base import arguments
from toolkit.base.errors import ToolkitError, UnexpectedResultWarning
from toolkit.base.progress import ProgressBar, ProgressOption
from toolkit.base.times import Time
from toolkit.filters.failure import FailureFilter
from toolkit.filters.failure_fields import FIELDS
from toolkit.loading.accounts import account_of
from toolkit.loading.load import Batch, Load, LoadPlan, LoadState
from toolkit.loading.options import CONNECTIONS, LoadOptions
from toolkit.loading.rate_limiter import open_transport
from toolkit.loading.window_reader import WindowReader
from toolkit.service.failures import Kind, get_entry, list_page
from toolkit.service.responses import RetryPolicy
from toolkit.service.settings import Service, endpoint_of
from toolkit.service.transport import Transport
from toolkit.tables.failures import FailureDecoder
from toolkit.tables.frame_filters import unknown_values
from toolkit.tables.frames import to_frame
from toolkit.tables.receipt import get_receipt
from toolkit.tables.schemas import FAILURES

_SEARCHED_PAGES: Final = 10  # of entries, in which the end of an address is looked for
_HINT_SECONDS: Final = 5.0  # how long a hint may take
_PLAIN_MESSAGES: Final = (
    'failed plain messages are not included: kind="messages" loads them'
)
_MESSAGES_HAVE_NO_WORKFLOW: Final = (
    "No failure matches: plain messages have no workflow_url. Load them without it, and select by the column "
    "url, for example messages[messages['url'] == 'https://example.com/hook']"
)
_ASSUMPTIONS: Final[tuple[str, ...]] = (
    "a cursor keeps its position in the listing while entries come and go",
    "the time of an entry that the service compares with dates does not change",
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
        Filter. If omitted, all retained entries are loaded. A time or an age instead, for example
        ``load_failures(service, "7d")``, means `since`.
    since, until : datetime, date, timedelta, str or int, optional
        Shorthand for a filter with these times: ``"7d"``, ``"24 hours"``, ``"2026-01-31"``, a Timestamp (see
        `FailureFilter`). Both ends are included. You cannot combine them with `filter`.
    kind : {"workflows", "messages"}
        Failed workflow runs, or failed plain messages, which have a DLQ of their own.
    limit : int, optional
        Maximum number of entries, for a first look. The receipt is then not complete.
    reveal : bool
        If True, header values and URLs stay as received, secrets included. Do not share these frames.
    progress : bool or callable, optional
        None shows a bar in a notebook or terminal, False never, True always. A callable gets (done, total).
    connections : int
        Maximum number of concurrent requests. A load starts with fewer.
    requests_per_second : float, optional
        Maximum number of requests that start per second. Default: as many as the service allows.
    passes : {1, 2}
        With 2, everything is read twice and compared. Use it if entries come and go during the load.

    Returns
    -------
    pandas.DataFrame
        One row per DLQ entry; ``dlq_id`` is unique. Times (datetime64[ms, UTC]): ``failed_at``,
        ``created_at``, ``workflow_created_at``, ``stated_failed_at``. Numbers (Int64): ``response_status``,
        ``max_retries``. All other columns are str, NaN if a value is missing: ``workflow_url``, ``error``
        (the line of the response that describes the error, masked), ``workflow_run_id``, ``dlq_id``,
        ``labels`` (JSON, for example ``["eu","beta"]``), ``failure_function_state``, ``headers`` and
        ``response_headers`` (JSON: names as sent, each with a list of values), ``body`` and ``response_body``
        (missing if not UTF-8), ``body_base64`` and ``response_body_base64`` (only if not UTF-8), ``extra``
        (JSON of everything else), ``url``, ``method``, ``failure_callback``, ``caller_ip``, ``label``,
        ``flow_control_key``. The receipt is in ``attrs``; see `get_receipt`.

    Raises
    ------
    IncompleteLoadError
        If the load ends early. ``.partial`` contains the rows read so far.
    ServiceError
        If a request fails before any row was read.
    InputError
        If `since` or `until` is combined with a filter, or an argument is invalid. The error names the
        argument.

    Warns
    -----
    UnexpectedResultWarning
        If no rows match and the newest 100 entries do not have a value of the filter. The warning names the
        nearest value.
    IncompleteLoadWarning
        If entries changed while they were read.

    Notes
    -----
    ``created_at`` is the time when the message was created. With five retries, this is 31 hours before the
    failure. For the time of the failure use ``failed_at``, which comes from the Date header of the response.
    If this header is more than five minutes before the creation or after the load, the destination's clock is
    off: ``failed_at`` is then estimated (the creation time plus the default delays of the retries),
    ``stated_failed_at`` is the time of the header, and the receipt counts these rows and names the
    destinations (`Receipt.clocks`). All other rows have no ``stated_failed_at``.

    A load of everything sends one more request: if there are failed plain messages, a note of the receipt
    names the argument that loads them.

    If the DLQ is larger than memory, use `iter_failures` or `sync_failures`.

    Examples
    --------
    >>> failures = load_failures(service, since="2d", limit=250)
    >>> len(failures), failures["dlq_id"].is_unique
    (250, True)
    """
    filter = FailureFilter.of(filter, since, until)  # noqa: A001 - as above
    options = LoadOptions(limit, progress, connections, requests_per_second, passes)
    frame = open_failures(service, filter, options, kind=kind, reveal=reveal).frame()
    if frame.empty:
        warn_of_mistaken_values(service, filter, kind, stacklevel=3)

    is_everything = filter.is_empty and limit is None and requests_per_second is None
    if kind == "workflows" and is_everything and _has_plain_messages(service):
        loaded = get_receipt(frame)
        frame.attrs["receipt"] = replace(
            loaded, notes=(*loaded.notes, _PLAIN_MESSAGES)
        ).to_dict()

    return frame


def _has_plain_messages(service: Service) -> bool:
    """Return whether the other queue has an entry. One request, without retries: it only adds a note."""
    policy = RetryPolicy(tries=1, total=_HINT_SECONDS, deadline=_HINT_SECONDS)
    try:
        with Transport.to(service, "queue", policy=policy) as transport:
            page = list_page(
                transport, FailureFilter(), cursor=None, kind="messages", count=1
            )
            return len(FailureDecoder(service.redactor).decode(page.rows)) > 0
    except ToolkitError:
        return False  # the load itself has succeeded


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
    """Read the dead letter queue in batches. The memory needed does not depend on the number of entries.

    Parameters are the same as in `load_failures`.

    Returns
    -------
    iterator of pandas.DataFrame
        Pages of entries, with the columns of `load_failures`. Ids are unique across all frames. If an entry
        changes while it is read, the first version is yielded. The frames have no receipt.

    Raises
    ------
    InputError
        As in `load_failures`, at the call itself.
    ServiceError
        If a request fails. The frames yielded so far are complete.

    Examples
    --------
    >>> sum(len(batch) for batch in iter_failures(service, limit=250))
    250
    """
    filter = FailureFilter.of(filter, since, until)  # noqa: A001 - as above
    options = LoadOptions(limit, progress, connections, requests_per_second, passes)
    load = open_failures(service, filter, options, kind=kind, reveal=reveal)

    # `iter_failures` is not a generator itself, so that an invalid argument raises at the call
    def batches() -> Iterator[pd.DataFrame]:
        is_empty = True
        for table in load:
            is_empty = False
            yield to_frame(table, reveal=reveal)

        if is_empty:
            warn_of_mistaken_values(service, filter, kind, stacklevel=3)

    return batches()


def load_failure(
    service: Service, dlq_id: str, *, kind: Kind = "workflows", reveal: bool = False
) -> pd.DataFrame:
    """Load one DLQ entry by id, for example the entry that a failure callback names.

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
        If no entry has this id: it has expired, was deleted, or never existed.
    InputError
        If `dlq_id` cannot be an id.

    Examples
    --------
    >>> some = load_failures(service, limit=1)
    >>> load_failure(service, some["dlq_id"][0])["dlq_id"].equals(some["dlq_id"])
    True
    """
    reveal = arguments.flag("reveal", reveal)
    with Transport.to(service, "queue") as transport:
        raw = get_entry(transport, dlq_id, kind=kind)
    decoder = FailureDecoder(None if reveal else service.redactor)

    return to_frame(decoder.decode(b"[" + raw + b"]"), reveal=reveal)


def warn_of_mistaken_values(
    service: Service,
    filter: FailureFilter,  # noqa: A002 - as above
    kind: Kind,
    *,
    stacklevel: int,
) -> None:
    """Warn about the values that `mistaken_values` finds in a filter that matched no rows."""
    for message in mistaken_values(service, filter, kind):
        warnings.warn(message, UnexpectedResultWarning, stacklevel=stacklevel)


def mistaken_values(
    service: Service,
    filter: FailureFilter,  # noqa: A002 - as above
    kind: Kind,
) -> list[str]:
    """Return a message per value of a filter that the newest entries do not have.

    Sends one request, or up to ten if an address has no scheme: it may be the end of one that is rare.
    """
    if kind == "messages" and filter.workflow_url:
        return [_MESSAGES_HAVE_NO_WORKFLOW]
    if not any(getattr(filter, field.name) for field in FIELDS.values() if field.many):
        return []

    try:
        with Transport.to(service, "queue") as transport:
            page = list_page(transport, FailureFilter(), cursor=None, kind=kind)
            tables = [FailureDecoder(service.redactor).decode(page.rows)]

            is_ending = any("://" not in address for address in filter.workflow_url)
            while is_ending and page.cursor and len(tables) < _SEARCHED_PAGES:
                page = list_page(
                    transport, FailureFilter(), cursor=page.cursor, kind=kind
                )
                tables.append(FailureDecoder(service.redactor).decode(page.rows))

        newest = to_frame(pa.concat_tables(tables))
    except ToolkitError:
        return []  # the load itself has succeeded

    unknown = unknown_values(newest, filter, service.redactor)
    return [
        f"No failure matches: the newest {len(newest):,} have {item}"
        for item in unknown
    ]


def open_failures(
    service: Service,
    filter: FailureFilter | None = None,  # noqa: A002 - as above
    options: LoadOptions | None = None,
    *,
    kind: Kind = "workflows",
    reveal: bool = False,
    transport: Callable[[], Transport] | None = None,
) -> Load:
    """Return a load of the DLQ as tables of the schema ``FAILURES``."""
    endpoint = endpoint_of(service, "queue")
    options = options or LoadOptions()
    kind = arguments.choice("kind", kind, get_args(Kind))
    reveal = arguments.flag("reveal", reveal)
    if filter is None:
        filter = FailureFilter()  # noqa: A001 - as above
    redactor = None
    if not reveal:
        redactor = service.redactor
    part = filter.for_load(service.redactor)

    def read(state: LoadState) -> Generator[Batch]:
        sender, limiter = open_transport(service, "queue", options, transport)
        reader = WindowReader(
            state,
            filter,
            sender,
            limiter,
            options,
            kind=kind,
            redactor=redactor,
            keep=part.keep,
        )
        return reader.batches()

    assumptions = _ASSUMPTIONS

    if not reveal:
        assumptions += (
            "header values, URLs and our own tokens are masked (reveal=True shows them)",
        )

    assumptions += tuple(
        f"{name}: {reason}, so it was compared here"
        for name, reason in part.compared_here.items()
    )
    plan = LoadPlan(
        what="failures",
        source=service.redactor.url(endpoint.url),
        scope={"kind": kind, "revealed": reveal, **part.scope},
        schema=FAILURES,
        key=("dlq_id",),
        limit=options.limit,
        assumptions=assumptions,
        rereads=True,
        account=account_of(service, kind),
    )

    return Load(
        plan,
        read,
        lambda: ProgressBar(options.progress, title="failures", unit="entries"),
    )
