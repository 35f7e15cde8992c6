"""The ills of an index for the notebook: as many as it says, in documents that have one each."""

import numpy as np
import pandas as pd

import toolkit as tk
from toolkit_service.demo.ill_index import ILLS, plant


def test_each_ill_is_planted_as_often_as_it_says(sample_service):
    """Rows with an ill differ from before in what it names, and the same seed gives the same rows."""
    vectors = tk.load_vectors(sample_service, namespace="runbooks", progress=False)
    rows, planted = plant(vectors)
    assert {name: len(ids) for name, ids in planted.items()} == ILLS
    assert (
        len({key.lower() for ids in planted.values() for key in ids})
        == sum(ILLS.values())
        == len(rows)
    )
    assert plant(vectors)[0] == rows
    found = {row["id"]: row for row in rows}
    one = {
        tuple(found[key]["vector"]) for key in planted["one vector for several texts"]
    }
    assert len(one) == 1
    assert all(
        key.upper() in found and key not in found
        for key in planted["stored twice, under an id in capitals"]
    )
    before = pd.Series(list(tk.as_matrix(vectors)), index=vectors["id"])
    for key in planted["text edited, vector not"]:
        assert np.allclose(found[key]["vector"], before[key])
        assert found[key]["data"].startswith("Withdrawn")
    for key in planted["vector of a damaged text"]:
        assert abs(np.dot(found[key]["vector"], before[key])) < 0.5
    assert {
        type(found[key]["metadata"]["version"]) for key in planted["version as text"]
    } == {str}
