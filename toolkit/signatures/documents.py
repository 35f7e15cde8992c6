"""What a body says about a failure: JSON errors with their causes, HTML pages, stack traces, messages."""

from __future__ import annotations

import html
import json
import re
from typing import Any, Final, Literal

import msgspec

from toolkit.signatures.trace_frames import StackTrace
from toolkit.signatures.traces import stack_trace

NO_FRAME: Final = "at "
"""The frame of a trace that names no function of the application."""

Kind = Literal["json", "html", "trace", "message", "empty", "binary"]

LONGEST: Final = 100_000  # characters of a text that are read: half from its start, half from its end
_MESSAGE: Final = 1_000  # characters of one message
_FACT: Final = 200  # characters of a code or type
_DEPTH: Final = 6
_ITEMS: Final = 3  # elements of a list of errors

_MESSAGES: Final = tuple(
    """
    message error_description detail error_message errormessage msg description title reason faultstring
    summary text
    """.split()  # noqa: SIM905 - a list of words
)
_TYPES_AND_CODES: Final = tuple(
    """
    type name exception exceptiontype errortype error_type class __type exception_class kind
    code error_code errorcode errno faultcode sqlstate status_code statuscode status
    """.split()  # noqa: SIM905 - a list of words
)
_CAUSES: Final = tuple(
    """
    error errors cause causes caused_by causedby innererror inner_error innerexception details exception
    root_cause fault failure previous body response data
    """.split()  # noqa: SIM905 - a list of words
)
_BY_FIELD: Final = frozenset({"error", "errors", "details", "failure", "failures"})
"""What may hold an object from the fields of an input to what is wrong with them."""
_BESIDE: Final = frozenset({"details", "body", "response", "data"})
"""What is not a cause where it is a text beside a message."""
_MOST_FIELDS: Final = 20
_STACKS: Final = ("stack", "stacktrace", "stack_trace", "trace", "traceback", "backtrace")
_PAGE: Final = ("<html", "<!doctype", "<h1", "<title", "<body")
_TAG: Final = re.compile(r"<[^<>]{0,300}>")
_DROPPED: Final = re.compile(r"<(script|style|svg|head)\b.*?</\1\s*>", re.DOTALL | re.IGNORECASE)


class Document(msgspec.Struct, frozen=True, gc=False):
    """A text, reduced to what identifies its failure."""

    kind: Kind
    facts: tuple[str, ...] = ()  # types, codes, frames: compared as they are
    messages: tuple[str, ...] = ()  # for people to read: compared by their templates


def its_ends(text: str) -> str:
    """A text as it is read: of a long one its start and its end."""
    return text if len(text) <= LONGEST else f"{text[: LONGEST // 2]}\n{text[-LONGEST // 2 :]}"


def read_document(text: str | None) -> Document:
    """Find out what a text is, and what of it identifies the failure.

    >>> read_document('{"error": {"code": "no_user", "message": "no such user: 17"}}')
    Document(kind='json', facts=('no_user',), messages=('no such user: 17',))
    """
    text = its_ends((text or "").strip().lstrip("\ufeff"))
    if not text:
        return Document("empty")
    if text[0] in '{["' and (found := _json(text)):
        return found
    if text[0] == "<" and (found := _html(text)):
        return found
    if "\n" in text and (trace := stack_trace(text)):
        return _of_trace(trace)
    return Document("message", (), (_shortened(text),))


def _of_trace(trace: StackTrace) -> Document:
    types = tuple(kind for kind, _ in trace.errors)
    return Document(
        "trace", (trace.language, *types, f"at {trace.frame}"), (_shortened(trace.errors[-1][1]),)
    )


def _shortened(text: str) -> str:
    lines = [line.strip() for line in text[: 4 * _MESSAGE].splitlines() if line.strip()]
    return " ".join(lines[:5])[:_MESSAGE]


def _json(text: str) -> Document | None:
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError):
        try:
            value = json.loads(text)  # accepts NaN and lone surrogates
        except (ValueError, RecursionError):
            return None
    if isinstance(value, str):
        inner = read_document(value)
        return inner if inner.kind == "empty" else Document("json", inner.facts, inner.messages)
    facts: list[str] = []
    messages: list[str] = []
    _collect(value, facts, messages, _DEPTH)
    if not facts and not messages:
        keys = sorted(value)[:20] if isinstance(value, dict) else []
        return Document("json", ("keys", *keys))
    return Document("json", tuple(dict.fromkeys(facts)), tuple(dict.fromkeys(messages)))


def _collect(
    value: Any, facts: list[str], messages: list[str], depth: int, *, by_field: bool = False
) -> None:
    """Codes, types, messages and causes of an error object."""
    if not depth:
        return
    if isinstance(value, str):
        _text(value, facts, messages)
    elif isinstance(value, list):
        for item in value[:_ITEMS]:
            _collect(item, facts, messages, depth - 1)
    elif isinstance(value, dict):
        names = {name.lower().replace("-", "_"): item for name, item in value.items()}
        for name in _TYPES_AND_CODES:
            item = names.get(name)
            if (isinstance(item, str) and item and len(item) < _FACT) or (
                isinstance(item, int) and not isinstance(item, bool)
            ):
                facts.append(str(item))
        stack = next((names[name] for name in _STACKS if names.get(name)), None)
        stack = "\n".join(map(str, stack)) if isinstance(stack, list) else stack
        trace = stack_trace(stack) if isinstance(stack, str) else None
        if trace:
            facts += _of_trace(trace).facts
        said = (names[name] for name in _MESSAGES if isinstance(names.get(name), str))
        message = next((text for text in said if text.strip()), None)
        if message:
            _text(message, facts, messages)
        before = len(facts), len(messages)
        for name in _CAUSES:
            cause = names.get(name)
            if cause is None or cause is message or (isinstance(cause, str) and name in _BESIDE and message):
                continue
            _collect(cause, facts, messages, depth - 1, by_field=name in _BY_FIELD)
        if by_field and before == (len(facts), len(messages)) and not message:
            _fields(value, facts, messages)


def _fields(value: dict[str, Any], facts: list[str], messages: list[str]) -> None:
    """What is wrong with each field of an input: its name, and what is said of it."""
    for name in sorted(value)[:_MOST_FIELDS]:
        said = value[name] if isinstance(value[name], list) else [value[name]]
        texts = [text for text in said[:_ITEMS] if isinstance(text, str) and text.strip()]
        if texts and len(name) < _FACT:
            facts.append(name)
            for text in texts:
                _text(text, facts, messages)


def _text(text: str, facts: list[str], messages: list[str]) -> None:
    """A message within JSON may be a stack trace, or JSON again."""
    inner = (
        read_document(text)
        if text.lstrip()[:1] in "{[<" or "\n" in text
        else Document("message", (), (_shortened(text),))
    )
    facts += inner.facts
    messages += inner.messages


def _html(text: str) -> Document | None:
    lowered = text.lower()
    if not any(tag in lowered for tag in _PAGE):
        return None
    found = [_inner(text, lowered, tag) for tag in ("title", "h1", "h2")]
    texts = [part for part in dict.fromkeys(found) if part]
    if not texts:
        texts = [_shortened(html.unescape(_TAG.sub(" ", _DROPPED.sub(" ", text))))[:200]]
    return Document("html", (), tuple(texts[:2]))


def _inner(text: str, lowered: str, tag: str) -> str:
    start = lowered.find(f"<{tag}")
    opened = lowered.find(">", start) if start >= 0 else -1
    closed = lowered.find(f"</{tag}", opened) if opened >= 0 else -1
    if closed < 0 or len(lowered) != len(text):
        return ""
    return _shortened(html.unescape(_TAG.sub(" ", text[opened + 1 : closed])).strip())
