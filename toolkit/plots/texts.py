"""Text from data, made fit to be drawn: never maths, never invisible, never wider than the plot."""

from __future__ import annotations

from collections.abc import Sequence
from os.path import commonprefix
from typing import Final

from matplotlib.axes import Axes
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.text import Text

from toolkit.plots.style import FONT, Theme
from toolkit.redaction import visible

_LONGEST: Final = 48


def drawable(value: object, *, longest: int = _LONGEST) -> str:
    r"""A text from data as it can be drawn in our font, on one line.

    Long ones lose their middle, because URLs differ at both ends. Controls and characters that the font
    does not have are written out. Draw it with ``parse_math=False`` (`as_written`), else ``$`` makes it
    maths.

    >>> drawable("https://example.com/" + "a" * 500 + "/pay", longest=24)
    'https://exam…aaaaaaa/pay'
    >>> drawable("fire " + chr(0x1F525))
    'fire \\U0001f525'
    """
    line = " ".join(visible(str(value)[:4_000]).split())
    font = get_font(findfont(FontProperties(family=FONT)))
    text = "".join(
        character if font.get_char_index(ord(character)) else _escaped(character)
        for character in _shortened(line, longest)
    )
    return text or "(empty)"


def without_prefix(names: Sequence[str]) -> tuple[list[str], str]:
    """Addresses without what all of them begin with, to a slash, and that beginning; others as they are.

    >>> without_prefix(["https://a.example/flows/pay", "https://a.example/flows/ship", "other (3)"])
    (['pay', 'ship', 'other (3)'], 'https://a.example/flows/')
    """
    addresses = {name for name in names if "://" in name}
    if len(addresses) < 2:  # noqa: PLR2004 - one address alone stays whole
        return list(names), ""
    prefix = commonprefix(sorted(addresses))  # noqa: RUF071 - cut at a slash below
    prefix = prefix[: prefix.rfind("/") + 1]
    return [(name.removeprefix(prefix) or "/") if name in addresses else name for name in names], prefix


def _shortened(line: str, longest: int) -> str:
    if len(line) <= longest:
        return line
    head = longest // 2
    return f"{line[:head]}…{line[len(line) - (longest - head - 1) :]}"


def _escaped(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"  # noqa: PLR2004 - the basic plane's end


def as_written(texts: list[Text]) -> None:
    """Take texts literally: ``$`` is a dollar sign."""
    for text in texts:
        text.set_usetex(False)
        text.set_parse_math(False)


def say(ax: Axes, sentence: str, theme: Theme) -> Axes:
    """A sentence in place of a plot that would show nothing."""
    ax.set_xticks([])
    ax.set_yticks([])
    ax.spines[:].set_visible(False)
    ax.text(
        0.5, 0.5, sentence, transform=ax.transAxes, ha="center", va="center", color=theme.muted, fontsize=11,
        wrap=True, parse_math=False,
    )  # fmt: skip
    return ax
