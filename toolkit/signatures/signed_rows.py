"""Signatures of failures: of their bodies and, where those say little, their response status."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from toolkit.redaction import Redactor
from toolkit.signatures.documents import LONGEST, Document
from toolkit.signatures.signing import RULES_VERSION, Learned, Signature, sign

SIGNED_COLUMNS: Final = ("response_status", "response_body", "response_body_base64")
SIGNATURE: Final = "signature"
"""The column of stored failures that holds the id of each one's kind."""

_CURRENT: Final = f"s{RULES_VERSION}-"
_SAY_LITTLE: Final = frozenset({"empty", "html", "binary"})


class SignedRows(NamedTuple):
    """Failures and the signature of each."""

    texts: list[str | None]  # masked bodies, each once
    signatures: list[Signature]  # of each text, without statuses
    documents: list[Signature]  # of each text and status
    codes: NDArray[np.int64]  # the document of each row
    bodies: NDArray[np.int64]  # the text of each row


def sign_rows(table: pa.Table, learned: Learned, clean: Callable[[str], str]) -> SignedRows:
    """The signatures of failures with the columns `SIGNED_COLUMNS`; `clean` masks texts."""
    raw = list(zip(*(table[name].to_pylist() for name in SIGNED_COLUMNS), strict=True))
    masked = {body: _masked(body, clean) for body in dict.fromkeys(body for _, body, _ in raw)}
    positions: dict[str | None, int] = {}
    for text in masked.values():
        positions.setdefault(text, len(positions))
    by_text = sign(positions, learned, clean)
    signed: dict[tuple[Any, str | None, bool], int] = {}
    documents: list[Signature] = []
    codes = np.empty(len(raw), dtype=np.int64)
    for row, (status, body, encoded) in enumerate(raw):
        key = status, masked[body], bool(encoded and not body)
        if key not in signed:
            signed[key] = len(documents)
            documents.append(_with_status(by_text[key[1]], status, binary=key[2]))
        codes[row] = signed[key]
    bodies = np.array([positions[masked[body]] for _, body, _ in raw], dtype=np.int64)
    return SignedRows(list(positions), list(by_text.values()), documents, codes, bodies)


def with_signatures(table: pa.Table, learned: Learned) -> tuple[pa.Table, Learned]:
    """The table with a signature of today's rules in each row, and what is known of kinds afterwards."""
    if are_signed(table[SIGNATURE]):
        return table, learned
    rows = sign_rows(table, learned, cleaner(Redactor()))
    ids = pa.array([document.id for document in rows.documents], pa.string()).take(pa.array(rows.codes))
    position = table.schema.get_field_index(SIGNATURE)
    return table.set_column(position, table.schema.field(position), ids), learned.extended(rows.signatures)


def are_signed(ids: pa.ChunkedArray) -> bool:
    """Whether each is a signature of today's rules."""
    return bool(pc.all(pc.fill_null(pc.starts_with(ids, _CURRENT), False), min_count=0).as_py())


def cleaner(redactor: Redactor) -> Callable[[str], str]:
    """Text without secrets, nor the lone surrogates that JSON can spell."""
    return lambda text: redactor.text(text).encode("utf-8", "backslashreplace").decode()


def _masked(body: str | None, clean: Callable[[str], str]) -> str | None:
    """A body without secrets; of a long one its ends, of which half is read."""
    if body is None or not body.strip():
        return None
    if len(body) <= 2 * LONGEST:
        return clean(body)
    return f"{clean(body[:LONGEST])}\n{clean(body[-LONGEST:])}"


def _with_status(signature: Signature, status: object, *, binary: bool) -> Signature:
    """The signature of a body that says little holds the status, too."""
    if binary:
        signature = Signature(Document("binary"), (), ())
    nothing_said = signature.facts[:1] == ("keys",) and not signature.templates
    if status is None or not (signature.document.kind in _SAY_LITTLE or nothing_said):
        return signature
    return Signature(signature.document, (*signature.facts, f"status {status:g}"), signature.templates)
