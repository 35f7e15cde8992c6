"""``toolkit snapshot``: keep failures or vectors as Parquet, once or on a schedule."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import toolkit as tk
from toolkit.cli.exit_status import ExitStatus
from toolkit.cli.output import complain, say, status_of, unknown_names_end
from toolkit.cli.shared_options import add_command, add_filters, add_snapshot_options, filter_of
from toolkit.errors import InputError, SettingsError, SnapshotBindingError, ToolkitError


def add(commands: Any, summary: str) -> None:
    """Add the command and its parts."""
    snapshot = commands.add_parser("snapshot", help=summary)
    kinds = snapshot.add_subparsers(required=True, metavar="WHAT")
    summary, example = "bring a snapshot of the DLQ up to date", "snapshots/failures --every 1h"
    add_option = add_command(kinds, "failures", _failures, summary, example)
    add_snapshot_options(add_option)
    what = "bring back what a damaged snapshot has lost: from its files, and from the queue"
    add_option("--repair", what, action="store_true")
    what = "accept the token for this snapshot: once, if it was rotated and the entries cannot show it"
    add_option("--rebind", what, action="store_true")
    add_option(
        "--retention", "how long the service keeps failures, such as 3d, if you know it", metavar="AGE"
    )
    add_filters(kinds.choices["failures"])
    example = "snapshots/vectors --namespace runbooks --every 1d"
    add_option = add_command(kinds, "vectors", _vectors, "export a vector index", example)
    add_snapshot_options(add_option)
    what = 'repeatable; "" is the default namespace (all namespaces)'
    add_option("--namespace", what, action="append", metavar="NAME")


def _failures(given: argparse.Namespace) -> ExitStatus:
    chosen = filter_of(given)
    if given.every is not None and filter_of(given, now=datetime.now(UTC) - timedelta(hours=1)) != chosen:
        raise InputError(
            "syncing on a schedule",
            got="an age, which means different times at each run",
            expected="fixed times, or none",
            next_step="Sync everything, and choose when reading or reporting.",
        )

    named = ("kind", "repair", "rebind", "retention")
    options = {"filter": chosen, **{name: getattr(given, name) for name in named}}
    return _write(given, tk.sync_failures, **options)


def _vectors(given: argparse.Namespace) -> ExitStatus:
    namespace = "all" if given.namespace is None else given.namespace
    with unknown_names_end():
        return _write(given, tk.export_vectors, namespace=namespace)


def _write(given: argparse.Namespace, write: Callable[..., Any], **options: Any) -> ExitStatus:
    """Write once, or on a schedule. Errors that another run may not repeat are then reported and retried."""
    from toolkit.snapshots.resumable import repeat, sigterm_as_interrupt  # noqa: PLC0415 - heavy

    named = ("connections", "requests_per_second", "passes")
    options |= {name: getattr(given, name) for name in named if hasattr(given, name)}

    def run() -> tuple[str, tk.Receipt]:
        with tk.connect() as service:
            done = write(service, given.path, **options)
        return ("exported", done) if isinstance(done, tk.Receipt) else (done.verdict, done.receipt)

    def report() -> None:
        began = f"{datetime.now(UTC).isoformat(timespec='seconds')} {given.path}"
        try:
            verdict, receipt = run()
        except (SettingsError, InputError, SnapshotBindingError):
            raise
        except ToolkitError as error:
            complain(f"{began}: {error}")
        else:
            say(f"{began}: {verdict}; {receipt.verdict}")
            options.pop("rebind", None)  # once: a later run with the token of another account is refused

    with sigterm_as_interrupt():
        if given.every is None:
            verdict, receipt = run()
            say(f"{given.path}: {verdict}")
            return status_of(receipt)
        try:
            repeat(report, every=given.every)
        except KeyboardInterrupt:
            complain("stopped; the next run resumes an unfinished load")
            return ExitStatus.DONE
