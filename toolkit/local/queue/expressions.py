"""``Retry-Delay`` expressions: arithmetic over ``retried``, in milliseconds.

Parsed by a grammar, never evaluated as code. Length, nesting and results are bounded.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Final, TypeAlias

from lark import Lark, LarkError, Token, Transformer, v_args

from toolkit.errors import InputError

MAX_LENGTH: Final = 256
"""Longest expression, in characters: it also bounds how deep calls can nest."""

Term: TypeAlias = Callable[[float], float]

_GRAMMAR: Final = r"""
    ?start: sum
    ?sum: product
        | sum "+" product   -> add
        | sum "-" product   -> subtract
    ?product: factor
        | product "*" factor -> multiply
        | product "/" factor -> divide
    ?factor: atom
        | "-" factor -> negate
        | "+" factor
    ?atom: NUMBER -> number
        | "retried" -> retried
        | NAME "(" [sum ("," sum)*] ")" -> call
        | "(" sum ")"
    NAME: /[a-z]+/
    NUMBER: /[0-9]{1,20}(\.[0-9]{1,20})?/
    %ignore /[ \t]+/
"""

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

    Examples
    --------
    >>> RetryDelay("1000 * (1 + retried)")(2), RetryDelay("pow(2, retried) * 500")(3)
    (3000, 4000)
    """

    def __init__(self, text: str) -> None:
        if len(text) > MAX_LENGTH:
            raise _refused(f"{len(text)} characters", f"at most {MAX_LENGTH}")
        try:
            self._term: Term = _parser().parse(text)  # type: ignore[assignment]  # the transformer makes a Term of it
        except LarkError as error:
            if isinstance(error.__context__, InputError):
                raise error.__context__ from None
            position = getattr(error, "pos_in_stream", None)
            where = f"{text[:80]!r}" + (
                f", not understood at position {position}" if isinstance(position, int) else ""
            )
            raise _refused(where, "arithmetic over retried") from None

    def __call__(self, retried: int) -> int:
        """The delay before the retry after `retried` earlier ones, in milliseconds from 0.

        An `InputError` when it has no finite value there, as with a division by zero.
        """
        try:
            value = float(self._term(float(retried)))
        except (ArithmeticError, ValueError) as error:
            raise _refused(f"no value for retried = {retried} ({error})", "a finite number") from None
        if not math.isfinite(value):
            raise _refused(f"{value} for retried = {retried}", "a finite number")
        return max(0, round(value))


def _refused(got: str, expected: str) -> InputError:
    return InputError("reading a Retry-Delay expression", got=got, expected=expected)


@v_args(inline=True)
class _Compile(Transformer[Token, Term]):
    def number(self, token: Token) -> Term:
        value = float(token)
        return lambda _: value

    def retried(self) -> Term:
        return lambda retried: retried

    def add(self, left: Term, right: Term) -> Term:
        return lambda retried: left(retried) + right(retried)

    def subtract(self, left: Term, right: Term) -> Term:
        return lambda retried: left(retried) - right(retried)

    def multiply(self, left: Term, right: Term) -> Term:
        return lambda retried: left(retried) * right(retried)

    def divide(self, left: Term, right: Term) -> Term:
        return lambda retried: left(retried) / right(retried)

    def negate(self, term: Term) -> Term:
        return lambda retried: -term(retried)

    def call(self, name: Token, *arguments: Term | None) -> Term:
        given = [argument for argument in arguments if argument is not None]
        if name not in _FUNCTIONS:
            raise _refused(f"the function {str(name)[:40]!r}", f"one of {', '.join(_FUNCTIONS)}")
        counts, function = _FUNCTIONS[name]
        if len(given) not in counts:
            raise _refused(f"{name} with {len(given)} arguments", f"{counts[0]} to {counts[-1]}")
        return lambda retried: function(*(argument(retried) for argument in given))


@lru_cache(maxsize=1)
def _parser() -> Lark:
    return Lark(_GRAMMAR, parser="lalr", transformer=_Compile(), maybe_placeholders=True)
