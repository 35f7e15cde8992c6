"""Judge a report for automation (``report --fail-on``): an exit status, and a verdict as the last line.

For example, ``toolkit report --fail-on new`` ends with status 4 if a group of failures is new, and prints
"--fail-on new: failed with status 4 (1 new group)".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from toolkit.cli.data_age import unjudged
from toolkit.cli.exit_status import ExitStatus
from toolkit.cli.output import print_message, print_result
from toolkit.drawing.wording import counted
from toolkit.secrets.redaction import visible

FAILURES: Final = ("new", "worse")
"""Values of ``--fail-on`` for a report on failures."""
VECTORS: Final = ("unhealthy",)
"""Values of ``--fail-on`` for a report on a vector index."""

_NAMED: Final = 5  # groups that a line names
_LONGEST_TITLE: Final = 120
_HOUR: Final = 3600


class Judgement(NamedTuple):
    """One reason to fail: a line that names everything, and a few words for the verdict."""

    status: ExitStatus
    reason: str
    brief: str


def judge_failures(
    report: Mapping[str, Any],
    fail_on: Sequence[str],
    status: ExitStatus,
    *,
    new_since: datetime | None = None,
    tell: Callable[[str], None] = print_result,
) -> ExitStatus:
    """Print the verdict on a failure report. Return the exit status.

    Parameters
    ----------
    report : mapping
        The report as values, of `FailureReport.to_dict`.
    fail_on : sequence of str
        Some of `FAILURES`.
    status : ExitStatus
        The exit status if no reason to fail is found.
    new_since : datetime, optional
        Groups that were first seen after this time count as new. If omitted, the start of the period of the
        report is used.
    tell : callable
        Prints the verdict.
    """
    not_judged = unjudged(report, fail_on, status)
    if not_judged is not None:
        asked = " ".join(f"--fail-on {name}" for name in fail_on)
        tell(f"{asked}: not judged, so status {not_judged.value}: {not_judged.summary}")
        return not_judged

    change = report["change"]
    compared = _compared(change, str(report["recent"]["until"]))

    judgements = list(_judgements(change, fail_on, compared, new_since))
    for judgement in judgements:
        print_message(
            visible(judgement.reason), event="fail-on", status=int(judgement.status)
        )

    return _concluded(fail_on, judgements, compared, status, tell)


def judge_index(
    healthy: bool | None,  # noqa: FBT001 - a fact
    verdict: str,
    status: ExitStatus,
    *,
    tell: Callable[[str], None] = print_result,
) -> ExitStatus:
    """Print the verdict on an index report; `healthy` is None if the index could not be judged."""
    if healthy:
        return _concluded(VECTORS, (), "healthy", status, tell)

    brief = "not judged" if healthy is None else "not healthy"
    judgement = Judgement(ExitStatus.UNHEALTHY, visible(verdict), brief)
    return _concluded(VECTORS, [judgement], "healthy", status, tell)


def _judgements(
    change: Mapping[str, Any],
    fail_on: Sequence[str],
    compared: str,
    new_since: datetime | None,
) -> Iterator[Judgement]:
    """Yield the reasons to fail, the most important first."""
    if "new" in fail_on and change["new_groups"]:
        yield _new_groups(change, new_since)
    if "worse" in fail_on and change["worse"]:
        reason = f"worse since {change['since']}: {change['failures']:,} failures"
        if change["expected"] is not None:
            reason += f", usually {change['expected']:,.0f} in such a time"
        if change["grown_groups"]:
            reason += f"; grown: {_named(change, change['grown_groups'])}"
        yield Judgement(ExitStatus.WORSE, reason, f"worse: {compared}")


def _new_groups(change: Mapping[str, Any], new_since: datetime | None) -> Judgement:
    since = change["since"]
    if new_since is not None:
        since = min(new_since, datetime.fromisoformat(since)).isoformat(
            timespec="milliseconds"
        )

    groups = change["new_groups"]
    reason = f"new since {since}: {_named(change, groups)}"
    return Judgement(ExitStatus.NEW, reason, counted(len(groups), "new group"))


def _named(change: Mapping[str, Any], groups: Sequence[str]) -> str:
    """Return the titles of groups, or of the first few if there are many."""
    titles = [
        f"{change['titles'][group][:_LONGEST_TITLE]} ({group})"
        for group in groups[:_NAMED]
    ]
    if len(groups) > _NAMED:
        titles.append(f"and {len(groups) - _NAMED:,} more")
    return "; ".join(titles)


def _compared(change: Mapping[str, Any], until: str) -> str:
    """Return the compared counts, for example "107 failures in 24 hours, usually 84"."""
    since = datetime.fromisoformat(change["since"])
    hours = (datetime.fromisoformat(until) - since).total_seconds() / _HOUR
    basis = f"{counted(change['failures'], 'failure')} in {hours:,.0f} hours"
    if change["expected"] is not None:
        basis += f", usually {change['expected']:,.0f}"
    return basis


def _concluded(
    fail_on: Sequence[str],
    judgements: Sequence[Judgement],
    basis: str,
    status: ExitStatus,
    tell: Callable[[str], None],
) -> ExitStatus:
    """Print the last line. Return the status of the first reason to fail, or `status` if no reason exists."""
    asked = " ".join(f"--fail-on {name}" for name in fail_on)
    if judgements:
        status = judgements[0].status
        brief = "; ".join(judgement.brief for judgement in judgements)
        tell(f"{asked}: failed with status {status.value} ({brief})")
    elif status:
        tell(f"{asked}: passed ({basis}), but status {status.value}: {status.summary}")
    else:
        tell(f"{asked}: passed ({basis})")

    return status
