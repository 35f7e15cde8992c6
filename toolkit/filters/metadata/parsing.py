"""The grammar of the metadata filter language, and errors with position and expectation.

Text is in single or double quotes; the same quote inside is written twice, as in SQL (``'it''s'``), and a
backslash is an ordinary character. Operators and booleans may be in any case. The service does not say how
quotes are escaped: this is an assumption.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, Final, cast

from lark import Lark, Token, Transformer, UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from toolkit.errors import FilterSyntaxError, InputError
from toolkit.filters.metadata.globbing import GlobPattern
from toolkit.filters.metadata.tree import (
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

MAX_TEXT: Final = 65_536
"""Longest filter, in characters."""

_MAX_DIGITS: Final = 400

# A keyword ends where no character of a field follows. Where the grammar allows only a field, a keyword is
# one, so that metadata may have a field called "in".
_GRAMMAR: Final = r"""
?start: any
?any: all (_OR all)*
?all: condition (_AND condition)*
?condition: FIELD OP value            -> comparison
    | FIELD _IN values                -> among
    | FIELD _NOT _IN values           -> not_among
    | FIELD _CONTAINS value           -> contains
    | FIELD _NOT _CONTAINS value      -> not_contains
    | FIELD _GLOB TEXT                -> glob
    | FIELD _NOT _GLOB TEXT           -> not_glob
    | _HAS _FIELD FIELD               -> has
    | _HAS _NOT _FIELD FIELD          -> has_not
    | "(" any ")"
values: "(" value ("," value)* ")"
?value: TEXT -> text | NUMBER -> number | TRUE -> true | FALSE -> false

FIELD: /[a-z_][a-z_0-9.\[\]#-]*/i
OP: /!=|<=|>=|=|<|>/
TEXT: /'(?:[^']|'')*'|"(?:[^"]|"")*"/
NUMBER: /[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:e[+-]?[0-9]+)?/i
_AND.2: /and(?![a-z_0-9.\[\]#-])/i
_OR.2: /or(?![a-z_0-9.\[\]#-])/i
_NOT.2: /not(?![a-z_0-9.\[\]#-])/i
_IN.2: /in(?![a-z_0-9.\[\]#-])/i
_CONTAINS.2: /contains(?![a-z_0-9.\[\]#-])/i
_GLOB.2: /glob(?![a-z_0-9.\[\]#-])/i
_HAS.2: /has(?=[ \t\r\n\f]+(?:not[ \t\r\n\f]+)?field(?![a-z_0-9.\[\]#-]))/i
_FIELD.2: /field(?![a-z_0-9.\[\]#-])/i
TRUE.2: /true(?![a-z_0-9.\[\]#-])/i
FALSE.2: /false(?![a-z_0-9.\[\]#-])/i
%ignore /[ \t\r\n\f]+/
"""

_NAMES: Final = {
    "FIELD": "a field",
    "OP": "= != < <= > >=",
    "TEXT": "text in quotes",
    "NUMBER": "a number",
    "TRUE": "true",
    "FALSE": "false",
    "LPAR": "'('",
    "RPAR": "')'",
    "COMMA": "','",
    "$END": "the end",
}
_QUOTED_OR_BRACKET: Final = re.compile(r"'[^']*'|\"[^\"]*\"|[()]")
_HINTS: Final = (
    ("==", "Equality is a single '='."),
    ("<>", "Inequality is '!='."),
    ("&&", "Write AND."),
    ("||", "Write OR."),
    ("'", "A quote inside text is written twice; text ends with the quote it began with."),
    ('"', "A quote inside text is written twice; text ends with the quote it began with."),
)


def parse(text: str) -> MetadataFilter:
    r"""The tree of a filter.

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
        With the position where reading stopped, the text there and what was expected.

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
        raise InputError("reading the text of a metadata filter", got=type(text).__name__, expected="text")
    if len(text) > MAX_TEXT:
        raise _error(text, MAX_TEXT, f"{len(text)} characters", f"at most {MAX_TEXT}")
    _check_depth(text)
    try:
        return cast("MetadataFilter", _parser().parse(text))
    except UnexpectedInput as error:
        raise _explained(text, error) from None
    except _ValueRefusal as refusal:
        cause = refusal.error
        raise _error(text, refusal.position, cause.got or cause.doing, cause.expected or "a value") from None


@cache
def _parser() -> Lark:
    return Lark(_GRAMMAR, parser="lalr", lexer="contextual", transformer=_Builder(), maybe_placeholders=False)


class _ValueRefusal(Exception):  # noqa: N818 - carried to `parse`, which knows the text
    """A value that the tree refuses, with its position."""

    def __init__(self, token: Token, error: InputError) -> None:
        self.position = token.start_pos or 0
        self.error = error
        super().__init__(str(error))


class _Builder(Transformer[Token, Any]):
    """Builds the tree while the parser reads: no recursion, whatever the text."""

    def any(self, parts: list[MetadataFilter]) -> MetadataFilter:
        return Or(tuple(parts))

    def all(self, parts: list[MetadataFilter]) -> MetadataFilter:
        return And(tuple(parts))

    def values(self, items: list[Any]) -> tuple[Any, ...]:
        return tuple(items)

    def text(self, items: list[Token]) -> str:
        return _unquoted(items[0])

    def number(self, items: list[Token]) -> int | float:
        return _number(items[0])

    def true(self, _: list[Token]) -> bool:
        return True

    def false(self, _: list[Token]) -> bool:
        return False

    def comparison(self, items: list[Any]) -> MetadataFilter:
        return _made(Comparison, items[0], str(items[1]), items[2])

    def among(self, items: list[Any]) -> MetadataFilter:
        return _made(Membership, items[0], items[1])

    def not_among(self, items: list[Any]) -> MetadataFilter:
        return _made(Membership, items[0], items[1], negated=True)

    def contains(self, items: list[Any]) -> MetadataFilter:
        return _made(Contains, items[0], items[1])

    def not_contains(self, items: list[Any]) -> MetadataFilter:
        return _made(Contains, items[0], items[1], negated=True)

    def glob(self, items: list[Token]) -> MetadataFilter:
        return _made(Glob, items[0], _pattern(items[1]))

    def not_glob(self, items: list[Token]) -> MetadataFilter:
        return _made(Glob, items[0], _pattern(items[1]), negated=True)

    def has(self, items: list[Token]) -> MetadataFilter:
        return _made(HasField, items[0])

    def has_not(self, items: list[Token]) -> MetadataFilter:
        return _made(HasField, items[0], negated=True)


def _made(kind: Any, field: Token, *values: Any, **options: bool) -> MetadataFilter:
    try:
        return cast("MetadataFilter", kind(str(field), *values, **options))
    except InputError as error:
        raise _ValueRefusal(field, error) from None


def _unquoted(token: Token) -> str:
    quote = token[0]
    return str(token[1:-1].replace(quote * 2, quote))


def _pattern(token: Token) -> str:
    pattern = _unquoted(token)
    try:
        GlobPattern(pattern)
    except InputError as error:
        raise _ValueRefusal(token, error) from None
    return pattern


def _number(token: Token) -> int | float:
    if len(token) > _MAX_DIGITS:
        raise _ValueRefusal(
            token,
            InputError(
                "reading a number",
                got=f"a number of {len(token)} characters",
                expected=f"at most {_MAX_DIGITS}",
            ),
        )
    if token.lstrip("+-").isdigit():
        return int(token)
    number = float(token)
    if number in (float("inf"), float("-inf")):
        raise _ValueRefusal(token, InputError("reading a number", got=str(token), expected="a finite number"))
    return number


def _check_depth(text: str) -> None:
    depth = 0
    for found in _QUOTED_OR_BRACKET.finditer(text):
        depth += {"(": 1, ")": -1}.get(found[0], 0)
        if depth > MAX_DEPTH:
            raise _error(text, found.start(), "one more '('", f"parentheses at most {MAX_DEPTH} deep")


def _explained(text: str, error: UnexpectedInput) -> FilterSyntaxError:
    position = len(text)
    wanted: set[str] = set()
    if isinstance(error, UnexpectedToken):
        wanted = set(error.accepts or error.expected)
        if error.token.type != "$END":
            position = error.token.start_pos or 0
    elif isinstance(error, UnexpectedCharacters):
        wanted = set(error.allowed or ())
        position = error.pos_in_stream or 0
    rest = text[position:]
    word = re.match(r"[\w.\[\]#-]+|\S", rest)
    return _error(
        text, position, repr(word[0][:40]) if word else "the end", _listed(wanted), _hint(text, position)
    )


def _hint(text: str, position: int) -> str | None:
    near = text[max(0, position - 1) : position + 2]
    for sign, hint in _HINTS:
        if text.startswith(sign, position) or (len(sign) > 1 and sign in near):
            return hint
    words = text[:position].split()
    if (words and words[-1].upper() == "NOT") or text[position:].upper().startswith("NOT "):
        return "NOT follows the field: 'city NOT IN (…)'; there is no NOT before a condition."
    return None


def _listed(terminals: set[str]) -> str:
    names = [name for terminal, name in _NAMES.items() if terminal in terminals]
    names += sorted(terminal.lstrip("_") for terminal in terminals if terminal not in _NAMES)
    return f"{', '.join(names[:-1])} or {names[-1]}" if len(names) > 1 else "".join(names)


def _error(
    text: str, position: int, got: str, expected: str, next_step: str | None = None
) -> FilterSyntaxError:
    return FilterSyntaxError(
        "reading the metadata filter",
        text=text,
        position=position,
        got=got,
        expected=expected,
        next_step=next_step,
    )
