"""What commands share (exit statuses, options that choose failures, output), and ``toolkit redrive``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, get_args

import toolkit as tk
from toolkit.client.failures import Kind
from toolkit.errors import InputError
from toolkit.filters.failure import FIELDS
from toolkit.redaction import visible
from toolkit.redrive.plan import ACTIONS, LEAVE

DONE: Final = 0
FAILED: Final = 1
NOT_COMPLETE: Final = 3
NEW: Final = 4
WORSE: Final = 5
INTERRUPTED: Final = 130

EXIT_HELP: Final = """\
exit status: 0 done, 1 error, 2 command line not understood, 3 load or redrive not complete, 4 new and
5 worse (with --fail-on, before 3), 130 interrupted"""


def add_command(
    commands: Any, name: str, run: Callable[[argparse.Namespace], int], summary: str, example: str
) -> Callable[..., object]:
    """Add a command. Returns a function that adds an argument to it: its name, its help, and options."""
    command: argparse.ArgumentParser = commands.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=f"example:\n  {example}\n\n{EXIT_HELP}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    command.set_defaults(run=run)
    return lambda argument, what, **options: command.add_argument(argument, help=what, **options)


def add_filters(command: argparse.ArgumentParser) -> None:
    """Add the options that choose failures."""
    combined = "Different filters combine with AND, repeated ones with OR."
    group = command.add_argument_group("which failures", combined)
    for field in FIELDS.values():
        if field.option:
            several: dict[str, Any] = {"action": "append", "default": []} if field.many else {}
            read = int if field.kind == "status" else str
            group.add_argument(
                field.option, dest=field.name, metavar=field.metavar, help=field.help, type=read, **several
            )
    kinds = "failed workflow runs, or failed plain messages (workflows)"
    group.add_argument("--kind", choices=get_args(Kind), default="workflows", help=kinds)


def filter_of(given: argparse.Namespace, *, now: datetime | None = None) -> tk.FailureFilter:
    """The filter that the options choose."""
    chosen = {field.name: getattr(given, field.name) for field in FIELDS.values() if field.option}
    return tk.FailureFilter(now=now, **chosen)


def status_of(receipt: tk.Receipt) -> int:
    """Say what a load did; returns the exit status."""
    complain(str(receipt))
    return DONE if receipt.complete else NOT_COMPLETE


def say(text: str) -> None:
    """Print a line of the result."""
    print(text, flush=True)  # noqa: T201 - the result


def complain(text: str) -> None:
    """Print a line about the command, on standard error."""
    print(f"toolkit: {text}", file=sys.stderr)  # noqa: T201 - messages about it


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
