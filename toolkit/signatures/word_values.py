"""Replace values that are one word, or a part of a word, by placeholders.

A word is read in three steps, and the first that applies decides:

| step | words | example |
|---|---|---|
| `_NO_VALUE` | letters and signs only | `refused,` |
| `_USUAL_VALUE` | one value of a usual form, with signs around it | `(10.0.0.5:80)` is `(<ip>)` |
| `_VALUES` | all other words: each part that matches is judged by itself | `id=7b;n=2` is `id=<id>;n=<num>` |

Words repeat, so `READ_WORDS` remembers the results. If the words around a word can make it a code, such as
"137" after "exit code", the result is a `WordInContext`.
"""

from __future__ import annotations

import re
from typing import Final

from toolkit.signatures.codes import (
    BRACKETED_CODE,
    CODE,
    SHORT_NUMBER,
    STATUS_PHRASES,
    TAKE_CODE,
    follows_sql_state,
    is_technical_word,
    names_something,
)
from toolkit.signatures.remembering import Memo
from toolkit.signatures.services import of_host, of_port, of_scheme

_NO_VALUE: Final = re.compile(r"[A-Za-z_\u00c0-\uffff'\"\-,:;!?()\[\]{}]*[.]*")

# Within one word, the first of these that fits at a position. `*+` and `++` do not give signs back, which
# would take the square of the length of a long name.
_ADDRESSES_WITH_SIGNS: Final = r"""
    # redis://10.0.0.5/0, without a full stop or quote after it
    (?P<url>\b[a-zA-Z][a-zA-Z0-9+.\-]*+://(?:[^\s'"<>\])},;]|<secret>)*(?:[^\s'"<>\])},;.:!?]|<secret>))
    # ann@example.com
  | (?P<email>\b[\w.+\-]++@[\w\-]+(?:\.[\w\-]+)+\b)
"""
_FIXED_IDS: Final = r"""
    # 0b7c1f0e-55a1-4b7e-9f13-2c8e6a90d1f4
    (?P<uuid>\b[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\b)
    # 00:1a:2b:3c:4d:5e
  | (?P<mac>\b(?:[0-9a-fA-F]{2}[:-]){5}[0-9a-fA-F]{2}\b)
"""
_EXTENSIONS: Final = (
    r"log|txt|json|ya?ml|xml|csv|tmp|conf|cfg|ini|gz|zip|tar|parquet|html?|pdf|png|jpe?g|mp4|sock|pid|lock"
    r"|dat|sqlite3?|jar|so|dll|exe|py|js|ts|java|go|rb|rs|php|cs"
)
_DOMAINS: Final = (
    r"com|net|org|io|edu|gov|mil|info|biz|dev|app|cloud|local|localdomain|internal|lan|intra|corp|svc|arpa|ai"
    r"|co|me|eu|uk|de|fr|nl|it|es|se|no|fi|pl|ch|at|be|ru|cn|jp|hk|kr|in|br|au|ca|us|test|example|invalid"
)
_PLACES: Final = r"""
    # 10.0.0.5:8080, /10.0.0.5, 10.0.0.0/8; fe80::1%eth0; ::1
    (?P<ip>(?<![\w.])/?\d{1,3}(?:\.\d{1,3}){3}(?::\d{1,5}|/\d{1,2}\b)?(?![\w.]*\w)
      | (?<![\w:])(?:[0-9a-fA-F]{1,4}:){2,7}(?::?[0-9a-fA-F]{1,4})?(?:%\w+)?(?![\w:])
      | (?<![\w:])::(?:[0-9a-fA-F]{1,4}:?)+(?:\d+\.\d+\.\d+\.\d+)?(?![\w:]))
    # /srv/app/run.py:12:3, C:\logs, ../a, /orders?page=2; a/b/c; $.items[0] of JSON; report.csv.
    # A query belongs to a path, unless it names the failure, as in /login?error=access_denied.
  | (?P<path>(?<![\w/<.])(?:[A-Za-z]:\\|\\\\|~?/|\.{1,2}/)
          (?:[\w.@%+\-*$~={}]++[/\\]{1,2})*[\w.@%+\-*$~={}]*[\w*}]/?(?::\d+){0,2}
          (?:\?(?!\S*\b(?:error|code|reason)=)[\w.%+\-]+=(?:[^\s"'<>()\[\]{},;]|<\w+>)*)?
      | (?<![\w/<.])(?:[\w.\-]++/){2,}[\w.\-]*\w
      | (?<![\w$])\$(?:\.|[.\[][\w.\[\]]*[\w\]])
      | \b[\w\-]++\.(?:EXTENSIONS)\b(?::\d+){0,2})
    # db-1.internal:5432, by the last part of the name
  | (?P<host>(?<![\w.\-@/])(?:[a-z0-9][a-z0-9\-]*+(?<!-)\.)+
          (?:DOMAINS)(?::\d{1,5})?(?![\w\-]|\.\w))
    # db-1/10.0.0.5:5432
  | (?P<peer>(?<![\w/<.])[a-z][\w\-]*+/\d{1,3}(?:\.\d{1,3}){3}(?::\d{1,5})?(?![\w.]*\w))
""".replace("EXTENSIONS", _EXTENSIONS).replace("DOMAINS", _DOMAINS)
_NUMBERED: Final = r"""
    # 0x7ffe
    (?P<hex>\b0[xX][0-9a-fA-F]+\b)
    # every other word with a digit: order-17, 35ms, v1.2.3, com.acme.Job17, 1,024
  | (?P<word>(?<![\w<])(?!\w+:/)
          (?=(?>(?:[A-Za-z_+\-#]|(?!\d)[\u00c0-\uffff])*)(?>(?:[^\W\d]|[.\-@#:/])*)\d)
          [A-Za-z_\u00c0-\uffff+\-#]*(?:[\w.\-@#:/]*\d)[\w@#\-]*(?:[.:/,][\w\-]*\d[\w\-]*)*%?)
"""
_VALUES: Final = re.compile(
    f"{_ADDRESSES_WITH_SIGNS}|{_FIXED_IDS}|{_PLACES}|{_NUMBERED}", re.VERBOSE
)
_VALUES_OF_SIMPLE_WORD: Final = re.compile(f"{_FIXED_IDS}|{_NUMBERED}", re.VERBOSE)
"""The values of a word without `_SIGNS_OF_PLACES`, which no address and no path lacks."""
_SIGNS_OF_PLACES: Final = re.compile(r"[.:/\\@$]")
_VALUES_WITHOUT_DIGITS: Final = re.compile(
    f"{_ADDRESSES_WITH_SIGNS}|{_PLACES}", re.VERBOSE
)
"""The values of a word without digits. `_NUMBERED` takes the square of a word's length to find no digit."""
_DIGIT: Final = re.compile(r"\d")
_DOTTED_NAME: Final = re.compile(
    r"(?>(?:[A-Za-z_'\"\-,;!?()\[\]{}.]|(?<=\w)\$)*):?", re.ASCII
)
"""A word such as `java.lang.Error:`, which is no value unless a part of it is one of `_ENDS_OF_PLACES`."""
_ENDS_OF_PLACES: Final = re.compile(rf"\.(?:{_EXTENSIONS}|{_DOMAINS})(?!\w)")

_USUAL_VALUE: Final = re.compile(
    r"""
    [(\[]*(?:
        (?P<url>[a-zA-Z][a-zA-Z0-9+.\-]*+://[^\s'"<>\])},;]*[^\s'"<>\])},;.:!?])
      | (?P<ip>/?\d{1,3}(?:\.\d{1,3}){3}(?::\d{1,5})?)
      | (?P<uuid>[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12})
      | (?P<num>[+\-#]?\d{1,7}(?:\.\d{1,9})?)
      | (?P<duration>\d{1,7}(?:\.\d{1,9})?m?s)
      | (?P<id>[a-z]{2,}_[a-z_\-]*\d[A-Za-z0-9_\-]*  # order_17, blk_-42
          | [a-z]*[g-z][a-z]*-\d+  # job-17
          | [a-z]*[g-z][a-z]*\d+)  # order17, but not abc17, which can be a hash
      | (?P<hex>(?=\d*[a-f])(?=[a-f]*\d)[0-9a-f]{8,})
    )[)\],;]*[.:]?
    """,
    re.VERBOSE,
)
"""A value of a usual form that is a whole word. It is found in a fifth of the time of `_VALUES`."""

_FORM: Final = re.compile(
    r"""
    # digits only: dates, ids, hashes; or with letters
    (?P<hex>(?:0\d{7}|\d{16}|\d{24}|\d{32}|\d{40}|\d{64})$
      | (?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{8,}$|(?=[A-F]*\d)(?=\d*[A-F])[0-9A-F]{8,}$)
    # -1,024.5e3%
  | (?P<num>[+\-#]?(?:\d{1,3}(?:[,_]\d{3})+|\d+)(?:[.,]\d+)*(?:[eE][+\-]?\d+)?%?$)
    # 35ms, 1.5GB
  | (?P<quantity>[+\-]?\d+(?:[.,]\d+)*
      (?P<unit>ns|us|µs|μs|ms|msecs?|s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d
        |days?|h\d+m(?:\d+s)?|m\d+(?:\.\d+)?s
        |[kKMGTP]i?[bB]|[bB]|[bB]ytes?|[KMGkmg]|px|rpm|rps|qps|Hz|kHz|MHz|GHz|x|th)$)
  | (?P<version>v?\d+(?:\.\d+)+(?:[-+.]\w+)*$)
    """,
    re.VERBOSE,
)
"""Forms of a part of a word with a digit, the first that fits. All other parts are ids."""
_PLACEHOLDER_OF_UNIT: Final = dict.fromkeys(
    "kb mb gb tb pb kib mib gib tib b byte bytes k g".split(),  # noqa: SIM905 - words
    "<size>",
)
"""Units of sizes. All other units are of durations."""
_PAIRED: Final = re.compile(
    r"(?<![\w.])(\w[\w.\-]*=)(?!<)(\"[^\"]*\"|'[^']*'|[^\s,;&)\]}]+)"
)
_KEPT_KEYS: Final = re.compile(
    r"(?i)(?:^|[._-])(?:err(?:or)?s?|code|errno|status|state|reason|cause|type|kind|exception|level"
    r"|severity|result|op|operation|method|action|phase|step)=$"
)
_ADDRESSES: Final = frozenset(("url", "ip", "host", "peer"))

_SPACELESS: Final = re.compile(
    r"[\u0e00-\u0eff\u1100-\u11ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]"
)
"""Letters of scripts without spaces, such as Chinese, Japanese, Thai and Korean: a sentence is one word."""
_VALUE_IN_SENTENCE: Final = re.compile(
    r"(?:[A-Za-z0-9_]+[.,\-])*[A-Za-z0-9_]*\d(?:[A-Za-z0-9_]*[.,\-])*[A-Za-z0-9_]*"
)
_CODE_WORDS: Final = ("码", "代码", "错误", "コード", "エラー", "코드", "รหัส")
"""Words before a code, in scripts without spaces."""
_SHORTEST_PATH: Final = 3
"""Characters of a path. The shorter ones, "/" and "./", are no values."""
_AROUND_CODES: Final = "#()[],.:;"
"""Signs around a code, which do not belong to it."""
_LONGEST_CODE: Final = 14
"""Characters of the longest word that `CODE` matches. Most ids are longer, or begin with a small letter."""
_PART: Final = re.compile(r"[^.:/]+")


class WordInContext(str):
    """A word with placeholders, of which the words around it can make a code."""

    __slots__ = ("may_be_code", "status_phrase")

    may_be_code: bool
    """Whether the words before can make it a code, for example "exit code" before "137"."""
    status_phrase: str
    """The letters of the phrase of an HTTP status, for example "badgateway" for "502"; else ""."""


def _read_word(word: str) -> str:
    """Return a word with placeholders instead of values."""
    replaced = _masked(word)
    if replaced == word:
        return word

    bare = word.strip(_AROUND_CODES)
    if len(bare) > _LONGEST_CODE or bare[:1].islower():
        return replaced

    in_context = WordInContext(replaced)
    in_context.may_be_code = _may_be_code(word, bare)
    in_context.status_phrase = STATUS_PHRASES.get(bare, "")
    if in_context.may_be_code or in_context.status_phrase:
        return in_context

    return replaced


def _may_be_code(word: str, bare: str) -> bool:
    """Return whether a word without the signs around it has the form of a code, such as "137" or "E11000"."""
    if SHORT_NUMBER.search(word):
        return True
    return CODE.fullmatch(bare) is not None


READ_WORDS: Final = Memo(_read_word, most=1 << 16)
"""The words of all messages with placeholders."""


def _masked(word: str) -> str:
    """Return a word with placeholders instead of values."""
    if word.isalpha() or _NO_VALUE.fullmatch(word):
        return word

    usual = _USUAL_VALUE.fullmatch(word)
    if usual is None:
        return _replace_values(word)

    kind = usual.lastgroup or ""
    start, end = usual.span(kind)
    if kind == "id" and is_technical_word(word[start:end]):
        return word

    placeholder = f"<{kind}>"
    if kind == "url":
        placeholder = _with_service(kind, usual[kind])
    return f"{word[:start]}{placeholder}{word[end:]}"


def _replace_values(word: str) -> str:
    """Return a word with placeholders instead of values. A code in brackets stays."""
    if _DOTTED_NAME.fullmatch(word) and not _ENDS_OF_PLACES.search(word):
        return word
    if word[0] in "[(" and BRACKETED_CODE.fullmatch(word):
        return word

    values = _VALUES_OF_SIMPLE_WORD
    if _SIGNS_OF_PLACES.search(word):
        values = _VALUES
        if _DIGIT.search(word) is None:
            values = _VALUES_WITHOUT_DIGITS

    replaced = values.sub(_placeholder, word)
    if "=" in replaced:
        replaced = _PAIRED.sub(masked_pair, replaced)
    return replaced


def masked_pair(found: re.Match[str]) -> str:
    """Return a pair such as `user=ann` with a placeholder. If the key states the failure, the value stays."""
    if _KEPT_KEYS.search(found[1]):
        return found[0]
    return f"{found[1]}<value>"


def _placeholder(found: re.Match[str]) -> str:
    """Return the placeholder of a part of a word that `_VALUES` found."""
    kind, text = found.lastgroup, found[0]
    if kind == "word":
        return _placeholder_of_word(found, text)
    if kind in _ADDRESSES:
        return _with_service(kind, text)
    if kind == "path" and len(text) < _SHORTEST_PATH:
        return text

    return f"<{kind}>"


def _placeholder_of_word(found: re.Match[str], text: str) -> str:
    """Return the placeholder of a part of a word with a digit, or the part if it names something."""
    word = found.string
    if not text.isascii() and _SPACELESS.search(text):
        if follows_sql_state(word, found.start()):
            return text
        return _VALUE_IN_SENTENCE.sub(_placeholder_in_sentence, text)

    if names_something(word, found.start(), found.end()):
        return text

    form = _FORM.match(text.strip("#:"))
    if form is None:
        return _placeholder_of_id(text)
    if form.lastgroup == "num":
        return _number(word[: found.start()], text, form[0])
    if form.lastgroup == "quantity":
        return _PLACEHOLDER_OF_UNIT.get(form["unit"].lower(), "<duration>")

    return f"<{form.lastgroup}>"


def _number(before: str, text: str, number: str) -> str:
    """Return the placeholder of a number, or the number after a key such as "code=" in one word."""
    if before and SHORT_NUMBER.search(number) and TAKE_CODE[before]:
        return text
    return "<num>"


def _placeholder_of_id(text: str) -> str:
    """Return the placeholder of an id. A dotted name keeps the parts without digits.

    For example, ``com.acme.Job17.run`` becomes ``com.acme.<id>.run``.
    """
    placeholder = "<id>"
    if "." in text or ":" in text or "/" in text:
        placeholder = _PART.sub(_masked_part, text)
    if text.endswith(":"):
        placeholder += ":"
    return placeholder


def _masked_part(part: re.Match[str]) -> str:
    """Return ``<id>`` for a part of a name that has a digit and is no technical word, such as `sha256`."""
    text = part[0]
    if any(map(str.isdigit, text)) and not is_technical_word(text):
        return "<id>"

    return text


def _placeholder_in_sentence(found: re.Match[str]) -> str:
    """Return the placeholder of a value in a sentence without spaces: of A-12 in "订单A-12库存不足"."""
    if found.string[: found.start()].endswith(_CODE_WORDS):
        return found[0]
    if any(map(str.isalpha, found[0])):
        return "<id>"

    return "<num>"


def _with_service(kind: str, address: str) -> str:
    """Return the placeholder of an address, with the kind of service that it names."""
    service = of_scheme(address) if kind == "url" else of_host(address)
    if kind == "peer":
        kind = "host"  # a name and an address, as Java writes them: db-1/10.0.0.5:5432
    if not service:
        return f"<{kind}>"

    return f"{service}://<{kind}>"


def with_service_of_port(address: str, replaced: str) -> str:
    """Return the placeholder of an address. After "ECONNREFUSED", the port names a service."""
    service = ""
    if "://" not in replaced:
        service = of_port(address)
    if not service:
        return replaced

    return f"{service}://{replaced}"
