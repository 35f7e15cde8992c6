"""The table of engines in docs/how-far.md is made by calling every function with every engine."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import dask
import duckdb
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

import toolkit as tk
from tests.test_frames_of_others import CALLS, frames  # noqa: F401 - a fixture
from toolkit.errors import InputError

_PAGE = Path(__file__).parents[1] / "docs" / "how-far.md"
ENGINES = {
    "snapshot": lambda snapshot: snapshot,
    "DuckDB": lambda snapshot: snapshot.to_duckdb(duckdb.connect()),
    "Dask": lambda snapshot: snapshot.to_dask(),
    "Polars": lambda snapshot: snapshot.to_polars(),
}


_OF_ONE_FORM = {"error", "signature"}
"""Columns that only the frame of a snapshot has, or only the files."""


def _rows(frame: pd.DataFrame, columns: list[str]) -> list[str]:
    text = frame[columns].to_json(
        orient="values", date_format="iso", default_handler=str
    )
    return sorted(map(json.dumps, json.loads(text)))


def _is_same(result: Any, expected: Any) -> bool:
    """Whether frames have the same rows in any order, and arrays the same values."""
    if isinstance(expected, pd.DataFrame):
        shared = [name for name in expected.columns if name in result.columns]
        others = {*expected.columns} ^ {*result.columns}
        return others <= _OF_ONE_FORM and _rows(result, shared) == _rows(
            expected, shared
        )
    if isinstance(expected, pd.Series | np.ndarray):
        return np.array_equal(np.asarray(result), np.asarray(expected))
    return True


def _table(kept: dict[str, set[str]]) -> str:
    """The table of the page: functions with the same engines share a row."""
    functions = defaultdict(list)
    for name, engines in kept.items():
        functions[tuple(engine in engines for engine in ENGINES)].append(f"`{name}`")
    lines = [f"| {' | '.join(ENGINES)} | functions |", "|---|---|---|---|---|"]
    for accepted in sorted(functions, reverse=True):
        cells = ["yes" if is_accepted else "no" for is_accepted in accepted]
        lines.append(f"| {' | '.join(cells)} | {', '.join(functions[accepted])} |")
    return "\n".join(lines)


@pytest.mark.slow
def test_the_page_has_the_table_of_engines(
    frames: dict[str, pd.DataFrame],  # noqa: F811 - the fixture
    tmp_path: Path,
) -> None:
    """Each function returns the same rows for every engine, or an error names the conversion."""
    pytest.importorskip("polars")
    snapshots = {}
    for name, frame in frames.items():
        tk.write_snapshot(frame, tmp_path / name)
        snapshots[name] = tk.open_snapshot(tmp_path / name)
    kept: dict[str, set[str]] = defaultdict(set)
    different = []
    for name, (argument, call) in sorted(CALLS.items()):
        folder = tmp_path / name
        folder.mkdir()
        expected = call(tk.read_snapshot(tmp_path / argument), folder)
        kept[name] = set()
        for engine, convert in ENGINES.items():
            inner = folder / engine
            inner.mkdir()
            try:
                with dask.config.set(scheduler="synchronous"):
                    result = call(convert(snapshots[argument]), inner)
            except InputError as error:
                if not error.next_step:
                    different.append((name, f"{engine}: no next step"))
                continue
            kept[name].add(engine)
            if not _is_same(result, expected):
                different.append((name, engine))
        plt.close("all")
    assert different == []
    assert _table(kept) in _PAGE.read_text("utf-8"), _table(kept)
