"""DLQ entries as they came: their ids and keyed digests of their bytes, without decoding anything else."""

from __future__ import annotations

import sys
from hashlib import sha256
from typing import Final, NamedTuple

import msgspec
import pyarrow as pa

from toolkit.client.pages import listed
from toolkit.own_tokens import is_in
from toolkit.redaction import Redactor
from toolkit.version import __version__

DIGEST_BYTES: Final = 16


class WireEntries(NamedTuple):
    """The entries of a page, in its order.

    Attributes
    ----------
    ids : list of str
    raws : list of msgspec.Raw
        Their JSON.
    digests : list of bytes
        16 bytes each.
    """

    ids: list[str]
    raws: list[msgspec.Raw]
    digests: list[bytes]


class _Named(msgspec.Struct, gc=False):
    dlqId: str  # noqa: N815 - the wire's name


# made here, because the first look at a struct is not safe when several threads take it at once
_NAMED: Final = msgspec.json.Decoder(list[_Named])
_RAWS: Final = msgspec.json.Decoder(list[msgspec.Raw])


class WireReader:
    """Tells DLQ entries by the bytes they come in.

    Equal bytes become equal rows, as long as the same versions of the toolkit and of what it decodes with
    mask the same secrets in the same way. All of that goes into the key of the digests, which therefore match
    between two loads only where the rows do; and nobody without the user's masking key can test a guess at
    what is in an entry.

    Parameters
    ----------
    redactor : Redactor
        What masks the rows.

    Examples
    --------
    >>> reader = WireReader(Redactor(key=b"example"))
    >>> found = reader.read(b'[{"dlqId": "a"}, {"dlqId": "b", "label": "x"}]')
    >>> found.ids, bytes(found.raws[1])
    (['a', 'b'], b'{"dlqId": "b", "label": "x"}')
    """

    def __init__(self, redactor: Redactor) -> None:
        versions = (__version__, msgspec.__version__, pa.__version__, sys.version)
        self._keyed = sha256(redactor.derived_key(f"wire digests of {versions}"))

    def read(self, rows: bytes) -> WireEntries | None:
        """The entries of a page, or None where they are not to be told apart this way.

        Parameters
        ----------
        rows : bytes
            As in `FailureDecoder.decode`.
        """
        try:
            array = listed(rows)
            named, raws = _NAMED.decode(array), _RAWS.decode(array)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        ids = [entry.dlqId for entry in named]
        if not all(ids) or is_in("\n".join(ids)):  # masked ids are the decoder's
            return None
        return WireEntries(ids, raws, [self._digest(raw) for raw in raws])

    def _digest(self, raw: msgspec.Raw) -> bytes:
        digest = self._keyed.copy()
        digest.update(raw)
        return digest.digest()[:DIGEST_BYTES]
