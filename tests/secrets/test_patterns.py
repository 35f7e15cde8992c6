# ruff: noqa: E501 - samples stand as they came
"""What looks like a secret, in every spelling; and what does not, although it speaks of secrets."""

from __future__ import annotations

import html
import json
import re
import time
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from toolkit.base.own_tokens import DecodedText
from toolkit.secrets.hints import LIKELY, SUSPICIOUS, SUSPICIOUS_URL, is_suspicious
from toolkit.secrets.names import is_secret_name
from toolkit.secrets.patterns import PATTERNS, pattern_spans
from toolkit.secrets.redaction import Redactor
from toolkit.secrets.spans import decoded, text_spans
from toolkit.tables.masking import ColumnMasker, plain_escapes_read

CANARY = "Zq7canary9XtR4vLm2"
REDACT = Redactor(key=b"the key of these tests")
MASK = re.compile(r"\[masked len=\d+ tag=[0-9a-f]{8}\]")

SECRETS = {
    "letters and signs beyond ASCII": [
        "p\xe4ssword={}",
        "p\xe4ssword: {} and more",
        "S\uff45cret={}",
        "password\uff1a{}",
        "db_password\uff1d{} ok",
        "--p\xe4ssword {}",
        '{{"p\xe4ssword": "{}"}}',
    ],
    "schemes": [
        "Bearer {}",
        "sent Bearer {} to it",
        'Authorization: Digest username="ann", response="{}"',
        "GET / HTTP/1.1\r\nauthorization: {}\r\nHost: a.example",
        "Proxy-Authorization: Negotiate {}",
        "send: 'AUTH PLAIN {}=='",
        "AUTH LOGIN {}",
        "a1 AUTHENTICATE PLAIN {}=",
        "curl -H 'Authorization: Token {}' https://a.example/",
        "Authorization: AWS4-HMAC-SHA256 Credential=a/b, Signature={}",
    ],
    "cookies": [
        "Cookie: a=b; sid={}",
        "Set-Cookie: session={}; HttpOnly",
        "> cookie: {}",
    ],
    "header lines": [
        "X-Api-Key: {}",
        "x-vercel-protection-bypass: {}",
        '{{"X-Vercel-Protection-Bypass": "{}"}}',
        "  X-Vault-Token: {}",
        "* X-Deploy-Pat: {}",
        "X-Session-Ticket: {}",
    ],
    "user info": [
        "https:\\\\ann:{}@a.example\\x",
        "https:/ann:{}@a.example/x",
        "https:ann:{}@a.example/x",
        "https:\\/ann:{}@a.example/x",
        "//ann:{}@a.example/x",
        "amqp://ann:{}@a.example/x and more",
        "jdbc:oracle:thin:scott/{}@db.example:1521/x",
        "app:{}@tcp(127.0.0.1:3306)/orders",
    ],
    "addresses": [
        "0; url=/next?code={}",
        "0; url=?code={}",
        "see ?token={} here",
        "a.example?x={}",
        'href="?state=1&token={}"',
        "https://a.example/orders;jsessionid={};v=1/x",
        "https://a.example/reset-password/{}",
        "https://a.example/api/v1/tokens/{}/use",
        "https://a.example/verify/{}?x",
        "https://hooks.slack.com/services/T000/B000/{}",
        "https://discord.com/api/webhooks/123456/{}",
        "https://api.telegram.org/bot1234567:{}/sendMessage",
        "sent by bot1234567:AA{}x1 to it",
        "1234567:AA{}_x",
        "https://a.example/x%3Ftoken%3D{}",
    ],
    "well-known beginnings": [
        *(
            "ghp_{}",
            "gho_{}",
            "ghs_{}",
            "github_pat_{}",
            "glpat-{}",
            "xoxb-{}",
            "xoxp-1234-{}",
            "xapp-1-A0-{}",
        ),
        *(
            "sk_live_{}",
            "rk_live_{}",
            "sk_test_{}",
            "whsec_{}",
            "AIzaSyA123456789_{}",
            "ya29.{}",
            "GOCSPX-{}",
        ),
        *(
            "npm_0123456789ab{}",
            "pypi-{}",
            "SG.0123456789abcdef.{}",
            "hf_abc{}",
            "sk-ant-{}",
            "sk-proj-{}-x1",
        ),
        *(
            "glsa_{}_0a1b2c3d",
            "eyJhbGciOiJSU0EtT0FFUCJ9.0a1b2c3d4e.5f6a7b8c.9d0e1f2a.{}",
            "eyJhbGciOiJSU0EtT0FFUCJ9.0a1b2c3d4e.5f6a7b8c.{}.9d0e1f2a",
            "nghp_{}",
            "PuTTY-User-Key-File-3: ssh-ed25519\nPrivate-Lines: 2\nAAAAIQDx0a1b\n{}=\nPrivate-MAC: 0a1b2c3d",
            "figd_{}-x1",
            "ntn_abc{}",
            "eyJhbGciOiJkaXIifQ..0a1b2c3d.{}.tag",
            "sntrys_{}x1",
        ),
        *(
            "dckr_pat_{}",
            "hvs.{}",
            "lin_api_abc{}",
            "shpat_0123456789abcdef0123456789abcdef {}"[:38],
        ),
    ],
    "connection strings": [
        "Server=db;Database=x;User Id=sa;Password={};Encrypt=true",
        "Server=db;PWD={}",
        "Password=two words {};Server=db",
        "DefaultEndpointsProtocol=https;AccountName=a;AccountKey={};EndpointSuffix=x",
        "Endpoint=sb://x/;SharedAccessKeyName=Root;SharedAccessKey={}",
        "host=db port=5432 user=app password={} dbname=x",
        "host=db password='{}' user=app",
        'connect("dbname=x password={}")',
    ],
    "forms": [
        "grant_type=password&username=ann&password={}&scope=x",
        "password={}",
        "a=1&csrf_token={}",
        "user[password]={}&a=1",
        "grant_type=authorization_code&code={}&x=1",
        '--b\r\nContent-Disposition: form-data; name="password"\r\n\r\n{}\r\n--b--',
        '--b\r\nContent-Disposition: form-data; name="token"; x=y\r\nContent-Type: text/plain\r\n\r\n{}\r\n--b--',
        '<input type="hidden" name="csrf_token" value="{}">',
        '<input value="{}" name="password">',
        '<meta name="csrf-token" content="{}">',
    ],
    "settings": [
        "password: {}",
        "db:\n  password: correct horse {}\n  host: a",
        "DB_PASSWORD={}",
        "export API_KEY={}",
        'client_secret = "{}"',
        "api key: {}",
        "run --password {} --verbose",
        "run --api-key={}",
        "the session key={} was refused",
        "access_token => '{}'",
        "<password>{}</password>",
        "<soap:apiKey>{}</soap:apiKey>",
    ],
    "JSON that cannot be read": [
        '{{"password": "{}", ',
        '{{"a": 1, "apiKey":"x{}',
        '{{"credentials": {{"user": "ann", "value": "{}"}}, ',
        '{{"tokens": ["a", "{}"], ',
        "{{'password': '{}'}}",
        '[{{"name": "X-Api-Key", "value": "{}"}}, ',
        '{{"pin": 7{}',
    ],
    "lists of headers": [
        '["Host","a.example","X-Api-Key","{}","Accept","*/*"]',
        "[('X-Api-Key', '{}')]",
        "[(b'x-api-key', b'{}'), (b'host', b'a')]",
        "Authorization:\r\n Digest username=ann, response={}\r\nHost: a",
        "Cookie: a=b;\r\n\ts={}\r\nHost: a",
        "X-Api-Key:\r\n\t{}\r\nHost: a",
    ],
    "lists of pairs": [
        '[["authorization", "{}"], ["host", "a.example"]]',
        "[('cookie', '{}')]",
        '[["db_password","{}"]]',
    ],
    "names and values in lines of their own": [
        "- name: DB_PASSWORD\n  value: {}",
        '- name: DB_PASSWORD\n  value: "{} more"\n- name: MODE\n  value: "test"',
        "- value: {}\n  name: API_KEY",
        'set_sensitive {{\n  name = "db.password"\n  value = "{}"\n}}',
    ],
    "values as languages write them": [
        "{{'password': b'{}'}}",
        "{{u'password': u'{}'}}",
        "Credentials(user='ann', password=b'{}')",
        '["password"]=>\n  string(18) "{}"',
        's:8:"password";s:18:"{}";',
        "password: |\n  {}\nho: a",
        "password: >-\n  one\n  {}\nho: a",
        'password = """{}"""',
        "password = '''one\ntwo {}'''",
        'setPassword("{}")',
        "auth=('ann', '{}')",
        "HTTPBasicAuth('ann', '{}')",
        '"password" : \n\n  "{}"',
    ],
    "elements": [
        '<add key="password" value="{}"/>',
        "<password><![CDATA[{}]]></password>",
        "<entry><key>password</key><value>{}</value></entry>",
        "<entry><string>password</string><string>{}</string></entry>",
        "<Name>DB_PASSWORD</Name>\n<Value>{}</Value>",
    ],
    "commands": [
        "login -Password {}",
        "mysql -u root -p{} db",
        "curl -s -u ann:{} https://a.example/",
        "curl --user 'ann:{}' https://a.example/",
        "sshpass -p {} ssh a",
        "docker login -u ann -p {} registry.example",
        "machine db login ann password {}",
        "CREATE USER ann IDENTIFIED BY '{}'",
        "ALTER ROLE ann WITH PASSWORD '{}'",
        "ENV SECRET_KEY {}",
    ],
    "sentences": [
        "the password is {}",
        "wrong password '{}'",
        "using password {} for ann",
        "invalid token {}",
        "Incorrect API key provided: {}. You can find it",
        "token `{}` was not accepted",
        "secret -> {}",
    ],
    "access keys": [
        "AKIAIOSFODNN7EXAMPLE wJalrXUtnFEMI/K7MDENG/{}",
        '"id": "AKIAIOSFODNN7EXAMPLE",\n"other": "wJalrXUtnFEMI/K7MDENG/{}"',
        "wJalrXUtnFEMI/K7MDENG/{},AKIAIOSFODNN7EXAMPLE",
    ],
}


def _escaped(text: str, sign: str) -> str:
    return "".join(c if c.isalnum() else sign.format(ord(c)) for c in text)


SPELLINGS = {
    "plain": (str, str),
    "JSON": (json.dumps, json.loads),
    "JSON in JSON": (
        lambda text: json.dumps(json.dumps(text)),
        lambda text: json.loads(json.loads(text)),
    ),
    "JSON with escaped slashes": (
        lambda text: json.dumps(text).replace("/", "\\/"),
        json.loads,
    ),
    "JSON with every sign escaped": (
        lambda text: f'"{_escaped(text, chr(92) + "u{:04x}")}"',
        json.loads,
    ),
    "the first letters of names escaped, too": (
        lambda text: (
            '"'
            + re.sub(
                r"\b[A-Za-z](?=[a-z]{3})",
                lambda m: f"\\u{ord(m[0]):04X}",
                json.dumps(text)[1:-1],
            )
            + '"'
        ),
        json.loads,
    ),
    "HTML": (html.escape, html.unescape),
    "HTML with decimal references": (
        lambda text: _escaped(text, "&#{};"),
        html.unescape,
    ),
    "HTML with hexadecimal references": (
        lambda text: _escaped(text, "&#x{:X};"),
        html.unescape,
    ),
    "HTML in HTML": (
        lambda text: html.escape(_escaped(text, "&#{};")),
        lambda text: html.unescape(html.unescape(text)),
    ),
    "percent-encoded": (lambda text: quote(text, safe=""), unquote),
    "HTML in JSON": (
        lambda text: json.dumps(html.escape(text)),
        lambda text: html.unescape(json.loads(text)),
    ),
}
"""How a text can be written, and how it is read again."""

MATRIX = [
    pytest.param(text, *how, id=f"{kind}-{number}-{name}")
    for kind, texts in SECRETS.items()
    for number, text in enumerate(texts)
    for name, how in SPELLINGS.items()
]


def is_likely(text):
    """Whether the closer test lets a text through, as a column's masker asks it: with RE2."""
    read = plain_escapes_read(pa.array([text]))
    return pc.match_substring_regex(read, LIKELY)[0].as_py()


@pytest.mark.parametrize(("text", "write", "read"), MATRIX)
def test_a_secret_is_masked_in_every_spelling(text, write, read):
    """What is left can still be read as before, without the secret in it; and masking again changes nothing."""
    written = write(text.format(CANARY))
    masked = REDACT.text(written)
    assert MASK.search(masked)
    assert CANARY not in masked
    assert CANARY not in read(masked)
    assert REDACT.text(masked) == masked
    assert is_suspicious(written)
    assert is_likely(written)


def test_the_matrix_is_whole(capsys):
    """Every kind of secret in every spelling; the count is printed."""
    count = sum(map(len, SECRETS.values()))
    with capsys.disabled():
        print(  # noqa: T201
            f"\n{count} secrets of {len(SECRETS)} kinds in {len(SPELLINGS)} spellings: {len(MATRIX)} cases"
        )
    assert len(MATRIX) == count * len(SPELLINGS)


def test_equal_secrets_have_equal_masks_whatever_their_spelling():
    """The mask is of the secret as it is read, so that it can be compared."""
    plain = MASK.findall(REDACT.text("password=a/b/c/d&x=1"))
    assert MASK.findall(REDACT.text('{"password": "a\\/b\\/c\\/d", ')) == plain
    assert (
        MASK.findall(REDACT.text("<password>a&#47;b&#47;c&#47;d</password>")) == plain
    )


@pytest.mark.parametrize(
    "name",
    [
        *(
            "X-Deploy-Pat",
            "X-Session-Ticket",
            "Kerberos-Ticket",
            "X-MFA-Code",
            "X-Mfa",
            "X-Wallet-Seed-Phrase",
        ),
        *(
            "totp",
            "userPin",
            "mfaCode",
            "db.password",
            "connectionString",
            "code_verifier",
            "SAMLAssertion",
        ),
        *("x-sas", "sentry_dsn", "mnemonic", "refreshToken", "authorizer"),
    ],
)
def test_more_names_that_say_secret(name):
    """Of tickets, one-time codes, seeds and personal access tokens; also in camel case."""
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    [
        *(
            "pass/word",
            "pass:word",
            "user[password]",
            "  api key ",
            "OTPCode",
            "PINCode",
            "conn_str",
            "dbConnStr",
        ),
        *(
            "pw",
            "db_pw",
            "creds",
            "cloudCreds",
            "cred",
            "connectionStrings",
            "connectionstring1",
        ),
        *(
            "\uff50\uff41\uff53\uff53\uff57\uff4f\uff52\uff44",
            "S\uff45cret",
            "pa\u017f\u017fword",
            "p\xe4ssword",
        ),
        *(
            "pass\u200bword",
            "s\xadecret",
            "\u202esecret",
            "se\u0301cret",
            "\ufeffAPI_KEY",
            "to\u2060ken",
        ),
    ],
)
def test_names_in_any_spelling(name):
    """Words joined by any sign, abbreviated, with accents, in full-width letters, with invisible ones between."""
    assert is_secret_name(name)
    metadata = {
        "deep": [{name: {"user": "canary", "list": ["canary", 4711]}}],
        "env": {"name": name, "value": 4711},
    }
    shown = json.dumps(REDACT.value(metadata))
    assert "canary" not in shown
    assert "4711" not in shown


@pytest.mark.parametrize(
    "name",
    [
        *(
            "power",
            "spwn",
            "credit",
            "accredited",
            "sacred",
            "discredit",
            "conn_strategy",
            "connected",
            "string",
        ),
        *(
            "author",
            "authors",
            "co-author",
            "author_name",
            "authored",
            "authority",
            ":authority",
            "keyboard",
        ),
        *(
            "keywords",
            "monkey",
            "footprint",
            "max_tokens",
            "total_tokens",
            "prompt_tokens",
            "token_count",
        ),
        *(
            "tokenizer",
            "path",
            "pattern",
            "shipping",
            "spinner",
            "inside",
            "X-Ticket-Id",
            "random_seed",
        ),
        *(
            "KeyError",
            "TokenExpiredError",
            "AuthenticationFailure",
            "unauthorized",
            "seedling",
            "compatible",
        ),
    ],
)
def test_more_names_that_do_not(name):
    """They only hold the letters of a secret word, or count and name things."""
    assert not is_secret_name(name)


ORDINARY = [
    # errors of many languages and services
    "TypeError: Cannot read properties of undefined (reading 'token')",
    "SyntaxError: Unexpected token < in JSON at position 0",
    'SyntaxError: Unexpected token \'}\', "{"a":}" is not valid JSON',
    "KeyError: 'user_id'",
    "KeyError: 'session'",
    "pydantic.ValidationError: 1 validation error for Order\npassword\n  Field required [type=missing]",
    "password: must be at least 8 characters",
    "Password: is required",
    "password must not be empty",
    "token: expired",
    "the token: not found",
    "jwt expired",
    "Error: secret not found: payments/stripe",
    "invalid signature",
    "signature mismatch: expected 32 bytes, got 31",
    "Authentication failed: wrong user or password",
    "authorization: required",
    "Authorization header is missing",
    "missing cookie: session",
    "unauthorized: the access token of client 7902699be42c expired",
    "401 Unauthorized",
    "403 Forbidden: insufficient_scope",
    "a Bearer token is required",
    "Bearer authentication required",
    "Basic authentication is not supported",
    "Basic Validation failed",
    "AUTH PLAIN is not offered, auth login failed, AUTH XOAUTH2 unsupported",
    "from 1234567:AAB to 7654321:AAC",
    "at 12:30, fe80::aa00 and 00:11:aa:bb",
    'duplicate key value violates unique constraint "orders_pkey"\nDETAIL:  Key (id)=(5) already exists.',
    "ERROR 1062 (23000): Duplicate entry '17' for key 'orders.PRIMARY'",
    "violates foreign key constraint: orders_user_id_fkey",
    "cache key=user:17 is stale",
    "partition_key=eu-west-1",
    "sort key: 2026-01-02T10:00:00Z",
    "flow control key: tenant-17",
    "session: closed",
    "Session 550e8400-e29b-41d4-a716-446655440000 was closed",
    "primary key: id",
    "press any key: q",
    "CSRF verification failed. Request aborted.",
    "context deadline exceeded",
    "connect ECONNREFUSED 10.2.0.14:8443",
    "getaddrinfo ENOTFOUND db.internal",
    "ETIMEDOUT 127.0.0.1:5432",
    "HTTPSConnectionPool(host='a.example', port=443): Max retries exceeded with url: /orders/17",
    'java.lang.NullPointerException: Cannot invoke "Session.getToken()" because "session" is null',
    "Caused by: java.sql.SQLException: Access denied for user 'app'@'10.0.0.1' (using password: YES)",
    'FATAL: password authentication failed for user "app"',
    'role "app" does not exist',
    "NOAUTH Authentication required.",
    "WRONGPASS invalid username-password pair or user is disabled.",
    "429 Too Many Requests: rate limit of key ann exceeded",
    "max_tokens: 4096 is more than this model allows",
    "This model's maximum context length is 8192 tokens, however you requested 9000 tokens",
    "prompt_tokens=812, completion_tokens=77, total_tokens=889",
    "tokens: 812",
    "author: Ann Example",
    "authors=Ann, Bob",
    "keywords: retry, queue, backoff",
    "keyboard interrupt: stopped",
    "panic: runtime error: invalid memory address or nil pointer dereference\n[signal SIGSEGV: segmentation violation code=0x1 addr=0x0 pc=0x4a5]",
    "exit code=137",
    "error_code=500&retry=true",
    "AccessDenied: User is not authorized to perform: sts:AssumeRole",
    "NoSuchKey: The specified key does not exist.",
    "<Error><Code>NoSuchKey</Code><Key>photos/2026/x.jpg</Key></Error>",
    "InvalidAccessKeyId",
    "The provided token is malformed or otherwise invalid",
    "ExpiredToken: The security token included in the request is expired",
    "grpc: error while marshaling: string field contains invalid UTF-8",
    "assertion failed: left == right",
    "AssertionError: assert 3 == 4",
    "Pin 17 is not an output",
    "design: signed off",
    # names beside what is no value of theirs
    '{"required":["password","email"],"optional":["token","session_key"]}',
    "fields 'password', 'password_confirmation' differ",
    "expected one of ['x-api-key', 'authorization']",
    '[["password", "email"], ["token", "is required"], ["authorization", "host"]]',
    "- name: MODE\n  value: production",
    "- name: DB_PASSWORD\n  valueFrom:\n    secretKeyRef:\n      name: db",
    "token at index 17 of authenticationMiddlewareChain",
    "secret payments/stripe/live was not found",
    "the token 550e8400-e29b-41d4-a716-446655440000 has expired",
    "Unexpected token 'internal-server-error'",
    "password:\n  min_length: 8\n  max_length: 64",
    "authorization:\n- read\n- write",
    "Authorization: required\r\n   at System.Web.Http.Filter(Int32 n)\r\n   at Program.Main()",
    "password 'is too short'",
    'password "must hold a digit"',
    "curl: (7) Failed to connect to a.example port 443",
    "mysql -u root -p db",
    "the -key file.pem option",
    "getToken('user')",
    "<key>name</key><value>orders</value>",
    '<add key="mode" value="production"/>',
    "type=string, code=invalid",
    "We&#8217;ll be back soon &amp; thank you",
    "100% of 20%20 done",
    "C:\\Users\\ann\\new\\tokens.txt not found",
    "PWD=/home/app",
    # stack traces
    "Traceback (most recent call last):\n  File \"/srv/app/auth/session.py\", line 212, in get_token\n    raise KeyError(name)\nKeyError: 'name'",
    "Error: boom\n    at Session.refreshToken (/app/node_modules/@scope/auth/lib/session.js:10:5)\n    at file:///app/index.mjs:3:1",
    "\tat com.example.auth.TokenService.verify(TokenService.java:88)\n\tat java.base/java.lang.Thread.run(Thread.java:840)",
    "goroutine 1 [running]:\nmain.readSecret(...)\n\t/src/main.go:17 +0x1d",
    "app/models/session.rb:12:in `token': undefined method `key' for nil (NoMethodError)",
    "#0 /var/www/html/src/Auth.php(42): Auth->login('ann')",
    # URLs and paths
    "https://a.example/api/workflow/orders",
    "https://a.example:8443/oauth/authorize",
    "https://a.example/v1/sessions/list",
    "https://a.example/auth/realms-2024-production1/x",
    "https://a.example/keys/v2",
    "https://a.example/webhooks/stripe",
    "https://a.example/verify/email",
    "https://a.example/users/550e8400-e29b-41d4-a716-446655440000/orders",
    "https://a.example/runs/wfr_p1n4lXOv32gZuNhHoluZE",
    "https://registry.example/@scope/package/-/package-1.0.0.tgz",
    "see https://a.example/docs/tokens.html, please",
    "http://[::1]:8080/x@y",
    "git@github.com:org/repo.git",
    "mailto:ann@a.example",
    "/usr/lib/python3/site-packages/keyring/backend.py",
    "s3://bucket/prefix/part-0001.parquet",
    "what? a=b",
    # values of headers
    "application/json; charset=utf-8",
    "multipart/form-data; boundary=----WebKitFormBoundary",
    "text/html;q=0.9,*/*;q=0.8",
    "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko)",
    "Wed, 31 Dec 2025 23:58:49 GMT",
    "max-age=31536000; includeSubDomains",
    "default-src 'self'; script-src 'none'",
    "gzip, deflate, br",
    'W/"5d1c09ab"',
    "msg_p1n4lXOv32gZuNhHoluZE",
    "wfr_RYK19YXE8bNUBdk0Cu9aK",
    "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    "1; mode=block",
    "Content-Type, X-Request-Id",
    # JSON of ordinary errors
    '{"error":"TypeError","message":"x is undefined","stack":"TypeError: x\\n    at run (app.js:3:1)"}',
    '{"code":"invalid_token","message":"The token has expired","status":401}',
    '{"usage":{"prompt_tokens":12,"total_tokens":30},"author":"ann","keywords":["a","b"]}',
    '{"type":"https:\\/\\/a.example\\/problems\\/out-of-stock","title":"Out of stock"}',
    '{"detail":[{"loc":["body","password"],"msg":"Field required","type":"missing"}]}',
]


def test_ordinary_texts_stay_as_they_are(capsys):
    """Messages, traces, URLs and headers that speak of tokens and keys, and hold none; the count is printed."""
    touched = {
        text: REDACT.text(text) for text in ORDINARY if REDACT.text(text) != text
    }
    with capsys.disabled():
        print(f"\n{len(touched)} of {len(ORDINARY)} ordinary texts masked")  # noqa: T201
    assert touched == {}


HOSTILE = [
    *(
        "eyJ",
        "eyJaaaaa.",
        "eyJ-",
        "://",
        "://a:",
        "a1",
        "http://a:b",
        "https:a:",
        "https:\\a:",
        "//a:b",
        ":\\",
        "/?",
        "?a=",
    ),
    *(
        "-----BEGIN A-----",
        "Bearer ",
        "AKIA",
        "AKIAIOSFODNN7EXAMPLE ",
        "a" * 39 + " ",
        "A" * 40 + " ",
    ),
    *(
        "password",
        "password=",
        "password:",
        '"password":',
        '"password":{',
        "'password':'",
        'password="\\"',
        "a.b-c_",
    ),
    *(
        "token:[",
        '"a":{"token":"',
        "--password ",
        "--",
        "key=a;",
        "key=a,b=",
        "Cookie: ",
        "authorization:",
        "Cookie: 'x",
    ),
    *(
        "<password>",
        "<a ",
        'name="password"',
        'name=password value="',
        'value="a" ',
        'name="password"\r\n',
        "name=a\n\n--",
    ),
    *(
        '"name":"token","value":',
        '"name":"token",',
        "ghp_",
        "github_pat_",
        "sk-",
        "sk-a",
        "SG.",
        "xoxb-",
        "xapp-",
        "glpat-",
        "key-",
    ),
    *(
        "\\u0042",
        "\\",
        "&#66;",
        "&",
        "&amp;",
        "%41",
        "%",
        "\\\\u0042",
        "&amp;#66;",
        "[masked len=3 tag=00000000]",
        "[masked len=",
    ),
    *(
        "/webhooks/1/",
        "hooks.slack.com/",
        "/bot1",
        ":thin:a/",
        "a:b@tcp(",
        "a:b@",
        "/token/a1a1a1a1a1a1",
        ";a=",
        "\n",
        " ",
        "auth ",
    ),
    *(
        "password '",
        "token is ",
        "token: |\n a",
        "password:\n\n",
        "authorization: a\r\n b",
        '"token",',
        "'x-token','",
        '"token";s:1:"',
        'password="""',
        "<key>token</key><value>",
        "<![CDATA[",
        "curl -u a:",
        "mysql -p",
        "sshpass ",
        "login a password ",
        "auth=('",
        " -token ",
        "eyJaaaaa..aaaaa.",
    ),
]


@pytest.mark.parametrize("piece", HOSTILE)
def test_hostile_text_takes_time_in_proportion_to_its_length(piece):
    """Twice the length takes no more than three times as long; the square of the length would be four times.

    Other processes disturb single measurements: the least of up to ten of each length counts.
    """

    def taken(size: int) -> float:
        text = f"x://token {piece * (size // len(piece))}"
        start = time.process_time()
        REDACT.text(text)
        REDACT.url(text)
        return time.process_time() - start

    short, long = taken(20_000), taken(40_000)
    for _ in range(9):
        if long < 3 * short + 0.02:
            return
        short, long = min(short, taken(20_000)), min(long, taken(40_000))
    assert long < 3 * short + 0.02


PIECES = st.sampled_from(
    [*"aZ9 =:&?;@/\\\"'<>{}[]-_.%\n", "token", "password", "Bearer ", "https://", "key", "name=", "\\u0042", "&#58;", "%3A",
     "AKIAIOSFODNN7EXAMPLE", "ghp_abcdefghij0123456789", "Cookie: ", "--token ", "[masked len=3 tag=00000000]", "eyJhbGciOi.eyJhbGciOi."]
)  # fmt: skip


@given(st.lists(PIECES, max_size=14).map("".join))
def test_masking_twice_is_masking_once_for_mixtures(text):
    """Of names, signs, escapes, secrets and masks."""
    once = REDACT.text(text)
    assert REDACT.text(once) == once
    once = REDACT.url(text)
    assert REDACT.url(once) == once


PARTS_OF_URLS = st.sampled_from(
    [*"/?#;@:=' \"\n.\u0301\xe9", "https://", "x://", "//", "shop.example", "user", "/reset/", "/hooks/", "/bypass/", "?a=", ";a=",
     "token", "S\uff45cret", "k3J9x0Q2v7B1m5", "k3j9x0q2v7b1m5", "%2F", "\\/", '"name":"', '","value":"', '"field": "', '", "values": ["']
)  # fmt: skip


@given(
    st.one_of(st.lists(PIECES, max_size=10), st.lists(PARTS_OF_URLS, max_size=10))
    .map("".join)
    .filter(lambda text: not MASK.search(text))
)
@example("S\uff45cret=a1")
@example("--S\uff45cret a1")
@example("<p\xe4ssword>a1</p\xe4ssword>")
@example(r"password\':a1")
@example("https://token.example/k3J9x0Q2v7B1m5")
def test_the_quick_tests_miss_nothing_in_mixtures(text):
    """What they do not let through, the masker would not change."""
    view: DecodedText | None = DecodedText(text)
    assert is_suspicious(text) == bool(re.search(SUSPICIOUS, text))
    if not re.search(SUSPICIOUS, text):
        while view is not None:
            assert not text_spans(view.text)
            view = decoded(view)
    elif not is_likely(text):
        assert REDACT.text(text) == text
    if not re.search(SUSPICIOUS_URL, text):
        assert REDACT.url(text) == text


def test_everything_under_a_secret_name_is_masked():
    """Texts and numbers in lists and objects, however deep; names that look like secrets; the input stays."""
    given = {
        "credentials": {
            "user": "ann",
            "value": CANARY,
            "more": [{"pin": 1234}, [CANARY, 5.5, True, None]],
        },
        f"Bearer {CANARY}": 1,
        "headers": [
            {"name": "X-Api-Key", "value": CANARY},
            {"key": "cookie", "values": [CANARY]},
        ],
        "n": 17,
        "note": "plain",
    }
    before = json.dumps(given)
    masked = REDACT.value(given)
    written = json.dumps(masked)
    assert CANARY not in written
    assert "ann" not in written
    assert "1234" not in written
    assert "5.5" not in written
    assert masked["credentials"]["more"][1][2:] == [True, None]
    assert (masked["n"], masked["note"]) == (17, "plain")
    assert json.dumps(given) == before
    assert REDACT.value(masked) == masked


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.words[0])
def test_the_example_of_each_pattern_is_masked(pattern):
    """Exactly the part between the marks, by this pattern, and both quick tests let it through."""
    before, secret, after = re.split("[«»]", pattern.example)
    text = before + secret + after
    spans = [match.span(match.lastgroup) for match in pattern.expression.finditer(text)]
    assert spans == [(len(before), len(before) + len(secret))]
    assert spans[0] in set(pattern_spans(text, text.lower()))
    assert REDACT.text(text) != text
    assert is_suspicious(text)
    assert is_likely(text)


NAMES = [
    *(
        "connection_string",
        "Connection-String",
        "connectionString",
        "connection.string",
        "conn_str",
        "CONNSTR",
    ),
    *(
        "dbPin",
        "DBPin",
        "dbPIN",
        "PINCode",
        "pinCode",
        "DB_PIN",
        "X-2FA",
        "DBPw",
        "pw",
        "creds",
        "TOTP",
        "myotp",
    ),
    *(
        "authorization",
        "authorize",
        "auth_x",
        "keyed",
        "api-key",
        "sessid",
        "ticket",
        "x_assertion",
        "SAMLResponse",
    ),
]


@pytest.mark.parametrize("sign", ["={}", ": {}", '": "{}"', ">{}</a>"])
@pytest.mark.parametrize("name", NAMES)
def test_every_secret_name_passes_the_quick_tests(name, sign):
    """Whatever the words of a name are joined by, a column is masked as a single value is."""
    assert is_secret_name(name)
    text = name + sign.format(CANARY)
    assert is_suspicious(text)
    assert is_likely(text)


@given(
    st.from_regex(r"[A-Za-z0-9]{0,3}([_.\-]?[A-Za-z0-9]{1,9}){0,3}", fullmatch=True),
    st.sampled_from(NAMES),
)
@example("D", "authorize")
@example("Order", "auth")
@example("o", "auth")
@example("iz", "author")
@example("Errand", "key")
@example("er", "key")
@example("ErrorCode", "key")
def test_every_generated_secret_name_passes_the_closer_test(around, name):
    """A name with other words before or after it."""
    for longer in (
        f"{around}{name}",
        f"{name}{around}",
        f"{name}_{around}",
        f"{around}-{name}",
    ):
        if is_secret_name(longer):
            assert is_likely(f"{longer}={CANARY}"), longer


BETWEEN = [
    " ", ": ", " = ", " -> ", " \u2192 ", " is ", " was provided: ", "s sent (", "\\n", " \\u2192 ",
    " &#8594; ", " &#x2192 ", "%A0 ", "\\xa0 ", " [masked len=6 tag=1b2c3d4e] ", " \u0131s ",
    " \\u0131s ", " &#305;s ",
]  # fmt: skip


@pytest.mark.parametrize("between", BETWEEN)
@pytest.mark.parametrize("name", ["token", "API key", "private_key", "password"])
def test_a_value_after_signs_and_words_is_likely(name, between):
    """The closer test finds each secret of a sentence that the search finds."""
    text = f"the {name}{between}{CANARY}"
    assert MASK.search(REDACT.text(text).replace("[masked len=6 tag=1b2c3d4e]", ""))
    assert is_likely(text)


@pytest.mark.parametrize(
    "text",
    [
        "duplicate key value violates unique constraint 00000000000000000000000000000009",
        '{"message": "402 tokens, limit is 400", "request": "00000000000000000000000000000009"}',
        '{"message": "webhook signature for event inv_67203701", "code": "E104"}',
    ],
)
def test_an_id_far_from_a_name_is_not_searched_for_secrets(text):
    """Searching each body that mentions a key, tokens or a webhook would take longer than reading it."""
    assert is_suspicious(text)
    assert not is_likely(text)


OTHERS = [f"password={number}" for number in range(100)]
"""Values that are all searched closely: with so many, a column is not searched one by one."""

IN_COLUMNS = [
    # short names after an escaped line end or blank, or an invisible sign
    *(r'{"log": "started\npass: a1"}', r"started\r\npin=k3J9x0Q2v7B1m5", r"a\tcred=a1"),
    *(r"{\"log\": \"a\\npw: a1\"}", r"\u200bpw: a1", r"a\n--token a1", r"\n-pass a1"),
    # a file with passwords in several lines, with blanks of any kind, and a part that is masked
    *(
        "login ann\npassword a1",
        r"login ann\npassword a1",
        "login\xa0ann\x1cpassword a1",
    ),
    "login ann [masked len=6 tag=1b2c3d4e] password a1",
    *(r"login\\u3000ann password a1", r"LOGIN\\tann PASSWORD a1"),
    # letters and signs as numbers of HTML, and escapes of letters that stand for those of ASCII
    *(
        "pass&#65367ord=a1",
        "pas&#x17f;word=a1",
        "pass&#65309;a1",
        "Authorization&#65306 a1",
    ),
    *(r"passcod\u212f=a1", r"p\u00aass=a1", r'"Api-K\u212fy", "a1"', "p%AAssword=a1"),
    # an i that Python alone takes for an i, and words of patterns in other letters
    *("credent\u0130al k3J9x0Q2v7B1m5", r"s\u0131gn\u0131ng key k3J9x0Q2v7B1m5"),
    *(r"to\u212aen k3J9x0Q2v7B1m5", r"\u017fecret k3J9x0Q2v7B1m5"),
    *("jdbc:oracle:th\u0130n:scott/a1@h", "mar\u0130adb -pa1", " log\u0130n -pa1"),
    *("\xe7url -u ann:a1", "//h.example/ver\u0130fy/k3J9x0Q2v7B1m5"),
    # signs far from a name
    *("<pin x='1'>k3J9x0Q2v7B1m5</", '"pin"\xa0: "a1"', '"ORIGIN-VERIFY"\x1c, "a1"'),
    *(
        "name=auth; x\r\n\r\na1",
        r"name=auth\n\na1",
        "?t\xe9~=a1",
        "?code`]=SplxlOBeZQQYbYS6",
    ),
]


@pytest.mark.parametrize("text", IN_COLUMNS)
def test_a_long_column_is_masked_as_a_single_value_is(text):
    """What the search finds in a text alone, it also finds if the text is one of many."""
    alone = REDACT.text(text)
    assert alone != text
    masked = ColumnMasker(REDACT).texts(pa.array([text, *OTHERS]))
    assert masked[0].as_py() == alone


@pytest.mark.parametrize(
    "text",
    [
        *(
            '["session", "k3J9x0Q2v7B1m5"]',
            '["otp", "2"]',
            "('AUTHORIZATION', 's3cr3t!')",
        ),
        *("-cred a1", "(-pw a1)", "-\uff50w a1"),
        *('passphrase"cdefGHIJKLMnopqrstuvWXYZ', "token\u2192k3J9x0Q2v7B1m5"),
        *("ident\u0130fied by 'a1'", "credent\u0130al k3J9x0Q2v7B1m5"),
        "hoo\u212as.slack.com services at hoo\u212as.slack.com/services/T00",
    ],
)
def test_every_form_of_a_secret_is_searched(text):
    """Lists, options at the beginning and sentences have no other sign of a secret."""
    masked = REDACT.text(text)
    assert MASK.search(masked)
    assert is_suspicious(text)
    column = ColumnMasker(REDACT).texts(pa.array([text, *OTHERS]))
    assert column[0].as_py() == masked


@pytest.mark.parametrize(
    "url",
    [
        *("mysql -pa1", "docker login -pa1", "to\uff4ben/k3J9x0Q2v7B1m5"),
        *("ver\u0130fy/k3J9x0Q2v7B1m5", "\uff50w\uff1da1", "ident\u0130fied by 'a1'"),
    ],
)
@pytest.mark.parametrize("others", [0, 100])
def test_a_column_of_urls_is_masked_as_a_single_url_is(url, others):
    """In short columns and in long ones."""
    alone = REDACT.url(url)
    assert alone != url
    masked = ColumnMasker(REDACT).urls(pa.array([url, *OTHERS[:others]]))
    assert masked[0].as_py() == alone


@pytest.mark.parametrize("others", [0, 100])
@pytest.mark.parametrize(
    "value",
    [
        ["session", "k3J9x0Q2v7B1m5"],
        "pass\uff1da1",
        "credent\u0130al k3J9x0Q2v7B1m5",
        r"a\npass: a1",
    ],
)
def test_a_column_of_json_is_masked_as_a_single_value_is(value, others):
    """Values with letters beyond ASCII are bytes, and are read as UTF-8."""
    raws = [json.dumps(text, ensure_ascii=False).encode() for text in (value, *OTHERS)]
    column = pa.array(raws[: others + 1])
    masked = ColumnMasker(REDACT).objects({"a": column}, rows=len(column))
    assert json.loads(masked[0].as_py()) == {"a": REDACT.value(value)}
    assert REDACT.value(value) != value
