"""A figure as SVG that stands inside a page: no script, no style sheet, no clash of ids, CSS colours."""

from __future__ import annotations

import io
import re
from typing import Any, Final
from xml.etree import ElementTree as ET

from matplotlib.backends.backend_svg import RendererSVG
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from toolkit.plots.style import FONT, Theme
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
    root = ET.fromstring(_drawn(figure))  # noqa: S314 - written by matplotlib a moment ago
    names = [element.attrib["id"] for element in root.iter() if "id" in element.attrib]
    ids = {name: f"{prefix}-{number}" for number, name in enumerate(names)}  # matplotlib's are random
    variables = {theme.ink: "ink", theme.muted: "muted", theme.grid: "grid", theme.paper: "paper"}
    variables |= {colour: str(number) for number, colour in enumerate(theme.series)}
    body = "".join(_markup(child, ids, variables) for child in root)
    labels = f"{prefix}-title {prefix}-description"
    return (
        f'<svg viewBox="{escape_html(root.attrib["viewBox"])}" role="img" aria-labelledby="{labels}"'
        ' style="stroke-linejoin:round;stroke-linecap:butt">'
        f'<title id="{prefix}-title">{escape_html(title)}</title>'
        f'<desc id="{prefix}-description">{escape_html(description)}</desc>{body}</svg>'
    )


class _Renderer(RendererSVG):
    """Leaves text as text. There is a setting for this, but settings are those of all threads."""

    def draw_text(self, *arguments: Any, **options: Any) -> None:
        self._draw_text_as_text(*arguments, **options)  # type: ignore[no-untyped-call]


def _drawn(figure: Figure) -> str:
    """The figure as matplotlib writes it, without backgrounds."""
    drawn = io.StringIO()
    width, height = figure.get_size_inches() * 72
    dpi, shown = figure.dpi, [patch for patch in _backgrounds(figure) if patch.get_visible()]
    renderer = _Renderer(width, height, drawn, image_dpi=72)  # type: ignore[no-untyped-call]
    try:
        figure.dpi = 72
        for patch in shown:
            patch.set_visible(False)
        figure.draw(renderer)
    finally:
        figure.dpi = dpi
        for patch in shown:
            patch.set_visible(True)
    renderer.finalize()  # type: ignore[no-untyped-call]
    return drawn.getvalue()


def _backgrounds(figure: Figure) -> list[Patch]:
    return [figure.patch, *(ax.patch for ax in figure.axes)]


def _markup(element: ET.Element, ids: dict[str, str], variables: dict[str, str]) -> str:
    tag = element.tag.rpartition("}")[2]
    if tag not in _ELEMENTS:  # style sheets and metadata would act on, or speak of, the whole page
        return ""
    inner = escape_html(element.text) if tag in {"text", "tspan"} and element.text else ""
    inner += "".join(_markup(child, ids, variables) for child in element)
    if not inner and tag in {"g", "defs"}:
        return ""
    plain = {name.rpartition("}")[2]: value for name, value in element.attrib.items()}
    attributes = "".join(
        f' {name}="{escape_html(_value(name, value, ids, variables))}"' for name, value in plain.items()
    )
    return f"<{tag}{attributes}>{inner}</{tag}>" if inner else f"<{tag}{attributes}/>"


def _value(name: str, value: str, ids: dict[str, str], variables: dict[str, str]) -> str:
    if name == "id":
        return ids[value]
    if name == "href":
        return f"#{ids[value.removeprefix('#')]}"
    value = _IDS.sub(lambda found: f"url(#{ids[found[1]]})", value)
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
