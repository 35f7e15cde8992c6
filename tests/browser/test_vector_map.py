"""A map of 50,000 vectors in a real JupyterLab: drawn quickly, by mouse, by keyboard alone, accessible."""

from __future__ import annotations

import re
import time

import pytest
from playwright.sync_api import expect

expect.set_options(timeout=30_000)
pytestmark = [pytest.mark.browser, pytest.mark.slow]

PREPARE = """
import numpy as np
import pandas as pd
import toolkit as tk
rng = np.random.default_rng(0)
topic = rng.integers(0, 10, 50_000)
matrix = (3 * rng.normal(size=(10, 16)) * np.linspace(1, 0.3, 16))[topic] + rng.normal(size=(50_000, 16))
many = tk.project_vectors(matrix)
many.frame["topic"] = "topic " + pd.Series(topic).astype("str")
service = tk.connect()
vectors = tk.load_vectors(service, namespace="runbooks", progress=False)
"""
CELLS = [
    PREPARE,
    "large = tk.VectorMapPanel(many, color='topic')",
    "large",
    "query = tk.QueryPanel(service, frame=vectors)\nquery",
    "linked = tk.VectorMapPanel(vectors, query=query, color='topic')\nlinked",
    "'the end'",
]
LARGE, QUERY, LINKED, END = 2, 3, 4, 5


@pytest.fixture(scope="module")
def notebook(chromium, lab):
    """A notebook with a large map, and one that is linked with a query."""
    with lab.open(chromium, "map", CELLS) as opened:
        for _ in CELLS[:LARGE]:
            opened.run_cell()
        begun = time.perf_counter()
        opened.page.keyboard.press("Shift+Enter")
        canvas = opened.panel(LARGE).locator("canvas")
        canvas.and_(opened.page.locator("[data-painted]")).wait_for()
        whole, drawn = time.perf_counter() - begun, canvas.get_attribute("data-painted")
        print(  # noqa: T201 - a figure
            f"50,000 points: painted after {whole:.2f} s, {drawn} ms of them in the page"
        )
        for _ in CELLS[LARGE + 1 :]:
            opened.run_cell()
        opened.output(END).get_by_text("the end").wait_for()
        yield opened


@pytest.mark.tour
def test_50000_points_are_painted(notebook):
    """All of them; `-s` shows the time from the key that runs the cell to the first painted frame."""
    canvas = notebook.panel(LARGE).locator("canvas")
    expect(canvas).to_have_attribute("data-points", "50000")
    inked = canvas.evaluate(
        "(e) => e.getContext('2d').getImageData(0, 0, e.width, e.height).data"
        ".filter((value, number) => number % 4 === 3 && value).length"
    )
    assert inked > 5_000


def test_values_differ_by_shape_too(notebook):
    """The key shows each value in its own shape; points have them once they are large enough."""
    panel = notebook.panel(LARGE)
    paths = "(all) => all.map((swatch) => getComputedStyle(swatch).clipPath)"
    shapes = panel.locator(".tk-map-key i").evaluate_all(paths)
    assert len(shapes) == 9
    assert len(set(shapes[:8])) == 8
    canvas = panel.locator("canvas")
    expect(canvas).to_have_attribute("data-shapes", "false")
    for _ in range(5):
        panel.get_by_role("button", name="Zoom in").click()
    expect(canvas).to_have_attribute("data-shapes", "true")
    panel.get_by_role("button", name="Show all").click()
    expect(notebook.panel(LINKED).locator("canvas")).to_have_attribute(
        "data-shapes", "true"
    )


def drag(notebook, canvas, corners):
    """Move the pressed pointer along corners, given as shares of the canvas."""
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    places = [
        (box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in corners
    ]
    notebook.page.mouse.move(*places[0])
    notebook.page.mouse.down()
    for place in places[1:]:
        notebook.page.mouse.move(*place, steps=6)
    notebook.page.mouse.up()


def test_a_lasso_by_mouse_is_a_frame(notebook):
    """Around the left half: the rows there, their number on the page, the code; then nothing again."""
    shown = notebook.panel(LARGE)
    shown.get_by_role("button", name="Lasso").click()
    canvas = shown.locator("canvas")
    drag(notebook, canvas, [(0.5, 0.01), (0.01, 0.01), (0.01, 0.99), (0.5, 0.99)])
    notebook.until("len(large.selection) > 1000")
    # the middle of the page is the middle of the extremes
    assert notebook.evaluate(
        "abs(large.selected['x'].max() - (many.frame['x'].min() + many.frame['x'].max()) / 2)"
        " < 0.02 * np.ptp(many.frame['x'])"
    )
    assert notebook.evaluate(
        "large.selected.equals(many.frame[many.frame['id'].isin(large.selection)])"
    )
    chosen = notebook.evaluate("len(large.selection)")
    expect(shown.locator(".tk-count")).to_contain_text(
        f"{chosen:,} of 50,000 vectors selected"
    )
    expect(shown.locator(".tk-code").first).to_contain_text(
        "many.frame[many.frame['id'].isin(["
    )
    shown.get_by_role("button", name="Clear selection").click()
    notebook.until("large.value == ()")
    shown.get_by_role("button", name="Lasso").click()
    before = canvas.get_attribute("data-view")
    drag(notebook, canvas, [(0.5, 0.5), (0.6, 0.6)])
    expect(canvas).not_to_have_attribute("data-view", before)  # moved
    notebook.page.mouse.wheel(0, -300)
    # and zoomed
    expect(canvas).not_to_have_attribute(
        "data-view", re.compile(f"{before.split()[3]}$")
    )
    shown.get_by_role("button", name="Show all").click()
    expect(canvas).to_have_attribute("data-view", before)
    assert notebook.evaluate("large.value == ()")


def test_a_point_is_read_by_mouse_and_queried_from(notebook):
    """Hovering shows its text; a click queries by it in the linked panel, whose hits are marked."""
    shown = notebook.panel(LINKED)
    canvas = shown.locator("canvas")
    canvas.scroll_into_view_if_needed()
    x, y, across, up = map(float, canvas.get_attribute("data-view").split())
    position = notebook.evaluate("int((linked.projection.frame['x'] ** 2).argmax())")
    at = notebook.evaluate(
        f"linked.projection.frame[['x', 'y']].iloc[{position}].tolist()"
    )
    box = canvas.bounding_box()
    place = (
        box["x"] + box["width"] / 2 + (at[0] - x) * across,
        box["y"] + box["height"] / 2 - (at[1] - y) * up,
    )
    notebook.page.mouse.move(*place)
    identity = notebook.evaluate(f"linked.projection.frame['id'].iloc[{position}]")
    expect(shown.locator(".tk-map-tip")).to_contain_text(identity)
    expect(shown.locator(".tk-map-tip")).to_contain_text("topic: ")
    notebook.page.mouse.click(*place)
    notebook.until("len(linked.hits) == 10")
    assert notebook.evaluate("query.frame()['id'].iloc[0]") == identity
    expect(shown.get_by_text("10 of 10 hits are on the map.")).to_be_visible()
    shown.get_by_label("Colour by").select_option("score of the query")
    notebook.until("linked.scaled")


def test_everything_by_keyboard_alone(notebook):
    """The filter instead of the lasso; the map is moved and zoomed, and a point chosen, by keys."""
    press = notebook.page.keyboard.press
    notebook.page.locator(".jp-CodeCell .cm-content").nth(LINKED).click()
    press("Escape")
    notebook.tab_to("Filter")
    notebook.page.keyboard.type("city = 'Izmir'")
    notebook.until("len(linked.selection) > 0")
    assert notebook.evaluate(
        "linked.selection == vectors['id'][tk.match_metadata(vectors, \"city = 'Izmir'\")].tolist()"
    )
    press("Escape")
    notebook.page.locator(".jp-CodeCell .cm-content").nth(LINKED).click()
    press("Escape")
    notebook.tab_to(r"[\d,]+ vectors.*Enter chooses the point in the middle\.")
    canvas = notebook.panel(LINKED).locator("canvas")
    before = canvas.get_attribute("data-view")
    for key in ("ArrowRight", "ArrowUp", "+", "+"):
        press(key)
    expect(canvas).not_to_have_attribute("data-view", before)
    said = notebook.panel(LINKED).locator(".tk-map-said")
    expect(said).to_contain_text("runbook-")
    identity = said.inner_text().partition(" ")[0]
    press("Enter")
    notebook.until(f"query.frame()['id'].head(1).tolist() == [{identity!r}]")
    press("0")
    expect(canvas).to_have_attribute("data-view", before)
    press("Escape")
    notebook.until("linked.value == ()")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_in_the_way_of_anybody(notebook, scheme):
    """axe-core finds nothing wrong in either theme, wide or narrow, and nothing is wider than its cell."""
    notebook.page.emulate_media(color_scheme=scheme)
    expect(notebook.page.locator("body")).to_have_attribute(
        "data-jp-theme-light", str(scheme == "light").lower()
    )
    for size, width in (("wide", 1400), ("narrow", 700)):
        notebook.page.set_viewport_size({"width": width, "height": 1600})
        for cell, name in ((LARGE, "large"), (LINKED, "linked")):
            shown = notebook.panel(cell)
            shown.scroll_into_view_if_needed()
            notebook.page.wait_for_timeout(200)
            notebook.picture(shown, f"vector-map-{name}-{scheme}-{size}")
            assert shown.evaluate("(e) => e.scrollWidth <= e.clientWidth + 1")
        assert notebook.wrong() == []
    notebook.page.set_viewport_size({"width": 1400, "height": 1000})


def test_keys_pressed_in_the_panel_stay_in_it(notebook):
    """In every control that can have the focus, keys leave the notebook's cells alone."""
    notebook.page.locator(".jp-CodeCell .jp-InputPrompt").nth(LARGE).click()
    before = notebook.cells
    controls = notebook.panel(LARGE).locator(
        "input, textarea, select, button:not([tabindex='-1']), canvas"
    )
    assert len(notebook.pressed_in(controls, LARGE)) >= 6
    assert notebook.cells == before


def test_the_page_was_silent_and_alone(notebook):
    """All that time: no error in the console, and no request to any other machine."""
    assert notebook.console == []
    assert notebook.hosts == {"127.0.0.1"}
