"""The time to a first plot in a fresh process, beside plain pandas and matplotlib.

    .venv/bin/python tests/benchmarks/bench_first_plot.py [--rounds 9]

Each way imports what it needs, reads the same Parquet file of 5,000 failures, draws them by workflow and
time, and writes a picture. Measured is processor time, in a process of its own, less that of importing
pandas, pyarrow and pyplot. All have their bytecode, as after a pip install or a start before.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from measuring import against

LIBRARIES = "import pandas, pyarrow.parquet\nfrom matplotlib import pyplot\n"
WAYS = {
    "libraries alone": LIBRARIES,
    "toolkit": """
import sys, pandas, toolkit
frame = pandas.read_parquet(sys.argv[1])
ax = toolkit.plots.plot_failure_trend(frame, by="workflow_url")
ax.figure.savefig(sys.argv[2])
""",
    "pandas and matplotlib": """
import sys, pandas
from matplotlib import pyplot
frame = pandas.read_parquet(sys.argv[1])
hours = frame["failed_at"].dt.floor("6h")
counts = frame.groupby([hours, "workflow_url"]).size().unstack(fill_value=0)
ax = counts.plot.bar(stacked=True, figsize=(9, 3.6))
ax.figure.savefig(sys.argv[2])
""",
}


def failures() -> pd.DataFrame:
    """Two weeks of failures of nine workflows."""
    some = np.random.default_rng(1)
    when = pd.Timestamp("2026-03-01", tz="UTC") + pd.to_timedelta(
        some.uniform(0, 14, 5_000), unit="D"
    )
    names = [
        f"https://shop.example.com/flows/{name}" for name in some.integers(0, 9, 5_000)
    ]
    return pd.DataFrame({"failed_at": when, "created_at": when, "workflow_url": names})


def processor_seconds(code: str, *arguments: str) -> float:
    """What a process that runs this code uses."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "MPLBACKEND": "Agg", "PYTHONDONTWRITEBYTECODE": ""}
    subprocess.run(
        [sys.executable, "-c", code, *arguments], check=True, env=environment
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--quick", action="store_true", help="3 rounds")
    chosen = parser.parse_args()
    rounds = 3 if chosen.quick else chosen.rounds
    print(f"first plot, {rounds} rounds")
    with tempfile.TemporaryDirectory() as folder:
        source, picture = Path(folder) / "failures.parquet", Path(folder) / "plot.png"
        failures().to_parquet(source)
        for code in WAYS.values():
            processor_seconds(code, str(source), str(picture))
        spent: dict[str, list[float]] = {name: [] for name in WAYS}
        for _ in range(rounds):
            for name, code in WAYS.items():
                spent[name].append(processor_seconds(code, str(source), str(picture)))
    medians = {name: statistics.median(seconds) for name, seconds in spent.items()}
    for name, seconds in medians.items():
        print(f"  {name}: {seconds:.2f} s")
    own, plain = (
        medians[name] - medians["libraries alone"]
        for name in ("toolkit", "pandas and matplotlib")
    )
    against(
        "first plot with the toolkit / with pandas and matplotlib",
        own / plain,
        at_most=0.9,
    )


if __name__ == "__main__":
    main()
