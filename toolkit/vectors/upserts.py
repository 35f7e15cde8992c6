"""Store and update vectors, in batches. Rows can be frames, Arrow tables or mappings."""

from __future__ import annotations

import json
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sized
from itertools import groupby
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec
import pandas as pd

from toolkit.base.arguments import as_json, choice, nearest, text, unmasked, wrong
from toolkit.base.errors import InputError, ServiceError, UnexpectedResultWarning
from toolkit.base.progress import ProgressBar, ProgressOption
from toolkit.filters.metadata import MetadataFilter
from toolkit.filters.query import numbers, sparse_vector
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
from toolkit.tables.arrow_input import ArrowStream, arrow_table
from toolkit.tables.json_values import json_form
from toolkit.tables.metadata_fields import metadata_values
from toolkit.vectors.matching_vectors import find_matches

BATCH_ROWS: Final = 1000  # rows per request at most
_BATCH_BYTES: Final = 8 << 20  # bytes per request at most, unless a single row has more
_LISTED_FIELDS: Final = 10
_LISTED_IDS: Final = 5  # ids named in a warning; further ones become an ellipsis

VectorRows: TypeAlias = (
    Mapping[str, Any] | Iterable[Mapping[str, Any]] | pd.DataFrame | ArrowStream
)


class WireRow(NamedTuple):
    """A row as it is sent: the namespace, the operation that stores the row, and the JSON object."""

    namespace: str
    operation: str
    body: msgspec.Raw
    position: int = 0  # among the rows of the call, from 0


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
    total = (
        len(rows) if isinstance(rows, Sized) and not isinstance(rows, Mapping) else None
    )
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
            bar.add(1)
    if absent_ids:
        named = [
            repr(service.redactor.own(absent_id)[:80])
            for absent_id in absent_ids[:_LISTED_IDS]
        ]
        if len(absent_ids) > _LISTED_IDS:
            named.append("…")
        warnings.warn(
            f"{len(absent_ids):,} of {len(wire):,} ids are not in the index, and were not created: "
            f"{', '.join(named)}",
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
        return note
    counted = rows[int(match[1])]
    return (
        f"{note} {match[0]!r} of the request, from 0, is position {counted.position:,} of your rows: "
        f"id {_id_of(counted)}."
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


_NAMES: Final = (
    "id", "vector", "sparse", "metadata", "data", "namespace", "sparse_indices", "sparse_values",
    "vector_problem",
)  # fmt: skip
"""Names in a row; the last four are columns of `load_vectors`."""


def one_namespace(namespace: object) -> str:
    """Return the namespace to write to, or to delete from. Raise InputError for "all"."""
    name = unmasked("namespace", text("namespace", namespace))
    if name == "all":
        raise wrong(
            "namespace",
            namespace,
            "the name of one namespace, because this call changes the index",
            "Call it per namespace. For a namespace that is named 'all', use rows with a column namespace.",
        )
    return name


class RowEncoder:
    """Encodes the rows of one call as the service expects them.

    `update` is the metadata update mode, for example "PATCH"; it is None for an upsert.
    """

    def __init__(
        self, service: Service, namespace: str | None = None, update: str | None = None
    ) -> None:
        self._mask = service.redactor.own
        self._masks: list[str] = []
        for endpoint in filter(None, (service.queue, service.vector)):
            self._masks += [
                service.redactor.mask(secret.reveal()) for secret in endpoint.secrets
            ]
        if namespace is not None:
            namespace = one_namespace(namespace)
        self._namespace = namespace
        self._update = update

    def rows(self, rows: Any) -> Iterator[WireRow]:
        """Yield all rows, encoded. Raise InputError for the first row that cannot be sent."""
        for index, row in enumerate(_rows(rows)):
            try:
                encoded = self.encode(f"row {index:,} of rows", row)
            except InputError as error:
                error.add_note(self._located(index, row))
                raise
            yield encoded._replace(position=index)

    def _located(self, index: int, row: Any) -> str:
        """Return a note that tells where a row is: its position, id and namespace."""
        named = ""
        if isinstance(row, Mapping):
            namespace = str(self.namespace_of(row))
            named = f", id {str(row.get('id'))[:80]!r}, {namespace_title(namespace)}"
        return self._mask(f"The row: position {index:,} (from 0){named}.")

    def encode(self, name: str, row: Mapping[str, Any]) -> WireRow:
        """Encode one row. Raise InputError with the name of the row if it cannot be sent."""
        row_namespace, wire = _wire_row(
            name, row, self._masks, update=self._update is not None
        )
        operation = "upsert" if _VECTOR_FIELDS & wire.keys() else "upsert-data"
        if self._update is not None and "metadata" in wire:
            wire["metadataUpdateMode"] = self._update
        body = msgspec.Raw(msgspec.json.encode(wire))
        if self._namespace is not None:
            return WireRow(self._namespace, operation, body)
        return WireRow(row_namespace, operation, body)

    def namespace_of(self, row: Mapping[str, Any]) -> str:
        """Return the namespace that a row goes to."""
        if self._namespace is not None:
            return self._namespace
        return row.get("namespace") or ""


_VECTOR_FIELDS: Final = frozenset({"vector", "sparseVector"})
"""Fields of a row as it is sent, of which one means that the index need not embed the data."""


def _rows(rows: Any) -> Iterator[Mapping[str, Any]]:
    """Yield rows as mappings. Frames are converted batch by batch, because mappings take much memory."""
    if isinstance(rows, Mapping):
        yield rows
    elif not hasattr(rows, "iloc") and (table := arrow_table(rows)) is not None:
        for batch in table.to_batches(max_chunksize=BATCH_ROWS):
            yield from batch.to_pylist()
    elif hasattr(rows, "columns") and hasattr(rows, "iloc"):
        if rows.columns.has_duplicates:
            raise wrong("rows", rows, "a frame with unique columns")
        for start in range(0, len(rows), BATCH_ROWS):
            yield from rows.iloc[start : start + BATCH_ROWS].to_dict("records")
    elif isinstance(rows, str | bytes) or not isinstance(rows, Iterable):
        raise wrong("rows", rows, "a mapping, several mappings, or a DataFrame")
    else:
        yield from rows


def _wire_row(
    name: str, row: Mapping[str, Any], masks: list[str], *, update: bool
) -> tuple[str, dict[str, Any]]:
    """Return the namespace of a row, and the JSON object that the service expects for it."""
    if not isinstance(row, Mapping):
        raise wrong(
            name, row, "a mapping with an id and a vector, sparse vector or data"
        )
    _check_names(name, row)
    present = {key: value for key, value in row.items() if not _missing(value)}
    vector_id = unmasked(
        f"the id of {name}", text(f"the id of {name}", row.get("id"), empty=False)
    )
    if "vector_problem" in present:
        raise InputError(
            f"reading {name}",
            got=f"{vector_id!r}, whose vector_problem is {str(present['vector_problem'])[:80]!r}",
            expected="a vector that can be stored",
            next_step="Leave rows with a problem out: rows[rows['vector_problem'].isna()].",
        )
    wire = {"id": vector_id} | _stored_parts(name, present)
    _check_unmasked(name, wire, masks)
    _check_storable(name, row, wire, update=update)
    namespace = text(f"the namespace of {name}", present.get("namespace", ""))
    return unmasked(f"the namespace of {name}", namespace), wire


_SYNONYMS: Final = {
    "text": "data", "content": "data", "document": "data", "page_content": "data", "chunk": "data",
    "embedding": "vector", "embeddings": "vector", "values": "vector", "vectors": "vector",
    "dense": "vector", "dense_vector": "vector",
    "sparse_vector": "sparse", "sparsevector": "sparse", "sparse_values": "sparse",
    "meta": "metadata", "payload": "metadata", "attributes": "metadata",
    "key": "id", "_id": "id", "doc_id": "id", "point_id": "id", "uuid": "id",
}  # fmt: skip
"""Names of other vector stores, with the name here."""


def _suggested_name(key: object) -> str:
    """Return the name that is probably meant: a synonym, or one of similar spelling."""
    synonym = _SYNONYMS.get(str(key).lower())
    if synonym is None:
        return nearest(key, _NAMES)
    return f"Did you mean {synonym!r}? Known: {', '.join(map(repr, _NAMES))}."


def _check_names(name: str, row: Mapping[str, Any]) -> None:
    """Raise InputError with a suggestion for a name that no row can have, for example 'vectr'."""
    for key in row:
        if key not in _NAMES:
            raise InputError(
                f"reading {name}",
                got=f"the name {str(key)[:80]!r}",
                expected="names that a row may have",
                next_step=_suggested_name(key),
            )


def _stored_parts(name: str, present: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parts of a row that are stored, as the service names them."""
    parts: dict[str, Any] = {}
    if "vector" in present:
        parts["vector"] = numbers(f"the vector of {name}", present["vector"])
    sparse = present.get("sparse")
    if sparse is None and {"sparse_indices", "sparse_values"} & present.keys():
        sparse = (present.get("sparse_indices", ()), present.get("sparse_values", ()))
    if sparse is not None:
        indices, weights = sparse_vector(f"the sparse vector of {name}", sparse)
        parts["sparseVector"] = {"indices": indices, "values": weights}
    if "metadata" in present:
        parts["metadata"] = _metadata(f"the metadata of {name}", present["metadata"])
    if "data" in present:
        parts["data"] = text(f"the data of {name}", present["data"])
    return parts


def _check_unmasked(name: str, wire: Mapping[str, Any], masks: list[str]) -> None:
    """Raise InputError if data or metadata contain the mask of a token, which would replace the original."""
    contents = {
        "data": wire.get("data", ""),
        "metadata": bytes(wire.get("metadata", b"")).decode(),
    }
    for part, content in contents.items():
        if any(mask in content for mask in masks):
            raise InputError(
                f"reading the {part} of {name}",
                got="a token of ours that was masked when the text was loaded",
                expected="the original text of the index, which the mask would replace",
                next_step="Leave the row out, or change the text.",
            )


def _check_storable(
    name: str, row: Mapping[str, Any], wire: Mapping[str, Any], *, update: bool
) -> None:
    """Raise InputError if a row has nothing to store, or if the index would embed text by mistake."""
    storable = ["vector", "sparse vector", "data"]
    if update:
        storable.append("metadata")
    has_vector = not _VECTOR_FIELDS.isdisjoint(wire)
    if not has_vector and wire.keys().isdisjoint(storable):
        raise InputError(
            f"reading {name}",
            got=f"{wire['id']!r} with {', '.join(f'no {part}' for part in storable)}",
            expected="at least one of them",
        )
    if not update and "vector" in row and not has_vector:
        raise InputError(
            f"reading {name}",
            got=f"{wire['id']!r} with data and an empty vector",
            expected="a vector, or data alone, which the index then embeds itself",
            next_step="Leave the name 'vector' out to let the index embed the data; of a frame, pass "
            "rows[rows['vector'].isna()].drop(columns='vector') in a separate call.",
        )


def _missing(value: Any) -> bool:
    """Return whether a value is missing: None, NaN or NA."""
    if value is None:
        return True
    if hasattr(value, "__len__"):
        return False
    try:
        return bool(value != value)  # noqa: PLR0124 - NaN
    except (TypeError, ValueError, OverflowError):
        return True


def _metadata(name: str, metadata: Any) -> msgspec.Raw:
    """Return metadata as JSON, from a mapping or from JSON. In JSON, NaN is an error.

    Values of pandas in a mapping are converted: missing values are left out, times become ISO 8601.

    JSON is sent as it was passed, so that the digits of numbers stay, for example of 1.10.
    """
    expected = "a mapping of JSON values, or the JSON of one"
    if not isinstance(metadata, str):
        if not isinstance(metadata, Mapping):
            raise wrong(name, metadata, expected)
        return msgspec.Raw(as_json(json_form(name, metadata)).encode())
    metadata_json = text(name, metadata)
    try:
        decoded = json.loads(metadata_json)
    except (ValueError, RecursionError):
        raise InputError(
            f"reading {name}", got="text that is not JSON", expected=expected
        ) from None
    _encoded_mapping(name, decoded, expected)
    return msgspec.Raw(metadata_json.encode())


def _encoded_mapping(name: str, metadata: Any, expected: str) -> str:
    if not isinstance(metadata, Mapping):
        raise wrong(name, metadata, expected)
    try:
        # not msgspec, which writes NaN as null
        return as_json(dict(metadata))
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(
            f"reading {name}", got=str(error)[:80], expected=expected
        ) from None
