"""What masking costs, beside another commit of this package: single values, columns, and the quick tests.

    .venv/bin/python tests/benchmarks/bench_masking.py OTHER-TREE [--rounds 9]
    .venv/bin/python tests/benchmarks/bench_masking.py   # the times of this tree alone

``OTHER-TREE`` is a folder with another version of the package, for example of ``git worktree add``. Both are
measured in turns, each in processes of its own, so that a busy machine slows both alike. A ratio is the best
time of this tree by the best time of the other one.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from measuring import against

HERE = Path(__file__).resolve().parents[2]
AT_MOST = 1.1
REPEATS = 7  # of each measurement in one process
SENTENCES = (
    "Error: connect ECONNREFUSED 10.2.0.14:5432",
    "TypeError: Cannot read properties of undefined (reading 'id') in step charge_card",
    "Validation failed: the key must not be empty",
    "read ETIMEDOUT after 30 s, retried 3 times",
    "see https://docs.example/errors/429 for limits",
)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("other", nargs="?", type=Path, help="folder of another version")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measured()))
        return
    if options.other is None:
        for name, lowest_time in lowest(
            [run(HERE) for _ in range(options.rounds)]
        ).items():
            print(f"  {name:<34}{lowest_time * 1e3:8.2f} ms")
        return
    here, other = in_pairs(options.other.resolve(), options.rounds)
    for name, lowest_time in here.items():
        against(name, lowest_time / other[name], at_most=AT_MOST)


def in_pairs(
    other_tree: Path, rounds: int
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the best times of both trees, measured in turns."""
    here: list[dict[str, float]] = []
    other: list[dict[str, float]] = []
    for _ in range(rounds):
        here.append(run(HERE))
        other.append(run(other_tree))
    return lowest(here), lowest(other)


def lowest(measurements: list[dict[str, float]]) -> dict[str, float]:
    """Return the lowest time of each name."""
    return {
        name: min(times[name] for times in measurements) for name in measurements[0]
    }


def run(tree: Path) -> dict[str, float]:
    """Measure a tree in a process of its own."""
    command = [sys.executable, __file__, "--measure"]
    result = subprocess.run(
        command,
        env={"PYTHONPATH": str(tree), "PATH": ""},
        cwd=tree,
        capture_output=True,
        text=True,
        check=True,
    )
    times: dict[str, float] = json.loads(result.stdout)
    return times


def measured() -> dict[str, float]:
    """Return CPU seconds of masking with the package that is imported."""
    import pyarrow as pa  # noqa: PLC0415 - in the measured process alone

    from toolkit.secrets.redaction import Redactor  # noqa: PLC0415
    from toolkit.tables.masking import ColumnMasker  # noqa: PLC0415

    redactor = Redactor(key=b"benchmark")
    draw = random.Random(1)
    bodies = [body(number, draw) for number in range(2000)]
    errors = [
        f"{SENTENCES[number % len(SENTENCES)]} #{number}" for number in range(5000)
    ]
    long_body = "".join(bodies[:40])
    body_column, error_column = pa.array(bodies), pa.array(errors)
    return {
        "single short values": seconds(
            lambda: [redactor.text(error) for error in errors[:500]]
        ),
        "single bodies": seconds(
            lambda: [redactor.text(body) for body in bodies[:300]]
        ),
        "a long body": seconds(lambda: redactor.text(long_body)),
        "a column of bodies": seconds(
            lambda: ColumnMasker(redactor).texts(body_column)
        ),
        "a column of errors": seconds(
            lambda: ColumnMasker(redactor).texts(error_column)
        ),
    }


def body(number: int, draw: random.Random) -> str:
    """Return the JSON of an order, as applications send it."""
    order = {
        "orderId": f"ord_{number}",
        "items": [{"sku": f"AB-{number}", "qty": number % 7}],
        "user": {"name": "Ann Example", "email": "ann@a.example"},
        "at": "2026-01-02T10:00:00Z",
        "trace": f"{draw.getrandbits(128):032x}",
        "note": SENTENCES[number % len(SENTENCES)],
    }
    return json.dumps(order)


def seconds(work: Callable[[], object]) -> float:
    """Return the lowest CPU time of several calls."""
    times = []
    for _ in range(REPEATS):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


if __name__ == "__main__":
    main()
