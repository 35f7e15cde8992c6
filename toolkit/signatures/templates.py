"""Words that vary between otherwise equal messages become a placeholder, too.

A word is a value when many messages that agree everywhere else differ in it. How many is many depends on
how much the word looks like one: a name in quotes, behind ``user`` or ``host``, or spelled like an
identifier needs fewer than a plain word of the language. Types of errors, codes and kinds of services never
become values. A
message that no template covers keeps its own words, so that two different failures stay two.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final

from toolkit.signatures.placeholders import PLACEHOLDER

VALUE: Final = "<value>"
MANY_NAMES: Final = 3
"""Different words at one place, from which on a word that looks like a name is a value."""
MANY_WORDS: Final = 12
"""The same for plain words."""
_MANY_BESIDE: Final = 6  # plain words, where much of the message is the same
_MUCH: Final = 4  # words
_Words = tuple[str, ...]
_LONGEST: Final = 60  # words of a message that are compared; longer ones are compared by these
_ROUNDS: Final = 3

_NEVER: Final = re.compile(
    r"(?i:error|exception|fail|fault|timeout|timed|denied|refused|reset|abort|panic|warn|invalid|missing"
    r"|unknown|unexpected|expired"
    r"|exceed|cannot|could|null|undefined|^(?:no|not|none|is|was|to|of|in|on|the|a|an|and|or|by|for|at"
    r"|with|from|name|user|host)$)"
    r"|^[A-Z][A-Z_]{2,}\W*$"
    r"|\w://"  # the kind of service of an address
)
_CUES: Final = frozenset(  # what a name follows
    """
    user username for host hostname server node from to by named name file table column queue topic task
    job customer tenant account region bucket key id class module database db schema index field
    property attribute service container pod namespace volume device interface session client peer
    worker instance group owner email domain zone path url uri endpoint via package service
    """.split()  # noqa: SIM905 - a list of words
)
_PLAIN: Final = re.compile(r"[a-z]+(?:'[a-z]+)?[,.;:!?)\]]*|[A-Z][a-z]+[,.;:!?)\]]*")
_ANY: Final = "<>"  # a value of any kind: values of one place can look like different kinds
_PHRASE: Final = re.compile(
    r"""(?:(?:[^\s"'(\[{]|(?<=\w)')*(?:"[^"]{0,200}"|(?<!\w)'[^']{0,200}'|\([^()]{0,200}\)
    |\[[^\[\]]{0,200}\]|\{[^{}]{0,200}\}))+[^\s"'(\[{]*(?!\S)|\S+""",
    re.VERBOSE,
)
_PHRASE_WORDS: Final = 8  # of what is taken for one value; a list can have more
_SAID: Final = 3  # words beside phrases, from which on these are taken for one word each
_EDGES: Final = re.compile(r"^[\"'`(\[{<]+|[\"'`)\]}>,.;:!?]+$")


def _kind(words: Sequence[str], position: int) -> int:
    """0: never a value; 1: looks like a name; 2: a plain word."""
    return _kind_after(words[position], words[position - 1] if position else "")


@lru_cache(maxsize=1 << 16)
def _kind_after(word: str, before: str) -> int:
    bare = _EDGES.sub("", word.replace(_ANY, "") if "<" in word else word)
    if not bare or _NEVER.search(bare):
        return 0
    if bare.isdigit():
        return 2  # codes: other digits are placeholders
    quoted = word[0] in "\"'`[(" and len(word) > 1
    cued = before.endswith("=") or _EDGES.sub("", before).lower() in _CUES
    if quoted or cued or not _PLAIN.fullmatch(word):
        return 1
    return 2


def without_kinds(text: str) -> str:
    """A text whose placeholders do not tell of which kind the values were."""
    return PLACEHOLDER.sub(_ANY, text) if "<" in text else text


def _words(message: str) -> list[str]:
    """The words of a message; what stands in quotes or brackets is one word.

    >>> _words('no rows for [north, east] in "my table"')
    ['no', 'rows', 'for', '[north, east]', 'in', '"my table"']
    """
    plain = message.split(" ")
    if not any(sign in message for sign in "\"'([{"):
        return plain
    words: list[str] = []
    for word in _PHRASE.findall(message):
        parts = word.split(" ")
        words += [word] if len(parts) <= _PHRASE_WORDS or "," in word else parts
    return words if len(words) == len(plain) or sum(" " not in word for word in words) >= _SAID else plain


def _any_words(message: str) -> _Words:
    """The words that are compared."""
    return tuple(without_kinds(word) for word in _words(message)[:_LONGEST])


def learn(messages: Iterable[str]) -> dict[str, str]:
    """The template of each message with placeholders, whatever their order; one that has none is its own.

    >>> found = learn(f"no such user {name} here" for name in ("ann", "bob", "eve", "joe"))
    >>> set(found.values())
    {'no such user <value> here'}
    """
    typed = {message: _words(message)[:_LONGEST] for message in set(messages)}
    plain = {message: tuple(map(without_kinds, words)) for message, words in typed.items()}
    lengths: dict[int, dict[_Words, _Words]] = defaultdict(dict)
    for words in sorted(plain.values()):
        lengths[len(words)][words] = words
    for rows in lengths.values():
        if len(rows) >= MANY_NAMES:
            _generalise(rows)
    return {
        message: " ".join(
            word if own == shared else shared
            for word, own, shared in zip(
                words, plain[message], lengths[len(words)][plain[message]], strict=True
            )
        )
        for message, words in typed.items()
    }


class KnownTemplates:
    """Templates that were learned earlier: a message keeps its template, whatever else comes with it."""

    def __init__(self, templates: Sequence[str], exceptions: Mapping[str, str]) -> None:
        self._exceptions = exceptions
        self._equal: dict[_Words, str] = {}
        self._varied: dict[int, dict[tuple[int, ...], dict[_Words, list[tuple[int, _Words, str]]]]] = (
            defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
        )  # by number of words, by the positions of values, by all other words
        for order, template in enumerate(templates):
            typed, words = _words(template), _any_words(template)
            self._equal.setdefault(words, template)
            values = tuple(position for position, word in enumerate(typed[:_LONGEST]) if VALUE in word)
            if values:
                patterns = tuple(_pattern(typed[position]) for position in values)
                self._varied[len(words)][values][_without(words, values)].append((order, patterns, template))

    def find(self, message: str) -> str | None:
        """The template of a message: one equal to it, else the first learned that covers it."""
        words = _any_words(message)
        known = self._exceptions.get(message) or self._equal.get(words)
        if known is not None or len(words) not in self._varied:
            return known
        covering = [
            (order, template)
            for values, templates in self._varied[len(words)].items()
            for order, patterns, template in templates.get(_without(words, values), ())
            if all(
                _covers(pattern, words, position) for pattern, position in zip(patterns, values, strict=True)
            )
        ]
        return min(covering)[1] if covering else None


def _pattern(word: str) -> str:
    """A word of a template, whose learned values stay apart from typed ones."""
    return VALUE.join(map(without_kinds, word.split(VALUE)))


def _without(words: _Words, values: tuple[int, ...]) -> _Words:
    return tuple("" if position in values else word for position, word in enumerate(words))


def _covers(pattern: str, words: _Words, position: int) -> bool:
    word = words[position]
    return word == pattern.replace(VALUE, _ANY) or bool(
        _kind(words, position) and _word_pattern(pattern).fullmatch(word)
    )


@lru_cache(maxsize=1 << 12)
def _word_pattern(word: str) -> re.Pattern[str]:
    return re.compile(".+".join(map(re.escape, word.split(VALUE))))


def _replace(rows: Iterable[list[str]], position: int) -> None:
    """Make the words at a place values, in place."""
    for words in rows:
        words[position] = _value(words[position])


def _generalise(templates: dict[_Words, _Words]) -> None:
    """Replace, in place, the words of rows of one length that are values."""
    for _ in range(_ROUNDS):
        rows = {words: list(words) for words in set(templates.values())}
        listed = list(rows.values())
        changed = _by_frequency(listed)
        changed = _names_together(_shared(listed, 2)) or changed
        for kind in (1, 2):
            changed = _one_by_one(_shared(listed, len(listed[0]) - 1), kind) or changed
        if not changed:
            return
        shared = _covered({words: tuple(row) for words, row in rows.items()})
        for words, template in templates.items():
            templates[words] = shared[template]


def _covered(rows: dict[_Words, _Words]) -> dict[_Words, _Words]:
    """Messages that a template of others covers get that one, the plainest."""
    places = {words: tuple(n for n, word in enumerate(words) if VALUE in word) for words in rows.values()}
    covering: dict[tuple[int, ...], dict[_Words, _Words]] = defaultdict(dict)
    for words in sorted(places, reverse=True):
        if places[words]:
            covering[places[words]][_without(words, places[words])] = words
    known = sorted(covering, key=lambda values: (-len(values), values))

    def widest(words: _Words) -> _Words:
        for values in known:
            if len(values) <= len(places[words]):
                break
            template = covering[values].get(_without(words, values))
            if template and all(_kind(words, position) or _is_value(words[position]) for position in values):
                return template
        return words

    return {message: widest(words) for message, words in rows.items()}


def _shared(rows: list[list[str]], least: int) -> list[list[str]]:
    """The rows of which so many words stand at the same place in enough others: only those can be alike.

    Where every word is random, that is none of them, which is what makes mining such messages cheap.
    """
    shared = [0] * len(rows)
    for column in zip(*rows, strict=True):
        counts = Counter(column)
        if len(counts) < len(rows):
            places = zip(shared, column, strict=True)
            shared = [number + (counts[word] >= MANY_NAMES) for number, word in places]
    return [row for row, number in zip(rows, shared, strict=True) if number >= least]


def _names_together(rows: list[list[str]]) -> bool:
    """Messages that are equal but for all their names: those names of which there are many are values."""
    alike: dict[tuple[str, ...], list[tuple[list[str], list[int]]]] = defaultdict(list)
    for words in rows:
        names = [position for position in range(len(words)) if _kind(words, position) == 1]
        if names:
            blank = list(words)
            for position in names:
                blank[position] = ""
            if any(map(_says, blank)):
                alike[tuple(blank)].append((words, names))
    changed = False
    for skeleton, members in alike.items():
        said = sum(map(_says, skeleton))
        if len(members) < (MANY_NAMES if said >= max(2, len(members[0][1])) else MANY_WORDS):
            continue
        for position in members[0][1]:
            if len({words[position] for words, _ in members}) >= MANY_NAMES:
                changed = True
                _replace((words for words, _ in members), position)
    return changed


def _one_by_one(rows: list[list[str]], kind: int) -> bool:
    """Messages that are equal but for one word: where there are many such words, they are values."""
    alike: dict[tuple[int, int, int], list[list[str]]] = defaultdict(list)
    for words in rows:
        before = [0]
        for word in words:
            before.append(hash((before[-1], word)))
        after = 0
        for position in range(len(words) - 1, -1, -1):
            if _kind(words, position) == kind or _is_value(words[position]):
                alike[position, before[position], after].append(words)
            after = hash((after, words[position]))
    changed = False
    for (position, _, _), members in alike.items():
        different = {words[position] for words in members}
        said = sum(_says(word) for number, word in enumerate(members[0]) if number != position)
        typed = any(map(_is_value, different))
        plain = MANY_NAMES if typed else MANY_WORDS if said < _MUCH else _MANY_BESIDE
        least = plain if kind == 2 else MANY_NAMES - typed  # noqa: PLR2004
        if len(different) >= least and (said >= 2 or (said and kind == 1 and len(different) >= MANY_WORDS)):  # noqa: PLR2004
            changed = True
            _replace(members, position)
    return changed


def _by_frequency(rows: list[list[str]]) -> bool:
    """Messages of which most words are frequent at their places: where the rest are many, they are values."""
    columns = [Counter(column) for column in zip(*rows, strict=True)]
    alike: dict[tuple[str, ...], list[list[str]]] = defaultdict(list)
    for words in _shared(rows, len(columns) * 3 // 5 + 1):
        counts = [column[word] for column, word in zip(columns, words, strict=True)]
        usual = sorted(counts, reverse=True)[len(counts) * 3 // 5]
        if usual >= _MANY_BESIDE:
            skeleton = tuple(
                word if count * 2 >= usual else "" for word, count in zip(words, counts, strict=True)
            )
            if sum(map(_says, skeleton)) >= max(_SAID, skeleton.count("")) and "" in skeleton:
                alike[skeleton].append(words)
    changed = False
    for skeleton, members in alike.items():
        places = [position for position, word in enumerate(skeleton) if not word]
        many = _MANY_BESIDE if sum(map(_says, skeleton)) >= _MUCH else MANY_WORDS
        if len(members) >= many and all(_are_values(members, position, many) for position in places):
            changed = True
            for position in places:
                _replace(members, position)
    return changed


def _are_values(rows: list[list[str]], position: int, many: int) -> bool:
    """Whether the words at a place of messages that are alike are many, and none of them says what failed."""
    kinds = {1 if _is_value(words[position]) else _kind(words, position) for words in rows}
    return 0 not in kinds and len({words[position] for words in rows}) >= (
        MANY_NAMES if kinds == {1} else many
    )


def _is_value(word: str) -> bool:
    """Whether a word is a value, and nothing else."""
    return "<" in word and not _says(word)


def _says(word: str) -> bool:
    """Whether a word has letters beside its values."""
    return any(map(str.isalpha, word.replace(VALUE, "").replace(_ANY, "") if "<" in word else word))


def _value(word: str) -> str:
    """The placeholder, with the punctuation around the word."""
    bare = _EDGES.sub("", max(word.split(_ANY), key=len))
    return word.replace(bare, VALUE, 1) if bare else VALUE
