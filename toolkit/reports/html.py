"""The findings as HTML: a whole page, or a part of a notebook's page."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from toolkit.analysis.over_time import WEEKDAYS
from toolkit.analysis.wording import counted, percent, short_number, span, time_text
from toolkit.redaction import escape_attribute, escape_html
from toolkit.reports.charts import Charts
from toolkit.reports.headline import change_in_words, read_time


def render_page(found: Mapping[str, Any], charts: Charts) -> str:
    """A whole page, with a policy that lets nothing load and nothing run."""
    return _render("page.html", found, charts)


def render_fragment(found: Mapping[str, Any], charts: Charts) -> str:
    """A part of a page: one element, its style scoped to it."""
    return _render("fragment.html", found, charts)


def _render(template: str, found: Mapping[str, Any], charts: Charts) -> str:
    environment = Environment(
        loader=PackageLoader("toolkit.reports", "templates"),
        # every value of a template passes `_escaped`; autoescape only verifies that
        finalize=_escaped,
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "exact": "{:,}".format,
        "size": lambda number: f"{short_number(number)}B",
        "breakable": _breakable,
        "attribute": lambda value: Markup(escape_attribute(value)),  # noqa: S704 - escaped right here
        "percent": percent,
        "timestamp": time_text,
        "time": lambda text: time_text(read_time(text)),
        "hours": lambda hours: span(timedelta(hours=hours)),
        "counted": counted,
        "change": change_in_words,
    }
    # ids must differ between two reports in one notebook, and be the same for the same report
    tag = hashlib.sha256(json.dumps(found).encode()).hexdigest()[:8]
    return environment.get_template(template).render(
        found=found, tag=tag, charts=charts.render(tag), steps=_steps(found), weekdays=WEEKDAYS
    )


def _steps(found: Mapping[str, Any]) -> list[datetime]:
    """When each step of the expiry begins."""
    start, step = read_time(found["generated_at"]), timedelta(seconds=found["expiry"]["step_seconds"])
    return [start + number * step for number in range(len(found["expiry"]["counts"]))]


def _escaped(value: object) -> Markup:
    """Markup unchanged, everything else escaped; missing values are empty."""
    if isinstance(value, Markup):
        return value
    return Markup("" if value is None else escape_html(value))  # noqa: S704 - escaped right here


def _breakable(value: object) -> Markup:
    """A text that may also be broken behind a slash, where addresses are long."""
    parts = re.split("(?<=/)(?!/)", "" if value is None else str(value))
    return Markup("<wbr>".join(map(escape_html, parts)))  # noqa: S704 - escaped right here
