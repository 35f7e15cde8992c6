"""The public queue package against the running service: publish, batch, callbacks, DLQ, keys, signatures."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from qstash import AsyncQStash, QStash, Receiver
from qstash.errors import QStashError, SignatureError
from qstash.log import LogState

import toolkit as tk
from toolkit_service.demo.local_service import LocalService

Server = Any
Wait = Callable[..., Any]


@contextmanager
def client(token: str, url: str | None) -> Iterator[QStash]:
    """The package's client, which has no method to close its connections."""
    found = QStash(token, base_url=url, retry=False)
    try:
        yield found
    finally:
        found.http._client.close()


@pytest.fixture(scope="module")
def qstash(running: LocalService) -> Iterator[QStash]:
    """The package's client, with only an address and a token."""
    with client(running.token, running.url) as found:
        yield found


@pytest.fixture(autouse=True)
def quiet_queue(http: httpx.Client) -> Iterator[None]:
    """The queue without messages and dead letters of earlier tests."""
    yield
    http.delete("/v2/messages")
    entries = http.get("/v2/dlq").json()["messages"]
    if entries:
        http.request(
            "DELETE", "/v2/dlq", json={"dlqIds": [entry["dlqId"] for entry in entries]}
        )


def test_text_and_json_are_published(
    qstash: QStash, server: Server, wait_for: Wait
) -> None:
    """The destination gets body, type and headers as the package was given them."""
    server.always(b"{}")
    text = qstash.message.publish(
        url=f"{server.url}/text",
        body="grüße",
        content_type="text/plain",
        headers={"X-A": "1"},
        method="PUT",
    )
    wait_for(lambda: len(server.requests) == 1)
    qstash.message.publish_json(url=f"{server.url}/json", body={"n": [1, None]})
    wait_for(lambda: len(server.requests) == 2)
    first, second = server.requests
    assert (first.method, first.body.decode(), first.headers["Content-Type"]) == (
        "PUT",
        "grüße",
        "text/plain",
    )
    assert first.headers["x-a"] == "1"
    assert first.headers["Upstash-Message-Id"] == text.message_id
    assert (json.loads(second.body), second.headers["Content-Type"]) == (
        {"n": [1, None]},
        "application/json",
    )


def test_everything_the_package_can_ask_for_is_taken(
    qstash: QStash, server: Server, wait_for: Wait
) -> None:
    """Every option of publish at once; pending messages as the package reads them."""
    server.always(b"{}")
    sent = qstash.message.publish_json(
        url=f"{server.url}/all",
        body={"a": 1},
        headers={"X-Plain": "seen", "X-Key": "of the house"},
        retries=2,
        retry_delay="1000 * (1 + retried)",
        callback=f"{server.url}/callback",
        failure_callback=f"{server.url}/failed",
        callback_headers={"Forward-X-C": "c"},
        failure_callback_headers={"Forward-X-F": "f"},
        delay="5m",
        deduplication_id="one",
        timeout=30,
        flow_control={"key": "k", "parallelism": 2, "rate": 5, "period": 60},
        label="red",
        redact={"header": ["X-Key"]},
    )
    again = qstash.message.publish_json(
        url=f"{server.url}/all", body={}, deduplication_id="one"
    )
    assert (again.message_id, again.deduplicated) == (sent.message_id, True)
    waiting = qstash.message.get(sent.message_id)
    assert (waiting.url, waiting.method, waiting.max_retries) == (
        f"{server.url}/all",
        "POST",
        2,
    )
    assert json.loads(waiting.body) == {"a": 1}
    assert waiting.retry_delay_expression == "1000 * (1 + retried)"
    assert (waiting.callback, waiting.failure_callback) == (
        f"{server.url}/callback",
        f"{server.url}/failed",
    )
    assert waiting.flow_control.key == "k"
    assert (waiting.flow_control.parallelism, waiting.flow_control.rate) == (2, 5)
    assert waiting.label == "red"
    assert waiting.headers["x-plain"] == ["seen"]
    assert waiting.headers["x-key"] == [
        f"REDACTED:{hashlib.sha256(b'of the house').hexdigest()}"
    ]
    wait_for(lambda: len(server.requests) == 2)
    work, callback = server.requests
    assert work.headers["x-key"] == "of the house"
    assert (callback.path, callback.headers["x-c"]) == ("/callback", "c")


def test_all_headers_are_redacted_on_request(qstash: QStash, server: Server) -> None:
    """The package says ``header`` for all of them."""
    sent = qstash.message.publish(
        url=f"{server.url}/",
        body="the secret",
        headers={"X-A": "1"},
        delay="1d",
        redact={"body": True, "header": True},
    )
    waiting = qstash.message.get(sent.message_id)
    assert waiting.body == f"REDACTED:{hashlib.sha256(b'the secret').hexdigest()}"
    assert all(value[0].startswith("REDACTED:") for value in waiting.headers.values())


def test_batch_responses_are_in_order(
    qstash: QStash, server: Server, wait_for: Wait
) -> None:
    """Text and JSON batches, each message with headers of its own."""
    server.always(b"{}")
    sent = qstash.message.batch(
        [
            {"url": f"{server.url}/{n}", "body": str(n), "headers": {"x-n": str(n)}}
            for n in range(3)
        ]
    )
    sent += qstash.message.batch_json([{"url": f"{server.url}/3", "body": {"n": 3}}])
    wait_for(lambda: len(server.requests) == 4)
    by_id = {asked.headers["Upstash-Message-Id"]: asked for asked in server.requests}
    assert [by_id[one.message_id].path for one in sent] == ["/0", "/1", "/2", "/3"]
    assert by_id[sent[1].message_id].headers["x-n"] == "1"


def test_callbacks_tell_what_came_back(
    qstash: QStash, server: Server, wait_for: Wait
) -> None:
    """The callback of a success, as the package's users read it."""
    server.json(b"done", 201)
    server.always(b"{}")
    sent = qstash.message.publish(
        url=f"{server.url}/work", body="it", callback=f"{server.url}/callback"
    )
    wait_for(lambda: len(server.requests) == 2)
    payload = json.loads(server.requests[1].body)
    assert (payload["status"], base64.b64decode(payload["body"])) == (201, b"done")
    assert (payload["sourceMessageId"], base64.b64decode(payload["sourceBody"])) == (
        sent.message_id,
        b"it",
    )


def fail(qstash: QStash, server: Server, wait_for: Wait, **options: Any) -> Any:
    """A message that fails immediately; returns its entry."""
    sent = qstash.message.publish(
        url=f"{server.url}/work", body="it", retries=0, **options
    )
    return wait_for(
        lambda: [
            e for e in qstash.dlq.list().messages if e.message_id == sent.message_id
        ]
    )[0]


def test_the_dlq_is_listed_read_and_emptied(
    qstash: QStash, server: Server, wait_for: Wait
) -> None:
    """Lists with pages and filters, single reads, single and bulk deletes."""
    server.always(b"oops", 503)
    entries = [fail(qstash, server, wait_for, label=f"l{n % 2}") for n in range(4)]
    listed = qstash.dlq.list(count=3)
    assert len(listed.messages) == 3
    rest = qstash.dlq.list(cursor=listed.cursor)
    assert not rest.cursor
    assert {e.dlq_id for e in [*listed.messages, *rest.messages]} == {
        e.dlq_id for e in entries
    }
    one = qstash.dlq.get(entries[0].dlq_id)
    assert (one.response_status, one.response_body, one.body) == (503, "oops", "it")
    assert (one.label, one.max_retries, one.url) == ("l0", 0, f"{server.url}/work")

    def ids(**wanted: Any) -> set[str]:
        return {entry.dlq_id for entry in qstash.dlq.list(filter=wanted).messages}

    assert ids(label="l1") == {entries[1].dlq_id, entries[3].dlq_id}
    assert ids(message_id=entries[2].message_id) == {entries[2].dlq_id}
    assert ids(response_status=503) == {entry.dlq_id for entry in entries}
    assert ids(response_status=500) == set()
    assert (
        ids(url_group="none") == ids(queue="none") == ids(schedule_id="none") == set()
    )
    assert ids(from_time=entries[3].created_at, to_time=entries[3].created_at) >= {
        entries[3].dlq_id
    }
    assert ids(caller_ip="127.0.0.1") == ids(url=f"{server.url}/work") == ids()
    qstash.dlq.delete(entries[0].dlq_id)
    with pytest.raises(QStashError, match="404"):
        qstash.dlq.get(entries[0].dlq_id)
    assert qstash.dlq.delete_many([entry.dlq_id for entry in entries]) == 3
    assert qstash.dlq.list().messages == []


def test_the_failure_callback_names_the_entry(
    qstash: QStash, server: Server, wait_for: Wait
) -> None:
    """Its body has the id under which the package finds the message in the DLQ."""
    server.json(b"oops", 500)
    server.always(b"{}")
    entry = fail(qstash, server, wait_for, failure_callback=f"{server.url}/failed")
    wait_for(lambda: len(server.requests) == 2)
    assert json.loads(server.requests[1].body)["dlqId"] == entry.dlq_id


def test_messages_are_canceled(qstash: QStash, server: Server, wait_for: Wait) -> None:
    """One, many and all of them; cancelled messages are neither delivered nor listed."""
    server.always(b"{}")
    sent = [
        qstash.message.publish(url=f"{server.url}/", delay="1d").message_id
        for _ in range(5)
    ]
    qstash.message.cancel(sent[0])
    with pytest.raises(QStashError, match="404"):
        qstash.message.get(sent[0])
    assert qstash.message.cancel_many([*sent[:3], "msg_unknown"]) == 2
    assert qstash.message.cancel_all() == 2
    assert qstash.message.cancel_all() == 0
    assert server.requests == []


def test_the_log_tells_what_happened(
    qstash: QStash, server: Server, wait_for: Wait, capsys: pytest.CaptureFixture[str]
) -> None:
    """Events by message, state, label and time, newest first."""
    server.json(b"oops", 500)
    server.always(b"{}")
    sent = qstash.message.publish(url=f"{server.url}/", retries=1, label="logged")
    mine = {"message_id": sent.message_id}
    wait_for(lambda: qstash.log.list(filter={**mine, "state": LogState.DELIVERED}).logs)
    logs = qstash.log.list(filter=mine).logs
    assert [log.state.value for log in logs] == [
        "DELIVERED",
        "ACTIVE",
        "RETRY",
        "ERROR",
        "ACTIVE",
        "CREATED",
    ]
    assert (logs[2].error, logs[3].error, logs[3].response_status) == (
        "oops",
        "oops",
        500,
    )
    assert len(qstash.log.list(filter={"label": "logged"}, count=1000).logs) == 6
    assert qstash.log.list(filter={**mine, "from_time": logs[0].time + 1}).logs == []
    assert len(qstash.log.list(filter={"message_ids": [sent.message_id]}).logs) == 6
    capsys.readouterr()  # this version of the package prints listings


def test_the_receiver_verifies_our_signatures(
    qstash: QStash, server: Server, running: LocalService, wait_for: Wait
) -> None:
    """With the service's keys, for the right URL and body alone, before and after a rotation."""
    server.always(b"{}")
    keys = qstash.signing_key.get()
    receiver = Receiver(keys.current, keys.next)
    qstash.message.publish_json(url=f"{server.url}/signed?a=1", body={"a": 1})
    wait_for(lambda: server.requests)
    signature, body = (
        server.requests[0].headers["Upstash-Signature"],
        server.requests[0].body.decode(),
    )
    receiver.verify(
        signature=signature,
        body=body,
        url=f"{server.url}/signed?a=1",
        clock_tolerance=1,
    )
    for changed in ({"body": body + " "}, {"url": f"{server.url}/other"}):
        with pytest.raises(SignatureError):
            receiver.verify(**{"signature": signature, "body": body, **changed})
    tk.verify_signature(
        signature,
        server.requests[0].body,
        url=f"{server.url}/signed?a=1",
        keys=(keys.current, keys.next),
    )
    rotated = qstash.signing_key.rotate()
    assert rotated.current == keys.next
    assert qstash.signing_key.get() == rotated
    qstash.message.publish(url=f"{server.url}/rotated", body="b")
    wait_for(lambda: len(server.requests) == 2)
    receiver.verify(
        signature=server.requests[1].headers["Upstash-Signature"],
        body="b",
        clock_tolerance=1,
    )


def test_the_usual_variables_are_enough(
    running: LocalService,
    server: Server,
    wait_for: Wait,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """``QSTASH_URL`` and ``QSTASH_TOKEN`` lead the package and the toolkit to the same service."""
    server.always(b"{}")
    monkeypatch.setenv("QSTASH_URL", running.url)
    monkeypatch.setenv("QSTASH_TOKEN", running.token)
    with client(running.token, None) as found:
        found.message.publish(url=f"{server.url}/package")
    tk.publish(tk.connect(), f"{server.url}/toolkit", body=b"{}")
    wait_for(lambda: len(server.requests) == 2)
    assert {asked.path for asked in server.requests} == {"/package", "/toolkit"}
    assert all("Upstash-Signature" in asked.headers for asked in server.requests)
    assert tk.load_failures(tk.connect(), kind="messages").empty


@pytest.mark.parametrize("parameter", ["queue_token", "qstash_token"])
def test_the_token_may_be_in_the_query(running: LocalService, parameter: str) -> None:
    """Under either name; a wrong one is refused."""
    url = f"{running.url}/v2/keys"
    assert httpx.get(url, params={parameter: running.token}).status_code == 200
    assert httpx.get(url, params={parameter: "wrong-token"}).status_code == 401


def test_a_wrong_token_is_refused(running: LocalService) -> None:
    """The package raises with the service's 401."""
    with (
        client("wrong-token", running.url) as found,
        pytest.raises(QStashError, match="401"),
    ):
        found.message.publish(url="http://127.0.0.1:9/")


def test_the_asynchronous_client_works_alike(
    running: LocalService, server: Server, wait_for: Wait
) -> None:
    """Publish, batch, DLQ and keys through the package's asynchronous client."""
    server.always(b"oops", 500)

    async def use() -> tuple[str, list[str]]:
        package = AsyncQStash(running.token, base_url=running.url, retry=False)
        sent = await package.message.publish_json(
            url=f"{server.url}/a", body=1, retries=0
        )
        await package.message.batch(
            [{"url": f"{server.url}/b", "body": "2", "retries": 0}]
        )
        assert (await package.signing_key.get()).current
        deadline = time.monotonic() + 60
        while len(found := (await package.dlq.list()).messages) < 2:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)
        await package.http._client.aclose()
        return sent.message_id, [entry.message_id for entry in found]

    sent, failed = asyncio.run(use())
    assert sent in failed
    assert len(failed) == 2
