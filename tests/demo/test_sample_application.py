"""The application of the sample's workflows: a redrive of the sample succeeds, fails and is stopped."""

from __future__ import annotations

from pathlib import Path

import pytest

import toolkit as tk
from toolkit_service.demo.sample_application import REPAIRED
from toolkit_service.demo.stories import occurrences


def test_half_of_the_workflows_are_repaired() -> None:
    """Of eleven workflows six succeed, among them that of the incident; the one always broken does not."""
    workflows = {item.workflow for item in occurrences()}
    assert workflows > REPAIRED
    assert (len(workflows), len(REPAIRED)) == (11, 6)
    assert "payments/capture" in REPAIRED
    assert "legacy/sync" not in REPAIRED


@pytest.mark.slow
def test_a_redrive_of_the_sample_has_successes_failures_and_a_stop(
    tmp_path: Path,
) -> None:
    """With `connect("local")` alone: repaired runs succeed, others come back with their own signature."""
    with tk.connect("local") as service:
        failures = tk.load_failures(service, "1d", progress=False)
        chosen = failures[
            failures["workflow_url"].str.contains("payments/capture|legacy/sync")
        ]
        plan = tk.plan_redrive(chosen, deadline="30s")
        ledger = tmp_path / "redrive.sqlite"
        result = tk.run_redrive(
            service, plan, ledger=ledger, confirm=plan.confirmation, progress=False
        )
    states = result.frame.groupby("workflow_url")["state"].agg(set)
    payments, legacy = (
        states[states.index.str.endswith(name)].iloc[0] for name in ("capture", "sync")
    )
    assert payments == {"succeeded"}
    assert legacy == {"failed again", "stopped"}
    assert result.verdict.startswith("Stopped: 150 succeeded, ")
