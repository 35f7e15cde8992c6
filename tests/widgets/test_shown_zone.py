"""Panels and the command line show times in one time zone; values and frames stay in UTC."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pandas as pd
import pytest

import toolkit as tk
from tests.widgets.conftest import ordinary
from toolkit import FailureFilterPanel, FailurePanel
from toolkit.base.time_zones import VARIABLE, time_zone, zones_of_times
from toolkit.cli import main
from toolkit.errors import InputError
from toolkit.secrets.redaction import Redactor
from toolkit.widgets.failure_rows import FailureRows, FailureView

BERLIN = "Europe/Berlin"
REDACT = Redactor(key=b"zone")


def test_a_table_of_changes_of_clocks_is_that_of_python() -> None:
    """Of each hour around a change, the table has the difference and the name that Python has."""
    zone = time_zone(BERLIN)
    first = datetime(2026, 3, 1, tzinfo=UTC)
    table = zones_of_times(zone, first, first + timedelta(days=30))
    for hours in range(24 * 400):
        when = first + timedelta(hours=hours)
        _, ahead, name = [row for row in table if row[0] <= when.timestamp() * 1000][-1]
        local = when.astimezone(zone)
        assert (timedelta(milliseconds=ahead), name) == (
            local.utcoffset(),
            local.tzname(),
        )


def test_the_browser_shows_and_searches_times_of_the_zone(
    failures: pd.DataFrame,
) -> None:
    """Heading, cells, timeline, search and groups; what is returned stays in UTC."""
    browser = FailurePanel(failures, redactor=REDACT, tz=BERLIN)
    assert browser.table["columns"][0]["label"] == f"Failed at ({BERLIN})"
    assert browser.page(0, 1)[0][1] == "2026-03-10 13:00:00"
    assert "2026-03-10 13:00:00 CET" in browser.detail
    browser.value = FailureView(search="13:00:00")
    assert browser.found()["dlq_id"].tolist() == ["dlq_0"]
    assert browser.found()["failed_at"].iloc[0] == pd.Timestamp(
        "2026-03-10 12:00", tz="UTC"
    )
    browser._show_groups()
    _ = browser.groups()
    browser._show_groups()
    assert "10 Mar" in json.dumps(browser.board["groups"])
    assert browser.trend["zones"][0][2] in {"CET", "CEST"}


def test_the_filter_panel_reads_and_shows_times_of_the_zone(
    failures: pd.DataFrame,
) -> None:
    """Field and label have the zone; the filter that they mean is in UTC."""
    panel = FailureFilterPanel(
        failures, tz=BERLIN, clock=lambda: datetime(2026, 3, 10, 12, tzinfo=UTC)
    )
    assert panel.since.label == f"From ({BERLIN})"
    panel.choose_period("1 hour")
    assert panel.value.since == datetime(2026, 3, 10, 11, tzinfo=UTC)
    assert panel.since.text == "2026-03-10T12:00:00.000+01:00"
    assert {name for _, _, name in panel.trend["zones"]} == {"CET", "CEST"}


def test_bars_of_a_filter_panel_are_days_of_the_zone() -> None:
    """Days begin at midnight there, also the day after a change of clocks."""
    rows = [
        row
        | {
            "created_at": datetime(2026, 3, 10, 12, tzinfo=UTC)
            + timedelta(days=3 * number)
        }
        for number, row in enumerate(ordinary())
    ]
    panel = FailureFilterPanel(pd.DataFrame(rows), tz=BERLIN)
    starts = [
        pd.Timestamp(start, unit="ms", tz="UTC").tz_convert(BERLIN)
        for start in panel.trend["starts"]
    ]
    assert panel.trend["width"] % 86_400_000 == 0
    assert {start.hour for start in starts} == {0}


def test_without_a_zone_the_variable_is_taken(
    failures: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unknown zone is refused when the panel is made."""
    monkeypatch.setenv(VARIABLE, "Asia/Kathmandu")
    assert (
        FailureRows(failures, REDACT).columns["failed_at"]
        == "Failed at (Asia/Kathmandu)"
    )
    assert FailureFilterPanel(failures).since.label.endswith("(Asia/Kathmandu)")
    for panel in (FailurePanel, FailureFilterPanel):
        with pytest.raises(InputError, match="Europe/Atlantis"):
            panel(failures, tz="Europe/Atlantis")


def test_the_report_of_the_command_line_has_the_zone(
    failures: pd.DataFrame, tmp_path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--tz` is that of the report: its JSON names it, and the headline printed has it."""
    tk.write_snapshot(failures, tmp_path / "kept")
    words = [
        "report",
        "--snapshot",
        str(tmp_path / "kept"),
        "--output",
        str(tmp_path / "report.json"),
    ]
    main([*words, "--tz", BERLIN])
    assert json.loads((tmp_path / "report.json").read_text())["tz"] == BERLIN
    assert "CET" in capsys.readouterr().out
    assert main([*words, "--tz", "Europe/Atlantis"]) == 1


def test_tables_of_frames_name_the_zone_of_their_times(
    failures: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Frames stay in UTC, next to panels that show times of a zone, so the heads of their columns say UTC."""
    monkeypatch.setenv(VARIABLE, BERLIN)
    panel = FailureFilterPanel(failures)
    panel.run()
    assert ">failed_at (UTC)<" in panel.first_rows
    assert "2026-03-10 12:00:00" in panel.first_rows
    assert (
        ">failed_at (UTC)<" in FailurePanel(failures)._repr_mimebundle_()["text/html"]
    )

    groups = tk.group_failures(failures)._repr_html_()
    assert ">first_at (UTC)<" in groups
    plan = tk.plan_redrive(failures)._repr_html_()
    assert ">first_expiry (UTC)<" in plan
