"""Run the main job from end to end: ``toolkit demo``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from toolkit.cli.exit_status import ExitStatus
from toolkit.cli.local_packages import local_packages
from toolkit.cli.output import print_message, print_result
from toolkit.cli.shared_options import add_command


def add(commands: Any, summary: str) -> None:
    """Add the command."""
    add_option = add_command(commands, "demo", _demo, summary, "--out out --runs 200")
    what = "where everything is written (out)"
    add_option("--out", what, type=Path, default=Path("out"), metavar="DIR")
    add_option(
        "--runs", "workflow runs to start (200)", type=int, default=200, metavar="N"
    )
    what = "notebooks to execute (notebooks/, if it exists)"
    add_option("--notebooks", what, type=Path, metavar="DIR")


def _demo(given: argparse.Namespace) -> ExitStatus:
    with local_packages("running the demo"):
        from toolkit_service.demo.run import run_demo  # noqa: PLC0415 - it needs the extra [local]
    notebooks = given.notebooks or Path("notebooks")
    done = run_demo(
        given.out, runs=given.runs, notebooks=notebooks if notebooks.is_dir() else None
    )
    for title, path in done.outputs():
        print_result(f"{title:<10} {path}")
    for problem in done.problems:
        print_message(problem)
    if done.problems:
        return ExitStatus.FAILED

    return ExitStatus.DONE
