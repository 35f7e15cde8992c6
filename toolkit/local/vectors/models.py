"""Models: what turns text into vectors. The built-in ones need no training and no network.

Others are found by entry points: ``toolkit.local.models`` for dense vectors, ``toolkit.local.sparse_models``
for sparse ones. Each names a class that can be made without arguments and behaves as `Model` or `SparseModel`
says, under the name that indexes use.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from importlib.metadata import entry_points
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from toolkit.errors import InputError, LocalServiceError
from toolkit.local.vectors.bm25 import Bm25Model
from toolkit.local.vectors.sparse import MAX_INDEX, SparseVector
from toolkit.local.vectors.specs import IndexSpec
from toolkit.local.vectors.words import words_of

GROUP: Final = "toolkit.local.models"
SPARSE_GROUP: Final = "toolkit.local.sparse_models"
STAND_INS: Final = ("BGE_SMALL_EN_V1_5", "BGE_BASE_EN_V1_5", "BGE_LARGE_EN_V1_5", "BGE_M3")
"""The public service's dense models, for which `HashingModel` stands in where no package offers them.

Programs that check which model an index has find the name they know; similarity is that of spelling.
"""

_LONGEST_WORD: Final = 64
_GRAM: Final = 3
_GRAM_WEIGHT: Final = 0.5


class Model(Protocol):
    """A model of dense vectors."""

    name: str

    def embed(self, texts: Sequence[str], dimension: int) -> NDArray[np.float32]:
        """The vectors of texts: shape (texts, dimension), finite, the same for the same text."""


class SparseModel(Protocol):
    """A model of sparse vectors: texts to store and questions may be seen differently."""

    name: str

    def documents(self, texts: Sequence[str]) -> list[SparseVector]:
        """The vectors of texts to store: one each, finite, not empty, each dimension once."""

    def queries(self, texts: Sequence[str]) -> list[SparseVector]:
        """The vectors of questions, likewise."""


class Models(NamedTuple):
    """The models of an index; None where it has none. Both embed with their answers checked."""

    dense: Model | None
    sparse: SparseModel | None

    def embed_dense(self, texts: Sequence[str], dimension: int) -> list[NDArray[np.float32]] | list[None]:
        """The dense vector of each text, None without a model.

        Raises
        ------
        LocalServiceError
            When the model gives something else.
        """
        if self.dense is None:
            return [None] * len(texts)
        vectors = self.dense.embed(texts, dimension)
        if vectors.shape != (len(texts), dimension) or not np.isfinite(vectors).all():
            raise _faulty(
                self.dense.name,
                f"an array of shape {vectors.shape}",
                f"finite numbers of shape {(len(texts), dimension)}",
            )
        return list(vectors)

    def embed_sparse(self, texts: Sequence[str], *, question: bool) -> list[SparseVector] | list[None]:
        """The sparse vector of each text to store, or of each question; None without a model.

        Raises
        ------
        LocalServiceError
            When the model gives something else.
        """
        if self.sparse is None:
            return [None] * len(texts)
        vectors = self.sparse.queries(texts) if question else self.sparse.documents(texts)
        if len(vectors) != len(texts) or not all(map(_usable, vectors)):
            raise _faulty(
                self.sparse.name,
                f"{len(vectors)} vectors",
                f"{len(texts)}, each with unique dimensions from 0 to {MAX_INDEX} and finite values",
            )
        return vectors


class HashingModel:
    """Words and their three-letter pieces, hashed into places with a sign: similar texts, similar vectors.

    Knows spelling, not meaning: "timeout" is near "timeouts" and far from "too slow". The same text gives
    the same vector on every machine and in every version.

    Notes
    -----
    Feature hashing with signs: Weinberger et al., "Feature Hashing for Large Scale Multitask Learning",
    2009. A word found n times weighs 1 + ln n, its pieces together half as much; vectors have length 1.

    Examples
    --------
    >>> texts = ["connection refused", "refused connections", "a new moon"]
    >>> first, near, far = HashingModel().embed(texts, 64)
    >>> bool(first @ near > 0.5 > first @ far)
    True
    """

    name = "hashing"

    def embed(self, texts: Sequence[str], dimension: int) -> NDArray[np.float32]:
        """The vectors of texts.

        Parameters
        ----------
        texts : sequence of str
        dimension : int
            At least 1.

        Returns
        -------
        numpy.ndarray
            Shape (texts, dimension), float32, each of length 1.
        """
        known: dict[str, int] = {}
        vectors = np.zeros((len(texts), dimension), dtype=np.float32)
        for row, text in enumerate(texts):
            words = Counter(words_of(text))
            features = [_features(word) for word in words]
            hashes = np.array([_hash(feature, known) for each in features for feature in each], np.uint64)
            sizes = np.array([len(each) for each in features])
            weights = np.repeat(_GRAM_WEIGHT / np.sqrt(np.maximum(1, sizes - 1)), sizes)
            weights[np.cumsum(sizes) - sizes] = 1.0  # a word itself comes first among its features
            weights *= np.repeat(1 + np.log(list(words.values())), sizes) * np.where(hashes & 1, 1.0, -1.0)
            places = ((hashes >> 1) % dimension).astype(np.intp)
            vector = np.bincount(places, weights, minlength=dimension)
            length = float(np.linalg.norm(vector))
            if length == 0:  # every feature met its opposite: possible in very few dimensions only
                vector[0] = length = 1.0
            vectors[row] = vector / length
        return vectors


def _features(word: str) -> list[str]:
    """A word, and its pieces of three letters."""
    framed = f"<{word[:_LONGEST_WORD]}>"
    return [f"w{word}", *(f"p{framed[start : start + _GRAM]}" for start in range(len(framed) - _GRAM + 1))]


def _hash(feature: str, known: dict[str, int]) -> int:
    number = known.get(feature)
    if number is None:
        digest = blake2b(feature.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        number = known[feature] = int.from_bytes(digest, "little")
    return number


_BUILT_IN: Final[Mapping[str, Mapping[str, Any]]] = {
    GROUP: {"hashing": HashingModel},
    SPARSE_GROUP: {"bm25": Bm25Model, "BM25": Bm25Model},
}
_STANDING_IN: Final[Mapping[str, Mapping[str, Any]]] = {
    GROUP: dict.fromkeys(STAND_INS, HashingModel),
    SPARSE_GROUP: {"BGE_M3": Bm25Model},
}


def load_models(spec: IndexSpec) -> Models:
    """The models of an index.

    Raises
    ------
    InputError
        When no installed package offers one.

    Examples
    --------
    >>> models = load_models(IndexSpec.parse("docs:hybrid:256:COSINE:hashing+bm25"))
    >>> models.dense.name, models.sparse.name
    ('hashing', 'bm25')
    """
    names = spec.models
    return Models(
        None if names.dense is None else _load(GROUP, names.dense, "dense"),
        None if names.sparse is None else _load(SPARSE_GROUP, names.sparse, "sparse"),
    )


def _load(group: str, name: str, kind: str) -> Any:
    built_in = _BUILT_IN[group]
    if name in built_in:
        return built_in[name]()
    offered = entry_points(group=group)
    if name in _STANDING_IN[group] and name not in offered.names:
        return _STANDING_IN[group][name]()
    if name not in offered.names:
        raise InputError(
            f"loading the model {name!r} for {kind} vectors",
            got="no such model",
            expected=f"one of {', '.join(sorted({*built_in, *_STANDING_IN[group], *offered.names}))}",
            next_step=f"Install a package that offers it under the entry point group {group!r}.",
        )
    return offered[name].load()()


def _usable(vector: SparseVector) -> bool:
    indices, values = vector
    return bool(
        0 < len(indices) == len(values) == len(np.unique(indices))
        and indices.min() >= 0
        and indices.max() <= MAX_INDEX
        and np.isfinite(values).all()
    )


def _faulty(name: str, got: str, expected: str) -> LocalServiceError:
    return LocalServiceError(
        f"embedding text with the model {name!r}",
        got=got,
        expected=expected,
        next_step="This is a fault of the model; use another.",
    )
