"""Growth of time and memory with the number of vectors: `audit_vectors`, and `compare_vectors`.

    .venv/bin/python tests/benchmarks/bench_vector_growth.py [--entries 4000000] [--quick]
    .venv/bin/python tests/benchmarks/bench_vector_growth.py --entries 16000000 --dimension 16 --audit-only

Both states are written in ranges of rows as Parquet, to a temporary folder that is removed afterwards. In
the second state, 1 % of the vectors are others. Each call runs in a process of its own, whose CPU seconds
and peak of memory are printed.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

RANGE = 100_000
TOPICS = 1_000
CHANGED = 100
"""One of so many vectors is another one in the second state."""


def main() -> None:
    """Measure and print."""
    if sys.argv[1:2] == ["--child"]:
        child(*sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=4_000_000)
    parser.add_argument("--dimension", type=int, default=64)
    parser.add_argument("--audit-only", action="store_true")
    parser.add_argument("--quick", action="store_true", help="200,000 vectors")
    chosen = parser.parse_args()
    if chosen.quick:
        chosen.entries = 200_000
    calls = ["audit"] if chosen.audit_only else ["audit", "compare"]
    with tempfile.TemporaryDirectory() as folder:
        states = [Path(folder) / name for name in ("before", "after")]
        for state in states[: len(calls)]:
            write(state, chosen.entries, chosen.dimension)
        for call in calls:
            run(call, folder, chosen.entries, chosen.dimension)


def run(call: str, folder: str, rows: int, dimension: int) -> None:
    """Run one call in a process of its own, and print what it took."""
    command = [sys.executable, __file__, "--child", call, folder]
    found = subprocess.run(command, check=True, capture_output=True, text=True)
    taken = json.loads(found.stdout)
    print(
        f"  {call}, {rows:,} x {dimension}: {taken['cpu']:.0f} CPU seconds, peak {taken['peak']:,.0f} MB,"
        f" {taken['bytes'] / 1e6:,.0f} MB of Parquet; {taken['verdict']}",
        flush=True,
    )


def child(call: str, folder: str) -> None:
    """Run one call, and print what it took."""
    import toolkit as tk  # noqa: PLC0415 - the measuring process does without

    before, after = (Path(folder) / name for name in ("before", "after"))
    if call == "audit":
        verdict = tk.audit_vectors(ds.dataset(before)).verdict
    else:
        verdict = tk.compare_vectors(ds.dataset(before), ds.dataset(after)).verdict
    peak = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    taken = {
        "cpu": time.process_time(),
        "peak": int(peak[1]) / 1024 if peak else 0,
        "bytes": sum(path.stat().st_size for path in before.iterdir()),
        "verdict": verdict[:150],
    }
    print(json.dumps(taken))


def write(folder: Path, rows: int, dimension: int) -> None:
    """Write a state of the index, a file per range of rows."""
    folder.mkdir()
    topics = np.random.default_rng(384).standard_normal(
        (TOPICS, dimension), dtype=np.float32
    )
    for start in range(0, rows, RANGE):
        numbers = np.arange(start, min(start + RANGE, rows))
        matrix = vectors(topics, numbers, seed=start)
        if folder.name == "after":
            is_changed = numbers % CHANGED == 0
            matrix[is_changed] = vectors(topics, numbers, seed=start + 1)[is_changed]
        table = pa.table({
            "namespace": pa.array([""] * len(numbers)),
            "id": pa.array([f"doc-{number:09}" for number in numbers.tolist()]),
            "vector": pa.FixedSizeListArray.from_arrays(
                pa.array(matrix.reshape(-1)), dimension
            ),
            "metadata": pa.array(
                [f'{{"topic": {number % TOPICS}, "lang": "en"}}' for number in numbers.tolist()]
            ),
            "data": pa.array([f"text {number}" for number in numbers.tolist()]),
        })  # fmt: skip
        pq.write_table(table, folder / f"{start:09}.parquet", row_group_size=50_000)


def vectors(topics: np.ndarray, numbers: np.ndarray, *, seed: int) -> np.ndarray:
    """Return vectors of length 1 around the topic of each row."""
    noise = np.random.default_rng(seed).standard_normal(
        (len(numbers), topics.shape[1]), dtype=np.float32
    )
    matrix = topics[numbers % TOPICS] + np.float32(0.7) * noise
    return matrix / np.linalg.norm(matrix, axis=1, keepdims=True)


if __name__ == "__main__":
    main()
