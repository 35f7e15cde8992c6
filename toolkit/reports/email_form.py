"""Make an e-mail of a report: a plain part, an HTML part, and the pictures as PNG, within a number of bytes.

Mail clients run no script, show no SVG, and cut long messages. The whole message has at most `MOST_BYTES`:

1. The plain part and the HTML part have the head, then as many sections as fit, in the order of the page.
2. Pictures get the bytes that are left. The order of the page is the order of importance.
3. Sections and pictures that do not fit are named at the end, with the command that makes the whole report.

Pictures are attached to the message and shown by their content id, so nothing is loaded from the network.
"""

from __future__ import annotations

import re
from binascii import b2a_base64, b2a_qp
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from email.message import EmailMessage
from typing import Any, Final, Literal

from markupsafe import Markup

from toolkit.base.arguments import wrong
from toolkit.base.time_zones import time_text
from toolkit.drawing.wording import shorten
from toolkit.reports.board import ReportBoard
from toolkit.reports.content import ReportContent
from toolkit.reports.html_form import environment
from toolkit.reports.link import web_link
from toolkit.reports.sections import (
    NUMBERS,
    Part,
    ReportCode,
    ReportFigure,
    ReportList,
    ReportTable,
    ReportText,
    Section,
    board_table,
    change_in_words,
    number_text,
    read_time,
)
from toolkit.secrets.redaction import visible

MOST_BYTES: Final = 90_000
"""Bytes of the whole message at most, as it is sent: Gmail cuts above 102 KB, other clients above 100."""

# bytes of the parts as they are sent; pictures get the rest, which suffices for two
_MOST_TEXT: Final = 25_000
_MOST_HTML: Final = 40_000
_SUBJECT: Final = 150  # characters; mail clients show 60 to 100
_SHOWN: Final = 640  # pixels of width in the message
_ADDRESS: Final = re.compile(r"[^\s@<>()\[\],;:\"\\]+@[^\s@<>()\[\],;:\"\\]+")


@dataclass(frozen=True, eq=False)
class _Picture:
    """A figure of a section as PNG, the number in the report, and the content id for the HTML part."""

    figure: ReportFigure
    number: int
    content_id: str
    png: bytes


def email_message(
    report: ReportContent,
    tag: str,
    *,
    to: str | Sequence[str] = (),
    sender: str | None = None,
    link: str | None = None,
) -> EmailMessage:
    """Return the report as a message. The same report and `tag` always produce the same bytes."""
    if isinstance(to, str):
        to = [to]
    headers = {"Subject": _one_line(f"{report.title}: {report.first_line}", _SUBJECT)}
    if sender is not None:
        headers["From"] = _addresses("sender", [sender])[0]
    recipients = _addresses("to", to)
    if recipients:
        headers["To"] = ", ".join(recipients)
    headers["Message-ID"] = f"<{tag}.report@toolkit.invalid>"
    # suppresses automatic replies, for example "out of office"
    headers["Auto-Submitted"] = "auto-generated"
    link = web_link(link)
    sections = [_for_mail(section) for section in report.sections]
    sections = [section for section in sections if section.sentence or section.parts]
    text = _text(report, sections, link)
    page = _Page(report, sections, link)

    def message_with(pictures: Sequence[_Picture]) -> EmailMessage:
        message = EmailMessage()
        for name, value in headers.items():
            message[name] = value
        message["Date"] = read_time(report.made_at)
        message.set_content(text, cte=_encoding(text))
        markup = page.render(pictures)
        message.add_alternative(markup, subtype="html", cte=_encoding(markup))
        _attach(message, pictures)
        _set_boundaries(message, tag)

        return message

    shown: list[_Picture] = []
    message = message_with(shown)

    for picture in page.pictures(tag):
        larger = message_with([*shown, picture])
        # a later picture may be smaller and fit
        if _sent_size(larger) <= MOST_BYTES:
            shown.append(picture)
            message = larger

    return message


def _sent_size(message: EmailMessage) -> int:
    """Return the bytes of a message with the line ends that mail servers use, which have two characters."""
    data = bytes(message)
    return len(data) + data.count(b"\n")


def _attach(message: EmailMessage, pictures: Iterable[_Picture]) -> None:
    """Attach the pictures to the HTML part of the message."""
    page = message.get_body(("html",))
    for picture in pictures:
        page.add_related(  # type: ignore[union-attr]
            picture.png, "image", "png", cid=f"<{picture.content_id}>",
            disposition="inline", filename=f"figure-{picture.number}.png",
        )  # fmt: skip


def _set_boundaries(message: EmailMessage, tag: str) -> None:
    """Set the boundaries of all parts, because the default ones are random."""
    parts = [part for part in message.walk() if part.is_multipart()]
    for number, part in enumerate(parts, 1):
        part.set_boundary(f"=-{tag}-{number}")


def _encoded(text: str) -> tuple[int, Literal["quoted-printable", "base64"]]:
    """Return how many bytes the text has as it is sent, and the shorter encoding.

    Quoted-printable takes nine bytes for a character of three, for example of Japanese.

    >>> _encoded("words")[1], _encoded("\N{HIRAGANA LETTER A}" * 9)[1]
    ('quoted-printable', 'base64')
    """
    data = text.encode()
    quoted = len(b2a_qp(data))
    encoded = len(b2a_base64(data))
    if encoded < quoted:
        return encoded, "base64"

    return quoted, "quoted-printable"


def _encoding(text: str) -> str:
    return _encoded(text)[1]


def _addresses(name: str, addresses: Iterable[Any]) -> list[str]:
    checked = list(addresses)
    for address in checked:
        if not _is_address(address):
            expected = "a plain address such as ops@example.com, or several in a list"
            raise wrong(name, address, expected)

    return checked


def _is_address(address: Any) -> bool:
    if not isinstance(address, str):
        return False
    return address.isascii() and _ADDRESS.fullmatch(address) is not None


def _one_line(text: str, longest: int) -> str:
    return shorten(" ".join(visible(text).split()), longest)


def _for_mail(section: Section) -> Section:
    """Return the section without code, and without the tables that a page folds away."""
    mail_parts = map(_part_for_mail, section.parts)
    parts = tuple(part for part in mail_parts if part is not None)
    return Section(section.name, section.title, section.sentence, parts)


def _part_for_mail(part: Part) -> Part | None:
    """Return a part in a form that mail clients show, or None for a part that is left out."""
    match part:
        case ReportBoard():
            return board_table(part)
        case ReportCode() | ReportTable(folded=True):
            return None

    return part


class _Page:
    """The HTML part: the sections that fit, and their pictures."""

    def __init__(
        self, report: ReportContent, sections: Sequence[Section], link: str | None
    ) -> None:
        self._report = report
        self._link = link
        templates = environment()
        self._template = templates.get_template("email.html")
        self._section = templates.get_template("email_section.html")

        self._sections: list[Section] = []
        self._left_out: list[str] = []
        for section in sections:
            self._sections.append(section)
            if _encoded(self.render(()))[0] > _MOST_HTML:
                self._sections.pop()
                self._left_out.append(section.title)

    def pictures(self, tag: str) -> Iterator[_Picture]:
        """Draw the figures of the sections that fit, in the order of the page."""
        from toolkit.reports.email_pictures import draw_png  # noqa: PLC0415 - matplotlib is slow to import

        for number, (content_name, figure) in enumerate(self._figures(), 1):
            content_id = f"{content_name}-{tag}@toolkit.invalid"
            yield _Picture(figure, number, content_id, draw_png(figure))

    def _figures(self) -> Iterator[tuple[str, ReportFigure]]:
        """Yield the figures of the sections that fit, each with the section and the place in it."""
        for section in self._sections:
            for place, part in enumerate(section.parts, 1):
                if isinstance(part, ReportFigure):
                    yield f"{section.name}-{place}", part

    def render(self, pictures: Iterable[_Picture]) -> str:
        """Return the part with these pictures; the others are named."""
        ids = {picture.figure: picture.content_id for picture in pictures}
        fragments = [
            # the template escapes every value
            Markup(self._render_section(section, ids))  # noqa: S704
            for section in self._sections
        ]

        return self._template.render(
            report=self._report,
            link=self._link,
            sections=fragments,
            left_out=[*self._left_out, *self._without(ids)],
            command=_command(self._report),
        )

    def _render_section(self, section: Section, ids: Mapping[ReportFigure, str]) -> str:
        return self._section.render(
            section=section, pictures=ids, width=_SHOWN, numbers=NUMBERS
        )

    def _without(self, ids: Mapping[ReportFigure, str]) -> Iterator[str]:
        """Return the titles of the figures without a picture."""
        for _, figure in self._figures():
            if figure not in ids:
                yield f"the picture {figure.title}"


def _command(report: ReportContent) -> str:
    return report.command or 'report.save("report.html")'


def _text(report: ReportContent, sections: Iterable[Section], link: str | None) -> str:
    """Return the plain-text part: the sections that fit, one line per row."""
    lines = _head_lines(report)
    if link is not None:
        lines += ["", f"The whole report: {link}"]
    made_at = time_text(read_time(report.made_at))
    end = f"Made {made_at}. Secrets are masked. {report.method}"
    size = _encoded("\n".join([*lines, end]))[0]

    left_out = []
    for section in sections:
        added = _section_lines(section)
        added_size = _encoded("\n".join(added))[0]
        if size + added_size <= _MOST_TEXT:
            size += added_size
            lines += added
        else:
            left_out.append(section.title)

    if left_out:
        titles = ", ".join(left_out)
        lines += ["", _line(f"Left out to keep the mail short: {titles}.")]
        lines.append(f"The whole report: {_command(report)}")

    lines += ["", end.strip()]
    return "\n".join(lines) + "\n"


def _head_lines(report: ReportContent) -> list[str]:
    """Return the lines above the sections."""
    lines = [report.title, report.about, report.first_line]
    lines += [sentence for sentence, _ in report.lead]
    lines.append("")
    lines += [notice.text for notice in report.notices]
    # a report with a headline has a section with these numbers
    if not report.headline:
        lines += map(_number_line, report.numbers)
    return list(map(_line, lines))


def _number_line(number: Mapping[str, Any]) -> str:
    notes = "; ".join(filter(None, (change_in_words(number), number["note"])))
    return f"{number_text(number['value'])} {number['name']} ({notes})"


def _section_lines(section: Section) -> list[str]:
    title = _line(section.title)
    lines = ["", title, "".ljust(len(title), "-")]
    if section.sentence:
        lines.append(_line(section.sentence))
    for part in section.parts:
        lines += map(_line, _part(part))
    return lines


def _line(text: str) -> str:
    return " ".join(visible(text).split())


def _part(part: Part) -> list[str]:
    """Return the lines of a part; code and figures have none."""
    match part:
        case ReportBoard():
            return [*_part(board_table(part)), part.more]
        case ReportTable():
            rows = [_row(part, row) for row in part.rows]
            return [f"{part.caption}:", *_bullets(rows, part.rest)]
        case ReportList():
            return [part.caption, *_bullets(part.items, part.rest)]
        case ReportText():
            return [part.text]

    return []


def _bullets(items: Iterable[str], rest: str) -> list[str]:
    lines = [f"* {item}" for item in items]
    if rest:
        lines.append(f"* {rest}")
    return lines


def _row(table: ReportTable, row: Sequence[Any]) -> str:
    """Return the first cell, then the other cells with their column names.

    For example ``"(new) payment timeout: class timeout; failures 12"``.
    """
    (first, value), *others = table.cells(row)
    begin = " ".join([*table.flags(row), first.shown(value)])
    named = [
        f"{column.name} {column.shown(value)}"
        for column, value in others
        if value not in (None, "")
    ]
    if not named:
        return begin

    return f"{begin}: {'; '.join(named)}"
