"""What is said of a group of failures: its title, why its members belong together, and how equal they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from toolkit.analysis.wording import counted, shorten
from toolkit.signatures.documents import NO_FRAME, Document
from toolkit.signatures.signing import Signature

_COMPARED: Final = 200  # different documents of a group that its cohesion is measured on
_LANGUAGES: Final = frozenset("python javascript java go ruby dotnet php rust".split())  # noqa: SIM905 - words
_STATUSES: Final = 5


def title_of(signature: Signature) -> str:
    """What a person would call the group."""
    kind, facts, messages = signature.document.kind, signature.facts, signature.templates
    status = next((fact for fact in facts if fact.startswith("status ")), "")
    if kind in ("empty", "binary"):
        return f"{'Empty body' if kind == 'empty' else 'Body that is not UTF-8'}{', ' * bool(status)}{status}"
    if kind == "trace":
        where = "" if facts[-1] == NO_FRAME else f" {facts[-1]}"
        return f"{facts[-2]}{': ' * bool(messages[0])}{messages[0]}{where}"
    if kind == "html":
        return f"{' - '.join(messages)}{f' ({status})' * bool(status)}"
    named = [fact for fact in facts if not any(fact in message for message in messages)]
    named = [fact for fact in named if not fact.startswith("at ") and fact not in _LANGUAGES]
    return ": ".join([*named[:1], *messages[:1]]) if messages else " ".join(facts)


def reason_of(signature: Signature, merged: int, split: str | None) -> str:
    """Why the members of a group belong together."""
    kind, facts = signature.document.kind, signature.facts
    status = next((f" and {fact}" for fact in facts if fact.startswith("status ")), "")
    same = "the same message" + " but for its values" * any(
        "<" in template for template in signature.templates
    )
    if kind == "trace":
        frame = (
            "" if facts[-1] == NO_FRAME else f", first application frame ({facts[-1].removeprefix('at ')})"
        )
        why = f"stack traces of {facts[0]} with the same exceptions ({', '.join(facts[1:-1])}){frame}, {same}"
    elif kind == "json":
        named = [fact for fact in facts if not fact.startswith("status ")]
        parts = [f"the same {'names' if named[:1] == ['keys'] else 'codes and types'}"] * bool(named)
        why = f"JSON with {' and '.join([*parts, *[same] * bool(signature.templates)])}{status}"
    else:
        why = {
            "html": "HTML pages with the same title and heading",
            "empty": "empty bodies",
            "binary": "bodies that are not UTF-8",
        }.get(kind, f"texts with {same}") + (status.replace(" and ", " with ") if kind != "html" else status)
    split_off = f"; split off by a rule: {shorten(split, 100)}" if split else ""
    return why + split_off + (f"; {counted(merged, 'other group')} merged in by a rule" if merged else "")


def status_list(statuses: Counter[str]) -> str:
    """The statuses, the most frequent first."""
    ordered = sorted(statuses, key=lambda status: (-statuses[status], status))
    return ", ".join(ordered[:_STATUSES]) + ", …" * (len(ordered) > _STATUSES)


def cohesion_of(documents: Iterable[tuple[Document, int]]) -> float:
    """How many words members share with the commonest of them, on average (Dice coefficient)."""
    counts: Counter[Document] = Counter()
    for document, count in documents:
        counts[document] += count
    (middle, _), *others = counts.most_common(_COMPARED)
    words = Counter(_words(middle))
    total = same = float(counts[middle])
    for document, count in others:
        own = Counter(_words(document))
        every = words.total() + own.total()
        same += count * (2 * (words & own).total() / every if every else 1.0)
        total += count
    return same / total


def _words(document: Document) -> list[str]:
    return [word for text in (*document.facts, *document.messages) for word in text.split()]
