"""The main job: failed runs are in the DLQ and in Parquet with the same id; the report shows the history."""

from __future__ import annotations

import base64
import json
import signal
import subprocess
import sys
from pathlib import Path

import nbformat
import pyarrow.parquet as pq
import pytest

from toolkit.errors import InputError
from toolkit_service.demo.run import MARKER, run_demo
from toolkit_service.demo.workflows import WORKFLOWS

pytestmark = pytest.mark.slow

STORY = """
from pathlib import Path
import toolkit as tk
service = tk.connect()
failures = tk.load_failures(service, limit=3)
Path("made-by-a-notebook.txt").write_text(str(len(failures)))
"""


@pytest.fixture
def notebooks(tmp_path: Path) -> Path:
    """A folder with a notebook that uses the service, and one that fails."""
    folder = tmp_path / "stories"
    folder.mkdir()
    for name, cell in {
        "1_story": STORY,
        "2_wrong": "raise ValueError('as planned')",
    }.items():
        found = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell)])
        nbformat.write(found, folder / f"{name}.ipynb")
    return folder


def test_somebody_elses_folder_is_left_alone(tmp_path: Path) -> None:
    """A folder with other files is refused and untouched; so are a file, a link, and no runs at all."""
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "notebooks" / "mine.ipynb").write_text("mine")
    with pytest.raises(InputError, match="other files"):
        run_demo(tmp_path)
    assert (tmp_path / "notebooks" / "mine.ipynb").read_text() == "mine"
    assert not (tmp_path / MARKER).exists()
    (tmp_path / "link").symlink_to(tmp_path / "notebooks")
    for path in (tmp_path / "notebooks" / "mine.ipynb", tmp_path / "link"):
        with pytest.raises(InputError, match="not a folder"):
            run_demo(path)
    with pytest.raises(InputError, match="at least 1"):
        run_demo(tmp_path / "new", runs=0)
    assert not (tmp_path / "new").exists()


def test_the_main_job(
    tmp_path: Path, notebooks: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Every failing run is found by its id in Parquet, once; a second run into the same folder works too."""
    out = tmp_path / "out"
    done = run_demo(out, runs=24, notebooks=notebooks)
    assert len(done.started) == 24
    fails = {workflow.name for workflow in WORKFLOWS if workflow.fails}
    assert done.failed == {
        run_id for run_id, name in done.started.items() if name in fails
    }
    rows = pq.read_table(out / "snapshots" / "failures").to_pylist()
    assert len(rows) == 5000 + len(done.failed)
    by_run = {row["workflow_run_id"]: row for row in rows}
    assert set(by_run) >= done.failed
    statuses = {name: set() for name in fails}
    for run_id in done.failed:
        assert by_run[run_id]["workflow_url"].endswith(done.started[run_id])
        statuses[done.started[run_id]].add(by_run[run_id]["response_status"])
    assert statuses["exports/bulk"] == {429}
    assert statuses["reports/render"] == {504}
    assert statuses["accounts/remove"] == {489}
    assert statuses["orders/prices"] == {422, 500}
    binary = [
        row["response_body_base64"]
        for row in rows
        if row["workflow_url"].endswith("/media/thumbnail")
    ]
    assert any(
        body and base64.b64decode(body).startswith(b"\x89PNG") for body in binary
    )
    assert pq.read_table(out / "snapshots" / "vectors").num_rows == 2000
    stories = (out / "failure-report.json").read_text()
    json.loads(stories)
    assert "*/*" not in stories, "the demo's own runs are no incident"
    assert "5,000 failures" in (out / "failure-report.md").read_text()
    assert "<html" in (out / "failure-report.html").read_text()
    assert (out / "made-by-a-notebook.txt").read_text() == "3"
    assert (
        nbformat.read(out / "notebooks" / "1_story.ipynb", as_version=4)
        .cells[0]
        .execution_count
        == 1
    )
    assert done.problems == ("2_wrong.ipynb: cell 1 of 1: ValueError: as planned",)
    output = capfd.readouterr().err
    assert "verified 5 callbacks and " in output

    again = run_demo(out, runs=1)
    assert (len(again.started), again.failed, again.problems) == (1, set(), ())
    assert pq.read_table(out / "snapshots" / "failures").num_rows == 5000
    assert not list((out / "notebooks").iterdir())


@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 130), (signal.SIGKILL, -9)],
)
def test_nothing_is_left_behind_when_interrupted(
    tmp_path: Path, marked, number: signal.Signals, status: int
) -> None:
    """Interrupted, terminated or killed in the middle: service and application end too."""
    child = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "toolkit",
            "demo",
            "--out",
            str(tmp_path / "out"),
            "--runs",
            "24",
        ],
        stderr=subprocess.PIPE,
        env=marked.environment,
        text=True,
    )
    for line in child.stderr:
        if "runs of" in line:
            break
    assert len(marked.processes()) >= 3  # the demo, the service, the application
    child.send_signal(number)
    output = child.communicate(timeout=30)[1]
    assert child.returncode == status, output
    assert "Traceback" not in output
    assert marked.after(15) == []
