"""Executed notebooks as HTML pages without a network: panels are their code and a table."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from playwright.sync_api import expect

from toolkit_service.demo.notebooks import remove_widgets

pytestmark = [pytest.mark.browser, pytest.mark.slow]

CELLS = [
    "import pandas as pd\nimport toolkit as tk\nfrom tqdm.auto import tqdm",
    "when = pd.to_datetime(['2026-03-01 10:00', '2026-03-02 09:00'], utc=True)",
    "failures = pd.DataFrame({'dlq_id': ['first', 'second'], 'failed_at': when, 'created_at': when})",
    "tk.FailureFilterPanel(failures, value=tk.FailureFilter(since='2026-03-02'))",
    "bar = tqdm(total=9)\nbar.update(5)\nbar.close()",
]
DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def executed():
    """A notebook with a panel and a progress bar, saved with the state of its widgets."""
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS]
    )
    NotebookClient(notebook, kernel_name="python3").execute()
    assert "widgets" in notebook.metadata
    return notebook


def options_in_the_docs() -> list[str]:
    """The options of nbconvert that the page on panels names."""
    (option,) = re.findall(
        r'(--NbConvertBase\S+)="(.+?)"', (DOCS / "panels.md").read_text()
    )
    return ["=".join(option)]


@pytest.mark.parametrize("widgets", ["removed", "saved"])
def test_a_page_shows_code_and_rows_without_a_network(
    chromium, executed, tmp_path, widgets
):
    """The page of nbconvert shows code and the chosen row, of a notebook of the demo and by the docs."""
    notebook = nbformat.from_dict(executed)
    if widgets == "removed":
        remove_widgets(notebook)
    nbformat.write(notebook, tmp_path / "story.ipynb")
    options = [] if widgets == "removed" else options_in_the_docs()
    command = [
        sys.executable,
        "-m",
        "nbconvert",
        "--to",
        "html",
        *options,
        "story.ipynb",
    ]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    with chromium.new_context() as context:
        page = context.new_page()
        page.route(re.compile("^https?:"), lambda route: route.abort())
        page.goto((tmp_path / "story.html").as_uri())
        output = page.locator(".jp-OutputArea-output", has_text="FailureFilter(")
        expect(output.locator("pre")).to_be_visible()
        expect(output.get_by_role("cell", name="second")).to_be_visible()
        expect(output.get_by_role("cell", name="first")).to_have_count(0)
        if widgets == "removed":  # its text is the count when it began
            expect(page.get_by_text("0/9")).to_have_count(0)
