"""Vectors deleted, and namespaces reset, renamed and deleted: exactly what is named, once it is confirmed."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final, TypeAlias

import pandas as pd

from toolkit.arguments import confirmed, flag, nearest, plain, text, unmasked
from toolkit.client.pages import result_bytes
from toolkit.client.responses import Request, Response, count_field, object_field, read_body
from toolkit.client.transport import Transport
from toolkit.client.vectors import index_request, namespace_title, read_info
from toolkit.errors import InputError, ToolkitError, UnexpectedResultWarning
from toolkit.filters.metadata import MetadataFilter
from toolkit.loading.vectors import (
    ABSENT,
    FETCH_BATCH,
    batched,
    fetch_vectors,
    ids_in_namespaces,
    iter_vectors,
)
from toolkit.settings.service import Service, endpoint_of
from toolkit.tables.frame_filters import match_metadata

VectorIds: TypeAlias = str | Iterable[str] | pd.DataFrame

_FOR_GOOD: Final = "What is removed cannot be read again; export_vectors keeps a snapshot of it."


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
        Exact ids, or a frame with a column ``id``, as `load_vectors` and `query` return it; with a column
        ``namespace``, they are deleted from there unless `namespace` is passed. Exactly one of `ids`,
        `prefix` and `filter`.
    prefix : str, optional
        All vectors whose ids start with it.
    filter : str or MetadataFilter, optional
        All vectors whose metadata match.
    namespace : str, optional
        Default: the default namespace, ``""``.
    confirm : bool
        Must be True. Without it nothing is deleted, and the error says how many vectors would be: those with
        a prefix or filter are counted by reading the ids, or ids and metadata, of the namespace.

    Returns
    -------
    int
        How many the service deleted. Fewer than the ids means that some were not there.

    Raises
    ------
    InputError
        Without ``confirm=True``, for none or several of `ids`, `prefix` and `filter`, and for empty ones.
    ServiceError
        When a request fails; a note on the error says how many had been deleted by then.

    Warns
    -----
    UnexpectedResultWarning
        When nothing was deleted.

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
        by_namespace = _ids_by_namespace(ids, namespace)
        bodies: list[tuple[str, dict[str, Any]]] = [
            (space, {"ids": some})
            for space, all_ids in by_namespace.items()
            for some in batched(all_ids, FETCH_BATCH)
        ]
        where = " and ".join(map(namespace_title, list(by_namespace)[:3])) + ", …" * (len(by_namespace) > 3)  # noqa: PLR2004
        counting: Callable[[], int] = partial(_count_ids, service, by_namespace)
        described = f"vectors of {where} by {sum(map(len, by_namespace.values())):,} ids"
    else:
        chosen = (
            unmasked("prefix", text("prefix", prefix, empty=False))
            if filter is None
            else text("filter", filter.text() if isinstance(filter, MetadataFilter) else filter, empty=False)
        )
        space = _named("" if namespace is None else namespace)
        bodies = [(space, {names[0]: chosen})]
        counting = partial(_count_matching, service, space, **{names[0]: chosen})
        described = f"vectors of {namespace_title(space)} by the {names[0]} {chosen[:80]!r}"
    if plain(confirm) is not True:
        confirmed(f"deleting {_many(counting)} {described}", confirm, _FOR_GOOD)
    deleted = retried = 0
    with Transport.to(service, "vector") as transport:
        for space, body in bodies:
            doing = f"deleting vectors of {namespace_title(space)}"
            request = index_request(doing, "delete", space, body, method="DELETE")
            try:
                count, tries = transport.fetch(request, _deleted)
            except BaseException as error:
                error.add_note(
                    f"Before this, {deleted:,} vectors were deleted. Whether any of this request were is "
                    "unknown; calling again deletes the rest."
                )
                raise
            deleted += count
            retried += tries > 1
    if retried:
        _warn(
            f"Deleting {described}: the service counted {deleted:,}; a try whose response was lost may have "
            "deleted more. None of them is in the index now."
        )
    elif not deleted:
        _warn(f"Deleting {described}: the service deleted none. list_namespaces shows the namespaces.")
    return deleted


def reset_namespace(service: Service, namespace: str, *, confirm: bool = False) -> int:
    """Delete all vectors of one namespace; the namespace itself stays.

    Parameters
    ----------
    service : Service
    namespace : str
        ``""`` is the default namespace.
    confirm : bool
        Must be True. Without it nothing is deleted, and the error says how many vectors would be.

    Returns
    -------
    int
        How many vectors the service counted there before.

    Raises
    ------
    InputError
        Without ``confirm=True``, or when the index has no such namespace; it names the nearest.
    ServiceError
        When a request fails.

    Examples
    --------
    >>> reset_namespace(service, "runbooks")
    Traceback (most recent call last):
    ...
    toolkit.errors.InputError: removing all 1,000 vectors of namespace 'runbooks': got no confirmation; ...
    """
    return _remove(service, "reset", _named(namespace), "all {} of {}", confirm=confirm)


def delete_namespace(service: Service, namespace: str, *, confirm: bool = False) -> int:
    """Delete a namespace with all its vectors.

    Parameters
    ----------
    service, confirm
        As in `reset_namespace`.
    namespace : str
        Not the default one, which can only be reset.

    Returns
    -------
    int
        How many vectors the service counted there before.

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
    if not _named(namespace):
        raise InputError(
            "reading namespace",
            got="the default namespace",
            expected="one with a name",
            next_step="reset_namespace removes the vectors of the default one.",
        )
    return _remove(service, "delete-namespace", namespace, "{1} with its {0}", confirm=confirm)


def rename_namespace(
    service: Service, namespace: str, new_name: str, *, overwrite: bool = False, confirm: bool = False
) -> None:
    """Give a namespace another name.

    Parameters
    ----------
    service : Service
    namespace, new_name : str
        Neither is the default one.
    overwrite : bool
        Whether a namespace that has the new name already is deleted, with its vectors.
    confirm : bool
        Must be True where `overwrite` deletes vectors; the error says how many.

    Raises
    ------
    InputError
        For the default namespace, when there is none of the name, or when the new name is taken and
        `overwrite` and `confirm` are not True.
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
    namespace, new_name = (
        unmasked(name, text(name, value, empty=False))
        for name, value in (("namespace", namespace), ("new_name", new_name))
    )
    with Transport.to(service, "vector") as transport:
        counts = read_info(transport).namespaces
        _check_there(namespace, counts)
        if new_name in counts and not overwrite:
            raise InputError(
                f"renaming namespace {namespace[:80]!r}",
                got=f"{new_name!r}, which is there already, with {counts[new_name]:,} vectors",
                expected="an unused name",
                next_step="overwrite=True and confirm=True delete what has that name.",
            )
        if new_name in counts:
            confirmed(
                f"removing {counts[new_name]:,} vectors of namespace {new_name[:80]!r}", confirm, _FOR_GOOD
            )
        body = {"namespace": namespace, "newNamespace": new_name, "deleteExisting": overwrite}
        # a second try would find no namespace of the old name
        request = index_request(
            f"renaming namespace {namespace[:80]!r}", "rename-namespace", "", body, repeatable=False
        )
        transport.fetch(request, result_bytes)


def _remove(service: Service, operation: str, namespace: str, what: str, *, confirm: bool) -> int:
    endpoint_of(service, "vector")
    with Transport.to(service, "vector") as transport:
        info = read_info(transport)
        _check_there(namespace, info.namespaces)
        count = info.namespaces.get(namespace, 0)
        doing = "removing " + what.format(f"{count:,} vectors", namespace_title(namespace))
        confirmed(doing, confirm, _FOR_GOOD)
        request = index_request(doing, operation, namespace, method="DELETE", repeatable=operation == "reset")
        transport.fetch(request, result_bytes)
    return count


def _many(counting: Callable[[], int]) -> str:
    """How many vectors would be deleted."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnexpectedResultWarning)
            return f"{counting():,}"
    except InputError:
        raise
    except ToolkitError:
        return "an unknown number of"


def _check_there(namespace: str, counts: dict[str, int]) -> None:
    if namespace and namespace not in counts:
        raise InputError(
            "reading namespace",
            got=f"{namespace[:80]!r}, which the index does not have",
            expected="one of its namespaces",
            next_step=nearest(namespace, sorted(filter(None, counts))),
        )


def _deleted(request: Request, response: Response) -> tuple[int, int]:
    value = object_field(request, "result", read_body(request, response).get("result"), required=True)
    return count_field(request, "deleted", value, required=True), response.tries


def _named(namespace: object) -> str:
    return unmasked("namespace", text("namespace", namespace))


def _ids_by_namespace(ids: Any, namespace: str | None) -> dict[str, list[str]]:
    """Each id once, in order, with the namespace that it is deleted from."""
    wanted = ids_in_namespaces("ids", ids, namespace)
    if not wanted:
        raise InputError("reading ids", got="no ids", expected="exact ids, or a frame with a column 'id'")
    result: dict[str, dict[str, None]] = {}
    for space, item in wanted:
        result.setdefault(space, {})[item] = None
    return {space: list(listed) for space, listed in result.items()}


_NOTHING: Final[dict[str, Any]] = {"include_vectors": False, "include_metadata": False, "include_data": False}


def _count_ids(service: Service, by_namespace: dict[str, list[str]]) -> int:
    frames = (fetch_vectors(service, ids, namespace=space, **_NOTHING) for space, ids in by_namespace.items())
    return sum(int((fetched["vector_problem"] != ABSENT).sum()) for fetched in frames)


def _count_matching(
    service: Service,
    namespace: str,
    *,
    prefix: str | None = None,
    filter: str | None = None,  # noqa: A002
) -> int:
    options = _NOTHING | {"include_metadata": filter is not None}
    pages = iter_vectors(service, namespace=namespace, prefix=prefix, progress=False, **options)
    return sum(len(page) if filter is None else int(match_metadata(page, filter).sum()) for page in pages)


def _warn(message: str) -> None:
    warnings.warn(message, UnexpectedResultWarning, stacklevel=3)
