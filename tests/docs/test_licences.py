"""The page of dependencies names the licence of each package that is installed with the core or an extra."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

PAGE = Path(__file__).parents[2] / "docs" / "dependencies.md"
NAME = "workflow-vector-toolkit"
EXTRAS = ("local", "analysis", "ann", "excel", "scale")
WORDS = {
    "BSD": r"BSD",
    "MIT": r"\bMIT\b",
    "Apache-2.0": r"Apache",
    "PSF": r"PSF|Python Software Foundation",
    "ISC": r"ISC|UNKNOWN",
    "MPL-2.0": r"MPL",
}
"""The words of a licence in the metadata of a package, by the name of the licence in the page."""
WITHOUT_LICENCE = {"pysimdjson", "ptyprocess"}
"""Packages whose metadata name no licence. The licence is from a file of the package."""
WITH_A_CHOICE = {"python-dateutil"}
"""Packages whose metadata have no name of a licence: "Dual License" is Apache-2.0 or BSD."""


def folded(name: str) -> str:
    """Return the name of a package as registries compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def installed_with(name: str, extras: set[str]) -> dict[str, Distribution]:
    """Return the packages that an installation needs, also transitive ones, without the package itself."""
    found: dict[str, Distribution] = {}
    waiting = list(_needed(name, extras))
    while waiting:
        requirement = waiting.pop()
        key = folded(requirement.name)
        if key in found and not requirement.extras:
            continue
        found[key] = distribution(requirement.name)
        waiting += _needed(requirement.name, requirement.extras)
    return found


def _needed(name: str, extras: set[str]) -> Iterator[Requirement]:
    """Yield the requirements of a package that apply to this machine."""
    for line in distribution(name).requires or ():
        requirement = Requirement(line)
        chosen = {"", *extras}
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": one}) for one in chosen):
            yield requirement


def stated(package: Distribution) -> str:
    """Return the licences that the metadata of a package name."""
    metadata = package.metadata
    kinds = [
        kind
        for kind in metadata.get_all("Classifier", [])
        if kind.startswith("License ::")
    ]
    licence = metadata.get("License") or ""
    # some packages have the whole text there
    first_line = licence.partition("\n")[0]
    return " ".join([metadata.get("License-Expression") or "", first_line, *kinds])


def rows(part: str) -> Iterator[tuple[str, ...]]:
    """Yield the cells of the rows of the tables in a part of the page."""
    for line in part.splitlines():
        cells = tuple(cell.strip() for cell in line.strip("| ").split(" | "))
        if line.startswith("| ") and len(cells) > 1:
            yield cells


def licences_of(cells: Iterator[tuple[str, ...]]) -> dict[str, str]:
    """Return the licence of each package of a table; the last two cells are the licence and the packages."""
    found: dict[str, str] = {}
    for *_, licence, packages in cells:
        names = re.sub(r"\([^)]*\)", "", packages).replace(" and ", ",")
        names = names.replace(";", ",")
        for name in filter(None, map(str.strip, names.split(","))):
            found[name] = licence.partition(" (")[0]
    return found


def parts() -> tuple[str, str]:
    """Return the text about the core, and the text about the extras."""
    text = PAGE.read_text("utf-8")
    _, _, licences = text.partition("## Licences of all installed packages")
    core, _, extras = licences.partition("The extras for users add")
    return core, extras


def check(named: dict[str, str], packages: dict[str, Distribution]) -> None:
    """Check that the table has each package, with the licence of the metadata."""
    assert named.keys() - {"packages"} == packages.keys()
    for name, package in packages.items():
        words = stated(package)
        assert "GPL" not in words, name
        if name not in WITHOUT_LICENCE | WITH_A_CHOICE:
            assert re.search(WORDS[named[name]], words), (name, words)


def test_the_page_has_the_licence_of_each_package_of_the_core():
    """A dependency that brings another package, or another licence, is noticed here."""
    core, _ = parts()
    packages = installed_with(NAME, set())
    check(licences_of(rows(core)), packages)
    assert f"{len(packages)} packages are installed" in core


@pytest.mark.parametrize("extra", EXTRAS)
def test_the_page_has_the_licence_of_each_package_of_an_extra(extra):
    """The packages that an extra adds to the core."""
    _, extras = parts()
    core = installed_with(NAME, set())
    added = {
        name: package
        for name, package in installed_with(NAME, {extra}).items()
        if name not in core
    }
    check(licences_of(row for row in rows(extras) if row[0] == f"`{extra}`"), added)
