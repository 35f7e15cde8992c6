"""Print constraints that hold each core dependency at the lowest version that pyproject.toml allows.

    python tests/packaging/lowest.py > constraints-lowest.txt

All other packages are those of constraints.txt. `make test-lowest` installs by them, and runs the tests of
what reads.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_REQUIREMENT = re.compile(r"([A-Za-z0-9_.-]+)>=([0-9.]+)(?:;.*)?")


def lowest() -> dict[str, str]:
    """The name of each core dependency, in lower case, and the lowest version allowed."""
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
        "project"
    ]
    found = [
        _REQUIREMENT.fullmatch(line.replace(" ", ""))
        for line in project["dependencies"]
    ]
    return {match[1].lower(): match[2] for match in found if match}


def constraints() -> list[str]:
    """The lines of a constraints file."""
    low = lowest()
    pinned = (_ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    others = [line for line in pinned if line.partition("==")[0].lower() not in low]
    return [*others, *(f"{name}=={version}" for name, version in low.items())]


if __name__ == "__main__":
    print("\n".join(constraints()))  # noqa: T201 - what was requested
