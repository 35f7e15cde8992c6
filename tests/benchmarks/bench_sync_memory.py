"""The peak of memory of `sync_failures`, for a DLQ of a million entries and for one three times as large.

    .venv/bin/python tests/benchmarks/bench_sync_memory.py [--entries 1000000] [--quick]
    .venv/bin/python tests/benchmarks/bench_sync_memory.py --generated 10000000 FOLDER

Each sync in a process of its own, into a new folder; another process renders the entries when they are
requested. From the bytes that a row takes follows what ten million need. The second command makes rows in its
own process, without requests, and so reaches ten million in minutes.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from pathlib import Path

from listings import DAY, END, TOKEN
from measuring import against, options
from replay import Endless, replaying

from toolkit_service.demo.history import wire_entries

DAYS = 7
MOST = 3_000
TEN_MILLION = 10_000_000


def main() -> None:
    """Measure and print."""
    if sys.argv[1:2] == ["--sync"]:
        sync(*sys.argv[2:])
        return
    if sys.argv[1:2] == ["--generated"]:
        generated(int(sys.argv[2]), sys.argv[3])
        return
    chosen = options(__doc__, entries=1_000_000, quick=100_000)
    few, many = chosen.entries, 3 * chosen.entries
    peaks = [peak(rows) for rows in (few, many)]
    row = (peaks[1] - peaks[0]) * 1e6 / (many - few)
    print(f"  a row takes {row:,.0f} bytes")
    against(
        "ten million, MB, as it grows",
        peaks[1] + row * (TEN_MILLION - many) / 1e6,
        at_most=MOST,
    )


def peak(rows: int) -> float:
    """Megabytes that a sync of so many rows takes at most."""
    site = Endless(rows, END, max(1, DAYS * DAY // rows), wire_entries(END))
    with replaying(site) as server, tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        command = [
            sys.executable,
            __file__,
            "--sync",
            server.url,
            str(rows),
            f"{folder}/snapshot",
        ]
        printed = subprocess.run(
            command, check=True, capture_output=True, text=True
        ).stdout
        took, size = (
            time.perf_counter() - begun,
            sum(file.stat().st_size for file in Path(folder).rglob("*")),
        )
    print(
        f"  {rows:>10,}: peak {printed.strip()} MB, {size / 1e6:,.0f} MB kept, {took:.1f} s",
        flush=True,
    )
    return float(printed)


def sync(address: str, rows: str, folder: str) -> None:
    """Sync, and print the peak of this process."""
    import toolkit as tk  # noqa: PLC0415 - the measuring process does without

    changes = tk.sync_failures(
        tk.connect(queue_url=address, queue_token=TOKEN), folder, progress=False
    )
    if not changes.receipt.complete or changes.counts["added"] != int(rows):
        raise SystemExit(f"not all were added: {changes}")
    print(peak_here())


def generated(rows: int, folder: str) -> None:
    """Sync rows that are made here, with 400 different bodies, and print the peak of this process."""
    import numpy as np  # noqa: PLC0415 - the measuring process does without
    import pyarrow as pa  # noqa: PLC0415
    from bench_any_size import failures  # noqa: PLC0415

    from toolkit.base.progress import ProgressBar  # noqa: PLC0415
    from toolkit.loading.identities import identities  # noqa: PLC0415
    from toolkit.loading.load import Batch, Load, LoadPlan, LoadState  # noqa: PLC0415
    from toolkit.snapshots.store import SnapshotStore  # noqa: PLC0415
    from toolkit.snapshots.syncing import sync_load  # noqa: PLC0415
    from toolkit.tables.schemas import FAILURES  # noqa: PLC0415

    random, signatures = np.random.default_rng(7), [""] * 4
    body = FAILURES.get_field_index("response_body")
    bodies = (
        failures(random, 0, 400, 400, signatures, FAILURES)
        .column(body)
        .combine_chunks()
    )

    def read(state: LoadState) -> Generator[pa.Table | Batch]:
        for start in range(0, rows, 20_000):
            count = min(20_000, rows - start)
            table = failures(random, start, count, rows, signatures, FAILURES)
            table = table.set_column(
                body,
                FAILURES.field(body),
                bodies.take(pa.array(np.arange(count) % 400)),
            )
            row_ids = identities(table, ("dlq_id",))
            yield state.batch(
                table,
                row_ids,
                state.rows.add(row_ids),
                digests=[one[::-1] for one in row_ids],
            )

    plan = LoadPlan(
        what="failures",
        source="https://queue.example",
        scope={},
        schema=FAILURES,
        key=("dlq_id",),
    )
    load = Load(
        plan, read, lambda: ProgressBar(option=False, title="failures", unit="entries")
    )
    changes = sync_load(load, SnapshotStore(folder))
    print(f"  {changes.counts['added']:,} added, peak {peak_here():,.0f} MB")


def peak_here() -> float:
    """Peak megabytes of this process; not those of getrusage, which begin with the parent's."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    if found is None:
        raise SystemExit("the system does not tell the peak")
    return int(found[1]) / 1000


if __name__ == "__main__":
    main()
