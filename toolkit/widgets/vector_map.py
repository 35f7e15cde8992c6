"""Draw a map of vectors. You colour, read and select points, by a lasso or a filter, and query from them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from importlib.util import find_spec
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd
import traitlets

from toolkit.base.arguments import instance, nearest, wrong
from toolkit.base.errors import ToolkitError
from toolkit.base.python_code import Code, fill, listed
from toolkit.drawing.wording import counted
from toolkit.secrets.redaction import Redactor, visible
from toolkit.tables.metadata_fields import match_metadata
from toolkit.vectors.projection import MapSource, VectorProjection, project_vectors
from toolkit.widgets.fields import Dropdown
from toolkit.widgets.filter_editor import FilterEditor
from toolkit.widgets.form_panel import FormPanel
from toolkit.widgets.page_panel import kit_module
from toolkit.widgets.page_parts import is_count, script, synced
from toolkit.widgets.panel import Job
from toolkit.widgets.point_colours import colours_of, of_numbers, one_colour
from toolkit.widgets.shown_code import named_code, variable_of
from toolkit.widgets.similarity_query import QueryPanel
from toolkit.widgets.similarity_results import hit_rows, scope

_PLAIN: Final = "one colour"
_CLUSTER: Final = "cluster (k-means)"
_SCORE: Final = "score of the query"
_NO_VALUES: Final = ("id", "x", "y", "data", "metadata")
_CORNERS: Final = 3
_MOST_CORNERS: Final = 10_000
_LONGEST: Final = 400  # characters of code that are shown
_BY_KEYS: Final = (
    "{frame}[[key in {keys} for key in zip({frame}['namespace'], {frame}['id'])]]"
)

_Mask = npt.NDArray[np.bool_]
Key = tuple[str, str]
"""The namespace and the id of a vector."""


class VectorMapPanel(FormPanel):
    """Vectors in two dimensions: pan and zoom, read, choose by a lasso or a filter, query from a point.

    Parameters
    ----------
    vectors : VectorProjection, or an argument of `project_vectors`
        A projection, or vectors, which are projected by PCA. 50,000 points stay fluid.
    value : iterable of str or of (str, str), optional
        Ids that are selected at first, or pairs of namespace and id. If omitted, none.
    color : str, optional
        Column or metadata field that colours the points at first.
    query : QueryPanel, optional
        Panel whose hits are marked on the map. If you choose a point, this panel queries from it. If omitted,
        a point that you choose is selected.
    key : str, optional
        Keeps the selection when the cell is run again in the same kernel.
    redactor : Redactor, optional
        ``service.redactor`` also masks the tokens of that service. If omitted, the redactor of `query`.

    Attributes
    ----------
    value : tuple of (str, str)
        Namespace and id of each selected vector, in the order of the map. Readable, settable, observable.

    Raises
    ------
    InputError
        As in `project_vectors`, and if an id is not on the map or a column does not exist.

    Notes
    -----
    The lasso and the filter select points on the map. If the points are a sample, the title shows that.
    Keys on the map: arrows move it, plus and minus zoom, 0 shows all, Enter chooses the point in the
    middle, Escape clears the selection. The wheel zooms after you clicked the map. Distances on a map are
    not distances in the index; the trustworthiness is below the title.

    Examples
    --------
    >>> vectors = tk.load_vectors(service, limit=200, progress=False)
    >>> panel = VectorMapPanel(vectors)
    >>> panel.select("city = 'Izmir'")
    >>> panel.selection == vectors["id"][tk.match_metadata(vectors, "city = 'Izmir'")].tolist()
    True
    >>> print(panel.to_code())
    # vectors: the frame this panel was made with
    vectors[tk.match_metadata(vectors, "city = 'Izmir'")]
    """

    _esm = kit_module("map")
    _css = f"{FormPanel._css}{script('map.css')}"  # noqa: SLF001 - of the base class
    # Two float32 per point, one byte per point for the colour, one for the selection, and positions of hits.
    # A colour is the number of a category, or with `scaled` 0 to 254 on the scale; 255 is a missing value.
    # `none` is the place of missing values in the legend.
    points = synced(traitlets.Bytes())
    colours = synced(traitlets.Bytes())
    selected_points = synced(traitlets.Bytes())
    hits = synced(traitlets.List(traitlets.Int()))
    scaled = synced(traitlets.Bool())
    legend = synced(traitlets.List(traitlets.Unicode()))
    none = synced(traitlets.Int(-1))
    described = synced(traitlets.Unicode())
    about = synced(traitlets.Unicode())
    counts = synced(traitlets.Unicode())
    conditions = synced(traitlets.Dict())
    # the last filter, and the points that it selected
    _filter: tuple[str, tuple[Key, ...]] = (
        "",
        (),
    )
    _values: pd.Series[Any] | None = None  # the values that colour the points

    def __init__(
        self,
        vectors: MapSource,
        *,
        value: Iterable[str] | Iterable[Key] = (),
        color: str | None = None,
        query: QueryPanel | None = None,
        key: str | None = None,
        redactor: Redactor | None = None,
    ) -> None:
        if query is not None:
            instance("query", query, QueryPanel, "a QueryPanel")
            redactor = query.redactor if redactor is None else redactor

        instance("redactor", redactor, Redactor, "a Redactor", optional=True)
        self._vectors: object = vectors
        if isinstance(vectors, VectorProjection):
            self.projection, self._vectors = vectors, vectors.frame
        else:
            self.projection = project_vectors(vectors)

        self._query = query
        frame = self.projection.frame
        self._keys: list[Key] = list(zip(frame["namespace"], frame["id"], strict=True))
        # Vectors are known by namespace and id: the same id in two namespaces is two vectors. If a frame
        # has a vector twice, it has two points.
        self._places: dict[Key, list[int]] = {}
        self._by_id: dict[str, list[Key]] = {}
        for position, pair in enumerate(self._keys):
            self._places.setdefault(pair, []).append(position)
        for pair in self._places:
            self._by_id.setdefault(pair[1], []).append(pair)
        self._scores: dict[int, float] = {}
        self._fields = self.projection.metadata_fields()
        super().__init__("Map of vectors", value=value, key=key, redactor=redactor)
        self.points = frame[["x", "y"]].to_numpy(dtype="<f4").tobytes()
        self.described = self.projection.basis
        colours = self._colours()

        if color is not None:
            self.projection.values(color)
            if color not in colours:
                colours.append(color)

        self.colour = self.add_field(
            "colour", Dropdown("Colour by", self._recolour, colours)
        )
        self.colour.value = _PLAIN if color is None else color
        self.filter = FilterEditor(
            self,
            self._filtered,
            show=partial(self._update, "conditions"),
            redactor=self._redactor,
        )

        if "metadata" in frame.columns:
            self.filter.learn(frame)
            # the page draws the filter only if there is metadata to filter
            self._update("conditions", {"possible": True})

        self.add_buttons({"Clear selection": self.clear}, main="")
        self.about = self.projection.verdict
        if not len(frame):
            self.about = f"No usable vectors: {self.projection.basis}."
        self._recolour()
        self._begin()
        if query is not None:
            query.on_result(self.mark)

    @property
    def selection(self) -> list[str]:
        """Return the ids of the selected vectors, in the order of the map."""
        return [identity for _, identity in self.value]

    @property
    def selected(self) -> pd.DataFrame:
        """Return the selected rows of the frame of the projection, with their coordinates."""
        return self.projection.frame[self._mask()].copy()

    def frame(self) -> pd.DataFrame:
        """Return the same as `selected`."""
        return self.selected

    def to_code(self) -> str:
        """Return Python that selects the same rows, with the toolkit imported as ``tk``.

        Returns
        -------
        str
            The code uses the variable of the frame or projection in the notebook, or ``vectors``, with a
            comment.
        """
        projection = variable_of(self.projection)
        if projection is not None and variable_of(self._vectors) is None:
            return self._choosing(fill("{name}.frame", name=projection))

        return named_code(self._choosing, self._vectors, "vectors")

    def _choosing(self, name: Code) -> Code:
        """Return Python that selects the same rows of a frame with this name."""
        text, chosen = self._filter
        # The code with the filter is short, but it selects rows of the whole frame. It is right only if all
        # of them are on the map, and nobody changed the selection since.
        if text and chosen == self.value and not self.projection.is_sample:
            return fill(
                "{frame}[tk.match_metadata({frame}, {text})]", frame=name, text=text
            )

        if not self.value:
            return fill("{frame}.iloc[:0]", frame=name)

        if len({namespace for namespace, _ in self._keys}) < 2:  # noqa: PLR2004 - ids alone are enough
            return fill(
                "{frame}[{frame}['id'].isin({ids})]",
                frame=name,
                ids=listed(self.selection),
            )

        return fill(_BY_KEYS, frame=name, keys=listed(self.value, "{}"))

    def select(self, filter: str) -> None:  # noqa: A002 - the service's own name
        """Select the points whose metadata match a filter, as typing it in the panel does.

        Raises
        ------
        FilterSyntaxError
            If the filter does not parse.
        InputError
            If the vectors have no metadata.
        """
        matched = match_metadata(self.projection.frame, filter)
        self.filter.value = filter
        self._choose(matched.to_numpy(dtype=bool), filter)

    def clear(self) -> None:
        """Clear the selection."""
        self.filter.value = ""
        self._choose(np.zeros(len(self._keys), dtype=bool))

    def mark(self, hits: pd.DataFrame) -> None:
        """Mark the hits of a query that are on the map, by namespace and id."""
        usual = scope(hits).get("namespace", "")
        spaces = (
            hits["namespace"]
            if "namespace" in hits.columns
            else pd.Series(usual, index=hits.index)
        )

        self._scores = {}
        for namespace, identity, score in zip(
            spaces, hits["id"], hits["score"], strict=True
        ):
            # an id that occurs twice in the frame has several points
            for position in self._places.get((str(namespace), str(identity)), ()):
                self._scores[position] = float(score)

        self.hits = list(self._scores)
        if self.colour.value == _SCORE:
            self._recolour()
        there = len({self._keys[position] for position in self._scores})
        self.announce(
            f"{there:,} of {counted(len(hits), 'hit')} are on the map."
            if len(hits)
            else "No hits."
        )

    def choose(self, position: int) -> None:
        """Query from the point at a position of the frame of the projection, as a click on it does.

        Positions begin at 0. If no query panel is linked, the point is selected.

        Raises
        ------
        InputError
            If the position is not on the map.
        """
        # `type`, because `isinstance(True, int)` is True.
        if type(position) is not int or not 0 <= position < len(self._keys):
            raise wrong(
                "position",
                position,
                f"a position among {counted(len(self._keys), 'point')}, from 0",
            )

        namespace, identity = self._keys[position]
        if self._query is not None:
            self._query.ask_stored(identity, namespace=namespace)
        else:
            # without a query, a click selects the point, so that the code returns it
            self.filter.value = ""
            self._choose(self._mask_of([position]))

        self.announce(self._described(position))

    def _checked(self, value: Any) -> tuple[Key, ...]:
        if isinstance(value, str) or not isinstance(value, Iterable):
            raise wrong("value", value, "several ids, or pairs of namespace and id")

        chosen: set[Key] = set()
        for item in value:
            chosen.update(self._pairs_of(item))
        return tuple(pair for pair in self._places if pair in chosen)

    def _pairs_of(self, item: object) -> list[Key]:
        """Return the keys of an id, or of a key itself. Raise InputError if they are not on the map."""
        # a tuple with a list in it cannot be looked up
        is_key = isinstance(item, tuple) and all(isinstance(part, str) for part in item)
        if is_key and item in self._places:
            return [item]
        if isinstance(item, str) and item in self._by_id:
            return self._by_id[item]

        advice = None
        if isinstance(item, str):
            advice = nearest(item, self._by_id)
        raise wrong("value", item, "the id of a vector on the map", advice)

    def _mask(self) -> _Mask:
        mask = np.zeros(len(self._keys), dtype=bool)
        for pair in self.value:
            mask[self._places[pair]] = True
        return mask

    def _mask_of(self, positions: list[int]) -> _Mask:
        mask = np.zeros(len(self._keys), dtype=bool)
        mask[positions] = True
        return mask

    def _show(self, value: tuple[Key, ...]) -> None:
        self.selected_points = self._mask().tobytes()
        selected = f"{len(value):,} of {counted(len(self._places), 'vector')} selected"
        if value:
            selected += "; panel.selected has them"
        self.counts = selected
        self._show_code()

    def _call(self, job: Job, requested: Any) -> pd.DataFrame:  # noqa: ARG002 - nothing is slow here
        return self.selected

    def _choose(self, mask: _Mask, filter_text: str = "") -> None:
        """Select these points, and remember the filter that matched them, if any."""
        chosen = {self._keys[position] for position in np.flatnonzero(mask).tolist()}
        value = tuple(pair for pair in self._places if pair in chosen)
        self._filter = filter_text, value
        self.value = value
        self._show(value)

    def _filtered(self) -> None:
        text, mask = self.filter.value, self._mask_of([])
        try:
            if text:
                matched = match_metadata(self.projection.frame, text)
                mask = matched.to_numpy(dtype=bool)
        except ToolkitError as error:
            self.announce_error(error)
        else:
            self._choose(mask, text)

    def _process_other(self, content: dict[str, Any]) -> None:
        match content:
            case {"kind": "point", "position": position} if self._is_place(position):
                text = self._described(position)
                self.send({"kind": "point", "position": position, "text": text})
            case {"kind": "choose", "position": position} if self._is_place(position):
                try:
                    self.choose(position)
                except ToolkitError as error:
                    self.announce_error(error)
            case {"kind": "lasso", "path": list(path), "add": bool(add)} if _is_path(
                path
            ):
                self._choose_inside(path, add=add)
            case {"kind": "clear"}:
                self.clear()

    def _is_place(self, position: object) -> bool:
        return is_count(position) and int(str(position)) < len(self._keys)

    def _choose_inside(self, path: list[Any], *, add: bool) -> None:
        """Select the points inside a lasso, or add them to the selection."""
        from matplotlib.path import Path  # noqa: PLC0415 - matplotlib is slow to import

        places = self.projection.frame[["x", "y"]].to_numpy()
        # The kernel decides which points are inside, so that the page needs no index of them.
        inside = Path(np.asarray(path, dtype=np.float64)).contains_points(places)
        if add:
            inside |= self._mask()
        self.filter.value = ""
        self._choose(inside)

    def _described(self, position: int) -> str:
        """Return a masked description of a point: the id, the text, and the value that colours it."""
        row = self.projection.frame.iloc[[position]].assign(rank=1, score=0.0)
        (hit,), _ = hit_rows(row, self._redactor)
        parts = [hit.id]
        if namespace := row["namespace"].iloc[0]:
            parts = [f"{hit.id} in {namespace}"]
        if hit.more:
            parts.append(hit.more)
        if position in self._scores:
            parts.append(f"score {self._scores[position]:.4f}")
        if self._values is not None and pd.notna(self._values.iloc[position]):
            parts.append(f"{self.colour.value}: {self._values.iloc[position]}")
        return visible(self._redactor.text(" · ".join(parts)))[:_LONGEST]

    def _colours(self) -> list[str]:
        """Return the names of values that can colour the points. Names with secrets are left out."""
        frame = self.projection.frame
        columns = [name for name in frame.columns if name not in _NO_VALUES]
        # A column with one value, or without values, would give all points the same colour.
        columns = [
            name for name in columns if 0 < frame[name].astype("str").nunique() != 1
        ]
        names = [*columns, *self._fields.columns]
        names = [
            name for name in names if self._redactor.text(name) == name == visible(name)
        ]
        choices = [_PLAIN, *names]
        if find_spec("sklearn") is not None:
            choices.append(_CLUSTER)
        if self._query is not None:
            choices.append(_SCORE)
        return list(dict.fromkeys(choices))

    def _recolour(self) -> None:
        """Send the colours of the points, and the legend that explains them."""
        name = self.colour.value
        self._values, colours = None, one_colour(len(self._keys))
        if name == _SCORE:
            scores = pd.Series(self._scores, dtype="float64")
            self._values = scores.reindex(range(len(self._keys)))
            numbers = np.asarray(self._values, dtype=np.float64)
            colours = of_numbers(name, numbers)
        elif name != _PLAIN:
            self._values = self._values_named(name)
            colours = colours_of(name, self._values, self._redactor)

        with self.hold_sync():
            self.colours, self.scaled = colours.codes, colours.scaled
            self.legend, self.none = list(colours.legend), colours.none

    def _values_named(self, name: str) -> pd.Series[Any]:
        """Return the values of a column, of a metadata field, or the clusters."""
        if name == _CLUSTER:
            return self.projection.clusters()
        return self.projection.values(name)

    def _static(self) -> tuple[pd.DataFrame, str]:
        rows = self.selected if self.value else self.projection.frame
        return (
            rows,
            f"{counted(len(self.value), 'vector')} selected. {self.projection.verdict}",
        )

    def __repr__(self) -> str:
        return f"VectorMapPanel({counted(len(self.value), 'vector')} selected)"


def _is_path(path: list[Any]) -> bool:
    if not _CORNERS <= len(path) <= _MOST_CORNERS:
        return False
    return all(map(_is_corner, path))


def _is_corner(corner: object) -> bool:
    """Return whether a corner of a lasso is a list of two finite numbers, across and up."""
    if not isinstance(corner, list) or len(corner) != 2:  # noqa: PLR2004 - across and up
        return False
    return all(isinstance(part, int | float) and np.isfinite(part) for part in corner)
