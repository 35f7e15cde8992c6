"""Options of the tests of the embedded service, and the description of its API."""

from __future__ import annotations

from typing import Any

import pytest

from toolkit_service.app import all_operations
from toolkit_service.demo.faults.middleware import Faults
from toolkit_service.operations import Operation, document
from toolkit_service.queue.scheduler import Queue
from toolkit_service.queue.state import Store
from toolkit_service.vectors.index_registry import IndexRegistry


@pytest.fixture(scope="session")
def operations(tmp_path_factory: pytest.TempPathFactory) -> list[Operation]:
    """All operations of a service with faults, as ``toolkit serve`` starts it; to be read, not called."""
    folder = tmp_path_factory.mktemp("operations")
    store, registry = Store(folder / "queue"), IndexRegistry(folder / "vectors")
    try:
        return all_operations(Queue(store), registry, Faults())
    finally:
        registry.close()
        store.close()


@pytest.fixture(scope="session")
def described(operations: list[Operation]) -> dict[str, Any]:
    """The OpenAPI document."""
    return document(operations)


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--api-examples N``: how many requests an operation is tried with against its description."""
    parser.addoption(
        "--api-examples",
        type=int,
        default=2,
        metavar="N",
        help="examples for each operation of /openapi.json (2)",
    )
