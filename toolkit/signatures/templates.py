"""Learn which words of messages are values, by comparing messages that agree everywhere else.

Method: messages with the same glue and number of words (see `words`) are compared place by place, in up to
three rounds. A round makes words values in four ways, each in one function:

1. `_by_frequency`: most words of a message are frequent at their places, and the rest differ.
2. `_repeated_names`: one name stands at several places, and other messages have other names there.
3. `_names_together`: messages are equal except for all of their names.
4. `_one_by_one`: messages are equal except for one word.

For example, "no such user ann", "no such user bob" and "no such user eve" are equal except for a word after
"user", which looks like a name, so their template is "no such user <value>".

How many different words make a place a value depends on how much the words look like names, and on how much
of the message agrees: see `Tuning`. Words that state a failure, such as "refused", never become values, so
that two failures stay two. A message without a template keeps its own words.

Source: comparing messages by places is the idea of IPLoM (Makanju et al., 2009) and Drain (He et al., 2017).
Neither is used as published, because both merge messages whose difference is the failure.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from toolkit.signatures.words import (
    NAME,
    NEVER,
    PLAIN,
    VALUE,
    Sentence,
    has_letters,
    is_value,
    kinds_of_words,
    split_sentence,
    takes_names,
    value_at,
    without_kinds,
    word_kind,
)


@dataclass(frozen=True)
class Tuning:
    """How many different words make a place a value. Set on public logs and on errors of our own writing."""

    names: int = 3
    """Words that look like names."""
    keyed_names: int = 2
    """Names after a key that takes names, such as `topic:`, or where a value is known already."""
    plain_words: int = 12
    """Words of the language, if little of the message agrees. Also for the first word of a message."""
    plain_words_in_agreement: int = 6
    """Words of the language, if at least `agreement` other words agree."""
    plain_words_with_values: int = 3
    """Words of the language at a place where other messages have a value."""
    agreement: int = 4
    """Words with letters that have to agree for the smaller number of plain words."""
    agreement_with_values: int = 3
    """Words with letters that have to agree where one other word joins a known value."""
    agreement_in_frequency: int = 3
    """Words with letters that frequent words have to include."""
    rounds: int = 3
    """Rounds after which nothing changed on any set of messages."""


TUNING: Final = Tuning()

_Words = tuple[str, ...]


class _Row:
    """A message while it is learned: its words, which become values one by one, and their kinds."""

    __slots__ = ("_kinds", "_original_words", "glue", "words")

    def __init__(self, words: _Words, glue: _Words) -> None:
        self._original_words = words
        self._kinds: list[int] | None = None
        self.words = list(words)
        self.glue = glue

    @property
    def kinds(self) -> list[int]:
        """The kinds of the words. They are found when they are needed, because few messages are alike."""
        if self._kinds is None:
            self._kinds = list(kinds_of_words(self._original_words, self.glue))
            for position, (word, original) in enumerate(zip(self.words, self._original_words, strict=True)):
                if word != original:
                    self._kinds[position] = NAME
        return self._kinds

    def make_value(self, position: int) -> None:
        self.words[position] = value_at(self.words[position])
        if self._kinds is not None:
            self._kinds[position] = NAME


def learn(messages: Iterable[str]) -> dict[str, str]:
    """Return the template of each message with placeholders. The order of messages does not matter.

    >>> found = learn(f"no such user {name} here" for name in ("ann", "bob", "eve", "joe"))
    >>> set(found.values())
    {'no such user <value> here'}
    """
    sentences = {message: split_sentence(message) for message in set(messages)}
    plain_words = {
        message: _plain_words(sentence) if "<" in message or "<id>" in sentence.words else sentence.words
        for message, sentence in sentences.items()
    }
    shapes: defaultdict[_Words, dict[_Words, _Words]] = defaultdict(dict)
    for message, words in sorted(plain_words.items()):
        shapes[sentences[message].glue][words] = words
    for glue, templates in shapes.items():
        if len(templates) > 1:
            _generalise(templates, glue)
    templates_of_messages = {}
    for message, sentence in sentences.items():
        own = plain_words[message]
        shared = shapes[sentence.glue][own]
        if own == shared:  # as most messages
            templates_of_messages[message] = sentence.with_words(sentence.words)
        else:
            templates_of_messages[message] = _typed_template(sentence, own, shared)
    return templates_of_messages


def _plain_words(sentence: Sentence) -> _Words:
    """Return the words that are compared: typed values are equal to one another."""
    return tuple([without_kinds(word) for word in sentence.words])


def _typed_template(sentence: Sentence, own: _Words, shared: _Words) -> str:
    """Return the template as text. Values that were typed, such as `<ip>`, keep their type."""
    words = [
        typed if plain == learned else learned
        for typed, plain, learned in zip(sentence.words, own, shared, strict=True)
    ]
    return sentence.with_words(words)


class KnownTemplates:
    """Templates that were learned earlier: a message keeps its template when other messages come."""

    def __init__(self, templates: Sequence[str], exceptions: Mapping[str, str]) -> None:
        self._exceptions = exceptions
        self._by_words: dict[tuple[_Words, _Words], str] = {}
        # by glue, by the positions of values, by all other words: the first template that was learned
        self._by_places: defaultdict[_Words, defaultdict[tuple[int, ...], dict[_Words, tuple[int, str]]]] = (
            defaultdict(lambda: defaultdict(dict))
        )
        for order, template in enumerate(templates):
            sentence = split_sentence(template)
            words = _plain_words(sentence)
            self._by_words.setdefault((sentence.glue, words), template)
            places = tuple(n for n, word in enumerate(sentence.words) if word == value_at(word))
            if places:
                others = _without(words, places)
                self._by_places[sentence.glue][places].setdefault(others, (order, template))

    def find(self, message: str) -> str | None:
        """Return the template of a message: an equal one, else the first learned one that covers it."""
        if message in self._exceptions:
            return self._exceptions[message]
        sentence = split_sentence(message)
        words = _plain_words(sentence)
        equal = self._by_words.get((sentence.glue, words))
        if equal is not None or sentence.glue not in self._by_places:
            return equal
        kinds = kinds_of_words(words, sentence.glue)
        covering = []
        for places, templates in self._by_places[sentence.glue].items():
            template = templates.get(_without(words, places))
            if template is not None and all(kinds[place] != NEVER for place in places):
                covering.append(template)
        return min(covering)[1] if covering else None


def _without(words: Sequence[str], places: Iterable[int]) -> _Words:
    """Return words with the given places left empty."""
    others = list(words)
    for place in places:
        others[place] = value_at(words[place])[len(VALUE) :]  # the sign of a key, else nothing
    return tuple(others)


def _generalise(templates: dict[_Words, _Words], glue: _Words) -> None:
    """Replace values in messages of one shape, in place."""
    for _ in range(TUNING.rounds):
        rows = {words: _Row(words, glue) for words in set(templates.values())}
        listed = [rows[words] for words in sorted(rows)]
        steps: tuple[Callable[[_Table], bool], ...] = (
            _by_frequency,
            lambda table: _repeated_names(table.alike(2)),
            lambda table: _names_together(table.alike(2, rows_with_word=TUNING.names)),
            lambda table: _one_by_one(table.alike(table.word_count - 1), NAME),
            lambda table: _one_by_one(table.alike(table.word_count - 1), PLAIN),
        )
        table = _Table(listed)
        is_changed = False
        for step in steps:
            if step(table):
                is_changed = True
                table = _Table(listed)  # words are counted again
        if not is_changed:
            return
        learned = _covered({words: tuple(row.words) for words, row in rows.items()}, glue)
        for words, template in templates.items():
            templates[words] = learned[template]


class _Table:
    """Messages of one shape, a row per message and a column per place, with the counts of the words."""

    def __init__(self, rows: list[_Row]) -> None:
        self.rows = rows
        self.word_count = len(rows[0].words)
        self._shared: dict[int, list[int]] = {}
        self.columns = [Counter(column) for column in zip(*(row.words for row in rows), strict=True)]

    def alike(self, least: int, *, rows_with_word: int = 2) -> list[_Row]:
        """Return the rows that share at least so many words, at the same places, with enough other rows.

        Only these can be equal except for some words. If every word is random, no row is left, so that
        comparing such messages costs next to nothing.
        """
        shared_words = self._shared_words(rows_with_word)
        return [row for row, shared in zip(self.rows, shared_words, strict=True) if shared >= least]

    def _shared_words(self, rows_with_word: int) -> list[int]:
        """Return for each row how many of its words stand at their places in so many rows."""
        if rows_with_word not in self._shared:
            shared_words = [0] * len(self.rows)
            for place, counts in enumerate(self.columns):
                if len(counts) < len(self.rows):
                    frequent = {word for word, count in counts.items() if count >= rows_with_word}
                    for number, row in enumerate(self.rows):
                        if row.words[place] in frequent:
                            shared_words[number] += 1
            self._shared[rows_with_word] = shared_words
        return self._shared[rows_with_word]


def _by_frequency(table: _Table) -> bool:
    """Make words values that are rare at their places, if most other words of their messages are frequent.

    For example, in a hundred messages "Receiving block blk_<n> src: <host>" with three different sources, the
    words "Receiving", "block" and "src:" are the skeleton.
    """
    columns = table.columns
    middle = len(columns) * 3 // 5  # the words above this rank are "most"
    skeletons: defaultdict[_Words, list[_Row]] = defaultdict(list)
    for row in table.alike(middle + 1):
        counts = [column[word] for column, word in zip(columns, row.words, strict=True)]
        usual = sorted(counts, reverse=True)[middle]
        if usual < TUNING.plain_words_in_agreement:
            continue
        skeleton = tuple(
            [word if count * 2 >= usual else "\0" for word, count in zip(row.words, counts, strict=True)]
        )
        gaps = skeleton.count("\0")
        if gaps and _letters(skeleton) >= max(TUNING.agreement_in_frequency, gaps):
            skeletons[skeleton].append(row)
    changed = False
    for skeleton, members in skeletons.items():
        places = [place for place, word in enumerate(skeleton) if word == "\0"]
        least = TUNING.plain_words
        if _letters(skeleton) >= TUNING.agreement:
            least = TUNING.plain_words_in_agreement
        if len(members) >= least and all(_differ(members, place, least) for place in places):
            changed = True
            _make_values(members, places)
    return changed


def _differ(rows: list[_Row], place: int, least: int) -> bool:
    """Return whether the words at a place are different enough, and none of them states a failure."""
    kinds = {row.kinds[place] for row in rows}
    if NEVER in kinds:
        return False
    if kinds == {NAME} and place:
        least = TUNING.names
    return len({row.words[place] for row in rows}) >= least


def _repeated_names(rows: list[_Row]) -> bool:
    """Make a name a value that stands at several places, if another message has another name at all of them.

    For example, "moved a.txt: a.txt is locked" and "moved b.txt: b.txt is locked".
    """
    alike: defaultdict[tuple[tuple[int, ...], _Words], list[_Row]] = defaultdict(list)
    for row in rows:
        if len(set(row.words)) == len(row.words):
            continue
        for word, count in Counter(row.words).items():
            if count == 1 or len(word) == 1:
                continue
            places = tuple(
                place for place, other in enumerate(row.words) if other == word and row.kinds[place] == NAME
            )
            if len(places) > 1:
                alike[places, _without(row.words, places)].append(row)
    changed = False
    for (places, others), members in alike.items():
        different = {row.words[places[0]] for row in members}
        if len(different) > 1 and _letters(others) > 1 and not all(map(is_value, different)):
            changed = True
            _make_values(members, places)
    return changed


def _names_together(rows: list[_Row]) -> bool:
    """Make the names of messages values that are equal except for all of their names."""
    alike: defaultdict[_Words, list[tuple[_Row, tuple[int, ...]]]] = defaultdict(list)
    for row in rows:
        places = tuple(place for place, kind in enumerate(row.kinds) if kind == NAME)
        if places:
            skeleton = _without(row.words, places)
            if _letters(skeleton):
                alike[skeleton].append((row, places))
    changed = False
    for skeleton, members in alike.items():
        places = members[0][1]
        is_agreement = _letters(skeleton) >= max(2, len(places))
        least = TUNING.names if is_agreement else TUNING.plain_words
        if len(members) < least:
            continue
        listed = [row for row, own_places in members if own_places == places]
        for place in places:
            needed = TUNING.names if place else TUNING.plain_words
            different = {row.words[place] for row in listed}
            if len(different) >= needed and not all(map(is_value, different)):
                changed = True
                _make_values(listed, [place])
    return changed


def _one_by_one(rows: list[_Row], kind: int) -> bool:
    """Make a word a value, if messages are equal except for it and have enough different words there."""
    # messages are equal except for a place if the hashes of the words before and after it are equal
    alike: defaultdict[tuple[int, int, int], list[_Row]] = defaultdict(list)
    for row in rows:
        before = [0]
        for word in row.words:
            before.append(hash((before[-1], word)))
        after = 0
        for place in range(len(row.words) - 1, -1, -1):
            if row.kinds[place] == kind or is_value(row.words[place]):
                alike[place, before[place], after].append(row)
            after = hash((after, row.words[place]))
    changed = False
    for (place, _, _), members in alike.items():
        if len(members) > 1 and _is_place_of_values(members, place, kind):
            changed = True
            _make_values(members, [place])
    return changed


def _is_place_of_values(rows: list[_Row], place: int, kind: int) -> bool:
    """Return whether messages that are equal except for one place have enough different words there."""
    different = {row.words[place] for row in rows}
    if len(different) == 1:
        return False
    words = rows[0].words
    agreeing = _letters(words[:place]) + _letters(words[place + 1 :])
    has_value = any(is_value(word) for word in different)
    if place == 0:
        return agreeing > 1 and len(different) >= TUNING.plain_words
    if agreeing < 2:  # noqa: PLR2004 - one word agrees with anything
        return agreeing == 1 and kind == NAME and len(different) >= TUNING.plain_words
    if has_value and agreeing >= TUNING.agreement_with_values:
        return kind == NAME or len(different) >= TUNING.keyed_names
    if kind == NAME:
        is_keyed = takes_names(words[place - 1]) or has_value
        return len(different) >= (TUNING.keyed_names if is_keyed else TUNING.names)
    if has_value:
        return len(different) >= TUNING.plain_words_with_values
    if agreeing >= TUNING.agreement:
        return len(different) >= TUNING.plain_words_in_agreement
    return len(different) >= TUNING.plain_words


def _covered(rows: dict[_Words, _Words], glue: _Words) -> dict[_Words, _Words]:
    """Give messages that a template of other messages covers this template, the one with the most values."""
    places_of = {
        words: tuple(n for n, word in enumerate(words) if word == value_at(word)) for words in rows.values()
    }
    covering: defaultdict[tuple[int, ...], dict[_Words, _Words]] = defaultdict(dict)
    for words in sorted(places_of, reverse=True):
        places = places_of[words]
        if places:
            covering[places][_without(words, places)] = words
    widest_first = sorted(covering, key=lambda places: (-len(places), places))

    def widest(words: _Words) -> _Words:
        for places in widest_first:
            if len(places) <= len(places_of[words]):
                break
            template = covering[places].get(_without(words, places))
            if template is not None and _can_be_values(words, places, glue):
                return template
        return words

    return {message: widest(words) for message, words in rows.items()}


def _can_be_values(words: _Words, places: tuple[int, ...], glue: _Words) -> bool:
    before = ("", *words)
    return all(word_kind(words[n], before[n], glue[n][-1:]) != NEVER for n in places)


def _make_values(rows: Iterable[_Row], places: Iterable[int]) -> None:
    listed = list(places)
    for row in rows:
        for place in listed:
            row.make_value(place)


def _letters(words: Iterable[str]) -> int:
    """Return how many words have letters next to their values."""
    return sum(map(has_letters, words))
