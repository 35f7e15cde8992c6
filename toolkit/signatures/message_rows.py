"""Messages of one shape as a table: a row per message, and a column per place of a word.

For example, the messages "no such user ann", "no such user bob" and "disk sda1 is full" have four columns. At
the last place, the table has the words "ann", "bob" and "full".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from toolkit.signatures.words import (
    NAME,
    VALUE,
    Sentence,
    has_letters,
    kinds_of_words,
    value_at,
    without_kinds,
)

Words = tuple[str, ...]


def plain_words_of(sentence: Sentence) -> Words:
    """Return the words that are compared: typed values are equal to one another."""
    if "<" not in "".join(sentence.words):  # no placeholder
        return sentence.words
    return tuple([without_kinds(word) for word in sentence.words])


def places_of_values(words: Sequence[str]) -> tuple[int, ...]:
    """Return the places of learned values, for example (2,) for "no user <value>"."""
    return tuple([place for place, word in enumerate(words) if word == value_at(word)])


def without(words: Sequence[str], places: Iterable[int]) -> Words:
    """Return words with the given places left empty. Messages with equal results differ only at the places.

    >>> without(("no", "such", "user:", "ann"), [2, 3])
    ('no', 'such', ':', '')
    """
    others = list(words)
    for place in places:
        # the sign of a key, else nothing
        others[place] = value_at(words[place])[len(VALUE) :]

    return tuple(others)


def letters_in(words: Iterable[str]) -> int:
    """Return how many words have letters next to their values."""
    return sum(map(has_letters, words))


class MessageRow:
    """A message whose words become values one by one, and the kinds of the words."""

    __slots__ = ("_kinds", "_original_words", "glue", "words")

    def __init__(self, words: Words, glue: Words) -> None:
        self._original_words = words
        self._kinds: list[int] | None = None
        self.words = list(words)
        self.glue = glue

    @property
    def kinds(self) -> list[int]:
        """The kinds of the words. They are computed when they are needed, because few messages are alike."""
        if self._kinds is None:
            self._kinds = list(kinds_of_words(self._original_words, self.glue))
            for position, original in enumerate(self._original_words):
                if self.words[position] != original:
                    self._kinds[position] = NAME  # it is a value by now

        return self._kinds

    def make_value(self, position: int) -> None:
        """Replace a word by a value."""
        self.words[position] = value_at(self.words[position])
        if self._kinds is not None:
            self._kinds[position] = NAME


class MessageTable:
    """Messages of one shape, a row per message and a column per place, with the counts of the words."""

    def __init__(self, rows: list[MessageRow]) -> None:
        self.rows = rows
        self.word_count = len(rows[0].words)
        self._shared: dict[int, list[int]] = {}
        self.columns = [
            Counter(column) for column in zip(*(row.words for row in rows), strict=True)
        ]

    def alike(self, least: int, *, rows_with_word: int = 2) -> list[MessageRow]:
        """Return the rows that have at least `least` words that `rows_with_word` rows have at the same place.

        Only these can be equal except for some words. If every word is random, no row is left, and comparing
        the messages costs next to nothing.

        For example, of "user ann gone", "user bob gone" and "disk sda1 full", the first two have two words
        that two rows have ("user", "gone"), and the third has none.
        """
        shared_words = self._shared_words(rows_with_word)
        return [
            row
            for row, shared in zip(self.rows, shared_words, strict=True)
            if shared >= least
        ]

    def _shared_words(self, rows_with_word: int) -> list[int]:
        """Return for each row how many words `rows_with_word` rows have at the same place."""
        if rows_with_word not in self._shared:
            self._shared[rows_with_word] = self._count_shared_words(rows_with_word)
        return self._shared[rows_with_word]

    def _count_shared_words(self, rows_with_word: int) -> list[int]:
        shared_words = [0 for _ in self.rows]
        for place, counts in enumerate(self.columns):
            if len(counts) == len(self.rows):
                continue  # every word occurs once
            frequent = {
                word for word, count in counts.items() if count >= rows_with_word
            }
            for number, row in enumerate(self.rows):
                if row.words[place] in frequent:
                    shared_words[number] += 1

        return shared_words


def make_values(rows: Iterable[MessageRow], places: Iterable[int]) -> None:
    """Replace the words of rows at some places by values."""
    listed = list(places)
    for row in rows:
        for place in listed:
            row.make_value(place)
