"""Read a response body: find the form, and the parts that identify the failure.

The first sign of a body tells which form it can have (`_FORM_OF_SIGN`). Each form is a function that returns
None for a body of another form:

| form | module |
|---|---|
| server-sent events | here |
| JSON, also if it is cut off | `json_errors` |
| logs with a JSON object per line | `json_lines` |
| HTML pages, XML faults | `markup` |
| stack traces | `traces` |
| an error with a list of causes | `causes` |
| everything else | a message |

A form may contain another one, for example a stack trace in a field of JSON, so these functions are given
`read_document`.
"""

from __future__ import annotations

import re
from typing import Final

from toolkit.signatures.causes import causes_in, has_causes
from toolkit.signatures.document import Document, ends_of, shortened
from toolkit.signatures.json_errors import read_json
from toolkit.signatures.json_lines import read_json_lines
from toolkit.signatures.languages.rust import PANICKED
from toolkit.signatures.markup import read_markup
from toolkit.signatures.trace_frames import StackTrace
from toolkit.signatures.traces import stack_trace

_TERMINAL_COLOR: Final = re.compile(r"\x1b\[[0-9;]{0,20}[A-Za-z]")
_JSON_START: Final = re.compile(r'\{\s*+["}]|\{$|\[\s*+["{\[\-\dtfnNI\]]|\[$|"')
"""How JSON begins. A message such as "[worker 3] failed" does not."""
_EVENT_FIELD: Final = re.compile(r"(?:event|data|id|retry): ?", re.MULTILINE)
_EVENT_DATA: Final = re.compile(r"^data: ?(.*)$", re.MULTILINE)
_NO_DATA: Final = ("", "[DONE]")


def read_document(text: str | None) -> Document:
    """Return the form of a body and the parts of it that identify the failure.

    >>> read_document('{"error": {"code": "no_user", "message": "no such user: 17"}}')
    Document(kind='json', facts=('no_user',), messages=('no such user: 17',))
    """
    text = plain_text(text or "")
    if not text:
        return Document("empty")

    document = None
    if text[0] in _FORM_OF_SIGN:
        read_form = _FORM_OF_SIGN[text[0]]
        document = read_form(text)

    if document is None and "\n" in text:
        document = _read_causes(text) or _read_trace(text)
    if document is None:
        return Document("message", (), (shortened(text),))

    return document


def plain_text(body: str) -> str:
    """Return the part of a body that is read, without blanks around it and colors of a terminal."""
    text = ends_of(body.strip().lstrip("\ufeff"))
    if "\x1b" in text:
        text = _TERMINAL_COLOR.sub("", text).strip()
    return text


def _of_trace(trace: StackTrace) -> Document:
    """Return the document of a stack trace, whose message can be JSON, for example of a validator."""
    types = tuple(kind for kind, _ in trace.errors)
    message = trace.errors[-1][1]

    details: tuple[str, ...] = ()
    if message[:1] in ("[", "{"):
        inner = read_json(message, read_document)
        if inner is not None and inner.messages:
            details = inner.facts
            message = ", ".join(inner.messages)

    return Document(
        "trace",
        (trace.language, *types, *details, f"at {trace.frame}"),
        (shortened(message),),
        trace,
    )


def _read_events(text: str) -> Document | None:
    """Read server-sent events. The last event with data states the error."""
    if not _EVENT_FIELD.match(text):
        return None

    data = [line for line in _EVENT_DATA.findall(text) if line.strip() not in _NO_DATA]
    if not data:
        return None

    return read_document(data[-1])


def _read_json(text: str) -> Document | None:
    if not _JSON_START.match(text):
        return None
    if "\n" in text:
        document = read_json_lines(text, read_document)
        if document is not None:
            return document

    return read_json(text, read_document)


def _read_markup(text: str) -> Document | None:
    return read_markup(text, read_document)


def _read_causes(text: str) -> Document | None:
    """Read an error of Rust with a list of causes, as `anyhow` and `eyre` print it. A panic is a trace."""
    if not has_causes(text) or PANICKED in text:
        return None

    lines = text.splitlines()
    causes = causes_in(lines)
    statement = shortened("\n".join(lines[: causes.title]))
    return Document("message", (), (causes.after(statement),))


def _read_trace(text: str) -> Document | None:
    trace = stack_trace(text)
    if trace is None:
        return None

    return _of_trace(trace)


_FORM_OF_SIGN: Final = {
    **dict.fromkeys("edir", _read_events),
    **dict.fromkeys('{["', _read_json),
    "<": _read_markup,
}
"""The form that a body with a first sign can have. Every other body is a trace or a message."""
