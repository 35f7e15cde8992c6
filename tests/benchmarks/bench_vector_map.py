"""The first painting of a map of vectors, measured in a real browser on a real kernel.

    .venv/bin/python tests/benchmarks/bench_vector_map.py [--entries 50000] [--rounds 5] [--quick]

The time is from Shift+Enter on the cell that makes the map until its points are painted. The projection is
computed before, as it is the same work whatever draws it.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

from bench_failure_browser import shown
from measuring import against, options

import toolkit as tk
from conftest import jupyterlab, launched_chromium

PREPARE = """
import numpy as np
import pandas as pd
import toolkit as tk
rng = np.random.default_rng(0)
topic = rng.integers(0, 10, {rows})
matrix = (3 * rng.normal(size=(10, 16)) * np.linspace(1, 0.3, 16))[topic] + rng.normal(size=({rows}, 16))
many = tk.project_vectors(matrix)
many.frame["topic"] = "topic " + pd.Series(topic).astype("str")
"""
MAP = "tk.VectorMapPanel(many, color='topic')"
LIMIT = 2.0


def main() -> None:
    """Measure and print."""
    chosen = options(__doc__, entries=50_000, quick=10_000)
    taken: list[float] = []
    in_page: list[float] = []
    with (
        tk.connect("local") as service,
        tempfile.TemporaryDirectory() as folder,
        jupyterlab(service, Path(folder)) as lab,
        launched_chromium() as chromium,
    ):
        for number in range(chosen.rounds):
            with lab.open(
                chromium, f"map{number}", [PREPARE.format(rows=chosen.entries), MAP]
            ) as notebook:
                notebook.run_cell()
                canvas = f"document.querySelector('canvas[data-painted][data-points=\"{chosen.entries}\"]')"
                taken.append(shown(notebook, 1, canvas) / 1000)
                in_page.append(
                    float(notebook.page.evaluate(f"{canvas}.dataset.painted")) / 1000
                )
    print(f"VectorMapPanel: {chosen.entries:,} points, {chosen.rounds} rounds")
    for name, seconds in (
        ("from the key to painted points", taken),
        ("of these, in the page", in_page),
    ):
        print(
            f"  {name:<34}{statistics.median(seconds):8.3f} s   ({min(seconds):.3f} to {max(seconds):.3f})"
        )
    against("first painting, seconds", statistics.median(taken), at_most=LIMIT)


if __name__ == "__main__":
    main()
