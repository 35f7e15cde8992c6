"""Messages and memory of clicks on groups of the failure panel, in JupyterLab with a real kernel.

    .venv/bin/python tests/benchmarks/bench_clicks.py [--rows 100000] [--clicks 200] [--groups SELECTOR]

Each click opens the next one of the first five groups. Messages are the ones of widgets (`comm_msg`) in the
websocket of the kernel: from the page to the kernel, and back. Memory is the heap of the page after a garbage
collection, and the resident memory of the kernel, after the first 20 clicks and at the end. ``--groups`` is
the CSS selector of a group, for versions that draw groups otherwise.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[1] / "browser"))

from notebook_cells import MANY_FAILURES

import toolkit as tk
from conftest import Notebook, jupyterlab, launched_chromium

_PREPARE: Final = f"""{MANY_FAILURES}
import os
def resident():
    with open("/proc/self/statm") as pages:
        return int(pages.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
"""
_PANEL: Final = "panel = tk.FailurePanel(failures)\npanel"
_GROUPS: Final = 5  # that are clicked in turns
_WARM: Final = 20  # clicks before the first measurement of memory
_QUIET: Final = 400  # milliseconds without a message end a click
_PATIENCE: Final = 180_000  # milliseconds for the groups of 100,000 failures


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--clicks", type=int, default=200)
    parser.add_argument("--groups", default=".tk-group")
    options = parser.parse_args()
    with (
        tk.connect("local") as service,
        tempfile.TemporaryDirectory() as folder,
        jupyterlab(service, Path(folder)) as lab,
        launched_chromium() as chromium,
    ):
        cells = [_PREPARE.format(rows=options.rows), _PANEL]
        with lab.open(chromium, "clicks", cells) as notebook:
            counts = {"sent": 0, "received": 0}
            _count_messages(notebook, counts)
            for _ in cells:
                notebook.run_cell()
            groups = notebook.output(1).locator(options.groups)
            groups.nth(_GROUPS - 1).wait_for(timeout=_PATIENCE)
            _settle(notebook, counts)
            _measure(notebook, groups, counts, options.clicks)


def _count_messages(notebook: Notebook, counts: dict[str, int]) -> None:
    """Count the messages of widgets. The page is loaded again, because only later sockets are seen."""

    def watch(socket: Any) -> None:
        for name, event in (("sent", "framesent"), ("received", "framereceived")):
            socket.on(event, lambda frame, name=name: count(frame, name))

    def count(frame: str | bytes, name: str) -> None:
        content = frame.encode() if isinstance(frame, str) else frame
        counts[name] += b"comm_msg" in content

    notebook.page.on("websocket", watch)
    notebook.page.reload()
    notebook.page.locator("#jp-main-statusbar >> text=/Idle/").first.wait_for()
    notebook.page.locator(".jp-Notebook .jp-Cell .jp-InputPrompt").first.click()


def _settle(notebook: Notebook, counts: dict[str, int]) -> None:
    """Wait until no message has come for a while."""
    before = None
    while before != counts:
        before = dict(counts)
        notebook.page.wait_for_timeout(_QUIET)


def _measure(
    notebook: Notebook, groups: Any, counts: dict[str, int], clicks: int
) -> None:
    """Click, and print the figures."""
    per_click: list[tuple[int, int]] = []
    memory: list[tuple[float, float]] = []
    for number in range(clicks):
        if number == _WARM:
            memory.append(_memory(notebook))
        before = dict(counts)
        groups.nth(number % _GROUPS).click()
        _settle(notebook, counts)
        changed = {name: counts[name] - before[name] for name in counts}
        per_click.append((changed["sent"], changed["received"]))
    memory.append(_memory(notebook))
    sent, received = zip(*per_click, strict=True)
    print("messages per click: page to kernel, kernel to page (median, largest)")
    print(f"  {statistics.median(sent):g}, {max(sent)}")
    print(f"  {statistics.median(received):g}, {max(received)}")
    print(f"memory after {_WARM} and {clicks} clicks: heap of the page, kernel (MB)")
    for heap, kernel in memory:
        print(f"  {heap:.1f}, {kernel:.1f}")


def _memory(notebook: Notebook) -> tuple[float, float]:
    """Return the heap of the page and the resident memory of the kernel, in megabytes."""
    session = notebook.context.new_cdp_session(notebook.page)
    session.send("HeapProfiler.collectGarbage")
    session.send("Performance.enable")
    metrics = session.send("Performance.getMetrics")["metrics"]
    heap = next(one["value"] for one in metrics if one["name"] == "JSHeapUsedSize")
    session.detach()
    return heap / 1e6, float(notebook.evaluate("resident()"))


if __name__ == "__main__":
    main()
