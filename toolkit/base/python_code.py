"""Write the Python that panels, plans and reports show, so that no value can become code.

You paste this code into a notebook, but the values in it come from files, ledgers, frames and pages that
others made. For example, a label ``'); import os; os.remove('x`` must stay a string. Therefore the code
consists of three kinds of parts only:

1. Fixed text of this package: the names of functions and parameters (`PublicCall`), or a template (`fill`).
2. Literals: text, numbers, True, False, None, and lists, tuples and dicts of them (`literal`).
3. The variable of the notebook that has a frame or service (`variable`): an identifier, and no keyword.

Each of these returns `Code`. A plain `str` is never trusted: wherever it is put in, it becomes a literal.
"""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from toolkit.base.arguments import plain, shown, wrong
from toolkit.base.errors import InputError

# levels of lists and dicts; Python's parser stops at 200 open brackets
_DEEPEST: Final = 50
_PLACE: Final = re.compile(r"\{([a-z_]+)\}")


class Code(str):
    """Python that this module wrote. Every operation on it, for example ``+``, returns a plain `str`."""

    __slots__ = ()


def literal(value: object) -> Code:
    """Return a value as a literal.

    Raises
    ------
    InputError
        For a value that no literal has: another type, NaN, infinity, or too many levels.

    Examples
    --------
    >>> print(literal({"a'b": [1, None, 0.5]}))
    {"a'b": [1, None, 0.5]}
    """
    return Code(_written(value, 0))


def listed(items: Iterable[object], brackets: str = "[]") -> Code:
    """Return a list of literals, one line per item; with the brackets ``{}``, a set of at least one.

    >>> print(listed(["a", "b"]))
    [
        'a',
        'b',
    ]
    """
    lines = "".join(f"    {_written(item, 1)},\n" for item in items)
    return Code(f"{brackets[0]}\n{lines}{brackets[1]}")


def variable(name: object) -> Code:
    """Return the name of a variable, which must be an identifier; `tk` is the toolkit itself."""
    if (
        not isinstance(name, str)
        or not name.isidentifier()
        or keyword.iskeyword(name)
        or name == "tk"
    ):
        raise wrong("the name of a variable", name, "a Python identifier, and not tk")

    return Code(str.__str__(name))  # not by the own methods of a subclass


def fill(template: str, **values: object) -> Code:
    """Return a fixed piece of code with each ``{name}`` replaced: by `Code` as it is, else by a literal.

    >>> print(fill("tk.plots.plot_expiry({frame}, {kept})", frame=variable("failures"), kept="7d"))
    tk.plots.plot_expiry(failures, '7d')
    """
    return Code(_PLACE.sub(lambda place: _part(values[place[1]]), template))


def joined(parts: Iterable[Code], between: str = "\n") -> Code:
    """Return several pieces of code as one. Raise `InputError` if one of them is a plain `str`."""
    pieces = list(parts)
    for piece in pieces:
        if not isinstance(piece, Code):
            raise wrong("a piece of code", piece, "Code of this module")

    return Code(between.join(pieces))


@dataclass(frozen=True)
class PublicCall:
    """A public function or class of the toolkit, and the parameters that code may name.

    Examples
    --------
    >>> print(PublicCall("find_expiring", ("retention",)).write(variable("failures"), retention="7d"))
    tk.find_expiring(failures, retention='7d')
    """

    function: str
    parameters: tuple[str, ...]

    def write(self, *given: object, **arguments: object) -> Code:
        """Return the call: `given` by position, the others by name, in the order of `parameters`.

        Raises
        ------
        InputError
            For a name that is not one of `parameters`, and a value that is no literal.
        """
        return Code(f"tk.{self.function}({', '.join(self._parts(given, arguments))})")

    def write_lines(self, *given: object, **arguments: object) -> Code:
        """Return the call with one line per argument."""
        inside = "".join(f"    {part},\n" for part in self._parts(given, arguments))
        return Code(f"tk.{self.function}(\n{inside})")

    def _parts(
        self, given: Iterable[object], arguments: Mapping[str, object]
    ) -> list[str]:
        if unknown := sorted(set(arguments) - set(self.parameters)):
            raise InputError(
                f"writing a call of {self.function}",
                got=f"the argument {shown(unknown[0])}",
                expected=", ".join(self.parameters),
            )

        named = [
            f"{name}={_part(arguments[name])}"
            for name in self.parameters
            if name in arguments
        ]
        return [*map(_part, given), *named]


def _part(value: object) -> str:
    if isinstance(value, Code):
        return value
    return literal(value)


def _written(value: object, level: int) -> str:
    """Return the literal of a value."""
    # A subclass can have any repr, so the repr of the base class is called: a subclass of str that prints
    # "os.remove('x')" is written as the string that it is.
    value = plain(value)
    if level > _DEEPEST:
        raise _no_literal(f"more than {_DEEPEST} levels")
    if value is None or isinstance(value, bool):
        return repr(value)
    if isinstance(value, str):
        return str.__repr__(value)
    if isinstance(value, int):
        return _integer(value)

    if isinstance(value, float):
        if not math.isfinite(value):
            raise _no_literal("a number that is NaN or infinite")
        return float.__repr__(value)

    return _several(value, level + 1)


def _integer(value: int) -> str:
    try:
        return int.__repr__(value)
    except ValueError:  # of more digits than Python reads
        raise _no_literal("an integer of thousands of digits") from None


def _several(value: Any, level: int) -> str:
    if isinstance(value, list):
        return f"[{', '.join(_written_items(value, level))}]"

    if isinstance(value, tuple):
        items = _written_items(value, level)
        if len(items) == 1:
            return f"({items[0]},)"
        return f"({', '.join(items)})"

    if isinstance(value, Mapping):
        names = _written_items(value.keys(), level)
        items = _written_items(value.values(), level)
        return f"{{{', '.join(map('{}: {}'.format, names, items))}}}"

    raise _no_literal(type(value).__name__)


def _written_items(values: Iterable[object], level: int) -> list[str]:
    return [_written(value, level) for value in values]


def _no_literal(got: str) -> InputError:
    return InputError(
        "writing a value as code",
        got=got,
        expected="text, a finite number, True, False, None, or a list of them",
    )
