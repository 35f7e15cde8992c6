"""Results go to standard output, everything else to standard error."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from toolkit.cli.exit_status import ExitStatus
from toolkit.errors import UnexpectedResultWarning
from toolkit.receipt import Receipt


def say(text: str) -> None:
    """Print a result."""
    print(text, flush=True)  # noqa: T201 - the result


def write(content: bytes) -> None:
    """Write a result as it is, whatever the encoding of the output, for a program or file that takes it."""
    sys.stdout.flush()
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()


def complain(text: str) -> None:
    """Print a message about the command."""
    print(f"toolkit: {text}", file=sys.stderr)  # noqa: T201 - messages about it


def status_of(receipt: Receipt) -> ExitStatus:
    """Print what a load did. Return the exit status."""
    complain(str(receipt))
    return ExitStatus.DONE if receipt.complete else ExitStatus.NOT_COMPLETE


@contextmanager
def unknown_names_end(*, begin: str = "", then: str = "") -> Iterator[None]:
    """Turn a warning about an unknown name into an error.

    Parameters
    ----------
    begin : str
        How the message of the warning begins. Default: any.
    then : str
        What follows for the command, which is added to the message.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("error", re.escape(begin), UnexpectedResultWarning)
        try:
            yield
        except UnexpectedResultWarning as warning:
            raise UnexpectedResultWarning(f"{warning}{then}") from None
