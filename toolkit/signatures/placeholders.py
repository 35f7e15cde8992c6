"""Replace values in messages by typed placeholders, so that two occurrences of a failure are equal.

Three passes read a message (see `with_placeholders`):

1. Values with blanks or with signs of several words: times, pairs in quotes, keys that a database refused.
2. Values that are one word, or a part of it: addresses, ids, numbers, paths (see `word_values`).
3. Values that belong together: "<num> ms" is a duration, and a list of numbers is one number.

For example, the message "at 10:02:11 job-17 took 35 ms (HTTP 504)" changes like this:

    1    at <time> job-17 took 35 ms (HTTP 504)
    2    at <time> <id> took <num> ms (HTTP 504)        504 stays, because it follows "HTTP"
    3    at <time> <id> took <duration> (HTTP 504)

If a number names a kind of failure (status, exit and error codes), it stays: see `codes`. All other words
stay: `templates` compares many messages to decide which words are values. If an address names the kind of
service, the kind stays, as in ``redis://<url>``: see `services`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from typing import Final

from toolkit.signatures.codes import (
    LEADING_CODE,
    MAY_PRECEDE_CODE,
    TAKE_CODE,
    begins_status_phrase,
)
from toolkit.signatures.word_values import (
    READ_WORDS,
    WordInContext,
    masked_pair,
    with_service_of_port,
)

PLACEHOLDER: Final = re.compile(
    r"<(?:bool|duration|email|hex|host|id|ip|mac|num|path|secret|size|time|url|uuid|value|version)>"
)
_MONTH: Final = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*"
_DAY: Final = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*"
_ZONE: Final = r"(?:UTC|GMT|[ECMP][SD]T|(?:AK|NZ|A[CEW])[SD]T|[WCE]ES?T|[BHIJK]ST|MSK|SGT|HKT|SAST)"
"""A zone that a clock prints. It changes with the season, so it must not stay next to a time."""
_CLOCK: Final = (
    r"\d{1,2}:\d\d(?::\d\d(?:[.,]\d{1,9})?)?"  # 03:10 or 03:10:59.123
    r"(?: ?[AaPp][Mm]\b)?"
    rf"(?: ?(?:Z|(?:UTC|GMT)?[+-]\d\d:?\d\d|{_ZONE})\b)?"
    rf"(?: {_ZONE}\b)?"  # Go prints both: +0100 CET
)
_ZONE_NAME: Final = r"(?<=[+-]\d{4})(?: \([^()\d]{1,60}\))?"
"""The name of a zone, as JavaScript prints it: GMT+0100 (Central European Standard Time)."""
_SECRET: Final = re.compile(r"\[masked len=\d+ tag=[0-9a-f]+\]")
_TIMES: Final = re.compile(
    rf"(?<![\w./-])(?:\d{{4}}[-/.]\d{{1,2}}[-/.]\d{{1,2}}|\d{{1,2}}[-/.](?:\d{{1,2}}"
    rf"|{_MONTH})[-/.]\d{{2,4}}|\d{{8}}(?=[-_]\d{{1,2}}:\d))(?:[T :_-]+{_CLOCK})?(?![\w/-]|\.\d)"
    rf"|\b{_DAY} {_MONTH} +\d{{1,2}} \d\d:\d\d:\d\d [A-Z]{{1,5}} \d{{4}}\b"  # Java, of any zone
    rf"|\b(?:{_DAY},? )?(?:{_MONTH} +\d{{1,2}}(?:[snrt][tdh])?\b,?"
    rf"|\d{{1,2}} {_MONTH}\b)(?: \d{{4}}\b)?(?:,? (?:at )?{_CLOCK}(?:{_ZONE_NAME})?)?(?: \d{{4}}\b)?"
    rf"|(?<![\w.:\[]){_CLOCK}(?![\w:])"
)
_MONTHS: Final = "Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec"
_MAY_BE_TIME: Final = re.compile(
    rf"""
    # begins with a separator or a month, which are rarer than digits, and looks back for the digits before it
    [-:./_JFMASOND](?:
      \d(?<=\d:\d)\d(?!\d)  # 03:10
    # 2026-01-02 and 2-Jan-26, but not 10.0.0.1: from the first separator on, up to the year or the day
    | \d(?=\d?[-/.]\d{{1,4}}(?!\d|\.\d))(?<=[-/.].)
      (?:(?<=\d..)(?<![\w.]\d..)|(?<=\d\d..)(?<![\w.]\d\d..)|(?<=\d{{4}}..)(?<![\w.]\d{{4}}..))
    | [A-Z](?=[a-z]+[-/.]\d{{1,4}}(?!\d|\.\d))(?<=[-/.].)
      (?:(?<=\d..)(?<![\w.]\d..)|(?<=\d\d..)(?<![\w.]\d\d..)|(?<=\d{{4}}..)(?<![\w.]\d{{4}}..))
    | \d(?<=\d{{8}}[-_]\d)\d?:\d  # 20260102-3:04
    | [aepuco][a-z](?<={_MONTHS})(?:[a-z]*[ ]+\d|(?<=\d[ ]...))  # Jan 2, 2 Jan
    )
    """,
    re.VERBOSE,
)
"""A part of each time. It is found much faster than a time, because each case begins with one sign."""
_NO_VALUES: Final = re.compile(r"[A-Za-z_\u00c0-\uffff'\"\-,:;!?()\[\]{}\s]*+[.]*+")
"""A message that consists of such words only. `*+` gives up at the first other sign."""
_DURATION_AFTER: Final = re.compile(
    r"<num> (?:ns|[uµμ]s|ms|msecs?|milliseconds?|s|secs?|seconds?|mins?|minutes?|hours?|days?)\b"
)
_SIZE_AFTER: Final = re.compile(r"<num> (?:bytes?|[kKMGT]?i?B)\b")
_LIST: Final = re.compile(r"(<\w+>)(?:(?:, ?|; ?| ?\| ?| )\1)+")
_MIXED: Final = re.compile(
    r"<(?:num|hex|id)>(?:(?:, ?|; ?| ?\| ?| |##)<(?:num|hex|id)>)+"
)
_SIDE_BY_SIDE: Final = re.compile(r">(?:[,;] ?| ?\| ?| |##| \()<")
"""The signs between two placeholders that can belong together."""
_BOOL: Final = re.compile(
    r"(?:(?<=[=:])|(?<= )(?=\w+$))( ?)(?:true|false|True|False)(?![\w.])"
)
_BELOW: Final = re.compile(r"(?<!\S)[<>]=?(?=\d)")
_AGAIN: Final = re.compile(r"<size> \(<size>\)")  # in another unit
_LONG_TIME: Final = re.compile(r"<duration>(?:,? (?:<time>|<duration>))+")
_QUOTED_PAIR: Final = re.compile(r"(?<![\w.])(\w[\w.\-]*=)(\"[^\"<]{0,200}\")")
_Replacement = str | Callable[[re.Match[str]], str]

_DIGIT_OF_SCRIPT: Final = re.compile(r"[^\x00-\x7f\D\U00010000-\U0010ffff]")
"""A digit of Arabic, Devanagari, full-width Japanese or another script of the basic plane."""
_PLAIN_QUOTES: Final = str.maketrans("\u2018\u2019\u201c\u201d", "''\"\"")
"""Quotes of print, which GNU tools write if the locale has them: 'x' and \u2018x\u2019 are one message."""
_REFUSED_KEY: Final = re.compile(
    r"(Key \([^()]{1,200}\)=\()[^()]{0,200}(\))"  # PostgreSQL
    r"|(?<=uplicate entry )'[^']{0,200}'"  # MySQL
    r"|(?<=dup key: )\{[^{}]{0,300}\}"  # MongoDB
    r"|(?<=duplicate key value is )\([^()]{0,200}\)"  # SQL Server
)
"""The value of a key that a database refused. The constraint is the error, the value is not."""
_QUOTED_ID: Final = re.compile(
    r"(\"(?!err|exc|fault|fail)(?:\w*I[dD]|(?:\w*_)?(?:id|uuid))\": ?)\"[^\"<]{1,200}\"",
    re.ASCII,
)
"""An id in a JSON object within a message, for example `"orderId": "a"`. Ids of errors are codes."""
_NAMED_ID: Final = re.compile(
    # the whole word first, without giving back a sign, and then its end
    r"(?<![\w.\-])((?!err|fault|fail)(?:(?:id|ID)|[\w.\-]++(?<=[a-z0-9]Id|[a-z0-9]ID|[_.\-]id|[_.\-]ID)): )"
    r"\w+(?:[.\-]\w+)+(?=[;,)\]]|$)",
    re.ASCII,
)
"""An id of several names that ends a clause, as in `jobId: nightly.import;`. Ids of errors are codes."""
_CONNECTED: Final = frozenset(
    ("ECONNREFUSED", "ETIMEDOUT", "EHOSTUNREACH", "ENETUNREACH", "tcp")
)
"""Words that the address of a server follows, as Node and Go write them."""
_LONGEST_WORD: Final = 1_000
"""Characters of a word that are read. Patterns that look for signs in a word take the square of this."""

_PHRASES: Final[tuple[tuple[str, re.Pattern[str], _Replacement], ...]] = (
    ('="', _QUOTED_PAIR, masked_pair),
    ('d":', _QUOTED_ID, r'\1"<id>"'),
    ('D":', _QUOTED_ID, r'\1"<id>"'),
    ("id: ", _NAMED_ID, r"\1<id>"),
    ("Id: ", _NAMED_ID, r"\1<id>"),
    ("ID: ", _NAMED_ID, r"\1<id>"),
    ("uplicate", _REFUSED_KEY, r"\1<value>\2"),
    ("dup key", _REFUSED_KEY, r"\1<value>\2"),
    (")=(", _REFUSED_KEY, r"\1<value>\2"),
    ("true", _BOOL, r"\1<bool>"),
    ("True", _BOOL, r"\1<bool>"),
    ("false", _BOOL, r"\1<bool>"),
    ("False", _BOOL, r"\1<bool>"),
    ("<", _BELOW, ""),
    (">", _BELOW, ""),
)
"""Values of several words: a sign that each contains, the pattern, and the replacement."""


def with_placeholders(message: str) -> str:
    """Replace the values of a message by placeholders such as ``<num>``, ``<id>``, ``<ip>`` or ``<time>``.

    >>> with_placeholders("order ord_81b2 not found after 3 tries (HTTP 404) at 2026-01-02T03:04:05Z")
    'order <id> not found after <num> tries (HTTP 404) at <time>'
    """
    if len(message) > _LONGEST_WORD:
        message = _with_short_words(message)
    text = _replace_phrases(message)
    words = text.split()
    if _NO_VALUES.fullmatch(text):  # as most messages of one sentence
        return " ".join(words)

    return _join_values(" ".join(_replace_words(words)))


def _digit(found: re.Match[str]) -> str:
    """Return a digit of another script as one of the digits 0 to 9."""
    return str(unicodedata.decimal(found[0]))


def _with_short_words(message: str) -> str:
    """Return a message whose longest words are cut, for example data in base64 within a message."""
    words = message.split()
    if max(map(len, words), default=0) <= _LONGEST_WORD:
        return message

    return " ".join([word[:_LONGEST_WORD] for word in words])


def _replace_words(words: list[str]) -> list[str]:
    """Return words with placeholders. A number stays if the words around it show that it is a code.

    For example, of "exit code 137 at 10.0.0.5", the words are read one by one as "exit code <num> at <ip>".
    "137" is then restored, because it follows "exit code".
    """
    replaced = list(map(READ_WORDS.__getitem__, words))
    _restore_codes(words, replaced)
    if replaced[0] != words[0] and LEADING_CODE.fullmatch(words[0]):
        replaced[0] = words[0]
    if not _CONNECTED.isdisjoint(words):
        _name_services(words, replaced)
    return replaced


def _restore_codes(words: list[str], replaced: list[str]) -> None:
    """Replace placeholders by the original words if the words around them show a code, in place."""
    kinds = list(map(type, replaced))
    position = -1
    for _ in range(kinds.count(WordInContext)):
        position = kinds.index(WordInContext, position + 1)
        word = replaced[position]
        if isinstance(word, WordInContext) and _is_code(word, words, position):
            replaced[position] = words[position]


def _name_services(words: list[str], replaced: list[str]) -> None:
    """Add the kind of service to addresses that were connected to, in place.

    For example, "ECONNREFUSED <ip>" becomes "ECONNREFUSED redis://<ip>" if the port was 6379.
    """
    for position in range(1, len(words)):
        if words[position - 1] in _CONNECTED:
            address = words[position]
            replaced[position] = with_service_of_port(address, replaced[position])


def _is_code(word: WordInContext, words: list[str], position: int) -> bool:
    """Return whether the words around a number make it a status, exit or error code.

    For example, "HTTP 504", "exit code 137" and "502 Bad Gateway".
    """
    phrase = word.status_phrase
    if phrase and begins_status_phrase(phrase, words, position):
        return True
    if position == 0 or not word.may_be_code:
        return False
    if not MAY_PRECEDE_CODE[words[position - 1]]:
        return False

    preceding = words[max(0, position - 2) : position]
    return TAKE_CODE[" ".join([*preceding, ""])]


def _replace_phrases(message: str) -> str:
    """Replace values that can be longer than a word. Most messages lack the signs, which are tested first."""
    text = message
    if "[masked len=" in text:
        text = _SECRET.sub("<secret>", text)
    if not text.isascii():
        text = _DIGIT_OF_SCRIPT.sub(_digit, text.translate(_PLAIN_QUOTES))
    if _MAY_BE_TIME.search(text):
        text = _TIMES.sub("<time>", text)
    for sign, pattern, replacement in _PHRASES:
        if sign in text:
            text = pattern.sub(replacement, text)

    return text


def _join_values(text: str) -> str:
    """Replace values that belong together by one, such as "<num> ms", "<num>, <num>" or "1 h, 30 min"."""
    if "<num> " in text:
        text = _DURATION_AFTER.sub("<duration>", text)
        text = _SIZE_AFTER.sub("<size>", text)

    if _SIDE_BY_SIDE.search(text):
        text = _LIST.sub(r"\1", text)
        text = _AGAIN.sub("<size>", text)
        text = _LONG_TIME.sub("<duration>", text)
        text = _MIXED.sub("<id>", text)

    return text
