"""The four steps that make words of messages values. `templates` explains the method."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, NamedTuple

from toolkit.signatures.message_rows import (
    MessageRow,
    MessageTable,
    Words,
    letters_in,
    make_values,
    without,
)
from toolkit.signatures.words import (
    NAME,
    NEVER,
    PLAIN,
    is_value,
    may_lack_value,
    takes_names,
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
    frequent_share: tuple[int, int] = (3, 5)
    """More than this share of the words of a message has to be frequent, here three of five."""


TUNING: Final = TemplateTuning()


def make_round(rows: list[MessageRow]) -> bool:
    """Try each step once, and return whether a word became a value.

    Only messages that are similar enough for a step are compared. For example, two messages of ten words that
    are equal except for one word share nine.
    """
    steps: tuple[Callable[[MessageTable], bool], ...] = (
        _by_frequency,
        lambda table: _repeated_names(table.alike(2)),
        lambda table: _names_together(table.alike(2, rows_with_word=TUNING.names)),
        lambda table: _one_by_one(table.alike(table.word_count - 1), NAME),
        lambda table: _one_by_one(table.alike(table.word_count - 1), PLAIN),
    )
    table = MessageTable(rows)

    is_changed = False
    for step in steps:
        if step(table):
            is_changed = True
            table = MessageTable(rows)  # words are counted again

    return is_changed


def _by_frequency(table: MessageTable) -> bool:
    """Make words values that are rare at their places, if most other words of their messages are frequent.

    For example, in a hundred messages "moved volume a to host b" with many volumes and hosts, the words
    "moved", "volume", "to" and "host" are the skeleton.
    """
    numerator, denominator = TUNING.frequent_share
    most_words = len(table.columns) * numerator // denominator + 1
    skeletons: defaultdict[Words, list[MessageRow]] = defaultdict(list)

    for row in table.alike(most_words):
        skeleton = _skeleton(row.words, table.columns, most_words)
        if skeleton is not None:
            skeletons[skeleton].append(row)

    changed_members = [
        members
        for skeleton, members in skeletons.items()
        if _fill_gaps(skeleton, members)
    ]
    return bool(changed_members)


def _fill_gaps(skeleton: Words, members: list[MessageRow]) -> bool:
    """Make the words at the gaps of a skeleton values if there are enough of them. Return whether it did."""
    places = [place for place, word in enumerate(skeleton) if word == _GAP]
    least = _needed_plain_words(letters_in(skeleton))
    if len(members) < least:
        return False
    if not all(_differ(members, place, least) for place in places):
        return False

    make_values(members, places)
    return True


_GAP: Final = "\0"
"""A word of a skeleton that is left out. No message contains it."""


def _skeleton(
    words: Sequence[str], columns: list[Counter[str]], most_words: int
) -> Words | None:
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
    if not gaps or letters_in(skeleton) < max(TUNING.agreement_in_frequency, gaps):
        return None

    return tuple(skeleton)


def _differ(rows: list[MessageRow], place: int, least: int) -> bool:
    """Return whether the words at a place are different enough, and none of them states a failure."""
    kinds = {row.kinds[place] for row in rows}
    if NEVER in kinds:
        return False

    if kinds == {NAME} and place:
        least = TUNING.names
    return len({row.words[place] for row in rows}) >= least


def _repeated_names(rows: list[MessageRow]) -> bool:
    """Make a name a value that stands at several places, if another message has another name at all of them.

    For example, "no route from db-a to db-a" and "no route from db-b to db-b".
    """
    alike: defaultdict[tuple[tuple[int, ...], Words], list[MessageRow]] = defaultdict(
        list
    )
    for row in rows:
        for places in _places_of_repeated_names(row):
            alike[places, without(row.words, places)].append(row)

    changed = False
    for (places, others), members in alike.items():
        if _has_other_names(members, places[0]) and letters_in(others) > 1:
            make_values(members, places)
            changed = True

    return changed


def _has_other_names(rows: list[MessageRow], place: int) -> bool:
    """Return whether messages have different words at a place, and not only values of different kinds."""
    different = {row.words[place] for row in rows}
    return len(different) > 1 and not all(map(is_value, different))


def _places_of_repeated_names(row: MessageRow) -> Iterator[tuple[int, ...]]:
    """Yield the places of each name that a message repeats.

    For example, (3, 5) for "no route from db-a to db-a".
    """
    if len(set(row.words)) == len(row.words):
        return  # as in most messages

    for word, count in Counter(row.words).items():
        if count > 1 and len(word) != 1:
            places = _places_of_name(row, word)
            if len(places) > 1:
                yield places


def _places_of_name(row: MessageRow, name: str) -> tuple[int, ...]:
    """Return the places of a word at which it is a name."""
    repeated = [place for place, word in enumerate(row.words) if word == name]
    return tuple([place for place in repeated if row.kinds[place] == NAME])


def _names_together(rows: list[MessageRow]) -> bool:
    """Make the names of messages values that are equal except for all of their names.

    For example, "user ann moved to db-a", "user bob moved to db-b" and "user eve moved to db-c". If all
    have the same name at a place, the name stays.
    """
    alike: defaultdict[Words, list[tuple[MessageRow, tuple[int, ...]]]] = defaultdict(
        list
    )
    for row in rows:
        places = tuple([place for place, kind in enumerate(row.kinds) if kind == NAME])
        skeleton = without(row.words, places)
        if places and letters_in(skeleton):
            alike[skeleton].append((row, places))

    changed = False
    for skeleton, members in alike.items():
        places = members[0][1]
        if len(members) >= _needed_messages(skeleton, places):
            # rarely, messages with names at other places have the same skeleton, such as `:` and `db-1:`
            same_places = [row for row, own_places in members if own_places == places]
            changed |= _make_different_names_values(same_places, places)

    return changed


def _needed_messages(skeleton: Words, places: tuple[int, ...]) -> int:
    """Return how many messages have to be equal except for all of their names."""
    if letters_in(skeleton) >= max(2, len(places)):
        return TUNING.names
    return TUNING.plain_words


def _make_different_names_values(
    rows: list[MessageRow], places: tuple[int, ...]
) -> bool:
    """Make the names at each place values, if enough of them are different."""
    changed = False
    for place in places:
        needed = TUNING.names
        if place == 0:
            needed = TUNING.plain_words  # the first word often states the failure
        different = {row.words[place] for row in rows}
        if len(different) >= needed and _has_other_names(rows, place):
            make_values(rows, [place])
            changed = True

    return changed


def _one_by_one(rows: list[MessageRow], kind: int) -> bool:
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
    alike: defaultdict[tuple[int, int, int], list[MessageRow]] = defaultdict(list)
    for row in rows:
        before = list(accumulate(row.words, _chained, initial=0))
        after = 0
        for place in reversed(range(len(row.words))):
            if _can_be_joined(row, place, kind):
                alike[place, before[place], after].append(row)
            after = _chained(after, row.words[place])

    changed = False
    for (place, _, _), members in alike.items():
        if len(members) > 1 and _is_place_of_values(members, place, kind):
            make_values(members, [place])
            changed = True

    return changed


def _can_be_joined(row: MessageRow, place: int, kind: int) -> bool:
    """Return whether a word has the kind that is compared, is a value already, or is left out."""
    word = row.words[place]
    return row.kinds[place] == kind or not word or is_value(word)


def _chained(chain: int, word: str) -> int:
    """Return the hash of a chain of words and one more word."""
    return hash((chain, word))


def _is_place_of_values(rows: list[MessageRow], place: int, kind: int) -> bool:
    """Return whether messages that are equal except for one place have enough different words there."""
    different = {row.words[place] for row in rows}
    if len(different) == 1:
        return False

    words = rows[0].words
    has_value = any(map(is_value, different))
    if "" in different and may_lack_value(words[place - 1]):
        has_value = True  # as in `tag: , size: 7` and `tag: disk, size: 7`
    evidence = _Evidence(
        agreeing=letters_in(words[:place]) + letters_in(words[place + 1 :]),
        is_first=place == 0,
        is_name=kind == NAME,
        has_value=has_value,
        follows_name_key=place > 0 and takes_names(words[place - 1]),
    )

    return len(different) >= _needed_words(evidence)


class _Evidence(NamedTuple):
    """The evidence that the different words at a place are values."""

    agreeing: int
    """Words with letters that agree in all messages."""
    is_first: bool
    """Whether the place is the first of the message. The first word often states the failure."""
    is_name: bool
    """Whether the words look like names."""
    has_value: bool
    """Whether another message has a value at the place already."""
    follows_name_key: bool
    """Whether the word before is a key such as `topic:`."""


_ANY_NUMBER: Final = 10**9
"""More words than messages have: the place is never one of values."""

_RULES_OF_NEEDED_WORDS: Final[tuple[tuple[Callable[[_Evidence], bool], int], ...]] = (
    (lambda evidence: evidence.agreeing == 0, _ANY_NUMBER),
    # one word agrees with anything
    (lambda evidence: evidence.is_first and evidence.agreeing == 1, _ANY_NUMBER),
    (lambda evidence: evidence.is_first, TUNING.plain_words),
    (lambda evidence: evidence.agreeing == 1 and evidence.is_name, TUNING.plain_words),
    (lambda evidence: evidence.agreeing == 1, _ANY_NUMBER),
    # no route to <ip>, no route to db-1
    (lambda evidence: evidence.is_name and evidence.has_value, TUNING.keyed_names),
    # topic: orders, topic: carts
    (
        lambda evidence: evidence.is_name and evidence.follows_name_key,
        TUNING.keyed_names,
    ),
    # no such user ann, bob, eve
    (lambda evidence: evidence.is_name, TUNING.names),
    # size of <ip> is known, size of disk is known
    (
        lambda evidence: (
            evidence.has_value and evidence.agreeing >= TUNING.agreement_with_values
        ),
        TUNING.keyed_names,
    ),
    (lambda evidence: evidence.has_value, TUNING.plain_words_with_values),
    (
        lambda evidence: evidence.agreeing >= TUNING.agreement,
        TUNING.plain_words_in_agreement,
    ),
)
"""Tests of the evidence, and how many different words are needed. The first true test decides."""


def _needed_words(evidence: _Evidence) -> int:
    """Return how many different words make a place a value."""
    for applies, needed in _RULES_OF_NEEDED_WORDS:
        if applies(evidence):
            return needed
    return TUNING.plain_words


def _needed_plain_words(agreeing: int) -> int:
    """Return how many words of the language make a place a value: fewer if more of the message agrees."""
    if agreeing >= TUNING.agreement:
        return TUNING.plain_words_in_agreement
    return TUNING.plain_words
