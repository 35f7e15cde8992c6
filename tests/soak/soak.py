"""Kill the embedded service again and again while it takes messages in and delivers them, then count.

    .venv/bin/python tests/soak/soak.py [--cycles 500] [--messages 20000] [--minutes 30] [--seed N]

A cycle starts the service on the same data, lets it work for a random time under load, and kills it with
SIGKILL; some cycles kill it while it is starting. Then it runs undisturbed until nothing is in progress, and
started twice more, after which nothing may arrive any more. Every message whose publish was acknowledged with
success must have arrived under its id and with its body, or be in the DLQ; `verdict.py` says what else holds.
The exit status is 0 when all of it does. A run ends by itself, after `--minutes` at the latest.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import signal
import sqlite3
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from destination import Destination, listening
from messages import Planner
from publisher import Ledger, Publishers
from verdict import problems

from toolkit.errors import LocalServiceError
from toolkit_service.demo.local_service import LocalService

# retries after 1 ms, 15 ms and 181 ms; half an hour's delay is 180 ms
TIME_FACTOR = 10_000
LONGEST_LIFE = 0.5  # seconds of a cycle, once it is started
STARTING = 0.4  # seconds: about what a start takes
QUIET = 1.0  # seconds in which nothing may arrive once all is done


def main() -> int:
    """Soak, and say what was found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cycles", type=int, default=500, help="kills (500)")
    parser.add_argument(
        "--messages", type=int, default=20_000, help="fewest messages in all (20000)"
    )
    parser.add_argument(
        "--minutes", type=float, default=30, help="give up after so long (30)"
    )
    parser.add_argument(
        "--seed", type=int, default=random.SystemRandom().randrange(10**6)
    )
    options = parser.parse_args()
    say(
        f"seed {options.seed}: {options.cycles} kills, at least {options.messages:,} messages"
    )
    with tempfile.TemporaryDirectory() as folder, listening() as destination:
        soak = Soak(Path(folder), destination, options.seed, options.minutes)
        try:
            found = soak.run(options.cycles, options.messages)
        except OutOfTime as error:
            found = [str(error)]
        finally:
            soak.service.kill()
    say(soak.summary())
    for problem in found[:20]:
        say(f"WRONG: {problem}")
    say(
        f"{len(found)} problems"
        if found
        else "nothing lost, nothing half done, nothing sent again"
    )
    return 1 if found else 0


class OutOfTime(Exception):  # noqa: N818 - says why a run has ended
    """A run has taken longer than it may."""


class Soak:
    """One run.

    Parameters
    ----------
    folder : Path
        For the service's data.
    destination : Destination
    seed : int
        Of the messages and of the times of the kills.
    minutes : float
        How long it may take.
    """

    def __init__(
        self, folder: Path, destination: Destination, seed: int, minutes: float
    ) -> None:
        self.service = LocalService(
            folder, time_factor=TIME_FACTOR, indexes=["plain:dense:2:COSINE"]
        )
        self._file = folder / "queue" / "queue.sqlite"
        self._destination = destination
        self._planner = Planner(seed)
        self._random = random.Random(f"kills {seed}")
        self._begun = time.monotonic()
        self._deadline = self._begun + 60 * minutes
        self._publishers: Publishers | None = None
        self._recorded: dict[str, int] = {}
        self._last_event = 0
        self._counts = Counter[str]()

    def run(self, cycles: int, messages: int) -> list[str]:
        """Kill it so often, and continue until there were so many messages; returns what is wrong."""
        self.service.start()
        self._publishers = Publishers(
            self.service.url, self.service.token, self._destination.url, self._planner
        )
        ledger = self._publishers.ledger
        # a cycle's share, and what cut ones leave over
        wanted = max(40, 3 * messages // cycles)
        self.service.kill()
        while self._counts["kills"] < cycles or len(ledger.accepted) < messages:
            self._in_time("the kills")
            self._publishers.allow(
                wanted if len(ledger.accepted) < 2 * messages else 10
            )
            self._cycle()
            if self._counts["kills"] % 50 == 0:
                say(f"{self._counts['kills']} kills, {len(ledger.accepted):,} messages")
        self._publishers.allow(0)
        self.service.start()
        self._publishers.finish(60)
        self._wait(
            lambda: not self._rows("SELECT 1 FROM messages LIMIT 1"),
            "all messages to be done",
        )
        dlq = self._dlq()
        before = len(self._destination.arrivals)
        for _ in range(2):
            self.service.kill()
            self._note_recorded()
            self.service.start()
            time.sleep(QUIET)
        found = list(
            problems(
                ledger.planned,
                ledger.accepted,
                self._destination.arrivals,
                dlq,
                self._recorded,
            )
        )
        late = len(self._destination.arrivals) - before
        self._counts |= {"in the DLQ": len(dlq)}
        return [
            *ledger.problems,
            *found,
            *([f"{late} deliveries after all was done"] if late else []),
        ]

    def summary(self) -> str:
        """What happened, in a line."""
        arrivals, ledger = (
            self._destination.arrivals,
            self._publishers.ledger if self._publishers else Ledger(),
        )
        attempts = {(arrival.message_id, arrival.retried) for arrival in arrivals}
        return (
            f"seed {self._planner.seed}: {self._counts['kills']} kills "
            f"({self._counts['while starting']} of them while starting), "
            f"{len(ledger.accepted):,} messages accepted, "
            f"{ledger.repeated:,} calls made again after their response was lost, "
            f"{len(arrivals):,} arrivals ({len(arrivals) - len(attempts):,} of them an attempt made again), "
            f"{sum(arrival.path != '/work' for arrival in arrivals):,} of callbacks, "
            f"{self._counts['in the DLQ']:,} messages in the DLQ; {time.monotonic() - self._begun:.0f} s"
        )

    def _cycle(self) -> None:
        early = self._random.random() < 0.15
        after = self._random.uniform(0, STARTING if early else LONGEST_LIFE)
        killer = threading.Thread(target=self._kill_after, args=(after,))
        if early:
            killer.start()
        try:
            self.service.start()
        except LocalServiceError:
            if not early:
                raise
            self._counts["while starting"] += 1
        if not early:
            killer.start()
        killer.join()
        self.service.kill()
        self._counts["kills"] += 1
        self._note_recorded()

    def _kill_after(self, seconds: float) -> None:
        """Kill the process from beside the thread that starts it."""
        time.sleep(seconds)
        while True:
            try:
                os.kill(self.service.pid, signal.SIGKILL)
            except LocalServiceError:  # not there yet
                time.sleep(0.001)
            else:
                return

    def _note_recorded(self) -> None:
        """Write down what the dead service had recorded as done, beside how much had arrived by then."""
        rows = self._rows(
            "SELECT seq, message_id FROM events WHERE seq > ? AND state IN ('DELIVERED', 'FAILED')",
            self._last_event,
        )
        arrived = len(self._destination.arrivals)
        for seq, message_id in rows:
            self._recorded.setdefault(message_id, arrived)
            self._last_event = max(self._last_event, seq)

    def _rows(self, query: str, *values: int) -> list[Any]:
        # read-only: recovering and emptying the log is left to the service
        connection = sqlite3.connect(f"file:{self._file}?mode=ro", uri=True, timeout=10)
        try:
            return connection.execute(query, values).fetchall()
        finally:
            connection.close()

    def _dlq(self) -> list[dict[str, Any]]:
        connection = http.client.HTTPConnection(
            urlsplit(self.service.url).netloc, timeout=30
        )
        found, cursor = [], ""
        while True:
            path = (
                f"/v2/dlq?count=100&cursor={cursor}" if cursor else "/v2/dlq?count=100"
            )
            connection.request(
                "GET", path, headers={"Authorization": f"Bearer {self.service.token}"}
            )
            page = json.loads(connection.getresponse().read())
            found += page["messages"]
            cursor = page.get("cursor")
            if not cursor:
                connection.close()
                return found

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        while not condition():
            self._in_time(what)
            time.sleep(0.05)

    def _in_time(self, what: str) -> None:
        if time.monotonic() > self._deadline:
            raise OutOfTime(f"out of time while waiting for {what}")


def say(line: str) -> None:
    """Print, at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
