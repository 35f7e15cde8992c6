"""False alarms on healthy indexes of real embeddings, and outliers and thresholds on them.

Healthy indexes are random subsets of texts. An alarm is a finding that is an error or a warning, drift that
is reported, a recall that is not trusted, or a promise of a threshold that is broken.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
from scipy.stats import binomtest

import toolkit as tk
from tests.accuracy.ill_indexes import to_frame
from tests.accuracy.real_embeddings import Matrix, embedded, models, texts
from toolkit.analysis import threshold_for_precision
from toolkit.vectors.similar_texts import text_agreement
from toolkit_service.demo.local_service import LocalService

_PROMISE = 0.8
_SPACE = 150  # rows of a namespace in the index that is queried


def _frame(matrix: Matrix, chosen: np.ndarray, namespace: str = "") -> pd.DataFrame:
    listed = texts()
    return to_frame(
        [
            {
                "namespace": namespace,
                "id": listed[row][0],
                "vector": matrix[row].tolist(),
                "data": listed[row][1],
                "metadata": {"lang": "en"},
            }
            for row in chosen
        ]
    )


def _drawn(seed: int, run: int, rows: int) -> np.ndarray:
    rng = np.random.default_rng([seed, run])
    return np.sort(rng.choice(len(texts()), rows, replace=False))


def health_alarms(matrix: Matrix, seed: int, runs: int) -> tuple[int, int]:
    """Return in how many subsets of 300 to 900 texts a defect is named, and in how many an outlier is."""
    alarms = outliers = 0
    for run in range(runs):
        rows = int(np.random.default_rng([seed, run, 1]).integers(300, 900))
        found = tk.audit_vectors(_frame(matrix, _drawn(seed, run, rows))).frame
        serious = found.loc[found["severity"] != "info", "finding"]
        alarms += len(serious) > 0
        outliers += "outlier" in set(serious)
    return alarms, outliers


def outliers_found(matrix: Matrix, seed: int, runs: int) -> int:
    """Return how many of four random directions in subsets of 600 texts are named."""
    found = 0
    for run in range(runs):
        rng = np.random.default_rng([seed, run, 2])
        ill = matrix[_drawn(seed, run, 600)]
        noise = rng.normal(size=(4, matrix.shape[1]))
        ill[-4:] = noise / np.linalg.norm(noise, axis=1, keepdims=True)
        findings = tk.audit_vectors(ill).frame
        named = findings.loc[findings["finding"] == "outlier", "ids"]
        keys = {key for ids in named for key in ids}
        found += len(keys & {str(row) for row in range(596, 600)})
    return found


def drift_alarms(matrix: Matrix, seed: int, runs: int) -> int:
    """Return how often drift, or a changed vector, is reported if 60 random documents are new in 300.

    All vectors of the later state are rounded to float16, which is no change.
    """
    documents = np.array([key.rpartition("#")[0] for key, _ in texts()])
    names = np.unique(documents)
    alarms = 0
    for run in range(runs):
        chosen = np.random.default_rng([seed, run, 3]).permutation(names)[:300]
        after = np.flatnonzero(np.isin(documents, chosen))
        before = np.flatnonzero(np.isin(documents, chosen[60:]))
        rounded = matrix.astype(np.float16).astype(np.float32)
        changes = tk.compare_vectors(
            _frame(matrix, before), _frame(rounded, after), seed=run
        )
        is_drift = "differ from old ones" in changes.verdict
        alarms += is_drift or set(changes.frame["change"]) != {"appeared"}
    return alarms


def recall_alarms(matrix: Matrix, seed: int, runs: int) -> int:
    """Return how many namespaces of a healthy index are not trusted."""
    alarms = 0
    with LocalService(indexes=[f"real:dense:{matrix.shape[1]}:COSINE"]) as local:
        service = tk.connect(
            vector_url=local.vector_urls["real"], vector_token=local.token, environ={}
        )
        for run in range(runs):
            frame = _frame(matrix, _drawn(seed, run, _SPACE), f"n{run}")
            tk.upsert_vectors(service, frame, namespace=f"n{run}", progress=False)
            audit = tk.audit_recall(service, frame, sample=100, seed=run)
            alarms += audit.trusted is not True
    return alarms


def broken_promises(
    matrix: Matrix,
    seed: int,
    runs: int,
    *,
    promise: float = _PROMISE,
    queries: int = 80,
) -> tuple[int, int]:
    """Return how many thresholds were given, and how many broke their promise for all other queries.

    A hit matches if it is part of the documentation of the same module. The labels are the first ten hits of
    each query.
    """
    modules = np.array([key.split(".")[0] for key, _ in texts()])
    scores = matrix @ matrix.T
    np.fill_diagonal(scores, -1)
    hits = np.argsort(-scores, axis=1)[:, :10]
    values = np.take_along_axis(scores, hits, axis=1)
    matches = modules[hits] == modules[:, None]
    given = broken = 0
    for run in range(runs):
        rows = _drawn(seed, run, queries)
        threshold = threshold_for_precision(
            values[rows].ravel(),
            matches[rows].ravel(),
            precision=promise,
            queries=np.repeat(rows, 10),
            seed=run,
        ).value
        if threshold is None:
            continue
        given += 1
        others = np.delete(np.arange(len(matrix)), rows)
        above = values[others] >= threshold
        broken += bool(matches[others][above].mean() < promise)
    return given, broken


def promises(seed: int, runs: int = 600) -> Iterator[str]:
    """Broken promises of thresholds by the number of judged queries, with 95 % intervals over draws."""
    yield f"| model | promise | judged queries | given, of {runs} | broken | of all | of those given |"
    yield "|---|---|---|---|---|---|---|"
    matrix = embedded("wordllama")
    for promise, queries in ((0.8, 80), (0.8, 160), (0.8, 300), (0.7, 80), (0.7, 160)):
        given, broken = broken_promises(
            matrix, seed, runs, promise=promise, queries=queries
        )
        of_all, of_given = (_share(broken, number) for number in (runs, given))
        yield (
            f"| wordllama | {promise} | {queries} | {given} | {broken} | {of_all} | {of_given} |"
        )


def _share(part: int, number: int) -> str:
    low, high = binomtest(part, number).proportion_ci()
    return f"{part / number:.1%} [{low * 100:.1f}, {high * 100:.1f}]"


def mixtures(seed: int, runs: int = 20) -> Iterator[str]:
    """Healthy subsets and mixtures of both models with 64 numbers each: how often two models are named."""
    small = embedded("tokenlearn")
    # this model is trained so that the first numbers of a vector are a vector as well
    first = embedded("wordllama")[:, : small.shape[1]]
    first = first / np.linalg.norm(first, axis=1, keepdims=True)
    cases: list[tuple[str, Matrix, Matrix | None, float]] = [
        ("wordllama", embedded("wordllama"), None, 0.0),
        ("tokenlearn", small, None, 0.0),
    ]
    for share in (0.02, 0.05, 0.2, 0.5):
        cases += [
            ("wordllama with tokenlearn", first, small, share),
            ("tokenlearn with wordllama", small, first, share),
        ]
    cases += [
        ("wordllama, rotated", embedded("wordllama"), None, 0.5),
        ("tokenlearn, rotated", small, None, 0.5),
    ]
    yield "| index | share of the other | texts | named | rows told apart | of them right |"
    yield "|---|---|---|---|---|---|"
    for name, one, other, share in cases:
        for rows in (600, 1500, 4000):
            draws = runs
            if not share:
                draws = 10 * runs
            if rows == len(texts()):
                draws = min(runs, 5)
            named, told, right = _mixed(one, other, share, rows, seed, draws)
            shown = "-"
            if told:
                shown = f"{right:.3f}"
            yield (
                f"| {name} | {share:.0%} | {rows:,} | {named} of {draws} | {told} of {draws} | {shown} |"
            )


def _mixed(
    one: Matrix, other: Matrix | None, share: float, rows: int, seed: int, runs: int
) -> tuple[int, int, float]:
    """Return how often two models are named, how often rows are told apart, and the share of right rows."""
    named = told = 0
    right = []
    for run in range(runs):
        rng = np.random.default_rng([seed, run, rows, 8])
        chosen = _drawn(seed, run, rows)
        mixed = one[chosen]
        is_other = rng.random(rows) < share
        if other is not None:
            mixed[is_other] = other[chosen][is_other]
        elif share:
            size = mixed.shape[1]
            rotation, _ = np.linalg.qr(rng.normal(size=(size, size)))
            mixed[is_other] = mixed[is_other] @ rotation
        found = text_agreement(mixed, [texts()[row][1] for row in chosen], seed=run)
        named += len(found.unrelated) > 0
        if len(found.smaller):
            told += 1
            side = np.isin(np.arange(rows), found.smaller)
            right.append(max((side == is_other).mean(), (side != is_other).mean()))
    return named, told, float(np.mean(right)) if right else np.nan


def misplaced(seed: int, runs: int = 20) -> Iterator[str]:
    """Indexes of one model, in which some vectors, or all, are stored with the text of other rows."""
    yield "| index | share of misplaced vectors | texts | text unrelated | several models | not named |"
    yield "|---|---|---|---|---|---|"
    for name in ("wordllama", "tokenlearn"):
        for share in (0.2, 0.5, 1.0):
            for rows in (600, 1500):
                unrelated, models_named = _named_misplaced(
                    embedded(name), share, rows, seed, runs
                )
                missed = runs - unrelated - models_named
                yield (
                    f"| {name} | {share:.0%} | {rows:,} | {unrelated} | {models_named} | {missed} |"
                )


def _named_misplaced(
    matrix: Matrix, share: float, rows: int, seed: int, runs: int
) -> tuple[int, int]:
    """Return how often text that is unrelated is named, and how often several models are."""
    unrelated = models_named = 0
    for run in range(runs):
        rng = np.random.default_rng([seed, run, rows, 9])
        chosen = _drawn(seed, run, rows)
        vectors = matrix[chosen]
        moved = np.flatnonzero(rng.random(rows) < share)
        vectors[moved] = vectors[rng.permutation(moved)]
        found = text_agreement(vectors, [texts()[row][1] for row in chosen], seed=run)
        if not found.follows_text:
            unrelated += 1
        elif len(found.unrelated):
            models_named += 1
    return unrelated, models_named


def false_alarms(seed: int, runs: int = 200) -> Iterator[str]:
    """Alarms on healthy indexes of real embeddings, per model, and planted outliers."""
    yield (
        f"| model | dimension | defects named, of {runs} | outliers, of {runs} | planted found, of 80"
        f" | changes reported, of {runs} | recall not trusted, of {runs} | promises broken, of those given |"
    )
    yield "|---|---|---|---|---|---|---|---|"
    for name in models():
        matrix = embedded(name)
        alarms, outliers = health_alarms(matrix, seed, runs)
        planted = outliers_found(matrix, seed, 20)
        drifted = drift_alarms(matrix, seed, runs)
        untrusted = recall_alarms(matrix, seed, runs)
        given, broken = broken_promises(matrix, seed, runs)
        yield (
            f"| {name} | {matrix.shape[1]} | {alarms} | {outliers} | {planted} | {drifted} | {untrusted}"
            f" | {broken} of {given} |"
        )
