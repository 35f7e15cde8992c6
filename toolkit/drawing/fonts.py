"""Choose installed fonts for text in any script; without a font, name the script and warn once.

Plots use DejaVu Sans, which comes with matplotlib and has Latin, Greek, Cyrillic, Arabic, Hebrew and other
letters. Other scripts need a font of the system. For example, a workflow with a Chinese name is drawn with
WenQuanYi Zen Hei if that font is installed. Otherwise the plot shows `[Chinese]`, and a warning tells which
font to install.

Browsers have fonts of their own, so figures inside a page (SVG) keep all text: see `for_browser`.
"""

from __future__ import annotations

import re
import sys
import unicodedata
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from typing import Final

from matplotlib import get_cachedir
from matplotlib.font_manager import FontProperties, findfont, fontManager, get_font
from matplotlib.ft2font import FT2Font, LoadFlags

FONT: Final = "DejaVu Sans"
"""Comes with matplotlib, so that text in Latin letters has the same width everywhere."""

_FAMILIES: Final = (
    # Debian, Ubuntu, Fedora
    "Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans CJK TC", "Noto Sans CJK KR", "Source Han Sans SC",
    "WenQuanYi Zen Hei", "WenQuanYi Micro Hei", "Droid Sans Fallback", "IPAexGothic", "IPAPGothic",
    "IPAGothic", "TakaoPGothic", "VL PGothic", "NanumGothic", "UnDotum", "Baekmuk Gulim", "Loma", "Garuda",
    # macOS
    "PingFang SC", "Heiti TC", "STHeiti", "Hiragino Sans", "Apple SD Gothic Neo", "AppleGothic", "Thonburi",
    "Geeza Pro", "Kohinoor Devanagari", "Arial Unicode MS",
    # Windows
    "Microsoft YaHei", "SimHei", "SimSun", "Yu Gothic", "Meiryo", "MS Gothic", "Malgun Gothic",
    "Leelawadee UI", "Nirmala UI", "Ebrima", "Tahoma", "Segoe UI",
    # fonts of many scripts
    "FreeSans", "FreeSerif", "Unifont",
)  # fmt: skip
"""Families that have letters which the font of the toolkit lacks, in the order of choice."""

_SAMPLES: Final = {
    "Chinese": "\N{CJK UNIFIED IDEOGRAPH-4E2D}",
    "Japanese": "\N{HIRAGANA LETTER NO}",
    "Korean": "\N{HANGUL SYLLABLE HAN}",
    "Thai": "\N{THAI CHARACTER KO KAI}",
    "Arabic": "\N{ARABIC LETTER BEH}",
    "Hebrew": "\N{HEBREW LETTER ALEF}",
    "Devanagari": "\N{DEVANAGARI LETTER KA}",
    "Bengali": "\N{BENGALI LETTER KA}",
    "Gurmukhi": "\N{GURMUKHI LETTER KA}",
    "Gujarati": "\N{GUJARATI LETTER KA}",
    "Tamil": "\N{TAMIL LETTER KA}",
    "Telugu": "\N{TELUGU LETTER KA}",
    "Kannada": "\N{KANNADA LETTER KA}",
    "Malayalam": "\N{MALAYALAM LETTER KA}",
    "Sinhala": "\N{SINHALA LETTER ALPAPRAANA KAYANNA}",
    "Myanmar": "\N{MYANMAR LETTER KA}",
    "Khmer": "\N{KHMER LETTER KA}",
    "Ethiopic": "\N{ETHIOPIC SYLLABLE HA}",
}
"""A letter of each script that a font is chosen for."""

# The first words of the names of characters; other scripts have the first word as their name.
_SCRIPTS: Final = {
    "CJK": "Chinese",
    "IDEOGRAPHIC": "Chinese",
    "HIRAGANA": "Japanese",
    "KATAKANA": "Japanese",
    "KATAKANA-HIRAGANA": "Japanese",
    "HANGUL": "Korean",
}
_EAST_ASIAN: Final = frozenset(("Chinese", "Japanese", "Korean"))
_WORDS: Final = frozenset("LMN")  # letters, marks and numbers, as categories of Unicode

_FOR_BROWSER: Final[ContextVar[bool]] = ContextVar("for_browser", default=False)

# A character that only the browser can draw is written as a dash of the same width and six selectors, which
# have no width. Each selector is a hexadecimal digit of the character. Data cannot contain such a sequence:
# a character of a plot has at most two marks.
_SELECTOR: Final = 0xFE00
_DIGITS: Final = 6
_STAND_IN: Final = re.compile(f"\N{EM DASH}([\ufe00-\ufe0f]{{{_DIGITS}}})")


@contextmanager
def for_browser() -> Iterator[None]:
    """Keep characters that no font here has: the figure becomes SVG in a page.

    Draw the figure in this context, and pass the SVG through `with_all_characters`.
    """
    token = _FOR_BROWSER.set(True)
    try:
        yield
    finally:
        _FOR_BROWSER.reset(token)


def draws_for_browser() -> bool:
    """Return whether the figure becomes SVG in a page."""
    return _FOR_BROWSER.get()


def font_families() -> list[str]:
    """Return the families for matplotlib, which draws a character with the first family that has it."""
    return list(_families(in_browser=draws_for_browser()))


def _families(*, in_browser: bool) -> tuple[str, ...]:
    if in_browser:
        # the browser chooses, so the SVG is the same on any machine
        return (FONT,)
    return _installed_families()


@cache
def _installed_families() -> tuple[str, ...]:
    """Return the font of the toolkit, and one installed family for each script that it lacks."""
    installed = {font.name for font in fontManager.ttflist}
    # for example Noto Sans Thai; a family per script
    other_noto = sorted(name for name in installed if name.startswith("Noto Sans "))
    candidates = list(filter(installed.__contains__, (*_FAMILIES, *other_noto)))
    families = [FONT]

    for sample in _SAMPLES.values():
        is_covered = _families_with(families, sample) != []
        if not is_covered:
            families += _families_with(candidates, sample)[:1]

    return tuple(families)


def _families_with(families: list[str], character: str) -> list[str]:
    """Return the families that have a character."""
    return [family for family in families if _has(family, character)]


def _font(family: str) -> FT2Font:
    return get_font(findfont(FontProperties(family=family)))


def _has(family: str, character: str) -> bool:
    # a font of pictures, for example of emoji in colours, cannot be opened
    with suppress(RuntimeError, OSError):
        return bool(_font(family).get_char_index(ord(character)))
    return False


def advance(character: str) -> float | None:
    """Return the width of a character in units of the font size; None if no font has the character."""
    return _advance(character, in_browser=draws_for_browser())


@cache
def _advance(character: str, *, in_browser: bool) -> float | None:
    for family in _families(in_browser=in_browser):
        if _has(family, character):
            font = _font(family)
            glyph = font.load_char(ord(character), flags=LoadFlags.NO_SCALE)
            return float(glyph.horiAdvance / font.units_per_EM)

    return None


def replacement(missing: str) -> str:
    """Return what is drawn for characters that no font has, for example ``[Thai]`` or ``:fire:``.

    Warn once per script. In a figure for a browser, return the characters in a form that keeps them.

    >>> replacement(chr(0x1F525))
    ':fire:'
    """
    if draws_for_browser():
        return "".join(map(_stand_in, missing))

    replaced = ""
    scripts: dict[str, None] = {}
    for character in missing:
        script = script_of(character)
        if script is not None:
            scripts[script] = None
            continue
        replaced += _scripts_in_words(scripts) + _symbol(character)
        scripts = {}

    return replaced + _scripts_in_words(scripts)


def with_all_characters(svg_text: str) -> str:
    """Return text of a figure for a browser with the characters that stand-ins were drawn for."""
    return _STAND_IN.sub(lambda match: _kept_character(match[1]), svg_text)


def script_of(character: str) -> str | None:
    """Return the script of a letter, mark, number or East Asian punctuation; None for a symbol.

    >>> script_of(chr(0x4E2D)), script_of(chr(0xE01)), script_of(chr(0x1F525))
    ('Chinese', 'Thai', None)
    """
    word = unicodedata.name(character, "").partition(" ")[0]
    if word in _SCRIPTS:
        return _SCRIPTS[word]
    if word and unicodedata.category(character)[0] in _WORDS:
        return word.capitalize()

    return None


def _symbol(character: str) -> str:
    """Return the name of a symbol between colons, or a replacement character."""
    name = unicodedata.name(character, "")
    if not name:
        return "\N{REPLACEMENT CHARACTER}"

    return f":{name.lower().replace(' ', '-')}:"


def _scripts_in_words(scripts: dict[str, None]) -> str:
    """Return the name of the scripts of adjacent characters, and warn that they cannot be drawn."""
    names = list(scripts)
    # Japanese and Korean text has Chinese characters as well
    if len(names) > 1 and "Chinese" in names and _EAST_ASIAN.issuperset(names):
        names.remove("Chinese")
    for name in names:
        _warn_of_script(name)
    if not names:
        return ""

    return f"[{', '.join(names)}]"


@cache
def _warn_of_script(script: str) -> None:
    font, package = f"Noto Sans {script}", "fonts-noto-core"
    if script in _EAST_ASIAN:
        font, package = "Noto Sans CJK", "fonts-noto-cjk"
    warnings.warn(
        f"No installed font has {script} letters, so plots show [{script}] instead of them. Install a"
        f" font, for example {font} (in Debian and Ubuntu: apt-get install {package}). Then remove the list"
        f" of fonts of matplotlib (fontlist-*.json in {get_cachedir()}) and start Python again.",
        UserWarning,
        stacklevel=_levels_up(),
    )


def _levels_up() -> int:
    """Return the stack level of the first caller outside of the toolkit and matplotlib, for a warning."""
    level = 1
    frame = sys._getframe(1)  # noqa: SLF001 - the only way before Python 3.12
    while frame.f_back is not None:
        if not frame.f_globals.get("__name__", "").startswith(
            ("toolkit.", "matplotlib.")
        ):
            break

        frame = frame.f_back
        level += 1

    return level


def _stand_in(character: str) -> str:
    """Return a dash, which is as wide as a letter of any script, and the character as digits."""
    digits = f"{ord(character):0{_DIGITS}x}"
    return "\N{EM DASH}" + "".join(chr(_SELECTOR + int(digit, 16)) for digit in digits)


def _kept_character(selectors: str) -> str:
    digits = "".join(f"{ord(selector) - _SELECTOR:x}" for selector in selectors)
    return chr(int(digits, 16))
