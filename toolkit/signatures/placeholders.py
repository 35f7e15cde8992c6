"""Replace values in messages by typed placeholders, so that two occurrences of a failure are equal.

Three passes read a message (see `with_placeholders`):

1. Values with blanks or with signs of several words: times, pairs in quotes, keys that a database refused.
2. Values that are one word, or a part of it: addresses, ids, numbers, paths (see `_VALUES`).
3. Values that belong together: "<num> ms" is a duration, and a list of numbers is one number.

For example, the message "at 10:02:11 job-17 took 35 ms (HTTP 504)" changes like this:

    1    at <time> job-17 took 35 ms (HTTP 504)
    2    at <time> <id> took <num> ms (HTTP 504)        504 stays, because it follows "HTTP"
    3    at <time> <id> took <duration> (HTTP 504)

If a number names a kind of failure (status, exit and error codes), it stays. All other words stay as well:
`templates` compares many messages to decide which words are values. If an address names the kind of service,
the kind stays, as in ``redis://<url>``: see `services`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from http import HTTPStatus
from typing import Final, NamedTuple

from toolkit.signatures.remembering import Memo
from toolkit.signatures.services import of_host, of_port, of_scheme

PLACEHOLDER: Final = re.compile(
    r"<(?:bool|duration|email|hex|host|id|ip|mac|num|path|secret|size|time|url|uuid|value|version)>"
)
_MONTH: Final = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*"
_DAY: Final = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*"
_CLOCK: Final = (
    r"\d{1,2}:\d\d(?::\d\d(?:[.,]\d{1,9})?)?"  # 03:10 or 03:10:59.123
    r"(?: ?[AaPp][Mm]\b)?"
    r"(?: ?(?:Z|UTC|GMT|[+-]\d\d:?\d\d)\b)?"
)

# A number after one of these words names a kind of failure.
_CODES: Final = re.compile(
    r"(?:\b(?:status(?:[ _]?code)?|exit(?:ed)?(?: (?:code|status|with(?: code| status)?))?|return code"
    r"|rc|errno|err(?:or)?(?:[ _](?:code|number|no))?"
    r"|code|signal|HTTP(?:/\d(?:\.\d)?)?|SQLSTATE|sqlcode|responded with|errcode"
    r"|코드|代码|错误码|コード|エラー|код|رمز|קוד)['\"]?\s?[=:]?\s?\[?#?-?)$",
    re.IGNORECASE,
)
_SHORT: Final = re.compile(r"^[#(\[\-]*\d{1,5}[)\].,;:!]*$")
_SECRET: Final = re.compile(r"\[masked len=\d+ tag=[0-9a-f]+\]")

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

_BRACKETED_CODE: Final = re.compile(
    rf"(?=.\d*[A-Z])(?:\[{CODE.pattern}\]|\({CODE.pattern}\))[:.,;]?"
)
"""A code with a letter in brackets, for example "[42P01]" before a message or "(P2024)" after it."""

_TIMES: Final = re.compile(
    rf"(?<![\w./-])(?:\d{{4}}[-/.]\d{{1,2}}[-/.]\d{{1,2}}|\d{{1,2}}[-/.](?:\d{{1,2}}"
    rf"|{_MONTH})[-/.]\d{{2,4}}|\d{{8}}(?=[-_]\d{{1,2}}:\d))(?:[T :_-]+{_CLOCK})?(?![\w/-]|\.\d)"
    rf"|\b(?:{_DAY},? )?(?:{_MONTH} +\d{{1,2}}(?:[snrt][tdh])?\b,?"
    rf"|\d{{1,2}} {_MONTH}\b)(?: \d{{4}}\b)?(?:,? (?:at )?{_CLOCK})?(?: \d{{4}}\b)?"
    rf"|(?<![\w.:\[]){_CLOCK}(?![\w:])"
)
_MAY_BE_TIME: Final = re.compile(
    r"""
    # begins with a separator or a month, which are rarer than digits, and looks back for the digits before it
    [-:./_JFMASOND](?:
      (?<=\d:)\d\d(?!\d)  # 03:10
    | (?<=[-/.])(?=(?:\d\d?|[A-Z][a-z]+)[-/.]\d{1,4}(?!\d|\.\d))  # 2026-01-02, but not 10.0.0.1
      (?:(?<=\d.)(?<![\w.]\d.)|(?<=\d\d.)(?<![\w.]\d\d.)|(?<=\d{4}.)(?<![\w.]\d{4}.))
    | (?<=\d{8}[-_])\d\d?:\d
    | (?<=[A-Z])(?:an|eb|ar|pr|ay|un|ul|ug|ep|ct|ov|ec)(?:[a-z]*[ ]+\d|(?<=\d[ ][A-Z]..))  # Jan 2, 2 Jan
    )
    """,
    re.VERBOSE,
)
"""A part of each time. It is found much faster than a time."""
_NO_VALUE: Final = re.compile(r"[A-Za-z_\u00c0-\uffff'\"\-,:;!?()\[\]{}]*[.]*")

_NO_VALUES: Final = re.compile(r"[A-Za-z_\u00c0-\uffff'\"\-,:;!?()\[\]{}\s]*[.]*")
"""A message that consists of such words only."""

# Within one word, the first of these that fits at a position.
_ADDRESSES_WITH_SIGNS: Final = r"""
    # redis://10.0.0.5/0, without a full stop or quote after it
    (?P<url>\b[a-zA-Z][a-zA-Z0-9+.\-]*://(?:[^\s'"<>\])},;]|<secret>)*(?:[^\s'"<>\])},;.:!?]|<secret>))
    # ann@example.com
  | (?P<email>\b[\w.+\-]+@[\w\-]+(?:\.[\w\-]+)+\b)
"""
_FIXED_IDS: Final = r"""
    # 0b7c1f0e-55a1-4b7e-9f13-2c8e6a90d1f4
    (?P<uuid>\b[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\b)
    # 00:1a:2b:3c:4d:5e
  | (?P<mac>\b(?:[0-9a-fA-F]{2}[:-]){5}[0-9a-fA-F]{2}\b)
"""
_PLACES: Final = r"""
    # 10.0.0.5:8080, /10.0.0.5, 10.0.0.0/8; fe80::1%eth0; ::1
    (?P<ip>(?<![\w.])/?\d{1,3}(?:\.\d{1,3}){3}(?::\d{1,5}|/\d{1,2}\b)?(?![\w.]*\w)
      | (?<![\w:])(?:[0-9a-fA-F]{1,4}:){2,7}(?::?[0-9a-fA-F]{1,4})?(?:%\w+)?(?![\w:])
      | (?<![\w:])::(?:[0-9a-fA-F]{1,4}:?)+(?:\d+\.\d+\.\d+\.\d+)?(?![\w:]))
    # /srv/app/run.py:12:3, C:\logs, ../a; a/b/c; $.items[0] of JSON; report.csv
  | (?P<path>(?<![\w/<.])(?:[A-Za-z]:\\|\\\\|~?/|\.{1,2}/)
          (?:[\w.@%+\-*$~={}]+[/\\]{1,2})*[\w.@%+\-*$~={}]*[\w*}]/?(?::\d+){0,2}
      | (?<![\w/<.])(?:[\w.\-]+/){2,}[\w.\-]*\w
      | (?<![\w$])\$(?:\.|[.\[][\w.\[\]]*[\w\]])
      | \b[\w\-]+\.(?:log|txt|json|ya?ml|xml|csv|tmp|conf|cfg|ini|gz|zip|tar|parquet|html?|pdf|png
          |jpe?g|mp4|sock|pid|lock|dat|sqlite3?|jar|so|dll|exe|py|js|ts|java|go|rb|rs|php|cs)\b(?::\d+){0,2})
    # db-1.internal:5432, by the last part of the name
  | (?P<host>(?<![\w.\-@/])(?:[a-z0-9](?:[a-z0-9\-]*[a-z0-9])?\.)+
          (?:com|net|org|io|edu|gov|mil|info|biz|dev|app|cloud|local|localdomain|internal|lan|intra|corp|svc
          |arpa|ai|co|me|eu|uk|de|fr|nl|it|es|se|no|fi|pl|ch|at|be|ru|cn|jp|hk|kr|in|br|au|ca|us|test|example|invalid)(?::\d{1,5})?(?![\w\-]|\.\w))
    # db-1/10.0.0.5:5432
  | (?P<peer>(?<![\w/<.])[a-z][\w\-]*/\d{1,3}(?:\.\d{1,3}){3}(?::\d{1,5})?(?![\w.]*\w))
"""
_NUMBERED: Final = r"""
    # 0x7ffe
    (?P<hex>\b0[xX][0-9a-fA-F]+\b)
    # every other word with a digit: order-17, 35ms, v1.2.3, com.acme.Job17, 1,024
  | (?P<word>(?<![\w<])(?!\w+:/)
          [A-Za-z_\u00c0-\uffff+\-#]*(?:[\w.\-@#:/]*\d)[\w@#\-]*(?:[.:/,][\w\-]*\d[\w\-]*)*%?)
"""
_VALUES: Final = re.compile(
    f"{_ADDRESSES_WITH_SIGNS}|{_FIXED_IDS}|{_PLACES}|{_NUMBERED}", re.VERBOSE
)
_VALUES_OF_SIMPLE_WORD: Final = re.compile(f"{_FIXED_IDS}|{_NUMBERED}", re.VERBOSE)
"""The values of a word without `_SIGNS_OF_PLACES`, which no address and no path lacks."""
_SIGNS_OF_PLACES: Final = re.compile(r"[.:/\\@$]")

_NUMBER: Final = re.compile(
    r"^[+\-#]?(?:\d{1,3}(?:[,_]\d{3})+|\d+)(?:[.,]\d+)*(?:[eE][+\-]?\d+)?%?$"
)
_QUANTITY: Final = re.compile(
    r"^[+\-]?\d+(?:[.,]\d+)*(ns|us|µs|μs|ms|msecs?|s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d"
    r"|days?|h\d+m(?:\d+s)?|m\d+(?:\.\d+)?s"
    r"|[kKMGTP]i?[bB]|[bB]|[bB]ytes?|[KMGkmg]|px|rpm|rps|qps|Hz|kHz|MHz|GHz|x|th)$"
)
_PLACEHOLDER_OF_UNIT: Final = dict.fromkeys(
    "kb mb gb tb pb kib mib gib tib b byte bytes k g".split(),  # noqa: SIM905 - words
    "<size>",
)
"""Units of sizes. All other units are of durations."""
_HEX: Final = re.compile(
    r"^(?:0\d{7}|\d{16}|\d{24}|\d{32}|\d{40}|\d{64})$"  # of digits only: dates, ids, hashes
    r"|^(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{8,}$|^(?=[A-F]*\d)(?=\d*[A-F])[0-9A-F]{8,}$"
)
# An exception of a module whose name ends in a digit: sqlite3.OperationalError, urllib3.exceptions.HTTPError.
_MODULE: Final = re.compile(r"(?:[a-z][a-z_]*\.)*[a-z][a-z_]*\d{1,3}$")
_TYPE_AFTER: Final = re.compile(
    r"\.(?:\w+\.)*[A-Z][A-Za-z]*(?:Error|Exception|Warning|Violation|Timeout|Fault|Refused|Failed|Failure"
    r"|NotFound|Exhausted|Denied|Closed|Aborted|Conflict|Full|Invalid|Interrupt)\b"
)
_STATUS_PHRASES: Final = {
    str(status.value): re.sub(r"[^a-z]", "", status.phrase.lower())
    for status in HTTPStatus
}
_VERSION: Final = re.compile(r"^v?\d+(?:\.\d+)+(?:[-+.]\w+)*$")
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
_PAIRED: Final = re.compile(
    r"(?<![\w.])(\w[\w.\-]*=)(?!<)(\"[^\"]*\"|'[^']*'|[^\s,;&)\]}]+)"
)
_KEPT_KEYS: Final = re.compile(
    r"(?i)(?:^|[._-])(?:err(?:or)?s?|code|errno|status|state|reason|cause|type|kind|exception|level"
    r"|severity|result|op|operation|method|action|phase|step)=$"
)
_Replacement = str | Callable[[re.Match[str]], str]

_DIGITS_OF_SCRIPTS: Final = {
    code: str(unicodedata.decimal(chr(code)))
    for code in range(0x80, 0x10000)
    if unicodedata.decimal(chr(code), None) is not None
}
"""Digits of Arabic, Devanagari, full-width Japanese and other scripts, as the digits 0 to 9."""
_REFUSED_KEY: Final = re.compile(
    r"(Key \([^()]{1,200}\)=\()[^()]{0,200}(\))"  # PostgreSQL
    r"|(?<=uplicate entry )'[^']{0,200}'"  # MySQL
    r"|(?<=dup key: )\{[^{}]{0,300}\}"  # MongoDB
    r"|(?<=duplicate key value is )\([^()]{0,200}\)"  # SQL Server
)
"""The value of a key that a database refused. The constraint is the error, the value is not."""
_LEADING_CODE: Final = re.compile(r"[A-Z]{2,10}-\d{3,5}[:,]?")
"""A code of the application's own at the start of a message, for example "PAY-1001 payment refused"."""
_QUOTED_ID: Final = re.compile(
    r"(\"(?!err|exc|fault|fail)(?:\w*I[dD]|(?:\w*_)?(?:id|uuid))\": ?)\"[^\"<]{1,200}\"",
    re.ASCII,
)
"""An id in a JSON object within a message, for example `"orderId": "a"`. Ids of errors are codes."""
_SPACE: Final = re.compile(r"\s+")
_CONNECTED: Final = frozenset(
    ("ECONNREFUSED", "ETIMEDOUT", "EHOSTUNREACH", "ENETUNREACH", "tcp")
)
"""Words that the address of a server follows, as Node and Go write them."""
_ADDRESSES: Final = frozenset(("url", "ip", "host", "peer"))


def with_placeholders(message: str) -> str:
    """Replace the values of a message by placeholders such as ``<num>``, ``<id>``, ``<ip>`` or ``<time>``.

    >>> with_placeholders("order ord_81b2 not found after 3 tries (HTTP 404) at 2026-01-02T03:04:05Z")
    'order <id> not found after <num> tries (HTTP 404) at <time>'
    """
    text = _replace_phrases(message)
    if _NO_VALUES.fullmatch(text):  # as most messages of one sentence
        return " ".join(text.split())
    words = text.split()
    _replace_words(words)
    return _join_values(" ".join(words))


def _replace_words(words: list[str]) -> None:
    """Replace the values in words, in place. A number stays if the words around it show that it is a code."""
    readings = list(map(_READ_WORDS.__getitem__, words))
    for number, reading in enumerate(readings):
        if reading is None:
            continue
        is_candidate = reading.may_be_code or reading.status_phrase
        if is_candidate and _is_code(reading, words, number):
            continue
        if number == 0:
            if not _LEADING_CODE.fullmatch(words[0]):
                words[0] = reading.replaced
        elif words[number - 1] in _CONNECTED:
            words[number] = _with_service_of_port(words[number], reading.replaced)
        else:
            words[number] = reading.replaced


def _replace_phrases(message: str) -> str:
    """Replace values that can be longer than a word. Most messages lack the signs, which are tested first."""
    text = message
    if "[masked len=" in text:
        text = _SECRET.sub("<secret>", text)
    if not text.isascii():
        text = text.translate(_DIGITS_OF_SCRIPTS)
    if _MAY_BE_TIME.search(text):
        text = _TIMES.sub("<time>", text)
    for sign, pattern, replacement in _PHRASES:
        if sign in text:
            text = pattern.sub(replacement, text)
    return text


def _with_service_of_port(address: str, replaced: str) -> str:
    """Return the placeholder of an address. After "ECONNREFUSED", the port names a service."""
    service = ""
    if "://" not in replaced:
        service = of_port(address)
    if not service:
        return replaced
    return f"{service}://{replaced}"


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


def _is_code(reading: _ReadWord, words: list[str], number: int) -> bool:
    """Return whether a number is a status, exit or error code because of the words around it.

    For example, "HTTP 504", "exit code 137" and "502 Bad Gateway", whose words are those of the standard.
    """
    if reading.status_phrase:
        following = "".join(words[number + 1 : number + 6]).lower()
        if re.sub(r"[^a-z]", "", following).startswith(reading.status_phrase):
            return True
    if number == 0 or not reading.may_be_code:
        return False
    preceding = words[number - 1]
    if number > 1:
        preceding = f"{words[number - 2]} {preceding}"
    return _TAKE_CODE[f"{preceding} "]


def _takes_code(preceding: str) -> bool:
    """Return whether a number after these words is a code, for example after "exit status "."""
    return _CODES.search(preceding) is not None


_TAKE_CODE: Final = Memo(_takes_code)


class _ReadWord(NamedTuple):
    """A word with placeholders instead of values."""

    replaced: str
    may_be_code: bool
    """Whether the words before can make it a code, for example "exit code" before "137"."""
    status_phrase: str
    """The letters of the phrase of an HTTP status, for example "badgateway" for "502"; else ""."""


def _read_word(word: str) -> _ReadWord | None:
    """Return a word with placeholders, or None if it has no value."""
    if word.isalpha() or _NO_VALUE.fullmatch(word):
        return None
    replaced = "<num>"
    if not word.isdecimal() or len(word) >= _FEWEST_HEX_DIGITS:
        replaced = _replace_values(word)
    if replaced == word:
        return None
    bare = word.strip(_AROUND_CODES)
    status_phrase = _STATUS_PHRASES.get(bare, "")
    if _SHORT.search(word) or CODE.fullmatch(bare):
        return _ReadWord(replaced, may_be_code=True, status_phrase=status_phrase)
    return _ReadWord(replaced, may_be_code=False, status_phrase=status_phrase)


def _replace_values(word: str) -> str:
    """Return a word with placeholders instead of values. A code in brackets stays."""
    if word[0] in "[(" and _BRACKETED_CODE.fullmatch(word):
        return word
    values = _VALUES_OF_SIMPLE_WORD
    if _SIGNS_OF_PLACES.search(word):
        values = _VALUES
    replaced = values.sub(_placeholder, word)
    if "=" in replaced:
        replaced = _PAIRED.sub(_pair, replaced)
    return replaced


_FEWEST_HEX_DIGITS: Final = 8
"""Digits of the shortest number that can be a date or an id."""
_AROUND_CODES: Final = "#()[],.:;"
"""Signs around a code, which do not belong to it."""
_READ_WORDS: Final = Memo(_read_word, most=1 << 16)


def _pair(found: re.Match[str]) -> str:
    """Return a pair such as `user=ann` with a placeholder. If the key states the failure, the value stays."""
    if _KEPT_KEYS.search(found[1]):
        return found[0]
    return f"{found[1]}<value>"


_PHRASES: Final[tuple[tuple[str, re.Pattern[str], _Replacement], ...]] = (
    ('="', _QUOTED_PAIR, _pair),
    ('d":', _QUOTED_ID, r'\1"<id>"'),
    ('D":', _QUOTED_ID, r'\1"<id>"'),
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

_SPACELESS: Final = re.compile(
    r"[\u0e00-\u0eff\u1100-\u11ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]"
)
"""Letters of scripts without spaces, such as Chinese, Japanese, Thai and Korean: a sentence is one word."""
_VALUE_IN_SENTENCE: Final = re.compile(
    r"(?:[A-Za-z0-9_]+[.,\-])*[A-Za-z0-9_]*\d(?:[A-Za-z0-9_]*[.,\-])*[A-Za-z0-9_]*"
)
_CODE_WORDS: Final = ("码", "代码", "错误", "コード", "エラー", "코드", "รหัส")
"""Words before a code, in scripts without spaces."""


def _placeholder_in_sentence(found: re.Match[str]) -> str:
    """Return the placeholder of a value in a sentence without spaces: of A-12 in "订单A-12库存不足"."""
    if found.string[: found.start()].endswith(_CODE_WORDS):
        return found[0]
    if any(map(str.isalpha, found[0])):
        return "<id>"
    return "<num>"


def _placeholder(found: re.Match[str]) -> str:
    """Return the placeholder of a part of a word that `_VALUES` found."""
    kind, text = found.lastgroup, found[0]
    if kind in _ADDRESSES:
        return _with_service(kind, text)
    if kind == "word":
        return _placeholder_of_word(found, text)
    if kind == "path" and len(text) < _SHORTEST_PATH:
        return text
    return f"<{kind}>"


_SHORTEST_PATH: Final = 3
"""Characters of a path. The shorter ones, "/" and "./", are no values."""


def _placeholder_of_word(found: re.Match[str], text: str) -> str:
    """Return the placeholder of a part of a word with a digit, or the part if it names something."""
    if not text.isascii() and _SPACELESS.search(text) and not _follows_sql_state(found):
        return _VALUE_IN_SENTENCE.sub(_placeholder_in_sentence, text)
    if _names_something(found, text):
        return text
    bare = text.strip("#:")
    if _NUMBER.match(bare) and not _HEX.match(bare):
        before = found.string[: found.start()]
        if before and _SHORT.search(bare) and _takes_code(before):
            return text
        return "<num>"
    return _placeholder_of_quantity(bare) or _placeholder_of_id(text)


def _placeholder_of_quantity(bare: str) -> str:
    """Return the placeholder of a hash, a size, a duration or a version; "" if it is none of them."""
    if _HEX.match(bare):
        return "<hex>"
    quantity = _QUANTITY.match(bare)
    if quantity is not None:
        return _PLACEHOLDER_OF_UNIT.get(quantity[1].lower(), "<duration>")
    if _VERSION.match(bare):
        return "<version>"
    return ""


def _placeholder_of_id(text: str) -> str:
    """Return the placeholder of an id. A dotted name keeps the parts without digits."""
    placeholder = "<id>"
    if "." in text or ":" in text or "/" in text:
        placeholder = _compound(text)
    if text.endswith(":"):
        placeholder += ":"
    return placeholder


def _follows_sql_state(found: re.Match[str]) -> bool:
    return found.string[: found.start()].endswith("SQLSTATE[")


def _names_something(found: re.Match[str], text: str) -> bool:
    """Return whether a part of a word with a digit is a name, such as `sha256`, `HTTP/1.1` or `ORA-01555`."""
    if _follows_sql_state(found) or text.startswith("HTTP/"):
        return True
    if text.lower() in _KEPT or _NAMED_CODE.match(text):
        return True
    if found.string[found.end() : found.end() + 1] != "." or not _MODULE.match(text):
        return False
    # an exception of a module, such as sqlite3.OperationalError
    return _TYPE_AFTER.match(found.string, found.end()) is not None


def _with_service(kind: str, address: str) -> str:
    """Return the placeholder of an address, with the kind of service that it names."""
    service = of_scheme(address) if kind == "url" else of_host(address)
    if kind == "peer":
        kind = "host"  # a name and an address, as Java writes them: db-1/10.0.0.5:5432
    if not service:
        return f"<{kind}>"
    return f"{service}://<{kind}>"


_PART: Final = re.compile(r"[^.:/]+")


def _compound(text: str) -> str:
    """Return a dotted name with placeholders for the parts with digits.

    For example, ``com.acme.Job17.run`` becomes ``com.acme.<id>.run``.
    """
    return _PART.sub(lambda part: "<id>" if _is_id(part[0]) else part[0], text)


def _is_id(part: str) -> bool:
    """Return whether a part of a name has a digit and is no technical word, such as `sha256`."""
    return any(map(str.isdigit, part)) and part.lower() not in _KEPT
