"""Where addresses and tokens come from, that endpoints are never mixed, and what is refused."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

import toolkit as tk
from toolkit.errors import SettingsError
from toolkit.secrets.redaction import Secret
from toolkit.service.settings import DIALECTS, make_service

QUEUE = {
    "TOOLKIT_QUEUE_URL": "https://queue.example",
    "TOOLKIT_QUEUE_TOKEN": "own-queue-token",
}
VECTOR = {
    "TOOLKIT_VECTOR_URL": "https://vector.example",
    "TOOLKIT_VECTOR_TOKEN": "own-vector-token",
}
PUBLIC_QUEUE = {"QSTASH_TOKEN": "public-queue-token"}
PUBLIC_VECTOR = {
    "UPSTASH_VECTOR_REST_URL": "https://index.upstash.example",
    "UPSTASH_VECTOR_REST_TOKEN": "public-vector-token",
}
ARGUMENTS = {"queue_url": "https://given.example", "queue_token": "given-queue-token"}
KEYS = ("sig_current_" + "a" * 32, "sig_next_" + "b" * 32)


def endpoint(found):
    """The fields of an endpoint that tests compare, with its token."""
    return found and (found.url, found.token.reveal(), found.dialect.name, found.source)


def test_arguments_configure_a_half():
    """Address and token from arguments; the other endpoint stays empty."""
    service = tk.connect(**ARGUMENTS, environ={})
    assert endpoint(service.queue) == (
        "https://given.example",
        "given-queue-token",
        "service",
        "arguments",
    )
    assert service.vector is None
    service = tk.connect(
        vector_url="https://v.example/", vector_token="given-vector-token", environ={}
    )
    assert service.queue is None
    assert service.vector.url == "https://v.example"


@pytest.mark.parametrize(
    ("environ", "queue", "vector"),
    [
        (
            QUEUE,
            (
                "https://queue.example",
                "own-queue-token",
                "service",
                "TOOLKIT_QUEUE_URL",
            ),
            None,
        ),
        (
            VECTOR,
            None,
            (
                "https://vector.example",
                "own-vector-token",
                "service",
                "TOOLKIT_VECTOR_URL",
            ),
        ),
        (
            PUBLIC_QUEUE,
            (
                "https://qstash.upstash.io",
                "public-queue-token",
                "upstash",
                "QSTASH_TOKEN",
            ),
            None,
        ),
        (
            PUBLIC_QUEUE | {"QSTASH_URL": "https://eu.example"},
            ("https://eu.example", "public-queue-token", "upstash", "QSTASH_URL"),
            None,
        ),
        (
            PUBLIC_VECTOR,
            None,
            (
                "https://index.upstash.example",
                "public-vector-token",
                "upstash",
                "UPSTASH_VECTOR_REST_URL",
            ),
        ),
        (
            QUEUE | PUBLIC_QUEUE | PUBLIC_VECTOR,
            (
                "https://queue.example",
                "own-queue-token",
                "service",
                "TOOLKIT_QUEUE_URL",
            ),
            (
                "https://index.upstash.example",
                "public-vector-token",
                "upstash",
                "UPSTASH_VECTOR_REST_URL",
            ),
        ),
    ],
)
def test_variables_configure_the_halves(environ, queue, vector):
    """Our own variables first, then the public service's; each endpoint with its own family's dialect."""
    service = tk.connect(environ=environ)
    assert (endpoint(service.queue), endpoint(service.vector)) == (queue, vector)


def test_the_process_environment_is_read_when_nothing_else_is_given(monkeypatch):
    """A user of the public service needs nothing but its usual variables."""
    for name, value in (PUBLIC_QUEUE | PUBLIC_VECTOR).items():
        monkeypatch.setenv(name, value)
    service = tk.connect()
    assert service.queue.token.reveal() == "public-queue-token"
    assert service.vector.token.reveal() == "public-vector-token"


def test_arguments_win_over_variables_half_by_half():
    """A queue in the arguments replaces the configured one; the vector endpoint is from the variables."""
    service = tk.connect(**ARGUMENTS, environ=QUEUE | VECTOR)
    assert endpoint(service.queue) == (
        "https://given.example",
        "given-queue-token",
        "service",
        "arguments",
    )
    assert endpoint(service.vector)[0] == "https://vector.example"


@pytest.mark.parametrize(
    ("options", "environ", "missing"),
    [
        ({"queue_url": "https://given.example"}, QUEUE, "queue_token"),
        ({"queue_token": "given-token"}, QUEUE, "queue_url"),
        ({"vector_url": "https://given.example"}, VECTOR, "vector_token"),
        (
            {"queue_url": "https://given.example", "queue_token": ""},
            QUEUE,
            "queue_token",
        ),
        (
            {},
            {"TOOLKIT_QUEUE_URL": "https://queue.example"} | PUBLIC_QUEUE,
            "TOOLKIT_QUEUE_TOKEN",
        ),
        (
            {},
            {"TOOLKIT_QUEUE_TOKEN": "own-queue-token"} | PUBLIC_QUEUE,
            "TOOLKIT_QUEUE_URL",
        ),
        ({}, {"QSTASH_URL": "https://eu.example"}, "QSTASH_TOKEN"),
        (
            {},
            {"UPSTASH_VECTOR_REST_TOKEN": "public-vector-token"},
            "UPSTASH_VECTOR_REST_URL",
        ),
        (
            {},
            {"UPSTASH_VECTOR_REST_URL": "https://v.example"}
            | VECTOR
            | {"TOOLKIT_VECTOR_URL": ""},
            "TOOLKIT_VECTOR_URL",
        ),
    ],
)
def test_half_a_pair_is_refused_and_never_completed_from_elsewhere(
    options, environ, missing
):
    """The error names what is missing, and no token."""
    with pytest.raises(SettingsError, match=missing) as caught:
        tk.connect(**options, environ=environ)
    tokens = {
        value
        for value in (*options.values(), *environ.values())
        if value.endswith("-token")
    }
    assert not [token for token in tokens if token in str(caught.value)]


@given(
    st.sets(
        st.sampled_from(
            sorted(QUEUE | VECTOR | PUBLIC_QUEUE | PUBLIC_VECTOR | {"QSTASH_URL": ""})
        )
    ),
    st.booleans(),
)
def test_a_token_is_only_ever_sent_to_its_own_address(names, given_queue):
    """For any variables, address and token of each endpoint are from one family, or there is an error."""
    everything = (
        QUEUE
        | VECTOR
        | PUBLIC_QUEUE
        | PUBLIC_VECTOR
        | {"QSTASH_URL": "https://eu.example"}
    )
    try:
        service = tk.connect(
            **(ARGUMENTS if given_queue else {}),
            environ={name: everything[name] for name in names},
        )
    except SettingsError:
        return
    pairs = {
        ("https://given.example", "given-queue-token"),
        ("https://queue.example", "own-queue-token"),
        ("https://vector.example", "own-vector-token"),
        ("https://qstash.upstash.io", "public-queue-token"),
        ("https://eu.example", "public-queue-token"),
        ("https://index.upstash.example", "public-vector-token"),
    }
    endpoints = [item for item in (service.queue, service.vector) if item]
    assert endpoints
    assert {endpoint(item)[:2] for item in endpoints} <= pairs


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"QSTASH_TOKEN": "", "TOOLKIT_QUEUE_URL": ""},
        {"TOOLKIT_REGION": "us-east-1"},
    ],
)
def test_nothing_configured_says_what_to_set(environ):
    """The error names the variables of both endpoints, the public service's and the embedded one's."""
    with pytest.raises(SettingsError) as caught:
        tk.connect(environ=environ)
    for name in (
        "TOOLKIT_QUEUE_URL",
        "QSTASH_TOKEN",
        "TOOLKIT_VECTOR_URL",
        "UPSTASH_VECTOR_REST_TOKEN",
        '"local"',
    ):
        assert name in str(caught.value)


def test_the_region_fills_the_address_template():
    """Default, variable and argument, in this order of strength; other regions are refused."""
    url = "https://queue-{region}.example"
    options = {"queue_url": url, "queue_token": "given-queue-token"}
    assert (
        tk.connect(**options, environ={}).queue.url
        == "https://queue-eu-central-1.example"
    )
    environ = {"TOOLKIT_REGION": "us-east-1"}
    assert (
        tk.connect(**options, environ=environ).queue.url
        == "https://queue-us-east-1.example"
    )
    assert tk.connect(
        **options, region="eu-central-1", environ=environ
    ).queue.url.endswith("eu-central-1.example")
    for wrong in ({"region": "mars"}, {"environ": {"TOOLKIT_REGION": "us-west-2"}}):
        with pytest.raises(SettingsError, match="eu-central-1"):
            tk.connect(**({"environ": {}} | options | wrong))


def test_the_dialect_is_the_sources_by_default():
    """TOOLKIT_DIALECT speaks for our own variables and arguments, the argument for everything."""
    environ = QUEUE | PUBLIC_VECTOR
    service = tk.connect(environ=environ | {"TOOLKIT_DIALECT": "upstash"})
    assert (service.queue.dialect.prefix, service.vector.dialect.name) == (
        "Upstash-",
        "upstash",
    )
    service = tk.connect(dialect="service", environ=environ)
    assert (service.queue.dialect, service.vector.dialect) == (
        DIALECTS["service"],
        DIALECTS["service"],
    )
    assert (
        tk.connect(
            **ARGUMENTS, environ={"TOOLKIT_DIALECT": "upstash"}
        ).queue.dialect.query_token
        == "qstash_token"
    )
    for wrong in (
        {"dialect": "klingon"},
        {"environ": QUEUE | {"TOOLKIT_DIALECT": "klingon"}},
    ):
        with pytest.raises(SettingsError, match="klingon"):
            tk.connect(**(ARGUMENTS | {"environ": {}} | wrong))


def test_signing_keys_are_from_the_source_of_the_queue():
    """From arguments with explicit addresses, from each family's variables, and never across."""
    given_keys = {"current_signing_key": KEYS[0], "next_signing_key": KEYS[1]}
    assert tk.connect(
        **ARGUMENTS, **given_keys, environ={}
    ).queue.signing_keys == tuple(map(Secret, KEYS))
    own = {
        "TOOLKIT_QUEUE_CURRENT_SIGNING_KEY": KEYS[0],
        "TOOLKIT_QUEUE_NEXT_SIGNING_KEY": KEYS[1],
    }
    public = {"QSTASH_CURRENT_SIGNING_KEY": KEYS[1], "QSTASH_NEXT_SIGNING_KEY": KEYS[0]}
    assert tk.connect(environ=QUEUE | own | public).queue.signing_keys == tuple(
        map(Secret, KEYS)
    )
    assert tk.connect(environ=PUBLIC_QUEUE | own | public).queue.signing_keys == tuple(
        map(Secret, KEYS[::-1])
    )
    assert tk.connect(environ=PUBLIC_QUEUE | own).queue.signing_keys == ()
    assert tk.connect(**ARGUMENTS, environ=own).queue.signing_keys == ()
    with pytest.raises(SettingsError, match="queue_url"):
        tk.connect(**given_keys, environ=QUEUE)


@pytest.mark.parametrize(
    "key", ["", "short", "x" * 31, "x" * 40 + "\n", "x" * 40 + "\udc80", "ü" * 40]
)
def test_signing_keys_that_could_be_guessed_or_sent_wrong_are_refused(key):
    """Empty, short, or with white space; the key is not in the error."""
    with pytest.raises(SettingsError, match="signing key") as caught:
        tk.connect(**ARGUMENTS, current_signing_key=key, environ={})
    assert not key or key not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "app.example",
        "ftp://app.example",
        "https://",
        "https://app.example:99999",
        "https://app.example:port",
        "https://[::1",
        "https://app example",
        "https://app.example\r\nX: y",
        "https://app.example\t",
        "https://app.example\\@other.example",
        "https://app.example/?key=canary-1f",
        "https://app.example/#canary-1f",
        "https://app.example?",
        "https://{place}.example",
        "https://ann:canary-1f@app.example",
        "https://canary-1f@app.example",
        "canary-1f-a-token-in-the-wrong-place",
    ],
)
def test_an_address_that_cannot_be_is_refused_without_repeating_secrets(url):
    """Only scheme, host, port and path; what might be a secret is masked."""
    if url.endswith("\t"):  # white space at the ends of a pasted address is forgiven
        assert (
            tk.connect(
                queue_url=url, queue_token="given-queue-token", environ={}
            ).queue.url
            == url.strip()
        )
        return
    with pytest.raises(SettingsError, match="workflow queue from arguments") as caught:
        tk.connect(queue_url=url, queue_token="given-queue-token", environ={})
    assert "canary-1f" not in str(caught.value)
    assert "given-queue-token" not in str(caught.value)


@pytest.mark.parametrize(
    "token", ["with space", "line-end\n", "tab\t", "ümlaut-token", "\udc80surrogate"]
)
def test_a_token_that_no_header_can_carry_is_refused_without_showing_it(token):
    """A line end from a file is the usual cause, and the error says so."""
    with pytest.raises(SettingsError, match="line end") as caught:
        tk.connect(queue_url="https://app.example", queue_token=token, environ={})
    assert token not in str(caught.value)
    assert token.strip() not in str(caught.value)


def test_http_to_another_machine_warns_where_connect_was_called():
    """Over http to another machine the token is sent in clear text; to this machine that is fine."""
    with pytest.warns(UserWarning, match="in clear text") as caught:
        tk.connect(
            queue_url="http://app.example", queue_token="given-queue-token", environ={}
        )
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for host in ("127.0.0.1:1", "localhost", "a.localhost", "[::1]:8080"):
            tk.connect(
                queue_url=f"http://{host}", queue_token="given-queue-token", environ={}
            )


def test_only_local_is_a_name_of_a_service():
    """Anything else as the positional argument is refused."""
    with pytest.raises(SettingsError, match="local"):
        tk.connect("production")
    with pytest.raises(SettingsError, match="token_in"):
        tk.connect(**ARGUMENTS, token_in="cookie", environ={})


def test_a_service_shows_no_token_in_any_way():
    """repr, str, vars, dataclass tools, pickle and equality: tokens and keys stay hidden."""
    service = tk.connect(
        **ARGUMENTS,
        current_signing_key=KEYS[0],
        vector_url="https://v.example",
        vector_token="given-vector-token",
    )
    shown = [
        service,
        vars(service),
        vars(service.queue),
        dataclasses.asdict(service),
        [service],
        str(service),
    ]
    text = "".join(map(repr, shown))
    for secret in ("given-queue-token", "given-vector-token", KEYS[0]):
        assert secret not in text
    assert (
        repr(service)
        == "Service(queue='https://given.example' from arguments, vector='https://v.example' from arguments)"
    )
    with pytest.raises(SettingsError, match="pickling"):
        pickle.dumps(service)
    assert copy.deepcopy(service) == service


def test_a_services_redactor_knows_all_its_own_secrets():
    """Both tokens and both keys are masked wherever they turn up."""
    service = tk.connect(
        **ARGUMENTS,
        current_signing_key=KEYS[0],
        next_signing_key=KEYS[1],
        vector_url="https://v.example",
        vector_token="given-vector-token",
    )
    for secret in ("given-queue-token", "given-vector-token", *KEYS):
        assert secret not in service.redactor.text(f"x {secret} y")


def test_a_missing_endpoint_says_what_to_set():
    """Asking for the endpoint that is not configured is a typed error."""
    service = tk.connect(**ARGUMENTS, environ={})
    assert service.need("queue") is service.queue
    with pytest.raises(SettingsError, match="TOOLKIT_VECTOR_URL"):
        service.need("vector")


def test_closing_ends_the_processes_it_started_and_no_others():
    """close() and the end of a with statement end the one thing that was started, if there is one."""
    ended = []
    with make_service(None, None, lambda: ended.append(1)) as service:
        assert ended == []
    service.close()
    assert ended == [1, 1]
    tk.connect(**ARGUMENTS, environ={}).close()
