"""Loads of a DLQ from a server that spoils up to a third of all responses: whole, or a typed error.

    .venv/bin/python tests/faults/hostile_loads.py [--loads 160] [--entries 2500] [--seed 21] [--model-clock]

Of each four loads, one has no faults, and each request of the others fails with 5, 15 or 30 %, by a fault
drawn from `HOSTILE`. Loads are those of a user, `load_failures` in real time; with `--model-clock` only
sleeps and slow responses move the clock. The exit status is 0 when nothing was lost, altered or short, and no
more than 2 of 160 loads ended in an error.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
import warnings
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from random import Random
from typing import Any

from clock import Clock
from dlq import Dlq, Habits
from faults import TABLE, Turn
from model_service import ModelService
from verdict import problems, rows_of
from wire import Exchange, Request, Server

import toolkit as tk
from toolkit.errors import IncompleteLoadWarning, ToolkitError
from toolkit.loading.failures import open_failures
from toolkit.loading.options import LoadOptions
from toolkit.service.transport import Transport

SHARES = (0.0, 0.05, 0.15, 0.3)
SLOW = 0.4  # real seconds that a slow response waits in its middle
HOSTILE = (
    "429, Retry-After 0",
    "429, burst limit",
    "429, no time said",
    "500",
    "503",
    "503, Retry-After as a date",
    "cut inside the body",
    "reset inside the body",
    "closed inside the head",
    "more promised than sent",
    "JSON truncated inside a right length",
    "gzip, corrupt",
    "gzip, no trailer",
    "HTML with 200",
    "an empty body with 200",
    "an empty object",
    "slow",
)


class Hostile(ModelService):
    """A service of which each response is spoilt with some probability.

    Which ones depends on the request and how often it came before, not on the order of threads.
    """

    def __init__(
        self,
        server: Server,
        clock: Clock | None,
        model: Dlq,
        random: Random,
        share: float,
    ) -> None:
        super().__init__(server, clock or Clock(), model, random, [], 0.0)
        self.share = share
        self.name = random.random()
        self.asked = Counter[str]()
        self.real = clock is None
        self.struck = Counter[str]()

    def _answer(self, request: Request) -> Exchange:
        exchange = super()._answer(request)
        self.asked[request.query] += 1
        random = Random(f"{self.name} {request.query} {self.asked[request.query]}")
        if random.random() >= self.share:
            return exchange
        name = random.choice(HOSTILE)
        self.struck[name] += 1
        turn = Turn(self, self.requests, None, None, "", [], None, response=exchange)
        if name == "slow":
            exchange.dawdle = (
                (lambda: time.sleep(SLOW))
                if self.real
                else (lambda: self.clock.pass_by(20))
            )
        elif name == "503":
            exchange.status, turn.raw = 503, b"busy"
        else:
            TABLE[name](random).spoil(turn)
        body = exchange.body if turn.raw is None else turn.raw
        exchange.body = body[: int(turn.kept * len(body))]
        return exchange


def load(
    seed: int, number: int, entries: int, *, model_clock: bool
) -> tuple[Counter[str], list[str]]:
    """One load; what happened, and what was wrong."""
    random = Random(f"{seed} {number}")
    habits = Habits(
        order=random.choice(["newest", "oldest"]),
        dates="created",
        spread=random.choice(["days", "bursts"]),
        page=100,
    )
    model = Dlq(random, habits, entries)
    server, clock = Server(), Clock() if model_clock else None
    service = Hostile(
        server, clock, model, random, share := SHARES[number % len(SHARES)]
    )
    server.respond = service.respond
    connection = tk.connect(
        queue_url=f"http://127.0.0.1:{server.port}", queue_token="token-of-the-loads"
    )
    counts, wrong = Counter[str](), list[str]()
    begun = time.monotonic()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", IncompleteLoadWarning)
            if clock is None:
                frame = tk.load_failures(connection, progress=False)
            else:
                made = partial(
                    Transport.to,
                    connection,
                    "queue",
                    sleep=clock.sleep,
                    monotonic=clock.monotonic,
                )
                frame = open_failures(
                    connection, transport=made, options=LoadOptions(progress=False)
                ).frame()
    except ToolkitError as error:
        counts[f"ended in an error at {share:.0%}"] += 1
        read: Any = getattr(error, "partial", None)
        rows, whole = [] if read is None else rows_of(read, model), False
        counts[f"error: {type(error.__cause__ or error).__name__}"] += 1
    else:
        rows, whole = rows_of(frame, model), tk.get_receipt(frame).complete
        if whole:
            counts[f"whole at {share:.0%}"] += 1
            counts["whole"] += 1
        else:
            wrong.append(f"doubted: {tk.get_receipt(frame).reasons}")
    wrong += problems(model, rows, whole=whole, chosen=lambda _: True)
    wrong += [f"harness: {line}" for line in service.log if line.startswith("BROKEN")]
    counts["requests"] += service.responses
    counts["spoilt"] += service.struck.total()
    counts.update({f"fault: {name}": count for name, count in service.struck.items()})
    counts["tenths of a second"] += round(10 * (time.monotonic() - begun))
    server.refuse()
    return counts, [f"--seed {seed}, load {number}: {problem}" for problem in wrong]


def main() -> int:
    """Make the loads, and say what came of them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--loads", type=int, default=160)
    parser.add_argument("--entries", type=int, default=2500)
    parser.add_argument("--seed", type=int, default=21)
    parser.add_argument("--at-once", type=int, default=4)
    parser.add_argument("--model-clock", action="store_true")
    options = parser.parse_args()
    counts, wrong = Counter[str](), list[str]()
    lock = threading.Lock()

    def one(number: int) -> None:
        found, bad = load(
            options.seed, number, options.entries, model_clock=options.model_clock
        )
        with lock:
            counts.update(found)
            wrong.extend(bad)

    with ThreadPoolExecutor(options.at_once) as pool:
        list(pool.map(one, range(options.loads)))
    lines = [f"{count:8,}  {name}" for name, count in sorted(counts.items())]
    lines += [f"WRONG: {problem[:400]}" for problem in wrong]
    lines.append(
        f"seed {options.seed}: {options.loads} loads of {options.entries:,} entries, "
        f"{counts['whole']} whole, {options.loads - counts['whole']} not, anything wrong {len(wrong)}"
    )
    sys.stdout.write("\n".join(lines) + "\n")
    return int(bool(wrong) or counts["whole"] < options.loads * 158 / 160)


if __name__ == "__main__":
    sys.exit(main())
