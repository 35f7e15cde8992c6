"""All indexes of one data folder: a file each, opened together."""

from __future__ import annotations

import threading
from pathlib import Path

from toolkit.errors import InputError, LocalServiceError
from toolkit.local.api import ApiError
from toolkit.local.vectors.index_database import IndexDatabase
from toolkit.local.vectors.models import load_models
from toolkit.local.vectors.search import EXPANSION, check_approximate
from toolkit.local.vectors.specs import IndexSpec
from toolkit.local.vectors.vector_index import VectorIndex


class IndexRegistry:
    """The indexes of a folder, all open, for one process at a time; the folder is made where it is missing.

    `seed` is for the random choices of the indexes; namespaces of more than `approximate_above` rows are
    searched approximately. LocalServiceError when a file cannot be used, or another process has it open;
    InputError when a model, or usearch for approximate search, is not installed.
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
        self._approximate_above, self._expansion = approximate_above, expansion
        self._seed = seed
        self._lock = threading.Lock()
        self._indexes: dict[str, VectorIndex] = {}
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise LocalServiceError(
                f"opening the data folder {folder.name!r}",
                got=f"{type(error).__name__}: {error.strerror}",
                expected="a folder this user may write",
                next_step="Name another folder.",
            ) from None
        try:
            for path in sorted(folder.glob("*.sqlite")):
                self._open(path)
        except BaseException:
            self.close()
            raise

    def create(self, spec: IndexSpec) -> VectorIndex:
        """The index of this spec, made when it is not there."""
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
                    got=f"{spec} while there is {index.spec}",
                    expected="the same, or a name that is free",
                    next_step="Use another name, or another data folder.",
                )
            return index

    def get(self, name: str) -> VectorIndex:
        """The index of this name; ApiError 404 when there is none."""
        with self._lock:
            index = self._indexes.get(name)
            names = ", ".join(sorted(self._indexes)) or "none yet: PUT one"
        if index is None:
            raise ApiError(404, f"index; got {name[:64]!r}; expected one of {names}")
        return index

    def specs(self) -> list[IndexSpec]:
        """What the indexes are, by name."""
        with self._lock:
            return [self._indexes[name].spec for name in sorted(self._indexes)]

    def close(self) -> None:
        """Close all indexes."""
        with self._lock:
            for index in self._indexes.values():
                index.close()
            self._indexes.clear()

    def _open(self, path: Path) -> VectorIndex:
        database = IndexDatabase(path)
        try:
            index = VectorIndex(
                database,
                seed=self._seed,
                approximate_above=self._approximate_above,
                expansion=self._expansion,
            )
        except BaseException:
            database.close()
            raise
        self._indexes[index.spec.name] = index
        return index
