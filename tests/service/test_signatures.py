"""Signatures: what the service makes verifies, and nothing else does."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
import traceback
from datetime import UTC, datetime

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st

import toolkit as tk
from toolkit.errors import InputError, SettingsError, SignatureError
from toolkit.secrets.redaction import Secret
from toolkit.service.signatures import ReplayGuard, signature_in, verify_signature

CURRENT, NEXT, OTHER = (
    "sig_current_" + "a" * 32,
    "sig_next_" + "b" * 32,
    "sig_other_" + "c" * 32,
)
URL = "https://app.example/done"
BODY = b'{"status": 200, "body": "b2s="}'
NOW = 1_767_225_600


def encoded(part: bytes) -> str:
    return base64.urlsafe_b64encode(part).rstrip(b"=").decode()


def body_hash(body: bytes, *, padded: bool = True) -> str:
    result = base64.urlsafe_b64encode(hashlib.sha256(body).digest()).decode()
    return result if padded else result.rstrip("=")


def claims(**changed):
    """The service's claims; None removes one."""
    whole = {
        "iss": "Upstash",
        "sub": URL,
        "exp": NOW + 300,
        "nbf": NOW,
        "iat": NOW,
        "jti": "jwt_1",
        "body": body_hash(BODY),
    }
    return {
        name: value for name, value in (whole | changed).items() if value is not None
    }


def signed(
    payload, *, key: str = CURRENT, header: str = '{"alg": "HS256", "typ": "JWT"}'
) -> str:
    """A token written by hand, so that any malformed one can be signed."""
    content = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    start = f"{encoded(header.encode())}.{encoded(content)}"
    return f"{start}.{encoded(hmac.digest(key.encode(), start.encode(), 'sha256'))}"


def verify(signature, body: bytes = BODY, **options):
    return verify_signature(
        signature,
        body,
        **({"url": URL, "keys": [CURRENT, NEXT], "now": NOW + 1} | options),
    )


@pytest.mark.parametrize("key", [CURRENT, NEXT])
@pytest.mark.parametrize("padded", [True, False])
def test_either_key_verifies_and_padding_does_not_matter(key, padded):
    """The current and the next key verify, with the hash padded or not; the claims are returned."""
    token = jwt.encode(
        claims(body=body_hash(BODY, padded=padded)), key, algorithm="HS256"
    )
    assert verify(token)["jti"] == "jwt_1"
    assert verify(token, now=datetime.fromtimestamp(NOW, UTC))["sub"] == URL


def test_the_keys_of_the_region_that_signed_are_used():
    """A delivery that names its region verifies with that region's keys, and with no other's."""
    environ = {
        "QSTASH_TOKEN": "token-of-eu",
        "QSTASH_CURRENT_SIGNING_KEY": CURRENT,
        "US_EAST_1_QSTASH_CURRENT_SIGNING_KEY": OTHER,
        "US_EAST_1_QSTASH_NEXT_SIGNING_KEY": NEXT,
    }
    service = tk.connect(environ=environ)
    for key, region, fine in (
        (CURRENT, None, True),
        (OTHER, "US_EAST_1", True),
        (NEXT, "us-east-1", True),
        (OTHER, None, False),
        (CURRENT, "US_EAST_1", False),
        (CURRENT, "EU_CENTRAL_1", True),
        (OTHER, "EU_CENTRAL_1", False),
    ):
        if fine:
            assert (
                verify(signed(claims(), key=key), keys=service, region=region)["jti"]
                == "jwt_1"
            )
        else:
            with pytest.raises(SignatureError, match="none of"):
                verify(signed(claims(), key=key), keys=service, region=region)


def test_the_keys_of_a_service_are_used():
    """A service that knows its signing keys can be passed instead of them; one without says what to set."""
    options = {"queue_url": "http://127.0.0.1:1", "queue_token": "queue-token"}
    service = tk.connect(**options, current_signing_key=CURRENT, next_signing_key=NEXT)
    assert verify(signed(claims(), key=NEXT), keys=service)
    with pytest.raises(SettingsError, match="signing_key"):
        verify(signed(claims()), keys=tk.connect(**options))


@pytest.mark.parametrize(
    "header",
    [
        '{"alg": "none", "typ": "JWT"}',
        '{"alg": "None", "typ": "JWT"}',
        '{"alg": "HS512", "typ": "JWT"}',
        '{"alg": "RS256", "typ": "JWT"}',
        '{"alg": "HS256"}',
        '{"alg": "HS256", "typ": "at+jwt"}',
        '{"alg": "HS256", "typ": "JWT", "kid": "1"}',
        '{"alg": "HS256", "typ": "JWT", "jku": "https://evil.example/"}',
        '{"alg": "HS256", "typ": "JWT", "jwk": {"kty": "oct", "k": "AA"}}',
        '{"alg": "HS256", "typ": "JWT", "crit": ["exp"], "exp": 1}',
        '{"alg": "HS256", "typ": "JWT", "b64": false}',
        '{"alg": ["HS256"], "typ": "JWT"}',
        '["HS256", "JWT"]',
        "null",
        "[" * 3_000,
        '{"alg": "HS256", "typ": "JWT", "n": ' + "9" * 4_500 + "}",
    ],
)
def test_only_the_fixed_header_is_accepted(header):
    """Every other algorithm, type or extra parameter is refused, however well it is signed."""
    with pytest.raises(SignatureError, match="fixed kind"):
        verify(signed(claims(), header=header))


def test_a_token_without_a_signature_is_refused():
    """No algorithm with an empty signature, and a right header with an empty one."""
    for header in ({"alg": "none", "typ": "JWT"}, {"alg": "HS256", "typ": "JWT"}):
        parts = (json.dumps(header).encode(), json.dumps(claims()).encode())
        with pytest.raises(SignatureError):
            verify(".".join(map(encoded, parts)) + ".")


@pytest.mark.parametrize("name", ["iss", "sub", "exp", "nbf", "body"])
def test_every_required_claim_is_required(name):
    """A missing claim is named, and never a KeyError."""
    with pytest.raises(SignatureError, match=f"no claim {name}"):
        verify(signed(claims(**{name: None})))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"iss": "upstash"}, "another issuer"),
        ({"iss": 1}, "wrong type"),
        ({"sub": "https://app.example/done/"}, "another address"),
        ({"sub": "https://app.example/Done"}, "another address"),
        ({"sub": ["https://app.example/done"]}, "wrong type"),
        ({"body": body_hash(b"other")}, "another body"),
        ({"body": body_hash(BODY) + "="}, "another body"),
        ({"body": body_hash(BODY)[:-2]}, "another body"),
        ({"body": ""}, "another body"),
        ({"body": {}}, "wrong type"),
        ({"exp": str(NOW + 300)}, "not numbers"),
        ({"exp": True}, "not numbers"),
        ({"exp": -1}, "not numbers"),
        ({"exp": 10**400}, "not numbers"),
        ({"nbf": [NOW]}, "not numbers"),
        ({"iat": "now"}, "not numbers"),
        ({"nbf": NOW - 3_600, "iat": NOW}, "lifetime"),
        ({"nbf": NOW, "iat": NOW - 4_000}, "lifetime"),
        ({"exp": NOW + 3_601}, "lifetime"),
        ({"exp": NOW, "nbf": NOW}, "lifetime"),
        ({"exp": NOW - 100, "nbf": NOW - 200, "iat": NOW - 200}, "expired"),
        ({"nbf": NOW + 100, "iat": NOW + 100}, "valid in"),
        ({"iat": NOW + 100}, "valid in"),
    ],
)
def test_a_claim_that_is_not_right_is_refused_and_named(changed, said):
    """Type, value, lifetime and order of the claims are checked, each with its own sentence."""
    with pytest.raises(SignatureError, match=said):
        verify(signed(claims(**changed)))


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"[]",
        b"null",
        b"{",
        b"\xff",
        b"[" * 5_000,
        b'{"exp": NaN}',
        b'{"a": "\\ud800"}',
    ],
)
def test_claims_that_are_no_json_object_are_refused(payload):
    """Signed rubbish is still rubbish, and no traceback of a parser."""
    with pytest.raises(SignatureError):
        verify(signed(payload))


def test_the_longest_lifetime_is_one_hour():
    """One hour is accepted, a second more is not (above)."""
    assert verify(signed(claims(exp=NOW + 3_600)))


@pytest.mark.parametrize(
    ("now", "leeway", "fine"),
    [
        (NOW + 299, 0, True),
        (NOW + 300, 0, False),
        (NOW + 304, 5, True),
        (NOW + 305, 5, False),
        (NOW + 320, 30, True),
        (NOW - 5, 5, True),
        (NOW - 6, 5, False),
        (NOW - 1, 0, False),
    ],
)
def test_the_leeway_works_at_both_ends(now, leeway, fine):
    """Clocks may differ by the leeway, before the start and after the end, and by no more."""
    if fine:
        assert verify(signed(claims()), now=now, leeway=leeway)
    else:
        with pytest.raises(SignatureError):
            verify(signed(claims()), now=now, leeway=leeway)


@pytest.mark.parametrize(
    "keys",
    [[], [""], [CURRENT, ""], ["short"], [CURRENT, "x" * 31], [Secret("")], CURRENT],
)
def test_keys_that_could_be_guessed_are_refused(keys):
    """No key, an empty one, a short one, or text where a sequence is expected."""
    with pytest.raises(InputError):
        verify(signed(claims()), keys=keys)


@pytest.mark.parametrize(
    "options", [{"leeway": -1}, {"leeway": 301}, {"leeway": float("nan")}, {"url": ""}]
)
def test_options_that_cannot_be_are_refused(options):
    """A leeway without end would make expiry pointless; an empty address fits nothing."""
    with pytest.raises(InputError):
        verify(signed(claims()), **options)


def test_the_body_must_be_raw_bytes():
    """Text and parsed bodies are refused before anything is compared."""
    for body in (BODY.decode(), json.loads(BODY)):
        with pytest.raises(InputError, match="raw bytes"):
            verify(signed(claims()), body)
    assert verify(signed(claims()), bytearray(BODY))


def test_a_body_that_was_parsed_and_written_again_does_not_verify():
    """One space less is another body."""
    with pytest.raises(SignatureError, match="another body"):
        verify(
            signed(claims()),
            json.dumps(json.loads(BODY), separators=(",", ":")).encode(),
        )


@pytest.mark.parametrize(
    "signature",
    [
        "",
        "a",
        "a.b",
        "a.b.c.d",
        "é.é.é",
        "\ud800",
        None,
        b"a.b.c",
        "=.=.=",
        "a" * 8_193,
    ],
)
def test_an_invalid_token_is_refused(signature):
    """Any text, and no text, ends in a SignatureError."""
    with pytest.raises(SignatureError):
        verify(signature)


def test_a_token_that_is_too_long_is_refused_before_it_is_parsed():
    """A valid token of more than 8 KB is not looked at."""
    with pytest.raises(SignatureError, match="8192"):
        verify(signed(claims(more="x" * 8_000)))


def test_a_signature_is_accepted_once_with_a_guard():
    """The second time it is refused, also in the leeway after its end; without an id it always is."""
    guard = ReplayGuard()
    token = signed(claims())
    verify(token, seen=guard)
    for now in (NOW + 2, NOW + 303):
        with pytest.raises(SignatureError, match="used before"):
            verify(token, seen=guard, now=now)
    assert verify(signed(claims(jti="jwt_2")), seen=guard)
    for token_id in (None, "", 5):
        with pytest.raises(SignatureError, match="jti"):
            verify(signed(claims(jti=token_id)), seen=guard)


def test_a_signature_that_does_not_verify_does_not_use_up_its_id():
    """An attacker who knows an id cannot make the service's own delivery look like a replay."""
    guard = ReplayGuard()
    for token in (
        signed(claims(), key=OTHER),
        signed(claims(sub="https://other.example/")),
    ):
        with pytest.raises(SignatureError):
            verify(token, seen=guard)
    assert verify(signed(claims()), seen=guard)


def test_a_guard_forgets_what_has_expired():
    """It does not grow for ever."""
    guard = ReplayGuard()
    for number in range(1_000):
        assert guard.is_new(f"jwt_{number}", until=number + 10.0, now=float(number))
    assert len(guard) <= 12
    assert repr(guard) == f"ReplayGuard({len(guard)} remembered)"


def test_of_many_threads_with_one_signature_one_wins():
    """The guard judges and remembers in one step."""
    guard, start, won = ReplayGuard(), threading.Barrier(8), []

    def use() -> None:
        start.wait()
        won.append(guard.is_new("jwt_1", until=10.0, now=0.0))

    threads = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(won) == [False] * 7 + [True]


def test_neither_signature_nor_keys_are_in_an_error_or_its_causes():
    """A wrong key fails with nothing chained that could carry them, frames' variables included."""
    token = signed(claims(), key=OTHER)
    try:
        verify(token)
    except SignatureError as error:
        caught = error
    assert caught.__cause__ is None
    assert caught.__context__ is None
    shown = "".join(
        traceback.TracebackException.from_exception(
            caught, capture_locals=True
        ).format()
    )
    for secret in (CURRENT, NEXT):
        assert secret not in str(caught)
        # the test's own frame holds the keys as its arguments; those of the toolkit must not
        assert secret not in shown.partition("toolkit/service/signatures.py")[2]
    assert token not in str(caught)


def test_the_signature_is_found_under_each_name_and_only_when_there_is_one():
    """Names compare without case; two different signatures are none."""
    for name in ("Upstash-Signature", "service-signature", "SIGNATURE"):
        assert signature_in([("Accept", "*/*"), (name, "a.b.c")]) == "a.b.c"
    assert signature_in([("Upstash-Signature", "a"), ("Service-Signature", "a")]) == "a"
    assert (
        signature_in([("Upstash-Signature", "a"), ("Upstash-Signature", "b")]) is None
    )
    assert signature_in([("X-Hub-Signature", "a")]) is None


@given(st.data())
def test_any_changed_character_of_a_token_breaks_it(data):
    """Whatever is replaced in a valid token, it does not verify, and nothing but a SignatureError comes."""
    token = signed(claims())
    index = data.draw(st.integers(0, len(token) - 1))
    character = data.draw(
        st.characters(codec="ascii").filter(lambda found: found != token[index])
    )
    with pytest.raises(SignatureError):
        verify(token[:index] + character + token[index + 1 :])


@given(st.text(max_size=300))
def test_any_other_text_than_a_token_is_a_signature_error(text):
    """The parser never leaks another exception."""
    with pytest.raises(SignatureError):
        verify(text)


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_a_signature_fits_the_signed_body_and_no_other(body, other):
    """Bodies verify exactly when they are the signed bytes."""
    token = signed(claims(body=body_hash(body)))
    assert verify(token, body)
    if other != body:
        with pytest.raises(SignatureError):
            verify(token, other)
