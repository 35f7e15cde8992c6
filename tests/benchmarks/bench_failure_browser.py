"""The failure browser beside itables on the same frame, measured in a real browser on a real kernel.

    .venv/bin/python tests/benchmarks/bench_failure_browser.py [--rows 100000] [--rounds 5] [--alone]

Each round shows both, one after the other, in the same notebook, and is printed when it is over: itables
takes a minute for 100,000 rows on a busy machine. First paint is the time from Shift+Enter until rows are in
the page; sort, search and selection are from the click or key until the page shows it. Groups are listed a
second after the rows; their time is from the first row on. ``--alone`` leaves itables out.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "browser"))

import toolkit as tk
from conftest import Notebook, jupyterlab, launched_chromium

PREPARE = """
import itables, pandas as pd, toolkit as tk
itables.init_notebook_mode(connected=False)
some = tk.load_failures(tk.connect(), progress=False)
failures = pd.concat([some] * ({rows} // len(some)), ignore_index=True)
failures["dlq_id"] = [f"dlq_{{number}}" for number in range(len(failures))]
names = ["failed_at", "workflow_url", "response_status", "failure_function_state", "label", "max_retries"]
failures.attrs = {{}}
flat = failures[["dlq_id", *names, "body", "response_body"]]
"""
OURS = "browser = tk.FailurePanel(failures)\nbrowser"
THEIRS = "itables.show(flat, maxBytes=0, maxRows=0, maxColumns=0, select=True)"

# Resolves with the milliseconds from doing something until a condition on the page holds and was painted; a
# condition that does not come to hold is an error, where it would be waited for without end.
TIMED = """
([act, done]) => new Promise((resolve, reject) => {
  const start = performance.now();
  (0, eval)(act);
  const look = () => {
    if ((0, eval)(done)) requestAnimationFrame(() => resolve(performance.now() - start));
    else if (performance.now() - start > 60000) reject(new Error(`not within 60 s: ${done}`));
    else requestAnimationFrame(look);
  };
  look();
})
"""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--alone", action="store_true")
    options = parser.parse_args()
    taken: dict[str, list[float]] = {}
    with (
        tk.connect("local") as service,
        tempfile.TemporaryDirectory() as folder,
        jupyterlab(service, Path(folder)) as lab,
        launched_chromium() as chromium,
    ):
        for number in range(options.rounds):
            cells = [PREPARE.format(rows=options.rows), OURS, THEIRS]
            with lab.open(chromium, f"round{number}", cells) as notebook:
                notebook.run_cell()
                for name, value in (
                    *ours(notebook),
                    *(() if options.alone else theirs(notebook)),
                ):
                    taken.setdefault(name, []).append(value)
            latest = ", ".join(
                f"{name} {values[-1]:.0f}" for name, values in taken.items()
            )
            print(
                f"round {number + 1} of {options.rounds}: {latest}",
                file=sys.stderr,
                flush=True,
            )
    print(
        f"{options.rows:,} failures, medians of {options.rounds} rounds, in milliseconds"
    )
    for name, values in taken.items():
        print(
            f"{name:<28}{statistics.median(values):9.0f}   ({min(values):.0f} to {max(values):.0f})"
        )


def ours(notebook: Notebook) -> list[tuple[str, float]]:
    """What the failure browser takes."""
    grid = "document.querySelector('.tk-grid')"
    row = f"{grid}.querySelector('.tk-list-body [role=row]')"
    steps = "document.querySelector('.tk-steps')"
    found = [
        (
            "first paint",
            shown(notebook, 1, f"{steps}?.innerText.includes('1 of')"),
        )
    ]
    listed = "document.querySelectorAll('.tk-group').length"
    found.append(("groups listed", timed(notebook, "0", listed)))
    notebook.until("browser._rows._searched is not None")
    notebook.page.get_by_role("button", name="Failures", exact=True).click()
    head = f"{grid}.querySelector('[data-name=workflow_url]')"
    sorted_ = f"{grid}.querySelector('[aria-sort=ascending]')?.innerText.startsWith('Workflow')"
    found.append(
        (
            "sort",
            timed(
                notebook,
                f"{head}.click()",
                f"{sorted_} && {row}.innerText.includes('accounts')",
            ),
        )
    )
    search = notebook.page.get_by_label("Search", exact=True)
    search.fill("SocketTimeout")
    field = "document.activeElement"
    enter = f"{field}.dispatchEvent(new KeyboardEvent('keydown', {{key: 'Enter', bubbles: true}}))"
    said = "document.querySelector('.tk-count').innerText"
    found.append(
        (
            "search",
            timed(
                notebook,
                enter,
                f"{said}.split(' of ')[0] !== {said}.split(' of ')[1].split(' ')[0]",
            ),
        )
    )
    mark = f"{grid}.querySelectorAll('.tk-mark')[2]"
    found.append(
        (
            "selection",
            timed(notebook, f"{mark}.click()", f"{said}.includes('1 selected')"),
        )
    )
    control_a = "new KeyboardEvent('keydown', {key: 'a', ctrlKey: true})"
    everything = f"{grid}.focus(), {grid}.dispatchEvent({control_a})"
    found.append(
        (
            "selection of all found",
            timed(notebook, everything, f"!{said}.includes(' 1 selected')"),
        )
    )
    notebook.page.get_by_role("button", name="Groups", exact=True).click()
    group = "document.querySelectorAll('.tk-group')"
    notebook.do("browser.value = tk.FailureView()")
    whole = notebook.evaluate("f'{len(failures):,} of'")
    notebook.page.wait_for_function(f"{said}.startsWith('{whole}')")
    found.append(
        (
            "a group is opened",
            timed(notebook, f"{group}[1].click()", f"!{said}.startsWith('{whole}')"),
        )
    )
    notebook.do(
        "browser.value = browser.value.replace(groups=list(browser.groups().frame['group'][:2]))"
    )
    merge = "[...document.querySelectorAll('.tk-panel button')].find((e) => e.innerText === 'Merge groups')"
    done = "document.querySelector('.tk-panel').innerText.includes('2 groups merged')"
    found.append(("two groups are merged", timed(notebook, f"{merge}.click()", done)))
    return [(f"FailurePanel: {name}", value) for name, value in found]


def theirs(notebook: Notebook) -> list[tuple[str, float]]:
    """What itables takes."""
    table = "document.querySelector('.dt-container')"
    info = "document.querySelector('.dt-info')?.innerText"
    found = [
        (
            "first paint",
            shown(
                notebook,
                2,
                f"{table} && {table}.querySelector('tbody tr td:nth-child(2)')",
            ),
        )
    ]
    head = f"[...{table}.querySelectorAll('thead th')].find((e) => e.innerText.startsWith('workflow_url'))"
    sorted_ = f"{head}.getAttribute('aria-sort') === 'ascending'"
    order = f"{head}.querySelector('.dt-column-order, [role=button]') ?? {head}"
    found.append(("sort", timed(notebook, f"({order}).click()", sorted_)))
    field = f"{table}.querySelector('input[type=search]')"
    search = f"{field}.value = 'SocketTimeout', {field}.dispatchEvent(new Event('input', {{bubbles: true}}))"
    found.append(("search", timed(notebook, search, f"{info}?.includes('filtered')")))
    cell = f"{table}.querySelector('tbody tr td:nth-child(2)')"
    chosen = f"{table}.querySelector('tbody tr.selected')"
    found.append(("selection", timed(notebook, f"{cell}.click()", chosen)))
    return [(f"itables: {name}", value) for name, value in found]


def shown(notebook: Notebook, cell: int, done: str) -> float:
    """Milliseconds from Shift+Enter on a cell until its output is painted."""
    notebook.page.locator(".jp-CodeCell .jp-InputPrompt").nth(cell).click()
    act = "window.__begin = performance.now(), true"
    notebook.page.evaluate(act)
    notebook.page.keyboard.press("Shift+Enter")
    notebook.page.wait_for_function(f"Boolean({done})", timeout=120_000, polling="raf")
    value: Any = notebook.page.evaluate("performance.now() - window.__begin")
    return float(value)


def timed(notebook: Notebook, act: str, done: str) -> float:
    """Milliseconds from an act until it is painted."""
    value: Any = notebook.page.evaluate(TIMED, [act, done])
    return float(value)


if __name__ == "__main__":
    main()
