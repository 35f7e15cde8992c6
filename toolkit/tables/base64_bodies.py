"""Read and write bodies of requests and responses, which are text if they are UTF-8, and otherwise base64.

In a page that is read leniently, bytes that are not UTF-8 become lone surrogates. The functions here turn
them back into bytes.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from toolkit.base.own_tokens import is_in, is_in_truncated
from toolkit.secrets.redaction import Redactor
from toolkit.tables.column_values import is_clean

_BASE64: Final = re.compile(r"[A-Za-z0-9+/]+")


def as_bytes(text: str) -> bytes:
    """Return the bytes of text with surrogates: escaped bytes of a response, or lone surrogates."""
    return b"".join(map(_character_bytes, text))


def _character_bytes(character: str) -> bytes:
    # `surrogateescape` made these characters from single bytes that were not UTF-8
    if "\udc80" <= character <= "\udcff":
        return character.encode("utf-8", "surrogateescape")
    return character.encode("utf-8", "surrogatepass")


def text_and_bytes(plain: Any, encoded: Any) -> tuple[str | None, bytes | None, bool]:
    """Read a body from a plain field and a base64 field.

    Return it as text if it is UTF-8, else as bytes, and True if both fields had a usable value.
    """
    if not isinstance(plain, str | None) or not isinstance(encoded, str | None):
        return _usable_text(plain), None, False
    # the service fills one of the two fields: plain for UTF-8, base64 for all other bytes
    if encoded and not plain:
        return _decoded_body(encoded)
    if plain is None:
        # an empty base64 field is an empty body, and a missing one is no body
        return encoded, None, True

    has_one_value = not encoded
    if is_clean(plain):
        return plain, None, has_one_value

    return None, as_bytes(plain), has_one_value


def _usable_text(value: Any) -> str | None:
    if isinstance(value, str) and is_clean(value):
        return value
    return None


def _decoded_body(encoded: str) -> tuple[str | None, bytes | None, bool]:
    raw = base64_bytes(encoded)
    if raw is None:
        return None, None, False

    try:
        return raw.decode(), None, True
    except UnicodeDecodeError:
        return None, raw, True


def base64_bytes(encoded: str) -> bytes | None:
    """Return the decoded bytes, or None if it is not base64. Padding may be missing."""
    try:
        return base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
    except (binascii.Error, ValueError):
        return None


def is_cut_base64(encoded: Any) -> bool | None:
    """Return True if base64 ends within a group of four characters, because the service truncated it."""
    if encoded is None:
        return None
    return len(encoded) % 4 != 0


def base64_body(_: None, encoded: Any) -> tuple[str | None, bytes | None, bool]:
    """Read a body that is always base64, as `text_and_bytes` does.

    A truncated body is decoded up to the end.
    """
    if not isinstance(encoded, str) or not is_cut_base64(encoded):
        return text_and_bytes(None, encoded)

    digits = encoded.rstrip("=")
    if not _BASE64.fullmatch(digits):  # not truncated base64, but other text
        return None, None, False

    # a single digit of a group is less than one byte
    complete = digits
    if len(digits) % 4 == 1:
        complete = digits[:-1]
    text, raw, fits = text_and_bytes(None, complete)
    if raw is None:
        return text, None, fits

    cut_text = _without_cut_character(raw)
    if cut_text is None:
        return text, raw, fits

    return cut_text, None, fits


def _without_cut_character(raw: bytes) -> str | None:
    """Return bytes as text if only the last character is incomplete UTF-8, else None."""
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        if error.end != len(raw) or error.reason != "unexpected end of data":
            return None
        return raw[: error.start].decode()


def base64_column(raws: pa.Array, redactor: Redactor | None) -> pa.Array:
    """Return a column of bytes as base64, as `base64_text` does for one value."""
    bodies = raws.drop_null().to_pylist()
    texts: list[str | None] = [base64.b64encode(body).decode() for body in bodies]
    # All bodies are searched at once, because few of them contain an own token.
    joined_bodies = b"\n".join(bodies).decode("latin-1")
    joined_texts = "\n".join(filter(None, texts))
    if redactor is not None and (is_in(joined_bodies) or is_in_truncated(joined_texts)):
        texts = [base64_text(body, redactor) for body in bodies]
    empty_column = pa.nulls(len(raws), pa.string())

    return pc.replace_with_mask(
        empty_column, raws.is_valid(), pa.array(texts, pa.string())
    )


def base64_text(raw: bytes | None, redactor: Redactor | None) -> str | None:
    """Return bytes as base64, with own live tokens masked."""
    if raw is None:
        return None

    if redactor is not None:
        raw = redactor.own(raw.decode("latin-1")).encode("latin-1")
    text = base64.b64encode(raw).decode()
    # a token that is base64 itself can be present without the bits of an incomplete byte
    if redactor is not None and is_in_truncated(text):
        return base64.b64encode(redactor.mask(text).encode()).decode()

    return text
