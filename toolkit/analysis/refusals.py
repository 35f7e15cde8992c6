"""Find failures whose application asked not to retry them.

An application that knows that a retry cannot help marks its response, in one of three ways:

1. A header. The workflow SDKs send status 489 and, for example, `Upstash-NonRetryable-Error: true`.
2. A field of a JSON body, for example `"nonRetryable": true` (Temporal) or `"retryable": false`.
3. A type of error with no other meaning, for example `WorkflowNonRetryableError`, or BullMQ's
   `UnrecoverableError`.

A marker is an explicit statement, so it outranks everything that the status or the words suggest.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.signatures.document import Document
from toolkit.signatures.json_errors import decode_json
from toolkit.tables.lenient_rows import REFUSING_HEADER, refuses_retries

_REFUSED_IF_TRUE: Final = frozenset({"nonretryable", "nonretriable", "notretryable", "donotretry", "noretry"})
_REFUSED_IF_FALSE: Final = frozenset(
    {"retryable", "retriable", "isretryable", "isretriable", "canretry", "shouldretry"}
)
_MOST_OBJECTS: Final = 200
"""JSON objects of a body that are searched for a field. Markers stand near the top of an error."""

# One or more parts such as "Workflow" around "NonRetryable"; `nonretryable-error` is a name of a code.
_REFUSING_TYPE: Final = re.compile(
    r"\w*non[_-]?retr(?:y|i)able[_-]?(?:\w*(?:error|exception|failure))?|(?:\w+[.:])*unrecoverableerror",
    re.IGNORECASE,
)
_LEADING_TYPE: Final = re.compile(r"\s*(?:Uncaught |Error: )?([A-Za-z_][\w.:$]*?)(?=:\s|\s*$)")
_MAY_REFUSE: Final = re.compile(r"re-?_?tr(?:y|i)|unrecoverable", re.IGNORECASE)
"""Every marker of a body matches this. Most bodies do not, so that they need not be parsed."""


def refused_by_headers(headers: pa.ChunkedArray) -> list[bool]:
    """Return for each response whether its headers ask not to retry.

    Parameters
    ----------
    headers : pyarrow.ChunkedArray
        Headers as the column `response_headers` contains them: JSON objects from names to lists of values.

    Examples
    --------
    >>> refused_by_headers(pa.chunked_array([['{"Upstash-NonRetryable-Error": ["true"]}', '{}', None]]))
    [True, False, False]
    """
    texts = headers.cast(pa.large_string())
    candidates = pc.match_substring(texts, REFUSING_HEADER, ignore_case=True).fill_null(False)
    is_refused: list[bool] = candidates.to_pylist()
    for row, is_candidate in enumerate(is_refused):
        if is_candidate:
            is_refused[row] = _asks_not_to_retry(texts[row].as_py())
    return is_refused


def _asks_not_to_retry(headers: str) -> bool:
    try:
        return refuses_retries(msgspec.json.decode(headers))
    except msgspec.DecodeError:
        return False


def refusal_in_body(body: str | None, document: Document) -> str | None:
    """Return the marker with which a body asks not to retry, or None.

    Parameters
    ----------
    body : str or None
        The body of a response.
    document : Document
        The same body, read by `read_document`.

    Examples
    --------
    >>> body = '{"message": "the account is frozen", "retryable": false}'
    >>> refusal_in_body(body, Document("json", (), ("the account is frozen",)))
    'retryable: false'
    >>> refusal_in_body("the request is retryable", Document("message", (), ("the request is retryable",)))
    """
    if not body or not _MAY_REFUSE.search(body):
        return None
    marker = _field_marker(body)
    if marker is not None:
        name, is_refused = marker
        return name if is_refused else None
    return next(filter(_REFUSING_TYPE.fullmatch, _error_types(document)), None)


def _field_marker(body: str) -> tuple[str, bool] | None:
    """Return the outermost field about retries, and whether it asks for none. Breadth-first search.

    For example, `{"retryable": true, "cause": {"retryable": false}}` gives `("retryable: true", False)`.
    """
    if body.lstrip()[:1] not in ("{", "["):
        return None
    try:
        unread: deque[Any] = deque([decode_json(body)])
    except (ValueError, RecursionError):
        return None
    read_objects = 0
    while unread and read_objects < _MOST_OBJECTS:
        value = unread.popleft()
        read_objects += 1
        if isinstance(value, list):
            unread.extend(value[:_MOST_OBJECTS])
        elif isinstance(value, dict):
            for name, flag in value.items():
                if isinstance(flag, bool) and (marker := _read_flag(name, flag)):
                    return marker
            unread.extend(value.values())
    return None


def _read_flag(name: str, flag: bool) -> tuple[str, bool] | None:  # noqa: FBT001 - the value of a field
    plain_name = re.sub(r"[^a-z]", "", name.lower())
    shown = f"{name[:40]}: {str(flag).lower()}"
    if plain_name in _REFUSED_IF_TRUE:
        return shown, flag
    if plain_name in _REFUSED_IF_FALSE:
        return shown, not flag
    return None


def _error_types(document: Document) -> Iterator[str]:
    """Yield the types and codes of a body, and the types at the start of its messages.

    For example, `WorkflowNonRetryableError: the card was closed` begins with its type.
    """
    yield from document.facts
    for message in document.messages:
        if found := _LEADING_TYPE.match(message):
            yield found[1]
