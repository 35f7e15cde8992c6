r"""Find values after a secret name and a sign: in settings, JSON, header lines and forms.

Method: `_PAIR` finds a name and a sign. If the name is secret, the first characters of the value tell the
form (a quote, a bracket, or neither), and `_READERS` names the function that finds the end of this form.

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

# The value. The forms are tried in this order; the secret part is between « and »:
#   password = """«a\nb»"""        three quotes
#   password: |\n  «a\n  b»        a block of YAML, or a folded header
#   "password": "«a \" b»"         quotes, up to the next one without a backslash
#   "password": «{"a": 1}»         an object or array, up to the bracket that closes it
#   Cookie: «a=1; b=2»             a whole line, for headers and for clear names that begin a line
#   Password=«a b»;Database=c      a setting of a connection string, up to the semicolon
#   token=«a»&page=2               a word
_TRIPLE: Final = re.compile(r"(\"{3}|'{3})(.*?)(?:\1|\Z)", re.DOTALL)
# a block of YAML in separate, indented lines, or the value of a header in the next line
_BLOCK: Final = re.compile(
    r"(?:[|>][+\-0-9]{0,2})?[ \t]{0,9}\r?\n([ \t]{1,20})(?![\w.\-]{1,100}:(?:\s|\Z)|at |-[ ])"
    r"(?P<value>\S[^\r\n]*(?:\r?\n\1[^\r\n]*)*)"
)
_QUOTED: Final = {
    quote: re.compile(rf"{quote}((?:[^{quote}\\]|\\.)*+)", re.DOTALL)
    for quote in ('"', "'", "`")
}
_STRUCTURE: Final = re.compile(r"\"(?:[^\"\\]|\\.)*+(?:\"|\Z)|[\[{]|[\]}]", re.DOTALL)
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


@dataclass(frozen=True, slots=True)
class _Pair:
    """A secret name and the sign after it.

    `start` is the index of the name, `begin` the index of the value, and `quote_index` the index of the quote
    after the name, or -1.
    """

    text: str
    name: str
    sign: str
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
    def is_line(self) -> bool:
        """Return whether the pair has the form of a header line or of YAML, ``name: value``."""
        return self.sign == ":" and not self.is_quoted

    @property
    def is_header(self) -> bool:
        """Return whether the name is of a header whose value may contain spaces, for example a cookie."""
        return _WHOLE_LINE.search(self.name) is not None

    @property
    def in_form(self) -> bool:
        """Return whether the pair is part of a query or a form, ``?name=value``."""
        return self.sign == "=" and self.lead[-1:] in {"?", "&"}

    @property
    def quote_of_mask(self) -> int:
        """Return the index of the quote to put around a mask of a value without quotes, or -1."""
        if self.sign == ":":
            return self.quote_index
        return NO_QUOTE

    @property
    def lead(self) -> str:
        """Return the characters before the name."""
        return _lead(self.text, self.start)

    def begins_line(self) -> bool:
        """Return whether only signs such as ``>`` are before the name in its line."""
        lead = self.lead
        _, line_end, line_start = lead.rpartition("\n")
        has_whole_start = line_end != "" or self.start <= len(lead)
        return has_whole_start and not line_start.strip(_LINE_PREFIX)


def pair_spans(text: str) -> Iterator[Span]:
    """Yield the values after names with a sign, for example in JSON, forms, header lines and settings.

    >>> list(pair_spans('{"pin": 1234}'))
    [(8, 12, 5)]
    """
    position = 0
    while match := _PAIR.search(text, position):
        position = match.end()
        if is_secret_name(match[1]) and (span := _value_span(_read_pair(text, match))):
            yield span
            position = max(position, span[1])


def _read_pair(text: str, match: re.Match[str]) -> _Pair:
    """Return the pair of a match of `_PAIR`."""
    name = match[1]
    start = match.start()
    return _Pair(
        text=text,
        name=name,
        sign=plain_letters(match[3]),
        start=start,
        begin=match.end(),
        quote_index=match.start(2),
        is_clear=is_clear_name(name)
        or _WORD_BEFORE.search(_lead(text, start)) is not None,
    )


def _lead(text: str, start: int) -> str:
    """Return the characters before an index that are read."""
    return text[max(start - _LEAD, 0) : start]


def _value_span(pair: _Pair) -> Span | None:
    """Return the span of a value, or None if it is no secret."""
    text, begin = pair.text, pair.begin
    if triple := _TRIPLE.match(text, begin):
        return _span_if_secret(pair, triple.span(2))
    may_have_block = pair.is_clear and pair.is_line
    if may_have_block and (block := _BLOCK.match(text, begin)):
        return _span_unless_prose(block, "value")
    read_value = _READERS.get(text[begin : begin + 1], _unquoted_span)
    return read_value(pair)


def _span_if_secret(pair: _Pair, value: tuple[int, int]) -> Span | None:
    """Return the span of a quoted value, unless the name is not clear and the value does not look random."""
    start, end = value
    if pair.is_definite or is_random(pair.text[start:end]):
        return start, end, NO_QUOTE
    return None


def _span_unless_prose(match: re.Match[str], group: str) -> Span | None:
    """Return the span of a group, or None if it contains a sentence such as "must not be empty"."""
    if is_prose(match[group], quoted=True):
        return None
    return (*match.span(group), NO_QUOTE)


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
    start_of_value = text[begin : begin + _READ_OF_PROSE]
    if not pair.is_definite or is_prose(start_of_value, quoted=True):
        return None
    return begin, closing_index(text, begin), pair.quote_index


_READERS: Final[dict[str, Callable[[_Pair], Span | None]]] = {
    **dict.fromkeys(_QUOTED, _quoted_span),
    **dict.fromkeys("{[", _structure_span),
}
"""The function for a value by its first character. All other values are read by `_unquoted_span`."""


def _unquoted_span(pair: _Pair) -> Span | None:
    """Return the span of a value without quotes: of a line, of a setting, or of a word."""
    text, begin = pair.text, pair.begin
    if is_prose(text[begin : begin + _READ_OF_PROSE], quoted=pair.is_quoted):
        return None
    is_cookie = "cookie" in pair.name.lower()
    if is_cookie and not _COOKIE.match(text, begin):
        return None
    if pair.is_line and _fills_line(pair):
        return _line_span(pair)
    end = _match_end(_BARE.match(text, begin), begin)
    may_be_setting = pair.sign == "=" and not pair.in_form
    if may_be_setting:
        end = _match_end(_SETTING.match(text, begin), end)
    return _word_span(pair, end)


def _fills_line(pair: _Pair) -> bool:
    """Return whether the value is the rest of the line, as for cookies."""
    return pair.is_header or (pair.is_clear and pair.begins_line())


def _line_span(pair: _Pair) -> Span:
    """Return the span of the rest of a line, without a scheme such as "Bearer" before the secret."""
    text, begin = pair.text, pair.begin
    end = _match_end(_LINE.match(text, begin), begin)
    if pair.is_header:
        end = _match_end(_FOLDED_LINES.match(text, end), end)
    value = text[begin:end]
    # in curl -H 'Authorization: …' https://a.example/, the header ends with the quote before it
    quote_before = pair.lead[-1:]
    if quote_before in {'"', "'"}:
        value = value.rsplit(quote_before, 1)[0]
    end = begin + len(value.rstrip(CLOSERS))
    begin = _match_end(_SCHEME.match(text, begin, end), begin)
    return begin, end, NO_QUOTE


def _match_end(match: re.Match[str] | None, otherwise: int) -> int:
    if match is None:
        return otherwise
    return match.end()


def _word_span(pair: _Pair, end: int) -> Span | None:
    """Return the span of a word up to the next pair, or None if it is no secret."""
    text, begin = pair.text, pair.begin
    next_pair = _NEXT_PAIR.search(text, begin, end)
    if next_pair and next_pair.start() > begin:
        end = next_pair.start()
    word = text[begin:end]
    is_in_query = pair.in_form or text[end : end + 1] == "&"
    if pair.is_definite or is_in_query:
        is_secret = word != "" and not _is_folder(pair, word)
    else:
        is_secret = is_random(word) and not _is_id(pair, word)
    if not is_secret:
        return None
    return begin, end, pair.quote_of_mask


def _is_folder(pair: _Pair, word: str) -> bool:
    return pair.name == "PWD" and word.startswith("/")


def _is_id(pair: _Pair, word: str) -> bool:
    return pair.name.lower().endswith("key") and UUID.fullmatch(word) is not None


def closing_index(text: str, begin: int) -> int:
    """Return the index after the bracket that closes the one at an index, or the end of truncated JSON.

    Brackets in strings do not count, because a match of `_STRUCTURE` is a whole string or one bracket.

    >>> closing_index('{"a": [1, "}"]} and more', 0)
    15
    """
    depth = 0
    for match in _STRUCTURE.finditer(text, begin):
        depth += _DEPTH_CHANGE.get(match[0], 0)
        if depth == 0:
            return match.end()
    return len(text)
