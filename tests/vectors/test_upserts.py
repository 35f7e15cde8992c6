"""Upserts: every form of rows that is documented, and nothing reported stored that was not."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import toolkit as tk
from toolkit.errors import InputError


def stored(service: tk.Service, namespace: str = "") -> pd.DataFrame:
    """What the index holds, by id."""
    return tk.load_vectors(service, namespace=namespace, progress=False).set_index("id")


@pytest.mark.parametrize("namespace", ["documented"])
def test_the_documented_forms_of_sparse_vectors_are_stored(local_indexes, namespace):
    """A mapping of indices and values, a pair, and numpy arrays, are returned as they were passed."""
    service = local_indexes["sparse"]
    rows = [
        {"id": "mapping", "sparse": {"indices": [3, 9], "values": [0.5, 0.25]}},
        {"id": "pair", "sparse": ([3, 9], [0.5, 0.25])},
        {
            "id": "arrays",
            "sparse": {"indices": np.array([3, 9]), "values": np.array([0.5, 0.25])},
        },
    ]
    assert tk.upsert_vectors(service, rows, namespace=namespace) == 3
    result = stored(service, namespace)
    assert {tuple(item) for item in result["sparse_indices"]} == {(3, 9)}
    assert {tuple(item) for item in result["sparse_values"]} == {(0.5, 0.25)}


def test_one_mapping_an_iterable_and_a_frame_are_rows(local_indexes):
    """A dict is one row; a generator and a frame are many, metadata passed as a mapping or as JSON text."""
    service = local_indexes["dense"]
    assert (
        tk.upsert_vectors(service, {"id": "one", "vector": [1, 0]}, namespace="forms")
        == 1
    )
    rows = ({"id": f"g{n}", "vector": np.array([n, 1.0])} for n in range(3))
    assert tk.upsert_vectors(service, rows, namespace="forms") == 3
    frame = pd.DataFrame(
        {
            "id": ["f0", "f1"],
            "vector": [[1.0, 2.0], [3.0, 4.0]],
            "metadata": [{"a": np.int64(1)}, None],
            "data": ["x", np.nan],
        }
    )
    assert tk.upsert_vectors(service, frame, namespace="forms") == 2
    result = stored(service, "forms")
    assert sorted(result.index) == ["f0", "f1", "g0", "g1", "g2", "one"]
    assert json.loads(result["metadata"]["f0"]) == {"a": 1}
    assert result["metadata"].isna()["f1"]
    assert (result["data"]["f0"], result["data"].isna()["f1"]) == ("x", True)


@pytest.mark.parametrize("kind", ["dense", "sparse", "hybrid"])
def test_a_loaded_frame_can_be_stored_as_it_is(local_indexes, kind):
    """load_vectors, then upsert_vectors: into the rows' own namespaces, or into another one."""
    service = local_indexes[kind]
    half = {"vector": [0.5, 0.25]} if kind != "sparse" else {}
    half |= {"sparse": ([1], [2.0])} if kind != "dense" else {}
    for namespace in ("from", "also"):
        rows = [
            {"id": f"{namespace}-{n}", **half, "metadata": {"n": n}, "data": "text"}
            for n in range(2)
        ]
        tk.upsert_vectors(service, rows, namespace=namespace)
    frame = tk.load_vectors(service, namespace=["from", "also"], progress=False)
    assert tk.upsert_vectors(service, frame, namespace="to") == 4
    copied = stored(service, "to")
    original = frame.set_index("id").assign(namespace="to")
    pd.testing.assert_frame_equal(copied.loc[original.index], original, check_like=True)
    assert tk.upsert_vectors(service, frame) == 4
    assert len(stored(service, "from")) == len(stored(service, "also")) == 2
    assert tk.upsert_vectors(service, frame.to_dict("records"), namespace="to") == 4


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (
            {"id": "a", "vectr": [1.0, 2.0]},
            "row 1 of rows: got the name 'vectr'.*Did you mean 'vector'",
        ),
        ({"id": "a", "vector": [1.0, 2.0], "meta": {}}, "row 1.*'meta'.*metadata"),
        (
            {"id": "a", "vector": [1.0, float("nan")]},
            "the vector of row 1 of rows: got nan at position 1",
        ),
        (
            {"id": "a", "vector": np.array([np.inf, 1])},
            "the vector of row 1 of rows: got inf at position 0",
        ),
        (
            {"id": "a", "sparse": ([1], [float("-inf")])},
            "the sparse vector of row 1.*-inf at position 0",
        ),
        (
            {"id": "a", "sparse": {"indices": [1], "vals": [1]}},
            "row 1.*Did you mean 'values'",
        ),
        ({"id": "a", "sparse": ([-1], [1])}, "row 1.*negative"),
        (
            {"id": "a", "vector": [1.0], "metadata": {"a": float("inf")}},
            "the metadata of row 1 of rows, field 'a'",
        ),
        (
            {"id": "a", "vector": [1.0], "metadata": {"a": {1, 2}}},
            "the metadata of row 1",
        ),
        (
            {"id": "a", "vector": [1.0], "metadata": "{"},
            "the metadata of row 1.*not JSON",
        ),
        (
            {"id": "a", "vector": [1.0], "metadata": [1]},
            "the metadata of row 1 of rows: got list of 1",
        ),
        ({"id": "a", "vector": [1.0], "data": 5}, "the data of row 1 of rows: got 5"),
        ({"id": 5, "vector": [1.0]}, "the id of row 1 of rows: got 5"),
        ({"vector": [1.0]}, "the id of row 1 of rows: got None"),
        ({"id": "a", "vector": []}, "the vector of row 1 of rows: got no numbers"),
        ({"id": "a", "vector": None, "data": "text"}, "row 1 of rows.*an empty vector"),
        (
            {"id": "a", "vector_problem": "no vector", "data": "text"},
            "row 1 of rows.*no vector",
        ),
        ({"id": "a"}, "row 1 of rows.*no vector, no sparse vector, no data"),
        (
            {"id": "a", "vector": [1.0], "namespace": 5},
            "the namespace of row 1 of rows",
        ),
        (5, "row 1 of rows: got 5"),
        ("id", "row 1 of rows: got 'id'"),
    ],
)
def test_a_row_that_cannot_be_stored_is_named(server, row, says):
    """The error names the row's position, and a note says what was stored before it: nothing was sent."""
    server.always(b'{"result": "Success"}')
    with pytest.raises(InputError, match=says) as raised:
        tk.upsert_vectors(
            server.service(), [{"id": "first", "vector": [1.0, 2.0]}, row]
        )
    assert raised.value.__notes__[-1] == "Rows stored before this: 0."
    assert server.requests == []


def test_a_bad_row_in_a_later_batch_says_what_was_stored(server):
    """1,000 rows have gone when row 1,200 turns out to be bad: the note says so."""
    server.always(b'{"result": "Success"}')
    frame = pd.DataFrame(
        {
            "id": [str(n) for n in range(1500)],
            "vector": [[1.0]] * 1200 + [[np.nan]] * 300,
        }
    )
    with pytest.raises(
        InputError, match="row 1,200 of rows: got nan at position 0"
    ) as raised:
        tk.upsert_vectors(server.service(), frame)
    assert raised.value.__notes__[-1] == "Rows stored before this: 1,000."
    assert len(server.requests) == 1


@pytest.mark.parametrize("rows", [None, 5, "text", b"bytes"])
def test_arguments_without_rows_are_refused(server, rows):
    """The error says what is expected."""
    with pytest.raises(
        InputError, match=r"reading rows.*a mapping, several mappings, or a DataFrame"
    ):
        tk.upsert_vectors(server.service(), rows)


@pytest.mark.parametrize(
    "namespace", ["team/a", "team/a/b", "/first", "last/", "a//b", "50% / \u00fc?#&"]
)
def test_a_namespace_may_have_slashes(local_indexes, namespace):
    """Storing, listing, loading, fetching and querying reach the same namespace, and no other."""
    service = local_indexes["dense"]
    assert (
        tk.upsert_vectors(
            service, {"id": "one", "vector": [0.1, 0.7]}, namespace=namespace
        )
        == 1
    )
    assert namespace in tk.list_namespaces(service)
    assert list(stored(service, namespace).index) == ["one"]
    assert tk.fetch_vectors(service, ["one"], namespace=namespace)["id"].tolist() == [
        "one"
    ]
    hits = tk.query(service, vector=[0.1, 0.7], namespace=namespace)
    assert (hits["id"].tolist(), hits["score"].tolist()) == (["one"], [1.0])


@pytest.mark.parametrize(
    ("name", "meant"),
    [("text", "data"), ("embedding", "vector"), ("payload", "metadata")],
)
def test_names_of_other_stores_are_suggested(server, name, meant):
    """The suggestion is the name with the same meaning, not the one with similar letters."""
    row = {"id": "a", "vector": [1.0], name: "x"}
    with pytest.raises(tk.errors.InputError, match=f"Did you mean '{meant}'"):
        tk.upsert_vectors(server.service(), row)


def test_an_error_names_the_row_of_the_caller(server):
    """A rejected request names its rows, and the row that the message counts to; a check names the row."""
    server.json(b'{"result": "Success"}')
    server.always(b'{"error": "row 49: wrong dimension", "status": 422}', 422)
    rows = [{"id": f"v{i}", "vector": [1.0], "namespace": "n"} for i in range(1_400)]
    with pytest.raises(tk.errors.UnprocessableError) as raised:
        tk.upsert_vectors(server.service(), rows)
    note = raised.value.__notes__[0]
    assert "positions 1,000 to 1,399" in note
    assert "position 1,049 of your rows: id 'v1049'" in note
    rows[7]["metadata"] = {"bad": object()}
    with pytest.raises(
        tk.errors.InputError, match="row 7 of rows, field 'bad'"
    ) as wrong:
        tk.upsert_vectors(server.service(), rows)
    assert "position 7 (from 0), id 'v7', namespace 'n'" in wrong.value.__notes__[0]


def test_writing_and_deleting_need_the_name_of_one_namespace(server):
    """The name `all` is refused before a request is sent, because it is every namespace elsewhere."""
    service, row = server.service(), {"id": "a", "vector": [1.0]}
    for change in (
        lambda: tk.upsert_vectors(service, row, namespace="all"),
        lambda: tk.update_vectors(service, row, namespace="all"),
        lambda: tk.delete_vectors(service, prefix="a", namespace="all", confirm=True),
        lambda: tk.delete_vectors(service, "a", namespace="all", confirm=True),
    ):
        with pytest.raises(tk.errors.InputError, match="one namespace"):
            change()
    assert server.requests == []


def test_a_rejected_delete_reports_that_nothing_was_deleted(server):
    """A 400 is an answer: nothing is unknown about it."""
    server.always(b'{"error": "bad filter", "status": 400}', 400)
    with pytest.raises(tk.errors.BadRequestError) as raised:
        tk.delete_vectors(server.service(), filter="n = 1", confirm=True)
    (note,) = raised.value.__notes__
    assert "unknown" not in note
    assert "none of it was deleted" in note
