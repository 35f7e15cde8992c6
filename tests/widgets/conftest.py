"""Frames for widgets, and markup parsed as by a browser."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser

import pandas as pd
import pytest

from toolkit.tables.frames import frame_from_rows
from toolkit.tables.schemas import FAILURES

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)


def ordinary(count: int = 12) -> list[dict[str, object]]:
    """Rows as an application makes them."""
    return [
        {
            "dlq_id": f"dlq_{number}",
            "workflow_url": f"https://shop.example/{'pay' if number % 3 else 'mail'}",
            "workflow_run_id": f"wfr_{number}",
            "created_at": NOW - timedelta(hours=number, minutes=1),
            "failed_at": NOW - timedelta(hours=number),
            "response_status": 500 if number % 2 else 429,
            "labels": '["prod","eu"]' if number % 2 else None,
            "label": "prod" if number % 2 else None,
            "caller_ip": f"192.0.2.{number % 4}",
            "failure_function_state": "CALLBACK_FAIL"
            if number % 4 == 0
            else "CALLBACK_SUCCESS",
            "headers": json.dumps(
                {
                    "Content-Type": ["application/json"],
                    "Authorization": ["Bearer s3cr3t-of-the-test"],
                }
            ),
            "response_headers": json.dumps(
                {"Content-Type": ["text/html"], "X-Inside": ["10.0.0.1"]}
            ),
            "body": f'{{"order": {number}, "password": "hunter2-{number}"}}',
            "response_body": f'{{"error": "order {number} was declined"}}'
            if number % 3
            else "<h1>Busy</h1>",
            "max_retries": number % 4,
        }
        for number in range(count)
    ]


@pytest.fixture
def make() -> Callable[[list[dict[str, object]]], pd.DataFrame]:
    """How a frame of failures is made of rows."""
    return lambda rows: frame_from_rows(rows, FAILURES)


@pytest.fixture
def failures() -> pd.DataFrame:
    """A dozen ordinary failures."""
    return frame_from_rows(ordinary(), FAILURES)


@pytest.fixture
def vectors() -> pd.DataFrame:
    """Three vectors of one namespace, one of them without numbers."""
    return pd.DataFrame(
        {
            "namespace": "docs",
            "id": ["a", "b", "c"],
            "vector": pd.Series([[1.0, 0.0], [0.0, 1.0], None], dtype=object),
            "vector_problem": [None, None, "no vector"],
            "metadata": ['{"city": "Izmir"}', None, '{"year": 2024}'],
        }
    )


class Markup(HTMLParser):
    """Elements with their attributes, and the text that is seen."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.shown = ""
        self.feed(markup)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Remember it."""
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        """Remember it."""
        self.shown += data


@pytest.fixture
def seen() -> type[Markup]:
    """Markup read as a browser reads it."""
    return Markup
