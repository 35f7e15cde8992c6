"""Look for the outcomes of the requests that a redrive sent, and store them in the ledger.

A request has one of two states until the outcome is known:

- "intended": the response was lost, or the process was killed. `Outcomes` looks at the service several times
  and finds out whether the request was carried out. If it was not, the entry is sent again.
- "started": a run or a failure function works on it. `Outcomes` looks from time to time until it has ended or
  the deadline is over.

For example, a run with the state "RUN_FAILED" is stored as "failed again" if the new entry of the DLQ is in
the same group as the old one, and as "failed otherwise" if it is in another one.
"""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import Any, Final

import pandas as pd

from toolkit.base.errors import NotFoundError
from toolkit.redrive.claims import Claims, claim_key
from toolkit.redrive.ledger import Ledger
from toolkit.redrive.ledger_file import State
from toolkit.redrive.plan import RedrivePlan
from toolkit.redrive.queue_reader import QueueReader
from toolkit.redrive.results import LAST_ERROR

FIRST_LOOK: Final = 0.25
"""Seconds between the first two looks at a request. Later pauses are longer."""

# at an entry whose response was lost, before it counts as not acted on
_LOOKS: Final = 3
_CALLS: Final[dict[str, State]] = {
    "CALLBACK_SUCCESS": "called",
    "CALLBACK_FAIL": "failed again",
    "CALLBACK_CANCELED": "failed otherwise",
}


class Outcomes:
    """Looks at the requests of one plan that have no outcome yet."""

    def __init__(
        self,
        reader: QueueReader,
        plan: RedrivePlan,
        ledger: Ledger,
        claims: Claims,
        *,
        queue_url: str,
        stop: threading.Event,
    ) -> None:
        self._reader = reader
        self._plan, self._hash = plan, plan.hash
        self._ledger, self._claims = ledger, claims
        self._queue_url = queue_url
        self._stop = stop

    def look_at(self, row: dict[str, Any]) -> None:
        """Look at an entry that was sent and has not ended, and store the outcome."""
        deadline = row["intended_at"] + self._plan.limits.deadline * 1000
        is_late = time.time() * 1000 > deadline
        if row["state"] == "intended":
            self._reconcile(row)
        elif row["action"] == "failure function":
            self._look_at_call(row, is_late=is_late)
        else:
            self._look_at_run(row, is_late=is_late)

    def first_started(self) -> list[dict[str, Any]]:
        """Return the first unfinished run of each group, whose error tells why the group has to wait."""
        rows = self._ledger.entries(self._hash, "started")
        first_runs = {row["grouped"]: row for row in reversed(rows) if row["run_id"]}
        return list(first_runs.values())

    def last_error_of(self, group: str) -> str:
        """Return the last known error of a group as the end of a sentence; empty if none is known."""
        last_error = ""
        for row in self._ledger.entries(self._hash, "running", "unknown"):
            if row["grouped"] != group:
                continue
            reason = row["reason"] or ""
            _, _, error = reason.partition(LAST_ERROR)
            if error:
                last_error = f"; {LAST_ERROR}{error}"

        return last_error

    def keep_last_error(self, row: dict[str, Any]) -> None:
        """Store the last error of a run that has not ended, as the reason of the state."""
        error = self._reader.last_error(row["run_id"])
        reason = LAST_ERROR + error

        is_news = error != "" and row["reason"] != reason
        if is_news:
            self._ledger.set(
                self._hash, row["dlq_id"], "started", ended=False, reason=reason
            )

    def _look_at_run(self, row: dict[str, Any], *, is_late: bool) -> None:
        """Look at a run that was started."""
        done = partial(self._ledger.set, self._hash, row["dlq_id"])
        run = self._reader.run(row["run_id"]) or {}

        run_state = run.get("workflowState")
        if run_state == "RUN_SUCCESS":
            done("succeeded")
        elif run_state == "RUN_CANCELED":
            done("failed otherwise", reason="its run was cancelled")
        elif run_state == "RUN_FAILED":
            self._failed(row, run.get("dlqId"))
        elif is_late:
            state: State = "running"
            if not run:
                state = "unknown"
            done(state, reason=self._reason_of_late_run(row["run_id"]))

    def _reason_of_late_run(self, run_id: str | None) -> str:
        reason = "it had not ended before the deadline"
        error = self._reader.last_error(run_id)
        if not error:
            return reason

        return f"{reason}; {LAST_ERROR}{error}"

    def _look_at_call(self, row: dict[str, Any], *, is_late: bool) -> None:
        """Look at a failure function that was called."""
        done = partial(self._ledger.set, self._hash, row["dlq_id"])
        try:
            call_state = self._reader.entry(row["dlq_id"])["failure_function_state"]
        except NotFoundError:
            reason = "it left the DLQ before its failure function had responded"
            done("unknown", reason=reason)
            self._end_claim(row)
            return

        if row["state"] == "unknown" and self._is_as_planned(row, call_state):
            # the state is from before the plan: it tells nothing about a call that may be lost
            return

        if call_state in _CALLS:
            done(_CALLS[call_state])
            self._end_claim(row)
        elif is_late:
            reason = "the failure function had not responded before the deadline"
            done("running", reason=reason)

    def _end_claim(self, row: dict[str, Any]) -> None:
        key = claim_key(row["dlq_id"], row["origin_run"], self._queue_url)
        self._claims.end(*key)

    def _is_as_planned(self, row: dict[str, Any], call_state: Any) -> bool:
        """Return whether the state of a failure function is as it was when the plan was made."""
        planned = self._plan.frame.set_index("dlq_id")["failure_function_state"]
        return same(call_state, planned.loc[row["dlq_id"]])

    def _failed(self, row: dict[str, Any], new_dlq_id: object) -> None:
        """Store whether a run failed in the same way as before or in another way."""
        group: str | None = None
        known_id: str | None = None
        if new_dlq_id:
            known_id = str(new_dlq_id)
            group = self._reader.group(known_id)

        state: State = "failed otherwise"
        if group == row["grouped"]:
            state = "failed again"
        self._ledger.set(
            self._hash, row["dlq_id"], state, new_dlq_id=known_id, new_group=group
        )

    def _reconcile(self, row: dict[str, Any]) -> None:
        """Find out whether a request without a known response was carried out."""
        # A request without a response may still be on the way, so look several times: at once, and after 0.25
        # and 0.5 seconds.
        if self._was_carried_out(row):
            return

        for look in range(_LOOKS - 1):
            self._stop.wait(FIRST_LOOK * 2**look)
            if self._was_carried_out(row):
                return

        if row["action"] == "failure function":
            reason = "its failure function may have run: its state is as before"
            self._ledger.set(self._hash, row["dlq_id"], "unknown", reason=reason)
            self._end_claim(row)
            return

        # still in the DLQ: it was not carried out, and the service refuses a second run of the same id
        self._ledger.withdraw(self._hash, row["dlq_id"])

    def _was_carried_out(self, row: dict[str, Any]) -> bool:
        """Look once for the outcome of a request. Store it and return True if there is one."""
        dlq_id = row["dlq_id"]
        done = partial(self._ledger.set, self._hash, dlq_id)
        if self._reader.run(row["run_id"]) is not None:
            done("started", ended=False)
            return True

        try:
            call_state = self._reader.entry(dlq_id)["failure_function_state"]
        except NotFoundError:
            self._store_gone(row)
            return True

        is_call = row["action"] == "failure function"
        if is_call and not self._is_as_planned(row, call_state):
            done("started", ended=False)
            return True

        return False

    def _store_gone(self, row: dict[str, Any]) -> None:
        """Store the outcome of a request whose entry has left the DLQ."""
        done = partial(self._ledger.set, self._hash, row["dlq_id"])
        if row["action"] == "delete":
            done("deleted")
        elif self._reader.run(row["run_id"]) is not None:
            # the run began after the first look
            done("started", ended=False)
        else:
            reason = "it has left the DLQ, and no run has the id that was requested"
            done("unknown", reason=reason)


def same(now: Any, planned: Any) -> bool:
    """Return whether two values are equal or both missing."""
    if pd.isna(now):
        return bool(pd.isna(planned))
    return bool(now == planned)
