"""A figure that follows the theme of the notebook that shows it."""

from __future__ import annotations

import base64
import io
from typing import Any, Final

from matplotlib.colors import to_rgba
from matplotlib.figure import Figure

from toolkit.secrets.redaction import escape_html

_MIDDLE: Final = 1.5  # sum of red, green and blue: half of white
# The page inverts the picture, and turns the hues back. White becomes #121212, which is the background of
# dark notebooks, and dark text becomes light. Each host marks a dark page in its own way.
_DARK: Final = "filter: invert(0.93) hue-rotate(180deg)"
_HOSTS: Final = (
    '[data-jp-theme-light="false"]',  # JupyterLab, Notebook, nbconvert
    "body.vscode-dark",
    "body.dark",
    "html[theme=dark]",  # Colab
    'html[data-theme="dark"]',  # pages of Sphinx
)


def is_light(color: Any) -> bool:
    """Return whether a background is light. Transparent backgrounds count as light.

    >>> is_light("white"), is_light("#15191d"), is_light((0, 0, 0, 0))
    (True, False, True)
    """
    *parts, alpha = to_rgba(color)
    return alpha == 0 or sum(parts) > _MIDDLE


class NotebookFigure(Figure):
    """A light figure that dark notebooks show in dark. Files of `savefig` stay light."""

    def _repr_html_(self) -> str | None:
        """Return the picture with a style for dark pages, or None if the figure is not light."""
        if not is_light(self.get_facecolor()):
            return None

        content = io.BytesIO()
        self.savefig(content, format="png", dpi="figure", bbox_inches="tight")
        picture = base64.b64encode(content.getvalue()).decode()
        titles = (ax.get_title(loc="left") or ax.get_title() for ax in self.axes)
        description = escape_html(" ".join(filter(None, titles)) or "plot")
        dark = ", ".join(f"{host} .tk-plot" for host in _HOSTS)

        return (
            f"<style>{dark} {{{_DARK}}}</style>"
            f'<img class="tk-plot" alt="{description}" src="data:image/png;base64,{picture}">'
        )
