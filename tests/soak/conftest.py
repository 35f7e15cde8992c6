"""Scripts that `make soak` runs; `tests/toolkit_service/queue/test_durability.py` runs them more briefly."""

from __future__ import annotations

collect_ignore_glob = ["*.py"]
