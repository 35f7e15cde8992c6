"""Tables of marimo: bodies are masked in a page that marimo exports."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from toolkit_service.demo.local_service import LocalService
from toolkit_service.demo.run import connected, environment_for

APPLICATION = """
import marimo
app = marimo.App()

@app.cell
def _():
    import pandas as pd
    import toolkit as tk
    service = tk.connect()
    body = {"pass" + "word": "hunter2" + "secret99", "order": "order" + "-seventeen"}
    tk.publish(service, "http://127.0.0.1:9/closed", body=body, retries=0)
    while True:
        failures = tk.load_failures(service, kind="messages", progress=False)
        if len(failures):
            break
    return (failures, pd)

@app.cell
def _(failures):
    SHOWN
    return

@app.cell
def _(pd):
    pd.DataFrame({"mine": ["own" + "-table"]})
    return
"""


@pytest.fixture(scope="module")
def variables():
    """The variables of an embedded service without failures."""
    with LocalService() as local:
        yield environment_for(connected(local))


@pytest.mark.slow
@pytest.mark.parametrize("shown", ["failures", 'failures["body"]'])
def test_an_exported_page_of_marimo_has_no_secret(shown, variables, tmp_path):
    """The table of marimo is drawn, with the body masked. Tables without bodies are drawn as before."""
    application = tmp_path / "application.py"
    application.write_text(APPLICATION.replace("SHOWN", shown))
    page = tmp_path / "page.html"

    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "marimo",
            "-q",
            "export",
            "html",
            application,
            "-o",
            page,
        ],
        env={**os.environ, **variables, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )

    text = page.read_text("utf-8")
    assert "hunter2secret99" not in text, done.stderr
    assert "order-seventeen" in text, done.stderr
    assert "masked len=15" in text
    assert "marimo-table" in text
    assert "own-table" in text


@pytest.mark.slow
def test_a_notebook_that_runs_as_a_script_imports_without_a_warning():
    """Nothing is drawn there, so it is no reason to warn."""
    code = "import marimo, toolkit as tk; tk.load_failures"
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=120)


@pytest.mark.parametrize("package", ["marimo", "IPython"])
def test_a_file_with_the_name_of_a_notebook_is_not_taken_for_it(package, tmp_path):
    """Import the toolkit next to a module of the user that has the name of the package."""
    (tmp_path / f"{package}.py").write_text("answer = 42\n")

    done = subprocess.run(
        [sys.executable, "-c", f"import {package}, toolkit; print({package}.answer)"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("42\n", "")
