"""The metadata filter in a real JupyterLab: by mouse, by keyboard, as text and rows, guarded, accessible."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect

expect.set_options(timeout=30_000)
pytestmark = [pytest.mark.browser, pytest.mark.slow]

PREPARE = """
import toolkit as tk
service = tk.connect()
only = {"include_vectors": False, "include_data": False, "progress": False}
books = tk.load_vectors(service, namespace="runbooks", **only)
def same(one, other):
    one, other = (frame.sort_values("id", ignore_index=True) for frame in (one, other))
    return len(one) > 0 and one.equals(other)
def matching(panel):
    return books[tk.match_metadata(books, panel.value)]
"""
TYPED = """
from unittest.mock import patch
with patch("toolkit.widgets.panel.has_javascript", return_value=False):
    plain = tk.MetadataFilterWidget(service, namespace="runbooks", frame=books)
plain
"""
CELLS = [
    PREPARE,
    "by_mouse = tk.MetadataFilterWidget(service, namespace='runbooks')\nby_mouse",
    "by_keys = tk.MetadataFilterWidget(service, namespace='runbooks', frame=books)\nby_keys",
    TYPED,
]
MOUSE, KEYS, PLAIN = 1, 2, 3


@pytest.fixture(scope="module")
def notebook(chromium, lab):
    """A notebook with a panel for the mouse, one for the keyboard, and one of text alone."""
    with lab.open(chromium, "metadata", CELLS) as opened:
        for _ in CELLS:
            opened.run_cell()
        labelled(panel(opened, PLAIN), "Action").wait_for()
        yield opened


def panel(notebook, cell):
    """The panel that a cell shows."""
    return notebook.output(cell).locator(".tk-panel").first


def labelled(shown, label):
    """The control of this label."""
    return shown.get_by_label(label, exact=True)


def tab_to(notebook, name, presses=60):
    """Press Tab until a control of this name has the focus."""
    for _ in range(presses):
        notebook.page.keyboard.press("Tab")
        found = notebook.page.evaluate(
            "(e => e.getAttribute('aria-label') || e.labels?.[0]?.innerText || e.innerText || '')"
            "(document.activeElement)"
        )
        if re.fullmatch(name, found.strip()):
            return
    raise AssertionError(f"Tab does not come to {name}")


def offered(shown):
    """What the open list offers."""
    return shown.locator(".tk-offers [role=option]")


def choose(shown, label, typed, name):
    """Choose from the list of a field with the mouse, after typing a part of the name."""
    field = labelled(shown, label)
    field.click()
    if typed:
        field.fill(typed)
    offered(shown).get_by_text(name, exact=True).click()
    expect(field).to_have_value(name)


def test_a_filter_is_built_by_mouse_and_run(notebook):
    """Fields found, chosen and joined with the mouse; value, code and frame are what was clicked."""
    shown = panel(notebook, MOUSE)
    shown.get_by_role("button", name="Find fields").click()
    expect(shown.get_by_text("Fields are those of 1,000 vectors")).to_be_visible()
    choose(shown, "Field 1", "", "reviewed")
    expect(labelled(shown, "Operator 1").locator("option")).to_have_text(
        ["=", "!=", "HAS FIELD", "HAS NOT FIELD"]
    )
    choose(shown, "Value 1", "", "true")
    notebook.until("by_mouse.value == 'reviewed = true'")
    shown.get_by_role("button", name="Add group", exact=True).click()
    expect(labelled(shown, "Field 2")).to_be_focused()
    expect(labelled(shown, "Group 2")).to_have_value("any of these (OR)")
    choose(shown, "Field 2", "team", "service.team")
    choose(shown, "Value 2", "", "finance")
    shown.get_by_role("button", name="Add condition to group 2").click()
    choose(shown, "Field 3", "minutes", "steps[0].minutes")
    labelled(shown, "Operator 3").select_option(">=")
    labelled(shown, "Value 3").fill("20")
    shown.get_by_role("button", name="Load", exact=True).click()
    wanted = "reviewed = true AND (service.team = 'finance' OR steps[0].minutes >= 20)"
    notebook.until("len(by_mouse.frame())")
    asked = "[by_mouse.value, eval(by_mouse.to_code()), by_mouse._kept.origin.asked]"
    assert notebook.asked(asked) == [wanted] * 3
    expect(labelled(shown, "Filter")).to_have_value(wanted)
    expect(shown.locator(".tk-code")).to_have_text(notebook.asked("by_mouse.to_code()"))
    number = notebook.asked("len(by_mouse.frame())")
    assert number == notebook.asked("len(matching(by_mouse))")
    assert notebook.asked("same(by_mouse.frame(), matching(by_mouse))")
    expect(shown.get_by_text(f"{number:,} of 1,000 vectors match. complete")).to_be_visible()


def test_rows_are_joined_and_removed_by_mouse(notebook):
    """AND becomes OR, a row goes, and what is left has new numbers."""
    shown = panel(notebook, MOUSE)
    labelled(shown, "Group 1").select_option("any of these (OR)")
    notebook.until("by_mouse.value.startswith('reviewed = true OR ')")
    shown.get_by_role("button", name="Remove 1", exact=True).click()
    notebook.until("by_mouse.value == \"service.team = 'finance' OR steps[0].minutes >= 20\"")
    expect(labelled(shown, "Field 1")).to_have_value("service.team")
    expect(labelled(shown, "Field 3")).to_have_count(0)


def test_a_filter_is_built_by_keyboard_alone_and_run(notebook):
    """From the cell's own focus: Tab, arrows, typing and Enter make a filter in the rows and load it."""
    press, write = notebook.page.keyboard.press, notebook.page.keyboard.type
    shown = panel(notebook, KEYS)
    notebook.page.locator(".jp-CodeCell .cm-content").nth(KEYS).click()
    press("Escape")
    tab_to(notebook, "Field 1")
    write("cit")
    expect(offered(shown)).to_have_text(["city"])
    press("ArrowDown")
    press("Enter")
    notebook.until("by_keys.editor.rows.parts[0].field.value == 'city'")
    tab_to(notebook, "Operator 1")
    write("!")
    tab_to(notebook, "Value 1")
    press("ArrowDown")
    expect(offered(shown).get_by_text("Oslo")).to_be_visible()
    write("Oslo")
    press("Enter")
    notebook.until("by_keys.value == \"city != 'Oslo'\"")
    notebook.page.keyboard.down("Shift")
    tab_to(notebook, "Add condition")
    notebook.page.keyboard.up("Shift")
    press("Enter")
    expect(labelled(shown, "Field 2")).to_be_focused()
    write("tags[0]")
    tab_to(notebook, "Operator 2")
    write("i")
    tab_to(notebook, "Value 2")
    write("eu, us")
    tab_to(notebook, "Load")
    press("Enter")
    notebook.until("len(by_keys.frame())")
    assert notebook.asked("by_keys.value") == "city != 'Oslo' AND tags[0] IN ('eu', 'us')"
    assert notebook.asked("same(by_keys.frame(), matching(by_keys))")
    assert notebook.asked("eval(by_keys.to_code()) == by_keys.value")


def test_text_and_rows_follow_each_other(notebook):
    """A text that is typed is rows at once; a row that is changed is the text at once."""
    shown = panel(notebook, KEYS)
    text = labelled(shown, "Filter")
    text.fill("topic GLOB 'd*' OR (version > 20 AND NOT")
    expect(shown.locator(".tk-note").get_by_text("Next:")).to_be_visible()
    text.fill("topic GLOB 'd*' OR (version > 20 AND service.name = 'ledger')")
    expect(labelled(shown, "Group 2")).to_have_value("all of these (AND)")
    expect(labelled(shown, "Value 3")).to_have_value("ledger")
    labelled(shown, "Operator 2").select_option("<=")
    expect(text).to_have_value("topic GLOB 'd*' OR version <= 20 AND service.name = 'ledger'")
    notebook.until("by_keys.value.count('<=')")
    assert notebook.asked("by_keys.editor.value == by_keys.value")
    expect(shown.locator(".tk-code")).to_contain_text("version <= 20")


def test_a_mistake_is_shown_at_its_place(notebook):
    """What cannot be parsed is marked at its character and explained, and the old filter stays."""
    shown = panel(notebook, KEYS)
    before = notebook.asked("by_keys.value")
    text = labelled(shown, "Filter")
    text.fill("city = 'Oslo' AND version => 3")
    expect(shown.locator(".tk-where mark")).to_have_text(">")
    expect(shown.get_by_role("alert")).to_contain_text("position 27")
    assert notebook.asked("by_keys.value") == before
    text.fill("city = ")
    text.press("Enter")
    expect(shown.get_by_role("alert")).to_contain_text("got the end")
    text.fill("")
    expect(shown.get_by_role("alert")).to_have_count(0)
    notebook.until("by_keys.value == ''")


def test_a_filter_is_completed_word_by_word(notebook):
    """Field, operator, value and AND are chosen with arrows and Enter; a name inside the text, too."""
    press, write = notebook.page.keyboard.press, notebook.page.keyboard.type
    shown = panel(notebook, KEYS)
    text, options = labelled(shown, "Filter"), offered(shown)
    text.fill("")
    notebook.until("by_keys.value == ''")
    for typed, wanted in (("serv", "service"), (".n", "service.name"), ("", "="), ("", "'invoices'")):
        write(typed)
        expect(options.first).to_be_visible()
        expect(options.get_by_text(wanted, exact=True)).to_be_visible()
        while shown.locator("[role=option][aria-selected=true]").all_inner_texts() != [wanted]:
            press("ArrowDown")
        press("Enter")
        if wanted == "service":
            press("Backspace")
    notebook.until("by_keys.value == \"service.name = 'invoices'\"")
    press("Escape")
    expect(options).to_have_count(0)
    press("Home")
    write("ver")
    expect(options).to_have_text(["version"])
    press("ArrowDown")
    press("Enter")
    expect(text).to_have_value("version = 'invoices'")


def test_a_quick_enter_loses_no_letter(notebook):
    """While the kernel is busy, text and Enter wait, and come in their order."""
    shown = panel(notebook, KEYS)
    text = labelled(shown, "Filter")
    text.fill("")
    notebook.until("by_keys.value == ''")
    notebook.kernel.execute("import time; time.sleep(0.5)", silent=True)
    text.press_sequentially("city = 'Oslo' AND version = 7")
    text.press("Enter")
    notebook.kernel.get_shell_msg(timeout=60)
    notebook.until("by_keys.value == \"city = 'Oslo' AND version = 7\"")
    expect(text).to_have_value("city = 'Oslo' AND version = 7")


def test_without_javascript_a_filter_is_typed(notebook):
    """Where anywidget is missing, the text is typed, and the action by its name."""
    shown = panel(notebook, PLAIN)
    labelled(shown, "Filter").fill("tags CONTAINS 'network' AND reviewed = false")
    labelled(shown, "Action").fill("load")
    labelled(shown, "Action").press("Enter")
    notebook.until("len(plain.frame())")
    assert notebook.asked("plain.value") == "tags CONTAINS 'network' AND reviewed = false"
    assert notebook.asked("same(plain.frame(), matching(plain))")


def wrong(notebook):
    """What axe-core finds wrong in the panels, each rule with its first place."""
    return [(found["id"], found["nodes"][0]["html"]) for found in notebook.axe(".tk-panel")]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_in_the_way_of_anybody(notebook, scheme):
    """axe-core finds nothing wrong in either theme, wide or narrow; nothing is wider than its cell."""
    notebook.page.emulate_media(color_scheme=scheme)
    expect(notebook.page.locator("body")).to_have_attribute(
        "data-jp-theme-light", str(scheme == "light").lower()
    )
    shown = panel(notebook, MOUSE)
    text = labelled(shown, "Filter")
    for size, width in (("wide", 1400), ("narrow", 700)):
        notebook.page.set_viewport_size({"width": width, "height": 1900})
        for cell in (MOUSE, PLAIN):
            looked_at = panel(notebook, cell)
            looked_at.scroll_into_view_if_needed()
            assert looked_at.evaluate("(e) => e.scrollWidth <= e.clientWidth + 1")
        if (scheme, size) == ("light", "wide"):
            notebook.picture(looked_at, "metadata-filter-without-javascript")
        text.fill("reviewed = true AND (city IN ('Oslo', 'Zürich') OR steps[0].minutes => 3)")
        expect(shown.locator(".tk-where")).to_be_visible()
        if size == "narrow":
            notebook.picture(shown, f"metadata-filter-mistake-{scheme}")
        assert wrong(notebook) == []
        text.fill("reviewed = true AND (city IN ('Oslo', 'Zürich') OR steps[0].minutes >= 3)")
        expect(shown.locator(".tk-where")).to_have_count(0)
        expect(labelled(shown, "Value 3")).to_have_value("3")
        notebook.picture(shown, f"metadata-filter-{scheme}-{size}")
        labelled(shown, "Field 2").click()
        expect(offered(shown).get_by_text("service.name")).to_be_visible()
        if size == "narrow":
            notebook.picture(shown, f"metadata-filter-offers-{scheme}")
        assert wrong(notebook) == []
    notebook.page.set_viewport_size({"width": 1400, "height": 1000})


def active(notebook):
    """The number of the notebook's active cell."""
    return notebook.page.evaluate(
        "[...document.querySelectorAll('.jp-Notebook .jp-Cell')]"
        ".findIndex((cell) => cell.classList.contains('jp-mod-active'))"
    )


@pytest.mark.parametrize("cell", [MOUSE, PLAIN])
def test_keys_pressed_in_the_panel_stay_in_it(notebook, cell):
    """In every control that can have the focus, keys leave the notebook's cells alone."""
    notebook.page.locator(".jp-CodeCell .jp-InputPrompt").nth(cell).click()
    before = notebook.cells
    controls = notebook.output(cell).locator(
        "input, textarea, select, button, summary, [tabindex='0']:not([aria-hidden])"
    )
    names = set()
    for control in controls.all():
        if not control.is_visible():
            continue
        names.add(control.evaluate("(e) => e.tagName"))
        for keys in (("Escape", "d", "d"), ("a", "b", "x"), ("ArrowDown", "ArrowUp", "m")):
            control.focus()
            for key in keys:
                notebook.page.keyboard.press(key)
            assert active(notebook) == cell
        if not re.match("Add|Remove", control.inner_text()):  # rows would come and go
            notebook.page.keyboard.press("Enter")
        notebook.page.keyboard.press("Tab")  # may go on to the next cell, and changes nothing
    assert names == ({"INPUT", "TEXTAREA", "SELECT", "BUTTON", "SUMMARY"} if cell == MOUSE else {"INPUT"})
    assert notebook.cells == before
    assert wrong(notebook) == []


def test_the_page_was_silent_and_alone(notebook):
    """All that time: no error in the console, and no request to any other machine."""
    assert notebook.console == []
    hosts = {
        urlsplit(url.removeprefix("blob:")).hostname
        for url in notebook.requested
        if not url.startswith("data:")
    }
    assert hosts == {"127.0.0.1"}
