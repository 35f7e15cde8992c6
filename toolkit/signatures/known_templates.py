"""Find the template of a message among the templates that were learned earlier, and join some of them.

Templates are joined if later messages show that a word of theirs is a value. For example, "no stock for
apples" and "no stock for pears" were learned as two templates. Together with the later message "no stock for
plums", they become "no stock for <value>".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from toolkit.signatures.message_rows import (
    Words,
    places_of_values,
    plain_words_of,
    without,
)
from toolkit.signatures.templates import learn
from toolkit.signatures.words import (
    NEVER,
    as_compared,
    has_letters,
    kinds_of_words,
    split_sentence,
)


class KnownTemplates:
    """Templates that were learned earlier: a message keeps the template when other messages arrive.

    `exceptions` has the messages that another template covers first. `joined` has the templates that became
    part of another one, and the other one.
    """

    def __init__(
        self,
        templates: Sequence[str],
        exceptions: Mapping[str, str],
        joined: Mapping[str, str],
    ) -> None:
        self._exceptions = exceptions
        self._joined = joined
        self._by_words: dict[tuple[Words, Words], str] = {}
        # by shape, by the positions of values, by all other words: the first template that was learned
        self._by_places: defaultdict[
            Words, defaultdict[tuple[int, ...], dict[Words, tuple[int, str]]]
        ] = defaultdict(lambda: defaultdict(dict))

        for order, template in enumerate(templates):
            sentence = split_sentence(template)
            words = plain_words_of(sentence)
            self._by_words.setdefault((sentence.shape, words), template)

            places = places_of_values(sentence.words)
            if places:
                others = without(words, places)
                self._by_places[sentence.shape][places].setdefault(
                    others, (order, template)
                )

    def find_all(
        self, messages: Iterable[str], *, joined: bool = True
    ) -> dict[str, str]:
        """Return the templates of the messages that a learned template covers.

        Without `joined`, these are the templates before any were joined.
        """
        templates: dict[str, str] = {}
        for message in messages:
            template = self.find(message, joined=joined)
            if template is not None:
                templates[message] = template

        return templates

    def find(self, message: str, *, joined: bool = True) -> str | None:
        """Return the template of a message: an equal one, else the first learned one that covers it."""
        if message in self._exceptions:
            return self._exceptions[message]

        template = self._equal_or_covering(message)
        if template is None or not joined:
            return template
        return self._joined.get(template, template)

    def _equal_or_covering(self, message: str) -> str | None:
        sentence = split_sentence(message)
        words = plain_words_of(sentence)
        equal = self._by_words.get((sentence.shape, words))
        if equal is not None or sentence.shape not in self._by_places:
            return equal

        return self._first_covering(words, sentence.shape)

    def joined_by(self, messages: Collection[str]) -> dict[str, str]:
        """Return the templates that new messages join, with the template that they become part of.

        Similar templates are compared with the messages, as if they were messages.
        """
        if not messages:
            return {}

        templates = self._similar(messages)
        learned = learn([*messages, *templates])

        return {
            template: learned[template]
            for template in templates
            if as_compared(learned[template]) != as_compared(template)
        }

    def _similar(self, messages: Iterable[str]) -> list[str]:
        """Return the templates of the same shape as a message that have a word of it at the same place.

        Other templates cannot become equal to a message. There can be thousands of them, for example of
        bodies that no template covers, and comparing these with one another would take seconds per sync.
        """
        words_by_shape: defaultdict[Words, set[tuple[int, str]]] = defaultdict(set)
        for message in messages:
            sentence = split_sentence(message)
            words_by_shape[sentence.shape].update(
                (place, word)
                for place, word in enumerate(plain_words_of(sentence))
                if has_letters(word)
            )

        return [
            template
            for (shape, words), template in self._by_words.items()
            if template not in self._joined
            and shape in words_by_shape
            and not words_by_shape[shape].isdisjoint(enumerate(words))
        ]

    def _first_covering(self, words: Words, shape: Words) -> str | None:
        """Return the first learned template that is equal to the words except for the values."""
        kinds = kinds_of_words(words, shape)
        covering = []
        for places, templates in self._by_places[shape].items():
            template = templates.get(without(words, places))
            if template is not None and all(kinds[place] != NEVER for place in places):
                covering.append(template)

        if not covering:
            return None

        # each comes with a number, the smallest for the template learned first
        _, first = min(covering)
        return first
