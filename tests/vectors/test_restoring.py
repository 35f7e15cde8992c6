"""Snapshots of vectors restored to an index: whole, resumed after a kill, and compared row by row."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import toolkit as tk
from toolkit.errors import (
    InputError,
    SnapshotBindingError,
    SnapshotError,
    UnexpectedResultWarning,
)

ROWS = 4500
CHECKPOINTS = Path(__file__).with_name("checkpoint_process.py")
PROCESS = Path(__file__).with_name("restoring_process.py")


def rows(kind: str, count: int = ROWS, seed: int = 0) -> list[dict]:
    rng = np.random.default_rng(seed)
    matrix = rng.standard_normal((count, 2)).astype(np.float32)
    dense = [{"vector": matrix[n]} if kind != "sparse" else {} for n in range(count)]
    sparse = [
        {"sparse": ([n, n + 7], matrix[n])} if kind != "dense" else {}
        for n in range(count)
    ]
    return [
        {
            "id": f"r{n}",
            "metadata": {"n": n} if n % 3 else None,
            "data": f"text {n}" if n % 5 else None,
        }
        | dense[n]
        | sparse[n]
        for n in range(count)
    ]


@pytest.fixture(autouse=True)
def own_data_folder(tmp_path, monkeypatch) -> None:
    """Checkpoints of these tests are not the user's."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


def exported(service: tk.Service, folder: Path, space: str, given: list[dict]) -> str:
    """A snapshot of a namespace, which is then removed."""
    tk.upsert_vectors(service, given, namespace=space)
    tk.export_vectors(service, folder / "vectors", namespace=space, progress=False)
    tk.delete_namespace(service, space, confirm=True)
    return str(folder / "vectors")


@pytest.mark.parametrize("kind", ["dense", "sparse", "hybrid"])
def test_a_snapshot_is_restored_whole(local_indexes, tmp_path, kind):
    """Several namespaces of each kind: the frame loaded afterwards is the one of before."""
    service = local_indexes[kind]
    spaces = [f"restored {kind} / {n}" for n in range(2)]
    for number, space in enumerate(spaces):
        tk.upsert_vectors(service, rows(kind, 1200, seed=number), namespace=space)
    before = tk.load_vectors(service, namespace=spaces, progress=False)
    tk.export_vectors(service, tmp_path / "vectors", namespace=spaces, progress=False)
    for space in spaces:
        tk.delete_namespace(service, space, confirm=True)
    seen: list[tuple[int, int | None]] = []
    result = tk.restore_vectors(
        service, tmp_path / "vectors", progress=lambda *at: seen.append(at)
    )
    assert result.complete
    assert (
        result.verdict
        == "All 2,400 vectors of the snapshot are in the index, compared one by one."
    )
    assert result.frame["namespace"].tolist() == spaces
    assert result.frame.sum(numeric_only=True).to_dict() == {
        "rows": 2400, "verified": 2400, "missing": 0, "different": 0, "skipped": 0, "extra": 0,
    }  # fmt: skip
    assert seen[-1] == (4800, 4800)
    after = tk.load_vectors(service, namespace=spaces, progress=False)
    order = ["namespace", "id"]
    pd.testing.assert_frame_equal(
        after.sort_values(order, ignore_index=True),
        before.sort_values(order, ignore_index=True),
    )
    assert not list((tmp_path / "data").rglob("*.json"))
    for shown in (repr(result), result._repr_html_()):
        assert "1200" in shown.replace(",", "")


@pytest.mark.slow
def test_a_killed_restore_continues_where_it_was(local_indexes, tmp_path):
    """A process killed after 2,000 rows: the next call sends the rest alone, and the index is whole."""
    service = local_indexes["dense"]
    snapshot = exported(service, tmp_path, "killed", rows("dense"))
    arguments = [service.vector.url, snapshot, str(tmp_path / "checkpoint"), "2000"]
    killed = subprocess.run(
        [sys.executable, str(PROCESS), *arguments],
        env=os.environ | {"RESTORING_TOKEN": service.vector.token.reveal()},
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    partial = tk.describe_index(service).namespaces["killed"]
    assert 2000 <= partial < ROWS
    # what is stored already is not stored again: this row stays changed, and the comparison says so
    tk.update_vectors(
        service, {"id": "r1", "data": "changed meanwhile"}, namespace="killed"
    )
    with pytest.warns(
        UnexpectedResultWarning, match="4,499 of 4,500 vectors .* 1 different"
    ):
        result = tk.restore_vectors(
            service, snapshot, checkpoint=tmp_path / "checkpoint", progress=False
        )
    assert 2000 <= result.resumed_at <= partial
    assert result.problems.to_numpy().tolist() == [["killed", "r1", "differs in data"]]
    assert not (tmp_path / "checkpoint").exists()
    again = tk.restore_vectors(service, snapshot, progress=False)
    assert again.complete
    assert again.resumed_at == 0


@pytest.mark.slow
def test_two_processes_share_a_checkpoint(tmp_path):
    """Two that write the checkpoint of the same restore at once both end well, and leave one whole file."""
    command = [sys.executable, str(CHECKPOINTS), str(tmp_path / "checkpoint"), "300"]
    processes = [
        subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(2)
    ]
    errors = [process.communicate(timeout=120)[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], errors
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]


@pytest.mark.slow
def test_two_kernels_restore_one_snapshot(local_indexes, tmp_path):
    """Both restores of a snapshot at once are complete, and no checkpoint is left."""
    service = local_indexes["dense"]
    snapshot = exported(service, tmp_path, "twice at once", rows("dense"))
    environment = os.environ | {"RESTORING_TOKEN": service.vector.token.reveal()}
    command = [
        sys.executable,
        str(PROCESS),
        service.vector.url,
        snapshot,
        str(tmp_path / "checkpoint"),
    ]
    processes = [
        subprocess.Popen([*command, "1000000"], env=environment) for _ in range(2)
    ]
    assert [process.wait(120) for process in processes] == [0, 0]
    assert tk.describe_index(service).namespaces["twice at once"] == ROWS
    assert not (tmp_path / "checkpoint").exists()


def test_an_error_keeps_the_checkpoint_and_says_so(local_indexes, tmp_path):
    """Progress that raises stands for any interruption: the note names the rows, the next call continues."""
    service = local_indexes["dense"]
    snapshot = exported(service, tmp_path, "stopped", rows("dense", 2500))

    def stop(done: int, _: int | None) -> None:
        if done >= 1000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as raised:
        tk.restore_vectors(service, snapshot, progress=stop)
    assert "The first 1,000 of 2,500 rows are stored" in raised.value.__notes__[-1]
    (kept,) = (tmp_path / "data").rglob("*.json")
    assert kept.stat().st_mode & 0o077 == 0
    assert tk.restore_vectors(service, snapshot, progress=False).resumed_at == 1000


def test_a_checkpoint_of_another_restore_is_refused(local_indexes, tmp_path):
    """It would skip rows that were never stored; so would a file that is none."""
    service = local_indexes["dense"]
    snapshot = exported(service, tmp_path, "bound", rows("dense", 10))
    checkpoint = tmp_path / "checkpoint"
    checkpoint.write_text('{"rows": 5, "binding": "another"}')
    with pytest.raises(
        SnapshotBindingError, match="another snapshot, index or namespace"
    ):
        tk.restore_vectors(service, snapshot, checkpoint=checkpoint, progress=False)
    for content in ("", "[1]", '{"rows": "many"}'):
        checkpoint.write_text(content)
        with pytest.raises(InputError, match="using the checkpoint"):
            tk.restore_vectors(service, snapshot, checkpoint=checkpoint, progress=False)
    assert "bound" not in tk.list_namespaces(service)


def test_rows_that_cannot_be_stored_are_listed(local_indexes, tmp_path):
    """A row without a usable vector, and a text in which our token is masked: the rest is restored."""
    service = local_indexes["dense"]
    token = service.vector.token.reveal()
    tk.upsert_vectors(
        service,
        [
            {"id": "a", "vector": [1, 2]},
            {"id": "b", "vector": [1, 2], "data": token},
            {"id": "c", "vector": [3, 4]},
        ],
        namespace="listed",
    )
    frame = tk.load_vectors(service, namespace="listed", progress=False)
    frame.loc[frame["id"] == "c", "vector_problem"] = "of 3 dimensions, not 2"
    tk.write_snapshot(frame, tmp_path / "vectors")
    tk.delete_namespace(service, "listed", confirm=True)
    with pytest.warns(
        UnexpectedResultWarning, match=r"1 of 3 vectors .* 2 skipped; see \.problems"
    ):
        result = tk.restore_vectors(service, tmp_path / "vectors", progress=False)
    assert result.problems["id"].tolist() == ["b", "c"]
    assert "of 3 dimensions" in result.problems["problem"][1]
    assert "a token of ours that was masked" in result.problems["problem"][0]
    assert tk.load_vectors(service, namespace="listed", progress=False)[
        "id"
    ].tolist() == ["a"]


def test_another_namespace_and_what_was_there_before(local_indexes, tmp_path):
    """Rows go where they are told to; vectors that the snapshot does not have stay, and are counted."""
    service = local_indexes["dense"]
    snapshot = exported(service, tmp_path, "source", rows("dense", 20))
    tk.upsert_vectors(service, {"id": "older", "vector": [0, 1]}, namespace="target")
    result = tk.restore_vectors(
        service,
        tk.open_snapshot(snapshot).to_arrow(),
        namespace="target",
        progress=False,
    )
    assert result.frame[["namespace", "verified", "extra"]].to_numpy().tolist() == [
        ["target", 20, 1]
    ]
    assert "source" not in tk.list_namespaces(service)


def test_rows_of_several_namespaces_with_one_id_are_not_said_to_be_there(
    local_indexes, tmp_path
):
    """Stored in one namespace, the last row of an id stays: the others are listed, and the result says so."""
    service = local_indexes["dense"]
    both = ["first of two", "second of two"]
    for number, name in enumerate(both):
        tk.upsert_vectors(
            service,
            [{"id": key, "vector": [number, 1]} for key in "ab"],
            namespace=name,
        )
    tk.export_vectors(service, tmp_path / "both", namespace=both, progress=False)
    with pytest.warns(UnexpectedResultWarning, match="2 of 4 vectors"):
        result = tk.restore_vectors(
            service, tmp_path / "both", namespace="one of two", progress=False
        )
    assert not result.complete
    assert result.problems["problem"].tolist() == ["differs in vector"] * 2
    assert result.frame[["rows", "verified", "different"]].to_numpy().tolist() == [
        [4, 2, 2]
    ]


def test_what_is_no_snapshot_of_vectors_is_refused(
    local_indexes, sample_service, tmp_path
):
    """Another dimension, other columns, no snapshot: nothing is stored."""
    service = local_indexes["dense"]
    tk.write_snapshot(pd.DataFrame({"label": ["x"]}), tmp_path / "labels")
    with pytest.raises(InputError, match="without the columns namespace, id, vector"):
        tk.restore_vectors(service, tmp_path / "labels")
    with pytest.raises(SnapshotError):
        tk.restore_vectors(service, tmp_path / "nothing")
    tk.export_vectors(
        sample_service, tmp_path / "wide", namespace="runbooks", progress=False
    )
    with pytest.raises(
        InputError, match="256 dimensions; expected the 2 dimensions of the index"
    ):
        tk.restore_vectors(service, tmp_path / "wide", progress=False)
    with pytest.raises(InputError, match="snapshot"):
        tk.restore_vectors(service, 5)
