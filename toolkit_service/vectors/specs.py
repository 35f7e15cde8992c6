"""The settings of an index: name, kind, dimension, similarity, and the models that embed text.

The built-in models need no training and no network. Other models are found by entry points, in the group
``toolkit.local.models`` for dense vectors and ``toolkit.local.sparse_models`` for sparse vectors. An entry
point has the name that indexes use, and names a class that can be made without arguments and implements
`Model` or `SparseModel`.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from hashlib import blake2b
from importlib.metadata import entry_points
from itertools import repeat
from typing import Any, Final, Literal, NamedTuple, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from toolkit.base.errors import InputError, LocalServiceError
from toolkit_service.api import shown
from toolkit_service.vectors.sparse import MAX_INDEX, SparseArray

Kind = Literal["dense", "sparse", "hybrid"]
Similarity = Literal["COSINE", "EUCLIDEAN", "DOT_PRODUCT"]

MAX_DIMENSION: Final = 5376
"""Largest dimension, as publicly documented."""
GROUP: Final = "toolkit.local.models"
SPARSE_GROUP: Final = "toolkit.local.sparse_models"
STAND_INS: Final = (
    "BGE_SMALL_EN_V1_5",
    "BGE_BASE_EN_V1_5",
    "BGE_LARGE_EN_V1_5",
    "BGE_M3",
)
"""Dense models of the public service. `HashingModel` replaces them if no package offers them.

Programs that check the model of an index find the name that they know, but vectors compare spelling.
"""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", re.ASCII)
_MODEL_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", re.ASCII)
_FORM: Final = (
    "NAME:dense:DIMENSION:SIMILARITY[:MODEL], NAME:hybrid:DIMENSION:SIMILARITY[:MODEL+MODEL] or "
    "NAME:sparse[:MODEL]"
)
_LONGEST_WORD: Final = 64
_GRAM: Final = 3
_GRAM_WEIGHT: Final = 0.5
_WORD: Final = re.compile(r"\w+")
# constants of BM25, as publicly documented: how soon repetitions stop to count, how much the length of a
# document matters, and the average length
_K1: Final = 1.2
_B: Final = 0.75
_AVERAGE_LENGTH: Final = 32


@dataclass(frozen=True)
class IndexSpec:
    """The settings of an index. They never change after the index is made.

    Raises InputError if a setting cannot be used.

    >>> IndexSpec.parse("docs:hybrid:256:COSINE:hashing+bm25").models
    ('hashing', 'bm25')
    """

    name: str
    dimension: int = 0
    similarity: Similarity | None = None
    model: str | None = None
    """The model that embeds text. A hybrid index has two, for example ``hashing+bm25``."""
    kind: Kind = "dense"
    rank_start: int = 1
    """The rank of the best result in reciprocal rank fusion, 0 or 1: not publicly documented.

    1 is the choice of the authors (Cormack, Clarke, Büttcher, 2009).
    """

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise self._wrong_field("name", "1 to 64 letters, digits, '_' and '-'")

        kinds = get_args(Kind)
        if self.kind not in kinds:
            raise self._wrong_field("kind", f"one of {', '.join(kinds)}")

        if self.has_dense:
            self._check_dense()
        else:
            self._check_sparse()

        if not self._fits_model():
            wanted = "the name of one model"
            if self.kind == "hybrid":
                wanted = "two names of models, such as hashing+bm25"
            raise self._wrong_field(
                "model", f"{wanted}, or no model, on a {self.kind} index"
            )

        if type(self.rank_start) is not int or self.rank_start not in {0, 1}:
            raise self._wrong_field("rank_start", "0 or 1")

    def _check_dense(self) -> None:
        # not isinstance: True is an int
        is_whole = type(self.dimension) is int
        if not is_whole or not 1 <= self.dimension <= MAX_DIMENSION:
            raise self._wrong_field(
                "dimension", f"a whole number from 1 to {MAX_DIMENSION}"
            )

        similarities = get_args(Similarity)
        if self.similarity not in similarities:
            raise self._wrong_field("similarity", f"one of {', '.join(similarities)}")

    def _check_sparse(self) -> None:
        if type(self.dimension) is not int or self.dimension != 0:
            raise self._wrong_field("dimension", "no dimension, on a sparse index")
        if self.similarity is not None:
            raise self._wrong_field("similarity", "no similarity, on a sparse index")

    def _fits_model(self) -> bool:
        if self.model is None:
            return True

        # a JSON request can have any value here
        names = self.model.split("+") if isinstance(self.model, str) else []
        count = 2 if self.kind == "hybrid" else 1
        return len(names) == count and all(map(_MODEL_NAME.fullmatch, names))

    def _wrong_field(self, field: str, expected: str) -> InputError:
        return _wrong(f"the {field} {shown(getattr(self, field))}", expected)

    @property
    def has_dense(self) -> bool:
        """Return True if rows have dense vectors."""
        return self.kind != "sparse"

    @property
    def has_sparse(self) -> bool:
        """Return True if rows have sparse vectors."""
        return self.kind != "dense"

    @property
    def models(self) -> tuple[str | None, str | None]:
        """Return the names of the models for dense and for sparse vectors; None if the index has none."""
        if self.model is not None and self.kind == "hybrid":
            dense, sparse = self.model.split("+")
            return dense, sparse
        return (self.model, None) if self.has_dense else (None, self.model)

    @classmethod
    def parse(cls, text: str) -> IndexSpec:
        """Parse settings as the command line accepts them, for example ``docs:dense:256:COSINE:hashing``.

        The similarity can be in any case. A sparse index has neither dimension nor similarity:
        ``words:sparse:bm25``. They can also be there and empty: ``words:sparse:::bm25``.
        """
        name, *parts = text.split(":")
        settings: dict[str, Any] = {"name": name, "kind": parts[0] if parts else None}
        if settings["kind"] == "sparse":
            models = parts[3:] if parts[1:3] == ["", ""] else parts[1:]
            if len(models) > 1:
                expected = "NAME:sparse or NAME:sparse:MODEL: it has no dimension or similarity"
                raise _wrong(f"{text[:120]!r}", expected)
        else:
            # kind, dimension, similarity and perhaps a model
            if len(parts) not in {3, 4}:
                raise _wrong(f"{text[:120]!r}", _FORM)
            _, dimension, similarity, *models = parts
            is_number = re.fullmatch(r"[0-9]{1,9}", dimension, re.ASCII)
            settings["dimension"] = int(dimension) if is_number else dimension
            settings["similarity"] = similarity.upper()

        if models:
            settings["model"] = models[0]
        return cls.from_dict(settings)

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> IndexSpec:
        """Return settings from JSON values by field name; fields with a default can be omitted."""
        known = [field.name for field in fields(cls)]
        unknown = sorted(set(settings) - set(known))
        if unknown:
            raise _wrong(
                f"the unknown field {shown(unknown[0])}", ", ".join(sorted(known))
            )

        needed = {"name", "dimension", "similarity"}
        if settings.get("kind") == "sparse":
            needed = {"name"}
        missing = sorted(needed - set(settings))
        if missing:
            raise _wrong(f"no {missing[0]}", ", ".join(sorted(needed)))

        return cls(**settings)

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as JSON values."""
        return asdict(self)


def _wrong(got: str, expected: str) -> InputError:
    return InputError(
        "describing an index",
        got=got,
        expected=expected,
        next_step="For example docs:dense:256:COSINE:hashing, docs:hybrid:256:COSINE:hashing+bm25, "
        "plain:dense:2:COSINE, words:sparse or words:sparse:bm25.",
    )


class Model(Protocol):
    """A model of dense vectors."""

    name: str

    def embed(self, texts: Sequence[str], dimension: int) -> NDArray[np.float32]:
        """Return finite vectors, one row per text. The same text always has the same vector."""


class SparseModel(Protocol):
    """A model of sparse vectors, which may differ between stored documents and queries."""

    name: str

    def documents(self, texts: Sequence[str]) -> list[SparseArray]:
        """Return a vector per document: finite, not empty, and each dimension at most once."""

    def queries(self, texts: Sequence[str]) -> list[SparseArray]:
        """Return a vector per query, with the same properties."""


class Models(NamedTuple):
    """The models of an index; None if it has none. The vectors that they return are checked."""

    dense: Model | None
    sparse: SparseModel | None

    def embed_dense(
        self, texts: Sequence[str], dimension: int
    ) -> list[NDArray[np.float32]] | list[None]:
        """Return a dense vector per text, or None without a model.

        Raise `LocalServiceError` if the model returns vectors that cannot be used.
        """
        if self.dense is None:
            return list(repeat(None, len(texts)))

        vectors = self.dense.embed(texts, dimension)
        shape = (len(texts), dimension)
        if vectors.shape != shape or not np.isfinite(vectors).all():
            got = f"an array of shape {vectors.shape}"
            raise _faulty(self.dense.name, got, f"finite numbers of shape {shape}")

        return list(vectors)

    def embed_sparse(
        self, texts: Sequence[str], *, question: bool
    ) -> list[SparseArray] | list[None]:
        """Return a sparse vector per document or query, or None without a model."""
        if self.sparse is None:
            return list(repeat(None, len(texts)))

        embed = self.sparse.queries if question else self.sparse.documents
        vectors = embed(texts)
        # checked, as models of other packages can be wrong, and the index relies on these properties
        if len(vectors) != len(texts) or not all(map(_usable, vectors)):
            expected = f"{len(texts)}, each with unique dimensions from 0 to {MAX_INDEX} and finite values"
            raise _faulty(self.sparse.name, f"{len(vectors)} vectors", expected)

        return vectors


class HashingModel:
    """Hash words and their trigrams into the dimensions of vectors of length 1 (feature hashing).

    The model compares spelling, not meaning: "timeout" is near "timeouts", not near "too slow". The same text
    has the same vector on every machine and in every version.

    Notes
    -----
    Weinberger et al., "Feature Hashing for Large Scale Multitask Learning", 2009:

    1. A word has several features: the word, and each part of three characters. For example, ``disk`` has
       the features ``wdisk``, ``p<di``, ``pdis``, ``pisk`` and ``psk>``.
    2. Each feature is hashed. The lowest bit is a sign, so that collisions cancel out on average; the other
       bits, modulo the dimension, are the position.
    3. A word that occurs n times weighs 1 + ln n, and the parts together weigh half as much.
    """

    name = "hashing"

    def embed(self, texts: Sequence[str], dimension: int) -> NDArray[np.float32]:
        """Return the vectors, one row per text."""
        features_of: dict[str, NDArray[np.uint64]] = {}
        vectors = np.zeros((len(texts), dimension), dtype=np.float32)
        for row, text in enumerate(texts):
            counts = Counter(words_of(text))
            for word in counts:
                if word not in features_of:
                    features_of[word] = np.array(_features(word), np.uint64)

            features = [features_of[word] for word in counts]
            vectors[row] = _hashed(features, list(counts.values()), dimension)

        return vectors


def _hashed(
    features: list[NDArray[np.uint64]], counts: list[int], dimension: int
) -> NDArray[np.float64]:
    """Return a vector from the features and the count of each word."""
    hashes = np.concatenate([np.empty(0, np.uint64), *features])
    sizes = np.array([len(of_word) for of_word in features])
    weights = np.repeat(_GRAM_WEIGHT / np.sqrt(np.maximum(1, sizes - 1)), sizes)
    # the word itself comes first among the features of a word
    weights[np.cumsum(sizes) - sizes] = 1.0
    weights *= np.repeat(1 + np.log(counts), sizes) * np.where(hashes & 1, 1.0, -1.0)
    positions = ((hashes >> 1) % dimension).astype(np.intp)
    vector = np.bincount(positions, weights, minlength=dimension)
    length = float(np.linalg.norm(vector))
    if length == 0:
        # all features cancelled out, which is only possible in very few dimensions
        vector[0] = length = 1.0

    hashed: NDArray[np.float64] = vector / length
    return hashed


class Bm25Model:
    """Hash words into dimensions and weigh them by BM25: repetitions weigh more, in long documents less.

    The inverse document frequency is not part of the vectors: a query requests it with
    ``weightingStrategy: IDF``, and the index counts the documents.

    Notes
    -----
    Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", 2009: a word that occurs
    f times in a document of n words weighs f (k1 + 1) / (f + k1 (1 - b + b n / average)). For example, with
    k1 = 1.2, b = 0.75 and the average 32, a word that occurs once in 32 words weighs 1, twice 1.375.

    Stemming and stop words are not supported. Words with the same hash count as one: 31 bits make that rare.
    """

    name = "bm25"

    def documents(self, texts: Sequence[str]) -> list[SparseArray]:
        """Return the vectors of documents; dimensions ascend."""
        vectors = []
        for text in texts:
            dimensions, counts = _counted(text)
            damping = _K1 * (1 - _B + _B * counts.sum() / _AVERAGE_LENGTH)
            vectors.append(
                SparseArray(dimensions, counts * (_K1 + 1) / (counts + damping))
            )

        return vectors

    def queries(self, texts: Sequence[str]) -> list[SparseArray]:
        """Return the vectors of queries: 1 per word that occurs; dimensions ascend."""
        return [
            SparseArray(words, np.ones(len(words))) for words, _ in map(_counted, texts)
        ]


# per kind of vectors: the group of entry points, built-in models, and replacements of public models
_KNOWN_MODELS: Final[Mapping[str, tuple[str, Mapping[str, Any], Mapping[str, Any]]]] = {
    "dense": (GROUP, {"hashing": HashingModel}, dict.fromkeys(STAND_INS, HashingModel)),
    "sparse": (
        SPARSE_GROUP,
        {"bm25": Bm25Model, "BM25": Bm25Model},
        {"BGE_M3": Bm25Model},
    ),
}


def load_models(spec: IndexSpec) -> Models:
    """Return the models of an index. Raise InputError if no installed package offers one of them."""
    dense, sparse = spec.models
    return Models(_load("dense", dense), _load("sparse", sparse))


def words_of(text: str) -> list[str]:
    """Split text into words, in order: letters, digits and ``_``, normalized (NFKC), in lower case.

    Punctuation alone is one word, so that each text has at least one.

    >>> words_of("Disk FULL: disk0"), words_of(" !? ")
    (['disk', 'full', 'disk0'], ['!?'])
    """
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold()) or [
        text.strip()
    ]


def _load(kind: str, name: str | None) -> Any:
    if name is None:
        return None

    group, built_in, replacements = _KNOWN_MODELS[kind]
    if name in built_in:
        return built_in[name]()

    offered = entry_points(group=group)
    if name in offered.names:
        return offered[name].load()()
    if name in replacements:
        return replacements[name]()

    raise InputError(
        f"loading the model {name!r} for {kind} vectors",
        got="no such model",
        expected=f"one of {', '.join(sorted({*built_in, *replacements, *offered.names}))}",
        next_step=f"Install a package that offers it under the entry point group {group!r}.",
    )


def _features(word: str) -> list[int]:
    """Return the hashes of a word and of its parts of three characters."""
    framed = f"<{word[:_LONGEST_WORD]}>"
    starts = range(len(framed) - _GRAM + 1)
    parts = [f"p{framed[start : start + _GRAM]}" for start in starts]

    return [_digest(feature, 8) for feature in (f"w{word}", *parts)]


def _counted(text: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the dimensions of all words, ascending, and the count of each."""
    hashes = [_digest(word, 4) & MAX_INDEX for word in words_of(text)]
    return np.unique(np.array(hashes, dtype=np.int64), return_counts=True)


def _digest(text: str, size: int) -> int:
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=size).digest()
    return int.from_bytes(digest, "little")


def _usable(vector: SparseArray) -> bool:
    indices, weights = vector
    is_unique = 0 < len(indices) == len(weights) == len(np.unique(indices))
    if not is_unique or indices.min() < 0 or indices.max() > MAX_INDEX:
        return False

    return bool(np.isfinite(weights).all())


def _faulty(name: str, got: str, expected: str) -> LocalServiceError:
    return LocalServiceError(
        f"embedding text with the model {name!r}",
        got=got,
        expected=expected,
        next_step="This is a fault of the model; use another.",
    )
