"""The fields for what a similarity query is asked by: text, pasted vector, stored id, row of a frame."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import ipywidgets as widgets
import pandas as pd

from toolkit.analysis.wording import shorten
from toolkit.client.vectors import IndexInfo
from toolkit.errors import InputError
from toolkit.redaction import Redactor
from toolkit.spellings import MASK
from toolkit.widgets.controls import Hear, TextField, note
from toolkit.widgets.similarity_question import Question, vectors_of, vectors_typed, written
from toolkit.widgets.texts import whole_number

_OFFERED: Final = 100  # ids offered for completion
_LONGEST: Final = 80  # characters of what was typed that are said again


class Source:
    """The fields for what is asked by. They exclude each other: what was edited last is asked by.

    Parameters
    ----------
    changed : callable
        Called after a person gave another question.
    entered : callable
        Called after Enter in one of the fields, with the messages that came with it.
    frame : pandas.DataFrame or None
        Vectors loaded earlier: their rows can be asked by, and ids are looked up in it.
    redactor : Redactor

    Notes
    -----
    A field that a person edits holds the exact text that was typed or given as the panel's value, also where
    that looks like a secret: what is said about it elsewhere is masked. An id that comes from the service is
    not theirs, and is masked in the field as well.
    """

    def __init__(
        self,
        changed: Callable[[], None],
        entered: Hear,
        *,
        frame: pd.DataFrame | None,
        redactor: Redactor,
    ) -> None:
        self._changed, self._frame, self._redactor = changed, frame, redactor
        self._question: Question | None = None
        self._from: TextField | None = None  # the field that it came from
        self._explained: TextField | None = None  # the field that says why it cannot be asked
        self._info: IndexInfo | None = None
        self._fetched: dict[tuple[str, str], Question] = {}
        self.text = TextField("Text", self._text_changed, hint="what you look for, in words")
        self.vector = TextField("Vector", self._vector_changed, hint="[0.1, 0.2, …]")
        ids = [] if frame is None else frame["id"].head(_OFFERED).astype(str).tolist()
        self.stored = TextField(
            "Stored id", self._stored_changed, hint="id of a vector",
            suggestions=[name for name in ids if not MASK.search(name) and redactor.text(name) == name],
        )  # fmt: skip
        self._fields = [self.text, self.vector, self.stored]
        self.row: TextField | None = None
        if frame is not None and len(frame):
            self.row = TextField("Row of the frame", self._row_changed, hint=f"0 to {len(frame) - 1:,}")
            self._fields.append(self.row)
        for field in self._fields:
            field.text.entered = entered
        self._note = widgets.HTML()
        fields = widgets.Box([field.view for field in self._fields]).add_class("tk-columns")
        self.view = widgets.VBox([fields, self._note]).add_class("tk-control")

    @property
    def mistaken(self) -> bool:
        """Whether a field holds what cannot be read, and so is no part of the question."""
        return any(field.problem for field in self._fields)

    def question(self, namespace: str) -> Question | None:
        """What is asked by in a namespace; None where nothing is. Ids are looked up here, never fetched.

        Raises
        ------
        InputError
            When the frame has the id without a usable vector.
        """
        question = self._question
        if question is None or question.stored is None or not question.pending:
            return question
        fetched = self._fetched.get((namespace, question.stored))
        return fetched or self._looked_up(question.stored, namespace) or question

    def show(self, question: Question | None) -> None:
        """Show what is asked by."""
        if question is None:
            self._take(None, None)
            return
        field, shown = self.vector, written(question)
        if question.data is not None:
            field, shown = self.text, question.data
        elif question.stored is not None:
            field, shown = self.stored, self._redactor.text(question.stored)
        self._take(question, field)
        field.value = shown

    def learn(self, namespace: str, question: Question) -> None:
        """Remember the vectors that were fetched for an id."""
        if question.stored is not None:
            self._fetched = {(namespace, question.stored): question}

    def say(self, question: Question | None) -> None:
        """Say what is asked by, and whether the index can be asked by it."""
        text = "Nothing to ask by yet: fill one of these fields."
        if question is not None:
            text = question.words(self._redactor.text)
        misfit = "" if question is None or self._info is None else _misfit(question, self._info)
        self._note.value = note(self._redactor.text(text)) + note(misfit, "problem")

    def explain(self, problem: str | None) -> None:
        """Say why the question cannot be asked, beside the field that it came from; None: it can."""
        if problem is not None:
            self._explained = self._from or self.text
            self._explained.problem = self._redactor.text(problem)
        elif self._explained is not None:
            self._explained.problem = None
            self._explained = None

    def learn_index(self, info: IndexInfo) -> None:
        """Say from now on what this index cannot be asked by."""
        self._info = info

    def _looked_up(self, identity: str, namespace: str) -> Question | None:
        frame = self._frame
        if frame is None:
            return None
        found = frame[frame["id"] == identity]
        if "namespace" in frame.columns:
            found = found[found["namespace"] == namespace]
        if not len(found) or not {"vector", "sparse_indices"} & set(frame.columns):
            return None
        row = {str(name): value for name, value in found.iloc[0].items()}
        return vectors_of(row, "the frame", self._redactor.text)

    def _take(self, question: Question | None, field: TextField | None) -> None:
        """Take a question; every field but the one it came from is emptied."""
        self._question, self._from, self._explained = question, field, None
        for other in self._fields:
            if other is not field:
                other.value = ""

    def _edited(self, field: TextField, made: Callable[[str], Question]) -> None:
        typed = str(field.value)
        if not typed:
            if self._from is field:
                self._take(None, None)
                self._changed()
            return
        try:
            question = made(typed)
        except InputError as error:
            field.problem = self._redactor.text(str(error))
            self._explained = None if self._explained is field else self._explained
            return
        self._take(question, field)
        self._changed()

    def _text_changed(self) -> None:
        self._edited(self.text, lambda typed: Question(data=typed))

    def _vector_changed(self) -> None:
        self._edited(self.vector, lambda typed: vectors_typed(typed, self._redactor.text))

    def _stored_changed(self) -> None:
        self._edited(self.stored, lambda typed: Question(stored=typed))

    def _row_changed(self) -> None:
        if self.row is not None:
            self._edited(self.row, self._row_named)

    def _row_named(self, typed: str) -> Question:
        frame = self._frame
        total = 0 if frame is None else len(frame)
        place = whole_number(typed)
        if frame is None or place is None or place >= total:
            said = shorten(self._redactor.text(typed), _LONGEST)
            raise InputError("choosing a row", got=repr(said), expected=f"a number, 0 to {total - 1:,}")
        row = {str(name): value for name, value in frame.iloc[place].items()}
        return vectors_of(row, f"row {place:,} of the frame", self._redactor.text)


def _misfit(question: Question, info: IndexInfo) -> str:
    """Why an index cannot be asked by this; empty where it can, or nothing is known."""
    if question.data is not None:
        return "" if info.model else "This index has no model: it cannot be asked by text, only by vectors."
    if question.sparse is not None and info.kind == "DENSE":
        return "A dense index takes no sparse vector."
    if question.vector is None:
        return ""
    if info.kind == "SPARSE":
        return 'A sparse index takes sparse vectors: {"indices": [3], "values": [0.5]}.'
    found, wanted = len(question.vector), info.dimension
    return f"A vector of {found:,} numbers; this index has {wanted:,} dimensions." if found != wanted else ""
