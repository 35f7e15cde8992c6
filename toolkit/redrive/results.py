"""What a redrive did: a row an entry, and a sentence."""

from __future__ import annotations

import os
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import pandas as pd

from toolkit.arguments import nearest, text
from toolkit.drawing.wording import ROWS_SHOWN, Plotted, frame_table, headline, shorten, span
from toolkit.errors import InputError
from toolkit.redrive.choices import LEAVE
from toolkit.redrive.ledger import Ledger, entry_frame
from toolkit.redrive.plan import RedrivePlan
from toolkit.visible_text import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from toolkit.drawing.style import Theme

STATES: Final = (
    "succeeded", "called", "deleted", "failed again", "failed otherwise", "started", "running", "unknown",
    "intended", "refused", "skipped", "stopped", "waiting", "left",
)  # fmt: skip
"""What can have become of an entry, in the order in which results list it."""

UNFINISHED: Final = ("started", "intended", "waiting")
"""States of entries that are to be sent or waited for."""

LAST_ERROR: Final = "last error: "
"""What begins the error of a delivery, in the reason of an entry that has not ended."""

_DONE: Final = ("succeeded", "called", "deleted")
_PENDING: Final = ("started", "intended")
_NOT_SENT: Final = ("stopped", "waiting")
_NAMES: Final = {"running": "still running", "intended": "sent without a response"}
_ERROR_SHOWN: Final = 200  # characters of an error in a sentence

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
    read_at : pandas.Timestamp or None
        When the ledger was read. The verdict counts down from it to the deadline.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> plan = tk.plan_redrive(tk.load_failures(service, limit=3, progress=False), actions="leave")
    >>> with TemporaryDirectory() as folder:
    ...     tk.run_redrive(service, plan, ledger=f"{folder}/redrive.sqlite", confirm=plan.confirmation)
    Nothing to do: 3 entries are left by the plan.
    """

    plan: RedrivePlan
    frame: pd.DataFrame
    read_at: pd.Timestamp | None = None

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
        """The outcome in a few sentences: counts, the last error, and the deadline if a run is waited for."""
        states = self.frame["state"]
        if (states == "left").all():
            return f"Nothing to do: {_left_out(len(states))}."
        return " ".join([f"{self._outcome}: {self.counts}.", *self._details])

    @property
    def counts(self) -> str:
        """How many entries have each outcome; `stopped` and `waiting` are both "not sent"."""
        counts = self.frame["state"].value_counts()
        found = {_NAMES.get(state, state): int(counts.get(state, 0)) for state in STATES if state != "left"}
        for state in _NOT_SENT:
            del found[state]
        found["not sent"] = int(self.frame["state"].isin(_NOT_SENT).sum())
        listed = [f"{count:,} {state}" for state, count in found.items() if count]
        if not any(found[state] for state in _DONE):
            listed.insert(0, "0 succeeded")
        return ", ".join(listed)

    @property
    def last_error(self) -> str:
        """The last known error of runs that have not ended, or that stopped a group; empty if unknown."""
        reasons = self.frame["reason"].fillna("")
        has_error = self.frame[reasons.str.contains(LAST_ERROR, regex=False)]
        if has_error.empty:
            return ""
        latest = has_error.sort_values("intended_at", na_position="first")["reason"].iloc[-1]
        return str(latest).partition(LAST_ERROR)[2]

    @property
    def deadline(self) -> pd.Timestamp | None:
        """Until when the entries that were sent are waited for; None if none is."""
        sent = self.frame.loc[self.frame["state"].isin(_PENDING), "intended_at"]
        if sent.empty:
            return None
        latest: pd.Timestamp = sent.max()
        return latest + pd.Timedelta(seconds=self.plan.limits.deadline)

    @property
    def _outcome(self) -> str:
        states = self.frame["state"]
        if not self.finished:
            return "Not finished"
        if (states == "stopped").any():
            return "Stopped"
        return "Done" if states.isin((*_DONE, "left")).all() else "Ended"

    @property
    def _details(self) -> list[str]:
        sentences = []
        if error := self.last_error:
            sentences.append(f"The last error: {shorten(error.rstrip('.'), _ERROR_SHOWN)}.")
        if self.deadline is not None:
            until = f"until {self.deadline:%Y-%m-%d %H:%M:%S} UTC"
            sentences.append(f"A run is waited for {until} ({self.remaining}).")
        return sentences

    @property
    def remaining(self) -> str:
        """The time from reading the ledger to the deadline, for example "9 min 48 s left"."""
        if self.deadline is None or self.read_at is None:
            return ""
        seconds = (self.deadline - self.read_at).total_seconds()
        return f"{span(timedelta(seconds=seconds))} left" if seconds > 0 else "which is over"

    def __repr__(self) -> str:
        if not len(self.frame) or (self.frame["state"] == "left").all():
            return self.verdict
        columns = ["title", "workflow_url", "action", "state", "count", "reason"]
        groups = self.groups[columns]
        shown = groups.head(ROWS_SHOWN).fillna("")
        return visible(f"{headline(self.verdict, len(groups))}\n{shown.to_string(index=False)}")

    def _repr_html_(self) -> str:
        groups = self.groups.drop(columns="group")
        return frame_table(headline(self.verdict, len(groups)), groups.head(ROWS_SHOWN))

    def _draw(self, ax: Axes, theme: Theme) -> Axes:
        from toolkit.drawing.result_bars import draw_outcomes  # noqa: PLC0415 - matplotlib is slow to import

        return draw_outcomes(self.frame, ax, theme, verdict=self.verdict)


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


@dataclass(frozen=True)
class Waiting:
    """Contain what a run waits for: counts of states, the deadline in Unix seconds, and the last error."""

    states: str
    until: float | None
    last_error: str

    def words(self, now: float) -> list[str]:
        """Return the parts of a progress line: counts, the time until the deadline, and the last error.

        >>> Waiting("1 started, 7 waiting", 600.0, "connection refused").words(12.0)
        ['1 started, 7 waiting', '9 min 48 s until the deadline', 'last error: connection refused']
        """
        parts = [self.states]
        if self.until is not None:
            parts.append(f"{span(timedelta(seconds=max(0.0, self.until - now)))} until the deadline")
        if self.last_error:
            parts.append(f"{LAST_ERROR}{self.last_error}")
        return [part for part in parts if part]


def waiting_of(plan: RedrivePlan, ledger: Ledger) -> Waiting:
    """Return what the run of a plan waits for, by the ledger."""
    rows, stopped = ledger.entries(plan.hash), ledger.stopped(plan.hash)
    counts = Counter(row["state"] for row in rows)
    unstopped = plan.acted.loc[~plan.acted["group"].isin(list(stopped)), "dlq_id"]
    counts["waiting"] = int((~unstopped.isin([row["dlq_id"] for row in rows])).sum())
    states = ", ".join(f"{counts[state]:,} {state}" for state in UNFINISHED if counts[state])
    sent = [row for row in rows if row["state"] in _PENDING]
    until = max((row["intended_at"] / 1000 + plan.limits.deadline for row in sent), default=None)
    errors = [row["reason"].partition(LAST_ERROR)[2] for row in sent if row["reason"]]
    return Waiting(states, until, shorten(errors[-1], _ERROR_SHOWN) if errors else "")


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
    return RedriveResult(plan, pd.concat([frame, more], axis=1), pd.Timestamp.now("UTC"))


def _left_out(count: int) -> str:
    if not count:
        return "the plan has no entries"
    return "1 entry is left by the plan" if count == 1 else f"{count:,} entries are left by the plan"
