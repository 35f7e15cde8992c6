"""Which rows a load has given out: 16 bytes stand for each, however long its id is."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from toolkit.loading.seen import Seen

IDENTITY_BYTES: Final = 16
_AT_ONCE: Final = 10_000  # identities of an earlier load that are told apart as objects, at once


def keys(table: pa.Table, key: Sequence[str]) -> pa.ChunkedArray:
    """One text for each row, the same for the same values in the columns of `key`."""
    if len(key) == 1:
        return table[key[0]]
    return pc.binary_join_element_wise(*(table[name] for name in key), "\0")


def identities(table: pa.Table, key: Sequence[str]) -> list[bytes]:
    """16 bytes for each row, the same for the same values in the columns of `key`.

    >>> table = pa.table({"id": ["a", "b", "a"]})
    >>> first, second, third = identities(table, ["id"])
    >>> len(first), first == second, first == third
    (16, False, True)
    """
    return identities_of(keys(table, key).to_pylist())


def identities_of(texts: Iterable[str]) -> list[bytes]:
    """The same for the keys themselves."""
    digest = hashlib.blake2b
    return [digest(text.encode(), digest_size=IDENTITY_BYTES).digest() for text in texts]


class Identities:
    """The identities of the rows given out so far, in their order.

    Parameters
    ----------
    known : bytes
        Those of an earlier load that this one goes on with, one behind the other.
    """

    def __init__(self, known: bytes = b"") -> None:
        self._order = bytearray(known)
        self._seen = Seen()
        rows = iter(self)
        while some := list(islice(rows, _AT_ONCE)):
            self._seen.update(some)

    def __len__(self) -> int:
        return len(self._order) // IDENTITY_BYTES

    def __iter__(self) -> Iterator[bytes]:
        step = IDENTITY_BYTES
        return (bytes(self._order[place : place + step]) for place in range(0, len(self._order), step))

    def __contains__(self, identity: bytes) -> bool:
        return self._seen.known([identity])[0]

    def known(self, found: Sequence[bytes]) -> list[bool]:
        """Which of these are known."""
        return self._seen.known(found)

    def are_new(self, found: Sequence[bytes]) -> bool:
        """Whether none of these is known, and none comes twice."""
        return self._seen.isdisjoint(found) and len(set(found)) == len(found)

    def add(self, found: Sequence[bytes]) -> list[bool] | None:
        """Know these from now on; which of them are new, or None where all are."""
        if self.are_new(found):
            self._seen.update(found)
            self._order += b"".join(found)
            return None
        fresh = []
        here = set[bytes]()
        for identity, old in zip(found, self._seen.known(found), strict=True):
            fresh.append(not old and identity not in here)
            if fresh[-1]:
                here.add(identity)
                self._order += identity
        self._seen.update(here)
        return fresh

    def first(self, count: int) -> bytes:
        """The identities of the first `count` rows, one behind the other."""
        return bytes(self._order[: IDENTITY_BYTES * count])
