"""What a step of a redrive costs in the ledger: journals of SQLite, and steps of eight threads.

    .venv/bin/python tests/benchmarks/bench_ledger.py [--entries 200] [--rounds 5] [--quick]

Each way stores the same steps, each of which is on the disk before the next begins (``synchronous=FULL``).
The write-ahead log is the reference: it costs least, and leaves the steps in another file.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd
from measuring import against, in_turns, options

import toolkit as tk
from toolkit.redrive.ledger import Ledger
from toolkit.redrive.ledger_file import STEP_BYTES

THREADS = 8  # requests that a run has open at once


def main() -> None:
    """Measure and print."""
    chosen = options(__doc__, entries=200, quick=50)
    print(f"{chosen.entries:,} steps, {chosen.rounds} rounds")
    with TemporaryDirectory() as folder:
        ways: dict[str, Callable[[], int]] = {}
        for mode in ("WAL", "DELETE", "TRUNCATE", "PERSIST"):
            ways[mode] = partial(
                store,
                database(Path(folder, mode), mode, chosen.entries),
                chosen.entries,
            )
        plan = planned(chosen.entries)
        with closing(Ledger(Path(folder, "ledger"), make=True)) as ledger:
            ledger.add(plan)
            ways["the ledger, one thread"] = partial(intend, ledger, plan, 1)
            ways[f"the ledger, {THREADS} threads"] = partial(
                intend, ledger, plan, THREADS
            )
            medians = in_turns(ways, chosen.rounds, chosen.entries)
    reference = medians["WAL"]
    for name in ("DELETE", "TRUNCATE", "PERSIST"):
        print(f"  {name} / WAL: {medians[name] / reference:.2f}")
    against(
        "the ledger, one thread / WAL",
        medians["the ledger, one thread"] / reference,
        at_most=6,
    )
    shared = medians[f"the ledger, {THREADS} threads"]
    against(f"the ledger, {THREADS} threads / WAL", shared / reference, at_most=2.5)


def database(path: Path, mode: str, entries: int) -> sqlite3.Connection:
    """Make a file with a row per entry."""
    opened = sqlite3.connect(path, isolation_level=None)
    opened.execute(f"PRAGMA journal_mode = {mode}")
    opened.execute("PRAGMA synchronous = FULL")
    opened.execute("CREATE TABLE steps (id INTEGER PRIMARY KEY, step TEXT NOT NULL)")
    opened.execute("BEGIN")
    opened.executemany(
        "INSERT INTO steps VALUES (?, ?)",
        ((number, " " * STEP_BYTES) for number in range(entries)),
    )
    opened.execute("COMMIT")
    return opened


def store(opened: sqlite3.Connection, entries: int) -> int:
    """Store a step for each entry."""
    now = time.time_ns()  # SQLite does not write what is unchanged
    for number in range(entries):
        opened.execute(
            "UPDATE steps SET step = ? WHERE id = ?",
            (str(now).ljust(STEP_BYTES), number),
        )
    return entries


def intend(ledger: Ledger, plan: tk.RedrivePlan, threads: int) -> int:
    """Store an intent for each entry."""
    entries = plan.acted.to_dict("records")
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda entry: ledger.intend(plan.hash, entry, None), entries))
    return len(entries)


def planned(entries: int) -> tk.RedrivePlan:
    """Plan to resume so many failures."""
    failures = pd.DataFrame({
        "dlq_id": [f"entry-{number}" for number in range(entries)],
        "workflow_run_id": [f"wfr_{number}" for number in range(entries)],
        "workflow_url": "https://shop.example/pay",
        "created_at": pd.Timestamp("2026-10-01T12:00", tz="UTC"),
        "failed_at": pd.Timestamp("2026-10-01T12:01", tz="UTC"),
        "response_status": pd.array([500] * entries, dtype="Int64"),
        "response_body": '{"error": "no stock"}',
        "response_body_base64": None,
        "failure_function_state": None,
    })  # fmt: skip
    return tk.plan_redrive(failures)


if __name__ == "__main__":
    main()
