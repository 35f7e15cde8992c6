"""Rewritten folders stay plain: their English and the density of their code are within limits."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.plain.english import measure_english
from tests.plain.shape import measure_shape

ROOT = Path(__file__).parents[2]

PACKAGES = sorted(
    str(init.parent.relative_to(ROOT))
    for init in (ROOT / "toolkit").glob("*/__init__.py")
)
ENGLISH = (
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "README.md",
    "docs/accuracy.md",
    "docs/api.md",
    "docs/benchmarks.md",
    "docs/callbacks.md",
    "docs/columns.md",
    "docs/command-line.md",
    "docs/decisions",
    "docs/dependencies.md",
    "docs/errors.md",
    "docs/filters.md",
    "docs/groups-and-explanations.md",
    "docs/how-far.md",
    "docs/index.md",
    "docs/installing.md",
    "docs/keep.md",
    "docs/load.md",
    "docs/local-service.md",
    "docs/on-call.md",
    "docs/panels.md",
    "docs/plots.md",
    "docs/redrive.md",
    "docs/reliability.md",
    "docs/report.md",
    "docs/security.md",
    "docs/snapshots.md",
    "docs/tutorial.md",
    "docs/unattended.md",
    "docs/vector-audits.md",
    *PACKAGES,
    "toolkit_service",
)
"""Pages, and every package of the toolkit. Add your page; none leaves the list."""

DENSITY = {
    "toolkit/vectors": 0.197,
    "toolkit/base": 0.208,
    "toolkit/cli": 0.17,
    "toolkit/service": 0.186,
    "toolkit/drawing": 0.184,
    "toolkit/filters": 0.22,
    "toolkit/fixes": 0.191,
    "toolkit/loading": 0.202,
    "toolkit_service": 0.182,
    "toolkit/redrive": 0.186,
    "toolkit/failures": 0.182,
    "toolkit/reports": 0.184,
    "toolkit/signatures": 0.305,
    "toolkit/secrets": 0.188,
    "toolkit/widgets": 0.218,
    "toolkit/base/serving.py": 0.17,
    "toolkit/snapshots": 0.203,
    "toolkit/tables": 0.244,
}
"""Branches per line of rewritten folders. Limits are lowered, never raised."""


@pytest.mark.parametrize("place", ENGLISH)
def test_english_of_rewritten_folders_is_plain(place: str) -> None:
    """No phrase of the dialect occurs more often than in other projects, and docstrings begin with a verb."""
    assert measure_english([ROOT / place]).broken_limits() == {}


@pytest.mark.parametrize("place", DENSITY)
def test_code_of_rewritten_folders_is_not_dense(place: str) -> None:
    """Rewritten code does not become denser again."""
    assert measure_shape([ROOT / place]).density <= DENSITY[place]


def test_the_whole_code_is_as_plain_as_well_known_projects() -> None:
    """The toolkit and the embedded service together keep every limit of density."""
    folders = [ROOT / "toolkit", ROOT / "toolkit_service"]
    assert measure_shape(folders).broken_limits() == {}


def test_rewritten_folders_explain_conditions_and_give_examples() -> None:
    """All rewritten folders together use "if" and "for example"."""
    floors = measure_english([ROOT / place for place in ENGLISH]).broken_floors()
    # docs address the reader as "you"; docstrings of private functions have no reason to
    floors.pop("you", None)
    assert floors == {}


def test_dialect_is_found(tmp_path: Path) -> None:
    """A module in the dialect breaks the limits of its phrases."""
    module = tmp_path / "dialect.py"
    dialect = (
        "What is held where there is none, one row a group, beside those that mend. "
    )
    module.write_text(f'"""{dialect * 2}"""\n')
    broken = measure_english([module]).broken_limits()
    assert {
        "holds",
        "there is none",
        "a, for per",
        "those that",
        "mend",
        "bare what",
    } <= broken.keys()


def test_density_is_found(tmp_path: Path) -> None:
    """Crowded lines break the limits of branches, conditional expressions and comprehensions."""
    module = tmp_path / "dense.py"
    module.write_text(
        "def f(a, b):\n    return 'x' * a if a else [y for x in b for y in x] if b else 'y'\n"
    )
    broken = measure_shape([module]).broken_limits()
    assert broken.keys() == {
        "branches per line",
        "conditional expressions",
        "nested conditional expressions",
        "text times a condition",
        "comprehensions with two for",
    }
