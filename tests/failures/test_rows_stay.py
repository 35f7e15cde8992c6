"""Comparisons, expiry and explanations of an engine bring results to the client instead of rows."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dask
import dask.dataframe
import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import toolkit as tk
from toolkit.analysis import find_incidents, norm_bins
from toolkit.errors import InputError
from toolkit.failures import attribute_values, partitions, sources
from toolkit.failures.over_time import failure_trend
from toolkit.failures.run_log import run_deliveries
from toolkit.failures.selection import facts_of
from toolkit.tables.frames import frame_from_rows
from toolkit.tables.receipt import Receipt
from toolkit.tables.schemas import FAILURES
from toolkit.tables.schemas import vectors as vectors_schema

NOW = datetime(2026, 3, 31, tzinfo=UTC)
ROWS = 6_000
BODIES = ("no order {}", "disk full", "quota of tenant {} is used up", "bad token")


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Failures of thirty days with stored signatures; those with bad tokens rose in the last day."""
    random = np.random.default_rng(3)
    rows: list[dict[str, Any]] = []
    for number, minutes in enumerate(random.integers(0, 30 * 24 * 60, ROWS).tolist()):
        kind, age = number % 3, minutes
        if number % 10 == 0:
            kind, age = 3, minutes // 45
        failed = NOW - pd.Timedelta(minutes=age, seconds=number % 60)
        rows.append(
            {
                "dlq_id": f"{number:06}-{random.integers(1 << 40)}",
                "workflow_url": f"https://a.example/{number % 7}",
                "workflow_run_id": f"wfr_{number}",
                "failed_at": None if number % 500 == 1 else failed,
                "created_at": None if number % 1_000 == 1 else failed,
                "response_status": 500 + kind,
                "response_body": BODIES[kind].format(number % 900),
                "labels": '["eu"]' if number % 4 else None,
                "flow_control_key": f"key{number % 5}",
            }
        )
    path = str(tmp_path_factory.mktemp("rows") / "failures")
    tk.write_snapshot(frame_from_rows(rows, FAILURES), path)
    return path


ENGINES: dict[str, Callable[[str], Any]] = {
    "duckdb": lambda path: tk.open_snapshot(path).to_duckdb(),
    "dask": lambda path: tk.open_snapshot(path).to_dask().repartition(npartitions=4),
}
ANALYSES: dict[str, Callable[[Any], pd.DataFrame]] = {
    "find_expiring": lambda rows: tk.find_expiring(rows, "31d", NOW, within="48h"),
    "compare_failures": lambda rows: (
        tk.compare_failures(rows, since="2d", now=NOW, retention="31d").frame
    ),
}
WINDOW = NOW - pd.Timedelta(hours=12), NOW
ANALYSES |= {
    "explain_spike": lambda rows: explained(rows, WINDOW),
    "explain_spike with a baseline": lambda rows: explained(
        rows, WINDOW, (NOW - pd.Timedelta(days=9), NOW - pd.Timedelta(days=1))
    ),
}


def explained(rows: Any, *spans: Any) -> pd.DataFrame:
    """Return the conditions of a rise, and the numbers of the sentence."""
    found = tk.explain_spike(rows, *spans, now=NOW)
    return found.frame.assign(all=found.observed, usual=found.expected)


MOST_BYTES = 100_000
"""Results that arrive from the workers; the columns of all rows take more than 300 kB."""


@pytest.mark.parametrize("engine", ENGINES)
def test_a_search_of_a_large_frame_reads_no_json(
    engine: str, snapshot: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fields of JSON are no attributes of large frames, and one body per group shows what errors mention."""
    limits = replace(attribute_values._TUNING, most_rows=ROWS // 2)
    monkeypatch.setattr(attribute_values, "_TUNING", limits)
    failures = _signed(snapshot)
    frame = ENGINES[engine](snapshot)
    with dask.config.set(scheduler="synchronous"):
        with columns_read(monkeypatch) as names:
            found = tk.explain_spike(frame, now=NOW)
        incidents = find_incidents(frame, now=NOW)
    expected = tk.explain_spike(failures, now=NOW)
    assert found.stands_out
    pd.testing.assert_frame_equal(found.frame, expected.frame)
    assert found.window == expected.window
    pd.testing.assert_frame_equal(incidents, find_incidents(failures, now=NOW))
    assert "signature" in names
    assert not names & {"headers", "body", "response_headers", "extra"}


@contextmanager
def columns_read(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[str]]:
    """Collect the names of the columns that are read as rows."""
    names: set[str] = set()

    def remembering(read: Callable[..., Any]) -> Callable[..., Any]:
        def reading(frame: Any, columns: Any, step: Any) -> Any:
            names.update(columns)
            return read(frame, columns, step)

        return reading

    with monkeypatch.context() as patched:
        patched.setattr(
            sources, "_duckdb_batches", remembering(sources._duckdb_batches)
        )
        patched.setattr(partitions, "batches", remembering(partitions.batches))
        yield names


@contextmanager
def counted_bytes(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Collect the sizes of the results that Dask returns, and let no batch of DuckDB be read."""
    sizes: list[int] = []
    compute = dask.compute

    def counting(*parts: Any, **options: Any) -> Any:
        results = compute(*parts, **options)
        sizes.extend(len(part) for part in results if isinstance(part, bytes))
        return results

    def batches(*_: object) -> None:
        raise AssertionError("rows were read")

    with monkeypatch.context() as patched, dask.config.set(scheduler="synchronous"):
        patched.setattr(dask, "compute", counting)
        patched.setattr(sources, "_duckdb_batches", batches)
        yield sizes


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ANALYSES)
def test_results_arrive_instead_of_rows(
    name: str, engine: str, snapshot: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result is that of pandas, DuckDB reads no batch, and few bytes arrive from Dask."""
    limits = replace(attribute_values._TUNING, most_rows=ROWS // 2)
    monkeypatch.setattr(attribute_values, "_TUNING", limits)
    expected = ANALYSES[name](_signed(snapshot))
    assert 0 < len(expected) < ROWS / 2
    frame = ENGINES[engine](snapshot)
    with counted_bytes(monkeypatch) as sizes:
        found = ANALYSES[name](frame)
    pd.testing.assert_frame_equal(found, expected)
    assert sum(sizes) < MOST_BYTES


def _signed(snapshot: str) -> pd.DataFrame:
    """Return the failures as pandas, with the signatures that `read_snapshot` leaves out."""
    failures = tk.read_snapshot(snapshot).drop(columns="error")
    return tk.group_failures(failures).assign(failures)


def test_failures_that_expired_are_counted_where_the_rows_are(
    snapshot: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every engine counts the entries that left as expired, if they were seen until shortly before."""
    failures = _signed(snapshot)
    expires = failures["failed_at"] + pd.Timedelta(days=31)
    left = failures.index % 3
    frame = failures.assign(
        gone_before=(expires + pd.Timedelta(hours=1)).where(left > 0),
        gone_after=(expires - pd.to_timedelta(left * 20, unit="h")).where(left > 0),
    )
    table = pa.Table.from_pandas(frame, preserve_index=False)
    compare = ANALYSES["compare_failures"]
    expected = compare(frame)
    assert 0 < expected["expired"].sum() < expected["left"].sum()

    frames: Any = dask.dataframe
    others = [
        duckdb.connect().from_arrow(table),
        frames.from_pandas(frame, npartitions=3, sort=False),
        ds.dataset(table),
    ]
    for other in others:
        with counted_bytes(monkeypatch):
            found = compare(other)
        pd.testing.assert_frame_equal(found, expected)


def test_ids_that_occur_twice_are_compared_by_rows(snapshot: str) -> None:
    """An entry on both sides neither left nor was added, which counts by side would not show."""
    failures = _signed(snapshot)
    early = failures.sort_values("failed_at").head(9)
    later = early.assign(failed_at=NOW - pd.Timedelta(hours=1))
    frame = pd.concat([failures, later], ignore_index=True)
    compare = ANALYSES["compare_failures"]
    expected = compare(frame)
    assert expected["added"].sum() == expected["after"].sum() - 9
    found = compare(duckdb.connect().from_arrow(pa.Table.from_pandas(frame)))
    pd.testing.assert_frame_equal(found, expected)


LOADED = NOW - timedelta(days=2)
"""When the first of two loads was made."""


def _stored(failures: pd.DataFrame, folder: Path, loaded: datetime | None) -> str:
    """Write failures as a snapshot, with a receipt if it is known when they were loaded."""
    frame = failures.copy()
    frame.attrs = {}
    if loaded is not None:
        text = loaded.isoformat()
        receipt = Receipt(
            what="failures",
            source="https://a.example",
            scope={},
            started_at=text,
            ended_at=text,
        )
        frame.attrs["receipt"] = receipt.to_dict()
    tk.write_snapshot(frame, folder)

    return str(folder)


def _in_memory(path: str) -> pd.DataFrame:
    """Return the failures of a snapshot as pandas, with the facts and signatures of the files."""
    scanned = tk.open_snapshot(path).to_arrow()
    frame = tk.read_snapshot(path)
    signatures = scanned.to_table(["dlq_id", "signature"]).to_pandas()
    frame = frame.merge(signatures, on="dlq_id", how="left", validate="1:1")
    frame.attrs = dict(facts_of(scanned))

    return frame


def _second_load(failures: pd.DataFrame) -> pd.DataFrame:
    """Entries of the first load that are still there, that failed again, or that left; and new entries."""
    rows = failures.iloc[ROWS // 10 :].reset_index(drop=True)
    number = rows.index.to_numpy()
    failed_again = (number % 11 == 0) & (rows["failed_at"] < LOADED)
    has_left = number % 7 == 0
    expires = rows["failed_at"] + pd.Timedelta(days=31)
    # some were seen until shortly before they expired, others much earlier
    seen = expires - pd.to_timedelta(np.where(number % 2, 1, 60), unit="h")
    failed_at = rows["failed_at"].mask(failed_again, NOW - timedelta(hours=3))

    return rows.assign(
        failed_at=failed_at,
        gone_after=seen.where(has_left),
        gone_before=(expires + pd.Timedelta(hours=2)).where(has_left),
    )


@pytest.fixture(scope="module", params=["receipts", "no receipts"])
def loads(
    request: pytest.FixtureRequest,
    snapshot: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[str, str]:
    """Two loads of a queue; the second one is a snapshot that shows which entries left, and when."""
    failures = tk.read_snapshot(snapshot)
    loaded: tuple[Any, Any] = (LOADED, NOW)
    if request.param == "no receipts":
        loaded = (None, None)
    still_there = pd.Series(pd.NaT, index=failures.index, dtype="datetime64[ms, UTC]")
    failures = failures.assign(gone_after=still_there, gone_before=still_there)
    is_early = ~(failures["failed_at"] > LOADED)
    folder = tmp_path_factory.mktemp("loads")
    # entries without a time are in both loads
    first = _stored(failures[is_early], folder / "first", loaded[0])
    # the words of the first load are known when the second one is written, as in a later sync
    second = shutil.copytree(first, folder / "second")

    return first, _stored(_second_load(failures), second, loaded[1])


COMPARISONS: dict[str, Callable[[Any, Any], tk.results.FailureComparison]] = {
    "with a retention": lambda before, after: tk.compare_failures(
        before, after, retention="31d", now=NOW
    ),
    "with an exposure": lambda before, after: tk.compare_failures(
        before, after, exposure=2, retention="31d"
    ),
}


@pytest.mark.parametrize("engine", [*ENGINES, "snapshot"])
@pytest.mark.parametrize("name", COMPARISONS)
def test_two_loads_are_joined_where_the_rows_are(
    name: str, engine: str, loads: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entries that left, were added, failed again or expired are counted as in pandas."""
    compare = COMPARISONS[name]
    expected = compare(*map(_in_memory, loads))
    assert expected.frame["left"].sum() > 100
    assert expected.frame["added"].sum() > 100
    if name == "with a retention":
        assert 0 < expected.frame["expired"].sum() < expected.frame["left"].sum()

    frames = [ENGINES.get(engine, tk.open_snapshot)(path) for path in loads]
    if engine == "duckdb":
        connection = duckdb.connect()
        frames = [tk.open_snapshot(path).to_duckdb(connection) for path in loads]
    with counted_bytes(monkeypatch) as sizes:
        found = compare(*frames)
    pd.testing.assert_frame_equal(found.frame, expected.frame)
    assert found.notes == expected.notes
    # the columns of the rows of both loads take 520 kB
    assert sum(sizes) < 2 * MOST_BYTES


SPLIT: dict[str, Callable[[Any], tuple[Any, Any]]] = {
    "duckdb": lambda rows: (
        rows.filter(f"failed_at < '{LOADED}'"),
        rows.filter(f"failed_at >= '{LOADED}'"),
    ),
    "dask": lambda rows: (
        rows[rows["failed_at"] < LOADED],
        rows[rows["failed_at"] >= LOADED],
    ),
}


@pytest.mark.parametrize("engine", SPLIT)
def test_two_spans_of_a_frame_are_compared_where_the_rows_are(
    engine: str, snapshot: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts of one frame are spans of one history: no entry has left the queue."""
    expected = tk.compare_failures(*SPLIT["dask"](_in_memory(snapshot)))
    frames = SPLIT[engine](ENGINES[engine](snapshot))
    with counted_bytes(monkeypatch) as sizes:
        found = tk.compare_failures(*frames)
    pd.testing.assert_frame_equal(found.frame, expected.frame)
    assert found.verdict == expected.verdict
    assert sum(sizes) < MOST_BYTES


@pytest.mark.parametrize("engine", SPLIT)
def test_swapped_frames_are_refused(engine: str, snapshot: str) -> None:
    """The error is that of pandas."""
    before, after = SPLIT[engine](ENGINES[engine](snapshot))
    with (
        dask.config.set(scheduler="synchronous"),
        pytest.raises(InputError, match="Swap them"),
    ):
        tk.compare_failures(after, before)


def test_rows_without_an_id_or_with_equal_ids_are_read(
    loads: tuple[str, str],
) -> None:
    """Counts by id would be wrong for them, so that the rows decide as in pandas."""
    before, after = map(_in_memory, loads)
    for position, value in ((3, None), (4, after["dlq_id"][9])):
        ids = after["dlq_id"].astype(object)
        ids[position] = value
        changed = after.assign(dlq_id=ids)
        changed.attrs = after.attrs
        expected = tk.compare_failures(before, changed)
        table = pa.Table.from_pandas(changed, preserve_index=False)
        facts = json.dumps(after.attrs).encode()
        table = table.replace_schema_metadata({b"toolkit": facts})
        found = tk.compare_failures(before, ds.dataset(table))
        pd.testing.assert_frame_equal(found.frame, expected.frame)


def test_deliveries_are_counted_on_the_workers(
    snapshot: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row per day and workflow arrives, and not one per failure."""
    expected = tk.analysis.count_deliveries(tk.read_snapshot(snapshot))
    with counted_bytes(monkeypatch) as sizes:
        found = tk.analysis.count_deliveries(ENGINES["dask"](snapshot))
    pd.testing.assert_frame_equal(found, expected)
    assert sum(sizes) < 10_000


@pytest.mark.parametrize("engine", [*ENGINES, "snapshot"])
def test_outcomes_of_entries_are_computed_on_the_workers(
    engine: str, loads: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What became of an entry arrives, without the columns that decide it."""
    frame = _in_memory(loads[1])
    expected = tk.find_retry_outcomes(frame, retention="31d", retried={}).frame
    # without the knowledge of all retries, nothing counts as deleted
    outcome = expected["outcome"].replace("deleted", "unknown")
    expected = expected.assign(outcome=outcome).sort_values("dlq_id", ignore_index=True)
    assert expected["outcome"].nunique() == 3
    rows = ENGINES.get(engine, tk.open_snapshot)(loads[1])
    with counted_bytes(monkeypatch) as sizes:
        found = tk.find_retry_outcomes(rows, retention="31d").frame
    found = found.sort_values("dlq_id", ignore_index=True)
    pd.testing.assert_frame_equal(found, expected)
    # ids of runs and times of failures are not among the bytes, which would be 176 kB
    assert sum(sizes) < 150_000


def _on_engine(frame: pd.DataFrame, engine: str) -> Any:
    """Return a frame as a DuckDB relation, or as a Dask frame of four partitions."""
    if engine == "duckdb":
        table = pa.Table.from_pandas(frame, preserve_index=False)
        return duckdb.connect().from_arrow(table)
    frames: Any = dask.dataframe
    return frames.from_pandas(frame, npartitions=4, sort=False)


@pytest.mark.parametrize("engine", ENGINES)
def test_starts_of_runs_are_counted_where_the_rows_are(
    engine: str, snapshot: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A number per minute arrives, and runs without a plausible time are in no bin."""
    failures = tk.read_snapshot(snapshot).head(400)
    ages = np.random.default_rng(5).integers(0, 900 * 60_000, 60_000)
    started = NOW - timedelta(days=3) + pd.to_timedelta(ages, unit="ms")
    starts = pd.Series(started).astype("datetime64[ms, UTC]")
    starts[:5], starts[5:9] = pd.NaT, pd.Timestamp("1970-01-02", tz="UTC")
    runs = pd.DataFrame({"created_at": starts})
    expected = failure_trend(failures, runs=runs, now=NOW)
    assert expected.runs is not None
    assert expected.runs.sum() == 60_000 - 9
    others = _on_engine(runs, engine)
    with counted_bytes(monkeypatch) as sizes:
        found = failure_trend(failures, runs=others, now=NOW)
    np.testing.assert_array_equal(found.runs, expected.runs)
    # the times of all runs are 480 kB
    assert sum(sizes) < 50_000


@pytest.mark.parametrize("engine", ENGINES)
def test_events_of_one_run_arrive_of_a_large_log(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ids of the runs are counted where the rows are. Steps of other runs name no message of this run."""
    number = np.arange(40_000)
    run, message = (pd.Series(number // size).astype("str") for size in (400, 4))
    states = np.array(["CREATED", "ACTIVE", "ERROR", "DELIVERED"])[number % 4]
    events = pd.DataFrame(
        {
            "time": NOW + pd.to_timedelta(number, unit="s"),
            "message_id": "m" + message,
            "state": states,
            "workflow_run_id": "r" + run,
        }
    )
    steps = events.drop_duplicates("message_id").assign(
        step_name="step " + message, position=number[::4]
    )
    steps.loc[steps.index[:3], "workflow_run_id"] = None
    expected = run_deliveries(events, steps, "r7")
    assert expected.frame["name"].str.startswith("step 7").all()
    assert len(expected.frame) == 100

    logs = [_on_engine(frame, engine) for frame in (events, steps)]
    sizes: list[int] = []
    if engine == "dask":
        with counted_bytes(monkeypatch) as sizes:
            found = run_deliveries(*logs, "r7")
    else:
        found = run_deliveries(*logs, "r7")
    pd.testing.assert_frame_equal(found.frame, expected.frame)
    assert found.begin == expected.begin
    # the log and the steps are more than 2 MB
    assert sum(sizes) < MOST_BYTES


@pytest.fixture(scope="module")
def vectors(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A snapshot of vectors of 24 numbers in two namespaces, some without numbers."""
    numbers = np.random.default_rng(7).normal(size=(3_000, 24)).astype("float32")
    rows = [
        {"namespace": f"n{number % 2}", "id": f"v{number}", "vector": vector.tolist()}
        for number, vector in enumerate(numbers)
    ]
    for row in rows[::50]:
        row |= {"vector": None, "vector_problem": "not a list of numbers"}
    path = str(tmp_path_factory.mktemp("vectors") / "snapshot")
    tk.write_snapshot(frame_from_rows(rows, vectors_schema(24)), path)

    return path


@pytest.mark.parametrize("engine", ENGINES)
def test_vectors_are_summed_up_without_their_numbers(
    engine: str, vectors: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of dimensions is in the type of the column."""
    expected = tk.summarize(tk.read_snapshot(vectors)).lines
    lines = dict(expected)
    assert lines["rows"] == "3,000 vectors in 2 namespaces"
    assert lines["not usable"].startswith("60;")
    rows = ENGINES[engine](vectors)
    with counted_bytes(monkeypatch) as sizes:
        found = dict(tk.summarize(rows).lines)
    names = ["rows", "dimension", "not usable"]
    assert [found[name] for name in names] == [lines[name] for name in names]
    assert sum(sizes) < 10_000


@pytest.mark.parametrize("engine", ENGINES)
def test_lengths_of_vectors_are_measured_on_the_workers(
    engine: str, vectors: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A number per vector arrives, instead of 24."""
    expected = norm_bins(tk.read_snapshot(vectors))
    assert expected.left_out == 60
    rows = ENGINES[engine](vectors)
    sizes: list[int] = []
    if engine == "dask":
        with counted_bytes(monkeypatch) as sizes:
            found = norm_bins(rows)
    else:
        found = norm_bins(rows)
    np.testing.assert_array_equal(found.counts, expected.counts)
    np.testing.assert_allclose(found.edges, expected.edges)
    assert found.left_out == expected.left_out
    # the vectors are 288 kB
    assert sum(sizes) < 50_000
