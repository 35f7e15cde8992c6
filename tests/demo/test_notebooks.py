"""Notebooks are executed in a process of their own, which never leaves a kernel behind."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import nbformat
import pytest

from toolkit.base.children import running

pytestmark = pytest.mark.slow


def notebook(path: Path, *cells: str) -> Path:
    """A notebook of these code cells, after a cell of text."""
    found = nbformat.v4.new_notebook()
    found.cells = [
        nbformat.v4.new_markdown_cell("# A story"),
        *map(nbformat.v4.new_code_cell, cells),
    ]
    nbformat.write(found, path)
    return path


def executed(source: Path, folder: Path) -> tuple[int, list[dict], str]:
    """Exit status, the lines on standard output, and the log."""
    log = folder / "log"
    arguments = (str(source), str(folder / "done.ipynb"), "--folder", str(folder))
    with running(
        "toolkit_service.demo.notebooks", *arguments, variables=os.environ, log=log
    ) as process:
        lines = [json.loads(line) for line in process.stdout]
        status = process.wait(60)
    return status, lines, log.read_text()


def test_cells_run_in_the_folder_and_are_counted(tmp_path: Path) -> None:
    """Each code cell is reported, outputs are in the written notebook, files are in the working folder."""
    source = notebook(
        tmp_path / "story.ipynb",
        "x = 20 + 1",
        "open('made.txt', 'w').write('here')\nx * 2",
    )
    before = source.read_bytes()
    status, lines, errors = executed(source, tmp_path)
    assert (status, lines) == (0, [{"cells": 1, "of": 2}, {"cells": 2, "of": 2}]), (
        errors
    )
    done = nbformat.read(tmp_path / "done.ipynb", as_version=4)
    assert done.cells[2].outputs[0].data["text/plain"] == "42"
    assert (tmp_path / "made.txt").read_text() == "here"
    assert source.read_bytes() == before


def test_a_failing_cell_is_named_and_the_others_are_kept(tmp_path: Path) -> None:
    """The log names the cell and the error in one line; the notebook up to there is written."""
    source = notebook(tmp_path / "story.ipynb", "'fine'", "1 / 0", "'never'")
    status, _, errors = executed(source, tmp_path)
    assert status == 1
    assert (
        errors.strip().splitlines()[-1]
        == "cell 2 of 3: ZeroDivisionError: division by zero"
    )
    done = nbformat.read(tmp_path / "done.ipynb", as_version=4)
    assert [len(cell.get("outputs", [])) for cell in done.cells] == [0, 1, 1, 0]


@pytest.mark.parametrize("how", ["pipe", signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_no_kernel_is_left_behind(
    tmp_path: Path, marked, how: str | signal.Signals
) -> None:
    """Whether the pipe closes, a signal comes or it is killed: the kernel in mid-cell ends too."""
    source = notebook(tmp_path / "story.ipynb", "1", "import time\ntime.sleep(60)")
    arguments = (str(source), str(tmp_path / "done.ipynb"), "--folder", str(tmp_path))
    environment = marked.environment
    with running(
        "toolkit_service.demo.notebooks",
        *arguments,
        variables=environment,
        log=tmp_path / "log",
    ) as process:
        process.stdout.readline()  # the first cell is done, the second one sleeps
        assert len(marked.processes()) >= 2
        if how == "pipe":
            process.stdin.close()
        else:
            process.send_signal(how)
        process.wait(20)
    assert marked.after(15) == []
