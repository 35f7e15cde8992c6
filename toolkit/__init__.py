"""Failed workflow runs and vector indexes as pandas DataFrames: complete, decoded, stored and explained.

The file ``__init__.pyi`` lists the public names. They are loaded when first used, so that importing the
toolkit pulls in neither matplotlib nor ipywidgets. It does import pandas, to register the column type of
vectors, with which `pandas.read_parquet` reads every frame of the toolkit back. The command ``toolkit``
imports pandas only if it needs frames, so that help and ``toolkit serve`` start faster.

>>> import toolkit as tk
>>> tk.connect(queue_url="http://127.0.0.1:8080", queue_token="t0ken-of-mine")
Service(queue='http://127.0.0.1:8080' from arguments)
"""

# ruff: noqa: F401 - the names imported here are public
from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

try:
    from toolkit import errors
    from toolkit.base.lazy_names import lazy_names
    from toolkit.base.old_names import OLD_NAMES
    from toolkit.base.own_process import is_own_process
    from toolkit.version import __version__

    if not is_own_process():
        # pandas knows the type by its import
        from toolkit.tables import vector_dtype as _registered
except KeyboardInterrupt:
    if "toolkit" in {Path(word).stem for word in sys.orig_argv[1:3]}:
        # The command shows no traceback. The empty code is explained in toolkit/__main__.py.
        exec("")  # noqa: S102 - the string is constant
        raise SystemExit(130) from None
    raise

__all__, __getattr__, __dir__ = lazy_names(
    __name__,
    modules=("toolkit.analysis", "toolkit.errors", "toolkit.plots", "toolkit.results"),
    old_names=OLD_NAMES,
)

# A module of the package is looked for, not the package itself: a file of the user may have the name of the
# package, and None blocks it.
if "IPython.core" in sys.modules:
    import_module("toolkit.tables.frames").show_in_notebooks()

if "marimo._output" in sys.modules:
    import_module("toolkit.tables.marimo_tables").mask_in_marimo()
