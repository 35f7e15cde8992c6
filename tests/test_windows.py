"""The reading job on a system without what only POSIX has, in a process of its own, against a real service.

No Windows machine runs these tests: what is taken away is what is known to be missing there.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import toolkit as tk

_TESTS = Path(__file__).parent
_START = f"""
import sys
# libraries have their own ways on Windows
import asyncio, ctypes, IPython, ipywidgets, jinja2, matplotlib.pyplot, multiprocessing, pandas
import pyarrow.dataset, pyarrow.parquet, requests, shutil, subprocess, tempfile, tqdm.auto, uvicorn
import matplotlib, matplotlib.backends.backend_agg, matplotlib.backends.backend_svg
matplotlib.use("agg")
sys.path.insert(0, {str(_TESTS)!r})
import windows_like
windows_like.take_away()
import os, signal
assert not hasattr(os, "O_NOFOLLOW") and not hasattr(signal, "SIGKILL")
import toolkit as tk
"""
_READING = """
service = tk.connect()
frame = tk.load_failures(service, progress=False)
assert len(frame) > 100 and tk.get_receipt(frame).complete
assert len(tk.load_failure(service, frame["dlq_id"][0])) == 1
assert len(tk.load_vectors(service, namespace="runbooks", progress=False)) > 0
assert len(tk.load_runs(service, limit=5, progress=False)) > 0
assert len(tk.query_text(service, "connection refused", namespace="runbooks", top_k=3)) == 3
assert len(tk.explode_headers(frame)) > len(frame)
assert set(tk.read_snapshot("given")["dlq_id"]) == set(frame["dlq_id"])
tk.verify_snapshot("given")
assert tk.open_snapshot("given").to_arrow().count_rows() == len(frame)
assert len(tk.load_callbacks([{"status": 200, "body": "b2s="}])) == 1
for plot in ("failure_trend", "failure_matrix", "retries_used", "time_to_failure"):
    getattr(tk.plots, f"plot_{plot}")(frame)
report = tk.report_failures(frame)
for name in ("report.html", "report.md", "report.json"):
    report.save(name)
    assert os.path.getsize(name) > 1000
tk.FailureFilterPanel(service)
print("read", len(frame))
"""
_WRITING = """
service = tk.connect()
for _ in range(2):
    tk.sync_failures(service, "synced", progress=False)
assert len(tk.read_snapshot("synced")) == len(tk.read_snapshot("given"))
tk.write_snapshot(tk.read_snapshot("given"), "copied")
assert tk.read_snapshot("copied")["dlq_id"].equals(tk.read_snapshot("given")["dlq_id"])
from toolkit.snapshots.store import SnapshotStore
with SnapshotStore("copied").locked():
    command = [sys.executable, "-c", START + "tk.write_snapshot(tk.read_snapshot('given'), 'copied')"]
    second = subprocess.run(command, capture_output=True, text=True)
print(second.stderr.strip().splitlines()[-1])
tk.write_snapshot(tk.read_snapshot("given"), "copied")
"""
_SERVING = """
from toolkit.cli import main
print("status", main(["serve", "--port", "0", "--data-dir", "data"]))
"""


@pytest.fixture
def run(sample_service: tk.Service, tmp_path: Path):
    """Run a script where Windows' lacks are, in a folder with a snapshot of this service's failures."""
    tk.write_snapshot(
        tk.load_failures(sample_service, progress=False), tmp_path / "given"
    )
    queue, vector = sample_service.need("queue"), sample_service.need("vector")
    environ = os.environ | {
        "TOOLKIT_QUEUE_URL": queue.url,
        "TOOLKIT_QUEUE_TOKEN": queue.token.reveal(),
        "TOOLKIT_VECTOR_URL": vector.url,
        "TOOLKIT_VECTOR_TOKEN": vector.token.reveal(),
        "PYTHONPATH": str(_TESTS.parent),
    }

    def made(script: str) -> str:
        done = subprocess.run(
            [sys.executable, "-X", "warn_default_encoding", "-c", _START + script],
            cwd=tmp_path,
            env=environ,
            capture_output=True,
            text=True,
            check=False,
            timeout=200,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        assert not re.search("toolkit/.*EncodingWarning", done.stderr), done.stderr
        return done.stdout

    return made


@pytest.mark.slow
def test_the_reading_job_needs_nothing_that_only_posix_has(run):
    """Loads, queries, snapshots, plots, panels and reports, and every file is written as UTF-8."""
    assert run(_READING).startswith("read ")


@pytest.mark.slow
def test_snapshots_are_written_with_the_locks_that_windows_has(run):
    """A sync, a second one and a copy; a second writer is refused while the first one writes."""
    said = run(f"START = {_START!r}\n{_WRITING}")
    assert "SnapshotLockedError" in said
    assert "a lock of process" in said


@pytest.mark.slow
def test_the_embedded_service_says_where_it_runs(run):
    """It needs POSIX, and says so instead of a traceback."""
    assert "Windows Subsystem for Linux" in run(f"sys.stderr = sys.stdout\n{_SERVING}")


@pytest.mark.slow
def test_links_inside_a_snapshot_lead_nowhere_without_folder_handles(run, tmp_path):
    """Where the system has no O_NOFOLLOW, links are looked for: a file and a folder that are links."""
    data = next(path for path in (tmp_path / "given").rglob("*.parquet"))
    away = tmp_path / "elsewhere.parquet"
    data.rename(away)
    data.symlink_to(away)
    said = run(
        "try:\n    tk.read_snapshot('given')\n"
        "except tk.errors.SnapshotDamagedError as error:\n    print(error)"
    )
    assert "a link" in said


def test_posix_names_are_used_only_where_they_are_looked_for():
    """Nothing outside of the embedded service imports a POSIX module when it is imported."""
    sys.path.insert(0, str(_TESTS))
    from windows_like import MODULES  # noqa: PLC0415

    wrong = []
    for path in (_TESTS.parent / "toolkit").rglob("*.py"):
        if path.is_relative_to(_TESTS.parent / "toolkit" / "local"):
            continue
        for node in ast.parse(path.read_text("utf-8")).body:
            names = (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else []
            )
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            wrong += [f"{path.name}: {name}" for name in names if name in MODULES]
    assert wrong == []
