"""Check the workers of a Dask cluster before work starts.

A task whose code or file a worker cannot load is tried again and again, so that a cell seems to hang for
minutes. Asking each worker once takes milliseconds.
"""

from __future__ import annotations

import pydoc
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

from toolkit.base.errors import SettingsError, SnapshotError
from toolkit.version import __version__

_PACKAGE: Final = "workflow-vector-toolkit"
_NAMED: Final = 3  # workers that an error names; further ones are counted
_LONGEST: Final = 200  # characters of another error in a message


def check_versions() -> None:
    """Raise SettingsError if a worker of the current cluster has no toolkit, or another version.

    Do nothing without a cluster.
    """
    client = _client()
    if client is None:
        return

    # A function of Python's own library, because a worker without the toolkit cannot load ours.
    found = client.run(pydoc.locate, "toolkit.version.__version__", on_error="return")
    wrong = {
        worker: f"version {version}" if isinstance(version, str) else "no toolkit"
        for worker, version in found.items()
        if version != __version__
    }
    if wrong:
        raise SettingsError(
            "starting work on a cluster",
            got=_named(wrong),
            expected=f"version {__version__} of {_PACKAGE} on each worker, as here",
            next_step=f'Install it on the workers: pip install "{_PACKAGE}=={__version__}".',
        )


def check_access(read: Callable[[], object], what: str) -> None:
    """Raise SnapshotError if a worker of the current cluster cannot read. Do nothing without a cluster.

    `read` reads a little of what the work will read, for example the end of a file.
    """
    client = _client()
    if client is None:
        return

    found = client.run(read, on_error="return")
    wrong = {
        worker: f"{type(error).__name__}: {error}"[:_LONGEST]
        for worker, error in found.items()
        if isinstance(error, Exception)
    }
    if wrong:
        raise SnapshotError(
            f"reading {what} on a cluster",
            got=_named(wrong),
            expected="access to the files on each worker",
            next_step="Give the workers the credentials of the store in their environment, or a path that "
            "each of them can read.",
        )


def _client() -> Any:
    """Return the client of the current cluster; None if the session has none."""
    distributed: Any = sys.modules.get("distributed")
    if distributed is None:
        return None

    try:
        return distributed.get_client()
    except ValueError:  # no client was made
        return None


def _named(problems: Mapping[str, str]) -> str:
    named = [f"{worker}: {problem}" for worker, problem in problems.items()]
    text = "; ".join(named[:_NAMED])
    if len(named) > _NAMED:
        text += f"; and {len(named) - _NAMED:,} more"
    return text
