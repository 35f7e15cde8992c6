"""Snapshots in an object store: the same rows and promises as on a disk, read by anything."""

from __future__ import annotations

import socket
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pyarrow as pa
import pytest
import s3fs
from hypothesis import given, settings
from hypothesis import strategies as st
from moto.backends import get_backend
from pandas.testing import assert_frame_equal
from pyarrow.fs import (
    FileSelector,
    FSSpecHandler,
    LocalFileSystem,
    PyFileSystem,
    SubTreeFileSystem,
    _MockFileSystem,
    copy_files,
)

import toolkit as tk
from toolkit.errors import InputError, SnapshotDamagedError, SnapshotError
from toolkit.snapshots import (
    object_store,
    open_snapshot,
    read_snapshot,
    verify_snapshot,
    write_snapshot,
)
from toolkit.snapshots.manifest import read_manifest
from toolkit.snapshots.object_store import ObjectSnapshotStore, open_store
from toolkit.snapshots.store import SnapshotStore
from toolkit.snapshots.syncing import sync_load
from toolkit.tables.frames import frame_from_rows, to_frame
from toolkit.tables.schemas import LABELS_EXPLODED


def _objects(s3: SimpleNamespace) -> list[str]:
    found = s3.filesystem.get_file_info(FileSelector(s3.bucket, recursive=True))
    return [info.path for info in found if info.is_file]


def _labels(*names: str) -> Any:
    return frame_from_rows(
        [{"dlq_id": name, "label": "billing"} for name in names], LABELS_EXPLODED
    )


def test_a_frame_is_read_as_from_a_disk(
    s3: SimpleNamespace, made: SimpleNamespace, tmp_path: Path
) -> None:
    """Written, read, scanned and verified, a snapshot is the same in a bucket as in a folder."""
    frame = to_frame(made.failures(made.entries("a", "b")))
    for options in (
        {"path": s3.path, "filesystem": s3.filesystem},
        {"path": tmp_path / "snapshot"},
    ):
        write_snapshot(frame, **options)
        write_snapshot(frame, **options)
        assert_frame_equal(read_snapshot(**options), frame)
        assert open_snapshot(**options).to_arrow().to_table().num_rows == 2
        verified = verify_snapshot(**options)
        assert (verified.rows, verified.generation, verified.unlisted[1:]) == (2, 2, ())
    assert len(_objects(s3)) == 2  # the data file and the manifest


def test_syncs_keep_history_as_on_a_disk(
    s3: SimpleNamespace, made: SimpleNamespace, store: SnapshotStore
) -> None:
    """Added, changed, gone and reappearing rows are the same in a bucket as in a folder."""
    bucket = open_store(s3.path, s3.filesystem)
    pages = [
        made.entries("a", "b", "c"),
        [made.entry("b", body="new"), *made.entries("c", "d")],
        made.entries("a", "c", "d"),
    ]
    found: dict[SnapshotStore, list[Any]] = {bucket: [], store: []}
    for place, changes in found.items():
        clock = made.clock(made.start)
        for page in pages:
            changes.append(sync_load(made.load(page), place, clock=clock))
            _ = changes[-1].added, changes[-1].changed, changes[-1].gone
            clock.forward(days=1)
    for here, there in zip(*found.values(), strict=True):
        assert here.counts == there.counts
        for name in ("added", "changed", "gone"):
            ours, theirs = getattr(here, name), getattr(there, name)
            assert ours["dlq_id"].tolist() == theirs["dlq_id"].tolist()
            assert ours["body"].tolist() == theirs["body"].tolist()
            assert (
                ours["gone_before"].isna().tolist()
                == theirs["gone_before"].isna().tolist()
            )
    assert found[bucket][1].counts == {"added": 1, "changed": 1, "gone": 1}
    verified = verify_snapshot(s3.path, filesystem=s3.filesystem)
    assert (verified.rows, verified.gone, verified.generation, verified.unlisted) == (
        4,
        1,
        3,
        (),
    )


def test_an_older_snapshot_in_a_bucket_is_read_and_brought_up_to_date(
    s3: SimpleNamespace, made: SimpleNamespace
) -> None:
    """A snapshot of an older toolkit reads as from a disk; a sync rewrites it, and keeps its rows."""
    older = Path(__file__).parents[2] / "data" / "snapshots" / "version-4" / "failures"
    copy_files(
        str(older),
        s3.path,
        source_filesystem=LocalFileSystem(),
        destination_filesystem=s3.filesystem,
    )
    where = {"path": s3.path, "filesystem": s3.filesystem}
    before = read_snapshot(older)
    assert_frame_equal(read_snapshot(**where), before)
    assert open_snapshot(**where).to_arrow().to_table().column_names == [
        name for name in before.columns if name != "error"
    ]
    bucket = open_store(**where)
    manifest = read_manifest(bucket)
    assert manifest is not None
    load = made.load(made.entries("new"), source=manifest.source, scope=manifest.scope)
    assert sync_load(load, bucket).counts == {
        "added": 1,
        "changed": 0,
        "gone": len(before) - 1,
    }
    after = read_snapshot(**where)
    assert set(after["dlq_id"]) == {*before["dlq_id"], "new"}
    verified = verify_snapshot(**where)
    assert (verified.rows, verified.gone, verified.unlisted) == (
        len(before) + 1,
        len(before),
        (),
    )


@pytest.mark.slow
def test_the_public_functions_take_a_file_system(
    s3: SimpleNamespace, sample_service: tk.Service
) -> None:
    """Failures and vectors of a service are written to a bucket and read back completely."""
    where = {"filesystem": s3.filesystem}
    failures, vectors = f"{s3.bucket}/failures", f"{s3.bucket}/vectors"
    some = tk.FailureFilter(label="priority")
    first = tk.sync_failures(sample_service, failures, filter=some, **where)
    second = tk.sync_failures(sample_service, failures, filter=some, **where)
    assert first.counts["added"] == len(tk.read_snapshot(failures, **where)) > 0
    assert second.counts == {"added": 0, "changed": 0, "gone": 0}
    receipt = tk.export_vectors(sample_service, vectors, namespace="all", **where)
    assert receipt.complete
    assert (
        tk.open_snapshot(vectors, **where).to_arrow().count_rows()
        == tk.verify_snapshot(vectors, **where).rows
        > 0
    )


def test_an_address_says_where_and_the_environment_who(
    s3: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An address and credentials from the environment are enough; neither gets into what is kept."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key-of-the-test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret-of-the-test")
    address = f"s3://{s3.path}?region=us-east-1&scheme=http&endpoint_override=127.0.0.1:{s3.server.port}"
    write_snapshot(_labels("a"), address)
    assert read_snapshot(address)["dlq_id"].tolist() == ["a"]
    assert verify_snapshot(address).path == f"s3://{s3.path}"
    for name in _objects(s3):
        with s3.filesystem.open_input_file(name) as file:
            assert b"of-the-test" not in file.read()


@pytest.mark.parametrize(
    "address",
    [
        "s3://KEY:hidden@bucket/prefix?region=us-east-1",
        "s3://KEY:hid/den@bucket/prefix",
        "s3://KEY:hidden@",
        "abfs://container:hidden@account.dfs.core.windows.net/prefix",
        "abfs://container@account.dfs.core.windows.net/prefix?client_secret=hidden",
        "abfs://container@account.dfs.core.windows.net/prefix?account_key=hid%64en",
        # brackets, which no host but an IPv6 address may have
        "abfs://[container@account.dfs.core.windows.net/prefix?account_key=hid%64en",
    ],
)
@pytest.mark.parametrize("read", [read_snapshot, open_snapshot, verify_snapshot])
def test_an_address_with_a_secret_is_refused_and_not_repeated(
    address: str, read: Callable[[str], Any]
) -> None:
    """Addresses end up in errors, notebooks and shells' histories, so secrets have no place in them."""
    with pytest.raises(InputError, match="with a secret") as caught:
        read(address)
    assert "hid" not in repr(caught.value)
    assert caught.value.__cause__ is caught.value.__context__ is None


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("", "at least one character"),
        ("a\0b", "without null bytes"),
        *(
            (path, "bucket and prefix")
            for path in (
                "/",
                "bucket/../other",
                "bucket/./x",
                "../bucket",
                "bucket//x",
                "s3://bucket/x",
            )
        ),
    ],
)
def test_a_path_leads_nowhere_else(
    s3: SimpleNamespace, path: str, expected: str
) -> None:
    """Paths that could mean another place, or none, are refused, under a folder of a file system too."""
    for filesystem in (s3.filesystem, SubTreeFileSystem(s3.bucket, s3.filesystem)):
        with pytest.raises(InputError, match=expected):
            open_store(path, filesystem)


def test_a_filesystem_that_is_local_is_a_local_folder(
    tmp_path: Path, s3: SimpleNamespace
) -> None:
    """However a local path is named, all promises of the disk hold; a part of a bucket is a prefix."""
    local = LocalFileSystem()
    for store in (
        open_store(tmp_path / "x"),
        open_store(str(tmp_path / "x"), local),
        open_store((tmp_path / "x").as_uri()),
        open_store("x", SubTreeFileSystem(str(tmp_path), local)),
        open_store(
            "x",
            SubTreeFileSystem(
                tmp_path.name, SubTreeFileSystem(str(tmp_path.parent), local)
            ),
        ),
    ):
        assert type(store) is SnapshotStore
        assert store.path == tmp_path / "x"
    inside = open_store("snapshot/", SubTreeFileSystem(s3.bucket, s3.filesystem))
    assert str(inside) == f"s3://{s3.path}"


def test_a_file_system_of_another_library_is_refused_with_a_way_out() -> None:
    """What is not pyarrow's is named, with how to wrap it."""
    with pytest.raises(InputError, match="PyFileSystem"):
        open_store("bucket/x", s3fs.S3FileSystem(anon=True))  # type: ignore[arg-type]


@pytest.mark.parametrize("harm", ["flip", "cut", "remove"])
@pytest.mark.parametrize("which", ["part-", "_index-", "_manifest"])
def test_a_harmed_object_is_found(
    s3: SimpleNamespace, made: SimpleNamespace, which: str, harm: str
) -> None:
    """An object that was changed, cut or removed is refused by name, whichever it is."""
    sync_load(made.load(made.entries("a", "b")), open_store(s3.path, s3.filesystem))
    (name,) = (
        name for name in _objects(s3) if name.rpartition("/")[2].startswith(which)
    )
    with s3.filesystem.open_input_file(name) as file:
        content = bytearray(file.read())
    content[len(content) // 2] ^= 1
    if harm == "remove":
        s3.filesystem.delete_file(name)
    else:
        with s3.filesystem.open_output_stream(name) as stream:
            stream.write(bytes(content if harm == "flip" else content[:-1]))
    expected = (
        SnapshotError
        if (which, harm) == ("_manifest", "remove")
        else SnapshotDamagedError
    )
    with pytest.raises(expected, match=f"{which}|no manifest"):
        verify_snapshot(s3.path, filesystem=s3.filesystem)


def test_other_readers_find_plain_parquet(
    s3: SimpleNamespace, made: SimpleNamespace
) -> None:
    """pyarrow, DuckDB and Dask read the prefix as it is."""
    store = open_store(s3.path, s3.filesystem)
    sync_load(
        made.load(made.entries("a", "b", "c")), store, clock=made.clock(made.start)
    )
    later = made.clock(made.start + timedelta(days=1))
    sync_load(
        made.load([made.entry("b", body="new"), *made.entries("c", "d")]),
        store,
        clock=later,
    )
    expected = ["a", "b", "c", "d"]

    snapshot = open_snapshot(s3.path, filesystem=s3.filesystem)
    assert made.read_by_all(snapshot) == expected
    assert all(file.startswith(f"s3://{s3.path}/") for file in snapshot.files())

    endpoint = {
        "endpoint_url": f"http://127.0.0.1:{s3.server.port}",
        "region_name": "us-east-1",
    }
    options = {
        "key": "a",
        "secret": "b",
        "client_kwargs": endpoint,
        "skip_instance_cache": True,
    }
    with duckdb.connect() as connection:
        connection.register_filesystem(s3fs.S3FileSystem(**options))
        query = "select dlq_id from read_parquet(?) order by 1"
        found = connection.execute(query, [snapshot.files()]).fetchall()
        assert [row[0] for row in found] == expected
    through_fsspec = PyFileSystem(FSSpecHandler(s3fs.S3FileSystem(**options)))
    assert len(read_snapshot(s3.path, filesystem=through_fsspec)) == 4


@pytest.mark.slow
def test_a_listing_of_many_pages_is_read_to_its_end(s3: SimpleNamespace) -> None:
    """A store lists a thousand objects at a time; all of them are seen."""
    write_snapshot(_labels("a"), s3.path, filesystem=s3.filesystem)
    objects = get_backend("s3")["123456789012"]["aws"]
    for number in range(1100):
        objects.put_object(s3.bucket, f"snapshot/notes/{number}", b"mine")
    unlisted = verify_snapshot(s3.path, filesystem=s3.filesystem).unlisted
    assert set(unlisted) == {f"notes/{number}" for number in range(1100)}
    write_snapshot(_labels("b"), s3.path, filesystem=s3.filesystem)
    assert verify_snapshot(s3.path, filesystem=s3.filesystem).unlisted == unlisted


@pytest.mark.parametrize("status", [403, 500, 503])
def test_a_store_that_refuses_is_not_an_empty_one(
    s3: SimpleNamespace, status: int
) -> None:
    """No permission and no response are errors of the store, never "there is no snapshot"."""
    where = {"path": s3.path, "filesystem": s3.filesystem}
    write_snapshot(_labels("a"), **where)
    for refused in ("HEAD", "GET"):
        s3.server.before = lambda method, _, refused=refused: (
            status if method == refused else None
        )
        for use in (
            read_snapshot,
            open_snapshot,
            verify_snapshot,
            lambda **to: write_snapshot(_labels("b"), **to),
        ):
            with pytest.raises(
                SnapshotError, match="the store can be reached"
            ) as caught:
                use(**where)
            assert type(caught.value) is SnapshotError
            assert ("AWS_ACCESS_KEY_ID" in str(caught.value)) == (status == 403)
    s3.server.free()
    assert read_snapshot(**where)["dlq_id"].tolist() == ["a"]


def test_a_store_that_is_not_there_is_an_error_without_secrets(
    s3: SimpleNamespace,
) -> None:
    """Nobody listening is a typed error, which names the place and no key."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    nowhere = s3.server.filesystem(endpoint_override=f"127.0.0.1:{port}")
    for use in (
        read_snapshot,
        lambda path, **to: write_snapshot(_labels("b"), path, **to),
    ):
        with pytest.raises(SnapshotError, match=f"s3://{s3.path}") as caught:
            use(s3.path, filesystem=nowhere)
        shown = "".join(traceback.format_exception(caught.value))
        assert "of-the-test" not in shown


def test_a_bucket_that_is_missing_is_not_made(s3: SimpleNamespace) -> None:
    """A misspelt bucket is an error for writers and readers."""
    where = {"path": "no-such-bucket/snapshot", "filesystem": s3.filesystem}
    with pytest.raises(SnapshotError, match=r"no-such-bucket.*Create the bucket"):
        write_snapshot(_labels("a"), **where)
    for read in (read_snapshot, open_snapshot, verify_snapshot):
        with pytest.raises(SnapshotError, match="got no bucket 'no-such-bucket'"):
            read(**where)


@settings(deadline=None)
@given(
    contents=st.lists(st.lists(st.binary(max_size=40), max_size=4), max_size=4),
    block=st.integers(1, 50),
)
def test_anything_written_is_read_back(contents: list[list[bytes]], block: int) -> None:
    """Bytes of any length, written in any chunks and sent in blocks of any size, are read again exactly."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(object_store, "_BLOCK", block)
        store = ObjectSnapshotStore("bucket/x", _MockFileSystem())
        for number, chunks in enumerate(contents):
            with store.new_file(f"days/{number}.bin") as file:
                for chunk in chunks:
                    file.write(chunk)
                assert f"days/{number}.bin" not in set(store.names())
                file.sync()
            store.replace("_manifest.json", b"".join(chunks))
        for number, chunks in enumerate(contents):
            whole = b"".join(chunks)
            with store.open(f"days/{number}.bin") as file:
                assert file.read() == whole
            assert store.states([f"days/{number}.bin"])[
                f"days/{number}.bin"
            ].bytes == len(whole)
        if contents:
            assert store.content("_manifest.json") == b"".join(contents[-1])
            store.remove("days/0.bin")
            store.remove("days/0.bin")
        left = {f"days/{number}.bin" for number in range(1, len(contents))}
        assert set(store.names()) == left | ({"_manifest.json"} if contents else set())


def test_an_object_that_was_never_finished_is_never_there(s3: SimpleNamespace) -> None:
    """Without its last word, nothing of an object goes up, and nothing is left begun."""
    store = open_store(s3.path, s3.filesystem)
    with store.new_file("part.parquet") as file:
        file.write(b"half")
    with pytest.raises(FileNotFoundError, match=r"part\.parquet"):
        store.open("part.parquet")
    assert _objects(s3) == []


def test_a_large_object_is_written_and_read_in_blocks(s3: SimpleNamespace) -> None:
    """More than one block goes up as one object, and is read again whole."""
    store = open_store(s3.path, s3.filesystem)
    content = bytes(range(256)) * (80 << 10)  # 20 MB: a block and a quarter
    with store.new_file("part.bin") as file:
        file.write(content)
        file.sync()
    with store.open("part.bin") as file:
        assert file.read() == content
    with store.open_partial("part.bin") as file:
        file.seek(-3, 2)
        assert file.read() == content[-3:]


def test_tables_of_other_types_are_refused_in_a_bucket_too(s3: SimpleNamespace) -> None:
    """What a snapshot may hold does not depend on where it is."""
    write_snapshot(_labels("a"), s3.path, filesystem=s3.filesystem)
    with pytest.raises(SnapshotError, match="separate folder"):
        write_snapshot(
            _labels("a")[["label"]],
            s3.path,
            filesystem=s3.filesystem,
            schema=pa.schema([("label", pa.string())]),
        )
