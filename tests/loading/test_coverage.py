"""Which namespaces and rows of an index a call covers, and how the result reports the others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import toolkit as tk
from toolkit.errors import UnexpectedResultWarning

NAMED = "only named"


@pytest.fixture
def named(server) -> tk.Service:
    """An index whose vectors are all in two named namespaces."""
    stored = {"a": ["1", "2"], "b": ["3"]}

    def respond(request):
        if request.path == "/info":
            namespaces = {
                name: {"vectorCount": len(ids)} for name, ids in stored.items()
            }
            namespaces[""] = {"vectorCount": 0}
            info = {"vectorCount": 3, "pendingVectorCount": 0, "dimension": 2,
                    "similarityFunction": "COSINE", "namespaces": namespaces}  # fmt: skip
            return json.dumps({"result": info}).encode()
        name = request.path.removeprefix("/range").strip("/")
        rows = [
            {"id": item, "vector": [1, 2], "metadata": {"n": int(item)}}
            for item in stored.get(name, ())
        ]
        return json.dumps({"result": {"nextCursor": "", "vectors": rows}}).encode()

    server.responding(respond)
    return server.service()


def test_reading_and_backing_up_cover_all_namespaces(named, tmp_path: Path):
    """Without a namespace, a load, an export and the panel read every namespace."""
    assert tk.load_vectors(named, progress=False)["id"].tolist() == ["1", "2", "3"]
    receipt = tk.export_vectors(named, tmp_path / "kept", progress=False)
    assert (receipt.rows, receipt.notes) == (3, ())
    panel = tk.MetadataFilterPanel(named)
    panel.run()
    assert len(panel.frame()) == 3
    panel.close()


def test_a_receipt_lists_namespaces_that_were_not_read(named):
    """The notes have the other namespaces with their counts; the verdict has them if nothing was read."""
    receipt = tk.get_receipt(tk.load_vectors(named, namespace="a", progress=False))
    assert "'b' (1)" in receipt.notes[0]
    assert receipt.notes[0] not in receipt.verdict
    with pytest.warns(UnexpectedResultWarning, match="'a' .2., 'b' .1."):
        empty = tk.load_vectors(named, namespace="", progress=False)
    assert "not read: 3 vectors" in tk.get_receipt(empty).verdict


def test_an_export_of_one_namespace_can_become_one_of_all(named, tmp_path: Path):
    """An export of all namespaces replaces one of a single namespace, but not the reverse."""
    tk.export_vectors(named, tmp_path / "kept", namespace="a", progress=False)
    tk.export_vectors(named, tmp_path / "kept", progress=False)
    assert len(tk.read_snapshot(tmp_path / "kept")) == 3
    with pytest.raises(tk.errors.SnapshotBindingError):
        tk.export_vectors(named, tmp_path / "kept", namespace="a", progress=False)


@pytest.mark.parametrize("include_metadata", [True, False])
def test_a_load_can_be_filtered(named, include_metadata):
    """`filter` keeps matching rows only; the receipt counts the others and has the filter."""
    frame = tk.load_vectors(
        named, filter="n >= 2", include_metadata=include_metadata, progress=False
    )
    receipt = tk.get_receipt(frame)
    assert frame["id"].tolist() == ["2", "3"]
    assert frame["metadata"].notna().all() == include_metadata
    assert (receipt.filtered_here, receipt.scope["filter"]) == (1, "n >= 2")
    assert receipt.complete
    limited = tk.load_vectors(named, filter="n >= 2", limit=1, progress=False)
    assert limited["id"].tolist() == ["2"]
