"""Making the plan of a redrive from failures: what is done with each entry, and what is left and why."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from typing import Any, Final, Literal

import msgspec
import pandas as pd

from toolkit.analysis.classes import classify_failures
from toolkit.analysis.grouping import grouped
from toolkit.analysis.lifetimes import expiring
from toolkit.analysis.selection import opened, select
from toolkit.analysis.sources import AnyFrame
from toolkit.arguments import choice, positive, texts, whole, wrong
from toolkit.redrive.ledger import returned_entries
from toolkit.redrive.plan import COLUMNS, LEAVE, Limits, RedrivePlan, checked_actions
from toolkit.tables.frames import to_frame
from toolkit.times import parse_duration

Action = Literal["resume", "restart", "failure function", "delete", "leave"]

RETURNED: Final = "returned"
MASKED: Final = "masked body"
TRUNCATED: Final = "truncated body"
LEFT_OUT: Final = ("poison input", "contract drift", RETURNED, MASKED, TRUNCATED)
"""What is left unless it is included: classes, and what is known of an entry."""

_REDACTED: Final = "REDACTED:"
_DOING: Final = "planning a redrive"
_NEEDED: Final = (
    "dlq_id", "workflow_run_id", "workflow_url", "created_at", "failed_at", "response_status",
    "response_body", "response_body_base64", "failure_function_state",
)  # fmt: skip


_KNOWN: Final = ("body", "failure_callback", "gone_before")  # read where the failures have them


def plan_redrive(
    failures: AnyFrame,
    *,
    actions: Action | Mapping[str, Action] | None = None,
    idempotent: Iterable[str] = (),
    changed: Iterable[str] = (),
    include: Iterable[str] = (),
    history: str | os.PathLike[str] | None = None,
    retention: str | timedelta = "7d",
    canaries: int = 1,
    wave: int = 50,
    stop_above: float = 0.2,
    deadline: str | timedelta = "10m",
    rate: int | None = None,
    parallelism: int | None = None,
) -> RedrivePlan:
    """Plan what to do with failed runs: nothing is sent, the plan is a value to look at.

    Parameters
    ----------
    failures : pandas.DataFrame
        As `load_failures` returns it, or some rows of it; the path of a snapshot, or what `scan_snapshot`
        returns, of which entries that have left the queue are left.
    actions : str or dict, optional
        One action for all, or one a group (by `group_failures`' ids; groups without one are left):
        ``"resume"`` from the step that failed, ``"restart"`` from the beginning, ``"failure function"`` once
        more, ``"delete"``, ``"leave"``. Default: resume; restart where `changed` names the workflow.
    idempotent : iterable of str
        Workflow URLs whose runs may be restarted though that repeats every side effect of earlier steps.
        Others are left where a restart is needed.
    changed : iterable of str
        Workflow URLs whose code has changed before the step that failed: resuming is unsafe there.
    include : iterable of str
        What is left otherwise, and shall not be: "poison input", "contract drift", "returned" (entries of an
        earlier redrive that came back), "masked body", "truncated body".
    history : str or path, optional
        The ledger of earlier redrives, which tells what came back.
    retention : str or timedelta
        How long the queue keeps an entry: what expires first is redriven first.
    canaries : int
        Entries of each group that go first, alone.
    wave : int
        Entries of a group that go together after that, once those before have ended.
    stop_above : float
        Share of the ended runs of a group that may fail again (above 0, at most 1). Beyond it, the group is
        stopped.
    deadline : str or timedelta
        How long a wave is waited for.
    rate, parallelism : int, optional
        Deliveries a second, and concurrent ones, of all redriven runs together: the service's flow control.
        It takes the place of the runs' own flow control. Default: their own.

    Returns
    -------
    RedrivePlan

    Raises
    ------
    InputError
        For arguments that cannot be used, or a frame without the columns of `load_failures`.

    Examples
    --------
    >>> failures = tk.load_failures(service, limit=20, progress=False)
    >>> plan_redrive(failures, actions="leave").confirmation.split("-")[0]
    '0'
    """
    wanted = checked_actions(actions)
    repeatable, unsafe, included = (
        frozenset(texts(name, value))
        for name, value in (("idempotent", idempotent), ("changed", changed), ("include", include))
    )
    for item in included:
        choice("include", item, LEFT_OUT)
    if positive("stop_above", stop_above) > 1:
        raise wrong("stop_above", stop_above, "a share above 0, at most 1")
    limits = Limits(
        canaries=whole("canaries", canaries),
        wave=whole("wave", wave),
        stop_above=float(stop_above),
        deadline=parse_duration(deadline, name="deadline").total_seconds(),
        rate=whole("rate", rate, optional="for the runs' own"),
        parallelism=whole("parallelism", parallelism, optional="for the runs' own"),
    )
    names = opened(failures, doing=_DOING).names
    wanted_columns = [*_NEEDED, *(name for name in _KNOWN if name in names)]
    table = select(failures, wanted_columns, doing=_DOING).table()
    frame = to_frame(table).drop_duplicates("dlq_id", ignore_index=True)
    groups, ids = grouped(frame)
    frame = frame.assign(signature=pd.Series(ids, index=frame.index, dtype="str"))
    titles = groups.frame.set_index("group")["title"]
    expiry = expiring(frame, retention)[["dlq_id", "expires_at"]]
    rows = frame.assign(
        group=frame["signature"],
        title=frame["signature"].map(titles),
        **{"class": classify_failures(frame).frame["class"]},
    ).merge(expiry, on="dlq_id", how="left")
    if isinstance(wanted, Mapping):
        for group in wanted:
            choice("actions", group, titles.index)
    returned = returned_entries(history) if history is not None else frozenset()
    choices = _Choices(wanted, repeatable, unsafe, included, returned)
    decided = [choices.of(row) for row in rows.to_dict("records")]
    rows[["action", "reason"]] = pd.DataFrame(decided, index=rows.index, columns=["action", "reason"])
    first = rows.groupby("group")["expires_at"].min().rename("first")
    ordered = rows.join(first, on="group").sort_values(["first", "group", "expires_at", "dlq_id"])
    options = {
        "actions": dict(wanted) if isinstance(wanted, Mapping) else wanted,
        "idempotent": sorted(repeatable),
        "changed": sorted(unsafe),
        "include": sorted(included),
        "history": None if history is None else os.fspath(history),
    }
    made = ordered[list(COLUMNS)].reset_index(drop=True).astype(COLUMNS)
    return RedrivePlan(made, _source(frame), limits, options, groups.learned)


@dataclass(frozen=True)
class _Choices:
    """What the arguments of a plan say of each entry."""

    actions: Mapping[str, str] | str | None
    idempotent: frozenset[str]
    changed: frozenset[str]
    included: frozenset[str]
    returned: frozenset[str]

    def of(self, row: dict[Hashable, Any]) -> tuple[str, str]:
        """The action for an entry, and the reason."""
        action = self.actions
        if isinstance(action, Mapping):
            action = action.get(row["group"], LEAVE)
        left = "as requested" if action == LEAVE else self._left(row, action)
        if left:
            return LEAVE, left
        if action in ("delete", "failure function"):
            return action, "as requested"
        unsafe = row["workflow_url"] in self.changed
        if action == "resume" or (action is None and not unsafe):
            return "resume", "finished steps do not run again"
        return (
            "restart",
            f"{'an earlier step has changed' if unsafe else 'as requested'}, stated to be idempotent",
        )

    def _left(self, row: dict[Hashable, Any], action: str | None) -> str:
        """Why nothing is done with an entry; empty when something is."""
        unsafe = row["workflow_url"] in self.changed
        repeats = action == "restart" or (action is None and unsafe)
        again = action in (None, "resume", "restart")
        body = row.get("body") if again else None
        has_function = pd.notna(row.get("failure_callback", ""))
        kept = {*LEFT_OUT} - self.included
        known = {row["dlq_id"], row["workflow_run_id"]}
        reasons = {
            "it is a plain message, not a run": pd.isna(row["workflow_run_id"]),
            "it has left the queue": pd.notna(row.get("gone_before")),
            "an earlier redrive brought it back": RETURNED in kept and known & self.returned,
            "it has no failure function": action == "failure function" and not has_function,
            f"{row['class']}: it would fail again": again and row["class"] in kept,
            f"{MASKED}: it may not be what the run got": MASKED in kept and _masked(body),
            f"{TRUNCATED}: it may not be what the run got": TRUNCATED not in self.included
            and _truncated(body),
            "an earlier step has changed: resuming is unsafe": action == "resume" and unsafe,
            "restarting repeats side effects: not stated to be idempotent": (
                repeats and row["workflow_url"] not in self.idempotent
            ),
        }
        return next((reason for reason, holds in reasons.items() if holds), "")


def _masked(body: object) -> bool:
    return isinstance(body, str) and _REDACTED in body


def _truncated(body: object) -> bool:
    """Whether a body begins as JSON and does not end as such."""
    if not isinstance(body, str) or not body.startswith(("[", "{")):
        return False
    try:
        msgspec.json.decode(body, type=msgspec.Raw)
    except msgspec.DecodeError as error:
        return "truncated" in str(error)
    except UnicodeEncodeError:
        return False
    return False


def _source(frame: pd.DataFrame) -> str:
    """A hash of the failures that a plan is made from, whatever their order."""
    hashes = pd.util.hash_pandas_object(frame[list(_NEEDED)].astype("str"), index=False)
    return sha256(hashes.sort_values().to_numpy().tobytes()).hexdigest()
