"""A question about one day of a long snapshot reads a small part of the bytes, with every engine."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dask
import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.local import (  # type: ignore[import-untyped]
    LocalFileSystem,
)
from pyarrow.fs import FSSpecHandler, PyFileSystem

import toolkit as tk
from toolkit.snapshots.store import SnapshotStore
from toolkit.snapshots.syncing import sync_load
from toolkit.tables.schemas import TIME

DAYS, ROWS = 30, 500
_ONE_AT_A_TIME = threading.Lock()


class _CountingFile:
    """A file that adds the bytes of each read to a counter."""

    def __init__(self, file: Any, count: Callable[[int], None]) -> None:
        self._file, self._count = file, count

    def read(self, size: int = -1) -> bytes:
        content: bytes = self._file.read(size)
        self._count(len(content))
        return content

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class CountingFileSystem(LocalFileSystem):  # type: ignore[misc]  # fsspec has no types
    """The local disk, which counts the bytes that are read."""

    cachable = False
    bytes = 0

    def open(self, path: str, *arguments: Any, **options: Any) -> _CountingFile:
        """Open a file that is counted."""
        return _CountingFile(super().open(path, *arguments, **options), self._add)

    def _add(self, count: int) -> None:
        with _ONE_AT_A_TIME:
            self.bytes += count


def _rows(made: SimpleNamespace, day: int, dice: random.Random) -> list[dict[str, Any]]:
    """Failures of the day before a sync, in any order."""
    rows = []
    for number in range(ROWS):
        failed = made.start + timedelta(days=day - dice.random())
        body = dice.randbytes(4_000).hex()
        rows.append(
            made.entry(
                f"{day}-{number}", created_at=failed, failed_at=failed, body=body
            )
        )
    return rows


@pytest.fixture(scope="module")
def month(tmp_path_factory: pytest.TempPathFactory, made: SimpleNamespace) -> Path:
    """A snapshot of 30 daily syncs."""
    store = SnapshotStore(tmp_path_factory.mktemp("month") / "snapshot")
    dice = random.Random(1)
    for day in range(DAYS):
        clock = made.clock(made.start + timedelta(days=day))
        # A file has a few row groups, as a day of 20,000 failures with the usual sizes.
        sync_load(
            made.load(_rows(made, day, dice)), store, clock=clock, group_bytes=1 << 20
        )
    return store.path


@pytest.mark.slow
def test_a_question_about_one_day_reads_a_tenth_of_the_bytes(
    month: Path, made: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opening included, Arrow, DuckDB, Dask and Polars read all columns of a day in a tenth of the bytes."""
    first = (made.start + timedelta(days=10)).replace(hour=0)
    last = first + timedelta(days=1, milliseconds=-1)
    monkeypatch.chdir("/")  # the file system has relative paths only

    def arrow(snapshot: tk.results.Snapshot) -> int:
        times = pc.field("failed_at")
        is_chosen = (times >= pa.scalar(first, TIME)) & (times <= pa.scalar(last, TIME))
        return snapshot.to_arrow().to_table(filter=is_chosen).num_rows  # type: ignore[no-any-return]

    def ducks(snapshot: tk.results.Snapshot) -> int:
        rows = snapshot.to_duckdb(duckdb.connect())
        condition = f"failed_at BETWEEN '{first.isoformat()}' AND '{last.isoformat()}'"
        return len(rows.filter(condition).to_arrow_table())

    def partitions(snapshot: tk.results.Snapshot) -> int:
        with dask.config.set(scheduler="synchronous"):
            return len(snapshot.to_dask(since=first, until=last).compute())

    def lazy_frame(snapshot: tk.results.Snapshot) -> int:
        polars = pytest.importorskip("polars")
        is_chosen = polars.col("failed_at").is_between(first, last)
        return snapshot.to_polars().filter(is_chosen).collect().height  # type: ignore[no-any-return]

    found = set()
    for read in (arrow, ducks, partitions, lazy_frame):
        disk = CountingFileSystem()
        snapshot = tk.open_snapshot(month, filesystem=PyFileSystem(FSSpecHandler(disk)))
        found.add(read(snapshot))
        assert 0 < disk.bytes < 0.1 * snapshot.bytes, read.__name__
    assert len(found) == 1
    assert 0.8 * ROWS < found.pop() < 1.2 * ROWS


def test_rows_of_a_file_are_in_the_order_of_their_failures(
    tmp_path: Path, made: SimpleNamespace
) -> None:
    """Row groups have disjoint times; rows without a time come last, and rows of one time stay in order."""
    store = SnapshotStore(tmp_path / "sorted")
    hours = [5, None, 3, 9, 3, 1, None, 7]
    rows = [
        made.entry(
            f"r{number}",
            failed_at=None if hour is None else made.start + timedelta(hours=hour),
        )
        for number, hour in enumerate(hours)
    ]
    sync_load(made.load(rows[:4], rows[4:]), store, group_bytes=1)
    snapshot = tk.open_snapshot(store.path)
    (file,) = snapshot.files()
    ids = pq.read_table(file)["dlq_id"].to_pylist()
    assert ids == ["r5", "r2", "r4", "r0", "r7", "r3", "r1", "r6"]
    spans = [(unit.earliest, unit.latest) for unit in snapshot.units()]
    # a partition of Dask is a row group, however large the file is
    assert snapshot.to_dask().npartitions == len(spans) > 1
    ordered = [span for span in spans if span[0] is not None]
    assert ordered == sorted(ordered)
    # the index has the same order, so that a second sync finds each row where it is
    changes = sync_load(made.load(rows), store, group_bytes=1)
    assert (len(changes.added), len(changes.changed), len(changes.gone)) == (0, 0, 0)
    rows[5]["body"] = "changed"
    changes = sync_load(made.load(rows[:7]), store, group_bytes=1)
    assert changes.changed["dlq_id"].tolist() == ["r5"]
    assert changes.gone["dlq_id"].tolist() == ["r7"]
    tk.verify_snapshot(store.path)
