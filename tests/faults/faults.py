"""The table of faults: each damages some responses of a run, chosen by the number of the request.

What a fault may cost is part of the table: whether a load must survive it, and whether it may then be in
doubt.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from email.utils import formatdate
from random import Random
from typing import TYPE_CHECKING, Any

from collection import position_of
from wire import Exchange

if TYPE_CHECKING:
    from model_service import ModelService

SERVER_TIME = 1_767_229_200  # an hour off whatever the local clock says: waits are measured by this one


@dataclass
class Turn:
    """One request for a page, and the response that faults may change.

    Attributes
    ----------
    service : ModelService
    number : int
        Of the request, from 1.
    after : tuple or None
        The position after which the page begins.
    cursor : str or None
        As it came with the request.
    chain : str
        The listing this page belongs to: the request without its cursor.
    rows : list of bytes
    following : str or None
        Cursor of the next page.
    accepted : str
        Codings that the client accepts.
    raw : bytes or None
        Sent instead of the page.
    kept : float
        The share of the page's JSON that is sent, in a response that is whole otherwise.
    """

    service: ModelService
    number: int
    after: Any
    cursor: str | None
    chain: str
    rows: list[bytes]
    following: str | None
    accepted: str = ""
    response: Exchange = field(default_factory=Exchange)
    raw: bytes | None = None
    kept: float = 1.0


@dataclass
class Fault:
    """A fault of one run.

    Attributes
    ----------
    name : str
    spoil : callable
        Changes the turn.
    first, times : int
        The first request it happens to, and to how many in a row.
    survived : bool
        Whether a load has to come through (unless too many things happen to one request).
    doubt : bool
        Whether a load that comes through may say that it is not complete.
    tries, wait : float
        What it costs of a request's tries, and of its time.
    exact : bool
        Whether exactly that wait was requested.
    """

    name: str
    spoil: Callable[[Turn], None]
    first: int = 1
    times: int = 1
    survived: bool = True
    doubt: bool = False
    tries: int = 0
    wait: float = 0.0
    exact: bool = False
    happened: int = 0

    def take(self, turn: Turn) -> None:
        """Spoil the turn, if it is its turn."""
        if self.first <= turn.number < self.first + self.times:
            self.happened += 1
            self.spoil(turn)


def draw(random: Random, last: int) -> Fault:
    """A fault, at one of the first requests."""
    name = random.choice(list(TABLE))
    fault = TABLE[name](random)
    fault.name = name
    fault.first = random.randint(1, max(1, last))
    return fault


def _status(status: int, **headers: str) -> Callable[[Turn], None]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}

    def spoil(turn: Turn) -> None:
        turn.response.status = status
        turn.response.headers |= named
        turn.raw = b'{"error": "not now"}'

    return spoil


def _limited(wait: float, **headers: str) -> Callable[[Random], Fault]:
    return _asked_to_wait(429, wait, **headers)


def _asked_to_wait(
    status: int, wait: float, **headers: str
) -> Callable[[Random], Fault]:
    return lambda _: Fault(
        "",
        _status(status, Date=_date(0), **headers),
        survived=wait <= 60,
        tries=1,
        wait=wait,
        exact=bool(headers) and headers.get("Retry_After") != "-1",
    )


def _date(offset: float) -> str:
    return formatdate(SERVER_TIME + offset, usegmt=True)


def _wire(tries: int = 1, **changes: Any) -> Callable[[Random], Fault]:
    def spoil(turn: Turn) -> None:
        for name, value in changes.items():
            setattr(turn.response, name, value)

    def made(random: Random) -> Fault:
        times = random.choice([1, 1, 2]) if tries else 1
        return Fault("", spoil, times=times, tries=tries * times)

    return made


def _zstd(coding: str, tries: int) -> Callable[[Random], Fault]:
    def spoil(turn: Turn) -> None:
        if "zstd" in turn.accepted:
            turn.response.coding = coding

    return lambda _: Fault("", spoil, tries=tries)


def _part(random: Random, *, reset: bool) -> Fault:
    share = random.randint(0, 15) / 16
    return _wire(stop=share, reset=reset)(random)


def _raw(body: bytes, **headers: str) -> Callable[[Random], Fault]:
    def spoil(turn: Turn) -> None:
        turn.raw = body
        turn.response.headers |= {
            name.replace("_", "-"): value for name, value in headers.items()
        }

    return lambda _: Fault("", spoil, tries=1)


def _truncated(random: Random) -> Fault:
    share = random.random()

    def spoil(turn: Turn) -> None:
        turn.kept = share

    return Fault("", spoil, tries=1)


def _refused(_: Random) -> Fault:
    def spoil(turn: Turn) -> None:
        turn.service.server.refuse(turn.service.clock.at_next_sleep)

    return Fault("", spoil, tries=2)


def _slow(_: Random) -> Fault:
    def spoil(turn: Turn) -> None:
        turn.response.dawdle = lambda: turn.service.clock.pass_by(61)

    return Fault("", spoil, tries=1, wait=61)


def _again(turn: Turn) -> None:
    """The previous page of the listing once more; its cursor leads to the page that was requested."""
    before = turn.service.last.get(turn.chain)
    if before is not None and turn.cursor is not None:
        turn.rows, turn.following = before, turn.service.token(turn.after)


def _empty(turn: Turn) -> None:
    turn.rows, turn.following = [], turn.service.token(turn.after)


def _reorder(turn: Turn) -> None:
    turn.service.random.shuffle(turn.rows)


def _repeat(turn: Turn) -> None:
    turn.following = turn.cursor or turn.following


def _round(turn: Turn) -> None:
    first = turn.service.first.get(turn.chain)
    # back, never forward: a cursor that leaves entries out cannot be distinguished from one that does not
    if first and turn.following:
        back, on = position_of(first)[0], position_of(turn.following)[0]
        if back is None or (on is not None and back <= on):
            turn.following = first


def _endless(turn: Turn) -> None:
    if turn.following is None:
        turn.following = turn.service.token(turn.service.beyond)


def _expire(turn: Turn) -> None:
    turn.service.oldest_cursor = turn.number
    if turn.cursor is not None:
        _status(turn.service.random.choice([400, 404, 410]))(turn)


def _renew(turn: Turn) -> None:
    turn.service.wanted_token = "renewed"
    _status(401)(turn)


def _end(end: str) -> Callable[[Random], Fault]:
    def spoil(turn: Turn) -> None:
        turn.service.end = end

    return lambda _: Fault("", spoil)


def _pad(size: int, *, survived: bool) -> Callable[[Random], Fault]:
    def spoil(turn: Turn) -> None:
        turn.service.padding = size
        turn.response.coding = "gzip"

    return lambda _: Fault("", spoil, survived=survived, tries=0 if survived else 1)


def _page(spoil: Callable[[Turn], None], **options: Any) -> Callable[[Random], Fault]:
    return lambda random: Fault("", spoil, times=random.choice([1, 1, 2, 5]), **options)


def _overlap(random: Random) -> Fault:
    def spoil(turn: Turn) -> None:
        turn.service.back = random.randint(1, 9)

    return Fault("", spoil, times=random.choice([1, 3, 1000]), doubt=True)


def _more(turn: Turn) -> None:
    turn.service.surplus_rows = 40


def _fails(status: int, times: int) -> Callable[[Random], Fault]:
    few = times < 6
    return lambda _: Fault(
        "",
        _status(status),
        times=times,
        survived=few,
        tries=times,
        wait=0.25 * 2**times,
    )


TABLE: dict[str, Callable[[Random], Fault]] = {
    "429, Retry-After 0": _limited(0, Retry_After="0"),
    "429, Retry-After 2": _limited(2, Retry_After="2"),
    "429, Retry-After as a date": _limited(3, Retry_After=_date(3)),
    "429, Retry-After in the past": _limited(0, Retry_After=_date(-50)),
    "429, Retry-After -1": _limited(1, Retry_After="-1"),
    "429, Retry-After 1e9": _limited(1e9, Retry_After="1000000000"),
    "429, Retry-After 6m5s": _limited(365, Retry_After="6m5s"),
    "429, no time said": _limited(1),
    "503, Retry-After 2": _asked_to_wait(503, 2, Retry_After="2"),
    "503, Retry-After as a date": _asked_to_wait(503, 3, Retry_After=_date(3)),
    "503, Retry-After 1e9": _asked_to_wait(503, 1e9, Retry_After="1000000000"),
    "429, burst limit": _limited(5, Burst_RateLimit_Reset=str(SERVER_TIME + 5)),
    "429, burst limit beyond a minute": _limited(
        60, Burst_RateLimit_Reset=str(SERVER_TIME + 7200)
    ),
    "429, daily limit": lambda _: Fault(
        "",
        _status(
            429,
            Date=_date(0),
            RateLimit_Limit="100",
            RateLimit_Remaining="0",
            RateLimit_Reset="1767300000",
        ),
        survived=False,
        tries=1,
    ),
    "500": _fails(500, 1),
    "502, twice": _fails(502, 2),
    "503, three times": _fails(503, 3),
    "504, for ever": _fails(504, 1000),
    "refused": _refused,
    "reset before the first byte": _wire(stop=-1.0, reset=True),
    "reset inside the head": _wire(stop=-0.6, reset=True),
    "closed inside the head": _wire(stop=-0.4),
    "reset inside the body": lambda random: _part(random, reset=True),
    "cut inside the body": lambda random: _part(random, reset=False),
    "cut inside a chunk": _wire(stop=0.6, chunked=True),
    "cut, and no length was given": _wire(stop=0.7, close=True),
    "more promised than sent": _wire(surplus=100),
    "chunked": _wire(0, chunked=True),
    "gzip": _wire(0, coding="gzip"),
    "gzip, two members": _wire(0, coding="members"),
    "zstd": _zstd("zstd", 0),
    "zstd, cut": _zstd("zstd cut", 1),
    "gzip, corrupt": _wire(coding="corrupt"),
    "gzip, wrong checksum": _wire(coding="crc"),
    "gzip, no trailer": _wire(coding="trailer"),
    "gzip, no trailer, chunked": _wire(coding="trailer", chunked=True),
    "HTML with 200": _raw(b"<html><body>busy</body></html>", Content_Type="text/html"),
    "an empty body with 200": _raw(b""),
    "an empty object": _raw(b"{}"),
    "no rows": _raw(b'{"cursor": "", "result": {"nextCursor": ""}}'),
    "a null page": _raw(b'{"messages": null, "result": {"vectors": null}}'),
    "JSON truncated inside a right length": _truncated,
    "a byte a second": _slow,
    "a page of a megabyte": _pad(1_000_000, survived=True),
    "a decompression bomb": _pad(12_000_000, survived=False),
    "more rows than asked for": _page(_more),
    "a page twice": _page(_again, doubt=True),
    "overlapping pages": _overlap,
    "rows in another order": _page(_reorder),
    "an empty page with a cursor": _page(_empty),
    "the same cursor again": _page(_repeat, survived=False, doubt=True),
    "cursors that go round": _page(_round, survived=False, doubt=True),
    "ends that are none": _page(_endless, doubt=True),
    "an end without a cursor": _end("absent"),
    "an end of null": _end("null"),
    "cursors expire": lambda _: Fault("", _expire, survived=False, doubt=True),
    "the token expires": lambda _: Fault("", _renew, survived=False),
    "a redirect": lambda _: Fault(
        "", _status(302, Location="http://127.0.0.1:9/trap"), survived=False, tries=1
    ),
}
