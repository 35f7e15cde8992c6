"""Calibrate scores of an index: the scores of random pairs, and thresholds that promise a precision."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from toolkit.base.arguments import choice, whole, wrong
from toolkit.base.errors import InputError, UnexpectedResultWarning
from toolkit.base.visible_text import visible
from toolkit.drawing.result_tables import frame_table
from toolkit.drawing.wording import counted, percent
from toolkit.loading.vector_names import Namespaces
from toolkit.loading.vectors import load_index, of_vectors
from toolkit.service.settings import Service
from toolkit.service.vectors import describe_index
from toolkit.tables.arrow_input import FrameLike
from toolkit.tables.frames import checked_frame
from toolkit.vectors.exact_comparison import SIMILARITIES, pair_scores, scores_at
from toolkit.vectors.label_tests import look_like_hits
from toolkit.vectors.precision import (
    UNKNOWN_QUERIES,
    Threshold,
    checked_share,
    find_threshold,
)
from toolkit.vectors.query_scores import (
    PairScores,
    read_queries,
    scores_of_texts,
    scores_of_vectors,
)
from toolkit.vectors.vector_batches import Matrix
from toolkit.vectors.vector_rows import (
    VectorSource,
    VectorTables,
    check_namespaces,
    only_namespace,
    read_rows,
    typed_tuples,
    with_default_named,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from toolkit.drawing.style import ThemeName

_Floats = npt.NDArray[np.float64]

_DOING: Final = "calibrating scores"
_SAMPLE: Final = 50_000
_PAIRS: Final = 200_000
_DRAWN: Final = 2000  # scores of each kind that a plot shows
_CHANCE: Final = 0.001
# share of random pairs that makes a score common; a namespace of 25 vectors has 300 pairs
_NOT_CHANCE: Final = 0.005
_STEPS: Final = 200
_QUERIES: Final = "queries and rows"
_STORED: Final = "stored rows"
_STORED_ONLY: Final = (
    "The threshold is that of pairs of stored rows, but the index embeds the texts of queries, and questions "
    "score lower. Pass usual queries of your users: calibrate_threshold(service, queries=texts)."
)
_LARGEST: Final = 1e100  # larger than any product of float32 vectors


@dataclass(frozen=True, repr=False, eq=False)
class Calibration:
    """Typical scores and thresholds by namespace; made by `calibrate_threshold`.

    Attributes
    ----------
    frame : pandas.DataFrame
        One row per namespace: `namespace`, `similarity`, `pairs` (``queries and rows`` or ``stored rows``),
        `threshold` (float64, missing if no threshold can be promised), `why`, `random_median` and
        `random_high` (float64, the median score of random pairs, missing if only the best hits are known,
        and the score that one pair in 1,000 reaches), `random_share` (float64, the share of random pairs at
        or above the threshold), `duplicate_share` (float64, the same for pairs with equal text; missing
        without any), `labels` and `queries` (Int64), `best_median` and `best_low` (float64, the median score
        of the best hit of a query, and the score that the best hits of 95 % of the queries reach).
    curve : pandas.DataFrame
        `namespace`, `score`, `random_share` and, if labels were passed, `precision` (float64, the share of
        matches among labelled pairs of this score, which rises with the score).
    pairs : pandas.DataFrame
        At most 2,000 random pairs, duplicates and labelled pairs per namespace: `pair` (the kind of pair),
        `score`.
    promised : bool
        True if thresholds promise a precision; False if they are only scores that chance rarely reaches.
    unlabelled : int
        Rows of the labels that were left out because `match` is missing.
    look_like_hits : bool
        True if the labels have no column `query` and look like hits of several queries.
    common_high : frozenset of str
        Namespaces in which many random pairs have the highest score, so that no score is rare.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> calibrate_threshold(rng.normal(size=(500, 64))).verdict
    'Two random stored vectors score 0.50; one pair in 1,000 reaches 0.69.'
    """

    frame: pd.DataFrame
    curve: pd.DataFrame
    pairs: pd.DataFrame
    promised: bool
    unlabelled: int
    look_like_hits: bool = False
    common_high: frozenset[str] = frozenset()

    @property
    def verdict(self) -> str:
        """Return a sentence for each of the first three namespaces."""
        sentences = list(self._sentences(self.frame.head(3))) or [
            "There are no two vectors to compare."
        ]
        if self.unlabelled:
            rows = counted(self.unlabelled, "row")
            sentences.append(f"Left out: {rows} of labels whose match is missing.")

        if self.look_like_hits:
            sentences.append(
                "The labels look like hits of queries; without their column query, the promise may not hold."
            )

        return " ".join(sentences)

    def _sentences(self, frame: pd.DataFrame) -> Iterator[str]:
        for row in frame.to_dict("records"):
            place = ""
            if row["namespace"]:
                place = f"In {row['namespace']}, "
            is_common = row["namespace"] in self.common_high
            sentence = f"{place}{_pairs_sentence(row, is_common=is_common)}"

            if np.isnan(row["threshold"]):
                sentence += f"; no threshold: {row['why']}"
            elif self.promised:
                sentence += f"; from {row['threshold']:.3g} on, {row['why']}"

            yield f"{sentence[0].upper()}{sentence[1:]}."

    def __repr__(self) -> str:
        shown = with_default_named(self.frame.drop(columns="why"))
        if shown.empty:
            return visible(self.verdict)

        return visible(f"{self.verdict}\n{shown.to_string(index=False)}")

    def _repr_html_(self) -> str:
        return frame_table(self.verdict, with_default_named(self.frame))

    def plot(self, *, ax: Axes | None = None, theme: ThemeName = "auto") -> Axes:
        """Draw the scores of random pairs, duplicates and labelled pairs."""
        from toolkit.vectors.score_plots import draw_similarities  # noqa: PLC0415 - matplotlib is slow to import

        return draw_similarities(
            self.pairs, "Scores of pairs", "score", ax=ax, theme=theme
        )


def calibrate_threshold(
    vectors: Service | VectorSource,
    labels: FrameLike | None = None,
    *,
    queries: str | Iterable[str] | npt.ArrayLike | FrameLike | None = None,
    precision: float = 0.9,
    confidence: float = 0.95,
    similarity: str | None = None,
    namespace: Namespaces | None = None,
    seed: int = 0,
) -> Calibration:
    """Find a threshold for the scores of queries: above scores of random pairs, or by labels that you judged.

    Parameters
    ----------
    vectors : Service, pandas.DataFrame, pyarrow.Table, pyarrow.dataset.Dataset, path or numpy.ndarray
        An index, which is loaded now, or the vectors of an index.
    labels : pandas.DataFrame, optional
        Pairs or hits that you judged: `score` as the service returned it, `match` (True or False) and, if the
        vectors are of several namespaces, `namespace`. With labels, each threshold is a promise; otherwise it
        is the score that one random pair in 1,000 reaches. Rows whose `match` is missing are left out, and
        counted in the verdict. If the labels are hits of queries, pass their column `query` as well: hits of
        one query are often right or wrong together.
    queries : str, iterable of str, array_like or pandas.DataFrame, optional
        Usual queries of your users, at most 1,000: strings, if `vectors` is the service of an index with a
        model, or vectors. Random pairs are then pairs of a query and a stored vector. Without queries they
        are pairs of stored vectors, which are often more similar to each other than questions are to
        documents: such a threshold can reject the right hit of a question.
    precision, confidence : float
        The promise: at least this share of the hits at or above the threshold are matches, with this
        confidence.
    similarity : {"COSINE", "EUCLIDEAN", "DOT_PRODUCT"}, optional
        Similarity function of the index. If omitted, that of the service, or ``"COSINE"`` for vectors.
    namespace : str or sequence of str, optional
        Namespaces to load from a service, as in `load_vectors`. If omitted, all.
    seed : int
        Seed for random pairs and the split of labels.

    Returns
    -------
    Calibration

    Raises
    ------
    InputError
        If the scores of the index have no common scale (sparse or hybrid: fused scores compare only within
        one query), if labels lack columns or name an unknown namespace, or if an argument cannot be used.

    Warns
    -----
    UnexpectedResultWarning
        If labels have no column `query` and look like hits of several queries. If the index embeds text, and
        you pass neither labels nor queries.

    Notes
    -----
    Labels are split: one half chooses thresholds, the other tests them, by an exact binomial test. With the
    column `query`, whole queries are split, and the test uses the effective number of labels. The curve of
    labelled precision is isotonic regression, by scikit-learn.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> scores = rng.uniform(0.5, 1, 2000)
    >>> judged = pd.DataFrame({"score": scores, "match": rng.random(2000) < 2 * scores - 1})
    >>> found = calibrate_threshold(rng.normal(size=(500, 64)), judged, precision=0.8)
    >>> found.frame["threshold"].round(2).tolist()
    [0.81]
    """
    seed = whole("seed", seed, least=0)
    precision = checked_share("precision", precision)
    confidence = checked_share("confidence", confidence)
    similarity = choice("similarity", similarity, SIMILARITIES, optional=True)
    loaded = _loaded(vectors, namespace, similarity)
    asked = None
    if queries is not None:
        asked = read_queries(queries, loaded.service, loaded.model)
    elif loaded.model and labels is None:
        warnings.warn(_STORED_ONLY, UnexpectedResultWarning, stacklevel=2)

    index = read_rows(
        VectorTables(loaded.vectors, doing=_DOING),
        sample=_SAMPLE,
        seed=seed,
        with_sketches=False,
    )
    judged, unlabelled = _labels(labels, sorted(index.sampled))
    doubtful = any(
        part.queries is None and look_like_hits(part.scores) for part in judged.values()
    )
    if doubtful:
        warnings.warn(UNKNOWN_QUERIES, UnexpectedResultWarning, stacklevel=2)
    texts = index.rows["text"].to_numpy()
    promise = _Promise(precision, confidence, seed)

    rows: list[tuple[Any, ...]] = []
    curve: list[tuple[Any, ...]] = []
    pairs: list[tuple[str, float]] = []
    common_high: set[str] = set()
    for name, (positions, matrix) in sorted(index.sampled.items()):
        if len(matrix) < 2:  # noqa: PLR2004 - a pair
            continue
        # Cosines of unrelated documents are near 0 for some models and near 0.7 for others, so no fixed
        # threshold fits all of them. Random pairs show what chance scores here.
        chance = _chance(loaded, asked, name, index.rows, matrix, seed)
        same = _same_text(matrix, texts[positions], loaded.similarity)
        labelled = judged.get(name, _Labelled(np.zeros(0), np.zeros(0, dtype=bool)))
        high = chance.reached_by(_CHANCE)
        threshold = _above_chance(chance, high)
        if threshold.value is None:
            common_high.add(name)
        if name in judged:
            threshold = promise.threshold(labelled)
        elif labels is not None:
            threshold = Threshold(None, "nothing is labelled here")

        measures = _row(chance, same, threshold, high, len(labelled.scores))
        rows.append((name, loaded.similarity, *measures))
        curve += _curve(name, chance, labelled)
        # the plot names the namespaces only if there are several
        shown_name = None
        if len(index.sampled) > 1:
            shown_name = name
        pairs += _pairs(shown_name, chance.scores, same, labelled, seed)

    curves = typed_tuples(
        curve, namespace="str", score="float64", random_share="float64", precision="float64"
    )  # fmt: skip
    if labels is None or not curve:
        curves = curves.drop(columns="precision")
    frame = typed_tuples(
        rows, namespace="str", similarity="str", pairs="str", threshold="float64", why="str",
        random_median="float64", random_high="float64", random_share="float64",
        duplicate_share="float64", labels="Int64", queries="Int64", best_median="float64",
        best_low="float64",
    )  # fmt: skip

    return Calibration(
        frame,
        curves,
        typed_tuples(pairs, pair="str", score="float64"),
        labels is not None,
        unlabelled,
        doubtful,
        frozenset(common_high),
    )


class _Loaded(NamedTuple):
    """Vectors to calibrate, and the index that they were loaded from."""

    vectors: VectorSource
    similarity: str
    service: Service | None = None
    model: str = ""
    """The model with which the index embeds text; "" if there is none, or if it is not known."""


def _loaded(
    vectors: Service | VectorSource,
    namespace: Namespaces | None,
    similarity: str | None,
) -> _Loaded:
    """Load the vectors of an index, whose scores must have a scale. Other vectors are returned as given."""
    if not isinstance(vectors, Service):
        if namespace is not None:
            raise of_vectors(namespace)
        return _Loaded(vectors, similarity or "COSINE")

    info = describe_index(vectors)
    if info.kind != "DENSE" or info.similarity not in SIMILARITIES:
        raise InputError(
            _DOING,
            got=f"an index of the kind {info.kind}",
            expected="a dense index: sparse scores have no upper end, and fused scores no meaning",
            next_step="Calibrate the dense vectors: pass load_vectors(service), and scores of them.",
        )

    if similarity is not None and similarity != info.similarity:
        expected = f"{info.similarity!r}, the similarity of the index"
        raise wrong("similarity", similarity, expected)

    rows = load_index(vectors, namespace, include_metadata=False)
    return _Loaded(rows, info.similarity, vectors, info.model)


class _Promise(NamedTuple):
    """The promise of a threshold, and the seed of the split of labels."""

    precision: float
    confidence: float
    seed: int

    def threshold(self, labelled: _Labelled) -> Threshold:
        """Return a threshold of labels that has the precision, if there is one."""
        return find_threshold(
            labelled.scores,
            labelled.matches,
            precision=self.precision,
            confidence=self.confidence,
            queries=labelled.queries,
            seed=self.seed,
        )


class _Labelled(NamedTuple):
    """Scores, labels and, if they are known, queries of a namespace."""

    scores: _Floats
    matches: npt.NDArray[Any]
    queries: npt.NDArray[Any] | None = None


def _labels(labels: Any, known: list[str]) -> tuple[dict[str, _Labelled], int]:
    """Return the scores and labels of each namespace, and the number of rows without a label.

    Without a column `namespace`, all labels are of the only namespace.
    """
    if labels is None:
        return {}, 0

    frame = checked_frame("labels", labels, "score", "match")
    is_labelled = frame["match"].notna()

    frame = frame[is_labelled]
    if "namespace" in frame:
        names = frame["namespace"].astype("object")
        names = names.where(names.notna(), "").astype("str")
        check_namespaces("labels", names, known)
    else:
        names = pd.Series(only_namespace("labels", known), index=frame.index)

    if (
        not pd.api.types.is_numeric_dtype(frame["score"])
        or (frame["score"].abs() > _LARGEST).any()
    ):
        raise wrong(
            "labels", labels, "scores as the service returns them, in the column score"
        )

    has_queries = "query" in frame
    return {
        str(name): _Labelled(
            part["score"].to_numpy(dtype=np.float64, na_value=np.nan),
            part["match"].to_numpy(),
            part["query"].to_numpy(dtype=object) if has_queries else None,
        )
        for name, part in frame.groupby(names, sort=True)
    }, int((~is_labelled).sum())


def _chance(
    loaded: _Loaded,
    asked: Any,
    namespace: str,
    rows: pd.DataFrame,
    matrix: Matrix,
    seed: int,
) -> PairScores:
    """Return the scores of random pairs in a namespace: of queries and rows, or of stored rows."""
    if isinstance(asked, list) and loaded.service is not None:
        stored = int((rows["namespace"] == namespace).sum())
        return scores_of_texts(loaded.service, asked, namespace, stored)
    if asked is not None:
        return scores_of_vectors(asked, matrix, loaded.similarity, seed)

    scores = np.sort(_random_pairs(matrix, loaded.similarity, seed))
    return PairScores(scores, len(scores))


def _above_chance(chance: PairScores, high: float) -> Threshold:
    """Return the score that few random pairs reach, if there is one.

    There is none if many pairs have the highest score, for example if all vectors are alike, or if there are
    only three vectors, and so three pairs.
    """
    share = float(chance.share_from(high))
    if share > _NOT_CHANCE:
        why = f"{percent(share)} of the random pairs reach the highest score"
        return Threshold(None, why)

    return Threshold(high, "one random pair in 1,000 reaches it")


def _row(
    chance: PairScores, same: _Floats, threshold: Threshold, high: float, labels: int
) -> tuple[Any, ...]:
    """Return the columns of a namespace, from `pairs` to `best_low`."""
    value = np.nan if threshold.value is None else threshold.value
    random_share = np.nan
    if not np.isnan(value):
        random_share = float(chance.share_from(value))
    kind, best = _STORED, [0, np.nan, np.nan]
    if chance.best is not None:
        kind = _QUERIES
        best = [len(chance.best), *np.quantile(chance.best, [0.5, 0.05]).tolist()]

    median, same_share = chance.median, _share(same, value)
    scores = (value, threshold.why, median, high, random_share, same_share)
    return (kind, *scores, labels, *best)


def _pairs_sentence(row: dict[Any, Any], *, is_common: bool) -> str:
    """Return the sentence about random pairs and, if queries were passed, about their best hits."""
    reached = f"one pair in 1,000 reaches {row['random_high']:.2f}"
    if is_common:
        reached = f"the highest score of pairs is {row['random_high']:.2f}"
    if row["pairs"] == _STORED:
        return f"two random stored vectors score {row['random_median']:.2f}; {reached}"

    if not np.isnan(row["random_median"]):
        reached = (
            f"a query and a random vector score {row['random_median']:.2f}; {reached}"
        )

    best = f"{row['best_median']:.2f} at the median, and at least {row['best_low']:.2f} for 95 %"
    return f"{reached}; the best hits of the queries ({row['queries']:,}) score {best}"


def _random_pairs(matrix: Matrix, similarity: str, seed: int) -> _Floats:
    rng = np.random.default_rng([seed, 4])
    # The second number of a seed separates the draws: with the same seed, each step has its own stream.
    first, second = rng.integers(0, len(matrix), (2, _PAIRS))
    differ = first != second

    return scores_at(matrix, first[differ], matrix, second[differ], similarity)


def _same_text(matrix: Matrix, texts: npt.NDArray[Any], similarity: str) -> _Floats:
    """Return the scores of pairs of rows with the same text."""
    # Hashes stand for the data of rows here (0 if it is missing), so equal data are neighbours after sorting.
    order = np.argsort(texts, kind="stable")
    equal = np.flatnonzero(
        (texts[order][1:] == texts[order][:-1]) & (texts[order][1:] != 0)
    )
    return pair_scores(matrix[order[equal]], matrix[order[equal + 1]], similarity)


def _curve(
    name: str, chance: PairScores, labelled: _Labelled
) -> Iterable[tuple[Any, ...]]:
    """Yield scores over the whole range, the share of random pairs at or above each, and the precision."""
    known = np.concatenate([chance.scores[[0, -1]], labelled.scores])
    scores = np.linspace(known.min(), known.max(), _STEPS)
    shares = chance.share_from(scores)
    precision = (
        _isotonic(labelled.scores, labelled.matches, scores)
        if len(labelled.scores)
        else np.full(_STEPS, np.nan)
    )

    return zip(repeat(name, _STEPS), scores, shares, precision, strict=True)


def _isotonic(scores: _Floats, matches: npt.NDArray[Any], at: _Floats) -> _Floats:
    try:
        # A higher score should never mean a lower precision, so the curve is fitted under this condition
        # alone: isotonic regression assumes no further shape.
        regression = import_module("sklearn.isotonic").IsotonicRegression(
            out_of_bounds="clip", y_min=0, y_max=1
        )
    except ImportError:
        raise InputError(
            _DOING,
            got="no scikit-learn in this environment",
            expected="the package scikit-learn, for the curve of labels",
            next_step="Install it: pip install scikit-learn.",
        ) from None

    fitted = regression.fit(scores, np.asarray(matches, dtype=np.float64)).predict(at)
    return np.asarray(fitted, dtype=np.float64)


def _pairs(
    name: str | None, chance: _Floats, same: _Floats, labelled: _Labelled, seed: int
) -> list[tuple[str, float]]:
    rng = np.random.default_rng([seed, 5])
    place = ""
    if name is not None:
        place = f" in {name or '(default)'}"
    right = np.asarray(labelled.matches, dtype=bool)
    kinds = {
        "random pairs": chance,
        "same text": same,
        "labelled matches": labelled.scores[right],
        "labelled others": labelled.scores[~right],
    }

    drawn: list[tuple[str, float]] = []
    for kind, scores in kinds.items():
        if len(scores) > _DRAWN:
            scores = rng.choice(scores, _DRAWN, replace=False)  # noqa: PLW2901 - a sample of them
        drawn += [(kind + place, float(score)) for score in scores]

    return drawn


def _share(scores: _Floats, threshold: float) -> float:
    """Return the share of scores at or above the threshold; NaN without scores or without a threshold."""
    if not len(scores) or np.isnan(threshold):
        return float("nan")
    return float((scores >= threshold).mean())
