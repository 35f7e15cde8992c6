"""Ask the package registry, through pip, which core dependencies have a wheel for the newest Pythons.

    .venv/bin/python tests/packaging/wheels.py [3.13 3.14 ...]

Where there is none, pip compiles the dependency during the install, or fails on machines without a compiler.
Nothing is downloaded or installed. Exits with status 1 where a Python lacks a wheel that it needs.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

_ROOT = Path(__file__).parents[2]
_PYTHONS = ("3.11", "3.12", "3.13", "3.14", "3.15")


def core() -> dict[Requirement, str]:
    """The core dependencies, and the version of each that the project is tested with."""
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
        "project"
    ]
    pinned = dict(
        re.findall(
            r"(?m)^([^#\s=]+)==(\S+)$", (_ROOT / "constraints.txt").read_text("utf-8")
        )
    )
    versions = {
        name.lower().replace("_", "-"): version for name, version in pinned.items()
    }
    return {
        found: versions[found.name]
        for found in map(Requirement, project["dependencies"])
    }


def has_wheel(requirement: str, python: str, target: str) -> bool:
    """Whether pip finds a wheel of such a version for that CPython, on this system."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--dry-run",
        "--ignore-installed",
        "--no-deps",
        "--quiet",
    ]
    command += [
        "--disable-pip-version-check",
        "--only-binary=:all:",
        "--ignore-requires-python",
    ]
    command += [
        "--target",
        target,
        "--python-version",
        python,
        "--implementation",
        "cp",
        "--abi",
        f"cp{python.replace('.', '')}",
    ]
    done = subprocess.run(
        [*command, requirement], capture_output=True, text=True, check=False
    )
    if done.returncode and "No matching distribution" not in done.stderr:
        sys.exit(f"pip could not say whether {requirement} has a wheel:\n{done.stderr}")
    return not done.returncode


def verdict(wanted: Requirement, version: str, python: str, target: str) -> str:
    """What a dependency comes as on a Python: one of the words that `main` explains."""
    if has_wheel(f"{wanted.name}=={version}", python, target):
        return "yes"
    if has_wheel(f"{wanted.name}{wanted.specifier}", python, target):
        return "other"
    environment = {
        "python_version": python,
        "platform_python_implementation": "CPython",
    }
    return (
        "MISSING"
        if wanted.marker is None or wanted.marker.evaluate(environment)
        else "without"
    )


def main(pythons: list[str]) -> int:
    """Print the table; 1 where a wheel is missing that an install needs."""
    found = set()
    sys.stdout.write(
        f"{'wheels for CPython':<26}{''.join(f'{python:>9}' for python in pythons)}\n"
    )
    with tempfile.TemporaryDirectory() as target:
        for wanted, version in core().items():
            words = [verdict(wanted, version, python, target) for python in pythons]
            found.update(words)
            sys.stdout.write(
                f"{wanted.name + ' ' + version:<26}{''.join(f'{word:>9}' for word in words)}\n"
            )
            sys.stdout.flush()
    sys.stdout.write(
        "yes: the tested version has one; other: another allowed version has one;\n"
        "without: none has one, and that Python installs without it (see the marker in pyproject.toml)\n"
    )
    return int("MISSING" in found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or list(_PYTHONS)))
