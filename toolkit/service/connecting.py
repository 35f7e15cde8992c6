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
import secrets
import warnings
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Literal, cast, get_args

from toolkit.base.children import start_service
from toolkit.base.errors import SettingsError
from toolkit.secrets.redaction import Secret, visible
from toolkit.service.address_checks import (
    check_secrets,
    checked_address,
    settings_error,
)
from toolkit.service.settings import (
    DEFAULT_REGION,
    DIALECTS,
    REGIONS,
    TITLES,
    WHAT_TO_SET,
    DialectName,
    Endpoint,
    EndpointName,
    Region,
    Service,
    TokenLocation,
    is_loopback,
    make_service,
)
from toolkit.service.variables import (
    VariableFamily,
    from_variables,
    public_queue,
    region_hint,
    variable_of,
)

# set by `region=` or TOOLKIT_REGION, and by QSTASH_REGION
Regions = tuple[Region | None, Region | None]


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
            raise settings_error(repr(where), '"local", or no positional argument')
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
        raise settings_error(
            "signing keys without queue_url",
            "both from the same source",
            "Give queue_url= and queue_token= as well, or set the keys as variables.",
        )

    queue = _from_arguments("queue", queue_url, queue_token)
    if queue is None:
        queue = from_variables(
            "queue", env, (VariableFamily("TOOLKIT_QUEUE"), *public_queue(ours, theirs))
        )

    vector = _from_arguments("vector", vector_url, vector_token)
    if vector is None:
        families = (
            VariableFamily("TOOLKIT_VECTOR"),
            VariableFamily("UPSTASH_VECTOR_REST", "upstash"),
        )
        vector = from_variables("vector", env, families)

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
            raise settings_error(f"{type(value).__name__} for {name}", description)


def _check_configured(
    env: Mapping[str, str],
    queue: Endpoint | None,
    vector: Endpoint | None,
    regions: Regions,
) -> None:
    """Raise SettingsError if the queue of a region has no token, or if no endpoint is configured."""
    ours, theirs = regions
    if queue is None and theirs and not ours and env.get("QSTASH_TOKEN"):
        name = variable_of(theirs)
        raise settings_error(
            f"QSTASH_REGION={name} without {name}_QSTASH_TOKEN",
            "the token of that region",
            f"Set {name}_QSTASH_TOKEN, or unset QSTASH_REGION to use QSTASH_TOKEN.",
            doing="connecting to the workflow queue",
        )

    if queue is None and vector is None:
        what_to_set = f"{WHAT_TO_SET['queue']} {WHAT_TO_SET['vector']}"
        raise settings_error(
            "no address and no token, neither as arguments nor as variables",
            "at least one endpoint of the service",
            f'{region_hint(env)}{what_to_set} Or try connect("local").',
        )


def _check_choice(name: str, value: str | None, allowed: tuple[str, ...]) -> None:
    if value is not None and value not in allowed:
        raise settings_error(f"{name}={value!r}", f"one of {', '.join(allowed)}")


def _region(name: str, value: str | None) -> Region | None:
    """Return a region from an argument or a variable (``US_EAST_1``), or None if it is not set."""
    if not value:
        return None

    spelled = str(value).strip().lower().replace("_", "-")
    _check_choice(name, spelled if spelled in REGIONS else value, REGIONS)
    return cast("Region", spelled)


def _from_arguments(
    name: EndpointName, url: str | None, token: str | None
) -> Endpoint | None:
    if url is None and token is None:
        return None

    if not url or not token:
        raise SettingsError(
            f"connecting to the {TITLES[name]}",
            got=f"{name}_url without {name}_token"
            if url
            else f"{name}_token without {name}_url",
            expected="both from the same source",
            next_step=f"Give {name}_url= and {name}_token=; no token is sent to an address from elsewhere.",
        )

    # `_finished` sets the dialect that the caller wants
    return Endpoint(name, url, Secret(token), DIALECTS["service"], "arguments")


def _finished(
    endpoint: Endpoint | None,
    regions: Regions,
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
    url = endpoint.url.strip().replace("{region}", region or DEFAULT_REGION)
    url = url.rstrip("/")
    origin = f"of the {TITLES[endpoint.name]} from {endpoint.source}"
    doing = f"reading the address {origin}"
    # the checks raise before the warning, so that an unusable address is not warned about
    parts = checked_address(url, doing)
    check_secrets(endpoint, origin)
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

    raise settings_error(
        f"{queue.url}, the address of {queue.region}, from {queue.source}",
        "an address in the region",
        f"Leave out the address, or connect with region={queue.region!r}.",
        doing=f"connecting to the workflow queue in {region}",
    )


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
