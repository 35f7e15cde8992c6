"""Redrives under kills: client, service and application are killed at random moments, then all is compared.

Twelve groups fail: four are mended, four stay broken, two are mended for every second order, two are
poison; a thirteenth is not in the plan. After the last kill the plan runs to its end, and ledger and service
are compared entry by entry. Bounded by ``--failures``, ``--kills`` and ``--minutes``; ends with 1 when
anything is wrong.

With ``--ledgers copied``, clients of a plan of failure functions, resumes and deletes are killed, and each
next one has a copy of the ledger's file alone and another data folder. With ``--ledgers two``, two clients
run a plan at once with two ledgers. Only kills that strike a running client count, and new plans of
``--failures`` entries are made until there were ``--kills`` of them.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import httpx
import pandas as pd

import toolkit as tk
from tests.redrive.conftest import open_shop
from tests.redrive.killed_clients import Clients, Kill, mixed_plan
from toolkit.redrive.running import new_run_id
from toolkit_service.demo.local_service import LocalService

MENDED = ("mended-a", "mended-b", "mended-c", "mended-d")
BROKEN = ("broken-a", "broken-b", "broken-c", "broken-d")
HALF = ("half-a", "half-b")
POISON = ("poison-a", "poison-b")
OUTSIDE = "outside"
PARALLELISM = 20
CANARIES = 20  # of which more than 7 in 10 hardly ever fail in a group that is mended for every second order
SECONDS = 0.6  # of a delivery once the plan runs, so that kills strike while many are in progress
# of a process that has imported everything: kills hit the run
_CLIENTS = get_context("forkserver")


def run_plan(url: str, token: str, path: Path, ledger: Path) -> None:
    """Run a plan: what a client does until it is killed."""
    plan, service = (
        tk.RedrivePlan.read(path),
        tk.connect(queue_url=url, queue_token=token),
    )
    try:
        tk.run_redrive(
            service, plan, ledger=ledger, confirm=plan.confirmation, progress=False
        )
    except tk.errors.ToolkitError:  # the service was away for too long
        raise SystemExit(1) from None


def main() -> int:
    """Run it; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--failures", type=int, default=10_000)
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--ledgers", choices=("one", "copied", "two"), default="one")
    given = parser.parse_args()
    if given.ledgers != "one":
        return kill_clients(given)
    _CLIENTS.set_forkserver_preload(["__main__"])
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalService(Path(folder) / "queue") as queue,
    ):
        return Soak(queue, Path(folder), given).run()


def kill_clients(given: argparse.Namespace) -> int:
    """Kill the clients of plans, with copied ledgers or with two; returns the exit status.

    A plan ends after some ten kills, so plans are made and run, each with a queue of its own, until
    ``--kills`` kills have struck running clients.
    """
    chosen = random.Random(given.seed)
    until = time.monotonic() + given.minutes * 60
    kills, calls, wrong = Counter[str](), Counter[int](), Counter[str]()
    rounds = 0
    while kills["while it ran"] < given.kills and time.monotonic() < until:
        rounds += 1
        with tempfile.TemporaryDirectory() as folder:
            called, mistakes = _round(chosen, given, Path(folder), kills, until)
        calls += called
        wrong += mistakes
        say(
            f"round {rounds}: {dict(kills)}; functions by calls: {dict(sorted(called.items()))}"
        )
    say(f"seed {given.seed}, {rounds} plans: kills of clients: {dict(kills)}")
    say(
        f"functions by calls: {dict(sorted(calls.items()))}; wrong: {dict(wrong) or 'nothing'}"
    )
    return 1 if wrong or kills["while it ran"] < given.kills else 0


def _round(
    chosen: random.Random,
    given: argparse.Namespace,
    folder: Path,
    kills: Counter[str],
    until: float,
) -> tuple[Counter[int], Counter[str]]:
    """Run one plan under kills; return the functions by the number of their calls, and what is wrong."""
    with LocalService(folder / "queue") as queue, open_shop(queue) as shop:
        each = given.failures // 3
        plan = mixed_plan(shop, given.ledgers, each, workflows=max(1, each // 3))
        clients = Clients(shop, plan, folder, kills)
        moments = _kills(chosen, given, clients, until)
        if given.ledgers == "two":
            results = clients.killed_with_two_ledgers(
                (kill.seconds for kill in moments), chosen.random()
            )
        else:
            results = [clients.killed_with_copies(moments)]
        for result in results:
            say(result.verdict)
        functions = plan.acted.query("action == 'failure function'")["dlq_id"]
        return Counter(shop.called[dlq_id] for dlq_id in functions), Counter(
            clients.wrong(results)
        )


def _kills(
    chosen: random.Random, given: argparse.Namespace, clients: Clients, until: float
) -> Iterator[Kill]:
    """Yield kills until enough have struck: at random moments, or at a change, before or after it is stored.

    With two ledgers, all are at random moments, because the clients run at once.
    """
    number = 0
    while clients.struck < given.kills and time.monotonic() < until:
        number += 1
        if number % 2 or given.ledgers == "two":
            yield Kill(seconds=chosen.uniform(0.1, 1.0))
        else:
            yield Kill(change=chosen.randint(1, 40), stored=chosen.random() < 0.5)


class Soak:
    """One run of it."""

    def __init__(
        self, queue: LocalService, folder: Path, given: argparse.Namespace
    ) -> None:
        self.queue, self.folder, self.given = queue, folder, given
        self.random = random.Random(given.seed)
        self.until = time.monotonic() + given.minutes * 60
        self.state = folder / "state.json"
        self.kills: Counter[str] = Counter()
        self.under_way: list[
            int
        ] = []  # entries that were sent and had not ended, at each kill
        self.shop: subprocess.Popen[bytes] | None = None
        self.port = 0

    @property
    def service(self) -> tk.Service:
        """A connection to the queue."""
        return tk.connect(queue_url=self.queue.url, queue_token=self.queue.token)

    def run(self) -> int:
        """Fail, plan, kill, compare."""
        self._set(mended=(), half=(), counting=False, seconds=0)
        self._open()
        try:
            each = self.given.failures // 12
            names = (*MENDED, *BROKEN, *HALF, *POISON)
            failures = self._fail({**dict.fromkeys(names, each), OUTSIDE: each // 4})
            outside = failures["workflow_url"].str.endswith(OUTSIDE)
            plan = tk.plan_redrive(
                failures[~outside],
                canaries=CANARIES,
                stop_above=0.7,
                parallelism=PARALLELISM,
                deadline="2m",
            )
            plan.save(self.folder / "plan.json")
            say(plan.verdict)
            self._set(mended=MENDED, half=HALF, counting=True, seconds=SECONDS)
            self._reopen()
            self._kill_at_random()
            with self._client() as client:
                # an end in time is not what is judged here: beside other work it takes minutes to begin anew
                client.join(max(300, self.until - time.monotonic()))
                if client.exitcode is None and not self._status.finished:
                    say(
                        f"out of time after {self.kills.total()} kills; {self._status.verdict}"
                    )
                    return 1
                if client.exitcode != 0:
                    say(f"the last client ended with {client.exitcode}")
            return self._compare(plan, set(failures[outside]["dlq_id"]))
        finally:
            if self.shop is not None:
                self.shop.kill()
                self.shop.wait()

    def _fail(self, wanted: dict[str, int]) -> pd.DataFrame:
        """Failures of each workflow, so many."""
        headers = {
            "Authorization": f"Bearer {self.queue.token}",
            "Service-Retries": "9",
        }
        headers["Service-Retry-Delay"] = "1000"  # milliseconds
        orders = [
            (name, number) for name, count in wanted.items() for number in range(count)
        ]
        with (
            httpx.Client(headers=headers, timeout=60) as http,
            ThreadPoolExecutor(8) as pool,
        ):

            def start(order: tuple[str, int]) -> None:
                name, number = order
                url = f"{self.queue.url}/v2/trigger/http://127.0.0.1:{self.port}/{name}"
                once = {"Service-Deduplication-Id": f"{name}-{number}"}
                with suppress(httpx.TransportError):
                    # a connection that was idle for long is closed
                    http.post(
                        url, json={"order": number}, headers=once
                    ).raise_for_status()
                    return
                http.post(url, json={"order": number}, headers=once).raise_for_status()

            list(pool.map(start, orders))
        while len(found := tk.load_failures(self.service, progress=False)) < len(
            orders
        ):
            if time.monotonic() > self.until:
                raise SystemExit(
                    f"{len(found):,} of {len(orders):,} have failed in time"
                )
            time.sleep(1)
        return found

    def _kill_at_random(self) -> None:
        """Kill client, service and application, one at a time, until there were enough kills."""
        while self.kills.total() < self.given.kills and time.monotonic() < self.until:
            with self._client() as client:
                while client.is_alive() and self.kills.total() < self.given.kills:
                    time.sleep(self.random.uniform(0.1, 1.0))
                    victim = self.random.choice(
                        ("client", "client", "client", "service", "application")
                    )
                    if not client.is_alive():
                        break
                    self.kills[victim] += 1
                    self.under_way.append(self._under_way)
                    if victim == "client":
                        client.kill()
                        client.join()
                    elif victim == "service":
                        self.queue.kill()
                        self.queue.start()
                    else:
                        self._reopen()
                    if self.kills.total() % 25 == 0:
                        say(
                            f"{self.kills.total()} kills; {self._status.verdict if self._has_ledger else ''}"
                        )
            if self._has_ledger and self._status.finished:
                say(f"finished after {self.kills.total()} kills")
                return

    @property
    def _status(self) -> tk.results.RedriveResult:
        return tk.read_redrive_status(self.folder / "ledger.sqlite")

    @property
    def _under_way(self) -> int:
        return (
            int(self._status.frame["state"].isin(("intended", "started")).sum())
            if self._has_ledger
            else 0
        )

    @property
    def _has_ledger(self) -> bool:
        try:
            return bool(len(self._status.frame))
        except tk.errors.InputError:
            return False

    @contextmanager
    def _client(self) -> Iterator[ForkServerProcess]:
        paths = (self.folder / "plan.json", self.folder / "ledger.sqlite")
        process = _CLIENTS.Process(
            target=run_plan, args=(self.queue.url, self.queue.token, *paths)
        )
        process.start()
        try:
            yield process
        finally:
            process.kill()
            process.join()

    def _compare(self, plan: tk.RedrivePlan, outside: set[str]) -> int:
        """Ledger and service, entry by entry."""
        result = tk.read_redrive_status(self.folder / "ledger.sqlite")
        say(result.verdict)
        in_dlq = set(tk.load_failures(self.service, progress=False)["dlq_id"])
        log = tk.load_runs(self.service, progress=False).set_index("workflow_run_id")
        wrong: Counter[str] = Counter()
        expected = {
            "succeeded": "RUN_SUCCESS",
            "failed again": "RUN_FAILED",
            "failed otherwise": "RUN_FAILED",
        }
        for row in result.frame.to_dict("records"):
            state, run = row["state"], new_run_id(plan.hash, row["dlq_id"])
            ran = run in log.index
            if state in expected:
                wrong["state of the run"] += (
                    not ran or log.loc[run, "state"] != expected[state]
                )
                wrong["still in the DLQ"] += row["dlq_id"] in in_dlq
                wrong["not back in the DLQ"] += (
                    state != "succeeded" and row["new_dlq_id"] not in in_dlq
                )
            elif state in ("stopped", "left", "skipped"):
                wrong["sent without a word"] += ran
                wrong["lost"] += row["dlq_id"] not in in_dlq
            else:
                wrong[f"state {state}"] += 1
        originals = len(plan.frame) + len(outside)
        sent = int(result.frame["state"].isin(expected).sum())
        wrong["runs that are twice there"] = len(log) - originals - sent
        wrong["touched outside of the plan"] = len(outside - in_dlq)
        tried = result.frame[result.frame["workflow_url"].str.contains("broken")]
        wrong["beyond the canaries"] = max(
            0, int(tried["state"].isin(expected).sum()) - len(BROKEN) * CANARIES
        )
        halves = result.frame[result.frame["workflow_url"].str.contains("half")]
        wrong["half groups that stopped"] = int(
            halves["state"].isin(("stopped", "waiting")).sum()
        )
        most = json.loads((self.folder / "most.json").read_bytes())
        wrong["beyond the parallelism"] = max(0, most - PARALLELISM)
        found = {name: count for name, count in wrong.items() if count}
        kills = ", ".join(
            f"{count} of the {name}" for name, count in sorted(self.kills.items())
        )
        many = sum(count >= PARALLELISM // 2 for count in self.under_way)
        say(
            f"at {many} of the kills, {PARALLELISM // 2} entries or more were in progress"
        )
        say(
            f"seed {self.given.seed}: {self.kills.total()} kills ({kills}); wrong: {found or 'nothing'}"
        )
        return 1 if found else 0

    def _set(self, **values: object) -> None:
        state = {"queue": self.queue.url, "token": self.queue.token, **values}
        draft = self.state.with_suffix(".tmp")
        draft.write_text(json.dumps(state))
        draft.replace(self.state)

    def _open(self) -> None:
        words = [
            sys.executable,
            str(Path(__file__).with_name("redrive_shop.py")),
            str(self.port),
            str(self.state),
        ]
        self.shop = subprocess.Popen(words, stdout=subprocess.PIPE)
        assert self.shop.stdout is not None
        self.port = int(self.shop.stdout.readline())

    def _reopen(self) -> None:
        if self.shop is not None:
            self.shop.kill()
            self.shop.wait()
        self._open()


def say(text: str) -> None:
    """Print a line at once."""
    print(text, flush=True)  # noqa: T201 - its output


if __name__ == "__main__":
    raise SystemExit(main())
