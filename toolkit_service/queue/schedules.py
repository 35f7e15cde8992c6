"""Schedules: publishes that are repeated at the times of a cron expression."""

from __future__ import annotations

import json
import sqlite3
from datetime import UTC, datetime
from typing import Any, Final
from zoneinfo import ZoneInfo

import msgspec

from toolkit_service.api import NAMES, ApiError, invalid
from toolkit_service.queue import url_groups
from toolkit_service.queue.database import QueueWrite
from toolkit_service.queue.publishing import Publish
from toolkit_service.queue.steps import accept

MAX_CRON: Final = 256
"""Longest cron expression, in characters."""

# created here: msgspec's first inspection of a struct is not thread-safe
STORED_PUBLISH: Final = msgspec.msgpack.Decoder(Publish)
_AT_ONCE: Final = 100  # schedules of one transaction
_TIME_ZONE: Final = "CRON_TZ="


def next_time(cron: str, after_ms: int) -> int | None:
    """Return the first time (Unix ms) of a cron expression after another, or None if it has none.

    For example, 30 February never comes. Raise an `ApiError` if the expression is malformed.

    >>> next_time("*/5 * * * *", 1_800_000_000_000)
    1800000300000
    """
    try:
        from cronsim import CronSim, CronSimError  # noqa: PLC0415 - only a service with schedules needs it
    except ModuleNotFoundError:
        expected = "the package cronsim: pip install cronsim"
        raise invalid(
            "schedules need a package", "no such package", expected, status=500
        ) from None

    try:
        expression, zone = _split_cron(cron)
        after = datetime.fromtimestamp(after_ms / 1000, zone)
        following = next(CronSim(expression, after), None)
    except (CronSimError, LookupError, ValueError, OSError, RecursionError):
        expected = (
            "five fields such as '0 9 * * MON-FRI', perhaps after CRON_TZ=Europe/Berlin"
        )
        raise invalid(
            "header Cron is not understood", repr(cron[:80]), expected
        ) from None

    if following is None:
        return None

    return round(following.timestamp() * 1000)


def _split_cron(cron: str) -> tuple[str, Any]:
    """Return the five fields and the time zone, by default UTC. Raise ValueError if it has other fields."""
    fields = cron.split()
    zone: Any = UTC
    if fields and fields[0].startswith(_TIME_ZONE):
        zone = ZoneInfo(fields.pop(0).removeprefix(_TIME_ZONE))
    # six fields would begin with seconds, which the public service does not have
    if len(fields) != _FIELDS or len(cron) > MAX_CRON or not cron.isascii():
        raise ValueError

    return " ".join(fields), zone


_FIELDS: Final = 5


def next_due(tx: QueueWrite) -> int | None:
    """Return the time when the next schedule is due."""
    due: int | None = tx.value("SELECT min(next_at) FROM schedules WHERE NOT paused")
    return due


def fire(tx: QueueWrite) -> None:
    """Publish for each schedule that is due, and store the next time, in one transaction.

    Times that passed while the service was stopped count once. For example, a schedule of every hour makes
    one message after a night, not eight.
    """
    sql = "SELECT * FROM schedules WHERE NOT paused AND next_at <= ? ORDER BY next_at, id LIMIT ?"
    for row in tx.rows(sql, tx.now_ms, _AT_ONCE):
        error = None
        message_ids: list[str] = []
        # one savepoint per schedule: a publish that fails halfway leaves nothing, and the others are kept
        tx.execute("SAVEPOINT fired")

        try:
            message_ids = _publish(tx, row)
        except ApiError as problem:
            # for example, the URL group was deleted: the schedule tries again at the next time
            tx.execute("ROLLBACK TO fired")
            error = problem.message

        tx.execute("RELEASE fired")
        tx.execute(
            "UPDATE schedules SET next_at = ?, last_at = ?, last_messages = ?, error = ? WHERE id = ?",
            *(
                next_time(row["cron"], tx.now_ms),
                tx.now_ms,
                json.dumps(message_ids),
                error,
                row["id"],
            ),
        )


def _publish(tx: QueueWrite, row: sqlite3.Row) -> list[str]:
    """Publish the message of a schedule, and return the ids of the messages that it became."""
    destination = row["destination"]
    publishes = [STORED_PUBLISH.decode(row["spec"])]
    if NAMES.fullmatch(destination):
        endpoints = url_groups.destinations(tx, destination)
        publishes = url_groups.spread(publishes[0], destination, endpoints)

    accepted = [
        accept(tx, publish, caller_ip=row["caller_ip"]) for publish in publishes
    ]
    return [message["messageId"] for message in accepted]
