r"""Find values after a secret name and a sign: in settings, JSON, header lines and forms.

Method: `_PAIR` finds a name and a sign. If the name is secret, the first characters of the value tell the
form (a quote, a bracket, a line end, or none of them), and `_READERS` names the function that finds the end
of this form.

Example: in ``db_password = hunter2; timeout = 5``, `_PAIR` finds the name ``db_password`` and the sign ``=``.
The name is secret and the value begins with a letter, so `_unquoted_span` looks for the end: not the end of
the line, because a semicolon and another setting follow, but the end of ``hunter2``.

A span is three indices: the start and the end of the value, and the index of a quote if the mask has to be
put in quotes, else -1. The third index is for JSON values without quotes. For example, ``{"pin": 1234}`` has
to become ``{"pin": "[masked …]"}``, or it would no longer be JSON.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final

from toolkit.secrets.names import (
    is_clear_name,
    is_prose,
    is_random,
    is_secret_name,
    plain_letters,
)

Span = tuple[int, int, int]  # start, end, and the index of the quote to use or -1
NO_QUOTE: Final = -1

NAME: Final = r"[\w.\-]{1,100}+"

# Groups: the name, the quote after it, the sign. For example, in {"pin" : 1234}, they are pin, " and :. White
# space may contain line ends only after a quote, because JSON may be broken into lines there. The match ends
# at the value, after a prefix of Python as in b"…".
_PAIR: Final = re.compile(
    rf"(?<![\w.\-])({NAME})([\"'`])?\]?(?:(?<=[\"'`])\s{{0,20}}|[ \t]{{0,4}})"
    r"(=>|:=|[=:\uff1d\uff1a])[ \t]{0,4}(?(2)\s{0,20})(?:(?:[bBuU]|[bB]?[rR]|[rR][bB])(?=[\"']))?"
)
# A word before the name that makes it clear: "API key: …".
_WORD_BEFORE: Final = re.compile(
    r"(?i)(?:api|access|account|secret|private|auth\w*|refresh|bearer|client|session|security)[ ]\Z"
)
# characters before a name that are read: is there such a word, or does the name begin a line?
_LEAD: Final = 24
# signs of logs and quotations before a header line: "> Cookie: …"
_LINE_PREFIX: Final = " \t>*<-#|\"'"
_READ_OF_PROSE: Final = 40  # characters of a value that tell whether it is a sentence

# The value. The first four forms have a first character of their own (`_READERS`); the other three are tried
# in this order. The secret part is between « and »:
#   password = """«a\nb»"""        three quotes
#   password: |\n  «a\n  b»        a block of YAML, or a folded header
#   "password": "«a \" b»"         quotes, up to the next one without a backslash
#   "password": «{"a": 1}»         an object or array, up to the bracket that closes it
#   Cookie: «a=1; b=2»             a whole line, for headers and for clear names that begin a line
#   Password=«a b»;Database=c      a setting of a connection string, up to the semicolon
#   token=«a»&page=2               a word

# a block of YAML in separate, indented lines, or the value of a header in the next line
_BLOCK: Final = re.compile(
    r"(?:[|>][+\-0-9]{0,2})?[ \t]{0,9}\r?\n([ \t]{1,20})(?![\w.\-]{1,100}:(?:\s|\Z)|at |-[ ])"
    r"(?P<value>\S[^\r\n]*(?:\r?\n\1[^\r\n]*)*)"
)
_QUOTED: Final = {
    quote: re.compile(rf"{quote}((?>(?:[^{quote}\\]|\\.)*))", re.DOTALL)
    for quote in ('"', "'", "`")
}
_STRUCTURE: Final = re.compile(
    r"\"(?>(?:[^\"\\]|\\.)*)(?:\"|\Z)|[\[{]|[\]}]", re.DOTALL
)
_DEPTH_CHANGE: Final = {"{": 1, "[": 1, "}": -1, "]": -1}
# A header line ends with the line (also if that is written as an escape), or with the JSON text around it:
#   Cookie: «a=1»\r\nHost: …   two characters each for \r and \n, as in a string of JSON
#   {"log": "Cookie: «a=1»"}    a quote and a bracket
_LINE: Final = re.compile(
    r"[^\r\n]*?(?=[\r\n]|\Z|\\{1,6}r\\{1,6}n|\\{1,6}n[ \t]{0,20}[\w\-]{1,40}[:=]"
    r"|\\{0,6}\"\s{0,20}(?:[}\]]|,\s{0,20}[\"{\[]))"
)
_FOLDED_LINES: Final = re.compile(r"(?:\r\n[ \t]{1,20}(?!at )[^\r\n]+)+")
# headers whose value may contain spaces
_WHOLE_LINE: Final = re.compile(r"(?i)cookie|authorization")
_COOKIE: Final = re.compile(r"[^\s=;]{0,100}=|(?=\S{0,99}\d)[\w.~+/%\-]{12}")
_SCHEME: Final = re.compile(
    r"(?i)(?:bearer|basic|digest|negotiate|ntlm|token|apikey|hawk|oauth|signature|aws4-hmac-sha256|dpop)"
    r"[ \t]+(?=\S)"
)
# signs at the end of a line that close the JSON or the quotes around the value
CLOSERS: Final = "\\\"'}],; \t"
# A setting of a connection string, which may contain spaces, ends with a semicolon before the next one.
_SETTING: Final = re.compile(
    r"[^;\r\n\"'&<>]{1,500}?(?=[ \t]*;[ \t]*(?:[A-Za-z][\w \-]{0,40}=|$|[\"'\r\n]))"
)
# A backslash before a quote belongs to JSON in JSON, not to the value: "{\"token\": \"«abc»\"}"
_BARE: Final = re.compile(r"(?:[^\s&\"'<>\\]|\\(?!\\{0,6}[\"']))+")
_NEXT_PAIR: Final = re.compile(r"[,;][ ]?[\w.\-]{1,40}[=:]|[.,;:!?)\]}]+\Z")
UUID: Final = re.compile(r"(?i)[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")


class _Style(Enum):
    """How a pair is written."""

    LINE = "name: value"
    MEMBER = '"name": value'
    IN_QUERY = "?name=value"
    SETTING = "name=value"
    OTHER = "name => value"


@dataclass(frozen=True, slots=True)
class _Pair:
    """A secret name and the sign after it.

    `start` is the index of the name, `begin` the index of the value, and `quote_index` the index of the quote
    after the name, or -1.
    """

    text: str
    name: str
    style: _Style
    start: int
    begin: int
    quote_index: int
    is_clear: bool

    @property
    def is_definite(self) -> bool:
        """Return True if any value is a secret, not only a value that looks random."""
        return self.is_clear or self.is_quoted

    @property
    def is_quoted(self) -> bool:
        """Return whether a quote follows the name, as in JSON."""
        return self.quote_index != NO_QUOTE

    @property
    def is_header(self) -> bool:
        """Return whether the name is of a header whose value may contain spaces, for example a cookie."""
        return _WHOLE_LINE.search(self.name) is not None

    @property
    def quote_of_mask(self) -> int:
        """Return the index of the quote to put around a mask of a value without quotes, or -1."""
        if self.style is _Style.MEMBER:
            return self.quote_index
        return NO_QUOTE

    @property
    def lead(self) -> str:
        """Return the characters before the name."""
        return _lead(self.text, self.start)

    def begins_line(self) -> bool:
        """Return whether only signs such as ``>`` are before the name in its line."""
        # For example, after "GET / HTTP/1.1\n> ", the name begins the line: its start is "> ". After "lost ",
        # it does not.
        lead = self.lead
        _, line_end, line_start = lead.rpartition("\n")
        if not line_end and self.start > _LEAD:
            # the line begins further left, where nothing is read
            return False

        return line_start.strip(_LINE_PREFIX) == ""

    def fills_line(self) -> bool:
        """Return whether the value is the rest of the line, as for cookies."""
        # "password: hunter two" fills the line, but in "lost password: hunter two", the value is "hunter"
        if self.style is not _Style.LINE:
            return False
        if self.is_header:
            return True

        return self.is_clear and self.begins_line()


def pair_spans(text: str) -> Iterator[Span]:
    """Yield the values after names with a sign, for example in JSON, forms, header lines and settings.

    >>> list(pair_spans('{"pin": 1234}'))
    [(8, 12, 5)]
    """
    position = 0
    while match := _PAIR.search(text, position):
        position = match.end()
        if not is_secret_name(match[1]):
            continue

        span = _value_span(_read_pair(text, match))
        if span is not None:
            yield span
            # No pair begins inside a secret value. For example, "b=2" is part of the cookie "a=1; b=2".
            position = max(position, span[1])


def _read_pair(text: str, match: re.Match[str]) -> _Pair:
    """Return the pair of a match of `_PAIR`."""
    name = match[1]
    start = match.start()
    quote_index = match.start(2)
    lead = _lead(text, start)
    # "key" alone is not clear, but it is in "API key"
    is_clear = is_clear_name(name) or _WORD_BEFORE.search(lead) is not None
    style = _style_of(
        sign=plain_letters(match[3]),
        is_quoted=quote_index != NO_QUOTE,
        character_before=lead[-1:],
    )

    return _Pair(
        text=text,
        name=name,
        style=style,
        start=start,
        begin=match.end(),
        quote_index=quote_index,
        is_clear=is_clear,
    )


def _style_of(sign: str, *, is_quoted: bool, character_before: str) -> _Style:
    """Return how a pair with this sign is written."""
    # For example, "?token=a" is in a query, because a question mark is before the name. Without it, "token=a"
    # is a setting, and may be part of a connection string.
    if sign == ":":
        return _STYLES_WITH_COLON[is_quoted]
    if sign != "=":
        return _Style.OTHER
    if character_before in {"?", "&"}:
        return _Style.IN_QUERY

    return _Style.SETTING


_STYLES_WITH_COLON: Final = {False: _Style.LINE, True: _Style.MEMBER}
"""The style of a pair with a colon, by whether a quote follows the name."""


def _lead(text: str, start: int) -> str:
    """Return the characters before an index that are read."""
    return text[max(start - _LEAD, 0) : start]


def _value_span(pair: _Pair) -> Span | None:
    """Return the span of a value, or None if it is no secret."""
    opening = pair.text[pair.begin : pair.begin + 3]
    first_character = opening[:1]
    # three quotes begin another form than one: """a""" is not an empty string before a"""
    read_value = _READERS.get(opening) or _READERS.get(first_character, _unquoted_span)

    return read_value(pair)


def _span_if_secret(pair: _Pair, value: tuple[int, int]) -> Span | None:
    """Return the span of a quoted value, unless the name is not clear and the value does not look random."""
    start, end = value
    # for example, "X" is no secret in session = "X", but it is in password = "X"
    is_secret = pair.is_definite or is_random(pair.text[start:end])
    if not is_secret:
        return None

    return start, end, NO_QUOTE


def _triple_span(pair: _Pair) -> Span | None:
    """Return the span of a value in three quotes, or of the rest of truncated text."""
    begin = pair.begin + 3
    quotes = pair.text[pair.begin : begin]
    end = pair.text.find(quotes, begin)
    if end == -1:
        end = len(pair.text)
    return _span_if_secret(pair, (begin, end))


def _block_span(pair: _Pair) -> Span | None:
    """Return the span of a value in indented lines, or of a value without quotes if no such lines follow."""
    # In YAML, the value of "password: |" is every line that is indented:
    #   password: |
    #     «first line
    #     second line»
    #   user: ann
    block = None
    if pair.is_clear and pair.style is _Style.LINE:
        block = _BLOCK.match(pair.text, pair.begin)
    if block is None:
        return _unquoted_span(pair)
    if is_prose(block["value"], quoted=True):
        return None

    start, end = block.span("value")
    return start, end, NO_QUOTE


def _quoted_span(pair: _Pair) -> Span | None:
    """Return the span of a value in quotes."""
    start = pair.begin + 1
    end = end_of_quoted(pair.text, pair.begin)
    if is_prose(pair.text[start:end], quoted=True):
        return None

    return _span_if_secret(pair, (start, end))


def end_of_quoted(text: str, quote_index: int) -> int:
    """Return the index after the content of quotes, or the end of truncated text.

    >>> end_of_quoted('"a": 1', 0)
    2
    """
    content = _QUOTED[text[quote_index]]
    return _match_end(content.match(text, quote_index), quote_index)


def _structure_span(pair: _Pair) -> Span | None:
    """Return the span of an object or array."""
    text, begin = pair.text, pair.begin
    if not pair.is_definite:
        return None

    start_of_value = text[begin : begin + _READ_OF_PROSE]
    if is_prose(start_of_value, quoted=True):
        # a message in brackets, for example "password: [is required]"
        return None

    return begin, closing_index(text, begin), pair.quote_index


_READERS: Final[dict[str, Callable[[_Pair], Span | None]]] = {
    **dict.fromkeys(_QUOTED, _quoted_span),
    **dict.fromkeys("{[", _structure_span),
    **dict.fromkeys("|> \t\r\n", _block_span),
    **dict.fromkeys(('"""', "'''"), _triple_span),
}
"""The function for a value by the first character, or by three quotes. `_unquoted_span` reads the others."""


def _unquoted_span(pair: _Pair) -> Span | None:
    """Return the span of a value without quotes: of a line, of a setting, or of a word."""
    # The cases, with the secret between « and »:
    #   password: is required           a sentence, so no secret
    #   cookie: enabled                 no cookie
    #   Cookie: «a=1; b=2»              a line
    #   Password=«a b»;Database=c       a setting
    #   ?token=«a»&page=2               a word
    text, begin = pair.text, pair.begin
    start_of_value = text[begin : begin + _READ_OF_PROSE]
    if is_prose(start_of_value, quoted=pair.is_quoted):
        return None

    is_cookie = "cookie" in pair.name.lower()
    if is_cookie and not _COOKIE.match(text, begin):
        return None
    if pair.fills_line():
        return _line_span(pair)

    end_of_word = _match_end(_BARE.match(text, begin), begin)
    if pair.style is _Style.SETTING:
        end_of_setting = _match_end(_SETTING.match(text, begin), end_of_word)
        return _word_span(pair, end_of_setting)

    return _word_span(pair, end_of_word)


def _line_span(pair: _Pair) -> Span:
    """Return the span of the rest of a line, without a scheme such as "Bearer" before the secret."""
    text, begin = pair.text, pair.begin
    end_of_line = _match_end(_LINE.match(text, begin), begin)
    if pair.is_header:
        end_of_line = _match_end(_FOLDED_LINES.match(text, end_of_line), end_of_line)
    value = text[begin:end_of_line]
    # in curl -H 'Authorization: …' https://a.example/, the header ends with the quote before it
    quote_before = pair.lead[-1:]
    if quote_before in {'"', "'"}:
        value = value.rsplit(quote_before, 1)[0]
    end = begin + len(value.rstrip(CLOSERS))
    # in "Bearer abc", only "abc" is masked
    end_of_scheme = _match_end(_SCHEME.match(text, begin, end), begin)

    return end_of_scheme, end, NO_QUOTE


def _match_end(match: re.Match[str] | None, otherwise: int) -> int:
    """Return the index after a match, or the other index if nothing matched."""
    if match is None:
        return otherwise
    return match.end()


def _word_span(pair: _Pair, end: int) -> Span | None:
    """Return the span of a word up to the next pair, or None if it is no secret."""
    # Three steps, for the value in "db_password=abc,next=1 failed":
    #   abc,next=1    up to the sign that no word contains, here a space
    #   abc           up to the next pair
    #   a secret      because the name is clear; after "session", only a random word is a secret
    text, begin = pair.text, pair.begin
    end = _end_before_next_pair(text, begin, end)
    word = text[begin:end]
    next_character = text[end : end + 1]

    is_in_query = next_character == "&" or pair.style is _Style.IN_QUERY
    if is_in_query or pair.is_definite:
        is_secret = not _is_folder(pair.name, word)
    else:
        is_secret = is_random(word) and not _is_id(pair.name, word)

    if not is_secret:
        return None

    return begin, end, pair.quote_of_mask


def _end_before_next_pair(text: str, begin: int, end: int) -> int:
    """Return the index before ``, name=`` or before signs that end a sentence, or the end itself."""
    # the end is at "|", before and after:
    #   password=abc,next=1|   password=abc|,next=1
    #   the password=abc.|     the password=abc|.
    next_pair = _NEXT_PAIR.search(text, begin, end)
    if next_pair is None or next_pair.start() == begin:
        return end

    return next_pair.start()


def _is_folder(name: str, word: str) -> bool:
    """Return whether PWD names a folder, as it does in a shell; elsewhere it is a password."""
    return name == "PWD" and word.startswith("/")


def _is_id(name: str, word: str) -> bool:
    """Return whether the word is the id of a key, for example ``key=550e8400-…``."""
    is_name_of_key = name.lower().endswith("key")
    return is_name_of_key and UUID.fullmatch(word) is not None


def closing_index(text: str, begin: int) -> int:
    """Return the index after the bracket that closes the one at an index, or the end of truncated JSON.

    Brackets in strings do not count, because a match of `_STRUCTURE` is a whole string or one bracket.

    >>> closing_index('{"a": [1, "}"]} and more', 0)
    15
    """
    # The depth after each match, for {"a": [1, "}"]}:
    #   {   "a"   [   "}"   ]   }
    #   1    1    2    2    1   0
    depth = 0
    for match in _STRUCTURE.finditer(text, begin):
        depth += _DEPTH_CHANGE.get(match[0], 0)
        if depth == 0:
            return match.end()

    return len(text)
