"""Whether data can be judged: they reach up to now, and far enough into the past to compare with.

An alarm that stays silent because nothing is known is worse than none. ``--fail-on`` therefore never passes
on data that are too old, that end in the future, or that have nothing to compare with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import toolkit as tk
from toolkit.cli.exit_status import ExitStatus
from toolkit.cli.output import complain
from toolkit.errors import InputError
from toolkit.freshness import span_text
from toolkit.times import parse_time

MAX_AGE_HELP: Final = (
    "how old the data may be: 2h, 1d, … Without it, three times the usual time between the syncs of a "
    "snapshot (an hour at least), or a day"
)
_LEAST_HISTORY: Final = timedelta(hours=36)  # the day that is judged, and half a day to compare it with


def refuse_short_history(chosen: tk.FailureFilter, *, has_previous: bool) -> None:
    """Raise `InputError` if a filter leaves nothing to compare the last day with."""
    if chosen.since is None or has_previous:
        return
    since = parse_time(chosen.since)
    if datetime.now(UTC) - since >= _LEAST_HISTORY:
        return
    raise InputError(
        "judging failures (--fail-on)",
        got=f"failures since {since:%Y-%m-%d %H:%M} UTC alone, so nothing earlier to compare with",
        expected="at least 36 hours of them: the day that is judged, and the time before it",
        next_step="Leave out --since, use a longer one such as --since 7d, or name an earlier snapshot with "
        "--previous.",
    )


def complain_of_age(report: Mapping[str, Any]) -> None:
    """Print the age of the data if they are out of date."""
    if sentence := age_sentence(report["data"]):
        complain(sentence)


def age_sentence(data: Mapping[str, Any]) -> str:
    """Return what is wrong with the age of the data; "" if nothing is."""
    most = f"at most {span_text(timedelta(hours=data['max_age_hours']))} are allowed (--max-age)"
    match data["state"]:
        case "old":
            age = span_text(timedelta(hours=data["age_hours"]))
            return f"out of date: the data end at {data['until']}, {age} ago; {most}"
        case "ahead":
            return f"out of date: the data are of {data['until']}, which is in the future: a clock is wrong"
    return ""


def unjudged(
    report: Mapping[str, Any], fail_on: Sequence[str], status: ExitStatus = ExitStatus.DONE
) -> ExitStatus | None:
    """Print why ``--fail-on`` cannot judge, and return the status of that; None if it can.

    A load that is not complete, whose `status` tells so, keeps it if there is nothing to compare with.
    """
    state = report["data"]["state"]
    if state == "unknown":
        complain("--fail-on: not judged, as nothing tells when these failures were loaded")
        return ExitStatus.TOO_OLD
    if state != "current":
        complain("--fail-on: not judged, as the data are out of date")
        return ExitStatus.TOO_OLD
    facts = {"new": report["change"]["new_groups"], "worse": report["change"]["worse"]}
    unknown = [name for name in fail_on if name in facts and facts[name] is None]
    for name in unknown:
        complain(f"--fail-on {name}: not judged, as there is nothing earlier to compare with")
    if not unknown:
        return None
    return status or ExitStatus.TOO_OLD
