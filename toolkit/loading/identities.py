"""What identifies a row: 16 bytes for its id, and for a DLQ entry a digest of its raw bytes, too.

By ids a load knows which rows it has yielded; by digests it recognizes entries that a snapshot has stored in
the same bytes, and that need not be decoded again.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, compress
from typing import Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.own_tokens import is_in
from toolkit.redaction import Redactor
from toolkit.version import __version__

IsStored = Callable[[bytes, bytes], npt.NDArray[np.bool_]]
"""Which entries are stored in the same bytes, given their concatenated identities and digests."""

IDENTITY_BYTES: Final = 16
DIGEST_BYTES: Final = 16

_MOST_RECENT: Final = 1 << 16
"""Identities in the Python set, which is quicker to search, before they become a sorted run."""

_LONGEST_MERGE: Final = 1 << 18
"""Runs of this length are not merged any more: a merge needs the memory of both twice."""

_DTYPE: Final = "S16"  # ignores zeros at the end, which is exact where all have the same length


def row_keys(table: pa.Table, key: Sequence[str]) -> pa.ChunkedArray:
    """One text for each row, the same for the same values in the columns of `key`."""
    if len(key) == 1:
        return table[key[0]]
    texts = (table[name].cast(pa.string()) for name in key)
    return pc.binary_join_element_wise(*texts, "\0", null_handling="replace", null_replacement="\0")


def identities(table: pa.Table, key: Sequence[str]) -> list[bytes]:
    """16 bytes for each row, the same for the same values in the columns of `key`.

    >>> table = pa.table({"id": ["a", "b", "a"]})
    >>> first, second, third = identities(table, ["id"])
    >>> len(first), first == second, first == third
    (16, False, True)
    """
    return identities_of(row_keys(table, key).to_pylist())


def identities_of(texts: Iterable[str]) -> list[bytes]:
    """The identities of rows with these keys."""
    copied = hashlib.blake2b(digest_size=IDENTITY_BYTES).copy  # quicker than a new one for each text
    result = []
    for text in texts:
        digest = copied()
        digest.update(text.encode())
        result.append(digest.digest())
    return result


class Identities:
    """The identities of the rows yielded so far, in their order.

    The latest are also in a Python set, the others in sorted arrays: a fifth of the memory of one large set.
    `known` are those of an earlier load that this one resumes, concatenated.
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
        """Which of these are known."""
        if not batch:
            return []
        known = np.fromiter((identity in self._recent for identity in batch), bool, len(batch))
        wanted = np.frombuffer(b"".join(batch), dtype=_DTYPE)
        for run in self._runs:
            positions = np.searchsorted(run, wanted)
            positions[positions == len(run)] = 0
            known |= run[positions] == wanted
        return [bool(item) for item in known]

    def are_new(self, batch: Sequence[bytes]) -> bool:
        """Whether none of these is known, and none occurs twice among them."""
        return (
            self._recent.isdisjoint(batch)
            and len(set(batch)) == len(batch)
            and (not self._runs or True not in self.known(batch))
        )

    def add(self, batch: Sequence[bytes]) -> list[bool] | None:
        """Know these from now on; which of them are new, or None where all are."""
        if self.are_new(batch):
            self._remember(batch)
            return None
        is_new = []
        here = dict[bytes, None]()
        for identity, old in zip(batch, self.known(batch), strict=True):
            is_new.append(not old and identity not in here)
            if is_new[-1]:
                here[identity] = None
        self._remember(list(here))
        return is_new

    def first(self, count: int) -> bytes:
        """The identities of the first `count` rows, concatenated."""
        with memoryview(self._order) as order:
            return bytes(order[: IDENTITY_BYTES * count])

    def _remember(self, new: Sequence[bytes]) -> None:
        self._order += b"".join(new)
        self._recent.update(new)
        if len(self._recent) < _MOST_RECENT:
            return
        run = np.sort(np.frombuffer(b"".join(self._recent), dtype=_DTYPE))
        self._recent = set()
        while self._runs and len(self._runs[-1]) <= len(run) < _LONGEST_MERGE:
            run = np.sort(np.concatenate([self._runs.pop(), run]), kind="stable")
        self._runs.append(run)


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
    `new` of the others, whose JSON array is `rows` and whose digests are `digests`.
    """

    ids: list[str]
    identities: list[bytes]
    stored: list[bytes]
    new: list[bytes]
    rows: bytes = field(repr=False)
    digests: list[bytes]


class EntryRecognizer:
    """Recognizes DLQ entries by the bytes they come in.

    Equal bytes become equal rows, as long as the same versions of the toolkit and of what it decodes with
    mask the same secrets in the same way. All of that goes into the key of the digests, which therefore match
    between two loads only where the rows do; and no one without the user's masking key can test a guess at
    what is in an entry.

    Examples
    --------
    >>> found = EntryRecognizer(Redactor(key=b"example")).read(b'[{"dlqId": "a"}, {"dlqId": "b"}]')
    >>> found.ids, bytes(found.raws[1])
    (['a', 'b'], b'{"dlqId": "b"}')
    """

    def __init__(self, redactor: Redactor) -> None:
        versions = (__version__, msgspec.__version__, pa.__version__, sys.version)
        self._keyed = hashlib.sha256(redactor.derived_key(f"wire digests of {versions}"))

    def read(self, page: bytes) -> RawEntries | None:
        """The entries of a page, or None for a page that only the decoder can judge."""
        try:
            named, raws = _NAMED.decode(page), _RAWS.decode(page)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        ids = [entry.dlqId for entry in named]
        if not all(ids) or is_in("\n".join(ids)):  # the decoder masks such ids
            return None
        return RawEntries(ids, identities_of(ids), raws, [self._digest(raw) for raw in raws])

    def recognize(
        self, pages: Sequence[bytes], *, are_new: Callable[[Sequence[bytes]], bool], is_stored: IsStored
    ) -> Iterator[PartlyStored | None]:
        """What is stored of each page; None for a page that has to be decoded as a whole."""
        entries = [self.read(page) for page in pages]
        entries = [known if known and are_new(known.identities) else None for known in entries]
        readable = [known for known in entries if known]
        stored = is_stored(
            b"".join(chain.from_iterable(known.identities for known in readable)),
            b"".join(chain.from_iterable(known.digests for known in readable)),
        ).tolist()
        start = 0
        for page, known in zip(pages, entries, strict=True):
            if known is None:
                yield None
                continue
            old = stored[start : start + len(known.ids)]
            start += len(known.ids)
            new = [not flag for flag in old]
            yield PartlyStored(
                ids=known.ids,
                identities=known.identities,
                stored=list(compress(known.identities, old)),
                new=list(compress(known.identities, new)),
                rows=b"[" + b",".join(compress(known.raws, new)) + b"]" if any(old) else page,
                digests=list(compress(known.digests, new)),
            )

    def _digest(self, raw: msgspec.Raw) -> bytes:
        digest = self._keyed.copy()
        digest.update(raw)
        return digest.digest()[:DIGEST_BYTES]
