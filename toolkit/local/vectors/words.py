"""Text as the built-in models see it: words in a normal form."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

_WORD: Final = re.compile(r"\w+")


def words_of(text: str) -> list[str]:
    """The words of a text, in order: letters, digits and ``_``, in compatibility form and without case.

    A text that has none, of punctuation only, is one word as it is, so that every text has at least one.

    >>> words_of("Disk FULL: disk0")
    ['disk', 'full', 'disk0']
    >>> words_of(" !? ")
    ['!?']
    """
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold()) or [text.strip()]
