"""Accepting messages; how workflow runs start, and their history: finished and planned steps, in order.

Parallel steps are stored twice: a plan for each (`stepId` 0 and the id of the planned step as `targetStep`),
whose delivery makes the endpoint run it, then the results. Every step is delivered with the history up to
itself: the last item tells an endpoint what to run, however the others proceed meanwhile.
"""

from __future__ import annotations

import json
from typing import Any, Final, Literal, NotRequired, TypeAlias, TypedDict

import msgspec
from msgspec.structs import replace

from toolkit.local.api import ApiError, invalid
from toolkit.local.queue.database import QueueWrite
from toolkit.local.queue.messages import (
    Message,
    Settings,
    created_details,
    decode_message,
    given_settings,
    header_lists,
    new_id,
)
from toolkit.local.queue.publishing import Publish, read_publish


class Invocation(msgspec.Struct, frozen=True, rename="camel"):
    """The body of an invocation: the new run's payload, and where the invoking run resumes."""

    workflow_url: str
    step: dict[str, Any]
    headers: dict[str, list[str]]
    body: str = ""


class StepPosition(msgspec.Struct, frozen=True, rename="camel"):
    """The position of a posted step in its run."""

    step_id: int | None = None
    target_step: int | None = None
    concurrent: int | None = None

    @property
    def name(self) -> str | None:
        """Its key within the run; None when it has none."""
        if self.step_id is None:
            return None
        return f"plan {self.target_step}" if self.step_id == 0 else f"result {self.step_id}"


# created here: msgspec's first inspection of a struct is not thread-safe
_POSITION: Final = msgspec.json.Decoder(StepPosition)
_INVOCATION: Final = msgspec.json.Decoder(Invocation)
_STEP: Final = msgspec.json.Decoder(dict[str, Any])
_INHERITED: Final = ("timeout_ms", "retries", "retry_delay", "labels", "flow_key")
_MALFORMED: Final = (msgspec.DecodeError, UnicodeDecodeError)


def position_of(body: bytes) -> StepPosition:
    """The position that a posted step names; one without a name for a body that is not a step."""
    try:
        return _POSITION.decode(body)
    except _MALFORMED:
        return StepPosition()


def append(tx: QueueWrite, message: Message) -> Message:
    """Add a step after those that are already there; returns the message with its position."""
    last = tx.value("SELECT max(position) FROM steps WHERE run_id = ?", message.run_id)
    message = replace(message, step=0 if last is None else last + 1)
    name = position_of(message.body).name if message.step else None
    row = {"run_id": message.run_id, "position": message.step, "message_id": message.id}
    tx.insert("steps", **row, name=name, body=message.body)
    return message


def known_step(tx: QueueWrite, run_id: str | None, body: bytes) -> str | None:
    """The message that brought the same step before: an endpoint that is called twice posts it twice."""
    sql = "SELECT message_id FROM steps WHERE run_id = ? AND name = ?"
    known: str | None = tx.value(sql, run_id, position_of(body).name)
    return known


def steps(tx: QueueWrite, run_id: str | None, *, until: int | None = None) -> list[tuple[str, bytes]]:
    """Message id and body of the steps of a run in order, its start first, up to a position or all."""
    sql = "SELECT message_id, body FROM steps WHERE run_id = ? AND position <= ? ORDER BY position"
    return [tuple(row) for row in tx.rows(sql, run_id, 2**62 if until is None else until)]


def has_result(tx: QueueWrite, message: Message) -> bool:
    """Whether the result of the step that this message triggers is in the history already."""
    if not message.step:
        return False
    posted = [position_of(body) for _, body in steps(tx, message.run_id)[1:]]
    requested = position_of(message.body)
    if requested.step_id == 0:
        return any(step.step_id == requested.target_step for step in posted)
    return requested.concurrent == 1 and any(
        max(step.step_id or 0, step.target_step or 0) > (requested.step_id or 0) for step in posted
    )


def shown(tx: QueueWrite, run_id: str) -> list[dict[str, Any]]:
    """The steps of a run as the run log shows them: groups of one, or of those that ran in parallel."""
    history = steps(tx, run_id)
    first = {"stepName": "init", "stepType": "Initial", "concurrent": 1}
    groups: list[Any] = [{"steps": [_log(start, first)], "type": "sequential"} for start, _ in history[:1]]
    for message_id, body in history[1:]:
        try:
            step = _STEP.decode(body)
        except _MALFORMED:
            continue
        if step.get("stepId") == 0:
            continue  # a plan shows by its result
        entry, last = _log(message_id, step), groups[-1]
        parallel = isinstance(step.get("concurrent"), int) and step["concurrent"] > 1
        if parallel and last["type"] == "parallel" and len(last["steps"]) < step["concurrent"]:
            last["steps"].append(entry)
        else:
            groups.append({"steps": [entry], "type": "parallel" if parallel else "sequential"})
    return groups


def _log(message_id: str, step: dict[str, Any]) -> dict[str, Any]:
    names = ("stepId", "stepName", "stepType", "out", "concurrent", "waitEventId", "waitTimeout")
    entry = {name: step[name] for name in names if step.get(name) is not None}
    return {**entry, "callType": "step", "messageId": message_id, "state": "STEP_SUCCESS"}


def known_message(tx: QueueWrite, message: Message) -> str | None:
    """The message that started this run or brought this step before: an endpoint called twice posts twice."""
    workflow = message.settings.workflow
    if workflow is None or not workflow.init:
        running_here = running(tx, message.run_id) is not None
        return known_step(tx, message.run_id, message.body) if running_here else None
    row = tx.first("SELECT first FROM runs WHERE id = ?", message.run_id)
    if row and row["first"] is None:
        raise ApiError(
            400, f"run {workflow.run_id[:80]!r} belongs to the imported history; expected a new run id"
        )
    return decode_message(row["first"]).id if row else None


def split_invocation(message: Message) -> tuple[Message, Message | None]:
    """The first message of a new run, and the step for the run that invoked it; None when none did."""
    workflow = message.settings.workflow
    if workflow is None or not workflow.init or not workflow.invoke:
        return message, None
    try:
        invocation = _INVOCATION.decode(message.body)
    except _MALFORMED as error:
        expected = "workflowUrl, step, headers and body"
        raise invalid("body is not an invocation", f"one with {error}", expected) from None
    pairs = [(name, value) for name, values in invocation.headers.items() for value in values]
    back = read_publish(invocation.workflow_url, pairs, b"", prefix=message.prefix)
    if back.settings.workflow is None:
        raise ApiError(400, "headers of the invocation name no run; expected the id of the run that invokes")
    step = replace(
        message,
        settings=back.settings,
        body=json.dumps(invocation.step).encode(),
        callback=None,
        failure_callback=back.failure_callback,
        redact=back.redact,
    )
    return replace(message, body=invocation.body.encode()), step


def first_message(tx: QueueWrite, run_id: str | None) -> Message | None:
    """The message that started a run; None when that did not happen here."""
    first = tx.value("SELECT first FROM runs WHERE id = ?", run_id)
    return decode_message(first) if first else None


def running(tx: QueueWrite, run_id: str | None) -> Message | None:
    """The message that started a run here, when the run is running."""
    first = tx.value("SELECT first FROM runs WHERE id = ? AND state = 'RUN_STARTED'", run_id)
    return decode_message(first) if first else None


def as_step(tx: QueueWrite, message: Message) -> Message:
    """Add the message to its run's history: as its start, or after the steps that are already there."""
    workflow = message.settings.workflow
    if workflow and workflow.init:
        return start_run(tx, message)
    return append(tx, of_run(tx, message))


def of_run(tx: QueueWrite, message: Message) -> Message:
    """The message with the settings of its run's first message where it has none of its own."""
    first = running(tx, message.run_id)
    if first is None:
        raise ApiError(
            404, f"run {str(message.run_id)[:80]!r} is not running; expected a run that was started here"
        )
    own, before = message.settings, first.settings
    has_headers = any(name.lower() != "content-type" for name, _ in own.headers)
    settings = replace(
        own,
        headers=own.headers if has_headers else before.headers,
        flow=own.flow or (None if own.flow_key else before.flow),
        **before.given(*_INHERITED) | own.given(*_INHERITED),
    )
    return replace(
        message,
        settings=settings,
        failure_callback=message.failure_callback or first.failure_callback,
        redact=message.redact or first.redact,
    )


def start_run(tx: QueueWrite, first: Message) -> Message:
    """Store a new run and its first message, whose body is the run's payload."""
    first = replace(first, step=0)
    workflow = first.settings.workflow
    tx.insert(
        "runs",
        id=first.run_id,
        url=workflow.url if workflow else first.settings.url,
        state="RUN_STARTED",
        created_at=first.created_at,
        labels=msgspec.json.encode(first.settings.labels).decode(),
        caller_ip=first.caller_ip,
        flow_key=first.settings.flow_key,
        first=first.encode(),
    )
    return append(tx, first)


MAX_QUEUES: Final = 1000
DEDUPLICATION_MS: Final = 10 * 60 * 1000

EventState: TypeAlias = Literal[
    "CREATED", "ACTIVE", "ERROR", "RETRY", "DELIVERED", "FAILED", "CANCEL_REQUESTED", "CANCELED"
]

REQUESTED: Final[tuple[EventState, ...]] = ("CANCEL_REQUESTED", "CANCELED")
"""The events of a message that is cancelled by a request."""


class PublishedMessage(TypedDict):
    """A message that was accepted."""

    messageId: str
    url: NotRequired[str]
    deduplicated: NotRequired[bool]
    workflowRunId: NotRequired[str]


def accept(tx: QueueWrite, publish: Publish, *, caller_ip: str) -> PublishedMessage:
    """Accept one publish; raises `ApiError` with 404 for a step of a run that is not running (any more)."""
    accepted: PublishedMessage = {"messageId": ""}
    if publish.origin.topic:  # several messages of one publish are told apart by their URLs
        accepted["url"] = publish.settings.url
    if publish.deduplication:
        sql = "SELECT message_id FROM deduplication WHERE name = ? AND expires_at > ?"
        if known := tx.value(sql, publish.deduplication, tx.now_ms):
            return {**accepted, "messageId": known, "deduplicated": True}
    workflow = publish.settings.workflow
    to_third_party = workflow is not None and workflow.call_type.lower() == "tocallback"
    message = publish.message(
        "message" if workflow is None else "call" if to_third_party else "step",
        created_at=tx.now_ms,
        not_before=tx.now_ms + first_delay(tx, publish.settings),
        caller_ip=caller_ip,
    )
    if message.kind == "step":
        if before := known_message(tx, message):
            return {"messageId": before, "deduplicated": True}
        message, invoker = split_invocation(message)
        message = as_step(tx, message)
        if invoker:
            tx.execute("UPDATE runs SET invoker = ? WHERE id = ?", invoker.encode(), message.run_id)
    if publish.deduplication:
        row = (publish.deduplication, message.id, tx.now_ms + DEDUPLICATION_MS)
        tx.execute("INSERT OR REPLACE INTO deduplication VALUES (?, ?, ?)", *row)
    enqueue(tx, message)
    accepted["messageId"] = message.id
    if message.run_id:
        accepted["workflowRunId"] = message.run_id
    return accepted


def ensure_queue(tx: QueueWrite, name: str) -> None:
    """Make a named queue, unless it is there."""
    if tx.first("SELECT 1 FROM queues WHERE name = ?", name) is None:
        times = {"created_at": tx.now_ms, "updated_at": tx.now_ms}
        tx.insert("queues", name=name, parallelism=1, paused=False, **times)
        tx.check_count("queues", MAX_QUEUES, "named queues")


def enqueue(tx: QueueWrite, message: Message, *, joins_at: int | None = None) -> None:
    """Store a message where the scheduler finds it; one of a named queue takes its place at `joins_at`."""
    queue = message.origin.queue
    if queue:
        ensure_queue(tx, queue)
    tx.insert(
        "messages",
        id=message.id,
        due_at=message.not_before,
        run_id=message.run_id,
        flow_key=None if message.kind == "wait" else message.settings.flow_key,
        about=message.about,
        event_id=message.waiting.event_id if message.waiting else None,
        queue=queue or None,
        joins_at=(message.not_before if joins_at is None else joins_at) if queue else None,
        spec=message.encode(),
    )
    record(tx, message, "CREATED", **created_details(message))


def record(tx: QueueWrite, message: Message, state: EventState, **more: Any) -> None:
    """Store one event; `more` are further fields of its entry, by their names in JSON."""
    settings = message.settings
    optional = {
        "workflowRunId": message.run_id,
        "labels": list(settings.labels),
        "timeout": settings.timeout_ms and settings.timeout_ms // 1000,
        **message.origin.shown(),
        **given_settings(settings, message.callback, message.failure_callback),
    }
    if message.callback:
        optional["callbackHeaders"] = header_lists(message.callback.headers)
    if message.failure_callback:
        optional["failureCallbackHeaders"] = header_lists(message.failure_callback.headers)
    entry = {
        "time": tx.now_ms,
        "messageId": message.id,
        "state": state,
        "url": settings.url,
        "method": message.method,
        "maxRetries": message.max_retries,
        "createdAt": message.created_at,
        "callerIP": message.caller_ip,
        **{name: value for name, value in optional.items() if value},
        **more,
    }
    about = {"message_id": message.id, "run_id": message.run_id, "state": state, "url": settings.url}
    tx.insert("events", time=tx.now_ms, **about, entry=json.dumps(entry))


def fresh_copy(tx: QueueWrite, message: Message) -> Message:
    """The message under a new id, due now."""
    return replace(message, id=new_id("msg"), created_at=tx.now_ms, not_before=tx.now_ms)


def first_delay(tx: QueueWrite, settings: Settings) -> int:
    """Milliseconds until the first delivery: Not-Before wins over Delay; the time factor divides them."""
    delay = settings.delay_ms or 0
    if settings.not_before is not None:
        delay = max(0, settings.not_before - tx.now_ms)
    return round(delay / tx.factor)
