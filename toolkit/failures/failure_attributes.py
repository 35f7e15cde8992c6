"""Read the attributes that failures can have in common.

An attribute is a column (`workflow_url`), a label, a group (`signature`), or a field of a JSON column. For
example, `response header x-region` is a field of the response headers.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from functools import partial
from itertools import chain
from typing import Final

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from toolkit.failures.attribute_values import (
    JSON_FIELDS,
    LABEL,
    categories,
    json_fields,
    labels_of,
    masked_column,
    most_rows_with_json,
)
from toolkit.failures.group_rules import GroupRules
from toolkit.failures.grouping import grouped
from toolkit.failures.ordinary_words import ORDINARY_WORDS
from toolkit.failures.pandas_columns import KINDS
from toolkit.failures.partial_results import FirstRows
from toolkit.failures.selection import (
    NONE,
    opened,
    scanned,
    select_timed,
    timed_only,
    timestamps,
)
from toolkit.failures.signed_failures import grouped_columns
from toolkit.failures.sources import AnyFrame
from toolkit.secrets.redaction import Redactor

WORKFLOW: Final = "workflow_url"
SIGNATURE: Final = "signature"
MENTIONED: Final = "mentioned"
"""What several errors name, for example the host of a third party; only among what failures share."""

_PLAIN: Final = (WORKFLOW, "flow_control_key", "caller_ip", "response_status")
NAMED: Final = (*_PLAIN, SIGNATURE)
"""The attributes that are columns."""

_LEAST: Final = 0.5  # events, for a logarithm of a count of zero
_MESSAGE: Final = 2_000  # characters of a response, at most, in a search for names
# a name, or a host
_WORD: Final = re.compile(r"[A-Za-z][\w-]{2,}(?:\.[A-Za-z][\w-]+)*")
_KEY: Final = re.compile(r'"[\w.-]+"(?=\s*:)')
"""A key of JSON, such as `"error":`. It belongs to the form of a response."""


class FailureAttributes:
    """Failures with a time, oldest first: `when` (ns since 1970), and one column of categories per attribute.

    Every label of every failure is in `label_codes`, and the position of the failure in `labelled`.
    """

    def __init__(self, frame: AnyFrame, *, doing: str) -> None:
        frame = scanned(frame, doing=doing)
        names = set(opened(frame, doing=doing).names)
        wanted = [*NAMED, "labels", LABEL]
        is_large = rows_of_large_frame(frame, doing=doing) is not None
        if not is_large:
            wanted += JSON_FIELDS
        present = [name for name in wanted if name in names]
        selected = select_timed(frame, present, doing=doing)
        if is_large:
            selected = selected.then(partial(_compact, tuple(present)))
        table = selected.whole_table(doing)
        when = timestamps(table, "when_")
        dated = when.notna().to_numpy()
        order = when[dated].sort_values(kind="stable").index.to_numpy()
        self.positions: NDArray[np.int64] = order
        times = when.loc[order].astype("datetime64[ns, UTC]").astype("int64")
        self.when: NDArray[np.int64] = np.asarray(times, dtype=np.int64)
        redactor = Redactor()
        columns: dict[str, pd.Categorical] = {
            name: masked_column(table[name], redactor)
            for name in NAMED
            if name in names
        }
        if SIGNATURE not in names and names.issuperset(grouped_columns(GroupRules())):
            columns[SIGNATURE] = categories(grouped(frame)[1])
        for source, prefix in JSON_FIELDS.items():
            if source in present:
                columns |= dict(json_fields(table[source], prefix, redactor))

        self.columns = _distinct(
            {name: column.take(order) for name, column in columns.items()}
        )
        self.labels = labels_of(table, redactor).iloc[order].to_numpy(dtype=object)
        self.label_codes, self.labelled, self._label_names = _coded(self.labels)
        # also if each workflow has one error, so that no attribute is the error
        self.errors: pd.Categorical | None = None
        if SIGNATURE in columns:
            self.errors = columns[SIGNATURE].take(order)
        self._words: list[set[str]] = []
        if self.errors is not None and "response_body" in names:
            if is_large:
                texts = _first_bodies(frame, self.errors, doing=doing)
            else:
                texts = _bodies_by_error(self.errors, table["response_body"], order)
            self._words = [_words_of(text, redactor) for text in texts]

    def __len__(self) -> int:
        return len(self.when)

    def columns_of(
        self,
        rows: NDArray[np.bool_],
        observed: NDArray[np.float64],
        expected: NDArray[np.float64],
    ) -> dict[str, pd.Categorical]:
        """Return the attributes of some failures; of several labels, the one that rose most counts."""
        columns = {name: column[rows] for name, column in self.columns.items()}
        if rows[self.labelled].any():
            counts = np.zeros((2, len(self)))
            counts[:, rows] = observed, expected
            risen = _risen(self.label_codes, self.labelled, self._label_names, *counts)
            columns[LABEL] = pd.Categorical(risen[rows])

        return columns

    def meets(self, condition: Mapping[str, str]) -> NDArray[np.bool_]:
        """Return which failures meet a condition."""
        is_met = np.ones(len(self), dtype=bool)
        for name, value in condition.items():
            if name == LABEL:
                is_met &= self._has_label(value)
            else:
                is_met &= np.asarray(self.columns[name] == value)

        return is_met

    def _has_label(self, label: str) -> NDArray[np.bool_]:
        """Return which failures have a label, or which have no label for ``(none)``."""
        if label == NONE:
            return np.asarray(np.bincount(self.labelled, minlength=len(self)) == 0)

        is_label = np.asarray(self._label_names == label)
        counts = np.bincount(
            self.labelled[is_label[self.label_codes]], minlength=len(self)
        )
        return np.asarray(counts > 0)

    def most_frequent(self, name: str, rows: NDArray[np.bool_], most: int) -> list[str]:
        """Return the most frequent values of an attribute among some failures."""
        if name not in self.columns:
            return []

        column = self.columns[name]
        counts = np.bincount(column.codes[rows], minlength=1)
        codes = np.argsort(-counts, kind="stable")[:most]

        return [str(column.categories[code]) for code in codes if counts[code]]

    def shared(self, rows: NDArray[np.bool_], least: float) -> dict[str, str]:
        """Return the values that at least this share of some failures have, unless all failures have them."""
        shared = {}
        for name, column in self.columns.items():
            counts = np.bincount(column.codes[rows], minlength=1)
            code = int(counts.argmax())
            value = str(column.categories[code])
            if value == NONE or counts[code] < least * counts.sum():
                continue
            # a workflow or group is worth naming even if nearly all failures have it
            is_usual = (column.codes == code).mean() >= least
            if name in (WORKFLOW, SIGNATURE) or not is_usual:
                shared[name] = value

        label_counts = Counter(chain.from_iterable(self.labels[rows]))
        for label, count in label_counts.most_common(1):
            if count >= least * rows.sum():
                shared[LABEL] = label

        mentioned = self._mentioned(rows, least)
        return shared if mentioned is None else shared | {MENTIONED: mentioned}

    def _mentioned(self, rows: NDArray[np.bool_], least: float) -> str | None:
        """Return the name that several errors of some failures have in common, and few other errors contain.

        For example, `PayDrop declined`, `503 from PayDrop` and `PayDrop: timed out` all name `PayDrop`.
        """
        if not self._words or self.errors is None:
            return None

        codes = self.errors.codes
        inside, outside = (
            np.bincount(codes[part], minlength=len(self._words))
            for part in (rows, ~rows)
        )

        named: Counter[str] = Counter()
        elsewhere: Counter[str] = Counter()
        errors: Counter[str] = Counter()
        for code, words in enumerate(self._words):
            for word in words:
                named[word] += int(inside[code])
                elsewhere[word] += int(outside[code])
                errors[word] += bool(inside[code])

        common = [
            word
            for word, count in named.items()
            if count >= least * rows.sum() and errors[word] > 1
        ]
        rare = [
            word
            for word in common
            if elsewhere[word] <= (1 - least) * max(int(outside.sum()), 1)
        ]
        # a host first, then a name with a capital, then the rarest word
        rare.sort(
            key=lambda word: (
                "." not in word,
                not word[0].isupper(),
                elsewhere[word],
                word,
            )
        )

        return rare[0] if rare else None


def _compact(names: tuple[str, ...], table: pa.Table) -> pa.Table:
    """Return the times and attributes of a batch, with one number per row for each repeated string."""
    columns = {"when_": table["when_"]}
    for name in names:
        column = table[name]
        if KINDS.get(name) != "numbers":
            column = column.cast(pa.string()).dictionary_encode()
        columns[name] = column

    return pa.table(columns)


def rows_of_large_frame(frame: AnyFrame, *, doing: str) -> int | None:
    """Return the number of rows of a frame that is too large for attributes of JSON columns.

    The result is None if the frame is in memory, small, or has no stored groups.
    """
    rows = opened(frame, doing=doing)
    if rows.check is None or SIGNATURE not in rows.names:
        return None

    total = int(select_timed(frame, [], doing=doing).count()["count_"][0].as_py())
    return total if total > most_rows_with_json() else None


def _bodies_by_error(
    errors: pd.Categorical, bodies: pa.ChunkedArray, order: NDArray[np.int64]
) -> list[str | None]:
    """Return the first response of each group of errors."""
    texts: list[str | None] = [None for _ in errors.categories]
    for code, first in zip(*np.unique(errors.codes, return_index=True), strict=True):
        texts[code] = bodies[int(order[first])].as_py()

    return texts


def _first_bodies(
    frame: AnyFrame, errors: pd.Categorical, *, doing: str
) -> list[str | None]:
    """Return the first response of each stored group of errors; one row per group is read."""
    rows = select_timed(frame, [SIGNATURE, "response_body"], doing=doing)
    earliest = FirstRows((("when_", "ascending"),), 1, (SIGNATURE,))
    first = rows.then(timed_only).reduce(earliest)
    ids, bodies = (first[name].to_pylist() for name in (SIGNATURE, "response_body"))
    body_of = dict(zip(ids, bodies, strict=True))

    return [body_of.get(name) for name in errors.categories]


def _words_of(text: object, redactor: Redactor) -> set[str]:
    """Return the words of a response that can be names; none if it is no text."""
    if not isinstance(text, str):
        return set()

    values = _KEY.sub("", redactor.text(text[:_MESSAGE]))
    return {
        word for word in _WORD.findall(values) if word.lower() not in ORDINARY_WORDS
    }


def rising_values(
    values: NDArray[np.object_],
    observed: NDArray[np.float64],
    expected: NDArray[np.float64],
) -> NDArray[np.object_]:
    """Return one of the values of each row, for example of the labels: the one that rose most.

    `observed` and `expected` are the events that each row stands for.
    """
    return _risen(*_coded(values), observed, expected)


def _coded(
    labels: NDArray[np.object_],
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.object_]]:
    """Return a code for every label of every row, the row of each code, and the names of the codes.

    For example, [("a", "b"), (), ("b",)] gives the codes [0, 1, 1], rows [0, 0, 2] and names ["a", "b"].
    """
    all_labels = np.array(list(chain.from_iterable(labels)), dtype=object)
    codes, names = pd.factorize(all_labels, sort=True)
    rows = np.repeat(np.arange(len(labels)), list(map(len, labels)))

    return codes.astype(np.int64), rows, np.asarray(names, dtype=object)


def _risen(
    codes: NDArray[np.int64],
    labelled: NDArray[np.int64],
    names: NDArray[np.object_],
    observed: NDArray[np.float64],
    expected: NDArray[np.float64],
) -> NDArray[np.object_]:
    """Return the label of each row that rose most compared with all other rows.

    The measure is the likelihood ratio of two Poisson counts: with the label and without it. A label that
    all rows have cannot explain a rise. For example, 100 failures, 20 expected: "eu" with 60 of them and 2
    expected rose more than "canary" with 30 and 6 expected, because 30 is what an equal rise gives.
    """
    seen = np.bincount(codes, observed[labelled], len(names))
    usual = np.bincount(codes, expected[labelled], len(names))
    total = observed.sum()
    # the counts if all labels had risen equally
    alike = usual * total / max(expected.sum(), _LEAST)
    likelihood = np.zeros(len(names))

    for count, equal in ((seen, alike), (total - seen, total - alike)):
        likelihood += count * np.log(
            np.maximum(count, _LEAST) / np.maximum(equal, _LEAST)
        )

    evidence = np.where(seen > alike, likelihood, seen - alike)
    order = np.argsort(-evidence, kind="stable")  # equal labels are ordered by name
    rank_of_row = np.full(len(observed), len(order))
    # `argsort` of an order is the rank of each label. The best rank among the labels of a row wins; rows
    # without labels keep the last one, which is ``(none)``.
    np.minimum.at(rank_of_row, labelled, np.argsort(order)[codes])
    risen: NDArray[np.object_] = np.array([*names[order], NONE], dtype=object)[
        rank_of_row
    ]

    return risen


def _distinct(columns: Mapping[str, pd.Categorical]) -> dict[str, pd.Categorical]:
    """Return the attributes with several values that divide the rows in different ways."""
    # `factorize` numbers values by their first row. Two attributes that divide the rows in the same way have
    # the same numbers, for example a region and the name of it; the first one is kept.
    kept: dict[bytes, tuple[str, pd.Categorical]] = {}
    for name, column in columns.items():
        codes, values = pd.factorize(column.codes)
        if len(values) > 1:
            kept.setdefault(codes.tobytes(), (name, column))

    return dict(kept.values())
