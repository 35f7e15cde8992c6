"""Describe explanations in words: the sentence of the verdict, and names, numbers, places and times."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from toolkit.base.time_zones import time_text
from toolkit.drawing.wording import counted, percent
from toolkit.failures.selection import NONE
from toolkit.reports.evidence import Evidence, Story
from toolkit.reports.periods import Trend

# if an explanation has more, only the most frequent workflow is named
_WORKFLOWS: Final = 5


def explained_in_words(evidence: Evidence | None) -> str:
    """Return the second sentence of the verdict: the largest explanation, its end, and new groups."""
    if evidence is None:
        return ""
    trend, sentences = evidence.trend, []
    if evidence.stories:
        first = evidence.stories[0]
        sentences.append(
            f"the largest explanation is {named(evidence, first, first.name)}: {number_of(evidence, first)} "
            f"({percent(first.share)}) {when_in_words(first, is_current=evidence.is_current)}"
        )
    if trend.worse or trend.direction == "better":
        sentences.append(_rate_in_words(trend))
    elif (sentences or trend.compared) and trend.direction:
        steady = f"the last 24 hours show {trend.overall}"
        if trend.compared:
            steady = trend.words
        sentences.append(steady)
    if trend.new and (sentences or trend.compared):
        titles = evidence.groups.set_index("group")["title"]
        new = f"new is {titles[trend.new[0]]}"
        if len(trend.new) > 1:
            new += f" and {len(trend.new) - 1:,} more"
        sentences.append(new)
    if not sentences:
        return ""
    text = "; ".join(sentences)
    return f" {text[0].upper()}{text[1:]}."


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


def number_of(evidence: Evidence, story: Story) -> str:
    """Return the number of failures of an explanation, or an estimate from a sample."""
    return f"{about_in_words(evidence)}{counted(story.observed, 'failure')}"


def about_in_words(evidence: Evidence) -> str:
    """Return the word before numbers that are estimated from a sample."""
    if evidence.sampled:
        return "about "
    return ""


def places_in_words(
    evidence: Evidence, story: Story, stated: Collection[str] = ()
) -> str:
    """Return the workflows of an explanation, with common values that are not stated elsewhere.

    For example ``"orders, billing (caller ip 10.0.0.7)"`` or ``"12 workflows, the most in orders"``.
    """
    own = story.shared.get("workflow_url")
    workflows = story.workflows
    if own:
        workflows = [own]
    names = ", ".join(name for name in workflows if name != NONE) or "no known workflow"
    if own and story.workflow_count > 1:
        names += " mostly"
    elif story.workflow_count > _WORKFLOWS:
        names = f"{story.workflow_count:,} workflows, the most in {story.workflows[0]}"
        if evidence.sampled:
            # a sample may lack some workflows
            names = f"at least {names}"
    shown = {*story.shared} - {*stated}
    also = [
        name for name in ("flow_control_key", "caller_ip", "label") if name in shown
    ]
    if not also:
        return names
    shared = ", ".join(
        f"{name.replace('_', ' ')} {story.shared[name]}" for name in also
    )
    return f"{names} ({shared})"


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
