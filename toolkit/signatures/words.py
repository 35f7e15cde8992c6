"""Split messages into words and the glue between them, so that places of two messages can be compared.

A message is split at blanks and at signs such as `=`, `:`, brackets and quotes. For example,

    user="ann" rhost= (id: 7)

has the words `user=`, `ann`, `rhost=`, an empty word, `id:` and `7`. The rest is glue. With four rules, words
at the same place of two messages have the same position:

1. A key keeps its sign: `rhost=` is one word, and its value is another.
2. Text in quotes or brackets is one word, unless it is most of the message.
3. A value that is left out is an empty word, as after `rhost=` above.
4. A name and a number in brackets are one word, as in `attempt(<num>)`.

If the words and the glue are joined, the result is the message, character by character. Messages are compared
by the shape of the glue, in which `"` is `'`: Python prints 'ann' and "o'hara".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from itertools import chain
from typing import Final, NamedTuple

from toolkit.signatures.codes import CODE
from toolkit.signatures.placeholders import PLACEHOLDER
from toolkit.signatures.remembering import cached

VALUE: Final = "<value>"
"""A word that differs between messages that are otherwise equal."""
ANY: Final = "<>"
"""A value of any kind, because the values of one place can look like different kinds."""

MOST_WORDS: Final = 60
"""Words of a message that are compared. Longer messages are compared by their first words."""
MOST_PHRASE_WORDS: Final = 8
"""Words in quotes or brackets that count as one value. Lists, which contain commas, may have more."""
LEAST_WORDS_OUTSIDE: Final = 3
"""If fewer words are outside of quotes and brackets, the text inside states what failed."""

_KEY_SIGNS: Final = ("=", ":")

NEVER: Final = 0
NAME: Final = 1
PLAIN: Final = 2
"""Kinds of words: never a value; spelled or placed like a name; a word of the language."""

_WORD: Final = r"""[^\s=:()\[\]{}"',;|@]"""
_TOKEN: Final = re.compile(
    rf"""
      (?P<address>[A-Za-z][\w+.\-]*+://[^\s"'()\[\]{{}},;|]*)
    | "(?P<double>[^"]{{0,200}})"
    | (?<!\w)'(?P<single>[^']{{0,200}})'(?!\w)
    | (?P<call>[\w.$\-]+\(<\w+>\))
    | \((?P<round>[^()]{{0,200}})\)
    | \[(?P<square>[^\[\]]{{0,200}})\]
    | \{{(?P<curly>[^{{}}]{{0,200}})\}}
    | (?P<word>{_WORD}+(?:(?:::|(?<=\w)'(?=\w)){_WORD}+)*(?:[=:](?![:=]))?)
    """,
    re.VERBOSE,
)
_PHRASES: Final = frozenset({"double", "single", "round", "square", "curly"})
_REQUEST_LINE: Final = re.compile(r"(?:GET|HEAD|POST|PUT|PATCH|DELETE|OPTIONS) ")
_FULL_STOPS: Final = ".!?"
_ID_KEY: Final = re.compile(
    r"(?:[a-z0-9_.\-](?:Id|ID|id)|(?:^|[_.\-])(?:id|ID|uuid))[=:]$"
)
_NAME_KEY: Final = re.compile(
    r"(?:name|topic|host|user|queue|bucket|namespace|table|index|file|path|dir|directory|folder|url|uri|server"
    r"|client|sender|receiver|recipient|producer|consumer|publisher|subscriber|addr|address)[=:]$",
    re.IGNORECASE,
)
_FAILURE_KEY: Final = re.compile(
    r"(?:err(?:or)?s?|code|errno|status|state|reason|cause|type|kind|exception|message|level|severity|result"
    r"|operation|method|action|phase|step)[=:]$",
    re.IGNORECASE,
)
_CONSTANT: Final = re.compile(r"[A-Z][A-Z_]{2,}")
"""A constant, such as `DISK_FULL`. After a key that takes names, it is a name, as in `table: ORDERS`."""
_STATES_FAILURE: Final = re.compile(
    r"(?i:error|exception|fail|(?<!de)fault|timeout|timed|denied|refused|reset|abort|panic|warn|invalid"
    r"|missing|unknown|unexpected|expired|exceed|cannot|could|null|undefined"
    r"|^(?:no|not|none|is|are|was|to|of|in|on|the|a|an|and|or|by|for|at|with|from|name|user|host)$)"
    r"|\w://"  # the kind of service of an address
)
_DOTTED_KEY: Final = re.compile(
    r"[a-z][a-z0-9_\-]*(?:\.[a-z0-9_\-]+){2,}(?<!error)(?<!exception)"
)
"""A setting such as `db.pool.timeout-ms`, which names no failure even if a part of it could."""
_OPENINGS_OF_NAMES: Final = frozenset("\"'[(`:")
"""Signs before a word that is spelled like a name, such as a quote."""
_QUOTES: Final = ("'", '"', "`")
_OPENINGS_OF_VALUES: Final = frozenset("\"'([{")
"""Signs with which the value of a key begins."""
_DIRECTLY: Final = ("", '"', "'")
"""Signs between a key and a value that belong together."""
_CUES: Final = frozenset(
    """
    user username for host hostname server node from to by named name file table column queue topic task
    job customer tenant account region bucket key id class module database db schema index field
    property attribute service container pod namespace volume device interface session client peer
    worker instance group owner email domain zone path url uri endpoint via package service
    """.split()  # noqa: SIM905 - a list of words
)
"""Words that a name follows, for example in "no such user ann"."""
_PLAIN_WORD: Final = re.compile(r"[a-z]+(?:'[a-z]+)?|[A-Z][a-z]+")
_EDGES: Final = re.compile(r"^[`<\-]+|[`>\-]+$")


_SIGN: Final = re.compile(r"[=:()\[\]{}\"',;|@]|[.!?](?:\s|$)|[^\S ]")
"""Signs, full stops, and blanks of other kinds. Without them, words are separated by single blanks."""


class Sentence(NamedTuple):
    """The words of a message, and the glue before each word and after the last."""

    words: tuple[str, ...]
    glue: tuple[str, ...]
    shape: tuple[str, ...]
    """The glue with one style of quotes."""

    def with_words(self, words: Sequence[str]) -> str:
        """Return the message with other words at its places.

        >>> split_sentence("user=ann is gone").with_words(["user=", "<value>", "is", "gone"])
        'user=<value> is gone'
        """
        pairs = zip(self.glue, words, strict=False)
        return "".join([*chain.from_iterable(pairs), self.glue[len(words)]])


# a message is split for several comparisons, and again if it occurs in another body
@partial(cached, most=1 << 12)
def split_sentence(message: str) -> Sentence:
    """Split a message with placeholders. An id after a key such as `orderId=` is a placeholder already.

    >>> split_sentence('no rows for [north, east] in "my table", rhost=').words
    ('no', 'rows', 'for', 'north, east', 'in', 'my table', 'rhost=', '')
    >>> split_sentence("orderId=abc size (0)").words
    ('orderId=', '<id>', 'size', '0')
    """
    if not _SIGN.search(message):
        plain_words = message.split(" ")
        if "" not in plain_words and len(plain_words) < MOST_WORDS:
            blanks = _blanks_around(len(plain_words))
            return Sentence(tuple(plain_words), blanks, blanks)

    words: list[str] = []
    glue: list[str] = []
    end_of_last = 0
    for start, end in _spans(message):
        signs = message[end_of_last:start]
        word = message[start:end]
        if words and words[-1].endswith(_KEY_SIGNS):
            signs, word = _after_key(words, glue, signs, word)
        words.append(word)
        glue.append(signs)
        end_of_last = end
        if len(words) >= MOST_WORDS:
            return _sentence(words, [*glue, ""])

    if words and words[-1].endswith(_KEY_SIGNS):
        words.append("")
        glue.append("")
    return _sentence(words, [*glue, message[end_of_last:]])


def _sentence(words: list[str], glue: list[str]) -> Sentence:
    own_glue = tuple(glue)
    shape = own_glue
    if '"' in "".join(glue):
        shape = tuple(map(with_one_quote, glue))

    return Sentence(tuple(words), own_glue, shape)


def with_one_quote(text: str) -> str:
    """Return text with one style of quotes. It is compared, not shown."""
    return text.replace('"', "'")


def _after_key(
    words: list[str], glue: list[str], signs: str, word: str
) -> tuple[str, str]:
    """Return the signs before a word and the word, which follow a key, the last of `words`.

    If the key has no value, an empty word is added to `words`. For example, `ruser= rhost=db-1`:

        words so far        next word           words afterwards
        ruser=              rhost=              ruser=  ""  rhost=
        ruser=  ""  rhost=  db-1                ruser=  ""  rhost=  db-1
    """
    key = words[-1]
    blanks = _blanks_before_next(key, signs)
    if blanks is not None:
        words.append("")
        glue.append(blanks)
        return signs[len(blanks) :], word

    # an id directly after the key, as in `orderId="a"`
    if word and signs in _DIRECTLY and _ID_KEY.search(key):
        return signs, "<id>"

    return signs, word


@lru_cache(maxsize=MOST_WORDS)
def _blanks_around(word_count: int) -> tuple[str, ...]:
    """Return the glue of words with single blanks between them."""
    return ("", *[" "] * (word_count - 1), "")


def _blanks_before_next(key: str, between: str) -> str | None:
    """Return the blanks before a value that is left out; None if the key has a value.

    For example, "" for `ruser=` in `ruser= rhost=db-1`, and " " for `tag:` in `tag: , size: 7`.
    """
    if not between:
        return None
    if key.endswith("="):
        return None if between[0] in _OPENINGS_OF_VALUES else ""

    signs = between.lstrip(" ")
    if signs[:1] and signs[0] in ",;|":
        return between[: len(between) - len(signs)]

    return None


def _spans(message: str) -> list[tuple[int, int]]:
    """Return the start and end of each word.

    For example, `no rows for [north, east] in "my table"` has a word "north, east" and a word "my table". In
    `("connection refused")`, the text in quotes is most of the message, so it is split into words.
    """
    if not _OPENING_SIGN.search(message):
        return _plain_spans(message, 0, len(message))

    # if most words are in quotes or brackets, they state the failure, so the phrase is split into words
    tokens = [(token, token.lastgroup) for token in _TOKEN.finditer(message)]
    outside = sum(kind not in _PHRASES for _, kind in tokens)

    spans: list[tuple[int, int]] = []
    for token, kind in tokens:
        start, end = token.span(kind or 0)
        if kind not in _PHRASES:
            spans.append((start, _end_of_word(message, start, end)))
        elif outside >= LEAST_WORDS_OUTSIDE and _is_one_value(message[start:end]):
            spans.append((start, end))
        else:
            spans += _plain_spans(message, start, end)

    return spans


_PLAIN_TOKEN: Final = re.compile(
    rf"[A-Za-z][\w+.\-]*+://[^\s\"'()\[\]{{}},;|]*|{_WORD}+(?:(?:::|(?<=\w)'(?=\w)){_WORD}+)*(?:[=:](?![:=]))?"
)


_OPENING_SIGN: Final = re.compile(r"[\"'(\[{]")
_FULL_STOP: Final = re.compile(r"[.!?](?:\W|$)")


def _plain_spans(message: str, start: int, end: int) -> list[tuple[int, int]]:
    spans = [token.span() for token in _PLAIN_TOKEN.finditer(message, start, end)]
    if not _FULL_STOP.search(message):
        return spans

    return [(first, _end_of_word(message, first, last)) for first, last in spans]


def _end_of_word(message: str, start: int, end: int) -> int:
    """Return the end of a word without the full stop of the sentence."""
    if message[end - 1] not in _FULL_STOPS:
        return end

    bare = message[start:end].rstrip(_FULL_STOPS)
    if not bare:
        return end  # a word of full stops, such as "..."

    return start + len(bare)


def _is_one_value(phrase: str) -> bool:
    """Return whether a phrase in quotes or brackets is one word, for example a name or a list."""
    if _REQUEST_LINE.match(phrase):
        return False
    return phrase.count(" ") < MOST_PHRASE_WORDS or "," in phrase


def without_kinds(text: str) -> str:
    """Return a message whose placeholders do not tell the kinds of the values.

    >>> without_kinds("no route to <ip> after <num> tries")
    'no route to <> after <> tries'
    """
    if "<" not in text:
        return text
    return PLACEHOLDER.sub(ANY, text)


def as_compared(message: str) -> str:
    """Return a message without the kinds of values and with one style of quotes. Ids are made from this.

    >>> as_compared('no route to "<ip>"')
    "no route to '<>'"
    """
    return with_one_quote(without_kinds(message))


def kinds_of_words(words: Sequence[str], glue: Sequence[str]) -> tuple[int, ...]:
    """Return NEVER, NAME or PLAIN for each word.

    >>> kinds_of_words(["user", "ann", "was", "refused"], ["", " ", " ", " ", ""])
    (0, 1, 0, 0)
    """
    before = ("", *words)
    return tuple(
        word_kind(word, key, opening[-1:])
        for word, key, opening in zip(words, before, glue, strict=False)
    )


class _PlacedWord(NamedTuple):
    """A word at its place in a message."""

    word: str
    bare: str
    """The word without the sign of a key, and without values next to the letters."""
    before: str
    """The word before it, "" at the start of a message."""
    opening: str
    """The sign before it, for example a quote or a blank."""

    @property
    def is_key(self) -> bool:
        """True if the word ends with the sign of a key, as in `host=`."""
        return self.word[-1] in _KEY_SIGNS

    @property
    def is_constant(self) -> bool:
        """True if the word is in capitals."""
        return _CONSTANT.fullmatch(self.bare) is not None

    @property
    def is_code(self) -> bool:
        """True for a code, as numbers are placeholders. If many codes occur at a place, they are values."""
        return self.bare.isdigit() or CODE.fullmatch(self.bare) is not None

    @property
    def is_announced(self) -> bool:
        """True after a quote or bracket, and after a word such as "user" or `host=`."""
        return self.opening in _OPENINGS_OF_NAMES or _follows_cue(self.before)

    @property
    def follows_name_key(self) -> bool:
        """True after a key that takes names. It can have a blank before the sign, as in `table :ORDERS`."""
        key = self.before
        if self.opening == ":":
            key = f"{key}:"
        return takes_names(key)


_RULES_OF_KINDS: Final[tuple[tuple[Callable[[_PlacedWord], bool], int], ...]] = (
    # no user <value>, ruser= rhost=db-1
    (lambda placed: not placed.word or is_value(placed.word), NAME),
    # the option 'a'
    (lambda placed: is_letter_in_quotes(placed.word, placed.opening), NAME),
    # connection refused
    (lambda placed: not placed.bare or _states_failure(placed.bare), NEVER),
    # table: ORDERS
    (lambda placed: placed.is_constant and placed.follows_name_key, NAME),
    # DISK_FULL
    (lambda placed: placed.is_constant, NEVER),
    # error 40P01
    (lambda placed: placed.is_code, PLAIN),
    # no route to db-1: timeout
    (lambda placed: placed.is_key and _is_cue(placed.before), NAME),
    # size: 7
    (lambda placed: placed.is_key and placed.bare.isidentifier(), NEVER),
    # com.example.mail: no memory
    (lambda placed: placed.is_key, PLAIN),
    # user ann, "stock"
    (lambda placed: placed.is_announced, NAME),
    # file not found
    (lambda placed: _PLAIN_WORD.fullmatch(placed.word) is not None, PLAIN),
)
"""Tests of a word, and the kind. The first true test decides. Other words, such as `db-1`, are names."""


@lru_cache(maxsize=1 << 16)
def word_kind(word: str, before: str, opening: str) -> int:
    """Return the kind of a word that follows another word and a sign, such as a quote or a bracket."""
    bare = word
    if not word.isalpha():
        bare = _EDGES.sub("", word.replace(ANY, "")).rstrip("=:")
    placed = _PlacedWord(word, bare, before, opening)
    for applies, kind in _RULES_OF_KINDS:
        if applies(placed):
            return kind

    return NAME


def _states_failure(bare: str) -> bool:
    """Return whether a word states a failure, such as "refused". Settings do not."""
    if not _STATES_FAILURE.search(bare):
        return False
    return _DOTTED_KEY.fullmatch(bare) is None


def is_constant(word: str) -> bool:
    """Return whether a word is in capitals, such as `DISK_FULL`, and no word of it states a failure."""
    return _CONSTANT.fullmatch(word) is not None and not _states_failure(word)


def is_letter_in_quotes(word: str, opening: str) -> bool:
    """Return whether a word is one letter after a quote. The letter "a" in quotes is no word of grammar."""
    return len(word) == 1 and word.isalpha() and opening in _QUOTES


def states_failure_key(key: str) -> bool:
    """Return whether a word is a key whose value states the failure, such as `reason:` or `code=`."""
    return _FAILURE_KEY.search(key) is not None


def _follows_cue(before: str) -> bool:
    """Return whether the word before announces a name, for example `host=` or "user"."""
    return before.endswith("=") or _is_cue(before)


def _is_cue(before: str) -> bool:
    """Return whether a word announces a name in a sentence, for example "to" in "no route to db-1"."""
    return before.rstrip(":").lower() in _CUES


def value_at(word: str) -> str:
    """Return the value that replaces a word. A key keeps its sign.

    >>> value_at("ann"), value_at("db-1:")
    ('<value>', '<value>:')
    """
    if word.endswith(_KEY_SIGNS):
        return VALUE + word[-1]
    return VALUE


@lru_cache(maxsize=1 << 14)
def takes_names(key: str) -> bool:
    """Return whether a word is a key whose values are names, such as `topic:` or `hostName=`."""
    return bool(_NAME_KEY.search(key))


@lru_cache(maxsize=1 << 14)
def may_lack_value(key: str) -> bool:
    """Return whether a word is a key whose value can be left out without changing the failure."""
    return key.endswith(_KEY_SIGNS) and not states_failure_key(key)


def is_value(word: str) -> bool:
    """Return whether a word consists of values, without other letters."""
    return "<" in word and not has_letters(word)


def has_letters(word: str) -> bool:
    """Return whether a word has letters next to the values."""
    if "<" in word:
        word = word.replace(VALUE, "").replace(ANY, "")
    return any(map(str.isalpha, word))
