"""Compute the signatures of failures from bodies, and from the response status if the body tells little.

Many rows share few bodies, so each distinct body is masked, read and signed once. For example, three rows
with two bodies and three statuses:

    row    body        status     text of the row    document of the row
    0      "refused"   500        0                  0: refused
    1      ""          502        1                  1: empty, status 502
    2      ""          504        1                  2: empty, status 504

An empty body tells nothing about the failure, so rows 1 and 2 have two documents, by their statuses. If the
status changed the signature of every body, one failure would have several signatures.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from toolkit.base.size_lists import lists_by_size
from toolkit.secrets.redaction import Redactor
from toolkit.signatures.document import Document, masked_part
from toolkit.signatures.readable_bodies import readable_body
from toolkit.signatures.reading import read_document
from toolkit.signatures.remembering import Memo
from toolkit.signatures.signing import (
    RULES_VERSION,
    Learned,
    Signature,
    document_of,
    ids_of,
    sign_documents,
    with_stable_parts,
)
from toolkit.tables.masking import ColumnMasker

SIGNED_COLUMNS: Final = ("response_status", "response_body", "response_body_base64")
SIGNATURE: Final = "signature"
"""The column of stored failures with the id of the kind of failure."""

_CURRENT: Final = f"s{RULES_VERSION}-"
_REMEMBERED: Final = 4_000
"""Characters of a body that is remembered. Longer bodies are masked and read again."""
_MOST_REMEMBERED: Final = 8_192
"""Bodies that are remembered before a memory begins again."""
_AT_ONCE: Final = 8_000_000
"""Characters of bodies that are masked or read at once: a column of Arrow has at most 2 GiB.

Arrow compiles the search for secrets for each column, which takes as long as searching 5,000 bodies.
"""
_TELL_LITTLE: Final = frozenset({"empty", "html", "binary"})


class SignedRows(NamedTuple):
    """Failures and the signature of each."""

    texts: list[str | None]
    """Distinct masked bodies."""
    signatures: list[Signature]
    """The signature of each of `texts`, without a status."""
    documents: list[Signature]
    """The signature of each combination of body and status."""
    codes: NDArray[np.int64]
    """The position of the row's signature in `documents`."""
    bodies: NDArray[np.int64]
    """The position of the row's body in `texts`."""


class BodyReader:
    """Mask bodies and read them as documents. Documents of bodies of up to 4,000 characters are remembered.

    Many bodies are masked together as a column, which takes a hundredth of the time of one by one.
    """

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._masker = ColumnMasker(redactor)
        self._masked_ahead: dict[str | None, str | None] = {}
        self._documents_ahead: dict[str | None, Document] = {}
        self._known = Memo(
            lambda text: self._read([text])[text],
            longest=_REMEMBERED,
            most=_MOST_REMEMBERED,
        )

    def clean(self, text: str) -> str:
        """Return a message without secrets and without lone surrogates, which JSON can escape."""
        return self._redactor.text(text).encode("utf-8", "backslashreplace").decode()

    def read_ahead(self, bodies: Iterable[str | None]) -> None:
        """Mask and read the bodies of several tables at once, for `masked` and `documents` of each table.

        Small tables would take several times as long one by one. The bodies of an earlier call are forgotten.
        """
        self._masked_ahead, self._documents_ahead = {}, {}
        distinct = list(dict.fromkeys(bodies))
        masked = self.masked(distinct)
        self._masked_ahead = dict(zip(distinct, masked, strict=True))
        self._documents_ahead = self.documents(dict.fromkeys(masked))

    def masked(self, bodies: Sequence[str | None]) -> list[str | None]:
        """Return bodies without secrets, and None for blank ones. Of long bodies, return the ends."""
        ahead = self._masked_ahead
        unknown = (body for body in bodies if body is not None and body not in ahead)
        parts = {body: masked_part(body) for body in unknown if body.strip()}
        cleaned = self._cleaned(parts.values())
        masked: dict[str | None, str | None] = {
            body: cleaned[part] for body, part in parts.items()
        }

        return [masked.get(body, ahead.get(body)) for body in bodies]

    def documents(self, texts: Iterable[str | None]) -> dict[str | None, Document]:
        """Return the document of each masked body, with placeholders."""
        documents: dict[str | None, Document] = {None: document_of(None)}
        unknown: list[str] = []
        for text in texts:
            if text is None:
                continue
            if text in self._documents_ahead:
                documents[text] = self._documents_ahead[text]
            elif text in self._known:
                documents[text] = self._known[text]
            else:
                unknown.append(text)

        for part in lists_by_size(unknown, len, _AT_ONCE):
            for text, document in self._read(part).items():
                self._known.remember(text, document)
                documents[text] = document

        return documents

    def _read(self, texts: Sequence[str]) -> dict[str, Document]:
        """Read bodies that are not known."""
        read = [read_document(text) for text in texts]
        # bodies that differ in a part that is not read, such as the id of the request, have equal documents
        distinct = dict.fromkeys(read)
        parts = [(*document.facts, *document.messages) for document in distinct]
        clean = self._cleaned(chain.from_iterable(parts)).__getitem__
        stable = {document: with_stable_parts(document, clean) for document in distinct}

        return dict(zip(texts, map(stable.__getitem__, read), strict=True))

    def _cleaned(self, texts: Iterable[str]) -> dict[str, str]:
        """Return the result of `clean` for each of many messages."""
        cleaned: dict[str, str] = {}
        for part in lists_by_size(dict.fromkeys(texts), len, _AT_ONCE):
            cleaned |= zip(part, self._clean_part(part), strict=True)

        return cleaned

    def _clean_part(self, texts: list[str]) -> list[str]:
        try:
            column = pa.array(texts, pa.string())
        except UnicodeEncodeError:  # a lone surrogate
            return list(map(self.clean, texts))

        masked = self._masker.texts(column)
        if masked is column:
            return texts  # nothing is masked, as usual. New strings would take memory
        clean: list[str] = masked.to_pylist()
        return clean


class _ReadRows(NamedTuple):
    """Failures that were read, and are not signed yet."""

    texts: list[str | None]
    """Distinct masked bodies."""
    documents: list[Document]
    """The document of each of `texts`."""
    kinds: list[tuple[int, object, bool]]
    """Each combination of the position of a text, a status, and whether the body is no text."""
    codes: NDArray[np.int64]
    """The position of each row in `kinds`."""
    bodies: NDArray[np.int64]
    """The position of the row's body in `texts`."""


def _read_rows(table: pa.Table, reader: BodyReader) -> _ReadRows:
    """Mask and read failures with the columns `SIGNED_COLUMNS`."""
    columns = (_distinct(table[name]) for name in SIGNED_COLUMNS)
    (statuses, status_of), (stored, stored_of), (encoded, encoded_of) = columns
    # a body that is not UTF-8 is in the column with base64, and the other column is empty
    is_empty = np.array([not body for body in stored], dtype=bool)[stored_of]
    is_encoded = np.array([bool(value) for value in encoded], dtype=bool)[encoded_of]
    decoded = [readable_body(None, value) for value in encoded]
    is_text = np.array([text is not None for text in decoded], dtype=bool)[encoded_of]
    binary = is_empty & is_encoded & ~is_text

    # decoded bodies follow the stored ones
    bodies = [*(readable_body(body, None) for body in stored), *decoded]
    body_of = np.where(is_empty & is_text, len(stored) + encoded_of, stored_of)
    masked = reader.masked(bodies)
    positions = {text: position for position, text in enumerate(dict.fromkeys(masked))}
    documents = reader.documents(positions)
    of_body = np.array([positions[text] for text in masked], dtype=np.int64)[body_of]
    # one number for each combination of body, status and encoding: the digits of a mixed radix
    combined = (of_body * max(1, len(statuses)) + status_of) * 2 + binary
    _, first, codes = np.unique(combined, return_index=True, return_inverse=True)
    # combinations in the order of their first rows, not of the numbers
    order = np.argsort(first)
    first_rows = first[order]
    kinds = zip(
        of_body[first_rows].tolist(),
        [statuses[status] for status in status_of[first_rows]],
        binary[first_rows].tolist(),
        strict=True,
    )

    return _ReadRows(
        texts=list(positions),
        documents=[documents[text] for text in positions],
        kinds=list(kinds),
        codes=np.argsort(order)[codes],
        bodies=of_body,
    )


def sign_rows(table: pa.Table, learned: Learned, reader: BodyReader) -> SignedRows:
    """Return the signatures of failures with the columns `SIGNED_COLUMNS`."""
    rows = _read_rows(table, reader)
    by_document = sign_documents(dict.fromkeys(rows.documents), learned)
    signatures = [by_document[document] for document in rows.documents]
    documents = [
        _with_status(signatures[text], status, binary=is_binary)
        for text, status, is_binary in rows.kinds
    ]

    return SignedRows(rows.texts, signatures, documents, rows.codes, rows.bodies)


class UnsignedRows:
    """Failures of several tables that are signed together, so that no id depends on the tables.

    Only distinct documents are kept, and a number per row, which `add` returns. For example, the rows "no
    order 17" and "disk full" of one table have the numbers 0 and 1, and the row "no order 4711" of the next
    table has the number 0. Each number has one id.
    """

    def __init__(self, reader: BodyReader) -> None:
        self._reader = reader
        self._numbers: dict[tuple[Document, object, bool], int] = {}

    def add(self, table: pa.Table) -> NDArray[np.int32]:
        """Read failures with the columns `SIGNED_COLUMNS`, and return the number of each row."""
        rows = _read_rows(table, self._reader)
        numbers = []
        for text, status, is_binary in rows.kinds:
            document = rows.documents[text]
            if not is_binary and not _tells_little(document):
                status = None  # noqa: PLW2901 - it does not count
            kind = (document, status, is_binary)
            numbers.append(self._numbers.setdefault(kind, len(self._numbers)))

        return np.array(numbers, dtype=np.int32)[rows.codes]

    @property
    def documents(self) -> list[Document]:
        """Return the distinct documents."""
        return list(dict.fromkeys(document for document, _, _ in self._numbers))

    def sign(self, learned: Learned) -> tuple[pa.Array, Learned]:
        """Return the id of each number, and the extended templates."""
        by_document = sign_documents(self.documents, learned)
        signatures = (
            _with_status(by_document[document], status, binary=is_binary)
            for document, status, is_binary in self._numbers
        )
        ids = pa.array(ids_of(signatures), pa.string())

        return ids, learned.extended(by_document.values())


def with_signatures(
    table: pa.Table, learned: Learned, reader: BodyReader
) -> tuple[pa.Table, Learned]:
    """Return the table with a signature of the current rules in each row, and the extended templates."""
    if SIGNATURE in table.column_names and are_signed(table[SIGNATURE]):
        return table, learned

    rows = sign_rows(table, learned, reader)
    ids = pa.array(ids_of(rows.documents), pa.string()).take(pa.array(rows.codes))
    return with_ids(table, ids), learned.extended(rows.signatures)


def with_ids(table: pa.Table, ids: pa.Array) -> pa.Table:
    """Return the table with ids as signatures."""
    position = table.schema.get_field_index(SIGNATURE)
    if position < 0:
        return table.append_column(SIGNATURE, ids)

    return table.set_column(position, table.schema.field(position), ids)


def with_renamed(table: pa.Table, ids: Mapping[str, str]) -> pa.Table:
    """Return signed rows, with other ids for some of the ids."""
    encoded = table[SIGNATURE].combine_chunks().dictionary_encode()
    renamed = [ids.get(old, old) for old in encoded.dictionary.to_pylist()]
    return with_ids(table, pa.array(renamed, pa.string()).take(encoded.indices))


def renamed_ids(
    rows: pa.Table, before: Learned, after: Learned, reader: BodyReader
) -> dict[str, str]:
    """Return the stored ids of rows that get another id, because templates were joined, with the new ids."""
    old, new = (sign_rows(rows, learned, reader) for learned in (before, after))
    old_ids, new_ids = ids_of(old.documents), ids_of(new.documents)
    renamed: dict[str, str] = {}
    for stored, code in zip(rows[SIGNATURE].to_pylist(), old.codes, strict=True):
        if stored == old_ids[code] != new_ids[code]:
            renamed[stored] = new_ids[code]

    return renamed


def can_be_signed(schema: pa.Schema) -> bool:
    """Return whether a table has the columns that a signature is made from, with usable types."""
    if not {"dlq_id", *SIGNED_COLUMNS} <= set(schema.names):
        return False

    status, *bodies = [schema.field(name).type for name in SIGNED_COLUMNS]
    is_number = pa.types.is_integer(status) or pa.types.is_floating(status)
    return bool(is_number and all(map(_is_string, bodies)))


def _is_string(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def are_signed(ids: pa.ChunkedArray) -> bool:
    """Return whether all values are signatures of the current rules. A user's column can have this name."""
    if not _is_string(ids.type):
        return False

    return bool(
        pc.all(pc.fill_null(pc.starts_with(ids, _CURRENT), False), min_count=0).as_py()
    )


def _distinct(column: pa.ChunkedArray) -> tuple[list[Any], NDArray[np.int64]]:
    """Return the distinct values of a column, and the position of each row's value among them.

    The chunks are encoded one by one, so that repeated values never become Python values and no dictionary
    exceeds the limit of Arrow.
    """
    positions: dict[Any, int] = {}
    codes = [np.zeros(0, dtype=np.int64)]
    for chunk in column.chunks:
        encoded = chunk.dictionary_encode("encode")
        # positions among the values of this chunk become positions among the values of all chunks
        known = [
            positions.setdefault(value, len(positions))
            for value in encoded.dictionary.to_pylist()
        ]
        codes.append(np.array(known, dtype=np.int64)[encoded.indices.to_numpy()])

    return list(positions), np.concatenate(codes)


@lru_cache(maxsize=1 << 12)
def _with_status(signature: Signature, status: object, *, binary: bool) -> Signature:
    """Return a signature, with the status if the body tells little about the failure."""
    if binary:
        signature = Signature(Document("binary"), (), ())
    if status is None or not _tells_little(signature.document):
        return signature

    return Signature(
        signature.document,
        (*signature.facts, f"status {status:g}"),
        signature.templates,
    )


def _tells_little(document: Document) -> bool:
    """Return whether a body tells so little about the failure that the status counts."""
    has_only_keys = document.facts[:1] == ("keys",) and not document.messages
    return document.kind in _TELL_LITTLE or has_only_keys
