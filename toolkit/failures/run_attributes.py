"""Read steps of workflow runs as attributes, to compare failed runs with successful ones.

The run log keeps the steps of a run as JSON in the column `extra`. For example, a run whose steps `charge`
and `pack` have ended, the first one with `{"plan": "team"}`, has the attributes `step = charge`,
`step = pack` and `output of charge plan = team`. The payload of a run is `payload`, if the log has it.

A step that is missing is no attribute: a failed run always lacks the steps that follow the failure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from toolkit.failures.attribute_values import json_fields, json_members, masked_member
from toolkit.secrets.redaction import Redactor
from toolkit.tables.steps import explode_steps

STEP: Final = "step"
PAYLOAD: Final = "payload"
_OUTPUT: Final = "output of "

_RUN_LOG: Final = ("workflow_run_id", "dlq_id", "extra", "state")
_INITIAL: Final = "Initial"
_STEPS: Final = 12
"""Steps whose outputs are compared, the most frequent first."""


def has_steps(names: Collection[str]) -> bool:
    """Return whether a frame with these columns comes from the run log."""
    return set(_RUN_LOG).issubset(names) and "body" not in names


def columns_of_steps(attribute: str, names: Collection[str]) -> list[str]:
    """Return the columns that an attribute of steps is read from; none if it is another attribute.

    >>> columns_of_steps("output of charge plan", ["workflow_run_id", "dlq_id", "extra", "state"])
    ['workflow_run_id', 'dlq_id', 'extra', 'state']
    """
    is_of_steps = attribute == STEP or attribute.startswith((f"{PAYLOAD} ", _OUTPUT))
    if is_of_steps and has_steps(names):
        return list(_RUN_LOG)

    return []


def steps_and_outputs(
    tables: Sequence[pa.Table],
) -> tuple[NDArray[np.object_], dict[str, pd.Categorical]]:
    """Return the names of the steps of each run, and the fields of payloads and outputs with few values."""
    redactor = Redactor()
    steps = _steps_of(tables, redactor)
    steps_of_run = np.empty(len(steps.names), dtype=object)
    steps_of_run[:] = steps.names
    frequent = sorted(steps.outputs.items(), key=lambda item: -len(item[1]))

    fields: dict[str, pd.Categorical] = {}
    for prefix, of_run in frequent[:_STEPS]:
        outputs = [of_run.get(run) for run in range(len(steps.names))]
        column = pa.chunked_array([pa.array(outputs, pa.string())])
        fields |= dict(json_fields(column, prefix, redactor))

    return steps_of_run, fields


def values_of_runs(table: pa.Table, attribute: str) -> pd.Series:
    """Return a tuple of values for each run: of `step`, or of a field of a payload or an output."""
    redactor = Redactor()
    steps = _steps_of([table], redactor)
    if attribute == STEP:
        return pd.Series(steps.names, dtype=object)

    values: list[tuple[str, ...]] = [() for _ in steps.names]
    for prefix, of_run in steps.outputs.items():
        field = attribute.removeprefix(f"{prefix} ")
        if field == attribute:
            continue
        for run, output in of_run.items():
            members = json_members(output)
            if field in members:
                values[run] += (masked_member(field, members[field], redactor),)

    return pd.Series(values, dtype=object)


class _Steps(NamedTuple):
    """Steps of the runs of the run log. Runs are numbered by their rows."""

    names: list[tuple[str, ...]]
    """The names of the finished steps of each run."""
    outputs: dict[str, dict[int, str]]
    """The JSON of each run, by `payload` or the `output of` a step."""


def _steps_of(tables: Sequence[pa.Table], redactor: Redactor) -> _Steps:
    """Read the steps of all runs of some tables, one table after the other."""
    columns = ["dlq_id", "extra"]
    rows = pd.concat([table.select(columns).to_pandas() for table in tables])
    # a run can be in the log twice, so rows are told apart by their numbers
    rows["workflow_run_id"] = range(len(rows))
    steps = explode_steps(rows.astype("str").reset_index(drop=True))
    names: list[dict[str, None]] = [{} for _ in range(len(rows))]
    outputs: dict[str, dict[int, str]] = defaultdict(dict)

    listed = steps[["workflow_run_id", "step_name", "step_type", "output"]]
    for row, name, kind, output in listed.astype(object).itertuples(index=False):
        if not isinstance(name, str):
            continue
        run = int(row)
        prefix = PAYLOAD

        if kind != _INITIAL:
            step = redactor.text(name)
            names[run][step] = None
            prefix = f"{_OUTPUT}{step}"

        if isinstance(output, str):
            outputs[prefix][run] = output

    return _Steps([tuple(own) for own in names], outputs)
