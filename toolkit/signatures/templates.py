"""Learn which words of messages are values, by comparing messages that agree everywhere else.

Method: messages with the same shape and number of words (see `words`) are compared place by place, in up to
three rounds. Each round tries four steps, one after the other:

| step | a word becomes a value if | example |
|---|---|---|
| `_by_frequency` | most other words are frequent at their places | "moved volume a to host b" |
| `_repeated_names` | it repeats, and other messages repeat another name | "no route from db-1 to db-1" |
| `_names_together` | messages are equal except for all of their names | "user ann moved to db-1" |
| `_one_by_one` | messages are equal except for this word | "no such user ann" |

For example, the messages

    no such user ann
    no such user bob
    no such user eve
    no such file a.txt

have four words each. If the word after "user" is left out, the first three are equal. Three different words
that look like names are enough (`TemplateTuning.names`), so their template is "no such user <value>". The
fourth message agrees with no other one in three words, so it keeps its own words.

How many different words make a place a value depends on how much the words look like names, and on how much
of the message agrees: see `TemplateTuning`. If a word states a failure, such as "refused", it never becomes a
value, so that two failures stay two.

Source: comparing messages by places is the idea of IPLoM (Makanju et al., 2009) and Drain (He et al., 2017).
Neither is used as published, because both merge messages whose difference is the failure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from toolkit.signatures.message_rows import (
    MessageRow,
    Words,
    places_of_values,
    plain_words_of,
    without,
)
from toolkit.signatures.value_steps import TUNING, make_round
from toolkit.signatures.words import NEVER, Sentence, split_sentence, word_kind


def learn(messages: Iterable[str]) -> dict[str, str]:
    """Return the template of each message with placeholders. The order of messages does not matter.

    >>> found = learn(f"no such user {name} here" for name in ("ann", "bob", "eve", "joe"))
    >>> set(found.values())
    {'no such user <value> here'}
    """
    sentences = {message: split_sentence(message) for message in set(messages)}
    plain_words = {
        message: plain_words_of(sentence) for message, sentence in sentences.items()
    }
    # by shape: the words of each message, and their template, which is the words themselves at first
    shapes: defaultdict[Words, dict[Words, Words]] = defaultdict(dict)
    for message, words in sorted(plain_words.items()):
        shapes[sentences[message].shape][words] = words
    for shape, templates in shapes.items():
        if len(templates) > 1:
            _generalise(templates, shape)

    templates_of_messages: dict[str, str] = {}
    for message, sentence in sentences.items():
        own = plain_words[message]
        learned = shapes[sentence.shape][own]
        templates_of_messages[message] = _typed_template(sentence, own, learned)

    return templates_of_messages


def _typed_template(sentence: Sentence, own: Words, shared: Words) -> str:
    """Return the template as a string. Values that were typed, such as `<ip>`, keep their type."""
    if own == shared:  # as in most messages
        return sentence.with_words(sentence.words)

    words = [
        typed if plain == learned else learned
        for typed, plain, learned in zip(sentence.words, own, shared, strict=True)
    ]
    return sentence.with_words(words)


def _generalise(templates: dict[Words, Words], glue: Words) -> None:
    """Replace values in messages of one shape, in place. `templates` has the template of each message."""
    for _ in range(TUNING.rounds):
        rows = {words: MessageRow(words, glue) for words in set(templates.values())}
        if not make_round([rows[words] for words in sorted(rows)]):
            return
        learned = _covered(
            {words: tuple(row.words) for words, row in rows.items()}, glue
        )
        for words, template in templates.items():
            templates[words] = learned[template]


def _covered(rows: dict[Words, Words], glue: Words) -> dict[Words, Words]:
    """Give messages that a template of other messages covers this template, the one with the most values.

    For example, "no such user ann at <value>" gets "no such user <value> at <value>" if other messages have
    this template.
    """
    places_of = {words: places_of_values(words) for words in rows.values()}
    covering: defaultdict[tuple[int, ...], dict[Words, Words]] = defaultdict(dict)
    for words in sorted(places_of, reverse=True):
        places = places_of[words]
        if places:
            covering[places][without(words, places)] = words

    # a message is covered if it is equal to a template with the same places left out. Templates with more
    # values come first, because they join more messages.
    widest_first = sorted(covering, key=lambda places: (-len(places), places))

    def widest(words: Words) -> Words:
        for places in widest_first:
            if len(places) <= len(places_of[words]):
                break
            template = covering[places].get(without(words, places))
            if template is not None and _can_be_values(words, places, glue):
                return template

        return words

    return {message: widest(words) for message, words in rows.items()}


def _can_be_values(words: Words, places: tuple[int, ...], glue: Words) -> bool:
    """Return whether none of the words at the places states a failure."""
    before = ("", *words)
    return all(word_kind(words[n], before[n], glue[n][-1:]) != NEVER for n in places)
