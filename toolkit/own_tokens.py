r"""The tokens and signing keys of this process: found in text, however they are written there, and masked.

What is matched: the token and its hex digits in either case, and its base64 (standard and URL alphabet, at
each alignment, with or without padding); each character of these plain or escaped, in any mixture and depth:
``%2F``, ``%252f``, ``\u002f``, ``\x2f``, ``\/``, ``&#47;``, ``&#x2F;``, ``&sol;``.
"""

from __future__ import annotations

import base64
import re
import sys
import weakref
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from html.entities import html5
from typing import Any, Final, Protocol

SHORTEST: Final = 6
"""Characters a token must have to be looked for: shorter ones would mask ordinary words."""

PLAIN_MASK: Final = "[masked token]"
"""What stands for a token where there is no key for the tag of a longer mask: in errors and warnings."""

_NAMED: Final = {
    name.rstrip(";"): text for name, text in html5.items() if len(text) == 1 and "!" <= text <= "~"
}
_HEX: Final = "([2-7][0-9a-fA-F])"  # of a printable ASCII character
# one set of characters begins it, in their own case: that is what the search can look for quickly
_ESCAPE: Final = re.compile(
    r"[%\\&](?:"
    rf"(?<=%)(?:25)*(?:[uU]00)?{_HEX}"
    rf"|(?<=\\)\\*(?:[uU]00{_HEX}|[uU]\{{0*{_HEX}\}}|[xX]{_HEX}|([\"'/]))"
    r"|(?<=\\)(\\)\\*"
    rf"|(?<=&)(?:amp;)*(?:#[xX]0*{_HEX};?|#0*([3-9][0-9]|1[01][0-9]|12[0-6])(?![0-9]);?"
    rf"|({'|'.join(sorted(_NAMED, key=len, reverse=True))});))"
)
_BEGINNINGS: Final = ("\\", "%", "&")
_BEGUN: Final = 8  # characters of a token that are too much of it
_MOST_LAYERS: Final = 8  # of escapes within escapes, each kind's own nesting not counted


class _Revealing(Protocol):
    def reveal(self) -> str: ...


class _Forms:
    """What a set of tokens looks like; it has no `__dict__`, as vars() would show them."""

    __slots__ = ("_escape", "_pattern", "exact", "folded", "likely")

    def __init__(self, tokens: Iterable[str]) -> None:
        # a token that is no Unicode is refused later; until then errors are made that must not show it
        known = {token: token.encode("utf-8", "surrogatepass") for token in tokens if len(token) >= SHORTEST}
        folded = {form.lower() for token, raw in known.items() for form in (token, raw.hex())}
        exact = {form for raw in known.values() for form in _base64_forms(raw)}
        self.folded, self.exact = tuple(folded), tuple(exact)
        # longest first, so that an encoded form is masked whole
        either, one = (
            "|".join(re.escape(form) for form in sorted(forms, key=len, reverse=True))
            for forms in (folded, exact)
        )
        self._pattern = re.compile(f"(?i:{either})" + f"|(?:{one})=*" * bool(one))
        after = "".join(
            re.escape(sign) for sign in "\"'/\\" if any(sign in form for form in (*folded, *exact))
        )
        # what is no Unicode stands in no column
        either, one = (
            "|".join(map(re.escape, filter(_is_unicode, forms))) for forms in (self.folded, self.exact)
        )
        escape = rf"%[2-7uU]|\\(?:[xX{after}]|[uU](?:00[2-7]|\{{))|&[#a-zA-Z]"
        self.likely = re.compile("|".join(filter(None, (either and f"(?i:{either})", one, escape))))
        self._escape = re.compile(escape)

    def spans(self, text: str, *, cut: bool = False) -> list[tuple[int, int]]:
        """Where tokens stand, in order, none overlapping another; with `cut`, also where one begins."""
        if len(text) < SHORTEST:
            return []
        plain = self._begun if cut else self._plain
        found = list(plain(text))
        if self._escape.search(text):
            found += self._escaped(text, plain)
        return _merged(text, found) if found else found

    def _begun(self, text: str) -> Iterator[tuple[int, int]]:
        yield from self._plain(text)
        lower = text.lower()
        for whole, several in ((lower, self.folded), (text, self.exact)):
            for form in several:
                start = whole.find(form[:_BEGUN])
                while start >= 0:
                    part = whole[start : start + len(form)]
                    other = (place for place, letter in enumerate(part) if letter != form[place])
                    yield start, start + next(other, len(part))
                    start = whole.find(form[:_BEGUN], start + 1)

    def _plain(self, text: str) -> Iterator[tuple[int, int]]:
        lower = text.lower()
        if any(form in lower for form in self.folded) or any(form in text for form in self.exact):
            for match in self._pattern.finditer(text):
                yield match.span()

    def _escaped(
        self, text: str, plain: Callable[[str], Iterator[tuple[int, int]]]
    ) -> Iterator[tuple[int, int]]:
        layers: list[_Layer] = []
        while len(layers) < _MOST_LAYERS and any(character in text for character in _BEGINNINGS):
            layers.append(_Layer(text))
            if layers[-1].text == text:
                return
            text = layers[-1].text
            for start, end in plain(text):
                for each in reversed(layers):
                    start, end = each.before(start)[0], each.before(end - 1)[1]  # noqa: PLW2901 - traced back
                yield start, end


class _Layer:
    """A text with its escapes read, and where each character of it came from."""

    def __init__(self, text: str) -> None:
        self._at, self._starts, self._ends = array("q"), array("q"), array("q")
        pieces: list[str] = []
        copied = size = 0
        for match in _ESCAPE.finditer(text):
            start, end = match.span()
            size += start - copied
            self._at.append(size)
            self._starts.append(start)
            self._ends.append(end)
            pieces += text[copied:start], _character(match)
            size, copied = size + 1, end
        pieces.append(text[copied:])
        self.text = "".join(pieces)

    def before(self, place: int) -> tuple[int, int]:
        """Start and end, in the text as it was, of what the character at a place was read from."""
        last = bisect_right(self._at, place) - 1
        if last < 0:
            return place, place + 1
        if self._at[last] == place:
            return self._starts[last], self._ends[last]
        start = self._ends[last] + place - self._at[last] - 1
        return start, start + 1


class _Live:
    """The tokens of all `Secret`s that are alive."""

    __slots__ = ("_change", "_known", "_secrets")

    def __init__(self) -> None:
        self._secrets: dict[int, weakref.ref[_Revealing]] = {}
        self._change = object()
        self._known: tuple[object, _Forms | None] = (None, None)

    def watch(self, secret: _Revealing) -> None:
        key = id(secret)

        def forget(_: object) -> None:
            self._secrets.pop(key, None)
            self._change = object()

        self._secrets[key] = weakref.ref(secret, forget)
        self._change = object()

    def forms(self) -> _Forms | None:
        """Of all that are alive; None where there is nothing to look for."""
        change = self._change
        known, forms = self._known
        if known is not change:
            tokens = {secret.reveal() for each in list(self._secrets.values()) if (secret := each())}
            forms = _Forms(tokens) if any(len(token) >= SHORTEST for token in tokens) else None
            self._known = change, forms
        return forms


_LIVE: Final = _Live()


def watch(secret: _Revealing) -> None:
    """Look for this secret from now on, for as long as it lives."""
    _LIVE.watch(secret)


def masked(text: str, mask: Callable[[str], str] | None = None) -> str:
    """The text with every live token in it masked.

    Parameters
    ----------
    text : str
    mask : callable, optional
        Makes the mask of what stands in the text. Default: `PLAIN_MASK`, for messages, in which texts are
        truncated: there the beginning of a token is masked too.
    """
    forms = _LIVE.forms()
    spans = forms.spans(text, cut=mask is None) if forms is not None and text else None
    if not spans:
        return text
    pieces: list[str] = []
    copied = 0
    for start, end in spans:
        pieces += text[copied:start], PLAIN_MASK if mask is None else mask(text[start:end])
        copied = end
    return "".join((*pieces, text[copied:]))


def masked_value(value: Any) -> Any:
    """A JSON-able value with every live token in its texts and names masked."""
    if isinstance(value, str):
        return masked(value)
    if isinstance(value, Mapping):
        return {masked_value(name): masked_value(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(masked_value, value))
    return value


def is_in(text: str) -> bool:
    """Whether a live token is in the text."""
    forms = _LIVE.forms()
    return forms is not None and bool(text) and bool(forms.spans(text))


def is_in_cut(text: str) -> bool:
    """Whether a live token is in the text, perhaps without its last two characters."""
    forms = _LIVE.forms()
    return forms is not None and (is_in(text) or any(form[:-2] in text.lower() for form in forms.folded))


def likely() -> re.Pattern[str] | None:
    """A cheap test (also in RE2's syntax): text without a match holds no live token. None when there is none.

    It looks for the forms of the tokens, and for escapes that may stand for a character of one.
    """
    forms = _LIVE.forms()
    return None if forms is None else forms.likely


def mask_handled() -> None:
    """Mask the errors that are being handled, which the one that is made now will have as its context."""
    error, seen = sys.exception(), set[int]()
    waiting = [error]
    while waiting:
        error = waiting.pop()
        if error is not None and id(error) not in seen and _LIVE.forms() is not None:
            seen.add(id(error))
            waiting += error.__cause__, error.__context__
            _mask_error(error)


def _mask_error(error: BaseException) -> None:
    """What an error says, and what it was made from: a whole document, bytes that could not be decoded."""
    arguments = tuple(map(_masked_text, error.args))
    if any(new is not old for new, old in zip(arguments, error.args, strict=True)):
        error.args = arguments
    for name in ("strerror", "filename", "object", "reason", *vars(error)):
        value = getattr(error, name, None)
        if (new := _masked_text(value)) is not value:
            setattr(error, name, new)


def _masked_text(value: object) -> object:
    if isinstance(value, str):
        found = masked(value)
        return value if found == value else found
    if isinstance(value, bytes):
        text = value.decode("latin-1")
        found = masked(text)
        return value if found == text else found.encode("latin-1")
    return value


def _character(match: re.Match[str]) -> str:
    """What an escape stands for."""
    found = match[match.lastindex or 0]
    match match.lastindex:
        case 5 | 6:
            return found
        case 8:
            return chr(int(found))
        case 9:
            return _NAMED[found]
        case _:
            return chr(int(found, 16))


def _merged(text: str, spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        before = start
        while before and text[before - 1] == "\\":
            before -= 1
        first = start - (start - before) % 2  # a backslash left alone would escape what stands for the token
        if found and first < found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((first, end))
    return found


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _base64_forms(raw: bytes) -> Iterator[str]:
    """A token's base64 at each alignment, in both alphabets, without characters that hold bits of others."""
    for shift in range(3):
        encoded = base64.b64encode(b"\0" * shift + raw).decode()
        start = (0, 2, 3)[shift]
        end = len(encoded.rstrip("=")) - (1 if (len(raw) + shift) % 3 else 0)
        core = encoded[start:end]
        if len(core) >= SHORTEST:
            yield from {core, core.replace("+", "-").replace("/", "_")}
