"""Similarity queries in a real JupyterLab: by mouse, by keyboard alone, guarded, accessible."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

expect.set_options(timeout=30_000)
pytestmark = [pytest.mark.browser, pytest.mark.slow]

PREPARE = """
import ipywidgets
import toolkit as tk
service = tk.connect()
vectors = tk.load_vectors(service, namespace="runbooks", progress=False)
vectors.attrs = {}
"""
CELLS = [
    PREPARE,
    "clicked = tk.QueryPanel(service, frame=vectors)\nclicked",
    "keyed = tk.QueryPanel(service, value=tk.VectorQuery(data='x', namespace='runbooks'))\nkeyed",
    "'the end'",
]
CLICKED, KEYED, END = 1, 2, 3


@pytest.fixture(scope="module")
def notebook(chromium, lab):
    """A notebook with a panel for the mouse, and one for the keyboard."""
    with lab.open(chromium, "similarity", CELLS) as opened:
        for _ in CELLS:
            opened.run_cell()
        opened.output(END).get_by_text("the end").wait_for()
        yield opened


def commit(field, text):
    """Type into a field and press Enter."""
    field.fill(text)
    field.press("Enter")


@pytest.mark.tour
def test_a_query_a_pin_and_a_follow_up_by_mouse(notebook):
    """A text, options and a filter are the value; a query by a hit; two results side by side."""
    shown = notebook.panel(CLICKED)
    commit(shown.get_by_label("Text", exact=True), "the certificate has expired")
    commit(shown.get_by_label("How many (topK)"), "6")
    shown.get_by_role("checkbox", name="data", exact=True).click()
    shown.get_by_label("Query mode", exact=True).select_option("DENSE")
    notebook.until("clicked.value is not None and clicked.value.query_mode == 'DENSE'")
    assert notebook.evaluate(
        "clicked.value == tk.VectorQuery(data='the certificate has expired', namespace='runbooks', top_k=6,"
        " include_data=True, query_mode='DENSE')"
    )
    assert notebook.evaluate("eval(clicked.to_code()) == clicked.value")
    expect(shown.locator(".tk-code").first).to_have_text(
        notebook.evaluate("clicked.to_code()")
    )
    shown.get_by_role("button", name="Ask", exact=True).click()
    # 6 hits of the query that Enter ran are there before those of this one
    notebook.until("clicked.frame().equals(tk.query(service, clicked.value))")
    assert notebook.evaluate("len(clicked.frame())") == 6
    rows = shown.locator(".tk-hits tbody tr")
    expect(rows).to_have_count(6)
    expect(rows.nth(2)).to_contain_text(
        notebook.evaluate("clicked.frame()['id'].iloc[2]")
    )
    shown.get_by_role("button", name="Pin", exact=True).click()
    expect(shown.get_by_text("Pinned: 6 hits")).to_be_visible()
    second = notebook.evaluate("clicked.frame()['id'].iloc[1]")
    rows.nth(1).locator("td").first.click()
    notebook.until("clicked.frame()['id'].iloc[0] == clicked.pinned()['id'].iloc[1]")
    assert notebook.evaluate(
        "clicked.value.query_mode is None and len(clicked.value.vector) == 256"
    )
    expect(shown.get_by_label("Stored id", exact=True)).to_have_value(second)
    expect(shown.get_by_text("Now: 6 hits")).to_be_visible()
    expect(shown.locator(".tk-hits").nth(1).locator("tbody tr").first).to_contain_text(
        re.compile("▲ 1 up|\\+ new")
    )
    expect(shown.locator(".tk-count")).to_have_text(
        re.compile(r"hits? in both .* new, .* gone")
    )


def test_a_query_and_a_follow_up_by_keyboard_alone(notebook):
    """From the cell's own focus: Tab, typing, arrows and Enter run a query, and another by a hit."""
    press = notebook.page.keyboard.press
    notebook.page.locator(".jp-CodeCell .cm-content").nth(KEYED).click()
    press("Escape")
    notebook.tab_to("Text")
    press("ControlOrMeta+a")
    notebook.page.keyboard.type("the pool has no free connection")
    press("Enter")
    # Enter runs the query
    notebook.until("keyed.value.data.startswith('the pool') and len(keyed.frame())")
    assert notebook.evaluate("keyed.frame().equals(tk.query(service, keyed.value))")
    first = notebook.panel(KEYED).locator(".tk-hits tbody tr").first.locator(".tk-more")
    # the hit's text, though nothing is ticked
    expect(first).to_contain_text("connection")
    assert notebook.evaluate("'include' not in keyed.to_code()")
    notebook.tab_to("metadata")
    press("Space")
    notebook.until("keyed.value.include_metadata")
    notebook.tab_to("Ask")
    press("Enter")
    notebook.until("'metadata' in keyed.frame().columns")
    assert notebook.evaluate("keyed.frame().equals(tk.query(service, keyed.value))")
    expect(notebook.panel(KEYED).locator(".tk-hits tbody tr")).to_have_count(10)
    notebook.tab_to("Query from .*")
    press("ArrowDown")
    press("ArrowDown")
    third = notebook.evaluate("keyed.frame()['id'].iloc[2]")
    # a selection elsewhere on the page does not copy a hit
    notebook.page.evaluate(
        "getSelection().selectAllChildren(document.querySelector('.tk-form-head'))"
    )
    press("Enter")
    notebook.until(f"keyed.frame()['id'].iloc[0] == {third!r}")
    assert notebook.evaluate(
        "keyed.value.data is None and eval(keyed.to_code()) == keyed.value"
    )
    expect(notebook.panel(KEYED).get_by_label(f"Query from {third}")).to_be_focused()
    expect(
        notebook.panel(KEYED).get_by_label("Fusion").locator("option:checked")
    ).to_have_text("the index's own")


def test_hits_of_an_earlier_query_are_called_so_beside_an_error(notebook):
    """The error takes the status line; the heading of the hits says that they are not of this query."""
    shown = notebook.panel(CLICKED)
    hits = shown.locator(".tk-hits caption").last
    expect(hits).not_to_contain_text("earlier")
    before = notebook.evaluate("clicked.value.to_code()")
    commit(shown.get_by_label("Stored id", exact=True), "nope")
    expect(shown.get_by_role("alert").filter(has_text="no such id")).to_be_visible()
    expect(hits).to_have_text(re.compile("^Now: .*; from an earlier query$"))
    notebook.do(f"clicked.value = {before}")
    expect(hits).not_to_contain_text("earlier")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_in_the_way_of_anybody(notebook, scheme):
    """axe-core finds nothing wrong in either theme, wide or narrow, and nothing is wider than its cell."""
    notebook.page.emulate_media(color_scheme=scheme)
    expect(notebook.page.locator("body")).to_have_attribute(
        "data-jp-theme-light", str(scheme == "light").lower()
    )
    for size, width in (("wide", 1400), ("narrow", 700)):
        notebook.page.set_viewport_size({"width": width, "height": 2600})
        for cell in (CLICKED, KEYED):
            shown = notebook.panel(cell)
            shown.scroll_into_view_if_needed()
            if cell == CLICKED:
                notebook.picture(shown, f"similarity-query-{scheme}-{size}")
            assert shown.evaluate("(e) => e.scrollWidth <= e.clientWidth + 1")
        assert notebook.wrong() == []
    notebook.page.set_viewport_size({"width": 1400, "height": 1000})


def test_keys_pressed_in_the_panel_stay_in_it(notebook):
    """In every control that can have the focus, keys leave the notebook's cells alone."""
    notebook.page.locator(".jp-CodeCell .jp-InputPrompt").nth(KEYED).click()
    before = notebook.cells
    controls = notebook.panel(KEYED).locator(
        "input, textarea, select, button:not([tabindex='-1']), [tabindex='0']:not([aria-hidden])"
    )
    assert len(notebook.pressed_in(controls, KEYED, no_enter="Add|Remove")) > 15
    assert notebook.cells == before


def test_the_page_was_silent_and_alone(notebook):
    """All that time: no error in the console, and no request to any other machine."""
    assert notebook.console == []
    assert notebook.hosts == {"127.0.0.1"}
