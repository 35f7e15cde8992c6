"""Convert Arrow tables to pandas frames and back, and show frames in pandas and notebooks.

Scalars become pandas types (``str``, ``datetime64[ms, UTC]``, nullable ``Int64`` and ``boolean``), lists of
numbers a `VectorDtype`. Integers never become floats. Text of applications is exact as values and masked when
it is shown.
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

from toolkit.base.arguments import nearest, wrong
from toolkit.base.errors import InputError, UnexpectedResultWarning
from toolkit.secrets.redaction import Redactor, escape_html, visible
from toolkit.signatures.document import LONGEST
from toolkit.signatures.headlines import LONGEST_READ, binary_line, error_text
from toolkit.signatures.readable_bodies import readable_body
from toolkit.tables.arrow_input import arrow_table, conversion
from toolkit.tables.masking import ColumnMasker, each_distinct
from toolkit.tables.receipt import Receipt
from toolkit.tables.schemas import ERROR, EXACT_COLUMNS, FAILURES, UNFIT
from toolkit.tables.vector_dtype import VectorDtype

_MOST_MASKED: Final = 20_000  # characters of a string that are masked before pandas shows the first of them
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


def to_frame(
    table: pa.Table, receipt: Receipt | None = None, *, reveal: bool = False
) -> pd.DataFrame:
    """Return a table as a frame with the same columns, also without rows, and with the receipt in ``attrs``.

    If a table has all columns of `FAILURES`, the column ``error`` is added after ``response_status``. Bodies
    are masked when they are shown, unless `reveal` is True or the receipt is of a load with ``reveal=True``.
    """
    names = table.schema.names
    if ERROR not in names and set(FAILURES.names).issubset(names):
        errors = error_column(table, Redactor())
        table = table.add_column(names.index("response_status") + 1, ERROR, errors)

    frame = plain_frame(table)
    if not (reveal or (receipt is not None and receipt.scope.get("revealed"))):
        mask_where_shown(frame)
    made_visible(frame)
    if receipt is not None:
        frame.attrs["receipt"] = receipt.to_dict()
    return frame


def plain_frame(table: pa.Table) -> pd.DataFrame:
    """Return a table as a frame with the same columns and types of pandas, without other changes."""
    frame: pd.DataFrame = table.to_pandas(types_mapper=_pandas_type)
    return frame


def pandas_frame(value: object) -> pd.DataFrame | None:
    """Return a frame of any library as a pandas frame; None for other values.

    >>> pandas_frame(pa.table({"dlq_id": ["a"]}))
      dlq_id
    0      a
    """
    if isinstance(value, pd.DataFrame):
        return value

    table = arrow_table(value)
    if table is None:
        return None

    return to_frame(table)


def checked_frame(
    name: str, value: object, *columns: str, distinct: bool = False
) -> pd.DataFrame:
    """Return an argument that is a pandas frame with these columns.

    With `distinct`, all names must be unique.
    """
    frame = pandas_frame(value)
    if frame is None:
        expected = "a pandas frame, or a frame that hands over Arrow"
        raise wrong(
            name, value, expected, conversion(value) or "Use a frame made by a loader."
        )

    repeated = {str(column) for column in frame.columns[frame.columns.duplicated()]}
    ambiguous = repeated
    if not distinct:
        ambiguous = repeated.intersection(columns)
    for column in sorted(ambiguous):
        raise InputError(
            f"reading {name}",
            got=f"a frame with several columns {column!r}",
            expected="one column per name, as loaders make it",
            next_step="Drop the others: frame.loc[:, ~frame.columns.duplicated()].",
        )

    for column in columns:
        if column not in frame.columns:
            raise InputError(
                f"reading {name}",
                got=f"a frame without the column {column!r}",
                expected="a frame with it, as loaders make it",
                next_step=_missing_column_step(frame, column),
            )

    return frame


def _missing_column_step(frame: pd.DataFrame, column: str) -> str:
    if column == "metadata":
        return "Load with include_metadata=True."

    return in_index(frame, [column]) or nearest(
        column, map(str, frame.columns), what="It has"
    )


def in_index(frame: object, missing: Iterable[object]) -> str | None:
    """Return the next step if a missing column is in the index of a frame, else None."""
    names = set(frame.index.names) if isinstance(frame, pd.DataFrame) else set()
    inside = [name for name in missing if name in names]
    if not inside:
        return None

    return f"{inside[0]!r} is in the index: pass frame.reset_index()."


def warn_of_index(frame: pd.DataFrame, *, stacklevel: int) -> None:
    """Warn about an index with names, for example after `set_index`, because files contain only columns."""
    if named := [str(name) for name in frame.index.names if name is not None]:
        message = f"The index ({', '.join(named)}) is not written; frame.reset_index() makes it a column."
        warnings.warn(message, UnexpectedResultWarning, stacklevel=stacklevel + 1)


def to_table(frame: pd.DataFrame, schema: pa.Schema) -> pa.Table:
    """Return a frame as a table of this schema. Raise InputError if a column is missing or does not fit."""
    missing = [name for name in schema.names if name not in frame.columns]
    if missing:
        raise InputError(
            "reading a frame",
            got=f"columns {', '.join(map(str, frame.columns))}",
            expected=f"also {', '.join(missing)}",
            next_step=in_index(frame, missing) or "Use a frame made by a loader.",
        )

    try:
        table = pa.Table.from_pandas(
            frame[schema.names], schema=schema, preserve_index=False
        )
    except UNFIT as error:
        raise InputError(
            "reading a frame", got=str(error), expected=f"columns of the types {schema}"
        ) from None

    return table.replace_schema_metadata(None)


def frame_from_rows(
    rows: Iterable[Mapping[str, Any]], schema: pa.Schema
) -> pd.DataFrame:
    """Return a frame of this schema from plain rows. Missing values are null.

    >>> from toolkit.tables.schemas import LABELS_EXPLODED
    >>> frame_from_rows([{"dlq_id": "a", "label": "x"}], LABELS_EXPLODED)
      dlq_id label
    0      a     x
    """
    return to_frame(pa.Table.from_pylist(list(rows), schema=schema))


def error_column(table: pa.Table, redactor: Redactor) -> pa.Array:
    """Return the error of each failure as one line, as `error_text` finds it, masked."""
    masker = ColumnMasker(redactor)
    # Most bodies are repeated. All chunks have the same dictionary.
    bodies = table["response_body"].dictionary_encode().combine_chunks()
    errors = _errors_of(_without_zeros(bodies.dictionary), masker)
    coded = table["response_body_base64"].combine_chunks()
    lines = errors.take(bodies.indices).fill_null(error_text(None).text)
    if coded.null_count == len(coded):
        return lines

    encoded = coded.drop_null().to_pylist()
    texts = pa.array([readable_body(None, one) for one in encoded], pa.string())
    binary = pa.array([binary_line(one) for one in encoded], pa.string())
    of_coded = pc.coalesce(_errors_of(texts, masker), binary)
    return pc.replace_with_mask(lines, coded.is_valid(), of_coded)


def _errors_of(bodies: pa.StringArray, masker: ColumnMasker) -> pa.Array:
    """Return the error of each body; null for a missing body."""
    # Masked twice: a secret can be complete in the body only, or readable only after decoding JSON.
    masked = masker.texts(_ends(bodies)).to_pylist()
    errors = [None if body is None else error_text(body).text for body in masked]
    return masker.texts(pa.array(errors, pa.string()))


def _without_zeros(bodies: pa.StringArray) -> pa.StringArray:
    """Return bodies, with ASCII in UTF-16 as ASCII."""
    if not pc.any(pc.match_substring(bodies, "\x00")).as_py():
        return bodies
    return pa.array([readable_body(body, None) for body in bodies.to_pylist()])


def _ends(bodies: pa.StringArray) -> pa.StringArray:
    """Return bodies. Of a body that is longer than the part that is read, only the start and the end."""
    starts = pc.utf8_slice_codeunits(bodies, 0, LONGEST_READ)
    is_long = pc.greater(pc.utf8_length(bodies), LONGEST_READ)
    if not pc.any(is_long).as_py():
        return starts

    halves = (
        pc.utf8_slice_codeunits(bodies, 0, LONGEST),
        pc.utf8_slice_codeunits(bodies, -LONGEST),
    )
    return pc.if_else(is_long, pc.binary_join_element_wise(*halves, "\n"), starts)


def _pandas_type(kind: pa.DataType) -> Any:
    is_list = pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind)
    if is_list and VectorDtype.has_type_for(kind):
        return VectorDtype.of(kind)

    return _PANDAS_TYPES.get(kind)


class VisibleText(ArrowStringArray):
    r"""A column of the dtype ``str`` that is shown with invisible characters escaped.

    >>> frame = pd.DataFrame({"error": ["safe" + chr(0x202E) + "gpj.exe"]}, dtype="str")
    >>> made_visible(frame).to_string(index=False, header=False), len(frame.error[0])
    ('safe\\u202egpj.exe', 12)
    """

    def _formatter(self, boxed: bool = False) -> Callable[[Any], str | None]:  # noqa: FBT001, FBT002 - pandas' own
        """Return the function that writes values in frames, series and arrays."""
        show = super()._formatter(boxed=boxed)  # type: ignore[misc]

        def shown(value: Any) -> str | None:
            text: str | None = show(value)
            if isinstance(text, str):
                return visible(text)

            return text

        return shown


class ExactText(VisibleText):
    """A column of the dtype ``str`` with exact values that are masked when pandas shows them.

    >>> frame = pd.DataFrame({"body": ["password=hunter2", None]}, dtype="str")
    >>> mask_where_shown(frame).body.str.len().tolist()
    [16.0, nan]
    >>> "hunter2" in repr(frame), frame.body[0]
    (False, 'password=hunter2')
    """

    def _formatter(self, boxed: bool = False) -> Callable[[Any], str | None]:  # noqa: FBT001, FBT002 - pandas' own
        """Return the function that writes values in frames, series and arrays."""
        show, mask = super()._formatter(boxed=boxed), Redactor().text
        width = pd.get_option("display.max_colwidth")

        def shown(value: Any) -> str | None:
            if isinstance(value, str):
                # masked before it is cut, so that no part of a secret is left
                visible_part = value
                if width is not None:
                    visible_part = value[: max(_MOST_MASKED, 2 * width)]
                value = mask(visible_part)

            text: str | None = show(value)
            return text

        return shown


def made_visible(frame: pd.DataFrame) -> pd.DataFrame:
    """Change a frame so that invisible characters of strings are escaped when they are shown.

    Return the frame.
    """
    for name in frame.columns:
        array = frame[name].array
        if type(array) is ArrowStringArray:
            values = VisibleText(array.__arrow_array__(), dtype=array.dtype)  # type: ignore[call-arg]
            frame[name] = pd.Series(values, index=frame.index, copy=False)

    return frame


def mask_where_shown(frame: pd.DataFrame) -> pd.DataFrame:
    """Change a frame so that exact columns are masked when they are shown. Return the frame."""
    for name in EXACT_COLUMNS.intersection(frame.columns):
        array = frame[name].array
        if type(array) is ArrowStringArray:
            values = ExactText(array.__arrow_array__(), dtype=array.dtype)  # type: ignore[call-arg]
            frame[name] = pd.Series(values, index=frame.index, copy=False)

    return frame


def frame_html(frame: pd.DataFrame) -> str | None:
    """Return the HTML of a frame for notebooks, without maths. Frames of the toolkit have rows of one line.

    JupyterLab renders TeX in cells, which could hide a link or a part of an error message. It also wraps
    text, so that a row of twenty columns is 90 pixels high, and aligns text at the right, so that the start
    of a long string is invisible. pandas has no option for this.

    >>> "mathjax_ignore" in frame_html(pd.DataFrame({"n": [1]}))
    True
    >>> "nowrap" in frame_html(pd.DataFrame({"dlq_id": ["a"]}))
    True
    """
    with pd.option_context("display.html.use_mathjax", False):
        html: str | None = frame._repr_html_()  # type: ignore[operator]
    if not html:
        return html

    # other frames and column names can also contain invisible characters
    html = visible(html)
    is_of_toolkit = "dlq_id" in frame.columns or bool(
        {"receipt", "queries"} & frame.attrs.keys()
    )
    if not is_of_toolkit:
        return html

    positions = _text_positions(frame, html)
    # one class per set of columns, because the styles of all frames of a page apply to all of them
    css_class = "tk-left" + "".join(f"-{position}" for position in positions)

    style = ""
    if positions:
        cells = ",".join(f":nth-child({position})" for position in positions)
        style = (
            f"<style>.{css_class} :is(th,td):is({cells}) {{text-align: left}}</style>"
        )

    return f'<div class="tk-frame {css_class}">{_STYLE}{style}{html}</div>'


def _text_positions(frame: pd.DataFrame, html: str) -> list[int]:
    """Return the positions of string columns in the HTML of a frame, from 1."""
    if frame.index.nlevels > 1:
        return []

    text_columns = {
        escape_html(str(name)) for name, dtype in frame.dtypes.items() if dtype == "str"
    }
    table_head = html.partition("</thead>")[0]
    headings = re.findall("<th>(.*?)</th>", table_head, re.DOTALL)

    return [
        position
        for position, heading in enumerate(headings, start=1)
        if heading in text_columns
    ]


def show_in_notebooks() -> None:
    """Make IPython, which is imported, show frames with `frame_html`, unless another function is registered.

    This applies to all frames, because a frame after a group-by or merge no longer shows its origin.
    """
    # None in a process that has IPython without a notebook or terminal of it
    formatter = getattr(sys.modules["IPython"].get_ipython(), "display_formatter", None)
    if formatter is None:
        return

    html = formatter.formatters["text/html"]
    try:
        html.lookup_by_type(pd.DataFrame)
    except KeyError:
        html.for_type(pd.DataFrame, frame_html)


def label_lists(column: pd.Series[str] | pa.Array | pa.ChunkedArray) -> pa.ListArray:
    """Return a column of labels (JSON text) as lists of strings, null if missing.

    >>> label_lists(pa.array(['["eu","beta"]', None])).to_pylist()
    [['eu', 'beta'], None]
    """

    def read(text: str) -> list[str]:
        try:
            return _LABELS.decode(text)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            expected = 'a JSON list of strings, for example ["eu","beta"]'
            raise unreadable_column("labels", text, expected) from None

    return each_distinct(texts_of(column), read, kind=pa.list_(pa.string()))


_READ_AS_TEXT: Final = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_null,
    pa.types.is_integer,
    pa.types.is_floating,
)


def texts_of(column: pd.Series[str] | pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column of strings or numbers as one Arrow array of strings, null if a value is missing."""
    try:
        texts: Any = column
        if isinstance(column, pd.Series):
            texts = pa.array(column, from_pandas=True)
        if isinstance(texts, pa.ChunkedArray):
            texts = texts.combine_chunks()
        if pa.types.is_dictionary(texts.type):
            texts = texts.dictionary_decode()
        if not any(fits(texts.type) for fits in _READ_AS_TEXT):
            raise TypeError
        return texts.cast(pa.string())
    except UNFIT:
        column_type = column.dtype if isinstance(column, pd.Series) else column.type
        raise InputError(
            "reading a column of text",
            got=f"values of the type {str(column_type)[:80]}",
            expected="strings or numbers, as in the frames of the toolkit",
        ) from None


def unreadable_column(column: str, text: str, expected: str) -> InputError:
    """Return the error for a JSON column with other text."""
    return InputError(
        f"exploding {column}",
        got=f"text of {len(text):,} characters in another form",
        expected=expected,
        next_step=f"Use the {column} column as load_failures returns it.",
    )
