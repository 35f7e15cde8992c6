"""Which namespaces and rows of an index a call covers, and how the result reports the others."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import toolkit as tk
from toolkit.errors import InputError, UnexpectedResultWarning

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


def test_a_text_is_queried_in_several_namespaces(sample_service):
    """`query(data=)` and `query_text` search the named namespaces, or all of them by "all"."""
    by_text = tk.query_text(sample_service, "disk full", namespace="all", top_k=50)
    names = ["", "incidents", "runbooks"]
    by_data = tk.query(sample_service, data="disk full", namespace=names, top_k=50)
    two = tk.query_text(sample_service, "disk full", namespace=names[1:], top_k=50)
    assert set(by_text["namespace"]) == set(names)
    assert set(two["namespace"]) == set(names[1:])
    assert by_text["id"].tolist() == by_data["id"].tolist()
    assert by_text["score"].is_monotonic_decreasing


def test_a_query_mode_of_another_kind_of_index_is_an_error(sample_service):
    """A dense index ignores the mode SPARSE, so its hits would be dense."""
    with pytest.raises(InputError, match="DENSE"):
        tk.query_text(
            sample_service, "disk", hybrid=tk.HybridOptions(query_mode="SPARSE")
        )
    assert len(
        tk.query_text(
            sample_service, "disk", hybrid=tk.HybridOptions(query_mode="DENSE")
        )
    )


def test_the_repr_of_an_index_has_counts_by_namespace(named):
    """Kind, dimension and the number of vectors per namespace, in one line."""
    shown = repr(tk.describe_index(named))
    assert "2 dimensions" in shown
    assert "'a' (2)" in shown
    assert "\n" not in shown


@pytest.mark.parametrize(
    "value", ["it's", 'a"b', "\\", "ü ' OR 1 = 1 --", "''", 3, True]
)
def test_a_value_of_a_user_stays_one_value_in_a_filter(value):
    """Quotes, backslashes and operators inside a value do not change the filter."""
    tree = tk.parse_filter(f"field = {tk.filter_literal(value)}")
    assert tree.value == value
    assert tree.matches({"field": value})
    with pytest.raises(InputError):
        tk.filter_literal([value])


@pytest.mark.slow
def test_a_script_that_ends_with_an_open_query_prints_nothing():
    """The query expires in the service; no ignored exception is reported."""
    script = (
        "import toolkit as tk\n"
        "service = tk.connect('local')\n"
        "pages = tk.iter_query(service, tk.VectorQuery(data='disk', top_k=3))\n"
        "print(len(next(pages)))\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert (ended.stdout, ended.stderr) == ("3\n", "")
