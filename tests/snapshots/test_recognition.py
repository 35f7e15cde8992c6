"""Syncs that do not decode what is stored in the same bytes: the same snapshot as if they did."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import toolkit as tk
from toolkit.errors import IncompleteLoadWarning, ToolkitError
from toolkit.loading.failures import open_failures
from toolkit.loading.options import LoadOptions
from toolkit.service.responses import RetryPolicy
from toolkit.service.transport import Transport
from toolkit.snapshots.store import SnapshotStore
from toolkit.snapshots.syncing import sync_load
from toolkit.tables.failures import FailureDecoder

PAGE = 3


def entry(name: str, **values: Any) -> bytes:
    """An entry as the service writes it."""
    return json.dumps(
        {"dlqId": name, "createdAt": 1_767_225_600_000, "body": "text", **values}
    ).encode()


def entries(*names: str) -> list[bytes]:
    """Entries of these ids."""
    return [entry(name) for name in names]


@pytest.fixture
def dlq(server: Any) -> SimpleNamespace:
    """What the service lists, in pages of three; `spoilt` may return another response for a page's number."""
    listed = SimpleNamespace(entries=[], spoilt=lambda number: None)

    def page(request: Any) -> bytes:
        number = int(dict(request.query).get("cursor", 0))
        spoilt = listed.spoilt(number)
        if spoilt is not None:
            return spoilt
        rows = listed.entries[number * PAGE : (number + 1) * PAGE]
        more = len(listed.entries) > (number + 1) * PAGE
        cursor = b'"%d"' % (number + 1) if more else b"null"
        return b'{"messages": [' + b", ".join(rows) + b'], "cursor": ' + cursor + b"}"

    server.responding(page)
    return listed


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ids of the entries that were decoded, in order."""
    ids: list[str] = []
    tables = FailureDecoder.tables

    def watched(self: FailureDecoder, pages: Any) -> Iterator[Any]:
        for table in tables(self, pages):
            ids.extend(table["dlq_id"].to_pylist())
            yield table

    monkeypatch.setattr(FailureDecoder, "tables", watched)
    return ids


@pytest.fixture
def sync(
    server: Any, tmp_path: Path, decoded: list[str]
) -> Callable[..., tuple[dict[str, int], list[str]]]:
    """Syncs, one page after another: how many rows are added, changed and gone, and what was decoded."""

    def run(
        service: tk.Service | None = None, name: str = "kept"
    ) -> tuple[dict[str, int], list[str]]:
        decoded.clear()
        service = service or server.service()
        changes = tk.sync_failures(
            service, tmp_path / name, progress=False, connections=1
        )
        assert changes.receipt.rows == len(
            tk.read_snapshot(tmp_path / name).query("gone_before.isna()")
        )
        return changes.counts, list(decoded)

    return run


def counts(added: int = 0, changed: int = 0, gone: int = 0) -> dict[str, int]:
    """As `Changes.counts`."""
    return {"added": added, "changed": changed, "gone": gone}


def test_only_new_and_changed_rows_are_decoded(dlq: SimpleNamespace, sync: Any) -> None:
    """Nothing of a DLQ that is as it was; of another one, the entries that differ and no others."""
    dlq.entries = entries(*"abcdefgh")
    assert sync() == (counts(added=8), list("abcdefgh"))
    assert sync() == (counts(), [])
    dlq.entries = [
        entry("new"),
        *entries("a", "b"),
        entry("c", body="other"),
        *entries("d", "f", "g", "h"),
    ]
    assert sync() == (counts(added=1, changed=1, gone=1), ["new", "c"])
    assert sync() == (counts(), [])


def test_reappearing_entries_are_decoded_and_unmarked(
    dlq: SimpleNamespace, sync: Any, tmp_path: Path
) -> None:
    """Though its bytes are those stored."""
    dlq.entries = entries("a", "b")
    sync()
    dlq.entries = entries("a")
    assert sync() == (counts(gone=1), [])
    dlq.entries = entries("a", "b")
    assert sync() == (counts(changed=1), ["b"])
    assert tk.read_snapshot(tmp_path / "kept")["gone_before"].isna().all()
    assert sync() == (counts(), [])


def test_other_bytes_of_the_same_row_are_no_change_and_are_learned(
    dlq: SimpleNamespace, sync: Any
) -> None:
    """A service that writes its JSON in another way is compared once, and recognised from then on."""
    dlq.entries = [b'{"dlqId": "a", "body": "x"}', *entries("b")]
    sync()
    dlq.entries = [b'{"body":"\\u0078","dlqId":"a"}', *entries("b")]
    assert sync() == (counts(), ["a"])
    assert sync() == (counts(), [])


def test_entries_masked_with_another_key_are_decoded(
    dlq: SimpleNamespace, sync: Any, server: Any, clean_environment: Path
) -> None:
    """A token that has become ours changes the rows that hold it; so does another user's key."""
    token = "another-token-than-the-one-above"
    dlq.entries = [
        entry("a", body=f"says {token}"),
        entry("b", header={"Authorization": ["x" * 30]}),
        entry("c"),
    ]
    sync()
    renewed = tk.connect(queue_url=server.url, queue_token=token)
    assert sync(renewed) == (counts(changed=1), ["a", "b", "c"])
    assert sync(renewed) == (counts(), [])
    (key,) = clean_environment.rglob("masking.key")
    key.unlink()
    renewed = tk.connect(queue_url=server.url, queue_token=token)
    assert sync(renewed) == (counts(changed=2), ["a", "b", "c"])


@pytest.mark.parametrize("position", [2, 11])
@pytest.mark.parametrize(
    ("first", "second", "changed"), [("text", "new", 1), ("new", "text", 0)]
)
def test_an_entry_that_changes_while_it_is_read_keeps_its_later_version(
    dlq: SimpleNamespace,
    sync: Any,
    tmp_path: Path,
    *,
    position: int,
    first: str,
    second: str,
    changed: int,
) -> None:
    """On two pages of one load, decoded together or not, once as stored and once not: the last one."""
    names = "abcdefghijklmnopqrst"
    dlq.entries = entries(*names)
    sync()
    dlq.entries = entries(*names.replace("a", ""))
    dlq.entries[position:position] = [entry("a", body=first), entry("a", body=second)]
    with pytest.warns(IncompleteLoadWarning, match="not complete"):
        found, decoded = sync()
    assert found == counts(changed=changed)
    assert "a" in decoded
    kept = tk.read_snapshot(tmp_path / "kept").set_index("dlq_id")
    assert kept["body"]["a"] == second
    assert sorted(kept.index) == list(names)


def test_a_page_that_is_not_as_specified_is_decoded_and_the_others_are_not(
    dlq: SimpleNamespace, sync: Any
) -> None:
    """A lone surrogate in an id, which no strict reader accepts."""
    odd = b'{"dlqId": "x\\ud800", "body": "text"}'
    dlq.entries = [*entries("a", "b", "c"), odd, *entries("e", "f")]
    assert sync()[0] == counts(added=6)
    found, decoded = sync()
    assert found == counts()
    assert decoded[1:] == ["e", "f"]


def test_a_stopped_sync_is_resumed_and_ends_the_same(
    dlq: SimpleNamespace, sync: Any, server: Any, decoded: list[str], tmp_path: Path
) -> None:
    """What was recognised before the stop counts as read, and nothing of it is decoded afterwards."""
    dlq.entries = entries(*"abcdefgh")
    sync()
    dlq.entries = [*entries("new"), *dlq.entries]
    dlq.spoilt = lambda number: b"<html>" if number == 2 else None
    service = server.service()

    def load() -> Any:
        return open_failures(
            service,
            transport=lambda: Transport.to(
                service, "queue", policy=RetryPolicy(tries=1)
            ),
            options=LoadOptions(progress=False, connections=1),
        )

    with pytest.raises(ToolkitError, match="JSON"):
        sync_load(load(), SnapshotStore(tmp_path / "kept"))
    dlq.spoilt = lambda number: None
    decoded.clear()
    changes = sync_load(load(), SnapshotStore(tmp_path / "kept"))
    assert (changes.counts, changes.receipt.resumed, changes.receipt.rows) == (
        counts(added=1),
        1,
        9,
    )
    assert "new" not in decoded
    assert sync() == (counts(), ["new"])
    assert sync() == (counts(), [])


_FORMS = (
    b'{"dlqId": "%c", "body": "text"}',
    b'{"dlqId":"%c","body":"text"}',
    b'{"dlqId": "%c", "body": "new"}',
    b'{"dlqId": "%c", "body": "\\ud800"}',
    b'{"dlqId": "%c", "body": "\xff"}',
    b'{"dlqId": "%c", "label": "x", "cause": {"label": "x", "label": "y"}, "dlqId": "%c"}',
    b'{"dlqId": "%c", "createdAt": "yesterday"}',
)
"""Ways to write an entry: two of the same row, and others that are not as specified."""


@pytest.mark.slow
@settings(
    max_examples=25,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
)
@given(
    states=st.lists(
        st.dictionaries(
            st.sampled_from(b"abcdef"), st.sampled_from(_FORMS), min_size=1
        ),
        min_size=2,
        max_size=4,
    )
)
def test_any_history_ends_as_if_everything_was_decoded(
    states: list[dict[int, bytes]],
    dlq: SimpleNamespace,
    server: Any,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same rows and the same changes, sync after sync."""
    service, folder = server.service(), tmp_path_factory.mktemp("history")
    for state in states:
        dlq.entries = [
            form.replace(b"%c", b"%c" % name) for name, form in state.items()
        ]
        found = tk.sync_failures(service, folder / "recognising", progress=False)
        with monkeypatch.context() as patch:
            patch.setattr(
                "toolkit.loading.identities.EntryRecognizer.read", lambda *_: None
            )
            expected = tk.sync_failures(service, folder / "decoding", progress=False)
        assert found.counts == expected.counts
        pd.testing.assert_frame_equal(
            *(stored_rows(folder / name) for name in ("recognising", "decoding"))
        )


def stored_rows(path: Path) -> pd.DataFrame:
    """In the order of their ids, without the times of the syncs."""
    frame = tk.read_snapshot(path).sort_values("dlq_id", ignore_index=True)
    return frame.assign(gone=frame["gone_before"].notna()).drop(
        columns=["gone_after", "gone_before", "first_seen_at"]
    )
