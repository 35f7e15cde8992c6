"""Each panel in a host as strict as the renderers of VS Code and Colab, and its states.

These programs cannot be installed for tests. So their rules are tested: a module from a blob, no `eval`, no
request, no global name. The panel at the other end is the real one.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

import toolkit as tk
from tests.browser.strict_host import SCHEMES, strict_host
from toolkit.tables.frames import frame_from_rows
from toolkit.tables.schemas import FAILURES

pytestmark = [pytest.mark.browser, pytest.mark.slow]

PANELS = ["filter", "failures", "metadata", "query", "map", "redrive", "watch"]


@pytest.fixture(scope="module")
def failures(sample_service):
    """The failures of the sample. The panel would warn about a load with a limit."""
    return tk.load_failures(sample_service, progress=False)


@pytest.fixture(scope="module")
def vectors(sample_service):
    """The vectors of one namespace."""
    return tk.load_vectors(sample_service, namespace="runbooks", progress=False)


@pytest.fixture
def make(sample_service, failures, vectors, tmp_path):
    """Return a function that makes a panel of real data by its name."""
    calls = {
        "filter": lambda: tk.FailureFilterPanel(sample_service, frame=failures),
        "failures": lambda: tk.FailurePanel(failures, service=sample_service),
        "metadata": lambda: tk.MetadataFilterPanel(
            sample_service, namespace="runbooks", frame=vectors
        ),
        "query": lambda: tk.QueryPanel(sample_service, frame=vectors),
        "map": lambda: tk.VectorMapPanel(vectors, color="topic"),
        "redrive": lambda: tk.RedrivePanel(
            sample_service, failures.head(5), ledger=tmp_path / "ledger.sqlite"
        ),
        "watch": lambda: tk.watch_failures(
            sample_service, tmp_path / "snapshot", every="1h"
        ),
    }
    return lambda name: calls[name]()


def until(host, locator):
    """Send the traits of the panel again until an element is visible."""
    for _ in range(300):
        if locator.count() and locator.first.is_visible():
            return
        host.page.wait_for_timeout(100)
        host.refresh()
    expect(locator.first).to_be_visible()


def show_error(host):
    """Announce an error until it is visible: the end of an earlier call replaces the line of the status."""
    alert = host.frame.get_by_role("alert")
    for _ in range(300):
        host.panel.announce_error("The service did not respond: got no connection.")
        host.refresh()
        host.page.wait_for_timeout(100)
        if alert.count() and alert.first.is_visible():
            return
    expect(alert.first).to_be_visible()


def filter_by_period(host):
    """Choose a period of the filter."""
    host.frame.get_by_role("button", name="7 days").click()
    until(host, host.frame.locator(".tk-code", has_text="since="))
    assert host.panel.value.since is not None


def open_a_group(host):
    """Open the second group of the board."""
    until(host, host.frame.locator(".tk-group").nth(1))
    host.frame.locator(".tk-group").nth(1).click()
    until(host, host.frame.locator(".tk-group[aria-selected=true]"))
    assert len(host.panel.value.groups) == 1


def type_a_filter(host):
    """Type a filter of metadata."""
    host.frame.get_by_label("Filter", exact=True).fill("reviewed = true")
    until(host, host.frame.locator(".tk-code", has_text="reviewed = true"))
    assert host.panel.value == "reviewed = true"


def ask(host):
    """Ask by text, and see hits."""
    host.frame.get_by_label("Text", exact=True).fill("disk is full")
    host.frame.get_by_role("button", name="Ask").click()
    until(host, host.frame.locator(".tk-hits tbody tr"))
    assert len(host.panel.frame()) == host.panel.value.top_k


def paint_and_colour(host):
    """Wait for the points, and colour them by another column."""
    expect(host.frame.locator("canvas[data-painted]")).to_be_visible()
    select = host.frame.get_by_label("Colour by")
    select.select_option(index=2)
    host.page.wait_for_timeout(200)
    host.refresh()
    assert host.sent > 0


def preview(host):
    """See the plan, and plan again."""
    until(host, host.frame.locator(".tk-table[aria-label=Plan] tbody tr"))
    before = host.sent
    host.frame.get_by_role("button", name="Preview").click()
    until(host, host.frame.locator(".tk-table[aria-label=Plan] tbody tr"))
    assert host.sent > before


def stop_watching(host):
    """See groups, and stop."""
    until(host, host.frame.locator(".tk-group"))
    host.frame.get_by_role("button", name="Stop").click()
    until(host, host.frame.get_by_role("button", name="Start"))
    assert not host.panel.running


ACTIONS = dict(
    zip(
        PANELS,
        [
            filter_by_period,
            open_a_group,
            type_a_filter,
            ask,
            paint_and_colour,
            preview,
            stop_watching,
        ],
        strict=True,
    )
)


@pytest.mark.parametrize("name", PANELS)
def test_a_panel_keeps_the_rules_of_strict_hosts(chromium, make, name):
    """It runs from a blob without `eval`, request or global, and an action reaches Python and comes back."""
    panel = make(name)
    try:
        with strict_host(chromium, panel) as host:
            expect(host.frame.locator(".tk-kit")).to_be_visible()
            ACTIONS[name](host)
            assert host.globals == []
            assert host.wrong == []
            outside = [
                url for url in host.requested if not re.match("blob:|data:", url)
            ]
            assert outside == []
            assert host.frame.get_by_role("alert").count() == 0
    finally:
        panel.close()


def test_the_strict_host_is_strict(chromium, make):
    """A module that calls `eval`, asks the network and leaves a global is seen to do so."""
    panel = make("filter")
    panel._esm = """export default { render({ el }) {
      el.className = "tk-kit"; el.textContent = "shown"; window.leftBehind = 1;
      fetch("http://127.0.0.1:9/x").catch(() => {});
      try { new Function("return 1")(); } catch {}
    } }"""
    with strict_host(chromium, panel) as host:
        expect(host.frame.get_by_text("shown")).to_be_visible()
        for _ in range(100):
            if len(host.wrong) >= 2 and host.globals is not None:
                break
            host.page.wait_for_timeout(20)
        assert sorted(host.wrong) == ["wrong: connect-src", "wrong: script-src"]
        assert host.globals == ["leftBehind"]


def empty(name, service, vectors, folder):
    """Return a panel without rows."""
    none = frame_from_rows([], FAILURES)
    calls = {
        "filter": lambda: tk.FailureFilterPanel(none),
        "failures": lambda: tk.FailurePanel(none),
        "metadata": lambda: tk.MetadataFilterPanel(vectors.head(0)),
        "query": lambda: tk.QueryPanel(service),
        "map": lambda: tk.VectorMapPanel(vectors.head(0)),
        "redrive": lambda: tk.RedrivePanel(service, none, ledger=folder / "l.sqlite"),
    }
    return calls[name]()


EMPTY = {
    "filter": "0 of 0 loaded failures match",
    "failures": "No failures: nothing is in the queue, or the frame has no rows.",
    "metadata": "0 of 0 loaded vectors match",
    "query": "No hits yet: fill one of the fields above, then press Ask.",
    "map": "No usable vectors: 0 vectors.",
    "redrive": "Nothing to do.",
}


NOTHING = {scheme: [] for scheme in SCHEMES}


def wrong_in_each_scheme(host, state):
    """Return the violations in a light and in a dark theme, and keep a picture of each."""
    found = {}
    for scheme in SCHEMES:
        host.switch_theme(scheme)
        found[scheme] = host.violations()
        keep(host, f"{scheme}-{state}")
    return found


@pytest.mark.parametrize("name", PANELS)
def test_axe_finds_nothing_in_any_state(
    chromium, make, sample_service, vectors, tmp_path, name
):
    """axe-core finds nothing in a panel after its action, with an error, and without rows."""
    panel = make(name)
    try:
        with strict_host(chromium, panel, policy=None) as host:
            ACTIONS[name](host)
            assert wrong_in_each_scheme(host, f"{name}-acted") == NOTHING
            show_error(host)
            assert wrong_in_each_scheme(host, f"{name}-error") == NOTHING
    finally:
        panel.close()
    if name == "watch":  # it reads a queue
        return
    panel = empty(name, sample_service, vectors, tmp_path)
    with strict_host(chromium, panel, policy=None) as host:
        until(host, host.frame.get_by_text(EMPTY[name]))
        assert wrong_in_each_scheme(host, f"{name}-empty") == NOTHING


@pytest.mark.parametrize("name", PANELS)
def test_nothing_moves_for_those_who_want_no_motion(chromium, make, name):
    """A panel has no animation or transition while it loads, acts or fails, if the page asks for none."""
    panel = make(name)
    try:
        with strict_host(chromium, panel, policy=None, reduced_motion="reduce") as host:
            moving = "() => document.getAnimations().length"
            assert host.page.frames[1].evaluate(moving) == 0
            ACTIONS[name](host)
            assert host.page.frames[1].evaluate(moving) == 0
    finally:
        panel.close()


def keep(host, name):
    """Keep a picture of the panel if the variable PICTURES names a folder."""
    if folder := os.environ.get("PICTURES"):
        host.frame.locator(".tk-kit").screenshot(path=Path(folder) / f"{name}.png")
