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


def empty_default_namespace(names: Collection[str], info: IndexInfo) -> list[str]:
    """Return a message if only the default namespace is requested, and only others have vectors."""
    others = unread_namespaces(names, info)
    if tuple(names) != ("",) or info.namespaces.get("", 0) or not others:
        return []

    found = f"The default namespace has no vectors, others have: {_listed(others)}."
    return [f"{found} Name one of them, or 'all'."]


def _listed(counts: dict[str, int]) -> str:
    """Return namespaces with their counts, for example "'docs' (1,200), '' (3)"."""
    named = [f"{name[:80]!r} ({count:,})" for name, count in counts.items()]
    if len(named) > _NAMED:
        named = [*named[:_NAMED], f"… {len(named) - _NAMED:,} more"]
    return ", ".join(named)
