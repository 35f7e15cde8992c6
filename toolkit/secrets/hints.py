r"""Make the quick tests that decide which values are searched for secrets at all.

Most values contain nothing to mask, and the search for secrets is slow. Two tests come first. If a value does
not match, it is left as it is:

- `SUSPICIOUS` for one value. Python tries every alternative at every character, so the alternatives are few,
  short, and match much: a sign such as ``=``, or the first letters of a word.
- `LIKELY` for columns. RE2 follows all alternatives at once, so they may be many and exact.

Both have to match if the search would find something. They are therefore made from the tables of the search:
the patterns (`patterns`), the prefixes (`prefixes`) and the words of secret names (`names`). Only the signs
between a name and a value are repeated here; `named_values` and `urls` have the full expressions.

For example, "step charge failed" matches neither test. "order_id: 17" matches `SUSPICIOUS`, because ``: ``
can follow a secret name, but not `LIKELY`, because "order_id" is no secret name. "api_key: 17" matches both,
so you see a mask if the search finds a secret in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import chain
from typing import Final

from toolkit.secrets.names import (
    ANY_I,
    ESCAPED,
    GAP,
    NAME_IN_TEXT,
    PARTS_IN_TEXT,
    STATED_NAME,
    STATING_WORDS,
    WHOLE_WORDS_IN_TEXT,
)
from toolkit.secrets.patterns import PATTERNS
from toolkit.secrets.prefixes import BLOCKS, LIKELY_TOKENS, SUSPICIOUS_TOKENS
from toolkit.secrets.urls import GIVES_ACCESS


def _alternatives(expressions: Iterable[str]) -> str:
    """Return one expression for several; empty ones and repetitions are left out.

    >>> _alternatives(["a", "", "b", "a"])
    'a|b'
    """
    return "|".join(dict.fromkeys(filter(None, expressions)))


_ANY_WORD: Final = f"auth|key|{PARTS_IN_TEXT}|{WHOLE_WORDS_IN_TEXT}"
_ARROW: Final = "\u2192"
_FULL_WIDTH: Final = "\uff1d\uff1a"  # "=" and ":" in full width
# All characters that `\s` matches in Python, for a class: in RE2, it matches five of the 29.
_BLANKS: Final = (
    "\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
)
# Secrets that are named in a sentence, for example "invalid token k3J9x0Q2v7B1m5".
_STATED: Final = (
    rf"(?:passw|passphrase|passcode|pwd|secret|token|credent{ANY_I}al|jwt"
    rf"|(?:[a-z]|{ANY_I})[ _\-]?key)"
)
_IDENTIFIED_BY: Final = "identified by".replace("i", ANY_I)
_ACCESS: Final = GIVES_ACCESS.replace("i", ANY_I)

# Signs that end a prefix of tokens. As "error_" and "region_" are frequent, "r_" and "g_" are not enough: the
# prefixes that end so are "ghr_", "figdr_", "api_org_", "os_v2_org_" and "sig_" (but not "config_").
_PREFIX_ENDS: Final = ("[^gr]_", "[hd]r_", "rg_", r"\bsig_", r"\w-", "~")
_SIGNS: Final = (
    rf"[=?@\\&%{_FULL_WIDTH}]",  # settings, URLs, escapes
    *("//", "^/", "</"),
    r"-\S",  # options
    rf"[\"'][{_BLANKS}]*,",  # names in lists
    # a colon after a name or before a value, but not in times such as 10:00:00
    *(r"\D:", ": ", r"[0-9]:\D", "[A-Za-z_][0-9]{1,9}:"),
)
_URL_SIGNS: Final = (
    *(r"[?#@;%&=\\]", r"\D:[^/]", f":[{_BLANKS}]", r"-\S", "//.*//", "</"),
    r"[^\x00-\x7f]",
)


def _quick_tests(signs: Iterable[str]) -> tuple[str, ...]:
    """Return the signs, the prefixes of tokens, and the words of patterns that contain none of the signs.

    For example, ``eyJ`` of JSON web tokens is returned, but not ``-----BEGIN``, because ``--`` is a sign.
    """
    all_signs = (*signs, *_PREFIX_ENDS)
    matched = re.compile(_alternatives(all_signs))
    patterns = (pattern.quick_test(matched) for pattern in PATTERNS)

    return (*all_signs, *patterns, SUSPICIOUS_TOKENS)


SUSPICIOUS: Final = _alternatives(
    (
        *_quick_tests(_SIGNS),
        rf"(?i:{_STATED}[a-z]*[\"'`{_BLANKS},({_ARROW}]|{_IDENTIFIED_BY})",
    )
)
"""A quick test (RE2 syntax): `Redactor.text` masks nothing if there is no match."""

SUSPICIOUS_URL: Final = _alternatives(
    (
        *_quick_tests(_URL_SIGNS),
        f"(?i:{_ANY_WORD}|{_ACCESS}|{_IDENTIFIED_BY})",
    )
)
"""A quick test (RE2 syntax): `Redactor.url` masks nothing if there is no match."""

# `SUSPICIOUS` tries some 60 alternatives at each character. If it matches, one of these is in the text,
# which Python finds many times faster.
_ANY_SIGN: Final = re.compile(
    # a quote only if a comma follows, as in a list
    rf"[=?@\\&%/<:~_\-.({_FULL_WIDTH}\"'](?:(?<![\"'])|(?<=[\"'])[{_BLANKS}]*,)"
)
_WORDS_OF_PATTERNS: Final = chain.from_iterable(
    pattern.words for pattern in PATTERNS if not pattern.ignores_case
)
_ANY_WORD_OF_TOKENS: Final = tuple(
    word for word in (*BLOCKS, *_WORDS_OF_PATTERNS) if not _ANY_SIGN.search(word)
)
_ANY_WORD_IN_LOWER_CASE: Final = (
    *(
        "passw",
        "passphrase",
        "passcode",
        "pwd",
        "secret",
        "token",
        "credential",
        "jwt",
        "key",
        "identified by",
    ),
    *(
        "bearer",
        "basic",
        "eyj",
        "akia",
        "asia",
        "abia",
        "acca",
        "hook",
        "auth",
        "uthorization",
        "ookie",
    ),
)
_SUSPICIOUS: Final = re.compile(SUSPICIOUS)


def is_suspicious(text: str) -> bool:
    """Return whether `SUSPICIOUS` matches.

    >>> is_suspicious("read ETIMEDOUT after 30 s"), is_suspicious("api_key: 17")
    (False, True)
    """
    # The cheapest test comes first. "read ETIMEDOUT after 30 s" has no sign and no word, so it ends here.
    # The words are ASCII; letters of other alphabets can stand for theirs.
    may_match = not text.isascii() or _ANY_SIGN.search(text) or _has_word(text)
    if not may_match:
        return False

    return _SUSPICIOUS.search(text) is not None


def _has_word(text: str) -> bool:
    """Return whether text without a sign contains a word that can be part of a secret."""
    words_in = map(text.lower().__contains__, _ANY_WORD_IN_LOWER_CASE)
    prefixes_in = map(text.__contains__, _ANY_WORD_OF_TOKENS)
    return any(chain(words_in, prefixes_in))


# Escapes of ASCII characters in JSON and URLs, all of HTML, and percent-encoded letters of other alphabets. A
# long s and the sign of kelvin are an s and a k if the case is ignored.
_ESCAPES: Final = (
    r"\\(?:u00[0-7][0-9a-f]|u017f|u212a|x[0-7][0-9a-f]|[/\"])"
    r"|&#(?:[0-9]|x[0-9a-f])"
    r"|&[a-z]{2,31};|%[0-7c-f][0-9a-f]"
)
# A letter that is not ASCII, or an escape of one. In JSON, only the letters that can stand for letters or
# digits of a name: with accents, small or raised, in circles, of full width.
_BEYOND_ASCII: Final = (
    r"(?:[^\x00-\x7f]|\\+(?:u(?:00[a-f]|01[0-9a-f]|02[0-3be]|1[de][0-9a-f]|20[789]|21[0-8]|24[6-9e]"
    r"|2c7|325|32b|a7f|fb0|ff[0-5])[0-9a-f]|x[89a-f][0-9a-f])|%[89ab][0-9a-f])"
)
# Parts of a URL that may be masked: user info, a query, a fragment, a parameter, a random segment.
_IN_URL: Final = (
    rf"//[^\s\"<>]*(?:[?#;@]|\[masked|{_BEYOND_ASCII}"
    rf"|(?:{_ANY_WORD}|{_ACCESS})[^\s]*/[\w+=\-.~%:]{{12}})"
)
# Signs between a name and a value, perhaps after a quote: "password": "x", <password>, password, "x".
_AFTER_NAME: Final = rf"(?:[\"'`\]]*{GAP}*[=:<>\r\n;\\{_FULL_WIDTH}]|[\"']{GAP}*,)"
# The rest of a name, or of a parameter of a URL, from the last letter beyond ASCII
_NAME_BEYOND_ASCII: Final = rf"{_BEYOND_ASCII}[\w.\-~%\[\]]*"

# Signs and words between a name and a value in a sentence (`_SENTENCE` in `named_values`).
_BETWEEN: Final = _alternatives(
    ("[^0-9A-Za-z]", GAP, STATING_WORDS.replace("i", ANY_I))
)
_IN_SENTENCE: Final = (
    rf"{STATED_NAME.replace('i', ANY_I)}(?:{_BETWEEN})*[^\s\"'`<>(){{}}\[\],;]{{12}}"
)

LIKELY: Final = (
    "(?i)"
    + _alternatives(
        (
            "^[/?]",  # a relative URL
            _IN_URL,
            r"(?:[/\\]\\|:[/\\]|(?:https?|wss?|ftp):)[^\s@]*@",  # user info after slashes that are wrong
            r"\\/",
            r"\?[\w.\-~%\[\]]+=",
            rf"(?:^|[?&])code[\"'`]?\]?{GAP}*[={_FULL_WIDTH}]",
            *(pattern.close_test() for pattern in PATTERNS),
            LIKELY_TOKENS,
            _ESCAPES,
            # options of commands, and XML elements, perhaps with attributes
            rf"(?:(?:^|[^\w.\-]|{ESCAPED})--?[\w.\-]*|<[^<>\s]*)(?:{_ANY_WORD}|{_BEYOND_ASCII})",
            f"(?:{NAME_IN_TEXT}|{_NAME_BEYOND_ASCII}){_AFTER_NAME}",
            # sentences, and SQL
            _IN_SENTENCE,
            rf"{_STATED}[a-z]*[ \t(]+[\"'`]",
            _IDENTIFIED_BY,
            # a field for the name, and another one for the value
            r"value[ \t]*[:=]",
            rf"\"(?:name|key|header|f{ANY_I}eld)\"[^\"]*\"[^\"]*\"[^\"]*\"value",
            "(?:name|value|content)=[\"']",
            # a name without quotes in a part of a form, and the empty line before the value
            r"name=(?s:.*)(?:\n|\\n)(?:\r|\\+r)?(?:\n|\\+n)",
        )
    )
)
"""A closer test, for RE2 alone (others may take long), of text with a match of `SUSPICIOUS`.

Escaped quotes and slashes have to be decoded before, except if they are nested deeply.
"""
