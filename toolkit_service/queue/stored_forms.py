"""The forms in which the queue stores values: those that SQLite does not know, such as JSON and messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from toolkit_service.damaged_values import Reader
from toolkit_service.queue.messages import Message
from toolkit_service.queue.publishing import Publish

_OBJECT: Final[Reader] = msgspec.json.Decoder(dict[str, Any]).decode
_TEXTS: Final[Reader] = msgspec.json.Decoder(list[str]).decode
_MESSAGE: Final[Reader] = msgspec.msgpack.Decoder(Message).decode
_PUBLISH: Final[Reader] = msgspec.msgpack.Decoder(Publish).decode
_A_MESSAGE: Final = "a message as the service stores it"

STORED_FORMS: Final[Mapping[tuple[str, str], tuple[Reader, str]]] = {
    ("messages", "spec"): (_MESSAGE, _A_MESSAGE),
    ("parked", "spec"): (_MESSAGE, _A_MESSAGE),
    ("dlq", "message"): (_MESSAGE, _A_MESSAGE),
    ("dlq", "entry"): (_OBJECT, "a JSON object"),
    ("events", "entry"): (_OBJECT, "a JSON object"),
    ("runs", "entry"): (_OBJECT, "a JSON object"),
    ("runs", "labels"): (_TEXTS, "a JSON array of texts"),
    ("runs", "first"): (_MESSAGE, _A_MESSAGE),
    ("runs", "invoker"): (_MESSAGE, _A_MESSAGE),
    ("schedules", "spec"): (_PUBLISH, "a request to publish as the service stores it"),
    ("schedules", "last_messages"): (_TEXTS, "a JSON array of texts"),
}
"""By table and column: what reads the value, and a description of its form."""
