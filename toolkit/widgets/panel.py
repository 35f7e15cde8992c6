"""What every panel is: a value, its code, its last result, a thing that it does, forms without a browser."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import ipywidgets as widgets
import pandas as pd
import traitlets

from toolkit.analysis.wording import counted, shorten
from toolkit.arguments import text
from toolkit.errors import IncompleteLoadError, InputError, ToolkitError
from toolkit.redaction import Redactor, escape_html
from toolkit.widgets.colouring import masked_text
from toolkit.widgets.controls import note
from toolkit.widgets.javascript import Guard, hear_all, hearing, script
from toolkit.widgets.work import Job, Progress, Stopped, on_loop, start

_ROWS: Final = 10
_COLUMNS: Final = 8
_LONGEST: Final = 80
_PLAIN: Final = ("dlq_id", "failed_at", "workflow_url", "response_status", "error", "failure_function_state")

T = TypeVar("T")


class Panel(widgets.VBox):  # type: ignore[misc] # ipywidgets publishes no types
    """A widget with a value that is also a line of code.

    Subclasses build their controls, call `_compose`, and say what a run is (`_call`), which values fit
    (`_checked`) and how a value is shown in the controls (`_show`). When a person changes a control they
    call `_changed_to`.

    Parameters
    ----------
    title : str
        Named to screen readers, and heads the static form.
    value : object
        A frozen value with ``to_code()``; what the cell gives.
    key : str, optional
        A name under which value and last result are kept while the kernel lives: running the cell again goes
        on where it was.
    redactor : Redactor, optional
        Masks what is displayed. Default: one that knows no tokens.
    """

    value = traitlets.Any(help="What is chosen: frozen, readable, settable, observable.")

    def __init__(
        self, title: str, *, value: Any, key: str | None = None, redactor: Redactor | None = None
    ) -> None:
        if key is not None:
            text("key", key)
        self._title = title
        self._redactor = redactor if redactor is not None else Redactor()
        self._job: Job | None = None
        self._status = widgets.HTML()
        self.message = ""
        super().__init__()
        self.add_class("tk-panel")
        # what the controls draw is text from data, too, and pages made of notebooks are typeset as a whole
        self.add_class("mathjax_ignore").add_class("tex2jax_ignore")
        self.set_trait("value", value)  # checked before what is kept gives way to it
        self._kept = kept(type(self).__name__, key, value)
        self.set_trait("value", self._kept.value)

    def _compose(self, *children: widgets.Widget) -> None:
        """Put the controls into the panel, the status line below them, and show the value."""
        style = widgets.HTML(f"<style>{script('style.css')}</style>").add_class("tk-style")
        self.children = [style, *children, self._status, Guard()]
        self._show(self.value)
        self.observe(self._value_set, "value")

    # what subclasses say

    @abstractmethod
    def _call(self, job: Job, value: Any) -> pd.DataFrame:
        """What a run is; on a thread that must not touch controls."""

    @abstractmethod
    def _show(self, value: Any) -> None:
        """Show a value in the controls."""

    def _arrived(self, frame: pd.DataFrame) -> str:
        """Show a result; gives a sentence about it."""
        return counted(len(frame), "row")

    def _empty(self) -> pd.DataFrame:
        """The result before there is one."""
        return pd.DataFrame()

    # what everybody uses

    def to_code(self) -> str:
        """Python that makes the value again, with the toolkit imported as ``tk``."""
        code: str = self.value.to_code()
        return code

    def frame(self) -> pd.DataFrame:
        """The last result; empty, with its columns, before there is one. Never touches the network."""
        return self._empty() if self._kept.frame is None else self._kept.frame

    def run(self) -> pd.DataFrame:
        """Do what the button does, and wait for it.

        Returns
        -------
        pandas.DataFrame
            What `frame` gives from now on.

        Raises
        ------
        InputError
            While a call is under way that a button has started: its answer would come later, and stay.
        ToolkitError
            When it fails; the panel shows it too.
        """
        if self._job is not None:
            raise InputError(
                f"running a {type(self).__name__}",
                got="a call that is under way",
                expected="none",
                next_step="Wait for it, or call cancel().",
            )
        try:
            frame = self._call(Job(self._progressed), self.value)
            self._take(frame)
        except (Exception, Stopped) as error:
            self._failed(error)
            raise
        return frame

    def cancel(self) -> None:
        """Stop what is under way at its next step. What a load has read is kept."""
        if self._job is None:
            self.say("Nothing is under way.")
        else:
            self._job.stop()
            self.say("Stopping …")

    def say(self, text: str, kind: str = "note") -> None:
        """Say something in the status line: a ``note`` or a ``problem``."""
        self.message = text
        self._status.value = note(text, kind)

    def hear(self, fields: object) -> None:
        """Take the values that came with the press of a button: those it was clicked on."""
        hear_all(self, fields)

    def _start_run(self) -> None:
        value = self.value
        self._start(lambda job: self._call(job, value), self._take)

    def _start(self, call: Callable[[Job], T], then: Callable[[T], None]) -> None:
        """Start a slow call on a thread of its own, unless one is under way."""
        if self._job is not None:
            self.say("One call is under way. Cancel stops it.", "problem")
            return
        after = on_loop()
        job = self._job = Job(lambda progress: after(lambda: self._progressed(progress)))
        self.say("Asking …")

        def done(result: T) -> None:
            self._job = None
            try:
                then(result)
            except Exception as error:  # noqa: BLE001 - shown in the panel: nobody else is there to see it
                self._failed(error)

        def failed(error: BaseException) -> None:
            self._job = None
            self._failed(error)

        start(lambda: call(job), done, failed)

    def _progressed(self, progress: Progress) -> None:
        self.say(progress.words())
        share = progress.share()
        if share is not None:
            self._status.value += f'<progress aria-label="Progress" max="1" value="{share:.3f}"></progress>'

    def _take(self, frame: pd.DataFrame) -> None:
        self._kept.frame = frame
        self.say(self._arrived(frame))

    def _failed(self, error: BaseException) -> None:
        """Say what went wrong, in the panel; what a load has read until then is the result."""
        if isinstance(error, IncompleteLoadError) and isinstance(error.partial, pd.DataFrame):
            self._kept.frame = error.partial
            self._arrived(error.partial)
        if isinstance(error, Stopped):
            text = "Stopped before anything was read."
        elif isinstance(error, ToolkitError):
            text = str(error)
        else:
            text = f"This should not happen: {type(error).__name__}: {error}"
        self.say(self._redactor.text(text), "problem")

    def _value_set(self, change: dict[str, Any]) -> None:
        with hearing:  # so that `_reading` is this thread's
            self._kept.value = change["new"]
            if not self._reading:
                self._show(change["new"])

    _reading = False

    def _changed_to(self, value: Any) -> None:
        """Take the value that a person made with the controls, which show it already."""
        with hearing:
            self._reading = True
            try:
                self.value = value
            finally:
                self._reading = False

    # forms without a browser

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._redactor.code(self.to_code())})"

    def _static(self) -> tuple[pd.DataFrame, str]:
        """What the forms without a widget show: rows, and a line about them."""
        frame = self.frame()
        return frame, f"{counted(len(frame), 'row')} in the last result"

    def _repr_mimebundle_(self, **_: object) -> dict[str, Any]:
        """The widget for whoever can draw it; text and a table of the first rows for all others."""
        frame, rows = self._static()
        code = escape_html(self._redactor.code(self.to_code()))
        table = static_table(frame, self._redactor)
        return {
            "text/plain": f"{self!r}: {rows}",
            "text/html": (
                f"<div><strong>{escape_html(self._title)}</strong><pre>{code}</pre>"
                f"<p>{escape_html(rows)}</p>{table}</div>"
            ),
            "application/vnd.jupyter.widget-view+json": {
                "version_major": 2,
                "version_minor": 0,
                "model_id": self.model_id,
            },
        }


def must_be(value: Any, kind: type[T], doing: str, name: str = "value") -> T:
    """The value, when it is one of this kind.

    Raises
    ------
    InputError
    """
    if not isinstance(value, kind):
        raise InputError(doing, got=f"{type(value).__name__} for {name}", expected=f"a {kind.__name__}")
    return value


@dataclass
class Kept:
    """State of a panel.

    Attributes
    ----------
    value : object
        Its value now.
    given : object
        The value that the cell gave when the panel was made.
    frame : pandas.DataFrame or None
        Its last result.
    origin : object
        What the panel wants to know later of where the result came from.
    """

    value: Any = None
    given: Any = None
    frame: pd.DataFrame | None = None
    origin: Any = None


_KEPT: dict[tuple[str, str], Kept] = {}  # the one thing here that outlives a panel: that is its purpose


def kept(kind: str, key: str | None, given: Any) -> Kept:
    """The state for a panel of this kind and key, that of the one before where there was one.

    A value that the cell gives wins when it is not the one that it gave before: then its author changed it.
    """
    if key is None:
        return Kept(given, given)
    state = _KEPT.setdefault((kind, key), Kept(given, given))
    if state.given != given:
        state.value = state.given = given
    return state


def static_table(frame: pd.DataFrame, redactor: Redactor) -> str:
    """The first rows of a frame as an HTML table, every value masked and escaped.

    Examples
    --------
    >>> static_table(pd.DataFrame({"n": ["<b>"]}), Redactor(key=b"k"))
    '<table><thead><tr><th>n</th></tr></thead><tbody><tr><td>&lt;b&gt;</td></tr></tbody></table>'
    """
    if not len(frame):
        return ""
    plain = [name for name in _PLAIN if name in frame.columns]
    chosen = frame[plain] if plain else frame.iloc[:, :_COLUMNS]
    head = "".join(f"<th>{escape_html(name)}</th>" for name in chosen.columns)
    rows = chosen.head(_ROWS).itertuples(index=False, name=None)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape_html(shown(value, redactor))}</td>' for value in row)}</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def shown(value: Any, redactor: Redactor) -> str:
    """A value of a frame as one short masked text; nothing for a missing one."""
    if value is None or (pd.api.types.is_scalar(value) and pd.isna(value)):
        return ""
    if isinstance(value, pd.Timestamp):
        return f"{value:%Y-%m-%d %H:%M:%S}"
    text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return shorten(masked_text(text, redactor), _LONGEST)
