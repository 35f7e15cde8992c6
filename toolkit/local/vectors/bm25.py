"""The built-in sparse model: BM25 with its words hashed into dimensions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Final

import numpy as np
from numpy.typing import NDArray

from toolkit.local.vectors.sparse import MAX_INDEX, SparseVector
from toolkit.local.vectors.words import words_of

K1: Final = 1.2
"""How soon further occurrences of a word stop to count: the publicly documented value."""
B: Final = 0.75
"""How much the length of a text matters: the publicly documented value."""
AVERAGE_LENGTH: Final = 32
"""Words of the average text: the publicly documented value."""


class Bm25Model:
    """BM25: a text holds the dimensions of its words; a word that repeats weighs more, in a long text less.

    The inverse document frequency is not part of the vectors: a query asks for it with
    ``weightingStrategy: IDF``, and the index knows the counts.

    Notes
    -----
    Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", 2009: a word found f
    times in a text of n words weighs f (k1 + 1) / (f + k1 (1 - b + b n / average)). There is no stemming and
    no list of stop words. Words whose hashes meet count as one: 31 bits make that rare.

    Examples
    --------
    >>> model = Bm25Model()
    >>> (text,), (question,) = model.documents(["disk full, disk"]), model.queries(["disk"])
    >>> float(text.values[text.indices == question.indices[0]][0])
    1.845...
    """

    name = "bm25"

    def documents(self, texts: Sequence[str]) -> list[SparseVector]:
        """The vectors of texts to store.

        Parameters
        ----------
        texts : sequence of str

        Returns
        -------
        list of SparseVector
            One a text, none of them empty; dimensions ascend.
        """
        found = []
        for text in texts:
            counts = _counted(words_of(text))
            frequency = np.array([counts[place] for place in sorted(counts)], dtype=np.float64)
            damping = K1 * (1 - B + B * frequency.sum() / AVERAGE_LENGTH)
            found.append(_vector(counts, frequency * (K1 + 1) / (frequency + damping)))
        return found

    def queries(self, texts: Sequence[str]) -> list[SparseVector]:
        """The vectors of questions: 1 for each word that occurs.

        Parameters
        ----------
        texts : sequence of str

        Returns
        -------
        list of SparseVector
            One a text, none of them empty; dimensions ascend.
        """
        counted = [_counted(words_of(text)) for text in texts]
        return [_vector(counts, np.ones(len(counts))) for counts in counted]


def _vector(counts: Counter[int], values: NDArray[np.float64]) -> SparseVector:
    return SparseVector(np.array(sorted(counts), dtype=np.int64), values)


def _counted(words: Iterable[str]) -> Counter[int]:
    """How often each dimension is named."""
    return Counter(map(_place, words))


def _place(word: str) -> int:
    digest = blake2b(word.encode("utf-8", "surrogatepass"), digest_size=4).digest()
    return int.from_bytes(digest, "little") & MAX_INDEX
