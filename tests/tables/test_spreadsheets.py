"""Workbooks and flat frames: nothing becomes a formula, nothing is lost in silence."""

from __future__ import annotations

import csv
import gc
import sys
import warnings
from pathlib import PurePosixPath
from types import FrameType

import openpyxl
import pandas as pd
import pyarrow as pa
import pytest

import toolkit as tk
from toolkit.errors import InputError, SettingsError, UnexpectedResultWarning
from toolkit.tables.frames import frame_from_rows
from toolkit.tables.schemas import FAILURES


def cells(path, sheet="data"):
    """The cells below the heads."""
    return list(openpyxl.load_workbook(path)[sheet].iter_rows(min_row=2))


def test_text_like_a_formula_stays_text(tmp_path):
    """Every such text is a text in the workbook, as it was, and is marked to stay one when it is edited."""
    texts = [
        "=1+1",
        "+1",
        "-1",
        "@SUM(A1)",
        "\t=1",
        "\r=1",
        "=cmd|' /C calc'!A0",
        "#N/A",
        "＝1",  # noqa: RUF001
        "plain",
    ]
    frame = pd.DataFrame({"=head": texts})
    tk.export_excel(frame, tmp_path / "a.xlsx")
    found = [row[0] for row in cells(tmp_path / "a.xlsx")]
    assert {cell.data_type for cell in found} == {"s"}
    assert [cell.value for cell in found] == [
        text.replace("\r", "\n") for text in texts
    ]
    assert [cell.quotePrefix for cell in found] == [
        text[0] in "=+-@\t\r＝"  # noqa: RUF001
        for text in texts
    ]
    assert openpyxl.load_workbook(tmp_path / "a.xlsx")["data"]["A1"].data_type == "s"


def test_values_that_excel_cannot_hold_are_written_visibly(tmp_path):
    """Large numbers, early times, infinity and control characters are text; times are UTC without a zone."""
    frame = pd.DataFrame(
        {
            "large": pd.array([2**53 + 1, None], dtype="Int64"),
            "time": pd.to_datetime(
                ["2026-03-01T12:00+02:00", "1850-01-01T00:00Z"],
                utc=True,
                format="ISO8601",
            ),
            "float": [float("inf"), float("nan")],
            "text": ["bell\x07", None],
        }
    )
    tk.export_excel(frame, tmp_path / "a.xlsx")
    first, second = ([cell.value for cell in row] for row in cells(tmp_path / "a.xlsx"))
    assert first == [
        str(2**53 + 1),
        pd.Timestamp("2026-03-01T10:00").to_pydatetime(),
        "inf",
        "bell\\x07",
    ]
    assert second == [None, "1850-01-01T00:00:00+00:00", None, None]
    assert (tmp_path / "a.xlsx").stat().st_mode & 0o077 == 0


def test_truncated_texts_are_named(tmp_path):
    """A text longer than a cell is truncated with a warning, and a sheet says which and how long it was."""
    frame = pd.DataFrame({"id": ["a", "b"], "body": ["x" * 32_767, "y" * 40_000]})
    with pytest.warns(UnexpectedResultWarning, match="body in row 3"):
        tk.export_excel(frame, tmp_path / "a.xlsx")
    values = [[cell.value for cell in row] for row in cells(tmp_path / "a.xlsx")]
    assert values[0][1] == "x" * 32_767
    assert values[1][1] == "y" * 32_766 + "…"
    noted = [
        [cell.value for cell in row] for row in cells(tmp_path / "a.xlsx", "truncated")
    ]
    assert noted == [[3, "body", 40_000]]
    assert frame["body"].str.len().tolist() == [32_767, 40_000]


def test_a_workbook_that_is_not_written_leaves_nothing_open(tmp_path):
    """Neither a warning as an error nor a missing folder leaves a file for the garbage collector to close."""
    frame = pd.DataFrame({"a": ["x" * 40_000]})
    with (
        pytest.raises(UnexpectedResultWarning),
        warnings.catch_warnings(action="error"),
    ):
        tk.export_excel(frame, tmp_path / "a.xlsx")
    with pytest.raises(InputError, match=r"a.xlsx.*: .* a file in an existing folder"):
        tk.export_excel(frame[:0], tmp_path / "missing" / "a.xlsx")
    gc.collect()  # pytest makes an error of what complains here
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """An empty folder for temporary files."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


def test_no_row_is_left_in_the_temporary_folder(tmp_path, temporary):
    """Neither after a workbook is written, nor after an error, a folder that is missing, or an interrupt."""
    frame = pd.DataFrame({"a": ["x" * 40_000, "y"]})
    with pytest.warns(UnexpectedResultWarning):
        tk.export_excel(frame, tmp_path / "a.xlsx")
    assert list(temporary.iterdir()) == []

    with (
        pytest.raises(UnexpectedResultWarning),
        warnings.catch_warnings(action="error"),
    ):
        tk.export_excel(frame, tmp_path / "b.xlsx")
    assert list(temporary.iterdir()) == []

    with pytest.raises(InputError, match="missing"):
        tk.export_excel(frame[1:], tmp_path / "missing" / "b.xlsx")
    assert list(temporary.iterdir()) == []

    def interrupt(written: int, rows: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tk.export_excel(frame[1:], tmp_path / "b.xlsx", progress=interrupt)
    assert list(temporary.iterdir()) == []
    assert [path.name for path in tmp_path.glob("*.xlsx")] == ["a.xlsx"]


@pytest.mark.parametrize(
    "function",
    ["write_top", "write_row", "etree_write_cell", "write_tail", "write_worksheet"],
)
def test_an_interrupt_within_openpyxl_leaves_no_row(tmp_path, temporary, function):
    """At the start of a sheet, within a row, at the end of a sheet and within the workbook."""

    def interrupt(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_name == function:
            sys.settrace(before)
            raise KeyboardInterrupt

    rows = pd.DataFrame({"a": ["x", "y"]})
    before = sys.gettrace()
    sys.settrace(interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            tk.export_excel(rows, tmp_path / "a.xlsx")
    finally:
        sys.settrace(before)

    assert list(temporary.iterdir()) == []
    assert not list(tmp_path.glob("*.xlsx"))


def test_without_openpyxl_the_error_names_the_command(tmp_path, monkeypatch):
    """Without the extra the error says what to install, and no file is left."""
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(SettingsError, match="pip install"):
        tk.export_excel(pd.DataFrame({"a": [1]}), tmp_path / "a.xlsx")
    assert not list(tmp_path.iterdir())


def test_vectors_become_columns_or_text():
    """As many columns as the longest vector has; a column that is there already is not replaced."""
    frame = pd.DataFrame(
        {"id": ["a", "b"], "v": pd.array([[0.1, 2], [3]], dtype="vector[float32]")}
    )
    flat = tk.flatten(frame, vectors="columns")
    assert flat.columns.tolist() == ["id", "v_0", "v_1"]
    assert flat["v_0"].tolist() == [0.1, 3.0]
    assert flat["v_1"].isna().tolist() == [False, True]
    assert tk.flatten(frame)["v"].tolist() == ["[0.1,2.0]", "[3.0]"]
    with pytest.raises(InputError, match="v_0"):
        tk.flatten(frame.assign(v_0=1), vectors="columns")
    with pytest.raises(InputError, match="'text' or 'columns'"):
        tk.flatten(frame, vectors="lists")


FORMULAS = [
    *(
        "=1+1",
        "+1",
        "-1+2",
        "@SUM(A1)",
        "\t=1",
        "\r=1",
        "\n=1",
        *(
            f"{sign}1" for sign in "\uff1d\uff0b\uff0d\uff20\ufe66\ufe62\ufe63\ufe6b"
        ),  # full-width and small forms
        *(
            f"{unseen}=1"
            for unseen in "\u00ad\u034f\u061c\u202e\u2066\ufe0f\u0301\u180e"
        ),
        "  =1",
        "\u200b=1",
        "\ufeff=1",
    ),
    *("=cmd|' /C calc'!A0", '=HYPERLINK("https://evil.example","x")', "-", "\xa0=1"),
]
PLAIN = [
    "a",
    "a=b",
    "1-2",
    "",
    'say "x", y',
    "two\nlines",
    "'quoted",
    "Zürich 漢字",
    "https://a.example/?a=b",
]


def test_no_text_of_a_csv_file_is_a_formula(tmp_path):
    """Read back, each text that a spreadsheet would read as a formula has a sign in front, and no other."""
    frame = pd.DataFrame(
        {"=name": FORMULAS, "n": range(len(FORMULAS)), "x": [-1.5] * len(FORMULAS)}
    )
    before = frame.copy(deep=True)
    tk.export_csv(frame, tmp_path / "a.csv")
    pd.testing.assert_frame_equal(frame, before)
    found = pd.read_csv(tmp_path / "a.csv", keep_default_na=False)
    assert list(found.columns) == ["'=name", "n", "x"]
    assert [text[0] for text in found["'=name"]] == ["'"] * len(FORMULAS)
    read = [text.replace("'", "") for text in found["'=name"]]
    assert read == [text.replace("\r", "\n").replace("'", "") for text in FORMULAS]
    assert (found["n"].tolist(), found["x"][0]) == (list(range(len(FORMULAS))), -1.5)
    tk.export_csv(pd.DataFrame({"a": PLAIN}), tmp_path / "b.csv")
    assert pd.read_csv(tmp_path / "b.csv", keep_default_na=False)["a"].tolist() == PLAIN


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_no_cell_is_a_formula_whichever_separator_is_expected(tmp_path, separator):
    """Where a quote within a row begins nothing, a cell begins after each separator and each line end."""
    texts = [
        f"a{sign}{between}=1+1{sign}b"
        for sign in (";", "\t", "|", "\n", "\r\n", '";')
        for between in ("", " ", "\u200b", '"', "\t", ";")
    ]
    frame = pd.DataFrame(
        {"a": "x", texts[0]: texts, "lists": [[text] for text in texts]}
    )
    tk.export_csv(frame, tmp_path / "a.csv")
    with (tmp_path / "a.csv").open(encoding="utf-8-sig", newline="") as file:
        found = [cell for row in csv.reader(file, delimiter=separator) for cell in row]
    assert len(found) > len(texts)
    assert not [cell for cell in found if cell.lstrip(' "\u200b').startswith("=")]
    back = pd.read_csv(tmp_path / "a.csv")
    assert back.shape == frame.shape
    assert [text.replace("'", "") for text in back.iloc[:, 1]] == [
        text.replace("\r", "") for text in texts
    ]


@pytest.mark.parametrize(
    "column",
    [
        pd.array(["=1"], dtype="string[python]"),
        pd.array(["=1"], dtype="string[pyarrow]"),
        pd.array(["=1"], dtype=pd.ArrowDtype(pa.string())),
        pd.array(["=1"], dtype=pd.ArrowDtype(pa.large_string())),
        pd.array(["=1"], dtype=pd.ArrowDtype(pa.dictionary(pa.int32(), pa.string()))),
        pd.Categorical(["=1"]),
        pd.arrays.SparseArray(["=1"]),
        pd.Series(["=1"], dtype=object),
        pd.Series([PurePosixPath("=1")], dtype=object),
        pd.Series([ValueError("=1")], dtype=object),
    ],
    ids=lambda column: f"{column.dtype} {type(column[0]).__name__}",
)
def test_no_kind_of_column_holds_a_formula(tmp_path, column):
    """Of texts by whichever type, and of objects that are written as texts; of names in levels as well."""
    frame = pd.DataFrame({"a": column, "b": [-1]})
    frame.columns = pd.MultiIndex.from_tuples([("=a", "=b"), ("c", "d")])
    tk.export_csv(frame, tmp_path / "a.csv")
    found = pd.read_csv(tmp_path / "a.csv")
    assert found.to_numpy().tolist() == [["'=1", -1]]
    assert found.columns.tolist() == ["('=a', '=b')", "('c', 'd')"]


def test_a_csv_file_of_failures_reads_back(tmp_path):
    """The same rows and columns, private, recognised as UTF-8; no folder is an error that says so."""
    rows = [
        {"dlq_id": "a", "response_body": '{"error": "=1"}'},
        {"dlq_id": "-b", "response_body": "@x"},
    ]
    frame = frame_from_rows(rows, FAILURES)
    path = tmp_path / "a.csv"
    tk.export_csv(frame, path)
    found = pd.read_csv(path)
    assert list(found.columns) == list(frame.columns)
    assert found["dlq_id"].tolist() == ["a", "'-b"]
    assert found["response_body"].tolist() == ['{"error": "=1"}', "'@x"]
    assert path.read_bytes().startswith("\ufeff".encode())
    assert path.stat().st_mode & 0o777 == 0o600
    tk.export_csv(frame[:0], path)
    assert list(pd.read_csv(path).columns) == list(frame.columns)
    vectors = pd.DataFrame({"v": pd.array([[1, 2], None], dtype="vector[float32, 2]")})
    tk.export_csv(vectors, path)
    assert pd.read_csv(path)["v"].tolist()[0] == "[1.0,2.0]"
    with pytest.raises(InputError, match="folder"):
        tk.export_csv(frame, tmp_path / "missing" / "a.csv")
    with pytest.raises(InputError, match="path"):
        tk.export_csv(frame, "")
