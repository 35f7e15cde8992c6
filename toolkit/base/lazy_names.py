"""Packages whose public names are loaded when they are first used."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any


def lazy_names(
    package: str, beneath: tuple[str, ...] = ()
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """``__all__``, ``__getattr__`` and ``__dir__`` of a package, from the imports of its ``__init__.pyi``.

    A name that a module of the package also has must be imported by the package: importing that module
    would replace it. A name that only one of the modules `beneath` has is an error that says so.
    """
    module = sys.modules[package]
    listed = Path(str(module.__file__)).with_suffix(".pyi").read_text("utf-8")
    homes = {
        str(name.asname): (str(node.module), name.name)
        for node in ast.parse(listed).body
        if isinstance(node, ast.ImportFrom)
        for name in node.names
    }

    def load(name: str) -> Any:
        if name not in homes:
            close = get_close_matches(name, homes, n=1)
            hint = f". Did you mean {close[0]!r}?" if close else ""
            for other in beneath if not name.startswith("_") else ():
                if name in import_module(other).__all__:
                    hint = f". It is {other}.{name}"
            raise AttributeError(f"module {package!r} has no attribute {name!r}{hint}")
        home, attribute = homes[name]
        value = getattr(import_module(home), attribute)
        setattr(module, name, value)
        return value

    def listed_names() -> list[str]:
        # Modules of the package are not offered: Tab after `tk.` shows what a user can call.
        children = [other.rpartition(".")[2] for other in beneath if other.startswith(f"{package}.")]
        special = [name for name in vars(module) if name.startswith("__") and name.endswith("__")]
        return sorted({*homes, *children, *special})

    return sorted(homes), load, listed_names
