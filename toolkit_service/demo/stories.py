"""The failures of the fourteen days of the sample: one record each, small enough to keep in a file.

Six stories overlap: a steady background, a burst after a deploy, a slow leak, a noisy neighbour, a workflow
that is broken all the time, and a new failure of the last hours.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Final

import msgspec

from toolkit.base.errors import InputError

HOUR: Final = 3_600_000
"""One hour in milliseconds."""
DAYS: Final = 14
"""The number of days in the sample."""
SEED: Final = 20_250_601

STATES: Final = (
    "CALLBACK_INPROGRESS",
    "CALLBACK_SUCCESS",
    "CALLBACK_FAIL",
    "CALLBACK_CANCELED",
)

RETRY_DELAYS: Final = (12_182, 148_413, 1_808_042, 22_026_466, 86_400_000)
"""Milliseconds before retry 1, 2, …: min(86400 s, e^(2.5 n) s)."""

ODDITIES: Final = (
    "no_date",  # the response had no Date header
    "label_only",  # only the deprecated label, as older publishers send it
    "few_fields",  # most optional fields are absent
    "unknown_fields",  # fields that no specification names, one with an integer beyond 64 bits
    "binary_request",  # the body of the step is not UTF-8
    "secret_headers",  # headers and an address that contain (made up) secrets
    "empty_strings",  # optional strings are "" instead of absent
)


class Occurrence(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    """One failure of the sample. Ids and other made up values are derived from `number`.

    `at` is in milliseconds before now, `workflow` is the path below the address of the application, `state`
    is the state of the failure function, and `ip` is from the blocks reserved for documentation.
    """

    number: int
    at: int = 0
    story: str
    workflow: str
    cause: str
    retries: int = 0
    ip: str
    flow: str | None = None
    state: str | None = None
    labels: tuple[str, ...] = ()
    oddities: tuple[str, ...] = ()

    @property
    def created(self) -> int:
        """Return the time of creation of the message, in milliseconds before now."""
        return self.at + sum(RETRY_DELAYS[: self.retries])

    def to_row(self) -> dict[str, Any]:
        """Return JSON values, without empty ones."""
        row: dict[str, Any] = msgspec.to_builtins(self)
        return row

    @classmethod
    def from_row(cls, row: dict[str, Any]) -> Occurrence:
        """Return the occurrence of `to_row`. Raise InputError for other names."""
        try:
            return msgspec.convert(row, cls)
        except msgspec.ValidationError as error:
            expected = f"names out of {', '.join(cls.__struct_fields__)}"
            raise InputError(
                "reading a sample row", got=str(error), expected=expected
            ) from None


@dataclass(frozen=True, kw_only=True)
class _Story:
    name: str
    count: int
    workflows: tuple[str, ...]
    causes: tuple[tuple[str, int], ...]  # with weights
    retries: tuple[int, ...]
    labels: tuple[str, ...]
    ips: tuple[str, ...]
    flow: str | None = None


_PUBLISHERS: Final = (
    *(f"192.0.2.{last}" for last in (4, 7, 11, 18, 23, 42)),
    "198.51.100.9",
    "2001:db8::17",
)
_SHOP: Final = (
    "orders/fulfil",
    "orders/confirm",
    "invoices/send",
    "stock/reserve",
    "accounts/welcome",
    "ledger/post",
)

_STORIES: Final = (
    _Story(
        name="background",
        count=1320,
        workflows=(*_SHOP, "reports/render", "exports/nightly", "media/thumbnail"),
        causes=(
            ("html_gateway", 20),
            ("text_timeout", 18),
            ("json_conflict", 12),
            ("json_validation", 12),
            ("python_key_error", 9),
            ("python_chained", 9),
            ("java_caused_by", 8),
            ("js_error_json", 8),
            ("json_unauthorized", 6),
            ("text_refused", 6),
            ("html_maintenance", 5),
            ("text_disk", 3),
            ("binary_image", 3),
            ("binary_message", 3),
            ("latin1_text", 3),
            ("utf16_text", 1),
            ("text_empty", 2),
            ("json_big_number", 2),
            ("json_hostile", 1),
        ),
        retries=(3, 3, 3, 3, 1, 0, 5),
        labels=("shop", "eu", "us", "priority"),
        ips=_PUBLISHERS,
    ),
    _Story(
        name="burst",
        count=1150,
        workflows=("orders/fulfil",),
        causes=(("js_type_error", 24), ("js_error_json", 1)),
        retries=(3, 3, 3, 2),
        labels=("shop", "release-2.14"),
        ips=_PUBLISHERS,
    ),
    _Story(
        name="leak",
        count=720,
        workflows=("reports/render",),
        causes=(("java_memory", 9), ("text_timeout", 1)),
        retries=(3, 2, 5),
        labels=("reports", "batch"),
        ips=_PUBLISHERS[:3],
    ),
    _Story(
        name="neighbour",
        count=680,
        workflows=("stock/reserve", "orders/confirm", "exports/nightly"),
        causes=(("json_rate_limit", 1),),
        retries=(3, 1),
        labels=("bulk",),
        ips=("203.0.113.77",),
        flow="tenant-bulk-4411",
    ),
    _Story(
        name="broken",
        count=980,
        workflows=("legacy/sync",),
        causes=(("html_error", 12), ("html_gateway", 1)),
        retries=(1, 0),
        labels=("legacy",),
        ips=("192.0.2.200",),
    ),
    _Story(
        name="new",
        count=150,
        workflows=("payments/capture",),
        causes=(("go_panic", 1),),
        retries=(2, 1, 0),
        labels=("payments", "priority"),
        ips=_PUBLISHERS[2:6],
    ),
)


def occurrences(*, seed: int = SEED) -> list[Occurrence]:
    """Return the 5,000 failures of the sample, newest first, the same for the same seed.

    >>> result = occurrences()
    >>> len(result), result[0].story, result[-1].at <= 14 * 24 * HOUR
    (5000, 'new', True)
    """
    random = Random(seed)  # noqa: S311 - a sample that must be reproducible
    made: list[Occurrence] = []
    for story in _STORIES:
        for position in range(story.count):
            at = _TIMES[story.name](position, story.count, random)
            made.append(_occurrence(story, at, len(made) + 1, random))

    return sorted(made, key=lambda item: (item.at, item.number))


# The time of each failure of a story, in milliseconds before now. The first call of `random` comes first in
# all of them, even if a story does not need it: the sample depends on the order of the calls.


def _background(_: int, __: int, random: Random) -> int:
    """Spread failures over all days, more of them by day than by night (rejection sampling)."""
    span = DAYS * 24 * HOUR
    at = int(span * random.random())
    while random.random() > 0.6 + 0.4 * math.cos(2 * math.pi * at / (24 * HOUR)):
        at = random.randrange(span)
    return at


def _burst(_: int, __: int, random: Random) -> int:
    """Begin with a deploy 5 days and 4 hours ago, which was noticed and rolled back after some hours."""
    return int((5 * 24 + 4) * HOUR - 3.5 * HOUR * random.random() ** 2)


def _leak(_: int, __: int, random: Random) -> int:
    """Become more frequent over ten days: the square root gives a triangular distribution."""
    return int(10 * 24 * HOUR * (1 - math.sqrt(random.random()))) + 60_000


def _neighbour(position: int, _: int, random: Random) -> int:
    """Come in five waves of 25 minutes, for example when a tenant starts a large job."""
    wave = position % 5
    return (2 + 3 * wave) * 24 * HOUR - 7 * HOUR + int(random.random() * 25 * 60_000)


def _broken(position: int, count: int, random: Random) -> int:
    """Repeat all the time at nearly regular intervals, as a timer does."""
    random.random()
    span = DAYS * 24 * HOUR
    return min(span, int((position + 0.5) * span / count) + random.randrange(90_000))


def _new(_: int, __: int, random: Random) -> int:
    """Begin three hours ago."""
    return 30_000 + int(3 * HOUR * random.random())


_TIMES: Final[dict[str, Callable[[int, int, Random], int]]] = {
    "background": _background,
    "burst": _burst,
    "leak": _leak,
    "neighbour": _neighbour,
    "broken": _broken,
    "new": _new,
}


def _occurrence(story: _Story, at: int, number: int, random: Random) -> Occurrence:
    names, weights = zip(*story.causes, strict=True)
    retries = random.choice(story.retries)
    workflow = random.choice(story.workflows)
    cause = random.choices(names, weights)[0]
    ip = random.choice(story.ips)
    # a fifth of the other failures belong to one of eight small tenants
    flow = story.flow
    if flow is None and _chance(random, 0.2):
        flow = f"tenant-{random.randrange(1, 9)}"
    return Occurrence(
        number=number,
        at=at,
        story=story.name,
        workflow=workflow,
        cause=cause,
        retries=retries,
        ip=ip,
        flow=flow,
        state=_state(at, random),
        labels=tuple(label for label in story.labels if _chance(random, 0.6)),
        oddities=tuple(oddity for oddity in ODDITIES if _chance(random, 0.035)),
    )


def _state(at: int, random: Random) -> str | None:
    if _chance(random, 0.25):
        return None  # no failure function was set

    # failure functions of the last hour are likely to be still running
    weights = (50, 40, 8, 2) if at < HOUR else (2, 73, 18, 7)
    return random.choices(STATES, weights)[0]


def _chance(random: Random, share: float) -> bool:
    return random.random() < share
