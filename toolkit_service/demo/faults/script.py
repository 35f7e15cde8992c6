"""`FaultScript`: the faults of a script, and the requests that match them."""

from __future__ import annotations

import base64
import binascii
import json
import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from toolkit.base.errors import InputError

_MOST_PADDING: Final = 256 * 1024 * 1024
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}")
_UNSENDABLE: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]|[^\x00-\xff]")

Base64: TypeAlias = Annotated[str, Meta(max_length=64 * 1024 * 1024)]


class CutPoint(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A position in a response: a byte counted from the start, or a share of the body."""

    byte: Annotated[int, Meta(ge=0)] | None = None
    share: Annotated[float, Meta(ge=0, le=1)] | None = None

    def __post_init__(self) -> None:
        if (self.byte is None) == (self.share is None):
            raise ValueError("a position is either a byte or a share")


class Replacement(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Text in a body, and the replacement."""

    text: Annotated[str, Meta(min_length=1)]
    by: str = ""
    by_base64: Base64 | None = None

    def __post_init__(self) -> None:
        _decoded(self.by_base64, "by_base64")

    @property
    def instead(self) -> bytes:
        """Return the replacement as bytes."""
        if self.by_base64 is not None:
            return _decoded(self.by_base64, "by_base64")
        return self.by.encode()


class PageFault(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The faults of a page."""

    insert: Literal["empty", "previous"] | None = None
    overlap: Annotated[int, Meta(ge=0)] = 0
    order: Literal["reversed", "shuffled"] | None = None
    twice: bool = False
    extra: Annotated[int, Meta(ge=0, le=100_000)] = 0
    cursor: Literal["repeated", "first", "endless"] | None = None
    end: Literal["absent", "null", "empty"] | None = None


class Fault(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One entry of a script. The docstring of the package describes the fields."""

    route: Annotated[str, Meta(min_length=1, max_length=2000)]
    method: str | None = None
    first: Annotated[int, Meta(ge=1)] = 1
    times: Annotated[int, Meta(ge=1)] | None = 1
    status: Annotated[int, Meta(ge=200, le=599)] | None = None
    body: str | None = None
    body_base64: Base64 | None = None
    json: Any | UnsetType = UNSET
    headers: dict[str, str | None] = {}
    drop: tuple[str, ...] = ()
    replace: tuple[Replacement, ...] = ()
    pad: Annotated[int, Meta(ge=0, le=_MOST_PADDING)] = 0
    page: PageFault | None = None
    delay: Annotated[float, Meta(ge=0, le=3600)] = 0
    bytes_per_second: Annotated[float, Meta(gt=0)] | None = None
    gzip: Literal["whole", "corrupt", "wrong_crc", "no_trailer"] | None = None
    chunked: bool = False
    length_off: int = 0
    cut: CutPoint | None = None
    reset: CutPoint | None = None

    def __post_init__(self) -> None:
        bodies = (
            self.body is not None,
            self.body_base64 is not None,
            self.json is not UNSET,
        )
        if sum(bodies) > 1:
            raise ValueError("body, body_base64 and json exclude each other")
        if self.cut and self.reset:
            raise ValueError("cut and reset exclude each other")

        for name, text in self.headers.items():
            _check_header(name, text or "")
        # an error now rather than at the first request
        _decoded(self.body_base64, "body_base64")

    @property
    def calls_service(self) -> bool:
        """Return True if the service itself is called."""
        return self.status is None and self.own_body is None

    @property
    def own_body(self) -> bytes | None:
        """Return the body in the script, if it has one."""
        if self.json is not UNSET:
            return json.dumps(self.json).encode()
        if self.body_base64 is not None:
            return _decoded(self.body_base64, "body_base64")
        if self.body is not None:
            return self.body.encode()

        return None

    def matches(self, method: str, path: str) -> bool:
        """Return True if a request has this route and method."""
        return fnmatchcase(path, self.route) and self.method in (None, method)

    def is_due(self, number: int) -> bool:
        """Return True if the fault is applied to the matching request of this number, from 1."""
        if number < self.first:
            return False
        return self.times is None or number < self.first + self.times


@dataclass
class _CountedFault:
    """A fault, the number of requests that matched, and the number of requests with the fault."""

    fault: Fault
    requests: int = 0
    struck: int = 0

    def shown(self) -> dict[str, Any]:
        fault = msgspec.to_builtins(self.fault)
        return {"fault": fault, "requests": self.requests, "struck": self.struck}


class FaultScript:
    """The faults of a service, with the number of requests that matched each and that it was applied to.

    >>> script = FaultScript()
    >>> script.put({"faults": [{"route": "/v2/*", "first": 2, "status": 503}]})
    >>> script.strike("GET", "/v2/dlq") is None, script.strike("GET", "/v2/dlq").status
    (True, 503)
    >>> script.shown()["faults"][0]["requests"]
    2
    """

    def __init__(self) -> None:
        # the number of scripts so far, each of which replaced the previous one
        self.given = 0
        self._counted: list[_CountedFault] = []

    def put(self, document: Any) -> None:
        """Replace the script, ``{"faults": [{…}, …]}``. Raise InputError if it is malformed."""
        is_script = isinstance(document, dict) and set(document) == {"faults"}
        if not is_script or not isinstance(document["faults"], list):
            raise _error(
                "another value", "an object with the one field 'faults', an array"
            )

        entries = document["faults"]
        self._counted = [
            _CountedFault(_fault(entry, position))
            for position, entry in enumerate(entries)
        ]
        self.given += 1

    def clear(self) -> None:
        """Remove all faults."""
        self.put({"faults": []})

    def shown(self) -> dict[str, Any]:
        """Return the script with counts, as JSON values."""
        return {"faults": [counted.shown() for counted in self._counted]}

    def strike(self, method: str, path: str) -> Fault | None:
        """Count a request, and return the fault that is applied to it."""
        applied: Fault | None = None
        # all faults count the request, even if another one is applied
        for counted in self._counted:
            if not counted.fault.matches(method, path):
                continue
            counted.requests += 1
            if applied is None and counted.fault.is_due(counted.requests):
                applied = counted.fault
                counted.struck += 1

        return applied

    def has_pages(self, method: str, path: str) -> bool:
        """Return True if a fault needs the earlier pages of this listing."""
        with_pages = [
            counted.fault for counted in self._counted if counted.fault.page is not None
        ]
        return any(fault.matches(method, path) for fault in with_pages)


def _fault(entry: Any, position: int) -> Fault:
    try:
        return msgspec.convert(entry, Fault)
    except (msgspec.ValidationError, RecursionError) as error:
        expected = "a fault as toolkit_service.demo.faults describes it"
        raise _error(f"fault {position}: {str(error)[:300]}", expected) from None


def _decoded(text: str | None, name: str) -> bytes:
    try:
        return base64.b64decode(text or "", validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"{name} is not base64") from None


def _check_header(name: str, text: str) -> None:
    if not _HEADER_NAME.fullmatch(name) or _UNSENDABLE.search(text):
        raise ValueError(f"the header {name[:80]!r} cannot be sent")


def _error(got: str, expected: str) -> InputError:
    return InputError("reading a fault script", got=got, expected=expected)
