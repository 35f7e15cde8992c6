"""Vectors in two dimensions: what is shown, how far it can be trusted, and what cannot be projected."""

import builtins

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from matplotlib.figure import Figure

import toolkit as tk
from tests.accuracy.ill_indexes import healthy_rows, ill_frame, to_frame
from toolkit.errors import InputError, SettingsError


def axes():
    return Figure(figsize=(9, 4), layout="constrained").add_subplot()


def grouped(count=300, *, seed=0):
    """Vectors of three well separated groups, and which group each is of."""
    rng = np.random.default_rng(seed)
    group = np.arange(count) % 3
    return (
        rng.normal(size=(3, 24))[group] + 0.1 * rng.normal(size=(count, 24))
    ).astype("float32"), group


@pytest.fixture(scope="module")
def frame():
    """An index of 12 topics."""
    return to_frame(healthy_rows(400, seed=4))


def test_pca_is_that_of_a_singular_value_decomposition():
    """The coordinates are those of the first two right singular vectors, up to their signs."""
    matrix, _ = grouped()
    projection = tk.project_vectors(matrix)
    unit = matrix / np.linalg.norm(matrix, axis=1, keepdims=True)
    left, sizes, _ = np.linalg.svd(unit - unit.mean(axis=0), full_matrices=False)
    found = projection.frame[["x", "y"]].to_numpy()
    assert np.abs(found) == pytest.approx(np.abs(left[:, :2] * sizes[:2]), abs=1e-4)
    assert projection.explained == pytest.approx(
        (sizes[:2] ** 2).sum() / (sizes**2).sum()
    )


@pytest.mark.parametrize("method", ["pca", "tsne"])
def test_groups_that_are_apart_stay_apart(method):
    """Each point's nearest neighbour on the map is of its group, and trustworthiness says so."""
    matrix, group = grouped()
    projection = tk.project_vectors(matrix, method)
    points = projection.frame[["x", "y"]].to_numpy()
    distance = ((points[:, None] - points[None]) ** 2).sum(axis=2)
    np.fill_diagonal(distance, np.inf)
    assert (group[distance.argmin(axis=1)] == group).all()
    assert projection.trustworthiness > 0.75
    noise = np.random.default_rng(0).normal(size=(300, 24))
    assert tk.project_vectors(noise).trustworthiness < 0.7


@pytest.mark.parametrize("method", ["pca", "tsne"])
def test_the_share_of_neighbours_that_a_map_keeps_is_counted(method):
    """A high trustworthiness may hide that most neighbours are others: the verdict says how many are kept."""
    matrix, _ = grouped()
    projection = tk.project_vectors(matrix, method)
    points = projection.frame[["x", "y"]].to_numpy()
    unit = matrix / np.linalg.norm(matrix, axis=1, keepdims=True)
    near = np.argsort(-(unit @ unit.T - 3 * np.eye(len(unit))), axis=1)[:, :10]
    apart = ((points[:, None] - points) ** 2).sum(axis=2) + 1e9 * np.eye(len(unit))
    on_map = np.argsort(apart, axis=1)[:, :10]
    share = np.mean(
        [
            len(set(one) & set(other)) / 10
            for one, other in zip(near, on_map, strict=True)
        ]
    )
    assert projection.neighbours_kept == pytest.approx(share, abs=0.002)
    said = f"{round(100 * projection.neighbours_kept)} % of neighbours on the map are neighbours in the index"
    assert said in projection.verdict
    flat = tk.project_vectors(np.random.default_rng(0).normal(size=(50, 2)))
    assert tk.project_vectors(np.ones((20, 3))).neighbours_kept == 1
    assert 0.3 < flat.neighbours_kept <= 1
    assert tk.project_vectors(np.eye(4)).neighbours_kept is None


@pytest.mark.parametrize("method", ["pca", "tsne"])
def test_the_same_seed_gives_the_same_map(frame, method):
    """Coordinates and sample are repeatable; another seed draws others."""
    one, two, other = (
        tk.project_vectors(frame, method, sample=150, seed=seed) for seed in (1, 1, 2)
    )
    pd.testing.assert_frame_equal(one.frame, two.frame, check_exact=True)
    assert set(one.frame["id"]) != set(other.frame["id"])


def test_frames_arrow_snapshots_and_matrices_are_projected_alike(frame, tmp_path):
    """The same coordinates from each; ids and metadata beside them where there are any."""
    tk.write_snapshot(frame, tmp_path / "index")
    table = tk.open_snapshot(tmp_path / "index").to_arrow().to_table()
    expected = tk.project_vectors(frame).frame
    assert expected["id"].tolist() == frame["id"].tolist()
    for source in (
        table,
        tmp_path / "index",
        tk.open_snapshot(tmp_path / "index").to_arrow(),
    ):
        found = (
            tk.project_vectors(source)
            .frame.set_index("id")
            .loc[expected["id"]]
            .reset_index()
        )
        assert np.allclose(found[["x", "y"]], expected[["x", "y"]], atol=1e-4)
        assert found["metadata"].tolist() == expected["metadata"].tolist()
    found = tk.project_vectors(tk.as_matrix(frame)).frame
    assert np.allclose(found[["x", "y"]], expected[["x", "y"]])


def test_a_sample_is_of_usable_vectors_and_is_said(frame):
    """As many as asked for, in their order, of one namespace; and the sentence names both numbers."""
    several = pd.concat(
        [frame, frame.head(100).assign(namespace="other")], ignore_index=True
    )
    projection = tk.project_vectors(several, namespace="", sample=50)
    assert len(projection.frame) == 50
    assert set(projection.frame["namespace"]) == {""}
    assert projection.frame["id"].is_monotonic_increasing
    assert projection.verdict.startswith("50 of 400 vectors, drawn at random, by PCA")
    assert "50 of 400" in tk.plots.plot_vector_map(
        projection, ax=axes()
    ).get_xlabel().replace("\n", " ")
    with pytest.raises(InputError, match="Did you mean 'other'"):
        tk.project_vectors(several, namespace="othr")


def test_other_columns_of_a_frame_are_carried_for_the_rows_drawn(frame):
    """A column of the caller's own stays with its row."""
    scored = frame.assign(score=np.arange(len(frame)))
    found = tk.project_vectors(scored, sample=60).frame
    assert found["score"].tolist() == [
        int(key.removeprefix("doc-")) for key in found["id"]
    ]


def test_vectors_without_direction_are_left_out_and_counted():
    """Zero, not finite and missing ones are no points."""
    ill, planted = ill_frame(
        300, seed=2, defects={"zero vector": 3, "not finite": 2, "without vector": 4}
    )
    projection = tk.project_vectors(ill)
    assert projection.left_out == 9
    assert not set.union(*planted.values()) & set(projection.frame["id"])
    assert "9 without a usable vector left out" in projection.verdict


def test_what_cannot_be_projected_is_an_error(frame):
    """Several dimensions, sparse vectors alone, an unknown method."""
    mixed, _ = ill_frame(100, seed=3, defects={"several dimensions": 4})
    with pytest.raises(InputError, match=r"4 of 32, 96 of 64.*audit_vectors"):
        tk.project_vectors(mixed)
    sparse = frame.head(5).assign(
        vector=None, sparse_indices=[[1]] * 5, sparse_values=[[0.5]] * 5
    )
    with pytest.raises(InputError, match="5 rows without a dense vector"):
        tk.project_vectors(sparse)
    with pytest.raises(InputError, match="'pca', 'tsne' or 'umap'"):
        tk.project_vectors(frame, "lda")


@pytest.mark.parametrize("rows", [0, 1, 2, 4, 6])
def test_few_vectors_are_drawn_all_the_same(rows):
    """No vector, one, and duplicates only: points at finite places."""
    for matrix in (
        np.ones((rows, 3)),
        np.eye(rows, 3)[:, :1] + 1,
        np.eye(rows, 5) + 0.1,
    ):
        for method in ("pca", "tsne"):
            projection = tk.project_vectors(matrix, method)
            assert len(projection.frame) == rows
            assert np.isfinite(projection.frame[["x", "y"]]).all(axis=None)
            assert projection.plot(ax=axes()).get_title(loc="left")
            assert len(projection.clusters(3)) == rows


def test_numbers_of_any_size_are_projected():
    """Huge and tiny vectors have a direction as others."""
    matrix, _ = grouped(60)
    huge = tk.project_vectors(np.vstack([matrix * 1e30, matrix * 1e-30])).frame
    assert np.allclose(huge[["x", "y"]].head(60), huge[["x", "y"]].tail(60), atol=1e-4)


def test_packages_that_are_missing_are_named(monkeypatch, frame):
    """UMAP names its install command; without scikit-learn PCA works, and trustworthiness is not known."""
    real = builtins.__import__

    def without(name, *rest, **more):
        if name.partition(".")[0] in {"umap", "sklearn"}:
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr("toolkit.vectors.projection.import_module", without)
    for method, package in (("umap", "umap-learn"), ("tsne", "scikit-learn")):
        with pytest.raises(SettingsError, match=f"pip install {package}"):
            tk.project_vectors(frame, method)
    projection = tk.project_vectors(frame)
    assert projection.trustworthiness is None
    assert "not known without scikit-learn" in projection.verdict
    with pytest.raises(SettingsError, match="pip install scikit-learn"):
        projection.clusters()


def test_clusters_are_those_of_the_vectors():
    """Three groups are three clusters, the largest first."""
    matrix, group = grouped()
    labels = tk.project_vectors(np.vstack([matrix, matrix[group == 2]])).clusters(3)
    assert labels.dtype == "Int64"
    assert pd.crosstab(group, labels[:300]).gt(0).sum(axis=1).tolist() == [1, 1, 1]
    assert set(labels[:300][group == 2]) == {1}


def test_points_are_coloured_by_category_by_number_and_by_metadata(frame):
    """Eight categories and other, a colour bar for numbers, nested fields by dotted names."""
    projection = tk.project_vectors(frame)
    ax = projection.plot(color="topic", ax=axes())  # 12 topics: numbers
    assert not ax.get_legend()
    bar = ax.child_axes[0]
    assert bar.get_ylim() == (0, 11)
    projection.frame["kind"] = "k" + projection.values("topic").astype("str")
    names = [
        text.get_text()
        for text in projection.plot(color="kind", ax=axes()).get_legend().get_texts()
    ]
    assert len(names) == 9
    assert names[-1].startswith("other (")
    counts = [int(name.rpartition("(")[2].strip(")")) for name in names]
    assert counts[:8] == sorted(counts[:8], reverse=True)
    assert sum(counts) == 400
    secret = frame.assign(key="Bearer abcdefghijklmnopqrstuvwxyz0123456789")
    legend = (
        tk.plots.plot_vector_map(secret, color="key", ax=axes())
        .get_legend()
        .get_texts()[0]
        .get_text()
    )
    assert "abcdefghij" not in legend
    with pytest.raises(InputError, match="Did you mean 'topic'"):
        projection.plot(color="topik", ax=axes())


def test_the_result_speaks_for_itself(frame):
    """Text and markup with the verdict, names escaped."""
    projection = tk.project_vectors(
        pa.table({"id": ["<b>", "b"], "vector": [[1.0, 2], [3, 1]]})
    )
    assert (
        repr(projection)
        == "2 vectors, by PCA: the two axes keep 100 % of the variance."
    )
    assert "&lt;b&gt;" in projection._repr_html_()


def test_steps_of_a_projection_are_reported():
    """A callable is told each step when it begins, also the one that takes longest."""
    told = []
    tk.project_vectors(
        np.random.default_rng(0).normal(size=(40, 8)),
        "tsne",
        progress=lambda *step: told.append(step),
    )
    names = [name for _, _, name in told if name]
    assert "projecting by t-SNE" in names
    assert [(done, total) for done, total, _ in told][:3] == [(0, 3), (1, 3), (2, 3)]
