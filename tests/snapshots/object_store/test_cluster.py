"""Analyses on a cluster: two workers of Dask read a snapshot in an object store."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dask
import pandas as pd
import pytest
from distributed import Client, LocalCluster, get_worker

import toolkit as tk
from toolkit.errors import SettingsError, SnapshotError
from toolkit.failures.selection import select
from toolkit.snapshots.object_store import open_store
from toolkit.snapshots.syncing import sync_load

BODIES = ("no order 17", "no order 4711", '{"error": "no stock"}', "disk full", None)
NOW = datetime(2026, 3, 2, tzinfo=UTC)


def _set_version(version: str) -> None:
    sys.modules["toolkit.version"].__dict__["__version__"] = version


def _workers(table: Any) -> Any:
    return table.append_column("worker", [[get_worker().id] * table.num_rows])


@pytest.mark.slow
def test_a_cluster_reports_the_same_numbers(
    s3: SimpleNamespace,
    made: SimpleNamespace,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    """Batches are counted by both workers, and the report is that on the snapshot, without a warning."""
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
        dask.config.set({"temporary-directory": str(tmp_path)}),
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            dashboard_address=None,
        ) as cluster,
        Client(cluster) as client,
    ):
        frame = snapshot.to_dask()
        rows = select(frame, ["dlq_id"], doing="counting by worker").then(_workers)
        assert rows.count("worker")["worker"].length() == 2
        found = tk.report_failures(frame, now=NOW).to_dict()
        groups = tk.group_failures(frame)
        other, _ = cluster.scheduler.workers
        client.run(_set_version, "0.0.9", workers=[other])
        for use in (snapshot.to_dask, lambda: tk.group_failures(frame)):
            with pytest.raises(
                SettingsError, match=rf"{other}: version 0\.0\.9;"
            ) as old:
                use()
            assert f"=={tk.__version__}" in str(old.value)
        client.run(_set_version, tk.__version__, workers=[other])
        s3.server.before = lambda *_: 403
        with pytest.raises(
            SnapshotError, match=rf"{other}: .*ACCESS_DENIED.*credentials"
        ):
            snapshot.to_dask()
        s3.server.free()
    assert "aligned" not in capfd.readouterr().err
    assert found == tk.report_failures(snapshot, now=NOW).to_dict()
    pd.testing.assert_frame_equal(groups.frame, tk.group_failures(snapshot).frame)
