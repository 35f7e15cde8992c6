"""What the toolkit stores the public package `upstash-vector` reads, and the other way round."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from functools import reduce
from typing import Any

import numpy as np
import pandas as pd
import pytest
from upstash_vector import Index
from upstash_vector.errors import ClientError, UpstashError
from upstash_vector.types import SparseVector

import toolkit as tk
from toolkit.errors import ToolkitError
from toolkit_service.demo.local_service import LocalService

IDS = ("a", "b / ü?#", "A")
METADATA: tuple[dict[str, Any] | None, ...] = (
    {"n": 2**53 + 1, "x": [None, {"y": 0.1}]},
    {},
    None,
)
DATA = ("text\nof two lines", "=1+1", None)
MATRIX = np.array([[0.1, 1 / 3], [3.4028235e38, 1e-45], [1, 0]], dtype=np.float32)
SPARSE = (([3, 9], [0.1, -2.5]), ([0], [1e-45]), ([2**31 - 1], [1.0]))

ODD: tuple[dict[str, Any], ...] = (
    *({"id": name} for name in ("\u202eid\u2066", "e\u0301", "\u00e9", "👩\u200d👧", " ", "a\n\x7f")),
    {"id": "x" * 1000},
    {"id": "a/../b?c#d%2F"},
    {"id": "digits", "metadata": {"n": 2**70, "m": -(2**63), "x": 5e-324, "y": 1.7976931348623157e308}},
    {"id": "nested", "metadata": {"a": {"b": [{}, [], [[]], {"c": None}]}, "t": True}},
    {"id": "names", "metadata": {"": 1, "\u202e": 2, "a.b": 3, "$x": 4, "__proto__": 5}},
    {"id": "controls", "metadata": {"t": "a\0b"}, "data": "a\0b\u2028\ufeff"},
)  # fmt: skip
"""Rows that nobody expects, and that are stored as they are."""
UNUSABLE: dict[str, dict[str, Any]] = {
    "no id": {"id": ""},
    "NUL in an id": {"id": "a\0b"},
    "a long id": {"id": "x" * 2_000_000},
    "a lone surrogate in an id": {"id": "\ud800"},
    "a lone surrogate in metadata": {"metadata": {"x": "\udfff"}},
    "a lone surrogate in a name": {"metadata": {"\udfff": 1}},
    "a lone surrogate in data": {"data": "\ud83d"},
    "infinity in metadata": {"metadata": {"x": [math.inf]}},
    "4,001 digits": {"metadata": {"n": 10**4000}},
    "metadata in a list": {"metadata": [1]},
    "300 levels": {"metadata": reduce(lambda inner, _: {"a": inner}, range(300), {})},
    "a vector with NaN": {"vector": [math.nan, 1.0]},
    "a vector with infinity": {"vector": [-math.inf, 1.0]},
    "a vector beyond float32": {"vector": [1e39, 1.0]},
    "another dimension": {"vector": [1.0]},
    "a sparse vector with NaN": {"sparse": ([1], [math.nan])},
    "a negative index": {"sparse": ([-1], [1.0])},
    "an index too many": {"sparse": ([1, 2], [1.0])},
}


@pytest.fixture(scope="module")
def serving() -> Iterator[LocalService]:
    with LocalService(
        indexes=["dense:dense:2:DOT_PRODUCT", "sparse:sparse", "hybrid:hybrid:2:COSINE"]
    ) as running:
        yield running


@pytest.fixture(params=["dense", "sparse", "hybrid"])
def both(
    serving: LocalService, request: pytest.FixtureRequest
) -> Iterator[tuple[str, tk.Service, Index]]:
    """One index by both clients, empty."""
    url = serving.vector_urls[request.param]
    service = tk.connect(vector_url=url, vector_token=serving.token, environ={})
    index = Index(url=url, token=serving.token, retries=0, allow_telemetry=False)
    for name in filter(None, tk.list_namespaces(service)):
        tk.delete_namespace(service, name, confirm=True)
    yield request.param, service, index
    index._client.close()


def test_what_upsert_vectors_stores_the_public_package_reads(
    both: tuple[str, tk.Service, Index],
) -> None:
    """Ids, numbers to the last bit of float32, metadata and data."""
    kind, service, index = both
    rows = [
        {"id": IDS[n], "metadata": METADATA[n], "data": DATA[n]}
        | ({"vector": MATRIX[n]} if kind != "sparse" else {})
        | ({"sparse": SPARSE[n]} if kind != "dense" else {})
        for n in range(3)
    ]
    assert tk.upsert_vectors(service, rows, namespace="ours") == 3
    read = index.fetch(
        list(IDS),
        include_vectors=True,
        include_metadata=True,
        include_data=True,
        namespace="ours",
    )
    assert [row and row.id for row in read] == list(IDS)
    for n, row in enumerate(read):
        assert row is not None
        assert (row.metadata, row.data) == (METADATA[n], DATA[n])
        if kind != "sparse":
            assert (
                np.array(row.vector, dtype=np.float32).tobytes() == MATRIX[n].tobytes()
            )
        if kind != "dense":
            assert row.sparse_vector is not None
            assert row.sparse_vector.indices == SPARSE[n][0]
            assert np.array_equal(
                np.float32(row.sparse_vector.values), np.float32(SPARSE[n][1])
            )


def test_what_the_public_package_stores_load_vectors_reads(
    both: tuple[str, tk.Service, Index],
) -> None:
    """And upsert_vectors stores it again, so that the package reads what it wrote."""
    kind, service, index = both
    rows = [
        {"id": IDS[n]}
        | ({"vector": MATRIX[n].tolist()} if kind != "sparse" else {})
        | ({"sparse_vector": SparseVector(*SPARSE[n])} if kind != "dense" else {})
        | ({"metadata": METADATA[n]} if METADATA[n] is not None else {})
        | ({"data": DATA[n]} if DATA[n] is not None else {})
        for n in range(3)
    ]
    index.upsert(vectors=rows, namespace="theirs")  # type: ignore[arg-type]
    frame = tk.load_vectors(service, namespace="theirs", progress=False)
    assert frame["id"].tolist() == list(IDS)
    assert [
        None if pd.isna(item) else json.loads(item) for item in frame["metadata"]
    ] == list(METADATA)
    assert frame["data"].fillna("none").tolist() == [item or "none" for item in DATA]
    if kind != "sparse":
        assert tk.as_matrix(frame).tobytes() == MATRIX.tobytes()
    options: dict[str, Any] = dict.fromkeys(
        ("include_vectors", "include_metadata", "include_data"), True
    )
    before = index.range(limit=10, namespace="theirs", **options).vectors
    tk.delete_vectors(service, frame, confirm=True)
    assert index.range(limit=10, namespace="theirs").vectors == []
    assert tk.upsert_vectors(service, frame) == 3
    after = index.range(limit=10, namespace="theirs", **options).vectors
    assert sorted(map(str, after)) == sorted(map(str, before))


def test_updates_and_namespaces_are_seen_by_both(
    both: tuple[str, tk.Service, Index],
) -> None:
    """Updated here and read there; renamed here and listed there; reset here and counted there."""
    kind, service, index = both
    vectors: dict[str, Any] = {"vector": [1, 2]} if kind != "sparse" else {}
    vectors |= {"sparse": ([1], [2.0])} if kind != "dense" else {}
    tk.upsert_vectors(
        service,
        [{"id": str(n), **vectors, "metadata": {"n": n}} for n in range(4)],
        namespace="one",
    )
    row = {"id": "1", "metadata": {"seen": True}}
    assert (
        tk.update_vectors(service, row, namespace="one", metadata_update_mode="PATCH")
        == 1
    )
    (read,) = index.fetch(["1"], include_metadata=True, namespace="one")
    assert read is not None
    assert read.metadata == {"n": 1, "seen": True}
    tk.rename_namespace(service, "one", "two / three")
    assert index.list_namespaces() == ["", "two / three"]
    assert index.delete(filter="n >= 2", namespace="two / three").deleted == 2
    assert tk.load_vectors(service, namespace="two / three", progress=False)[
        "id"
    ].tolist() == ["0", "1"]
    assert tk.reset_namespace(service, "two / three", confirm=True) == 2
    assert index.info().namespaces["two / three"].vector_count == 0


def of_kind(kind: str, row: dict[str, Any], *, theirs: bool = False) -> dict[str, Any]:
    """A row with the vectors that an index of this kind needs, as one client or the other writes it."""
    row = {"id": "a"} | row
    if kind != "sparse":
        row.setdefault("vector", [1.0, 2.0])
    if kind != "dense":
        row.setdefault("sparse", ([1, 7], [1.0, 2.0]))
    if theirs and "sparse" in row:
        row["sparse_vector"] = SparseVector(*row.pop("sparse"))
    return row


def test_odd_rows_are_the_same_to_both(both: tuple[str, tk.Service, Index]) -> None:
    """Ids, metadata and data as they were written, whoever wrote them and whoever reads."""
    kind, service, index = both
    ids = [row["id"] for row in ODD]
    tk.upsert_vectors(
        service, [of_kind(kind, row) for row in ODD], namespace="odd, ours"
    )
    index.upsert(
        [of_kind(kind, row, theirs=True) for row in ODD], namespace="odd, theirs"
    )
    for name in ("odd, ours", "odd, theirs"):
        read = index.fetch(
            ids, include_metadata=True, include_data=True, namespace=name
        )
        frame = tk.fetch_vectors(service, ids, namespace=name)
        assert frame["id"].tolist() == ids
        assert frame["vector_problem"].isna().all()
        for row, theirs, metadata, data in zip(
            ODD, read, frame["metadata"], frame["data"], strict=True
        ):
            written = (row["id"], row.get("metadata"), row.get("data"))
            assert theirs is not None
            assert (theirs.id, theirs.metadata, theirs.data) == written
            ours = (
                json.loads(metadata) if isinstance(metadata, str) else None,
                data if isinstance(data, str) else None,
            )
            assert ours == written[1:]


@pytest.mark.parametrize(
    ("both", "what"),
    [
        (kind, what)
        for kind, other in (("dense", "sparse"), ("sparse", "vector"), ("hybrid", None))
        for what, row in UNUSABLE.items()
        if other not in row
    ],
    indirect=["both"],
)
def test_unusable_rows_are_stored_by_neither(
    both: tuple[str, tk.Service, Index], what: str
) -> None:
    """An error of the toolkit, one of the package; and nothing is stored."""
    kind, service, index = both
    row = UNUSABLE[what]
    with pytest.raises(ToolkitError):
        tk.upsert_vectors(service, [of_kind(kind, row)], namespace="unusable")
    with pytest.raises((UpstashError, ClientError, ValueError)):
        index.upsert([of_kind(kind, row, theirs=True)], namespace="unusable")  # type: ignore[list-item]
    assert index.range(limit=10, namespace="unusable").vectors == []
