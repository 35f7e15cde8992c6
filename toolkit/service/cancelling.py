"""Cancel exact messages and workflow runs, and look up the state of messages that could not be cancelled."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any, Final, Literal
from urllib.parse import quote

from toolkit.base.errors import NotFoundError, UnexpectedResultWarning
from toolkit.base.members import read_json
from toolkit.service.failures import Ids, confirmed_ids, list_log_page, one_by_one
from toolkit.service.responses import Request
from toolkit.service.settings import Service, endpoint_of
from toolkit.service.transport import Transport

CANCELLED: Final = "cancelled"
NOT_KNOWN: Final = "not known"
_OUTCOMES: Final = {
    "CANCELED": CANCELLED, "CANCELLED": CANCELLED, "CANCEL_REQUESTED": CANCELLED, "RUN_CANCELED": CANCELLED,
    "DELIVERED": "delivered", "FAILED": "failed", "RUN_SUCCESS": "succeeded", "RUN_FAILED": "failed",
}  # fmt: skip


def cancel_messages(
    service: Service, message_ids: Ids, *, confirm: bool = False
) -> dict[str, str]:
    """Cancel exactly these messages. Messages that have not been delivered yet are not delivered.

    One request is sent per message, never one with a filter, so that messages published meanwhile are not
    affected. To cancel by a filter, load the matching events, look at them, and pass the frame.

    Parameters
    ----------
    service : Service
        From `connect`.
    message_ids : DataFrame, str or iterable of str
        Exact ids, or a frame with a ``message_id`` column, for example from `load_events`.
    confirm : bool
        Must be True.

    Returns
    -------
    dict
        The state of each message by id: "cancelled"; "delivered" or "failed" if it was too late, according to
        the log; "not known" if the log does not have the message. A message that is being delivered is
        cancelled, and may have arrived.

    Raises
    ------
    InputError
        Without ``confirm=True``, without ids, for a frame without ``message_id``, or for invalid ids.
    ServiceError
        If a request fails. A note on the error lists the messages that were cancelled so far, and the
        messages with unknown state.

    Warns
    -----
    UnexpectedResultWarning
        If no message is cancelled.

    Examples
    --------
    >>> sent = tk.publish(service, "http://127.0.0.1:9/later", delay="1h")
    >>> tk.cancel_messages(service, sent.message_id, confirm=True) == {sent.message_id: "cancelled"}
    True
    """
    endpoint_of(service, "queue")
    nouns = ("message", "messages")
    doing, ids = confirmed_ids(
        message_ids,
        "cancelling",
        nouns,
        name="message_ids",
        column="message_id",
        confirm=confirm,
    )
    cancel = partial(_cancelled, log="events", path="/v2/messages")

    return _warned(doing, one_by_one(service, ids, cancel))


def cancel_runs(
    service: Service, workflow_run_ids: Ids, *, confirm: bool = False
) -> dict[str, str]:
    """Cancel exactly these workflow runs. Their next steps do not run.

    The state of each run is read first, and only running ones are cancelled. You cannot cancel by filter.
    Instead, pass a frame: ``load_runs(service, filter=RunFilter(state="RUN_STARTED"))``.

    Parameters
    ----------
    service : Service
        From `connect`.
    workflow_run_ids : DataFrame, str or iterable of str
        Exact ids, or a frame with a ``workflow_run_id`` column, for example from `load_runs`.
    confirm : bool
        Must be True.

    Returns
    -------
    dict
        The state of each run by id: "cancelled"; "succeeded" or "failed" if it had ended; "not known" if the
        run log does not have the run.

    Raises
    ------
    InputError, ServiceError
        As in `cancel_messages`.

    Warns
    -----
    UnexpectedResultWarning
        If no run is cancelled.

    Examples
    --------
    >>> tk.cancel_runs(service, ["wfr_1", "wfr_2"])
    Traceback (most recent call last):
    ...
    toolkit.errors.InputError: cancelling 2 workflow runs: got no confirmation; expected confirm=True. ...
    """
    endpoint_of(service, "queue")
    name, column, nouns = (
        "workflow_run_ids",
        "workflow_run_id",
        ("workflow run", "workflow runs"),
    )
    doing, ids = confirmed_ids(
        workflow_run_ids, "cancelling", nouns, name=name, column=column, confirm=confirm
    )

    def cancel(transport: Transport, run_id: str) -> str:
        state = _last_state(transport, "runs", run_id)
        if state in (CANCELLED, NOT_KNOWN, "succeeded", "failed"):
            return state

        query = (("cancel", "true"),)
        return _cancelled(
            transport, run_id, log="runs", path="/v2/workflows/runs", query=query
        )

    return _warned(doing, one_by_one(service, ids, cancel))


def _cancelled(
    transport: Transport,
    value: str,
    *,
    log: Literal["runs", "events"],
    path: str,
    query: tuple[tuple[str, str], ...] = (),
) -> str:
    path = f"{path}/{quote(value, safe='')}"
    try:
        transport.send(
            Request(
                doing=f"cancelling {value!r}", method="DELETE", path=path, query=query
            )
        )
    except NotFoundError:  # it has ended, or the response of an earlier try was lost
        return _last_state(transport, log, value)

    return CANCELLED


def _last_state(
    transport: Transport, log: Literal["runs", "events"], value: str
) -> str:
    """Return the last state of a run or message in the log."""
    name, field, state, time = {
        "runs": (
            "workflowRunId",
            "workflowRunId",
            "workflowState",
            "workflowRunCreatedAt",
        ),
        "events": ("messageId", "messageId", "state", "time"),
    }[log]
    page = list_log_page(transport, log, cursor=None, filters=((name, value),))
    rows: list[Any] = [
        row
        for row in read_json(page.rows)
        if isinstance(row, dict) and row.get(field) == value
    ]
    if not rows:
        return NOT_KNOWN

    # by time, as no order of the log is promised
    last = max(rows, key=lambda row: row[time] if isinstance(row.get(time), int) else 0)
    return _OUTCOMES.get(last.get(state), str(last.get(state)).lower())


def _warned(doing: str, outcomes: dict[str, str]) -> dict[str, str]:
    if CANCELLED not in outcomes.values():
        states = ", ".join(sorted(set(outcomes.values())))
        warnings.warn(
            f"{doing}: none was cancelled; they are {states}.",
            UnexpectedResultWarning,
            stacklevel=3,
        )

    return outcomes
