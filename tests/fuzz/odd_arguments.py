"""Calls of every public function with any values in any of their arguments."""

from __future__ import annotations

import os
import string
import sys
from pathlib import Path
from random import Random
from typing import Any

from matplotlib.figure import Figure
from odd_columns import ODD_CELLS, odd_column
from odd_services import quick_retries
from outcome import outcome

import toolkit as tk
from toolkit_service.demo.local_service import LocalService

sys.path.append(str(Path(__file__).parent.parent))
from test_public_calls import CALLED, CALLS, WRONG, World, call


class Arguments:
    """The class of cases: one to three arguments of a valid call are something else."""

    name = "arguments"

    def __init__(self, scratch: Path) -> None:
        os.chdir(scratch)
        quick_retries()
        self._running = LocalService(
            indexes=["dense:dense:2:EUCLIDEAN", "hybrid:hybrid:2:COSINE"]
        )
        running = self._running.__enter__()
        token: dict[str, Any] = {
            "queue_token": running.token,
            "vector_token": running.token,
        }
        service, hybrid = (
            tk.connect(
                queue_url=running.url,
                vector_url=running.vector_urls[name],
                environ={},
                **token,
            )
            for name in ("dense", "hybrid")
        )
        self.world = World(service, hybrid, service, f"{running.url}/nothing")
        tk.write_snapshot(self.world.vectors, "written")

    def case(self, random: Random) -> tuple[str, str, str | None]:
        """One call: its name, what it came to, and what was wrong."""
        name = random.choice(sorted(CALLS))
        base = random.choice(CALLS[name](self.world))
        changed: dict[str, Any] = {"ax": Figure().add_subplot()} if "ax" in base else {}
        for argument in random.sample(
            sorted(base), min(len(base), random.choice([1, 1, 2, 3]))
        ):
            value = odd_argument(random)
            if not (argument in CALLED and callable(value)):
                changed[argument] = value
        word, wrong = outcome(lambda: call(name, base | changed), type(None))
        if wrong is not None:
            shown = {name: repr(value)[:200] for name, value in changed.items()}
            wrong = f"{name}({shown}): {wrong}"
        return name, word, wrong


def odd_argument(random: Random, depth: int = 0) -> Any:
    """Any value, sometimes a collection of them."""
    way = random.randrange(8)
    if way == 0 and depth < 3:
        made = [odd_argument(random, depth + 1) for _ in range(random.randrange(4))]
        return random.choice([made, tuple(made)])
    if way == 1 and depth < 3:
        return {
            random.choice(["a", "id", "vector", "indices", 5, ""]): odd_argument(
                random, depth + 1
            )
        }
    if way == 2:
        return "".join(
            random.choices(
                string.printable + "é☃\u202e\ud800\0", k=random.randrange(12)
            )
        )
    if way == 3:
        return odd_column(random, random.randrange(4))
    if way == 4:
        return random.choice(
            [
                random.randrange(-10, 10),
                random.uniform(-2, 2),
                10 ** random.randrange(400),
            ]
        )
    return random.choice(random.choice([list(WRONG.values()), ODD_CELLS]))
