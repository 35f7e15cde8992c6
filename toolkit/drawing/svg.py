"""Write a figure as SVG inside a page: without scripts, style sheets or clashes of ids; with CSS colours."""

from __future__ import annotations

import io
import re
from collections import defaultdict
from collections.abc import Container
from itertools import product
from typing import Any, Final
from xml.etree import ElementTree as ET

from matplotlib.backends.backend_svg import RendererSVG
from matplotlib.figure import Figure

from toolkit.drawing.fonts import FONT, for_browser, with_all_characters
from toolkit.drawing.style import Theme
from toolkit.secrets.redaction import escape_attribute, escape_html

_ELEMENTS: Final = frozenset(
    {"svg", "g", "path", "defs", "use", "text", "tspan", "clipPath", "rect"}
)
_IDS: Final = re.compile(r"url\(#([^)]+)\)")
_SVG: Final = "{http://www.w3.org/2000/svg}"
_TILE: Final = 72  # points: matplotlib's patterns have this width and height
_NUMBER: Final = re.compile(r"-?\d+\.\d+")
_COORDINATE: Final = re.compile(r"-?\d+(?:\.\d+)?")
_FONT: Final = re.compile(rf"(['\"]?){FONT}\1")


def inline_svg(
    figure: Figure, *, title: str, description: str, prefix: str, theme: Theme
) -> str:
    """Return a figure as an ``<svg>`` element; the same bytes for the same figure. It is not changed."""
    root = ET.fromstring(_drawn(figure))  # noqa: S314 - just written by matplotlib
    _draw_hatches(root)
    names = [element.attrib["id"] for element in root.iter() if "id" in element.attrib]
    # matplotlib's are random
    ids = {name: f"{prefix}-{number}" for number, name in enumerate(names)}
    variables = {
        theme.ink: "ink",
        theme.muted: "muted",
        theme.grid: "grid",
        theme.paper: "paper",
    }
    variables |= {colour: str(number) for number, colour in enumerate(theme.series)}
    variables |= {colour: f"heat-{number}" for number, colour in enumerate(theme.heat)}
    variables |= {theme.on_few: "on-few", theme.on_many: "on-many"}
    body = "".join(_markup(child, ids, variables) for child in root)
    labels = f"{prefix}-title {prefix}-description"

    return (
        f'<svg viewBox="{escape_attribute(root.attrib["viewBox"])}" role="img" aria-labelledby="{labels}"'
        ' style="stroke-linejoin:round;stroke-linecap:butt">'
        f'<title id="{prefix}-title">{escape_html(title)}</title>'
        f'<desc id="{prefix}-description">{escape_html(description)}</desc>{body}</svg>'
    )


class _Renderer(RendererSVG):
    """Leaves text as text."""

    def draw_text(self, *arguments: Any, **options: Any) -> None:
        # not public: the setting that chooses it, "svg.fonttype", is that of all threads
        self._draw_text_as_text(*arguments, **options)  # type: ignore[no-untyped-call]


def _drawn(figure: Figure) -> str:
    """Return the figure as matplotlib writes it, without backgrounds."""
    drawn = io.StringIO()
    width, height = figure.get_size_inches() * 72
    backgrounds = [figure.patch, *(ax.patch for ax in figure.axes)]
    visible_backgrounds = [patch for patch in backgrounds if patch.get_visible()]
    dpi = figure.dpi
    renderer = _Renderer(width, height, drawn, image_dpi=72)  # type: ignore[no-untyped-call]

    try:
        figure.dpi = 72
        for patch in visible_backgrounds:
            patch.set_visible(False)
        # names that fit the Axes are written while they are drawn
        with for_browser():
            figure.draw(renderer)
    finally:
        figure.dpi = dpi
        for patch in visible_backgrounds:
            patch.set_visible(True)

    renderer.finalize()  # type: ignore[no-untyped-call]
    return drawn.getvalue()


def _draw_hatches(root: ET.Element) -> None:
    """Draw hatches as lines clipped to their bars: browsers print fill patterns as pictures of megabytes.

    Paths with the same hatch become one clip path. The lines of the hatch are repeated in tiles over it.
    """
    # Before and after, for two bars with the hatch "h1":
    #
    #     <pattern id="h1">                        <path id="h1">              one tile
    #     <path style="fill: url(#h1)" d="M1…">    <path style="fill: #ccc" d="M1…">
    #     <path style="fill: url(#h1)" d="M2…">    <path style="fill: #ccc" d="M2…">
    #                                              <clipPath id="h1-0"> <path d="M1… M2…">
    #                                              <g clip-path="url(#h1-0)"> <use href="#h1"> …
    patterns = {
        pattern.attrib["id"]: pattern for pattern in root.iter(f"{_SVG}pattern")
    }
    parents = _parents(root)

    bars = _hatched_paths(root, patterns)
    for number, ((name, clip), paths) in enumerate(bars.items()):
        colour = patterns[name].find(f"{_SVG}rect").attrib["fill"]  # type: ignore[union-attr]
        # the bar gets the plain colour, and the lines are drawn over it
        for path in paths:
            path.set("style", path.attrib["style"].replace(f"url(#{name})", colour))
        container = ET.SubElement(parents[paths[-1]], f"{_SVG}g")
        if clip:
            container.set("clip-path", clip)
        outline = " ".join(path.attrib["d"] for path in paths)
        _draw_tiles(container, outline, name, clip_id=f"{name}-{number}")

    # a pattern becomes the path of one tile, which `use` repeats
    for name, pattern in patterns.items():
        drawn = pattern.find(f"{_SVG}path")
        pattern.clear()
        pattern.tag = f"{_SVG}path"
        pattern.attrib = {**_dotted(drawn.attrib), "id": name}  # type: ignore[union-attr]


def _parents(root: ET.Element) -> dict[ET.Element, ET.Element]:
    """Return the parent of each element."""
    parents: dict[ET.Element, ET.Element] = {}
    for parent in root.iter():
        parents.update(dict.fromkeys(parent, parent))
    return parents


def _hatched_paths(
    root: ET.Element, patterns: Container[str]
) -> dict[tuple[str, str], list[ET.Element]]:
    """Return the paths by hatch and by the clip path of their Axes; each group gets one clip path."""
    groups: defaultdict[tuple[str, str], list[ET.Element]] = defaultdict(list)
    for path in root.iter(f"{_SVG}path"):
        fill = _IDS.search(path.get("style", ""))
        if fill is None or fill[1] not in patterns:
            continue
        clip = path.get("clip-path", "")
        groups[fill[1], clip].append(path)

    return groups


def _draw_tiles(container: ET.Element, outline: str, name: str, clip_id: str) -> None:
    """Repeat the lines of a hatch in tiles over an outline, and clip them to it."""
    definitions = ET.SubElement(container, f"{_SVG}defs")
    clip_path = ET.SubElement(definitions, f"{_SVG}clipPath", id=clip_id)
    ET.SubElement(clip_path, f"{_SVG}path", d=outline)
    lines = ET.SubElement(container, f"{_SVG}g", {"clip-path": f"url(#{clip_id})"})
    positions = list(map(float, _COORDINATE.findall(outline)))
    for x, y in product(_tiles(positions[::2]), _tiles(positions[1::2])):
        ET.SubElement(lines, f"{_SVG}use", href=f"#{name}", x=str(x), y=str(y))


def _dotted(attributes: dict[str, str]) -> dict[str, str]:
    """Return a hatch of circles as points of a round pen, which print in a hundredth of the bytes."""
    if "C" not in attributes["d"]:
        return attributes

    sizes: dict[tuple[float, float], float] = {}
    # a circle is a closed path, and the box around it gives the centre and the size
    for circle in attributes["d"].split("M")[1:]:
        coordinates = list(map(float, _COORDINATE.findall(circle)))
        left, right = min(coordinates[::2]), max(coordinates[::2])
        top, bottom = min(coordinates[1::2]), max(coordinates[1::2])
        centre = (round((left + right) / 2, 1), round((top + bottom) / 2, 1))
        sizes[centre] = max(sizes.get(centre, 0.0), right - left)

    style = re.sub("stroke-(width|linecap): [^;]+", "", attributes["style"])
    width = max(sizes.values())

    return {
        "d": " ".join(f"M {x} {y} L {x} {y}" for x, y in sizes),
        "style": f"{style}; stroke-linecap: round; stroke-width: {width:.2f}",
    }


def _tiles(positions: list[float]) -> range:
    """Return the starts of the tiles that cover these coordinates."""
    return range(int(min(positions) // _TILE) * _TILE, int(max(positions)) + 1, _TILE)


def _markup(element: ET.Element, ids: dict[str, str], variables: dict[str, str]) -> str:
    """Return an element without namespaces, with safe ids and with colours as CSS variables."""
    tag = element.tag.rpartition("}")[2]
    if tag not in _ELEMENTS:  # style sheets and metadata would apply to the whole page
        return ""

    children = "".join(_markup(child, ids, variables) for child in element)
    inner = _own_text(element, tag) + children
    if not inner and tag in {"g", "defs"}:
        return ""

    attributes = _attributes(element, ids, variables)
    if not inner:
        return f"<{tag}{attributes}/>"

    return f"<{tag}{attributes}>{inner}</{tag}>"


def _own_text(element: ET.Element, tag: str) -> str:
    """Return the text before the first child, escaped; only texts have it."""
    if tag not in {"text", "tspan"}:
        return ""

    own_text = element.text or ""
    drawn_text = with_all_characters(own_text)
    return escape_html(drawn_text, inside="tspan")


def _attributes(
    element: ET.Element, ids: dict[str, str], variables: dict[str, str]
) -> str:
    """Return the attributes of an element as they are written, each after a space."""
    attributes = ""
    for qualified_name, value in element.attrib.items():
        _, _, name = qualified_name.rpartition("}")
        written_value = escape_attribute(_value(name, value, ids, variables))
        attributes += f' {name}="{written_value}"'

    return attributes


def _value(
    name: str, value: str, ids: dict[str, str], variables: dict[str, str]
) -> str:
    if name == "id":
        return ids[value]
    if name == "href":
        return f"#{ids[value.removeprefix('#')]}"

    value = _IDS.sub(lambda match: f"url(#{ids[match[1]]})", value)
    if name == "d":
        return _NUMBER.sub(_hundredths, " ".join(value.split()))
    if name not in {"style", "fill", "stroke"}:
        return value

    for colour, variable in variables.items():
        value = value.replace(colour, f"var(--plot-{variable}, {colour})")
    return _FONT.sub(f"'{FONT}', Verdana, sans-serif", value)


def _hundredths(match: re.Match[str]) -> str:
    """Return a number to a hundredth of a point, which is finer than any screen, and half the bytes."""
    return f"{float(match[0]):.2f}".rstrip("0").rstrip(".")
