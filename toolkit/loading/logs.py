"""Load the logs of the service as frames: workflow runs, and the delivery attempts of messages."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

import pandas as pd
import pyarrow as pa

from toolkit.base import arguments
from toolkit.base.progress import ProgressBar, ProgressOption
from toolkit.base.times import Time, milliseconds, parse_time
from toolkit.loading.load import Load, LoadState, Plan
from toolkit.loading.options import LoadOptions
from toolkit.loading.paging import walk
from toolkit.service.failures import PAGE_LIMIT, list_log_page
from toolkit.service.pages import Page
from toolkit.service.settings import Service, endpoint_of
from toolkit.service.transport import Transport
from toolkit.tables.lenient_rows import decode_events, decode_runs
from toolkit.tables.schemas import EVENTS, RUNS


@dataclass(frozen=True)
class _Log:
    """A log: how to list and decode it, the key of a row, and the states that a filter can name."""

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
    tuple(EVENTS.names),  # an event has no id, so two events are the same if all columns are equal
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
    """Load the log of workflow runs, with their times and results.

    Parameters
    ----------
    service : Service
        From `connect`.
    since, until : time, optional
        Range of the creation times. See `load_failures` for the formats.
    state : str or iterable of str
        One or more of RUN_STARTED, RUN_SUCCESS, RUN_FAILED and RUN_CANCELED.
    workflow_url, workflow_run_id, label, flow_control_key, caller_ip : str or iterable of str
        One or more values each. The service compares all filters.
    limit : int, optional
        Maximum number of runs. In practice, the newest come first.
    reveal : bool
        If True, URLs stay as received, secrets included.
    progress : bool or callable, optional
        As in `load_failures`.

    Returns
    -------
    pandas.DataFrame
        One row per run; ``workflow_run_id`` is unique. Columns: ``workflow_run_id``, ``workflow_url``,
        ``state`` (RUN_STARTED, RUN_SUCCESS, RUN_FAILED, RUN_CANCELED, others as received), ``dlq_id`` (str),
        ``created_at``, ``completed_at`` (datetime64[ms, UTC], null during the run), ``labels`` (JSON),
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
    return _open(
        service, _RUNS, since, until, state, filters, options, reveal=reveal
    ).frame()


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
    """Load the log of message events: accepted, tried, retried, delivered, failed.

    Parameters
    ----------
    service : Service
        From `connect`.
    since, until : time, optional
        Range of the event times. See `load_failures` for the formats.
    state : str or iterable of str
        One or more of CREATED, ACTIVE, RETRY, ERROR, IN_PROGRESS, DELIVERED, FAILED, CANCEL_REQUESTED and
        CANCELED (CANCELLED in the documentation of the service).
    message_id, url, label, topic_name, schedule_id, queue_name, flow_control_key : str or iterable of str
        One or more values each. The service compares all filters. `url` is the exact destination.
    workflow_run_id : str or iterable of str
        Runs whose messages (steps and calls) are loaded. If the service does not filter by run, you can load
        the messages by id: ``message_id=explode_steps(runs)["message_id"]``.
    limit : int, optional
        Maximum number of events. In practice, the newest come first.
    reveal : bool
        If True, header values and URLs stay as received, secrets included.
    progress : bool or callable, optional
        As in `load_failures`.

    Returns
    -------
    pandas.DataFrame
        One row per event, str unless noted: ``time`` (datetime64[ms, UTC]), ``message_id``, ``state``,
        ``url``, ``response_status`` (Int64), ``error`` (error of the attempt, masked), ``retried`` and
        ``max_retries`` (Int64), ``next_delivery_time`` (of a retry), ``workflow_run_id``, ``labels`` (JSON),
        ``headers``, ``body``, ``body_base64``, ``response_headers``, ``response_body``,
        ``response_body_base64`` (as in `load_failures`), ``extra`` (JSON of everything else), ``method``,
        ``created_at`` (of the message), ``topic_name``, ``endpoint_name``, ``queue_name``, ``schedule_id``,
        ``flow_control_key``, ``callback``, ``failure_callback``, ``caller_ip``, ``label``. The receipt is in
        ``attrs``. Events that are equal in every column count as one event that was read twice, and the
        receipt records this.

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
    return _open(
        service, _EVENTS, since, until, state, filters, options, reveal=reveal
    ).frame()


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
    """Return a load of a log. `filters` are the values of the other filters by argument."""
    parameters = _parameters(log, since, until, state, filters)
    endpoint = endpoint_of(service, "queue")
    redactor = None
    if not arguments.flag("reveal", reveal):
        redactor = service.redactor
    count = (
        log.page_limit if options.limit is None else min(options.limit, log.page_limit)
    )
    pairs: list[tuple[str, str]] = []
    for name, values in parameters.items():
        pairs += [(name, value) for value in values]

    def tables(load_state: LoadState) -> Generator[pa.Table]:
        with Transport.to(service, "queue") as transport:

            def fetch(cursor: str | None) -> Page:
                return list_log_page(
                    transport,
                    log.name,
                    cursor=cursor,
                    count=count,
                    filters=tuple(pairs),
                )

            for page in walk(fetch, what=log.what):
                load_state.count(page)
                yield log.decode(page.rows, redactor=redactor)

    mask = service.redactor.text
    masked = {
        name: list(map(mask, values)) for name, values in parameters.items() if values
    }
    plan = Plan(
        what=log.name,
        source=service.redactor.url(endpoint.url),
        scope={"revealed": reveal, **masked},
        schema=log.schema,
        key=log.key,
        limit=options.limit,
        assumptions=(
            f"a cursor keeps its position in the log while {log.name} come and go",
        ),
    )
    return Load(
        plan,
        tables,
        lambda: ProgressBar(options.progress, title=log.name, unit=log.name),
    )


def _parameters(
    log: _Log,
    since: Time | None,
    until: Time | None,
    state: str | Iterable[str],
    filters: Mapping[str, str | Iterable[str]],
) -> dict[str, list[str]]:
    """Return the values of each request parameter. For example, ``message_id`` becomes ``messageId``."""
    parameters: dict[str, list[str]] = {}
    if since is not None:
        parameters["fromDate"] = [str(milliseconds(parse_time(since, name="since")))]
    if until is not None:
        parameters["toDate"] = [str(milliseconds(parse_time(until, name="until")))]
    states = arguments.texts("state", state)
    parameters["state"] = [
        arguments.choice("state", item, log.states) for item in states
    ]
    for argument, values in filters.items():
        texts = arguments.texts(argument, values)
        parameters[_camel_case(argument)] = [
            arguments.unmasked(argument, text) for text in texts
        ]
    if len(parameters.get("messageId", ())) > 1:
        # the service has a parameter of its own for several messages
        parameters["messageIds"] = parameters.pop("messageId")
    return parameters


def _camel_case(argument: str) -> str:
    first, *others = argument.split("_")
    return first + "".join(map(str.title, others))
