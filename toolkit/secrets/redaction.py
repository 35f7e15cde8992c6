"""Mask secrets, and escape HTML.

Three kinds of secrets are masked: our own live tokens, values under a secret *name* (for example an
``Authorization`` header), and values that *look* secret (``Bearer …``, a JWT, a PEM block, user info in
URLs)::

    [masked len=42 tag=5d1c09ab]

The tag is made with a key that only this user has. Equal secrets have equal tags, so you can see that two
requests used the same token, but nobody without the key can test a guess.
"""

from __future__ import annotations

import ast
import hmac
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final, NamedTuple
from weakref import WeakSet

from toolkit.base.errors import SettingsError
from toolkit.base.own_tokens import MASK, DecodedText, is_in, map_json, masked, watch
from toolkit.base.visible_text import visible as visible  # noqa: PLC0414 - of this module for those above
from toolkit.secrets.hints import is_suspicious
from toolkit.secrets.masking_key import masking_key
from toolkit.secrets.names import (
    is_secret_name,
    normalise_header,
    secret_items,
    secret_members,
)
from toolkit.secrets.pairs import NO_QUOTE, Span
from toolkit.secrets.personal_data import PERSONAL_HINT, personal_spans
from toolkit.secrets.spans import (
    MASKED,
    decoded,
    text_spans,
    url_spans,
    without_masks,
    without_quote,
)

_PERSONAL: Final = re.compile(PERSONAL_HINT)
DISPLAYED_HEADERS: Final = frozenset(
    {
        "accept",
        "content-encoding",
        "content-length",
        "content-type",
        "date",
        "retried",
        "retry-after",
        "server",
        "upstash-message-id",
        "service-message-id",
        "upstash-retried",
        "service-retried",
        "upstash-workflow-runid",
        "service-workflow-runid",
        "user-agent",
        "x-ratelimit-limit",
        "x-ratelimit-remaining",
        "x-ratelimit-reset",
    }
)
"""Header names (normalised) whose values may be shown in HTML and widgets. All others show a mask."""

_LITERAL: Final = re.compile(r"""'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*\"""")
"""A string as `repr` writes it."""

_BETWEEN_MASKS: Final = re.compile(f"[^{MASKED}]+")
_SIGNS: Final = " \t\r\n,;:.\"'`&*=()[]{}<>"
_BEFORE: Final = frozenset('="')  # signs across which nothing is found
_AFTER: Final = frozenset(("", "&", '"'))
# without signs that end or divide a URL, an escape or a value
_ONE_WORD: Final = re.compile(r"[\w.~+/:\-]*+")
# layers of escapes that are read, with the text itself: JSON in JSON in HTML has four
_LAYERS: Final = 4
# times that text is searched, until nothing more is found next to a new mask
_PASSES: Final = 4


def _stays_here(what: str) -> SettingsError:
    return SettingsError(
        f"pickling {what}",
        got="a request to serialise it",
        expected="tokens to stay in this process",
        next_step="Call connect() in the process that needs the service.",
    )


def _framed(parts: Iterable[bytes]) -> bytes:
    """Return the parts with their lengths, so that ("ab", "c") and ("a", "bc") stay different.

    >>> _framed([b"ab", b"c"])
    b'2:ab1:c'
    """
    return b"".join(b"%d:%b" % (len(part), part) for part in parts)


class Secret:
    """A value that can be used and compared but not shown: not by repr, str, vars, pickle or format.

    Examples
    --------
    >>> Secret("s3cr3t")
    Secret(***)
    """

    __slots__ = ("__reveal", "__weakref__")

    def __init__(self, value: str) -> None:
        self.__reveal: Callable[[], str] = lambda: value
        watch(self)

    def reveal(self) -> str:
        """Return the value itself, for the code that sends it."""
        return self.__reveal()

    def __repr__(self) -> str:
        return "Secret(***)"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self.reveal().encode(), other.reveal().encode())

    def __hash__(self) -> int:
        return hash(("Secret", self.reveal()))

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, memo: object) -> Secret:
        return self

    def __reduce__(self) -> tuple[object, ...]:
        raise _stays_here("a token")


class Redactor:
    """Mask secrets in names, text, URLs and header maps.

    Parameters
    ----------
    key : bytes, optional
        Key of the mask tags. If omitted, the key of this user, see `masking_key`.
    own : iterable of Secret
        Tokens and signing keys to mask as long as this redactor lives. Every redactor masks all tokens that
        live in the process.
    mask_personal : bool, default False
        Also mask e-mail addresses, phone numbers and card numbers. As long as a redactor with this option
        lives, every redactor of the process masks them, because frames and reports make new redactors.

    Examples
    --------
    >>> redact = Redactor(key=b"example")
    >>> redact.url("https://ann:pw@example.com/a?token=abc")
    'https://[masked len=6 tag=75f3361f]@example.com/a?token=[masked len=3 tag=cef30295]'
    """

    # no __dict__: vars() of it would show the tokens it looks for
    __slots__ = ("__weakref__", "_key", "_own")

    def __init__(
        self,
        *,
        key: bytes | None = None,
        own: Iterable[Secret] = (),
        mask_personal: bool = False,
    ) -> None:
        if key is None:
            key = masking_key()
        self._key = key
        # a token is masked as long as a `Secret` with it is alive, so keep these
        self._own = tuple(own)
        if mask_personal:
            _MASKING_PERSONAL.add(self)

    @property
    def masks_personal(self) -> bool:
        """Return whether any redactor of the process masks personal data."""
        return len(_MASKING_PERSONAL) > 0

    def __repr__(self) -> str:
        if self._own:
            return "Redactor(own secrets known)"
        return "Redactor()"

    def __copy__(self) -> Redactor:
        return self

    def __deepcopy__(self, memo: object) -> Redactor:
        return self

    def __reduce__(self) -> tuple[object, ...]:
        raise _stays_here("a redactor, which knows the tokens it masks")

    def mask(self, value: str) -> str:
        """Return the mask of a value: the length in characters and a keyed tag."""
        if MASK.fullmatch(value):
            return value

        encoded = value.encode("utf-8", "surrogatepass")
        digest = hmac.digest(self._key, encoded, "sha256")
        tag = digest[:4].hex()

        return f"[masked len={len(value)} tag={tag}]"

    def derived_key(self, purpose: str) -> bytes:
        """Return 32 bytes that only this user can derive, for one purpose and one set of own tokens."""
        tokens = sorted(secret.reveal().encode() for secret in self._own)
        message = _framed([purpose.encode(), *tokens])
        return hmac.digest(self._key, message, "sha256")

    def keyed_tag(self, purpose: str, value: Secret | None = None) -> str:
        """Return 32 hexadecimal digits that are equal for equal values.

        Without the key, nobody can guess the value. If no value is given, the digits only show whether two
        tags were made with the same key.
        """
        parts = [purpose.encode()]
        if value is not None:
            parts.append(value.reveal().encode("utf-8", "surrogatepass"))
        return hmac.digest(self._key, _framed(parts), "sha256")[:16].hex()

    def own(self, text: str) -> str:
        """Return the text with our own live tokens masked, and nothing else; see `own_tokens`."""
        return masked(text, self.mask)

    def text(self, text: str) -> str:
        """Return the text with own tokens masked, and then everything that looks like a secret."""
        text = self.own(text)
        if is_suspicious(text) or self._may_be_personal(text):
            return self._masked(text, text_spans)

        return text

    def _may_be_personal(self, text: str) -> bool:
        """Return whether the text can contain personal data that this redactor masks."""
        # the sign of an address, or three digits: "ann@mail.example", "call 555 0100"
        if not self.masks_personal:
            return False
        return _PERSONAL.search(text) is not None

    def code(self, code: str) -> str:
        """Mask Python code made with `repr`: each string by itself, so that the code stays valid."""
        return _LITERAL.sub(
            lambda match: repr(self.text(ast.literal_eval(match[0]))), code
        )

    def url(self, url: str) -> str:
        """Mask user info, values of parameters and the fragment of a URL; host and path stay readable."""
        return self._masked(self.own(url), url_spans)

    def header(self, name: str, value: str) -> str:
        """Mask the value of a header: the whole value if the name is secret, else the secrets in it."""
        if is_secret_name(name):
            return self.mask(value)
        return self.text(value)

    def headers(self, headers: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
        """Return a header map (name to list of values) as it may be kept."""
        masked_headers = {}
        for name, values in headers.items():
            mask_value = partial(self.header, name)
            masked_headers[name] = list(map(mask_value, values))

        return masked_headers

    def value(
        self, value: Any, *, secret: bool = False, levels: int = sys.maxsize
    ) -> Any:
        """Mask strings that look like secrets in a JSON document, and values under a secret name.

        Under a secret name, numbers are masked as well; with `secret`, everything is. Raises `TooDeepError`
        if there are more levels of nesting than `levels`.

        >>> Redactor(key=b"example").value({"credentials": {"user": "ann"}, "n": 1})
        {'credentials': {'user': '[masked len=3 tag=0ea2b77b]'}, 'n': 1}
        """
        return map_json(
            value,
            self.leaf,
            self.text,
            hidden=secret_members,
            hidden_items=secret_items,
            secret=secret,
            levels=levels,
        )

    def leaf(self, value: Any, secret: bool) -> Any:  # noqa: FBT001 - as `map_json` calls it
        """Mask a JSON value that is neither an object nor an array, as `value` does."""
        if isinstance(value, str):
            return self._text_leaf(value, secret=secret)
        if isinstance(value, int | float):
            return self._number_leaf(value, secret=secret)

        return value

    def _text_leaf(self, value: str, *, secret: bool) -> str:
        """Mask the whole string if it is secret, else the secrets in it."""
        if secret and value:
            return self.mask(value)
        return self.text(value)

    def _number_leaf(self, value: float, *, secret: bool) -> float | str:
        """Mask a number that is secret, for example a PIN, or one of our own tokens."""
        if isinstance(value, bool):
            # true and false are no secrets, and a mask of them can be guessed
            return value

        digits = str(value)
        is_secret = secret or is_in(digits)
        if not is_secret:
            return value

        return self.mask(digits)

    def displayed_header(self, name: str, value: str) -> str:
        """Return the value of a header for HTML and widgets: only an allow-list of names stays readable."""
        shown = normalise_header(name) in DISPLAYED_HEADERS
        if shown:
            return self.text(value)

        return self.mask(value)

    def _masked(self, text: str, find: Callable[[str], list[Span]]) -> str:
        """Mask the secrets that `find` finds, also with escapes decoded layer by layer."""
        # Method: search the text, then the same text with one layer of escapes decoded, and so on. Spans of
        # every layer are translated to spans of the original text, where the masks are put. For example:
        #   layer 0: note=password%3Dhunter2    no secret
        #   layer 1: note=password=hunter2      a secret from 14 to 21, in the original from 16 to 23
        # A mask can change the meaning of the text around it, so the masked text is searched once more.
        for _ in range(_PASSES):
            view = without_masks(DecodedText(text))
            spans = self._with_personal(find(view.text), view.text)
            matches = [*_runs(text, view, spans)]
            # If masks cannot change the meaning of the text around them, a second pass finds nothing new.
            is_final = _are_separate(view.text, spans)

            # Only the original text can be one URL. With escapes decoded, it may contain several.
            for layer in _decoded_layers(view):
                decoded_spans = self._with_personal(text_spans(layer.text), layer.text)
                matches += _runs(text, layer, decoded_spans)
                is_final = is_final and not decoded_spans

            if not matches:
                return text
            text = self._with_masks(text, _united(matches, text))
            if is_final:
                break

        return text

    def _with_personal(self, spans: list[Span], text: str) -> list[Span]:
        """Return the spans, with the ones of personal data if these are masked."""
        if not self.masks_personal:
            return spans
        return [*spans, *map(without_quote, personal_spans(text))]

    def _with_masks(self, text: str, secrets: list[_Found]) -> str:
        """Return the text with a mask in place of each secret."""
        parts = []
        end = 0
        for secret in secrets:
            mask = self.mask(secret.secret)
            parts += [text[end : secret.start], secret.quote, mask, secret.quote]
            end = secret.end

        return "".join((*parts, text[end:]))


_MASKING_PERSONAL: Final[WeakSet[Redactor]] = WeakSet()
"""The living redactors that mask personal data: known to the process, as own tokens are."""


class _Found(NamedTuple):
    """A secret: the span in the text, the quote to put around the mask, and the decoded value."""

    start: int
    end: int
    quote: str
    secret: str


def _decoded_layers(view: DecodedText) -> Iterator[DecodedText]:
    """Yield the text with one, two and more layers of escapes decoded."""
    # for example, "a%253Db" has the layers "a%3Db" and "a=b"
    for _ in range(_LAYERS - 1):
        layer = decoded(view)
        if layer is None:
            return
        yield layer
        view = layer


def _runs(text: str, view: DecodedText, spans: list[Span]) -> Iterator[_Found]:
    """Yield the secret parts between existing masks, as spans of the original text."""
    # For example, a header is masked in part: "Cookie: a=[masked len=6 tag=1b2c3d4e]; b=2". In the view, the
    # mask is one character, and the span is the whole value. The runs around the mask are "a=" and "; b=2".
    for start, stop, quote in spans:
        quote_sign = ""
        if quote != NO_QUOTE:
            quote_sign = text[view.origin(quote) : view.origin(quote + 1)]
        for run in _BETWEEN_MASKS.finditer(view.text, start, stop):
            secret = run[0]
            if not secret.strip(_SIGNS):
                # only signs are left between two masks, for example "; "
                continue
            run_start = view.origin(run.start())
            run_end = view.origin(run.end())
            yield _Found(run_start, run_end, quote_sign, secret)


def _united(matches: list[_Found], text: str) -> list[_Found]:
    """Return the matches in order, with overlapping ones joined."""
    # Method: as in `spans._merged`, with the longest of several matches that begin at one index first.
    kept: list[_Found] = []
    last_end = 0
    for match in sorted(matches, key=_place):
        if match.start < last_end:
            kept[-1] = _joined(kept[-1], match, text)
        else:
            kept.append(match)

        last_end = kept[-1].end

    return kept


def _place(match: _Found) -> tuple[int, int]:
    """Return the key that sorts matches by the start, and the longer ones first."""
    return match.start, -match.end


def _joined(first: _Found, second: _Found, text: str) -> _Found:
    """Return one match for two that overlap; the first begins earlier or is longer."""
    # The three cases, for example with first = 0 to 5:
    #   second = 3 to 9   0 to 9
    #   second = 0 to 5   the second: the same value with more escapes decoded
    #   second = 1 to 3   the first
    if second.end > first.end:
        joined_text = text[first.start : second.end]
        return _Found(first.start, second.end, first.quote, joined_text)

    has_same_place = _place(second) == _place(first)
    if has_same_place:
        return second

    return first


def _are_separate(text: str, spans: list[Span]) -> bool:
    """Return whether every span is delimited and one word, so that a mask changes nothing around it."""
    return all(
        text[start - 1 : start] in _BEFORE
        and text[end : end + 1] in _AFTER
        and _ONE_WORD.fullmatch(text, start, end)
        for start, end, _ in spans
    )


_ENTITIES: Final = {
    ord("&"): "&amp;",
    ord("<"): "&lt;",
    ord(">"): "&gt;",
    ord('"'): "&quot;",
    ord("'"): "&#39;",
}


_MATHS: Final = re.compile(r"[$\\]")
# of addresses and paths, not of closing tags
_SLASHES: Final = re.compile(r"(?<=[\w.~%-])/(?!/|$)")


def escape_html(text: object, *, inside: str = "span") -> str:
    r"""Escape the content of HTML elements; for attribute values see `escape_attribute`.

    Notebook pages typeset TeX: JupyterLab, nbconvert and others turn ``$\href{…}{…}$`` into a link and
    ``\color{white}`` into nothing. They search for two delimiters within one element, so each ``$`` and
    backslash is put into a separate element (`inside`: ``tspan`` in SVG). The visible text stays.

    >>> escape_html('<img src=x onerror="alert(1)">')
    '&lt;img src=x onerror=&quot;alert(1)&quot;&gt;'
    >>> escape_html("for $5 each")
    'for <span>$</span>5 each'
    """
    return _MATHS.sub(
        lambda match: f"<{inside}>{match[0]}</{inside}>", escape_attribute(text)
    )


def escape_wrapping(text: object) -> str:
    """Escape text as `escape_html` does, and allow line breaks after the slashes of addresses.

    >>> escape_wrapping("https://shop.example/pay")
    'https://shop.example/<wbr>pay'
    """
    escaped = escape_html(text)
    if "://" in escaped:
        return _SLASHES.sub(r"\g<0><wbr>", escaped)

    return escaped


def escape_attribute(text: object) -> str:
    """Escape the value of a quoted attribute, or content without elements, for example a title.

    >>> escape_attribute('a "b" for $5')
    'a &quot;b&quot; for $5'
    """
    return visible(str(text)).translate(_ENTITIES)
