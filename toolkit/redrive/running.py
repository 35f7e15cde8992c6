"""Run the plan of a redrive: canaries, then waves, each step stored in the ledger before it is taken.

For each entry, a run takes these steps:

1. Read the entry again, and leave it if it is gone or has changed.
2. Store in the ledger that a request is about to be sent (the state "intended").
3. Send the request. If the response is lost, look at the service for the outcome.
4. Look at the run from time to time until it has ended or the deadline is over.

For example, if a group has 200 entries, one canary is sent first. If it succeeds, waves of 50 follow, until
more than a fifth of the ended runs have failed again.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from hashlib import sha256
from itertools import chain
from typing import Any, Final, Literal

import msgspec
import pandas as pd

from toolkit.base.arguments import instance, wrong
from toolkit.base.errors import (
    InputError,
    NotFoundError,
    RateLimitError,
    ResponseError,
    ServerError,
    ServiceError,
    ToolkitError,
)
from toolkit.base.progress import ProgressBar, ProgressOption
from toolkit.drawing.wording import counted, percent, shorten
from toolkit.failures.group_rules import GroupRules
from toolkit.failures.grouping import group_failures
from toolkit.redrive.choices import refusal
from toolkit.redrive.claims import Claims
from toolkit.redrive.ledger import Ledger
from toolkit.redrive.ledger_file import State
from toolkit.redrive.plan import UNCHANGED, RedrivePlan
from toolkit.redrive.results import LAST_ERROR, RedriveResult, result_of
from toolkit.service.failures import (
    call_failure_function,
    delete_entry,
    get_entry,
    list_log_page,
    start_again,
)
from toolkit.service.settings import Service, endpoint_of
from toolkit.service.transport import Transport
from toolkit.tables.failures import FailureDecoder
from toolkit.tables.frames import to_frame

_CONNECTIONS: Final = 8
_FIRST_LOOK, _LONGEST_LOOK = 0.25, 15.0  # seconds between looks at what runs
_EVENTS: Final = 20  # per run, read to find the last error
_LONGEST_ERROR: Final = 200  # characters
# at an entry whose response was lost, before it counts as not acted on
_LOOKS: Final = 3
_CONFLICT: Final = 409
_GONE: Final = "it is no longer in the DLQ"
_LONGEST_WAIT: Final = 60.0  # seconds, for the service's rate limit

_PENDING: Final = ("intended", "started")
_CALLS: Final[dict[str, State]] = {
    "CALLBACK_SUCCESS": "called",
    "CALLBACK_FAIL": "failed again",
    "CALLBACK_CANCELED": "failed otherwise",
}


def run_redrive(
    service: Service,
    plan: RedrivePlan,
    *,
    ledger: str | os.PathLike[str],
    confirm: str,
    progress: ProgressOption = None,
    stop: threading.Event | None = None,
) -> RedriveResult:
    """Run a plan: canaries of each group first, then waves, until every entry is done, left or stopped.

    Each entry is read again just before it is acted on, and left if it is gone or has changed. Every step is
    stored in the ledger before it is taken: if a run is interrupted or killed, the same call continues, and
    nothing is sent twice. If a response is lost, the request is sent again only if the entry is still in the
    queue. An entry is claimed before the failure function is called, so that two runs of this user on this
    machine call it once.

    Parameters
    ----------
    service : Service
    plan : RedrivePlan
        From `plan_redrive`.
    ledger : str or path
        A file of this user (SQLite), made if it is missing or empty. One file may contain any number of
        plans. It is complete after each step: copied alone, it continues elsewhere.
    confirm : str
        ``plan.confirmation``, as the preview shows it.
    progress : bool or callable, optional
        As in `load_failures`; counts entries that are done, left or stopped.
    stop : threading.Event, optional
        Once it is set, nothing more is sent. The ledger has all requests that were sent before.

    Returns
    -------
    RedriveResult
        The outcome of each entry, for example "succeeded" or "failed again", and why entries were left.

    Raises
    ------
    InputError
        If `confirm` is not the code of this plan, or another argument cannot be used, for example a damaged
        ledger or a file of another program.
    LedgerLockedError
        If another process runs a plan with this ledger.
    ServiceError
        If the service cannot be reached. Call again to continue.

    Examples
    --------
    >>> plan = tk.plan_redrive(tk.load_failures(service, limit=3, progress=False))
    >>> run_redrive(service, plan, ledger="redrive.sqlite", confirm="everything")
    Traceback (most recent call last):
    ...
    toolkit.errors.InputError: reading confirm: got 'everything'; expected ...
    """
    endpoint_of(service, "queue")
    instance("plan", plan, RedrivePlan, "a plan of plan_redrive")
    instance("stop", stop, threading.Event, "a threading.Event", optional=True)
    _check_confirmation(plan, confirm)
    plan.checked("running a plan")
    with Ledger.running(ledger) as opened:
        with Transport.to(service, "queue") as transport:
            opened.add(plan)
            with ProgressBar(
                progress, title="redrive", unit="entries", total=len(plan.acted)
            ) as bar:
                claims = Claims(plan.hash, opened.path)
                run = _Run(
                    service, transport, plan, opened, claims, stop or threading.Event()
                )
                try:
                    run.all_groups(bar)
                except (KeyboardInterrupt, ToolkitError) as error:
                    error.add_note(
                        f"{result_of(plan, opened).verdict} The same call continues."
                    )
                    raise
                finally:
                    claims.close()
        return result_of(plan, opened)


def _check_confirmation(plan: RedrivePlan, confirm: object) -> None:
    """Raise `InputError` if a value is not the confirmation of a plan."""
    if isinstance(confirm, str) and confirm == plan.confirmation:
        return
    look_again = "Look at the plan once more, then pass plan.confirmation."
    if isinstance(confirm, str) and plan.is_short_confirmation(confirm):
        raise InputError(
            "reading confirm",
            got=f"{confirm!r}, the short code that an earlier version showed for this plan",
            expected=repr(plan.confirmation),
            next_step=look_again,
        )
    raise wrong("confirm", confirm, repr(plan.confirmation), look_again)


def new_run_id(plan: str, dlq_id: str) -> str:
    """Return the id of the new run of an entry. It is the same if the request is sent again."""
    return f"wfr_redrive_{sha256(f'{plan} {dlq_id}'.encode()).hexdigest()[:32]}"


class _Run:
    """One run of a plan: it sends requests and looks at their outcomes, for all groups at once."""

    def __init__(
        self,
        service: Service,
        transport: Transport,
        plan: RedrivePlan,
        ledger: Ledger,
        claims: Claims,
        stop: threading.Event,
    ) -> None:
        self._transport = transport
        self._plan, self._hash = plan, plan.hash
        self._ledger, self._claims = ledger, claims
        self._queue_url = endpoint_of(service, "queue").url
        self._stop = stop
        self._redactor = service.redactor
        self._rules = GroupRules("", plan.learned or None)
        self._prefix = endpoint_of(service, "queue").dialect.prefix
        self._flow_control = _flow_control(self._prefix, plan)
        self._waves = {
            str(group): rows for group, rows in plan.acted.groupby("group", sort=False)
        }

    def all_groups(self, bar: ProgressBar) -> None:
        """Send the next wave of every group whose last wave has ended, until all groups are done."""
        with ThreadPoolExecutor(_CONNECTIONS) as pool:
            try:
                self._all_groups(bar, pool)
            except BaseException:
                self._stop.set()  # requests in flight end, and nothing more is sent
                raise

    def _all_groups(self, bar: ProgressBar, pool: ThreadPoolExecutor) -> None:
        pause, done_before = _FIRST_LOOK, 0
        # a run that was given up may have ended since the last call: look once more
        looked_at: tuple[str, ...] = (*_PENDING, "running", "unknown")
        # Each round looks at the requests without an outcome, counts the outcomes, and sends the next wave of
        # each group that waits for none. For example, a group of 200 entries with one canary:
        #
        #     round 1    sends the canary
        #     round 2    the canary is running: nothing is sent
        #     round 3    the canary has succeeded: a wave of 50 is sent
        #
        # Runs often take minutes, so each round without news makes the next pause longer.
        while True:
            list(pool.map(self._look_at, self._ledger.entries(self._hash, *looked_at)))
            looked_at = _PENDING
            list(pool.map(self._keep_last_error, self._first_started()))
            states_by_group = self._ledger.states(self._hash)
            states = Counter(
                chain.from_iterable(
                    group.values() for group in states_by_group.values()
                )
            )
            pending = states["intended"] + states["started"]
            done = states.total() - pending
            bar.add(done - done_before)
            sent = self._next(states_by_group)
            list(pool.map(self._act, sent))
            if self._stop.is_set() or not (sent or pending):
                return
            # look less often while nothing happens
            pause = min(_LONGEST_LOOK, pause * 1.5)
            if sent or done > done_before:
                pause = _FIRST_LOOK
            done_before = done
            if not sent:
                self._stop.wait(pause)

    def _next(
        self, states_by_group: Mapping[str, Mapping[str, str]]
    ) -> list[dict[str, Any]]:
        """Return the entries to act on now: the canaries or the next wave of each group."""
        stopped = self._ledger.stopped(self._hash)
        next_entries: list[Any] = []
        for group, rows in self._waves.items():
            if group not in stopped:
                next_entries += self._next_of_group(
                    group, rows, states_by_group.get(group, {})
                )
        return next_entries

    def _next_of_group(
        self, group: str, rows: pd.DataFrame, begun: Mapping[str, str]
    ) -> list[Any]:
        """Return the entries of a group to act on now; `begun` has the states of the others by id."""
        limits = self._plan.limits
        states = Counter(begun.values())
        # the outcome of a wave decides whether the group goes on, so the wave has to end first
        is_pending = states["intended"] + states["started"] > 0
        if is_pending or len(begun) == len(rows):
            return []
        if reason := _stop_reason(states, limits.stop_above):
            self._ledger.stop(self._hash, group, reason + self._last_error_of(group))
            return []
        remaining = rows[~rows["dlq_id"].isin(list(begun))]
        # canaries are sent until one of them works
        has_worked = states["succeeded"] + states["called"] + states["deleted"] > 0
        most = limits.wave if has_worked else limits.canaries
        return remaining.head(most).to_dict("records")

    def _act(self, entry: dict[str, Any]) -> None:
        """Read an entry again, store the intent, and send the request."""
        if self._stop.is_set():
            return
        dlq_id, action = entry["dlq_id"], entry["action"]
        run_id = (
            new_run_id(self._hash, dlq_id) if action in ("resume", "restart") else None
        )
        try:
            reason = _reason_to_skip(entry, self._read(dlq_id))
        except NotFoundError:
            if self._run_of(run_id) is not None:
                # an earlier request of ours arrived late
                self._ledger.intend(self._hash, entry, run_id)
                return
            reason = _GONE
        if reason:
            self._ledger.skip(self._hash, entry, reason)
            return
        # if this process is killed from here, the next run looks for the outcome instead of sending again
        self._ledger.intend(self._hash, entry, run_id)
        # the intent comes first: with it, a later call never claims the entry again
        if action == "failure function" and (reason := self._claimed_elsewhere(entry)):
            self._ledger.set(self._hash, dlq_id, "skipped", reason=reason)
            return
        self._send(entry, run_id)

    def _send(self, entry: dict[str, Any], run_id: str | None) -> None:
        """Send the request for an entry, and store the response."""
        dlq_id, action = entry["dlq_id"], entry["action"]
        done = partial(self._ledger.set, self._hash, dlq_id)
        try:
            started = self._request(action, dlq_id, run_id)
        except RateLimitError as error:
            self._release(entry)
            # refused before anything was done
            self._ledger.withdraw(self._hash, dlq_id)
            self._stop.wait(min(error.wait or 1.0, _LONGEST_WAIT))
        except NotFoundError:
            self._release(entry)
            done("skipped", reason=_GONE)
        except ResponseError as error:
            # after a server's error it may have been done; a conflict is with an earlier request of ours
            if not isinstance(error, ServerError) and error.status != _CONFLICT:
                self._release(entry)
                done("refused", reason=str(error)[:300])
        except ServiceError:
            pass  # it may have been done: the next look finds out
        else:
            if action == "delete":
                done("deleted")
            else:
                done("started", ended=False, run_id=started)

    def _claimed_elsewhere(self, entry: Mapping[str, Any]) -> str:
        """Claim an entry, then look at it once more. Return why it must be left; empty if it need not."""
        key = self._claim_key(entry["dlq_id"], entry["workflow_run_id"])
        if other := self._claims.take(*key):
            if other.plan == self._hash:
                return f"this plan has claimed its failure function with the ledger {other.ledger}"
            return (
                f"the plan {other.plan[:8]} has claimed its failure function with the ledger {other.ledger}, "
                "and the outcome is not known"
            )
        try:
            state = self._read(entry["dlq_id"])["failure_function_state"]
        except NotFoundError:
            self._claims.release(*key)
            return _GONE
        except ServiceError:
            self._claims.release(*key)
            self._ledger.withdraw(self._hash, entry["dlq_id"])
            raise
        if _same(state, entry["failure_function_state"]):
            return ""
        self._claims.release(*key)
        return "failure_function_state changed since it was planned"

    def _release(self, entry: Mapping[str, Any]) -> None:
        """Remove the claim of a failure function that is known not to have been called."""
        if entry["action"] == "failure function":
            self._claims.release(
                *self._claim_key(entry["dlq_id"], entry["workflow_run_id"])
            )

    def _claim_key(self, dlq_id: str, run_id: object) -> tuple[str, str]:
        """Return the identity of an entry; the entry of a message has no run, but is one of this queue."""
        return dlq_id, run_id if isinstance(run_id, str) else self._queue_url

    def _request(self, action: str, dlq_id: str, run_id: str | None) -> str | None:
        if action == "delete":
            delete_entry(self._transport, dlq_id)
        elif action == "failure function":
            call_failure_function(self._transport, dlq_id)
        else:
            headers = (
                (f"{self._prefix}Workflow-RunId", str(run_id)),
                *self._flow_control,
            )
            how: Literal["resume", "restart"] = (
                "resume" if action == "resume" else "restart"
            )
            return start_again(self._transport, dlq_id, how, headers)
        return None

    def _look_at(self, row: dict[str, Any]) -> None:
        """Look at an entry that was sent and has not ended, and store the outcome."""
        is_late = (
            time.time() * 1000 > row["intended_at"] + self._plan.limits.deadline * 1000
        )
        if row["state"] == "intended":
            self._reconcile(row)
        elif row["action"] == "failure function":
            self._look_at_call(row, is_late=is_late)
        else:
            self._look_at_run(row, is_late=is_late)

    def _look_at_run(self, row: dict[str, Any], *, is_late: bool) -> None:
        """Look at a run that was started."""
        done = partial(self._ledger.set, self._hash, row["dlq_id"])
        run = self._run_of(row["run_id"]) or {}
        run_state = run.get("workflowState")
        if run_state == "RUN_SUCCESS":
            done("succeeded")
        elif run_state == "RUN_CANCELED":
            done("failed otherwise", reason="its run was cancelled")
        elif run_state == "RUN_FAILED":
            self._failed(row, run.get("dlqId"))
        elif is_late:
            reason = "it had not ended before the deadline"
            if error := self._last_error(row["run_id"]):
                reason = f"{reason}; {LAST_ERROR}{error}"
            done("running" if run else "unknown", reason=reason)

    def _first_started(self) -> list[dict[str, Any]]:
        """Return the first unfinished run of each group, whose error tells why the group has to wait."""
        rows = self._ledger.entries(self._hash, "started")
        first_runs = {row["grouped"]: row for row in reversed(rows) if row["run_id"]}
        return list(first_runs.values())

    def _keep_last_error(self, row: dict[str, Any]) -> None:
        """Store the last error of a run that has not ended, as the reason of the state."""
        error = self._last_error(row["run_id"])
        reason = LAST_ERROR + error
        if error and row["reason"] != reason:
            self._ledger.set(
                self._hash, row["dlq_id"], "started", ended=False, reason=reason
            )

    def _last_error(self, run_id: str | None) -> str:
        """Return the error of the last delivery of a run, masked; empty if none is known."""
        filters = (("workflowRunId", str(run_id)), ("state", "ERROR"))
        try:
            page = list_log_page(
                self._transport, "events", cursor=None, count=_EVENTS, filters=filters
            )
            events = msgspec.json.decode(page.rows, type=list[dict[str, Any]])
        except (ServiceError, msgspec.DecodeError):
            return ""  # the log only explains: a run does not depend on it
        # a service may ignore a filter that it does not know
        errors = [
            event
            for event in events
            if event.get("workflowRunId") == run_id and event.get("error")
        ]
        latest = max(errors, key=lambda event: event.get("time") or 0, default=None)
        if latest is None:
            return ""
        error = " ".join(str(latest["error"]).split())
        return shorten(self._redactor.text(error), _LONGEST_ERROR)

    def _last_error_of(self, group: str) -> str:
        """Return the last known error of a group as the end of a sentence; empty if none is known."""
        last_error = ""
        for row in self._ledger.entries(self._hash, "running", "unknown"):
            _, _, error = (row["reason"] or "").partition(LAST_ERROR)
            if error and row["grouped"] == group:
                last_error = f"; {LAST_ERROR}{error}"
        return last_error

    def _look_at_call(self, row: dict[str, Any], *, is_late: bool) -> None:
        """Look at a failure function that was called."""
        done = partial(self._ledger.set, self._hash, row["dlq_id"])
        try:
            call_state = self._read(row["dlq_id"])["failure_function_state"]
        except NotFoundError:
            done(
                "unknown",
                reason="it left the DLQ before its failure function had responded",
            )
            self._end_claim(row)
            return
        if row["state"] == "unknown" and _same(
            call_state, self._planned_state(row["dlq_id"])
        ):
            return  # the state is from before the plan: it tells nothing about a call that may be lost
        if call_state in _CALLS:
            done(_CALLS[call_state])
            self._end_claim(row)
        elif is_late:
            done(
                "running",
                reason="the failure function had not responded before the deadline",
            )

    def _end_claim(self, row: dict[str, Any]) -> None:
        self._claims.end(*self._claim_key(row["dlq_id"], row["origin_run"]))

    def _planned_state(self, dlq_id: str) -> Any:
        return self._plan.frame.set_index("dlq_id").loc[
            dlq_id, "failure_function_state"
        ]

    def _failed(self, row: dict[str, Any], new_dlq_id: object) -> None:
        """Store whether a run failed in the same way as before or in another way."""
        group: str | None = None
        known_id: str | None = None
        if new_dlq_id:
            known_id = str(new_dlq_id)
            group = self._group_of(known_id)
        state: State = "failed again" if group == row["grouped"] else "failed otherwise"
        self._ledger.set(
            self._hash, row["dlq_id"], state, new_dlq_id=known_id, new_group=group
        )

    def _group_of(self, dlq_id: str) -> str | None:
        """Return the group of an entry by the rules of the plan; None if it has left the DLQ."""
        with suppress(NotFoundError):
            failure = to_frame(self._decoded(dlq_id))
            return str(
                group_failures(failure, rules=self._rules).frame["group"].iloc[0]
            )
        return None

    def _reconcile(self, row: dict[str, Any]) -> None:
        """Find out whether a request without a known response was carried out."""
        dlq_id = row["dlq_id"]
        # a request without a response may still be on the way, so look several times
        for look in range(_LOOKS):
            if self._was_carried_out(row):
                return
            if look < _LOOKS - 1:
                self._stop.wait(_FIRST_LOOK * 2**look)
        if row["action"] == "failure function":
            reason = "its failure function may have run: its state is as before"
            self._ledger.set(self._hash, dlq_id, "unknown", reason=reason)
            self._end_claim(row)
            return
        # still in the DLQ: it was not carried out, and the service refuses a second run of the same id
        self._ledger.withdraw(self._hash, dlq_id)

    def _was_carried_out(self, row: dict[str, Any]) -> bool:
        """Look once for the outcome of a request. Store it and return True if there is one."""
        dlq_id, action, run_id = row["dlq_id"], row["action"], row["run_id"]
        done = partial(self._ledger.set, self._hash, dlq_id)
        if self._run_of(run_id) is not None:
            done("started", ended=False)
            return True
        try:
            call_state = self._read(dlq_id)["failure_function_state"]
        except NotFoundError:
            if action == "delete":
                done("deleted")
            elif self._run_of(run_id) is not None:
                done("started", ended=False)
            else:
                done(
                    "unknown",
                    reason="it has left the DLQ, and no run has the id that was requested",
                )
            return True
        if action == "failure function" and not _same(
            call_state, self._planned_state(dlq_id)
        ):
            done("started", ended=False)
            return True
        return False

    def _run_of(self, run_id: str | None) -> dict[str, Any] | None:
        if not run_id:
            return None
        page = list_log_page(
            self._transport, cursor=None, count=1, filters=(("workflowRunId", run_id),)
        )
        runs = msgspec.json.decode(page.rows, type=list[dict[str, Any]])
        return next((run for run in runs if run.get("workflowRunId") == run_id), None)

    def _decoded(self, dlq_id: str) -> Any:
        return FailureDecoder(self._redactor).decode(
            b"[" + get_entry(self._transport, dlq_id) + b"]"
        )

    def _read(self, dlq_id: str) -> dict[str, Any]:
        row: dict[str, Any] = (
            self._decoded(dlq_id)
            .select([*UNCHANGED, "failure_callback"])
            .to_pylist()[0]
        )
        return row


def _reason_to_skip(planned: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Return why an entry is skipped, as the service has it now; empty if it is as planned."""
    changed = [name for name in UNCHANGED if not _same(now[name], planned[name])]
    if changed:
        return f"{', '.join(changed)} changed since it was planned"
    return refusal(planned["action"], now)


def _same(now: Any, planned: Any) -> bool:
    """Return whether two values are equal or both missing."""
    if pd.isna(now):
        return bool(pd.isna(planned))
    return bool(now == planned)


def _stop_reason(counts: Counter[str], stop_above: float) -> str:
    """Return why a group stops after these outcomes; empty if it continues."""
    worked = counts["succeeded"] + counts["called"] + counts["deleted"]
    failed = counts["failed again"] + counts["failed otherwise"]
    ended = worked + failed
    if not ended and counts["running"]:
        return "its first runs had not ended before the deadline"
    if not ended and counts["unknown"]:
        return "the outcome of its first runs is not known"
    if ended and failed / ended > stop_above:
        failed_of_ended = f"{failed:,} of {counted(ended, 'run')} failed again ({percent(failed / ended)})"
        if not counts["failed again"]:
            return failed_of_ended
        return f"{failed_of_ended}, {counts['failed again']:,} of them with the same signature"
    if counts["refused"]:
        return f"{counted(counts['refused'], 'request')} refused by the service"
    return ""


def _flow_control(prefix: str, plan: RedrivePlan) -> tuple[tuple[str, str], ...]:
    """Return the headers that set the limits; none if the plan has no limits."""
    limits = {"parallelism": plan.limits.parallelism, "rate": plan.limits.rate}
    limits_set = [
        f"{name}={limit}" for name, limit in limits.items() if limit is not None
    ]
    if not limits_set:
        return ()
    key = f"redrive-{plan.hash[:16]}"
    return (f"{prefix}Flow-Control-Key", key), (
        f"{prefix}Flow-Control-Value",
        ", ".join(limits_set),
    )
