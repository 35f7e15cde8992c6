"""Accept messages, start workflow runs, and keep the history of each run.

A history contains the finished and planned steps in order. Parallel steps are stored twice. First come the
plans, one per step: `stepId` is 0, and `targetStep` is the id of the planned step. Delivering a plan makes
the endpoint run the step, and the endpoint posts the result.
For example, two parallel steps are stored as::

    position  name        body
    0                     payload of the run
    1         plan 1      {"stepId": 0, "targetStep": 1, "concurrent": 2}
    2         plan 2      {"stepId": 0, "targetStep": 2, "concurrent": 2}
    3         result 2    {"stepId": 2, "out": …, "concurrent": 2}
    4         result 1    {"stepId": 1, "out": …, "concurrent": 2}

A step is delivered with the history up to the step itself. The last item tells the endpoint which step to
run, even if the other steps proceed in the meantime.
"""

from __future__ import annotations

import json
from typing import Any, Final, Literal, NotRequired, TypeAlias, TypedDict

import msgspec
from msgspec.structs import replace

from toolkit_service.api import ApiError, invalid
from toolkit_service.queue.database import QueueWrite
from toolkit_service.queue.messages import (
    Kind,
    Message,
    Settings,
    created_details,
    decode_message,
    given_settings,
    header_lists,
    new_id,
)
from toolkit_service.queue.publishing import Publish, read_publish


class Invocation(msgspec.Struct, frozen=True, rename="camel"):
    """The body of an invocation: the payload of the new run, and where the invoking run resumes."""

    workflow_url: str
    step: dict[str, Any]
    headers: dict[str, list[str]]
    body: str = ""


class StepPosition(msgspec.Struct, frozen=True, rename="camel"):
    """The position of a posted step in the run."""

    step_id: int | None = None
    target_step: int | None = None
    concurrent: int | None = None

    @property
    def name(self) -> str | None:
        """Return the key of the step within the run, for example ``result 3``; None if it has no id."""
        if self.step_id is None:
            return None
        if self.step_id == 0:
            return f"plan {self.target_step}"

        return f"result {self.step_id}"

    @property
    def highest_id(self) -> int:
        """Return the id of the finished or planned step; 0 without one."""
        return max(self.step_id or 0, self.target_step or 0)


# created here: msgspec's first inspection of a struct is not thread-safe
_POSITION: Final = msgspec.json.Decoder(StepPosition)
_INVOCATION: Final = msgspec.json.Decoder(Invocation)
_STEP: Final = msgspec.json.Decoder(dict[str, Any])
_INHERITED: Final = ("timeout_ms", "retries", "retry_delay", "labels", "flow_key")
_MALFORMED: Final = (msgspec.DecodeError, UnicodeDecodeError)


def position_of(body: bytes) -> StepPosition:
    """Return the position that a posted step names. If the body is not a step, it has no ids."""
    try:
        return _POSITION.decode(body)
    except _MALFORMED:
        return StepPosition()


def append(tx: QueueWrite, message: Message) -> Message:
    """Add a step at the end of the history of the run, and return the message with the new position."""
    last_position = tx.value(
        "SELECT max(position) FROM steps WHERE run_id = ?", message.run_id
    )
    if last_position is None:
        # the first message of a run is no step: the body is the payload
        position, name = 0, None
    else:
        position, name = last_position + 1, position_of(message.body).name

    tx.insert(
        "steps",
        run_id=message.run_id,
        position=position,
        message_id=message.id,
        name=name,
        body=message.body,
    )
    return replace(message, step=position)


def known_step(tx: QueueWrite, run_id: str | None, body: bytes) -> str | None:
    """Return the id of the message that brought the same step before, if one did.

    An endpoint that is called twice posts the step twice.
    """
    sql = "SELECT message_id FROM steps WHERE run_id = ? AND name = ?"
    known: str | None = tx.value(sql, run_id, position_of(body).name)
    return known


def steps(
    tx: QueueWrite, run_id: str | None, *, until: int | None = None
) -> list[tuple[str, bytes]]:
    """Return message id and body of the steps of a run, in order, the payload first.

    If `until` is given, the list ends at this position.
    """
    sql = "SELECT message_id, body FROM steps WHERE run_id = ? AND position <= ? ORDER BY position"
    last_position = _BEYOND_ALL if until is None else until
    return [tuple(row) for row in tx.rows(sql, run_id, last_position)]


_BEYOND_ALL: Final = 2**62  # no history is that long


def has_result(tx: QueueWrite, message: Message) -> bool:
    """Return True if the history contains the result of the step that this message triggers."""
    if not message.step:
        return False

    # A parallel step is posted twice: a plan (stepId 0, targetStep 3) triggers it, and the result (stepId 3)
    # follows. A sequential step is posted once, with the result.
    requested = position_of(message.body)
    history = steps(tx, message.run_id)
    # without the payload, which is the first item
    posted = [position_of(body) for _, body in history[1:]]

    if requested.step_id == 0:
        # a plan triggers the step that it names
        result_ids = {step.step_id for step in posted}
        return requested.target_step in result_ids

    if requested.concurrent != 1:
        # after the result of a parallel step, the history does not tell which step follows
        return False

    # the result of a sequential step triggers the next one
    highest_id = max([step.highest_id for step in posted], default=0)
    return highest_id > (requested.step_id or 0)


def shown(tx: QueueWrite, run_id: str) -> list[dict[str, Any]]:
    """Return the steps of a run for the run log, in groups: steps that ran in parallel are one group."""
    history = steps(tx, run_id)
    if not history:
        return []

    first_message_id, _ = history[0]
    first = _log(
        first_message_id, {"stepName": "init", "stepType": "Initial", "concurrent": 1}
    )
    groups: list[dict[str, Any]] = [{"steps": [first], "type": "sequential"}]

    for message_id, body in history[1:]:
        try:
            step = _STEP.decode(body)
        except _MALFORMED:
            continue

        # a plan is not listed, only the result
        if step.get("stepId") != 0:
            _add_to_groups(groups, step, _log(message_id, step))

    return groups


def _add_to_groups(
    groups: list[dict[str, Any]], step: dict[str, Any], entry: dict[str, Any]
) -> None:
    """Add the log entry of a step to the last group if that waits for parallel steps, else to a new one."""
    concurrent = step.get("concurrent")
    if not isinstance(concurrent, int) or concurrent <= 1:
        groups.append({"steps": [entry], "type": "sequential"})
        return

    last_group = groups[-1]
    is_incomplete = (
        last_group["type"] == "parallel" and len(last_group["steps"]) < concurrent
    )
    if is_incomplete:
        last_group["steps"].append(entry)
    else:
        groups.append({"steps": [entry], "type": "parallel"})


def _log(message_id: str, step: dict[str, Any]) -> dict[str, Any]:
    names = (
        "stepId",
        "stepName",
        "stepType",
        "out",
        "concurrent",
        "waitEventId",
        "waitTimeout",
    )
    entry = {name: step[name] for name in names if step.get(name) is not None}

    return {
        **entry,
        "callType": "step",
        "messageId": message_id,
        "state": "STEP_SUCCESS",
    }


def known_message(tx: QueueWrite, message: Message) -> str | None:
    """Return the id of the message that started this run, or brought this step, before.

    An endpoint that is called twice posts the message twice.
    """
    workflow = message.settings.workflow
    if workflow is None or not workflow.init:
        if running(tx, message.run_id) is None:
            return None
        return known_step(tx, message.run_id, message.body)

    row = tx.first("SELECT first FROM runs WHERE id = ?", message.run_id)
    if row is None:
        return None
    if row["first"] is None:
        problem = f"run {workflow.run_id[:80]!r} belongs to the imported history"
        raise ApiError(400, f"{problem}; expected a new run id")

    return decode_message(row["first"]).id


def split_invocation(message: Message) -> tuple[Message, Message | None]:
    """Return the first message of a new run, and the step for the run that invoked it, if one did."""
    workflow = message.settings.workflow
    if workflow is None or not workflow.init or not workflow.invoke:
        return message, None

    try:
        invocation = _INVOCATION.decode(message.body)
    except _MALFORMED as error:
        expected = "workflowUrl, step, headers and body"
        raise invalid(
            "body is not an invocation", f"a body with the problem {error}", expected
        ) from None

    # the headers describe the step of the invoking run like the headers of a publish
    pairs = []
    for name, values in invocation.headers.items():
        pairs += [(name, header_value) for header_value in values]

    resumed = read_publish(invocation.workflow_url, pairs, b"", prefix=message.prefix)
    if resumed.settings.workflow is None:
        raise ApiError(
            400,
            "headers of the invocation name no run; expected the id of the run that invokes",
        )

    step = replace(
        message,
        settings=resumed.settings,
        body=json.dumps(invocation.step).encode(),
        callback=None,
        failure_callback=resumed.failure_callback,
        redact=resumed.redact,
    )
    return replace(message, body=invocation.body.encode()), step


def first_message(tx: QueueWrite, run_id: str | None) -> Message | None:
    """Return the message that started a run, or None if the run was not started here."""
    return _decoded(tx.value("SELECT first FROM runs WHERE id = ?", run_id))


def running(tx: QueueWrite, run_id: str | None) -> Message | None:
    """Return the message that started a run here, or None if the run is not running."""
    return _decoded(
        tx.value(
            "SELECT first FROM runs WHERE id = ? AND state = 'RUN_STARTED'", run_id
        )
    )


def _decoded(stored: bytes | None) -> Message | None:
    return decode_message(stored) if stored else None


def as_step(tx: QueueWrite, message: Message) -> Message:
    """Add the message to the history of the run, or start the run with it."""
    workflow = message.settings.workflow
    if workflow and workflow.init:
        return start_run(tx, message)

    return append(tx, of_run(tx, message))


def of_run(tx: QueueWrite, message: Message) -> Message:
    """Return the message with settings inherited from the first message of the run.

    For example, a step without Service-Retries is retried as often as the first message.
    """
    first = running(tx, message.run_id)
    if first is None:
        problem = f"run {str(message.run_id)[:80]!r} is not running"
        raise ApiError(404, f"{problem}; expected a run that was started here")

    own, inherited = message.settings, first.settings

    # Content-Type describes the body of this step: alone, it does not replace the headers of the first
    # message.
    headers = inherited.headers
    if any(name.lower() != "content-type" for name, _ in own.headers):
        headers = own.headers

    flow = own.flow
    # limits belong to a key: a step that names a key must also name the limits
    if flow is None and not own.flow_key:
        flow = inherited.flow

    settings = replace(
        own,
        headers=headers,
        flow=flow,
        **inherited.given(*_INHERITED) | own.given(*_INHERITED),
    )

    return replace(
        message,
        settings=settings,
        failure_callback=message.failure_callback or first.failure_callback,
        redact=message.redact or first.redact,
    )


def start_run(tx: QueueWrite, first: Message) -> Message:
    """Store a new run and its first message; the body of the message is the payload of the run."""
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
    "CREATED",
    "ACTIVE",
    "ERROR",
    "RETRY",
    "DELIVERED",
    "FAILED",
    "CANCEL_REQUESTED",
    "CANCELED",
]

REQUESTED: Final[tuple[EventState, ...]] = ("CANCEL_REQUESTED", "CANCELED")
"""The events of a message that a request cancels."""


class PublishedMessage(TypedDict):
    """A message that was accepted."""

    messageId: str
    url: NotRequired[str]
    deduplicated: NotRequired[bool]
    workflowRunId: NotRequired[str]


def accept(tx: QueueWrite, publish: Publish, *, caller_ip: str) -> PublishedMessage:
    """Accept one publish. Raise an `ApiError` with 404 for a step of a run that is not running."""
    # `messageId` is the first field of the response, and is known last
    accepted: PublishedMessage = {"messageId": ""}
    if publish.origin.topic:
        # one publish to a group makes several messages: the URL tells them apart
        accepted["url"] = publish.settings.url

    duplicate_of = _duplicate_of(tx, publish)
    if duplicate_of:
        return {**accepted, "messageId": duplicate_of, "deduplicated": True}

    message = publish.message(
        _kind_of(publish),
        created_at=tx.now_ms,
        not_before=tx.now_ms + first_delay(tx, publish.settings),
        caller_ip=caller_ip,
    )
    if message.kind == "step":
        known = known_message(tx, message)
        if known:
            return {"messageId": known, "deduplicated": True}
        if tx.drops_unknown_steps and _is_of_another_queue(tx, message):
            return {**accepted, "messageId": message.id}
        message = _accept_step(tx, message)

    _remember_deduplication(tx, publish, message)
    enqueue(tx, message)
    accepted["messageId"] = message.id
    if message.run_id:
        accepted["workflowRunId"] = message.run_id
    return accepted


def _is_of_another_queue(tx: QueueWrite, message: Message) -> bool:
    """Return True for a step of a run that is not running here, for example of a replayed failure."""
    workflow = message.settings.workflow
    if workflow is None or workflow.init:
        return False

    return running(tx, message.run_id) is None


def _kind_of(publish: Publish) -> Kind:
    workflow = publish.settings.workflow
    if workflow is None:
        return "message"
    if workflow.call_type.lower() == "tocallback":
        return "call"

    return "step"


def _duplicate_of(tx: QueueWrite, publish: Publish) -> str | None:
    """Return the id of an earlier message with the same deduplication id, if it has not expired."""
    if not publish.deduplication:
        return None

    sql = "SELECT message_id FROM deduplication WHERE name = ? AND expires_at > ?"
    message_id: str | None = tx.value(sql, publish.deduplication, tx.now_ms)
    return message_id


def _remember_deduplication(tx: QueueWrite, publish: Publish, message: Message) -> None:
    if publish.deduplication:
        row = (publish.deduplication, message.id, tx.now_ms + DEDUPLICATION_MS)
        tx.execute("INSERT OR REPLACE INTO deduplication VALUES (?, ?, ?)", *row)


def _accept_step(tx: QueueWrite, message: Message) -> Message:
    """Add a step to the run, or start a run. If a run was invoked, store the step to report to."""
    first_or_step, invoker = split_invocation(message)
    step = as_step(tx, first_or_step)
    if invoker:
        tx.execute(
            "UPDATE runs SET invoker = ? WHERE id = ?", invoker.encode(), step.run_id
        )

    return step


def ensure_queue(tx: QueueWrite, name: str) -> None:
    """Make a named queue, unless it exists."""
    if tx.first("SELECT 1 FROM queues WHERE name = ?", name) is None:
        times = {"created_at": tx.now_ms, "updated_at": tx.now_ms}
        tx.insert("queues", name=name, parallelism=1, paused=False, **times)
        tx.check_count("queues", MAX_QUEUES, "named queues")


def enqueue(tx: QueueWrite, message: Message, *, joins_at: int | None = None) -> None:
    """Store a message for the scheduler.

    `joins_at` is the place of the message in the named queue. If omitted, the due time is the place.
    """
    row: dict[str, Any] = {
        "id": message.id,
        "due_at": message.not_before,
        "run_id": message.run_id,
    }
    row |= {"about": message.about, "spec": message.encode()}
    # a message that waits for an event is not delivered: flow control does not apply to it
    if message.kind != "wait":
        row["flow_key"] = message.settings.flow_key
    if message.waiting:
        row["event_id"] = message.waiting.event_id

    queue_name = message.origin.queue
    if queue_name:
        ensure_queue(tx, queue_name)
        row["queue"] = queue_name
        row["joins_at"] = message.not_before if joins_at is None else joins_at

    tx.insert("messages", **row)
    record(tx, message, "CREATED", **created_details(message))


def record(tx: QueueWrite, message: Message, state: EventState, **more: Any) -> None:
    """Store one event of a message; `more` are further fields of the entry, by their names in JSON."""
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
        optional["failureCallbackHeaders"] = header_lists(
            message.failure_callback.headers
        )

    entry = {
        "time": tx.now_ms,
        "messageId": message.id,
        "state": state,
        "url": settings.url,
        "method": message.method,
        "maxRetries": message.max_retries,
        "createdAt": message.created_at,
        "callerIP": message.caller_ip,
        **{name: detail for name, detail in optional.items() if detail},
        **more,
    }
    tx.insert(
        "events",
        time=tx.now_ms,
        message_id=message.id,
        run_id=message.run_id,
        state=state,
        url=settings.url,
        entry=json.dumps(entry),
    )


def fresh_copy(tx: QueueWrite, message: Message) -> Message:
    """Return the message under a new id, due now."""
    return replace(
        message, id=new_id("msg"), created_at=tx.now_ms, not_before=tx.now_ms
    )


def first_delay(tx: QueueWrite, settings: Settings) -> int:
    """Return the milliseconds until the first delivery, divided by the time factor.

    If both Not-Before and Delay are given, Not-Before applies.
    """
    delay = settings.delay_ms or 0
    if settings.not_before is not None:
        delay = max(0, settings.not_before - tx.now_ms)
    return round(delay / tx.factor)
