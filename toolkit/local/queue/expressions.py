"""``Retry-Delay`` expressions: arithmetic over ``retried``, in milliseconds, never evaluated as code."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from typing import Final, TypeAlias

from toolkit.errors import InputError

MAX_LENGTH: Final = 256
"""Longest expression, in characters: it also bounds how deep calls can nest."""

Term: TypeAlias = Callable[[float], float]

_TOKEN: Final = re.compile(r"[ \t]*(?:([0-9]{1,20}(?:\.[0-9]{1,20})?|[a-z]+|[-+*/(),])|\Z)")
_SUMS: Final = {"+": operator.add, "-": operator.sub}
_PRODUCTS: Final = {"*": operator.mul, "/": operator.truediv}
_FUNCTIONS: Final[dict[str, tuple[range, Callable[..., float]]]] = {
    "pow": (range(2, 3), math.pow),
    "sqrt": (range(1, 2), math.sqrt),
    "abs": (range(1, 2), abs),
    "exp": (range(1, 2), math.exp),
    "floor": (range(1, 2), math.floor),
    "ceil": (range(1, 2), math.ceil),
    "round": (range(1, 2), round),
    "min": (range(1, 65), lambda *values: min(values)),
    "max": (range(1, 65), lambda *values: max(values)),
}


class RetryDelay:
    """A parsed expression; an `InputError` when it does not parse, is too long or names an unknown function.

    >>> RetryDelay("1000 * (1 + retried)")(2), RetryDelay("pow(2, retried) * 500")(3)
    (3000, 4000)
    """

    def __init__(self, text: str) -> None:
        if len(text) > MAX_LENGTH:
            raise _refused(f"{len(text)} characters", f"at most {MAX_LENGTH}")
        self._term = _ExpressionParser(text).whole()

    def __call__(self, retried: int) -> int:
        """Milliseconds, from 0, before the next retry; an `InputError` where there is no finite value."""
        try:
            value = float(self._term(float(retried)))
        except (ArithmeticError, ValueError) as error:
            raise _refused(f"no value for retried = {retried} ({error})", "a finite number") from None
        if not math.isfinite(value):
            raise _refused(f"{value} for retried = {retried}", "a finite number")
        return max(0, round(value))


def _refused(got: str, expected: str) -> InputError:
    return InputError("reading a Retry-Delay expression", got=got, expected=expected)


class _ExpressionParser:
    """Makes a function of an expression, token by token."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0  # of the token
        self._end = 0  # of the token
        self._word = ""
        self._advance()

    def whole(self) -> Term:
        """The function of the whole text."""
        term = self._sum()
        if self._word:
            raise self._unexpected()
        return term

    def _sum(self) -> Term:
        term = self._product()
        while self._word in _SUMS:
            term = _applied(_SUMS[self._advance()], term, self._product())
        return term

    def _product(self) -> Term:
        term = self._factor()
        while self._word in _PRODUCTS:
            term = _applied(_PRODUCTS[self._advance()], term, self._factor())
        return term

    def _factor(self) -> Term:
        negative = False
        while self._word in _SUMS:
            negative ^= self._advance() == "-"
        term = self._atom()
        return _applied(operator.neg, term) if negative else term

    def _atom(self) -> Term:
        if self._word[:1].isdigit():
            value = float(self._advance())
            return lambda _: value
        if self._word == "(":
            (term,) = self._arguments()
            return term
        if not self._word.isalpha():
            raise self._unexpected()
        name = self._advance()
        if name == "retried":
            return lambda retried: retried
        given = self._arguments(several=True)
        if name not in _FUNCTIONS:
            raise _refused(f"the function {name[:40]!r}", f"one of {', '.join(_FUNCTIONS)}")
        counts, function = _FUNCTIONS[name]
        if len(given) not in counts:
            raise _refused(f"{name} with {len(given)} arguments", f"{counts[0]} to {counts[-1]}")
        return _applied(function, *given)

    def _arguments(self, *, several: bool = False) -> list[Term]:
        """What is in parentheses: one expression, or `several`, perhaps none, with commas between."""
        self._need("(")
        terms = [] if several and self._word == ")" else [self._sum()]
        while several and self._word == ",":
            self._advance()
            terms.append(self._sum())
        self._need(")")
        return terms

    def _need(self, token: str) -> None:
        if self._word != token:
            raise self._unexpected()
        self._advance()

    def _advance(self) -> str:
        """The current token; the next one becomes current, empty at the end."""
        token, self._position = self._word, self._end
        match = _TOKEN.match(self._text, self._end)
        if match is None:
            raise self._unexpected()
        self._word, self._end = match[1] or "", match.end()
        self._position = self._end - len(self._word)
        return token

    def _unexpected(self) -> InputError:
        got = f"{self._text[:80]!r}, not understood at position {self._position}"
        return _refused(got, "arithmetic over retried")


def _applied(function: Callable[..., float], *terms: Term) -> Term:
    return lambda retried: function(*(term(retried) for term in terms))
