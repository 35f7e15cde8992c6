"""Find failures whose application asked not to retry them.

An application that knows that a retry cannot help marks the response, in one of three ways:

1. A header. The workflow SDKs send status 489 and, for example, `Upstash-NonRetryable-Error: true`.
2. A field of a JSON body, for example `"nonRetryable": true` (Temporal) or `"retryable": false`.
3. A type of error with no other meaning, for example `WorkflowNonRetryableError`, or BullMQ's
   `UnrecoverableError`.

A marker is an explicit statement, so it outranks everything that the status or the words suggest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.signatures.details import Details
from toolkit.signatures.document import Document
from toolkit.tables.callback_rows import REFUSING_HEADER, refuses_retries

# One or more parts such as "Workflow" around "NonRetryable"; `nonretryable-error` is a name of a code.
_REFUSING_TYPE: Final = re.compile(
    r"\w*non[_-]?retr(?:y|i)able[_-]?(?:\w*(?:error|exception|failure))?|(?:\w+[.:])*unrecoverableerror",
    re.IGNORECASE,
)
_LEADING_TYPE: Final = re.compile(
    r"\s*(?:Uncaught |Error: )?([A-Za-z_][\w.:$]*?)(?=:\s|\s*$)"
)


def refused_by_headers(headers: pa.ChunkedArray) -> list[bool]:
    """Return for each response whether the headers ask not to retry.

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
    candidates = pc.match_substring(texts, REFUSING_HEADER, ignore_case=True).fill_null(
        False
    )
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


def refusal_in_body(details: Details) -> str | None:
    """Return the marker with which a body asks not to retry, or None.

    Parameters
    ----------
    details : Details
        The body, read by `read_details`.

    Examples
    --------
    >>> from toolkit.signatures.details import read_details
    >>> refusal_in_body(read_details('{"message": "the account is frozen", "retryable": false}'))
    'retryable: false'
    >>> refusal_in_body(read_details("the request is retryable"))
    """
    if details.retry_marker is not None:
        return details.retry_marker.shown if details.retry_marker.is_refused else None
    if not details.may_refuse:
        return None

    return next(filter(_REFUSING_TYPE.fullmatch, _error_types(details.document)), None)


def _error_types(document: Document) -> Iterator[str]:
    """Yield the types and codes of a body, and the types at the start of messages.

    For example, `WorkflowNonRetryableError: the card was closed` begins with a type.
    """
    yield from document.facts
    for message in document.messages:
        if leading_type := _LEADING_TYPE.match(message):
            yield leading_type[1]
