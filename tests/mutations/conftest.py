"""These are scripts: `make soak` runs them."""

from __future__ import annotations

collect_ignore = ["check.py", "mutants.py"]
