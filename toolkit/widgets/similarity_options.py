"""The options of a similarity query as controls: how many, where, what comes with a hit, how it is scored."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, get_args

import ipywidgets as widgets

from toolkit.client.vectors import IndexInfo
from toolkit.errors import InputError
from toolkit.filters.query import FusionAlgorithm, QueryMode, VectorQuery, WeightingStrategy
from toolkit.own_tokens import MASK
from toolkit.redaction import Redactor, visible
from toolkit.widgets.controls import Choices, Choosing, TextField
from toolkit.widgets.javascript import Changed
from toolkit.widgets.metadata_editor import MetadataEditor
from toolkit.widgets.similarity_source import whole_number

_INCLUDED: Final = ("metadata", "data", "vectors")
_UNSET: Final = "the index's own"  # an option that is not sent
_DEFAULT: Final = 10
_SCORING: Final = {  # each with the kinds of index that have it
    "query_mode": ("Query mode", get_args(QueryMode), ("HYBRID",)),
    "fusion_algorithm": ("Fusion", get_args(FusionAlgorithm), ("HYBRID",)),
    "weighting_strategy": ("Weighting", get_args(WeightingStrategy), ("HYBRID", "SPARSE")),
}


class QueryOptions(widgets.VBox):  # type: ignore[misc] # ipywidgets publishes no types
    """All options of a query; `changed` is called after a person changed one, right or wrong."""

    def __init__(self, changed: Changed, *, redactor: Redactor) -> None:
        self.top_k = TextField("How many (topK)", changed, hint=str(_DEFAULT))
        self.namespace = TextField("Namespace", changed, hint="the default one", suggestions=())
        self.included = Choices("With each hit", changed, offered=_INCLUDED, searches=False)
        self.filter = MetadataEditor(changed, redactor=redactor)
        self.scoring = {
            name: Choosing(label, changed, (_UNSET, *words)) for name, (label, words, _) in _SCORING.items()
        }
        self._redactor = redactor
        self._kind: str | None = None
        fields = [self.top_k, self.namespace, self.included, *self.scoring.values()]
        super().__init__([widgets.Box(fields).add_class("tk-columns"), self.filter])
        self.add_class("tk-control")

    def read(self) -> dict[str, Any]:
        """The options as arguments of `VectorQuery`; an InputError is shown beside the control, too."""
        typed = str(self.top_k.value) or str(_DEFAULT)
        top_k = whole_number(typed)
        self.top_k.problem = None
        if not top_k:
            self.top_k.problem = "Type a whole number from 1."
            raise InputError("reading topK", got=repr(typed[:40]), expected="a whole number from 1")
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
        """Whether a control shows what cannot be read, and so is no part of the options."""
        # a filter that was set from Python is part of them, right or wrong
        shown, used = self.filter.text.text.strip(), visible(self.filter.value).strip()
        return (self.filter.mistake is not None and shown != used) or self.top_k.problem is not None

    def begin_in(self, names: Sequence[str]) -> None:
        """Offer these namespaces of a frame, and begin in it where there is one."""
        offered = self._offer(names)
        self.namespace.value = offered[0] if len(names) == 1 and offered else ""

    def _offer(self, names: Iterable[str]) -> list[str]:
        """Offer these namespaces, without those that are masked or have to be; returns what is offered."""
        shown = (name for name in names if name and not MASK.search(name))
        found = sorted(name for name in shown if self._redactor.text(name) == name)
        self.namespace.suggestions = tuple(found)
        return found

    def show(self, query: VectorQuery) -> None:
        """Show the options of a query."""
        self.top_k.value, self.namespace.value = str(query.top_k), query.namespace
        self.included.value = [name for name in _INCLUDED if getattr(query, f"include_{name}")]
        self.filter.value = query.filter
        for name, chosen in self.scoring.items():
            chosen.value = getattr(query, name) or _UNSET

    def clear(self) -> None:
        """Back to the defaults of a query; the namespace stays."""
        self.show(VectorQuery(data="any", namespace=self.namespace.value))

    def learn(self, info: IndexInfo) -> None:
        """Offer what this index has, and hide what it does not."""
        self._kind = info.kind
        self._offer(info.namespaces)
        self.fit(by_text=True)

    def fit(self, *, by_text: bool) -> None:
        """Show what fits the index, and say what is not used. What is chosen stays visible."""
        for name, chosen in self.scoring.items():
            # the mode alone can be chosen before the index is known: most have no fusion and weights
            here = self._kind in _SCORING[name][2] or (self._kind is None and name == "query_mode")
            chosen.layout.display = "" if here or chosen.value != _UNSET else "none"
            chosen.remark = "" if here or not self._kind else f"Not for a {self._kind.lower()} index."
        mode = self.scoring["query_mode"]
        if mode.value != _UNSET and not by_text:
            mode.remark = "Only with a text: not part of the query now."
        elif self._kind is None:
            mode.remark = "Look at index shows whether this index also has fusion and weighting."
