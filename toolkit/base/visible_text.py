r"""Escape characters that are invisible, move the cursor or redirect reading, before text is printed."""

from __future__ import annotations

import unicodedata
from typing import Final

_ESCAPED: Final = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))
# the two joiners are what makes one emoji, or one Persian word, out of several characters
_KEPT: Final = "\n\t\u200c\u200d"
_LAST_OF_BASIC_PLANE: Final = 0xFFFF


def visible(text: str) -> str:
    r"""Return text with everything that is invisible or redirects reading escaped, for example as ``\u202e``.

    Bidirectional controls, other format and control characters (but not line ends and tabs), and lone
    surrogates, which cannot be written to a file, are escaped.

    >>> visible("safe" + chr(0x202E) + "gpj.exe")
    'safe\\u202egpj.exe'
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_visible_character, text))


def _visible_character(character: str) -> str:
    if character in _KEPT or character.isprintable():
        return character
    if unicodedata.category(character) not in _ESCAPED:
        return character

    code = ord(character)
    if code > _LAST_OF_BASIC_PLANE:
        return f"\\U{code:08x}"

    return f"\\u{code:04x}"
