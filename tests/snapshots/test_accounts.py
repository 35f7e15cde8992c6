"""Two accounts at one address: a snapshot stays with the one it was made from."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import toolkit as tk
from toolkit.errors import ServiceError, SnapshotBindingError
from toolkit.snapshots.binding import REBOUND, ROTATED, UNBOUND
from toolkit.snapshots.manifest import Manifest, read_manifest
from toolkit.snapshots.store import SnapshotStore

Connect = Callable[[str], tk.Service]

_A_PAGE = 10


class Queues:
    """A service with a queue for each account; tokens of one account read the same queue."""

    def __init__(self, server: Any) -> None:
        self.server = server
        self.tokens: dict[str, list[str]] = {}
        self.limit = 1_000  # pages until the service fails
        server.respond = self._respond

    def connect(self, token: str) -> tk.Service:
        """A connection with this token."""
        return tk.connect(queue_url=self.server.url, queue_token=token, environ={})

    def _respond(self, asked: Any) -> Any:
        ids = self.tokens[asked.headers["Authorization"].removeprefix("Bearer ")]
        *_, last = asked.path.split("/")
        if last != "dlq":
            return (
                self._reply(200, _entry(last))
                if last in ids
                else self._reply(404, {"error": "none"})
            )
        self.limit -= 1
        if self.limit < 0:
            return self._reply(400, {"error": "no more"})
        first = int(dict(asked.query).get("cursor", 0))
        page = {"messages": [_entry(name) for name in ids[first : first + _A_PAGE]]}
        more = {"cursor": str(first + _A_PAGE)} if first + _A_PAGE < len(ids) else {}
        return self._reply(200, page | more)

    def _reply(self, status: int, content: dict[str, Any]) -> Any:
        self.server.json(json.dumps(content).encode(), status=status)
        return self.server.queue.pop()


def _entry(name: str) -> dict[str, Any]:
    return {
        "dlqId": name,
        "url": "https://example.com/",
        "createdAt": 1_767_225_600_000,
        "body": name,
    }


def _named(stem: str, count: int) -> list[str]:
    return [f"{stem}-{number}" for number in range(count)]


@pytest.fixture
def queues(server: Any) -> Queues:
    """Two accounts: `ours` with 30 entries, which `ours-rotated` reads, too, and `theirs` with 4."""
    found = Queues(server)
    ours = _named("ours", 30)
    found.tokens = {
        "ours": ours,
        "ours-rotated": ours,
        "theirs": _named("theirs", 4),
        "empty": [],
    }
    return found


@pytest.fixture
def sync(queues: Queues, tmp_path: Path) -> Callable[..., Any]:
    """Sync the snapshot with a token."""

    def run(token: str, **options: Any) -> Any:
        return tk.sync_failures(
            queues.connect(token), tmp_path / "kept", progress=False, **options
        )

    return run


def _manifest(path: Path) -> Manifest:
    manifest = read_manifest(SnapshotStore(path / "kept"))
    assert manifest is not None
    return manifest


def _files(path: Path) -> dict[Path, bytes]:
    return {
        file: file.read_bytes()
        for file in path.rglob("*")
        if file.is_file() and file.name != ".lock"
    }


def _fresh_home(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", tempfile.mkdtemp(dir=path))


@pytest.mark.parametrize("other", ["theirs", "empty"])
def test_another_account_is_refused_and_nothing_is_written(
    sync: Any, tmp_path: Path, other: str
) -> None:
    """The token of another account, with other entries or none, changes no byte; the right one goes on."""
    sync("ours")
    before = _files(tmp_path / "kept")
    with pytest.raises(SnapshotBindingError, match="rebind"):
        sync(other)
    assert _files(tmp_path / "kept") == before
    assert sync("ours").counts == {"added": 0, "changed": 0, "gone": 0}


def test_a_rotated_token_is_accepted_with_a_note(
    sync: Any, queues: Queues, tmp_path: Path
) -> None:
    """Entries that are stored show that the queue is the same; then the snapshot has the new token."""
    sync("ours")
    queues.tokens["ours-rotated"] = _named("ours", 30)[25:] + _named("later", 20)
    changes = sync("ours-rotated")
    assert changes.counts == {"added": 20, "changed": 0, "gone": 25}
    assert [note for note in changes.receipt.notes if note.startswith(ROTATED)]
    assert not [
        note for note in sync("ours-rotated").receipt.notes if note.startswith(ROTATED)
    ]
    assert len(_manifest(tmp_path).accounts) == 1


def test_a_rotated_token_without_entries_to_compare_needs_rebind(
    sync: Any, queues: Queues
) -> None:
    """If all entries have left the queue, the entries do not show whose token it is: the user has to."""
    sync("ours")
    queues.tokens["ours-rotated"] = _named("later", 3)
    with pytest.raises(SnapshotBindingError, match="--rebind"):
        sync("ours-rotated")
    changes = sync("ours-rotated", rebind=True)
    assert changes.counts == {"added": 3, "changed": 0, "gone": 30}
    assert REBOUND in changes.receipt.notes
    assert sync("ours-rotated").counts == {"added": 0, "changed": 0, "gone": 0}
    with pytest.raises(SnapshotBindingError):
        sync("ours")


def test_the_same_token_may_find_other_entries_only(sync: Any, queues: Queues) -> None:
    """An account whose queue was emptied and filled again is the same account."""
    sync("ours")
    queues.tokens["ours"] = _named("later", 3)
    assert sync("ours").counts == {"added": 3, "changed": 0, "gone": 30}


def test_a_fresh_home_compares_entries(
    sync: Any, queues: Queues, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With another masking key tokens cannot be compared: stored entries are enough, others are refused."""
    sync("ours")
    _fresh_home(tmp_path, monkeypatch)
    with pytest.raises(SnapshotBindingError, match="XDG_CONFIG_HOME"):
        sync("theirs")
    assert sync("ours").counts["gone"] == 0
    assert len(_manifest(tmp_path).accounts) == 2
    with pytest.raises(SnapshotBindingError):
        sync("theirs")
    _fresh_home(tmp_path, monkeypatch)
    queues.tokens["ours"] = []
    emptied = sync("ours")
    assert UNBOUND in emptied.receipt.notes
    assert emptied.counts["gone"] == 30
    assert len(_manifest(tmp_path).accounts) == 2
    queues.tokens["ours"] = _named("later", 2)
    assert sync("ours").counts["added"] == 2
    assert len(_manifest(tmp_path).accounts) == 3


@pytest.mark.usefixtures("no_backoff")
def test_a_stopped_load_of_another_account_is_not_resumed(
    sync: Any, queues: Queues, tmp_path: Path
) -> None:
    """What a load read with another account's token, before it stopped, does not get into the snapshot."""
    queues.tokens["theirs"] = _named("theirs", 30)
    queues.limit = 2
    with pytest.raises(ServiceError):
        sync("theirs")
    assert list((tmp_path / "kept").glob("_checkpoint*"))
    queues.limit = 1_000
    changes = sync("ours")
    assert [note for note in changes.receipt.notes if "another token" in note]
    assert sorted(changes.added["dlq_id"]) == sorted(_named("ours", 30))


@pytest.mark.usefixtures("no_backoff")
def test_a_stopped_load_resumes_with_a_rotated_token(sync: Any, queues: Queues) -> None:
    """One entry of the checkpoint that is still there shows that the account is the same."""
    queues.limit = 2
    with pytest.raises(ServiceError):
        sync("ours")
    queues.limit = 1_000
    changes = sync("ours-rotated")
    assert changes.receipt.resumed == 1
    assert changes.counts["added"] == 30


def test_no_file_allows_testing_a_guess_of_the_token(
    sync: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hash of one token differs with the masking key, which no file of the snapshot contains."""
    sync("ours")
    (path,) = Path(os.environ["XDG_CONFIG_HOME"]).rglob("masking.key")
    key = path.read_bytes()
    content = b"".join(_files(tmp_path / "kept").values())
    for secret in (b'"ours"', key, key.hex().encode()):
        assert secret not in content
    _fresh_home(tmp_path, monkeypatch)
    sync("ours")
    first, second = _manifest(tmp_path).accounts
    assert first.key != second.key
    assert first.tag != second.tag
