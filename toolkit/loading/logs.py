"""Load the logs of the service as frames: workflow runs, and the delivery attempts of messages."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, fields
from typing import Final, Literal

import pandas as pd
import pyarrow as pa

from toolkit.base.arguments import flag, instance
from toolkit.base.former_arguments import groups_former
from toolkit.base.progress import ProgressBar, ProgressOption
from toolkit.base.times import Time, milliseconds, parse_time
from toolkit.filters.logs import EventFilter, RunFilter
from toolkit.loading.load import Load, LoadPlan, LoadState
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
    """A log: how to list and decode it, and the key of a row."""

    name: Literal["runs", "events"]
    what: str
    decode: Callable[..., pa.Table]
    schema: pa.Schema
    key: tuple[str, ...]
    filter: type[EventFilter | RunFilter]
    page_limit: int = PAGE_LIMIT


_RUNS: Final = _Log(
    "runs", "workflow runs", decode_runs, RUNS, ("workflow_run_id",),
    RunFilter,
)  # fmt: skip
_EVENTS: Final = _Log(
    "events", "events of messages", decode_events, EVENTS,
    tuple(EVENTS.names),  # an event has no id, so two events are the same if all columns are equal
    EventFilter,
    page_limit=1000,
)  # fmt: skip


@groups_former("filter", RunFilter, [item.name for item in fields(RunFilter)])
def load_runs(
    service: Service,
    since: Time | None = None,
    *,
    until: Time | None = None,
    filter: RunFilter | None = None,  # noqa: A002 - as in `load_failures`
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
    filter : RunFilter, optional
        If omitted, all runs in the range are loaded.
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
    options = LoadOptions(limit, progress)
    return _open(service, _RUNS, since, until, filter, options, reveal=reveal).frame()


@groups_former("filter", EventFilter, [item.name for item in fields(EventFilter)])
def load_events(
    service: Service,
    since: Time | None = None,
    *,
    until: Time | None = None,
    filter: EventFilter | None = None,  # noqa: A002 - as in `load_failures`
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
    filter : EventFilter, optional
        If omitted, all events in the range are loaded.
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
    >>> events = load_events(service, since="7d", filter=EventFilter(state=["RETRY", "FAILED"]))
    >>> events["state"].isin(["RETRY", "FAILED"]).all()
    np.True_
    """
    options = LoadOptions(limit, progress)
    return _open(service, _EVENTS, since, until, filter, options, reveal=reveal).frame()


def _open(
    service: Service,
    log: _Log,
    since: Time | None,
    until: Time | None,
    filter: EventFilter | RunFilter | None,  # noqa: A002 - as in `load_failures`
    options: LoadOptions,
    *,
    reveal: bool,
) -> Load:
    """Return a load of a log."""
    parameters = _parameters(log, since, until, filter)
    endpoint = endpoint_of(service, "queue")
    redactor = None
    if not flag("reveal", reveal):
        redactor = service.redactor
    count = (
        log.page_limit if options.limit is None else min(options.limit, log.page_limit)
    )
    pairs: list[tuple[str, str]] = []
    for name, values in parameters.items():
        pairs += [(name, value) for value in values]

    def tables(load_state: LoadState) -> Generator[pa.Table]:
        with Transport.to(service, "queue", progress=options.progress) as transport:

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
    plan = LoadPlan(
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
    filter: EventFilter | RunFilter | None,  # noqa: A002 - as in `load_failures`
) -> dict[str, list[str]]:
    """Return the values of each request parameter, by name of the parameter."""
    parameters: dict[str, list[str]] = {}
    if since is not None:
        parameters["fromDate"] = [str(milliseconds(parse_time(since, name="since")))]
    if until is not None:
        parameters["toDate"] = [str(milliseconds(parse_time(until, name="until")))]
    if filter is not None:
        expected = f"a {log.filter.__name__}"
        instance("filter", filter, log.filter, expected)
        parameters |= filter.parameters()

    return parameters
