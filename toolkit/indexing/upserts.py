"""Rows that are stored in an index or updated, read from frames, Arrow or mappings, in batches."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sized
from itertools import groupby
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec
import pandas as pd

from toolkit.arguments import as_json, choice, nearest, text, unmasked, wrong
from toolkit.client.pages import result_bytes
from toolkit.client.responses import Request, Response, count_field, object_field, read_body
from toolkit.client.transport import Transport
from toolkit.client.vectors import index_request, namespace_title
from toolkit.errors import InputError, UnexpectedResultWarning
from toolkit.filters.query import numbers, sparse_vector
from toolkit.loading.options import LoadOptions
from toolkit.progress import ProgressBar, ProgressOption
from toolkit.settings.service import Service, endpoint_of
from toolkit.tables.arrow_input import ArrowStream, arrow_table

BATCH_ROWS: Final = 1000  # rows of a request at most
_BATCH_BYTES: Final = 8 << 20  # of a request at most, unless a single row has more
_LISTED: Final = 5

VectorRows: TypeAlias = Mapping[str, Any] | Iterable[Mapping[str, Any]] | pd.DataFrame | ArrowStream


class WireRow(NamedTuple):
    """A row as it is sent: its namespace, the operation that stores it, and its JSON."""

    namespace: str
    operation: str
    body: msgspec.Raw


def upsert_vectors(
    service: Service, rows: VectorRows, *, namespace: str | None = None, progress: ProgressOption = None
) -> int:
    """Insert or replace vectors, or texts for the index's own model to embed.

    Parameters
    ----------
    service : Service
    rows : mapping, iterable of mapping, DataFrame or pyarrow.Table
        Each with ``id`` and one of: ``vector`` (d finite numbers), ``sparse``
        (``{"indices": …, "values": …}`` or a pair of them), both (hybrid indexes), or ``data`` alone (text
        that the index embeds). Optional: ``metadata`` (a mapping, or its JSON text, which is sent as it is),
        with a vector ``data``, and ``namespace``. A frame of `load_vectors` is fine as it is:
        ``sparse_indices`` and ``sparse_values`` are read too. Missing values (None, NaN, NA) count as not
        given, but for a missing ``vector`` beside ``data``: an error, as the index would embed the text.
    namespace : str, optional
        Where all rows go. Made when it does not exist. Default: the row's own ``namespace``, else ``""``.
    progress : bool or callable, optional
        As in `load_vectors`.

    Returns
    -------
    int
        How many rows were sent, in requests of at most 1,000 rows and 8 MB. Sending the same rows again
        changes nothing.

    Raises
    ------
    InputError
        A row without an id or without anything to store, with a name that is not known, with numbers that
        are not finite, or with a text in which one of our own tokens was masked when it was loaded; it says
        which row. A note says how many rows before it have been stored.
    ServiceError
        When a request fails; a note on the error says how many rows had been stored by then.

    Examples
    --------
    >>> upsert_vectors(service, [{"id": "a", "vectr": [0.1, 0.2]}])
    Traceback (most recent call last):
    ...
    toolkit.errors.InputError: reading row 0 of rows: got the name 'vectr'; ... Did you mean 'vector'? ...
    """
    endpoint_of(service, "vector")
    options = LoadOptions(progress=progress)
    total = len(rows) if isinstance(rows, Sized) and not isinstance(rows, Mapping) else None
    wire = RowEncoder(service, namespace).rows(rows)
    sent = 0
    with (
        Transport.to(service, "vector") as transport,
        ProgressBar(options.progress, title="storing", unit="vectors", total=total) as bar,
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
    metadata_update_mode: Literal["OVERWRITE", "PATCH"] = "OVERWRITE",
    progress: ProgressOption = None,
) -> int:
    """Change parts of stored vectors; what a row does not give stays as it is.

    An index that embeds texts itself replaces the vector, too, where a row has new ``data`` and no vector.

    Parameters
    ----------
    service, rows, namespace, progress
        As in `upsert_vectors`; a row needs ``id`` and at least one of ``vector``, ``sparse``, ``metadata``,
        ``data``. All rows are read before the first is sent.
    metadata_update_mode : {"OVERWRITE", "PATCH"}
        Whether metadata replace the stored ones, or are merged into them (RFC 7396: null removes a field).

    Returns
    -------
    int
        How many vectors were updated, one request each.

    Raises
    ------
    InputError
        As in `upsert_vectors`; nothing has been sent.
    ServiceError
        When a request fails; a note on the error says how many rows had been sent by then.

    Warns
    -----
    UnexpectedResultWarning
        When the index does not have some of the ids: those are not made.

    Examples
    --------
    >>> tk.upsert_vectors(service, {"id": "a", "vector": [0.5] * 256, "metadata": {"n": 1}}, namespace="new")
    1
    >>> changed = {"id": "a", "metadata": {"seen": True}}
    >>> update_vectors(service, changed, namespace="new", metadata_update_mode="PATCH")
    1
    >>> tk.fetch_vectors(service, "a", namespace="new")["metadata"][0]
    '{"n":1,"seen":true}'
    >>> tk.delete_namespace(service, "new", confirm=True)
    1
    """
    endpoint_of(service, "vector")
    options = LoadOptions(progress=progress)
    metadata_update_mode = choice("metadata_update_mode", metadata_update_mode, ("OVERWRITE", "PATCH"))
    wire = list(RowEncoder(service, namespace, metadata_update_mode).rows(rows))
    updated, absent = 0, []
    with (
        Transport.to(service, "vector") as transport,
        ProgressBar(options.progress, title="updating", unit="vectors", total=len(wire)) as bar,
    ):
        for index, row in enumerate(wire):
            request = index_request(
                f"updating a vector of {namespace_title(row.namespace)}", "update", row.namespace, row.body
            )
            try:
                done = transport.fetch(request, _updated)
            except BaseException as error:
                error.add_note(f"Rows sent before this: {index:,} of {len(wire):,}.")
                raise
            updated += done
            if not done:
                absent.append(msgspec.json.decode(row.body)["id"])
            bar.add(1)
    if absent:
        listed = ", ".join(repr(service.redactor.own(item)[:80]) for item in absent[:_LISTED])
        more = ", …" * (len(absent) > _LISTED)
        warnings.warn(
            f"{len(absent):,} of {len(wire):,} ids are not in the index, and were not made: {listed}{more}",
            UnexpectedResultWarning,
            stacklevel=2,
        )
    return updated


def _updated(request: Request, response: Response) -> int:
    value = object_field(request, "result", read_body(request, response).get("result"), required=True)
    return count_field(request, "updated", value, required=True, most=1)


def store_rows(transport: Transport, rows: Iterable[WireRow]) -> Iterator[int]:
    """Store rows in order, and yield how many more are, batch by batch."""
    done = stored = 0
    try:
        for batch in _batches(rows):
            for namespace, operation, bodies in _requests(batch):
                request = index_request(
                    f"storing vectors in {namespace_title(namespace)}", operation, namespace, bodies
                )
                transport.fetch(request, result_bytes)
                stored += len(bodies)
            done += len(batch)
            yield len(batch)
    except (Exception, KeyboardInterrupt) as error:
        among = f" The first {done:,} rows are among them." if stored > done else ""
        error.add_note(f"Rows stored before this: {stored:,}.{among}")
        raise


def _batches(rows: Iterable[WireRow]) -> Iterator[list[WireRow]]:
    """Batches bounded by count and size, in the order given."""
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


def _requests(batch: list[WireRow]) -> Iterator[tuple[str, str, list[msgspec.Raw]]]:
    """The rows by namespace, each namespace's in order, so that the last of several with one id stays."""
    by_namespace: dict[str, list[WireRow]] = {}
    for row in batch:
        by_namespace.setdefault(row.namespace, []).append(row)
    for namespace, rows in by_namespace.items():
        for operation, run in groupby(rows, key=lambda row: row.operation):
            yield namespace, operation, [row.body for row in run]


_NAMES: Final = (
    "id", "vector", "sparse", "metadata", "data", "namespace", "sparse_indices", "sparse_values",
    "vector_problem",
)  # fmt: skip
"""Names in a row; the last four are columns of `load_vectors`."""


class RowEncoder:
    """Makes rows of one call what is sent; `update` is how metadata change, None for an upsert."""

    def __init__(self, service: Service, namespace: str | None = None, update: str | None = None) -> None:
        endpoints = filter(None, (service.queue, service.vector))
        secrets = (secret for endpoint in endpoints for secret in endpoint.secrets)
        self._masks = [service.redactor.mask(secret.reveal()) for secret in secrets]
        self._namespace = None if namespace is None else unmasked("namespace", text("namespace", namespace))
        self._update = update

    def rows(self, rows: Any) -> Iterator[WireRow]:
        """All rows; InputError for the first one that cannot be sent."""
        for index, row in enumerate(_rows(rows)):
            yield self.encode(f"row {index:,} of rows", row)

    def encode(self, name: str, row: Mapping[str, Any]) -> WireRow:
        """One row; InputError, which names it, where it cannot be sent."""
        space, wire = _wire_row(name, row, self._masks, update=self._update is not None)
        operation = "upsert" if {"vector", "sparseVector"} & wire.keys() else "upsert-data"
        if self._update is not None and "metadata" in wire:
            wire["metadataUpdateMode"] = self._update
        body = msgspec.Raw(msgspec.json.encode(wire))
        return WireRow(space if self._namespace is None else self._namespace, operation, body)

    def namespace_of(self, row: Mapping[str, Any]) -> str:
        """Where a row goes."""
        return (row.get("namespace") or "") if self._namespace is None else self._namespace


def _rows(rows: Any) -> Iterator[Mapping[str, Any]]:
    """Rows as mappings; of a frame a batch at a time, as they take much memory."""
    if isinstance(rows, Mapping):
        yield rows
    elif not hasattr(rows, "iloc") and (table := arrow_table(rows)) is not None:
        for batch in table.to_batches(max_chunksize=BATCH_ROWS):
            yield from batch.to_pylist()
    elif hasattr(rows, "columns") and hasattr(rows, "iloc"):
        if rows.columns.has_duplicates:
            raise wrong("rows", rows, "a frame with each column once")
        for start in range(0, len(rows), BATCH_ROWS):
            yield from rows.iloc[start : start + BATCH_ROWS].to_dict("records")
    elif isinstance(rows, str | bytes) or not isinstance(rows, Iterable):
        raise wrong("rows", rows, "a mapping, several, or a DataFrame")
    else:
        yield from rows


def _wire_row(
    name: str, row: Mapping[str, Any], masks: list[str], *, update: bool
) -> tuple[str, dict[str, Any]]:
    """The namespace of a row, and the row as the service's JSON object."""
    if not isinstance(row, Mapping):
        raise wrong(name, row, "a mapping with an id and a vector, sparse vector or data")
    for key in row:
        if key not in _NAMES:
            raise InputError(
                f"reading {name}",
                got=f"the name {str(key)[:80]!r}",
                expected="names that a row may have",
                next_step=nearest(key, _NAMES),
            )
    given = {key: value for key, value in row.items() if not _missing(value)}
    identity = unmasked(f"the id of {name}", text(f"the id of {name}", row.get("id"), empty=False))
    if "vector_problem" in given:
        raise InputError(
            f"reading {name}",
            got=f"{identity!r}, whose vector_problem is {str(given['vector_problem'])[:80]!r}",
            expected="a vector that can be stored",
            next_step="Leave such rows out: rows[rows['vector_problem'].isna()].",
        )
    wire: dict[str, Any] = {"id": identity}
    if "vector" in given:
        wire["vector"] = numbers(f"the vector of {name}", given["vector"])
    sparse = given.get("sparse")
    if sparse is None and {"sparse_indices", "sparse_values"} & given.keys():
        sparse = (given.get("sparse_indices", ()), given.get("sparse_values", ()))
    if sparse is not None:
        indices, values = sparse_vector(f"the sparse vector of {name}", sparse)
        wire["sparseVector"] = {"indices": indices, "values": values}
    if "metadata" in given:
        wire["metadata"] = _metadata(f"the metadata of {name}", given["metadata"])
    if "data" in given:
        wire["data"] = text(f"the data of {name}", given["data"])
    for part in ("data", "metadata"):
        value = wire.get(part)
        content = value if isinstance(value, str) else bytes(value or b"").decode()
        if any(mask in content for mask in masks):
            raise InputError(
                f"reading the {part} of {name}",
                got="text in which a token of ours was masked when it was loaded",
                expected="the text as the index has it, which the mask would replace",
                next_step="Leave the row out, or change its text.",
            )
    if not {"vector", "sparseVector", "data", *(["metadata"] if update else [])} & wire.keys():
        raise InputError(
            f"reading {name}",
            got=f"{identity!r} with no vector, no sparse vector, no data" + ", no metadata" * update,
            expected="one of them",
        )
    if not update and "vector" in row and not {"vector", "sparseVector"} & wire.keys():
        raise InputError(
            f"reading {name}",
            got=f"{identity!r} with data and an empty vector",
            expected="a vector, or data alone, which the index then embeds itself",
            next_step="Leave the name 'vector' out to let the index embed the data; of a frame, pass "
            "rows[rows['vector'].isna()].drop(columns='vector') in a call of its own.",
        )
    space = text(f"the namespace of {name}", given.get("namespace", ""))
    return unmasked(f"the namespace of {name}", space), wire


def _missing(value: Any) -> bool:
    """Whether a value is missing: None, NaN or NA."""
    if value is None:
        return True
    if hasattr(value, "__len__"):
        return False
    try:
        return bool(value != value)  # noqa: PLR0124 - NaN
    except (TypeError, ValueError, OverflowError):
        return True


def _metadata(name: str, given: Any) -> msgspec.Raw:
    """Metadata as JSON, from a mapping or from its text, whose digits stay; NaN and infinity are errors."""
    expected = "a mapping of JSON values, or its JSON text"
    value = given
    if isinstance(given, str):
        given = text(name, given)
        try:
            value = json.loads(given)
        except (ValueError, RecursionError):
            raise InputError(f"reading {name}", got="text that is not JSON", expected=expected) from None
    if not isinstance(value, Mapping):
        raise wrong(name, value, expected)
    try:
        # not msgspec, which writes NaN as null
        encoded = as_json(dict(value))
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"reading {name}", got=str(error)[:80], expected=expected) from None
    return msgspec.Raw((given if isinstance(given, str) else encoded).encode())
