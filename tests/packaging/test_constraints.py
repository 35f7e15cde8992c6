"""The pinned versions install on every Python that the project supports, from the first patch release on."""

from __future__ import annotations

import importlib.metadata
import tomllib
from pathlib import Path

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
# Debian 12 has 3.11.2; a requirement of "3.11.5 or newer" shows only if the first patch releases are asked.
PYTHONS = ("3.11.0", "3.11.2", "3.12.0", "3.13.0", "3.14.0", "3.15.0")


def pins() -> dict[str, str]:
    """Return the pinned version of each package, by canonical name."""
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    pairs = (line.split("==") for line in lines if line and not line.startswith("#"))
    return {canonicalize_name(name): version for name, version in pairs}


def applies(marker: Marker | None, python: str, extra: str = "") -> bool:
    """Return whether a requirement with this marker is installed on that Python."""
    environment = {
        "extra": extra,
        "python_full_version": python,
        "python_version": python.rpartition(".")[0],
    }
    return marker is None or marker.evaluate(environment)


@pytest.mark.parametrize("python", PYTHONS)
def test_each_pinned_version_admits_the_python(python):
    """Pip ends with ResolutionImpossible if a single pin needs a newer Python."""
    refused = {}
    for name, version in pins().items():
        distribution = importlib.metadata.distribution(name)
        if distribution.version != version:
            refused[name] = f"{distribution.version} is installed, {version} is pinned"
        # the package importlib_metadata, once imported, raises a KeyError for a field that is missing
        needed = distribution.metadata.get("Requires-Python")
        if needed and python not in SpecifierSet(needed):
            refused[name] = f"{version} needs Python {needed}"
    assert refused == {}


@pytest.mark.parametrize("python", PYTHONS)
def test_pinned_versions_agree_with_each_other(python):
    """Whatever a pinned package requires on that Python is pinned, at a version that it accepts."""
    pinned = pins()
    disagreements = []
    for name in pinned:
        for text in importlib.metadata.requires(name) or ():
            requirement = Requirement(text)
            if not applies(requirement.marker, python):
                continue
            version = pinned.get(canonicalize_name(requirement.name))
            if version is not None and version not in requirement.specifier:
                disagreements.append(f"{name} needs {requirement}, pinned is {version}")
    assert disagreements == []


def test_every_installed_package_is_pinned():
    """A package without a pin changes from one day to the next."""
    unpinned = {
        canonicalize_name(found.metadata["Name"])
        for found in importlib.metadata.distributions()
    }
    assert (
        unpinned - pins().keys() - {"pip", "setuptools", "workflow-vector-toolkit"}
        == set()
    )


def test_the_lowest_python_is_checked():
    """The list above begins with the first patch release of what pyproject.toml requires."""
    lowest = PYTHONS[0]
    assert lowest in SpecifierSet(PROJECT["requires-python"])
    assert PROJECT["requires-python"] == f">={lowest.rpartition('.')[0]}"
    tested = {
        classifier.rpartition(" ")[2]
        for classifier in PROJECT["classifiers"]
        if ":: 3" in classifier
    }
    assert tested == {python.rpartition(".")[0] for python in PYTHONS}
