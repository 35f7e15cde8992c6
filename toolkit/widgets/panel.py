"""Define the base of all panels: a value, code, the last result, slow calls, and a form without widgets."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import Any, Final, Protocol, TypeVar

import ipywidgets as widgets
import pandas as pd
import traitlets

from toolkit.base.arguments import instance, text
from toolkit.base.errors import IncompleteLoadError, InputError, ToolkitError
from toolkit.base.missing_values import is_missing
from toolkit.base.visible_text import visible
from toolkit.drawing.result_tables import heading
from toolkit.drawing.wording import counted, short_number, shorten, span
from toolkit.loading.load import Load
from toolkit.loading.options import LoadOptions
from toolkit.secrets.redaction import Redactor, escape_html, escape_wrapping
from toolkit.tables.receipt import get_receipt, shortfall
from toolkit.widgets.page_parts import MESSAGE_LOCK, note
from toolkit.widgets.shown_code import code_markup

RESULT: Final = "panel.frame() returns them."
"""The sentence that names the call for the rows of a result."""

_LONGEST_JSON: Final = 1_000_000  # longest text that is read as JSON, in characters
STATIC_ROWS: Final = 10
_COLUMNS: Final = 8
_LONGEST: Final = 80
_INTERVAL: Final = 0.15  # seconds between two reports of progress
_SETTLED: Final = 0.5  # seconds before a rate means something
_POLL: Final = 0.05  # seconds between two checks of whether to stop
_PLAIN: Final = (
    "dlq_id",
    "failed_at",
    "workflow_url",
    "response_status",
    "error",
    "failure_function_state",
)

T = TypeVar("T")
U = TypeVar("U")
Call = Callable[[], object]


@dataclass
class PanelState:
    """The state of a panel with a ``key``: the value, the value in the cell, the last result and origin."""

    value: Any = None
    given: Any = None
    frame: pd.DataFrame | None = None
    origin: Any = None
    job: Job | None = None
    """The running call of the panel."""


# A key is looked up together with the class, so that a filter and a browser
# with the same key keep separate states.
_STATES: dict[
    tuple[str, str], PanelState
] = {}  # kept after the panel is gone, so that a cell can be run again


class Cancelled(KeyboardInterrupt):
    """A person pressed Cancel: an interrupt of one call. Loads keep the rows read, as for Ctrl-C."""


@dataclass
class JobProgress:
    """The progress of a call, `seconds` after the start. `total` is None if it is not known.

    `waits_for` returns the reasons if a call waits for others, for example for the deadline of a redrive.
    """

    done: int = 0
    total: int | None = None
    seconds: float = 0.0
    retries: int = 0
    waits_for: Callable[[], Sequence[str]] | None = None

    def words(self) -> str:
        """Return the progress for people: items done, speed, time left, retries, and the reason of a wait."""
        parts = [self._done_so_far()]
        # a call that waits for others has no steady rate
        settled = self.seconds >= _SETTLED and self.waits_for is None
        if settled and self.done:
            parts += self._speed(self.done / self.seconds)
        if self.retries == 1:
            parts.append("1 retry")
        elif self.retries:
            parts.append(f"{self.retries:,} retries")

        if self.waits_for is not None:
            running = span(timedelta(seconds=self.seconds))
            parts += [f"running for {running}", *self.waits_for()]

        return " · ".join(parts)

    def _done_so_far(self) -> str:
        if self.total is not None:
            return f"{self.done:,} of {self.total:,}"
        if self.done:
            return f"{self.done:,}"
        if self.seconds < 1:
            return "Loading …"

        return f"Loading for {self.seconds:.0f} s …"

    def _speed(self, rate: float) -> list[str]:
        """Return the items per second, and the time left if the total is known."""
        speed = [f"{short_number(round(rate))} a second"]
        if self.total is not None and self.total > self.done:
            left = timedelta(seconds=(self.total - self.done) / rate)
            speed.append(f"about {span(left)} left")
        return speed


@dataclass
class Job:
    """A call that may take long. `report` receives the progress, and `stopping` stops the call."""

    report: Callable[[JobProgress], object]
    clock: Callable[[], float] = time.monotonic
    stopping: threading.Event = field(default_factory=threading.Event)
    progress: JobProgress = field(default_factory=JobProgress)
    dropped: bool = False
    _started: float = 0.0
    _last: float = float("-inf")

    def __post_init__(self) -> None:
        self._started = self.clock()

    @property
    def due(self) -> bool:
        """Return whether the next step reports."""
        return self.clock() - self._last >= _INTERVAL

    def drop(self) -> None:
        """Stop the call at the next step, and drop the result: nobody sees the panel anymore."""
        self.dropped = True
        self.stopping.set()

    def step(self, done: int | None = None, total: int | None = None) -> None:
        """Report the progress between two steps of the call. Raise `Cancelled` if it should stop."""
        if done is not None:
            self.progress.done, self.progress.total = done, total
        if self.due:
            self._last = self.clock()
            self.progress.seconds = self._last - self._started
            self.report(replace(self.progress))

        if self.stopping.is_set():
            raise Cancelled

    def read(
        self, opened: Callable[[LoadOptions], Load], *, limit: int | None = None
    ) -> pd.DataFrame:
        """Read a load into a frame. `opened` makes the load with the given options."""

        def count(done: int, total: int | None) -> None:
            self.progress.done, self.progress.total = done, total

        def step() -> None:
            self.progress.retries = load.state.requests - load.state.pages
            self.step()

        load = opened(LoadOptions(limit=limit, progress=count))

        return load.frame(after_batch=step)

    def tick(self, running: Future[Any]) -> None:
        """Report the running time every second, while the call has read nothing yet or waits for others."""
        while not (wait([running], 1).done or self.stopping.is_set()):
            if self.progress.done and not self.progress.waits_for:
                return
            self.report(replace(self.progress, seconds=self.clock() - self._started))

    def wait(self, call: Callable[[], T]) -> T:
        """Return the result of a call that cannot be interrupted. If the job is stopped, drop the result."""
        self.step()
        future = in_thread(call)
        while not wait([future], _POLL).done:
            self.step()
        return future.result()


def in_thread(call: Callable[[], T]) -> Future[T]:
    """Run a call on a daemon thread."""
    future: Future[T] = Future()

    def work() -> None:
        try:
            future.set_result(call())
        except BaseException as error:  # noqa: BLE001 - raised again where the result is used
            future.set_exception(error)

    # A daemon thread does not keep the kernel from exiting while the service is slow to respond.
    threading.Thread(target=work, name="toolkit widget", daemon=True).start()

    return future


def has_loop() -> bool:
    """Return whether an event loop is running, as in a notebook; results of threads can then arrive later."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False

    return True


def on_loop() -> Callable[[Callable[[], None]], Any]:
    """Return a function that calls on the running event loop, or directly if no loop is running."""
    if has_loop():
        return asyncio.get_running_loop().call_soon_threadsafe
    return lambda call: call()


class CheckedValue(traitlets.Any):
    """Any value. None is validated like any other value."""

    # traitlets does not call validators of None if `allow_none` is True, as it is for its own `Any`.
    allow_none = False


class _HasMarkup(Protocol):
    """A line of markup in a panel: `ipywidgets.HTML`, or a trait of the page."""

    value: str


class PanelBehaviour(widgets.DOMWidget):  # type: ignore[misc] # ipywidgets publishes no types
    """A value that is also a line of code, for example ``tk.FailureFilter(since='…')``, and slow calls.

    Subclasses define a run (`_call`), the values that fit (`_value_type` or `_checked`), and functions that
    show a value (`_show`) and a result (`_arrived`). If a person changes a control, they call `_changed_to`.
    With a `key`, the value and the last result are kept. `PagePanel` adds the page: one module of JavaScript.
    """

    value = CheckedValue(
        help="The chosen value: frozen, readable, settable, observable."
    )
    _value_type: type = object
    _status: _HasMarkup
    _code: _HasMarkup
    _noun = "row"  # of the result
    _stop = "Cancel"  # the button that stops a call; empty without a button
    # ipywidgets also closes a panel whose arguments were refused
    _job: Job | None = None

    def __init__(
        self,
        title: str,
        *,
        value: Any,
        key: str | None = None,
        redactor: Redactor | None = None,
    ) -> None:
        if key is not None:
            key = text("key", key)
        self._title = title
        self._redactor = redactor if redactor is not None else Redactor()
        self._reading = False  # while a value is set from the controls
        self.message = ""
        super().__init__()
        self.add_class("tk-panel")
        # controls also draw text from data, and pages made of notebooks are typeset as a whole
        self.add_class("mathjax_ignore").add_class("tex2jax_ignore")
        self.set_trait("value", value)  # checked before it replaces the kept one
        self._kept = PanelState(value, value)

        if key is not None:
            self._kept = _STATES.setdefault((type(self).__name__, key), self._kept)
            if self._kept.job is not None:
                # of the panel that this one replaces, which can no longer be cancelled
                self._kept.job.drop()
            if self._kept.given != value:  # a new value in the cell wins
                self._kept.value = self._kept.given = value

        self.set_trait("value", self._kept.value)

    @traitlets.validate("value")
    def _validated(self, proposal: dict[str, Any]) -> Any:
        return self._checked(proposal["value"])

    def _checked(self, value: Any) -> Any:
        """Return the value. Raise InputError if it does not fit."""
        return instance(
            "value", value, self._value_type, f"a {self._value_type.__name__}"
        )

    def _call(self, job: Job, requested: Any) -> Any:
        """Run with the result of `_request`, on a thread that must not touch controls."""
        raise NotImplementedError

    def _show(self, value: Any) -> None:
        """Show a value in the controls."""
        raise NotImplementedError

    def _request(self) -> Any:
        """Return the argument of a run: the value when it starts."""
        return self.value

    def _settle(self, result: Any) -> pd.DataFrame:
        """Keep and show the result of `_call`, on the loop of the kernel. Return the frame."""
        frame: pd.DataFrame = result
        self._kept.frame = frame
        self.announce(self._arrived(frame))

        return frame

    def _arrived(self, frame: pd.DataFrame) -> str:
        """Show a result. Return a sentence about it."""
        return counted(len(frame), "row")

    def _empty(self) -> pd.DataFrame:
        """Return the result before there is one."""
        return pd.DataFrame()

    def to_code(self) -> str:
        """Return Python that makes the value again, with the toolkit imported as ``tk``."""
        return str(self.value.to_code())

    def frame(self) -> pd.DataFrame:
        """Return the last result. Before the first run, it is empty and has all columns. Sends no request."""
        return self._empty() if self._kept.frame is None else self._kept.frame

    def run(self) -> pd.DataFrame:
        """Run the action of the main button and block. Return the new result of `frame`."""
        if self._job is not None:
            raise InputError(
                f"running a {type(self).__name__}",
                got="a running call",
                expected="no running call",
                next_step="Wait for it, or call cancel().",
            )

        return self._run_and_wait(self._call, self._settle)

    def cancel(self) -> None:
        """Stop the running call at the next step. Rows that a load has read are kept."""
        if self._job is None:
            self.announce("No call is running.")
        else:
            self._job.stopping.set()
            self.announce("Stopping …")

    def close(self) -> None:
        """Remove the panel from the page. A running call stops at the next step, without a result."""
        if self._job is not None:
            self._job.drop()
        super().close()

    def announce(self, text: str, kind: str = "note") -> None:
        """Show a ``note`` or a ``problem`` in the status line."""
        self.message = text
        self._status.value = note(text, kind)

    def announce_error(self, text: object) -> None:
        """Show a problem in the status line, masked."""
        self.announce(self._redactor.text(str(text)), "problem")

    def _run_and_wait(self, call: Callable[[Job, Any], T], then: Callable[[T], U]) -> U:
        """Run a call, and then the function `then`, in this thread. An error is shown and raised."""
        try:
            return then(call(Job(self._progressed), self._request()))
        except (Exception, Cancelled) as error:
            self._failed(error)
            raise

    def _start_run(self) -> None:
        self._start(self._call, self._settle)

    def _start(self, call: Callable[[Job, Any], T], then: Callable[[T], Any]) -> None:
        """Start a slow call on another thread, unless one is running. `then` runs on the loop."""
        if self._job is not None:
            self._warn_running()
            return

        # Both are taken on the kernel's loop: another thread has no running loop, and the
        # value may be changed while the call runs.
        after, requested = on_loop(), self._request()

        showing = threading.Lock()

        def show(progress: JobProgress) -> None:
            with showing:
                # a late report must not replace the message of a call that has ended
                if self._job is job:
                    self._progressed(progress)

        job = self._job = Job(lambda progress: after(partial(show, progress)))
        self._kept.job = job
        self._show_idle()
        self.announce("Loading …")

        def ended(future: Future[T]) -> None:
            with showing:
                # a call whose result was taken earlier must not end the next one
                if self._job is job:
                    self._job = None
                if self._kept.job is job:
                    self._kept.job = None

            self._show_idle()
            if job.dropped:
                self.announce("Stopped: the panel was closed or replaced.")
                return
            try:
                then(future.result())
            except BaseException as error:  # noqa: BLE001 - shown in the panel
                self._failed(error)

        running = in_thread(lambda: call(job, requested))
        in_thread(lambda: job.tick(running))
        running.add_done_callback(lambda future: after(partial(ended, future)))

    def _show_idle(self) -> None:
        """Update the buttons after a call has started or ended."""

    def _warn_running(self) -> None:
        """Show below the progress that a call is running."""
        stop = f"press {self._stop} to stop it" if self._stop else "wait for it"
        self.message = f"A request is already running; {stop}."
        warning = note(self.message, "problem")
        # A second press of the button does not add the warning again.
        self._status.value = self._status.value.removesuffix(warning) + warning

    def _progressed(self, progress: JobProgress) -> None:
        self.announce(progress.words())
        if progress.total:
            share = min(1.0, progress.done / progress.total)
            self._status.value += f'<progress aria-label="Progress" max="1" value="{share:.3f}"></progress>'

    def _failed(self, error: BaseException) -> None:
        """Show the error. Rows that a load has read become the result. A cancelled call is no error."""
        partial = error.partial if isinstance(error, IncompleteLoadError) else None
        if isinstance(partial, pd.DataFrame):
            self._kept.frame = partial
            self._arrived(partial)

        # A load that was cancelled after the first rows raises IncompleteLoadError with the cause
        # `Cancelled`, so there are two cases of a cancelled call.
        if isinstance(error, Cancelled):
            self.announce("Stopped before anything was read.")
        elif isinstance(partial, pd.DataFrame) and isinstance(
            error.__cause__, Cancelled
        ):
            read = counted(len(partial), self._noun)
            self.announce(
                f"Cancelled: {read} read, not all; panel.frame() has them. Load starts again."
            )
        elif isinstance(error, IncompleteLoadError) and partial is not None:
            step = "panel.frame() has the rows read so far. Load starts again."
            self.announce_error(
                IncompleteLoadError("loading", got=error.got, next_step=step)
            )
        elif isinstance(error, ToolkitError):
            self.announce_error(error)
        else:
            self.announce_error(f"Unexpected error: {type(error).__name__}: {error}")

    def _value_set(self, change: dict[str, Any]) -> None:
        with MESSAGE_LOCK:  # so that `_reading` is this thread's
            self._kept.value = change["new"]
            if not self._reading:
                self._show(change["new"])

    def _changed_to(self, value: Any) -> None:
        """Set the value from the controls, without updating them."""
        with MESSAGE_LOCK:
            self._reading = True
            try:
                self.value = value
            finally:
                self._reading = False

    def _short_code(self) -> str:
        """Return the code as the panel shows it, masked."""
        return self._redactor.code(self.to_code())

    def _show_code(self) -> None:
        self._code.value = "" if self.value is None else code_markup(self._short_code())

    def __repr__(self) -> str:
        return visible(f"{type(self).__name__}({self._short_code()})")

    def _static_code(self) -> str:
        """Return the code for pages without widgets; empty if the panel has no value yet."""
        return "" if self.value is None else self.to_code()

    def _static(self) -> tuple[pd.DataFrame, str]:
        """Return the form for pages without widgets: rows, and a line about them."""
        frame = self.frame()
        if self._kept.frame is None:
            return frame, "There was no result yet when this page was saved."

        return frame, f"{counted(len(frame), 'row')} in the last result"

    def _repr_mimebundle_(self, **_: object) -> dict[str, Any]:
        """Return the widget if it can be drawn, otherwise text and a table of the first rows."""
        frame, rows = self._static()
        rows = with_shortfall(rows, frame)
        html = f"<strong>{escape_html(self._title)}</strong>"
        if code := self._redactor.code(self._static_code()):
            html += f"<pre>{escape_html(code)}</pre>"
        html += f"<p>{escape_html(rows)}</p>"
        # The frontend draws the richest type that it can, so one without widgets shows the HTML. The version
        # is of the protocol of widget views, which is 2.0 in ipywidgets 7 and 8.
        view = {"version_major": 2, "version_minor": 0, "model_id": self.model_id}

        return {
            "text/plain": f"{self!r}: {rows}",
            "text/html": f"<div>{html}{static_table(frame, self._redactor)}</div>",
            "application/vnd.jupyter.widget-view+json": view,
        }


def with_shortfall(counts: str, frame: pd.DataFrame) -> str:
    """Return counts of a frame with the reason why the load of the frame was not complete, if it was not."""
    reason = ""
    if "receipt" in frame.attrs:
        reason = shortfall(get_receipt(frame))
    if not reason or reason in counts:
        return counts
    return f"{counts}. Not all were loaded: {reason}"


def table_markup(
    names: Iterable[object], rows: Iterable[Iterable[str]], attributes: str = ""
) -> str:
    """Return an HTML table with escaped cells."""
    head = "".join(f"<th>{escape_html(name)}</th>" for name in names)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape_wrapping(cell)}</td>' for cell in row)}</tr>"
        for row in rows
    )
    return f"<table{attributes}><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def static_table(frame: pd.DataFrame, redactor: Redactor) -> str:
    """Return the first rows of a frame as an HTML table, every value masked and escaped.

    >>> static_table(pd.DataFrame({"n": ["<b>"]}), Redactor(key=b"k"))
    '<table><thead><tr><th>n</th></tr></thead><tbody><tr><td>&lt;b&gt;</td></tr></tbody></table>'
    """
    plain = [name for name in _PLAIN if name in frame.columns]
    return masked_table(
        (frame[plain] if plain else frame.iloc[:, :_COLUMNS]).head(STATIC_ROWS),
        redactor,
    )


def masked_table(
    frame: pd.DataFrame, redactor: Redactor, *, longest: int = _LONGEST
) -> str:
    """Return a frame as an HTML table with masked, shortened and escaped values; empty without rows."""
    rows = frame.itertuples(index=False, name=None)
    cells = [[_cell(value, redactor, longest) for value in row] for row in rows]
    names = [heading(str(name), column) for name, column in frame.items()]
    return table_markup(names, cells) if cells else ""


def _cell(value: Any, redactor: Redactor, longest: int) -> str:
    if is_missing(value):
        return ""
    if isinstance(value, pd.Timestamp):
        return f"{value:%Y-%m-%d %H:%M:%S}"

    whole = (
        ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    )
    return shorten(masked_text(whole, redactor), longest)


def masked_text(text: str, redactor: Redactor) -> str:
    """Return masked text. If it is a JSON object or array, values under secret names are also masked.

    >>> masked_text('{"password": "abc"}', Redactor(key=b"k"))
    '{"password": "[masked len=3 tag=342e519c]"}'
    >>> masked_text('{"n":1}', Redactor(key=b"k"))
    '{"n":1}'
    """
    return masked_json(text, redactor) or redactor.text(text)


def masked_json(
    text: str, redactor: Redactor, *, indent: int | None = None
) -> str | None:
    """Return a JSON object or array with masked values, or None if the text is no JSON or does not change."""
    # Most cells are plain text: looking at the first character is much cheaper than a parser that fails.
    if text[:50].lstrip()[:1] in {"{", "["} and len(text) <= _LONGEST_JSON:
        with suppress(ValueError, RecursionError):  # not readable as JSON
            value = json.loads(text)
            masked = redactor.value(value)
            if indent is not None or masked != value:
                return json.dumps(masked, ensure_ascii=False, indent=indent)

    return None
