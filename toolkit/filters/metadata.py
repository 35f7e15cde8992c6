"""Parse the filter language of vector metadata, with errors that show the position and the expected tokens.

A quote inside a string is written twice, as in SQL (``'it''s'``). The service does not document this.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, Final, TypeVar

from toolkit.base.errors import FilterSyntaxError, InputError
from toolkit.filters.conditions import (
    MAX_DEPTH,
    And,
    Comparison,
    Contains,
    Glob,
    HasField,
    Membership,
    MetadataFilter,
    Or,
)
from toolkit.filters.glob_pattern import GlobPattern

__all__ = [
    "And",
    "Comparison",
    "Contains",
    "Glob",
    "HasField",
    "Membership",
    "MetadataFilter",
    "Or",
    "parse",
]

T = TypeVar("T")

MAX_TEXT: Final = 65_536
"""Longest filter, in characters."""

_MAX_DIGITS: Final = 400
_SPACE: Final = re.compile(r"[ \t\r\n\f]*")
_WORD: Final = re.compile(r"[\w.\[\]#-]+|\S")
# A keyword ends if no character of a field follows: "infinity" does not begin with IN.
_END_OF_WORD: Final = r"(?![a-z_0-9.\[\]#-])"

_TOKENS: Final[dict[str, re.Pattern[str]]] = {
    name: re.compile(pattern, re.IGNORECASE)
    for name, pattern in {
        "a field": r"[a-z_][a-z_0-9.\[\]#-]*",
        "= != < <= > >=": r"!=|<=|>=|=|<|>",
        "text in quotes": r"""'(?:[^']|'')*'|"(?:[^"]|"")*\"""",
        "a number": r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:e[+-]?[0-9]+)?",
        "true": f"true{_END_OF_WORD}",
        "false": f"false{_END_OF_WORD}",
        "'('": r"\(",
        "')'": r"\)",
        "','": r",",
        "the end": r"\Z",
        **{word: f"{word}{_END_OF_WORD}" for word in ("AND", "CONTAINS", "GLOB")},
        # one token of two words, so that metadata may have a field called "has"
        "HAS": rf"has[ \t\r\n\f]+(not[ \t\r\n\f]+)?field{_END_OF_WORD}",
        **{word: f"{word}{_END_OF_WORD}" for word in ("IN", "NOT", "OR")},
    }.items()
}
"""Tokens by name, in the order in which an error lists the expected tokens."""

_QUOTES_HINT: Final = (
    "A quote inside text is written twice; text ends with the quote it began with."
)
_HINTS: Final = (
    ("==", "Equality is a single '='."),
    ("<>", "Inequality is '!='."),
    ("&&", "Write AND."),
    ("||", "Write OR."),
    ("'", _QUOTES_HINT),
    ('"', _QUOTES_HINT),
)


def parse(text: str) -> MetadataFilter:
    r"""Parse a filter into a tree of conditions.

    Parameters
    ----------
    text : str
        At most 65,536 characters, parentheses at most 100 deep.

    Returns
    -------
    MetadataFilter

    Raises
    ------
    FilterSyntaxError
        If the text is not a filter. The error has the position, the text there and the expected tokens.

    Examples
    --------
    >>> parse("city = 'Izmir' and (age>=3 OR tags contains \"new\")").text()
    "city = 'Izmir' AND (age >= 3 OR tags CONTAINS 'new')"
    >>> parse("city = ")
    Traceback (most recent call last):
    toolkit.errors.FilterSyntaxError: reading the metadata filter at position 7: got the end; expected text in
    quotes, a number, true or false
    """
    if not isinstance(text, str):
        raise InputError(
            "reading the text of a metadata filter",
            got=type(text).__name__,
            expected="text",
        )

    parser = _FilterParser(text)
    if len(text) > MAX_TEXT:
        raise parser.error(MAX_TEXT, f"{len(text)} characters", f"at most {MAX_TEXT}")

    tree = parser.any_of()
    parser.need("the end")
    return tree


class _FilterParser:
    """Parse a filter from the start, with one token of lookahead (recursive descent)."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._next = 0  # index after the last token
        self._start = 0  # index of the last token
        self._tried: set[str] = set()  # names of the tokens that were tried at `_next`
        self._depth = 0

    def any_of(self) -> MetadataFilter:
        """Parse conditions joined by AND and OR. AND binds more tightly than OR."""
        groups = [self._all_of()]
        while self._take("OR") is not None:
            groups.append(self._all_of())
        return _combined(Or, groups)

    def _all_of(self) -> MetadataFilter:
        """Parse conditions joined by AND."""
        parts = [self._condition()]
        while self._take("AND") is not None:
            parts.append(self._condition())
        return _combined(And, parts)

    def need(self, name: str) -> str:
        """Take the next token. Raise FilterSyntaxError if it does not have this name."""
        token = self._take(name)
        if token is None:
            raise self._unexpected()

        return token

    def error(
        self, position: int, got: str, expected: str, next_step: str | None = None
    ) -> FilterSyntaxError:
        """Return the error for a position in the text."""
        return FilterSyntaxError(
            "reading the metadata filter",
            text=self._text,
            position=position,
            got=got,
            expected=expected,
            next_step=next_step,
        )

    def _condition(self) -> MetadataFilter:
        if self._take("'('") is not None:
            return self._in_parentheses()

        if (has := self._take("HAS")) is not None:
            negated = len(has.split()) > len(("HAS", "FIELD"))
            field = self.need("a field")
            return self._checked(HasField, field, negated=negated)

        field, start = self.need("a field"), self._start
        if (operator := self._take("= != < <= > >=")) is not None:
            value = self._value()
            return self._checked(Comparison, field, operator, value, start=start)

        negated = self._take("NOT") is not None
        if self._take("IN") is not None:
            values = self._values()
            return self._checked(
                Membership, field, values, negated=negated, start=start
            )

        if self._take("CONTAINS") is not None:
            value = self._value()
            return self._checked(Contains, field, value, negated=negated, start=start)

        self.need("GLOB")
        pattern = _unquoted(self.need("text in quotes"))
        self._checked(GlobPattern, pattern)

        return self._checked(Glob, field, pattern, negated=negated, start=start)

    def _in_parentheses(self) -> MetadataFilter:
        """Parse the conditions after an opening parenthesis."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self.error(
                self._start, "one more '('", f"parentheses at most {MAX_DEPTH} deep"
            )

        inner = self.any_of()
        self.need("')'")
        self._depth -= 1

        return inner

    def _values(self) -> tuple[str | int | float | bool, ...]:
        self.need("'('")
        values = [self._value()]
        while self._take("','") is not None:
            values.append(self._value())
        self.need("')'")

        return tuple(values)

    def _value(self) -> str | int | float | bool:
        if (token := self._take("text in quotes")) is not None:
            return _unquoted(token)
        if (token := self._take("a number")) is not None:
            return self._checked(_number, token)
        if self._take("true") is not None:
            return True

        self.need("false")
        return False

    def _checked(
        self,
        make: Callable[..., T],
        *values: Any,
        start: int | None = None,
        **options: bool,
    ) -> T:
        """Call `make`. An InputError gets the position of the token at `start`, or of the last token."""
        try:
            return make(*values, **options)
        except InputError as error:
            position = self._start
            if start is not None:
                position = start
            got = error.got or error.doing
            expected = error.expected or "a value"
            raise self.error(position, got, expected) from None

    def _take(self, name: str) -> str | None:
        """Take the next token if it has this name, else return None."""
        start = _SPACE.match(self._text, self._next).end()  # type: ignore[union-attr]
        match = _TOKENS[name].match(self._text, start)
        if match is None:
            self._tried.add(name)
            return None

        self._start, self._next = match.span()
        self._tried.clear()
        return match[0]

    def _unexpected(self) -> FilterSyntaxError:
        """Return the error for a token that is not one of the expected tokens."""
        position = _SPACE.match(self._text, self._next).end()  # type: ignore[union-attr]
        word = _WORD.match(self._text, position)
        *others, last = filter(self._tried.__contains__, _TOKENS)
        expected = last
        if others:
            expected = f"{', '.join(others)} or {last}"
        got = "the end"
        if word:
            got = repr(word[0][:40])
        return self.error(position, got, expected, _hint(self._text, position))


def _combined(
    combination: type[And | Or], parts: list[MetadataFilter]
) -> MetadataFilter:
    """Return the combination of several parts, or the only part."""
    if len(parts) == 1:
        return parts[0]
    return combination(tuple(parts))


def _unquoted(token: str) -> str:
    return token[1:-1].replace(token[0] * 2, token[0])


def _number(token: str) -> int | float:
    if len(token) > _MAX_DIGITS:
        length = f"a number of {len(token)} characters"
        raise InputError(
            "reading a number", got=length, expected=f"at most {_MAX_DIGITS} characters"
        )

    if token.lstrip("+-").isdigit():
        return int(token)

    number = float(token)
    if math.isinf(number):
        raise InputError("reading a number", got=token, expected="a finite number")

    return number


def _hint(text: str, position: int) -> str | None:
    """Return advice for operators of other languages and for a misplaced NOT, or None."""
    near = text[max(0, position - 1) : position + 2]
    for sign, hint in _HINTS:
        if text.startswith(sign, position):
            return hint
        # the second character of "==" is the unexpected token
        if len(sign) > 1 and sign in near:
            return hint

    follows_not = text[:position].upper().split()[-1:] == ["NOT"]
    if follows_not or text[position:].upper().startswith("NOT "):
        return "NOT follows the field, for example city NOT IN ('Izmir'). A condition cannot begin with NOT."

    return None
