"""Slow calls tell which step they are at, in a terminal and in a notebook; a pipe stays quiet."""

from __future__ import annotations

import json
import os
import pty
import re
import socket
import subprocess
import sys
import termios
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

import toolkit as tk
from tests.reports.conftest import failures
from toolkit.errors import InputError
from toolkit.secrets.redaction import Redactor
from toolkit.service.responses import Request, RetryPolicy
from toolkit.service.transport import Transport

SLOW_CALLS = """
import numpy as np, pandas as pd, toolkit as tk, toolkit.base.progress
toolkit.base.progress._BAR_DELAY = 0.0  # a fast machine would be done before a bar is shown
times = pd.date_range("2026-03-01", periods=1500, freq="10min", tz="UTC")
frame = pd.DataFrame({"dlq_id": [f"d{number}" for number in range(1500)], "failed_at": times,
    "created_at": times, "workflow_url": "https://shop.example/pay", "workflow_run_id": None,
    "response_status": 500, "response_body": "late", "response_body_base64": None,
    "failure_function_state": None, "labels": None})
vectors = pd.DataFrame({"id": frame["dlq_id"], "namespace": "", "vector": list(np.eye(1500, 8))})
tk.report_failures(frame, now=times[-1])
tk.explain_spike(frame)
tk.report_index(vectors)
tk.export_excel(frame[["dlq_id", "failed_at"]], "rows.xlsx", progress=PROGRESS)
print("done")
"""
STEPS = (
    "report: grouping 1,500 failures",
    "report: comparing with the time before",
    "report: classifying the groups",
    "report: looking for what 1,500 failures have in common",
    "report: writing the sections",
    "spike: comparing 1,500 failures",
    "index report: auditing vectors",
    "index report: measuring recall",
)


def in_terminal(
    command: list[str], folder: Path, until: str, seconds: float = 400
) -> str:
    """What a command writes to a real terminal, until it writes this."""
    ours, theirs = pty.openpty()
    # a terminal without a width has no room for a bar
    termios.tcsetwinsize(theirs, (30, 120))
    process = subprocess.Popen(
        command,
        cwd=folder,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "COLUMNS": "120"},
    )
    os.close(theirs)
    written, end = b"", time.monotonic() + seconds
    try:
        while until.encode() not in written and time.monotonic() < end:
            written += os.read(ours, 65_536)
    except OSError:  # the terminal is closed when the program ends
        pass
    finally:
        process.terminate()
        process.wait(30)
        os.close(ours)
    return written.decode(errors="replace")


@pytest.mark.slow
def test_a_terminal_shows_each_step_and_a_pipe_nothing(tmp_path: Path) -> None:
    """Of the report, an explanation, an index report and a workbook."""
    code = SLOW_CALLS.replace("PROGRESS", "None")
    shown = in_terminal(
        [sys.executable, "-c", SLOW_CALLS.replace("PROGRESS", "True")], tmp_path, "done"
    )
    assert [step for step in STEPS if step not in shown] == []
    piped = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=400,
    )
    assert (piped.stdout, piped.stderr) == ("done\n", "")


@pytest.mark.slow
def test_serving_the_sample_tells_a_terminal_what_it_does(tmp_path: Path) -> None:
    """Before the address, which comes after some seconds."""
    command = [
        sys.executable,
        "-m",
        "toolkit",
        "serve",
        "--temporary",
        "--port",
        "0",
        "--sample",
    ]
    shown = in_terminal(command, tmp_path, "http://")
    assert "sample history" in shown.partition("http://")[0]


@pytest.mark.slow
def test_a_notebook_shows_each_step(tmp_path: Path) -> None:
    """In the widget of the loaders' bar, which the page draws."""
    code = SLOW_CALLS.replace("PROGRESS", "None")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    messages: list[str] = []

    class Listening(NotebookClient):
        def process_message(self, msg: dict[str, Any], *rest: Any) -> Any:
            messages.append(json.dumps(msg["content"], default=str))
            return super().process_message(msg, *rest)

    Listening(
        notebook, timeout=500, resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    # the bar has spaces as wide as figures
    told = "\n".join(messages).replace("\\u2007", " ")
    assert [step for step in STEPS if step not in told] == []
    # a bar that ends before its total turns red, and stays
    assert '"danger"' not in told


BARS = [
    "import time, toolkit.base.progress as shown",
    "shown._BAR_DELAY = 0.0",
    "bar = shown.ProgressBar(None, title='redrive', unit='rows', total=220)",
    "with bar:",
    "    time.sleep(0.2)  # tqdm draws a bar ten times a second",
    "    bar.add(50)",
]


@pytest.mark.parametrize("ending", ["returns", "raises"])
def test_a_saved_notebook_has_no_bar_that_ended(ending: str) -> None:
    """A finished redrive is not saved below "redrive: 24%"; after an error, the count stays as text."""
    code = "\n".join(BARS)
    if ending == "raises":
        code += "\n    raise ValueError('broken')"
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    NotebookClient(notebook, timeout=100, allow_errors=True).execute()
    shown = [
        output["data"]
        for output in notebook.cells[0]["outputs"]
        if output["output_type"] == "display_data"
    ]
    assert [list(data) for data in shown] == [["text/plain"]]
    text = shown[0]["text/plain"]
    assert ("50/220" in text) == (ending == "raises")
    assert bool(text) == (ending == "raises")


def test_a_callable_gets_each_step() -> None:
    """With its number, how many there are, and its name; a wrong value is an error."""
    frame = failures(
        [{"workflow_url": "https://shop.example/pay", "response_body": "late"}] * 3
    )
    told: list[tuple[int, int, str]] = []
    tk.report_failures(frame, progress=lambda *step: told.append(step))
    assert [number for number, _, _ in told] == list(range(6))
    assert {total for _, total, _ in told} == {6}
    assert told[1][2] == "grouping 3 failures"
    with pytest.raises(InputError, match="progress"):
        tk.report_failures(frame, progress="yes")


def _at_closed_port(**options: Any) -> Transport:
    """Return a transport to a port without a service."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    return Transport(
        f"http://127.0.0.1:{port}",
        redactor=Redactor(),
        policy=RetryPolicy(tries=4, first_delay=0.01),
        **options,
    )


@pytest.mark.parametrize("option", [True, False, None, print])
def test_retries_are_shown_if_progress_is(option, monkeypatch, capfd):
    """Each failed try is named with the reason, and nothing is shown if nobody asked for a bar."""
    monkeypatch.setattr("toolkit.base.progress._BAR_DELAY", 0.0)
    monkeypatch.setattr("toolkit.base.progress._is_interactive", lambda: False)
    request = Request(doing="reading", method="GET", path="/info")
    transport = _at_closed_port(progress=option)
    with transport, pytest.raises(tk.errors.TransportError):
        transport.send(request)
    shown = capfd.readouterr().err
    numbers = re.findall(r"Try (\d) of 4 .*?refused", shown)
    assert numbers == (["1", "2", "3"] if option is True else [])


def test_retries_of_threads_share_one_notice(monkeypatch, capfd):
    """The notice stays until no thread waits, and threads that no load began show nothing."""
    monkeypatch.setattr("toolkit.base.progress._BAR_DELAY", 0.0)
    monkeypatch.setattr("toolkit.base.progress._is_interactive", lambda: True)
    request = Request(doing="reading", method="GET", path="/info")

    def send(transport: Transport) -> None:
        with pytest.raises(tk.errors.TransportError):
            transport.send(request)

    with ThreadPoolExecutor(4) as pool:
        with pool.submit(_at_closed_port).result() as of_panel:
            pool.submit(send, of_panel).result()
        assert not capfd.readouterr().err
        with _at_closed_port() as transport:
            list(pool.map(send, [transport] * 8))
            assert transport._retry_notice._bar is None
    assert "Try 1 of 4" in capfd.readouterr().err


@pytest.mark.usefixtures("no_backoff")
def test_a_load_passes_the_option_on(monkeypatch, capfd, server):
    """For example, `progress=False` shows neither rows nor retries."""
    monkeypatch.setattr("toolkit.base.progress._BAR_DELAY", 0.0)
    server.always(b"{}", status=503)
    for option in (True, False):
        with pytest.raises(tk.errors.ServerError):
            tk.load_vectors(server.service(), progress=option)
        assert ("Try 2 of" in capfd.readouterr().err) == option


_WITHOUT_STREAM = """
import sys, time
from toolkit.base.progress import ProgressBar, ProgressSteps, RetryNotice
if sys.argv[1] == "closed":
    sys.stderr.close()
elif sys.argv[1] == "written":
    sys.stderr = type("Writer", (), {"write": print, "flush": lambda self: None})()
wanted = [None] if sys.argv[1] == "closed" else [None, True]
for option in wanted:
    with ProgressBar(option, title="failures", unit="rows") as bar:
        bar.add(5)
        time.sleep(1.1)
        bar.add(5, retries=2)
    with ProgressSteps(option, title="report", total=2, rows=10**9) as step:
        step("grouping")
        step("writing")
    notice = RetryNotice(option)
    notice.failed("refused", number=1, tries=8, delay=2.0)
    notice.ended()
print("done")
"""


@pytest.mark.parametrize(
    ("stream", "redirection"), [("none", "2>&-"), ("closed", ""), ("written", "")]
)
def test_a_program_needs_no_standard_error(stream: str, redirection: str) -> None:
    """A service without a terminal may have none, a closed one, or an object that only has `write`."""
    command = ["sh", "-c", f'"$0" -c "$1" {stream} {redirection}']
    done = subprocess.run(
        [*command, sys.executable, _WITHOUT_STREAM],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.stdout.endswith("done\n"), done.stderr
