"""Define the exit statuses of all commands, in one table.

You find the same table in ``docs/command-line.md``; a test compares them.
"""

from __future__ import annotations

import shutil
import textwrap
from enum import IntEnum
from typing import Final, Self

NARROWEST: Final = 60
"""Columns for which output is made at least. On a narrower terminal, the terminal breaks the lines."""

_WIDTH: Final = 79


class ExitStatus(IntEnum):
    """How a command ended.

    Attributes
    ----------
    summary : str
        A few words, for the help of every command.
    meaning : str
        When a command ends with it.
    """

    summary: str
    meaning: str

    def __new__(cls, value: int, summary: str, meaning: str) -> Self:
        """Make a status with a summary and a meaning."""
        # The first item of a member's tuple is the number. The others become attributes of the member.
        status = int.__new__(cls, value)
        status._value_ = value
        status.summary = summary
        status.meaning = meaning

        return status

    DONE = (
        0,
        "done",
        "The command has succeeded. `serve` also ends with this status when it is stopped.",
    )
    FAILED = (
        1,
        "error",
        "Nothing came of it: an error, or an unknown name or filter value. Standard error explains it.",
    )
    # argparse itself ends with 2
    USAGE = 2, "command line not understood", "The usage is on standard error."
    NOT_COMPLETE = (
        3,
        "not complete",
        "Done, but a load or redrive is not complete, rows are lost, or a replayed request did not succeed.",
    )
    NEW = (
        4,
        "new (with --fail-on)",
        "With `--fail-on new` or `watch --once`: a group of failures was never seen before.",
    )
    WORSE = (
        5,
        "worse (with --fail-on)",
        "With `--fail-on worse` or `watch --once`: failures come at a higher rate than before.",
    )
    TOO_OLD = (
        6,
        "data too old",
        "Data are too old, or have nothing to compare with, for `--fail-on`; too old for `verify`, `status`.",
    )
    UNHEALTHY = (
        7,
        "unhealthy (with --fail-on)",
        "`--fail-on unhealthy`: the index is not healthy or not judged. `--fail-below`: answers changed.",
    )
    STILL_FAILING = (
        8,
        "still failing (check-fix)",
        "`check-fix`: the failures continue after the fix, or are back again.",
    )
    NOT_KNOWN = (
        9,
        "not yet known (check-fix)",
        "`check-fix`: too few failures were expected since the fix. Wait as long as the line shows.",
    )
    # 128 + 2, as shells report a process that SIGINT (signal 2) has ended
    INTERRUPTED = (
        130,
        "interrupted",
        "Interrupted before the end, by Ctrl-C or SIGTERM.",
    )


def exit_help() -> str:
    """Return the statuses as one paragraph of a help text."""
    summaries = ", ".join(f"{status.value} {status.summary}" for status in ExitStatus)
    return textwrap.fill(
        f"exit status: {summaries}", help_width(), break_on_hyphens=False
    )


def help_width() -> int:
    """Return the width of paragraphs in a help text: the columns of the terminal, from 60 to 79."""
    return min(max(shutil.get_terminal_size().columns, NARROWEST), _WIDTH)
