"""Check that data can be judged: they are current, and reach far enough into the past to compare with.

An alarm that stays silent although nothing is known is worse than no alarm. ``--fail-on`` therefore never
passes on data that are too old, that end in the future, or that have no earlier period. For example, if the
nightly sync has stopped a week ago, ``report --fail-on new`` ends with status 6.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import toolkit as tk
from toolkit.base.errors import InputError
from toolkit.base.times import parse_time
from toolkit.cli.exit_status import ExitStatus
from toolkit.cli.output import print_message
from toolkit.tables.freshness import span_text

MAX_AGE_HELP: Final = (
    "how old the data may be: 2h, 1d, … Without it, three times the usual time between the syncs of a "
    "snapshot (an hour at least), or a day"
)
# the day that is judged, and half a day to compare it with
_LEAST_HISTORY: Final = timedelta(hours=36)


def refuse_short_history(chosen: tk.FailureFilter, *, has_previous: bool) -> None:
    """Raise `InputError` if a filter leaves no time before the last day to compare it with."""
    if chosen.since is None or has_previous:
        return

    since = parse_time(chosen.since)
    if datetime.now(UTC) - since >= _LEAST_HISTORY:
        return

    raise InputError(
        "judging failures (--fail-on)",
        got=f"only failures since {since:%Y-%m-%d %H:%M} UTC, without an earlier time to compare with",
        expected="failures of at least 36 hours: the day that is judged, and the time before it",
        next_step="Leave out --since, use a longer one such as --since 7d, or name an earlier snapshot with "
        "--previous.",
    )


def complain_of_age(report: Mapping[str, Any]) -> None:
    """Print the age of the data if they are out of date."""
    if sentence := age_sentence(report["data"]):
        print_message(sentence)


def age_sentence(data: Mapping[str, Any]) -> str:
    """Return a sentence if the data are too old or of the future; empty if they are current."""
    most = f"at most {span_text(timedelta(hours=data['max_age_hours']))} are allowed (--max-age)"
    match data["state"]:
        case "old":
            age = span_text(timedelta(hours=data["age_hours"]))
            return f"out of date: the data end at {data['until']}, {age} ago; {most}"
        case "ahead":
            return f"out of date: the data are of {data['until']}, which is in the future: a clock is wrong"

    return ""


def unjudged(
    report: Mapping[str, Any],
    fail_on: Sequence[str],
    status: ExitStatus = ExitStatus.DONE,
) -> ExitStatus | None:
    """Print why ``--fail-on`` cannot judge, and return the exit status; None if it can judge.

    If the load is not complete, as `status` tells, and no earlier period is known, that status is returned.
    """
    state = report["data"]["state"]
    if state != "current":
        reason = "the data are out of date"
        if state == "unknown":
            reason = "it is not known when these failures were loaded"
        print_message(f"--fail-on: not judged, as {reason}")
        return ExitStatus.TOO_OLD

    answers = {
        "new": report["change"]["new_groups"],
        "worse": report["change"]["worse"],
    }
    # None means that there was no earlier period. An empty list and False are answers.
    without_answer = {name for name, answer in answers.items() if answer is None}

    not_judged = [name for name in fail_on if name in without_answer]
    for name in not_judged:
        print_message(
            f"--fail-on {name}: not judged, as there is nothing earlier to compare with"
        )

    if not not_judged:
        return None

    return status or ExitStatus.TOO_OLD
