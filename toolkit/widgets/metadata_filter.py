"""Choosing vectors by their metadata: the filter language as text and as controls."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Final

import pandas as pd

from toolkit.base.arguments import text, wrong
from toolkit.base.errors import IncompleteLoadError, UnexpectedResultWarning
from toolkit.base.python_code import literal
from toolkit.drawing.wording import counted
from toolkit.filters.metadata import MetadataFilter, parse
from toolkit.loading.vectors import open_vectors
from toolkit.service.settings import Service
from toolkit.service.vectors import VectorParts
from toolkit.tables.arrow_input import FrameLike, conversion
from toolkit.tables.frame_filters import match_metadata, metadata_values, unknown_fields, unknown_texts
from toolkit.tables.frames import checked_frame, pandas_frame, to_frame
from toolkit.tables.receipt import receipt
from toolkit.tables.schemas import vectors
from toolkit.widgets.controls import note
from toolkit.widgets.metadata_editor import MetadataEditor
from toolkit.widgets.panel import Call, Cancelled, Job, SourcePanel

SAMPLE: Final = 1_000
"""How many vectors `look` reads to find their fields."""

COUNTED: Final = 20_000
"""How many vectors of the frame are counted: each edit of the filter reads them again."""


@dataclass(frozen=True)
class MatchedVectors:
    """The rows of a run, those matching the `requested` filter, and why they are not all."""

    requested: str
    read: pd.DataFrame
    chosen: pd.DataFrame
    error: IncompleteLoadError | None = None


class MetadataFilterWidget(SourcePanel):
    """Choose vectors by their metadata: a filter as text and as controls, and how many vectors match.

    Parameters
    ----------
    source : Service or pandas.DataFrame
        Source of the vectors. A frame with metadata is filtered here, immediately. A service is read when a
        button is pressed, never before.
    value : str or MetadataFilter, optional
        The filter at first. Default: none, every vector.
    namespace : str, default ""
        Of a service: whose vectors are read.
    frame : pandas.DataFrame, optional
        With a service: vectors loaded earlier, to find fields and count matches without requests.
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
    here, so it finds every match. A query filters with a budget and can find fewer. Vectors read are kept,
    so that other filters are counted without further requests.

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

    _styles = ("style.css", "vectors.css")
    _value_type = str
    _noun = "matching vector"

    def __init__(
        self,
        source: Service | FrameLike,
        *,
        value: str | MetadataFilter = "",
        namespace: str = "",
        frame: FrameLike | None = None,
        key: str | None = None,
    ) -> None:
        if not isinstance(source, Service):
            if pandas_frame(source) is None:
                expected = "a Service or a frame of vectors with metadata"
                raise wrong("source", source, expected, conversion(source))
            source = checked_frame("source", source, "metadata")
        if frame is not None:
            frame = checked_frame("frame", frame)
        self._namespace = text("namespace", namespace)
        requests: dict[str, Call] = {"Find fields": lambda: self._start(self._looked, self._learn)}
        given = self._checked(value)
        super().__init__(
            "Vectors to choose by metadata", source, frame, requests=requests, value=given, key=key
        )
        self.editor = MetadataEditor(self._read, redactor=self._redactor)
        if self._known is None and isinstance(self._kept.origin, MatchedVectors):
            self._known = self._kept.origin.read
        if self._known is not None:
            self.editor.learn(self._known)
        self._compose(self.editor, self._count, self._code, self.actions)

    def _checked(self, value: object) -> str:
        """Return a filter as its text, which must parse; spaces alone are no filter."""
        if isinstance(value, MetadataFilter):
            return value.text()
        if not isinstance(value, str):
            raise wrong("value", value, "text or a MetadataFilter")
        if not value.strip():
            return ""
        parse(value)
        return value

    def to_code(self) -> str:
        """Return the filter as a Python text: what ``filter=`` and `match_metadata` take."""
        return literal(self.value)

    def matching(self) -> str:
        """Return how many of the vectors known here match, as a sentence; no network is used."""
        if self._known is None:
            return "No vectors are loaded yet: Find fields reads some of them, Load reads all."
        some = self._known.head(COUNTED)
        first = "" if len(some) == len(self._known) else "the first "
        matches = len(_matching(some, self.value))
        sentence = f"{matches:,} of {first}{len(some):,} loaded vectors match"
        return "; ".join([sentence, *([] if matches else _mistakes(some, self.value))])

    def _matching(self, frame: pd.DataFrame) -> pd.DataFrame:
        return _matching(frame, self.value)

    def look(self) -> None:
        """Read some vectors of the service, to find their fields; blocks.

        When reading fails, the panel shows the error too, and uses the vectors read.
        """
        result = self._run_and_wait(self._looked, self._learn)
        if result.error is not None:
            raise result.error

    def _read(self) -> None:
        self._changed_to(self.editor.value)
        self._reflect()

    def _show(self, value: str) -> None:
        self.editor.value = value
        self._reflect()

    def _is_old(self) -> bool:
        """Return whether the result is that of another filter; of a frame, it follows the filter."""
        origin = None if self._service is None else self._kept.origin
        return isinstance(origin, MatchedVectors) and origin.requested != self.value

    def _reflect(self) -> None:
        if self._is_old() and self._job is None:
            self.say("The vectors loaded last are from an earlier filter.")
        self._show_counts()

    def _looked(self, job: Job, _: str) -> MatchedVectors:
        return self._call(job, "", SAMPLE)

    def _call(self, job: Job, requested: str, limit: int | None = None) -> MatchedVectors:
        """Return all that can be read, also where the load ends early; of a frame, the frame."""
        try:
            read = self._vectors(job, limit)
        except IncompleteLoadError as error:
            if not isinstance(error.partial, pd.DataFrame):
                raise
            read = error.partial
            error.partial = _matching(read, requested)
            return MatchedVectors(requested, read, error.partial, error)
        return MatchedVectors(requested, read, _matching(read, requested))

    def _vectors(self, job: Job, limit: int | None) -> pd.DataFrame:
        service, namespace = self._service, self._namespace
        if service is None:
            return self._empty() if self._known is None else self._known
        parts = VectorParts(vectors=False, data=False)
        return job.read(
            lambda options: open_vectors(service, options, namespace=namespace, parts=parts), limit=limit
        )

    def _settle(self, result: MatchedVectors) -> pd.DataFrame:
        if self._service is not None:
            self._kept.origin, self._known = result, result.read
            self.editor.learn(result.read)
            self._count.value = note(self.matching(), "count")
        if result.error is not None:
            raise result.error
        return super()._settle(result.chosen)

    def _learn(self, result: MatchedVectors) -> MatchedVectors:
        if self._known is None:
            self._known = result.read  # some vectors are no better to count than all that are here
        self.editor.learn(result.read)
        self._reflect()
        if result.error is None or isinstance(result.error.__cause__, Cancelled):
            self.say(f"Fields are those of {counted(len(result.read), 'vector')}")
        else:  # not `_failed`: vectors read for their fields are no result
            self.complain(result.error)
        return result

    def _arrived(self, frame: pd.DataFrame) -> str:
        sentence = f"{counted(len(frame), 'vector')} chosen"
        load = self._kept.origin
        if "receipt" in frame.attrs:
            read, mistakes = receipt(frame), []
            if isinstance(load, MatchedVectors):
                read = receipt(load.read)  # the number of matches is shown already
                mistakes = _mistakes(load.read, load.requested) if frame.empty else []
            sentence = f"{len(frame):,} of {read.rows:,} vectors match. {read.verdict}"
            sentence += "".join(f". Nothing matches: {text.removesuffix('.')}" for text in mistakes)
        return f"{sentence}. They are from an earlier filter." if self._is_old() else sentence

    def _empty(self) -> pd.DataFrame:
        return to_frame(vectors().empty_table())


def _mistakes(frame: pd.DataFrame, text: str) -> list[str]:
    """Fields and values of a filter without matches that no vector has."""
    if not text:
        return []
    wanted, metadata = parse(text), list(metadata_values(frame["metadata"]))
    return unknown_fields(metadata, wanted) or unknown_texts(metadata, wanted)


def _matching(frame: pd.DataFrame, text: str) -> pd.DataFrame:
    with warnings.catch_warnings():
        # the panel counts what matches and offers the fields that there are
        warnings.simplefilter("ignore", UnexpectedResultWarning)
        return frame[match_metadata(frame, text)] if text else frame
