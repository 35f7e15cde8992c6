"""List, get, delete, resume and restart failed workflow runs and messages."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, Literal
from urllib.parse import quote

from toolkit.base.arguments import choice, confirmed, texts, unmasked, wrong
from toolkit.base.errors import (
    InputError,
    NotFoundError,
    ResponseError,
    ToolkitError,
    UnexpectedResultWarning,
)
from toolkit.filters.failure import FailureFilter
from toolkit.service.pages import (
    Page,
    entry_bytes,
    events_page,
    failures_page,
    runs_page,
)
from toolkit.service.responses import (
    Request,
    Response,
    count_field,
    read_body,
    text_field,
)
from toolkit.service.settings import Service, endpoint_of
from toolkit.service.transport import Transport

Kind = Literal["workflows", "messages"]
Span = tuple[int | None, int | None]
"""First and last Unix millisecond, or None if open."""
Ids = str | Iterable[str]
"""Exact ids, or a frame with a column of ids."""

PAGE_LIMIT: Final = 100
"""Maximum number of entries per page (limit of the specification)."""

_LOGS: Final[dict[str, tuple[str, str, Callable[[Request, Response], Page]]]] = {
    "runs": ("listing workflow runs", "/v2/workflows/logs", runs_page),
    "events": ("listing events of messages", "/v2/logs", events_page),
}
_PATHS: Final[dict[str, str]] = {
    "workflows": "/v2/workflows/dlq",
    "messages": "/v2/dlq",
}
_NOUNS: Final = {"workflows": "workflow runs", "messages": "messages"}
_ENTRIES: Final = ("DLQ entry", "DLQ entries")


def _date_parameters(span: Span) -> Iterator[tuple[str, str]]:
    """Yield the query parameters of the first and the last Unix millisecond that are not open."""
    for name, milliseconds in zip(("fromDate", "toDate"), span, strict=True):
        if milliseconds is not None:
            yield name, str(milliseconds)


def list_page(
    transport: Transport,
    filter: FailureFilter,  # noqa: A002 - as in `load_failures`
    *,
    cursor: str | None,
    span: Span | None = None,
    kind: Kind = "workflows",
    count: int = PAGE_LIMIT,
) -> Page:
    """Return one page of the DLQ: undecoded entries and the next cursor. A span replaces the dates."""
    path = _path(kind)
    after = (("cursor", cursor),) if cursor else ()
    dates = _date_parameters(filter.span if span is None else span)
    query = (("count", str(count)), *dates, *filter.parameters, *after)
    request = Request(
        doing=f"listing failed {_NOUNS[kind]}", method="GET", path=path, query=query
    )

    return transport.fetch(request, failures_page)


def list_log_page(
    transport: Transport,
    log: Literal["runs", "events"] = "runs",
    *,
    cursor: str | None,
    count: int = PAGE_LIMIT,
    filters: tuple[tuple[str, str], ...] = (),
) -> Page:
    """Return one page of the log of runs or events. `filters` are additional query parameters."""
    doing, path, read_page = _LOGS[log]
    after = (("cursor", cursor),) if cursor else ()
    query = (("count", str(count)), *filters, *after)

    return transport.fetch(
        Request(doing=doing, method="GET", path=path, query=query), read_page
    )


def get_entry(transport: Transport, dlq_id: str, *, kind: Kind = "workflows") -> bytes:
    """Return one DLQ entry as raw JSON. Raise `NotFoundError` if it no longer exists."""
    path = _path(kind, _checked_id(dlq_id, "dlq_id", "dlq_id"))
    request = Request(
        doing=f"getting the DLQ entry {dlq_id!r}", method="GET", path=path
    )
    return transport.fetch(request, entry_bytes)


def delete_failures(
    service: Service, dlq_ids: Ids, *, confirm: bool = False, kind: Kind = "workflows"
) -> int:
    """Delete exactly these entries from the DLQ, by id and never by filter. You cannot read them again.

    Parameters
    ----------
    service : Service
    dlq_ids : DataFrame, str or iterable of str
        Exact ids, or a frame of failures with a ``dlq_id`` column.
    confirm : bool
        Must be True.
    kind : {"workflows", "messages"}
        The DLQ of failed workflow runs, or of failed messages.

    Returns
    -------
    int
        Number of entries that the service deleted. It is lower than the number of ids if some entries no
        longer existed.

    Raises
    ------
    InputError
        Without ``confirm=True``, without ids, for a frame without ``dlq_id``, or for invalid ids.
    ServiceError
        If a request fails. A note on the error contains the number of entries deleted so far.

    Warns
    -----
    UnexpectedResultWarning
        If no entry was deleted, or if the number is unknown because a response was lost.

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
        for batch in _deletions(ids):
            try:
                count, tries = _delete(transport, batch, kind)
            except (ToolkitError, KeyboardInterrupt) as error:
                error.add_note(
                    f"Before this, {deleted:,} of {len(ids):,} entries were deleted. It is unknown if the "
                    f"{len(batch):,} of this request were deleted: check each with load_failure."
                )
                raise

            deleted += count
            if tries > 1:
                # an earlier try may have deleted entries before its response was lost
                unknown += max(0, len(batch) - count)

    if unknown or not deleted:
        result = _deletion_result(kind, deleted, unknown)
        warnings.warn(f"{doing}: {result}", UnexpectedResultWarning, stacklevel=2)

    return deleted


def _deletion_result(kind: Kind, deleted: int, unknown: int) -> str:
    if unknown:
        return (
            f"the service counted {deleted:,}; {unknown:,} more may have been deleted by a try whose "
            "response was lost, or were gone already. None of them is in the DLQ now."
        )

    other = "workflows"
    if kind == "workflows":
        other = "messages"
    return (
        f"the service deleted none, because none is in the DLQ of failed {_NOUNS[kind]}. They are gone "
        f"already (expired, deleted, resumed), never existed, or belong to kind={other!r}."
    )


def resume_failures(
    service: Service, dlq_ids: Ids, *, confirm: bool = False
) -> dict[str, str]:
    """Resume exactly these failed runs from the step that failed. Finished steps do not run again.

    Parameters
    ----------
    service, dlq_ids, confirm
        As in `delete_failures`.

    Returns
    -------
    dict
        The id of the new run for each DLQ id.

    Raises
    ------
    InputError, ServiceError
        As in `delete_failures`, and for a frame with an entry without `workflow_run_id` (a plain message).
        A note on the error lists the runs resumed so far.

    Examples
    --------
    >>> resume_failures(service, ["a", "b"])
    Traceback (most recent call last):
    ...
    toolkit.errors.InputError: resuming 2 DLQ entries: got no confirmation; expected confirm=True. Look ...
    """
    return _run_again(service, dlq_ids, "resume", confirm=confirm)


def restart_failures(
    service: Service, dlq_ids: Ids, *, confirm: bool = False
) -> dict[str, str]:
    """Restart exactly these failed runs from the beginning. Every step runs again.

    Parameters
    ----------
    service, dlq_ids, confirm
        As in `delete_failures`.

    Returns
    -------
    dict
        The id of the new run for each DLQ id.

    Raises
    ------
    InputError, ServiceError
        As in `delete_failures`, and for a frame with an entry without `workflow_run_id` (a plain message).
        A note on the error lists the runs restarted so far.

    Examples
    --------
    >>> restart_failures(service, "a")
    Traceback (most recent call last):
    ...
    toolkit.errors.InputError: restarting 1 DLQ entry: got no confirmation; expected confirm=True. Look ...
    """
    return _run_again(service, dlq_ids, "restart", confirm=confirm)


def rerun_failure_functions(
    service: Service, dlq_ids: Ids, *, confirm: bool = False
) -> None:
    """Run the failure functions of exactly these entries again.

    Parameters
    ----------
    service, dlq_ids, confirm
        As in `delete_failures`.

    Raises
    ------
    InputError, ServiceError
        As in `delete_failures` (`NotFoundError` if an entry no longer exists). A note on the error lists the
        entries whose function has been started so far.

    Examples
    --------
    >>> rerun_failure_functions(service, "a")
    Traceback (most recent call last):
    ...
    toolkit.errors.InputError: running the failure functions of 1 DLQ entry: got no confirmation; ...
    """
    endpoint_of(service, "queue")
    verb = "running the failure functions of"
    _, ids = confirmed_ids(dlq_ids, verb, _ENTRIES, confirm=confirm)
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
                'kind="messages" removes the entry.',
            )

    _, ids = confirmed_ids(dlq_ids, verb, _ENTRIES, confirm=confirm)
    return one_by_one(
        service, ids, lambda transport, dlq_id: start_again(transport, dlq_id, how)
    )


def start_again(
    transport: Transport,
    dlq_id: str,
    how: Literal["resume", "restart"],
    headers: tuple[tuple[str, str], ...] = (),
) -> str:
    """Resume or restart one run. Return the id of the new run. The request is never repeated."""
    request = Request(
        doing=f"requesting to {how} {dlq_id!r}",
        method="POST",
        path=_path("workflows", how, dlq_id),
        headers=headers,
        repeatable=False,
    )
    return text_field(
        request,
        "workflowRunId",
        read_body(request, transport.send(request)),
        required=True,
    )


def call_failure_function(transport: Transport, dlq_id: str) -> None:
    """Run the failure function of one entry again. The request is never repeated."""
    doing = f"running the failure function of {dlq_id!r} again"
    path = _path("workflows", "callback", dlq_id)
    transport.send(Request(doing=doing, method="POST", path=path, repeatable=False))


def delete_entry(transport: Transport, dlq_id: str) -> None:
    """Delete one entry. The request is never repeated."""
    path = _path("workflows", dlq_id)
    transport.send(
        Request(
            doing=f"deleting {dlq_id!r}", method="DELETE", path=path, repeatable=False
        )
    )


def _deletions(ids: list[str]) -> list[list[str]]:
    """Divide ids into requests: up to `PAGE_LIMIT` in one, and each id with a comma in a request of its own.

    The service splits the values of ``dlqIds`` at commas, so that ``x,y`` would delete the entries x and y.
    """
    alone = [[dlq_id] for dlq_id in ids if "," in dlq_id]
    together = [dlq_id for dlq_id in ids if "," not in dlq_id]

    return [
        together[start : start + PAGE_LIMIT]
        for start in range(0, len(together), PAGE_LIMIT)
    ] + alone


def _delete(transport: Transport, ids: list[str], kind: Kind) -> tuple[int, int]:
    """Delete the entries of one request. Return the number of deleted entries and the number of tries."""
    if "," not in ids[0]:
        query = tuple(("dlqIds", dlq_id) for dlq_id in ids)
        doing = f"deleting {_counted(ids, _ENTRIES)}"
        return transport.fetch(
            Request(doing=doing, method="DELETE", path=_path(kind), query=query),
            _deleted,
        )

    request = Request(
        doing=f"deleting {ids[0]!r}", method="DELETE", path=_path(kind, ids[0])
    )
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
    """Return the operation, for errors, and the unique ids. Raise `InputError` unless it is confirmed."""
    ids = [
        _checked_id(value, name, column)
        for value in dict.fromkeys(texts(name, given, column=column))
    ]
    if not ids:
        expected = f"exact ids, or a frame with a column {column!r}"
        raise InputError(f"reading {name}", got="no ids", expected=expected)

    doing = f"{verb} {_counted(ids, nouns)}"
    confirmed(
        doing, confirm, "Look at the ids once more, then call again with confirm=True."
    )
    return doing, ids


def one_by_one(
    service: Service, ids: list[str], run: Callable[[Transport, str], str | None]
) -> dict[str, str]:
    """Send one request per id, so that it is always known which are done. Return the results of `run`."""
    done: dict[str, str] = {}
    with Transport.to(service, "queue") as transport:
        for value in ids:
            try:
                done[value] = run(transport, value) or ""
            except (ToolkitError, KeyboardInterrupt) as error:
                error.add_note(_progress_note(ids, done, value, error))
                raise

    return done


def _progress_note(
    ids: list[str], done: dict[str, str], failed: str, error: BaseException
) -> str:
    """Return which ids were done before an error, for example ``a → wfr_1``, and which were not requested."""
    before = [f"{item} → {new}" if new else item for item, new in done.items()]
    sentences = [
        f"Done before this ({len(done)} of {len(ids)}): {', '.join(before) or 'none'}."
    ]
    if not isinstance(error, ResponseError):
        # an error status means that it was not done; a lost response does not
        sentences.append(f"It is unknown if {failed} was done: it may have been.")

    sentences.append(f"Not requested: {len(ids) - len(done) - 1}.")
    return " ".join(sentences)


def _checked_id(value: str, name: str, column: str) -> str:
    if (
        not isinstance(value, str)
        or not value
        or not value.isprintable()
        or value in {".", ".."}
    ):
        raise wrong(name, value, f"an id from the column {column} of a frame")

    return unmasked(name, value)


def _counted(ids: Sequence[str], nouns: tuple[str, str]) -> str:
    """Return a number with a noun, for example ``2 DLQ entries``."""
    singular, plural = nouns
    if len(ids) == 1:
        return f"1 {singular}"

    return f"{len(ids):,} {plural}"


def _path(kind: str, *parts: str) -> str:
    base = _PATHS[choice("kind", kind, _PATHS)]
    quoted = [quote(part, safe="") for part in parts]
    return "/".join((base, *quoted))


def _deleted(request: Request, response: Response) -> tuple[int, int]:
    """Return the number of deleted entries and the number of tries."""
    return count_field(
        request, "deleted", read_body(request, response), required=True
    ), response.tries
