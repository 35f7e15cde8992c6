"""User actions in controls, sent as the page sends them."""

from __future__ import annotations

from typing import Any

from toolkit.widgets.fields import CheckList, Dropdown, Field, TextField


def send(control: Field, **content: Any) -> None:
    """Send the next message of a control."""
    control.receive({"number": control.state["seen"] + 1, **content})


def enter(field: TextField, text: str, **more: Any) -> None:
    """Type a text and press Enter."""
    send(field, event="submit", text=text, head=text, **more)


def write(field: TextField, text: str) -> None:
    """Type a text, and leave the field."""
    send(field, event="changed", text=text, head=text)


def offered(field: TextField, before: str, after: str = "") -> list[str]:
    """Type a text, the caret between the two parts; returns the options offered then."""
    send(field, event="typed", text=before + after, head=before)
    return [shown for shown, _, _ in field.offers]


def choose(control: Dropdown, name: str) -> None:
    """Choose one of the names in a list."""
    send(control, value=name)


def tick(choices: CheckList, value: str, *, on: bool = True) -> None:
    """Tick a box."""
    send(choices, event="ticked", value=value, on=on)
