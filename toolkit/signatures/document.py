"""A response body, reduced to the parts that identify its failure."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final, Literal

import msgspec

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


class Document(msgspec.Struct, frozen=True, gc=False):
    """A body, reduced to the parts that identify its failure."""

    kind: Kind
    facts: tuple[str, ...] = ()
    """Types, codes, fields and frames, which are compared as they are."""
    messages: tuple[str, ...] = ()
    """Sentences for people, which are compared by their templates."""


def its_ends(text: str) -> str:
    """Return the part of a text that is read: all of it, or the start and the end if it is long."""
    return text if len(text) <= LONGEST else f"{text[: LONGEST // 2]}\n{text[-LONGEST // 2 :]}"


def masked_part(text: str) -> str:
    """Return the part of a text that is masked before its ends are read, so that no secret is cut in two."""
    return text if len(text) <= 2 * LONGEST else f"{text[:LONGEST]}\n{text[-LONGEST:]}"


def shortened(text: str) -> str:
    """Return the first lines of a message as one line."""
    if len(text) <= _MOST_MESSAGE and text.isprintable():  # one line, as most messages are
        return text.strip()
    lines = [line.strip() for line in text[: 4 * _MOST_MESSAGE].splitlines() if line.strip()]
    return " ".join(lines[:_MOST_LINES])[:_MOST_MESSAGE]
