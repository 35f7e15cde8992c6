"""Single precision: rounding keeps order, and digits are the shortest that read back."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from toolkit_service.vectors.rows import NamespaceRows
from toolkit_service.vectors.search import nearest
from toolkit_service.vectors.sparse import rounded
from toolkit_service.vectors.vector_json import json_arrays, score_numbers

singles = st.floats(width=32, allow_nan=False, allow_infinity=False)
decimals = st.builds(
    lambda whole, shift: np.float32(whole / 10**shift),
    st.integers(-(10**7), 10**7),
    st.integers(0, 12),
)


def read(array: np.ndarray) -> list[str]:
    """The numbers of an array as they are written."""
    (text,) = json_arrays([array])
    return bytes(text).decode()[1:-1].split(",")


def significant(text: str) -> str:
    """The digits of a number without sign, point, exponent and the zeros around them."""
    return text.lstrip("-").partition("e")[0].replace(".", "").strip("0")


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(arrays.arrays(np.float32, st.integers(1, 9), elements=singles | decimals))
def test_digits_are_the_shortest_that_read_back(array: np.ndarray) -> None:
    """Each number has the digits that numpy prints of the float32, and reads back to it, as a float."""
    written = read(array)
    assert list(map(significant, written)) == [
        significant(str(number)) for number in array
    ]
    numbers = json.loads(f"[{','.join(written)}]")
    assert {type(number) for number in numbers} == {float}
    assert np.array(numbers, dtype=np.float32).tobytes() == array.tobytes()


def test_a_hundred_thousand_bit_patterns_and_all_powers_of_two() -> None:
    """Random bits of all exponents, the powers of two and of ten, whole numbers, and their neighbours."""
    bits = (
        np.random.default_rng(6)
        .integers(0, 2**32, 100_000, dtype=np.uint32)
        .view(np.float32)
    )
    powers = [2.0**exponent for exponent in range(-149, 128)] + [
        10.0**exponent for exponent in range(-45, 39)
    ]
    exact = np.array(
        [*powers, *range(-999, 1000), -0.0, 9999999488, 123456789], dtype=np.float32
    )
    near = [np.nextafter(exact, np.float32(limit)) for limit in (-3e38, 3e38)]
    tried = np.concatenate([bits[np.isfinite(bits)], exact, *near])
    numbers = json.loads(f"[{','.join(read(tried))}]")
    assert numbers == [float(str(number)) for number in tried]
    assert {type(number) for number in numbers} == {float}
    assert np.array(numbers, dtype=np.float32).tobytes() == tried.tobytes()


def test_arrays_of_different_lengths_stay_apart() -> None:
    """A batch of arrays is written like single ones; an empty batch is empty."""
    given_arrays = [np.arange(length, dtype=np.float32) / 10 for length in (1, 5, 2)]
    assert json_arrays(given_arrays) == [
        item for array in given_arrays for item in json_arrays([array])
    ]
    assert json_arrays([]) == []


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1))
def test_rounding_keeps_the_order_of_scores(scores: list[float]) -> None:
    """A larger score never gets smaller than another; written values are finite float32."""
    ordered = np.sort(scores)
    actual = rounded(ordered)
    assert (actual[1:] >= actual[:-1]).all()
    written = np.array(score_numbers(actual.tolist()))
    assert np.isfinite(written).all()
    assert (written[1:] >= written[:-1]).all()


def test_hits_tied_in_float32_are_found_beyond_the_last_rank() -> None:
    """Of rows whose scores differ in float64 alone, the first inserted are the best, whatever top_k is."""
    numbers = np.random.default_rng(8)
    scales = numbers.uniform(0.5, 2, 5000)
    # all point nearly the same way
    vectors = (np.outer(scales, [0.1, 0.7, 0.3])).astype(np.float32)
    rows = NamespaceRows(3, list)
    rows.put([f"v{n}" for n in range(5000)], range(1, 5001), vectors)
    query = np.array([0.1, 0.7, 0.3])
    for top_k in (1, 10, 700):
        actual = nearest(rows, query, top_k, "COSINE")
        assert [position for position, _ in actual] == list(range(top_k))
        assert {score for _, score in actual} == {1.0}
