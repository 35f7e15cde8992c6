"""Time from a run of a cell until the failure panel is seen, in JupyterLab with a real kernel.

    .venv/bin/python tests/benchmarks/bench_first_paint.py [--rows 5000 100000] [--rounds 5]

Each round starts a kernel and loads the failures. Then it runs three cells:

- ``1``, which shows how much of the time is the notebook's own;
- a panel, the first one of the kernel, which loads the modules and the stylesheet;
- a second panel.

The time of a panel ends when the first failure of its table is painted; the page presses "Failures" itself.
Next to the wall time are the processor seconds of the kernel, which depend less on other programs, and their
ratio to the processor seconds of importing pandas in the same run.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from playwright.sync_api import Browser

sys.path.insert(0, str(Path(__file__).parents[1] / "browser"))

from notebook_cells import MANY_FAILURES

import toolkit as tk
from conftest import Lab, Notebook, jupyterlab, launched_chromium

_PREPARE: Final = f"import time\n{MANY_FAILURES}"
_CELLS: Final = {
    "a number": "1",
    "first panel": "panel = tk.FailurePanel(failures)\npanel",
    "second panel": "panel = tk.FailurePanel(failures)\npanel",
}
_PANDAS: Final = (
    "import time; begun = time.process_time(); import pandas;"
    "print(time.process_time() - begun)"
)
# The answer comes with the frame after the one that shows the row.
_SEEN: Final = """
(number) => new Promise((resolve, reject) => {
  const begun = window.__begun;
  const look = () => {
    const cell = document.querySelectorAll('.jp-CodeCell')[number];
    const panel = cell.querySelector('.tk-panel');
    const mode = [...panel?.querySelectorAll('.tk-seg button') ?? []].find((e) => e.innerText === 'Failures');
    if (mode?.ariaPressed === 'false') mode.click();
    const text = cell.querySelector('.tk-grid [role=row] .tk-col-failed_at, .jp-OutputArea-output pre');
    if (text?.innerText) requestAnimationFrame(() => resolve(performance.now() - begun));
    else if (performance.now() - begun > 120000) reject(new Error('nothing is seen after two minutes'));
    else requestAnimationFrame(look);
  };
  look();
})
"""
Times = dict[tuple[int, str], list[tuple[float, float]]]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, nargs="+", default=[5_000, 100_000])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    times: Times = {}
    units: list[float] = []
    with (
        tk.connect("local") as service,
        tempfile.TemporaryDirectory() as folder,
        jupyterlab(service, Path(folder)) as lab,
        launched_chromium() as chromium,
    ):
        for number in range(options.rounds):
            units.append(_seconds_of_pandas())
            for rows in options.rows:
                _measure(lab, chromium, f"round-{number}-{rows}", rows, times)
    _print(times, units)


def _seconds_of_pandas() -> float:
    """Return the processor seconds of importing pandas in a process of its own."""
    ended = subprocess.run(
        [sys.executable, "-c", _PANDAS], capture_output=True, text=True, check=True
    )
    return float(ended.stdout)


def _measure(lab: Lab, chromium: Browser, name: str, rows: int, times: Times) -> None:
    """Run the cells in a new kernel, and add a pair of wall and processor seconds for each."""
    cells = [_PREPARE.format(rows=rows), *_CELLS.values()]
    with lab.open(chromium, name, cells) as notebook:
        notebook.run_cell()
        for number, what in enumerate(_CELLS, start=1):
            pair = _seen(notebook, number)
            times.setdefault((rows, what), []).append(pair)
            print(name, what, *(f"{value:.2f}" for value in pair), file=sys.stderr)
            if number > 1:
                # on other threads
                notebook.until("not panel.board['waiting']")
                notebook.until("panel._rows._searched is not None")


def _seen(notebook: Notebook, number: int) -> tuple[float, float]:
    """Run a cell, and return the wall and processor seconds until its output is seen."""
    notebook.page.locator(".jp-CodeCell .jp-InputPrompt").nth(number).click()
    before = float(notebook.evaluate("time.process_time()"))
    notebook.page.evaluate("window.__begun = performance.now()")
    notebook.page.keyboard.press("Shift+Enter")
    wall: float = notebook.page.evaluate(_SEEN, number)
    return wall / 1_000, float(notebook.evaluate("time.process_time()")) - before


def _print(times: Times, units: list[float]) -> None:
    """Print the medians, with the smallest and the largest."""
    unit = statistics.median(units)
    print(f"importing pandas: {unit:.2f} processor seconds")
    print("failures  cell          wall seconds         processor seconds    / pandas")
    for (rows, what), pairs in times.items():
        walls, processors = zip(*pairs, strict=True)
        ratio = statistics.median(processors) / unit
        print(f"{rows:<9,} {what:<13} {_range(walls)} {_range(processors)} {ratio:.2f}")


def _range(values: tuple[float, ...]) -> str:
    median = statistics.median(values)
    return f"{median:5.2f} ({min(values):.2f} to {max(values):.2f})"


if __name__ == "__main__":
    main()
