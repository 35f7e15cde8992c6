"""Check the address of the whole report, which short forms and mails link to."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit

from toolkit.base.errors import InputError

_LONGEST: Final = 400
# no spaces, quotes, brackets or backslashes, which end an address in some form of text
_ADDRESS: Final = re.compile(r"https?://[^\s<>\"'`()\[\]{}\\|^]+", re.ASCII)
_EXPECTED: Final = f"an http or https address of at most {_LONGEST} characters, without a user or password"


def web_link(link: str | None) -> str | None:
    """Return the address, or raise `InputError` when a message cannot contain it as it is.

    >>> web_link("https://ci.example.com/runs/17")
    'https://ci.example.com/runs/17'
    """
    if link is None:
        return None

    if not is_web_link(link):
        # the link itself may contain a password, so the message only names the length
        got = type(link).__name__
        if isinstance(link, str):
            got = f"a link of {len(link)} characters"
        raise InputError(
            "linking to the whole report",
            got=got,
            expected=_EXPECTED,
            next_step="Percent-encode other characters, or leave the link out.",
        )

    return link


def is_web_link(link: object) -> bool:
    """Return whether a value is an http or https address that pages and messages can link to.

    >>> is_web_link("https://wiki.example.com/runbooks/3"), is_web_link("javascript:alert(1)")
    (True, False)
    """
    if not isinstance(link, str) or len(link) > _LONGEST:
        return False
    if not link.isascii() or not _ADDRESS.fullmatch(link):
        return False

    return "@" not in urlsplit(link).netloc
