"""Count failures over time for every frequent value of every attribute.

Each value is a *series*, for example ``status = 500``, and so are every pair of a value with a workflow, and
every label. With two statuses and three workflows that occur together, there are 2 + 3 + 6 series.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from toolkit.failures.failure_attributes import WORKFLOW, FailureAttributes
from toolkit.failures.incident_times import TimeBins
from toolkit.failures.rate_windows import FEWEST

_Bools = npt.NDArray[np.bool_]
_Ints = npt.NDArray[np.int64]

_VALUES: Final = 20
"""Values per attribute, the most frequent first."""


@dataclass(frozen=True)
class AttributeSeries:
    """The series that each failure belongs to: one number and one row per pair of series and failure."""

    numbers: _Ints
    rows: _Ints

    @classmethod
    def of(cls, failures: FailureAttributes) -> AttributeSeries:
        """Return the most frequent values of each attribute, numbered across all attributes."""
        numbers, rows, offset = [], [], 0
        for codes, coded_rows in _coded(failures):
            counts = np.bincount(codes, minlength=1)
            frequent = np.argsort(-counts, kind="stable")[:_VALUES]
            frequent = frequent[counts[frequent] >= FEWEST]
            number_of_code = np.full(len(counts), -1, dtype=np.int64)
            number_of_code[frequent] = offset + np.arange(len(frequent))
            offset += len(frequent)
            numbered = number_of_code[codes]
            numbers.append(numbered[numbered >= 0])
            rows.append(coded_rows[numbered >= 0])

        return cls(np.concatenate(numbers), np.concatenate(rows))

    def counts(self, bins: TimeBins, when: _Ints, counted: _Bools) -> _Ints:
        """Return the number of counted failures by bin, with one row per series."""
        series_count = int(self.numbers.max(initial=-1)) + 1
        is_counted = counted[self.rows]
        positions = bins.positions(when[self.rows[is_counted]])
        # one number per pair of series and bin makes a single `bincount` of the whole table
        cells = self.numbers[is_counted] * bins.count + positions
        flat = np.bincount(cells, minlength=series_count * bins.count)

        return flat.reshape(series_count, bins.count).astype(np.int64)


def _coded(failures: FailureAttributes) -> Iterator[tuple[_Ints, _Ints]]:
    """Yield the values of each attribute, of each pair with a workflow, and labels, each with rows."""
    all_rows = np.arange(len(failures))
    workflow = failures.columns.get(WORKFLOW)
    for name, column in failures.columns.items():
        codes = column.codes.astype(np.int64)
        yield codes, all_rows
        if workflow is not None and name != WORKFLOW:
            # One code per pair. For example, with 3 workflows, value 2 and workflow 1 have the code
            # 2 * 3 + 1 = 7.
            yield codes * len(workflow.categories) + workflow.codes, all_rows

    yield failures.label_codes, failures.labelled
