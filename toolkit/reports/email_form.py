"""Make an e-mail of a report: a plain part, an HTML part that no client cuts, and the pictures as PNG.

Mail clients run no script, show no SVG, and cut HTML above about 100 KB. So the HTML part has the head, then
as many sections as fit into `MOST_BYTES`, in the order of the page; the others are named at the end.
Pictures are attached to the message and shown by their content id, so nothing is loaded from the network.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from email.message import EmailMessage
from typing import TYPE_CHECKING, Any, Final

from markupsafe import Markup
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from toolkit.base.arguments import wrong
from toolkit.base.time_zones import time_text
from toolkit.drawing.style import drawing
from toolkit.drawing.wording import shorten
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
    change_in_words,
    number_text,
    read_time,
)
from toolkit.secrets.redaction import visible

if TYPE_CHECKING:
    from toolkit.reports.page import Report

MOST_BYTES: Final = 90_000
"""Bytes of the HTML part at most: Gmail cuts above 102 KB, other clients above 100."""

_SUBJECT: Final = 150  # characters; mail clients show 60 to 100
_INCHES: Final = 8.0  # width of a picture
# per inch: twice the resolution that a client shows, so that labels are sharp
_DOTS: Final = 160
_SHOWN: Final = 640  # pixels of width in the message
_ADDRESS: Final = re.compile(r"[^\s@<>()\[\],;:\"\\]+@[^\s@<>()\[\],;:\"\\]+")


@dataclass(frozen=True, eq=False)
class _Picture:
    """A figure of a section, and the content id that the HTML part refers to."""

    figure: ReportFigure
    content_id: str


def email_message(
    report: Report,
    tag: str,
    *,
    to: str | Sequence[str] = (),
    sender: str | None = None,
    link: str | None = None,
) -> EmailMessage:
    """Return the report as a message. The same report and `tag` always produce the same bytes."""
    if isinstance(to, str):
        to = [to]
    recipients = _addresses("to", to)
    senders: list[str] = []
    if sender is not None:
        senders = _addresses("sender", [sender])
    link = web_link(link)
    sections = [_for_mail(section) for section in report.sections]
    sections = [section for section in sections if section.sentence or section.parts]
    pictures = list(_pictures(sections, tag))
    markup, shown = _html(report, sections, pictures, link)

    message = EmailMessage()
    message["Subject"] = _one_line(f"{report.title}: {report.verdict}", _SUBJECT)
    if senders:
        message["From"] = senders[0]
    if recipients:
        message["To"] = ", ".join(recipients)
    message["Date"] = read_time(report.made_at)
    message["Message-ID"] = f"<{tag}.report@toolkit.invalid>"
    message["Auto-Submitted"] = (
        "auto-generated"  # suppresses automatic replies, for example "out of office"
    )
    message.set_content(_text(report, sections, link), cte="quoted-printable")
    message.add_alternative(markup, subtype="html", cte="quoted-printable")
    page = message.get_payload()[1]  # type: ignore[index]
    # pictures of sections that did not fit are not attached; numbers stay those of all pictures
    shown_parts = [part for section in shown for part in section.parts]
    for number, picture in enumerate(pictures, 1):
        if any(part is picture.figure for part in shown_parts):
            page.add_related(  # type: ignore[union-attr]
                _png(picture.figure), "image", "png", cid=f"<{picture.content_id}>",
                disposition="inline", filename=f"figure-{number}.png",
            )  # fmt: skip
    for number, part in enumerate(
        part for part in message.walk() if part.is_multipart()
    ):
        part.set_boundary(f"=-{tag}-{number}")  # the default boundary is random
    return message


def _addresses(name: str, addresses: Iterable[Any]) -> list[str]:
    checked = list(addresses)
    for address in checked:
        if not (
            isinstance(address, str)
            and address.isascii()
            and _ADDRESS.fullmatch(address)
        ):
            raise wrong(
                name,
                address,
                "a plain address such as ops@example.com, or several in a list",
            )
    return checked


def _one_line(text: str, longest: int) -> str:
    return shorten(" ".join(visible(text).split()), longest)


def _for_mail(section: Section) -> Section:
    """Return the section without code, and without the tables that a page folds away."""
    parts = tuple(
        part
        for part in section.parts
        if not isinstance(part, ReportCode)
        and not (isinstance(part, ReportTable) and part.folded)
    )
    return Section(section.name, section.title, section.sentence, parts)


def _pictures(sections: Iterable[Section], tag: str) -> Iterator[_Picture]:
    for section in sections:
        for number, part in enumerate(section.parts, 1):
            if isinstance(part, ReportFigure):
                yield _Picture(part, f"{section.name}-{number}-{tag}@toolkit.invalid")


def _html(
    report: Report,
    sections: Sequence[Section],
    pictures: Sequence[_Picture],
    link: str | None,
) -> tuple[str, list[Section]]:
    """Return the HTML part, and the sections that fit into it."""
    templates = environment()
    page, fragment = (
        templates.get_template(name) for name in ("email.html", "email_section.html")
    )
    ids = {picture.figure: picture.content_id for picture in pictures}
    # start with the size of the head, assuming the worst case: all sections are listed as left out
    titles = [section.title for section in sections]
    size = len(
        page.render(report=report, link=link, sections=[], left_out=titles).encode()
    )
    shown, fragments, left_out = [], [], []
    for section in sections:
        markup = fragment.render(
            section=section, pictures=ids, width=_SHOWN, numbers=NUMBERS
        )
        more = len(markup.encode()) + 1
        if size + more > MOST_BYTES:
            left_out.append(section.title)
            continue
        size += more
        shown.append(section)
        fragments.append(Markup(markup))  # noqa: S704 - the template escapes every value
    return page.render(
        report=report, link=link, sections=fragments, left_out=left_out
    ), shown


def _text(report: Report, sections: Iterable[Section], link: str | None) -> str:
    """Return the plain-text part: the same sections, one line per row."""
    lines = [_line(report.title), "", _line(report.verdict), ""]
    lines += [_line(notice.text) for notice in report.notices]
    for number in report.numbers:
        notes = "; ".join(
            note for note in (change_in_words(number), number["note"]) if note
        )
        lines.append(
            _line(f"{number_text(number['value'])} {number['name']} ({notes})")
        )
    if link is not None:
        lines += ["", f"The whole report: {link}"]
    for section in sections:
        title = _line(section.title)
        lines += ["", title, "".ljust(len(title), "-")]
        if section.sentence:
            lines.append(_line(section.sentence))
        for part in section.parts:
            lines += map(_line, _part(part))
    lines += [
        "",
        f"Made {time_text(read_time(report.made_at))}. Secrets are masked. {report.method}".strip(),
    ]
    return "\n".join(lines) + "\n"


def _line(text: str) -> str:
    return " ".join(visible(text).split())


def _part(part: Part) -> Iterator[str]:
    match part:
        case ReportTable():
            yield f"{part.caption}:"
            for row in part.rows:
                yield f"* {_row(part, row)}"
            if part.left_out:
                yield f"* and {part.left_out:,} {part.more}"
        case ReportList():
            yield part.caption
            for item in part.items:
                yield f"* {item}"
            if part.left_out:
                yield f"* and {part.left_out:,} more"
        case ReportText():
            yield part.text


def _row(table: ReportTable, row: Sequence[Any]) -> str:
    """Return the first cell, then the other cells with their column names.

    For example ``"(new) payment timeout: class timeout; failures 12"``.
    """
    cells = list(zip(table.columns, row, strict=True))
    flags = [column.name for column, value in cells if column.kind == "flag" and value]
    (first, value), *others = [cell for cell in cells if cell[0].kind != "flag"]
    named = [
        f"{column.name} {column.shown(value)}"
        for column, value in others
        if value is not None and value != ""
    ]
    begin = "".join(f"({flag}) " for flag in flags) + first.shown(value)
    if not named:
        return begin
    return f"{begin}: {'; '.join(named)}"


def _png(figure: ReportFigure) -> bytes:
    """Return the figure as a PNG on white. The same figure always produces the same bytes."""
    # without pyplot, so that no global state of matplotlib changes
    canvas = Figure(figsize=(_INCHES, figure.height), layout="constrained")
    FigureCanvasAgg(canvas)
    with drawing(canvas.add_subplot(), "light") as (ax, theme):
        figure.draw(ax, theme)
    file = io.BytesIO()
    # the default metadata names the version of matplotlib, which would change the bytes
    canvas.savefig(
        file,
        format="png",
        dpi=_DOTS,
        facecolor=theme.paper,
        metadata={"Software": None},
    )
    return file.getvalue()
