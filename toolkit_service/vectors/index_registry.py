"""Keep the registry of all vector indexes in a folder."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Final, ParamSpec, TypeVar

from toolkit.base.errors import InputError
from toolkit.base.private_files import make_folder
from toolkit_service.api import invalid
from toolkit_service.storage_errors import (
    INTERNAL_ERROR,
    damage_problem,
    may_be_a_damaged_value,
    storage_problem,
)
from toolkit_service.vectors.index_database import IndexDatabase
from toolkit_service.vectors.search import (
    EXPANSION,
    check_approximate,
)
from toolkit_service.vectors.specs import IndexSpec, load_models
from toolkit_service.vectors.vector_index import VectorIndex

MAX_THREADS: Final = 8
"""Threads of all indexes of a service.

Each thread needs memory for the body, the values and the response of a request, and an index serves one
request at a time. More threads only take more memory: with 200 callers that read pages, 40 threads took
290 MB and 8 threads 177 MB.
"""


P = ParamSpec("P")
T = TypeVar("T")


class IndexRegistry:
    """The indexes of a folder, all open, for one process at a time. The folder is made if it is missing.

    `seed` determines the random choices of the indexes. The other options are the options of `VectorIndex`.
    Raises `LocalServiceError` if a file cannot be used, for example because another process has it open, and
    `InputError` if a model, or usearch for approximate search, is not installed.
    """

    def __init__(
        self,
        folder: Path,
        *,
        seed: int | None = None,
        approximate_above: int | None = None,
        expansion: int = EXPANSION,
    ) -> None:
        if approximate_above is not None:
            check_approximate(approximate_above)
        self._folder = folder
        self._index = partial(
            VectorIndex,
            seed=seed,
            approximate_above=approximate_above,
            expansion=expansion,
        )
        self._lock = threading.Lock()
        self._indexes: dict[str, VectorIndex] = {}
        make_folder(folder)
        self._threads = ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="vectors")

        with ExitStack() as opened:
            opened.callback(self.close)
            for path in sorted(folder.glob("*.sqlite")):
                self._open(path)
            opened.pop_all()

    def create(self, spec: IndexSpec) -> VectorIndex:
        """Return the index of this spec, and make it if it does not exist."""
        with self._lock:
            index = self._indexes.get(spec.name)
            if index is None:
                load_models(spec)
                path = self._folder / f"{spec.name}.sqlite"
                IndexDatabase.make(path, spec)
                return self._open(path)

            if index.spec != spec:
                raise InputError(
                    f"making the index {spec.name!r}",
                    got=f"{spec}, but the existing index is {index.spec}",
                    expected="the same settings, or an unused name",
                    next_step="Use another name, or another data folder.",
                )

            return index

    def get(self, name: str) -> VectorIndex:
        """Return the index of this name. Raise an `ApiError` with 404 if it does not exist."""
        with self._lock:
            index = self._indexes.get(name)
            names = ", ".join(sorted(self._indexes))

        if index is None:
            expected = (
                f"one of {names}"
                if names
                else "an index: this service has none yet, PUT one"
            )
            raise invalid("index", repr(name[:64]), expected, status=404)

        return index

    def specs(self) -> list[IndexSpec]:
        """Return the settings of the indexes, by name."""
        with self._lock:
            return [self._indexes[name].spec for name in sorted(self._indexes)]

    def problem(self, name: str, error: Exception) -> str:
        """Return what failed: the disk, the file of an index or a value in it; else it is unexplained."""
        with self._lock:
            index = self._indexes.get(name)
        if index is None:
            return INTERNAL_ERROR

        file = f"vectors/{name}.sqlite"
        if may_be_a_damaged_value(error):
            damage = index.damaged_value()
            if damage is not None:
                return damage_problem(damage, file)

        if isinstance(error, sqlite3.Error):
            return storage_problem(error, file, self._folder / f"{name}.sqlite")

        return INTERNAL_ERROR

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function off the event loop, in one of the threads of these indexes."""
        return await asyncio.get_running_loop().run_in_executor(
            self._threads, partial(work, *args, **kwargs)
        )

    def close(self) -> None:
        """Close all indexes when the running calls have ended."""
        # before this takes the lock, which calls that still run may need
        self._threads.shutdown(cancel_futures=True)
        with self._lock:
            for index in self._indexes.values():
                index.close()
            self._indexes.clear()

    def _open(self, path: Path) -> VectorIndex:
        with ExitStack() as opened:
            index = self._index(opened.enter_context(closing(IndexDatabase(path))))
            opened.pop_all()

        self._indexes[index.spec.name] = index
        return index
