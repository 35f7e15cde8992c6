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
    names = _LazyNames(package, modules, old_names)
    return sorted(names.homes), names.load, names.listed


class _LazyNames:
    """The public names of a package.

    Type checkers and editors read the stub file (.pyi) as if it were the package, so they know all names
    without importing them. Here the same file tells which module to import when a name is first used, for
    example ``from toolkit.loading.failures import load_failures as load_failures``.
    """

    def __init__(
        self, package: str, modules: tuple[str, ...], old_names: Mapping[str, str]
    ) -> None:
        self._package = package
        self._modules = modules
        self._old_names = old_names
        self._module = sys.modules[package]
        stub = Path(str(self._module.__file__)).with_suffix(".pyi").read_text("utf-8")

        self.homes: dict[str, tuple[str, str]] = {}
        for node in ast.parse(stub).body:
            if isinstance(node, ast.ImportFrom):
                home = str(node.module)
                self.homes |= {
                    str(name.asname): (home, name.name) for name in node.names
                }

    def load(self, name: str) -> Any:
        """Return the value of a name. Raise AttributeError if the package has no such name."""
        full_name = f"{self._package}.{name}"
        if name in self._old_names:
            return _renamed(full_name, self._old_names[name])

        if name not in self.homes:
            raise AttributeError(
                f"module {self._package!r} has no attribute {name!r}{self._hint(name)}"
            )

        home, attribute = self.homes[name]
        if home == self._package:  # "from toolkit import results as results"
            return import_module(full_name)

        value = getattr(import_module(home), attribute)
        # Python calls `__getattr__` only for missing attributes, so the second use of the name is fast
        setattr(self._module, name, value)
        return value

    def _hint(self, name: str) -> str:
        """Return the end of the error message for a name that does not exist."""
        # Python and its tools ask for many names like __wrapped__: nobody mistyped them
        if name.startswith("_"):
            return ""

        for other in self._modules:
            if name in import_module(other).__all__:
                return f". It is {other}.{name}"

        close = get_close_matches(name, self.homes, n=1)
        if close:
            return f". Did you mean {close[0]!r}?"

        return ""

    def listed(self) -> list[str]:
        """Return the names that `dir` lists: the ones that a user can call, and no other modules."""
        prefix = f"{self._package}."
        children = [
            other.rpartition(".")[2]
            for other in self._modules
            if other.startswith(prefix)
        ]
        special = filter(_is_special, vars(self._module))

        return sorted({*self.homes, *children, *special})


def _is_special(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def _renamed(old: str, new: str) -> Any:
    """Return the value of a new name, and warn that the old name was used."""
    module, _, name = new.rpartition(".")
    warnings.warn(f"{old} is now {new}", DeprecationWarning, stacklevel=3)
    return getattr(import_module(module), name)
