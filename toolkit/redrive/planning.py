"""Plan a redrive: choose an action for each failure, or the reason to leave it, and the order."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping
from datetime import timedelta
from hashlib import sha256
from typing import Final

import pandas as pd

from toolkit.base.arguments import choice, nearest, texts
from toolkit.base.errors import InputError, UnexpectedResultWarning
from toolkit.base.times import parse_duration
from toolkit.failures.classes import classify_failures
from toolkit.failures.group_rules import GroupRules
from toolkit.failures.grouping import grouped
from toolkit.failures.lifetimes import find_expiring
from toolkit.failures.retention import retention_of
from toolkit.failures.selection import opened, select
from toolkit.failures.signed_failures import present_ids, with_learned
from toolkit.failures.sources import AnyFrame
from toolkit.redrive.choices import ACTIONS, LEAVE, LEFT_OUT, Action, Choices, marks_of
from toolkit.redrive.ledger import returned_entries
from toolkit.redrive.limits import Limits
from toolkit.redrive.plan import RedrivePlan, duration_text
from toolkit.redrive.plan_file import COLUMNS
from toolkit.tables.frames import to_frame
from toolkit.tables.signed_rows import SIGNATURE

_DOING: Final = "planning a redrive"
_NEEDED: Final = (
    "dlq_id", "workflow_run_id", "workflow_url", "created_at", "failed_at", "response_status",
    "response_body", "response_body_base64", "failure_function_state",
)  # fmt: skip
# read if the failures have them
_KNOWN: Final = (
    "body",
    "failure_callback",
    "gone_before",
    "response_headers",
    SIGNATURE,
)


def plan_redrive(
    failures: AnyFrame,
    *,
    actions: Action | Mapping[str, Action] | None = None,
    idempotent: Iterable[str] = (),
    changed: Iterable[str] = (),
    include: Iterable[str] = (),
    history: str | os.PathLike[str] | None = None,
    retention: str | timedelta | None = None,
    canaries: int = 1,
    wave: int = 50,
    stop_above: float = 0.2,
    deadline: str | timedelta = "10m",
    rate: int | None = None,
    parallelism: int | None = None,
) -> RedrivePlan:
    """Plan a redrive of failed runs. Nothing is sent: you look at the plan first, then run it.

    Parameters
    ----------
    failures : pandas.DataFrame
        As `load_failures` returns it, or some rows of it; the path of a snapshot, or a value of
        `open_snapshot`. Stored entries that have left the queue are left.
    actions : str or dict, optional
        One action for all, or a dict with one action per group (by the ids of `group_failures`, also those
        from before a sync joined groups; other groups are left): ``"resume"`` from the step that failed,
        ``"restart"`` from the beginning, ``"failure function"`` once more, ``"delete"``, ``"leave"``. If
        omitted, runs are resumed, or restarted if `changed` names the workflow.
    idempotent : iterable of str
        Workflow URLs whose runs may be restarted, although that repeats every side effect of earlier steps.
        If a run of another workflow needs a restart, it is left.
    changed : iterable of str
        Workflow URLs whose code has changed before the step that failed, so that resuming is unsafe.
    include : iterable of str
        Reasons to include failures that are excluded by default: "refused" (the application asked not to
        retry), "poison input", "contract drift", "returned" (entries of an earlier redrive that came back),
        "masked body", "truncated body".
    history : str or path, optional
        The ledger of earlier redrives. It shows which entries came back.
    retention : str or timedelta, optional
        How long the queue keeps an entry, with the default of `find_expiring`. Entries that expire first are
        redriven first. If the retention is unknown, the oldest go first.
    canaries : int
        Entries of each group that go first, alone: from 1.
    wave : int
        Entries of a group that go together after that, once the canaries or the last wave have ended.
    stop_above : float
        Share of the ended runs of a group that may fail again (above 0, at most 1). If more fail, or if a
        larger share of all runs has no outcome at the deadline, the group is stopped. It is also stopped if
        far more of its last runs fail, although few of all have failed.
    deadline : str or timedelta
        How long to wait for a wave.
    rate, parallelism : int, optional
        Deliveries per second, and concurrent ones, of all redriven runs together. This replaces the flow
        control of the runs. If omitted, they keep it.

    Returns
    -------
    RedrivePlan

    Raises
    ------
    InputError
        If an argument cannot be used, or the frame does not have the columns of `load_failures`.

    Warns
    -----
    UnexpectedResultWarning
        If `idempotent` or `changed` names a workflow without failures.

    Examples
    --------
    >>> failures = tk.load_failures(service, limit=20, progress=False)
    >>> plan_redrive(failures, actions="leave").confirmation.split("-")[0]
    '0'
    """
    wanted = _checked_actions(actions)
    repeatable = frozenset(texts("idempotent", idempotent))
    unsafe = frozenset(texts("changed", changed))
    included = frozenset(
        choice("include", item, LEFT_OUT) for item in texts("include", include)
    )
    seconds = parse_duration(deadline, name="deadline").total_seconds()
    limits = Limits(
        canaries=canaries, wave=wave, stop_above=stop_above, deadline=seconds, rate=rate,
        parallelism=parallelism,
    )  # fmt: skip
    # the ledger is small, so that a wrong path is found before the failures are read
    returned: frozenset[str] = frozenset()
    if history is not None:
        returned = returned_entries(history)
    columns = [
        *_NEEDED,
        *(name for name in opened(failures, doing=_DOING).names if name in _KNOWN),
    ]
    needed = select(failures, columns, doing=_DOING)
    needed.check_memory(_DOING)
    kept = retention_of(failures, retention).length
    frame = to_frame(needed.table())
    # in one order, because titles and learned rules may depend on it
    frame = frame.drop_duplicates("dlq_id").sort_values("dlq_id", ignore_index=True)
    known = frame["workflow_url"].dropna().unique().tolist()
    unknown = [("idempotent", url) for url in sorted(repeatable.difference(known))]
    unknown += [("changed", url) for url in sorted(unsafe.difference(known))]
    for name, url in unknown:
        message = f"{name} names {url!r}, which has no failures. {nearest(url, known)}"
        warnings.warn(message, UnexpectedResultWarning, stacklevel=2)

    # 1. the kind of each failure, and the class of the kind
    groups, ids = grouped(frame, with_learned(GroupRules(), failures))
    frame = frame.assign(signature=pd.Series(ids, index=frame.index, dtype="str"))
    titles = groups.frame.set_index("group")["title"]

    if isinstance(wanted, Mapping):
        wanted = _of_present_groups(wanted, present_ids(failures))
        for group in wanted:
            choice("actions", group, titles.index)

    classes = classify_failures(frame).frame["class"]
    rows = frame.assign(
        group=frame["signature"],
        title=frame["signature"].map(titles),
        **{"class": classes},
    )
    # 2. facts about single entries: when they expire, and marks such as "truncated body"
    expiries = find_expiring(failures, kept).drop_duplicates("dlq_id")[
        ["dlq_id", "expires_at"]
    ]
    rows = rows.merge(expiries, on="dlq_id", how="left")
    rows = rows.assign(
        marks=pd.Series(marks_of(rows, returned), index=rows.index, dtype="str")
    )
    # 3. the action of each entry, or the reason to leave it
    actions_of, reasons = Choices(wanted, repeatable, unsafe, included).decided(rows)
    rows = rows.assign(action=actions_of, reason=reasons)
    # 4. the order: first the group with the oldest entry, and within a group the oldest entry, because
    # entries expire in the order of their failures
    rows["failed"] = rows["failed_at"].fillna(rows["created_at"])
    rows["first"] = rows.groupby("group")["failed"].transform("min")
    ordered = rows.sort_values(
        ["first", "group", "failed", "dlq_id"], ignore_index=True
    )
    options = {
        "actions": wanted,
        "idempotent": sorted(repeatable),
        "changed": sorted(unsafe),
        "include": sorted(included),
        "history": None if history is None else os.fspath(history),
        "retention": duration_text(kept.total_seconds()),
    }
    # whatever the order of the rows, and the unit of their times
    types = {name: COLUMNS.get(name, "str") for name in _NEEDED} | {
        "failed_at": COLUMNS["created_at"]
    }
    hashes = pd.util.hash_pandas_object(frame[list(_NEEDED)].astype(types), index=False)
    source = sha256(hashes.sort_values().to_numpy().tobytes()).hexdigest()

    return RedrivePlan(
        ordered[list(COLUMNS)].astype(COLUMNS), source, limits, options, groups.learned
    )


def planned_workflows(failures: AnyFrame) -> list[str]:
    """Return the workflows of failures. Raise InputError if `plan_redrive` does not accept the failures."""
    select(failures, _NEEDED, doing=_DOING)
    counted = select(failures, ["workflow_url"], doing=_DOING).count("workflow_url")
    urls = counted["workflow_url"].drop_null().to_pylist()

    return sorted(map(str, urls))


def _checked_actions(actions: object) -> dict[str, str] | str | None:
    """Return the argument ``actions``, checked: one action for all groups, or one per group."""
    if actions is None:
        return None

    if isinstance(actions, Mapping):
        return {
            str(group): _checked(f"actions[{group!r}]", action)
            for group, action in actions.items()
        }

    return _checked("actions", actions, "; or a dict from group to action")


def _of_present_groups(
    actions: Mapping[str, str], renamed: Mapping[str, str]
) -> dict[str, str]:
    """Return the action of each group, by the ids that groups have since a sync joined them with others."""
    present: dict[str, str] = {}
    for group, action in actions.items():
        own = renamed.get(group, group)
        if present.setdefault(own, action) != action:
            raise InputError(
                "reading actions",
                got=f"{present[own]!r} and {action!r} for the group {own}, which a sync joined from several",
                expected="one action per group",
            )

    return present


def _checked(name: str, action: object, otherwise: str = "") -> str:
    if not isinstance(action, str) or action not in (*ACTIONS, LEAVE):
        expected = f"{', '.join(ACTIONS)}, or {LEAVE}{otherwise}"
        raise InputError(f"reading {name}", got=repr(action)[:80], expected=expected)
    return str(action)
