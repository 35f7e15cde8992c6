"""Show a metadata filter as rows of conditions and groups, which a person can edit."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final, Protocol, cast

from toolkit.base.errors import InputError
from toolkit.filters.conditions import Condition, parse_path
from toolkit.filters.metadata import And, MetadataFilter, Or
from toolkit.tables.metadata_fields import MetadataField
from toolkit.widgets.fields import Button, Dropdown, Field, TextField
from toolkit.widgets.metadata_condition import (
    OPERATORS,
    WITHOUT_VALUE,
    condition,
    field_named,
    fitting,
    typed_condition,
    typed_value,
)
from toolkit.widgets.page_parts import note

_JOINED: Final = {And: "all of these (AND)", Or: "any of these (OR)"}
_HINTS: Final = {"IN": "a, b, 'with, comma'", "GLOB": "run-[0-9]*"}


class Editor(Protocol):
    """The editor that rows and groups belong to."""

    fields: list[MetadataField]

    def name_of(self, part: object) -> str:
        """Return a name that no other part had."""

    def add_field(self, name: str, field: Any) -> Any:
        """Add a field to the form of the panel."""

    def remove_field(self, name: str) -> None:
        """Remove a field from the form of the panel."""

    def rows_changed(self) -> None:
        """Make the text of the rows."""

    def redraw(self) -> None:
        """Give the parts numbers, and send how they are arranged."""


class _Part:
    """A row or a group: some fields under one name."""

    def __init__(self, editor: Editor, **fields: Field) -> None:
        self.name = editor.name_of(self)
        self._editor = editor
        self._fields = fields
        for name, field in fields.items():
            editor.add_field(f"{self.name}.{name}", field)

    def close(self) -> None:
        """Remove all fields: the page and the kernel forget them."""
        for name in self._fields:
            self._editor.remove_field(f"{self.name}.{name}")


class ConditionRow(_Part):
    """Field, operator and value of one condition."""

    def __init__(self, editor: Editor, group: FilterGroup) -> None:
        # the condition that the fields show, until a person changes them
        self._made: Condition | None = None
        self.note = ""
        self.field = TextField("Field", self._field_changed, suggestions=())
        self.operator = Dropdown("Operator", self._operator_changed, OPERATORS)
        self.value = TextField("Value", self._touched, suggestions=())
        self.remove = Button(
            "Remove", lambda: group.remove_part(self), tooltip="Remove this condition"
        )
        super().__init__(
            editor,
            field=self.field,
            operator=self.operator,
            value=self.value,
            remove=self.remove,
        )
        self.learn()

    def show(self, part: MetadataFilter | None) -> None:
        """Show a condition, or an empty row."""
        self._made = cast("Condition | None", part)
        field, operator, value = "", "=", ""
        if self._made is not None:
            field, operator, value = typed_condition(self._made)
        self.field.value, self.value.value = field, value
        self._offer(operator)
        self.note = ""

    def number(self, counts: Counter[str]) -> None:
        """Assign the next number."""
        counts["condition"] += 1
        number = counts["condition"]
        self.field.label = f"Field {number}"
        self.operator.label = f"Operator {number}"
        self.value.label = f"Value {number}"
        self.remove.label = f"Remove {number}"

    def read(self) -> MetadataFilter | None:
        """Return the condition, or None if it is incomplete. An InputError is also shown in the panel."""
        if self._made is not None:
            return self._made

        field, typed = str(self.field.value), str(self.value.value)
        has_value = bool(typed) or self.operator.value in WITHOUT_VALUE
        if not field or not has_value:
            self.note = _incomplete(field, typed)
            return None

        self.note = ""
        return self._condition(field, typed)

    def _condition(self, field: str, typed: str) -> MetadataFilter:
        wrong = self.field
        try:
            parse_path(field)
            wrong = self.value
            self._made = condition(field, self.operator.value, typed)
        except InputError as error:
            wrong.problem = str(error)
            raise

        return self._made

    def arrangement(self) -> dict[str, Any]:
        """Return the state of the row that the page draws."""
        return {"name": self.name, "kind": "condition", "note": self.note}

    def attend(self) -> None:
        """Put the keyboard focus into the row, once the page has drawn it."""
        self.field.focus()

    def learn(self) -> None:
        """Offer the fields that are known now, their operators and values."""
        self.field.suggestions = tuple(field.name for field in self._editor.fields)
        self._offer(self.operator.value)

    def _known(self) -> MetadataField | None:
        return field_named(self._editor.fields, str(self.field.value))

    def _offer(self, operator: str) -> None:
        """Offer the operators and values that fit the field, and choose this operator."""
        field = self._known()
        operators = list(fitting(field))
        if operator not in operators:
            operators.insert(0, operator)
        self.operator.update({"options": operators, "value": operator})
        self.value.suggestions, hint = (), ""

        if field is not None:
            values = [typed_value(value) for value, _ in field.frequent]
            self.value.suggestions = tuple(values)
            hint = " or ".join(field.kinds[:2])

        self.value.several = operator.endswith("IN")
        self.value.hint = _HINTS.get(operator.removeprefix("NOT "), hint)
        self.value.hidden = operator in WITHOUT_VALUE

    def _field_changed(self) -> None:
        operator, fit = self.operator.value, fitting(self._known())
        if operator not in fit:
            operator = fit[0]
        self._offer(operator)
        self._touched()

    def _operator_changed(self) -> None:
        self._offer(self.operator.value)
        self._touched()

    def _touched(self) -> None:
        self._made = None
        self.value.problem = self.field.problem = None
        self._editor.rows_changed()


def _incomplete(field: str, typed: str) -> str:
    """Return markup that names the missing part of a condition, or nothing if the row is empty."""
    if field:
        return note(
            "Not part of the filter until it has a value ('' is the empty text)."
        )

    if typed:
        return note("Not part of the filter until it has a field.")

    return ""


class FilterGroup(_Part):
    """Conditions and groups that are joined by AND or OR. The outermost group cannot be removed."""

    def __init__(self, editor: Editor, group: FilterGroup | None) -> None:
        self.parts: list[ConditionRow | FilterGroup] = []
        kinds = [_JOINED[And], _JOINED[Or]]
        self.kind = Dropdown("Group", editor.rows_changed, kinds)
        if group is not None and group.joined is And:
            # a group of the other kind is the reason to make one
            self.kind.value = _JOINED[Or]

        self.add = Button("Add condition", self._add_row)
        self.nest = Button("Add group", self._add_group)
        fields: dict[str, Field] = {
            "kind": self.kind,
            "add": self.add,
            "nest": self.nest,
        }
        self.remove: Button | None = None
        if group is not None:
            self.remove = Button("Remove group", lambda: group.remove_part(self))
            fields["remove"] = self.remove

        super().__init__(editor, **fields)

    def show(self, part: MetadataFilter | None) -> None:
        """Show a filter. A single condition is a group with one row."""
        wanted: list[MetadataFilter | None] = [part]
        if isinstance(part, And | Or):
            wanted = list(part.parts)
            self.kind.value = _JOINED[type(part)]

        kinds = [_kind_of(inner) for inner in wanted]
        if kinds != [*map(type, self.parts)]:
            # else the fields stay, so that they keep the focus
            for old in self.parts:
                old.close()
            self.parts = [kind(self._editor, self) for kind in kinds]

        for there, inner in zip(self.parts, wanted, strict=True):
            there.show(inner)

    def close(self) -> None:
        """Remove all fields of the group and of the parts in it."""
        for part in self.parts:
            part.close()
        super().close()

    def number(self, counts: Counter[str]) -> None:
        """Give this group and the parts in it a number."""
        counts["group"] += 1
        number = counts["group"]

        self.kind.label = f"Group {number}"
        if self.remove is not None:
            self.add.label = f"Add condition to group {number}"
            self.nest.label = f"Add group to group {number}"
            self.remove.label = f"Remove group {number}"

        for part in self.parts:
            part.number(counts)

    def read(self) -> MetadataFilter | None:
        """Return the filter of the rows, or None if they are empty."""
        read = [part.read() for part in self.parts]
        filters = [made for made in read if made is not None]
        if len(filters) > 1:
            joined: MetadataFilter = self.joined(tuple(filters))
            return joined

        return filters[0] if filters else None

    def arrangement(self) -> dict[str, Any]:
        """Return the state of the group that the page draws, with the parts in it."""
        return {
            "name": self.name,
            "kind": "group",
            "parts": [part.arrangement() for part in self.parts],
        }

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

    def remove_part(self, part: ConditionRow | FilterGroup) -> None:
        """Remove a row or group, as the button Remove does."""
        self.parts = [other for other in self.parts if other is not part]
        part.close()
        # the keyboard focus was in the part
        self.add.focus()
        self._editor.redraw()
        self._editor.rows_changed()

    def _add_row(self) -> None:
        self._append(ConditionRow(self._editor, self))

    def _add_group(self) -> None:
        self._append(FilterGroup(self._editor, self))

    def _append(self, part: ConditionRow | FilterGroup) -> None:
        part.show(None)
        part.attend()
        self.parts = [*self.parts, part]
        self._editor.redraw()


def _kind_of(part: MetadataFilter | None) -> type[ConditionRow | FilterGroup]:
    if isinstance(part, And | Or):
        return FilterGroup
    return ConditionRow


def conditions_of(tree: MetadataFilter | None) -> int:
    """Return the number of conditions of a filter."""
    if tree is None:
        return 0
    if isinstance(tree, And | Or):
        return sum(map(conditions_of, tree.parts))

    return 1
