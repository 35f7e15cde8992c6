"""Watch a dead letter queue: ``toolkit watch``."""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from typing import Any

from toolkit.cli.exit_status import ExitStatus
from toolkit.cli.outcome import Outcome
from toolkit.cli.output import message_line, write_line
from toolkit.cli.service_connection import add_token_file, connected
from toolkit.cli.shared_options import add_command, seconds_of


def add(commands: Any, summary: str) -> None:
    """Add the command."""
    example = "snapshots/failures --every 30s --notify desktop"
    add_option = add_command(commands, "watch", _watch, summary, example)
    add_option("path", "folder of the snapshot, made when missing")
    what = "time between two looks (30s), until Ctrl-C or SIGTERM"
    add_option("--every", what, type=seconds_of, default=30.0, metavar="DURATION")
    what = "report new and worse groups: desktop, or the address of a webhook"
    add_option("--notify", what, metavar="WHERE")
    what = "host of the webhook, if it is another machine"
    add_option("--confirm", what, metavar="HOST")
    what = "look once, and end with 4 if a group is new, with 5 if one is worse"
    add_option("--once", what, action="store_true")
    add_token_file(add_option)


def _watch(given: argparse.Namespace) -> ExitStatus:
    from toolkit.cli.heartbeat import heartbeat_file  # noqa: PLC0415 - heavy
    from toolkit.cli.schedule import Schedule, SchedulePlan  # noqa: PLC0415 - heavy
    from toolkit.cli.terminal import say_wrapped  # noqa: PLC0415 - heavy
    from toolkit.failures.notices import sender_of  # noqa: PLC0415 - heavy
    from toolkit.failures.watching import Watch  # noqa: PLC0415 - heavy

    send = sender_of(given.notify, given.confirm)

    with connected(given, "queue") as service:
        watch = Watch(service, given.path, send=send)

        def run() -> Outcome:
            look = ExitStack()
            found = look.enter_context(watch.looking())
            status = ExitStatus.DONE
            if not found.receipt.complete:
                status = ExitStatus.NOT_COMPLETE
            if found.worse:
                status = ExitStatus.WORSE
            if found.new:
                status = ExitStatus.NEW
            if found.unsent:
                # nobody has heard of the groups, and jobs are silent for the other statuses
                status = ExitStatus.FAILED
                event = message_line(
                    found.unsent, event="not notified", path=given.path
                )
                write_line(sys.stderr, event)
            verdict = "; ".join(
                [found.summary, *watch.titles((*found.new, *found.worse))]
            )
            return Outcome(verdict, found.receipt, found.rows, status, look.close)

        if given.once:
            outcome = run()
            say_wrapped(f"{given.path}: {outcome.verdict}")
            sys.stdout.flush()
            if outcome.shown is not None:
                outcome.shown()
            return outcome.status

        schedule = Schedule(
            given.path,
            SchedulePlan(every=given.every),
            heartbeat_file(given.path, None),
        )
        return schedule.run_until_stopped(run)
