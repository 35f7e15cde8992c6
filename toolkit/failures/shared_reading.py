"""Compute the results of several analyses in as few readings of a frame as possible.

Each analysis asks for its results one after another, and would read all rows for each of them. A shared
reading runs all analyses at once, in rounds:

1. Run each analysis with rows that have no values yet. It ends at the first results that are not known.
2. Compute all results that the analyses asked for, in one reading.
3. Repeat. The results of the round before are known now, so that an analysis gets further.

For example, a trend first needs the first and last time, and then counts by bins between them. The first time
is computed together with the counts of all other analyses. A report of 20 results takes three rounds.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final, NoReturn

import pyarrow as pa

from toolkit.base.errors import ToolkitError
from toolkit.failures.partitions import Work
from toolkit.failures.selection import facts_of, opened
from toolkit.failures.sources import AnyFrame, SelectedRows, reduce_together

Analysis = Callable[[SelectedRows], object]

_MOST_ROUNDS: Final = 4
"""No analysis of the toolkit needs more results one after another."""

_FACTS: Final = ("receipt", "learned", "renamed")


class _NotKnownError(Exception):
    """An analysis needs results that are not computed yet."""


class SharedReading:
    """A frame whose results are computed in advance, and kept.

    Attributes
    ----------
    rows : SelectedRows
        The frame for analyses. They find the results that `prepare` has computed, and compute all others.
    """

    def __init__(self, frame: AnyFrame, *, doing: str) -> None:
        rows = opened(frame, doing=doing)
        facts = facts_of(frame)
        known = {name: facts[name] for name in _FACTS if name in facts}
        metadata = {b"toolkit": json.dumps(known).encode()}
        self._rows = replace(rows, schema=rows.schema.with_metadata(metadata))
        self._results: dict[bytes, pa.Table] = {}
        self.rows = replace(self._rows, computed=self._result)

    def prepare(self, analyses: Iterable[Analysis]) -> None:
        """Compute the results that analyses need. An error of an analysis is left to the later call."""
        unfinished = list(analyses)
        for _ in range(_MOST_ROUNDS):
            requested: dict[bytes, Work] = {}
            waiting = []
            for analysis in unfinished:
                further = self._requested_by(analysis)
                requested |= further
                if further:
                    waiting.append(analysis)

            if not waiting:
                return
            unfinished = waiting
            self._compute(requested)

    def _compute(self, requested: dict[bytes, Work]) -> None:
        """Compute results in one reading, and keep them."""
        tables = reduce_together(list(map(self._request, requested.values())))
        self._results |= dict(zip(requested, tables, strict=True))

    def _request(self, work: Work) -> tuple[SelectedRows, Any]:
        rows = replace(self._rows.choose(work.names), steps=work.steps)
        return rows, work.wanted

    def _requested_by(self, analysis: Analysis) -> dict[bytes, Work]:
        """Return the first results of an analysis that are not known."""
        recorder = _Recorder(self._results)
        rows = replace(
            self._rows,
            computed=recorder.result,
            batches=_stop,
            workers=None,
            check=None,
        )
        if rows.skipping is not None:
            rows = replace(rows, skipping=_stop)
        with suppress(_NotKnownError, ToolkitError):
            analysis(rows)
        return recorder.requested

    def _result(self, work: Work) -> pa.Table | None:
        """Return a result that is known, or that a database computes."""
        key = _key(work)
        if key in self._results:
            return self._results[key]
        if self._rows.computed is None:
            return None

        return self._rows.computed(work)


@dataclass
class _Recorder:
    """Results that an analysis asks for, by key, until it needs rows."""

    known: dict[bytes, pa.Table]
    requested: dict[bytes, Work] = field(default_factory=dict)

    def result(self, work: Work) -> pa.Table | None:
        """Return a known result; remember the request for another one."""
        key = _key(work)
        if key is None:
            raise _NotKnownError

        if key not in self.known:
            self.requested[key] = work
        return self.known.get(key)


def _stop(*_: object) -> NoReturn:
    """End an analysis that reads rows, because it needs a result that is not known.

    If an analysis skips parts of files, it also ends. It reads the few other parts later and by itself, as a
    shared reading includes all parts.
    """
    raise _NotKnownError


def _key(work: Work) -> bytes | None:
    """Return bytes that are equal for equal requests; None if a step cannot be compared."""
    # The functions of steps are named by their modules, and their arguments are values.
    try:
        return pickle.dumps((tuple(work.names), work.steps, work.wanted))
    except (pickle.PicklingError, AttributeError, TypeError):
        return None
