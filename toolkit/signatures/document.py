"""The parts of a response body that identify the failure."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final, Literal

import msgspec

from toolkit.signatures.trace_frames import StackTrace

NO_FRAME: Final = "at "
"""The frame of a trace that names no function of the application."""

STATUS_PHRASES: Final = frozenset(status.phrase for status in HTTPStatus) | {
    "Unprocessable Entity", "Request Entity Too Large", "Internal Error", "Server Error",
}  # fmt: skip
"""Titles that only repeat the status."""

Kind = Literal["json", "html", "trace", "message", "empty", "binary"]

LONGEST: Final = 100_000
"""Characters of a body that are read: half from its start, half from its end."""
_MOST_MESSAGE: Final = 1_000
"""Characters of one message."""
_MOST_LINES: Final = 5
"""Lines of one message."""


class Document(
    msgspec.Struct, frozen=True, gc=False, cache_hash=True, repr_omit_defaults=True
):
    """The parts of a body that identify the failure. Many bodies have equal documents."""

    kind: Kind
    facts: tuple[str, ...] = ()
    """Types, codes, fields and frames, which are compared as they are."""
    messages: tuple[str, ...] = ()
    """Sentences for people, which are compared by their templates."""
    trace: StackTrace | None = None
    """The stack trace, if the body is one. It is left out of documents with placeholders."""


def ends_of(text: str) -> str:
    """Return the part of a body that is read: everything, or the start and the end if the body is long."""
    if len(text) <= LONGEST:
        return text
    return f"{text[: LONGEST // 2]}\n{text[-LONGEST // 2 :]}"


def masked_part(text: str) -> str:
    """Return the part of a body that is masked before `ends_of` cuts it.

    More is masked than is read. If the ends were cut out first, a secret at the cut would lose a part, and
    no pattern would match it.
    """
    if len(text) <= 2 * LONGEST:
        return text
    return f"{text[:LONGEST]}\n{text[-LONGEST:]}"


def shortened(text: str) -> str:
    """Return the first lines of a message as one line."""
    if len(text) <= _MOST_MESSAGE and text.isprintable():
        # one line, as most messages are
        return text.strip()

    lines = [
        line.strip() for line in text[: 4 * _MOST_MESSAGE].splitlines() if line.strip()
    ]
    return _first_words(" ".join(lines[:_MOST_LINES]))


def _first_words(line: str) -> str:
    """Cut a long line between two words, because a part of an id or an address looks like another word."""
    if len(line) <= _MOST_MESSAGE:
        return line

    before, _, last = line[:_MOST_MESSAGE].rpartition(" ")
    is_cut_far_from_end = len(last) > _MOST_MESSAGE // 2
    if is_cut_far_from_end:
        return line[:_MOST_MESSAGE]

    return before.rstrip()
