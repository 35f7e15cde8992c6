"""Compare two states of a vector index: find changes, and test whether new vectors are like old ones."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from toolkit.base.arguments import nearest, whole
from toolkit.base.errors import UnexpectedResultWarning
from toolkit.drawing.result_tables import frame_table
from toolkit.drawing.wording import counted, describe_condition
from toolkit.failures.explaining import Explanation, explain_change
from toolkit.loading.vector_names import Namespaces, named_namespaces
from toolkit.vectors.documents import DocumentFinder, Groups
from toolkit.vectors.few_valued_fields import few_valued_fields
from toolkit.vectors.new_vectors import drift_sentences, drifts
from toolkit.vectors.rounding import Rounding, sketch_distances
from toolkit.vectors.vector_rows import (
    IndexRows,
    InNamespace,
    VectorSource,
    VectorTables,
    read_rows,
    typed_tuples,
    with_default_named,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from toolkit.drawing.style import ThemeName

_DOING: Final = "comparing vectors"
_SAMPLE: Final = 100_000
_STATES: Final = ("before", "after")
_Source: TypeAlias = VectorSource | InNamespace
_NAMED: Final = {
    "appeared": "appeared",
    "vanished": "vanished",
    "other dimension": "with a vector of another dimension",
    "text and vector": "with another text and vector",
    "vector only": "with another vector for the same text",
    "length only": "with another length of the vector",
    "sparse vector only": "with another sparse vector for the same text",
    "text only": "with another text for the same vector",
    "metadata only": "with other metadata",
}
_PARTS: Final = {
    "vector": "vector",
    "sparse": "sparse vector",
    "text": "text",
    "metadata": "metadata",
}
_WERE: Final = {
    "vector": "vectors were",
    "sparse vector": "sparse vectors were",
    "text": "texts were",
    "metadata": "metadata was",
}
_SIDES: Final = {
    "before": "the state before has none",
    "after": "the state after has none",
    "neither": "neither state has any",
}
_FIELDS: Final = 12  # metadata fields that are compared


@dataclass(frozen=True, repr=False, eq=False)
class VectorChanges:
    """Changes between two states of an index; made by `compare_vectors`.

    Attributes
    ----------
    frame : pandas.DataFrame
        One row per changed vector: `namespace`, `id`, `change` (``appeared``, ``vanished``, ``other
        dimension``, ``text and vector``, ``vector only`` and ``sparse vector only`` with the same text,
        ``length only`` with the same direction, ``text only`` with the same vectors, ``metadata only``),
        `differs_in` (``vector``, ``sparse vector``, ``text`` or ``metadata``, or several with commas; empty
        if it appeared or vanished), `distance` (float64, the cosine distance between the old and the new
        dense vector, missing if unknown).
    drift : pandas.DataFrame
        One row per namespace in both states: `namespace`, `auc`, `low`, `high` (float64, how well a
        classifier separates new vectors from old ones; 0.5 is not at all), `energy`, `p_value` (float64, the
        energy distance, and the probability of a distance this large by chance), `documents` (how the
        documents of chunks were found), `unrelated` (bool, whether the vectors that appeared are
        as far from the unchanged ones as vectors of another model are).
    explanation : Explanation or None
        Metadata that the changed vectors share; None if nothing changed or no vector has metadata.
    rounding : Rounding
        Vectors that differ by rounding alone, which are not in `frame`: `rows`, `largest` (the largest cosine
        distance), `tolerance` and `precision`.
    dimensions : pandas.DataFrame
        One row per namespace whose usual dimension changed: `namespace`, `before`, `after` (Int64).
    rows : int
        Number of vectors in either state.
    namespaces : pair of str or None
        The two namespaces if one was compared with another; `frame` then has the name of the second.
    repeated : pair of int
        Rows of the state before and of the state after whose id an earlier row has, which were not compared.
    renamed : int
        Number of rows that appeared with the vector and text of one that vanished from the namespace.
    not_compared : dict
        Parts (``vector``, ``sparse vector``, ``text``, ``metadata``) that one state lacks in all rows, for
        example because they were not loaded, with the state that lacks them: ``before`` or ``after``. They
        are not compared. ``vector`` has the value ``neither`` if no row of either state has a vector.

    Examples
    --------
    >>> before = pd.DataFrame({"id": ["a"], "vector": [[1.0, 0.0]], "data": ["x"]})
    >>> compare_vectors(before, before.assign(data="y")).verdict.partition(";")[0]
    '1 of 1 vector changed: 1 with another text for the same vector'
    """

    frame: pd.DataFrame
    drift: pd.DataFrame
    explanation: Explanation | None
    rounding: Rounding
    dimensions: pd.DataFrame
    rows: int
    not_compared: dict[str, str]
    namespaces: tuple[str, str] | None = None
    repeated: tuple[int, int] = (0, 0)
    renamed: int = 0

    @property
    def counts(self) -> pd.DataFrame:
        """Return one row per namespace and change: `namespace`, `change`, `rows` (Int64)."""
        counts = (
            self.frame.groupby(["namespace", "change"]).size().reset_index(name="rows")
        )
        return counts.astype({"rows": "Int64"})

    @property
    def moved(self) -> pd.DataFrame:
        """Return the rows of `frame` with another direction of the dense vector, if the distance is known."""
        return self.frame[
            self.frame["distance"].notna()
            & self.frame["differs_in"].str.startswith("vector")
            & (self.frame["change"] != "length only")
        ]

    @property
    def stale(self) -> pd.DataFrame:
        """Return the rows of `frame` with a new text and the vectors of the old text.

        It is empty if vectors were not compared.
        """
        is_known = not self.not_compared.keys() & {"vector", "sparse vector"}
        return self.frame[(self.frame["change"] == "text only") & is_known]

    @property
    def verdict(self) -> str:
        """Return one sentence with the changes, drift, and parts that were not compared."""
        unseen = [
            f"{_WERE[part]} not compared, as {_SIDES[side]}"
            for part, side in self.not_compared.items()
        ]
        before = [*self._compared_namespaces(), *self._repeated_ids()]
        before += [
            f"the dimension changed from {old} to {new} in {name or 'the default namespace'}"
            for name, old, new in self.dimensions.itertuples(index=False)
        ]

        if self.frame.empty:
            parts = [f"nothing changed in {counted(self.rows, 'vector')}"]
            parts = [*before, *parts, *self._rounded(), *unseen]
            return _sentence(parts)

        parts = [
            f"{len(self.frame):,} of {counted(self.rows, 'vector')} changed: {self._listed_changes()}"
        ]
        if self.renamed:
            parts.append(
                f"{self.renamed:,} of the new rows are equal to one that vanished, under another id"
            )
        distances = self.moved["distance"]
        if len(distances):
            parts.append(
                f"vectors moved by a cosine distance of {distances.median():.2g} at the median"
                f" and {distances.max():.2g} at most"
            )

        if not self.stale.empty:
            parts.append("texts with their old vector are not found by their new words")
        parts += drift_sentences(self.drift)
        if self.explanation is not None and self.explanation.stands_out:
            first = self.explanation.frame.iloc[0]
            condition = describe_condition(first["condition"])
            parts.append(
                f"{first['observed']:,.0f} of the changed vectors if {condition}, "
                f"{first['expected']:,.0f} expected by its share of all vectors"
            )

        return _sentence([*before, *parts, *self._rounded(), *unseen])

    def _compared_namespaces(self) -> list[str]:
        """Return which namespaces were compared, if their names differ between the states."""
        if self.namespaces is None:
            return self._namespaces_of_one_state()

        first, second = (name or "(default)" for name in self.namespaces)
        return [f"the namespace {second} compared with {first}"]

    def _namespaces_of_one_state(self) -> list[str]:
        """Return the statement that no namespace is in both states, so that no vectors were compared."""
        names = {
            change: part["namespace"].replace("", "(default)").unique().tolist()
            for change, part in self.frame.groupby("change")
        }
        are_all = len(self.frame) == self.rows and set(names) == {
            "appeared",
            "vanished",
        }
        if not are_all or set(names["appeared"]) & set(names["vanished"]):
            return []

        old, new = (_listed(names[change]) for change in ("vanished", "appeared"))
        states = f"{old} before, {new} after"

        return [
            f"no namespace is in both states ({states}): to compare two, pass the rows of one per state"
        ]

    def _repeated_ids(self) -> list[str]:
        """Return the statement that ids repeat: an index has each id once, so a state has rows too many."""
        states = [
            f"{counted(rows, 'row')} {state}"
            for rows, state in zip(self.repeated, _STATES, strict=True)
            if rows
        ]
        if not states:
            return []
        return [
            f"ids repeat in {' and '.join(states)}: only the first row of each was compared"
        ]

    def _rounded(self) -> list[str]:
        """Return the statement about vectors that differ by rounding alone."""
        rounding = self.rounding
        if not rounding.rows:
            return []

        size = f"at most {rounding.largest:.1g}, tolerance {rounding.tolerance:.1g}"
        vectors = counted(rounding.rows, "vector")
        precision = f"numbers with the precision of {rounding.precision}"

        return [
            f"{vectors} differ by rounding alone (cosine distance {size}, {precision})"
        ]

    def _listed_changes(self) -> str:
        """Return the number of each change, for example "3 appeared, 1 with other metadata"."""
        counts = self.frame["change"].value_counts()
        names = _NAMED
        if self.not_compared.keys() - {
            "metadata"
        }:  # it is not known that the other parts are the same
            names = {
                change: name.partition(" for the same")[0]
                for change, name in _NAMED.items()
            }

        return ", ".join(
            f"{counts[change]:,} {names[change]}"
            for change in names
            if change in counts.index
        )

    def __repr__(self) -> str:
        tables = [part.to_string(index=False) for part in self._tables() if len(part)]
        return "\n".join([self.verdict, *tables])

    def _repr_html_(self) -> str:
        counts, drifts = self._tables()
        html = frame_table(self.verdict, counts)
        if len(drifts):
            html += frame_table("New vectors compared with old ones:", drifts)
        return html

    def _tables(self) -> list[pd.DataFrame]:
        return [with_default_named(part) for part in (self.counts, self.drift)]

    def plot(self, *, ax: Axes | None = None, theme: ThemeName = "auto") -> Axes:
        """Draw the distances between old and new vectors, by namespace."""
        from toolkit.vectors.score_plots import draw_similarities  # noqa: PLC0415 - matplotlib is slow to import

        moved = with_default_named(self.moved).rename(
            columns={"distance": "score", "namespace": "pair"}
        )
        title, label = (
            "How far vectors moved",
            "cosine distance between old and new vector",
        )
        empty = f"None of {counted(self.rows, 'vector')} moved"

        return draw_similarities(
            moved, title, label, what="vectors", empty=empty, ax=ax, theme=theme
        )


def _listed(namespaces: list[str]) -> str:
    """Return at most three names."""
    listed = namespaces[:3]
    if len(namespaces) > len(listed):
        listed.append(f"{len(namespaces) - len(listed):,} more")
    return ", ".join(listed)


def compare_vectors(
    before: VectorSource,
    after: VectorSource,
    *,
    groups: Groups = None,
    namespace: Namespaces | None = None,
    seed: int = 0,
) -> VectorChanges:
    """Compare two states of an index: find changes, and test whether new vectors are like old ones.

    Parameters
    ----------
    before, after : pandas.DataFrame, pyarrow.Table, pyarrow.dataset.Dataset or path
        Frames of `load_vectors`, or snapshots, with ids. If each has one namespace, and these differ, the
        vectors with the same ids are compared, and the verdict names both namespaces.
    groups : str or callable, optional
        The document of each vector, because chunks of one document are alike: the name of a metadata field,
        or a function that returns the document of an id. ``str`` makes each vector a document of its own. If
        omitted, documents are found by metadata or by ids, see Notes.
    namespace : str or sequence of str, optional
        The namespaces to compare, for example if one state has others as well. If omitted, all.
        A namespace that neither state has raises a warning.
    seed : int
        Seed for samples and permutations.

    Returns
    -------
    VectorChanges

    Raises
    ------
    InputError
        If one of them has no ids or vectors, or no row has the field `groups`.

    Notes
    -----
    If one state lacks text, metadata, vectors or sparse vectors in all rows, for example because they were
    not loaded, they are not compared, and the verdict reports that. Vectors whose directions differ by less
    than rounding to the precision of their numbers explains are counted in the verdict, and are no changes.
    The order of names in metadata does not
    count; 1 and 1.0 differ. The order of indices of a sparse vector does not count. An index has each id
    once: if rows repeat an id, the first one is compared, and the verdict counts the others.

    Vectors that appeared or changed are compared as a distribution with all old vectors of their namespace.
    Chunks of a document are permuted together. The document is a metadata field that nine in ten rows have,
    such as `doc_id`, `path`, `url` or `source`, or the part of the id before the number of a chunk, as in
    ``guide#3``, ``guide-3``, ``guide_c3`` or ``guide/3``. If no document is found, each vector is one, and
    the verdict is only that new vectors may differ. Up to 100,000 vectors of each state are used for
    distances.

    Examples
    --------
    >>> before = pd.DataFrame({"id": ["a", "b"], "vector": [[1.0, 0.0], [0.0, 1.0]], "data": ["x", "y"]})
    >>> after = pd.DataFrame({"id": ["a", "c"], "vector": [[0.0, 1.0], [0.0, 1.0]], "data": ["x", "z"]})
    >>> compare_vectors(before, after).frame[["id", "change", "distance"]]
      id       change  distance
    0  a  vector only       1.0
    1  b     vanished       NaN
    2  c     appeared       NaN
    """
    seed = whole("seed", seed, least=0)
    chosen = named_namespaces("all" if namespace is None else namespace)
    namespaces = _two_namespaces(before, after)
    sources: tuple[_Source, _Source] = (before, after)
    if namespaces is not None:
        chosen = None
        sources = (InNamespace(before, namespaces[1]), after)
    tables = [
        VectorTables(value, doing=_DOING, name=name, with_ids=True)
        for name, value in zip(_STATES, sources, strict=True)
    ]
    (old, old_is_again), (new, new_is_again) = (
        _without_repeated(read_rows(state, sample=_SAMPLE, seed=seed))
        for state in tables
    )
    first, second = (
        side.rows.assign(position=np.arange(len(side.rows)))[~is_again].astype(
            {"namespace": "str"}
        )
        for side, is_again in ((old, old_is_again), (new, new_is_again))
    )
    if chosen is not None:
        _warn_of_absent(chosen, {*first["namespace"], *second["namespace"]})
        first, second = (
            side[side["namespace"].isin(chosen)] for side in (first, second)
        )
    finder = DocumentFinder(old, new, sources, groups, doing=_DOING)
    joined = first.merge(
        second,
        on=["namespace", "id"],
        how="outer",
        indicator="side",
        suffixes=("", "_after"),
    )
    not_compared = _not_compared(old.rows, new.rows)
    joined["moved"], rounding = _moved(joined, old, new)
    joined["differs_in"] = _differs_in(joined, not_compared)
    joined["change"] = _change(joined)
    changed = joined[joined["change"].notna()].sort_values(
        ["namespace", "id"], ignore_index=True
    )
    keys = list(
        changed[["namespace", "id", "change", "differs_in"]].itertuples(
            index=False, name=None
        )
    )
    distances = _distances(keys, _vectors(old), _vectors(new))
    frame = typed_tuples(
        [(*key, distance) for key, distance in zip(keys, distances, strict=True)],
        namespace="str", id="str", change="str", differs_in="str", distance="float64",
    )  # fmt: skip

    return VectorChanges(
        frame=frame,
        drift=drifts(_new(frame), old, new, finder, seed),
        explanation=_explained(changed, *tables),
        rounding=rounding,
        dimensions=_dimensions(old, new, chosen),
        rows=len(joined),
        not_compared=not_compared,
        namespaces=namespaces,
        repeated=(
            _repeated_rows(old, old_is_again, chosen),
            _repeated_rows(new, new_is_again, chosen),
        ),
        renamed=_renamed(changed),
    )


def _without_repeated(side: IndexRows) -> tuple[IndexRows, npt.NDArray[np.bool_]]:
    """Return the rows, with vectors of the first row of each id only, and which rows are no first ones."""
    is_again = side.rows.duplicated(["namespace", "id"]).to_numpy()
    if not is_again.any():
        return side, is_again

    sampled = {
        name: (positions[~is_again[positions]], matrix[~is_again[positions]])
        for name, (positions, matrix) in side.sampled.items()
    }
    return replace(side, sampled=sampled), is_again


def _repeated_rows(
    side: IndexRows, is_again: npt.NDArray[np.bool_], chosen: list[str] | None
) -> int:
    """Return the number of rows of the chosen namespaces (None for all) that are no first ones."""
    if chosen is not None:
        is_again = is_again & side.rows["namespace"].isin(chosen).to_numpy()
    return int(is_again.sum())


def _warn_of_absent(chosen: list[str], known: set[str]) -> None:
    for name in chosen:
        if name not in known:
            message = (
                f"Neither state has rows in the namespace {name[:80]!r}, so nothing of it was compared. "
                f"{nearest(name, sorted(known))}"
            )
            warnings.warn(message, UnexpectedResultWarning, stacklevel=3)


def _two_namespaces(
    before: VectorSource, after: VectorSource
) -> tuple[str, str] | None:
    """Return the namespaces of both states if each has only one, and these differ."""
    names = []
    for name, value in zip(_STATES, (before, after), strict=True):
        tables = VectorTables(value, doing=_DOING, name=name, with_ids=True)
        names.append(tables.namespaces())

    if [len(found) for found in names] != [1, 1] or names[0] == names[1]:
        return None

    return names[0][0], names[1][0]


def _not_compared(before: pd.DataFrame, after: pd.DataFrame) -> dict[str, str]:
    """Return the parts that are not compared, with the state that lacks them."""
    if before.empty or after.empty:
        return {}

    not_compared = {}
    has_vectors = False
    for column, part in _PARTS.items():
        has_before, has_after = (before[column] != 0).any(), (after[column] != 0).any()
        if has_before != has_after:
            not_compared[part] = "after" if has_before else "before"
        if column in {"vector", "sparse"}:
            has_vectors = bool(has_vectors or has_before or has_after)

    if not has_vectors:
        return {"vector": "neither"} | not_compared

    return not_compared


def _differs_in(joined: pd.DataFrame, not_compared: dict[str, str]) -> pd.Series[str]:
    differs = {
        column: (joined["side"] == "both")
        & (joined[column] != joined[f"{column}_after"])
        for column in _PARTS
    }
    differs["vector"] &= joined["moved"] != "rounded"
    differing = [
        np.where(differs[column], part, "")
        for column, part in _PARTS.items()
        if part not in not_compared
    ]
    listed = [", ".join(filter(None, parts)) for parts in zip(*differing, strict=True)]

    return pd.Series(listed, index=joined.index, dtype="str")


def _change(joined: pd.DataFrame) -> pd.Series[str]:
    vector, text, metadata = (
        joined["differs_in"].str.contains(part)
        for part in ("vector", "text", "metadata")
    )
    dense = joined["differs_in"].str.startswith("vector")
    changes = pd.Series(pd.NA, index=joined.index, dtype="str")
    changes[joined["side"] == "right_only"] = "appeared"
    changes[joined["side"] == "left_only"] = "vanished"
    changes[metadata] = "metadata only"
    changes[text] = "text only"
    changes[vector] = "sparse vector only"
    changes[dense] = "vector only"
    changes[dense & (joined["moved"] == "length")] = "length only"
    changes[vector & text] = "text and vector"
    changes[dense & (joined["moved"] == "dimension")] = "other dimension"

    return changes


def _renamed(changed: pd.DataFrame) -> int:
    """Return how many rows appeared with the dense vector and text of a row that vanished.

    A vector of zeros, or a default vector, belongs to many texts, so the text counts as well.
    """
    vanished = changed[(changed["side"] == "left_only") & (changed["vector"] != 0)]
    appeared = changed[changed["side"] == "right_only"]
    known = pd.MultiIndex.from_frame(vanished[["namespace", "vector", "text"]])
    found = pd.MultiIndex.from_frame(
        appeared[["namespace", "vector_after", "text_after"]]
    )
    return int(found.isin(known).sum())


def _moved(
    joined: pd.DataFrame, before: IndexRows, after: IndexRows
) -> tuple[pd.Series[str], Rounding]:
    """Return how the dense vector of each row changed: ``rounded``, ``length``, ``dimension`` or else empty.

    Directions are compared by sketches, which all rows have; the vectors of a large index do not fit into
    memory.
    """
    moved = pd.Series("", index=joined.index, dtype="str")
    differs = (joined["side"] == "both") & (joined["vector"] != joined["vector_after"])
    has_both = differs & (joined["vector"] != 0) & (joined["vector_after"] != 0)
    same_dimension = joined["dimension"] == joined["dimension_after"]
    moved[has_both & ~same_dimension] = "dimension"
    rounded, largest, tolerance, precision = 0, 0.0, 0.0, ""

    for namespace, part in joined[has_both & same_dimension].groupby("namespace"):
        first = part["position"].to_numpy(dtype=np.intp)
        second = part["position_after"].to_numpy(dtype=np.intp)
        coarsest = max(
            before.precision(str(namespace), first),
            after.precision(str(namespace), second),
            key=lambda one: one.tolerance,
        )
        distances = sketch_distances(before.sketches[first], after.sketches[second])
        lengths = part["norm"].to_numpy(), part["norm_after"].to_numpy()
        # A relative rounding error of e moves a vector by a distance of about e² / 2.
        allowed = np.sqrt(2 * coarsest.tolerance) * np.maximum(*lengths)
        is_turned = ~(distances <= coarsest.tolerance)
        is_longer = np.abs(lengths[0] - lengths[1]) > allowed
        moved[part.index[~is_turned & is_longer]] = "length"
        is_rounded = ~is_turned & ~is_longer
        moved[part.index[is_rounded]] = "rounded"
        if is_rounded.any():
            rounded += int(is_rounded.sum())
            largest = max(largest, float(distances[is_rounded].max()))

        if coarsest.tolerance > tolerance:
            tolerance, precision = coarsest.tolerance, coarsest.name

    return moved, Rounding(rounded, largest, tolerance, precision)


def _dimensions(
    before: IndexRows, after: IndexRows, chosen: list[str] | None
) -> pd.DataFrame:
    """Return the chosen namespaces (None for all) whose usual dimension changed."""
    names = before.usual.keys() & after.usual.keys()
    if chosen is not None:
        names &= set(chosen)
    rows = [
        (name, before.usual[name], after.usual[name])
        for name in sorted(names)
        if before.usual[name] != after.usual[name]
    ]
    return typed_tuples(rows, namespace="str", before="Int64", after="Int64")


def _sentence(parts: list[str]) -> str:
    """Join statements to one sentence, which begins with a capital."""
    joined = "; ".join(parts)
    return f"{joined[:1].upper()}{joined[1:]}."


def _vectors(side: IndexRows) -> dict[tuple[str, str], Any]:
    ids = side.rows["id"].to_numpy(dtype=object)
    return {
        (name, ids[position]): vector
        for name, (positions, matrix) in side.sampled.items()
        for position, vector in zip(positions, matrix, strict=True)
    }


def _distances(
    keys: list[tuple[str, str, str, str]],
    before: dict[tuple[str, str], Any],
    after: dict[tuple[str, str], Any],
) -> Iterator[float]:
    """Yield the cosine distance between the dense vectors of each key; NaN if one of them is unknown."""
    for namespace, key, _, differs_in in keys:
        first, second = before.get((namespace, key)), after.get((namespace, key))
        if differs_in and not differs_in.startswith("vector"):
            yield 0.0
        elif first is None or second is None or len(first) != len(second):
            yield np.nan
        else:
            first, second = first.astype(np.float64), second.astype(np.float64)
            yield max(
                0.0,
                float(
                    1 - first @ second / np.linalg.norm(first) / np.linalg.norm(second)
                ),
            )


def _new(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the vectors that appeared or have another dense vector."""
    has_moved = frame["differs_in"].str.startswith("vector")
    return frame[(frame["change"] == "appeared") | has_moved]


def _explained(
    changed: pd.DataFrame, before: VectorTables, after: VectorTables
) -> Explanation | None:
    """Explain the changes by metadata fields with few values, if the changed vectors share values."""
    if changed.empty:
        return None

    has_vanished = changed["side"] == "left_only"
    gone = changed.loc[has_vanished, "position"].to_numpy(dtype=np.intp)
    others = changed.loc[~has_vanished, "position_after"].to_numpy(dtype=np.intp)
    fields = few_valued_fields(after)
    is_changed = np.zeros(after.rows + len(gone), dtype=bool)
    is_changed[others] = True
    is_changed[after.rows :] = True
    if len(gone):
        fields.merge(few_valued_fields(before).take(gone))
    table = fields.frame()
    few = fields.several_valued[:_FIELDS]
    if not few:
        return None

    found = explain_change(
        table,
        table[is_changed],
        attributes=few,
        exposure=len(table) / is_changed.sum(),
    )
    # changed vectors are a part of all vectors, and no later events
    return replace(found, compared=("changed vectors", "all vectors"))
