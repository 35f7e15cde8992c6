"""Child processes: none runs what lies in the current folder, none gets a token that it does not need."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import nbformat
import pytest

import toolkit as tk
from toolkit.base.children import first_line, python_variables, running
from toolkit.errors import LocalServiceError
from toolkit.reports.page import print_page
from toolkit_service.demo.local_service import LocalService
from toolkit_service.demo.run import run_demo

CANARY = "canary-8d1f03"
TOKENS = (
    "QSTASH_TOKEN", "UPSTASH_VECTOR_REST_TOKEN", "TOOLKIT_QUEUE_TOKEN", "TOOLKIT_SERVE_SOMETHING",
    "AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "JUPYTERHUB_API_TOKEN", "HTTPS_PROXY", "https_proxy",
    "PGPASSWORD", "MY_PATH", "XDG_TOKEN", "LC_MY_TOKEN", "PYTHONSTARTUP",
)  # fmt: skip
MODULES = (
    "toolkit",
    "sitecustomize",
    "usercustomize",
    "requests",
    "uvicorn",
    "json",
    "nbclient",
    "httpx",
)
_PROCESS = "ran = open('ran-{}-' + str(__import__('os').getpid()), 'w')"


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder: modules that leave a file when they are imported. Tokens are in the variables."""
    folder = tmp_path / "hostile"
    folder.mkdir()
    for name in MODULES:
        (folder / f"{name}.py").write_text(_PROCESS.format(name))
    monkeypatch.chdir(folder)
    for name in TOKENS:
        monkeypatch.setenv(name, f"http://user:{CANARY}@127.0.0.1:9")
    # both of these mean the current folder
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["", "."]))
    return folder


def descendants() -> dict[int, bytes]:
    """The variables of the processes that this one has started, and of theirs, by process id."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(
                stat.read_text().rpartition(")")[2].split()[1]
            )
        except (FileNotFoundError, ProcessLookupError):
            continue
    result = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in result} - result:
        result |= more
    read = {}
    for pid in result - {os.getpid()}:
        try:
            read[pid] = Path(f"/proc/{pid}/environ").read_bytes()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    # a process that has ended shows nothing
    return {pid: raw for pid, raw in read.items() if raw}


class Watched:
    """The variables of each process that was started while a ``with`` block ran."""

    def __enter__(self) -> Self:
        self.before, self.seen, self._over = (
            descendants(),
            dict[int, bytes](),
            threading.Event(),
        )
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._over.is_set():
            self.seen |= {
                pid: raw for pid, raw in descendants().items() if pid not in self.before
            }
            time.sleep(0.02)

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def none_has_a_token(self) -> bool:
        """Whether any process was seen, and no canary in any."""
        return bool(self.seen) and not any(
            CANARY.encode() in raw for raw in self.seen.values()
        )


@pytest.fixture
def watched() -> Iterator[Watched]:
    """Processes of the test."""
    with Watched() as watching:
        yield watching


def ran(folder: Path) -> list[str]:
    """Which of the modules in the current folder were imported."""
    return sorted(path.name for path in folder.glob("ran-*"))


@pytest.mark.slow
def test_connect_local_runs_nothing_of_the_current_folder(
    hostile: Path, watched: Watched
) -> None:
    """The embedded service comes up beside a hostile toolkit.py, and its process holds no token of ours."""
    with tk.connect("local") as service:
        assert len(tk.load_failures(service, limit=3)) == 3
        time.sleep(0.1)
    assert ran(hostile) == []
    assert watched.none_has_a_token()
    (raw,) = watched.seen.values()
    assert b"TOOLKIT_SERVE_TOKEN=" in raw  # its own


@pytest.mark.slow
@pytest.mark.parametrize("sample", [False, True])
def test_a_local_service_runs_nothing_of_the_current_folder(
    hostile: Path, watched: Watched, *, sample: bool
) -> None:
    """The same of the service that demos and tests start, with and without sample data."""
    with LocalService(sample=sample):
        time.sleep(0.1)
    assert ran(hostile) == []
    assert watched.none_has_a_token()


@pytest.mark.slow
def test_the_demo_and_its_notebooks_run_nothing_of_the_current_folder(
    hostile: Path, watched: Watched, tmp_path: Path
) -> None:
    """Neither service, application, notebook runner nor kernel imports from the folder or gets a token.

    Of those that know the queue, the failing application alone does not know the vector index.
    """
    notebooks, out = tmp_path / "notebooks", hostile
    notebooks.mkdir()
    write = "open('made', 'w').write(tk.__file__ + os.environ['TOOLKIT_VECTOR_URL'])"
    source = f"import os, toolkit as tk\n{write}"
    story = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)])
    nbformat.write(story, notebooks / "1_story.ipynb")
    (
        out / ".toolkit-demo"
    ).touch()  # as an earlier demo leaves it: the kernel's folder is the hostile one
    done = run_demo(out, runs=1, notebooks=notebooks)
    assert done.problems == ()
    assert (out / "made").read_text().startswith(str(Path(tk.__file__)))
    assert ran(hostile) == []
    assert len(watched.seen) >= 4
    assert watched.none_has_a_token()
    knowing = [raw for raw in watched.seen.values() if b"TOOLKIT_QUEUE_TOKEN=" in raw]
    assert len(knowing) >= 3
    assert [b"TOOLKIT_VECTOR_TOKEN=" in raw for raw in knowing].count(False) == 1


def test_chromium_gets_no_token(hostile: Path, watched: Watched) -> None:
    """No process of the browser that prints a report has a token among its variables."""
    assert print_page("<h1>A report</h1>").startswith(b"%PDF-")
    assert watched.none_has_a_token()
    assert any(b"PATH=" in raw for raw in watched.seen.values())
    assert ran(hostile) == []


@pytest.mark.slow
def test_a_report_is_printed_with_these_variables(
    hostile: Path, sample_service: tk.Service
) -> None:
    """A whole report becomes a PDF although the browser gets so little."""
    failures = tk.load_failures(sample_service, limit=20, progress=False)
    saved = tk.report_failures(failures).save(hostile / "report.pdf")
    assert saved.read_bytes().startswith(b"%PDF-")


def test_folders_named_in_full_stay_on_the_path(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A toolkit that is found through PYTHONPATH is found by children; relative entries are left out."""
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join(["/opt/ours", "", ".", "lib", "/opt/theirs"])
    )
    assert python_variables()["PYTHONPATH"] == os.pathsep.join(
        ["/opt/ours", "/opt/theirs"]
    )
    monkeypatch.setenv("PYTHONPATH", ".")
    assert "PYTHONPATH" not in python_variables()


def test_an_interrupt_of_this_process_group_leaves_the_service_running(
    sample_service: tk.Service,
) -> None:
    """Jupyter interrupts a cell by a signal to the kernel's whole process group: the service is not in it."""
    assert len(tk.load_failures(sample_service, limit=1)) == 1
    groups = {
        os.getpgid(pid)
        for pid, raw in descendants().items()
        if b"TOOLKIT_SERVE_TOKEN=" in raw
    }
    assert groups
    assert os.getpgid(0) not in groups


def test_a_child_that_says_nothing_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A first line that is not a JSON object is an error with the log's last line, and the child is gone."""
    (tmp_path / "mute.py").write_text(
        "import sys\nprint('[]')\nsys.stderr.write('no idea\\n')\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    log = tmp_path / "log"
    with (
        running("mute", variables=python_variables(), log=log) as process,
        pytest.raises(
            LocalServiceError,
            match="starting a mute child: got no idea; expected a line",
        ),
    ):
        first_line(process, what="a mute child", log=log)
    assert process.returncode == 0


def test_a_child_that_hangs_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What ignores the end of its standard input and SIGTERM is killed when its time is over."""
    program = (
        "import json, signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    )
    (tmp_path / "stubborn.py").write_text(
        f"{program}print(json.dumps({{}}), flush=True)\ntime.sleep(60)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr("toolkit.base.children.GRACE", 0.2)
    with running(
        "stubborn", variables=python_variables(), log=tmp_path / "log"
    ) as process:
        assert first_line(process, what="it", log=tmp_path / "log") == {}
    assert process.returncode == -signal.SIGKILL
