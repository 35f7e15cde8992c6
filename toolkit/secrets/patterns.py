r"""Find values that look like a secret by themselves, whatever is around them.

`PATTERNS` is the table. It has one entry per kind of secret, with an example; the masked part of the example
is between ``«`` and ``»``. Tokens that begin with a prefix of their own, for example ``ghp_``, are in the
table of `prefixes`.

Each entry names words. If text contains none of them, the pattern is not searched, and `hints` makes the
quick tests from the same words. If you add a pattern, add an entry: nothing else has to be changed. You can
copy an example into `Redactor().text` to see the mask.

Searches take linear time, also in hostile text: repetitions are bounded (``{1,200}``) or possessive (``++``),
so that nothing is tried twice.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import filterfalse
from typing import Final

from toolkit.secrets.names import ANY_I, ESCAPED, GAP
from toolkit.secrets.prefixes import token_spans


@dataclass(frozen=True, slots=True)
class SecretPattern:
    """A kind of secret that is found by a regular expression.

    Attributes
    ----------
    example : str
        Text with a secret of this kind between ``«`` and ``»``.
    words : tuple of str
        If text contains none of them, it has no match. Upper and lower case differ unless `ignores_case`.
    expression : re.Pattern
        The last named group that matched is masked.
    ignores_case : bool
        Whether the words are found in both cases.
    quick, close : str, optional
        Parts of the two tests of `hints`, as regular expressions in the syntax of RE2. If they are
        omitted, they are made from the words. An empty one is for matches that the rest of the test finds.
    """

    example: str
    words: tuple[str, ...]
    expression: re.Pattern[str]
    ignores_case: bool = False
    quick: str | None = None
    close: str | None = None

    def quick_test(self, signs: re.Pattern[str]) -> str:
        """Return an expression that is cheap for Python, without the words that the signs match anyway."""
        if self.quick is not None:
            return self.quick

        # for example, "-----BEGIN" is left out, because "--" is a sign
        unmatched = filterfalse(signs.search, self.words)
        expression_of = _WORD_EXPRESSIONS[self.ignores_case]
        return "|".join(map(expression_of, unmatched))

    def close_test(self) -> str:
        """Return an expression for RE2, which searches many alternatives at once."""
        if self.close is not None:
            return self.close

        words = "|".join(map(re.escape, self.words))
        if self.ignores_case:
            return f"(?i:{words.replace('i', ANY_I)})"
        return f"(?-i:{words})"

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield the spans of the secrets of this kind."""
        for match in self.expression.finditer(text):
            # every expression ends with a named group, so 0 (the whole match) is only for the type checker
            yield match.span(match.lastgroup or 0)


def _in_any_case(word: str) -> str:
    r"""Return an expression for a word in upper and lower case.

    >>> print(_in_any_case("a.b"))
    [Aa]\.[Bb]
    """
    return "".join(map(_in_both_cases, word))


def _in_both_cases(character: str) -> str:
    if character.isalpha():
        return f"[{character.upper()}{character.lower()}]"
    return re.escape(character)


_WORD_EXPRESSIONS: Final[dict[bool, Callable[[str], str]]] = {
    False: re.escape,
    True: _in_any_case,
}
"""How a word is written in an expression for Python, by whether the case is ignored."""

# Words after "Bearer" in messages about tokens, for example "Bearer authentication required".
_NOT_BEARER: Final = (
    "(?:tokens?|auth|authentication|authorization|scheme|realm|errors?|headers?|credentials?|format|required"
    "|missing)"
)
_ACCESS_KEY: Final = "(?:AKIA|ASIA)[A-Z0-9]{16}"
_SECRET_KEY: Final = (
    "(?<![A-Za-z0-9/+])(?![0-9a-f]{40})(?P<secret>[A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])"  # noqa: S105 - an expression
)
_HOOK: Final = "[Hh][Oo][Oo][Kk\u212a]"  # with the sign of kelvin, which is a k if the case is ignored
_OPTION_VALUE: Final = r"(?P<secret>[^\s\-\"'\\][^\s;|\"'\\]{0,200})"

PATTERNS: Final = (
    # A key in PEM: everything from "-----BEGIN …-----" to "-----END …-----". If a log truncated the key, the
    # rest of the text is masked (\Z).
    SecretPattern(
        "«-----BEGIN PRIVATE KEY----- MIIEvQ -----END PRIVATE KEY-----»",
        words=("-----BEGIN",),
        expression=re.compile(
            r"(?P<secret>-----BEGIN [A-Z0-9 ]{3,40}-----.*?(?:-----END [A-Z0-9 ]{3,40}-----|\Z))",
            re.DOTALL,
        ),
    ),
    # From left to right: "bearer" in any case; a space, "%20" or "+" (in a query); no word of messages, as
    # in "Bearer token missing" (`_NOT_BEARER`, then a character that cannot be in a token); the token.
    SecretPattern(
        "Authorization header Bearer «k3J9x0Q2v7B1m5»",
        words=("bearer",),
        expression=re.compile(
            rf"(?i:bearer)(?:[ \t\xa0]{{1,9}}|%20|\+)(?!(?i:{_NOT_BEARER})(?![\w~+/=\-]))"
            r"(?P<secret>[\w.~+/=:\-]{6,})",
            re.ASCII,
        ),
        ignores_case=True,
    ),
    # The same for "Basic". After it, a word of small letters is prose: "a basic example". "YW5uOnMz" is no
    # such word, because it contains capitals and digits.
    SecretPattern(
        "sent Basic «YW5uOnMzY3IzdA==»",
        words=("basic",),
        expression=re.compile(
            r"(?i:basic)(?:[ \t\xa0]{1,9}|%20|\+)(?![A-Z]?[a-z]+(?![\w+/=\-]))(?P<secret>[\w+/=\-]{6,})",
            re.ASCII,
        ),
        ignores_case=True,
    ),
    # JSON web tokens. Signed ones have three parts: header.claims.signature. Encrypted ones have five:
    # header.key.iv.text.tag, and the key may be empty. Mapbox puts the kind of a token in front: "sk.eyJ…".
    #
    # In the example, the parts are eyJhbGciOiJI (with "eyJ", the base64 of '{"'), eyJzdWIiOiIx and c2ln. The
    # lookahead (?=[\w\-]*eyJ…) tests the first part, and [\w\-]++ takes it whole, without trying less.
    SecretPattern(
        "jwt «eyJhbGciOiJI.eyJzdWIiOiIx.c2ln»",
        words=("eyJ",),
        expression=re.compile(
            r"(?P<secret>(?<![\w\-])(?:sk\.)?(?=[\w\-]*eyJ[\w\-]{5})[\w\-]++\."
            r"(?:[\w\-]{5,}+\.[\w\-]*+|\.[\w\-]{5,}+\.[\w\-]{5,}+\.[\w\-]*+)"
            r"(?:\.[\w\-]{1,}+\.[\w\-]{1,}+)?)",
            re.ASCII,
        ),
    ),
    # Key ids of AWS: four letters for the kind of key, and 16 capitals or digits.
    SecretPattern(
        "key «AKIAIOSFODNN7EXAMPLE»",
        words=("AKIA", "ASIA", "ABIA", "ACCA"),
        quick="A[KSB]IA|ACCA",
        expression=re.compile(
            r"(?P<secret>(?<![A-Z0-9])(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}(?![A-Z0-9]))"
        ),
    ),
    # A secret key of AWS is 40 characters of base64, as many other strings are. It is masked only near a key
    # id: within 200 characters after it. In the example, the key id is AKIA…EXAMPLE, and ", " is skipped. The
    # lookahead (?!…{40}…) stops at the first 40 characters that can be a key. A commit id (40 hexadecimal
    # digits) is no key.
    SecretPattern(
        "AKIAIOSFODNN7EXAMPLE, «wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY»",
        words=("AKIA", "ASIA"),
        quick="",
        expression=re.compile(
            rf"(?<![A-Z0-9]){_ACCESS_KEY}(?![A-Za-z0-9/+])"
            rf"(?:(?![A-Za-z0-9/+]{{40}}(?![A-Za-z0-9/+=])).){{1,200}}?{_SECRET_KEY}",
            re.DOTALL,
        ),
    ),
    # The same with the key id after the secret key, as in the line "secret, key id" of a table.
    SecretPattern(
        "«wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY» of AKIAIOSFODNN7EXAMPLE",
        words=("AKIA", "ASIA"),
        quick="",
        expression=re.compile(
            rf"{_SECRET_KEY}(?=.{{1,200}}?(?<![A-Z0-9]){_ACCESS_KEY}(?![A-Z0-9]))",
            re.DOTALL,
        ),
    ),
    # SendGrid, in two parts
    SecretPattern(
        "«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»",
        words=("SG.",),
        expression=re.compile(
            r"(?<![A-Za-z0-9])(?P<secret>SG\.[\w\-]{16,64}+\.[\w\-]{16,}+)", re.ASCII
        ),
    ),
    # Airtable: "pat", 14 characters, a dot, 64 hexadecimal digits (gitleaks: airtable-personnal-access-token)
    SecretPattern(
        f"«patAb3dEf6hIj9lMn.{'0123456789abcdef' * 4}»",
        words=("pat",),
        expression=re.compile(
            r"(?P<secret>pat[A-Za-z0-9]{14}\.[0-9a-f]{64}(?![A-Za-z0-9]))"
        ),
        quick=r"pat[0-9A-Za-z]{14}\.",
        close=r"(?-i:pat[0-9A-Za-z]{14}\.[0-9a-f])",
    ),
    # Terraform (gitleaks: hashicorp-tf-api-token)
    SecretPattern(
        "«p8dZ1kQ7wXv3Ab.atlasv1.9fKq2LwXz8Vt3Rb6»",
        words=(".atlasv1.",),
        expression=re.compile(
            r"(?P<secret>(?<![\w\-])[\w\-]{6,64}+\.atlasv1\.[\w\-=]{16,}+)", re.ASCII
        ),
    ),
    # client secrets of Azure (gitleaks: azure-ad-client-secret)
    SecretPattern(
        "«Zx18Q~9fKq2LwXz8Vt3Rb6Yp1Nc4Md7Gh0JsT5»",
        words=("Q~",),
        expression=re.compile(
            r"(?P<secret>(?<![\w.~\-])[\w.~]{3}[0-9]Q~[\w.~\-]{31,34}(?![\w~\-]))",
            re.ASCII,
        ),
        close="(?-i:[0-9]Q~)",
    ),
    # MaxMind, with the ending _mmk (gitleaks: maxmind-license-key)
    SecretPattern(
        "«aB3dE6_0123456789abcdefghijABCDEFGHI_mmk»",
        words=("_mmk",),
        quick="",
        expression=re.compile(
            r"(?P<secret>(?<![A-Za-z0-9])[A-Za-z0-9]{6}_[A-Za-z0-9]{29}_mmk(?![A-Za-z0-9]))"
        ),
    ),
    # New Relic, with the ending NRAL (docs.newrelic.com: license keys)
    SecretPattern(
        "«0123456789abcdef0123456789abcdef0123NRAL»",
        words=("NRAL",),
        expression=re.compile(
            r"(?P<secret>(?<![A-Za-z0-9])[0-9a-f]{32}[0-9A-Fa-f]{4}NRAL(?![A-Za-z0-9]))"
        ),
    ),
    # Braintree: the token is the end (truffleHog, gitrob: PayPal Braintree access token)
    SecretPattern(
        "access_token$production$k3j9x0q2v7b1m5k3$«0123456789abcdef0123456789abcdef»",
        words=("access_token$",),
        quick="",
        expression=re.compile(
            r"access_token\$[a-z]{1,20}\$[0-9a-z]{16}\$(?P<secret>[0-9a-f]{32})"
        ),
    ),
    # Salesforce: the id of an organization (00D…), "!", and the session (AQ…), which is masked
    # (salesforce.com: session ids)
    SecretPattern(
        "00DaB3dE6fG9hI2!«AQ0123456789abcdefghijABCDEFGHI0123456789»",
        words=("!AQ",),
        expression=re.compile(
            r"(?<![A-Za-z0-9])00D[A-Za-z0-9]{12,15}!(?P<secret>AQ[A-Za-z0-9._]{30,})"
        ),
    ),
    # Firebase Cloud Messaging (secrets-patterns-db: keys of servers)
    SecretPattern(
        "«AAAAaB3dE6_:APA91bF0123456789abcdefghijABCDEFGHIJ0123456789abcdefghijABCDEFGHIJ0123456789abcdefghijABCDEFGHIJ»",
        words=(":APA91b",),
        expression=re.compile(
            r"(?P<secret>[A-Za-z0-9_\-]{11,24}:APA91b[A-Za-z0-9_\-]{80,})"
        ),
    ),
    # Mailchimp, with the data center as an ending (gitleaks: mailchimp-api-key)
    SecretPattern(
        "«0123456789abcdef0123456789abcdef-us12»",
        words=("-us",),
        quick="",
        expression=re.compile(
            r"(?P<secret>(?<![A-Za-z0-9])[0-9a-f]{32}-us[0-9]{1,2}(?![A-Za-z0-9\-]))"
        ),
        close="(?-i:[0-9a-f]-us[0-9])",
    ),
    # Keys of PuTTY have no end mark: mask the lines of base64, and the check sum after them.
    SecretPattern(
        "Private-Lines: 2\n«AAAAgQC7\nq83v\nPrivate-MAC: 0a1b»",
        words=("Private-Lines:",),
        expression=re.compile(
            r"Private-Lines:[ \t]{0,4}[0-9]{1,4}[ \t]{0,4}\r?\n"
            # an atomic group: before Python 3.11.5, "++" keeps a part of the line that does not match
            r"(?P<secret>(?>(?:[A-Za-z0-9+/=]{1,256}(?:\r?\n|\Z))+)"
            r"(?:Private-(?:MAC|Hash):[ \t]{0,4}[0-9a-f]{1,128})?)"
        ),
    ),
    # Addresses that grant access: everything after "hooks.slack.com/services/" is the secret.
    SecretPattern(
        "https://hooks.slack.com/services/«T00/B00/XXXXXXXX»",
        words=("hooks.slack",),
        quick=_HOOK,
        expression=re.compile(
            r"(?i)hooks\.slack[a-z\-]{0,9}\.com/[a-z]{1,20}/(?P<secret>[^\s?#\"'<>\\]+)"
        ),
        ignores_case=True,
    ),
    # The secret follows the number of the webhook (Discord) or the kind of webhook (Office).
    SecretPattern(
        "https://chat.example/api/webhooks/12345/«k3J9x0Q2v7B1m5k3J9x0»",
        words=("webhook",),
        quick=_HOOK,
        close=r"/webhooks/|webhook\.",
        expression=re.compile(
            r"(?i)/webhooks/\d{1,30}/(?P<secret>[\w\-]{16,})"
            r"|webhook\.office\.com/[a-z0-9]{1,20}/(?P<other>[^\s?#\"'<>\\]+)"
        ),
        ignores_case=True,
    ),
    # Bots of Telegram, in an address or alone: the number of the bot, a colon, and a token. Alone, the token
    # must begin with "AA", because other text after a number and a colon could be anything.
    SecretPattern(
        "https://api.telegram.example/bot«123456789:AAF-k3J9x0Q2v7B1m5k3»/send",
        words=("/bot", ":AA"),
        expression=re.compile(
            r"/bot(?P<secret>\d{6,12}:[\w\-]{16,})"
            r"|(?<![\w.])(?:bot)?(?P<other>\d{6,12}:AA[\w\-]{18,64})(?![\w\-])",
            re.ASCII,
        ),
        quick="/bot|[0-9]:AA",
        close=r"(?-i:/bot|[0-9]:AA[\w\-]{18})",
    ),
    # Commands of SMTP and IMAP clients, as debugging logs show them. In the example, the base64 is
    # "\0ann\0s3cr3t". A word of small letters is prose: "AUTH PLAIN disabled".
    SecretPattern(
        "send: AUTH PLAIN «AGFubgBzM2NyM3Q=»",
        words=(
            "AUTH PLAIN",
            "AUTH LOGIN",
            "AUTH XOAUTH2",
            "AUTH OAUTHBEARER",
            "AUTHENTICATE ",
        ),
        expression=re.compile(
            r"AUTH(?:ENTICATE)?[ ](?:PLAIN|LOGIN|XOAUTH2|OAUTHBEARER)[ ]{1,9}(?![A-Za-z]?[a-z]+(?![\w+/=]))"
            r"(?P<secret>[A-Za-z0-9+/]{8,}={0,2})"
        ),
        quick="AUTH [PLXO]|AUTHENTICATE ",
        close="(?-i:AUTH(?:ENTICATE)? (?:PLAIN|LOGIN|XOAUTH2|OAUTHBEARER))",
    ),
    # User and password without a scheme, as JDBC and the MySQL driver for Go write them: user/password@host,
    # and user:password@tcp(host:port)
    SecretPattern(
        "jdbc:oracle:thin:«scott/tiger»@db.example:1521/x",
        words=(":thin:",),
        expression=re.compile(
            r"(?i):thin:(?P<secret>[^\s/@\"']{1,99}/[^\s@\"']{1,99})@"
        ),
        ignores_case=True,
    ),
    SecretPattern(
        "«app:s3cr3t»@tcp(127.0.0.1:3306)/orders",
        words=("@tcp(", "@unix("),
        expression=re.compile(
            r"(?<![\w.\-])(?P<secret>[\w.\-]{1,64}+:[^\s@\"']{1,99})@(?:tcp|unix)\("
        ),
    ),
    # User and password of commands and calls. After -u, the user ends at the first colon.
    SecretPattern(
        "curl -u ann:«s3cr3t» https://app.example/",
        words=("curl",),
        expression=re.compile(
            r"(?i)(?<![\w\-])(?:-u|--(?:proxy-)?user)[ \t=]{0,4}[\"']?[^\s:\"']{1,64}:"
            r"(?P<secret>[^\s\"'\\]{1,200})"
        ),
        ignores_case=True,
        quick="",
        # the option, because the word may be in other letters, as all words
        close=rf"(?:^|[^\w\-]|{ESCAPED})(?:-u|--(?:proxy-)?user)[ \t=]*[\"']?[^\s:\"']+:",
    ),
    # The commands of MySQL accept -pPASSWORD without a space. Up to nine other options may come first.
    SecretPattern(
        "mysqldump -u ann -p«s3cr3t» orders",
        words=("mysql", "mariadb"),
        expression=re.compile(
            rf"(?i)(?:mysql|mariadb)[\w\-]{{0,9}}(?:[ ][^\s|;]{{1,80}}){{0,9}}?[ ]-p{_OPTION_VALUE}"
        ),
        ignores_case=True,
        quick="",
        close=rf"(?:mysql|mar{ANY_I}adb).* -p",
    ),
    # Other commands accept a space after -p. Only "login" and "sshpass" are searched, because -p has another
    # meaning elsewhere: "mkdir -p folder"
    SecretPattern(
        "docker login -u ann -p «s3cr3t» registry.example",
        words=("sshpass", " login"),
        expression=re.compile(
            rf"(?i)(?:sshpass|[ ]login)(?:[ ][^\s|;]{{1,80}}){{0,9}}?[ ]-p[ ]?{_OPTION_VALUE}"
        ),
        ignores_case=True,
        quick="",
        close=rf"(?:sshpass| log{ANY_I}n).* -p",
    ),
    # A line of a .netrc file
    SecretPattern(
        "machine db.example login ann password «s3cr3t»",
        words=("login",),
        expression=re.compile(
            r"(?i)\blogin\s{1,9}\S{1,100}\s{1,9}password\s{1,9}(?P<secret>[^\s\"'\\<>&]{1,200})"
        ),
        ignores_case=True,
        quick="",
        close=rf"log{ANY_I}n{GAP}+[^\s]+{GAP}+password{GAP}",
    ),
    # A pair of user and password in Python, as requests and aiohttp.BasicAuth take it
    SecretPattern(
        "requests.get(url, auth=('ann', '«s3cr3t»'))",
        words=("auth",),
        expression=re.compile(
            r"(?i)(?:basic_?auth|\bauth[ ]?=[ ]?)\(\s{0,9}b?[\"'][^\"'\r\n]{0,100}[\"']\s{0,9},\s{0,9}"
            r"b?[\"'](?P<secret>[^\"'\r\n]{1,200})"
        ),
        ignores_case=True,
        quick=r"[Uu][Tt][Hh]\(",
        close=r"auth[ =]{0,3}\(",
    ),
)
"""The kinds of secrets that are recognised by their looks."""


_WORDS: Final = tuple(
    (word.lower(), index)
    for index, pattern in enumerate(PATTERNS)
    for word in pattern.words
)
"""The words of all patterns in lower case, each with the index of the pattern."""


def pattern_spans(text: str, lowered: str) -> Iterator[tuple[int, int]]:
    """Yield the spans that look like a secret by themselves.

    `lowered` is the text in plain letters and lower case.
    """
    # Method: search many short words first, and then the few patterns whose words occur. For example, "sent
    # Bearer k3J9x0Q2v7B1m5" contains one word of the table, "bearer". Only that pattern is searched, and it
    # finds the token after the word. Searching all patterns takes many times longer, and finds nothing else.
    likely = {index for word, index in _WORDS if word in lowered}
    for index in sorted(likely):
        yield from PATTERNS[index].spans(text)
    yield from token_spans(text)
