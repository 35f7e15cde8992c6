"""What a redrive did: a row an entry, and a sentence."""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

import pandas as pd

from toolkit.analysis.wording import Plotted, frame_table
from toolkit.arguments import nearest, text
from toolkit.errors import InputError
from toolkit.redrive.choices import LEAVE
from toolkit.redrive.ledger import Ledger, entry_frame
from toolkit.redrive.plan import RedrivePlan
from toolkit.visible_text import visible

STATES: Final = (
    "succeeded", "called", "deleted", "failed again", "failed otherwise", "started", "running", "unknown",
    "intended", "refused", "skipped", "stopped", "waiting", "left",
)  # fmt: skip
"""What can have become of an entry, in the order in which results list it."""

UNFINISHED: Final = ("started", "intended", "waiting")
"""Those that are to be sent or waited for."""

_COLUMNS: Final = dict.fromkeys(("state", "reason", "run_id", "new_dlq_id", "new_group"), "str") | (
    dict.fromkeys(("intended_at", "ended_at"), "datetime64[ms, UTC]")
)


@dataclass(frozen=True, repr=False, eq=False)
class RedriveResult(Plotted):
    """What became of the entries of a plan. `plot` draws a bar a group.

    Made by `run_redrive` and `redrive_status`.

    Attributes
    ----------
    plan : RedrivePlan
    frame : pandas.DataFrame
        One row a failure of the plan: `dlq_id`, `group`, `title`, `workflow_url`, `action`, `state` (str:
        succeeded, called, deleted, failed again with the same signature, failed otherwise, started, running
        at the deadline, unknown, intended, refused, skipped as gone or changed, stopped with its group,
        waiting, left by the plan), `reason` (str), `run_id`, `new_dlq_id`, `new_group` (str: where it
        came back), `intended_at`, `ended_at` (datetime64[ms, UTC]).

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> plan = tk.plan_redrive(tk.load_failures(service, limit=3, progress=False), actions="leave")
    >>> with TemporaryDirectory() as folder:
    ...     tk.run_redrive(service, plan, ledger=f"{folder}/redrive.sqlite", confirm=plan.confirmation)
    0 of 0 entries are done.
    """

    plan: RedrivePlan
    frame: pd.DataFrame

    @property
    def groups(self) -> pd.DataFrame:
        """One row a group and state.

        `group`, `title`, `workflow_url`, `action`, `state` (str), `count` (Int64), `reason` (str, the first).
        """
        keys = ["group", "title", "workflow_url", "action", "state"]
        shown = self.frame.assign(state=pd.Categorical(self.frame["state"], STATES))
        found = shown.groupby(keys, sort=True, dropna=False, observed=True)["reason"].agg(["size", "first"])
        named = found.reset_index().rename(columns={"size": "count", "first": "reason"})
        return named.astype({"count": "Int64", "state": "str", "reason": "str"})

    @property
    def finished(self) -> bool:
        """Whether nothing is left to send or to wait for."""
        return not self.frame["state"].isin(UNFINISHED).any()

    @property
    def verdict(self) -> str:
        """What was done, in a sentence or two."""
        acted = self.frame[self.frame["state"] != "left"]
        counts = acted["state"].value_counts()
        listed = [f"{counts[state]:,} {state}" for state in STATES if counts.get(state)]
        done = len(acted) - int(acted["state"].isin(UNFINISHED).sum())
        said = f"{done:,} of {len(acted):,} entries are done"
        return f"{said}{': ' * bool(listed)}{', '.join(listed)}."

    def __repr__(self) -> str:
        if not len(self.frame) or (self.frame["state"] == "left").all():
            return self.verdict
        columns = ["title", "workflow_url", "action", "state", "count", "reason"]
        return visible(f"{self.verdict}\n{self.groups[columns].fillna('').to_string(index=False)}")

    def _repr_html_(self) -> str:
        return frame_table(self.verdict, self.groups.drop(columns="group"))


def redrive_status(ledger: str | os.PathLike[str], plan: str | None = None) -> RedriveResult:
    """Read how far a redrive is, also while another process runs it.

    Parameters
    ----------
    ledger : str or path
        The file that `run_redrive` writes.
    plan : str, optional
        The start of a plan's hash, where the ledger has several. Default: the latest.

    Returns
    -------
    RedriveResult

    Raises
    ------
    InputError
        When there is no such ledger or plan, the ledger is damaged, or the plan in it was edited. The file is
        not changed.

    Examples
    --------
    >>> redrive_status("no-such.sqlite")
    Traceback (most recent call last):
    ...
    toolkit.errors.InputError: opening the ledger no-such.sqlite: got No such file or directory; expected ...
    """
    wanted = "" if plan is None else text("plan", plan)
    with closing(Ledger(ledger, make=False)) as opened:
        plans = opened.plans()
        chosen = [known for known in plans if known.startswith(wanted)]
        if not chosen or (plan is not None and len(chosen) > 1):
            hashes = [known[:8] for known in plans]
            raise InputError(
                f"looking for the plan in {ledger}", got=repr(plan), expected="the start of the hash of one",
                next_step=nearest(plan, hashes, what="It has") if hashes else "No plan was run with it.",
            )  # fmt: skip
        key = chosen[-1]
        found = RedrivePlan.from_json(plans[key], f"{key[:8]} of {opened.path}", older=True)
        if found.hash != key:
            raise InputError(
                f"reading the plan {key[:8]} of {opened.path}", got=f"another plan, {found.hash[:8]}",
                expected="the plan that was run", next_step="Use the ledger as run_redrive wrote it.",
            )  # fmt: skip
        return result_of(found, opened)


def result_of(plan: RedrivePlan, ledger: Ledger) -> RedriveResult:
    """What the ledger says of a plan."""
    rows = {row["dlq_id"]: row for row in ledger.entries(plan.hash)}
    stopped = ledger.stopped(plan.hash)

    def became(dlq_id: str, group: str, action: str, reason: str) -> dict[str, Any]:
        if dlq_id in rows:
            return rows[dlq_id]
        if action == LEAVE:
            return {"state": "left", "reason": reason}
        if group in stopped:
            return {"state": "stopped", "reason": stopped[group]}
        return {"state": "waiting"}

    planned = plan.frame[["dlq_id", "group", "action", "reason"]].itertuples(index=False)
    frame = plan.frame[["dlq_id", "group", "title", "workflow_url", "action"]].reset_index(drop=True)
    more = entry_frame([became(*row) for row in planned], _COLUMNS)
    return RedriveResult(plan, pd.concat([frame, more], axis=1))
