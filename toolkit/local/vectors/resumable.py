"""Queries that go on: a ranking made once, handed out in pieces, and forgotten when nobody asks for long."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from toolkit.local.api import ApiError
from toolkit.local.vectors.fusion import Ranking
from toolkit.local.vectors.queries import Include

MAX_OPEN: Final = 100
"""Most resumable queries of an index at a time: an assumption."""


@dataclass
class ResumableQuery:
    """A query that goes on.

    Attributes
    ----------
    namespace : int
        Key of its namespace.
    rest : iterator of (id, score)
        What has not been handed out yet, best first.
    include : Include
    max_idle : int
        Seconds after which it is forgotten when nobody asks.
    used : float
        When it was last asked, in seconds of the clock.
    """

    namespace: int
    rest: Iterator[tuple[str, float]]
    include: Include
    max_idle: int
    used: float


class ResumableQueries:
    """The resumable queries of one index, by the ids that their askers know. They end with the process.

    Parameters
    ----------
    clock : callable
        Gives seconds that only grow.

    Examples
    --------
    >>> queries = ResumableQueries(clock=lambda: 0.0)
    >>> key = queries.begin(1, [("a", 0.9)], Include(metadata=False, vectors=False, data=False), max_idle=60)
    >>> next(queries.get(key).rest)
    ('a', 0.9)
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._open: dict[str, ResumableQuery] = {}

    def begin(self, namespace: int, ranking: Ranking, include: Include, *, max_idle: int) -> str:
        """Keep a ranking; gives the id to ask for it.

        Raises
        ------
        ApiError
            400 when too many are open.
        """
        self._forget()
        if len(self._open) >= MAX_OPEN:
            raise ApiError(
                400, f"resumable query; got {MAX_OPEN} open ones; expected fewer: end one, or let one expire"
            )
        key = str(uuid.uuid4())
        self._open[key] = ResumableQuery(namespace, iter(ranking), include, max_idle, self._clock())
        return key

    def get(self, key: str) -> ResumableQuery:
        """The query of this id, whose time to idle begins anew.

        Raises
        ------
        ApiError
            404 when there is none, or none any more.
        """
        self._forget()
        found = self._open.get(key)
        if found is None:
            raise _unknown()
        found.used = self._clock()
        return found

    def end(self, key: str) -> None:
        """Forget the query of this id.

        Raises
        ------
        ApiError
            404 when there is none, or none any more.
        """
        self._forget()
        if self._open.pop(key, None) is None:
            raise _unknown()

    def _forget(self) -> None:
        now = self._clock()
        for key in [key for key, query in self._open.items() if now - query.used > query.max_idle]:
            del self._open[key]


def _unknown() -> ApiError:
    return ApiError(404, "uuid; got none that is open; expected a resumable query not ended or expired")
