"""A metadata filter as controls: a row a condition, and groups of which all or any must pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

import ipywidgets as widgets

from toolkit.errors import InputError
from toolkit.filters.metadata import And, MetadataFilter, Or
from toolkit.filters.metadata.paths import parse_path
from toolkit.filters.metadata.tree import Condition
from toolkit.tables.metadata_fields import MetadataField
from toolkit.widgets.controls import Choosing, TextField, note
from toolkit.widgets.metadata_completion import known_as
from toolkit.widgets.metadata_condition import OPERATORS, WITHOUT_VALUE, condition, fitting, offered, texts

Changed = Callable[[], None]
Known = Callable[[], Sequence[MetadataField]]

_JOINED: Final = {And: "all of these (AND)", Or: "any of these (OR)"}
_HINTS: Final = {"IN": "a, b, 'with, comma'", "GLOB": "run-[0-9]*"}


class ConditionRow:
    """Field, operator and value of one condition.

    Parameters
    ----------
    changed : callable
        Called after a person changed something.
    removed : callable
        Called with the row when its button is pressed.
    known : callable
        Gives the fields that are known now.
    """

    def __init__(self, changed: Changed, removed: Callable[[Part], None], known: Known) -> None:
        self._changed, self._known = changed, known
        self._made: Condition | None = None  # what the controls show, until a person touches them
        self._quiet = False
        self.field = TextField("Field", self._field_changed, suggestions=())
        self.operator = Choosing(OPERATORS)
        self.operator.observe(lambda _: self._operator_changed(), "value")
        self.value = TextField("Value", self._touched, suggestions=())
        self.remove = widgets.Button(tooltip="Remove this condition", layout=widgets.Layout(width="auto"))
        self.remove.on_click(lambda _: removed(self))
        self._note = widgets.HTML()
        controls = [self.field.view, self.operator, self.value.view, self.remove]
        self.view = widgets.VBox([widgets.HBox(controls).add_class("tk-condition"), self._note])
        self.view.add_class("tk-control")
        self.learn()

    def show(self, part: MetadataFilter | None) -> None:
        """Show a condition, or an empty row."""
        made = cast("Condition | None", part)
        self._made = made
        field, operator, value = ("", "=", "") if made is None else texts(made)
        self._quiet = True
        self.field.value, self.value.value = field, value
        self._offer(operator)
        self._quiet = False
        self._note.value = ""

    def number(self, counts: Counter[str]) -> None:
        """Take the next number, by which people and screen readers tell the rows apart."""
        counts["condition"] += 1
        number = counts["condition"]
        self.field.text.label, self.value.text.label = f"Field {number}", f"Value {number}"
        self.operator.label, self.remove.description = f"Operator {number}", f"Remove {number}"

    def fits(self, part: MetadataFilter | None) -> bool:
        """Whether `show` can show it."""
        return part is None or isinstance(part, Condition)

    def read(self) -> MetadataFilter | None:
        """The condition; None where it is not whole yet.

        Raises
        ------
        InputError
            Which is said beside the controls too.
        """
        if self._made is not None:
            return self._made
        field, typed = str(self.field.value), str(self.value.value)
        self._note.value = ""
        without = self.operator.value in WITHOUT_VALUE
        if not field or not (typed or without):
            missing = "a value ('' is the empty text)" if field else "a field"
            if field or typed:
                self._note.value = note(f"Not part of the filter until it has {missing}.")
            return None
        at = self.field
        try:
            parse_path(field)
            at = self.value
            self._made = condition(field, self.operator.value, typed)
        except InputError as error:
            at.problem = str(error)
            raise
        return self._made

    def attend(self) -> None:
        """Put the keyboard into the row, once the page has drawn it."""
        self.field.text.wanted = True

    def learn(self) -> None:
        """Offer the fields that are known now, their operators and values."""
        self.field.suggest([field.name for field in self._known()])
        self._quiet = True
        self._offer(self.operator.value)
        self._quiet = False

    def _offer(self, operator: str) -> None:
        """The operators and values that fit the field, with this operator chosen."""
        field = known_as(self._known(), str(self.field.value))
        kinds = field.kinds if field is not None else ()
        fit = fitting(kinds)
        self.operator.options = list(fit if operator in fit else (operator, *fit))
        self.operator.value = operator
        self.value.suggest([] if field is None else offered(field))
        self.value.several = operator.endswith("IN")
        self.value.text.hint = _HINTS.get(operator.removeprefix("NOT "), " or ".join(kinds[:2]))
        self.value.view.layout.display = "none" if operator in WITHOUT_VALUE else ""

    def _field_changed(self) -> None:
        field = known_as(self._known(), str(self.field.value))
        fit = fitting(field.kinds if field is not None else ())
        self._quiet = True
        self._offer(self.operator.value if self.operator.value in fit else fit[0])
        self._quiet = False
        self._touched()

    def _operator_changed(self) -> None:
        if not self._quiet:
            self._quiet = True
            self._offer(self.operator.value)
            self._quiet = False
            self._touched()

    def _touched(self) -> None:
        self._made = None
        self.value.problem = self.field.problem = None
        self._changed()


class Group:
    """Several conditions or groups, of which all or any must pass.

    Parameters
    ----------
    changed, known
        As for `ConditionRow`.
    removed : callable or None
        None for the outermost group, which stays.
    kind : type
        `And` or `Or`, at first.
    redrawn : callable, optional
        Called when rows came or went: all are numbered anew, by the outermost group.
    """

    def __init__(
        self,
        changed: Changed,
        removed: Callable[[Part], None] | None,
        known: Known,
        *,
        kind: type[And | Or] = And,
        redrawn: Changed | None = None,
    ) -> None:
        self._changed, self._known = changed, known
        self._redrawn = redrawn or (lambda: self.number(Counter()))
        self._quiet = False
        self.parts: list[Part] = []
        self.kind = Choosing([*_JOINED.values()]).add_class("tk-joined")
        self.kind.value = _JOINED[kind]
        self.kind.observe(lambda _: None if self._quiet else changed(), "value")
        self.add = self._button("Add condition", lambda: self._grow(self._row()))
        self.nest = self._button("Add group", lambda: self._grow(self._group()))
        buttons = [self.add, self.nest]
        self.remove: widgets.Button | None = None
        if removed is not None:
            self.remove = self._button("Remove group", lambda: removed(self))
            buttons.append(self.remove)
        self._rows = widgets.VBox().add_class("tk-control")
        self.view = widgets.VBox([widgets.HBox([self.kind, *buttons]).add_class("tk-actions"), self._rows])
        self.view.add_class("tk-group")
        self.show(None)

    def show(self, part: MetadataFilter | None) -> None:
        """Show a filter; a single condition is a group of one."""
        wanted: list[MetadataFilter | None] = [part]
        if isinstance(part, And | Or):
            wanted = list(part.parts)
            self._quiet = True
            self.kind.value = _JOINED[type(part)]
            self._quiet = False
        # controls that can stay do: whoever is in one of them is not thrown out
        same = len(wanted) == len(self.parts) and all(
            there.fits(one) for there, one in zip(self.parts, wanted, strict=True)
        )
        gone = [] if same else self.parts
        if not same:
            self.parts = [self._group() if isinstance(one, And | Or) else self._row() for one in wanted]
        for there, one in zip(self.parts, wanted, strict=True):
            there.show(one)
        self._draw()
        self._discard(gone)

    def number(self, counts: Counter[str]) -> None:
        """Number this group and what is in it."""
        counts["group"] += 1
        number = counts["group"]
        self.kind.label = f"Group {number}"
        if self.remove is not None:
            self.add.description = f"Add condition to group {number}"
            self.nest.description = f"Add group to group {number}"
            self.remove.description = f"Remove group {number}"
        for part in self.parts:
            part.number(counts)

    def fits(self, part: MetadataFilter | None) -> bool:
        """Whether `show` can show it as a group inside a group."""
        return isinstance(part, And | Or)

    def read(self) -> MetadataFilter | None:
        """The filter that the rows make; None where there is nothing in them.

        Raises
        ------
        InputError
            Of the first row with a problem.
        """
        found = [one for one in [part.read() for part in self.parts] if one is not None]
        if len(found) > 1:
            joined: MetadataFilter = self.joined(tuple(found))
            return joined
        return found[0] if found else None

    @property
    def joined(self) -> type[And | Or]:
        """How the parts are joined."""
        return And if self.kind.value == _JOINED[And] else Or

    def attend(self) -> None:
        """Put the keyboard into the first row."""
        self.parts[0].attend()

    def learn(self) -> None:
        """Offer what is known now."""
        for part in self.parts:
            part.learn()

    def _button(self, name: str, pressed: Changed) -> widgets.Button:
        button = widgets.Button(description=name, layout=widgets.Layout(width="auto"))
        button.on_click(lambda _: pressed())
        return button

    def _row(self) -> ConditionRow:
        return ConditionRow(self._changed, self._shrink, self._known)

    def _group(self) -> Group:
        other = Or if self.joined is And else And
        return Group(self._changed, self._shrink, self._known, kind=other, redrawn=self._redrawn)

    def _grow(self, part: Part) -> None:
        self.parts = [*self.parts, part]
        part.attend()
        self._draw()

    def _shrink(self, part: Part) -> None:
        self.parts = [other for other in self.parts if other is not part]
        self._draw()
        self._discard([part])
        self.add.focus()  # the keyboard was in what is gone
        self._changed()

    def _draw(self) -> None:
        self._rows.children = [part.view for part in self.parts]
        self._redrawn()

    def _discard(self, parts: Sequence[Part]) -> None:
        for part in parts:
            _close(part.view)


Part = ConditionRow | Group


def _close(view: Any) -> None:
    """Close a widget and all inside it: the page and the kernel forget them."""
    for child in getattr(view, "children", ()):
        _close(child)
    view.close()
