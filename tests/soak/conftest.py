"""These are scripts: `make soak` runs them, and `tests/local/queue/test_durability.py` does, more briefly."""

from __future__ import annotations

collect_ignore_glob = ["*.py"]
