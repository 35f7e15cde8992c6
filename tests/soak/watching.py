"""Watch a queue for 24 simulated hours with restarts: nothing is missed, and memory stays flat.

    .venv/bin/python tests/soak/watching.py [--hours 24] [--every 300] [--per-hour 120] [--most 1.2]

The queue is a real server that keeps failures for three days. The watch looks every `--every` seconds of
simulated time. Once per simulated hour the server ends and starts again, and the token is refused for one
look. Every fourth hour the watch itself begins anew. The exit status is 0 if every failure was counted, no
notice was sent twice, and the memory after the last hour is at most `--most` times the memory after the
first. Resident memory is read from ``/proc``: Linux alone.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

import toolkit as tk
from tests.soak.simulated_queue import Failure, SimulatedQueue, listening
from toolkit.errors import ServiceError
from toolkit.failures.watching import Watch

_TOKEN = "token-of-the-soak"
_TEXTS = (
    "card declined",
    "upstream closed the connection",
    "order is locked",
    "timed out",
)
_NEW = tuple(
    f"new error of component {name}" for name in ("a", "b", "c", "d", "e", "f")
)
_HOUR = timedelta(hours=1)


def traffic(start: datetime, hours: int, per_hour: float) -> list[Failure]:
    """Return failures of a few errors, and a new error every four hours."""
    rng = np.random.default_rng(1)
    seconds = np.sort(rng.uniform(0, hours * 3600, rng.poisson(hours * per_hour)))
    made = []
    for number, second in enumerate(seconds.tolist()):
        place = int(second // (4 * 3600))
        texts = (*_TEXTS, *_NEW[: place % (len(_NEW) + 1)])
        text = texts[int(rng.integers(len(texts)))]
        made.append(Failure(number, start + timedelta(seconds=second), text))
    return made


def resident_megabytes() -> float:
    """Return the memory of this process."""
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * 4096 / 1e6


def watched(hours: int, every: float, per_hour: float) -> dict[str, object]:
    """Watch for some simulated hours. Return what was counted."""
    now = datetime.now(UTC)
    start = now - hours * _HOUR
    queue = SimulatedQueue(traffic(start, hours, per_hour), time=start, token=_TOKEN)
    notices: list[str] = []
    errors, memory = 0, []
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/kept"

        def send(notice: str) -> None:
            notices.extend(notice.splitlines())

        service, watch = None, None
        for hour in range(hours):
            with ExitStack() as serving:
                serving.enter_context(listening(queue))
                if service is None:
                    service = tk.connect(queue_url=queue.url, queue_token=_TOKEN)
                if watch is None or hour % 4 == 0:
                    watch = Watch(service, path, send=send, clock=lambda: queue.time)
                for look in range(round(3600 / every)):
                    queue.time = (
                        start + hour * _HOUR + timedelta(seconds=(look + 1) * every)
                    )
                    # the token is refused for the second look of each hour
                    queue.token = "refused" if look == 1 else _TOKEN
                    try:
                        watch.look()
                    except ServiceError:
                        errors += 1
            memory.append(resident_megabytes())
        rows = tk.read_snapshot(path)
        counted = sum(row["count"] for row in watch.board())
    repeated = [
        notice for notice, count in Counter(_kinds(notices)).items() if count > 1
    ]
    return {
        "failures": len(queue.failures),
        "stored": int(rows["dlq_id"].nunique()),
        "counted": counted,
        "refused looks": errors,
        "notices": len(notices),
        "repeated notices": repeated,
        "memory after the first hour, MB": round(memory[0], 1),
        "memory after the last hour, MB": round(memory[-1], 1),
        "memory per hour, MB": [round(size) for size in memory],
        "growth": round(memory[-1] / memory[0], 3),
    }


def _kinds(notices: list[str]) -> list[str]:
    """Return the notices without their counts."""
    return [notice.rpartition(" (")[0] for notice in notices]


def main() -> int:
    """Watch, print the figures, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=int, default=24)
    parser.add_argument("--every", type=float, default=300)
    parser.add_argument("--per-hour", type=float, default=120)
    parser.add_argument("--most", type=float, default=1.2)
    given = parser.parse_args()
    figures = watched(given.hours, given.every, given.per_hour)
    for name, value in figures.items():
        print(f"{name}: {value}", flush=True)  # noqa: T201 - its output
    is_whole = figures["failures"] == figures["stored"] == figures["counted"]
    is_flat = float(str(figures["growth"])) <= given.most
    return 0 if is_whole and is_flat and not figures["repeated notices"] else 1


if __name__ == "__main__":
    sys.exit(main())
