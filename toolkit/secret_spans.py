"""The secret parts of a text: in its URLs, after secret names, and what looks like a secret.

A part is three indices: its start, its end, and that of a quote where the mask of a bare JSON value has to be
put in quotes like it, else -1. Escapes of JSON, HTML and URLs are decoded first (`decoded`), layer by layer.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final

from toolkit.own_tokens import MASK, MASK_START, DecodedText
from toolkit.secret_patterns import (
    GIVES_ACCESS,
    is_clear_name,
    is_pair,
    is_prose,
    is_random,
    is_secret_name,
    names_next,
    pattern_spans,
    plain_letters,
    speaks_of_secrets,
)

Span = tuple[int, int, int]  # start, end, the quote to use or -1

MASKED: Final = "\x1f"
"""Replaces masks during the search: white space to regular expressions, which no secret contains."""

_ESCAPE: Final = re.compile(
    r"\\(?:u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|[/\"'\\nrtbf])"
    r"|&(?:\#[0-9]{1,7};?|\#[xX][0-9a-fA-F]{1,6};?|[A-Za-z]{2,31};)"
    r"|%[c-fC-F][0-9a-fA-F](?:%[89abAB][0-9a-fA-F]){1,3}|%[0-9a-fA-F]{2}"
)
_CONTROLS: Final = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}

# A mask inside a URL is part of the URL.
_URL: Final = re.compile(r"(?i)(?<![a-z])[a-z][a-z0-9+.\-]{0,40}+://(?:\x1f|[^\s\"'<>\\^`{|}])+")
_RELATIVE: Final = re.compile(r"[/?](?:\x1f|\S)*")
_QUERY: Final = re.compile(r"\?(?=[\w.\-~%\[\]]{1,100}=)(?:\x1f|[^\s\"'<>\\^`{|}])+")
# Up to the last @ of the authority; or, where a password holds / ? or #, up to the next @. Not a port.
_USER_INFO: Final = re.compile(
    r"(?<=//)(?:(?:\x1f|[^\s/?#\"<>]){1,1000}(?=@)"
    r"|(?:\x1f|[^\s/?#\"<>@:\[]){0,500}:(?!\d{0,5}(?:[/?#\s]|$))(?:\x1f|[^\s\"<>@]){1,200}(?=@))"
)
# The same as browsers read it: with slashes the wrong way around, too many, too few, or none.
_UNESCAPED_USER_INFO: Final = re.compile(
    r"(?i)(?:[/\\]\\|:[/\\]|(?<![a-z])(?:https?|wss?|ftp):)"
    r"([^\s/?#\"<>@:\[\\]{1,500}:(?!\d{0,5}(?:[/?#\s]|$))[^\s\"<>@/\\]{1,200})(?=@)"
)
_MATRIX: Final = re.compile(r";[\w.\-~%]{1,100}+=([^;/?#\s]+)")
_GIVES_ACCESS: Final = re.compile(f"(?i){GIVES_ACCESS}$")
_MIN_BARE, _MIN_PADDED = 6, 16  # shorter parts of a query without a value are names

_NAME: Final = r"[\w.\-]{1,100}+"
_PAIR: Final = re.compile(
    rf"(?<![\w.\-])({_NAME})([\"'`]?)\]?(?:(?<=[\"'`])\s{{0,20}}|[ \t]{{0,4}})"
    r"(=>|:=|[=:\uff1d\uff1a])[ \t]{0,4}"
)
_OPTION: Final = re.compile(
    rf"(?<![\w.\-])--?({_NAME})[ \t]{{1,4}}(?!-)((?:[^\s\"'\\]|\\(?!\\{{0,6}}[\"']))+|\"[^\"]+|'[^']+)"
)
_FIRST_WORD: Final = re.compile(
    r"(?i)(?:api|access|account|secret|private|auth\w*|refresh|bearer|client|session|security)[ ]\Z"
)
_QUOTED: Final = {
    quote: re.compile(rf"{quote}((?:[^{quote}\\]|\\.)*+)", re.DOTALL) for quote in ('"', "'", "`")
}
_TRIPLE: Final = re.compile(r"(\"{3}|'{3})(.*?)(?:\1|\Z)", re.DOTALL)
_OF_BYTES: Final = re.compile(r"(?i)(?:b|u|r|br|rb)(?=[\"'])")
_SPACE: Final = re.compile(r"\s{0,20}")
# a scalar of YAML in lines of its own, or a header's value in the next line
_BLOCK: Final = re.compile(
    r"(?:[|>][+\-0-9]{0,2})?[ \t]{0,9}\r?\n([ \t]{1,20})(?![\w.\-]{1,100}:(?:\s|\Z)|at |-[ ])"
    r"(?P<value>\S[^\r\n]*(?:\r?\n\1[^\r\n]*)*)"
)
_FOLDED: Final = re.compile(r"(?:\r\n[ \t]{1,20}(?!at )[^\r\n]+)+")
_STRUCTURE: Final = re.compile(r"\"(?:[^\"\\]|\\.)*+(?:\"|\Z)|[\[{]|[\]}]", re.DOTALL)
_CONNECTION: Final = re.compile(
    r"[^;\r\n\"'&<>]{1,500}?(?=[ \t]*;[ \t]*(?:[A-Za-z][\w \-]{0,40}=|$|[\"'\r\n]))"
)
# not the backslash before a quote: in JSON in JSON it is not the value's
_BARE: Final = re.compile(r"(?:[^\s&\"'<>\\]|\\(?!\\{0,6}[\"']))+")
_NEXT: Final = re.compile(r"[,;][ ]?[\w.\-]{1,40}[=:]|[.,;:!?)\]}]+\Z")
# up to the line's end, also where that is written as an escape, or to that of the JSON text it is in
_LINE: Final = re.compile(
    r"[^\r\n]*?(?=[\r\n]|\Z|\\{1,6}r\\{1,6}n|\\{1,6}n[ \t]{0,20}[\w\-]{1,40}[:=]"
    r"|\\{0,6}\"\s{0,20}(?:[}\]]|,\s{0,20}[\"{\[]))"
)
_CLOSERS: Final = "\\\"'}],; \t"
_WHOLE_LINE: Final = re.compile(r"(?i)cookie|authorization")
_COOKIE: Final = re.compile(r"[^\s=;]{0,100}=|(?=\S{0,99}\d)[\w.~+/%\-]{12}")
_SCHEME: Final = re.compile(
    r"(?i)(?:bearer|basic|digest|negotiate|ntlm|token|apikey|hawk|oauth|signature|aws4-hmac-sha256|dpop)"
    r"[ \t]+(?=\S)"
)
_UUID: Final = re.compile(r"(?i)[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")
_LEAD: Final = 24  # characters before a name that tell whether it begins a line
_CODE: Final = re.compile(r"[\w.~+/%\-]{8,}")  # an authorization code in a form

_CDATA: Final = r"\s{0,20}(?:<!\[CDATA\[)?([^<>]+?)(?:\]\]>)?\s{0,20}</"
_ELEMENT: Final = re.compile(rf"<(?:[\w.\-]{{1,40}}:)?({_NAME})(?:[ \t][^<>]{{0,200}})?>{_CDATA}")
_ENTRY: Final = re.compile(
    rf"(?i)<(?:key|name|string)>\s{{0,20}}({_NAME})\s{{0,20}}</[^<>]{{1,40}}>\s{{0,20}}<(?:value|string)>{_CDATA}"
)
_PART: Final = re.compile(
    r"(?i)\bname=\"?([\w.\-\[\]]{1,100}+)\"?[^\r\n]{0,200}\r?\n(?:[a-z\-]{1,40}:[^\r\n]{0,200}\r?\n){0,5}\r?\n"
    r"((?s:.*?))(?=\r?\n--|\Z)"
)
_ATTRIBUTE: Final = re.compile(
    r"(?i)\b(?:name|key)=[\"']?([\w.\-\[\]]{1,100}+)[\"']?[^<>]{0,200}?\b(?:value|content)=[\"']([^\"'<>]+)"
)
_ATTRIBUTE_BEFORE: Final = re.compile(
    r"(?i)\b(?:value|content)=[\"']([^\"'<>]{1,1000})[\"'][^<>]{0,200}?\b(?:name|key)=[\"']?([\w.\-\[\]]{1,100}+)"
)
_NAME_AND_VALUE: Final = re.compile(
    rf"\"(?i:name|key|header|field)\"\s{{0,20}}:\s{{0,20}}\"({_NAME})\"\s{{0,20}},"
    r"\s{0,20}\"values?\"\s{0,20}:\s{0,20}"
)
# an item of a list, and the next one: headers as many servers hand them on
_ITEMS: Final = re.compile(
    rf"([\"'])({_NAME})\1\s{{0,9}},\s{{0,9}}b?(?:\"(?P<double>(?:[^\"\\]|\\.)*+)\"|'(?P<single>(?:[^'\\]|\\.)*+)')"
)
# a list of two items: [["authorization", "s3cr3t"], ["host", "a.example"]]
_TWO_ITEMS: Final = re.compile(
    rf"[\[(]\s{{0,9}}b?([\"'])({_NAME})\1\s{{0,9}},"
    r"\s{0,9}b?(?:\"(?P<double>(?:[^\"\\]|\\.)*+)\"|'(?P<single>(?:[^'\\]|\\.)*+)')\s{0,9}[\])]"
)
# a name and, in the next line, its value: the variables of a container in YAML, settings of Helm in HCL
#   - name: DB_PASSWORD
#     value: s3cr3t
_NAME_ABOVE_VALUE: Final = re.compile(
    rf"(?i)\b(?:name|key|header|field)[ \t]{{0,4}}[:=][ \t]{{0,20}}[\"']?({_NAME})[\"']?[ \t]{{0,20}}\r?\n"
    r"[ \t]{0,40}value[ \t]{0,20}[:=][ \t]{0,20}"
    r"(?:\"(?P<double>[^\"\r\n]{1,4096})|'(?P<single>[^'\r\n]{1,4096})|(?P<bare>[^\s\"'#][^\r\n]{0,4096}))"
)
# the same with the value first
_VALUE_ABOVE_NAME: Final = re.compile(
    r"(?i)\bvalue[ \t]{0,4}[:=][ \t]{0,20}"
    r"(?:\"(?P<double>[^\"\r\n]{1,4096})\"|'(?P<single>[^'\r\n]{1,4096})'|(?P<bare>[^\s\"'#][^\r\n]{0,4096}))"
    rf"[ \t]{{0,20}}\r?\n[ \t]{{0,40}}(?:name|key|header|field)[ \t]{{0,20}}[:=][ \t]{{0,20}}[\"']?({_NAME})"
)
_PHP: Final = re.compile(
    rf"\"({_NAME})\"(?:\]\s{{0,9}}=>\s{{0,20}}string\(\d{{1,9}}\)\s|;s:\d{{1,9}}:)\"([^\"]*)"
)
_SAID: Final = re.compile(
    r"(?i)(?:passw(?:or)?d|passphrase|passcode|pwd|secret|token|credential|jwt"
    r"|(?:api|access|account|private|secret|signing|encryption)[ _\-]?key)s?"
    r"(?:[ \t]{1,4}(?:is|was|value|provided|given|used|sent|received|passed|supplied)){0,2}"
    r"\s{0,4}(?:[:=]|->|\u2192)?\s{0,4}\(?[\"'`]?(?<![A-Za-z])(?P<value>[^\s\"'`<>(){}\[\],;]{12,4096}+)"
)
_QUOTED_PASSWORD: Final = re.compile(
    r"(?i)(?:passw(?:or)?d|passphrase|identified[ ]by)[ \t(]{1,4}"
    r"(?:'(?P<single>[^'\r\n]{1,200})'|\"(?P<double>[^\"\r\n]{1,200})\")"
)


def without_masks(view: DecodedText) -> DecodedText:
    """The text with `MASKED` in place of each mask."""
    return (view.replaced(MASK, lambda _: MASKED) or view) if MASK_START in view.text else view


def decoded(view: DecodedText) -> DecodedText | None:
    """The text with one layer of escapes decoded; None without any."""
    return view.replaced(_ESCAPE, _character)


def _character(match: re.Match[str]) -> str:
    escape = match[0]
    if escape[0] == "%":
        code = bytes.fromhex(escape.replace("%", ""))
        return chr(code[0]) if len(code) == 1 else code.decode("utf-8", "replace")[0]
    if escape[0] == "&":
        return html.unescape(escape)
    kind, digits = escape[1], escape[2:]
    return chr(int(digits, 16)) if digits else _CONTROLS.get(kind, kind)


def text_spans(text: str) -> list[Span]:
    """The secret parts of any text, in order, without overlaps.

    >>> text_spans("see https://h.example/?token=abc and password=xyz")
    [(29, 32, -1), (46, 49, -1)]
    """
    return url_spans(text) if _RELATIVE.fullmatch(text) else _disjoint(_anywhere(text))


def url_spans(url: str) -> list[Span]:
    """The secret parts of a text that is one URL: every value of its query, and its whole fragment."""
    return _disjoint((*_of_url(url, 0), *_anywhere(url, one_url=_URL.fullmatch(url) is not None)))


def _disjoint(spans: Iterable[Span]) -> list[Span]:
    result: list[Span] = []
    for start, end, quote in sorted(spans):
        if result and start < result[-1][1]:
            first, last, mark = result[-1]
            result[-1] = (first, max(last, end), mark)
        elif start < end:
            result.append((start, end, quote))
    return result


def _anywhere(text: str, *, one_url: bool = False) -> Iterator[Span]:
    """All secret parts of a text; of one that is a URL, without what `_of_url` has found."""
    lowered = plain_letters(text).lower()
    if "@" in text:
        for match in _USER_INFO.finditer(text):
            yield (*match.span(), -1)
        for match in _UNESCAPED_USER_INFO.finditer(text):
            yield (*match.span(1), -1)
    if "://" in text and not one_url:
        for match in _URL.finditer(text):
            yield from _of_url(match[0], match.start())
    if "?" in text and not one_url:
        for match in _QUERY.finditer(text):
            yield from _of_url(match[0], match.start())
    for start, end in pattern_spans(text, lowered):
        yield start, end, -1
    if one_url:  # every value of its query is masked
        text = text.partition("?")[0]
        lowered = plain_letters(text).lower()
    if speaks_of_secrets(lowered):
        yield from _pairs(text)
        yield from _fields(text, lowered)


def _of_url(url: str, offset: int) -> Iterator[Span]:
    """The secret parts of a URL that begins at this index of a text, except its user info."""
    begin = 0
    if "@" in url:
        for user in _USER_INFO.finditer(url):
            begin = user.end()
    mark = url.find("#", begin)
    address = len(url) if mark < 0 else mark
    if mark >= 0:
        yield offset + mark + 1, offset + len(url), -1
    question = url.find("?", begin, address)
    if question >= 0:
        position = question + 1
        for pair in url[position:address].split("&"):
            name, equals, value = pair.partition("=")
            if value.strip("="):
                yield offset + position + len(name) + 1, offset + position + len(pair), -1
            elif len(pair) >= (_MIN_PADDED if equals else _MIN_BARE):
                # no name and value, then: a flag, or a bare secret, perhaps with base64 padding
                yield offset + position, offset + position + len(pair), -1
            position += len(pair) + 1
    path = url[begin : address if question < 0 else question]
    if ";" in path:
        for matrix in _MATRIX.finditer(path):
            yield offset + begin + matrix.start(1), offset + begin + matrix.end(1), -1
    position, before = offset + begin, ""
    for segment in path.split("/"):
        if _guards(before) and is_random(segment):
            yield position, position + len(segment), -1
        position += len(segment) + 1
        before = segment


@lru_cache(4096)
def _guards(segment: str) -> bool:
    """Whether what follows this part of a path may be a secret: ``/reset/…``, ``/token/…``."""
    return is_secret_name(segment) or _GIVES_ACCESS.search(segment) is not None


def _pairs(text: str) -> Iterator[Span]:
    """Values after secret names: in JSON, forms, connection strings, header lines, settings, sentences."""
    position = 0
    while match := _PAIR.search(text, position):
        position = match.end()
        span = _value(text, match)
        if span is not None:
            yield span
            position = max(position, span[1])
    for option in _OPTION.finditer(text):
        named = is_secret_name(option[1]) and (option[0][1] == "-" or is_clear_name(option[1]))
        if named and not is_prose(option[2], quoted=False):
            yield (*option.span(2), -1)
    for item in _ITEMS.finditer(text):
        value = item.lastgroup or ""
        if names_next(item[2], item[value]):
            yield (*item.span(value), -1)
    for pair in _TWO_ITEMS.finditer(text):
        value = pair.lastgroup or ""
        if is_pair(pair[2], pair[value]):
            yield (*pair.span(value), -1)
    for said in _PHP.finditer(text):
        if is_secret_name(said[1]):
            yield (*said.span(2), -1)
    for said in _SAID.finditer(text):
        word = said["value"].rstrip(".:")
        if is_random(word) and not _UUID.fullmatch(word) and "//" not in word and word[0] not in "/-":
            yield said.start("value"), said.start("value") + len(word), -1
    for said in _QUOTED_PASSWORD.finditer(text):
        value = said.lastgroup or ""
        if not is_prose(said[value], quoted=True):
            yield (*said.span(value), -1)


def _value(text: str, pair: re.Match[str]) -> Span | None:
    name, quote, sign = pair[1], pair[2], plain_letters(pair[3])
    start = pair.start()
    in_form = sign == "=" and text[start - 1 : start] in {"?", "&"}
    if not is_secret_name(name):
        code = in_form and name == "code" and _CODE.match(text, pair.end())
        return (*code.span(), -1) if code else None
    clear = is_clear_name(name) or bool(_FIRST_WORD.search(text[max(start - _LEAD, 0) : start]))
    begin = pair.end()
    if quote and (space := _SPACE.match(text, begin)):
        begin = space.end()
    if prefix := _OF_BYTES.match(text, begin):
        begin = prefix.end()
    first = text[begin : begin + 1]
    if triple := _TRIPLE.match(text, begin):
        return (*triple.span(2), -1) if quote or clear or is_random(triple[2]) else None
    if clear and sign == ":" and not quote and (block := _BLOCK.match(text, begin)):
        return None if is_prose(block["value"], quoted=True) else (*block.span("value"), -1)
    if first in _QUOTED:
        inner = _QUOTED[first].match(text, begin)
        if inner is None or is_prose(inner[1], quoted=True):
            return None
        return (*inner.span(1), -1) if quote or clear or is_random(inner[1]) else None
    mark = pair.start(2) if quote else -1
    if first and first in "{[":
        if not (quote or clear) or is_prose(text[begin : begin + 40], quoted=True):
            return None
        return begin, _closing(text, begin), mark
    return _bare(text, pair, begin, clear=clear, in_form=in_form, mark=mark)


def _bare(
    text: str, pair: re.Match[str], begin: int, *, clear: bool, in_form: bool, mark: int
) -> Span | None:
    """A value without quotes: up to the end of the line, of a part of a connection string, or of a word."""
    name, quote, sign = pair[1], pair[2], plain_letters(pair[3])
    start = pair.start()
    if is_prose(text[begin : begin + 40], quoted=bool(quote)):
        return None
    lead = text[max(start - _LEAD, 0) : start]
    starts_line = start <= len(lead) or "\n" in lead
    starts_line = starts_line and not lead.rpartition("\n")[2].strip(" \t>*<-#|\"'")
    whole_line = _WHOLE_LINE.search(name)
    if whole_line and "cookie" in name.lower() and not _COOKIE.match(text, begin):
        return None
    if not quote and sign == ":" and (whole_line or (clear and starts_line)):
        line = _LINE.match(text, begin)
        end = line.end() if line else begin
        if whole_line and (folded := _FOLDED.match(text, end)):
            end = folded.end()
        around = lead[-1:]
        if around and around in "\"'" and (closing := text.rfind(around, begin, end)) >= 0:
            end = closing
        end = begin + len(text[begin:end].rstrip(_CLOSERS))
        scheme = _SCHEME.match(text, begin, end)
        return (scheme.end() if scheme else begin), end, -1
    value = _CONNECTION.match(text, begin) if sign == "=" and not in_form else None
    value = value or _BARE.match(text, begin)
    if value is None:
        return None
    end = value.end()
    if cut := _NEXT.search(text, begin, end):
        end = cut.start() if cut.start() > begin else end
    word = text[begin:end]
    if quote or clear or in_form or text[end : end + 1] == "&":
        masked = not (name == "PWD" and word.startswith("/"))
    else:
        masked = is_random(word) and not (name.lower().endswith("key") and _UUID.fullmatch(word))
    return (begin, end, mark if sign == ":" else -1) if masked else None


def _closing(text: str, begin: int) -> int:
    """The index after the bracket that closes the one at this index; the end where none does."""
    depth = 0
    for match in _STRUCTURE.finditer(text, begin):
        sign = match[0][0]
        depth += (sign in "[{") - (sign in "]}")
        if depth == 0:
            return match.end()
    return len(text)


def _fields(text: str, lowered: str) -> Iterator[Span]:
    """Values of secret fields in XML, forms and lists of headers, where name and value are separate."""
    if "</" in text:
        for match in _ELEMENT.finditer(text):
            if is_secret_name(match[1]) and (is_clear_name(match[1]) or is_random(match[2].strip())):
                yield (*match.span(2), -1)
        for match in _ENTRY.finditer(text):
            if is_secret_name(match[1]):
                yield (*match.span(2), -1)
    if "name=" in lowered or "key=" in lowered:
        for pattern, name, value in ((_PART, 1, 2), (_ATTRIBUTE, 1, 2), (_ATTRIBUTE_BEFORE, 2, 1)):
            for match in pattern.finditer(text):
                if is_secret_name(match[name].strip("[]")):
                    yield (*match.span(value), -1)
    if "value" in lowered:
        yield from _named_values(text)


def _named_values(text: str) -> Iterator[Span]:
    """Values whose field is called "value", named by the field before them, or in a line above or below."""
    for pattern, name in ((_NAME_ABOVE_VALUE, 1), (_VALUE_ABOVE_NAME, 4)):
        yield from _named_lines(text, pattern, name)
    for match in _NAME_AND_VALUE.finditer(text):
        if is_secret_name(match[1]):
            first = text[match.end() : match.end() + 1]
            if inner := _QUOTED['"'].match(text, match.end()):
                yield (*inner.span(1), -1)
            elif first and first in "{[":
                yield match.end(), _closing(text, match.end()), match.end(1)


def _named_lines(text: str, pattern: re.Pattern[str], name: int) -> Iterator[Span]:
    """Values in lines of their own, whose name is in the line before or after; `name` is its group."""
    for match in pattern.finditer(text):
        kind = next(kind for kind in ("double", "single", "bare") if match[kind])
        start, end = match.span(kind)
        end = start + len(text[start:end].rstrip(_CLOSERS))
        if is_secret_name(match[name]) and not is_prose(match[kind], quoted=True):
            yield start, end, -1
