"""Act on failures by a plan: ``toolkit redrive``."""

from __future__ import annotations

import argparse
import json
import shlex
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final

import toolkit as tk
from toolkit.base.errors import InputError
from toolkit.cli.exit_status import ExitStatus
from toolkit.cli.output import (
    Progress,
    logged_progress,
    print_result,
    progress_lines,
    status_of,
)
from toolkit.cli.service_connection import add_token_file, connected
from toolkit.cli.shared_options import (
    add_command,
    add_filters,
    filter_of,
    unknown_values_end,
)
from toolkit.cli.terminal import say_table, say_wrapped
from toolkit.redrive.choices import ACTIONS, LEAVE
from toolkit.redrive.ledger import Ledger
from toolkit.redrive.results import waiting_of
from toolkit.secrets.redaction import visible

_PROGRESS: Final = 10.0  # seconds between lines about a run
# seconds: whoever started a run sees at once that it waits
_FIRST_PROGRESS: Final = 1.0

_PLANNED: Final = ["title", "workflow_url", "action", "count", "reason"]
_RAN: Final = ["title", "workflow_url", "action", "state", "count", "reason"]
_ALL: Final = "print all rows of the table, not the first 20"


def add(commands: Any, summary: str) -> None:
    """Add the command, with the parts plan, run and status."""
    redrive = commands.add_parser("redrive", help=summary)
    kinds = redrive.add_subparsers(required=True, metavar="WHAT")
    _add_plan(kinds)
    summary, example = (
        "run a plan, or continue it after an interrupt",
        "plan.json --confirm 120-1a2b3c4d5e6f7081",
    )
    add_to_run = add_command(kinds, "run", _run, summary, example)
    add_to_run("plan", "file of the plan")
    what = "the code at the end of the preview of the plan"
    add_to_run("--confirm", what, required=True, metavar="COUNT-HASH")
    add_token_file(add_to_run)
    example = "--ledger redrive.sqlite"
    add_to_status = add_command(
        kinds, "status", _status, "show the progress of a redrive", example
    )
    add_to_status(
        "--plan", "first characters of the hash of a plan (the latest)", metavar="HASH"
    )
    what = "file in which every step is stored (redrive.sqlite)"
    for add_option in (add_to_run, add_to_status):
        add_option("--ledger", what, default="redrive.sqlite", metavar="FILE")
        add_option("--all", _ALL, action="store_true")


def _add_plan(kinds: Any) -> None:
    example = "--since 2d --workflow-url URL --output plan.json"
    summary = "plan a redrive of failures; nothing is sent"
    add_option = add_command(kinds, "plan", _plan, summary, example)
    add_option(
        "--output", "file of the plan (plan.json)", default="plan.json", metavar="FILE"
    )
    what = "action for all (resume, or restart if --changed names the workflow)"
    add_option("--action", what, choices=(*ACTIONS, LEAVE))
    what = "workflow URL whose runs may be restarted, although that repeats side effects; repeatable"
    add_option("--idempotent", what, action="append", default=[], metavar="URL")
    what = "workflow URL whose code changed before the step that failed; repeatable"
    add_option("--changed", what, action="append", default=[], metavar="URL")
    what = 'failures that are excluded by default, such as "poison input"; repeatable'
    add_option("--include", what, action="append", default=[], metavar="WHAT")
    add_option(
        "--history",
        "ledger of earlier redrives: entries that came back are left",
        metavar="FILE",
    )
    what = "entries of each group that go first (1)"
    add_option("--canaries", what, type=int, default=1, metavar="N")
    what = "entries of a group that go together after that (50)"
    add_option("--wave", what, type=int, default=50, metavar="N")
    what = "share of a group that may fail again before it is stopped (0.2)"
    add_option("--stop-above", what, type=float, default=0.2, metavar="SHARE")
    add_option(
        "--deadline",
        "how long to wait for a wave (10m)",
        default="10m",
        metavar="DURATION",
    )
    add_option(
        "--rate", "deliveries per second, of all runs together", type=int, metavar="N"
    )
    add_option(
        "--parallelism",
        "concurrent deliveries, of all runs together",
        type=int,
        metavar="N",
    )
    what = "print the preview as one JSON object: counts, groups, confirmation, file"
    add_option("--json", what, action="store_true")
    add_option("--all", _ALL, action="store_true")
    add_token_file(add_option)
    add_filters(kinds.choices["plan"])


def _plan(given: argparse.Namespace) -> ExitStatus:
    if given.kind != "workflows":
        raise InputError(
            "planning a redrive", got=f"--kind {given.kind}", expected="workflow runs"
        )

    with (
        connected(given, "queue") as service,
        unknown_values_end(given, " No plan is written."),
    ):
        failures = tk.load_failures(
            service, filter_of(given), progress=progress_lines("failures")
        )

    options = (
        "idempotent",
        "changed",
        "include",
        "history",
        "canaries",
        "wave",
        "stop_above",
        "deadline",
    )
    limits = {name: getattr(given, name) for name in (*options, "rate", "parallelism")}
    plan = tk.plan_redrive(failures, actions=given.action, **limits)
    saved = plan.save(
        given.output
    ).resolve()  # before anything is printed, as the reader may leave early
    # before the preview, which ends with its command
    status = status_of(tk.get_receipt(failures))

    if given.json:
        print_result(json.dumps(_preview(plan, saved)))
    else:
        print_result(f"wrote {saved}")
        say_wrapped(visible(plan.verdict))
        say_table(plan.groups[_PLANNED], is_whole=given.all)

        for row in plan.groups.drop_duplicates("class")[["class", "advice"]].to_dict(
            "records"
        ):
            say_wrapped(visible(f"{row['class']}: {row['advice']}"))

        # one line, which can be copied whatever the width
        print_result(
            f"toolkit redrive run {shlex.quote(given.output)} --confirm {plan.confirmation}"
        )

    return status


def _preview(plan: tk.RedrivePlan, saved: Path) -> dict[str, Any]:
    """Return the preview of a plan as JSON-able values, masked."""
    columns = ["group", "title", "workflow_url", "action", "count", "reason", "advice"]
    groups = json.loads(plan.groups[columns].to_json(orient="records"))

    return {
        "failures": len(plan.frame),
        "actions": {
            str(name): int(count)
            for name, count in plan.frame["action"].value_counts().items()
        },
        "groups": groups,
        "file": str(saved),
        "confirmation": plan.confirmation,
    }


def _run(given: argparse.Namespace) -> ExitStatus:
    plan = tk.RedrivePlan.read(given.plan)
    with connected(given, "queue") as service:
        progress = _progress(plan, given.ledger)
        result = tk.run_redrive(
            service, plan, ledger=given.ledger, confirm=given.confirm, progress=progress
        )

    _show(result, given)
    is_done = result.frame["state"].isin(("succeeded", "called", "deleted", "left"))
    if is_done.all():
        return ExitStatus.DONE

    return ExitStatus.NOT_COMPLETE


def _progress(plan: tk.RedrivePlan, ledger: str) -> Progress:
    """Return a `progress=` that writes the state of the run at intervals, also in a terminal."""

    def describe(done: int, total: int | None, seconds: float) -> str:
        parts = [f"{done:,} of {total or 0:,} entries after {seconds:,.0f} s"]
        with suppress(InputError), closing(Ledger(ledger, make=False)) as opened:
            parts += waiting_of(plan, opened).words(time.time())
        return visible("; ".join(parts))

    return logged_progress(describe, every=_PROGRESS, first_after=_FIRST_PROGRESS)


def _status(given: argparse.Namespace) -> ExitStatus:
    _show(tk.read_redrive_status(given.ledger, given.plan), given)
    return ExitStatus.DONE


def _show(result: tk.results.RedriveResult, given: argparse.Namespace) -> None:
    say_wrapped(visible(result.verdict))
    if result.frame["state"].ne("left").any():
        say_table(result.groups[_RAN], is_whole=given.all)
