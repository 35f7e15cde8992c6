"""Execute a notebook cell by cell in a child process.

``python -m toolkit_service.demo.notebooks INPUT OUTPUT --folder DIR`` executes a notebook in the working
folder DIR and prints a line of JSON per cell. It ends, together with the kernel, when standard input
closes or a signal arrives.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, DeadKernelError

from toolkit.base.children import end_with_parent

CELL_TIMEOUT: Final = 100
"""The time limit of a cell in seconds."""

_VIEW: Final = "application/vnd.jupyter.widget-view+json"
_STATE: Final = "application/vnd.jupyter.widget-state+json"


def execute(source: Path, target: Path, folder: Path) -> str | None:
    """Execute a notebook and write it with the outputs.

    Return the error in one line, or None if all cells ran.
    """
    notebook = nbformat.read(source, as_version=4)  # type: ignore[no-untyped-call]
    total = sum(cell.cell_type == "code" for cell in notebook.cells)
    begun = 0

    def begin(**_: Any) -> None:
        nonlocal begun
        begun += 1

    def tell(**_: Any) -> None:
        print(json.dumps({"cells": begun, "of": total}), flush=True)  # noqa: T201 - the parent reads it

    client = NotebookClient(
        notebook,
        timeout=CELL_TIMEOUT,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
        # otherwise, the kernel would import from the current folder first
        extra_arguments=["--InteractiveShellApp.ignore_cwd=True"],
        on_cell_execute=begin,
        on_cell_executed=tell,
        record_timing=False,
    )

    problem = None
    try:
        client.execute()
    except CellExecutionError as error:
        problem = f"cell {begun} of {total}: {error.ename}: {error.evalue}"
    except (DeadKernelError, TimeoutError) as error:
        problem = f"cell {begun} of {total}: {type(error).__name__}"
    finally:
        remove_widgets(notebook)
        nbformat.write(notebook, target)  # type: ignore[no-untyped-call]

    return problem


def remove_widgets(notebook: Any) -> None:
    """Remove widgets from an executed notebook, so that readers see the tables and texts next to them.

    nbconvert prefers widgets, and draws them with scripts from the network: without one, pages are blank.
    """
    saved = notebook.metadata.pop("widgets", {})
    models = saved.get(_STATE, {}).get("state", {})
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        cell.outputs = [
            output for output in cell.outputs if not _is_progress_bar(output, models)
        ]
        for output in cell.outputs:
            output.get("data", {}).pop(_VIEW, None)


def _is_progress_bar(output: Any, models: dict[str, Any]) -> bool:
    """Return True if an output is a progress bar, whose text would show the count at the start for ever."""
    view = output.get("data", {}).get(_VIEW, {})
    children = models.get(view.get("model_id"), {}).get("state", {}).get("children", [])
    names = [
        models.get(child.removeprefix("IPY_MODEL_"), {}).get("model_name")
        for child in children
    ]

    return "FloatProgressModel" in names


def main(arguments: Sequence[str] | None = None) -> int:
    """Execute one notebook; see the docstring of the module."""
    parser = argparse.ArgumentParser(
        prog="python -m toolkit_service.demo.notebooks",
        description="Execute a notebook.",
    )
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--folder", type=Path, required=True)
    options = parser.parse_args(arguments)
    end_with_parent()  # the handler of SIGTERM in nbclient ends the kernel
    problem = execute(options.source, options.target, options.folder)
    if problem is None:
        return 0

    print(problem, file=sys.stderr)  # noqa: T201 - the parent shows it
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
