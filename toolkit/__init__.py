"""Failed workflow runs and vector indexes as pandas DataFrames: complete, decoded, stored and explained.

The public names are those of ``__init__.pyi``. They are loaded when first used, so that importing the toolkit
pulls in neither matplotlib nor ipywidgets. It does import pandas, to register the column type of vectors,
with which `pandas.read_parquet` reads every frame of the toolkit back.

>>> import toolkit as tk
>>> tk.connect(queue_url="http://127.0.0.1:8080", queue_token="t0ken-of-mine")
Service(queue='http://127.0.0.1:8080' from arguments)
"""

# ruff: noqa: F401 - the names imported here are public
from __future__ import annotations

import ast
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from toolkit import errors
from toolkit.receipt import Receipt, receipt  # now, as the module and the function share their name
from toolkit.tables import vector_dtype as _registered  # pandas knows the type by its import
from toolkit.version import __version__

_HOMES = {
    found.asname: (node.module, found.name)
    for node in ast.parse(Path(__file__).with_suffix(".pyi").read_text("utf-8")).body
    if isinstance(node, ast.ImportFrom)
    for found in node.names
}
"""Each public name's module and its name there."""

__all__ = sorted(_HOMES)  # noqa: PLE0605 - a list


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module 'toolkit' has no attribute {name!r}")
    module, attribute = _HOMES[name]
    value = getattr(import_module(module), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names, for completion."""
    return sorted({*globals(), *__all__})


if "IPython" in sys.modules:
    import_module("toolkit.tables.frames").show_in_notebooks()
