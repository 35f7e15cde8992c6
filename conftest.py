"""An embedded service with sample data: one for all examples in docstrings and for the tests that read it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings

import toolkit as tk

# how long an example takes says more about the machine than about the code
settings.register_profile("house", deadline=None)
settings.load_profile("house")


@pytest.fixture(scope="session")
def sample_service() -> Iterator[tk.Service]:
    """The embedded service with its sample history. Read only: every test of the session sees it."""
    with tk.connect("local") as service:
        yield service


@pytest.fixture(autouse=True)
def examples_have_a_service(request: pytest.FixtureRequest, doctest_namespace: dict[str, Any]) -> None:
    """Examples in docstrings find ``service`` and ``tk``, as a notebook would have them."""
    if isinstance(request.node, pytest.DoctestItem) and "(service" in request.node.dtest.docstring:
        doctest_namespace |= {"service": request.getfixturevalue("sample_service"), "tk": tk}
