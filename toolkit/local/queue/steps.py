"""The history of workflow runs: finished and planned steps, in order of arrival.

A step is stored as its endpoint posted it. Parallel steps are stored twice: a plan for each (`stepId` 0 and
the id of the planned step as `targetStep`), whose delivery makes the endpoint run it, then the results.
Every step is delivered with the history up to itself: the last item tells an endpoint what to run, however
the others proceed meanwhile.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from toolkit.local.queue.database import Transaction
from toolkit.local.queue.messages import Message


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


def position_of(body: bytes) -> StepPosition:
    """The position that a posted step names.

    >>> position_of(b'{"stepId": 0, "targetStep": 3, "concurrent": 2}').name, position_of(b"no JSON").name
    ('plan 3', None)
    """
    try:
        return _POSITION.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return StepPosition()


def append(tx: Transaction, message: Message) -> Message:
    """Add a step after those that are already there; returns the message with its position."""
    (last,) = tx.rows("SELECT max(position) FROM steps WHERE run_id = ?", message.run_id)[0]
    message = msgspec.structs.replace(message, step=0 if last is None else last + 1)
    name = position_of(message.body).name if message.step else None
    row = (message.run_id, message.step, message.id, name, message.body)
    tx.execute("INSERT INTO steps (run_id, position, message_id, name, body) VALUES (?, ?, ?, ?, ?)", *row)
    return message


def posted_before(tx: Transaction, run_id: str | None, body: bytes) -> str | None:
    """The message that brought the same step before: an endpoint that is called twice posts it twice."""
    name = position_of(body).name
    if name is None:
        return None
    row = tx.first("SELECT message_id FROM steps WHERE run_id = ? AND name = ?", run_id, name)
    return row["message_id"] if row else None


def steps(tx: Transaction, run_id: str | None, *, until: int | None = None) -> list[tuple[str, bytes]]:
    """Message id and body of the steps of a run in order, its start first, up to a position or all."""
    rows = tx.rows(
        "SELECT message_id, body FROM steps WHERE run_id = ? AND position <= ? ORDER BY position",
        run_id,
        2**62 if until is None else until,
    )
    return [(row["message_id"], row["body"]) for row in rows]


def copy(tx: Transaction, old_run: str | None, new_run: str | None) -> None:
    """Append the steps of another run to this run's own start."""
    tx.execute(
        "INSERT INTO steps (run_id, position, message_id, name, body) "
        "SELECT ?, position, message_id, name, body FROM steps WHERE run_id = ? AND position > 0",
        new_run,
        old_run,
    )


def has_result(tx: Transaction, message: Message) -> bool:
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


def shown(tx: Transaction, run_id: str) -> list[dict[str, Any]]:
    """The steps of a run as the run log shows them: groups of one, or of those that ran in parallel."""
    groups: list[dict[str, Any]] = []
    for message_id, body in steps(tx, run_id):
        if not groups:
            first = {"stepName": "init", "stepType": "Initial", "concurrent": 1}
            groups.append({"steps": [_log(message_id, first)], "type": "sequential"})
            continue
        try:
            step = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            step = None
        if not isinstance(step, dict) or step.get("stepId") == 0:
            continue  # a plan shows by its result
        entry = _log(message_id, step)
        last = groups[-1]
        parallel = isinstance(step.get("concurrent"), int) and step["concurrent"] > 1
        capacity = parallel and last["type"] == "parallel" and len(last["steps"]) < step["concurrent"]
        if capacity:
            last["steps"].append(entry)
        else:
            groups.append({"steps": [entry], "type": "parallel" if parallel else "sequential"})
    return groups


def _log(message_id: str, step: dict[str, Any]) -> dict[str, Any]:
    names = ("stepId", "stepName", "stepType", "out", "concurrent", "waitEventId", "waitTimeout")
    entry = {name: step[name] for name in names if step.get(name) is not None}
    return {**entry, "callType": "step", "messageId": message_id, "state": "STEP_SUCCESS"}
