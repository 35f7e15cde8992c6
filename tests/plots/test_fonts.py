"""Names in scripts of the world: with a font that has the letters, without one, and in a page."""

from __future__ import annotations

import io
import json
import re
import warnings
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd
import pytest
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import fontManager
from matplotlib.text import Text

import toolkit as tk
from toolkit.drawing import fonts
from toolkit.drawing.drawable import drawable, drawable_names
from toolkit.tables.failures import FailureDecoder
from toolkit.tables.frames import to_frame
from toolkit_service.demo.history import wire_entries

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)
TEXTS = {
    "Chinese": "\u6570\u636e\u5e93\u8fde\u63a5\u8d85\u65f6",
    "Japanese": "\u63a5\u7d9a\u304c\u30bf\u30a4\u30e0\u30a2\u30a6\u30c8",
    "Korean": "\uc5f0\uacb0 \uc2dc\uac04\uc774 \ucd08\uacfc",
    "Thai": "\u0e01\u0e32\u0e23\u0e40\u0e0a\u0e37\u0e48\u0e2d\u0e21\u0e15\u0e48\u0e2d",
    "Arabic": "\u0627\u0646\u062a\u0647\u062a \u0645\u0647\u0644\u0629",
    "Hebrew": "\u05e4\u05e1\u05e7 \u05d4\u05d6\u05de\u05df",
}
IN_EACH_FONT = {"Arabic", "Hebrew"}
"""Scripts of the font that comes with matplotlib."""

PLOTS: dict[str, Callable[[pd.DataFrame], Axes]] = {
    "groups": lambda frame: tk.plots.plot_failure_groups(
        frame, ax=Figure((9, 4), layout="constrained").add_subplot()
    ),
    "trend": lambda frame: tk.plots.plot_failure_trend(
        frame, by="workflow_url", ax=Figure((9, 4)).add_subplot()
    ),
}


@pytest.fixture(scope="module")
def failures() -> pd.DataFrame:
    """The last failures of the sample history, with workflows and errors in six scripts."""
    entries = wire_entries(int(NOW.timestamp() * 1000))[-120:]
    frame = to_frame(FailureDecoder(None).decode(json.dumps(entries).encode()))
    texts = list(TEXTS.values()) * len(frame)
    return frame.assign(
        workflow_url=[f"https://a.example/{text}" for text in texts[: len(frame)]],
        response_body=[
            json.dumps({"error": text}, ensure_ascii=False)
            for text in texts[: len(frame)]
        ],
    )


@pytest.fixture
def no_fonts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Only the fonts of matplotlib itself are installed."""
    own = [font for font in fontManager.ttflist if "mpl-data" in font.fname]
    monkeypatch.setattr(fontManager, "ttflist", own)
    forget()
    yield
    forget()


@pytest.fixture
def one_font(no_fonts: None, tmp_path: Path) -> str:
    """One font of the system has all letters of the texts."""
    family = "Noto Sans CJK SC"
    characters = {character for text in TEXTS.values() for character in text}
    samples = set(fonts._SAMPLES.values())
    fontManager.addfont(written_font(tmp_path, family, characters | samples))
    forget()
    return family


def forget() -> None:
    """Let the next plot choose fonts, and warn, as the first one of a process."""
    for cached in (fonts._installed_families, fonts._advance, fonts._warn_of_script):
        cached.cache_clear()


def written_font(folder: Path, family: str, characters: set[str]) -> str:
    """Write a font in which each letter is a bar, and return the path."""
    names = {ord(character): f"uni{ord(character):04X}" for character in characters}
    pen = TTGlyphPen(None)
    pen.moveTo((100, 0))
    for corner in ((100, 700), (900, 700), (900, 0)):
        pen.lineTo(corner)
    pen.closePath()
    bar = pen.glyph()
    builder = FontBuilder(1000, isTTF=True)
    order = [".notdef", *names.values()]
    builder.setupGlyphOrder(order)
    builder.setupCharacterMap(names)
    builder.setupGlyf(dict.fromkeys(order, bar))
    builder.setupHorizontalMetrics(dict.fromkeys(order, (1000, 100)))
    builder.setupHorizontalHeader(ascent=800, descent=-200)
    builder.setupNameTable({"familyName": family, "styleName": "Regular"})
    builder.setupOS2(sTypoAscender=800, usWeightClass=400)
    builder.setupPost()
    path = folder / "letters.ttf"
    builder.save(path)
    return str(path)


def written(ax: Axes) -> str:
    """Return all text of a plot as it is drawn; matplotlib warns if a letter is missing."""
    ax.figure.savefig(io.BytesIO(), format="png")
    return "\n".join(text.get_text() for text in ax.figure.findobj(Text))


@pytest.mark.parametrize("plot", PLOTS)
def test_letters_are_drawn_with_a_font_that_has_them(
    failures: pd.DataFrame, one_font: str, plot: str
) -> None:
    """The text is as written, without a warning, and names the font after the usual one."""
    ax = PLOTS[plot](failures)
    text = written(ax)
    for part in TEXTS.values():
        assert part in text
    families = [label.get_fontfamily() for label in ax.figure.findobj(Text)]
    assert [fonts.FONT, one_font] in families


@pytest.mark.parametrize("plot", PLOTS)
def test_without_a_font_the_script_is_named(
    failures: pd.DataFrame, no_fonts: None, plot: str
) -> None:
    """No box and no escape; each script is named in the plot, and in one warning of the process."""
    with pytest.warns(UserWarning, match="No installed font") as caught:
        text = written(PLOTS[plot](failures))
    missing = {*TEXTS} - IN_EACH_FONT
    for script, part in TEXTS.items():
        assert (part in text) == (script in IN_EACH_FONT)
        assert (f"[{script}]" in text) == (script in missing)
    assert "\\u" not in text
    messages = [str(warning.message) for warning in caught]
    assert len(messages) == len(missing)
    assert all(
        any(f"Noto Sans {name}" in each for each in messages)
        for name in ("CJK", "Thai")
    )
    assert {warning.filename for warning in caught} == {__file__}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        written(PLOTS[plot](failures))


def test_figures_of_a_report_have_all_letters(
    failures: pd.DataFrame, no_fonts: None, tmp_path: Path
) -> None:
    """A browser has fonts of its own, so the page is the same with and without an installed font."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        page = saved_report(failures, tmp_path)
    labels = re.findall(r"<text[^>]*>(.*?)</text>", page, re.DOTALL)
    drawn = [
        script for script, text in TEXTS.items() if any(text in each for each in labels)
    ]
    assert len(drawn) >= 4
    assert not re.search("[\ufe00-\ufe0f]", page)
    assert not re.search(r"\[(Chinese|Japanese|Korean|Thai)", page)
    characters = {character for text in TEXTS.values() for character in text}
    fontManager.addfont(written_font(tmp_path, "WenQuanYi Zen Hei", characters))
    forget()
    assert saved_report(failures, tmp_path) == page


def saved_report(failures: pd.DataFrame, folder: Path) -> str:
    """Return the HTML of a report."""
    path = folder / "report.html"
    tk.report_failures(failures, now=NOW).save(path)
    return path.read_text(encoding="utf-8")


def test_pictures_are_named_and_other_forms_are_plain(no_fonts: None) -> None:
    """An emoji has its name, a full-width digit is a digit, and a character without a name is a mark."""
    assert drawable("\U0001f525 at 50\uff05") == ":fire: at 50%"
    assert drawable("a\ue000\ud800\U0001f468\u200d\U0001f469").endswith(
        ":man:\u200d:woman:"
    )
    assert drawable("z" + "\u0301\u0316" * 60) == "z\u0301\u0316"


def test_names_in_a_missing_script_differ(no_fonts: None) -> None:
    """Different names are numbered."""
    names = [TEXTS["Thai"], TEXTS["Thai"] + "\u0e01", "pay", TEXTS["Chinese"]]
    with pytest.warns(UserWarning, match="Thai"):
        assert drawable_names(names) == ["[Thai] 1", "[Thai] 2", "pay", "[Chinese]"]
