"""Whether two sets of vectors come from one distribution."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from toolkit.analysis import drift
from toolkit.errors import InputError


@pytest.mark.slow
def test_one_distribution_is_not_called_two() -> None:
    """Small p values are as rare as they should be, and the interval of the AUC holds one half."""
    found = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        found.append(
            drift(rng.normal(size=(60, 4)), rng.normal(size=(60, 4)), seed=seed)
        )
    assert sum(one.p_value < 0.05 for one in found) <= 8
    assert sum(one.low <= 0.5 <= one.high for one in found) >= 50


def test_chunks_of_one_document_are_no_evidence_of_their_own() -> None:
    """Documents of one distribution differ when permuted by chunk, and not by document."""
    rng = np.random.default_rng(1)
    document = np.repeat(np.arange(60), 5)
    sides = [
        rng.normal(size=(60, 8))[document] + 0.1 * rng.normal(size=(300, 8))
        for _ in range(2)
    ]
    assert drift(*sides).p_value < 0.01
    assert drift(*sides, groups=(document, document + 60)).p_value > 0.01


@pytest.mark.parametrize("change", ["mean", "spread"])
def test_a_change_is_found(change: str) -> None:
    """Of the mean and of the spread, by the classifier and by the distance."""
    rng = np.random.default_rng(2)
    after = (
        rng.normal(0.6, 1, (300, 8)) if change == "mean" else rng.normal(0, 2, (300, 8))
    )
    found = drift(rng.normal(size=(300, 8)), after)
    assert found.p_value < 0.01
    assert found.low > 0.6
    assert found.energy > 0


@pytest.mark.parametrize("rows", [1, 2])
def test_single_rows_say_nothing(rows: int) -> None:
    """But there is a result."""
    found = drift(np.ones((rows, 3)), np.zeros((rows, 3)))
    assert 0 <= found.low <= found.auc <= found.high <= 1
    assert found.p_value > 0.05


def test_constant_and_equal_rows_are_alike() -> None:
    """Without a division by their zero variance."""
    found = drift(np.ones((40, 3)), np.ones((40, 3)))
    assert (found.auc, found.energy, found.p_value) == (0.5, 0.0, 1.0)


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_equal_rows_on_both_sides_are_no_difference(share: float) -> None:
    """A row that is trained on with one label is not judged with the other: the AUC is about 0.5."""
    rows = np.random.default_rng(4).normal(size=(300, 8))
    found = drift(rows, rows[: int(share * 300)])
    assert found.low <= 0.5 <= found.high
    assert not found.is_clear
    assert repr(found).startswith("no difference was found: AUC ")
    assert repr(drift(rows, rows + 3)).startswith("the two differ: AUC 1.000")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"before": [1, 2]}, "before"), ({"after": np.ones((0, 3))}, "after"), ({"after": [["a"]]}, "after"),
        ({"before": [[float("nan")] * 3]}, "before"), ({"after": [[1.0]]}, "after"),
        ({"groups": [[1]]}, "groups"),
        ({"groups": ([1], [1])}, "groups"),
    ],
)  # fmt: skip
def test_what_is_no_matrix_is_refused(arguments: dict[str, Any], named: str) -> None:
    """With an error that names the argument."""
    with pytest.raises(InputError, match=named):
        drift(**{"before": np.ones((4, 3)), "after": np.ones((4, 3))} | arguments)
