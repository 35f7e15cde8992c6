"""One id for each kind of failure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import msgspec
import pandas as pd

from toolkit.base.arguments import wrong
from toolkit.signatures.document import NO_FRAME, Document
from toolkit.signatures.placeholders import CODE, with_placeholders
from toolkit.signatures.reading import read_document
from toolkit.signatures.templates import KnownTemplates, learn
from toolkit.signatures.trace_frames import cached, stable_name
from toolkit.signatures.words import without_kinds

RULES_VERSION: Final = 6
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
        One id a text, in the same order, such as ``s6-5f0c9a3b12de``. None and empty texts share an id.

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
    signatures = sign(texts_or_none)
    # most texts are of few kinds, whose ids are made once
    kinds = {text: (one.document.kind, one.facts, one.templates) for text, one in signatures.items()}
    ids = {kind: signature_id(*kind) for kind in set(kinds.values())}
    return [ids[kinds[text]] for text in texts_or_none]


class Learned(msgspec.Struct, frozen=True):
    """What was learned from texts, so that each keeps its id when others come.

    The first template that covers a message is its own, but for the `exceptions`. `frames` are those given to
    traces of minified code, by error.
    """

    rules_version: int = RULES_VERSION
    templates: tuple[str, ...] = ()
    exceptions: dict[str, str] = {}
    frames: tuple[tuple[tuple[str, ...], str], ...] = ()

    def extended(self, signatures: Iterable[Signature]) -> Learned:
        """With what these signatures tell; nothing learned earlier changes."""
        listed = list(signatures)
        assigned = {
            message: template
            for one in listed
            for message, template in zip(one.document.messages, one.templates, strict=True)
        }
        templates = (*self.templates, *sorted(set(assigned.values()) - set(self.templates)))
        known = KnownTemplates(templates, self.exceptions)
        others = {
            message: own
            for message, own in sorted(assigned.items())
            if without_kinds(known.find(message) or "") != without_kinds(own)
        }
        frames = dict(self.frames)
        for one in listed:
            if one.document.facts[-1:] == (NO_FRAME,):
                frames.setdefault(_error(one.facts, one.templates), one.facts[-1])
        return Learned(
            templates=templates,
            exceptions={**self.exceptions, **others},
            frames=tuple(sorted(frames.items())),
        )


_NAMING_TYPES: Final = re.compile(
    r"(?:^|[.:\\])(?:NameError|AttributeError|ReferenceError|ImportError|ModuleNotFoundError|NoSuch\w+|NoMethodError"
    r"|ClassNotFoundException|NoClassDefFoundError|Un(?:recognized|known|defined|resolved)\w*)$"
)
"""Errors whose message names the fault: `order_id` and `orderId` in a NameError are two bugs."""


_CLASS_NAME: Final = re.compile(r"\b(?:[a-z_]\w*\.){2,}[A-Z]\w*")
"""A class of the program: in "no serializer for com.example.Order", another class is another fault."""


def _names_the_fault(document: Document) -> bool:
    """Return whether names in the message of a trace are the fault rather than values."""
    if document.kind != "trace":
        return False
    types, messages = document.facts[1:-1], document.messages
    return any(map(_NAMING_TYPES.search, types)) or any(map(_CLASS_NAME.search, messages))


class Signature(NamedTuple):
    """What makes two texts one kind of failure, and the document (with placeholders) it was found in."""

    document: Document
    facts: tuple[str, ...]
    templates: tuple[str, ...]

    @property
    def id(self) -> str:
        """The same whenever kind, facts and templates are."""
        return signature_id(self.document.kind, self.facts, self.templates)


def sign(
    texts: Iterable[str | None],
    learned: Learned | None = None,
    read: Callable[[str | None], Document] | None = None,
) -> dict[str | None, Signature]:
    """The signature of each distinct text; `read` makes the document of each, by default `document_of`."""
    learned, read = learned or Learned(), read or document_of
    documents = {text: read(text) for text in dict.fromkeys(texts)}
    messages = {message for document in documents.values() for message in document.messages}
    naming = {
        message
        for document in documents.values()
        if _names_the_fault(document)
        for message in document.messages
    }
    templates = learn(messages - naming) | {message: message for message in naming}
    if learned.templates:
        known = KnownTemplates(learned.templates, learned.exceptions)
        templates |= {message: found for message in messages if (found := known.find(message)) is not None}
    said = {text: tuple(templates[one] for one in document.messages) for text, document in documents.items()}
    traces = {
        (document.facts, said[text]) for text, document in documents.items() if document.kind == "trace"
    }
    frames = _frames_by_error(traces) | dict(learned.frames)
    return {
        text: Signature(document, _with_frame(document.facts, said[text], frames), said[text])
        for text, document in documents.items()
    }


def document_of(text: str | None, clean: Callable[[str], str] = str) -> Document:
    """A text with placeholders; `clean` masks what is read once JSON and HTML are decoded."""
    document = read_document(text)
    masked_fact = stable_name if document.kind == "trace" else _fact
    return Document(
        document.kind,
        tuple(map(masked_fact, map(clean, document.facts))),
        tuple(map(with_placeholders, map(clean, document.messages))),
    )


@cached
def _fact(fact: str) -> str:
    """Return a fact with placeholders, unless it is a number or a code such as `40P01` or `ORA-00060`."""
    if fact.isdigit() or not any(map(str.isdigit, fact)) or CODE.fullmatch(fact):
        return fact
    return with_placeholders(fact)


def _error(facts: tuple[str, ...], messages: tuple[str, ...]) -> tuple[str, ...]:
    """What a trace says without its frame."""
    return (*facts[:-1], "", *messages)


def _frames_by_error(
    traces: Iterable[tuple[tuple[str, ...], tuple[str, ...]]],
) -> dict[tuple[str, ...], str]:
    """The frame of each error that occurs with one frame only, from the facts and messages of traces."""
    frames: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for facts, messages in traces:
        if facts[-1] != NO_FRAME:
            frames[_error(facts, messages)].add(facts[-1])
    return {error: found.pop() for error, found in frames.items() if len(found) == 1}


def _with_frame(
    facts: tuple[str, ...], messages: tuple[str, ...], frames: dict[tuple[str, ...], str]
) -> tuple[str, ...]:
    """A trace of minified code gets the frame of the same error elsewhere, where that has only one."""
    if facts[-1:] != (NO_FRAME,):
        return facts
    return (*facts[:-1], frames.get(_error(facts, messages), NO_FRAME))


def signature_id(kind: str, facts: tuple[str, ...], templates: tuple[str, ...]) -> str:
    """The id of a kind of failure, with the version of the rules."""
    content = "\x00".join([kind, *map(without_kinds, facts), "\x01", *map(without_kinds, templates)])
    return f"s{RULES_VERSION}-{blake2b(content.encode('utf-8', 'surrogatepass'), digest_size=6).hexdigest()}"
