"""Read attributes that failures can have in common, and select the failures that meet a condition.

An attribute is a column (`workflow_url`), a label, a group (`signature`), or a field of a JSON column. For
example, ``{"response header x-region": "eu"}`` is a condition on a field of the response headers.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from toolkit.base.arguments import nearest, shown
from toolkit.base.errors import InputError, UnexpectedResultWarning
from toolkit.base.times import Time, parse_time
from toolkit.drawing.wording import value_text
from toolkit.failures.group_rules import GroupRules
from toolkit.failures.grouping import grouped, grouped_columns
from toolkit.failures.selection import NONE, opened, scanned, select_timed, timestamps
from toolkit.failures.sources import AnyFrame, SelectedRows
from toolkit.secrets.redaction import Redactor
from toolkit.tables.frames import to_frame

WORKFLOW: Final = "workflow_url"
SIGNATURE: Final = "signature"
LABEL: Final = "label"
MENTIONED: Final = "mentioned"
"""What several errors name, for example the host of a third party; only among what failures share."""

_PLAIN: Final = (WORKFLOW, "flow_control_key", "caller_ip", "response_status")
NAMED: Final = (*_PLAIN, SIGNATURE)
"""The attributes that are columns."""

JSON_FIELDS: Final = {
    "headers": "header",
    "response_headers": "response header",
    "body": "body",
    "response_body": "response body",
    "extra": "extra",
}
"""Columns of JSON objects, and the first words of the attributes that are their fields."""

_READ: Final = 100_000  # rows; if a frame has more, JSON columns are not read
_LONGEST: Final = 20_000  # characters of a JSON value
_VALUES: Final = 40  # different values, at most, of a field that is an attribute
_PRESENT: Final = 0.02  # of the rows, at least, have a field that is an attribute
_FIELDS: Final = 12  # fields that are kept, the most frequent first
_CUT: Final = 200  # characters of a value
_LEAST: Final = 0.5  # events, for a logarithm of a count of zero
_MESSAGE: Final = 2_000  # characters of a response, at most, in a search for names
_WORD: Final = re.compile(
    r"[A-Za-z][\w-]{2,}(?:\.[A-Za-z][\w-]+)*"
)  # a name, or a host
_SELECTING: Final = "selecting failures"
_MET: Final = "met_"


class FailureAttributes:
    """Failures with a time, oldest first: `when` (ns since 1970), and one column of categories per attribute.

    Every label of every failure is in `label_codes`, and the position of the failure in `labelled`.
    """

    def __init__(self, frame: AnyFrame, *, doing: str) -> None:
        frame = scanned(frame, doing=doing)
        names = set(opened(frame, doing=doing).names)
        present = [
            name for name in (*NAMED, "labels", LABEL, *JSON_FIELDS) if name in names
        ]
        table = select_timed(frame, present, doing=doing).table()
        when = timestamps(table, "when_")
        dated = when.notna().to_numpy()
        order = when[dated].sort_values(kind="stable").index.to_numpy()
        self.positions: NDArray[np.int64] = order
        times = when.loc[order].astype("datetime64[ns, UTC]").astype("int64")
        self.when: NDArray[np.int64] = np.asarray(times, dtype=np.int64)
        redactor = Redactor()
        columns: dict[str, pd.Categorical] = {
            name: _category(table[name], redactor) for name in NAMED if name in names
        }
        if SIGNATURE not in names and names.issuperset(grouped_columns(GroupRules())):
            columns[SIGNATURE] = _categories(grouped(frame)[1])
        for source, prefix in JSON_FIELDS.items():
            if source in names:
                columns |= dict(json_fields(table[source], prefix, redactor))
        self.columns = _distinct(
            {name: column.take(order) for name, column in columns.items()}
        )
        self.labels = labels_of(table, redactor).iloc[order].to_numpy(dtype=object)
        self.label_codes, self.labelled, self._label_names = _coded(self.labels)
        bodies = table["response_body"] if "response_body" in names else None
        self._words = _words_of_errors(
            self.columns.get(SIGNATURE), bodies, order, redactor
        )

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
        if not self._words:
            return None
        codes = self.columns[SIGNATURE].codes
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


def _words_of_errors(
    errors: pd.Categorical | None,
    bodies: pa.ChunkedArray | None,
    order: NDArray[np.int64],
    redactor: Redactor,
) -> list[set[str]]:
    """Return the words of one response of each group of errors."""
    if errors is None or bodies is None:
        return []
    words: list[set[str]] = [set() for _ in errors.categories]
    for code, first in zip(*np.unique(errors.codes, return_index=True), strict=True):
        text = bodies[int(order[first])].as_py()
        if isinstance(text, str):
            words[code] = set(_WORD.findall(redactor.text(text[:_MESSAGE])))
    return words


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


def _columns_of(name: str, names: Sequence[str]) -> list[str]:
    """Return the columns among these names that an attribute is read from."""
    candidates = [
        column
        for column, prefix in JSON_FIELDS.items()
        if name.startswith(f"{prefix} ")
    ]
    if name in names:
        candidates = [name]
    if name == LABEL:
        candidates = ["labels", LABEL]
    columns = [column for column in candidates if column in names]
    if not columns:
        raise InputError(
            _SELECTING,
            got=f"{shown(name)} in condition",
            expected="an attribute of the failures",
            next_step=nearest(
                name,
                [*names, LABEL, SIGNATURE, *JSON_FIELDS.values()],
                what="They have",
            ),
        )
    return columns


class _Value(NamedTuple):
    """A value of an attribute: the forms that a condition may have, and the forms that may be shown."""

    stated: frozenset[str]
    shown: frozenset[str]

    @classmethod
    def masked(cls, *shown: str) -> _Value:
        """Return a value that a condition names by the masked form only."""
        return cls(frozenset(shown), frozenset(shown))


def _values(table: pa.Table, name: str) -> tuple[list[_Value], NDArray[np.int64]]:
    """Return the distinct values of an attribute, and the number of the value of each row."""
    redactor = Redactor()
    if name == LABEL and "labels" in table.column_names:
        codes, labels = pd.factorize(labels_of(table, redactor))
        return [_Value.masked(*(own or [NONE])) for own in labels], codes.astype(
            np.int64
        )
    if name in table.column_names:
        texts = column_texts(table[name].to_pandas(integer_object_nulls=True))
        return [
            _value(text, redactor) for text in texts.categories
        ], texts.codes.astype(np.int64)
    (column,) = _columns_of(name, table.column_names)
    objects = np.array(table[column].to_pylist(), dtype=object)
    codes, distinct = pd.factorize(objects, use_na_sentinel=False)
    field = name.removeprefix(f"{JSON_FIELDS[column]} ")
    return [_member(json, field, redactor) for json in distinct], codes.astype(np.int64)


def _value(text: str, redactor: Redactor) -> _Value:
    """Return a value of a column: as it is, masked and cut, and "500" for "500.0"."""
    masked = frozenset({_text(text, redactor) or NONE})
    # pandas turns a column of whole numbers with missing values into floats, so 500 may be shown as 500.0.
    whole_number = re.sub(r"\A(-?\d+)\.0\Z", r"\1", text)
    return _Value(masked | {text, whole_number}, masked)


def _member(json: object, field: str, redactor: Redactor) -> _Value:
    """Return the value of a field of a JSON object, ``(none)`` if it has no such field."""
    members = dict(_scalars(_object(json)))
    if field not in members:
        return _Value.masked(NONE)
    masked = frozenset({redactor.header(field, redactor.text(members[field]))[:_CUT]})
    return _Value(masked | {members[field]}, masked)


def column_texts(column: pd.Series) -> pd.Categorical:
    """Return any values as categories of strings, missing and empty values as ``(none)``."""
    try:
        codes, values = pd.factorize(column)
    except TypeError:  # lists and maps have no hash
        codes, values = pd.factorize(column.map(str, na_action="ignore"))
    names = [str(value) or NONE for value in values]
    return pd.Categorical(np.array([*names, NONE], dtype=object)[codes])  # -1: missing


def _category(column: pa.ChunkedArray, redactor: Redactor) -> pd.Categorical:
    """Return the values of a column as masked strings, numbers without a fraction."""
    encoded = column.combine_chunks().dictionary_encode()
    names = [
        NONE if value in (None, "") else _text(value, redactor)
        for value in encoded.dictionary.to_pylist()
    ]
    names.append(NONE)
    missing = len(names) - 1
    codes = encoded.indices.fill_null(missing).to_pylist()
    return _categories([names[code] for code in codes])


def _categories(names: list[str]) -> pd.Categorical:
    """Return a column of categories, sorted by name, with ``(none)`` among them."""
    return pd.Categorical(np.array([NONE, *names], dtype=object))[1:]


def _text(value: object, redactor: Redactor) -> str:
    return redactor.text(value_text(value))[:_CUT]


def labels_of(table: pa.Table, redactor: Redactor) -> pd.Series[Any]:
    """Return the labels of each row as a tuple of masked strings."""
    labels_of_pair: dict[tuple[str | None, str | None], tuple[str, ...]] = {}
    rows = []
    for pair in zip(_column(table, "labels"), _column(table, LABEL), strict=True):
        if pair not in labels_of_pair:
            several, single = pair
            labels = [
                label
                for label in [*_list(several), single]
                if isinstance(label, str) and label
            ]
            labels_of_pair[pair] = tuple(
                dict.fromkeys(_text(label, redactor) for label in labels)
            )
        rows.append(labels_of_pair[pair])
    return pd.Series(rows, dtype=object)


def _column(table: pa.Table, name: str) -> list[Any]:
    """Return the values of a column, missing ones if the table does not have it."""
    if name in table.column_names:
        return list(table[name].to_pylist())
    return [None for _ in range(table.num_rows)]


def json_fields(
    column: pa.ChunkedArray, prefix: str, redactor: Redactor
) -> Iterator[tuple[str, pd.Categorical]]:
    """Yield the frequent fields of JSON objects that have few values, as ``prefix name``."""
    if len(column) > _READ:
        return
    row_count = len(column)
    values: dict[str, dict[int, str]] = defaultdict(dict)
    distinct: dict[str, set[str]] = defaultdict(set)
    for row, json in enumerate(column.to_pylist()):
        for name, value in _scalars(_object(json)):
            # a field with too many values, for example an id, is given up
            if len(distinct[name]) <= _VALUES:
                distinct[name].add(value)
                values[name][row] = value
    kept = [
        name
        for name, rows in values.items()
        if len(distinct[name]) <= _VALUES and len(rows) >= _PRESENT * row_count
    ]
    for name in sorted(kept, key=lambda name: (-len(values[name]), name))[:_FIELDS]:
        masked = {
            value: redactor.header(name, redactor.text(value))[:_CUT]
            for value in sorted(distinct[name])
        }
        own_values = values[name]
        names = [
            masked[own_values[row]] if row in own_values else NONE
            for row in range(row_count)
        ]
        yield f"{prefix} {name}", _categories(names)


def _scalars(members: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the names and values of an object: strings, numbers and lists of one string.

    For example, ``{"order": {"id": 17}, "tags": ["eu"]}`` gives ("order.id", "17") and ("tags", "eu").
    """
    for name, value in members.items():
        if isinstance(value, dict):
            for inner, item in value.items():
                if _is_scalar(item):
                    yield f"{name}.{inner}", _short(item)
        elif isinstance(value, list):
            if len(value) == 1 and isinstance(value[0], str) and value[0]:
                yield name, _short(value[0])
        elif _is_scalar(value):
            yield name, _short(value)


def _is_scalar(value: object) -> bool:
    return isinstance(value, str | int) and value != ""


def _short(value: str | int) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)[: 2 * _CUT]


def _object(json: object) -> dict[str, Any]:
    """Return a JSON object, empty if the value is something else."""
    decoded = _decoded(json)
    return decoded if isinstance(decoded, dict) else {}


def _list(json: object) -> list[Any]:
    """Return a JSON list, empty if the value is something else."""
    decoded = _decoded(json)
    return decoded if isinstance(decoded, list) else []


def _decoded(json: object) -> object:
    if (
        not isinstance(json, str)
        or not json.startswith(("[", "{"))
        or len(json) > _LONGEST
    ):
        return None
    with suppress(msgspec.DecodeError, RecursionError, UnicodeError):
        return msgspec.json.decode(json)
    return None


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


def select_failures(
    failures: AnyFrame,
    condition: Mapping[str, str],
    *,
    since: Time | None = None,
    until: Time | None = None,
) -> pd.DataFrame:
    """Select the failures that meet a condition of an explanation, of an incident, or of your own.

    Parameters
    ----------
    failures : frame
        The failures table, or another frame with the columns that the condition names.
    condition : mapping of str to str
        Attributes and values that a row must have: a column; ``label``; ``signature``, the id of the group;
        or a field of a JSON column, as ``header``, ``response header``, ``body``, ``response body`` or
        ``extra``, a space and the name of the field. ``(none)`` is a missing or empty value. If the condition
        is empty, all rows meet it.
    since, until : str, datetime, date, timedelta or int, optional
        The time of the failures, by `failed_at` or, if that is missing, `created_at`; both ends included.

    Returns
    -------
    pandas.DataFrame
        The selected rows with all columns, in the order of the frame and with the same index.

    Raises
    ------
    InputError
        If the frame does not have the attribute, a column is missing, or a time cannot be read.

    Warns
    -----
    UnexpectedResultWarning
        If no row at all has a value of the condition. The warning lists the values that exist.

    See Also
    --------
    Explanation.select : the same for a ranked condition, limited to the time of the explanation.

    Examples
    --------
    >>> failures = tk.load_failures(service, progress=False)
    >>> throttled = tk.select_failures(failures, {"response_status": "429", "label": "payments"})
    >>> bool((throttled["response_status"] == 429).all())
    True
    >>> incident = tk.analysis.find_incidents(failures).iloc[0]
    >>> chosen = tk.select_failures(
    ...     failures, incident["condition"], since=incident["from_at"], until=incident["until_at"])
    >>> bool(len(chosen) == incident["observed"])
    True
    """
    return rows_meeting(failures, condition, since, until)


def rows_meeting(
    failures: AnyFrame,
    condition: Mapping[str, str],
    since: Time | None,
    until: Time | None,
) -> pd.DataFrame:
    """Return the rows of `select_failures` and `Explanation.select`; a warning points at their caller."""
    wanted = _checked(condition)
    span = (
        _milliseconds("since", since, end=False),
        _milliseconds("until", until, end=True),
    )
    source = scanned(failures, doing=_SELECTING)
    rows = opened(source, doing=_SELECTING)
    names = rows.names
    if SIGNATURE in wanted and SIGNATURE not in names:
        ids = pa.array(grouped(source)[1], pa.string())
        rows = opened(rows.table().append_column(SIGNATURE, ids), doing=_SELECTING)
    condition_columns = [_columns_of(name, rows.names) for name in wanted]
    needed = dict.fromkeys(chain.from_iterable(condition_columns))
    columns = (
        list(needed or names[:1]) if isinstance(source, pd.DataFrame) else rows.names
    )
    has_span = span != (None, None)
    selected = (
        select_timed(rows, columns, doing=_SELECTING)
        if has_span
        else rows.choose(columns)
    )
    if isinstance(source, pd.DataFrame):
        is_met = selected.then(partial(_marked, wanted, span)).table()[_MET].to_numpy()
        matching: pd.DataFrame = source.loc[is_met.astype(bool)]
    else:
        matching = to_frame(
            selected.then(partial(_meeting, wanted, span)).table().select(names)
        )
    if matching.empty:
        for message in _unknown_values(rows, wanted):
            warnings.warn(message, UnexpectedResultWarning, stacklevel=3)
    return matching


def _milliseconds(name: str, time: Time | None, *, end: bool) -> int | None:
    if time is None:
        return None
    return round(parse_time(time, end=end, name=name).timestamp() * 1000)


def _unknown_values(rows: SelectedRows, condition: Mapping[str, str]) -> Iterator[str]:
    """Yield a message for each value of a condition that no row has, with the values that exist."""
    for name, value in condition.items():
        stated: set[str] = set()
        existing: set[str] = set()
        for table in rows.choose(_columns_of(name, rows.names)).map():
            values, codes = _values(table, name)
            for code in np.unique(codes):
                stated |= values[code].stated
                existing |= values[code].shown
            if value in stated:
                break
        if existing and value not in stated:
            yield f"None of the failures has {name} = {value!r}. {nearest(value, sorted(existing))}"


def _checked(condition: object) -> dict[str, str]:
    """Return a condition with values as strings, and ``label`` for ``labels``."""
    if not isinstance(condition, Mapping) or not all(
        isinstance(name, str) for name in condition
    ):
        raise InputError(
            _SELECTING,
            got=f"{shown(condition)} for condition",
            expected="a dict of attributes and their values, such as {'response_status': '429'}",
            next_step="The frame of an Explanation has conditions.",
        )
    wanted = {}
    for name, value in condition.items():
        text = NONE if value is None else str(value) or NONE
        # `labels` means one of the labels, unless the value is the JSON of the column
        attribute = LABEL if name == "labels" and not text.startswith("[") else name
        wanted[attribute] = text
    return wanted


_Span: TypeAlias = tuple[int | None, int | None]
"""First and last millisecond since 1970; None if there is no limit."""


def _marked(condition: Mapping[str, str], span: _Span, table: pa.Table) -> pa.Table:
    """Return whether each row meets the condition and is in the span, as a table with one column."""
    is_met = np.ones(table.num_rows, dtype=bool)
    for name, value in condition.items():
        values, codes = _values(table, name)
        is_met &= np.array([value in known.stated for known in values], dtype=bool)[
            codes
        ]
    since, until = span
    if since is not None or until is not None:
        when = timestamps(table, "when_")
        times = when.astype("datetime64[ms, UTC]").astype("int64").to_numpy()
        is_met &= when.notna().to_numpy()
        if since is not None:
            is_met &= times >= since
        if until is not None:
            is_met &= times <= until
    return pa.table({_MET: is_met})


def _meeting(condition: Mapping[str, str], span: _Span, table: pa.Table) -> pa.Table:
    return table.filter(_marked(condition, span, table)[_MET])
