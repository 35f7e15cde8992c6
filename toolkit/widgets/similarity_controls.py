"""Draw the controls of a similarity query: the source (text, vectors, stored id, row) and the options."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, get_args

import pandas as pd

from toolkit.base.errors import InputError
from toolkit.base.missing_values import is_missing
from toolkit.base.own_tokens import MASK
from toolkit.drawing.wording import counted, shorten
from toolkit.filters.query import (
    FusionAlgorithm,
    QueryMode,
    SparsePair,
    VectorQuery,
    WeightingStrategy,
)
from toolkit.secrets.redaction import Redactor, visible
from toolkit.service.vectors import IndexInfo
from toolkit.widgets.fields import Changed, CheckList, Dropdown, TextField
from toolkit.widgets.filter_editor import FilterEditor
from toolkit.widgets.form_panel import FormPanel
from toolkit.widgets.page_panel import Markup
from toolkit.widgets.page_parts import note

_OFFERED: Final = 100  # ids offered for completion
_LONGEST: Final = 80  # characters of the text or id that are repeated
_FORM: Final = 'an array such as [0.1, 0.2], numbers with commas, or {"indices": [3], "values": [0.5]}'
_INCLUDED: Final = ("metadata", "data", "vectors")
_UNSET: Final = "the index's own"  # an option that is not sent
_DEFAULT: Final = 10
_SCORING: Final = {  # label, choices, and the kinds of index that accept the option
    "query_mode": ("Query mode", get_args(QueryMode), ("HYBRID",)),
    "fusion_algorithm": ("Fusion", get_args(FusionAlgorithm), ("HYBRID",)),
    "weighting_strategy": (
        "Weighting",
        get_args(WeightingStrategy),
        ("HYBRID", "SPARSE"),
    ),
}


@dataclass(frozen=True)
class Question:
    """The source of a query: text, vectors, or a `stored` id. The vectors of an id are fetched first."""

    data: str | None = None
    vector: tuple[float, ...] | None = None
    sparse: SparsePair | None = None
    stored: str | None = None
    origin: str = ""

    @property
    def pending(self) -> bool:
        """Return True if the vectors have to be fetched."""
        return self.data is None and self.vector is None and self.sparse is None

    def query(self, options: Mapping[str, Any]) -> VectorQuery:
        """Return the whole query. The mode is left out if there is no text: vector queries have no mode."""
        chosen = dict(options)
        if self.data is None:
            chosen.pop("query_mode", None)
        return VectorQuery(
            data=self.data, vector=self.vector, sparse=self.sparse, **chosen
        )

    def words(self, masked: Callable[[str], str] = str) -> str:
        """Return the source of the query as a sentence. Text is masked before it is truncated.

        >>> Question(vector=(0.5, 1.0), stored="rb-7", origin="the frame").words()
        'Query by the vector of rb-7, from the frame: 2 numbers.'
        """
        if self.data is not None:
            return f"Query by the text “{shorten(masked(self.data), _LONGEST)}”."

        name = "a vector"
        if self.stored is not None:
            name = f"the vector of {shorten(masked(self.stored), _LONGEST)}"
        if self.pending:
            return f"Query by {name}, which Ask fetches first. Until then the value is None."

        parts = [counted(len(self.vector), "number")] if self.vector is not None else []
        parts += (
            [counted(len(self.sparse.indices), "sparse term")]
            if self.sparse is not None
            else []
        )
        origin = f", from {self.origin}" if self.origin else ""

        return f"Query by {name}{origin}: {' and '.join(parts)}."

    def mismatch_reason(self, info: IndexInfo) -> str:
        """Return the reason if an index does not accept this source, else an empty string."""
        if self.data is not None:
            return (
                ""
                if info.model
                else "This index has no model: it accepts no text, only vectors."
            )

        if self.sparse is not None and info.kind == "DENSE":
            return "A dense index accepts no sparse vector."

        if self.vector is None or (
            info.kind != "SPARSE" and len(self.vector) == info.dimension
        ):
            return ""

        if info.kind == "SPARSE":
            return 'A sparse index accepts sparse vectors: {"indices": [3], "values": [0.5]}.'

        return f"A vector of {len(self.vector):,} numbers; this index has {info.dimension:,} dimensions."


def query_source(query: VectorQuery) -> Question:
    """Return the question of a query."""
    return Question(query.data, query.vector, query.sparse)


def vectors_typed(text: str, masked: Callable[[str], str] = str) -> Question:
    """Return the vectors in pasted text. Parts that an error message repeats are `masked`.

    A JSON array, or numbers between commas or spaces, is a dense vector. A JSON object with ``indices`` and
    ``values`` is a sparse vector. An object with ``vector`` and ``sparse`` contains both.

    >>> vectors_typed("0.5, 1").vector, vectors_typed('{"indices": [7], "values": [0.5]}').sparse
    ((0.5, 1.0), SparsePair(indices=(7,), values=(0.5,)))
    """
    doing = "reading a vector"
    if text[:1] not in ("[", "{"):
        items = re.split(r"\s*,\s*|\s+", text.strip().removesuffix(",").rstrip())
        numbers = []
        for item in items:
            try:
                numbers.append(float(item))
            except ValueError:
                got = repr(shorten(masked(item), _LONGEST))
                raise InputError(doing, got=got, expected=_FORM) from None

        return query_source(VectorQuery(vector=numbers))

    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(
            doing, got=f"no JSON ({shorten(str(error), _LONGEST)})", expected=_FORM
        ) from None

    if isinstance(parsed, list):
        parsed = {"vector": parsed}
    elif set(parsed) == {"indices", "values"}:
        parsed = {"sparse": parsed}
    elif set(parsed) != {"vector", "sparse"}:
        names = shorten(masked(", ".join(parsed)), _LONGEST)
        raise InputError(doing, got=f"names {names or 'none'}", expected=_FORM)

    return query_source(VectorQuery(**parsed))


def written(question: Question) -> str:
    """Return the vectors as `vectors_typed` reads them, or an empty string without vectors."""
    vector = None if question.vector is None else list(question.vector)
    sparse = None if question.sparse is None else question.sparse._asdict()
    if vector is not None and sparse is not None:
        return json.dumps({"vector": vector, "sparse": sparse})

    value = vector if vector is not None else sparse
    return "" if value is None else json.dumps(value)


def vectors_of(
    row: Mapping[str, Any], origin: str, masked: Callable[[str], str] = str
) -> Question:
    """Return the vectors of a row of a frame. Raise InputError if it has no usable vector."""
    names = ("vector", "sparse_indices", "sparse_values")
    cells: Iterable[Any] = (row.get(name) for name in names)
    dense, indices, values = (
        None if is_missing(cell) else list(cell) for cell in cells
    )
    identity = str(row["id"])

    if dense is None and (indices is None or values is None):
        problem = row.get("vector_problem")
        raise InputError(
            f"querying by the vector of {shorten(masked(identity), _LONGEST)!r}",
            got=problem if isinstance(problem, str) else f"no vector in {origin}",
            expected="a usable vector",
            next_step="Load vectors with include_vectors=True, or choose another one.",
        )

    sparse = None if indices is None or values is None else (indices, values)
    return replace(
        query_source(VectorQuery(vector=dense, sparse=sparse)),
        stored=identity,
        origin=origin,
    )


def whole_number(text: str) -> int | None:
    """Return an integer from text, with or without commas between thousands, or None for other text.

    >>> whole_number("1,000"), whole_number("12"), whole_number("1,2")
    (1000, 12, None)
    """
    match = re.fullmatch(r"[0-9]{1,9}|[0-9]{1,3}(?:,[0-9]{3}){1,2}", text)
    return int(text.replace(",", "")) if match else None


def row_of(frame: pd.DataFrame, index: int) -> dict[str, Any]:
    """Return a row of a frame, by name of column."""
    return {str(name): value for name, value in frame.iloc[index].items()}


class QuerySource:
    """The fields for the source of a query. They exclude each other: the field that you edited last counts.

    The page shows one field at a time. `ways` of the panel has the names of all fields, and `way` the name of
    the field that the query comes from, or an empty string.

    Rows of a `frame` of vectors can be sources, and ids are looked up in it. A field that you edit contains
    the exact text, even if it looks like a secret; messages about it are masked.
    """

    def __init__(
        self,
        panel: FormPanel,
        changed: Changed,
        entered: Changed,
        *,
        frame: pd.DataFrame | None,
        redactor: Redactor,
    ) -> None:
        self._panel = panel
        self._changed, self._frame, self._redactor = changed, frame, redactor
        self._question: Question | None = None
        self._from: TextField | None = None  # the field that it came from
        self._explained: TextField | None = None  # the field with the explanation
        self._info: IndexInfo | None = None
        self._fetched: dict[tuple[str, str], Question] = {}
        self._fields: dict[str, TextField] = {}
        masked = redactor.text

        def field(
            name: str,
            label: str,
            made: Callable[[str], Question],
            hint: str,
            offered: list[str] | None = None,
        ) -> TextField:
            one = TextField(
                label, lambda: self._edited(one, made), hint=hint, suggestions=offered
            )
            one.entered = entered
            self._fields[name] = one

            return panel.add_field(name, one)

        self.text = field(
            "text",
            "Text",
            lambda typed: Question(data=typed),
            "what you look for, in words",
        )
        self.vector = field(
            "vector",
            "Vector",
            lambda typed: vectors_typed(typed, masked),
            "[0.1, 0.2, …]",
        )
        ids = [] if frame is None else frame["id"].head(_OFFERED).astype(str).tolist()
        offered = [
            name for name in ids if not MASK.search(name) and masked(name) == name
        ]
        self.stored = field(
            "stored",
            "Stored id",
            lambda typed: Question(stored=typed),
            "id of a vector",
            offered,
        )

        self.row: TextField | None = None
        if frame is not None and len(frame):
            self.row = field(
                "row", "Row of the frame", self._row_named, f"0 to {len(frame) - 1:,}"
            )

        self.note = Markup(panel, "source_note")
        panel.set_trait("ways", list(self._fields))

    @property
    def mistaken(self) -> bool:
        """Return whether a field has a mistake, and is therefore not part of the query."""
        return any(field.problem for field in self._fields.values())

    def question(self, namespace: str) -> Question | None:
        """Return the source of a query in a namespace, or None. Ids are looked up here, never fetched."""
        question = self._question
        if question is None or question.stored is None or not question.pending:
            return question

        fetched = self._fetched.get((namespace, question.stored))
        return fetched or self._looked_up(question.stored, namespace) or question

    def show(self, question: Question | None) -> None:
        """Show the source of the query."""
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

    def learn_index(self, info: IndexInfo) -> None:
        """Remember the index, and explain sources that it does not accept."""
        self._info = info
        if not info.model:
            self.text.hint = "no model to embed texts"

    def describe(self, question: Question | None) -> None:
        """Show the source, and whether the index accepts it."""
        text, mismatch = (
            "Nothing to search for yet: fill one of these fields, then press Enter.",
            "",
        )
        if question is not None:
            text = question.words(self._redactor.text)
            mismatch = (
                "" if self._info is None else question.mismatch_reason(self._info)
            )

        self.note.value = note(self._redactor.text(text)) + note(mismatch, "problem")

    def explain(self, problem: str | None) -> None:
        """Explain next to the field why the source is not accepted. None clears the explanation."""
        if problem is not None:
            self._explained = self._from or self.text
            self._explained.problem = self._redactor.text(problem)
        elif self._explained is not None:
            self._explained.problem = None
            self._explained = None

    def _looked_up(self, identity: str, namespace: str) -> Question | None:
        frame = self._frame
        if frame is None:
            return None

        rows = frame[frame["id"] == identity]
        if "namespace" in frame.columns:
            rows = rows[rows["namespace"] == namespace]
        if not len(rows) or not {"vector", "sparse_indices"} & set(frame.columns):
            return None

        return vectors_of(row_of(rows, 0), "the frame", self._redactor.text)

    def _take(self, question: Question | None, field: TextField | None) -> None:
        """Set the question, and empty all other fields."""
        self._question, self._from, self._explained = question, field, None
        way = ""
        for name, other in self._fields.items():
            if other is field:
                way = name
            else:
                other.value = ""

        self._panel.set_trait("way", way)

    def _edited(self, field: TextField, made: Callable[[str], Question]) -> None:
        typed = str(field.value)
        if not typed and self._from is not field:
            return

        try:
            question = made(typed) if typed else None
        except InputError as error:
            field.problem = self._redactor.text(str(error))
            self._explained = None if self._explained is field else self._explained
            return

        self._take(question, field if typed else None)
        self._changed()

    def _row_named(self, typed: str) -> Question:
        frame = pd.DataFrame() if self._frame is None else self._frame
        index = whole_number(typed)
        if index is None or index >= len(frame):
            shown = shorten(self._redactor.text(typed), _LONGEST)
            raise InputError(
                "choosing a row",
                got=repr(shown),
                expected=f"a number, 0 to {len(frame) - 1:,}",
            )

        return vectors_of(
            row_of(frame, index), f"row {index:,} of the frame", self._redactor.text
        )


class QueryOptions:
    """All options of a query. `changed` is called after a person changed an option, right or wrong."""

    def __init__(
        self, panel: FormPanel, changed: Changed, *, redactor: Redactor
    ) -> None:
        self.top_k = panel.add_field(
            "top_k", TextField("How many (topK)", changed, hint=str(_DEFAULT))
        )
        self.namespace = panel.add_field(
            "namespace",
            TextField("Namespace", changed, hint="the default one", suggestions=()),
        )
        self.scoring = {
            name: panel.add_field(name, Dropdown(label, changed, (_UNSET, *words)))
            for name, (label, words, _) in _SCORING.items()
        }
        self.included = panel.add_field(
            "included",
            CheckList("With each hit", changed, offered=_INCLUDED, searches=False),
        )
        self.filter = FilterEditor(
            panel,
            changed,
            show=partial(panel._update, "conditions"),  # noqa: SLF001 - for its parts
            redactor=redactor,
        )
        self._redactor = redactor
        self._kind: str | None = None

    def read(self) -> dict[str, Any]:
        """Return the options as arguments of `VectorQuery`. An InputError is also shown in the panel."""
        typed = str(self.top_k.value) or str(_DEFAULT)
        top_k = whole_number(typed)

        self.top_k.problem = None
        if not top_k:
            self.top_k.problem = "Type a whole number from 1."
            raise InputError(
                "reading topK", got=repr(typed[:40]), expected="a whole number from 1"
            )

        return {
            "top_k": top_k,
            "namespace": self.namespace.value,
            "filter": self.filter.value,
            **{f"include_{name}": name in self.included.value for name in _INCLUDED},
            **{
                name: chosen.value if chosen.value != _UNSET else None
                for name, chosen in self.scoring.items()
            },
        }

    @property
    def mistaken(self) -> bool:
        """Return whether a control has a mistake, and is therefore not part of the options."""
        # a filter that was set from Python is part of them, right or wrong
        shown, used = self.filter.text.text.strip(), visible(self.filter.value).strip()
        return (
            self.filter.mistake is not None and shown != used
        ) or self.top_k.problem is not None

    def begin_in(self, names: Sequence[str]) -> None:
        """Offer these namespaces of a frame. Begin in the first one if the default one is missing."""
        offered = self._offer(names)
        self.namespace.value = offered[0] if "" not in names and offered else ""

    def _offer(self, names: Iterable[str]) -> list[str]:
        """Offer these namespaces except masked ones and secrets. Return the offered ones."""
        shown = (name for name in names if name and not MASK.search(name))
        offered = sorted(name for name in shown if self._redactor.text(name) == name)
        self.namespace.suggestions = tuple(offered)

        return offered

    def show(self, query: VectorQuery) -> None:
        """Show the options of a query."""
        self.top_k.value, self.namespace.value = str(query.top_k), query.namespace
        self.included.value = [
            name for name in _INCLUDED if getattr(query, f"include_{name}")
        ]
        self.filter.value = query.filter
        for name, chosen in self.scoring.items():
            chosen.value = getattr(query, name) or _UNSET

    def clear(self) -> None:
        """Restore the defaults of a query, but keep the namespace."""
        # A `VectorQuery` needs a source, but only the options are shown.
        self.show(VectorQuery(data="any", namespace=self.namespace.value))

    def learn(self, info: IndexInfo) -> None:
        """Show the options of this index, and hide the others."""
        self._kind = info.kind
        self._offer(info.namespaces)
        self.fit(by_text=True)

    def fit(self, *, by_text: bool) -> None:
        """Show options that fit the index, and mark unused ones. Chosen ones stay visible."""
        for name, chosen in self.scoring.items():
            # the mode alone can be chosen before the index is known: most have no fusion and weights
            here = self._kind in _SCORING[name][2] or (
                self._kind is None and name == "query_mode"
            )
            chosen.hidden = not here and chosen.value == _UNSET
            chosen.remark = (
                ""
                if here or not self._kind
                else f"Not for a {self._kind.lower()} index."
            )

        mode = self.scoring["query_mode"]
        if mode.value != _UNSET and not by_text:
            mode.remark = "Only with a text: not part of the query now."
        elif self._kind is None:
            mode.remark = (
                "Look at index shows whether this index also has fusion and weighting."
            )
