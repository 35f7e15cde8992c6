"""Schedules, named queues and URL groups while the service is killed at random moments."""

from __future__ import annotations

import random
import sqlite3
import threading
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from toolkit_service.demo.local_service import LocalService

Server = Any
KILLS, SCHEDULES, MESSAGES = 8, 12, 60
YEARLY = "0 0 1 1 *"


class Schedules:
    """Schedules whose next time is set in the file while the service is away, as often as they were made."""

    def __init__(self, file: Path, now: random.Random) -> None:
        self.file, self.random = file, now
        self.due: Counter[str] = Counter()
        self._set: dict[str, int] = {}

    def again(self) -> None:
        """A time within the next second for each schedule that has passed its last one."""
        with closing(sqlite3.connect(self.file)) as connection, connection:
            for name, next_at in connection.execute(
                "SELECT id, next_at FROM schedules"
            ).fetchall():
                if self._set.get(name) == next_at:
                    continue  # it is still to come
                self._set[name] = round(time.time() * 1000) + self.random.randrange(
                    -500, 1500
                )
                sql = "UPDATE schedules SET next_at = ? WHERE id = ?"
                connection.execute(sql, (self._set[name], name))
                self.due[name] += 1

    def made(self) -> Counter[str]:
        """How many messages each has made, as the log says."""
        made = "SELECT json_extract(entry, '$.scheduleId') FROM events WHERE state = 'CREATED'"
        with closing(sqlite3.connect(self.file)) as connection:
            return Counter(name for (name,) in connection.execute(made) if name)


def _publish(service: LocalService, server: Server, done: threading.Event) -> None:
    """Enqueue and publish one after the other, each until it is acknowledged."""
    for number in range(MESSAGES):
        for path in (f"enqueue/line/{server.url}/line", "publish/all"):
            headers = {
                "Authorization": f"Bearer {service.token}",
                "Service-Deduplication-Id": f"{path} {number}",
            }
            while True:
                try:
                    sent = httpx.post(
                        f"{service.url}/v2/{path}",
                        content=str(number),
                        headers=headers,
                        timeout=5,
                    )
                except httpx.TransportError:
                    time.sleep(0.05)  # it was killed
                else:
                    assert sent.status_code == 200, sent.text
                    break
    done.set()


@pytest.mark.slow
def test_kills_lose_nothing_and_repeat_no_schedule(
    tmp_path: Path, server: Server
) -> None:
    """Each time of a schedule makes one message; a queue keeps its order; each endpoint gets each message."""
    server.always(b"{}")
    numbers, done = random.Random(1), threading.Event()
    with LocalService(tmp_path, time_factor=10_000) as service:
        with httpx.Client(
            base_url=f"{service.url}/v2",
            headers={"Authorization": f"Bearer {service.token}"},
            timeout=30,
        ) as http:
            endpoints = [{"url": f"{server.url}/{name}"} for name in "abc"]
            http.post(
                "/topics/all/endpoints", json={"endpoints": endpoints}
            ).raise_for_status()
            for number in range(SCHEDULES):
                headers = {"Service-Cron": YEARLY, "Service-Schedule-Id": f"s{number}"}
                http.post(
                    f"/schedules/{server.url}/tick", headers=headers
                ).raise_for_status()
        schedules = Schedules(next(tmp_path.rglob("queue.sqlite")), numbers)
        publishing = threading.Thread(target=_publish, args=(service, server, done))
        publishing.start()
        for _ in range(KILLS):
            service.kill()
            schedules.again()
            service.start()
            time.sleep(numbers.uniform(0.05, 0.8))
        until = time.monotonic() + 60
        while not (done.is_set() and schedules.made() == schedules.due) or _pending(
            service
        ):
            assert time.monotonic() < until, (
                done.is_set(),
                schedules.made() - schedules.due,
            )
            time.sleep(0.1)
        publishing.join()
    assert schedules.due.total() > KILLS * SCHEDULES / 2
    arrived: dict[str, list[int]] = {}
    for request in server.requests:
        if request.path != "/tick":
            arrived.setdefault(request.path, []).append(int(request.body))
    assert set(arrived) == {"/line", "/a", "/b", "/c"}
    # a delivery that was under way at a kill may come twice: its first arrival counts
    assert list(dict.fromkeys(arrived["/line"])) == list(range(MESSAGES))
    for path, bodies in arrived.items():
        assert set(bodies) == set(range(MESSAGES)), path
    ticks = {
        request.headers["Service-Message-Id"]
        for request in server.requests
        if request.path == "/tick"
    }
    assert len(ticks) == schedules.due.total()


def _pending(service: LocalService) -> int:
    with closing(
        sqlite3.connect(next(service.data_dir.rglob("queue.sqlite")))
    ) as connection:
        (count,) = connection.execute("SELECT count(*) FROM messages").fetchone()
    return int(count)
