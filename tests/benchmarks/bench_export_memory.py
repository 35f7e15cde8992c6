"""The peak of memory of `export_vectors`, for an index and for one four times as large.

    .venv/bin/python tests/benchmarks/bench_export_memory.py [--entries 100000] [--quick]

Each export in a process of its own, 768 dimensions, metadata and text; the rows come from another process.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measuring import against, options
from replay import Range, replaying

TOKEN = "token-of-the-benchmark"
MOST = 500


def main() -> None:
    """Measure and print."""
    if sys.argv[1:2] == ["--export"]:
        export(*sys.argv[2:])
        return
    chosen = options(__doc__, entries=100_000, quick=25_000)
    peaks = [peak(rows) for rows in (chosen.entries, 4 * chosen.entries)]
    against("larger peak, MB", max(peaks), at_most=MOST)
    against("larger peak / smaller peak", max(peaks) / min(peaks), at_most=1.1)


def peak(rows: int) -> float:
    """Megabytes that exporting so many rows takes at most, in a process that does nothing else."""
    site = Range(rows)
    with replaying(site) as server, tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        command = [
            sys.executable,
            __file__,
            "--export",
            server.url,
            str(rows),
            f"{folder}/snapshot",
        ]
        said = subprocess.run(
            command, check=True, capture_output=True, text=True
        ).stdout
        took, size = (
            time.perf_counter() - begun,
            sum(file.stat().st_size for file in Path(folder).rglob("*")),
        )
    print(
        f"  {rows:>9,} x {site.dimension}: peak {said.strip()} MB, {size / 1e6:,.0f} MB kept, {took:.1f} s",
        flush=True,
    )
    return float(said)


def export(address: str, rows: str, folder: str) -> None:
    """Export, and print the peak of this process."""
    import toolkit as tk  # noqa: PLC0415 - the measuring process does without

    service = tk.connect(vector_url=address, vector_token=TOKEN)
    receipt = tk.export_vectors(service, folder, progress=False)
    if not receipt.complete or receipt.rows != int(rows):
        raise SystemExit(f"not complete: {receipt}")
    # not getrusage, whose peak begins with the parent's
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    if found is None:
        raise SystemExit("the system does not tell the peak")
    print(int(found[1]) / 1000)


if __name__ == "__main__":
    main()
