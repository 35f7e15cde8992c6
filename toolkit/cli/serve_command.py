"""``toolkit serve``: the embedded service."""

from __future__ import annotations

import argparse
from typing import Any

from toolkit.cli.local_packages import local_packages
from toolkit.cli.shared_options import add_command
from toolkit.local.startup import add_arguments


def add(commands: Any, summary: str) -> None:
    """Add the command."""
    add_command(commands, "serve", _serve, summary, "--port 8080 --sample")
    add_arguments(commands.choices["serve"])


def _serve(given: argparse.Namespace) -> int:
    with local_packages("running the embedded service"):
        from toolkit.local.serve import run  # noqa: PLC0415 - it needs the extra [local]
        from toolkit_demo.faults.middleware import Faults  # noqa: PLC0415 - the same
        from toolkit_demo.filling import fill  # noqa: PLC0415 - the same
    return run(given, fill=fill, interception=Faults.read(given.faults))
