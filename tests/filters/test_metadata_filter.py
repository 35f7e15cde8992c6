"""The metadata filter language: text to tree and back, and evaluation beside a plain implementation."""

from __future__ import annotations

import fnmatch
import functools
import itertools
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.filters.strategies import metadata_conditions, metadata_filters
from toolkit.errors import FilterSyntaxError, InputError
from toolkit.filters.glob_pattern import GlobPattern
from toolkit.filters.metadata import (
    And,
    Comparison,
    Contains,
    Glob,
    HasField,
    Membership,
    MetadataFilter,
    Or,
    parse,
)

NAMES = ["a", "b", "in", "and", "Not", "has", "field", "x-y", "_z9"]
fields = st.sampled_from(
    [*NAMES, "a.b", "a[0]", "a[#-1]", "a.b[1].c", "a[0][#-2]", "b.in"]
)
scalars = st.one_of(
    st.booleans(),
    st.integers(-3, 3),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["", "x", "ab", "it's", 'say "x"', "*", "1", "true", "\\"]),
    st.text(max_size=6),
)
patterns = st.text(st.sampled_from("ab*?"), max_size=8) | st.sampled_from(
    ["[ab]*", "[^a]b", "[a-c]?", "[]x]", "[*]"]
)
trees = metadata_filters(metadata_conditions(fields, scalars, patterns), most=8)
documents = st.recursive(
    st.none() | scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*NAMES, "c"]), inner, max_size=4)
    ),
    max_leaves=10,
)
metadata = st.none() | st.dictionaries(st.sampled_from(NAMES), documents, max_size=6)


@given(trees)
def test_text_and_tree_are_the_same(tree: MetadataFilter) -> None:
    """The text of any tree parses to an equal tree, and its own text is the same again."""
    again = parse(tree.text())
    assert again == tree
    assert again.text() == tree.text()
    assert again.fields() == tree.fields()


@given(
    st.lists(
        st.sampled_from(
            [
                "HAS NOT FIELD a",
                "x-y NOT IN (1, true)",
                "b.c CONTAINS false",
                "a NOT GLOB 'x*'",
                "HAS FIELD b",
            ]
        ),
        min_size=1,
        max_size=4,
    ),
    st.lists(st.sampled_from([" AND ", " OR "]), min_size=3, max_size=3),
    st.sampled_from([str.lower, str.title, str.swapcase]),
    st.sampled_from([" ", "  ", "\n\t", "\r\n"]),
)
def test_case_and_space_do_not_matter(
    parts: list[str], joints: list[str], change: Callable[[str], str], space: str
) -> None:
    """Operators and booleans in any case, and any white space between words, mean the same."""
    text = "".join(itertools.chain(*zip(parts, joints, strict=False)))
    text = text.removesuffix(" AND ").removesuffix(" OR ")
    words = [
        change(word) if word.strip("(),").isalpha() and len(word) > 1 else word
        for word in text.split(" ")
    ]
    assert parse(space.join(words)) == parse(text)


MISSING = object()


def naive_get(document: Any, field: str) -> Any:
    """The value at a field, character by character."""
    value: Any = document
    for dotted in field.split("."):
        name, *places = dotted.replace("]", "").split("[")
        if not isinstance(value, dict) or name not in value:
            return MISSING
        value = value[name]
        for index in places:
            if not isinstance(value, list):
                return MISSING
            number = (
                len(value) - int(index[2:]) if index.startswith("#-") else int(index)
            )
            if number < 0 or number >= len(value):
                return MISSING
            value = value[number]
    return value


def kind(value: Any) -> str:
    return (
        "text"
        if isinstance(value, str)
        else "number"
        if isinstance(value, bool | int | float)
        else "other"
    )


def naive_equal(one: Any, other: Any) -> bool:
    return kind(one) == kind(other) != "other" and one == other


def naive_glob(text: str, pattern: str) -> bool:
    """GLOB by the standard library, whose only other spelling is "!" for "^" in sets."""
    return fnmatch.fnmatchcase(text, pattern.replace("[^", "[!"))


def naive_matches(tree: MetadataFilter, document: Any) -> bool:  # noqa: PLR0911 - one return a kind
    """The rules of the language, one after the other, from the tree's public parts."""
    match tree:
        case And(parts):
            return all(naive_matches(part, document) for part in parts)
        case Or(parts):
            return any(naive_matches(part, document) for part in parts)
        case HasField(field, negated):
            return (naive_get(document, field) is MISSING) is negated
    value = naive_get(document, tree.field)  # type: ignore[attr-defined]
    if value is MISSING or value is None:
        return False
    match tree:
        case Comparison(_, "=", wanted):
            return naive_equal(value, wanted)
        case Comparison(_, "!=", wanted):
            return not naive_equal(value, wanted)
        case Comparison(_, op, wanted):
            if kind(value) != kind(wanted):
                return False
            return {
                "<": value < wanted,
                "<=": value <= wanted,
                ">": value > wanted,
                ">=": value >= wanted,
            }[op]
        case Membership(_, values, negated):
            return negated is not any(naive_equal(value, wanted) for wanted in values)
        case Contains(_, wanted, negated):
            inside = isinstance(value, list) and any(
                naive_equal(item, wanted) for item in value
            )
            return negated is not inside
        case Glob(_, pattern, negated):
            return negated is not (
                isinstance(value, str) and naive_glob(value, pattern)
            )
    raise AssertionError(tree)


@pytest.mark.slow
@settings(max_examples=600, deadline=None)
@given(trees, metadata)
def test_evaluation_follows_the_rules(tree: MetadataFilter, document: Any) -> None:
    """On generated trees and documents, the filter agrees with a plain reading of the rules."""
    assert tree.matches(document) is naive_matches(tree, document)


@settings(max_examples=500)
@given(
    st.text(st.sampled_from("ab*?"), max_size=12)
    | st.lists(st.sampled_from(["a", "*", "?", "[ab]", "[^b]", "[a-c]"])).map("".join),
    st.text(st.sampled_from("abcd\n"), max_size=12),
)
@example("a*a", "a")
@example("ab*bc", "abc")
@example("a*b*", "ab")
def test_glob_agrees_with_the_standard_library(pattern: str, text: str) -> None:
    """Patterns match what the standard library's own matcher says."""
    assert GlobPattern(pattern).matches(text) is naive_glob(text, pattern)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            ["a", "b", "*", "?", "[ab]", "[^b]", "[a-c]", "\u00e9", "[^\u00e9]"]
        )
    ).map("".join),
    st.text(st.sampled_from("abcd\n\u00e9\U0001f600\ud800"), max_size=40),
)
@example("*ab?*[^b]", "aab\ud800b")
def test_glob_agrees_on_any_characters_in_short_and_long_texts(
    pattern: str, text: str
) -> None:
    """Patterns match characters of any plane and lone surrogates, by the expression and at all positions."""
    expected = naive_glob(text, pattern)
    assert GlobPattern(pattern).matches(text) is expected
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("toolkit.filters.glob_pattern._MOST_STEPS", -1)
        assert GlobPattern(pattern).matches(text) is expected


@pytest.mark.parametrize(
    ("text", "document", "expected"),
    [
        ("city = 'Izmir'", {"city": "Izmir"}, True),
        ("city = 'Izmir'", {"city": "izmir"}, False),
        ("city = 'Izmir'", {}, False),
        ("city != 'Izmir'", {}, False),
        ("city != 'Izmir'", {"city": None}, False),
        ("city != 'Izmir'", {"city": 5}, True),
        ("n < '5'", {"n": 4}, False),
        ("n = true AND n >= 1", {"n": 1}, True),
        ("flag = 1", {"flag": True}, True),
        ("n = 9007199254740993", {"n": 9007199254740992}, False),
        ("a = 1 OR a = 2 AND b = 3", {"a": 1}, True),
        ("(a = 1 OR a = 2) AND b = 3", {"a": 1}, False),
        (
            "deep.list[#-1].x IN (1, 'z')",
            {"deep": {"list": [{"x": 0}, {"x": "z"}]}},
            True,
        ),
        ("HAS FIELD a[5]", {"a": [1]}, False),
        ("HAS FIELD a", {"a": None}, True),
        ("HAS NOT FIELD a", {}, True),
        ("HAS NOT FIELD a", None, True),
        ("tags CONTAINS 'x'", {"tags": ["y", "x"]}, True),
        ("tags NOT CONTAINS 'x'", {"tags": ["y"]}, True),
        ("tags NOT CONTAINS 'x'", {}, False),
        ("tags CONTAINS 'x'", {"tags": "x"}, False),
        ("name GLOB 'A*[0-9]'", {"name": "Alpha7"}, True),
        ("name GLOB 'a*'", {"name": "Alpha"}, False),
        ("name NOT GLOB 'a*'", {"name": "Alpha"}, True),
        ("name GLOB '[^a-z]?'", {"name": "-x"}, True),
        ("name = 'it''s' or name = \"a\"\"b\"", {"name": 'a"b'}, True),
        ("n NOT IN (1, 2)", {"n": 3}, True),
        ("n = 1e3", {"n": 1000}, True),
        ("n > -.5", {"n": 0}, True),
        ("in NOT IN ('and')", {"in": "or"}, True),
    ],
)
def test_the_language_by_example(text: str, document: Any, expected: object) -> None:
    """Each operator, its missing fields, its types and its precedence."""
    assert parse(text).matches(document) is expected


@pytest.mark.parametrize(
    ("text", "position", "says"),
    [
        ("", 0, "got the end; expected a field"),
        ("a = ", 4, "text in quotes, a number, true or false"),
        ("a == 1", 3, "single '='"),
        ("a <> 1", 3, "!="),
        ("not a = 1", 4, "NOT follows the field"),
        ("a = 1 AND", 9, "got the end"),
        ("(a = 1", 6, "')'"),
        ("a = 1)", 5, "got ')'"),
        ("a = 1 b = 2", 6, "AND or OR"),
        ("a = 'it's'", 8, "got 's'"),
        ("a = 'open", 4, "A quote inside text is written twice"),
        ("a = 1 && b = 2", 6, "Write AND"),
        ("a LIKE 'x'", 2, "GLOB"),
        ("a IN ()", 6, "text in quotes"),
        ("a GLOB 5", 7, "text in quotes"),
        ("a GLOB 'x[y'", 7, "not closed"),
        ("a GLOB '[z-a]'", 7, "range z-a"),
        ("a = 1 AND b..c = 2", 10, "joined by dots"),
        ("a[-1] = 2", 0, "joined by dots"),
        ("a[#-0] = 2", 0, "[#-1]"),
        ("a = 1e999", 4, "finite"),
        ("a = " + "9" * 5000, 4, "at most 400"),
        ("é = 1", 0, "got 'é'"),
        ("a = null", 4, "got 'null'"),
        ("(" * 1000 + "a = 1" + ")" * 1000, 100, "100 deep"),
        ("a = '" + "x" * 70_000 + "'", 65_536, "at most 65536"),
        ("a GLOB '" + "x" * 1001 + "'", 7, "at most 1000"),
    ],
)
def test_errors_say_where_and_what(text: str, position: int, says: str) -> None:
    """Each mistake has its position, what is there, what was expected, and sometimes a hint; short."""
    with pytest.raises(FilterSyntaxError) as caught:
        parse(text)
    assert caught.value.position == position
    assert caught.value.text == text
    assert says in str(caught.value)
    assert len(str(caught.value)) < 400


@given(
    st.text(st.sampled_from("ab=<>!()'\"[].#-*,1eE \n&") | st.characters(), max_size=40)
)
def test_any_text_parses_or_is_a_syntax_error(text: str) -> None:
    """No text makes the parser fail in another way."""
    index = 0
    try:
        tree = parse(text)
    except FilterSyntaxError as error:
        index = error.position
    else:
        assert parse(tree.text()) == tree
    assert 0 <= index <= len(text)


def test_hundred_parentheses_are_fine_and_vanish() -> None:
    """Parentheses as deep as allowed are read, and redundant ones leave no trace."""
    assert parse("(" * 100 + "a = ')('" + ")" * 100) == Comparison("a", "=", ")(")


def test_wide_filters_are_read() -> None:
    """Thousands of conditions side by side are no depth."""
    tree = parse(" OR ".join(f"a = {number}" for number in range(5000)))
    assert tree.depth == 2
    assert tree.matches({"a": 4999})


def test_depth_is_bounded_for_trees_made_by_hand() -> None:
    """Combining without end is an InputError, not a RecursionError."""
    item = Comparison("a", "=", 1)

    def combine(tree: MetadataFilter, turn: int) -> MetadataFilter:
        return tree | item if turn % 2 else tree & item

    with pytest.raises(InputError, match="at most 100 deep"):
        functools.reduce(combine, range(1000), item)
    assert functools.reduce(MetadataFilter.__and__, [item] * 1000).depth == 2


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("*a" * 20 + "*b", "a" * 48_000),
        ("*?" * 200 + "b", "a" * 48_000),
        ("*[ab]" * 100 + "c", "ab" * 24_000),
        ("*" + "[ab]" * 240 + "c*", "ab" * 24_000),
        ("*" + "?" * 499 + "a" * 498 + "b*", "a" * 48_000),
        ("*[" + "".join(map(chr, range(1024, 2014))) + "]a*", "a" * 48_000),
    ],
    ids=["letters", "any", "classes", "long class run", "many any", "large class"],
)
def test_glob_takes_a_few_steps_per_letter(pattern: str, text: str) -> None:
    """Any pattern takes at most the time of some loops over the text; a backtracking matcher never ends."""
    compiled = GlobPattern(pattern)

    def seconds(call: Callable[[], object]) -> float:
        start = time.process_time()
        for _ in range(4):
            call()
        return time.process_time() - start

    assert not compiled.matches(text)
    loop = min(seconds(lambda: [ord(letter) for letter in text]) for _ in range(3))
    assert min(seconds(lambda: compiled.matches(text)) for _ in range(3)) < 30 * loop


@pytest.mark.parametrize(
    "make",
    [
        lambda: Comparison("a", "==", 1),  # type: ignore[arg-type]
        lambda: Comparison("a", "=", None),  # type: ignore[arg-type]
        lambda: Comparison("a", "=", float("nan")),
        lambda: Comparison("a b", "=", 1),
        lambda: Comparison(5, "=", 1),  # type: ignore[arg-type]
        lambda: Membership("a", ()),
        lambda: Membership("a", ["x"]),  # type: ignore[arg-type]
        lambda: Glob("a", 5),  # type: ignore[arg-type]
        lambda: And((Comparison("a", "=", 1),)),
        lambda: Or((Comparison("a", "=", 1), "b = 2")),  # type: ignore[arg-type]
        lambda: parse(5),  # type: ignore[arg-type]
    ],
)
def test_trees_that_cannot_be_are_refused(make: Any) -> None:
    """Values made by hand are checked like text."""
    with pytest.raises(InputError):
        make()


def test_combining_and_fields() -> None:
    """`&` and `|` join, groups of one kind flatten, parentheses stand where needed, fields come once."""
    a, b, c = (HasField(name) for name in "abc")
    assert ((a & b) & c) == And((a, b, c)) == (a & (b & c))
    assert ((a | b) & c).text() == "(HAS FIELD a OR HAS FIELD b) AND HAS FIELD c"
    assert ((a & b) | c).text() == "HAS FIELD a AND HAS FIELD b OR HAS FIELD c"
    assert ((a & b) | (c & a)).fields() == ("a", "b", "c")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.int64(3), "3"),
        (np.float64(0.5), "0.5"),
        (np.float32(0.5), "0.5"),
        (np.bool_(True), "true"),
        (np.str_("it's"), "'it''s'"),
    ],
)
def test_values_of_arrays_are_written_as_plain_ones(value: Any, text: str) -> None:
    """A value taken from an array or a frame makes the same filter as Python's own."""
    for tree in (
        Comparison("a", "=", value),
        Membership("a", (value,)),
        Contains("a", value),
    ):
        assert text in tree.text()
        assert parse(tree.text()) == tree
