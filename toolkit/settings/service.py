"""Addresses and tokens of the service, from arguments and variables or of the embedded service.

The two endpoints, queue and vector index, have addresses and tokens of their own. Address, token and dialect
of an endpoint come from one source only, so that one family's token is never sent to another's address:

1. the arguments of `connect`;
2. ``TOOLKIT_QUEUE_URL`` and ``TOOLKIT_QUEUE_TOKEN`` (``TOOLKIT_VECTOR_URL``, ``TOOLKIT_VECTOR_TOKEN``),
   with ``TOOLKIT_DIALECT`` and the signing keys ``TOOLKIT_QUEUE_CURRENT_SIGNING_KEY`` and
   ``TOOLKIT_QUEUE_NEXT_SIGNING_KEY``;
3. the public service's own: ``QSTASH_URL`` (optional), ``QSTASH_TOKEN``, ``QSTASH_CURRENT_SIGNING_KEY``,
   ``QSTASH_NEXT_SIGNING_KEY``, ``UPSTASH_VECTOR_REST_URL``, ``UPSTASH_VECTOR_REST_TOKEN``.

The public service's queue has one address, token and pair of signing keys a region. With ``QSTASH_REGION``
set (``US_EAST_1`` or ``EU_CENTRAL_1``), the variables with the region's name before them, such as
``US_EAST_1_QSTASH_TOKEN``, replace those without. ``region=`` and ``TOOLKIT_REGION`` read these, too, where
they are set, and otherwise use the region's address with ``QSTASH_TOKEN``.
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
from typing import Final, Literal, NamedTuple, Self, cast, get_args
from urllib.parse import urlsplit

from toolkit.arguments import instance
from toolkit.children import start_service
from toolkit.errors import LocalServiceError, SettingsError
from toolkit.redaction import Redactor, Secret, visible

Region = Literal["us-east-1", "eu-central-1"]
DialectName = Literal["service", "upstash"]
TokenLocation = Literal["header", "query"]
EndpointName = Literal["queue", "vector"]
_Close = Callable[[], None]
_Regions = tuple[Region | None, Region | None]  # by our variable or argument, and by the public service's

REGIONS: Final[tuple[Region, ...]] = get_args(Region)
_DEFAULT_REGION: Final[Region] = "eu-central-1"
MIN_SIGNING_KEY: Final = 32  # characters of a signing key at least, for HS256 (RFC 7518, section 3.2)
_PUBLIC_URL: Final = "https://qstash.upstash.io"
_REGION_URLS: Final = {region: f"https://qstash-{region}.upstash.io" for region in REGIONS}
_REGION_OF_HOST: Final = {
    urlsplit(url).hostname: region for region, url in ((_DEFAULT_REGION, _PUBLIC_URL), *_REGION_URLS.items())
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
    >>> connect(queue_url="http://127.0.0.1:8080", queue_token="t0ken-of-mine")
    Service(queue='http://127.0.0.1:8080' from arguments)
    """

    queue: Endpoint | None
    vector: Endpoint | None
    redactor: Redactor = field(compare=False)
    _close: _Close | None = field(default=None, compare=False, repr=False)
    _closed: bool = field(default=False, init=False, compare=False, repr=False)

    def need(self, endpoint: EndpointName) -> Endpoint:
        """The endpoint, or a `SettingsError` that says what to set."""
        chosen = self.queue if endpoint == "queue" else self.vector
        if chosen is None:
            raise SettingsError(
                f"using the {_TITLES[endpoint]}",
                got="a service that has only the other endpoint",
                expected=f"a {endpoint} address and token",
                next_step=_WHAT_TO_SET[endpoint],
            )
        return chosen

    def close(self) -> None:
        """End the embedded service that `connect("local")` started; requests are errors from then on."""
        if self._close is not None:
            object.__setattr__(self, "_closed", True)
            self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        shown = (
            f"{endpoint.name}={self.redactor.url(endpoint.url)!r} from {endpoint.source}"
            for endpoint in (self.queue, self.vector)
            if endpoint
        )
        return f"Service({', '.join(shown)})"


def endpoint_of(service: object, endpoint: EndpointName) -> Endpoint:
    """The endpoint of the argument `service`, for requests; an error when that is no `Service`, or closed."""
    hint = "connect() returns a Service: load_failures(connect(), since='7d')."
    checked = instance("service", service, Service, "a Service", hint)
    if checked._closed:  # noqa: SLF001 - of this module
        raise LocalServiceError(
            f"using the {_TITLES[endpoint]}",
            got="an embedded service that was closed",
            expected="one that runs",
            next_step="tk.connect('local') starts another.",
        )
    return checked.need(endpoint)


_TITLES: Final = {"queue": "workflow queue", "vector": "vector index"}
_WHAT_TO_SET: Final = {
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
    queue: Endpoint | None,
    vector: Endpoint | None,
    close: _Close | None = None,
    *,
    mask_personal: bool = False,
) -> Service:
    """The `Service` of these endpoints, whose redactor knows their tokens and signing keys."""
    own = [secret for endpoint in (queue, vector) if endpoint for secret in endpoint.secrets]
    return Service(queue, vector, Redactor(own=own, mask_personal=mask_personal), close)


def is_loopback(host: str) -> bool:
    """Whether a host is this machine itself."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


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
    """Configure addresses and tokens of the service. Nothing is sent yet.

    Parameters
    ----------
    where : {"local"}, optional
        ``"local"`` starts the embedded service with sample data as a child process and connects to it.
        It ends with this process, or with ``close()``.
    queue_url, queue_token : str, optional
        Base address and token of the queue. Both or neither. ``{region}`` in an address is replaced.
    vector_url, vector_token : str, optional
        Base address and token of the vector index. Both or neither; either endpoint alone is fine.
    current_signing_key, next_signing_key : str, optional
        Keys that verify callbacks. Only together with `queue_url`.
    region : {"us-east-1", "eu-central-1"}, optional
        Fills in ``{region}`` in addresses, and chooses the public service's address, token and signing keys.
        Default: ``TOOLKIT_REGION``, else ``QSTASH_REGION``, else ``eu-central-1``.
    dialect : {"service", "upstash"}, optional
        Header prefix and query token name. Default: ``upstash`` for an endpoint configured by the public
        service's own variables, else ``TOOLKIT_DIALECT``, else ``service``.
    token_in : {"header", "query"}
        Where the queue's token is sent. The header is better: addresses end up in logs.
    mask_personal : bool, default False
        Mask e-mail addresses, phone numbers and card numbers like secrets, as long as this service is in use:
        in frames, reports, panels and what pandas shows. Bodies stay exact as values.
    environ : mapping, optional
        Variables to read instead of the process's own.

    Returns
    -------
    Service

    Raises
    ------
    SettingsError
        When nothing is configured, or only one of a pair, or an invalid value; or an address of the public
        service that is not in the given region.

    Examples
    --------
    >>> connect(environ={"QSTASH_TOKEN": "t0ken-of-mine"})
    Service(queue='https://qstash.upstash.io' from QSTASH_TOKEN)
    >>> connect(region="us-east-1", environ={"QSTASH_TOKEN": "t0ken-of-mine"})
    Service(queue='https://qstash-us-east-1.upstash.io' from QSTASH_TOKEN)
    """
    for name, value in locals().copy().items():
        if name not in ("environ", "mask_personal") and value is not None and not isinstance(value, str):
            # not shown: it may be a token in another type
            raise _unfit(f"{type(value).__name__} for {name}", "text, or None")
    if not isinstance(mask_personal, bool):
        raise _unfit(f"{type(mask_personal).__name__} for mask_personal", "True or False")
    if environ is not None and not isinstance(environ, Mapping):
        raise _unfit(f"{type(environ).__name__} for environ", "a mapping")
    if where is not None:
        if where != "local":
            raise _unfit(repr(where), '"local", or no positional argument')
        return start_local(mask_personal=mask_personal)
    env = os.environ if environ is None else environ
    ours = _region("region", region) or _region("TOOLKIT_REGION", env.get("TOOLKIT_REGION"))
    theirs = _region("QSTASH_REGION", env.get("QSTASH_REGION"))
    own = cast("DialectName", env.get("TOOLKIT_DIALECT") or "service")
    _one_of("dialect", dialect, tuple(DIALECTS))
    _one_of("TOOLKIT_DIALECT", own, tuple(DIALECTS))
    _one_of("token_in", token_in, get_args(TokenLocation))
    keys = tuple(Secret(key) for key in (current_signing_key, next_signing_key) if key is not None)
    if keys and not queue_url:
        raise _unfit(
            "signing keys without queue_url",
            "both from the same source",
            "Give queue_url= and queue_token= too, or set the keys as variables.",
        )
    queue = _from_arguments("queue", queue_url, queue_token) or _from_environment(
        "queue", env, (_Family("TOOLKIT_QUEUE"), *_public_queue(ours, theirs))
    )
    vector = _from_arguments("vector", vector_url, vector_token) or _from_environment(
        "vector", env, (_Family("TOOLKIT_VECTOR"), _Family("UPSTASH_VECTOR_REST", "upstash"))
    )
    if queue is None and theirs and not ours and env.get("QSTASH_TOKEN"):
        name = _variable(theirs)
        raise _unfit(
            f"QSTASH_REGION={name} without {name}_QSTASH_TOKEN",
            "that region's own token",
            f"Set {name}_QSTASH_TOKEN, or unset QSTASH_REGION to use QSTASH_TOKEN.",
            doing="connecting to the workflow queue",
        )
    if queue is None and vector is None:
        what = f"{_WHAT_TO_SET['queue']} {_WHAT_TO_SET['vector']}"
        raise _unfit(
            "no address and no token, neither as arguments nor as variables",
            "at least one endpoint of the service",
            f'{_region_hint(env)}{what} Or try connect("local").',
        )
    if queue is not None:
        queue = replace(queue, token_in=token_in, signing_keys=keys or queue.signing_keys)
    finished = partial(_finished, regions=(ours, theirs), dialect=dialect, own=own)
    return make_service(finished(queue), finished(vector), mask_personal=mask_personal)


def _unfit(got: str, expected: str, then: str | None = None, *, doing: str = "connecting") -> SettingsError:
    return SettingsError(doing, got=got, expected=expected, next_step=then)


def _one_of(name: str, value: str | None, allowed: tuple[str, ...]) -> None:
    if value is not None and value not in allowed:
        raise _unfit(f"{name}={value!r}", f"one of {', '.join(allowed)}")


def _region(name: str, value: str | None) -> Region | None:
    """The region, also as variables spell it (US_EAST_1); None when it is not set."""
    if not value:
        return None
    named = str(value).strip().lower().replace("_", "-")
    _one_of(name, named if named in REGIONS else value, REGIONS)
    return cast("Region", named)


def _variable(region: Region) -> str:
    return region.upper().replace("-", "_")


def _from_arguments(name: EndpointName, url: str | None, token: str | None) -> Endpoint | None:
    if url is None and token is None:
        return None
    if not url or not token:
        raise SettingsError(
            f"connecting to the {_TITLES[name]}",
            got=f"{name}_url without {name}_token" if url else f"{name}_token without {name}_url",
            expected="both from the same source",
            next_step=f"Give {name}_url= and {name}_token=; no token is sent to an address from elsewhere.",
        )
    return Endpoint(name, url, Secret(token), DIALECTS["service"], "arguments")


class _Family(NamedTuple):
    """Variables that belong together by how they begin; `url` is the address where theirs is not set."""

    prefix: str
    dialect: DialectName = "service"
    url: str | None = None

    def keys(self, env: Mapping[str, str]) -> tuple[Secret, ...]:
        names = (f"{self.prefix}_{which}_SIGNING_KEY" for which in ("CURRENT", "NEXT"))
        return tuple(Secret(env[name]) for name in names if env.get(name))


def _qstash(region: Region) -> _Family:
    return _Family(f"{_variable(region)}_QSTASH", "upstash", _REGION_URLS[region])


def _public_queue(ours: Region | None, theirs: Region | None) -> Iterator[_Family]:
    """The variables of the public queue; the first that are set count."""
    if region := ours or theirs:
        yield _qstash(region)
    if ours or not theirs:
        yield _Family("QSTASH", "upstash", _REGION_URLS[ours] if ours else _PUBLIC_URL)


def _region_hint(env: Mapping[str, str]) -> str:
    for region in REGIONS:
        name = _variable(region)
        if env.get(f"{name}_QSTASH_TOKEN"):
            return f"{name}_QSTASH_TOKEN is set: set QSTASH_REGION={name}, or pass region={region!r}. "
    return ""


def _from_environment(
    name: EndpointName, env: Mapping[str, str], families: Iterable[_Family]
) -> Endpoint | None:
    for family in families:
        variables = (f"{family.prefix}_URL", f"{family.prefix}_TOKEN")
        url, token = map(env.get, variables)
        if not url and not token:
            continue
        source = variables[0] if url else variables[1]
        url = url or family.url
        if not url or not token:
            present, missing = variables if url else reversed(variables)
            raise SettingsError(
                f"connecting to the {_TITLES[name]}",
                got=f"{present} without {missing}",
                expected="both from the same family of variables",
                next_step=f"Set {missing}, or unset {present}.",
            )
        endpoint = Endpoint(name, url, Secret(token), DIALECTS[family.dialect], source)
        if name == "vector":
            return endpoint
        # any region may deliver
        regional = ((region, _qstash(region).keys(env)) for region in REGIONS if family.dialect == "upstash")
        return replace(
            endpoint,
            signing_keys=family.keys(env),
            regional_keys=tuple((region, keys) for region, keys in regional if keys),
        )
    return None


def _finished(
    endpoint: Endpoint | None, regions: _Regions, dialect: DialectName | None, own: DialectName
) -> Endpoint | None:
    """Check the address, fill in the region, set the dialect: `dialect`, or `own` if none is implied."""
    ours, theirs = regions
    if endpoint is None:
        return None
    url = endpoint.url.strip().replace("{region}", ours or theirs or _DEFAULT_REGION).rstrip("/")
    where = f"of the {_TITLES[endpoint.name]} from {endpoint.source}"
    doing = f"reading the address {where}"
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        _ = parts.port
    except ValueError:
        parts, host = None, ""
    usable = parts is not None and parts.scheme in {"http", "https"} and host and _ADDRESS.fullmatch(url)
    if parts is None or not usable:
        # not shown when it is not an address at all: it may be the token, passed as the address
        got = repr(Redactor(key=secrets.token_bytes(32)).url(url)) if "://" in url else "something else"
        raise _unfit(got, "an http(s) address of host, port and path only", doing=doing)
    if parts.username or parts.password:
        raise _unfit("an address with user info", "none: the token is what authenticates", doing=doing)
    token, *keys = endpoint.secrets
    for what, secret in (("token", token), *(("signing key", key) for key in keys)):
        if not _TOKEN.fullmatch(secret.reveal()):
            prefix = endpoint.source.removesuffix("_URL").removesuffix("_TOKEN")
            variable = f"{prefix}_TOKEN" if what == "token" else f"{prefix}_…_SIGNING_KEY"
            source = endpoint.source if prefix == endpoint.source else variable
            raise SettingsError(
                f"reading the {what} of the {_TITLES[endpoint.name]} from {source}",
                got="white space or characters that no header can carry" if secret.reveal() else "nothing",
                expected=f"the {what} alone",
                next_step="Copy it again; a line end at its close is the usual cause.",
            )
    if any(len(key.reveal()) < MIN_SIGNING_KEY for key in keys):
        raise SettingsError(
            f"reading the signing keys {where}",
            got=f"a key of fewer than {MIN_SIGNING_KEY} characters",
            expected="keys that cannot be guessed",
            next_step="Copy them again, whole.",
        )
    if parts.scheme == "http" and not is_loopback(host):
        reached = f"{host} is reached over http, so the token is sent in clear text"
        warnings.warn(visible(f"{doing}: {reached}"), stacklevel=3)
    public = endpoint.dialect.name == "upstash"
    done = replace(endpoint, url=url, dialect=DIALECTS[dialect or ("upstash" if public else own)])
    wanted = ours or (theirs if public else None)
    if done.name == "queue" and wanted and done.region and done.region != wanted:
        raise _unfit(
            f"{done.url}, the address of {done.region}, from {done.source}",
            "an address in the region",
            f"Leave out the address, or connect with region={done.region!r}.",
            doing=f"connecting to the workflow queue in {wanted}",
        )
    return done


# No query, no fragment, nothing that no URL may hold, and no placeholder that was not filled in.
_ADDRESS: Final = re.compile(r"""[^\s?#\\{}<>"^`|\x00-\x1f\x7f]+""")
_TOKEN: Final = re.compile(r"[!-~]+")


def start_local(*options: str, mask_personal: bool = False) -> Service:
    """Start ``toolkit serve`` as a child process, by default with ``--sample``, and connect to it.

    The child has its token in its environment, ends with this process, gets no other token of it, and imports
    nothing from the current folder. It keeps its state in a temporary folder and removes that when it ends.
    """
    token, *keys = (f"{prefix}{secrets.token_urlsafe(32)}" for prefix in ("", "sig_", "sig_"))
    names = ("TOKEN", "CURRENT_SIGNING_KEY", "NEXT_SIGNING_KEY")
    variables = {f"TOOLKIT_SERVE_{name}": value for name, value in zip(names, (token, *keys), strict=True)}
    address, close = start_service(*(options or ("--sample",)), variables=variables)
    secret, dialect = Secret(token), DIALECTS["service"]
    queue = Endpoint("queue", address, secret, dialect, "local", signing_keys=tuple(map(Secret, keys)))
    vector = Endpoint("vector", f"{address}/vector/docs", secret, dialect, "local")
    return make_service(queue, vector, close, mask_personal=mask_personal)
