"""`open_snapshot` gives every engine the committed files, their units of work, and the receipt."""

from __future__ import annotations

import gc
import io
import json
import os
import re
import sys
import weakref
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dask
import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import toolkit as tk
from toolkit.errors import InputError, SettingsError, SnapshotError
from toolkit.failures.selection import receipt_of
from toolkit.snapshots import data_files
from toolkit.snapshots.store import SnapshotStore
from toolkit.snapshots.syncing import sync_load

Sync = Callable[..., Any]
_ROOT = Path(__file__).parents[2]


@pytest.fixture
def snapshot(
    sync: Sync, store: SnapshotStore, clock: Any, made: SimpleNamespace
) -> tk.results.Snapshot:
    """Six failures of three days, in two files."""
    days = [datetime(2026, 2, 26, tzinfo=UTC) + timedelta(days=day) for day in range(3)]
    rows = [
        made.entry(f"{name}{day.day}", created_at=day, failed_at=day)
        for day in days
        for name in "ab"
    ]
    sync(rows[:4])
    clock.forward(days=1)
    sync(rows)
    return tk.open_snapshot(store.path)


def _forms(snapshot: tk.results.Snapshot) -> dict[str, Any]:
    return {
        "duckdb": snapshot.to_duckdb(duckdb.connect()),
        "dask": snapshot.to_dask(),
    }


def test_every_engine_reads_each_row_once(
    snapshot: tk.results.Snapshot, made: SimpleNamespace
) -> None:
    """Files, units, Arrow, DuckDB, Dask and Polars have the same ids; columns are those of the dataset."""
    assert made.read_by_all(snapshot) == ["a26", "a27", "a28", "b26", "b27", "b28"]
    assert sum(unit.rows for unit in snapshot.units()) == snapshot.rows == 6
    assert {unit.path for unit in snapshot.units()} == {*snapshot.files()}
    names = snapshot.schema.names
    assert list(snapshot.to_dask().columns) == names
    assert snapshot.to_duckdb(duckdb.connect()).columns == names


def test_dask_partitions_have_the_types_of_a_frame(
    snapshot: tk.results.Snapshot,
) -> None:
    """No integer becomes a float, and the types are those that Dask was told."""
    frame = snapshot.to_dask()
    with dask.config.set(scheduler="synchronous"):
        computed = frame.compute()
    assert computed.dtypes.equals(frame.dtypes)
    assert str(computed["response_status"].dtype) == "Int64"


def test_a_time_chooses_rows_and_units(snapshot: tk.results.Snapshot) -> None:
    """Both ends are included; other row groups are not read."""
    day = {"since": "2026-02-28", "until": "2026-02-28"}
    assert len(snapshot.units()) == 2
    assert [unit.rows for unit in snapshot.units(**day)] == [2]
    for options, ids in (
        (day, ["a28", "b28"]),
        ({"since": "2026-02-27"}, ["a27", "a28", "b27", "b28"]),
        ({"until": "2026-02-26"}, ["a26", "b26"]),
        ({"until": "2025-01-01"}, []),
    ):
        frame = snapshot.to_dask(**options)
        with dask.config.set(scheduler="synchronous"):
            assert sorted(frame["dlq_id"].compute()) == ids
            assert len(frame) == len(ids)


def test_vectors_cannot_be_chosen_by_time(tmp_path: Path) -> None:
    """A snapshot without times of failure names the column."""
    tk.write_snapshot(pd.DataFrame({"label": ["a"]}), tmp_path / "labels")
    snapshot = tk.open_snapshot(tmp_path / "labels")
    assert snapshot.units()[0].earliest is None
    for use in (snapshot.units, snapshot.to_dask):
        with pytest.raises(InputError, match="failed_at"):
            use(since="7d")


def test_the_receipt_is_in_every_form(snapshot: tk.results.Snapshot) -> None:
    """Reports of DuckDB and Dask are that of the path, with completeness and the change of a day."""
    now = datetime(2026, 3, 2, 12, tzinfo=UTC)
    expected = tk.report_failures(snapshot.path, now=now).to_dict()
    assert snapshot.receipt is not None
    for name, form in _forms(snapshot).items():
        found = receipt_of(form)
        assert found == snapshot.receipt, name
        with dask.config.set(scheduler="synchronous"):
            assert tk.report_failures(form, now=now).to_dict() == expected, name
    relation = snapshot.to_duckdb(duckdb.connect())
    assert receipt_of(relation.filter("dlq_id = 'a26'")) == snapshot.receipt
    assert receipt_of(duckdb.sql("SELECT 1 AS dlq_id")) is None


def test_a_quote_in_the_receipt_is_no_sql(tmp_path: Path) -> None:
    """A note with quotation marks comes back as it is."""
    frame = pd.DataFrame({"dlq_id": ["a"]})
    receipt = tk.results.Receipt.from_dict(
        {
            "what": "failures",
            "source": "http://127.0.0.1:1",
            "scope": {},
            "rows": 1,
            "complete": True,
            "notes": ["it's '; DROP TABLE x; --"],
            "started_at": "2026-03-01T00:00:00+00:00",
            "ended_at": "2026-03-01T00:00:00+00:00",
        }
    )
    frame.attrs["receipt"] = receipt.to_dict()
    tk.write_snapshot(frame, tmp_path / "kept")
    relation = tk.open_snapshot(tmp_path / "kept").to_duckdb(duckdb.connect())
    found = receipt_of(relation)
    assert found is not None
    assert found.notes == receipt.notes


def test_the_default_connection_finds_the_relation_by_its_variable(
    snapshot: tk.results.Snapshot,
) -> None:
    """`duckdb.sql` reads the relation by the name of a variable."""
    rows = snapshot.to_duckdb()
    found = duckdb.sql("SELECT count(*) FROM rows")
    assert found is not None
    assert found.fetchall() == [(len(rows),)] == [(6,)]


def test_a_superseded_file_is_an_error_and_no_missing_row(
    snapshot: tk.results.Snapshot, store: SnapshotStore, made: SimpleNamespace
) -> None:
    """After a sync that replaces files, each reader of the old generation fails."""
    clock = made.clock(made.start + timedelta(days=2))
    sync_load(made.load(made.entries("z")), store, clock=clock)
    with pytest.raises(SnapshotError, match="open_snapshot again"):
        snapshot.units()[0].read()
    with (
        dask.config.set(scheduler="synchronous"),
        pytest.raises(SnapshotError, match="open_snapshot again"),
    ):
        snapshot.to_dask().compute()
    with pytest.raises(SnapshotError, match="open_snapshot again"):
        tk.group_failures(snapshot)


def test_polars_scans_the_folder(
    snapshot: tk.results.Snapshot, store: SnapshotStore
) -> None:
    """With the documented prefixes, neither the manifest nor the lock is in the way."""
    polars = pytest.importorskip("polars")
    assert {".lock", "_manifest.json"} <= {
        file.name for file in Path(store.path).iterdir()
    }
    scanned = polars.scan_parquet(store.path, hidden_file_prefix=["_", "."])
    assert scanned.collect().height == snapshot.rows


@pytest.mark.parametrize("package", ["duckdb", "dask", "polars"])
def test_a_missing_package_is_named(
    snapshot: tk.results.Snapshot, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the package, the error names it and the command that installs it."""
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setitem(sys.modules, "dask.dataframe", None)
    with pytest.raises(SettingsError, match=rf"pip install .*{package}"):
        getattr(snapshot, f"to_{package}")()


def test_no_page_recommends_a_reader_of_a_folder() -> None:
    """Docs and notebooks read snapshots by `open_snapshot`, because a folder can contain other files."""
    pages = [*_ROOT.glob("docs/*.md")]
    pages += [*_ROOT.glob("notebooks/*.ipynb"), _ROOT / "README.md"]
    assert len(pages) > 20
    pattern = (
        r"(?:read_parquet|read_table|scan_parquet|ds\.dataset)\((?:f?\"|\\\").{0,80}"
    )
    found = {
        (page.name, call)
        for page in pages
        for call in re.findall(pattern, page.read_text())
    }
    assert found == set()


def test_the_receipt_of_dask_is_small(snapshot: tk.results.Snapshot) -> None:
    """What a task carries does not grow with the snapshot."""
    attributes = snapshot.to_dask()._meta.attrs
    assert len(json.dumps(attributes)) < 10_000
    assert os.fspath(snapshot.path) in str(snapshot)
    assert snapshot.bytes == sum(map(os.path.getsize, snapshot.files()))


def test_the_earlier_name_reads_as_a_dataset(snapshot: tk.results.Snapshot) -> None:
    """Code that uses `scan_snapshot` works, and warns."""
    with pytest.warns(DeprecationWarning, match="open_snapshot"):
        scan = tk.scan_snapshot  # type: ignore[attr-defined]
    with pytest.warns(DeprecationWarning, match=r"to_arrow\(\)\.count_rows"):
        assert scan(snapshot.path).count_rows() == 6
    with pytest.raises(AttributeError, match="no attribute 'rowz'"):
        snapshot.rowz  # noqa: B018 - the access is the test


def test_files_that_were_read_are_freed(snapshot):
    """Each reading opens data files. Nothing keeps them afterwards, so that a watch does not grow."""

    def open_files() -> int:
        gc.collect()
        kinds = [type(item) for item in gc.get_objects()]
        return kinds.count(pq.ParquetFile)

    before = open_files()
    for _ in range(3):
        tk.read_snapshot(snapshot.path)
        tk.open_snapshot(snapshot.path)
    assert open_files() <= before


def test_no_thread_keeps_a_part_of_a_check(monkeypatch):
    """A thread of Arrow that frees an error of Python while Python exits ends the process with SIGABRT."""
    files = weakref.WeakSet()

    class Noted(data_files._NoRows):
        def __init__(self):
            super().__init__()
            files.add(self)

    monkeypatch.setattr(data_files, "_NoRows", Noted)
    content = io.BytesIO()
    pq.write_table(pa.table({"dlq_id": ["a", "b"]}), content)
    metadata = pq.read_metadata(content)
    kept = []
    # without waiting for the threads, one of six checks leaves something
    for _ in range(200):
        data_files.check_metadata(metadata)
        kept += files
    assert kept == []


def test_reading_a_large_file_does_not_keep_it_in_memory(tmp_path):
    rng = np.random.default_rng(1)
    numbers = pa.array(rng.random(60_000 * 384, dtype=np.float32))
    vectors = pa.FixedSizeListArray.from_arrays(numbers, 384)
    tk.write_snapshot(pa.table({"vector": vectors}), tmp_path / "index")
    opened = tk.open_snapshot(tmp_path / "index")
    before = pa.total_allocated_bytes()
    most = rows = 0
    for batch in opened.to_arrow().to_batches(batch_readahead=0, use_threads=False):
        rows += batch.num_rows
        most = max(most, pa.total_allocated_bytes() - before)
    assert rows == opened.rows
    assert most < opened.bytes
