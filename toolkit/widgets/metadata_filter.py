"""Choosing vectors by their metadata: the filter language as text and as controls."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import ipywidgets as widgets
import pandas as pd
import traitlets

from toolkit.analysis.wording import counted
from toolkit.arguments import text
from toolkit.errors import IncompleteLoadError, InputError, UnexpectedResultWarning
from toolkit.filters.metadata import MetadataFilter, parse
from toolkit.loading.vectors import open_vectors
from toolkit.receipt import receipt
from toolkit.redaction import escape_html
from toolkit.settings.service import Service
from toolkit.tables.frames import checked_frame, to_frame
from toolkit.tables.matching import match_metadata, metadata_values, unknown_fields, unknown_texts
from toolkit.tables.schemas import vectors
from toolkit.widgets.controls import Actions, note
from toolkit.widgets.javascript import script
from toolkit.widgets.metadata_editor import MetadataEditor
from toolkit.widgets.panel import Panel
from toolkit.widgets.work import Job, Stopped

LOOKED_AT: Final = 1_000
"""How many vectors `look` reads to learn which fields there are."""

COUNTED: Final = 20_000
"""How many of the vectors known here are counted: while somebody edits, every filter reads them again."""


@dataclass(frozen=True)
class Load:
    """What a run gave.

    Attributes
    ----------
    asked : str
        The filter that it began with.
    read, chosen : pandas.DataFrame
        All that was read, and what of it matches.
    """

    asked: str
    read: pd.DataFrame
    chosen: pd.DataFrame


class MetadataFilterWidget(Panel):
    """Choose vectors by their metadata: a filter as text and as controls, and how many vectors match.

    Parameters
    ----------
    source : Service or pandas.DataFrame
        Where the vectors are. A frame with metadata is filtered here, at once. A service is asked when a
        button is pressed, never before.
    value : str or MetadataFilter, optional
        The filter at first. Default: none, every vector.
    namespace : str, default ""
        Of a service: whose vectors are read.
    frame : pandas.DataFrame, optional
        Beside a service: vectors loaded earlier, to learn the fields from and count matches without asking.
    key : str, optional
        Keeps value and result when the cell is run again in the same kernel.

    Attributes
    ----------
    value : str
        The filter in the service's own language; empty is no filter. Readable, settable (a `MetadataFilter`
        becomes its text), observable. It always parses.

    Raises
    ------
    FilterSyntaxError
        For a value that does not parse.
    InputError
        For a source or value of another kind, or a frame without metadata.

    Notes
    -----
    The service has no listing by filter: `run` reads the namespace's ids and metadata and matches them
    here, so it finds every match. A query filters with a budget and can find fewer. What was read is kept,
    so that other filters are counted without asking again.

    Examples
    --------
    >>> vectors = tk.load_vectors(service, limit=250)
    >>> chosen = MetadataFilterWidget(vectors)
    >>> chosen.value = "tags CONTAINS 'eu' AND city != 'Izmir'"
    >>> len(chosen.frame()) == int(tk.match_metadata(vectors, chosen.value).sum())
    True
    >>> print(chosen.to_code())
    "tags CONTAINS 'eu' AND city != 'Izmir'"
    """

    def __init__(
        self,
        source: Service | pd.DataFrame,
        *,
        value: str | MetadataFilter = "",
        namespace: str = "",
        frame: pd.DataFrame | None = None,
        key: str | None = None,
    ) -> None:
        if not isinstance(source, Service | pd.DataFrame):
            raise InputError(
                "making a MetadataFilterWidget",
                got=f"source: {type(source).__name__}",
                expected="a Service or a frame of vectors with metadata",
            )
        if isinstance(source, pd.DataFrame):
            checked_frame("source", source, "metadata")
        if frame is not None and not isinstance(frame, pd.DataFrame):
            raise InputError(
                "making a MetadataFilterWidget",
                got=f"frame: {type(frame).__name__}",
                expected="a frame of vectors with metadata",
            )
        self._service = source if isinstance(source, Service) else None
        self._known = source if isinstance(source, pd.DataFrame) else frame
        self._namespace = text("namespace", namespace)
        redactor = self._service.redactor if self._service is not None else None
        super().__init__("Vectors to choose by metadata", value=checked(value), key=key, redactor=redactor)
        self.editor = MetadataEditor(self._read, redactor=self._redactor)
        self.actions = Actions(self._named_actions(), self.hear)
        self._count, self._code = widgets.HTML(), widgets.HTML()
        if self._known is None and isinstance(self._kept.origin, Load):
            self._known = self._kept.origin.read
        if self._known is not None:
            self.editor.learn(self._known)
        self._compose(
            widgets.HTML(f"<style>{script('vectors.css')}</style>").add_class("tk-style"),
            widgets.HTML(f'<div class="tk-head">{escape_html(self._title)}</div>'),
            self.editor.view,
            self._count,
            self._code,
            self.actions.view,
        )

    @traitlets.validate("value")
    def _checked(self, proposal: dict[str, Any]) -> str:
        return checked(proposal["value"])

    def _named_actions(self) -> dict[str, Callable[[], object]]:
        if self._service is None:
            return {"Apply": self._start_run, "Clear": self.clear}
        return {
            "Load": self._start_run,
            "Find fields": lambda: self._start(self._looked, self._learn),
            "Cancel": self.cancel,
            "Clear": self.clear,
        }

    def to_code(self) -> str:
        """The filter as a Python text: what ``filter=`` and `match_metadata` take."""
        return repr(self.value)

    def clear(self) -> None:
        """Choose every vector."""
        self.value = ""

    def _read(self) -> None:
        self._changed_to(self.editor.value)
        self._reflect()

    def _show(self, value: str) -> None:
        self.editor.value = value
        self._reflect()

    def _is_old(self) -> bool:
        """Whether the result is that of another filter; of a frame, it follows the filter."""
        origin = self._kept.origin
        return self._service is not None and isinstance(origin, Load) and origin.asked != self.value

    def _reflect(self) -> None:
        if self._is_old() and self._job is None:
            self.say("The vectors loaded last are those of an earlier filter.")
        self._code.value = f'<code class="tk-code">{escape_html(self._redactor.code(self.to_code()))}</code>'
        self._count.value = note(self.matching(), "count")

    def matching(self) -> str:
        """How many of the vectors known here match, as a sentence; no network is used."""
        if self._known is None:
            return "No vectors are loaded yet: Find fields reads some of them, Load reads all."
        some = self._known.head(COUNTED)
        first = "" if len(some) == len(self._known) else "the first "
        found = len(_matching(some, self.value))
        sentence = f"{found:,} of {first}{len(some):,} loaded vectors match"
        return sentence + "".join(f"; {one}" for one in ([] if found else _mistakes(some, self.value)))

    # asking

    def frame(self) -> pd.DataFrame:
        """The vectors chosen: of a frame those that match now, of a service those that `run` loaded last.

        Returns
        -------
        pandas.DataFrame
            With the columns of the frame, or those of `load_vectors`. The network is never touched.
        """
        if self._service is None and self._known is not None:
            return _matching(self._known, self.value)
        return super().frame()

    def look(self) -> None:
        """Read some vectors of the service, to learn the fields; waits.

        Raises
        ------
        ServiceError
            When reading fails; the panel shows it too, and learns from what was read.
        """
        try:
            found = self._looked(Job(self._progressed))
        except (Exception, Stopped) as error:
            self._failed(error)
            raise
        self._learn(found)
        if found[1] is not None:
            raise found[1]

    def _call(self, job: Job, value: str) -> pd.DataFrame:
        # of `run` alone, on the thread of who called it: a button's call settles when it is back
        load, error = self._load(job, value)
        self._remember(load)
        if error is not None:
            raise error
        return load.chosen

    def _start_run(self) -> None:
        value = self.value
        self._start(lambda job: self._load(job, value), self._settle)

    def _load(self, job: Job, value: str) -> tuple[Load, IncompleteLoadError | None]:
        """What a run reads, and why that is not all."""
        read, error = self._read_of(job, None)
        load = Load(value, read, _matching(read, value))
        if error is not None:
            error.partial = load.chosen
        return load, error

    def _settle(self, found: tuple[Load, IncompleteLoadError | None]) -> None:
        load, error = found
        self._remember(load)
        if error is not None:
            self._failed(error)
        else:
            self._take(load.chosen)

    def _remember(self, load: Load) -> None:
        if self._service is None:
            return
        self._kept.origin, self._known = load, load.read
        self.editor.learn(load.read)
        self._count.value = note(self.matching(), "count")

    def _looked(self, job: Job) -> tuple[pd.DataFrame, IncompleteLoadError | None]:
        return self._read_of(job, LOOKED_AT)

    def _read_of(self, job: Job, limit: int | None) -> tuple[pd.DataFrame, IncompleteLoadError | None]:
        """All that was read, unfiltered, also where the load ended early; of a frame, the frame."""
        try:
            return self._vectors(job, limit), None
        except IncompleteLoadError as error:
            if not isinstance(error.partial, pd.DataFrame):
                raise
            return error.partial, error

    def _vectors(self, job: Job, limit: int | None) -> pd.DataFrame:
        service, namespace = self._service, self._namespace
        if service is None:
            return self._empty() if self._known is None else self._known
        return job.read(
            lambda progress: open_vectors(
                service, namespace=namespace, limit=limit, include_vectors=False, include_data=False,
                progress=progress,
            )
        )  # fmt: skip

    def _learn(self, found: tuple[pd.DataFrame, IncompleteLoadError | None]) -> None:
        frame, error = found
        if self._known is None:
            self._known = frame  # some vectors are no better to count than all that are here
        self.editor.learn(frame)
        self._reflect()
        if error is None:
            self.say(f"Fields are those of {counted(len(frame), 'vector')}")
        else:  # not `_failed`: what was read for its fields is no result
            self.say(self._redactor.text(str(error)), "problem")

    def _arrived(self, frame: pd.DataFrame) -> str:
        found = f"{counted(len(frame), 'vector')} chosen"
        if "receipt" in frame.attrs:
            read = receipt(frame)
            mistakes: list[str] = []
            if isinstance(load := self._kept.origin, Load):
                read = receipt(load.read)  # of all that was read: how many match is said already
                mistakes = _mistakes(load.read, load.asked) if frame.empty else []
            found = f"{len(frame):,} of {read.rows:,} vectors match. {read.verdict}"
            found += "".join(f". Nothing matches: {one.removesuffix('.')}" for one in mistakes)
        return f"{found}. They are those of an earlier filter." if self._is_old() else found

    def _empty(self) -> pd.DataFrame:
        return to_frame(vectors().empty_table())


def checked(value: object) -> str:
    """A filter as its text, when it is one; spaces alone are no filter.

    Raises
    ------
    FilterSyntaxError
        When it does not parse.
    InputError
        When it is no text and no `MetadataFilter`.
    """
    if isinstance(value, MetadataFilter):
        return value.text()
    if not isinstance(value, str):
        raise InputError(
            "setting a metadata filter",
            got=f"{type(value).__name__} for value",
            expected="text or a MetadataFilter",
        )
    if not value.strip():
        return ""
    parse(value)
    return value


def _mistakes(frame: pd.DataFrame, text: str) -> list[str]:
    """What a filter that matches none of these vectors asks for and none of them has."""
    if not text:
        return []
    wanted, metadata = parse(text), list(metadata_values(frame["metadata"]))
    return unknown_fields(metadata, wanted) or unknown_texts(metadata, wanted)


def _matching(frame: pd.DataFrame, text: str) -> pd.DataFrame:
    with warnings.catch_warnings():
        # the panel counts what matches and offers the fields that there are
        warnings.simplefilter("ignore", UnexpectedResultWarning)
        return frame[match_metadata(frame, text)] if text else frame
