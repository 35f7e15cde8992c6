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
    plan: RedrivePlan, result: RedriveResult | None, *, running: bool
) -> list[dict[str, str]]:
    """Return the steps of a redrive, each with a title, a line about it, and a state.

    The state is "done", "now" or "" (later). For example, while the plan runs, "Plan" is done, and the
    waves are now.
    """
    begun = running or (result is not None and not _is_untouched(result))
    ended = result is not None and result.finished and not running
    sending = ""
    if begun:
        sending = "done" if ended else "now"
    actions = plan.acted["action"].value_counts()
    planned = ", ".join(f"{action} {number:,}" for action, number in actions.items())
    steps = first_steps(plan.limits, planned or "nothing to do")
    states = ("done" if begun else "now", sending, sending, "done" if ended else "")
    return [{**step, "state": state} for step, state in zip(steps, states, strict=True)]


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
