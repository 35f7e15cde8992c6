"""Entries that are at rest as they came: what need not be decoded again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, compress

import numpy as np
import numpy.typing as npt

from toolkit.loading.identities import identities_of
from toolkit.tables.wire_entries import WireEntries

AtRest = Callable[[bytes, bytes], npt.NDArray[np.bool_]]
"""Which entries are at rest as they came, given their identities and digests, 16 bytes each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recognised:
    """A page whose entries were told apart by their bytes.

    Attributes
    ----------
    ids : list of str
    found : list of bytes
        Their identities.
    known, fresh : list of bytes
        Of these, the ones that are at rest as they came, and the others.
    rows : bytes
        The JSON array of the others.
    digests : list of bytes
        Of the bytes the others came in.
    """

    ids: list[str]
    found: list[bytes]
    known: list[bytes]
    fresh: list[bytes]
    rows: bytes = field(repr=False)
    digests: list[bytes]


def recognise(
    pages: Sequence[bytes],
    read: Callable[[bytes], WireEntries | None],
    are_new: Callable[[Sequence[bytes]], bool],
    at_rest: AtRest,
) -> Iterator[Recognised | None]:
    """What is at rest of each page; None for one that has to be decoded as a whole.

    Parameters
    ----------
    pages : sequence of bytes
    read : callable
        The entries of a page, or None where they are not to be told apart.
    are_new : callable
        Whether entries of these identities come for the first time. A later version is always decoded.
    at_rest : callable
    """
    read_pages: list[tuple[WireEntries, list[bytes]] | None] = []
    for page in pages:
        entries = read(page)
        found = identities_of(entries.ids) if entries else []
        read_pages.append((entries, found) if entries and are_new(found) else None)
    told = [one for one in read_pages if one]
    known = at_rest(
        b"".join(chain.from_iterable(found for _, found in told)),
        b"".join(chain.from_iterable(entries.digests for entries, _ in told)),
    ).tolist()
    start = 0
    for page, one in zip(pages, read_pages, strict=True):
        if one is None:
            yield None
            continue
        entries, found = one
        old = known[start : start + len(found)]
        start += len(found)
        new = [not flag for flag in old]
        yield Recognised(
            ids=entries.ids,
            found=found,
            known=list(compress(found, old)),
            fresh=list(compress(found, new)),
            rows=b"[" + b",".join(compress(entries.raws, new)) + b"]" if any(old) else page,
            digests=list(compress(entries.digests, new)),
        )
