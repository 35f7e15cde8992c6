"""Audits of vectors: planted defects are found with their ids, healthy indexes have none."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import toolkit as tk
from tests.accuracy.healthy_shapes import SHAPES, healthy_matrix
from tests.accuracy.ill_indexes import DEFECTS, healthy_rows, ill_frame, to_frame
from toolkit.errors import InputError
from toolkit.vectors.exact_comparison import strangeness, unit_rows


def test_a_healthy_index_has_no_findings():
    """Unit vectors in topics of different sizes and widths, with texts and metadata."""
    audit = tk.audit_vectors(to_frame(healthy_rows(1200, seed=3)))
    assert audit.frame.empty
    assert audit.verdict == "Nothing wrong was found in 1,200 rows in 1 namespace."
    (facts,) = audit.facts.to_dict("records")
    assert (facts["rows"], facts["usable"], facts["dimension"], facts["compared"]) == (
        1200,
        1200,
        64,
        1200,
    )
    assert facts["nearest_pair"] > 0.5 > facts["random_pair"]


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_planted_defect_is_found_with_its_ids(defect: str):
    """Six rows of one defect, and no other finding."""
    frame, planted = ill_frame(800, seed=9, defects={defect: 6})
    (finding,) = tk.audit_vectors(frame).frame.to_dict("records")
    assert (finding["finding"], finding["count"]) == (defect, 6)
    assert set(finding["ids"]) == planted[defect]
    assert finding["call"].startswith("tk.")
    # the planted rows of these defects are pairs
    if "duplicate" in defect or "other" in defect or "equal" in defect:
        assert sorted(map(len, finding["groups"])) == [2, 2, 2]
        assert {key for group in finding["groups"] for key in group} == planted[defect]


def test_all_near_duplicates_are_found_however_many_pairs_there_are():
    """Millions of near pairs of one text, and then pairs of other texts: none of them is left out."""
    rng = np.random.default_rng(5)
    one_text = np.repeat(rng.normal(size=(1, 32)), 3000, axis=0)
    other_texts = np.repeat(rng.normal(size=(200, 32)), 2, axis=0)
    matrix = np.vstack([one_text, other_texts])
    matrix += rng.normal(scale=0.005, size=matrix.shape)

    findings = tk.audit_vectors(matrix.astype(np.float32)).frame
    near = findings.set_index("finding").loc["near duplicate"]

    assert near["count"] == 3400
    sizes = sorted(map(len, near["groups"]))
    assert sizes == [2] * 200 + [3000]


def test_chained_near_duplicates_are_one_group():
    """Each vector is near only to the next one: they are one group, although the ends are far apart."""
    rng = np.random.default_rng(6)
    angles = np.radians(2) * rng.permutation(60)
    matrix = np.column_stack([np.cos(angles), np.sin(angles), 0 * angles, 0 * angles])

    findings = tk.audit_vectors(matrix.astype(np.float32)).frame

    (group,) = findings.set_index("finding").loc["near duplicate", "groups"]
    assert sorted(map(int, group)) == list(range(60))


def test_only_an_unusual_direction_is_strange():
    """A row alone on a subject varies as other rows do; a random direction does not."""
    rng = np.random.default_rng(12)
    subjects = rng.normal(size=(12, 64))
    strengths = rng.standard_t(4, size=(600, 12))
    matrix = 3 + strengths @ subjects + 0.4 * rng.normal(size=(600, 64))
    matrix[0] = 3 + 9 * subjects[0]
    matrix[1] = 3 + 35 * rng.normal(size=64)
    unit = unit_rows(matrix.astype(np.float32))
    alone, noise = strangeness(unit, np.arange(600), np.array([0, 1]))
    assert alone < 1
    assert noise > 2.75


def _subjects(rng: np.random.Generator) -> np.ndarray:
    """Off-centre vectors of twelve subjects, which vary in 24 directions and little in the others.

    Each of the last three rows is alone on a subject.
    """
    rows, dimension = 600, 96
    meanings = rng.normal(size=(24, dimension))
    centres = 0.9 * rng.normal(size=(15, 24))
    subject = np.concatenate([rng.integers(12, size=rows - 3), [12, 13, 14]])
    width = rng.uniform(0.3, 0.6, (rows, 1))
    latent = centres[subject] + width * rng.normal(size=(rows, 24))
    centre = 4 * rng.normal(size=dimension)
    return centre + latent @ meanings + rng.normal(size=(rows, dimension))


@pytest.mark.parametrize("seed", [0, 1, 3])
def test_an_audit_names_noise_and_no_subject_of_one_row(seed: int):
    """The whole audit has no finding, until two rows have random directions."""
    rng = np.random.default_rng(seed)
    matrix = unit_rows(_subjects(rng).astype(np.float32))
    assert tk.audit_vectors(matrix).frame.empty
    noise = matrix.mean(axis=0) + 0.25 * rng.normal(size=(2, matrix.shape[1]))
    matrix[:2] = unit_rows(noise.astype(np.float32))
    (finding,) = tk.audit_vectors(matrix).frame.to_dict("records")
    assert (finding["finding"], finding["ids"]) == ("outlier", ("0", "1"))


def test_the_call_of_duplicates_keeps_one_of_each_group(local_indexes):
    """The code of a finding runs as it is shown: it counts, and with confirm=True it deletes."""
    service = local_indexes["dense"]
    rows = [
        {"id": f"{name}{copy}", "vector": [number, 1], "data": name}
        for number, name in enumerate("abc")
        for copy in range(number + 1)
    ]
    tk.upsert_vectors(service, rows, namespace="copies", progress=False)
    loaded = tk.load_vectors(service, namespace="copies", progress=False)
    audit = tk.audit_vectors(loaded)
    (finding,) = audit.frame[audit.frame["finding"] == "duplicate"].to_dict("records")
    assert finding["groups"] == (("b0", "b1"), ("c0", "c1", "c2"))
    assert audit.surplus_ids("copies") == ["b1", "c1", "c2"]
    names = {"tk": tk, "service": service, "audit": audit}
    with pytest.raises(InputError, match="deleting 3 vectors"):
        eval(finding["call"], names)  # noqa: S307 - the code that the toolkit shows
    confirmed = finding["call"].removesuffix(")") + ", confirm=True)"
    assert eval(confirmed, names) == 3  # noqa: S307
    assert tk.delete_namespace(service, "copies", confirm=True) == 3


def test_a_row_of_two_overlapping_ranges_is_no_duplicate_that_can_be_deleted():
    """Rows 60 to 79 were read twice; ten of them were embedded again between the two reads."""
    rows = to_frame(healthy_rows(200, seed=8))
    second = rows.iloc[60:].copy()
    rng = np.random.default_rng(2)
    second["vector"] = [
        rng.normal(size=64) if place < 10 else vector
        for place, vector in enumerate(second["vector"])
    ]

    audit = tk.audit_vectors(pd.concat([rows.iloc[:80], second], ignore_index=True))

    (finding,) = audit.frame[audit.frame["severity"] != "info"].to_dict("records")
    assert (finding["finding"], finding["count"]) == ("id repeated", 20)
    assert list(finding["ids"]) == rows["id"].iloc[60:80].tolist()
    # deleting these ids would delete the only row
    assert audit.surplus_ids() == []
    (facts,) = audit.facts.to_dict("records")
    assert (facts["rows"], facts["compared"]) == (220, 200)


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_healthy_vectors_of_any_shape_have_no_outliers(shape: str):
    """Few rows and many, few dimensions and many; documents of a single chunk have company enough."""
    for rows, dimension, seed in (
        (300, 64, 1),
        (400, 8, 2),
        (400, 128, 3),
        (1200, 64, 4),
    ):
        found = tk.audit_vectors(
            healthy_matrix(shape, rows, dimension, seed=seed)
        ).frame
        assert "outlier" not in set(found["finding"]), (rows, dimension)


@pytest.mark.parametrize("rows", [400, 4500])
@pytest.mark.parametrize("shape", ["nested topics", "documents", "surface"])
def test_vectors_of_random_directions_are_outliers(shape: str, rows: int):
    """Three planted ones are named, and nothing else, also beyond the rows that all are compared with."""
    found = tk.audit_vectors(healthy_matrix(shape, rows, 128, seed=6, outliers=3)).frame
    (ids,) = found.loc[found["finding"] == "outlier", "ids"]
    assert set(ids) == {str(rows - 3), str(rows - 2), str(rows - 1)}


def test_texts_under_one_vector_are_counted_by_vector():
    """How many vectors, and in how many rows the most frequent one is; its ids are named first."""
    frame = to_frame(healthy_rows(100, seed=5))
    vectors = frame["vector"].tolist()
    for number in (40, 41, 42):
        vectors[number] = vectors[3]
    vectors[10] = vectors[9]
    finding = tk.audit_vectors(frame.assign(vector=vectors)).frame.set_index("finding")
    finding = finding.loc["same vector, other text"]
    assert finding["detail"] == "2 vectors in 6 rows, one of them in 4"
    expected = frame["id"].iloc[[3, 40, 41, 42, 9, 10]].tolist()
    assert (finding["count"], list(finding["ids"])) == (6, expected)


def test_sparse_vectors_tell_hybrid_rows_apart():
    """Equal dense vectors are no duplicates where the sparse ones differ; a text may have two sparse ones."""
    frame = to_frame(healthy_rows(100, seed=5))
    rows = frame.to_dict("list")
    for copy, original in ((40, 3), (41, 4), (42, 5)):
        rows["vector"][copy] = rows["vector"][original]
    rows["data"][41], rows["data"][42] = rows["data"][4], rows["data"][5]
    weights = [1.0] * 100
    weights[40] = weights[41] = 2.0
    sparse = {
        "sparse_indices": [[1, 7]] * 100,
        "sparse_values": [[0.5, weight] for weight in weights],
    }
    found = tk.audit_vectors(pd.DataFrame(rows | sparse)).frame.set_index("finding")
    ids = frame["id"]
    assert set(found.loc["duplicate", "ids"]) == {ids[5], ids[42]}
    assert set(found.loc["same text, other vector", "ids"]) == {ids[4], ids[41]}
    assert set(found.loc["same vector, other text", "ids"]) == {ids[3], ids[40]}
    assert found.loc["same vector, other text", "detail"].endswith(
        "; sparse vectors differ"
    )


@pytest.mark.parametrize(
    "defect", ["duplicate", "field of several types", "without text"]
)
def test_a_finding_lists_every_row_that_it_counts(defect: str):
    """The ids of a finding are for deleting or mending those rows: none of them is left out."""
    frame, planted = ill_frame(800, seed=5, defects={defect: 60})
    found = tk.audit_vectors(frame).frame.set_index("finding").loc[defect]
    assert (found["count"], set(found["ids"])) == (len(found["ids"]), planted[defect])


def test_a_copy_is_no_company_for_an_outlier():
    """Two equal vectors far from all others are two duplicates, and an outlier once."""
    matrix = healthy_matrix("nested topics", 500, 128, seed=1, outliers=2)
    matrix[-1] = matrix[-2]
    found = tk.audit_vectors(matrix).frame.set_index("finding")["ids"]
    assert found["duplicate"] == ("498", "499")
    assert found["outlier"] == ("498",)


def test_defects_of_dimensions_and_neighbourhoods():
    """Dead and constant dimensions, hubs, and vectors in few directions."""
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(2000, 64)).astype(np.float32)
    matrix[:, 3], matrix[:, 9] = 0, 2
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
    matrix[:, 9] = 0.25
    found = tk.audit_vectors(matrix).frame.set_index("finding")["detail"]
    assert found["dead dimension"] == "of 64, counted from 0: 3"
    assert found["constant dimension"] == "of 64, counted from 0: 9"
    flat = rng.normal(size=(500, 3)) @ rng.normal(size=(3, 64))
    assert "few directions" in set(tk.audit_vectors(flat).frame["finding"])
    offset = rng.normal(size=(3000, 64)) + 1
    offset[0] = 1  # the mean of all is near to every one
    hubs = tk.audit_vectors(offset).frame.set_index("finding").loc["hub"]
    assert hubs["ids"] == ("0",)


def test_vectors_that_end_with_zeros_by_nature_are_not_padded():
    """Counts of words have zeros at all places; whole numbers can have a zero at the end."""
    rng = np.random.default_rng(4)
    counts = rng.poisson(0.1, size=(500, 64))
    counts[:, 0] += 1
    rounded = np.rint(30 * rng.normal(size=(500, 64)))
    for matrix in (counts, rounded):
        kinds = set(tk.audit_vectors(matrix.astype(np.float32)).frame["finding"])
        assert "padded with zeros" not in kinds


def test_vectors_that_are_nearly_one_vector_are_a_defect():
    """A model that gives all texts almost the same vector is no healthy index of near duplicates."""
    rng = np.random.default_rng(8)
    matrix = 1 + 0.01 * rng.normal(size=(300, 64))
    audit = tk.audit_vectors(matrix)
    assert (
        audit.verdict == "1 kind of defect in 300 rows in 1 namespace: few directions."
    )
    # copies with small edits are near duplicates, and a page that is stored often is a duplicate
    topics = rng.normal(size=(150, 64))
    edited = np.vstack([topics, topics + 0.01 * rng.normal(size=topics.shape)])
    stored_often = np.vstack([np.repeat(topics[:1], 200, axis=0), topics[1:]])
    for healthy in (edited, stored_often):
        kinds = set(tk.audit_vectors(healthy).frame["finding"])
        assert "few directions" not in kinds


@pytest.mark.parametrize("kind", ["frame", "arrow", "snapshot", "dataset", "matrix"])
def test_every_kind_of_source_gives_the_same_findings(kind: str, tmp_path):
    """A frame, its Arrow table, its snapshot and its matrix."""
    frame, _ = ill_frame(400, seed=7, defects={"zero vector": 3, "near duplicate": 4})
    expected = tk.audit_vectors(frame).frame[["finding", "count"]]
    path = tmp_path / "vectors"
    if kind in {"snapshot", "dataset"}:
        tk.write_snapshot(frame, path)
    source = {
        "frame": lambda: frame,
        "arrow": lambda: pa.table(
            {name: pa.array(frame[name], from_pandas=True) for name in frame}
        ),
        "snapshot": lambda: str(path),
        "dataset": lambda: tk.open_snapshot(path).to_arrow(),
        "matrix": lambda: tk.as_matrix(frame),
    }[kind]()
    pd.testing.assert_frame_equal(
        tk.audit_vectors(source).frame[["finding", "count"]], expected
    )


def test_a_sample_is_said_and_what_is_in_rows_is_still_found():
    """With a sample of 100 of 2,000 rows, all three zero vectors are found."""
    frame, _ = ill_frame(2000, seed=1, defects={"zero vector": 3})
    audit = tk.audit_vectors(frame, sample=100)
    assert audit.frame[["finding", "count"]].to_numpy().tolist() == [["zero vector", 3]]
    assert "of them, drawn at random)" in audit.verdict
    assert 95 <= audit.sample <= 100


@pytest.mark.parametrize(
    "matrix",
    [
        np.zeros((0, 4)),
        np.zeros((5, 4)),
        np.ones((1, 4)),
        np.ones((50, 4)),
        np.full((3, 2), np.nan),
        np.array([[1e38, 1e38]] * 2),
        np.zeros((3, 0)),
    ],
)
def test_odd_matrices_have_an_audit(matrix):
    """Empty, zero, one vector, duplicates only, NaN, huge numbers, no dimensions."""
    with np.errstate(all="raise"):
        audit = tk.audit_vectors(matrix)
    assert audit.verdict
    assert "<table" in audit._repr_html_()


@pytest.mark.parametrize(
    "value",
    [None, 7, [[1.0]], pd.DataFrame({"id": ["a"]}), np.zeros(3), np.array(["a"])],
)
def test_what_holds_no_vectors_is_an_error(value):
    """It names the argument and what to use."""
    with pytest.raises(InputError, match=r"auditing vectors.* for vectors"):
        tk.audit_vectors(value)


@pytest.mark.parametrize("text", ["{'year': 2024}", '{"year": 20', "year=2024", "{]}"])
def test_metadata_that_is_not_json_is_an_error_of_the_rows(text):
    """The audit names the rows for which reading the fields raises an error, and what to do."""
    frame = to_frame(healthy_rows(200, seed=2))
    frame["metadata"] = frame["metadata"].astype(object)
    frame.loc[[3, 7], "metadata"] = text
    with pytest.raises(InputError, match="not JSON"):
        tk.explode_metadata(frame)
    audit = tk.audit_vectors(frame)
    row = audit.frame.set_index("finding").loc["metadata not JSON"]
    assert (row["severity"], row["count"]) == ("error", 2)
    assert list(row["ids"]) == frame["id"].iloc[[3, 7]].tolist()
    assert row["call"].startswith("tk.update_vectors(")
    assert "metadata not JSON" in audit.verdict


def test_long_vectors_are_hubs_by_dot_product():
    """They are near everything in such an index, and by cosine nothing is wrong."""
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(1_000, 32))
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
    matrix[:5] *= 20
    for similarity in (None, "COSINE", "EUCLIDEAN"):
        findings = tk.audit_vectors(matrix, similarity=similarity).frame["finding"]
        assert "hub by length" not in set(findings)
    audit = tk.audit_vectors(matrix, similarity="DOT_PRODUCT")
    row = audit.frame.set_index("finding").loc["hub by length"]
    assert (row["severity"], row["count"]) == ("warning", 5)
    assert "20 times as long" in row["detail"]
    equal = matrix / np.linalg.norm(matrix, axis=1, keepdims=True)
    findings = tk.audit_vectors(equal, similarity="DOT_PRODUCT").frame["finding"]
    assert "hub by length" not in set(findings)
    with pytest.raises(InputError, match="similarity"):
        tk.audit_vectors(matrix, similarity="dot")


def test_metadata_that_other_functions_read_is_no_finding():
    """Not a number, and integers of any size, are read by `explode_metadata`."""
    frame = to_frame(healthy_rows(200, seed=2))
    frame["metadata"] = frame["metadata"].astype(object)
    frame.loc[3, "metadata"] = '{"score": NaN, "year": 2024}'
    frame.loc[4, "metadata"] = f'{{"year": {"9" * 5_000}}}'
    tk.explode_metadata(frame)
    assert "metadata not JSON" not in set(tk.audit_vectors(frame).frame["finding"])


def test_names_from_data_are_masked_and_escaped():
    """A field's name and an id with markup, and a secret in a field's name."""
    rows = healthy_rows(200, seed=2)
    rows[3]["metadata"]["<b>langs"] = 1
    rows[4]["metadata"]["Bearer abcdefghijklmnopqrstuvwx"] = "x"
    rows[5]["id"], rows[5]["vector"] = "<script>alert(1)</script>", [0.0] * 64
    audit = tk.audit_vectors(to_frame(rows))
    assert "<script>" not in audit._repr_html_()
    assert "abcdefghijklmnopqrstuvwx" not in audit._repr_html_() + repr(audit)


def test_the_plot_shows_random_pairs_and_neighbours():
    """Two rows of bars by namespace, and the axis is the cosine."""
    ax = tk.audit_vectors(to_frame(healthy_rows(300, seed=1))).plot()
    assert ax.get_xlabel() == "cosine"
    assert [label.get_text().split(" (")[0] for label in ax.get_yticklabels()] == [
        "nearest neighbours",
        "random pairs",
    ]


def test_the_frame_is_an_ordinary_one(tmp_path):
    """It can be grouped, made unique, written and read back."""
    frame = tk.audit_vectors(
        ill_frame(400, seed=7, defects={"zero vector": 3})[0]
    ).frame
    assert frame.drop_duplicates().nunique()["ids"] == 1
    frame.to_parquet(tmp_path / "audit.parquet")
    assert list(pd.read_parquet(tmp_path / "audit.parquet")["ids"][0]) == list(
        frame["ids"][0]
    )
    assert "zero vector" in frame.to_csv()
    assert frame.to_json(orient="records")


def test_rows_without_a_vector_are_found_without_texts_too():
    """In every namespace, whether they have a text or not; a sparse vector alone is one."""
    frame = to_frame(healthy_rows(300, seed=4)).drop(columns="data")
    frame["vector"] = frame["vector"].astype(object).where(frame.index >= 100, None)
    finding = tk.audit_vectors(frame).frame.set_index("finding").loc["without vector"]
    assert (finding["count"], finding["ids"][0]) == (100, frame["id"][0])
    elsewhere = frame.assign(namespace=["old"] * 100 + [""] * 200)
    assert tk.audit_vectors(elsewhere).frame["namespace"].tolist() == ["old"]
    sparse = frame.assign(
        sparse_indices=[[1, 7]] * 300, sparse_values=[[0.5, 1.0]] * 300
    )
    assert "without vector" not in set(tk.audit_vectors(sparse).frame["finding"])
    sparse["sparse_values"] = [[0.5]] * 300
    with pytest.raises(InputError, match=r"sparse_indices.*a value for each index"):
        tk.audit_vectors(sparse)


def test_vectors_that_were_not_loaded_are_said():
    """Nothing is called healthy by ids and texts alone."""
    frame = to_frame(healthy_rows(100, seed=4))
    unloaded = frame.assign(vector=None)
    told = "in 100 rows in 1 namespace, by ids, texts and metadata alone: no row has a vector."
    assert tk.audit_vectors(unloaded).verdict == f"Nothing wrong was found {told}"
    sparse = unloaded.assign(sparse_indices=[[1]] * 100, sparse_values=[[0.5]] * 100)
    assert tk.audit_vectors(sparse).verdict.endswith(
        "alone: no row has a dense vector."
    )
    assert tk.audit_vectors(frame.head(0)).verdict == "There are no rows to judge."
