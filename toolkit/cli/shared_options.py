"""Options that several commands have, and the help that all of them have."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Final, get_args

import toolkit as tk
from toolkit.base.errors import InputError
from toolkit.base.times import parse_duration
from toolkit.cli.exit_status import exit_help
from toolkit.cli.output import LogFormat, unknown_names_end
from toolkit.filters.failure_fields import FIELDS

PATH_ARGUMENTS: Final = frozenset(
    {
        "data_dir",
        "history",
        "ledger",
        "notebooks",
        "out",
        "output",
        "path",
        "pinned",
        "plan",
        "previous",
        "queries",
        "rules",
        "snapshot",
        "token_file",
    }
)
"""Names of arguments whose values are paths, except the `plan` of a status, which is a hash."""


class CommandParser(argparse.ArgumentParser):
    """The parser of a command, which accepts options between paths: ``verify A --max-age 1h B``.

    The parser of the standard library takes all values of one argument from one place in the command line. In
    Python 3.11, it also fails if nobody reads the help, as in ``toolkit --help | true``.
    """

    _is_intermixed = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse the options first, and then the paths, if there can be several.

        After ``--`` every word is a path, which the standard library handles only without that.
        """
        has_several = any(action.nargs == "+" for action in self._actions)
        if self._is_intermixed or not has_several or "--" in (args or ()):
            return super().parse_known_args(args, namespace)

        self._is_intermixed = True  # the method below calls this one
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._is_intermixed = False

    def _print_message(self, message: str, file: Any = None) -> None:
        with suppress(OSError):
            super()._print_message(message, file)


def add_command(
    commands: Any,
    name: str,
    run: Callable[[argparse.Namespace], int],
    summary: str,
    example: str,
) -> Callable[..., object]:
    """Add a command, with an example of the arguments. Return a function that adds an argument with help."""
    command: argparse.ArgumentParser = commands.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    command.epilog = f"example:\n  {command.prog} {example}\n\n{exit_help()}"
    command.set_defaults(run=run)
    what = "messages on standard error: plain lines, with the time, or one JSON object per event (plain)"
    command.add_argument(
        "--log-format", help=what, choices=get_args(LogFormat), default="plain"
    )

    return lambda argument, what, **options: command.add_argument(
        argument, help=what, **options
    )


def add_filters(command: argparse.ArgumentParser) -> None:
    """Add the options of a `FailureFilter`, and the kind of failures."""
    from toolkit.service.failures import Kind  # noqa: PLC0415 - heavy

    combined = "Different filters combine with AND, repeated ones with OR."
    group = command.add_argument_group("which failures", combined)

    for field in FIELDS.values():
        if field.option:
            several: dict[str, Any] = {"action": "append"} if field.many else {}
            read = int if field.kind == "status" else str
            group.add_argument(
                field.option,
                dest=field.name,
                metavar=field.metavar,
                help=field.help,
                type=read,
                **several,
            )

    kinds = "failed workflow runs, or failed plain messages (workflows)"
    what = "the filter may match nothing, as of a workflow that rightly has no failures (that is an error)"
    group.add_argument("--allow-no-match", help=what, action="store_true")
    group.add_argument(
        "--kind", choices=get_args(Kind), default="workflows", help=kinds
    )


@contextmanager
def unknown_values_end(given: argparse.Namespace, then: str = "") -> Iterator[None]:
    """Turn a warning about an unknown value of the filter into an error, unless you allow it."""
    if given.allow_no_match:
        yield
        return

    with unknown_names_end(
        begin="No failure matches", then=f"{then} --allow-no-match accepts the filter."
    ):
        yield


def add_snapshot_options(add: Callable[..., object]) -> None:
    """Add where a snapshot is, how often it is written, and how it is read."""
    add("path", "folder of the snapshot, made when missing; or s3://bucket/prefix")
    what = "repeat until Ctrl-C or SIGTERM: every 30s, 15m, 1h or 1d. Without it, run once, as for cron"
    add("--every", what, type=seconds_of, metavar="DURATION")
    what = "with --every: give up after N failed runs in a row (never; 3 for a refused token or damage)"
    add("--max-failures", what, type=_count, metavar="N")
    what = "file for the state of --every (PATH/_heartbeat.json of a local folder); see toolkit status"
    add("--heartbeat", what, type=Path, metavar="FILE")
    # Without --connections, SUPPRESS leaves the attribute out, and the default of the loader applies. A
    # default here would be a second copy of that number.
    what = "concurrent requests at most (16)"
    add("--connections", what, type=int, default=argparse.SUPPRESS, metavar="N")
    what = "requests per second, at most (as many as the service allows)"
    add(
        "--requests-per-second",
        what,
        type=float,
        default=argparse.SUPPRESS,
        metavar="N",
    )
    add(
        "--passes",
        "2 reads everything twice and compares (1)",
        type=int,
        choices=(1, 2),
        default=1,
    )


def _count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(
            f"got {text!r}; expected a whole number of at least 1"
        )

    return int(text)


def seconds_of(text: str) -> float:
    """Return the seconds of a duration, such as 1h, as the type of an option."""
    try:
        return parse_duration(text).total_seconds()
    except InputError as error:
        raise argparse.ArgumentTypeError(
            f"got {error.got}; expected {error.expected}"
        ) from None


def filter_of(
    given: argparse.Namespace, *, now: datetime | None = None
) -> tk.FailureFilter:
    """Return the filter that the options of `add_filters` describe."""
    chosen = {
        field.name: getattr(given, field.name)
        for field in FIELDS.values()
        if field.option
    }
    return tk.FailureFilter(now=now, **chosen)
