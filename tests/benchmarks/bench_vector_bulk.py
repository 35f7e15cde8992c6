"""Bulk upserts into the embedded vector index, in process, and reopening it.

    .venv/bin/python tests/benchmarks/bench_vector_bulk.py [--batches 100] [--rounds 5]

Each round upserts batches of 1,000 vectors into an empty index, every batch durable when it returns, and
beside each writes the same bytes to a plain file and to the disk. The last ten batches over the first ten
tell whether it slows down. Then the index is reopened, and asked.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
from clusters import clustered

from toolkit_service.vectors.bodies import Included, IndexQuery
from toolkit_service.vectors.index_registry import IndexRegistry
from toolkit_service.vectors.specs import IndexSpec

DIMENSION = 384
BATCH = 1000
NOTHING = Included()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batches", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    vectors = clustered(options.batches * BATCH, DIMENSION, seed=1)
    figures: dict[str, list[float]] = {}
    for _ in range(options.rounds):
        with tempfile.TemporaryDirectory() as folder:
            for name, figure in one_round(Path(folder), vectors).items():
                figures.setdefault(name, []).append(figure)
    medians = {name: statistics.median(values) for name, values in figures.items()}
    print(
        f"{len(vectors):,} x {DIMENSION} in batches of {BATCH:,}, {options.rounds} rounds"
    )
    for name in ("first ten batches", "last ten batches", "bare writing of a batch"):
        print(
            f"{name:<28}{1e3 * medians[name]:8.1f} ms   {BATCH / medians[name]:10,.0f} vectors/s"
        )
    print(
        f"last ten / first ten        {medians['last ten batches'] / medians['first ten batches']:8.2f}"
    )
    print(f"upsert / bare writing       {medians['upsert / bare writing']:8.1f}")
    for name in ("reopening", "first query", "second query"):
        print(f"{name:<28}{1e3 * medians[name]:8.1f} ms")


def one_round(folder: Path, vectors: np.ndarray) -> dict[str, float]:
    """Figures of one round, in seconds or as ratios."""
    registry = IndexRegistry(folder / "index")
    index = registry.create(IndexSpec.parse(f"bulk:dense:{DIMENSION}:COSINE"))
    upserts, writes = [], []
    with (folder / "bare").open("wb", buffering=0) as bare:
        for start in range(0, len(vectors), BATCH):
            rows = [
                {
                    "id": f"row-{position}",
                    "vector": vectors[position].tolist(),
                    "metadata": {"n": position, "kind": "k"},
                }
                for position in range(start, start + BATCH)
            ]
            began = time.perf_counter()
            index.upsert(rows)
            upserts.append(time.perf_counter() - began)
            began = time.perf_counter()
            bare.write(vectors[start : start + BATCH].tobytes())
            os.fsync(bare.fileno())
            writes.append(time.perf_counter() - began)
    registry.close()
    began = time.perf_counter()
    registry = IndexRegistry(folder / "index")
    figures = {"reopening": time.perf_counter() - began}
    query = IndexQuery(vectors[7].astype(np.float64), 10, NOTHING)
    for name in ("first query", "second query"):
        began = time.perf_counter()
        (hits,) = registry.get("bulk").query([query])
        figures[name] = time.perf_counter() - began
        if hits[0].row.id != "row-7":
            raise SystemExit(f"{hits[0].row.id} is nearest to the vector of row-7")
    registry.close()
    figures["first ten batches"] = statistics.median(upserts[:10])
    figures["last ten batches"] = statistics.median(upserts[-10:])
    figures["bare writing of a batch"] = statistics.median(writes)
    figures["upsert / bare writing"] = statistics.median(upserts) / statistics.median(
        writes
    )
    return figures


if __name__ == "__main__":
    main()
