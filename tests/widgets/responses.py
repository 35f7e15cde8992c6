"""Responses of a scripted server to queries, and the last request."""

from __future__ import annotations

import json
from typing import Any


def hits(*ids: str, **more: Any) -> bytes:
    """The service's response with these hits."""
    rows = [
        {"id": name, "score": 0.9 - place / 100} | more
        for place, name in enumerate(ids)
    ]
    return json.dumps({"result": rows}).encode()


def last_request(server: Any) -> Any:
    """The body of the last request."""
    return json.loads(server.requests[-1].body)
