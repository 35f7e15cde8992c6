"""Panels in other hosts than JupyterLab: Notebook 7, and marimo."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from playwright.sync_api import expect

from toolkit_service.demo.run import environment_for

expect.set_options(timeout=60_000)
pytestmark = [pytest.mark.browser, pytest.mark.slow]

PREPARE = """
import toolkit as tk
failures = tk.load_failures(tk.connect(), limit=200, progress=False)
"""
PANEL = "panel = tk.FailureFilterPanel(failures)\npanel"
# The other panels: the code that makes one, and the text that it shows.
OTHERS = {
    "failures": ("tk.FailurePanel(failures, service=service)", "Plan a redrive"),
    "metadata": ("tk.MetadataFilterPanel(vectors)", "loaded vectors match"),
    "query": ("tk.QueryPanel(service, frame=vectors)", "No hits yet"),
    "map": ("tk.VectorMapPanel(vectors, color='topic')", "vectors selected"),
    "redrive": ("tk.RedrivePanel(service, failures.head(3))", "3 failures"),
    "watch": ("tk.watch_failures(service, every='1h')", "Stop"),
}
DATA = """
service = tk.connect()
vectors = tk.load_vectors(service, namespace="runbooks", limit=300, progress=False)
"""
APPLICATION = """
import marimo
app = marimo.App()

@app.cell
def _():
    import marimo as mo
    import toolkit as tk
    failures = tk.load_failures(tk.connect(), limit=200, progress=False)
    service = tk.connect()
    vectors = tk.load_vectors(service, namespace="runbooks", limit=300, progress=False)
    return failures, mo, service, tk, vectors

@app.cell
def _(mo):
    chosen, set_chosen = mo.state(None)
    return chosen, set_chosen

@app.cell
def _(failures, mo, set_chosen, tk):
    panel = tk.FailureFilterPanel(failures)
    panel.observe(lambda change: set_chosen(change["new"]), "value")
    mo.ui.anywidget(panel)
    return (panel,)

@app.cell
def _(chosen, mo):
    mo.md(f"another cell has {chosen()}")
    return
"""
ONE_MORE = """
@app.cell
def _(failures, mo, service, tk, vectors):
    mo.ui.anywidget({code})
    return
"""


def choose(page, shown):
    """Choose a period and a label, and return the code that the panel shows then."""
    expect(shown.get_by_text("200 of 200 loaded failures match")).to_be_visible()
    shown.get_by_role("button", name="7 days").click()
    code = shown.locator(".tk-code")
    expect(code).to_contain_text("since=")
    shown.get_by_role("checkbox", name=re.compile(r"^shop \(")).click()
    expect(code).to_contain_text("label=('shop',)")
    shown.get_by_label("Until", exact=True).fill("no time")
    shown.get_by_label("Until", exact=True).press("Enter")
    expect(shown.get_by_role("alert")).to_contain_text("expected a date or time")
    return code.inner_text()


def test_notebook_7_draws_each_panel(chromium, lab):
    """The page of Notebook 7 draws all panels, and a click reaches the kernel."""
    sources = [PREPARE + PANEL, PREPARE + DATA + "others = []"]
    sources += [f"others.append({code})\nothers[-1]" for code, _ in OTHERS.values()]
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    kernel = {"name": "python3", "display_name": "Python 3"}
    written = nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel})
    nbformat.write(written, lab.folder / "seven.ipynb")
    # cells outside of the window are not drawn
    page = chromium.new_page(viewport={"width": 1200, "height": 6000})
    page.goto(f"{lab.url}notebooks/seven.ipynb?token={lab.token}")
    page.locator(".jp-CodeCell .cm-content").first.click()
    # a cell that is run before the kernel is ready is skipped
    ready = page.locator(".jp-Notebook-ExecutionIndicator[data-status='idle']")
    ready.first.wait_for(state="attached", timeout=60_000)
    # the page itself misses settings of JupyterLab while it starts
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.keyboard.press("Shift+Enter")
    shown = page.locator(".jp-OutputArea-output .tk-panel").first
    assert choose(page, shown).startswith("tk.FailureFilter(")
    keep(shown, "notebook-7")
    page.locator(".jp-CodeCell .jp-InputPrompt").nth(1).click()
    for _ in sources[1:]:
        page.keyboard.press("Shift+Enter")
    for number, (_, text) in enumerate(OTHERS.values(), start=2):
        other = page.locator(".jp-CodeCell").nth(number).locator(".tk-panel")
        expect(other.get_by_text(text).first).to_be_visible()
    assert errors == []
    page.close()


def keep(shown, name):
    """Keep a picture if the variable PICTURES names a folder."""
    if folder := os.environ.get("PICTURES"):
        shown.screenshot(path=Path(folder) / f"{name}.png")


@pytest.fixture
def marimo(sample_service, tmp_path) -> Iterator[str]:
    """The address of a marimo application with a panel."""
    application = tmp_path / "application.py"
    others = [ONE_MORE.format(code=code) for code, _ in OTHERS.values()]
    application.write_text(APPLICATION + "".join(others))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    homes = dict.fromkeys(
        ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"), str(tmp_path)
    )
    words = ["--headless", "--no-token", "--host", "127.0.0.1", "--port", str(port)]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "marimo", "run", str(application), *words],
            env=environment_for(sample_service) | homes,
            stdout=log,
            stderr=log,
        )
    try:
        deadline = time.monotonic() + 60
        while not responds(port):
            assert process.poll() is None, (tmp_path / "log").read_text()
            assert time.monotonic() < deadline, "marimo did not start"
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)


def responds(port: int) -> bool:
    """Return whether a server listens on a port of this machine."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except OSError:
        return False
    return True


def test_marimo_draws_each_panel(chromium, marimo):
    """`mo.ui.anywidget` draws all panels, and a click comes back as code, and runs another cell again."""
    page = chromium.new_page(viewport={"width": 1200, "height": 1400})
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(marimo)
    shown = page.locator(".tk-kit").first
    assert choose(page, shown).startswith("tk.FailureFilter(")
    expect(page.get_by_text("another cell has FailureFilter(")).to_be_visible()
    keep(shown, "marimo")
    for number, (_, text) in enumerate(OTHERS.values(), start=1):
        other = page.locator(".tk-kit").nth(number)
        expect(other.get_by_text(text).first).to_be_visible()
    assert errors == []
    page.close()
