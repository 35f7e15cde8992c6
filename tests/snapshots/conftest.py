"""Loads of made-up entries, and a clock that stops until a test moves it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dask
import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from toolkit.base.progress import ProgressBar
from toolkit.loading.load import Load, LoadPlan, LoadState
from toolkit.results import Snapshot
from toolkit.snapshots.store import SnapshotStore
from toolkit.snapshots.syncing import Changes, sync_load
from toolkit.tables.schemas import FAILURES, vectors

collect_ignore_glob = ["*writer_process.py"]  # programs, which the tests start

Rows = list[dict[str, Any]]

START = datetime(2026, 3, 1, 12, tzinfo=UTC)


def entry(name: str, **values: Any) -> dict[str, Any]:
    """A row of the failures table."""
    return {
        "dlq_id": name,
        "url": "https://example.com/hook",
        "headers": '{"Content-Type":["text/plain"],"X":["1","2"]}',
        "body": f"body of {name}",
        "labels": '["a","b"]',
        "response_status": 500,
        **values,
    }


def entries(*names: str) -> Rows:
    """Rows of these ids."""
    return [entry(name) for name in names]


def failures(rows: Iterable[dict[str, Any]]) -> pa.Table:
    """The rows as a table of failures."""
    return pa.Table.from_pylist(list(rows), schema=FAILURES)


def load_of(
    *pages: Rows,
    error: BaseException | None = None,
    source: str = "http://127.0.0.1:1",
    scope: dict[str, Any] | None = None,
    schema: pa.Schema = FAILURES,
    key: tuple[str, ...] = ("dlq_id",),
) -> Load:
    """A load of these pages, which then ends, or fails with an error; its position counts the pages."""

    def tables(state: LoadState) -> Iterator[pa.Table]:
        for number in range(state.position.get("pages", 0), len(pages)):
            state.pages += 1
            state.requests += 1
            state.position = {"pages": number + 1}
            yield pa.Table.from_pylist(pages[number], schema=schema)
        if error is not None:
            raise error

    plan = LoadPlan(
        what="failures",
        source=source,
        scope=scope or {"kind": "workflows"},
        schema=schema,
        key=key,
    )
    return Load(plan, tables, lambda: ProgressBar(False, title="", unit=""))


PAGES = (
    [entry("b", body="new"), *entries("c")],
    [entry("c", body="later"), *entries("d")],
)
VECTORS = tuple(
    [{"namespace": "", "id": f"{page}{row}", "data": "x"} for row in "ab"]
    for page in range(2)
)
VECTORS_ARE: dict[str, Any] = {
    "schema": vectors(),
    "key": ("namespace", "id"),
    "scope": {"prefix": None},
}


def stop_at(number: int, stop: Callable[[], None]) -> Callable[[str], None]:
    """A `step` that stops at the operation of this number; of the many small writes, some count."""
    seen = {"writes": 0, "operations": 0}

    def step(name: str) -> None:
        if name == "write":
            seen["writes"] += 1
            if seen["writes"] % 20 != 1:
                return
        seen["operations"] += 1
        if seen["operations"] == number:
            stop()

    return step


class Clock:
    """Returns a time that only a test advances."""

    def __init__(self, now: datetime) -> None:
        self.now = now

    def __call__(self) -> datetime:  # noqa: D102 - the class says it
        return self.now

    def forward(self, **span: float) -> None:
        """Move the time."""
        self.now += timedelta(**span)


def _dask_ids(snapshot: Snapshot) -> list[str]:
    with dask.config.set(scheduler="synchronous"):
        ids: list[str] = snapshot.to_dask()["dlq_id"].compute().tolist()
    return ids


def _duckdb_ids(snapshot: Snapshot) -> list[str]:
    with duckdb.connect() as connection:
        rows = snapshot.to_duckdb(connection).project("dlq_id").fetchall()
    return [row[0] for row in rows]


def _ids_of_files(snapshot: Snapshot) -> list[str]:
    """The ids that a plain reader of Parquet files finds in the files that are named."""
    addresses = [file.removeprefix("s3://") for file in snapshot.files()]
    tables = [
        pq.read_table(file, columns=["dlq_id"], filesystem=snapshot._filesystem)
        for file in addresses
    ]
    return pa.concat_tables(tables)["dlq_id"].to_pylist()  # type: ignore[no-any-return]


def _ids_of_units(snapshot: Snapshot) -> list[str]:
    tables = [unit.read(["dlq_id"]) for unit in snapshot.units()]
    return pa.concat_tables(tables)["dlq_id"].to_pylist()  # type: ignore[no-any-return]


def _polars_ids(snapshot: Snapshot) -> list[str]:
    ids: list[str] = snapshot.to_polars().collect()["dlq_id"].to_list()
    return ids


READERS: dict[str, Callable[[Snapshot], list[str]]] = {
    "arrow": lambda snapshot: snapshot.to_arrow().to_table()["dlq_id"].to_pylist(),
    "dask": _dask_ids,
    "duckdb": _duckdb_ids,
    "files": _ids_of_files,
    "units": _ids_of_units,
}
"""The documented ways to read a snapshot with another tool, as the ids that each finds."""

if find_spec("polars"):
    READERS["polars"] = _polars_ids


_RANDOM = re.compile("[0-9a-f]{16}")
_NEAR = 100
"""Bytes by which files with the same rows can differ, as random names are in them."""


def files_of(folder: Path) -> list[tuple[str, int]]:
    """Return names and about the sizes of all files, without the random parts of names.

    The size of a draft does not count: no reader opens it, and the next writer removes it.
    """
    found = []
    for path in folder.rglob("*"):
        if path.is_file():
            name = _RANDOM.sub("#", str(path.relative_to(folder)))
            is_draft = name.endswith(".tmp")
            found.append((name, 0 if is_draft else path.stat().st_size // _NEAR))
    return sorted(found)


class Repeated:
    """Tell whether a folder has the files of the previous one.

    A writer that is killed while a draft grows, or before and after a flush to disk, leaves the same files.
    What readers find in them, and how the next writer goes on, is then the same, too.
    """

    def __init__(self) -> None:
        self._previous: list[tuple[str, int]] | None = None

    def __call__(self, folder: Path) -> bool:
        """Return whether the files are those of the previous call."""
        found = files_of(folder)
        is_same = found == self._previous
        self._previous = found
        return is_same


def read_by_all(snapshot: Snapshot) -> list[str]:
    """The ids of the snapshot in order, which every reader found."""
    found = {name: sorted(read(snapshot)) for name, read in READERS.items()}
    assert len(set(map(tuple, found.values()))) == 1, found
    return found["arrow"]


@pytest.fixture(scope="session")
def made() -> SimpleNamespace:
    """What makes rows, tables, loads and clocks."""
    return SimpleNamespace(
        entry=entry,
        entries=entries,
        failures=failures,
        load=load_of,
        clock=Clock,
        start=START,
        stop_at=stop_at,
        pages=PAGES,
        vectors=VECTORS,
        vectors_are=VECTORS_ARE,
        read_by_all=read_by_all,
        repeated=Repeated,
    )


@pytest.fixture
def clock() -> Clock:
    return Clock(START)


@pytest.fixture
def store(tmp_path: Path) -> SnapshotStore:
    return SnapshotStore(tmp_path / "snapshot")


@pytest.fixture
def sync(store: SnapshotStore, clock: Clock) -> Callable[..., Changes]:
    """Syncs pages of rows into `store` by the clock."""

    def run(*pages: Rows, **options: Any) -> Changes:
        return sync_load(load_of(*pages, **options), store, clock=clock, batch_bytes=1)

    return run
