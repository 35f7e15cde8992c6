"""Clients that run a plan in processes of their own and are killed: with copied ledgers, or with two."""

from __future__ import annotations

import itertools
import os
import random
import shutil
import signal
import string
import time
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pandas as pd

import toolkit as tk
from tests.redrive.conftest import Shop
from toolkit.redrive.ledger import Ledger, _Change
from toolkit.redrive.running import new_run_id, run_redrive

_CONTEXT = get_context("forkserver")
LEDGER = "redrive.sqlite"


@dataclass(frozen=True)
class Kill:
    """When a client is killed: at a change of its ledger (before or after it was stored), or after a time."""

    change: int | None = None
    stored: bool = False
    seconds: float = 0


@dataclass(frozen=True)
class Clients:
    """Clients of one plan."""

    shop: Shop
    plan: tk.RedrivePlan
    folder: Path
    kills: Counter[str] = field(default_factory=Counter)
    """Kills that struck a running client, and attempts that came after a client had ended by itself."""

    @property
    def struck(self) -> int:
        """Return how many kills struck a running client."""
        return self.kills["while it ran"]

    def start(
        self, machine: Path, data_home: Path, kill: Kill | None = None
    ) -> ForkServerProcess:
        """Start a client whose ledger is in the folder `machine`."""
        path = self.folder / "plan.json"
        if not path.exists():
            self.plan.save(path)
        machine.mkdir(exist_ok=True)
        _CONTEXT.set_forkserver_preload([__name__])
        queue = self.shop.queue
        given = (queue.url, queue.token, path, machine / LEDGER, data_home, kill)
        process = _CONTEXT.Process(target=_run, args=given)
        process.start()
        return process

    def killed_with_copies(self, kills: Iterable[Kill]) -> tk.results.RedriveResult:
        """Kill a client at each of these points; the next continues with a copy of the file alone."""
        machine = self.folder / "machine-0"
        for number, kill in enumerate(itertools.chain(kills, (None,))):
            process = self.start(machine, self.folder / f"data-{number}", kill)
            if kill and kill.change is None:
                time.sleep(kill.seconds)
                process.kill()
            process.join(300)
            assert process.exitcode in ({0} if kill is None else {0, -signal.SIGKILL})
            if kill:
                self._count(was_running=process.exitcode == -signal.SIGKILL)
            following = self.folder / f"machine-{number + 1}"
            following.mkdir()
            if (machine / LEDGER).exists():
                shutil.copyfile(machine / LEDGER, following / LEDGER)
            machine = following
            if process.exitcode == 0:
                break  # the plan has run to its end: later kills would meet clients without work
        return tk.read_redrive_status(machine / LEDGER)

    def killed_with_two_ledgers(
        self, pauses: Iterable[float], seed: float
    ) -> list[tk.results.RedriveResult]:
        """Run the plan with two ledgers at once, on one machine; kill either client after each pause."""
        chosen = random.Random(seed)
        machines = [self.folder / name for name in ("first", "second")]
        data = self.folder / "data"
        running = [self.start(machine, data) for machine in machines]
        for pause in pauses:
            time.sleep(pause)
            alive = [
                number for number, process in enumerate(running) if process.is_alive()
            ]
            if not alive:
                break  # both have run the plan to its end
            number = chosen.choice(alive)
            victim = running[number]
            victim.kill()
            victim.join()
            self._count(was_running=victim.exitcode == -signal.SIGKILL)
            running[number] = self.start(machines[number], data)
        for process in running:
            process.join(600)
            assert process.exitcode == 0
        return [tk.read_redrive_status(machine / LEDGER) for machine in machines]

    def _count(self, *, was_running: bool) -> None:
        self.kills["while it ran" if was_running else "after its end"] += 1

    def wrong(self, results: Sequence[tk.results.RedriveResult]) -> dict[str, int]:
        """Return what was done twice, or is reported otherwise than it is; empty if all is right."""
        wrong: Counter[str] = Counter()
        listed = set(tk.load_failures(self.shop.service, progress=False)["dlq_id"])
        states = [
            result.frame.set_index("dlq_id")["state"].to_dict() for result in results
        ]
        for entry in self.plan.acted.to_dict("records"):
            dlq_id, action = entry["dlq_id"], entry["action"]
            seen = {state[dlq_id] for state in states}
            if action == "failure function":
                times = self.shop.called[dlq_id]
                wrong["functions called twice"] += times > 1
                wrong["functions called without a word"] += times > 0 and seen <= {
                    "skipped",
                    "waiting",
                }
                wrong["functions said to be called"] += times == 0 and bool(
                    seen & {"called", "failed again"}
                )
            elif action == "delete":
                wrong["deletes reported otherwise"] += "deleted" not in seen
                wrong["not deleted"] += dlq_id in listed
            else:
                wrong["runs delivered twice"] += (
                    self.shop.delivered[new_run_id(self.plan.hash, dlq_id)] != 1
                )
                wrong["runs reported otherwise"] += "succeeded" not in seen
        return {name: count for name, count in wrong.items() if count}


def mixed_plan(shop: Shop, name: str, count: int, workflows: int) -> tk.RedrivePlan:
    """A plan that calls failure functions of so many workflows, resumes and deletes; so many of each.

    A group in which the first outcome is unknown is stopped, hence several groups of failure functions.
    """
    # letters, because numbers make no groups of their own
    endings = [
        "".join(pair) for pair in itertools.product(string.ascii_lowercase, repeat=2)
    ]
    functions = [f"{name}-function-{ending * 3}" for ending in endings[:workflows]]
    failed = {
        "failure function": [
            shop.fail_with_function(each, count // workflows) for each in functions
        ]
    }
    failed |= {
        action: [shop.fail(f"{name}-{action}", count)]
        for action in ("resume", "delete")
    }
    shop.mended.add(f"{name}-resume")
    everything = pd.concat([frame for frames in failed.values() for frame in frames])
    groups = tk.plan_redrive(everything).frame.set_index("dlq_id")["group"]
    chosen: dict[Hashable, str] = {}
    for action, frames in failed.items():
        for frame in frames:
            chosen |= dict.fromkeys(groups[frame["dlq_id"]], action)
    shop.called.clear()
    return tk.plan_redrive(everything, actions=chosen, stop_above=1, wave=4)  # type: ignore[arg-type]


def _run(
    url: str, token: str, plan: Path, ledger: Path, data_home: Path, kill: Kill | None
) -> None:
    """Run a plan: what a client does until it is killed."""
    os.environ["XDG_DATA_HOME"] = os.environ["XDG_CONFIG_HOME"] = str(data_home)
    if kill and kill.change is not None:
        _kill_at(kill.change, stored=kill.stored)
    read = tk.RedrivePlan.read(plan)
    service = tk.connect(queue_url=url, queue_token=token)
    run_redrive(service, read, ledger=ledger, confirm=read.confirmation, progress=False)


def _kill_at(change: int, *, stored: bool) -> None:
    """Kill this process when its ledger stores a change for so many times, before or after that."""
    commit, seen = Ledger._commit, Counter[str]()

    def counting(self: Ledger, changes: Sequence[_Change]) -> None:
        seen["changes"] += 1
        if seen["changes"] == change and not stored:
            os.kill(os.getpid(), signal.SIGKILL)
        commit(self, changes)
        if seen["changes"] == change:
            os.kill(os.getpid(), signal.SIGKILL)

    Ledger._commit = counting  # type: ignore[method-assign]
