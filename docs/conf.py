"""How Sphinx builds the documentation: `make docs`."""

from __future__ import annotations

import re
from pathlib import Path

from docutils import nodes
from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

import toolkit

project = html_title = "Workflow and vector toolkit"
copyright = project  # noqa: A001 - Sphinx's name
version = release = toolkit.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "myst_nb",
    "sphinx_copybutton",
]
exclude_patterns = ["pictures", "site"]

autosummary_generate = True
autodoc_typehints = "none"  # numpydoc's sections say the types in words
default_role = "py:obj"  # a name in backticks is a link, if it is public
numpydoc_class_members_toctree = False
numpydoc_show_class_members = True
numpydoc_show_inherited_class_members = False

# the notebooks come with the outputs of `make demo`, and are not executed again
nb_execution_mode = "off"
myst_heading_anchors = 4
myst_enable_extensions = []  # a dollar is a dollar

# pages of the repository are read by contributors: they must not come before the answers of users
UNINDEXED = ("decisions/", "project/", "benchmarks", "dependencies")

html_theme = "furo"
html_copy_source = False
html_search_scorer = str(Path(__file__).parent / "site" / "scorer.js")

PICTURES = Path(__file__).parent / "generated" / "pictures"
PANELS = {
    "FailurePanel": "failure-browser-{}-wide",
    "FailureFilterPanel": "failure-filter-{}-wide",
    "MetadataFilterPanel": "metadata-filter-{}-wide",
    "RedrivePanel": "redrive-{}",
    "QueryPanel": "similarity-query-{}-wide",
    "VectorMapPanel": "vector-map-linked-{}-wide",
    "report_failures": "report-{}",
}
"""Pictures of panels and pages, taken by `make pictures`; those of plots are drawn by `make docs`."""


def add_picture(
    _app: Sphinx, _what: str, name: str, _of: object, _options: object, lines: list[str]
) -> None:
    """Show what a name draws at the head of its description, as the page's theme is light or dark."""
    short = name.rpartition(".")[2]
    picture = (
        f"/pictures/{PANELS[short]}.png"
        if short in PANELS
        else f"/generated/pictures/{short}-{{}}.png"
    )
    if short in PANELS or (PICTURES / f"{short}-light.png").exists():
        after = lines.index("") + 1 if "" in lines else len(lines)
        lines[after:after] = [
            line
            for theme in ("light", "dark")
            for line in (
                f".. image:: {picture.format(theme)}",
                f"   :alt: {short}, {theme}",
                f"   :class: only-{theme}",
                "",
            )
        ]


KEYWORDS = re.compile(r"\A---\n(?:.*\n)*? +keywords: (?P<words>.*)\n(?:.*\n)*?---\n")


def index_keywords(_app: Sphinx, _page: str, source: list[str]) -> None:
    """Make the keywords of a page entries of the index, because the search reads these first.

    Numbers, for example 401, are found only as entries of the index.
    """
    front = KEYWORDS.match(source[0])
    if front:
        entries = ", ".join(f"! {word.strip()}" for word in front["words"].split(","))
        end = front.end()
        block = f"\n```{{index}} {entries}\n```\n"
        source[0] = source[0][:end] + block + source[0][end:]


def leave_out_of_search(_app: Sphinx, page: str, source: list[str]) -> None:
    """Mark the pages that the search of the site leaves out."""
    if page.startswith(UNINDEXED):
        source[0] = f"---\nnosearch: true\n---\n\n{source[0]}"


def follow_theme(_app: Sphinx, page: nodes.document) -> None:
    """Show a picture of a page as the theme is light or dark, if there are pictures of both.

    For example, ``pictures/report-light.png`` is shown in the light theme, and
    ``pictures/report-dark.png`` in the dark one.
    """
    for picture in list(page.findall(nodes.image)):
        match = re.fullmatch(r"(pictures/.*-)(light|dark)(\b.*)", picture["uri"])
        if match is None:
            continue
        both = {theme: f"{match[1]}{theme}{match[3]}" for theme in ("light", "dark")}
        if not all((Path(__file__).parent / uri).exists() for uri in both.values()):
            continue
        for theme, uri in both.items():
            shown = picture.deepcopy()
            shown["uri"] = uri
            shown["classes"].append(f"only-{theme}")
            picture.parent.insert(picture.parent.index(picture), shown)
        picture.parent.remove(picture)


def setup(app: Sphinx) -> None:
    """Add pictures after numpydoc, which rewrites the description."""
    for plain in ("output", "cron"):
        app.add_lexer(plain, TextLexer)
    # before Sphinx collects the pictures that it copies
    app.connect("doctree-read", follow_theme, priority=400)
    app.connect("source-read", index_keywords)
    app.connect("source-read", leave_out_of_search)
    app.connect("autodoc-process-docstring", add_picture, priority=900)
