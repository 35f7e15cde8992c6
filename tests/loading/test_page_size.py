"""Pages have a target size in bytes: the number of rows follows from the rows seen."""

from __future__ import annotations

import pytest

from toolkit.loading.ranges import PageSize, TooLargeError


def test_rows_a_page_follow_the_size_of_the_rows():
    """Many small rows, few large ones, one at least, and never more than the limit."""
    size = PageSize(2, page_bytes=1_000_000)
    first = size.rows
    assert 100 < first < 1000
    size.learn(rows=first, size=first * 100)
    assert size.rows == 1000
    size.learn(rows=1000, size=10_000_000)
    assert size.rows == 100
    size.learn(rows=2, size=50_000_000)
    assert size.rows == 1
    size.learn(rows=0, size=50)
    assert size.rows == 1
    assert PageSize(2, most=7).rows == 7


def test_an_oversized_first_page_is_abandoned():
    """Until a row was seen, a page many times the target is requested again with fewer rows, down to one."""
    size = PageSize(0, page_bytes=1000)
    size.watch(50, 4000)
    requested = size.rows or 1
    size = PageSize(0, page_bytes=100_000)
    for _ in range(20):
        requested = size.rows
        if requested == 1:
            break
        with pytest.raises(TooLargeError):
            size.watch(requested, 400_001)
        assert size.rows < requested
    assert requested == 1
    assert size.watch(1, 10**9) is False
    size.learn(rows=1, size=10**6)
    assert size.watch(50, 10**9) is True
