"""What the server says in one run: pages of a model, spoilt by the run's faults, while the model moves."""

from __future__ import annotations

import json
import threading
import traceback
from collections.abc import Sequence
from random import Random
from typing import Any
from urllib.parse import parse_qsl, urlencode

from clock import Clock
from collection import position_of, token
from dlq import PATH, Dlq
from faults import Fault, Turn
from index import Index
from wire import Exchange, Request, Server


class ModelService:
    """One run's service.

    Parameters
    ----------
    server : Server
    clock : Clock
    model : Dlq or Index
    random : Random
        For the faults and the movement.
    faults : sequence of Fault
    movement : float
        The chance that the model changes before a request.
    """

    def __init__(
        self,
        server: Server,
        clock: Clock,
        model: Dlq | Index,
        random: Random,
        faults: Sequence[Fault],
        movement: float,
    ) -> None:
        self.server, self.clock, self.model, self.random = server, clock, model, random
        self.faults, self.movement = faults, movement
        self.requests = self.responses = 0
        self.wanted_token: str | None = None
        self.end = random.choice(["empty", "empty", "absent", "null"])
        self.oldest_cursor = 0
        self.back = self.surplus_rows = self.padding = 0
        self.beyond = model.beyond
        self.last: dict[str, list[bytes]] = {}
        self.first: dict[str, str] = {}
        self.log: list[str] = []
        self._lock = threading.Lock()

    def begin(self, faults: Sequence[Fault], movement: float) -> None:
        """Reset the counts; from now on, use these faults and these changes."""
        self.requests, self.faults, self.movement = 0, faults, movement
        self.last, self.first = {}, {}

    def calm(self) -> None:
        """No more faults, and no more movement."""
        with self._lock:
            self.faults, self.movement = [], 0.0

    def token(self, position: Any) -> str:
        """A new cursor."""
        return token(position, self.requests)

    def respond(self, request: Request) -> Exchange:
        """The response to a request, from any thread."""
        with self._lock:
            try:
                return self._answer(request)
            except Exception:  # noqa: BLE001 - the run says so, on its own thread
                self.log.append(f"BROKEN {traceback.format_exc()}")
                return Exchange(status=500)

    def _answer(self, request: Request) -> Exchange:
        if request.path.endswith("/info") and isinstance(self.model, Index):
            return Exchange(body=self.model.info())
        if "/trap" in request.path:
            self.log.append("TRAPPED")
        self.requests += 1
        self.responses += 1
        if self.movement and self.random.random() < self.movement:
            self._move()
        return self._page(request)

    def _move(self) -> None:
        model, random = self.model, self.random
        for _ in range(random.randint(1, 4)):
            # a counting cursor skips entries when others are removed: no reader can know
            kind = random.choice(
                ["add", "change"] if model.counts else ["add", "remove", "change"]
            )
            if kind == "add":
                model.put(model.new())  # type: ignore[arg-type]
            elif model.current:
                chosen = random.choice(list(model.current.values()))
                if kind == "remove":
                    model.remove(chosen.item)
                else:
                    model.put(model.changed(chosen))

    def _page(self, request: Request) -> Exchange:
        authorized = request.headers.get("authorization", "")
        if self.wanted_token and self.wanted_token not in authorized:
            return Exchange(status=401, body=b'{"error": "expired"}')
        if isinstance(self.model, Dlq):
            if not request.path.endswith(PATH):
                return self._single(request.path.rpartition("/")[2])
            asked, matches = self.model.select(request.query)
            cursor, count = asked.get("cursor") or None, int(asked.get("count", 100))
            chain = urlencode(
                sorted(item for item in parse_qsl(request.query) if item[0] != "cursor")
            )
            count = min(count, self.model.habits.page)
        else:
            asked = json.loads(request.body)
            namespace = request.path.rpartition("/range")[2].lstrip("/")
            matches = self.model.select(namespace, asked.get("prefix"))
            cursor, count = asked["cursor"], min(asked["limit"], self.model.page_limit)
            cursor = None if cursor in {"0", ""} else cursor
            chain = f"{namespace}|{asked.get('prefix')}"
        after, issued = position_of(cursor) if cursor else (None, self.requests)
        if issued < self.oldest_cursor:
            return Exchange(status=400, body=b'{"error": "cursor expired"}')
        accepted = request.headers.get("accept-encoding", "")
        turn = Turn(self, self.requests, after, cursor, chain, [], None, accepted)
        return self._spoilt(request, turn, count, matches)

    def _single(self, name: str) -> Exchange:
        version = self.model.current.get(name)
        self.log.append(
            f"{self.requests} {name} alone -> {'there' if version else 'gone'}"
        )
        return (
            Exchange(body=version.wire)
            if version
            else Exchange(status=404, body=b'{"error": "gone"}')
        )

    def _spoilt(
        self, request: Request, turn: Turn, count: int, matches: Any
    ) -> Exchange:
        late = [fault for fault in self.faults if fault.name not in EARLY]
        for fault in self.faults:
            if fault.name in EARLY:
                fault.take(turn)
        found, more = self.model.page(
            turn.after, count + self.surplus_rows, matches, back=self.back
        )
        turn.rows = [version.wire for version in found]
        turn.following = (
            self.token(self.model.behind(found, turn.after, back=self.back))
            if more
            else None
        )
        self.back = self.surplus_rows = 0
        for fault in late:
            fault.take(turn)
        if turn.raw is None:
            self.last[turn.chain] = turn.rows
            if turn.following is not None:
                self.first.setdefault(turn.chain, turn.following)
        body = (
            self.model.body(turn.rows, turn.following, self.end)
            if turn.raw is None
            else turn.raw
        )
        turn.response.body = body[: int(turn.kept * len(body))] + b" " * self.padding
        self.padding = 0
        behind = turn.following and position_of(turn.following)
        self.log.append(
            f"{turn.number} {request.path[-24:]}?{request.query} {request.body.decode()} after {turn.after} "
            f"-> {turn.response.status}, {len(turn.rows)} rows, next {behind}"
        )
        return turn.response


EARLY = {"overlapping pages", "more rows than asked for"}
"""Faults that decide which rows a page has."""
