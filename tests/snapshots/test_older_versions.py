"""Snapshots of every schema version, as toolkits of that time wrote them: kept in ``tests/data`` for ever."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import toolkit as tk
from toolkit.errors import SnapshotBindingError, SnapshotDamagedError, SnapshotError
from toolkit.signatures.signing import RULES_VERSION
from toolkit.snapshots.manifest import SCHEMA_VERSION, read_manifest
from toolkit.snapshots.store import SnapshotStore

_PROGRAM = Path(__file__).with_name("writer_process.py")
_DATA = Path(__file__).parents[1] / "data" / "snapshots"
_SPEC = importlib.util.spec_from_file_location("make_snapshots", _DATA / "make.py")
assert _SPEC is not None
assert _SPEC.loader is not None
snapshots = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(snapshots)

_VERSIONS = sorted(_DATA.glob("version-*"))
_SNAPSHOTS = [
    pytest.param(path, id=f"{path.parent.name}/{path.name}")
    for version in _VERSIONS
    for path in sorted(version.iterdir())
    if path.is_dir()
]
_OLDER = [path for path in _VERSIONS if path.name != f"version-{SCHEMA_VERSION}"]
# not kept of versions 1 to 3
_WITH_FRAMES = [path for path in _OLDER if (path / "failures-frame").exists()]


@pytest.fixture
def source() -> Iterator[Any]:
    """A real server that returns what the snapshots were made from; masks are tagged as in them."""
    with snapshots.masking_key(), snapshots.serving() as found:
        yield found


def _expected(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(
        path.with_suffix(".json").read_text(encoding="utf-8")
    )
    return rows


def _sorted(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: json.dumps(row, sort_keys=True))


def _edited(path: Path, **values: Any) -> None:
    """Change values of a manifest, as if it had been written so."""
    manifest = json.loads((path / "_manifest.json").read_text())["manifest"] | values
    body = json.dumps(manifest, separators=(",", ":"))
    digest = hashlib.sha256(body.encode()).hexdigest()
    (path / "_manifest.json").write_text(f'{{"sha256":"{digest}","manifest":{body}}}\n')


def _copy(path: Path, target: Path, source: Any = None) -> Path:
    """A copy to write to, as if it had been made from a server that listens now."""
    shutil.copytree(path, target)
    if source is not None:
        _edited(target, source=source.url)
    return target


def _files(path: Path) -> dict[Path, bytes]:
    return {
        file: file.read_bytes()
        for file in path.rglob("*")
        if file.is_file() and file.name != ".lock"
    }


def test_every_version_from_now_on_has_its_snapshots() -> None:
    """The current version is among those kept, so that no version is forgotten."""
    assert f"version-{SCHEMA_VERSION}" in {path.name for path in _VERSIONS}


@pytest.mark.parametrize("path", _SNAPSHOTS)
def test_a_snapshot_reads_as_it_was_written(path: Path) -> None:
    """Every row has the values it had, whatever the columns are called and however they are stored today."""
    expected, before = _expected(path), _files(path)
    frame = tk.read_snapshot(path)
    assert snapshots.meaning(frame) == expected
    assert tk.verify_snapshot(path).rows == len(expected)
    dataset = tk.open_snapshot(path).to_arrow()
    assert dataset.count_rows() == len(expected)
    scanned = dataset.to_table().to_pandas(types_mapper=None)
    stored = [
        name for name in scanned.columns if name in frame.columns or name != "signature"
    ]
    assert stored == [name for name in frame.columns if name != "error"]
    assert _files(path) == before


@pytest.mark.parametrize(
    "version",
    sorted(_DATA.glob("version-*/callbacks")),
    ids=lambda path: path.parent.name,
)
def test_older_callbacks_have_the_columns_of_today(version: Path) -> None:
    """Those that their version had not are there, and missing."""
    frame = tk.read_snapshot(version)
    assert list(frame.columns) == list(tk.load_callbacks([]).columns)
    assert frame["body_truncated"].isna().all() or version.parent.name != "version-4"


@pytest.mark.parametrize("version", _WITH_FRAMES, ids=lambda path: path.name)
def test_an_older_snapshot_has_the_columns_of_today(version: Path, source: Any) -> None:
    """A frame from an older snapshot has the columns, in the order and of the types, that a load has now."""
    source.failures = snapshots.BEFORE
    now = tk.load_failures(snapshots.connected(source), progress=False)
    stored = tk.read_snapshot(version / "failures-frame")
    assert stored.dtypes.to_dict() == now.dtypes.to_dict()
    assert snapshots.meaning(stored) == snapshots.meaning(now)
    stored = tk.read_snapshot(version / "failures")
    assert stored.dtypes.to_dict().items() > now.dtypes.to_dict().items()


@pytest.mark.parametrize("version", _VERSIONS, ids=lambda path: path.name)
def test_a_sync_into_an_older_snapshot_finds_what_changed_and_nothing_else(
    version: Path, source: Any, tmp_path: Path
) -> None:
    """The same entries are not a change, whatever the version; history stays; the version becomes today's."""
    path = _copy(version / "failures", tmp_path / "kept", source)
    service = snapshots.connected(source)
    source.failures = snapshots.NOW
    assert tk.sync_failures(service, path, progress=False).counts == {
        "added": 0,
        "changed": 0,
        "gone": 0,
    }
    upgraded = tk.read_snapshot(path)
    assert upgraded["signature"].str.match(rf"s{RULES_VERSION}-[0-9a-f]{{12}}$").all()
    rules_of_that_time = ["signature", "failed_at", "stated_failed_at"]
    unsigned = [
        {name: value for name, value in row.items() if name not in rules_of_that_time}
        for row in _expected(version / "failures")
    ]
    assert snapshots.meaning(upgraded.drop(columns=rules_of_that_time)) == _sorted(
        unsigned
    )
    impossible = upgraded.dropna(subset="stated_failed_at")
    assert impossible["dlq_id"].tolist() == ["added"]
    assert (impossible["failed_at"] >= impossible["created_at"]).all()
    manifest = read_manifest(SnapshotStore(path))
    assert manifest is not None
    assert manifest.schema_version == SCHEMA_VERSION
    assert tk.verify_snapshot(path).unlisted == ()
    assert tk.open_snapshot(path).to_arrow().count_rows() == len(snapshots.NOW) + 1
    source.failures = [*snapshots.NOW[1:-1], {**snapshots.NOW[-1], "body": "other"}]
    found = tk.sync_failures(service, path, progress=False)
    assert found.counts == {"added": 0, "changed": 1, "gone": 1}
    assert found.gone["dlq_id"].tolist() == ["plain-0"]


@pytest.mark.parametrize("version", _OLDER, ids=lambda path: path.name)
def test_a_sync_that_upgrades_tells_changes_of_its_own(
    version: Path, source: Any, tmp_path: Path
) -> None:
    """In the sync that upgrades, too, what is new, changed, gone or back is recognised."""
    path = _copy(version / "failures", tmp_path / "kept", source)
    before = tk.read_snapshot(path).set_index("dlq_id")
    changed = {**snapshots.NOW[0], "responseStatus": 418}
    source.failures = [
        changed,
        *snapshots.NOW[2:],
        {"dlqId": "goes"},
        {"dlqId": "unseen"},
    ]
    found = tk.sync_failures(snapshots.connected(source), path, progress=False)
    assert found.added["dlq_id"].tolist() == ["unseen"]
    assert sorted(found.changed["dlq_id"]) == ["goes", "plain-0"]
    assert found.gone["dlq_id"].tolist() == ["plain-1"]
    after = tk.read_snapshot(path).set_index("dlq_id")
    assert (after["first_seen_at"][before.index] == before["first_seen_at"]).all()
    assert after["gone_after"].notna().sum() == 1


@pytest.mark.parametrize("version", _WITH_FRAMES, ids=lambda path: path.name)
def test_a_checkpoint_of_an_older_version_is_dropped_with_a_note(
    version: Path, source: Any, tmp_path: Path
) -> None:
    """What a stopped load of an older toolkit left is read again, and the receipt says why."""
    path = _copy(version / "failures-stopped", tmp_path / "kept", source)
    source.failures = snapshots.NOW
    changes = tk.sync_failures(snapshots.connected(source), path, progress=False)
    assert changes.receipt.notes[-1:] == (
        "a checkpoint was not resumed: it is of another version of the toolkit",
    )
    assert sorted(changes.added["dlq_id"]) == ["added", "newest"]
    assert sorted(changes.changed["dlq_id"]) == ["changes"]
    assert sorted(changes.gone["dlq_id"]) == ["goes"]
    assert not list(path.glob("_checkpoint*"))


@pytest.mark.parametrize("version", _WITH_FRAMES, ids=lambda path: path.name)
def test_frames_and_exports_replace_those_of_an_older_version(
    version: Path, source: Any, tmp_path: Path
) -> None:
    """`write_snapshot` and `export_vectors` write into a folder that an older toolkit wrote."""
    service = snapshots.connected(source)
    source.failures, source.vectors = snapshots.BEFORE, snapshots.VECTORS["dense"]
    path = _copy(version / "failures-frame", tmp_path / "frame", source)
    failures = tk.load_failures(service, progress=False)
    with pytest.raises(SnapshotBindingError):
        tk.write_snapshot(tk.explode_labels(failures), path)
    tk.write_snapshot(failures, path)
    assert snapshots.meaning(tk.read_snapshot(path)) == _expected(
        version / "failures-frame"
    )
    path = _copy(version / "vectors-dense", tmp_path / "vectors", source)
    assert tk.export_vectors(service, path, progress=False).complete
    assert snapshots.meaning(tk.read_snapshot(path)) == _expected(
        version / "vectors-dense"
    )
    assert tk.verify_snapshot(path).unlisted == ()


def test_a_newer_version_is_refused_with_what_to_do(tmp_path: Path) -> None:
    """A snapshot of a newer toolkit says both versions and how to upgrade, and nothing of it is touched."""
    path = _copy(_VERSIONS[-1] / "failures", tmp_path / "kept")
    _edited(path, schema_version=SCHEMA_VERSION + 1)
    before = _files(path)
    for function in (tk.read_snapshot, tk.open_snapshot, tk.verify_snapshot):
        with pytest.raises(
            SnapshotError, match=f"schema version {SCHEMA_VERSION + 1}"
        ) as caught:
            function(path)
        assert (
            f"schema version {SCHEMA_VERSION}, as toolkit {tk.__version__} reads"
            in str(caught.value)
        )
        assert "pip install --upgrade" in str(caught.value)
    with pytest.raises(SnapshotError, match="newer"):
        tk.write_snapshot(tk.read_snapshot(_VERSIONS[-1] / "runs"), path)
    assert _files(path) == before


@pytest.mark.parametrize("version", _OLDER, ids=lambda path: path.name)
def test_damage_in_an_older_snapshot_is_found(version: Path, tmp_path: Path) -> None:
    """Its data files and its index are checked by their hashes like those of today."""
    for number, pattern in enumerate(("first_seen/*/*.parquet", "_index-*.bin")):
        path = _copy(version / "failures", tmp_path / str(number))
        damaged = next(iter(path.glob(pattern)))
        damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
        with pytest.raises(SnapshotDamagedError, match=damaged.name):
            tk.verify_snapshot(path)


@pytest.mark.slow
@pytest.mark.parametrize("version", _OLDER[-1:], ids=lambda path: path.name)
def test_an_upgrade_killed_at_any_step_leaves_the_old_or_the_new_version(
    version: Path, tmp_path: Path, made: SimpleNamespace
) -> None:
    """Wherever the sync that upgrades is killed, the snapshot is whole, as before it or as after it."""
    base = _copy(version / "failures", tmp_path / "base")
    # the program syncs entries b, c and d, and none of those that are there
    _edited(base, source="http://127.0.0.1:1", scope={"kind": "workflows"})
    command = [sys.executable, str(_PROGRAM), "crash", str(base), str(tmp_path)]
    steps = int(
        subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=200
        ).stdout
    )
    old, seen = tk.read_snapshot(base), []
    is_repeated = made.repeated()
    for number in range(1, steps + 1):
        path = tmp_path / str(number)
        if is_repeated(path):
            continue
        manifest = read_manifest(SnapshotStore(path))
        assert manifest is not None
        frame, new = tk.read_snapshot(path), manifest.schema_version == SCHEMA_VERSION
        seen.append(manifest.schema_version)
        assert len(frame) == len(old) + 3 * new
        assert frame["gone_after"].notna().sum() == (len(old) if new else 1)
        assert tk.verify_snapshot(path).rows == len(frame)
    assert set(seen) == {int(version.name.split("-")[1]), SCHEMA_VERSION}
    assert seen == sorted(seen)
