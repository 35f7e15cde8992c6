"""Signatures of failures: of their bodies and, where those say little, their response status."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from toolkit.secrets.redaction import Redactor
from toolkit.signatures.document import Document, masked_part
from toolkit.signatures.signing import RULES_VERSION, Learned, Signature, document_of, sign
from toolkit.signatures.trace_frames import cached

SIGNED_COLUMNS: Final = ("response_status", "response_body", "response_body_base64")
SIGNATURE: Final = "signature"
"""The column of stored failures that holds the id of each one's kind."""

_CURRENT: Final = f"s{RULES_VERSION}-"
_REMEMBERED: Final = 4_000  # characters of a text
_MOST_REMEMBERED: Final = 8_192  # texts
_SAY_LITTLE: Final = frozenset({"empty", "html", "binary"})


class SignedRows(NamedTuple):
    """Failures and the signature of each."""

    texts: list[str | None]  # masked bodies, each once
    signatures: list[Signature]  # of each text, without statuses
    documents: list[Signature]  # of each text and status
    codes: NDArray[np.int64]  # the document of each row
    bodies: NDArray[np.int64]  # the text of each row


class BodyReader:
    """Masks bodies and reads them as documents; those that repeat are remembered, up to 4,000 characters."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._mask = cached(self.clean, longest=_REMEMBERED, most=_MOST_REMEMBERED)
        self._read = cached(
            lambda text: document_of(text, self.clean), longest=_REMEMBERED, most=_MOST_REMEMBERED
        )

    def clean(self, text: str) -> str:
        """Text without secrets, nor the lone surrogates that JSON can spell."""
        return self._redactor.text(text).encode("utf-8", "backslashreplace").decode()

    def masked(self, body: str | None) -> str | None:
        """A body without secrets; of a long one its ends, of which half is read."""
        if body is None or not body.strip():
            return None
        return self._mask(masked_part(body))

    def document(self, text: str | None) -> Document:
        """What a masked text says, with placeholders."""
        return document_of(text) if text is None else self._read(text)


def sign_rows(table: pa.Table, learned: Learned, reader: BodyReader) -> SignedRows:
    """The signatures of failures with the columns `SIGNED_COLUMNS`."""
    columns = (_distinct(table[name]) for name in SIGNED_COLUMNS)
    (statuses, status_of), (bodies, body_of), (encoded, encoded_of) = columns
    masked = [reader.masked(body) for body in bodies]
    positions = {text: position for position, text in enumerate(dict.fromkeys(masked))}
    by_text = sign(positions, learned, reader.document)
    of_body = np.array([positions[text] for text in masked], dtype=np.int64)[body_of]
    # not UTF-8: a body that is empty where there is base64
    empty = np.array([not body for body in bodies], dtype=bool)[body_of]
    binary = empty & np.array([bool(value) for value in encoded], dtype=bool)[encoded_of]
    combined = (of_body * max(1, len(statuses)) + status_of) * 2 + binary
    _, first, codes = np.unique(combined, return_index=True, return_inverse=True)
    order = np.argsort(first)  # as they occur
    signatures = [by_text[text] for text in positions]
    documents = [
        _with_status(signatures[of_body[row]], statuses[status_of[row]], binary=bool(binary[row]))
        for row in first[order]
    ]
    return SignedRows(list(positions), signatures, documents, np.argsort(order)[codes], of_body)


def with_signatures(table: pa.Table, learned: Learned, reader: BodyReader) -> tuple[pa.Table, Learned]:
    """The table with a signature of today's rules in each row, and what is known of kinds afterwards."""
    position = table.schema.get_field_index(SIGNATURE)
    if position >= 0 and are_signed(table[SIGNATURE]):
        return table, learned
    rows = sign_rows(table, learned, reader)
    ids = pa.array([document.id for document in rows.documents], pa.string()).take(pa.array(rows.codes))
    if position < 0:
        table = table.append_column(SIGNATURE, ids)
    else:
        table = table.set_column(position, table.schema.field(position), ids)
    return table, learned.extended(rows.signatures)


def can_be_signed(schema: pa.Schema) -> bool:
    """Whether a table has what the signature of a failure is made from."""
    kinds = [schema.field(name).type for name in SIGNED_COLUMNS if name in schema.names]
    if len(kinds) < len(SIGNED_COLUMNS) or "dlq_id" not in schema.names:
        return False
    status, *texts = kinds
    return bool(
        (pa.types.is_integer(status) or pa.types.is_floating(status))
        and all(pa.types.is_string(kind) or pa.types.is_large_string(kind) for kind in texts)
    )


def are_signed(ids: pa.ChunkedArray) -> bool:
    """Whether each is a signature of today's rules: a column of that name can hold anything."""
    if not (pa.types.is_string(ids.type) or pa.types.is_large_string(ids.type)):
        return False
    return bool(pc.all(pc.fill_null(pc.starts_with(ids, _CURRENT), False), min_count=0).as_py())


def _distinct(column: pa.ChunkedArray) -> tuple[list[Any], NDArray[np.int64]]:
    """The distinct values of a column, and the position of each row's value among them.

    Batch by batch: repeated values never become Python values, and no dictionary exceeds its limit.
    """
    positions: dict[Any, int] = {}
    codes = [np.zeros(0, dtype=np.int64)]
    for chunk in column.chunks:
        encoded = chunk.dictionary_encode("encode")
        known = [positions.setdefault(value, len(positions)) for value in encoded.dictionary.to_pylist()]
        codes.append(np.array(known, dtype=np.int64)[encoded.indices.to_numpy()])
    return list(positions), np.concatenate(codes)


def _with_status(signature: Signature, status: object, *, binary: bool) -> Signature:
    """The signature of a body that says little holds the status, too."""
    if binary:
        signature = Signature(Document("binary"), (), ())
    nothing_said = signature.facts[:1] == ("keys",) and not signature.templates
    if status is None or not (signature.document.kind in _SAY_LITTLE or nothing_said):
        return signature
    return Signature(signature.document, (*signature.facts, f"status {status:g}"), signature.templates)
