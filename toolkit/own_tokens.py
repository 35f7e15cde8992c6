r"""The tokens and signing keys of this process: found in text, however they are escaped, and masked.

A token is found as it is, as hex digits in either case and as base64 (standard and URL alphabet, at each
alignment, with or without padding); each of its characters plain or escaped, in any mixture and depth:
``%2F``, ``%252f``, ``\u002f``, ``\x2f``, ``\/``, ``&#47;``, ``&#x2F;``, ``&sol;``.
"""

from __future__ import annotations

import base64
import re
import sys
import weakref
from bisect import bisect_right
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from html.entities import html5
from typing import Any, Final, Protocol

SHORTEST: Final = 6
"""Characters a token must have to be looked for: shorter ones would mask ordinary words."""

PLAIN_MASK: Final = "[masked token]"
"""Replaces a token where there is no key for the tag of a longer mask: in errors and warnings."""

MASK: Final = re.compile(r"\[masked len=\d+ tag=[0-9a-f]{8}\]")
MASK_START: Final = "[masked len="

_NAMED: Final = {
    name.rstrip(";"): text for name, text in html5.items() if len(text) == 1 and "!" <= text <= "~"
}
_HEX: Final = "([2-7][0-9a-fA-F])"  # of a printable ASCII character
# it begins with one set of characters, in their own case, which the search finds quickly
_ESCAPE: Final = re.compile(
    r"[%\\&](?:"
    rf"(?<=%)(?:25)*(?:[uU]00)?{_HEX}"
    rf"|(?<=\\)\\*(?:[uU]00{_HEX}|[uU]\{{0*{_HEX}\}}|[xX]{_HEX}|([\"'/]))"
    r"|(?<=\\)(\\)\\*"
    rf"|(?<=&)(?:amp;)*(?:#[xX]0*{_HEX};?|#0*([3-9][0-9]|1[01][0-9]|12[0-6])(?![0-9]);?"
    rf"|({'|'.join(sorted(_NAMED, key=len, reverse=True))});))"
)
_PREFIX: Final = 8  # characters at the beginning of a token that already reveal too much
_MOST_LAYERS: Final = 8  # of escapes within escapes, each kind's own nesting not counted


class DecodedText:
    r"""A text with its escapes decoded, each character traced to its index in the original.

    >>> found = DecodedText(r"say \u0042earer").replaced(re.compile(r"\\u0042"), lambda match: "B")
    >>> found.text, found.origin(4), found.origin(5)
    ('say Bearer', 4, 10)
    """

    __slots__ = ("_before", "_ends", "_indices", "_sizes", "_starts", "text")

    def __init__(self, text: str, before: DecodedText | None = None) -> None:
        self.text = text
        self._before = before
        # of each replacement: where it is and its size here, and what it replaced in the text before
        self._indices: list[int] = []
        self._sizes: list[int] = []
        self._starts: list[int] = []
        self._ends: list[int] = []

    def replaced(
        self, pattern: re.Pattern[str], meaning: Callable[[re.Match[str]], str]
    ) -> DecodedText | None:
        """The text with each match replaced; None without a match."""
        result = DecodedText("", self)
        parts: list[str] = []
        length = end = 0
        for match in pattern.finditer(self.text):
            start, stop = match.span()
            new = meaning(match)
            parts += self.text[end:start], new
            length += start - end
            result._indices.append(length)
            result._sizes.append(len(new))
            result._starts.append(start)
            result._ends.append(stop)
            length += len(new)
            end = stop
        if not parts:
            return None
        result.text = "".join((*parts, self.text[end:]))
        return result

    def origin(self, index: int) -> int:
        """The index in the original of the character at an index; after the last one, the original's end."""
        if self._before is None:
            return index
        last = bisect_right(self._indices, index) - 1
        if last >= 0:
            offset, size = index - self._indices[last], self._sizes[last]
            start, end = self._starts[last], self._ends[last]
            index = end + offset - size if offset >= size else min(start + offset, end)
        return self._before.origin(index)


class _Revealing(Protocol):
    def reveal(self) -> str: ...


class _Forms:
    """The forms of a set of tokens. It has no `__dict__`, as vars() would show them."""

    __slots__ = ("_escape", "_pattern", "exact", "folded", "likely")

    def __init__(self, tokens: Iterable[str]) -> None:
        # a token that is not Unicode is refused later, but errors made until then must not show it
        known = {token: token.encode("utf-8", "surrogatepass") for token in tokens if len(token) >= SHORTEST}
        folded = {form.lower() for token, raw in known.items() for form in (token, raw.hex())}
        exact = {form for raw in known.values() for form in _base64_forms(raw)}
        self.folded, self.exact = tuple(folded), tuple(exact)
        # longest first, so that an encoded form is masked whole
        either, single = (
            "|".join(re.escape(form) for form in sorted(forms, key=len, reverse=True))
            for forms in (folded, exact)
        )
        self._pattern = re.compile(f"(?i:{either})" + f"|(?:{single})=*" * bool(single))
        after = "".join(
            re.escape(sign) for sign in "\"'/\\" if any(sign in form for form in (*folded, *exact))
        )
        # columns hold Unicode alone
        either, single = (
            "|".join(map(re.escape, filter(_is_unicode, forms))) for forms in (self.folded, self.exact)
        )
        escape = rf"%[2-7uU]|\\(?:[xX{after}]|[uU](?:00[2-7]|\{{))|&[#a-zA-Z]"
        self.likely = re.compile("|".join(filter(None, (either and f"(?i:{either})", single, escape))))
        self._escape = re.compile(escape)

    def spans(self, text: str, *, truncated: bool = False) -> list[tuple[int, int]]:
        """The tokens' spans in order, without overlaps; with `truncated`, of their beginnings, too."""
        if len(text) < SHORTEST:
            return []
        plain = self._truncated if truncated else self._plain
        spans = list(plain(text))
        if self._escape.search(text):
            spans += self._escaped(text, plain)
        return _merged(text, spans) if spans else spans

    def _truncated(self, text: str) -> Iterator[tuple[int, int]]:
        yield from self._plain(text)
        lower = text.lower()
        for whole, several in ((lower, self.folded), (text, self.exact)):
            for form in several:
                start = whole.find(form[:_PREFIX])
                while start >= 0:
                    part = whole[start : start + len(form)]
                    other = (index for index, letter in enumerate(part) if letter != form[index])
                    yield start, start + next(other, len(part))
                    start = whole.find(form[:_PREFIX], start + 1)

    def _plain(self, text: str) -> Iterator[tuple[int, int]]:
        lower = text.lower()
        if any(form in lower for form in self.folded) or any(form in text for form in self.exact):
            for match in self._pattern.finditer(text):
                yield match.span()

    def _escaped(
        self, text: str, plain: Callable[[str], Iterator[tuple[int, int]]]
    ) -> Iterator[tuple[int, int]]:
        view: DecodedText | None = DecodedText(text)
        for _ in range(_MOST_LAYERS):
            view = view and view.replaced(_ESCAPE, _character)
            if view is None:
                return
            for start, end in plain(view.text):
                yield view.origin(start), view.origin(end)


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
        """The forms of all that are alive; None without any."""
        change = self._change
        known, forms = self._known
        if known is not change:
            tokens = {secret.reveal() for each in list(self._secrets.values()) if (secret := each())}
            forms = _Forms(tokens) if any(len(token) >= SHORTEST for token in tokens) else None
            self._known = change, forms
        return forms


_LIVE: Final = _Live()


def watch(secret: _Revealing) -> None:
    """Mask this secret from now on, for as long as it lives."""
    _LIVE.watch(secret)


def masked(text: str, mask: Callable[[str], str] | None = None) -> str:
    """The text with every live token in it masked.

    `mask` makes the mask of a token as it is written. By default it is `PLAIN_MASK`, for messages, which hold
    truncated texts: there the beginning of a token is masked too.
    """
    forms = _LIVE.forms()
    spans = forms.spans(text, truncated=mask is None) if forms is not None and text else None
    if not spans:
        return text
    parts: list[str] = []
    copied = 0
    for start, end in spans:
        parts += text[copied:start], PLAIN_MASK if mask is None else mask(text[start:end])
        copied = end
    return "".join((*parts, text[copied:]))


class TooDeepError(Exception):
    """A JSON value is nested deeper than was allowed."""


def map_json(
    value: Any,
    leaf: Callable[[Any, bool], Any],
    name: Callable[[str], str],
    *,
    hidden: Callable[[Mapping[str, Any]], Container[str]] = lambda _: (),
    hidden_items: Callable[[Sequence[Any]], Container[int]] = lambda _: (),
    secret: bool = False,
    levels: int = sys.maxsize,
) -> Any:
    """A JSON value with its names and its texts, numbers and the like mapped.

    `leaf` is called with a value and whether it, or something around it, is under one of the names that
    `hidden` returns for the members of its object, or at one of the positions that `hidden_items` returns for
    its list. Raises `TooDeepError` beyond so many levels of nesting.
    """
    if not isinstance(value, Mapping | list | tuple):
        return leaf(value, secret)
    if not levels:
        raise TooDeepError
    if isinstance(value, Mapping):
        names = hidden(value)
        return {
            name(key): map_json(
                item,
                leaf,
                name,
                hidden=hidden,
                hidden_items=hidden_items,
                secret=secret or key in names,
                levels=levels - 1,
            )
            for key, item in value.items()
        }
    positions = hidden_items(value)
    items = (
        map_json(
            item,
            leaf,
            name,
            hidden=hidden,
            hidden_items=hidden_items,
            secret=secret or position in positions,
            levels=levels - 1,
        )
        for position, item in enumerate(value)
    )
    return type(value)(items)


def masked_value(value: Any) -> Any:
    """A JSON-able value with every live token in its texts and names masked."""
    return map_json(value, lambda leaf, _: masked(leaf) if isinstance(leaf, str) else leaf, masked)


def is_in(text: str) -> bool:
    """Whether a live token is in the text."""
    forms = _LIVE.forms()
    return forms is not None and bool(text) and bool(forms.spans(text))


def is_in_truncated(text: str) -> bool:
    """Whether a live token is in the text, perhaps without its last two characters."""
    forms, lower = _LIVE.forms(), text.lower()
    return forms is not None and (is_in(text) or any(form[:-2] in lower for form in forms.folded))


def likely() -> re.Pattern[str] | None:
    """A cheap test (also in RE2's syntax): text without a match holds no live token. None without tokens."""
    forms = _LIVE.forms()
    return None if forms is None else forms.likely


def mask_handled() -> None:
    """Mask the errors that are being handled: they become the context of the one that is being made."""
    error, seen = sys.exception(), set[int]()
    waiting = [error]
    while waiting:
        error = waiting.pop()
        if error is not None and id(error) not in seen and _LIVE.forms() is not None:
            seen.add(id(error))
            waiting += error.__cause__, error.__context__
            _mask_error(error)


def _mask_error(error: BaseException) -> None:
    """Mask an error's arguments and attributes, such as the document that could not be decoded."""
    arguments = tuple(map(_masked_text, error.args))
    if any(new is not old for new, old in zip(arguments, error.args, strict=True)):
        error.args = arguments
    for name in ("strerror", "filename", "object", "reason", *vars(error)):
        value = getattr(error, name, None)
        if (new := _masked_text(value)) is not value:
            setattr(error, name, new)


def _masked_text(value: object) -> object:
    if isinstance(value, str):
        result = masked(value)
        return value if result == value else result
    if isinstance(value, bytes):
        text = value.decode("latin-1")
        result = masked(text)
        return value if result == text else result.encode("latin-1")
    return value


def _character(match: re.Match[str]) -> str:
    """The character of an escape."""
    escaped = match[match.lastindex or 0]
    match match.lastindex:
        case 5 | 6:
            return escaped
        case 8:
            return chr(int(escaped))
        case 9:
            return _NAMED[escaped]
        case _:
            return chr(int(escaped, 16))


def _merged(text: str, spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        before = start
        while before and text[before - 1] == "\\":
            before -= 1
        first = start - (start - before) % 2  # a backslash left alone would escape the mask
        if merged and first < merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((first, end))
    return merged


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
