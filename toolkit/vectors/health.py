"""Audit the health of a vector index: find defects in vectors, text, metadata and ids."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from toolkit.base.arguments import choice, whole
from toolkit.drawing.result_tables import frame_table
from toolkit.drawing.wording import counted, percent
from toolkit.secrets.redaction import Redactor, visible
from toolkit.vectors.exact_comparison import (
    NEAR,
    SIMILARITIES,
    Neighbourhoods,
    neighbourhoods,
    unit_rows,
)
from toolkit.vectors.rounding import sketch_distances
from toolkit.vectors.row_summaries import IDS, FieldCounts
from toolkit.vectors.similar_texts import text_agreement
from toolkit.vectors.vector_batches import Positions
from toolkit.vectors.vector_findings import (
    Finding,
    findings_frame,
    of_rows,
    with_rows_that_lack_fields,
)
from toolkit.vectors.vector_rows import (
    IndexRows,
    VectorSource,
    VectorTables,
    chosen_rows,
    read_rows,
    repeated,
    sketches_of,
    typed_tuples,
    with_default_named,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from toolkit.drawing.style import ThemeName

_DOT_PRODUCT: Final = "DOT_PRODUCT"
_SAMPLE: Final = 100_000
_IDS_AT_ONCE: Final = 100_000
_LISTED: Final = 20  # dimensions named in a detail
# largest difference between 1 and a length that counts as normalised
_UNIT: Final = 1e-3
_MOSTLY: Final = 0.9
_HALF: Final = 0.5
# share of the rows with metadata that have a field expected in all of them
_FIELD_USUAL: Final = 0.95
# a correct name occurs at least this many times as often as a misspelt one
_USUAL_TIMES: Final = 20
# zeros at the end of a vector that are no chance
_SHORTEST_PADDING: Final = 8
_PADDED_SHARE: Final = 1 / 8
_FEW: Final = 10  # with fewer rows, dimensions and fields are not judged
_RANK_ROWS: Final = 200


_NAMED_KINDS: Final = 3  # kinds of defects in the verdict; further ones are counted


@dataclass(frozen=True, repr=False, eq=False)
class VectorAudit:
    """The health of a vector index; made by `audit_vectors`.

    Attributes
    ----------
    frame : pandas.DataFrame
        One row per finding, the worst first: `namespace`, `finding`, `severity` (``error``, ``warning`` or
        ``info``), `count` (Int64, rows, or dimensions), `ids` (tuple, at most 10,000 ids), `groups` (tuple of
        tuples: the ids that are alike, for example copies of one row), `detail`, `effect` (on search),
        `advice`, `call` (the code that acts on the rows, or fetches them; `audit` is this result).
    facts : pandas.DataFrame
        One row per namespace: `namespace`, `rows`, `usable` (rows with a finite vector that is not zero),
        `dimension`, `compared` (vectors whose neighbours were compared; all Int64), `effective_rank`,
        `random_pair` and `nearest_pair` (float64, the median cosine of two random vectors, and of a vector
        and the nearest neighbour).
    similarities : pandas.DataFrame
        Cosines of at most 2,000 random pairs and 2,000 nearest neighbours per namespace: `pair` (the kind of
        pair), `score` (float64).
    sample : int or None
        Number of vectors drawn at random to be compared with each other; None if all were compared.
    dense, sparse : int
        Number of rows with a dense vector, and with a sparse one. Sparse vectors are only checked for
        equality.
    not_checked : tuple of str
        Parts that no row has, for example because they were not loaded: ``ids``, ``texts``, ``metadata``.

    Examples
    --------
    >>> audit_vectors(np.eye(40, 8) + 1).verdict
    '1 kind of defect in 40 rows in 1 namespace: duplicate.'
    """

    frame: pd.DataFrame
    facts: pd.DataFrame
    similarities: pd.DataFrame
    sample: int | None
    dense: int
    sparse: int
    not_checked: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        """Return one sentence with the kinds of defects."""
        number = int(self.facts["rows"].sum())
        if not number:
            return "There are no rows to judge."

        rows = f"{counted(number, 'row')} in {counted(len(self.facts), 'namespace')}{self._basis()}"
        serious = self.frame[self.frame["severity"] != "info"]
        if serious.empty:
            return f"Nothing wrong was found in {rows}."

        kinds = list(dict.fromkeys(serious["finding"]))
        named = kinds[:_NAMED_KINDS]
        if len(kinds) > _NAMED_KINDS:
            named.append(f"{len(kinds) - _NAMED_KINDS} more")
        return f"{counted(len(kinds), 'kind')} of defect in {rows}: {'; '.join(named)}."

    def surplus_ids(self, namespace: str = "") -> list[str]:
        """Return all but the first id of each group of duplicates, to delete them and keep one of each."""
        is_duplicate = (self.frame["finding"] == "duplicate") & (
            self.frame["namespace"] == namespace
        )
        return [
            key
            for groups in self.frame.loc[is_duplicate, "groups"]
            for group in groups
            for key in group[1:]
        ]

    def _basis(self) -> str:
        """Return what was compared, if not all dense vectors were."""
        if not self.dense:
            vector = "vector"
            if self.sparse:
                vector = "dense vector"
            return f", by ids, texts and metadata alone: no row has a {vector}"

        if self.sample:
            return f" (neighbours of {self.sample:,} of them, drawn at random)"

        return ""

    def __repr__(self) -> str:
        shown = with_default_named(
            self.frame[["severity", "finding", "count", "namespace", "detail"]]
        )
        if shown.empty:
            return visible(self.verdict)

        return visible(
            f"{self.verdict}\n{shown.to_string(index=False, justify='left')}"
        )

    def _repr_html_(self) -> str:
        findings = self.frame.drop(columns="groups").assign(
            ids=[", ".join(ids[:3]) for ids in self.frame["ids"]]
        )
        html = ""
        if not findings.empty:
            html = frame_table(self.verdict, with_default_named(findings))
        return html + frame_table(
            "The namespaces:" if html else self.verdict, with_default_named(self.facts)
        )

    def plot(self, *, ax: Axes | None = None, theme: ThemeName = "auto") -> Axes:
        """Draw the cosines of random pairs and of nearest neighbours, by namespace."""
        from toolkit.vectors.score_plots import draw_similarities  # noqa: PLC0415 - matplotlib is slow to import

        title = "Cosines of nearest and of random pairs"
        return draw_similarities(self.similarities, title, "cosine", ax=ax, theme=theme)


def audit_vectors(
    vectors: VectorSource, *, sample: int | None = None, similarity: str | None = None
) -> VectorAudit:
    """Find defects in the vectors, text, metadata and ids of an index.

    Parameters
    ----------
    vectors : pandas.DataFrame, pyarrow.Table, pyarrow.dataset.Dataset, path or numpy.ndarray
        A frame of `load_vectors`, the path of a snapshot, a value of `open_snapshot`, or a matrix with one
        row per vector. Missing columns are not checked. If no row has a dense vector, for example because
        vectors were not loaded, the verdict reports that.
    sample : int, optional
        Number of vectors to compare with each other, drawn at random. If omitted, all up to 100,000. Defects
        of single rows, for example a vector of zeros, and equal vectors, text, ids and metadata are always
        checked in all rows.
    similarity : {"COSINE", "EUCLIDEAN", "DOT_PRODUCT"}, optional
        Similarity function of the index, ``describe_index(service).similarity``. With ``"DOT_PRODUCT"``, hubs
        are also searched by dot product, which long vectors win. Default: ``"COSINE"``.

    Returns
    -------
    VectorAudit

    Raises
    ------
    InputError
        If the input has no column of vectors, or `similarity` is unknown.
    SnapshotError
        If a path contains no snapshot.

    Notes
    -----
    An index has each id once per namespace. If the rows contain an id several times, for example because two
    ranges overlap, that is a finding, and only the first row of each id is compared with others.

    Vectors are compared by cosine, and vectors of one text that differ by rounding alone count as equal. Near
    duplicates are found exactly. An outlier is far even from the nearest vector: farther than the vectors
    around it are from their 20th neighbour, by more than is expected by chance for any vector of an index of
    this size (1 %, from the tail of this ratio in the index), and in an unusual direction (2.75 standard
    deviations of the Mahalanobis distance), or three times as far beyond the tail. Outliers are not searched
    in indexes of fewer than 300 different vectors. A hub is among the 10 nearest neighbours of at least 5 %
    of 2,000 others. In larger indexes, outliers are searched with a sample of 4,000 vectors, and hubs with a
    sample of 2,000.

    Vectors of two models with one dimension are found by pairs of rows whose text shares most words, among at
    most 4,000 rows per namespace. Of 40 mixtures of two real models with a share of 5 %, 35 were found, with
    160 such pairs. If text is missing, or little is alike, no mixture is found.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> matrix = rng.normal(size=(500, 32)).astype("float32")
    >>> matrix[7] = 0
    >>> audit_vectors(matrix).frame[["finding", "severity", "count"]]
              finding severity  count
    0     zero vector    error      1
    1  lengths differ     info    499
    """
    size = _SAMPLE if sample is None else whole("sample", sample)
    similarity = choice("similarity", similarity, SIMILARITIES, optional=True)
    tables = VectorTables(vectors, doing="auditing vectors")
    index = read_rows(tables, sample=size, with_sketches=False)
    unrounded = _without_rounding(index, tables)
    vectors_of_rows = index.rows["vector"].to_numpy()
    # Two ranges of an index that overlap have rows in common. Such a row is no copy of another one.
    is_again = _ids_again(index)

    compared: _Compared = {}
    for name, (positions, matrix) in index.sampled.items():
        is_first = ~is_again[positions]
        if not is_first.all():
            positions, matrix = positions[is_first], matrix[is_first]  # noqa: PLW2901 - one row per id
        if len(matrix):
            # Equal vectors are a finding of their own. As neighbours they would hide near duplicates and
            # outliers, so each vector is compared once.
            distinct = np.sort(
                np.unique(vectors_of_rows[positions], return_index=True)[1]
            )
            by_dot = similarity == _DOT_PRODUCT
            nearest = neighbourhoods(matrix, distinct, by_dot=by_dot)
            compared[name] = positions, nearest

    findings = [
        (name, finding)
        for name in index.rows["namespace"].cat.categories
        for finding in _of_namespace(name, index, is_again, unrounded, compared)
    ]
    findings = with_rows_that_lack_fields(findings, tables)

    return VectorAudit(
        findings_frame(findings),
        _facts(index, compared),
        _similarities(compared),
        sum(len(positions) for positions, _ in compared.values())
        if index.is_sample
        else None,
        dense=int((index.rows["dimension"] > 0).sum()),
        sparse=int((index.rows["sparse"] != 0).sum()),
        not_checked=tuple(_not_checked(index)),
    )


_Compared: TypeAlias = dict[str, tuple[Positions, Neighbourhoods]]


def _of_namespace(
    name: str,
    index: IndexRows,
    is_again: npt.NDArray[np.bool_],
    unrounded: pd.Series[Any],
    compared: _Compared,
) -> Iterator[Finding]:
    is_inside = index.rows["namespace"] == name
    # the fields of metadata were counted in all rows
    with_metadata = int((is_inside & (index.rows["metadata"] != 0)).sum())
    again = index.rows["id"][is_inside & is_again]
    yield from of_rows("id repeated", again.drop_duplicates(), rows=len(again))
    rows = chosen_rows(index.rows, is_inside & ~is_again)
    ids, has_vector, has_text = rows["id"], rows["dimension"] > 0, rows["text"] != 0
    has_any = has_vector | (rows["sparse"] != 0)
    usual = index.usual.get(name, 0)
    other = has_vector & (rows["dimension"] != usual)
    sizes = ", ".join(map(str, sorted(set(rows["dimension"][other]))))
    yield from of_rows("several dimensions", ids[other], f"{sizes} next to {usual}")
    yield from of_rows("not finite", ids[has_vector & ~rows["finite"]])
    yield from of_rows("zero vector", ids[rows["finite"] & (rows["norm"] == 0)])
    if index.has_vectors:
        yield from of_rows("without vector", ids[~has_any])
    if has_text.mean() >= _HALF:
        yield from of_rows("without text", ids[has_any & ~has_text])
    usable = chosen_rows(rows, rows["usable"])
    yield from _padded(usable[usable["dimension"] == usual], usual)
    yield from _lengths(usable)
    yield from _dimensions(index.constant.get(name, {}), usual, len(usable))
    yield from _duplicates(_rows_with_copies(usable, unrounded[usable.index]))
    if name in compared:
        yield from _models(index, name)
        yield from _neighbours(index.rows["id"], *compared[name], usual)
        yield from _dot_hubs(index.rows, *compared[name])

    if "id" in index.columns:
        yield from _alike_ids(ids)

    has_metadata = rows["metadata"] != 0
    if has_metadata.mean() >= _HALF:
        yield from of_rows("without metadata", ids[~has_metadata])
    yield from of_rows("metadata not JSON", ids[rows["unreadable"]])
    yield from _metadata(index.fields.get(name, {}), with_metadata)


def _not_checked(index: IndexRows) -> Iterator[str]:
    """Yield the parts that no row has."""
    if "id" not in index.columns:
        yield "ids"
    for column, part in (("text", "texts"), ("metadata", "metadata")):
        if not (index.rows[column] != 0).any():
            yield part


def _ids_again(index: IndexRows) -> npt.NDArray[np.bool_]:
    """Return which rows have the namespace and id of an earlier row."""
    again = np.zeros(len(index.rows), dtype=bool)
    if "id" not in index.columns:
        return again

    keys = index.rows[["namespace", "id"]]
    candidates = keys[repeated(_hashes(keys["id"])) & (keys["id"] != "").to_numpy()]
    again[candidates.index[candidates.duplicated()]] = True
    return again


def _hashes(
    ids: pd.Series[str], form: Callable[[pd.Series[str]], pd.Series[str]] | None = None
) -> npt.NDArray[np.uint64]:
    """Return the hash of each id, or of a form of it, with little memory."""
    hashes = np.zeros(len(ids), dtype=np.uint64)
    for start in range(0, len(ids), _IDS_AT_ONCE):
        part = ids.iloc[start : start + _IDS_AT_ONCE]
        if form is not None:
            part = form(part)
        texts = part.to_numpy(dtype=object)
        hashes[start : start + len(part)] = pd.util.hash_array(texts, categorize=False)
    return hashes


def _alike_ids(ids: pd.Series[str]) -> Iterator[Finding]:
    """Yield the ids that differ only by case, spaces or forms of characters."""
    # ids with a hash of their own are equal to no other
    candidates = ids[repeated(_hashes(ids, _plain_ids))]
    plain = _plain_ids(candidates)
    alike = plain.duplicated(keep=False) & ~candidates.duplicated(keep=False)
    yield from of_rows("id almost equal", candidates[alike], groups=plain[alike])


def _plain_ids(ids: pd.Series[str]) -> pd.Series[str]:
    # NFKC makes characters equal that look alike, for example full-width and usual
    # letters, or composed and decomposed accents.
    return ids.str.normalize("NFKC").str.casefold().str.split().str.join(" ")


def _rows_with_copies(usable: pd.DataFrame, vectors: pd.Series[Any]) -> pd.DataFrame:
    """Return the rows whose vector or text occurs several times, with these hashes of vectors."""
    has_copy = repeated(vectors.to_numpy()) | repeated(usable["text"].to_numpy())
    return usable[has_copy].assign(vector=vectors[has_copy])


def _without_rounding(index: IndexRows, tables: VectorTables) -> pd.Series[Any]:
    """Return the hash of each vector; vectors of one text that differ by rounding alone have one hash."""
    rows = index.rows
    hashes = rows["vector"].copy()
    is_candidate = rows["usable"] & (rows["text"] != 0)
    with_text = rows[is_candidate & repeated(rows["text"].to_numpy())]
    groups = with_text.groupby(["namespace", "text", "dimension"], observed=True)
    # the first row of each text stands for the others
    first = groups["vector"].transform("first")
    other = with_text.index[with_text["vector"] != first]
    if not len(other):
        return hashes

    positions = pd.Series(with_text.index, index=with_text.index)
    keys = [with_text[name] for name in ("namespace", "text", "dimension")]
    firsts = positions.groupby(keys, observed=True).transform("first")[other]
    hashes_of_firsts = first[other].to_numpy()
    sketches = sketches_of(
        tables, np.concatenate([hashes[other].to_numpy(), hashes_of_firsts])
    )
    distances = sketch_distances(sketches[: len(other)], sketches[len(other) :])
    # The precision of the copies counts, even if most vectors of the index are exact.
    tolerances = {
        name: max(
            index.precision(name, other.to_numpy()).tolerance,
            index.precision(name, firsts.to_numpy()).tolerance,
        )
        for name in index.sampled
    }
    allowed = rows["namespace"][other].astype("str").map(tolerances).fillna(0.0)
    is_rounded = distances <= allowed.to_numpy(dtype=np.float64)
    hashes[other[is_rounded]] = hashes_of_firsts[is_rounded]

    return hashes


def _models(index: IndexRows, name: str) -> Iterator[Finding]:
    """Yield the rows of another model, or if the vectors cannot be told apart, the rows that show it.

    If hardly any vector is similar to that of almost equal text, vectors are of other rows, or not of text.
    """
    positions, matrix = index.sampled[name]
    texts = index.texts.of(name)
    rows = np.fromiter(texts, dtype=np.intp)
    # only rows of the usual dimension have a vector here
    rows = rows[np.isin(rows, positions)]
    unit = unit_rows(matrix[np.searchsorted(positions, rows)])
    found = text_agreement(unit, [texts[row] for row in rows.tolist()])
    ids = index.rows["id"]
    pairs = f"{found.unrelated_pairs:,} of {found.pairs:,} pairs with almost equal text"

    if not found.follows_text:
        yield from of_rows("text unrelated", ids.iloc[rows[found.unrelated]], pairs)
    elif len(found.smaller):
        detail = (
            f"{pairs}; the vectors are of two groups, and these are the smaller one"
        )
        if len(rows) < len(positions):
            detail += f", among {len(rows):,} rows drawn at random"
        yield from of_rows("several models", ids.iloc[rows[found.smaller]], detail)
    else:
        yield from of_rows("several models", ids.iloc[rows[found.unrelated]], pairs)


def _padded(usable: pd.DataFrame, usual: int) -> Iterator[Finding]:
    """Yield the rows that end with one number of zeros, if nearly all others end with another number.

    For example, a model of 384 numbers was followed by one of 1,024, and its vectors were filled with 640
    zeros. Vectors that have zeros by nature, such as counts of words, end with all numbers of zeros.
    """
    padding = usable["padding"]
    is_long = padding >= max(_SHORTEST_PADDING, usual * _PADDED_SHARE)
    if not is_long.any() or is_long.all():
        return

    # vectors of one smaller model lack the same number of dimensions
    length = padding[is_long].mode()[0]
    is_padded = padding == length
    has_one_length = is_padded[is_long].mean() >= _MOSTLY
    others_are_full = (padding[~is_long] == 0).mean() >= _MOSTLY
    if has_one_length and others_are_full:
        detail = f"{length} zeros at the end of {usual} numbers"
        yield from of_rows("padded with zeros", usable["id"][is_padded], detail)


def _lengths(usable: pd.DataFrame) -> Iterator[Finding]:
    norms = usable["norm"]
    is_other = (norms - 1).abs() > _UNIT
    if (~is_other).mean() >= _MOSTLY:
        others = norms[is_other]
        detail = f"lengths {others.min():.3g} to {others.max():.3g}"
        yield from of_rows("not normalised", usable["id"][is_other], detail)
    elif norms.std() > 0.01 * norms.mean():
        low, high = norms.quantile([0.05, 0.95])
        yield from of_rows(
            "lengths differ",
            usable["id"],
            f"nine in ten are {low:.3g} to {high:.3g} long",
        )


def _dimensions(
    constant: dict[int, float], usual: int, usable: int
) -> Iterator[Finding]:
    if usable < _FEW or len(constant) == usual:
        # few rows, or copies of one row, show nothing
        return

    for finding, chosen in (
        (
            "dead dimension",
            [position for position, value in constant.items() if value == 0],
        ),
        (
            "constant dimension",
            [position for position, value in constant.items() if value],
        ),
    ):
        if chosen:
            listed = list(map(str, chosen[:_LISTED]))
            if len(chosen) > _LISTED:
                listed.append("…")
            detail = f"of {usual}, counted from 0: {', '.join(listed)}"
            yield Finding(finding, len(chosen), [], detail)


def _duplicates(usable: pd.DataFrame) -> Iterator[Finding]:
    with_text = usable[usable["text"] != 0]
    # In these rows, numbers stand for vectors and data: equal numbers are equal values.
    texts = with_text.groupby("vector")["text"].transform("nunique")
    mixed = (texts > 1).reindex(usable.index, fill_value=False)
    equal = usable[usable.duplicated(["vector", "sparse"], keep=False) & ~mixed]
    detail = f"{counted(equal['vector'].nunique(), 'vector')} in {len(equal):,} rows"
    copies = equal.groupby(["vector", "sparse"], sort=False).ngroup()
    yield from of_rows("duplicate", equal["id"], detail, groups=copies)
    sizes = usable["vector"][mixed].value_counts()
    alike = usable[mixed].assign(size=lambda part: part["vector"].map(sizes))
    alike = alike.sort_values(
        ["size", "vector"], ascending=[False, True], kind="stable"
    )
    detail = f"{counted(len(sizes), 'vector')} in {len(alike):,} rows, one of them in {sizes.max():,}"
    if len(alike.drop_duplicates(["vector", "sparse"])) > len(sizes):
        detail += "; sparse vectors differ"
    yield from of_rows(
        "same vector, other text", alike["id"], detail, groups=alike["vector"]
    )
    pairs = with_text.drop_duplicates(["text", "vector", "sparse"])[
        "text"
    ].value_counts()
    several = with_text[with_text["text"].map(pairs) > 1]
    yield from of_rows("same text, other vector", several["id"], groups=several["text"])


def _neighbours(
    ids: pd.Series[str], positions: Positions, nearest: Neighbourhoods, dimension: int
) -> Iterator[Finding]:
    near = ids.iloc[positions[nearest.near_duplicates]]
    groups = pd.Series(nearest.near_groups, index=near.index)
    yield from of_rows("near duplicate", near, groups=groups)
    yield from of_rows("outlier", ids.iloc[positions[nearest.outliers]])
    detail = (
        f"the largest hub is a neighbour of {percent(nearest.hub_share)} of the vectors"
    )
    yield from of_rows("hub", ids.iloc[positions[nearest.hubs]], detail)
    if _is_nearly_one_vector(nearest, len(positions)):
        detail = f"most pairs have a cosine of {NEAR} or more"
        yield Finding("few directions", len(positions), [], detail)
    elif len(positions) >= _RANK_ROWS and nearest.effective_rank < min(
        8, dimension / 8
    ):
        detail = f"about {nearest.effective_rank:.1f} of {dimension}"
        yield Finding("few directions", len(positions), [], detail)


def _is_nearly_one_vector(nearest: Neighbourhoods, rows: int) -> bool:
    """Return whether most rows are near duplicates of each other. Equal vectors have their own finding."""
    if rows < _FEW or len(nearest.near_duplicates) < _HALF * rows:
        return False
    return bool(np.median(nearest.pairs) >= NEAR)


def _dot_hubs(
    rows: pd.DataFrame, positions: Positions, nearest: Neighbourhoods
) -> Iterator[Finding]:
    """Yield the hubs that only a search by dot product has, because they are long."""
    hubs = positions[nearest.dot_hubs]
    if not len(hubs):
        return

    norms = rows["norm"].to_numpy()
    ratio = np.median(norms[hubs]) / np.median(norms[positions])
    detail = (
        f"the largest is a neighbour of {percent(nearest.dot_hub_share)} of the vectors; at the median, they "
        f"are {ratio:.3g} times as long as all"
    )
    yield from of_rows("hub by length", rows["id"].iloc[hubs], detail)


def _metadata(fields: dict[str, FieldCounts], rows: int) -> Iterator[Finding]:
    if rows < _FEW:
        return

    redactor = Redactor()
    totals = {name: item.counts.total() for name, item in fields.items()}
    for name, item in sorted(fields.items()):
        shown, total = visible(redactor.text(name))[:80], totals[name]
        if _FIELD_USUAL * rows <= total < rows:
            yield Finding("field missing", rows - total, [], shown, field=name)
        # The most frequent type counts as the intended one.
        if len(item.counts) > 1:
            *rare, common = sorted(
                item.counts, key=lambda kind: (item.counts[kind], kind)
            )
            ids = [key for kind in rare for key in item.ids[kind]]
            detail = f"{shown}: {', '.join(rare)} next to {common}"
            count = total - item.counts[common]
            yield Finding(
                "field of several types", count, ids[:IDS], detail, field=name
            )

        usual = [
            other for other, times in totals.items() if times >= _USUAL_TIMES * total
        ]
        if alike := get_close_matches(name, usual, n=1, cutoff=0.8):
            ids = [key for kind in item.counts for key in item.ids[kind]]
            detail = f"{shown} next to {visible(alike[0])[:80]}"
            yield Finding("field rare and alike", total, ids[:IDS], detail, field=name)


def _similarities(compared: _Compared) -> pd.DataFrame:
    rows = []
    for name, (_, nearest) in compared.items():
        place = ""
        if len(compared) > 1:
            place = f" in {name or '(default)'}"
        for pair, scores in (
            ("random pairs", nearest.pairs),
            ("nearest neighbours", nearest.nearest),
        ):
            rows += [(pair + place, score) for score in scores[:2000].tolist()]

    return typed_tuples(rows, pair="str", score="float64")


def _facts(index: IndexRows, compared: _Compared) -> pd.DataFrame:
    rows = []
    by_namespace = index.rows.groupby("namespace", observed=False)["usable"]
    for name, number, usable in by_namespace.agg(["size", "sum"]).itertuples():
        compared_rows, measures = 0, [np.nan] * 3
        if str(name) in compared:
            positions, nearest = compared[str(name)]
            medians = (
                pd.Series(scores).median()
                for scores in (nearest.pairs, nearest.nearest)
            )
            compared_rows, measures = len(positions), [nearest.effective_rank, *medians]

        usual = index.usual.get(str(name))
        rows.append(
            (
                name,
                number,
                int(usable),
                usual,
                compared_rows,
                *measures,
            )
        )

    return typed_tuples(
        rows, namespace="str", rows="Int64", usable="Int64", dimension="Int64", compared="Int64",
        effective_rank="float64", random_pair="float64", nearest_pair="float64",
    )  # fmt: skip
