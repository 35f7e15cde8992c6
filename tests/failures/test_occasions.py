"""Occasions of batches, merged in any order, are those of all failures sorted by time."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from toolkit.failures.occasions import Occasions
from toolkit.failures.partial_results import DividedResult

WANTED = Occasions(timedelta(hours=1), least=2, top=3)
HOUR = 3_600_000


def _rows(count: int, seed: int) -> pa.Table:
    random = np.random.default_rng(seed)
    times = random.integers(0, 40, count) * (HOUR // 2)
    return pa.table(
        {
            "kind": pa.array(random.integers(0, 2, count), pa.int8()),
            "field": pa.array(random.choice(["", "order_id"], count)),
            "value": pa.array(random.choice([*"abcdef"], count), pa.large_string()),
            "at": pa.array(times, mask=random.random(count) < 0.1),
        }
    )


def _expected(table: pa.Table) -> set[tuple[Any, ...]]:
    """Every value with the number of failures and of occasions, by a loop over sorted times."""
    counted = set()
    by_value: dict[tuple[Any, ...], list[int | None]] = {}
    for row in table.to_pylist():
        key = row["kind"], row["field"], row["value"]
        by_value.setdefault(key, []).append(row["at"])
    for key, times in by_value.items():
        known = sorted(time for time in times if time is not None)
        occasions, previous = 0, None
        for time in known:
            if previous is None or time - previous > HOUR:
                occasions += 1
            previous = time
        counted.add((*key, len(times), occasions))
    return counted


def _counted(result: pa.Table) -> set[tuple[Any, ...]]:
    names = ("kind", "field", "value", "count", "occasions")
    rows = [row for row in result.to_pylist() if row["value"] is not None]
    return {tuple(row[name] for name in names) for row in rows}


def test_batches_in_any_order_and_parts_by_hash_give_one_result() -> None:
    """The first of each kind by occasions are those that a loop over all failures finds."""
    for seed in range(5):
        table = _rows(120, seed)
        order = np.random.default_rng(seed).permutation(120)
        shuffled = table.take(pa.array(order))
        batches = [shuffled.slice(start, 17) for start in range(0, 120, 17)]
        states = [WANTED.of_batch(batch) for batch in batches]
        merged = WANTED.merge([WANTED.merge(states[3:]), *states[:3]])
        all_values = Occasions(timedelta(hours=1), least=1, top=99)
        once = {row for row in _expected(table) if row[-1] > 1}
        assert _counted(all_values.result(merged)) == once
        parts = [WANTED.split(state, 3) for state in states]
        divided = [
            WANTED.result(WANTED.merge([part[number] for part in parts]))
            for number in range(3)
        ]
        whole = WANTED.result(merged)
        assert WANTED.total(divided).to_pylist() == whole.to_pylist()
        sums = [row for row in whole.to_pylist() if row["value"] is None]
        assert sum(row["count"] for row in sums) == 120


def test_a_result_without_rows_has_the_columns() -> None:
    """No batch has a value, for example if there are no failures."""
    state = WANTED.of_batch(_rows(0, 0))
    assert WANTED.result(WANTED.merge([state])).num_rows == 0
    assert isinstance(WANTED, DividedResult)
