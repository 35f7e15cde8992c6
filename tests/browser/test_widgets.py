"""The widgets in a real JupyterLab with a real kernel: by mouse, by keyboard alone, guarded, accessible."""

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
failures = tk.load_failures(service, progress=False)
failures.attrs = {}
def same(one, other):
    one, other = (frame.sort_values("dlq_id", ignore_index=True) for frame in (one, other))
    return one.equals(other)
"""
CELLS = [
    PREPARE,
    "by_mouse = tk.FailureFilterPanel(service, frame=failures)\nby_mouse",
    "by_keys = tk.FailureFilterPanel(service, frame=failures)\nby_keys",
    "browser = tk.FailurePanel(failures)\nbrowser",
    "keyed = tk.FailurePanel(failures)\nkeyed",
    "ipywidgets.Button(description='bare')",
]
MOUSE, KEYS, BROWSER, KEYED, BARE = 1, 2, 3, 4, 5


@pytest.fixture(scope="module")
def notebook(chromium, lab):
    """A notebook with a widget of each kind for the mouse, and one for the keyboard."""
    with lab.open(chromium, "widgets", CELLS) as opened:
        for _ in CELLS:
            opened.run_cell()
        opened.output(BARE).get_by_role("button", name="bare").wait_for()
        for cell in (BROWSER, KEYED):
            opened.panel(cell).get_by_role("button", name="Failures").click()
        yield opened


def control(notebook, label, cell=KEYS):
    """The control of this label in a panel."""
    named = notebook.page.get_by_label(label, exact=True)
    return notebook.panel(cell).locator(".tk-control").filter(has=named)


@pytest.mark.tour
def test_a_filter_is_built_by_mouse_and_run(notebook):
    """Ticks, a preset and the main button: the kernel's value, code and frame are as clicked."""
    shown = notebook.panel(MOUSE)
    shown.get_by_role("checkbox", name=re.compile(r"^shop \(")).click()
    shown.get_by_role("checkbox", name=re.compile("^CALLBACK_FAIL ")).click()
    shown.get_by_role("button", name="7 days").click()
    notebook.until("by_mouse.value.since is not None")
    assert notebook.evaluate(
        "[by_mouse.value.label, by_mouse.value.failure_function_state]"
    ) == [
        ["shop"],
        ["CALLBACK_FAIL"],
    ]
    code = notebook.evaluate("by_mouse.to_code()")
    expect(shown.locator(".tk-code")).to_have_text(code)
    shown.get_by_role("button", name="Load", exact=True).click()
    notebook.until("len(by_mouse.frame())")
    assert notebook.evaluate(
        "by_mouse.frame().equals(tk.load_failures(service, by_mouse.value, progress=False))"
    )
    number = notebook.evaluate("len(by_mouse.frame())")
    expect(
        shown.get_by_text(f"{number:,} failures loaded. panel.frame() returns them.")
    ).to_be_visible()
    first = notebook.evaluate("by_mouse.frame().dlq_id.iloc[0]")
    expect(
        shown.get_by_role("group", name="First rows").get_by_role("cell", name=first)
    ).to_be_visible()
    assert notebook.evaluate("eval(by_mouse.to_code()) == by_mouse.value")


def range_shown(shown):
    """The text below the histogram."""
    return shown.locator(".tk-brush > .tk-note").first


def minute(text):
    """A time of a field as the histogram shows it."""
    return f"{text[:16].replace('T', ' ')} UTC"


def test_a_preset_is_shown_alike_by_the_histogram_and_the_fields(notebook):
    """After "24 hours", the histogram names the time of the field, and no end that nobody chose."""
    shown = notebook.panel(MOUSE)
    shown.get_by_role("button", name="24 hours").click()
    notebook.until("by_mouse.value.since is not None and by_mouse.value.until is None")
    begin = minute(notebook.evaluate("by_mouse.since.text"))
    expect(range_shown(shown)).to_have_text(
        re.compile(f"^from {begin}(; bars are cut at .*)?$")
    )
    expect(shown.get_by_role("slider", name="Time range from")).to_have_attribute(
        "aria-valuetext", begin
    )


def test_a_range_is_dragged_on_the_histogram(notebook):
    """A drag over the histogram sets both times, which it shows as the fields do; clearing removes them."""
    shown = notebook.panel(MOUSE)
    shown.get_by_role("button", name="Clear").click()
    notebook.until("by_mouse.value == tk.FailureFilter()")
    chart = shown.locator(".tk-brush svg")
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    notebook.page.mouse.move(box["x"] + box["width"] * 0.25, box["y"] + 30)
    notebook.page.mouse.down()
    notebook.page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 30, steps=4)
    notebook.page.mouse.up()
    notebook.until("by_mouse.value.until is not None")
    begin, end = notebook.evaluate(
        "[by_mouse.value.since.timestamp(), by_mouse.value.until.timestamp()]"
    )
    whole = (
        notebook.evaluate(
            "by_mouse.trend['starts'][-1] + by_mouse.trend['width'] - by_mouse.trend['starts'][0]"
        )
        / 1000
    )
    assert 0.2 < (end - begin) / whole < 0.35
    for name in ("since", "until"):
        expect(range_shown(shown)).to_contain_text(
            minute(notebook.evaluate(f"by_mouse.{name}.text"))
        )
    expect(shown.get_by_label("From", exact=True)).to_have_value(
        notebook.evaluate("by_mouse.since.text")
    )


def test_a_filter_is_built_by_keyboard_alone_and_run(notebook):
    """From the cell's own focus: Tab, arrows, Space, typing and Enter make a filter and load it."""
    press = notebook.page.keyboard.press
    notebook.page.locator(".jp-CodeCell .cm-content").nth(KEYS).click()
    press("Escape")
    notebook.tab_to("Time range from")
    press("ArrowRight")
    notebook.until("by_keys.value.since is not None")
    notebook.tab_to("From")
    press("ControlOrMeta+a")
    notebook.page.keyboard.type("7d")
    press("Enter")
    notebook.until(
        "by_keys.value.since.timestamp() > by_keys.trend['starts'][-1] / 1000 - 8 * 86400"
    )
    notebook.tab_to("Label")
    notebook.page.keyboard.type("lega")
    notebook.until("by_keys.choices['label']._sought == 'lega'")
    expect(control(notebook, "Label").get_by_role("checkbox")).to_have_count(1)
    notebook.tab_to(r"legacy \(\d+\)")
    press("Space")
    notebook.until("by_keys.value.label == ('legacy',)")
    notebook.tab_to("Flow-control key")
    notebook.page.keyboard.type("none-such")
    press("Enter")
    notebook.until("by_keys.value.flow_control_key == ('none-such',)")
    expect(
        control(notebook, "Flow-control key").get_by_role("checkbox", name="none-such")
    ).to_be_checked()
    notebook.tab_to("none-such")
    press("Space")
    notebook.until("by_keys.value.flow_control_key == ()")
    notebook.tab_to("Load")
    press("Enter")
    notebook.until("len(by_keys.frame())")
    assert notebook.evaluate(
        "same(by_keys.frame(), tk.load_failures(service, by_keys.value, progress=False))"
    )
    assert notebook.evaluate("eval(by_keys.to_code()) == by_keys.value")


def test_a_press_takes_the_values_it_was_made_on(notebook):
    """Text and ticks of a moment in which the kernel is busy are part of what the press of Load loads."""
    shown = notebook.panel(MOUSE)
    # a press while a request is running is refused
    notebook.until("by_mouse._job is None")
    notebook.do("by_mouse.clear(); by_mouse._kept.origin = tk.FailureFilter()")
    labels = control(notebook, "Label", MOUSE)
    # until the page has the order of the cleared filter, a click could hit the label next to this one
    cleared = notebook.evaluate(
        "[row['text'] + row['count'] for row in by_mouse.choices['label'].rows]"
    )
    expect(labels.locator(".tk-ticks label:visible")).to_have_text(cleared)
    with notebook.busy():
        shown.get_by_label("From", exact=True).fill("36h")
        labels.get_by_role("checkbox", name=re.compile(r"^shop \(")).click()
        shown.get_by_label("Status", exact=True).fill("50")
        shown.get_by_label("Status", exact=True).press("Enter")
        shown.get_by_role("button", name="Load", exact=True).click()
    notebook.until(
        "by_mouse._kept.origin.label == ('shop',) and by_mouse._kept.origin.since is not None"
    )
    assert notebook.evaluate("by_mouse._kept.origin.response_status") == [500]
    assert notebook.evaluate("by_mouse._kept.origin == by_mouse.value")
    expect(shown.get_by_text("The filter has changed")).to_have_count(0)


def test_values_stay_where_the_pointer_is(notebook):
    """A list that is ordered anew between aiming and clicking: the click takes what it was aimed at."""
    notebook.do("by_mouse.clear()")
    values = control(notebook, "Label", MOUSE).locator(".tk-ticks label:visible")
    aimed = values.filter(has_text="legacy")
    expect(aimed).to_have_count(1)
    # the counts of the cleared filter may order the values anew while the pointer is on its way
    hovered = False
    while not hovered:
        aimed.hover()
        hovered = aimed.evaluate("(line) => line.matches(':hover')")
    before = values.all_inner_texts()
    notebook.do("by_mouse.value = tk.FailureFilter(response_status=[429])")
    expect(values.nth(0)).not_to_have_text(before[0])  # counts follow
    names = [text.split("(")[0].strip() for text in values.all_inner_texts()]
    assert names == [text.split("(")[0].strip() for text in before]
    notebook.page.mouse.down()
    notebook.page.mouse.up()
    notebook.until("by_mouse.value.label == ('legacy',)")
    notebook.panel(MOUSE).get_by_label("From", exact=True).hover()
    notebook.panel(MOUSE).get_by_label("From", exact=True).focus()
    expect(values.nth(0)).not_to_have_text(re.compile(f"^{names[0]} "))  # the new order
    notebook.do("by_mouse.clear()")


def test_enter_selects_the_first_match(notebook):
    """A few letters and Enter choose the name that is marked; the letters themselves only by their button."""
    notebook.do("by_mouse.clear()")
    workflow = control(notebook, "Workflow", MOUSE)
    field = workflow.get_by_label("Workflow", exact=True)
    field.fill("ord")
    expect(workflow.locator(".tk-first")).to_have_text(
        re.compile(r"^orders/fulfil \([\d,]+\)$")
    )
    field.press("Enter")
    notebook.until("by_mouse.value.workflow_url")
    assert notebook.evaluate("by_mouse.value.workflow_url") == [
        "https://shop.example.com/flows/orders/fulfil"
    ]
    expect(
        workflow.get_by_role("checkbox", name=re.compile("^orders.fulfil"))
    ).to_be_checked()
    expect(field).to_have_value("")
    field.fill("ord")
    workflow.get_by_role("button", name="Add “ord” as typed").click()
    notebook.until("by_mouse.value.workflow_url[1:] == ('ord',)")
    status = control(notebook, "Status", MOUSE)
    before = status.get_by_role("checkbox").first.evaluate(
        "(e) => e.labels[0].innerText"
    )
    expect(
        status.get_by_role("checkbox", name=re.compile(r"^500 \(")).first
    ).to_be_visible()
    shown = notebook.panel(MOUSE)
    shown.get_by_role("button", name="24 hours").click()
    notebook.until("by_mouse.value.since is not None")
    count = notebook.evaluate(
        "int((failures.created_at.ge(by_mouse.value.since) & failures.response_status.eq(500)"
        " & failures.workflow_url.isin(by_mouse.value.workflow_url)).sum())"
    )
    expect(status.get_by_text(re.compile(rf"^500 \({count:,}\)$"))).to_be_visible()
    assert before != f"500 ({count:,})"


def test_a_mistake_is_explained_beside_its_field(notebook):
    """An invalid time is explained below the field, and the value stays."""
    shown = notebook.panel(KEYS)
    before = notebook.evaluate("by_keys.to_code()")
    shown.get_by_label("Until", exact=True).fill("tomorrow-ish")
    shown.get_by_label("Until", exact=True).press("Enter")
    expect(shown.get_by_role("alert")).to_contain_text(
        "got 'tomorrow-ish'; expected a date or time"
    )
    assert notebook.evaluate("by_keys.to_code()") == before
    shown.get_by_label("Until", exact=True).fill("")
    shown.get_by_label("Until", exact=True).press("Enter")
    expect(shown.get_by_role("alert")).to_have_count(0)


def test_failures_are_browsed_by_mouse(notebook):
    """Search, sort, open and select with the mouse; the selection is a frame in the kernel."""
    shown = notebook.panel(BROWSER)
    shown.get_by_label("Search", exact=True).fill("timeout")
    shown.get_by_label("Search", exact=True).press("Enter")
    notebook.until("browser.value.search == 'timeout'")
    shown.get_by_role("button", name=re.compile("^Workflow")).click()
    notebook.until("browser.value.sort_by == 'workflow_url'")
    expect(
        shown.get_by_role("columnheader", name=re.compile("^Workflow"))
    ).to_have_attribute("aria-sort", "ascending")
    rows = shown.locator(".tk-grid .tk-list-body [role=row]")
    rows.nth(2).locator(".tk-cell").nth(2).click()
    wanted = notebook.evaluate("browser.found()['dlq_id'].iloc[2]")
    expect(shown.locator(".tk-detail")).to_contain_text(wanted)
    rows.nth(1).locator(".tk-mark").click()
    rows.nth(3).locator(".tk-mark").click(modifiers=["Shift"])
    notebook.until("len(browser.value.selected) == 3")
    assert notebook.evaluate(
        "browser.frame()['dlq_id'].tolist() == browser.found()['dlq_id'].iloc[1:4].tolist()"
    )
    assert notebook.evaluate("eval(browser.to_code()) == browser.value")


def test_failures_are_browsed_by_keyboard_alone(notebook):
    """Search, sort, move, open, select and scroll with keys; the opened row is shown."""
    press = notebook.page.keyboard.press
    shown = notebook.panel(KEYED)
    notebook.page.locator(".jp-CodeCell .cm-content").nth(KEYED).click()
    press("Escape")
    notebook.tab_to("Search")
    notebook.page.keyboard.type("error")
    press("Enter")
    notebook.until("keyed.value.search == 'error'")
    # a key pressed before the page shows the search result applies to the previous rows
    count = notebook.evaluate("len(keyed.found())")
    expect(shown.locator("[aria-rowcount]")).to_have_attribute(
        "aria-rowcount", str(count + 1)
    )
    shown.get_by_role("grid", name="Failures").focus()
    for key in ("ArrowDown", "ArrowDown", "Space", "End", "Space"):
        press(key)
    notebook.until("len(keyed.value.selected) == 2")
    found = "keyed.found()['dlq_id']"
    assert notebook.evaluate(
        f"list(keyed.value.selected) == [{found}.iloc[1], {found}.iloc[-1]]"
    )
    expect(shown.locator(".tk-detail")).to_contain_text(
        notebook.evaluate(f"{found}.iloc[-1]")
    )
    expect(shown.locator(".tk-grid .tk-list-body .tk-active")).to_be_in_viewport()
    press("ControlOrMeta+a")
    notebook.until("len(keyed.value.selected) == len(keyed.found())")
    notebook.tab_to("Status")
    press("Enter")
    notebook.until("keyed.value.sort_by == 'response_status'")
    notebook.tab_to("Clear selection")
    press("Enter")
    notebook.until("len(keyed.frame()) == 0")


def test_the_search_finds_statuses_and_words_together(notebook):
    """All columns are searched; a search that finds nothing shows no failure and loses no selection."""
    shown = notebook.panel(BROWSER)
    search = shown.get_by_label("Search", exact=True)
    for text, expected in (
        ("429", "failures.response_status.eq(429)"),
        (
            "orders/fulfil 500",
            "failures.response_status.eq(500) & failures.workflow_url.str.endswith('orders/fulfil')",
        ),
    ):
        search.fill(text)
        search.press("Enter")
        count = notebook.evaluate(f"int(({expected}).sum())")
        expect(shown.get_by_text(f"{count:,} of 5,000 failures")).to_be_visible()
    notebook.do("browser.clear_selection()")
    shown.get_by_role("button", name="Select all found").click()
    chosen = notebook.until("len(browser.value.selected)")
    assert chosen == count
    search.fill("nothing has this")
    search.press("Enter")
    expect(
        shown.get_by_text(
            f"{chosen:,} selected, {chosen:,} of them not among those found"
        )
    ).to_be_visible()
    expect(shown.locator(".tk-detail")).to_have_text("No failure is found.")
    assert notebook.evaluate("len(browser.frame())") == chosen
    for width in (1000, 1400):
        notebook.page.set_viewport_size({"width": width, "height": 1000})
        expect(shown.locator(".tk-grid")).to_contain_text("No failure is found.")
    search.fill("")
    search.press("Enter")
    expect(shown.get_by_text("5,000 of 5,000 failures")).to_be_visible()


@pytest.mark.parametrize(("width", "height"), [(1366, 768), (1400, 1000), (2200, 1100)])
def test_error_and_trace_are_in_sight(notebook, width, height):
    """With the panel at the top of the screen, a row's error and the trace of its failure can be read."""
    notebook.page.set_viewport_size({"width": width, "height": height})
    shown = notebook.panel(BROWSER)
    search = shown.get_by_label("Search", exact=True)
    search.fill("SocketTimeoutException")
    search.press("Enter")
    expect(shown.get_by_text("79 of 5,000 failures")).to_be_visible()
    shown.evaluate("(e) => e.closest('.jp-Cell').scrollIntoView()")
    row = shown.locator(".tk-grid .tk-list-body [role=row]").nth(1)
    row.locator(".tk-col-error").click()
    expect(shown.locator(".tk-detail")).to_contain_text(
        notebook.evaluate("browser.found()['dlq_id'].iloc[1]")
    )
    trace = shown.locator(".tk-detail pre").first
    expect(trace).to_contain_text("at ")
    box = trace.bounding_box()
    assert box["y"] + min(box["height"], 100) < height - 30  # above the status bar
    error = row.locator(".tk-col-error")
    expect(error).to_have_text("SocketTimeoutException: Read timed out")
    assert error.evaluate("(e) => e.scrollWidth <= e.clientWidth")
    grid = shown.locator(".tk-grid")
    # nothing is hidden at the right
    assert grid.evaluate("(e) => e.scrollWidth <= e.clientWidth")
    search.fill("")
    search.press("Enter")
    # otherwise, the next search could be compared with the rows that this search has found
    expect(shown.get_by_text("5,000 of 5,000 failures")).to_be_visible()
    notebook.page.set_viewport_size({"width": 1400, "height": 1000})


@pytest.mark.parametrize("width", [1900, 1400, 1365, 1299, 1229, 1100, 900])
def test_the_sign_of_the_order_is_not_cut(notebook, width):
    """However wide the table is, the heading that it is sorted by can be read, with its arrow."""
    notebook.page.set_viewport_size({"width": width, "height": 1000})
    head = notebook.panel(BROWSER).locator(".tk-grid-head")
    for name in notebook.evaluate(
        "[column['name'] for column in browser.table['columns'] if column['sortable']]"
    ):
        notebook.do(
            f"browser.value = browser.value.replace(sort_by={name!r}, ascending=False)"
        )
        cell = head.locator(f".tk-col-{name}")
        if not cell.is_visible():  # narrow tables leave out the last columns
            continue
        expect(cell).to_contain_text("▼")
        assert cell.evaluate("(e) => e.scrollWidth <= e.clientWidth"), name
    notebook.do("browser.value = browser.value.replace(sort_by='failed_at')")
    notebook.page.set_viewport_size({"width": 1400, "height": 1000})


def test_a_row_marked_while_a_search_is_under_way_is_selected(notebook):
    """A row marked while a search is entered is selected, though no longer found."""
    shown = notebook.panel(BROWSER)
    search = shown.get_by_label("Search", exact=True)
    shown.get_by_role("button", name="Clear selection").click()
    notebook.until("browser.value.selected == ()")
    errors = notebook.evaluate("browser.found()['error'].head(8).tolist()")
    other = next(
        number for number, error in enumerate(errors) if "SocketTimeout" not in error
    )
    seen = notebook.evaluate(f"browser.found()['dlq_id'].iloc[{other}]")
    search.fill("SocketTimeout")
    shown.evaluate(
        """(panel, row) => {
        const enter = new KeyboardEvent("keydown", { key: "Enter", bubbles: true });
        panel.querySelector(".tk-tool input").dispatchEvent(enter);
        panel.querySelectorAll(".tk-grid .tk-list-body .tk-mark")[row].click();
    }""",
        other,
    )
    expect(
        shown.get_by_text("1 selected, 1 of them not among those found")
    ).to_be_visible()
    assert notebook.evaluate("list(browser.value.selected)") == [seen]
    search.fill("")
    search.press("Enter")
    notebook.until("browser.value.search == ''")
    expect(shown.locator(".tk-grid .tk-list-body [aria-selected=true]")).to_have_count(
        1
    )


@pytest.mark.parametrize("sought", ["SocketTimeout", "nothing has this"])
def test_a_click_opens_the_row_that_was_pressed(notebook, sought):
    """If a search replaces the rows under a pressed pointer, the row of the press is opened nevertheless."""
    shown = notebook.panel(BROWSER)
    search = shown.get_by_label("Search", exact=True)
    errors = notebook.evaluate("browser.found()['error'].head(8).tolist()")
    other = next(
        number for number, error in enumerate(errors) if "SocketTimeout" not in error
    )
    pressed = notebook.evaluate(f"browser.found()['dlq_id'].iloc[{other}]")
    notebook.do(f"browser.show_failure(browser.found()['dlq_id'].iloc[{other + 1}])")
    before = shown.locator(".tk-count").inner_text()
    search.fill(sought)  # the press commits it, as the field loses the focus
    row = shown.locator(".tk-grid .tk-list-body [role=row]").nth(other)
    row.locator(".tk-col-error").hover()
    notebook.page.mouse.down()
    notebook.until(f"browser.value.search == {sought!r}")
    expect(shown.locator(".tk-count")).not_to_have_text(before)
    notebook.page.mouse.up()
    expect(shown.locator(".tk-detail")).to_contain_text(pressed)
    expect(shown.locator(".tk-steps")).to_contain_text("none")
    found = notebook.evaluate("len(browser.found())")
    expect(shown.locator("[aria-rowcount]")).to_have_attribute(
        "aria-rowcount", str(found + 1)
    )
    expect(shown.locator(".tk-grid .tk-list-body")).not_to_contain_text(pressed)
    search.fill("")
    search.press("Enter")
    expect(shown.get_by_text("5,000 of 5,000 failures")).to_be_visible()


def test_ids_and_code_are_copied(notebook):
    """By button and by Ctrl+C the clipboard holds the exact ids; the code makes the same frame."""
    notebook.context.grant_permissions(["clipboard-read", "clipboard-write"])
    shown = notebook.panel(BROWSER)
    rows = shown.locator(".tk-grid .tk-list-body [role=row]")
    shown.get_by_role("button", name="Clear selection").click()
    # a click on a row that is still shown as selected takes it out
    expect(
        shown.locator(".tk-grid .tk-list-body [role=row][aria-selected=true]")
    ).to_have_count(0)
    rows.nth(0).locator(".tk-mark").click()
    rows.nth(2).locator(".tk-mark").click()
    notebook.until("len(browser.value.selected) == 2")
    ids = notebook.evaluate("list(browser.value.selected)")
    shown.get_by_role("button", name="Copy ids").click()
    expect(shown.get_by_text("2 ids copied.")).to_be_visible()
    assert notebook.page.evaluate("navigator.clipboard.readText()") == "\n".join(ids)
    shown.get_by_role("button", name="Copy code").click()
    expect(shown.get_by_text("Code with 2 ids copied.")).to_be_visible()
    code = notebook.page.evaluate("navigator.clipboard.readText()")
    notebook.do(f"exec({code!r})")
    assert set(notebook.evaluate("selected.dlq_id.tolist()")) == set(ids)
    shown.get_by_role("button", name="Select all found").click()
    notebook.until("len(browser.value.selected) == 5000")
    expect(shown.locator("pre.tk-code")).to_contain_text("more lines")
    height = shown.bounding_box()["height"]
    shown.get_by_role("button", name="Copy code").click()
    expect(shown.get_by_text("Code with 5,000 ids copied.")).to_be_visible()
    assert shown.bounding_box()["height"] < height + 250
    code = notebook.page.evaluate("navigator.clipboard.readText()")
    notebook.do(f"exec({code!r})")
    assert notebook.evaluate("len(selected)") == 5000
    assert notebook.wrong() == []
    compile(shown.locator("pre.tk-code").inner_text(), "shown", "exec")
    shown.get_by_role("button", name="Clear selection").click()
    expect(shown.locator("pre.tk-code")).to_contain_text(".found()")
    notebook.do(f"browser.value = browser.value.replace(selected={ids!r})")
    notebook.page.evaluate("navigator.clipboard.writeText('')")
    shown.locator(".tk-grid").focus()
    notebook.page.keyboard.press("ControlOrMeta+c")
    for _ in range(300):
        if notebook.page.evaluate("navigator.clipboard.readText()"):
            break
        notebook.page.wait_for_timeout(100)
    assert notebook.page.evaluate("navigator.clipboard.readText()") == "\n".join(ids)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_in_the_way_of_anybody(notebook, scheme):
    """axe-core finds nothing wrong in either theme, wide or narrow, and nothing is wider than its cell."""
    notebook.page.emulate_media(color_scheme=scheme)
    expect(notebook.page.locator("body")).to_have_attribute(
        "data-jp-theme-light", str(scheme == "light").lower()
    )
    for size, width in (("wide", 1400), ("narrow", 700)):
        notebook.page.set_viewport_size({"width": width, "height": 2700})
        panels = {
            "failure-filter": notebook.panel(MOUSE),
            "failure-browser": notebook.panel(BROWSER),
        }
        for name, shown in panels.items():
            shown.scroll_into_view_if_needed()
            notebook.picture(shown, f"{name}-{scheme}-{size}")
            assert shown.evaluate("(e) => e.scrollWidth <= e.clientWidth + 1")
        assert notebook.wrong() == []
    notebook.page.set_viewport_size({"width": 1400, "height": 1000})


@pytest.mark.parametrize("cell", [KEYS, KEYED])
def test_keys_pressed_in_a_widget_stay_in_it(notebook, cell):
    """In every control that can have the focus, keys leave the notebook's cells alone."""
    notebook.page.locator(".jp-CodeCell .jp-InputPrompt").nth(cell).click()
    before = notebook.cells
    controls = notebook.output(cell).locator(
        "input, textarea, select, button, [tabindex='0']:not([aria-hidden])"
    )
    assert len(notebook.pressed_in(controls, cell)) > (20 if cell == KEYS else 8)
    assert notebook.cells == before
    # with all the complaints that these keys have brought about
    assert notebook.wrong() == []


def test_a_cell_runs_from_within_its_widget(notebook):
    """Shift+Enter in a widget still runs the cell."""
    count = notebook.evaluate("len(In)")
    notebook.panel(MOUSE).get_by_label("Time range from").press("Shift+Enter")
    notebook.until(f"len(In) > {count}")


def test_without_a_guard_the_notebook_takes_the_keys(notebook):
    """The reason for the guard: on a bare button of ipywidgets, d d deletes the cell."""
    button = notebook.output(BARE).get_by_role("button", name="bare")
    button.click()
    before = len(notebook.cells)
    notebook.page.keyboard.press("d")
    notebook.page.keyboard.press("d")
    expect(notebook.page.locator(".jp-Notebook .jp-Cell")).to_have_count(before - 1)


def test_the_page_was_silent_and_alone(notebook):
    """All that time: no error in the console, and no request to any other machine."""
    assert notebook.console == []
    assert notebook.hosts == {"127.0.0.1"}
