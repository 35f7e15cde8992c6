"""Failed workflow runs and messages: list a page, get one, and delete, resume or restart exact ones."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, Literal
from urllib.parse import quote

from toolkit.arguments import choice, confirmed, texts, unmasked, wrong
from toolkit.client.pages import Page, entry_bytes, events_page, failures_page, runs_page
from toolkit.client.responses import Request, Response, count_field, read_body, text_field
from toolkit.client.transport import Transport
from toolkit.errors import InputError, NotFoundError, ResponseError, ToolkitError, UnexpectedResultWarning
from toolkit.filters.failure import FIELDS, FailureFilter
from toolkit.settings.service import Service, endpoint_of
from toolkit.times import milliseconds

Kind = Literal["workflows", "messages"]
Span = tuple[int | None, int | None]
"""First and last Unix millisecond; None where it is open."""
Ids = str | Iterable[str]
"""Exact ids, or a frame with a column of them."""

PAGE_LIMIT: Final = 100
"""Entries a page at most (the specification's limit)."""

_LOGS: Final[dict[str, tuple[str, str, Callable[[Request, Response], Page]]]] = {
    "runs": ("listing workflow runs", "/v2/workflows/logs", runs_page),
    "events": ("listing events of messages", "/v2/logs", events_page),
}
_PATHS: Final[dict[str, str]] = {"workflows": "/v2/workflows/dlq", "messages": "/v2/dlq"}
_NOUNS: Final = {"workflows": "workflow runs", "messages": "messages"}
_ENTRIES: Final = ("DLQ entry", "DLQ entries")


@lru_cache(256)
def query_of(wanted: FailureFilter, span: Span | None) -> tuple[tuple[str, str], ...]:
    """The query parameters of a filter, without its `unsendable` parts; a span replaces its dates."""
    pairs: list[tuple[str, str]] = []
    unsendable = wanted.unsendable
    dates = {} if span is None else dict(zip(("since", "until"), span, strict=True))
    for field in FIELDS.values():
        value: Any = dates.get(field.name, getattr(wanted, field.name))
        if value is not None and field.parameter and field.name not in unsendable:
            value = milliseconds(value) if isinstance(value, datetime) else value
            texts = value if field.many else (str(value),)
            pairs += ((field.parameter, text) for text in texts)
    return tuple(pairs)


def list_page(
    transport: Transport,
    wanted: FailureFilter,
    *,
    cursor: str | None,
    span: Span | None = None,
    kind: Kind = "workflows",
    count: int = PAGE_LIMIT,
) -> Page:
    """One page of the DLQ, in a span or the filter's dates: its entries, undecoded, and the next cursor."""
    path = _path(kind)
    after = (("cursor", cursor),) if cursor else ()
    query = (("count", str(count)), *query_of(wanted, span), *after)
    request = Request(doing=f"listing failed {_NOUNS[kind]}", method="GET", path=path, query=query)
    return transport.fetch(request, failures_page)


def list_log_page(
    transport: Transport,
    log: Literal["runs", "events"] = "runs",
    *,
    cursor: str | None,
    count: int = PAGE_LIMIT,
    filters: tuple[tuple[str, str], ...] = (),
) -> Page:
    """One page of the log of runs or of events; `filters` are further query parameters."""
    doing, path, read_page = _LOGS[log]
    after = (("cursor", cursor),) if cursor else ()
    query = (("count", str(count)), *filters, *after)
    return transport.fetch(Request(doing=doing, method="GET", path=path, query=query), read_page)


def get_entry(transport: Transport, dlq_id: str, *, kind: Kind = "workflows") -> bytes:
    """One DLQ entry as raw JSON; `NotFoundError` when it no longer exists."""
    path = _path(kind, _checked_id(dlq_id, "dlq_id", "dlq_id"))
    request = Request(doing=f"getting the DLQ entry {dlq_id!r}", method="GET", path=path)
    return transport.fetch(request, entry_bytes)


def delete_failures(
    service: Service, dlq_ids: Ids, *, confirm: bool = False, kind: Kind = "workflows"
) -> int:
    """Delete exactly these entries from the DLQ: by id, and never by filter. They cannot be read again.

    Parameters
    ----------
    service : Service
    dlq_ids : DataFrame, str or iterable of str
        Exact ids, or a frame of failures with its ``dlq_id`` column.
    confirm : bool
        Must be True.
    kind : {"workflows", "messages"}
        Which DLQ.

    Returns
    -------
    int
        How many the service deleted. Fewer than the ids means that some no longer existed.

    Raises
    ------
    InputError
        Without ``confirm=True``, without ids, for a frame without ``dlq_id``, or for invalid ids.
    ServiceError
        When a request fails; a note on the error says how many had been deleted by then.

    Warns
    -----
    UnexpectedResultWarning
        When nothing was deleted, or when the number is unknown because a response was lost.

    Examples
    --------
    >>> delete_failures(service, pd.DataFrame({"dlq_id": ["a"]}))
    Traceback (most recent call last):
    ...
    toolkit.errors.InputError: deleting 1 DLQ entry: got no confirmation; expected confirm=True. Look ...
    """
    endpoint_of(service, "queue")
    doing, ids = confirmed_ids(dlq_ids, "deleting", _ENTRIES, confirm=confirm)
    deleted = unknown = 0
    with Transport.to(service, "queue") as transport:
        for some in _deletions(ids):
            try:
                count, tries = _delete(transport, some, kind)
            except (ToolkitError, KeyboardInterrupt) as error:
                error.add_note(
                    f"Before this, {deleted:,} of {len(ids):,} entries were deleted. Whether any of the "
                    f"{len(some):,} of this request were is unknown: load_failure says of each."
                )
                raise
            deleted += count
            unknown += max(0, len(some) - count) if tries > 1 else 0
    if unknown or not deleted:
        other = "messages" if kind == "workflows" else "workflows"
        happened = (
            f"the service counted {deleted:,}; {unknown:,} more may have been deleted by a try whose "
            "response was lost, or were gone already. None of them is in the DLQ now."
            if unknown
            else f"the service deleted none, as none is in the DLQ of failed {_NOUNS[kind]}. They are gone "
            f"already (expired, deleted, resumed), never existed, or belong to kind={other!r}."
        )
        warnings.warn(f"{doing}: {happened}", UnexpectedResultWarning, stacklevel=2)
    return deleted


def resume_failures(service: Service, dlq_ids: Ids, *, confirm: bool = False) -> dict[str, str]:
    """Resume exactly these failed runs from the step that failed. Finished steps do not run again.

    Parameters
    ----------
    service, dlq_ids, confirm
        As in `delete_failures`.

    Returns
    -------
    dict
        From each DLQ id to the id of the new run.

    Raises
    ------
    InputError, ServiceError
        As in `delete_failures`, and for a frame in which an entry has no `workflow_run_id`: a plain message.
        The note says which runs had been resumed by then.

    Examples
    --------
    >>> resume_failures(service, ["a", "b"])
    Traceback (most recent call last):
    ...
    toolkit.errors.InputError: resuming 2 DLQ entries: got no confirmation; expected confirm=True. Look ...
    """
    return _run_again(service, dlq_ids, "resume", confirm=confirm)


def restart_failures(service: Service, dlq_ids: Ids, *, confirm: bool = False) -> dict[str, str]:
    """Restart exactly these failed runs from the beginning. Every step runs again.

    Parameters
    ----------
    service, dlq_ids, confirm
        As in `delete_failures`.

    Returns
    -------
    dict
        From each DLQ id to the id of the new run.

    Raises
    ------
    InputError, ServiceError
        As in `delete_failures`, and for a frame in which an entry has no `workflow_run_id`: a plain message.
        The note says which runs had been restarted by then.

    Examples
    --------
    >>> restart_failures(service, "a")
    Traceback (most recent call last):
    ...
    toolkit.errors.InputError: restarting 1 DLQ entry: got no confirmation; expected confirm=True. Look ...
    """
    return _run_again(service, dlq_ids, "restart", confirm=confirm)


def rerun_failure_function(service: Service, dlq_id: Ids, *, confirm: bool = False) -> None:
    """Run the failure functions of exactly these entries again.

    Parameters
    ----------
    service, dlq_id, confirm
        As in `delete_failures`.

    Raises
    ------
    InputError, ServiceError
        As in `delete_failures` (`NotFoundError` when an entry no longer exists); the note says for which
        entries the function had been started by then.

    Examples
    --------
    >>> rerun_failure_function(service, "a")
    Traceback (most recent call last):
    ...
    toolkit.errors.InputError: running the failure functions of 1 DLQ entry: got no confirmation; ...
    """
    endpoint_of(service, "queue")
    verb = "running the failure functions of"
    _, ids = confirmed_ids(dlq_id, verb, _ENTRIES, name="dlq_id", confirm=confirm)
    one_by_one(service, ids, call_failure_function)


def _run_again(
    service: Service, dlq_ids: Ids, how: Literal["resume", "restart"], *, confirm: bool
) -> dict[str, str]:
    endpoint_of(service, "queue")
    verb = f"{how.rstrip('e')}ing"
    frame: Any = dlq_ids
    if "workflow_run_id" in getattr(frame, "columns", ()):
        messages = sum(not isinstance(run, str) for run in frame["workflow_run_id"])
        if messages:
            raise InputError(
                f"{verb} {_counted(frame, _ENTRIES)}",
                got=f"{messages:,} without a workflow_run_id: plain messages, which have no steps",
                expected="failed workflow runs",
                next_step="Leave them out. publish sends a message again, and delete_failures with "
                'kind="messages" removes its entry.',
            )
    _, ids = confirmed_ids(dlq_ids, verb, _ENTRIES, confirm=confirm)
    return one_by_one(service, ids, lambda transport, dlq_id: start_again(transport, dlq_id, how))


def start_again(
    transport: Transport,
    dlq_id: str,
    how: Literal["resume", "restart"],
    headers: tuple[tuple[str, str], ...] = (),
) -> str:
    """Resume or restart one run, never repeated; returns the id of the new one."""
    request = Request(
        doing=f"requesting to {how} {dlq_id!r}",
        method="POST",
        path=_path("workflows", how, dlq_id),
        headers=headers,
        repeatable=False,
    )
    return text_field(request, "workflowRunId", read_body(request, transport.send(request)), required=True)


def call_failure_function(transport: Transport, dlq_id: str) -> None:
    """Run the failure function of one entry again; never repeated."""
    doing = f"running the failure function of {dlq_id!r} again"
    path = _path("workflows", "callback", dlq_id)
    transport.send(Request(doing=doing, method="POST", path=path, repeatable=False))


def delete_entry(transport: Transport, dlq_id: str) -> None:
    """Delete one entry; never repeated."""
    path = _path("workflows", dlq_id)
    transport.send(Request(doing=f"deleting {dlq_id!r}", method="DELETE", path=path, repeatable=False))


def _deletions(ids: list[str]) -> list[list[str]]:
    """Divide ids into requests: up to `PAGE_LIMIT` in one, and each id with a comma in a request of its own.

    The service splits the values of ``dlqIds`` at commas, so that ``x,y`` would delete the entries x and y.
    """
    alone = [[dlq_id] for dlq_id in ids if "," in dlq_id]
    together = [dlq_id for dlq_id in ids if "," not in dlq_id]
    return [together[start : start + PAGE_LIMIT] for start in range(0, len(together), PAGE_LIMIT)] + alone


def _delete(transport: Transport, ids: list[str], kind: Kind) -> tuple[int, int]:
    """Delete the entries of one request. Return how many were deleted, and in how many tries."""
    if "," not in ids[0]:
        query = tuple(("dlqIds", dlq_id) for dlq_id in ids)
        doing = f"deleting {_counted(ids, _ENTRIES)}"
        return transport.fetch(Request(doing=doing, method="DELETE", path=_path(kind), query=query), _deleted)
    request = Request(doing=f"deleting {ids[0]!r}", method="DELETE", path=_path(kind, ids[0]))
    try:
        return 1, transport.send(request).tries
    except NotFoundError:
        # A second try may find that the first one has deleted it, so that its number of tries matters.
        return 0, 2


def confirmed_ids(
    given: Ids,
    verb: str,
    nouns: tuple[str, str],
    *,
    confirm: bool,
    name: str = "dlq_ids",
    column: str = "dlq_id",
) -> tuple[str, list[str]]:
    """The operation, for errors, and its ids, each once: an `InputError` unless it is confirmed."""
    ids = [_checked_id(value, name, column) for value in dict.fromkeys(texts(name, given, column=column))]
    if not ids:
        expected = f"exact ids, or a frame with a column {column!r}"
        raise InputError(f"reading {name}", got="no ids", expected=expected)
    doing = f"{verb} {_counted(ids, nouns)}"
    confirmed(doing, confirm, "Look at the ids once more, then call again with confirm=True.")
    return doing, ids


def one_by_one(
    service: Service, ids: list[str], run: Callable[[Transport, str], str | None]
) -> dict[str, str]:
    """One request an id, so that it is always known which were done; from each to what `run` returned."""
    done: dict[str, str] = {}
    with Transport.to(service, "queue") as transport:
        for value in ids:
            try:
                done[value] = run(transport, value) or ""
            except (ToolkitError, KeyboardInterrupt) as error:
                before = ", ".join(f"{item} → {new}" if new else item for item, new in done.items()) or "none"
                # an error status means that it was not done
                known = isinstance(error, ResponseError)
                error.add_note(
                    f"Done before this ({len(done)} of {len(ids)}): {before}."
                    + f" Whether {value} was done is unknown: it may have been." * (not known)
                    + f" Not requested: {len(ids) - len(done) - 1}."
                )
                raise
    return done


def _checked_id(value: str, name: str, column: str) -> str:
    if not isinstance(value, str) or not value or not value.isprintable() or value in {".", ".."}:
        raise wrong(name, value, f"an id as in a frame's {column} column")
    return unmasked(name, value)


def _counted(ids: Sequence[str], nouns: tuple[str, str]) -> str:
    return f"1 {nouns[0]}" if len(ids) == 1 else f"{len(ids):,} {nouns[1]}"


def _path(kind: str, *parts: str) -> str:
    return "/".join((_PATHS[choice("kind", kind, _PATHS)], *(quote(part, safe="") for part in parts)))


def _deleted(request: Request, response: Response) -> tuple[int, int]:
    """How many entries were deleted, and in how many tries."""
    return count_field(request, "deleted", read_body(request, response), required=True), response.tries
