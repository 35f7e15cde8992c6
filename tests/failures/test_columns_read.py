"""Columns that analyses read, and text that they decode: as little as they need."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from toolkit.failures import sources
from toolkit.failures.attribute_values import json_fields
from toolkit.failures.counts import latest_rows
from toolkit.failures.partitions import Step
from toolkit.failures.selection import (
    NONE,
    sample_failures,
    sample_of,
    select_timed,
)
from toolkit.failures.shared_reading import SharedReading
from toolkit.failures.sources import SelectedRows, open_rows
from toolkit.secrets.redaction import Redactor


def failures(count: int) -> pa.Table:
    """Failures of two groups, one per minute."""
    times = pd.date_range("2026-03-01", periods=count, freq="min", tz="UTC")
    return pa.table(
        {
            "dlq_id": [f"{number:05}" for number in range(count)],
            "signature": ["s1", "s2"] * (count // 2),
            "response_body": [f"no order {number}" for number in range(count)],
            "failed_at": pa.array(times),
            "created_at": pa.array(times),
        }
    )


@pytest.mark.parametrize("parts", [(), ("order 9",)])
def test_bodies_are_read_once_for_the_latest_rows(parts: tuple[str, ...]) -> None:
    """The reading that counts minutes has no bodies, unless they divide a group."""
    readings: list[list[str]] = []
    table = failures(600)
    source = open_rows(table)
    assert source is not None

    def batches(names: Sequence[str], step: Step) -> Iterator[pa.Table]:
        readings.append(list(names))
        assert source is not None
        yield from source.batches(names, step)

    rows = select_timed(
        SelectedRows(table.schema, batches),
        ["dlq_id", "signature", "response_body"],
        doing="testing",
    )
    latest = latest_rows(rows, ["signature"], parts, most=5)
    assert ["response_body" in names for names in readings] == [bool(parts), True]
    assert "dlq_id" not in readings[0]
    groups = latest.group_by("signature").aggregate([("dlq_id", "max")])
    assert sorted(groups["dlq_id_max"].to_pylist()) == ["00598", "00599"]


@pytest.mark.parametrize("rows_without_time", [0, 3])
def test_parts_of_files_without_the_latest_rows_are_skipped(
    tmp_path: Path, rows_without_time: int
) -> None:
    """The second reading begins near the latest rows, and returns the same rows as for a table."""
    table = failures(6_000)
    failed = table["failed_at"].to_pylist()
    failed[:rows_without_time] = [None] * rows_without_time
    times = pa.array(failed, table.schema.field("failed_at").type)
    table = table.set_column(3, "failed_at", times)
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=1_000)
    stored = ds.dataset(tmp_path / "rows.parquet")
    columns = ["dlq_id", "signature", "response_body"]
    rows = select_timed(stored, columns, doing="testing")
    recent = rows.skip_before("failed_at", failed[-10])
    assert recent.table().num_rows == 10 + rows_without_time
    expected = select_timed(table, columns, doing="testing")
    assert expected.skip_before("failed_at", failed[-10]) is expected
    of_file, of_table = (
        latest_rows(source, ["signature"], most=5).sort_by("dlq_id")
        for source in (rows, expected)
    )
    assert of_file.equals(of_table)
    assert of_file["dlq_id"].to_pylist()[0] == "05990"


def test_a_shared_reading_leaves_skipped_parts_of_files_to_the_analysis(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bodies of the latest rows are read from one part of a file, also if a report prepares the results."""
    table = failures(6_000)
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=1_000)
    rows_read: list[tuple[bool, int]] = []
    read_batches = sources._dataset_batches

    def counted(
        dataset: ds.Dataset, names: Sequence[str], step: Step, **chosen: Any
    ) -> Iterator[pa.Table]:
        def count(rows: pa.Table) -> pa.Table:
            rows_read.append(("response_body" in names, rows.num_rows))
            return step(rows)

        return read_batches(dataset, names, count, **chosen)

    def latest(rows: Any) -> pa.Table:
        columns = ["dlq_id", "signature", "response_body"]
        selected = select_timed(rows, columns, doing="testing")
        return latest_rows(selected, ["signature"], most=5).sort_by("dlq_id")

    monkeypatch.setattr(sources, "_dataset_batches", counted)
    reading = SharedReading(ds.dataset(tmp_path / "rows.parquet"), doing="testing")
    reading.prepare([latest])
    assert rows_read == [(False, 6_000)]
    assert latest(reading.rows).equals(latest(table))
    with_bodies = [count for has_bodies, count in rows_read if has_bodies]
    assert sum(with_bodies) <= 1_000


def test_a_sample_does_not_count_again() -> None:
    """With a known number of failures, a sample is the one of `sample_failures`."""
    table = failures(6_000)
    sample = sample_of(table, 6_000, 500, None)
    assert sample.equals(sample_failures(table, most=500))


def test_each_text_is_decoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fields of repeated, missing and broken JSON have the values of each row."""
    decoded: list[Any] = []
    decode = msgspec.json.decode

    def counting(text: Any) -> Any:
        decoded.append(text)
        return decode(text)

    monkeypatch.setattr(msgspec.json, "decode", counting)
    texts = [
        '{"region": "eu", "id": 1}',
        None,
        "no JSON",
        '{"region": "us"}',
        "{broken",
    ]
    column = pa.chunked_array([texts * 100, ['{"region": "eu", "id": 1}'] * 50])
    fields = dict(json_fields(column, "header", Redactor()))
    assert len(decoded) == 3
    regions = fields["header region"].tolist()
    assert regions == ["eu", NONE, NONE, "us", NONE] * 100 + ["eu"] * 50
    assert fields["header id"].tolist().count("1") == 150


def test_fields_of_many_values_or_few_rows_are_no_attributes() -> None:
    """A field with an own value in each row is an id; a field of one row in a hundred is too rare."""
    texts = [f'{{"id": {number}, "plan": "team"}}' for number in range(200)]
    texts[7] = '{"id": 7, "plan": "team", "rare": "yes"}'
    fields = dict(json_fields(pa.chunked_array([texts]), "body", Redactor()))
    assert list(fields) == ["body plan"]
