"""The embedded service as a process, for the public SDK packages to speak with."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from toolkit_service.demo.local_service import LocalService

collect_ignore = ["applications"]  # programs of their own, run as their users run them

FACTOR = 200
"""Divides delays in the shared service: a minute's sleep lasts 0.3 s."""


@pytest.fixture(scope="module")
def running() -> Iterator[LocalService]:
    """One service for the tests of a module; delays are divided by `FACTOR`."""
    with LocalService(
        time_factor=FACTOR, indexes=["plain:dense:2:COSINE"], dialect="upstash"
    ) as service:
        yield service


@pytest.fixture(scope="module")
def http(running: LocalService) -> Iterator[httpx.Client]:
    """A plain client that is let in."""
    bearer = {"Authorization": f"Bearer {running.token}"}
    with httpx.Client(base_url=running.url, headers=bearer, timeout=10) as client:
        yield client


@pytest.fixture
def wait_for() -> Callable[..., Any]:
    """Wait for the first true value of a condition; fails on a timeout."""

    def wait(condition: Callable[[], Any], *, seconds: float = 20) -> Any:
        deadline = time.monotonic() + seconds
        while not (found := condition()):
            assert time.monotonic() < deadline, "waited in vain"
            time.sleep(0.01)
        return found

    return wait
