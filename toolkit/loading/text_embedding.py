"""Turn strings into queries and rows of an index: by its model, or by a function of the user.

For example, with `embed=model.encode` of a package that you use, the strings are embedded on this machine.
Without it, the index embeds them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from toolkit.base.arguments import wrong
from toolkit.base.errors import InputError
from toolkit.filters.query import VectorQuery

Embed: TypeAlias = Callable[[list[str]], Iterable[Any]]
"""Returns an embedding per string: numbers, or a mapping with `vector`, `sparse` or both."""

_PARTS: Final = {"vector", "sparse"}
_EXPECTED: Final = "numbers, or a mapping with vector and sparse"


def check_embed(embed: Embed | None) -> None:
    """Raise InputError if the argument `embed` cannot be called with strings."""
    if embed is not None and (isinstance(embed, type) or not callable(embed)):
        raise wrong("embed", embed, "a function of a list of strings")


def embeddings(texts: Sequence[str], embed: Embed | None) -> list[dict[str, Any]]:
    """Return the fields of each string that a query or a row needs.

    >>> embeddings(["disk full"], None), embeddings(["disk full"], lambda texts: [[0.5, 0.25]])
    ([{'data': 'disk full'}], [{'vector': [0.5, 0.25]}])
    """
    check_embed(embed)
    if embed is None:
        return [{"data": text} for text in texts]
    if not texts:
        return []

    made = list(embed(list(texts)))
    if len(made) != len(texts):
        raise InputError(
            "embedding strings",
            got=f"{len(made):,} embeddings of {len(texts):,} strings",
            expected="one embedding per string, in the same order",
            next_step="Check the function that was passed as embed.",
        )

    return list(map(_fields, made))


def _fields(embedding: Any) -> dict[str, Any]:
    if not isinstance(embedding, Mapping):
        return {"vector": embedding}
    if not embedding or not embedding.keys() <= _PARTS:
        raise wrong("the result of embed", embedding, _EXPECTED)

    return dict(embedding)


def text_queries(
    texts: Sequence[str], embed: Embed | None, **options: Any
) -> list[VectorQuery]:
    """Return a query per string."""
    return [VectorQuery(**fields, **options) for fields in embeddings(texts, embed)]
