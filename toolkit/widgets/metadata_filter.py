"""Choose vectors by their metadata, with the filter language as text and as rows."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import partial
from typing import Final

import pandas as pd
import traitlets

from toolkit.base.arguments import text, wrong
from toolkit.base.errors import IncompleteLoadError, UnexpectedResultWarning
from toolkit.base.python_code import literal
from toolkit.drawing.wording import counted
from toolkit.filters.metadata import MetadataFilter, parse
from toolkit.loading.vectors import open_vectors
from toolkit.service.settings import Service
from toolkit.service.vectors import VectorParts
from toolkit.tables.arrow_input import FrameLike, conversion
from toolkit.tables.frames import checked_frame, pandas_frame, to_frame
from toolkit.tables.metadata_fields import match_metadata, metadata_values
from toolkit.tables.receipt import get_receipt
from toolkit.tables.schemas import vectors
from toolkit.tables.unmatched_conditions import explain_no_match
from toolkit.widgets.filter_editor import FilterEditor
from toolkit.widgets.form_panel import RowsPanel
from toolkit.widgets.page_panel import kit_module
from toolkit.widgets.page_parts import synced
from toolkit.widgets.panel import RESULT, Call, Cancelled, Job, with_shortfall

SAMPLE: Final = 10_000
"""How many vectors `look` reads to find their fields: about ten requests."""

COUNTED: Final = 20_000
"""Number of vectors of the frame that are counted. Each edit of the filter reads them again."""


@dataclass(frozen=True)
class MatchedVectors:
    """The rows of a run, the rows that match the `requested` filter, and the error if rows are missing."""

    requested: str
    read: pd.DataFrame
    chosen: pd.DataFrame
    error: IncompleteLoadError | None = None


class MetadataFilterPanel(RowsPanel):
    """Choose vectors by their metadata: a filter as text and as rows, and how many vectors match.

    Parameters
    ----------
    source : Service or pandas.DataFrame
        Source of the vectors. A frame with metadata is filtered here, immediately. A service is read when a
        button is pressed, never before.
    value : str or MetadataFilter, optional
        Initial filter. If omitted, every vector is chosen.
    namespace : str, default "all"
        Namespace to read, if `source` is a service; ``""`` is the default namespace.
    frame : pandas.DataFrame, optional
        Vectors that you loaded earlier, to find fields and count matches without requests to a service.
    key : str, optional
        Keeps value and result when the cell is run again in the same kernel.

    Attributes
    ----------
    value : str
        The filter in the language of the service; empty text is no filter. Readable, settable (a
        `MetadataFilter` becomes text), observable. It always parses.

    Raises
    ------
    FilterSyntaxError
        If the value does not parse.
    InputError
        If the source or the value has another type, or if the frame has no metadata.

    Notes
    -----
    The service cannot list vectors by a filter. Therefore `run` reads the ids and metadata of the namespace
    and matches them here, so it finds every match. A query filters with a budget and can find fewer. The
    vectors are kept, so you can count matches of other filters without further requests.

    Examples
    --------
    >>> vectors = tk.load_vectors(service, limit=250)
    >>> chosen = MetadataFilterPanel(vectors)
    >>> chosen.value = "tags CONTAINS 'eu' AND city != 'Izmir'"
    >>> len(chosen.frame()) == int(tk.match_metadata(vectors, chosen.value).sum())
    True
    >>> print(chosen.to_code())
    "tags CONTAINS 'eu' AND city != 'Izmir'"
    """

    _esm = kit_module("metadata")
    conditions = synced(traitlets.Dict())
    _value_type = str
    _noun = "matching vector"

    def __init__(
        self,
        source: Service | FrameLike,
        *,
        value: str | MetadataFilter = "",
        namespace: str = "all",
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
        requests: dict[str, Call] = {
            "Find fields": lambda: self._start(self._looked, self._learn)
        }
        given = self._checked(value)
        super().__init__(
            "Vectors to choose by metadata",
            source,
            frame,
            requests=requests,
            value=given,
            key=key,
        )
        self.editor = FilterEditor(
            self,
            self._read,
            show=partial(self._update, "conditions"),
            redactor=self._redactor,
        )
        if self._known is None and isinstance(self._kept.origin, MatchedVectors):
            self._known = self._kept.origin.read
        if self._known is not None:
            self.editor.learn(self._known)
        self._begin()

    def _checked(self, value: object) -> str:
        """Return the text of a filter, which must parse. Spaces alone are no filter."""
        if isinstance(value, MetadataFilter):
            return value.text()
        if not isinstance(value, str):
            raise wrong("value", value, "text or a MetadataFilter")
        if not value.strip():
            return ""

        parse(value)
        return value

    def to_code(self) -> str:
        """Return the filter as a Python string for ``filter=`` and `match_metadata`."""
        return literal(self.value)

    def matching(self) -> str:
        """Return a sentence with the number of loaded vectors that match. No request is sent."""
        if self._known is None:
            place = "the default namespace"
            if self._namespace == "all":
                place = "all namespaces"
            elif self._namespace:
                place = f"the namespace {self._namespace!r}"

            return f"No vectors are loaded yet: Find fields reads some vectors of {place}, Load reads all."

        some = self._known.head(COUNTED)
        first = "" if len(some) == len(self._known) else "the first "
        matches = len(_matching(some, self.value))
        sentence = f"{matches:,} of {first}{len(some):,} loaded vectors match"

        mistakes = [] if matches else _mistakes(some, self.value)
        return with_shortfall("; ".join([sentence, *mistakes]), self._known)

    def _matching(self, frame: pd.DataFrame) -> pd.DataFrame:
        return _matching(frame, self.value)

    def look(self) -> None:
        """Read some vectors of the service to find their fields. Block until they are read.

        If reading fails, the panel also shows the error, and uses the vectors that were read.
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
        """Return True if the result belongs to another filter. Rows of a frame always follow the filter."""
        origin = None if self._service is None else self._kept.origin
        return isinstance(origin, MatchedVectors) and origin.requested != self.value

    def _reflect(self) -> None:
        if self._is_old() and self._job is None:
            self.announce("The vectors loaded last are from an earlier filter.")
        self._show_counts()

    def _looked(self, job: Job, _: str) -> MatchedVectors:
        return self._call(job, "", SAMPLE)

    def _call(
        self, job: Job, requested: str, limit: int | None = None
    ) -> MatchedVectors:
        """Return the vectors that can be read, even if the load ends early. A frame is returned whole."""
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
            lambda options: open_vectors(
                service, options, namespace=namespace, parts=parts
            ),
            limit=limit,
        )

    def _settle(self, result: MatchedVectors) -> pd.DataFrame:
        if self._service is not None:
            self._kept.origin, self._known = result, result.read
            self.editor.learn(result.read)
            self.matches = self.matching()

        if result.error is not None:
            raise result.error

        return super()._settle(result.chosen)

    def _learn(self, result: MatchedVectors) -> MatchedVectors:
        if self._known is None:
            self._known = result.read  # but never replace all vectors by some of them
        self.editor.learn(result.read)
        self._reflect()

        if result.error is None or isinstance(result.error.__cause__, Cancelled):
            first = ""
            if len(result.read) == SAMPLE:
                first = "the first "
            self.announce(
                f"Fields are those of {first}{counted(len(result.read), 'vector')}"
            )
        else:  # not `_failed`: vectors read for their fields are no result
            self.announce_error(result.error)

        return result

    def _arrived(self, frame: pd.DataFrame) -> str:
        named = ""
        if len(frame):
            named = f" {RESULT}"
        sentence = f"{counted(len(frame), 'vector')} chosen.{named}"
        load = self._kept.origin

        if "receipt" in frame.attrs:
            read, mistakes = get_receipt(frame), []
            if isinstance(load, MatchedVectors):
                read = get_receipt(load.read)  # the number of matches is shown already
                mistakes = _mistakes(load.read, load.requested) if frame.empty else []

            sentence = (
                f"{len(frame):,} of {read.rows:,} vectors match.{named} {read.verdict}"
            )
            sentence += "".join(
                f". Nothing matches: {text.removesuffix('.')}" for text in mistakes
            )

        if self._is_old():
            return f"{sentence.removesuffix('.')}. They are from an earlier filter."

        return sentence

    def _empty(self) -> pd.DataFrame:
        return to_frame(vectors().empty_table())


def _mistakes(frame: pd.DataFrame, text: str) -> list[str]:
    """Return why a filter matches no vector."""
    if not text:
        return []

    metadata = metadata_values(frame["metadata"])
    return explain_no_match(metadata, parse(text), only_mistakes=False)


def _matching(frame: pd.DataFrame, text: str) -> pd.DataFrame:
    with warnings.catch_warnings():
        # the panel counts matches and offers known fields, so a warning adds nothing
        warnings.simplefilter("ignore", UnexpectedResultWarning)
        return frame[match_metadata(frame, text)] if text else frame
