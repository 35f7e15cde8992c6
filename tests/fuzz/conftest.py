"""The modules here without ``test_`` are a program's: `make fuzz` runs it whole, the test runs it briefly."""

from __future__ import annotations

collect_ignore = [
    "fuzz.py",
    "odd_arguments.py",
    "odd_columns.py",
    "odd_frames.py",
    "odd_json.py",
    "odd_services.py",
    "odd_snapshots.py",
    "outcome.py",
]
