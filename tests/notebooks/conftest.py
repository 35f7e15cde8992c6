"""One embedded service with sample data for all notebooks, and a way to execute them as the demo does."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
import pytest

from toolkit.base.children import running
from toolkit.service.connecting import start_local
from toolkit.service.settings import Service
from toolkit_service.demo.run import environment_for

FAMILIES = ("TOOLKIT_", "QSTASH_", "UPSTASH_")


@dataclass(frozen=True)
class Executed:
    """A notebook with its outputs, and its messages."""

    notebook: Any
    log: str

    @property
    def streams(self) -> dict[str, str]:
        """Everything the cells wrote, by stream."""
        found = {"stdout": "", "stderr": ""}
        for cell in self.notebook.cells:
            for output in cell.get("outputs", ()):
                if output.output_type == "stream":
                    found[output.name] += output.text
        return found


def plots_and_images(notebook: Any) -> dict[str, tuple[int, int]]:
    """How many plots each cell that plots makes, and how many images it shows, by the cell's id."""
    found = {}
    for cell in notebook.cells:
        plots = len(re.findall(r"\bplot_\w+\(|\bplt\.subplots\(|\.plot\(", cell.source))
        if cell.cell_type == "code" and plots:
            images = sum(
                "image/png" in output.get("data", {}) for output in cell.outputs
            )
            found[cell.id] = (plots, images)
    return found


@dataclass(frozen=True)
class Kitchen:
    """Executes notebooks with the project's own kernel and folders of their own."""

    folder: Path
    plain: Mapping[str, str]

    def execute(
        self, source: Path, service: Service | None = None, **variables: str
    ) -> Executed:
        """Execute a notebook in a process of its own, connected to a service; every cell must run."""
        if service is not None:
            named = environment_for(service).items()
            variables |= {
                name: value for name, value in named if name.startswith(FAMILIES)
            }
        work = self.folder / "work"
        work.mkdir(exist_ok=True)
        target, log = self.folder / f"executed-{source.name}", self.folder / "log"
        arguments = (str(source), str(target), "--folder", str(work))
        environment = {**self.plain, **variables}
        with running(
            "toolkit_service.demo.notebooks", *arguments, variables=environment, log=log
        ) as process:
            steps = [json.loads(line) for line in process.stdout]
            status = process.wait()
        assert status == 0, log.read_text()
        assert steps[-1]["cells"] == steps[-1]["of"]
        assert list(work.iterdir()) == []  # nothing is written beside the notebook
        return Executed(nbformat.read(target, as_version=4), log.read_text())


@pytest.fixture
def kitchen(tmp_path: Path) -> Kitchen:
    """Without any variable of a service."""
    plain = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(FAMILIES)
    }
    scratch = {
        name: str(tmp_path / name.lower())
        for name in (
            "JUPYTER_CONFIG_DIR",
            "JUPYTER_DATA_DIR",
            "JUPYTER_RUNTIME_DIR",
            "IPYTHONDIR",
            "TMPDIR",
        )
    }
    for path in scratch.values():
        Path(path).mkdir()
    return Kitchen(tmp_path, plain | scratch | {"JUPYTER_PREFER_ENV_PATH": "1"})


@pytest.fixture(scope="session")
def sample() -> Iterator[Service]:
    """An embedded service with sample data."""
    with start_local() as service:
        yield service
