"""Opening snapshots: damage is found, links are not followed, strangers are ignored."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import toolkit as tk
from toolkit.errors import SnapshotDamagedError, SnapshotError
from toolkit.snapshots import open_snapshot, read_snapshot, verify_snapshot
from toolkit.snapshots.manifest import MANIFEST
from toolkit.snapshots.store import SnapshotStore
from toolkit.snapshots.syncing import sync_load


@pytest.fixture(scope="module")
def whole(made: SimpleNamespace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A snapshot with two days of history."""
    store = SnapshotStore(tmp_path_factory.mktemp("whole") / "snapshot")
    clock = made.clock(made.start)
    sync_load(made.load(made.entries("a", "b")), store, clock=clock)
    clock.forward(days=1)
    sync_load(made.load(made.entries("b", "c")), store, clock=clock)
    return store.path


@pytest.fixture
def copy(whole: Path, tmp_path: Path) -> Path:
    """A copy of it that a test may damage."""
    return Path(shutil.copytree(whole, tmp_path / "copy"))


def _file(path: Path, kind: str) -> Path:
    patterns = {
        "data": "first_seen/*/part-*.parquet",
        "index": "_index-*.bin",
        "manifest": MANIFEST,
    }
    return min(path.glob(patterns[kind]))


def _rewrite_manifest(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Edit the manifest and set the hash of its new text, as an edit by hand would not."""
    manifest = json.loads((path / MANIFEST).read_text())["manifest"]
    change(manifest)
    body = json.dumps(manifest)
    sha256 = hashlib.sha256(body.encode()).hexdigest()
    (path / MANIFEST).write_text(f'{{"sha256": "{sha256}", "manifest": {body}}}')


def test_a_whole_snapshot_is_counted(whole: Path) -> None:
    """Verification says what there is: kind, rows, those gone, files and the latest receipt."""
    found = verify_snapshot(whole)
    assert (found.kind, found.generation, found.files, found.rows, found.gone) == (
        "failures",
        2,
        2,
        3,
        1,
    )
    assert found.unlisted == ()
    assert found.receipt is not None
    assert found.receipt.rows == 2
    assert str(found).startswith("whole: 3 rows (1 gone) in 2 files")
    assert "whole: 3 rows" in found._repr_html_()


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from(["data", "index", "manifest"]),
    index=st.integers(0, 10**6),
    cut=st.booleans(),
)
def test_any_edit_or_cut_is_found(
    whole: Path,
    tmp_path_factory: pytest.TempPathFactory,
    kind: str,
    index: int,
    *,
    cut: bool,
) -> None:
    """One bit turned, or the end cut off, anywhere in any file, is refused and says which file."""
    path = Path(shutil.copytree(whole, tmp_path_factory.mktemp("damaged") / "snapshot"))
    file = _file(path, kind)
    content = file.read_bytes()
    index %= len(content) - 1  # the manifest's line end means nothing
    changed = content[:index] + (
        b"" if cut else bytes([content[index] ^ 1]) + content[index + 1 :]
    )
    file.write_bytes(changed)
    with pytest.raises(SnapshotDamagedError) as caught:
        verify_snapshot(path)
    assert file.name in str(caught.value)
    if kind != "index":
        with pytest.raises(SnapshotDamagedError):
            read_snapshot(path)


@pytest.mark.parametrize("kind", ["data", "index"])
def test_a_missing_file_is_named(copy: Path, kind: str) -> None:
    """A file the manifest lists and the folder lacks is damage."""
    file = _file(copy, kind)
    file.unlink()
    with pytest.raises(SnapshotDamagedError, match=file.name):
        verify_snapshot(copy)


def test_scanning_sees_cuts_at_once_and_edits_when_the_page_is_read(copy: Path) -> None:
    """A dataset checks sizes and footers when it is opened and pages by checksum when they are read."""
    file = _file(copy, "data")
    content = file.read_bytes()
    file.write_bytes(content[:-1])
    with pytest.raises(SnapshotDamagedError, match=file.name):
        open_snapshot(copy).to_arrow()
    column = pq.ParquetFile(pa.BufferReader(content)).metadata.row_group(0).column(0)
    index = column.data_page_offset + column.total_compressed_size - 3
    file.write_bytes(
        content[:index] + bytes([content[index] ^ 1]) + content[index + 1 :]
    )
    dataset = open_snapshot(copy).to_arrow()
    with pytest.raises(OSError, match=r"(?i)crc|checksum"):
        dataset.to_table()


def test_strangers_are_ignored_and_reported(copy: Path) -> None:
    """A file that the manifest does not list is not read, whatever its name, and verification names it."""
    stranger = _file(copy, "data").with_name("part-000009-0123456789abcdef.parquet")
    pq.write_table(pa.table({"x": [1]}), stranger)
    (copy / "notes.txt").write_text("mine")
    assert sorted(read_snapshot(copy)["dlq_id"]) == ["a", "b", "c"]
    assert open_snapshot(copy).to_arrow().count_rows() == 3
    found = verify_snapshot(copy)
    assert found.unlisted == (stranger.relative_to(copy).as_posix(), "notes.txt")
    assert "2 files do not belong" in str(found)


def test_the_next_writer_removes_leftovers_but_no_other_files(
    copy: Path, made: SimpleNamespace
) -> None:
    """Drafts and unlisted parts of a stopped writer go; other files stay."""
    day = _file(copy, "data").parent
    left = [
        day / "part-000009-0123456789abcdef.parquet",
        day / "_part-000009-0123456789abcdef.parquet.0123456789abcdef.tmp",
        copy / "_manifest.json.0123456789abcdef.tmp",
        copy / "_index-000009-0123456789abcdef.bin",
    ]
    mine = [copy / "notes.txt", day / "mine.parquet"]
    for path in (*left, *mine):
        path.write_bytes(b"x")
    sync_load(made.load(made.entries("b", "c")), SnapshotStore(copy))
    assert not [path for path in left if path.exists()]
    assert [path.read_bytes() for path in mine] == [b"x", b"x"]


def test_without_a_manifest_nothing_is_read_or_removed(
    copy: Path, made: SimpleNamespace
) -> None:
    """A lost manifest is damage to a writer, and no snapshot to a reader; the data stays where it is."""
    (copy / MANIFEST).unlink()
    files = sorted(copy.rglob("*.parquet"))
    with pytest.raises(SnapshotError, match="no manifest"):
        read_snapshot(copy)
    with pytest.raises(SnapshotDamagedError, match="Restore the manifest"):
        sync_load(made.load(made.entries("b")), SnapshotStore(copy))
    assert sorted(copy.rglob("*.parquet")) == files


def test_a_damaged_snapshot_is_not_written_to(
    copy: Path, made: SimpleNamespace
) -> None:
    """A sync that would build on a damaged manifest, index or file is refused and removes nothing."""
    for kind in ("manifest", "index", "data"):
        file = _file(copy, kind)
        content = file.read_bytes()
        file.write_bytes(content[:-9])
        before = set(copy.rglob("*"))
        with pytest.raises(SnapshotDamagedError, match=file.name):
            sync_load(made.load([made.entry("b", body="new")]), SnapshotStore(copy))
        assert set(copy.rglob("*")) == before
        file.unlink()
        with pytest.raises(SnapshotDamagedError):
            sync_load(made.load([made.entry("b", body="new")]), SnapshotStore(copy))
        file.write_bytes(content)


@pytest.mark.parametrize("kind", ["data", "index", "manifest", "day", ".lock"])
def test_links_inside_are_refused(
    copy: Path, made: SimpleNamespace, tmp_path: Path, kind: str
) -> None:
    """A file or folder replaced by a link to the same content is refused, by readers and writers."""
    index = (
        copy / kind
        if kind == ".lock"
        else _file(copy, "data").parent
        if kind == "day"
        else _file(copy, kind)
    )
    target = tmp_path / "elsewhere"
    index.rename(target)
    index.symlink_to(target)
    with pytest.raises(SnapshotDamagedError, match="link"):
        sync_load(made.load([made.entry("b", body="new")]), SnapshotStore(copy))
    if kind != ".lock":
        with pytest.raises(SnapshotDamagedError, match="link"):
            verify_snapshot(copy)
    if kind in {"data", "day"}:
        for read in (read_snapshot, open_snapshot):
            with pytest.raises(SnapshotDamagedError, match="link"):
                read(copy)


def test_a_pipe_instead_of_a_file_does_not_hang(copy: Path) -> None:
    """What is not a regular file is refused at once."""
    file = _file(copy, "data")
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(SnapshotDamagedError, match="regular file"):
        read_snapshot(copy)


@pytest.mark.parametrize(
    "name",
    [
        "../outside.parquet",
        "/etc/passwd",
        "first_seen/../part-000001-0123456789abcdef.parquet",
        "part-000001-0123456789abcdef.parquet\n",
        "",
    ],
)
def test_a_manifest_cannot_name_files_elsewhere(copy: Path, name: str) -> None:
    """Even with a right hash, only names of the snapshot's own form are accepted."""
    _rewrite_manifest(copy, lambda manifest: manifest["files"][0].update(path=name))
    with pytest.raises(SnapshotDamagedError, match="inconsistent manifest"):
        read_snapshot(copy)


def test_a_later_format_is_named(copy: Path) -> None:
    """A snapshot of another version is not damage: the error says which version it is."""
    _rewrite_manifest(
        copy, lambda manifest: manifest.update(format=99, something="new")
    )
    with pytest.raises(SnapshotError, match="format 99") as caught:
        read_snapshot(copy)
    assert not isinstance(caught.value, SnapshotDamagedError)


def test_extension_types_are_not_read(copy: Path) -> None:
    """A data file with an extension type is refused even when its hash is right."""
    file = _file(copy, "data")
    pq.write_table(pa.table({"x": pa.array([b"0" * 16], pa.uuid())}), file)
    name, content = file.relative_to(copy).as_posix(), file.read_bytes()

    def list_it(manifest: dict[str, Any]) -> None:
        listed = next(item for item in manifest["files"] if item["path"] == name)
        listed.update(
            rows=1, bytes=len(content), sha256=hashlib.sha256(content).hexdigest()
        )

    _rewrite_manifest(copy, list_it)
    for read in (read_snapshot, open_snapshot, verify_snapshot):
        with pytest.raises(SnapshotDamagedError, match="extension"):
            read(copy)


def test_other_columns_in_one_file_are_refused(copy: Path) -> None:
    """All files of a snapshot have the same columns and types."""
    file = _file(copy, "data")
    pq.write_table(pa.table({"x": [1]}), file)
    name, content = file.relative_to(copy).as_posix(), file.read_bytes()

    def list_it(manifest: dict[str, Any]) -> None:
        listed = next(item for item in manifest["files"] if item["path"] == name)
        listed.update(
            rows=1, bytes=len(content), sha256=hashlib.sha256(content).hexdigest()
        )

    _rewrite_manifest(copy, list_it)
    for read in (read_snapshot, open_snapshot, verify_snapshot):
        with pytest.raises(SnapshotDamagedError, match="other columns"):
            read(copy)


def test_other_folders_are_not_snapshots(tmp_path: Path) -> None:
    """A missing folder, an empty one and a file are not reported as damage."""
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "missing", tmp_path, tmp_path / "file"):
        with pytest.raises(SnapshotError) as caught:
            read_snapshot(path)
        assert type(caught.value) is SnapshotError


@pytest.mark.parametrize(
    "table",
    [
        pa.table({"a": [1, 2]}).select([]),
        pa.table({"labels": [{"a": 1}], "body_base64": [True]}),
        pa.table(
            {
                "dlq_id": [[1]],
                "labels": [["x"]],
                "response_body": [1.5],
                "extra": [b"x"],
            }
        ),
    ],
)
def test_a_data_file_with_other_columns_that_is_listed_again(tmp_path, table):
    """An edited file with a matching hash yields its rows, or an error that says what is damaged."""
    snapshot = tmp_path / "snapshot"
    tk.write_snapshot(
        pd.DataFrame({"labels": ["[]"], "body_base64": ["/w=="]}), snapshot
    )
    (path,) = snapshot.glob("part-*")
    pq.write_table(table, path)
    listed = json.loads((snapshot / "_manifest.json").read_text())["manifest"]
    data = path.read_bytes()
    entry: dict[str, Any] = {
        "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
    }
    entry["rows"] = pq.read_metadata(path).num_rows  # none where there are no columns
    for version in (1, listed["schema_version"]):
        listed |= {"files": [listed["files"][0] | entry], "schema_version": version}
        body = json.dumps(listed)
        digest = hashlib.sha256(body.encode()).hexdigest()
        (snapshot / "_manifest.json").write_text(
            f'{{"sha256":"{digest}","manifest":{body}}}'
        )
        for read in (tk.read_snapshot, tk.open_snapshot, tk.verify_snapshot):
            with suppress(SnapshotDamagedError):
                read(snapshot)


_WITH_LITTLE_MEMORY = """
import resource, sys
from pathlib import Path
import pandas, pyarrow.parquet
import toolkit as tk
from toolkit.errors import NotEnoughMemoryError
tk.read_snapshot(sys.argv[1]).head(0)
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (200 << 20), -1))
try:
    tk.read_snapshot(sys.argv[2], memory_limit=float("inf"))
except NotEnoughMemoryError as error:
    print("no memory left" in str(error), "open_snapshot" in str(error))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the limit of memory is Linux's")
def test_no_memory_left_is_no_damage(whole, tmp_path):
    """Rows that do not fit into what the process may take are a `NotEnoughMemoryError`."""
    frame = tk.read_snapshot(whole)
    frame = pd.concat([frame[:1]] * 1000, ignore_index=True)
    frame["response_body"] = "e" * 500_000
    tk.write_snapshot(frame, tmp_path / "long")
    done = subprocess.run(
        [sys.executable, "-c", _WITH_LITTLE_MEMORY, str(whole), str(tmp_path / "long")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("True True\n", "")


def test_a_file_is_not_the_folder_of_a_snapshot(tmp_path):
    """A single Parquet file is not taken for a broken snapshot."""
    pd.DataFrame({"id": ["a"]}).to_parquet(tmp_path / "single.parquet")
    for read in (read_snapshot, open_snapshot):
        with pytest.raises(SnapshotError, match=r"which is a file.*read_parquet"):
            read(tmp_path / "single.parquet")


def test_a_relative_path_below_a_removed_folder_is_an_error(tmp_path):
    """A shell or job can be in a folder that somebody has removed since."""
    removed = tmp_path / "removed"
    removed.mkdir()
    code = (
        "import os, sys\n"
        "from toolkit.cli import main\n"
        "os.chdir(sys.argv[1])\n"
        "os.rmdir(sys.argv[1])\n"
        "sys.exit(main(['verify', 'kept']))\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, removed],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ended.returncode == 1
    assert ended.stderr.startswith("toolkit: kept: opening a snapshot: got 'kept'")
    assert "Traceback" not in ended.stderr
