"""Find vectors of several models in one index: text that is almost equal, with unrelated vectors.

Two models can have one dimension, so that the service accepts vectors of both. Queries of one model do not
find the rows of the other, and no single vector shows it. Pairs of rows do: if the text of two rows shares
most words, their vectors are similar in any model. If two models made them, their cosine is that of random
pairs.

1. The text of each row becomes a short vector: a random projection of TF-IDF weights, in
   which rare words count more.
2. Rows of almost the same words become pairs, and each row is in one pair at most.
3. A pair is unrelated if the cosine of its vectors is at most the median of random pairs. In healthy indexes
   of real embeddings, that is at most 1 pair in 100. If a share p of the rows is of another model, it is
   between p (1 - p) and 2 p (1 - p) of them.
4. A direction is searched in which unrelated pairs differ and other pairs do not (Fisher's discriminant). If
   it also separates pairs that it was not fitted to, it shows which rows are of which model.

For example, 1,500 rows have 160 pairs. If 300 rows are of another model, about 45 pairs are unrelated.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from toolkit.vectors.label_tests import binomial_tail
from toolkit.vectors.row_draws import row_draws

Matrix = npt.NDArray[np.float32]
Positions = npt.NDArray[np.intp]
_Floats = npt.NDArray[np.float64]
_Booleans = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class TextTuning:
    """Constants of the search, set on docstrings embedded by two models, and on mixtures of both."""

    texts: int = 4_000
    """Rows per namespace that are compared, drawn at random: 16 million pairs take a second."""
    longest: int = 2_000
    """Characters per text that are compared: models read about as many."""
    fewest_words: int = 6
    """Shorter text, for example "page 3", differs in meaning if one word differs."""
    axes: int = 256
    """Numbers of a projected text: cosines have an error of about 0.06."""
    alike: float = 0.45
    """Cosine of two rows that share most words."""
    partners: int = 5
    """Number of most similar rows among which the partner is."""
    usual_share: float = 0.02
    """Share of unrelated pairs of a healthy index at most; 0.007 in the worst of the real ones."""
    least_pairs: int = 5
    """Fewer unrelated pairs are chance, however few pairs there are."""
    chance: float = 0.001
    """Chance of as many unrelated pairs in a healthy index, at which they are reported."""
    related: float = 0.3
    """Share of pairs with a higher cosine than 95 % of random pairs. If it is lower, vectors do not follow
    the text at all. Two models with half of the rows each have 0.43, and vectors of other rows 0.05."""
    folds: int = 5
    """Parts of the pairs; a direction is tested on each and fitted to the others."""
    separated: float = 0.8
    """Share of unrelated pairs that the direction must separate."""
    torn: float = 0.05
    """Share of other pairs that it may separate."""


TUNING: Final = TextTuning()
# A Chinese, Japanese or Korean character is a word, because these languages have no spaces.
_CJK: Final = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_WORD: Final = re.compile(rf"[{_CJK}]|[^\W{_CJK}]+")


_STREAM: Final = 1 << 32  # texts are drawn independently of vectors


class TextSample:
    """The text of rows by namespace, at most `TextTuning.texts` each, drawn at random while rows are read."""

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed + _STREAM
        # Each row has a random number. The rows with the smallest numbers are a random sample.
        self._drawn: dict[str, list[tuple[int, int, str]]] = {}

    def add(
        self,
        namespaces: Sequence[str],
        texts: Sequence[str],
        rows: Positions,
        start: int,
    ) -> None:
        """Add the text of some rows of a batch that begins at the position `start`."""
        draws = row_draws(start + rows, self._seed).tolist()
        for draw, row in zip(draws, rows.tolist(), strict=True):
            if not texts[row]:
                continue
            text = texts[row][: TUNING.longest]
            self._keep(namespaces[row], [(draw, start + row, text)])

    def merge(self, later: TextSample) -> None:
        """Add the text of later rows."""
        for namespace, drawn in later._drawn.items():
            self._keep(namespace, drawn)

    def _keep(self, namespace: str, further: list[tuple[int, int, str]]) -> None:
        drawn = self._drawn.setdefault(namespace, [])
        drawn += further
        if len(drawn) >= 2 * TUNING.texts:
            drawn.sort()
            del drawn[TUNING.texts :]

    def of(self, namespace: str) -> dict[int, str]:
        """Return the text of a namespace by the position of the row, in the order of rows."""
        drawn = sorted(self._drawn.get(namespace, []))[: TUNING.texts]
        return {row: text for _, row, text in sorted(drawn, key=lambda item: item[1])}


@dataclass(frozen=True, eq=False)
class TextAgreement:
    """How well vectors agree with text: positions are rows of the compared vectors.

    `unrelated` has the rows of unrelated pairs, if these are too many for a healthy index. `smaller` has the
    rows of the smaller of two groups of vectors, if a direction separates them. `follows_text` is False if
    most pairs are as unrelated as random ones: each vector may be stored with the text of another row.
    """

    pairs: int
    unrelated: Positions
    smaller: Positions
    follows_text: bool = True

    @property
    def unrelated_pairs(self) -> int:
        """Return the number of unrelated pairs."""
        return len(self.unrelated) // 2


def text_agreement(
    unit: Matrix, texts: Sequence[str], *, seed: int = 0
) -> TextAgreement:
    """Compare the similarity of text with that of the vectors, which have length 1."""
    rng = np.random.default_rng([seed, 5])
    none = np.zeros(0, dtype=np.intp)
    kept = _distinct(texts)
    pairs = kept[_pairs(_word_vectors([texts[row] for row in kept], rng))]
    if not len(pairs):
        return TextAgreement(0, none, none)

    cosines = np.einsum("ij,ij->i", unit[pairs[:, 0]], unit[pairs[:, 1]])
    median, high = _random_cosines(unit[kept], rng)
    is_unrelated = cosines <= median
    count = int(is_unrelated.sum())
    chance = binomial_tail(count, len(pairs), TUNING.usual_share)
    if count < TUNING.least_pairs or chance > TUNING.chance:
        return TextAgreement(len(pairs), none, none)

    unrelated = np.sort(pairs[is_unrelated].ravel())
    if (cosines > high).mean() < TUNING.related:
        return TextAgreement(len(pairs), unrelated, none, follows_text=False)

    # Between both levels, a pair may be of one model or of two.
    is_clear = is_unrelated | (cosines > high)
    smaller = _smaller_group(unit, pairs[is_clear], is_unrelated[is_clear], rng)
    return TextAgreement(len(pairs), unrelated, smaller)


def _distinct(texts: Sequence[str]) -> Positions:
    """Return the positions of the first rows with each text; short text is left out."""
    first: dict[str, int] = {}
    for row, text in enumerate(texts):
        if len(_WORD.findall(text)) >= TUNING.fewest_words:
            first.setdefault(text, row)

    return np.array(list(first.values()), dtype=np.intp)


def _word_vectors(texts: Sequence[str], rng: np.random.Generator) -> Matrix:
    """Return a random projection of the TF-IDF weights of each row, of length 1."""
    vocabulary: dict[str, int] = {}
    counted = []
    for text in texts:
        words = _WORD.findall(text.casefold())
        counted.append(
            Counter(vocabulary.setdefault(word, len(vocabulary)) for word in words)
        )

    in_texts = np.zeros(len(vocabulary))
    for counts in counted:
        in_texts[list(counts)] += 1
    weights = np.log(max(len(texts), 1) / np.maximum(in_texts, 1))
    axes = rng.standard_normal((len(vocabulary), TUNING.axes), dtype=np.float32)
    vectors = np.zeros((len(texts), TUNING.axes), dtype=np.float32)

    for row, counts in enumerate(counted):
        words_of_text = np.fromiter(counts.keys(), dtype=np.intp)
        often = np.fromiter(counts.values(), dtype=np.float64)
        weight = np.log1p(often) * weights[words_of_text]
        vectors[row] = weight.astype(np.float32) @ axes[words_of_text]

    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, 1e-9), dtype=np.float32)


def _pairs(words: Matrix) -> Positions:
    """Return pairs of rows with almost the same words, one pair per row at most, the most similar first."""
    partners = min(TUNING.partners, len(words) - 1)
    if partners < 1:
        return np.zeros((0, 2), dtype=np.intp)

    similarities = words @ words.T
    np.fill_diagonal(similarities, -1)
    second = np.argpartition(similarities, -partners, axis=1)[:, -partners:].ravel()
    first = np.repeat(np.arange(len(words)), partners)
    values = similarities[first, second]
    order = np.argsort(-values, kind="stable")
    order = order[values[order] >= TUNING.alike]
    is_paired = np.zeros(len(words), dtype=bool)

    pairs = []
    for one, other in zip(first[order].tolist(), second[order].tolist(), strict=True):
        if not is_paired[one] and not is_paired[other]:
            is_paired[[one, other]] = True
            pairs.append((one, other))

    return np.array(pairs, dtype=np.intp).reshape(-1, 2)


def _random_cosines(unit: Matrix, rng: np.random.Generator) -> tuple[float, float]:
    """Return the median of the cosines of random pairs, and the level that 5 % of them exceed."""
    first, second = rng.integers(0, len(unit), (2, 20_000))
    different = first != second
    cosines = np.einsum("ij,ij->i", unit[first[different]], unit[second[different]])
    median, high = np.quantile(cosines, [0.5, 0.95])

    return float(median), float(high)


def _smaller_group(
    unit: Matrix, pairs: Positions, is_unrelated: _Booleans, rng: np.random.Generator
) -> Positions:
    """Return the rows on the smaller side of a cut between two models; empty if no cut separates them."""
    none = np.zeros(0, dtype=np.intp)
    fold = rng.permutation(len(pairs)) % TUNING.folds
    is_separated = np.zeros(len(pairs), dtype=bool)

    for number in range(TUNING.folds):
        fitted, tested = fold != number, fold == number
        if not is_unrelated[fitted].any() or is_unrelated[fitted].all():
            return none
        side = _side(unit, pairs[fitted], is_unrelated[fitted])
        is_separated[tested] = side[pairs[tested, 0]] != side[pairs[tested, 1]]

    if is_separated[is_unrelated].mean() < TUNING.separated:
        return none
    if is_separated[~is_unrelated].mean() > TUNING.torn:
        return none

    side = _side(unit, pairs, is_unrelated)
    if side.mean() > 0.5:  # noqa: PLR2004 - a half
        side = ~side
    return np.flatnonzero(side)


def _side(unit: Matrix, pairs: Positions, is_unrelated: _Booleans) -> _Booleans:
    """Return on which side of the best cut each row is."""
    centred = unit - unit.mean(axis=0)
    differences = centred[pairs[:, 0]] - centred[pairs[:, 1]]
    between, within = (
        part.T.astype(np.float64) @ part / len(part)
        for part in (differences[is_unrelated], differences[~is_unrelated])
    )
    # Few pairs do not show the variance in each direction: a share of the mean variance is added to all.
    size = unit.shape[1]
    ridge = 0.1 + size / len(pairs)
    within += np.eye(size) * ridge * np.trace(within) / size
    # The direction maximizes (d' between d) / (d' within d): the leading eigenvector after whitening.
    inverse = np.linalg.inv(np.linalg.cholesky(within))
    _, vectors = np.linalg.eigh(inverse @ between @ inverse.T)
    projected = centred @ (inverse.T @ vectors[:, -1])

    return np.asarray(projected > _best_cut(projected, pairs, is_unrelated))


def _best_cut(projected: _Floats, pairs: Positions, is_unrelated: _Booleans) -> float:
    """Return the cut that separates most unrelated pairs and fewest others; of equal cuts, the widest gap."""
    levels = np.quantile(projected, np.linspace(0.01, 0.99, 99))
    low = projected[pairs].min(axis=1)
    high = projected[pairs].max(axis=1)
    crossed = (low <= levels[:, None]) & (high > levels[:, None])
    quality = crossed[:, is_unrelated].mean(axis=1)
    quality -= crossed[:, ~is_unrelated].mean(axis=1)
    # the width of the levels around each: wide if few rows are there
    padded = np.pad(levels, 3, mode="edge")
    width = padded[6:] - padded[:-6]
    is_best = quality >= quality.max() - 0.03

    return float(levels[np.argmax(np.where(is_best, width, -1.0))])
