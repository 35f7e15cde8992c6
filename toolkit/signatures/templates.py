"""Learn which words of messages are values, by comparing messages that agree everywhere else.

Method: messages with the same glue and number of words (see `words`) are compared place by place, in up to
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

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
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
class TemplateTuning:
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


TUNING: Final = TemplateTuning()

_Words = tuple[str, ...]


class _Row:
    """A message whose words become values one by one, and the kinds of the words."""

    __slots__ = ("_kinds", "_original_words", "glue", "words")

    def __init__(self, words: _Words, glue: _Words) -> None:
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
        message: _plain_words(sentence) for message, sentence in sentences.items()
    }
    # by glue: the words of each message, and their template, which is the words themselves at first
    shapes: defaultdict[_Words, dict[_Words, _Words]] = defaultdict(dict)
    for message, words in sorted(plain_words.items()):
        shapes[sentences[message].glue][words] = words
    for glue, templates in shapes.items():
        if len(templates) > 1:
            _generalise(templates, glue)
    templates_of_messages: dict[str, str] = {}
    for message, sentence in sentences.items():
        own = plain_words[message]
        learned = shapes[sentence.glue][own]
        templates_of_messages[message] = _typed_template(sentence, own, learned)
    return templates_of_messages


def _plain_words(sentence: Sentence) -> _Words:
    """Return the words that are compared: typed values are equal to one another."""
    if "<" not in "".join(sentence.words):  # no placeholder
        return sentence.words
    return tuple([without_kinds(word) for word in sentence.words])


def _places_of_values(words: Sequence[str]) -> tuple[int, ...]:
    """Return the places of learned values, for example (2,) for "no user <value>"."""
    return tuple([place for place, word in enumerate(words) if word == value_at(word)])


def _typed_template(sentence: Sentence, own: _Words, shared: _Words) -> str:
    """Return the template as a string. Values that were typed, such as `<ip>`, keep their type."""
    if own == shared:  # as in most messages
        return sentence.with_words(sentence.words)
    words = [
        typed if plain == learned else learned
        for typed, plain, learned in zip(sentence.words, own, shared, strict=True)
    ]
    return sentence.with_words(words)


class KnownTemplates:
    """Templates that were learned earlier: a message keeps the template when other messages arrive."""

    def __init__(self, templates: Sequence[str], exceptions: Mapping[str, str]) -> None:
        self._exceptions = exceptions
        self._by_words: dict[tuple[_Words, _Words], str] = {}
        # by glue, by the positions of values, by all other words: the first template that was learned
        self._by_places: defaultdict[
            _Words, defaultdict[tuple[int, ...], dict[_Words, tuple[int, str]]]
        ] = defaultdict(lambda: defaultdict(dict))
        for order, template in enumerate(templates):
            sentence = split_sentence(template)
            words = _plain_words(sentence)
            self._by_words.setdefault((sentence.glue, words), template)
            places = _places_of_values(sentence.words)
            if places:
                others = _without(words, places)
                self._by_places[sentence.glue][places].setdefault(
                    others, (order, template)
                )

    def find(self, message: str) -> str | None:
        """Return the template of a message: an equal one, else the first learned one that covers it."""
        if message in self._exceptions:
            return self._exceptions[message]
        sentence = split_sentence(message)
        words = _plain_words(sentence)
        equal = self._by_words.get((sentence.glue, words))
        if equal is not None or sentence.glue not in self._by_places:
            return equal
        return self._first_covering(words, sentence.glue)

    def _first_covering(self, words: _Words, glue: _Words) -> str | None:
        """Return the first learned template that is equal to the words except for the values."""
        kinds = kinds_of_words(words, glue)
        covering = []
        for places, templates in self._by_places[glue].items():
            template = templates.get(_without(words, places))
            if template is not None and all(kinds[place] != NEVER for place in places):
                covering.append(template)
        if not covering:
            return None
        _, first = min(
            covering
        )  # each comes with a number, the smallest for the template learned first
        return first


def _without(words: Sequence[str], places: Iterable[int]) -> _Words:
    """Return words with the given places left empty. Messages with equal results differ only at the places.

    >>> _without(("no", "such", "user:", "ann"), [2, 3])
    ('no', 'such', ':', '')
    """
    others = list(words)
    for place in places:
        others[place] = value_at(words[place])[
            len(VALUE) :
        ]  # the sign of a key, else nothing
    return tuple(others)


def _generalise(templates: dict[_Words, _Words], glue: _Words) -> None:
    """Replace values in messages of one shape, in place. `templates` has the template of each message."""
    for _ in range(TUNING.rounds):
        rows = {words: _Row(words, glue) for words in set(templates.values())}
        if not _make_round([rows[words] for words in sorted(rows)]):
            return
        learned = _covered(
            {words: tuple(row.words) for words, row in rows.items()}, glue
        )
        for words, template in templates.items():
            templates[words] = learned[template]


def _make_round(rows: list[_Row]) -> bool:
    """Try each step once, and return whether a word became a value.

    Only messages that are similar enough for a step are compared. For example, two messages of ten words that
    are equal except for one word share nine.
    """
    steps: tuple[Callable[[_MessageTable], bool], ...] = (
        _by_frequency,
        lambda table: _repeated_names(table.alike(2)),
        lambda table: _names_together(table.alike(2, rows_with_word=TUNING.names)),
        lambda table: _one_by_one(table.alike(table.word_count - 1), NAME),
        lambda table: _one_by_one(table.alike(table.word_count - 1), PLAIN),
    )
    table = _MessageTable(rows)
    is_changed = False
    for step in steps:
        if step(table):
            is_changed = True
            table = _MessageTable(rows)  # words are counted again
    return is_changed


class _MessageTable:
    """Messages of one shape, a row per message and a column per place, with the counts of the words."""

    def __init__(self, rows: list[_Row]) -> None:
        self.rows = rows
        self.word_count = len(rows[0].words)
        self._shared: dict[int, list[int]] = {}
        self.columns = [
            Counter(column) for column in zip(*(row.words for row in rows), strict=True)
        ]

    def alike(self, least: int, *, rows_with_word: int = 2) -> list[_Row]:
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


def _by_frequency(table: _MessageTable) -> bool:
    """Make words values that are rare at their places, if most other words of their messages are frequent.

    For example, in a hundred messages "moved volume a to host b" with many volumes and hosts, the words
    "moved", "volume", "to" and "host" are the skeleton.
    """
    most_words = len(table.columns) * 3 // 5 + 1
    skeletons: defaultdict[_Words, list[_Row]] = defaultdict(list)
    for row in table.alike(most_words):
        skeleton = _skeleton(row.words, table.columns, most_words)
        if skeleton is not None:
            skeletons[skeleton].append(row)
    changed = False
    for skeleton, members in skeletons.items():
        places = [place for place, word in enumerate(skeleton) if word == _GAP]
        least = TUNING.plain_words
        if _letters(skeleton) >= TUNING.agreement:
            least = TUNING.plain_words_in_agreement
        if len(members) >= least and all(
            _differ(members, place, least) for place in places
        ):
            changed = True
            _make_values(members, places)
    return changed


_GAP: Final = "\0"
"""A word of a skeleton that is left out. No message contains it."""


def _skeleton(
    words: Sequence[str], columns: list[Counter[str]], most_words: int
) -> _Words | None:
    """Return the frequent words of a message, with gaps for the others; None without gaps or agreement.

    A word is frequent if it occurs at least half as often as the usual word of the message, whose count
    `most_words` words reach. For example, with `most_words=4`:

        words       moved  volume  a  to   host  b
        counts      100    100     1  100  100   5     4 words reach 100, so that 50 is frequent
        skeleton    moved  volume  …  to   host  …
    """
    counts = [column[word] for column, word in zip(columns, words, strict=True)]
    usual = sorted(counts, reverse=True)[most_words - 1]
    if usual < TUNING.plain_words_in_agreement:
        return None
    skeleton = list(words)
    for place, count in enumerate(counts):
        if count * 2 < usual:
            skeleton[place] = _GAP
    gaps = skeleton.count(_GAP)
    if not gaps or _letters(skeleton) < max(TUNING.agreement_in_frequency, gaps):
        return None
    return tuple(skeleton)


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

    For example, "no route from db-a to db-a" and "no route from db-b to db-b".
    """
    alike: defaultdict[tuple[tuple[int, ...], _Words], list[_Row]] = defaultdict(list)
    for row in rows:
        for places in _places_of_repeated_names(row):
            alike[places, _without(row.words, places)].append(row)
    changed = False
    for (places, others), members in alike.items():
        different = {row.words[places[0]] for row in members}
        if (
            len(different) > 1
            and _letters(others) > 1
            and not all(map(is_value, different))
        ):
            changed = True
            _make_values(members, places)
    return changed


def _places_of_repeated_names(row: _Row) -> Iterator[tuple[int, ...]]:
    """Yield the places of each name that a message repeats.

    For example, (3, 5) for "no route from db-a to db-a".
    """
    if len(set(row.words)) == len(row.words):
        return  # as in most messages
    for word, count in Counter(row.words).items():
        if count == 1 or len(word) == 1:
            continue
        repeated = (place for place, other in enumerate(row.words) if other == word)
        places = tuple([place for place in repeated if row.kinds[place] == NAME])
        if len(places) > 1:
            yield places


def _names_together(rows: list[_Row]) -> bool:
    """Make the names of messages values that are equal except for all of their names.

    For example, "user ann moved to db-a", "user bob moved to db-b" and "user eve moved to db-c". If all
    have the same name at a place, the name stays.
    """
    alike: defaultdict[_Words, list[tuple[_Row, tuple[int, ...]]]] = defaultdict(list)
    for row in rows:
        places = tuple([place for place, kind in enumerate(row.kinds) if kind == NAME])
        if places:
            skeleton = _without(row.words, places)
            if _letters(skeleton):
                alike[skeleton].append((row, places))
    changed = False
    for skeleton, members in alike.items():
        places = members[0][1]
        least = TUNING.plain_words
        if _letters(skeleton) >= max(2, len(places)):
            least = TUNING.names
        if len(members) >= least:
            # rarely, messages with names at other places have the same skeleton, such as `:` and `db-1:`
            same_places = [row for row, own_places in members if own_places == places]
            changed |= _make_different_names_values(same_places, places)
    return changed


def _make_different_names_values(rows: list[_Row], places: tuple[int, ...]) -> bool:
    """Make the names at each place values, if enough of them are different."""
    changed = False
    for place in places:
        needed = TUNING.names
        if place == 0:
            needed = TUNING.plain_words  # the first word often states the failure
        different = {row.words[place] for row in rows}
        if len(different) >= needed and not all(map(is_value, different)):
            changed = True
            _make_values(rows, [place])
    return changed


def _one_by_one(rows: list[_Row], kind: int) -> bool:
    """Make a word a value, if messages are equal except for it and have enough different words there."""
    # Messages are equal except for a place if the hashes of the words before and after it are equal:
    #
    #     place     0        1        2        3
    #     word      no       such     user     ann
    #     before    0        h1       h2       h3        h1 = hash((0, "no")), h2 = hash((h1, "such")), …
    #     after     k3       k2       k1       0         k1 = hash((0, "ann")), k2 = hash((k1, "user")), …
    #
    # "no such user ann" and "no such user bob" share the key (3, h3, 0). So a dictionary finds them in a time
    # that grows with the number of words. Comparing each two messages would take the square of their number.
    alike: defaultdict[tuple[int, int, int], list[_Row]] = defaultdict(list)
    for row in rows:
        before = list(accumulate(row.words, _chained, initial=0))
        after = 0
        for place in reversed(range(len(row.words))):
            if row.kinds[place] == kind or is_value(row.words[place]):
                alike[place, before[place], after].append(row)
            after = _chained(after, row.words[place])
    changed = False
    for (place, _, _), members in alike.items():
        if len(members) > 1 and _is_place_of_values(members, place, kind):
            changed = True
            _make_values(members, [place])
    return changed


def _chained(chain: int, word: str) -> int:
    """Return the hash of a chain of words and one more word."""
    return hash((chain, word))


def _is_place_of_values(rows: list[_Row], place: int, kind: int) -> bool:
    """Return whether messages that are equal except for one place have enough different words there."""
    different = {row.words[place] for row in rows}
    if len(different) == 1:
        return False
    has_value = any(map(is_value, different))
    needed = _needed_words(rows[0].words, place, kind, has_value=has_value)
    return needed is not None and len(different) >= needed


def _needed_words(
    words: Sequence[str], place: int, kind: int, *, has_value: bool
) -> int | None:
    """Return how many different words make a place a value; None if no number does.

    `has_value` tells that another message has a value at the place already.
    """
    agreeing = _letters(words[:place]) + _letters(words[place + 1 :])
    if agreeing == 0:
        return None
    if place == 0 or agreeing == 1:
        # one word agrees with anything, and the first word often states the failure
        is_sure = agreeing > 1 if place == 0 else kind == NAME
        return TUNING.plain_words if is_sure else None
    if has_value and agreeing >= TUNING.agreement_with_values:
        return TUNING.keyed_names
    if kind == NAME:
        is_keyed = takes_names(words[place - 1]) or has_value
        return TUNING.keyed_names if is_keyed else TUNING.names
    if has_value:
        return TUNING.plain_words_with_values
    if agreeing >= TUNING.agreement:
        return TUNING.plain_words_in_agreement
    return TUNING.plain_words


def _covered(rows: dict[_Words, _Words], glue: _Words) -> dict[_Words, _Words]:
    """Give messages that a template of other messages covers this template, the one with the most values.

    For example, "no such user ann at <value>" gets "no such user <value> at <value>" if other messages have
    this template.
    """
    places_of = {words: _places_of_values(words) for words in rows.values()}
    covering: defaultdict[tuple[int, ...], dict[_Words, _Words]] = defaultdict(dict)
    for words in sorted(places_of, reverse=True):
        places = places_of[words]
        if places:
            covering[places][_without(words, places)] = words
    # a message is covered if it is equal to a template with the same places left out. Templates with more
    # values come first, because they join more messages.
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
    """Return whether none of the words at the places states a failure."""
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
