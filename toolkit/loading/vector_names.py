"""Check the namespaces, prefixes and ids that a load of vectors names.

For example, a prefix that another prefix covers is dropped, so that no vector is read twice.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from toolkit.base import arguments
from toolkit.base.arguments import nearest
from toolkit.base.errors import UnexpectedResultWarning
from toolkit.service.vectors import (
    IndexInfo,
)

Namespaces = str | Sequence[str]
"""One namespace, several, or "all"."""


Prefixes = str | Sequence[str] | None
"""Prefix of the ids: one, several, or None for all ids."""


def ids_in_namespaces(
    argument: str, ids: Any, namespace: object = None
) -> list[tuple[str, str]]:
    """Return ids with namespaces: the given one, or the column of a frame, or the default.

    >>> ids_in_namespaces("ids", pd.DataFrame({"namespace": ["x", ""], "id": ["a", "b"]}))
    [('x', 'a'), ('', 'b')]
    """
    texts = arguments.texts(argument, ids, column="id")
    wanted = [arguments.unmasked(argument, text) for text in texts]
    if namespace is None and "namespace" in getattr(ids, "columns", ()):
        spaces = arguments.texts(argument, ids, column="namespace", empty=True)
        names = [arguments.unmasked("namespace", name) for name in spaces]
        return list(zip(names, wanted, strict=True))

    one_name = ""
    if namespace is not None:
        name = arguments.text("namespace", namespace)
        one_name = arguments.unmasked("namespace", name)

    return [(one_name, key) for key in wanted]


def warn_unknown_namespace(namespace: str, info: IndexInfo, *, stacklevel: int) -> None:
    """Warn if an index does not count a namespace: it is mistyped, or too new to be counted."""
    for message in unknown_namespace(namespace, info):
        warnings.warn(message, UnexpectedResultWarning, stacklevel=stacklevel)


def unknown_namespace(namespace: str, info: IndexInfo) -> list[str]:
    """Return a message with the nearest namespace if an index does not count a namespace, else no message."""
    if not namespace or not info.namespaces or namespace in info.namespaces:
        return []

    return [
        f"The index has no namespace {namespace[:80]!r}. {nearest(namespace, sorted(info.namespaces))}"
    ]


def named_prefixes(prefix: Prefixes) -> list[str | None]:
    """Return the prefixes of ids, or a single None for all ids."""
    if prefix is None:
        return [None]

    expected = "a prefix, several, or None for all ids"
    return [*_unique_texts("prefix", prefix, expected)]


def named_namespaces(namespace: Namespaces) -> list[str] | None:
    """Return the names of namespaces, or None for all."""
    if isinstance(namespace, str) and namespace == "all":
        return None
    return _unique_texts("namespace", namespace, "a namespace, several, or 'all'")


def without_covered(prefixes: list[str | None]) -> list[str | None]:
    """Drop prefixes that another prefix covers, so that no row is in two ranges.

    For example, of ``["a", "ab", "b"]`` the prefixes ``["a", "b"]`` remain.
    """
    starts = [prefix or "" for prefix in prefixes]
    kept = [start for start in starts if not _is_covered(start, starts)]
    return [start or None for start in kept]


def _is_covered(start: str, others: list[str]) -> bool:
    """Return True if another prefix has all ids with this one."""
    return any(start != other and start.startswith(other) for other in others)


def _unique_texts(name: str, value: str | Sequence[str], expected: str) -> list[str]:
    given = arguments.texts(name, value, empty=True)
    result = list(dict.fromkeys(arguments.unmasked(name, item) for item in given))
    if not result:
        raise arguments.wrong(name, value, expected)

    return result
