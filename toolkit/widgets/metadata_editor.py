"""Edit a metadata filter as text and as controls. If you change one, the other follows."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, cast

import ipywidgets as widgets
import pandas as pd

from toolkit.base.errors import FilterSyntaxError, InputError
from toolkit.drawing.wording import counted
from toolkit.filters.conditions import Condition, parse_path
from toolkit.filters.metadata import And, MetadataFilter, Or, parse
from toolkit.secrets.names import is_secret_name
from toolkit.secrets.redaction import Redactor, escape_html
from toolkit.tables.frame_filters import MOST_READ, MetadataField, metadata_fields
from toolkit.widgets.controls import Changed, DropdownControl, TextControl
from toolkit.widgets.metadata_condition import (
    OPERATORS,
    WITHOUT_VALUE,
    completions,
    condition,
    field_named,
    fitting,
    typed_condition,
    typed_value,
)
from toolkit.widgets.page_parts import note
from toolkit.widgets.panel import table_markup

_EXAMPLE: Final = "city = 'Izmir' AND (year >= 2024 OR tags CONTAINS 'new')"
_STAYS: Final = "The filter is unchanged until this is corrected."
_CONTEXT: Final = 60  # characters shown on both sides of a mistake
_MOST: Final = 40  # conditions shown as controls; each is a handful of widgets
_DEEPEST: Final = 6
_VALUES: Final = 4  # of a field, in the table of fields
_PART: Final = re.compile(r"[.\[\]]+")
_JOINED: Final = {And: "all of these (AND)", Or: "any of these (OR)"}
_HINTS: Final = {"IN": "a, b, 'with, comma'", "GLOB": "run-[0-9]*"}


class MetadataEditor(widgets.VBox):  # type: ignore[misc] # ipywidgets publishes no types
    """Edit a filter: text in the filter language. Empty text is no filter.

    Values are not offered if the redactor would mask them, or if a name above them is secret, for example
    ``auth.token``. `mistake` is the error if the text does not parse. An incomplete end is no mistake until
    Enter is pressed.
    """

    def __init__(self, changed: Changed, *, redactor: Redactor) -> None:
        self._changed, self._redactor = changed, redactor
        self._value = ""
        # of the text shown; None for no filter or a mistake
        self._tree: MetadataFilter | None = None
        self.fields: list[MetadataField] = []
        self.mistake: FilterSyntaxError | None = None
        self.text = TextControl(
            "Filter", self._text_changed, hint=_EXAMPLE, follows=True,
            complete=lambda text, head: completions(text, head, self.fields),
        )  # fmt: skip
        self.text.entered = lambda _: self._check(self.text.value, entered=True)
        self.note, self._many, self._found = (
            widgets.HTML(),
            widgets.HTML(),
            widgets.HTML(),
        )
        self.rows = GroupControls(self, None)
        super().__init__([self.text, self.note, self.rows, self._many, self._found])
        self.add_class("tk-control")
        self._show_rows()

    @property
    def value(self) -> str:
        """Return the filter. Text that does not parse is kept, with an explanation below it."""
        return self._value

    @value.setter
    def value(self, text: str) -> None:
        self._show_text(text)
        self._show_rows()

    def learn(self, frame: pd.DataFrame) -> None:
        """Offer the fields that the metadata of a frame has, with their kinds and frequent values."""
        mask = self._redactor.text
        self.fields = []
        for field in metadata_fields(frame):
            if mask(field.name) == field.name:
                secret = any(map(is_secret_name, _PART.split(field.name)))
                pairs = () if secret else field.frequent
                shown = [
                    pair
                    for pair in pairs
                    if not isinstance(pair[0], str) or mask(pair[0]) == pair[0]
                ]
                self.fields.append(replace(field, frequent=tuple(shown)))
        self._found.value = _described(self.fields, len(frame))
        self.rows.learn()

    def number(self) -> None:
        """Give all rows and groups a number, so that people and screen readers can tell them apart."""
        self.rows.number(Counter())

    def rows_changed(self) -> None:
        """Make the text of the rows. If a row has a problem, the filter stays."""
        try:
            made = self.rows.read()
        except InputError:
            return
        # Compare with the text in normal form, so that a person's
        # spelling is kept if the meaning is the same.
        text = "" if made is None else made.text()
        try:
            same = text == (parse(self._value).text() if self._value.strip() else "")
        except FilterSyntaxError:
            same = False
        if not same:
            self._show_text(text)
            self._changed()

    def _show_text(self, text: str) -> None:
        self._value = self.text.value = text
        self._check(text, entered=True, advice="")

    def _text_changed(self) -> None:
        text = self.text.value
        self._check(text)
        if self.mistake is None and text != self._value:
            self._value = text
            self._show_rows()
            self._changed()

    def _check(self, text: str, *, entered: bool = False, advice: str = _STAYS) -> None:
        self.mistake = self._tree = None
        self.note.value = ""
        try:
            self._tree = parse(text) if text.strip() else None
        except FilterSyntaxError as error:
            self.mistake = error
            # A mistake at the very end is a filter that is still being
            # typed, so it is a hint and not a problem.
            if error.position >= len(text.rstrip()) and not entered:
                self.note.value = note(f"Next: {error.expected}.")
            else:
                self.note.value = (
                    _marked(text, error.position)
                    + note(str(error), "problem")
                    + note(advice)
                )

    def _show_rows(self) -> None:
        """Show the conditions of the text. If it does not parse or has too many, show no conditions."""
        tree = self._tree
        count, depth = (0, 0) if tree is None else (_conditions(tree), tree.depth)
        hidden = ""
        if self.mistake is not None:
            hidden = "The controls return when the text is a filter."
        elif count > _MOST or depth > _DEEPEST:
            hidden = f"{count} conditions, {depth} deep: edit the text."
        self._many.value = note(hidden)
        self.rows.layout.display = "none" if hidden else ""
        self.rows.show(None if hidden else tree)
        self.number()


class ConditionControls(widgets.VBox):  # type: ignore[misc] # ipywidgets publishes no types
    """Field, operator and value of one condition."""

    def __init__(self, editor: MetadataEditor, group: GroupControls) -> None:
        self._editor = editor
        # the condition that the controls show, until a person changes them
        self._made: Condition | None = None
        self.field = TextControl("Field", self._field_changed, suggestions=())
        self.operator = DropdownControl("Operator", self._operator_changed, OPERATORS)
        self.value = TextControl("Value", self._touched, suggestions=())
        self.remove = _button(
            "Remove", lambda: group.remove_part(self), tooltip="Remove this condition"
        )
        self.note = widgets.HTML()
        controls = [self.field, self.operator, self.value, self.remove]
        super().__init__([widgets.HBox(controls).add_class("tk-condition"), self.note])
        self.add_class("tk-control")
        self.learn()

    def show(self, part: MetadataFilter | None) -> None:
        """Show a condition, or an empty row."""
        self._made = cast("Condition | None", part)
        self.field.value, operator, self.value.value = (
            ("", "=", "") if self._made is None else typed_condition(self._made)
        )
        self._offer(operator)
        self.note.value = ""

    def number(self, counts: Counter[str]) -> None:
        """Assign the next number."""
        counts["condition"] += 1
        number = counts["condition"]
        self.field.label, self.value.label = f"Field {number}", f"Value {number}"
        self.operator.label, self.remove.description = (
            f"Operator {number}",
            f"Remove {number}",
        )

    def read(self) -> MetadataFilter | None:
        """Return the condition, or None if it is incomplete. An InputError is also shown in the panel."""
        if self._made is not None:
            return self._made
        field, typed = str(self.field.value), str(self.value.value)
        self.note.value = ""
        if not field or not (typed or self.operator.value in WITHOUT_VALUE):
            missing = "a value ('' is the empty text)" if field else "a field"
            if field or typed:
                self.note.value = note(
                    f"Not part of the filter until it has {missing}."
                )
            return None
        control = self.field
        try:
            parse_path(field)
            control = self.value
            self._made = condition(field, self.operator.value, typed)
        except InputError as error:
            control.problem = str(error)
            raise
        return self._made

    def attend(self) -> None:
        """Put the keyboard focus into the row, once the page has drawn it."""
        self.field.wanted = True

    def learn(self) -> None:
        """Offer the fields that are known now, their operators and values."""
        self.field.suggestions = tuple(field.name for field in self._editor.fields)
        self._offer(self.operator.value)

    def _known(self) -> MetadataField | None:
        return field_named(self._editor.fields, str(self.field.value))

    def _offer(self, operator: str) -> None:
        """Offer the operators and values that fit the field, and choose this operator."""
        field = self._known()
        fit = fitting(field)
        self.operator.options = list(fit if operator in fit else (operator, *fit))
        self.operator.value = operator
        self.value.suggestions = (
            ()
            if field is None
            else tuple(typed_value(value) for value, _ in field.frequent)
        )
        self.value.several = operator.endswith("IN")
        kinds = () if field is None else field.kinds
        self.value.hint = _HINTS.get(
            operator.removeprefix("NOT "), " or ".join(kinds[:2])
        )
        self.value.layout.display = "none" if operator in WITHOUT_VALUE else ""

    def _field_changed(self) -> None:
        fit = fitting(self._known())
        self._offer(self.operator.value if self.operator.value in fit else fit[0])
        self._touched()

    def _operator_changed(self) -> None:
        self._offer(self.operator.value)
        self._touched()

    def _touched(self) -> None:
        self._made = None
        self.value.problem = self.field.problem = None
        self._editor.rows_changed()


class GroupControls(widgets.VBox):  # type: ignore[misc] # ipywidgets publishes no types
    """Several conditions or groups; all or any of them must match. The outermost one is in no `group`."""

    def __init__(self, editor: MetadataEditor, group: GroupControls | None) -> None:
        self._editor = editor
        self.parts: list[ConditionControls | GroupControls] = []
        self.kind = DropdownControl(
            "Group", editor.rows_changed, [*_JOINED.values()]
        ).add_class("tk-joined")
        # A group of the same kind as the group around it would have no effect, so begin with the other kind.
        self.kind.value = _JOINED[
            Or if group is not None and group.joined is And else And
        ]
        self.add = _button(
            "Add condition", lambda: self._append(ConditionControls(editor, self))
        )
        self.nest = _button(
            "Add group", lambda: self._append(GroupControls(editor, self))
        )
        self.remove: widgets.Button | None = None
        if group is not None:
            self.remove = _button("Remove group", lambda: group.remove_part(self))
        buttons: list[widgets.Widget] = [self.kind, self.add, self.nest]
        if self.remove is not None:
            buttons.append(self.remove)
        self._box = widgets.VBox().add_class("tk-control")
        super().__init__([widgets.HBox(buttons).add_class("tk-actions"), self._box])
        self.add_class("tk-group")

    def show(self, part: MetadataFilter | None) -> None:
        """Show a filter. A single condition is a group with one row."""
        wanted: list[MetadataFilter | None] = [part]
        if isinstance(part, And | Or):
            wanted = list(part.parts)
            self.kind.value = _JOINED[type(part)]
        kinds = [
            GroupControls if isinstance(inner, And | Or) else ConditionControls
            for inner in wanted
        ]
        removed: list[ConditionControls | GroupControls] = []
        if kinds != [*map(type, self.parts)]:
            # else the controls stay, so that they keep the focus
            removed, self.parts = (
                self.parts,
                [kind(self._editor, self) for kind in kinds],
            )
        for there, inner in zip(self.parts, wanted, strict=True):
            there.show(inner)
        self._box.children = self.parts
        _close(removed)

    def number(self, counts: Counter[str]) -> None:
        """Give this group and the parts in it a number."""
        counts["group"] += 1
        number = counts["group"]
        self.kind.label = f"Group {number}"
        if self.remove is not None:
            self.add.description = f"Add condition to group {number}"
            self.nest.description = f"Add group to group {number}"
            self.remove.description = f"Remove group {number}"
        for part in self.parts:
            part.number(counts)

    def read(self) -> MetadataFilter | None:
        """Return the filter of the rows, or None if they are empty."""
        filters = [made for part in self.parts if (made := part.read()) is not None]
        if len(filters) > 1:
            joined: MetadataFilter = self.joined(tuple(filters))
            return joined
        return filters[0] if filters else None

    @property
    def joined(self) -> type[And | Or]:
        """Return how the parts are joined."""
        return And if self.kind.value == _JOINED[And] else Or

    def attend(self) -> None:
        """Put the keyboard focus into the first row."""
        self.parts[0].attend()

    def learn(self) -> None:
        """Offer the fields known now."""
        for part in self.parts:
            part.learn()

    def remove_part(self, part: ConditionControls | GroupControls) -> None:
        """Remove a row or group, as the button Remove does."""
        self._set([other for other in self.parts if other is not part])
        _close([part])
        self.add.focus()  # the keyboard focus was in the part
        self._editor.rows_changed()

    def _append(self, part: ConditionControls | GroupControls) -> None:
        part.show(None)
        part.attend()
        self._set([*self.parts, part])

    def _set(self, parts: list[ConditionControls | GroupControls]) -> None:
        self._box.children = self.parts = parts
        self._editor.number()


def _button(
    name: str, pressed: Callable[[], None], tooltip: str | None = None
) -> widgets.Button:
    button = widgets.Button(
        description=name, tooltip=tooltip, layout=widgets.Layout(width="auto")
    )
    button.on_click(lambda _: pressed())
    return button


def _close(parts: Sequence[Any]) -> None:
    """Close widgets and all inside them: the page and the kernel forget them."""
    for part in parts:
        _close(getattr(part, "children", ()))
        part.close()


def _conditions(tree: MetadataFilter) -> int:
    return sum(map(_conditions, tree.parts)) if isinstance(tree, And | Or) else 1


def _marked(text: str, position: int) -> str:
    """Return the text around a position. The style shows a caret below the marked character."""
    first, last = max(0, position - _CONTEXT), position + _CONTEXT
    before, character, after = (
        escape_html(part.replace("\n", " ").replace("\t", " "))
        for part in (
            text[first:position],
            text[position : position + 1] or " ",
            text[position + 1 : last],
        )
    )
    start, end = "…" if first else "", "…" if last < len(text) else ""
    shown = f"{start}{before}<mark>{character}</mark>{after}{end}"
    return f'<pre class="tk-where" aria-hidden="true">{shown}</pre>'


def _described(fields: Sequence[MetadataField], vectors: int) -> str:
    """Return a folded table of the fields with their kinds and frequent values."""
    head = (
        f"{counted(len(fields), 'field')} that a filter can name, in the metadata of "
    )
    head += counted(min(vectors, MOST_READ), "vector")
    if vectors > MOST_READ:
        head += f", drawn at random from {vectors:,}"
    if not fields:
        return note(head)
    names, rows = ("Field", "Kind", "Vectors", "Frequent values"), []
    for field in fields:
        values = (
            f"{typed_value(value)[:40]} ({count:,})"
            for value, count in field.frequent[:_VALUES]
        )
        rows.append(
            (
                field.name,
                " or ".join(field.kinds),
                f"{field.rows:,}",
                " · ".join(values),
            )
        )
    table = table_markup(names, rows, ' class="tk-fields"')
    return f"<details><summary>{escape_html(head)}</summary>{table}</details>"
