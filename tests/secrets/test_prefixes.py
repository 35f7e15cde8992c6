"""Tokens with a prefix of their own: each form of the table is masked, and ordinary text is not."""

from __future__ import annotations

import base64
import hashlib
import re
import string
import uuid
from random import Random

import pytest

from toolkit.secrets.hints import LIKELY, is_suspicious
from toolkit.secrets.prefixes import ALPHABETS, BLOCKS, TOKEN_FORMS, token_spans
from toolkit.secrets.redaction import Redactor

REDACT = Redactor(key=b"the key of these tests")
SEED = 41
VALUES = 20
LETTERS = {
    name: [
        character
        for character in string.printable
        if re.fullmatch(f"[{signs}]", character)
    ]
    for name, signs in ALPHABETS.items()
}
OTHER_FORMS = {
    "Airtable": "pat" + "aB3dE6f8H0jK2m" + "." + "9f8e7d6c" * 8,
    "Azure": "aB3" + "8Q~" + "x9Yz" * 8,
    "JWE": "eyJhbGciOiJSU0EtT0FFUCJ9." + ".".join(["0a1B2c3D4e5F"] * 4),
    "MaxMind": "aB3dE6_0123456789abcdefghijABCDEFGHI_mmk",
    "Mailchimp": "0123456789abcdef0123456789abcdef-us12",
    "SendGrid": "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",
    "Terraform": "p8dZ1kQ7wXv3Ab.atlasv1." + "9fB2" * 16,
    "Bedrock's beginning": "ABIA0123456789ABCDEF",
}


def values_of(prefix: str) -> list[str]:
    """Random tokens of a form; the last character is one that ends no sentence."""
    random = Random(f"{SEED}-{prefix}")
    form = TOKEN_FORMS[prefix]
    letters = LETTERS[form.alphabet]
    last = [letter for letter in letters if letter.isalnum()]
    bodies = (random.choices(letters, k=form.length - 1) for _ in range(VALUES))
    return [prefix + "".join(body) + random.choice(last) for body in bodies]


@pytest.mark.parametrize("prefix", TOKEN_FORMS)
def test_tokens_of_each_form_are_masked(prefix):
    """In text without a name next to them, quoted, and at both ends of a line; the quick tests see them."""
    for value in values_of(prefix):
        text = f"{value}\nrefused {value}, ({value})\n'{value}'"
        masked = REDACT.text(text)
        assert value not in masked
        assert masked.count("[masked len=") == 4
        assert f"len={len(value)} " in masked
        assert is_suspicious(value)
        assert re.search(LIKELY, value)


@pytest.mark.parametrize("name", OTHER_FORMS)
def test_tokens_without_a_prefix_of_the_table_are_masked(name):
    """Tokens that end alike, or consist of parts."""
    value = OTHER_FORMS[name]
    assert REDACT.text(f"refused {value}, again").count("[masked") == 1
    assert value[-12:] not in REDACT.text(f"refused {value}, again")


def test_a_token_behind_a_letter_is_masked():
    """As in text that lost a line end: ``nghp_…``. Short prefixes begin words only."""
    glued = [
        prefix for prefix in TOKEN_FORMS if prefix not in BLOCKS and len(prefix) > 4
    ]
    assert len(glued) > 120
    for prefix in glued:
        if prefix in {"p8e-", "v1.0-", "csk-", "sess-", "secret_"}:
            continue
        value = values_of(prefix)[0]
        assert value not in REDACT.text(f"n{value}"), prefix


def ordinary_lines(random: Random, count: int) -> list[str]:
    """Words, identifiers, hashes, ids and images as base64, none of which is a token."""
    words = [
        "task",
        "disk",
        "risk",
        "monkey",
        "config",
        "path",
        "pattern",
        "shop",
        "hub",
        "lab",
        "index",
        "user",
    ]
    words += [
        "session-list",
        "npm",
        "skin",
        "api",
        "glossary",
        "xo",
        "pull",
        "sql",
        "dapper",
        "ghost",
        "hugging",
    ]

    def name(sign: str) -> str:
        return sign.join(random.choices(words, k=random.randint(2, 7)))

    makers = [
        lambda: name("_"),
        lambda: name("-"),
        lambda: name("."),
        lambda: name("_").upper(),
        lambda: f"{name('-')}-{uuid.UUID(int=random.getrandbits(128), version=4)}",
        lambda: f"{random.choice(words)}-{random.getrandbits(128):032x}",
        lambda: f"{random.choice(words)}_{random.getrandbits(64)}",
        lambda: hashlib.sha1(random.randbytes(8), usedforsecurity=False).hexdigest(),
        lambda: f"sha256:{hashlib.sha256(random.randbytes(8)).hexdigest()}",
        lambda: (
            f"wfr_{''.join(random.choices(string.ascii_letters + string.digits, k=21))}"
        ),
        lambda: (
            f"2026-{random.randint(1, 12):02}-03T10:00:00.{random.randint(0, 999):03}Z"
        ),
        lambda: (
            f"data:image/png;base64,iVBORw0KGgo{base64.b64encode(random.randbytes(900) + bytes(99)).decode()}"
        ),
    ]
    return [makers[number % len(makers)]() for number in range(count)]


def test_ordinary_words_hashes_ids_and_images_are_no_tokens(capsys):
    """None of 10,000 generated lines is masked; the count is printed."""
    lines = ordinary_lines(Random(SEED), 10_000)
    alarms = [
        line[:80]
        for line in lines
        if any(token_spans(line)) or REDACT.text(line) != line
    ]
    with capsys.disabled():
        print(  # noqa: T201
            f"\n{len(TOKEN_FORMS)} forms; {len(alarms)} of {len(lines):,} ordinary lines masked"
        )
    assert alarms == []


def test_the_table_names_each_source_and_each_form_once():
    """No line repeats a prefix, and each alphabet is known."""
    assert len(TOKEN_FORMS) > 200
    for form in TOKEN_FORMS.values():
        assert form.alphabet in ALPHABETS
        assert ":" in form.source


@pytest.mark.parametrize(
    "piece",
    [
        "ghp_",
        "sk-",
        "glpat-",
        "dp.pt.",
        "SK",
        "EAAA",
        "pat",
        "xoxd-a",
        "A3-",
        "[['token','",
        "value:\n",
    ],
)
def test_hostile_text_is_searched_in_linear_time(piece):
    """A prefix repeated 20,000 times takes less than a second."""
    REDACT.text(f"token {piece * 20_000}")
