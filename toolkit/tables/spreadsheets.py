"""Write frames for programs that know only scalars: spreadsheets, SQL, CSV."""

from __future__ import annotations

import csv
import importlib
import os
import re
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from io import BytesIO
from itertools import chain, zip_longest
from numbers import Number
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal
from zipfile import ZIP_DEFLATED, ZipFile

import numpy as np
import pandas as pd

from toolkit.base.arguments import choice, file_path
from toolkit.base.errors import InputError, SettingsError, UnexpectedResultWarning
from toolkit.base.private_files import full_disk, is_full, write_file
from toolkit.base.progress import ProgressBar, ProgressOption, checked_progress
from toolkit.tables.arrow_input import FrameLike
from toolkit.tables.frame_parts import MOST_ROWS, frame_parts, with_error
from toolkit.tables.frames import checked_frame, warn_of_index
from toolkit.tables.vector_dtype import VectorDtype, missing

_TEXT: Final = 32_767
"""Maximum number of characters in a cell of Excel."""

_MOST_EXAMPLES: Final = 3
_ROWS, _COLUMNS = 1_048_576, 16_384
_EXACT: Final = 1 << 53  # whole numbers beyond lose digits in Excel
# types of pandas by the type of the numbers of vectors; all others are float64
_DTYPES: Final = {"int64": "Int64"}
# before it, Excel counts a day that never was
_FIRST: Final = pd.Timestamp("1900-03-01")
_LAST: Final = pd.Timestamp("9999-12-31 23:59:59")
_UNWRITABLE: Final = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]"
)
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\n", "＝", "＋", "－", "＠")  # noqa: RUF001 - full-width forms, too
_SIGN: Final = "[=+\\-@\uff1d\uff0b\uff0d\uff20\ufe66\ufe62\ufe63\ufe6b]"
# Default_Ignorable_Code_Point of Unicode, other format controls (Cf), C1 controls and combining accents
_UNSEEN: Final = (
    "\x7f-\x9f\u00ad\u0300-\u036f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5"
    "\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\U000110bd\U000110cd\U00013430-\U0001345f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
# a program that expects another separator ends a cell at it, or at a line's end, in spite of the quotes
_BEGINS_FORMULA: Final = re.compile(
    rf"\A(?=[\s{_UNSEEN}]*+{_SIGN}|[\t\n])|(?<=[;|\t\n])(?=(?>(?:[^\S\t\n]|[\"{_UNSEEN}])*){_SIGN})"
)


def flatten(
    frame: FrameLike, *, vectors: Literal["text", "columns"] = "text"
) -> pd.DataFrame:
    """Return a frame with only scalar columns, for spreadsheets and SQL.

    Parameters
    ----------
    frame : pandas.DataFrame
        Any frame of the toolkit. It is not changed.
    vectors : {"text", "columns"}
        ``"text"`` writes each vector as JSON text. ``"columns"`` makes one column per number of the longest
        vector: ``vector_0``, ``vector_1``, …

    Returns
    -------
    pandas.DataFrame
        The same rows, and the same columns except for vectors. JSON columns (headers, labels, metadata) stay
        text. To make tables of them, use `explode_headers`, `explode_labels` and `explode_metadata`.

    Raises
    ------
    InputError
        If `vectors` has another value, or if a new column has the name of an existing one.

    Examples
    --------
    >>> frame = pd.DataFrame({"id": ["a", "b"]})
    >>> frame["vector"] = pd.array([[1, 2], None], dtype="vector[float32, 2]")
    >>> flatten(frame)
      id     vector
    0  a  [1.0,2.0]
    1  b        NaN
    >>> flatten(frame, vectors="columns")
      id  vector_0  vector_1
    0  a       1.0       2.0
    1  b       NaN       NaN
    """
    frame = checked_frame("frame", frame)
    vectors = choice("vectors", vectors, ("text", "columns"))

    names: list[Any] = []
    columns: list[pd.Series[Any]] = []
    for name, column in frame.items():
        if not isinstance(column.dtype, VectorDtype):
            names.append(name)
            columns.append(column)
        elif vectors == "text":
            names.append(name)
            columns.append(column.astype("str"))
        else:
            numbers = list(_numbers(column))
            names += [f"{name}_{number}" for number in range(len(numbers))]
            columns += numbers

    if frame.columns.is_unique:
        _check_unique(names)
    if columns:
        # concatenated by position, because names can be repeated
        flat = pd.concat(dict(enumerate(columns)), axis=1)
        flat.columns = pd.Index(names, dtype=frame.columns.dtype)
    else:
        flat = frame.copy()

    flat.attrs = dict(frame.attrs)
    return flat


def _check_unique(names: list[Any]) -> None:
    """Raise InputError if a column of a vector has the name of another column."""
    repeated = sorted(str(name) for name, count in Counter(names).items() if count > 1)
    if repeated:
        raise InputError(
            "flattening a frame",
            got=f"columns that are there already: {', '.join(repeated)}",
            expected="names that are free for the columns of vectors",
            next_step="Rename the existing columns first.",
        )


def export_excel(
    frame: FrameLike, path: str | os.PathLike[str], *, progress: ProgressOption = None
) -> None:
    r"""Write a frame as an Excel workbook.

    Parameters
    ----------
    frame : pandas.DataFrame
        Any frame of the toolkit, or one of your own. The index is not written. An index with a name is a
        warning.
    path : str or path
        Path of the file. An existing file is replaced. Only this user can read it.
    progress : bool or callable, optional
        True shows a progress bar, False none, a callable gets (rows written, rows in all). Default: a bar in
        a notebook or terminal when it takes over a second.

    Raises
    ------
    SettingsError
        If openpyxl is not installed.
    InputError
        If the frame has more rows or columns than a sheet of Excel below the header (1,048,575 and 16,384):
        then no file is written. Also if the folder of `path` does not exist or cannot be written to.

    Warns
    -----
    UnexpectedResultWarning
        If strings were truncated. The second sheet, ``truncated``, lists the cells and the full lengths.

    Notes
    -----
    Times are UTC without a time zone, because Excel has no time zones. Times before March 1900 are text.
    Vectors are JSON text. Integers beyond 2⁵³ are text, because Excel would round them. Strings that look
    like formulas stay strings. Control characters are written as ``\x07``; lines end with a line feed.

    Examples
    --------
    >>> import tempfile
    >>> frame = pd.DataFrame({"id": ["a"], "seen": pd.to_datetime(["2026-03-01T12:00Z"])})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     export_excel(frame, f"{folder}/seen.xlsx")
    ...     pd.read_excel(f"{folder}/seen.xlsx")
      id                seen
    0  a 2026-03-01 12:00:00
    """
    checked = checked_progress(progress)
    flat, target = _flat_and_path(frame, path)
    try:
        openpyxl = importlib.import_module("openpyxl")
        new_cell = importlib.import_module("openpyxl.cell").WriteOnlyCell
        new_writer = importlib.import_module("openpyxl.writer.excel").ExcelWriter
    except ImportError:
        raise SettingsError(
            "writing an Excel workbook",
            got="no openpyxl",
            expected="the package openpyxl",
            next_step="Install it: pip install openpyxl.",
        ) from None

    if len(flat) + 1 > _ROWS or len(flat.columns) > _COLUMNS:
        raise InputError(
            "writing an Excel workbook",
            got=f"{len(flat):,} rows and {len(flat.columns):,} columns",
            expected=f"at most {_ROWS - 1:,} rows and {_COLUMNS:,} columns",
            next_step="Write parts of it, or use to_parquet or export_csv.",
        )

    book = openpyxl.Workbook(write_only=True)
    try:
        with ProgressBar(
            checked, title="workbook", unit="rows", total=len(flat)
        ) as bar:
            _fill(book, flat, new_cell, bar)

        write_file(target, lambda file: _save(book, file, new_writer))
    except OSError as error:
        # of the rows, which openpyxl first writes into a temporary file
        if not is_full(error):
            raise
        folder = tempfile.gettempdir()
        raise full_disk(
            "writing an Excel workbook", error, f"for temporary files in {folder!r}"
        ) from None
    finally:
        for sheet in book.worksheets:
            _remove_rows(sheet)


def _save(book: Any, file: BinaryIO, new_writer: Any) -> None:
    """Write a workbook to a file.

    ``book.save`` would leave the archive to the garbage collector if an error or an interrupt ends it. The
    archive would complain then, because its file is closed before.
    """
    archive = ZipFile(file, "w", ZIP_DEFLATED)
    try:
        new_writer(book, archive).save()
    finally:
        with suppress(Exception):  # the error that ended the export is the one to raise
            archive.close()


def _remove_rows(sheet: Any) -> None:
    """Remove the temporary file with the rows of a sheet that was not saved.

    openpyxl itself removes the file of a saved sheet, and others only when the process ends. It has no
    public name for the writer of that file.
    """
    with suppress(Exception):  # the error that ended the export is the one to raise
        # its rows are still buffered
        if not sheet.closed:
            sheet.close()

    writer = getattr(sheet, "_writer", None)
    if writer is None:
        return

    with suppress(Exception):
        # the sheet did not close the file if an interrupt ended it within a row
        writer.close()
    with suppress(OSError):
        Path(writer.out).unlink(missing_ok=True)


def export_csv(frame: FrameLike, path: str | os.PathLike[str]) -> None:
    r"""Write a frame as a CSV file. No string becomes a formula if a spreadsheet program opens the file.

    If another program reads the file, use ``frame.to_csv`` of pandas, which does not change strings.

    Parameters
    ----------
    frame : frame
        Any frame of the toolkit, or one of your own. Snapshots, DuckDB relations and Dask frames are read in
        parts, so that they may be larger than memory. The index is not written. An index with a name is a
        warning.
    path : str or path
        Path of the file. An existing file is replaced. Only this user can read it.

    Raises
    ------
    InputError
        If the folder of `path` does not exist or cannot be written to.

    Notes
    -----
    Strings and column names get a ``'`` in front if they begin with ``=``, ``+``, ``-``, ``@``, a full-width
    or small form of these signs, a tab or a line end. Leading spaces and invisible characters do not matter.
    The same applies after a semicolon, a ``|``, a tab or a line end within a string, because a program that
    expects another separator begins a cell there. Numbers and times are written as pandas does, vectors as
    JSON text, control characters as ``\x07``. The file is UTF-8 with a byte order mark, for Excel.

    Examples
    --------
    >>> import tempfile
    >>> frame = pd.DataFrame({"text": ["=1+1", "a"], "number": [-1, 2]})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     export_csv(frame, f"{folder}/texts.csv")
    ...     pd.read_csv(f"{folder}/texts.csv")
        text  number
    0  '=1+1      -1
    1      a       2
    """
    parts = frame_parts(frame)
    if parts is None:
        whole = checked_frame("frame", frame)
        warn_of_index(whole, stacklevel=2)
        rows: Iterator[bytes] = map(_csv_rows, _slices(whole))
        empty = whole.iloc[:0]
    else:
        names = list(checked_frame("frame", parts.empty, distinct=True).columns)
        rows = parts.map(_csv_rows_with_error, names)
        empty = with_error(parts.empty)

    header = _csv(flatten(empty), is_header=True)
    target = file_path("path", path)
    write_file(target, lambda file: file.writelines(chain([header], rows)))


def _slices(frame: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """Yield the rows in parts, because their text takes several times the memory of the frame."""
    for start in range(0, len(frame), MOST_ROWS):
        yield frame.iloc[start : start + MOST_ROWS]


def _csv_rows(part: pd.DataFrame) -> bytes:
    return _csv(flatten(part), is_header=False)


def _csv_rows_with_error(part: pd.DataFrame) -> bytes:
    return _csv(flatten(with_error(part)), is_header=False)


def _csv(flat: pd.DataFrame, *, is_header: bool) -> bytes:
    """Return the rows of a flat frame as CSV, or the names of an empty one after a byte order mark."""
    for index in range(flat.shape[1]):
        column = flat.iloc[:, index]
        if getattr(column.dtype, "kind", "O") not in "biufcmM":
            # all that is neither a number nor a time
            flat.isetitem(index, [_text_only(value) for value in column])

    flat.columns = pd.Index(
        [_text_only(str(name)) for name in flat.columns], dtype=object
    )
    encoding = "utf-8"
    if is_header:
        encoding = "utf-8-sig"
    # all strings are quoted, because a carriage return within a string would end the row
    options: dict[str, Any] = {"encoding": encoding, "quoting": csv.QUOTE_NONNUMERIC}
    buffer = BytesIO()
    flat.to_csv(buffer, index=False, header=is_header, mode="wb", **options)

    return buffer.getvalue()


def _flat_and_path(frame: object, path: object) -> tuple[pd.DataFrame, Path]:
    """Check the arguments of both writers. Return the flat frame and the path of the file."""
    whole = checked_frame("frame", frame)
    warn_of_index(whole, stacklevel=3)
    return flatten(whole), file_path("path", path)


def _text_only(value: Any) -> Any:
    """Return a value.

    A value that is written as text is changed so that no spreadsheet reads it as a formula.
    """
    if isinstance(value, Number | timedelta):
        return value

    text = str(value)
    if isinstance(value, str):
        text = _written(value)
    safe = _BEGINS_FORMULA.sub("'", text)
    if isinstance(value, str) or safe != text:
        return safe

    return value


def _fill(book: Any, flat: pd.DataFrame, new_cell: Any, bar: ProgressBar) -> None:
    """Write the frame to the first sheet, and the truncated cells to a second one."""
    sheet = book.create_sheet("data")
    truncated: list[tuple[int, str, int]] = []

    def cell(value: Any) -> Any:
        if not isinstance(value, str):
            return value

        text_cell = new_cell(sheet, value=value)
        text_cell.data_type = "s"  # a string, even if it looks like a formula
        # it also stays a string if it is edited
        text_cell.quotePrefix = value.startswith(_FORMULA)

        return text_cell

    names = [_written(str(name)) for name in flat.columns]
    sheet.append(list(map(cell, names)))
    # row by row, because a workbook in write-only mode has no other way
    columns = [
        map(_plain, flat.iloc[:, index].astype(object))
        for index in range(flat.shape[1])
    ]

    for number, values in enumerate(zip(*columns, strict=True), start=2):
        row = list(values)
        for index, value in enumerate(row):
            if isinstance(value, str) and len(value) > _TEXT:
                truncated.append((number, names[index], len(value)))
                row[index] = value[: _TEXT - 1] + "…"

        sheet.append(list(map(cell, row)))
        bar.add(1)

    if truncated:
        notes = book.create_sheet("truncated")
        notes.append(["row", "column", "characters"])
        for number, name, size in truncated:
            notes.append([number, cell(name), size])
        warnings.warn(
            _truncation_message(truncated), UnexpectedResultWarning, stacklevel=3
        )


def _truncation_message(truncated: list[tuple[int, str, int]]) -> str:
    examples = [
        f"{name} in row {number}" for number, name, _ in truncated[:_MOST_EXAMPLES]
    ]
    if len(truncated) > _MOST_EXAMPLES:
        examples.append("…")
    return (
        f"{len(truncated):,} texts are longer than a cell of Excel can be and were truncated to "
        f"{_TEXT:,} characters: {', '.join(examples)}; the sheet 'truncated' names them all"
    )


def _numbers(column: pd.Series[Any]) -> Iterator[pd.Series[Any]]:
    """Yield one column per number of the vectors."""
    # a missing vector has no numbers, so all cells of the row are empty
    rows = map(_numbers_of, column)
    dimension: int = column.dtype.dimension or 0  # type: ignore[union-attr]
    dtype = _DTYPES.get(column.dtype.numbers, "float64")  # type: ignore[union-attr]
    columns = list(zip_longest(*rows))
    columns += [(None,) * len(column)] * (dimension - len(columns))
    for values in columns:
        yield pd.Series(values, index=column.index, dtype=dtype)


def _numbers_of(vector: Any) -> tuple[Any, ...]:
    if missing(vector):
        return ()
    return tuple(vector)


def _plain(value: Any) -> Any:
    """Return a value in a form that a workbook can contain."""
    if value is pd.NaT or missing(value):
        return None

    for kinds, convert in _PLAIN_FORMS:
        if isinstance(value, kinds):
            return convert(value)

    return _written(str(value))


def _plain_integer(number: Any) -> int | str:
    """Return an integer, or text for integers that Excel would round."""
    if -_EXACT <= number <= _EXACT:
        return int(number)
    return str(number)


def _plain_float(number: Any) -> float | str:
    """Return a finite number, or text for infinity."""
    if np.isfinite(number):
        return float(number)
    return str(float(number))


def _plain_time(time: pd.Timestamp) -> Any:
    """Return a time without a time zone, or as text if it is outside the range of Excel."""
    utc = time
    if time.tzinfo:
        utc = time.tz_convert("UTC").tz_localize(None)
    if _FIRST <= utc <= _LAST:
        return utc.to_pydatetime(warn=False)

    return time.isoformat()


_PLAIN_FORMS: Final[tuple[tuple[Any, Callable[[Any], Any]], ...]] = (
    (bool | np.bool_, bool),
    (int | np.integer, _plain_integer),
    (float | np.floating, _plain_float),
    (pd.Timestamp, _plain_time),
)
"""Conversions by class; a boolean is an integer as well, so it comes first."""


def _written(text: str) -> str:
    lines = text.replace("\r\n", "\n").replace("\r", "\n")  # as XML reads them anyway
    return _UNWRITABLE.sub(lambda match: f"\\x{ord(match[0]):02x}", lines)
