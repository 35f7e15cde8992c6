"""The metadata filter in a real JupyterLab: by mouse, by keyboard, as text and rows, guarded, accessible."""

from __future__ import annotations

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
CELLS = [
    PREPARE,
    "by_mouse = tk.MetadataFilterPanel(service, namespace='runbooks')\nby_mouse",
    "by_keys = tk.MetadataFilterPanel(service, namespace='runbooks', frame=books)\nby_keys",
]
MOUSE, KEYS = 1, 2


@pytest.fixture(scope="module")
def notebook(chromium, lab):
    """A notebook with a panel for the mouse, and one for the keyboard."""
    with lab.open(chromium, "metadata", CELLS) as opened:
        for _ in CELLS:
            opened.run_cell()
        labelled(opened.panel(KEYS), "Filter").wait_for()
        yield opened


def labelled(shown, label):
    """The control of this label."""
    return shown.get_by_label(label, exact=True)


def find_fields(shown):
    """Press the button that reads vectors, and wait for their fields."""
    shown.get_by_role("button", name="Find fields").click()
    expect(shown.get_by_text("Fields are those of 1,000 vectors")).to_be_visible()


def offered(shown):
    """The options of the open list."""
    return shown.locator(".tk-offers [role=option]")


def choose(shown, label, typed, name):
    """Choose from the list of a field with the mouse, after typing a part of the name."""
    field = labelled(shown, label)
    field.click()
    if typed:
        field.fill(typed)
    offered(shown).get_by_text(name, exact=True).click()
    expect(field).to_have_value(name)


@pytest.mark.tour
def test_a_filter_is_built_by_mouse_and_run(notebook):
    """Fields found, chosen and joined with the mouse; value, code and frame are as clicked."""
    shown = notebook.panel(MOUSE)
    find_fields(shown)
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
    asked = (
        "[by_mouse.value, eval(by_mouse.to_code()), by_mouse._kept.origin.requested]"
    )
    assert notebook.evaluate(asked) == [wanted] * 3
    expect(labelled(shown, "Filter")).to_have_value(wanted)
    expect(shown.locator(".tk-code")).to_have_text(
        notebook.evaluate("by_mouse.to_code()")
    )
    number = notebook.evaluate("len(by_mouse.frame())")
    assert number == notebook.evaluate("len(matching(by_mouse))")
    assert notebook.evaluate("same(by_mouse.frame(), matching(by_mouse))")
    expect(
        shown.get_by_text(f"{number:,} of 1,000 vectors match. panel.frame()")
    ).to_be_visible()


def test_rows_are_joined_and_removed_by_mouse(notebook):
    """AND becomes OR, a row is removed, and the others are renumbered."""
    shown = notebook.panel(MOUSE)
    text = "reviewed = true AND (service.team = 'finance' OR steps[0].minutes >= 20)"
    notebook.do(f"by_mouse.value = {text!r}")
    expect(labelled(shown, "Field 3")).to_have_value("steps[0].minutes")
    labelled(shown, "Group 1").select_option("any of these (OR)")
    notebook.until("by_mouse.value.startswith('reviewed = true OR ')")
    shown.get_by_role("button", name="Remove 1", exact=True).click()
    notebook.until(
        "by_mouse.value == \"service.team = 'finance' OR steps[0].minutes >= 20\""
    )
    expect(labelled(shown, "Field 1")).to_have_value("service.team")
    expect(labelled(shown, "Field 3")).to_have_count(0)
    expect(
        shown.get_by_role("button", name="Add condition", exact=True)
    ).to_be_focused()


def test_a_filter_is_built_by_keyboard_alone_and_run(notebook):
    """From the cell's own focus: Tab, arrows, typing and Enter make a filter in the rows and load it."""
    press, write = notebook.page.keyboard.press, notebook.page.keyboard.type
    shown = notebook.panel(KEYS)
    notebook.page.locator(".jp-CodeCell .cm-content").nth(KEYS).click()
    press("Escape")
    notebook.tab_to("Field 1")
    write("cit")
    expect(offered(shown)).to_have_text(["city"])
    press("ArrowDown")
    press("Enter")
    notebook.until("by_keys.editor.rows.parts[0].field.value == 'city'")
    notebook.tab_to("Operator 1")
    write("!")
    notebook.tab_to("Value 1")
    press("ArrowDown")
    expect(offered(shown).get_by_text("Oslo")).to_be_visible()
    write("Oslo")
    press("Enter")
    notebook.until("by_keys.value == \"city != 'Oslo'\"")
    notebook.page.keyboard.down("Shift")
    notebook.tab_to("Add condition")
    notebook.page.keyboard.up("Shift")
    press("Enter")
    expect(labelled(shown, "Field 2")).to_be_focused()
    write("tags[0]")
    notebook.tab_to("Operator 2")
    write("i")
    notebook.tab_to("Value 2")
    write("eu, us")
    notebook.tab_to("Load")
    press("Enter")
    notebook.until("len(by_keys.frame())")
    assert (
        notebook.evaluate("by_keys.value")
        == "city != 'Oslo' AND tags[0] IN ('eu', 'us')"
    )
    assert notebook.evaluate("same(by_keys.frame(), matching(by_keys))")
    assert notebook.evaluate("eval(by_keys.to_code()) == by_keys.value")


def test_text_and_rows_follow_each_other(notebook):
    """Typed text updates the rows, and a changed row updates the text."""
    shown = notebook.panel(KEYS)
    text = labelled(shown, "Filter")
    text.fill("topic GLOB 'd*' OR (version > 20 AND NOT")
    expect(shown.locator(".tk-note").get_by_text("Next:")).to_be_visible()
    text.fill("topic GLOB 'd*' OR (version > 20 AND service.name = 'ledger')")
    expect(labelled(shown, "Group 2")).to_have_value("all of these (AND)")
    expect(labelled(shown, "Value 3")).to_have_value("ledger")
    labelled(shown, "Operator 2").select_option("<=")
    expect(text).to_have_value(
        "topic GLOB 'd*' OR version <= 20 AND service.name = 'ledger'"
    )
    notebook.until("by_keys.value.count('<=')")
    assert notebook.evaluate("by_keys.editor.value == by_keys.value")
    expect(shown.locator(".tk-code")).to_contain_text("version <= 20")


def test_a_mistake_is_shown_at_its_position(notebook):
    """Text that does not parse is marked at its character and explained, and the old filter stays."""
    shown = notebook.panel(KEYS)
    before = notebook.evaluate("by_keys.value")
    text = labelled(shown, "Filter")
    text.fill("city = 'Oslo' AND version => 3")
    expect(shown.locator(".tk-where mark")).to_have_text(">")
    expect(shown.get_by_role("alert")).to_contain_text("position 27")
    assert notebook.evaluate("by_keys.value") == before
    text.fill("city = ")
    text.press("Enter")
    expect(shown.get_by_role("alert")).to_contain_text("got the end")
    text.fill("")
    expect(shown.get_by_role("alert")).to_have_count(0)
    notebook.until("by_keys.value == ''")


def test_a_filter_is_completed_word_by_word(notebook):
    """Field, operator, value and AND are chosen with arrows and Enter; a name inside the text, too."""
    press, write = notebook.page.keyboard.press, notebook.page.keyboard.type
    shown = notebook.panel(KEYS)
    text, options = labelled(shown, "Filter"), offered(shown)
    text.fill("")
    notebook.until("by_keys.value == ''")
    for typed, wanted in (
        ("serv", "service"),
        (".n", "service.name"),
        ("", "="),
        ("", "'invoices'"),
    ):
        write(typed)
        expect(options.first).to_be_visible()
        expect(options.get_by_text(wanted, exact=True)).to_be_visible()
        while shown.locator("[role=option][aria-selected=true]").all_inner_texts() != [
            wanted
        ]:
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
    """While the kernel is busy, text and Enter are queued, in their order."""
    shown = notebook.panel(KEYS)
    text = labelled(shown, "Filter")
    text.fill("")
    notebook.until("by_keys.value == ''")
    with notebook.busy():
        text.press_sequentially("city = 'Oslo' AND version = 7")
        text.press("Enter")
    notebook.until("by_keys.value == \"city = 'Oslo' AND version = 7\"")
    expect(text).to_have_value("city = 'Oslo' AND version = 7")


# A kernel that is busy does not hold completions back: JupyterLab can send messages of widgets past its cell.
_HOLD = """
from pathlib import Path
from time import sleep
held_field = by_mouse.editor.rows.parts[0].field
complete = held_field._complete
def complete_later(text, head):
    while not Path({released!r}).exists():
        sleep(0.01)
    return complete(text, head)
held_field._complete = complete_later
"""


def test_offers_stay_where_the_pointer_is(notebook, tmp_path):
    """Offers that arrive between pressing and releasing the mouse do not take the click away."""
    released = tmp_path / "released"
    notebook.do("by_mouse.value = 'city = 1'")
    shown = notebook.panel(MOUSE)
    field = labelled(shown, "Field 1")
    expect(field).to_have_value("city")
    field.fill("")
    field.click()
    aimed = offered(shown).get_by_text("steps[0].minutes", exact=True)
    expect(aimed).to_be_visible()
    number = offered(shown).count()
    notebook.do(_HOLD.format(released=str(released)))
    field.press_sequentially("minutes")
    aimed.hover()
    notebook.page.mouse.down()
    released.touch()
    notebook.until(f"len(by_mouse.editor.rows.parts[0].field.offers) < {number}")
    notebook.page.wait_for_timeout(500)  # by now, the page has them, too
    expect(offered(shown)).to_have_count(number)
    notebook.page.mouse.up()
    expect(field).to_have_value("steps[0].minutes")
    notebook.until("by_mouse.editor.rows.parts[0].field.value == 'steps[0].minutes'")
    expect(offered(shown)).to_have_count(0)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_in_the_way_of_anybody(notebook, scheme):
    """axe-core finds nothing wrong in either theme, wide or narrow; nothing is wider than its cell."""
    notebook.page.emulate_media(color_scheme=scheme)
    expect(notebook.page.locator("body")).to_have_attribute(
        "data-jp-theme-light", str(scheme == "light").lower()
    )
    shown = notebook.panel(MOUSE)
    find_fields(shown)
    text = labelled(shown, "Filter")
    for size, width in (("wide", 1400), ("narrow", 700)):
        notebook.page.set_viewport_size({"width": width, "height": 1900})
        shown.scroll_into_view_if_needed()
        assert shown.evaluate("(e) => e.scrollWidth <= e.clientWidth + 1")
        text.fill(
            "reviewed = true AND (city IN ('Oslo', 'Zürich') OR steps[0].minutes => 3)"
        )
        expect(shown.locator(".tk-where")).to_be_visible()
        if size == "narrow":
            notebook.picture(shown, f"metadata-filter-mistake-{scheme}")
        assert notebook.wrong() == []
        text.fill(
            "reviewed = true AND (city IN ('Oslo', 'Zürich') OR steps[0].minutes >= 3)"
        )
        expect(shown.locator(".tk-where")).to_have_count(0)
        expect(labelled(shown, "Value 3")).to_have_value("3")
        notebook.picture(shown, f"metadata-filter-{scheme}-{size}")
        labelled(shown, "Field 2").click()
        expect(offered(shown).get_by_text("service.name")).to_be_visible()
        if size == "narrow":
            notebook.picture(shown, f"metadata-filter-offers-{scheme}")
        assert notebook.wrong() == []
        notebook.page.keyboard.press("Escape")
        expect(offered(shown)).to_have_count(0)
    notebook.page.set_viewport_size({"width": 1400, "height": 1000})


def test_keys_pressed_in_the_panel_stay_in_it(notebook):
    """In every control that can have the focus, keys leave the notebook's cells alone."""
    find_fields(notebook.panel(MOUSE))
    notebook.page.locator(".jp-CodeCell .jp-InputPrompt").nth(MOUSE).click()
    before = notebook.cells
    controls = notebook.output(MOUSE).locator(
        "input, textarea, select, button, summary, [tabindex='0']:not([aria-hidden]):not(pre)"
    )
    # rows would be added and removed
    names = set(notebook.pressed_in(controls, MOUSE, no_enter="Add|Remove"))
    assert names == {"INPUT", "TEXTAREA", "SELECT", "BUTTON", "SUMMARY"}
    # the code is drawn again when the filter changes, so it is tried when nothing changes any more
    code = notebook.output(MOUSE).locator("pre[tabindex='0']")
    expect(code).to_have_count(1)
    assert notebook.pressed_in(code, MOUSE) == ["PRE"]
    assert notebook.cells == before
    assert notebook.wrong() == []


def test_the_page_was_silent_and_alone(notebook):
    """All that time: no error in the console, and no request to any other machine."""
    assert notebook.console == []
    assert notebook.hosts == {"127.0.0.1"}
