"""``Retry-Delay`` expressions: arithmetic over ``retried``, in milliseconds, never evaluated as code."""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable
from typing import Final, TypeAlias

from toolkit.errors import InputError

MAX_LENGTH: Final = 256
"""Longest expression, in characters: it also bounds how deep calls can nest."""

Term: TypeAlias = Callable[[float], float]

# of what Python's grammar allows, this is all that arithmetic needs
_TEXT: Final = re.compile(
    r"(?:[ \t]*(?:[0-9]{1,20}(?:\.[0-9]{1,20})?(?![\w.])|[a-z]+(?![\w.])|,(?![ \t]*\))|[-+*/()]))*[ \t]*"
)
_ZEROS: Final = re.compile(r"(?<![\w.])0+(?=[0-9])")  # before a number, which Python does not allow
_OPERATORS: Final[dict[type[ast.operator], Callable[[float, float], float]]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
}  # fmt: skip
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
        unknown = _refused(f"{text[:80]!r}, which does not parse", "arithmetic over retried")
        if not _TEXT.fullmatch(text):
            raise unknown
        try:
            self._term = _term(ast.parse(_ZEROS.sub("", text.strip()), mode="eval").body)
        except SyntaxError:
            raise unknown from None

    def __call__(self, retried: int) -> int:
        """Milliseconds, from 0, before the next retry; an `InputError` where there is no finite value."""
        try:
            value = float(self._term(float(retried)))
        except (ArithmeticError, ValueError) as error:
            raise _refused(f"no value for retried = {retried} ({error})", "a finite number") from None
        if not math.isfinite(value):
            raise _refused(f"{value} for retried = {retried}", "a finite number")
        return max(0, round(value))


def _term(node: ast.expr) -> Term:
    """The function that a part of an expression means; `SyntaxError` where it means none."""
    negative = False
    while isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.UAdd | ast.USub):
        negative ^= isinstance(node.op, ast.USub)
        node = node.operand
    term: Term
    match node:
        case ast.Constant(value=int() | float() as number):
            value = float(number)
            term = lambda _: value  # noqa: E731 - one of several kinds of terms
        case ast.Name(id="retried"):
            term = float
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            term = _applied(_OPERATORS[type(op)], _term(left), _term(right))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
            if name not in _FUNCTIONS:
                raise _refused(f"the function {name[:40]!r}", f"one of {', '.join(_FUNCTIONS)}")
            counts, function = _FUNCTIONS[name]
            if len(arguments) not in counts:
                raise _refused(f"{name} with {len(arguments)} arguments", f"{counts[0]} to {counts[-1]}")
            term = _applied(function, *map(_term, arguments))
        case _:
            raise SyntaxError
    return _applied(operator.neg, term) if negative else term


def _applied(function: Callable[..., float], *terms: Term) -> Term:
    return lambda retried: function(*(term(retried) for term in terms))


def _refused(got: str, expected: str) -> InputError:
    return InputError("reading a Retry-Delay expression", got=got, expected=expected)
