"""Figures as SVG inside a page."""

from __future__ import annotations

import io
import re
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import matplotlib as mpl
from matplotlib.figure import Figure

from toolkit.drawing.drawable import drawable
from toolkit.drawing.style import THEMES, drawing
from toolkit.drawing.svg import inline_svg


class Elements(HTMLParser):
    """Collects elements, attributes and text."""

    def __init__(self, markup):
        super().__init__()
        self.found, self.text = [], []
        self.feed(markup)

    def handle_starttag(self, tag, attrs):
        """Keep the element."""
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data):
        """Keep the text."""
        self.text.append(data)


def svg(prefix="p", label="plain", **options):
    figure = Figure(figsize=(4, 3))
    with drawing(figure.add_subplot(), "light") as (ax, _):
        ax.bar(
            [0, 1],
            [1, 2],
            color=THEMES["light"].series[0],
            hatch="///",
            edgecolor=THEMES["light"].paper,
        )
        ax.set_xlabel(label, parse_math=False)
    described = {"title": "T", "description": "D", **options}
    return inline_svg(figure, prefix=prefix, theme=THEMES["light"], **described)


def test_the_same_bytes_each_time():
    """The same figure produces the same bytes, and another prefix changes nothing but ids."""
    assert svg() == svg()
    assert set(Elements(svg("q")).text) == set(Elements(svg()).text)


def test_nothing_that_acts_on_the_page():
    """There are drawing elements only, no style sheet, script or address; every reference has its id."""
    markup = svg()
    found = Elements(markup).found
    drawing = {
        "svg",
        "title",
        "desc",
        "g",
        "path",
        "defs",
        "use",
        "text",
        "tspan",
        "clippath",
        "rect",
        "pattern",
    }
    assert {tag for tag, _ in found} <= drawing
    assert not [
        name for _, attributes in found for name in attributes if name.startswith("on")
    ]
    assert "http" not in markup
    ids = {attributes["id"] for _, attributes in found if "id" in attributes}
    assert all(name.startswith("p-") for name in ids)
    used = set(re.findall(r"url\(#([^)]+)\)", markup)) | set(
        re.findall(r'href="#([^"]+)"', markup)
    )
    assert used
    assert used <= ids


def test_colours_are_variables():
    """A page can recolour the drawing: theme colours are variables with the theme's value behind them."""
    markup = svg()
    for name in ("--plot-muted, #57606a", "--plot-0, #0072b2", "--plot-grid, #d5dae0"):
        assert f"var({name})" in markup


def test_hostile_texts_stay_texts():
    """Text from data cannot leave its element."""
    payload = '</text><script>alert(1)</script>"><img src=x onerror=alert(1)>'
    parsed = Elements(svg(label=payload, title=payload, description=payload))
    assert not {"script", "img"} & {tag for tag, _ in parsed.found}
    assert payload in "".join(parsed.text)


def test_texts_stay_text_as_matplotlib_itself_writes_them():
    """The texts and their places are those of `savefig` with ``svg.fonttype`` "none", whatever the setting.

    The renderer overrides a method of matplotlib's that is not public: this fails when matplotlib changes it.
    """
    figure = Figure(figsize=(4, 3))
    with drawing(figure.add_subplot(), "light") as (ax, _):
        ax.bar(["a", "b"], [1, 2])
        ax.set_xlabel("label <b>", parse_math=False)
        ax.set_ylabel("turned", rotation=90)
    saved = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none"}):
        figure.savefig(saved, format="svg", dpi=72)
    with mpl.rc_context({"svg.fonttype": "path"}):
        ours = inline_svg(
            figure, prefix="p", theme=THEMES["light"], title="T", description="D"
        )
    texts = [
        [
            (element.text, element.get("transform"))
            for element in ET.fromstring(markup).iter(name)  # noqa: S314
        ]
        for markup, name in (
            (saved.getvalue(), "{http://www.w3.org/2000/svg}text"),
            (ours, "text"),
        )
    ]
    assert texts[0] == texts[1]
    assert {"label <b>", "turned"} < {text for text, _ in texts[1]}


def test_texts_are_made_drawable():
    """Controls are written out, pictures are named, middles are cut, and nothing is empty."""
    assert drawable("a\u202eb") == "a\\u202eb"
    assert drawable("\U0001f525") == ":fire:"
    assert drawable("a\n\t b") == "a b"
    assert drawable("") == "(empty)"
    # the dots are wider than an x
    assert drawable("x" * 30 + "END", longest=11) == "xxxx…xxEND"
