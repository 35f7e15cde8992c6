"""Check every file of snapshots for damage: ``toolkit verify``."""

from __future__ import annotations

import argparse
from typing import Any

import toolkit as tk
from toolkit.base.errors import ToolkitError
from toolkit.cli.exit_status import ExitStatus
from toolkit.cli.output import print_message
from toolkit.cli.shared_options import add_command
from toolkit.cli.terminal import say_wrapped


def add(commands: Any, summary: str) -> None:
    """Add the command."""
    add_option = add_command(commands, "verify", _verify, summary, "snapshots/failures")
    add_option("path", "folder of a snapshot", nargs="+")
    what = "end with 6 if the last complete sync is longer ago (three times the usual time between syncs)"
    add_option("--max-age", what, metavar="DURATION")


def _verify(given: argparse.Namespace) -> ExitStatus:
    """Verify every snapshot, also if an earlier one is damaged."""
    status = ExitStatus.DONE
    for path in given.path:
        try:
            verified = tk.verify_snapshot(path, max_age=given.max_age)
        except ToolkitError as error:
            print_message(
                f"{path}: {error}", event="failed", path=path, error=str(error)
            )
            status = ExitStatus.FAILED
        else:
            say_wrapped(f"{path}: {verified}")
            if verified.out_of_date:
                print_message(
                    f"{path}: out of date: {verified.out_of_date}",
                    event="out of date",
                    path=path,
                )
                # a damaged snapshot outranks an old one: FAILED stays
                status = status or ExitStatus.TOO_OLD

    return status
