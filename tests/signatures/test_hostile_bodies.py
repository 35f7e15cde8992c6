"""Bodies that are cut, nested, doubled or huge: read without an exception, and in bounded time."""

from __future__ import annotations

import json
import time

import pytest

from tests.accuracy.service_bodies import FORMS
from toolkit.secrets.redaction import Redactor
from toolkit.signatures.details import read_details
from toolkit.signatures.document import LONGEST
from toolkit.signatures.headlines import error_text, mask_text
from toolkit.signatures.signing import error_signatures

BODIES = {form.name: next(iter(form.groups.values()))[0] for form in FORMS}
SECRET = "sk_live_51Habcdefghijklmnopqrstuv"  # a token by its prefix
SECONDS_PER_CHARACTER = 5e-5
"""A limit of several times what the slowest form takes, for machines under load."""


def read_all(body: str) -> str:
    """Read a body in all ways, and return what is shown of it."""
    line = error_text(body).text
    details = read_details(body)
    signature = error_signatures([body])[0]
    assert signature == error_signatures([body])[0]
    return "\n".join([line, mask_text(line), details.prose, *details.document.messages])


def variants(body: str) -> dict[str, str]:
    """Return a body in forms that no service sends on purpose."""
    encoded = body.encode("utf-8", "surrogatepass")
    nested = body
    for _ in range(4):
        nested = json.dumps({"error": {"body": nested}})
    return {
        "doubled": body + body,
        "nested in JSON": nested,
        "nested in a page": f"<html><body><pre>{body}</pre></body></html>",
        "as an event": f"event: error\ndata: {body}\n\n",
        "UTF-8 as Latin-1": encoded.decode("latin-1"),
        "UTF-16 as Latin-1": body.encode("utf-16", "surrogatepass").decode("latin-1"),
        "with zero bytes": "\x00".join(body),
        "in capitals": body.upper(),
        "half of a surrogate pair": body + "\ud800",
        "without line ends": body.replace("\n", " "),
        "with carriage returns": body.replace("\n", "\r"),
        "reversed": body[::-1],
    }


@pytest.mark.parametrize("name", BODIES)
def test_any_variant_is_read(name):
    """Each form is read in each variant, and gives one line that can be stored."""
    for variant, body in variants(BODIES[name]).items():
        line = error_text(body).text
        assert line, variant
        assert "\n" not in line, variant
        assert line.encode(), variant
        read_all(body)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", BODIES)
def test_cut_at_every_position(name):
    """A body that ends anywhere is read, whatever is left of it."""
    body = BODIES[name]
    for end in range(len(body)):
        assert error_text(body[:end]).text, end
        read_details(body[:end])
    assert len(error_signatures([body[:end] for end in range(len(body))])) == len(body)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", BODIES)
def test_no_secret_is_shown(name):
    """A token in the place of any word is masked in the line, also if it can be read after decoding only."""
    redactor = Redactor()
    body = BODIES[name]
    for word in sorted({word for word in body.split() if word.isalpha()})[:40]:
        hostile = body.replace(word, SECRET)
        shown = redactor.text(error_text(redactor.text(hostile)).text)
        assert SECRET not in shown, word


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", BODIES)
def test_time_per_character_is_bounded(name):
    """50,000 characters of a form, repeated as lines, members or words, take bounded time per character."""
    body = BODIES[name]
    count = 50_000 // len(body) + 1
    for long_body in (
        body * count,
        "\n".join([body] * count),
        json.dumps({"errors": [{"message": body}] * count}),
        json.dumps({"error": {"message": body * count}})[:50_000],
        "[" * (LONGEST // 2) + body,
        '{"a":' * 5_000 + json.dumps(body),
    ):
        begun = time.process_time()
        read_all(long_body)
        assert (
            time.process_time() - begun < SECONDS_PER_CHARACTER * len(long_body) + 0.5
        )
