"""JSON merge patches, for updates of metadata."""

from __future__ import annotations

from typing import Any


def merge(target: Any, patch: Any) -> Any:
    """A JSON merge patch (RFC 7396): null takes a field out, objects merge, everything else replaces.

    >>> merge({"a": 1, "b": {"c": 2, "d": 3}}, {"a": None, "b": {"c": 4}})
    {'b': {'c': 4, 'd': 3}}
    """
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge(merged.get(name), value)
    return merged
