"""The panel of a redrive: planned, looked at, confirmed, run, stopped and continued."""

from __future__ import annotations

import asyncio
import html
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

import toolkit as tk
from tests.redrive.conftest import Shop
from tests.widgets.page import choose, tick, write
from toolkit.errors import InputError, ToolkitError
from toolkit.redrive.running import new_run_id
from toolkit.widgets.redrive_panel import RedrivePanel


def until(holds: Callable[[], object]) -> None:
    """Wait until it holds."""
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline, "waited for a minute"
        time.sleep(0.05)


async def eventually(holds: Callable[[], object]) -> None:
    """Wait until it holds, while results of threads arrive."""
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline, "waited for a minute"
        await asyncio.sleep(0.01)


def states(panel: RedrivePanel) -> dict[str, int]:
    """How many entries have each state, by the result that is shown."""
    return (
        {}
        if panel.result is None
        else panel.result.frame["state"].value_counts().to_dict()
    )


def press(panel: RedrivePanel, name: str) -> None:
    """Press a button, as the page says so."""
    panel.receive({"kind": "press", "name": name})


def test_only_what_is_confirmed_is_run(shop: Shop, ledger: Path) -> None:
    """A wrong confirmation sends nothing; the one that is shown runs the plan, and what it did is shown."""
    failed = pd.concat([shop.fail(name, 3) for name in ("panel-a", "panel-b")])
    shop.mended.add("panel-a")
    panel = tk.RedrivePanel(shop.service, failed, ledger=ledger)
    before = shop.delivered.total()
    for wrong in ("", "6-00000000", "everything"):
        write(panel.confirm, wrong)
        press(panel, "Run")
        until(lambda: "in the field Confirm" in panel.message and panel._job is None)
    assert shop.delivered.total() == before
    assert panel.value.confirmation in panel.confirm.remark
    write(panel.confirm, panel.value.confirmation)
    press(panel, "Run")
    until(lambda: panel.result is not None and panel.message == panel.result.verdict)
    assert states(panel) == {"succeeded": 3, "failed again": 1, "stopped": 2}
    assert panel.result is not None
    assert html.escape(panel.result.verdict) in html.escape(
        html.unescape(panel.outcome)
    )
    assert len(panel.frame()) == 6


def test_stop_sends_nothing_more_and_says_what_is_open(
    shop: Shop, ledger: Path
) -> None:
    """What was started and what waits is counted, while it runs too; Run continues, nothing is done twice."""
    failed = shop.fail("panel-stop", 8)
    shop.mended.add("panel-stop")
    shop.held["panel-stop"] = threading.Event()
    panel = tk.RedrivePanel(shop.service, failed, ledger=ledger)
    write(panel.confirm, panel.value.confirmation)
    press(panel, "Run")
    until(lambda: ledger.exists() and len(tk.read_redrive_history(ledger)))
    waiting = r"0 of 8 · running for \d+ s · 1 started, 7 waiting · (9 min \d+ s|10 min) until the deadline"
    until(lambda: re.fullmatch(waiting, panel.message))
    # the waves come after the canary
    assert [step["state"] for step in panel.steps] == ["done", "now", "", ""]
    for _ in range(2):  # a second press warns once more, and keeps the progress
        press(panel, "Run")
        assert panel.message == "A request is already running; press Stop to stop it."
    assert panel._status.value.count("is already running") == 1
    assert "1 started, 7 waiting" in panel._status.value
    with pytest.raises(InputError, match="running"):
        panel.value = tk.plan_redrive(failed.iloc[:1])
    press(panel, "Stop")
    shop.held["panel-stop"].set()
    until(lambda: "Press Run to continue." in panel.message)
    assert "7 not sent" in panel.message
    assert states(panel)["waiting"] == 7
    assert [step["state"] for step in panel.steps] == ["done", "now", "", ""]
    write(panel.confirm, panel.value.confirmation)
    press(panel, "Run")
    until(lambda: panel._job is None and states(panel) == {"succeeded": 8})
    plan = panel.value
    assert {
        shop.delivered[new_run_id(plan.hash, dlq_id)] for dlq_id in plan.frame["dlq_id"]
    } == {1}
    again = tk.RedrivePanel(shop.service, failed, value=plan, ledger=ledger)
    assert states(again) == {"succeeded": 8}


def test_a_wave_is_now_when_more_than_canaries_were_sent(
    shop: Shop, ledger: Path
) -> None:
    """While the wave runs, and after it was stopped."""
    failed = shop.fail("panel-wave", 6)
    shop.mended.add("panel-wave")
    plan = tk.plan_redrive(failed, wave=2)
    panel = tk.RedrivePanel(shop.service, failed, value=plan, ledger=ledger)
    write(panel.confirm, panel.value.confirmation)
    shop.held["panel-wave"] = threading.Event()
    press(panel, "Run")
    until(lambda: "1 started, 5 waiting" in panel.message)
    shop.held["panel-wave"].set()
    shop.held["panel-wave"] = threading.Event()
    until(lambda: "2 started, 3 waiting" in panel.message)
    assert [step["state"] for step in panel.steps] == ["done", "now", "now", ""]
    press(panel, "Stop")
    shop.held["panel-wave"].set()
    until(lambda: panel._job is None and states(panel).get("waiting") == 3)
    assert [step["state"] for step in panel.steps] == ["done", "now", "now", ""]


def test_what_is_chosen_is_planned_when_preview_is_pressed(
    shop: Shop, ledger: Path
) -> None:
    """Restarting needs a statement for each workflow; another plan takes another confirmation."""
    failed = shop.fail("panel-preview", 2)
    panel = tk.RedrivePanel(shop.service, failed, ledger=ledger)
    first = panel.value
    write(panel.confirm, first.confirmation)
    choose(panel.action, "restart")
    assert "Preview" in panel.message
    press(panel, "Preview")
    until(lambda: panel.value is not first and panel.confirm.value == "")
    assert set(panel.value.frame["action"]) == {"leave"}
    second = panel.value
    tick(panel.idempotent, f"{shop.url}/panel-preview")
    press(panel, "Preview")
    until(lambda: panel.value is not second and "idempotent=" in panel._code.value)
    assert set(panel.value.frame["action"]) == {"restart"}
    assert panel.value.confirmation in panel.confirm.remark
    made: dict[str, object] = {"tk": tk, "failures": failed}
    exec(panel.to_code().partition("\ntk.run_redrive(")[0], made)  # noqa: S102 - code of this package
    assert made["plan"].hash == panel.value.hash  # type: ignore[attr-defined]
    assert str(panel.ledger) == str(ledger)
    assert str(ledger) in panel.to_code()


def test_advice_is_shown_whole(shop: Shop, ledger: Path) -> None:
    """The column of advice has each advice to its end."""
    panel = tk.RedrivePanel(None, shop.fail("panel-advice", 1), ledger=ledger)
    (advice,) = panel.value.groups["advice"]
    assert len(advice) > 40
    assert html.unescape(panel.groups).count(f"<td>{advice}</td>") == 1


def test_limits_are_edited_and_run_is_the_main_button(shop: Shop, ledger: Path) -> None:
    """Canaries, wave, share and deadline are fields; one out of range is explained, and changes no plan."""
    panel = tk.RedrivePanel(shop.service, shop.fail("panel-limits", 2), ledger=ledger)
    assert [button["name"] for button in panel.buttons if button["main"]] == ["Run"]
    first = panel.value
    texts = {"canaries": "3", "wave": "7", "stop_above": "35 %", "deadline": "90s"}
    for name, text in texts.items():
        write(panel.limits[name], text)
    press(panel, "Preview")
    until(
        lambda: (
            panel.value is not first
            and panel.value.confirmation in panel.confirm.remark
        )
    )
    limits = panel.value.limits
    assert (limits.canaries, limits.wave, limits.stop_above, limits.deadline) == (
        3,
        7,
        0.35,
        90.0,
    )
    second = panel.value
    for name, text in {
        "canaries": "0",
        "wave": "many",
        "stop_above": "1.5",
        "deadline": "soon",
    }.items():
        write(panel.limits[name], text)
        press(panel, "Preview")
        assert name in str(panel.limits[name].problem)
        assert name in panel.message
        panel.limits[name].value = texts[name]
    assert panel.value is second


def test_a_wrong_code_is_explained_in_the_words_of_the_panel(
    shop: Shop, ledger: Path
) -> None:
    """The message names the field, the code that was entered and the one of this plan, and no function."""
    panel = tk.RedrivePanel(shop.service, shop.fail("panel-code", 1), ledger=ledger)
    for code, shown in (
        ("", "the field Confirm is empty"),
        ("1-0000", "'1-0000' is not the confirmation"),
    ):
        write(panel.confirm, code)
        press(panel, "Run")
        assert panel._job is None
        assert panel.message.startswith(f"Nothing was sent: {shown}")
        assert f"Enter {panel.value.confirmation} in the field Confirm" in panel.message
        assert "plan.confirmation" not in panel.message
    assert not ledger.exists()


def test_the_code_runs_the_plan_on_the_service_of_the_panel(
    shop: Shop, ledger: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names the variable of this very service. Another one named `service` would be another queue."""
    failed = shop.fail("panel-practice", 1)
    practice = shop.service
    names = {"service": object(), "practice": practice, "failed": failed}
    monkeypatch.setattr(
        "toolkit.widgets.shown_code.get_ipython", lambda: SimpleNamespace(user_ns=names)
    )
    panel = tk.RedrivePanel(practice, failed, ledger=ledger)
    assert "tk.run_redrive(practice, plan, " in panel.to_code()
    del names["practice"]
    assert "# service: the service this panel was made with\n" in panel.to_code()
    compile(panel.to_code(), "<code>", "exec")


def test_without_a_service_it_is_only_planned(shop: Shop, ledger: Path) -> None:
    """There is nothing to run, and the code says how to."""
    failed = shop.fail("panel-alone", 1)
    panel = tk.RedrivePanel(None, failed, ledger=ledger)
    assert [button["name"] for button in panel.buttons] == ["Preview"]
    assert "tk.run_redrive(" in panel.to_code()
    with pytest.raises(InputError, match="without a service"):
        panel.run()
    with pytest.raises(InputError, match="service"):
        tk.RedrivePanel("queue", failed)  # type: ignore[arg-type]


def test_one_press_in_the_browser_plans_the_selection_or_the_group(shop: Shop) -> None:
    """The selected failures, or else those of the ticked groups; without either it says what to do."""
    failed = pd.concat([shop.fail(name, 2) for name in ("browsed-a", "browsed-b")])
    browser = tk.FailurePanel(failed, service=shop.service)
    browser.receive({"kind": "press", "name": "Plan a redrive"})
    assert "choose a group" in browser.message
    browser.value = tk.FailureView(selected=failed["dlq_id"].tolist()[:3])
    browser.receive({"kind": "press", "name": "Plan a redrive"})
    until(lambda: browser.redrive and browser._job is None)
    panel = browser.redrive
    assert set(panel.value.frame["dlq_id"]) == set(failed["dlq_id"].tolist()[:3])
    assert [button["name"] for button in panel.buttons] == ["Run", "Stop", "Preview"]
    group = browser.groups().frame["group"].iloc[0]
    browser.value = tk.FailureView(groups=[group])
    browser.plan_redrive()
    until(lambda: browser.redrive is not panel and browser._job is None)
    assert set(browser.redrive.value.frame["dlq_id"]) == set(browser.found()["dlq_id"])
    assert len(browser.found()) == 2


@pytest.mark.parametrize("selects", [True, False])
def test_the_code_of_a_plan_of_a_board_makes_the_same_plan(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, *, selects: bool
) -> None:
    """Also if it has too many ids to list: the code selects the rows of the board, not the whole frame."""
    monkeypatch.setattr("toolkit.redrive.plan._IDS_SHOWN", 1)
    failed = pd.concat([shop.fail(name, 2) for name in ("coded-a", "coded-b")])
    names: dict[str, Any] = {"tk": tk, "failures": failed}
    monkeypatch.setattr(
        "toolkit.widgets.shown_code.get_ipython", lambda: SimpleNamespace(user_ns=names)
    )
    browser = tk.FailurePanel(failed, service=shop.service)
    browser.value = tk.FailureView(groups=[browser.groups().frame["group"].iloc[0]])
    if selects:
        ids = failed["dlq_id"].tolist()
        browser.value = tk.FailureView(selected=[ids[3], ids[0]])
    browser.plan_redrive()
    until(lambda: browser.redrive and browser._job is None)
    assert browser.redrive is not None
    exec(browser.redrive.to_code().partition("\ntk.run_redrive(")[0], names)  # noqa: S102 - our own code
    made = names["plan"]
    assert len(made.frame) == 2
    assert made.confirmation == browser.redrive.value.confirmation


def test_a_notebook_shows_the_panel_before_the_plan_is_made(
    shop: Shop, ledger: Path
) -> None:
    """If an event loop runs, the plan arrives later; reading it earlier waits for it."""
    failed = shop.fail("panel-later", 2)
    expected = tk.plan_redrive(failed).confirmation

    async def arrives() -> None:
        panel = tk.RedrivePanel(shop.service, failed, ledger=ledger)
        assert [step["state"] for step in panel.steps] == ["now", "", "", ""]
        assert panel.groups == ""
        await eventually(lambda: panel.groups)
        assert expected in panel.confirm.remark
        assert panel.value.confirmation == expected
        assert panel._job is None

    async def is_read_at_once() -> None:
        panel = tk.RedrivePanel(shop.service, failed, ledger=ledger)
        assert panel.value.confirmation == expected
        assert panel.groups
        write(panel.confirm, "everything")
        press(panel, "Run")
        assert "is not the confirmation" in panel.message

    asyncio.run(arrives())
    asyncio.run(is_read_at_once())


def test_a_plan_that_cannot_be_made_is_an_error_in_the_panel(
    shop: Shop, tmp_path: Path
) -> None:
    """Failures without a column are refused at once; an unreadable ledger is shown, and raised by `value`."""
    failed = shop.fail("panel-error", 1)
    broken = tmp_path / "broken.sqlite"
    broken.write_bytes(b"no ledger" * 1_000)

    async def is_shown() -> None:
        with pytest.raises(InputError, match="workflow_url"):
            tk.RedrivePanel(None, failed.drop(columns="workflow_url"))
        panel = tk.RedrivePanel(None, failed, ledger=broken)
        await eventually(lambda: panel._job is None)
        assert "tk-problem" in panel.status
        with pytest.raises(ToolkitError):
            _ = panel.value

    asyncio.run(is_shown())
