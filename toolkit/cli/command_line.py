"""Read the command line, run the command, and turn errors into an exit status.

Addresses and tokens come from the environment alone (`toolkit.connect`): every user of a machine can read
command lines. `exit_status` lists the exit statuses.
"""

from __future__ import annotations

import argparse
import signal
import sys
import textwrap
import threading
import warnings
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from io import TextIOWrapper
from typing import Any, Final

from toolkit.base.errors import (
    IncompleteLoadError,
    IncompleteLoadWarning,
    ToolkitError,
    UnexpectedResultWarning,
)
from toolkit.cli.exit_status import ExitStatus, exit_help, help_width
from toolkit.cli.output import (
    abandon_broken_streams,
    log_format,
    open_closed_streams,
    print_message,
)
from toolkit.cli.shared_options import PATH_ARGUMENTS, CommandParser
from toolkit.drawing.wording import counted
from toolkit.version import __version__

COMMANDS: Final = {
    "demo": "run the main job end to end",
    "serve": "run the embedded service",
    "snapshot": "keep failures or vectors as Parquet",
    "report": "report on failures, or on a vector index",
    "redrive": "act on failures by a plan: plan, run, status",
    "replay": "send failed requests again, or print them as code",
    "check-fix": "whether a group of failures has stopped since a fix",
    "watch": "follow the queue, and report groups that are new or worse",
    "status": "how old snapshots are, and what their schedules do",
    "verify": "check every file of snapshots",
    "query": "search a vector index by text",
    "pin-queries": "store queries with their answers, to check them later",
    "check-queries": "ask pinned queries again, and compare the answers",
    "completion": "print a script that completes commands in bash, zsh or fish",
}
"""The commands with their summaries. Each is defined in the module ``toolkit.cli.NAME_command``."""

_SERVICE_HELP: Final = (
    "The service is found through the environment: TOOLKIT_QUEUE_URL and TOOLKIT_QUEUE_TOKEN, "
    "TOOLKIT_VECTOR_URL and TOOLKIT_VECTOR_TOKEN, or the public service's own QSTASH_TOKEN, "
    "UPSTASH_VECTOR_REST_URL and UPSTASH_VECTOR_REST_TOKEN."
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Parameters
    ----------
    arguments : sequence of str, optional
        If omitted, the arguments of this process.

    Returns
    -------
    int
        The exit status, one of `toolkit.cli.exit_status.ExitStatus`.

    Examples
    --------
    >>> main(["verify", "no-such-snapshot"])
    1
    """
    if arguments is None:
        arguments = sys.argv[1:]
    words = list(arguments)
    open_closed_streams()
    _show_any_character()

    with warnings.catch_warnings(), sigterm_as_interrupt():
        # a load that is not complete ends with status 3 and the reasons; the warning would repeat them
        warnings.simplefilter("ignore", IncompleteLoadWarning)
        # a mistyped label or namespace is reported like an error, without the line of code that warned
        warnings.simplefilter("always", UnexpectedResultWarning)
        warnings.showwarning = lambda message, *_, **__: print_message(
            str(message), event="warning"
        )

        try:
            # The first word is the command. The modules of all other commands are not imported.
            given = build_parser(words[:1]).parse_args(words)
            vars(given).update(
                {name: _as_utf8(name, value) for name, value in vars(given).items()}
            )
        except KeyboardInterrupt:
            print_message("interrupted", event="interrupted")
            return int(ExitStatus.INTERRUPTED)
        except SystemExit:  # after help or a mistake, which may be in a buffer
            abandon_broken_streams()
            raise

        with log_format(given.log_format):
            status = _run(given)
        abandon_broken_streams()
        return int(status)


def _show_any_character() -> None:
    """Let the output escape characters that the encoding lacks, for example in the locale "C"."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _as_utf8(name: str, value: Any) -> Any:
    """Return the value of an argument with the characters that the locale "C" passes as surrogates.

    For example, the two surrogates of an "é" become that letter. Paths stay as they are: the system finds
    files by the surrogates.
    """
    if isinstance(value, list):
        return [_as_utf8(name, item) for item in value]
    if name in PATH_ARGUMENTS or not isinstance(value, str):
        return value

    return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _run(given: argparse.Namespace) -> int:
    """Run a command. Explain errors on standard error."""
    try:
        return int(given.run(given))
    except (ToolkitError, UnexpectedResultWarning) as error:
        # A loader turns Ctrl-C into an error with the rows read so far. For the shell it is still an
        # interrupt.
        if isinstance(error, IncompleteLoadError) and isinstance(
            error.__cause__, KeyboardInterrupt
        ):
            rows = _rows_of(error.partial)
            print_message(
                f"interrupted; the rows that were read ({rows}) are not kept",
                event="interrupted",
            )
            return ExitStatus.INTERRUPTED

        return _failed(error)
    except UnicodeEncodeError as error:
        print_message(
            f"naming a file: got characters that the encoding {error.encoding} of this locale lacks; "
            "expected a locale with UTF-8. Set LC_ALL=C.UTF-8, or PYTHONUTF8=1."
        )
        return ExitStatus.FAILED
    except KeyboardInterrupt as stopped:
        print_message(_with_notes("interrupted", stopped), event="interrupted")
        return ExitStatus.INTERRUPTED
    except BrokenPipeError:  # the reader of the output has ended
        return ExitStatus.FAILED


def _failed(error: Exception) -> ExitStatus:
    print_message(_with_notes(str(error), error), event="failed", error=str(error))
    return ExitStatus.FAILED


def _with_notes(text: str, error: BaseException) -> str:
    """Return a message with the notes of the error, for example how to continue."""
    notes = getattr(error, "__notes__", ())
    if not notes:
        return text

    return " ".join((f"{text.rstrip('.')}.", *notes))


@contextmanager
def sigterm_as_interrupt() -> Iterator[None]:
    """Handle SIGTERM as Ctrl-C, so that every command ends in order and with the same status."""
    # Python sets signal handlers in the main thread only, and `main` may be called in another one.
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def build_parser(chosen: Collection[str] = tuple(COMMANDS)) -> argparse.ArgumentParser:
    """Return the parser of the command line.

    Parameters
    ----------
    chosen : collection of str
        The commands whose options are needed. The others only have a name and a summary, which saves the
        time of importing them. If omitted, all commands have their options.
    """
    parser = CommandParser(
        prog="toolkit",
        description="Failed runs and vector indexes: load, keep, report, query.",
        epilog=f"{textwrap.fill(_SERVICE_HELP, help_width())}\n\n{exit_help()}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"toolkit {__version__}")
    commands = parser.add_subparsers(
        required=True, metavar="COMMAND", parser_class=CommandParser
    )

    for name, summary in COMMANDS.items():
        if name in chosen:
            module = name.replace("-", "_")
            import_module(f"toolkit.cli.{module}_command").add(commands, summary)
        else:
            commands.add_parser(name, help=summary)

    return parser


def _rows_of(partial: Any) -> str:
    if partial is None:
        return counted(0, "row")
    return counted(len(partial), "row")
