"""One id for each kind of failure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any, Final

import pandas as pd

from toolkit.analysis.signatures.documents import NO_FRAME, Document, read_document
from toolkit.analysis.signatures.placeholders import with_placeholders
from toolkit.analysis.signatures.templates import learn
from toolkit.arguments import wrong

RULES_VERSION: Final = 1
"""Part of every id. It changes whenever a change of the rules gives some failure another id."""


def error_signatures(texts: Iterable[str | None]) -> list[str]:
    """An id for each text, the same for texts of one kind of failure.

    Log lines, exception messages, response bodies (JSON, HTML) and stack traces are accepted, mixed. The id
    does not depend on the numbers, ids, times, paths and line numbers in a text, nor on the order of texts.

    Parameters
    ----------
    texts : iterable of str or None
        Of any length; the first and last 50,000 characters of each are read.

    Returns
    -------
    list of str
        One id a text, in the same order, such as ``s1-5f0c9a3b12de``. None and empty texts share an id.

    Raises
    ------
    InputError
        When `texts` is a single text, or holds something that is neither text nor None.

    Examples
    --------
    >>> first, second, third = error_signatures(["no order 17", "no order 4711", "disk full"])
    >>> first == second, first == third
    (True, False)
    """
    if isinstance(texts, str | bytes) or not isinstance(texts, Iterable):
        raise wrong("texts", texts, "an iterable of texts")
    listed: list[Any] = list(texts)
    for text in listed:
        if not isinstance(text, str) and not (pd.api.types.is_scalar(text) and pd.isna(text)):
            raise wrong("texts", text, "texts, or None where there is none")
    texts_or_none = [text if isinstance(text, str) else None for text in listed]
    distinct = {text: _canonical(read_document(text)) for text in set(texts_or_none)}
    templates = learn(message for _, _, messages in distinct.values() for message in messages)
    named = _frames_by_error(distinct.values(), templates)
    ids = {
        text: _signature(kind, _with_frame(facts, said, named), said)
        for text, (kind, facts, messages) in distinct.items()
        if (said := tuple(templates[message] for message in messages)) is not None
    }
    return [ids[text] for text in texts_or_none]


def _canonical(document: Document) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    return (
        document.kind,
        tuple(
            with_placeholders(fact) if any(sign.isdigit() for sign in fact) and not fact.isdigit() else fact
            for fact in document.facts
        ),
        tuple(with_placeholders(message) for message in document.messages),
    )


def _frames_by_error(
    documents: Iterable[tuple[str, tuple[str, ...], tuple[str, ...]]], templates: dict[str, str]
) -> dict[tuple[str, ...], str]:
    """The frame of each error that occurs with one frame only."""
    frames: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for kind, facts, messages in documents:
        if kind == "trace" and facts[-1] != NO_FRAME:
            frames[(*facts[:-1], "", *(templates[message] for message in messages))].add(facts[-1])
    return {error: found.pop() for error, found in frames.items() if len(found) == 1}


def _with_frame(
    facts: tuple[str, ...], messages: tuple[str, ...], named: dict[tuple[str, ...], str]
) -> tuple[str, ...]:
    """A trace of minified code gets the frame of the same error elsewhere, where that has only one."""
    if facts[-1:] != (NO_FRAME,):
        return facts
    return (*facts[:-1], named.get((*facts[:-1], "", *messages), NO_FRAME))


def _signature(kind: str, facts: tuple[str, ...], messages: tuple[str, ...]) -> str:
    content = "\x00".join([kind, *facts, "\x01", *messages])
    return f"s{RULES_VERSION}-{blake2b(content.encode('utf-8', 'surrogatepass'), digest_size=6).hexdigest()}"
