"""What must be true after a soak: nothing accepted lost, nothing half done, nothing done done again."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from destination import Arrival
from messages import Planned


def problems(
    planned: Mapping[int, Planned],
    accepted: Mapping[int, str],
    arrivals: Sequence[Arrival],
    dlq: Sequence[Mapping[str, Any]],
    recorded: Mapping[str, int],
) -> Iterator[str]:
    """Whatever is not as it must be, in words.

    Parameters
    ----------
    planned : dict of int to Planned
        All messages that were published, by number.
    accepted : dict of int to str
        The message ids of those with a successful response.
    arrivals : sequence of Arrival
        What the destination got, in order.
    dlq : sequence of dict
        All entries of the dead letter queue.
    recorded : dict of str to int
        For messages that the service had recorded as done: how many arrivals there had been by then.
    """
    work = defaultdict(list)
    for arrival in arrivals:
        if arrival.path == "/work":
            work[arrival.message_id].append(arrival)
    dead = Counter(entry["messageId"] for entry in dlq)
    for number, message in planned.items():
        if number not in accepted:
            yield f"message {number} was never accepted"
            continue
        yield from _message(message, accepted[number], work, dead)
    known = set(accepted.values())
    if len(known) != len(accepted):
        yield f"{len(accepted) - len(known)} messages share an id with another"
    yield from (
        f"{found} arrived, and was never accepted" for found in work.keys() - known
    )
    yield from (
        f"{found} is {times} times in the DLQ"
        for found, times in dead.items()
        if times > 1
    )
    yield from _callbacks(planned, accepted, arrivals, dlq)
    for index, arrival in enumerate(arrivals):
        if index >= recorded.get(arrival.message_id, len(arrivals)):
            yield f"{arrival.message_id} was sent again after it had been recorded as done"


def _message(
    message: Planned,
    message_id: str,
    work: Mapping[str, list[Arrival]],
    dead: Mapping[str, int],
) -> Iterator[str]:
    came = work.get(message_id, [])
    delivered = any(arrival.status == 200 for arrival in came)
    named = f"{message_id} (message {message.number})"
    if delivered == bool(dead.get(message_id)):
        yield f"{named} is {'delivered and in' if delivered else 'neither delivered nor in'} the DLQ"
    if delivered != (message.fails is not None):
        yield f"{named} was {'' if delivered else 'not '}delivered, and that was not planned"
    if any(arrival.digest != message.digest for arrival in came):
        yield f"{named} arrived with another body"
    attempts = [arrival.retried for arrival in came]
    if sorted(attempts) != attempts or set(attempts) != set(range(len(set(attempts)))):
        yield f"{named} came with Retried {attempts}: a recorded attempt was forgotten"


def _callbacks(
    planned: Mapping[int, Planned],
    accepted: Mapping[int, str],
    arrivals: Sequence[Arrival],
    dlq: Sequence[Mapping[str, Any]],
) -> Iterator[str]:
    """One callback for every recorded attempt, one failure callback for every entry that wants it."""
    told: dict[tuple[str, int], set[str]] = defaultdict(set)
    failed: dict[str, set[str]] = defaultdict(set)
    attempts: dict[str, int] = defaultdict(int)
    taken = {arrival.message_id for arrival in arrivals if arrival.status == 200}
    for arrival in arrivals:
        if arrival.path == "/work":
            attempts[arrival.message_id] = max(
                attempts[arrival.message_id], arrival.retried + 1
            )
        elif arrival.path == "/callback":
            told[arrival.told["sourceMessageId"], arrival.told["retried"]].add(
                arrival.message_id
            )
        else:
            failed[arrival.told["dlqId"]].add(arrival.message_id)
    by_id = {
        accepted[number]: message
        for number, message in planned.items()
        if number in accepted
    }
    wanted = {
        (message_id, retried)
        for message_id, message in by_id.items()
        if message.callback
        for retried in range(attempts[message_id])
    }
    for what in wanted | told.keys():
        if len(told[what]) != (what in wanted) or not told[what] <= taken:
            yield f"attempt {what[1]} of {what[0]} had {len(told[what])} callbacks"
    entries = {entry["dlqId"]: entry for entry in dlq}
    for dlq_id in entries.keys() | failed.keys():
        entry = entries.get(dlq_id, {})
        source = by_id.get(entry.get("messageId", ""))
        wants = source is not None and source.failure_callback
        if len(failed[dlq_id]) != wants or not failed[dlq_id] <= taken:
            yield f"DLQ entry {dlq_id} had {len(failed[dlq_id])} failure callbacks"
        if entry.get("failureFunctionState") != ("CALLBACK_SUCCESS" if wants else None):
            yield f"DLQ entry {dlq_id} is left in the state {entry.get('failureFunctionState')}"
