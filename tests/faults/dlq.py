"""A model of a dead letter queue: entries as the service lists them, and the rows they have to become."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from random import Random
from typing import Any
from urllib.parse import parse_qs

from collection import Collection, Position, Version

DAY = 86_400_000
NOW = 1_767_225_600_000
PATH = "/v2/workflows/dlq"
LABELS = ("billing", "eu", "a,b", "spare part")


@dataclass(frozen=True)
class Habits:
    """What this service does its own way.

    Attributes
    ----------
    order : {"newest", "oldest", "random"}
        Of the listing.
    dates : {"created", "failed", "hidden", "ignored"}
        What ``fromDate`` and ``toDate`` are compared with; "hidden" is a time that is not in the entry.
    spread : {"days", "bursts", "millisecond"}
        How the entries lie in time.
    page : int
        Most entries on a page, whatever was requested.
    counts : bool
        Whether a cursor counts entries, so that an entry added before it repeats another.
    """

    order: str
    dates: str
    spread: str
    page: int
    counts: bool = False

    @classmethod
    def drawn(cls, random: Random, entries: int) -> Habits:
        """Some service's; with many entries, its pages are not the smallest."""
        return cls(
            order=random.choice(["newest", "newest", "oldest", "random"]),
            dates=random.choice(
                ["created", "created", "failed", "failed", "hidden", "ignored"]
            ),
            spread=random.choice(["days", "days", "bursts", "millisecond"]),
            page=random.choice([1, 4, 7, 20, 50][entries > 30 :]),
            counts=random.random() < 0.15,
        )


class Dlq(Collection):
    """Entries by the habits of one service."""

    columns = (
        "dlq_id",
        "body",
        "body_base64",
        "created_at",
        "response_status",
        "labels",
        "extra",
    )
    key = ("dlq_id",)

    def __init__(self, random: Random, habits: Habits, entries: int) -> None:
        super().__init__()
        self.habits = habits
        self.counts = habits.counts
        self.beyond = (1 << 60,) if habits.counts else (1 << 60, "~")
        self._random = random
        self._bursts = [NOW - random.randrange(7 * DAY) for _ in range(3)]
        self._made = 0
        for _ in range(entries):
            self.put(self.new())
        self.open_ledger()

    def new(self) -> Version:
        """An entry that was not there, made at any time."""
        self._made += 1
        random = self._random
        failed = {
            "days": lambda: NOW - random.randrange(7 * DAY),
            "bursts": lambda: random.choice(self._bursts) + random.randrange(2000),
            "millisecond": lambda: self._bursts[0],
        }[self.habits.spread]()
        created = failed - (
            random.choice([0, 60_000, DAY])
            if self.habits.spread != "millisecond"
            else 0
        )
        times = {
            "created": created,
            "failed": failed,
            "hidden": created + (hash((self._made,)) % DAY),
        }
        name = f"dlq_{self._made:05d}"
        listed: Position = {
            "newest": lambda: (-created, name),
            "oldest": lambda: (created, name),
            "random": lambda: (random.randrange(10**9), name),
        }[self.habits.order]()
        facts = {"times": times, "labels": random.sample(LABELS, random.randrange(3))}
        return self._version(name, listed, facts)

    def changed(self, version: Version) -> Version:
        """The same entry with other content."""
        return self._version(version.item, version.position, version.facts)

    def select(self, query: str) -> tuple[dict[str, str], Any]:
        """The parameters of a request, and whether an entry matches them."""
        several = parse_qs(query, keep_blank_values=True)
        labels = {
            part for value in several.get("label", []) for part in value.split(",")
        }
        single = {name: values[-1] for name, values in several.items()}
        since, until = (
            int(single.get("fromDate", 0)),
            int(single.get("toDate", 1 << 62)),
        )
        dates = self.habits.dates

        def matches(version: Version) -> bool:
            if labels and not labels & set(version.facts["labels"]):
                return False
            return dates == "ignored" or since <= version.facts["times"][dates] <= until

        return single, matches

    @staticmethod
    def body(rows: list[bytes], cursor: str | None, end: str) -> bytes:
        """A page as the service writes it; `end` is "absent", "null" or "empty"."""
        written = b'{"messages":[' + b",".join(rows) + b"]"
        if cursor is not None or end != "absent":
            shown = cursor if cursor is not None else None if end == "null" else ""
            written += b',"cursor":' + json.dumps(shown).encode()
        return written + b"}"

    def _version(self, name: str, position: Position, facts: dict[str, Any]) -> Version:
        random = self._random
        text = f"body {random.randrange(10**9)} of {name} é"
        expected: dict[str, Any] = {
            "body": text,
            "body_base64": None,
            "created_at": facts["times"]["created"],
            "response_status": random.choice([500, 503, None]),
            "labels": json.dumps(facts["labels"], separators=(",", ":"))
            if facts["labels"]
            else None,
            "extra": None,
        }
        wire: dict[str, Any] = {
            "dlqId": name,
            "createdAt": expected["created_at"],
            "header": {"Content-Type": ["text/plain"]},
            "labels": facts["labels"],
            "body": text,
        }
        if expected["response_status"]:
            wire["responseStatus"] = expected["response_status"]
        odd = random.random()
        plain = True
        if odd < 0.05:
            wire["bodyBase64"] = base64.b64encode(wire.pop("body").encode()).decode()
        elif odd < 0.1:
            raw = random.randbytes(8) + b"\xff"
            wire["bodyBase64"] = base64.b64encode(raw).decode()
            del wire["body"]
            expected["body"], expected["body_base64"] = (
                None,
                base64.b64encode(raw).decode(),
            )
        elif odd < 0.12:
            wire["body"], plain = text + "\udcff", False
            expected["body"], expected["body_base64"] = (
                None,
                base64.b64encode(text.encode() + b"\xff").decode(),
            )
        elif odd < 0.14:
            wire["body"] = text + "\ud800"
            odd_bytes = text.encode() + b"\xed\xa0\x80"
            expected["body"], expected["body_base64"] = (
                None,
                base64.b64encode(odd_bytes).decode(),
            )
        elif odd < 0.2:
            expected["extra"] = {
                "cause": {"code": 2**53 + 1 + random.randrange(9), "of": [{}, {}]}
            }
            wire |= expected["extra"]
        elif odd < 0.22:
            expected["extra"] = {"maxRetries": 2**63 + 1}
            wire |= expected["extra"]
        raw_wire = json.dumps(wire, ensure_ascii=plain).encode(
            "utf-8", "surrogateescape"
        )
        return Version(name, position, raw_wire, expected, facts)
