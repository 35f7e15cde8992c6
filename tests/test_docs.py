"""The documentation: its code runs, and its reference names everything that is public."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import toolkit as tk
from toolkit_service.demo.local_service import LocalService
from toolkit_service.demo.run import environment_for

DOCS = Path(__file__).parent.parent / "docs"
DRAWINGS = DOCS / "pictures" / "drawings.py"
GUIDE = sorted(DOCS.glob("guide/*.md"))


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
def environment():
    """The variables of an embedded service with the sample history."""
    with LocalService(sample=True) as local:
        service = tk.connect(
            queue_url=local.url,
            queue_token=local.token,
            vector_url=next(iter(local.vector_urls.values())),
            vector_token=local.token,
        )
        yield {**environment_for(service), "MPLBACKEND": "agg"}


@pytest.mark.slow
@pytest.mark.parametrize("page", GUIDE, ids=lambda page: page.stem)
def test_the_code_of_a_page_of_the_guide_runs(page, environment, tmp_path):
    """Block after block, as its reader would, on a service with the sample history."""
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    code = "\n".join(blocks).replace('tk.connect("local")', "tk.connect()")
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


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
