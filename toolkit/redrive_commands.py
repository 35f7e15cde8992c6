"""The commands ``toolkit redrive``: plan, run and status."""

from __future__ import annotations

import argparse
from typing import Any

import toolkit as tk
from toolkit.command_line import DONE, NOT_COMPLETE, add_command, add_filters, filter_of, say, status_of
from toolkit.errors import InputError
from toolkit.redaction import visible
from toolkit.redrive.plan import ACTIONS, LEAVE


def add_redrive(commands: Any) -> None:
    """Add the command and its options."""
    redrive = commands.add_parser("redrive", help="act on failures by a plan: plan, run, status")
    kinds = redrive.add_subparsers(required=True, metavar="WHAT")
    example = "toolkit redrive plan --since 2d --workflow-url URL --output plan.json"
    add = add_command(kinds, "plan", _plan, "plan what to do with failures; nothing is sent", example)
    add("--output", "file of the plan (plan.json)", default="plan.json", metavar="FILE")
    add("--action", "for all (resume, or restart where --changed names it)", choices=(*ACTIONS, LEAVE))
    what = "workflow URL whose runs may be restarted though that repeats side effects; repeatable"
    add("--idempotent", what, action="append", default=[], metavar="URL")
    what = "workflow URL whose code changed before the step that failed; repeatable"
    add("--changed", what, action="append", default=[], metavar="URL")
    what = 'what is left otherwise, such as "poison input"; repeatable'
    add("--include", what, action="append", default=[], metavar="WHAT")
    add("--history", "ledger of earlier redrives: what came back is left", metavar="FILE")
    add("--canaries", "entries of each group that go first (1)", type=int, default=1, metavar="N")
    add("--wave", "entries of a group that go together after that (50)", type=int, default=50, metavar="N")
    what = "share of a group that may fail again before it is stopped (0.2)"
    add("--stop-above", what, type=float, default=0.2, metavar="SHARE")
    add("--deadline", "how long a wave is waited for (10m)", default="10m", metavar="DURATION")
    add("--rate", "deliveries a second, of all runs together", type=int, metavar="N")
    add("--parallelism", "concurrent deliveries, of all runs together", type=int, metavar="N")
    add_filters(kinds.choices["plan"])
    example = "toolkit redrive run plan.json --confirm 120-1a2b3c4d"
    add = add_command(kinds, "run", _run, "run a plan, or continue it after an interrupt", example)
    add("plan", "file of the plan")
    add("--confirm", "what the plan's preview ends with", required=True, metavar="COUNT-HASH")
    add(
        "--ledger",
        "file that remembers every step (redrive.sqlite)",
        default="redrive.sqlite",
        metavar="FILE",
    )
    example = "toolkit redrive status --ledger redrive.sqlite"
    add = add_command(kinds, "status", _status, "how far a redrive is", example)
    add(
        "--ledger",
        "file that remembers every step (redrive.sqlite)",
        default="redrive.sqlite",
        metavar="FILE",
    )
    add("--plan", "the start of a plan's hash (the latest)", metavar="HASH")


def _plan(given: argparse.Namespace) -> int:
    if given.kind != "workflows":
        raise InputError("planning a redrive", got=f"--kind {given.kind}", expected="workflow runs")
    with tk.connect() as service:
        failures = tk.load_failures(service, filter_of(given))
    options = ("idempotent", "changed", "include", "history", "canaries", "wave", "stop_above", "deadline")
    limits = {name: getattr(given, name) for name in (*options, "rate", "parallelism")}
    plan = tk.plan_redrive(failures, actions=given.action, **limits)
    say(visible(repr(plan)))
    say(f"wrote {plan.save(given.output).resolve()}")
    return status_of(tk.receipt(failures))


def _run(given: argparse.Namespace) -> int:
    plan = tk.RedrivePlan.read(given.plan)
    with tk.connect() as service:
        result = tk.run_redrive(service, plan, ledger=given.ledger, confirm=given.confirm)
    say(visible(repr(result)))
    left = result.frame["state"].isin(("succeeded", "called", "deleted", "left"))
    return DONE if left.all() else NOT_COMPLETE


def _status(given: argparse.Namespace) -> int:
    say(visible(repr(tk.redrive_status(given.ledger, given.plan))))
    return DONE
