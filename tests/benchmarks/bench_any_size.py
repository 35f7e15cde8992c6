"""A report on a snapshot of 1, 3 and 10 million failures: time and memory.

.venv/bin/python tests/benchmarks/bench_any_size.py [--entries 10000000] [--seed 7] [--quick]

Snapshots are generated with a seed, in a temporary folder, and removed. The bodies of four kinds are either
short texts with a number (*numbered*), or JSON of 300 characters with a message, ids and a trace (*varied*),
half of which are different and the others repeated. The ids in the index are random. Each report is made in a
process of its own.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from measuring import against, options

MOST_SECONDS = 60
MOST_MEGABYTES = 3_000
MOST_OF_A_TENTH = (6, 1_000)
"""Seconds and megabytes for a tenth of the entries, with varied bodies."""
BATCH = 100_000
END = datetime(2026, 3, 31, tzinfo=UTC)
DAYS = 30
BODIES = (
    ('{"error": "PaymentError", "message": "no charge for order ', '"}'),
    ("TimeoutError: no response from https://stock.example/items/", " within 30 s"),
    ("quota of tenant ", " is used up"),
    ('{"error": "RateLimited", "message": "too many requests by ', '"}'),
)
TRACE = r"\n    at charge (/srv/app/payments.js:41:9)\n    at async run (/srv/app/steps.js:118:13)"
REPEATED = 1_000
"""Different varied bodies among the half of the rows whose bodies are repeated."""


def main() -> None:
    """Measure and print."""
    if sys.argv[1:2] == ["report"]:
        report(*sys.argv[2:])
        return
    chosen = options(__doc__, entries=10_000_000, quick=1_000_000, rounds=1)
    sizes = [chosen.entries // 10, chosen.entries * 3 // 10, chosen.entries]
    reports = [run(rows, snapshot) for rows in sizes for snapshot in generated(rows)]
    limits = {sizes[0]: MOST_OF_A_TENTH, sizes[-1]: (MOST_SECONDS, MOST_MEGABYTES)}
    for rows, (most_seconds, most_megabytes) in limits.items():
        for path in generated(rows, varied=True):
            seconds, megabytes = run(rows, path)
            name = f"report of {rows:,} with varied bodies"
            against(f"{name}, seconds", seconds, at_most=most_seconds)
            against(f"{name}, MB", megabytes, at_most=most_megabytes)
    against("report of the largest, seconds", reports[-1][0], at_most=MOST_SECONDS)
    against("report of the largest, MB", reports[-1][1], at_most=MOST_MEGABYTES)
    growth = (reports[-1][0] / reports[0][0]) / (sizes[-1] / sizes[0])
    against("seconds a row, largest / smallest", growth, at_most=1.2)


def generated(
    rows: int, seed: int = 7, *, varied: bool = False, distinct: float = 0.5
) -> Iterator[str]:
    """The path of a snapshot with so many failures. `distinct` is the share of varied bodies that differ."""
    import toolkit.snapshots.data_files as files  # noqa: PLC0415 - the measuring process does without
    from toolkit.analysis import error_signatures  # noqa: PLC0415
    from toolkit.signatures.signing import Learned, sign  # noqa: PLC0415
    from toolkit.snapshots.row_index import ENTRY  # noqa: PLC0415
    from toolkit.snapshots.store import SnapshotStore  # noqa: PLC0415
    from toolkit.snapshots.transaction import (  # noqa: PLC0415
        IndexPart,
        WriteOptions,
        begin,
    )

    random = np.random.default_rng(seed)
    texts = [
        f"{before}{number}{after}"
        for before, after in BODIES
        for number in (1, 22, 333)
    ]
    ids = error_signatures(texts)[::3]
    learned = Learned().extended(sign(texts).values())
    with tempfile.TemporaryDirectory() as folder:
        store = SnapshotStore(folder)
        with begin(store, "failures", WriteOptions()) as transaction:
            parts, entries = [], []
            for start in range(0, rows, BATCH):
                table = failures(
                    random,
                    start,
                    min(BATCH, rows - start),
                    rows,
                    ids,
                    files.STORED_FAILURES,
                    varied=varied,
                    distinct=distinct,
                )
                if not parts or parts[-1].bytes >= files.PART_BYTES:
                    parts.append(
                        transaction.new_part(
                            files.STORED_FAILURES, day=f"{END:%Y-%m-%d}"
                        )
                    )
                    entries.append([])
                parts[-1].write(table)
                entries[-1].append(
                    np.frombuffer(
                        random.bytes(table.num_rows * ENTRY.itemsize), dtype=ENTRY
                    )
                )
            source = "https://queue.example"
            parts = [part.finish() for part in parts]
            transaction.commit(
                source=source,
                scope={},
                receipt=None,
                parts=parts,
                index=[IndexPart(np.concatenate(part)) for part in entries],
                learned=learned,
            )
        size = sum(file.stat().st_size for file in Path(folder).rglob("*.parquet"))
        print(f"  {rows:>10,} failures: {size / 1e6:,.0f} MB of Parquet", flush=True)
        yield folder


def failures(
    random: np.random.Generator,
    start: int,
    count: int,
    rows: int,
    ids: list[str],
    schema: pa.Schema,
    *,
    varied: bool = False,
    distinct: float = 0.5,
) -> pa.Table:
    numbers = np.arange(start, start + count)
    kinds = random.choice(len(BODIES), count, p=[0.4, 0.3, 0.2, 0.1])
    failed = int((END - timedelta(days=DAYS)).timestamp() * 1000) + numbers * (
        DAYS * 86_400_000 // rows
    )
    failed += random.integers(0, 3_600_000, count)
    workflow = random.geometric(0.2, count) % 20
    bodies = pc.choose(
        kinds, *(_texts(before, numbers, after) for before, after in BODIES)
    )
    if varied:
        bodies = varied_bodies(random, numbers, kinds, distinct)
    values = {
        "dlq_id": _texts("", numbers * 2654435761 % (1 << 32), "-", numbers),
        "workflow_url": _texts("https://shop.example/flows/", workflow),
        "workflow_run_id": _texts("wfr_", random.integers(0, 1 << 40, count)),
        "failed_at": pa.array(failed),
        "created_at": pa.array(failed - 60_000),
        "response_status": pa.array(random.choice([500, 503, 429], count)),
        "response_body": bodies,
        "labels": pa.array(['["eu"]', '["us","beta"]']).take(pa.array(numbers % 2)),
        "max_retries": pa.array(np.full(count, 3)),
        "first_seen_at": pa.array(np.full(count, int(END.timestamp() * 1000))),
        "signature": pa.array(ids).take(pa.array(kinds)),
    }
    nothing = pa.nulls(count)
    return pa.table(
        {
            field.name: values.get(field.name, nothing).cast(field.type)
            for field in schema
        },
        schema,
    )


def varied_bodies(
    random: np.random.Generator, numbers: np.ndarray, kinds: np.ndarray, distinct: float
) -> pa.Array:
    """JSON with a message, ids and a trace; a share of the bodies is distinct, others are of a thousand."""
    is_repeated = random.random(len(numbers)) >= distinct
    ids = np.where(
        is_repeated, random.integers(0, REPEATED, len(numbers)), numbers + REPEATED
    )
    kinds = np.where(is_repeated, ids % len(BODIES), kinds)
    names = pa.array(["PaymentError", "TimeoutError", "QuotaError", "RateLimited"])
    hashes = ids * 2654435761 % (1 << 40)
    return _texts(
        '{"error": "', names.take(pa.array(kinds)), '", "message": "order ', ids,
        " failed: no response from https://pay.example/v1/charges/", hashes,
        ' within 30 s", "requestId": "req-', hashes * 31, '", "tenant": "t-', ids % 977,
        '", "stack": "', TRACE, '"}',
    )  # fmt: skip


def _texts(*parts: Any) -> pa.Array:
    """Texts and numbers, joined row by row."""
    found = [
        part if isinstance(part, str) else pa.array(part).cast(pa.string())
        for part in parts
    ]
    return pc.binary_join_element_wise(*found, "")


def run(rows: int, path: str) -> tuple[float, float]:
    """Seconds and peak megabytes of a process that makes a report and does nothing else."""
    begun = time.perf_counter()
    command = [sys.executable, __file__, "report", str(rows), path]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    seconds, peak = time.perf_counter() - begun, float(printed.split()[-1])
    cpu = printed.split()[-2]
    print(
        f"  report  {rows:>12,}: {seconds:8.1f} s (CPU {cpu} s), peak {peak:,.0f} MB",
        flush=True,
    )
    return seconds, peak


def report(rows: str, path: str) -> None:
    """Make and render a report, and print the seconds of work and the peak of this process."""
    import toolkit as tk  # noqa: PLC0415

    found = tk.report_failures(path, now=END)
    if found.to_dict()["overview"]["count"] != int(rows) or not found.to_html():
        raise SystemExit("not all were counted")
    print(time.process_time(), peak())


def peak() -> float:
    """Peak megabytes of this process; not those of getrusage, which begin with the parent's."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    if found is None:
        raise SystemExit("the system does not tell the peak")
    return int(found[1]) / 1000


if __name__ == "__main__":
    main()
