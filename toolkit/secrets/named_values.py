r"""Find values after secret names: in JSON, forms, header lines, XML, options, lists and sentences.

A name with a sign, such as ``name=``, is read by `pairs`. All other ways to write a name and a value are rows
of one table, `_FORMS`: an expression that finds the name and the value, and a function that decides whether
the value is a secret. If you add a form, add a row.

Example: in ``curl --token s3cr3t``, the row of options finds the name ``token`` and the value ``s3cr3t``. The
name is secret and the value is no sentence, so the value is masked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, groupby
from operator import itemgetter
from typing import Final

from toolkit.secrets.names import (
    STATED_NAME,
    STATING_WORDS,
    is_clear_name,
    is_pair,
    is_prose,
    is_random,
    is_secret_name,
    names_next,
)
from toolkit.secrets.pairs import (
    CLOSERS,
    NAME,
    NO_QUOTE,
    UUID,
    Span,
    closing_index,
    end_of_quoted,
    pair_spans,
)

_IN_QUOTES: Final = ("double", "single")
"""Groups of an expression for a value in quotes of either kind; only one of them matches."""


@dataclass(frozen=True, slots=True)
class _Form:
    """One way to write a name and a value.

    Attributes
    ----------
    expression : re.Pattern
        The group ``name`` is the name; one of the groups `values` is the value.
    is_secret : callable
        Return whether the value after the name is a secret.
    hints : tuple of str
        The form is searched only in text that contains all of them in lower case.
    closers : str
        Signs that are not masked at the end of a value.
    """

    expression: re.Pattern[str]
    is_secret: Callable[[str, str], bool]
    hints: tuple[str, ...] = ()
    values: tuple[str, ...] = ("value",)
    closers: str = ""

    def spans(self, text: str) -> Iterator[Span]:
        """Yield the spans of the secret values."""
        for match in self.expression.finditer(text):
            # of the groups for different quotes, only one can have matched
            group = next(filter(match.group, self.values), None)
            if group is None:
                # nothing is between the quotes
                continue

            value = match[group].rstrip(self.closers)
            if self.is_secret(match["name"], value):
                start = match.start(group)
                end = start + len(value)
                yield start, end, NO_QUOTE


def _has_secret_name(name: str, value: str) -> bool:  # noqa: ARG001 - as `_Form` calls it
    """Return whether the name is secret, perhaps in brackets as in a form: ``user[password]``."""
    return is_secret_name(name.strip("[]"))


def _is_code(name: str, value: str) -> bool:  # noqa: ARG001 - as `_Form` calls it
    """Return True: the expression only finds authorization codes."""
    return True


def _is_option(name: str, value: str) -> bool:
    """Return whether an option has a secret value; ``-name`` with one hyphen needs a clear name."""
    # for example, the names "-token" of "--token abc" and "password" of "-password abc"
    is_named = is_clear_name(name)
    if name.startswith("-"):
        is_named = is_secret_name(name[1:])
    return is_named and not is_prose(value, quoted=False)


def _is_stated(name: str, value: str) -> bool:  # noqa: ARG001 - as `_Form` calls it
    """Return whether a word of a sentence looks random and is neither an address nor an id."""
    is_address = _ADDRESS.match(value) is not None
    is_id = UUID.fullmatch(value) is not None
    return is_random(value) and not is_address and not is_id


def _is_no_sentence(name: str, value: str) -> bool:  # noqa: ARG001 - as `_Form` calls it
    return not is_prose(value, quoted=True)


def _is_content(name: str, value: str) -> bool:
    """Return whether the content of an XML element is a secret."""
    # for example, <password>closed</password> is a secret, and <session>closed</session> is none
    if is_clear_name(name):
        return True
    return is_secret_name(name) and is_random(value.strip())


def _is_secret_line(name: str, value: str) -> bool:
    # for example, the line "value: is required" after "name: DB_PASSWORD" is a sentence
    is_sentence = is_prose(value, quoted=True)
    return is_secret_name(name) and not is_sentence


# Options of commands: --password x, -password x
_OPTION: Final = re.compile(
    rf"(?<![\w.\-])-(?P<name>-?{NAME})[ \t]{{1,4}}(?!-)"
    r"(?P<value>(?:[^\s\"'\\]|\\(?!\\{0,6}[\"']))+|\"[^\"]+|'[^']+)"
)

# An authorization code in a form: ?code=SplxlOBeZQQYbYS6WxSbIA
_CODE: Final = re.compile(
    r"(?P<name>code)(?<=[?&]code)[\"'`]?\]?[ \t]{0,4}[=\uff1d][ \t]{0,4}(?P<value>[\w.~+/%\-]{8,})"
)

# Items of a list after the name of a header: ["X-Api-Key", "s3cr3t", "Host", "a.example"]
_TEXT_ITEM: Final = (
    r"b?(?:\"(?P<double>(?>(?:[^\"\\]|\\.)*))\"|'(?P<single>(?>(?:[^'\\]|\\.)*))')"
)
_ITEM: Final = re.compile(rf"([\"'])(?P<name>{NAME})\1\s{{0,9}},\s{{0,9}}{_TEXT_ITEM}")
# lists of two items: [["authorization", "s3cr3t"], ["host", "a.example"]]
_TWO_ITEMS: Final = re.compile(
    rf"[\[(]\s{{0,9}}b?([\"'])(?P<name>{NAME})\1\s{{0,9}},\s{{0,9}}{_TEXT_ITEM}\s{{0,9}}[\])]"
)

# PHP: ["password"]=> string(6) "s3cr3t" of var_dump, "password";s:6:"s3cr3t" of serialize
_PHP: Final = re.compile(
    rf"\"(?P<name>{NAME})\"(?:\]\s{{0,9}}=>\s{{0,20}}string\(\d{{1,9}}\)\s|;s:\d{{1,9}}:)"
    r"\"(?P<value>[^\"]*)"
)

# Sentences: "the token k3J9x0Q2v7B1m5 is invalid", "API key provided: …", "password 's3cr3t'"
#
# The expression reads a secret word ("token"), up to two words such as "provided" and "is", a sign (":" or
# "→"), and a value of at least 12 characters. The value is masked if it looks random (`is_random`), so that
# "the token authentication failed" stays.
_SENTENCE: Final = re.compile(
    rf"(?i)(?P<name>{STATED_NAME})(?:[ \t]{{1,4}}(?:{STATING_WORDS})){{0,2}}"
    r"\s{0,4}(?:[:=]|->|\u2192)?\s{0,4}\(?[\"'`]?(?<![A-Za-z])(?P<value>[^\s\"'`<>(){}\[\],;]{12,4096}+)"
)
# a path, an option, or a URL, which other expressions read: "token /a/b", "token https://a.example"
_ADDRESS: Final = re.compile(r"[/\-]|.*//")
_QUOTED_PASSWORD: Final = re.compile(
    r"(?i)(?P<name>passw(?:or)?d|passphrase|identified[ ]by)[ \t(]{1,4}"
    r"(?:'(?P<single>[^'\r\n]{1,200})'|\"(?P<double>[^\"\r\n]{1,200})\")"
)

# XML: <password>s3cr3t</password>, and <key>password</key><string>s3cr3t</string>
_CONTENT: Final = r"\s{0,20}(?:<!\[CDATA\[)?(?P<value>[^<>]+?)(?:\]\]>)?\s{0,20}</"
_ELEMENT: Final = re.compile(
    rf"<(?:[\w.\-]{{1,40}}:)?(?P<name>{NAME})(?:[ \t][^<>]{{0,200}})?>{_CONTENT}"
)
_TWO_ELEMENTS: Final = re.compile(
    rf"(?i)<(?:key|name|string)>\s{{0,20}}(?P<name>{NAME})\s{{0,20}}</[^<>]{{1,40}}>"
    rf"\s{{0,20}}<(?:value|string)>{_CONTENT}"
)

# A part of a multipart form is: the line with name="…", up to five more headers, an empty line, and the value
# up to the next boundary ("--…"):
#   Content-Disposition: form-data; name="password"
#
#   «s3cr3t»
#   --boundary
_FORM_NAME: Final = r"(?P<name>[\w.\-\[\]]{1,100}+)"
_FORM_PART: Final = re.compile(
    rf"(?i)\bname=\"?{_FORM_NAME}\"?[^\r\n]{{0,200}}\r?\n"
    r"(?:[a-z\-]{1,40}:[^\r\n]{0,200}\r?\n){0,5}\r?\n(?P<value>(?s:.*?))(?=\r?\n--|\Z)"
)


# Lines with a key "value" that the line before or after them names, as in YAML and in HCL:
#   - name: DB_PASSWORD
#     value: s3cr3t
_NAME_LINE: Final = (
    rf"(?:name|key|header|field)[ \t]{{0,20}}[:=][ \t]{{0,20}}[\"']?(?P<name>{NAME})"
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


def _attribute_forms(attribute: str) -> tuple[_Form, _Form]:
    """Return the forms of a value that another attribute names: <input name="password" value="s3cr3t">."""
    hints = (f"{attribute}=",)
    name_first = re.compile(
        rf"(?i)\b{attribute}=[\"']?{_FORM_NAME}[\"']?[^<>]{{0,200}}?"
        r"\b(?:value|content)=[\"'](?P<value>[^\"'<>]+)"
    )
    value_first = re.compile(
        r"(?i)\b(?:value|content)=[\"'](?P<value>[^\"'<>]{1,1000})[\"'][^<>]{0,200}?"
        rf"\b{attribute}=[\"']?{_FORM_NAME}"
    )

    return (
        _Form(name_first, _has_secret_name, hints),
        _Form(value_first, _has_secret_name, hints),
    )


def _line_form(expression: re.Pattern[str]) -> _Form:
    return _Form(
        expression,
        _is_secret_line,
        hints=("value", "\n"),
        values=(*_IN_QUOTES, "bare"),
        closers=CLOSERS,
    )


_FORMS: Final = (
    _Form(_OPTION, _is_option),
    _Form(_ITEM, names_next, values=_IN_QUOTES),
    _Form(_TWO_ITEMS, is_pair, values=_IN_QUOTES),
    _Form(_PHP, _has_secret_name),
    _Form(_SENTENCE, _is_stated, closers=".:"),
    _Form(_QUOTED_PASSWORD, _is_no_sentence, values=_IN_QUOTES),
    _Form(_CODE, _is_code, hints=("code",)),
    _Form(_ELEMENT, _is_content, hints=("</",)),
    _Form(_TWO_ELEMENTS, _has_secret_name, hints=("</",)),
    _Form(_FORM_PART, _has_secret_name, hints=("name=",)),
    *_attribute_forms("name"),
    *_attribute_forms("key"),
    _line_form(_NAME_ABOVE_VALUE),
    _line_form(_VALUE_ABOVE_NAME),
)

# A field for the name and one for the value: {"name": "X-Api-Key", "value": "s3cr3t"}
_NAME_AND_VALUE: Final = re.compile(
    rf"\"(?i:name|key|header|field)\"\s{{0,20}}:\s{{0,20}}\"({NAME})\"\s{{0,20}},"
    r"\s{0,20}\"values?\"\s{0,20}:\s{0,20}(?=[\"{\[])"
)


def _field_spans(text: str) -> Iterator[Span]:
    """Yield the values of JSON fields called "value" that the field before them names."""
    for match in _NAME_AND_VALUE.finditer(text):
        name, end_of_name = match[1], match.end(1)
        if is_secret_name(name):
            yield _field_span(text, match.end(), quote_index=end_of_name)


def _field_span(text: str, begin: int, quote_index: int) -> Span:
    """Return the span of a JSON value that begins with a quote or a bracket."""
    if text[begin] == '"':
        return begin + 1, end_of_quoted(text, begin), NO_QUOTE
    return begin, closing_index(text, begin), quote_index


_ROWS: Final[tuple[tuple[tuple[str, ...], Callable[[str], Iterator[Span]]], ...]] = (
    ((), pair_spans),
    *((form.hints, form.spans) for form in _FORMS),
    (("value",), _field_spans),
)
_SEARCHES: Final = {
    hints: tuple(search for _, search in rows)
    for hints, rows in groupby(_ROWS, itemgetter(0))
}
"""The functions that yield spans, by their hints. Rows with the same hints are next to each other."""


def named_spans(text: str, lowered: str) -> Iterator[Span]:
    """Yield the values after secret names; `lowered` is the text in plain letters and lower case.

    >>> list(named_spans("curl --token s3cr3t", "curl --token s3cr3t"))
    [(13, 19, -1)]
    """
    # The text is searched only for forms that it can contain. For example, "curl --token s3cr3t" has no
    # "</", so the forms of XML are left out.
    for hints, searches in _SEARCHES.items():
        may_have_values = all(map(lowered.__contains__, hints))
        if may_have_values:
            yield from chain.from_iterable(search(text) for search in searches)
