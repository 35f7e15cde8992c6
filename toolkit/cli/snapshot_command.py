"""``toolkit snapshot``: keep failures or vectors as Parquet, once or on a schedule."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import toolkit as tk
from toolkit.base.errors import InputError, ToolkitError
from toolkit.cli.exit_status import ExitStatus
from toolkit.cli.outcome import Outcome
from toolkit.cli.output import progress_lines, status_of, unknown_names_end
from toolkit.cli.service_connection import add_token_file, connected
from toolkit.cli.shared_options import (
    add_command,
    add_filters,
    add_snapshot_options,
    filter_of,
    unknown_values_end,
)
from toolkit.cli.terminal import say_wrapped
from toolkit.drawing.wording import counted


def add(commands: Any, summary: str) -> None:
    """Add the command, with the parts failures and vectors."""
    snapshot = commands.add_parser("snapshot", help=summary)
    kinds = snapshot.add_subparsers(required=True, metavar="WHAT")
    summary, example = (
        "bring a snapshot of the DLQ up to date",
        "snapshots/failures --every 1h",
    )
    add_option = add_command(kinds, "failures", _failures, summary, example)
    add_snapshot_options(add_option)
    add_token_file(add_option)
    what = (
        "bring back lost rows of a damaged snapshot: from the files, and from the queue"
    )
    add_option("--repair", what, action="store_true")
    what = "accept the token for this snapshot: once, if it was rotated and the entries cannot show it"
    add_option("--rebind", what, action="store_true")
    add_option(
        "--retention",
        "how long the service keeps failures, such as 3d, if you know it",
        metavar="AGE",
    )
    add_filters(kinds.choices["failures"])
    example = "snapshots/vectors --namespace runbooks --every 1d"
    add_option = add_command(
        kinds, "vectors", _vectors, "export a vector index", example
    )
    add_snapshot_options(add_option)
    add_token_file(add_option)
    what = 'repeatable; "" is the default namespace (all namespaces)'
    add_option("--namespace", what, action="append", metavar="NAME")


def _failures(given: argparse.Namespace) -> ExitStatus:
    chosen = filter_of(given)
    # An age, such as --since 2d, makes another filter an hour earlier. Fixed times make the same one.
    if (
        given.every is not None
        and filter_of(given, now=datetime.now(UTC) - timedelta(hours=1)) != chosen
    ):
        raise InputError(
            "syncing on a schedule",
            got="an age, which means different times at each run",
            expected="fixed times, or none",
            next_step="Sync everything, and choose when reading or reporting.",
        )

    named = ("kind", "repair", "rebind", "retention")
    options = {
        "filter": chosen,
        **_options(given),
        **{name: getattr(given, name) for name in named},
    }

    def run() -> Outcome:
        mistake = f" The snapshot {given.path} is empty and belongs to this filter: remove it."
        with connected(given, "queue") as service, unknown_values_end(given, mistake):
            changes = tk.sync_failures(
                service, given.path, progress=progress_lines("rows"), **options
            )
        given.allow_no_match = True  # one run has shown that the filter is meant
        # once: a later run with the token of another account is refused
        options["rebind"] = False
        complete = changes.receipt.complete and not changes.lost

        return Outcome(
            verdict=changes.verdict,
            receipt=changes.receipt,
            rows=changes.rows,
            status=ExitStatus.DONE if complete else ExitStatus.NOT_COMPLETE,
        )

    return _write(given, run)


def _vectors(given: argparse.Namespace) -> ExitStatus:
    options = _options(given) | {
        "namespace": "all" if given.namespace is None else given.namespace
    }

    def run() -> Outcome:
        with (
            connected(given, "vector") as service,
            unknown_names_end(begin="The index has no namespace"),
        ):
            receipt = tk.export_vectors(
                service, given.path, progress=progress_lines("rows"), **options
            )

        status = ExitStatus.DONE if receipt.complete else ExitStatus.NOT_COMPLETE
        return Outcome(
            verdict="exported", receipt=receipt, rows=receipt.rows, status=status
        )

    return _write(given, run)


def _options(given: argparse.Namespace) -> dict[str, Any]:
    """Return how the snapshot is read from the service."""
    named = ("connections", "requests_per_second", "passes")
    return {name: getattr(given, name) for name in named if hasattr(given, name)}


def _write(given: argparse.Namespace, run: Callable[[], Outcome]) -> ExitStatus:
    """Write once, or on a schedule."""
    from toolkit.cli.heartbeat import heartbeat_file  # noqa: PLC0415 - heavy
    from toolkit.cli.schedule import Schedule, SchedulePlan  # noqa: PLC0415 - heavy

    if given.every is not None:
        plan = SchedulePlan(every=given.every, max_failures=given.max_failures)
        schedule = Schedule(
            given.path, plan, heartbeat_file(given.path, given.heartbeat)
        )
        return schedule.run_until_stopped(run)

    for option in ("max_failures", "heartbeat"):
        if getattr(given, option) is not None:
            raise InputError(
                "writing a snapshot once",
                got=f"--{option.replace('_', '-')} without --every",
                expected="both, or neither",
                next_step="One run ends with its status; toolkit status has the age of the snapshot.",
            )

    try:
        outcome = run()
    except (ToolkitError, KeyboardInterrupt) as error:
        if note := _resumes(given.path):
            error.add_note(note)
        raise

    say_wrapped(f"{given.path}: {outcome.verdict}")
    status_of(outcome.receipt)
    return outcome.status


def _resumes(path: str) -> str:
    """Return a note about the rows that are kept of an unfinished load; empty if no rows are kept."""
    from toolkit.snapshots.manifest import read_checkpoint  # noqa: PLC0415 - heavy
    from toolkit.snapshots.object_store import open_store  # noqa: PLC0415 - heavy

    try:
        checkpoint, _ = read_checkpoint(open_store(path, None))
    except (ToolkitError, OSError):
        return ""

    if checkpoint is None:
        return ""

    rows = sum(file.rows for file in checkpoint.identities)
    return (
        f"Kept: {counted(rows, 'row')}. The same command resumes the load within a day."
    )
