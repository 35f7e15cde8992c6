"""The recipe of docs/how-far.md hands a snapshot to a table of Delta Lake."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import toolkit as tk
from toolkit.snapshots.store import SnapshotStore
from toolkit.snapshots.syncing import sync_load

_PAGE = Path(__file__).parents[2] / "docs" / "how-far.md"


def test_a_snapshot_becomes_a_version_of_a_table(
    store: SnapshotStore, made: SimpleNamespace, tmp_path: Path
) -> None:
    """Each copy has the rows of its sync, also after files of the snapshot are replaced."""
    deltalake: Any = pytest.importorskip("deltalake")
    (recipe,) = re.findall(r"```python\n(.*?)```", _PAGE.read_text("utf-8"), re.DOTALL)
    table = tmp_path / "lake"
    recipe = recipe.replace("snapshots/failures", str(store.path), 1)
    recipe = recipe.replace("lake/failures", str(table))
    first = made.entries("a", "b")
    for day, rows in enumerate((first, [*first, *made.entries("c")])):
        clock = made.clock(made.start + timedelta(days=day))
        sync_load(made.load(rows), store, clock=clock)
        exec(recipe, {"tk": tk})  # noqa: S102 - the page is ours
    versions = [
        pa.table(deltalake.DeltaTable(table, version=number).to_pyarrow_table())
        for number in (0, 1)
    ]
    found = [sorted(version["dlq_id"].to_pylist()) for version in versions]
    assert found == [["a", "b"], ["a", "b", "c"]]
    assert versions[1].schema.names == tk.open_snapshot(store.path).schema.names
