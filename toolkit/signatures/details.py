"""Read all messages of a body, and whether the body asks not to be retried.

`read_details` serves the classes of failures (see `failures/classes.py`). It decodes JSON once for all parts.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from toolkit.signatures.document import Document
from toolkit.signatures.json_errors import decode_json
from toolkit.signatures.reading import plain_text, read_document

MOST_TEXT: Final = 1_000
"""Characters that are kept of all messages of a body."""
_MOST_OBJECTS: Final = 200
"""JSON objects of a body that are searched for a field. Markers stand near the top of an error."""

_REFUSED_IF_TRUE: Final = frozenset(
    {"nonretryable", "nonretriable", "notretryable", "donotretry", "noretry"}
)
_REFUSED_IF_FALSE: Final = frozenset(
    {"retryable", "retriable", "isretryable", "isretriable", "canretry", "shouldretry"}
)
_MAY_REFUSE: Final = re.compile(r"re-?_?tr(?:y|i)|unrecoverable", re.IGNORECASE)
"""Every marker of a body matches this. Most bodies do not, so that their fields need not be searched."""
_TAG: Final = re.compile(r"<[^<>]{0,300}>")


class RetryMarker(NamedTuple):
    """A field of a body about retries."""

    shown: str
    """The field, for example `retryable: false`."""
    is_refused: bool


class Details(NamedTuple):
    """The messages of a body, and whether a field asks not to be retried."""

    document: Document
    prose: str
    """Messages without names of keys and markup, one per line; at most `MOST_TEXT` characters."""
    may_refuse: bool
    """Whether a type or code can ask not to retry."""
    retry_marker: RetryMarker | None


def read_details(body: str) -> Details:
    r"""Return the details of a body.

    >>> read_details('{"message": "frozen", "hint": "ask the bank", "retryable": false}').prose
    'frozen\nask the bank'
    """
    document = read_document(body)
    text = plain_text(body)
    may_refuse = bool(_MAY_REFUSE.search(body))
    is_json = text[:1] in ("{", "[", '"')
    value = None
    if document.kind == "json" or (may_refuse and is_json):
        value = _decoded(text)
    prose = _prose(document.kind, body, value)
    marker = None
    if may_refuse:
        marker = _retry_marker(value)
    return Details(document, prose[:MOST_TEXT], may_refuse, marker)


def _prose(kind: str, body: str, value: Any) -> str:
    if kind == "json":
        return "\n".join(_strings_of(value))
    return _TAG.sub(" ", body[:MOST_TEXT])


def _decoded(text: str) -> Any:
    try:
        return decode_json(text)
    except (ValueError, RecursionError):
        return None


def _strings_of(value: Any) -> Iterator[str]:
    """Yield the string values of decoded JSON, without the names of keys, until there are enough.

    For example, `{"deprecated": "no", "hint": "send it later"}` gives "no" and "send it later".
    """
    unread: list[Any] = [value]
    length = 0
    while unread and length < MOST_TEXT:
        item = unread.pop()
        if isinstance(item, str):
            length += len(item) + 1
            yield item
        elif isinstance(item, list):
            unread.extend(reversed(item[:MOST_TEXT]))
        elif isinstance(item, dict):
            unread.extend(reversed(item.values()))


def _retry_marker(value: Any) -> RetryMarker | None:
    """Return the outermost field about retries. Breadth-first search.

    For example, `{"retryable": true, "cause": {"retryable": false}}` gives "retryable: true".
    """
    unread: deque[Any] = deque([value])
    read_objects = 0
    while unread and read_objects < _MOST_OBJECTS:
        item = unread.popleft()
        read_objects += 1
        if isinstance(item, list):
            unread.extend(item[:_MOST_OBJECTS])
        elif isinstance(item, dict):
            markers = (_read_flag(name, flag) for name, flag in item.items())
            first = next(filter(None, markers), None)
            if first is not None:
                return first
            unread.extend(item.values())

    return None


def _read_flag(name: str, flag: object) -> RetryMarker | None:
    if not isinstance(flag, bool):
        return None

    plain_name = re.sub(r"[^a-z]", "", name.lower())
    shown = f"{name[:40]}: {str(flag).lower()}"
    if plain_name in _REFUSED_IF_TRUE:
        return RetryMarker(shown, flag)
    if plain_name in _REFUSED_IF_FALSE:
        return RetryMarker(shown, not flag)

    return None
