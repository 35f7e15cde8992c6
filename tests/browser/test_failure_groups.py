"""Groups in the failure browser in a real JupyterLab: by mouse, by keyboard, guarded, accessible."""

from __future__ import annotations

import io

import pytest
from matplotlib import image
from playwright.sync_api import expect

expect.set_options(timeout=30_000)
pytestmark = [pytest.mark.browser, pytest.mark.slow]

PREPARE = """
import tempfile
import toolkit as tk
failures = tk.load_failures(tk.connect(), progress=False)
path = tempfile.mkdtemp() + "/rules.txt"
"""
CELLS = [
    PREPARE,
    "mouse = tk.FailurePanel(failures)\nmouse",
    "keys = tk.FailurePanel(failures, rules=path)\nkeys",
    "tk.plots.plot_retries_used(failures);",
]
MOUSE, KEYS, PLOT = 1, 2, 3


@pytest.fixture(scope="module", params=["light", "dark"])
def notebook(chromium, lab, request):
    """A browser for the mouse and one for the keyboard, whose groups have been read."""
    options = {
        "color_scheme": request.param,
        "viewport": {"width": 1400, "height": 1900},
    }
    with lab.open(chromium, f"groups-{request.param}", CELLS, **options) as opened:
        for _ in CELLS:
            opened.run_cell()
        for cell in (MOUSE, KEYS):
            opened.panel(cell).locator(".tk-group").first.wait_for()
        opened.scheme = request.param
        yield opened


def groups(notebook, cell):
    """The rows of the groups."""
    return (
        notebook.panel(cell).get_by_role("listbox", name="Groups").get_by_role("option")
    )


def edit_groups(shown):
    """Unfold the buttons that change groups, if they are folded."""
    shown.locator(".tk-rules").evaluate("(details) => { details.open = true; }")


def test_the_longest_state_does_not_cover_the_title(notebook):
    """The state "Back again" is wider than the states of the sample; the title begins to the right of it."""
    row = groups(notebook, MOUSE).first
    chip = row.locator(".tk-chip")
    state = chip.text_content()
    chip.evaluate("(chip) => { chip.textContent = 'Back again'; }")
    shown, title = chip.bounding_box(), row.locator(".tk-title").bounding_box()
    chip.evaluate("(chip, state) => { chip.textContent = state; }", state)
    assert shown["x"] + shown["width"] <= title["x"]


@pytest.mark.tour
def test_a_group_and_a_bar_filter_the_table(notebook):
    """By mouse: a click opens a group, a click on a bar chooses its time, the same click all times again."""
    shown = notebook.panel(MOUSE)
    groups(notebook, MOUSE).nth(2).click()
    assert notebook.until("list(mouse.value.groups)") == [
        notebook.evaluate("mouse.board['groups'][2]['id']")
    ]
    count = notebook.evaluate("mouse.board['groups'][2]['count']")
    expect(shown.get_by_role("heading", level=3)).to_have_text(
        notebook.evaluate("mouse.board['groups'][2]['title']")
    )
    expect(shown.locator(".tk-count")).to_contain_text(f"{count:,} of 5,000 failures")
    tall = notebook.evaluate(
        "max(range(len(mouse.trend['counts'])), key=mouse.trend['counts'].__getitem__)"
    )
    bins = notebook.evaluate("len(mouse.trend['counts'])")

    def bar(number):
        trend = shown.locator(".tk-brush svg")
        trend.scroll_into_view_if_needed()
        area = trend.bounding_box()
        return area["x"] + (number + 0.5) * area["width"] / bins, area["y"] + area[
            "height"
        ] / 2

    notebook.page.mouse.click(*bar(tall))
    notebook.until("mouse.value.since is not None")
    counts = notebook.evaluate("mouse.trend['counts']")
    # the value changes a moment before the rows are found
    notebook.until(f"len(mouse.found()) == {counts[tall]}")
    assert notebook.evaluate("set(mouse.found().dlq_id) <= set(failures.dlq_id)")
    expect(shown.locator(".tk-count")).to_contain_text(
        f"{counts[tall]:,} of 5,000 failures"
    )
    notebook.picture(shown, f"failure-groups-{notebook.scheme}")
    notebook.page.mouse.click(*bar(tall))
    notebook.until("mouse.value.since is None")
    expect(shown.locator(".tk-count")).to_contain_text(f"{count:,} of 5,000 failures")
    notebook.page.mouse.move(*bar(tall - 1))
    notebook.page.mouse.down()
    notebook.page.mouse.move(*bar(tall), steps=3)
    notebook.page.mouse.move(*bar(tall + 1), steps=3)
    notebook.page.mouse.up()
    notebook.until("mouse.value.since is not None")
    notebook.until(f"len(mouse.found()) == {sum(counts[tall - 1 : tall + 2])}")
    shown.get_by_role("button", name="All groups").click()
    notebook.until("mouse.value.groups == ()")


def test_groups_are_merged_split_and_taken_back_by_keyboard(notebook):
    """Space ticks, Enter presses: the rules file has the lines, and makes the same groups again."""
    shown = notebook.panel(KEYS)
    shown.get_by_role("listbox", name="Groups").focus()
    for number in (0, 1):
        notebook.page.keyboard.press("ArrowDown")
        notebook.page.keyboard.press("Space")
        notebook.until(f"len(keys.value.groups) == {number + 1}")
    shown.get_by_text("Edit groups").focus()
    notebook.page.keyboard.press("Enter")
    first, second = notebook.evaluate(
        "[group for group in keys.groups().frame.group if group in keys.value.groups]"
    )
    shown.get_by_role("button", name="Merge groups").focus()
    notebook.page.keyboard.press("Enter")
    notebook.until("len(keys.value.groups) == 1")
    assert (
        notebook.evaluate("open(path).read().splitlines()[0]")
        == f"merge {second} into {first}"
    )
    expect(shown.locator("pre.tk-code")).to_contain_text("rules='")
    assert notebook.evaluate(
        "'tk.group_failures(failures, rules=' in keys.rules_code()"
    )
    before = notebook.evaluate("len(keys.groups().frame)")
    shown.get_by_label("Split by", exact=True).focus()
    column = notebook.evaluate(
        "next(name for name in keys._grouping.columns if failures[name].notna().iloc[keys._active]"
        " and not keys._grouping.shared_by_all(keys._active, name))"
    )
    notebook.page.keyboard.type(column)
    shown.get_by_role("button", name="Split off this").focus()
    notebook.page.keyboard.press("Enter")
    notebook.until(
        f"len(keys.groups().frame) >= {before} and 'split' in open(path).read()"
    )
    assert notebook.evaluate(
        "tk.group_failures(failures, rules=path).frame.equals(keys.groups().frame)"
    )
    shown.get_by_role("button", name="Undo").focus()
    notebook.page.keyboard.press("Enter")
    notebook.until("'split' not in open(path).read()")


def test_the_trend_is_moved_by_keyboard(notebook):
    """Arrows move the ends of the range, which say their times; Escape shows all times."""
    shown = notebook.panel(KEYS)
    start = shown.get_by_role("slider", name="Time range from")
    start.focus()
    text = start.get_attribute("aria-valuetext")
    notebook.page.keyboard.press("PageUp")
    notebook.until("keys.value.since is not None")
    expect(start).not_to_have_attribute("aria-valuetext", text)
    assert notebook.evaluate(
        "bool((keys.found().failed_at.dropna() >= keys.value.since).all())"
    )
    notebook.page.keyboard.press("Escape")
    notebook.until("keys.value.since is None")


def test_rows_are_named_by_their_groups(notebook):
    """A screen reader hears state, title, place and count of each; the bars are hidden from it."""
    notebook.do("mouse.value = tk.FailureView()")
    first = notebook.evaluate("mouse.board['groups'][0]")
    assert first["state"] == "new"
    row = groups(notebook, MOUSE).first
    expect(row).to_contain_text("New")
    expect(row).to_contain_text(first["title"])
    expect(row).to_contain_text(f"{first['count']:,}")
    assert row.locator("svg[aria-hidden=true]").count() == 1


def test_the_new_group_is_opened_by_keyboard_and_its_failures_looked_at(notebook):
    """Enter opens; buttons go from one failure to the next; Escape shows all groups."""
    shown = notebook.panel(KEYS)
    notebook.do("keys.value = tk.FailureView()")
    shown.get_by_role("listbox", name="Groups").focus()
    notebook.page.keyboard.press("Home")
    notebook.page.keyboard.press("Enter")
    notebook.until("len(keys.value.groups) == 1")
    expect(shown.locator(".tk-tags")).to_contain_text("status 500")
    count = notebook.evaluate("keys.board['groups'][0]['count']")
    expect(shown.locator(".tk-steps")).to_contain_text(f"1 of {count:,}")
    shown.get_by_role("button", name="Next failure").focus()
    notebook.page.keyboard.press("Enter")
    expect(shown.locator(".tk-detail")).to_contain_text(
        notebook.evaluate("keys.found().dlq_id.iloc[1]")
    )
    shown.get_by_role("listbox", name="Groups").focus()
    notebook.page.keyboard.press("Escape")
    notebook.until("keys.value.groups == ()")


def test_a_plot_is_as_dark_as_the_notebook(notebook):
    """The corner of a plot has the color of the page, within a few steps, in both themes."""
    picture = notebook.output(PLOT).locator("img.tk-plot")
    picture.scroll_into_view_if_needed()
    pixels = image.imread(io.BytesIO(picture.screenshot()))
    assert (pixels[2, 2, :3].mean() > 0.5) == (notebook.scheme == "light")


def test_more_like_this(notebook):
    """The button shows the group of the failure that is shown."""
    shown = notebook.panel(MOUSE)
    edit_groups(shown)
    shown.get_by_role("button", name="More like this").click()
    notebook.until("len(mouse.value.groups) >= 1")
    assert notebook.evaluate(
        "mouse._grouping.of_row(mouse._active) in mouse.value.groups"
    )


def test_keys_stay_in_the_groups(notebook):
    """No key pressed in the list of groups, a field or a button reaches the notebook."""
    before = notebook.cells
    edit_groups(notebook.panel(KEYS))
    controls = notebook.panel(KEYS).locator("input, select, button, [tabindex='0']")
    names = notebook.pressed_in(controls, KEYS, no_enter="Plan|Copy")
    assert {"INPUT", "SELECT", "BUTTON", "DIV"} <= set(names)
    assert notebook.cells == before


def test_axe_finds_nothing(notebook):
    """In the panels, with groups chosen and a problem shown, wide and narrow; nothing is in the console."""
    edit_groups(notebook.panel(MOUSE))
    notebook.panel(MOUSE).get_by_role("button", name="Undo").click()
    notebook.until("'Nothing to undo' in mouse.message")
    assert notebook.wrong() == []
    notebook.page.set_viewport_size({"width": 620, "height": 1900})
    notebook.page.wait_for_timeout(500)
    assert notebook.wrong() == []
    notebook.picture(notebook.panel(MOUSE), f"failure-groups-{notebook.scheme}-narrow")
    notebook.page.set_viewport_size({"width": 1400, "height": 1900})
    assert notebook.console == []
    assert notebook.hosts <= {"127.0.0.1"}
