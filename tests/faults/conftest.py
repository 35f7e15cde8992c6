"""The modules here without ``test_`` are a program's: `make soak` runs it whole, the tests run it briefly."""

from __future__ import annotations

collect_ignore = [
    "clock.py",
    "collection.py",
    "crash_points.py",
    "dlq.py",
    "fault_runs.py",
    "faults.py",
    "hostile_loads.py",
    "index.py",
    "model_service.py",
    "verdict.py",
    "wire.py",
]
