"""More than a hundred texts that would have effects if a page read them as markup."""

from __future__ import annotations

from typing import Final

_BREAKS: Final = (
    "",
    '"',
    "'",
    "-->",
    "]]>",
    "</pre>",
    "</td>",
    "</text>",
    "</style>",
    "\x00",
    "\u202e",
)
_LIVE: Final = (
    "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "<svg onload=alert(1)>",
    "<a href=javascript:1>", "<iframe srcdoc=x>", "<style>*{}</style>", "onmouseover=alert(1) x",
    "<!-- ", "{{7*7}}", "&lt;b&gt;<b>",
)  # fmt: skip
PAYLOADS: Final = [f"{start}{live}" for start in _BREAKS for live in _LIVE]
