"""What an index is: its name, kind, dimension, similarity, and the models that turn text into its vectors.

The built-in models need no training and no network. Others are found by entry points:
``toolkit.local.models`` for dense vectors, ``toolkit.local.sparse_models`` for sparse ones. Each names a
class that can be made without arguments and behaves as `Model` or `SparseModel` says, under the name that
indexes use.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from hashlib import blake2b
from importlib.metadata import entry_points
from typing import Any, Final, Literal, NamedTuple, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from toolkit.errors import InputError, LocalServiceError
from toolkit.local.api import shown
from toolkit.local.vectors.sparse import MAX_INDEX, SparseArray

Kind = Literal["dense", "sparse", "hybrid"]
Similarity = Literal["COSINE", "EUCLIDEAN", "DOT_PRODUCT"]

MAX_DIMENSION: Final = 5376
"""Most dimensions, as publicly documented."""
GROUP: Final = "toolkit.local.models"
SPARSE_GROUP: Final = "toolkit.local.sparse_models"
STAND_INS: Final = ("BGE_SMALL_EN_V1_5", "BGE_BASE_EN_V1_5", "BGE_LARGE_EN_V1_5", "BGE_M3")
"""The public service's dense models, for which `HashingModel` stands in where no package offers them.

Programs that check which model an index has find the name they know; similarity is that of spelling.
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
# as publicly documented: how soon repetitions stop to count, how much length matters, the average length
_K1: Final = 1.2
_B: Final = 0.75
_AVERAGE_LENGTH: Final = 32


@dataclass(frozen=True)
class IndexSpec:
    """What an index is. It never changes once the index is made.

    A value that cannot be used is an InputError.

    >>> IndexSpec.parse("docs:hybrid:256:COSINE:hashing+bm25").models
    ('hashing', 'bm25')
    """

    name: str
    dimension: int = 0
    similarity: Similarity | None = None
    model: str | None = None
    """Embeds text; on a hybrid index two, such as ``hashing+bm25``."""
    kind: Kind = "dense"
    rank_start: int = 1
    """The rank of the best result in reciprocal rank fusion, 0 or 1: not publicly documented.

    1 is the authors' choice (Cormack, Clarke, Büttcher, 2009).
    """

    def __post_init__(self) -> None:
        dimensions, similarities = range(1, MAX_DIMENSION + 1), get_args(Similarity)
        whole, one_of = f"a whole number from 1 to {MAX_DIMENSION}", f"one of {', '.join(similarities)}"
        if not self.has_dense:
            dimensions, similarities = range(1), (None,)
            whole = one_of = "none, on a sparse index"
        count, wanted = 1, "the name of one model"
        if self.kind == "hybrid":
            count, wanted = 2, "two names of models, such as hashing+bm25"
        names = self.model.split("+") if isinstance(self.model, str) else []
        fits_model = self.model is None or (len(names) == count and all(map(_MODEL_NAME.fullmatch, names)))
        fits_name = isinstance(self.name, str) and _NAME.fullmatch(self.name)
        for field, fits, expected in (
            ("name", fits_name, "1 to 64 letters, digits, '_' and '-'"),
            ("kind", self.kind in get_args(Kind), f"one of {', '.join(get_args(Kind))}"),
            ("dimension", type(self.dimension) is int and self.dimension in dimensions, whole),
            ("similarity", self.similarity in similarities, one_of),
            ("model", fits_model, f"{wanted}, or none, on a {self.kind} index"),
            ("rank_start", type(self.rank_start) is int and self.rank_start in {0, 1}, "0 or 1"),
        ):
            if not fits:
                raise _wrong(f"the {field} {shown(getattr(self, field))}", expected)

    @property
    def has_dense(self) -> bool:
        """Whether its rows have dense vectors."""
        return self.kind != "sparse"

    @property
    def has_sparse(self) -> bool:
        """Whether its rows have sparse vectors."""
        return self.kind != "dense"

    @property
    def models(self) -> tuple[str | None, str | None]:
        """The names of its models for dense and for sparse vectors; None where it has none."""
        if self.model is not None and self.kind == "hybrid":
            dense, sparse = self.model.split("+")
            return dense, sparse
        return (self.model, None) if self.has_dense else (None, self.model)

    @classmethod
    def parse(cls, text: str) -> IndexSpec:
        """The spec from one text, as the command line takes it: NAME:KIND with what that kind has.

        The similarity is in any case. Dimension and similarity of a sparse index may also be there and empty:
        ``words:sparse:::bm25``.
        """
        name, *parts = text.split(":")
        values: dict[str, Any] = {"name": name}
        if parts[:1] == ["sparse"]:
            rest = parts[3:] if parts[1:3] == ["", ""] else parts[1:]
            if len(rest) > 1:
                expected = "NAME:sparse or NAME:sparse:MODEL: it has no dimension or similarity"
                raise _wrong(f"{text[:120]!r}", expected)
        else:
            rest = parts[3:]
            if not 3 <= len(parts) <= 4:  # noqa: PLR2004 - kind, dimension, similarity and perhaps a model
                raise _wrong(f"{text[:120]!r}", _FORM)
            size, similarity = parts[1], parts[2].upper()
            values["dimension"] = int(size) if re.fullmatch(r"[0-9]{1,9}", size, re.ASCII) else size
            values["similarity"] = similarity
        return cls.from_dict(values | {"kind": parts[0], "model": rest[0] if rest else None})

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> IndexSpec:
        """The spec from JSON values under the names of its fields; those with a default may be left out."""
        known = [field.name for field in fields(cls)]
        if unknown := sorted(set(values) - set(known)):
            raise _wrong(f"the unknown field {shown(unknown[0])}", ", ".join(sorted(known)))
        needed = {"name"} if values.get("kind") == "sparse" else {"name", "dimension", "similarity"}
        if missing := sorted(needed - set(values)):
            raise _wrong(f"no {missing[0]}", ", ".join(sorted(needed)))
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """The spec as JSON values."""
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
        shape = (len(texts), dimension)
        if vectors.shape != shape or not np.isfinite(vectors).all():
            got = f"an array of shape {vectors.shape}"
            raise _faulty(self.dense.name, got, f"finite numbers of shape {shape}")
        return list(vectors)

    def embed_sparse(self, texts: Sequence[str], *, question: bool) -> list[SparseArray] | list[None]:
        """The sparse vector of each stored text or query, likewise."""
        if self.sparse is None:
            return [None] * len(texts)
        vectors = self.sparse.queries(texts) if question else self.sparse.documents(texts)
        if len(vectors) != len(texts) or not all(map(_usable, vectors)):
            expected = f"{len(texts)}, each with unique dimensions from 0 to {MAX_INDEX} and finite values"
            raise _faulty(self.sparse.name, f"{len(vectors)} vectors", expected)
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
            if length == 0:  # all features cancelled out: possible in very few dimensions only
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
            dimensions, counts = _counted(text)
            damping = _K1 * (1 - _B + _B * counts.sum() / _AVERAGE_LENGTH)
            vectors.append(SparseArray(dimensions, counts * (_K1 + 1) / (counts + damping)))
        return vectors

    def queries(self, texts: Sequence[str]) -> list[SparseArray]:
        """The vectors of queries: 1 for each word that occurs; dimensions ascend."""
        return [SparseArray(words, np.ones(len(words))) for words, _ in map(_counted, texts)]


# by kind of vectors: entry points, models that are built in, and those that stand in for the public service's
_KNOWN_MODELS: Final[Mapping[str, tuple[str, Mapping[str, Any], Mapping[str, Any]]]] = {
    "dense": (GROUP, {"hashing": HashingModel}, dict.fromkeys(STAND_INS, HashingModel)),
    "sparse": (SPARSE_GROUP, {"bm25": Bm25Model, "BM25": Bm25Model}, {"BGE_M3": Bm25Model}),
}


def load_models(spec: IndexSpec) -> Models:
    """The models of an index; InputError when no installed package offers one."""
    dense, sparse = spec.models
    return Models(_load("dense", dense), _load("sparse", sparse))


def words_of(text: str) -> list[str]:
    """The words of a text, in order: letters, digits and ``_``, in compatibility form and without case.

    A text of punctuation only is one word, so that every text has at least one.

    >>> words_of("Disk FULL: disk0"), words_of(" !? ")
    (['disk', 'full', 'disk0'], ['!?'])
    """
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold()) or [text.strip()]


def _load(kind: str, name: str | None) -> Any:
    if name is None:
        return None
    group, built_in, standing_in = _KNOWN_MODELS[kind]
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


def _counted(text: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The dimensions of the words of a text, ascending, and how often each occurs."""
    hashes = [_digest(word, 4) & MAX_INDEX for word in words_of(text)]
    return np.unique(np.array(hashes, dtype=np.int64), return_counts=True)


def _digest(text: str, size: int) -> int:
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=size).digest()
    return int.from_bytes(digest, "little")


def _usable(vector: SparseArray) -> bool:
    indices, values = vector
    unique = 0 < len(indices) == len(values) == len(np.unique(indices))
    return bool(unique and 0 <= indices.min() <= indices.max() <= MAX_INDEX and np.isfinite(values).all())


def _faulty(name: str, got: str, expected: str) -> LocalServiceError:
    doing, next_step = f"embedding text with the model {name!r}", "This is a fault of the model; use another."
    return LocalServiceError(doing, got=got, expected=expected, next_step=next_step)
