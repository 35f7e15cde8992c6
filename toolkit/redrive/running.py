"""Running the plan of a redrive: canaries, then waves, each step stored in the ledger before it is taken."""

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
from typing import Any, Final, Literal

import msgspec
import pandas as pd

from toolkit.analysis.group_rules import GroupRules
from toolkit.analysis.grouping import group_failures
from toolkit.arguments import instance, wrong
from toolkit.client.failures import (
    call_failure_function,
    delete_entry,
    get_entry,
    list_log_page,
    start_again,
)
from toolkit.client.transport import Transport
from toolkit.drawing.wording import counted, percent, shorten
from toolkit.errors import (
    InputError,
    NotFoundError,
    RateLimitError,
    ResponseError,
    ServerError,
    ServiceError,
    ToolkitError,
)
from toolkit.progress import ProgressBar, ProgressOption
from toolkit.redrive.choices import refusal
from toolkit.redrive.claims import Claims
from toolkit.redrive.ledger import Ledger
from toolkit.redrive.ledger_file import State
from toolkit.redrive.plan import UNCHANGED, RedrivePlan
from toolkit.redrive.results import LAST_ERROR, RedriveResult, result_of
from toolkit.settings.service import Service, endpoint_of
from toolkit.tables.failures import FailureDecoder
from toolkit.tables.frames import to_frame

_CONNECTIONS: Final = 8
_FIRST_LOOK, _LONGEST_LOOK = 0.25, 15.0  # seconds between looks at what runs
_EVENTS: Final = 20  # of a run that are read to find its last error
_LONGEST_ERROR: Final = 200  # characters
_LOOKS: Final = 3  # at an entry whose response was lost, before it counts as not acted on
_CONFLICT: Final = 409
_GONE: Final = "it is no longer in the DLQ"
_LONGEST_WAIT: Final = 60.0  # seconds, for the service's rate limit
_FAILED: Final = ("failed again", "failed otherwise")
_ENDED: Final = ("succeeded", "called", "deleted", *_FAILED)
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

    Each entry is read again just before it is acted on, and left when it is gone or has changed. Every step
    is stored in the ledger before it is taken: interrupted, or even killed, the same call continues, and
    nothing is sent twice. A request whose response was lost is looked into, and not sent again unless the
    entry is still in the queue. An entry is claimed before its failure function is called, so that two runs
    of this user on this machine call it once.

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
        Once set, nothing more is sent; what was sent is in the ledger.

    Returns
    -------
    RedriveResult
        What succeeded, what came back, and what was left and why.

    Raises
    ------
    InputError
        When `confirm` is not this plan's, or another argument cannot be used, for example a damaged ledger
        or a file of another program.
    LedgerLockedError
        When another process runs a plan with this ledger.
    ServiceError
        When the service cannot be reached; the same call continues later.

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
    if isinstance(confirm, str) and plan.is_short_confirmation(confirm):
        raise InputError(
            "reading confirm",
            got=f"{confirm!r}, the short code that an earlier version showed for this plan",
            expected=repr(plan.confirmation),
            next_step="Look at the plan once more, then pass plan.confirmation.",
        )
    if not isinstance(confirm, str) or confirm != plan.confirmation:
        raise wrong(
            "confirm",
            confirm,
            repr(plan.confirmation),
            "Look at the plan once more, then pass plan.confirmation.",
        )
    plan.checked("running a plan")
    with Ledger.running(ledger) as opened:
        with Transport.to(service, "queue") as transport:
            opened.add(plan)
            with ProgressBar(progress, title="redrive", unit="entries", total=len(plan.acted)) as bar:
                claims = Claims(plan.hash, opened.path)
                run = _Run(service, transport, plan, opened, claims, stop or threading.Event())
                try:
                    run.all_groups(bar)
                except (KeyboardInterrupt, ToolkitError) as error:
                    error.add_note(f"{result_of(plan, opened).verdict} The same call continues.")
                    raise
                finally:
                    claims.close()
        return result_of(plan, opened)


def new_run_id(plan: str, dlq_id: str) -> str:
    """The id that the run of an entry gets: the same however often it is requested."""
    return f"wfr_redrive_{sha256(f'{plan} {dlq_id}'.encode()).hexdigest()[:32]}"


class _Run:
    """One run of a plan: what is sent and looked at, for all groups side by side."""

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
        self._waves = {str(group): rows for group, rows in plan.acted.groupby("group", sort=False)}

    def all_groups(self, bar: ProgressBar) -> None:
        """Send the next wave of every group whose wave before it has ended, until none has one."""
        waits, shown = _FIRST_LOOK, 0
        seen: tuple[str, ...] = (*_PENDING, "running", "unknown")  # these may have ended since the last call
        with ThreadPoolExecutor(_CONNECTIONS) as pool:
            try:
                while True:
                    list(pool.map(self._look_at, self._ledger.entries(self._hash, *seen)))
                    seen = _PENDING
                    list(pool.map(self._keep_last_error, self._first_started()))
                    groups = self._ledger.states(self._hash)
                    states = [state for group in groups.values() for state in group.values()]
                    pending = sum(state in _PENDING for state in states)
                    done = len(states) - pending
                    bar.add(done - shown)
                    sent = self._next(groups)
                    list(pool.map(self._act, sent))
                    if self._stop.is_set() or not (sent or pending):
                        return
                    waits = _FIRST_LOOK if done > shown or sent else min(_LONGEST_LOOK, waits * 1.5)
                    shown = done
                    if not sent:
                        self._stop.wait(waits)
            except BaseException:
                self._stop.set()  # requests in flight end, and nothing more is sent
                raise

    def _next(self, groups: Mapping[str, Mapping[str, str]]) -> list[dict[str, Any]]:
        """The entries to act on now: of each group its canaries, or its next wave."""
        limits, stopped = self._plan.limits, self._ledger.stopped(self._hash)
        chosen: list[Any] = []
        for group, rows in self._waves.items():
            begun = groups.get(group, {})
            states = Counter(begun.values())
            if group in stopped or len(begun) == len(rows) or any(states[state] for state in _PENDING):
                continue
            if reason := _stop_reason(states, limits.stop_above):
                self._ledger.stop(self._hash, group, reason + self._last_error_of(group))
                continue
            left = rows[~rows["dlq_id"].isin(list(begun))]
            proven = states["succeeded"] or states["called"] or states["deleted"]
            chosen += left.head(limits.wave if proven else limits.canaries).to_dict("records")
        return chosen

    def _act(self, entry: dict[str, Any]) -> None:
        """Read an entry again, store the intent, and send the request."""
        if self._stop.is_set():
            return
        dlq_id, action = entry["dlq_id"], entry["action"]
        run_id = new_run_id(self._hash, dlq_id) if action in ("resume", "restart") else None
        skip = partial(self._ledger.skip, self._hash, entry)
        try:
            now = self._read(dlq_id)
        except NotFoundError:
            if self._run_of(run_id) is not None:  # an earlier request of ours arrived late
                self._ledger.intend(self._hash, entry, run_id)
            else:
                skip(_GONE)
            return
        if changed := [name for name in UNCHANGED if not _same(now[name], entry[name])]:
            skip(f"{', '.join(changed)} changed since it was planned")
            return
        if reason := refusal(action, now):
            skip(reason)
            return
        self._ledger.intend(self._hash, entry, run_id)
        done = partial(self._ledger.set, self._hash, dlq_id)
        # the intent comes first: with it, a later call never claims the entry again
        if action == "failure function" and (reason := self._claimed_elsewhere(entry)):
            done("skipped", reason=reason)
            return
        try:
            started = self._request(action, dlq_id, run_id)
        except RateLimitError as error:
            self._release(entry)
            self._ledger.withdraw(self._hash, dlq_id)  # refused before anything was done
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
            pass  # it may have been done: looked into with the next look
        else:
            done("deleted" if action == "delete" else "started", ended=action == "delete", run_id=started)

    def _claimed_elsewhere(self, entry: Mapping[str, Any]) -> str:
        """Claim an entry, then look at it once more; return why it must be left, or nothing."""
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
            self._claims.release(*self._claim_key(entry["dlq_id"], entry["workflow_run_id"]))

    def _claim_key(self, dlq_id: str, run_id: object) -> tuple[str, str]:
        """Return the identity of an entry; the entry of a message has no run, but is one of this queue."""
        return dlq_id, run_id if isinstance(run_id, str) else self._queue_url

    def _request(self, action: str, dlq_id: str, run_id: str | None) -> str | None:
        if action == "delete":
            delete_entry(self._transport, dlq_id)
        elif action == "failure function":
            call_failure_function(self._transport, dlq_id)
        else:
            headers = ((f"{self._prefix}Workflow-RunId", str(run_id)), *self._flow_control)
            how: Literal["resume", "restart"] = "resume" if action == "resume" else "restart"
            return start_again(self._transport, dlq_id, how, headers)
        return None

    def _look_at(self, row: dict[str, Any]) -> None:
        """Look at an entry that was sent and has not ended."""
        late = time.time() * 1000 > row["intended_at"] + self._plan.limits.deadline * 1000
        done = partial(self._ledger.set, self._hash, row["dlq_id"])
        if row["state"] == "intended":
            return self._reconcile(row)
        if row["action"] == "failure function":
            return self._look_at_call(row, late=late)
        run = self._run_of(row["run_id"]) or {}
        state = run.get("workflowState")
        if state == "RUN_SUCCESS":
            done("succeeded")
        elif state == "RUN_CANCELED":
            done("failed otherwise", reason="its run was cancelled")
        elif state == "RUN_FAILED":
            self._failed(row, run.get("dlqId"))
        elif late:
            reason = "it had not ended before the deadline"
            if error := self._last_error(row["run_id"]):
                reason = f"{reason}; {LAST_ERROR}{error}"
            done("running" if run else "unknown", reason=reason)
        return None

    def _first_started(self) -> list[dict[str, Any]]:
        """Return of each group the first run that has not ended: its error tells what the group waits for."""
        rows = self._ledger.entries(self._hash, "started")
        return list({row["grouped"]: row for row in reversed(rows) if row["run_id"]}.values())

    def _keep_last_error(self, row: dict[str, Any]) -> None:
        """Store the last error of a run that has not ended, as the reason of its state."""
        error = self._last_error(row["run_id"])
        if error and row["reason"] != (reason := LAST_ERROR + error):
            self._ledger.set(self._hash, row["dlq_id"], "started", ended=False, reason=reason)

    def _last_error(self, run_id: str | None) -> str:
        """Return the error of the last delivery of a run, masked; empty if none is known."""
        filters = (("workflowRunId", str(run_id)), ("state", "ERROR"))
        try:
            page = list_log_page(self._transport, "events", cursor=None, count=_EVENTS, filters=filters)
            events = msgspec.json.decode(page.rows, type=list[dict[str, Any]])
        except (ServiceError, msgspec.DecodeError):
            return ""  # the log only explains: a run does not depend on it
        # a service may ignore a filter that it does not know
        own = [event for event in events if event.get("workflowRunId") == run_id and event.get("error")]
        if not own:
            return ""
        latest = max(own, key=lambda event: event.get("time") or 0)
        text = " ".join(str(latest["error"]).split())
        return shorten(self._redactor.text(text), _LONGEST_ERROR)

    def _last_error_of(self, group: str) -> str:
        """Return the last known error of a group as the end of a sentence; empty if none is known."""
        rows = self._ledger.entries(self._hash, "running", "unknown")
        reasons = [row["reason"] or "" for row in rows if row["grouped"] == group]
        errors = [reason.partition(LAST_ERROR)[2] for reason in reasons if LAST_ERROR in reason]
        return f"; {LAST_ERROR}{errors[-1]}" if errors else ""

    def _look_at_call(self, row: dict[str, Any], *, late: bool) -> None:
        """Look at a failure function that was called."""
        done = partial(self._ledger.set, self._hash, row["dlq_id"])
        try:
            state = self._read(row["dlq_id"])["failure_function_state"]
        except NotFoundError:
            done("unknown", reason="it left the DLQ before its failure function had responded")
        else:
            if row["state"] == "unknown" and _same(state, self._planned_state(row["dlq_id"])):
                return  # the state from before the plan tells nothing of a call that may not have arrived
            if state in _CALLS:
                done(_CALLS[state])
            elif late:
                done("running", reason="the failure function had not responded before the deadline")
                return
            else:
                return
        self._claims.end(*self._claim_key(row["dlq_id"], row["origin_run"]))

    def _planned_state(self, dlq_id: str) -> Any:
        return self._plan.frame.set_index("dlq_id").loc[dlq_id, "failure_function_state"]

    def _failed(self, row: dict[str, Any], new_dlq_id: object) -> None:
        """Store whether a run failed in the same way or in another one."""
        group, known = None, str(new_dlq_id) if new_dlq_id else None
        if known:
            with suppress(NotFoundError):
                new = to_frame(self._decoded(known))
                group = str(group_failures(new, rules=self._rules).frame["group"].iloc[0])
        state: State = "failed again" if group == row["grouped"] else "failed otherwise"
        self._ledger.set(self._hash, row["dlq_id"], state, new_dlq_id=known, new_group=group)

    def _reconcile(self, row: dict[str, Any]) -> None:
        """Find out whether a request whose response is not known was carried out."""
        dlq_id, action, run_id = row["dlq_id"], row["action"], row["run_id"]
        done = partial(self._ledger.set, self._hash, dlq_id)
        for number in range(_LOOKS):
            if self._run_of(run_id) is not None:
                return done("started", ended=False)
            try:
                now = self._read(dlq_id)
            except NotFoundError:
                if action == "delete":
                    return done("deleted")
                if self._run_of(run_id) is not None:
                    return done("started", ended=False)
                return done("unknown", reason="it has left the DLQ, and no run has the id that was requested")
            is_call = action == "failure function"
            if is_call and not _same(now["failure_function_state"], self._planned_state(dlq_id)):
                return done("started", ended=False)
            if number < _LOOKS - 1:
                self._stop.wait(_FIRST_LOOK * 2**number)
        if action == "failure function":
            done("unknown", reason="its failure function may have run: its state is as before")
            return self._claims.end(*self._claim_key(dlq_id, row["origin_run"]))
        # still in the DLQ: it was not carried out, and the id of its run would refuse a second one
        self._ledger.withdraw(self._hash, dlq_id)
        return None

    def _run_of(self, run_id: str | None) -> dict[str, Any] | None:
        if not run_id:
            return None
        page = list_log_page(self._transport, cursor=None, count=1, filters=(("workflowRunId", run_id),))
        runs = msgspec.json.decode(page.rows, type=list[dict[str, Any]])
        return next((run for run in runs if run.get("workflowRunId") == run_id), None)

    def _decoded(self, dlq_id: str) -> Any:
        return FailureDecoder(self._redactor).decode(b"[" + get_entry(self._transport, dlq_id) + b"]")

    def _read(self, dlq_id: str) -> dict[str, Any]:
        row: dict[str, Any] = self._decoded(dlq_id).select([*UNCHANGED, "failure_callback"]).to_pylist()[0]
        return row


def _same(now: Any, planned: Any) -> bool:
    same: bool = pd.isna(planned) if pd.isna(now) else now == planned
    return same


def _stop_reason(counts: Counter[str], most: float) -> str:
    """Why a group stops after these outcomes; empty when it does not."""
    ended = sum(counts[state] for state in _ENDED)
    failed = sum(counts[state] for state in _FAILED)
    if ended and failed / ended > most:
        again = counts["failed again"]
        same = f", {again:,} of them with the same signature" if again else ""
        return f"{failed:,} of {counted(ended, 'run')} failed again ({percent(failed / ended)}){same}"
    if not ended and counts["running"]:
        return "its first runs had not ended before the deadline"
    if counts["unknown"] and not ended:
        return "what became of its first runs is not known"
    if counts["refused"]:
        return f"{counted(counts['refused'], 'request')} refused by the service"
    return ""


def _flow_control(prefix: str, plan: RedrivePlan) -> tuple[tuple[str, str], ...]:
    """The headers of the limits, if there are any."""
    limits = {"parallelism": plan.limits.parallelism, "rate": plan.limits.rate}
    value = ", ".join(f"{name}={limit}" for name, limit in limits.items() if limit is not None)
    key = f"redrive-{plan.hash[:16]}"
    headers = (f"{prefix}Flow-Control-Key", key), (f"{prefix}Flow-Control-Value", value)
    return headers if value else ()
