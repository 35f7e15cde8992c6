"""What ``import toolkit`` costs beside the libraries that its users have imported anyway.

    .venv/bin/python tests/benchmarks/bench_import.py [--rounds 15]

Each import in a process of its own; what it costs to start Python alone is subtracted from both. All have
their bytecode, as after a pip install or a start before.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable

from measuring import against, in_turns

WAYS = {
    "nothing": "pass",
    "import pandas, pyarrow, requests": "import pandas, pyarrow, requests",
    "import toolkit": "import toolkit",
    "import toolkit, and load with it": "import toolkit; toolkit.load_failures; toolkit.load_vectors",
}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--quick", action="store_true", help="3 rounds")
    chosen = parser.parse_args()
    rounds = 3 if chosen.quick else chosen.rounds
    print(f"import toolkit, {rounds} rounds")
    ways: dict[str, Callable[[], int]] = {
        name: running(code) for name, code in WAYS.items()
    }
    medians = in_turns(ways, rounds, 0)
    bare = medians["nothing"]
    beside = medians["import pandas, pyarrow, requests"] - bare
    against(
        "import toolkit / the libraries",
        (medians["import toolkit"] - bare) / beside,
        at_most=1.3,
    )
    used = medians["import toolkit, and load with it"] - bare
    print(f"  with everything that loading needs: {used / beside:.2f}")


def running(code: str) -> Callable[[], int]:
    """A way that runs this code in a new process; returns its exit status."""
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    return lambda: (
        subprocess.run(
            [sys.executable, "-c", code], check=True, env=environment
        ).returncode
    )


if __name__ == "__main__":
    main()
