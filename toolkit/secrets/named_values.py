r"""Find values after secret names: in settings, JSON, header lines, forms, XML, options and sentences.

A span is three indices: the start and the end of the value, and the index of a quote if the mask has to be
put in quotes, else -1. The third index is for JSON values without quotes. For example, ``{"pin": 1234}`` has
to become ``{"pin": "[masked …]"}``, or it would no longer be JSON.

Example: in ``db_password = hunter2; timeout = 5``, `_PAIR` finds the name ``db_password`` and the sign ``=``.
The name is secret, so `_value_span` looks for the end of the value: not the end of the line, because a
semicolon and another setting follow, but the end of ``hunter2``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from toolkit.secrets.names import (
    is_clear_name,
    is_pair,
    is_prose,
    is_random,
    is_secret_name,
    names_next,
    plain_letters,
)

Span = tuple[int, int, int]  # start, end, and the index of the quote to use or -1
NO_QUOTE: Final = -1

NAME: Final = r"[\w.\-]{1,100}+"

# 1. A name and a sign: name=, name:, "name":, 'name' =>, name :=, params[name]=
#
# Groups: the name, the quote after it, the sign. For example, in {"pin" : 1234}, they are pin, " and :. White
# space before the sign may be a line end only after a quote, because JSON may be broken into lines there.
_PAIR: Final = re.compile(
    rf"(?<![\w.\-])({NAME})([\"'`]?)\]?(?:(?<=[\"'`])\s{{0,20}}|[ \t]{{0,4}})"
    r"(=>|:=|[=:\uff1d\uff1a])[ \t]{0,4}"
)
# A word before the name that makes it clear: "API key: …".
_WORD_BEFORE: Final = re.compile(
    r"(?i)(?:api|access|account|secret|private|auth\w*|refresh|bearer|client|session|security)[ ]\Z"
)
# characters before a name that are read: is there such a word, or does the name begin a line?
_LEAD: Final = 24
_LINE_PREFIX: Final = (
    " \t>*<-#|\"'"  # signs of logs and quotations before a header line: "> Cookie: …"
)
_READ_OF_PROSE: Final = 40

# 2. The value. The forms are tried in this order; the secret part is between « and »:
#   b"…" and the like              the prefix is skipped
#   password = """«a\nb»"""        three quotes
#   password: |\n  «a\n  b»        a block of YAML, or a folded header
#   "password": "«a \" b»"         quotes, up to the next one without a backslash
#   "password": «{"a": 1}»         an object or array, up to the bracket that closes it
#   Cookie: «a=1; b=2»             a whole line, for headers and for clear names that begin a line
#   Password=«a b»;Database=c      a setting of a connection string, up to the semicolon
#   token=«a»&page=2               a word
_SPACE: Final = re.compile(r"\s{0,20}")
_LITERAL_PREFIX: Final = re.compile(r"(?i)(?:b|u|r|br|rb)(?=[\"'])")  # of Python: b"…"
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
# A header line ends with the line (also if that is written as an escape), or with the JSON text around it:
#   Cookie: «a=1»\r\nHost: …   two characters each for \r and \n, as in a string of JSON
#   {"log": "Cookie: «a=1»"}    a quote and a bracket
_LINE: Final = re.compile(
    r"[^\r\n]*?(?=[\r\n]|\Z|\\{1,6}r\\{1,6}n|\\{1,6}n[ \t]{0,20}[\w\-]{1,40}[:=]"
    r"|\\{0,6}\"\s{0,20}(?:[}\]]|,\s{0,20}[\"{\[]))"
)
_FOLDED_LINES: Final = re.compile(r"(?:\r\n[ \t]{1,20}(?!at )[^\r\n]+)+")
_WHOLE_LINE: Final = re.compile(
    r"(?i)cookie|authorization"
)  # headers whose value may contain spaces
_COOKIE: Final = re.compile(r"[^\s=;]{0,100}=|(?=\S{0,99}\d)[\w.~+/%\-]{12}")
_SCHEME: Final = re.compile(
    r"(?i)(?:bearer|basic|digest|negotiate|ntlm|token|apikey|hawk|oauth|signature|aws4-hmac-sha256|dpop)"
    r"[ \t]+(?=\S)"
)
# signs at the end of a line that close the JSON or the quotes around the value
_CLOSERS: Final = "\\\"'}],; \t"
# A setting of a connection string, which may contain spaces, ends with a semicolon before the next one.
_SETTING: Final = re.compile(
    r"[^;\r\n\"'&<>]{1,500}?(?=[ \t]*;[ \t]*(?:[A-Za-z][\w \-]{0,40}=|$|[\"'\r\n]))"
)
# A backslash before a quote belongs to JSON in JSON, not to the value: "{\"token\": \"«abc»\"}"
_BARE: Final = re.compile(r"(?:[^\s&\"'<>\\]|\\(?!\\{0,6}[\"']))+")
_NEXT_PAIR: Final = re.compile(r"[,;][ ]?[\w.\-]{1,40}[=:]|[.,;:!?)\]}]+\Z")
_UUID: Final = re.compile(r"(?i)[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")
_CODE: Final = re.compile(r"[\w.~+/%\-]{8,}")  # an authorization code in a form

# 3. Options of commands: --password x
_OPTION: Final = re.compile(
    rf"(?<![\w.\-])--?({NAME})[ \t]{{1,4}}(?!-)((?:[^\s\"'\\]|\\(?!\\{{0,6}}[\"']))+|\"[^\"]+|'[^']+)"
)

# 4. Items of a list after the name of a header: ["X-Api-Key", "s3cr3t", "Host", "a.example"]
_TEXT_ITEM: Final = (
    r"b?(?:\"(?P<double>(?:[^\"\\]|\\.)*+)\"|'(?P<single>(?:[^'\\]|\\.)*+)')"
)
_ITEMS: Final = re.compile(rf"([\"'])({NAME})\1\s{{0,9}},\s{{0,9}}{_TEXT_ITEM}")
# lists of two items: [["authorization", "s3cr3t"], ["host", "a.example"]]
_TWO_ITEMS: Final = re.compile(
    rf"[\[(]\s{{0,9}}b?([\"'])({NAME})\1\s{{0,9}},\s{{0,9}}{_TEXT_ITEM}\s{{0,9}}[\])]"
)

# 5. PHP: ["password"]=> string(6) "s3cr3t" of var_dump, "password";s:6:"s3cr3t" of serialize
_PHP: Final = re.compile(
    rf"\"({NAME})\"(?:\]\s{{0,9}}=>\s{{0,20}}string\(\d{{1,9}}\)\s|;s:\d{{1,9}}:)\"([^\"]*)"
)

# 6. Sentences: "the token k3J9x0Q2v7B1m5 is invalid", "API key provided: …", "password 's3cr3t'"
#
# The expression reads a secret word ("token"), up to two words such as "provided" and "is", a sign (":" or
# "→"), and a value of at least 12 characters. The value is masked if it looks random (`is_random`), so that
# "the token authentication failed" stays.
_SENTENCE: Final = re.compile(
    r"(?i)(?:passw(?:or)?d|passphrase|passcode|pwd|secret|token|credential|jwt"
    r"|(?:api|access|account|private|secret|signing|encryption)[ _\-]?key)s?"
    r"(?:[ \t]{1,4}(?:is|was|value|provided|given|used|sent|received|passed|supplied)){0,2}"
    r"\s{0,4}(?:[:=]|->|\u2192)?\s{0,4}\(?[\"'`]?(?<![A-Za-z])(?P<value>[^\s\"'`<>(){}\[\],;]{12,4096}+)"
)
_QUOTED_PASSWORD: Final = re.compile(
    r"(?i)(?:passw(?:or)?d|passphrase|identified[ ]by)[ \t(]{1,4}"
    r"(?:'(?P<single>[^'\r\n]{1,200})'|\"(?P<double>[^\"\r\n]{1,200})\")"
)

# 7. XML: <password>s3cr3t</password>, and <key>password</key><string>s3cr3t</string>
_CONTENT: Final = r"\s{0,20}(?:<!\[CDATA\[)?([^<>]+?)(?:\]\]>)?\s{0,20}</"
_ELEMENT: Final = re.compile(
    rf"<(?:[\w.\-]{{1,40}}:)?({NAME})(?:[ \t][^<>]{{0,200}})?>{_CONTENT}"
)
_TWO_ELEMENTS: Final = re.compile(
    rf"(?i)<(?:key|name|string)>\s{{0,20}}({NAME})\s{{0,20}}</[^<>]{{1,40}}>"
    rf"\s{{0,20}}<(?:value|string)>{_CONTENT}"
)

# 8. Multipart forms, and attributes of elements: <input name="password" value="s3cr3t">
# A part of a multipart form is: the line with name="…", up to five more headers, an empty line, and the value
# up to the next boundary ("--…"):
#   Content-Disposition: form-data; name="password"
#
#   «s3cr3t»
#   --boundary
_FORM_PART: Final = re.compile(
    r"(?i)\bname=\"?([\w.\-\[\]]{1,100}+)\"?[^\r\n]{0,200}\r?\n(?:[a-z\-]{1,40}:[^\r\n]{0,200}\r?\n){0,5}\r?\n"
    r"((?s:.*?))(?=\r?\n--|\Z)"
)
_ATTRIBUTES: Final = re.compile(
    r"(?i)\b(?:name|key)=[\"']?([\w.\-\[\]]{1,100}+)[\"']?[^<>]{0,200}?\b(?:value|content)=[\"']([^\"'<>]+)"
)
_ATTRIBUTES_REVERSED: Final = re.compile(
    r"(?i)\b(?:value|content)=[\"']([^\"'<>]{1,1000})[\"'][^<>]{0,200}?\b(?:name|key)=[\"']?([\w.\-\[\]]{1,100}+)"
)
_ATTRIBUTE_FORMS: Final = (
    (_FORM_PART, 1, 2),
    (_ATTRIBUTES, 1, 2),
    (_ATTRIBUTES_REVERSED, 2, 1),
)
"""Expressions with the groups of the name and of the value."""

# 9. A field for the name and one for the value: {"name": "X-Api-Key", "value": "s3cr3t"}
_NAME_AND_VALUE: Final = re.compile(
    rf"\"(?i:name|key|header|field)\"\s{{0,20}}:\s{{0,20}}\"({NAME})\"\s{{0,20}},"
    r"\s{0,20}\"values?\"\s{0,20}:\s{0,20}"
)
# The same in two lines, as variables of containers in YAML and settings of Helm in HCL:
#   - name: DB_PASSWORD
#     value: s3cr3t
_NAME_LINE: Final = (
    rf"(?:name|key|header|field)[ \t]{{0,20}}[:=][ \t]{{0,20}}[\"']?({NAME})"
)
_VALUE_SIGN: Final = r"value[ \t]{0,20}[:=][ \t]{0,20}"
_BARE_LINE: Final = r"(?P<bare>[^\s\"'#][^\r\n]{0,4096})"
_NAME_ABOVE_VALUE: Final = re.compile(
    rf"(?i)\b{_NAME_LINE}[\"']?[ \t]{{0,20}}\r?\n[ \t]{{0,40}}{_VALUE_SIGN}"
    rf"(?:\"(?P<double>[^\"\r\n]{{1,4096}})|'(?P<single>[^'\r\n]{{1,4096}})|{_BARE_LINE})"
)
_VALUE_ABOVE_NAME: Final = re.compile(
    rf"(?i)\b{_VALUE_SIGN}"
    rf"(?:\"(?P<double>[^\"\r\n]{{1,4096}})\"|'(?P<single>[^'\r\n]{{1,4096}})'|{_BARE_LINE})"
    rf"[ \t]{{0,20}}\r?\n[ \t]{{0,40}}{_NAME_LINE}"
)
_LINE_FORMS: Final = ((_NAME_ABOVE_VALUE, 1), (_VALUE_ABOVE_NAME, 4))
"""Expressions with the group of the name."""


def named_spans(text: str, lowered: str) -> Iterator[Span]:
    """Yield the values after secret names; `lowered` is the text in plain letters and lower case.

    >>> list(named_spans('{"pin": 1234}', '{"pin": 1234}'))
    [(8, 12, 5)]
    """
    yield from _pair_spans(text)
    yield from _option_spans(text)
    yield from _item_spans(text)
    yield from _sentence_spans(text)
    if "</" in text:
        yield from _element_spans(text)
    if "name=" in lowered or "key=" in lowered:
        yield from _attribute_spans(text)
    if "value" in lowered:
        yield from _field_spans(text)
        if "\n" in text:
            yield from _line_spans(text)


@dataclass(frozen=True, slots=True)
class _Pair:
    """A secret name and the sign after it. `_value_span` searches for the value.

    `begin` is the index after the sign, and `in_form` is true if the pair is part of a query or a form.
    """

    text: str
    name: str
    quote: str
    quote_index: int
    sign: str
    start: int
    begin: int
    is_clear: bool
    in_form: bool

    @property
    def lead(self) -> str:
        """Return the characters before the name."""
        return self.text[max(self.start - _LEAD, 0) : self.start]

    @property
    def is_definite(self) -> bool:
        """Return True if any value is a secret, not only a value that looks random."""
        return self.is_clear or self.quote != ""

    def begins_line(self) -> bool:
        """Return whether only signs such as ``>`` are before the name in its line."""
        lead = self.lead
        if self.start > len(lead) and "\n" not in lead:
            return False
        return not lead.rpartition("\n")[2].strip(_LINE_PREFIX)


def _pair_spans(text: str) -> Iterator[Span]:
    """Yield the values after names with a sign, for example in JSON, forms, header lines and settings."""
    position = 0
    while match := _PAIR.search(text, position):
        position = match.end()
        span = _span_after(text, match)
        if span is not None:
            yield span
            position = max(position, span[1])


def _span_after(text: str, match: re.Match[str]) -> Span | None:
    """Return the span of the value after a name, or None if it is no secret."""
    name, quote = match[1], match[2]
    start = match.start()
    sign = plain_letters(match[3])
    in_form = sign == "=" and text[start - 1 : start] in {"?", "&"}
    if not is_secret_name(name):
        if in_form and name == "code" and (code := _CODE.match(text, match.end())):
            return (*code.span(), NO_QUOTE)
        return None
    lead = text[max(start - _LEAD, 0) : start]
    pair = _Pair(
        text=text,
        name=name,
        quote=quote,
        quote_index=match.start(2) if quote else NO_QUOTE,
        sign=sign,
        start=start,
        begin=_value_begin(text, match.end(), after_quote=quote != ""),
        is_clear=is_clear_name(name) or _WORD_BEFORE.search(lead) is not None,
        in_form=in_form,
    )
    return _value_span(pair)


def _value_begin(text: str, begin: int, *, after_quote: bool) -> int:
    """Return the index of the value after a sign, without white space in JSON and a prefix as in b"…"."""
    if after_quote and (space := _SPACE.match(text, begin)):
        begin = space.end()
    if prefix := _LITERAL_PREFIX.match(text, begin):
        begin = prefix.end()
    return begin


def _value_span(pair: _Pair) -> Span | None:
    """Return the span of a value. The first characters tell the form, for example a quote or a bracket."""
    text, begin = pair.text, pair.begin
    if triple := _TRIPLE.match(text, begin):
        return _if_secret(pair, triple.span(2), triple[2])
    may_have_block = pair.is_clear and pair.sign == ":" and not pair.quote
    if may_have_block and (block := _BLOCK.match(text, begin)):
        return _unless_prose(block, "value")
    first = text[begin : begin + 1]
    if first in _QUOTED:
        span = None
        if quoted := _QUOTED[first].match(text, begin):
            span = _unless_prose(quoted, 1)
        if span:
            return _if_secret(pair, span[:2], text[span[0] : span[1]])
        return None
    in_brackets = first in {"{", "["}
    start_of_value = text[begin : begin + _READ_OF_PROSE]
    if is_prose(start_of_value, quoted=in_brackets or pair.quote != ""):
        return None
    if not in_brackets:
        return _unquoted_span(pair)
    if pair.is_definite:
        return begin, _closing_index(text, begin), pair.quote_index
    return None


def _unless_prose(match: re.Match[str], group: str | int) -> Span | None:
    """Return the span of a group, or None if it contains a sentence such as "must not be empty"."""
    if is_prose(match[group], quoted=True):
        return None
    return (*match.span(group), NO_QUOTE)


def _if_secret(pair: _Pair, span: tuple[int, int], value: str) -> Span | None:
    """Return the span of a quoted value, unless the name is not clear and the value does not look random."""
    if pair.is_definite or is_random(value):
        return (*span, NO_QUOTE)
    return None


def _unquoted_span(pair: _Pair) -> Span | None:
    """Return the span of a value without quotes: of a line, of a setting, or of a word."""
    text, begin = pair.text, pair.begin
    is_whole_line = _WHOLE_LINE.search(pair.name) is not None
    if (
        is_whole_line
        and "cookie" in pair.name.lower()
        and not _COOKIE.match(text, begin)
    ):
        return None
    is_line = is_whole_line or (pair.is_clear and pair.begins_line())
    if is_line and pair.sign == ":" and not pair.quote:
        return _line_span(pair, may_continue=is_whole_line)
    word = None
    if pair.sign == "=" and not pair.in_form:
        word = _SETTING.match(text, begin)
    word = word or _BARE.match(text, begin)
    if word:
        return _word_span(pair, word)
    return None


def _line_span(pair: _Pair, *, may_continue: bool) -> Span:
    """Return the span of the rest of a line, without a scheme such as "Bearer" before the secret."""
    text, begin = pair.text, pair.begin
    end = begin
    if line := _LINE.match(text, begin):
        end = line.end()
    if may_continue and (folded := _FOLDED_LINES.match(text, end)):
        end = folded.end()
    # in curl -H 'Authorization: …' https://a.example/, the header ends with the quote before it
    quote_before = pair.lead[-1:]
    if quote_before in {'"', "'"}:
        closing_quote = text.rfind(quote_before, begin, end)
        if closing_quote >= 0:
            end = closing_quote
    end = begin + len(text[begin:end].rstrip(_CLOSERS))
    scheme = _SCHEME.match(text, begin, end)
    if scheme:
        begin = scheme.end()
    return begin, end, NO_QUOTE


def _word_span(pair: _Pair, word: re.Match[str]) -> Span | None:
    """Return the span of a word up to the next pair, or None if it is no secret."""
    text, begin = pair.text, pair.begin
    end = word.end()
    next_pair = _NEXT_PAIR.search(text, begin, end)
    if next_pair and next_pair.start() > begin:
        end = next_pair.start()
    value = text[begin:end]
    if pair.is_definite or pair.in_form or text[end : end + 1] == "&":
        is_folder = pair.name == "PWD" and value.startswith("/")
        is_secret = not is_folder
    else:
        is_id = pair.name.lower().endswith("key") and _UUID.fullmatch(value)
        is_secret = is_random(value) and not is_id
    if not is_secret:
        return None
    if pair.sign == ":":
        return begin, end, pair.quote_index
    return begin, end, NO_QUOTE


def _closing_index(text: str, begin: int) -> int:
    """Return the index after the bracket that closes the one at an index, or the end of truncated JSON.

    >>> _closing_index('{"a": [1, "}"]} and more', 0)
    15
    """
    depth = 0
    for match in _STRUCTURE.finditer(text, begin):
        first = match[0][0]
        if first in "[{":
            depth += 1
        elif first in "]}":
            depth -= 1
        if depth == 0:
            return match.end()
    return len(text)


def _option_spans(text: str) -> Iterator[Span]:
    """Yield the values of options: ``--token x``, and ``-password x`` if the name is clear."""
    for match in _OPTION.finditer(text):
        name, value = match[1], match[2]
        has_two_hyphens = match[0][1] == "-"
        is_named = is_secret_name(name) and (has_two_hyphens or is_clear_name(name))
        if is_named and not is_prose(value, quoted=False):
            yield (*match.span(2), NO_QUOTE)


def _item_spans(text: str) -> Iterator[Span]:
    """Yield the items of lists after secret names."""
    for match in _ITEMS.finditer(text):
        kind = match.lastgroup or ""
        if names_next(match[2], match[kind]):
            yield (*match.span(kind), NO_QUOTE)
    for match in _TWO_ITEMS.finditer(text):
        kind = match.lastgroup or ""
        if is_pair(match[2], match[kind]):
            yield (*match.span(kind), NO_QUOTE)
    for match in _PHP.finditer(text):
        if is_secret_name(match[1]):
            yield (*match.span(2), NO_QUOTE)


def _sentence_spans(text: str) -> Iterator[Span]:
    """Yield random words and quoted passwords in sentences about secrets."""
    for match in _SENTENCE.finditer(text):
        word = match["value"].rstrip(".:")
        is_address = "//" in word or word[0] in "/-"
        if is_random(word) and not is_address and not _UUID.fullmatch(word):
            start = match.start("value")
            yield start, start + len(word), NO_QUOTE
    for match in _QUOTED_PASSWORD.finditer(text):
        kind = match.lastgroup or ""
        if not is_prose(match[kind], quoted=True):
            yield (*match.span(kind), NO_QUOTE)


def _element_spans(text: str) -> Iterator[Span]:
    """Yield the contents of XML elements with secret names."""
    for match in _ELEMENT.finditer(text):
        name, content = match[1], match[2].strip()
        if is_secret_name(name) and (is_clear_name(name) or is_random(content)):
            yield (*match.span(2), NO_QUOTE)
    for match in _TWO_ELEMENTS.finditer(text):
        if is_secret_name(match[1]):
            yield (*match.span(2), NO_QUOTE)


def _attribute_spans(text: str) -> Iterator[Span]:
    """Yield the values of multipart forms and of attributes, whose name is another attribute."""
    for expression, name_group, value_group in _ATTRIBUTE_FORMS:
        for match in expression.finditer(text):
            if is_secret_name(match[name_group].strip("[]")):
                yield (*match.span(value_group), NO_QUOTE)


def _field_spans(text: str) -> Iterator[Span]:
    """Yield the values of JSON fields called "value" that the field before them names."""
    for match in _NAME_AND_VALUE.finditer(text):
        if not is_secret_name(match[1]):
            continue
        begin = match.end()
        if quoted := _QUOTED['"'].match(text, begin):
            yield (*quoted.span(1), NO_QUOTE)
        elif text[begin : begin + 1] in {"{", "["}:
            yield begin, _closing_index(text, begin), match.end(1)


def _line_spans(text: str) -> Iterator[Span]:
    """Yield the values of lines with the key "value" that the line before or after them names."""
    for expression, name_group in _LINE_FORMS:
        for match in expression.finditer(text):
            kind = next(kind for kind in ("double", "single", "bare") if match[kind])
            if is_secret_name(match[name_group]) and not is_prose(
                match[kind], quoted=True
            ):
                start, end = match.span(kind)
                end = start + len(text[start:end].rstrip(_CLOSERS))
                yield start, end, NO_QUOTE
