"""Identify rows: by 16 bytes for the id and, for a DLQ entry, by a digest of the raw bytes.

By identity a load knows which rows it has yielded. By digest it recognizes entries that a snapshot stores in
equal bytes, and that need not be decoded again.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, compress, islice
from typing import Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.base.own_tokens import is_in
from toolkit.secrets.redaction import Redactor
from toolkit.version import __version__

IsStored = Callable[[bytes, bytes], npt.NDArray[np.bool_]]
"""Return which entries are stored in equal bytes, from their concatenated identities and digests."""

IDENTITY_BYTES: Final = 16
DIGEST_BYTES: Final = 16

_MOST_RECENT: Final = 1 << 16
"""Identities in the Python set, which is faster to search, before they become a sorted run."""

_LONGEST_MERGE: Final = 1 << 18
"""Runs of this length are not merged any more, because a merge needs twice the memory of both."""

_DTYPE: Final = "S16"  # ignores zeros at the end, which is exact because all values have the same length


def row_keys(table: pa.Table, key: Sequence[str]) -> pa.ChunkedArray:
    """Return one string per row, equal for rows with equal values in the columns of `key`."""
    if len(key) == 1:
        return table[key[0]]

    texts = (table[name].cast(pa.string()) for name in key)
    return pc.binary_join_element_wise(
        *texts, "\0", null_handling="replace", null_replacement="\0"
    )


def identities(table: pa.Table, key: Sequence[str]) -> list[bytes]:
    """Return 16 bytes per row, equal for rows with equal values in the columns of `key`.

    >>> table = pa.table({"id": ["a", "b", "a"]})
    >>> first, second, third = identities(table, ["id"])
    >>> len(first), first == second, first == third
    (16, False, True)
    """
    return identities_of(row_keys(table, key).to_pylist())


def identities_of(texts: Iterable[str]) -> list[bytes]:
    """Return the identities of rows with these keys."""
    new_digest = hashlib.blake2b(
        digest_size=IDENTITY_BYTES
    ).copy  # faster than a constructor call per row
    result = []
    for text in texts:
        digest = new_digest()
        digest.update(text.encode())
        result.append(digest.digest())

    return result


class Identities:
    """The identities of the rows yielded so far, in order.

    The latest identities are also in a Python set, the others in sorted arrays (runs). This takes a fifth of
    the memory of one large set. The runs are merged as in a log-structured merge tree: a run is
    merged with the run before it if that is not longer. `known` are the concatenated identities of a load
    that is resumed.
    """

    def __init__(self, known: bytes = b"") -> None:
        self._order = bytearray(known)
        self._recent: set[bytes] = set()
        self._runs: list[npt.NDArray[np.bytes_]] = []
        if known:
            self._runs.append(np.sort(np.frombuffer(known, dtype=_DTYPE)))

    def __len__(self) -> int:
        return len(self._order) // IDENTITY_BYTES

    def __contains__(self, identity: bytes) -> bool:
        return self.known([identity])[0]

    def known(self, batch: Sequence[bytes]) -> list[bool]:
        """Return which of the identities are known."""
        if not batch:
            return []

        known = np.fromiter(
            (identity in self._recent for identity in batch), bool, len(batch)
        )
        wanted = np.frombuffer(b"".join(batch), dtype=_DTYPE)
        for run in self._runs:
            positions = np.searchsorted(run, wanted)
            # a value after the end of the run: any valid position will do, as the comparison fails there
            positions[positions == len(run)] = 0
            known |= run[positions] == wanted

        return [bool(item) for item in known]

    def are_new(self, batch: Sequence[bytes]) -> bool:
        """Return True if no identity is known and no identity occurs twice in the batch."""
        # the cheap checks first
        if not self._recent.isdisjoint(batch) or len(set(batch)) < len(batch):
            return False
        return not self._runs or True not in self.known(batch)

    def add(self, batch: Sequence[bytes]) -> list[bool] | None:
        """Add identities. Return which of them are new, or None if all are."""
        if self.are_new(batch):
            self._remember(batch)
            return None

        is_new = []
        new_here: dict[bytes, None] = {}  # a dict keeps the order
        for identity, is_known in zip(batch, self.known(batch), strict=True):
            is_first = not is_known and identity not in new_here
            is_new.append(is_first)
            if is_first:
                new_here[identity] = None

        self._remember(list(new_here))
        return is_new

    def first(self, count: int) -> bytes:
        """Return the identities of the first `count` rows, concatenated."""
        with memoryview(self._order) as order:
            return bytes(order[: IDENTITY_BYTES * count])

    def _remember(self, new: Sequence[bytes]) -> None:
        self._order += b"".join(new)
        self._recent.update(new)
        if len(self._recent) < _MOST_RECENT:
            return

        run = np.sort(np.frombuffer(b"".join(self._recent), dtype=_DTYPE))
        self._recent = set()
        # As in a binary counter: two runs of 65,536 make one of 131,072, and two of these one of 262,144.
        # That one is not merged any more. The stable sort (timsort) takes linear time for two sorted arrays.
        while self._runs and len(self._runs[-1]) <= len(run) < _LONGEST_MERGE:
            run = np.sort(np.concatenate([self._runs.pop(), run]), kind="stable")
        self._runs.append(run)


class _Named(msgspec.Struct, gc=False):
    dlqId: str  # noqa: N815 - the wire's name


# Made at import, because the first access to a struct is not thread-safe.
_NAMED: Final = msgspec.json.Decoder(list[_Named])
_RAWS: Final = msgspec.json.Decoder(list[msgspec.Raw])


class RawEntries(NamedTuple):
    """The entries of a page in order: ids, identities, JSON, and keyed digests of the JSON."""

    ids: list[str]
    identities: list[bytes]
    raws: list[msgspec.Raw]
    digests: list[bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartlyStored:
    """A page with entries that a snapshot may store in equal bytes.

    `ids` and `identities` belong to all entries. `stored` are the identities of the stored entries, `new` of
    the others. `rows` is the JSON array of the new entries, and `digests` are their digests.
    """

    ids: list[str]
    identities: list[bytes]
    stored: list[bytes]
    new: list[bytes]
    rows: bytes = field(repr=False)
    digests: list[bytes]


class EntryRecognizer:
    """Recognize DLQ entries by their raw bytes.

    Equal bytes become equal rows if the same versions of the toolkit and its decoders mask the same secrets
    in the same way. All of this goes into the key of the digests, so digests of two loads are equal only if
    the rows are. Without the masking key of the user, nobody can test a guess of the content of an entry.

    Examples
    --------
    >>> entries = EntryRecognizer(Redactor(key=b"example")).read(b'[{"dlqId": "a"}, {"dlqId": "b"}]')
    >>> entries.ids, bytes(entries.raws[1])
    (['a', 'b'], b'{"dlqId": "b"}')
    """

    def __init__(self, redactor: Redactor) -> None:
        versions = (__version__, msgspec.__version__, pa.__version__, sys.version)
        self._keyed = hashlib.sha256(
            redactor.derived_key(f"wire digests of {versions}")
        )

    def read(self, page: bytes) -> RawEntries | None:
        """Return the entries of a page, or None if only the decoder can read the page."""
        try:
            named, raws = _NAMED.decode(page), _RAWS.decode(page)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None

        ids = [entry.dlqId for entry in named]
        if not all(ids) or is_in("\n".join(ids)):  # the decoder masks such ids
            return None

        digests = list(map(self._digest, raws))
        return RawEntries(ids, identities_of(ids), raws, digests)

    def recognize(
        self,
        pages: Sequence[bytes],
        *,
        are_new: Callable[[Sequence[bytes]], bool],
        is_stored: IsStored,
    ) -> Iterator[PartlyStored | None]:
        """Yield which entries of each page are stored, or None for a page that has to be decoded."""
        entries = [self._read_new(page, are_new) for page in pages]
        readable = list(filter(None, entries))
        # one call for all pages, because each call searches the index of the snapshot
        identities = chain.from_iterable(read.identities for read in readable)
        digests = chain.from_iterable(read.digests for read in readable)
        flags = iter(is_stored(b"".join(identities), b"".join(digests)).tolist())

        for page, page_entries in zip(pages, entries, strict=True):
            if page_entries is None:
                yield None
            else:
                flags_of_page = list(islice(flags, len(page_entries.ids)))
                yield _partly_stored(page, page_entries, flags_of_page)

    def _read_new(
        self, page: bytes, are_new: Callable[[Sequence[bytes]], bool]
    ) -> RawEntries | None:
        """Return the entries of a page, or None if the load cannot read it or has read a row before."""
        entries = self.read(page)
        if entries is None or not are_new(entries.identities):
            return None

        return entries

    def _digest(self, raw: msgspec.Raw) -> bytes:
        # SHA-256 with the key in front takes half the time of HMAC. HMAC also prevents extension attacks, but
        # these need the complete digest, and only 16 bytes of it are kept.
        digest = self._keyed.copy()
        digest.update(raw)
        return digest.digest()[:DIGEST_BYTES]


def _partly_stored(
    page: bytes, entries: RawEntries, is_stored: list[bool]
) -> PartlyStored:
    is_new = [not stored for stored in is_stored]
    rows = page
    if any(is_stored):
        rows = b"[" + b",".join(compress(entries.raws, is_new)) + b"]"
    return PartlyStored(
        ids=entries.ids,
        identities=entries.identities,
        stored=list(compress(entries.identities, is_stored)),
        new=list(compress(entries.identities, is_new)),
        rows=rows,
        digests=list(compress(entries.digests, is_new)),
    )
