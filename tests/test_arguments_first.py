"""Wrong arguments are refused before the data are read: with large data, that would take minutes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

import toolkit as tk
from toolkit.errors import InputError
from toolkit.tables.frames import frame_from_rows
from toolkit.tables.schemas import FAILURES

UNREADABLE = pd.DataFrame({"a": [1]})
"""A frame without any column that an analysis reads: an error about columns shows that reading began."""

WRONG: list[tuple[Callable[..., Any], dict[str, Any]]] = [
    (tk.report_failures, {"now": "soon"}),
    (tk.report_failures, {"max_age": "old"}),
    (tk.report_failures, {"new_since": "lately"}),
    (tk.report_failures, {"retention": "long"}),
    (tk.explain_spike, {"window": "today"}),
    (tk.explain_spike, {"baseline": "usual"}),
    (tk.explain_spike, {"now": "soon"}),
    (tk.plan_redrive, {"history": 5}),
    (tk.plots.plot_failure_groups, {"theme": "blue"}),
    (tk.plots.plot_failure_groups, {"ax": 5}),
    (tk.plots.plot_failure_groups, {"top": 0}),
    (tk.plots.plot_failure_groups, {"freq": "often"}),
    (tk.plots.plot_failure_groups, {"tz": "Nowhere/Land"}),
    (tk.plots.plot_failure_groups, {"now": "soon"}),
]


@pytest.mark.parametrize(
    ("function", "argument"),
    WRONG,
    ids=[f"{function.__name__} {next(iter(argument))}" for function, argument in WRONG],
)
def test_a_wrong_argument_is_refused_before_failures_are_read(
    function: Callable[..., Any], argument: dict[str, Any]
) -> None:
    """Name the argument in the error, although the frame has no column that is needed."""
    with pytest.raises(InputError) as refused:
        function(UNREADABLE, **argument)
    assert next(iter(argument)).replace("_", " ") in str(refused.value).replace(
        "_", " "
    )


@pytest.mark.parametrize("name", ["labels", "queries", "precision", "groups"])
def test_a_wrong_argument_is_refused_before_the_first_audit(name: str) -> None:
    """Check all arguments of a report on an index before its first step."""
    steps: list[str] = []
    with pytest.raises(InputError, match=name):
        tk.report_index(
            np.eye(4),
            progress=lambda done, total, step: steps.append(step),
            **{name: object()},
        )
    assert steps == []


def test_a_receipt_is_not_copied_with_each_column() -> None:
    """Copy the values of `attrs` a few times, not once per column and selection."""
    copies: list[int] = []

    class Counted:
        def __deepcopy__(self, memo: object) -> Counted:
            copies.append(1)
            return self

    frame = frame_from_rows([{"dlq_id": "a", "workflow_url": "u"}], FAILURES)
    frame.attrs["counted"] = Counted()
    tk.analysis.count_by(frame, "workflow_url")
    assert len(copies) < 10
