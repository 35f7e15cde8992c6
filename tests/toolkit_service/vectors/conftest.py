"""A real server for the vector operations alone, on a free loopback port."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import httpx
import pytest
import uvicorn
from starlette.applications import Starlette

from toolkit_service.app import error_handlers
from toolkit_service.vectors.index_registry import IndexRegistry
from toolkit_service.vectors.specs import IndexSpec
from toolkit_service.vectors.vector_routes import vector_operations

SPECS = (
    "plain:dense:2:COSINE",
    "near:dense:3:EUCLIDEAN",
    "dots:dense:3:DOT_PRODUCT",
    "docs:dense:256:COSINE:hashing",
    "words:sparse",
    "terms:sparse:bm25",
    "mixed:hybrid:2:COSINE",
    "notes:hybrid:64:COSINE:hashing+bm25",
)


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IndexRegistry]:
    """A registry with one index of each kind."""
    made = IndexRegistry(tmp_path_factory.mktemp("vectors"), seed=7)
    for spec in SPECS:
        made.create(IndexSpec.parse(spec))
    yield made
    made.close()


@pytest.fixture(scope="session")
def address(registry: IndexRegistry) -> Iterator[str]:
    """The address of a server that serves the registry."""
    routes = [operation.route() for operation in vector_operations(registry)]
    app = Starlette(routes=routes, exception_handlers=error_handlers(registry))
    server = uvicorn.Server(
        uvicorn.Config(
            app, host="127.0.0.1", port=0, log_level="warning", lifespan="off"
        )
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + 60
    while not server.started and time.monotonic() < deadline:
        time.sleep(0.005)
    port = server.servers[0].sockets[0].getsockname()[1]
    yield f"http://127.0.0.1:{port}/vector"
    server.should_exit = True
    thread.join(timeout=10)


@pytest.fixture
def http(registry: IndexRegistry, address: str) -> Iterator[httpx.Client]:
    """A client of the server, whose indexes are empty."""
    for spec in registry.specs():
        index = registry.get(spec.name)
        if any(index.namespaces().values()):
            index.reset(namespace=None)
        for name in index.namespaces():
            if name:
                index.delete_namespace(name)
    with httpx.Client(base_url=address, timeout=10) as client:
        yield client
