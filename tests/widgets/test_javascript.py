"""The JavaScript of the panels: what it computes, and that it asks for nothing from elsewhere."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from toolkit.widgets.page_panel import kit_module

FOLDER = Path(__file__).parents[2] / "toolkit" / "widgets" / "js"
TESTS = Path(__file__).parent / "javascript"
SCRIPTS = Path(__file__).parents[1] / "sdk" / "javascript"
NAMES = [
    "kit.js",
    "form.js",
    "board.js",
    "filter.js",
    "conditions.js",
    "metadata.js",
    "redrive.js",
    "map.js",
    "query.js",
    "watch.js",
]
MODULES = [FOLDER / name for name in NAMES]
NODE = shutil.which("node")


@pytest.mark.skipif(NODE is None, reason="needs Node.js")
def test_what_the_modules_compute():
    """The tests of Node's own runner pass, and none was left out."""
    assert NODE is not None
    run = subprocess.run(
        [NODE, "--test", "--test-reporter=tap", *map(str, TESTS.glob("*.test.mjs"))],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert re.search(r"^# pass 15$", run.stdout, re.MULTILINE), run.stdout


def test_a_panel_is_one_module():
    """The module that is sent to the page imports nothing, and has each part once."""
    module = kit_module("filter")
    assert module.count("export const formPanel") == 1
    assert not re.search(r"^import ", module, re.MULTILINE)
    assert module.count("export const visibleRows") == 1
    assert module.count("export default") == 1


@pytest.mark.slow
def test_the_modules_are_linted_and_formatted():
    """Biome finds nothing to change. `make node_modules` installs it."""
    biome = SCRIPTS / "node_modules" / ".bin" / "biome"
    assert biome.exists(), "The linter is missing. Install it with: make node_modules"
    run = subprocess.run(
        [
            biome,
            "ci",
            f"--config-path={TESTS / 'biome-settings.json'}",
            *MODULES,
            TESTS,
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize("name", NAMES)
def test_modules_need_no_network_and_leave_no_globals(name):
    """No address, no request, nothing on the window."""
    text = (FOLDER / name).read_text("utf-8")
    found = re.findall(
        r"https?://(?!www\.w3\.org/2000/svg)\S+|\bfetch\(|\bimport\(|\b(?:window|globalThis)\.|\beval\(",
        text,
    )
    assert found == []
