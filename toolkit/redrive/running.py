"""Run the plan of a redrive: canaries, then waves, each step stored in the ledger before it is taken.

For each entry, a run takes these steps:

1. Read the entry again, and leave it if it is gone or has changed.
2. Store in the ledger that a request is about to be sent (the state "intended").
3. Send the request. If the response is lost, look at the service for the outcome.
4. Look at the run from time to time until it has ended or the deadline is over.

For example, if a group has 200 entries, one canary is sent first. If it succeeds, waves of 50 follow, until
more than a fifth of the ended runs have failed again, or more than a fifth of all have not ended in time. The
last runs are also judged alone: if a deployment breaks after 1,000 successes, the group stops after one wave.
"""

from __future__ import annotations

import math
import os
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Any, Final, Literal

import pandas as pd

from toolkit.base.arguments import instance, wrong
from toolkit.base.errors import (
    DailyLimitError,
    InputError,
    NotFoundError,
    RateLimitError,
    ResponseError,
    ServerError,
    ServiceError,
    ToolkitError,
)
from toolkit.base.progress import ProgressBar, ProgressOption
from toolkit.drawing.wording import counted, percent
from toolkit.failures.group_rules import GroupRules
from toolkit.redrive.choices import refusal
from toolkit.redrive.claims import Claim, Claims, claim_key
from toolkit.redrive.ledger import Ledger
from toolkit.redrive.limits import Limits
from toolkit.redrive.outcomes import FIRST_LOOK, Outcomes, same
from toolkit.redrive.plan import UNCHANGED, RedrivePlan
from toolkit.redrive.queue_reader import QueueReader
from toolkit.redrive.results import RedriveResult, result_of
from toolkit.service.failures import (
    call_failure_function,
    delete_entry,
    start_again,
)
from toolkit.service.settings import Service, endpoint_of
from toolkit.service.transport import Transport


@dataclass(frozen=True)
class RecentRunsTuning:
    """Constants of the judgement of the last runs, with their reasons."""

    recent_runs: int = 20
    """The last runs that are judged alone, if waves are smaller. Of fewer, chance decides: with
    ``stop_above=0.6``, 20 failures in a row are more than chance, and 13 are not."""
    deviations: float = 3.0
    """Standard deviations (of a binomial distribution) above the expected failures that stop a group. If
    exactly as many runs fail as may fail, chance exceeds three once in several hundred waves."""


_TUNING: Final = RecentRunsTuning()
_CONNECTIONS: Final = 8
# seconds between looks at runs; the first pause is `FIRST_LOOK`
_LONGEST_LOOK: Final = 15.0
_CONFLICT: Final = 409
_GONE: Final = "it is no longer in the DLQ"
_LONGEST_WAIT: Final = 60.0  # seconds, for the service's rate limit

_PENDING: Final = ("intended", "started")
_WITH_OUTCOME: Final = frozenset(
    "succeeded called deleted running unknown".split()  # noqa: SIM905 - words
) | {"failed again", "failed otherwise"}
"""States of entries that count when a group is judged."""
_NEW_RUNS: Final[dict[str, Literal["resume", "restart"]]] = {
    "resume": "resume",
    "restart": "restart",
}
"""The actions that start a new run, as the service names them."""

_REASONS_WITHOUT_OUTCOME: Final = {
    "running": "its first runs had not ended before the deadline",
    "unknown": "the outcome of its first runs is not known",
}
"""Why a group stops if no run has ended, by the state of its runs. The first that applies is used."""


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
    DailyLimitError
        If the daily limit of the service is used up. The error has the time of the renewal; call again then.
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
        queue = endpoint_of(service, "queue")
        rules = GroupRules("", plan.learned or None)
        self._transport = transport
        self._reader = QueueReader(transport, service.redactor, rules)
        self._plan, self._hash = plan, plan.hash
        self._ledger, self._claims = ledger, claims
        self._outcomes = Outcomes(
            self._reader, plan, ledger, claims, queue_url=queue.url, stop=stop
        )
        self._queue_url = queue.url
        self._stop = stop
        self._prefix = queue.dialect.prefix
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
        pause, done_before = FIRST_LOOK, 0
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
            rows = self._ledger.entries(self._hash, *looked_at)
            list(pool.map(self._outcomes.look_at, rows))
            looked_at = _PENDING
            waiting_rows = self._outcomes.first_started()
            list(pool.map(self._outcomes.keep_last_error, waiting_rows))
            states_by_group = self._ledger.states(self._hash)
            states = _state_counts(states_by_group)
            pending = states["intended"] + states["started"]
            done = states.total() - pending
            bar.add(done - done_before)
            sent = self._next(states_by_group)
            list(pool.map(self._act, sent))
            is_finished = not sent and pending == 0
            if is_finished or self._stop.is_set():
                return
            # look less often while nothing happens
            pause = min(_LONGEST_LOOK, pause * 1.5)
            has_news = len(sent) > 0 or done > done_before
            if has_news:
                pause = FIRST_LOOK
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
            if group in stopped:
                continue
            begun = states_by_group.get(group, {})
            next_entries += self._next_of_group(group, rows, begun)

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

        reason = _stop_reason(states, limits.stop_above)
        if not reason:
            ordered = [begun[dlq_id] for dlq_id in rows["dlq_id"] if dlq_id in begun]
            reason = _recent_stop_reason(ordered, limits)
        if reason:
            last_error = self._outcomes.last_error_of(group)
            self._ledger.stop(self._hash, group, reason + last_error)
            return []

        remaining = rows[~rows["dlq_id"].isin(list(begun))]
        # canaries are sent until one of them works
        most = limits.canaries
        if _worked(states) > 0:
            most = limits.wave
        return remaining.head(most).to_dict("records")

    def _act(self, entry: dict[str, Any]) -> None:
        """Read an entry again, store the intent, and send the request."""
        if self._stop.is_set():
            return

        dlq_id, action = entry["dlq_id"], entry["action"]
        run_id: str | None = None
        if action in _NEW_RUNS:
            run_id = new_run_id(self._hash, dlq_id)
        try:
            reason = _reason_to_skip(entry, self._reader.entry(dlq_id))
        except NotFoundError:
            if self._reader.run(run_id) is not None:
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
        if action == "failure function":
            reason = self._claimed_elsewhere(entry)
        if reason:
            self._ledger.set(self._hash, dlq_id, "skipped", reason=reason)
            return

        self._send(entry, run_id)

    def _send(self, entry: dict[str, Any], run_id: str | None) -> None:
        """Send the request for an entry, and store the response."""
        dlq_id, action = entry["dlq_id"], entry["action"]
        done = partial(self._ledger.set, self._hash, dlq_id)
        try:
            started_run = self._request(action, dlq_id, run_id)
        except DailyLimitError:
            # refused before anything was done, and so would be every other request of the day
            self._release(entry)
            self._ledger.withdraw(self._hash, dlq_id)
            raise
        except RateLimitError as error:
            self._release(entry)
            # refused before anything was done
            self._ledger.withdraw(self._hash, dlq_id)
            self._stop.wait(min(error.wait or 1.0, _LONGEST_WAIT))
        except NotFoundError:
            self._release(entry)
            done("skipped", reason=_GONE)
        except ServiceError as error:
            # in all other cases, it may have been done: the next look finds out
            if _is_refusal(error):
                self._release(entry)
                done("refused", reason=str(error)[:300])
        else:
            if action == "delete":
                done("deleted")
            else:
                done("started", ended=False, run_id=started_run)

    def _claimed_elsewhere(self, entry: Mapping[str, Any]) -> str:
        """Claim an entry, then look at it once more. Return why it must be left; empty if it need not."""
        key = self._claim_key(entry)
        other = self._claims.take(*key)
        if other is not None:
            return self._reason_of_claim(other)

        try:
            state = self._reader.entry(entry["dlq_id"])["failure_function_state"]
        except NotFoundError:
            self._claims.release(*key)
            return _GONE
        except ServiceError:
            self._claims.release(*key)
            self._ledger.withdraw(self._hash, entry["dlq_id"])
            raise

        if same(state, entry["failure_function_state"]):
            return ""

        self._claims.release(*key)
        return "failure_function_state changed since it was planned"

    def _reason_of_claim(self, other: Claim) -> str:
        """Return why an entry is left that another ledger has claimed."""
        if other.plan == self._hash:
            return f"this plan has claimed its failure function with the ledger {other.ledger}"

        return (
            f"the plan {other.plan[:8]} has claimed its failure function with the ledger {other.ledger}, "
            "and the outcome is not known"
        )

    def _release(self, entry: Mapping[str, Any]) -> None:
        """Remove the claim of a failure function that is known not to have been called."""
        if entry["action"] == "failure function":
            self._claims.release(*self._claim_key(entry))

    def _claim_key(self, entry: Mapping[str, Any]) -> tuple[str, str]:
        return claim_key(entry["dlq_id"], entry["workflow_run_id"], self._queue_url)

    def _request(self, action: str, dlq_id: str, run_id: str | None) -> str | None:
        """Send one request. Return the id of the run that it started, if it starts one."""
        if action == "delete":
            delete_entry(self._transport, dlq_id)
            return None
        if action == "failure function":
            call_failure_function(self._transport, dlq_id)
            return None

        run_header = (f"{self._prefix}Workflow-RunId", str(run_id))
        headers = (run_header, *self._flow_control)
        return start_again(self._transport, dlq_id, _NEW_RUNS[action], headers)


def _reason_to_skip(planned: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Return why an entry is skipped, as the service has it now; empty if it is as planned."""
    changed = [name for name in UNCHANGED if not same(now[name], planned[name])]
    if changed:
        return f"{', '.join(changed)} changed since it was planned"

    return refusal(planned["action"], now)


def _is_refusal(error: ServiceError) -> bool:
    """Return whether a request is known not to have been carried out, because of this error."""
    # A server with an error may have done it before. A conflict is with an earlier request of ours.
    if not isinstance(error, ResponseError) or isinstance(error, ServerError):
        return False
    return error.status != _CONFLICT


def _state_counts(states_by_group: Mapping[str, Mapping[str, str]]) -> Counter[str]:
    """Return how many entries have each state, for all groups together."""
    counts = Counter[str]()
    for states in states_by_group.values():
        counts.update(states.values())
    return counts


def _worked(counts: Counter[str]) -> int:
    """Return how many entries have ended as they should."""
    return counts["succeeded"] + counts["called"] + counts["deleted"]


def _stop_reason(counts: Counter[str], stop_above: float) -> str:
    """Return why a group stops after these outcomes; empty if it continues."""
    failed_again = counts["failed again"]
    failed = failed_again + counts["failed otherwise"]
    ended = _worked(counts) + failed
    for state, reason in _REASONS_WITHOUT_OUTCOME.items():
        if ended == 0 and counts[state] > 0:
            return reason

    # for example, 3 failed runs of 10 are too many if a fifth may fail
    failed_share = failed / max(ended, 1)
    if failed_share > stop_above:
        failed_of_ended = f"{failed:,} of {counted(ended, 'run')} failed again ({percent(failed_share)})"
        if failed_again == 0:
            return failed_of_ended
        return f"{failed_of_ended}, {failed_again:,} of them with the same signature"

    # a destination that hangs after the canaries must not get one wave after the other
    late = counts["running"] + counts["unknown"]
    late_share = late / max(ended + late, 1)
    if late_share > stop_above:
        return (
            f"{late:,} of {counted(ended + late, 'run')} had not ended before the deadline, or have an "
            f"unknown outcome ({percent(late_share)})"
        )

    if counts["refused"]:
        return f"{counted(counts['refused'], 'request')} refused by the service"

    return ""


def _recent_stop_reason(states: Sequence[str], limits: Limits) -> str:
    """Return why a group stops after the last of these outcomes, in the order in which they were sent.

    For example, 1,000 runs have succeeded, and then 50 of 50 fail. They are 5 % of all, but the next wave
    would fail, too.
    """
    with_outcome = [state for state in states if state in _WITH_OUTCOME]
    size = max(limits.wave, _TUNING.recent_runs)
    recent = Counter(with_outcome[-size:])
    runs = recent.total()
    expected = limits.stop_above * runs
    deviation = math.sqrt(expected * (1 - limits.stop_above))
    most = expected + _TUNING.deviations * deviation

    failed = recent["failed again"] + recent["failed otherwise"]
    if failed > most:
        return f"{failed:,} of the last {counted(runs, 'run')} failed again ({percent(failed / runs)})"

    late = recent["running"] + recent["unknown"]
    if late > most:
        return (
            f"{late:,} of the last {counted(runs, 'run')} had not ended before the deadline, or have an "
            f"unknown outcome ({percent(late / runs)})"
        )

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
