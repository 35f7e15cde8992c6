"""Fetch single vectors: by exact ids in their order, or by a prefix with few ids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

import pandas as pd
import pyarrow as pa

from toolkit.base import arguments
from toolkit.base.errors import InputError
from toolkit.loading.memory import check_page
from toolkit.loading.vector_names import (
    ids_in_namespaces,
    warn_unknown_namespace,
)
from toolkit.service.settings import Service, endpoint_of
from toolkit.service.transport import Transport
from toolkit.service.vectors import (
    PREFIX_LIMIT,
    VectorParts,
    fetch_bytes,
    read_info,
)
from toolkit.tables import schemas
from toolkit.tables.frames import to_frame
from toolkit.tables.masking import ColumnMasker
from toolkit.tables.receipt import Receipt, utc_now
from toolkit.tables.vectors import decode_vectors

FETCH_BATCH: Final = 1000
"""Maximum number of ids per fetch request."""


ABSENT: Final = "no such id"
"""The `vector_problem` of an id that was fetched and does not exist."""


def fetch_vectors(
    service: Service,
    ids: str | Iterable[str] | None = None,
    *,
    prefix: str | None = None,
    namespace: str | None = None,
    include_vectors: bool = True,
    include_metadata: bool = True,
    include_data: bool = True,
) -> pd.DataFrame:
    """Fetch vectors by exact ids, or by prefix.

    Parameters
    ----------
    service : Service
    ids : str, iterable of str, or DataFrame, optional
        Exact ids, or a frame with an ``id`` column. Give either `ids` or `prefix`.
    prefix : str, optional
        Fetch the vectors with ids that start with the prefix: at most 1,000 (a limit of the service).
        `load_vectors` with a prefix has no limit.
    namespace : str, optional
        Default: for a frame with a ``namespace`` column the namespace of each row, else the default
        namespace.
    include_vectors, include_metadata, include_data : bool
        Parts that are fetched in addition to the id.

    Returns
    -------
    pandas.DataFrame
        The columns of `load_vectors`. For `ids`, one row per id, in the same order, repeated ids included. If
        an id does not exist, only the ``vector_problem`` of the row is set, to ``"no such id"``. The notes of
        the receipt in ``attrs`` contain the numbers of missing and of repeated ids.

    Raises
    ------
    InputError
        If neither or both of `ids` and `prefix` are given, if a prefix matches 1,000 vectors or more, or if
        an argument cannot be used.
    ServiceError
        If a request fails.

    Examples
    --------
    >>> from toolkit import load_vectors
    >>> some = load_vectors(service, namespace="runbooks", limit=2)["id"].tolist()
    >>> fetched = fetch_vectors(service, [some[1], "nope", *some], namespace="runbooks")
    >>> fetched["id"].tolist() == [some[1], "nope", *some]
    True
    >>> fetched["vector_problem"].dropna().to_dict()
    {1: 'no such id'}
    >>> tk.get_receipt(fetched).notes
    ('1 of 3 ids is not there', '1 id was requested more than once')
    """
    endpoint = endpoint_of(service, "vector")
    default_name = ""
    if namespace is not None:
        default_name = arguments.unmasked(
            "namespace", arguments.text("namespace", namespace)
        )

    parts = VectorParts(
        vectors=include_vectors, metadata=include_metadata, data=include_data
    )
    requested = None
    if ids is not None:
        requested = ids_in_namespaces("ids", ids, namespace)
    if prefix is not None:
        prefix = arguments.unmasked(
            "prefix", arguments.text("prefix", prefix, empty=False)
        )

    if (requested is None) == (prefix is None):
        raise InputError(
            "reading ids and prefix",
            got="neither" if requested is None else "both",
            expected="either ids or a prefix",
            next_step="To load all ids, use load_vectors.",
        )

    unique_ids: dict[str, dict[str, None]] = {}
    for name, identity in requested or ():
        unique_ids.setdefault(name, {})[identity] = None
    names = list(unique_ids) or [default_name]
    # one request per batch of ids; a prefix is one request
    batches: list[tuple[str, list[str] | None]] = []
    for name, ids_of_name in unique_ids.items():
        batches += [(name, batch) for batch in batched([*ids_of_name], FETCH_BATCH)]
    if requested is None:
        batches = [(default_name, None)]
    started = utc_now()
    with Transport.to(service, "vector") as transport:
        info = read_info(transport)
        for name in names:
            warn_unknown_namespace(name, info, stacklevel=3)
        table = _fetch(
            transport, batches, info.dimension or None, prefix=prefix, parts=parts
        )

    notes: tuple[str, ...] = ()
    if requested is None:
        _check_prefix_limit(prefix, table.num_rows)
    else:
        table, missing = _in_order(table, requested)
        notes = _fetch_notes(requested, missing)

    receipt = Receipt(
        what="vectors",
        source=service.redactor.url(endpoint.url),
        scope={
            "namespaces": names,
            "prefix": prefix,
            "ids": None if requested is None else sum(map(len, unique_ids.values())),
            "include": parts.names,
        },
        started_at=started,
        ended_at=utc_now(),
        pages=len(batches),
        requests=len(batches) + 1,
        rows=table.num_rows,
        notes=notes,
        complete=True,
    )
    return to_frame(ColumnMasker(service.redactor).table(table), receipt)


def _fetch(
    transport: Transport,
    batches: list[tuple[str, list[str] | None]],
    dimension: int | None,
    *,
    prefix: str | None,
    parts: VectorParts,
) -> pa.Table:
    """Fetch batches of ids, each with a namespace, or the ids of a prefix."""
    tables = [schemas.vectors(dimension).empty_table()]
    for name, ids in batches:
        raw = fetch_bytes(
            transport, namespace=name, ids=ids, prefix=prefix, parts=parts
        )
        check_page(raw, dimension, None)
        table = decode_vectors(
            raw, namespace=name, dimension=dimension, want_vectors=parts.vectors
        )
        tables.append(table)

    return pa.concat_tables(tables)


def _check_prefix_limit(prefix: str | None, rows: int) -> None:
    if rows < PREFIX_LIMIT:
        return

    raise InputError(
        f"fetching the vectors with prefix {prefix!r}",
        got=f"{rows:,} vectors, the most that a fetch returns, so there may be more",
        expected=f"a prefix of fewer than {PREFIX_LIMIT:,} vectors",
        next_step=f"Use load_vectors(service, prefix={prefix!r}), which has no limit.",
    )


def _fetch_notes(requested: list[tuple[str, str]], missing: int) -> tuple[str, ...]:
    """Return the notes of the receipt about missing and repeated ids."""
    occurrences = Counter(requested)
    of_all = f"{missing:,} of {len(occurrences):,} ids"
    repeated = sum(count > 1 for count in occurrences.values())

    notes = []
    if missing == 1:
        notes.append(f"{of_all} is not there")
    elif missing:
        notes.append(f"{of_all} are not there")

    if repeated == 1:
        notes.append("1 id was requested more than once")
    elif repeated:
        notes.append(f"{repeated:,} ids were requested more than once")

    return tuple(notes)


def batched(ids: list[str], size: int) -> Iterator[list[str]]:
    """Yield the ids in lists of at most this size."""
    return (ids[start : start + size] for start in range(0, len(ids), size))


def _in_order(
    table: pa.Table, requested: list[tuple[str, str]]
) -> tuple[pa.Table, int]:
    """Return one row per requested namespace and id, in order, and the number of ids that do not exist."""
    keys = zip(table["namespace"].to_pylist(), table["id"].to_pylist(), strict=True)
    positions = {key: position for position, key in enumerate(keys)}
    missing = list(dict.fromkeys(key for key in requested if key not in positions))
    absent = pa.Table.from_pylist(
        [
            {"namespace": name, "id": item, "vector_problem": ABSENT}
            for name, item in missing
        ],
        schema=table.schema,
    )
    positions |= {
        key: table.num_rows + position for position, key in enumerate(missing)
    }
    both = pa.concat_tables([table, absent])

    return both.take(pa.array([positions[key] for key in requested], pa.int64())), len(
        missing
    )
