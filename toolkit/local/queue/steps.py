"""The history of workflow runs: finished and planned steps, in the order in which they came.

A step is kept as its endpoint posted it. Parallel steps come twice: first a plan (`stepId` 0 and the id it
stands for as `targetStep`) for each of them, whose delivery asks the endpoint to run that one, and then their
results. Every step is delivered with the history up to itself, so that an endpoint sees by the last item what
it is asked for, however the others proceed meanwhile.
"""

from __future__ import annotations

import sqlite3
from typing import Any, Final

import msgspec

from toolkit.local.queue.message import Message


class Place(msgspec.Struct, frozen=True, rename="camel"):
    """What a posted step says about where it belongs."""

    step_id: int | None = None
    target_step: int | None = None
    concurrent: int | None = None

    @property
    def name(self) -> str | None:
        """What tells it from all other steps of its run; None when it does not say."""
        if self.step_id is None:
            return None
        return f"plan {self.target_step}" if self.step_id == 0 else f"result {self.step_id}"


# made here, because the first look at a struct is not safe when several threads take it at once
_PLACE: Final = msgspec.json.Decoder(Place)


def place_of(body: bytes) -> Place:
    """Where a posted step belongs.

    >>> place_of(b'{"stepId": 0, "targetStep": 3, "concurrent": 2}').name, place_of(b"odd").name
    ('plan 3', None)
    """
    try:
        return _PLACE.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Place()


def append(connection: sqlite3.Connection, message: Message) -> Message:
    """Put a step behind those that are already there; gives the message with its place."""
    (last,) = connection.execute(
        "SELECT max(position) FROM steps WHERE run_id = ?", (message.run_id,)
    ).fetchone()
    message = msgspec.structs.replace(message, step=0 if last is None else last + 1)
    name = place_of(message.body).name if message.step else None
    connection.execute(
        "INSERT INTO steps (run_id, position, message_id, name, body) VALUES (?, ?, ?, ?, ?)",
        (message.run_id, message.step, message.id, name, message.body),
    )
    return message


def posted_before(connection: sqlite3.Connection, run_id: str | None, body: bytes) -> str | None:
    """The message that brought the same step before, when an endpoint that was asked twice answers twice."""
    name = place_of(body).name
    if name is None:
        return None
    row = connection.execute(
        "SELECT message_id FROM steps WHERE run_id = ? AND name = ?", (run_id, name)
    ).fetchone()
    return row["message_id"] if row else None


def history(connection: sqlite3.Connection, message: Message) -> list[tuple[str, bytes]]:
    """Message id and body of the run's steps up to the one that this message delivers."""
    if message.step is None:
        return []
    rows = connection.execute(
        "SELECT message_id, body FROM steps WHERE run_id = ? AND position <= ? ORDER BY position",
        (message.run_id, message.step),
    )
    return [(row["message_id"], row["body"]) for row in rows]


def steps(connection: sqlite3.Connection, run_id: str) -> list[tuple[str, bytes]]:
    """Message id and body of all steps of a run, its start first."""
    rows = connection.execute(
        "SELECT message_id, body FROM steps WHERE run_id = ? ORDER BY position", (run_id,)
    )
    return [(row["message_id"], row["body"]) for row in rows]


def copy(connection: sqlite3.Connection, old_run: str | None, new_run: str | None) -> None:
    """Give a run the steps of another behind its own start."""
    connection.execute(
        "INSERT INTO steps (run_id, position, message_id, name, body) "
        "SELECT ?, position, message_id, name, body FROM steps WHERE run_id = ? AND position > 0",
        (new_run, old_run),
    )


def answered(connection: sqlite3.Connection, message: Message) -> bool:
    """Whether what this message asks its endpoint for is in the history already."""
    if not message.step:
        return False
    places = [place_of(body) for _, body in steps(connection, message.run_id or "")[1:]]
    asked = place_of(message.body)
    if asked.step_id == 0:
        return any(place.step_id == asked.target_step for place in places)
    return asked.concurrent == 1 and any(
        max(place.step_id or 0, place.target_step or 0) > (asked.step_id or 0) for place in places
    )


def shown(connection: sqlite3.Connection, run_id: str) -> list[dict[str, Any]]:
    """The steps of a run as the run log shows them: groups of one, or of those that ran in parallel."""
    groups: list[dict[str, Any]] = []
    for message_id, body in steps(connection, run_id):
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
        room = parallel and last["type"] == "parallel" and len(last["steps"]) < step["concurrent"]
        if room:
            last["steps"].append(entry)
        else:
            groups.append({"steps": [entry], "type": "parallel" if parallel else "sequential"})
    return groups


def _log(message_id: str, step: dict[str, Any]) -> dict[str, Any]:
    told = ("stepId", "stepName", "stepType", "out", "concurrent", "waitEventId", "waitTimeout")
    entry = {name: step[name] for name in told if step.get(name) is not None}
    return {**entry, "callType": "step", "messageId": message_id, "state": "STEP_SUCCESS"}
