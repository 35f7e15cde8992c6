"""Explanations of filters that match nothing."""

from __future__ import annotations

import json

import pandas as pd
import pytest

import toolkit as tk
from toolkit.errors import UnexpectedResultWarning
from toolkit.filters.metadata import parse
from toolkit.tables.metadata_fields import MOST_READ, metadata_fields
from toolkit.tables.unmatched_conditions import explain_no_match

ROWS = [
    {"version": "2.1", "id": 3, "tags": ["ml", "web"], "source": "pandas", "year": 2001},
    {"version": "1.9", "id": 4, "tags": ["ml"], "source": "scipy", "year": 2024},
    None,
]  # fmt: skip


@pytest.mark.parametrize(
    ("condition", "suggested", "count"),
    [
        ("version >= 2.0", "version >= '2.0'", 1),
        ("id = '3'", "id = 3", 1),
        ("tags = 'ml'", "tags CONTAINS 'ml'", 2),
        ("source = 'Pandas'", "source = 'pandas'", 1),
    ],
)
def test_a_condition_of_the_wrong_type_is_named_with_one_that_matches(
    condition, suggested, count
):
    """The message has the condition, and another one with the rows that it matches."""
    frame = pd.DataFrame({"metadata": [json.dumps(row) for row in ROWS[:2]]})
    with pytest.warns(UnexpectedResultWarning) as caught:
        tk.match_metadata(frame, f"{condition} AND year > 2000")
    (message,) = map(str, (warning.message for warning in caught))
    assert f"matches {condition}:" in message
    assert f"Did you mean {suggested}? It matches {count}." in message
    assert parse(suggested).text() == suggested


def test_values_out_of_range_and_conditions_that_exclude_each_other():
    """Numbers have their range, and conditions that match other rows have the counts of each."""
    (message,) = explain_no_match(ROWS, parse("year > 2030"), only_mistakes=False)
    assert "from 2001 to 2024" in message
    (message,) = explain_no_match(
        ROWS, parse("year = 2024 AND id = 3"), only_mistakes=False
    )
    assert "year = 2024 (1), id = 3 (1)" in message
    for plausible in ("year > 2030", "year = 2024 AND id = 3", "source = 'xarray'"):
        assert explain_no_match(ROWS, parse(plausible)) == []


@pytest.mark.parametrize("secret", ["api_key", "password"])
def test_values_of_secret_fields_are_not_shown(secret):
    """The field is named, not the value."""
    (message,) = explain_no_match([{secret: "hunter2hunter2"}], parse(f"{secret} > 3"))
    assert secret in message
    assert "hunter2" not in message


def test_fields_are_those_of_all_rows():
    """A field and the counts of rows after the first thousands are found; a sample is random."""
    rows = [json.dumps({"a": 1})] * 2_500 + [json.dumps({"a": 1, "late": 2})] * 500
    fields = {
        item.name: item for item in metadata_fields(pd.DataFrame({"metadata": rows}))
    }
    assert (fields["a"].rows, fields["late"].rows) == (3_000, 500)
    assert MOST_READ >= 6_000
    sampled = {
        item.name
        for item in metadata_fields(pd.DataFrame({"metadata": rows}), rows=200)
    }
    assert sampled == {"a", "late"}


def test_queries_and_loads_explain_filters_by_all_vectors(local_indexes):
    """A field that only later vectors have is known, and a wrong type is explained."""
    service = local_indexes["dense"]
    rows = [
        {"id": str(n), "vector": [n, 1], "metadata": {"late" if n > 150 else "date": n}}
        for n in range(200)
    ]
    tk.upsert_vectors(service, rows, namespace="explained")
    expected = r"late = 160\? It matches 1"
    with pytest.warns(UnexpectedResultWarning, match=expected) as caught:
        tk.query(service, vector=[1, 1], namespace="explained", filter="late = '160'")
    assert "of all 200" in str(caught[0].message)
    with pytest.warns(UnexpectedResultWarning, match=expected):
        tk.load_vectors(
            service, namespace="explained", filter="late = '160'", progress=False
        )
