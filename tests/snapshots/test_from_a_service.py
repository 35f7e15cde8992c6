"""The public functions over real HTTP: what the service says ends up at rest, and its secrets do not."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

import toolkit as tk
from toolkit.errors import AuthenticationError, IncompleteLoadWarning, SnapshotBindingError


def _page(*rows: dict[str, Any], cursor: str | None = None) -> bytes:
    return json.dumps({"messages": rows, **({"cursor": cursor} if cursor else {})}).encode()


def _entry(name: str, **values: Any) -> dict[str, Any]:
    return {
        "dlqId": name,
        "url": "https://example.com/",
        "createdAt": 1_767_225_600_000,
        "body": "text",
        **values,
    }


def test_syncs_of_a_service_tell_what_happened(server: Any, tmp_path: Path) -> None:
    """Over several pages and two syncs, entries are added, changed and gone."""
    service = server.service()
    server.json(_page(_entry("a"), _entry("b"), cursor="next"))
    server.json(_page(_entry("c")))
    first = tk.sync_failures(service, tmp_path / "kept", progress=False)
    assert first.added["dlq_id"].tolist() == ["a", "b", "c"]
    server.json(_page(_entry("c", responseStatus=503), _entry("b"), _entry("d")))
    second = tk.sync_failures(service, tmp_path / "kept", progress=False)
    found = [frame["dlq_id"].tolist() for frame in (second.added, second.changed, second.gone)]
    assert found == [["d"], ["c"], ["a"]]
    assert tk.receipt(second.gone) == second.receipt
    kept = tk.read_snapshot(tmp_path / "kept").set_index("dlq_id")
    assert kept["response_status"]["c"] == 503
    assert sorted(kept.index) == ["a", "b", "c", "d"]


def test_no_secret_reaches_a_file(server: Any, tmp_path: Path) -> None:
    """Our tokens, header values, URL queries and filter texts are masked in every file, names included."""
    service = server.service()
    url = "https://user:canary-user@example.com/x?key=canary-key"
    rows = [
        _entry(
            "a", url=url, header={"Authorization": ["Bearer canary-header"]}, body="queue-token-of-the-test"
        )
    ]
    server.json(_page(*rows))
    tk.sync_failures(service, tmp_path / "kept", filter=tk.FailureFilter(workflow_url=url), progress=False)
    server.json(_page(*rows))
    changes = tk.sync_failures(
        service, tmp_path / "kept", filter=tk.FailureFilter(workflow_url=url), progress=False
    )
    # masks are the same each time, so nothing seems to have changed
    assert changes.counts == {"added": 0, "changed": 0, "gone": 0}
    plain = str(tk.read_snapshot(tmp_path / "kept").to_dict()) + repr(changes) + changes._repr_html_()
    texts = [path.read_bytes() for path in (tmp_path / "kept").rglob("*") if path.is_file()]
    for secret in (b"canary-user", b"canary-key", b"canary-header", b"queue-token-of-the-test"):
        assert not [text for text in (*texts, plain.encode()) if secret in text]


def test_an_incomplete_sync_warns(server: Any, tmp_path: Path) -> None:
    """An entry that comes twice means that entries moved: nothing is gone, and a warning says so."""
    service = server.service()
    server.json(_page(_entry("a"), _entry("b")))
    tk.sync_failures(service, tmp_path, progress=False)
    server.json(_page(_entry("b"), cursor="next"))
    server.json(_page(_entry("b"), _entry("c")))
    with pytest.warns(IncompleteLoadWarning, match="nothing was marked gone"):
        changes = tk.sync_failures(service, tmp_path, progress=False)
    assert changes.counts == {"added": 1, "changed": 0, "gone": 0}


def test_another_filter_is_refused_without_asking(server: Any, tmp_path: Path) -> None:
    """The snapshot of everything is not synced with a narrower filter, and the service is not asked."""
    service = server.service()
    server.json(_page(_entry("a")))
    tk.sync_failures(service, tmp_path, progress=False)
    asked = len(server.asked)
    with pytest.raises(SnapshotBindingError):
        tk.sync_failures(service, tmp_path, filter=tk.FailureFilter(label="x"), progress=False)
    with pytest.raises(SnapshotBindingError):
        tk.sync_failures(service, tmp_path, kind="messages", progress=False)
    assert len(server.asked) == asked


def test_an_error_of_the_service_keeps_the_snapshot(server: Any, tmp_path: Path) -> None:
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


def test_an_index_is_exported(server: Any, tmp_path: Path) -> None:
    """Every namespace with its vectors, from info and ranges."""
    info = {"vectorCount": 2, "dimension": 2, "namespaces": {"": {"vectorCount": 1}, "b": {"vectorCount": 1}}}
    server.json(json.dumps({"result": info}).encode())
    for name in ("x", "y"):
        vector = {"id": name, "vector": [1.0, 2.0], "metadata": {"n": 1}, "data": "text"}
        server.json(json.dumps({"result": {"nextCursor": "", "vectors": [vector]}}).encode())
    receipt = tk.export_vectors(server.service(), tmp_path, namespace="all", progress=False)
    assert receipt.complete
    frame = tk.read_snapshot(tmp_path)
    assert list(zip(frame["namespace"], frame["id"], strict=True)) == [("", "x"), ("b", "y")]
    assert tk.as_matrix(frame).tolist() == [[1.0, 2.0], [1.0, 2.0]]


def test_a_history_of_many_syncs_opens_quickly(server: Any, tmp_path: Path) -> None:
    """After 40 daily syncs, each with new entries, opening and counting takes a fraction of a second."""
    service = server.service()
    rows = []
    for day in range(40):
        rows = [*rows[-20:], *(_entry(f"{day}-{number}") for number in range(10))]
        server.json(_page(*rows))
        tk.sync_failures(service, tmp_path, progress=False)
    began = time.perf_counter()
    assert tk.scan_snapshot(tmp_path).count_rows() == 400
    assert time.perf_counter() - began < 1
