"""Packages whose public names are loaded when they are first used."""

from __future__ import annotations

import ast
import sys
import warnings
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

_NONE: Final[Mapping[str, str]] = MappingProxyType({})


def lazy_names(
    package: str, modules: tuple[str, ...] = (), old_names: Mapping[str, str] = _NONE
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__all__``, ``__getattr__`` and ``__dir__`` of a package, made from ``__init__.pyi``.

    `modules` are public modules of the package, for example ``toolkit.errors``. If a name is missing in the
    package and one of them has it, the error message names that module.

    `old_names` are earlier names and the full names that replace them. They are not listed anywhere. If you
    use one, you get the new value and a `DeprecationWarning` that names it.

    If a public function and a module of the package have the same name, the package must import the function
    itself. Otherwise, importing the module would replace the function.
    """
    # Type checkers and editors read the stub file (.pyi) as if it were the package, so they know all names
    # without importing them. Here the same file tells which module to import when a name is first used:
    # "from toolkit.loading.failures import load_failures as load_failures".
    module = sys.modules[package]
    listed = Path(str(module.__file__)).with_suffix(".pyi").read_text("utf-8")
    homes: dict[str, tuple[str, str]] = {}
    for node in ast.parse(listed).body:
        if isinstance(node, ast.ImportFrom):
            for name in node.names:
                homes[str(name.asname)] = str(node.module), name.name

    def load(name: str) -> Any:
        if name in old_names:
            return _renamed(f"{package}.{name}", old_names[name])
        if name not in homes:
            hint = ""
            # Python and its tools ask for many names like __wrapped__: nobody mistyped them
            if not name.startswith("_"):
                close = get_close_matches(name, homes, n=1)
                if close:
                    hint = f". Did you mean {close[0]!r}?"
                for other in modules:
                    if name in import_module(other).__all__:
                        hint = f". It is {other}.{name}"
            raise AttributeError(f"module {package!r} has no attribute {name!r}{hint}")
        home, attribute = homes[name]
        if home == package:  # "from toolkit import results as results"
            return import_module(f"{package}.{name}")
        value = getattr(import_module(home), attribute)
        # Python calls `__getattr__` only for missing attributes, so the second use of the name is fast
        setattr(module, name, value)
        return value

    def listed_names() -> list[str]:
        # Other modules are not listed, so that Tab after `tk.` shows only names that a user can call.
        children = [
            other.rpartition(".")[2]
            for other in modules
            if other.startswith(f"{package}.")
        ]
        special = [
            name
            for name in vars(module)
            if name.startswith("__") and name.endswith("__")
        ]
        return sorted({*homes, *children, *special})

    return sorted(homes), load, listed_names


def _renamed(old: str, new: str) -> Any:
    """Return the value of a new name, and warn that the old name was used."""
    module, _, name = new.rpartition(".")
    warnings.warn(f"{old} is now {new}", DeprecationWarning, stacklevel=3)
    return getattr(import_module(module), name)
