"""Arrow tables as pandas frames, and back; and how pandas and notebooks show frames.

Scalars become pandas' own types (``str``, ``datetime64[ms, UTC]``, nullable ``Int64`` and ``boolean``), lists
of numbers a `VectorDtype`. No integer ever becomes a float. What applications sent is exact as values, and
masked where it is shown.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pandas.arrays import ArrowStringArray

from toolkit.arguments import instance, nearest
from toolkit.errors import InputError, UnexpectedResultWarning
from toolkit.filters.error_text import LONGEST_READ, binary_line, error_text
from toolkit.receipt import Receipt
from toolkit.redaction import Redactor, escape_html, visible
from toolkit.tables.masking import ColumnMasker, each_distinct
from toolkit.tables.schemas import ERROR, EXACT_COLUMNS, FAILURES, UNFIT
from toolkit.tables.vector_dtype import VectorDtype

_LOOKED_AT: Final = 20_000  # characters of a text of which pandas shows less
_STYLE: Final = (
    "<style>.tk-frame table.dataframe td, .tk-frame table.dataframe th "
    "{white-space: nowrap; max-width: 27em; overflow: hidden; text-overflow: ellipsis}</style>"
)

_PANDAS_TYPES: Final = {
    pa.string(): pd.StringDtype(na_value=float("nan")),
    pa.int64(): pd.Int64Dtype(),
    pa.bool_(): pd.BooleanDtype(),
}
_LABELS: Final = msgspec.json.Decoder(list[str])


def to_frame(table: pa.Table, receipt: Receipt | None = None, *, reveal: bool = False) -> pd.DataFrame:
    """The table as a frame with the same columns, also when there are no rows, and its receipt in ``attrs``.

    A table with all columns of `FAILURES` gets the column ``error`` after ``response_status``. Bodies are
    masked where they are shown, unless they are to be revealed, or the receipt says so.
    """
    names = table.schema.names
    if ERROR not in names and set(FAILURES.names).issubset(names):
        errors = error_column(table, Redactor())
        table = table.add_column(names.index("response_status") + 1, ERROR, errors)
    frame: pd.DataFrame = table.to_pandas(types_mapper=_pandas_type)
    if not (reveal or (receipt is not None and receipt.scope.get("revealed"))):
        mask_where_shown(frame)
    made_visible(frame)
    if receipt is not None:
        frame.attrs["receipt"] = receipt.to_dict()
    return frame


def checked_frame(name: str, value: object, *columns: str, distinct: bool = False) -> pd.DataFrame:
    """A pandas frame with these columns, as an argument of this name; with `distinct`, no two of one name."""
    frame = instance(name, value, pd.DataFrame, "a pandas frame", "Use a frame made by a loader.")
    repeated = {str(column) for column in frame.columns[frame.columns.duplicated()]}
    for column in sorted(repeated if distinct else repeated.intersection(columns)):
        raise InputError(
            f"reading {name}",
            got=f"a frame with several columns {column!r}",
            expected="one of each name, as loaders make it",
            next_step="Drop the others: frame.loc[:, ~frame.columns.duplicated()].",
        )
    for column in columns:
        if column not in frame.columns:
            raise InputError(
                f"reading {name}",
                got=f"a frame without the column {column!r}",
                expected="one that has it, as loaders make it",
                next_step="Load with include_metadata=True."
                if column == "metadata"
                else in_index(frame, [column]) or nearest(column, map(str, frame.columns), what="It has"),
            )
    return frame


def in_index(frame: object, missing: Iterable[object]) -> str | None:
    """What to do where a column that is missing is the index of a frame."""
    names = set(frame.index.names) if isinstance(frame, pd.DataFrame) else set()
    inside = [name for name in missing if name in names]
    return f"{inside[0]!r} is in the index: pass frame.reset_index()." if inside else None


def warn_of_index(frame: pd.DataFrame, *, stacklevel: int) -> None:
    """Warn of an index with names, as ids have after `set_index`: files keep columns alone."""
    if named := [str(name) for name in frame.index.names if name is not None]:
        message = f"The index ({', '.join(named)}) is not written; frame.reset_index() makes it a column."
        warnings.warn(message, UnexpectedResultWarning, stacklevel=stacklevel + 1)


def to_table(frame: pd.DataFrame, schema: pa.Schema) -> pa.Table:
    """The frame as a table of this schema; InputError where a column is missing or does not fit."""
    missing = [name for name in schema.names if name not in frame.columns]
    if missing:
        raise InputError(
            "reading a frame",
            got=f"columns {', '.join(map(str, frame.columns))}",
            expected=f"also {', '.join(missing)}",
            next_step=in_index(frame, missing) or "Use a frame made by a loader.",
        )
    try:
        table = pa.Table.from_pandas(frame[schema.names], schema=schema, preserve_index=False)
    except UNFIT as error:
        raise InputError(
            "reading a frame", got=str(error), expected=f"columns of the types {schema}"
        ) from None
    return table.replace_schema_metadata(None)


def frame_from_rows(rows: Iterable[Mapping[str, Any]], schema: pa.Schema) -> pd.DataFrame:
    """A frame of this schema from plain rows; missing values are null.

    >>> from toolkit.tables.schemas import LABELS_EXPLODED
    >>> frame_from_rows([{"dlq_id": "a", "label": "x"}], LABELS_EXPLODED)
      dlq_id label
    0      a     x
    """
    return to_frame(pa.Table.from_pylist(list(rows), schema=schema))


def error_column(table: pa.Table, redactor: Redactor) -> pa.Array:
    """The line of each failure's response that says what went wrong, as of `error_text`, masked."""
    masker = ColumnMasker(redactor)
    # most bodies are equal to another; all chunks have the same dictionary
    bodies = table["response_body"].dictionary_encode().combine_chunks()
    # masked twice: a secret can be whole in the body only, or readable only once JSON is decoded
    distinct = masker.texts(pc.utf8_slice_codeunits(bodies.dictionary, 0, LONGEST_READ)).to_pylist()
    errors = masker.texts(pa.array([error_text(body).text for body in distinct], pa.string()))
    coded = table["response_body_base64"].combine_chunks()
    lines = errors.take(bodies.indices).fill_null(error_text(None).text)
    if coded.null_count == len(coded):
        return lines
    binary = [binary_line(text) for text in coded.drop_null().to_pylist()]
    return pc.replace_with_mask(lines, coded.is_valid(), pa.array(binary, pa.string()))


def _pandas_type(kind: pa.DataType) -> Any:
    if pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        return VectorDtype.of(kind)
    return _PANDAS_TYPES.get(kind)


class VisibleText(ArrowStringArray):
    r"""Text that is shown with its invisible characters escaped, in a column of the dtype ``str``.

    >>> frame = pd.DataFrame({"error": ["safe" + chr(0x202E) + "gpj.exe"]}, dtype="str")
    >>> made_visible(frame).to_string(index=False, header=False), len(frame.error[0])
    ('safe\\u202egpj.exe', 12)
    """

    def _formatter(self, boxed: bool = False) -> Callable[[Any], str | None]:  # noqa: FBT001, FBT002 - pandas' own
        """How values are written in frames, series and arrays alone."""
        show = super()._formatter(boxed=boxed)  # type: ignore[misc]

        def shown(value: Any) -> str | None:
            text: str | None = show(value)
            return visible(text) if isinstance(text, str) else text

        return shown


class ExactText(VisibleText):
    """Text that is exact as values and masked where pandas shows it, in a column of the dtype ``str``.

    >>> frame = pd.DataFrame({"body": ["password=hunter2", None]}, dtype="str")
    >>> mask_where_shown(frame).body.str.len().tolist()
    [16.0, nan]
    >>> "hunter2" in repr(frame), frame.body[0]
    (False, 'password=hunter2')
    """

    def _formatter(self, boxed: bool = False) -> Callable[[Any], str | None]:  # noqa: FBT001, FBT002 - pandas' own
        """How values are written in frames, series and arrays alone."""
        show, mask = super()._formatter(boxed=boxed), Redactor().text
        width = pd.get_option("display.max_colwidth")

        def shown(value: Any) -> str | None:
            if isinstance(value, str):
                # masked before it is cut, so that no part of a secret is left over
                value = mask(value if width is None else value[: max(_LOOKED_AT, 2 * width)])
            text: str | None = show(value)
            return text

        return shown


def made_visible(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame itself, the invisible characters of its texts escaped from now on where they are shown."""
    for name in frame.columns:
        array = frame[name].array
        if type(array) is ArrowStringArray:
            values = VisibleText(array.__arrow_array__(), dtype=array.dtype)  # type: ignore[call-arg]
            frame[name] = pd.Series(values, index=frame.index, copy=False)
    return frame


def mask_where_shown(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame itself, its exact texts masked from now on where they are shown."""
    for name in EXACT_COLUMNS.intersection(frame.columns):
        array = frame[name].array
        if type(array) is ArrowStringArray:
            values = ExactText(array.__arrow_array__(), dtype=array.dtype)  # type: ignore[call-arg]
            frame[name] = pd.Series(values, index=frame.index, copy=False)
    return frame


def frame_html(frame: pd.DataFrame) -> str | None:
    """The frame as pandas writes it for notebooks, without maths; the toolkit's frames in rows of one line.

    JupyterLab typesets TeX in cells, and an error text may hold a link or be hidden that way. It also wraps
    text, so that a row of twenty columns gets 90 pixels high, and aligns it at the right, where the beginning
    of a long text is out of sight; pandas has no option for that.

    >>> "mathjax_ignore" in frame_html(pd.DataFrame({"n": [1]}))
    True
    >>> "nowrap" in frame_html(pd.DataFrame({"dlq_id": ["a"]}))
    True
    """
    with pd.option_context("display.html.use_mathjax", False):
        html: str | None = frame._repr_html_()  # type: ignore[operator]
    html = html and visible(html)  # also of frames that are not the toolkit's, and in names of columns
    if not html or not ("dlq_id" in frame.columns or {"receipt", "queries"} & frame.attrs.keys()):
        return html
    texts = {escape_html(str(name)) for name, dtype in frame.dtypes.items() if dtype == "str"}
    heads = re.findall("<th>(.*?)</th>", html.partition("</thead>")[0], re.DOTALL)
    places = [
        place for place, head in enumerate(heads, start=1) if head in texts and frame.index.nlevels == 1
    ]
    kind = "".join(f"-{place}" for place in places)
    left = ",".join(f":nth-child({place})" for place in places)
    style = f"<style>.tk-left{kind} :is(th,td):is({left}) {{text-align: left}}</style>" if places else ""
    return f'<div class="tk-frame tk-left{kind}">{_STYLE}{style}{html}</div>'


def show_in_notebooks() -> None:
    """Have IPython, which is imported, show frames this way, unless somebody has said how to show them.

    All frames, because one that was grouped or merged no longer shows its origin.
    """
    formatter = getattr(sys.modules["IPython"].get_ipython(), "display_formatter", None)
    if formatter is None:
        return
    html = formatter.formatters["text/html"]
    try:
        html.lookup_by_type(pd.DataFrame)
    except KeyError:
        html.for_type(pd.DataFrame, frame_html)


def label_lists(column: pd.Series[str] | pa.Array | pa.ChunkedArray) -> pa.ListArray:
    """A column of labels, JSON text, as lists of text; null where there are none. InputError for other text.

    >>> label_lists(pa.array(['["eu","beta"]', None])).to_pylist()
    [['eu', 'beta'], None]
    """

    def read(text: str) -> list[str]:
        try:
            return _LABELS.decode(text)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            raise unreadable_column("labels", text, 'a JSON list of texts, such as ["eu","beta"]') from None

    return each_distinct(texts_of(column), read, kind=pa.list_(pa.string()))


_READ_AS_TEXT: Final = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_null,
    pa.types.is_integer,
    pa.types.is_floating,
)


def texts_of(column: pd.Series[str] | pa.Array | pa.ChunkedArray) -> pa.Array:
    """A column of a frame, of texts or numbers, as one Arrow array of text, null where a value is missing."""
    try:
        texts = pa.array(column, from_pandas=True) if isinstance(column, pd.Series) else column
        texts = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
        texts = texts.dictionary_decode() if pa.types.is_dictionary(texts.type) else texts
        if not any(fits(texts.type) for fits in _READ_AS_TEXT):
            raise TypeError
        return texts.cast(pa.string())
    except UNFIT:
        held = column.dtype if isinstance(column, pd.Series) else column.type
        raise InputError(
            "reading a column of text",
            got=f"values of the type {str(held)[:80]}",
            expected="texts or numbers, as the toolkit's frames have them",
        ) from None


def unreadable_column(column: str, text: str, expected: str) -> InputError:
    """The error for a JSON column with text that is something else."""
    return InputError(
        f"exploding {column}",
        got=f"text of {len(text):,} characters that is something else",
        expected=expected,
        next_step=f"Use the {column} column as load_failures returns it.",
    )
