"""Show how far a long call is, in a terminal or a notebook: rows that are read, or the steps of an analysis.

Nothing is shown if neither is there, for example on a pipe, unless the caller asks for it.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Final, Self, TypeAlias, TypeVar

from toolkit.base.arguments import plain, wrong
from toolkit.base.notebook_bar import is_notebook_bar, without_traces
from toolkit.base.visible_text import visible

ProgressOption: TypeAlias = bool | Callable[[int, int | None], None] | None
"""None shows a bar in a notebook or terminal, True always, False never; a callable gets (done, total)."""

StepOption: TypeAlias = bool | Callable[[int, int, str], None] | None
"""Like `ProgressOption`; a callable gets (steps done, steps in all, name of the step that begins)."""

AnyOption = TypeVar("AnyOption", ProgressOption, StepOption)

_BAR_DELAY: Final = 1.0  # seconds before a bar appears, so that quick loads stay quiet
_MANY_ROWS: Final = 1_000  # an analysis of this many rows takes longer, so the first step is shown at once


class _Bar:
    """A context manager with a bar, if the option asks for one, that disappears when the block ends."""

    def __init__(
        self,
        option: ProgressOption | StepOption,
        *,
        title: str,
        unit: str,
        total: int | None,
    ) -> None:
        self._report: Callable[..., object] | None = None
        if callable(option):
            self._report = option
        self._bar = None
        if _is_shown(option):
            self._bar = _tqdm(title, unit, total)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, problem: type[BaseException] | None, *_: object) -> None:
        if self._bar is not None:
            _close(self._bar, is_done=problem is None)


class ProgressBar(_Bar):
    """Count the rows that have been read, and show the count if the `ProgressOption` asks for it."""

    def __init__(
        self, option: ProgressOption, *, title: str, unit: str, total: int | None = None
    ) -> None:
        super().__init__(option, title=title, unit=unit, total=total)
        self._done = 0
        self._total = total

    def add(self, count: int, *, retries: int = 0) -> None:
        """Count more rows; `retries` is the number of retries so far."""
        self._done += count
        if self._bar is not None:
            if retries:
                self._bar.set_postfix_str(_count_of_retries(retries), refresh=False)
            self._bar.update(count)

        if self._report is not None:
            self._report(self._done, self._total)


def _count_of_retries(retries: int) -> str:
    if retries == 1:
        return "1 retry"
    return f"{retries:,} retries"


class ProgressSteps(_Bar):
    """Show the name of each step when it begins: a context manager that is called with the name.

    >>> with ProgressSteps(lambda *told: print(*told), title="report", total=2) as step:
    ...     step("grouping 12,000 failures")
    ...     step("writing the sections")
    0 2 grouping 12,000 failures
    1 2 writing the sections
    """

    def __init__(
        self, option: StepOption, *, title: str, total: int, rows: int = 0
    ) -> None:
        super().__init__(
            checked_progress(option), title=title, unit="steps", total=total
        )
        self._title, self._total, self._begun = title, total, 0
        delay = _BAR_DELAY
        if rows >= _MANY_ROWS:
            delay = 0.0
        self._visible_from = time.monotonic() + delay

    def __call__(self, name: str) -> None:
        """Begin a step."""
        if self._report is not None:
            self._report(self._begun, self._total, name)
        if self._bar is not None:
            self._bar.set_description_str(f"{self._title}: {name}", refresh=False)
            self._bar.n = self._begun
            if time.monotonic() >= self._visible_from:
                self._bar.refresh()

        self._begun += 1


class RetryNotice:
    """Show that requests are sent again, from a second after the first failure until no request waits.

    For example, all tries at an address without a service take 13 s, and nothing else would be shown. One
    notice serves all threads of a load. `option` is a `ProgressOption`; with None, threads other than the
    main thread show nothing, because a notice of a panel would appear below a cell that has ended.
    """

    def __init__(self, option: ProgressOption = None) -> None:
        self._is_wanted = option is True
        if option is None and threading.current_thread() is threading.main_thread():
            self._is_wanted = _is_interactive()
        self._lock = threading.Lock()
        # the time of the first failure, by thread
        self._waiting: dict[int, float] = {}
        self._bar: Any = None

    def failed(self, reason: str, *, number: int, tries: int, delay: float) -> None:
        """Report that a try of this number failed, and that the next one follows after `delay` seconds."""
        if not self._is_wanted:
            return

        with self._lock:
            now = time.monotonic()
            first = self._waiting.setdefault(threading.get_ident(), now)
            if now + delay - first < _BAR_DELAY:
                return
            if self._bar is None:
                self._bar = _tqdm("", "tries", tries, bar_format="{desc}", delay=0)
            self._bar.n = number
            told = (
                f"Try {number} of {tries} failed, the next one follows in {delay:.1f} s"
            )
            self._bar.set_description_str(f"{told}: {visible(reason)}")

    def ended(self) -> None:
        """Report that the request of this thread has a response, or is given up."""
        if not self._waiting:
            return

        with self._lock:
            self._waiting.pop(threading.get_ident(), None)
            if self._bar is not None and not self._waiting:
                _close(self._bar, is_done=True)
                self._bar = None


def _close(bar: Any, *, is_done: bool) -> None:
    """Remove a bar."""
    # In a notebook, a bar that ends below the total stays, as if work had failed. The total is only an
    # estimate, so the bar is set to it.
    if is_done and bar.total is not None:
        bar.total = bar.n
    bar.close()


def silent(name: str) -> None:
    """Begin a step without showing it."""


def checked_progress(option: AnyOption) -> AnyOption:
    """Return the argument `progress`, if it can be used."""
    known: AnyOption = plain(option)
    if known is None or isinstance(known, bool) or callable(known):
        return known

    raise wrong("progress", known, "None, True, False or a callable")


def rows_of(frame: Any) -> int:
    """Return the number of rows, or many if it is unknown until the frame is read (lazy frames)."""
    try:
        return len(frame)
    except (TypeError, AttributeError):
        return _MANY_ROWS


def _is_shown(option: object) -> bool:
    return option is True or (option is None and _is_interactive())


def _tqdm(
    title: str,
    unit: str,
    total: int | None,
    *,
    bar_format: str | None = None,
    delay: float | None = None,
) -> Any:
    from tqdm.auto import tqdm  # noqa: PLC0415 - costs a tenth of a second, and is mostly not needed

    bar_class: Any = tqdm
    if is_notebook_bar(tqdm):
        bar_class = without_traces(tqdm)
    if delay is None:
        delay = _BAR_DELAY
    return bar_class(
        desc=title,
        unit=f" {unit}",
        total=total,
        bar_format=bar_format,
        delay=delay,
        leave=False,
        dynamic_ncols=True,
        # a program in the background may have no such stream
        disable=sys.stderr is None,
    )


def _is_interactive() -> bool:
    """Return True in the kernel of a notebook (JupyterLab, VS Code) and in a terminal."""
    if "ipykernel" in sys.modules:
        return True

    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):
        # None in a program without this stream, closed, or an object that only has `write`
        return False
