"""Put an error into one line, as an engineer would name it to a colleague.

The line consists of a type or code and the most specific message. For example, a validation of ASP.NET has
the messages "One or more validation errors occurred." and "The field Weight must be between 1 and 30.", and
the type of the problem is the section of an RFC. The line is `Weight: The field Weight must be between 1 and
30.`: messages that only repeat a status, and names without meaning, are left out.

The column `error` is this line with the words of the body. The title of a group is the same line with
placeholders (see `placeholders`), so that both name the error in the same way.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

from toolkit.base.arguments import wrong
from toolkit.signatures.document import LONGEST, STATUS_PHRASES
from toolkit.signatures.placeholders import with_placeholders
from toolkit.signatures.reading import read_document

LONGEST_READ: Final = 2 * LONGEST
"""Characters of a body that are masked before it is read: the error may stand at its start or its end."""

_LONGEST_LINE: Final = 2_000
_USUAL_TITLE: Final = 120
"""Characters of a title. A longer one is cut at the end of a sentence or clause."""
_LONGEST_TITLE: Final = 160
"""Characters of a title that is not cut: the last words often name the cause, such as "No such file"."""
_SENTENCE_END: Final = re.compile(r"[.!?](?= [A-Z<\"'(\[])")
_CLAUSE_END: Final = re.compile(r"[^\s,;](?=[,;] )|\)(?= )")
_MOST_HEADINGS: Final = 2
"""Messages of a page that are joined, for example its heading and the exception below."""
_MOST_NAMES: Final = 3
"""Names that describe an error without a message of its own, for example codes of a validation."""

_MOST_KIND_WORDS: Final = 4
"""Words of a message that names the kind of an error."""

_WORD: Final = re.compile(r"[a-z]+")
_EMPTY_WORDS: Final = frozenset(
    {"http", "status", "error", "errors", "code", "exception", "report", "num"}
)
"""Words that state nothing; "num" is the placeholder of a number, for example of "500" below a heading."""


def _without_empty_words(message: str) -> str:
    """Return the letters of a message without words such as "error" or "HTTP"."""
    return "".join(
        word for word in _WORD.findall(message.lower()) if word not in _EMPTY_WORDS
    )


_GENERAL_PHRASES: Final = (
    *sorted(STATUS_PHRASES),
    "An error occurred",
    "An error has occurred",
    "An unexpected error occurred",
    "An error occurred while processing your request",
    "Failed",
    "Internal error",
    "Invalid request",
    "One or more validation errors occurred",
    "Oops",
    "Request failed",
    "Request validation failed",
    "Something went wrong",
    "The request is invalid",
    "Unexpected error",
    "Unhandled error",
    "Unknown error",
    "Validation",
    "Validation failed",
)
_GENERAL: Final = frozenset({"", *map(_without_empty_words, _GENERAL_PHRASES)})
"""Messages that state no more than that something failed, without signs, digits and empty words."""
_LONGEST_GENERAL: Final = 80
_START: Final = re.compile(r"[^A-Za-z]{0,20}([A-Za-z]+)")
_STARTS: Final = _EMPTY_WORDS | {
    _WORD.findall(phrase.lower())[0] for phrase in _GENERAL_PHRASES
}
"""First words of these messages."""

_NO_NAMES: Final = frozenset(
    {
        "error",
        "exception",
        "fail",
        "failed",
        "failure",
        "status",
        "rfc",
        "ok",
        "false",
        "true",
        "object",
        "blank",
        "about:blank",
    }
)
"""Types and codes that name nothing."""
_HTTP_STATUS: Final = re.compile(r"[1-5]\d\d")

Kind = Literal["json", "html", "trace", "message", "empty", "binary"]


@dataclass(frozen=True)
class ErrorText:
    """The error of a body, as one line of at most 2,000 characters, neither masked nor escaped."""

    kind: Kind
    text: str


def error_text(body: str | None) -> ErrorText:
    r"""Find the error of a response body, as one line.

    Bodies are JSON of many frameworks, HTML pages, faults in XML, event streams, stack traces of several
    languages, or plain text. The line is the one in the column ``error``, and, with placeholders instead of
    numbers and ids, the title of the group.

    Parameters
    ----------
    body : str or None
        The body of a response, decoded. The first and last 50,000 characters are read.

    Returns
    -------
    ErrorText
        The kind of the body (``json``, ``html``, ``trace``, ``message`` or ``empty``) and the line.

    Raises
    ------
    InputError
        If the body is not a string.

    Examples
    --------
    >>> error_text('{"error": {"message": "no such user 17"}}')
    ErrorText(kind='json', text='no such user 17')
    >>> error_text("<html><title>502 Bad Gateway</title></html>").text
    '502 Bad Gateway'
    >>> error_text("TypeError: x is undefined\n    at run (app.js:3:1)").text
    'TypeError: x is undefined'
    """
    if not isinstance(body, str | None):
        raise wrong("body", body, "a string or None")

    document = read_document(body)
    if document.kind == "empty":
        return ErrorText("empty", "empty body")

    line = headline(document.kind, document.facts, document.messages) or body or ""
    return ErrorText(document.kind, _one_line(line))


def binary_line(encoded: str) -> str:
    """Return the line that stands for a body that is not UTF-8.

    >>> binary_line("/w==")
    'binary, 1 bytes'
    """
    return f"binary, {len(encoded) * 3 // 4 - encoded.count('='):,} bytes"


def mask_text(text: str) -> str:
    """Replace the parts of a line that vary, so that equal failures have equal lines.

    Parameters
    ----------
    text : str
        A line, for example the one that `error_text` finds.

    Returns
    -------
    str
        The line with numbers, ids, addresses, paths and times replaced by names in angle brackets, as in the
        titles of groups.

    Raises
    ------
    InputError
        If the line is not a string.

    Examples
    --------
    >>> mask_text("user 17 not found after 0.25 s at 2026-01-01T10:00:00Z")
    'user <num> not found after <duration> at <time>'
    """
    if not isinstance(text, str):
        raise wrong("text", text, "a string")
    return with_placeholders(text)


def headline(kind: Kind, facts: Sequence[str], messages: Sequence[str]) -> str:
    """Return the line of an error, or "" if it has no message.

    >>> headline("json", ("404", "no_user"), ("Not Found", "no such user"))
    'no_user: no such user'
    >>> headline("json", ("error", "overloaded_error"), ("Overloaded",))
    'overloaded_error: Overloaded'
    >>> headline("trace", ("python", "KeyError", "at orders.total"), ("'sum'",))
    "KeyError: 'sum'"
    >>> headline("html", (), ("500: Internal Server Error", "<num>"))
    '500: Internal Server Error'
    >>> headline("json", (), ("tenant used 600 of 600 requests", "rate limited"))
    'rate limited: tenant used 600 of 600 requests'
    """
    if not messages:
        return ""
    if kind == "trace":
        error_type, message = facts[-2], messages[0]
        return ": ".join(filter(None, (error_type, message)))

    specific = [message for message in messages if not _is_general(message)]
    if kind == "html":
        # "500" in large letters says nothing next to "Internal Server Error"
        stating = [message for message in messages if _without_empty_words(message)]
        headings = _without_repeats(specific or stating or messages)
        return " - ".join(headings[:_MOST_HEADINGS])

    names = list(filter(_is_name, facts))
    if not specific:
        return _with_names(messages[0], names[:_MOST_NAMES])

    return _with_kind(specific, _unsaid_name(names, messages))


def _with_kind(specific: list[str], name: str | None) -> str:
    """Return the first specific message after the kind of the error: a name, or another short message."""
    statement, *others = specific
    kinds = [message for message in others if _is_kind(message, statement)]
    if name is not None:
        kinds.insert(0, name)
    return ": ".join([*kinds[:1], statement])


def _with_names(message: str, names: list[str]) -> str:
    """Return a message such as "Validation failed" with the names, which tell more."""
    if not names:
        return message
    return f"{message}: {', '.join(names)}"


def _unsaid_name(names: list[str], messages: Sequence[str]) -> str | None:
    """Return the first name that no message repeats, or None.

    A name that a message repeats adds nothing, for example "no_user" before "no_user: no such user".
    """
    for name in names:
        if not any(name in message for message in messages):
            return name
    return None


def title_of(line: str) -> str:
    """Return the line of an error as a title: whole, or up to the end of a sentence or clause.

    >>> ids = " <uuid>" * 20
    >>> title_of(f"The refresh token has expired due to 90 whole days of inactivity. Trace ID:{ids}")
    'The refresh token has expired due to 90 whole days of inactivity.'
    """
    if len(line) <= _USUAL_TITLE:
        return line

    sentence = _end_of_last(_SENTENCE_END, line)
    if sentence:
        return line[:sentence]
    if len(line) <= _LONGEST_TITLE:
        return line

    end = _end_of_last(_CLAUSE_END, line) or line.rfind(" ", 0, _USUAL_TITLE)
    if end < _USUAL_TITLE // 2:
        end = _USUAL_TITLE - 1
    return f"{line[:end]}…"


def _end_of_last(pattern: re.Pattern[str], line: str) -> int:
    """Return the end of the last part that matches in the second half of a title; 0 without one."""
    ends = [found.end() for found in pattern.finditer(line, 0, _LONGEST_TITLE)]
    return max((end for end in ends if end >= _USUAL_TITLE // 2), default=0)


def _is_kind(message: str, statement: str) -> bool:
    """Return whether a message names the kind of error of which another one states the occurrence.

    For example, "rate limited" next to "tenant used 600 of 600 requests a minute".
    """
    few_words = message.count(" ") < _MOST_KIND_WORDS
    # messages of a list, for example of a validation, are of similar length and state different errors
    is_shorter = 2 * len(message) <= len(statement)

    return (
        few_words
        and is_shorter
        and message[:1].isalpha()
        and message.lower() not in statement.lower()
    )


def _is_general(message: str) -> bool:
    """Return whether a message states no more than that something failed, such as "500 Internal Error"."""
    start = _START.match(message)
    if len(message) > _LONGEST_GENERAL or (
        start is not None and start[1].lower() not in _STARTS
    ):
        return False  # as most messages, which would take ten times as long

    return _without_empty_words(message) in _GENERAL


@lru_cache(maxsize=1 << 12)
def _is_name(fact: str) -> bool:
    """Return whether a fact names an error: not an HTTP status, a place, an address or an empty word."""
    if (
        _HTTP_STATUS.fullmatch(fact)
        or fact.startswith(("at ", "in ", "status "))
        or "://" in fact
    ):
        return False

    return fact.lower() not in _NO_NAMES and fact not in LANGUAGES and fact != "<url>"


LANGUAGES: Final = frozenset(
    {"python", "javascript", "java", "dotnet", "go", "ruby", "php", "rust", "native"}
)
"""Facts of a stack trace that name its language."""


def _without_repeats(messages: Sequence[str]) -> list[str]:
    """Return the headings of a page without a heading that another one contains.

    For example, "502" adds nothing to "502 Bad Gateway".
    """

    def is_repeated(message: str) -> bool:
        return any(message in other for other in messages if other != message)

    return [message for message in messages if not is_repeated(message)]


def _one_line(text: str) -> str:
    """Return an error message as one line of at most `_LONGEST_LINE` characters that can be stored."""
    if len(text) <= _LONGEST_LINE and text.isprintable() and "  " not in text:
        return text.strip()

    line = " ".join(text[: 4 * _LONGEST_LINE].split())
    if not line.isascii():
        # JSON can escape half of a surrogate pair, which neither Arrow nor a file can store
        line = line.encode("utf-8", "backslashreplace").decode()

    if len(line) > _LONGEST_LINE:
        line = line[: _LONGEST_LINE - 1] + "…"
    return line
