"""Queries of the embedded vector index, in process, beside numpy's bare matrix product of the same size.

    .venv/bin/python tests/benchmarks/bench_vector_search.py [--sizes 10000 100000] [--rounds 7]

Each round asks every kind of query in turn, a few times each; medians of the rounds count. "Over the product"
is what a query takes beyond the product `matrix @ query` in single precision, which exact search cannot do
without; a filter that leaves few rows needs less than that. At the end: what approximate search finds of the
exact result, and how fast. On a machine that does other things too, `--clock cpu` counts seconds of the
processor instead; set OPENBLAS_NUM_THREADS=1 for it, as waiting threads count there.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from clusters import clustered

from toolkit.filters.metadata import parse
from toolkit_service.vectors.bodies import Included, IndexQuery, RangePage
from toolkit_service.vectors.index_registry import IndexRegistry
from toolkit_service.vectors.sparse import SparseArray
from toolkit_service.vectors.specs import IndexSpec
from toolkit_service.vectors.vector_index import VectorIndex
from toolkit_service.vectors.vector_routes import Call, range_page

DIMENSION = 384
TOP_K = 10
QUERIES = 10
"""Queries of each kind in a round."""
WORDS = 30_000
FILTERS = {
    "filtered, half pass": "n >= 50",
    "filtered, one in ten": "kind = 'k3'",
    "filtered, one in a hundred": "n = 7",
    "filtered, three conditions": "kind != 'k1' AND (tags CONTAINS 't2' OR n < 60) AND name GLOB 'row-*'",
}
NOTHING = Included()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    options = parser.parse_args()
    clock = time.perf_counter if options.clock == "wall" else time.process_time
    medians: dict[int, dict[str, float]] = {}
    for size in options.sizes:
        with tempfile.TemporaryDirectory() as folder:
            vectors = clustered(size, DIMENSION, seed=1)
            fill(Path(folder), vectors)
            medians[size] = exact_search(Path(folder), vectors, options.rounds, clock)
            approximate_search(Path(folder), size, clock)
            pages(Path(folder), vectors, options.rounds, clock)
    if len(medians) > 1:
        small, large = medians[options.sizes[0]], medians[options.sizes[-1]]
        print(f"\ncost at {options.sizes[-1]:,} over cost at {options.sizes[0]:,}")
        for name, took in large.items():
            print(f"  {name:<28}{took / small[name]:8.1f}")


def fill(folder: Path, vectors: np.ndarray) -> None:
    """One hybrid index with metadata."""
    registry = IndexRegistry(folder)
    index = registry.create(IndexSpec.parse(f"all:hybrid:{DIMENSION}:COSINE"))
    numbers = np.random.default_rng(2)
    for start in range(0, len(vectors), 1000):
        index.upsert(
            {
                "id": f"row-{position}",
                "vector": vectors[position],
                "sparseVector": sparse(numbers, 30),
                "metadata": {
                    "n": position % 100,
                    "kind": f"k{position % 10}",
                    "name": f"row-{position}",
                    "tags": [f"t{position % 3}", "all"],
                },
            }
            for position in range(start, min(start + 1000, len(vectors)))
        )
    registry.close()


def sparse(numbers: np.random.Generator, count: int) -> dict[str, Any]:
    """A vector of words, some of which are far more frequent than others."""
    words = np.unique(np.minimum(numbers.zipf(1.3, size=count), WORDS))
    return {
        "indices": words.tolist(),
        "values": numbers.uniform(0.2, 2, len(words)).tolist(),
    }


def exact_search(
    folder: Path, vectors: np.ndarray, rounds: int, clock: Callable[[], float]
) -> dict[str, float]:
    """Seconds a query of each kind takes, by name."""
    start = clock()
    registry = IndexRegistry(folder)
    opened = clock() - start
    index = registry.get("all")
    asked = clustered(QUERIES, DIMENSION, seed=3)
    numbers = np.random.default_rng(4)
    words = [sparse(numbers, 8) for _ in asked]
    ways: dict[str, Callable[[int], Any]] = {
        "bare product": lambda position: vectors @ asked[position],
        "dense": lambda position: ask(index, dense=asked[position]),
        **{
            name: lambda position, text=text: ask(
                index, dense=asked[position], filtered=text
            )
            for name, text in FILTERS.items()
        },
        "sparse": lambda position: ask(index, words=words[position]),
        "sparse, IDF": lambda position: ask(index, words=words[position], idf=True),
        "hybrid, RRF": lambda position: ask(
            index, dense=asked[position], words=words[position]
        ),
    }
    first: dict[str, float] = {}
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for name, way in ways.items():
        start = clock()
        way(0)
        first[name] = clock() - start
    for _ in range(rounds):
        for name, way in ways.items():
            start = clock()
            for position in range(QUERIES):
                way(position)
            taken[name].append((clock() - start) / QUERIES)
    registry.close()
    medians = {name: statistics.median(times) for name, times in taken.items()}
    product = medians["bare product"]
    print(
        f"\n{len(vectors):,} x {DIMENSION}, top {TOP_K}, {rounds} rounds; opened in {1e3 * opened:,.0f} ms"
    )
    print(
        f"  {'':<28}{'ms':>8}{'queries/s':>11}{'over the product':>18}{'ratio':>8}{'first, ms':>11}"
    )
    for name, median in medians.items():
        print(
            f"  {name:<28}{1e3 * median:8.2f}{1 / median:11.0f}{1e3 * (median - product):+15.2f} ms"
            f"{median / product:8.2f}{1e3 * first[name]:11.1f}"
        )
    return medians


def approximate_search(folder: Path, size: int, clock: Callable[[], float]) -> None:
    """How much of the exact result approximate search finds."""
    asked = clustered(100, DIMENSION, seed=5)
    found: list[list[set[str]]] = []
    took: list[float] = []
    for above in (None, 1000):
        registry = IndexRegistry(folder, approximate_above=above)
        index = registry.get("all")
        start = clock()
        for _ in range(size // 1000 + 1 if above else 1):
            # until the graph has every row
            ask(index, dense=asked[0])
        prepared = clock() - start
        results, times = [], []
        for query in asked:
            start = clock()
            hits = ask(index, dense=query)
            times.append(clock() - start)
            results.append({hit.row.id for hit in hits})
        found.append(results)
        took.append(statistics.median(times))
        registry.close()
    exact, approximate = found
    shares = [
        len(one & other) / TOP_K for one, other in zip(exact, approximate, strict=True)
    ]
    print(
        f"  approximate: recall {statistics.mean(shares):.3f} (worst query {min(shares):.1f}), "
        f"{1e3 * took[1]:.2f} ms a query, {took[0] / took[1]:.1f} times as fast as exact; "
        f"graph made in {prepared:.0f} s"
    )


def pages(
    folder: Path, vectors: np.ndarray, rounds: int, clock: Callable[[], float]
) -> None:
    """A page of a range with vectors, from the file to JSON, beside writing the vectors alone as float64."""
    registry = IndexRegistry(folder)
    index = registry.get("all")
    body = RangePage(
        cursor="0", limit=1000, include_vectors=True, include_metadata=True
    )
    sizes, taken = {}, {"float64 alone": [], "page": []}
    ways: dict[str, Callable[[], Any]] = {
        "float64 alone": lambda: [vector.tolist() for vector in vectors[:1000]],
        "page": lambda: range_page(Call(index, body=body)),
    }
    for _ in range(rounds):
        for name, way in ways.items():
            start = clock()
            sizes[name] = len(msgspec.json.encode(way()))
            taken[name].append(clock() - start)
    registry.close()
    alone, page = (statistics.median(times) for times in taken.values())
    print(
        f"  range of 1,000 with vectors: {1e3 * page:.1f} ms; {page / alone:.2f} of the time and "
        f"{sizes['page'] / sizes['float64 alone']:.2f} of the bytes of writing the vectors alone as float64"
    )


def ask(
    index: VectorIndex,
    *,
    dense: np.ndarray | None = None,
    words: dict[str, Any] | None = None,
    filtered: str = "",
    idf: bool = False,
) -> list[Any]:
    """The hits of one query, the filter parsed each time as it is for a request."""
    query = IndexQuery(
        question=None if dense is None else dense.astype(np.float64),
        top_k=TOP_K,
        include=NOTHING,
        filter=parse(filtered) if filtered else None,
        sparse=words
        and SparseArray(np.array(words["indices"]), np.array(words["values"])),
        idf=idf,
    )
    return index.query([query])[0]


if __name__ == "__main__":
    main()
