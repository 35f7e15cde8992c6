"""Store and update vectors, in batches. Rows can be frames, Arrow tables or mappings."""

from __future__ import annotations

import json
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sized
from itertools import groupby
from typing import Any, Final, Literal, TypeAlias

import msgspec
import pandas as pd

from toolkit.base.arguments import choice, wrong
from toolkit.base.errors import ServiceError, UnexpectedResultWarning
from toolkit.base.progress import ProgressBar, ProgressOption
from toolkit.filters.metadata import MetadataFilter
from toolkit.loading.fetching import fetch_vectors
from toolkit.loading.options import LoadOptions
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
from toolkit.service.vectors import index_request, namespace_title
from toolkit.tables.arrow_input import ArrowStream
from toolkit.tables.metadata_fields import metadata_values
from toolkit.vectors.matching_vectors import find_matches, reason_of_no_vectors
from toolkit.vectors.row_encoding import (
    BATCH_ROWS,
    RowEncoder,
    WireRow,
    one_namespace,
)

_BATCH_BYTES: Final = 8 << 20  # bytes per request at most, unless a single row has more
_LISTED_FIELDS: Final = 10
_LISTED_IDS: Final = 5  # ids named in a warning; further ones become an ellipsis

VectorRows: TypeAlias = (
    Mapping[str, Any] | Iterable[Mapping[str, Any]] | pd.DataFrame | ArrowStream
)


def upsert_vectors(
    service: Service,
    rows: VectorRows,
    *,
    namespace: str | None = None,
    progress: ProgressOption = None,
) -> int:
    """Insert or replace vectors, or send text for the model of the index to embed.

    Parameters
    ----------
    service : Service
    rows : mapping, iterable of mapping, DataFrame or pyarrow.Table
        Each row has an ``id`` and one of: ``vector`` (d finite numbers), ``sparse``
        (``{"indices": …, "values": …}`` or a pair of them), both (hybrid indexes), or ``data`` alone (text
        that the index embeds). Optional are ``metadata`` (a mapping, or JSON, which is sent unchanged),
        ``namespace`` and, next to a vector, ``data``. You can pass a frame of `load_vectors` unchanged:
        ``sparse_indices`` and ``sparse_values`` are read as well. Missing values (None, NaN, NA) count as
        absent, also inside of metadata; times in metadata become ISO 8601, arrays become lists. A missing
        ``vector`` next to ``data`` is an error, because the index would embed the text.
    namespace : str, optional
        Namespace for all rows; it is created if it does not exist. If omitted, each row goes to the
        ``namespace`` of the row, or to the default namespace ``""``.
    progress : bool or callable, optional
        As in `load_vectors`.

    Returns
    -------
    int
        Number of rows sent, in requests of at most 1,000 rows and 8 MB. Sending the same rows again changes
        nothing.

    Raises
    ------
    InputError
        If a row has no id or nothing to store, an unknown name, numbers that are not finite, or text in
        which one of your tokens was masked when it was loaded. The error names the row, and a note gives the
        number of rows stored before it.
    ServiceError
        When a request fails; a note on the error gives the number of rows stored before.

    Examples
    --------
    >>> try:
    ...     upsert_vectors(service, [{"id": "a", "vectr": [0.1, 0.2]}])
    ... except tk.errors.InputError as error:
    ...     print(error)
    reading row 0 of rows: got the name 'vectr'; ... Did you mean 'vector'? ...
    """
    endpoint_of(service, "vector")
    options = LoadOptions(progress=progress)
    total = None
    if isinstance(rows, Sized) and not isinstance(rows, Mapping):
        total = len(rows)
    wire = RowEncoder(service, namespace).rows(rows)

    sent = 0
    with (
        Transport.to(service, "vector", progress=progress) as transport,
        ProgressBar(
            options.progress, title="storing", unit="vectors", total=total
        ) as bar,
    ):
        for count in store_rows(transport, wire):
            sent += count
            bar.add(count)

    return sent


def update_vectors(
    service: Service,
    rows: VectorRows,
    *,
    namespace: str | None = None,
    filter: str | MetadataFilter | None = None,  # noqa: A002 - the service's own name
    metadata_update_mode: Literal["OVERWRITE", "PATCH"] = "PATCH",
    progress: ProgressOption = None,
) -> int:
    """Change parts of stored vectors; parts that a row does not contain stay unchanged.

    For example, a row of ``id`` and ``metadata`` leaves the vector alone. If the index embeds text itself, a
    row with new ``data`` and no vector also replaces the vector.

    Parameters
    ----------
    service, rows, namespace, progress
        As in `upsert_vectors`; a row needs ``id`` and at least one of ``vector``, ``sparse``, ``metadata``,
        ``data``. All rows are read before the first is sent.
    filter : str or MetadataFilter, optional
        Update all vectors of the namespace whose metadata match. `rows` is then one mapping without an
        ``id``, for example ``{"metadata": {"lang": "en"}}``. The matches are found by reading the ids and
        metadata of the namespace.
    metadata_update_mode : {"PATCH", "OVERWRITE"}
        Merge the new metadata into the stored metadata (RFC 7396: None removes a field), or replace all
        stored metadata. Before metadata are replaced, they are read, to warn of fields that are lost.

    Returns
    -------
    int
        Number of updated vectors. Each is updated by a request of its own.

    Raises
    ------
    InputError
        As in `upsert_vectors`; nothing has been sent.
    ServiceError
        When a request fails; a note on the error gives the number of rows sent before.

    Warns
    -----
    UnexpectedResultWarning
        If the index does not have some of the ids; they are not created. If ``"OVERWRITE"`` removes fields:
        the warning names the fields and the number of rows of each. If no vector matches the filter.

    Examples
    --------
    >>> tk.upsert_vectors(service, {"id": "a", "vector": [0.5] * 256, "metadata": {"n": 1}}, namespace="new")
    1
    >>> changed = {"id": "a", "metadata": {"seen": True}}
    >>> update_vectors(service, changed, namespace="new")
    1
    >>> tk.fetch_vectors(service, "a", namespace="new")["metadata"][0]
    '{"n":1,"seen":true}'
    >>> tk.delete_namespace(service, "new", confirm=True)
    1
    """
    endpoint_of(service, "vector")
    options = LoadOptions(progress=progress)
    metadata_update_mode = choice(
        "metadata_update_mode", metadata_update_mode, ("PATCH", "OVERWRITE")
    )
    encoder = RowEncoder(service, namespace, metadata_update_mode)
    if filter is not None:
        rows = _rows_of_matches(service, rows, namespace or "", filter)
    wire = list(encoder.rows(rows))
    lost_fields: Counter[str] = Counter()
    if metadata_update_mode == "OVERWRITE":
        lost_fields = _lost_fields(service, wire)

    updated = 0
    absent_ids = []
    absent_from: dict[str, None] = {}
    with (
        Transport.to(service, "vector", progress=progress) as transport,
        ProgressBar(
            options.progress, title="updating", unit="vectors", total=len(wire)
        ) as bar,
    ):
        for index, row in enumerate(wire):
            request = index_request(
                f"updating a vector of {namespace_title(row.namespace)}",
                "update",
                row.namespace,
                row.body,
            )
            try:
                is_updated = transport.fetch(request, _updated_count)
            except BaseException as error:
                error.add_note(f"Rows sent before this: {index:,} of {len(wire):,}.")
                raise

            updated += is_updated
            if not is_updated:
                absent_ids.append(msgspec.json.decode(row.body)["id"])
                absent_from[row.namespace] = None

            bar.add(1)

    if absent_ids:
        named = [
            repr(service.redactor.own(absent_id)[:80])
            for absent_id in absent_ids[:_LISTED_IDS]
        ]
        if len(absent_ids) > _LISTED_IDS:
            named.append("…")
        places = " and ".join(map(namespace_title, absent_from))
        reason = reason_of_no_vectors(service, list(absent_from))
        warnings.warn(
            f"{len(absent_ids):,} of {len(wire):,} ids are not in the index, and were not created: "
            f"{', '.join(named)} of {places}. {reason}".rstrip(),
            UnexpectedResultWarning,
            stacklevel=2,
        )

    if lost_fields:
        listed = [
            f"{service.redactor.own(name)[:80]!r} ({count:,} rows)"
            for name, count in lost_fields.most_common(_LISTED_FIELDS)
        ]
        if len(lost_fields) > _LISTED_FIELDS:
            listed.append("…")
        warnings.warn(
            f"OVERWRITE removed fields of metadata that the new metadata do not have: {', '.join(listed)}. "
            'To keep fields, use metadata_update_mode="PATCH".',
            UnexpectedResultWarning,
            stacklevel=2,
        )

    return updated


def _rows_of_matches(
    service: Service, rows: Any, namespace: str, condition: str | MetadataFilter
) -> Iterator[dict[str, Any]]:
    """Return a row per vector that matches, with the changes that `rows` contains."""
    if not isinstance(rows, Mapping) or not {"id", "namespace"}.isdisjoint(rows):
        raise wrong(
            "rows",
            rows,
            "one mapping of changes without an id, because filter= selects the vectors",
        )

    matches = find_matches(service, one_namespace(namespace), condition)
    if not matches.ids:
        warnings.warn(
            f"Nothing was updated. {matches.reason}".rstrip(),
            UnexpectedResultWarning,
            stacklevel=3,
        )

    return ({"id": vector_id, **rows} for vector_id in matches.ids)


def _lost_fields(service: Service, wire: list[WireRow]) -> Counter[str]:
    """Count the rows per stored field of metadata that the new metadata do not have."""
    new_fields: dict[str, dict[str, set[str]]] = {}
    for row in wire:
        body = msgspec.json.decode(row.body)
        if "metadata" in body:
            ids = new_fields.setdefault(row.namespace, {})
            ids[body["id"]] = set(body["metadata"])

    lost: Counter[str] = Counter()
    for namespace, by_id in new_fields.items():
        stored = fetch_vectors(
            service,
            list(by_id),
            namespace=namespace,
            include_vectors=False,
            include_data=False,
        )
        values = metadata_values(stored["metadata"])
        for vector_id, value in zip(stored["id"], values, strict=True):
            if isinstance(value, Mapping):
                lost.update(value.keys() - by_id.get(vector_id, value.keys()))

    return lost


def _updated_count(request: Request, response: Response) -> int:
    """Read the number of vectors that an update changed: 0 if the id is not in the index, else 1."""
    value = object_field(
        request, "result", read_body(request, response).get("result"), required=True
    )
    return count_field(request, "updated", value, required=True, most=1)


def store_rows(transport: Transport, rows: Iterable[WireRow]) -> Iterator[int]:
    """Store rows in order, and yield the number of rows of each stored batch."""
    # a batch can need several requests, for example for two namespaces: `stored` counts rows of requests,
    # `done` rows of whole batches
    done = stored = 0
    try:
        for batch in _batches(rows):
            for namespace, operation, sent in _requests(batch):
                request = index_request(
                    f"storing vectors in {namespace_title(namespace)}",
                    operation,
                    namespace,
                    [row.body for row in sent],
                )
                try:
                    transport.fetch(request, result_bytes)
                except ServiceError as error:
                    error.add_note(_located_request(sent, str(error)))
                    raise

                stored += len(sent)

            done += len(batch)
            yield len(batch)
    except (Exception, KeyboardInterrupt) as error:
        among = f" The first {done:,} rows are among them." if stored > done else ""
        error.add_note(f"Rows stored before this: {stored:,}.{among}")
        raise


def _batches(rows: Iterable[WireRow]) -> Iterator[list[WireRow]]:
    """Yield batches of bounded count and size, in the order given."""
    batch: list[WireRow] = []
    size = 0
    for row in rows:
        length = len(memoryview(row.body))
        if batch and (len(batch) == BATCH_ROWS or size + length > _BATCH_BYTES):
            yield batch
            batch, size = [], 0

        batch.append(row)
        size += length

    if batch:
        yield batch


_POSITION: Final = re.compile(
    r"\b(?:row|vector|item|index|position)s?[ \[#:]{1,2}(\d{1,6})\b", re.IGNORECASE
)


def _located_request(rows: list[WireRow], message: str) -> str:
    """Return a note with the rows of a request that failed, and the row that the message counts to.

    A service counts from 0 within the request, for example "row 25".
    """
    first, last = rows[0], rows[-1]
    note = (
        f"The request has the rows at positions {first.position:,} to {last.position:,} (from 0) of "
        f"{namespace_title(first.namespace)}, ids {_id_of(first)} to {_id_of(last)}."
    )
    match = _POSITION.search(message)
    if match is None or int(match[1]) >= len(rows):
        return f"{note}{_other_length(rows)}"

    counted = rows[int(match[1])]
    return (
        f"{note} {match[0]!r} of the request, from 0, is position {counted.position:,} of your rows: "
        f"id {_id_of(counted)}."
    )


def _other_length(rows: list[WireRow]) -> str:
    """Return a sentence about the first row whose vector has another length than most; "" if all are alike.

    A service names the length that it refuses, but not the row.
    """
    lengths = [len(json.loads(bytes(row.body)).get("vector") or ()) for row in rows]
    ((usual, _),) = Counter(lengths).most_common(1)
    others = [number for number, length in enumerate(lengths) if length != usual]
    if not others:
        return ""

    row = rows[others[0]]
    return (
        f" Most vectors have {usual:,} numbers, and {len(others):,} have not: the first is at position "
        f"{row.position:,}, id {_id_of(row)}, with {lengths[others[0]]:,}."
    )


def _id_of(row: WireRow) -> str:
    # a refused row can contain NaN or a lone surrogate, which msgspec does not read
    row_id = json.loads(bytes(row.body))["id"]
    return repr(str(row_id)[:80])


def _requests(batch: list[WireRow]) -> Iterator[tuple[str, str, list[WireRow]]]:
    """Yield one request per namespace and operation: the namespace, the operation and the rows.

    The rows of a namespace keep their order, so that the last of several rows with one id stays.
    """
    by_namespace: dict[str, list[WireRow]] = {}
    for row in batch:
        by_namespace.setdefault(row.namespace, []).append(row)
    for namespace, rows in by_namespace.items():
        for operation, run in groupby(rows, key=lambda row: row.operation):
            yield namespace, operation, list(run)
