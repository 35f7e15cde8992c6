"""A figure as SVG that stands inside a page: no script, no style sheet, no clash of ids, CSS colours."""

from __future__ import annotations

import io
import re
from typing import Final
from xml.etree import ElementTree as ET

from matplotlib.figure import Figure

from toolkit.plots.style import FONT, Theme, fixed_settings
from toolkit.redaction import escape_html

_ELEMENTS: Final = frozenset(
    {"svg", "g", "path", "defs", "use", "text", "tspan", "clipPath", "rect", "pattern"}
)
_IDS: Final = re.compile(r"url\(#([^)]+)\)")
_NUMBER: Final = re.compile(r"-?\d+\.\d+")
_FONT: Final = re.compile(rf"(['\"]?){FONT}\1")


def inline_svg(figure: Figure, *, title: str, description: str, prefix: str, theme: Theme) -> str:
    """The figure as an ``<svg>`` element, the same bytes for the same figure.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        Not changed.
    title, description : str
        For screen readers. Escaped here.
    prefix : str
        Begins every id, so that several figures stand on one page.
    theme : Theme
        What the figure was drawn with: its colours become CSS variables (``--plot-ink``, ``--plot-muted``,
        ``--plot-grid``, ``--plot-paper``, ``--plot-0`` …) with the theme's value where a page sets none.

    Returns
    -------
    str
        Markup. Texts stay text; every one is escaped by the one escaper.

    Examples
    --------
    >>> from toolkit.plots.style import THEMES
    >>> figure = Figure(figsize=(1, 1))
    >>> svg = inline_svg(figure, title="A", description="B", prefix="p", theme=THEMES["light"])
    >>> svg.startswith('<svg viewBox="0 0 72 72" role="img" aria-labelledby="p-title p-description"')
    True
    """
    drawn = io.StringIO()
    with fixed_settings({"svg.fonttype": "none", "svg.hashsalt": prefix}):
        figure.savefig(drawn, format="svg", metadata={"Date": None, "Creator": None}, transparent=True)
    root = ET.fromstring(drawn.getvalue())  # noqa: S314 - written by matplotlib a moment ago
    variables = {theme.ink: "ink", theme.muted: "muted", theme.grid: "grid", theme.paper: "paper"}
    variables |= {colour: str(number) for number, colour in enumerate(theme.series)}
    body = "".join(_markup(child, prefix, variables) for child in root)
    labels = f"{prefix}-title {prefix}-description"
    return (
        f'<svg viewBox="{escape_html(root.attrib["viewBox"])}" role="img" aria-labelledby="{labels}"'
        ' style="stroke-linejoin:round;stroke-linecap:butt">'
        f'<title id="{prefix}-title">{escape_html(title)}</title>'
        f'<desc id="{prefix}-description">{escape_html(description)}</desc>{body}</svg>'
    )


def _markup(element: ET.Element, prefix: str, variables: dict[str, str]) -> str:
    tag = element.tag.rpartition("}")[2]
    if tag not in _ELEMENTS:  # style sheets and metadata would act on, or speak of, the whole page
        return ""
    inner = escape_html(element.text) if tag in {"text", "tspan"} and element.text else ""
    inner += "".join(_markup(child, prefix, variables) for child in element)
    if not inner and tag in {"g", "defs"}:
        return ""
    plain = {name.rpartition("}")[2]: value for name, value in element.attrib.items()}
    attributes = "".join(
        f' {name}="{escape_html(_value(name, value, prefix, variables))}"' for name, value in plain.items()
    )
    return f"<{tag}{attributes}>{inner}</{tag}>" if inner else f"<{tag}{attributes}/>"


def _value(name: str, value: str, prefix: str, variables: dict[str, str]) -> str:
    if name == "id":
        return f"{prefix}-{value}"
    if name == "href":
        return f"#{prefix}-{value.removeprefix('#')}"
    value = _IDS.sub(rf"url(#{prefix}-\1)", value)
    if name == "d":
        # a hundredth of a point is finer than any screen, and half the bytes
        return _NUMBER.sub(
            lambda found: f"{float(found[0]):.2f}".rstrip("0").rstrip("."), " ".join(value.split())
        )
    if name not in {"style", "fill", "stroke"}:
        return value
    for colour, variable in variables.items():
        value = value.replace(colour, f"var(--plot-{variable}, {colour})")
    return _FONT.sub(f"'{FONT}', Verdana, sans-serif", value)
