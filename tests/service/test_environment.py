"""What the environment says about proxies and certificates, and what a server tries to leave behind."""

from __future__ import annotations

import datetime as dt
import ipaddress
import socket
import ssl
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from toolkit import errors
from toolkit.secrets.redaction import Redactor, Secret
from toolkit.service.responses import RetryPolicy
from toolkit.service.settings import DIALECTS, Endpoint
from toolkit.service.transport import Request, Transport

GET = Request(
    doing="reading a thing", method="GET", path="/thing", query=(("a", "b c"),)
)
ONCE = RetryPolicy(tries=1)
_VARIABLES = (
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
)


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch):
    """No proxy and no bundle but the test's own."""
    for name in _VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


def door(url: str, policy: RetryPolicy = ONCE) -> Transport:
    """A transport with a token of its own."""
    endpoint = Endpoint(
        "queue", url, Secret("the-token"), DIALECTS["service"], "arguments"
    )
    return Transport(
        url, redactor=Redactor(key=b"test"), endpoint=endpoint, policy=policy
    )


def test_a_proxy_receives_the_whole_address(server, monkeypatch):
    """Plain HTTP goes to the proxy with the whole address, the token and the proxy's own credentials."""
    proxy = server.url.replace("http://", "http://user:pass@")
    monkeypatch.setenv("http_proxy", proxy)
    server.always(b'"from the proxy"')
    with door("http://elsewhere.invalid/base") as away:
        assert away.send(GET).body == b'"from the proxy"'
        # known from the beginning, and not looked up again
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
        assert away.send(GET).body == b'"from the proxy"'
    requested = server.requests[0]
    assert (requested.path, requested.query) == ("/base/thing", [("a", "b c")])
    assert requested.headers["Host"] == "elsewhere.invalid"
    assert requested.headers["Authorization"] == "Bearer the-token"
    assert requested.headers["Proxy-Authorization"].startswith("Basic ")


def test_a_proxy_for_https_makes_a_tunnel_and_sees_no_token(monkeypatch):
    """The proxy is sent a CONNECT request with the host's name and none of our headers."""
    heard = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def refuse() -> None:
            peer, _ = listener.accept()
            with peer:
                heard.append(peer.recv(65536))
                peer.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")

        thread = threading.Thread(target=refuse)
        thread.start()
        monkeypatch.setenv(
            "https_proxy", f"http://127.0.0.1:{listener.getsockname()[1]}"
        )
        with (
            door("https://elsewhere.invalid") as away,
            pytest.raises(errors.TransportError, match="403"),
        ):
            away.send(GET)
        thread.join()
    assert heard[0].startswith(b"CONNECT elsewhere.invalid:443 ")
    assert b"token" not in heard[0]


def test_no_proxy_is_followed(server, monkeypatch):
    """A host in NO_PROXY is contacted directly, which fails here because it does not exist."""
    monkeypatch.setenv("http_proxy", server.url)
    monkeypatch.setenv("no_proxy", "elsewhere.invalid")
    with (
        door("http://elsewhere.invalid") as away,
        pytest.raises(errors.TransportError, match="resolve"),
    ):
        away.send(GET)
    assert server.requests == []


@pytest.mark.parametrize(
    ("name", "value"),
    [("http_proxy", "http://:80"), ("REQUESTS_CA_BUNDLE", "/nowhere/bundle.pem")],
)
def test_unusable_values_are_refused_at_once(monkeypatch, name, value):
    """A proxy or a bundle that cannot be used is an error before anything is sent."""
    monkeypatch.setenv(name, value)
    scheme = "http" if "proxy" in name else "https"
    with pytest.raises(
        errors.SettingsError, match="REQUESTS_CA_BUNDLE in the environment"
    ):
        door(f"{scheme}://elsewhere.invalid")


def test_an_own_authority_is_trusted_through_the_environment(tmp_path, monkeypatch):
    """An unknown certificate is refused without a retry, and accepted once the bundle has it."""
    authority = certificate(tmp_path)
    requested = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            requested.append(self.path)
            self.send_response_only(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: object) -> None:
            """Keep quiet."""

    class Quiet(HTTPServer):
        def handle_error(self, *_: object) -> None:
            """A refused handshake is what this is about."""

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority)
    http = Quiet(("127.0.0.1", 0), Handler)
    http.socket = context.wrap_socket(http.socket, server_side=True)
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    url = f"https://127.0.0.1:{http.server_address[1]}"
    try:
        with (
            door(url, RetryPolicy()) as stranger,
            pytest.raises(errors.ProtocolError, match="certificate"),
        ):
            stranger.send(GET)
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(authority))
        with door(url) as known:
            assert known.send(GET).body == b"{}"
    finally:
        http.shutdown()
        http.server_close()
        thread.join()
    assert requested == ["/thing?a=b%20c"]


def test_cookies_are_neither_kept_nor_sent(server):
    """What a server sets is not sent back to it."""
    server.always(b"{}", Set_Cookie="session=canary; Path=/")
    with door(server.url) as away:
        away.send(GET)
        away.send(GET)
    assert [requested.headers.get("Cookie") for requested in server.requests] == [
        None,
        None,
    ]


def certificate(folder):
    """A self-signed certificate for this machine, with its key, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(
            x509.SubjectAlternativeName(
                [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
            ),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )
    file = folder / "authority.pem"
    file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + made.public_bytes(serialization.Encoding.PEM)
    )
    return file
