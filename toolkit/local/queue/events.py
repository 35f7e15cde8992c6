"""What happened to messages: CREATED, then DELIVERED, or RETRY until DELIVERED or FAILED, or CANCELED."""

from __future__ import annotations

import json
import sqlite3
from typing import Any, Literal, TypeAlias

from toolkit.local.queue.message import Message

EventState: TypeAlias = Literal["CREATED", "RETRY", "DELIVERED", "FAILED", "CANCELED"]


def record(
    connection: sqlite3.Connection, message: Message, state: EventState, now_ms: int, **more: Any
) -> None:
    """Write down one event; `more` are further fields of its entry, by their wire names."""
    entry = {
        "time": now_ms,
        "messageId": message.id,
        "state": state,
        "url": message.settings.url,
        "method": message.method,
        "maxRetries": message.max_retries,
        "createdAt": message.created_at,
        "callerIP": message.caller_ip,
        **({"workflowRunId": message.run_id} if message.run_id else {}),
        **({"labels": list(message.settings.labels)} if message.settings.labels else {}),
        **({"flowControlKey": message.settings.flow_key} if message.settings.flow_key else {}),
        **more,
    }
    connection.execute(
        "INSERT INTO events (time, message_id, run_id, state, url, entry) VALUES (?, ?, ?, ?, ?, ?)",
        (now_ms, message.id, message.run_id, state, message.settings.url, json.dumps(entry)),
    )
