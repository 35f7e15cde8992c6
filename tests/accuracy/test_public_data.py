"""Labelled data from elsewhere are read from a folder and measured."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from tests.accuracy.public_data import public_tables, without_saturated


def _write(path: Path, value: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    with gzip.open(path, "wt", encoding="utf-8") as file:
        json.dump(value, file)


def test_groups_incidents_and_seen_before_are_measured(tmp_path: Path) -> None:
    """Each kind of file gives a table with the figures of its rows."""
    lines = [[f"no order {number}", "order"] for number in range(4)] + [
        ["disk full", "disk"]
    ]
    _write(tmp_path / "logs" / "shop.json.gz", lines)
    trace = "java.lang.IllegalStateException: closed\n\tat com.acme.Fault{0}.step(Fault{0}.java:7)"
    traces = [[trace.format(number // 2), str(number // 2)] for number in range(6)]
    _write(tmp_path / "traces" / "java.json.gz", [*traces, [trace.format(9), "9"]])
    past = [[minute, region, 2, 2] for minute in range(20) for region in ("eu", "us")]
    window = {"now": [[0, "eu", 90, 90], [0, "us", 2, 2]], "past": past, "exposure": 20}
    quiet = {"now": [[0, "eu", 2, 2], [0, "us", 2, 2]], "past": past, "exposure": 20}
    case = {
        "attributes": ["region"],
        "roots": [{"region": "eu"}],
        "incident": window,
        "quiet": [quiet],
    }
    _write(tmp_path / "incidents" / "regions.json.gz", [case])
    rows = list(public_tables(tmp_path))
    assert "| logs/shop | 5 | 2 | 1.000 | 1.000 | 1.000 | 1.000 |" in rows
    assert "| 1 | 1.000 | 1.000 | 1.000 | 1.000 |" in rows
    assert rows[-1].startswith("| 7 | 1.000 | 1.000 |")


def test_saturated_figures_are_left_out() -> None:
    """Only figures of .99 or more in a table are replaced."""
    assert without_saturated("| a | 0.995 | 1.000 | 0.989 |") == "| a | - | - | 0.989 |"
    assert without_saturated("0.995 of all") == "0.995 of all"
