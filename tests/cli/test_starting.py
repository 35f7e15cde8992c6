"""The command starts without packages that it does not need; a program that imports the toolkit has them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from toolkit.base.children import python_variables

_READS_A_DTYPE = (
    "import toolkit, pandas; "
    "print(pandas.Series([[1, 2]], dtype='vector[float32, 2]').dtype)"
)


def _imported(*words: str, module: str = "toolkit") -> set[str]:
    """Return the packages that ``python -m toolkit``, or another module, imports with these words."""
    finished = subprocess.run(
        [sys.executable, "-X", "importtime", "-P", "-m", module, *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=python_variables(),
        text=True,
        check=True,
    )
    lines = finished.stderr.splitlines()
    modules = [line.rpartition("|")[2].strip() for line in lines if "|" in line]
    return {module.partition(".")[0] for module in modules}


@pytest.mark.parametrize("words", [("--help",), ("serve", "--help")])
def test_help_needs_no_frames(words: tuple[str, ...]) -> None:
    """Help imports neither pandas nor numpy, which take most of the time of a start."""
    assert _imported(*words).isdisjoint({"pandas", "numpy", "pyarrow", "matplotlib"})


def test_a_service_needs_no_frames() -> None:
    """The embedded service imports Arrow, but no package of tables, templates or signatures."""
    imported = _imported("serve", "--temporary", "--with-parent", "--port", "0")

    assert imported.isdisjoint({"pandas", "jinja2", "jwt", "matplotlib"})
    assert imported > {"pyarrow", "starlette"}


def test_the_runner_of_notebooks_needs_no_frames() -> None:
    """The kernels of notebooks have frames, but not the process that starts them."""
    imported = _imported("--help", module="toolkit_service.demo.notebooks")

    assert imported.isdisjoint({"pandas", "numpy", "matplotlib"})
    assert imported > {"nbclient", "toolkit"}


def test_a_command_that_reads_frames_imports_pandas() -> None:
    """The other tests would find a package by this name."""
    assert "pandas" in _imported("status", "--help")


@pytest.mark.parametrize("name", ["toolkit", "another"])
def test_a_program_has_the_column_type_of_vectors(tmp_path: Path, name: str) -> None:
    """Only the command is without the type: a program of the same name is not mistaken for it."""
    program = tmp_path / name
    program.write_text(_READS_A_DTYPE, encoding="utf-8")

    read = subprocess.run(
        [sys.executable, program],
        capture_output=True,
        env=python_variables(),
        text=True,
        check=True,
    )

    assert read.stdout == "vector[float32, 2]\n"


def test_an_import_in_one_line_of_python_has_the_column_type() -> None:
    """The words of ``python -c`` are no command either."""
    read = subprocess.run(
        [sys.executable, "-c", _READS_A_DTYPE, "toolkit"],
        capture_output=True,
        env=python_variables(),
        text=True,
        check=True,
    )

    assert read.stdout == "vector[float32, 2]\n"


def test_the_installed_script_is_the_command() -> None:
    """The script next to Python starts like ``python -m toolkit``."""
    script = Path(sys.executable).with_name("toolkit")

    finished = subprocess.run(
        [sys.executable, "-X", "importtime", script, "--version"],
        capture_output=True,
        env=python_variables(),
        text=True,
        check=True,
    )

    assert " pandas\n" not in finished.stderr
