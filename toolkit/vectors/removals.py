"""Delete vectors; reset, rename and delete namespaces. Nothing is removed without `confirm=True`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, Final, TypeAlias

import pandas as pd

from toolkit.base.arguments import confirmed, flag, nearest, plain, text, unmasked
from toolkit.base.errors import (
    BadRequestError,
    InputError,
    NotFoundError,
    ToolkitError,
    UnexpectedResultWarning,
    UnprocessableError,
)
from toolkit.filters.metadata import MetadataFilter
from toolkit.loading.fetching import ABSENT, FETCH_BATCH, batched, fetch_vectors
from toolkit.loading.vector_names import ids_in_namespaces
from toolkit.loading.vectors import iter_vectors
from toolkit.service.pages import result_bytes
from toolkit.service.responses import (
    Request,
    Response,
    count_field,
    object_field,
    read_body,
)
from toolkit.service.settings import Service, endpoint_of
from toolkit.service.transport import Transport
from toolkit.service.vectors import index_request, namespace_title, read_info
from toolkit.vectors.matching_vectors import find_matches, reason_of_no_vectors
from toolkit.vectors.row_encoding import one_namespace

VectorIds: TypeAlias = str | Iterable[str] | pd.DataFrame

_FOR_GOOD: Final = (
    "Removed vectors cannot be read again; export_vectors writes a snapshot of them."
)
_NAMED_NAMESPACES: Final = 3
_NAMED_IDS: Final = 3
"""Names of namespaces in the description of a deletion; further ones become an ellipsis."""


@dataclass(frozen=True)
class _Deletion:
    """Vectors to delete: a description for messages, and the bodies of the requests.

    `count` counts the vectors, and `reason` explains why there are none. Both ask the service.
    """

    description: str  # for example "vectors of namespace 'runbooks' by 12 ids"
    requests: list[tuple[str, dict[str, Any]]]  # a namespace and a body each
    count: Callable[[], int]
    reason: Callable[[], str]


_REJECTED: Final = (BadRequestError, NotFoundError, UnprocessableError)
"""Errors of a service that did not carry out the request, also if it was tried several times."""


def delete_vectors(
    service: Service,
    ids: VectorIds | None = None,
    *,
    prefix: str | None = None,
    filter: str | MetadataFilter | None = None,  # noqa: A002 - the service's own name
    namespace: str | None = None,
    confirm: bool = False,
) -> int:
    """Delete vectors of one namespace by their ids, by a prefix of ids, or by their metadata.

    Parameters
    ----------
    service : Service
    ids : str, iterable of str, or DataFrame, optional
        Exact ids, or a frame with a column ``id``, as `load_vectors` and `query` return it. If the frame has
        a column ``namespace``, each id is deleted from that namespace unless you pass `namespace`. Pass
        exactly one of `ids`, `prefix` and `filter`.
    prefix : str, optional
        All vectors whose ids start with it.
    filter : str or MetadataFilter, optional
        All vectors whose metadata match.
    namespace : str, optional
        Default: the default namespace, ``""``.
    confirm : bool
        Must be True. Otherwise nothing is deleted, and the error reports how many vectors would be. Matches
        of a prefix or filter are counted by reading the ids, or ids and metadata, of the namespace.

    Returns
    -------
    int
        Number of vectors that the service deleted. It is lower than the number of ids if some ids were not in
        the index.

    Raises
    ------
    InputError
        If `confirm` is not True, if you pass none or several of `ids`, `prefix` and `filter`, or if it is
        empty.
    ServiceError
        When a request fails; a note on the error gives the number of vectors deleted before.

    Warns
    -----
    UnexpectedResultWarning
        When nothing was deleted. The warning names the condition that matches nothing, or the namespace
        without vectors.

    Examples
    --------
    >>> delete_vectors(service, prefix="runbook", namespace="runbooks")
    Traceback (most recent call last):
    ...
    toolkit.errors.InputError: deleting 1,000 vectors of namespace 'runbooks' ...: got no confirmation; ...
    """
    endpoint_of(service, "vector")
    given = {"ids": ids, "prefix": prefix, "filter": filter}

    names = [name for name, value in given.items() if value is not None]
    if len(names) != 1:
        raise InputError(
            "reading ids, prefix and filter",
            got=" and ".join(names) or "none of them",
            expected="exactly one of them",
            next_step="reset_namespace removes all vectors of a namespace.",
        )

    if ids is not None:
        deletion = _deletion_by_ids(service, _ids_by_namespace(ids, namespace))
    elif filter is not None:
        deletion = _deletion_by_condition(
            service, namespace, "filter", _filter_text(filter)
        )
    else:
        ids_begin = unmasked("prefix", text("prefix", prefix, empty=False))
        deletion = _deletion_by_condition(service, namespace, "prefix", ids_begin)

    if plain(confirm) is not True:
        count = _counted(deletion)
        next_step = _FOR_GOOD
        if count == "0":
            next_step = _reason(deletion) or _FOR_GOOD
        confirmed(f"deleting {count} {deletion.description}", confirm, next_step)

    deleted, was_retried = _send(service, deletion)
    if was_retried:
        _warn(
            f"Deleting {deletion.description}: the service counted {deleted:,}; a try whose response was "
            "lost may have deleted more. None of them is in the index now."
        )
    elif not deleted:
        _warn(
            f"Deleting {deletion.description}: the service deleted none. {_reason(deletion)}".rstrip()
        )

    return deleted


def _deletion_by_ids(service: Service, by_namespace: dict[str, list[str]]) -> _Deletion:
    """Describe the deletion of exact ids, in requests of bounded size."""
    requests: list[tuple[str, dict[str, Any]]] = []
    for namespace, ids in by_namespace.items():
        requests += [(namespace, {"ids": batch}) for batch in batched(ids, FETCH_BATCH)]
    titles = " and ".join(map(namespace_title, list(by_namespace)[:_NAMED_NAMESPACES]))
    if len(by_namespace) > _NAMED_NAMESPACES:
        titles += ", …"
    id_count = sum(map(len, by_namespace.values()))

    return _Deletion(
        f"vectors of {titles} by {id_count:,} ids",
        requests,
        partial(_count_ids, service, by_namespace),
        partial(_reason_of_no_id, service, by_namespace),
    )


def _deletion_by_condition(
    service: Service, namespace: str | None, kind: str, condition: str
) -> _Deletion:
    """Describe the deletion of all vectors that match a prefix or a filter, in one request."""
    space = one_namespace("" if namespace is None else namespace)
    count: Callable[[], int]
    reason: Callable[[], str]

    if kind == "filter":
        count = partial(_count_matches, service, space, condition)
        reason = partial(_reason_of_no_match, service, space, condition)
    else:
        count = partial(_count_prefix, service, space, condition)
        reason = partial(reason_of_no_vectors, service, [space])

    return _Deletion(
        f"vectors of {namespace_title(space)} by the {kind} {condition[:80]!r}",
        [(space, {kind: condition})],
        count,
        reason,
    )


def _reason_of_no_id(service: Service, by_namespace: dict[str, list[str]]) -> str:
    """Return why none of the ids was deleted: their namespace has no vectors, or not these ids."""
    if reason := reason_of_no_vectors(service, list(by_namespace)):
        return reason

    ids = list(chain.from_iterable(by_namespace.values()))
    named = ", ".join(
        repr(service.redactor.own(vector_id)[:80]) for vector_id in ids[:_NAMED_IDS]
    )
    if len(ids) > _NAMED_IDS:
        named += ", …"
    return f"The namespace has vectors, but none with these ids: {named}."


def _filter_text(filter: str | MetadataFilter) -> str:  # noqa: A002
    expression = filter.text() if isinstance(filter, MetadataFilter) else filter
    return text("filter", expression, empty=False)


def _send(service: Service, deletion: _Deletion) -> tuple[int, bool]:
    """Send the requests. Return the number of deleted vectors, and whether any request was tried again."""
    deleted = 0
    was_retried = False
    with Transport.to(service, "vector") as transport:
        for space, body in deletion.requests:
            doing = f"deleting vectors of {namespace_title(space)}"
            request = index_request(doing, "delete", space, body, method="DELETE")
            try:
                count, tries = transport.fetch(request, _deleted_count)
            except BaseException as error:
                outcome = "Whether any of this request were is unknown; calling again deletes the rest."
                if isinstance(error, _REJECTED):
                    outcome = (
                        "The service rejected this request: none of it was deleted."
                    )

                error.add_note(
                    f"Before this, {deleted:,} vectors were deleted. {outcome}"
                )
                raise

            deleted += count
            was_retried = was_retried or tries > 1

    return deleted, was_retried


def reset_namespace(service: Service, namespace: str, *, confirm: bool = False) -> int:
    """Delete all vectors of one namespace; the namespace itself stays.

    Parameters
    ----------
    service : Service
    namespace : str
        ``""`` is the default namespace.
    confirm : bool
        Must be True. Otherwise nothing is deleted, and the error reports how many vectors would be.

    Returns
    -------
    int
        Number of vectors in the namespace before.

    Raises
    ------
    InputError
        If `confirm` is not True, or if the index has no namespace of this name; the error suggests the most
        similar one.
    ServiceError
        When a request fails.

    Examples
    --------
    >>> reset_namespace(service, "runbooks")
    Traceback (most recent call last):
    ...
    toolkit.errors.InputError: removing all 1,000 vectors of namespace 'runbooks': got no confirmation; ...
    """
    return _remove(
        service, "reset", _checked_namespace(namespace), "all {} of {}", confirm=confirm
    )


def delete_namespace(service: Service, namespace: str, *, confirm: bool = False) -> int:
    """Delete a namespace and all vectors in it.

    Parameters
    ----------
    service, confirm
        As in `reset_namespace`.
    namespace : str
        The default namespace cannot be deleted; use `reset_namespace` for it.

    Returns
    -------
    int
        Number of vectors in the namespace before.

    Raises
    ------
    InputError
        As in `reset_namespace`, and for the default namespace.
    ServiceError
        When a request fails.

    Examples
    --------
    >>> delete_namespace(service, "runbook", confirm=True)
    Traceback (most recent call last):
    ...
    toolkit.errors.InputError: reading namespace: got 'runbook', ... Did you mean 'runbooks'? ...
    """
    if not _checked_namespace(namespace):
        raise InputError(
            "reading namespace",
            got="the default namespace",
            expected="a namespace with a name",
            next_step="reset_namespace removes the vectors of the default namespace.",
        )

    return _remove(
        service, "delete-namespace", namespace, "{1} with its {0}", confirm=confirm
    )


def rename_namespace(
    service: Service,
    namespace: str,
    new_name: str,
    *,
    overwrite: bool = False,
    confirm: bool = False,
) -> None:
    """Give a namespace another name.

    Parameters
    ----------
    service : Service
    namespace, new_name : str
        Neither can be the default namespace.
    overwrite : bool
        If True, an existing namespace of the new name is deleted with all vectors in it.
    confirm : bool
        Must be True if `overwrite` deletes vectors; otherwise the error reports how many.

    Raises
    ------
    InputError
        For the default namespace, if no namespace has the name, or if the new name is taken and `overwrite`
        and `confirm` are not True.
    ServiceError
        When a request fails.

    Examples
    --------
    >>> rename_namespace(service, "runbooks", "incidents")
    Traceback (most recent call last):
    ...
    toolkit.errors.InputError: renaming namespace 'runbooks': got 'incidents', ... expected an ...
    """
    endpoint_of(service, "vector")
    overwrite = flag("overwrite", overwrite)
    namespace = unmasked("namespace", text("namespace", namespace, empty=False))
    new_name = unmasked("new_name", text("new_name", new_name, empty=False))

    with Transport.to(service, "vector") as transport:
        counts = read_info(transport).namespaces
        _check_exists(namespace, counts)
        if new_name in counts and not overwrite:
            raise InputError(
                f"renaming namespace {namespace[:80]!r}",
                got=f"{new_name!r}, which exists already, with {counts[new_name]:,} vectors",
                expected="an unused name",
                next_step="overwrite=True and confirm=True delete the namespace that has this name.",
            )

        if new_name in counts:
            confirmed(
                f"removing {counts[new_name]:,} vectors of namespace {new_name[:80]!r}",
                confirm,
                _FOR_GOOD,
            )

        body = {
            "namespace": namespace,
            "newNamespace": new_name,
            "deleteExisting": overwrite,
        }
        # a second try would find no namespace of the old name
        request = index_request(
            f"renaming namespace {namespace[:80]!r}",
            "rename-namespace",
            "",
            body,
            repeatable=False,
        )
        transport.fetch(request, result_bytes)


def _remove(
    service: Service, operation: str, namespace: str, target: str, *, confirm: bool
) -> int:
    """Reset or delete a namespace. For example, `target` is "all {} of {}": the vectors, the namespace."""
    endpoint_of(service, "vector")
    with Transport.to(service, "vector") as transport:
        info = read_info(transport)
        _check_exists(namespace, info.namespaces)
        count = info.namespaces.get(namespace, 0)
        doing = "removing " + target.format(
            f"{count:,} vectors", namespace_title(namespace)
        )
        confirmed(doing, confirm, _FOR_GOOD)
        # Emptying a namespace twice has the same effect. Deleting it a
        # second time fails, as it no longer exists.
        request = index_request(
            doing,
            operation,
            namespace,
            method="DELETE",
            repeatable=operation == "reset",
        )
        transport.fetch(request, result_bytes)

    return count


def _counted(deletion: _Deletion) -> str:
    """Return how many vectors would be deleted, for the request to confirm."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnexpectedResultWarning)
            return f"{deletion.count():,}"
    except InputError:
        raise
    except ToolkitError:
        return "an unknown number of"


def _check_exists(namespace: str, counts: dict[str, int]) -> None:
    """Raise InputError if the index has no namespace of this name; the default one always exists."""
    if namespace and namespace not in counts:
        raise InputError(
            "reading namespace",
            got=f"{namespace[:80]!r}, which the index does not have",
            expected="a namespace of the index",
            next_step=nearest(namespace, sorted(filter(None, counts))),
        )


def _deleted_count(request: Request, response: Response) -> tuple[int, int]:
    """Read the number of deleted vectors, and how often the request was tried."""
    value = object_field(
        request, "result", read_body(request, response).get("result"), required=True
    )
    return count_field(request, "deleted", value, required=True), response.tries


def _checked_namespace(namespace: object) -> str:
    return unmasked("namespace", text("namespace", namespace))


def _ids_by_namespace(ids: Any, namespace: str | None) -> dict[str, list[str]]:
    """Return the unique ids by the namespace that they are deleted from, in the order given."""
    if namespace is not None:
        namespace = one_namespace(namespace)
    located_ids = ids_in_namespaces("ids", ids, namespace)
    if not located_ids:
        raise InputError(
            "reading ids",
            got="no ids",
            expected="exact ids, or a frame with a column 'id'",
        )

    # the keys of a dict are a set that keeps the order
    by_namespace: dict[str, dict[str, None]] = {}
    for space, vector_id in located_ids:
        by_namespace.setdefault(space, {})[vector_id] = None
    return {space: list(unique_ids) for space, unique_ids in by_namespace.items()}


_IDS_ONLY: Final[dict[str, Any]] = {
    "include_vectors": False,
    "include_metadata": False,
    "include_data": False,
}


def _count_ids(service: Service, by_namespace: dict[str, list[str]]) -> int:
    """Return how many of the ids are in the index, by fetching them."""
    count = 0
    for space, ids in by_namespace.items():
        fetched = fetch_vectors(service, ids, namespace=space, **_IDS_ONLY)
        count += int((fetched["vector_problem"] != ABSENT).sum())

    return count


def _count_prefix(service: Service, namespace: str, prefix: str) -> int:
    """Return how many ids of a namespace start with a prefix, by reading them."""
    pages = iter_vectors(
        service, namespace=namespace, prefix=prefix, progress=False, **_IDS_ONLY
    )
    return sum(map(len, pages))


def _count_matches(service: Service, namespace: str, condition: str) -> int:
    """Return how many vectors match a filter, by reading the metadata of the namespace."""
    return len(find_matches(service, namespace, condition).ids)


def _reason_of_no_match(service: Service, namespace: str, condition: str) -> str:
    return find_matches(service, namespace, condition).reason


def _reason(deletion: _Deletion) -> str:
    """Return why no vector would be deleted; "" if the service does not tell."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnexpectedResultWarning)
            return deletion.reason()
    except ToolkitError:
        return ""  # the deletion itself has succeeded


def _warn(message: str) -> None:
    warnings.warn(message, UnexpectedResultWarning, stacklevel=3)
