r"""Decide which names are secret, and whether the text after a name is a value or a sentence.

A name is the name of a header, a field, a setting or an option. Before names are compared, they are folded to
words in lower case with a hyphen between two words, so that one table serves every convention:

    X_Api_Key    -> x-api-key
    dbPassword   -> db-password
    OTPCode      -> otp-code
    pässword     -> password

The words of secret names are in the tables `_PARTS`, `_LAST_PARTS`, `_ENDS` and `_WHOLE_WORDS`. Everything
else follows from these tables: the test of a name (`is_secret_name`), the words that text with a secret name
contains (`WORDS`), and the expression for a name in text (`NAME_IN_TEXT`) that `hints` uses.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Final

_PARTS: Final = (
    *(
        "token",
        "secret",
        "passw",
        "passcode",
        "passphrase",
        "pwd",
        "credential",
        "cookie",
        "session",
    ),
    *(
        "signature",
        "jwt",
        "csrf",
        "xsrf",
        "bearer",
        "private",
        "hmac",
        "sessid",
        "mnemonic",
        "verifier",
        "saml",
    ),
    "connection-string",
    # headers of single providers whose names have no usual word: deployments that are protected, an origin
    # behind a network of caches, and the key of a team
    *("protection-bypass", "origin-verify", "honeycomb-team"),
)
"""Words that make a name secret wherever they are in it, for example ``client_secret_v2``."""

_LAST_PARTS: Final = ("otp", "conn-str")
"""Words that make a name secret unless a letter follows, for example ``myotp`` but not ``laptops``."""

_ENDS: Final = ("ticket", "assertion")
"""Words that make a name secret at the end of it, for example ``session-ticket`` but not ``ticket-count``."""

_WHOLE_WORDS: Final = (
    *(
        "sig",
        "sid",
        "pin",
        "pass",
        "pat",
        "mfa",
        "2fa",
        "otp",
        "totp",
        "seed",
        "sas",
        "dsn",
        "pw",
    ),
    *("cred", "creds"),
)
"""Words that are too short to be searched within other words, for example ``db_pin`` but not ``pinned``."""


def _expression(words: Iterable[str], hyphen: str = "-?") -> str:
    """Return a regular expression for any of these words; a hyphen in a word is optional.

    >>> _expression(("otp", "conn-str"))
    'otp|conn-?str'
    """
    return "|".join(words).replace("-", hyphen)


_IS_SECRET: Final = re.compile(
    # "author" and "unauthorized" are no secrets; "authorize" and "authorization" are
    r"auth(?!or(?!i[sz](?!ed)))|key"
    rf"|{_expression(_PARTS)}"
    rf"|(?:{_expression(_LAST_PARTS)})(?![a-z])"
    rf"|(?:{_expression(_ENDS)})$"
    # "2FA" is folded to "2-fa", because a capital begins a word
    rf"|(?:^|-)(?:{_expression(_WHOLE_WORDS)}|2-fa)(?:-|$)"
)
# Names that contain a word of the tables and are no secrets, for example "max-tokens" or "KeyError".
_IS_PLAIN: Final = re.compile(
    r"(?:^|-)(?:flow-?control-?key|idempotency-?key|sec-websocket-key|keyboard|keywords?|keynote|monkey|random-seed"
    r"|(?:max|min|total|prompt|completion|input|output|cached|reasoning|num|n|used|remaining)-tokens"
    r"|tokens?-(?:count|used|limit|type|usage))$"
    r"|(?:^|-)tokeniz|(?:error|exception|warning|failure)$"
)
# Names before values that are always masked, for example "password: hunter2". After other secret names, as in
# "session: closed", a value without quotes is only masked if it looks random.
_IS_CLEAR: Final = re.compile(
    r"passw|passcode|passphrase|pwd|secret|credential|cookie|authorization|mnemonic|connection-?string|sessi?o?n?-?id"
    r"|(?:api|access|account|shared|private|signing|encryption|master|subscription)-?key|[a-z]-?token$|^token="
    r"|protection-?bypass|origin-?verify|honeycomb-?team"
    r"|(?:^|-)(?:pass|pw|creds?|otp|totp|jwt|jsessionid|phpsessid|connect-sid)(?:-|$)|(?:^|-)bearer$"
)


def _shortest(words: Iterable[str]) -> tuple[str, ...]:
    """Return the words that contain no other word: "passw" is left out if "pass" is searched.

    >>> _shortest(("pass", "passw", "key"))
    ('pass', 'key')
    """
    all_words = list(dict.fromkeys(words))
    return tuple(
        word
        for word in all_words
        if not any(other in word for other in all_words if other != word)
    )


WORDS: Final = _shortest(
    word.partition("-")[0]
    for word in ("auth", "key", *_PARTS, *_LAST_PARTS, *_ENDS, *_WHOLE_WORDS)
)
"""Text with a secret name contains at least one of these words, in lower case and plain letters."""

ESCAPED: Final = r"\\+(?:[bfnrt]|u[0-9a-f]{4}|x[0-9a-f]{2})|%[0-9a-f]{2}"
"""Escapes of JSON and URLs, for example of a line end or a blank, with ``(?i)``."""

GAP: Final = rf"(?:[^!-~]|{ESCAPED}|\[masked [^\]]+\])"
"""At least any blank, perhaps escaped, with ``(?i)``. The search reads a mask as a blank."""

_SEPARATOR: Final = r"[_.\-]?"
_REST_OF_NAME: Final = r"[\w.\-]*"
_TITLES: Final = _expression(word.title() for word in _WHOLE_WORDS)
_CAPITALS: Final = _expression(word.upper() for word in _WHOLE_WORDS)

PARTS_IN_TEXT: Final = _expression((*_PARTS, *_LAST_PARTS, *_ENDS), _SEPARATOR)
"""The words of secret names, except "auth", "key" and whole words, as part of a regular expression."""

WHOLE_WORDS_IN_TEXT: Final = _expression(_WHOLE_WORDS)
"""The words that are whole words of secret names."""

ANY_I: Final = "(?:i|\u0130|\u0131|\\\\+u013[01])"
"""An i as Python reads it if the case is ignored: also without a dot, and as a capital with a dot."""

STATED_NAME: Final = (
    r"(?:passw(?:or)?d|passphrase|passcode|pwd|secret|token|credential|jwt"
    r"|(?:api|access|account|private|secret|signing|encryption)[ _\-]?key)s?"
)
"""The names of secrets in sentences such as "invalid token k3J9x0Q2v7B1m5", with ``(?i)``."""

STATING_WORDS: Final = "is|was|value|provided|given|used|sent|received|passed|supplied"
"""Words between the name and the value in such a sentence."""


def _beginning_otherwise(letter: str) -> str:
    """Return an expression (RE2 syntax) for the rest of a name that does not begin with a letter."""
    before, after = chr(ord(letter) - 1), chr(ord(letter) + 1)
    return rf"[a-{before}{after}-z0-9_.\-]{_REST_OF_NAME}"


def _other_word(letter: str) -> str:
    """Return an expression for the rest of a name that does not continue a word with a letter.

    A capital begins another word: "authOrder" is folded to "auth-order", and is no "author".
    """
    capital = rf"(?-i:{letter.upper()}){_REST_OF_NAME}"
    return f"{_beginning_otherwise(letter)}|{capital}"


def _other_than(word: str) -> str:
    """Return an expression for the rest of a name that is anything but a word."""
    if not word:
        return r"[\w.\-]+"

    first, others = word[0], word[1:]
    return f"(?:{_other_word(first)}|{first}{_other_than(others)})?"


# RE2 has no lookahead, so "author", "authorized" and "KeyError" are excluded letter by letter. Each group is
# optional, because the name may end before it.
_AFTER_AUTHORIZE: Final = f"(?:{_other_word('d')})?"
_AFTER_AUTHORIZ: Final = f"(?:{_other_word('e')}|e{_AFTER_AUTHORIZE})?"
_AFTER_AUTHO: Final = f"(?:{_other_word('r')}|ri[sz]{_AFTER_AUTHORIZ})?"
_AFTER_AUTH: Final = f"(?:{_other_word('o')}|o{_AFTER_AUTHO})?"
# "KeyError" is excluded with a capital as well
_AFTER_KEY: Final = f"(?:{_beginning_otherwise('e')}|e{_other_than('rror')})?"

NAME_IN_TEXT: Final = (
    f"(?:auth{_AFTER_AUTH}"
    f"|key{_AFTER_KEY}"
    rf"|(?:{PARTS_IN_TEXT}){_REST_OF_NAME}"
    # a whole word begins after a sign, after an escape such as "\\n", or with a capital as in "dbPin",
    # "DBPin" or "dbPIN"
    rf"|(?:(?:^|[^a-z]|{ESCAPED})(?:{WHOLE_WORDS_IN_TEXT})|(?-i:[A-Za-z0-9](?:{_TITLES})|[a-z0-9](?:{_CAPITALS})))"
    # and ends before a sign, or before a capital as in "pinCode"
    rf"(?:(?:[_.\-]|(?-i:[A-Z])){_REST_OF_NAME})?)"
)
"""A secret name within text, in the syntax of RE2, with ``(?i)``. It also matches some other names."""

# "conn" alone would be in every "connection refused"
_WORD: Final = re.compile(
    "|".join(
        (
            *(word for word in WORDS if word != "conn"),
            "conn[a-z]*[_.-]?str",
            "code=",
            "identified by",
        )
    )
)
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_BEYOND_ASCII: Final = re.compile(r"[^\x00-\x7f]")
_BETWEEN_WORDS: Final = re.compile(r"[^\w=]|_")
# accents, and invisible characters
_DROPPED_CATEGORIES: Final = frozenset(("Mn", "Cf"))

# The beginning of a sentence about a secret, for example "password: must not be empty".
_PROSE: Final = re.compile(
    r"(?i)(?:yes|is|are|was|were|be|must|should|shall|will|would|can|cannot|could|may|has|have|had"
    r"|does|did|do|doesn|isn|not|no|none|null|nil|true|false|undefined|nan"
    r"|missing|invalid|required|expired|incorrect|wrong|empty|blank|unknown"
    r"|unauthorized|unauthenticated|forbidden|denied|failed|failure|error|mismatch|revoked|disabled|unset|unexpected"
    r"|expected|got|found|too|already|please|this field|redacted|hidden|masked"
    r"|removed|filtered|malformed|unsupported"
    r"|string|str|int|integer|number|object|array|boolean|optional|header|length|contains"
    r"|at least|at most)(?![\w\-.@/+])"
)
# Other words begin a sentence only if no quote precedes them: a password can be "the".
_PROSE_UNQUOTED: Final = re.compile(
    rf"{_PROSE.pattern}"
    r"|(?:the|a|an|this|that|in|on|at|of|for|from|with|and|or|if|by|as|to|your|user)(?![\w\-.@/+=])"
)
_READ_OF_PROSE: Final = 40  # characters of a value that tell whether it is a sentence

# A change between letters and digits. For example, "Zq7canary9XtR4vLm2" has seven, "production1" has one.
_TURN: Final = re.compile(r"(?<=[A-Za-z])[0-9]|(?<=[0-9])[A-Za-z]")
# fewer are in words with a number, for example "realms-2024-production1"
_LEAST_TURNS: Final = 3
_READ_OF_RANDOM: Final = 200  # changes are counted in these first characters of a value
_RANDOM: Final = re.compile(
    r"(?![0-9]{4}-[0-9]{2}-[0-9]{2})[\w+/=\-.~%:]{12,4096}", re.ASCII
)
_MIXED_CASE: Final = re.compile(
    r"(?=[^A-Z]{0,99}[A-Z])(?=[^a-z]{0,99}[a-z])[A-Za-z0-9]{24,}"
)

_LONGEST_NAME: Final = 100
_HEADER_NAME: Final = re.compile(r"[A-Za-z]+(?:-[A-Za-z]+)+")
# of letters alone
_NAME_OR_SENTENCE: Final = re.compile(r"[A-Za-z]*(?:[ _.\-][A-Za-z]+){0,40}")
_NAMING_FIELDS: Final = ("name", "key", "header", "field")
_VALUE_FIELDS: Final = frozenset(("value", "values"))


def normalise_header(name: str) -> str:
    """Return a header name in lower case with hyphens, as header names are compared.

    >>> normalise_header("X_Api_Key")
    'x-api-key'
    """
    return name.strip().lower().replace("_", "-")


@lru_cache(4096)
def is_secret_name(name: str) -> bool:
    """Return whether a header or field of this name is expected to contain a secret.

    A forwarding prefix does not matter.

    >>> is_secret_name("Upstash-Forward-X-Api-Key"), is_secret_name("OTPCode"), is_secret_name("Content-Type")
    (True, True, False)
    """
    # the words of "Upstash-Forward-X-Api-Key" are "upstash-forward-x-api-key", and "api-key" is secret
    folded = _folded(name)
    has_secret_word = _IS_SECRET.search(folded) is not None
    return has_secret_word and not _IS_PLAIN.search(folded)


@lru_cache(4096)
def is_clear_name(name: str) -> bool:
    """Return whether any value after this name is a secret, also in plain text such as ``name: value``.

    >>> is_clear_name("db.password"), is_clear_name("session")
    (True, False)
    """
    has_clear_word = _IS_CLEAR.search(_folded(name)) is not None
    return has_clear_word and is_secret_name(name)


def secret_members(members: Mapping[str, object]) -> set[str]:
    """Return the secret members of a JSON object: by their names, or by a name next to the value.

    >>> secret_members({"pin": 1, "n": 2}), "value" in secret_members({"name": "X-Api-Key", "value": "a"})
    ({'pin'}, True)
    """
    secret = set(filter(is_secret_name, members))
    if _VALUE_FIELDS.isdisjoint(members):
        return secret

    # in {"name": "X-Api-Key", "value": "a"}, the content of "name" is the name of the secret
    names = map(members.get, _NAMING_FIELDS)
    if any(map(_is_secret_text, names)):
        secret |= _VALUE_FIELDS
    return secret


def _is_secret_text(value: object) -> bool:
    return isinstance(value, str) and is_secret_name(value)


def secret_items(items: Sequence[object]) -> set[int]:
    """Return the positions of the secret items of a JSON array.

    An item is secret if the item before it is the name of a secret header, or if the array is a pair of a
    clear name and a value.

    >>> secret_items(["Host", "a", "X-Api-Key", "b"]), secret_items(["password", "email"])
    ({3}, set())
    >>> secret_items(["authorization", "s3cr3t"])
    {1}
    """
    match items:
        case [str(name), str(value)] if is_pair(name, value):
            return {1}

    # each item with the next one: (0, "Host", "a"), (1, "a", "X-Api-Key"), (2, "X-Api-Key", "b")
    neighbours = enumerate(pairwise(items), start=1)
    return {position for position, (name, item) in neighbours if _names(name, item)}


def _names(item: object, next_item: object) -> bool:
    """Return whether two items of a JSON array are a secret name and the secret."""
    match item, next_item:
        case str(name), str(value):
            return names_next(name, value)
    return False


def names_next(name: str, value: str) -> bool:
    """Return whether an item of a list names a secret and the next item is that secret.

    >>> names_next("X-Api-Key", "b"), names_next("session", "closed")
    (True, False)
    """
    # Examples of a name and the next item:
    #   session     k3J9x0Q2v7B1m5   a secret, because it looks random
    #   X-Api-Key   b                a secret, because any value after such a header is
    #   X-Api-Key   Content-Type     the names of two headers
    if not _can_name(name, value):
        return False
    if is_random(value):
        return is_secret_name(name)

    may_be_value_of_header = "-" in name and not _HEADER_NAME.fullmatch(value)
    return may_be_value_of_header and is_clear_name(name)


def is_pair(name: str, value: str) -> bool:
    """Return whether a list of these two items is a clear name and a secret, not two names or a sentence.

    >>> is_pair("authorization", "s3cr3t"), is_pair("password", "email"), is_pair("token", "is required")
    (True, False, False)
    """
    names_secret = _can_name(name, value) and is_clear_name(name)
    if not names_secret:
        return False

    # "email" can be the next name in a list of fields
    is_name = _NAME_OR_SENTENCE.fullmatch(value) is not None
    return not (is_name or is_prose(value, quoted=True))


def _can_name(name: str, value: str) -> bool:
    """Return whether the first of two items can be a name, and the second is not a secret name."""
    # for example, not in the list ["token", "password"] of two names
    if len(name) > _LONGEST_NAME:
        return False

    start_of_value = value[:_LONGEST_NAME]
    return not is_secret_name(start_of_value)


def is_prose(value: str, *, quoted: bool) -> bool:
    """Return whether the text after a name is a sentence, for example "password: must not be empty".

    >>> is_prose("is required", quoted=True), is_prose("hunter2", quoted=False)
    (True, False)
    """
    first_words = _PROSE_UNQUOTED
    if quoted:
        first_words = _PROSE
    start = value[:_READ_OF_PROSE].lstrip(" \t[{(<\"'*")

    return first_words.match(start) is not None


def is_random(value: str) -> bool:
    """Return whether a value looks random: letters and digits alternate, or it is long and in mixed case.

    >>> is_random("Zq7canary9XtR4vLm2"), is_random("realms-2024-production1")
    (True, False)
    """
    # The turns between letters and digits, counted at "|":
    #   Zq|7|canary|9|XtR|4|vLm|2   seven, so it is random
    #   realms-2024-production|1    one, so it is a name
    if not _RANDOM.fullmatch(value):
        return False

    start_of_value = value[:_READ_OF_RANDOM]
    turns = len(_TURN.findall(start_of_value))
    if turns >= _LEAST_TURNS:
        return True

    return _MIXED_CASE.fullmatch(value) is not None


def speaks_of_secrets(lowered: str) -> bool:
    """Return whether text in lower case contains a word of a secret name."""
    return _WORD.search(lowered) is not None


def plain_letters(text: str) -> str:
    r"""Return the text without accents, invisible signs and full-width forms, as names are compared.

    >>> plain_letters("pässword"), plain_letters("S\N{FULLWIDTH LATIN SMALL LETTER E}cret")
    ('password', 'Secret')
    """
    if text.isascii():
        return text

    # compatibility decomposition (Unicode annex 15): "ä" becomes "a" and an accent, a wide letter a usual one
    decomposed = unicodedata.normalize("NFKD", text)
    return _BEYOND_ASCII.sub(_visible_letter, decomposed)


def _visible_letter(match: re.Match[str]) -> str:
    """Return the character of a match, or nothing if it is an accent or invisible."""
    character = match[0]
    if unicodedata.category(character) in _DROPPED_CATEGORIES:
        return ""

    return character


def _folded(name: str) -> str:
    """Return the words of a name in plain letters and lower case, with a hyphen between two words."""
    # the steps for "dbPässword_file": "dbPassword_file", "db-Password_file", "db-password-file"
    plain_name = plain_letters(name).strip()
    words = _CAMEL.sub("-", plain_name)
    return _BETWEEN_WORDS.sub("-", words).lower()
