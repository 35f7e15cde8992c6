"""Define the base of panels that are one widget each: state in the page, and messages to the kernel."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import anywidget
import traitlets

from toolkit.widgets.page_parts import MESSAGE_LOCK, script, synced
from toolkit.widgets.panel import PanelBehaviour

_IMPORT: Final = re.compile(
    r'^import (?:\{[^}]*\}|\w+) from "\./(\w+)\.js";\n', re.MULTILINE
)


def kit_module(name: str) -> str:
    """Return the JavaScript module ``js/<name>.js`` and the modules that it imports, as one module."""
    # A widget is one module, and hosts without a server cannot load a second one. In the files, imports are
    # statements of their own, so that Node.js runs and tests them unchanged.
    modules: dict[str, str] = {}
    _add_module(name, modules)
    if "kit" not in modules:
        raise ValueError(f"{name}.js does not import kit.js")

    return "".join(modules.values())


def _add_module(name: str, modules: dict[str, str]) -> None:
    """Add a module after the ones that it imports, each once."""
    text = script(f"{name}.js")
    for imported in _IMPORT.findall(text):
        if imported not in modules:
            _add_module(imported, modules)

    modules[name] = _IMPORT.sub("", text)


class Markup:
    """Markup in a trait of a panel. It has an attribute `value`, as `ipywidgets.HTML` has."""

    def __init__(self, panel: traitlets.HasTraits, trait: str) -> None:
        self._panel, self._trait = panel, trait

    @property
    def value(self) -> str:
        """Return the markup that the page shows."""
        return str(getattr(self._panel, self._trait))

    @value.setter
    def value(self, markup: str) -> None:
        self._panel.set_trait(self._trait, markup)


# `PanelBehaviour` returns a dict as the bundle, which is as good for IPython as a tuple.
class PagePanel(PanelBehaviour, anywidget.AnyWidget):  # type: ignore[misc]
    """A panel that is one widget of JavaScript modules. Subclasses define `_process`.

    `status` and `code` are markup, in which values from data are escaped. The page keeps everything that the
    kernel does not need, for example positions of scrolling, and sends the rest as messages. Messages of one
    widget arrive in order, so they need no numbers.
    """

    title = synced(traitlets.Unicode())
    status = synced(traitlets.Unicode())
    code = synced(traitlets.Unicode())

    def __init__(self, title: str, **options: Any) -> None:
        self._status, self._code = Markup(self, "status"), Markup(self, "code")
        super().__init__(title, **options)
        self.title = title
        self.on_msg(lambda _, content, __: self.receive(content))

    def _begin(self) -> None:
        """Show the value, and every later value."""
        self._show(self.value)
        self.observe(self._value_set, "value")

    def receive(self, content: object) -> None:
        """Process a message of the page. Messages that the page would not send are ignored."""
        if isinstance(content, dict):
            with MESSAGE_LOCK:
                self._process(content)

    def _process(self, content: dict[str, Any]) -> None:
        raise NotImplementedError

    def _update(self, trait: str, state: Mapping[str, Any]) -> None:
        """Change some fields of a trait that is a dict."""
        self.set_trait(trait, {**getattr(self, trait), **state})


def is_texts(value: object) -> bool:
    """Return whether a part of a message is a list of strings.

    >>> is_texts(["a"]), is_texts("a"), is_texts([1])
    (True, False, False)
    """
    return (
        isinstance(value, Sequence)
        and not isinstance(value, str)
        and all(isinstance(item, str) for item in value)
    )
