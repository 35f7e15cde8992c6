"""Compare the messages of stack traces that have the same exceptions and the same frame.

Two traces with the same types and the same frame come from one place of the code, so less evidence is
necessary for a value than `templates` asks for. These words of two messages can differ at a place:

| words | example |
|---|---|
| letters in quotes | "the option 'a' was given after 'b'" and "the option 'c' was given after 'd'" |
| constants | "GET at 7 is no name of a node" and "SET at 9 is no name of a node" |
| classes of a failed cast | "shop.Order cannot be cast to …" and "shop.Item cannot be cast to …" |
| messages of one word | "utf8;", "latin-x" and two others of an `IllegalCharsetNameException` |

Other names are compared by `templates` only: in a function that runs each query, `column "price"` and
`column "total"` are two faults, although type and frame are equal. Some errors name the fault in their
message, for example a `NameError` or a `NoSuchMethodError`. Their messages are not compared at all.
"""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from toolkit.signatures.document import NO_FRAME, Document
from toolkit.signatures.message_rows import (
    Words,
    letters_in,
    plain_words_of,
    without,
)
from toolkit.signatures.remembering import Memo
from toolkit.signatures.words import (
    VALUE,
    Sentence,
    is_constant,
    is_letter_in_quotes,
    split_sentence,
    states_failure_key,
    value_at,
)

_NAMING_TYPES: Final = re.compile(
    r"(?:^|[.:\\])(?:NameError|AttributeError|ReferenceError|ImportError|ModuleNotFoundError|NoSuch\w+|NoMethodError"
    r"|ClassNotFoundException|NoClassDefFoundError|Un(?:recognized|known|defined|resolved)\w*)$"
)
"""Errors whose message names the fault: `order_id` and `orderId` in a NameError are two bugs."""

_NAMING_IN_PLACE: Final = re.compile(
    r"(?:^|[.:\\])(?:TypeError|NullPointerException|NullReferenceException)$"
)
"""Errors whose message names the variable. One function can use several variables."""

_CASTS: Final = re.compile(r"(?:ClassCast|InvalidCast)Exception$")
"""Errors whose message names the classes of objects, which differ from one input to the next."""

_CLASS_NAME: Final = re.compile(r"\b(?:[a-z_]\w*+\.){2,}[A-Z]\w*")
"""A class of the program: in "no serializer for com.example.Order", another class is another fault."""

_ERRNO: Final = re.compile(r"E[A-Z]{4,}")
"""A constant of the operating system, such as `EHOSTUNREACH`, which is the error."""


@dataclass(frozen=True)
class TraceTuning:
    """How much evidence makes names values in traces of one place. Set on traces of half of the projects."""

    agreement: int = 4
    """Words with letters that have to agree. With fewer, a message is mostly names."""
    different: int = 2
    """Different messages. The frame already tells that the code is the same."""
    one_word_messages: int = 4
    """Different messages of one word. A program reads two or three keys by their names at one place."""


TUNING: Final = TraceTuning()


def names_the_fault(document: Document) -> bool:
    """Return whether names in the message of a trace are the fault rather than values."""
    if document.kind != "trace":
        return False

    return _types_name_the_fault(document.facts[1:-1]) or any(
        map(_HAS_CLASS_NAME.__getitem__, document.messages)
    )


@lru_cache(maxsize=1 << 12)
def _types_name_the_fault(types: tuple[str, ...]) -> bool:
    return any(map(_NAMING_TYPES.search, types))


_HAS_CLASS_NAME: Final = Memo(lambda message: _CLASS_NAME.search(message) is not None)
"""Whether a message contains the name of a class. Many traces have the same messages."""


def join_traces_of_one_place(
    documents: Iterable[Document], templates: Mapping[str, str]
) -> dict[str, str]:
    """Return the new templates of messages that get one, because traces of one place differ in names only.

    `templates` has the template of each message after all messages were compared.
    """
    messages_of: defaultdict[tuple[str, ...], set[str]] = defaultdict(set)
    for document in documents:
        if document.kind == "trace":
            messages_of[document.facts].update(document.messages)

    joined: dict[str, str] = {}
    for facts, messages in sorted(messages_of.items()):
        if len(messages) == 1 or not _can_be_compared(facts):
            continue
        current = {
            message: joined.get(message, templates[message])
            for message in _without_class_names(facts, messages)
        }
        joined |= _joined(current)

    return joined


def _can_be_compared(facts: tuple[str, ...]) -> bool:
    """Return whether traces with these facts come from one place, and can differ in values."""
    types = facts[1:-1]
    if facts[-1] == NO_FRAME or _types_name_the_fault(types):
        return False

    return not any(map(_NAMING_IN_PLACE.search, types))


def _without_class_names(facts: tuple[str, ...], messages: set[str]) -> list[str]:
    """Return the messages without names of classes, or all messages if a cast failed."""
    if any(map(_CASTS.search, facts[1:-1])):
        return list(messages)
    return list(itertools.filterfalse(_HAS_CLASS_NAME.__getitem__, messages))


def _joined(current: Mapping[str, str]) -> dict[str, str]:
    """Return new templates of messages of one place, whose templates so far are given.

    For example, the skeleton of "the option 'a' is gone" is the words with an empty word in place of "a". The
    message "the option 'b' is gone" has the same skeleton, and both get "the option '<value>' is gone".
    """
    templates = sorted(set(current.values()))
    replaced = _one_value(list(filter(_is_one_word, templates)))
    for alike in _by_skeleton(itertools.filterfalse(_is_one_word, templates)):
        replaced |= _with_values(alike)
    return {
        message: replaced[template]
        for message, template in current.items()
        if template in replaced
    }


def _is_one_word(template: str) -> bool:
    return template != "" and " " not in template


def _one_value(words: list[str]) -> dict[str, str]:
    """Return a value for each message of one word, if enough of them differ."""
    if len(words) < TUNING.one_word_messages:
        return {}
    return dict.fromkeys(words, VALUE)


def _by_skeleton(templates: Iterable[str]) -> list[list[Sentence]]:
    """Return the messages that are equal except for their names, with enough words that agree."""
    alike: defaultdict[tuple[Words, Words], list[Sentence]] = defaultdict(list)
    for template in templates:
        sentence = split_sentence(template)
        skeleton = without(plain_words_of(sentence), _places_of_names(sentence))
        if letters_in(skeleton) >= TUNING.agreement:
            alike[sentence.shape, skeleton].append(sentence)

    return [
        sentences for sentences in alike.values() if len(sentences) >= TUNING.different
    ]


def _places_of_names(sentence: Sentence) -> list[int]:
    """Return the places of words that can differ between traces of one place, for example of constants."""
    before = ("", *sentence.words)
    return [
        place
        for place, word in enumerate(sentence.words)
        if _can_differ(word, before[place], sentence.glue[place][-1:])
    ]


def _can_differ(word: str, before: str, opening: str) -> bool:
    """Return whether a word follows the table of this module. The value of a key such as `code=` does not."""
    if states_failure_key(before):
        return False
    if is_constant(word):
        return _ERRNO.fullmatch(word) is None

    return is_letter_in_quotes(word, opening) or _CLASS_NAME.fullmatch(word) is not None


def _with_values(sentences: list[Sentence]) -> dict[str, str]:
    """Return the template of each sentence, with values at the places at which the sentences differ."""
    columns = zip(*map(plain_words_of, sentences), strict=True)
    places = [place for place, column in enumerate(columns) if len(set(column)) > 1]

    replaced: dict[str, str] = {}
    for sentence in sentences:
        words = list(sentence.words)
        for place in places:
            words[place] = value_at(words[place])
        template = sentence.with_words(sentence.words)
        replaced[template] = sentence.with_words(words)

    return replaced
