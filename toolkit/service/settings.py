"""Represent a connection: the addresses, tokens and dialects of the two endpoints, queue and vector index."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import ip_address
from itertools import chain
from typing import Final, Literal, Self, get_args
from urllib.parse import urlsplit

from toolkit.base.arguments import instance
from toolkit.base.errors import LocalServiceError, SettingsError
from toolkit.secrets.redaction import Redactor, Secret

Region = Literal["us-east-1", "eu-central-1"]
DialectName = Literal["service", "upstash"]
TokenLocation = Literal["header", "query"]
EndpointName = Literal["queue", "vector"]
_Close = Callable[[], None]

REGIONS: Final[tuple[Region, ...]] = get_args(Region)
DEFAULT_REGION: Final[Region] = "eu-central-1"
PUBLIC_URL: Final = "https://qstash.upstash.io"
REGION_URLS: Final = {
    region: f"https://qstash-{region}.upstash.io" for region in REGIONS
}
_REGION_OF_HOST: Final = {
    urlsplit(url).hostname: region
    for region, url in ((DEFAULT_REGION, PUBLIC_URL), *REGION_URLS.items())
}


@dataclass(frozen=True)
class Dialect:
    """Names in requests that depend on the vendor.

    Attributes
    ----------
    name : {"service", "upstash"}
    prefix : str
        Start of every publish header, for example ``Service-``.
    query_token : str
        Name of the query parameter that can contain the token of the queue.

    Examples
    --------
    >>> from toolkit import connect
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
        Base address, without a slash at the end.
    token : Secret
    dialect : Dialect
    source : str
        Place where it was configured ("arguments", "TOOLKIT_QUEUE_URL", …), for messages.
    token_in : {"header", "query"}
        Part of the request that contains the token: the ``Authorization`` header or the query string (queue
        only).
    signing_keys : tuple of Secret
        Current and next signing key of the queue, if known.
    regional_keys : tuple of (region, keys)
        Signing keys of each region, if known, because any region may deliver.

    Examples
    --------
    >>> from toolkit import connect
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
        """Return the token and all signing keys."""
        regional = chain.from_iterable(keys for _, keys in self.regional_keys)
        return (self.token, *self.signing_keys, *regional)

    @property
    def region(self) -> Region | None:
        """Return the region of the public service at this host, or None for any other host."""
        return _REGION_OF_HOST.get((urlsplit(self.url).hostname or "").rstrip("."))

    def keys_of(self, region: str | None) -> tuple[Secret, ...]:
        """Return the signing keys of a region if they are known, otherwise `signing_keys`."""
        spelled = (region or "").strip().lower().replace("_", "-")
        keys_by_region: dict[str, tuple[Secret, ...]] = dict(self.regional_keys)
        return keys_by_region.get(spelled, self.signing_keys)


@dataclass(frozen=True)
class Service:
    """Addresses and tokens of the service, made by `connect`. The repr shows no tokens.

    Attributes
    ----------
    queue, vector : Endpoint or None
        The endpoints that are configured.
    redactor : Redactor
        Masks secrets, including the tokens of this service.

    Examples
    --------
    >>> from toolkit import connect
    >>> connect(queue_url="http://127.0.0.1:8080", queue_token="t0ken-of-mine")
    Service(queue='http://127.0.0.1:8080' from arguments)
    """

    queue: Endpoint | None
    vector: Endpoint | None
    redactor: Redactor = field(compare=False)
    _close: _Close | None = field(default=None, compare=False, repr=False)
    _closed: bool = field(default=False, init=False, compare=False, repr=False)

    def need(self, endpoint: EndpointName) -> Endpoint:
        """Return the endpoint. Raise `SettingsError` with the variables to set if it is not configured."""
        configured = self.queue if endpoint == "queue" else self.vector
        if configured is None:
            raise SettingsError(
                f"using the {TITLES[endpoint]}",
                got="a service that has only the other endpoint",
                expected=f"a {endpoint} address and token",
                next_step=WHAT_TO_SET[endpoint],
            )

        return configured

    def close(self) -> None:
        """End the embedded service that `connect("local")` started. Requests after this are errors."""
        if self._close is not None:
            object.__setattr__(self, "_closed", True)
            self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        endpoints = filter(None, (self.queue, self.vector))
        shown = [
            f"{item.name}={self.redactor.url(item.url)!r} from {item.source}"
            for item in endpoints
        ]
        return f"Service({', '.join(shown)})"


def endpoint_of(service: object, endpoint: EndpointName) -> Endpoint:
    """Return an endpoint of the argument `service`. Raise an error if it is not a `Service`, or closed."""
    hint = "connect() returns a Service: load_failures(connect(), since='7d')."
    checked = instance("service", service, Service, "a Service", hint)
    if checked._closed:  # noqa: SLF001 - of this module
        raise LocalServiceError(
            f"using the {TITLES[endpoint]}",
            got="an embedded service that was closed",
            expected="a running service",
            next_step="Start another with tk.connect('local').",
        )

    return checked.need(endpoint)


TITLES: Final = {"queue": "workflow queue", "vector": "vector index"}
WHAT_TO_SET: Final = {
    "queue": (
        "Give queue_url= and queue_token=, or set TOOLKIT_QUEUE_URL and TOOLKIT_QUEUE_TOKEN, "
        "or QSTASH_TOKEN, or QSTASH_REGION and the QSTASH_TOKEN of that region, for example "
        "US_EAST_1_QSTASH_TOKEN."
    ),
    "vector": (
        "Give vector_url= and vector_token=, or set TOOLKIT_VECTOR_URL and TOOLKIT_VECTOR_TOKEN, "
        "or UPSTASH_VECTOR_REST_URL and UPSTASH_VECTOR_REST_TOKEN."
    ),
}


def make_service(
    queue: Endpoint | None,
    vector: Endpoint | None,
    close: _Close | None = None,
    *,
    mask_personal: bool = False,
) -> Service:
    """Return a `Service` with a redactor that knows the tokens and signing keys of these endpoints."""
    endpoints = filter(None, (queue, vector))
    own_secrets = list(chain.from_iterable(endpoint.secrets for endpoint in endpoints))

    return Service(
        queue, vector, Redactor(own=own_secrets, mask_personal=mask_personal), close
    )


def is_loopback(host: str) -> bool:
    """Return True if a host is this machine."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        # localhost itself, or a name such as app.localhost
        return f".{host}".endswith(".localhost")
