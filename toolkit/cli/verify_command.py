"""``toolkit verify``: whether snapshots are undamaged."""

from __future__ import annotations

import argparse
from typing import Any

import toolkit as tk
from toolkit.cli.exit_status import ExitStatus
from toolkit.cli.output import say
from toolkit.cli.shared_options import add_command


def add(commands: Any, summary: str) -> None:
    """Add the command."""
    add_option = add_command(commands, "verify", _verify, summary, "snapshots/failures")
    add_option("path", "folder of a snapshot", nargs="+")


def _verify(given: argparse.Namespace) -> ExitStatus:
    for path in given.path:
        say(f"{path}: {tk.verify_snapshot(path)}")
    return ExitStatus.DONE
