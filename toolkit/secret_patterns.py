r"""Which names are secret, and which parts of a text look like a secret anywhere.

Searching takes linear time, also in hostile text: repetitions are bounded or possessive, and what was matched
is not searched again.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Final, NamedTuple

from toolkit.secret_prefixes import LIKELY_TOKENS, SUSPICIOUS_TOKENS, token_spans

_SECRET_WORDS: Final = re.compile(
    r"auth(?!or(?!i[sz](?!ed)))|token|secret|passw|passcode|passphrase|pwd|credential|cookie|session|signature|key|jwt"
    r"|csrf|xsrf"
    r"|bearer|private|hmac|otp(?![a-z])|sessid|mnemonic|connection-?string|conn-?str(?:-|$)|verifier|ticket$|saml"
    r"|assertion$|(?:^|-)(?:sig|sid|pin|pass|pat|mfa|2fa|otp|totp|seed|sas|dsn|pw|creds?)(?:-|$)"
)
# Names that hold a secret word without holding a secret.
_PLAIN_NAMES: Final = re.compile(
    r"(?:^|-)(?:flow-?control-?key|idempotency-?key|sec-websocket-key|keyboard|keywords?|keynote|monkey|random-seed"
    r"|(?:max|min|total|prompt|completion|input|output|cached|reasoning|num|n|used|remaining)-tokens"
    r"|tokens?-(?:count|used|limit|type|usage))$"
    r"|(?:^|-)tokeniz|(?:error|exception|warning|failure)$"
)
# Names that say it so clearly that text such as "name: value" is enough.
_CLEAR_NAMES: Final = re.compile(
    r"passw|passcode|passphrase|pwd|secret|credential|cookie|authorization|mnemonic|connection-?string|sessi?o?n?-?id"
    r"|(?:api|access|account|shared|private|signing|encryption|master|subscription)-?key|[a-z]-?token$|^token="
    r"|(?:^|-)(?:pass|pw|creds?|otp|totp|jwt|jsessionid|phpsessid|connect-sid)(?:-|$)|(?:^|-)bearer$"
)
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_BEYOND_ASCII: Final = re.compile(r"[^\x00-\x7f]")
_BETWEEN: Final = re.compile(r"[^\w=]|_")  # words of a name

WORDS: Final = (
    *("auth", "token", "secret", "passw", "passcode", "passphrase", "pw", "cred", "cookie", "session"),
    *("signature", "key", "jwt", "otp", "csrf", "xsrf", "bearer", "private", "hmac", "sessid", "mnemonic"),
    *(
        "conn",
        "string",
        "verifier",
        "ticket",
        "sig",
        "sid",
        "pin",
        "pass",
        "pat",
        "mfa",
        "2fa",
        "seed",
        "sas",
        "saml",
    ),
    *("dsn", "assertion", "code=", "identified by"),
)
_WORD: Final = re.compile("|".join(WORDS))


class _Pattern(NamedTuple):
    """A regular expression whose group `secret` is masked, used where one of its words is in the text."""

    words: tuple[str, ...]
    expression: re.Pattern[str]


_NOT_BEARER: Final = (
    "(?:tokens?|auth|authentication|authorization|scheme|realm|errors?|headers?|credentials?|format|required"
    "|missing)"
)
_PATTERNS: Final = (
    _Pattern(
        ("-----begin",),
        re.compile(
            r"(?P<secret>-----BEGIN [A-Z0-9 ]{3,40}-----.*?(?:-----END [A-Z0-9 ]{3,40}-----|\Z))", re.DOTALL
        ),
    ),
    _Pattern(
        ("bearer",),
        re.compile(
            rf"(?i:bearer)(?:[ \t\xa0]{{1,9}}|%20|\+)(?!(?i:{_NOT_BEARER})(?![\w~+/=\-]))"
            r"(?P<secret>[\w.~+/=:\-]{6,})",
            re.ASCII,
        ),
    ),
    # not one plain word: "a basic example"
    _Pattern(
        ("basic",),
        re.compile(
            r"(?i:basic)(?:[ \t\xa0]{1,9}|%20|\+)(?![A-Z]?[a-z]+(?![\w+/=\-]))(?P<secret>[\w+/=\-]{6,})",
            re.ASCII,
        ),
    ),
    _Pattern(
        ("eyj",),
        # Signed tokens have three parts, encrypted ones five: eyJh….key.iv.text.tag, of which the key may be
        # empty. What names the kind of a token may be in front: sk.eyJ…
        re.compile(
            r"(?P<secret>(?<![\w\-])(?:sk\.)?(?=[\w\-]*eyJ[\w\-]{5})[\w\-]++\."
            r"(?:[\w\-]{5,}+\.[\w\-]*+|\.[\w\-]{5,}+\.[\w\-]{5,}+\.[\w\-]*+)"
            r"(?:\.[\w\-]{1,}+\.[\w\-]{1,}+)?)",
            re.ASCII,
        ),
    ),
    _Pattern(
        ("akia", "asia", "abia", "acca"),
        re.compile(r"(?P<secret>(?<![A-Z0-9])(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}(?![A-Z0-9]))"),
    ),
    # the secret key of 40 characters within a few lines of its key id
    _Pattern(
        ("akia", "asia"),
        re.compile(
            r"(?<![A-Z0-9])(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9/+])"
            r"(?:(?![A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=])).){1,200}?"
            r"(?<![A-Za-z0-9/+])(?![0-9a-f]{40})(?P<secret>[A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])",
            re.DOTALL,
        ),
    ),
    _Pattern(
        ("akia", "asia"),
        re.compile(
            r"(?<![A-Za-z0-9/+])(?![0-9a-f]{40})(?P<secret>[A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])"
            r"(?=.{1,200}?(?<![A-Z0-9])(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Z0-9]))",
            re.DOTALL,
        ),
    ),
    # SendGrid's, in two parts: 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
    _Pattern(
        ("sg.",),
        re.compile(r"(?<![A-Za-z0-9])(?P<secret>SG\.[\w\-]{16,64}+\.[\w\-]{16,}+)", re.ASCII),
    ),
    # Airtable's: pat and 14 characters, a dot, 64 hex digits (gitleaks: airtable-personnal-access-token)
    _Pattern(("pat",), re.compile(r"(?P<secret>pat[A-Za-z0-9]{14}\.[0-9a-f]{64}(?![A-Za-z0-9]))")),
    # Terraform's: p8dZ1kQ7wXv3Ab.atlasv1.9f… (gitleaks: hashicorp-tf-api-token)
    _Pattern(
        (".atlasv1.",),
        re.compile(r"(?P<secret>(?<![\w\-])[\w\-]{6,64}+\.atlasv1\.[\w\-=]{16,}+)", re.ASCII),
    ),
    # Azure's client secrets: Zx18Q~9f… (gitleaks: azure-ad-client-secret)
    _Pattern(
        ("q~",),
        re.compile(r"(?P<secret>(?<![\w.~\-])[\w.~]{3}[0-9]Q~[\w.~\-]{31,34}(?![\w~\-]))", re.ASCII),
    ),
    # MaxMind's, which end alike: aB3dE6_0123456789abcdefghijABCDEFGHI_mmk (gitleaks: maxmind-license-key)
    _Pattern(
        ("_mmk",),
        re.compile(r"(?P<secret>(?<![A-Za-z0-9])[A-Za-z0-9]{6}_[A-Za-z0-9]{29}_mmk(?![A-Za-z0-9]))"),
    ),
    # Mailchimp's: 0123456789abcdef0123456789abcdef-us12 (gitleaks: mailchimp-api-key)
    _Pattern(("-us",), re.compile(r"(?P<secret>(?<![A-Za-z0-9])[0-9a-f]{32}-us[0-9]{1,2}(?![A-Za-z0-9\-]))")),
    # PuTTY's keys have no end of their own: "Private-Lines: 2", two lines of base64, "Private-MAC: 0a1b…"
    _Pattern(
        ("private-lines:",),
        re.compile(
            r"Private-Lines:[ \t]{0,4}[0-9]{1,4}[ \t]{0,4}\r?\n"
            r"(?P<secret>(?:[A-Za-z0-9+/=]{1,256}(?:\r?\n|\Z))++"
            r"(?:Private-(?:MAC|Hash):[ \t]{0,4}[0-9a-f]{1,128})?)"
        ),
    ),
    # addresses that grant access
    _Pattern(
        ("hooks.slack",),
        re.compile(r"(?i)hooks\.slack[a-z\-]{0,9}\.com/[a-z]{1,20}/(?P<secret>[^\s?#\"'<>\\]+)"),
    ),
    _Pattern(
        ("webhook",),
        re.compile(
            r"(?i)/webhooks/\d{1,30}/(?P<secret>[\w\-]{16,})"
            r"|webhook\.office\.com/[a-z0-9]{1,20}/(?P<other>[^\s?#\"'<>\\]+)"
        ),
    ),
    _Pattern(
        ("/bot", ":aa"),
        re.compile(
            r"/bot(?P<secret>\d{6,12}:[\w\-]{16,})"
            r"|(?<![\w.])(?:bot)?(?P<other>\d{6,12}:AA[\w\-]{18,64})(?![\w\-])",
            re.ASCII,
        ),
    ),
    # what SMTP and IMAP send, as debugging logs show it; not one plain word: "auth plain is off"
    _Pattern(
        ("auth plain", "auth login", "auth xoauth2", "auth oauthbearer", "authenticate plain"),
        re.compile(
            r"AUTH(?:ENTICATE)?[ ](?:PLAIN|LOGIN|XOAUTH2|OAUTHBEARER)[ ]{1,9}(?![A-Za-z]?[a-z]+(?![\w+/=]))"
            r"(?P<secret>[A-Za-z0-9+/]{8,}={0,2})"
        ),
    ),
    # user and password without a scheme, as JDBC and Go's MySQL driver write them
    _Pattern((":thin:",), re.compile(r"(?i):thin:(?P<secret>[^\s/@\"']{1,99}/[^\s@\"']{1,99})@")),
    _Pattern(
        ("@tcp(", "@unix("),
        re.compile(r"(?<![\w.\-])(?P<secret>[\w.\-]{1,64}+:[^\s@\"']{1,99})@(?:tcp|unix)\("),
    ),
    # user and password of commands and calls
    _Pattern(
        ("curl",),
        re.compile(
            r"(?i)(?<![\w\-])(?:-u|--(?:proxy-)?user)[ \t=]{0,4}[\"']?[^\s:\"']{1,64}:"
            r"(?P<secret>[^\s\"'\\]{1,200})"
        ),
    ),
    _Pattern(
        ("mysql", "mariadb"),
        re.compile(
            r"(?i)(?:mysql|mariadb)[\w\-]{0,9}(?:[ ][^\s|;]{1,80}){0,9}?"
            r"[ ]-p(?P<secret>[^\s\-\"'\\][^\s;|\"'\\]{0,200})"
        ),
    ),
    _Pattern(
        ("sshpass", "login -"),
        re.compile(
            r"(?i)(?:sshpass|[ ]login)(?:[ ][^\s|;]{1,80}){0,9}?"
            r"[ ]-p[ ]?(?P<secret>[^\s\-\"'\\][^\s;|\"'\\]{0,200})"
        ),
    ),
    _Pattern(
        ("login ",),
        re.compile(r"(?i)\blogin\s{1,9}\S{1,100}\s{1,9}password\s{1,9}(?P<secret>[^\s\"'\\<>&]{1,200})"),
    ),
    _Pattern(
        ("auth",),
        re.compile(
            r"(?i)(?:basic_?auth|\bauth[ ]?=[ ]?)\(\s{0,9}b?[\"'][^\"'\r\n]{0,100}[\"']\s{0,9},\s{0,9}"
            r"b?[\"'](?P<secret>[^\"'\r\n]{1,200})"
        ),
    ),
)

_HINTS: Final = tuple((word, index) for index, pattern in enumerate(_PATTERNS) for word in pattern.words)

_COMMANDS: Final = r"curl|(?:mysql|mariadb|sshpass|login).* -p|login .*password|auth[ =]{0,3}\("
_OTHER_TOKENS: Final = (
    rf"{LIKELY_TOKENS}|sg\.[\w\-]|pat[0-9a-z]+\.[0-9a-f]{{6}}|\.atlasv1\.|[0-9]q~|_mmk|[0-9a-f]-us[0-9]|private-lines:"
    r"|hooks\.slack|webhook|/bot|:thin:|@tcp\(|@unix\("
    r"|[0-9]:aa[\w\-]{18}|auth (?:plain|login|x?oauth)|authenticate plain"
)
# Escapes of ASCII, and percent-encoded letters: a backslash begins one.
_ESCAPES: Final = (
    r"\\(?:u00[0-7][0-9a-f]|x[0-7][0-9a-f]|[/\"])"
    r"|&#0{0,4}[0-9]{1,3}(?:[^0-9]|$)|&#x0{0,4}[0-7]?[0-9a-f](?:[^0-9a-f]|$)"
    r"|&[a-z]{2,31};|%[0-7c-f][0-9a-f]"
)
GIVES_ACCESS: Final = "reset|verif|confirm|activat|invit|magic|unsubscribe|unlock|recover|hooks?"
"""Words of a path before a segment that may be a secret: ``/reset/…``."""
# what of a URL may be masked: user info, query, fragment, a parameter, a random segment
_IN_URL: Final = (
    r"//[^\s\"<>]*(?:[?#;@]|\[masked|[^\x00-\x7f]"
    rf"|(?:{'|'.join(WORDS)}|{GIVES_ACCESS})[^\s]*/[\w+=\-.~%:]{{12}})"
)
_BEYOND: Final = r"(?:[^\x00-\x7f]|\\{1,4}u(?:00[c-f]|01[0-9a-f]|1e[0-9a-f]|ff[0-5])[0-9a-f])"
"""A sign beyond ASCII, or the JSON escape of one that may stand for a letter of a name."""
_SHORT: Final = "sig|sid|pin|pat|mfa|2fa|seed|sas|dsn|pw|creds?"
_REST: Final = r"[\w.\-]*"
_WORDS_OF_NAMES: Final = (
    r"token|secret|pass|pwd|credential|cookie|session|signature|jwt|csrf|xsrf|bearer|private|hmac|otp|sessid|mnemonic"
    r"|connection-?string|verifier|ticket|assertion|saml"
)
# neither "authorized" nor "KeyError"
_NAMED: Final = (
    rf"(?:auth(?:[a-np-z0-9_.\-]{_REST}|ori[sz](?:[ai]{_REST}|e(?:[a-ce-z0-9_.\-]{_REST})?))?"
    rf"|key(?:[a-df-z0-9_.\-]{_REST}|e[a-qs-z0-9_.\-]{_REST})?"
    rf"|(?:{_WORDS_OF_NAMES}){_REST}"
    rf"|(?:(?:^|[^a-z])(?:{_SHORT})|(?-i:[a-z0-9](?:{_SHORT.title()})))(?:[_.\-]{_REST})?"
    rf"|(?-i:(?:{_SHORT}|{_SHORT.title()})[A-Z]){_REST})"
)
_STATED: Final = r"(?:passw|passphrase|passcode|pwd|secret|token|credential|jwt|[a-z][ _\-]?key)"
_WIDE: Final = "\uff1d\uff1a"  # "=" and ":" in full width
_TOKENS: Final = (
    r"[^gr]_|[hd]r_|rg_|pat[0-9A-Za-z]{14}\.|\w-|eyJ|[KSB]IA|ACCA|hook|/b|[Bb][Ee][Aa]|[Bb][Aa][Ss]|uth\("
    r"|[0-9]:AA|UTH [PLXO]|TE PLAIN|(?:uthorization|ookie)[\"']|SG\.|sv1\.|~"
    rf"|{SUSPICIOUS_TOKENS}"
)
_SPOKEN: Final = rf" -[A-Za-z]|(?i:{_STATED}[a-z]*[\"'`]*[\s,(]|identified by)"

SUSPICIOUS: Final = (
    rf"[=?@\\&%{_WIDE}]|//|--|\D:|: |[0-9]:\D|[A-Za-z_][0-9]{{1,9}}:|</|^/|{_TOKENS}|{_SPOKEN}"
)
"""A quick test (RE2 syntax): text without a match holds nothing that `Redactor.text` would mask."""
LIKELY: Final = (
    rf"(?i)^[/?]|{_IN_URL}|(?:[/\\]\\|:[/\\]|(?:https?|wss?|ftp):)[^\s@]*@|\\/"
    r"|\?[\w.\-~%\[\]]+=|(?:^|[?&])code="
    rf"|-----BEGIN|bearer|basic|eyJ|A[KSB]IA|ACCA|{_OTHER_TOKENS}|{_ESCAPES}"
    rf"|(?:^|[^\w.\-])--?[\w.\-]*(?:auth|key|{_WORDS_OF_NAMES}|{_SHORT}|{_BEYOND})"
    rf"|{_BEYOND}(?:[\w.\-]|{_BEYOND})*(?:[\"'`\]]*[ \t]*[=:<>\r\n;\\{_WIDE}]|[\"'][ \t]*,)"
    rf"|{_NAMED}(?:[\"'`\]]*[ \t]*[=:<>\r\n;\\{_WIDE}]|[\"'][ \t]*,)"
    rf"|{_STATED}(?:(?s:.*)[\w+/=\-.~%:]{{12}}|[a-z]*[ \t(]+[\"'`])"
    rf"|identified by|{_COMMANDS}"
    r"|value[ \t]*[:=]"
    r"|\"(?:name|key|header|field)\"[^\"]*\"[^\"]*\"[^\"]*\"value|(?:name|value|content)=[\"']"
)
"""A closer test, for RE2 alone (others may take long), of text with a match of `SUSPICIOUS`.

Its escaped quotes and slashes have to be unescaped before, except where nested deeply.
"""
SUSPICIOUS_URL: Final = (
    rf"[?#@;%&=\\]|\D:[^/]|:\s|--|//.*//|</|{_TOKENS}"
    rf"|(?i:auth|key|{_WORDS_OF_NAMES}|{_SHORT}|reset|verif|confirm|activat|invit|magic|unsubscribe|unlock|recover)"
)
"""The same as `SUSPICIOUS` for `Redactor.url`."""

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
_PROSE_UNQUOTED: Final = re.compile(
    r"(?i)(?:the|a|an|this|that|in|on|at|of|for|from|with|and|or|if|by|as|to|your|user)(?![\w\-.@/+=])"
)
_TURN: Final = re.compile(r"(?<=[A-Za-z])[0-9]|(?<=[0-9])[A-Za-z]")
_RANDOM: Final = re.compile(r"(?![0-9]{4}-[0-9]{2}-[0-9]{2})[\w+/=\-.~%:]{12,4096}", re.ASCII)
_MIXED: Final = re.compile(r"(?=[^A-Z]{0,99}[A-Z])(?=[^a-z]{0,99}[a-z])[A-Za-z0-9]{24,}")
_LONGEST_NAME: Final = 100
_HEADER_NAME: Final = re.compile(r"[A-Za-z]+(?:-[A-Za-z]+)+")
_WORDS: Final = re.compile(r"[A-Za-z]*(?:[ _.\-][A-Za-z]+){0,40}")  # a name or a sentence, of letters alone
_TURNS: Final = 3  # between letters and digits, as in random texts, not in words with a number


def normalise_header(name: str) -> str:
    """Lower case, ``_`` as ``-``: the form in which header names are compared.

    >>> normalise_header("X_Api_Key")
    'x-api-key'
    """
    return name.strip().lower().replace("_", "-")


@lru_cache(4096)
def is_secret_name(name: str) -> bool:
    """Whether a header or field of this name is expected to hold a secret, also after a forwarding prefix.

    >>> is_secret_name("Upstash-Forward-X-Api-Key"), is_secret_name("OTPCode"), is_secret_name("Content-Type")
    (True, True, False)
    """
    plain = _folded(name)
    return bool(_SECRET_WORDS.search(plain)) and not _PLAIN_NAMES.search(plain)


def secret_members(members: Mapping[str, object]) -> set[str]:
    """Which members of a JSON object are secret: by their names, or by a name next to the value.

    >>> secret_members({"pin": 1, "n": 2}), "value" in secret_members({"name": "X-Api-Key", "value": "a"})
    ({'pin'}, True)
    """
    found = {name for name in members if is_secret_name(name)}
    if "value" in members or "values" in members:
        named = (members.get(field) for field in ("name", "key", "header", "field"))
        if any(isinstance(name, str) and is_secret_name(name) for name in named):
            found |= {"value", "values"}
    return found


def secret_items(items: Sequence[object]) -> set[int]:
    """Which items of a JSON array are secret: by the header's name before them, or by a name and their looks.

    >>> secret_items(["Host", "a", "X-Api-Key", "b"]), secret_items(["password", "email"])
    ({3}, set())
    >>> secret_items(["authorization", "s3cr3t"])
    {1}
    """
    match items:
        case [str(name), str(value)] if is_pair(name, value):
            return {1}
    return {
        position
        for position, (name, value) in enumerate(pairwise(items), start=1)
        if isinstance(name, str) and isinstance(value, str) and names_next(name, value)
    }


def names_next(name: str, value: str) -> bool:
    """Whether of two items of a list the first names a secret and the second is one."""
    if len(name) > _LONGEST_NAME or not is_secret_name(name) or is_secret_name(value[:_LONGEST_NAME]):
        return False
    header = "-" in name and is_clear_name(name) and not _HEADER_NAME.fullmatch(value)
    return header or is_random(value)


def is_pair(name: str, value: str) -> bool:
    """Whether a list of these two items is a clear name and a secret, not two names or a sentence.

    >>> is_pair("authorization", "s3cr3t"), is_pair("password", "email"), is_pair("token", "is required")
    (True, False, False)
    """
    if len(name) > _LONGEST_NAME or not is_clear_name(name) or is_secret_name(value[:_LONGEST_NAME]):
        return False
    return not _WORDS.fullmatch(value) and not is_prose(value, quoted=True)


@lru_cache(4096)
def is_clear_name(name: str) -> bool:
    """Whether a name says "secret" so clearly that ``name: value`` in any text is enough.

    >>> is_clear_name("db.password"), is_clear_name("session")
    (True, False)
    """
    return is_secret_name(name) and bool(_CLEAR_NAMES.search(_folded(name)))


def is_prose(value: str, *, quoted: bool) -> bool:
    """Whether the text after a name is prose about a secret, not one: "password: must not be empty".

    >>> is_prose("is required", quoted=True), is_prose("hunter2", quoted=False)
    (True, False)
    """
    start = value[:40].lstrip(" \t[{(<\"'*")
    return bool(_PROSE.match(start)) or (not quoted and bool(_PROSE_UNQUOTED.match(start)))


def is_random(value: str) -> bool:
    """Whether a text looks random: letters and digits alternating, or long in mixed case.

    >>> is_random("Zq7canary9XtR4vLm2"), is_random("realms-2024-production1")
    (True, False)
    """
    if not _RANDOM.fullmatch(value):
        return False
    return len(_TURN.findall(value[:200])) >= _TURNS or bool(_MIXED.fullmatch(value))


def pattern_spans(text: str, lowered: str) -> Iterator[tuple[int, int]]:
    """Spans that look like a secret by themselves; `lowered` is the text in plain letters and lower case."""
    for index in sorted({index for word, index in _HINTS if word in lowered}):
        for found in _PATTERNS[index].expression.finditer(text):
            yield found.span(found.lastgroup or 0)
    yield from token_spans(text)


def speaks_of_secrets(lowered: str) -> bool:
    """Whether a word of a secret name is in a text."""
    return _WORD.search(lowered) is not None


def plain_letters(text: str) -> str:
    r"""Letters without accents and in plain forms, without invisible signs: as names are compared.

    >>> plain_letters("pässword"), plain_letters("S\N{FULLWIDTH LATIN SMALL LETTER E}cret")
    ('password', 'Secret')
    """
    if text.isascii():
        return text
    letters = unicodedata.normalize("NFKD", text)
    return _BEYOND_ASCII.sub(
        lambda sign: "" if unicodedata.category(sign[0]) in {"Mn", "Cf"} else sign[0], letters
    )


def _folded(name: str) -> str:
    """A name in plain letters as its words in lower case, a hyphen between two."""
    return _BETWEEN.sub("-", _CAMEL.sub("-", plain_letters(name).strip())).lower()
