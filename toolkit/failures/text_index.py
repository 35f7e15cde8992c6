"""Find the most similar messages of a history, by two comparisons of tf-idf.

Method: each message has two vectors of features.

1. Near the error: types of errors, words of messages, and frames. Each frame counts less than the frame above
   it. Two traces that reach the same fault in different ways agree here.
2. The whole message: words without values, lines that name a place in code, and the id of the group. A
   feature that occurs n times counts 1 + log(n) (sublinear weights).

Each feature counts more if it is rare in the history: log((1 + N) / (1 + messages that have it)) + 1. The
similarity of two messages is the weighted root mean square of the two cosines, so one comparison that agrees
is enough.

For example, "connection to db-7 refused" and "connection to db-12 was refused" share the words connection,
to, db and refused. The numbers are values and do not count.

Features are hashed to 32 bits, so that memory does not depend on their length. In a large history, a query
only reads messages that share the rarest features, and compares the best candidates exactly.

Source: Salton and Buckley (1988), Term-weighting approaches in automatic text retrieval; Weinberger and
others (2009), Feature hashing for large scale multitask learning.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from toolkit.signatures.document import ends_of
from toolkit.signatures.placeholders import with_placeholders
from toolkit.signatures.reading import read_document
from toolkit.signatures.trace_frames import StackTrace

_TOKEN: Final = re.compile(r"<\w+>|[^\W\d_][\w$]*")
_WORD_PATTERN: Final = re.compile(r"<\w+>|[^\W\d_][\w.$]*")
_CAMEL: Final = re.compile(r"[A-Z]?[a-z]{2,}|[A-Z]{2,}(?![a-z])")
_PLACE: Final = re.compile(r"\s*(?:at |File |from |#\d+ )")
"""Beginning of a line that names a place in code. Numbers in it are not values."""

Floats = npt.NDArray[np.float32]
Numbers = npt.NDArray[np.uint32]


@dataclass(frozen=True)
class IndexTuning:
    """Constants of the comparison, with the data they were set on."""

    function: float = 1.0
    """Weight of a function of the trace. The weights below are relative to it."""
    fading: float = 0.75
    """Weight of a frame, relative to the frame above it."""
    call: float = 0.4
    """Weight of a function together with the one that called it."""
    part: float = 0.15
    """Weight of the class of a function, or of a part of a word."""
    error_type: float = 1.5
    """Weight of a type of error, or of another fact of the message."""
    word: float = 0.7
    """Weight of a word of the message."""
    most_words: int = 80
    """Words per message."""
    most_lines: int = 200
    """Compared lines per message. Deeper frames belong to servers and test runners."""
    longest_line: int = 1_000
    """Compared characters per line: patterns search a word of 100,000 letters once for each dot in it."""
    near: float = 0.4
    """Share of the comparison near the error. On 301 public Java traces, .5 tells seen from new worse (AUC
    .924, not .932); on the project's own traces, .3 does (.974, not .983)."""
    group: float = 2.0
    """Weight of the id of a group before its rarity. On 301 public Java traces, 2 finds more first than 3."""
    most_read: int = 400_000
    """Pairs of a message and a feature that a query reads to find candidates: about 5 ms."""
    most_candidates: int = 500
    """Candidates of a large history that are compared with all features."""


_TUNING: Final = IndexTuning()


@dataclass(frozen=True)
class Features:
    """The distinct features of a message, with their weights before rarity is applied."""

    numbers: Numbers
    weights: Floats


def _features(weights: Mapping[str, float]) -> Features:
    # `hash` of a string differs between processes, and CRC-32 does not, so an
    # index gives the same results everywhere.
    by_number = {
        zlib.crc32(name.encode("utf-8", "replace")): weight
        for name, weight in weights.items()
    }
    return Features(
        np.array([*by_number], np.uint32), np.array([*by_number.values()], np.float32)
    )


def whole_features(text: str, group: str | None) -> Features:
    """Return the features of a whole message and of the group."""
    counts: Counter[str] = Counter()
    for whole_line in ends_of(text).split("\n")[: _TUNING.most_lines]:
        line = whole_line[: _TUNING.longest_line]
        is_place = _PLACE.match(line) is not None
        readable = line.strip() if is_place else with_placeholders(line)
        if is_place:
            counts[f"line {readable}"] += 1
        counts.update(
            word.lower() for word in _TOKEN.findall(readable) if word[0] != "<"
        )

    weights = {name: 1 + float(np.log(count)) for name, count in counts.items()}
    if weights and group is not None:
        weights[f"group {group}"] = _TUNING.group
    return _features(weights)


def near_features(text: str) -> Features:
    """Return the features of the error and of the frames near it."""
    weights: dict[str, float] = defaultdict(float)
    document = read_document(text)
    if document.trace is not None:
        _of_trace(document.trace, weights)
    else:
        for fact in document.facts:
            weights[f"fact {fact}"] += _TUNING.error_type
        for message in document.messages:
            _of_message(message, weights)

    return _features(weights)


def _of_trace(trace: StackTrace, features: dict[str, float]) -> None:
    weight, above = _TUNING.function, ""
    for name in trace.frames:
        features[f"at {name}"] += weight
        owner, _, _ = name.rpartition(".")
        if owner:
            # The class of a frame counts a little, so that two methods of one class
            # are more similar than unrelated frames.
            features[f"in {owner}"] += weight * _TUNING.part

        if above:
            # A pair of frames tells how a function was reached, which the function alone does not.
            features[f"from {name} to {above}"] += weight * _TUNING.call

        weight, above = weight * _TUNING.fading, name

    for kind, message in trace.errors:
        features[f"type {kind.rpartition('.')[2]}"] += _TUNING.error_type
        _of_message(message, features)


def _of_message(message: str, features: dict[str, float]) -> None:
    words = _WORD_PATTERN.findall(with_placeholders(message))[: _TUNING.most_words]
    for word, count in Counter(words).items():
        if word[0] == "<":
            continue
        features[f"word {word.lower()}"] += _TUNING.word * (1 + np.log(count))
        # For example, "OrderNotFound" has the parts "Order", "Not" and "Found".
        parts = _CAMEL.findall(word)
        for part in parts if len(parts) > 1 else ():
            features[f"word {part.lower()}"] += _TUNING.word * _TUNING.part


class Match(NamedTuple):
    """A message of the history that is similar to another message."""

    row: int
    similarity: float
    error_similarity: float
    """The similarity of the error and of the frames near it."""


class TextIndex:
    """The messages of a history with their groups, searchable by similarity.

    >>> index = TextIndex(["disk full", "no order 17"], [None, None])
    >>> index.nearest("no order 4711", None, k=1)
    [Match(row=1, similarity=1.0, error_similarity=1.0)]
    """

    def __init__(self, texts: Sequence[str], groups: Sequence[str | None]) -> None:
        self._near = _FeatureIndex([near_features(text) for text in texts])
        self._whole = _FeatureIndex(list(map(whole_features, texts, groups)))

    def nearest(self, text: str, group: str | None, k: int) -> list[Match]:
        """Return the most similar messages, the most similar first; ties are sorted by row."""
        near = self._near.cosines(near_features(text))
        whole = self._whole.cosines(whole_features(text, group))
        similarities = np.sqrt(_TUNING.near * near**2 + (1 - _TUNING.near) * whole**2)
        order = np.argsort(-similarities, kind="stable")[:k]
        # rounded, so that equal messages have a similarity of exactly 1
        matches = [
            Match(int(row), _rounded(similarities[row]), _rounded(near[row]))
            for row in order
        ]

        return [match for match in matches if match.similarity > 0]


def _rounded(similarity: float) -> float:
    return min(1.0, round(float(similarity), 6))


class _FeatureIndex:
    """Features of a history by message and by feature, as compressed sparse rows and columns."""

    def __init__(self, documents: Sequence[Features]) -> None:
        self._size = len(documents)
        sizes = np.array([len(document.numbers) for document in documents], np.int64)
        # row layout: the features of message i are at positions starts[i] to starts[i + 1]
        self._starts = np.append(0, np.cumsum(sizes))
        numbers = np.concatenate(
            [np.zeros(0, np.uint32), *(document.numbers for document in documents)]
        )
        weights = np.concatenate(
            [np.zeros(0, np.float32), *(document.weights for document in documents)]
        )
        self._names, columns = np.unique(numbers, return_inverse=True)
        self._columns = columns.astype(np.int32)
        frequencies = np.bincount(self._columns, minlength=len(self._names))
        self._rarity = self._rarity_of(frequencies)
        self._weights = weights * self._rarity[self._columns]
        rows = np.repeat(np.arange(self._size, dtype=np.int32), sizes)
        squares = np.bincount(
            rows, weights=self._weights.astype(np.float64) ** 2, minlength=self._size
        )
        # a message without features has length 0; the tiny number avoids a division by zero
        self._lengths = np.sqrt(np.maximum(squares, 1e-300))
        # column layout: the messages that have a feature, so that a query reads only shared features
        order = np.argsort(self._columns, kind="stable")
        self._rows_by_column = rows[order]
        self._weights_by_column = self._weights[order]
        self._column_starts = np.append(0, np.cumsum(frequencies))

    def _rarity_of(self, frequencies: npt.NDArray[np.int64]) -> Floats:
        rarity: Floats = (np.log((1 + self._size) / (1 + frequencies)) + 1).astype(
            np.float32
        )
        return rarity

    def cosines(self, features: Features) -> npt.NDArray[np.float64]:
        """Return the cosine of each message, or 0 if no feature is shared."""
        if not len(self._names) or not len(features.numbers):
            return np.zeros(self._size)

        positions = np.minimum(
            np.searchsorted(self._names, features.numbers), len(self._names) - 1
        )
        is_known = self._names[positions] == features.numbers
        # Features that the history does not have match nothing, but they make the query longer: a message
        # with many new words is less similar to everything.
        unknown_rarity = self._rarity_of(np.zeros(1, np.int64))[0]
        rarity = np.where(is_known, self._rarity[positions], unknown_rarity)
        weights = (features.weights * rarity).astype(np.float32)
        length = float(np.sqrt(np.sum(weights.astype(np.float64) ** 2)))
        columns, known_weights = positions[is_known], weights[is_known]
        sums, is_exact = self._sums(columns, known_weights)
        cosines: npt.NDArray[np.float64] = sums / (self._lengths * length)
        if is_exact:
            return cosines

        return self._exact(cosines, columns, known_weights, length)

    def _sums(
        self, columns: npt.NDArray[np.int64], weights: Floats
    ) -> tuple[npt.NDArray[np.float64], bool]:
        """Return the dot product of each row, rarest features first, and whether all features were read."""
        sums = np.zeros(self._size)
        counts = self._column_starts[columns + 1] - self._column_starts[columns]

        read = 0
        for position in np.argsort(counts, kind="stable"):
            # the rarest feature is always read, even if it alone exceeds the budget
            read += counts[position]
            if read > _TUNING.most_read and read > counts[position]:
                return sums, False
            part = slice(
                self._column_starts[columns[position]],
                self._column_starts[columns[position] + 1],
            )
            sums[self._rows_by_column[part]] += (
                weights[position] * self._weights_by_column[part]
            )

        return sums, True

    def _exact(
        self,
        estimates: npt.NDArray[np.float64],
        columns: npt.NDArray[np.int64],
        weights: Floats,
        length: float,
    ) -> npt.NDArray[np.float64]:
        """Return the cosines of the best candidates by all features; 0 for all other rows."""
        cosines = np.zeros(self._size)
        # A table of the weight of each feature replaces the search of the features of a row in the query.
        weight_of_column = np.zeros(len(self._names), np.float32)
        weight_of_column[columns] = weights

        for row in np.argsort(-estimates, kind="stable")[: _TUNING.most_candidates]:
            part = slice(self._starts[row], self._starts[row + 1])
            product = np.dot(weight_of_column[self._columns[part]], self._weights[part])
            cosines[row] = product / (self._lengths[row] * length)

        return cosines
