"""A full disk, a snapshot that changes, and odd receipts and checkpoints are named as what they are."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd
import pytest

import toolkit as tk
from toolkit.errors import InputError, SnapshotError
from toolkit.tables.receipt import Receipt, get_receipt
from toolkit.vectors.restoring import _RestoreCheckpoint

FULL = """
import resource, sys
import pandas as pd
from toolkit.errors import ToolkitError
from toolkit.reports.page import print_page
from toolkit.tables.spreadsheets import export_excel

frame = pd.DataFrame({{"text": [f"row {{number}} " * 20 for number in range(5000)]}})
resource.setrlimit(resource.RLIMIT_FSIZE, (16384, 16384))
try:
    {call}
except ToolkitError as error:
    print(error)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "call", ["export_excel(frame, sys.argv[1])", "print_page('<p>' + 'a' * 99999)"]
)
def test_a_full_disk_is_named(call, tmp_path):
    """For the temporary files of workbooks and of PDFs; a file that was there stays."""
    target = tmp_path / "file.xlsx"
    target.write_text("before")
    command = [sys.executable, "-c", FULL.format(call=call), str(target)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=120
    )
    assert "a full disk" in done.stdout, done.stderr
    assert not done.stderr
    assert target.read_text() == "before"


def test_a_snapshot_that_changes_while_it_is_analysed_is_named(tmp_path):
    """A file that a sync replaced after the scan: the error says to scan again."""
    rows = {
        "dlq_id": ["a", "b"],
        "workflow_url": "https://a.example",
        "created_at": datetime(2026, 1, 1, tzinfo=UTC),
    }
    tk.write_snapshot(pd.DataFrame(rows), tmp_path / "snapshot")
    dataset = tk.open_snapshot(tmp_path / "snapshot").to_arrow()
    for path in (tmp_path / "snapshot").rglob("*.parquet"):
        path.unlink()
    with pytest.raises(SnapshotError, match="open_snapshot again"):
        tk.summarize(dataset)


WHOLE = Receipt(
    what="failures", source="http://127.0.0.1", scope={},
    started_at="2026-01-01T00:00:00+00:00", ended_at="2026-01-01T00:00:02+00:00",
).to_dict()  # fmt: skip
ODD = [
    None,
    True,
    -1,
    1.5,
    float("nan"),
    1 << 70,
    "x",
    "\ud800",
    pd.NA,
    range(3),
    [None],
    {1: 2},
    object(),
]


def test_odd_receipts_are_errors_of_the_toolkit():
    """Any value in place of each field, and of the whole."""
    for value in ODD:
        with pytest.raises(InputError):
            Receipt.from_dict(value)
        for name in WHOLE:
            frame = pd.DataFrame({"a": [1]})
            frame.attrs["receipt"] = WHOLE | {name: value}
            try:
                str(get_receipt(frame))
            except InputError as error:
                assert "receipt" in str(error)  # noqa: PT017 - some values fit some fields


@pytest.mark.parametrize("rows", [-1, 11, 1.5, True, "5", None])
def test_a_checkpoint_with_an_impossible_count_is_refused(rows, tmp_path):
    """Rows that the snapshot does not have, or less than none."""
    path = Path(tmp_path, "checkpoint")
    path.write_text(json.dumps({"rows": rows, "binding": "this"}))
    with pytest.raises(InputError, match="0 to 10"):
        _RestoreCheckpoint(path, "this").read(most=10)
