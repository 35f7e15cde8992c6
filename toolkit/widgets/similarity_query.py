"""Query an index by similarity: a `VectorQuery` as controls, and the hits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import pandas as pd
import traitlets

from toolkit.base.arguments import instance, text
from toolkit.base.errors import InputError
from toolkit.drawing.wording import counted
from toolkit.filters.query import VectorQuery
from toolkit.loading.fetching import ABSENT, fetch_vectors
from toolkit.loading.queries import run_queries
from toolkit.secrets.redaction import Redactor
from toolkit.service.settings import Service
from toolkit.service.vectors import IndexInfo, describe_index
from toolkit.tables.arrow_input import FrameLike
from toolkit.tables.frames import checked_frame, to_frame
from toolkit.tables.schemas import hits
from toolkit.vectors.scores import score_moves
from toolkit.widgets.form_panel import FormPanel
from toolkit.widgets.page_panel import kit_module
from toolkit.widgets.page_parts import script, synced
from toolkit.widgets.panel import RESULT, Job, JobProgress
from toolkit.widgets.similarity_controls import (
    QueryOptions,
    QuerySource,
    Question,
    query_source,
    row_of,
    vectors_of,
)
from toolkit.widgets.similarity_results import HitResults, scope

_LONGEST: Final = 400  # characters of code that are shown; a query by a vector has more
_NOT_SENT: Final = "No query was sent: first correct the fields marked above."

Request = tuple[VectorQuery | None, tuple[Question, Mapping[str, Any]] | None]
"""The value, and the pending source with the options, if the vectors are not fetched yet."""


@dataclass(frozen=True)
class QueryResult:
    """The result of a run: `hits`, always with data and metadata, and vectors `fetched` for an id."""

    request: VectorQuery
    hits: pd.DataFrame
    fetched: Question | None
    mistakes: list[str]


class QueryPanel(FormPanel):
    """Query an index by similarity, view the scores, query again by a hit, compare two queries.

    Parameters
    ----------
    service : Service
        The service is queried when you press a button, choose a hit, or press Enter in a line other than the
        filter.
    value : VectorQuery, optional
        Initial query. If omitted, none.
    frame : pandas.DataFrame, optional
        Vectors loaded earlier (`load_vectors`), to query by a row, look up ids, and complete the filter.
    key : str, optional
        Keeps value and result when the cell is run again in the same kernel.

    Attributes
    ----------
    value : VectorQuery or None
        None until you fill a source. Readable, settable, observable.

    Raises
    ------
    InputError
        If the service, the value or the frame has another type.

    Notes
    -----
    A stored id is replaced by the vector, because queries contain vectors and text, but no ids. The vector is
    read from the frame if it contains the id in the queried namespace, and otherwise fetched by the query.
    Until then the value is None. Afterwards it is the query by the fetched vector, so that the code repeats
    the same query even if the stored vector changes. A fetched vector is used again until you fetch another.

    Pin keeps a result; later results are shown next to it with rank changes. Compare ranks, not scores:
    scores of two models or modes are not comparable.

    Examples
    --------
    >>> panel = QueryPanel(service)
    >>> panel.value = tk.VectorQuery(data="the certificate has expired", top_k=3)
    >>> len(panel.frame()), len(panel.run())
    (0, 3)
    >>> print(panel.to_code())
    tk.VectorQuery(data='the certificate has expired', top_k=3)
    """

    _esm = kit_module("query")
    _css = f"{FormPanel._css}{script('query.css')}"  # noqa: SLF001 - of the base class
    ways = synced(traitlets.List(traitlets.Unicode()))
    way = synced(traitlets.Unicode())
    source_note = synced(traitlets.Unicode())
    conditions = synced(traitlets.Dict())
    hits = synced(traitlets.Dict())
    hits_remark = synced(traitlets.Unicode())
    _mistakes: Sequence[str] = ()  # likely mistakes of a query without hits
    _listeners: tuple[Callable[[pd.DataFrame], object], ...] = ()

    def __init__(
        self,
        service: Service,
        *,
        value: VectorQuery | None = None,
        frame: FrameLike | None = None,
        key: str | None = None,
    ) -> None:
        self._service = instance("service", service, Service, "a Service")
        if frame is not None:
            frame = checked_frame("frame", frame, "id")
        self._pending: tuple[Question, dict[str, Any]] | None = None
        self._pinned: pd.DataFrame | None = None
        super().__init__(
            "Similar vectors", value=value, key=key, redactor=service.redactor
        )
        self.source = QuerySource(
            self, self._read, self._entered, frame=frame, redactor=self._redactor
        )
        self.options = QueryOptions(self, self._read, redactor=self._redactor)
        self.options.top_k.entered = self.options.namespace.entered = (
            self._option_entered
        )
        self._fields_known = frame is not None and "metadata" in frame.columns
        if frame is not None and self._fields_known:
            self.options.filter.learn(frame)
        if frame is not None and "namespace" in frame.columns:
            self.options.begin_in([str(name) for name in frame["namespace"].unique()])
        calls = {
            "Ask": self._start_run,
            "Pin": self.pin,
            "Look at index": lambda: self._start(self._looked, self._learn),
            "Clear": self.clear,
            # the last ones, because they are hidden if they can do nothing
            "Unpin": self.unpin,
            "Cancel": self.cancel,
        }
        self.add_buttons(calls, main="Ask")
        # Ids inside of SVG have to be unique in a page, and a notebook can have several panels.
        prefix = f"tk-{self.model_id[:12]}"
        self.results = HitResults(
            redactor=self._redactor,
            prefix=prefix,
            send=partial(self.set_trait, "hits"),
        )
        self._begin()
        if self._kept.frame is not None:
            self.results.show(self._kept.origin)

    def _checked(self, value: Any) -> VectorQuery | None:
        if value is None and self._pending is not None and not self._reading:
            # already None, so observers are not called: an id that is not fetched yet
            self._show(None)

        return (
            None
            if value is None
            else instance("value", value, VectorQuery, "a VectorQuery")
        )

    def to_code(self) -> str:
        """Return Python that makes the query again, with whole vectors, or ``None`` without a source."""
        return "None" if self.value is None else super().to_code()

    def clear(self) -> None:
        """Clear the source and all options but the namespace."""
        self.options.clear()
        self.value = None
        self._show(None)

    def look(self) -> IndexInfo:
        """Read the kind and the namespaces of the index; blocks. An error is also shown in the panel."""
        return self._run_and_wait(lambda *_: describe_index(self._service), self._learn)

    def ask_from(self, position: int) -> None:
        """Query by the hit at an index of the last result, from 0, as a click on it does."""
        frame = self.frame()
        if not 0 <= position < len(frame):
            expected = f"an index among {counted(len(frame), 'hit')}, from 0"
            raise InputError("querying by a hit", got=str(position), expected=expected)

        self._ask_from(frame, position)

    def ask_stored(self, id: str, *, namespace: str = "") -> None:  # noqa: A002 - the service's own name
        """Query by a stored id, as entering it does. The vector is read from the frame, or else fetched."""
        self._ask(
            Question(stored=text("id", id, empty=False)), text("namespace", namespace)
        )

    def on_result(self, call: Callable[[pd.DataFrame], object]) -> None:
        """Call a function with every new result, and at once with the last result, if any."""
        self._listeners += (call,)
        if self._kept.frame is not None:
            call(self._kept.frame)

    @property
    def redactor(self) -> Redactor:
        """Return the redactor of this panel."""
        return self._redactor

    def pin(self) -> None:
        """Keep the last result to compare the next results with."""
        if self._kept.frame is None:
            self.announce(
                "There is no result to pin yet: run a query first.", "problem"
            )
            return

        self._pinned = self._kept.frame
        self._show_idle()
        self.results.pin(self._kept.origin)
        self.announce("Pinned. The next result is shown next to it, with rank changes.")

    def unpin(self) -> None:
        """Clear the pinned result."""
        self._pinned = None
        self._show_idle()
        self.results.pin(None)
        self.announce("Nothing is pinned.")

    def _idle_buttons(self) -> list[str]:
        unpin = ["Unpin"] if self._pinned is None else []
        return [*super()._idle_buttons(), *unpin]

    def pinned(self) -> pd.DataFrame | None:
        """Return the pinned result, or None."""
        return self._pinned

    def moves(self) -> pd.DataFrame:
        """Return the rank changes between the pinned result and the last one.

        Returns
        -------
        pandas.DataFrame
            One row per hit of either result, by query and best rank: `query`, `namespace`, `id`,
            `rank_before`, `rank_after`, `score_before`, `score_after` (missing if the hit is in only one
            result), `moved` (ranks gained).

        Raises
        ------
        InputError
            If nothing is pinned.
        """
        if self._pinned is None:
            raise InputError(
                "comparing results", got="nothing pinned", expected="a pinned result"
            )

        return score_moves(self._pinned, self.frame())

    def _short_code(self) -> str:
        code = self.to_code()
        return self._redactor.code(code if len(code) <= _LONGEST else repr(self.value))

    def _entered(self) -> None:
        """Run the query, as Enter in the source field does, unless the field has a mistake."""
        self._start_unless(mistaken=self.source.mistaken)

    def _option_entered(self) -> None:
        """Run the query, as Enter in topK or the namespace does, unless topK is no number."""
        self._start_unless(mistaken=self.options.top_k.problem is not None)

    def _start_unless(self, *, mistaken: bool) -> None:
        if mistaken:
            self.announce(_NOT_SENT, "problem")
        else:
            self._start_run()

    def _read(self) -> bool:
        """Make the value of the controls. If they do not fit together, explain it and return False."""
        try:
            options = self.options.read()
            question = self.source.question(options["namespace"])
            pending = question is not None and question.pending
            value = None if question is None or pending else question.query(options)
        except InputError as error:
            if self.options.top_k.problem is None:
                self.source.explain(str(error))
            return False

        self.source.explain(None)
        self._pending = (
            (question, options) if question is not None and pending else None
        )
        self._changed_to(value)
        self._reflect(question)

        return True

    def _show(self, value: VectorQuery | None) -> None:
        question = None if value is None else query_source(value)
        self._pending = None
        self.source.show(question)
        if value is not None:
            self.options.show(value)
        self._reflect(question)

    def _reflect(self, question: Question | None) -> None:
        self.source.describe(question)
        self.options.fit(by_text=question is not None and question.data is not None)
        self._show_code()
        if self._mark_old() and self._job is None:
            self.announce("The hits shown are from an earlier query.")

    def _mark_old(self) -> bool:
        """Show in the heading of the hits whether they are of an earlier query."""
        frame = self._kept.frame
        old = frame is not None and self._is_old(frame)
        self.hits_remark = "; from an earlier query" if old else ""

        return old

    def _is_old(self, frame: pd.DataFrame) -> bool:
        return self.value is None or self.value.scope() != scope(frame)

    def _process_other(self, content: dict[str, Any]) -> None:
        if content.get("kind") == "ask":
            hit = self.results.hit(content.get("table"), content.get("position"))
            if hit is not None:
                self._ask_from(*hit)

    def _request(self) -> Request:
        return self.value, self._pending

    def _call(self, job: Job, request: Request) -> QueryResult:
        value, pending = request
        fetched = None
        if pending is not None:
            question, options = pending
            fetched = job.wait(
                lambda: self._fetched(str(question.stored), options["namespace"])
            )
            value = fetched.query(options)

        if value is None:
            raise InputError(
                "querying similar vectors",
                got="no text, vector or id",
                expected="text, a vector, a stored id or a row",
                next_step="Fill one of the fields, or set the panel's value.",
            )

        # The table describes each hit by data or metadata, whatever the query includes. `_settle`
        # drops the columns that were not requested.
        complete = replace(value, include_data=True, include_metadata=True)
        hits, mistakes = job.wait(lambda: run_queries(self._service, [complete]))
        hits.attrs["queries"] = [value.scope()]

        return QueryResult(value, hits, fetched, mistakes)

    def _fetched(self, identity: str, namespace: str) -> Question:
        fetched = fetch_vectors(
            self._service,
            [identity],
            namespace=namespace,
            include_metadata=False,
            include_data=False,
        )
        if fetched["vector_problem"].iloc[0] == ABSENT:
            raise InputError(
                f"querying by the vector of {identity!r}",
                got=f"no such id in {f'namespace {namespace!r}' if namespace else 'the default namespace'}",
                expected="the id of a stored vector",
                next_step="Look at index names the namespaces.",
            )

        return vectors_of(row_of(fetched, 0), "the service")

    def _settle(self, result: QueryResult) -> pd.DataFrame:
        self._kept.origin, self._mistakes, fetched = (
            result.hits,
            result.mistakes,
            result.fetched,
        )
        if fetched is not None:
            self.source.learn(result.request.namespace, fetched)
            if self._pending is not None and self._pending[0].stored == fetched.stored:
                self._read()

        extra = [
            name
            for name in ("data", "metadata")
            if not getattr(result.request, f"include_{name}")
        ]
        return super()._settle(result.hits.drop(columns=extra, errors="ignore"))

    def _arrived(self, frame: pd.DataFrame) -> str:
        hits = self._kept.origin
        self.results.show(hits)
        for call in self._listeners:
            call(frame)
        if not self._fields_known and "metadata" in hits.columns and len(hits):
            self.options.filter.learn(hits)
        sentence = counted(len(frame), "hit")
        if len(frame) < scope(frame).get("top_k", 10) and scope(frame).get("filter"):
            sentence += "; a filter that few vectors pass can find fewer than there are"
        remark = ""
        if self.source.mistaken or self.options.mistaken:
            remark = " Fields marked above as mistakes were not part of the query."
        later = "; of an earlier query" if self._mark_old() else ""
        named = ""
        if len(frame):
            named = f" {RESULT}"
        return " ".join([f"{sentence}{later}.{named}{remark}", *self._mistakes])

    def _progressed(self, progress: JobProgress) -> None:
        self.announce(
            "Searching …"
            if progress.seconds < 1
            else f"Searching for {progress.seconds:.0f} s …"
        )

    def _looked(self, job: Job, _: Request) -> IndexInfo:
        return job.wait(lambda: describe_index(self._service))

    def _learn(self, info: IndexInfo) -> IndexInfo:
        self.options.learn(info)
        self.source.learn_index(info)
        self._reflect(
            self._pending[0]
            if self._pending
            else self.value and query_source(self.value)
        )
        dense = (
            f", {info.dimension} dimensions, {info.similarity}"
            if info.dimension
            else ""
        )
        spaces = ", ".join(
            f"{name or 'default'} ({count:,})"
            for name, count in info.namespaces.items()
        )
        model = info.model or "none, so texts are not accepted"
        described = (
            f"{info.kind}{dense}; model: {model}; namespaces: {spaces or 'none'}"
        )
        self.announce(self._redactor.text(described))

        return info

    def _ask_from(self, frame: pd.DataFrame, index: int) -> None:
        row = row_of(frame, index)
        try:
            question = vectors_of(row, "the hits", self._redactor.text)
        except InputError:  # vectors were not included
            question = Question(stored=str(row["id"]))

        self._ask(question, scope(frame).get("namespace", ""))

    def _ask(self, question: Question, namespace: str) -> None:
        if self._job is not None:
            self._warn_running()
            return

        self.options.namespace.value = namespace
        self.source.show(question)
        self._start_unless(mistaken=not self._read())

    def _empty(self) -> pd.DataFrame:
        return to_frame(hits(vectors=False, metadata=False, data=False).empty_table())
