"""Shorten addresses by the beginning that they share. Panels need this without the fonts of plots."""

from __future__ import annotations

from collections.abc import Sequence
from os.path import commonprefix


def without_prefix(names: Sequence[str]) -> tuple[list[str], str]:
    """Remove the common prefix of addresses, up to a slash. Return all names, and the prefix.

    >>> without_prefix(["https://a.example/flows/pay", "https://a.example/flows/ship", "other (3)"])
    (['pay', 'ship', 'other (3)'], 'https://a.example/flows/')
    """
    addresses = {name for name in names if "://" in name}
    if len(addresses) < 2:  # noqa: PLR2004 - one address alone stays unchanged
        return list(names), ""

    prefix = commonprefix(sorted(addresses))  # noqa: RUF071 - cut at a slash below
    prefix = prefix[: prefix.rfind("/") + 1]
    short = {address: address.removeprefix(prefix) or "/" for address in addresses}

    return list(map(short.get, names, names)), prefix
