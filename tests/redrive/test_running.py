"""A plan that is run: what succeeded, what came back, what was left, and that nothing is done twice."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest

import toolkit as tk
from tests.redrive.conftest import Shop
from tests.redrive.lossy_proxy import Loss, proxy
from toolkit.errors import DailyLimitError, InputError, LedgerLockedError
from toolkit.redrive.limits import Limits
from toolkit.redrive.running import _recent_stop_reason, new_run_id
from toolkit_service.demo.local_service import LocalService


def states(result: tk.results.RedriveResult) -> dict[str, int]:
    """How many entries have each state."""
    return result.frame["state"].value_counts().to_dict()


def run(
    shop: Shop, plan: tk.RedrivePlan, ledger: Path, **options: object
) -> tk.results.RedriveResult:
    """Run a plan as its user does, without a bar."""
    return tk.run_redrive(
        shop.service,
        plan,
        ledger=ledger,
        confirm=plan.confirmation,
        progress=False,
        **options,
    )


@pytest.mark.slow
def test_mended_groups_are_redriven_and_broken_ones_stopped_by_their_canary(
    shop: Shop, ledger: Path
) -> None:
    """Each entry of the first once, one of the second; the rest of the second stays in the DLQ."""
    failed = pd.concat([shop.fail(name, 12) for name in ("pay", "ship", "mail")])
    shop.mended |= {"pay", "mail"}
    plan = tk.plan_redrive(failed, wave=5)
    result = run(shop, plan, ledger)
    assert states(result) == {"succeeded": 24, "failed again": 1, "stopped": 11}
    assert result.finished
    stopped = result.frame[result.frame["state"] == "stopped"]
    assert stopped["reason"].unique().tolist() == [
        "1 of 1 run failed again (100 %), 1 of them with the same signature"
    ]
    ids = {
        f"{new_run_id(plan.hash, dlq_id)}": dlq_id for dlq_id in plan.frame["dlq_id"]
    }
    again = {run_id: times for run_id, times in shop.delivered.items() if run_id in ids}
    assert set(again.values()) == {1}
    assert len(again) == 25
    back = shop.failures("ship", 12)
    assert set(stopped["dlq_id"]) < set(back["dlq_id"])
    returned = result.frame[result.frame["state"] == "failed again"].iloc[0]
    assert returned["new_dlq_id"] in set(back["dlq_id"])
    assert returned["new_group"] == returned["group"]
    assert "11 not sent" in result.verdict
    assert "stopped" in repr(result)
    assert result._repr_html_().count("<tr>") == 1 + len(result.groups)


def test_a_run_that_is_through_sends_nothing_more(shop: Shop, ledger: Path) -> None:
    """The same call again returns the same result, whatever was mended meanwhile."""
    failed = shop.fail("done", 4)
    plan = tk.plan_redrive(failed)
    first = run(shop, plan, ledger)
    shop.mended.add("done")
    delivered = Counter(shop.delivered)
    again = run(shop, plan, ledger)
    pd.testing.assert_frame_equal(first.frame, again.frame)
    assert shop.delivered == delivered
    pd.testing.assert_frame_equal(tk.read_redrive_status(ledger).frame, again.frame)


def test_a_failure_of_another_kind_is_told_apart(shop: Shop, ledger: Path) -> None:
    """Its new signature is in the result; a group may go on while few enough fail."""
    failed = shop.fail("flaky", 3)
    shop.otherwise.add("flaky")
    result = run(shop, tk.plan_redrive(failed, stop_above=1), ledger)
    assert states(result) == {"failed otherwise": 3}
    assert (result.frame["new_group"] != result.frame["group"]).all()
    assert result.frame["new_dlq_id"].notna().all()


def test_what_is_gone_or_changed_is_left(shop: Shop, ledger: Path) -> None:
    """Each is read again before it is acted on."""
    failed = shop.fail("left", 3)
    shop.mended.add("left")
    plan = tk.plan_redrive(failed)
    gone = str(plan.frame["dlq_id"].iloc[0])
    tk.delete_failures(shop.service, gone, confirm=True)
    edited = plan.frame.assign(
        response_status=plan.frame["response_status"].where(plan.frame.index != 1, 418)
    )
    changed = tk.RedrivePlan(
        edited, plan.source, plan.limits, plan.options, plan.learned
    )
    result = run(shop, changed, ledger)
    notes = result.frame.set_index("dlq_id")["reason"]
    assert states(result) == {"skipped": 2, "succeeded": 1}
    assert notes[gone] == "it is no longer in the DLQ"
    assert notes.iloc[1] == "response_status changed since it was planned"


def test_at_the_daily_limit_a_run_ends_and_continues_later(
    shop: Shop, ledger: Path
) -> None:
    """The error names the renewal, the refused entries are not lost, and the same call sends them later."""
    failed = shop.fail("limited", 3)
    shop.mended.add("limited")
    plan = tk.plan_redrive(failed)
    renewal = str(int(time.time()) + 3600)
    used_up = {
        "RateLimit-Limit": "100",
        "RateLimit-Remaining": "0",
        "RateLimit-Reset": renewal,
    }
    fault = {
        "route": "/v2/workflows/dlq/resume/*",
        "times": None,
        "status": 429,
        "headers": used_up,
    }
    script = json.dumps({"faults": [fault]})
    as_json = {"Content-Type": "application/json"}
    shop.request("PUT", "/admin/faults", script, as_json)
    # without an error, the run would never end
    timer = threading.Timer(30, shop.request, ("DELETE", "/admin/faults"))
    timer.start()
    try:
        with pytest.raises(DailyLimitError, match="renewed at"):
            run(shop, plan, ledger)
    finally:
        timer.cancel()
        shop.request("DELETE", "/admin/faults")
    assert len(shop.failures("limited", 3)) == 3
    assert not shop.delivered.keys() & set(tk.read_redrive_history(ledger)["run_id"])
    assert states(run(shop, plan, ledger)) == {"succeeded": 3}


def test_only_what_was_previewed_is_confirmed(shop: Shop, ledger: Path) -> None:
    """Another count or hash is refused before anything is opened."""
    plan = tk.plan_redrive(shop.fail("confirmed", 2))
    for confirm in ("", "yes", True, 2, f"3-{plan.hash[:8]}", f"2-{'0' * 8}"):
        with pytest.raises(InputError, match="confirm"):
            tk.run_redrive(shop.service, plan, ledger=ledger, confirm=confirm)  # type: ignore[arg-type]
    assert not ledger.exists()
    assert len(shop.failures("confirmed", 2)) == 2


def test_what_does_not_end_in_time_holds_its_group(shop: Shop, ledger: Path) -> None:
    """It is said to be running; a later call sees that it has ended, and that its group is stopped."""
    failed = shop.fail("slow", 3)
    shop.mended.add("slow")
    shop.held["slow"] = threading.Event()
    plan = tk.plan_redrive(failed, deadline="1s")
    result = run(shop, plan, ledger)
    assert states(result) == {"running": 1, "stopped": 2}
    assert (
        result.frame["reason"].iloc[-1]
        == "its first runs had not ended before the deadline"
    )
    shop.held["slow"].set()
    until = time.monotonic() + 30
    while time.monotonic() < until and not any(
        r["workflowState"] == "RUN_SUCCESS" for r in shop.runs("slow")
    ):
        time.sleep(0.1)
    assert states(run(shop, plan, ledger)) == {"succeeded": 1, "stopped": 2}


class _HeldAfter(threading.Event):
    """Lets some deliveries through, and holds the others until it is set."""

    def __init__(self, deliveries: int) -> None:
        super().__init__()
        self._passes = threading.Semaphore(deliveries)

    def wait(self, timeout: float | None = None) -> bool:
        return self._passes.acquire(blocking=False) or super().wait(timeout)


def test_a_wave_that_does_not_end_in_time_holds_its_group(
    shop: Shop, ledger: Path
) -> None:
    """The canary succeeds, then the application hangs: it gets one wave, not all of them."""
    failed = shop.fail("hanging", 8)
    shop.mended.add("hanging")
    held = shop.held["hanging"] = _HeldAfter(1)
    plan = tk.plan_redrive(failed, deadline="1s", wave=2)
    result = run(shop, plan, ledger)
    held.set()
    assert states(result) == {"succeeded": 1, "running": 2, "stopped": 5}
    assert "2 of 3 runs had not ended" in result.frame["reason"].iloc[-1]


@pytest.mark.slow
def test_a_deployment_that_breaks_later_stops_its_group(
    shop: Shop, ledger: Path
) -> None:
    """One wave fails, which is a seventh of all runs so far, and no further one is sent."""
    failed = shop.fail("later", 91)
    shop.mended.add("later")
    plan = tk.plan_redrive(failed, wave=10)

    def progress(done: int, _total: int | None) -> None:
        if done >= 61:
            shop.mended.discard("later")

    result = tk.run_redrive(
        shop.service, plan, ledger=ledger, confirm=plan.confirmation, progress=progress
    )
    assert states(result) == {"succeeded": 61, "failed again": 10, "stopped": 20}
    reasons = result.frame.loc[result.frame["state"] == "stopped", "reason"]
    assert reasons.str.startswith("10 of the last 20 runs failed again (50 %)").all()


@pytest.mark.parametrize(
    "bad", ["failed again", "failed otherwise", "running", "unknown"]
)
@pytest.mark.parametrize(
    ("earlier", "last", "stop_above", "wave", "is_stopped"),
    [
        (1_000, 50, 0.2, 50, True),
        (1_000, 19, 0.2, 50, True),
        (1_000, 18, 0.2, 50, False),
        (1_000, 1, 0.2, 1, False),
        (1_000, 9, 0.2, 1, False),
        (1_000, 10, 0.2, 1, True),
        (1_000, 1, 0.01, 50, False),
        (1_000, 3, 0.01, 50, True),
        (1_000, 50, 1.0, 50, False),
    ],
)  # fmt: skip
def test_the_last_runs_are_judged_alone(
    bad: str, earlier: int, last: int, stop_above: float, wave: int, is_stopped: object
) -> None:
    """More of them must fail than chance explains: a single failure of small waves stops no group."""
    ended = ["succeeded"] * earlier + [bad] * last
    limits = Limits(stop_above=stop_above, wave=wave)
    assert bool(_recent_stop_reason(ended, limits)) is is_stopped
    # entries without a run say nothing
    assert bool(_recent_stop_reason([*ended, *["skipped"] * 60], limits)) is is_stopped


def test_entries_are_deleted_exactly(shop: Shop, ledger: Path) -> None:
    """Those of the plan, and no other one."""
    failed = shop.fail("deleted", 5)
    plan = tk.plan_redrive(failed.iloc[:3], actions="delete", canaries=2)
    assert states(run(shop, plan, ledger)) == {"deleted": 3}
    assert set(shop.failures("deleted", 2)["dlq_id"]) == set(failed["dlq_id"].iloc[3:])


def test_failure_functions_run_again(shop: Shop, ledger: Path) -> None:
    """Once for each entry, which stays in the DLQ; the outcome is that of the function."""
    failed = shop.fail(
        "function",
        2,
        **{"Failure-Callback": f"{shop.url}/broken", "Failure-Callback-Retries": "0"},
    )
    until = time.monotonic() + 20
    while (
        set(failed["failure_function_state"]) != {"CALLBACK_FAIL"}
        and time.monotonic() < until
    ):
        failed = shop.failures("function", 2)
    plan = tk.plan_redrive(failed, actions="failure function", stop_above=1)
    assert states(run(shop, plan, ledger)) == {"failed again": 2}
    shop.failures("function", 2)


def test_an_entry_that_leaves_while_its_failure_function_runs_is_unknown(
    shop: Shop, ledger: Path
) -> None:
    """The run says so, and does not wait for its deadline."""
    failed = shop.fail("leaves", 1, **{"Failure-Callback": f"{shop.url}/broken"})
    until = time.monotonic() + 20
    while (
        set(failed["failure_function_state"]) != {"CALLBACK_FAIL"}
        and time.monotonic() < until
    ):
        failed = shop.failures("leaves", 1)
    shop.held["broken"] = threading.Event()
    removed: list[bytes] = []

    def progress(_done: int, _total: int | None) -> None:
        if (
            not removed
            and ledger.exists()
            and "started" in set(tk.read_redrive_status(ledger).frame["state"])
        ):
            removed.append(
                shop.request("DELETE", f"/v2/workflows/dlq/{failed['dlq_id'].iloc[0]}")
            )

    plan = tk.plan_redrive(failed, actions="failure function")
    result = tk.run_redrive(
        shop.service, plan, ledger=ledger, confirm=plan.confirmation, progress=progress
    )
    shop.held["broken"].set()
    assert states(result) == {"unknown": 1}
    assert "left the DLQ" in result.frame["reason"].iloc[0]


@pytest.mark.parametrize("loss", ["request", "response"])
@pytest.mark.parametrize("action", ["resume", "restart", "delete"])
def test_what_was_lost_on_the_way_is_looked_into(
    shop: Shop, ledger: Path, loss: Loss, action: str
) -> None:
    """Every second request is lost before or after the service has seen it: each entry is acted on once."""
    name = f"{action}-{loss}"
    failed = shop.fail(name, 8)
    shop.mended.add(name)
    plan = tk.plan_redrive(failed, actions=action, idempotent=[f"{shop.url}/{name}"])  # type: ignore[arg-type]
    seen: Counter[str] = Counter()

    def decide(method: str, path: str) -> Loss:
        acting = method in {"POST", "DELETE"}
        if acting:
            seen[path] += 1
        return loss if acting and seen[path] == 1 and int(path[-1], 16) % 2 else None

    with proxy(shop.queue.url) as between:
        between.decide = decide
        service = tk.connect(queue_url=between.url, queue_token=shop.queue.token)
        result = tk.run_redrive(
            service, plan, ledger=ledger, confirm=plan.confirmation, progress=False
        )
    done = "deleted" if action == "delete" else "succeeded"
    assert states(result) == {done: 8}
    again = [
        shop.delivered[new_run_id(plan.hash, dlq_id)] for dlq_id in plan.frame["dlq_id"]
    ]
    assert set(again) == ({0} if action == "delete" else {1})
    assert len(shop.runs(name)) == (8 if action == "delete" else 16)


@pytest.mark.slow
def test_flow_control_limits_all_runs_together(shop: Shop, ledger: Path) -> None:
    """No more deliveries at once than the plan allows."""
    failed = pd.concat([shop.fail(name, 6) for name in ("few", "fewer")])
    shop.mended |= {"few", "fewer"}
    shop.slow |= {"few": 0.3, "fewer": 0.3}
    shop.most_at_once = 0
    result = run(shop, tk.plan_redrive(failed, parallelism=2), ledger)
    assert states(result) == {"succeeded": 12}
    assert shop.most_at_once == 2


def test_a_stop_is_kept_and_resumed(shop: Shop, ledger: Path) -> None:
    """Nothing is sent once it is stopped; the same call goes on from there."""
    failed = shop.fail("halted", 9)
    shop.mended.add("halted")
    plan = tk.plan_redrive(failed, wave=2)
    stop = threading.Event()

    def progress(done: int, _total: int | None) -> None:
        if done >= 3:
            stop.set()

    halted = tk.run_redrive(
        shop.service,
        plan,
        ledger=ledger,
        confirm=plan.confirmation,
        progress=progress,
        stop=stop,
    )
    assert not halted.finished
    assert states(halted)["waiting"] >= 2
    assert states(run(shop, plan, ledger)) == {"succeeded": 9}
    assert {
        shop.delivered[new_run_id(plan.hash, dlq_id)] for dlq_id in plan.frame["dlq_id"]
    } == {1}


_PROCESS = """
import os, sys
import toolkit as tk
url, token, plan, ledger = sys.argv[1:]
plan = tk.RedrivePlan.read(plan)
print("began", flush=True)
tk.run_redrive(tk.connect(queue_url=url, queue_token=token), plan, ledger=ledger, confirm=plan.confirmation,
    progress=False)
"""


@pytest.mark.slow
def test_killed_at_any_moment_nothing_is_done_twice(
    shop: Shop, queue: LocalService, ledger: Path, tmp_path: Path
) -> None:
    """A process that is killed again and again, and others that go on from its ledger."""
    failed = pd.concat([shop.fail(name, 20) for name in ("kill-a", "kill-b", "kill-c")])
    shop.mended |= {"kill-a", "kill-b"}
    plan = tk.plan_redrive(failed, wave=6)
    path = plan.save(tmp_path / "plan.json")
    kills = 0
    for seconds in (0.05, 0.1, 0.2, 0.3, 0.4, 0.6, 0.9, None):
        words = [
            sys.executable,
            "-c",
            _PROCESS,
            queue.url,
            queue.token,
            str(path),
            str(ledger),
        ]
        with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"began\n"
            try:
                process.wait(seconds)
            except subprocess.TimeoutExpired:
                process.kill()
                kills += 1
    result = tk.read_redrive_status(ledger)
    assert states(result) == {"succeeded": 40, "failed again": 1, "stopped": 19}
    assert kills >= 2
    runs = {
        row["workflowRunId"]
        for name in ("kill-a", "kill-b", "kill-c")
        for row in shop.runs(name)
    }
    assert len(runs) == 60 + 41
    again = result.frame.dropna(subset="run_id")
    assert {shop.delivered[run_id] for run_id in again["run_id"]} == {1}


def test_with_a_lost_ledger_the_runs_are_found_again(
    shop: Shop, ledger: Path, tmp_path: Path
) -> None:
    """They have the ids that the plan gives them: nothing is sent a second time, or called gone."""
    failed = shop.fail("ledgerless", 3)
    shop.mended.add("ledgerless")
    plan = tk.plan_redrive(failed)
    assert states(run(shop, plan, ledger)) == {"succeeded": 3}
    assert states(run(shop, plan, tmp_path / "another.sqlite")) == {"succeeded": 3}
    assert len(shop.runs("ledgerless")) == 6


def test_one_process_runs_with_a_ledger(shop: Shop, ledger: Path) -> None:
    """A second one is refused; what is done so far can be read meanwhile."""
    failed = shop.fail("locked", 3)
    shop.mended.add("locked")
    plan = tk.plan_redrive(failed)
    told: list[object] = []

    def progress(_done: int, _total: int | None) -> None:
        if not told:
            told.append(tk.read_redrive_status(ledger).verdict)
            with pytest.raises(LedgerLockedError, match="another process"):
                run(shop, plan, ledger)

    tk.run_redrive(
        shop.service, plan, ledger=ledger, confirm=plan.confirmation, progress=progress
    )
    assert told


def test_entries_that_come_back_are_linked_to_their_origin(
    shop: Shop, ledger: Path
) -> None:
    """Over several plans; and left by the next plan, unless they are included."""
    failed = shop.fail("chain", 1)
    first = str(failed["dlq_id"].iloc[0])
    for times in (1, 2):
        plan = tk.plan_redrive(
            failed, history=ledger if times > 1 else None, include=["returned"]
        )
        assert states(run(shop, plan, ledger)) == {"failed again": 1}
        failed = shop.failures("chain", 1)
    history = tk.read_redrive_history(ledger)
    assert history["origin"].tolist() == [first, first]
    assert history["times"].tolist() == [1, 2]
    assert history["plan"].nunique() == 2
    left = tk.plan_redrive(failed, history=ledger)
    assert left.frame["reason"].tolist() == ["an earlier redrive brought it back"]
    with pytest.raises(InputError, match="It has"):
        tk.read_redrive_status(ledger, plan="nothing")


def test_a_ledger_of_something_else_is_refused(shop: Shop, tmp_path: Path) -> None:
    """No file, another file and a newer version are clear errors."""
    other = tmp_path / "other.sqlite"
    other.write_text("not a database, but long enough to be read as one " * 30)
    for path in (other, tmp_path / "missing.sqlite"):
        with pytest.raises(InputError, match="ledger"):
            tk.read_redrive_status(path)
    assert other.read_text().startswith("not a database")


def test_the_plot_shows_what_became_of_each_group(shop: Shop, ledger: Path) -> None:
    """A bar a group, with a legend of outcomes."""
    failed = pd.concat([shop.fail(name, 3) for name in ("plot-a", "plot-b")])
    shop.mended.add("plot-a")
    result = run(shop, tk.plan_redrive(failed), ledger)
    axes = result.plot()
    legend = axes.get_legend() or axes.figure.legends[0]
    assert [text.get_text() for text in legend.get_texts()] == [
        "done",
        "failed again",
        "stopped or left",
    ]
