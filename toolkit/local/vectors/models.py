"""Models: what turns text into vectors. The built-in ones need no training and no network.

Others are found by entry points: ``toolkit.local.models`` for dense vectors, ``toolkit.local.sparse_models``
for sparse ones. Each names a class that can be made without arguments and behaves as `Model` or `SparseModel`
says, under the name that indexes use.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from importlib.metadata import entry_points
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from toolkit.errors import InputError, LocalServiceError
from toolkit.local.vectors.sparse import MAX_INDEX, SparseArray
from toolkit.local.vectors.specs import IndexSpec

GROUP: Final = "toolkit.local.models"
SPARSE_GROUP: Final = "toolkit.local.sparse_models"
STAND_INS: Final = ("BGE_SMALL_EN_V1_5", "BGE_BASE_EN_V1_5", "BGE_LARGE_EN_V1_5", "BGE_M3")
"""The public service's dense models, for which `HashingModel` stands in where no package offers them.

Programs that check which model an index has find the name they know; similarity is that of spelling.
"""

_LONGEST_WORD: Final = 64
_GRAM: Final = 3
_GRAM_WEIGHT: Final = 0.5
_WORD: Final = re.compile(r"\w+")
# as publicly documented: how soon repetitions stop to count, how much length matters, the average length
_K1: Final = 1.2
_B: Final = 0.75
_AVERAGE_LENGTH: Final = 32


class Model(Protocol):
    """A model of dense vectors."""

    name: str

    def embed(self, texts: Sequence[str], dimension: int) -> NDArray[np.float32]:
        """The vectors of texts: shape (texts, dimension), finite, the same for the same text."""


class SparseModel(Protocol):
    """A model of sparse vectors, which may differ for stored texts and for queries."""

    name: str

    def documents(self, texts: Sequence[str]) -> list[SparseArray]:
        """The vectors of texts to store: one each, finite, not empty, each dimension once."""

    def queries(self, texts: Sequence[str]) -> list[SparseArray]:
        """The vectors of queries, likewise."""


class Models(NamedTuple):
    """The models of an index; None where it has none. What they return is checked."""

    dense: Model | None
    sparse: SparseModel | None

    def embed_dense(self, texts: Sequence[str], dimension: int) -> list[NDArray[np.float32]] | list[None]:
        """The dense vector of each text, None without a model; LocalServiceError when the model is faulty."""
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

    def embed_sparse(self, texts: Sequence[str], *, question: bool) -> list[SparseArray] | list[None]:
        """The sparse vector of each stored text or query, likewise."""
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
    """Words and their trigrams, hashed into dimensions with a sign, to vectors of length 1.

    Compares spelling, not meaning: "timeout" is near "timeouts", not "too slow". The same text has the
    same vector on every machine and in every version.

    Notes
    -----
    Feature hashing with signs: Weinberger et al., "Feature Hashing for Large Scale Multitask Learning",
    2009. A word found n times weighs 1 + ln n, its parts together half as much.
    """

    name = "hashing"

    def embed(self, texts: Sequence[str], dimension: int) -> NDArray[np.float32]:
        """The vectors of texts."""
        known: dict[str, list[int]] = {}
        vectors = np.zeros((len(texts), dimension), dtype=np.float32)
        for row, text in enumerate(texts):
            words = Counter(words_of(text))
            features = [known.get(word) or known.setdefault(word, _features(word)) for word in words]
            hashes = np.array([feature for each in features for feature in each], np.uint64)
            sizes = np.array([len(each) for each in features])
            weights = np.repeat(_GRAM_WEIGHT / np.sqrt(np.maximum(1, sizes - 1)), sizes)
            weights[np.cumsum(sizes) - sizes] = 1.0  # a word itself comes first among its features
            weights *= np.repeat(1 + np.log(list(words.values())), sizes) * np.where(hashes & 1, 1.0, -1.0)
            indices = ((hashes >> 1) % dimension).astype(np.intp)
            vector = np.bincount(indices, weights, minlength=dimension)
            length = float(np.linalg.norm(vector))
            if length == 0:  # every feature met its opposite: possible in very few dimensions only
                vector[0] = length = 1.0
            vectors[row] = vector / length
        return vectors


class Bm25Model:
    """BM25 with words hashed into dimensions: a repeated word weighs more, in a long text less.

    The inverse document frequency is not part of the vectors: a query selects it with
    ``weightingStrategy: IDF``, and the index keeps the counts.

    Notes
    -----
    Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", 2009: a word found f
    times in a text of n words weighs f (k1 + 1) / (f + k1 (1 - b + b n / average)). There is no stemming and
    no list of stop words. Words of one hash count as one: 31 bits make that rare.
    """

    name = "bm25"

    def documents(self, texts: Sequence[str]) -> list[SparseArray]:
        """The vectors of texts to store; dimensions ascend."""
        vectors = []
        for text in texts:
            counts = _counted(text)
            frequency = np.array(list(counts.values()), dtype=np.float64)
            damping = _K1 * (1 - _B + _B * frequency.sum() / _AVERAGE_LENGTH)
            vectors.append(SparseArray(_indices(counts), frequency * (_K1 + 1) / (frequency + damping)))
        return vectors

    def queries(self, texts: Sequence[str]) -> list[SparseArray]:
        """The vectors of queries: 1 for each word that occurs; dimensions ascend."""
        return [SparseArray(_indices(counts), np.ones(len(counts))) for counts in map(_counted, texts)]


_BUILT_IN: Final[Mapping[str, Mapping[str, Any]]] = {
    GROUP: {"hashing": HashingModel},
    SPARSE_GROUP: {"bm25": Bm25Model, "BM25": Bm25Model},
}
_STANDING_IN: Final[Mapping[str, Mapping[str, Any]]] = {
    GROUP: dict.fromkeys(STAND_INS, HashingModel),
    SPARSE_GROUP: {"BGE_M3": Bm25Model},
}


def load_models(spec: IndexSpec) -> Models:
    """The models of an index; InputError when no installed package offers one."""
    names = spec.models
    return Models(
        None if names.dense is None else _load(GROUP, names.dense, "dense"),
        None if names.sparse is None else _load(SPARSE_GROUP, names.sparse, "sparse"),
    )


def words_of(text: str) -> list[str]:
    """The words of a text, in order: letters, digits and ``_``, in compatibility form and without case.

    A text of punctuation only is one word, so that every text has at least one.

    >>> words_of("Disk FULL: disk0"), words_of(" !? ")
    (['disk', 'full', 'disk0'], ['!?'])
    """
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold()) or [text.strip()]


def _load(group: str, name: str, kind: str) -> Any:
    built_in, standing_in = _BUILT_IN[group], _STANDING_IN[group]
    if name in built_in:
        return built_in[name]()
    offered = entry_points(group=group)
    if name in offered.names:
        return offered[name].load()()
    if name in standing_in:
        return standing_in[name]()
    raise InputError(
        f"loading the model {name!r} for {kind} vectors",
        got="no such model",
        expected=f"one of {', '.join(sorted({*built_in, *standing_in, *offered.names}))}",
        next_step=f"Install a package that offers it under the entry point group {group!r}.",
    )


def _features(word: str) -> list[int]:
    """Hashes of a word and of its trigrams."""
    framed = f"<{word[:_LONGEST_WORD]}>"
    grams = (f"p{framed[start : start + _GRAM]}" for start in range(len(framed) - _GRAM + 1))
    return [_digest(feature, 8) for feature in (f"w{word}", *grams)]


def _counted(text: str) -> dict[int, int]:
    """How often each dimension occurs, in ascending order."""
    return dict(sorted(Counter(_digest(word, 4) & MAX_INDEX for word in words_of(text)).items()))


def _indices(counts: Mapping[int, int]) -> NDArray[np.int64]:
    return np.array(list(counts), dtype=np.int64)


def _digest(text: str, size: int) -> int:
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=size).digest()
    return int.from_bytes(digest, "little")


def _usable(vector: SparseArray) -> bool:
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
