"""Project vectors to two dimensions, measure whether the map can be trusted, and draw it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from toolkit.base.arguments import choice, nearest, text, whole, wrong
from toolkit.base.errors import InputError, SettingsError
from toolkit.base.progress import ProgressSteps, StepOption
from toolkit.drawing.result_tables import frame_table
from toolkit.drawing.wording import counted, percent
from toolkit.tables.explode import explode_metadata
from toolkit.tables.frames import pandas_frame
from toolkit.vectors.vector_batches import Matrix
from toolkit.vectors.vector_rows import VectorSource, VectorTables, typed_tuples

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from toolkit.drawing.style import ThemeName

Method = Literal["pca", "tsne", "umap"]

_DOING: Final = "projecting vectors"
_NAMED: Final = {"pca": "PCA", "tsne": "t-SNE", "umap": "UMAP"}
_SAMPLES: Final = {"pca": 50_000, "tsne": 5_000, "umap": 20_000}
_KEPT: Final = 50  # principal components for t-SNE, UMAP and clusters
# trustworthiness needs memory for the square of this number
_TRUSTED_ROWS: Final = 2_000
_NEIGHBOURS: Final = 10
_SLOWER: Final = (
    2  # time per vector of t-SNE, compared with that of an analysis of rows
)
_FEWEST: Final = 5  # fewer rows have no neighbourhoods
_EQUAL: Final = 1e-6  # with a smaller spread, all vectors have one direction
_TEXTS: Final = ("namespace", "id", "data", "metadata")
_NOT_CARRIED: Final = (*_TEXTS, "x", "y", "vector", "sparse_indices", "sparse_values")


@dataclass(frozen=True, repr=False, eq=False)
class VectorProjection:
    """Vectors in two dimensions; made by `project_vectors`.

    Attributes
    ----------
    frame : pandas.DataFrame
        One row per vector, in the order of the input: `namespace`, `id`, `x`, `y` (float64, without unit),
        then `data` and `metadata` if the input has them, and the other columns of a DataFrame. You can add
        columns, to colour by them.
    method : str
        ``"pca"``, ``"tsne"`` or ``"umap"``.
    trustworthiness : float or None
        Measure of whether neighbours on the map are neighbours in the index, 0 to 1: 1 if all are, about 0.5
        by chance. It is computed for at most 2,000 rows, by cosine and 10 neighbours. None for fewer than 5
        rows, or if scikit-learn is not installed. Neighbours on the map that are almost neighbours in the
        index reduce it little; compare `neighbours_kept`.
    neighbours_kept : float or None
        Share of the 10 nearest vectors on the map that are among the 10 nearest in the index, 0 to 1, for the
        same rows. None for fewer than 5 rows.
    explained : float or None
        Share of the variance that the two axes keep, 0 to 1; None if they are not linear.
    rows : int
        Number of usable vectors in the input.
    left_out : int
        Number of rows of the input without a vector, or with a vector that is zero or not finite.
    is_sample : bool
        Whether the frame is a random sample of the usable vectors.

    Examples
    --------
    >>> projection = project_vectors(np.eye(40, 8) + np.arange(8))
    >>> projection.frame.columns.tolist(), len(projection.frame)
    (['namespace', 'id', 'x', 'y'], 40)
    """

    frame: pd.DataFrame
    method: Method
    trustworthiness: float | None
    neighbours_kept: float | None
    explained: float | None
    rows: int
    left_out: int
    is_sample: bool
    _components: Matrix = field(
        default_factory=lambda: np.zeros((0, 1), dtype=np.float32)
    )

    @property
    def basis(self) -> str:
        """Return a short description of the shown vectors."""
        drawn = counted(len(self.frame), "vector")
        if self.is_sample:
            drawn = f"{len(self.frame):,} of {self.rows:,} vectors, drawn at random"
        if self.left_out:
            drawn += f"; {self.left_out:,} without a usable vector left out"
        return drawn

    @property
    def verdict(self) -> str:
        """Return one sentence with the shown vectors, and measures of whether the map can be trusted."""
        parts = []
        if self.explained is not None:
            parts.append(f"the two axes keep {percent(self.explained)} of the variance")
        if self.trustworthiness is not None:
            parts.append(f"trustworthiness {self.trustworthiness:.2f}")
        elif len(self.frame) >= _FEWEST:
            parts.append("trustworthiness is not known without scikit-learn")

        if self.neighbours_kept is not None:
            parts.append(
                f"{percent(self.neighbours_kept)} of neighbours on the map are neighbours in the index"
            )

        sentence = f"{self.basis}, by {_NAMED[self.method]}"
        if parts:
            sentence += f": {'; '.join(parts)}"
        return f"{sentence}."

    def values(self, name: str) -> pd.Series[Any]:
        """Return a column of `frame`, or a field of the metadata, by name; nested fields have dotted names.

        Raises
        ------
        InputError
            If no column or field has the name.
        """
        name = text("color", name, empty=False)
        if name in self.frame.columns:
            return self.frame[name]

        fields = self.metadata_fields()
        if name in fields:
            return fields[name]

        raise wrong(
            "color",
            name,
            "a column, or a field of the metadata",
            nearest(name, [*self.frame.columns, *fields.columns], what="There are"),
        )

    def metadata_fields(self) -> pd.DataFrame:
        """Return the fields of the metadata as columns; no columns if the vectors have no metadata."""
        if "metadata" not in self.frame.columns:
            return pd.DataFrame(index=self.frame.index)
        return explode_metadata(self.frame[["metadata"]])

    def clusters(self, count: int = 8, *, seed: int = 0) -> pd.Series[Any]:
        """Cluster the vectors (not the map) by k-means. Clusters are numbered from 1, the largest first.

        Parameters
        ----------
        count : int
            Number of clusters, at most the number of vectors.
        seed : int
            Seed for the first centres.

        Returns
        -------
        pandas.Series
            Int64, one value per row of `frame`. Clusters are computed from the first 50 principal components.

        Raises
        ------
        InputError
            If `count` is below 1.
        SettingsError
            If scikit-learn is not installed.
        """
        count = whole("count", count)
        seed = whole("seed", seed, least=0, most=(1 << 32) - 1)
        if not len(self.frame):
            return pd.Series([], dtype="Int64", name="cluster")

        model = _needed("sklearn.cluster", "scikit-learn", "clustering vectors").KMeans(
            n_clusters=min(count, len(np.unique(self._components, axis=0))),
            n_init=1,
            random_state=seed,
        )
        with _one_thread():
            labels = model.fit_predict(self._components)
        sizes = np.bincount(labels)
        number = np.empty(len(sizes), dtype=np.int64)
        # k-means numbers clusters by chance. Numbers by size are the same for
        # each run that finds the same clusters.
        number[np.argsort(-sizes, kind="stable")] = np.arange(1, len(sizes) + 1)

        return pd.Series(
            number[labels], index=self.frame.index, dtype="Int64", name="cluster"
        )

    def __repr__(self) -> str:
        return self.verdict

    def _repr_html_(self) -> str:
        return frame_table(
            self.verdict, self.frame[["namespace", "id", "x", "y"]].head(10)
        )

    def plot(
        self,
        *,
        color: str | None = None,
        ax: Axes | None = None,
        theme: ThemeName = "auto",
    ) -> Axes:
        """Draw the map, as `plot_vector_map` does."""
        return plot_vector_map(self, color=color, ax=ax, theme=theme)


MapSource: TypeAlias = VectorProjection | VectorSource


def project_vectors(
    vectors: VectorSource,
    method: Method = "pca",
    *,
    namespace: str | None = None,
    sample: int | None = None,
    seed: int = 0,
    progress: StepOption = None,
) -> VectorProjection:
    """Project vectors to two dimensions, and measure whether the projection can be trusted.

    Distances on a map are not distances in the index: look at the trustworthiness before you interpret groups
    and gaps, and never read a score off a map.

    Parameters
    ----------
    vectors : pandas.DataFrame, pyarrow.Table, pyarrow.dataset.Dataset, path or numpy.ndarray
        A frame of `load_vectors`, the path of a snapshot, a value of `open_snapshot`, or a matrix with one
        row per vector. All vectors are dense and of one dimension.
    method : {"pca", "tsne", "umap"}
        ``"pca"`` keeps large distances and needs only numpy; ``"tsne"`` keeps neighbours (needs
        scikit-learn), ``"umap"`` keeps neighbours and some larger distances (needs umap-learn).
    namespace : str, optional
        Namespace to project; ``""`` is the default namespace. If omitted, all.
    sample : int, optional
        Number of vectors at most, drawn at random. If omitted, 50,000 (20,000 for UMAP, 5,000 for t-SNE).
    seed : int
        Seed for the sample and the method: the same seed gives the same coordinates.
    progress : bool or callable, optional
        A callable is called with (steps done, number of steps, name of the step that begins). By default, a
        notebook or terminal shows a bar if it takes long.

    Returns
    -------
    VectorProjection

    Raises
    ------
    InputError
        If the vectors have several dimensions or are all sparse, if the namespace is unknown, or if an
        argument has another type.
    SettingsError
        If the package of the method is not installed.
    SnapshotError
        If a path contains no snapshot.

    Notes
    -----
    Vectors are divided by their lengths first, as comparisons by cosine do. t-SNE and UMAP start from the
    first 50 principal components. Trustworthiness is defined by J. Venna and S. Kaski, *Neighborhood
    preservation in nonlinear projection methods* (2001), and computed by scikit-learn.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> groups = np.repeat(rng.normal(size=(3, 32)), 50, axis=0) + 0.1 * rng.normal(size=(150, 32))
    >>> project_vectors(groups).verdict.partition(":")[0]
    '150 vectors, by PCA'
    """
    method = choice("method", method, _NAMED)
    limit = whole("sample", sample, optional="for the usual number") or _SAMPLES[method]
    seed = whole("seed", seed, least=0, most=(1 << 32) - 1)
    if namespace is not None:
        namespace = text("namespace", namespace)
    reduce = _reducer(method, seed)
    tables = VectorTables(vectors, doing=_DOING)
    rows = tables.rows
    if method != "pca":
        # a few thousand vectors take as long as many rows of other analyses
        rows *= _SLOWER

    with ProgressSteps(progress, title="map", total=3, rows=rows) as step:
        return _projection(
            vectors, tables, method, reduce, limit, seed, namespace, step
        )


def _projection(
    vectors: VectorSource,
    tables: VectorTables,
    method: Method,
    reduce: Callable[[Matrix], Any],
    limit: int,
    seed: int,
    namespace: str | None,
    step: Callable[[str], None],
) -> VectorProjection:
    """Read the vectors, project them and measure the projection."""
    step("reading vectors")
    matrix, frame, usable, left_out = _drawn(tables, namespace, limit, seed)
    # huge lengths would overflow
    unit = matrix / np.abs(matrix).max(axis=1, keepdims=True, initial=0)
    unit = unit / np.linalg.norm(unit, axis=1, keepdims=True)
    components, explained = _principal_components(unit)
    points = np.zeros((len(unit), 2))
    step(f"projecting by {_NAMED[method]}")

    if method == "pca" or len(unit) < _FEWEST or not components.std(axis=0)[0] > _EQUAL:
        points[:, : components.shape[1]] = components[:, :2]
    else:
        with _one_thread():
            points[:] = reduce(components)

    for number, name in enumerate("xy"):
        frame.insert(2 + number, name, points[:, number])
    given = pandas_frame(vectors)
    if given is not None:
        for name in given.columns:
            if isinstance(name, str) and name not in _NOT_CARRIED:
                frame[name] = given[name].iloc[frame.index].array

    step("measuring what the map keeps")
    return VectorProjection(
        frame.reset_index(drop=True),
        method,
        *_kept(unit, points, seed),
        explained if method == "pca" and len(unit) > 1 else None,
        usable,
        left_out,
        usable > len(unit),
        components,
    )


def plot_vector_map(
    vectors: MapSource,
    *,
    color: str | None = None,
    ax: Axes | None = None,
    theme: ThemeName = "auto",
) -> Axes:
    """Draw vectors as points in two dimensions, with the trustworthiness of the projection.

    Do not compare distances: two groups that are far apart on the map need not be far apart in the index.

    Parameters
    ----------
    vectors : VectorProjection, or what `project_vectors` accepts
        A projection, or vectors, which are projected by PCA.
    color : str, optional
        A column, or a field of the metadata, that colours the points: numbers by a scale, other values by the
        8 most frequent ones and "other".
    ax : matplotlib.axes.Axes, optional
        Axes to draw on. If omitted, pyplot makes a new figure.
    theme : {"auto", "light", "dark"}
        Colours of the plot.

    Returns
    -------
    matplotlib.axes.Axes
        The Axes. If no vector is usable, they show a sentence instead of points.

    Raises
    ------
    InputError
        As in `project_vectors`, and if no column or field is named `color`.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> frame = pd.DataFrame({"id": ["a", "b", "c"], "vector": [[1, 0], [0, 1], [1, 1]], "kind": list("xxy")})
    >>> ax = plot_vector_map(frame, color="kind", ax=Figure().add_subplot())
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['x (2)', 'y (1)']
    """
    from toolkit.vectors.point_plots import draw_points  # noqa: PLC0415 - matplotlib is slow to import

    projection = (
        vectors if isinstance(vectors, VectorProjection) else project_vectors(vectors)
    )
    values = None
    if color is not None and not projection.frame.empty:
        values = projection.values(color)
    note = projection.basis
    if projection.trustworthiness is not None:
        note += f", trustworthiness {projection.trustworthiness:.2f}"
    title = f"Map of vectors by {_NAMED[projection.method]}"
    if color:
        title += f", colour: {color}"
    return draw_points(
        projection.frame["x"].to_numpy(),
        projection.frame["y"].to_numpy(),
        values,
        title=title,
        note=note,
        ax=ax,
        theme=theme,
    )


def _drawn(
    tables: VectorTables, namespace: str | None, limit: int, seed: int
) -> tuple[Matrix, pd.DataFrame, int, int]:
    """Read the vectors once, and draw at most `limit` usable ones.

    Return the vectors, their rows, and the numbers of usable and of other rows.
    """
    # rows with the lowest numbers are kept
    chance = np.random.default_rng([seed, 1]).random(tables.rows)
    names: set[str] = set()
    sizes: dict[int, int] = {}
    matrices: list[Matrix] = []
    kept: list[tuple[Any, ...]] = []
    start = usable = inside = 0

    for batch in tables:
        names.update(batch.namespaces)
        wanted = np.array(
            [namespace in (None, name) for name in batch.namespaces], dtype=bool
        )
        inside += int(wanted.sum())

        for positions, matrix in batch.dense:
            there = int(wanted[positions].sum())
            if there:
                sizes[matrix.shape[1]] = sizes.get(matrix.shape[1], 0) + there
            fits = (
                wanted[positions] & np.isfinite(matrix).all(axis=1) & matrix.any(axis=1)
            )
            usable += int(fits.sum())

            if fits.any() and len(sizes) == 1:
                matrices.append(matrix[fits])
                kept += [
                    (start + row, batch.namespaces[row], batch.ids[row], batch.data[row] or None,
                     batch.metadata[row])
                    for row in positions[fits].tolist()
                ]  # fmt: skip

        start += len(batch.ids)
        # This is reservoir sampling by random keys: each row has a random number, and the lowest numbers are
        # kept. Up to twice the sample is collected before it is reduced, so that reducing is rare.
        if len(kept) > 2 * limit:
            matrices, kept = _lowest(matrices, kept, chance, limit)

    _check(namespace, names, sizes, inside)
    (matrix,), kept = _lowest(matrices, kept, chance, limit)
    rows = typed_tuples(
        kept, row="int64", namespace="str", id="str", data="str", metadata="str"
    )
    shown = [name for name in _TEXTS if name in {"namespace", "id", *tables.columns}]

    return matrix, rows.set_index("row")[shown], usable, inside - usable


def _lowest(
    matrices: list[Matrix],
    kept: list[tuple[Any, ...]],
    chance: npt.NDArray[np.float64],
    limit: int,
) -> tuple[list[Matrix], list[tuple[Any, ...]]]:
    """Return the rows with the lowest random numbers, in the order of the input."""
    if not kept:
        return [np.zeros((0, 1), dtype=np.float32)], []

    order = np.argsort(chance[[row[0] for row in kept]], kind="stable")
    chosen = np.sort(order[:limit])
    return [np.concatenate(matrices)[chosen]], [kept[place] for place in chosen]


def _check(
    namespace: str | None, names: set[str], sizes: dict[int, int], inside: int
) -> None:
    """Raise InputError if the rows cannot be shown on one map."""
    if namespace is not None and namespace not in names:
        raise InputError(
            _DOING,
            got=f"no rows in the namespace {namespace[:80]!r}",
            expected="a namespace of these vectors",
            next_step=nearest(namespace, sorted(names), what="There are"),
        )

    if len(sizes) > 1:
        listed = ", ".join(
            f"{count:,} of {size}" for size, count in sorted(sizes.items())
        )
        raise InputError(
            _DOING,
            got=f"vectors of several dimensions: {listed}",
            expected="vectors of one dimension, from one model",
            next_step="Pass namespace=, or the rows of one dimension; audit_vectors names the others.",
        )

    if inside and not sizes:
        got = f"{counted(inside, 'row')} without a dense vector"
        next_step = "Load them with include_vectors=True. Sparse vectors have no dimensions to project."
        raise InputError(_DOING, got=got, expected="dense vectors", next_step=next_step)


def _principal_components(unit: Matrix) -> tuple[Matrix, float]:
    """Return the coordinates on the principal axes, and the share of variance of the first two.

    Each axis is turned so that the largest weight is positive, which makes the signs reproducible.
    """
    if not len(unit):
        return np.zeros((0, 2), dtype=np.float32), 0.0

    centred = (unit - unit.mean(axis=0)).astype(np.float64)
    # `eigh` returns ascending eigenvalues; the last ones are the axes of the most variance.
    values, axes = np.linalg.eigh(centred.T @ centred)
    values, axes = np.clip(values[::-1], 0, None), axes[:, ::-1][:, :_KEPT]
    axes = axes * np.where(
        axes[np.abs(axes).argmax(axis=0), np.arange(axes.shape[1])] < 0, -1, 1
    )
    total = float(values.sum())

    return (centred @ axes).astype(np.float32), float(
        values[:2].sum()
    ) / total if total > 0 else 1.0


def _reducer(method: Method, seed: int) -> Callable[[Matrix], Any]:
    """Return a function that reduces principal components to two dimensions.

    Raise SettingsError if the package of the method is missing.
    """
    if method == "pca":
        return lambda components: components[:, :2]

    if method == "tsne":
        tsne = _needed("sklearn.manifold", "scikit-learn", f"{_DOING} by t-SNE").TSNE
        return lambda components: tsne(
            # If t-SNE starts from the principal components, the map keeps more of the large distances and is
            # reproducible (Kobak and Berens, 2019).
            init=_start(components),
            # A perplexity is about a number of neighbours; scikit-learn requires fewer than there are rows.
            perplexity=min(30.0, (len(components) - 1) / 3),
            random_state=seed,
        ).fit_transform(components)

    umap = _needed("umap", "umap-learn", f"{_DOING} by UMAP").UMAP
    return lambda components: umap(
        n_neighbors=min(15, len(components) - 1), random_state=seed, n_jobs=1
    ).fit_transform(components)


def _start(components: Matrix) -> Matrix:
    """Return the start of t-SNE: the first two components, scaled to the recommended small size."""
    start = np.zeros((len(components), 2), dtype=np.float32)
    start[:, : components.shape[1]] = components[:, :2]
    start *= np.float32(1e-4) / start[:, 0].std()

    return start


def _kept(
    unit: Matrix, points: npt.NDArray[np.float64], seed: int
) -> tuple[float | None, float | None]:
    """Return the trustworthiness, and the share of neighbours on the map that are neighbours in the index."""
    if len(unit) < _FEWEST:
        return None, None

    rows = np.arange(len(unit))
    if len(unit) > _TRUSTED_ROWS:
        rows = np.sort(
            np.random.default_rng([seed, 2]).choice(
                len(unit), _TRUSTED_ROWS, replace=False
            )
        )

    # scikit-learn requires fewer neighbours than half of the rows.
    neighbours = max(1, min(_NEIGHBOURS, (len(rows) - 1) // 2))
    unit, points = unit[rows], points[rows]
    apart = ((points[:, None] - points) ** 2).sum(axis=2)
    cosines = unit @ unit.T
    np.fill_diagonal(apart, np.inf)
    np.fill_diagonal(cosines, -np.inf)
    on_map = np.argpartition(apart, neighbours - 1, axis=1)[:, :neighbours]
    # ties count as neighbours
    least = np.partition(cosines, -neighbours, axis=1)[:, -neighbours, None]
    share = float(
        (np.take_along_axis(cosines, on_map, axis=1) >= least - _EQUAL).mean()
    )

    try:
        measure = import_module("sklearn.manifold").trustworthiness
    except ImportError:
        return None, share

    with _one_thread():
        return float(
            measure(unit, points, n_neighbors=neighbours, metric="cosine")
        ), share


def _one_thread() -> AbstractContextManager[Any]:
    """Limit sums to one thread, so that a seed gives the same map on any number of cores."""
    limited: AbstractContextManager[Any] = import_module(
        "threadpoolctl"
    ).threadpool_limits(1)
    return limited


def _needed(module: str, package: str, doing: str) -> Any:
    """Import a module of an optional package. Raise SettingsError with the command to install it."""
    try:
        return import_module(module)
    except ImportError:
        raise SettingsError(
            doing,
            got=f"no {package} in this environment",
            expected=f"the package {package}",
            next_step=f"Install it: pip install {package}.",
        ) from None
