"""The button "Find a runbook" of the failure panel in JupyterLab: by mouse, by keyboard, and with errors."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

import toolkit as tk
from toolkit_service.demo.local_service import LocalService

expect.set_options(timeout=60_000)
pytestmark = [pytest.mark.browser, pytest.mark.slow]

RUNBOOKS = (
    (
        "disk",
        "The disk is full: no space left on the device of the exports. Remove old files.",
    ),
    ("card", "The bank declined the card: ask the customer for another card."),
    ("cert", "The certificate of the proxy has expired: renew the certificate."),
)
PREPARE = """
import pandas as pd
import toolkit as tk
service = tk.connect(queue_url={url!r}, queue_token={token!r}, vector_url={vectors!r}, vector_token={token!r})
errors = ["no space left on device", "card declined by the bank", "unicorn 7 ate the moon"]
times = pd.date_range("2026-03-01", periods=len(errors), freq="h", tz="UTC")
failures = pd.DataFrame({{
    "dlq_id": [f"dlq_{{number}}" for number in range(len(errors))],
    "workflow_url": "https://shop.example/checkout",
    "workflow_run_id": "wfr_1",
    "response_status": 500,
    "failed_at": times,
    "created_at": times,
    "response_body": errors,
    "response_body_base64": None,
}})
"""
CELLS = [
    "mouse = tk.FailurePanel(failures, service=service)\nmouse",
    "keys = tk.FailurePanel(failures, service=service)\nkeys",
    "alone = tk.FailurePanel(failures)\nalone",
]
MOUSE, KEYS, ALONE = 1, 2, 3
FIND = "Find a runbook"


@pytest.fixture(scope="module")
def index():
    """An index that embeds text, with three runbooks."""
    with LocalService(indexes=["dense:dense:256:COSINE:hashing"]) as running:
        service = tk.connect(
            queue_url=running.url,
            queue_token=running.token,
            vector_url=running.vector_urls["dense"],
            vector_token=running.token,
            environ={},
        )
        rows = [
            {
                "id": name,
                "data": text,
                "metadata": {
                    "title": f"Runbook {name}",
                    "url": f"https://w.example/{name}",
                },
            }
            for name, text in RUNBOOKS
        ]
        tk.upsert_vectors(service, rows, namespace="runbooks", progress=False)
        yield running


@pytest.fixture(scope="module", params=["light", "dark"])
def notebook(chromium, lab, request, index):
    """A panel for the mouse, one for the keyboard, and one without a service."""
    prepare = PREPARE.format(
        url=index.url, token=index.token, vectors=index.vector_urls["dense"]
    )
    name = f"runbooks-{request.param}"
    options = {"color_scheme": request.param}
    with lab.open(chromium, name, [prepare, *CELLS], **options) as opened:
        for _ in range(len(CELLS) + 1):
            opened.run_cell()
        for cell in (MOUSE, KEYS, ALONE):
            opened.panel(cell).locator(".tk-group").first.wait_for()
        opened.scheme = request.param
        yield opened


def group(notebook, cell, title):
    """Return the row of the group with this title."""
    rows = (
        notebook.panel(cell).get_by_role("listbox", name="Groups").get_by_role("option")
    )
    return rows.filter(has_text=title)


def test_a_runbook_is_found_by_mouse(notebook):
    """The link of the group's runbook is shown and opens in a new tab; the result is in the kernel."""
    shown = notebook.panel(MOUSE)
    find = shown.get_by_role("button", name=FIND)
    find.click()
    expect(shown.locator(".tk-status")).to_contain_text("choose a group")
    group(notebook, MOUSE, "no space left").click()
    notebook.until("len(mouse.value.groups) == 1")
    find.click()
    link = shown.get_by_role("link", name="Runbook disk")
    expect(link).to_have_attribute("href", "https://w.example/disk")
    expect(link).to_have_attribute("rel", "noopener noreferrer")
    assert notebook.evaluate("mouse.runbooks.frame['runbook'].iloc[0]") == "disk"
    notebook.picture(shown, f"runbook-{notebook.scheme}")
    assert notebook.wrong() == []


def test_no_runbook_matches(notebook):
    """For an error that no runbook is about, no link is shown, not even the nearest one."""
    shown = notebook.panel(MOUSE)
    group(notebook, MOUSE, "unicorn").click()
    notebook.until("mouse.found()['response_body'].str.contains('unicorn').all()")
    shown.get_by_role("button", name=FIND).click()
    expect(shown.locator(".tk-status")).to_contain_text("No runbook matches")
    expect(shown.get_by_role("link")).to_have_count(0)
    assert not notebook.evaluate("bool(mouse.runbooks.frame['matches'].any())")
    assert notebook.wrong() == []


def test_runbooks_of_several_groups_are_found_by_keyboard_alone(notebook):
    """Space chooses all groups, Enter presses the button, and Tab comes to the links."""
    press = notebook.page.keyboard.press
    shown = notebook.panel(KEYS)
    shown.get_by_role("listbox", name="Groups").focus()
    for number in range(3):
        press("ArrowDown")
        press("Space")
        notebook.until(f"len(keys.value.groups) == {number + 1}")
    notebook.tab_to(FIND)
    press("Enter")
    for name in ("disk", "card"):
        expect(shown.get_by_role("link", name=f"Runbook {name}")).to_be_visible()
    expect(shown.locator(".tk-status")).to_contain_text("3 groups: 2 with a runbook")
    notebook.tab_to("Runbook (disk|card)")
    assert notebook.wrong() == []


def test_a_panel_without_a_service_names_the_argument(notebook):
    """The message has the code that passes the service."""
    shown = notebook.panel(ALONE)
    shown.get_by_role("button", name=FIND).click()
    expect(shown.locator(".tk-status")).to_contain_text(
        "tk.FailurePanel(failures, service=service)"
    )


def test_a_service_that_is_gone_is_an_error_in_the_panel(notebook):
    """The reason is shown in place of the last result, and the panel works on."""
    with LocalService(indexes=["dense:dense:256:COSINE:hashing"]) as ended:
        address, token = ended.vector_urls["dense"], ended.token
    notebook.do(
        f"keys._service = tk.connect(vector_url={address!r}, vector_token={token!r}, environ={{}})"
    )
    shown = notebook.panel(KEYS)
    shown.get_by_role("button", name=FIND).click()
    expect(shown.get_by_role("alert")).to_contain_text("the service is up")
    expect(shown.get_by_role("link")).to_have_count(0)
    assert notebook.wrong() == []
    group(notebook, KEYS, "no space left").click()
    notebook.until("len(keys.value.groups) == 1")
