"""Files that are small on the disk and huge in memory are refused by their counts and sizes.

Each is read in a process that may not have more than 3 GB of address space, where a wrong guess ends in a
`MemoryError` or a crash.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import toolkit as tk
from toolkit.snapshots.manifest import FORMAT, MANIFEST, SCHEMA_VERSION, read_manifest
from toolkit.snapshots.store import SnapshotStore
from toolkit.snapshots.syncing import sync_load

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="limits of Linux"
)

_LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (3_000_000_000, 3_000_000_000))
import toolkit as tk
from toolkit.errors import ToolkitError
name, path, *rest = sys.argv[1:]
try:
    found = getattr(tk, name)(path, **{"memory_limit": float(rest[0])} if rest else {})
except ToolkitError as error:
    print(type(error).__name__, error)
else:
    print("read", len(found) if name == "read_snapshot" else found)
# not ru_maxrss, which begins with what the process that started this one had
print("peak", next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM:")))
"""
_BEFORE = 600_000
"""Kilobytes that Python needs at most with the toolkit, pandas and pyarrow, and a batch of rows."""


def _limited(*arguments: str) -> tuple[str, int]:
    """What a process with little memory says of a call, and the kilobytes it used at most."""
    environment = os.environ | {
        "ARROW_DEFAULT_MEMORY_POOL": "system",
        "OPENBLAS_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", _LIMITED, *arguments],
        check=False, capture_output=True, text=True, timeout=300, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    output, _, peak = done.stdout.strip().rpartition("\n")
    return output, int(peak.split()[1])


def _snapshot(path: Path, table: pa.Table, groups: int) -> Path:
    """A snapshot of one file with these rows so many times, whose manifest has the hashes that fit."""
    path.mkdir()
    name = "part-000001-0123456789abcdef.parquet"
    with pq.ParquetWriter(
        path / name,
        table.schema,
        compression="zstd",
        store_schema=False,
        dictionary_pagesize_limit=1 << 30,
    ) as writer:
        for _ in range(groups):
            writer.write_table(table, row_group_size=len(table))
    content = (path / name).read_bytes()
    manifest = {
        "format": FORMAT,
        "schema_version": SCHEMA_VERSION,
        "kind": "frame",
        "generation": 1,
        "source": "",
        "scope": {},
        "written_at": "2026-03-01T00:00:00+00:00",
        "files": [
            {
                "path": name,
                "rows": groups * len(table),
                "bytes": len(content),
                "sha256": hashlib.sha256(content).hexdigest(),
            }
        ],
    }
    _write_manifest(path, manifest)
    return path


def _write_manifest(path: Path, manifest: dict[str, Any]) -> None:
    body = json.dumps(manifest)
    sha256 = hashlib.sha256(body.encode()).hexdigest()
    (path / MANIFEST).write_text(f'{{"sha256": "{sha256}", "manifest": {body}}}')


def _repeated(text: str, times: int) -> pa.Table:
    column = pa.DictionaryArray.from_arrays(
        pa.array(np.zeros(times, dtype=np.int32)), pa.array([text])
    )
    return pa.table({"text": column})


@pytest.mark.slow
def test_a_hundred_million_rows_in_a_small_file(tmp_path: Path) -> None:
    """Their number is enough to refuse a frame of them; verifying decodes none."""
    table = pa.table(
        {
            "time": np.zeros(10_000_000, dtype="datetime64[ms]"),
            "count": np.zeros(10_000_000),
        }
    )
    path = _snapshot(tmp_path / "rows", table, groups=10)
    assert sum(file.stat().st_size for file in path.iterdir()) < 6_400_000
    output, peak = _limited("read_snapshot", str(path))
    assert output.startswith("NotEnoughMemoryError reading the snapshot"), output
    assert "open_snapshot" in output
    assert "memory_limit" in output
    assert peak < _BEFORE
    output, peak = _limited("verify_snapshot", str(path))
    assert "whole: 100,000,000 rows" in output
    assert peak < _BEFORE


@pytest.mark.slow
def test_one_long_text_many_times(tmp_path: Path) -> None:
    """A dictionary of one value of 4 MB, used 100,000 times: 400 GB in a few kilobytes, read in batches."""
    path = _snapshot(tmp_path / "text", _repeated("x" * 4_000_000, 100_000), groups=1)
    output, peak = _limited("read_snapshot", str(path), "1e9")
    assert output.startswith("NotEnoughMemoryError"), output
    assert peak < 2 * _BEFORE + 1_000_000


def test_a_memory_limit_is_the_users(tmp_path: Path) -> None:
    """What is there by itself is refused by a smaller limit, and read by a larger one."""
    path = _snapshot(tmp_path / "some", _repeated("x" * 1_000, 100_000), groups=1)
    assert len(tk.read_snapshot(path, memory_limit=1e9)) == 100_000
    with pytest.raises(tk.errors.NotEnoughMemoryError, match=r"at most the 0\.1 GB"):
        tk.read_snapshot(path, memory_limit=1e8)
    with pytest.raises(tk.errors.InputError, match="memory_limit"):
        tk.read_snapshot(path, memory_limit=-1)


def test_vectors_of_a_huge_dimension_that_are_not_there(tmp_path: Path) -> None:
    """A column of missing vectors needs its whole dimension in memory, and nothing in a file."""
    kind = pa.list_(pa.float32(), 500_000_000)
    path = tmp_path / "vectors"
    path.mkdir()
    name = "part-000001-0123456789abcdef.parquet"
    schema = pa.schema([("id", pa.string()), ("vector", kind)])
    plain = pa.schema([("id", pa.string()), ("vector", pa.list_(pa.float32()))])
    written = pa.table(
        {"id": [str(row) for row in range(1_000)], "vector": [None] * 1_000},
        schema=plain,
    )
    lied = plain.with_metadata({"ARROW:schema": _encoded(schema)})
    with pq.ParquetWriter(path / name, lied, store_schema=False) as writer:
        writer.write_table(written.cast(lied))
        writer.add_key_value_metadata({"ARROW:schema": _encoded(schema)})
    assert pq.read_schema(path / name).field("vector").type == kind
    content = (path / name).read_bytes()
    base = _snapshot(tmp_path / "base", pa.table({"id": ["a"]}), groups=1)
    manifest = json.loads((base / MANIFEST).read_text())["manifest"]
    manifest["files"][0] |= {
        "rows": 1_000, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest(),
    }  # fmt: skip
    _write_manifest(path, manifest)
    output, peak = _limited("read_snapshot", str(path))
    assert output.startswith("NotEnoughMemoryError"), output
    assert peak < _BEFORE


def _encoded(schema: pa.Schema) -> bytes:
    return base64.b64encode(schema.serialize().to_pybytes())


@pytest.mark.parametrize("name", ["read_snapshot", "open_snapshot", "verify_snapshot"])
def test_a_manifest_of_twenty_gigabytes(tmp_path: Path, name: str) -> None:
    """It needs no space on the disk and would need all of the memory: its size is checked first."""
    with (tmp_path / MANIFEST).open("wb") as file:
        file.truncate(20_000_000_000)
    output, peak = _limited(name, str(tmp_path))
    assert output.startswith("NotEnoughMemoryError reading '_manifest.json'"), output
    assert "20,000,000,000 bytes" in output
    assert peak < _BEFORE


@pytest.mark.slow
def test_an_index_of_many_rows_that_is_not_on_the_disk(
    tmp_path: Path, made: SimpleNamespace
) -> None:
    """A sparse index of 100 million rows is refused by its size."""
    store = SnapshotStore(tmp_path / "snapshot")
    sync_load(made.load(made.entries("a")), store)
    manifest = read_manifest(store)
    assert manifest is not None
    (index,) = manifest.index_files
    rows = 100_000_000
    os.truncate(store.path / index.path, 57 * rows)
    name = "part-000001-0123456789abcdef.parquet"
    base = _snapshot(
        tmp_path / "base",
        pa.table({"count": np.zeros(10_000_000, dtype=np.int8)}),
        groups=10,
    )
    (base / name).rename(store.path / name)
    forged = json.loads((store.path / MANIFEST).read_text())["manifest"]
    forged["indexes"][0] |= {"rows": rows, "bytes": 57 * rows}
    forged["files"] = json.loads((base / MANIFEST).read_text())["manifest"]["files"]
    _write_manifest(store.path, forged)
    output, peak = _limited("verify_snapshot", str(store.path))
    assert output.startswith("NotEnoughMemoryError reading the index"), output
    assert peak < _BEFORE
