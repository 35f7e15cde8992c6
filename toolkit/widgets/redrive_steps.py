"""Describe the steps and the outcomes of a redrive for the page: plan, canaries, waves, done."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from toolkit.drawing.wording import span
from toolkit.redrive.limits import Limits
from toolkit.redrive.plan import RedrivePlan
from toolkit.redrive.results import RedriveResult

_GOOD: Final = ("succeeded", "called", "deleted")
_BAD: Final = ("failed again", "failed otherwise", "refused")
_OPEN: Final = ("started", "running", "intended", "unknown")
_KINDS: Final = {
    **dict.fromkeys(_GOOD, "good"),
    **dict.fromkeys(_BAD, "bad"),
    **dict.fromkeys(_OPEN, "open"),
    **dict.fromkeys(("skipped", "not sent"), ""),
}
_NOT_SENT: Final = ("waiting", "stopped")


def steps_of(
    plan: RedrivePlan,
    result: RedriveResult | None,
    *,
    running: bool,
    in_waves: bool = False,
) -> list[dict[str, str]]:
    """Return the steps of a redrive, each with a title, a line about it, and a state.

    The state is "done", "now" or "" (later). For example, while the first canaries run, "Plan" is done, the
    canaries are now, and the waves come later. `in_waves` tells whether a plan that runs has sent a wave.
    """
    actions = plan.acted["action"].value_counts()
    planned = [f"{action} {number:,}" for action, number in actions.items()]
    steps = first_steps(plan.limits, ", ".join(planned) or "nothing to do")
    if result is not None and not running:
        in_waves = _has_wave(plan, result)
    states = _states_of(result, running=running, in_waves=in_waves)

    return [{**step, "state": state} for step, state in zip(steps, states, strict=True)]


def _states_of(
    result: RedriveResult | None, *, running: bool, in_waves: bool
) -> tuple[str, str, str, str]:
    """Return the states of the plan, the canaries, the waves and the end."""
    if not running:
        if result is None or _is_untouched(result):
            return "now", "", "", ""
        if result.finished:
            return "done", "done", "done", "done"

    if in_waves:
        # canaries of other groups may still run
        return "done", "now", "now", ""
    return "done", "now", "", ""


def _has_wave(plan: RedrivePlan, result: RedriveResult) -> bool:
    """Return whether a group has more entries that were sent than canaries."""
    states = result.frame["state"]
    sent = result.frame[~states.isin([*_NOT_SENT, "skipped", "left"])]
    return bool((sent["group"].value_counts() > plan.limits.canaries).any())


def first_steps(limits: Limits, planned: str) -> list[dict[str, str]]:
    """Return the steps before anything is sent. `planned` is the line about the plan."""
    stop = f"a group stops if more than {limits.stop_above:.0%} fail"
    return [
        {"title": "Plan", "text": planned, "state": "now"},
        {
            "title": f"Canaries: {limits.canaries:,}",
            "text": "of each group; the others wait for the outcome",
            "state": "",
        },
        {"title": f"Waves of {limits.wave:,}", "text": stop, "state": ""},
        {
            "title": "Done",
            "text": f"each wave ends within {span(timedelta(seconds=limits.deadline))}",
            "state": "",
        },
    ]


def _is_untouched(result: RedriveResult) -> bool:
    return bool(result.frame["state"].isin([*_NOT_SENT, "left"]).all())


def meter_of(result: RedriveResult) -> list[dict[str, Any]]:
    """Return the outcomes of the entries that the plan acts on, each with words, a count and a kind.

    The kind is "good", "bad" or "open". Entries that were not sent have none.
    """
    states = result.frame["state"]
    words = states[states != "left"].replace(dict.fromkeys(_NOT_SENT, "not sent"))
    counts = words.value_counts()

    return [
        {"word": word, "count": int(counts[word]), "kind": kind}
        for word, kind in _KINDS.items()
        if word in counts
    ]
