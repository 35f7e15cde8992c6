"""Analyses on a cluster: two workers of Dask read a snapshot in an object store."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from distributed import Client, LocalCluster, get_worker

import toolkit as tk
from toolkit.failures.selection import select
from toolkit.snapshots.object_store import open_store
from toolkit.snapshots.syncing import sync_load

BODIES = ("no order 17", "no order 4711", '{"error": "no stock"}', "disk full", None)
NOW = datetime(2026, 3, 2, tzinfo=UTC)


def _workers(table: Any) -> Any:
    return table.append_column("worker", [[get_worker().id] * table.num_rows])


@pytest.mark.slow
def test_a_cluster_reports_the_same_numbers(
    s3: SimpleNamespace, made: SimpleNamespace
) -> None:
    """Batches are counted by both workers, and the report is that on the snapshot."""
    store = open_store(s3.path, s3.filesystem)
    for day in range(4):
        entries = [
            made.entry(
                f"d{number}",
                response_body=BODIES[number % 5],
                response_status=500 + number % 2,
            )
            for number in range(20 * (day + 1))
        ]
        clock = made.clock(pd.Timestamp(made.start) + pd.Timedelta(days=day))
        sync_load(made.load(entries), store, clock=clock)
    snapshot = tk.open_snapshot(s3.path, filesystem=s3.filesystem)
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None
        ) as cluster,
        Client(cluster),
    ):
        frame = snapshot.to_dask()
        rows = select(frame, ["dlq_id"], doing="counting by worker").then(_workers)
        assert rows.count("worker")["worker"].length() == 2
        found = tk.report_failures(frame, now=NOW).to_dict()
        groups = tk.group_failures(frame)
    assert found == tk.report_failures(snapshot, now=NOW).to_dict()
    pd.testing.assert_frame_equal(groups.frame, tk.group_failures(snapshot).frame)
