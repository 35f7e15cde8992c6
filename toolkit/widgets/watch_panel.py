"""Show a dead letter queue live: groups by state, new ones on top, brought up to date at an interval."""

from __future__ import annotations

import os
import threading
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import pandas as pd
import traitlets

from toolkit.base.arguments import instance
from toolkit.base.errors import InputError, ToolkitError
from toolkit.base.python_code import Code, PublicCall, fill
from toolkit.base.times import Duration, parse_duration
from toolkit.drawing.wording import counted
from toolkit.failures.notices import sender_of
from toolkit.failures.watching import Look, Watch
from toolkit.service.settings import Service
from toolkit.widgets.page_panel import PagePanel, kit_module
from toolkit.widgets.page_parts import MESSAGE_LOCK, script, synced
from toolkit.widgets.panel import Job, on_loop
from toolkit.widgets.shown_code import code_markup, named_code

_CALL: Final = PublicCall("watch_failures", ("path", "every"))
_LEAST_SECONDS: Final = 1.0
_COLUMNS: Final = ["state", "title", "count", "recent"]


class WatchPanel(PagePanel):
    """Groups of failures that are brought up to date while you look; made by `watch_failures`.

    Attributes
    ----------
    running : bool
        Whether the panel looks at the queue. `stop` and `start` change it.
    path : str
        Folder of the snapshot.

    Examples
    --------
    >>> panel = watch_failures(service, every="1h")
    >>> panel.stop()
    >>> panel.running
    False
    """

    _esm = kit_module("watch")
    _css = script("kit.css")
    groups = synced(traitlets.List())
    state = synced(traitlets.Dict())
    _value_type = str

    def __init__(self, watch: Watch, service: Service, every: float) -> None:
        self._watch, self._service, self._every = watch, service, every
        self._stopping = threading.Event()
        self._looking = threading.Lock()
        self._thread: threading.Thread | None = None
        self.last: Look | None = None
        super().__init__("Watch", value=watch.path, redactor=service.redactor)
        self._show(watch.path)

    @property
    def path(self) -> str:
        """Return the folder of the snapshot."""
        return self._watch.path

    @property
    def running(self) -> bool:
        """Return whether the panel looks at the queue."""
        return self._thread is not None and not self._stopping.is_set()

    def start(self) -> None:
        """Look now, and again at each interval, on a thread of its own.

        Examples
        --------
        >>> panel = watch_failures(service, every="1h")
        >>> panel.stop()
        >>> panel.start()
        >>> panel.running
        True
        >>> panel.stop()
        """
        if self.running:
            return

        self._stopping = threading.Event()
        after, stopping = on_loop(), self._stopping

        def follow() -> None:
            while not stopping.is_set():
                self._look(after)
                stopping.wait(self._every)

        self._thread = threading.Thread(target=follow, daemon=True)
        self._thread.start()
        self._show_state()

    def stop(self) -> None:
        """Stop looking. A sync that is running ends first; the snapshot stays.

        Examples
        --------
        >>> watch_failures(service, every="1h").stop()
        """
        self._stopping.set()
        thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        self._show_state()

    def close(self) -> None:
        """Stop, and remove the panel from the page.

        Examples
        --------
        >>> watch_failures(service, every="1h").close()
        """
        self._stopping.set()
        super().close()

    def look(self) -> Look:
        """Look at the queue once, in this thread, and return what has changed.

        Examples
        --------
        >>> panel = watch_failures(service, every="1h")
        >>> panel.stop()
        >>> panel.look().added
        0
        """
        with self._looking:
            found = self._watch.look()
        self._arrived_look(found)
        return found

    def _look(self, after: Any) -> None:
        """Look once. An error is shown, and the next look tries again."""
        try:
            with self._looking:
                found = self._watch.look()
        except Exception as error:  # noqa: BLE001 - shown in the panel
            after(partial(self._failed, error))
        else:
            after(partial(self._arrived_look, found))

    def _failed(self, error: BaseException) -> None:
        if isinstance(error, ToolkitError):
            self.announce_error(f"{error} The next look tries again.")
        else:
            self.announce_error(f"Unexpected error: {type(error).__name__}")

    def _arrived_look(self, found: Look) -> None:
        with MESSAGE_LOCK, self.hold_sync():
            self.last = found
            self.groups = self._watch.board()
            kind = "problem" if found.problem else "note"
            self.announce(f"{datetime.now(UTC):%H:%M:%S} UTC: {found.summary}", kind)
            self._show_state()

    def _show_state(self) -> None:
        counts, empty = "", "The queue was not read yet."
        if self.last is not None:
            failures, groups = self.last.rows, len(self.groups)
            counts = f"{counted(failures, 'failure')} in {counted(groups, 'group')}"
            empty = "No failures: nothing is in the queue."
        elif self.running:
            empty = "Reading the queue …"

        self.state = {"running": self.running, "counts": counts, "empty": empty}

    def _process(self, content: dict[str, Any]) -> None:
        match content:
            case {"kind": "press", "name": "Stop"}:
                # A sync may be running: the page must not wait for it.
                self._stopping.set()
                self._show_state()
            case {"kind": "press", "name": "Start"}:
                self.start()
            case {"kind": "press", "name": "Mark as seen"}:
                self._watch.seen()
                self.groups = self._watch.board()

    def to_code(self) -> str:
        """Return Python that watches the same snapshot again."""

        def write(name: Code) -> Code:
            code = _CALL.write(name, path=self.path, every=f"{self._every:g}s")
            return fill("panel = {code}", code=code)

        # With another service of the notebook, the code would watch another queue.
        return str(named_code(write, self._service, "service"))

    def frame(self) -> pd.DataFrame:
        """Return the groups: `id`, `state`, `title`, `count`, `recent` (of 24 hours), `marked`."""
        columns = ["id", *_COLUMNS, "marked"]
        return pd.DataFrame(self.groups).reindex(columns=columns)

    def _static(self) -> tuple[pd.DataFrame, str]:
        return self.frame()[_COLUMNS], self.state["counts"] or self.state["empty"]

    def _show(self, value: str) -> None:  # noqa: ARG002 - the folder is in the code
        self._code.value = code_markup(self._short_code())

    def _call(self, job: Job, requested: Any) -> pd.DataFrame:  # noqa: ARG002 - a look has no options
        self.look()
        return self.frame()


def watch_failures(
    service: Service,
    path: str | os.PathLike[str] | None = None,
    *,
    every: Duration = "30s",
    notify: str | None = None,
    confirm: str | None = None,
) -> WatchPanel:
    """Watch the dead letter queue in a panel: new groups on top with a mark, counts and trends live.

    Each look syncs a snapshot, so that no entry is missed, even if the service restarts. Do not use it to
    wait for one fix: `check_fix` decides when it is safe to stop waiting.

    Parameters
    ----------
    service : Service
        From `connect`.
    path : str or path, optional
        Folder of the snapshot. If it exists, the watch continues from there, and groups that appeared
        meanwhile are marked. If omitted, a temporary folder is used, and every group counts as known.
    every : str or timedelta, default "30s"
        Time between two looks; at least a second.
    notify : str, optional
        Report groups that are new, back again or growing: ``"desktop"``, or the address of a webhook that
        accepts JSON with a `text`. Each state of a group is reported once. Text is masked.
    confirm : str, optional
        Host of the webhook, if it is not this machine.

    Returns
    -------
    WatchPanel
        It is running. `stop` ends it; `frame` returns the groups.

    Raises
    ------
    InputError
        If `every` is shorter than a second, or if the webhook is on another machine and `confirm` does not
        name the host.

    Examples
    --------
    >>> panel = watch_failures(service, every="1m")
    >>> panel.stop()
    """
    instance("service", service, Service, "a Service")
    seconds = parse_duration(every, name="every").total_seconds()
    if seconds < _LEAST_SECONDS:
        raise InputError(
            "watching failures", got=f"every={every!r}", expected="at least a second"
        )

    watch = Watch(service, path, send=sender_of(notify, confirm))
    panel = WatchPanel(watch, service, seconds)
    panel.start()

    return panel
