"""Results of analyses state their outcome in `verdict`, as audits, snapshots and redrives do."""

from __future__ import annotations

import pandas as pd

import toolkit as tk
from toolkit.results import (
    Explanation,
    FailureClasses,
    FailureComparison,
    FailureGroups,
    Replays,
    RetryOutcomes,
)
from toolkit.tables.frames import frame_from_rows
from toolkit.tables.schemas import FAILURES

_RESULTS = (
    Explanation, FailureClasses, FailureComparison, FailureGroups, Replays, RetryOutcomes,
)  # fmt: skip


def test_results_have_a_verdict():
    """Each result of an analysis of failures has one."""
    assert [kind.__name__ for kind in _RESULTS if not hasattr(kind, "verdict")] == []


def test_the_verdict_names_the_outcome():
    """It is what `repr` shows, with the numbers of the result."""
    steps = pd.DataFrame({"step": ["pay", "ship"] * 40})
    risen = pd.DataFrame({"step": ["pay", "ship"] * 40 + ["pay"] * 200})
    explained = tk.analysis.explain_change(steps, risen)
    assert "step = pay" in explained.verdict
    none = frame_from_rows([], FAILURES)
    classes, groups = tk.classify_failures(none), tk.group_failures(none)
    assert classes.verdict.startswith("0 ")
    assert groups.verdict.startswith("0 ")
    for result in (explained, classes, groups):
        assert repr(result) == result.verdict
