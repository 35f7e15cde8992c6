"""Frames that reports are made of."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from toolkit.secrets.redaction import Redactor
from toolkit.tables.frames import frame_from_rows
from toolkit.tables.receipt import Receipt
from toolkit.tables.schemas import FAILURES

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)


def failures(made_of, /, **receipt):
    """A frame of these rows, with a receipt of a complete load by default."""
    frame = frame_from_rows(
        [{"dlq_id": f"d{number}", **row} for number, row in enumerate(made_of)],
        FAILURES,
    )
    values = {
        "what": "failures", "source": "https://queue.example", "scope": {"since": "2026-03-03T00:00:00.000Z"},
        "started_at": "2026-03-10T11:59:00+00:00", "ended_at": "2026-03-10T11:59:30+00:00",
        "pages": 2, "requests": 2,
        "rows": len(made_of), "bytes": 2_500, "complete": True, "assumptions": ("nothing else changed",),
    }  # fmt: skip
    frame.attrs["receipt"] = Receipt(**(values | receipt)).to_dict()
    return frame


def ordinary(count=12):
    """Rows as an application makes them: two workflows, statuses, labels, states, bodies, ages."""
    return [
        {
            "workflow_url": f"https://shop.example/{'pay' if number % 3 else 'mail'}",
            "workflow_run_id": f"wfr_{number}",
            "failed_at": NOW - timedelta(hours=12 * number + 1),
            "created_at": NOW - timedelta(hours=12 * number + 2),
            "response_status": 500 if number % 2 else 429,
            "labels": '["prod","eu"]' if number % 2 else None,
            "failure_function_state": "CALLBACK_FAIL"
            if number % 4 == 0
            else "CALLBACK_SUCCESS",
            "response_body": f'{{"error": "order {number} was declined"}}'
            if number % 3
            else "<h1>Busy</h1>",
        }
        for number in range(count)
    ]


@pytest.fixture
def options():
    """Options of reproducible reports: the time, and the key of the masks."""
    return {"now": NOW, "redactor": Redactor(key=b"example")}


@pytest.fixture
def make():
    """How a frame is made of rows."""
    return failures


@pytest.fixture
def rows():
    """Rows as an application makes them."""
    return ordinary()
