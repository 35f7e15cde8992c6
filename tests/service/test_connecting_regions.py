"""Regions of the public service: address, token and signing keys belong together, and are never mixed up."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

import toolkit as tk
from toolkit.errors import SettingsError

TOKEN = {"QSTASH_TOKEN": "token-of-none"}
US = {"US_EAST_1_QSTASH_TOKEN": "token-of-us"}
EU = {"EU_CENTRAL_1_QSTASH_TOKEN": "token-of-eu"}
US_ADDRESS = "https://qstash-us-east-1.upstash.io"
EU_ADDRESS = "https://qstash-eu-central-1.upstash.io"
PLAIN = "https://qstash.upstash.io"


def keys(region: str) -> dict[str, str]:
    """The variables of a region's two signing keys; of none for an empty one."""
    before = f"{region}_QSTASH_" if region else "QSTASH_"
    return {
        f"{before}{which}_SIGNING_KEY": f"sig_{which}_{region or 'none'}_{'k' * 32}"
        for which in ("CURRENT", "NEXT")
    }


@pytest.mark.parametrize(
    ("options", "environ", "address", "token"),
    [
        ({}, TOKEN, PLAIN, "token-of-none"),
        ({}, TOKEN | US | EU, PLAIN, "token-of-none"),
        ({"region": "us-east-1"}, TOKEN, US_ADDRESS, "token-of-none"),
        ({"region": "eu-central-1"}, TOKEN, EU_ADDRESS, "token-of-none"),
        ({}, TOKEN | {"TOOLKIT_REGION": "us-east-1"}, US_ADDRESS, "token-of-none"),
        ({"region": "us-east-1"}, TOKEN | US | EU, US_ADDRESS, "token-of-us"),
        (
            {"region": "us-east-1"},
            TOKEN | EU | {"QSTASH_REGION": "EU_CENTRAL_1"},
            US_ADDRESS,
            "token-of-none",
        ),
        ({}, US | {"QSTASH_REGION": "US_EAST_1"}, US_ADDRESS, "token-of-us"),
        (
            {},
            US | EU | TOKEN | {"QSTASH_REGION": "EU_CENTRAL_1"},
            EU_ADDRESS,
            "token-of-eu",
        ),
        ({}, US | {"QSTASH_REGION": "us-east-1"}, US_ADDRESS, "token-of-us"),
        (
            {"region": "eu-central-1"},
            US | EU | {"QSTASH_REGION": "US_EAST_1"},
            EU_ADDRESS,
            "token-of-eu",
        ),
        (
            {},
            US
            | {
                "QSTASH_REGION": "US_EAST_1",
                "US_EAST_1_QSTASH_URL": "https://queue.example/",
            },
            "https://queue.example",
            "token-of-us",
        ),
        (
            {},
            TOKEN
            | US
            | {"QSTASH_URL": "https://plain.example", "QSTASH_REGION": "US_EAST_1"},
            US_ADDRESS,
            "token-of-us",
        ),
        (
            {"region": "us-east-1"},
            TOKEN | {"QSTASH_URL": "https://qstash-{region}.upstash.io"},
            US_ADDRESS,
            "token-of-none",
        ),
        (
            {"region": "us-east-1"},
            TOKEN | {"QSTASH_URL": "http://127.0.0.1:9"},
            "http://127.0.0.1:9",
            "token-of-none",
        ),
    ],
)
def test_a_region_chooses_address_and_token(options, environ, address, token):
    """The argument, TOOLKIT_REGION or QSTASH_REGION; the address of another region is not kept."""
    queue = tk.connect(**options, environ=environ).queue
    assert (queue.url, queue.token.reveal(), queue.dialect.name) == (
        address,
        token,
        "upstash",
    )


@pytest.mark.parametrize(
    ("options", "environ", "named"),
    [
        (
            {},
            TOKEN | {"QSTASH_REGION": "US_EAST_1"},
            ("US_EAST_1_QSTASH_TOKEN", "unset QSTASH_REGION"),
        ),
        ({}, TOKEN | EU | {"QSTASH_REGION": "US_EAST_1"}, ("US_EAST_1_QSTASH_TOKEN",)),
        (
            {},
            US | {"QSTASH_REGION": "US_WEST_9"},
            ("QSTASH_REGION", "US_WEST_9", "us-east-1, eu-central-1"),
        ),
        (
            {},
            US,
            (
                "US_EAST_1_QSTASH_TOKEN is set",
                "QSTASH_REGION=US_EAST_1",
                "region='us-east-1'",
            ),
        ),
        (
            {},
            {"QSTASH_REGION": "US_EAST_1", "US_EAST_1_QSTASH_URL": US_ADDRESS},
            ("US_EAST_1_QSTASH_TOKEN",),
        ),
        (
            {"region": "us-east-1"},
            TOKEN | {"QSTASH_URL": PLAIN},
            ("us-east-1", PLAIN, "QSTASH_URL"),
        ),
        (
            {"region": "us-east-1"},
            TOKEN | {"QSTASH_URL": EU_ADDRESS + "/"},
            ("us-east-1", EU_ADDRESS),
        ),
        (
            {"region": "us-east-1"},
            TOKEN | {"QSTASH_URL": PLAIN + ":443"},
            ("us-east-1", PLAIN),
        ),
        (
            {"region": "us-east-1"},
            TOKEN | {"QSTASH_URL": PLAIN.upper()},
            ("us-east-1", PLAIN.upper()),
        ),
        (
            {
                "region": "eu-central-1",
                "queue_url": US_ADDRESS,
                "queue_token": "token-given",
            },
            {},
            ("eu-central-1", US_ADDRESS, "arguments"),
        ),
        (
            {},
            US | {"QSTASH_REGION": "US_EAST_1", "US_EAST_1_QSTASH_URL": EU_ADDRESS},
            ("us-east-1", EU_ADDRESS, "US_EAST_1_QSTASH_URL"),
        ),
    ],
)
def test_a_region_that_does_not_fit_is_an_error_that_names_what_to_set(
    options, environ, named
):
    """A region without its token, an unknown one, and a public address of another region."""
    with pytest.raises(SettingsError) as caught:
        tk.connect(**options, environ=environ)
    assert [part for part in named if part not in str(caught.value)] == []
    assert not re.search("token-(of|given)", str(caught.value))


def test_explicit_and_own_settings_override_the_public_region():
    """QSTASH_REGION is about the public service's own variables."""
    own = {
        "TOOLKIT_QUEUE_URL": PLAIN,
        "TOOLKIT_QUEUE_TOKEN": "token-of-ours",
        "QSTASH_REGION": "US_EAST_1",
    }
    assert tk.connect(environ=own | US | keys("US_EAST_1")).queue.url == PLAIN
    assert tk.connect(environ=own | US | keys("US_EAST_1")).queue.secrets[1:] == ()
    given = {"queue_url": PLAIN, "queue_token": "token-given"}
    assert (
        tk.connect(**given, environ=US | {"QSTASH_REGION": "US_EAST_1"}).queue.url
        == PLAIN
    )


@given(
    st.dictionaries(
        st.sampled_from(["QSTASH_REGION", "TOOLKIT_REGION"]),
        st.sampled_from(["US_EAST_1", "EU_CENTRAL_1"]),
    ),
    st.sets(st.sampled_from(sorted(TOKEN | US | EU))),
)
def test_a_regions_token_is_only_ever_sent_to_its_region(regions, names):
    """Whatever is set, the token of one region never goes to the other's address."""
    everything = TOKEN | US | EU
    try:
        queue = tk.connect(
            environ=regions | {name: everything[name] for name in names}
        ).queue
    except SettingsError:
        return
    home = {"token-of-us": "us-east-1", "token-of-eu": "eu-central-1"}
    assert home.get(queue.token.reveal(), queue.region) == queue.region
    if regions:
        named = regions.get("TOOLKIT_REGION") or regions["QSTASH_REGION"]
        assert queue.region == named.lower().replace("_", "-")


def test_signing_keys_are_those_of_the_region_that_a_delivery_names():
    """The keys of both regions are known; without a region or its keys, the endpoint's own count."""
    environ = TOKEN | keys("") | keys("US_EAST_1") | keys("EU_CENTRAL_1")
    queue = tk.connect(environ=environ).queue

    def shown(region):
        return [key.reveal().split("_k")[0] for key in queue.keys_of(region)]

    assert shown(None) == ["sig_CURRENT_none", "sig_NEXT_none"]
    assert (
        shown("US_EAST_1")
        == shown("us-east-1")
        == ["sig_CURRENT_US_EAST_1", "sig_NEXT_US_EAST_1"]
    )
    assert shown("EU_CENTRAL_1") == [
        "sig_CURRENT_EU_CENTRAL_1",
        "sig_NEXT_EU_CENTRAL_1",
    ]
    assert shown("AP_SOUTH_1") == shown("") == shown(None)
    queue = tk.connect(
        environ=US | keys("US_EAST_1") | {"QSTASH_REGION": "US_EAST_1"}
    ).queue
    assert (
        shown(None)
        == shown("EU_CENTRAL_1")
        == shown("US_EAST_1")
        == ["sig_CURRENT_US_EAST_1", "sig_NEXT_US_EAST_1"]
    )


def test_regional_keys_are_secrets_that_are_checked():
    """They are masked everywhere, and one that could be guessed is refused."""
    service = tk.connect(environ=TOKEN | keys("US_EAST_1"))
    for secret in keys("US_EAST_1").values():
        assert secret not in repr(vars(service.queue))
        assert secret not in service.redactor.text(f"x {secret} y")
    with pytest.raises(SettingsError, match="signing key"):
        tk.connect(environ=TOKEN | {"EU_CENTRAL_1_QSTASH_NEXT_SIGNING_KEY": "short"})
