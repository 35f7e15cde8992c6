"""Mask secrets, keep the masking key, and escape HTML.

Three kinds of secrets are masked: our own live tokens, values under a secret *name* (for example an
``Authorization`` header), and values that *look* secret (``Bearer …``, a JWT, a PEM block, user info in
URLs)::

    [masked len=42 tag=5d1c09ab]

The tag is made with a key that only this user has. Equal secrets have equal tags, so you can see that two
requests used the same token, but nobody without the key can test a guess.
"""

from __future__ import annotations

import ast
import errno
import hmac
import os
import re
import secrets
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple
from weakref import WeakSet

from toolkit.base.errors import SettingsError
from toolkit.base.own_tokens import MASK, DecodedText, is_in, map_json, masked, watch
from toolkit.base.private_files import make_folder, make_private, user_folder
from toolkit.base.visible_text import visible as visible  # noqa: PLC0414 - of this module for those above
from toolkit.secrets.hints import is_suspicious
from toolkit.secrets.named_values import Span
from toolkit.secrets.names import (
    is_secret_name,
    normalise_header,
    secret_items,
    secret_members,
)
from toolkit.secrets.personal_data import PERSONAL_HINT, personal_spans
from toolkit.secrets.spans import MASKED, decoded, text_spans, url_spans, without_masks

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

KEY_VARIABLE: Final = "TOOLKIT_MASKING_KEY"
KEY_FILE_VARIABLE: Final = "TOOLKIT_MASKING_KEY_FILE"
_KEY_BYTES: Final = 32
_KEY_DIGITS: Final = re.compile(rb"[0-9a-fA-F]{64}")
_MOST_KEY_BYTES: Final = 256  # read of a file, which may not be a key

_LITERAL: Final = re.compile(r"""'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*\"""")
"""A string as `repr` writes it."""

_BETWEEN_MASKS: Final = re.compile(f"[^{MASKED}]+")
_SIGNS: Final = " \t\r\n,;:.\"'`&*=()[]{}<>"
_BEFORE: Final = frozenset('="')  # signs across which nothing is found
_AFTER: Final = frozenset(("", "&", '"'))
_ONE_WORD: Final = re.compile(
    r"[\w.~+/:\-]*+"
)  # without signs that end or divide a URL, an escape or a value
_LAYERS: Final = 4  # of escapes: JSON in JSON in HTML
_PASSES: Final = 4  # at most, until nothing more is found next to a new mask


def _stays_here(what: str) -> SettingsError:
    return SettingsError(
        f"pickling {what}",
        got="a request to serialise it",
        expected="tokens to stay in this process",
        next_step="Call connect() in the process that needs the service.",
    )


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
        tag = hmac.digest(self._key, value.encode("utf-8", "surrogatepass"), "sha256")[
            :4
        ].hex()
        return f"[masked len={len(value)} tag={tag}]"

    def derived_key(self, purpose: str) -> bytes:
        """Return 32 bytes that only this user can derive, for one purpose and one set of own tokens."""
        parts = (
            purpose.encode(),
            *sorted(secret.reveal().encode() for secret in self._own),
        )
        return hmac.digest(
            self._key,
            b"".join(b"%d:%b" % (len(part), part) for part in parts),
            "sha256",
        )

    def keyed_tag(self, purpose: str, value: Secret | None = None) -> str:
        """Return 32 hexadecimal digits that are equal for equal values.

        Without the key, nobody can guess the value. If no value is given, the digits only show whether two
        tags were made with the same key.
        """
        parts = [purpose.encode()]
        if value is not None:
            parts.append(value.reveal().encode("utf-8", "surrogatepass"))
        message = b"".join(b"%d:%b" % (len(part), part) for part in parts)
        return hmac.digest(self._key, message, "sha256")[:16].hex()

    def own(self, text: str) -> str:
        """Return the text with our own live tokens masked, and nothing else; see `own_tokens`."""
        return masked(text, self.mask)

    def text(self, text: str) -> str:
        """Return the text with own tokens masked, and then everything that looks like a secret."""
        text = self.own(text)
        if is_suspicious(text) or (self.masks_personal and _PERSONAL.search(text)):
            return self._masked(text, text_spans)
        return text

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
        return {
            name: [self.header(name, value) for value in values]
            for name, values in headers.items()
        }

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
            if value and secret:
                return self.mask(value)
            return self.text(value)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if number and (secret or is_in(str(value))):
            return self.mask(str(value))
        return value

    def displayed_header(self, name: str, value: str) -> str:
        """Return the value of a header for HTML and widgets: only an allow-list of names stays readable."""
        shown = normalise_header(name) in DISPLAYED_HEADERS
        if shown:
            return self.text(value)
        return self.mask(value)

    def _masked(self, text: str, find: Callable[[str], list[Span]]) -> str:
        """Mask the secrets that `find` finds, also with escapes decoded layer by layer."""
        for _ in range(_PASSES):
            view: DecodedText | None = without_masks(DecodedText(text))
            matches: list[_Found] = []
            alone = True
            for layer in range(_LAYERS):
                if view is None:
                    break
                # Only the original text can be one URL. With escapes decoded, it may contain several.
                search = find
                if layer:
                    search = text_spans
                spans = search(view.text)
                if self.masks_personal:
                    spans += ((*span, -1) for span in personal_spans(view.text))
                # If masks cannot change the meaning of the text around them, a second pass finds nothing new.
                if layer == 0:
                    alone = _are_separate(view.text, spans)
                elif spans:
                    alone = False
                matches += _runs(text, view, spans)
                view = decoded(view)
            parts, end = [], 0
            for match in _united(matches, text):
                parts += [
                    text[end : match.start],
                    match.quote,
                    self.mask(match.secret),
                    match.quote,
                ]
                end = match.end
            text = "".join((*parts, text[end:]))
            if alone:
                break
        return text


_MASKING_PERSONAL: Final[WeakSet[Redactor]] = WeakSet()
"""The living redactors that mask personal data: known to the process, as own tokens are."""


class _Found(NamedTuple):
    """A secret: the span in the text, the quote to put around the mask, and the decoded value."""

    start: int
    end: int
    quote: str
    secret: str


def _runs(text: str, view: DecodedText, spans: list[Span]) -> Iterator[_Found]:
    """Yield the secret parts between existing masks, as spans of the original text."""
    for start, stop, quote in spans:
        mark = ""
        if quote >= 0:
            mark = text[view.origin(quote) : view.origin(quote + 1)]
        for run in _BETWEEN_MASKS.finditer(view.text, start, stop):
            if run[0].strip(_SIGNS):
                yield _Found(
                    view.origin(run.start()), view.origin(run.end()), mark, run[0]
                )


def _united(matches: list[_Found], text: str) -> list[_Found]:
    """Return the matches in order, with overlapping ones joined."""
    kept: list[_Found] = []
    for match in sorted(matches, key=lambda match: (match.start, -match.end)):
        if not kept or match.start >= kept[-1].end:
            kept.append(match)
            continue
        last = kept[-1]
        if match.end > last.end:
            kept[-1] = _Found(
                last.start, match.end, last.quote, text[last.start : match.end]
            )
        elif match[:2] == last[:2]:  # the same with more escapes decoded
            kept[-1] = match
    return kept


def _are_separate(text: str, spans: list[Span]) -> bool:
    """Return whether every span is delimited and one word, so that a mask changes nothing around it."""
    return all(
        text[start - 1 : start] in _BEFORE
        and text[end : end + 1] in _AFTER
        and _ONE_WORD.fullmatch(text, start, end)
        for start, end, _ in spans
    )


def masking_key(folder: Path | None = None) -> bytes:
    """Return the key for mask tags: 32 random bytes in a private file of the user, which is made if missing.

    By default, the file is in the configuration folder of the user. Masks stay comparable between syncs, and
    snapshots never contain the key. Raises `SettingsError` if the file is a link or contains no key.

    If that folder does not last, for example in a container, set `TOOLKIT_MASKING_KEY` to 64 hexadecimal
    digits, or `TOOLKIT_MASKING_KEY_FILE` to the path of a file with 32 bytes or 64 hexadecimal digits.
    """
    if folder is None and (given := _given_key()) is not None:
        return given
    folder = folder or user_folder("config")
    path = folder / "masking.key"
    try:
        make_folder(folder)
        if not (path.exists() or path.is_symlink()):
            make_private(path, secrets.token_bytes(32))
        return _read_key(
            path
        )  # perhaps the key of another process, if that process was first
    except OSError as error:
        raise SettingsError(
            f"reading the masking key {path.name!r} in the user's configuration folder",
            got=f"{type(error).__name__}: {error.strerror}",
            expected="a private file of 32 bytes",
            next_step="Set XDG_CONFIG_HOME to a folder this user may write.",
        ) from None


def _given_key() -> bytes | None:
    """Return the key from the environment variables, or None if they are not set."""
    digits, path = os.environ.get(KEY_VARIABLE), os.environ.get(KEY_FILE_VARIABLE)
    if digits and path:
        raise SettingsError(
            "reading the masking key",
            got=f"both {KEY_VARIABLE} and {KEY_FILE_VARIABLE}",
            expected="one of them",
            next_step="Unset the other.",
        )
    if digits:
        return _key_of(
            digits.encode("utf-8", "surrogateescape"),
            KEY_VARIABLE,
            "64 hexadecimal digits",
        )
    if not path:
        return None
    try:
        # a secret of Docker or Kubernetes is a link to a file of root's, so neither is refused here
        with Path(path).open("rb") as file:
            content = file.read(_MOST_KEY_BYTES)
    except OSError as error:
        raise SettingsError(
            "reading the masking key",
            got=f"{type(error).__name__}: {error.strerror}",
            expected=f"a file at the path in {KEY_FILE_VARIABLE}",
            next_step="Make one: openssl rand -hex 32 > masking.key.",
        ) from None
    if len(content) == _KEY_BYTES:
        return content
    return _key_of(content, KEY_FILE_VARIABLE, "64 hexadecimal digits, or 32 bytes")


def _key_of(written: bytes, variable: str, expected: str) -> bytes:
    """Return the key of these digits."""
    digits = written.strip()
    if not _KEY_DIGITS.fullmatch(digits):
        raise SettingsError(
            f"reading the masking key that {variable} gives",
            got=f"{len(digits)} characters",
            expected=expected,
            next_step="Make one with openssl rand -hex 32.",
        )
    return bytes.fromhex(digits.decode())


def _read_key(path: Path) -> bytes:
    if path.is_symlink():  # if the system has no flag for it (Windows)
        raise OSError(errno.ELOOP, "a link")
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
    with os.fdopen(handle, "rb") as file:
        if hasattr(os, "geteuid") and os.geteuid() not in (os.fstat(handle).st_uid, 0):
            # that user knows the key and could test guesses
            raise OSError(errno.EPERM, "another user's file")
        if stat.S_IMODE(os.fstat(handle).st_mode) & 0o077 and hasattr(os, "fchmod"):
            os.fchmod(handle, 0o600)
        key = file.read(64)
    if len(key) != _KEY_BYTES:
        raise SettingsError(
            f"reading the masking key {path.name!r} in the user's configuration folder",
            got=f"{len(key)} bytes",
            expected="32 bytes",
            next_step="Delete the file; a new key is made, and older masks will not compare with new ones.",
        )
    return key


_ENTITIES: Final = {
    ord("&"): "&amp;",
    ord("<"): "&lt;",
    ord(">"): "&gt;",
    ord('"'): "&quot;",
    ord("'"): "&#39;",
}


_MATHS: Final = re.compile(r"[$\\]")
_SLASHES: Final = re.compile(
    r"(?<=[\w.~%-])/(?!/|$)"
)  # of addresses and paths, not of closing tags


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
