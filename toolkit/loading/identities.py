"""Which rows a load has yielded: 16 bytes stand for each, however long its id is."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

IDENTITY_BYTES: Final = 16

_MOST_RECENT: Final = 1 << 16
"""Identities in the Python set, which is quicker to search, before they become a sorted run."""

_LONGEST_MERGE: Final = 1 << 18
"""Runs of this length are not merged any more: a merge takes the memory of both twice."""

_DTYPE: Final = "S16"  # ignores zeros at the end, which is exact where all have the same length


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
    """The identities of rows with these keys."""
    copied = hashlib.blake2b(digest_size=IDENTITY_BYTES).copy  # quicker than a new one for each text
    found = []
    for text in texts:
        digest = copied()
        digest.update(text.encode())
        found.append(digest.digest())
    return found


class Identities:
    """The identities of the rows yielded so far, in their order.

    The latest are also in a Python set, the others in sorted arrays: a fifth of the memory of one large set.

    Parameters
    ----------
    known : bytes
        Those of an earlier load that this one resumes, concatenated.
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

    def known(self, found: Sequence[bytes]) -> list[bool]:
        """Which of these are known."""
        if not found:
            return []
        known = np.fromiter((identity in self._recent for identity in found), bool, len(found))
        wanted = np.frombuffer(b"".join(found), dtype=_DTYPE)
        for run in self._runs:
            positions = np.searchsorted(run, wanted)
            positions[positions == len(run)] = 0
            known |= run[positions] == wanted
        return [bool(one) for one in known]

    def are_new(self, found: Sequence[bytes]) -> bool:
        """Whether none of these is known, and none occurs twice among them."""
        return (
            self._recent.isdisjoint(found)
            and len(set(found)) == len(found)
            and (not self._runs or True not in self.known(found))
        )

    def add(self, found: Sequence[bytes]) -> list[bool] | None:
        """Know these from now on; which of them are new, or None where all are."""
        if self.are_new(found):
            self._remember(found)
            return None
        fresh = []
        here = dict[bytes, None]()
        for identity, old in zip(found, self.known(found), strict=True):
            fresh.append(not old and identity not in here)
            if fresh[-1]:
                here[identity] = None
        self._remember(list(here))
        return fresh

    def first(self, count: int) -> bytes:
        """The identities of the first `count` rows, concatenated."""
        return bytes(self._order[: IDENTITY_BYTES * count])

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
