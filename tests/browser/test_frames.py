"""Frames in a real JupyterLab: the main columns first, in low rows."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.slow]

PREPARE = """
import tempfile
import toolkit as tk
service = tk.connect()
failures = tk.load_failures(service, progress=False)
folder = tempfile.mkdtemp()
tk.sync_failures(service, folder + "/kept", progress=False)
kept = tk.read_snapshot(folder + "/kept")
"""
CELLS = [PREPARE, "failures", "failures.head()", "kept"]
LONG = ["headers", "body", "response_headers", "response_body"]


@pytest.fixture(scope="module")
def notebook(chromium, lab):
    """A notebook with frames of failures."""
    with lab.open(chromium, "frames", CELLS) as opened:
        for _ in CELLS:
            opened.run_cell()
        opened.output(3).locator("table.dataframe").wait_for()
        yield opened


@pytest.mark.parametrize("cell", [1, 2, 3])
def test_rows_are_of_one_or_two_lines(notebook, cell):
    """Rows are low, the first columns are time, workflow, status and error, and long texts are left out."""
    table = notebook.output(cell).locator("table.dataframe")
    notebook.picture(table, f"frame-{cell}")
    heads = [text.strip() for text in table.locator("thead th").all_inner_texts()]
    assert heads[:6] == [
        "",
        "failed_at",
        "workflow_url",
        "response_status",
        "error",
        "workflow_run_id",
    ]
    assert "..." in heads
    assert not {*LONG} & {*heads}
    heights = [row.bounding_box()["height"] for row in table.locator("tbody tr").all()]
    assert len(heights) >= 5
    assert max(heights) < 50, heights


@pytest.mark.parametrize("cell", [1, 2, 3])
def test_texts_begin_where_they_can_be_seen(notebook, cell):
    """Workflow and error are aligned at the left, below their heads, and the status at the right."""
    table = notebook.output(cell).locator("table.dataframe")
    aligned = "(found) => found.map((cell) => getComputedStyle(cell).textAlign)"
    for row in ("thead tr", "tbody tr:first-child"):
        cells = table.locator(f"{row} > *").evaluate_all(aligned)
        assert cells[2:5] == ["left", "right", "left"]
