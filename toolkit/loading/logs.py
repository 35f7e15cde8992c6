"""The logs of the service as frames: every workflow run it remembers, and each attempt of a delivery."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

import pandas as pd
import pyarrow as pa

from toolkit import arguments
from toolkit.client.failures import PAGE_LIMIT, list_log_page
from toolkit.client.pages import Page
from toolkit.client.transport import Transport
from toolkit.loading.load import Load, LoadState, Plan
from toolkit.loading.options import LoadOptions, ProgressBar, ProgressOption
from toolkit.loading.paging import walk
from toolkit.settings.service import Service, endpoint_of
from toolkit.tables.lenient_rows import decode_events, decode_runs
from toolkit.tables.schemas import EVENTS, RUNS
from toolkit.times import Time, milliseconds, parse_time


@dataclass(frozen=True)
class _Log:
    """A log: how it is listed and decoded, what identifies a row, and the states that a filter may name."""

    name: Literal["runs", "events"]
    what: str
    decode: Callable[..., pa.Table]
    schema: pa.Schema
    key: tuple[str, ...]
    states: tuple[str, ...]
    page_limit: int = PAGE_LIMIT


_RUNS: Final = _Log(
    "runs", "workflow runs", decode_runs, RUNS, ("workflow_run_id",),
    ("RUN_STARTED", "RUN_SUCCESS", "RUN_FAILED", "RUN_CANCELED"),
)  # fmt: skip
_EVENTS: Final = _Log(
    "events", "events of messages", decode_events, EVENTS,
    tuple(EVENTS.names),  # an event has no id: what came twice is equal in everything
    ("CREATED", "ACTIVE", "RETRY", "ERROR", "IN_PROGRESS", "DELIVERED", "FAILED", "CANCEL_REQUESTED",
     "CANCELED", "CANCELLED"),
    page_limit=1000,
)  # fmt: skip


def load_runs(
    service: Service,
    since: Time | None = None,
    *,
    until: Time | None = None,
    state: str | Iterable[str] = (),
    workflow_url: str | Iterable[str] = (),
    workflow_run_id: str | Iterable[str] = (),
    label: str | Iterable[str] = (),
    flow_control_key: str | Iterable[str] = (),
    caller_ip: str | Iterable[str] = (),
    limit: int | None = None,
    reveal: bool = False,
    progress: ProgressOption = None,
) -> pd.DataFrame:
    """Load the run log: what ran, when, and how it ended.

    Parameters
    ----------
    service : Service
        From `connect`.
    since, until : time, optional
        Runs created from then on, and until then, as `load_failures` takes times.
    state : str or iterable of str
        RUN_STARTED, RUN_SUCCESS, RUN_FAILED, RUN_CANCELED: any of these.
    workflow_url, workflow_run_id, label, flow_control_key, caller_ip : str or iterable of str
        Any of these. The service compares all filters.
    limit : int, optional
        At most this many, the newest first in practice.
    reveal : bool
        Leave URLs as received instead of masking secrets.
    progress : bool or callable, optional
        As in `load_failures`.

    Returns
    -------
    pandas.DataFrame
        One row a run, unique by ``workflow_run_id``: ``workflow_run_id``, ``workflow_url``, ``state``
        (RUN_STARTED, RUN_SUCCESS, RUN_FAILED, RUN_CANCELED, others as received), ``dlq_id`` (str),
        ``created_at``, ``completed_at`` (datetime64[ms, UTC], null while it runs), ``labels`` (JSON),
        ``extra`` (JSON text of everything else). The receipt is in ``attrs``.

    Raises
    ------
    IncompleteLoadError, ServiceError, InputError
        As in `load_failures`.

    Examples
    --------
    >>> load_runs(service, limit=50)["state"].isin(["RUN_FAILED", "RUN_SUCCESS", "RUN_STARTED"]).all()
    np.True_
    """
    filters = {
        "workflow_url": workflow_url,
        "workflow_run_id": workflow_run_id,
        "label": label,
        "flow_control_key": flow_control_key,
        "caller_ip": caller_ip,
    }
    options = LoadOptions(limit, progress)
    return _open(service, _RUNS, since, until, state, filters, options, reveal=reveal).frame()


def load_events(
    service: Service,
    since: Time | None = None,
    *,
    until: Time | None = None,
    state: str | Iterable[str] = (),
    message_id: str | Iterable[str] = (),
    workflow_run_id: str | Iterable[str] = (),
    url: str | Iterable[str] = (),
    label: str | Iterable[str] = (),
    topic_name: str | Iterable[str] = (),
    schedule_id: str | Iterable[str] = (),
    queue_name: str | Iterable[str] = (),
    flow_control_key: str | Iterable[str] = (),
    limit: int | None = None,
    reveal: bool = False,
    progress: ProgressOption = None,
) -> pd.DataFrame:
    """Load the event log of messages: when each was accepted, tried, retried, delivered or given up.

    Parameters
    ----------
    service : Service
        From `connect`.
    since, until : time, optional
        Events from then on, and until then, as `load_failures` takes times.
    state : str or iterable of str
        CREATED, ACTIVE, RETRY, ERROR, IN_PROGRESS, DELIVERED, FAILED, CANCEL_REQUESTED, CANCELED (CANCELLED
        in the service's documents): any of these.
    message_id, url, label, topic_name, schedule_id, queue_name, flow_control_key : str or iterable of str
        Any of these. The service compares all filters. `url` is the destination, exactly.
    workflow_run_id : str or iterable of str
        Messages of these runs: their steps and calls. For what the service may not filter by, load the run's
        messages: ``message_id=explode_steps(runs)["message_id"]``.
    limit : int, optional
        At most this many, the newest first in practice.
    reveal : bool
        Leave header values and URLs as received instead of masking secrets.
    progress : bool or callable, optional
        As in `load_failures`.

    Returns
    -------
    pandas.DataFrame
        One row an event: ``time`` (datetime64[ms, UTC]), ``message_id``, ``state``, ``url``,
        ``response_status`` (Int64), ``error`` (what the attempt came to, masked), ``retried`` and
        ``max_retries`` (Int64), ``next_delivery_time`` (of a retry), ``workflow_run_id``, ``labels`` (JSON),
        ``headers``, ``body``, ``body_base64``, ``response_headers``, ``response_body``,
        ``response_body_base64`` (as in `load_failures`), ``extra`` (JSON of everything else), ``method``,
        ``created_at`` (of the message), ``topic_name``, ``endpoint_name``, ``queue_name``, ``schedule_id``,
        ``flow_control_key``, ``callback``, ``failure_callback``, ``caller_ip``, ``label``; str where nothing
        else is said. The receipt is in ``attrs``. Events that are equal in every column count as one that
        was read twice, and the receipt says so.

    Raises
    ------
    IncompleteLoadError, ServiceError, InputError
        As in `load_failures`.

    Examples
    --------
    >>> events = load_events(service, since="7d", state=["RETRY", "FAILED"], progress=False)
    >>> events["state"].isin(["RETRY", "FAILED"]).all()
    np.True_
    """
    filters = {
        "message_id": message_id,
        "workflow_run_id": workflow_run_id,
        "url": url,
        "label": label,
        "topic_name": topic_name,
        "schedule_id": schedule_id,
        "queue_name": queue_name,
        "flow_control_key": flow_control_key,
    }
    options = LoadOptions(limit, progress)
    return _open(service, _EVENTS, since, until, state, filters, options, reveal=reveal).frame()


def _open(
    service: Service,
    log: _Log,
    since: Time | None,
    until: Time | None,
    state: str | Iterable[str],
    filters: Mapping[str, str | Iterable[str]],
    options: LoadOptions,
    *,
    reveal: bool,
) -> Load:
    """A load of a log; `filters` are the values of further filters. The service compares all of them."""
    wanted = {
        name: [str(milliseconds(parse_time(time, name=argument)))]
        for name, argument, time in (("fromDate", "since", since), ("toDate", "until", until))
        if time is not None
    }
    states = arguments.texts("state", state)
    wanted["state"] = [arguments.choice("state", item, log.states) for item in states]
    for argument, values in filters.items():
        first, *others = argument.split("_")
        name = first + "".join(map(str.title, others))
        wanted[name] = [arguments.unmasked(argument, item) for item in arguments.texts(argument, values)]
    if len(wanted.get("messageId", ())) > 1:
        wanted["messageIds"] = wanted.pop("messageId")
    endpoint = endpoint_of(service, "queue")
    redactor = None if arguments.flag("reveal", reveal) else service.redactor
    count = log.page_limit if options.limit is None else min(options.limit, log.page_limit)
    pairs = tuple((name, value) for name, values in wanted.items() for value in values)
    mask = service.redactor.text

    def tables(load_state: LoadState) -> Generator[pa.Table]:
        with Transport.to(service, "queue") as transport:

            def fetch(cursor: str | None) -> Page:
                return list_log_page(transport, log.name, cursor=cursor, count=count, filters=pairs)

            for page in walk(fetch, what=log.what):
                load_state.count(page)
                yield log.decode(page.rows, redactor=redactor)

    plan = Plan(
        what=log.name,
        source=service.redactor.url(endpoint.url),
        scope={"revealed": reveal}
        | {name: [*map(mask, values)] for name, values in wanted.items() if values},
        schema=log.schema,
        key=log.key,
        limit=options.limit,
        assumptions=(f"a cursor keeps its position in the log while {log.name} come and go",),
    )
    return Load(plan, tables, lambda: ProgressBar(options.progress, title=log.name, unit=log.name))
