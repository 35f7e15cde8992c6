"""Measure how dense code is: branches, conditional expressions and crowded comprehensions per line.

Run `python -m tests.plain.shape [-v] [PATHS]` from the project's root. `-v` lists the densest functions.

Well-known projects of the field have 0.12 to 0.17 branches per line of a function's body. A branch is a
decision that a reader has to follow: an `if`, a loop, a `try` or `except`, a conditional expression, a part
of a comprehension, a `case`, or a group of `and` or `or`.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

BRANCHES = (
    ast.If,
    ast.For,
    ast.While,
    ast.Try,
    ast.IfExp,
    ast.comprehension,
    ast.BoolOp,
    ast.ExceptHandler,
    ast.match_case,
)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)

MOST_BRANCHES = 0.20
"""Branches per line of a function's body."""

MOST_PER_10_000_LINES = {
    "conditional expressions": 110.0,
    "nested conditional expressions": 2.0,
    "text times a condition": 2.0,
    "comprehensions with two for": 5.0,
}

LEAST_COMMENTS = 1.5
"""Percent of lines that are comments."""


@dataclass
class Shape:
    """Counts over some files."""

    lines: int = 0
    comments: int = 0
    branches: int = 0
    body_lines: int = 0
    counts: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(MOST_PER_10_000_LINES, 0)
    )
    functions: list[tuple[int, int, str]] = field(default_factory=list)

    @property
    def density(self) -> float:
        """Return the branches per line of a function's body."""
        return self.branches / max(self.body_lines, 1)

    def rate(self, construct: str) -> float:
        """Return how often a construct occurs per 10,000 lines."""
        return self.counts[construct] / max(self.lines, 1) * 10_000

    @property
    def comment_share(self) -> float:
        """Return the percentage of lines that are comments."""
        return 100 * self.comments / max(self.lines, 1)

    def broken_limits(self) -> dict[str, float]:
        """Return the measures above their limits."""
        broken = {
            construct: self.rate(construct)
            for construct, most in MOST_PER_10_000_LINES.items()
            if self.rate(construct) > most
        }
        if self.density > MOST_BRANCHES:
            broken["branches per line"] = self.density
        return broken


def measure_shape(paths: Iterable[Path]) -> Shape:
    """Measure Python files, or all Python files below folders."""
    shape = Shape()
    for path in paths:
        files = sorted(path.rglob("*.py")) if path.is_dir() else [path]
        for file in files:
            _add_file(shape, file)
    return shape


def _add_file(shape: Shape, file: Path) -> None:
    source = file.read_text("utf-8")
    lines = source.splitlines()
    shape.lines += len(lines)
    shape.comments += sum(line.strip().startswith("#") for line in lines)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            _add_function(shape, file, node)
        for construct in _constructs(node):
            shape.counts[construct] += 1


def _add_function(
    shape: Shape, file: Path, function: ast.FunctionDef | ast.AsyncFunctionDef
) -> None:
    """Count the branches of a function, and its lines without the docstring."""
    branches = sum(isinstance(node, BRANCHES) for node in ast.walk(function))
    body_lines = _line_count(function)
    if ast.get_docstring(function, clean=False) is not None:
        body_lines -= _line_count(function.body[0])
    shape.branches += branches
    shape.body_lines += body_lines
    shape.functions.append(
        (branches, body_lines, f"{file}:{function.lineno} {function.name}")
    )


def _line_count(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _constructs(node: ast.AST) -> list[str]:
    """Return the constructs of `MOST_PER_10_000_LINES` that a node is."""
    if isinstance(node, ast.IfExp):
        is_nested = isinstance(node.body, ast.IfExp) or isinstance(
            node.orelse, ast.IfExp
        )
        return (
            ["conditional expressions", "nested conditional expressions"]
            if is_nested
            else ["conditional expressions"]
        )
    if isinstance(node, COMPREHENSIONS) and len(node.generators) > 1:
        return ["comprehensions with two for"]
    if (
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Mult)
        and _is_text(node.left)
    ):
        conditions = (
            ast.Compare,
            ast.UnaryOp,
            ast.BoolOp,
            ast.Attribute,
            ast.Name,
            ast.Call,
        )
        if isinstance(node.right, conditions):
            return ["text times a condition"]
    return []


def _is_text(node: ast.expr) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str)
    return isinstance(node, ast.JoinedStr | ast.List)


def main() -> None:
    """Print the measures of the paths on the command line."""
    is_verbose = "-v" in sys.argv
    paths = [Path(argument) for argument in sys.argv[1:] if argument != "-v"]
    shape = measure_shape(paths or [Path("toolkit")])
    print(f"{shape.lines:,} lines, {len(shape.functions):,} functions")
    print(f"  branches per line {shape.density:26.2f}   at most {MOST_BRANCHES:g}")
    for construct, most in MOST_PER_10_000_LINES.items():
        print(
            f"  {construct + ' per 10,000 lines':40} {shape.rate(construct):7.1f}   at most {most:g}"
        )
    print(
        f"  lines that are comments, % {shape.comment_share:17.2f}   at least {LEAST_COMMENTS:g}"
    )
    if is_verbose:
        for branches, body_lines, place in sorted(shape.functions, reverse=True)[:25]:
            print(f"    {branches:3} branches in {body_lines:3} lines: {place}")
    sys.exit(bool(shape.broken_limits()) or shape.comment_share < LEAST_COMMENTS)


if __name__ == "__main__":
    main()
