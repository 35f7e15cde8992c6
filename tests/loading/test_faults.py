"""The loaders against the embedded service with scripted faults: all of it, or a typed error; never short."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

import toolkit as tk
from toolkit.errors import (
    AuthenticationError,
    BadRequestError,
    CursorLoopError,
    DailyLimitError,
    DeadlineError,
    IncompleteLoadError,
    IncompleteLoadWarning,
    MalformedResponseError,
    RedirectError,
    ServerError,
    ToolkitError,
    TransportError,
)
from toolkit.service.responses import RetryPolicy
from toolkit.service.transport import Request, Transport
from toolkit_service.demo.local_service import LocalService

ENTRIES = 250
DLQ = "/v2/dlq"
RANGE = "/vector/plain/range"


@pytest.fixture(scope="module")
def local() -> Iterator[LocalService]:
    """250 failed messages, three pages of them, and 2,500 vectors, three pages, too."""
    with (
        LocalService(indexes=["plain:dense:2:COSINE"]) as running,
        admin(running) as http,
    ):
        item = {
            "destination": "http://127.0.0.1:9/x",
            "headers": {"Service-Retries": "0"},
        }
        http.post(
            "/v2/batch", json=[item | {"body": f"body {n}"} for n in range(ENTRIES)]
        )
        rows = [{"id": f"v{n}", "vector": [1, n]} for n in range(2500)]
        assert http.post("/vector/plain/upsert", json=rows).status_code == 200
        deadline = time.monotonic() + 30
        wanted = {"state": "FAILED", "count": 1000}
        while len(http.get("/v2/logs", params=wanted).json()["events"]) < ENTRIES:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield running


def admin(running: LocalService) -> httpx.Client:
    return httpx.Client(
        base_url=running.url,
        headers={"Authorization": f"Bearer {running.token}"},
        timeout=30,
    )


@pytest.fixture
def script(local: LocalService) -> Iterator[Any]:
    """Sets a script of faults in the service; cleared after each test."""
    with admin(local) as http:

        def put(*faults: dict[str, Any]) -> None:
            response = http.put("/admin/faults", json={"faults": faults})
            assert response.status_code == 200, response.text

        yield put
        http.delete("/admin/faults")


@pytest.fixture
def service(local: LocalService) -> tk.Service:
    """A connection to it."""
    return tk.connect(
        queue_url=local.url,
        queue_token=local.token,
        vector_url=local.vector_urls["plain"],
        vector_token=local.token,
    )


@pytest.fixture
def every_id(local: LocalService) -> set[str]:
    """The ids of all entries, read without the toolkit."""
    found, cursor = set(), ""
    with admin(local) as http:
        while True:
            page = http.get(DLQ, params={"cursor": cursor}).json()
            found |= {row["dlqId"] for row in page["messages"]}
            cursor = page["cursor"]
            if not cursor:
                return found


def again(request: int, **fault: Any) -> dict[str, Any]:
    return {"route": DLQ, "first": request, **fault}


SURVIVED = {
    "429 with Retry-After 0": [again(2, status=429, headers={"Retry-After": "0"})],
    "429 with Retry-After in a second": [
        again(2, status=429, headers={"Retry-After": "1"})
    ],
    "429 with a past date": [
        again(2, status=429, headers={"Retry-After": "{date-60}"})
    ],
    "429 with a date, by a clock an hour off": [
        again(
            2, status=429, headers={"Retry-After": "{date+3601}", "Date": "{date+3600}"}
        )
    ],
    "429 with a burst limit, by a clock an hour off": [
        again(
            2,
            status=429,
            headers={"Burst-RateLimit-Reset": "{now+3601}", "Date": "{date+3600}"},
        )
    ],
    "429 with a negative wait": [again(1, status=429, headers={"Retry-After": "-1"})],
    "500, 502, 503 and 504": [
        again(n, status=s) for n, s in ((1, 500), (3, 502), (5, 503), (6, 504))
    ],
    "reset before the first byte": [again(2, reset={"byte": 0})],
    "reset inside the head": [again(1, reset={"byte": 30})],
    "closed inside the head": [again(2, cut={"byte": 90})],
    "reset at parts of the body": [
        again(n, reset={"share": n / 8}) for n in (1, 3, 5, 7)
    ],
    "cut at parts of the body": [again(n, cut={"share": n / 8}) for n in (1, 3, 5, 7)],
    "cut inside a chunk": [again(2, chunked=True, cut={"share": 0.6})],
    "more promised than sent": [again(2, length_off=100)],
    "whole gzip": [again(2, gzip="whole")],
    "corrupt gzip": [again(2, gzip="corrupt")],
    "gzip with a wrong checksum": [again(2, gzip="wrong_crc")],
    "gzip without its trailer": [again(2, gzip="no_trailer")],
    "HTML with 200": [
        again(2, body="<html></html>", headers={"Content-Type": "text/html"})
    ],
    "an empty body": [again(2, body="")],
    "an empty object": [again(1, json={}), again(3, json={})],
    "no messages": [again(2, drop=["messages"])],
    "JSON truncated inside a right length": [
        again(2, body='{"messages": [{"dlqId": "a", "crea')
    ],
    "503 with Retry-After in a second": [
        again(2, status=503, headers={"Retry-After": "1"})
    ],
    "503 with Retry-After 0, five times": [
        again(2, times=5, status=503, headers={"Retry-After": "0"})
    ],
    "a second's delay": [again(2, delay=1)],
    "slow": [again(2, bytes_per_second=200_000)],
    "an empty page with a cursor": [
        again(1, page={"insert": "empty"}),
        again(3, page={"insert": "empty"}),
    ],
    "pages in disorder": [again(1, times=None, page={"order": "shuffled"})],
    "an end without a cursor": [again(1, times=None, page={"end": "absent"})],
    "an end of null": [again(1, times=None, page={"end": "null"})],
    "a padded page of 20 MB": [again(2, pad=20_000_000, gzip="whole")],
}


@pytest.mark.parametrize("name", SURVIVED)
def test_a_fault_that_passes_is_survived(
    script: Any, service: tk.Service, every_id: set[str], name: str
) -> None:
    """Every entry once, and a receipt that says complete."""
    script(*SURVIVED[name])
    frame = tk.load_failures(service, kind="messages", progress=False)
    assert len(frame) == ENTRIES
    assert set(frame["dlq_id"]) == every_id
    assert tk.get_receipt(frame).complete


SETTLED = {
    "a page twice": [again(2, page={"insert": "previous"})],
    "ten ends that are none": [again(3, times=10, page={"cursor": "endless"})],
    "a cursor that expired": [again(2, status=400)],
    "two cursors that expired": [again(2, status=404), again(4, status=422)],
}


@pytest.mark.parametrize("name", SETTLED)
def test_a_change_while_reading_is_resolved_by_reading_again(
    script: Any, service: tk.Service, every_id: set[str], name: str
) -> None:
    """Every entry once; nothing changes during the second reading, so the load is complete."""
    script(*SETTLED[name])
    frame = tk.load_failures(service, kind="messages", progress=False)
    assert len(frame) == ENTRIES
    assert set(frame["dlq_id"]) == every_id
    receipt = tk.get_receipt(frame)
    assert receipt.complete
    assert receipt.reread >= 1 or receipt.windows > 1


DOUBTED = {
    "overlapping pages": [again(1, times=None, page={"overlap": 40})],
    "every row twice": [again(1, times=None, page={"twice": True})],
}


@pytest.mark.parametrize("name", DOUBTED)
def test_duplicate_rows_are_kept_once_and_make_the_load_incomplete(
    script: Any, service: tk.Service, every_id: set[str], name: str
) -> None:
    """Every entry once; and, as entries may have changed, a warning and a receipt that is not complete."""
    script(*DOUBTED[name])
    with pytest.warns(IncompleteLoadWarning, match="were read twice"):
        frame = tk.load_failures(service, kind="messages", progress=False)
    assert len(frame) == ENTRIES
    assert set(frame["dlq_id"]) == every_id
    assert not tk.get_receipt(frame).complete


FATAL: dict[str, tuple[dict[str, Any], type[ToolkitError]]] = {
    "the daily limit": (
        {"status": 429, "headers": {"RateLimit-Limit": "100", "RateLimit-Remaining": "0",
                                    "RateLimit-Reset": "{now+3600}"}},
        DailyLimitError,
    ),
    "a token that ran out": ({"status": 401}, AuthenticationError),
    "a redirect": ({"status": 302, "headers": {"Location": "http://127.0.0.1:9/"}}, RedirectError),
    "the same cursor for ever": ({"times": None, "page": {"cursor": "repeated"}}, CursorLoopError),
    "cursors that go round": ({"times": None, "page": {"cursor": "first"}}, CursorLoopError),
}  # fmt: skip


@pytest.mark.parametrize("name", FATAL)
def test_a_permanent_fault_is_a_typed_error_with_the_rows_read(
    script: Any, service: tk.Service, every_id: set[str], name: str
) -> None:
    """Never a frame that is short: the first page is in `partial`, the cause says what happened."""
    fault, kind = FATAL[name]
    script(again(2, **fault))
    with pytest.raises(ToolkitError) as caught:
        tk.load_failures(service, kind="messages", progress=False)
    error = caught.value
    assert isinstance(error, kind) or isinstance(error.__cause__, kind)
    if isinstance(error, IncompleteLoadError) and error.partial is not None:
        partial = set(error.partial["dlq_id"])
        assert partial < every_id
        assert not tk.get_receipt(error.partial).complete


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ({"status": 503}, ServerError),
        ({"reset": {"share": 0.5}}, TransportError),
        ({"json": {}}, MalformedResponseError),
    ],
)
@pytest.mark.usefixtures("no_backoff")
def test_a_failure_for_ever_ends_after_a_bounded_number_of_tries(
    script: Any,
    local: LocalService,
    service: tk.Service,
    fault: dict[str, Any],
    kind: type[ToolkitError],
) -> None:
    """As many tries of the second page as the policy allows, and the error of the last one."""
    script(again(2, times=None, **fault))
    with pytest.raises(IncompleteLoadError) as caught:
        tk.load_failures(service, kind="messages", progress=False)
    assert isinstance(caught.value.__cause__, kind)
    assert len(caught.value.partial) == 100
    with admin(local) as http:
        (counted,) = http.get("/admin/faults").json()["faults"]
    tries = RetryPolicy().tries
    assert (counted["requests"], counted["struck"]) == (1 + tries, tries)


def test_one_byte_a_second_meets_the_deadline(script: Any, service: tk.Service) -> None:
    """The deadline is for the whole response, not for each part of it."""
    script(again(1, times=None, bytes_per_second=20))
    policy = RetryPolicy(tries=1, deadline=0.5)
    with Transport.to(service, "queue", policy=policy) as transport:
        begun = time.monotonic()
        with pytest.raises(DeadlineError):
            transport.send(Request(doing="reading slowly", method="GET", path=DLQ))
    assert time.monotonic() - begun < 2


def test_cursors_that_never_work_end_the_load_and_say_so(
    script: Any, service: tk.Service, every_id: set[str]
) -> None:
    """400 for a cursor, three times: what was read is in `partial`, and never looks whole."""
    script(again(2, status=400), again(4, status=400), again(6, status=400))
    with pytest.raises(IncompleteLoadError) as caught:
        tk.load_failures(service, kind="messages", progress=False)
    assert isinstance(caught.value.__cause__, BadRequestError)
    assert set(caught.value.partial["dlq_id"]) < every_id


def test_a_page_longer_than_requested_is_read_completely(
    script: Any, service: tk.Service
) -> None:
    """All rows are read, also those beyond the requested number."""
    script(again(1, page={"extra": 5_000}))
    frame = tk.load_failures(service, kind="messages", progress=False)
    assert len(frame) == ENTRIES + 5_000


def test_the_last_version_of_an_entry_changed_meanwhile_is_kept(
    script: Any, service: tk.Service
) -> None:
    """The same ids with another response in a repeated page: one row each, and the receipt counts them."""
    status = [{"text": '"responseStatus": 503', "by": '"responseStatus": 599'}]
    script(again(2, page={"insert": "previous"}), again(5, times=None, replace=status))
    frame = tk.load_failures(service, kind="messages", progress=False)
    assert len(frame) == ENTRIES
    assert (frame["response_status"] == 599).all()
    assert (tk.get_receipt(frame).changed, tk.get_receipt(frame).complete) == (
        ENTRIES,
        True,
    )


@pytest.mark.parametrize(
    "fault",
    [
        {"first": 2, "status": 503},
        {"first": 2, "reset": {"share": 0.3}},
        {"first": 2, "gzip": "wrong_crc"},
        {"first": 2, "body": "<html></html>"},
        {"first": 2, "json": {"result": {}}},
        {
            "first": 2,
            "body": '{"result": {"nextCursor": "7", "vectors": [{"id": "a", "vector": [1',
        },
        {"first": 2, "page": {"insert": "empty"}},
        {"first": 1, "times": None, "page": {"order": "shuffled"}},
        {"first": 1, "times": None, "page": {"end": "null"}},
    ],
)
def test_vectors_survive_the_same_faults(
    script: Any, service: tk.Service, fault: dict[str, Any]
) -> None:
    """Every vector once."""
    script({"route": RANGE, **fault})
    frame = tk.load_vectors(service, progress=False)
    assert sorted(frame["id"]) == sorted(f"v{number}" for number in range(2500))


def test_duplicate_vectors_are_kept_once(script: Any, service: tk.Service) -> None:
    """Every vector once: read again, the range shows that nothing is missing."""
    script({"route": RANGE, "first": 2, "page": {"insert": "previous"}})
    frame = tk.load_vectors(service, progress=False)
    receipt = tk.get_receipt(frame)
    assert (receipt.complete, receipt.reread) == (True, 1)
    assert sorted(frame["id"]) == sorted(f"v{number}" for number in range(2500))


def test_vectors_that_go_wrong_for_good_are_an_error(
    script: Any, service: tk.Service
) -> None:
    """A cursor that comes again."""
    script({"route": RANGE, "first": 2, "times": None, "page": {"cursor": "repeated"}})
    with pytest.raises(ToolkitError) as caught:
        tk.load_vectors(service, progress=False)
    assert isinstance(caught.value.__cause__ or caught.value, CursorLoopError)
