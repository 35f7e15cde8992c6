"""A set of 16-byte identities in a fifth of the memory that Python's own takes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

_RECENT: Final = 1 << 16
"""How many lie in a set of Python's, which is the quicker one, before they become a sorted run."""

_LONGEST: Final = 1 << 18
"""How many a run has when it is not merged any more: merging takes the memory of both twice."""

_KIND: Final = "S16"  # takes no notice of zeros at the end, which is exact where all are of one length
Run = npt.NDArray[np.bytes_]


class Seen:
    """Identities that were seen: the latest in a set, the others in sorted runs.

    Examples
    --------
    >>> seen = Seen()
    >>> seen.update([bytes(16), bytes(range(16))])
    >>> seen.known([bytes(range(16)), bytes(range(1, 17))])
    [True, False]
    """

    def __init__(self) -> None:
        self._recent: set[bytes] = set()
        self._runs: list[Run] = []

    def known(self, found: Sequence[bytes]) -> list[bool]:
        """Which of these were seen."""
        if not found:
            return []
        recent = self._recent
        known = np.fromiter((identity in recent for identity in found), bool, len(found))
        wanted = np.frombuffer(b"".join(found), dtype=_KIND)
        for run in self._runs:
            places = np.searchsorted(run, wanted)
            places[places == len(run)] = 0
            known |= run[places] == wanted
        return [bool(one) for one in known]

    def isdisjoint(self, found: Sequence[bytes]) -> bool:
        """Whether none of these was seen."""
        return self._recent.isdisjoint(found) and (not self._runs or True not in self.known(found))

    def update(self, found: Iterable[bytes]) -> None:
        """See these."""
        self._recent.update(found)
        if len(self._recent) < _RECENT:
            return
        run = np.sort(np.frombuffer(b"".join(self._recent), dtype=_KIND))
        self._recent = set()
        while self._runs and len(self._runs[-1]) <= len(run) < _LONGEST:
            run = np.sort(np.concatenate([self._runs.pop(), run]), kind="stable")
        self._runs.append(run)
