"""The documentation: its code runs, and its reference names everything that is public."""

from __future__ import annotations

import ast
import re
import runpy
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from docutils import nodes
from docutils.utils import new_document

import toolkit as tk
from toolkit.tables import schemas
from toolkit_service.demo.local_service import LocalService
from toolkit_service.demo.run import connected, environment_for

DOCS = Path(__file__).parents[2] / "docs"
DRAWINGS = DOCS / "pictures" / "drawings.py"
NAMED_FILE = re.compile(
    r"(?<![\w/.:-])((?:\w+/)+[\w.-]*\w\.(?:py|pyi|js|yaml|sh|ipynb|md))\b"
)
"""A path within the repository, for example ``tests/docs/test_pages.py``."""
RUN = sorted(page for page in DOCS.glob("*.md") if "```python" in page.read_text())


def test_the_reference_names_every_public_name_once():
    """A name that was added without its place in the reference, or that is gone, is noticed here."""
    named = Counter(
        re.findall(r"^   (\w+)$", (DOCS / "api.md").read_text(), re.MULTILINE)
    )
    modules = {"analysis", "errors", "plots", "results"}
    public = {*tk.__all__} - {"__version__", *modules}
    public |= {*tk.analysis.__all__, *tk.plots.__all__, *tk.results.__all__}
    assert named == dict.fromkeys(public, 1)


@pytest.fixture(scope="module")
def sample():
    """An embedded service with the sample history, for all pages of a worker."""
    with LocalService(sample=True) as local:
        yield connected(local)


@pytest.fixture
def environment(sample):
    """The variables of the service. The namespaces that a page adds are deleted after it."""
    own = set(tk.list_namespaces(sample))
    yield environment_for(sample)
    for namespace in set(tk.list_namespaces(sample)) - own:
        tk.delete_namespace(sample, namespace, confirm=True)


@pytest.fixture(scope="module")
def processes():
    """Processes for pages, which need not import everything again."""
    with runpy.run_path(str(DOCS / "run_pages.py"))["PageProcesses"]() as started:
        yield started


@pytest.mark.slow
@pytest.mark.parametrize("page", RUN, ids=lambda page: page.stem)
def test_the_code_of_a_page_runs_and_prints_what_it_shows(page, environment, processes):
    """Block after block, as its reader would, on a service with the sample history."""
    status, printed = processes.run(page, environment)
    assert status == 0, printed


@pytest.mark.slow
def test_the_pytest_fixture_of_the_page_works(tmp_path):
    """Both files of the page, in a folder of their own: the test passes, and the service ends."""
    page = (DOCS / "local-service.md").read_text()
    for name in ("conftest.py", "test_application.py"):
        [block] = re.findall(rf"```python\n(# {name}\n.*?)```", page, re.DOTALL)
        (tmp_path / name).write_text(block)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", tmp_path],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "1 passed" in done.stdout, f"{done.stdout}{done.stderr}"


def test_there_are_few_pages():
    """A reader can look at all titles: at most 25 pages, without those that contributors read."""
    pages = {page.name for page in DOCS.glob("*.md")}
    assert len(pages - {"benchmarks.md", "dependencies.md"}) <= 25


def test_files_and_tests_that_a_page_names_exist():
    """A file that was moved or renamed, or a test in a command that does not run, is noticed here."""
    root = DOCS.parent
    names = ("README", "CONTRIBUTING", "SECURITY", "ARCHITECTURE")
    pages = [*DOCS.glob("*.md"), *(root / f"{name}.md" for name in names)]
    folders = (root, DOCS, root / "toolkit", root / "toolkit" / "widgets")
    tests = {
        name
        for file in (root / "tests").rglob("test_*.py")
        for name in re.findall(r"def (test_\w+)\(", file.read_text("utf-8"))
    }
    named, missing = 0, set()
    for page in pages:
        text = page.read_text("utf-8")
        for path in NAMED_FILE.findall(text):
            named += 1
            if not any((folder / path).exists() for folder in folders):
                missing.add(f"{page.name}: {path}")
        for test in re.findall(r"`(test_\w+)`", text):
            named += 1
            if test not in tests:
                missing.add(f"{page.name}: {test}")
    assert missing == set()
    assert named > 100


def test_every_column_of_failures_has_a_row_in_the_table():
    """A column that was added without its place in the page is noticed here."""
    page = (DOCS / "columns.md").read_text()
    table = page[page.index("## Failures") : page.index("## Runs")]
    named = set(
        re.findall(
            r"`(\w+)`", "".join(re.findall(r"^\| (.*?) \|", table, re.MULTILINE))
        )
    )
    assert {*schemas.FAILURES.names, schemas.ERROR} <= named


def test_every_error_has_a_row_in_the_table():
    """A class of errors that was added without advice is noticed here."""
    page = (DOCS / "errors.md").read_text()
    errors = {name for name in tk.errors.__all__ if name.endswith(("Error", "Warning"))}
    bases = {"ToolkitError", "ServiceError", "ProtocolError", "SnapshotError"}
    assert {name for name in errors - bases if f"`{name}`" not in page} == set()


def test_every_plot_of_the_reference_is_drawn():
    """Each public function that plots is among the drawings, and each picture of a panel is there."""
    drawn = {
        match[1]
        for match in re.finditer(
            r'^        "(plot_\w+)', DRAWINGS.read_text(), re.MULTILINE
        )
    }
    assert drawn == {*tk.plots.__all__}
    panels = re.search(
        r"PANELS = (\{.*?\n\})", (DOCS / "conf.py").read_text(), re.DOTALL
    )
    for stem in ast.literal_eval(panels[1]).values():
        for theme in ("light", "dark"):
            assert (DOCS / "pictures" / f"{stem.format(theme)}.png").exists()


def test_a_picture_of_a_page_follows_the_theme():
    """A picture that exists light and dark is shown in both themes, and another one as it is."""
    page = new_document("page")
    page += nodes.image(uri="pictures/report-light.png")
    page += nodes.image(uri="pictures/failure-groups-light.png")
    runpy.run_path(str(DOCS / "conf.py"))["follow_theme"](None, page)
    shown = [
        (picture["uri"], picture["classes"]) for picture in page.findall(nodes.image)
    ]
    assert shown == [
        ("pictures/report-light.png", ["only-light"]),
        ("pictures/report-dark.png", ["only-dark"]),
        ("pictures/failure-groups-light.png", []),
    ]
