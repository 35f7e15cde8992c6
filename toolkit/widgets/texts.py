"""Texts for small places."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence


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


def whole_number(text: str) -> int | None:
    """The whole number that a person typed, with commas between thousands or without; None for other texts.

    Examples
    --------
    >>> whole_number("1,000"), whole_number("12"), whole_number("1,2")
    (1000, 12, None)
    """
    found = re.fullmatch(r"[0-9]{1,9}|[0-9]{1,3}(?:,[0-9]{3}){1,2}", text)
    return int(text.replace(",", "")) if found else None


def short_names(names: Sequence[str], longest: int = 60) -> list[str]:
    """Names for small places: without what all addresses share, shortened in the middle, still told apart.

    >>> short_names(["https://shop.example/a/pay", "https://shop.example/a/mail", "x"])
    ['pay', 'mail', 'x']
    >>> short_names(["https://a.example/pay", "http://b.example/pay", "x"], longest=12)
    ['a.exa…le/pay', 'http:…le/pay', 'x']
    """
    shared = shared_start(name for name in names if "://" in name)
    rest = [name.removeprefix(shared).removeprefix("https://") or name for name in names]
    end = longest // 2
    short = [name if len(name) <= longest else f"{name[: longest - end - 1]}…{name[-end:]}" for name in rest]
    seen = Counter(short)
    return [whole if seen[name] > 1 else name for name, whole in zip(short, names, strict=True)]
