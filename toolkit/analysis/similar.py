"""Texts of failures that look alike, although they are not of one kind."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from toolkit.arguments import whole, wrong
from toolkit.signatures.documents import read_document
from toolkit.signatures.placeholders import with_placeholders
from toolkit.signatures.trace_frames import StackTrace
from toolkit.signatures.traces import stack_trace

_Floats = npt.NDArray[np.float64]

_SEEN: Final = 0.5
"""The similarity from which on a text counts as seen before."""
_FADING: Final = 0.75  # how much less each frame counts than the one above
_FRAME, _PAIR, _PART, _TYPE, _WORD = (
    1.0,
    0.4,
    0.15,
    1.5,
    0.7,
)  # of a function, a call, a class, an error, a word
_WORDS: Final = 80  # of a message
_WORD_PATTERN: Final = re.compile(r"<\w+>|[^\W\d_][\w.$]*")
_CAMEL: Final = re.compile(r"[A-Z]?[a-z]{2,}|[A-Z]{2,}(?![a-z])")


def similar_texts(texts: Iterable[str | None], history: Iterable[str | None], k: int = 5) -> pd.DataFrame:
    """Find, for each text, the texts of a history that it looks like.

    By words, exception types and frames, rare ones counting more (tf-idf), and frames near the error more
    than those far from it. Values such as numbers and ids do not count. Not for telling whether two texts
    have one cause: that is what `error_signatures` is for.

    Parameters
    ----------
    texts, history : iterable of str or None
        Messages, response bodies, stack traces. None and empty texts are similar to nothing.
    k : int
        How many of the history to name for each text, at least 1.

    Returns
    -------
    pandas.DataFrame
        Up to `k` rows a text, the most similar first: `query` (Int64, position in `texts`), `rank` (Int64,
        from 1), `row` (Int64, position in `history`), `similarity` (float64, above 0 to 1), `seen` (bool:
        whether the text's most similar one is similar enough to have been seen before).

    Raises
    ------
    InputError
        When `texts` or `history` hold anything but texts, or `k` is below 1.

    Examples
    --------
    >>> history = ["no space left on device /dev/sda1", "connection to db-7 refused"]
    >>> similar_texts(["connection to db-12 was refused"], history, k=1)
       query  rank  row  similarity  seen
    0      0     1    1    0.808251  True
    """
    k = whole("k", k)
    queried, known = _checked("texts", texts), _checked("history", history)
    index = _Index([_features(text) for text in known])
    rows: list[tuple[int, int, int, float, bool]] = []
    found: dict[str, list[tuple[int, float]]] = {}
    for query, text in enumerate(queried):
        if text not in found:
            found[text] = index.nearest(_features(text), k)
        nearest = found[text]
        seen = bool(nearest) and nearest[0][1] >= _SEEN
        rows += [(query, rank + 1, row, similarity, seen) for rank, (row, similarity) in enumerate(nearest)]
    frame = pd.DataFrame(rows, columns=["query", "rank", "row", "similarity", "seen"])
    return frame.astype(
        {"query": "Int64", "rank": "Int64", "row": "Int64", "similarity": "float64", "seen": "bool"}
    )


def _checked(name: str, texts: Any) -> list[str]:
    if isinstance(texts, str | bytes) or not isinstance(texts, Iterable):
        raise wrong(name, texts, "an iterable of texts")
    listed: list[Any] = list(texts)
    for text in listed:
        if not isinstance(text, str) and not (pd.api.types.is_scalar(text) and pd.isna(text)):
            raise wrong(name, text, "texts, or None where there is none")
    return [text if isinstance(text, str) else "" for text in listed]


def _features(text: str) -> dict[str, float]:
    """What is compared, and how much each counts before its rarity does."""
    features: dict[str, float] = defaultdict(float)
    trace = stack_trace(text) if "\n" in text else None
    if trace:
        _of_trace(trace, features)
    else:
        document = read_document(text)
        for fact in document.facts:
            features[f"fact {fact}"] += _TYPE
        for message in document.messages:
            _of_message(message, features)
    return features


def _of_trace(trace: StackTrace, features: dict[str, float]) -> None:
    weight, above = _FRAME, ""
    for name in trace.frames:
        features[f"at {name}"] += weight
        owner, _, _ = name.rpartition(".")
        if owner:
            features[f"in {owner}"] += weight * _PART
        if above:
            features[f"from {name} to {above}"] += weight * _PAIR
        weight, above = weight * _FADING, name
    for kind, message in trace.errors:
        features[f"type {kind.rpartition('.')[2]}"] += _TYPE
        _of_message(message, features)


def _of_message(message: str, features: dict[str, float]) -> None:
    words = _WORD_PATTERN.findall(with_placeholders(message))[:_WORDS]
    for word, count in Counter(words).items():
        if word[0] == "<":
            continue
        features[f"word {word.lower()}"] += _WORD * (1 + np.log(count))
        parts = _CAMEL.findall(word)
        if len(parts) > 1:
            for part in parts:
                features[f"word {part.lower()}"] += _WORD * _PART


class _Index:
    """Features of the history, by feature."""

    def __init__(self, documents: Sequence[dict[str, float]]) -> None:
        postings: dict[str, list[int]] = defaultdict(list)
        for row, features in enumerate(documents):
            for name in features:
                postings[name].append(row)
        self._size = len(documents)
        self._rarity = {
            name: float(np.log1p((self._size + 1) / (len(rows) + 0.5))) for name, rows in postings.items()
        }
        self._unknown = float(np.log1p(self._size + 1))
        self._rows = {name: np.asarray(rows, dtype=np.intp) for name, rows in postings.items()}
        self._weights = {
            name: np.asarray([documents[row][name] for row in rows]) * self._rarity[name]
            for name, rows in postings.items()
        }
        self._lengths = np.zeros(self._size)
        for name, rows in self._rows.items():
            self._lengths[rows] += self._weights[name] ** 2
        self._lengths = np.sqrt(np.maximum(self._lengths, 1e-300))

    def nearest(self, features: dict[str, float], k: int) -> list[tuple[int, float]]:
        """Rows and cosines of weighted features, the largest first, equal ones by row."""
        sums, length = np.zeros(self._size), 0.0
        for name, weight in features.items():
            weighed = weight * self._rarity.get(name, self._unknown)
            length += weighed**2
            if name in self._rows:
                sums[self._rows[name]] += weighed * self._weights[name]
        if not length or not self._size:
            return []
        cosines = sums / (self._lengths * np.sqrt(length))
        order = (
            np.lexsort((np.arange(self._size), -cosines))[:k]
            if k < self._size
            else np.argsort(-cosines, kind="stable")
        )
        return [(int(row), min(1.0, float(cosines[row]))) for row in order if cosines[row] > 0]
