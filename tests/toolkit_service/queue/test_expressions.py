"""Retry-Delay expressions and durations, compared with plain Python; and malformed ones."""

from __future__ import annotations

import contextlib
import math
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolkit.base.times import delay_ms, duration_ms
from toolkit.errors import InputError
from toolkit_service.queue.publishing import MAX_EXPRESSION, RetryDelay

NUMBERS = st.integers(0, 999).map(str) | st.floats(0, 999).map(
    lambda value: f"{value:.3f}"
)
ONE = st.sampled_from(["sqrt", "abs", "exp", "floor", "ceil", "round"])
SEVERAL = st.sampled_from(["min", "max"])


def wider(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Expressions around smaller ones."""
    pair = st.tuples(inner, inner)
    return st.one_of(
        st.tuples(inner, st.sampled_from("+-*/"), inner).map(" ".join),
        inner.map("({})".format),
        inner.map("-{}".format),
        st.tuples(ONE, inner).map(lambda parts: f"{parts[0]}({parts[1]})"),
        st.tuples(SEVERAL, st.lists(inner, min_size=1, max_size=3)).map(
            lambda p: f"{p[0]}({', '.join(p[1])})"
        ),
        pair.map(lambda parts: f"pow({parts[0]}, {parts[1]})"),
    )


EXPRESSIONS = st.recursive(NUMBERS | st.just("retried"), wider, max_leaves=8).filter(
    lambda text: len(text) <= MAX_EXPRESSION
)


def plainly(text: str, retried: int) -> int | None:
    """The value by Python's own arithmetic; None where it has none."""
    names = {
        **{
            name: getattr(math, name)
            for name in ("pow", "sqrt", "exp", "floor", "ceil")
        },
        "abs": abs,
        "round": round,
        "min": lambda *a: min(a),
        "max": lambda *a: max(a),
    }
    try:
        value = float(
            eval(text, {"__builtins__": {}, **names, "retried": float(retried)})  # noqa: S307 - generated here
        )
        return max(0, round(value)) if math.isfinite(value) else None
    except (ArithmeticError, ValueError):
        return None


@settings(max_examples=300, deadline=None)
@given(text=EXPRESSIONS, retried=st.integers(0, 10))
def test_expressions_mean_what_python_means(text: str, retried: int) -> None:
    """Precedence, functions and rounding agree with an independent evaluation; no value is a typed error."""
    expected = plainly(text, retried)
    if expected is None:
        with pytest.raises(InputError):
            RetryDelay(text)(retried)
    else:
        assert RetryDelay(text)(retried) == pytest.approx(expected, rel=1e-12, abs=1)


@settings(max_examples=300, deadline=None)
@given(
    text=st.text(max_size=60) | st.text("retid()+-*/,0123456789. powmaxs", max_size=60)
)
def test_any_text_is_a_number_or_a_typed_error(text: str) -> None:
    """Nothing else is raised, whatever the text."""
    with contextlib.suppress(InputError):
        assert RetryDelay(text)(1) >= 0


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "__import__('os')", "retried.real", "lambda: 1", "1 if 1 else 2", "foo(1)", "pow(1)",
        "min()", "1 2", "((1)", "1e5", "NaN", "inf", "0x10", "retried = 1", "9" * 30, "1" * 300,
        "(" * 1000, "\u0661",
    ],
)  # fmt: skip
def test_what_is_no_expression_is_refused(text: str) -> None:
    """Names, attributes, calls of anything else, code, and unbounded text."""
    with pytest.raises(InputError):
        RetryDelay(text)


@pytest.mark.parametrize(
    "text",
    ["pow(9, pow(9, 9))", "exp(exp(exp(9)))", "1/0", "sqrt(0-1)", "pow(0-8, 0.5)"],
)
def test_what_has_no_value_is_refused_at_once(text: str) -> None:
    """Overflow, division by zero and roots of negatives end in a typed error, quickly."""
    begun = time.monotonic()
    with pytest.raises(InputError, match="finite"):
        RetryDelay(text)(0)
    assert time.monotonic() - begun < 1


def test_nesting_as_deep_as_the_length_allows_is_fine() -> None:
    """No recursion error at the longest texts."""
    assert RetryDelay("-" * (MAX_EXPRESSION - 1) + "1")(0) == 0
    assert RetryDelay("(" * 127 + "1" + ")" * 127)(0) == 1
    assert RetryDelay("abs(" * 50 + "7" + ")" * 50)(0) == 7


@given(
    parts=st.lists(st.integers(0, 99), min_size=4, max_size=4).filter(any),
)
def test_durations_add_up(parts: list[int]) -> None:
    """Days, hours, minutes and seconds in order, each optional."""
    text = "".join(
        f"{part}{unit}" for part, unit in zip(parts, "dhms", strict=True) if part
    )
    days, hours, minutes, seconds = parts
    assert (
        duration_ms(text)
        == (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000
    )


@pytest.mark.parametrize(
    "text",
    ["", "s", "5x", "-5s", "5s5m", "1h 2m", "\u0661s", "1e3", "5 s", "1d1d", "9" * 20],
)
def test_what_is_no_duration_is_none(text: str) -> None:
    """Wrong order, unknown units, signs and other digits are not guessed at."""
    assert duration_ms(text) is None


@settings(max_examples=200, deadline=None)
@given(text=st.text(max_size=40))
def test_any_wait_is_a_number_or_none(text: str) -> None:
    """Headers of destinations are read without a surprise."""
    actual = delay_ms(text, 0)
    assert actual is None or actual >= 0
