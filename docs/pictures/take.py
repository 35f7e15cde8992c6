"""Take pictures of plots and of the report, from the embedded service.

``python docs/pictures/take.py FOLDER``; ``make pictures`` runs this, and the browser's tests for panels.
"""

from __future__ import annotations

import shutil
import sys
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd
from drawings import Draw, plots
from matplotlib.figure import Figure
from PIL import Image
from playwright.sync_api import sync_playwright

import toolkit as tk
from toolkit.drawing.style import THEMES, ThemeName

PAGES = {
    "report-light": ((1200, 900), "light", None),
    "report-dark": ((1200, 900), "dark", None),
    "report-narrow": ((360, 1100), "light", None),
    "report-print": ((680, 960), "light", "print"),
    "report-empty": ((900, 420), "light", None),
    "report-whole-light": ((1100, 900), "light", None),
    "report-whole-dark": ((1100, 900), "dark", None),
}


def sheet(
    drawings: dict[str, Draw],
    path: Path,
    *,
    columns: int,
    size: tuple[float, float],
    theme: ThemeName,
) -> None:
    """Several plots on one picture."""
    rows = -(-len(drawings) // columns)
    figure = Figure(
        figsize=(size[0] * columns, size[1] * rows),
        layout="constrained",
        facecolor=THEMES[theme].paper,
    )
    parts = figure.subfigures(rows, columns, squeeze=False)
    for part in parts.flat:
        part.set_facecolor(THEMES[theme].paper)
    for part, draw in zip(parts.flat, drawings.values(), strict=False):
        draw(ax=part.add_subplot(), theme=theme)
    figure.savefig(path, dpi=70, metadata={"Software": None})


def nothing(service: tk.Service) -> dict[str, Draw]:
    """Draw plots of frames without rows."""
    none = tk.load_failures(
        service, tk.FailureFilter(label="no such label"), progress=False
    )
    return {
        "trend": lambda **more: tk.plots.plot_failure_trend(none, **more),
        "calendar": lambda **more: tk.plots.plot_failure_calendar(none, **more),
        "expiry": lambda **more: tk.plots.plot_expiry(none, "7d", **more),
    }


def huge(service: tk.Service, times: int = 60) -> dict[str, Draw]:
    """Draw plots of 300,000 failures of hundreds of workflows over two years."""
    failures = tk.load_failures(service, progress=False)
    copies = []
    for number in range(times):
        back = pd.Timedelta(days=12 * number)
        copy = failures.assign(
            dlq_id=failures["dlq_id"] + f"-{number}",
            failed_at=failures["failed_at"] - back,
            created_at=failures["created_at"] - back,
            workflow_created_at=failures["workflow_created_at"] - back,
        )
        copy["workflow_url"] += "" if number % 3 else f"/v{number}"
        copies.append(copy)
    many = pd.concat(copies, ignore_index=True)
    now = failures["failed_at"].max().to_pydatetime()
    return {
        "trend": lambda **more: tk.plots.plot_failure_trend(
            many, by="workflow_url", top=4, **more
        ),
        "ranked": lambda **more: tk.plots.plot_failure_trend(
            many, by="workflow_url", layout="ranked", **more
        ),
        "calendar": lambda **more: tk.plots.plot_failure_calendar(many, **more),
        "matrix": lambda **more: tk.plots.plot_failure_matrix(many, top=8, **more),
        "time": lambda **more: tk.plots.plot_time_to_failure(many, **more),
        "expiry": lambda **more: tk.plots.plot_expiry(many, "14d", now=now, **more),
    }


def report_pages(service: tk.Service, out: Path, **arguments: Any) -> None:
    """Take a picture of the report as a browser shows it."""
    failures = tk.load_failures(service, progress=False)
    now = datetime.now(UTC)
    full = tk.report_failures(
        failures, retention="30d", now=now, redactor=service.redactor
    )
    empty = tk.report_failures(failures.iloc[:0], now=now, redactor=service.redactor)
    with TemporaryDirectory() as folder, sync_playwright() as playwright:
        paths = {
            True: empty.save(f"{folder}/empty.html"),
            False: full.save(f"{folder}/full.html"),
        }
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"),
            args=["--no-sandbox", "--disable-gpu"],
            **arguments,
        )
        for name, ((width, height), scheme, media) in PAGES.items():
            context = browser.new_context(
                color_scheme=scheme, viewport={"width": width, "height": height}
            )
            page = context.new_page()
            page.emulate_media(media=media, color_scheme=scheme)
            page.goto(paths[name.endswith("empty")].as_uri())
            whole = "whole" in name
            page.screenshot(path=out / f"{name}.png", full_page=whole)
            if whole:  # a third of the bytes
                picture = Image.open(out / f"{name}.png").convert("RGB")
                picture.quantize(64).save(out / f"{name}.png", optimize=True)
            context.close()
        browser.close()


def main(out: Path) -> None:
    """Take all of them."""
    out.mkdir(parents=True, exist_ok=True)
    with tk.connect("local") as service:
        drawings = plots(service)
        trend = {"trend": drawings["plot_failure_trend"]}
        sheet(
            drawings, out / "plots-light.png", columns=3, size=(5.2, 3.0), theme="light"
        )
        sheet(
            drawings, out / "plots-dark.png", columns=3, size=(5.2, 3.0), theme="dark"
        )
        sheet(
            drawings, out / "plots-small.png", columns=5, size=(3.0, 2.2), theme="light"
        )
        sheet(trend, out / "trend-wide.png", columns=1, size=(14, 3.6), theme="light")
        sheet(
            nothing(service),
            out / "plots-empty.png",
            columns=3,
            size=(3.6, 2.0),
            theme="light",
        )
        sheet(
            huge(service),
            out / "plots-huge.png",
            columns=3,
            size=(5.2, 3.0),
            theme="light",
        )
        report_pages(service, out)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
