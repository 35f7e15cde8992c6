"""The documents of the sample: notes, runbooks and incident reports with metadata, in three namespaces."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any, Final

from toolkit_service.demo.stories import SEED
from toolkit_service.demo.topics import TOPICS, Topic

NAMESPACES: Final = {"": 400, "runbooks": 1000, "incidents": 600}
"""The number of documents per namespace; "" is the default namespace."""

_KINDS: Final = {"": "note", "runbooks": "runbook", "incidents": "incident"}
_SERVICES: Final = (
    "orders",
    "invoices",
    "stock",
    "accounts",
    "ledger",
    "reports",
    "exports",
    "media",
    "payments",
    "legacy sync",
)
_CITIES: Final = (
    "Izmir",
    "Lisbon",
    "Oslo",
    "Nairobi",
    "Osaka",
    "Quito",
    "Leeds",
    "Zürich",
)
_TEAMS: Final = ("checkout", "platform", "finance", "content")


@dataclass(frozen=True, kw_only=True)
class SampleDocument:
    """One document of the sample; `data` is the text. Some documents lack some fields of metadata."""

    namespace: str
    id: str
    data: str
    metadata: dict[str, Any]

    def to_row(self) -> dict[str, Any]:
        """Return JSON values, as in the sample file."""
        return {
            "namespace": self.namespace,
            "id": self.id,
            "data": self.data,
            "metadata": self.metadata,
        }


def documents(*, seed: int = SEED) -> list[SampleDocument]:
    """Return all documents of the sample, the same for the same seed. Ids are unique within a namespace.

    >>> result = documents()
    >>> len(result), result[0].id, sorted({document.namespace for document in result})
    (2000, 'note-0001', ['', 'incidents', 'runbooks'])
    """
    random = Random(seed)  # noqa: S311 - a sample that must be reproducible
    made: list[SampleDocument] = []
    known_texts: set[str] = set()
    for namespace, count in NAMESPACES.items():
        for number in range(1, count + 1):
            document = _document(namespace, number, random)
            # no text occurs twice: duplicates are planted by the example of a damaged index
            while document.data in known_texts:
                document = _document(namespace, number, random)
            known_texts.add(document.data)
            made.append(document)

    return made


def _document(namespace: str, number: int, random: Random) -> SampleDocument:
    topic, service, city = (
        random.choice(TOPICS),
        random.choice(_SERVICES),
        random.choice(_CITIES),
    )
    kind = _KINDS[namespace]
    tags = random.sample((*topic.tags, "on-call", "eu", "us"), random.randrange(1, 4))
    metadata: dict[str, Any] = {
        "topic": topic.name,
        "city": city,
        "tags": sorted(tags),
        "service": {
            "name": service,
            "team": _TEAMS[_SERVICES.index(service) % len(_TEAMS)],
        },
    }

    # each kind has fields of its own type: numbers, a boolean, a list of objects, or null
    if kind == "incident":
        metadata["severity"] = random.randrange(1, 5)
        metadata["minutes"] = random.randrange(4, 4000) / 4
        metadata["open"] = number % 9 == 0
    elif kind == "runbook":
        metadata["reviewed"] = random.random() < 0.7  # noqa: PLR2004 - a share
        metadata["version"] = random.randrange(1, 30)
        if number % 5 == 0:
            metadata["steps"] = [
                {"minutes": random.randrange(1, 30)}
                for _ in range(random.randrange(1, 4))
            ]
    elif number % 4 == 0:
        metadata["author"] = None

    text = (
        _text(kind, topic, random).replace("{service}", service).replace("{city}", city)
    )
    return SampleDocument(
        namespace=namespace, id=f"{kind}-{number:04}", data=text, metadata=metadata
    )


def _text(kind: str, topic: Topic, random: Random) -> str:
    sign, check, cure = (
        random.choice(topic.signs),
        random.choice(topic.checks),
        random.choice(topic.cures),
    )
    if kind == "note":
        return f"{sign} {random.choice((check, cure))}"
    if kind == "runbook":
        second = random.choice([other for other in topic.checks if other != check])
        return f"When you see this: {sign} First: {check} Then: {second} {cure}"

    return f"At {random.randrange(24):02}:{random.randrange(60):02}: {sign} {check} Helped: {cure}"
