"""Results are remembered without changing them, and no quick search misses what a slow one finds."""

from __future__ import annotations

import re
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkit.signatures import codes, frame_names, placeholders, traces, word_values
from toolkit.signatures.reading import read_document
from toolkit.signatures.remembering import Memo
from toolkit.signatures.traces import stack_trace

PARTS_OF_TIMES = (
    "1", "12", "3", "2026", "20260102", "Jan", "May", "Sept", "Monday", " ", ", ", "-", "/", ".", ":", "_",
    "T", "Z", "+02:00", "AM", "x", "[", "03:10", "03:10:59.123", "10.0.0.1", "3rd",
)  # fmt: skip


PARTS_OF_FRAMES = (
    "at ", "\n", " ", "\t", "\r\n", "a.b.Run.x(Run.java:1)", "f (/a.js:1:2)", "System.IO.File.Open(", "that ",
    "a.b.X.y(Native Method)", "Error: no price", "f() in /a.cs:line 7",
)  # fmt: skip


PARTS_BEFORE_CODES = (
    "status", "Status", "code", "_", " ", "exit", "exited", "with", "return", "rc", "errno", "err", "error",
    "number", "no", "signal", "HTTP", "/1", ".1", "SQLSTATE", "sql", "responded", "代码", "код", "'", '"',
    "=", ":", "[", "#", "-", "x", "(",
)  # fmt: skip


PARTS_OF_DOTTED_NAMES = (
    "com", "java", "lang", "Error", "log", "json", "io", "ab", "fe", ".", "..", "$", "-", "_", ",", "(", "]",
    "'", ":", "Foo", "\u00e9", "so", "a",
)  # fmt: skip


PARTS_OF_NAMES = (
    "com", "acme", "Base64", "run", "_x", ".", "..", "$", "$1", "lambda$", ".func1", ".func", ".gowrap2",
    ".MoveNext", "::", "<", ">", "7", "block in ", "async ", " ", "-", "[", "\u00e9",
)  # fmt: skip


@given(st.lists(st.sampled_from(PARTS_OF_NAMES), max_size=6).map("".join))
def test_a_plain_name_has_no_generated_part(name: str):
    """A name that is told to be plain by one pattern is left as it is by the patterns of generated parts."""
    if frame_names._PLAIN_NAME.fullmatch(name):
        without_parts = frame_names._GENERATED.sub("", name)
        assert frame_names._DOTS.sub("", without_parts).strip() == name


@pytest.mark.parametrize(
    "name", ["run", "com.acme.Orders.total", "Base64.decode", "_x.y2"]
)
def test_usual_names_are_plain(name: str):
    """Most names of Java are told to be plain, so that the slow patterns are not tried."""
    assert frame_names._PLAIN_NAME.fullmatch(name)
    assert frame_names.plain_name(name) == name


def test_a_memo_computes_each_short_string_once():
    """A known string is looked up, and a long one is computed again."""
    computed: list[str] = []

    def length(text: str) -> int:
        computed.append(text)
        return len(text)

    memo = Memo(length, longest=5)
    assert list(map(memo.__getitem__, ["ab", "ab", "a long one", "a long one"])) == [
        2,
        2,
        10,
        10,
    ]
    assert computed == ["ab", "a long one", "a long one"]


def test_a_full_memo_begins_again():
    """The number of remembered strings is bounded."""
    memo = Memo(len, most=10)
    assert [memo[str(number)] for number in range(100)] == [1] * 10 + [2] * 90
    assert len(memo) <= 10


@given(st.lists(st.sampled_from(PARTS_OF_FRAMES), max_size=10).map("".join))
def test_a_frame_is_found_as_by_the_whole_pattern(text: str):
    """The search at one place per line finds a frame if the pattern matches at the start of a line."""
    patterns = [
        language.is_sign.args[0]
        for language in traces._LANGUAGES
        if isinstance(language.is_sign, partial)
    ]
    assert len(patterns) >= 5
    for pattern in patterns:
        at_start_of_line = re.compile(f"^{pattern.pattern}", re.MULTILINE)
        has_frame = at_start_of_line.search(text) is not None
        assert traces._has_frame(pattern, text) == has_frame


@given(st.lists(st.sampled_from(PARTS_BEFORE_CODES), min_size=1, max_size=6))
def test_every_word_before_a_code_is_found_by_itself(parts: list[str]):
    """If words take a code after them, the last of them is one that may precede a code."""
    words = "".join(parts).split()
    if words and codes.TAKE_CODE[" ".join([*words[-2:], ""])]:
        assert codes.MAY_PRECEDE_CODE[words[-1]]


@given(st.lists(st.sampled_from(PARTS_OF_TIMES), max_size=8).map("".join))
def test_every_time_has_a_part_that_is_searched_first(text: str):
    """The search that saves the slow pattern of times misses none."""
    if placeholders._TIMES.search(text):
        assert placeholders._MAY_BE_TIME.search(text)


@pytest.mark.parametrize(
    "word", ["7", "1,024", "0x7ffe", "job-17", "00:1a:2b:3c:4d:5e", "0b7c1f0e-55a1-4b7e-9f13-2c8e6a90d1f4",
             "deadbeefcafe01", "a_1-b", "x=7", "+5%", "#12", "v2", "sha256"],
)  # fmt: skip
def test_simple_words_are_read_as_by_the_whole_pattern(word: str):
    """A word without signs of places has the same placeholders by the shorter pattern."""
    by_whole_pattern = word_values._VALUES.sub(word_values._placeholder, word)
    simple = word_values._VALUES_OF_SIMPLE_WORD
    assert simple.sub(word_values._placeholder, word) == by_whole_pattern


@pytest.mark.parametrize(
    "word", ["7", "(42)", "[1.25],", "10.0.0.5", "(/10.0.0.5:80);", "order_17", "[blk_-42]", "ab_c-d_0x,",
             "0b7c1f0e-55a1-4b7e-9f13-2c8e6a90d1f4,", "1234567", "((7", "-8768,", "#12", "17:",
             "(1204).", "35ms", "0.5s.", "job-17", "utf-8", "latin-1:", "10.0.0.5:", "+5.",
             "https://a.example/x?q=17", "(redis://10.0.0.5:6379/0).", "https://a.example/x,"],
)  # fmt: skip
def test_usual_values_are_read_as_by_the_whole_pattern(word: str):
    """A word of a usual form has the same placeholder by the pattern that is tried first."""
    assert word_values._USUAL_VALUE.fullmatch(word)
    assert word_values._masked(word) == word_values._replace_values(word)


@given(st.lists(st.sampled_from(PARTS_OF_DOTTED_NAMES), min_size=1).map("".join))
def test_dotted_names_have_no_value(name: str):
    """A dotted name that is told to be no value by two quick patterns has none by the whole pattern."""
    is_name = word_values._DOTTED_NAME.fullmatch(name)
    if is_name and not word_values._ENDS_OF_PLACES.search(name):
        assert word_values._VALUES.search(name) is None


@pytest.mark.parametrize(
    "name", ["java.lang.Error:", "`com.acme.Orders$Item`", "report.csv", "db.internal:"]
)
def test_dotted_names_are_told_from_files_and_hosts(name: str):
    """Classes are no values; a file and a host are."""
    is_place = word_values._ENDS_OF_PLACES.search(name) is not None
    assert is_place == ("<" in word_values._masked(name))


@pytest.mark.parametrize("part", ["a.b", "a-b", "a=", "1.2", 'k="v'])
def test_a_word_of_any_length_takes_a_bounded_time(part: str):
    """Of a long word, only the start is read, because patterns look for signs in the whole word."""
    long_word = part * 33_000
    masked = placeholders.with_placeholders(f"data {long_word} refused")
    assert masked.startswith("data ")
    assert masked.endswith(" refused")
    assert len(masked) < 2_000


def test_a_document_carries_its_trace():
    """The trace of a body is read once; documents of other bodies have none."""
    body = 'Traceback (most recent call last):\n  File "/app/a.py", line 1, in total\nKeyError: 7'
    assert read_document(body).trace == stack_trace(body)
    assert read_document("no price").trace is None


def test_the_trace_of_a_page_is_compared():
    """The frames of an error page are the frames of the trace in it."""
    page = (
        "<!DOCTYPE html>\n<title>Error</title><pre>TypeError: no price<br> &nbsp; &nbsp;at priceOf "
        "(/srv/app/price.js:3:7)<br> &nbsp; &nbsp;at main (/srv/app/main.js:1:1)</pre>"
    )
    trace = read_document(page).trace
    assert trace is not None
    assert trace.frames == ("price.priceOf", "main.main")
