"""What is secret, how it is masked, where the masking key lies, and the one HTML escaper."""

from __future__ import annotations

import base64
import copy
import html
import pickle
import re
import stat
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkit.base import own_tokens
from toolkit.errors import SettingsError, ToolkitError
from toolkit.secrets.hints import SUSPICIOUS, SUSPICIOUS_URL
from toolkit.secrets.masking_key import masking_key
from toolkit.secrets.names import is_secret_name
from toolkit.secrets.redaction import (
    Redactor,
    Secret,
    escape_attribute,
    escape_html,
    visible,
)
from toolkit.secrets.spans import text_spans

CANARY = "Zq7canary9XtR4vLm2"
KEY = b"the key of these tests"
REDACT = Redactor(key=KEY)
OWN = Redactor(key=KEY, own=[Secret(CANARY)])
MASK = re.compile(r"\[masked len=\d+ tag=[0-9a-f]{8}\]")


@pytest.mark.parametrize(
    "name",
    [
        "Authorization",
        "proxy-authorization",
        "X_AUTH_TOKEN",
        "X-Api-Key",
        "apikey",
        "Cookie",
        "Set-Cookie",
        "X-Session-Id",
        "X-CSRF-Token",
        "X-XSRF",
        "X-Secret",
        "password",
        "X-Passwd",
        "X-Pass",
        "X-Passcode",
        "PWD",
        "X-Credential",
        "Upstash-Signature",
        "X-Hub-Signature-256",
        "X-Shopify-Hmac-Sha256",
        "X-Sig",
        "X-JWT",
        "X-OTP",
        "X-Pin",
        "Connect-Sid",
        "X-Private-Data",
        "X-Bearer",
        "Upstash-Forward-Authorization",
        "Service-Failure-Callback-Forward-X-Api-Key",
        "X-Vercel-Protection-Bypass",
        "upstash-forward-x-vercel-protection-bypass",
        "CF-Access-Client-Secret",
        "X-Origin-Verify",
        "X-Honeycomb-Team",
        " authorization ",
    ],
)
def test_names_that_say_secret_are_secret(name):
    """In any case, with either separator, and behind a forwarding prefix."""
    assert is_secret_name(name)
    assert CANARY not in REDACT.header(name, CANARY)


@pytest.mark.parametrize(
    "name",
    [
        "Content-Type",
        "Accept",
        "Date",
        "User-Agent",
        "Upstash-Flow-Control-Key",
        "Idempotency-Key",
        "Author",
        ":authority",
        "X-Shipping",
        "X-Design",
        "X-Compass",
        "Retry-After",
        "X-Request-Id",
    ],
)
def test_other_names_are_not(name):
    """Also those that only contain the letters of a secret word."""
    assert not is_secret_name(name)
    assert REDACT.header(name, "plain value") == "plain value"


def test_a_mask_keeps_length_and_a_keyed_tag():
    """Equal values have equal masks under one key, others have others, and another key makes another tag."""
    assert REDACT.mask("abc") == REDACT.mask("abc") != REDACT.mask("abx")
    assert REDACT.mask("abc") != Redactor(key=b"other").mask("abc")
    assert REDACT.mask("abc").startswith("[masked len=3 tag=")
    assert REDACT.mask(REDACT.mask("abc")) == REDACT.mask("abc")
    assert MASK.fullmatch(REDACT.mask("\ud800 lone"))


@pytest.mark.parametrize(
    "text",
    [
        "Bearer {}",
        "authorization: bearer {}",
        "BEARER\t{}",
        "x=Bearer%20{}",
        "x=Bearer+{}",
        "_Bearer {}",
        "Basic {}",
        "basic  {}",
        "https://ann:{}@app.example/",
        "https://{}@app.example/",
        "_https://ann:{}@app.example/",
        "%20https://ann:{}@app.example/",
        "redis://:{}@127.0.0.1:6379/0",
        "postgresql+psycopg://ann:{}@db/x",
        "https://ann:{{}}{}@app.example/",
        "https://ann:p/{}@app.example/",
        "https://ann:p#{}@app.example/",
        "https://ann:a@{}@app.example/",
        "http://svc.example/v2/publish/https://ann:{}@app.example/",
        "see (https://app.example/a?token={}) for more",
        '{{"url": "https://app.example/a?x=1&key={}"}}',
        "https://app.example/a?{}",
        "https://app.example/a?{}==",
        "https://app.example/a?a=b;key={}",
        "https://app.example/a#access_token={}",
        "https://app.example/[x]?key={}",
        "https://[::1?key={}",
        "/login?next=/&token={}",
        "?token={}",
        "/callback#{}",
        "-----BEGIN RSA PRIVATE KEY-----\n{}\n-----END RSA PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\\n{}",
    ],
)
def test_values_that_look_like_secrets_are_masked_anywhere(text):
    """In a sentence, in JSON, in a URL in a URL: the value is gone, and masking again changes nothing."""
    filled = text.format(CANARY)
    masked = REDACT.text(filled)
    assert CANARY not in masked
    assert MASK.search(masked)
    assert REDACT.text(masked) == masked
    assert re.search(SUSPICIOUS, filled)


@pytest.mark.parametrize(
    "around", ["{}", "token_{}", "0{}", '"{}"', "Bearer%20{}", "/x/{}", "a.{}", "-{}-"]
)
def test_jwts_and_access_key_ids_are_masked_with_anything_around_them(around):
    """Letters, digits and underscores beside a token do not hide it."""
    token = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhIn0.c2lnbmF0dXJl"
    masked = REDACT.text(around.format(token))
    assert "c2lnbmF0dXJl" not in masked
    assert "eyJzdWIiOiJhIn0" not in masked
    unsigned = REDACT.text(around.format("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhIn0."))
    assert "eyJzdWIiOiJhIn0" not in unsigned


@pytest.mark.parametrize("around", ["{}", "id_{}", "x={}&", "a{}b"])
def test_access_key_ids_are_masked(around):
    """Twenty capitals and digits that start with AKIA or ASIA."""
    for start in ("AKIA", "ASIA"):
        assert f"{start}IOSFODNN7" not in REDACT.text(
            around.format(f"{start}IOSFODNN7EXAMPLE")
        )


@pytest.mark.parametrize(
    "text",
    [
        "a basic example",
        "Basic Validation failed",
        "http://127.0.0.1:8080/a",
        "https://app.example/a?b=&flag",
        "http://[::1]:8080/x@y",
        "https://app.example:8080/ann@example.com",
        "write to ann@app.example",
        "1.2.3 eyJ 4",
        "/usr/lib/python3",
        "MAKIAVELLI",
    ],
)
def test_ordinary_text_stays_as_it_is(text):
    """Words, addresses without secrets and mail addresses are not masked."""
    assert REDACT.text(text) == text


def test_a_url_keeps_what_is_needed_to_read_it():
    """Scheme, host, port, path and parameter names stay, letter by letter."""
    masked = REDACT.url(
        "HTTPS://ann:pw@App.example:8443/a/b;c?token=abc&empty=&x=1#frag"
    )
    shape = MASK.sub("*", masked)
    assert shape == "HTTPS://*@App.example:8443/a/b;c?token=*&empty=&x=*#*"


@pytest.mark.parametrize(
    "encode",
    [
        lambda token: token,
        lambda token: quote(token, safe=""),
        lambda token: token.encode().hex(),
        lambda token: token.encode().hex().upper(),
        lambda token: base64.b64encode(token.encode()).decode(),
        lambda token: base64.b64encode(b"a" + token.encode()).decode(),
        lambda token: base64.b64encode(b"ab" + token.encode() + b"c").decode(),
        lambda token: base64.urlsafe_b64encode(b"ab:" + token.encode() + b":").decode(),
    ],
)
@pytest.mark.parametrize("token", [CANARY, "sk/with+odd=signs?&>~", "?>?>?>?>?>?>"])
def test_our_own_token_is_masked_in_every_usual_encoding(token, encode):
    """Plain, percent-encoded, hex, and base64 at each of the three alignments."""
    redact = Redactor(key=KEY, own=[Secret(token)])
    written = encode(token)
    for masked in (
        redact.own(f"x {written} y"),
        redact.text(f"x {written} y"),
        redact.url(f"http://h/{written}"),
    ):
        assert written not in masked
        assert MASK.search(masked)
    # what is left of a base64 form beside the mask is less than two characters at either end
    left = MASK.sub("", redact.own(written))
    assert len(left) <= len(written) - len(token)
    assert own_tokens.is_in(f"ünder {written} y")


def test_a_token_is_known_for_as_long_as_somebody_holds_it():
    """Every redactor of the process masks it, and so does every error; afterwards it is plain text."""
    token = "a-token-that-comes-and-goes"
    assert REDACT.own(token) == token
    secret = Secret(token)
    again = Secret(token)
    assert REDACT.own(token) == REDACT.mask(token)
    assert token not in str(ToolkitError(f"reading {token}"))
    del secret
    assert REDACT.own(token) == REDACT.mask(token)
    del again
    assert REDACT.own(token) == token


def test_a_token_in_a_query_becomes_one_mask():
    """The mask of our own token is not masked again as a query value."""
    masked = OWN.text(f"http://h/a?queue_token={CANARY}&x=1 and {CANARY}")
    assert MASK.sub("*", masked) == "http://h/a?queue_token=*&x=* and *"
    assert masked.count(OWN.mask(CANARY)) == 2


def test_very_short_tokens_do_not_mask_ordinary_words():
    """A token of five letters or less is not looked for."""
    assert Redactor(key=KEY, own=[Secret("the")]).own("then") == "then"


def test_header_maps_are_masked_by_name_and_by_looks():
    """Secret names whole, other values only where they look like a secret; the input stays."""
    headers = {
        "Authorization": [CANARY, "b"],
        "Location": [f"/a?code={CANARY}"],
        "Accept": ["*/*"],
    }
    before = copy.deepcopy(headers)
    masked = REDACT.headers(headers)
    assert CANARY not in repr(masked)
    assert masked["Accept"] == ["*/*"]
    assert masked["Location"][0].startswith("/a?code=[masked")
    assert headers == before


def test_only_an_allow_list_of_headers_is_displayed():
    """In HTML and widgets, an unknown header shows a mask."""
    assert REDACT.displayed_header("Content_Type", "text/html") == "text/html"
    assert MASK.fullmatch(REDACT.displayed_header("X-Unheard-Of", "value"))
    assert CANARY not in REDACT.displayed_header("Server", f"Bearer {CANARY}")


@pytest.mark.slow
@pytest.mark.parametrize("text", [f"token {'.' * 16} x", f"API key: {':' * 12}"])
def test_signs_after_a_secret_word_are_no_secret(text: str) -> None:
    """A row of dots after a word such as "token" is left as it is, and nothing is raised."""
    assert REDACT.text(text) == text


def test_hostile_text_takes_no_longer_than_its_length():
    """Half a megabyte made to be slow for each pattern is done in well under ten seconds altogether."""
    start = time.process_time()
    for piece in (
        "eyJ",
        "eyJaaaaa.",
        "eyJ-",
        "://",
        "://a:",
        "a1",
        "http://a:b",
        "-----BEGIN A-----",
        "Bearer ",
        "AKIA",
        "/?",
    ):
        REDACT.text("x://" + piece * (500_000 // len(piece)))
    assert time.process_time() - start < 10


@given(
    st.text(max_size=30),
    st.sampled_from(["Bearer {}", "https://a:{}@h/", "https://h/?k={}", "?k={}", "{}"]),
    st.text(max_size=30),
)
def test_our_own_token_never_survives(before, form, after):
    """Whatever is around it, text, URL and header are without it; masking twice is masking once."""
    filled = f"{before}{form.format(CANARY)}{after}"
    for mask in (OWN.own, OWN.text, OWN.url, lambda text: OWN.header("X-Other", text)):
        masked = mask(filled)
        assert CANARY not in masked
        assert mask(masked) == masked


@given(st.text(alphabet="ab:/?#@=&.%[] -\n", max_size=60))
def test_masking_twice_is_masking_once(text):
    """For any mixture of what URLs are made of."""
    once = REDACT.text(text)
    assert REDACT.text(once) == once
    once = REDACT.url(text)
    assert REDACT.url(once) == once


@pytest.mark.parametrize(
    "text",
    [
        '?Cookie: "a=bcd',
        r"?%3de=\n",
        "?%3De= e",
        "?=r &quot;1=",
        "?=&quot;e=r ",
        '/#pass="c ',
        '/#password="two words',
        "?%3D[masked len=3 tag=0123abcd]e=\\n",
    ],
)
def test_a_mask_that_joins_two_parts_of_a_url_is_masked_as_one(text):
    """Where what was masked had ended or divided a URL, the text around its mask is searched again."""
    for mask in (REDACT.text, REDACT.url):
        once = mask(text)
        assert mask(once) == once


@given(
    st.from_regex(
        r"https://[a-z]{1,8}\.example(:\d{1,4})?(/[a-z0-9]{0,5}){0,3}", fullmatch=True
    )
)
def test_urls_without_secrets_are_not_changed(url):
    """Host, port and path are not touched, in text or alone."""
    assert REDACT.url(url) == REDACT.text(url) == url


@given(
    st.from_regex(r"[!-~]{3,30}", fullmatch=True).filter(
        lambda text: not MASK.search(text)
    )
)
def test_text_that_is_not_suspicious_is_not_changed(text):
    """The cheap test that decoders use misses nothing: without a match, the masker does nothing."""
    if not re.search(SUSPICIOUS, text):
        assert not text_spans(text)
    if not re.search(SUSPICIOUS_URL, text):
        assert REDACT.url(text) == text


def test_a_secret_shows_itself_nowhere():
    """Not by repr, str, format, in a list, by vars, pickle or copy."""
    secret = Secret(CANARY)
    shown = [
        repr(secret),
        str(secret),
        f"{secret}",
        f"{secret!s}",
        repr([secret]),
        repr({"a": secret}),
    ]
    assert CANARY not in "".join(shown)
    assert secret.reveal() == CANARY
    with pytest.raises(TypeError):
        vars(secret)
    with pytest.raises(TypeError):
        format(secret, ">30")
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(SettingsError, match="pickling a token"):
            pickle.dumps(secret, protocol)
    assert copy.copy(secret) is copy.deepcopy(secret) is secret


def test_secrets_compare_by_value():
    """Equal ones are equal and hash alike; a plain text is never one."""
    assert Secret("a" * 8) == Secret("a" * 8) != Secret("b" * 8)
    assert len({Secret("x"), Secret("x")}) == 1
    assert Secret("x") != "x"


def test_a_redactor_does_not_show_its_secrets():
    """It knows our tokens, so it has no vars, is not pickled, and its repr and copies say nothing."""
    assert CANARY not in repr(OWN)
    with pytest.raises(TypeError):
        vars(OWN)
    with pytest.raises(SettingsError, match="redactor"):
        pickle.dumps(OWN)
    assert copy.deepcopy([OWN])[0] is OWN


def test_the_masking_key_is_made_once_and_private(tmp_path: Path):
    """32 random bytes, mode 0600 in a folder 0700, the same the next time, others elsewhere."""
    folder = tmp_path / "a" / "config"
    key = masking_key(folder)
    assert len(key) == 32
    assert masking_key(folder) == key != masking_key(tmp_path / "b")
    assert [path.name for path in folder.iterdir()] == ["masking.key"]
    assert stat.S_IMODE((folder / "masking.key").stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_key_that_others_could_read_is_made_private(tmp_path: Path):
    """The mode is put right when the key is read."""
    masking_key(tmp_path)
    (tmp_path / "masking.key").chmod(0o644)
    masking_key(tmp_path)
    assert stat.S_IMODE((tmp_path / "masking.key").stat().st_mode) == 0o600


def test_a_link_in_place_of_the_key_is_refused(tmp_path: Path):
    """Neither a link to a file nor one that leads nowhere is followed, for reading or for writing."""
    (tmp_path / "elsewhere").write_bytes(b"x" * 32)
    for target in ("elsewhere", "nowhere"):
        folder = tmp_path / f"to-{target}"
        folder.mkdir()
        (folder / "masking.key").symlink_to(tmp_path / target)
        with pytest.raises(SettingsError, match=r"masking\.key"):
            masking_key(folder)
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("content", [b"", b"x" * 31, b"x" * 33])
def test_a_file_that_is_no_key_is_refused(tmp_path: Path, content: bytes):
    """A cut or foreign file is not used as a key, and not overwritten."""
    (tmp_path / "masking.key").write_bytes(content)
    with pytest.raises(SettingsError, match="32 bytes"):
        masking_key(tmp_path)
    assert (tmp_path / "masking.key").read_bytes() == content


def test_a_folder_that_cannot_be_made_is_a_typed_error(tmp_path: Path):
    """There is a file instead of the folder."""
    (tmp_path / "file").write_text("x")
    with pytest.raises(SettingsError, match="XDG_CONFIG_HOME"):
        masking_key(tmp_path / "file" / "config")


def test_the_default_key_lies_in_the_users_configuration(clean_environment: Path):
    """XDG_CONFIG_HOME decides where; a redactor without a key uses it."""
    mask = Redactor().mask("a")
    (found,) = clean_environment.rglob("masking.key")
    assert Redactor(key=found.read_bytes()).mask("a") == mask


@pytest.mark.slow
def test_processes_that_race_make_one_key(tmp_path: Path):
    """Eight processes start at once on an empty folder: all have the same key, and one file is there."""
    code = (
        "import sys, time; from pathlib import Path; from toolkit.secrets.masking_key import masking_key\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        "print(masking_key(Path(sys.argv[1])).hex())"
    )
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path / "config")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(8)
    ]
    for racer in racers:
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        racer.stdin.write("go\n")
        racer.stdin.flush()
    keys = {racer.communicate(timeout=60)[0].strip() for racer in racers}
    assert len(keys) == 1
    assert [path.name for path in (tmp_path / "config").iterdir()] == ["masking.key"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("Zürich 漢字 🙂", "Zürich 漢字 🙂"),
        ("a\n\tb", "a\n\tb"),
        ("a\rb", "a\\u000db"),
        ("\x00\x1b[31m", "\\u0000\\u001b[31m"),
        ("\u202egpj.exe", "\\u202egpj.exe"),
        ("\u2066x\u2069", "\\u2066x\\u2069"),
        ("\u200b\ufeff\u00ad", "\\u200b\\ufeff\\u00ad"),
        ("\u2028", "\\u2028"),
        ("\ud800", "\\ud800"),
        ("\U000e0041", "\\U000e0041"),
        ("👩\u200d💻", "👩\u200d💻"),
        ("a\u00a0b", "a\u00a0b"),
    ],
)
def test_invisible_characters_are_escaped(text, shown):
    """Controls, bidirectional overrides, zero widths and lone surrogates; scripts and emoji stay."""
    assert visible(text) == shown


def test_the_escaper_is_safe_in_content_and_in_both_kinds_of_quotes():
    """All five characters, and what is not text is made text first."""
    assert escape_attribute("<a b='c' d=\"e\">&amp;") == escape_html(
        "<a b='c' d=\"e\">&amp;"
    )
    assert (
        escape_html("<a b='c' d=\"e\">&amp;")
        == "&lt;a b=&#39;c&#39; d=&quot;e&quot;&gt;&amp;amp;"
    )
    assert escape_html(5) == "5"


@given(st.text())
def test_escaped_text_can_be_written_holds_no_markup_and_reads_back(text):
    """For any text: encodable, without the five characters bare, and a browser shows `visible(text)`."""
    escaped = escape_attribute(text)
    escaped.encode()
    assert not set("<>\"'") & set(escaped)
    assert html.unescape(escaped) == visible(text) or "\r" in text
    assert not [sign for sign in visible(text) if ord(sign) in range(0x202A, 0x202F)]


@given(st.text(st.sampled_from("$\\(<&a\x00")))
def test_signs_that_begin_maths_are_alone_in_their_elements(text):
    """In content, each dollar sign and backslash is an element's whole text; without those it is the same."""
    parts = re.split("<(?:/|)span>", escape_html(text))
    assert "".join(parts) == escape_attribute(text)
    assert all(part in "$\\" or not {"$", "\\"} & {*part} for part in parts)
    assert escape_html(text, inside="tspan") == escape_html(text).replace(
        "span>", "tspan>"
    )


def test_header_lists_of_json_are_masked_by_the_name_before():
    """As servers hand on raw headers: pairs, or names and values in turns; lists of names stay."""
    redact = Redactor(key=b"k")
    pairs = {
        "headers": [["Host", "a"], ["x-api-key", "plain words"]],
        "raw": ["X-Auth-Token", "b", "Host", "c"],
    }
    masked = redact.value(pairs)
    assert masked["headers"][0] == ["Host", "a"]
    assert masked["headers"][1] == ["x-api-key", redact.mask("plain words")]
    assert masked["raw"] == ["X-Auth-Token", redact.mask("b"), "Host", "c"]
    names = {
        "required": ["password", "email"],
        "allowed": ["x-api-key", "authorization", "x-csrf-token", "content-type"],
    }
    assert redact.value(names) == names


@pytest.mark.parametrize("form", ["digits", "file of digits", "file of bytes"])
def test_the_masking_key_can_be_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
):
    """Masks are equal in two homes that have the same key, and no key is made there."""
    key, path = bytes(range(32)), tmp_path / "secret"
    if form == "digits":
        monkeypatch.setenv("TOOLKIT_MASKING_KEY", key.hex())
    else:
        path.write_bytes(key if form == "file of bytes" else f"{key.hex()}\n".encode())
        monkeypatch.setenv("TOOLKIT_MASKING_KEY_FILE", str(path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    assert masking_key() == key
    assert Redactor().mask("hunter2-secret") == Redactor(key=key).mask("hunter2-secret")
    assert not (tmp_path / "config").exists()


@pytest.mark.parametrize(
    "given",
    [
        {"TOOLKIT_MASKING_KEY": "0123"},
        {"TOOLKIT_MASKING_KEY": "x" * 64},
        {"TOOLKIT_MASKING_KEY_FILE": "no-such-file"},
        {"TOOLKIT_MASKING_KEY": "ab" * 32, "TOOLKIT_MASKING_KEY_FILE": "no-such-file"},
    ],
)
def test_a_masking_key_that_is_none_is_refused(
    given: dict[str, str], monkeypatch: pytest.MonkeyPatch
):
    """A short key would let others test guesses; the error does not show it."""
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError) as caught:
        masking_key()
    assert not any(
        value in str(caught.value)
        for name, value in given.items()
        if name.endswith("KEY")
    )
