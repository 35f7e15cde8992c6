"""The event log of messages as a frame: each attempt of a delivery, over time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import pandas as pd

from toolkit import arguments
from toolkit.loading.log_pages import Log, exact, open_log, span_filters
from toolkit.loading.options import ProgressOption
from toolkit.settings.service import Service
from toolkit.tables.lenient_rows import decode_events
from toolkit.tables.schemas import EVENTS
from toolkit.times import Time

EVENT_STATES: Final = (
    "CREATED", "ACTIVE", "RETRY", "ERROR", "IN_PROGRESS", "DELIVERED", "FAILED", "CANCEL_REQUESTED",
    "CANCELED", "CANCELLED",
)  # fmt: skip
# an event has no id: what came twice is equal in everything
_EVENTS: Final = Log(
    "events", "events of messages", decode_events, EVENTS, key=tuple(EVENTS.names), page_limit=1000
)


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
    IncompleteLoadError
        When the load ends early; ``.partial`` holds what was read.
    ServiceError
        When a request fails before anything was read.
    InputError
        For an argument that cannot be used; it names the argument.

    Examples
    --------
    >>> events = load_events(service, since="7d", state=["RETRY", "FAILED"], progress=False)
    >>> events["state"].isin(["RETRY", "FAILED"]).all()
    np.True_
    """
    wanted = {
        **span_filters(since, until),
        "state": [arguments.choice("state", item, EVENT_STATES) for item in arguments.texts("state", state)],
        "messageIds": exact("message_id", message_id),
        "workflowRunId": exact("workflow_run_id", workflow_run_id),
        "url": exact("url", url),
        "label": exact("label", label),
        "topicName": exact("topic_name", topic_name),
        "scheduleId": exact("schedule_id", schedule_id),
        "queueName": exact("queue_name", queue_name),
        "flowControlKey": exact("flow_control_key", flow_control_key),
    }
    if len(wanted["messageIds"]) == 1:
        wanted["messageId"] = wanted.pop("messageIds")
    return open_log(service, _EVENTS, wanted, limit=limit, reveal=reveal, progress=progress).frame()
