"""What the commands of a shell share: exit statuses, options that choose failures, and output."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, get_args

import toolkit as tk
from toolkit.client.failures import Kind
from toolkit.filters.failure import FIELDS

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
