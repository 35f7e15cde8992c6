"""Slow calls of panels: off the kernel's loop, one at a time, cancelled with the rows read."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace

import nbformat
import pytest
import traitlets
from nbconvert import HTMLExporter

import toolkit as tk
from toolkit import FailureFilterPanel, FailurePanel
from toolkit.errors import IncompleteLoadError, InputError, ServiceError
from toolkit.filters.failure import FailureFilter
from toolkit.tables.frames import frame_from_rows
from toolkit.tables.schemas import LABELS_EXPLODED
from toolkit.widgets.page_panel import PagePanel
from toolkit.widgets.panel import Cancelled, Job

PARTIAL = frame_from_rows([{"dlq_id": "a", "label": "b"}], LABELS_EXPLODED)


class Slow(PagePanel):
    """A panel whose run waits for an event."""

    def __init__(self, fails=None):
        self.go, self.fails, self.job = threading.Event(), fails, None
        super().__init__("Slow", value=FailureFilter())
        self._begin()

    def _call(self, job: Job, value):
        self.job = job
        while not self.go.wait(0.005):
            job.step(7, 1000)
        if self.fails is not None:
            raise self.fails
        return PARTIAL

    def _show(self, value):
        pass


async def until(true):
    """Let the loop run until something is true."""
    async with asyncio.timeout(30):
        while not true():  # noqa: ASYNC110 - awaits the panel's state
            await asyncio.sleep(0.005)


def test_a_button_leaves_the_loop_free_and_one_call_runs_at_a_time():
    """During a run the loop is free and a second run is refused; progress is reported on the loop."""
    panel, threads = Slow(), set()
    panel.observe(
        lambda _: threads.add(threading.current_thread()), names=traitlets.All
    )

    async def main():
        panel._start_run()
        await until(lambda: "of 1,000" in panel.message)
        panel._start_run()
        assert panel.message == "A request is already running; press Cancel to stop it."
        assert "of 1,000" in panel._status.value
        await until(lambda: "<progress" in panel._status.value)
        panel.go.set()
        await until(lambda: len(panel.frame()))

    asyncio.run(main())
    assert panel.message == "1 row"
    assert threads == {threading.current_thread()}


def test_cancel_stops_the_call_and_the_next_one_can_start():
    """Cancel ends a call at its next step; without a call it says that there is none."""
    panel = Slow()

    async def main():
        panel.cancel()
        assert panel.message == "No call is running."
        panel._start_run()
        panel.cancel()
        await until(lambda: "Stopped before" in panel.message)
        panel.go.set()
        panel._start_run()
        await until(lambda: len(panel.frame()))

    asyncio.run(main())


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            IncompleteLoadError("loading", partial=PARTIAL, got="1 of 2"),
            "loading: got 1 of 2; expected every entry",
        ),
        (
            ServiceError("asking", got="nothing", next_step="Ask again."),
            "asking: got nothing. Ask again.",
        ),
        (
            ZeroDivisionError("Bearer abcdef0123456789"),
            "Unexpected error: ZeroDivisionError: Bearer [masked",
        ),
    ],
)
def test_errors_of_a_call_are_shown_in_words(error, said):
    """Errors, even unexpected ones, are a masked sentence in the panel without a traceback."""
    panel = Slow(fails=error)
    panel.go.set()

    async def main():
        panel._start_run()
        await until(lambda: panel._job is None)

    asyncio.run(main())
    assert panel.message.startswith(said)
    # rows read are kept
    assert len(panel.frame()) == isinstance(error, IncompleteLoadError)
    assert 'role="alert"' in panel._status.value


def test_run_blocks_and_raises():
    """From code, a run returns its result, or raises and shows its error."""
    panel = Slow()
    panel.go.set()
    assert panel.run() is panel.frame()
    failing = Slow(fails=Cancelled())
    failing.go.set()
    with pytest.raises(Cancelled):
        failing.run()
    assert failing.message == "Stopped before anything was read."


class Undrawable(Slow):
    """A panel that cannot show its result."""

    def _arrived(self, frame):
        raise ValueError("no place for it")


def test_a_result_that_cannot_be_shown_is_an_error_and_the_next_call_can_start():
    """A button's result that fails while it is drawn is an error in the panel; the next call can start."""
    panel = Undrawable()
    panel.go.set()

    async def main():
        for _ in range(2):
            panel._start_run()
            await until(lambda: "no place for it" in panel.message)
            panel.announce("")

    asyncio.run(main())
    with pytest.raises(ValueError, match="no place"):
        panel.run()
    assert "no place for it" in panel.message


def test_run_is_refused_while_a_call_is_under_way():
    """The result of the call that a button started would replace this one's later."""
    panel = Slow()

    async def main():
        panel._start_run()
        with pytest.raises(InputError, match="got a running call"):
            panel.run()
        panel.go.set()
        await until(lambda: len(panel.frame()))

    asyncio.run(main())


def test_code_finds_a_frame_by_its_name_in_the_notebook(
    failures, vectors, monkeypatch, tmp_path
):
    """By the shortest public name of this very frame, in every panel; an equal frame is another one."""
    names = {
        "_": failures,
        "failures": failures.copy(),
        "m": failures,
        "rows": failures,
        "v": vectors,
    }
    monkeypatch.setattr(
        "toolkit.widgets.shown_code.get_ipython", lambda: SimpleNamespace(user_ns=names)
    )
    names["tk"] = tk
    browser = FailurePanel(failures, value=tk.FailureView(selected=["dlq_3"]))
    exec(browser.selection_code(), names)  # noqa: S102 - our own code
    assert names["selected"]["dlq_id"].tolist() == ["dlq_3"]
    assert "failures[" not in browser.selection_code()
    assert browser._grouping.code() == "groups = tk.group_failures(m)"
    plan = tk.RedrivePanel(None, failures, ledger=tmp_path / "ledger").to_code()
    assert "m[m['dlq_id'].isin(" in plan
    assert "failures[" not in plan
    assert (
        tk.VectorMapPanel(vectors, value=["a"]).to_code()
        == "v[v['id'].isin([\n    'a',\n])]"
    )
    projection = names["shown"] = tk.project_vectors(vectors)
    chosen = tk.VectorMapPanel(projection, value=["a"])
    assert eval(chosen.to_code(), names).equals(chosen.selected)  # noqa: S307 - our own code
    assert chosen.to_code().startswith("shown.frame[shown.frame['id'].isin(")
    other = FailurePanel(failures.head(2))
    assert other.selection_code().startswith(
        "# failures: the frame this panel was made with\n"
    )
    assert other._grouping.code().endswith("\ngroups = tk.group_failures(failures)")


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (
            "browser",
            ["<td>dlq_1</td>", "<td>&lt;b&gt;here&lt;/b&gt;</td>", "12 of 12 failures"],
        ),
        (
            "filter",
            ["<td>dlq_1</td>", "<td>&lt;b&gt;here&lt;/b&gt;</td>", "6 of 12 loaded"],
        ),
        ("metadata", ["<td>a</td>", "city = "]),
        (
            "redrive",
            ["<td>&lt;b&gt;here&lt;/b&gt;</td>", "tk.plan_redrive(", "12 failures:"],
        ),
    ],
)
def test_a_converted_notebook_shows_rows(
    server, failures, vectors, tmp_path, kind, expected
):
    """If nbconvert has no widget state, the page has code and the first rows as an escaped table."""
    shown = failures.assign(workflow_url="<b>here</b>")
    made = {
        "browser": lambda: FailurePanel(shown),
        "filter": lambda: FailureFilterPanel(
            server.service(), frame=shown, value=FailureFilter(label="prod")
        ),
        "metadata": lambda: tk.MetadataFilterPanel(vectors, value="city = 'Izmir'"),
        "redrive": lambda: tk.RedrivePanel(None, shown, ledger=tmp_path / "ledger"),
    }
    panel = made[kind]()
    output = nbformat.v4.new_output("display_data", data=panel._repr_mimebundle_())
    cell = nbformat.v4.new_code_cell("panel", outputs=[output])
    page, _ = HTMLExporter().from_notebook_node(nbformat.v4.new_notebook(cells=[cell]))
    for part in expected:
        assert part in page
