"""Settings of a publish, from headers of either prefix; errors name malformed headers."""

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

from toolkit.errors import InputError
from toolkit.local.api import ApiError, invalid
from toolkit.local.queue.messages import (
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
from toolkit.local.queue.sender import check_url
from toolkit.times import DAY_MS, duration_ms

MAX_EXPRESSION: Final = 256
"""Longest expression, in characters: it also bounds how deep calls can nest."""

Term: TypeAlias = Callable[[float], float]

# of what Python's grammar allows, this is all that arithmetic needs
_TEXT: Final = re.compile(
    r"(?:[ \t]*(?:[0-9]{1,20}(?:\.[0-9]{1,20})?(?![\w.])|[a-z]+(?![\w.])|,(?![ \t]*\))|[-+*/()]))*[ \t]*"
)
_ZEROS: Final = re.compile(r"(?<![\w.])0+(?=[0-9])")  # before a number, which Python does not allow
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
    """A parsed expression; an `InputError` when it does not parse, is too long or names an unknown function.

    >>> RetryDelay("1000 * (1 + retried)")(2), RetryDelay("pow(2, retried) * 500")(3)
    (3000, 4000)
    """

    def __init__(self, text: str) -> None:
        if len(text) > MAX_EXPRESSION:
            raise _refused(f"{len(text)} characters", f"at most {MAX_EXPRESSION}")
        unknown = _refused(f"{text[:80]!r}, which does not parse", "arithmetic over retried")
        if not _TEXT.fullmatch(text):
            raise unknown
        try:
            self._term = _term(ast.parse(_ZEROS.sub("", text.strip()), mode="eval").body)
        except SyntaxError:
            raise unknown from None

    def __call__(self, retried: int) -> int:
        """Milliseconds, from 0, before the next retry; an `InputError` where there is no finite value."""
        try:
            value = float(self._term(float(retried)))
        except (ArithmeticError, ValueError) as error:
            raise _refused(f"no value for retried = {retried} ({error})", "a finite number") from None
        if not math.isfinite(value):
            raise _refused(f"{value} for retried = {retried}", "a finite number")
        return max(0, round(value))


def _term(node: ast.expr) -> Term:
    """The function that a part of an expression means; `SyntaxError` where it means none."""
    negative = False
    while isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.UAdd | ast.USub):
        negative ^= isinstance(node.op, ast.USub)
        node = node.operand
    term: Term
    match node:
        case ast.Constant(value=int() | float() as number):
            value = float(number)
            term = lambda _: value  # noqa: E731 - one of several kinds of terms
        case ast.Name(id="retried"):
            term = float
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            term = _applied(_OPERATORS[type(op)], _term(left), _term(right))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
            if name not in _FUNCTIONS:
                raise _refused(f"the function {name[:40]!r}", f"one of {', '.join(_FUNCTIONS)}")
            counts, function = _FUNCTIONS[name]
            if len(arguments) not in counts:
                raise _refused(f"{name} with {len(arguments)} arguments", f"{counts[0]} to {counts[-1]}")
            term = _applied(function, *map(_term, arguments))
        case _:
            raise SyntaxError
    return _applied(operator.neg, term) if negative else term


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
# invalid in an HTTP header value: control characters, and all beyond Latin-1
_UNSENDABLE: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]|[^\x00-\xff]")
_REDACTABLE: Final = re.compile(r"body|headers?|header\[[^\[\]]+\]", re.IGNORECASE)
# they belong to one connection, or would contradict the body that is sent
_NOT_FORWARDED: Final = frozenset({
    "host", "content-length", "connection", "transfer-encoding", "accept-encoding", "keep-alive", "te",
    "trailer", "upgrade",
})  # fmt: skip

PUBLISH_HEADERS: Final = {
    "Service-Method": "Method of the delivery (POST).",
    "Service-Timeout": "Longest delivery, such as 30s.",
    "Service-Retries": "How often delivery is tried again (3).",
    "Service-Retry-Delay": "Milliseconds before a retry, as an expression over `retried`.",
    "Service-Delay": "Wait before the first delivery, such as 1d10h30m.",
    "Service-Not-Before": "Unix seconds before which nothing is delivered.",
    "Service-Label": "Labels, with commas between them.",
    "Service-Flow-Control-Key": "Messages of one key are limited together.",
    "Service-Flow-Control-Value": "parallelism=, rate= and period=.",
    "Service-Deduplication-Id": "The same within ten minutes is one message.",
    "Service-Content-Based-Deduplication": "true or false.",
    "Service-Callback": "URL that receives every response; Service-Callback-* are its settings.",
    "Service-Failure-Callback": "URL called after all retries; Service-Failure-Callback-* are its settings.",
    "Service-Redact-Fields": "body, headers or header[Name], with commas between them.",
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
        """The message with a new id; `more` are its other fields."""
        return Message(
            id=new_id("msg"),
            kind=kind,
            prefix=self.prefix,
            settings=self.settings,
            failure_callback=self.failure_callback,
            redact=self.redact,
            origin=self.origin,
            **{"body": self.body, "callback": self.callback} | more,
        )


def read_publish(
    url: str, headers: Iterable[tuple[str, str]], body: bytes, *, prefix: str = PREFIXES[0]
) -> Publish:
    """Read one publish to a URL; an `ApiError` names the header that is not understood.

    Headers without a known prefix are ignored, except Content-Type; `prefix` is the delivery's without any.

    >>> read_publish("http://127.0.0.1/a", [("Service-Retries", "1")], b"").settings.retries
    1
    """
    content_type = ""
    scopes: dict[str, list[tuple[str, str, str]]] = {"": [], **{scope: [] for scope in _CALLBACKS}}
    for name, value in headers:
        if _UNSENDABLE.search(value) or not _TOKEN.fullmatch(name):
            expected = "a plain name, and a value of Latin-1 text"
            raise invalid(
                f"header {name[:80]!r} is malformed", "characters that HTTP does not allow", expected
            )
        if name.lower() == "content-type":
            content_type = value
        for known in PREFIXES:
            if name.lower().startswith(known.lower()):
                prefix, key = known, name[len(known) :]
                scope = next((scope for scope in _CALLBACKS if key.lower().startswith(scope)), "")
                scopes[scope].append((name, key[len(scope) :], value.strip()))
    main = _Scope(scopes[""])
    own = _settings(main, check_url(url, "destination"))
    if content_type:
        others = [header for header in own.headers if header[0].lower() != "content-type"]
        own = replace(own, headers=(("Content-Type", content_type), *others))
    return Publish(
        settings=own,
        prefix=prefix,
        body=body,
        callback=_callback(main, "callback", scopes["callback-"]),
        failure_callback=_callback(main, "failure-callback", scopes["failure-callback-"]),
        redact=_redact(main),
        deduplication=_deduplication(main, url, own, body),
    )


class _Scope:
    """The headers of one scope: full name (for errors) and value by the remaining name in lower case."""

    def __init__(self, headers: list[tuple[str, str, str]]) -> None:
        self.values = {remainder.lower(): (name, value) for name, remainder, value in headers}
        forwarded = [
            (remainder[len("forward-") :], value)
            for _, remainder, value in headers
            if remainder.lower().startswith("forward-")
        ]
        self.forwarded = tuple(pair for pair in forwarded if pair[0].lower() not in _NOT_FORWARDED)

    def text(self, key: str) -> str | None:
        return self.values[key][1] if key in self.values else None

    def error(self, key: str, expected: str) -> ApiError:
        name, value = self.values[key]
        return invalid(f"header {name} is not understood", repr(value[:80]), expected)

    def duration(self, key: str) -> int | None:
        text = self.text(key)
        if text is None:
            return None
        duration = duration_ms(text)
        if duration is None or duration > MAX_WAIT_MS:
            raise self.error(key, "a duration such as 50s or 1d10h30m, of at most ten years")
        return duration

    def whole(self, key: str, low: int, high: int) -> int | None:
        text = self.text(key)
        if text is None:
            return None
        if not re.fullmatch(r"[0-9]{1,18}", text) or not low <= int(text) <= high:
            raise self.error(key, f"a whole number from {low} to {high}")
        return int(text)

    def flag(self, key: str) -> bool:
        text = (self.text(key) or "false").lower()
        if text not in ("true", "false"):
            raise self.error(key, "true or false")
        return text == "true"

    def words(self, key: str) -> tuple[str, ...]:
        parts = (part.strip() for part in (self.text(key) or "").split(","))
        return tuple(dict.fromkeys(part for part in parts if part))


def _settings(scope: _Scope, url: str) -> Settings:
    method = scope.text("method")
    if method is not None and method.upper() not in _METHODS:
        raise scope.error("method", f"one of {', '.join(_METHODS)}")
    timeout = scope.duration("timeout")
    if timeout == 0:
        raise scope.error("timeout", "more than nothing")
    retries = scope.whole("retries", 0, MAX_RETRIES)
    not_before = scope.whole("not-before", 0, 253_402_300_799)  # the end of the year 9999, as seconds
    return Settings(
        url=url,
        method=method.upper() if method else None,
        headers=scope.forwarded,
        timeout_ms=timeout,
        retries=retries,
        retry_delay=_retry_delay(scope, retries),
        delay_ms=scope.duration("delay"),
        not_before=None if not_before is None else not_before * 1000,
        labels=scope.words("label"),
        flow_key=scope.text("flow-control-key") or None,
        flow=_flow(scope),
        workflow=_workflow(scope, url),
    )


def _retry_delay(scope: _Scope, retries: int | None) -> str | None:
    text = scope.text("retry-delay")
    if text is None:
        return None
    try:
        delay = RetryDelay(text)
        for retried in range(DEFAULT_RETRIES if retries is None else retries):
            delay(retried)
    except InputError as error:
        name = scope.values["retry-delay"][0]
        raise invalid(f"header {name} is not understood", str(error.got), str(error.expected)) from None
    return text


def _flow(scope: _Scope) -> FlowLimits | None:
    text = scope.text("flow-control-value")
    if text is None:
        return None
    if "flow-control-key" not in scope.values:
        raise scope.error("flow-control-value", "a Flow-Control-Key as well")
    given: dict[str, str] = {}
    for part in text.split(","):
        name, equals, value = (text.strip() for text in part.partition("="))
        if not equals or name.lower() not in ("parallelism", "rate", "period") or name.lower() in given:
            raise scope.error("flow-control-value", "parallelism=, rate= and period=, each at most once")
        given[name.lower()] = value
    counts = {name: given[name] for name in ("parallelism", "rate") if name in given}
    period = duration_ms(given.get("period", "1s"))
    if not period or not all(re.fullmatch(r"[1-9][0-9]{0,8}", count) for count in counts.values()):
        raise scope.error("flow-control-value", "whole numbers above 0, and a period such as 1m")
    return FlowLimits(period_ms=period, **{name: int(count) for name, count in counts.items()})


def _workflow(scope: _Scope, url: str) -> WorkflowHeaders | None:
    run_id = scope.text("workflow-runid")
    if not run_id:
        return None
    if len(run_id) > 256 or "," in run_id:  # noqa: PLR2004 - a generous bound
        raise scope.error("workflow-runid", "at most 256 characters, without commas")
    return WorkflowHeaders(
        run_id=run_id,
        url=scope.text("workflow-url") or url,
        init=scope.flag("workflow-init"),
        invoke=scope.flag("workflow-invoke"),
        call_type=scope.text("workflow-calltype") or "",
        features=scope.words("feature-set"),
    )


def _callback(main: _Scope, key: str, headers: list[tuple[str, str, str]]) -> Settings | None:
    if key not in main.values:
        return None
    name, url = main.values[key]
    return _settings(_Scope(headers), check_url(url, f"header {name}"))


def _redact(scope: _Scope) -> tuple[str, ...]:
    fields = scope.words("redact-fields")
    if not all(_REDACTABLE.fullmatch(field) for field in fields):
        raise scope.error("redact-fields", "body, headers or header[Name], with commas between them")
    return fields


def _deduplication(scope: _Scope, url: str, settings: Settings, body: bytes) -> str | None:
    given = scope.text("deduplication-id")
    if given:
        return f"id {given}"
    if not scope.flag("content-based-deduplication"):
        return None
    headers = (f"{name.lower()}: {value}".encode() for name, value in sorted(settings.headers))
    parts = [url.encode(), *headers, body]
    digest = hashlib.sha256(b"".join(len(part).to_bytes(8, "big") + part for part in parts))
    return f"content {digest.hexdigest()}"
