"""How many bodies are signed per CPU second, beside another commit of this package.

    .venv/bin/python tests/benchmarks/bench_signing.py [OTHER-TREE] [--rounds 5] [--distinct 20000]

``OTHER-TREE`` is a folder with another version of the package, for example of ``git worktree add``. Both are
imported into one process and measured in turns, so that a busy machine slows both alike. Modules are imported
anew in each round: "first" begins with empty memories, and "again" signs the same bodies once more.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(HERE))

from measuring import against  # noqa: E402 - the path is set above

from tests.accuracy.log_lines import log_lines  # noqa: E402
from tests.accuracy.system_logs import SYSTEMS, system_log  # noqa: E402
from tests.accuracy.written_traces import written_traces  # noqa: E402

AT_MOST = 1.1
Sign = Callable[[list[str]], list[str]]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("other", nargs="?", type=Path, help="folder of another version")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--distinct", type=int, default=20_000)
    options = parser.parse_args()
    trees = [HERE]
    if options.other is not None:
        trees.append(options.other.resolve())
    for name, bodies in bodies_by_kind(options.distinct).items():
        first, again = lowest_times(trees, bodies, options.rounds)
        print(
            f"  {name:<24}{len(bodies) / first[0]:10,.0f} first "
            f"{len(bodies) / again[0]:10,.0f} again, per second"
        )
        if len(trees) > 1:
            against(f"{name}, first", first[0] / first[1], at_most=AT_MOST)
            against(f"{name}, again", again[0] / again[1], at_most=AT_MOST)


def bodies_by_kind(distinct: int) -> dict[str, list[str]]:
    """Return bodies of each kind. Bodies of the last kind all differ, by an id of the request."""
    lines, _ = log_lines(5_000)
    logs = [line for system in SYSTEMS for line in system_log(system, 1_000)[0]]
    kinds = {"log lines": lines, "logs of systems": logs}
    for language in ("Java", "Kotlin", ".NET", "Go"):
        kinds[f"traces of {language}"] = written_traces(language, 30, seed=1)[0]
    kinds["distinct bodies"] = [
        f'{{"error": {{"code": "E{number % 40 + 100}", "message": "{lines[number % len(lines)][:40]}", '
        f'"request": "{number:032x}"}}}}'.replace("\\", "")
        for number in range(distinct)
    ]
    return kinds


def lowest_times(
    trees: list[Path], bodies: list[str], rounds: int
) -> tuple[list[float], list[float]]:
    """Return the lowest CPU seconds of each tree, with empty and with full memories."""
    first = [float("inf") for _ in trees]
    again = [float("inf") for _ in trees]
    for _ in range(rounds):
        for position, tree in enumerate(trees):
            sign = imported(tree)
            first[position] = min(first[position], seconds(sign, bodies))
            again[position] = min(again[position], seconds(sign, bodies))
    return first, again


def imported(tree: Path) -> Sign:
    """Return the function of a tree, from modules that are imported anew."""
    for name in [name for name in sys.modules if name.split(".")[0] == "toolkit"]:
        del sys.modules[name]
    sys.path.insert(0, str(tree))
    module = importlib.import_module("toolkit.signatures.signing")
    sys.path.remove(str(tree))
    if not str(module.__file__).startswith(str(tree)):
        raise SystemExit(f"imported {module.__file__} instead of {tree}")
    sign: Sign = module.error_signatures
    return sign


def seconds(sign: Sign, bodies: list[str]) -> float:
    """Return the CPU seconds of signing bodies."""
    start = time.process_time()
    sign(bodies)
    return time.process_time() - start


if __name__ == "__main__":
    main()
