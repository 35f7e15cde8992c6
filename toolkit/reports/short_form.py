"""Write a report in at most 1,500 characters, for a chat: new and growing groups, expiry, doubts, one link.

Error messages and names come from data that others wrote. If a message contains ``@channel``, it must not
notify anybody, and if it contains an address, it must not become a link. The message has only the link that
you pass.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import chain
from typing import Any, Final

from toolkit.drawing.wording import shorten, span
from toolkit.reports.content import ReportContent
from toolkit.reports.link import web_link
from toolkit.reports.markdown_form import escape_markdown
from toolkit.reports.sections import ReportTable, change_in_words, number_text
from toolkit.secrets.redaction import visible

MOST_CHARACTERS: Final = 1_500
"""Largest number of characters. Discord accepts 2,000, and a webhook may add some."""

_NAMED: Final = 3  # items per line
_LENGTHS: Final = (160, 100, 60, 40, 20)
"""Characters per item, tried in this order until the message fits."""
_VERDICT: Final = 2.5  # length of the verdict, relative to the length of an item
# "postgres://<ip>" is no address, and the scheme is the kind of service
_SCHEME: Final = re.compile(r"\b[a-z][a-z0-9+.-]*://(?!<)", re.IGNORECASE)
# "@channel" and "@user"; Slack writes "<!channel>" and "<@user>", also in code
_MENTION: Final = re.compile(r"(?<!\w)@(?=\w)|<(?=[!@#])")


@dataclass(frozen=True)
class _ShortLine:
    """A label and items, for example "New" and the titles of the new groups."""

    label: str
    items: tuple[str, ...]
    count: int = 0
    """Number of all items, including items that are not listed."""


def short_form(report: ReportContent, *, markdown: bool, link: str | None) -> str:
    """Return the report in at most `MOST_CHARACTERS` characters, plain or as Markdown."""
    address = web_link(link)
    lines = list(_lines(report))
    for longest in _LENGTHS:
        text = _written(report, lines, longest, address, markdown=markdown)
        if len(text) <= MOST_CHARACTERS:
            return text

    # only needed if nearly every character is escaped: drop the least important lines
    while lines:
        lines.pop()
        text = _written(report, lines, _LENGTHS[-1], address, markdown=markdown)
        if len(text) <= MOST_CHARACTERS:
            break

    return text


def _first_lines(report: ReportContent) -> str:
    """Return the headline and the sentence below it, or the verdict of a report without a headline."""
    if not report.headline:
        return report.verdict
    return " ".join([report.headline, *(sentence for sentence, _ in report.lead[:1])])


def _lines(report: ReportContent) -> Iterator[_ShortLine]:
    """Yield the lines, the most important first."""
    doubts = tuple(notice.text for notice in report.notices if not notice.good)
    if doubts:
        yield _ShortLine("Caution", doubts, len(doubts))
    change, expiry = report.values.get("change"), report.values.get("expiry")
    if change is None or expiry is None:
        yield from _steps_and_numbers(report)
        return

    yield from _changes(change, report)
    yield _expiring(expiry, _rows(report, "deadline"))


def _rows(report: ReportContent, name: str) -> list[dict[str, Any]]:
    """Return the rows of the first table of a section as dicts with the column names as keys."""
    sections = [section for section in report.sections if section.name == name]
    for part in chain.from_iterable(section.parts for section in sections):
        if isinstance(part, ReportTable):
            names = [column.name for column in part.columns]
            return [dict(zip(names, row, strict=True)) for row in part.rows]

    return []


def _changes(change: Mapping[str, Any], report: ReportContent) -> Iterator[_ShortLine]:
    """Yield a line of new groups, one of growing groups, and one of groups that grew but have ended."""
    rows = {row["signature"]: row for row in _rows(report, "changed")}
    ended_groups = report.ended_groups

    def named(groups: Sequence[str]) -> list[str]:
        titles = change["titles"]
        return [
            _group_in_words(
                titles.get(group, group),
                rows.get(group),
                is_estimate=group in report.estimated_groups,
            )
            for group in groups[:_NAMED]
        ]

    new, grown = change["new_groups"], change["grown_groups"]
    ended = [group for group in grown if group in ended_groups]
    growing = [group for group in grown if group not in ended_groups]
    if new is None:
        yield _ShortLine("New", _NOT_KNOWN)
    else:
        yield _line_of("New", named(new), len(new))

    if change["worse"] is None:
        yield _ShortLine("Growing", _NOT_KNOWN)
    elif change["worse"] and not grown:
        yield _line_of("Growing", [_all_in_words(change)], 0)
    else:
        yield _line_of("Growing", named(growing), len(growing))
    if ended:
        yield _line_of("Ended", named(ended), len(ended))


def _line_of(label: str, items: Sequence[str], count: int) -> _ShortLine:
    """Return a line of items, or "nothing" without any."""
    return _ShortLine(label, tuple(items) or ("nothing",), count)


def _group_in_words(
    title: Any, row: Mapping[str, Any] | None, *, is_estimate: bool
) -> str:
    """Return the title of a group, for example "timeout (12, usually 3)".

    There are no numbers if the group is not among the first ones that the table lists.
    """
    if row is None:
        return str(title)

    number = f"{row['now']:,}"
    if is_estimate:
        number = f"about {number}"
    if not row["expected"]:
        return f"{title} ({number})"

    return f"{title} ({number}, usually {row['expected']:,.0f})"


def _all_in_words(change: Mapping[str, Any]) -> str:
    """Return the numbers of a rise that no single group explains."""
    number = f"{change['failures']:,}"
    if change["expected"] is not None:
        number += f", usually {change['expected']:,.0f}"
    return f"all failures together ({number})"


_NOT_KNOWN: Final = ("not known",)


def _expiring(
    expiry: Mapping[str, Any], deadlines: Sequence[Mapping[str, Any]]
) -> _ShortLine:
    """Return a line with the number of failures that expire within a day, and the first group to expire."""
    if not expiry["is_known"]:
        reason = f"not known: the retention is {expiry['retention']}"
        return _ShortLine("Expiring", (reason,))

    hours_left = expiry["next_hours_left"]
    if hours_left is None:
        return _ShortLine("Expiring", ("nothing",))

    number = expiry["within_24_hours"]
    next_in = span(timedelta(hours=hours_left))
    items = [f"{number:,} within 24 hours, the next in {next_in}"]
    if deadlines:
        items.append(f"first {deadlines[0]['group']}")
    return _ShortLine("Expiring", tuple(items), len(items))


def _steps_and_numbers(report: ReportContent) -> Iterator[_ShortLine]:
    """Yield a line of numbers and a line of next steps, for reports other than failure reports."""
    numbers = tuple(map(_number_in_words, report.numbers))
    if numbers:
        yield _ShortLine("Numbers", numbers, len(numbers))
    steps = _rows(report, "first")
    if steps:
        first_steps = tuple(str(row["what to do"]) for row in steps[:_NAMED])
        yield _ShortLine("First", first_steps, len(steps))


def _number_in_words(number: Mapping[str, Any]) -> str:
    """Return a number with the name and the change, for example "12 vectors (▲ up 2 (20 %))"."""
    words = f"{number_text(number['value'])} {number['name']}"
    change = change_in_words(number)
    if change is None:
        return words

    return f"{words} ({change})"


def _written(
    report: ReportContent,
    lines: Sequence[_ShortLine],
    longest: int,
    link: str | None,
    *,
    markdown: bool,
) -> str:
    """Return the message with items of at most `longest` characters each."""
    form = _FORMS[markdown]

    def shown(text: str, length: int = longest) -> str:
        # without the scheme, chat programs do not turn an address into a link
        harmless = _MENTION.sub(r"\g<0> ", _SCHEME.sub("", text))
        one_line = " ".join(harmless.split())
        return form.clean(shorten(one_line, length))

    written = [
        form.title.format(shown(report.title)),
        shown(_first_lines(report), int(_VERDICT * longest)),
    ]
    written += [_line(line, shown, form.label) for line in lines]
    if link is not None:
        written.append(form.link.format(link))
    return form.line_end.join(written) + "\n"


def _line(line: _ShortLine, shown: Callable[[str], str], label: str) -> str:
    items = list(map(shown, line.items))
    more = line.count - len(items)
    if more > 0:
        items.append(f"and {more:,} more")
    return f"{label.format(line.label)} {'; '.join(items)}"


def _plain(text: str) -> str:
    return " ".join(visible(text).split())


@dataclass(frozen=True)
class _MessageForm:
    """How a message is written: templates, and the function that escapes strings."""

    clean: Callable[[str], str]
    title: str
    label: str
    link: str
    line_end: str


_PLAIN: Final = _MessageForm(
    clean=_plain,
    title="{}",
    label="{}:",
    link="The whole report: {}",
    line_end="\n",
)


_MARKDOWN: Final = _MessageForm(
    clean=escape_markdown,
    title="**{}**",
    label="**{}:**",
    link="[The whole report]({})",
    # a single line break does not end a line in Markdown
    line_end="\n\n",
)


_FORMS: Final = {False: _PLAIN, True: _MARKDOWN}
"""The forms of a message, by the argument `markdown`."""
