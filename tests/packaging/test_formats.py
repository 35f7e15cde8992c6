"""The version of the toolkit rises with the formats that it writes."""

from __future__ import annotations

from pathlib import Path

import toolkit as tk
from toolkit.cli import heartbeat
from toolkit.redrive import ledger_file, plan_file
from toolkit.reports.failure_report import _SCHEMA as FAILURE_SCHEMA
from toolkit.reports.index_report import _SCHEMA as INDEX_SCHEMA
from toolkit.signatures.signing import RULES_VERSION
from toolkit.snapshots import manifest
from toolkit_service.queue import database
from toolkit_service.vectors import index_database

FORMATS = {
    "0.1.0": {
        "snapshot layout": 1, "snapshot schema": 6, "snapshot index": 5, "checkpoint": 1,
        "signatures": 3, "plan": "redrive-plan/1", "ledger": 1, "heartbeat": None,
        "failure report": "failure-report/4", "index report": "index-report/2",
        "queue database": 2, "vector database": 3,
    },
    "0.2.0": {
        "snapshot layout": 3, "snapshot schema": 7, "snapshot index": 7, "checkpoint": 2,
        "signatures": 8, "plan": "redrive-plan/2", "ledger": 2, "heartbeat": 1,
        "failure report": "failure-report/7", "index report": "index-report/2",
        "queue database": 4, "vector database": 3,
    },
}  # fmt: skip
"""The formats of each version. A change of a format adds a version; entries of earlier ones stay."""


def formats() -> dict[str, int | str | None]:
    """The formats that this toolkit writes."""
    return {
        "snapshot layout": manifest.FORMAT,
        "snapshot schema": manifest.SCHEMA_VERSION,
        "snapshot index": manifest.INDEX_VERSION,
        "checkpoint": manifest.CHECKPOINT_VERSION,
        "signatures": RULES_VERSION,
        "plan": plan_file.FORMAT,
        "ledger": ledger_file.VERSION,
        "heartbeat": heartbeat.FORMAT,
        "failure report": FAILURE_SCHEMA,
        "index report": INDEX_SCHEMA,
        "queue database": database.VERSION,
        "vector database": index_database._LAYOUT,
    }


def test_a_changed_format_raises_the_version() -> None:
    """The formats are those of the version; if one changes, raise the version and add it to the table."""
    assert FORMATS[tk.__version__] == formats()
    assert list(FORMATS)[-1] == tk.__version__


def test_the_changelog_and_the_commands_of_installing_have_the_version() -> None:
    """Each version has a section, and the wheel that the documents install is of this one."""
    root = Path(__file__).parents[2]
    changelog = (root / "CHANGELOG.md").read_text("utf-8")
    assert [
        version for version in FORMATS if f"## [{version}] - " not in changelog
    ] == []
    installing = (root / "docs" / "installing.md").read_text("utf-8")
    assert f"workflow_vector_toolkit-{tk.__version__}-py3" in installing
