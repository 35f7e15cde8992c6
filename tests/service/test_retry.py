"""What a response's headers say about delays, whatever their values."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkit.errors import RateLimitError, ServerError
from toolkit.service.responses import RetryPolicy, daily_reset, retry_after

odd = st.binary(max_size=40).map(lambda told: told.decode("latin-1")) | st.sampled_from(
    [
        *(
            "-1",
            "1e9",
            "NaN",
            "inf",
            "+5",
            "0x10",
            "٢",
            "6m5s",
            "5s6m",
            "m",
            "2 ",
            "9" * 20,
            "1767225603",
        ),
        "Thu, 01 Jan 99999 00:00:00 GMT",
        "Thu, 01 Jan 2026 00:00:00 +9999",
        "Thu, 01 Jan 2026 00:00:00 +99999999999999999999",
        "Fri, 31 Dec 9999 23:59:59 -9999",
        "9" * 400 + "d",
        "9" * 5000,
        "Thu, 41 Jan 2026 00:00:00 GMT",
    ]
)
names = st.sampled_from(
    ["Retry-After", "Date", "Burst-RateLimit-Reset"]
    + [f"RateLimit-{what}" for what in ("Limit", "Remaining", "Reset")]
)
moments = st.datetimes(
    datetime(2000, 1, 1),  # noqa: DTZ001 - the strategy wants them so
    datetime(2100, 1, 1),  # noqa: DTZ001 - the strategy wants them so
    timezones=st.just(UTC),
).map(lambda moment: moment.replace(microsecond=0))


@given(st.dictionaries(names, odd))
def test_invalid_headers_give_a_delay_or_none(headers):
    """No header makes reading it fail, and no delay is negative, infinite or not a number."""
    wait = retry_after(headers)
    assert wait is None or (math.isfinite(wait) and wait >= 0)
    renewed = daily_reset(headers)
    assert renewed is None or renewed.tzinfo is not None


@pytest.mark.parametrize(
    "told",
    [
        *(
            "-1",
            "",
            "soon",
            "1e9",
            "NaN",
            "-5s",
            "m",
            "99999d",
            "9" * 12,
            "9" * 400 + "d",
        ),
        "Mon, 01 Jan 2024 00:00:00 +99999999999999999999",
    ],
)
def test_an_invalid_delay_is_replaced_by_our_own_backoff(told):
    """An unusable Retry-After counts as absent: the delay is our own backoff, with its jitter."""
    assert retry_after({"Retry-After": told}) is None
    limit = RateLimitError("asking", status=429, message="", wait=None)
    waits = [
        RetryPolicy(first_delay=1.0, longest_delay=5.0).delay_before(
            n, limit, Random(1)
        )
        for n in (2, 3, 9)
    ]
    assert [0.5 <= waits[0] <= 1.0, 1.0 <= waits[1] <= 2.0, 2.5 <= waits[2] <= 5.0] == [
        True
    ] * 3


@pytest.mark.parametrize("kind", [RateLimitError, ServerError])
def test_a_delay_of_zero_is_kept_once(kind):
    """A limit that lasts for seconds does not use up all tries in a moment; other delays are always kept."""
    policy = RetryPolicy()
    now, soon = (kind("asking", status=429, message="", wait=wait) for wait in (0, 0.1))
    tries = range(2, policy.tries + 1)
    delays = [policy.delay_before(number, now, Random(number)) for number in tries]
    assert delays[0] == 0
    assert all(delay >= policy.first_delay for delay in delays[1:])
    assert sum(delays) > 5
    assert {policy.delay_before(number, soon, Random(1)) for number in tries} == {0.1}


@given(server=moments, ahead=st.integers(-100_000, 100_000))
def test_dates_and_resets_are_measured_by_the_server_clock(server, ahead):
    """A date and a reset count from the response's Date, whatever the local clock says."""
    date = format_datetime(server, usegmt=True)
    then = server + timedelta(seconds=ahead)
    assert retry_after(
        {"Date": date, "Retry-After": format_datetime(then, usegmt=True)}
    ) == max(0, ahead)
    reset = str(int(then.timestamp()))
    assert retry_after({"Date": date, "Burst-RateLimit-Reset": reset}) == min(
        60, max(0, ahead)
    )


def test_the_longest_delay_is_the_last_one():
    """Delays grow up to the longest one and stay there, for any number of tries."""
    policy = RetryPolicy(first_delay=1.0, longest_delay=4.0)
    failed = ServerError("asking", status=500, message="")
    assert all(policy.delay_before(n, failed, Random(n)) <= 4.0 for n in (5, 50, 2000))
