"""The public functions over real HTTP: what the service returns ends up stored, and its secrets do not."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import toolkit as tk
from toolkit.errors import (
    AuthenticationError,
    IncompleteLoadWarning,
    ProtocolError,
    ServiceError,
    SnapshotBindingError,
)


def _page(*rows: dict[str, Any], cursor: str | None = None) -> bytes:
    return json.dumps(
        {"messages": rows, **({"cursor": cursor} if cursor else {})}
    ).encode()


def _entry(name: str, **values: Any) -> dict[str, Any]:
    return {
        "dlqId": name,
        "url": "https://example.com/",
        "createdAt": 1_767_225_600_000,
        "body": "text",
        **values,
    }


def test_syncs_of_a_service_report_what_happened(server: Any, tmp_path: Path) -> None:
    """Over several pages and two syncs, entries are added, changed and gone."""
    service = server.service()
    server.json(_page(_entry("a"), _entry("b"), cursor="next"))
    server.json(_page(_entry("c")))
    first = tk.sync_failures(service, tmp_path / "kept", progress=False)
    assert first.added["dlq_id"].tolist() == ["a", "b", "c"]
    server.json(_page(_entry("c", responseStatus=503), _entry("b"), _entry("d")))
    second = tk.sync_failures(service, tmp_path / "kept", progress=False)
    found = [
        frame["dlq_id"].tolist()
        for frame in (second.added, second.changed, second.gone)
    ]
    assert found == [["d"], ["c"], ["a"]]
    assert tk.get_receipt(second.gone) == replace(second.receipt, frame_rows=1)
    kept = tk.read_snapshot(tmp_path / "kept").set_index("dlq_id")
    assert kept["response_status"]["c"] == 503
    assert sorted(kept.index) == ["a", "b", "c", "d"]


def test_no_secret_reaches_a_file(server: Any, tmp_path: Path) -> None:
    """Our tokens, header values, URL queries and filter texts are masked in every file, names included."""
    service = server.service()
    url = "https://user:canary-user@example.com/x?key=canary-key"
    rows = [
        _entry(
            "a",
            url=url,
            header={"Authorization": ["Bearer canary-header"]},
            body="queue-token-of-the-test",
        )
    ]
    server.json(_page(*rows))
    tk.sync_failures(
        service,
        tmp_path / "kept",
        filter=tk.FailureFilter(workflow_url=url),
        progress=False,
    )
    server.json(_page(*rows))
    changes = tk.sync_failures(
        service,
        tmp_path / "kept",
        filter=tk.FailureFilter(workflow_url=url),
        progress=False,
    )
    # masks are the same each time, so nothing seems to have changed
    assert changes.counts == {"added": 0, "changed": 0, "gone": 0}
    plain = (
        str(tk.read_snapshot(tmp_path / "kept").to_dict())
        + repr(changes)
        + changes._repr_html_()
    )
    texts = [
        path.read_bytes() for path in (tmp_path / "kept").rglob("*") if path.is_file()
    ]
    for secret in (
        b"canary-user",
        b"canary-key",
        b"canary-header",
        b"queue-token-of-the-test",
    ):
        assert not [text for text in (*texts, plain.encode()) if secret in text]


def test_an_incomplete_sync_warns(server: Any, tmp_path: Path) -> None:
    """Where entries are repeated however often it is read, nothing is marked gone, and a warning says so."""
    service = server.service()
    server.json(_page(_entry("a"), _entry("b")))
    tk.sync_failures(service, tmp_path, progress=False)
    first, second = _page(_entry("b"), cursor="next"), _page(_entry("b"), _entry("c"))
    server.responding(
        lambda asked: second if dict(asked.query).get("cursor") else first
    )
    with pytest.warns(IncompleteLoadWarning, match="nothing was marked gone"):
        changes = tk.sync_failures(service, tmp_path, progress=False)
    assert changes.counts == {"added": 1, "changed": 0, "gone": 0}


def test_another_filter_is_refused_without_asking(server: Any, tmp_path: Path) -> None:
    """The snapshot of everything is not synced with a narrower filter, and the service is not asked."""
    service = server.service()
    server.json(_page(_entry("a")))
    tk.sync_failures(service, tmp_path, progress=False)
    asked = len(server.requests)
    with pytest.raises(SnapshotBindingError):
        tk.sync_failures(
            service, tmp_path, filter=tk.FailureFilter(label="x"), progress=False
        )
    with pytest.raises(SnapshotBindingError):
        tk.sync_failures(service, tmp_path, kind="messages", progress=False)
    assert len(server.requests) == asked


def test_an_error_of_the_service_keeps_the_snapshot(
    server: Any, tmp_path: Path
) -> None:
    """A token that expires between two pages raises, and the snapshot is as it was."""
    service = server.service()
    server.json(_page(_entry("a")))
    tk.sync_failures(service, tmp_path, progress=False)
    server.json(_page(_entry("b"), cursor="next"))
    server.json(b'{"error": "unauthorized"}', status=401)
    with pytest.raises(AuthenticationError):
        tk.sync_failures(service, tmp_path, progress=False)
    assert tk.read_snapshot(tmp_path)["dlq_id"].tolist() == ["a"]
    assert tk.verify_snapshot(tmp_path).generation == 1


def _expiring(server: Any, respond: Callable[[Any], bytes], *, after: int) -> None:
    """Respond, but refuse the first token after so many responses."""
    given = itertools.count()

    def refusing(asked: Any) -> bytes:
        if "second-token" in asked.headers["Authorization"] or next(given) < after:
            return respond(asked)
        return b"no response"

    server.responding(refusing)


@pytest.mark.usefixtures("no_backoff")
def test_a_sync_resumes_with_a_new_token(server: Any, tmp_path: Path) -> None:
    """What was read before a load failed is not lost: with another token the same call ends the load."""

    def respond(asked: Any) -> bytes:
        number = int(dict(asked.query).get("cursor", 0))
        rows = (_entry(f"{number}-{row}") for row in range(10))
        return _page(*rows, cursor=str(number + 1) if number < 11 else None)

    _expiring(server, respond, after=6)
    with pytest.raises(ServiceError):
        tk.sync_failures(server.service(), tmp_path, progress=False)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.name.startswith("_checkpoint") for path in files)
    assert not any(b"token-of-the-test" in path.read_bytes() for path in files)
    service = tk.connect(queue_url=server.url, queue_token="second-token-of-the-test")
    changes = tk.sync_failures(service, tmp_path, progress=False)
    assert (changes.receipt.complete, changes.receipt.resumed) == (True, 1)
    assert changes.added["dlq_id"].is_unique
    assert len(changes.added) == 120


@pytest.mark.usefixtures("no_backoff")
def test_an_export_resumes_with_a_new_token(server: Any, tmp_path: Path) -> None:
    """The same for vectors."""
    info = {"vectorCount": 60, "dimension": 2, "namespaces": {"": {"vectorCount": 60}}}

    def respond(asked: Any) -> bytes:
        if asked.path == "/info":
            return json.dumps({"result": info}).encode()
        number = int(json.loads(asked.body)["cursor"])
        vectors = [{"id": f"{number}-{row}", "vector": [1.0, 2.0]} for row in range(10)]
        return json.dumps(
            {
                "result": {
                    "nextCursor": str(number + 1) if number < 5 else "",
                    "vectors": vectors,
                }
            }
        ).encode()

    _expiring(server, respond, after=4)
    with pytest.raises(ServiceError):
        tk.export_vectors(server.service(), tmp_path, progress=False)
    service = tk.connect(vector_url=server.url, vector_token="second-token-of-the-test")
    receipt = tk.export_vectors(service, tmp_path, progress=False)
    assert (receipt.complete, receipt.resumed, receipt.rows) == (True, 1, 60)
    assert tk.read_snapshot(tmp_path)["id"].is_unique


def test_an_index_is_exported(server: Any, tmp_path: Path) -> None:
    """Every namespace with its vectors, from info and ranges."""
    info = {
        "vectorCount": 2,
        "dimension": 2,
        "namespaces": {"": {"vectorCount": 1}, "b": {"vectorCount": 1}},
    }
    server.json(json.dumps({"result": info}).encode())
    for name in ("x", "y"):
        vector = {
            "id": name,
            "vector": [1.0, 2.0],
            "metadata": {"n": 1},
            "data": "text",
        }
        server.json(
            json.dumps({"result": {"nextCursor": "", "vectors": [vector]}}).encode()
        )
    receipt = tk.export_vectors(
        server.service(), tmp_path, namespace="all", progress=False
    )
    assert receipt.complete
    frame = tk.read_snapshot(tmp_path)
    # namespaces are read side by side
    assert sorted(frame["namespace"]) == ["", "b"]
    assert sorted(frame["id"]) == ["x", "y"]
    assert tk.as_matrix(frame).tolist() == [[1.0, 2.0], [1.0, 2.0]]


@pytest.mark.slow
def test_a_history_of_many_syncs_opens_quickly(server: Any, tmp_path: Path) -> None:
    """After 40 daily syncs, each with new entries, opening and counting takes a fraction of a second."""
    service = server.service()
    rows = []
    for day in range(40):
        rows = [*rows[-20:], *(_entry(f"{day}-{number}") for number in range(10))]
        server.json(_page(*rows))
        tk.sync_failures(service, tmp_path, progress=False)
    began = time.perf_counter()
    assert tk.open_snapshot(tmp_path).to_arrow().count_rows() == 400
    assert time.perf_counter() - began < 1


def test_a_namespace_that_no_address_can_name_is_refused_before_others_are_read(
    server: Any, tmp_path: Path
) -> None:
    """Nothing but the description of the index is requested."""
    server.json(b'{"result": {"vectorCount": 2, "dimension": 2, "namespaces": '
                b'{"a": {"vectorCount": 1}, "\\ud800": {"vectorCount": 1}}}}')  # fmt: skip
    with pytest.raises(ProtocolError, match="Name the other namespaces"):
        tk.export_vectors(server.service(), tmp_path, namespace="all", progress=False)
    assert [request.path for request in server.requests] == ["/info"]
