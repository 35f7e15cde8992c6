"""Snapshots of every schema version, as toolkits of that time wrote them: kept in ``tests/data`` for ever."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

import toolkit as tk
from toolkit.snapshots.manifest import SCHEMA_VERSION

_DATA = Path(__file__).parents[1] / "data" / "snapshots"
_SPEC = importlib.util.spec_from_file_location("make_snapshots", _DATA / "make.py")
assert _SPEC is not None
assert _SPEC.loader is not None
made = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(made)

_VERSIONS = sorted(_DATA.glob("version-*"))
_SNAPSHOTS = [
    pytest.param(path, id=f"{path.parent.name}/{path.name}")
    for version in _VERSIONS
    for path in sorted(version.iterdir())
    if path.is_dir()
]


def test_every_version_from_now_on_has_its_snapshots() -> None:
    """The current version is among those kept, so that no version is forgotten."""
    assert f"version-{SCHEMA_VERSION}" in {path.name for path in _VERSIONS}


@pytest.mark.parametrize("path", _SNAPSHOTS)
def test_a_snapshot_reads_as_it_was_written(path: Path) -> None:
    """Every row has the values it had, whatever the columns are called and however they are stored today."""
    expected: list[dict[str, Any]] = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    assert made.meaning(tk.read_snapshot(path)) == expected
    assert tk.scan_snapshot(path).count_rows() == len(expected)
    assert tk.verify_snapshot(path).rows == len(expected)
