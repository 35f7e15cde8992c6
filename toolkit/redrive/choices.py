"""Decide what a redrive does with each entry, and why.

The action follows from the options of a plan and from facts about the entry. For example, an entry with a
truncated body is left, unless the plan includes "truncated body".

`plan_redrive` decides about failures. A plan that is read from a file is decided again by the same rules, so
that nobody can edit an action into the file.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import compress
from typing import Any, Final, Literal, TypeAlias

import msgspec
import pandas as pd

from toolkit.failures.classes import REFUSED

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
    """A recommendation for the failures of a class.

    Attributes
    ----------
    action : {"resume", "restart", "leave"}
        The action of a plan, if no option requests another one.
    advice : str
        One or two sentences for the operator, for example "Fix the settings, then resume the runs."
    then : {"resume", "restart", "leave"}
        The action of a plan after the advice was followed, for example after the settings were fixed.
    brief : str
        The advice in a few words, for a button or a row, for example "Fix the settings, then resume".
    reason : str
        Why, in a few words, for example "a retry fails again until the code is fixed". It does not
        refer to the advice, as it can be next to another action.
    """

    action: str
    advice: str
    then: str
    brief: str
    reason: str


_UNLESS_CHANGED: Final = (
    "If a step before the failed one changed as well, name the workflow in changed="
)
_RECOMMENDED: Final = {
    "bug": Recommendation(
        RESUME,
        f"Fix the code, then resume the runs. {_UNLESS_CHANGED}.",
        RESUME,
        "Fix, then resume",
        "a retry fails again until the code is fixed",
    ),
    "contract drift": Recommendation(
        LEAVE,
        "Agree on the format with the other side, then resume the runs.",
        RESUME,
        "Agree on the format, then resume",
        "a retry fails again until both sides agree on the format",
    ),
    "poison input": Recommendation(
        LEAVE,
        "Look at the inputs: a retry fails again until they are fixed or removed.",
        LEAVE,
        "Look at the inputs of",
        "a retry fails again until the inputs are fixed",
    ),
    "throttled": Recommendation(
        RESUME,
        "Lower the rate (a flow-control key, fewer at once), then resume the runs a few at a time.",
        RESUME,
        "Lower the rate, then resume",
        "more at once would be refused again",
    ),
    "authentication": Recommendation(
        RESUME,
        "Renew the credentials, then resume the runs.",
        RESUME,
        "Renew the credentials, then resume",
        "a retry is refused until the credentials are renewed",
    ),
    "configuration": Recommendation(
        RESUME,
        "Fix the settings, then resume the runs.",
        RESUME,
        "Fix the settings, then resume",
        "a retry fails again until the settings are fixed",
    ),
    "resource exhaustion": Recommendation(
        RESUME,
        "Give it more room, or smaller portions, then resume the runs.",
        RESUME,
        "Give it more room, then resume",
        "a retry can fail again until it has more room",
    ),
    "dependency down": Recommendation(
        RESUME,
        "Wait until the dependency is up, then resume the runs.",
        RESUME,
        "Wait for the dependency, then resume",
        "a retry works if it is up",
    ),
    "transient": Recommendation(
        RESUME, "Resume the runs.", RESUME, "Resume", "a retry usually works"
    ),
    REFUSED: Recommendation(
        LEAVE,
        "The application asked not to retry. Correct the input that it refused, then start new runs.",
        LEAVE,
        "Correct the inputs of",
        "the application asked not to retry",
    ),
}
_OTHERWISE: Final = Recommendation(
    RESUME,
    "Look at one of them first: the response names no class of failure. Then resume the runs.",
    RESUME,
    "Look at one, then resume",
    "the responses name no cause",
)


_SEVERAL: Final = Recommendation(
    RESUME,
    "The errors have several classes: look at one of each, and take the step of its class. "
    "Then resume the runs.",
    RESUME,
    "Look at one of each error, then resume",
    "each class needs another step",
)


def recommended(*classes: str) -> Recommendation:
    """Return the recommendation for the failures of a class, or of several classes.

    Plans, panels, reports and the command line all show this recommendation, so that they agree.

    >>> recommended("bug").action, recommended("contract drift").action
    ('resume', 'leave')
    >>> recommended("bug", "throttled").reason
    'each class needs another step'
    """
    if len(classes) > 1:
        return _SEVERAL
    return _RECOMMENDED.get("".join(classes), _OTHERWISE)


_WOULD_FAIL: Final = tuple(
    name for name, one in _RECOMMENDED.items() if one.action == LEAVE
)
LEFT_OUT: Final = (*sorted(_WOULD_FAIL, reverse=True), RETURNED, MASKED, TRUNCATED)
"""Classes and marks of entries that are left, unless the option ``include`` names them."""

GONE: Final = "gone"
NO_FUNCTION: Final = "no failure function"
MARKS: Final = (GONE, RETURNED, MASKED, TRUNCATED, NO_FUNCTION)
"""Facts about an entry that can prevent an action, in the order of the column ``marks``."""

_BETWEEN: Final = ", "


def marks_of(rows: pd.DataFrame, returned: frozenset[str]) -> list[str | None]:
    """Return the marks of each failure, for example "gone, masked body"; None if it has no mark."""
    bodies = rows.get("body", pd.Series(None, index=rows.index, dtype="str"))
    flags = {
        GONE: rows["gone_before"].notna() if "gone_before" in rows else False,
        RETURNED: rows[["dlq_id", "workflow_run_id"]].isin(returned).any(axis=1),
        MASKED: bodies.str.contains("REDACTED:", regex=False, na=False),
        TRUNCATED: bodies.map(_truncated).astype(bool),
        NO_FUNCTION: rows.get("failure_callback", rows["dlq_id"]).isna(),
    }
    has_mark = pd.DataFrame(flags, index=rows.index)[list(MARKS)].astype(bool)

    return [
        joined_marks(compress(MARKS, row)) for row in has_mark.itertuples(index=False)
    ]


def joined_marks(names: Iterable[str]) -> str | None:
    """Return marks as one value of the column ``marks``, in their order; None if there are no marks."""
    marks = sorted(set(names), key=MARKS.index)
    return _BETWEEN.join(marks) or None


def split_marks(marks: str | None) -> list[str]:
    """Return the list of marks that `joined_marks` joined."""
    if pd.isna(marks) or not marks:
        return []
    return marks.split(_BETWEEN)


@dataclass(frozen=True)
class Choices:
    """The options of a plan that decide about entries."""

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
        # Many entries share their facts, so decide once per combination. For example, if the rows have the
        # facts A, B, A, the combinations are A and B, and the numbers are 0, 1, 0.
        combinations = facts.drop_duplicates().to_dict("records")
        numbers = facts.groupby([*facts], sort=False, dropna=False).ngroup()
        decisions = list(map(self.of, combinations))
        decisions_of_rows = [decisions[number] for number in numbers]
        actions = [action for action, _ in decisions_of_rows]
        reasons = [reason for _, reason in decisions_of_rows]

        return actions, reasons

    def of(self, entry: dict[Hashable, Any]) -> tuple[str, str]:
        """Return the action for an entry, and the reason."""
        requested = self._requested(entry)
        action = requested or _default_action(entry)
        reason_to_leave = self._reason_to_leave(entry, action)
        if reason_to_leave:
            return LEAVE, reason_to_leave
        if action == "restart" and entry["changed"]:
            return action, "an earlier step has changed, stated to be idempotent"

        return action, _REASONS_TO_ACT[action]

    def _requested(self, entry: dict[Hashable, Any]) -> str | None:
        """Return the action that the options request for an entry; None if they leave it to the plan."""
        if isinstance(self.actions, Mapping):
            return self.actions.get(entry["group"], LEAVE)
        return self.actions

    def _reason_to_leave(self, entry: dict[Hashable, Any], action: str) -> str:
        """Return the first reason against an action; empty if nothing is against it."""
        marks = set(split_marks(entry["marks"]))
        failure_class = entry["class"]
        excluded = {*LEFT_OUT} - self.included
        # only a new run can fail again: deleting and failure functions work with any body
        excluded_from_runs = excluded if action in ("resume", "restart") else set()
        excluded_marks = excluded_from_runs & marks
        excluded_classes = excluded_from_runs & {failure_class}
        reasons = {
            "as requested": action == LEAVE,
            "it is a plain message, not a run": entry["message"],
            "it has left the queue": GONE in marks,
            "an earlier redrive brought it back": RETURNED in excluded & marks,
            "it has no failure function": action == "failure function"
            and NO_FUNCTION in marks,
            "refused: the application asked not to retry": REFUSED in excluded_classes,
            f"{failure_class}: it would fail again": excluded_classes,
            f"{MASKED}: it may not be what the run got": MASKED in excluded_marks,
            f"{TRUNCATED}: it may not be what the run got": TRUNCATED in excluded_marks,
            "an earlier step has changed: resuming is unsafe": action == "resume"
            and entry["changed"],
            "restarting repeats side effects: not stated to be idempotent": (
                action == "restart" and not entry["idempotent"]
            ),
        }
        applying = compress(reasons, reasons.values())

        return next(applying, "")


_REASONS_TO_ACT: Final = {
    "delete": "as requested",
    "failure function": "as requested",
    "resume": "finished steps do not run again",
    "restart": "as requested, stated to be idempotent",
}
"""The reason of each action, if the workflow has not changed."""


def _default_action(entry: dict[Hashable, Any]) -> str:
    """Return "restart" if the code of the workflow has changed, since resuming is unsafe then."""
    if entry["changed"]:
        return "restart"
    return "resume"


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
    """Return whether a body is JSON that was cut off, for example ``{"order": 1``."""
    if not isinstance(body, str) or not body.startswith(("[", "{")):
        return False

    # a lone surrogate cannot be decoded, but the body is complete
    with suppress(UnicodeEncodeError):
        try:
            msgspec.json.decode(body, type=msgspec.Raw)
        except msgspec.DecodeError as error:
            return "truncated" in str(error)

    return False
