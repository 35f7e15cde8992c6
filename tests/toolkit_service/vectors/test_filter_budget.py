"""A metadata filter that would take minutes ends: by itself, with its caller, and with the service."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest

from toolkit.filters.metadata import parse
from toolkit_service.api import ApiError
from toolkit_service.demo.local_service import LocalService
from toolkit_service.vectors.bodies import DeleteVectors, Included, IndexQuery
from toolkit_service.vectors.index_registry import IndexRegistry
from toolkit_service.vectors.rows import FILTER_SECONDS, FilterBudget
from toolkit_service.vectors.specs import IndexSpec

pytestmark = pytest.mark.slow

TEXT = "ab" * 22_500
FILTER = " OR ".join(
    f"text GLOB '*{'[ab]' * 220}{'c' * number}*'" for number in range(1, 61)
)
QUERY = {"vector": [1.0, 0.0], "topK": 1, "filter": FILTER}


@pytest.fixture
def service(tmp_path: Path) -> Iterator[LocalService]:
    """An index of 600 rows of 45 KB of metadata each, in a process of its own."""
    with LocalService(tmp_path / "data") as running:
        rows = [
            {"id": f"{n}", "vector": [1.0, n], "metadata": {"text": f"{n}{TEXT}"}}
            for n in range(600)
        ]
        with client(running) as http:
            assert http.post("/vector/plain/upsert", json=rows).status_code == 200
        yield running


def client(service: LocalService) -> httpx.Client:
    """A client with the service's token."""
    headers = {"Authorization": f"Bearer {service.token}"}
    return httpx.Client(base_url=service.url, headers=headers, timeout=60)


def busy(service: LocalService) -> float:
    """Seconds of processor time that the service has used."""
    fields = Path(f"/proc/{service.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_a_filter_has_a_budget_and_others_are_served_meanwhile(
    service: LocalService,
) -> None:
    """It ends with an API error naming the limit; other requests are neither delayed nor failing."""
    with client(service) as http, client(service) as other:
        used = busy(service)
        responses: list[httpx.Response] = []
        asking = threading.Thread(
            target=lambda: responses.append(
                http.post("/vector/plain/query", json=QUERY)
            )
        )
        asking.start()
        waits = []
        while asking.is_alive():
            begun = time.monotonic()
            assert other.get("/v2/dlq").status_code == 200
            waits.append(time.monotonic() - begun)
            time.sleep(0.05)
        (response,) = responses
        assert response.status_code == 422
        assert response.json()["status"] == 422
        assert f"more than {FILTER_SECONDS:g} s" in response.json()["error"]
        assert busy(service) - used < FILTER_SECONDS + 2
        assert sorted(waits)[len(waits) // 2] < 0.2
        assert http.get("/vector/plain/info").json()["result"]["vectorCount"] == 600
        fine = QUERY | {"filter": "text GLOB '7[ab]*'"}
        assert [
            hit["id"]
            for hit in http.post("/vector/plain/query", json=fine).json()["result"]
        ] == ["7"]


def test_a_request_beyond_the_budget_changes_nothing_and_can_be_retried(
    tmp_path: Path,
) -> None:
    """A query, a resumable one and a deletion fail as a whole when the time is used up."""
    registry = IndexRegistry(tmp_path)
    index = registry.create(IndexSpec.parse("plain:dense:2:COSINE"))
    index.upsert(
        {"id": f"{n}", "vector": [1.0, n], "metadata": {"n": n}} for n in range(20)
    )
    chosen = parse("n < 5")
    query = IndexQuery(np.ones(2), 10, Included(), filter=chosen)
    for ask in (
        lambda **more: index.query([query], **more),
        lambda **more: index.begin_query(query, max_idle=60, **more),
        lambda **more: index.delete(DeleteVectors(filter="n < 5"), **more),
    ):
        with pytest.raises(ApiError, match="more than 0 s of processor time") as raised:
            ask(budget=FilterBudget(seconds=0.0))
        assert raised.value.status == 422
        assert index.namespaces() == {"": 20}
    assert len(index.query([query])[0]) == 5
    assert index.delete(DeleteVectors(filter="n < 5")) == 5
    registry.close()


def test_a_filter_ends_when_its_caller_has_left(service: LocalService) -> None:
    """A second after the connection is closed, the service is idle."""
    with client(service) as http, pytest.raises(httpx.ReadTimeout):
        http.post("/vector/plain/query", json=QUERY, timeout=0.5)
    time.sleep(1)
    used = busy(service)
    time.sleep(0.5)
    assert busy(service) - used < 0.1


def test_the_end_of_the_service_does_not_wait_for_a_filter(
    service: LocalService,
) -> None:
    """After SIGTERM it ends soon after a second of grace, whatever is evaluated."""
    with client(service) as http:
        asking = [threading.Thread(target=ask_in_vain, args=(http,)) for _ in range(4)]
        for thread in asking:
            thread.start()
        time.sleep(0.5)
        begun = time.monotonic()
        assert service.stop() == 0
        assert time.monotonic() - begun < 4
        for thread in asking:
            thread.join()


def ask_in_vain(http: httpx.Client) -> None:
    """Send a query that ends without a result."""
    try:
        assert http.post("/vector/plain/query", json=QUERY).status_code in (
            422,
            500,
            503,
        )
    except httpx.TransportError:
        return
