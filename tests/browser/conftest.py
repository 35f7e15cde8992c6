"""A real Chromium, and a real JupyterLab in it. A machine without them fails the tests that look at pages."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import axe_playwright_python
import nbformat
import pytest
from jupyter_client.blocking import BlockingKernelClient
from playwright.sync_api import (
    Browser,
    BrowserContext,
    Error,
    Locator,
    Page,
    sync_playwright,
)

from toolkit.service.settings import Service
from toolkit_service.demo.run import environment_for

_PATIENCE = 60.0  # seconds; a few suffice on an idle machine
_FOLDERS = (
    "JUPYTER_CONFIG_DIR",
    "JUPYTER_DATA_DIR",
    "JUPYTER_RUNTIME_DIR",
    "IPYTHONDIR",
)
_FOLDERS_OF_LAB = ("JUPYTERLAB_SETTINGS_DIR", "JUPYTERLAB_WORKSPACES_DIR")
_QUIET = {
    "@jupyterlab/apputils-extension:notification": {
        "fetchNews": "false",
        "checkForUpdates": False,
    },
    "@jupyterlab/apputils-extension:themes": {
        "adaptive-theme": True
    },  # light or dark as the page is
    "@jupyterlab/notebook-extension:tracker": {"windowingMode": "none"},
}
_FOCUS = """(all, number) => {
  all[number]?.focus();
  return document.activeElement === all[number] ? [all[number].tagName, all[number].innerText] : ["", ""];
}"""
_SEEN = """() => ({
  focused: document.activeElement.outerHTML.slice(0, 300),
  fields: [...document.querySelectorAll(".tk-panel input, .tk-panel textarea, .tk-panel select")]
    .map((e) => `${e.getAttribute("aria-label") || e.labels?.[0]?.innerText || e.type}: ${e.value}`),
  said: [...document.querySelectorAll(".tk-panel [role=status], .tk-panel [role=alert]")]
    .map((e) => e.innerText),
})"""

_BUSY = """
from pathlib import Path
from time import sleep
Path({begun!r}).touch()
while not Path({ended!r}).exists():
    sleep(0.01)
"""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test of a notebook says what had the focus, and what the panels' fields held."""
    report = yield
    notebook = getattr(item, "funcargs", {}).get("notebook")
    if report.failed and isinstance(notebook, Notebook):
        with suppress(Error):  # the page may be the failure
            report.sections.append(
                ("the page", json.dumps(notebook.page.evaluate(_SEEN), indent=1))
            )
    return report


# Chromium keeps the last list of these only. The lines before the empty one repeat the list of Playwright.
# For each window, Chromium draws two pages of suggestions for its address bar, in two seconds, and starts
# a process for a next page. No test uses them.
_FEATURES_OFF = """
AvoidUnnecessaryBeforeUnloadCheckSync DestroyProfileOnBrowserClose HttpsUpgrades
HttpsFirstBalancedModeAutoEnable LensOverlay MediaRouter PaintHolding ThirdPartyStoragePartitioning
AvoidCorsURLLoaderRestartOnRedirect OptimizationHints NetworkTimeServiceQuerying AimEnabled
PreconnectToSearch

WebUIOmniboxPopup WebUIOmniboxAimPopup SpareRendererForSitePerProcess
"""


@contextmanager
def launched_chromium() -> Iterator[Browser]:
    """Run the system's Chromium, without network requests or suggestions of its own."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium",
            args=[
                "--no-sandbox",
                "--disable-gpu",
                "--disable-background-networking",
                f"--disable-features={','.join(_FEATURES_OFF.split())}",
            ],
        )
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """The system's Chromium, without network requests of its own."""
    with launched_chromium() as browser:
        yield browser


@dataclass
class Notebook:
    """A notebook in JupyterLab in a browser, and a second line to its kernel."""

    context: BrowserContext
    page: Page
    kernel: BlockingKernelClient
    console: list[str] = field(default_factory=list)
    requested: list[str] = field(default_factory=list)

    def run_cell(self) -> None:
        """Run the selected cell and select the next, as Shift+Enter does, and wait until it has run."""
        before = self.evaluate("len(In)")
        self.page.keyboard.press("Shift+Enter")
        deadline = time.monotonic() + _PATIENCE
        while self.evaluate("len(In)") == before:
            assert time.monotonic() < deadline, "the cell did not run"

    def evaluate(self, expression: str) -> Any:
        """The value of an expression in the kernel, by way of JSON."""
        self.kernel.execute(
            "",
            user_expressions={
                "it": f"__import__('json').dumps({expression}, default=str)"
            },
            silent=True,
        )
        content = self.kernel.get_shell_msg(timeout=_PATIENCE)["content"]
        answer = content["user_expressions"]["it"]
        assert answer["status"] == "ok", answer
        return json.loads(eval(answer["data"]["text/plain"]))  # noqa: S307 - a repr of our own kernel

    def do(self, code: str) -> None:
        """Run code silently in the kernel."""
        self.kernel.execute(code, silent=True)
        content = self.kernel.get_shell_msg(timeout=_PATIENCE)["content"]
        assert content["status"] == "ok", content

    def until(self, expression: str) -> Any:
        """The value of an expression in the kernel, as soon as it is true."""
        deadline = time.monotonic() + _PATIENCE
        while not (found := self.evaluate(expression)):
            assert time.monotonic() < deadline, f"{expression} stayed {found!r}"
            self.page.wait_for_timeout(20)
        return found

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Keep the kernel busy from before the block begins until it has ended."""
        with tempfile.TemporaryDirectory() as folder:
            begun, ended = Path(folder) / "begun", Path(folder) / "ended"
            self.kernel.execute(
                _BUSY.format(begun=str(begun), ended=str(ended)), silent=True
            )
            deadline = time.monotonic() + _PATIENCE
            while not begun.exists():
                assert time.monotonic() < deadline, "the kernel did not begin"
                time.sleep(0.01)
            try:
                yield
            finally:
                ended.touch()
                self.kernel.get_shell_msg(timeout=_PATIENCE)

    def axe(self, selector: str) -> list[dict[str, Any]]:
        """What axe-core finds wrong in the part of the page, its own light and dark colours included."""
        if self.page.evaluate("typeof axe") == "undefined":
            self.page.evaluate(
                (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text()
            )
        found = self.page.evaluate(
            f"axe.run({selector!r}, {{resultTypes: ['violations']}})"
        )
        assert found["passes"], "axe found nothing to look at"
        wrong: list[dict[str, Any]] = found["violations"]
        return wrong

    def wrong(self) -> list[tuple[str, str]]:
        """What axe-core finds wrong in the panels, each rule with its first element."""
        return [
            (found["id"], found["nodes"][0]["html"]) for found in self.axe(".tk-panel")
        ]

    def panel(self, cell: int) -> Locator:
        """The panel that a cell shows."""
        return self.output(cell).locator(".tk-panel").first

    def tab_to(self, name: str, presses: int = 80) -> None:
        """Press Tab until a control of this name has the focus."""
        for _ in range(presses):
            self.page.keyboard.press("Tab")
            found = self.page.evaluate(
                "(e => e.getAttribute('aria-label') || e.labels?.[0]?.innerText || e.innerText || '')"
                "(document.activeElement)"
            )
            if re.fullmatch(name, found.strip()):
                return
        raise AssertionError(f"Tab does not come to {name}")

    def pressed_in(
        self, controls: Locator, cell: int, *, no_enter: str = "(?!)"
    ) -> list[str]:
        """Press keys in each of the controls that can be seen: the cell stays the active one.

        Gives the names of their elements. Where a text begins like `no_enter`, Enter is not pressed.
        """
        names = []
        for number in range(controls.count()):
            for keys in (
                ("Escape", "d", "d"),
                ("a", "b", "x"),
                ("ArrowDown", "ArrowUp", "m"),
                ("Enter",),
            ):
                # found and focused in one step: the keys before may have replaced or hidden it
                name, text = controls.evaluate_all(_FOCUS, number)
                if not name or (keys == ("Enter",) and re.match(no_enter, text)):
                    break
                for key in keys:
                    self.page.keyboard.press(key)
                assert self.active == cell
            if name:
                names.append(name)
            # may select the next cell, and changes nothing
            self.page.keyboard.press("Tab")
        return names

    @property
    def active(self) -> int:
        """The number of the notebook's active cell."""
        number: int = self.page.evaluate(
            "[...document.querySelectorAll('.jp-Notebook .jp-Cell')]"
            ".findIndex((cell) => cell.classList.contains('jp-mod-active'))"
        )
        return number

    @property
    def hosts(self) -> set[str | None]:
        """Hosts of the page's requests."""
        asked = (
            url.removeprefix("blob:")
            for url in self.requested
            if not url.startswith("data:")
        )
        return {urlsplit(url).hostname for url in asked}

    def picture(self, part: Locator, name: str) -> None:
        """Keep a picture of a part of the page, where the variable PICTURES names a folder for them."""
        if folder := os.environ.get("PICTURES"):
            # the selection of an earlier test
            self.page.evaluate("getSelection().removeAllRanges()")
            part.screenshot(path=Path(folder) / f"{name}.png")

    @property
    def cells(self) -> list[str]:
        """The sources of the notebook's cells, as the page shows them."""
        return [
            found.inner_text()
            for found in self.page.locator(".jp-Notebook .jp-Cell .cm-content").all()
        ]

    def output(self, number: int) -> Locator:
        """The output of the cell of this number."""
        return (
            self.page.locator(".jp-Notebook .jp-CodeCell")
            .nth(number)
            .locator(".jp-OutputArea-output")
        )


@dataclass(frozen=True)
class Lab:
    """A JupyterLab that serves a folder."""

    url: str
    token: str
    folder: Path
    runtime: Path

    @contextmanager
    def open(
        self, browser: Browser, name: str, cells: list[str], **options: Any
    ) -> Iterator[Notebook]:
        """Open a notebook of these cells, its kernel running, its first cell selected."""
        sources = [nbformat.v4.new_code_cell(cell) for cell in cells]
        for number, source in enumerate(sources):
            source["id"] = f"cell-{number}"
        kernelspec = {"name": "python3", "display_name": "Python 3"}
        written = nbformat.v4.new_notebook(
            cells=sources, metadata={"kernelspec": kernelspec}
        )
        nbformat.write(written, self.folder / f"{name}.ipynb")
        known = set(self.runtime.glob("kernel-*.json"))
        context = browser.new_context(
            **{"viewport": {"width": 1400, "height": 1000}, **options}
        )
        page = context.new_page()
        console: list[str] = []
        requested: list[str] = []
        page.on(
            "console",
            lambda message: message.type == "error" and console.append(message.text),
        )
        page.on("pageerror", lambda error: console.append(str(error)))
        context.on("request", lambda request: requested.append(request.url))
        page.goto(
            f"{self.url}lab/workspaces/{name}/tree/{name}.ipynb?token={self.token}&reset"
        )
        page.locator(".jp-Notebook .jp-CodeCell .cm-content").first.wait_for(
            timeout=_PATIENCE * 1000
        )
        page.locator("#jp-main-statusbar >> text=/Idle/").first.wait_for(
            timeout=_PATIENCE * 1000
        )
        (connection,) = set(self.runtime.glob("kernel-*.json")) - known
        kernel = BlockingKernelClient(connection_file=str(connection))
        kernel.load_connection_file()
        kernel.start_channels(iopub=False, stdin=False, hb=False, control=False)
        page.locator(".jp-Notebook .jp-Cell .jp-InputPrompt").first.click()
        try:
            yield Notebook(context, page, kernel, console, requested)
        finally:
            kernel.stop_channels()
            context.close()


@pytest.fixture(scope="session")
def lab(
    sample_service: Service, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Lab]:
    """JupyterLab for all tests of the session."""
    with jupyterlab(sample_service, tmp_path_factory.mktemp("lab")) as running:
        yield running


@contextmanager
def jupyterlab(service: Service, root: Path) -> Iterator[Lab]:
    """JupyterLab with folders of its own under `root`, whose kernels know the service."""
    folders = {name: root / name.lower() for name in (*_FOLDERS, *_FOLDERS_OF_LAB)}
    work = root / "work"
    settings = folders["JUPYTER_CONFIG_DIR"] / "labconfig"
    for folder in (*folders.values(), work, settings):
        folder.mkdir(parents=True)
    (settings / "default_setting_overrides.json").write_text(json.dumps(_QUIET))
    words = [
        "--no-browser",
        "--allow-root",
        "--ServerApp.ip=127.0.0.1",
        "--ServerApp.port=0",
    ]
    words += [
        f"--ServerApp.root_dir={work}",
        "--LabApp.news_url=",
        "--ServerApp.log_level=ERROR",
    ]
    environment = environment_for(service) | {
        name: str(path) for name, path in folders.items()
    }
    environment |= {
        "JUPYTER_PREFER_ENV_PATH": "1",
        # without Node.js, as on most machines: JupyterLab would start it for each page
        "PATH": str(Path(sys.executable).parent),
        "TMPDIR": str(root),
        "XDG_CONFIG_HOME": str(root),
    }
    with (root / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "jupyterlab", *words],
            env=environment,
            stdout=log,
            stderr=log,
        )
    runtime = folders["JUPYTER_RUNTIME_DIR"]
    try:
        found = _information(runtime, process, root / "log")
        yield Lab(found["url"], found["token"], work, runtime)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()


def _information(
    runtime: Path, process: subprocess.Popen[bytes], log: Path
) -> dict[str, Any]:
    """The server's runtime file, once it listens."""
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline and process.poll() is None:
        for path in runtime.glob("jpserver-*.json"):
            try:
                found: dict[str, Any] = json.loads(path.read_text())
            except ValueError:  # being written
                continue
            return found
        time.sleep(0.05)
    raise AssertionError(f"JupyterLab did not start: {log.read_text()[-2000:]}")
