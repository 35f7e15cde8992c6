"""Embedding models: what turns text into vectors. The built-in one needs no training and no network.

Models are found by the entry point group ``toolkit.local.models``: a class that can be made without arguments
and behaves as `Model` says, under the name that indexes use.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from hashlib import blake2b
from importlib.metadata import entry_points
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from toolkit.errors import InputError

GROUP: Final = "toolkit.local.models"

_WORD: Final = re.compile(r"\w+")
_LONGEST_WORD: Final = 64
_GRAM: Final = 3
_GRAM_WEIGHT: Final = 0.5


class Model(Protocol):
    """An embedding model."""

    name: str

    def embed(self, texts: Sequence[str], dimension: int) -> NDArray[np.float32]:
        """The vectors of texts: shape (texts, dimension), finite, the same for the same text."""


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
        known: dict[str, tuple[NDArray[np.intp], NDArray[np.float64]]] = {}
        vectors = np.zeros((len(texts), dimension), dtype=np.float32)
        for row, text in enumerate(texts):
            words = Counter(_WORD.findall(unicodedata.normalize("NFKC", text).casefold()))
            if not words:  # punctuation only: the text itself is the one feature
                words = Counter([text.strip()])
            for word in words.keys() - known.keys():
                known[word] = _places(word, dimension)
            places = np.concatenate([known[word][0] for word in words])
            weights = np.concatenate([known[word][1] * (1 + np.log(count)) for word, count in words.items()])
            vector = np.bincount(places, weights, minlength=dimension)
            length = float(np.linalg.norm(vector))
            if length == 0:  # every feature met its opposite: possible in very few dimensions only
                vector[0] = length = 1.0
            vectors[row] = vector / length
        return vectors


def _places(word: str, dimension: int) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Where a word and its pieces go, and with which sign and weight."""
    framed = f"<{word[:_LONGEST_WORD]}>"
    pieces = [framed[start : start + _GRAM] for start in range(len(framed) - _GRAM + 1)]
    features = [f"w{word}", *(f"p{piece}" for piece in pieces)]
    hashes = [
        int.from_bytes(blake2b(feature.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")
        for feature in features
    ]
    weights = np.full(len(features), _GRAM_WEIGHT / max(1, len(pieces)) ** 0.5)
    weights[0] = 1.0
    signs = np.array([1.0 if number & 1 else -1.0 for number in hashes])
    return np.array([(number >> 1) % dimension for number in hashes], dtype=np.intp), weights * signs


def load_model(name: str) -> Model:
    """The embedding model of this name.

    Raises
    ------
    InputError
        When no installed package offers it.

    Examples
    --------
    >>> load_model("hashing").name
    'hashing'
    """
    offered = entry_points(group=GROUP)
    if name not in offered.names:
        raise InputError(
            f"loading the embedding model {name!r}",
            got="no such model",
            expected=f"one of {', '.join(sorted(offered.names))}",
            next_step=f"Install a package that offers it under the entry point group {GROUP!r}.",
        )
    model: Model = offered[name].load()()
    return model
