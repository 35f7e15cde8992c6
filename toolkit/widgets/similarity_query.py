"""Asking an index for what is similar: a `VectorQuery` as controls, and its hits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import ipywidgets as widgets
import pandas as pd
import traitlets

from toolkit.analysis import score_moves
from toolkit.analysis.wording import counted
from toolkit.client.vectors import IndexInfo, index_info
from toolkit.errors import InputError, ToolkitError
from toolkit.filters.query import VectorQuery
from toolkit.redaction import escape_html
from toolkit.settings.service import Service
from toolkit.tables.frames import to_frame
from toolkit.tables.schemas import hits
from toolkit.widgets.controls import Actions
from toolkit.widgets.javascript import script
from toolkit.widgets.panel import Panel, must_be
from toolkit.widgets.similarity_asking import Answer, answer, as_asked, stoppable
from toolkit.widgets.similarity_options import Options, described
from toolkit.widgets.similarity_question import Question, asked_by, vectors_of
from toolkit.widgets.similarity_results import Results, counted_hits, scope
from toolkit.widgets.similarity_source import Source
from toolkit.widgets.work import Job, Progress

_LONGEST: Final = 400  # characters of code that are shown; a query by a vector has more


class _Checked(traitlets.Any):
    """Any value. None is checked like every other, which traits that allow it do not do."""

    allow_none = False


class SimilarityQueryWidget(Panel):
    """Ask an index for what is similar, see the scores, go on from a hit, compare two ways of asking.

    Parameters
    ----------
    service : Service
        Asked when a button is pressed, a hit is chosen, or Enter is pressed in a field that is asked by.
    value : VectorQuery, optional
        What is asked at first. Default: nothing yet.
    frame : pandas.DataFrame, optional
        Vectors loaded earlier (`load_vectors`): to ask by a row, to look ids up, to complete the filter.
    key : str, optional
        Keeps value and result when the cell is run again in the same kernel.

    Attributes
    ----------
    value : VectorQuery or None
        None while there is nothing to ask by. Readable, settable, observable.

    Raises
    ------
    InputError
        For a service, value or frame of another kind.

    Notes
    -----
    A stored id becomes its vector: a query knows vectors and texts, no ids. It is taken from the frame where
    that has the id in the namespace that is asked, else fetched when the query is asked. Until then the value
    is None, afterwards the query by the vector that was fetched, so that its code asks the same again even
    when the stored vector changes. A fetched vector is used again until another id is fetched.

    Pin keeps a result; the next ones are shown beside it with what moved. Ranks tell more than scores: those
    of two models or modes do not compare.

    Examples
    --------
    >>> panel = SimilarityQueryWidget(service)
    >>> panel.value = tk.VectorQuery(data="the certificate has expired", top_k=3)
    >>> len(panel.frame()), len(panel.run())
    (0, 3)
    >>> print(panel.to_code())
    tk.VectorQuery(data='the certificate has expired', top_k=3)
    """

    def __init__(
        self,
        service: Service,
        *,
        value: VectorQuery | None = None,
        frame: pd.DataFrame | None = None,
        key: str | None = None,
    ) -> None:
        doing = "making a SimilarityQueryWidget"
        self._service = must_be(service, Service, doing, "service")
        if frame is not None and "id" not in must_be(frame, pd.DataFrame, doing, "frame").columns:
            raise InputError(doing, got="a frame without ids", expected="a frame of vectors")
        self._pending: tuple[Question, dict[str, Any]] | None = None
        self._pinned: pd.DataFrame | None = None
        super().__init__("Similar vectors", value=value, key=key, redactor=service.redactor)
        self.source = Source(self._touched, self._entered, frame=frame, redactor=self._redactor)
        self.options = Options(self._touched, redactor=self._redactor)
        self._fields_known = frame is not None and "metadata" in frame.columns
        if frame is not None and self._fields_known:
            self.options.filter.learn(frame)
        if frame is not None and "namespace" in frame.columns:
            self.options.begin_in([str(name) for name in frame["namespace"].unique()])
        self.actions = Actions(self._named_actions(), self.hear)
        self.results = Results(
            self._ask_from, self.hear, redactor=self._redactor, prefix=f"tk-{self.model_id[:12]}"
        )
        self._code = widgets.HTML()
        self._build()

    def _build(self) -> None:
        style = "".join(script(f"{name}.css") for name in ("vectors", "similarity"))
        self._compose(
            widgets.HTML(f"<style>{style}</style>").add_class("tk-style"),
            widgets.HTML(f'<div class="tk-head">{escape_html(self._title)}</div>'),
            self.source.view,
            self.options.view,
            self._code,
            self.actions.view,
        )
        # below the status line: what is said about a run is beside the buttons
        self.children = [*self.children, self.results.view]
        if self._kept.frame is not None:
            self.results.show(self._kept.origin)

    value = _Checked(help="What is asked: a `VectorQuery`, or None.")

    @traitlets.validate("value")
    def _checked(self, proposal: dict[str, Any]) -> VectorQuery | None:
        value = proposal["value"]
        if value is None and self._pending is not None and not self._reading:
            self._show(None)  # it is None already, so that nobody hears of it: an id that is not fetched yet
        doing = "setting a SimilarityQueryWidget's value"
        return None if value is None else must_be(value, VectorQuery, doing)

    def _named_actions(self) -> dict[str, Callable[[], object]]:
        return {
            "Ask": self._start_run,
            "Pin": self.pin,
            "Unpin": self.unpin,
            "Look at index": lambda: self._start(self._looked, self._learn),
            "Cancel": self.cancel,
            "Clear": self.clear,
        }

    def to_code(self) -> str:
        """Python that makes the query again, whole vectors in it; ``None`` where nothing is asked yet."""
        return "None" if self.value is None else super().to_code()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._redactor.code(self._short_code())})"

    def _short_code(self) -> str:
        code = self.to_code()
        return code if len(code) <= _LONGEST else repr(self.value)

    def clear(self) -> None:
        """Ask nothing: what is asked by and all options but the namespace are emptied."""
        self.options.clear()
        self.value = None
        self._show(None)

    # from controls to the value and back

    def _touched(self) -> None:
        self._read()

    def _entered(self, fields: object) -> None:
        """Ask, as Enter in a field that is asked by does, unless that field cannot be read."""
        self.hear(fields)
        if self.source.mistaken:
            self.say("Nothing was asked: first mend what is marked above.", "problem")
        else:
            self._start_run()

    def _read(self) -> bool:
        """Make the value anew from the controls; where they do not fit, say so, keep the old, give False."""
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
        self._pending = (question, options) if question is not None and pending else None
        self._changed_to(value)
        self._reflect(question)
        return True

    def _show(self, value: VectorQuery | None) -> None:
        question = None if value is None else asked_by(value)
        self._pending = None
        self.source.show(question)
        if value is not None:
            self.options.show(value)
        self._reflect(question)

    def _reflect(self, question: Question | None) -> None:
        self.source.say(question)
        self.options.fits(by_text=question is not None and question.data is not None)
        code = self._redactor.code(self._short_code())
        self._code.value = f'<code class="tk-code">{escape_html(code)}</code>'
        frame, value = self._kept.frame, self.value
        if frame is not None and self._job is None and (value is None or value.scope() != scope(frame)):
            self.say("The hits shown are those of an earlier query.")

    # asking

    def _call(self, job: Job, value: VectorQuery | None) -> pd.DataFrame:
        # of `run` alone, on the thread of who called it: a button's call settles when it is back
        found = answer(self._service, job, value, self._pending)
        self._remember(found)
        return as_asked(found.hits, found.asked)

    def _start_run(self) -> None:
        value, pending = self.value, self._pending
        self._start(lambda job: answer(self._service, job, value, pending), self._settle)

    _mistakes: Sequence[str] = ()  # what to say of a query that found nothing

    def _settle(self, found: Answer) -> None:
        self._remember(found)
        self._take(as_asked(found.hits, found.asked))

    def _remember(self, found: Answer) -> None:
        self._kept.origin, self._mistakes = found.hits, found.mistakes
        if found.fetched is not None:
            self.source.learn(found.asked.namespace, found.fetched)
            if self._pending is not None and self._pending[0].stored == found.fetched.stored:
                self._read()

    def _progressed(self, progress: Progress) -> None:
        self.say("Asking …" if progress.seconds < 1 else f"Asking for {progress.seconds:.0f} s …")

    def look(self) -> IndexInfo:
        """Ask what the index is: its kind, its namespaces; waits.

        Raises
        ------
        ServiceError
            When asking fails; the panel shows it too.
        """
        try:
            info = index_info(self._service)
        except ToolkitError as error:
            self._failed(error)
            raise
        self._learn(info)
        return info

    def _looked(self, job: Job) -> IndexInfo:
        return stoppable(job, lambda: index_info(self._service))

    def _learn(self, info: IndexInfo) -> None:
        self.options.learn(info)
        self.source.learn_index(info)
        if not info.model:
            self.source.text.text.hint = "this index has no model to embed a text with"
        self._reflect(self._pending[0] if self._pending else self.value and asked_by(self.value))
        self.say(self._redactor.text(described(info)))

    # from a hit

    def ask_from(self, place: int) -> None:
        """Ask by the hit at a place of the last result, from 0; what a click on it does.

        Raises
        ------
        InputError
            When the last result has no such place.
        """
        frame = self.frame()
        if not 0 <= place < len(frame):
            expected = f"a place among {counted(len(frame), 'hit')}, from 0"
            raise InputError("asking from a hit", got=str(place), expected=expected)
        self._ask_from(frame, place)

    def _ask_from(self, frame: pd.DataFrame, place: int) -> None:
        if self._job is not None:
            self.say("One call is under way. Cancel stops it.", "problem")
            return
        row = {str(name): value for name, value in frame.iloc[place].items()}
        try:
            question = vectors_of(row, "the hits", self._redactor.text)
        except InputError:  # vectors were not included
            question = Question(stored=str(row["id"]))
        self.options.namespace.value = scope(frame).get("namespace", "")
        self.source.show(question)
        if self._read():
            self._start_run()
        else:
            self.say("Nothing was asked: first mend what is marked above.", "problem")

    # two results beside each other

    def pin(self) -> None:
        """Keep the last result to compare the next ones with."""
        if self._kept.frame is None:
            self.say("There is no result to pin yet: Ask gives one.", "problem")
            return
        self._pinned = self._kept.frame
        self.results.pin(self._kept.origin)
        self.say("Pinned. The next result is shown beside it, with what moved.")

    def unpin(self) -> None:
        """Compare no more."""
        self._pinned = None
        self.results.pin(None)
        self.say("Nothing is pinned.")

    def pinned(self) -> pd.DataFrame | None:
        """The pinned result; None without one."""
        return self._pinned

    def moves(self) -> pd.DataFrame:
        """What moved between the pinned result and the last one.

        Returns
        -------
        pandas.DataFrame
            One row a hit of either result, by query and best rank: `query`, `id`, `rank_before`,
            `rank_after`, `score_before`, `score_after` (missing where the hit is in one result only),
            `moved` (ranks it rose).

        Raises
        ------
        InputError
            When nothing is pinned.
        """
        if self._pinned is None:
            raise InputError("comparing results", got="nothing pinned", expected="a pinned result")
        return score_moves(self._pinned, self.frame())

    def _arrived(self, frame: pd.DataFrame) -> str:
        hits = self._kept.origin
        self.results.show(hits)
        if not self._fields_known and "metadata" in hits.columns and len(hits):
            self.options.filter.learn(hits)
        later = self.value is None or self.value.scope() != scope(frame)
        mistaken = self.source.mistaken or self.options.mistaken
        remark = " What is marked above as a mistake was no part of the query." if mistaken else ""
        said = f"{counted_hits(frame)}{'; of an earlier query' if later else ''}.{remark}"
        return " ".join([said, *self._mistakes])

    def _empty(self) -> pd.DataFrame:
        return to_frame(hits(vectors=False, metadata=False, data=False).empty_table())
