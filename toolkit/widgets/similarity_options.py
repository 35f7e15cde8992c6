"""The options of a similarity query as controls: how many, where, what comes with a hit, how it is scored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, get_args

import ipywidgets as widgets

from toolkit.client.vectors import IndexInfo
from toolkit.errors import InputError
from toolkit.filters.query import FusionAlgorithm, QueryMode, VectorQuery, WeightingStrategy
from toolkit.redaction import Redactor, visible
from toolkit.spellings import MASK
from toolkit.widgets.controls import Choices, Choosing, TextField, note
from toolkit.widgets.metadata_editor import MetadataEditor
from toolkit.widgets.texts import whole_number

_INCLUDED: Final = ("metadata", "data", "vectors")
_UNSAID: Final = "the index's own"  # an option that is not sent
_DEFAULT: Final = 10
_FITTING: Final = {
    "query_mode": ("HYBRID",),
    "fusion_algorithm": ("HYBRID",),
    "weighting_strategy": ("HYBRID", "SPARSE"),
}

Changed = Callable[[], None]


def described(info: IndexInfo) -> str:
    """What an index is, as a sentence."""
    dense = f", {info.dimension} dimensions, {info.similarity}" if info.dimension else ""
    spaces = ", ".join(f"{name or 'default'} ({count:,})" for name, count in info.namespaces.items())
    model = info.model or "none, so no text can be asked by"
    return f"{info.kind}{dense}; model: {model}; namespaces: {spaces or 'none'}"


class OneOf:
    """One of a few words, or none.

    Parameters
    ----------
    label : str
    changed : callable
    words : sequence of str
    """

    def __init__(self, label: str, changed: Changed, words: Sequence[str]) -> None:
        self._changed = changed
        self._quiet = False
        self.list = Choosing([_UNSAID, *words], label=label)
        self.list.observe(lambda _: None if self._quiet else changed(), "value")
        self._note = widgets.HTML()
        self.view = widgets.VBox([self.list, self._note]).add_class("tk-control")

    @property
    def value(self) -> Any:
        """The word, or None."""
        return None if self.list.value == _UNSAID else self.list.value

    @value.setter
    def value(self, value: str | None) -> None:
        self._quiet = True
        self.list.value = value or _UNSAID
        self._quiet = False

    def remark(self, text: str) -> None:
        """Say something below it."""
        self._note.value = note(text)


class Options:
    """All options of a query.

    Parameters
    ----------
    changed : callable
        Called after a person changed one, whether it can be used or not.
    redactor : Redactor
    """

    def __init__(self, changed: Changed, *, redactor: Redactor) -> None:
        self.top_k = TextField("How many (topK)", changed, hint=str(_DEFAULT))
        self.namespace = TextField("Namespace", changed, hint="the default one", suggestions=())
        self.included = Choices("With each hit", changed, offered=_INCLUDED, searches=False)
        self.filter = MetadataEditor(changed, redactor=redactor)
        words: dict[str, tuple[str, tuple[str, ...]]] = {
            "query_mode": ("Query mode", get_args(QueryMode)),
            "fusion_algorithm": ("Fusion", get_args(FusionAlgorithm)),
            "weighting_strategy": ("Weighting", get_args(WeightingStrategy)),
        }
        self.scoring = {name: OneOf(label, changed, options) for name, (label, options) in words.items()}
        self._redactor = redactor
        self._kind: str | None = None
        fields = [self.top_k.view, self.namespace.view, self.included.view]
        fields += [choice.view for choice in self.scoring.values()]
        self.view = widgets.VBox([widgets.Box(fields).add_class("tk-columns"), self.filter.view])
        self.view.add_class("tk-control")

    def read(self) -> dict[str, Any]:
        """The options as `VectorQuery` takes them.

        Raises
        ------
        InputError
            Which is said beside the control too.
        """
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
            **{name: choice.value for name, choice in self.scoring.items()},
        }

    @property
    def mistaken(self) -> bool:
        """Whether a control shows what cannot be read, and so is no part of the options."""
        text = self.filter.text  # a filter that was set from Python is part of them, right or wrong
        older = text.problem is not None and text.text.value.strip() != visible(self.filter.value).strip()
        return older or self.top_k.problem is not None

    def begin_in(self, names: Sequence[str]) -> None:
        """Offer these namespaces of a frame, and begin in it where there is one."""
        offered = self._offer(names)
        self.namespace.value = offered[0] if len(names) == 1 and offered else ""

    def _offer(self, names: Iterable[str]) -> list[str]:
        """Offer these namespaces, without those that are masked or have to be; returns what is offered."""
        shown = (name for name in names if name and not MASK.search(name))
        found = sorted(name for name in shown if self._redactor.text(name) == name)
        self.namespace.suggest(found)
        return found

    def show(self, query: VectorQuery) -> None:
        """Show the options of a query."""
        self.top_k.value, self.namespace.value = str(query.top_k), query.namespace
        self.included.value = [name for name in _INCLUDED if getattr(query, f"include_{name}")]
        self.filter.value = query.filter
        for name, choice in self.scoring.items():
            choice.value = getattr(query, name)

    def clear(self) -> None:
        """Back to what a query has when nothing is said; the namespace stays."""
        self.show(VectorQuery(data="any", namespace=self.namespace.value))

    def learn(self, info: IndexInfo) -> None:
        """Offer what this index has, and hide what it does not."""
        self._kind = info.kind
        self._offer(info.namespaces)
        self.fits(by_text=True)

    def fits(self, *, by_text: bool) -> None:
        """Show what fits the index, and say what is not used. What is chosen stays in sight."""
        for name, choice in self.scoring.items():
            # the mode alone can be chosen before anybody knows the index: most have no fusion and weights
            here = self._kind in _FITTING[name] or (self._kind is None and name == "query_mode")
            choice.view.layout.display = "" if here or choice.value is not None else "none"
            choice.remark("" if here else f"Not for a {self._kind.lower()} index." if self._kind else "")
        mode = self.scoring["query_mode"]
        if mode.value is not None and not by_text:
            mode.remark("Only with a text: not part of the query now.")
        elif self._kind is None:
            mode.remark("Look at index shows whether this index also has fusion and weighting.")
