"""Texts for small places."""

from __future__ import annotations

from collections.abc import Iterable


def shared_start(names: Iterable[str]) -> str:
    """What all addresses have in common, up to a slash: in a small place it hides what tells them apart.

    Examples
    --------
    >>> shared_start(["https://shop.example/a/b", "https://shop.example/a/c"])
    'https://shop.example/a/'
    >>> shared_start(["red", "rest"])
    ''
    """
    several = list(names)
    if len(several) < 2:  # noqa: PLR2004 - one name is all shared
        return ""
    first, last = min(several), max(several)  # what these two share, all share
    same = next((place for place, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    shared = first[:same]
    return shared[: shared.rfind("/") + 1] if "://" in shared else ""
