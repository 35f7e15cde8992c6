"""Vectors in two dimensions: a projection, how far it can be trusted, and its plot."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.axes import Axes

from toolkit.arguments import choice, nearest, text, whole, wrong
from toolkit.audits.vector_rows import Matrix, VectorSource, VectorTables, typed_tuples
from toolkit.drawing.style import ThemeName
from toolkit.drawing.wording import counted, frame_table, percent
from toolkit.errors import InputError, SettingsError
from toolkit.plots.vector_points import draw_points
from toolkit.tables.explode import explode_metadata
from toolkit.tables.frames import pandas_frame

Method = Literal["pca", "tsne", "umap"]

_DOING: Final = "projecting vectors"
_NAMED: Final = {"pca": "PCA", "tsne": "t-SNE", "umap": "UMAP"}
_SAMPLES: Final = {"pca": 50_000, "tsne": 5_000, "umap": 20_000}
_KEPT: Final = 50  # principal components that t-SNE, UMAP and clusters are computed from
_TRUSTED_ROWS: Final = 2_000  # trustworthiness takes memory for the square of them
_NEIGHBOURS: Final = 10
_FEWEST: Final = 5  # rows below which there are no neighbourhoods to keep
_EQUAL: Final = 1e-6  # spread below which all vectors have one direction
_TEXTS: Final = ("namespace", "id", "data", "metadata")
_NOT_CARRIED: Final = (*_TEXTS, "x", "y", "vector", "sparse_indices", "sparse_values")


@dataclass(frozen=True, repr=False, eq=False)
class VectorProjection:
    """Vectors in two dimensions; made by `project_vectors`.

    Attributes
    ----------
    frame : pandas.DataFrame
        One row a vector, in the order of the input: `namespace`, `id`, `x`, `y` (float64, without unit), then
        `data` and `metadata` where the input has them, and the other columns of a DataFrame. Columns may be
        added, to colour by them.
    method : str
        ``"pca"``, ``"tsne"`` or ``"umap"``.
    trustworthiness : float or None
        How far neighbours on the map are neighbours in the index, 0 to 1: 1 where all are, about 0.5 by
        chance. Of at most 2,000 of the rows, by cosine and 10 neighbours. None for fewer than 5 rows, and
        where scikit-learn is not installed. It forgives neighbours that are not far away: see the next.
    neighbours_kept : float or None
        The share of the 10 nearest vectors on the map that are among the 10 nearest in the index, 0 to 1, of
        the same rows. None for fewer than 5 rows.
    explained : float or None
        The share of the variance that the two axes keep, 0 to 1; None where they are not linear.
    rows : int
        Usable vectors in the input.
    left_out : int
        Rows of the input without a vector, or with one that is zero or not finite.
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
    _components: Matrix = field(default_factory=lambda: np.zeros((0, 1), dtype=np.float32))

    @property
    def basis(self) -> str:
        """Which vectors are shown, in a few words."""
        shown = counted(len(self.frame), "vector")
        drawn = f"{len(self.frame):,} of {self.rows:,} vectors, drawn at random" if self.is_sample else shown
        return drawn + (f"; {self.left_out:,} without a usable vector left out" if self.left_out else "")

    @property
    def verdict(self) -> str:
        """One sentence: what is shown, and how far it can be trusted."""
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
        return f"{self.basis}, by {_NAMED[self.method]}" + (f": {'; '.join(parts)}." if parts else ".")

    def values(self, name: str) -> pd.Series[Any]:
        """A column of `frame`, or a field of its metadata, by name; nested fields have dotted names.

        Raises
        ------
        InputError
            When there is neither.
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
        """The fields of the metadata, a column each; without columns where there is no metadata."""
        if "metadata" not in self.frame.columns:
            return pd.DataFrame(index=self.frame.index)
        return explode_metadata(self.frame[["metadata"]])

    def clusters(self, count: int = 8, *, seed: int = 0) -> pd.Series[Any]:
        """Clusters of the vectors (not of the map) by k-means, numbered from 1, the largest first.

        Parameters
        ----------
        count : int
            How many, at most the number of vectors.
        seed : int
            For the first centres.

        Returns
        -------
        pandas.Series
            Of Int64, a row a row of `frame`. Computed from the first 50 principal components.

        Raises
        ------
        InputError
            When `count` is below 1.
        SettingsError
            When scikit-learn is not installed.
        """
        count = whole("count", count)
        seed = whole("seed", seed, least=0, most=(1 << 32) - 1)
        if not len(self.frame):
            return pd.Series([], dtype="Int64", name="cluster")
        model = _needed("sklearn.cluster", "scikit-learn", "clustering vectors").KMeans(
            n_clusters=min(count, len(np.unique(self._components, axis=0))), n_init=1, random_state=seed
        )
        with _one_thread():
            labels = model.fit_predict(self._components)
        sizes = np.bincount(labels)
        number = np.empty(len(sizes), dtype=np.int64)
        number[np.argsort(-sizes, kind="stable")] = np.arange(1, len(sizes) + 1)
        return pd.Series(number[labels], index=self.frame.index, dtype="Int64", name="cluster")

    def __repr__(self) -> str:
        return self.verdict

    def _repr_html_(self) -> str:
        return frame_table(self.verdict, self.frame[["namespace", "id", "x", "y"]].head(10))

    def plot(self, *, color: str | None = None, ax: Axes | None = None, theme: ThemeName = "light") -> Axes:
        """Draw it, as `plot_vector_map` does."""
        return plot_vector_map(self, color=color, ax=ax, theme=theme)


MapSource: TypeAlias = VectorProjection | VectorSource


def project_vectors(
    vectors: VectorSource,
    method: Method = "pca",
    *,
    namespace: str | None = None,
    sample: int | None = None,
    seed: int = 0,
) -> VectorProjection:
    """Project vectors to two dimensions, and measure how far the projection can be trusted.

    Distances on a map are not those of the index: look at the trustworthiness before reading anything into
    groups and gaps, and never read a score off it.

    Parameters
    ----------
    vectors : pandas.DataFrame, pyarrow.Table, pyarrow.dataset.Dataset, path or numpy.ndarray
        As `load_vectors` returns; the path of a snapshot or what `scan_snapshot` returns; or a matrix, a row
        a vector. Dense vectors of one dimension.
    method : {"pca", "tsne", "umap"}
        ``"pca"`` keeps large distances and needs nothing but numpy; ``"tsne"`` keeps neighbours (needs
        scikit-learn), ``"umap"`` neighbours and some of the rest (needs umap-learn).
    namespace : str, optional
        Of several namespaces, which one; ``""`` is the default one. Default: all.
    sample : int, optional
        How many vectors at most, drawn at random. Default: 50,000, 20,000 for UMAP, 5,000 for t-SNE.
    seed : int
        For the sample and the method: the same seed gives the same coordinates.

    Returns
    -------
    VectorProjection

    Raises
    ------
    InputError
        For vectors of several dimensions, sparse vectors only, a namespace that is not there, and arguments
        of another kind.
    SettingsError
        When the package of the method is not installed.
    SnapshotError
        When there is no snapshot at a path.

    Notes
    -----
    Vectors are divided by their lengths first, as comparisons by cosine do. t-SNE and UMAP start from the
    first 50 principal components. Trustworthiness is that of J. Venna and S. Kaski, *Neighborhood
    preservation in nonlinear projection methods* (2001), as scikit-learn computes it.

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
    matrix, frame, usable, left_out = _drawn(tables, namespace, limit, seed)
    unit = matrix / np.abs(matrix).max(axis=1, keepdims=True, initial=0)  # huge lengths would overflow
    unit = unit / np.linalg.norm(unit, axis=1, keepdims=True)
    components, explained = _principal_components(unit)
    points = np.zeros((len(unit), 2))
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
    vectors: MapSource, *, color: str | None = None, ax: Axes | None = None, theme: ThemeName = "light"
) -> Axes:
    """Draw vectors in two dimensions, a point each, with the trustworthiness of the projection.

    Not for comparing distances: two groups that lie apart on the map need not be far apart in the index.

    Parameters
    ----------
    vectors : VectorProjection, or what `project_vectors` accepts
        Vectors are projected by PCA.
    color : str, optional
        A column, or a field of the metadata, by whose values points are coloured: numbers by a scale, other
        values by their 8 most frequent ones and "other".
    ax : matplotlib.axes.Axes, optional
        Where to draw. Default: a new figure of pyplot's.
    theme : {"light", "dark"}

    Returns
    -------
    matplotlib.axes.Axes
        With a sentence instead of points where there is no usable vector.

    Raises
    ------
    InputError
        As `project_vectors` does, and when there is no column or field `color`.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> frame = pd.DataFrame({"id": ["a", "b", "c"], "vector": [[1, 0], [0, 1], [1, 1]], "kind": list("xxy")})
    >>> ax = plot_vector_map(frame, color="kind", ax=Figure().add_subplot())
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['x (2)', 'y (1)']
    """
    projection = vectors if isinstance(vectors, VectorProjection) else project_vectors(vectors)
    values = None if color is None or projection.frame.empty else projection.values(color)
    measured = projection.trustworthiness
    trust = "" if measured is None else f", trustworthiness {measured:.2f}"
    title = f"Map of vectors by {_NAMED[projection.method]}" + (f", colour: {color}" if color else "")
    return draw_points(
        projection.frame["x"].to_numpy(),
        projection.frame["y"].to_numpy(),
        values,
        title=title,
        note=f"{projection.basis}{trust}",
        ax=ax,
        theme=theme,
    )


def _drawn(
    tables: VectorTables, namespace: str | None, limit: int, seed: int
) -> tuple[Matrix, pd.DataFrame, int, int]:
    """At most so many usable vectors, their rows, how many are usable and how many are not; read once."""
    chance = np.random.default_rng([seed, 1]).random(tables.rows)  # the rows with the lowest are kept
    names: set[str] = set()
    sizes: dict[int, int] = {}
    matrices: list[Matrix] = []
    kept: list[tuple[Any, ...]] = []
    start = usable = inside = 0
    for batch in tables:
        names.update(batch.namespaces)
        wanted = np.array([namespace in (None, name) for name in batch.namespaces], dtype=bool)
        inside += int(wanted.sum())
        for positions, matrix in batch.dense:
            there = int(wanted[positions].sum())
            if there:
                sizes[matrix.shape[1]] = sizes.get(matrix.shape[1], 0) + there
            fits = wanted[positions] & np.isfinite(matrix).all(axis=1) & matrix.any(axis=1)
            usable += int(fits.sum())
            if fits.any() and len(sizes) == 1:
                matrices.append(matrix[fits])
                kept += [
                    (start + row, batch.namespaces[row], batch.ids[row], batch.data[row] or None,
                     batch.metadata[row])
                    for row in positions[fits].tolist()
                ]  # fmt: skip
        start += len(batch.ids)
        if len(kept) > 2 * limit:
            matrices, kept = _lowest(matrices, kept, chance, limit)
    _check(namespace, names, sizes, inside)
    (matrix,), kept = _lowest(matrices, kept, chance, limit)
    rows = typed_tuples(kept, row="int64", namespace="str", id="str", data="str", metadata="str")
    shown = [name for name in _TEXTS if name in {"namespace", "id", *tables.columns}]
    return matrix, rows.set_index("row")[shown], usable, inside - usable


def _lowest(
    matrices: list[Matrix], kept: list[tuple[Any, ...]], chance: npt.NDArray[np.float64], limit: int
) -> tuple[list[Matrix], list[tuple[Any, ...]]]:
    """The rows of the lowest chances, in their order."""
    if not kept:
        return [np.zeros((0, 1), dtype=np.float32)], []
    order = np.argsort(chance[[row[0] for row in kept]], kind="stable")
    chosen = np.sort(order[:limit])
    return [np.concatenate(matrices)[chosen]], [kept[place] for place in chosen]


def _check(namespace: str | None, names: set[str], sizes: dict[int, int], inside: int) -> None:
    """Whether the rows that were read can be shown on one map."""
    if namespace is not None and namespace not in names:
        raise InputError(
            _DOING,
            got=f"no rows in the namespace {namespace[:80]!r}",
            expected="a namespace of these vectors",
            next_step=nearest(namespace, sorted(names), what="There are"),
        )
    if len(sizes) > 1:
        listed = ", ".join(f"{count:,} of {size}" for size, count in sorted(sizes.items()))
        raise InputError(
            _DOING,
            got=f"vectors of several dimensions: {listed}",
            expected="vectors of one dimension, which one model made",
            next_step="Pass namespace=, or the rows of one dimension; audit_vectors names the others.",
        )
    if inside and not sizes:
        got = f"{counted(inside, 'row')} without a dense vector"
        next_step = "Load them with include_vectors=True. Sparse vectors have no dimensions to project."
        raise InputError(_DOING, got=got, expected="dense vectors", next_step=next_step)


def _principal_components(unit: Matrix) -> tuple[Matrix, float]:
    """Coordinates on the first axes, each turned so that its largest weight is positive; what two keep."""
    if not len(unit):
        return np.zeros((0, 2), dtype=np.float32), 0.0
    centred = (unit - unit.mean(axis=0)).astype(np.float64)
    values, axes = np.linalg.eigh(centred.T @ centred)
    values, axes = np.clip(values[::-1], 0, None), axes[:, ::-1][:, :_KEPT]
    axes = axes * np.where(axes[np.abs(axes).argmax(axis=0), np.arange(axes.shape[1])] < 0, -1, 1)
    total = float(values.sum())
    return (centred @ axes).astype(np.float32), float(values[:2].sum()) / total if total > 0 else 1.0


def _reducer(method: Method, seed: int) -> Callable[[Matrix], Any]:
    """What turns principal components into two dimensions; its package is looked for now."""
    if method == "pca":
        return lambda components: components[:, :2]
    if method == "tsne":
        tsne = _needed("sklearn.manifold", "scikit-learn", f"{_DOING} by t-SNE").TSNE
        return lambda components: tsne(
            init=_start(components),
            perplexity=min(30.0, (len(components) - 1) / 3),
            random_state=seed,
        ).fit_transform(components)
    umap = _needed("umap", "umap-learn", f"{_DOING} by UMAP").UMAP
    return lambda components: umap(
        n_neighbors=min(15, len(components) - 1), random_state=seed, n_jobs=1
    ).fit_transform(components)


def _start(components: Matrix) -> Matrix:
    """Where t-SNE starts: the first two components, as small as it wants them."""
    start = np.zeros((len(components), 2), dtype=np.float32)
    start[:, : components.shape[1]] = components[:, :2]
    start *= np.float32(1e-4) / start[:, 0].std()
    return start


def _kept(unit: Matrix, points: npt.NDArray[np.float64], seed: int) -> tuple[float | None, float | None]:
    """Trustworthiness, and the share of neighbours on the map that are neighbours in the index."""
    if len(unit) < _FEWEST:
        return None, None
    rows = np.arange(len(unit))
    if len(unit) > _TRUSTED_ROWS:
        rows = np.sort(np.random.default_rng([seed, 2]).choice(len(unit), _TRUSTED_ROWS, replace=False))
    neighbours = max(1, min(_NEIGHBOURS, (len(rows) - 1) // 2))
    unit, points = unit[rows], points[rows]
    apart = ((points[:, None] - points) ** 2).sum(axis=2)
    cosines = unit @ unit.T
    np.fill_diagonal(apart, np.inf)
    np.fill_diagonal(cosines, -np.inf)
    on_map = np.argpartition(apart, neighbours - 1, axis=1)[:, :neighbours]
    least = np.partition(cosines, -neighbours, axis=1)[:, -neighbours, None]  # as good is one of them
    share = float((np.take_along_axis(cosines, on_map, axis=1) >= least - _EQUAL).mean())
    try:
        measure = import_module("sklearn.manifold").trustworthiness
    except ImportError:
        return None, share
    with _one_thread():
        return float(measure(unit, points, n_neighbors=neighbours, metric="cosine")), share


def _one_thread() -> AbstractContextManager[Any]:
    """Sums in one order: a seed gives the same map on any number of cores. It comes with scikit-learn."""
    limited: AbstractContextManager[Any] = import_module("threadpoolctl").threadpool_limits(1)
    return limited


def _needed(module: str, package: str, doing: str) -> Any:
    """A module of an optional package, or an error that says how to install it."""
    try:
        return import_module(module)
    except ImportError:
        raise SettingsError(
            doing,
            got=f"no {package} in this environment",
            expected=f"the package {package}",
            next_step=f"Install it: pip install {package}.",
        ) from None
