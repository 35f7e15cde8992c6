"""Find the template of a message among the templates that were learned earlier."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from toolkit.signatures.message_rows import (
    Words,
    places_of_values,
    plain_words_of,
    without,
)
from toolkit.signatures.words import NEVER, kinds_of_words, split_sentence


class KnownTemplates:
    """Templates that were learned earlier: a message keeps the template when other messages arrive."""

    def __init__(self, templates: Sequence[str], exceptions: Mapping[str, str]) -> None:
        self._exceptions = exceptions
        self._by_words: dict[tuple[Words, Words], str] = {}
        # by glue, by the positions of values, by all other words: the first template that was learned
        self._by_places: defaultdict[
            Words, defaultdict[tuple[int, ...], dict[Words, tuple[int, str]]]
        ] = defaultdict(lambda: defaultdict(dict))

        for order, template in enumerate(templates):
            sentence = split_sentence(template)
            words = plain_words_of(sentence)
            self._by_words.setdefault((sentence.glue, words), template)

            places = places_of_values(sentence.words)
            if places:
                others = without(words, places)
                self._by_places[sentence.glue][places].setdefault(
                    others, (order, template)
                )

    def find_all(self, messages: Iterable[str]) -> dict[str, str]:
        """Return the templates of the messages that a learned template covers."""
        templates: dict[str, str] = {}
        for message in messages:
            template = self.find(message)
            if template is not None:
                templates[message] = template

        return templates

    def find(self, message: str) -> str | None:
        """Return the template of a message: an equal one, else the first learned one that covers it."""
        if message in self._exceptions:
            return self._exceptions[message]

        sentence = split_sentence(message)
        words = plain_words_of(sentence)
        equal = self._by_words.get((sentence.glue, words))
        if equal is not None or sentence.glue not in self._by_places:
            return equal

        return self._first_covering(words, sentence.glue)

    def _first_covering(self, words: Words, glue: Words) -> str | None:
        """Return the first learned template that is equal to the words except for the values."""
        kinds = kinds_of_words(words, glue)
        covering = []
        for places, templates in self._by_places[glue].items():
            template = templates.get(without(words, places))
            if template is not None and all(kinds[place] != NEVER for place in places):
                covering.append(template)

        if not covering:
            return None

        # each comes with a number, the smallest for the template learned first
        _, first = min(covering)
        return first
