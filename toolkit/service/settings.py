"""Read the addresses and tokens of the service from arguments and variables, or start the embedded service.

The two endpoints, queue and vector index, each have an address and a token. The address, token and dialect of
an endpoint always come from one source, so that a token is never sent to an address from another source:

1. the arguments of `connect`;
2. ``TOOLKIT_QUEUE_URL`` and ``TOOLKIT_QUEUE_TOKEN`` (``TOOLKIT_VECTOR_URL``, ``TOOLKIT_VECTOR_TOKEN``),
   with ``TOOLKIT_DIALECT`` and the signing keys ``TOOLKIT_QUEUE_CURRENT_SIGNING_KEY`` and
   ``TOOLKIT_QUEUE_NEXT_SIGNING_KEY``;
3. the variables of the public service: ``QSTASH_URL`` (optional), ``QSTASH_TOKEN``,
   ``QSTASH_CURRENT_SIGNING_KEY``, ``QSTASH_NEXT_SIGNING_KEY``, ``UPSTASH_VECTOR_REST_URL``,
   ``UPSTASH_VECTOR_REST_TOKEN``.

The public queue has one address, token and pair of signing keys per region. If ``QSTASH_REGION`` is set
(``US_EAST_1`` or ``EU_CENTRAL_1``), variables with the name of the region in front are used instead, for
example ``US_EAST_1_QSTASH_TOKEN``. ``region=`` and ``TOOLKIT_REGION`` also read these variables if they are
set. Otherwise they use the address of the region with ``QSTASH_TOKEN``.
"""

from __future__ import annotations

import os
import re
import secrets
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from ipaddress import ip_address
from itertools import chain
from typing import Final, Literal, NamedTuple, Self, cast, get_args
from urllib.parse import SplitResult, urlsplit

from toolkit.base.arguments import instance
from toolkit.base.children import start_service
from toolkit.base.errors import LocalServiceError, SettingsError
from toolkit.secrets.redaction import Redactor, Secret, visible

Region = Literal["us-east-1", "eu-central-1"]
DialectName = Literal["service", "upstash"]
TokenLocation = Literal["header", "query"]
EndpointName = Literal["queue", "vector"]
_Close = Callable[[], None]
# set by `region=` or TOOLKIT_REGION, and by QSTASH_REGION
_Regions = tuple[Region | None, Region | None]

REGIONS: Final[tuple[Region, ...]] = get_args(Region)
_DEFAULT_REGION: Final[Region] = "eu-central-1"
# least characters of a signing key for HS256 (RFC 7518, section 3.2)
MIN_SIGNING_KEY: Final = 32
_PUBLIC_URL: Final = "https://qstash.upstash.io"
_REGION_URLS: Final = {
    region: f"https://qstash-{region}.upstash.io" for region in REGIONS
}
_REGION_OF_HOST: Final = {
    urlsplit(url).hostname: region
    for region, url in ((_DEFAULT_REGION, _PUBLIC_URL), *_REGION_URLS.items())
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
                f"using the {_TITLES[endpoint]}",
                got="a service that has only the other endpoint",
                expected=f"a {endpoint} address and token",
                next_step=_WHAT_TO_SET[endpoint],
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
            f"using the {_TITLES[endpoint]}",
            got="an embedded service that was closed",
            expected="a running service",
            next_step="Start another with tk.connect('local').",
        )
    return checked.need(endpoint)


_TITLES: Final = {"queue": "workflow queue", "vector": "vector index"}
_WHAT_TO_SET: Final = {
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


def connect(
    where: Literal["local"] | None = None,
    *,
    queue_url: str | None = None,
    queue_token: str | None = None,
    vector_url: str | None = None,
    vector_token: str | None = None,
    current_signing_key: str | None = None,
    next_signing_key: str | None = None,
    region: Region | None = None,
    dialect: DialectName | None = None,
    token_in: TokenLocation = "header",  # noqa: S107 - a location, not a password
    mask_personal: bool = False,
    environ: Mapping[str, str] | None = None,
) -> Service:
    """Configure the addresses and tokens of the service. No request is sent yet.

    Parameters
    ----------
    where : {"local"}, optional
        ``"local"`` starts the embedded service with sample data as a child process and connects to it. The
        service ends with this process, or with ``close()``.
    queue_url, queue_token : str, optional
        Base address and token of the queue. Give both or neither. ``{region}`` in an address is replaced.
    vector_url, vector_token : str, optional
        Base address and token of the vector index. Give both or neither. You can use one endpoint only.
    current_signing_key, next_signing_key : str, optional
        Keys that verify callbacks. Only together with `queue_url`.
    region : {"us-east-1", "eu-central-1"}, optional
        Replaces ``{region}`` in addresses, and selects the address, token and signing keys of the public
        service. Default: ``TOOLKIT_REGION``, else ``QSTASH_REGION``, else ``eu-central-1``.
    dialect : {"service", "upstash"}, optional
        Header prefix and name of the token in queries. Default: ``upstash`` for an endpoint from the
        variables of the public service, else ``TOOLKIT_DIALECT``, else ``service``.
    token_in : {"header", "query"}
        Part of the request that contains the token of the queue. Prefer the header: addresses end up in logs.
    mask_personal : bool, default False
        If True, e-mail addresses, phone numbers and card numbers are masked like secrets while this service
        is in use: in frames, reports, panels and pandas output. Bodies stay exact as values.
    environ : mapping, optional
        Variables to read instead of the environment of the process.

    Returns
    -------
    Service

    Raises
    ------
    SettingsError
        If nothing is configured, only one of a pair is given, or a value is invalid; or if an address of the
        public service is not in the given region.

    Examples
    --------
    >>> connect(environ={"QSTASH_TOKEN": "t0ken-of-mine"})
    Service(queue='https://qstash.upstash.io' from QSTASH_TOKEN)
    >>> connect(region="us-east-1", environ={"QSTASH_TOKEN": "t0ken-of-mine"})
    Service(queue='https://qstash-us-east-1.upstash.io' from QSTASH_TOKEN)
    """
    # the first statement, because locals() must contain the arguments only
    _check_types(locals())
    if where is not None:
        if where != "local":
            raise _settings_error(repr(where), '"local", or no positional argument')
        return start_local(mask_personal=mask_personal)
    # `ours` counts before `theirs`: the variables of the toolkit before the ones of the public service
    env: Mapping[str, str] = os.environ
    if environ is not None:
        env = environ
    ours = _region("region", region) or _region(
        "TOOLKIT_REGION", env.get("TOOLKIT_REGION")
    )
    theirs = _region("QSTASH_REGION", env.get("QSTASH_REGION"))
    own_dialect = cast("DialectName", env.get("TOOLKIT_DIALECT") or "service")
    _check_choice("dialect", dialect, tuple(DIALECTS))
    _check_choice("TOOLKIT_DIALECT", own_dialect, tuple(DIALECTS))
    _check_choice("token_in", token_in, get_args(TokenLocation))
    keys = tuple(
        Secret(key)
        for key in (current_signing_key, next_signing_key)
        if key is not None
    )
    if keys and not queue_url:
        raise _settings_error(
            "signing keys without queue_url",
            "both from the same source",
            "Give queue_url= and queue_token= as well, or set the keys as variables.",
        )
    queue = _from_arguments("queue", queue_url, queue_token)
    if queue is None:
        queue = _from_environment(
            "queue", env, (_Family("TOOLKIT_QUEUE"), *_public_queue(ours, theirs))
        )
    vector = _from_arguments("vector", vector_url, vector_token)
    if vector is None:
        families = (
            _Family("TOOLKIT_VECTOR"),
            _Family("UPSTASH_VECTOR_REST", "upstash"),
        )
        vector = _from_environment("vector", env, families)
    _check_configured(env, queue, vector, (ours, theirs))
    if queue is not None:
        queue = replace(
            queue, token_in=token_in, signing_keys=keys or queue.signing_keys
        )
    finished = partial(
        _finished, regions=(ours, theirs), dialect=dialect, own_dialect=own_dialect
    )
    return make_service(finished(queue), finished(vector), mask_personal=mask_personal)


def _check_types(arguments: Mapping[str, object]) -> None:
    """Raise SettingsError if an argument of `connect` has another type.

    The value is not shown, because it may be a token of another type.
    """
    expected_types: dict[str, tuple[type, str]] = {
        "mask_personal": (bool, "True or False"),
        "environ": (Mapping, "a mapping"),
    }
    for name, value in arguments.items():
        expected_type, description = expected_types.get(name, (str, "text, or None"))
        if value is None and name != "mask_personal":
            continue
        if not isinstance(value, expected_type):
            raise _settings_error(f"{type(value).__name__} for {name}", description)


def _check_configured(
    env: Mapping[str, str],
    queue: Endpoint | None,
    vector: Endpoint | None,
    regions: _Regions,
) -> None:
    """Raise SettingsError if the queue of a region has no token, or if no endpoint is configured."""
    ours, theirs = regions
    if queue is None and theirs and not ours and env.get("QSTASH_TOKEN"):
        name = _variable(theirs)
        raise _settings_error(
            f"QSTASH_REGION={name} without {name}_QSTASH_TOKEN",
            "the token of that region",
            f"Set {name}_QSTASH_TOKEN, or unset QSTASH_REGION to use QSTASH_TOKEN.",
            doing="connecting to the workflow queue",
        )
    if queue is None and vector is None:
        what_to_set = f"{_WHAT_TO_SET['queue']} {_WHAT_TO_SET['vector']}"
        raise _settings_error(
            "no address and no token, neither as arguments nor as variables",
            "at least one endpoint of the service",
            f'{_region_hint(env)}{what_to_set} Or try connect("local").',
        )


def _settings_error(
    got: str, expected: str, then: str | None = None, *, doing: str = "connecting"
) -> SettingsError:
    return SettingsError(doing, got=got, expected=expected, next_step=then)


def _check_choice(name: str, value: str | None, allowed: tuple[str, ...]) -> None:
    if value is not None and value not in allowed:
        raise _settings_error(f"{name}={value!r}", f"one of {', '.join(allowed)}")


def _region(name: str, value: str | None) -> Region | None:
    """Return a region from an argument or a variable (``US_EAST_1``), or None if it is not set."""
    if not value:
        return None
    spelled = str(value).strip().lower().replace("_", "-")
    _check_choice(name, spelled if spelled in REGIONS else value, REGIONS)
    return cast("Region", spelled)


def _variable(region: Region) -> str:
    """Return a region as it is spelled in variables, for example ``US_EAST_1``."""
    return region.upper().replace("-", "_")


def _from_arguments(
    name: EndpointName, url: str | None, token: str | None
) -> Endpoint | None:
    if url is None and token is None:
        return None
    if not url or not token:
        raise SettingsError(
            f"connecting to the {_TITLES[name]}",
            got=f"{name}_url without {name}_token"
            if url
            else f"{name}_token without {name}_url",
            expected="both from the same source",
            next_step=f"Give {name}_url= and {name}_token=; no token is sent to an address from elsewhere.",
        )
    # `_finished` sets the dialect that the caller wants
    return Endpoint(name, url, Secret(token), DIALECTS["service"], "arguments")


class _Family(NamedTuple):
    """Variables with a common prefix. `url` is the address if the variable is not set."""

    prefix: str
    dialect: DialectName = "service"
    url: str | None = None

    def keys(self, env: Mapping[str, str]) -> tuple[Secret, ...]:
        names = (f"{self.prefix}_{which}_SIGNING_KEY" for which in ("CURRENT", "NEXT"))
        return tuple(Secret(env[name]) for name in names if env.get(name))


def _qstash(region: Region) -> _Family:
    return _Family(f"{_variable(region)}_QSTASH", "upstash", _REGION_URLS[region])


def _public_queue(ours: Region | None, theirs: Region | None) -> Iterator[_Family]:
    """Yield the families of variables of the public queue. The first with a value is used."""
    # The variables of a named region come first. QSTASH_TOKEN does not name a region: with QSTASH_REGION
    # alone it is not used, because it may be the token of another region.
    region = ours or theirs
    if region is not None:
        yield _qstash(region)
    if ours is not None:
        yield _Family("QSTASH", "upstash", _REGION_URLS[ours])
    elif theirs is None:
        yield _Family("QSTASH", "upstash", _PUBLIC_URL)


def _region_hint(env: Mapping[str, str]) -> str:
    # a token of a region is set, but no variable names the region
    for region in REGIONS:
        name = _variable(region)
        if env.get(f"{name}_QSTASH_TOKEN"):
            return f"{name}_QSTASH_TOKEN is set: set QSTASH_REGION={name}, or pass region={region!r}. "
    return ""


def _from_environment(
    name: EndpointName, env: Mapping[str, str], families: Iterable[_Family]
) -> Endpoint | None:
    """Return the endpoint of the first family with a variable that is set."""
    for family in families:
        endpoint = _endpoint_of_family(name, env, family)
        if endpoint is None:
            continue
        if name == "vector":
            return endpoint
        return _with_signing_keys(endpoint, family, env)
    return None


def _endpoint_of_family(
    name: EndpointName, env: Mapping[str, str], family: _Family
) -> Endpoint | None:
    """Return the endpoint of a family of variables, or None if no variable of it is set."""
    url_variable = f"{family.prefix}_URL"
    token_variable = f"{family.prefix}_TOKEN"
    url = env.get(url_variable)
    token = env.get(token_variable)
    if not url and not token:
        return None
    if not token:
        raise _missing_variable(name, present=url_variable, missing=token_variable)
    dialect = DIALECTS[family.dialect]
    # errors about the address name the variable that you would have to change
    if url:
        return Endpoint(name, url, Secret(token), dialect, url_variable)
    if family.url:
        return Endpoint(name, family.url, Secret(token), dialect, token_variable)
    raise _missing_variable(name, present=token_variable, missing=url_variable)


def _missing_variable(
    name: EndpointName, *, present: str, missing: str
) -> SettingsError:
    return SettingsError(
        f"connecting to the {_TITLES[name]}",
        got=f"{present} without {missing}",
        expected="both from the same family of variables",
        next_step=f"Set {missing}, or unset {present}.",
    )


def _with_signing_keys(
    endpoint: Endpoint, family: _Family, env: Mapping[str, str]
) -> Endpoint:
    """Return a queue with the signing keys of the family and of all regions."""
    # any region may deliver a callback
    regional_keys: list[tuple[Region, tuple[Secret, ...]]] = []
    if family.dialect == "upstash":
        for region in REGIONS:
            keys = _qstash(region).keys(env)
            if keys:
                regional_keys.append((region, keys))
    return replace(
        endpoint, signing_keys=family.keys(env), regional_keys=tuple(regional_keys)
    )


def _finished(
    endpoint: Endpoint | None,
    regions: _Regions,
    dialect: DialectName | None,
    own_dialect: DialectName,
) -> Endpoint | None:
    """Check the address and the keys, fill in the region, and set the dialect.

    The dialect is `dialect`, else that of the public service for an endpoint from its variables, else
    `own_dialect`.
    """
    if endpoint is None:
        return None
    ours, theirs = regions
    region = ours or theirs
    url = endpoint.url.strip().replace("{region}", region or _DEFAULT_REGION)
    url = url.rstrip("/")
    origin = f"of the {_TITLES[endpoint.name]} from {endpoint.source}"
    doing = f"reading the address {origin}"
    # the checks raise before the warning, so that an unusable address is not warned about
    parts = _checked_address(url, doing)
    _check_secrets(endpoint, origin)
    host = parts.hostname or ""
    if parts.scheme == "http" and not is_loopback(host):
        reached = f"{host} is reached over http, so the token is sent in clear text"
        warnings.warn(visible(f"{doing}: {reached}"), stacklevel=3)
    # QSTASH_REGION and the dialect of the public service apply to the variables of that service only
    wanted_region, implied_dialect = ours, own_dialect
    if endpoint.dialect.name == "upstash":
        wanted_region, implied_dialect = region, "upstash"
    finished = replace(endpoint, url=url, dialect=DIALECTS[dialect or implied_dialect])
    if finished.name == "queue":
        _check_region(finished, wanted_region)
    return finished


def _check_region(queue: Endpoint, region: Region | None) -> None:
    """Raise SettingsError if the address of a queue is in another region than the wanted one."""
    if region is None or queue.region in (None, region):
        return
    raise _settings_error(
        f"{queue.url}, the address of {queue.region}, from {queue.source}",
        "an address in the region",
        f"Leave out the address, or connect with region={queue.region!r}.",
        doing=f"connecting to the workflow queue in {region}",
    )


def _checked_address(url: str, doing: str) -> SplitResult:
    """Return the parts of an http(s) address. Raise SettingsError if it is not one, or has user info."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises ValueError for a port that is not a number
    except ValueError:
        raise _not_an_address(url, doing) from None
    is_web_address = parts.scheme in {"http", "https"} and parts.hostname
    if not is_web_address or not _ADDRESS.fullmatch(url):
        raise _not_an_address(url, doing)
    if parts.username or parts.password:
        raise _settings_error(
            "an address with user info",
            "an address without user info: the token authenticates",
            doing=doing,
        )
    return parts


def _not_an_address(url: str, doing: str) -> SettingsError:
    # Text without "://" is not shown: it may be the token, passed as the address.
    shown = "text that is no address"
    if "://" in url:
        shown = repr(Redactor(key=secrets.token_bytes(32)).url(url))
    return _settings_error(
        shown, "an http(s) address of host, port and path only", doing=doing
    )


def _check_secrets(endpoint: Endpoint, origin: str) -> None:
    """Raise SettingsError if the token or a signing key cannot be sent, or if a key is too short."""
    token, *keys = endpoint.secrets
    _check_characters(endpoint, "token", token)
    for key in keys:
        _check_characters(endpoint, "signing key", key)
    if any(len(key.reveal()) < MIN_SIGNING_KEY for key in keys):
        raise SettingsError(
            f"reading the signing keys {origin}",
            got=f"a key of fewer than {MIN_SIGNING_KEY} characters",
            expected="keys that cannot be guessed",
            next_step="Copy the complete keys again.",
        )


def _check_characters(endpoint: Endpoint, what: str, secret: Secret) -> None:
    if _TOKEN.fullmatch(secret.reveal()):
        return
    source = endpoint.source
    prefix = source.removesuffix("_URL").removesuffix("_TOKEN")
    is_from_variables = prefix != source
    if is_from_variables:
        # name the variable of the secret
        source = f"{prefix}{_ENDINGS_OF_VARIABLES[what]}"
    got = "white space or characters that no header can contain"
    if not secret.reveal():
        got = "an empty string"
    raise SettingsError(
        f"reading the {what} of the {_TITLES[endpoint.name]} from {source}",
        got=got,
        expected=f"only the {what}",
        next_step="Copy it again. The usual cause is a line end after it.",
    )


_ENDINGS_OF_VARIABLES: Final = {"token": "_TOKEN", "signing key": "_…_SIGNING_KEY"}


# No query, no fragment, no characters that a URL cannot contain, and no placeholder such as {zone}.
_ADDRESS: Final = re.compile(r"""[^\s?#\\{}<>"^`|\x00-\x1f\x7f]+""")
_TOKEN: Final = re.compile(r"[!-~]+")


def start_local(*options: str, mask_personal: bool = False) -> Service:
    """Start ``toolkit serve`` as a child process, by default with ``--sample``, and connect to it.

    The child gets a token through the environment, but no other token of this process. It imports no modules
    from the current folder, stores data in a temporary folder that it removes at the end, and ends with this
    process.
    """
    token = secrets.token_urlsafe(32)
    current_key = f"sig_{secrets.token_urlsafe(32)}"
    next_key = f"sig_{secrets.token_urlsafe(32)}"
    variables = {
        "TOOLKIT_SERVE_TOKEN": token,
        "TOOLKIT_SERVE_CURRENT_SIGNING_KEY": current_key,
        "TOOLKIT_SERVE_NEXT_SIGNING_KEY": next_key,
    }
    address, close = start_service(*(options or ("--sample",)), variables=variables)
    dialect = DIALECTS["service"]
    keys = (Secret(current_key), Secret(next_key))
    queue = Endpoint(
        "queue", address, Secret(token), dialect, "local", signing_keys=keys
    )
    vector = Endpoint(
        "vector", f"{address}/vector/docs", Secret(token), dialect, "local"
    )
    return make_service(queue, vector, close, mask_personal=mask_personal)
