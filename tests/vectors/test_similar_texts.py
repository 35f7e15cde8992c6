"""Vectors of two models in one index are found by pairs of texts that share most words."""

import numpy as np
import pandas as pd
import pytest

import toolkit as tk
from toolkit.vectors.similar_texts import TUNING, TextSample

ROWS, WORDS, DIMENSION = 1200, 400, 48


def _texts() -> list[str]:
    """Half of the texts repeat another with two words replaced, as the chunks of similar pages do."""
    rng = np.random.default_rng(1)
    first = [rng.integers(0, WORDS, 14).tolist() for _ in range(ROWS // 2)]
    words = first + [[*text[:-2], *rng.integers(0, WORDS, 2)] for text in first]
    return [" ".join(f"w{word}" for word in text) for text in words]


def _embedded(texts: list[str], model: int) -> np.ndarray:
    """Add random vectors of the words, as static models do. Another number is another model."""
    rng = np.random.default_rng(model)
    of_word = rng.normal(size=(WORDS, DIMENSION)) + rng.normal(size=DIMENSION)
    sums = [of_word[[int(word[1:]) for word in text.split()]].sum(0) for text in texts]
    matrix = np.array(sums)
    return matrix / np.linalg.norm(matrix, axis=1, keepdims=True)


def _frame(matrix: np.ndarray, texts: list[str]) -> pd.DataFrame:
    ids = [f"t{number}" for number in range(len(texts))]
    vectors = list(matrix.astype(np.float32))
    return pd.DataFrame({"id": ids, "vector": vectors, "data": texts})


@pytest.mark.parametrize("share", [0.05, 0.2, 0.5])
def test_rows_of_a_second_model_are_found(share: float):
    """The finding lists the rows of the smaller group, almost without mistakes."""
    texts = _texts()
    is_other = np.random.default_rng(2).random(ROWS) < share
    matrix = np.where(is_other[:, None], _embedded(texts, 8), _embedded(texts, 7))
    found = tk.audit_vectors(_frame(matrix, texts)).frame
    (ids,) = found.loc[found["finding"] == "several models", "ids"]
    named = np.isin([f"t{number}" for number in range(ROWS)], ids)
    assert max((named == is_other).mean(), (named != is_other).mean()) > 0.95


def test_a_rotated_half_is_found():
    """Rotated vectors have the same distances among themselves, as those of a retrained model can have."""
    texts, rng = _texts(), np.random.default_rng(3)
    matrix = _embedded(texts, 7)
    rotation, _ = np.linalg.qr(rng.normal(size=(DIMENSION, DIMENSION)))
    half = rng.permutation(ROWS)[: ROWS // 2]
    matrix[half] = matrix[half] @ rotation
    found = tk.audit_vectors(_frame(matrix, texts)).frame
    assert "several models" in set(found["finding"])


@pytest.mark.parametrize("kind", ["one model", "no model"])
def test_one_model_is_no_alarm(kind: str):
    """Neither vectors of one model are, nor vectors that have nothing to do with the text."""
    texts = _texts()
    matrix = _embedded(texts, 7)
    if kind == "no model":
        matrix = np.random.default_rng(4).normal(size=matrix.shape)
    found = tk.audit_vectors(_frame(matrix, texts)).frame
    assert "several models" not in set(found["finding"])


def test_vectors_that_are_stored_with_the_text_of_other_rows_are_found():
    """For example, a filter removed texts, but not their vectors, before both were stored."""
    texts = _texts()
    shifted = np.roll(_embedded(texts, 7), 1, axis=0)
    np.random.default_rng(4).shuffle(shifted[: ROWS // 2])
    found = tk.audit_vectors(_frame(shifted, texts)).frame.set_index("finding")
    assert found.loc["text unrelated", "severity"] == "warning"
    assert found.loc["text unrelated", "count"] > 100


def test_a_sample_of_texts_is_random_and_bounded():
    """Rows from the end of a namespace are as likely as the first."""
    sample = TextSample()
    for start in range(0, 5 * TUNING.texts, 1000):
        names, texts = ["n"] * 1000, [f"text {start}"] * 1000
        sample.add(names, texts, np.arange(1000), start)
    rows = np.array(list(sample.of("n")))
    assert len(rows) == TUNING.texts
    assert (rows > 4 * TUNING.texts).mean() == pytest.approx(0.2, abs=0.05)
    assert not sample.of("other")
