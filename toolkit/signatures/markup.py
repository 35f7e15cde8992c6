"""Read error pages in HTML, and faults in XML.

A page is identified by the title and the first headings. Pages that frameworks make of an exception also have
the exception in a `<pre>` element, sometimes with a stack trace, for example of Express and Django. A fault
in XML has a code and a message, as in SOAP and in answers of object stores.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from typing import Final

from toolkit.signatures.document import Document, shortened

_PAGE_TAGS: Final = ("<html", "<!doctype", "<h1", "<title", "<body")
_TAG: Final = re.compile(r"<[^<>]{0,300}>")
_LINE_BREAK: Final = re.compile(r"<br\s*/?>", re.IGNORECASE)
_UNSEEN: Final = re.compile(
    r"<(script|style|svg|head)\b.*?</\1\s*>", re.DOTALL | re.IGNORECASE
)
_MOST_PAGE: Final = 200
"""Characters of a page without title and headings."""
_FAULT_PART: Final = re.compile(
    r"<(?:\w{1,20}:)?(faultcode|faultstring|code|value|subcode|message|text|reason|error|description|detail)"
    r"\b[^<>]{0,200}>([^<>]{1,2000})<",
    re.IGNORECASE,
)
_FAULT_CODES: Final = frozenset({"faultcode", "code", "value", "subcode"})
_MOST_PARTS: Final = 4


def read_markup(text: str, read: Callable[[str], Document]) -> Document | None:
    """Return the error of a page or fault, or None if it has none. `read` reads the exception of a page.

    >>> from toolkit.signatures.reading import read_document
    >>> read_markup("<html><title>502 Bad Gateway</title><h1>502</h1></html>", read_document)
    Document(kind='html', messages=('502 Bad Gateway', '502'))
    >>> body = "<Error><Code>NoSuchKey</Code><Message>no such key</Message><Key>7</Key></Error>"
    >>> read_markup(body, read_document)
    Document(kind='message', facts=('NoSuchKey',), messages=('no such key',))
    """
    lowered = text.lower()
    if any(tag in lowered for tag in _PAGE_TAGS):
        return _read_page(text, lowered, read)

    return _read_fault(text)


def _read_page(text: str, lowered: str, read: Callable[[str], Document]) -> Document:
    """Return the stack trace of a page if it has one, else the title, the headings and the exception."""
    exception = _element(text, lowered, "pre")
    if "\n" in exception:
        trace = read(exception)
        if trace.kind == "trace":
            return trace

    headings = [
        shortened(_element(text, lowered, tag)) for tag in ("title", "h1", "h2")
    ]
    messages = [heading for heading in dict.fromkeys(headings) if heading][:2]
    if exception:
        messages.append(shortened(exception))
    if not messages:
        seen = html.unescape(_TAG.sub(" ", _UNSEEN.sub(" ", text)))
        messages = [shortened(seen)[:_MOST_PAGE]]

    return Document("html", (), tuple(messages))


def _element(text: str, lowered: str, tag: str) -> str:
    """Return the text of the first element of a kind, found without backtracking: pages can be hostile."""
    if len(lowered) != len(text):
        # a few letters change their length in lower case: places in one are not places in the other
        return ""

    start = lowered.find(f"<{tag}")
    if start < 0:
        return ""

    opened = lowered.find(">", start)
    if opened < 0:
        return ""

    closed = lowered.find(f"</{tag}", opened)
    if closed < 0:
        return ""

    lines = _LINE_BREAK.sub("\n", text[opened + 1 : closed])
    return html.unescape(_TAG.sub(" ", lines)).replace("\xa0", " ").strip()


def _read_fault(text: str) -> Document | None:
    """Return the codes and messages of a fault, or None if it has no message."""
    codes: list[str] = []
    messages: list[str] = []
    for part in _FAULT_PART.finditer(text):
        content = shortened(html.unescape(part[2]))
        if not content:
            continue
        if part[1].lower() in _FAULT_CODES:
            codes.append(content)
        else:
            messages.append(content)

    if not messages:
        return None

    return Document(
        "message", tuple(codes[:_MOST_PARTS]), tuple(messages[:_MOST_PARTS])
    )
