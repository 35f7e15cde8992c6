"""Changes of a rate."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from toolkit.analysis import change_points
from toolkit.errors import InputError

HOURS = 90 * 24


def _poisson(rng: np.random.Generator) -> npt.NDArray[Any]:
    return rng.poisson(20, HOURS)


def _spread(rng: np.random.Generator) -> npt.NDArray[Any]:
    return rng.negative_binomial(3, 3 / 23, HOURS)


def _retries(rng: np.random.Generator) -> npt.NDArray[Any]:
    counts = rng.poisson(12, HOURS)
    for start in rng.integers(0, HOURS, 180):
        for late in rng.exponential(1.5, rng.geometric(1 / 40)).astype(int):
            counts[min(start + late, HOURS - 1)] += 1
    return counts


def _daily(rng: np.random.Generator) -> npt.NDArray[Any]:
    return rng.poisson(20 * (1 + 0.7 * np.sin(np.arange(HOURS) * 2 * np.pi / 24)))


@pytest.mark.parametrize("quiet", [_poisson, _spread, _retries, _daily])
def test_quiet_days_have_no_changes(quiet: Any) -> None:
    """At most one false change in 90 days, on average over ten of each kind."""
    assert (
        sum(
            len(change_points(quiet(np.random.default_rng(seed)))) for seed in range(10)
        )
        <= 10
    )


def test_a_doubling_is_placed_within_three_hours() -> None:
    """In at least 90 % of 40 runs."""
    placed = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        at = int(rng.integers(48, 24 * 28))
        counts = rng.poisson(np.where(np.arange(24 * 30) < at, 20, 40))
        placed += any(abs(found - at) <= 3 for found in change_points(counts)["at"])
    assert placed >= 36


def test_the_rates_are_those_of_the_levels() -> None:
    """In events a bin, with the confidence that there is a change at all."""
    found = change_points([10.0] * 20 + [30.0] * 20).to_dict("records")
    assert [(one["at"], one["before"], one["after"]) for one in found] == [
        (20, 10.0, 30.0)
    ]
    assert found[0]["confidence"] > 0.99


@pytest.mark.parametrize("counts", [[], [3], [0] * 50, [5, 5, 5], [1e12] * 30])
def test_little_or_level_counts_have_no_changes(counts: list[float]) -> None:
    """The frame has its columns and types."""
    found = change_points(counts)
    assert found.dtypes.astype(str).to_dict() == {
        "at": "Int64", "before": "float64", "after": "float64", "confidence": "float64",
    }  # fmt: skip
    assert found.empty


@pytest.mark.parametrize(
    "counts", [None, "abc", ["a"], [[1, 2]], [1, -1], [1, float("nan")], [float("inf")]]
)
def test_what_is_no_count_is_refused(counts: Any) -> None:
    """With an error that names the argument."""
    with pytest.raises(InputError, match="counts"):
        change_points(counts)


@pytest.mark.parametrize("period", [0, -1, "day", 2.5])
def test_a_period_is_a_whole_number_of_bins(period: Any) -> None:
    """With an error that names the argument."""
    with pytest.raises(InputError, match="period"):
        change_points([1, 2, 3], period=period)


@pytest.mark.slow
def test_many_bins_have_the_changes_of_few() -> None:
    """Levels of any length among 30,000 bins, also where parts of them meet; quiet bins have none."""
    rng = np.random.default_rng(5)
    starts = [0, 1_000, 1_040, 9_200, 9_230, 16_380, 20_480, 20_490, 26_000]
    lengths = np.diff([*starts, 30_000])
    counts = rng.poisson(np.repeat([20, 60, 20, 60, 20, 28, 90, 28, 20], lengths))
    assert np.abs(change_points(counts)["at"].to_numpy() - starts[1:]).max() <= 3
    assert change_points(rng.negative_binomial(3, 3 / 23, 30_000)).empty


@pytest.mark.parametrize(
    ("last_bins", "at"),
    [([28, 15, 159], []), ([15, 80, 90], [29]), ([70, 80, 90], [28]), ([16, 0, 0], [29])],
)  # fmt: skip
def test_the_last_level_begins_where_it_begins(
    last_bins: list[int], at: list[int]
) -> None:
    """A level has three bins, but an incident of the last bin or two did not begin three bins ago."""
    usual = [16, 17, 15, 18, 16, 14, 17, 16, 15, 16, 18, 17, 16, 15] * 2
    assert change_points([*usual, *last_bins])["at"].tolist() == at
