"""Bodies as coloured markup: JSON laid out and coloured by kind, markup with its tags, everything else plain.

Colour is never the only sign: what is coloured is the syntax, which is there as text.
"""

from __future__ import annotations

import json
import re
from typing import Final

from toolkit.redaction import Redactor, escape_html

LONGEST: Final = 20_000
"""Characters of a body that are shown."""

_BYTES: Final = 256
_LINE: Final = 16
_PARSED: Final = 1_000_000  # characters of a body that are read as JSON; longer ones are shown as they are
# A text without its end, where the body was cut, goes to the end: looking behind it takes quadratic time.
_JSON: Final = re.compile(
    r'(?P<name>"(?:[^"\\]|\\.)*+"(?=:))|(?P<text>"(?:[^"\\]|\\.)*+(?:"|\\?\Z))'
    r"|(?P<number>-?\d[\d.eE+\-]*)|(?P<word>\b(?:true|false|null|NaN|-?Infinity)\b)"
)
_TAGS: Final = re.compile(r"(?P<tag></?[A-Za-z!?][^<>]{0,2000}>)")


def coloured(body: object, redactor: Redactor) -> str:
    r"""A body as markup: masked, escaped, and coloured where it is JSON or markup.

    Parameters
    ----------
    body : str, bytes or None
        None where there is none; bytes that are no UTF-8 are shown in hexadecimal.
    redactor : Redactor

    Returns
    -------
    str
        At most `LONGEST` characters of the body; what is left out is said.

    Examples
    --------
    >>> coloured('{"n": 1}', Redactor(key=b"k"))
    '<pre tabindex="0">{\n  <b class="tk-name">&quot;n&quot;</b>: <b class="tk-number">1</b>\n}</pre>'
    """
    if isinstance(body, bytes):
        return _pre(escape_html(_hexadecimal(body)))
    if not isinstance(body, str):
        return '<p class="tk-note">none</p>'
    if not body:
        return '<p class="tk-note">empty</p>'
    text, pattern = _laid_out(body, redactor)
    rest = len(text) - LONGEST
    shown = text[:LONGEST] if rest > 0 else text
    after = f'<p class="tk-note">{rest:,} more characters</p>' if rest > 0 else ""
    return _pre(_marked(shown, pattern)) + after


def masked_text(text: str, redactor: Redactor) -> str:
    """A text, masked; where it is a JSON object or array, under names that say so as well.

    >>> masked_text('{"password": "abc"}', Redactor(key=b"k"))
    '{"password": "[masked len=3 tag=342e519c]"}'
    >>> masked_text('{"n":1}', Redactor(key=b"k"))
    '{"n":1}'
    """
    if text[:50].lstrip()[:1] in {"{", "["} and len(text) <= _PARSED:
        try:
            value = json.loads(text)
            masked = redactor.value(value)
            if masked != value:
                return json.dumps(masked, ensure_ascii=False)
        except (ValueError, RecursionError):
            pass  # as in `coloured`: no JSON, or none that anybody could read
    return redactor.text(text)


def _laid_out(body: str, redactor: Redactor) -> tuple[str, re.Pattern[str] | None]:
    start = body[:50].lstrip()
    if start[:1] in {"{", "["} and len(body) <= _PARSED:
        try:
            value = redactor.value(json.loads(body))
            return json.dumps(value, ensure_ascii=False, indent=2), _JSON
        except (ValueError, RecursionError):
            pass  # no JSON, or none that anybody could read: shown as it is
    # masked before it is cut, so that no half of a secret is left over
    return redactor.text(body), _TAGS if start[:1] == "<" else None


def _marked(text: str, pattern: re.Pattern[str] | None) -> str:
    if pattern is None:
        return escape_html(text)
    parts, end = [], 0
    for found in pattern.finditer(text):
        parts.append(escape_html(text[end : found.start()]))
        parts.append(f'<b class="tk-{found.lastgroup}">{escape_html(found[0])}</b>')
        end = found.end()
    parts.append(escape_html(text[end:]))
    return "".join(parts)


def _hexadecimal(body: bytes) -> str:
    lines = [f"{len(body):,} bytes that are no UTF-8"]
    for start in range(0, min(len(body), _BYTES), _LINE):
        piece = body[start : start + _LINE]
        plain = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in piece)  # noqa: PLR2004 - ASCII
        lines.append(f"{start:08x}  {piece.hex(' '):<47}  {plain}")
    if len(body) > _BYTES:
        lines.append("…")
    return "\n".join(lines)


def _pre(markup: str) -> str:
    return f'<pre tabindex="0">{markup}</pre>'
