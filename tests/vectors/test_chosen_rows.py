"""Restoring a part of a snapshot."""

from __future__ import annotations

import pytest

import toolkit as tk
from toolkit.errors import InputError


@pytest.fixture
def kept(local_indexes, tmp_path):
    """A snapshot of two namespaces of an index, which are empty afterwards."""
    service = local_indexes["dense"]
    rows = [
        {"id": key, "vector": [1, 2], "namespace": name}
        for name in ("part a", "part b")
        for key in ("x1", "x2", "y1")
    ]
    tk.upsert_vectors(service, rows)
    tk.export_vectors(
        service, tmp_path / "kept", namespace=["part a", "part b"], progress=False
    )
    for name in ("part a", "part b"):
        tk.reset_namespace(service, name, confirm=True)
    return service, tmp_path / "kept"


def _stored(service) -> list[tuple[str, str]]:
    frame = tk.load_vectors(
        service, namespace=["part a", "part b"], include_vectors=False, progress=False
    )
    return list(zip(frame["namespace"], frame["id"], strict=True))


def test_ids_a_prefix_or_a_namespace_can_be_restored(kept):
    """Only the selected rows are stored and compared; further vectors are not counted."""
    service, path = kept
    restored = tk.restore_vectors(
        service, path, ids=["x1"], from_namespaces="part b", progress=False
    )
    assert restored.complete
    assert restored.frame["rows"].tolist() == [1]
    assert restored.frame["extra"].isna().all()
    assert _stored(service) == [("part b", "x1")]
    tk.restore_vectors(service, path, prefix="y", progress=False)
    assert _stored(service) == [("part a", "y1"), ("part b", "x1"), ("part b", "y1")]


@pytest.mark.parametrize(
    ("selection", "says"),
    [
        ({"ids": ["x1", "nope"]}, "'nope'"),
        ({"prefix": "z"}, "no row"),
        ({"from_namespaces": "part c"}, "Did you mean 'part b'"),
    ],
)
def test_a_selection_that_the_snapshot_does_not_have_is_an_error(kept, selection, says):
    """Nothing is stored if an id, a prefix or a namespace is not in the snapshot."""
    service, path = kept
    with pytest.raises(InputError, match=says):
        tk.restore_vectors(service, path, progress=False, **selection)
