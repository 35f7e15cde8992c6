"""The main job from end to end: runs fail, and are loaded, stored, analysed and reported.

All child processes end when the main job ends, even if you interrupt it.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NoReturn

import httpx
from tqdm import tqdm

import toolkit as tk
from toolkit.base.children import end, first_line, python_variables, running
from toolkit.base.errors import InputError, LocalServiceError
from toolkit.service.settings import Endpoint, Service
from toolkit_service.demo.filling import INDEX
from toolkit_service.demo.local_service import LocalService
from toolkit_service.demo.workflows import WORKFLOWS

MARKER: Final = ".toolkit-demo"
"""A file that marks a folder of the demo. The next run empties a folder only if it has this file."""
TIME_FACTOR: Final = 100
"""Delays are divided by this, so that retries of minutes pass in seconds."""
RETENTION: Final = "16d"
"""How long the service keeps failures: just long enough for the sample, whose oldest entries expire first."""

_STARTERS: Final = 8
_MESSAGES: Final = 5  # plain messages whose callbacks are awaited
_DEADLINE: Final = 90.0  # seconds for all runs to end
_POLL: Final = 0.5
# they wait about half of the time, for the service and for kernels
_NOTEBOOKS_AT_ONCE: Final = 2

Show = Callable[[str], None]
"""Prints a line of progress."""


@dataclass(frozen=True, kw_only=True)
class Demo:
    """The results of the main job: runs started (id to workflow), ids found in the DLQ, failed notebooks."""

    out: Path
    started: dict[str, str]
    failed: set[str]
    problems: tuple[str, ...]

    def outputs(self) -> list[tuple[str, Path]]:
        """Return titles and paths of the results."""
        return [
            ("report", self.out / "failure-report.html"),
            ("snapshots", self.out / "snapshots"),
            ("notebooks", self.out / "notebooks"),
        ]


def run_demo(out: Path, *, runs: int = 200, notebooks: Path | None = None) -> Demo:
    """Start runs, evenly over the workflows; load, store and report them; execute the notebooks of a folder.

    `out` is a new or empty folder, or the folder of an earlier demo, whose files are replaced. Raise
    `InputError` for other folders, and `LocalServiceError` if a child process does not start or runs do not
    end.
    """
    if runs < 1:
        raise InputError("running the demo", got=f"{runs} runs", expected="at least 1")

    out = _emptied(out)
    begin = time.monotonic()

    def show(text: str) -> None:
        print(  # noqa: T201 - progress
            f"[{time.monotonic() - begin:5.1f} s] {text}", file=sys.stderr, flush=True
        )

    with _ended_by_signals():
        show(
            "starting the embedded service with 5,000 failures and 2,000 documents of sample history"
        )
        with (
            LocalService(
                sample=True, time_factor=TIME_FACTOR, retention=RETENTION
            ) as local,
            connected(local) as service,
        ):
            queue = python_variables() | _variables(service.need("queue"))
            log = out / "logs" / "application.log"

            application = "toolkit_service.demo.application"
            with running(
                application, "--with-parent", variables=queue, log=log
            ) as process:
                address = str(
                    first_line(process, what="the failing application", log=log)["url"]
                )
                show(
                    f"the service is at {service.need('queue').url}, the application at {address}"
                )
                started, failed = _run_workflows(address, service, runs, show)
                # the application stays up: failure functions may still be called
                _store(service, out, show, own=failed)
                problems: tuple[str, ...] = ()
                if notebooks is not None:
                    problems = _execute(notebooks, out, environment_for(service), show)

        show("done; the service and the application have ended")

    return Demo(out=out, started=started, failed=failed, problems=problems)


def connected(local: LocalService) -> Service:
    """Return a service for both parts of a running embedded service, with its keys of callbacks."""
    current, following = local.signing_keys
    return tk.connect(
        queue_url=local.url,
        queue_token=local.token,
        current_signing_key=current,
        next_signing_key=following,
        vector_url=local.vector_urls[INDEX],
        vector_token=local.token,
    )


def _run_workflows(
    address: str, service: Service, runs: int, show: Show
) -> tuple[dict[str, str], set[str]]:
    """Start the runs, and wait for the runs of workflows that fail."""
    since = datetime.now(UTC) - timedelta(minutes=1)
    started = _start_runs(address, service, runs)
    failing = {workflow.name for workflow in WORKFLOWS if workflow.fails}
    expected = {run_id: name for run_id, name in started.items() if name in failing}
    show(
        f"started {len(started)} runs of {len(WORKFLOWS)} workflows; {len(expected)} of them will fail"
    )

    for number in range(_MESSAGES):
        tk.publish(
            service,
            f"{address}/orders",
            {"order": number},
            callback=f"{address}/callback",
        )

    failed = _wait_for(expected, service, since)
    show(f"all {len(failed)} failed runs are in the DLQ")
    kinds = _callbacks(address)
    show(
        f"the application verified {kinds['callback']} callbacks and {kinds['failure']} failure callbacks"
    )

    return started, failed


def _start_runs(address: str, service: Service, runs: int) -> dict[str, str]:
    def start(number: int) -> tuple[str, str]:
        name = WORKFLOWS[number % len(WORKFLOWS)].name
        # the order number selects the error of a workflow, so it counts within a workflow
        order = 1000 + number // len(WORKFLOWS)
        return tk.start_run(service, f"{address}/flows/{name}", {"order": order}), name

    starters = ThreadPoolExecutor(_STARTERS)
    try:
        done = tqdm(
            starters.map(start, range(runs)),
            total=runs,
            desc="runs started",
            disable=None,
            leave=False,
        )
        return dict(done)
    finally:
        starters.shutdown(cancel_futures=True)


def _wait_for(
    expected: Mapping[str, str], service: Service, since: datetime
) -> set[str]:
    """Poll the DLQ until all expected runs (id and name of the workflow) are in it."""
    until = time.monotonic() + _DEADLINE
    with tqdm(
        total=len(expected), desc="failed runs in the DLQ", disable=None, leave=False
    ) as bar:
        while True:
            listed = tk.load_failures(service, since=since, progress=False)[
                "workflow_run_id"
            ]
            arrived = expected.keys() & set(listed)
            bar.update(len(arrived) - bar.n)
            if len(arrived) == len(expected):
                return arrived
            if time.monotonic() > until:
                missing = {
                    name for run_id, name in expected.items() if run_id not in arrived
                }
                raise LocalServiceError(
                    "waiting for the failed runs",
                    got=f"{len(arrived)} failed runs in the DLQ after {_DEADLINE:.0f} s",
                    expected=f"{len(expected)} failed runs; missing are runs of {', '.join(sorted(missing))}",
                    next_step="The machine may be busy; try fewer --runs.",
                )

            time.sleep(_POLL)


def _callbacks(address: str) -> Counter[str]:
    """Wait for the callbacks of the messages. Return the number of accepted callbacks per kind."""
    until = time.monotonic() + _DEADLINE
    kinds = _received(address)
    # callbacks are delivered after their messages: wait for all of them, but not forever
    while kinds["callback"] < _MESSAGES and time.monotonic() <= until:
        time.sleep(_POLL)
        kinds = _received(address)

    return kinds


def _received(address: str) -> Counter[str]:
    try:
        response = httpx.get(f"{address}/received", trust_env=False).raise_for_status()
    except httpx.HTTPError as error:
        raise LocalServiceError(
            "reading the callbacks of the application",
            got=type(error).__name__,
            expected="a response",
        ) from error

    return Counter(str(item["kind"]) for item in response.json())


def _store(service: Service, out: Path, show: Show, *, own: set[str]) -> None:
    """Load everything once into snapshots, and write the report of the history.

    The `own` runs of the demo fail within seconds, with one caller: an incident that hides the incidents of
    the history. They are stored, and then deleted from the queue, so that the report and the notebooks do not
    show them.
    """
    changes = tk.sync_failures(service, out / "snapshots" / "failures")
    show(f"loaded {changes.receipt}")
    vectors = tk.export_vectors(service, out / "snapshots" / "vectors", namespace="all")
    show(f"loaded {vectors}")
    failures = changes.added
    show(
        f"kept {len(failures):,} failures and {vectors.rows:,} vectors under {out / 'snapshots'}"
    )

    is_own = failures["workflow_run_id"].isin(own)
    if is_own.any():
        tk.delete_failures(
            service, failures.loc[is_own, "dlq_id"].tolist(), confirm=True
        )
        show(
            f"deleted the demo's own {is_own.sum():,} runs from the DLQ, as they are stored"
        )

    report = tk.report_failures(
        failures[~is_own], retention=RETENTION, redactor=service.redactor
    )
    for suffix in ("html", "md", "json"):
        report.save(out / f"failure-report.{suffix}")
    show(f"wrote {out / 'failure-report.html'}, .md and .json")


def _execute(
    notebooks: Path, out: Path, environment: Mapping[str, str], show: Show
) -> tuple[str, ...]:
    """Execute the notebooks, two at a time. Return a line per failed notebook."""
    sources = sorted(notebooks.glob("*.ipynb"))
    executing = _Executing(out, environment, show)
    with (
        tqdm(total=len(sources), desc="notebooks", disable=None, leave=False) as bar,
        ThreadPoolExecutor(_NOTEBOOKS_AT_ONCE) as executors,
        executing,
    ):
        problems = []
        for problem in executors.map(executing.execute, sources):
            problems.append(problem)
            bar.update()

    return tuple(problem for problem in problems if problem)


class _Executing:
    """Executes notebooks, each in a child process. When the block ends, running notebooks are ended."""

    def __init__(self, out: Path, environment: Mapping[str, str], show: Show) -> None:
        self._out, self._environment, self._show = out, environment, show
        self._processes: list[subprocess.Popen[bytes]] = []
        self._ended = threading.Event()

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for process in self._processes:
            end(process)

    def execute(self, source: Path) -> str:
        """Execute a notebook. Return why it failed, or an empty string."""
        log = self._out / "logs" / f"{source.stem}.log"
        arguments = (
            str(source),
            str(self._out / "notebooks" / source.name),
            "--folder",
            str(self._out),
        )
        begin, cells = time.monotonic(), 0
        if self._ended.is_set():
            return f"{source.name}: interrupted"

        execute = "toolkit_service.demo.notebooks"
        with running(
            execute, *arguments, variables=self._environment, log=log
        ) as process:
            self._processes.append(process)
            # the block may have ended while the process started
            if self._ended.is_set():
                return f"{source.name}: interrupted"
            for line in process.stdout or ():
                cells = json.loads(line)["cells"]
            status = process.wait()

        if status == 0:
            self._show(
                f"executed {source.name}: {cells} cells in {time.monotonic() - begin:.1f} s"
            )
            return ""

        output = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        reason = output[-1] if output else f"exit status {status}"
        self._show(f"failed: {source.name}: {reason}")

        return f"{source.name}: {reason}"


def _emptied(out: Path) -> Path:
    """Return the folder, new or without the files of an earlier demo. Other folders are an error."""
    out = out.absolute()
    if out.is_symlink() or (out.exists() and not out.is_dir()):
        got = f"{out}, which is not a folder"
        raise InputError(
            "preparing the folder of the demo", got=got, expected="a folder"
        )

    if out.is_dir() and any(out.iterdir()) and not (out / MARKER).is_file():
        raise InputError(
            "preparing the folder of the demo",
            got=f"{out}, which contains other files",
            expected="a new or empty folder, or the folder of an earlier demo",
            next_step="Name another one with --out.",
        )

    for name in ("snapshots", "notebooks", "logs"):
        shutil.rmtree(out / name, ignore_errors=True)
        (out / name).mkdir(parents=True, exist_ok=True)

    (out / MARKER).touch()
    return out


def environment_for(service: Service) -> dict[str, str]:
    """Return the variables for Jupyter: only the embedded service is configured, without other tokens."""
    environment = python_variables(jupyter=True)
    for endpoint in (service.need("queue"), service.need("vector")):
        environment |= _variables(endpoint)
    return environment


def _variables(endpoint: Endpoint) -> dict[str, str]:
    stem = f"TOOLKIT_{endpoint.name.upper()}"
    names = (f"{stem}_CURRENT_SIGNING_KEY", f"{stem}_NEXT_SIGNING_KEY")
    keys = {
        name: key.reveal()
        for name, key in zip(names, endpoint.signing_keys, strict=False)
    }

    return {
        f"{stem}_URL": endpoint.url,
        f"{stem}_TOKEN": endpoint.token.reveal(),
        **keys,
    }


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """End the block, and with it the child processes, on SIGTERM and SIGHUP, as Ctrl-C does."""

    def end(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    # only the main thread may set handlers
    is_main = threading.current_thread() is threading.main_thread()
    numbers = (signal.SIGTERM, signal.SIGHUP) if is_main else ()
    # nohup ignores SIGHUP: ignored signals stay ignored
    handled = [
        number for number in numbers if signal.getsignal(number) != signal.SIG_IGN
    ]
    previous_handlers = {number: signal.signal(number, end) for number in handled}

    try:
        yield
    finally:
        for number, handler in previous_handlers.items():
            signal.signal(number, handler)
