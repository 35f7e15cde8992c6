"""Several ways of doing the same, measured in turns in one run: the machine's own speed cancels out."""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Mapping


def options(
    about: str | None, *, entries: int, quick: int, rounds: int = 5
) -> argparse.Namespace:
    """``--entries``, ``--rounds`` and ``--quick`` of a benchmark."""
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--entries", type=int, default=entries)
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument(
        "--quick", action="store_true", help=f"{quick:,} entries and 3 rounds"
    )
    chosen = parser.parse_args()
    if chosen.quick:
        chosen.entries, chosen.rounds = quick, 3
    return chosen


def in_turns(
    ways: Mapping[str, Callable[[], int]], rounds: int, expected: int
) -> dict[str, float]:
    """Median seconds of each way; every call has to return the expected number.

    CPU seconds of this process are printed too: others on the machine stretch them less.
    """
    taken: dict[str, list[float]] = {name: [] for name in ways}
    worked: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            start, work = time.perf_counter(), time.process_time()
            found = way()
            worked[name].append(time.process_time() - work)
            taken[name].append(time.perf_counter() - start)
            if found != expected:
                raise SystemExit(f"{name} returned {found:,} instead of {expected:,}")
    medians = {name: statistics.median(times) for name, times in taken.items()}
    for name, times in taken.items():
        spread = f"({min(times):.3f} to {max(times):.3f})"
        print(
            f"  {name:<34}{medians[name]:8.3f} s   {spread:<22} CPU {statistics.median(worked[name]):.3f} s"
        )
    sys.stdout.flush()
    return medians


def against(
    title: str,
    value: float,
    *,
    at_most: float | None = None,
    at_least: float | None = None,
) -> None:
    """Print a figure beside its target."""
    if at_most is not None:
        target, held = f"at most {at_most:g}", value <= at_most
    else:
        target, held = f"at least {at_least:g}", value >= (at_least or 0)
    print(
        f"  {title:<56}{value:8.3f}   {target:<14} {'held' if held else 'MISSED'}",
        flush=True,
    )
