"""Ask pinned queries again and compare the answers: ``toolkit check-queries``."""

from __future__ import annotations

import argparse
from typing import Any

import toolkit as tk
from toolkit.cli.exit_status import ExitStatus
from toolkit.cli.output import print_message
from toolkit.cli.service_connection import add_token_file, connected
from toolkit.cli.shared_options import add_command
from toolkit.cli.terminal import say_wrapped
from toolkit.secrets.redaction import visible

_SHOWN = 5


def add(commands: Any, summary: str) -> None:
    """Add the command."""
    example = "pinned.parquet --fail-below 0.9"
    add_option = add_command(commands, "check-queries", _check, summary, example)
    add_option("path", "file of pin_queries")
    what = (
        "end with 7 if the rank-biased overlap of a query is lower (0 to 1), a document was deleted, "
        "or scores moved as with another model"
    )
    add_option("--fail-below", what, type=float, metavar="SHARE")
    add_token_file(add_option)


def _check(given: argparse.Namespace) -> ExitStatus:
    """Print the verdict, and the queries whose answers changed most."""
    with connected(given, "vector") as service:
        found = tk.check_queries(service, given.path)
    redactor = service.redactor
    say_wrapped(visible(redactor.text(found.verdict)))

    for row in found.changed.head(_SHOWN).to_dict("records"):
        lost = ", ".join(row["lost"][:_SHOWN]) or "nothing"
        line = f"{row['order']:.3f}  {row['asked']}: lost {lost}"
        say_wrapped(visible(redactor.text(line)))

    if given.fail_below is None or found.passes(given.fail_below):
        return ExitStatus.DONE

    lowest = found.frame["order"].min()
    print_message(
        f"--fail-below {given.fail_below:g}: failed, the lowest rank-biased overlap is {lowest:.3f}",
        event="fail-below",
    )
    return ExitStatus.UNHEALTHY
