"""Contents of a report: what all forms (page, Markdown, mail, short text) show, and the JSON form."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from toolkit.base.time_zones import time_zone
from toolkit.reports.sections import Notice, Section


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ReportContent:
    """Contents of a report. `Report` adds the forms.

    Attributes
    ----------
    schema : str
        Kind and version of the JSON form, for example ``"failure-report/7"``.
    title, verdict : str
        The title, and the result in one or two sentences.
    headline : str
        One line about the present state. If it is empty, the verdict is the first line.
    about : str
        The subject in a few words: number of failures, filter, times.
    lead : tuple of (str, str)
        Sentences below the headline, each with the name of the section that it links to, or "".
    made_at : str
        Time of the report in ISO 8601. Ages are relative to it.
    notices : tuple of Notice
        Sentences about how complete and recent the data are.
    numbers : tuple of dict
        The numbers in the head, each with `name`, `value`, `change` (or None) and `note`. The note names the
        value that the change is relative to.
    sections : tuple of Section
        The contents.
    values : dict
        Further values of the JSON form.
    ended_groups : frozenset of str
        Groups whose failures have stopped, although they are many for the time. The short form lists them
        apart from growing groups.
    estimated_groups : frozenset of str
        Groups whose numbers of "What changed" are estimated from a sample.
    tz : str
        Time zone of displayed times.
    """

    method: ClassVar[str] = ""
    """A sentence that names the documentation of the methods."""

    command: ClassVar[str] = ""
    """The command that makes the whole report, for forms that leave something out."""

    schema: str
    title: str
    verdict: str
    made_at: str
    headline: str = ""
    about: str = ""
    lead: tuple[tuple[str, str], ...] = ()
    notices: tuple[Notice, ...] = ()
    numbers: tuple[Mapping[str, Any], ...] = ()
    sections: tuple[Section, ...] = ()
    values: Mapping[str, Any] = field(default_factory=dict)
    ended_groups: frozenset[str] = frozenset()
    estimated_groups: frozenset[str] = frozenset()
    tz: str = field(default_factory=lambda: time_zone().key)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON-able values. NaN and infinity become None."""
        values = {
            "schema": self.schema,
            "title": self.title,
            **self._first_screen(),
            "verdict": self.verdict,
            "generated_at": self.made_at,
            "notices": [
                {"text": notice.text, "good": notice.good} for notice in self.notices
            ],
            "numbers": self.numbers,
            **self.values,
            "sections": [section.to_dict() for section in self.sections],
        }
        return {name: _json_value(value) for name, value in values.items()}

    def _first_screen(self) -> dict[str, str]:
        """Return the headline and the lead of a report that has them."""
        if not self.headline:
            return {}

        lead = " ".join(sentence for sentence, _ in self.lead)
        return {"headline": self.headline, "about": self.about, "lead": lead}

    @property
    def first_line(self) -> str:
        """Return the headline, or the verdict of a report without one."""
        return self.headline or self.verdict

    def to_json(self) -> str:
        """Return the report as indented JSON."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False) + "\n"


def _json_value(value: Any) -> Any:
    """Return a copy of a value with None instead of NaN and infinity, because JSON has neither."""
    if isinstance(value, Mapping):
        return {name: _json_value(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return list(map(_json_value, value))
    if isinstance(value, float) and not math.isfinite(value):
        return None

    return value
