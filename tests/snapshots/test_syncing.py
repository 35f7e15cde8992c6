"""Syncing failures: what is new, what changed, what is gone, and what an incomplete load may say."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolkit.errors import SnapshotBindingError, SnapshotError, TransportError
from toolkit.loading.identities import identities
from toolkit.loading.load import Batch, Load
from toolkit.snapshots import (
    Changes,
    open_snapshot,
    read_snapshot,
    verify_snapshot,
    write_snapshot,
)
from toolkit.snapshots.data_files import STORED_FAILURES
from toolkit.snapshots.manifest import SCHEMA_VERSION
from toolkit.snapshots.store import SnapshotStore
from toolkit.snapshots.syncing import sync_load
from toolkit.tables.frames import to_frame
from toolkit.tables.receipt import get_receipt

Sync = Callable[..., Changes]


def _ids(frame: pd.DataFrame) -> list[str]:
    return sorted(frame["dlq_id"])


def _found(changes: Changes) -> tuple[list[str], list[str], list[str]]:
    return _ids(changes.added), _ids(changes.changed), _ids(changes.gone)


def _row(store: SnapshotStore, name: str) -> Any:
    frame = read_snapshot(store.path)
    return frame[frame["dlq_id"] == name].iloc[0]


def test_a_first_sync_adds_everything(
    sync: Sync, store: SnapshotStore, made: SimpleNamespace
) -> None:
    """All rows are returned as they were, with the time first seen and nothing gone."""
    rows = made.entries("a", "b", "c")
    changes = sync(rows[:2], rows[2:])
    assert _found(changes) == (["a", "b", "c"], [], [])
    assert changes.counts == {"added": 3, "changed": 0, "gone": 0}
    frame = read_snapshot(store.path)
    pd.testing.assert_frame_equal(
        frame[frame.columns[:-4]], to_frame(made.failures(rows))
    )
    assert frame["first_seen_at"].tolist() == [pd.Timestamp("2026-03-01T12:00Z")] * 3
    assert frame["gone_before"].isna().all()
    assert get_receipt(frame).complete
    pd.testing.assert_frame_equal(changes.added, frame)


def test_a_sync_reports_added_changed_and_gone(
    sync: Sync, store: SnapshotStore, clock: Any, made: SimpleNamespace
) -> None:
    """New rows, rows with new content and rows that are missing are found; the others are left alone."""
    sync(made.entries("a", "b", "c"))
    clock.forward(days=1)
    changes = sync([made.entry("b", labels='["b","a"]'), *made.entries("c", "d")])
    assert _found(changes) == (["d"], ["b"], ["a"])
    frame = read_snapshot(store.path)
    assert _ids(frame) == ["a", "b", "c", "d"]
    assert frame["gone_before"].notna().tolist() == (frame["dlq_id"] == "a").tolist()
    # a changed row keeps the day it was first seen
    assert _row(store, "b")["first_seen_at"] == pd.Timestamp("2026-03-01T12:00Z")
    assert _row(store, "b")["labels"] == '["b","a"]'
    assert _row(store, "d")["first_seen_at"] == pd.Timestamp("2026-03-02T12:00Z")
    assert changes.changed["labels"].iloc[0] == '["b","a"]'
    assert changes.gone["gone_before"].notna().all()


def test_gone_rows_say_between_which_loads_they_disappeared(
    sync: Sync, made: SimpleNamespace
) -> None:
    """The span begins with the last complete load that saw the entry, and ends with the first without it."""
    first = sync(made.entries("a", "b"))
    second = sync(made.entries("a", "b"))
    third = sync(made.entries("b"))
    gone = third.gone.iloc[0]
    assert gone["gone_after"] == max(
        pd.Timestamp(second.receipt.started_at), pd.Timestamp("2026-03-01T12:00Z")
    )
    assert gone["gone_before"] == pd.Timestamp(third.receipt.ended_at)
    assert (
        pd.Timestamp(first.receipt.started_at)
        <= gone["gone_after"]
        <= gone["gone_before"]
    )


def test_a_reappearing_entry_is_unmarked(
    sync: Sync, store: SnapshotStore, clock: Any, made: SimpleNamespace
) -> None:
    """A row marked gone loses the mark when the entry is seen again, and keeps when it was first seen."""
    sync(made.entries("a", "b"))
    sync(made.entries("b"))
    still_gone = sync(made.entries("b"))
    assert _found(still_gone) == ([], [], [])
    clock.forward(days=3)
    changes = sync(made.entries("a", "b"))
    assert _found(changes) == ([], ["a"], [])
    assert pd.isna(_row(store, "a")["gone_before"])
    assert _row(store, "a")["first_seen_at"] == pd.Timestamp("2026-03-01T12:00Z")


def test_an_incomplete_load_marks_nothing_gone(
    sync: Sync, store: SnapshotStore, made: SimpleNamespace
) -> None:
    """What is new is written, what is missing is not called gone, and the result says why."""
    sync(made.entries("a", "b"))
    moved = sync(made.entries("b", "c"), made.entries("b"))
    assert not moved.receipt.complete
    assert _found(moved) == (["c"], [], [])
    assert "nothing was marked gone" in repr(moved)
    assert read_snapshot(store.path)["gone_before"].isna().all()
    assert _found(sync(made.entries("b", "c"))) == ([], [], ["a"])


def test_a_failing_load_leaves_the_snapshot_as_it_was(
    sync: Sync, store: SnapshotStore, made: SimpleNamespace
) -> None:
    """Rows that came before the failure are not in it: they are stored in a checkpoint beside it."""
    sync(made.entries("a", "b"))
    before = {
        path: path.read_bytes() for path in store.path.rglob("*") if path.is_file()
    }
    with pytest.raises(TransportError):
        sync(made.entries("c"), error=TransportError("reading"))
    with pytest.raises(KeyboardInterrupt):
        sync(made.entries("c"), error=KeyboardInterrupt())
    after = {
        path: path.read_bytes() for path in store.path.rglob("*") if path.is_file()
    }
    assert {p: c for p, c in before.items() if p.name != ".lock"} == {
        p: c
        for p, c in after.items()
        if p.name != ".lock" and not p.name.startswith("_checkpoint")
    }
    assert verify_snapshot(store.path).unlisted == ()


def test_only_touched_files_are_rewritten(
    sync: Sync, store: SnapshotStore, clock: Any, made: SimpleNamespace
) -> None:
    """Files of a day lie in its folder, and keep their names as long as no row in them changes."""
    sync(made.entries("a"))
    clock.forward(days=1)
    sync(made.entries("a", "b"))
    clock.forward(days=1)
    sync(made.entries("a", "b", "c"))
    names = sorted(name for name in store.names() if name.endswith(".parquet"))
    assert [name.split("/")[:2] for name in names] == [
        ["first_seen", f"2026-03-0{day}"] for day in (1, 2, 3)
    ]
    sync([*made.entries("a", "c"), made.entry("b", body="new")])
    after = sorted(name for name in store.names() if name.endswith(".parquet"))
    assert [old == new for old, new in zip(names, after, strict=True)] == [
        True,
        False,
        True,
    ]


def test_an_unchanged_sync_writes_no_rows(
    sync: Sync, store: SnapshotStore, made: SimpleNamespace
) -> None:
    """Only the manifest is new: with the receipt of the load, and a generation on."""
    sync(made.entries("a", "b"))
    before = set(store.names())
    changes = sync(made.entries("b", "a"))
    assert _found(changes) == ([], [], [])
    assert set(store.names()) == before
    assert verify_snapshot(store.path).generation == 2


def test_any_reader_returns_the_rows_of_the_frame(
    sync: Sync, store: SnapshotStore, clock: Any, made: SimpleNamespace
) -> None:
    """Plain pyarrow, DuckDB and the dataset see exactly the frame's rows and columns, after rewrites too."""
    sync(made.entries("a", "b"))
    clock.forward(days=1)
    sync([made.entry("b", body_base64="/wA=", body=None), *made.entries("c")])
    frame = read_snapshot(store.path).sort_values("dlq_id", ignore_index=True)
    snapshot = open_snapshot(store.path)
    plain = pq.read_table(snapshot.files())
    ducks = duckdb.read_parquet(snapshot.files()).to_arrow_table()
    for table in (plain, ducks, snapshot.to_arrow().to_table()):
        assert table.schema.names == STORED_FAILURES.names
        found = to_frame(table.cast(STORED_FAILURES).replace_schema_metadata(None))
        pd.testing.assert_frame_equal(
            found.sort_values("dlq_id", ignore_index=True), frame, check_like=False
        )


def test_an_empty_queue_is_a_snapshot_with_all_columns(
    sync: Sync, store: SnapshotStore, made: SimpleNamespace
) -> None:
    """A sync of nothing can be read by anything, and the first rows replace the empty file."""
    changes = sync()
    assert _found(changes) == ([], [], [])
    assert changes.added.drop(columns="error").columns.tolist() == STORED_FAILURES.names
    assert pq.read_table(store.path).schema.names == STORED_FAILURES.names
    assert read_snapshot(store.path).empty
    assert _found(sync()) == ([], [], [])
    assert _found(sync(made.entries("a"))) == (["a"], [], [])
    assert verify_snapshot(store.path).files == 1


@pytest.mark.parametrize(
    "other", [{"source": "http://127.0.0.1:2"}, {"scope": {"kind": "messages"}}]
)
def test_a_snapshot_belongs_to_one_service_and_scope(
    sync: Sync, store: SnapshotStore, made: SimpleNamespace, other: dict[str, Any]
) -> None:
    """Another account or a narrower filter is refused before anything is read, and marks nothing gone."""
    sync(made.entries("a"))
    load = made.load(made.entries("b"), **other)
    with pytest.raises(SnapshotBindingError, match="separate folder"):
        sync_load(load, store)
    assert load.state.pages == 0
    assert load.receipt.rows == 0
    assert _ids(read_snapshot(store.path)) == ["a"]


def test_a_frame_does_not_replace_a_history(
    sync: Sync, store: SnapshotStore, made: SimpleNamespace
) -> None:
    """Writing a frame over a synced snapshot is refused."""
    sync(made.entries("a"))
    with pytest.raises(SnapshotBindingError, match="history"):
        write_snapshot(read_snapshot(store.path), store.path)


def test_changes_show_themselves_escaped(
    sync: Sync, tmp_path: Path, made: SimpleNamespace
) -> None:
    """Text and HTML say counts, place and completeness, without markup from names."""
    store = SnapshotStore(tmp_path / "<b>&")
    changes = sync_load(made.load(made.entries("a")), store)
    assert "1 added, 0 changed, 0 gone" in repr(changes)
    html = changes._repr_html_()
    assert "&lt;b&gt;&amp;" in html
    assert "<b>" not in html


def test_changes_of_an_earlier_sync_say_when_they_are_no_longer_available(
    sync: Sync, made: SimpleNamespace
) -> None:
    """Frames not requested before a later sync replaced their file are refused, not wrong."""
    first = sync(made.entries("a"))
    sync([made.entry("a", body="new")])
    with pytest.raises(SnapshotError, match="before the next sync"):
        _ = first.added


def test_a_load_with_duplicate_entries_is_refused(
    sync: Sync,
    store: SnapshotStore,
    made: SimpleNamespace,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Stored ids are unique even if a loader should fail to make them so."""

    def unchecked(load: Load, table: pa.Table) -> Batch:
        found = identities(table, load.plan.key)
        load.state.rows._order += b"".join(found)
        return Batch(table=table, identities=found)

    monkeypatch.setattr("toolkit.loading.load.Load._unique", unchecked)
    with pytest.raises(SnapshotError, match="twice"):
        sync(made.entries("a"), made.entries("a"))
    sync(made.entries("a"))
    for pages in ([made.entries("a", "a")], [made.entries("a"), made.entries("a")]):
        with pytest.raises(SnapshotError, match="twice"):
            sync(*pages)
    assert len(read_snapshot(store.path)) == 1


def test_files_and_folders_are_for_this_user_only(
    sync: Sync, store: SnapshotStore, made: SimpleNamespace
) -> None:
    """Every file is 0600 and every folder 0700."""
    sync(made.entries("a"))
    modes = {
        (path.is_dir(), path.stat().st_mode & 0o777) for path in store.path.rglob("*")
    }
    assert modes == {(True, 0o700), (False, 0o600)}
    assert store.path.stat().st_mode & 0o777 == 0o700


def test_the_metadata_says_receipt_and_schema_version(
    sync: Sync, store: SnapshotStore, made: SimpleNamespace
) -> None:
    """Each data file carries our JSON beside Arrow's own schema, and zstd pages."""
    changes = sync(made.entries("a"))
    (name,) = [name for name in store.names() if name.endswith(".parquet")]
    found = pq.read_metadata(store.path / name)
    facts = json.loads(found.metadata[b"toolkit"])
    assert facts == {
        "kind": "failures",
        "schema_version": SCHEMA_VERSION,
        "receipt": changes.receipt.to_dict(),
    }
    assert set(found.metadata) == {b"toolkit", b"ARROW:schema"}
    assert found.row_group(0).column(0).compression == "ZSTD"


_STATES = st.lists(
    st.dictionaries(st.sampled_from("abcdefgh"), st.sampled_from("xyz"), max_size=8),
    min_size=1,
    max_size=6,
)


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(states=_STATES)
def test_any_history_of_syncs_ends_as_a_model_says(
    states: list[dict[str, str]],
    made: SimpleNamespace,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """After each sync the counts, the rows and their marks are those of a dictionary kept beside it."""
    store = SnapshotStore(tmp_path_factory.mktemp("model"))
    clock = made.clock(datetime(2026, 1, 1, tzinfo=UTC))
    model: dict[str, tuple[str, bool, datetime]] = {}
    for state in states:
        clock.forward(hours=18)
        load = made.load([made.entry(name, body=body) for name, body in state.items()])
        changes = sync_load(load, store, clock=clock)
        expected = {
            "added": len(state.keys() - model.keys()),
            "changed": sum(
                model[n][:2] != (b, True) for n, b in state.items() if n in model
            ),
            "gone": sum(
                there and name not in state for name, (_, there, _) in model.items()
            ),
        }
        assert changes.counts == expected
        assert {n: len(getattr(changes, n)) for n in expected} == expected
        model = {
            name: (body, name in state, first)
            for name, (body, _, first) in model.items()
        }
        for name, body in state.items():
            model[name] = (body, True, model[name][2] if name in model else clock.now)
        frame = read_snapshot(store.path)
        found = {
            row.dlq_id: (row.body, pd.isna(gone), row.first_seen_at.to_pydatetime())
            for row, gone in zip(frame.itertuples(), frame["gone_before"], strict=True)
        }
        assert len(frame) == len(found)
        assert found == model
    assert verify_snapshot(store.path).gone == sum(
        not there for _, there, _ in model.values()
    )
