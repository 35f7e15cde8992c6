"""DLQ entries that a snapshot has stored in the same bytes already, and that need not be decoded again."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import chain, compress
from typing import Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from toolkit.client.pages import listed
from toolkit.loading.identities import identities_of
from toolkit.own_tokens import is_in
from toolkit.redaction import Redactor
from toolkit.version import __version__

DIGEST_BYTES: Final = 16

IsStored = Callable[[bytes, bytes], npt.NDArray[np.bool_]]
"""Which entries are stored in the same bytes, given their concatenated identities and digests."""


class _Named(msgspec.Struct, gc=False):
    dlqId: str  # noqa: N815 - the wire's name


# made here, because the first look at a struct is not safe when several threads take it at once
_NAMED: Final = msgspec.json.Decoder(list[_Named])
_RAWS: Final = msgspec.json.Decoder(list[msgspec.Raw])


class RawEntries(NamedTuple):
    """The entries of a page in its order: ids, identities, JSON, and keyed digests of the JSON."""

    ids: list[str]
    identities: list[bytes]
    raws: list[msgspec.Raw]
    digests: list[bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartlyStored:
    """A page of which some entries are stored in the same bytes.

    `ids` and `identities` are of all its entries, `stored` holds the identities of those that are stored,
    `fresh` of the others, whose JSON array is `rows` and whose digests are `digests`.
    """

    ids: list[str]
    identities: list[bytes]
    stored: list[bytes]
    fresh: list[bytes]
    rows: bytes = field(repr=False)
    digests: list[bytes]


class EntryRecognizer:
    """Recognises DLQ entries by the bytes they come in.

    Equal bytes become equal rows, as long as the same versions of the toolkit and of what it decodes with
    mask the same secrets in the same way. All of that goes into the key of the digests, which therefore match
    between two loads only where the rows do; and nobody without the user's masking key can test a guess at
    what is in an entry.

    Examples
    --------
    >>> found = EntryRecognizer(Redactor(key=b"example")).read(b'[{"dlqId": "a"}, {"dlqId": "b"}]')
    >>> found.ids, bytes(found.raws[1])
    (['a', 'b'], b'{"dlqId": "b"}')
    """

    def __init__(self, redactor: Redactor) -> None:
        versions = (__version__, msgspec.__version__, pa.__version__, sys.version)
        self._keyed = sha256(redactor.derived_key(f"wire digests of {versions}"))

    def read(self, page: bytes) -> RawEntries | None:
        """The entries of a page, or None for a page that only the decoder can judge."""
        try:
            array = listed(page)
            named, raws = _NAMED.decode(array), _RAWS.decode(array)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        ids = [entry.dlqId for entry in named]
        if not all(ids) or is_in("\n".join(ids)):  # the decoder masks such ids
            return None
        return RawEntries(ids, identities_of(ids), raws, [self._digest(raw) for raw in raws])

    def recognise(
        self, pages: Sequence[bytes], *, are_new: Callable[[Sequence[bytes]], bool], is_stored: IsStored
    ) -> Iterator[PartlyStored | None]:
        """What is stored of each page; None for a page that has to be decoded as a whole.

        `are_new` says whether entries of these identities come for the first time in this load: a later
        version of an entry is always decoded.
        """
        entries = [self.read(page) for page in pages]
        entries = [one if one and are_new(one.identities) else None for one in entries]
        told = [one for one in entries if one]
        stored = is_stored(
            b"".join(chain.from_iterable(one.identities for one in told)),
            b"".join(chain.from_iterable(one.digests for one in told)),
        ).tolist()
        start = 0
        for page, one in zip(pages, entries, strict=True):
            if one is None:
                yield None
                continue
            old = stored[start : start + len(one.ids)]
            start += len(one.ids)
            new = [not flag for flag in old]
            yield PartlyStored(
                ids=one.ids,
                identities=one.identities,
                stored=list(compress(one.identities, old)),
                fresh=list(compress(one.identities, new)),
                rows=b"[" + b",".join(compress(one.raws, new)) + b"]" if any(old) else page,
                digests=list(compress(one.digests, new)),
            )

    def _digest(self, raw: msgspec.Raw) -> bytes:
        digest = self._keyed.copy()
        digest.update(raw)
        return digest.digest()[:DIGEST_BYTES]
