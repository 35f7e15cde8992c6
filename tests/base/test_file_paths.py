"""Every function that reads or writes a file or a folder, with paths that no file system or user expects.

Each has a result or an error of the toolkit that says what to do, and leaves no part of a file behind.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import toolkit as tk
from toolkit.errors import ToolkitError

pytestmark = pytest.mark.skipif(
    sys.platform == "win32", reason="pipes, links and modes of POSIX"
)

ROWS = pd.DataFrame({"namespace": ["paths"], "id": ["a"]}, dtype="str")
ROWS["vector"] = pd.array([[1.0, 2.0]], dtype="vector[float32, 2]")


@dataclass
class Written:
    """What is written: failures, a plan and a report of them, and a service with an index."""

    service: tk.Service
    failures: pd.DataFrame
    report: tk.results.FailureReport
    plan: tk.RedrivePlan


Called = Callable[[Any, Written], object]
WRITE: dict[str, Called] = {
    "export_csv": lambda path, w: tk.export_csv(w.failures, path),
    "export_excel": lambda path, w: tk.export_excel(w.failures, path),
    "report.save": lambda path, w: w.report.save(path),
    "plan.save": lambda path, w: w.plan.save(path),
    "rules.save": lambda path, _: tk.GroupRules("pin s1-5f0c9a3b12de").save(path),
    "write_snapshot": lambda path, _: tk.write_snapshot(ROWS, path),
    "sync_failures": lambda path, w: tk.sync_failures(w.service, path, progress=False),
    "export_vectors": lambda path, w: tk.export_vectors(
        w.service, path, progress=False
    ),
    "run_redrive": lambda path, w: tk.run_redrive(
        w.service, w.plan, ledger=path, confirm=w.plan.confirmation, progress=False
    ),
    "restore_vectors": lambda path, w: tk.restore_vectors(
        w.service, "written", checkpoint=path, progress=False
    ),
}
READ: dict[str, Called] = {
    "RedrivePlan.read": lambda path, _: tk.RedrivePlan.read(path),
    "GroupRules.read": lambda path, _: tk.GroupRules.read(path),
    "group_failures": lambda path, w: tk.group_failures(w.failures, rules=path),
    "load_callbacks": lambda path, _: tk.load_callbacks(path),
    "read_snapshot": lambda path, _: tk.read_snapshot(path),
    "open_snapshot": lambda path, _: tk.open_snapshot(path),
    "verify_snapshot": lambda path, _: tk.verify_snapshot(path),
    "restored": lambda path, w: tk.restore_vectors(w.service, path, progress=False),
    "read_redrive_status": lambda path, _: tk.read_redrive_status(path),
    "read_redrive_history": lambda path, _: tk.read_redrive_history(path),
    "summarize": lambda path, _: tk.summarize(path),
    "audit_vectors": lambda path, _: tk.audit_vectors(path),
    "compare_vectors": lambda path, _: tk.compare_vectors(path, path),
    "report_failures": lambda path, w: tk.report_failures(w.failures, redrive=path),
}
FUNCTIONS = WRITE | READ


class Raising(os.PathLike[str]):
    """A path of a user's own that has no name."""

    def __fspath__(self) -> str:
        """None."""
        raise ToolkitError("naming a path", got="nothing", expected="a name")


PATHS: dict[str, Any] = {
    "a folder that is not there": "nowhere/file.md",
    "beneath a folder that is not there": "~/../../\n",
    "a user that is not there": "~no such user/file.md",
    "a home": "~",
    "a folder": "folder",
    "a folder that looks like a file": "folder.md",
    "beneath a file": "file.md/file.md",
    "this folder": ".",
    "the parent": "..",
    "no name": "folder/",
    "nothing": "",
    "a space": " ",
    "a line end": "\n",
    "a null byte": "a\0.md",
    "a lone surrogate": "\ud800.md",
    "a long name": "x" * 300 + ".md",
    "a long path": "x/" * 3000 + "a.md",
    "a pipe": "pipe.md",
    "a link to nothing": "dangling.md",
    "a link to itself": "loop.md",
    "beneath a link to itself": "loop.md/a.md",
    "a file of the kernel": "/proc/self/mem.md",
    "an address": "https://host.example/a.md",
    "an address of a file": "file:///nowhere/a.md",
    "an address of no store": "gs+x://a/b.md",
    "a file": "file.md",
    "unusual characters": "\u202e\u200b*?<>|\"'`$(a).md",
    "bytes": b"file.md",
    "bytes that are not text": b"\xff\xfe.md",
    "a number": 5,
    "no path": None,
    "a path that raises": Raising(),
}


@pytest.fixture(scope="module")
def written(
    local_indexes: dict[str, tk.Service], sample_service: tk.Service
) -> Written:
    """An index of a vector, and a few failures."""
    failures = tk.load_failures(sample_service, limit=5, progress=False)
    plan = tk.plan_redrive(failures, actions="leave")
    tk.upsert_vectors(local_indexes["dense"], ROWS)
    return Written(local_indexes["dense"], failures, tk.report_failures(failures), plan)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with something of each kind in it."""
    folder = tmp_path / "here"
    (folder / "folder").mkdir(parents=True)
    (folder / "folder.md").mkdir()
    (folder / "file.md").write_text("something")
    os.mkfifo(folder / "pipe.md")
    (folder / "dangling.md").symlink_to("nothing")
    (folder / "loop.md").symlink_to("loop.md")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    tk.write_snapshot(ROWS, "written")
    return folder


def attempt(function: str, path: Any, written: Written) -> ToolkitError | None:
    """The error by which a function refuses a path; other errors pass."""
    try:
        FUNCTIONS[function](path, written)
    except ToolkitError as error:
        return error
    return None


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.filterwarnings("ignore::toolkit.errors.UnexpectedResultWarning")
def test_odd_paths_have_a_result_or_a_clear_error(function, written, here):
    """Folders, pipes, links, names that cannot be: nothing hangs, nothing is left half written."""
    for what, path in PATHS.items():
        try:
            error = attempt(function, path, written)
        except BaseException as other:
            other.add_note(f"{function}({what})")
            raise
        if error is not None:
            assert len(str(error)) < 2_000, what
    assert stat.S_ISFIFO((here / "pipe.md").stat().st_mode)
    assert (here / "folder").is_dir()
    assert not [*here.rglob("*.part"), *here.rglob("*.tmp")]


@pytest.mark.parametrize(
    "function", ["export_csv", "export_excel", "report.save", "plan.save", "rules.save"]
)
def test_a_path_that_cannot_be_written_to_is_named_with_what_to_do(
    function, written, here
):
    """A folder that is not there, a folder as file, a file as folder, a pipe: the error says which."""
    for path in (
        "nowhere/file.md",
        "folder.md",
        "file.md/file.md",
        "pipe.md",
        "~/../../\n.md",
    ):
        error = attempt(function, path, written)
        assert error is not None
        assert repr(path) in str(error)
        assert "choose another path" in str(error)
    assert (here / "file.md").read_text() == "something"


@pytest.mark.parametrize(
    "function", ["export_csv", "export_excel", "report.save", "plan.save", "rules.save"]
)
def test_a_file_is_replaced_as_a_whole_for_this_user_alone(function, written, here):
    """Not through a link, and not the other name of a file: only the name is replaced, mode 0600."""
    victim = here / "victim"
    victim.write_text("something")
    (here / "link.md").symlink_to(victim)
    (here / "hard.md").hardlink_to(victim)
    for name in ("file.md", "link.md", "hard.md"):
        (here / "file.md").chmod(0o600)
        assert attempt(function, name, written) is None
        state = (here / name).lstat()
        assert stat.S_ISREG(state.st_mode)
        assert stat.S_IMODE(state.st_mode) == 0o600
        assert state.st_size >= 20
    assert victim.read_text() == "something"


CHEAP = WRITE.keys() - {"run_redrive", "restore_vectors", "export_vectors", "report.save"} | {
    "RedrivePlan.read", "GroupRules.read", "load_callbacks", "read_snapshot",
    "read_redrive_status", "summarize",
}  # fmt: skip


@given(st.text(st.characters(codec=None) | st.sampled_from("/~.\\:%"), max_size=40))
@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@pytest.mark.filterwarnings("ignore::toolkit.errors.UnexpectedResultWarning")
def test_any_text_as_a_path_has_a_result_or_a_clear_error(written, here, text):
    """Below a folder that is there, so that nothing is written elsewhere."""
    for function in sorted(CHEAP):
        attempt(function, f"folder/{text.replace('..', '')}", written)
