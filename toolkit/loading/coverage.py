"""Report which namespaces of an index a load does not read."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from toolkit.service.vectors import IndexInfo
from toolkit.tables.receipt import UNREAD

_NAMED: Final = 5
"""Namespaces in a message at most."""


def unread_namespaces(names: Collection[str], info: IndexInfo) -> dict[str, int]:
    """Return the other namespaces of an index that have vectors, with their counts, by name."""
    counts = sorted(info.namespaces.items())
    return {name: count for name, count in counts if count and name not in names}


def unread_note(names: Collection[str], info: IndexInfo) -> tuple[str, ...]:
    """Return the note of a receipt about the namespaces that a load does not read, if any have vectors."""
    others = unread_namespaces(names, info)
    if not others:
        return ()
    total = sum(others.values())
    return (f"{UNREAD}{total:,} vectors of other namespaces: {_listed(others)}",)


def empty_namespaces(names: Collection[str], info: IndexInfo) -> list[str]:
    """Return a message if the requested namespaces have no vectors, but others have."""
    others = unread_namespaces(names, info)
    has_unknown_name = not set(names) <= {"", *info.namespaces}
    is_empty = not any(info.namespaces.get(name, 0) for name in names)
    if has_unknown_name or not is_empty or not others:
        return []
    subject = "The requested namespaces have"
    if tuple(names) == ("",):
        subject = "The default namespace has"
    elif len(names) == 1:
        subject = f"The namespace {next(iter(names))[:80]!r} has"
    return [
        f"{subject} no vectors. Name one that has, or 'all' for all of them: {_listed(others)}."
    ]


def _listed(counts: dict[str, int]) -> str:
    """Return namespaces with their counts, for example "'docs' (1,200), '' (3)"."""
    named = [f"{name[:80]!r} ({count:,})" for name, count in counts.items()]
    if len(named) > _NAMED:
        named = [*named[:_NAMED], f"… {len(named) - _NAMED:,} more"]
    return ", ".join(named)
