"""Draw the figures of a report as small PNG pictures for an e-mail.

Mail clients show no SVG. A PNG with 24 colours has about a third of the bytes of one with all colours. The
colours are chosen per picture, so that bars, hatches and text stay as they are in the report.
"""

from __future__ import annotations

import io
from typing import Final

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from toolkit.drawing.style import drawing
from toolkit.reports.sections import ReportFigure

# inches: below 8, names of workflows in legends are shortened
_WIDTH: Final = 8.0
# pixels per inch: text of 9 points is 11 pixels high
_DOTS: Final = 90
# with fewer, series of similar colours look the same
_COLOURS: Final = 24
_ROUNDS: Final = 2  # of k-means, which moves the chosen colours closer to those drawn


def draw_png(figure: ReportFigure) -> bytes:
    """Return the figure as a PNG on white. The same figure always produces the same bytes."""
    # without pyplot, so that no global state of matplotlib changes
    canvas = Figure(figsize=(_WIDTH, figure.height), dpi=_DOTS, layout="constrained")
    drawn = FigureCanvasAgg(canvas)
    with drawing(canvas.add_subplot(), "light") as (ax, theme):
        figure.draw(ax, theme)
    canvas.set_facecolor(theme.paper)
    drawn.draw()  # type: ignore[no-untyped-call]
    pixels = np.asarray(drawn.buffer_rgba())  # type: ignore[no-untyped-call]
    coloured = Image.fromarray(pixels).convert("RGB")
    # MAXCOVERAGE keeps rare colours, for example of one thin series; MEDIANCUT merges them with others
    reduced = coloured.quantize(
        _COLOURS,
        method=Image.Quantize.MAXCOVERAGE,
        kmeans=_ROUNDS,
        dither=Image.Dither.NONE,
    )
    file = io.BytesIO()
    reduced.save(file, "PNG", optimize=True)

    return file.getvalue()
