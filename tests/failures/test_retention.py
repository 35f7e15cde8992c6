"""One retention for whatever speaks of expiry, and none that the data contradict."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pandas as pd
import pytest

import toolkit as tk
from tests.reports.conftest import failures
from toolkit.failures.retention import retention_of

NOW = datetime(2026, 3, 15, 12, tzinfo=UTC)


def aged(*days: float) -> pd.DataFrame:
    """Failures of these ages in days."""
    return failures(
        [
            {"dlq_id": f"d{number}", "failed_at": NOW - timedelta(days=age), "response_body": "timed out",
             "workflow_url": "https://shop.example/pay", "workflow_run_id": f"wfr_{number}"}
            for number, age in enumerate(days)
        ]
    )  # fmt: skip


def test_an_expiry_that_older_entries_contradict_is_not_announced() -> None:
    """Report, expiries, plan: all know that the retention is unknown, and at least the age of the oldest."""
    frame = aged(14.2, 6.5, 0.1, 0)
    report = tk.report_failures(frame, now=NOW)
    expiry = report.to_dict()["expiry"]
    assert (
        expiry["is_known"],
        expiry["within_24_hours"],
        expiry["next_hours_left"],
    ) == (False, None, None)
    assert "at least 14 days" in expiry["retention"]
    text = report.to_markdown()
    assert "expire within 24 hours." not in report.verdict
    assert "already due" not in text
    assert "at least 14 days" in text
    assert "not known: the retention is unknown, at least 14 days" in report.to_short()
    assert tk.find_expiring(frame, now=NOW)["expires_at"].isna().all()
    assert (
        dict(tk.analysis.count_expiring(frame, now=NOW).itertuples(index=False))[
            "unknown"
        ]
        == 4
    )
    plan = tk.plan_redrive(frame)
    assert plan.frame["dlq_id"].tolist() == ["d0", "d1", "d2", "d3"]
    assert plan.frame["expires_at"].isna().all()


def test_one_retention_is_used_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Report, expiries and plan use the environment variable; an argument overrides it."""
    monkeypatch.setenv("TOOLKIT_RETENTION", "30d")
    frame = aged(14.2, 6.5, 0)
    assert tk.report_failures(frame, now=NOW).to_dict()["expiry"]["retention"] == "30d"
    left = NOW + timedelta(days=30 - 14.2)
    assert tk.find_expiring(frame, now=NOW)["expires_at"].iloc[0] == pd.Timestamp(
        left
    ).floor("ms")
    assert tk.plan_redrive(frame).options["retention"] == "30d"
    assert retention_of(frame, "20d").length == timedelta(days=20)
