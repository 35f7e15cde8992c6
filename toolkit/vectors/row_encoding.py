"""Encode rows of frames, Arrow tables and mappings as the JSON objects that a vector index stores."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from toolkit.base.arguments import as_json, nearest, text, unmasked, wrong
from toolkit.base.errors import InputError
from toolkit.filters.query import numbers, sparse_vector
from toolkit.service.settings import Service
from toolkit.service.vectors import namespace_title
from toolkit.tables.arrow_input import arrow_table
from toolkit.tables.json_values import json_form

BATCH_ROWS: Final = 1000
"""Rows of a request at most, and of a frame that are converted at once."""


class WireRow(NamedTuple):
    """A row as it is sent: the namespace, the operation that stores the row, and the JSON object."""

    namespace: str
    operation: str
    body: msgspec.Raw
    position: int = 0  # among the rows of the call, from 0


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
        f"the id of {name}", _id_text(f"the id of {name}", row.get("id"))
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


def _id_text(name: str, vector_id: object) -> str:
    """Return the id of a row. Raise InputError if it is not text, with the conversion of a number."""
    if isinstance(vector_id, int | np.integer) and not isinstance(vector_id, bool):
        raise wrong(
            name,
            vector_id,
            "text of at least one character",
            'Convert numbers: str(id), or for a frame rows.assign(id=rows["id"].astype("str")).',
        )

    return text(name, vector_id, empty=False)


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
        return f"{nearest(key, _NAMES)} Other values belong in metadata; for columns, use collect_metadata."

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
