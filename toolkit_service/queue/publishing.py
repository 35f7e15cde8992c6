"""Read the settings of a publish from headers with either prefix, and name malformed headers in errors.

For example, ``Service-Retries: 1`` sets the retries of the message, ``Service-Callback-Retries: 1`` the
retries of the callback, and ``Service-Forward-X-Id: 7`` becomes the header ``X-Id: 7`` of the delivery.
"""

from __future__ import annotations

import ast
import hashlib
import math
import operator
import re
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

import msgspec
from msgspec.structs import replace

from toolkit.base.errors import InputError
from toolkit.base.times import DAY_MS, duration_ms
from toolkit_service.api import ApiError, invalid
from toolkit_service.queue.destinations import check_url
from toolkit_service.queue.messages import (
    DEFAULT_RETRIES,
    NO_ORIGIN,
    FlowLimits,
    Kind,
    Message,
    Origin,
    Settings,
    WorkflowHeaders,
    new_id,
)

MAX_EXPRESSION: Final = 256
"""Longest expression, in characters. It also limits how deep calls can nest."""

Term: TypeAlias = Callable[[float], float]

# The words of an expression: numbers, names, commas, operators and parentheses. Python's parser reads the
# expression afterwards, and would accept much more, for example strings, attributes and 1_000.
_TEXT: Final = re.compile(
    r"(?:[ \t]*(?:[0-9]{1,20}(?:\.[0-9]{1,20})?(?![\w.])|[a-z]+(?![\w.])|,(?![ \t]*\))|[-+*/()]))*[ \t]*"
)
# leading zeros, an error in Python
_ZEROS: Final = re.compile(r"(?<![\w.])0+(?=[0-9])")
_OPERATORS: Final[dict[type[ast.operator], Callable[[float, float], float]]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
}  # fmt: skip
_FUNCTIONS: Final[dict[str, tuple[range, Callable[..., float]]]] = {
    "pow": (range(2, 3), math.pow),
    "min": (range(1, 65), lambda *values: min(values)),
    "max": (range(1, 65), lambda *values: max(values)),
} | {
    function.__name__: (range(1, 2), function)
    for function in (math.sqrt, abs, math.exp, math.floor, math.ceil, round)
}


class RetryDelay:
    """A parsed Retry-Delay expression.

    Raises `InputError` if the expression does not parse, is too long or names an unknown function.

    >>> RetryDelay("1000 * (1 + retried)")(2), RetryDelay("pow(2, retried) * 500")(3)
    (3000, 4000)
    """

    def __init__(self, text: str) -> None:
        if len(text) > MAX_EXPRESSION:
            raise _refused(f"{len(text)} characters", f"at most {MAX_EXPRESSION}")

        unknown = _refused(
            f"{text[:80]!r}, which does not parse", "arithmetic over retried"
        )
        if not _TEXT.fullmatch(text):
            raise unknown

        try:
            self._term = _term(
                ast.parse(_ZEROS.sub("", text.strip()), mode="eval").body
            )
        except SyntaxError:
            raise unknown from None

    def __call__(self, retried: int) -> int:
        """Return the milliseconds before the next retry, at least 0.

        Raise `InputError` if the expression has no finite value.
        """
        try:
            delay = float(self._term(float(retried)))
        except (ArithmeticError, ValueError) as error:
            raise _refused(
                f"no value for retried = {retried} ({error})", "a finite number"
            ) from None

        if not math.isfinite(delay):
            raise _refused(f"{delay} for retried = {retried}", "a finite number")

        return max(0, round(delay))


def _term(node: ast.expr) -> Term:
    """Return the function of `retried` that a part of an expression means.

    The tree that Python's parser made is translated into nested functions, and never evaluated as Python.
    For example, ``2 * retried`` becomes ``lambda retried: mul(2.0, retried)``. Raise SyntaxError for all
    other kinds of nodes.
    """
    is_negative, operand = _without_signs(node)
    term = _unsigned_term(operand)
    return _applied(operator.neg, term) if is_negative else term


def _without_signs(node: ast.expr) -> tuple[bool, ast.expr]:
    """Remove leading signs in a loop: as calls, 256 of them would nest too deep."""
    is_negative = False
    while isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.UAdd | ast.USub):
        if isinstance(node.op, ast.USub):
            is_negative = not is_negative
        node = node.operand

    return is_negative, node


def _unsigned_term(node: ast.expr) -> Term:
    match node:
        case ast.Constant(value=int() | float() as number):
            return _constant(float(number))
        case ast.Name(id="retried"):
            return float
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _applied(_OPERATORS[type(op)], _term(left), _term(right))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
            return _applied(_function(name, len(arguments)), *map(_term, arguments))
        case _:
            raise SyntaxError


def _function(name: str, argument_count: int) -> Callable[..., float]:
    if name not in _FUNCTIONS:
        raise _refused(f"the function {name[:40]!r}", f"one of {', '.join(_FUNCTIONS)}")

    counts, function = _FUNCTIONS[name]
    if argument_count not in counts:
        raise _refused(
            f"{name} with {argument_count} arguments", f"{counts[0]} to {counts[-1]}"
        )

    return function


def _constant(number: float) -> Term:
    return lambda _: number


def _applied(function: Callable[..., float], *terms: Term) -> Term:
    return lambda retried: function(*(term(retried) for term in terms))


def _refused(got: str, expected: str) -> InputError:
    return InputError("reading a Retry-Delay expression", got=got, expected=expected)


PREFIXES: Final = ("Service-", "Upstash-")
MAX_RETRIES: Final = 100
MAX_WAIT_MS: Final = 10 * 365 * DAY_MS
_CALLBACKS: Final = ("callback-", "failure-callback-")  # prefixes of their settings
_METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}")
# invalid in an HTTP header value: control characters, and all characters beyond Latin-1
_UNSENDABLE: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]|[^\x00-\xff]")
_REDACTABLE: Final = re.compile(r"body|headers?|header\[[^\[\]]+\]", re.IGNORECASE)
# these headers belong to one connection, or would contradict the body that is sent
_NOT_FORWARDED: Final = frozenset({
    "host", "content-length", "connection", "transfer-encoding", "accept-encoding", "keep-alive", "te",
    "trailer", "upgrade",
})  # fmt: skip


_FORWARD: Final = "forward-"

PUBLISH_HEADERS: Final = {
    "Service-Method": "Method of the delivery (POST).",
    "Service-Timeout": "Longest delivery, for example 30s.",
    "Service-Retries": "How often a failed delivery is retried (3).",
    "Service-Retry-Delay": "Milliseconds before a retry, as an expression over `retried`.",
    "Service-Delay": "Wait before the first delivery, for example 1d10h30m.",
    "Service-Not-Before": "Time of the first delivery, in Unix seconds.",
    "Service-Label": "Labels, separated by commas.",
    "Service-Flow-Control-Key": "Messages of one key are limited together.",
    "Service-Flow-Control-Value": "parallelism=, rate= and period=.",
    "Service-Deduplication-Id": "Messages with the same id within ten minutes are one message.",
    "Service-Content-Based-Deduplication": "true or false.",
    "Service-Callback": "URL that receives every response; Service-Callback-* are its settings.",
    "Service-Failure-Callback": "URL called after all retries; Service-Failure-Callback-* are its settings.",
    "Service-Redact-Fields": "body, headers or header[Name], separated by commas.",
}
"""Descriptions of the publish headers, for the OpenAPI document."""


class Publish(msgspec.Struct, frozen=True):
    """One publish, read and checked, before it has an id."""

    settings: Settings
    prefix: str
    body: bytes
    callback: Settings | None
    failure_callback: Settings | None
    redact: tuple[str, ...]
    deduplication: str | None
    origin: Origin = NO_ORIGIN

    def message(self, kind: Kind, **more: Any) -> Message:
        """Return the message with a new id; `more` are the other fields of the message."""
        fields = {"body": self.body, "callback": self.callback} | more
        return Message(
            id=new_id("msg"),
            kind=kind,
            prefix=self.prefix,
            settings=self.settings,
            failure_callback=self.failure_callback,
            redact=self.redact,
            origin=self.origin,
            **fields,
        )


def read_publish(
    url: str,
    headers: Iterable[tuple[str, str]],
    body: bytes,
    *,
    prefix: str = PREFIXES[0],
) -> Publish:
    """Read one publish to a URL. Raise an `ApiError` that names the header if one is malformed.

    Headers without a known prefix are ignored, except Content-Type. If no header has a prefix, the delivery
    uses `prefix`.

    >>> read_publish("http://127.0.0.1/a", [("Service-Retries", "1")], b"").settings.retries
    1
    """
    published = _Headers(prefix)
    for name, header_value in headers:
        published.add(name, header_value)

    main = _Scope(published.scopes[""])
    settings = _settings(main, check_url(url, "destination"))

    if published.content_type:
        others = [
            header for header in settings.headers if header[0].lower() != "content-type"
        ]
        settings = replace(
            settings, headers=(("Content-Type", published.content_type), *others)
        )

    return Publish(
        settings=settings,
        prefix=published.prefix,
        body=body,
        callback=_callback(main, "callback", published.scopes["callback-"]),
        failure_callback=_callback(
            main, "failure-callback", published.scopes["failure-callback-"]
        ),
        redact=_redact(main),
        deduplication=_deduplication(main, url, settings, body),
    )


class _Headers:
    """The headers of one publish, sorted by scope: the message, the callback and the failure callback."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.content_type = ""
        self.scopes: dict[str, list[tuple[str, str, str]]] = {
            "": [],
            "callback-": [],
            "failure-callback-": [],
        }

    def add(self, name: str, header_value: str) -> None:
        """Add a header: full name, the name within the scope, and the value."""
        if _UNSENDABLE.search(header_value) or not _TOKEN.fullmatch(name):
            expected = "a plain name, and a value in Latin-1"
            got = "characters that HTTP does not allow"
            raise invalid(f"header {name[:80]!r} is malformed", got, expected)

        lower_name = name.lower()
        if lower_name == "content-type":
            # the only setting without a prefix
            self.content_type = header_value

        for prefix in PREFIXES:
            if lower_name.startswith(prefix.lower()):
                # the delivery uses the prefix of the publish
                self.prefix = prefix
                scope, key = _scope_of(name[len(prefix) :])
                self.scopes[scope].append((name, key, header_value.strip()))


def _scope_of(key: str) -> tuple[str, str]:
    """Split the name of a header into the scope and the remaining name.

    For example, ``Callback-Retries`` is ``Retries`` in the scope ``callback-``.
    """
    for scope in _CALLBACKS:
        if key.lower().startswith(scope):
            return scope, key[len(scope) :]
    return "", key


class _Scope:
    """The headers of one scope: full name (for errors) and value by the remaining name in lower case."""

    def __init__(self, headers: list[tuple[str, str, str]]) -> None:
        self.values: dict[str, tuple[str, str]] = {}
        self.forwarded: tuple[tuple[str, str], ...] = ()
        for name, key, header_value in headers:
            self.values[key.lower()] = (name, header_value)
            if not key.lower().startswith(_FORWARD):
                continue
            forwarded_name = key[len(_FORWARD) :]
            if forwarded_name.lower() not in _NOT_FORWARDED:
                self.forwarded += ((forwarded_name, header_value),)

    def text(self, key: str) -> str | None:
        """Return the value of a header, or None if it is missing."""
        if key not in self.values:
            return None

        _, header_value = self.values[key]
        return header_value

    def error(self, key: str, expected: str) -> ApiError:
        """Return the error of a malformed header."""
        name, header_value = self.values[key]
        return invalid(
            f"header {name} is not understood", repr(header_value[:80]), expected
        )

    def duration(self, key: str) -> int | None:
        """Return a duration in milliseconds."""
        text = self.text(key)
        if text is None:
            return None

        duration = duration_ms(text)
        if duration is None or duration > MAX_WAIT_MS:
            raise self.error(
                key, "a duration such as 50s or 1d10h30m, of at most ten years"
            )

        return duration

    def whole(self, key: str, low: int, high: int) -> int | None:
        """Return a whole number from `low` to `high`."""
        text = self.text(key)
        if text is None:
            return None
        if not re.fullmatch(r"[0-9]{1,18}", text) or not low <= int(text) <= high:
            raise self.error(key, f"a whole number from {low} to {high}")

        return int(text)

    def flag(self, key: str) -> bool:
        """Return True for ``true``, False for ``false`` or a missing header."""
        text = (self.text(key) or "false").lower()
        if text not in ("true", "false"):
            raise self.error(key, "true or false")

        return text == "true"

    def words(self, key: str) -> tuple[str, ...]:
        """Return the unique, nonempty parts of a list that is separated by commas."""
        parts = [part.strip() for part in (self.text(key) or "").split(",")]
        return tuple(dict.fromkeys(filter(None, parts)))


def _settings(scope: _Scope, url: str) -> Settings:
    method = scope.text("method")
    if method is not None:
        method = method.upper()
        if method not in _METHODS:
            raise scope.error("method", f"one of {', '.join(_METHODS)}")

    timeout = scope.duration("timeout")
    if timeout == 0:
        raise scope.error("timeout", "more than nothing")

    not_before = scope.whole("not-before", 0, _LAST_SECOND)
    if not_before is not None:
        not_before *= 1000
    retries = scope.whole("retries", 0, MAX_RETRIES)

    return Settings(
        url=url,
        method=method,
        headers=scope.forwarded,
        timeout_ms=timeout,
        retries=retries,
        retry_delay=_retry_delay(scope, retries),
        delay_ms=scope.duration("delay"),
        not_before=not_before,
        labels=scope.words("label"),
        flow_key=scope.text("flow-control-key") or None,
        flow=_flow(scope),
        workflow=_workflow(scope, url),
    )


_LAST_SECOND: Final = 253_402_300_799  # the end of the year 9999, in Unix seconds


def _retry_delay(scope: _Scope, retries: int | None) -> str | None:
    """Return the expression after trying it for each retry.

    For example, 1 / (2 - retried) has no value at the third retry.
    """
    expression = scope.text("retry-delay")
    if expression is None:
        return None

    if retries is None:
        retries = DEFAULT_RETRIES
    try:
        delay = RetryDelay(expression)
        for retried in range(retries):
            delay(retried)
    except InputError as error:
        name, _ = scope.values["retry-delay"]
        raise invalid(
            f"header {name} is not understood", str(error.got), str(error.expected)
        ) from None

    return expression


def _flow(scope: _Scope) -> FlowLimits | None:
    """Return the limits of a value such as ``parallelism=2, rate=10, period=1m``."""
    text = scope.text("flow-control-value")
    if text is None:
        return None
    if "flow-control-key" not in scope.values:
        raise scope.error("flow-control-value", "a Flow-Control-Key as well")

    limits = _named_limits(text)
    if limits is None:
        raise scope.error(
            "flow-control-value", "parallelism=, rate= and period=, each at most once"
        )

    period = duration_ms(limits.pop("period", "1s"))
    if not period or not all(map(_COUNT.fullmatch, limits.values())):
        raise scope.error(
            "flow-control-value", "whole numbers above 0, and a period such as 1m"
        )

    counts = {name: int(count) for name, count in limits.items()}
    return FlowLimits(period_ms=period, **counts)


def _named_limits(text: str) -> dict[str, str] | None:
    """Split a value into limits by name. Return None if a name is unknown or repeated."""
    limits: dict[str, str] = {}
    for part in text.split(","):
        name, equals, limit = part.partition("=")
        name = name.strip().lower()
        if not equals or name not in _LIMITS or name in limits:
            return None
        limits[name] = limit.strip()

    return limits


_LIMITS: Final = ("parallelism", "rate", "period")
_COUNT: Final = re.compile(r"[1-9][0-9]{0,8}")


def _workflow(scope: _Scope, url: str) -> WorkflowHeaders | None:
    run_id = scope.text("workflow-runid")
    if not run_id:
        return None

    if len(run_id) > _MAX_RUN_ID or "," in run_id:
        raise scope.error(
            "workflow-runid", f"at most {_MAX_RUN_ID} characters, without commas"
        )

    return WorkflowHeaders(
        run_id=run_id,
        url=scope.text("workflow-url") or url,
        init=scope.flag("workflow-init"),
        invoke=scope.flag("workflow-invoke"),
        call_type=scope.text("workflow-calltype") or "",
        features=scope.words("feature-set"),
    )


_MAX_RUN_ID: Final = 256


def _callback(
    main: _Scope, key: str, headers: list[tuple[str, str, str]]
) -> Settings | None:
    if key not in main.values:
        return None

    name, url = main.values[key]
    return _settings(_Scope(headers), check_url(url, f"header {name}"))


def _redact(scope: _Scope) -> tuple[str, ...]:
    fields = scope.words("redact-fields")
    if not all(_REDACTABLE.fullmatch(field) for field in fields):
        raise scope.error(
            "redact-fields", "body, headers or header[Name], separated by commas"
        )

    return fields


def _deduplication(
    scope: _Scope, url: str, settings: Settings, body: bytes
) -> str | None:
    """Return the key that identifies repeated publishes, if deduplication is requested."""
    deduplication_id = scope.text("deduplication-id")
    if deduplication_id:
        return f"id {deduplication_id}"
    if not scope.flag("content-based-deduplication"):
        return None

    headers = [
        f"{name.lower()}: {text}".encode() for name, text in sorted(settings.headers)
    ]
    digest = hashlib.sha256()
    for part in (url.encode(), *headers, body):
        # with lengths: otherwise "ab", "c" and "a", "bc" had the same digest
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)

    return f"content {digest.hexdigest()}"
