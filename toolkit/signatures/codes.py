"""Tell numbers and words with digits that name a kind of failure from values.

A status, an exit code or a state of SQL is the error, so it stays in a message. Three signs show a code:

| sign | example |
|---|---|
| the words before it | "exit code 137", "HTTP 504" |
| the words after it, if they are the phrase of an HTTP status | "502 Bad Gateway" |
| the spelling | "ORA-01555", "E11000", "[42P01]", "sha256" |
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from http import HTTPStatus
from typing import Final

from toolkit.signatures.remembering import Memo

# A number after one of these words names a kind of failure.
_CODES: Final = re.compile(
    r"(?:\b(?:status(?:[ _]?code)?|exit(?:ed)?(?: (?:code|status|with(?: code| status)?))?|return code"
    r"|rc|errno|err(?:or)?(?:[ _](?:code|number|no))?"
    r"|code|signal|HTTP(?:/\d(?:\.\d)?)?|SQLSTATE|sqlcode|responded with|errcode"
    r"|코드|代码|错误码|コード|エラー|код|رمز|קוד)['\"]?\s?[=:]?\s?\[?#?-?)$",
    re.IGNORECASE,
)
_LAST_WORD_OF_CODES: Final = re.compile(
    r"(?:status|code|exit(?:ed)?|with|rc|errno|err(?:or)?|number|no|signal|HTTP(?:/\d(?:\.\d)?)?|SQLSTATE"
    r"|코드|代码|错误码|コード|エラー|код|رمز|קוד)['\"]?[=:]?\[?#?-?$"
    r"|^[^\w]*$",  # signs between a word and the code, as in "code = 7"
    re.IGNORECASE,
)
SHORT_NUMBER: Final = re.compile(r"^[#(\[\-]*\d{1,5}[)\].,;:!]*$")

_KEPT: Final = frozenset(  # technical words with a digit
    """
    s3 ec2 h2 md5 sha1 sha256 sha512 utf8 utf-8 utf-16 ipv4 ipv6 http2 http3 oauth2 x509 base64 base32
    ssh2 log4j k8s i18n v1 v2 v3 v4 tls1 ssl3 tls13 int8 int16 int32 int64 uint8 uint16 uint32 uint64
    float32 float64 x86 amd64 x86_64 arm64 mp3 mp4 web3 g1 db2 h264 log4j2 junit4 junit5 python3 python2
    es6 py3 iso-8859-1 cp1252 win32 latin-1 latin1 ext4 bz2 lz4 cp1250 r2 d1 kv1 2xx 3xx 4xx 5xx 1st 2nd
    3rd i64 i32 u64 u32 f64 f32 u8 i8 u16 i16 usize1 b64 pbkdf2 rs256 hs256 es256 aes256
    """.split()  # noqa: SIM905 - a list of words
)
# Codes of well-known systems that look like ids: ORA-01555, TS2345, E1101, 42P01.
_NAMED_CODE: Final = re.compile(
    r"^(?:ORA|PLS|SP2|TNS|DB2|SQL|SQLITE|MSB|NU|CS|TS|NETSDK|AADSTS|KAFKA|PGRST|MY|WFLYCTL|BCE|E|W|F|R|C"
    r"|ERR|CVE|RFC|EC|LNK|JDBC|HHH|HV|AMQ|XX)-?\d{3,6}(?:[A-Z]\d+)?$"
)

CODE: Final = re.compile(
    r"(?:(?!\w{9})[A-Z]{1,8}\d{2,5}[A-Z]?|[A-Z]{1,8}[-_.]\d{1,5}|\d{2}[A-Z\d]{3})"
)
"""A code of an error: capitals and up to five digits, such as `E11000`, or a state of SQL: `40P01`."""

BRACKETED_CODE: Final = re.compile(
    rf"(?=.\d*[A-Z])(?:\[{CODE.pattern}\]|\({CODE.pattern}\))[:.,;]?"
)
"""A code with a letter in brackets, for example "[42P01]" before a message or "(P2024)" after it."""

LEADING_CODE: Final = re.compile(r"[A-Z]{2,10}-\d{3,5}[:,]?")
"""A code of the application's own at the start of a message, for example "PAY-1001 payment refused"."""
# An exception of a module whose name ends in a digit: sqlite3.OperationalError, urllib3.exceptions.HTTPError.
_MODULE: Final = re.compile(r"(?:[a-z][a-z_]*\.)*[a-z][a-z_]*\d{1,3}$")
_TYPE_AFTER: Final = re.compile(
    r"\.(?:\w+\.)*[A-Z][A-Za-z]*(?:Error|Exception|Warning|Violation|Timeout|Fault|Refused|Failed|Failure"
    r"|NotFound|Exhausted|Denied|Closed|Aborted|Conflict|Full|Invalid|Interrupt)\b"
)
STATUS_PHRASES: Final = {
    str(status.value): re.sub(r"[^a-z]", "", status.phrase.lower())
    for status in HTTPStatus
}
"""The letters of the phrase of each HTTP status, for example "badgateway" for "502"."""
_LONGEST_PHRASE: Final = 5
"""Words of the longest phrase of a status."""
_LONGEST_KEPT: Final = max(map(len, _KEPT))


def _takes_code(preceding: str) -> bool:
    """Return whether a number after these words is a code, for example after "exit status "."""
    return _CODES.search(preceding) is not None


TAKE_CODE: Final = Memo(_takes_code)
"""Whether a number after some words is a code."""


def _may_precede_code(word: str) -> bool:
    """Return whether a word can be the last one before a code. Of most words, none has to be joined then."""
    return _LAST_WORD_OF_CODES.search(word) is not None


MAY_PRECEDE_CODE: Final = Memo(_may_precede_code)
"""Whether a word can be the last one before a code."""


def begins_status_phrase(phrase: str, words: Sequence[str], position: int) -> bool:
    """Return whether the words after a status are its phrase, as in "502 Bad Gateway".

    >>> begins_status_phrase("badgateway", ["HTTP:", "502", "Bad", "Gateway", "from", "nginx"], 1)
    True
    """
    following = "".join(words[position + 1 : position + 1 + _LONGEST_PHRASE]).lower()
    return re.sub(r"[^a-z]", "", following).startswith(phrase)


def names_something(text: str, start: int, end: int) -> bool:
    """Return whether a part of a word with a digit is a name, such as `sha256`, `HTTP/1.1` or `ORA-01555`.

    >>> names_something("sha256:", 0, 6), names_something("sqlite3.OperationalError", 0, 7)
    (True, True)
    """
    part = text[start:end]
    if len(part) <= _LONGEST_KEPT and part.lower() in _KEPT:
        return True

    if (
        part.startswith("HTTP/")
        or _NAMED_CODE.match(part)
        or follows_sql_state(text, start)
    ):
        return True

    if text[end : end + 1] != "." or not _MODULE.match(part):
        return False

    # an exception of a module, such as sqlite3.OperationalError
    return _TYPE_AFTER.match(text, end) is not None


def follows_sql_state(text: str, start: int) -> bool:
    """Return whether a part of a word is a state of SQL, such as "42S02" in "SQLSTATE[42S02]"."""
    return text.endswith("SQLSTATE[", 0, start)


def is_technical_word(text: str) -> bool:
    """Return whether a word with a digit is no value, for example "utf8"."""
    return text.lower() in _KEPT
