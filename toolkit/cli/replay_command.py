"""Send failed requests to an application on this machine again: ``toolkit replay``."""

from __future__ import annotations

import argparse
import json
from typing import Any

import toolkit as tk
from toolkit.base.errors import InputError
from toolkit.cli.exit_status import ExitStatus
from toolkit.cli.output import print_result
from toolkit.cli.service_connection import add_token_file, connected
from toolkit.cli.shared_options import add_command
from toolkit.cli.terminal import say_shortened
from toolkit.fixes.replaying import SUCCEEDED
from toolkit.secrets.redaction import visible

_PRINTED = ("curl", "python", "pytest")


def add(commands: Any, summary: str) -> None:
    """Add the command."""
    example = "dlq_8Zk2 --to http://localhost:3000"
    add_option = add_command(commands, "replay", _replay, summary, example)
    add_option("dlq_id", "id of an entry of the DLQ; several are possible", nargs="+")
    what = "address of the application; without a path, the original path is called"
    add_option("--to", what, metavar="URL")
    what = "print code that sends the request of one entry, and send nothing"
    add_option("--print", what, choices=_PRINTED)
    what = "sign with the signing keys of the environment"
    add_option("--sign", what, action="store_true")
    what = "host of --to, if it is another machine"
    add_option("--confirm", what, metavar="HOST")
    add_option(
        "--timeout", "time limit of a request (30s)", default="30s", metavar="DURATION"
    )
    add_token_file(add_option)
    add_option("--json", "one JSON object per request", action="store_true")


def _replay(given: argparse.Namespace) -> ExitStatus:
    if (given.to is None) == (given.print is None):
        raise InputError(
            "replaying failures",
            got="both --to and --print" if given.to else "neither --to nor --print",
            expected="the address of an application, or the kind of code to print",
        )

    with connected(given, "queue") as service:
        # the application gets the headers of the original delivery; printed code has placeholders for them
        entries = [
            tk.load_failure(service, dlq_id, reveal=given.to is not None)
            for dlq_id in given.dlq_id
        ]
        if given.print is not None:
            for entry in entries:
                print_result(_code(tk.reproduce(entry), given.print))
            return ExitStatus.DONE

        replays = [
            tk.replay_failure(
                entry,
                given.to,
                keys=service if given.sign else None,
                confirm=given.confirm,
                timeout=given.timeout,
                progress=False,
            )
            for entry in entries
        ]

    return _report(given, replays)


def _code(request: tk.results.FailedRequest, kind: str) -> str:
    if kind == "curl":
        return request.to_curl()
    if kind == "python":
        return request.to_python()

    return request.to_pytest()


def _report(given: argparse.Namespace, replays: list[tk.results.Replays]) -> ExitStatus:
    """Print a line per request. The status tells whether every request succeeded."""
    rows = [row for replay in replays for row in replay.frame.to_dict("records")]
    for row in rows:
        status = row["response_status"]
        if given.json:
            names = ("dlq_id", "outcome", "error", "sent_to", "seconds")
            printed = {name: row[name] for name in names}
            print_result(
                json.dumps(printed | {"response_status": _number(status)}, default=str)
            )
        else:
            line = f"{row['dlq_id']}  {row['outcome']}  {_number(status) or '-'}  {row['error'] or ''}"
            say_shortened(visible(line))

    if all(row["outcome"] == SUCCEEDED for row in rows):
        return ExitStatus.DONE

    return ExitStatus.NOT_COMPLETE


def _number(status: Any) -> int | None:
    return status if isinstance(status, int) else None
