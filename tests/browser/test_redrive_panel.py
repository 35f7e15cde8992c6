"""A redrive in a real JupyterLab: planned from a group, confirmed, run, stopped; by mouse and keyboard."""

from __future__ import annotations

from threading import Event

import pytest
from playwright.sync_api import expect

from tests.redrive.conftest import open_shop
from toolkit_service.demo.local_service import LocalService

expect.set_options(timeout=60_000)
pytestmark = [pytest.mark.browser, pytest.mark.slow]

PREPARE = """
import tempfile
import toolkit as tk
service = tk.connect(queue_url={url!r}, queue_token={token!r})
failures = tk.load_failures(service, progress=False)
failures = failures[failures.workflow_url.str.contains({scheme!r})]
slow = failures[failures.workflow_url.str.endswith("slow")]
path = tempfile.mkdtemp() + "/keys.sqlite"
"""
CELLS = [
    PREPARE,
    "browser = tk.FailurePanel(failures, service=service)\nbrowser",
    "keys = tk.RedrivePanel(service, slow, ledger=path)\nkeys",
]
MOUSE, KEYS = 1, 2


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """A shop with failures of three workflows."""
    folder = tmp_path_factory.mktemp("queue")
    with (
        LocalService(folder, indexes=["plain:dense:2:COSINE"]) as queue,
        open_shop(queue) as opened,
    ):
        yield opened


@pytest.fixture(scope="module", params=["light", "dark"])
def notebook(chromium, lab, request, shop):
    """A browser of failures for the mouse, and a panel for the keyboard."""
    shop.mended.clear()
    named = (
        f"{request.param}-mended",
        f"{request.param}-broken",
        f"{request.param}-slow",
    )
    for name in named:
        shop.fail(name, 3)
    shop.mended |= {named[0], named[2]}
    shop.held[named[2]] = Event()
    prepare = PREPARE.format(
        url=shop.queue.url, token=shop.queue.token, scheme=request.param
    )
    options = {
        "color_scheme": request.param,
        "viewport": {"width": 1400, "height": 1500},
    }
    with lab.open(
        chromium, f"redrive-{request.param}", [prepare, *CELLS[1:]], **options
    ) as opened:
        for _ in CELLS:
            opened.run_cell()
        opened.panel(MOUSE).locator(".tk-group").first.wait_for()
        opened.scheme = request.param
        yield opened


@pytest.mark.tour
def test_from_a_group_to_a_previewed_plan_and_through_it_by_mouse(notebook, shop):
    """One click plans what is ticked; what is confirmed is run, and its outcomes are shown."""
    panel = notebook.panel(MOUSE)
    for name in ("mended", "broken"):
        group = panel.locator(".tk-group").filter(has_text=f"{notebook.scheme}-{name}")
        group.click(modifiers=["ControlOrMeta"])
    notebook.until("len(browser.value.groups) == 2")
    panel.get_by_role("button", name="Plan a redrive").click()
    notebook.until("browser.redrive is not None")
    redrive = panel.locator(".tk-panel")
    confirmation = notebook.evaluate("browser.redrive.value.confirmation")
    expect(redrive.get_by_role("group", name="Plan")).to_contain_text("resume")
    expect(redrive).to_contain_text(f"To run it, enter {confirmation}.")
    sent = shop.delivered.total()
    redrive.get_by_role("button", name="Run").click()
    expect(redrive.get_by_role("alert")).to_contain_text("in the field Confirm")
    assert shop.delivered.total() == sent
    redrive.get_by_label("Confirm").fill(confirmation)
    redrive.get_by_role("button", name="Run").click()
    expect(redrive.get_by_role("group", name="Outcomes")).to_contain_text(
        "failed again"
    )
    states = "browser.redrive.result.frame.state.value_counts().to_dict()"
    assert notebook.until(states) == {"succeeded": 3, "failed again": 1, "stopped": 2}
    notebook.picture(redrive, f"redrive-{notebook.scheme}")


STATES = """
def states():
    try:
        return set(tk.read_redrive_status(keys.ledger, plan=keys.value.hash).frame.state)
    except tk.errors.InputError:  # nothing of this plan is in the ledger yet
        return set()
"""


def test_it_is_confirmed_stopped_and_continued_by_keyboard(notebook, shop):
    """Tab and Enter reach everything; the kernel is free while it runs; what is open is said."""
    panel, page = notebook.panel(KEYS), notebook.page
    confirmation = notebook.evaluate("keys.value.confirmation")
    notebook.do(STATES)
    panel.get_by_label("Confirm").focus()
    page.keyboard.type(confirmation)
    notebook.tab_to("Run")
    page.keyboard.press("Enter")
    # the canary has been sent, and its run is held; the others wait for its outcome
    notebook.until("'intended' in states() or 'started' in states()")
    notebook.tab_to("Stop")
    page.keyboard.press("Enter")
    notebook.until("keys._job is None or keys._job.stopping.is_set()")
    shop.held[f"{notebook.scheme}-slow"].set()
    notebook.until("'Press Run to continue' in keys.message")
    expect(panel).to_contain_text("2 not sent")
    notebook.picture(panel, f"redrive-{notebook.scheme}-stopped")
    assert notebook.evaluate("int(keys.result.frame.state.eq('waiting').sum())") == 2
    panel.get_by_role("button", name="Run").focus()
    page.keyboard.press("Enter")
    notebook.until(
        "keys._job is None and keys.result.frame.state.eq('succeeded').all()"
    )
    expect(panel.get_by_role("group", name="Outcomes")).to_contain_text("succeeded")


def test_keys_stay_in_the_panel(notebook):
    """No key pressed in a control reaches the notebook."""
    before = notebook.cells
    notebook.panel(KEYS).get_by_text("Actions and limits").click()
    controls = notebook.panel(KEYS).locator("input, select, button, [tabindex='0']")
    names = notebook.pressed_in(controls, KEYS, no_enter="Run|Stop|Preview")
    assert {"INPUT", "SELECT", "BUTTON", "DIV"} <= set(names)
    assert notebook.cells == before


def test_axe_finds_nothing(notebook):
    """In both panels, wide and narrow; nothing is in the console, and nothing left this machine."""
    assert notebook.wrong() == []
    notebook.page.set_viewport_size({"width": 620, "height": 1500})
    notebook.page.wait_for_timeout(500)
    assert notebook.wrong() == []
    notebook.picture(notebook.panel(KEYS), f"redrive-{notebook.scheme}-narrow")
    notebook.page.set_viewport_size({"width": 1400, "height": 1500})
    assert notebook.console == []
    assert notebook.hosts <= {"127.0.0.1"}
