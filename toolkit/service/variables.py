"""Read the address, the token and the signing keys of an endpoint from variables of the environment.

Variables belong to families with a common prefix, for example ``QSTASH_TOKEN`` and ``QSTASH_URL``. An
endpoint always comes from one family, so that no token is sent to the address of another one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from toolkit.base.errors import SettingsError
from toolkit.secrets.redaction import Secret
from toolkit.service.settings import (
    DIALECTS,
    PUBLIC_URL,
    REGION_URLS,
    REGIONS,
    TITLES,
    DialectName,
    Endpoint,
    EndpointName,
    Region,
)


def variable_of(region: Region) -> str:
    """Return a region as it is spelled in variables, for example ``US_EAST_1``."""
    return region.upper().replace("-", "_")


class VariableFamily(NamedTuple):
    """Variables with a common prefix. `url` is the address if the variable is not set."""

    prefix: str
    dialect: DialectName = "service"
    url: str | None = None

    def keys(self, env: Mapping[str, str]) -> tuple[Secret, ...]:
        """Return the signing keys that are set."""
        names = (f"{self.prefix}_{which}_SIGNING_KEY" for which in ("CURRENT", "NEXT"))
        return tuple(Secret(env[name]) for name in names if env.get(name))


def regional_queue(region: Region) -> VariableFamily:
    """Return the variables of the public queue of a region, for example ``US_EAST_1_QSTASH_TOKEN``."""
    return VariableFamily(
        f"{variable_of(region)}_QSTASH", "upstash", REGION_URLS[region]
    )


def public_queue(
    ours: Region | None, theirs: Region | None
) -> Iterator[VariableFamily]:
    """Yield the families of variables of the public queue. The first with a value is used."""
    # The variables of a named region come first. QSTASH_TOKEN does not name a region: with QSTASH_REGION
    # alone it is not used, because it may be the token of another region.
    region = ours or theirs
    if region is not None:
        yield regional_queue(region)
    if ours is not None:
        yield VariableFamily("QSTASH", "upstash", REGION_URLS[ours])
    elif theirs is None:
        yield VariableFamily("QSTASH", "upstash", PUBLIC_URL)


def region_hint(env: Mapping[str, str]) -> str:
    """Return advice if the token of a region is set, but no variable names the region; else ""."""
    for region in REGIONS:
        name = variable_of(region)
        if env.get(f"{name}_QSTASH_TOKEN"):
            return f"{name}_QSTASH_TOKEN is set: set QSTASH_REGION={name}, or pass region={region!r}. "

    return ""


def from_variables(
    name: EndpointName, env: Mapping[str, str], families: Iterable[VariableFamily]
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
    name: EndpointName, env: Mapping[str, str], family: VariableFamily
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
        f"connecting to the {TITLES[name]}",
        got=f"{present} without {missing}",
        expected="both from the same family of variables",
        next_step=f"Set {missing}, or unset {present}.",
    )


def _with_signing_keys(
    endpoint: Endpoint, family: VariableFamily, env: Mapping[str, str]
) -> Endpoint:
    """Return a queue with the signing keys of the family and of all regions."""
    # any region may deliver a callback
    regional_keys: list[tuple[Region, tuple[Secret, ...]]] = []
    if family.dialect == "upstash":
        for region in REGIONS:
            keys = regional_queue(region).keys(env)
            if keys:
                regional_keys.append((region, keys))

    return replace(
        endpoint, signing_keys=family.keys(env), regional_keys=tuple(regional_keys)
    )
