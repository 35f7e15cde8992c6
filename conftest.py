"""An embedded service with sample data: one for all examples in docstrings and for the tests that read it."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import settings

import toolkit as tk
from toolkit_service.demo.local_service import LocalService

pytest_plugins = ["tests.reruns"]

# how long an example takes says more about the machine than about the code
settings.register_profile("house", deadline=None)
# a property that depends on the version of Python fails for a few examples, too
settings.register_profile("second-python", deadline=None, max_examples=20)
settings.load_profile("house")


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(
    file_path: Path,
) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Look for examples in the packages alone: every module of tests would be imported twice."""
    found = yield
    tests = Path(__file__).parent / "tests"
    return [
        one
        for one in found
        if isinstance(one, pytest.Module) or not file_path.is_relative_to(tests)
    ]


@pytest.fixture(scope="session")
def sample_service() -> Iterator[tk.Service]:
    """Yield the embedded service with its sample history. Read only: every test of the session sees it."""
    with tk.connect("local") as service:
        yield service


@pytest.fixture(scope="session")
def sample_hybrid(sample_service: tk.Service) -> Iterator[tk.Service]:
    """Yield a hybrid index with texts of the sample, for examples that need such an index."""
    texts = tk.load_vectors(
        sample_service, namespace="runbooks", limit=100, include_vectors=False
    )
    with LocalService(indexes=["docs:hybrid:64:COSINE:hashing+bm25"]) as running:
        service = tk.connect(
            vector_url=running.vector_urls["docs"],
            vector_token=running.token,
            environ={},
        )
        tk.upsert_vectors(service, texts[["id", "data"]], progress=False)
        yield service


@pytest.fixture(autouse=True)
def examples_have_a_service(
    request: pytest.FixtureRequest, doctest_namespace: dict[str, Any]
) -> None:
    """Examples in docstrings find ``pd``, ``service`` and ``tk``, as a notebook would have them."""
    if isinstance(request.node, pytest.DoctestItem):
        doctest_namespace["pd"] = pd
    if (
        isinstance(request.node, pytest.DoctestItem)
        and "(service" in request.node.dtest.docstring
    ):
        doctest_namespace |= {
            "service": request.getfixturevalue("sample_service"),
            "tk": tk,
        }
    if (
        isinstance(request.node, pytest.DoctestItem)
        and "(hybrid" in request.node.dtest.docstring
    ):
        doctest_namespace |= {
            "hybrid": request.getfixturevalue("sample_hybrid"),
            "tk": tk,
        }
    if (
        isinstance(request.node, pytest.DoctestItem)
        and "mkdtemp" in request.node.dtest.docstring
    ):
        # an example does not remove what it writes; the services above have their folders already
        monkeypatch = request.getfixturevalue("monkeypatch")
        folder = request.getfixturevalue("tmp_path")
        monkeypatch.setattr("tempfile.tempdir", str(folder))
