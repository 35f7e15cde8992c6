"""The findings as HTML: a whole page, or a part of a notebook's page."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure

from toolkit.analysis.trend import FailureTrend
from toolkit.analysis.wording import counted, moment, percent, short_number, span
from toolkit.plots.failure_trend import draw_trend
from toolkit.plots.style import THEMES, fixed_settings, prepare
from toolkit.plots.svg import inline_svg
from toolkit.redaction import escape_html
from toolkit.reports.verdict import expiring_soon, read_time


def render_page(found: Mapping[str, Any], trend: FailureTrend) -> str:
    """A whole page, with a policy that lets nothing load and nothing run."""
    return _render("page.html", found, trend)


def render_fragment(found: Mapping[str, Any], trend: FailureTrend) -> str:
    """A part of a page: one element, its style scoped to it."""
    return _render("fragment.html", found, trend)


def _render(template: str, found: Mapping[str, Any], trend: FailureTrend) -> str:
    environment = Environment(
        loader=PackageLoader("toolkit.reports", "templates"),
        # every value a template shows comes through `_escaped`; autoescape only sees that it did
        finalize=_escaped,
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "short": short_number,
        "percent": percent,
        "time": lambda text: moment(read_time(text)),
        "hours": lambda hours: span(timedelta(hours=hours)),
        "counted": counted,
    }
    return environment.get_template(template).render(
        found=found, soon=expiring_soon(found), charts=_charts(found, trend)
    )


def _charts(found: Mapping[str, Any], trend: FailureTrend) -> dict[str, Markup]:
    """The trend drawn for wide and for narrow pages; nothing where there is no trend."""
    if trend.total <= 1:
        return {}
    # ids must differ between two reports in one notebook, and be the same for the same report
    tag = hashlib.sha256(json.dumps(found).encode()).hexdigest()[:8]
    sizes = {"wide": (9.6, 4.0), "narrow": (4.0, 4.0)}
    return {name: _chart(trend, f"trend-{name}-{tag}", size) for name, size in sizes.items()}


def _escaped(value: object) -> Markup:
    """Markup as it is, everything else through the one escaper; missing values as nothing."""
    if isinstance(value, Markup):
        return value
    return Markup("" if value is None else escape_html(value))  # noqa: S704 - escaped right here


def _chart(trend: FailureTrend, prefix: str, size: tuple[float, float]) -> Markup:
    theme = THEMES["light"]
    figure = Figure(figsize=size, layout="constrained")
    with fixed_settings():
        draw_trend(trend, prepare(figure.add_subplot(), theme), theme)
    described = f"{counted(trend.total, 'failure')} in bars of {span(trend.step)}"
    svg = inline_svg(figure, title="Failures over time", description=described, prefix=prefix, theme=theme)
    return Markup(svg)  # noqa: S704 - every text in it went through the escaper
