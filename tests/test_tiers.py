"""The first tier is short, and nothing is lost: tests that it leaves out run in the second."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

from tests.tiers import DEAR_MODULES, DEAR_STEP, ROOT, SLOWEST_FUNCTIONS


def test_every_dear_module_exists():
    """A module that is renamed would return to the first tier unseen."""
    assert [name for name in DEAR_MODULES if not (ROOT / name).is_file()] == []


def test_every_slow_function_exists():
    """A function that is renamed would return to the first tier unseen."""
    missing = []
    for line in sorted(SLOWEST_FUNCTIONS):
        path, _, function = line.partition("::")
        name = function.rpartition(".")[2]
        file = ROOT / path
        if not file.is_file() or name not in file.read_text("utf-8"):
            missing.append(line)
    assert missing == []


def collected(path: str, marks: str) -> set[str]:
    """Return the names of the functions that a tier runs of a module."""
    listed = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-n0",
            "-q",
            "--collect-only",
            "-m",
            marks,
            path,
        ],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    return {
        line.partition("::")[2].partition("[")[0]
        for line in listed.stdout.splitlines()
        if "::" in line
    }


@pytest.mark.slow
def test_both_tiers_together_run_every_function_of_a_dear_module():
    """The first tier runs every third function, and the second the others."""
    path = "tests/tables/test_header_maps.py"
    assert path in DEAR_MODULES
    written = [
        node.name
        for node in ast.parse((ROOT / path).read_text("utf-8")).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]
    first = collected(path, "not exhaustive")
    assert 1 <= len(first) <= -(-len(written) // DEAR_STEP)
    assert first | collected(path, "exhaustive") == set(written)
