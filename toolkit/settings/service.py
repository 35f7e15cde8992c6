"""The values of `connect`: addresses, tokens and dialect of the service's endpoints."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Final, Literal, Self, get_args
from urllib.parse import urlsplit

from toolkit.arguments import instance
from toolkit.errors import SettingsError
from toolkit.redaction import Redactor, Secret

Region = Literal["us-east-1", "eu-central-1"]
DialectName = Literal["service", "upstash"]
TokenLocation = Literal["header", "query"]
EndpointName = Literal["queue", "vector"]

REGIONS: Final[tuple[Region, ...]] = get_args(Region)
DEFAULT_REGION: Final[Region] = "eu-central-1"
MIN_SIGNING_KEY: Final = 32
"""Characters of a signing key at least, for HS256 (RFC 7518, section 3.2)."""
PUBLIC_QUEUE_URL: Final = "https://qstash.upstash.io"
PUBLIC_REGION_URLS: Final[dict[Region, str]] = {
    region: f"https://qstash-{region}.upstash.io" for region in REGIONS
}
_REGION_OF_HOST: Final[dict[str | None, Region]] = {
    urlsplit(PUBLIC_QUEUE_URL).hostname: DEFAULT_REGION,
    **{urlsplit(url).hostname: region for region, url in PUBLIC_REGION_URLS.items()},
}


@dataclass(frozen=True)
class Dialect:
    """The names on the wire that depend on the vendor.

    Attributes
    ----------
    name : {"service", "upstash"}
    prefix : str
        Start of every publish header, such as ``Service-``.
    query_token : str
        Name of the query parameter that can carry the queue's token.

    Examples
    --------
    >>> from toolkit.settings import connect
    >>> connect(queue_url="http://127.0.0.1:8080", queue_token="t0ken-of-mine").queue.dialect.name
    'service'
    """

    name: DialectName
    prefix: str
    query_token: str


DIALECTS: Final[dict[DialectName, Dialect]] = {
    "service": Dialect("service", "Service-", "queue_token"),
    "upstash": Dialect("upstash", "Upstash-", "qstash_token"),
}


@dataclass(frozen=True)
class Endpoint:
    """Address, token and dialect of one endpoint of the service.

    Attributes
    ----------
    name : {"queue", "vector"}
    url : str
        Base address, without a slash at its end.
    token : Secret
    dialect : Dialect
    source : str
        Where it was configured ("arguments", "TOOLKIT_QUEUE_URL", …), for messages.
    token_in : {"header", "query"}
        Whether the token is sent in the ``Authorization`` header or the query string (queue only).
    signing_keys : tuple of Secret
        Current and next signing key of the queue, where known.
    regional_keys : tuple of (region, keys)
        Signing keys of each region, where known, as any region may deliver.

    Examples
    --------
    >>> from toolkit.settings import connect
    >>> service = connect(queue_url="http://127.0.0.1:8080", queue_token="t0ken-of-mine")
    >>> service.queue.url, service.queue.source, service.vector is None
    ('http://127.0.0.1:8080', 'arguments', True)
    """

    name: EndpointName
    url: str
    token: Secret
    dialect: Dialect
    source: str
    token_in: TokenLocation = "header"  # noqa: S105 - a location, not a password
    signing_keys: tuple[Secret, ...] = ()
    regional_keys: tuple[tuple[Region, tuple[Secret, ...]], ...] = ()

    @property
    def secrets(self) -> tuple[Secret, ...]:
        """The token and all signing keys."""
        return (self.token, *self.signing_keys, *(key for _, keys in self.regional_keys for key in keys))

    @property
    def region(self) -> Region | None:
        """The region of the public service at this host; None for any other."""
        return _REGION_OF_HOST.get((urlsplit(self.url).hostname or "").rstrip("."))

    def keys_of(self, region: str | None) -> tuple[Secret, ...]:
        """The signing keys of a delivery's region, where known, otherwise `signing_keys`."""
        named = (region or "").strip().lower().replace("_", "-")
        return next((keys for known, keys in self.regional_keys if known == named), self.signing_keys)


@dataclass(frozen=True)
class Service:
    """Addresses and tokens of the service. Made by `connect`; its repr shows no tokens.

    Attributes
    ----------
    queue, vector : Endpoint or None
        The endpoints that are configured.
    redactor : Redactor
        Masks secrets, also this service's own tokens.

    Examples
    --------
    >>> from toolkit.settings import connect
    >>> connect(queue_url="http://127.0.0.1:8080", queue_token="t0ken-of-mine")
    Service(queue='http://127.0.0.1:8080' from arguments)
    """

    queue: Endpoint | None
    vector: Endpoint | None
    redactor: Redactor = field(compare=False)
    _close: Callable[[], None] | None = field(default=None, compare=False, repr=False)

    def need(self, endpoint: EndpointName) -> Endpoint:
        """The endpoint, or a `SettingsError` that says what to set."""
        chosen = self.queue if endpoint == "queue" else self.vector
        if chosen is None:
            raise SettingsError(
                f"using the {TITLES[endpoint]}",
                got="a service that has only the other endpoint",
                expected=f"a {endpoint} address and token",
                next_step=WHAT_TO_SET[endpoint],
            )
        return chosen

    def close(self) -> None:
        """End the embedded service that `connect("local")` started."""
        if self._close is not None:
            self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        endpoints = [endpoint for endpoint in (self.queue, self.vector) if endpoint]
        shown = (
            f"{endpoint.name}={self.redactor.url(endpoint.url)!r} from {endpoint.source}"
            for endpoint in endpoints
        )
        return f"Service({', '.join(shown)})"


def endpoint_of(service: object, endpoint: EndpointName) -> Endpoint:
    """The endpoint of the argument `service`; raises `InputError` when that is no `Service`."""
    hint = "connect() returns a Service: load_failures(connect(), since='7d')."
    return instance("service", service, Service, "a Service", hint).need(endpoint)


TITLES: Final = {"queue": "workflow queue", "vector": "vector index"}
WHAT_TO_SET: Final = {
    "queue": (
        "Give queue_url= and queue_token=, or set TOOLKIT_QUEUE_URL and TOOLKIT_QUEUE_TOKEN, "
        "or QSTASH_TOKEN, or QSTASH_REGION and that region's QSTASH_TOKEN, such as US_EAST_1_QSTASH_TOKEN."
    ),
    "vector": (
        "Give vector_url= and vector_token=, or set TOOLKIT_VECTOR_URL and TOOLKIT_VECTOR_TOKEN, "
        "or UPSTASH_VECTOR_REST_URL and UPSTASH_VECTOR_REST_TOKEN."
    ),
}


def make_service(
    queue: Endpoint | None, vector: Endpoint | None, close: Callable[[], None] | None = None
) -> Service:
    """The `Service` of these endpoints, whose redactor knows their tokens and signing keys."""
    own = [secret for endpoint in (queue, vector) if endpoint for secret in endpoint.secrets]
    return Service(queue, vector, Redactor(own=own), close)


def local_service(
    address: str, token: str, index: str, keys: tuple[str, ...], close: Callable[[], None]
) -> Service:
    """The `Service` of an embedded service that listens at `address`, with the vector index named `index`."""
    secret, dialect = Secret(token), DIALECTS["service"]
    queue = Endpoint(
        "queue", address, secret, dialect, "local", signing_keys=tuple(Secret(key) for key in keys)
    )
    vector = Endpoint("vector", f"{address}/vector/{index}", secret, dialect, "local")
    return make_service(queue, vector, close)


def is_loopback(host: str) -> bool:
    """Whether a host is this machine itself."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
