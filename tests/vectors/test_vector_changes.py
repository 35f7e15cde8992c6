"""Two states of an index: each kind of change, drift, and what the changed vectors share."""

import json

import numpy as np
import pandas as pd
import pytest

import toolkit as tk
from tests.accuracy.ill_indexes import healthy_rows, to_frame
from toolkit.errors import InputError, UnexpectedResultWarning


def changed_rows(count=600):
    """Rows, and the same with each kind of change in rows of the topic 3."""
    before, after = healthy_rows(count, seed=1), healthy_rows(count, seed=1)
    topic = [
        number for number in range(count) if before[number]["metadata"]["topic"] == 3
    ]
    rng = np.random.default_rng(0)
    for number in topic[:8]:
        after[number]["data"] = "another text"
    for number in topic[8:16]:
        moved = np.array(after[number]["vector"]) + rng.normal(0, 0.05, 64)
        after[number]["vector"] = (moved / np.linalg.norm(moved)).tolist()
    after[topic[16]]["data"], after[topic[16]]["vector"] = (
        "both",
        after[topic[17]]["vector"],
    )
    gone = after.pop(topic[18])
    after.append(after[0] | {"id": "new"})
    return before, after, topic, gone


def test_each_kind_of_change_is_named():
    """Text, vector, both, appeared, vanished; the rest is not listed."""
    before, after, topic, gone = changed_rows()
    changes = tk.compare_vectors(to_frame(before), to_frame(after))
    found = dict(zip(changes.frame["id"], changes.frame["change"], strict=True))
    expected = {before[number]["id"]: "text only" for number in topic[:8]}
    expected |= {before[number]["id"]: "vector only" for number in topic[8:16]}
    expected |= {
        before[topic[16]]["id"]: "text and vector",
        gone["id"]: "vanished",
        "new": "appeared",
    }
    assert found == expected
    moved = changes.frame.set_index("id")["distance"]
    vectors = [np.array(rows[topic[8]]["vector"]) for rows in (before, after)]
    assert moved[before[topic[8]]["id"]] == pytest.approx(
        1 - vectors[0] @ vectors[1], abs=1e-4
    )
    assert moved[before[topic[0]]["id"]] == 0
    assert np.isnan(moved["new"])
    assert "texts with their old vector" in changes.verdict
    assert set(changes.moved["change"]) == {"vector only", "text and vector"}
    assert changes.plot().get_yticklabels()[0].get_text() == "(default) (9)"
    assert changes.explanation.stands_out
    assert changes.explanation.frame["condition"][0] == {"topic": "3"}
    shown = repr(changes.explanation)
    assert "changed vectors" in shown
    assert "rose" not in shown
    assert f"{len(found)} expected" not in shown


def test_sparse_vectors_and_metadata_are_compared():
    """Sparse vectors in any order of indices, metadata by its value; a kind of their own where alone."""
    before = to_frame(healthy_rows(100, seed=2))
    before["metadata"] = '{"a": 1, "b": [1, 2]}'
    before = before.assign(
        sparse_indices=[[1, 7]] * 100, sparse_values=[[0.5, 1.0]] * 100
    )
    after = before.assign(metadata='{"b":[1,2],"a":1}')
    after["sparse_indices"], after["sparse_values"] = [[7, 1]] * 100, [[1.0, 0.5]] * 100
    assert tk.compare_vectors(before, after).frame.empty
    metadata, values, texts = (
        after[name].tolist() for name in ("metadata", "sparse_values", "data")
    )
    metadata[3], metadata[4], values[5], values[6], texts[6] = (
        '{"a": 1.0, "b": [1, 2]}',
        None,
        [0.5, 1.0],
        None,
        "x",
    )
    after = after.assign(metadata=metadata, data=texts)
    after["sparse_values"] = values
    indices = after["sparse_indices"].tolist()
    indices[6], metadata[6] = None, "no JSON"
    after = after.assign(sparse_indices=indices, metadata=metadata)
    changes = tk.compare_vectors(before, after)
    assert changes.frame[["change", "differs_in", "distance"]].to_numpy().tolist() == [
        ["metadata only", "metadata", 0],
        ["metadata only", "metadata", 0],
        ["sparse vector only", "sparse vector", 0],
        ["text and vector", "sparse vector, text, metadata", 0],
    ]
    assert changes.moved.empty
    said = "1 with another sparse vector for the same text, 2 with other metadata"
    assert (
        f"4 of 100 vectors changed: 1 with another text and vector, {said}"
        in changes.verdict
    )


@pytest.mark.parametrize(
    ("column", "named"),
    [("data", "texts were"), ("metadata", "metadata was"), ("vector", "vectors were")],
)
def test_what_one_state_has_not_is_not_compared(column, named):
    """As when it was not loaded: no change is invented, and the verdict says so."""
    frame = to_frame(healthy_rows(100, seed=2))
    unloaded = frame.assign(**{column: None})
    told = f"Nothing changed in 100 vectors; {named} not compared, as the state"
    assert tk.compare_vectors(unloaded, frame).verdict == f"{told} before has none."
    assert tk.compare_vectors(frame, unloaded).verdict == f"{told} after has none."
    assert (
        tk.compare_vectors(frame.head(0), frame.head(0)).verdict
        == "Nothing changed in 0 vectors."
    )
    if column != "vector":
        assert (
            tk.compare_vectors(frame.drop(columns=column), frame).verdict
            == f"{told} before has none."
        )


def test_texts_are_not_stale_where_vectors_were_not_compared():
    """Neither in the verdict nor in a report; where no state has vectors, that is said."""
    frame = to_frame(healthy_rows(100, seed=2))
    edited = frame.assign(data=["edited", *frame["data"][1:]])
    changes = tk.compare_vectors(frame.assign(vector=None), edited)
    assert changes.verdict.startswith("1 of 100 vectors changed: 1 with another text; ")
    assert "old vector" not in changes.verdict
    assert changes.stale.empty
    assert tk.compare_vectors(frame, edited).stale["id"].tolist() == [frame["id"][0]]
    unloaded = frame.assign(vector=None)
    told = "Nothing changed in 100 vectors; vectors were not compared, as neither state has any."
    assert tk.compare_vectors(unloaded, unloaded).verdict == told


def test_nothing_changed():
    """One sentence, no findings, and a plot that says so."""
    frame = to_frame(healthy_rows(100, seed=2))
    changes = tk.compare_vectors(frame, frame)
    assert changes.verdict == "Nothing changed in 100 vectors."
    assert changes.frame.empty
    assert changes.explanation is None
    assert changes.plot().texts


def test_drift_of_new_documents_is_seen_and_of_like_ones_not():
    """Of the same topics there is none; of another model there is."""
    rows = healthy_rows(900, seed=3)
    old, like = to_frame(rows[:600]), to_frame(rows)
    assert tk.compare_vectors(old, like).drift["p_value"][0] > 0.05
    other = [
        row | {"vector": (np.roll(row["vector"], 7)).tolist()} for row in rows[600:]
    ]
    changes = tk.compare_vectors(old, to_frame(rows[:600] + other), groups=str)
    assert changes.drift["low"][0] > 0.9
    assert "differ from old ones in the default namespace" in changes.verdict
    assert changes.drift["unrelated"].tolist() == [True]
    assert tk.compare_vectors(old, like).drift["unrelated"].tolist() == [False]


def test_another_subject_is_not_another_model():
    """Vectors of one model share a direction, whatever the subject is."""
    rng = np.random.default_rng(5)
    shared, subjects = rng.normal(size=64), rng.normal(size=(9, 64))
    numbers = np.repeat(np.arange(9), 100)
    matrix = 0.7 * shared + subjects[numbers] + rng.normal(0, 0.3, (900, 64))
    frame = pd.DataFrame({"id": [f"d{n}" for n in range(900)], "vector": [*matrix]})
    changes = tk.compare_vectors(frame[:600], frame, groups=str)
    assert changes.drift["low"][0] > 0.9
    assert changes.drift["unrelated"].tolist() == [False]


def test_rows_that_repeat_an_id_are_counted_and_not_compared():
    """The first row of each is compared, in the distances as well."""
    before = to_frame(healthy_rows(60, seed=1))
    matrix = tk.as_matrix(before).copy()
    again = before.iloc[[0, 0, 1]].assign(vector=list(matrix[[5, 6, 7]]))
    matrix[0] *= -1
    after = before.assign(vector=list(matrix))
    changes = tk.compare_vectors(before, pd.concat([after, again]))
    assert changes.repeated == (0, 3)
    assert changes.rows == 60
    assert changes.frame[["id", "change"]].to_numpy().tolist() == [
        [before["id"][0], "vector only"]
    ]
    assert changes.frame["distance"][0] == pytest.approx(2)
    assert "ids repeat in 3 rows after" in changes.verdict.lower()
    assert tk.compare_vectors(before, after).repeated == (0, 0)


@pytest.mark.parametrize(
    "empty",
    [pd.DataFrame(), pd.DataFrame({"id": [], "vector": []}), pd.DataFrame(columns=["id", "vector"])],
    ids=["no columns", "numbers", "objects"],
)  # fmt: skip
def test_an_empty_frame_is_a_state(empty):
    """As an empty range of an index is: everything appeared, or vanished."""
    frame = to_frame(healthy_rows(30, seed=1))
    for states, change in (((empty, frame), "appeared"), ((frame, empty), "vanished")):
        changes = tk.compare_vectors(*states)
        assert set(changes.frame["change"]) == {change}
        assert len(changes.frame) == 30
    assert tk.audit_vectors(empty).facts["rows"].sum() == 0


def test_snapshots_and_frames_compare_alike(tmp_path):
    """A path before, a frame after."""
    before, after, *_ = changed_rows()
    tk.write_snapshot(to_frame(before), tmp_path / "before")
    one = tk.compare_vectors(tmp_path / "before", to_frame(after))
    two = tk.compare_vectors(to_frame(before), to_frame(after))
    assert one.frame.equals(two.frame)
    assert json.loads(one.frame.to_json(orient="records"))
    assert "vector only" in one._repr_html_()
    ax = one.plot()
    assert ax.get_xlabel() == "cosine distance between old and new vector"
    assert " ".join(ax.get_ylabel().split()) == "vectors: the scale is at the right"


def test_what_has_no_ids_is_an_error():
    """A matrix has no ids to match by."""
    with pytest.raises(InputError, match="with their ids"):
        tk.compare_vectors(np.eye(3), np.eye(3))


@pytest.mark.parametrize("as_snapshot", [True, False])
def test_one_namespace_is_compared_with_another(tmp_path, as_snapshot):
    """Two loads of one namespace each are compared by id, and the verdict names both."""
    before, after, topic, gone = changed_rows()
    first = to_frame(before).assign(namespace="old model")
    second = to_frame(after).assign(namespace="new model")
    source = first
    if as_snapshot:
        source = tmp_path / "first"
        tk.write_snapshot(first, source)
    changes = tk.compare_vectors(source, second)
    assert changes.namespaces == ("old model", "new model")
    assert changes.verdict.startswith("The namespace new model compared with old model")
    found = changes.frame.set_index("id")["change"]
    assert found[before[topic[0]]["id"]] == "text only"
    assert (found[gone["id"]], found["new"]) == ("vanished", "appeared")
    assert set(changes.frame["namespace"]) == {"new model"}


def test_states_without_a_common_namespace_are_named():
    """Several namespaces with other names in each state are not compared, and the verdict gives the names."""
    frame = to_frame(healthy_rows(40, seed=3))
    before = frame.assign(namespace=["a", "b"] * 20)
    after = frame.assign(namespace=["c", "d"] * 20)
    verdict = tk.compare_vectors(before, after).verdict
    assert "no namespace is in both states (a, b before, c, d after)" in verdict.lower()
    shared = tk.compare_vectors(before, after.replace({"namespace": {"c": "a"}}))
    assert "both states" not in shared.verdict


def test_one_namespace_of_two_states_is_compared():
    """Rows of other namespaces do not count; a name that neither state has is no silent success."""
    rows = pd.DataFrame(
        {
            "namespace": ["docs", "docs", "other"],
            "id": ["a", "b", "a"],
            "vector": [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]],
        }
    )
    after = rows.iloc[[0]]
    found = tk.compare_vectors(rows, after, namespace="docs")
    assert found.frame[["id", "change"]].to_numpy().tolist() == [["b", "vanished"]]
    assert found.rows == 2
    with pytest.warns(UnexpectedResultWarning, match="Did you mean 'docs'"):
        assert tk.compare_vectors(rows, rows, namespace="dosc").rows == 0


def test_rows_that_were_stored_again_under_another_id_are_counted():
    """An import that makes ids in another way changes every id and nothing else."""
    before = to_frame(healthy_rows(200, seed=6))
    after = before.assign(id="v2-" + before["id"])
    after.loc[:9, "data"] = "new text"
    found = tk.compare_vectors(before, after)
    assert found.renamed == 190
    assert "190 of the new rows are equal to one that vanished" in found.verdict
    assert tk.compare_vectors(before, before.head(100)).renamed == 0
