"""Single precision: rounding keeps order, and digits are the shortest that read back."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from toolkit.local.vectors.database import Held
from toolkit.local.vectors.float32 import rounded, shortest_lists, to_float32
from toolkit.local.vectors.rows import NamespaceRows
from toolkit.local.vectors.search import nearest

singles = st.floats(width=32, allow_nan=False, allow_infinity=False)
decimals = st.builds(
    lambda whole, shift: np.float32(whole / 10**shift), st.integers(-(10**7), 10**7), st.integers(0, 12)
)


@settings(max_examples=400, deadline=None)
@given(st.lists(arrays.arrays(np.float32, st.integers(0, 9), elements=singles | decimals), max_size=5))
def test_digits_are_the_shortest_that_read_back(given_arrays: list[np.ndarray]) -> None:
    """Each number is what numpy prints of the float32, of any size and sign, and reads back to it."""
    found = shortest_lists(given_arrays)
    assert [len(one) for one in found] == [len(one) for one in given_arrays]
    for numbers, array in zip(found, given_arrays, strict=True):
        assert list(map(repr, numbers)) == [repr(float(str(number))) for number in array]
        assert np.array(numbers, dtype=np.float32).tobytes() == array.tobytes()


def test_a_hundred_thousand_bit_patterns_and_all_powers_of_two() -> None:
    """Random bits of all exponents, the powers of two and their neighbours, over several blocks."""
    bits = np.random.default_rng(6).integers(0, 2**32, 100_000, dtype=np.uint32).view(np.float32)
    powers = np.array([2.0**exponent for exponent in range(-149, 128)], dtype=np.float32)
    near = [np.nextafter(powers, np.float32(limit)) for limit in (0, 3e38)]
    tried = np.concatenate([bits[np.isfinite(bits)], powers, *near])
    (found,) = shortest_lists([tried])
    assert found == [float(str(number)) for number in tried]


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1))
def test_rounding_keeps_the_order_of_scores(scores: list[float]) -> None:
    """A larger score never gets smaller than another; what is written is finite float32."""
    ordered = np.sort(scores)
    assert (np.diff(rounded(ordered)) >= 0).all()
    assert np.isfinite(to_float32(rounded(ordered).tolist())).all()


def test_a_score_equal_in_float32_is_found_beyond_the_last_place() -> None:
    """Of rows whose scores differ in float64 alone, the first inserted are the best, whatever top_k is."""
    numbers = np.random.default_rng(8)
    scales = numbers.uniform(0.5, 2, 5000)
    vectors = (np.outer(scales, [0.1, 0.7, 0.3])).astype(np.float32)  # all point nearly the same way
    held = Held([f"v{n}" for n in range(5000)], np.arange(1, 5001), np.arange(5000))
    rows = NamespaceRows(lambda count: vectors[:count], list, held)
    query = np.array([0.1, 0.7, 0.3])
    for top_k in (1, 10, 700):
        found = nearest(rows, query, top_k, "COSINE")
        assert [slot for slot, _ in found] == list(range(top_k))
        assert {score for _, score in found} == {1.0}
