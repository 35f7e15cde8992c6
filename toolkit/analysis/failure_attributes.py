"""What failures can have in common, as a table of attributes; the rows that a condition on them means."""

from __future__ import annotations

import re
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from toolkit.analysis.group_rules import GroupRules
from toolkit.analysis.grouping import grouped, grouped_columns
from toolkit.analysis.selection import NONE, opened, scanned, select_timed, timestamps
from toolkit.analysis.sources import AnyFrame, SelectedRows
from toolkit.arguments import nearest, shown
from toolkit.drawing.wording import value_text
from toolkit.errors import InputError, UnexpectedResultWarning
from toolkit.redaction import Redactor
from toolkit.tables.frames import to_frame
from toolkit.times import Time, parse_time

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
"""Columns of JSON objects, and how an attribute that is a field of theirs begins."""

_READ: Final = 100_000  # rows; of more, JSON is not read
_LONGEST: Final = 20_000  # characters of a JSON text
_VALUES: Final = 40  # different values of a field of few values
_PRESENT: Final = 0.02  # of the rows
_FIELDS: Final = 12  # fields that are kept, the most frequent first
_CUT: Final = 200  # characters of a value
_LEAST: Final = 0.5  # events, where there are none
_MESSAGE: Final = 2_000  # characters of a response in which names are looked for
_WORD: Final = re.compile(r"[A-Za-z][\w-]{2,}(?:\.[A-Za-z][\w-]+)*")  # a name, or a host
_SELECTING: Final = "selecting failures"
_MET: Final = "met_"


class FailureAttributes:
    """Failures with a time, oldest first: `when` (ns since 1970), and a column of categories an attribute.

    Every label of every failure is in `label_codes`, and its failure in `labelled`.
    """

    def __init__(self, frame: AnyFrame, *, doing: str) -> None:
        frame = scanned(frame, doing=doing)
        names = set(opened(frame, doing=doing).names)
        present = [name for name in (*NAMED, "labels", LABEL, *JSON_FIELDS) if name in names]
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
        self.columns = _distinct({name: column.take(order) for name, column in columns.items()})
        self.labels = labels_of(table, redactor).iloc[order].to_numpy(dtype=object)
        self.label_codes, self.labelled, self._label_names = _coded(self.labels)
        bodies = table["response_body"] if "response_body" in names else None
        self._words = _words_of_errors(self.columns.get(SIGNATURE), bodies, order, redactor)

    def __len__(self) -> int:
        return len(self.when)

    def columns_of(
        self, rows: NDArray[np.bool_], observed: NDArray[np.float64], expected: NDArray[np.float64]
    ) -> dict[str, pd.Categorical]:
        """The attributes of some failures; of several labels the one that rose most."""
        columns = {name: column[rows] for name, column in self.columns.items()}
        if rows[self.labelled].any():
            counts = np.zeros((2, len(self)))
            counts[:, rows] = observed, expected
            risen = _risen(self.label_codes, self.labelled, self._label_names, *counts)
            columns[LABEL] = pd.Categorical(risen[rows])
        return columns

    def meets(self, condition: Mapping[str, str]) -> NDArray[np.bool_]:
        """Which failures meet a condition."""
        met = np.ones(len(self), dtype=bool)
        for name, value in condition.items():
            if name == LABEL:
                named = np.asarray((self._label_names == value) | (value == NONE))
                held = np.bincount(self.labelled[named[self.label_codes]], minlength=len(self)) > 0
                met &= held if value != NONE else ~held
            else:
                met &= np.asarray(self.columns[name] == value)
        return met

    def most_frequent(self, name: str, rows: NDArray[np.bool_], most: int) -> list[str]:
        """The most frequent values of an attribute among some failures."""
        if name not in self.columns:
            return []
        column = self.columns[name]
        counts = np.bincount(column.codes[rows], minlength=1)
        codes = np.argsort(-counts, kind="stable")[:most]
        return [str(column.categories[code]) for code in codes if counts[code]]

    def shared(self, rows: NDArray[np.bool_], least: float) -> dict[str, str]:
        """The values that at least such a share of some failures have, and not of all."""
        shared = {}
        for name, column in self.columns.items():
            counts = np.bincount(column.codes[rows], minlength=1)
            code = int(counts.argmax())
            value = str(column.categories[code])
            usual = name not in (WORKFLOW, SIGNATURE) and (column.codes == code).mean() >= least
            if counts[code] >= least * counts.sum() and value != NONE and not usual:
                shared[name] = value
        counted = Counter(label for own in self.labels[rows] for label in own)
        for label, count in counted.most_common(1):
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
        inside, outside = (np.bincount(codes[part], minlength=len(self._words)) for part in (rows, ~rows))
        named: Counter[str] = Counter()
        elsewhere: Counter[str] = Counter()
        errors: Counter[str] = Counter()
        for code, words in enumerate(self._words):
            for word in words:
                named[word] += int(inside[code])
                elsewhere[word] += int(outside[code])
                errors[word] += bool(inside[code])
        common = [word for word, count in named.items() if count >= least * rows.sum() and errors[word] > 1]
        rare = [word for word in common if elsewhere[word] <= (1 - least) * max(int(outside.sum()), 1)]
        # a host first, then a name with a capital, then the rarest word
        rare.sort(key=lambda word: ("." not in word, not word[0].isupper(), elsewhere[word], word))
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
    values: NDArray[np.object_], observed: NDArray[np.float64], expected: NDArray[np.float64]
) -> NDArray[np.object_]:
    """Return one of the values of each row, for example of the labels: the one that rose most.

    `observed` and `expected` are the events that each row stands for.
    """
    return _risen(*_coded(values), observed, expected)


def _coded(labels: NDArray[np.object_]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.object_]]:
    """The code of every label of every row, the row of each, and the names of the codes."""
    flat = np.array([label for own in labels for label in own], dtype=object)
    codes, names = pd.factorize(flat, sort=True)
    rows = np.repeat(np.arange(len(labels)), [len(own) for own in labels])
    return codes.astype(np.int64), rows, np.asarray(names, dtype=object)


def _risen(
    codes: NDArray[np.int64],
    labelled: NDArray[np.int64],
    names: NDArray[np.object_],
    observed: NDArray[np.float64],
    expected: NDArray[np.float64],
) -> NDArray[np.object_]:
    """The label of each row that rose most beside all others, by likelihood: not one that all rows have."""
    seen, usual = (np.bincount(codes, counts[labelled], len(names)) for counts in (observed, expected))
    total = observed.sum()
    # as many as would be if all had risen alike
    alike = usual * total / max(expected.sum(), _LEAST)
    likelihood = np.zeros(len(names))
    for count, equal in ((seen, alike), (total - seen, total - alike)):
        likelihood += count * np.log(np.maximum(count, _LEAST) / np.maximum(equal, _LEAST))
    evidence = np.where(seen > alike, likelihood, seen - alike)
    order = np.argsort(-evidence, kind="stable")  # of equal ones the first by name
    chosen = np.full(len(observed), len(order))
    np.minimum.at(chosen, labelled, np.argsort(order)[codes])
    risen: NDArray[np.object_] = np.array([*names[order], NONE], dtype=object)[chosen]
    return risen


def _columns_of(name: str, names: Sequence[str]) -> list[str]:
    """The columns among these names that an attribute is read from."""
    if name == LABEL:
        read = ["labels", LABEL]
    elif name in names:
        read = [name]
    else:
        read = [column for column, prefix in JSON_FIELDS.items() if name.startswith(f"{prefix} ")]
    found = [column for column in read if column in names]
    if not found:
        raise InputError(
            _SELECTING,
            got=f"{shown(name)} in condition",
            expected="an attribute of the failures",
            next_step=nearest(name, [*names, LABEL, SIGNATURE, *JSON_FIELDS.values()], what="They have"),
        )
    return found


class _Value(NamedTuple):
    """A value of an attribute: how a condition may state it, and how it may be shown."""

    stated: frozenset[str]
    shown: frozenset[str]


def _values(table: pa.Table, name: str) -> tuple[list[_Value], NDArray[np.int64]]:
    """The distinct values of an attribute, and which of them each row has."""
    redactor = Redactor()
    if name == LABEL and "labels" in table.column_names:
        codes, labels = pd.factorize(labels_of(table, redactor))
        return [_Value(*2 * (frozenset(own or [NONE]),)) for own in labels], codes.astype(np.int64)
    if name in table.column_names:
        texts = column_texts(table[name].to_pandas(integer_object_nulls=True))
        return [_value(text, redactor) for text in texts.categories], texts.codes.astype(np.int64)
    (column,) = _columns_of(name, table.column_names)
    objects = np.array(table[column].to_pylist(), dtype=object)
    codes, distinct = pd.factorize(objects, use_na_sentinel=False)
    field = name.removeprefix(f"{JSON_FIELDS[column]} ")
    return [_member(text, field, redactor) for text in distinct], codes.astype(np.int64)


def _value(text: str, redactor: Redactor) -> _Value:
    """A value of a column: as it is, masked and shortened, and a number without a fraction."""
    masked = frozenset({_text(text, redactor) or NONE})
    number = re.fullmatch(r"(-?\d+)\.0", text)
    return _Value(masked | {text, number[1] if number else text}, masked)


def _member(text: object, field: str, redactor: Redactor) -> _Value:
    """A field of a JSON object."""
    decoded = _decoded(text) if isinstance(text, str) else None
    own = [found for name, found in _scalars(decoded) if name == field] if isinstance(decoded, dict) else []
    if not own:
        return _Value(*2 * (frozenset({NONE}),))
    masked = frozenset({redactor.header(field, redactor.text(own[-1]))[:_CUT]})
    return _Value(masked | {own[-1]}, masked)


def column_texts(column: pd.Series) -> pd.Categorical:
    """Any values as categories of texts, missing and empty ones as ``(none)``."""
    try:
        codes, values = pd.factorize(column)
    except TypeError:  # lists and maps have no hash
        codes, values = pd.factorize(column.map(str, na_action="ignore"))
    names = [str(value) or NONE for value in values]
    return pd.Categorical(np.array([*names, NONE], dtype=object)[codes])  # -1: missing


def _category(column: pa.ChunkedArray, redactor: Redactor) -> pd.Categorical:
    """The values of a column as masked texts; numbers without a fraction."""
    encoded = column.combine_chunks().dictionary_encode()
    values = encoded.dictionary.to_pylist()
    known = [NONE if value in (None, "") else _text(value, redactor) for value in values]
    return _categories([NONE if code is None else known[code] for code in encoded.indices.to_pylist()])


def _categories(texts: list[str]) -> pd.Categorical:
    """Texts as categories in their order."""
    return pd.Categorical(np.array([NONE, *texts], dtype=object))[1:]


def _text(value: object, redactor: Redactor) -> str:
    return redactor.text(value_text(value))[:_CUT]


def labels_of(table: pa.Table, redactor: Redactor) -> pd.Series[Any]:
    """The labels of each row as a tuple of masked texts."""
    known: dict[tuple[str | None, str | None], tuple[str, ...]] = {}
    nothing = [None] * table.num_rows
    lists, singles = (
        table[name].to_pylist() if name in table.column_names else nothing for name in ("labels", LABEL)
    )
    rows = []
    for pair in zip(lists, singles, strict=True):
        if pair not in known:
            decoded = _decoded(pair[0])
            texts = decoded if isinstance(decoded, list) else []
            texts = [text for text in [*texts, pair[1]] if isinstance(text, str) and text]
            known[pair] = tuple(dict.fromkeys(_text(text, redactor) for text in texts))
        rows.append(known[pair])
    return pd.Series(rows, dtype=object)


def json_fields(
    column: pa.ChunkedArray, prefix: str, redactor: Redactor
) -> Iterator[tuple[str, pd.Categorical]]:
    """The fields of JSON objects that have few values and are often there, as ``prefix name``."""
    if len(column) > _READ:
        return
    texts = column.to_pylist()
    values: dict[str, dict[int, str]] = defaultdict(dict)
    seen: dict[str, set[str]] = defaultdict(set)
    for row, text in enumerate(texts):
        decoded = _decoded(text)
        if isinstance(decoded, dict):
            for name, value in _scalars(decoded):
                if len(seen[name]) <= _VALUES:
                    seen[name].add(value)
                    values[name][row] = value
    few = [
        name
        for name, rows in values.items()
        if len(seen[name]) <= _VALUES and len(rows) >= _PRESENT * len(texts)
    ]
    for name in sorted(few, key=lambda name: (-len(values[name]), name))[:_FIELDS]:
        masked = {value: redactor.header(name, redactor.text(value))[:_CUT] for value in sorted(seen[name])}
        rows = values[name]
        texts_of = [masked[rows[row]] if row in rows else NONE for row in range(len(texts))]
        yield f"{prefix} {name}", _categories(texts_of)


def _scalars(members: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The single values of an object and of the objects in it, but empty texts; of a list its one value."""
    for name, value in members.items():
        if isinstance(value, dict):
            for inner, item in value.items():
                if isinstance(item, str | int) and item != "":
                    yield f"{name}.{inner}", _short(item)
        elif isinstance(value, list) and len(value) == 1 and isinstance(value[0], str) and value[0]:
            yield name, _short(value[0])
        elif isinstance(value, str | int) and value != "":
            yield name, _short(value)


def _short(value: str | int) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)[: 2 * _CUT]


def _decoded(text: str | None) -> object:
    if not text or len(text) > _LONGEST or text[0] not in "[{":
        return None
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return None


def _distinct(columns: Mapping[str, pd.Categorical]) -> dict[str, pd.Categorical]:
    """Without attributes of one value, and without those that divide the rows as an earlier one does."""
    kept: dict[str, pd.Categorical] = {}
    seen: set[bytes] = set()
    for name, column in columns.items():
        codes, values = pd.factorize(column.codes)
        if len(values) > 1 and codes.tobytes() not in seen:
            seen.add(codes.tobytes())
            kept[name] = column
    return kept


def select_failures(
    failures: AnyFrame,
    condition: Mapping[str, str],
    *,
    since: Time | None = None,
    until: Time | None = None,
) -> pd.DataFrame:
    """Select the failures that meet a condition, as explanations and incidents state it.

    Parameters
    ----------
    failures : frame
        The failures table, or any other frame whose columns the condition names.
    condition : mapping of str to str
        Attributes and their values, all of which a row must have: a column; ``label``; ``signature``, the id
        of its group; ``header``, ``response header``, ``body``, ``response body`` or ``extra``, and behind a
        space the name of a field. ``(none)`` is a missing or empty value. An empty condition is met by all.
    since, until : str, datetime, date, timedelta or int, optional
        When the failures were, by `failed_at` (else `created_at`); both ends included.

    Returns
    -------
    pandas.DataFrame
        These rows of the frame with all columns, in its order, with its index.

    Raises
    ------
    InputError
        When the frame has no such attribute, a column is missing, or a time cannot be read.

    Warns
    -----
    UnexpectedResultWarning
        When no row has a value of the condition at all; it lists those that there are.

    See Also
    --------
    Explanation.select : the same for a ranked condition, in its time.

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
    failures: AnyFrame, condition: Mapping[str, str], since: Time | None, until: Time | None
) -> pd.DataFrame:
    """What `select_failures` and `Explanation.select` return; a warning points at their caller."""
    wanted = _checked(condition)
    span = [
        None if time is None else round(parse_time(time, end=end, name=name).timestamp() * 1000)
        for name, time, end in (("since", since, False), ("until", until, True))
    ]
    source = scanned(failures, doing=_SELECTING)
    rows = opened(source, doing=_SELECTING)
    names = rows.names
    if SIGNATURE in wanted and SIGNATURE not in names:
        ids = pa.array(grouped(source)[1], pa.string())
        rows = opened(rows.table().append_column(SIGNATURE, ids), doing=_SELECTING)
    needed = dict.fromkeys(column for name in wanted for column in _columns_of(name, rows.names))
    columns = list(needed or names[:1]) if isinstance(source, pd.DataFrame) else rows.names
    timed = span != [None, None]
    read = select_timed(rows, columns, doing=_SELECTING) if timed else rows.choose(columns)
    if isinstance(source, pd.DataFrame):
        met = read.then(partial(_marked, wanted, span)).table()[_MET].to_numpy()
        chosen: pd.DataFrame = source.loc[met.astype(bool)]
    else:
        chosen = to_frame(read.then(partial(_meeting, wanted, span)).table().select(names))
    if chosen.empty:
        _warn_of_unknown(rows, wanted)
    return chosen


def _warn_of_unknown(rows: SelectedRows, condition: Mapping[str, str]) -> None:
    """Say which value of a condition no row has at all, and which there are."""
    for name, value in condition.items():
        known: set[str] = set()
        for table in rows.choose(_columns_of(name, rows.names)).map():
            values, codes = _values(table, name)
            found = [values[code] for code in np.unique(codes)]
            if any(value in one.stated for one in found):
                break
            known = known.union(*(one.shown for one in found))
        else:
            if known:
                said = f"None of the failures has {name} = {value!r}. {nearest(value, sorted(known))}"
                warnings.warn(said, UnexpectedResultWarning, stacklevel=4)


def _checked(condition: object) -> dict[str, str]:
    if not isinstance(condition, Mapping) or not all(isinstance(name, str) for name in condition):
        raise InputError(
            _SELECTING,
            got=f"{shown(condition)} for condition",
            expected="a dict of attributes and their values, such as {'response_status': '429'}",
            next_step="The frame of an Explanation has conditions.",
        )
    wanted = {}
    for name, value in condition.items():
        text = NONE if value is None else str(value) or NONE
        # one of the labels, unless it is the text of the whole column
        wanted[LABEL if name == "labels" and not text.startswith("[") else name] = text
    return wanted


def _marked(condition: Mapping[str, str], span: Sequence[int | None], table: pa.Table) -> pa.Table:
    """Whether each row meets the condition in the time, as a table of one column."""
    met = np.ones(table.num_rows, dtype=bool)
    for name, value in condition.items():
        values, codes = _values(table, name)
        met &= np.array([value in one.stated for one in values], dtype=bool)[codes]
    since, until = span
    if since is not None or until is not None:
        when = timestamps(table, "when_")
        times = when.astype("datetime64[ms, UTC]").astype("int64").to_numpy()
        met &= when.notna().to_numpy()
        met &= (times >= since) if since is not None else True
        met &= (times <= until) if until is not None else True
    return pa.table({_MET: met})


def _meeting(condition: Mapping[str, str], span: Sequence[int | None], table: pa.Table) -> pa.Table:
    return table.filter(_marked(condition, span, table)[_MET])
