"""Store queries with their present answers, to check them later: ``toolkit pin-queries``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import toolkit as tk
from toolkit.base.errors import InputError
from toolkit.cli.exit_status import ExitStatus
from toolkit.cli.output import unknown_names_end
from toolkit.cli.service_connection import add_token_file, connected
from toolkit.cli.shared_options import add_command
from toolkit.cli.terminal import say_wrapped
from toolkit.drawing.wording import counted


def add(commands: Any, summary: str) -> None:
    """Add the command."""
    example = "pinned.parquet --query 'connection refused' --query 'disk full' --namespace runbooks"
    add_option = add_command(commands, "pin-queries", _pin, summary, example)
    add_option("path", "the Parquet file to write")
    add_option(
        "--query", "text of a query; repeatable", action="append", metavar="TEXT"
    )
    add_option("--queries", "file of queries, one per line", metavar="FILE")
    add_option("--top-k", "answers per query (10)", type=int, default=10, metavar="N")
    what = "namespace to search (the default one)"
    add_option("--namespace", what, default="", metavar="NAME")
    add_token_file(add_option)


def _pin(given: argparse.Namespace) -> ExitStatus:
    """Write the file, and print how many answers it has."""
    queries = [*(given.query or ()), *_lines(given.queries)]
    if not queries:
        raise InputError(
            "pinning queries",
            got="no queries",
            expected="--query TEXT, or --queries FILE with one query per line",
        )

    with (
        connected(given, "vector") as service,
        unknown_names_end(begin="The index has no namespace"),
    ):
        pinned = tk.pin_queries(
            service, queries, given.path, k=given.top_k, namespace=given.namespace
        )

    answers = counted(len(pinned), "answer")
    say_wrapped(f"pinned {answers} of {len(queries):,} queries in {given.path}")
    return ExitStatus.DONE


def _lines(path: str | None) -> list[str]:
    """Return the lines of a file that are not empty."""
    if path is None:
        return []

    try:
        text = Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            "reading the file of --queries",
            got=f"{path!r}, which cannot be read ({type(error).__name__})",
            expected="a text file with one query per line",
        ) from None

    return [line.strip() for line in text.splitlines() if line.strip()]
