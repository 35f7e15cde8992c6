"""Run the Python of documentation pages, and compare or renew the outputs that they show.

``python docs/run_pages.py PAGE …`` compares, and ends with 1 if a page is out of date. With ``--write``,
outputs are replaced. ``make doc-outputs`` renews all pages, on an embedded service with the sample.

A page is run from top to bottom, as a reader runs it in a new kernel. A block of Python that is followed by a
block ``output`` must print exactly that text, except for numbers; the value of the last expression is printed
as a notebook prints it. A comment ``<!-- before … -->`` contains code that prepares the page and that readers
do not see.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import difflib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pandas as pd

import toolkit as tk
from toolkit_service.demo.local_service import LocalService
from toolkit_service.demo.run import connected, environment_for

BLOCK = re.compile(
    r"^```(?P<language>python|output)\n(?P<text>.*?)^```\n"
    r"|^<!-- before\n(?P<before>.*?)^-->\n",
    re.DOTALL | re.MULTILINE,
)

NUMBER = re.compile(r"\d[\d,.:TZ-]*")


@dataclass
class Block:
    """A block of a page: its language, its text, and the place of the text in the page."""

    language: str
    text: str
    start: int
    end: int


def blocks_of(page: str) -> list[Block]:
    r"""Return the blocks of Python and the outputs of a page, in their order.

    >>> [block.language for block in blocks_of("```python\n1 + 1\n```\n\n```output\n2\n```\n")]
    ['python', 'output']
    """
    blocks = []
    for match in BLOCK.finditer(page):
        group = "text" if match["language"] else "before"
        language = match["language"] or "before"
        blocks.append(Block(language, match[group], *match.span(group)))
    return blocks


def run(code: str, names: dict[str, object]) -> str:
    """Run a block as a cell of a notebook, and return everything that it prints."""
    # readers start the embedded service; here it runs already, and the environment names it
    tree = ast.parse(code.replace('tk.connect("local")', "tk.connect()"))
    last = None
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        last = ast.Expression(tree.body.pop().value)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "<page>", "exec"), names)
        if last is not None:
            value = eval(compile(last, "<page>", "eval"), names)
            if value is not None:
                print(value if isinstance(value, str) else repr(value))
    lines = [line.rstrip() for line in printed.getvalue().splitlines()]
    return "\n".join(lines).strip("\n") + "\n"


def without_numbers(output: str) -> str:
    """Return an output in which all numbers and times are equal, and so are widths of columns.

    The sample ends now, so that times, and counts of the last day, differ between runs.

    >>> without_numbers("0  150 since 2026-11-14 06:27")
    '# # since # #'
    """
    return " ".join(NUMBER.sub("#", output).split())


def with_outputs(page: str) -> str:
    """Run the blocks of a page, and return the page with the outputs of this run.

    An output that differs by numbers alone stays as it is.
    """
    names: dict[str, object] = {"__name__": "__main__"}
    parts = []
    copied = 0
    printed = ""
    for block in blocks_of(page):
        if block.language == "output":
            if without_numbers(printed) != without_numbers(block.text):
                parts += [page[copied : block.start], printed]
                copied = block.end
        else:
            printed = run(block.text, names)
    return "".join([*parts, page[copied:]])


def run_page(path: Path, *, write: bool) -> int:
    """Run one page in this process. Return 1 if the outputs of the page are not those of this run."""
    pd.set_option("display.width", 100)
    pd.set_option("display.max_columns", 12)
    page = path.read_text("utf-8")
    renewed = with_outputs(page)
    if renewed == page:
        return 0
    if write:
        path.write_text(renewed, "utf-8")
        return 0
    lines = difflib.unified_diff(
        page.splitlines(), renewed.splitlines(), path.name, "this run", lineterm="", n=2
    )
    print(*lines, sep="\n")
    print(f"{path.name}: outputs differ; `make doc-outputs` renews them")
    return 1


class PageProcesses:
    """Run each page in a process of its own, which is a fork of a process that has imported the toolkit.

    Imports would take a third of the time of most pages. The forks share nothing else: each has its own
    variables, working folder and figures. Use it in a ``with`` block.
    """

    def __enter__(self) -> Self:
        self._parent = subprocess.Popen(
            [sys.executable, __file__, "--fork"],
            env={**os.environ, "MPLBACKEND": "agg"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._parent.communicate()

    def run(
        self, page: Path, environment: dict[str, str], *, write: bool = False
    ) -> tuple[int, str]:
        """Return the exit status of a page and everything that its process printed."""
        with tempfile.TemporaryDirectory() as folder:
            work = Path(folder, "work")
            work.mkdir()
            printed = Path(folder, "printed")
            request = {
                "page": str(page.resolve()),
                "environment": environment,
                "folder": str(work),
                "printed": str(printed),
                "write": write,
            }
            print(json.dumps(request), file=self._parent.stdin, flush=True)
            answer = self._parent.stdout.readline()
            if not answer:
                raise RuntimeError(
                    "the process that forks pages has ended; its error is above"
                )
            return int(answer), printed.read_text("utf-8")


def run_forks() -> int:
    """Run a page per line of standard input, each in a fork, and print the exit status of each."""
    for module in (tk, tk.analysis, tk.plots):
        for name in module.__all__:
            getattr(module, name)  # names are imported on first use
    # a loop over standard input would read ahead, and forks would share what was read
    while line := sys.stdin.readline():
        request = json.loads(line)
        process = os.fork()
        if process == 0:
            return run_request(request)
        _, status = os.waitpid(process, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)
    return 0


def run_request(request: dict[str, Any]) -> int:
    """Run a page in this process, with the variables, the folder and the file for outputs of a request."""
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    with Path(request["printed"]).open("wb") as printed:
        os.dup2(printed.fileno(), 1)
        os.dup2(printed.fileno(), 2)
    return run_page(Path(request["page"]), write=request["write"])


def main() -> int:
    """Run each page in a process and a folder of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pages", nargs="*", type=Path)
    parser.add_argument("--write", action="store_true", help="replace the outputs")
    parser.add_argument("--fork", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.fork:
        return run_forks()
    worst = 0
    with LocalService(sample=True) as local, PageProcesses() as processes:
        environment = environment_for(connected(local))
        for page in options.pages:
            status, printed = processes.run(page, environment, write=options.write)
            print(printed, end="")
            worst = max(worst, abs(status))
    return worst


if __name__ == "__main__":
    sys.exit(main())
