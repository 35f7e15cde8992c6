"""Show the outcome of a redrive: one row per entry, one per group and state, and a sentence."""

from __future__ import annotations

import os
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pandas as pd

from toolkit.base.arguments import nearest, text
from toolkit.base.errors import InputError
from toolkit.base.visible_text import visible
from toolkit.drawing.result_tables import Plotted, frame_table
from toolkit.drawing.wording import ROWS_SHOWN, headline, shorten, span
from toolkit.redrive.choices import LEAVE
from toolkit.redrive.ledger import Ledger, entry_frame
from toolkit.redrive.plan import RedrivePlan

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from toolkit.drawing.style import Theme

STATES: Final = (
    "succeeded", "called", "deleted", "failed again", "failed otherwise", "started", "running", "unknown",
    "intended", "refused", "skipped", "stopped", "waiting", "left",
)  # fmt: skip
"""Outcomes of entries, in the order of results."""

UNFINISHED: Final = ("started", "intended", "waiting")
"""States of entries that are to be sent or waited for."""

LAST_ERROR: Final = "last error: "
"""Prefix of the error of a delivery, in the reason of an entry that has not ended."""

_DONE: Final = ("succeeded", "called", "deleted")
_PENDING: Final = ("started", "intended")

_COUNTED_AS: Final = {state: state for state in STATES} | {
    "running": "still running", "intended": "sent without a response",
    "stopped": "not sent", "waiting": "not sent",
}  # fmt: skip
_COUNT_ORDER: Final = tuple(dict.fromkeys(_COUNTED_AS.values()))
_ERROR_SHOWN: Final = 200  # characters of an error in a sentence

_COLUMNS: Final = dict.fromkeys(
    ("state", "reason", "run_id", "new_dlq_id", "new_group"), "str"
) | (dict.fromkeys(("intended_at", "ended_at"), "datetime64[ms, UTC]"))


@dataclass(frozen=True, repr=False, eq=False)
class RedriveResult(Plotted):
    """The outcome of each entry of a plan, as `run_redrive` and `read_redrive_status` return it.

    `plot` draws one bar per group.

    Attributes
    ----------
    plan : RedrivePlan
    frame : pandas.DataFrame
        One row per failure of the plan: `dlq_id`, `group`, `title`, `workflow_url`, `action`, `state` (str:
        succeeded, called, deleted, failed again with the same signature, failed otherwise, started, running
        at the deadline, unknown, intended, refused, skipped as gone or changed, stopped with the group,
        waiting, left by the plan), `reason` (str), `run_id`, `new_dlq_id`, `new_group` (str: the entry that
        came back, and its group), `intended_at`, `ended_at` (datetime64[ms, UTC]).
    read_at : pandas.Timestamp or None
        When the ledger was read. The verdict counts down from this time to the deadline.

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
        """Return one row per group and state.

        `group`, `title`, `workflow_url`, `action`, `state` (str), `count` (Int64), `reason` (str, the first).
        """
        keys = ["group", "title", "workflow_url", "action", "state"]
        shown = self.frame.assign(state=pd.Categorical(self.frame["state"], STATES))
        reasons = shown.groupby(keys, sort=True, dropna=False, observed=True)["reason"]
        table = reasons.agg(["size", "first"]).reset_index()
        table = table.rename(columns={"size": "count", "first": "reason"})

        return table.astype({"count": "Int64", "state": "str", "reason": "str"})

    @property
    def finished(self) -> bool:
        """Return whether all requests were sent and all outcomes are known."""
        return not self.frame["state"].isin(UNFINISHED).any()

    @property
    def verdict(self) -> str:
        """Return the outcome in a few sentences: counts, the last error, and the deadline of open runs."""
        states = self.frame["state"]
        if (states == "left").all():
            return f"Nothing to do: {_left_out(len(states))}."

        return " ".join([f"{self._outcome}: {self.counts}.", *self._details])

    @property
    def counts(self) -> str:
        """Return the count of each outcome, for example "12 succeeded, 3 failed again, 40 not sent"."""
        counts = Counter(self.frame["state"].map(_COUNTED_AS))
        del counts["left"]
        listed = [
            f"{counts[words]:,} {words}" for words in _COUNT_ORDER if counts[words]
        ]
        if not any(counts[state] for state in _DONE):
            listed.insert(0, "0 succeeded")
        return ", ".join(listed)

    @property
    def last_error(self) -> str:
        """Return the last known error of unfinished runs or of a stopped group; empty if unknown."""
        reasons = self.frame["reason"].fillna("")
        has_error = self.frame[reasons.str.contains(LAST_ERROR, regex=False)]
        if has_error.empty:
            return ""

        latest = has_error.sort_values("intended_at", na_position="first")[
            "reason"
        ].iloc[-1]
        return str(latest).partition(LAST_ERROR)[2]

    @property
    def deadline(self) -> pd.Timestamp | None:
        """Return the latest deadline of the entries that were sent and have not ended; None if all have."""
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
        if states.isin((*_DONE, "left")).all():
            return "Done"

        return "Ended"

    @property
    def _details(self) -> list[str]:
        sentences = []
        if error := self.last_error:
            sentences.append(
                f"The last error: {shorten(error.rstrip('.'), _ERROR_SHOWN)}."
            )

        if self.deadline is not None:
            until = f"until {self.deadline:%Y-%m-%d %H:%M:%S} UTC"
            sentences.append(f"A run is waited for {until} ({self.remaining}).")

        return sentences

    @property
    def remaining(self) -> str:
        """Return the time from reading the ledger to the deadline, for example "9 min 48 s left"."""
        if self.deadline is None or self.read_at is None:
            return ""

        remaining = self.deadline - self.read_at
        if remaining <= pd.Timedelta(0):
            return "which is over"

        return f"{span(timedelta(seconds=remaining.total_seconds()))} left"

    def __repr__(self) -> str:
        if (self.frame["state"] == "left").all():
            return self.verdict

        columns = ["title", "workflow_url", "action", "state", "count", "reason"]
        groups = self.groups[columns]
        shown = groups.head(ROWS_SHOWN).fillna("")

        return visible(
            f"{headline(self.verdict, len(groups))}\n{shown.to_string(index=False)}"
        )

    def _repr_html_(self) -> str:
        groups = self.groups.drop(columns="group")
        return frame_table(headline(self.verdict, len(groups)), groups.head(ROWS_SHOWN))

    def _draw(self, ax: Axes, theme: Theme) -> Axes:
        from toolkit.drawing.result_bars import draw_outcomes  # noqa: PLC0415 - matplotlib is slow to import

        return draw_outcomes(self.frame, ax, theme, verdict=self.verdict)


def read_redrive_status(
    ledger: str | os.PathLike[str], plan: str | None = None
) -> RedriveResult:
    """Read the progress of a redrive, also while another process runs it.

    Parameters
    ----------
    ledger : str or path
        The file that `run_redrive` writes.
    plan : str, optional
        The first characters of the hash of a plan. If omitted, the latest plan is read.

    Returns
    -------
    RedriveResult

    Raises
    ------
    InputError
        If the ledger does not exist or is damaged, or if the plan is missing or was edited. The file is not
        changed.

    Examples
    --------
    >>> read_redrive_status("no-such.sqlite")
    Traceback (most recent call last):
    ...
    toolkit.errors.InputError: opening the ledger no-such.sqlite: got No such file or directory; expected ...
    """
    prefix = None if plan is None else text("plan", plan)
    with closing(Ledger(ledger, make=False)) as opened:
        plans = opened.plans()
        plan_hash = _matching_hash(list(plans), prefix, opened.path)
        name = f"{plan_hash[:8]} of {opened.path}"

        redrive_plan = RedrivePlan.from_json(plans[plan_hash], name, older=True)
        if redrive_plan.hash != plan_hash:
            raise InputError(
                f"reading the plan {name}",
                got=f"another plan, {redrive_plan.hash[:8]}",
                expected="the plan that was run", next_step="Use the ledger as run_redrive wrote it.",
            )  # fmt: skip

        return result_of(redrive_plan, opened)


def _matching_hash(hashes: list[str], prefix: str | None, ledger: Path) -> str:
    """Return the only hash that begins with a prefix, or the latest hash if no prefix is given."""
    matching = hashes[-1:]
    if prefix is not None:
        matching = [plan_hash for plan_hash in hashes if plan_hash.startswith(prefix)]
    if len(matching) == 1:
        return matching[0]

    next_step = "No plan was run with it."
    if hashes:
        short_hashes = [plan_hash[:8] for plan_hash in hashes]
        next_step = nearest(prefix, short_hashes, what="It has")

    raise InputError(
        f"looking for the plan in {ledger}",
        got=repr(prefix),
        expected="the first characters of the hash of one plan",
        next_step=next_step,
    )


@dataclass(frozen=True)
class Waiting:
    """State of a run that waits: counts of states, the deadline in Unix seconds, and the last error.

    `in_waves` tells whether more entries of a group than its canaries were sent.
    """

    states: str
    until: float | None
    last_error: str
    in_waves: bool = False

    def words(self, now: float) -> list[str]:
        """Return the parts of a progress line: counts, the time until the deadline, and the last error.

        >>> Waiting("1 started, 7 waiting", 600.0, "connection refused").words(12.0)
        ['1 started, 7 waiting', '9 min 48 s until the deadline', 'last error: connection refused']
        """
        parts = [self.states]
        if self.until is not None:
            remaining = timedelta(seconds=max(0.0, self.until - now))
            parts.append(f"{span(remaining)} until the deadline")

        if self.last_error:
            parts.append(f"{LAST_ERROR}{self.last_error}")
        return list(filter(None, parts))


def waiting_of(plan: RedrivePlan, ledger: Ledger) -> Waiting:
    """Return the state of a run that waits, as stored in the ledger."""
    rows = ledger.entries(plan.hash)
    begun = map(itemgetter("dlq_id"), rows)
    is_begun = plan.acted["dlq_id"].isin(list(begun))
    is_stopped = plan.acted["group"].isin(list(ledger.stopped(plan.hash)))
    is_waiting = ~is_stopped & ~is_begun
    counts = Counter(map(itemgetter("state"), rows))
    counts["waiting"] = int(is_waiting.sum())
    # for example "1 started, 7 waiting"
    states = ", ".join(
        f"{counts[state]:,} {state}" for state in UNFINISHED if counts[state]
    )
    begun_in_groups = plan.acted["group"][is_begun].value_counts()
    in_waves = bool((begun_in_groups > plan.limits.canaries).any())
    pending = [row for row in rows if row["state"] in _PENDING]
    if not pending:
        return Waiting(states, None, "", in_waves)

    last_intended = max(map(itemgetter("intended_at"), pending))
    reasons = [row["reason"] for row in pending if row["reason"]]
    _, _, last_error = ["", *reasons][-1].partition(LAST_ERROR)
    until = last_intended / 1000 + plan.limits.deadline

    return Waiting(states, until, shorten(last_error, _ERROR_SHOWN), in_waves)


def result_of(plan: RedrivePlan, ledger: Ledger) -> RedriveResult:
    """Return the outcome of each entry of a plan, as stored in the ledger."""
    steps = {row["dlq_id"]: row for row in ledger.entries(plan.hash)}
    stopped = ledger.stopped(plan.hash)

    def outcome(dlq_id: str, group: str, action: str, reason: str) -> dict[str, Any]:
        if dlq_id in steps:
            return steps[dlq_id]
        if action == LEAVE:
            return {"state": "left", "reason": reason}
        if group in stopped:
            return {"state": "stopped", "reason": stopped[group]}

        return {"state": "waiting"}

    planned = plan.frame[["dlq_id", "group", "action", "reason"]].itertuples(
        index=False
    )
    frame = plan.frame[
        ["dlq_id", "group", "title", "workflow_url", "action"]
    ].reset_index(drop=True)
    outcomes = entry_frame([outcome(*row) for row in planned], _COLUMNS)

    return RedriveResult(
        plan, pd.concat([frame, outcomes], axis=1), pd.Timestamp.now("UTC")
    )


def _left_out(count: int) -> str:
    if not count:
        return "the plan has no entries"
    if count == 1:
        return "1 entry is left by the plan"

    return f"{count:,} entries are left by the plan"
