"""Describe explanations in words: the sentence of the verdict, and names, numbers, places and times."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from toolkit.base.time_zones import time_text
from toolkit.drawing.wording import counted, percent
from toolkit.failures.selection import NONE
from toolkit.reports.board import Problem
from toolkit.reports.evidence import Evidence, Story
from toolkit.reports.periods import Trend

# if an explanation has more, only the most frequent workflow is named
_WORKFLOWS: Final = 5


def explained_in_words(
    evidence: Evidence | None, problems: Sequence[Problem] = ()
) -> str:
    """Return the second sentence of the verdict: what is ongoing, the largest explanation, and new groups.

    The newest ongoing problem comes first, as in the headline, unless it is the largest explanation.
    """
    if evidence is None:
        return ""

    trend = evidence.trend
    clauses = _stories_in_words(evidence, problems)
    if trend.worse or trend.direction == "better":
        clauses.append(_rate_in_words(trend))
    # a steady rate and new groups are worth a sentence only next to others, or if there is an earlier load
    elif trend.direction and (clauses or trend.compared):
        clauses.append(_steady_in_words(trend))

    if trend.new and (clauses or trend.compared):
        clauses.append(_new_in_words(evidence, trend.new))
    if not clauses:
        return ""

    sentence = "; ".join(clauses)
    return f" {sentence[0].upper()}{sentence[1:]}."


def _largest_in_words(evidence: Evidence, story: Story) -> str:
    title = named(evidence, story, story.name)
    share = percent(story.share)
    when = when_in_words(story, is_current=evidence.is_current)

    return f"the largest explanation is {title}: {number_of(story)} ({share}) {when}"


def _steady_in_words(trend: Trend) -> str:
    if trend.compared:
        return trend.words
    return f"the last 24 hours show {trend.overall}"


def _new_in_words(evidence: Evidence, new: list[str]) -> str:
    """Return the title of the largest new group, for example "new is no route to host and 2 more"."""
    titles = evidence.groups.set_index("group")["title"]
    words = f"new is {titles[new[0]]}"
    if len(new) > 1:
        words += f" and {len(new) - 1:,} more"
    return words


def _stories_in_words(evidence: Evidence, problems: Sequence[Problem]) -> list[str]:
    """Return a clause about the newest ongoing explanation, and one about the largest explanation."""
    if not evidence.stories:
        return []

    clauses = []
    ongoing = ongoing_explanations(problems)
    if ongoing and ongoing[0].explanation != 1:
        clauses.append(_newest_in_words(evidence, ongoing))
    clauses.append(_largest_in_words(evidence, evidence.stories[0]))

    return clauses


def ongoing_explanations(problems: Sequence[Problem]) -> list[Problem]:
    """Return the problems that an explanation describes and that continue, the newest first."""
    ongoing = [
        problem
        for problem in problems
        if problem.explanation is not None and problem.is_ongoing
    ]
    return sorted(ongoing, key=lambda problem: problem.since, reverse=True)


def _newest_in_words(evidence: Evidence, ongoing: Sequence[Problem]) -> str:
    """Return a sentence about the newest ongoing problem, and the number of ongoing problems."""
    newest = ongoing[0]
    story = evidence.stories[int(newest.explanation or 1) - 1]
    if len(ongoing) == 1:
        begin = "1 problem is ongoing,"
    else:
        begin = f"{len(ongoing)} problems are ongoing, the newest is"

    since = time_text(newest.since)
    words = named(evidence, story, story.name)
    return f"{begin} {words}: {number_of(story)} ({percent(story.share)}) since {since}"


def _rate_in_words(trend: Trend) -> str:
    """Return how the rate changed, for example "the last 24 hours are worse than before"."""
    if trend.compared:
        return f"since {time_text(trend.since)}: {trend.words}"

    # "no clear change in all, but 2 groups grew" needs another verb
    verb = "are"
    if trend.direction == "the same":
        verb = "show"
    return f"the last 24 hours {verb} {trend.words}"


def named(evidence: Evidence, story: Story, name: str) -> str:
    """Return the name of an explanation with the workflows and the common values not named yet."""
    return f"{name}, in {places_in_words(evidence, story, story.stated)}"


def number_of(story: Story) -> str:
    """Return the number of failures of an explanation, or an estimate from a sample."""
    return f"{story.about}{counted(story.observed, 'failure')}"


def places_in_words(
    evidence: Evidence, story: Story, stated: Collection[str] = ()
) -> str:
    """Return the workflows of an explanation, with common values that are not stated elsewhere.

    For example ``"orders, billing (caller ip 10.0.0.7)"`` or ``"12 workflows, the most in orders"``.
    """
    names = _workflows_in_words(evidence, story)
    shown = {*story.shared} - {*stated}
    also = [name for name in _NAMED_VALUES if name in shown]
    if not also:
        return names

    values = [f"{name.replace('_', ' ')} {story.shared[name]}" for name in also]
    return f"{names} ({', '.join(values)})"


_NAMED_VALUES: Final = ("flow_control_key", "caller_ip", "label")


def _workflows_in_words(evidence: Evidence, story: Story) -> str:
    """Return the workflow that most failures share, a few workflows, or the number of many."""
    most = story.shared.get("workflow_url")
    if most and story.workflow_count > 1:
        return f"{_listed([most])} mostly"
    if most:
        return _listed([most])
    if story.workflow_count <= _WORKFLOWS:
        return _listed(story.workflows)

    names = f"{story.workflow_count:,} workflows, the most in {story.workflows[0]}"
    if evidence.sampled:
        # a sample may lack some workflows
        return f"at least {names}"

    return names


def _listed(workflows: list[str]) -> str:
    known = [name for name in workflows if name != NONE]
    return ", ".join(known) or "no known workflow"


def when_in_words(story: Story, *, is_current: bool = True) -> str:
    """Return when an explanation began and ended, for example "since 2026-03-01 09:10, and ongoing"."""
    start, stop = time_text(story.start), time_text(story.stop)
    number = ""
    if story.episodes > 1:
        number = f"in {story.episodes} episodes "
    if story.goes_on and is_current:
        return f"{number}since {start}, and ongoing"
    # if the data are old, nobody knows whether the failures continued after the last row
    if story.goes_on:
        return f"{number}since {start}, until the data end"
    if number:
        return f"{number}between {start} and {stop}"

    return f"from {start} until {stop}"


def episodes_note(story: Story) -> str:
    """Return the number of episodes for the name of an explanation; "" for a single one."""
    if story.kind == "steady":
        return " (all the time)"
    if story.period:
        return f" ({story.period} UTC)"
    if story.episodes > 1:
        return f" ({story.episodes} episodes)"

    return ""
