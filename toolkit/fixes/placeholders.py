"""Replace the secrets of a request by placeholders, so that it can be shown and stored.

For example, the header value ``Bearer [masked len=42 tag=5d1c09ab]`` becomes two parts: the text ``Bearer ``
and the placeholder ``FILL_IN_AUTHORIZATION``.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple, TypeAlias

from toolkit.base.own_tokens import MASK
from toolkit.secrets.redaction import Redactor
from toolkit.tables.base64_bodies import base64_bytes

_PREFIX: Final = "FILL_IN_"
_NOT_IN_VARIABLES: Final = re.compile(r"[^A-Z0-9]+")
# base64 as JSON writes it: some encoders escape the slash
_BASE64: Final = re.compile(r"(?:[A-Za-z0-9+/]|\\/){16,}={0,2}")
# levels of base64 in base64 that are searched
_DEEPEST: Final = 3


class Placeholder(NamedTuple):
    """A value that is not shown: the variable to fill in, and the place of the value in the request."""

    variable: str
    place: str


Part: TypeAlias = str | Placeholder
"""Text that may be shown, or the placeholder of text that may not."""

Parts: TypeAlias = tuple[Part, ...]


class Variables:
    """Names the variables of one request. Equal masks under one label hide equal values and share a name.

    >>> variables = Variables()
    >>> variables.divide("a [masked len=4 tag=0ea2b77b]", "X-Key", "the header X-Key")
    ('a ', Placeholder(variable='FILL_IN_X_KEY', place='the header X-Key'))
    >>> variables.divide("[masked len=4 tag=11111111]", "x.key", "the header x.key")
    (Placeholder(variable='FILL_IN_X_KEY_2', place='the header x.key'),)
    """

    def __init__(self) -> None:
        self.by_mask: dict[str, str] = {}
        """The variable of each mask; for a mask in several places, the first one."""
        self._masks: dict[str, list[str]] = {}

    def divide(self, masked: str, label: str, place: str) -> Parts:
        """Divide masked text into parts, with a placeholder for each mask."""
        parts: list[Part] = []
        end = 0
        for match in MASK.finditer(masked):
            parts.append(masked[end : match.start()])
            variable = self._variable(label, match[0])
            self.by_mask.setdefault(match[0], variable)
            parts.append(Placeholder(variable, place))
            end = match.end()

        parts.append(masked[end:])
        return tuple(part for part in parts if part)

    def _variable(self, label: str, mask: str) -> str:
        name = _NOT_IN_VARIABLES.sub("_", label.upper()).strip("_")
        known = self._masks.setdefault(name, [])
        if mask not in known:
            known.append(mask)
        number = known.index(mask) + 1
        if number == 1:
            return f"{_PREFIX}{name}"

        return f"{_PREFIX}{name}_{number}"


def mask_body(text: str, redact: Redactor) -> str:
    """Mask everything in a body that looks like a secret, in base64 as well."""
    return redact.text(_BASE64.sub(lambda run: _mask_base64(run[0], redact), text))


def _mask_base64(encoded: str, redact: Redactor, depth: int = 1) -> str:
    """Return base64 unchanged, or one mask if the decoded text contains a secret.

    For example, a step of a workflow is base64 of JSON, and the result of the step can contain a token.
    """
    decoded = base64_bytes(encoded.replace("\\/", "/").rstrip("="))
    try:
        text = (decoded or b"").decode()
    except UnicodeDecodeError:
        return encoded  # a word or an image, for example

    if _has_secret(text, redact, depth):
        return redact.mask(encoded)

    return encoded


def _has_secret(text: str, redact: Redactor, depth: int) -> bool:
    if redact.text(text) != text:
        return True
    if depth == _DEEPEST:
        return False

    return text != _BASE64.sub(
        lambda run: _mask_base64(run[0], redact, depth + 1), text
    )
