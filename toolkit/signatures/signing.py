"""Compute one id for each kind of failure.

Three steps lead from a message to an id:

1. `document_of` reads the body and replaces values by placeholders. For example, "no order 17" becomes
   "no order <num>".
2. `templates.learn` compares the messages with one another, to find values that no rule can recognize. For
   example, "no user ann", "no user bob" and "no user eve" become "no user <value>".
3. `signature_id` hashes the kind of body, the facts (types, codes, the frame) and the templates.

An id must stay the same when more failures arrive. `Learned` keeps the templates of earlier failures for
this, and a snapshot stores them. Only a sync joins templates of earlier failures, if later ones show that
they are one (`Learned.joined_by`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from hashlib import blake2b
from itertools import chain
from operator import attrgetter
from typing import Any, Final, NamedTuple

import msgspec

from toolkit.base.arguments import wrong
from toolkit.base.missing_values import is_missing
from toolkit.signatures.codes import CODE
from toolkit.signatures.document import NO_FRAME, Document
from toolkit.signatures.frame_names import stable_name
from toolkit.signatures.known_templates import KnownTemplates
from toolkit.signatures.placeholders import with_placeholders
from toolkit.signatures.reading import read_document
from toolkit.signatures.remembering import Memo
from toolkit.signatures.templates import learn
from toolkit.signatures.trace_templates import (
    join_traces_of_one_place,
    names_the_fault,
)
from toolkit.signatures.words import as_compared, without_kinds

RULES_VERSION: Final = 8
"""Part of every id. It changes whenever a change of the rules gives some failure another id."""


def error_signatures(texts: Iterable[str | None]) -> list[str]:
    """Return an id for each error message; messages of one kind of failure share an id.

    Log lines, exception messages, response bodies (JSON, HTML) and stack traces are accepted, mixed. Numbers,
    ids, times, paths and line numbers do not change the id of a message, nor does the order of the messages.

    Parameters
    ----------
    texts : iterable of str or None
        Error messages of any length; the first and last 50,000 characters of each are read.

    Returns
    -------
    list of str
        One id per message, in the same order, for example ``s8-5f0c9a3b12de``. None and "" share an id.

    Raises
    ------
    InputError
        If the argument is a single string, or contains a value that is neither a string nor None.

    Examples
    --------
    >>> first, second, third = error_signatures(["no order 17", "no order 4711", "disk full"])
    >>> first == second, first == third
    (True, False)
    """
    if isinstance(texts, str | bytes) or not isinstance(texts, Iterable):
        raise wrong("texts", texts, "an iterable of strings")

    texts_or_none = [text_or_none("texts", text) for text in texts]
    signatures = sign(texts_or_none)
    ids = dict(zip(signatures, ids_of(signatures.values()), strict=True))

    return [ids[text] for text in texts_or_none]


def text_or_none(name: str, text: Any) -> str | None:
    """Return a message, or None for a missing value of pandas. Raise InputError for other values."""
    if isinstance(text, str):
        return text
    if not is_missing(text):
        raise wrong(name, text, "strings or None")

    return None


class Learned(msgspec.Struct, frozen=True):
    """The templates and frames of earlier messages. With them, a message keeps its id when others arrive.

    The template of a message is the first of `templates` that covers it, except for the messages in
    `exceptions`. `frames` maps the errors of minified traces to the frame that they were given. `joined` maps
    templates to the template that they became part of, and `renamed` maps earlier ids to present ones.
    """

    rules_version: int = RULES_VERSION
    templates: tuple[str, ...] = ()
    exceptions: dict[str, str] = {}
    frames: tuple[tuple[tuple[str, ...], str], ...] = ()
    joined: dict[str, str] = {}
    renamed: dict[str, str] = {}

    @property
    def known(self) -> KnownTemplates:
        """Return the templates, for finding the template of a message."""
        return KnownTemplates(self.templates, self.exceptions, self.joined)

    def extended(self, signatures: Iterable[Signature]) -> Learned:
        """Return this with the templates and frames of more signatures; nothing learned earlier changes."""
        listed = list(dict.fromkeys(signatures))
        assigned: dict[str, str] = {}
        for one in listed:
            assigned |= zip(one.document.messages, one.templates, strict=True)
        templates = (
            *self.templates,
            *sorted(set(assigned.values()) - set(self.templates)),
        )
        known = KnownTemplates(templates, self.exceptions, self.joined)
        # messages that another, earlier template covers: they would change their id
        others = {
            message: own
            for message, own in sorted(assigned.items())
            if as_compared(known.find(message) or "") != as_compared(own)
        }
        frames = dict(self.frames)
        for one in listed:
            if one.document.facts[-1:] == (NO_FRAME,):
                frames.setdefault(_error(one.facts, one.templates), one.facts[-1])

        return msgspec.structs.replace(
            self,
            templates=templates,
            exceptions={**self.exceptions, **others},
            frames=tuple(sorted(frames.items())),
        )

    def joined_by(self, documents: Collection[Document]) -> Learned:
        """Return this with templates joined that the messages of new documents show to be one.

        For example, "no stock for apples" and "no stock for pears" become "no stock for <value>" when a
        document has the message "no stock for plums". Earlier messages with these templates get other ids.
        """
        known = self.known
        naming = _messages_of(filter(names_the_fault, documents))
        messages = _messages_of(documents) - naming
        joins = known.joined_by(messages - known.find_all(messages).keys())
        if not joins:
            return self

        def latest(template: str) -> str:
            return joins.get(template, template)

        return msgspec.structs.replace(
            self,
            templates=(
                *self.templates,
                *sorted(set(joins.values()) - set(self.templates)),
            ),
            # a message that is its own template can be of a trace that names the fault: it stays
            exceptions={
                message: template if message == template else latest(template)
                for message, template in self.exceptions.items()
            },
            frames=tuple(
                (tuple(map(latest, error)), frame) for error, frame in self.frames
            ),
            joined={old: latest(new) for old, new in self.joined.items()} | joins,
        )

    def with_renamed(self, ids: Mapping[str, str]) -> Learned:
        """Return this with more ids that became other ids."""
        renamed = {old: ids.get(new, new) for old, new in self.renamed.items()}
        return msgspec.structs.replace(self, renamed=renamed | dict(ids))

    def without_renamed(self, ids: Iterable[str]) -> Learned:
        """Return this without earlier ids that groups have now.

        For example, "no order <num> of ann" became part of "no order <num> of <value>", and later "no order
        pears of ann" is one of "no order <value> of ann", which has the id of the first template.
        """
        present = set(ids)
        renamed = {old: new for old, new in self.renamed.items() if old not in present}
        return msgspec.structs.replace(self, renamed=renamed)

    def only(self, signatures: Iterable[Signature]) -> Learned:
        """Return the templates, exceptions and frames of these signatures. Their ids stay the same."""
        templates: set[str] = set()
        messages: set[str] = set()
        errors: set[tuple[str, ...]] = set()
        ids: set[str] = set()
        for one in signatures:
            ids.add(one.id)
            templates.update(one.templates)
            messages.update(self.exceptions.keys() & set(one.document.messages))
            errors.add(_error(one.facts, one.templates))

        return Learned(
            rules_version=self.rules_version,
            templates=tuple(filter(templates.__contains__, self.templates)),
            exceptions={
                message: template
                for message, template in self.exceptions.items()
                if message in messages
            },
            frames=tuple(frame for frame in self.frames if frame[0] in errors),
            joined={old: new for old, new in self.joined.items() if old in templates},
            renamed={old: new for old, new in self.renamed.items() if new in ids},
        )


def continues(later: Mapping[str, Any], earlier: Mapping[str, Any]) -> bool:
    """Return whether learned rules, as JSON, are earlier ones with `extended`, so that ids of both are equal.

    >>> continues({"templates": ["disk full", "bad token"]}, {"templates": ["disk full"]})
    True
    >>> continues({"templates": ["bad token", "disk full"]}, {"templates": ["disk full"]})
    False
    """
    new, old = (msgspec.convert(learned, Learned) for learned in (later, earlier))
    # a message has the first template that covers it
    has_templates = new.templates[: len(old.templates)] == old.templates
    has_exceptions = new.exceptions.items() >= old.exceptions.items()
    has_frames = set(new.frames) >= set(old.frames)
    # rows that were read earlier still have the ids of templates that were joined later
    is_joined_alike = new.joined == old.joined
    is_same_version = new.rules_version == old.rules_version

    return (
        has_templates
        and has_exceptions
        and has_frames
        and is_joined_alike
        and is_same_version
    )


class Signature(NamedTuple):
    """The facts and templates that identify a kind of failure, and the document that they come from."""

    document: Document
    facts: tuple[str, ...]
    templates: tuple[str, ...]

    @property
    def identity(self) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
        """The kind, the facts and the templates. The id is made from these."""
        return self.document.kind, self.facts, self.templates

    @property
    def id(self) -> str:
        """The id, which is equal if the kind, the facts and the templates are equal."""
        return signature_id(*self.identity)


def ids_of(signatures: Iterable[Signature]) -> list[str]:
    """Return the id of each signature. Many messages share few kinds, so an id is computed once per kind."""
    listed = list(signatures)
    kinds = {one: one.identity for one in dict.fromkeys(listed)}
    ids = {kind: signature_id(*kind) for kind in set(kinds.values())}

    return [ids[kinds[one]] for one in listed]


def sign(
    texts: Iterable[str | None],
    learned: Learned | None = None,
    read: Callable[[str | None], Document] | None = None,
) -> dict[str | None, Signature]:
    """Return the signature of each distinct message. Messages with equal documents share one signature.

    `read` makes the document of a message, by default `document_of`. Templates and frames of `learned` come
    first.
    """
    learned, read = learned or Learned(), read or document_of
    documents = {text: read(text) for text in dict.fromkeys(texts)}
    signatures = sign_documents(dict.fromkeys(documents.values()), learned)

    return {text: signatures[document] for text, document in documents.items()}


def sign_documents(
    documents: Collection[Document], learned: Learned
) -> dict[Document, Signature]:
    """Return the signature of each document."""
    template_of = _templates(documents, learned).__getitem__
    signatures: dict[Document, Signature] = {}
    for document in documents:
        templates = tuple(map(template_of, document.messages))
        signatures[document] = Signature(document, document.facts, templates)

    _complete_frames(signatures, learned)
    return signatures


def _templates(documents: Collection[Document], learned: Learned) -> dict[str, str]:
    """Return the template of each message of documents: a learned one if it covers the message."""
    traces = [document for document in documents if document.kind == "trace"]
    messages = _messages_of(documents)
    # the names in these messages are the fault, so that a comparison must not make them values
    naming = _messages_of(filter(names_the_fault, traces))
    templates = learn(messages - naming)
    templates.update(zip(naming, naming, strict=True))
    templates |= join_traces_of_one_place(traces, templates)
    if learned.templates:
        known = learned.known
        templates |= known.find_all(messages - naming)
        templates |= known.find_all(naming, joined=False)

    return templates


def _messages_of(documents: Iterable[Document]) -> set[str]:
    return set(chain.from_iterable(map(attrgetter("messages"), documents)))


def document_of(text: str | None, clean: Callable[[str], str] = str) -> Document:
    """Return the document of a body, with placeholders.

    `clean` masks each part of the document. It runs after JSON and HTML are decoded, so that an escaped
    secret is found.
    """
    return with_stable_parts(read_document(text), clean)


def with_stable_parts(document: Document, clean: Callable[[str], str]) -> Document:
    """Return a document with clean parts and placeholders, and without the trace."""
    stable_fact = _STABLE_FACTS.__getitem__
    if document.kind == "trace":
        stable_fact = stable_name
    facts = tuple(map(stable_fact, map(clean, document.facts)))
    messages = tuple(map(_STABLE_MESSAGES.__getitem__, map(clean, document.messages)))

    return Document(document.kind, facts, messages)


_STABLE_MESSAGES: Final = Memo(with_placeholders)
"""Messages with placeholders. Bodies with ids of their own often have the same message."""


def _stable_fact(fact: str) -> str:
    """Return a fact with placeholders, unless it is a number or a code such as `40P01` or `ORA-00060`."""
    if fact.isdigit() or not any(map(str.isdigit, fact)) or CODE.fullmatch(fact):
        return fact
    return with_placeholders(fact)


_STABLE_FACTS: Final = Memo(_stable_fact)
"""Facts with placeholders."""


def _error(facts: tuple[str, ...], messages: tuple[str, ...]) -> tuple[str, ...]:
    """Return the facts and messages of a trace without the frame."""
    return (*facts[:-1], "", *messages)


def _frames_by_error(
    traces: Iterable[tuple[tuple[str, ...], tuple[str, ...]]],
) -> dict[tuple[str, ...], str]:
    """Return the frame of each error that occurs with one frame only. A trace is its facts and messages."""
    frames: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for facts, messages in traces:
        if facts[-1] != NO_FRAME:
            frames[_error(facts, messages)].add(facts[-1])

    return {error: found.pop() for error, found in frames.items() if len(found) == 1}


def _complete_frames(signatures: dict[Document, Signature], learned: Learned) -> None:
    """Give traces of minified code the frame of the same error, if only one frame is known. In place."""
    incomplete = [
        document
        for document, one in signatures.items()
        if one.facts[-1:] == (NO_FRAME,)
    ]
    if not incomplete:
        return

    traces = {
        (one.facts, one.templates)
        for one in signatures.values()
        if one.document.kind == "trace"
    }
    frames = _frames_by_error(traces) | dict(learned.frames)
    for document in incomplete:
        one = signatures[document]
        frame = frames.get(_error(one.facts, one.templates), NO_FRAME)
        signatures[document] = one._replace(facts=(*one.facts[:-1], frame))


def signature_id(kind: str, facts: tuple[str, ...], templates: tuple[str, ...]) -> str:
    """Return the id of a kind of failure. It begins with the version of the rules."""
    content = "\x00".join(
        [kind, *map(without_kinds, facts), "\x01", *map(as_compared, templates)]
    )
    return f"s{RULES_VERSION}-{blake2b(content.encode('utf-8', 'surrogatepass'), digest_size=6).hexdigest()}"
