"""Clients that publish during a soak: they retry until there is a response, and record what was accepted."""

from __future__ import annotations

import http.client
import json
import threading
import time
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from messages import Planned, Planner


@dataclass
class Ledger:
    """What was accepted: the message ids given for each message, by its number."""

    planned: dict[int, Planned] = field(default_factory=dict)
    accepted: dict[int, str] = field(default_factory=dict)
    repeated: int = 0
    problems: list[str] = field(default_factory=list)


class Publishers:
    """Threads that publish whatever they are allowed to.

    A call whose response was lost is repeated with the same deduplication ids until there is a response:
    whether it had been accepted is not known, and it must not be accepted twice.

    Parameters
    ----------
    service : str
        Base address; the server may stop at any time, and restarts at the same one.
    token : str
    destination : str
        Base address.
    planner : Planner
    count : int
        How many threads.
    """

    def __init__(
        self,
        service: str,
        token: str,
        destination: str,
        planner: Planner,
        count: int = 3,
    ) -> None:
        self.ledger = Ledger()
        self._service = urlsplit(service).netloc
        self._token = token
        self._destination = destination
        self._planner = planner
        self._lock = threading.Lock()
        self._allowed = 0
        self._ending = threading.Event()
        self._threads = [
            threading.Thread(target=self._publish_on, daemon=True) for _ in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def allow(self, messages: int) -> None:
        """Let them publish up to about so many from now."""
        with self._lock:
            self._allowed = messages

    def finish(self, seconds: float) -> None:
        """Complete the calls in progress, and end."""
        self._ending.set()
        deadline = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0, deadline - time.monotonic()))
            if thread.is_alive():
                self.ledger.problems.append(
                    "a publish got no response although the service was running"
                )

    def _publish_on(self) -> None:
        connection = http.client.HTTPConnection(self._service, timeout=30)
        while not self._ending.is_set():
            with self._lock:
                call = self._planner.call() if self._allowed > 0 else []
                self._allowed -= len(call)
                self.ledger.planned |= {message.number: message for message in call}
            if call:
                self._publish(connection, call)
            else:
                time.sleep(0.002)
        connection.close()

    def _publish(
        self, connection: http.client.HTTPConnection, call: list[Planned]
    ) -> None:
        path, headers, body = self._request(call)
        lost = 0
        while True:
            try:
                connection.request("POST", path, body, headers)
                response = connection.getresponse()
                text = response.read()
                break
            except (OSError, http.client.HTTPException):
                connection.close()
                lost = 1
                time.sleep(0.01)
        with self._lock:
            self.ledger.repeated += lost
            if response.status != http.client.OK:
                self.ledger.problems.append(
                    f"a publish got the status {response.status}: {text[:200]!r}"
                )
                return
            said = json.loads(text)
            for message, taken in zip(
                call, said if isinstance(said, list) else [said], strict=True
            ):
                self.ledger.accepted[message.number] = taken["messageId"]

    def _request(self, call: list[Planned]) -> tuple[str, dict[str, str], bytes]:
        bearer = {"Authorization": f"Bearer {self._token}"}
        target = f"{self._destination}/work"
        if len(call) == 1:
            return (
                f"/v2/publish/{target}",
                call[0].headers(self._destination) | bearer,
                call[0].body,
            )
        items = [
            {
                "destination": target,
                "headers": message.headers(self._destination),
                "body": message.body.decode(),
            }
            for message in call
        ]
        return "/v2/batch", bearer, json.dumps(items).encode()
