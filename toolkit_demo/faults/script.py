"""`FaultScript`: which requests meet which faults; read strictly, counted as requests come."""

from __future__ import annotations

import base64
import binascii
import json
import re
from fnmatch import fnmatchcase
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from toolkit.errors import InputError

_MOST_PADDING: Final = 256 * 1024 * 1024
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}")
_UNSENDABLE: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]|[^\x00-\xff]")

Base64: TypeAlias = Annotated[str, Meta(max_length=64 * 1024 * 1024)]


class CutPoint(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A position in a response: a byte counted from its start, or a share of its body."""

    byte: Annotated[int, Meta(ge=0)] | None = None
    share: Annotated[float, Meta(ge=0, le=1)] | None = None

    def __post_init__(self) -> None:
        if (self.byte is None) == (self.share is None):
            raise ValueError("a position is either a byte or a share")


class Replacement(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Text in a body, and what replaces it."""

    text: Annotated[str, Meta(min_length=1)]
    by: str = ""
    by_base64: Base64 | None = None

    def __post_init__(self) -> None:
        _decoded(self.by_base64, "by_base64")

    @property
    def instead(self) -> bytes:
        """What replaces it, as bytes."""
        return _decoded(self.by_base64, "by_base64") if self.by_base64 is not None else self.by.encode()


class PageFault(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What is wrong with a page."""

    insert: Literal["empty", "previous"] | None = None
    overlap: Annotated[int, Meta(ge=0)] = 0
    order: Literal["reversed", "shuffled"] | None = None
    twice: bool = False
    extra: Annotated[int, Meta(ge=0, le=100_000)] = 0
    cursor: Literal["repeated", "first", "endless"] | None = None
    end: Literal["absent", "null", "empty"] | None = None


class Fault(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One entry of a script; the package's docstring says what its fields mean."""

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
        bodies = (self.body is not None, self.body_base64 is not None, self.json is not UNSET)
        if sum(bodies) > 1:
            raise ValueError("body, body_base64 and json exclude each other")
        if self.cut and self.reset:
            raise ValueError("cut and reset exclude each other")
        for name, value in self.headers.items():
            if not _HEADER_NAME.fullmatch(name) or _UNSENDABLE.search(value or ""):
                raise ValueError(f"the header {name[:80]!r} cannot be sent")
        _decoded(self.body_base64, "body_base64")

    @property
    def calls_service(self) -> bool:
        """Whether the service itself is called."""
        return self.status is None and self.own_body is None

    @property
    def own_body(self) -> bytes | None:
        """The body of the script."""
        if self.json is not UNSET:
            return json.dumps(self.json).encode()
        if self.body_base64 is not None:
            return _decoded(self.body_base64, "body_base64")
        return None if self.body is None else self.body.encode()

    def matches(self, method: str, path: str) -> bool:
        """Whether a request is one of those that are counted."""
        return fnmatchcase(path, self.route) and self.method in (None, method)

    def is_due(self, number: int) -> bool:
        """Whether it is applied to the matching request of this number, from 1."""
        return self.first <= number and (self.times is None or number < self.first + self.times)


class FaultScript:
    """The faults of a service, and how many requests each has seen and was applied to.

    >>> script = FaultScript()
    >>> script.put({"faults": [{"route": "/v2/*", "first": 2, "status": 503}]})
    >>> script.strike("GET", "/v2/dlq") is None, script.strike("GET", "/v2/dlq").status
    (True, 503)
    >>> script.shown()["faults"][0]["requests"]
    2
    """

    def __init__(self) -> None:
        self.given = 0  # how often a script was given
        self._faults: tuple[Fault, ...] = ()
        self._seen: list[int] = []
        self._struck: list[int] = []

    def put(self, values: Any) -> None:
        """Replace the script, ``{"faults": [{…}, …]}``; an `InputError` for a malformed one."""
        if (
            not isinstance(values, dict)
            or set(values) != {"faults"}
            or not isinstance(values["faults"], list)
        ):
            raise _error("another value", "an object with the one field 'faults', an array")
        self._faults = tuple(_fault(value, position) for position, value in enumerate(values["faults"]))
        self.given += 1
        self._seen = [0] * len(self._faults)
        self._struck = [0] * len(self._faults)

    def clear(self) -> None:
        """Remove all faults."""
        self.put({"faults": []})

    def shown(self) -> dict[str, Any]:
        """The script with its counts, as JSON values."""
        return {
            "faults": [
                {"fault": msgspec.to_builtins(fault), "requests": seen, "struck": struck}
                for fault, seen, struck in zip(self._faults, self._seen, self._struck, strict=True)
            ]
        }

    def strike(self, method: str, path: str) -> Fault | None:
        """Count a request; returns the fault that it meets."""
        met: Fault | None = None
        for position, fault in enumerate(self._faults):
            if not fault.matches(method, path):
                continue
            self._seen[position] += 1
            if met is None and fault.is_due(self._seen[position]):
                met = fault
                self._struck[position] += 1
        return met

    def has_pages(self, method: str, path: str) -> bool:
        """Whether pages of this listing have to be remembered."""
        return any(fault.page is not None and fault.matches(method, path) for fault in self._faults)


def _fault(value: Any, position: int) -> Fault:
    try:
        return msgspec.convert(value, Fault)
    except (msgspec.ValidationError, RecursionError) as error:
        raise _error(f"fault {position}: {str(error)[:300]}", "what toolkit_demo.faults describes") from None


def _decoded(text: str | None, name: str) -> bytes:
    try:
        return base64.b64decode(text or "", validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"{name} is not base64") from None


def _error(got: str, expected: str) -> InputError:
    return InputError("reading a fault script", got=got, expected=expected)
