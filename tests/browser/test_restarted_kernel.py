"""A panel whose kernel was restarted, in a real JupyterLab: it says so, and keeps its form."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

expect.set_options(timeout=60_000)
pytestmark = [pytest.mark.browser, pytest.mark.slow]

CELLS = [
    "import toolkit as tk\nfailures = tk.load_failures(tk.connect(), limit=500, progress=False)",
    "panel = tk.FailureFilterPanel(failures)\npanel",
]
PLACES = "(e) => [...e.querySelectorAll('.tk-control')].map((c) => Math.round(c.getBoundingClientRect().x))"
ICONS = """(e) => [...e.querySelectorAll('.jupyter-widgets-disconnected')]
  .filter((part) => getComputedStyle(part, '::before').display !== 'none').length"""
SAID = "(e) => getComputedStyle(e, '::before').content"


def test_a_panel_without_a_kernel_says_so(chromium, lab):
    """It is dimmed, says what to do, takes no clicks and keeps its form; run again, it works."""
    with lab.open(chromium, "restarted", CELLS) as notebook:
        for _ in CELLS:
            notebook.run_cell()
        shown = notebook.panel(1)
        shown.get_by_role("button", name="7 days").wait_for()
        places = shown.evaluate(PLACES)
        assert len(set(places)) > 1  # several columns
        assert shown.evaluate(SAID) == "none"
        prompts = notebook.page.locator(".jp-Notebook .jp-Cell .jp-InputPrompt")
        prompts.first.click()
        notebook.page.keyboard.press("0")
        notebook.page.keyboard.press("0")
        notebook.page.locator(".jp-Dialog").get_by_role(
            "button", name="Confirm"
        ).click()
        expect(shown).to_have_class(re.compile("jupyter-widgets-disconnected"))
        assert "run this cell again" in shown.evaluate(SAID)
        assert shown.evaluate(ICONS) == 0
        assert shown.evaluate(PLACES) == places
        load = shown.get_by_role("button", name="Apply")
        assert load.evaluate("(e) => getComputedStyle(e).pointerEvents") == "none"
        notebook.picture(shown, "restarted")
        notebook.page.locator("#jp-main-statusbar >> text=/Idle/").first.wait_for()
        prompts.first.click()
        for _ in CELLS:
            notebook.page.keyboard.press("Shift+Enter")
        expect(shown).not_to_have_class(re.compile("jupyter-widgets-disconnected"))
        assert shown.evaluate(SAID) == "none"
