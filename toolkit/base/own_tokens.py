r"""Find and mask the tokens and signing keys of this process.

A token is found in a fixed list of spellings:

- the token itself, in upper, lower or mixed case
- the hexadecimal digits of it, in both cases
- the base64 of it in the standard and the URL alphabet, with and without padding, at three offsets
- each of these with the escapes of JSON (``\u002f``, ``\/``), HTML (``&#47;``, ``&sol;``) or URLs (``%2F``)

Base64 has three offsets because it encodes three bytes as four characters. For example, you find "token" as
``dG9rZW`` in the base64 of "token", and as ``0b2tlb`` in the base64 of "a token". Characters that also depend
on the neighbours are left out (`_base64_forms`).
"""

from __future__ import annotations

import base64
import operator
import re
import sys
import weakref
from bisect import bisect_right
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from html.entities import html5
from typing import Any, Final, Protocol

SHORTEST: Final = 6
"""Least characters of a token that is searched: shorter ones would mask ordinary words."""

PLAIN_MASK: Final = "[masked token]"
"""Replaces a token in errors and warnings, which have no key for the tag of a longer mask."""

MASK: Final = re.compile(r"\[masked len=\d+ tag=[0-9a-f]{8}\]")
MASK_START: Final = "[masked len="

_NAMED: Final = {
    name.rstrip(";"): text
    for name, text in html5.items()
    if len(text) == 1 and "!" <= text <= "~"
}
_HEX: Final = "([2-7][0-9a-fA-F])"  # of a printable ASCII character
# An escape of a character that a token may contain. Each kind has a separate group, see `_character`. The
# expression begins with a set of single characters, which Python searches quickly.
#
# For example, these are all escapes of "/":
#   %2F, %252f, %u002F       URLs; %25 is an escaped percent sign
#   \u002f, \u{2f}, \x2F, \/  JSON and JavaScript, after any number of backslashes
#   &#x2f;, &#47;, &sol;     HTML, perhaps with an escaped ampersand: &amp;#47;
_ESCAPE: Final = re.compile(
    r"[%\\&](?:"
    rf"(?<=%)(?:25)*(?:[uU]00)?{_HEX}"
    rf"|(?<=\\)\\*(?:[uU]00{_HEX}|[uU]\{{0*{_HEX}\}}|[xX]{_HEX}|([\"'/]))"
    r"|(?<=\\)(\\)\\*"
    rf"|(?<=&)(?:amp;)*(?:#[xX]0*{_HEX};?|#0*([3-9][0-9]|1[01][0-9]|12[0-6])(?![0-9]);?"
    rf"|({'|'.join(sorted(_NAMED, key=len, reverse=True))});))"
)
# characters at the beginning of a truncated token that reveal too much
_PREFIX: Final = 8
_MOST_LAYERS: Final = 8  # of escapes within escapes, for example JSON in HTML


class DecodedText:
    r"""Text with escapes decoded. `origin` returns the index of a character in the original text.

    >>> view = DecodedText(r"the \u0042earer").replaced(re.compile(r"\\u0042"), lambda match: "B")
    >>> view.text, view.origin(4), view.origin(5)
    ('the Bearer', 4, 10)
    """

    __slots__ = ("_before", "_ends", "_indices", "_sizes", "_starts", "text")

    def __init__(self, text: str, before: DecodedText | None = None) -> None:
        self.text = text
        self._before = before
        # For each replacement, its index and size in this text, and its start and end in the text before.
        # Example: "x%2Fy" becomes "x/y". The replacement has index 1 and size 1; before, it was at 1 to 4.
        self._indices: list[int] = []
        self._sizes: list[int] = []
        self._starts: list[int] = []
        self._ends: list[int] = []

    def replaced(
        self, pattern: re.Pattern[str], meaning: Callable[[re.Match[str]], str]
    ) -> DecodedText | None:
        """Return the text with each match replaced, or None if nothing matches."""
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
        """Return the index in the original of the character at an index.

        The index after the last character becomes the end of the original.
        """
        if self._before is None:
            return index

        # Find the last replacement at or before the index. The text after it is shifted as a whole. In the
        # example "x/y" for "x%2Fy", "y" follows the replacement, which ended at 4 before, so "y" was at 4.
        last = bisect_right(self._indices, index) - 1
        if last < 0:  # before the first replacement
            return self._before.origin(index)

        offset = index - self._indices[last]
        beyond = offset - self._sizes[last]
        if beyond >= 0:
            return self._before.origin(self._ends[last] + beyond)

        return self._before.origin(min(self._starts[last] + offset, self._ends[last]))


class _Revealing(Protocol):
    def reveal(self) -> str: ...


class _Forms:
    """The spellings of several tokens. It has no `__dict__`, because `vars` would show them."""

    __slots__ = ("_escape", "_pattern", "exact", "folded", "likely")

    def __init__(self, tokens: Iterable[str]) -> None:
        in_any_case = set[str]()
        exact = set[str]()
        for token in tokens:
            if len(token) >= SHORTEST:
                # a token that is not Unicode is refused later, but errors made until then must not show it
                encoded = token.encode("utf-8", "surrogatepass")
                in_any_case |= {token.lower(), encoded.hex()}
                exact.update(_base64_forms(encoded))

        # longest first, so that an encoded form is masked whole
        self.folded = tuple(sorted(in_any_case, key=len, reverse=True))
        self.exact = tuple(sorted(exact, key=len, reverse=True))
        alternatives = [f"(?i:{_any_of(self.folded)})"]
        if self.exact:
            alternatives.append(f"(?:{_any_of(self.exact)})=*")
        self._pattern = re.compile("|".join(alternatives))
        escape = _escape_hint((*self.folded, *self.exact))
        self._escape = re.compile(escape)
        self.likely = re.compile(_quick_test(self.folded, self.exact, escape))

    def spans(self, text: str, *, truncated: bool = False) -> list[tuple[int, int]]:
        """Return the spans of tokens in order, without overlaps.

        With `truncated`, the beginning of a token is found as well, for example if it is quoted in part.
        """
        if len(text) < SHORTEST:
            return []

        search = self._whole
        if truncated:
            search = self._whole_or_beginning
        spans = list(search(text))
        if self._escape.search(text):
            spans += self._escaped(text, search)
        return _merged(text, spans)

    def _whole(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield the spans of whole tokens without escapes."""
        folded_forms = map(text.lower().__contains__, self.folded)
        exact_forms = map(text.__contains__, self.exact)
        if any(folded_forms) or any(exact_forms):
            yield from map(re.Match.span, self._pattern.finditer(text))

    def _whole_or_beginning(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield the spans of whole tokens, and of their first characters if others follow."""
        yield from self._whole(text)
        lower = text.lower()
        for form in self.folded:
            yield from _beginnings(lower, form)
        for form in self.exact:
            yield from _beginnings(text, form)

    def _escaped(
        self, text: str, search: Callable[[str], Iterator[tuple[int, int]]]
    ) -> Iterator[tuple[int, int]]:
        """Yield the spans of tokens with escapes, which are decoded layer by layer."""
        view = DecodedText(text)
        for _ in range(_MOST_LAYERS):
            next_view = view.replaced(_ESCAPE, _character)
            if next_view is None:
                return
            view = next_view
            for start, end in search(view.text):
                yield view.origin(start), view.origin(end)


def _any_of(forms: Iterable[str]) -> str:
    """Return a regular expression for any of these strings."""
    return "|".join(map(re.escape, forms))


def _escape_hint(forms: Sequence[str]) -> str:
    """Return an expression that every escape of a character of a token matches (RE2 syntax)."""
    characters = set("".join(forms))
    # a backslash before a quote or a slash matters only if a token contains it
    after_backslash = "".join(
        re.escape(sign) for sign in "\"'/\\" if sign in characters
    )
    return rf"%[2-7uU]|\\(?:[xX{after_backslash}]|[uU](?:00[2-7]|\{{))|&[#a-zA-Z]"


def _quick_test(folded: Iterable[str], exact: Iterable[str], escape: str) -> str:
    """Return an expression for columns, which contain Unicode only (RE2 syntax)."""
    alternatives = [escape]
    if any_case := _any_of(filter(_is_unicode, folded)):
        alternatives.append(f"(?i:{any_case})")
    if one_case := _any_of(filter(_is_unicode, exact)):
        alternatives.append(one_case)
    return "|".join(alternatives)


def _beginnings(text: str, form: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of at least `_PREFIX` characters that begin a spelling of a token.

    >>> list(_beginnings("see my-secret-to...", "my-secret-token"))
    [(4, 16)]
    """
    start = text.find(form[:_PREFIX])
    while start >= 0:
        size = 0
        for character, expected in zip(
            text[start : start + len(form)], form, strict=False
        ):
            if character != expected:
                break
            size += 1

        yield start, start + size
        start = text.find(form[:_PREFIX], start + 1)


class _Live:
    """The tokens of all `Secret` objects that are alive."""

    __slots__ = ("_change", "_known", "_secrets")

    def __init__(self) -> None:
        self._secrets: dict[int, weakref.ref[_Revealing]] = {}
        self._change = object()
        self._known: tuple[object, _Forms | None] = (None, None)

    def watch(self, secret: _Revealing) -> None:
        """Mask a secret until it is deleted."""
        key = id(secret)

        def forget(_: object) -> None:
            self._secrets.pop(key, None)
            self._change = object()

        self._secrets[key] = weakref.ref(secret, forget)
        self._change = object()

    def forms(self) -> _Forms | None:
        """Return the spellings of all that are alive, or None if no token is."""
        change = self._change
        known_change, forms = self._known
        if known_change is change:
            return forms

        alive = [reference() for reference in list(self._secrets.values())]
        tokens = {secret.reveal() for secret in alive if secret is not None}
        forms = None
        if max(map(len, tokens), default=0) >= SHORTEST:
            forms = _Forms(tokens)
        self._known = change, forms

        return forms


_LIVE: Final = _Live()


def watch(secret: _Revealing) -> None:
    """Mask this secret everywhere until it is deleted."""
    _LIVE.watch(secret)


def masked(text: str, mask: Callable[[str], str] | None = None) -> str:
    """Return the text with every live token masked.

    `mask` makes the mask of a token. If omitted, `PLAIN_MASK` is used, as in messages. Since messages quote
    truncated values, the beginning of a token is masked then as well.
    """
    forms = _LIVE.forms()
    if forms is None or not text:
        return text

    parts: list[str] = []
    copied = 0
    for start, end in forms.spans(text, truncated=mask is None):
        mask_of_token = PLAIN_MASK
        if mask is not None:
            mask_of_token = mask(text[start:end])
        parts += text[copied:start], mask_of_token
        copied = end

    return "".join((*parts, text[copied:]))


class TooDeepError(Exception):
    """A JSON value is nested deeper than allowed."""


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
    """Map the names and the values of a JSON document, and return the new document.

    `name` is called with each name, and `leaf` with each value that is neither an object nor an array. The
    second argument of `leaf` tells whether the value is secret: it is if it or something around it is under a
    name that `hidden` returns for an object, or at a position that `hidden_items` returns for an array.

    Raises `TooDeepError` if there are more levels of nesting than `levels`.
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
    """Return a JSON document with every live token in strings and names masked."""

    def mask_string(leaf: Any, _: bool) -> Any:  # noqa: FBT001 - as `map_json` calls it
        if isinstance(leaf, str):
            return masked(leaf)
        return leaf

    return map_json(value, mask_string, masked)


def is_in(text: str) -> bool:
    """Return whether the text contains a live token."""
    forms = _LIVE.forms()
    return forms is not None and len(forms.spans(text)) > 0


def is_in_truncated(text: str) -> bool:
    """Return whether the text contains a live token, perhaps without the last two characters."""
    forms = _LIVE.forms()
    if forms is None:
        return False

    lower = text.lower()
    return is_in(text) or any(form[:-2] in lower for form in forms.folded)


def likely() -> re.Pattern[str] | None:
    """Return an expression (RE2 syntax) that every text with a live token matches, or None without tokens."""
    forms = _LIVE.forms()
    if forms is None:
        return None

    return forms.likely


def mask_handled() -> None:
    """Mask the errors that are being handled, since they become the context of the error that is made."""
    if _LIVE.forms() is None:
        return

    seen = set[int]()
    waiting = [sys.exception()]
    while waiting:
        error = waiting.pop()
        if error is None or id(error) in seen:
            continue
        seen.add(id(error))
        waiting += error.__cause__, error.__context__
        _mask_error(error)


def _mask_error(error: BaseException) -> None:
    """Mask the arguments and attributes of an error, for example a document that could not be decoded."""
    arguments = tuple(map(_masked_text, error.args))
    if any(map(operator.is_not, arguments, error.args)):
        error.args = arguments
    for name in ("strerror", "filename", "object", "reason", *vars(error)):
        value = getattr(error, name, None)
        if (new := _masked_text(value)) is not value:
            setattr(error, name, new)


def _masked_text(value: object) -> object:
    """Return text or bytes with every live token masked, or the same object if nothing is masked."""
    result: str | bytes
    if isinstance(value, str):
        result = masked(value)
    elif isinstance(value, bytes):
        result = masked(value.decode("latin-1")).encode("latin-1")
    else:
        return value

    if result == value:
        return value

    return result


def _character(match: re.Match[str]) -> str:
    """Return the character that an escape stands for. The number of the matching group tells the kind."""
    group = match.lastindex or 0
    decode = _DECODERS.get(group, _hexadecimal)
    return decode(match[group])


def _hexadecimal(digits: str) -> str:
    return chr(int(digits, 16))


def _decimal(digits: str) -> str:
    return chr(int(digits))


_DECODERS: Final[dict[int, Callable[[str], str]]] = {
    5: str,
    6: str,
    8: _decimal,
    9: _NAMED.__getitem__,
}
"""The function for a group of `_ESCAPE`; all others are hexadecimal digits."""


def _merged(text: str, spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the spans in order; overlapping ones are joined, and a backslash that begins one is added."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        # a backslash that is left alone would escape the mask
        first = start - _backslashes_before(text, start) % 2
        if merged and first < merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((first, end))

    return merged


def _backslashes_before(text: str, index: int) -> int:
    """Return the number of backslashes right before an index."""
    start = index
    while start and text[start - 1] == "\\":
        start -= 1
    return index - start


def _is_unicode(text: str) -> bool:
    """Return whether the text contains no lone surrogates."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _base64_forms(raw: bytes) -> Iterator[str]:
    """Yield the base64 of a token at three offsets, in both alphabets.

    Characters that also encode bits of neighbours are left out. After one byte, these are the first two
    characters, and after two bytes the first three. The last one is left out unless it ends a group of four.
    """
    for bytes_before, foreign_characters in enumerate((0, 2, 3)):
        encoded = base64.b64encode(b"\0" * bytes_before + raw).decode()
        core = encoded.rstrip("=")[foreign_characters:]
        ends_with_group = (len(raw) + bytes_before) % 3 == 0
        if not ends_with_group:
            core = core[:-1]
        if len(core) >= SHORTEST:
            yield from {core, core.replace("+", "-").replace("/", "_")}
