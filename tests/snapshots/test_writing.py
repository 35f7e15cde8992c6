"""Frames kept and read back: the same values and types, whatever they hold."""

from __future__ import annotations

import errno
import json
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import toolkit as tk
from toolkit.errors import InputError, SnapshotBindingError, SnapshotError
from toolkit.snapshots import (
    open_snapshot,
    read_snapshot,
    verify_snapshot,
    write_snapshot,
)
from toolkit.snapshots.data_files import Part
from toolkit.snapshots.store import SnapshotStore
from toolkit.tables.frames import frame_from_rows, to_frame, to_table
from toolkit.tables.receipt import Receipt, get_receipt
from toolkit.tables.schemas import (
    FAILURES,
    HEADERS_EXPLODED,
    LABELS_EXPLODED,
    hits,
    vectors,
)

_TEXT = st.none() | st.text(max_size=8)
_TIME = st.none() | st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1)).map(  # noqa: DTZ001 - zone follows
    lambda moment: moment.replace(
        microsecond=moment.microsecond // 1000 * 1000, tzinfo=UTC
    )
)
_HEADERS = st.none() | st.dictionaries(
    st.text(max_size=4), st.none() | st.lists(_TEXT, max_size=3), max_size=3
).map(lambda found: list(found.items()))


def _value(kind: pa.DataType) -> st.SearchStrategy[Any]:
    if pa.types.is_map(kind):
        return _HEADERS
    if pa.types.is_list(kind):
        return st.none() | st.lists(_TEXT, max_size=3)
    if pa.types.is_timestamp(kind):
        return _TIME
    if pa.types.is_int64(kind):
        return st.none() | st.integers(-(2**63), 2**63 - 1)
    return (st.none() | st.binary(max_size=8)) if pa.types.is_binary(kind) else _TEXT


_ROWS = st.lists(
    st.fixed_dictionaries(
        {
            field.name: _value(field.type) if field.nullable else st.text(max_size=8)
            for field in FAILURES
        }
    ),
    max_size=5,
)


def _receipt(**values: Any) -> Receipt:
    times = {
        "started_at": "2026-01-01T00:00:00+00:00",
        "ended_at": "2026-01-01T00:00:01+00:00",
    }
    return Receipt(
        **{
            "what": "failures",
            "source": "http://127.0.0.1:1",
            "scope": {},
            "complete": True,
            **times,
            **values,
        }
    )


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(rows=_ROWS)
def test_any_rows_are_read_back_exactly(
    rows: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Nested, binary, missing and unusual values survive: in our frame, in plain pyarrow and in DuckDB."""
    path = tmp_path_factory.mktemp("round") / "trip"
    table = pa.Table.from_pylist(rows, schema=FAILURES)
    frame = to_frame(table)
    write_snapshot(frame, path)
    found = read_snapshot(path)
    pd.testing.assert_frame_equal(found, frame)
    assert to_table(found, FAILURES).equals(table)
    snapshot = open_snapshot(path)
    plain = pq.read_table(snapshot.files(), columns=FAILURES.names)
    assert plain.cast(FAILURES).equals(table)
    assert snapshot.to_arrow().to_table(columns=FAILURES.names).equals(table)
    ducks = (
        duckdb.read_parquet(snapshot.files()).select(*FAILURES.names).to_arrow_table()
    )
    assert ducks.cast(FAILURES).to_pylist() == table.to_pylist()


def test_vectors_keep_their_fixed_size(tmp_path: Path) -> None:
    """The dimension is a property of the column, with null vectors in between, and without rows."""
    schema = vectors(3)
    rows = [
        {
            "namespace": "",
            "id": "a",
            "vector": [0.5, 1.0, -2.0],
            "metadata": '{"x": 1}',
        },
        {"namespace": "", "id": "b", "vector": None, "vector_problem": "null"},
        {
            "namespace": "n",
            "id": "a",
            "sparse_indices": [1, 2],
            "sparse_values": [0.5, None],
        },
    ]
    for number, some in enumerate((rows, [])):
        frame = frame_from_rows(some, schema)
        write_snapshot(frame, tmp_path / str(number))
        pd.testing.assert_frame_equal(read_snapshot(tmp_path / str(number)), frame)
        assert (
            open_snapshot(tmp_path / str(number))
            .to_arrow()
            .schema.field("vector")
            .type.list_size
            == 3
        )


@pytest.mark.parametrize(
    "schema", [HEADERS_EXPLODED, LABELS_EXPLODED, hits(), hits(2), vectors()]
)
def test_a_frame_without_rows_keeps_its_columns_and_types(
    tmp_path: Path, schema: pa.Schema
) -> None:
    """Each of the toolkit's tables is known by its columns, also when it is empty."""
    frame = frame_from_rows([], schema)
    write_snapshot(frame, tmp_path)
    pd.testing.assert_frame_equal(read_snapshot(tmp_path), frame)
    assert pq.read_table(tmp_path).schema.names == schema.names


def test_the_frame_is_not_changed(tmp_path: Path, made: SimpleNamespace) -> None:
    """Writing neither adds columns to the frame nor touches its attrs."""
    frame = to_frame(made.failures(made.entries("a")), _receipt())
    before = frame.copy(deep=True)
    write_snapshot(frame, tmp_path)
    pd.testing.assert_frame_equal(frame, before)
    assert frame.attrs == before.attrs


def test_of_the_attrs_only_the_receipt_is_kept(
    tmp_path: Path, made: SimpleNamespace
) -> None:
    """A token someone left in attrs reaches no file."""
    frame = to_frame(made.failures(made.entries("a")), _receipt(rows=1))
    frame.attrs["token"] = "canary-token-of-the-test"
    frame.attrs["receipt"]["token"] = "canary-token-of-the-test"
    write_snapshot(frame, tmp_path)
    assert get_receipt(read_snapshot(tmp_path)) == _receipt(rows=1)
    for path in tmp_path.rglob("*"):
        assert b"canary" not in path.read_bytes()


def test_another_frame_of_the_same_load_replaces_the_first(
    tmp_path: Path, made: SimpleNamespace
) -> None:
    """A later load of the same service and scope replaces the earlier, and its file is removed."""
    for names in ("ab", "bcd"):
        write_snapshot(
            to_frame(made.failures(made.entries(*names)), _receipt(rows=len(names))),
            tmp_path,
        )
    assert read_snapshot(tmp_path)["dlq_id"].tolist() == ["b", "c", "d"]
    assert len(list(tmp_path.glob("*.parquet"))) == 1
    assert verify_snapshot(tmp_path).generation == 2


def test_another_source_scope_or_table_is_refused(
    tmp_path: Path, made: SimpleNamespace
) -> None:
    """Rows of another source do not replace those stored."""
    frame = to_frame(made.failures(made.entries("a")), _receipt())
    write_snapshot(frame, tmp_path)
    labels = frame_from_rows([{"dlq_id": "a", "label": "x"}], LABELS_EXPLODED)
    labels.attrs["receipt"] = _receipt().to_dict()
    other = frame.copy()
    other.attrs["receipt"] = _receipt(source="http://127.0.0.1:2").to_dict()
    narrower = frame.copy()
    narrower.attrs["receipt"] = _receipt(scope={"label": ["x"]}).to_dict()
    for wrong in (labels, other, narrower):
        with pytest.raises(SnapshotBindingError):
            write_snapshot(wrong, tmp_path)
    pd.testing.assert_frame_equal(read_snapshot(tmp_path), frame)


def test_unsupported_values_are_named(tmp_path: Path) -> None:
    """Objects are not guessed at; with a schema they can be kept."""
    frame = pd.DataFrame(
        {"minutes": pd.array([1, None], dtype="Int64"), "parts": [[b"a"], [b"b"]]}
    )
    with pytest.raises(
        InputError, match=r"'parts' with objects of the type list.*schema="
    ):
        write_snapshot(frame, tmp_path)
    bytes_of = pa.schema([("minutes", pa.int64()), ("parts", pa.list_(pa.binary()))])
    write_snapshot(frame, tmp_path, schema=bytes_of)
    assert open_snapshot(tmp_path).to_arrow().to_table().to_pylist()[0] == {
        "minutes": 1,
        "parts": [b"a"],
    }
    vectors = pd.DataFrame({"vector": list(np.eye(2)), "band": pd.cut([1.0, 2.0], 2)})
    with pytest.raises(
        InputError, match=r"frame\['vector'\]\.astype\('vector\[float32, 2\]'\)"
    ):
        write_snapshot(vectors, tmp_path)
    with pytest.raises(InputError, match="'band' with values of the type interval"):
        write_snapshot(vectors.astype({"vector": "vector[float32, 2]"}), tmp_path)
    for odd in (
        pd.DataFrame({1: ["a"]}),
        pd.DataFrame([["a", "b"]], columns=["a", "a"]),
        pd.DataFrame(),
    ):
        with pytest.raises(InputError, match=r"names|once|without columns"):
            write_snapshot(odd, tmp_path / "odd")


def test_extension_types_are_not_written(tmp_path: Path) -> None:
    """An extension type in the schema is refused, nested ones too."""
    for kind in (pa.uuid(), pa.list_(pa.uuid()), pa.struct([("a", pa.json_())])):
        with pytest.raises(InputError, match="extension"):
            write_snapshot(
                pd.DataFrame({"a": []}), tmp_path, schema=pa.schema([("a", kind)])
            )


def test_a_folder_with_other_files_is_left_alone(
    tmp_path: Path, made: SimpleNamespace
) -> None:
    """No snapshot is begun among files that are not ours."""
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(SnapshotError, match=r"notes\.txt"):
        write_snapshot(to_frame(made.failures([])), tmp_path)
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_an_address_is_not_a_path(made: SimpleNamespace) -> None:
    """What pyarrow does not know is refused by name instead of becoming a local folder called ftp:."""
    with pytest.raises(InputError, match="s3://bucket/prefix"):
        write_snapshot(to_frame(made.failures([])), "ftp://bucket/snapshot")


def test_a_file_that_cannot_be_begun_is_closed(tmp_path: Path) -> None:
    """Although the caller keeps the error's traceback."""

    def full(step: str) -> None:
        if step == "write":
            raise OSError(errno.ENOSPC, "no space left on device")

    def open_files() -> int:
        return len(list(Path("/dev/fd").iterdir()))

    before = open_files()
    with pytest.raises(OSError, match="no space") as caught:
        Part(
            SnapshotStore(tmp_path, step=full),
            "part-0.parquet",
            LABELS_EXPLODED,
            "frame",
            group_bytes=1,
        )
    assert open_files() == before
    assert caught.tb is not None


def test_row_groups_are_bounded_and_the_manifest_counts(tmp_path: Path) -> None:
    """More rows than fit a group become several groups of one file, with the counts the manifest says."""
    rows = [{"dlq_id": str(number), "label": "x" * 1000} for number in range(80_000)]
    write_snapshot(frame_from_rows(rows, LABELS_EXPLODED), tmp_path)
    (path,) = tmp_path.glob("*.parquet")
    manifest = json.loads((tmp_path / "_manifest.json").read_text())["manifest"]
    found = pq.read_metadata(path)
    # 80 MB in groups of 16 MB
    assert found.num_row_groups == 5
    assert manifest["files"][0]["rows"] == found.num_rows == 80_000
    assert manifest["files"][0]["bytes"] == path.stat().st_size


def test_parts_of_a_frame_and_columns_of_ones_own_are_kept(tmp_path: Path) -> None:
    """Subsets, other orders and added columns are read back unchanged; `error` is derived where possible."""
    rows = [
        {"dlq_id": name, "response_body": '{"error": "no user"}', "failed_at": 0}
        for name in "ab"
    ]
    whole = frame_from_rows(rows, FAILURES)
    vectors_of = frame_from_rows(
        [{"namespace": "", "id": "a", "vector": [1, 2]}], vectors(2)
    )
    frames = {
        "whole": whole,
        "columns": whole[["error", "dlq_id", "failed_at"]],
        "reversed": whole[whole.columns[::-1]],
        "rows": whole.head(0),
        "added": whole.assign(
            team=pd.Series(["ö", None], dtype="str"),
            count=pd.Series([2**53 + 1, None], dtype="Int64"),
            share=[0.5, float("nan")],
            late=pd.Series([True, None], dtype="boolean"),
            seen=pd.to_datetime(["2026-03-01T12:00:00.123456789Z", None]),
        ),
        "vectors": vectors_of[["vector", "id"]].assign(again=vectors_of["vector"]),
        "category": whole[["dlq_id"]].astype("category"),
    }
    for name, frame in frames.items():
        before = frame.copy()
        write_snapshot(frame, tmp_path / name)
        found = read_snapshot(tmp_path / name)
        expected = frame.astype("str") if name == "category" else frame
        pd.testing.assert_frame_equal(found, expected.reset_index(drop=True))
        pd.testing.assert_frame_equal(frame, before)
        stored_names = open_snapshot(tmp_path / name).to_arrow().schema.names
        assert ("error" in stored_names) == (name in ("columns", "reversed"))


def test_lists_of_results_are_kept_as_json(tmp_path: Path) -> None:
    """The ids of a finding are a tuple: stored as their JSON, from which they can be read again."""
    rows = [
        {"namespace": "", "id": str(number), "vector": [1.0, number % 2]}
        for number in range(40)
    ]
    findings = tk.audit_vectors(frame_from_rows(rows, vectors(2))).frame
    tk.write_snapshot(findings, tmp_path / "findings")
    stored = tk.read_snapshot(tmp_path / "findings")
    assert [json.loads(ids) for ids in stored["ids"]] == [
        list(ids) for ids in findings["ids"]
    ]
    assert list(stored["finding"]) == list(findings["finding"]) != []
