"""`connect`: addresses and tokens from arguments and variables, or of the embedded service.

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

import atexit
import os
import re
import secrets
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final, Literal, NamedTuple, cast
from urllib.parse import urlsplit

from toolkit.children import end, first_line, python_variables, start_module
from toolkit.errors import SettingsError
from toolkit.redaction import Redactor, Secret
from toolkit.settings.service import (
    DEFAULT_REGION,
    DIALECTS,
    MIN_SIGNING_KEY,
    PUBLIC_QUEUE_URL,
    PUBLIC_REGION_URLS,
    REGIONS,
    TITLES,
    WHAT_TO_SET,
    DialectName,
    Endpoint,
    Region,
    Service,
    TokenLocation,
    is_loopback,
    local_service,
    make_service,
)

DEFAULT_INDEX: Final = "docs"


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
    given = {
        "where": where, "queue_url": queue_url, "queue_token": queue_token, "vector_url": vector_url,
        "vector_token": vector_token, "current_signing_key": current_signing_key,
        "next_signing_key": next_signing_key, "region": region, "dialect": dialect, "token_in": token_in,
    }  # fmt: skip
    for name, value in given.items():
        if value is not None and not isinstance(value, str):
            # not shown: it may be a token in another type
            raise SettingsError(
                "connecting", got=f"{type(value).__name__} for {name}", expected="text, or None"
            )
    if environ is not None and not isinstance(environ, Mapping):
        raise SettingsError("connecting", got=f"{type(environ).__name__} for environ", expected="a mapping")
    if where is not None:
        if where != "local":
            raise SettingsError("connecting", got=repr(where), expected='"local", or no positional argument')
        return start_local()
    env = os.environ if environ is None else environ
    ours = _region("region", region) or _region("TOOLKIT_REGION", env.get("TOOLKIT_REGION"))
    theirs = _region("QSTASH_REGION", env.get("QSTASH_REGION"))
    if dialect is not None:
        _one_of("dialect", dialect, tuple(DIALECTS))
    own = _one_of("TOOLKIT_DIALECT", env.get("TOOLKIT_DIALECT") or "service", tuple(DIALECTS))
    _one_of("token_in", token_in, ("header", "query"))
    keys = tuple(key for key in (current_signing_key, next_signing_key) if key is not None)
    if keys and not queue_url:
        raise SettingsError(
            "connecting",
            got="signing keys without queue_url",
            expected="both from the same source",
            next_step="Give queue_url= and queue_token= too, or set the keys as variables.",
        )
    queue = _from_arguments("queue", queue_url, queue_token) or _from_environment(
        "queue", env, (_FAMILIES["queue"], *_public_queue(ours, theirs))
    )
    vector = _from_arguments("vector", vector_url, vector_token) or _from_environment(
        "vector", env, (_FAMILIES["vector"], _UPSTASH_VECTOR)
    )
    if queue is None and theirs and not ours and env.get("QSTASH_TOKEN"):
        raise SettingsError(
            "connecting to the workflow queue",
            got=f"QSTASH_REGION={_variable(theirs)} without {_variable(theirs)}_QSTASH_TOKEN",
            expected="that region's own token",
            next_step=f"Set {_variable(theirs)}_QSTASH_TOKEN, or unset QSTASH_REGION to use QSTASH_TOKEN.",
        )
    if queue is None and vector is None:
        raise SettingsError(
            "connecting",
            got="no address and no token, neither as arguments nor as variables",
            expected="at least one endpoint of the service",
            next_step=f"{_region_hint(env)}{WHAT_TO_SET['queue']} {WHAT_TO_SET['vector']} "
            'Or try connect("local").',
        )
    if queue is not None:
        if keys:
            queue = replace(queue, signing_keys=tuple(Secret(key) for key in keys))
        queue = replace(queue, token_in=token_in)

    def finished(endpoint: Endpoint | None) -> Endpoint | None:
        if endpoint is None:
            return None
        public = endpoint.dialect.name == "upstash"
        if public and endpoint.name == "queue":
            endpoint = replace(endpoint, regional_keys=endpoint.regional_keys or _regional_keys(env))
        implied = "upstash" if public else own
        wanted = ours or (theirs if public else None)
        done = _finished(
            endpoint, region=ours or theirs or DEFAULT_REGION, dialect=dialect or cast("DialectName", implied)
        )
        if done.name == "queue" and wanted and done.region and done.region != wanted:
            raise SettingsError(
                f"connecting to the workflow queue in {wanted}",
                got=f"{done.url}, the address of {done.region}, from {done.source}",
                expected="an address in the region",
                next_step=f"Leave out the address, or connect with region={done.region!r}.",
            )
        return done

    return make_service(finished(queue), finished(vector))


def _from_arguments(name: Literal["queue", "vector"], url: str | None, token: str | None) -> Endpoint | None:
    if url is None and token is None:
        return None
    if not url or not token:
        raise SettingsError(
            f"connecting to the {TITLES[name]}",
            got=f"{name}_url without {name}_token" if url else f"{name}_token without {name}_url",
            expected="both from the same source",
            next_step=f"Give {name}_url= and {name}_token=; no token is sent to an address from elsewhere.",
        )
    return Endpoint(name, url, Secret(token), DIALECTS["service"], "arguments")


class _Family(NamedTuple):
    """Variables that belong together: of an address (or what it is when unset), a token and signing keys."""

    url: str
    token: str
    dialect: DialectName
    default_url: str | None = None
    keys: tuple[str, ...] = ()


_FAMILIES: Final = {
    "queue": _Family(
        "TOOLKIT_QUEUE_URL",
        "TOOLKIT_QUEUE_TOKEN",
        "service",
        keys=("TOOLKIT_QUEUE_CURRENT_SIGNING_KEY", "TOOLKIT_QUEUE_NEXT_SIGNING_KEY"),
    ),
    "vector": _Family("TOOLKIT_VECTOR_URL", "TOOLKIT_VECTOR_TOKEN", "service"),
}
_UPSTASH_VECTOR: Final = _Family("UPSTASH_VECTOR_REST_URL", "UPSTASH_VECTOR_REST_TOKEN", "upstash")


def _qstash(before: str, default_url: str) -> _Family:
    names = (f"{before}QSTASH_{name}" for name in ("URL", "TOKEN", "CURRENT_SIGNING_KEY", "NEXT_SIGNING_KEY"))
    url, token, *keys = names
    return _Family(url, token, "upstash", default_url, tuple(keys))


def _public_queue(ours: Region | None, theirs: Region | None) -> Iterator[_Family]:
    """The variables of the public queue; the first that are set count."""
    if region := ours or theirs:
        yield _qstash(f"{_variable(region)}_", PUBLIC_REGION_URLS[region])
    if ours or not theirs:
        yield _qstash("", PUBLIC_REGION_URLS[ours] if ours else PUBLIC_QUEUE_URL)


def _regional_keys(env: Mapping[str, str]) -> tuple[tuple[Region, tuple[Secret, ...]], ...]:
    """The signing keys of every region that has some: any region may deliver."""
    result = []
    for region in REGIONS:
        family = _qstash(f"{_variable(region)}_", PUBLIC_REGION_URLS[region])
        if keys := tuple(Secret(env[name]) for name in family.keys if env.get(name)):
            result.append((region, keys))
    return tuple(result)


def _region_hint(env: Mapping[str, str]) -> str:
    for region in REGIONS:
        if env.get(f"{_variable(region)}_QSTASH_TOKEN"):
            name = _variable(region)
            return (
                f"{name}_QSTASH_TOKEN is set: set QSTASH_REGION={name}, or connect with region={region!r}. "
            )
    return ""


def _variable(region: Region) -> str:
    return region.upper().replace("-", "_")


def _region(name: str, value: str | None) -> Region | None:
    """The region, also as variables spell it (US_EAST_1); None when it is not set."""
    if not value:
        return None
    named = value.strip().lower().replace("_", "-") if isinstance(value, str) else value
    if named not in REGIONS:
        _one_of(name, value, REGIONS)
    return cast("Region", named)


def _from_environment(
    name: Literal["queue", "vector"], env: Mapping[str, str], families: Iterable[_Family]
) -> Endpoint | None:
    for family in families:
        url, token = env.get(family.url), env.get(family.token)
        if not url and not token:
            continue
        source = family.url if url else family.token
        url = url or family.default_url
        if not url or not token:
            missing, present = (family.token, family.url) if url else (family.url, family.token)
            raise SettingsError(
                f"connecting to the {TITLES[name]}",
                got=f"{present} without {missing}",
                expected="both from the same family of variables",
                next_step=f"Set {missing}, or unset {present}.",
            )
        keys = tuple(Secret(env[variable]) for variable in family.keys if env.get(variable))
        return Endpoint(name, url, Secret(token), DIALECTS[family.dialect], source, signing_keys=keys)
    return None


def _finished(endpoint: Endpoint, *, region: str, dialect: DialectName) -> Endpoint:
    """Check the address, fill in the region, set the dialect."""
    url = endpoint.url.strip().replace("{region}", region).rstrip("/")
    doing = f"reading the address of the {TITLES[endpoint.name]} from {endpoint.source}"
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        _ = parts.port
    except ValueError:
        parts, host = None, ""
    usable = parts is not None and parts.scheme in {"http", "https"} and host and _ADDRESS.fullmatch(url)
    if parts is None or not usable:
        raise SettingsError(
            doing,
            # not shown when it is no address at all: it may be the token, passed as the address
            got=repr(Redactor(key=secrets.token_bytes(32)).url(url)) if "://" in url else "something else",
            expected="an http(s) address of host, port and path only",
        )
    if parts.username or parts.password:
        raise SettingsError(
            doing, got="an address with user info", expected="none: the token is what authenticates"
        )
    token, *keys = endpoint.secrets
    for what, secret in (("token", token), *(("signing key", key) for key in keys)):
        if not _TOKEN.fullmatch(secret.reveal()):
            raise SettingsError(
                f"reading the {what} of the {TITLES[endpoint.name]} from {endpoint.source}",
                got="white space or characters that no header can carry" if secret.reveal() else "nothing",
                expected=f"the {what} alone",
                next_step="Copy it again; a line end at its close is the usual cause.",
            )
    if any(len(key.reveal()) < MIN_SIGNING_KEY for key in keys):
        raise SettingsError(
            f"reading the signing keys of the {TITLES[endpoint.name]} from {endpoint.source}",
            got=f"a key of fewer than {MIN_SIGNING_KEY} characters",
            expected="keys that cannot be guessed",
            next_step="Copy them again, whole.",
        )
    if parts.scheme == "http" and not is_loopback(host):
        warnings.warn(
            f"{doing}: {host} is reached over http, so the token is sent in clear text", stacklevel=4
        )
    return replace(endpoint, url=url, dialect=DIALECTS[dialect])


# No query, no fragment, nothing that no URL may hold, and no placeholder that was not filled in.
_ADDRESS: Final = re.compile(r"""[^\s?#\\{}<>"^`|\x00-\x1f\x7f]+""")
_TOKEN: Final = re.compile(r"[!-~]+")


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise SettingsError("connecting", got=f"{name}={value!r}", expected=f"one of {', '.join(allowed)}")
    return value


def start_local(*options: str) -> Service:
    """Start ``toolkit serve`` as a child process, by default with ``--sample``, and connect to it.

    The child has its token in its environment, ends with this process, gets no other token of it, and imports
    nothing from the current folder. It keeps its state in a temporary folder and removes that when it ends.
    """
    token, keys = secrets.token_urlsafe(32), tuple(f"sig_{secrets.token_urlsafe(32)}" for _ in range(2))
    variables = python_variables() | {
        "TOOLKIT_SERVE_TOKEN": token,
        "TOOLKIT_SERVE_CURRENT_SIGNING_KEY": keys[0],
        "TOOLKIT_SERVE_NEXT_SIGNING_KEY": keys[1],
    }
    words = ("serve", *(options or ("--sample",)), "--with-parent", "--port", "0", "--temporary")
    with tempfile.TemporaryDirectory(prefix="toolkit-log-") as folder:
        log = Path(folder) / "serve.log"
        child = start_module("toolkit", *words, variables=variables, log=log)

        def close() -> None:
            atexit.unregister(close)
            end(child)

        atexit.register(close)
        try:
            address = str(first_line(child, what="the embedded service", log=log)["queue_url"])
        except BaseException:
            close()
            raise
    return local_service(address, token, DEFAULT_INDEX, keys, close)
