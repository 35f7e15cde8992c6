"""Read steps of workflow runs as attributes, to compare failed runs with successful ones.

The run log keeps the steps of a run as JSON in the column `extra`. For example, a run whose steps `charge`
and `pack` have ended, the first one with `{"plan": "team"}`, has the attributes `step = charge`,
`step = pack` and `output of charge plan = team`. The payload of a run is `payload`, if the log has it.

A step that is missing is no attribute: a failed run always lacks the steps that follow the failure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Final

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from toolkit.failures.failure_attributes import json_fields
from toolkit.secrets.redaction import Redactor
from toolkit.tables.steps import explode_steps

STEP: Final = "step"
PAYLOAD: Final = "payload"

_RUN_LOG: Final = ("workflow_run_id", "dlq_id", "extra")
_INITIAL: Final = "Initial"
_STEPS: Final = 12
"""Steps whose outputs are compared, the most frequent first."""


def has_steps(names: Collection[str]) -> bool:
    """Return whether a frame with these columns comes from the run log."""
    return {*_RUN_LOG, "state"}.issubset(names) and "body" not in names


def steps_and_outputs(
    tables: Sequence[pa.Table],
) -> tuple[NDArray[np.object_], dict[str, pd.Categorical]]:
    """Return the names of the steps of each run, and the fields of payloads and outputs with few values."""
    redactor = Redactor()
    both = pd.concat(
        [table.select(list(_RUN_LOG)).to_pandas() for table in tables],
        ignore_index=True,
    )
    steps = explode_steps(both.astype("str"))
    runs = both["workflow_run_id"].tolist()
    names: dict[str, dict[str, None]] = defaultdict(dict)
    outputs: dict[str, dict[str, str]] = defaultdict(dict)
    listed = steps[["workflow_run_id", "step_name", "step_type", "output"]]
    for run, name, kind, output in listed.astype(object).itertuples(index=False):
        if not isinstance(name, str):
            continue
        step = PAYLOAD if kind == _INITIAL else f"output of {redactor.text(name)}"
        if kind != _INITIAL:
            names[run][redactor.text(name)] = None
        if isinstance(output, str):
            outputs[step][run] = output
    steps_of_run = np.empty(len(runs), dtype=object)
    steps_of_run[:] = [tuple(names[run]) for run in runs]
    fields: dict[str, pd.Categorical] = {}
    for step, of_run in sorted(outputs.items(), key=lambda item: -len(item[1]))[
        :_STEPS
    ]:
        column = pa.chunked_array(
            [pa.array([of_run.get(run) for run in runs], pa.string())]
        )
        fields |= dict(json_fields(column, step, redactor))
    return steps_of_run, fields
