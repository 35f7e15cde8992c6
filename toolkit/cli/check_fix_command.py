"""Check whether a group of failures has stopped since a fix: ``toolkit check-fix``."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any, Final

import toolkit as tk
from toolkit.cli.exit_status import ExitStatus
from toolkit.cli.output import print_result, progress_lines
from toolkit.cli.service_connection import add_token_file, connected
from toolkit.cli.shared_options import add_command
from toolkit.cli.terminal import say_wrapped
from toolkit.fixes.checking import BACK, FAILING, NOT_KNOWN, STOPPED
from toolkit.secrets.redaction import visible

if TYPE_CHECKING:
    import pandas as pd

    from toolkit.failures.sources import AnyFrame

_STATUSES: Final = {
    STOPPED: ExitStatus.DONE,
    NOT_KNOWN: ExitStatus.NOT_KNOWN,
    FAILING: ExitStatus.STILL_FAILING,
    BACK: ExitStatus.STILL_FAILING,
}


def add(commands: Any, summary: str) -> None:
    """Add the command."""
    example = "3f2a9c --since 2026-03-01T12:00Z --snapshot snapshots/failures"
    add_option = add_command(commands, "check-fix", _check, summary, example)
    add_option(
        "group",
        "id of the group, or the beginning of it, with or without s8-; see toolkit report",
    )
    what = "when the fix was deployed everywhere: a time, or an age such as 2h"
    add_option("--since", what, required=True, metavar="TIME")
    what = "read the failures from a snapshot instead of asking the service"
    add_option("--snapshot", what, metavar="DIR")
    what = "compare failures per run, with the run log of the service"
    add_option("--per-run", what, action="store_true")
    what = "rules of groups, as in group_failures"
    add_option("--rules", what, metavar="FILE")
    add_token_file(add_option)
    add_option("--json", "one JSON object", action="store_true")


def _check(given: argparse.Namespace) -> ExitStatus:
    failures, runs = _load(given)
    check = tk.check_fix(
        failures, given.group, given.since, runs=runs, rules=given.rules
    )
    if given.json:
        print_result(json.dumps(check.to_dict()))
    else:
        say_wrapped(visible(check.summary))
        say_wrapped(visible(f"{check.group}: {check.title}"))

    return _STATUSES[check.state]


def _load(given: argparse.Namespace) -> tuple[AnyFrame, pd.DataFrame | None]:
    """Return the failures, and the runs if they are asked for.

    A snapshot is opened, because a frame of it lacks the words that its signatures have learned.
    """
    if given.snapshot is not None and not given.per_run:
        return tk.open_snapshot(given.snapshot), None

    runs = None
    with connected(given, "queue") as service:
        failures: AnyFrame
        if given.snapshot is None:
            failures = tk.load_failures(service, progress=progress_lines("failures"))
        else:
            failures = tk.open_snapshot(given.snapshot)

        if given.per_run:
            runs = tk.load_runs(service, progress=progress_lines("runs"))

    return failures, runs
