"""What a redrive does with an entry, and why: derived from the options and from what is known of the entry.

`plan_redrive` derives it from failures. A plan that is read from a file derives it again from its entries, so
that an action cannot come from the text of the file.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import msgspec
import pandas as pd

from toolkit.analysis.classes import REFUSED

Action: TypeAlias = Literal["resume", "restart", "failure function", "delete", "leave"]
ACTIONS: Final = ("resume", "restart", "failure function", "delete")
LEAVE: Final = "leave"
RETURNED: Final = "returned"
MASKED: Final = "masked body"
TRUNCATED: Final = "truncated body"

RESUME: Final = "resume"
RESTART: Final = "restart"


@dataclass(frozen=True)
class Recommendation:
    """What is recommended for the failures of a class.

    Attributes
    ----------
    action : {"resume", "restart", "leave"}
        What a plan does unless its options tell otherwise.
    advice : str
        What to do first, and what then, in one or two sentences.
    then : {"resume", "restart", "leave"}
        What a plan does after that, with the options that state that it is done.
    """

    action: str
    advice: str
    then: str


_UNLESS_CHANGED: Final = "If a step before the failed one changed as well, name the workflow in changed="
_RECOMMENDED: Final = {
    "bug": Recommendation(RESUME, f"Fix the code, then resume the runs. {_UNLESS_CHANGED}.", RESUME),
    "contract drift": Recommendation(
        LEAVE, "Agree on the format with the other side, then resume the runs.", RESUME
    ),
    "poison input": Recommendation(
        LEAVE, "Look at the inputs: a retry fails again until they are fixed or removed.", LEAVE
    ),
    "throttled": Recommendation(
        RESUME,
        "Lower the rate (a flow-control key, fewer at once), then resume the runs a few at a time.",
        RESUME,
    ),
    "authentication": Recommendation(RESUME, "Renew the credentials, then resume the runs.", RESUME),
    "configuration": Recommendation(RESUME, "Fix the settings, then resume the runs.", RESUME),
    "resource exhaustion": Recommendation(
        RESUME, "Give it more room, or smaller portions, then resume the runs.", RESUME
    ),
    "dependency down": Recommendation(
        RESUME, "Wait until the dependency is up, then resume the runs.", RESUME
    ),
    "transient": Recommendation(RESUME, "Resume the runs.", RESUME),
    REFUSED: Recommendation(
        LEAVE,
        "The application asked not to retry. Correct the input that it refused, then start new runs.",
        LEAVE,
    ),
}
_OTHERWISE: Final = Recommendation(
    RESUME, "Look at one of them first: the response names no class of failure. Then resume the runs.", RESUME
)


def recommended(found_class: str) -> Recommendation:
    """Return what is recommended for the failures of a class.

    Plans, panels, reports and the command line show this and nothing else, so that they agree.

    >>> recommended("bug").action, recommended("contract drift").action
    ('resume', 'leave')
    """
    return _RECOMMENDED.get(found_class, _OTHERWISE)


_WOULD_FAIL: Final = tuple(name for name, one in _RECOMMENDED.items() if one.action == LEAVE)
LEFT_OUT: Final = (*sorted(_WOULD_FAIL, reverse=True), RETURNED, MASKED, TRUNCATED)
"""What is left unless it is included: classes, and what is known of an entry."""

GONE: Final = "gone"
NO_FUNCTION: Final = "no failure function"
MARKS: Final = (GONE, RETURNED, MASKED, TRUNCATED, NO_FUNCTION)
"""What may be known of an entry, in the order in which the column ``marks`` lists it."""

_BETWEEN: Final = ", "


def marks_of(rows: pd.DataFrame, returned: frozenset[str]) -> list[str | None]:
    """Return what is known of each failure, as the column ``marks`` lists it; None for nothing."""
    bodies = rows.get("body", pd.Series(None, index=rows.index, dtype="str"))
    flags = {
        GONE: rows["gone_before"].notna() if "gone_before" in rows else False,
        RETURNED: rows[["dlq_id", "workflow_run_id"]].isin(returned).any(axis=1),
        MASKED: bodies.str.contains("REDACTED:", regex=False, na=False),
        TRUNCATED: bodies.map(_truncated).astype(bool),
        NO_FUNCTION: rows.get("failure_callback", rows["dlq_id"]).isna(),
    }
    known = pd.DataFrame(flags, index=rows.index)[list(MARKS)].astype(bool)
    return [joined_marks(name for name, is_known in zip(MARKS, row, strict=True) if is_known)
            for row in known.itertuples(index=False)]  # fmt: skip


def joined_marks(names: Any) -> str | None:
    """Marks as one text, in their order; None for none."""
    given = frozenset(names)
    return _BETWEEN.join(mark for mark in MARKS if mark in given) or None


def split_marks(text: str | None) -> list[str]:
    """The marks of a text of `joined_marks`."""
    return [] if text is None or pd.isna(text) else text.split(_BETWEEN)


@dataclass(frozen=True)
class Choices:
    """What the options of a plan mean for each entry."""

    actions: Mapping[str, str] | str | None
    idempotent: frozenset[str]
    changed: frozenset[str]
    included: frozenset[str]

    def decided(self, rows: pd.DataFrame) -> tuple[list[str], list[str]]:
        """Return the action and the reason of each row, which has the columns of a plan."""
        facts = rows[["group", "class", "marks"]].assign(
            message=rows["workflow_run_id"].isna(),
            changed=rows["workflow_url"].isin(self.changed),
            idempotent=rows["workflow_url"].isin(self.idempotent),
        )
        decisions = [self.of(entry) for entry in facts.drop_duplicates().to_dict("records")]  # a few
        alike = facts.groupby([*facts], sort=False, dropna=False).ngroup()
        return [decisions[n][0] for n in alike], [decisions[n][1] for n in alike]

    def of(self, entry: dict[Hashable, Any]) -> tuple[str, str]:
        """Return the action for an entry, and the reason."""
        marks = split_marks(entry["marks"])
        action = (
            self.actions.get(entry["group"], LEAVE) if isinstance(self.actions, Mapping) else self.actions
        )
        repeats = (action == "restart" or (action is None and entry["changed"])) and not entry["idempotent"]
        kept = {*LEFT_OUT} - self.included
        again = kept if action in (None, "resume", "restart") else ()
        reasons = {
            "as requested": action == LEAVE,
            "it is a plain message, not a run": entry["message"],
            "it has left the queue": GONE in marks,
            "an earlier redrive brought it back": RETURNED in kept and RETURNED in marks,
            "it has no failure function": action == "failure function" and NO_FUNCTION in marks,
            "refused: the application asked not to retry": entry["class"] == REFUSED and REFUSED in again,
            f"{entry['class']}: it would fail again": entry["class"] in again,
            f"{MASKED}: it may not be what the run got": MASKED in again and MASKED in marks,
            f"{TRUNCATED}: it may not be what the run got": TRUNCATED in again and TRUNCATED in marks,
            "an earlier step has changed: resuming is unsafe": action == "resume" and entry["changed"],
            "restarting repeats side effects: not stated to be idempotent": repeats,
        }
        for reason, holds in reasons.items():
            if holds:
                return LEAVE, reason
        if action in ("delete", "failure function"):
            return action, "as requested"
        if action == "resume" or (action is None and not entry["changed"]):
            return "resume", "finished steps do not run again"
        why = "an earlier step has changed" if entry["changed"] else "as requested"
        return "restart", f"{why}, stated to be idempotent"


def refusal(action: str, entry: Mapping[str, Any]) -> str:
    """Return why an action is impossible with an entry as the service has it now; empty if it is possible."""
    if pd.isna(entry["workflow_run_id"]):
        return "it is a plain message, not a run"
    if action == "failure function" and pd.isna(entry["failure_callback"]):
        return "it has no failure function"
    if action not in ACTIONS:
        return f"{action[:40]!r} is no action of a redrive"
    return ""


def _truncated(body: object) -> bool:
    """Whether a body begins as JSON and does not end as such."""
    if not isinstance(body, str) or not body.startswith(("[", "{")):
        return False
    try:
        msgspec.json.decode(body, type=msgspec.Raw)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        return isinstance(error, msgspec.DecodeError) and "truncated" in str(error)
    return False
