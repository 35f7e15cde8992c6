"""Shorten names that must stay distinct, for example addresses in a narrow list."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from toolkit.drawing.shared_prefix import without_prefix


def short_names(names: Sequence[str], longest: int = 60) -> list[str]:
    """Return distinct names for little space: without their common prefix, shortened in the middle.

    >>> short_names(["https://shop.example/a/pay", "https://shop.example/a/mail", "x"])
    ['pay', 'mail', 'x']
    >>> short_names(["https://a.example/pay", "http://b.example/pay", "x"], longest=12)
    ['a.exa…le/pay', 'http:…le/pay', 'x']
    """
    _, shared = without_prefix(names)
    rests = [name.removeprefix(shared) for name in names]
    short = [
        _shortened(rest.removeprefix("https://") or name, longest)
        for rest, name in zip(rests, names, strict=True)
    ]
    seen = Counter(short)

    # Two long names can become equal when they are shortened; these are shown in full.
    return [
        name if seen[shown] > 1 else shown
        for shown, name in zip(short, names, strict=True)
    ]


def _shortened(name: str, longest: int) -> str:
    if len(name) <= longest:
        return name

    end = longest // 2
    return f"{name[: longest - end - 1]}…{name[-end:]}"
