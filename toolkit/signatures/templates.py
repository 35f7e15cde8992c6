"""Words that vary between otherwise equal messages become a placeholder, too.

A word is a value when many messages that agree everywhere else differ in it. How many is many depends on
how much the word looks like one: a name in quotes, behind ``user`` or ``host``, or spelled like an
identifier needs fewer than a plain word of the language. Types of errors and codes never become values. A
message that no template covers keeps its own words, so that two different failures stay two.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final

VALUE: Final = "<value>"
MANY_NAMES: Final = 3
"""Different words at one place, from which on a word that looks like a name is a value."""
MANY_WORDS: Final = 12
"""The same for plain words."""
_Words = tuple[str, ...]
_LONGEST: Final = 60  # words of a message that are compared; longer ones are compared by these
_ROUNDS: Final = 3

_NEVER: Final = re.compile(
    r"(?i:error|exception|fail|fault|timeout|timed|denied|refused|reset|abort|panic|warn|invalid|missing"
    r"|unknown|unexpected|expired"
    r"|exceed|cannot|could|null|undefined|^(?:no|not|none|is|was|to|of|in|on|the|a|an|and|or|by|for|at"
    r"|with|from|name|user|host)$)"
    r"|^[A-Z][A-Z_]{2,}\W*$"
)
_CUES: Final = frozenset(  # what a name follows
    """
    user username for host hostname server node from to by named name file table column queue topic task
    job customer tenant account region bucket key id class module database db schema index field
    property attribute service container pod namespace volume device interface session client peer
    worker instance group owner email domain zone path url uri endpoint
    """.split()  # noqa: SIM905 - a list of words
)
_PLAIN: Final = re.compile(r"[a-z]+(?:'[a-z]+)?[,.;:!?)\]]*|[A-Z][a-z]+[,.;:!?)\]]*")
_PLACEHOLDER: Final = re.compile(r"<\w+>")
_EDGES: Final = re.compile(r"^[\"'`(\[{<]+|[\"'`)\]}>,.;:!?]+$")


def _kind(words: Sequence[str], position: int) -> int:
    """0: never a value; 1: looks like a name; 2: a plain word."""
    return _kind_after(words[position], words[position - 1] if position else "")


@lru_cache(maxsize=1 << 16)
def _kind_after(word: str, before: str) -> int:
    bare = _EDGES.sub("", _PLACEHOLDER.sub("", word) if "<" in word else word)
    if not bare or bare.isdigit() or _NEVER.search(bare):
        return 0
    quoted = word[0] in "\"'`[(" and len(word) > 1
    if quoted or _EDGES.sub("", before).lower() in _CUES or not _PLAIN.fullmatch(word):
        return 1
    return 2


def learn(messages: Iterable[str]) -> dict[str, str]:
    """The template of each message; a message that has none is its own.

    Parameters
    ----------
    messages : iterable of str
        With placeholders for typed values.

    Returns
    -------
    dict of str to str
        In no particular order, the same whatever the order of the messages.

    Examples
    --------
    >>> found = learn(f"no such user {name} here" for name in ("ann", "bob", "eve", "joe"))
    >>> set(found.values())
    {'no such user <value> here'}
    """
    distinct = set(messages)
    lengths: dict[int, dict[_Words, _Words]] = defaultdict(dict)
    for message in sorted(distinct):
        words = tuple(message.split(" "))
        lengths[len(words)][words[:_LONGEST]] = words[:_LONGEST]
    found: dict[str, str] = {}
    for rows in lengths.values():
        if len(rows) >= MANY_NAMES:
            _generalise(rows)
    for message in distinct:
        words = tuple(message.split(" "))
        found[message] = " ".join(lengths[len(words)][words[:_LONGEST]])
    return found


class KnownTemplates:
    """Templates that were learnt earlier: a message keeps its template, whatever else comes with it."""

    def __init__(self, templates: Sequence[str], exceptions: Mapping[str, str]) -> None:
        self._equal = {**{template: template for template in templates}, **exceptions}
        self._varied: dict[int, dict[tuple[int, ...], dict[_Words, list[tuple[int, _Words]]]]] = defaultdict(
            lambda: defaultdict(lambda: defaultdict(list))
        )  # by number of words, by the positions of values, by all other words
        for order, template in enumerate(templates):
            words = tuple(template.split(" "))
            values = tuple(position for position, word in enumerate(words) if VALUE in word)
            if values:
                self._varied[len(words)][values][_without(words, values)].append((order, words))

    def find(self, message: str) -> str | None:
        """The template of a message: one equal to it, else the first learnt that covers it."""
        words = tuple(message.split(" "))[:_LONGEST]
        known = self._equal.get(message) or self._equal.get(" ".join(words))
        if known is not None or len(words) not in self._varied:
            return known
        covering = [
            (order, template)
            for values, templates in self._varied[len(words)].items()
            for order, template in templates.get(_without(words, values), ())
            if all(_covers(template[position], words, position) for position in values)
        ]
        return " ".join(min(covering)[1]) if covering else None


def _without(words: _Words, values: tuple[int, ...]) -> _Words:
    return tuple("" if position in values else word for position, word in enumerate(words))


def _covers(pattern: str, words: _Words, position: int) -> bool:
    word = words[position]
    return word == pattern or bool(_kind(words, position) and _word_pattern(pattern).fullmatch(word))


@lru_cache(maxsize=1 << 12)
def _word_pattern(word: str) -> re.Pattern[str]:
    return re.compile(".+".join(map(re.escape, word.split(VALUE))))


def _generalise(templates: dict[_Words, _Words]) -> None:
    """Replace, in place, the words of rows of one length that are values."""
    for _ in range(_ROUNDS):
        rows = {words: list(words) for words in set(templates.values())}
        listed = list(rows.values())
        changed = _names_together(_shared(listed, 2))
        for kind, many in ((1, MANY_NAMES), (2, MANY_WORDS)):
            changed = _one_by_one(_shared(listed, len(listed[0]) - 1), kind, many) or changed
        if not changed:
            return
        shared = {words: tuple(row) for words, row in rows.items()}
        for words, template in templates.items():
            templates[words] = shared[template]


def _shared(rows: list[list[str]], least: int) -> list[list[str]]:
    """The rows of which so many words stand at the same place in enough others: only those can be alike.

    Where every word is random, that is none of them, which is what makes mining such messages cheap.
    """
    shared = [0] * len(rows)
    for column in zip(*rows, strict=True):
        counts = Counter(column)
        if len(counts) < len(rows):
            shared = [
                number + (counts[word] >= MANY_NAMES) for number, word in zip(shared, column, strict=True)
            ]
    return [row for row, number in zip(rows, shared, strict=True) if number >= least]


def _names_together(rows: list[list[str]]) -> bool:
    """Messages that are equal but for all their names: those names of which there are many are values."""
    alike: dict[tuple[str, ...], list[tuple[list[str], list[int]]]] = defaultdict(list)
    for words in rows:
        names = [position for position in range(len(words)) if _kind(words, position) == 1]
        if names:
            skeleton = list(words)
            for position in names:
                skeleton[position] = ""
            if sum(1 for word in skeleton if word and "<" not in word) >= max(2, len(names)):
                alike[tuple(skeleton)].append((words, names))
    changed = False
    for members in alike.values():
        if len(members) < MANY_NAMES:
            continue
        for position in members[0][1]:
            if len({words[position] for words, _ in members}) >= MANY_NAMES:
                changed = True
                for words, _ in members:
                    words[position] = _value(words[position])
    return changed


def _one_by_one(rows: list[list[str]], kind: int, many: int) -> bool:
    """Messages that are equal but for one word: where there are many such words, they are values."""
    alike: dict[tuple[int, int, int], list[list[str]]] = defaultdict(list)
    for words in rows:
        before = [0]
        for word in words:
            before.append(hash((before[-1], word)))
        after = 0
        for position in range(len(words) - 1, -1, -1):
            if _kind(words, position) == kind:
                alike[position, before[position], after].append(words)
            after = hash((after, words[position]))
    changed = False
    for (position, _, _), members in alike.items():
        if (
            len(members) >= many
            and len({words[position] for words in members}) >= many
            and _constant(members[0], position)
        ):
            changed = True
            for words in members:
                words[position] = _value(words[position])
    return changed


def _constant(words: Sequence[str], position: int) -> bool:
    """Whether enough is left that says what happened."""
    return sum(1 for number, word in enumerate(words) if number != position and "<" not in word) >= 2  # noqa: PLR2004


def _value(word: str) -> str:
    """The placeholder, with the punctuation around the word."""
    bare = _EDGES.sub("", max(_PLACEHOLDER.split(word), key=len))
    return word.replace(bare, VALUE, 1) if bare else VALUE
