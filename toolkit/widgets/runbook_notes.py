"""Describe the runbooks that were found for chosen failures, as markup of a panel."""

from __future__ import annotations

from typing import Any, Final

from toolkit.drawing.wording import counted
from toolkit.fixes.runbooks import RunbookSuggestions
from toolkit.reports.link import is_web_link
from toolkit.secrets.redaction import escape_attribute, escape_wrapping
from toolkit.widgets.page_parts import note

_MOST: Final = 5  # groups with a line


def runbooks_markup(found: RunbookSuggestions) -> str:
    """Return the number of groups with a runbook, and a line with a link for each of the largest."""
    first = found.frame.drop_duplicates("group")
    matching = first[first["matches"]]
    lines = [note(f"{found!r}. panel.runbooks.frame has the scores.")]
    if matching.empty:
        lines.insert(0, note("No runbook matches."))
    lines += map(_line, matching.head(_MOST).to_dict("records"))
    more = len(matching) - _MOST
    if more > 0:
        lines.append(note(f"and {counted(more, 'group')} more"))
    return "".join(lines)


def _line(row: Any) -> str:
    """Return a line with the title of a group and its runbook, which is a link if it has a web address."""
    title = escape_wrapping(row["title"])
    name = escape_wrapping(row["runbook_title"])
    if is_web_link(row["link"]):
        address = escape_attribute(row["link"])
        name = (
            f'<a href="{address}" target="_blank" rel="noopener noreferrer">{name}</a>'
        )

    return f'<div class="tk-note">{title}: {name}</div>'
