"""Failed workflow runs and messages: list a page, get one, and delete, resume or restart exact ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Literal, get_args
from urllib.parse import quote

import msgspec

from toolkit.client.pages import Page, entry_bytes, failures_page, runs_page
from toolkit.client.transport import Answer, Request, Transport, not_as_specified
from toolkit.errors import InputError, ToolkitError
from toolkit.filters.failure import VALUES, FailureFilter, milliseconds
from toolkit.settings.service import Service

Kind = Literal["workflows", "messages"]

PAGE_LIMIT: Final = 100
"""Entries a page at most (the specification's limit)."""

_PATHS: Final[dict[str, str]] = {"workflows": "/v2/workflows/dlq", "messages": "/v2/dlq"}


def query_of(wanted: FailureFilter) -> tuple[tuple[str, str], ...]:
    """The query parameters of a filter, without its `unsendable` parts."""
    pairs: list[tuple[str, str]] = []
    for name, moment in (
        ("fromDate", wanted.since),
        ("toDate", wanted.until),
        ("workflowCreatedAt", wanted.workflow_created_at),
    ):
        if moment is not None:
            pairs.append((name, str(milliseconds(moment))))
    for name, part in VALUES.items():
        if name not in wanted.unsendable:
            pairs.extend((part.parameter, value) for value in getattr(wanted, name))
    if wanted.workflow_run_id is not None:
        pairs.append(("workflowRunId", wanted.workflow_run_id))
    return tuple(pairs)


def list_page(
    transport: Transport,
    wanted: FailureFilter,
    *,
    cursor: str | None,
    kind: Kind = "workflows",
    count: int = PAGE_LIMIT,
) -> Page:
    """One page of the DLQ: its entries, undecoded (see `Page.rows`), and the next cursor."""
    path = _path(kind)
    after = (("cursor", cursor),) if cursor else ()
    request = Request(
        doing=f"listing failed {_NOUNS[kind]}",
        method="GET",
        path=path,
        query=(("count", str(count)), *query_of(wanted), *after),
    )
    return transport.fetch(request, failures_page)


def list_runs_page(transport: Transport, *, cursor: str | None, count: int = PAGE_LIMIT) -> Page:
    """One page of the run log."""
    after = (("cursor", cursor),) if cursor else ()
    request = Request(
        doing="listing workflow runs",
        method="GET",
        path="/v2/workflows/logs",
        query=(("count", str(count)), *after),
    )
    return transport.fetch(request, runs_page)


def get_entry(transport: Transport, dlq_id: str, *, kind: Kind = "workflows") -> bytes:
    """One DLQ entry as raw JSON; `NotFoundError` when it is gone."""
    request = Request(
        doing=f"getting the DLQ entry {dlq_id!r}", method="GET", path=_path(kind, checked_id(dlq_id))
    )
    return transport.fetch(request, entry_bytes)


def delete_failures(
    service: Service, dlq_ids: str | Iterable[str], *, confirm: bool = False, kind: Kind = "workflows"
) -> int:
    """Delete exactly these entries from the DLQ. They cannot be read again.

    Parameters
    ----------
    service : Service
    dlq_ids : str or iterable of str
        Exact ids, such as a frame's ``dlq_id`` column. There is no deletion by filter here, on purpose.
    confirm : bool
        Must be True.
    kind : {"workflows", "messages"}
        Which DLQ.

    Returns
    -------
    int
        How many the service deleted. Fewer than asked for means that some were gone already.

    Raises
    ------
    InputError
        Without ``confirm=True``, without ids, or with one that cannot be an id.
    ServiceError
        When asking fails.
    """
    ids = _confirmed(dlq_ids, confirm=confirm, verb="deleting")
    deleted = 0
    with Transport.to(service, "queue") as transport:
        for start in range(0, len(ids), PAGE_LIMIT):
            some = ids[start : start + PAGE_LIMIT]
            request = Request(
                doing=f"deleting {len(some)} DLQ entries",
                method="DELETE",
                path=_path(kind),
                query=tuple(("dlqIds", dlq_id) for dlq_id in some),
            )
            deleted += _count(request, transport.send(request), "deleted")
    return deleted


def resume_failures(
    service: Service, dlq_ids: str | Iterable[str], *, confirm: bool = False
) -> dict[str, str]:
    """Resume exactly these failed runs from the step that failed. Finished steps do not run again.

    Parameters
    ----------
    service : Service
    dlq_ids : str or iterable of str
        Exact ids, such as a frame's ``dlq_id`` column.
    confirm : bool
        Must be True: real work starts.

    Returns
    -------
    dict
        From each DLQ id to the id of the new run.

    Raises
    ------
    InputError
        Without ``confirm=True``, without ids, or with one that cannot be an id.
    ServiceError
        When asking fails; a note on the error says which runs had been resumed by then.
    """
    return _run_again(service, dlq_ids, confirm=confirm, how="resume")


def restart_failures(
    service: Service, dlq_ids: str | Iterable[str], *, confirm: bool = False
) -> dict[str, str]:
    """Restart exactly these failed runs from the beginning. Every step runs again.

    Parameters, result and errors are those of `resume_failures`.
    """
    return _run_again(service, dlq_ids, confirm=confirm, how="restart")


def rerun_failure_function(service: Service, dlq_id: str, *, confirm: bool = False) -> None:
    """Run the failure function of exactly this entry again.

    Parameters
    ----------
    service : Service
    dlq_id : str
    confirm : bool
        Must be True: real work starts.

    Raises
    ------
    InputError
        Without ``confirm=True``.
    ServiceError
        When asking fails; `NotFoundError` when the entry is gone.
    """
    (checked,) = _confirmed(dlq_id, confirm=confirm, verb="running a failure function")
    request = Request(
        doing=f"running the failure function of {checked!r} again",
        method="POST",
        path=_path("workflows", "callback", checked),
        repeatable=False,
    )
    with Transport.to(service, "queue") as transport:
        transport.send(request)


_NOUNS: Final = {"workflows": "workflow runs", "messages": "messages"}


def _run_again(
    service: Service, dlq_ids: str | Iterable[str], *, confirm: bool, how: Literal["resume", "restart"]
) -> dict[str, str]:
    ids = _confirmed(dlq_ids, confirm=confirm, verb=f"{how.rstrip('e')}ing")
    done: dict[str, str] = {}
    with Transport.to(service, "queue") as transport:
        for dlq_id in ids:
            # one request an entry, so that what has been started is always known
            request = Request(
                doing=f"asking to {how} {dlq_id!r}",
                method="POST",
                path=_path("workflows", how, dlq_id),
                repeatable=False,
            )
            try:
                done[dlq_id] = _run_id(request, transport.send(request))
            except ToolkitError as error:
                if done:
                    error.add_note(f"Before this, {len(done)} of {len(ids)} were done: {done}")
                raise
    return done


def _path(kind: str, *parts: str) -> str:
    if kind not in _PATHS:
        raise InputError(
            "choosing a DLQ", got=f"kind={kind!r}", expected=f"one of {', '.join(get_args(Kind))}"
        )
    return "/".join((_PATHS[kind], *(quote(part, safe="") for part in parts)))


def checked_id(dlq_id: str) -> str:
    """The id, or an `InputError` when it cannot be one."""
    if not isinstance(dlq_id, str) or not dlq_id or not dlq_id.isprintable() or dlq_id in {".", ".."}:
        raise InputError(
            "reading a DLQ id", got=repr(dlq_id)[:80], expected="an id as in a frame's dlq_id column"
        )
    return dlq_id


def _confirmed(dlq_ids: str | Iterable[str], *, confirm: bool, verb: str) -> list[str]:
    ids = list(dict.fromkeys([dlq_ids] if isinstance(dlq_ids, str) else dlq_ids))
    if isinstance(dlq_ids, FailureFilter) or not ids:
        raise InputError(
            f"{verb} DLQ entries", got="no ids", expected="exact ids, such as failures['dlq_id']"
        )
    for dlq_id in ids:
        checked_id(dlq_id)
    if confirm is not True:
        raise InputError(
            f"{verb} {len(ids):,} DLQ entries",
            got="no confirmation",
            expected="confirm=True",
            next_step="Look at the ids once more, then call again with confirm=True.",
        )
    return ids


def _value(request: Request, answer: Answer) -> dict[str, Any]:
    try:
        return msgspec.json.decode(answer.body, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError):
        not_as_specified(request, got=repr(answer.body[:60]), expected="a JSON object")


def _count(request: Request, answer: Answer, name: str) -> int:
    value = _value(request, answer).get(name)
    if not isinstance(value, int):
        not_as_specified(request, got=f"{name!r} of {value!r}", expected="a whole number")
    return value


def _run_id(request: Request, answer: Answer) -> str:
    value = _value(request, answer).get("workflowRunId")
    if not isinstance(value, str):
        not_as_specified(request, got="no 'workflowRunId'", expected="the id of the new run")
    return value
