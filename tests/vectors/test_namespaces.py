"""Frames of several namespaces: each row means the vector of its own namespace."""

from __future__ import annotations

import pandas as pd
import pytest

import toolkit as tk

NAMESPACES = ["named x", "named y", ""]


@pytest.fixture(scope="module")
def service(local_indexes):
    """Three namespaces with the same ids and other vectors."""
    service = local_indexes["dense"]
    for number, name in enumerate(NAMESPACES):
        rows = [
            {"id": key, "vector": [number + 1, 7], "data": f"{key} of {name}"}
            for key in ("p", "q")
        ]
        tk.upsert_vectors(service, rows, namespace=name)
    return service


def test_vectors_are_fetched_from_the_namespace_of_their_row(service):
    """In the order of the rows, whatever their namespaces, with one that is not there."""
    rows = pd.DataFrame(
        {
            "namespace": ["named y", "", "named x", "named y"],
            "id": ["p", "q", "none", "q"],
        }
    )
    fetched = tk.fetch_vectors(service, rows)
    assert fetched["data"].tolist()[:2] == ["p of named y", "q of "]
    assert fetched[["namespace", "id"]].equals(rows.astype("str"))
    assert fetched["vector_problem"].isna().tolist() == [True, True, False, True]
    assert tk.get_receipt(fetched).scope["namespaces"] == ["named y", "", "named x"]


def test_a_namespace_that_is_passed_goes_before_those_of_the_rows(service):
    """An explicit argument is what was meant."""
    rows = pd.DataFrame({"namespace": ["named x"], "id": ["p"]})
    assert tk.fetch_vectors(service, rows, namespace="named y")["data"].tolist() == [
        "p of named y"
    ]
    assert tk.fetch_vectors(service, rows["id"])["data"].tolist() == ["p of "]


def test_stored_vectors_are_queried_in_the_namespace_of_their_row(service):
    """What is similar to a hit of one namespace is looked for in that one."""
    rows = pd.DataFrame({"namespace": ["named y", "named x"], "id": ["p", "q"]})
    hits = tk.query(service, id=rows, top_k=1, exclude_self=True, include_data=True)
    assert hits["data"].tolist() == ["q of named y", "p of named x"]
